//! Finds the inlined calls at an address, with their source lines, in the table of a Go program without DWARF.
//!
//! A table by address is a list of pairs of LEB128 numbers: the zigzag-coded difference of the value, which begins
//! at -1, and the number of instructions that have it. A difference of 0 ends the list, unless it is the first.
//!
//! An inlined call has the number of its row in the function's data. A row has five 4-byte fields (parent, file,
//! line, name, instruction at the call), from Go 1.20 on four (kind, name, instruction, first line).
//!
//! Source: Go, src/runtime/symtab.go and src/runtime/symtabinl.go.

use std::path::Path;

use addr2line::gimli::{EndianSlice, LittleEndian, Reader as _};
use object::{Endianness, Object as _, ObjectSegment as _};

use crate::Call;
use crate::dwarf::{DwarfFiles, Meter};
use crate::gopclntab::{GoAddresses, Record, Table, number};
use crate::name::text_at;

/// The number of the table by address with rows of inlined calls, and that of the function's data with the rows.
const INLINED: (u64, u64) = (2, 3);

/// Maximum number of calls that are inlined into each other; a compiler inlines some ten.
const MOST_INLINED: usize = 256;

pub(crate) struct GoLines<'a> {
    table: Table<'a>,
    segments: Vec<(u64, &'a [u8])>,
    meter: &'a Meter,
}

