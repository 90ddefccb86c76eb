//! Keeps samples for which there is no room in memory in one temporary file, whatever the number of parts: a process can
//! have some hundred files open.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perfx_format::Error;
use perfx_format::read::TempFiles;

use crate::itrace::made::Made;

/// Room for samples in a temporary file, which all copies share.
#[derive(Clone)]
pub(crate) struct Room {
    temp_files: TempFiles,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    file: Option<Arc<File>>,
    /// The size of the file, and the places in it whose samples were taken again, bytes.
    size: u64,
    free: Vec<Place>,
}

/// The sizes of places are multiples of this, so that another piece of about the same size fits, bytes.
const ROUND: u64 = 1 << 16;

/// A place in the file, bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    size: u64,
}

/// Samples in the file.
#[derive(Debug)]
pub(super) struct Stored {
    file: Arc<File>,
    place: Place,
    /// The size of them, bytes.
    size: usize,
}

impl Room {
    pub(crate) fn new(temp_files: TempFiles) -> Room {
        Room { temp_files, shared: Arc::default() }
    }

    /// A temporary file for something else.
    pub(crate) fn temp_file(&self) -> io::Result<File> {
        (self.temp_files)()
    }

    /// Writes some samples to the file.
    ///
    /// # Errors
    ///
    /// There is no file, or it can't be written.
    pub(super) fn put(&self, made: &Made, some: Range<usize>) -> Result<Stored, Error> {
        let bytes = made.to_bytes(some);
        let put = || {
            let (file, place) = self.place(bytes.len() as u64)?;
            file.write_all_at(&bytes, place.at)?;
            Ok(Stored { file, place, size: bytes.len() })
        };
        put().map_err(|error| Error::io("a temporary file for samples can't be written", error))
    }

    /// Reads samples back; their place becomes free.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub(super) fn take(&self, Stored { file, place, size }: Stored) -> Result<Made, Error> {
        let mut bytes = vec![0; size];
        let read = file.read_exact_at(&mut bytes, place.at);
        read.map_err(|error| Error::io("a temporary file of samples can't be read", error))?;
        self.lock().free.push(place);
        Ok(Made::from_bytes(&bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free place of at least this size, or the next one at the end.
    fn place(&self, size: u64) -> io::Result<(Arc<File>, Place)> {
        let size = size.next_multiple_of(ROUND);
        let mut shared = self.lock();
        let file = match &shared.file {
            Some(file) => file.clone(),
            None => shared.file.insert(Arc::new((self.temp_files)()?)).clone(),
        };
        if let Some(free) = shared.free.iter().position(|free| free.size >= size) {
            return Ok((file, shared.free.swap_remove(free)));
        }
        let place = Place { at: shared.size, size };
        shared.size += size;
        Ok((file, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back_from_one_file_and_their_places_are_used_again() {
        let room = Room::new(Arc::new(tempfile::tempfile));
        let made = |number: u8| {
            let mut made = Made::default();
            (0..100).for_each(|key| made.push(key, |bytes| bytes.extend([number; 24])));
            made
        };
        let mut stored: Vec<_> = (0..4).map(|number| room.put(&made(number), 0..100).unwrap()).collect();
        let size = room.shared.lock().unwrap().size;
        for number in 4..40 {
            let taken = room.take(stored.remove(0)).unwrap();
            assert_eq!(taken.count(), 100);
            assert_eq!(taken.get(99), made(number - 4).get(99));
            stored.push(room.put(&made(number), 0..100).unwrap());
        }
        assert_eq!(room.shared.lock().unwrap().size, size);
    }
}
