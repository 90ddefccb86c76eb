//! Reads the functions of a Go program from the table that its runtime needs (`.gopclntab`), which strip(1) and
//! `go build -ldflags -s` leave in place.
//!
//! The table begins with a u32 that depends on the version, two zeros, the size of an instruction and that of a
//! pointer; then follow numbers of the size of a pointer:
//!
//! | Go | magic | numbers | functions |
//! |---|---|---|---|
//! | 1.2 | 0xfffffffb | count | follow: pointer, and the offset of a record in the table |
//! | 1.16 | 0xfffffffa | count, files, offsets: names, units, files, lines, functions | pointer, and the offset of a record from the functions on |
//! | 1.18, 1.20 | 0xfffffff0, 0xfffffff1 | count, files, start of the code, then as before | the same, but u32 from the start of the code |
//!
//! A record begins with the address as in the list, and has the u32 offset of the name after it. The address after
//! the last function ends the list. From 1.26 on, the start of the code is 0; it is in the runtime's module data.
//!
//! Source: Go, src/runtime/symtab.go and src/debug/gosym/pclntab.go.

use object::{Endian as _, Endianness};

use crate::Symbol;
use crate::name::Names;

/// The sections that may hold the table; the second one in a position-independent program.
pub(crate) const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// The section with the runtime's module data, and the number of the word with the start of the code.
pub(crate) const MODULE: &[u8] = b".go.module";
pub(crate) const MODULE_TEXT: u64 = 22;

/// A table.
pub(crate) struct Table<'t> {
    pub(crate) data: &'t [u8],
    pub(crate) endian: Endianness,
    /// The address that the dynamic linker stores at an offset of the table, if it does.
    pub(crate) relocated: &'t dyn Fn(u64) -> Option<u64>,
    /// The start of the code, if the table lacks it.
    pub(crate) text: Option<u64>,
}

/// The positions in a table.
struct Layout {
    count: u64,
    names: u64,
    functions: u64,
    /// The offset that those of records are relative to.
    records: u64,
    /// The address that those of functions are relative to, if they are u32.
    start: Option<u64>,
}

impl Table<'_> {
    /// The functions; `None` if it is not a table of a known version.
    pub(crate) fn functions(&self) -> Option<Vec<Symbol>> {
        let pointer = *self.data.get(7).filter(|size| matches!(size, 4 | 8))?;
        let Layout { count, names, functions, records, start } = self.layout(pointer)?;
        let width = if start.is_some() { 4 } else { pointer };
        let mut names = Names::new(self.data.get(usize::try_from(names).ok()?..)?);
        let address = |at: u64| match start {
            Some(start) => start.checked_add(self.number(at, 4)?),
            None => (self.relocated)(at).or_else(|| self.number(at, width)),
        };
        let mut list = Vec::new();
        // The table may end before the count.
        for number in 0..count {
            let at = functions.checked_add(number.checked_mul(2 * u64::from(width))?)?;
            let next = at.checked_add(2 * u64::from(width))?;
            let (Some(from), Some(to)) = (address(at), address(next)) else { break };
            let Some(record) = self.number(at + u64::from(width), width) else { break };
            let name =
                records.checked_add(record).and_then(|at| self.number(at.checked_add(width.into())?, 4));
            let place = names.range(name.unwrap_or(0) as u32);
            let Some(name) = names.name(place).filter(|name| !name.is_empty()) else { continue };
            list.push(Symbol {
                start: from,
                end: to.max(from),
                limit: to.max(from),
                weak: false,
                global: true,
                name,
            });
        }
        Some(list)
    }

    fn layout(&self, pointer: u8) -> Option<Layout> {
        let at = |number: u64| 8 + number * u64::from(pointer);
        let word = |number: u64| self.number(at(number), pointer);
        let count = word(0)?;
        Some(match self.number(0, 4)? {
            0xffff_fffb => Layout { count, names: 0, functions: at(1), records: 0, start: None },
            0xffff_fffa => {
                Layout { count, names: word(2)?, functions: word(6)?, records: word(6)?, start: None }
            }
            0xffff_fff0 | 0xffff_fff1 => {
                let start = (self.relocated)(at(2)).or_else(|| word(2)).filter(|&start| start != 0);
                let start = Some(start.or(self.text)?);
                Layout { count, names: word(3)?, functions: word(7)?, records: word(7)?, start }
            }
            _ => return None,
        })
    }

    /// A number of 4 or 8 bytes of the table.
    fn number(&self, at: u64, size: u8) -> Option<u64> {
        number(self.data, self.endian, at, size)
    }
}

