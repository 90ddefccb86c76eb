//! What unwinding needs from an ELF file: its call frame information, and where its code returns from signal
//! handlers.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use build_id::{BuildId, Error, Metered};
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PF_X, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// The most that is read of one file.
const MOST_READ: u64 = 1 << 30;

/// A section of an ELF file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Section {
    /// Its addresses in the file's own address space.
    pub addresses: Range<u64>,
    /// Its contents; empty if only the addresses matter.
    pub bytes: Vec<u8>,
}

/// The architecture of a file whose stacks can be unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// The parts of an ELF file of 64 bits that unwinding needs.
#[derive(Clone, Default, Debug)]
pub struct UnwindTables {
    /// Its build-id.
    pub build_id: Option<BuildId>,
    /// Its architecture; `None` for all but those that can be unwound.
    pub arch: Option<Arch>,
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`, if it has a search table.
    pub eh_frame_hdr: Option<Section>,
    /// `.debug_frame`.
    pub debug_frame: Option<Section>,
    /// The addresses of `.text`.
    pub text: Option<Section>,
    /// The addresses of `.got`.
    pub got: Option<Section>,
    /// The addresses of the two instructions that return from a signal handler, ascending.
    pub signal_returns: Vec<u64>,
    /// PT_LOAD segments.
    segments: Vec<Segment>,
}

/// A part of a file that is mapped at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    /// Offset in the file.
    offset: u64,
    /// Size in the file; if that is 0, in memory.
    size: u64,
    address: u64,
}

impl UnwindTables {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not sound ELF of 64 bits.
    pub fn read(path: &Path) -> Result<UnwindTables, Error> {
        let (file, _) = build_id::open(path)?;
        let (build_id, code) = (build_id::of_open(file.try_clone()?)?, file.try_clone()?);
        let (cache, left) = (ReadCache::new(file), Cell::new(MOST_READ));
        let data = Metered::new(&cache, &left);
        if !matches!(FileKind::parse(data), Ok(FileKind::Elf64)) {
            return Err(Error::NotElf);
        }
        let (mut tables, executable) = parse(data)?;
        tables.build_id = build_id;
        if let Some(arch) = tables.arch {
            for Segment { offset, size, address } in executable {
                // Segments of a hostile file may overlap.
                let size = size.min(left.get());
                left.set(left.get() - size);
                let mut found = signal_returns(arch, &code, offset, size)?;
                found.iter_mut().for_each(|at| *at = at.wrapping_sub(offset).wrapping_add(address));
                tables.add_signal_returns(arch, found);
            }
            tables.signal_returns.sort_unstable();
        }
        Ok(tables)
    }

    /// Reads the image of a file in memory.
    ///
    /// # Errors
    ///
    /// It is not sound ELF of 64 bits.
    pub fn of_image(image: &[u8]) -> Result<UnwindTables, Error> {
        if !matches!(FileKind::parse(image), Ok(FileKind::Elf64)) {
            return Err(Error::NotElf);
        }
        let (mut tables, executable) = parse(image)?;
        tables.build_id = build_id::from_elf(image)?;
        for (arch, segment) in tables.arch.into_iter().cycle().zip(executable) {
            let Segment { offset, size, address } = segment;
            let end = offset.saturating_add(size).min(image.len() as u64);
            let code = image.get(offset as usize..end as usize).unwrap_or_default();
            let found = positions(code, instructions(arch)).map(|at| address.wrapping_add(at as u64));
            tables.add_signal_returns(arch, found);
        }
        tables.signal_returns.sort_unstable();
        Ok(tables)
    }

    fn add_signal_returns(&mut self, arch: Arch, found: impl IntoIterator<Item = u64>) {
        let second = match arch {
            Arch::X86_64 => 7,
            Arch::Aarch64 => 4,
        };
        self.signal_returns.extend(found.into_iter().flat_map(|at| [at, at.wrapping_add(second)]));
    }

    /// True if it has call frame information.
    pub fn has_frames(&self) -> bool {
        self.eh_frame.is_some() || self.debug_frame.is_some()
    }

    /// The virtual address of the byte at this offset of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |segment: &&Segment| offset >= segment.offset && offset - segment.offset < segment.size;
        let segment = self.segments.iter().find(inside)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// The addresses of all segments.
    pub fn addresses(&self) -> Range<u64> {
        let ends = self.segments.iter();
        let ends = ends.map(|segment| (segment.address, segment.address.saturating_add(segment.size)));
        let ends = ends.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1)));
        ends.map_or(0..0, |(start, end)| start..end)
    }
}

/// The tables, and the executable segments.
fn parse<'data>(data: impl ReadRef<'data>) -> Result<(UnwindTables, Vec<Segment>), Error> {
    let damaged = |error: object::Error| Error::Damaged(error.to_string());
    let header = FileHeader64::<Endianness>::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let arch = match header.e_machine(endian) {
        EM_X86_64 => Some(Arch::X86_64),
        EM_AARCH64 => Some(Arch::Aarch64),
        _ => None,
    };
    let mut tables =
        UnwindTables { arch: arch.filter(|_| endian == Endianness::Little), ..UnwindTables::default() };
    let mut executable = Vec::new();
    for segment in header.program_headers(endian, data).map_err(damaged)? {
        if segment.p_type(endian) == PT_LOAD {
            let (offset, address) = (segment.p_offset(endian), segment.p_vaddr(endian));
            let in_file = segment.p_filesz(endian);
            // A debug file keeps the headers of removed segments, with a file size of 0.
            let size = if in_file == 0 { segment.p_memsz(endian) } else { in_file };
            tables.segments.push(Segment { offset, size, address });
            if segment.p_flags(endian).contains(PF_X) {
                executable.push(Segment { offset, size: in_file, address });
            }
        }
    }
    let sections = header.section_headers(endian, data).map_err(damaged)?;
    let names = header.shstrndx(endian, data).ok().and_then(|index| sections.get(index as usize));
    let names = names.and_then(|section| section.data(endian, data).ok()).unwrap_or_default();
    for section in sections {
        let name = names.get(section.sh_name(endian) as usize..).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let address = section.sh_addr(endian);
        let addresses = address..address.saturating_add(section.sh_size(endian));
        let (field, wants_bytes) = match name {
            b".eh_frame" => (&mut tables.eh_frame, true),
            b".eh_frame_hdr" => (&mut tables.eh_frame_hdr, true),
            b".debug_frame" => (&mut tables.debug_frame, true),
            b".text" => (&mut tables.text, false),
            b".got" => (&mut tables.got, false),
            _ => continue,
        };
        let compressed = section.sh_flags(endian).contains(SHF_COMPRESSED);
        if wants_bytes && (compressed || section.sh_type(endian) == SHT_NOBITS) {
            continue;
        }
        let bytes = if wants_bytes { section.data(endian, data).map_err(damaged)? } else { &[] };
        *field = Some(Section { addresses, bytes: bytes.to_vec() });
    }
    // Byte 3 is the encoding of the search table, 0xff if there is none: then .eh_frame is indexed.
    let has_table = |hdr: &Section| hdr.bytes.get(3).is_some_and(|&encoding| encoding != 0xff);
    tables.eh_frame_hdr = tables.eh_frame_hdr.filter(has_table);
    Ok((tables, executable))
}

/// `mov $15,%rax; syscall`: rt_sigreturn(2), which a signal handler returns to.
const X86_64_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// `mov x8, #139; svc #0`.
const AARCH64_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

fn instructions(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::X86_64 => &X86_64_RETURN,
        Arch::Aarch64 => &AARCH64_RETURN,
    }
}

