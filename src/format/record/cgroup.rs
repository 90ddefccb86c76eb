//! CGROUP records map the cgroup ids in samples to names.

use super::reader::Reader;
use crate::{Record, RecordType, until_nul};

pub(crate) const CGROUP_PATH: usize = 16;

/// A CGROUP record (include/uapi/linux/perf_event.h, `PERF_RECORD_CGROUP`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 id |
/// | 16 | path, a NUL, zeros up to 8 bytes; then the trailer |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cgroup<'a> {
    /// The id as in samples.
    pub id: u64,
    /// Its path below the root of the hierarchy.
    pub path: &'a [u8],
}

impl<'a> Cgroup<'a> {
    /// Parses a CGROUP record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'a>) -> Option<Cgroup<'a>> {
        let path = record.bytes().get(CGROUP_PATH..).filter(|_| record.kind() == RecordType::CGROUP)?;
        Some(Cgroup { id: record.u64(8)?, path: until_nul(path) })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.number::<u64>("id")?;
        d.text("path")
    }
}
