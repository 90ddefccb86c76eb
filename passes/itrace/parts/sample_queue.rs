//! Keeps the samples of a part, only some megabytes of them in memory: a trace without sync points is one
//! part, and each of its bytes can stand for hundreds of branches.

use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_format::sample::{Stencil, TemplateFields};
use perfx_format::{Endian, Error};
use perfx_pipeline::Result;
use perfx_samples::{Branch, Branches, Rows};

use super::spill_file::{SpillFile, Stored};

/// The size of a chunk, and of the pieces read back from the file, bytes. Merging holds one piece of each
/// buffer in memory.
const CHUNK: usize = 2 << 20;
const PIECE: usize = 1 << 18;

/// Samples in chunks: all but the last one are in a temporary file.
pub(crate) struct SampleQueue {
    spill: SpillFile,
    stored: VecDeque<Stored>,
    last: Rows,
    /// Set if chunks could not be stored.
    failed: Option<Error>,
    branches: Numbered,
}

/// A table of branches that all threads share, and the numbers of those that this thread has added.
#[derive(Default)]
struct Numbered {
    table: Arc<Branches>,
    numbers: HashMap<(u64, u64, [u32; WORDS]), u32, RandomState>,
}

/// The number of words in the raw data of a branch of the table.
const WORDS: usize = 3;

impl SampleQueue {
    pub(crate) fn new(spill: SpillFile) -> SampleQueue {
        let (stored, last, branches) = Default::default();
        SampleQueue { spill, stored, last, failed: None, branches }
    }

    /// An empty queue that shares the table with others.
    pub(super) fn with_table(spill: SpillFile, table: Arc<Branches>) -> SampleQueue {
        let branches = Numbered { table, ..Numbered::default() };
        SampleQueue { branches, ..SampleQueue::new(spill) }
    }

    /// Adds the record that `write` appends, and the time by which it is sorted.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.last.push(key, write);
        self.make_room();
    }

    /// Adds a sample that is built from a stencil.
    #[inline(always)]
    pub(crate) fn push_alike(&mut self, key: u64, stencil: &Arc<Stencil>, fields: TemplateFields<'_, u32>) {
        self.last.push_alike(key, stencil, fields);
        self.make_room();
    }

    /// The number of a branch in the table; `None` if that is full.
    #[inline]
    pub(crate) fn number(&mut self, ip: u64, addr: u64, raw: &[u32], endian: Endian) -> Option<u32> {
        let Numbered { table, numbers } = &mut self.branches;
        let key = (ip, addr, <[u32; WORDS]>::try_from(raw).ok()?);
        if let Some(&known) = numbers.get(&key) {
            return Some(known);
        }
        let bytes = || raw.iter().flat_map(|word| endian.bytes_u32(*word)).collect();
        let number = table.add(|| Branch { ip, addr, raw: bytes() })?;
        numbers.insert(key, number);
        Some(number)
    }

    /// Adds a branch of the table; its time is the key.
    #[inline(always)]
    pub(crate) fn push_branch(&mut self, key: u64, stencil: &Arc<Stencil>, number: u32) {
        self.last.push_branch(key, stencil, (&self.branches.table, number));
        self.make_room();
    }

    /// Takes the samples; leaves an empty queue of the same capacity, with the table.
    pub(super) fn take(&mut self) -> SampleQueue {
        let (last, branches) = (self.last.empty(), take(&mut self.branches));
        let next = SampleQueue { last, branches, ..SampleQueue::new(self.spill.clone()) };
        std::mem::replace(self, next)
    }

    /// The bytes of samples in memory.
    pub(super) fn held(&self) -> usize {
        self.last.size()
    }

    #[inline(always)]
    fn make_room(&mut self) {
        if self.last.size() >= CHUNK {
            self.store_last();
        }
    }

    #[cold]
    fn store_last(&mut self) {
        let empty = self.last.empty();
        let chunk = std::mem::replace(&mut self.last, empty);
        let pieces = self.store(&chunk);
        self.stored.extend(pieces);
    }

    /// Puts the first chunk back, and moves all to the file.
    pub(super) fn store_first(&mut self, first: &Rows) {
        let mut pieces = VecDeque::from(self.store(first));
        pieces.append(&mut self.stored);
        let last = take(&mut self.last);
        pieces.extend(self.store(&last));
        self.stored = pieces;
    }

    /// Writes a chunk to the file, in pieces.
    fn store(&mut self, chunk: &Rows) -> Vec<Stored> {
        let stored: Result<_, _> = chunk.pieces(PIECE).map(|piece| self.spill.put(chunk, piece)).collect();
        stored.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            Vec::new()
        })
    }

    /// The next chunk or piece of one; after the last, an empty one.
    ///
    /// # Errors
    ///
    /// The temporary file could not be written, or cannot be read.
    pub(crate) fn next(&mut self) -> Result<Rows> {
        if let Some(failed) = self.failed.take() {
            return Err(failed.into());
        }
        match self.stored.pop_front() {
            Some(stored) => Ok(self.spill.take(stored)?),
            None => Ok(take(&mut self.last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use perfx_samples::Sampled;

    use super::*;

    #[test]
    fn samples_come_back_in_their_order_and_few_are_in_memory() {
        let mut queue = SampleQueue::new(SpillFile::new(Arc::new(tempfile::tempfile)));
        let size = CHUNK / 100;
        let sample = |number: u64| vec![number as u8; size + number as usize % 3];
        (0..250).for_each(|number| queue.push(1000 + number, |bytes| bytes.extend(sample(number))));
        assert_eq!(queue.stored.len(), 2 * CHUNK.div_ceil(PIECE));
        assert!(queue.last.size() < CHUNK);
        let mut number = 0;
        loop {
            let chunk = queue.next().unwrap();
            for at in 0.. {
                let Some(Sampled::Record(read)) = chunk.get(at) else { break };
                assert_eq!((read, chunk.key(at)), (&sample(number)[..], Some(1000 + number)));
                number += 1;
            }
            if chunk.count() == 0 {
                break;
            }
        }
        assert_eq!(number, 250);
    }

    #[test]
    fn a_file_that_can_not_be_made_is_an_error() {
        let none: perfx_format::read::TempFiles = Arc::new(|| Err(std::io::Error::other("no room")));
        let mut queue = SampleQueue::new(SpillFile::new(none));
        (0..3).for_each(|key| queue.push(key, |bytes| bytes.resize(bytes.len() + CHUNK / 2, 0)));
        let error = queue.next().unwrap_err().to_string();
        assert!(error.contains("no room"), "{error}");
    }
}
