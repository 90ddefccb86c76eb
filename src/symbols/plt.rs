//! Names the stubs through which a program calls the functions of libraries, as perf does: `NAME@plt`.

use std::collections::HashMap;

use object::elf::{
    EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_S390, EM_X86_64, Machine, R_386_IRELATIVE, R_390_IRELATIVE,
    R_AARCH64_IRELATIVE, R_RISCV_IRELATIVE, R_X86_64_IRELATIVE, RelocationType, SHF_ALLOC, SHT_NOBITS,
    SHT_REL, SHT_RELA,
};
use object::read::elf::{FileHeader, Rel, Rela, SectionHeader, Sym};
use object::{Endian as _, Endianness, ReadRef};

use crate::name::{Name, Names};
use crate::{Symbol, Symbols};

/// A stub of a procedure linkage table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    start: u64,
    end: u64,
    target: StubTarget,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum StubTarget {
    /// The dynamic linker: the first stub of a table.
    Linker,
    Function(Name),
    /// The function that the code at this address chooses when the program starts (STT_GNU_IFUNC).
    Chosen(u64),
}

/// Maximum mean length of the stubs' names, bytes; those of C++ libraries have a tenth of it.
const MOST_NAMED: usize = 1 << 10;

impl Stub {
    /// The stub as a symbol; `symbols` are those of the file.
    pub(crate) fn named(self, symbols: &Symbols) -> Symbol {
        let name = match &self.target {
            StubTarget::Linker => b".plt".to_vec(),
            StubTarget::Function(name) => [&**name, b"@plt"].concat(),
            StubTarget::Chosen(by) => match symbols.find(*by).filter(|symbol| symbol.start == *by) {
                Some(symbol) => [&*symbol.name, b"@plt"].concat(),
                None => format!("*ABS*+{by:#x}@plt").into_bytes(),
            },
        };
        let Stub { start, end, .. } = self;
        Symbol { start, end, limit: end, weak: false, global: true, name: name.into() }
    }
}

pub(crate) struct Tables<'data, 'n, Elf: FileHeader<Endian = Endianness>, R> {
    pub(crate) sections: &'data [Elf::SectionHeader],
    pub(crate) name_of: &'n dyn Fn(&Elf::SectionHeader) -> &'data [u8],
    pub(crate) machine: Machine,
    pub(crate) endian: Endianness,
    pub(crate) data: R,
}

/// A slot of the global offset table with the symbol stored there or, if 0, the code that chooses one.
struct Slot {
    at: u64,
    symbol: u32,
    chooser: u64,
}

struct Plt<'data> {
    at: u64,
    entry: usize,
    code: &'data [u8],
}

