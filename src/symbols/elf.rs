//! Reads the parts of an ELF file that symbolization needs: the symbols of code and data, the mapping from
//! file offsets to addresses, and the name of the debug file.

use std::cell::Cell;
use std::fs::File;
use std::io::{Cursor, Read as _};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use build_id::{BuildId, Error, Metered};
use object::elf::{
    EM_AARCH64, EM_ARM, EM_RISCV, ET_REL, FileHeader32, FileHeader64, PF_X, PT_LOAD, SHF_EXECINSTR, SHN_ABS,
    SHT_DYNSYM, SHT_NOBITS, SHT_RELA, SHT_SYMTAB, STB_LOCAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
    STT_OBJECT, STV_DEFAULT, STV_PROTECTED,
};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use xz4rust::{XzDecoder, XzReader};

use crate::Symbol;
use crate::compressed::{MOST_READ, expands_too_far, old_compression};
use crate::gopclntab::{self, GoAddresses, Placed, Program};
use crate::name::{Names, text_at};
use crate::plt::{Stub, Tables};
use crate::unwind::Arch;

/// An ELF file.
#[derive(Clone, Default, Debug)]
pub struct ElfFile {
    /// Its build-id.
    pub build_id: Option<BuildId>,
    /// True if it has the full symbol table, not only that of the dynamic linker.
    pub has_symtab: bool,
    /// True if it has DWARF that can be read in bounded memory.
    pub has_dwarf: bool,
    /// File name and CRC of the file with its stripped symbols.
    pub debug_link: Option<(Vec<u8>, u32)>,
    /// Path and build-id of the file with the DWARF that several files share (dwz(1)).
    pub alt_link: Option<(Vec<u8>, BuildId)>,
    /// The compressed ELF file with symbols that the dynamic linker does not need (`.gnu_debugdata`).
    mini: Option<Vec<u8>>,
    /// The addresses in the table of a Go program, if the file lacks symbols or DWARF.
    pub(crate) go: Option<GoAddresses>,
    go_functions: Vec<Symbol>,
    /// Its symbols in the order of its tables; in a kernel module, relative to the start of `.text`.
    pub symbols: Vec<Symbol>,
    /// The architecture, if known here.
    pub arch: Option<Arch>,
    /// True if it is relocatable, as kernel modules are.
    pub is_relocatable: bool,
    /// The stubs of its procedure linkage table; a debug file has none.
    pub stubs: Vec<Stub>,
    /// PT_LOAD segments: file offset, size and address, in bytes. A relocatable file has none and gets one
    /// for its `.text`, at address 0, to which other tools and DWARF relate addresses of a kernel module.
    segments: Vec<(u64, u64, u64)>,
    /// The segments with code, as far as it is in the file.
    pub code: Vec<(u64, u64, u64)>,
    pub(crate) text: Option<u64>,
}

impl ElfFile {
    /// Reads its headers and symbol tables. Damaged parts are skipped.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not valid ELF.
    pub fn read(path: &Path) -> Result<ElfFile, Error> {
        let build_id = build_id::of_file(path)?;
        let (file, _) = build_id::open(path)?;
        Ok(ElfFile { build_id, ..ElfFile::parse(file)? })
    }

    fn parse(file: File) -> Result<ElfFile, Error> {
        let (cache, left) = (ReadCache::new(file), Cell::new(MOST_READ));
        let data = Metered::new(&cache, &left);
        match FileKind::parse(data) {
            Ok(FileKind::Elf32) => read::<FileHeader32<Endianness>, _>(data),
            Ok(FileKind::Elf64) => read::<FileHeader64<Endianness>, _>(data),
            _ => Err(Error::NotElf),
        }
        .map_err(|error| match error {
            Error::Damaged(what) if left.get() == 0 => {
                Error::Damaged(format!("{what}: more than {MOST_READ} bytes"))
            }
            error => error,
        })
    }

    /// Takes the symbols of `.gnu_debugdata` of up to 256 MiB expanded, or those of the Go runtime's table.
    pub fn take_mini_symbols(&mut self) -> Vec<Symbol> {
        let Some(mini) = self.mini.take() else { return std::mem::take(&mut self.go_functions) };
        let decoder = XzDecoder::in_heap_with_alloc_dict_size(0, MOST_DICTIONARY);
        let unpacked = XzReader::new_with_buffer_size_and_decoder(Cursor::new(mini), BUFFER, decoder);
        let mut data = Vec::new();
        if unpacked.take(MOST_MINI + 1).read_to_end(&mut data).is_err() || data.len() as u64 > MOST_MINI {
            return Vec::new();
        }
        ElfFile::from_bytes(&data).map(|file| file.symbols).unwrap_or_default()
    }

