//! Converts addresses to offsets in the mapped files.

use crate::address_space::{Hit, KERNEL, Mapping};

/// The mapped files of address spaces. Takes 8 bytes for each mapping.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles {
    /// For each mapping, offsets in the file minus addresses; wraps.
    shifts: Vec<u64>,
    code: Vec<bool>,
    /// For each DSO, the first process that mapped it.
    pids: Vec<Option<u32>>,
}

impl MappedFiles {
    /// Adds the next mapping and the number of its DSO, as returned by
    /// [`Changes::add`](crate::address_space::Changes::add). In a kernel, an address is its own offset.
    pub fn learn(&mut self, dso: u32, mapping: Option<&Mapping<'_>>, is_kernel: bool) {
        let shift = |mapping: &Mapping<'_>| mapping.pgoff.wrapping_sub(mapping.start);
        self.shifts.push(mapping.filter(|_| !is_kernel).map_or(0, shift));
        self.code.push(mapping.is_none_or(|mapping| mapping.is_code));
        if dso as usize == self.pids.len() {
            self.pids.push(mapping.map(|mapping| mapping.pid).filter(|&pid| pid != KERNEL));
        }
    }

    /// The offset in the file of an address in a mapping.
    pub fn offset(&self, hit: Hit, address: u64) -> u64 {
        address.wrapping_add(self.shifts.get(hit.mapping as usize).copied().unwrap_or(0))
    }

    /// True if the mapping may contain code.
    pub fn is_code(&self, hit: Hit) -> bool {
        self.code.get(hit.mapping as usize).is_none_or(|&is_code| is_code)
    }

    /// The first process that mapped a DSO; `None` for the kernel.
    pub fn process(&self, dso: usize) -> Option<u32> {
        self.pids.get(dso).copied().flatten()
    }
}
