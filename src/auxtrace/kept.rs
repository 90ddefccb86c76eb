//! Keeps AUX data that is not stored as it is: what `simpleperf record -z` compressed.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use perfx_format::{Bytes, Error};
use perfx_pipeline::Result;

/// AUX data in an unnamed temporary file.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    file: Option<BufWriter<File>>,
    len: u64,
    /// Why data is missing.
    failed: Option<io::Error>,
}

impl Kept {
    /// Adds the data of a record, and returns where it is.
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

    /// All that was added.
    ///
    /// # Errors
    ///
    /// The temporary file could not be written.
    pub(crate) fn done(self) -> Result<Bytes> {
        let failed = |error| Error::io("a temporary file for AUX data can't be written", error);
        if let Some(error) = self.failed {
            return Err(failed(error).into());
        }
        let Some(file) = self.file else { return Ok(Bytes::default()) };
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        Ok(Bytes::map(&file)?)
    }
}
