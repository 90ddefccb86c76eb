//! MMAP and MMAP2 records describe mappings of a process or the kernel: one view, and a writer for MMAP2.

use super::builder::build;
use super::reader::Reader;
use crate::value::bytes_of;
use crate::{Endian, FaultCode, HEADER_SIZE, Layouts, RECORD_SIZE_MAX, Record, RecordType, Value, until_nul};

/// Bit 13 of `misc`: a mapping of data, not of code.
pub const MMAP_DATA: u16 = 1 << 13;

/// Bit 14 of an MMAP2's `misc`: a build-id replaces device and inode.
pub const MMAP_BUILD_ID: u16 = 1 << 14;

/// The size of a page of memory on most machines, bytes.
pub const PAGE: u32 = 4096;

/// The longest path that perf reads, with its NUL, bytes.
pub const PATH_MAX: usize = 4096;

/// The pid in mappings of the kernel.
pub const KERNEL_PID: u32 = u32::MAX;

const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;

/// An MMAP or MMAP2 record (include/uapi/linux/perf_event.h, `PERF_RECORD_MMAP` and `PERF_RECORD_MMAP2`).
///
/// | byte | MMAP | MMAP2 | MMAP2 without `prot` |
/// |---|---|---|---|
/// | 8 | u32 pid, u32 tid | the same | the same |
/// | 16 | u64 start, u64 len, u64 pgoff | the same | the same |
/// | 40 | name | u32 major, u32 minor, u64 inode, u64 generation; with [`MMAP_BUILD_ID`] u8 size, u8 0, u16 0, 20 bytes of id | the same |
/// | 64 | | u32 prot, u32 flags | name |
/// | 72 | | name | |
///
/// A name ends in NUL and is padded with zeros to 8 bytes; the trailer follows. Linux 3.12 to 3.15, and the
/// kernels of RHEL 7 that took MMAP2 from there, have no `prot` and `flags`.
#[derive(Clone, Copy, Debug)]
pub struct Mmap<'a> {
    record: Record<'a>,
    name_at: usize,
}

