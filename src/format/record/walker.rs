//! Walks the records of a run of bytes, reading headers only.

use super::tracing_data::holds_payload;
use super::{HEADER_SIZE, Record};
use crate::value::bytes_of;
use crate::{Endian, Error, FaultCode, Kinds, Origin, Origins, RecordType, Result};

/// The extent of a record, from its header.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// The kind.
    pub kind: RecordType,
    /// `header.size`, bytes.
    pub size: usize,
    /// Bytes after the record that belong to it.
    pub payload: u64,
}

impl Frame {
    /// Reads the frame of the record at `at`. `Ok(None)` if `bytes` is too short to decide.
    ///
    /// # Errors
    ///
    /// The size is below 8, or too small to include the length of the payload.
    #[inline]
    pub fn read(bytes: &[u8], at: usize, endian: Endian) -> Result<Option<Frame>, BadFrame> {
        let Some(header) = bytes.get(at..).and_then(|b| b.first_chunk::<8>()) else {
            return Ok(None);
        };
        let (kind, size) = match endian {
            Endian::Little => {
                let word = u64::from_le_bytes(*header);
                (word as u32, (word >> 48) as usize)
            }
            Endian::Big => {
                let word = u64::from_be_bytes(*header);
                ((word >> 32) as u32, (word & 0xffff) as usize)
            }
        };
        let kind = RecordType(kind);
        if size < HEADER_SIZE {
            return Err(BadFrame { kind, size });
        }
        let mut payload = 0;
        // Only these are followed by bytes outside header.size (tools/perf/util/session.c, header.c).
        if kind == RecordType::AUXTRACE || kind == RecordType::HEADER_TRACING_DATA {
            let field = if kind == RecordType::AUXTRACE { 16 } else { 12 };
            if size < field {
                return Err(BadFrame { kind, size });
            }
            let length = if kind == RecordType::AUXTRACE {
                endian.u64(bytes, at + 8)
            } else {
                endian.u32(bytes, at + 8).map(u64::from)
            };
            match length {
                Some(length) if holds_payload(kind, size, length) => {}
                Some(length) => payload = length,
                None => return Ok(None),
            }
        }
        Ok(Some(Frame { kind, size, payload }))
    }

    /// Reads a byte far ahead of the record at `at`, so that the headers there are in the cache when a walk
    /// reaches them. The processor itself prefetches only records shorter than two cache lines; a walk over
    /// records of 180 bytes takes half as long this way. Large records are left out.
    #[inline(always)]
    pub(crate) fn read_ahead(&self, bytes: &[u8], at: usize) {
        const AHEAD: usize = 1024;
        if self.size < AHEAD / 2 {
            std::hint::black_box(bytes.get(at + AHEAD).copied());
        }
    }

    /// Size of record and payload together. Saturates on absurd payload lengths, which then exceed any input.
    pub fn total(&self) -> u64 {
        (self.size as u64).saturating_add(self.payload)
    }
}

/// A header with an impossible size.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BadFrame {
    /// The kind in the header.
    pub kind: RecordType,
    /// The size in the header.
    pub size: usize,
}

impl BadFrame {
    /// The error for it, at this place.
    #[cold]
    pub fn into_error(self, origin: Origin) -> Error {
        let what = if self.size < HEADER_SIZE {
            format!("size {} is below the 8 bytes of a record header", self.size)
        } else {
            format!("size {} is too small for the field with the length of its payload", self.size)
        };
        Error::new(what).origin(origin).record(self.kind).code(FaultCode::RecordSize)
    }
}

/// Walks the records of a run of bytes that begins and ends at record boundaries.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    bytes: &'a [u8],
    origins: &'a Origins,
    endian: Endian,
    at: usize,
    sparse_index: Option<&'a [u32]>,
}

impl<'a> Walker<'a> {
    /// The kinds of nearly all records in nearly all recordings.
    pub(crate) const COMMON: Kinds = Kinds::SWITCHES.and(RecordType::SAMPLE).and(RecordType::FINISHED_ROUND);

