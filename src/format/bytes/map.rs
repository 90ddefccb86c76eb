//! Maps files into memory.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

pub(super) struct Map(Mmap);

impl Map {
    #[allow(unsafe_code, reason = "the memory map")]
    pub(super) fn of(file: &File) -> io::Result<Map> {
        // SAFETY: the map is private and read-only, and no reference into it outlives it. mmap(2) cannot stop
        // another process from truncating or rewriting the file. If that happens, either the bytes change,
        // which is sound because all parsing is checked against the slice and records are plain integers and
        // bytes; or the process gets SIGBUS, which `reset_bus_signal` lets the program report. read(2) was
        // rejected: it costs one more copy of everything, and private memory for it.
        let map = unsafe { Mmap::map(file) }?;
        #[cfg(unix)]
        #[expect(clippy::let_underscore_must_use, reason = "only a hint")]
        let _ = map.advise(memmap2::Advice::Sequential);
        Ok(Map(map))
    }
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Resets SIGBUS to its default action, so that only the next registered handler runs. SIGBUS arrives when
/// another process truncates a mapped file. std's handler checks for a stack overflow and then removes itself
/// and any chained handler, so the process would die without a message. On Linux a stack overflow raises
/// SIGSEGV, which std still handles. Systems other than Unix have no SIGBUS.
#[allow(unsafe_code, reason = "goes with the memory map")]
pub fn reset_bus_signal() {
    #[cfg(unix)]
    // SAFETY: signal(2) takes two integers, and SIG_DFL runs no code of this process.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL)
    };
}
