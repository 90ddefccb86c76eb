//! BPF_EVENT records report loading and unloading of BPF programs, BPF_METADATA records describe them.

use super::reader::Reader;
use crate::{Endian, Record, RecordType};

/// The offset of the tag in a BPF_EVENT (include/uapi/linux/perf_event.h, `PERF_RECORD_BPF_EVENT`): u16 type,
/// u16 flags, u32 id, u8 tag\[8\].
const TAG: usize = 16;

/// The tag of the program, derived from its instructions. `None` for other kinds, and if it is too short.
pub fn bpf_tag(record: &Record<'_>) -> Option<[u8; 8]> {
    let tag = record.bytes().get(TAG..TAG + 8).filter(|_| record.kind() == RecordType::BPF_EVENT)?;
    tag.try_into().ok()
}

/// The number of the kind of event: 1 load, 2 unload. `None` for other kinds of records.
pub fn bpf_kind(record: &Record<'_>) -> Option<u16> {
    record.u16(8).filter(|_| record.kind() == RecordType::BPF_EVENT)
}

/// Replaces the tag in the bytes of a record. Returns `None` and changes nothing if it is not a BPF_EVENT.
pub fn set_bpf_tag(record: &mut [u8], tag: [u8; 8], endian: Endian) -> Option<()> {
    if endian.u32(record, 0) != Some(RecordType::BPF_EVENT.0) {
        return None;
    }
    record.get_mut(TAG..TAG + 8)?.copy_from_slice(&tag);
    Some(())
}

pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    d.named::<u16>("type", &[(0, "UNKNOWN"), (1, "PROG_LOAD"), (2, "PROG_UNLOAD")])?;
    d.hex::<u16>("flags")?;
    d.number::<u32>("id")?;
    d.bytes("tag", 8).map(drop)
}

pub(crate) fn decode_metadata(d: &mut Reader<'_>) -> Option<()> {
    d.field_text("prog_name", 512)?;
    let count = d.int::<u64>("nr_entries")?;
    d.list("entries", count, 320, |d| {
        d.field_text("key", 64)?;
        d.field_text("value", 256)
    })
}
