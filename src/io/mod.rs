//! Turns arguments into inputs, and writes outputs completely or not at all.

pub(crate) mod commit;
pub(crate) mod signals;
pub(crate) mod source;
pub(crate) mod target;
