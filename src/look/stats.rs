//! Counts the contents of a recording: records by kind, samples by event, losses, compressed and AUX data.

pub(crate) mod aux;

use perfx_format::event_name::EventName;
use perfx_format::read::{Batch, Fragment, Recording};
use perfx_format::{Layouts, Record, RecordType};
use perfx_pipeline::Report;
use schemars::JsonSchema;
use serde::Serialize;

use self::aux::AuxTally;
pub use self::aux::{AuxBuffer, AuxCount, PacketCounts};
use crate::Result;
use crate::count::{Count, Counted, Largest, Tally, TimeSpan, count_by, count_with};
use crate::json::{Decimal, FormName, Kind, KindName, Place, Text};

/// The counts of a recording, which [`stats()`] returns.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Stats {
    /// The form of the recording
    #[serde(flatten)]
    pub form: FormName,
    /// All records: as stored, and those inside compressed ones
    pub records: u64,
    /// Their bytes, payloads of AUXTRACE and HEADER_TRACING_DATA included
    pub bytes: u64,
    /// Ascending by type
    pub kinds: Vec<KindCount>,
    /// In the order of the attrs
    pub events: Vec<EventCount>,
    /// Samples of unknown events
    pub of_unknown_events: SampleCount,
    /// Losses that the recording reports
    pub lost: LostCount,
    /// AUX data
    pub aux: AuxCount,
    /// Compressed records
    pub compressed: CompressedCount,
    /// The largest record; the first one if several are equal
    pub largest: Option<LargestRecord>,
    /// The times of the records
    pub time: Times,
    /// Records whose end is missing
    pub torn: Vec<TornRecord>,
}

/// The records of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct KindCount {
    /// The kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Its records.
    #[serde(flatten)]
    pub count: Count,
}

/// The samples of an event.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct EventCount {
    /// The name of the event
    pub name: Text<Vec<u8>>,
    /// The number of its samples
    pub samples: u64,
    /// Bytes of its samples
    pub bytes: u64,
    /// Bytes of the largest sample
    pub largest_bytes: u64,
    /// Sum of the periods of its samples; null if neither samples nor attr have it
    pub period: Option<Decimal<u128>>,
    /// Lost samples, from LOST_SAMPLES records
    pub lost_samples: Decimal<u128>,
    /// Samples dropped by a BPF filter, from the same records
    pub filtered_samples: Decimal<u128>,
    /// New values of its counter in samples with READ
    pub new_values: NewValues,
}

/// How often samples found new values of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewValues {
    /// How often a sample with READ found a new value of this event's counter, which is 0 at first
    pub by_id: u64,
    /// The same for each thread separately
    pub by_thread: u64,
}

/// A number of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct SampleCount {
    /// Their number
    pub samples: u64,
    /// Their bytes
    pub bytes: u64,
}

/// The losses that a recording reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct LostCount {
    /// All lost records, including samples; a loss in both LOST and LOST_SAMPLES counts once
    pub lost: Decimal<u128>,
    /// From LOST records
    pub lost_records: Decimal<u128>,
    /// From LOST_SAMPLES records
    pub lost_samples: Decimal<u128>,
    /// From LOST_SAMPLES records of BPF filters
    pub filtered_samples: Decimal<u128>,
    /// AUX records that report lost data: it is truncated, has gaps, or collided
    pub aux_records: u64,
}

/// Compressed records, and those inside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct CompressedCount {
    /// COMPRESSED and COMPRESSED2 records
    pub records: u64,
    /// Their bytes
    pub bytes: u64,
    /// Records inside them
    pub expanded_records: u64,
    /// Bytes of the records inside them
    pub expanded_bytes: u64,
}

/// The largest record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct LargestRecord {
    /// Its kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Its size with payload
    pub bytes: u64,
    /// Its place
    pub at: Place,
}

/// The times of samples and of all kernel records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Times {
    /// null if no sample has a time
    pub samples: Option<TimeSpan>,
    /// Times of all kernel records, samples included
    pub records: Option<TimeSpan>,
}

/// A record whose end is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct TornRecord {
    /// null if it is absent
    pub kind: Option<KindName>,
    /// Where it begins
    pub at: Place,
    /// Bytes present
    pub bytes: u64,
    /// Its full size, bytes; 0 if unknown
    pub needed_bytes: u64,
}

/// Counts the records of a recording. One that ends too early is reported, and counted up to there.
///
/// # Errors
///
/// The recording cannot be read.
pub fn stats(recording: &mut Recording, threads: usize, report: &mut Report) -> Result<Stats> {
    let mut aux = AuxTally::default();
    let counted = count_with(recording, threads, report, AuxTally::of, |later| aux.join(later))?;
    Ok(Stats::new(recording, &counted, &aux))
}