    pub(crate) fn from_bytes(data: &[u8]) -> Result<ElfFile, Error> {
        match FileKind::parse(data) {
            Ok(FileKind::Elf32) => read::<FileHeader32<Endianness>, _>(data),
            Ok(FileKind::Elf64) => read::<FileHeader64<Endianness>, _>(data),
            _ => Err(Error::NotElf),
        }
    }

    /// The virtual address of the byte at this offset of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |&&(start, size, _): &&(u64, u64, u64)| offset >= start && offset - start < size;
        // A segment can be larger in memory than in the file, where the next one follows.
        let (start, _, address) = self.segments.iter().rfind(inside)?;
        address.checked_add(offset - start)
    }

    /// The file offsets around one that are at the same distance from their addresses.
    pub(crate) fn piece_of(&self, offset: u64) -> Range<u64> {
        let edges = self.segments.iter().flat_map(|&(start, size, _)| [start, start.saturating_add(size)]);
        edges.fold(0..u64::MAX, |piece, edge| match edge <= offset {
            true => piece.start.max(edge)..piece.end,
            false => piece.start..piece.end.min(edge),
        })
    }

    /// The virtual address of the first segment; 0 without segments.
    pub fn first_address(&self) -> u64 {
        self.segments.first().map_or(0, |&(_, _, address)| address)
    }
}

/// For `.gnu_debugdata`, bytes. That of the largest libraries has some 10 MB.
const MOST_MINI: u64 = 256 << 20;

/// Maximum dictionary size of its decoder, bytes: that of `xz -9`.
const MOST_DICTIONARY: usize = 64 << 20;

const BUFFER: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

