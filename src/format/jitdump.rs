//! A jitdump, the file in which a JIT compiler tells perf what code it made: a reader that nothing in the file can stop, and a writer.
//!
//! Source: tools/perf/Documentation/jitdump-specification.txt, tools/perf/util/jitdump.h, and the files of V8, CPython, PHP, Erlang, wasmtime and LLVM.
//!
//! All integers are in the byte order that the magic tells. The header:
//!
//! | byte | |
//! |---|---|
//! | 0 | u32 magic `0x4A695444`, `DTiJ` in a little-endian file |
//! | 4 | u32 version: 1, also of those who write what the specification calls version 2 |
//! | 8 | u32 size of the header, 40 or more |
//! | 12 | u32 `e_machine` of ELF; 0 from CPython |
//! | 16 | u32 padding, 0xDEADBEEF from V8 |
//! | 20 | u32 pid, as the process sees it itself |
//! | 24 | u64 time of creation, of whatever clock the writer likes |
//! | 32 | u64 flags: bit 0 [`ARCH_TIMESTAMP`] |
//!
//! Records follow one another without padding, so that nothing is aligned. Each begins with u32 id, u32 size with this prefix, u64 time:
//!
//! | id | | from byte 16 on |
//! |---|---|---|
//! | 0 | LOAD | u32 pid, u32 tid, u64 vma, u64 address, u64 size of the code, u64 index, name with NUL, the code |
//! | 1 | MOVE | u32 pid, u32 tid, u64 vma, u64 old address, u64 new address, u64 size, u64 index |
//! | 2 | DEBUG_INFO | u64 address of the code, u64 count, then per entry u64 address, u32 line, u32 column, file name with NUL; padding |
//! | 3 | CLOSE | nothing |
//! | 4 | UNWINDING_INFO | u64 size of both, u64 size of `.eh_frame_hdr`, u64 mapped size, `.eh_frame` and `.eh_frame_hdr`; padding |
//!
//! DEBUG_INFO and UNWINDING_INFO belong to the next LOAD. A CLOSE ends what one writer has to say; others may go on in the same file.

mod writer;

use crate::{Cursor, Endian, Error, Result, until_nul};

pub use writer::{LoadToWrite, Writer};

const MAGIC: u32 = 0x4A69_5444;

const HEADER_SIZE: usize = 40;

const PREFIX_SIZE: usize = 16;

/// Of a LOAD, before its name.
const LOAD_SIZE: usize = 56;

const MOVE_SIZE: usize = 64;

/// Of a DEBUG_INFO, before its entries.
const DEBUG_INFO_SIZE: usize = 32;

/// Of an entry of a DEBUG_INFO, before its name.
const ENTRY_SIZE: usize = 16;

/// Of an UNWINDING_INFO, before its data.
const UNWINDING_INFO_SIZE: usize = 40;

/// Bit 0 of the header's flags: times are those of the processor's counter (x86: `rdtsc`), not those of CLOCK_MONOTONIC.
pub const ARCH_TIMESTAMP: u64 = 1;

/// What stands in the header's padding where V8 wrote the file.
const V8_PADDING: u32 = 0xDEAD_BEEF;

/// The file name of an entry that has the same one as the entry before it.
const SAME_NAME: &[u8] = &[0xff];

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Of all integers in the file.
    pub endian: Endian,
    /// `e_machine` of ELF; 0 where the writer does not say it.
    pub machine: u32,
    /// V8 wrote it.
    pub is_of_v8: bool,
    /// The process, as it sees itself.
    pub pid: u32,
    /// When the file was made, of whatever clock the writer likes.
    pub time: u64,
    /// [`ARCH_TIMESTAMP`].
    pub flags: u64,
}

impl Header {
    /// The header of a file, and where its first record is.
    fn read(bytes: &[u8]) -> Result<(Header, usize)> {
        let endian = match bytes.get(..4) {
            Some(magic) if *magic == MAGIC.to_le_bytes() => Endian::Little,
            Some(magic) if *magic == MAGIC.to_be_bytes() => Endian::Big,
            _ => return Err(Error::at(0, "this is not a jitdump: its first bytes are others")),
        };
        let cut_short = || Error::at(0, "the header of the jitdump is cut short");
        let mut fields = Cursor::new(bytes.get(4..HEADER_SIZE).ok_or_else(cut_short)?, endian);
        let [version, size, machine, padding, pid] = [(); 5].map(|()| fields.u32().unwrap_or(0));
        let [time, flags] = [(); 2].map(|()| fields.u64().unwrap_or(0));
        if version > 1 {
            return Err(Error::at(4, format!("version {version} of jitdump is not known")));
        }
        if flags & !ARCH_TIMESTAMP != 0 {
            return Err(Error::at(32, format!("flags {flags:#x} of jitdump are not known")));
        }
        let size = size as usize;
        if size < HEADER_SIZE || size > bytes.len() {
            return Err(Error::at(8, format!("the header of the jitdump can't have a size of {size} bytes")));
        }
        Ok((Header { endian, machine, is_of_v8: padding == V8_PADDING, pid, time, flags }, size))
    }
}

/// A jitdump.
///
/// ```
/// use perfx_format::Endian;
/// use perfx_format::jitdump::{Body, Dump, LoadToWrite, Writer};
///
/// let mut writer = Writer::new(Endian::Little, 62, 4711);
/// writer.load(5, &LoadToWrite { pid: 4711, tid: 4711, address: 0x7000, index: 1, name: b"fib", code: &[0xc3] });
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
    /// What it begins with.
    pub header: Header,
}

