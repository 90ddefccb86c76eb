//! Cuts batches into units of about one expanded batch; any thread can expand those of whole zstd frames.

use std::collections::VecDeque;
use std::ops::Range;

use super::{PLAIN_RUN, may_be_inside};
use crate::read::batch::{BATCH_SIZE, Batch, Opened};
use crate::record::compressed::compressed_part;
use crate::unzstd::header::{content_size, is_one_frame};
use crate::unzstd::{Decoder, Progress};
use crate::{Frame, Kinds, Origin, Origins, Record, Result};

/// A part of a batch, to be expanded.
#[derive(Debug)]
pub struct DecodeUnit {
    pub(super) stored: Batch,
    /// Its expanded size; `None` unless every COMPRESSED record seems to be one zstd frame with its size.
    expands_to: Option<usize>,
    /// Its expanded records, valid if its stream is between two frames and between two records at this point.
    pub(super) ahead: Option<Batch>,
}

impl From<Batch> for DecodeUnit {
    fn from(stored: Batch) -> DecodeUnit {
        DecodeUnit { stored, expands_to: None, ahead: None }
    }
}

impl DecodeUnit {
    /// Expands it without knowing the data before, if possible. Everything is verified: if a frame is
    /// incomplete, or does not contain whole records, the unit is unchanged and `Expand` does the work in
    /// order.
    #[must_use]
    pub fn decompressed(mut self) -> DecodeUnit {
        self.ahead = self.expands_to.and_then(|size| open(&self.stored, size));
        self
    }
}

fn open(stored: &Batch, size: usize) -> Option<Batch> {
    let (mut bytes, mut origins) = (Vec::with_capacity(size), Origins::default());
    let (mut kinds, mut records, mut opened) = (Kinds::NONE, 0, Vec::new());
    let mut decoder = Decoder::new();
    let mut walker = stored.walk();
    while let Some(record) = walker.next_record().ok()? {
        let start = bytes.len();
        if !record.kind().is_compressed() {
            origins.push(start, record.origin());
            bytes.extend_from_slice(record.bytes());
            bytes.extend_from_slice(record.payload());
            kinds.insert(record.kind());
            records += 1;
            continue;
        }
        let (stream, at) = record.origin().stored_at()?;
        origins.push(start, Origin::Chunk { stream, record: at, offset: 0 });
        let part = compressed_part(&record).0;
        if decoder.decompress(part, &mut bytes) != Ok(Progress { read: part.len(), hint: 0 }) {
            return None;
        }
        let mut at = start;
        while at < bytes.len() {
            let frame = Frame::read(&bytes, at, stored.endian).ok()??;
            if !may_be_inside(frame.kind) {
                return None;
            }
            at = usize::try_from(frame.total()).ok()?.checked_add(at)?;
            kinds.insert(frame.kind);
            records += 1;
        }
        if at > bytes.len() {
            return None;
        }
        opened.push(Opened::new(&record, &stored.layouts, (bytes.len() - start) as u64, false));
    }
    Some(Batch {
        bytes: bytes.into(),
        origins,
        kinds,
        records,
        sparse_index: None,
        samples: None,
        sound: false,
        stored: None,
        opened,
        ..stored.clone()
    })
}

/// Maximum expanded size of a unit of several frames. The units that wait for each other then fit into a
/// cache: writing them from memory took three times as long.
const UNIT_SIZE: usize = 512 << 10;

/// Bytes that a COMPRESSED record of exactly one zstd frame with its size expands to, if they fit in a batch.
fn frame_size(record: &Record<'_>) -> Option<usize> {
    let (part, padding) = compressed_part(record);
    let size = usize::try_from(content_size(part)?).ok().filter(|size| (1..=BATCH_SIZE).contains(size))?;
    (padding.is_empty() && is_one_frame(part)).then_some(size)
}

/// Yields the units of batches.
pub struct DecodeUnits<I> {
    batches: I,
    ready: VecDeque<DecodeUnit>,
}

impl<I> std::fmt::Debug for DecodeUnits<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DecodeUnits({} ready)", self.ready.len())
    }
}

impl<I: Iterator<Item = Result<Batch>>> DecodeUnits<I> {
    /// `batches` are those of a [`crate::read::Recording`].
    pub fn new(batches: I) -> Self {
        DecodeUnits { batches, ready: VecDeque::new() }
    }

    fn cut(&mut self, batch: &Batch) -> Result<()> {
        let end = batch.bytes.len();
        let mut walker = batch.walk();
        // The start of the current part, and its expanded size if all of it can be expanded ahead.
        let (mut from, mut size) = (0, None);
        loop {
            let mut plain = walker.position();
            let record = walker.next_wanted(Kinds::COMPRESSED, usize::MAX)?;
            let start = record.map_or(end, |record| walker.position() - record.bytes().len());
            if start - plain >= PLAIN_RUN {
                self.push(batch, from..plain, size)?;
                self.push(batch, plain..start, None)?;
                (from, plain) = (start, start);
            }
            let Some(record) = record else { break };
            let more = frame_size(&record).map(|size| size + start - plain);
            let sum = size.zip(more).map(|(size, more): (usize, usize)| size + more);
            let fits = sum.is_some_and(|sum| sum <= UNIT_SIZE) || size.is_none() && more.is_none();
            if from == plain || !fits {
                self.push(batch, from..plain, size)?;
                (from, size) = (plain, more);
            } else {
                size = sum;
            }
        }
        self.push(batch, from..end, size)?;
        if let Some(fragment) = batch.fragment {
            let stored = Batch { fragment: Some(fragment), ..batch.part(end..end)? };
            self.ready.push_back(stored.into());
        }
        Ok(())
    }

    fn push(&mut self, batch: &Batch, range: Range<usize>, expands_to: Option<usize>) -> Result<()> {
        if !range.is_empty() {
            let stored = batch.part(range)?;
            self.ready.push_back(DecodeUnit { stored, expands_to, ahead: None });
        }
        Ok(())
    }
}

impl<I: Iterator<Item = Result<Batch>>> Iterator for DecodeUnits<I> {
    type Item = Result<DecodeUnit>;

    fn next(&mut self) -> Option<Result<DecodeUnit>> {
        loop {
            if let Some(unit) = self.ready.pop_front() {
                return Some(Ok(unit));
            }
            let batch = match self.batches.next()? {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error)),
            };
            if !batch.kinds.intersects(Kinds::COMPRESSED) {
                return Some(Ok(batch.into()));
            }
            if let Err(error) = self.cut(&batch) {
                return Some(Err(error.file(&batch.name)));
            }
        }
    }
}
