//! AUX records describe what the kernel wrote into an AUX buffer; AUXTRACE records contain the data.

use crate::{Record, RecordType};

/// An AUX record (include/uapi/linux/perf_event.h, `PERF_RECORD_AUX`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 offset, u64 size, u64 flags |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aux {
    /// Where the data begins in the buffer, bytes since the buffer was created.
    pub offset: u64,
    /// Length of the data, bytes.
    pub size: u64,
    /// `PERF_AUX_FLAG_*`.
    pub flags: u64,
}

impl Aux {
    /// Bit 0 of the flags: data was lost because the buffer was full.
    pub const TRUNCATED: u64 = 1;

    /// Parses an AUX record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<Aux> {
        let word = |at| record.u64(at).filter(|_| record.kind() == RecordType::AUX);
        Some(Aux { offset: word(8)?, size: word(16)?, flags: word(24)? })
    }
}

/// An AUXTRACE record without its payload (tools/lib/perf/include/perf/event.h, `perf_record_auxtrace`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 size of the payload, u64 offset, u64 reference |
/// | 32 | u32 idx, u32 tid, u32 cpu, u32 reserved |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auxtrace {
    /// Size of the payload, bytes.
    pub size: u64,
    /// Where the payload began in the buffer, bytes since the buffer was created.
    pub offset: u64,
    /// Identifies the buffer: a counter or a random number, not a time of the recording.
    pub reference: u64,
    /// Index of the buffer.
    pub idx: u32,
    /// The thread that was traced, or [`Auxtrace::ANY`].
    pub tid: u32,
    /// The CPU that was traced, or [`Auxtrace::ANY`].
    pub cpu: u32,
}

impl Auxtrace {
    /// -1: no particular thread or CPU.
    pub const ANY: u32 = u32::MAX;

    /// Parses an AUXTRACE record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<Auxtrace> {
        if record.kind() != RecordType::AUXTRACE {
            return None;
        }
        let (size, offset, reference) = (record.u64(8)?, record.u64(16)?, record.u64(24)?);
        let (idx, tid, cpu) = (record.u32(32)?, record.u32(36)?, record.u32(40)?);
        Some(Auxtrace { size, offset, reference, idx, tid, cpu })
    }
}