/// Counts some records of a recording: `each` calls its second argument for each selected record of a batch.
/// Records inside compressed ones count as if they were not compressed.
///
/// # Errors
///
/// The recording cannot be read, or `each` fails.
pub fn stats_of(
    recording: &mut Recording,
    threads: usize,
    report: &mut Report,
    each: impl Fn(&Batch, &mut dyn FnMut(&Record<'_>)) -> Result<()> + Sync,
) -> Result<Stats> {
    let mut aux = AuxTally::default();
    let work = |batch: &Batch| {
        let (mut tally, mut aux) = (Tally::default(), AuxTally::default());
        each(batch, &mut |record| {
            tally.add(record, &batch.layouts);
            aux.look_at(record, &batch.layouts);
        })?;
        tally.count_as_stored();
        Ok((tally, aux))
    };
    let counted = count_by(recording, threads, report, false, work, |later| aux.join(later))?;
    Ok(Stats::new(recording, &counted, &aux))
}

impl Stats {
    pub(crate) fn new(recording: &Recording, counted: &Counted, aux: &AuxTally) -> Stats {
        let tally = &counted.tally;
        let kinds = tally.kinds();
        let (total, closed, opened) = (kinds.total(), tally.compressed(), tally.expanded.total());
        let events = events(recording, counted);
        let sum =
            |of: fn(&EventCount) -> Decimal<u128>| Decimal(events.iter().map(|event| of(event).0).sum());
        Stats {
            form: FormName(recording.form),
            records: total.records,
            bytes: total.bytes,
            kinds: kinds.iter().map(|(kind, count)| KindCount { kind: Kind(kind), count }).collect(),
            of_unknown_events: SampleCount {
                samples: tally.unattributed.records,
                bytes: tally.unattributed.bytes,
            },
            lost: LostCount {
                lost: Decimal(tally.losses.total()),
                lost_records: Decimal(tally.lost),
                lost_samples: sum(|event| event.lost_samples),
                filtered_samples: sum(|event| event.filtered_samples),
                aux_records: tally.losses.aux,
            },
            aux: aux.count(tally),
            compressed: CompressedCount {
                records: closed.records,
                bytes: closed.bytes,
                expanded_records: opened.records,
                expanded_bytes: opened.bytes,
            },
            largest: tally.largest.map(|Largest { kind, origin, bytes }| LargestRecord {
                kind: Kind(kind),
                bytes,
                at: Place(origin),
            }),
            time: Times { samples: TimeSpan::of(tally.sampled), records: TimeSpan::of(tally.recorded()) },
            torn: counted.fragments.iter().map(TornRecord::of).collect(),
            events,
        }
    }

    /// All records of a kind.
    pub fn of_kind(&self, kind: RecordType) -> Count {
        let found = self.kinds.iter().find(|count| count.kind.0 == kind);
        found.map_or_else(Count::default, |found| found.count)
    }

    /// The total of all kinds.
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        self.kinds.iter().for_each(|kind| total.join(kind.count));
        total
    }
}

impl TornRecord {
    fn of(fragment: &Fragment) -> TornRecord {
        TornRecord {
            kind: fragment.kind.map(KindName),
            at: Place(fragment.origin),
            bytes: fragment.bytes,
            needed_bytes: fragment.needs,
        }
    }
}

fn events(recording: &Recording, counted: &Counted) -> Vec<EventCount> {
    let layouts = Layouts::new(&recording.events);
    let [by_id, by_thread] = counted.tally.new_values(&layouts);
    let event = |(index, name): (usize, &EventName)| {
        let of_event = counted.tally.events.get(index).copied().unwrap_or_default();
        let attr = recording.events[index].attr();
        let has_period = layouts.all()[index].sample.period.is_some();
        let of_all = |period| u128::from(period) * u128::from(of_event.samples.records);
        let period = if has_period { Some(of_event.period) } else { attr.fixed_period().map(of_all) };
        EventCount {
            name: Text(name.name.clone()),
            samples: of_event.samples.records,
            bytes: of_event.samples.bytes,
            largest_bytes: of_event.samples.largest_bytes,
            period: period.map(Decimal),
            lost_samples: Decimal(of_event.lost),
            filtered_samples: Decimal(of_event.filtered),
            new_values: NewValues { by_id: by_id[index], by_thread: by_thread[index] },
        }
    };
    counted.names.iter().enumerate().map(event).collect()
}