impl<'a> Mmap<'a> {
    /// Parses an MMAP or MMAP2 record. `None` for other kinds, and for a record too short for a name.
    #[inline]
    pub fn of(record: &Record<'a>) -> Option<Mmap<'a>> {
        let name_at = match record.kind() {
            RecordType::MMAP => 40,
            RecordType::MMAP2 if lacks_prot(record.bytes()) => 64,
            RecordType::MMAP2 => 72,
            _ => return None,
        };
        (record.bytes().len() >= name_at).then_some(Mmap { record: *record, name_at })
    }

    pub(crate) fn name_at(&self) -> usize {
        self.name_at
    }

    fn u32(&self, at: usize) -> u32 {
        self.record.u32(at).unwrap_or(0)
    }

    fn u64(&self, at: usize) -> u64 {
        self.record.u64(at).unwrap_or(0)
    }

    /// The process; [`KERNEL_PID`] for the kernel.
    pub fn pid(&self) -> u32 {
        self.u32(8)
    }

    /// True if the kernel is mapped there, of the host or of a guest.
    pub fn is_of_kernel(&self) -> bool {
        self.record.is_of_kernel() || self.pid() == KERNEL_PID
    }

    /// True if the mapping is known to be of code; false for a record without `prot`.
    pub fn is_code(&self) -> bool {
        self.prot_and_flags().is_some_and(|(prot, _)| prot & PROT_EXEC != 0)
    }

    /// True if the mapping may be of code: as in perf, also without `prot`, unless marked as data.
    pub fn may_be_code(&self) -> bool {
        self.likely_prot_and_flags().0 & PROT_EXEC != 0
    }

    /// The thread of the mapping.
    pub fn tid(&self) -> u32 {
        self.u32(12)
    }

    /// Start address.
    pub fn start(&self) -> u64 {
        self.u64(16)
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        self.u64(24)
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offset in the file of the first mapped byte.
    pub fn pgoff(&self) -> u64 {
        self.u64(32)
    }

    /// Bytes 40 to 63 of an MMAP2: device and inode, or a build-id if `misc` has [`MMAP_BUILD_ID`].
    pub fn file(&self) -> Option<Inode> {
        (self.record.kind() == RecordType::MMAP2).then(|| Inode {
            major: self.u32(40),
            minor: self.u32(44),
            inode: self.u64(48),
            generation: self.u64(56),
        })
    }

    /// `PROT_*` and `MAP_*` of mmap(2). `None` for an MMAP, and for an MMAP2 without these fields.
    pub fn prot_and_flags(&self) -> Option<(u32, u32)> {
        (self.name_at == 72).then(|| (self.u32(64), self.u32(68)))
    }

    /// `r-xp`, as in `/proc/PID/maps`. `None` for a record without these fields.
    pub fn access(&self) -> Option<String> {
        let (prot, flags) = self.prot_and_flags()?;
        let bit = |set: bool, shown: char| if set { shown } else { '-' };
        let kind = if flags & MAP_SHARED != 0 { 's' } else { 'p' };
        let bits = [(PROT_READ, 'r'), (PROT_WRITE, 'w'), (PROT_EXEC, 'x')];
        Some(bits.into_iter().map(|(mask, shown)| bit(prot & mask != 0, shown)).chain([kind]).collect())
    }

    /// Like [`Mmap::prot_and_flags`], with plausible values if the record lacks them.
    fn likely_prot_and_flags(&self) -> (u32, u32) {
        let is_data = self.record.misc() & MMAP_DATA != 0;
        self.prot_and_flags().unwrap_or((if is_data { PROT_READ } else { PROT_EXEC }, 0))
    }

    /// The file name. `trailer` is the length of the record's trailer, at which a name without a NUL ends.
    pub fn name(&self, trailer: usize) -> &'a [u8] {
        let bytes = self.record.bytes();
        let end = bytes.len().saturating_sub(trailer).max(self.name_at);
        until_nul(&bytes[self.name_at..end])
    }

    /// Builds an MMAP2 of the same mapping with this build-id, at most 20 bytes, and trailer, if it fits.
    pub fn with_build_id(&self, id: &[u8], trailer: &[u8]) -> Option<Vec<u8>> {
        let (prot, flags) = self.likely_prot_and_flags();
        let mmap2 = Mmap2 {
            misc: self.record.misc(),
            pid: self.pid(),
            tid: self.tid(),
            start: self.start(),
            len: self.len(),
            pgoff: self.pgoff(),
            file: MappedFile::BuildId(id),
            prot,
            flags,
            name: self.name(trailer.len()),
            trailer,
        };
        mmap2.write(self.record.endian())
    }
}

/// The MMAP of the same mapping as an MMAP2, without what only MMAP2 has. `None` for other records.
pub fn mmap2_as_mmap(record: &Record<'_>, trailer: &[u8]) -> Option<Vec<u8>> {
    let mmap = Mmap::of(record).filter(|_| record.kind() == RecordType::MMAP2)?;
    let mut name = mmap.name(trailer.len()).to_vec();
    name.resize((name.len() + 1).next_multiple_of(8), 0);
    let parts = [record.bytes().get(HEADER_SIZE..40)?, &name, trailer];
    build(RecordType::MMAP, record.misc() & !MMAP_BUILD_ID, &parts, record.endian())
}

/// True if the kernel omitted `prot` and `flags`. The name is then in their place, and no `prot` looks like a
/// name: its upper bits are zero, and its lower ones are below 16. perf inject --jit writes the mode of a
/// file there, which is not text either.
fn lacks_prot(mmap2: &[u8]) -> bool {
    let begins_path = matches!(mmap2.get(64..66), Some([b'/' | b'[', b'!'..=b'~']));
    begins_path || mmap2.get(64..68).is_some_and(|bytes| bytes.iter().all(u8::is_ascii_graphic))
}

/// The identity of the mapped file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Device, major number.
    pub major: u32,
    /// Device, minor number.
    pub minor: u32,
    /// Inode number; 0 if the mapping has no file.
    pub inode: u64,
    /// Inode generation.
    pub generation: u64,
}

