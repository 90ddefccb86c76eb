//! LOST and LOST_SAMPLES records count what the kernel could not write; THROTTLE and UNTHROTTLE records say when it
//! sampled less.

use super::reader::Reader;
use crate::{Record, RecordType};

/// Bit 15 of a LOST_SAMPLES record's `misc`: a BPF program filtered the samples.
const BY_FILTER: u16 = 1 << 15;

/// The number of lost records or samples (include/uapi/linux/perf_event.h).
///
/// | record | byte | |
/// |---|---|---|
/// | LOST | 8 | u64 id, u64 number of records |
/// | LOST_SAMPLES | 8 | u64 number of samples |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Records of any kind.
    Records(u64),
    /// Samples of the record's event.
    Samples(u64),
    /// Samples that a BPF program filtered on purpose.
    Filtered(u64),
}

impl Lost {
    /// Parses a LOST or LOST_SAMPLES record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<Lost> {
        match record.kind() {
            RecordType::LOST => Some(Lost::Records(record.u64(16)?)),
            RecordType::LOST_SAMPLES if record.misc() & BY_FILTER != 0 => {
                Some(Lost::Filtered(record.u64(8)?))
            }
            RecordType::LOST_SAMPLES => Some(Lost::Samples(record.u64(8)?)),
            _ => None,
        }
    }
}

/// Decodes the fields of a LOST record.
pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    d.number::<u64>("id")?;
    decode_samples(d)
}

/// Decodes the fields of a LOST_SAMPLES record.
pub(crate) fn decode_samples(d: &mut Reader<'_>) -> Option<()> {
    d.number::<u64>("lost").map(drop)
}

/// Decodes the fields of a THROTTLE or UNTHROTTLE record.
pub(crate) fn decode_throttle(d: &mut Reader<'_>) -> Option<()> {
    d.number::<u64>("time")?;
    d.number::<u64>("id")?;
    d.number::<u64>("stream_id").map(drop)
}
