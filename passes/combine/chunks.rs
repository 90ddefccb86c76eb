//! AUX data that several inputs carry, as parts of one recording do: each chunk of it is in the output once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use perfx_format::{Record, RecordType};

/// The AUXTRACE records that have gone by.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// By the record without its payload (size, offset and moment of the data, and its buffer): the hash of the payload, and the input it came from.
    seen: HashMap<Box<[u8]>, (u64, usize)>,
    /// How many were left out.
    pub(super) dropped: u64,
}

impl Chunks {
    /// Another input had this very chunk.
    pub(super) fn repeats(&mut self, record: &Record<'_>, input: usize) -> bool {
        if record.kind() != RecordType::AUXTRACE {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        record.payload().hash(&mut hasher);
        let hash = hasher.finish();
        let (known, first) = *self.seen.entry(record.bytes().into()).or_insert((hash, input));
        let again = known == hash && first != input;
        self.dropped += u64::from(again);
        again
    }
}
