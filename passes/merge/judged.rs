//! Counts how many of a guest's records fall into times when the host ran their VCPU: nearly all, in every
//! part, if the offset is right.

/// A guest's time is divided into this many parts of equal length, each judged separately.
pub(crate) const PARTS: usize = 32;

/// The counts of a part.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Judged {
    pub(crate) inside: u64,
    pub(crate) all: u64,
}
