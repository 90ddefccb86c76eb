//! A record is a `Copy` view of bytes owned elsewhere, with their origin; walking records reads only headers.

pub mod aux;
pub mod build_id;
pub mod builder;
pub mod cgroup;
pub mod compressed;
pub mod cpumode;
pub mod deferred;
pub mod event_update;
pub mod header_records;
pub mod id_index;
pub mod ids;
pub mod ksymbol;
pub mod lost;
pub(crate) mod mmap;
pub(crate) mod task;
#[cfg(test)]
mod tests;
pub mod time;
pub mod time_conv;

use std::fmt;

use crate::{Cursor, Endian, Error, Kinds, RecordType, Result};

/// Size of `struct perf_event_header`: u32 type, u16 misc, u16 size.
pub const HEADER_SIZE: usize = 8;

/// The largest record, in bytes: `size` has 16 bits, and perf requires a multiple of 8.
pub const RECORD_SIZE_MAX: usize = 65528;

/// Where a record's bytes came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Stored in the input: `stream` counts the data file of a directory (0 for the main file), `offset` is
    /// absolute in that file.
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
        /// Bytes from the start of that record's contents. Negative for a record that began in an earlier
        /// COMPRESSED record.
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
    /// True if it comes before the other in the input; records inside one COMPRESSED record are compared by
    /// it alone.
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

/// One record: its `header.size` bytes, and the payload after it that `header.size` does not count (AUXTRACE,
/// HEADER_TRACING_DATA).
///
/// ```
/// use perfx_format::{Comm, Endian, Origin, Record, RecordType};
///
/// let bytes = Comm { pid: 7, tid: 8, name: b"sh" }.write(0, &[], Endian::Big).expect("a short name fits");
/// let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Big)?;
/// assert_eq!((record.kind(), record.u32(8)), (RecordType::COMM, Some(7)));
/// assert_eq!(Comm::of(&record, 0).map(|comm| comm.name), Some(&b"sh"[..]));
/// # Ok::<(), perfx_format::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
    payload: &'a [u8],
    origin: Origin,
    endian: Endian,
}

impl<'a> Record<'a> {
    /// A view of one whole record without payload.
    ///
    /// # Errors
    ///
    /// `bytes` is shorter than a header, or `header.size` is not its length.
    pub fn new(bytes: &'a [u8], payload: &'a [u8], origin: Origin, endian: Endian) -> Result<Record<'a>> {
        let size = endian.u16(bytes, 6).map(usize::from);
        if bytes.len() < HEADER_SIZE || size != Some(bytes.len()) {
            return Err(Error::new(format!(
                "header.size {} is not the record's length {}",
                size.unwrap_or(0),
                bytes.len()
            ))
            .origin(origin));
        }
        Ok(Record { bytes, payload, origin, endian })
    }

    /// The kind.
    #[inline]
    pub fn kind(&self) -> RecordType {
        RecordType(self.endian.u32(self.bytes, 0).unwrap_or(0))
    }

    /// The `misc` bits.
    #[inline]
    pub fn misc(&self) -> u16 {
        self.endian.u16(self.bytes, 4).unwrap_or(0)
    }

    /// Bits 0-2 of `misc`: the level at which the code ran ([`cpumode`]), 0 if unknown.
    #[inline]
    pub fn cpumode(&self) -> u16 {
        self.misc() & 7
    }

    /// True if it is about kernel code, of the host or of a guest.
    #[inline]
    pub fn is_of_kernel(&self) -> bool {
        cpumode::is_kernel(self.cpumode())
    }

    /// True if it is about code that ran in a guest.
    #[inline]
    pub fn is_of_guest(&self) -> bool {
        cpumode::is_guest(self.cpumode())
    }

    /// The record with its header, without its payload.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after the header, without the payload.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_SIZE..]
    }

    /// The bytes that follow the record and belong to it.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Size of the record with its payload, bytes.
    #[inline]
    pub fn whole_size(&self) -> u64 {
        (self.bytes.len() + self.payload.len()) as u64
    }

    /// Where it came from.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The recording's byte order.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The u16 at byte `at` of the record.
    #[inline]
    pub fn u16(&self, at: usize) -> Option<u16> {
        self.endian.u16(self.bytes, at)
    }

    /// The u32 at byte `at` of the record.
    #[inline]
    pub fn u32(&self, at: usize) -> Option<u32> {
        self.endian.u32(self.bytes, at)
    }

    /// The u64 at byte `at` of the record.
    #[inline]
    pub fn u64(&self, at: usize) -> Option<u64> {
        self.endian.u64(self.bytes, at)
    }

    /// A cursor at the first byte after the header.
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.body(), self.endian)
    }

    /// An error about this record.
    #[cold]
    pub fn error(&self, what: impl Into<String>) -> Error {
        Error::new(what).origin(self.origin).record(self.kind())
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes at {}", self.kind(), self.bytes.len(), self.origin)
    }
}

