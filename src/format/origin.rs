//! Tracks the origin of a record's bytes: a place in the input or in a COMPRESSED record, or a pass.

use std::fmt;

/// The origin of a record's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Stored in the input: `stream` is the number of the data file in a directory (0 for the main file), and
    /// `offset` is absolute in that file.
    Input {
        /// Which file of the input.
        stream: u32,
        /// Bytes from the start of that file.
        offset: u64,
    },
    /// Decompressed: `record` is the absolute offset of the COMPRESSED record in which it begins.
    Chunk {
        /// Which file of the input.
        stream: u32,
        /// Absolute offset of the COMPRESSED record.
        record: u64,
        /// Bytes from the start of its contents; negative for a record that began in an earlier one.
        offset: i64,
    },
    /// Made by a pass.
    Synthetic,
}

impl Origin {
    /// The absolute offset in the input file of the record, or of the COMPRESSED record around it.
    pub fn stored_at(self) -> Option<(u32, u64)> {
        match self {
            Origin::Input { stream, offset } => Some((stream, offset)),
            Origin::Chunk { stream, record, .. } => Some((stream, record)),
            Origin::Synthetic => None,
        }
    }
}

impl Origin {
    /// True if it comes before `other` in the input; false if either was made by a pass.
    pub fn is_before(self, other: Origin) -> bool {
        let key = |origin| match origin {
            Origin::Input { stream, offset } => Some((stream, offset, 0)),
            Origin::Chunk { stream, record, offset } => Some((stream, record, offset)),
            Origin::Synthetic => None,
        };
        key(self).zip(key(other)).is_some_and(|(this, other)| this < other)
    }
}

/// `offset 0x1234`, or `offset 0x1234+0x20` inside the contents of a COMPRESSED record.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Origin::Input { offset, .. } => write!(f, "offset {offset:#x}"),
            Origin::Chunk { record, offset, .. } if offset < 0 => {
                write!(f, "offset {record:#x}-{:#x}", -offset)
            }
            Origin::Chunk { record, offset, .. } => write!(f, "offset {record:#x}+{offset:#x}"),
            Origin::Synthetic => write!(f, "a record made by perfx"),
        }
    }
}

/// Maps positions in a run of records to their origin.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// (first position, origin of that position), ascending.
    runs: Vec<(usize, Origin)>,
}

impl Origins {
    /// The origins of bytes that are contiguous in the input, from `offset` on.
    pub fn input(stream: u32, offset: u64) -> Origins {
        Origins { runs: vec![(0, Origin::Input { stream, offset })] }
    }

    /// Sets the origin of the bytes from position `at` on.
    pub fn push(&mut self, at: usize, origin: Origin) {
        self.runs.push((at, origin));
    }

    /// Removes everything from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        while self.runs.last().is_some_and(|&(start, _)| start >= len) {
            self.runs.pop();
        }
    }

    /// The position of the byte with exactly this origin.
    pub fn position_of(&self, origin: Origin) -> Option<usize> {
        let inside = |from, wanted| match (from, wanted) {
            (Origin::Input { stream, offset }, Origin::Input { stream: other, offset: wanted })
                if stream == other =>
            {
                usize::try_from(wanted.checked_sub(offset)?).ok()
            }
            (
                Origin::Chunk { stream, record, offset },
                Origin::Chunk { stream: s, record: r, offset: wanted },
            ) if (stream, record) == (s, r) => usize::try_from(wanted.checked_sub(offset)?).ok(),
            _ => None,
        };
        self.runs.iter().enumerate().find_map(|(index, &(start, from))| {
            let end = self.runs.get(index + 1).map_or(usize::MAX, |&(next, _)| next);
            start.checked_add(inside(from, origin)?).filter(|&position| position < end)
        })
    }

    /// The stream and the range of offsets in it that `len` bytes came from; `None` if not from the input.
    pub fn span(&self, len: usize) -> Option<(u32, std::ops::RangeInclusive<u64>)> {
        let mut span: Option<(u32, u64, u64)> = None;
        for (index, &(start, _)) in self.runs.iter().enumerate() {
            let end = self.runs.get(index + 1).map_or(len, |&(next, _)| next);
            for at in [start, end.saturating_sub(1).max(start)] {
                let Some((stream, offset)) = self.at(at).stored_at() else { continue };
                span = match span {
                    Some((stream, low, high)) => Some((stream, low.min(offset), high.max(offset))),
                    None => Some((stream, offset, offset)),
                };
            }
        }
        span.map(|(stream, low, high)| (stream, low..=high))
    }

    /// The origin of the byte at this position.
    #[inline]
    pub fn at(&self, position: usize) -> Origin {
        let after = match self.runs.as_slice() {
            [_] => 1,
            runs => runs.partition_point(|&(start, _)| start <= position),
        };
        let Some(&(start, origin)) = after.checked_sub(1).and_then(|i| self.runs.get(i)) else {
            return Origin::Synthetic;
        };
        let inside = (position - start) as u64;
        match origin {
            Origin::Input { stream, offset } => {
                Origin::Input { stream, offset: offset.saturating_add(inside) }
            }
            Origin::Chunk { stream, record, offset } => {
                Origin::Chunk { stream, record, offset: offset.saturating_add(inside as i64) }
            }
            Origin::Synthetic => Origin::Synthetic,
        }
    }
}
