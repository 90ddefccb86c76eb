//! Reads and writes jitdumps, in which JIT compilers describe their code. The reader skips damaged parts.
//!
//! Source: tools/perf/Documentation/jitdump-specification.txt, tools/perf/util/jitdump.h, and files written
//! by V8, CPython, PHP, Erlang, wasmtime and LLVM.
//!
//! The magic number determines the byte order of all integers. The header:
//!
//! | byte | |
//! |---|---|
//! | 0 | u32 magic `0x4A695444`, `DTiJ` in a little-endian file |
//! | 4 | u32 version: 1, even from writers of what the specification calls version 2 |
//! | 8 | u32 size of the header, 40 or more |
//! | 12 | u32 `e_machine` of ELF; 0 from CPython |
//! | 16 | u32 padding, 0xDEADBEEF from V8 |
//! | 20 | u32 pid, in the pid namespace of the process |
//! | 24 | u64 time of creation, of an unspecified clock |
//! | 32 | u64 flags: bit 0 [`ARCH_TIMESTAMP`] |
//!
//! Records follow one another, unaligned. Each begins with u32 id, u32 size (including these), u64 time.
//!
//! | id | name | from byte 16 on |
//! |---|---|---|
//! | 0 | LOAD | u32 pid, u32 tid, u64 vma, u64 address, u64 code size, u64 index, name with NUL, code |
//! | 1 | MOVE | u32 pid, u32 tid, u64 vma, u64 old address, u64 new address, u64 size, u64 index |
//! | 2 | DEBUG_INFO | u64 address of the code, u64 number of entries, entries; padding |
//! | 3 | CLOSE | nothing |
//! | 4 | UNWINDING_INFO | u64 data size, u64 size of `.eh_frame_hdr`, u64 mapped size, data; padding |
//!
//! An entry of DEBUG_INFO: u64 address, u32 line, u32 column, file name with NUL. The data of UNWINDING_INFO:
//! `.eh_frame` and `.eh_frame_hdr`, in either order.
//!
//! DEBUG_INFO and UNWINDING_INFO belong to the next LOAD. CLOSE ends the records of one of several writers.

mod writer;

use crate::{Cursor, Endian, Error, Result, until_nul};

pub use writer::Writer;

const MAGIC: u32 = 0x4A69_5444;

const HEADER_SIZE: usize = 40;

const PREFIX_SIZE: usize = 16;

const LOAD_SIZE: usize = 56;

const MOVE_SIZE: usize = 64;

const DEBUG_INFO_SIZE: usize = 32;

const ENTRY_SIZE: usize = 16;

const UNWINDING_INFO_SIZE: usize = 40;

/// Bit 0 of the header's flags: times are of the processor's counter (`rdtsc`), not of CLOCK_MONOTONIC.
pub const ARCH_TIMESTAMP: u64 = 1;

/// The padding in the header of files that V8 writes.
const V8_PADDING: u32 = 0xDEAD_BEEF;

/// The file name of an entry with the same file as the entry before it.
const SAME_NAME: &[u8] = &[0xff];

/// The header of a jitdump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The byte order of all integers in the file.
    pub endian: Endian,
    /// `e_machine` of ELF; 0 if omitted.
    pub machine: u32,
    /// True if V8 wrote the file.
    pub is_of_v8: bool,
    /// The pid of the writer, in its own pid namespace.
    pub pid: u32,
    /// The time at which the file was created, of an unspecified clock.
    pub time: u64,
    /// 0 or [`ARCH_TIMESTAMP`].
    pub flags: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<(Header, usize)> {
        let endian = match bytes.get(..4) {
            Some(magic) if *magic == MAGIC.to_le_bytes() => Endian::Little,
            Some(magic) if *magic == MAGIC.to_be_bytes() => Endian::Big,
            _ => return Err(Error::at(0, "not a jitdump: the magic number is missing")),
        };
        let cut_short = || Error::at(0, "the header of the jitdump is cut short").damaged();
        let mut fields = Cursor::new(bytes.get(4..HEADER_SIZE).ok_or_else(cut_short)?, endian);
        let [version, size, machine, padding, pid] = [(); 5].map(|()| fields.u32().unwrap_or(0));
        let [time, flags] = [(); 2].map(|()| fields.u64().unwrap_or(0));
        if version > 1 {
            return Err(Error::at(4, format!("unknown jitdump version {version}")));
        }
        if flags & !ARCH_TIMESTAMP != 0 {
            return Err(Error::at(32, format!("unknown jitdump flags {flags:#x}")));
        }
        let size = size as usize;
        if size < HEADER_SIZE || size > bytes.len() {
            return Err(
                Error::at(8, format!("impossible size of the jitdump header: {size} bytes")).damaged()
            );
        }
        Ok((Header { endian, machine, is_of_v8: padding == V8_PADDING, pid, time, flags }, size))
    }
}