impl<'a> Dump<'a> {
    /// Of all bytes of the file.
    ///
    /// # Errors
    ///
    /// There is no header, or one of a later version.
    pub fn new(bytes: &'a [u8]) -> Result<Dump<'a>> {
        let (header, first) = Header::read(bytes)?;
        Ok(Dump { bytes, first, header })
    }

    /// All records, in the order of the file.
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

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where it begins, bytes from the start of the file.
    pub offset: usize,
    /// ns of CLOCK_MONOTONIC, or with [`ARCH_TIMESTAMP`] of the processor's counter.
    pub time: u64,
    /// What it says.
    pub body: Body<'a>,
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Body<'a> {
    /// Code was made.
    Load(Load<'a>),
    /// Code was moved.
    Move(Move),
    /// The source lines of the code that is loaded next.
    DebugInfo(DebugInfo<'a>),
    /// A writer has come to its end.
    Close,
    /// What is needed to unwind the code that is loaded next.
    UnwindingInfo(UnwindingInfo<'a>),
    /// A record that this reader does not know, by its id.
    Unknown(u32),
}

/// Code that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load<'a> {
    /// The process; another one than in the header where a child goes on writing.
    pub pid: u32,
    /// The thread, or whatever the writer has in place of its number.
    pub tid: u32,
    /// Of its first byte.
    pub address: u64,
    /// Bytes it takes in memory.
    pub size: u64,
    /// What MOVE calls it by.
    pub index: u64,
    /// What it is called.
    pub name: &'a [u8],
    /// The code: `size` bytes, or none where the writer left them out.
    pub code: &'a [u8],
}

/// Code that was moved.
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

/// Source lines of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugInfo<'a> {
    /// The code's first byte.
    pub address: u64,
    /// Number of entries that it says it has.
    pub count: u64,
    entries: &'a [u8],
    endian: Endian,
}

/// From where on code is of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// The first byte of the code.
    pub address: u64,
    /// The line; 0 where there is none.
    pub line: u32,
    /// The column; 0 where there is none.
    pub column: u32,
    /// The source file.
    pub file: &'a [u8],
}

impl<'a> DebugInfo<'a> {
    /// The entries, as far as there are any: each file name ends with its NUL.
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

    /// The entries, if they are all of the same size and all of their addresses belong to the code. V8 writes file names that it has freed already,
    /// with NULs in them, and only their length is right: then `file` is all that stands in the place of the name.
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

/// What is needed to unwind code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnwindingInfo<'a> {
    /// `.eh_frame`, in whichever order the writer has put them.
    pub eh_frame: &'a [u8],
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: &'a [u8],
    /// Bytes of both that the process has mapped behind the code.
    pub mapped_size: u64,
}

impl<'a> UnwindingInfo<'a> {
    /// The specification has `.eh_frame_hdr` first, and so has LLVM; V8, CPython and perf have it last.
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

/// Version 1 of `.eh_frame_hdr`, then three encodings of pointers: no CIE has such a length.
fn begins_header(data: &[u8]) -> bool {
    let encoded = |byte: u8| byte == 0xff || byte & 0xf <= 0xc && byte & 0x70 <= 0x50;
    matches!(data, [1, rest @ ..] if rest.len() >= 3 && rest[..3].iter().all(|&byte| encoded(byte) && byte != 0))
}

/// What of a jitdump could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Damage {
    /// Records of which only a part is there, or whose sizes contradict one another.
    pub broken: u64,
    /// Bytes of these.
    pub skipped: u64,
    /// Records of an id that is not known.
    pub unknown: u64,
    /// Bytes at the end that are the beginning of a record. A file that is still being written has some.
    pub unfinished: u64,
}

/// The records of a jitdump. Behind one that is broken they go on with the next that is whole.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    endian: Endian,
    at: usize,
    /// Of the first record.
    earliest: Option<u64>,
    /// Of those so far.
    latest: u64,
    damage: Damage,
}

/// No specification will ever have so many kinds of records.
const HIGHEST_ID: u32 = 0xff;

/// The front of a record.
#[derive(Clone, Copy)]
struct Prefix {
    id: u32,
    size: usize,
    time: u64,
}

/// One day: no two records of a file that follow each other are that far apart, of either clock.
const LONG: u64 = 86_400_000_000_000;

/// Records of one writer may be out of order by so much, 10 s.
const DISORDER: u64 = 10_000_000_000;

impl<'a> Records<'a> {
    /// What could not be read so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    fn prefix(&self, at: usize) -> Option<Prefix> {
        let mut fields = Cursor::new(self.bytes.get(at..at.checked_add(PREFIX_SIZE)?)?, self.endian);
        Some(Prefix { id: fields.u32()?, size: fields.u32()? as usize, time: fields.u64()? })
    }

    /// A record may begin there: what looks at one in a constant number of steps says so.
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

    /// A record that follows those so far may have this time.
    fn is_time(&self, time: u64) -> bool {
        let Some(earliest) = self.earliest else { return true };
        (earliest.saturating_sub(DISORDER)..=self.latest.saturating_add(LONG)).contains(&time)
    }

    /// Nothing speaks against a record that ends there: another one follows, or the front of one that is not finished.
    fn may_end(&self, at: usize) -> bool {
        let left = self.bytes.len().saturating_sub(at);
        let unfinished = |next: Prefix| next.id <= 4 && next.size > left && self.is_time(next.time);
        left < PREFIX_SIZE || self.is_plausible(at, false) || self.prefix(at).is_some_and(unfinished)
    }

    /// The first place from `from` on, and before `until`, where a record begins for certain.
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
                // A writer without the code may leave it out, but half of it is not there on purpose.
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
            // A record that is not followed by one may have been cut short, and hold others.
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
