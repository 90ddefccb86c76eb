//! The bytes of a trace, which may lie in several pieces: packets and points of synchronization go across their
//! ends.

/// The data of one buffer, of a CPU or thread, in order and without gaps. What is not contiguous is a trace of
/// its own.
#[derive(Clone, Debug, Default)]
pub struct Trace<'a> {
    /// None is empty.
    pieces: Vec<&'a [u8]>,
    /// The offset behind each piece.
    ends: Vec<u64>,
}

impl<'a> Trace<'a> {
    /// The trace that consists of these pieces.
    pub fn new(mut pieces: Vec<&'a [u8]>) -> Trace<'a> {
        pieces.retain(|piece| !piece.is_empty());
        let mut end = 0;
        let ends = pieces.iter().map(|piece| {
            end += piece.len() as u64;
            end
        });
        let ends = ends.collect();
        Trace { pieces, ends }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}
