//! Recordings come from somewhere and go somewhere: how arguments become inputs, and how outputs come into being, whole or not at all.

pub(crate) mod commit;
pub(crate) mod signals;
pub(crate) mod source;
pub(crate) mod target;