/// A number of 4 or 8 bytes.
pub(crate) fn number(data: &[u8], endian: Endianness, at: u64, size: u8) -> Option<u64> {
    let bytes = data.get(usize::try_from(at).ok()?..)?;
    match size {
        4 => Some(endian.read_u32(*bytes.first_chunk()?).into()),
        _ => Some(endian.read_u64(*bytes.first_chunk()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElfFile;
    use crate::made::elf;

    const LE: Endianness = Endianness::Little;

    /// A table of 8-byte words with the functions `main.f` at 0x1000 and `main.(*T).g` from 0x1010 to 0x1030.
    fn table(magic: u32) -> Vec<u8> {
        let mut data = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let names = b"\0main.f\0main.(*T).g\0\0\0\0\0";
        match magic & 0xff {
            0xfb => {
                // The list, the names at 64, and records at 88.
                data.extend(words(&[2, 0x1000, 88, 0x1010, 104, 0x1030, 0]));
                data.extend(names);
                for (address, name) in [(0x1000, 65_u32), (0x1010, 72)] {
                    data.extend(words(&[address]));
                    data.extend(name.to_le_bytes());
                    data.extend([0; 4]);
                }
            }
            0xfa => {
                data.extend(words(&[2, 0, 64, 0, 0, 0, 88]));
                data.extend(names);
                data.extend(words(&[0x1000, 40, 0x1010, 56, 0x1030]));
                for (address, name) in [(0x1000, 1_u32), (0x1010, 8)] {
                    data.extend(words(&[address]));
                    data.extend(name.to_le_bytes());
                    data.extend([0; 4]);
                }
            }
            _ => {
                data.extend(words(&[2, 0, 0x1000, 72, 0, 0, 0, 96]));
                data.extend(names);
                data.extend([0, 20, 0x10, 28, 0x30, 0, 1, 0x10, 8].map(u32::to_le_bytes).concat());
            }
        }
        data
    }

    fn read(data: &[u8], text: Option<u64>) -> Option<Vec<String>> {
        let functions = Table { data, endian: LE, relocated: &|_| None, text }.functions()?;
        let shown = |symbol: &Symbol| format!("{:x}-{:x} {}", symbol.start, symbol.end, symbol.shown());
        Some(functions.iter().map(shown).collect())
    }

    #[test]
    fn the_functions_of_every_version_of_go_are_read() {
        let expected = ["1000-1010 main.f", "1010-1030 main.(*T).g"];
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
            assert_eq!(read(&table(magic), None).unwrap(), expected, "{magic:x}");
        }
        assert_eq!(read(&table(0xffff_fff2), None), None);
        // From 1.26 on, the start of the code is elsewhere.
        let mut data = table(0xffff_fff1);
        data[24..32].fill(0);
        assert_eq!(read(&data, None), None);
        assert_eq!(read(&data, Some(0x1000)).unwrap(), expected);
    }

    /// Regression: a stripped program of Go had the names of no function.
    #[test]
    fn a_stripped_program_of_go_has_the_functions_that_its_runtime_knows() {
        for section in [".gopclntab", ".data.rel.ro.gopclntab"] {
            let mut program = elf(&[(section, table(0xffff_fff1))]);
            // The second section, the table of symbols, becomes that of the dynamic linker (SHT_DYNSYM).
            let sections = u64::from_le_bytes(*program[40..].first_chunk().unwrap()) as usize;
            program[sections + 2 * 64 + 4] = 11;
            let mut file = ElfFile::from_bytes(&program).unwrap();
            let functions = file.take_mini_symbols();
            let names: Vec<_> = functions.iter().map(|symbol| symbol.shown()).collect();
            assert_eq!(names, ["main.f", "main.(*T).g"], "{section}");
        }
    }

    #[test]
    fn a_damaged_table_has_the_functions_up_to_its_damage() {
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff1] {
            let whole = table(magic);
            for at in 0..whole.len() {
                assert!(read(&whole[..at], None).unwrap_or_default().len() <= 2);
                let mut data = whole.clone();
                data[at] = 0xff;
                read(&data, None);
            }
        }
    }
}