/// Maps positions in a run of records to their origin.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// (first position, origin of that position), ascending.
    runs: Vec<(usize, Origin)>,
}

impl Origins {
    /// All bytes are contiguous in the input, from `offset` on.
    pub fn input(stream: u32, offset: u64) -> Origins {
        Origins { runs: vec![(0, Origin::Input { stream, offset })] }
    }

    /// From position `at` on, bytes come from `origin`.
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

    /// The stream and the range of absolute offsets in it that `len` bytes came from; `None` if none came
    /// from the input.
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

/// The extent of a record, from its header.
#[derive(Clone, Copy, Debug)]
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
        // The only two kinds followed by bytes that header.size does not count (tools/perf/util/session.c,
        // header.c).
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
                Some(length) if header_records::holds_payload(kind, size, length) => {}
                Some(length) => payload = length,
                None => return Ok(None),
            }
        }
        Ok(Some(Frame { kind, size, payload }))
    }

    /// Size of record and payload together. Saturates on absurd payload lengths, which then exceed any input.
    pub fn total(&self) -> u64 {
        (self.size as u64).saturating_add(self.payload)
    }
}

/// A header with an impossible size.
#[derive(Clone, Copy, Debug)]
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
        Error::new(what).origin(origin).record(self.kind).code("record-size")
    }
}

/// Walks the records of a run of bytes that begins and ends at record boundaries.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    bytes: &'a [u8],
    origins: &'a Origins,
    endian: Endian,
    at: usize,
    rare: Option<&'a [u32]>,
}

impl<'a> Walker<'a> {
    /// The kinds of nearly all records in nearly all recordings.
    pub(crate) const COMMON: Kinds = Kinds::of(&[
        RecordType::SAMPLE,
        RecordType::FINISHED_ROUND,
        RecordType::SWITCH,
        RecordType::SWITCH_CPU_WIDE,
    ]);

    /// Starts at the front.
    pub fn new(bytes: &'a [u8], origins: &'a Origins, endian: Endian) -> Self {
        Walker { bytes, origins, endian, at: 0, rare: None }
    }

    /// Adds the positions of all records that are not of a common kind, in ascending order: code that wants
    /// only such records needs no walk.
    pub(crate) fn with_rare(self, rare: Option<&'a [u32]>) -> Self {
        Walker { rare, ..self }
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
        let leaps = self.rare.is_some() && stop == usize::MAX && !wanted.meets(Walker::COMMON);
        while self.at < self.bytes.len() {
            if leaps && !self.leap() {
                break;
            }
            let at = self.at;
            let frame = match Frame::read(self.bytes, at, self.endian) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Err(self.cut(None)),
                Err(bad) => return Err(bad.into_error(self.origins.at(at))),
            };
            if frame.total() > (self.bytes.len() - at) as u64 {
                return Err(self.cut(Some(frame.kind)));
            }
            self.at += frame.size + frame.payload as usize;
            if wanted.has(frame.kind) || at >= stop {
                return Ok(Some(Record {
                    bytes: &self.bytes[at..at + frame.size],
                    payload: &self.bytes[at + frame.size..self.at],
                    origin: self.origins.at(at),
                    endian: self.endian,
                }));
            }
        }
        Ok(None)
    }

    /// Jumps to the next record that is not of a common kind; false if there is none.
    fn leap(&mut self) -> bool {
        let rare = self.rare.unwrap_or_default();
        let behind = rare.partition_point(|&position| (position as usize) < self.at);
        self.at = rare.get(behind).map_or(self.bytes.len(), |&position| position as usize);
        self.at < self.bytes.len()
    }

    /// The error for an incomplete record.
    #[cold]
    fn cut(&self, kind: Option<RecordType>) -> Error {
        let left = self.bytes.len() - self.at;
        let error = Error::new(format!("the record reaches past the end of its data ({left} bytes left)"));
        let error = error.origin(self.origins.at(self.at));
        match kind {
            Some(kind) => error.record(kind),
            None => error,
        }
    }
}
