//! Lays out and writes the ELF image of an arena, which mirrors the layout of the code in memory.
//!
//! | file offset, equal to the address in the image | contents |
//! |---|---|
//! | 0 | ELF header, program headers |
//! | 0x200 | build-id note |
//! | 0x1000 + distance from the arena's first page | code, as in memory (the mirrored code) |
//! | next page | code that was loaded over older code, one function after another |
//! | next page | `.eh_frame`, `.eh_frame_hdr`; the mapped part of the image ends here |
//! | after that | `.debug_line`, `.debug_info`, `.debug_abbrev`, symbols |
//!
//! If the dump contains neither code nor unwind data, like a perf map, the file has no room for them either:
//! `.text` is `SHT_NOBITS`, and the parts after the note follow it immediately. Moved code is in the image of
//! its old address, and the new address is another mapping of that.
//!
//! libunwind reads the search table at addresses in the process, and assumes that the lowest mapping of a
//! file begins at file offset 0. libdw takes the start of a mapping minus its file offset as the load
//! address. Both are right only if one mapping begins at file offset 0 and contains both the code and the
//! unwind data.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use gimli::write::{Address, AttributeValue, DwarfUnit, EndianVec, LineProgram, LineString, Sections};
use gimli::{DwLang, Encoding, Format, LineEncoding, RunTimeEndian, constants as dw};
use object::elf;
use object::write::WritableBuffer;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};
use perfx_format::Endian;
use perfx_format::jitdump::Header;
use sha1_smol::Sha1;

use crate::lines::rows;
use crate::unwind::Unwind;
use crate::{Arena, Function, Functions};

const PAGE: u64 = perfx_format::PAGE as u64;

const TEXT: u64 = PAGE;

const NOTE: u64 = 0x200;

/// A header of 12, `GNU` with its NUL, and an id of 20, bytes.
const NOTE_SIZE: u64 = 36;

/// As usual for compilers, bytes.
const FUNCTION_ALIGNMENT: u64 = 16;

/// The architecture and byte order of the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    machine: u16,
    endian: Endian,
    is_of_v8: bool,
}

impl Target {
    /// The target in the header of a dump, or else by the name of the architecture (`x86_64`, `aarch64`).
    pub fn of(header: Header, arch: Option<&str>) -> Target {
        let Header { machine, endian, is_of_v8, .. } = header;
        let named = || {
            Some(match arch? {
                "x86_64" => elf::EM_X86_64,
                "aarch64" | "arm64" => elf::EM_AARCH64,
                "riscv64" => elf::EM_RISCV,
                "s390x" => elf::EM_S390,
                "ppc64" | "ppc64le" => elf::EM_PPC64,
                "loongarch64" => elf::EM_LOONGARCH,
                "mips64" => elf::EM_MIPS,
                "i386" | "i486" | "i586" | "i686" => elf::EM_386,
                arch if arch.starts_with("arm") => elf::EM_ARM,
                _ => return None,
            })
        };
        let recorded = u16::try_from(machine).ok().filter(|&machine| machine != 0).map(elf::Machine);
        let machine = recorded.or_else(named).unwrap_or(elf::EM_NONE);
        Target { machine: machine.0, endian, is_of_v8 }
    }

    fn is_64(self) -> bool {
        !matches!(
            elf::Machine(self.machine),
            elf::EM_386 | elf::EM_ARM | elf::EM_PPC | elf::EM_68K | elf::EM_SH
        )
    }
}

/// The ELF image of an arena.
#[derive(Debug)]
pub struct Image<'f, 'a> {
    target: Target,
    /// The address of file offset 0 if code is where it was first loaded; wraps in the first page.
    base: u64,
    functions: Vec<(u64, &'f Function<'a>)>,
    text_end: u64,
    /// `.eh_frame`, the file offset of `.eh_frame_hdr`, and `.eh_frame_hdr`.
    unwind: Option<(Vec<u8>, u64, Vec<u8>)>,
}

/// The build-id and the size of an image that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Written {
    /// The build-id, a hash of the contents: equal images have equal build-ids.
    pub build_id: [u8; 20],
    /// The size of the image, bytes.
    pub len: u64,
}