fn read<'data, Elf, R>(data: R) -> Result<ElfFile, Error>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let damaged = |error: object::Error| Error::Damaged(error.to_string());
    let header = Elf::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let machine = header.e_machine(endian);
    let is_relocatable = header.e_type(endian) == ET_REL;
    let arch = Arch::of(machine, header.is_type_64());
    let mut file = ElfFile { arch, is_relocatable, ..ElfFile::default() };
    for segment in header.program_headers(endian, data).unwrap_or_default() {
        if segment.p_type(endian) == PT_LOAD {
            // A debug file keeps the headers of removed segments, with a file size of 0.
            let stored: u64 = segment.p_filesz(endian).into();
            let size = stored.max(segment.p_memsz(endian).into());
            let (offset, address) = (segment.p_offset(endian).into(), segment.p_vaddr(endian).into());
            file.segments.push((offset, size, address));
            if segment.p_flags(endian).contains(PF_X) && stored > 0 {
                file.code.push((offset, stored, address));
            }
        }
    }
    let sections = header.section_headers(endian, data).unwrap_or_default();
    let names = header.shstrndx(endian, data).ok().and_then(|index| sections.get(index as usize));
    let names = names.and_then(|section| section.data(endian, data).ok()).unwrap_or_default();
    let name_of = |section: &Elf::SectionHeader| text_at(names, section.sh_name(endian));
    let (mut expanded, mut is_sound) = (0_u64, true);
    for section in sections {
        let name = name_of(section);
        let is_info = matches!(name, b".debug_info" | b".zdebug_info");
        file.has_dwarf |= is_info && section.sh_type(endian) != SHT_NOBITS;
        let compression = match name {
            [b'.', b'd', b'e', b'b', b'u', b'g', b'_', ..] => section
                .compression(endian, data)
                .ok()
                .flatten()
                .map(|(header, _, packed)| (header.ch_size(endian).into(), packed)),
            [b'.', b'z', b'd', b'e', b'b', b'u', b'g', b'_', ..] => {
                section.data(endian, data).ok().and_then(old_compression)
            }
            _ => None,
        };
        if let Some((size, packed)) = compression {
            expanded = expanded.saturating_add(size);
            is_sound &= !expands_too_far(size, packed);
        }
        if name_of(section) == b".gnu_debuglink" {
            file.debug_link = section.data(endian, data).ok().and_then(|link| debug_link(link, endian));
        }
        if name == b".gnu_debugaltlink" {
            file.alt_link = section.data(endian, data).ok().and_then(alt_link);
        }
        if name == b".gnu_debugdata" {
            file.mini = section.data(endian, data).ok().map(<[u8]>::to_vec);
        }
    }
    file.has_dwarf &= is_sound && expanded <= MOST_READ;
    let text = sections.iter().find(|section| name_of(section) == b".text");
    file.text = text.map(|text| text.sh_addr(endian).into());
    let module = text.filter(|_| is_relocatable).map(|text| text.sh_offset(endian).into());
    if let Some((text, offset)) = text.zip(module).filter(|(text, _)| text.sh_type(endian) != SHT_NOBITS) {
        let place = (offset, text.sh_size(endian).into(), 0);
        file.segments.push(place);
        file.code.push(place);
    }
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let Some(table) = sections.iter().find(|section| section.sh_type(endian) == kind) else { continue };
        let Ok(symbols) = table.data_as_array::<Elf::Sym, _>(endian, data) else { continue };
        let strings = sections.get(table.sh_link(endian) as usize);
        let strings = strings.and_then(|section| section.data(endian, data).ok()).unwrap_or_default();
        let mut strings = Names::new(strings);
        file.has_symtab |= kind == SHT_SYMTAB && !symbols.is_empty();
        for symbol in symbols {
            let place = strings.range(symbol.st_name(endian));
            let name = strings.bytes(&place);
            let kind = symbol.st_type();
            let index = symbol.st_shndx(endian);
            if name.is_empty() || symbol.is_undefined(endian) || index == SHN_ABS {
                continue;
            }
            let section = sections.get(usize::from(index.0));
            let is_shown = match kind {
                STT_FUNC | STT_GNU_IFUNC | STT_OBJECT => true,
                // A label in assembly, except the mapping symbols for disassemblers (`$x` code, `$d` data).
                STT_NOTYPE => {
                    let visible = matches!(symbol.st_visibility(), STV_DEFAULT | STV_PROTECTED);
                    let marks = matches!(machine, EM_ARM | EM_AARCH64 | EM_RISCV);
                    let mark =
                        matches!(name, [b'$', b'a' | b'd' | b't' | b'x', ..]) || name.starts_with(b".L");
                    let holds_code = section.is_some_and(|section| {
                        let name = name_of(section);
                        [&b"text"[..], b"data"]
                            .iter()
                            .any(|part| name.windows(4).any(|window| window == *part))
                    });
                    visible && holds_code && !(marks && mark)
                }
                _ => false,
            };
            if !is_shown {
                continue;
            }
            let mut start: u64 = symbol.st_value(endian).into();
            let mut section_start = section.map_or(0, |section| section.sh_addr(endian).into());
            if is_relocatable {
                let distance = section.zip(module).and_then(|(section, text)| {
                    let of_text = name_of(section) == b".text";
                    let distance = section.sh_offset(endian).into().checked_sub(text)?;
                    (of_text || follows_text::<Elf>(section, name_of(section), endian)).then_some(distance)
                });
                let Some(distance) = distance else { continue };
                start = start.saturating_add(distance);
                section_start = distance;
            }
            if machine == EM_ARM && kind == STT_FUNC {
                // The lowest bit is set for Thumb code.
                start &= !1;
            }
            let limit = section
                .map_or(u64::MAX, |section| section_start.saturating_add(section.sh_size(endian).into()));
            let name = strings.name(place).ok_or_else(|| {
                Error::Damaged("the names of its symbols share too many bytes with each other".to_owned())
            })?;
            file.symbols.push(Symbol {
                start,
                end: start.saturating_add(symbol.st_size(endian).into()),
                limit,
                weak: symbol.st_bind() == STB_WEAK,
                global: symbol.st_bind() != STB_WEAK && symbol.st_bind() != STB_LOCAL,
                name,
            });
        }
    }
    if !(file.has_symtab && file.has_dwarf)
        && let Some((addresses, functions)) = go_table::<Elf, R>(sections, &name_of, endian, data)
    {
        file.go = Some(addresses);
        file.go_functions = functions;
    }
    file.stubs = Tables::<Elf, R> { sections, name_of: &name_of, machine, endian, data }.stubs();
    Ok(file)
}

/// The addresses in the table that the runtime of a Go program needs, and its functions.
fn go_table<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    sections: &'data [Elf::SectionHeader],
    name_of: &dyn Fn(&Elf::SectionHeader) -> &'data [u8],
    endian: Endianness,
    data: R,
) -> Option<(GoAddresses, Vec<Symbol>)> {
    let named = |name: &[u8]| sections.iter().find(|section| name_of(section) == name);
    let placed = |name: &&[u8]| {
        let section = named(name)?;
        Some(Placed { address: section.sh_addr(endian).into(), data: section.data(endian, data).ok()? })
    };
    let table = gopclntab::TABLES.iter().find_map(placed)?;
    let module = gopclntab::MODULES.iter().find_map(placed);
    // A position-independent program has its addresses in relocations.
    let ranges = [Some(table.range()), module.map(|module| module.range())];
    let relocations = sections.iter().filter(|section| section.sh_type(endian) == SHT_RELA);
    let rows = relocations.filter_map(|section| section.data_as_array::<Elf::Rela, _>(endian, data).ok());
    let relocated = (rows.flatten())
        .filter(|row| row.r_sym(endian, false) == 0)
        .map(|row| (row.r_offset(endian).into(), row.r_addend(endian).into() as u64))
        .filter(|(at, _)| ranges.iter().flatten().any(|range| range.contains(at)))
        .collect();
    let text = named(b".text").map(|text| text.sh_addr(endian).into());
    Program { endian, table, module, relocated, text }.read()
}

