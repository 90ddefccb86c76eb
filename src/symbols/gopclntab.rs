//! Reads the table of functions that the runtime of a Go program needs (`.gopclntab`), which strip(1) and
//! `go build -ldflags -s` leave in place.
//!
//! The table begins with a u32 that depends on the version, two zeros, the size of an instruction and that of a
//! pointer; then follow numbers of the size of a pointer:
//!
//! | Go | magic | numbers | functions |
//! |---|---|---|---|
//! | 1.2 | 0xfffffffb | count | follow: pointer, and the offset of a record in the table |
//! | 1.16 | 0xfffffffa | count, files, offsets: names, units, files, pcs, functions | pointer, and the offset of a record from the functions on |
//! | 1.18, 1.20 | 0xfffffff0, 0xfffffff1 | count, files, start of the code, then as before | the same, but u32 from the start of the code |
//!
//! The address after the last function ends the list. A record begins with the address as in the list; then follow
//! u32s, `name` first (see [`Record`]). From 1.26 on, the start of the code is 0; it is in the runtime's module data,
//! words of the size of a pointer:
//!
//! | word | contents |
//! |---|---|
//! | 0, 1 | the address of the table, and that of its names |
//! | 22 | the start of the code |
//! | 38, from 1.20 on 40, from 1.27 on 43 | the start of the data of functions |
//! | 37, 39 | up to 1.26 the starts of types and of read-only data, which are not after; from 1.27 on start and end of types |
//!
//! They have a section of their own from 1.26 on, and begin somewhere in `.noptrdata` before.
//!
//! Source: Go, src/runtime/symtab.go, src/runtime/runtime2.go and src/debug/gosym/pclntab.go.

use std::collections::HashMap;
use std::ops::Range;

use object::{Endian as _, Endianness};

use crate::Symbol;
use crate::name::Names;

/// The sections that may hold the table; the second one in a position-independent program.
pub(crate) const TABLES: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

pub(crate) const MODULES: [&[u8]; 2] = [b".go.module", b".noptrdata"];

mod word {
    pub(super) const NAMES: u64 = 1;
    pub(super) const TEXT: u64 = 22;
    pub(super) const TYPES: u64 = 37;
    pub(super) const RODATA: u64 = 39;
    pub(super) const FUNCTION_DATA: [u64; 3] = [38, 40, 43];
}

/// The addresses that a table refers to, from Go 1.18 on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GoAddresses {
    pub(crate) code: Option<u64>,
    pub(crate) function_data: Option<u64>,
}

#[derive(Clone, Copy)]
pub(crate) struct Placed<'t> {
    pub(crate) address: u64,
    pub(crate) data: &'t [u8],
}

impl Placed<'_> {
    pub(crate) fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.data.len() as u64)
    }
}

/// A program, as far as its table needs it.
pub(crate) struct Program<'t> {
    pub(crate) endian: Endianness,
    pub(crate) table: Placed<'t>,
    pub(crate) module: Option<Placed<'t>>,
    /// The numbers that the dynamic linker stores in both sections, by address.
    pub(crate) relocated: HashMap<u64, u64>,
    /// The start of the code, if the table and the module data lack it.
    pub(crate) text: Option<u64>,
}

impl Program<'_> {
    /// The addresses that the table refers to, and its functions; `None` if it is not a table of a known version.
    pub(crate) fn read(&self) -> Option<(GoAddresses, Vec<Symbol>)> {
        let mut table = Table::open(self.table.data, self.endian, GoAddresses::default())?;
        let layout = &table.layout;
        if let Some(start) = layout.start {
            let start = self.word(self.table, start).filter(|&start| start != 0);
            let module = self.module(layout.names);
            let in_module = |number| self.word(self.module?, module?.checked_add(number * layout.pointer)?);
            let code = start.or_else(|| in_module(word::TEXT).filter(|&text| text != 0)).or(self.text);
            let [old, middle, new] = word::FUNCTION_DATA;
            let number = match layout.magic {
                MAGIC_1_18 => old,
                _ if in_module(word::RODATA) > in_module(word::TYPES) => new,
                _ => middle,
            };
            table.addresses = GoAddresses { code: Some(code?), function_data: in_module(number) };
        }
        let pointer = |at| self.word(self.table, at);
        Some((table.addresses, table.functions(&pointer)?))
    }

    fn module(&self, names: u64) -> Option<u64> {
        let module = self.module?;
        let size = self.pointer()?;
        let names = self.table.address.checked_add(names)?;
        (0..module.data.len() as u64).step_by(size as usize).find(|at| {
            self.word(module, *at) == Some(self.table.address)
                && self.word(module, at + word::NAMES * size) == Some(names)
        })
    }

    fn pointer(&self) -> Option<u64> {
        Some((*self.table.data.get(7)?).into())
    }

    /// The number of the size of a pointer at an offset of a section.
    fn word(&self, section: Placed<'_>, at: u64) -> Option<u64> {
        let stored = self.relocated.get(&section.address.checked_add(at)?).copied();
        stored.or_else(|| number(section.data, self.endian, at, self.pointer()?))
    }
}

