//! Describes one run of records and the source of its bytes: a mapped file, or a reader that is read once.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::sync::Arc;

use crate::Bytes;

/// Creates an unnamed temporary file, where the caller decides, for data too large for memory.
pub type TempFiles = Arc<dyn Fn() -> io::Result<File> + Send + Sync>;

/// Temporary files in the system's folder (`TMPDIR`).
#[cfg(feature = "fs")]
pub(super) fn temp_files() -> TempFiles {
    Arc::new(tempfile::tempfile)
}

#[cfg(not(feature = "fs"))]
pub(super) fn temp_files() -> TempFiles {
    Arc::new(|| Err(io::ErrorKind::Unsupported.into()))
}

/// One run of records: the data section, a pipe, or a directory's `data.N`.
pub(super) struct Stream {
    pub(super) name: Arc<str>,
    pub(super) index: u32,
    pub(super) source: Source,
}

pub(super) enum Source {
    /// `bytes` are in `file` from `offset` on, or were given by the caller.
    Mapped { bytes: Bytes, file: Option<Arc<File>>, offset: u64 },
    /// Data that was read but not yet cut off, and its offset; then the rest of the reader.
    Reader { reader: Box<dyn Read + Send>, pending: Vec<u8>, offset: u64, temp_files: TempFiles },
}

/// Copies the rest of a reader into a file: `io::copy` by itself takes twice as long, 8 KiB at a time.
pub(super) fn copy_rest(reader: &mut impl Read, file: &mut File) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, file);
    io::copy(reader, &mut file)?;
    file.flush()
}

/// Appends the result of one read; false at the end of the input.
pub(super) fn read_once(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    // The capacity of a pipe.
    const MOST: usize = 1 << 16;
    let before = buffer.len();
    buffer.resize(before + MOST, 0);
    let got = loop {
        match reader.read(&mut buffer[before..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            got => break got,
        }
    };
    buffer.truncate(before + got.as_ref().map_or(0, |got| *got));
    Ok(got? > 0)
}
