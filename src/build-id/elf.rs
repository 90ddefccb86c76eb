//! Reads the build-id from the bytes of an ELF file, or of notes alone, reading only headers and notes.

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use object::elf::{
    ELFCLASS32, ELFCLASS64, ELFMAG, FileClass, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, NoteType,
    PT_NOTE, SHT_NOTE,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endian, Endianness, ReadCache, ReadRef};
use rustix::fs::OFlags;

use crate::BuildId;

/// The read limit of one ELF file, bytes. A section table of a million entries fits. A damaged or hostile
/// file that claims more, or whose segments all point at the same gigabyte, is an error.
const MOST_READ: u64 = 64 << 20;

/// The reason why a file's build-id could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened or read.
    Io(io::Error),
    /// Neither a regular file nor a link to one. It is not opened, because that could block for ever.
    NotRegular(&'static str),
    /// The file is compressed, which this package does not support; holds the name of the method.
    Compressed(&'static str),
    /// It is not an ELF file.
    NotElf,
    /// An ELF file whose headers or notes lie outside the file, contradict each other, or cannot be read.
    Damaged(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotRegular(kind) => write!(f, "not a regular file but {kind}, not read"),
            Error::Compressed(method) => write!(f, "compressed ({method}), not read"),
            Error::NotElf => write!(f, "not an ELF file"),
            Error::Damaged(what) => write!(f, "damaged ELF file: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Io(error) => error,
            other => io::Error::other(other),
        }
    }
}

/// The build-id of an ELF file at this path; `None` if it has none of 1 to 20 bytes.
///
/// Only headers and notes are read.
///
/// # Errors
///
/// The file cannot be read, or is not valid ELF.
pub fn of_file(path: &Path) -> Result<Option<BuildId>, Error> {
    of_open(open(path)?.0)
}

/// Opens a regular file and returns the metadata of the open file, whose inode number callers compare.
///
/// Anything else is refused before it is opened, because opening a FIFO can block, and opening a device can
/// have effects. The flags are for a FIFO or a terminal that takes the file's place between this check and
/// the open.
///
/// # Errors
///
/// The file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> Result<(File, Metadata), Error> {
    open_checked(path, fs::metadata(path)?, OFlags::empty())
}

/// Like [`open`], for a path whose last component others may choose: a symbolic link there is not followed.
///
/// # Errors
///
/// The file cannot be opened, or is not a regular file.
pub fn open_unlinked(path: &Path) -> Result<(File, Metadata), Error> {
    open_checked(path, fs::symlink_metadata(path)?, OFlags::NOFOLLOW)
}

fn open_checked(path: &Path, there: Metadata, more: OFlags) -> Result<(File, Metadata), Error> {
    regular(there)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = regular(file.metadata()?)?;
    Ok((file, metadata))
}

fn regular(metadata: Metadata) -> Result<Metadata, Error> {
    let kind = metadata.file_type();
    let other = if kind.is_file() {
        return Ok(metadata);
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(Error::NotRegular(other))
}

/// Like [`of_file`], for a file opened with [`open`].
///
/// # Errors
///
/// The file cannot be read, or is not valid ELF.
pub fn of_open(file: File) -> Result<Option<BuildId>, Error> {
    // Files of /proc report a length of 0, and reading some of them changes the machine.
    if file.metadata()?.len() < 16 {
        return Err(Error::NotElf);
    }
    // The cache below discards the reason of a failed read, so the first read is made here: it distinguishes
    // a failing disk from a file that is not ELF.
    let mut start = [0; 16];
    match file.read_exact_at(&mut start, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Error::NotElf),
        result => result?,
    }
    // Not a memory map: that needs unsafe, and raises SIGBUS if the file is truncated.
    read(&ReadCache::new(file))
}

/// The build-id of an ELF image; `None` if it has none of 1 to 20 bytes.
///
/// The image may be of 32 or 64 bits, of either byte order, and incomplete: the pages of a vdso are enough.
///
/// # Errors
///
/// The image is not valid ELF.
pub fn from_elf(image: &[u8]) -> Result<Option<BuildId>, Error> {
    read(image)
}

fn read<'data>(data: impl ReadRef<'data>) -> Result<Option<BuildId>, Error> {
    let left = Cell::new(MOST_READ);
    let data = Metered::new(data, &left);
    // elf(5), e_ident: 16 bytes, the magic number in 0 to 3, the class in 4.
    let ident = data.read_bytes_at(0, 16).map_err(|()| Error::NotElf)?;
    if !ident.starts_with(&ELFMAG) {
        return Err(compression(ident).map_or(Error::NotElf, Error::Compressed));
    }
    match FileClass(ident[4]) {
        ELFCLASS32 => search::<FileHeader32<Endianness>, _>(data),
        ELFCLASS64 => search::<FileHeader64<Endianness>, _>(data),
        FileClass(class) => Err(Error::Damaged(format!("its class is {class}, neither 32 nor 64 bit"))),
    }
}