impl<'a> GoLines<'a> {
    pub(crate) fn open(
        files: &'a DwarfFiles,
        path: &Path,
        addresses: GoAddresses,
        meter: &'a Meter,
    ) -> Option<GoLines<'a>> {
        let (file, data) = files.go_table(path, meter)?;
        let endian = if file.is_little_endian() { Endianness::Little } else { Endianness::Big };
        let table = Table::open(data, endian, addresses)?;
        let segments = file.segments().filter_map(|segment| Some((segment.address(), segment.data().ok()?)));
        Some(GoLines { table, segments: segments.collect(), meter })
    }

    pub(crate) fn at(&self, address: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        let Some(record) = self.table.find(address) else { return calls };
        let mut at = address;
        while calls.len() < MOST_INLINED {
            let inlined = self.inlined(&record, at);
            let name = inlined.map(|(name, _)| name).or_else(|| self.table.field(&record, Record::NAME));
            let Some(symbol) = name.and_then(|name| self.text(self.table.layout.names.checked_add(name)?))
            else {
                break;
            };
            let value = |field| self.value(self.table.field(&record, field)?, record.entry, at);
            let line =
                value(Record::LINES).and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0);
            let file = value(Record::FILES).and_then(|number| self.source(&record, number));
            calls.push(Call { symbol, file, line });
            let Some((_, instruction)) = inlined else { break };
            at = record.entry.wrapping_add(instruction);
        }
        calls
    }

    /// The offset of the name of the call inlined at an address, and of the instruction that would call it.
    fn inlined(&self, record: &Record, at: u64) -> Option<(u64, u64)> {
        let (rows, data) = INLINED;
        let rows = self.table.pc_data(record, rows).filter(|_| self.table.layout.has_units())?;
        let row = u64::try_from(self.value(rows, record.entry, at)?).ok()?;
        let data = self.table.function_data(record, data)?;
        let (size, name, instruction) =
            if self.table.layout.has_short_calls() { (16, 4, 8) } else { (20, 12, 16) };
        // Without data, the offset has all bits set.
        let data = match self.table.addresses.code {
            Some(_) if data == u64::from(u32::MAX) => return None,
            Some(_) => self.table.addresses.function_data?.checked_add(data)?,
            None => data,
        };
        let at = data.checked_add(row.checked_mul(size)?)?;
        let field = |field| {
            self.segments.iter().find_map(|(address, bytes)| {
                let at = at.checked_sub(*address)?.checked_add(field)?;
                number(bytes, self.table.endian, at, 4)
            })
        };
        Some((field(name)?, field(instruction)?))
    }

    /// The value in the table by address at this offset.
    fn value(&self, offset: u64, entry: u64, at: u64) -> Option<i64> {
        let offset = usize::try_from(self.table.layout.pcs.checked_add(offset)?).ok()?;
        let table = self.table.data.get(offset..)?;
        let mut pairs = EndianSlice::new(table, LittleEndian);
        let (mut value, mut address) = (-1_i64, entry);
        let mut difference = pairs.read_uleb128().ok()?;
        let found = loop {
            value = value.checked_add((difference >> 1) as i64 ^ -((difference & 1) as i64))?;
            let length = pairs.read_uleb128().ok()?.checked_mul(self.table.layout.instruction)?;
            address = address.checked_add(length)?;
            if at < address {
                break Some(value);
            }
            difference = match pairs.read_uleb128() {
                Ok(difference) if difference > 0 => difference,
                _ => break None,
            };
        };
        self.meter.count(1 + (table.len() - pairs.len()) / 64).ok()?;
        found
    }

    fn source(&self, record: &Record, number: i64) -> Option<String> {
        let unit = if self.table.layout.has_units() { self.table.field(record, Record::UNIT)? } else { 0 };
        let number = unit.checked_add(u64::try_from(number).ok()?)?;
        let offset = self.table.number(self.table.layout.units.checked_add(number.checked_mul(4)?)?, 4)?;
        (offset != u64::from(u32::MAX)).then(|| self.text(self.table.layout.files.checked_add(offset)?))?
    }

    fn text(&self, at: u64) -> Option<String> {
        let text = text_at(self.table.data, u32::try_from(at).ok()?);
        self.meter.count(1 + text.len() / 16).ok()?;
        Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0main.f\0main.g\0";
    const FILES: &[u8] = b"\0/src/f.go\0/src/g.go\0";
    const CODE: u64 = 0x1000;
    const DATA: u64 = 0x4000;

    /// The table by address of `(value, end)` pairs, in instructions from the start of the function.
    fn by_address(pairs: &[(i64, u8)]) -> Vec<u8> {
        let (mut last, mut from, mut table) = (-1, 0, Vec::new());
        for &(value, end) in pairs {
            let difference: i64 = value - last;
            table.extend([(difference << 1 ^ difference >> 63) as u8, end - from]);
            (last, from) = (value, end);
        }
        table.push(0);
        table
    }

    /// The table of a program with the function `main.f` from 0x1000 to 0x1020: it has lines 10 and 11 of f.go, and
    /// `main.g`, of g.go, line 5, is inlined from 8 to 16 bytes, at line 11.
    fn table(magic: u32, instruction: u8) -> Vec<u8> {
        let end = |bytes: u8| bytes / instruction;
        let pcs = [
            vec![0; 2],
            by_address(&[(0, end(8)), (1, end(16)), (0, end(32))]),
            by_address(&[(10, end(8)), (5, end(16)), (11, end(32))]),
            by_address(&[(-1, end(8)), (0, end(16)), (-1, end(32))]),
        ];
        let at = |number: usize| pcs[..number].iter().map(Vec::len).sum::<usize>() as u32;
        let wide = magic == 0xffff_fffa;
        let mut record = Vec::new();
        if wide {
            record.extend(CODE.to_le_bytes());
        } else {
            record.extend([0; 4]);
        }
        for field in [1, 0, 0, 0, at(1), at(2), 3, 0] {
            record.extend(u32::to_le_bytes(field));
        }
        if magic == 0xffff_fff1 {
            record.extend([0; 4]);
        }
        record.extend([0, 0, 0, 4]);
        record.extend([0, 0, at(3)].map(u32::to_le_bytes).concat());
        if wide {
            record.extend([0, 0, 0, DATA].map(u64::to_le_bytes).concat());
        } else {
            record.extend([u32::MAX, 0, 0, 0x10].map(u32::to_le_bytes).concat());
        }
        let list = if wide {
            [CODE, 24, CODE + 32].map(u64::to_le_bytes).concat()
        } else {
            [0_u32, 12, 32].map(u32::to_le_bytes).concat()
        };
        let units = [1_u32, 11].map(u32::to_le_bytes).concat();
        let parts = [NAMES.to_vec(), units, FILES.to_vec(), pcs.concat(), [list, record].concat()];
        let words = if wide { 7 } else { 8 };
        let mut offsets = Vec::new();
        let mut next = 8 + 8 * words;
        let mut body = Vec::new();
        for mut part in parts {
            part.resize(part.len().next_multiple_of(8), 0);
            offsets.push(next);
            next += part.len() as u64;
            body.extend(part);
        }
        let start = if wide { vec![] } else { vec![CODE] };
        let head = [vec![1, 2], start, offsets].concat();
        let words: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).collect();
        [&magic.to_le_bytes()[..], &[0, 0, instruction, 8], &words, &body].concat()
    }

    fn data(magic: u32) -> Vec<u8> {
        match magic {
            0xffff_fff1 => [[0_u32; 4], [0, 8, 20, 0]].concat(),
            0xffff_fff0 => [&[0_u32; 4][..], &[0, 0, 0, 8, 20]].concat(),
            _ => vec![0, 0, 0, 8, 20],
        }
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect()
    }

    fn calls(magic: u32, bytes: &[u8], data: &[u8], at: u64) -> Vec<String> {
        let meter = Meter::default();
        meter.begin();
        let has_start = magic != 0xffff_fffa;
        let addresses =
            GoAddresses { code: has_start.then_some(CODE), function_data: has_start.then_some(DATA) };
        let Some(table) = Table::open(bytes, Endianness::Little, addresses) else { return Vec::new() };
        let lines = GoLines { table, segments: vec![(DATA, data)], meter: &meter };
        let shown = |call: Call| {
            format!("{} {}:{}", call.symbol, call.file.unwrap_or_default(), call.line.unwrap_or(0))
        };
        lines.at(at).into_iter().map(shown).collect()
    }

    const MAGICS: [u32; 3] = [0xffff_fffa, 0xffff_fff0, 0xffff_fff1];

    #[test]
    fn inlined_calls_and_lines_of_a_stripped_go_program_are_in_its_table() {
        for (magic, instruction) in MAGICS.into_iter().flat_map(|magic| [(magic, 1), (magic, 4)]) {
            let bytes = table(magic, instruction);
            let at = |at| calls(magic, &bytes, &data(magic), at);
            assert_eq!(at(CODE - 1), [""; 0], "{magic:x}");
            assert_eq!(at(CODE), ["main.f /src/f.go:10"], "{magic:x}");
            assert_eq!(at(CODE + 7), ["main.f /src/f.go:10"], "{magic:x}");
            assert_eq!(at(CODE + 8), ["main.g /src/g.go:5", "main.f /src/f.go:11"], "{magic:x}");
            assert_eq!(at(CODE + 15), ["main.g /src/g.go:5", "main.f /src/f.go:11"], "{magic:x}");
            assert_eq!(at(CODE + 16), ["main.f /src/f.go:11"], "{magic:x}");
            assert_eq!(at(CODE + 32), [""; 0], "{magic:x}");
        }
    }

    #[test]
    fn before_go_1_16_a_table_has_lines_and_no_inlined_calls() {
        // Offsets in the whole table: 8 + 4 words; the offset of the files; names, record, pcs and files after.
        let words = [1, CODE, 64, CODE + 32].into_iter().flat_map(u64::to_le_bytes);
        let mut bytes = [&0xffff_fffb_u32.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        bytes.extend(words);
        bytes.extend([128_u32, 0, 0, 0, 0, 0].map(u32::to_le_bytes).concat());
        bytes.extend(CODE.to_le_bytes());
        bytes.extend([144_u32, 0, 0, 0, 164, 167, 0, 0].map(u32::to_le_bytes).concat());
        bytes.resize(128, 0);
        bytes.extend([2_u32, 151, 0, 0].map(u32::to_le_bytes).concat());
        bytes.extend(b"main.f\0/src/f.go");
        bytes.resize(164, 0);
        bytes.extend([by_address(&[(1, 32)]), by_address(&[(7, 8), (9, 32)])].concat());
        let at = |at| calls(0xffff_fffa, &bytes, &[], at);
        assert_eq!(at(CODE + 7), ["main.f /src/f.go:7"]);
        assert_eq!(at(CODE + 31), ["main.f /src/f.go:9"]);
        assert_eq!(at(CODE + 32), [""; 0]);
    }

    #[test]
    fn a_call_that_is_inlined_into_itself_ends() {
        let mut data = data(0xffff_fff1);
        data[24] = 8;
        assert_eq!(calls(0xffff_fff1, &table(0xffff_fff1, 1), &data, CODE + 8).len(), MOST_INLINED);
    }

    #[test]
    fn a_damaged_table_gives_what_it_still_has() {
        for magic in MAGICS {
            let whole = table(magic, 1);
            for at in 0..whole.len() {
                calls(magic, &whole[..at], &data(magic), CODE + 8);
                for byte in [0, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] = byte;
                    assert!(calls(magic, &bytes, &data(magic), CODE + 8).len() <= MOST_INLINED);
                }
            }
        }
    }
}