/// A jitdump to read.
///
/// ```
/// use perfx_format::Endian;
/// use perfx_format::jitdump::{Body, Dump, Load, Writer};
///
/// let mut writer = Writer::new(Endian::Little, 62, 4711);
/// let (pid, tid) = (4711, 4711);
/// writer.load(5, &Load { pid, tid, address: 0x7000, size: 1, index: 1, name: b"fib", code: &[0xc3] });
/// let bytes = writer.into_bytes();
///
/// let dump = Dump::new(&bytes)?;
/// let record = dump.records().next().unwrap();
/// let Body::Load(load) = record.body else { panic!("a LOAD was written") };
/// assert_eq!((record.time, load.address, load.name, load.code), (5, 0x7000, &b"fib"[..], &[0xc3][..]));
/// # Ok::<(), perfx_format::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    bytes: &'a [u8],
    first: usize,
    /// The header of the file.
    pub header: Header,
}

impl<'a> Dump<'a> {
    /// Parses the header of a jitdump. `bytes` is the whole file.
    ///
    /// # Errors
    ///
    /// The header is missing or invalid, or has an unknown version or unknown flags.
    pub fn new(bytes: &'a [u8]) -> Result<Dump<'a>> {
        let (header, first) = Header::read(bytes)?;
        Ok(Dump { bytes, first, header })
    }

    /// Iterates over all records, in the order of the file.
    pub fn records(&self) -> Records<'a> {
        Records {
            bytes: self.bytes,
            endian: self.header.endian,
            at: self.first,
            earliest: None,
            latest: 0,
            damage: Damage::default(),
        }
    }
}

/// A record of a jitdump.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset in the file, bytes.
    pub offset: usize,
    /// Its time: ns of CLOCK_MONOTONIC, or with [`ARCH_TIMESTAMP`] the value of the processor's counter.
    pub time: u64,
    /// Its contents.
    pub body: Body<'a>,
}

/// The contents of a record.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Body<'a> {
    /// Code was generated.
    Load(Load<'a>),
    /// Code was moved.
    Move(Move),
    /// The source lines of the code that is loaded next.
    DebugInfo(DebugInfo<'a>),
    /// The last record of a writer.
    Close,
    /// The unwind data of the code that is loaded next.
    UnwindingInfo(UnwindingInfo<'a>),
    /// A record with an unknown id.
    Unknown(u32),
}

/// A LOAD record: code that was generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load<'a> {
    /// The pid of the process. It differs from that in the header if a forked child continues the dump.
    pub pid: u32,
    /// The tid of the thread, or whatever the writer uses instead.
    pub tid: u32,
    /// The address of its first byte.
    pub address: u64,
    /// Its size in memory, bytes.
    pub size: u64,
    /// The index by which MOVE records refer to it.
    pub index: u64,
    /// Its name.
    pub name: &'a [u8],
    /// The machine code: `size` bytes, or empty if omitted.
    pub code: &'a [u8],
}

/// A MOVE record: code that was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the table above")]
pub struct Move {
    pub pid: u32,
    pub tid: u32,
    pub old_address: u64,
    pub new_address: u64,
    pub size: u64,
    pub index: u64,
}

/// A DEBUG_INFO record: the source lines of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugInfo<'a> {
    /// The address of the first byte of the code.
    pub address: u64,
    /// The number of entries according to the record.
    pub count: u64,
    entries: &'a [u8],
    endian: Endian,
}

/// The source line of the code from an address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// The address of the first byte of the code.
    pub address: u64,
    /// The line number; 0 if unknown.
    pub line: u32,
    /// The column number; 0 if unknown.
    pub column: u32,
    /// The name of the source file.
    pub file: &'a [u8],
}

