//! Collects decoded samples as a batch that can be sorted among the records of a recording.

use std::ops::Range;

use perfx_format::Bytes;
use perfx_format::read::sort::PreparedBatch;
use perfx_pipeline::Result;

/// Samples, and the times by which they are sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleBuffer {
    bytes: Vec<u8>,
    /// Where each one begins, and its time.
    samples: Vec<(usize, u64)>,
}

impl SampleBuffer {
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
        let (start, key) = *self.samples.get(number)?;
        Some((&self.bytes[start..self.start(number + 1)], key))
    }

    /// Adds a sample, which `write` appends to the others, and its time. Nothing is added if it appends nothing.
    #[inline(always)]
    pub(super) fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        if self.bytes.len() > start {
            self.samples.push((start, key));
        }
    }

    /// An empty one with room for as many samples.
    pub(super) fn empty(&self) -> SampleBuffer {
        let (bytes, samples) = (Vec::with_capacity(self.bytes.len()), Vec::with_capacity(self.samples.len()));
        SampleBuffer { bytes, samples }
    }

    /// The size of some of them, bytes.
    pub(super) fn size(&self, some: &Range<usize>) -> usize {
        self.start(some.end).saturating_sub(self.start(some.start))
    }

    /// Takes some of them out. Those behind them remain; those in front of them are dropped.
    pub(super) fn take_some(&mut self, some: Range<usize>) -> SampleBuffer {
        let mut behind = SampleBuffer::default();
        behind.extend(self, some.end..self.samples.len());
        let mut taken = std::mem::replace(self, behind);
        taken.bytes.truncate(taken.start(some.end));
        taken.samples.truncate(some.end);
        taken.samples.drain(..some.start);
        taken
    }

    fn start(&self, number: usize) -> usize {
        self.samples.get(number).map_or(self.bytes.len(), |(start, _)| *start)
    }

    /// Adds some of the samples of another one.
    pub(super) fn extend(&mut self, other: &SampleBuffer, some: Range<usize>) {
        let (start, moved) = (other.start(some.start), self.bytes.len());
        self.bytes.extend_from_slice(&other.bytes[start..other.start(some.end)]);
        self.samples.extend(other.samples[some].iter().map(|(at, key)| (at - start + moved, *key)));
    }

    /// How many samples from the one with this number on have times that come first, one behind the other.
    pub(super) fn run(&self, from: usize, comes_first: impl Fn(u64) -> bool) -> usize {
        let rest = self.samples.get(from..).unwrap_or_default();
        rest.iter().take_while(|(_, key)| comes_first(*key)).count()
    }

    /// Parts of them, of about so many bytes each.
    pub(super) fn pieces(&self, size: usize) -> impl Iterator<Item = Range<usize>> {
        let mut begin = 0;
        std::iter::from_fn(move || {
            let limit = self.samples.get(begin)?.0.saturating_add(size);
            let count = self.samples[begin..].partition_point(|(at, _)| *at < limit).max(1);
            let piece = begin..begin + count;
            begin = piece.end;
            Some(piece)
        })
    }

    /// Some of them as bytes: of each its size, its time and its record.
    pub(super) fn to_bytes(&self, some: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size(&some) + 12 * some.len());
        for (sample, key) in some.filter_map(|number| self.get(number)) {
            bytes.extend((sample.len() as u32).to_le_bytes());
            bytes.extend(key.to_le_bytes());
            bytes.extend(sample);
        }
        bytes
    }

    /// Reads them back from these bytes.
    pub(super) fn from_bytes(mut bytes: &[u8]) -> SampleBuffer {
        let mut made = SampleBuffer::default();
        while let Some((size, rest)) = bytes.split_first_chunk()
            && let Some((key, rest)) = rest.split_first_chunk()
            && let Some((sample, rest)) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)
        {
            made.push(u64::from_le_bytes(*key), |bytes| bytes.extend_from_slice(sample));
            bytes = rest;
        }
        made
    }

    pub(super) fn prepared(self) -> Result<PreparedBatch> {
        Ok(PreparedBatch::of_made(Bytes::from(self.bytes), self.samples.into_iter())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_taken_and_those_behind_them_remain() {
        let mut made = SampleBuffer::default();
        (0..6_u8).for_each(|number| made.push(number.into(), |bytes| bytes.resize(bytes.len() + 8, number)));
        made.push(9, |_| {});
        assert_eq!((made.count(), made.size(&(1..3))), (6, 16));
        let taken = made.take_some(1..3);
        let all =
            |made: &SampleBuffer| (0..).map_while(|at| made.get(at).map(|(_, key)| key)).collect::<Vec<_>>();
        assert_eq!((all(&taken), all(&made)), (vec![1, 2], vec![3, 4, 5]));
        assert_eq!((taken.get(1), made.get(0)), (Some((&[2; 8][..], 2)), Some((&[3; 8][..], 3))));
        made.extend(&taken, 0..1);
        assert_eq!((all(&made), made.get(3)), (vec![3, 4, 5, 1], Some((&[1; 8][..], 1))));
        assert_eq!((made.empty().count(), made.empty().len()), (0, 0));
        assert_eq!(made.pieces(16).collect::<Vec<_>>(), [0..2, 2..4]);
        assert_eq!(made.pieces(0).count(), 4);
        assert_eq!(all(&SampleBuffer::from_bytes(&made.to_bytes(1..4))), [4, 5, 1]);
    }
}
