//! Turns arguments into inputs, and writes outputs completely or not at all.

pub(crate) mod index_file;
pub(crate) mod make_index;
pub(crate) mod output;
pub(crate) mod signals;
pub(crate) mod source;
pub(crate) mod sparse;
pub(crate) mod streams;