pub(crate) struct Table<'t> {
    pub(crate) data: &'t [u8],
    pub(crate) endian: Endianness,
    pub(crate) layout: Layout,
    pub(crate) addresses: GoAddresses,
}

pub(crate) struct Layout {
    magic: u64,
    pub(crate) instruction: u64,
    pub(crate) pointer: u64,
    count: u64,
    pub(crate) names: u64,
    /// The offsets of the names of files, by unit and number; up to Go 1.15 without units.
    pub(crate) units: u64,
    pub(crate) files: u64,
    /// Of the tables by address.
    pub(crate) pcs: u64,
    functions: u64,
    /// Those of records are relative to it.
    records: u64,
    /// The offset of the address that those of functions are relative to, if they are u32.
    start: Option<u64>,
}

/// A record: u32s, whose numbers are the constants, then the offsets of tables by address ([`Table::pc_data`]), then
/// those of the function's data ([`Table::function_data`]). Up to Go 1.15, it has no `UNIT` and no data.
pub(crate) struct Record {
    pub(crate) entry: u64,
    /// Of `NAME` in the table.
    at: u64,
    /// The number of u32s up to the list of data by address.
    fields: u64,
    /// The size of an element of the list of the function's data, bytes.
    width: u64,
}

impl Record {
    pub(crate) const NAME: u64 = 0;
    /// Offsets in the tables by address: the number of the file, and the line.
    pub(crate) const FILES: u64 = 4;
    pub(crate) const LINES: u64 = 5;
    const PC_DATA: u64 = 6;
    pub(crate) const UNIT: u64 = 7;
}

const MAGIC_1_2: u64 = 0xffff_fffb;
const MAGIC_1_16: u64 = 0xffff_fffa;
const MAGIC_1_18: u64 = 0xffff_fff0;
const MAGIC_1_20: u64 = 0xffff_fff1;

