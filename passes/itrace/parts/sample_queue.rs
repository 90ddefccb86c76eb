//! Keeps the samples of a part of a trace, of which only some megabytes are in memory: a trace without points of
//! synchronization is one part, and each of its bytes can stand for hundreds of branches.

use std::collections::VecDeque;

use perfx_format::Error;
use perfx_pipeline::Result;

use super::spill_file::{SpillFile, Stored};
use crate::itrace::sample_buffer::SampleBuffer;

/// The size of a chunk, and of the pieces of those that were in the file, bytes: a piece of each buffer is in memory when they
/// are merged.
const CHUNK: usize = 2 << 20;
const PIECE: usize = 1 << 18;

/// Samples in chunks: all but the last one are in a temporary file.
pub(crate) struct SampleQueue {
    spill: SpillFile,
    stored: VecDeque<Stored>,
    last: SampleBuffer,
    /// Why chunks are missing.
    failed: Option<Error>,
}

/// Takes samples, in order.
pub(crate) trait Samples {
    /// A sample, which `write` appends to others if it is needed here, and the time by which it is sorted.
    fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>));
}

impl Samples for SampleQueue {
    #[inline(always)]
    fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.last.push(key, write);
        if self.last.len() >= CHUNK {
            self.store_last();
        }
    }
}

impl SampleQueue {
    pub(crate) fn new(spill: SpillFile) -> SampleQueue {
        SampleQueue { spill, stored: VecDeque::new(), last: SampleBuffer::default(), failed: None }
    }

    /// Takes the samples and leaves an empty queue of the same capacity.
    pub(super) fn take(&mut self) -> SampleQueue {
        let next = SampleQueue { last: self.last.empty(), ..SampleQueue::new(self.spill.clone()) };
        std::mem::replace(self, next)
    }

    /// The size of those in memory, bytes.
    pub(super) fn held(&self) -> usize {
        self.last.len()
    }

    #[cold]
    fn store_last(&mut self) {
        let empty = self.last.empty();
        let chunk = std::mem::replace(&mut self.last, empty);
        let pieces = self.store(&chunk);
        self.stored.extend(pieces);
    }

    /// Gets back the chunk that was the next one, and keeps nothing in memory.
    pub(super) fn store_first(&mut self, first: &SampleBuffer) {
        let mut pieces = VecDeque::from(self.store(first));
        pieces.append(&mut self.stored);
        let last = std::mem::take(&mut self.last);
        pieces.extend(self.store(&last));
        self.stored = pieces;
    }

    /// Writes a chunk to the file, in pieces.
    fn store(&mut self, chunk: &SampleBuffer) -> Vec<Stored> {
        let stored: Result<_, _> = chunk.pieces(PIECE).map(|piece| self.spill.put(chunk, piece)).collect();
        stored.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            Vec::new()
        })
    }

    /// The next chunk, or the next piece of one; an empty one after the last.
    ///
    /// # Errors
    ///
    /// The temporary file could not be written, or cannot be read.
    pub(crate) fn next(&mut self) -> Result<SampleBuffer> {
        if let Some(failed) = self.failed.take() {
            return Err(failed.into());
        }
        match self.stored.pop_front() {
            Some(stored) => Ok(self.spill.take(stored)?),
            None => Ok(std::mem::take(&mut self.last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn samples_come_back_in_their_order_and_few_are_in_memory() {
        let mut queue = SampleQueue::new(SpillFile::new(Arc::new(tempfile::tempfile)));
        let size = CHUNK / 100;
        let sample = |number: u64| vec![number as u8; size + number as usize % 3];
        (0..250).for_each(|number| queue.push(1000 + number, |bytes| bytes.extend(sample(number))));
        assert_eq!(queue.stored.len(), 2 * CHUNK.div_ceil(PIECE));
        assert!(queue.last.len() < CHUNK);
        let mut number = 0;
        loop {
            let chunk = queue.next().unwrap();
            for at in 0.. {
                let Some((read, key)) = chunk.get(at) else { break };
                assert_eq!((read, key), (&sample(number)[..], 1000 + number));
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