/// Finds the instructions in a range of a file; returns their offsets.
fn signal_returns(arch: Arch, file: &File, start: u64, size: u64) -> Result<Vec<u64>, Error> {
    let wanted = instructions(arch);
    let end = start.saturating_add(size).min(file.metadata()?.len());
    let (mut found, mut buffer, mut at) = (Vec::new(), vec![0; 1 << 16], start);
    while at < end {
        let length = (end - at).min(buffer.len() as u64) as usize;
        let chunk = &mut buffer[..length];
        file.read_exact_at(chunk, at)?;
        found.extend(positions(chunk, wanted).map(|position| at + position as u64));
        if at + length as u64 == end {
            break;
        }
        // The instructions may cross the end of the chunk.
        at += (length - wanted.len() + 1) as u64;
    }
    Ok(found)
}

/// Where `wanted` is in `bytes`. Looks at every eighth byte or so: the last byte of the window says how far
/// the next match is at least.
fn positions<'a>(bytes: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
    let last = wanted.len() - 1;
    let mut steps = [wanted.len(); 256];
    for (position, &byte) in wanted[..last].iter().enumerate() {
        steps[usize::from(byte)] = last - position;
    }
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(window) = bytes.get(at..at + wanted.len()) {
            let here = at;
            at += steps[usize::from(window[last])];
            if window == wanted {
                return Some(here);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_wherever_they_are() {
        let mut code = vec![0x0f; 200];
        for at in [0, 9, 50, 191] {
            code[at..at + 9].copy_from_slice(&X86_64_RETURN);
        }
        assert_eq!(positions(&code, &X86_64_RETURN).collect::<Vec<_>>(), [0, 9, 50, 191]);
        assert_eq!(positions(&code[1..9], &X86_64_RETURN).count(), 0);
        let mut file = tempfile::tempfile().unwrap();
        let mut code = vec![0; 3 << 16];
        // Across the end of the first chunk, and at the end of the file.
        for at in [(1 << 16) - 4, (3 << 16) - 9] {
            code[at..at + 9].copy_from_slice(&X86_64_RETURN);
        }
        std::io::Write::write_all(&mut file, &code).unwrap();
        let found = signal_returns(Arch::X86_64, &file, 0, u64::MAX).unwrap();
        assert_eq!(found, [(1 << 16) - 4, (3 << 16) - 9]);
    }
}