/// The compression methods of kernel modules (MODULE_COMPRESS in kernel/module/Kconfig), by magic number.
fn compression(start: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], _); 3] =
        [(b"\xfd7zXZ\0", "xz"), (b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd")];
    known.into_iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, method)| method)
}

/// Searches every note, whatever the section's name: a vmlinux has all its notes in one section `.notes`.
///
/// Sections come first, because `objcopy --only-keep-debug` keeps the notes but leaves program headers that
/// point to removed bytes. Program headers are searched, too, because a file may have no sections. Damaged
/// parts are skipped as long as a build-id is found elsewhere.
fn search<'data, Elf, R>(data: R) -> Result<Option<BuildId>, Error>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let damaged = |error: object::Error| Error::Damaged(error.to_string());
    let header = Elf::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let mut damage = None;

    let sections = header.section_headers(endian, data);
    for section in sections.unwrap_or_else(|error| pass_by(&mut damage, error)) {
        if section.sh_type(endian) == SHT_NOTE {
            let notes = section.data(endian, data).unwrap_or_else(|error| pass_by(&mut damage, error));
            if let Some(id) = from_notes(notes, endian) {
                return Ok(Some(id));
            }
        }
    }
    let segments = header.program_headers(endian, data);
    for segment in segments.unwrap_or_else(|error| pass_by(&mut damage, error)) {
        if segment.p_type(endian) == PT_NOTE {
            let notes = segment
                .data(endian, data)
                .unwrap_or_else(|()| pass_by(&mut damage, "Invalid ELF note segment offset or size"));
            if let Some(id) = from_notes(notes, endian) {
                return Ok(Some(id));
            }
        }
    }
    damage.map_or(Ok(None), |damage| Err(Error::Damaged(damage)))
}

fn pass_by<T>(first: &mut Option<String>, error: impl ToString) -> &'static [T] {
    first.get_or_insert_with(|| error.to_string());
    &[]
}

/// The first build-id of 1 to 20 bytes in a run of ELF notes, such as `/sys/kernel/notes`.
///
/// A build-id is a note of type 3 with the name `GNU` (`NT_GNU_BUILD_ID` in elf.h). The search ends where the
/// bytes end, or at a note that is longer than the rest.
//
// elf(5) has notes padded to 4 bytes, but GNU property notes are padded to 8, and linkers have put both kinds
// into one segment and declared 8. So the declaration is ignored: first one padding is tried, then the other.
pub fn from_notes(notes: &[u8], endian: Endianness) -> Option<BuildId> {
    padded_notes(notes, endian, 4).or_else(|| padded_notes(notes, endian, 8))
}

fn padded_notes(mut notes: &[u8], endian: Endianness, padding: usize) -> Option<BuildId> {
    // elf(5), "Notes (Nhdr)": n_namesz, n_descsz and n_type of 32 bits in files of either class, then the
    // name with its NUL, then the descriptor.
    const HEADER: usize = 12;
    loop {
        let (header, _) = notes.split_first_chunk::<HEADER>()?;
        let [name_len, desc_len, kind] =
            [0, 4, 8].map(|at| endian.read_u32([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        let name_end = HEADER.checked_add(name_len as usize)?;
        let desc_at = name_end.checked_next_multiple_of(padding)?;
        let desc_end = desc_at.checked_add(desc_len as usize)?;
        let name = notes.get(HEADER..name_end)?;
        let desc = notes.get(desc_at..desc_end)?;
        if NoteType(kind) == NT_GNU_BUILD_ID
            && name == b"GNU\0"
            && let Some(id) = BuildId::new(desc)
        {
            return Some(id);
        }
        notes = notes.get(desc_end.checked_next_multiple_of(padding)?..)?;
    }
}

/// Data that refuses reads once a total number of bytes has been read.
///
/// A limit on single reads would not suffice: a file can request the same large range 65535 times.
#[derive(Clone, Copy, Debug)]
pub struct Metered<'a, R> {
    data: R,
    left: &'a Cell<u64>,
}

impl<'a, R> Metered<'a, R> {
    /// Allows `left` more bytes to be read.
    pub fn new(data: R, left: &'a Cell<u64>) -> Metered<'a, R> {
        Metered { data, left }
    }

    fn take(&self, size: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        Ok(())
    }
}

impl<'data, R: ReadRef<'data>> ReadRef<'data> for Metered<'_, R> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.take(size)?;
        self.data.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.take(range.end.saturating_sub(range.start))?;
        self.data.read_bytes_at_until(range, delimiter)
    }
}
