//! Drops chunks of AUX data that several inputs contain.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use perfx_format::{Record, RecordType};

#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// By record without payload (size, offset, reference, buffer): hash of the payload, number of the input.
    seen: HashMap<Box<[u8]>, (u64, usize)>,
    pub(super) dropped: u64,
}

impl Chunks {
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
