//! Finds the data of AUXTRACE records, and keeps a copy of what `simpleperf record -z` compressed.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use perfx_format::read::StoredBytes;
use perfx_format::record::aux::Auxtrace;
use perfx_format::{Bytes, Error, Origin};
use perfx_pipeline::Result;
use perfx_trace::Switches;

/// AUX data in an unnamed temporary file.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    file: Option<BufWriter<File>>,
    len: u64,
    failed: Option<io::Error>,
}

impl Kept {
    pub(crate) fn add(&mut self, data: &[u8]) -> u64 {
        if self.failed.is_none() {
            self.failed = self.write(data).err();
        }
        let at = self.len;
        self.len += data.len() as u64;
        at
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(tempfile::tempfile()?)),
        };
        file.write_all(data)
    }

    /// All added data; fails if the temporary file could not be written.
    fn done(self) -> Result<Bytes> {
        let failed = |error| Error::io("a temporary file for AUX data can't be written", error);
        if let Some(error) = self.failed {
            return Err(failed(error).into());
        }
        let Some(file) = self.file else { return Ok(Bytes::default()) };
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        Ok(Bytes::map(&file)?)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In the recording: a record, and the offset from its beginning.
    Stored(Origin, usize),
    /// An offset in what [`Kept`] stored.
    Kept(u64),
}

/// An AUXTRACE record, or a sample with a trace, with its data, the number of its buffer, and the threads that ran there.
pub(crate) struct Chunk {
    pub(crate) auxtrace: Auxtrace,
    pub(crate) buffer: usize,
    pub(crate) switches: Switches,
    pub(crate) data: Bytes,
}

pub(crate) struct StoredAux<'a> {
    stored: &'a StoredBytes,
    kept: Bytes,
}

impl<'a> StoredAux<'a> {
    /// The data in a recording, and the copies kept from it; fails if a temporary file could not be written.
    pub(crate) fn new(stored: &'a StoredBytes, kept: Kept) -> Result<StoredAux<'a>> {
        Ok(StoredAux { stored, kept: kept.done()? })
    }

    /// Up to `size` bytes at a place; `None` if they can't be read again.
    pub(crate) fn get(&self, place: Place, size: u64) -> Option<Bytes> {
        let len = usize::try_from(size).ok()?;
        match place {
            Place::Stored(origin, header) => self.stored.get(origin, header, len),
            Place::Kept(start) => {
                let start = usize::try_from(start).ok()?;
                let end = start.checked_add(len).filter(|end| *end <= self.kept.len())?;
                Some(self.kept.slice(start..end))
            }
        }
    }
}