/// True for a section that the kernel loads after the `.text` of a module, at the same distance as in the
/// file: not the code for its initialisation and exit, and nothing in a debug file, which has no code
/// (`max_text_section` in perf's symbol-elf.c).
fn follows_text<Elf: FileHeader<Endian = Endianness>>(
    section: &Elf::SectionHeader,
    name: &[u8],
    endian: Endianness,
) -> bool {
    let is_code = section.sh_flags(endian).contains(SHF_EXECINSTR);
    let is_other = [&b".init"[..], b".exit"].iter().any(|part| name.starts_with(part));
    is_code && !is_other && section.sh_type(endian) != SHT_NOBITS
}

/// A path, NUL, and the build-id of the file.
fn alt_link(link: &[u8]) -> Option<(Vec<u8>, BuildId)> {
    let path = text_at(link, 0);
    let id = BuildId::new(link.get(path.len() + 1..)?)?;
    (!path.is_empty()).then(|| (path.to_vec(), id))
}

/// A file name, NUL, padding to 4 bytes, u32 CRC.
fn debug_link(link: &[u8], endian: Endianness) -> Option<(Vec<u8>, u32)> {
    let name = text_at(link, 0);
    let at = (name.len() + 1).next_multiple_of(4);
    let crc: [u8; 4] = link.get(at..at + 4)?.try_into().ok()?;
    let crc = if endian == Endianness::Little { u32::from_le_bytes(crc) } else { u32::from_be_bytes(crc) };
    // Only a plain file name is accepted: a path could lead anywhere.
    (!name.is_empty() && !name.contains(&b'/') && name != b"..").then(|| (name.to_vec(), crc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::elf;

    /// Regression: all names were read again for each stub, so libraries with thousands had no names for
    /// stubs.
    #[test]
    fn all_stubs_of_a_table_have_names() {
        const COUNT: u64 = 1000;
        // GLOB_DAT of the function for slots after the file.
        let slot = |number: u64| 0x10_0000 + 8 * number;
        let row = |number| [slot(number), 1 << 32 | 6, 0].map(u64::to_le_bytes).concat();
        let relocations: Vec<u8> = (0..COUNT).flat_map(row).collect();
        let made = |stubs: Vec<u8>| elf(&[(".rela.plt", relocations.clone()), (".plt.got", stubs)]);
        let empty = made(vec![0; 8 * COUNT as usize]);
        let at = empty.windows(8 * COUNT as usize).rposition(|bytes| bytes.iter().all(|byte| *byte == 0));
        let at = at.unwrap() as u64 & !7;
        let stub = |number: u64| {
            let distance = slot(number) - (at + 8 * number + 6);
            [&[0xff, 0x25][..], &(distance as u32).to_le_bytes(), &[0x66, 0x90]].concat()
        };
        let bytes = made((0..COUNT).flat_map(stub).collect());
        let left = Cell::new(2 * bytes.len() as u64);
        let file = read::<FileHeader64<Endianness>, _>(Metered::new(&bytes[..], &left)).unwrap();
        assert_eq!(file.stubs.len() as u64, COUNT);
    }

    #[test]
    fn an_offset_is_in_the_last_segment_that_begins_before_it() {
        let segments = vec![(0, 0x100, 0x1000), (0x100, 0x180, 0x2100), (0x200, 0x300, 0x3200)];
        let file = ElfFile { segments, ..ElfFile::default() };
        let addresses = [0xff, 0x1ff, 0x200, 0x27f, 0x4ff, 0x500].map(|offset| file.address_of(offset));
        assert_eq!(addresses, [Some(0x10ff), Some(0x21ff), Some(0x3200), Some(0x327f), Some(0x34ff), None]);
    }

    #[test]
    fn variables_have_names_except_those_of_threads() {
        let whole = elf(&[]);
        let at = whole.windows(8).position(|bytes| bytes == [1, 0, 0, 0, 0x12, 0, 1, 0]).unwrap();
        // STT_OBJECT, STT_FUNC, STT_SECTION, STT_TLS.
        let names = [0x11, 0x12, 0x13, 0x16].map(|info| {
            let mut bytes = whole.clone();
            bytes[at + 4] = info;
            let file = ElfFile::from_bytes(&bytes).unwrap();
            file.symbols.iter().map(|symbol| symbol.shown().into_owned()).collect::<Vec<_>>()
        });
        assert_eq!(names.map(|names| names.len()), [1, 1, 0, 0]);
    }
}
