//! Finds the functions of code by the symbols of its files.

use std::collections::HashMap;

use symbols::{ElfFile, Symbol, Symbols};

/// The function at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Where the part of the function that contains the address begins.
    pub start: u64,
    /// Shared by all its parts: the number of the DSO, and the offset of the first part in its file.
    pub id: (u32, u64),
}

#[derive(Debug)]
pub(crate) struct Functions {
    file: ElfFile,
    symbols: Symbols,
    /// For each cold part that a compiler moved elsewhere, the beginning of its function.
    homes: HashMap<u64, u64>,
}

impl Functions {
    pub(crate) fn new(mut file: ElfFile) -> Functions {
        let symbols = std::mem::take(&mut file.symbols);
        let starts: HashMap<&[u8], u64> =
            symbols.iter().map(|symbol| (&*symbol.name, symbol.start)).collect();
        let home = |symbol: &Symbol| Some((symbol.start, *starts.get(name_of_whole(&symbol.name)?)?));
        let homes = symbols.iter().filter_map(home).collect();
        Functions { file, symbols: Symbols::new(symbols), homes }
    }

    /// For an offset of the file, its distance from the start of its part, and where the function begins.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, u64)> {
        let address = self.file.address_of(offset)?;
        let start = self.symbols.find(address)?.start;
        Some((address - start, *self.homes.get(&start).unwrap_or(&start)))
    }
}

/// The name of the function that a part belongs to: GCC and LLVM append `.cold` and a number.
fn name_of_whole(name: &[u8]) -> Option<&[u8]> {
    const COLD: &[u8] = b".cold";
    let at = name.windows(COLD.len()).rposition(|part| part == COLD)?;
    let is_end = name[at + COLD.len()..].iter().all(|byte| *byte == b'.' || byte.is_ascii_digit());
    is_end.then(|| &name[..at])
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
