//! Counts a guest's records while the host ran their VCPU: nearly all in every part, if the offset is right.

/// A guest's time is divided into this many equal parts, each judged separately.
pub(crate) const PARTS: usize = 32;

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Judged {
    pub(crate) inside: u64,
    pub(crate) all: u64,
}
