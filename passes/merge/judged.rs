//! Counts how many of a guest's records are at times when the host ran their VCPU. If the offset is right,
//! nearly all are, in every part.

/// A guest's time is divided into this many parts of equal length, each judged separately.
pub(crate) const PARTS: usize = 32;

/// The counts of one part.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Judged {
    pub(crate) inside: u64,
    pub(crate) all: u64,
}