impl<'data, Elf, R> Tables<'data, '_, Elf, R>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    /// All stubs. If the code of a stub shows its slot, that determines the relocation, because those of
    /// functions chosen at the start are in any order.
    pub(crate) fn stubs(&self) -> Vec<Stub> {
        let mut stubs = match self.machine {
            EM_X86_64 | EM_386 | EM_AARCH64 => self.by_slot(),
            EM_S390 => self.by_order(32, 32),
            EM_RISCV => self.by_order(32, 16),
            EM_ARM => self.of_arm(),
            _ => Vec::new(),
        };
        // Each stub will have a copy of the name, and many can have the same long one.
        let mut left = stubs.len() * MOST_NAMED;
        stubs.retain(|stub| match &stub.target {
            StubTarget::Function(name) => left.checked_sub(name.len()).map(|rest| left = rest).is_some(),
            StubTarget::Linker | StubTarget::Chosen(_) => true,
        });
        stubs
    }

    fn by_slot(&self) -> Vec<Stub> {
        let tables: Vec<Plt<'data>> = [&b".plt"[..], b".plt.sec", b".plt.got"]
            .into_iter()
            .filter_map(|name| self.table(name, if name == b".plt.got" { 8 } else { 16 }))
            .collect();
        if tables.is_empty() {
            return Vec::new();
        }
        let slots = self.targets();
        let mut stubs = Vec::new();
        for table in &tables {
            let mut header = self.header(table);
            stubs.extend(header.clone());
            for (entry, number) in table.code.chunks_exact(table.entry).zip(0_u64..) {
                let start = table.at.wrapping_add(number * table.entry as u64);
                let Some(target) = self.slot_of(entry, start).and_then(|slot| slots.get(&slot)) else {
                    continue;
                };
                header = None;
                stubs.push(Stub {
                    start,
                    end: start.saturating_add(table.entry as u64),
                    target: target.clone(),
                });
            }
            // If calls go to `.plt.sec`, all of `.plt` leads to the dynamic linker.
            if header.is_some()
                && let Some(linker) = stubs.last_mut()
            {
                linker.end = table.at.saturating_add(table.code.len() as u64);
            }
        }
        stubs
    }

    fn targets(&self) -> HashMap<u64, StubTarget> {
        let names = [&b".rela.plt"[..], b".rela.dyn", b".rel.plt", b".rel.dyn"];
        let slots = names.into_iter().flat_map(|name| self.slots(name));
        slots.filter_map(|(at, target)| Some((at, target?))).collect()
    }

    /// The stubs of 32-bit Arm. Those called from Thumb code have 4 bytes more at the start; perf assumes 12
    /// bytes for each and misnames the stubs after them.
    fn of_arm(&self) -> Vec<Stub> {
        let Some(table) = self.table(b".plt", 12) else { return Vec::new() };
        let slots = self.targets();
        let at = |place: usize| table.at.wrapping_add(place as u64);
        let mut stubs = vec![Stub { start: at(0), end: at(20), target: StubTarget::Linker }];
        for place in (20..table.code.len()).step_by(4) {
            let Some(slot) = slot_of_arm(&table.code[place..], at(place)) else { continue };
            let Some(target) = slots.get(&slot).cloned() else { continue };
            // bx pc, and padding to a word.
            let is_thumb = matches!(table.code[..place], [.., 0x78, 0x47, _, _]);
            let start = if is_thumb { place - 4 } else { place };
            stubs.push(Stub { start: at(start), end: at(place + 12), target });
        }
        stubs
    }

    fn by_order(&self, header: usize, entry: usize) -> Vec<Stub> {
        let Some(table) = self.table(b".plt", entry) else { return Vec::new() };
        let Some(entries) = table.code.get(header..) else { return Vec::new() };
        let stub =
            |start: u64, size: usize, target| Stub { start, end: start.saturating_add(size as u64), target };
        let slots = [&b".rela.plt"[..], b".rel.plt"].into_iter().flat_map(|name| self.slots(name));
        let named =
            slots.zip(entries.chunks_exact(entry)).zip(0_u64..).filter_map(|(((_, target), _), number)| {
                let start = table.at.wrapping_add(header as u64 + number * entry as u64);
                Some(stub(start, entry, target?))
            });
        std::iter::once(stub(table.at, header, StubTarget::Linker)).chain(named).collect()
    }

    /// A table of stubs with entries of this size, unless its section gives 8, 16 or 24. The section of a
    /// static x86 program gives 0; stubs that are only jumps have 8 bytes.
    fn table(&self, name: &[u8], entry: usize) -> Option<Plt<'data>> {
        let (endian, section) = (self.endian, self.section(name)?);
        let code = section.data(endian, self.data).ok().filter(|_| section.sh_type(endian) != SHT_NOBITS)?;
        let stated: u64 = section.sh_entsize(endian).into();
        let entry = match (self.machine, stated) {
            (EM_X86_64 | EM_386, 8) => 8,
            (EM_X86_64 | EM_386, 16) => 16,
            (EM_X86_64 | EM_386, _) if matches!(code, [0xff, 0x25, _, _, _, _, 0x66, 0x90, ..]) => 8,
            (EM_AARCH64, 24) => 24,
            (EM_AARCH64, _) => 16,
            _ => entry,
        };
        Some(Plt { at: section.sh_addr(endian).into(), entry, code })
    }

    fn section(&self, name: &[u8]) -> Option<&'data Elf::SectionHeader> {
        self.sections.iter().find(|section| (self.name_of)(section) == name)
    }

    fn slots(&self, name: &[u8]) -> Vec<(u64, Option<StubTarget>)> {
        let endian = self.endian;
        let Some(section) = self.section(name) else { return Vec::new() };
        let Some(names) = self.sections.get(section.sh_link(endian) as usize) else { return Vec::new() };
        let slots: Vec<Slot> = match section.sh_type(endian) {
            SHT_RELA => self
                .rows::<Elf::Rela>(section)
                .iter()
                .map(|row| Slot {
                    at: row.r_offset(endian).into(),
                    symbol: row.r_sym(endian, false),
                    chooser: self.chooser(row.r_type(endian, false), || row.r_addend(endian).into() as u64),
                })
                .collect(),
            SHT_REL => self
                .rows::<Elf::Rel>(section)
                .iter()
                .map(|row| {
                    let at = row.r_offset(endian).into();
                    // Such a relocation has its addend in the slot.
                    let chooser = self.chooser(row.r_type(endian), || self.word_at(at));
                    Slot { at, symbol: row.r_sym(endian), chooser }
                })
                .collect(),
            _ => Vec::new(),
        };
        // Each reading of a section counts towards the limit of bytes to read from the file.
        let symbols = self.rows::<Elf::Sym>(names);
        let strings = self.sections.get(names.sh_link(endian) as usize);
        let strings = strings.and_then(|strings| strings.data(endian, self.data).ok()).unwrap_or_default();
        let (mut strings, mut known) = (Names::new(strings), HashMap::new());
        let mut name = |symbol: u32| {
            let place = strings.range(symbols.get(symbol as usize)?.st_name(endian));
            strings.name(place).filter(|name| !name.is_empty())
        };
        let mut target = |slot: &Slot| match slot.symbol {
            0 => (slot.chooser != 0).then_some(StubTarget::Chosen(slot.chooser)),
            // Many slots can have the same symbol.
            symbol => known.entry(symbol).or_insert_with(|| name(symbol)).clone().map(StubTarget::Function),
        };
        slots.into_iter().map(|slot| (slot.at, target(&slot))).collect()
    }

    fn rows<T: object::Pod>(&self, section: &'data Elf::SectionHeader) -> &'data [T] {
        section.data_as_array(self.endian, self.data).unwrap_or_default()
    }

    /// The address in a relocation of this type of the code that chooses a function, else 0.
    fn chooser(&self, kind: RelocationType, addend: impl FnOnce() -> u64) -> u64 {
        let chooses = matches!(
            (self.machine, kind),
            (EM_X86_64, R_X86_64_IRELATIVE)
                | (EM_386, R_386_IRELATIVE)
                | (EM_AARCH64, R_AARCH64_IRELATIVE)
                | (EM_S390, R_390_IRELATIVE)
                | (EM_RISCV, R_RISCV_IRELATIVE)
        );
        if chooses { addend() } else { 0 }
    }

    /// The 32-bit word at an address of the file's memory; 0 if there is none.
    fn word_at(&self, address: u64) -> u64 {
        let in_memory = |section: &&Elf::SectionHeader| section.sh_flags(self.endian).contains(SHF_ALLOC);
        let word = self.sections.iter().filter(in_memory).find_map(|section| {
            let place = usize::try_from(address.checked_sub(section.sh_addr(self.endian).into())?).ok()?;
            let bytes = section.data(self.endian, self.data).ok()?.get(place..)?.first_chunk()?;
            Some(self.endian.read_u32(*bytes))
        });
        word.map_or(0, u64::from)
    }

    /// The stub for the dynamic linker at the beginning of a lazily bound table.
    fn header(&self, table: &Plt<'data>) -> Option<Stub> {
        let size = match (self.machine, table.code) {
            // push of the second word of the global offset table
            (EM_X86_64 | EM_386, [0xff, 0x35 | 0xb3, ..]) => 16,
            // stp x16, x30, [sp, #-16]!, also after bti c
            (EM_AARCH64, [0xf0, 0x7b, 0xbf, 0xa9, ..]) => 32,
            (EM_AARCH64, [0x5f, 0x24, 0x03, 0xd5, 0xf0, 0x7b, 0xbf, 0xa9, ..]) => 32,
            _ => return None,
        };
        Some(Stub { start: table.at, end: table.at.saturating_add(size), target: StubTarget::Linker })
    }

    fn slot_of(&self, stub: &[u8], at: u64) -> Option<u64> {
        if self.machine == EM_AARCH64 {
            return slot_of_aarch64(stub, at);
        }
        let place = stub.windows(6).position(|code| {
            matches!((self.machine, code), (_, [0xff, 0x25, ..]) | (EM_386, [0xff, 0xa3, ..]))
        })?;
        let operand: [u8; 4] = stub[place + 2..place + 6].try_into().ok()?;
        let distance = i64::from(i32::from_le_bytes(operand));
        match (self.machine, stub[place + 1]) {
            (EM_X86_64, _) => Some(at.wrapping_add(place as u64 + 6).wrapping_add_signed(distance)),
            (_, 0x25) => Some(u32::from_le_bytes(operand).into()),
            _ => {
                let table = self.section(b".got.plt").or_else(|| self.section(b".got"))?;
                let base: u64 = table.sh_addr(self.endian).into();
                Some(base.wrapping_add_signed(distance) & u64::from(u32::MAX))
            }
        }
    }
}

