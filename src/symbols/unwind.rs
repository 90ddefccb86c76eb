//! The parts of an ELF file that unwinding needs: its call frame information, and the code that returns from
//! signal handlers. Only compressed call frame information is copied.

use std::mem;
use std::ops::{Deref, Range};

use build_id::{BuildId, Error};
use object::elf::{
    EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, FileHeader32, FileHeader64, Machine,
    PT_LOAD, SHF_COMPRESSED, SHT_NOBITS,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind};

use crate::compressed::debug_section;

/// An architecture whose stacks can be unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// 32-bit x86.
    I386,
    /// 64-bit Arm.
    Aarch64,
    /// 32-bit Arm.
    Arm,
    /// 64-bit RISC-V.
    Riscv64,
    /// 64-bit PowerPC.
    Ppc64,
    /// 64-bit s390.
    S390x,
}

impl Arch {
    /// The architecture of a file with this `e_machine`, and addresses of 64 or 32 bits.
    pub(crate) fn of(machine: Machine, is_64: bool) -> Option<Arch> {
        Some(match (machine, is_64) {
            (EM_X86_64, true) => Arch::X86_64,
            (EM_386, false) => Arch::I386,
            (EM_AARCH64, true) => Arch::Aarch64,
            (EM_ARM, false) => Arch::Arm,
            (EM_RISCV, true) => Arch::Riscv64,
            (EM_PPC64, true) => Arch::Ppc64,
            (EM_S390, true) => Arch::S390x,
            _ => return None,
        })
    }

    /// The instructions that a signal handler returns to, and the frame on the stack then.
    fn signal_returns(self) -> &'static [(&'static [u8], SignalFrame)] {
        use SignalFrame::{Old, Rt};
        match self {
            // mov $15,%rax; syscall
            Arch::X86_64 => &[(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], Rt)],
            // mov x8,#139; svc #0
            Arch::Aarch64 => &[(&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4], Rt)],
            // li a7,139; ecall
            Arch::Riscv64 => &[(&[0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0], Rt)],
            // svc 173; svc 119
            Arch::S390x => &[(&[0x0a, 0xad], Rt), (&[0x0a, 0x77], Old)],
            // Their tables contain the positions of the registers.
            Arch::I386 | Arch::Ppc64 | Arch::Arm => &[],
        }
    }
}

/// The kernel's frame on the stack of a signal handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalFrame {
    /// The frame for rt_sigreturn(2).
    Rt,
    /// The frame for sigreturn(2).
    Old,
}

/// A section of an ELF file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section<'a> {
    /// Its address in the file's own address space.
    pub address: u64,
    /// Its contents.
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug)]
struct SectionPlace {
    address: u64,
    range: Range<usize>,
}

/// An ELF file. `B` holds its bytes, such as a memory map.
#[derive(Clone, Debug)]
pub struct UnwindTables<B> {
    image: B,
    /// The holder of `.debug_frame`, if not the file: a debug file, or the expanded section.
    debug: Option<B>,
    /// True if `.debug_frame` is still to be expanded.
    is_compressed: bool,
    build_id: Option<BuildId>,
    arch: Option<Arch>,
    is_big_endian: bool,
    eh_frame: Option<SectionPlace>,
    eh_frame_hdr: Option<SectionPlace>,
    debug_frame: Option<SectionPlace>,
    exidx: Option<SectionPlace>,
    text: u64,
    got: u64,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    offset: u64,
    /// Size in the file; that in memory if that is 0.
    size: u64,
    address: u64,
}

