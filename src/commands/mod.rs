//! One file a command; each is a preset of passes plus its report, and knows no byte of the format.

pub(crate) mod copy;
pub(crate) mod dump;
pub(crate) mod inject;
pub(crate) mod merge;
pub(crate) mod passes;
pub(crate) mod run;
