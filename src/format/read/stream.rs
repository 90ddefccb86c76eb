//! One run of records and where its bytes come from: a mapped file, or a reader that is read once.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use crate::Bytes;

/// Makes a temporary file without a name, for what can't stay in memory. Given by the caller, for where such files go is policy.
pub type TempFiles = Arc<dyn Fn() -> io::Result<File> + Send + Sync>;

/// One run of records: the data section, a pipe, or a directory's `data.N`.
pub(super) struct Stream {
    pub(super) name: Arc<str>,
    pub(super) index: u32,
    pub(super) source: Source,
}

pub(super) enum Source {
    /// `bytes` lie in `file` from `offset` on.
    Mapped { bytes: Bytes, file: Arc<File>, offset: u64 },
    /// What has been read but not yet cut off, and where it lies; then the rest of the reader.
    Reader { reader: Box<dyn Read + Send>, pending: Vec<u8>, offset: u64, temp_files: TempFiles },
}

/// Appends what one read yields; false at the end.
pub(super) fn read_once(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    // As much as a pipe holds.
    let mut some = [0; 1 << 16];
    let got = loop {
        match reader.read(&mut some) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            got => break got?,
        }
    };
    buffer.extend_from_slice(&some[..got]);
    Ok(got > 0)
}