impl<'a> DebugInfo<'a> {
    /// Iterates over the entries up to the first incomplete one. File names are assumed to end with a NUL.
    pub fn lines(&self) -> impl Iterator<Item = Line<'a>> + use<'a> {
        let mut fields = Cursor::new(self.entries, self.endian);
        let (mut left, mut last) = (self.count, &[][..]);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (address, line, column) = (fields.u64()?, fields.u32()?, fields.u32()?);
            let named = until_nul(fields.rest());
            fields.bytes(named.len() + 1)?;
            last = if named == SAME_NAME { last } else { named };
            Some(Line { address, line, column, file: last })
        })
    }

    /// The entries, if all have the same size and `is_of_code` accepts all of their addresses. V8 writes file
    /// names that it has already freed and that contain NULs, so only their lengths are right. In this case
    /// `file` is everything at the position of the name, without trailing NULs.
    pub fn lines_of_one_size(&self, is_of_code: impl Fn(u64) -> bool) -> Option<Vec<Line<'a>>> {
        let (len, count) = (self.entries.len(), usize::try_from(self.count).ok().filter(|&count| count > 0)?);
        // Less than 8 bytes of padding follow.
        let sizes = len.saturating_sub(7).div_ceil(count).max(ENTRY_SIZE + 1)..=len / count;
        sizes.rev().find_map(|size| {
            let line = |entry: &'a [u8]| {
                let mut fields = Cursor::new(entry, self.endian);
                let (address, line, column) = (fields.u64()?, fields.u32()?, fields.u32()?);
                let file = fields.rest();
                let end = file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                is_of_code(address).then_some(Line { address, line, column, file: &file[..end] })
            };
            self.entries.chunks_exact(size).take(count).map(line).collect()
        })
    }
}

/// An UNWINDING_INFO record: the unwind data of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnwindingInfo<'a> {
    /// The contents of `.eh_frame`.
    pub eh_frame: &'a [u8],
    /// The contents of `.eh_frame_hdr`, which writers put before or after `.eh_frame`.
    pub eh_frame_hdr: &'a [u8],
    /// The number of bytes of both sections that the process has mapped after the code.
    pub mapped_size: u64,
}

impl<'a> UnwindingInfo<'a> {
    /// Splits the data: the specification and LLVM put `.eh_frame_hdr` first; V8, CPython and perf, last.
    fn new(data: &'a [u8], header_size: usize, mapped_size: u64) -> Option<UnwindingInfo<'a>> {
        let (last, rest) = (data.len().checked_sub(header_size)?, data.get(header_size..)?);
        let (eh_frame, eh_frame_hdr) = if begins_header(data) && !begins_header(data.get(last..)?) {
            (rest, &data[..header_size])
        } else {
            data.split_at(last)
        };
        Some(UnwindingInfo { eh_frame, eh_frame_hdr, mapped_size })
    }
}

/// True if the data begins like `.eh_frame_hdr`: version 1 and three encodings, too large for a CIE's length.
fn begins_header(data: &[u8]) -> bool {
    let encoded = |byte: u8| byte == 0xff || byte & 0xf <= 0xc && byte & 0x70 <= 0x50;
    matches!(data, [1, rest @ ..] if rest.len() >= 3 && rest[..3].iter().all(|&byte| encoded(byte) && byte != 0))
}

/// The parts of a jitdump that could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Damage {
    /// The number of records that are incomplete, or whose sizes contradict each other.
    pub broken: u64,
    /// The number of bytes that were skipped because of broken records.
    pub skipped: u64,
    /// The number of records with an unknown id.
    pub unknown: u64,
    /// The size of an incomplete record at the end of the file, which may still be written, bytes.
    pub unfinished: u64,
}

/// An iterator over the records of a jitdump. After a broken record it continues with the next intact one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    endian: Endian,
    at: usize,
    earliest: Option<u64>,
    latest: u64,
    damage: Damage,
}

const HIGHEST_ID: u32 = 0xff;

#[derive(Clone, Copy)]
struct Prefix {
    id: u32,
    size: usize,
    time: u64,
}

/// The most by which the time of a record may exceed the times of all records before it: one day in ns.
/// Values of the processor's counter have the same limit.
const LONG: u64 = 86_400_000_000_000;

/// The most by which the time of a record may fall below the times of all records before it: 10 s in ns.
const DISORDER: u64 = 10_000_000_000;