impl<'f, 'a> Image<'f, 'a> {
    /// Lays out the image of an arena of these functions.
    pub fn new(functions: &'f Functions<'a>, arena: &Arena, target: Target) -> Image<'f, 'a> {
        let function = |number: u32| &functions.list[number as usize];
        let members = || arena.members.iter().filter(|member| !member.is_moved);
        let mirrored = || members().filter(|member| !member.reuses).map(|member| function(member.function));
        // With one image for each function, the only function may be one that reuses memory.
        let first = mirrored().map(|function| function.address).min().unwrap_or(0);
        let first_page = first / PAGE * PAGE;
        let mirror_end = mirrored().map(|function| function.end() - first_page + TEXT).max().unwrap_or(TEXT);
        let (mut placed, mut next) = (Vec::with_capacity(arena.members.len()), mirror_end);
        for member in members() {
            let function = function(member.function);
            if member.reuses {
                next = next.next_multiple_of(if next == mirror_end { PAGE } else { FUNCTION_ALIGNMENT });
                placed.push((next, function));
                next += function.size;
            } else {
                placed.push((function.address - first_page + TEXT, function));
            }
        }
        // No two offsets are equal: mirrored functions do not overlap, and the others have at least one byte.
        placed.sort_unstable_by_key(|&(place, _)| place);
        let mut unwind = Unwind::new(next.next_multiple_of(PAGE), target.endian, target.is_64());
        placed.iter().for_each(|&(place, function)| unwind.add(function, place));
        let base = first_page.wrapping_sub(TEXT);
        Image { target, base, functions: placed, text_end: next, unwind: unwind.finish() }
    }

