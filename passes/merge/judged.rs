//! How many of a guest's records lie where the host ran their VCPU: nearly all, all the time, if its offset is right.

/// A guest's time is judged in so many parts of the same length, each for itself.
pub(crate) const PARTS: usize = 32;

/// What was seen in a part.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Judged {
    pub(crate) inside: u64,
    pub(crate) all: u64,
}