impl<'t> Table<'t> {
    /// `None` if it is not a table of a known version.
    pub(crate) fn open(data: &'t [u8], endian: Endianness, addresses: GoAddresses) -> Option<Table<'t>> {
        Some(Table { data, endian, layout: Layout::of(data, endian)?, addresses })
    }

    /// The functions. `stored` is the number at an offset of the table, which the dynamic linker may have changed.
    fn functions(&self, stored: &dyn Fn(u64) -> Option<u64>) -> Option<Vec<Symbol>> {
        let mut names = Names::new(self.data.get(usize::try_from(self.layout.names).ok()?..)?);
        let mut list = Vec::new();
        // The table may end before the count.
        for number in 0..self.layout.count {
            let [from, to] = [number, number + 1].map(|number| self.address(number, stored));
            let (Some(from), Some(to)) = (from, to) else { break };
            let Some(record) = self.record(number, from) else { break };
            let name = self.field(&record, Record::NAME).unwrap_or(0);
            let place = names.range(name as u32);
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

    fn address(&self, number: u64, stored: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        let at = self.layout.functions.checked_add(number.checked_mul(2 * self.layout.width())?)?;
        match self.addresses.code {
            Some(code) => code.checked_add(self.number(at, 4)?),
            None => stored(at),
        }
    }

    fn record(&self, number: u64, entry: u64) -> Option<Record> {
        let (layout, width) = (&self.layout, self.layout.width());
        let at = layout.functions.checked_add(number.checked_mul(2)?.checked_add(1)?.checked_mul(width)?)?;
        let at = layout.records.checked_add(self.number(at, width)?)?.checked_add(width)?;
        let fields = match layout.magic {
            MAGIC_1_2 => 8,
            MAGIC_1_20 => 10,
            _ => 9,
        };
        Some(Record { entry, at, fields, width })
    }

    /// The record of the function at an address of a program that the dynamic linker did not change.
    pub(crate) fn find(&self, address: u64) -> Option<Record> {
        let stored = |at| self.number(at, self.layout.pointer);
        let start = |number| self.address(number, &stored);
        let (mut from, mut to) = (0, self.layout.count);
        while from < to {
            let middle = from.midpoint(to);
            match start(middle).is_some_and(|start| start <= address) {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        let number = from.checked_sub(1)?;
        let entry = start(number)?;
        (entry..start(number + 1)?).contains(&address).then(|| self.record(number, entry))?
    }

    pub(crate) fn field(&self, record: &Record, number: u64) -> Option<u64> {
        self.number(record.at.checked_add(number * 4)?, 4)
    }

    /// The offset of a table by address in the list of those.
    pub(crate) fn pc_data(&self, record: &Record, number: u64) -> Option<u64> {
        let count = self.field(record, Record::PC_DATA)?;
        (number < count).then(|| self.field(record, record.fields + number))?
    }

    /// The address or offset of data of the function, up to Go 1.17 the address, and absent up to 1.15.
    pub(crate) fn function_data(&self, record: &Record, number: u64) -> Option<u64> {
        let counts = record.at.checked_add((record.fields - 1) * 4)?;
        let count = *self.data.get(usize::try_from(counts.checked_add(3)?).ok()?)?;
        let after = self.field(record, Record::PC_DATA)?.checked_add(record.fields)?.checked_mul(4)?;
        let list = record.at.checked_add(after)?.checked_next_multiple_of(record.width)?;
        (number < count.into())
            .then(|| self.number(list.checked_add(number * record.width)?, record.width))?
    }

    /// A number of 4 or 8 bytes of the table.
    pub(crate) fn number(&self, at: u64, size: u64) -> Option<u64> {
        number(self.data, self.endian, at, size)
    }
}

impl Layout {
    fn of(data: &[u8], endian: Endianness) -> Option<Layout> {
        let pointer = u64::from(*data.get(7).filter(|size| matches!(size, 4 | 8))?);
        let at = |number: u64| 8 + number * pointer;
        let word = |number: u64| self::number(data, endian, at(number), pointer);
        let (magic, count) = (self::number(data, endian, 0, 4)?, word(0)?);
        let offsets = |first: u64| {
            Some([word(first)?, word(first + 1)?, word(first + 2)?, word(first + 3)?, word(first + 4)?])
        };
        let (start, [names, units, files, pcs, functions]) = match magic {
            MAGIC_1_2 => {
                let after = count.checked_mul(2)?.checked_add(2)?.checked_mul(pointer)?.checked_add(8)?;
                (None, [0, self::number(data, endian, after, 4).unwrap_or(0), 0, 0, at(1)])
            }
            MAGIC_1_16 => (None, offsets(2)?),
            MAGIC_1_18 | MAGIC_1_20 => (Some(at(2)), offsets(3)?),
            _ => return None,
        };
        let records = if magic == MAGIC_1_2 { 0 } else { functions };
        let instruction = (*data.get(6)?).into();
        Some(Layout {
            magic,
            instruction,
            pointer,
            count,
            names,
            units,
            files,
            pcs,
            functions,
            records,
            start,
        })
    }

    fn width(&self) -> u64 {
        if self.start.is_some() { 4 } else { self.pointer }
    }

    /// True if units have files of their own, and functions have data with inlined calls.
    pub(crate) fn has_units(&self) -> bool {
        self.magic != MAGIC_1_2
    }

    /// True from Go 1.20 on: the calls in the data of a function are short.
    pub(crate) fn has_short_calls(&self) -> bool {
        self.magic == MAGIC_1_20
    }
}

pub(crate) fn number(data: &[u8], endian: Endianness, at: u64, size: u64) -> Option<u64> {
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
        let table = Placed { address: 0x8000, data };
        let program = Program { endian: LE, table, module: None, relocated: HashMap::new(), text };
        let (_, functions) = program.read()?;
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

    #[test]
    fn the_data_of_functions_begin_where_the_module_data_of_each_version_say() {
        // Up to 1.26, read-only data begin with types; in 1.27, the types end there.
        for (magic, rodata, expected) in
            [(MAGIC_1_18, 0, 38), (MAGIC_1_20, 0x3000, 40), (MAGIC_1_20, 0x4000, 43)]
        {
            let (table, mut words) = (table(magic as u32), [0_u64; 50]);
            // The module data begin after three other words.
            for (number, value) in [(0, 0x8000), (1, 0x8048), (22, 0x1000), (37, 0x3000), (39, rodata)] {
                words[3 + number] = value;
            }
            for number in [38, 40, 43] {
                words[3 + number] = number as u64;
            }
            let data = words.map(u64::to_le_bytes).concat();
            let (table, module) =
                (Placed { address: 0x8000, data: &table }, Placed { address: 0x9000, data: &data });
            let program =
                Program { endian: LE, table, module: Some(module), relocated: HashMap::new(), text: None };
            let (addresses, _) = program.read().unwrap();
            assert_eq!(addresses.function_data, Some(expected), "{magic:x}");
            // In a position-independent program, they are in relocations.
            let stored: HashMap<u64, u64> = (0x9000..).step_by(8).zip(words).collect();
            let empty = vec![0; data.len()];
            let module = Some(Placed { data: &empty, ..module });
            let program = Program { module, relocated: stored, ..program };
            assert_eq!(program.read().unwrap().0, addresses, "{magic:x}");
        }
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
