//! LOST and LOST_SAMPLES records count what the kernel could not write; THROTTLE and UNTHROTTLE records say when it
//! sampled less.

use super::reader::Reader;
use crate::sample::Read;
use crate::{Layouts, Record, RecordType};

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

/// The losses of a recording, each counted once. For an event with PERF_FORMAT_LOST, perf 6.1 and newer writes the kernel's
/// number of lost records as LOST_SAMPLES; LOST records count the same ones, except for the last.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Losses {
    /// According to LOST records.
    records: u128,
    /// According to LOST_SAMPLES records of events with PERF_FORMAT_LOST.
    counted: u128,
    /// According to other LOST_SAMPLES records, which the kernel writes.
    samples: u128,
}

impl Losses {
    /// Adds what a LOST or LOST_SAMPLES record reports.
    pub fn add(&mut self, lost: Lost, record: &Record<'_>, layouts: &Layouts) {
        let has_counter =
            || layouts.layout_of(record).is_some_and(|layout| layout.read_format & Read::LOST != 0);
        let (sum, number) = match lost {
            Lost::Records(number) => (&mut self.records, number),
            Lost::Samples(number) if has_counter() => (&mut self.counted, number),
            Lost::Samples(number) => (&mut self.samples, number),
            Lost::Filtered(_) => return,
        };
        *sum += u128::from(number);
    }

    /// Adds those of another part of the recording.
    pub fn join(&mut self, other: Losses) {
        self.records += other.records;
        self.counted += other.counted;
        self.samples += other.samples;
    }

    /// The number of lost records, samples among them.
    pub fn total(self) -> u128 {
        self.records.max(self.counted) + self.samples
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
