//! The code of a kernel by its addresses: from a copy of its memory, that memory itself, or its file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use build_id::BuildId;
use perfx_format::Bytes;
use symbols::{Arch, ElfFile, KernelCode, Reference, Sources};

use crate::mappings::Place;

/// The code of a kernel.
#[derive(Debug)]
pub struct KernelText {
    /// Where it was found.
    pub path: PathBuf,
    /// The build-id of the kernel, if known.
    pub id: Option<BuildId>,
    /// The architecture of the code; `None` if not supported.
    pub arch: Option<Arch>,
    /// Added to an address, gives that in the file; wraps.
    pub shift: u64,
    /// True if the file has source lines.
    pub has_dwarf: bool,
    /// Ascending by address.
    pub(crate) segments: Vec<Segment>,
}

#[derive(Debug)]
pub(crate) struct Segment {
    /// Its address when it ran.
    pub(crate) start: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

impl KernelText {
    /// The text in a copy of the kernel's memory, as `perf record --kcore` makes.
    pub fn of_copy(path: &Path) -> Option<KernelText> {
        KernelText::of_elf(path.to_owned(), ElfFile::read(path).ok()?, 0)
    }

    /// The text in the kernel's file; `id` is its build-id, if known.
    pub fn of_file(sources: &Sources, id: Option<BuildId>, reference: &Reference) -> Option<KernelText> {
        let (path, elf, shift) = sources.kernel_code(id, reference)?;
        KernelText::of_elf(path, elf, shift)
    }

    /// The text in the file of a guest's kernel with this build-id.
    pub fn of_guest(sources: &Sources, id: BuildId, reference: &Reference) -> Option<KernelText> {
        let (path, elf, shift) = sources.guest_kernel_code(id, reference)?;
        KernelText::of_elf(path, elf, shift)
    }

    /// The code of the kernel (`None`) or of modules at these addresses, if the running kernel was recorded.
    pub fn of_running(
        sources: &Sources,
        id: BuildId,
        reference: &Reference,
        mapped: &[(Option<Vec<u8>>, Range<u64>)],
    ) -> Option<KernelText> {
        let (path, code) = sources.kernel_memory(Some(id), reference, mapped)?;
        let arch = ElfFile::read(&path).ok()?.arch;
        let segment =
            |KernelCode { start, bytes }| Segment { start, offset: start, bytes: Bytes::from(bytes) };
        let mut segments: Vec<Segment> = code.into_iter().map(segment).collect();
        segments.sort_by_key(|segment| segment.start);
        let is_there = !segments.is_empty();
        is_there.then_some(KernelText { path, id: Some(id), arch, shift: 0, has_dwarf: false, segments })
    }

    fn of_elf(path: PathBuf, elf: ElfFile, shift: u64) -> Option<KernelText> {
        let bytes = Bytes::map(&build_id::open(&path).ok()?.0).ok()?;
        let segment = |&(offset, size, address): &(u64, u64, u64)| {
            let end = usize::try_from(offset.checked_add(size)?).ok()?;
            let bytes = bytes.slice(usize::try_from(offset).ok()?..end);
            Some(Segment { start: address.wrapping_sub(shift), offset, bytes })
        };
        let mut segments: Vec<Segment> = elf.code.iter().filter_map(segment).collect();
        segments.sort_by_key(|segment| segment.start);
        let ElfFile { build_id, arch, has_dwarf, .. } = elf;
        Some(KernelText { path, id: build_id, arch, shift, has_dwarf, segments })
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |&Segment { start, offset, ref bytes }: &Segment| Place {
            start,
            end: start.saturating_add(bytes.len() as u64),
            shift: offset.wrapping_sub(start),
        };
        self.segments.iter().map(place).collect()
    }

    pub(crate) fn segment(&self, address: u64) -> Option<&Segment> {
        let at = self.segments.partition_point(|segment| segment.start <= address).checked_sub(1)?;
        let segment = self.segments.get(at)?;
        (address < segment.start.saturating_add(segment.bytes.len() as u64)).then_some(segment)
    }

    /// At most `most` bytes from an address on; `None` if there are none.
    pub fn bytes(&self, address: u64, most: usize) -> Option<&[u8]> {
        let segment = self.segment(address)?;
        let bytes = segment.bytes.get(usize::try_from(address - segment.start).ok()?..)?;
        Some(&bytes[..most.min(bytes.len())])
    }
}
