//! Keeps samples that do not fit in memory in one temporary file for all parts: a process may have only some
//! hundred open files.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perfx_format::Error;
use perfx_format::read::TempFiles;
use perfx_samples::Rows;

/// Samples in a temporary file, which all copies share.
#[derive(Clone)]
pub(crate) struct SpillFile {
    temp_files: TempFiles,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    file: Option<Arc<File>>,
    /// The size of the file, bytes, and the free slots.
    size: u64,
    free: Vec<Slot>,
}

/// Slot sizes are rounded up to a multiple of this (bytes), so that a freed slot can be reused.
const ROUND: u64 = 1 << 16;

/// A range of the file, bytes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: u64,
    size: u64,
}

/// Samples in the file.
#[derive(Debug)]
pub(super) struct Stored {
    file: Arc<File>,
    slot: Slot,
    /// Their size, bytes.
    size: usize,
}

impl SpillFile {
    pub(crate) fn new(temp_files: TempFiles) -> SpillFile {
        SpillFile { temp_files, shared: Arc::default() }
    }

    /// A new temporary file for other data.
    pub(crate) fn temp_file(&self) -> io::Result<File> {
        (self.temp_files)()
    }

    /// Writes some samples to the file.
    ///
    /// # Errors
    ///
    /// There is no file, or it can't be written.
    pub(super) fn put(&self, made: &Rows, some: Range<usize>) -> Result<Stored, Error> {
        let bytes = made.to_bytes(some);
        let put = || {
            let (file, slot) = self.slot(bytes.len() as u64)?;
            file.write_all_at(&bytes, slot.at)?;
            Ok(Stored { file, slot, size: bytes.len() })
        };
        put().map_err(|error| Error::io("a temporary file for samples can't be written", error))
    }

    /// Reads samples back; their slot becomes free.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub(super) fn take(&self, Stored { file, slot, size }: Stored) -> Result<Rows, Error> {
        let mut bytes = vec![0; size];
        let read = file.read_exact_at(&mut bytes, slot.at);
        read.map_err(|error| Error::io("a temporary file of samples can't be read", error))?;
        self.lock().free.push(slot);
        Ok(Rows::from_bytes(&bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free slot of at least this size, or a new one at the end.
    fn slot(&self, size: u64) -> io::Result<(Arc<File>, Slot)> {
        let size = size.next_multiple_of(ROUND);
        let mut shared = self.lock();
        let file = match &shared.file {
            Some(file) => file.clone(),
            None => shared.file.insert(Arc::new((self.temp_files)()?)).clone(),
        };
        if let Some(free) = shared.free.iter().position(|free| free.size >= size) {
            return Ok((file, shared.free.swap_remove(free)));
        }
        let slot = Slot { at: shared.size, size };
        shared.size += size;
        Ok((file, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back_from_one_file_and_their_slots_are_used_again() {
        let spill = SpillFile::new(Arc::new(tempfile::tempfile));
        let made = |number: u8| {
            let mut made = Rows::default();
            (0..100).for_each(|key| made.push(key, |bytes| bytes.extend([number; 24])));
            made
        };
        let mut stored: Vec<_> = (0..4).map(|number| spill.put(&made(number), 0..100).unwrap()).collect();
        let size = spill.shared.lock().unwrap().size;
        for number in 4..40 {
            let taken = spill.take(stored.remove(0)).unwrap();
            assert_eq!(taken.count(), 100);
            assert_eq!(taken.key(99), Some(99));
            assert_eq!(taken.to_bytes(99..100), made(number - 4).to_bytes(99..100));
            stored.push(spill.put(&made(number), 0..100).unwrap());
        }
        assert_eq!(spill.shared.lock().unwrap().size, size);
    }
}
