//! KSYMBOL records report code that the kernel creates or removes; TEXT_POKE records report changed code.

use super::reader::Reader;
use crate::value::bytes_of;
use crate::{Endian, FaultCode, Record, RecordType, until_nul};

pub(crate) const KSYMBOL_NAME: usize = 24;

/// A KSYMBOL record (include/uapi/linux/perf_event.h, `PERF_RECORD_KSYMBOL`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 address, u32 length |
/// | 20 | u16 type, u16 flags |
/// | 24 | name, a NUL, zeros up to 8 bytes; then the trailer |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ksymbol<'a> {
    /// Start address of the code.
    pub address: u64,
    /// Length of the code, bytes.
    pub length: u32,
    /// `PERF_RECORD_KSYMBOL_TYPE_*`: 1 BPF, 2 out of line (kprobes and similar).
    pub kind: u16,
    /// Bit 0: the code is removed.
    pub flags: u16,
    /// The name of the symbol.
    pub name: &'a [u8],
}

impl<'a> Ksymbol<'a> {
    /// The type of code that the kernel copied out of line.
    pub const OUT_OF_LINE: u16 = 2;

    /// Parses a KSYMBOL record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'a>) -> Option<Ksymbol<'a>> {
        if record.kind() != RecordType::KSYMBOL {
            return None;
        }
        let (address, length) = (record.u64(8)?, record.u32(16)?);
        let (kind, flags) = (record.u16(20)?, record.u16(22)?);
        Some(Ksymbol { address, length, kind, flags, name: until_nul(record.bytes().get(KSYMBOL_NAME..)?) })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.hex::<u64>("addr")?;
        d.number::<u32>("len")?;
        d.named::<u16>("ksym_type", &[(0, "UNKNOWN"), (1, "BPF"), (2, "OOL")])?;
        d.bits::<u16>("flags", &[(0, "UNREGISTER")])?;
        d.text("name")
    }

    /// True if the code is removed.
    pub fn is_gone(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// A TEXT_POKE record: a change of kernel code.
///
/// | byte | |
/// |---|---|
/// | 8 | u64 address |
/// | 16 | u16 size of the old code, u16 size of the new code |
/// | 20 | the old code, the new code |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextPoke<'r> {
    /// The address of the code.
    pub address: u64,
    /// The code before the change.
    pub old: &'r [u8],
    /// The code after the change.
    pub new: &'r [u8],
}

impl<'r> TextPoke<'r> {
    /// Parses a TEXT_POKE record; `None` for other records, and for one that is too short.
    pub fn of(record: &Record<'r>) -> Option<TextPoke<'r>> {
        const CODE: usize = 20;
        let (address, sizes) = (record.u64(8)?, [record.u16(16)?, record.u16(18)?].map(usize::from));
        let (old, rest) = record.bytes().get(CODE..)?.split_at_checked(sizes[0])?;
        let new = rest.get(..sizes[1])?;
        (record.kind() == RecordType::TEXT_POKE).then_some(TextPoke { address, old, new })
    }
}

/// Replaces the address in a KSYMBOL record. `None`, without a change, if it is too short.
pub fn set_ksymbol_address(record: &mut [u8], address: u64, endian: Endian) -> Option<()> {
    endian.set_u64(record, 8, address)
}

pub(crate) fn decode_text_poke(d: &mut Reader<'_>) -> Option<()> {
    d.hex::<u64>("addr")?;
    let old = d.number::<u16>("old_len")?;
    let new = d.number::<u16>("new_len")?;
    for (name, length) in [("old_bytes", old), ("new_bytes", new)] {
        if usize::from(length) > d.left() {
            d.add_issue(
                FaultCode::CountTooLarge,
                format!("`{name}` says {}, {} are left", bytes_of(length), d.left()),
            );
            return None;
        }
        d.bytes(name, length.into())?;
    }
    Some(())
}