/// The identity of the file in an MMAP2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappedFile<'a> {
    /// By device and inode.
    Inode(Inode),
    /// By build-id: at most 20 bytes.
    BuildId(&'a [u8]),
}

/// The fields of an MMAP2 record to write, as in [`Mmap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the table above")]
pub struct Mmap2<'a> {
    /// Bit [`MMAP_BUILD_ID`] is set or cleared according to `file`.
    pub misc: u16,
    pub pid: u32,
    pub tid: u32,
    pub start: u64,
    pub len: u64,
    pub pgoff: u64,
    pub file: MappedFile<'a>,
    pub prot: u32,
    pub flags: u32,
    pub name: &'a [u8],
    pub trailer: &'a [u8],
}

impl Mmap2<'_> {
    /// Builds the record. `None` if it is larger than a record can be, or the build-id longer than 20 bytes.
    pub fn write(&self, endian: Endian) -> Option<Vec<u8>> {
        let mut bytes = vec![0; HEADER_SIZE];
        endian.set_u32(&mut bytes, 0, RecordType::MMAP2.0)?;
        endian.set_u16(&mut bytes, 4, self.misc & !MMAP_BUILD_ID)?;
        [self.pid, self.tid].iter().for_each(|&word| bytes.extend(endian.bytes_u32(word)));
        [self.start, self.len, self.pgoff].iter().for_each(|&word| bytes.extend(endian.bytes_u64(word)));
        if let MappedFile::Inode(Inode { major, minor, inode, generation }) = self.file {
            [major, minor].iter().for_each(|&word| bytes.extend(endian.bytes_u32(word)));
            [inode, generation].iter().for_each(|&word| bytes.extend(endian.bytes_u64(word)));
        }
        bytes.resize(64, 0);
        [self.prot, self.flags].iter().for_each(|&word| bytes.extend(endian.bytes_u32(word)));
        bytes.extend(self.name);
        bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
        bytes.extend(self.trailer);
        let size = u16::try_from(bytes.len()).ok().filter(|&size| usize::from(size) <= RECORD_SIZE_MAX)?;
        endian.set_u16(&mut bytes, 6, size)?;
        if let MappedFile::BuildId(id) = self.file {
            set_mmap2_build_id(&mut bytes, id, endian)?;
        }
        Some(bytes)
    }
}

/// Replaces device and inode, or the build-id, of an MMAP2 record with this build-id of at most 20 bytes.
/// Returns `None` and changes nothing if it does not fit.
pub fn set_mmap2_build_id(record: &mut [u8], id: &[u8], endian: Endian) -> Option<()> {
    let misc = endian.u16(record, 4)?;
    let union = record.get_mut(40..64)?;
    let place = union.get_mut(4..4 + id.len())?;
    place.copy_from_slice(id);
    union[..4].copy_from_slice(&[id.len() as u8, 0, 0, 0]);
    union[4 + id.len()..].fill(0);
    endian.set_u16(record, 4, misc | MMAP_BUILD_ID)
}

/// Replaces start and `pgoff` in an MMAP or MMAP2 record. `None`, without a change, if it is too short.
pub fn set_mmap_place(record: &mut [u8], start: u64, pgoff: u64, endian: Endian) -> Option<()> {
    record.get(16..40)?;
    endian.set_u64(record, 16, start)?;
    endian.set_u64(record, 32, pgoff)
}

/// Gives an MMAP2 record this device and inode instead of its own or a build-id; `None` if it is too short.
pub fn set_mmap2_inode(record: &mut [u8], file: Inode, endian: Endian) -> Option<()> {
    let Inode { major, minor, inode, generation } = file;
    record.get(40..64)?;
    endian.set_u32(record, 40, major)?;
    endian.set_u32(record, 44, minor)?;
    endian.set_u64(record, 48, inode)?;
    endian.set_u64(record, 56, generation)?;
    let misc = endian.u16(record, 4)?;
    endian.set_u16(record, 4, misc & !MMAP_BUILD_ID)
}

