//! One file a command; each is a preset of passes plus its report, and knows no byte of the format.

pub(crate) mod copy;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod dump;
pub(crate) mod info;
pub(crate) mod inject;
pub(crate) mod passes;
pub(crate) mod run;
pub(crate) mod stats;