impl<B: Deref<Target = [u8]> + From<Vec<u8>>> UnwindTables<B> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    ///
    /// It is not valid ELF.
    pub fn new(image: B) -> Result<UnwindTables<B>, Error> {
        match FileKind::parse(&*image) {
            Ok(FileKind::Elf64) => Self::read::<FileHeader64<Endianness>>(image),
            Ok(FileKind::Elf32) => Self::read::<FileHeader32<Endianness>>(image),
            _ => Err(Error::NotElf),
        }
    }

    fn read<Elf: FileHeader<Endian = Endianness>>(image: B) -> Result<UnwindTables<B>, Error> {
        let data = &*image;
        let damaged = |error: object::Error| Error::Damaged(error.to_string());
        let header = Elf::parse(data).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let arch = Arch::of(header.e_machine(endian), header.is_type_64());
        let mut segments = Vec::new();
        for segment in header.program_headers(endian, data).map_err(damaged)? {
            if segment.p_type(endian) == PT_LOAD {
                let (offset, address) = (segment.p_offset(endian).into(), segment.p_vaddr(endian).into());
                let in_file = segment.p_filesz(endian).into();
                // A debug file keeps the headers of removed segments, with a file size of 0.
                let size = if in_file == 0 { segment.p_memsz(endian).into() } else { in_file };
                segments.push(Segment { offset, size, address });
            }
        }
        let sections = header.section_headers(endian, data).map_err(damaged)?;
        let names = header.shstrndx(endian, data).ok().and_then(|index| sections.get(index as usize));
        let names = names.and_then(|section| section.data(endian, data).ok()).unwrap_or_default();
        let [mut eh_frame, mut eh_frame_hdr, mut debug_frame, mut exidx] = [None, None, None, None];
        let ([mut text, mut got], mut is_compressed) = ([0, 0], false);
        for section in sections {
            let name = names.get(section.sh_name(endian) as usize..).unwrap_or_default();
            let address = section.sh_addr(endian).into();
            // The NUL belongs to the name. The end of a name may be far away, so it is not searched for.
            let is = |wanted: &[u8]| name.starts_with(wanted);
            let place = if is(b".eh_frame\0") {
                &mut eh_frame
            } else if is(b".eh_frame_hdr\0") {
                &mut eh_frame_hdr
            } else if is(b".debug_frame\0") {
                is_compressed |= section.sh_flags(endian).contains(SHF_COMPRESSED);
                &mut debug_frame
            } else if is(b".ARM.exidx\0") {
                &mut exidx
            } else {
                // The form of Go before 1.19.
                is_compressed |= is(b".zdebug_frame\0");
                if is(b".text\0") {
                    text = address;
                } else if is(b".got\0") {
                    got = address;
                }
                continue;
            };
            let compressed = section.sh_flags(endian).contains(SHF_COMPRESSED);
            if compressed || section.sh_type(endian) == SHT_NOBITS {
                continue;
            }
            let bytes = section.data(endian, data).map_err(damaged)?;
            let start = section.sh_offset(endian).into() as usize;
            *place = Some(SectionPlace { address, range: start..start + bytes.len() });
        }
        // Byte 3 is the encoding of the search table; 0xff means there is none, and .eh_frame is indexed.
        eh_frame_hdr = eh_frame_hdr.filter(|hdr: &SectionPlace| {
            data[hdr.range.clone()].get(3).is_some_and(|&encoding| encoding != 0xff)
        });
        let build_id = build_id::from_elf(data)?;
        let is_big_endian = endian == Endianness::Big;
        Ok(UnwindTables {
            image,
            debug: None,
            is_compressed,
            build_id,
            arch,
            is_big_endian,
            eh_frame,
            eh_frame_hdr,
            debug_frame,
            exidx,
            text,
            got,
            segments,
        })
    }

    /// The build-id.
    pub fn build_id(&self) -> Option<BuildId> {
        self.build_id
    }

    /// The architecture; `None` if its stacks cannot be unwound.
    pub fn arch(&self) -> Option<Arch> {
        self.arch
    }

    /// True for big-endian files.
    pub fn is_big_endian(&self) -> bool {
        self.is_big_endian
    }

    /// `.eh_frame`.
    pub fn eh_frame(&self) -> Option<Section<'_>> {
        section(&self.image, self.eh_frame.as_ref()?)
    }

    /// `.eh_frame_hdr`, if it has a search table.
    pub fn eh_frame_hdr(&self) -> Option<Section<'_>> {
        section(&self.image, self.eh_frame_hdr.as_ref()?)
    }

    /// `.debug_frame`.
    pub fn debug_frame(&self) -> Option<Section<'_>> {
        section(self.debug.as_ref().unwrap_or(&self.image), self.debug_frame.as_ref()?)
    }

    /// `.ARM.exidx`: the exception tables of 32-bit Arm.
    pub fn exidx(&self) -> Option<Section<'_>> {
        section(&self.image, self.exidx.as_ref()?)
    }

    /// The bytes of the file from this address of its own address space to the end of the segment.
    pub fn memory(&self, address: u64) -> Option<&[u8]> {
        let inside =
            |segment: &&Segment| address >= segment.address && address - segment.address < segment.size;
        let segment = self.segments.iter().find(inside)?;
        let start = segment.offset.checked_add(address - segment.address)?;
        let end = segment.offset.checked_add(segment.size)?;
        self.image.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// The addresses of `.text` and `.got`, which tables may refer to; 0 if missing.
    pub fn bases(&self) -> (u64, u64) {
        (self.text, self.got)
    }

    /// True if it has `.debug_frame`, perhaps compressed.
    pub fn has_debug_frame(&self) -> bool {
        self.debug_frame.is_some() || self.is_compressed
    }

    /// True if it has call frame information, perhaps compressed, or the exception tables of 32-bit Arm.
    pub fn has_frames(&self) -> bool {
        self.eh_frame.is_some() || self.has_debug_frame() || self.exidx.is_some()
    }

    /// Expands `.debug_frame` if it is compressed, to at most `left` bytes, and subtracts its size from that.
    /// If it is larger or damaged, drops it and returns false.
    pub fn expand(&mut self, left: &mut u64) -> bool {
        if !mem::take(&mut self.is_compressed) {
            return true;
        }
        let packed = self.debug.as_ref().unwrap_or(&self.image);
        let file = object::File::parse(&**packed).ok();
        let Some(bytes) = file.and_then(|file| debug_section(&file, ".debug_frame", *left)) else {
            return false;
        };
        *left -= bytes.len() as u64;
        self.debug_frame = Some(SectionPlace { address: 0, range: 0..bytes.len() });
        self.debug = Some(B::from(bytes.into_owned()));
        true
    }

    /// Adds the `.debug_frame` of a debug file.
    #[must_use]
    pub fn with_debug_frame(self, debug: UnwindTables<B>) -> UnwindTables<B> {
        if !debug.has_debug_frame() {
            return self;
        }
        let UnwindTables { debug_frame, is_compressed, image, debug, .. } = debug;
        UnwindTables { debug_frame, is_compressed, debug: Some(debug.unwrap_or(image)), ..self }
    }

    /// The virtual address of the byte at this offset of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |segment: &&Segment| offset >= segment.offset && offset - segment.offset < segment.size;
        let segment = self.segments.iter().find(inside)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// The frame of a signal handler, if the byte at this file offset is in instructions that return from
    /// one, or right before them, where a return address minus 1 is.
    pub fn signal_return(&self, offset: u64) -> Option<SignalFrame> {
        let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(1);
        let is_near = |code: &[u8]| {
            let mut starts = end.saturating_sub(code.len())..=end;
            starts.any(|at| self.image.get(at..).is_some_and(|bytes| bytes.starts_with(code)))
        };
        let returns = self.arch?.signal_returns();
        returns.iter().find(|(code, _)| is_near(code)).map(|&(_, frame)| frame)
    }
}

