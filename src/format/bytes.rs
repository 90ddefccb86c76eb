//! Bytes shared between owners without a copy: a slice of a mapped file or of a buffer.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::{Error, Result};
use map::Map;

#[cfg(feature = "mmap")]
mod map;
/// Without the feature, a file is read into memory.
#[cfg(not(feature = "mmap"))]
#[path = "bytes/copy.rs"]
mod map;

#[cfg(feature = "mmap")]
pub use map::reset_bus_signal;

enum Owner {
    Map(Map),
    Heap(Vec<u8>),
}

/// A slice of a mapped file or a buffer. It is cheap to clone and keeps its memory alive.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl Bytes {
    /// Maps a whole file read-only; without the feature `mmap`, reads it. An empty file gives empty bytes.
    ///
    /// # Errors
    ///
    /// The file can't be mapped or read, or is too large for the address space of this program.
    pub fn map(file: &File) -> Result<Bytes> {
        let io = |e| Error::io("the file can't be mapped", e);
        let len = file.metadata().map_err(io)?.len();
        if len == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        check_mappable(len, isize::MAX as u64)?;
        let map = Map::of(file).map_err(io)?;
        let range = 0..map.len();
        Ok(Bytes { owner: Arc::new(Owner::Map(map)), range })
    }

    /// True for bytes of a mapped file, which cost no memory that the kernel cannot reclaim.
    pub fn is_mapped(&self) -> bool {
        matches!(&*self.owner, Owner::Map(_) if cfg!(feature = "mmap"))
    }

    pub(crate) fn mapped_len(&self) -> Option<u64> {
        match &*self.owner {
            Owner::Map(map) => Some(map.len() as u64),
            Owner::Heap(_) => None,
        }
    }

    pub(crate) fn whole(&self) -> Bytes {
        let len = match &*self.owner {
            Owner::Map(map) => map.len(),
            Owner::Heap(bytes) => bytes.len(),
        };
        Bytes { owner: self.owner.clone(), range: 0..len }
    }

    /// A part of these bytes, clamped to their length.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        let start = self.range.start + range.start.min(self.range.len());
        let end = self.range.start + range.end.min(self.range.len());
        Bytes { owner: self.owner.clone(), range: start..end.max(start) }
    }

    /// These bytes and the next ones together, if those follow in the same file or buffer.
    pub fn joined(&self, next: &Bytes) -> Option<Bytes> {
        let follows = Arc::ptr_eq(&self.owner, &next.owner) && next.range.start == self.range.end;
        follows.then(|| Bytes { owner: self.owner.clone(), range: self.range.start..next.range.end })
    }
}

/// Refuses a file that is longer than the largest slice. With 32 bits, that is 2 GiB.
fn check_mappable(len: u64, most: u64) -> Result<()> {
    if len <= most {
        return Ok(());
    }
    let what = format!("the file has {len} bytes, and a program of this word size can map {most} at most");
    Err(Error::new(what).hint("use a perfx that was built for 64 bits"))
}

impl Default for Bytes {
    fn default() -> Bytes {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes { owner: Arc::new(Owner::Heap(bytes)), range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &*self.owner {
            Owner::Map(map) => &map[self.range.clone()],
            Owner::Heap(bytes) => &bytes[self.range.clone()],
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_too_large_for_32_bits_is_refused_with_advice() {
        let most = i32::MAX as u64;
        assert!(check_mappable(most, most).is_ok());
        for len in [most + 1, 3 << 30, 5 << 30, u64::MAX] {
            let error = check_mappable(len, most).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Impossible);
            let text = error.to_string();
            assert!(text.contains(&format!("{len} bytes")) && text.contains("built for 64 bits"), "{text}");
        }
    }

    #[cfg(all(target_pointer_width = "32", feature = "fs"))]
    #[test]
    fn a_sparse_file_of_more_than_32_bits_is_refused() {
        let file = tempfile::tempfile().unwrap();
        for len in [(1 << 31), (1 << 32) + 4096] {
            file.set_len(len).unwrap();
            assert!(Bytes::map(&file).unwrap_err().to_string().contains("built for 64 bits"), "{len}");
        }
    }
}