/// `adrp x16, PAGE` and `ldr x17, [x16, #OFFSET]`.
fn slot_of_aarch64(stub: &[u8], at: u64) -> Option<u64> {
    let words = stub.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()));
    let words: Vec<u32> = words.collect();
    let first = words.iter().position(|word| word & 0x9f00_001f == 0x9000_0010)?;
    let (adrp, ldr) = (words[first], *words.get(first + 1)?);
    (ldr & 0xffc0_03ff == 0xf940_0211).then_some(())?;
    let pages = (i64::from(adrp >> 5 & 0x7_ffff) << 2 | i64::from(adrp >> 29 & 3)) << 43 >> 43;
    let page = (at.wrapping_add(first as u64 * 4) & !0xfff).wrapping_add_signed(pages << 12);
    Some(page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8))
}

/// `add ip, pc, #A`, `add ip, ip, #B` and `ldr pc, [ip, #C]!`.
fn slot_of_arm(stub: &[u8], at: u64) -> Option<u64> {
    let word = |number: usize| {
        let bytes = stub.get(number * 4..number * 4 + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let (first, second, load) = (word(0)?, word(1)?, word(2)?);
    let kinds = [first, second, load].map(|word| word & 0xffff_f000);
    (kinds == [0xe28f_c000, 0xe28c_c000, 0xe5bc_f000]).then_some(())?;
    let operand = |word: u32| (word & 0xff).rotate_right((word >> 8 & 15) * 2);
    let distance = operand(first).wrapping_add(operand(second)).wrapping_add(load & 0xfff);
    Some((at as u32).wrapping_add(8).wrapping_add(distance).into())
}