    /// The file offset of an address in the mirrored code.
    pub fn place_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.base)
    }

    /// The functions and their file offsets, in the order of offsets.
    pub fn functions(&self) -> &[(u64, &'f Function<'a>)] {
        &self.functions
    }

    /// The address at which to map file offset 0, and the number of bytes to map so that the code can be
    /// unwound. `None` if there is no unwind data, or if there is not enough address space before the code.
    pub fn mapped(&self) -> Option<(u64, u64)> {
        self.unwind.as_ref()?;
        let len = self.load_end().next_multiple_of(PAGE);
        (self.base.checked_add(len).is_some()).then_some((self.base, len))
    }

    /// True if the file has room for the code, which is a hole if the dump contains none.
    fn has_code(&self) -> bool {
        self.unwind.is_some() || self.functions.iter().any(|(_, function)| !function.code.is_empty())
    }

    /// The number of bytes of the file between and after functions, and for code missing from the dump.
    pub fn gaps(&self) -> u64 {
        let code: u64 = self.functions.iter().map(|(_, function)| function.code.len() as u64).sum();
        if self.has_code() { (self.text_end - TEXT).saturating_sub(code) } else { 0 }
    }

    fn file_end(&self) -> u64 {
        if self.has_code() { self.load_end() } else { NOTE + NOTE_SIZE }
    }

    /// The file offset of the end of the mapped part, if the file has room for the code.
    fn load_end(&self) -> u64 {
        self.unwind.as_ref().map_or(self.text_end, |(_, at, header)| at + header.len() as u64)
    }

    /// Writes the image into a file, from offset `from` on, which must not be before the end of the file.
    ///
    /// # Errors
    ///
    /// The file can't be written, or the code is too large for an ELF file of its class.
    pub fn write(&self, file: &File, from: u64) -> io::Result<Written> {
        let debug = self.debug().map_err(|error| io::Error::other(error.to_string()))?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        out.seek(SeekFrom::Start(from))?;
        let mut sink = Sink { out, from, len: 0, hash: Sha1::new(), error: None };
        self.write_to(&mut sink, &debug).map_err(|error| io::Error::other(error.to_string()))?;
        let Sink { mut out, len, hash, error, .. } = sink;
        error.map_or(Ok(()), Err)?;
        out.flush()?;
        drop(out);
        file.set_len(from + len)?;
        let build_id = hash.digest().bytes();
        file.write_all_at(&build_id, from + NOTE + NOTE_SIZE - build_id.len() as u64)?;
        Ok(Written { build_id, len })
    }

    /// The DWARF sections with the source lines; empty if no function has any.
    fn debug(&self) -> gimli::write::Result<Vec<(&'static str, Vec<u8>)>> {
        let address_size = if self.target.is_64() { 8 } else { 4 };
        // Every perf is built with a libdw or binutils that reads DWARF 4.
        let encoding = Encoding { format: Format::Dwarf32, version: 4, address_size };
        let text = |text: &[u8]| LineString::String(text.to_vec());
        let mut program =
            LineProgram::new(encoding, LineEncoding::default(), text(b"."), None, text(b"jit"), None);
        let folder = program.default_directory();
        for &(place, function) in &self.functions {
            let rows = rows(function, self.target.is_of_v8);
            if rows.is_empty() {
                continue;
            }
            program.begin_sequence(Some(Address::Constant(place)));
            for row in rows {
                let file = program.add_file(text(&row.file), folder, None);
                let new = program.row();
                new.address_offset = row.at;
                (new.file, new.line, new.column) = (file, row.line.into(), row.column.into());
                program.generate_row();
            }
            program.end_sequence(function.size);
        }
        if program.is_empty() {
            return Ok(Vec::new());
        }
        let mut unit = DwarfUnit::new(encoding);
        unit.unit.line_program = program;
        let root = unit.unit.root();
        let root = unit.unit.get_mut(root);
        root.set(dw::DW_AT_producer, AttributeValue::String(b"perfx".to_vec()));
        root.set(dw::DW_AT_language, AttributeValue::Language(DwLang(1)));
        root.set(dw::DW_AT_name, AttributeValue::String(b"jit".to_vec()));
        root.set(dw::DW_AT_low_pc, AttributeValue::Address(Address::Constant(TEXT)));
        root.set(dw::DW_AT_high_pc, AttributeValue::Udata(self.text_end - TEXT));
        let endian = match self.target.endian {
            Endian::Little => RunTimeEndian::Little,
            Endian::Big => RunTimeEndian::Big,
        };
        let mut sections = Sections::new(EndianVec::new(endian));
        unit.write(&mut sections)?;
        let mut made = Vec::new();
        sections.for_each_mut(|id, section| {
            if !section.slice().is_empty() {
                made.push((id.name(), section.take()));
            }
            Ok::<(), gimli::write::Error>(())
        })?;
        Ok(made)
    }

    fn write_to(&self, sink: &mut Sink<'_>, debug: &[(&'static str, Vec<u8>)]) -> object::write::Result<()> {
        let Target { machine, endian, .. } = self.target;
        let endian = match endian {
            Endian::Little => object::Endianness::Little,
            Endian::Big => object::Endianness::Big,
        };
        let mut elf = Writer::new(endian, self.target.is_64(), sink);
        let text_name = elf.add_section_name(b".text");
        let text = elf.reserve_section_index();
        let note_name = elf.add_section_name(b".note.gnu.build-id");
        elf.reserve_section_index();
        let unwind_names = self.unwind.as_ref().map(|_| {
            [&b".eh_frame"[..], b".eh_frame_hdr"].map(|name| {
                elf.reserve_section_index();
                elf.add_section_name(name)
            })
        });
        let mut debug_sections = Vec::new();
        for (name, bytes) in debug {
            elf.reserve_section_index();
            debug_sections.push((elf.add_section_name(name.as_bytes()), bytes, 0));
        }
        let names: Vec<_> =
            self.functions.iter().map(|(_, function)| elf.add_string(function.name)).collect();
        for _ in &names {
            elf.reserve_symbol_index(Some(text));
        }
        elf.reserve_symtab_section_index();
        elf.reserve_strtab_section_index();
        elf.reserve_shstrtab_section_index();

        elf.reserve_file_header();
        elf.reserve_program_headers(2 + u32::from(self.unwind.is_some()));
        elf.reserve_until(NOTE + NOTE_SIZE);
        elf.reserve_until(self.file_end());
        for (_, bytes, place) in &mut debug_sections {
            *place = elf.reserve(bytes.len() as u64, 1);
        }
        elf.reserve_symtab();
        elf.reserve_strtab()?;
        elf.reserve_shstrtab()?;
        elf.reserve_section_headers();

        elf.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: elf::Machine(machine),
            e_entry: 0,
            e_flags: Default::default(),
        })?;
        elf.write_align_program_headers();
        let segment = |p_type, p_flags, p_offset, p_filesz, p_align| ProgramHeader {
            p_type,
            p_flags,
            p_offset,
            p_vaddr: p_offset,
            p_paddr: p_offset,
            p_filesz,
            p_memsz: p_filesz,
            p_align,
        };
        let load = segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, 0, self.file_end(), PAGE);
        elf.write_program_header(&ProgramHeader { p_memsz: self.load_end(), ..load });
        elf.write_program_header(&segment(elf::PT_NOTE, elf::PF_R, NOTE, NOTE_SIZE, 4));
        if let Some((_, at, header)) = &self.unwind {
            elf.write_program_header(&segment(elf::PT_GNU_EH_FRAME, elf::PF_R, *at, header.len() as u64, 4));
        }
        elf.pad_until(NOTE);
        let u32 = |value: u32| self.target.endian.bytes_u32(value);
        elf.write(&[u32(4), u32(20), u32(elf::NT_GNU_BUILD_ID.0)].concat());
        elf.write(b"GNU\0");
        elf.write(&[0; 20]);
        if self.has_code() {
            for (place, function) in &self.functions {
                elf.pad_until(*place);
                elf.write(function.code);
            }
            elf.pad_until(self.text_end);
        }
        if let Some((frames, at, header)) = &self.unwind {
            elf.pad_until(self.text_end.next_multiple_of(PAGE));
            elf.write(frames);
            elf.pad_until(*at);
            elf.write(header);
        }
        for (_, bytes, place) in &debug_sections {
            elf.pad_until(*place);
            elf.write(bytes);
        }
        elf.write_null_symbol();
        for ((place, function), name) in self.functions.iter().zip(names) {
            let st_name = elf.string_offset(Some(name));
            elf.write_symbol(&Sym {
                section: Some(text.0),
                st_name,
                st_info: elf::STT_FUNC | elf::STB_GLOBAL,
                st_other: Default::default(),
                st_shndx: Default::default(),
                st_value: *place,
                st_size: function.size,
            });
        }
        elf.write_strtab();
        elf.write_shstrtab();

        elf.write_null_section_header();
        let (code, data) = (elf::SHF_ALLOC | elf::SHF_EXECINSTR, elf::SHF_ALLOC);
        let text_type = if self.has_code() { elf::SHT_PROGBITS } else { elf::SHT_NOBITS };
        let mut sections = vec![
            (text_name, text_type, code, TEXT, self.text_end - TEXT, 16),
            (note_name, elf::SHT_NOTE, data, NOTE, NOTE_SIZE, 4),
        ];
        if let Some(((frames, at, header), [frames_name, header_name])) =
            self.unwind.as_ref().zip(unwind_names)
        {
            let start = self.text_end.next_multiple_of(PAGE);
            sections.push((frames_name, elf::SHT_PROGBITS, data, start, frames.len() as u64, 8));
            sections.push((header_name, elf::SHT_PROGBITS, data, *at, header.len() as u64, 4));
        }
        sections.extend(debug_sections.into_iter().map(|(name, bytes, place)| {
            (name, elf::SHT_PROGBITS, elf::SectionFlags::default(), place, bytes.len() as u64, 1)
        }));
        for (name, sh_type, sh_flags, sh_offset, sh_size, sh_addralign) in sections {
            let sh_addr = if sh_flags == elf::SectionFlags::default() { 0 } else { sh_offset };
            elf.write_section_header(&SectionHeader {
                sh_name: elf.section_name_offset(Some(name)),
                sh_type,
                sh_flags,
                sh_addr,
                sh_offset,
                sh_size,
                sh_link: 0,
                sh_info: 0,
                sh_addralign,
                sh_entsize: 0,
            });
        }
        // All symbols except the first are global.
        elf.write_symtab_section_header(1);
        elf.write_strtab_section_header();
        elf.write_shstrtab_section_header();
        Ok(())
    }
}

/// A file that is written sequentially and hashed. Long runs of zeros become holes.
struct Sink<'f> {
    out: BufWriter<&'f File>,
    from: u64,
    len: u64,
    hash: Sha1,
    error: Option<io::Error>,
}

const ZEROS: [u8; 4096] = [0; 4096];

impl WritableBuffer for Sink<'_> {
    fn reserve(&mut self, _size: u64) -> Result<(), ()> {
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).err();
        }
    }

    fn write_zeros(&mut self, count: u64) {
        // Only the number of zeros is hashed: a hole may be a thousand times as large as the code around it.
        self.hash.update(&count.to_le_bytes());
        self.len += count;
        if self.error.is_some() {
            return;
        }
        let written = match usize::try_from(count).ok().and_then(|count| ZEROS.get(..count)) {
            Some(zeros) => self.out.write_all(zeros),
            None => self.out.seek(SeekFrom::Start(self.from + self.len)).map(drop),
        };
        self.error = written.err();
    }
}
