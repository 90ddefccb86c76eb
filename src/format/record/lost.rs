//! LOST and LOST_SAMPLES records count losses of the kernel, THROTTLE and UNTHROTTLE report less sampling.

use super::aux::Aux;
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

/// The sum to which a LOST or LOST_SAMPLES record adds. For an event with PERF_FORMAT_LOST, perf 6.1 and
/// newer writes the kernel's number of lost records as LOST_SAMPLES. LOST records count the same ones, except
/// for the last; but because events share a buffer, a LOST record does not name the event that lost them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostSum {
    /// LOST records of events with PERF_FORMAT_LOST.
    Records,
    /// LOST_SAMPLES records of these events.
    Counters,
    /// Records of other events, which report all their losses.
    Others,
}

impl LostSum {
    /// The sum and the number of a record; `None` for other kinds, and samples that BPF filtered.
    pub fn of(record: &Record<'_>, layouts: &Layouts) -> Option<(LostSum, u64)> {
        let (sum, number, id) = match Lost::of(record)? {
            Lost::Records(number) => (LostSum::Records, number, record.u64(8)),
            Lost::Samples(number) => (LostSum::Counters, number, None),
            Lost::Filtered(_) => return None,
        };
        let event = id.and_then(|id| layouts.event_of_id(id));
        let layout = event.map_or_else(|| layouts.layout_of(record), |event| layouts.all().get(event));
        let has_counter = layout.is_some_and(|layout| layout.read_format & Read::LOST != 0);
        Some((if has_counter { sum } else { LostSum::Others }, number))
    }
}

/// The losses of a recording, each counted once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Losses {
    records: u128,
    counters: u128,
    others: u128,
    /// AUX records that report [lost data](Aux::LOST).
    pub aux: u64,
}

impl Losses {
    /// Adds the losses in a LOST, LOST_SAMPLES or AUX record.
    pub fn add(&mut self, record: &Record<'_>, layouts: &Layouts) {
        match LostSum::of(record, layouts) {
            Some((LostSum::Records, number)) => self.records += u128::from(number),
            Some((LostSum::Counters, number)) => self.counters += u128::from(number),
            Some((LostSum::Others, number)) => self.others += u128::from(number),
            None => self.aux += u64::from(Aux::of(record).is_some_and(|aux| aux.flags & Aux::LOST != 0)),
        }
    }

    /// Adds the losses of another part of the recording.
    pub fn join(&mut self, other: Losses) {
        self.records += other.records;
        self.counters += other.counters;
        self.others += other.others;
        self.aux += other.aux;
    }

    /// True if this sum is a part of the total.
    pub fn counts(self, sum: LostSum) -> bool {
        match sum {
            LostSum::Records => self.records >= self.counters,
            LostSum::Counters => self.counters > self.records,
            LostSum::Others => true,
        }
    }

    /// The number of lost records, samples among them.
    pub fn total(self) -> u128 {
        self.records.max(self.counters) + self.others
    }
}

pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    d.number::<u64>("id")?;
    decode_samples(d)
}

pub(crate) fn decode_samples(d: &mut Reader<'_>) -> Option<()> {
    d.number::<u64>("lost").map(drop)
}

pub(crate) fn decode_throttle(d: &mut Reader<'_>) -> Option<()> {
    d.number::<u64>("time")?;
    d.number::<u64>("id")?;
    d.number::<u64>("stream_id").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::builder::build;
    use crate::{Attr, Endian, Event, Origin};

    /// The losses of these records: LOST with an id, LOST_SAMPLES with one in the trailer, or AUX with flags.
    /// The event of id 7 counts its losses, that of id 8 does not.
    fn lost(records: &[(RecordType, u64, u64)]) -> Losses {
        let mut losses = [Endian::Little, Endian::Big].map(|endian| {
            let event = |id, read_format| {
                // sample_id_all
                let attr = Attr { sample_type: 1 << 16, read_format, flags: 1 << 18, ..Attr::default() };
                Event::new(attr.encode(endian), vec![id], endian)
            };
            let layouts = Layouts::new(&[event(7, Read::LOST), event(8, 0)]);
            let mut losses = Losses::default();
            for &(kind, id, number) in records {
                let words = match kind {
                    RecordType::LOST => vec![id, number, id],
                    RecordType::LOST_SAMPLES => vec![number, id],
                    _ => vec![0, 4096, number, id],
                };
                let body: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
                let bytes = build(kind, 0, &[&body], endian).unwrap();
                losses.add(&Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap(), &layouts);
            }
            losses
        });
        assert_eq!(losses[0], losses[1]);
        std::mem::take(&mut losses[0])
    }

    #[test]
    fn losses_of_events_that_count_them_and_of_others_add_up() {
        let (records, samples) = (RecordType::LOST, RecordType::LOST_SAMPLES);
        let of_counting = [(records, 7, 40), (records, 7, 57), (samples, 7, 100)];
        assert_eq!(lost(&of_counting).total(), 100);
        assert_eq!(lost(&of_counting[..2]).total(), 97);
        let joined = lost(&[&of_counting[..], &[(records, 8, 91)]].concat());
        assert_eq!(joined.total(), 191);
        let counts = [LostSum::Records, LostSum::Counters, LostSum::Others].map(|sum| joined.counts(sum));
        assert_eq!(counts, [false, true, true]);
        // The kernel itself writes LOST_SAMPLES for a buffer of the processor.
        assert_eq!(lost(&[(records, 8, 91), (samples, 8, 3)]).total(), 94);
    }

    #[test]
    fn aux_data_is_lost_if_truncated_partial_or_collided() {
        let aux = |flags| (RecordType::AUX, 7, flags);
        let losses = lost(&[aux(0), aux(1), aux(2), aux(4), aux(8), aux(5), aux(0x100)]);
        assert_eq!((losses.aux, losses.total()), (4, 0));
    }
}
