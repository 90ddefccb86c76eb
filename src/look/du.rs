//! Shows where the bytes of a recording are: every byte of the input belongs to one part, and those of
//! records also to a kind, an event and a process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use perfx_format::decode::decode;
use perfx_format::event_name::EventName;
use perfx_format::header::{FileHeader, PIPE_HEADER_SIZE};
use perfx_format::parts::What;
use perfx_format::read::{Batch, Fragment, Recording};
use perfx_format::section::Section;
use perfx_format::{Bytes, Feature, Kinds, Layouts, Origin, Record, RecordType};
use perfx_model::address_space::{KERNEL, name_of_nameless};
use perfx_pipeline::Report;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::count::{ByKind, Count, Counted, Tally, count_by, count_with};
use crate::json::{FormName, Hex, Kind, Text};
use crate::stats::Stats;
use crate::stats::aux::{AuxBuffer, AuxTally};

/// Where the bytes of a recording are, as [`du()`] returns it.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Du {
    /// The form of the recording
    #[serde(flatten)]
    pub form: FormName,
    /// Size of the input, or of the records that are selected; the parts add up to it
    pub bytes: u64,
    /// Every byte belongs to one of them; selected records are one part
    pub parts: Vec<Part>,
    /// Records as stored
    pub stored: Vec<KindBytes>,
    /// Records inside compressed ones
    pub expanded: Vec<KindBytes>,
    /// Samples, decompressed, in the order of the attrs
    pub events: Vec<EventBytes>,
    /// AUX data, by CPU and thread
    pub aux: Vec<AuxBuffer>,
    /// Records, decompressed, the largest first
    pub processes: Vec<Process>,
    /// Sections; of pipe data they are parts of records
    pub features: Vec<FeatureBytes>,
    /// Bytes of the main file that nothing points to
    pub holes: Vec<Hole>,
}

/// A part of the input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Part {
    /// header, attrs, ids, event types, records, torn records, damaged header records, feature table,
    /// features, holes, or the name of another entry of a directory
    pub part: String,
    /// Its size
    pub bytes: u64,
}

/// The records of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct KindBytes {
    /// The kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Their number
    pub records: u64,
    /// Their bytes, payloads included
    pub bytes: u64,
}

/// The samples of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct EventBytes {
    /// The name of the event
    pub name: Text<Vec<u8>>,
    /// Their number
    pub samples: u64,
    /// Their bytes
    pub bytes: u64,
}

/// The records of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Process {
    /// -1: the kernel; null: records without a process
    pub pid: Option<i32>,
    /// The last name of the process
    pub comm: Option<Text<Arc<[u8]>>>,
    /// Their number
    pub records: u64,
    /// Their bytes
    pub bytes: u64,
}

/// A feature section.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct FeatureBytes {
    /// Its name
    pub feature: &'static str,
    /// Its number
    pub bit: u8,
    /// Its size
    pub bytes: u64,
}

/// Bytes that nothing points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Hole {
    /// Where they begin
    pub offset: Hex,
    /// Their number
    pub bytes: u64,
}

/// Counts the bytes of a recording by part, kind, event and process. A recording that ends too early is
/// reported, and the bytes of the torn record are a part.
///
/// # Errors
///
/// The recording, or another file of its directory, cannot be read.
pub fn du(recording: &mut Recording, threads: usize, report: &mut Report) -> Result<Du> {
    Ok(stats_and_du(recording, threads, report)?.1)
}