pub(crate) fn decode(record: &Record<'_>, layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    d.task()?;
    d.hex::<u64>("addr")?;
    d.hex::<u64>("len")?;
    d.hex::<u64>("pgoff")?;
    if record.kind() == RecordType::MMAP2 {
        mmap2_union(record, layouts, d)?;
        if Mmap::of(record).is_none_or(|mmap| mmap.prot_and_flags().is_some()) {
            d.bits::<u32>("prot", &[(0, "READ"), (1, "WRITE"), (2, "EXEC")])?;
            d.hex::<u32>("flags")?;
        }
    }
    d.text("filename")
}

/// The meaning of bit 14 of an MMAP2's `misc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmapBuildId<'a> {
    /// Not set: bytes 40 to 63 contain u32 major, u32 minor, u64 inode, u64 inode generation.
    Clear,
    /// Set, and the record contains this build-id of 1 to 20 bytes. Bytes 40 to 63: u8 size, u8 0, u16 0, the
    /// id padded with zeros to 20 bytes.
    BuildId(&'a [u8]),
    /// Set, but the record contains no build-id.
    Wrong,
}

/// Checks if an MMAP2 record contains a build-id. `None` for other kinds and for a record that is too short.
///
/// While a recording with `attr.build_id` runs, some kernels (seen with 6.18) set bit 14 also in the records
/// of other recordings, which still contain device and inode: the major number is then in the place of the
/// build-id's size. On the other hand, `perf inject --mmap2-buildid-all` adds build-ids without setting
/// `attr.build_id`. So the bit is valid if the size is 1 to 20 and
///
/// - the event of the record has `attr.build_id`; for records that perf itself writes with id 0, any event;
///   or
/// - the bytes cannot be device and inode: minor numbers end at 2^20, generations at 2^32, no inode is 0; and
///   only zeros follow the id. Even so, one id of 8 bytes in 4096 looks like an inode; no id of 20 bytes
///   does. Callers that have feature BUILD_ID can rule that out with [`crate::features::NamedIds`].
pub fn mmap_build_id<'a>(record: &Record<'a>, layouts: &Layouts) -> Option<MmapBuildId<'a>> {
    let union = record.bytes().get(40..64).filter(|_| record.kind() == RecordType::MMAP2)?;
    if record.misc() & MMAP_BUILD_ID == 0 {
        return Some(MmapBuildId::Clear);
    }
    let size = usize::from(union[0]);
    if !(1..=20).contains(&size) || union[1..4] != [0; 3] {
        return Some(MmapBuildId::Wrong);
    }
    let (id, after) = union[4..].split_at(size);
    let inode = record.u32(44)? < 1 << 20 && record.u64(48)? != 0 && record.u64(56)? < 1 << 32;
    let looks_so = !inode && after.iter().all(|&b| b == 0);
    Some(if layouts.may_map_build_ids(record) || looks_so {
        MmapBuildId::BuildId(id)
    } else {
        MmapBuildId::Wrong
    })
}

