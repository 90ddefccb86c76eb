//! Keeps the samples of a part of a trace, of which only some megabytes are in memory: a trace without points of
//! synchronization is one part, and each of its bytes can stand for hundreds of branches.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use perfx_format::Error;
use perfx_format::read::TempFiles;
use perfx_pipeline::Result;

use crate::itrace::made::Made;

/// The size of a chunk, bytes.
const CHUNK: usize = 2 << 20;

/// Samples in chunks: all but the last one are in a temporary file.
pub(crate) struct Spool {
    temp_files: TempFiles,
    file: Option<File>,
    /// The numbers of samples of the chunks in the file, and how many of these were read again.
    stored: Vec<usize>,
    read: usize,
    last: Made,
    /// Why chunks are missing.
    failed: Option<Error>,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl Spool {
    pub(super) fn new(temp_files: TempFiles) -> Spool {
        let last = Made::default();
        Spool { temp_files, file: None, stored: Vec::new(), read: 0, last, failed: None }
    }

    /// The samples; there is room for as many in what comes next.
    pub(super) fn take(&mut self) -> Spool {
        let next = Spool { last: self.last.empty(), ..Spool::new(self.temp_files.clone()) };
        std::mem::replace(self, next)
    }

    /// Adds a sample, which `write` appends to others, and its time.
    #[inline(always)]
    pub(crate) fn add(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.last.push(key, write);
        if self.last.len() >= CHUNK {
            self.store_last();
        }
    }

    #[cold]
    fn store_last(&mut self) {
        let empty = self.last.empty();
        let chunk = std::mem::replace(&mut self.last, empty);
        self.failed = self.failed.take().or_else(|| self.store(&chunk).err());
    }

    /// Writes a chunk to the file: of each sample its size, its time and its bytes.
    fn store(&mut self, chunk: &Made) -> Result<(), Error> {
        let failed = |error| Error::io("a temporary file for samples can't be written", error);
        let mut bytes = Vec::with_capacity(2 * chunk.len());
        let mut count = 0;
        while let Some((sample, key)) = chunk.get(count) {
            bytes.extend((sample.len() as u32).to_le_bytes());
            bytes.extend(key.to_le_bytes());
            bytes.extend(sample);
            count += 1;
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => (self.temp_files)().map_err(failed)?,
        };
        file.write_all(&bytes).map_err(failed)?;
        self.file = Some(file);
        self.stored.push(count);
        Ok(())
    }

    /// The next chunk; an empty one behind the last.
    ///
    /// # Errors
    ///
    /// The temporary file could not be written, or cannot be read.
    pub(crate) fn next(&mut self) -> Result<Made> {
        if let Some(failed) = self.failed.take() {
            return Err(failed.into());
        }
        let (Some(count), Some(file)) = (self.stored.get(self.read), &mut self.file) else {
            return Ok(std::mem::take(&mut self.last));
        };
        let failed = |error| Error::io("a temporary file of samples can't be read", error);
        if self.read == 0 {
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
        }
        self.read += 1;
        let mut file = std::io::BufReader::with_capacity(1 << 16, file);
        let (mut chunk, mut sample) = (Made::default(), Vec::new());
        for _ in 0..*count {
            let (mut size, mut key) = ([0; 4], [0; 8]);
            file.read_exact(&mut size).map_err(failed)?;
            file.read_exact(&mut key).map_err(failed)?;
            sample.resize(u32::from_le_bytes(size) as usize, 0);
            file.read_exact(&mut sample).map_err(failed)?;
            chunk.push(u64::from_le_bytes(key), |bytes| bytes.extend_from_slice(&sample));
        }
        // The reader has read ahead.
        let ahead = file.buffer().len() as i64;
        file.into_inner().seek_relative(-ahead).map_err(failed)?;
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn samples_come_back_in_their_order_and_few_are_in_memory() {
        let mut spool = Spool::new(Arc::new(tempfile::tempfile));
        let size = CHUNK / 100;
        let sample = |number: u64| vec![number as u8; size + number as usize % 3];
        (0..250).for_each(|number| spool.add(1000 + number, |bytes| bytes.extend(sample(number))));
        assert_eq!(spool.stored.len(), 2);
        assert!(spool.last.len() < CHUNK);
        let mut number = 0;
        loop {
            let chunk = spool.next().unwrap();
            for at in 0.. {
                let Some((read, key)) = chunk.get(at) else { break };
                assert_eq!((read, key), (&sample(number)[..], 1000 + number));
                number += 1;
            }
            if chunk.count() == 0 {
                break;
            }
        }
        assert_eq!(number, 250);
    }

    #[test]
    fn a_file_that_can_not_be_made_is_an_error() {
        let none: TempFiles = Arc::new(|| Err(std::io::Error::other("no room")));
        let mut spool = Spool::new(none);
        (0..3).for_each(|key| spool.add(key, |bytes| bytes.resize(bytes.len() + CHUNK / 2, 0)));
        let error = spool.next().unwrap_err().to_string();
        assert!(error.contains("no room"), "{error}");
    }
}