fn section<'a, B: Deref<Target = [u8]>>(image: &'a B, place: &SectionPlace) -> Option<Section<'a>> {
    Some(Section { address: place.address, bytes: image.get(place.range.clone())? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed::MOST_READ;
    use crate::made::elf;

    /// Bytes in zlib's format, stored without compression.
    fn stored(bytes: &[u8]) -> Vec<u8> {
        let len = bytes.len() as u16;
        let (mut low, mut high) = (1_u32, 0_u32);
        for &byte in bytes {
            low = (low + u32::from(byte)) % 65521;
            high = (high + low) % 65521;
        }
        let front = [&[0x78, 1, 1][..], &len.to_le_bytes(), &(!len).to_le_bytes()].concat();
        [&front, bytes, &(high << 16 | low).to_be_bytes()].concat()
    }

    #[test]
    fn compressed_call_frame_information_is_expanded() {
        let bytes: Vec<u8> = (0..200).collect();
        let read = |image: Vec<u8>| {
            let mut tables = UnwindTables::new(image).unwrap();
            tables.expand(&mut MOST_READ.clone());
            (tables.debug_frame().map(|section| section.bytes.to_vec()), tables.has_frames())
        };
        let old = |size: u64| {
            let section = [&b"ZLIB"[..], &size.to_be_bytes(), &stored(&bytes)].concat();
            read(elf(&[(".zdebug_frame", section)]))
        };
        let new = |size: u64| {
            // ELFCOMPRESS_ZLIB, and the alignment.
            let section =
                [&[1, 0, 0, 0, 0, 0, 0, 0][..], &size.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
            let mut image = elf(&[(".debug_frame", [&section[..], &stored(&bytes)].concat())]);
            // SHF_COMPRESSED, in the header of the last section but one.
            let at = image.len() - 2 * 64 + 8;
            image[at..at + 8].copy_from_slice(&0x800_u64.to_le_bytes());
            read(image)
        };
        assert_eq!(read(elf(&[(".debug_frame", bytes.clone())])), (Some(bytes.clone()), true));
        assert_eq!((old(200), new(200)), ((Some(bytes.clone()), true), (Some(bytes.clone()), true)));
        // Sizes that are too large for this many compressed bytes.
        for size in [1 << 20, u64::MAX] {
            assert_eq!((old(size), new(size)), ((None, false), (None, false)), "{size}");
        }
    }

    /// Regression: each file could expand to the limit of one.
    #[test]
    fn the_expanded_size_of_all_files_is_limited() {
        let section = [&b"ZLIB"[..], &200_u64.to_be_bytes(), &stored(&[7; 200])].concat();
        let image = elf(&[(".zdebug_frame", section)]);
        let mut left = 500;
        for (is_expanded, rest) in [(true, 300), (true, 100), (false, 100)] {
            let mut tables: UnwindTables<Vec<u8>> = UnwindTables::new(image.clone()).unwrap();
            assert_eq!((tables.has_frames(), tables.expand(&mut left), left), (true, is_expanded, rest));
            assert_eq!((tables.has_frames(), tables.debug_frame().is_some()), (is_expanded, is_expanded));
        }
    }
}