/// Counts only the records that `each` selects from each batch, as [`stats_of()`](crate::stats_of()) does.
///
/// # Errors
///
/// The recording cannot be read.
pub fn du_of(
    recording: &mut Recording,
    threads: usize,
    report: &mut Report,
    each: impl Fn(&Batch, &mut dyn FnMut(&Record<'_>)) -> Result<()> + Sync,
) -> Result<Du> {
    let mut learned = Learned::default();
    let work = |batch: &Batch| {
        let (mut tally, mut learned) = (Tally::default(), Learned::default());
        each(batch, &mut |record| {
            tally.add(record, &batch.layouts);
            learned.processes.add(record, &batch.layouts);
            learned.aux.look_at(record, &batch.layouts);
        })?;
        tally.count_as_stored();
        Ok((tally, learned))
    };
    let counted = count_by(recording, threads, report, false, work, |later| learned.join(later))?;
    let mut parts = Parts::default();
    parts.add(What::Records.name(), counted.tally.stored.total().bytes);
    Ok(Du::new(recording, &counted, learned, parts))
}

/// [`stats()`](crate::stats()) and [`du()`] in one reading.
///
/// # Errors
///
/// The recording, or another file of its directory, cannot be read.
pub fn stats_and_du(recording: &mut Recording, threads: usize, report: &mut Report) -> Result<(Stats, Du)> {
    let mut learned = Learned::default();
    let read = |batch: &Batch| Ok(Learned { processes: Processes::of(batch)?, aux: AuxTally::of(batch)? });
    let counted = count_with(recording, threads, report, read, |later| learned.join(later))?;
    let parts = Parts::of(recording, &counted)?;
    let stats = Stats::new(recording, &counted, &learned.aux);
    Ok((stats, Du::new(recording, &counted, learned, parts)))
}

#[derive(Default)]
struct Learned {
    processes: Processes,
    aux: AuxTally,
}

impl Learned {
    fn join(&mut self, later: Learned) {
        self.processes.join(later.processes);
        self.aux.join(later.aux);
    }
}

fn by_kind(kinds: &ByKind) -> Vec<KindBytes> {
    let kind = |(kind, Count { records, bytes, .. })| KindBytes { kind: Kind(kind), records, bytes };
    kinds.iter().map(kind).collect()
}

impl Du {
    fn new(recording: &Recording, counted: &Counted, learned: Learned, parts: Parts) -> Du {
        let Parts { rows, holes, features } = parts;
        let tally = &counted.tally;
        let event = |(index, name): (usize, &EventName)| {
            let Count { records, bytes, .. } = tally.events.get(index).copied().unwrap_or_default().samples;
            EventBytes { name: Text(name.name.clone()), samples: records, bytes }
        };
        let feature = |(feature, bytes): (Feature, u64)| FeatureBytes {
            feature: feature.name().unwrap_or("unknown"),
            bit: feature.0,
            bytes,
        };
        Du {
            form: FormName(recording.form),
            bytes: rows.iter().map(|row| row.bytes).sum(),
            parts: rows,
            stored: by_kind(&tally.stored),
            expanded: by_kind(&tally.expanded),
            events: counted.names.iter().enumerate().map(event).collect(),
            aux: learned.aux.count(tally).buffers,
            processes: learned.processes.by_size(),
            features: features.into_iter().map(feature).collect(),
            holes: holes.iter().map(|hole| Hole { offset: Hex(hole.offset), bytes: hole.size }).collect(),
        }
    }

    /// Bytes of all records, with compressed ones counted by their contents.
    pub fn expanded_bytes(&self) -> u64 {
        let sum = |kinds: &[KindBytes]| kinds.iter().map(|kind| kind.bytes).sum::<u64>();
        let compressed = self.stored.iter().filter(|kind| kind.kind.0.is_compressed());
        sum(&self.stored) - compressed.map(|kind| kind.bytes).sum::<u64>() + sum(&self.expanded)
    }
}

#[derive(Default)]
struct Parts {
    /// In file order; the bytes add up to the size of the input.
    rows: Vec<Part>,
    holes: Vec<Section>,
    /// Of a file those in the row of that name, of pipe data parts of records.
    features: BTreeMap<Feature, u64>,
}

impl Parts {
    fn of(recording: &Recording, counted: &Counted) -> Result<Parts> {
        let mut parts = Parts::default();
        let mut rows: BTreeMap<What, u64> = BTreeMap::new();
        for part in recording.file.iter().flat_map(FileHeader::parts) {
            let bytes = part.section.size;
            match part.what {
                What::Feature(feature) => *parts.features.entry(feature).or_default() += bytes,
                What::Hole => parts.holes.push(part.section),
                _ => {}
            }
            *rows.entry(part.what).or_default() += bytes;
        }
        if recording.file.is_none() {
            rows.insert(What::Header, PIPE_HEADER_SIZE as u64);
            let section = |(&feature, section): (&Feature, &Bytes)| (feature, section.len() as u64);
            parts.features = recording.features.iter().map(section).collect();
        }
        let stored = |fragment: &&Fragment| matches!(fragment.origin, Origin::Input { .. });
        let fragment = counted.fragments.iter().filter(stored).map(|fragment| fragment.bytes).sum();
        // Counted record by record, over all files of a directory.
        rows.insert(What::Records, counted.tally.stored.total().bytes);
        for (what, bytes) in rows {
            match parts.rows.last_mut() {
                Some(row) if row.part == what.name() => row.bytes += bytes,
                _ => parts.add(what.name(), bytes),
            }
            if what == What::Records && fragment > 0 {
                parts.add("torn records", fragment);
            }
        }
        if recording.left_out() > 0 {
            parts.add("damaged header records", recording.left_out());
        }
        for extra in &recording.extras {
            let name = extra.file_name().unwrap_or_default().to_string_lossy();
            let size =
                tree_size(extra).map_err(|e| perfx_format::Error::io(extra.display().to_string(), e))?;
            parts.add(&name, size);
        }
        Ok(parts)
    }

    fn add(&mut self, name: &str, bytes: u64) {
        self.rows.push(Part { part: name.to_owned(), bytes });
    }
}

fn tree_size(path: &Path) -> io::Result<u64> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let entries = fs::read_dir(path)?;
    entries.map(|entry| tree_size(&entry?.path())).sum()
}

#[derive(Default)]
struct Processes {
    records: HashMap<Option<u32>, Count>,
    /// Of the previous record: most records share its process.
    last: (Option<u32>, Count),
    /// In the order of the records, with times in ns.
    changes: Vec<(u64, Change)>,
    comms: Vec<Arc<[u8]>>,
}

struct Change {
    pid: u32,
    to: Name,
}

/// The name of a process. Millions of processes may have their parent's name.
enum Name {
    Comm(u32),
    Of(u32),
}

impl Processes {
    fn of(batch: &Batch) -> Result<Processes> {
        let mut processes = Processes::default();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(Kinds::ALL, usize::MAX)? {
            processes.add(&record, &batch.layouts);
        }
        Ok(processes)
    }

    fn add(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let pid = layouts.process(record);
        if pid != self.last.0 {
            self.count_last();
            self.last.0 = pid;
        }
        self.last.1.add(record.whole_size());
        if matches!(record.kind(), RecordType::COMM | RecordType::FORK) {
            let time = layouts.recorded_time(record).unwrap_or(0);
            let change = self.change(record, layouts);
            self.changes.extend(change.map(|change| (time, change)));
        }
    }

    fn count_last(&mut self) {
        let count = std::mem::take(&mut self.last.1);
        self.records.entry(self.last.0).or_default().join(count);
    }

    fn join(&mut self, mut later: Processes) {
        later.count_last();
        for (pid, count) in later.records {
            self.records.entry(pid).or_default().join(count);
        }
        let before = self.comms.len() as u32;
        self.comms.extend(later.comms);
        self.changes.extend(later.changes.into_iter().map(|(time, mut change)| {
            if let Name::Comm(comm) = &mut change.to {
                *comm += before;
            }
            (time, change)
        }));
    }

    /// Reads a change of name. A process has the name of its main thread.
    fn change(&mut self, record: &Record<'_>, layouts: &Layouts) -> Option<Change> {
        let decoded = decode(record, layouts);
        let number = |name| decoded.get(name)?.number().and_then(|number| u32::try_from(number).ok());
        let pid = number("pid")?;
        if record.kind() == RecordType::FORK {
            let parent = number("ppid")?;
            return (pid != parent).then_some(Change { pid, to: Name::Of(parent) });
        }
        let comm = decoded.get("comm")?.text()?;
        if number("tid")? != pid {
            return None;
        }
        self.comms.push(comm.into());
        Some(Change { pid, to: Name::Comm(self.comms.len() as u32 - 1) })
    }

    /// The index of each process's last name, whatever the order of records in the file.
    fn names(&mut self) -> HashMap<u32, u32> {
        let mut names = HashMap::new();
        self.changes.sort_by_key(|(time, _)| *time);
        for (_, Change { pid, to }) in std::mem::take(&mut self.changes) {
            let comm = match to {
                Name::Comm(comm) => Some(comm),
                Name::Of(parent) => names.get(&parent).copied(),
            };
            names.extend(comm.map(|comm| (pid, comm)));
        }
        names
    }

    fn by_size(mut self) -> Vec<Process> {
        let names = self.names();
        let comm = |pid: u32| {
            let comm = names.get(&pid).and_then(|&comm| self.comms.get(comm as usize));
            Text(comm.map_or_else(|| name_of_nameless(pid).into(), Arc::clone))
        };
        let used = self.records.into_iter().filter(|(_, count)| count.records > 0);
        let mut all: Vec<_> = used.collect();
        all.sort_unstable_by_key(|(pid, count)| (Reverse(count.bytes), *pid));
        let process = |(pid, count): (Option<u32>, Count)| Process {
            pid: pid.map(|pid| pid as i32),
            comm: pid.filter(|&pid| pid != KERNEL).map(comm),
            records: count.records,
            bytes: count.bytes,
        };
        all.into_iter().map(process).collect()
    }
}
