//! Reads the functions that the kernel compiled BPF programs to, from the entries of feature BPF_PROG_INFO.

use super::numbered::{ListedBy, numbered_entries};
use crate::{Cursor, Endian};

/// A function of a BPF program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfFunction<'a> {
    /// Its address.
    pub address: u64,
    /// Its size, bytes.
    pub size: Option<u32>,
    /// Its tag, which is in its name, too.
    pub tag: Option<&'a [u8]>,
    /// Its machine code.
    pub code: Option<&'a [u8]>,
}

/// An entry: {u32 size of the info, u32 size of the data, u64 bit mask of the arrays in the data, `struct
/// bpf_prog_info` (include/uapi/linux/bpf.h), data}. In place of the kernel's pointers, the info has offsets in
/// the data.
///
/// | byte of the info | |
/// |---|---|
/// | 16 | u32 size of the machine code of all functions |
/// | 24 | its offset |
/// | 104, 108, 180 | u32 number of addresses, sizes and tags: u64, u32 and 8 bytes for each function |
/// | 112, 120, 184 | their offsets |
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub(super) arrays: u64,
    pub(super) info: &'a [u8],
    pub(super) data: &'a [u8],
    pub(super) endian: Endian,
}

impl<'a> Program<'a> {
    /// The bit of the machine code in `arrays`.
    const CODE: u64 = 1;

    fn of(entry: &'a [u8], endian: Endian) -> Option<Program<'a>> {
        let mut cursor = Cursor::new(entry, endian);
        let (info_size, data_size, arrays) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
        let (info, data) = (cursor.bytes(info_size as usize)?, cursor.bytes(data_size as usize)?);
        Some(Program { arrays, info, data, endian })
    }

    fn field(&self, at: usize) -> usize {
        self.endian.u32(self.info, at).unwrap_or(0) as usize
    }

    /// The bytes of the data from an element of an array on; the array's offset is at `pointer`.
    fn from(&self, pointer: usize, index: usize, size: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(self.endian.u64(self.info, pointer)?).ok()?;
        self.data.get(start.checked_add(index.checked_mul(size)?)?..)
    }

    /// The functions, up to one that the data lacks.
    pub(super) fn functions(self) -> impl Iterator<Item = BpfFunction<'a>> {
        let mut code = self.from(24, 0, 0).filter(|_| self.arrays & Program::CODE != 0).unwrap_or_default();
        code = code.get(..self.field(16)).unwrap_or_default();
        (0..self.field(104)).map_while(move |index| {
            let address = self.endian.u64(self.from(112, index, 8)?, 0)?;
            let size = match index < self.field(108) {
                true => Some(self.endian.u32(self.from(120, index, 4)?, 0)?),
                false => None,
            };
            let tag = match index < self.field(180) {
                true => Some(self.from(184, index, 8)?.get(..8)?),
                false => None,
            };
            let own = size.and_then(|size| code.split_at_checked(size as usize));
            code = own.map_or(&[], |(_, rest)| rest);
            let code = own.map(|(own, _)| own).filter(|own| !own.is_empty());
            Some(BpfFunction { address, size, tag, code })
        })
    }
}

/// The functions of the BPF programs in a BPF_PROG_INFO section; none if it ends inside an entry.
pub fn bpf_functions(section: &[u8], endian: Endian) -> impl Iterator<Item = BpfFunction<'_>> {
    let entries = numbered_entries(section, ListedBy::Programs, endian).unwrap_or_default();
    let programs = entries.into_iter().filter_map(move |(_, entry)| Program::of(entry, endian));
    programs.flat_map(Program::functions)
}
