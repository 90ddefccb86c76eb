//! The functions that user code belongs to, by the symbols of its files.

use std::collections::HashMap;

use perfx_format::record::cpumode::KERNEL_START;
use perfx_trace::Space;
use symbols::{ElfFile, Symbol, Symbols};

use crate::image::Code;

/// The function at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Where the part of it begins that has the address.
    pub start: u64,
    /// What all its parts have in common: the number of the DSO, and where the first part begins in its file.
    pub id: (u32, u64),
}

/// The functions of a file.
#[derive(Debug)]
pub(crate) struct Functions {
    file: ElfFile,
    symbols: Symbols,
    /// The beginning of the function of each part that a compiler moved elsewhere, as it seldom runs.
    homes: HashMap<u64, u64>,
}

impl Functions {
    fn new(mut file: ElfFile) -> Functions {
        let symbols = std::mem::take(&mut file.symbols);
        let starts: HashMap<&[u8], u64> =
            symbols.iter().map(|symbol| (&*symbol.name, symbol.start)).collect();
        let home = |symbol: &Symbol| Some((symbol.start, *starts.get(name_of_whole(&symbol.name)?)?));
        let homes = symbols.iter().filter_map(home).collect();
        Functions { file, symbols: Symbols::new(symbols), homes }
    }
}

/// The name of the function of which this is a part: GCC and LLVM add `.cold` and a number.
fn name_of_whole(name: &[u8]) -> Option<&[u8]> {
    const COLD: &[u8] = b".cold";
    let at = name.windows(COLD.len()).rposition(|part| part == COLD)?;
    let is_end = name[at + COLD.len()..].iter().all(|byte| *byte == b'.' || byte.is_ascii_digit());
    is_end.then(|| &name[..at])
}

impl Code {
    /// The function at an address of user code; `None` if its file has no symbol there.
    pub fn function(&self, space: Option<Space>, ip: u64, ticks: u64) -> Option<Function> {
        let hit = self.hit(space, ip, ticks).0.filter(|_| ip < KERNEL_START)?;
        let functions = self.functions.get(hit.dso as usize)?.get_or_init(|| {
            let path = self.file(hit.dso)?.path.as_ref()?;
            Some(Functions::new(ElfFile::read(path).ok()?))
        });
        let Functions { file, symbols, homes } = functions.as_ref()?;
        let shift = self.mappings.places.get(hit.mapping as usize)?.shift;
        let address = file.address_of(ip.wrapping_add(shift))?;
        let start = symbols.find(address)?.start;
        let id = (hit.dso, *homes.get(&start).unwrap_or(&start));
        Some(Function { start: ip - (address - start), id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_moved_has_the_name_of_its_function() {
        assert_eq!(name_of_whole(b"_Z4deepii.cold"), Some(&b"_Z4deepii"[..]));
        assert_eq!(name_of_whole(b"f.cold.12"), Some(&b"f"[..]));
        assert_eq!(name_of_whole(b"f.coldest"), None);
        assert_eq!(name_of_whole(b"f"), None);
    }
}
