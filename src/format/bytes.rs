//! Bytes that several owners share without copying: a slice of a mapped file or of a buffer.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::{Advice, Mmap};

use crate::{Error, Result};

enum Owner {
    Map(Mmap),
    Heap(Vec<u8>),
}

/// A cheap clone of a part of a mapped file or a buffer, which it keeps alive.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl Bytes {
    /// Maps a whole file, read-only. An empty file is empty bytes.
    ///
    /// # Errors
    ///
    /// The file can't be mapped or read.
    #[allow(unsafe_code, reason = "the memory map")]
    pub fn map(file: &File) -> Result<Bytes> {
        let io = |e| Error::io("the file can't be mapped", e);
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        // SAFETY: the map is private to this process and read-only, and no reference into it outlives it. What `mmap(2)` can't promise
        // is that nobody else truncates or rewrites the file meanwhile: the bytes may then change under us (all parsing is checked
        // against the slice it was given and holds no state that changing bytes could make unsound: records are plain integers and
        // bytes) or the process gets SIGBUS, which `reset_bus_signal` lets the program tell its user. Reading with read(2) instead was rejected: it
        // costs one more copy of everything and private memory for it.
        let map = unsafe { Mmap::map(file) }.map_err(io)?;
        // A hint only; where the kernel refuses it nothing is lost.
        let _ = map.advise(Advice::Sequential);
        let range = 0..map.len();
        Ok(Bytes { owner: Arc::new(Owner::Map(map)), range })
    }

    /// They lie in a file, so that holding them takes no memory the kernel can't have back.
    pub fn is_mapped(&self) -> bool {
        matches!(&*self.owner, Owner::Map(_))
    }

    /// Bytes of the whole mapped file that they lie in.
    pub(crate) fn mapped_len(&self) -> Option<u64> {
        match &*self.owner {
            Owner::Map(map) => Some(map.len() as u64),
            Owner::Heap(_) => None,
        }
    }

    /// A part of these bytes; clamped to what is there.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        let start = self.range.start + range.start.min(self.range.len());
        let end = self.range.start + range.end.min(self.range.len());
        Bytes { owner: self.owner.clone(), range: start..end.max(start) }
    }
}

/// From now on SIGBUS, which comes when somebody cuts a mapped file short, does what it does by default, and what is registered for it next is all that
/// happens. std has a handler of its own, which looks for the overflow of a stack and then takes itself and whatever is chained to it away, so that
/// the process dies without a word. On Linux the overflow of a stack is a SIGSEGV, for which that handler stays.
#[allow(unsafe_code, reason = "goes with the memory map")]
pub fn reset_bus_signal() {
    // SAFETY: signal(2) takes two numbers and no function of ours runs by it.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
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