impl<'a> Records<'a> {
    /// The parts that could not be read so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    fn prefix(&self, at: usize) -> Option<Prefix> {
        let mut fields = Cursor::new(self.bytes.get(at..at.checked_add(PREFIX_SIZE)?)?, self.endian);
        Some(Prefix { id: fields.u32()?, size: fields.u32()? as usize, time: fields.u64()? })
    }

    /// True if a record may begin at this offset; `known_only` excludes unknown ids. Takes constant time.
    fn is_plausible(&self, at: usize, known_only: bool) -> bool {
        let Some(Prefix { id, size, time }) = self.prefix(at) else { return false };
        let Some(record) = at.checked_add(size).and_then(|end| self.bytes.get(at..end)) else { return false };
        let u64 = |at| self.endian.u64(record, at).map(|value| usize::try_from(value).unwrap_or(usize::MAX));
        let has_body = match id {
            0 => u64(40).is_some_and(|code| {
                let before = size.checked_sub(code).filter(|&before| before > LOAD_SIZE && code > 0);
                before.is_some_and(|before| record[before - 1] == 0)
            }),
            1 => size == MOVE_SIZE,
            2 => u64(24).is_some_and(|count| {
                size >= DEBUG_INFO_SIZE && count <= (size - DEBUG_INFO_SIZE) / (ENTRY_SIZE + 1)
            }),
            3 => size == PREFIX_SIZE,
            4 => u64(16).zip(u64(24)).is_some_and(|(both, header)| {
                size >= UNWINDING_INFO_SIZE && both <= size - UNWINDING_INFO_SIZE && header <= both
            }),
            _ => !known_only && id <= HIGHEST_ID && size >= PREFIX_SIZE,
        };
        has_body && self.is_time(time)
    }

    fn is_time(&self, time: u64) -> bool {
        let Some(earliest) = self.earliest else { return true };
        (earliest.saturating_sub(DISORDER)..=self.latest.saturating_add(LONG)).contains(&time)
    }

    /// True if a record may end at this offset: the next one follows, or one cut by the end of the file.
    fn may_end(&self, at: usize) -> bool {
        let left = self.bytes.len().saturating_sub(at);
        let unfinished = |next: Prefix| next.id <= 4 && next.size > left && self.is_time(next.time);
        left < PREFIX_SIZE || self.is_plausible(at, false) || self.prefix(at).is_some_and(unfinished)
    }

    /// The first offset in `from..until` where a record with a known id begins.
    fn next_certain(&self, from: usize, until: usize) -> Option<usize> {
        (from..until.min(self.bytes.len())).find(|&at| self.is_plausible(at, true))
    }

    fn skip_to(&mut self, at: usize) {
        self.damage.broken += 1;
        self.damage.skipped += (at - self.at) as u64;
        self.at = at;
    }

    fn body(&self, id: u32, record: &'a [u8]) -> Option<Body<'a>> {
        let mut fields = Cursor::new(record.get(PREFIX_SIZE..)?, self.endian);
        let left = |fields: &Cursor<'a>, size: u64| {
            usize::try_from(size).ok().filter(|&size| size <= fields.rest().len())
        };
        Some(match id {
            0 => {
                let (pid, tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let (address, size, index) = (fields.u64()?, fields.u64()?, fields.u64()?);
                let name = until_nul(fields.rest());
                fields.bytes(name.len() + 1)?;
                // A writer may leave the code out, but a part of the code means that the record is cut short.
                let code = if fields.rest().is_empty() { &[] } else { fields.bytes(left(&fields, size)?)? };
                Body::Load(Load { pid, tid, address, size, index, name, code })
            }
            1 => {
                let (pid, tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let (old_address, new_address) = (fields.u64()?, fields.u64()?);
                let (size, index) = (fields.u64()?, fields.u64()?);
                Body::Move(Move { pid, tid, old_address, new_address, size, index })
            }
            2 => {
                let (address, count) = (fields.u64()?, fields.u64()?);
                Body::DebugInfo(DebugInfo { address, count, entries: fields.rest(), endian: self.endian })
            }
            3 => Body::Close,
            4 => {
                let (both, header, mapped_size) = (fields.u64()?, fields.u64()?, fields.u64()?);
                let data = fields.bytes(left(&fields, both)?)?;
                let header = usize::try_from(header).ok()?;
                Body::UnwindingInfo(UnwindingInfo::new(data, header, mapped_size)?)
            }
            _ => Body::Unknown(id),
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let (at, len) = (self.at, self.bytes.len());
            let Some(Prefix { id, size, time }) = self.prefix(at) else {
                self.damage.unfinished += len.saturating_sub(at) as u64;
                self.at = len;
                return None;
            };
            let may_be = size >= PREFIX_SIZE && id <= HIGHEST_ID;
            let end = at.checked_add(size).filter(|&end| may_be && end <= len);
            let Some(end) = end else {
                match self.next_certain(at + 1, len) {
                    Some(next) => self.skip_to(next),
                    None if may_be => {
                        self.damage.unfinished += (len - at) as u64;
                        self.at = len;
                        return None;
                    }
                    None => self.skip_to(len),
                }
                continue;
            };
            // If no record follows, this one may be cut short, and its size may cover later records.
            if !self.may_end(end)
                && let Some(next) = self.next_certain(at + 1, end)
            {
                self.skip_to(next);
                continue;
            }
            let Some(body) = self.body(id, &self.bytes[at..end]) else {
                self.skip_to(end);
                continue;
            };
            self.at = end;
            self.earliest = Some(self.earliest.map_or(time, |earliest| earliest.min(time)));
            self.latest = self.latest.max(time);
            self.damage.unknown += u64::from(matches!(body, Body::Unknown(_)));
            return Some(Record { offset: at, time, body });
        }
    }
}

#[cfg(test)]
mod tests;