fn mmap2_union(record: &Record<'_>, layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    // Taken from the fields: in a short record, its trailer is in place of some of these bytes.
    let union = d.rest().get(..24);
    let union = d.need("maj", union)?;
    let verdict = mmap_build_id(record, layouts)?;
    if let MmapBuildId::BuildId(id) = verdict {
        d.take("build_id", 24)?;
        d.add_gap(1..4, 24);
        d.add_gap(4 + id.len()..24, 24);
        d.note("build_id", Value::Bytes(&union[4..4 + id.len()]));
        return Some(());
    }
    let major = d.number::<u32>("maj")?;
    let minor = d.number::<u32>("min")?;
    let inode = d.number::<u64>("ino")?;
    d.number::<u64>("ino_generation")?;
    if verdict == MmapBuildId::Wrong {
        let size = union[0];
        d.add_issue(
            FaultCode::MmapBuildIdBit,
            format!(
                "misc claims a build-id, which would have {}; the bytes read as inode {inode} of \
                device {major}:{minor}",
                bytes_of(size)
            ),
        );
        d.note("build_id_size", Value::Number(size.into()));
        d.note("build_id", Value::Bytes(&union[4..]));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    fn view(bytes: &[u8], endian: Endian) -> Option<Mmap<'_>> {
        Mmap::of(&Record::new(bytes, &[], Origin::Synthetic, endian).unwrap())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let inode = Inode { major: 8, minor: 1, inode: u64::MAX, generation: 3 };
        for endian in [Endian::Little, Endian::Big] {
            for (prot, flags) in [(0, 0), (5, 2), (7, 0x40000), (0o100_755, 2), (0o100_644, 0)] {
                for name in [&b""[..], b"/", b"/b", b"[vdso]", b"//anon", b"seven..", b"eight..."] {
                    for trailer in [&[][..], &[0x2f; 16]] {
                        let mmap2 = Mmap2 {
                            misc: MMAP_DATA | 2,
                            pid: 47,
                            tid: u32::MAX,
                            start: 0x1000,
                            len: u64::MAX,
                            pgoff: 0x3000,
                            file: MappedFile::Inode(inode),
                            prot,
                            flags,
                            name,
                            trailer,
                        };
                        let bytes = mmap2.write(endian).unwrap();
                        assert_eq!(bytes.len() % 8, 0);
                        let read = view(&bytes, endian).unwrap();
                        assert_eq!((read.pid(), read.tid()), (47, u32::MAX));
                        assert_eq!((read.start(), read.len(), read.pgoff()), (0x1000, u64::MAX, 0x3000));
                        assert_eq!(read.file(), Some(inode));
                        assert_eq!(read.prot_and_flags(), Some((prot, flags)));
                        assert_eq!(read.name(trailer.len()), name);
                        let id = [9; 20];
                        let with_id = read.with_build_id(&id, trailer).unwrap();
                        let expected = Mmap2 { file: MappedFile::BuildId(&id), ..mmap2 };
                        assert_eq!(Some(&with_id), expected.write(endian).as_ref());
                        assert_eq!(endian.u16(&with_id, 4), Some(MMAP_DATA | MMAP_BUILD_ID | 2));
                        assert_eq!((with_id[40], &with_id[44..64]), (20, &id[..]));
                    }
                }
            }
        }
    }

    #[test]
    fn an_mmap2_of_early_rhel_7_has_its_name_where_others_have_prot() {
        for endian in [Endian::Little, Endian::Big] {
            for name in
                [&b"/b"[..], b"[vdso]", b"//anon", b"/usr/lib64/ld-2.17.so", b"anon_inode:[perf_event]"]
            {
                let mmap2 = Mmap2 {
                    misc: 2,
                    pid: 1,
                    tid: 1,
                    start: 0,
                    len: 1,
                    pgoff: 0,
                    file: MappedFile::Inode(Inode { major: 0, minor: 0, inode: 5, generation: 0 }),
                    prot: 5,
                    flags: 2,
                    name,
                    trailer: &[1; 8],
                };
                let mut bytes = mmap2.write(endian).unwrap();
                bytes.drain(64..72);
                let size = bytes.len() as u16;
                endian.set_u16(&mut bytes, 6, size).unwrap();
                let read = view(&bytes, endian).unwrap();
                assert_eq!((read.name(8), read.prot_and_flags()), (name, None));
                // Converted to an MMAP2 that every perf reads, it has the `prot` of code.
                let new = read.with_build_id(&[7; 16], &[1; 8]).unwrap();
                let read = view(&new, endian).unwrap();
                assert_eq!((read.name(8), read.prot_and_flags()), (name, Some((PROT_EXEC, 0))));
            }
        }
    }

    #[test]
    fn a_record_too_short_for_a_name_has_no_view() {
        let mut bytes = vec![0; 71];
        bytes[0] = 10;
        bytes[6] = 71;
        assert!(view(&bytes, Endian::Little).is_none());
        assert_eq!(set_mmap2_build_id(&mut bytes[..60], &[1], Endian::Little), None);
        assert_eq!(set_mmap2_build_id(&mut bytes, &[1; 21], Endian::Little), None);
    }
}
