//! Collects decoded samples as a batch that can be sorted among the records of a recording.

use std::ops::Range;

use perfx_format::read::sort::PreparedBatch;
use perfx_format::{Bytes, Endian, Origin, Origins, Record};
use perfx_pipeline::Result;

/// Samples, and the times by which they are sorted.
#[derive(Debug)]
pub(crate) struct Made {
    bytes: Vec<u8>,
    samples: Vec<(Range<usize>, u64)>,
    endian: Endian,
}

impl Made {
    pub(super) fn new(endian: Endian) -> Made {
        Made { bytes: Vec::new(), samples: Vec::new(), endian }
    }

    /// The size of them, bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.samples.len() as u64
    }

    /// A sample, and its time.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], u64)> {
        let (range, key) = self.samples.get(number)?;
        Some((&self.bytes[range.clone()], *key))
    }

    /// Adds a sample, which `write` appends to the others, and its time.
    #[inline]
    pub(super) fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.samples.push((start..self.bytes.len(), key));
    }

    /// How many samples from the one with this number on have times that come first, one behind the other.
    pub(super) fn run(&self, from: usize, comes_first: impl Fn(u64) -> bool) -> usize {
        let rest = self.samples.get(from..).unwrap_or_default();
        rest.iter().take_while(|(_, key)| comes_first(*key)).count()
    }

    pub(super) fn prepared(self) -> Result<PreparedBatch> {
        let bytes = Bytes::from(self.bytes);
        let mut prepared = PreparedBatch::new(bytes.clone(), Origins::default());
        for (range, key) in self.samples {
            let sample = Record::new(&bytes[range], &[], Origin::Synthetic, self.endian)?;
            prepared.push(&sample, Some(key))?;
        }
        Ok(prepared.done())
    }
}