    /// Starts at the front.
    pub fn new(bytes: &'a [u8], origins: &'a Origins, endian: Endian) -> Self {
        Walker { bytes, origins, endian, at: 0, sparse_index: None }
    }

    /// Adds the ascending positions of all records not of a common kind: reading only these needs no walk.
    pub(crate) fn with_sparse_index(self, sparse_index: Option<&'a [u32]>) -> Self {
        Walker { sparse_index, ..self }
    }

    /// Continues at this position, where a record begins.
    pub fn seek(&mut self, position: usize) {
        self.at = position;
    }

    /// Position of the next record, in bytes from the front.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next record, whatever its kind.
    ///
    /// # Errors
    ///
    /// The record has an impossible size, or reaches past the end of the bytes.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>> {
        self.next_wanted(Kinds::ALL, usize::MAX)
    }

    /// The next record of a wanted kind, or the first one at or after position `stop`. Skips all others
    /// inside this loop: returning every record to the caller takes three times as long. Inlined, so that the
    /// view stays in registers; spilling it to memory costs more than everything else.
    ///
    /// # Errors
    ///
    /// A record has an impossible size, or reaches past the end of the bytes.
    #[inline(always)]
    pub fn next_wanted(&mut self, wanted: Kinds, stop: usize) -> Result<Option<Record<'a>>> {
        let leaps = self.sparse_index.is_some() && stop == usize::MAX && !wanted.intersects(Walker::COMMON);
        while self.at < self.bytes.len() {
            if leaps && !self.leap() {
                break;
            }
            let at = self.at;
            let frame = self.frame()?;
            frame.read_ahead(self.bytes, at);
            self.at += frame.size + frame.payload as usize;
            if wanted.contains(frame.kind) || at >= stop {
                return Ok(Some(self.record(at, frame)));
            }
        }
        Ok(None)
    }

    /// The record at this position, for one that is not visited in a walk.
    ///
    /// # Errors
    ///
    /// As for [`Walker::next_record`].
    #[inline]
    pub fn record_at(mut self, position: usize) -> Result<Option<Record<'a>>> {
        self.seek(position);
        if position >= self.bytes.len() {
            return Ok(None);
        }
        let frame = self.frame()?;
        Ok(Some(self.record(position, frame)))
    }

    #[inline(always)]
    fn frame(&self) -> Result<Frame> {
        let frame = match Frame::read(self.bytes, self.at, self.endian) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(self.cut(None)),
            Err(bad) => return Err(bad.into_error(self.origins.at(self.at))),
        };
        if frame.total() > (self.bytes.len() - self.at) as u64 {
            return Err(self.cut(Some(frame.kind)));
        }
        Ok(frame)
    }

    #[inline(always)]
    fn record(&self, at: usize, frame: Frame) -> Record<'a> {
        let end = at + frame.size;
        Record {
            bytes: &self.bytes[at..end],
            payload: &self.bytes[end..end + frame.payload as usize],
            origin: self.origins.at(at),
            endian: self.endian,
        }
    }

    /// Jumps to the next record that is not of a common kind; false if there is none.
    fn leap(&mut self) -> bool {
        let sparse_index = self.sparse_index.unwrap_or_default();
        let after = sparse_index.partition_point(|&position| (position as usize) < self.at);
        self.at = sparse_index.get(after).map_or(self.bytes.len(), |&position| position as usize);
        self.at < self.bytes.len()
    }

    #[cold]
    fn cut(&self, kind: Option<RecordType>) -> Error {
        let left = self.bytes.len() - self.at;
        let error =
            Error::new(format!("the record reaches past the end of its data ({} left)", bytes_of(left)));
        let error = error.origin(self.origins.at(self.at)).damaged();
        match kind {
            Some(kind) => error.record(kind),
            None => error,
        }
    }
}
