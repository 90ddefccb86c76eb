//! `perfx du` shows where the bytes of a recording are: every byte of the input belongs to one part, and the
//! bytes of records also to a kind, an event and a process.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;
use perfx_format::decode::decode;
use perfx_format::event_name::EventName;
use perfx_format::header::{FileHeader, PIPE_HEADER_SIZE};
use perfx_format::parts::What;
use perfx_format::read::{Batch, Fragment, Recording};
use perfx_format::section::Section;
use perfx_format::{Bytes, Feature, Kinds, Layouts, Origin, Record, RecordType, Value};
use perfx_look::json::{FormName, ShownValue};
use perfx_look::render::{self, kind_name};
use perfx_model::address_space::{KERNEL, name_of_nameless};
use perfx_pipeline::Report;
use serde_json::{Value as Json, json};

use crate::args::ReadArgs;
use crate::io::source::{InputArgs, Source};
use crate::tally::{ByKind, Count, Counted, count_with};
use crate::term::units::{self, percent, table};

/// Show where the bytes of a recording are: header, records by kind, event and process, features
///
/// The parts add up to the size of the file, or of all files of a directory. Holes are bytes that
/// nothing in the file points at. Compressed records are shown twice: as they are stored, and as the
/// records they expand to. The figures of events and processes count expanded records.
///
/// Examples:
///   perfx du perf.data
///   perfx du --json perf.data | jq '.processes[0]'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Du {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// Version of the JSON form.
const SCHEMA: u32 = 1;

/// The number of processes shown in text; JSON has all.
const SHOWN: usize = 20;

impl Du {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut recording = Source::of(&self.input).open()?;
        let mut report = Report::default();
        let bar = self.read.verbosity.progress(&recording);
        let usage = Usage::of(&mut recording, self.read.threads.count(), &mut report)?;
        drop(bar);
        self.read.format.print(|| usage.text(), || usage.document(&recording))?;
        Ok(self.read.verbosity.print(&report))
    }
}

/// The output of `perfx du --json`.
pub fn document(recording: &mut Recording, threads: usize) -> Result<Json> {
    Ok(Usage::of(recording, threads, &mut Report::default())?.document(recording))
}

/// The result for a recording.
struct Usage {
    parts: Parts,
    counted: Counted,
    processes: Vec<Process>,
    /// The names of processes.
    comms: Vec<Box<[u8]>>,
}

/// Where the bytes of the input are.
#[derive(Default)]
struct Parts {
    /// Name and bytes, in the order of a file. The bytes add up to the size of the input.
    rows: Vec<(String, u64)>,
    /// The holes in the rows: offset and bytes.
    holes: Vec<Section>,
    /// The sections of features: for a file those in the row of that name, for pipe data parts of its
    /// records.
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
                Some((name, sum)) if name == what.name() => *sum += bytes,
                _ => parts.rows.push((what.name().to_owned(), bytes)),
            }
            if what == What::Records && fragment > 0 {
                parts.rows.push(("torn records".to_owned(), fragment));
            }
        }
        if recording.left_out > 0 {
            parts.rows.push(("damaged header records".to_owned(), recording.left_out));
        }
        for extra in &recording.extras {
            let name = extra.file_name().unwrap_or_default().to_string_lossy().into_owned();
            parts.rows.push((name, tree_size(extra).with_context(|| extra.display().to_string())?));
        }
        Ok(parts)
    }

    fn total(&self) -> u64 {
        self.rows.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Bytes of all files below a path.
fn tree_size(path: &Path) -> io::Result<u64> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let entries = fs::read_dir(path)?;
    entries.map(|entry| tree_size(&entry?.path())).sum()
}

/// Records by process, and the names of processes.
#[derive(Default)]
struct Processes {
    records: HashMap<Option<u32>, Count>,
    /// In the order of the records, with times in ns.
    changes: Vec<(u64, Change)>,
    /// The names in COMM records.
    comms: Vec<Box<[u8]>>,
}

/// A change of a process's name.
struct Change {
    pid: u32,
    to: Name,
}

/// A name of a process. There may be millions of processes with their parent's name.
enum Name {
    /// By its index among the names.
    Comm(u32),
    /// The name of another process.
    Of(u32),
}

/// A process with its last name.
struct Process {
    /// `None` for records without a process.
    pid: Option<u32>,
    /// Index of the name; `None` if no record names the process.
    comm: Option<u32>,
    records: Count,
}

impl Processes {
    fn of(batch: &Batch) -> perfx_pipeline::Result<Processes> {
        let mut processes = Processes::default();
        let mut walker = batch.walk();
        // Most records have the same process as the previous one.
        let (mut last, mut count) = (None, Count::default());
        while let Some(record) = walker.next_wanted(Kinds::ALL, usize::MAX)? {
            let pid = batch.layouts.process(&record);
            if pid != last {
                processes.records.entry(last).or_default().join(count);
                (last, count) = (pid, Count::default());
            }
            count.add(record.whole_size());
            if matches!(record.kind(), RecordType::COMM | RecordType::FORK) {
                let time = batch.layouts.time(&record).unwrap_or(0);
                let change = processes.change(&record, &batch.layouts);
                processes.changes.extend(change.map(|change| (time, change)));
            }
        }
        processes.records.entry(last).or_default().join(count);
        Ok(processes)
    }

    fn join(&mut self, later: Processes) {
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

    /// Takes in a change of name. The name of a process is that of its main thread.
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

    /// The index of each process's last name, wherever in the file the records are.
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

    /// The processes with the largest first, and the names.
    fn by_size(mut self) -> (Vec<Process>, Vec<Box<[u8]>>) {
        let names = self.names();
        let used = self.records.into_iter().filter(|(_, records)| records.records > 0);
        let process = |(pid, records): (Option<u32>, _)| {
            let comm = pid.and_then(|pid| names.get(&pid)).copied();
            Process { pid, comm, records }
        };
        let mut all: Vec<Process> = used.map(process).collect();
        all.sort_unstable_by_key(|process| (Reverse(process.records.bytes), process.pid));
        (all, self.comms)
    }
}

impl Usage {
    fn of(recording: &mut Recording, threads: usize, report: &mut Report) -> Result<Usage> {
        let mut processes = Processes::default();
        let work = Processes::of;
        let counted = count_with(recording, threads, report, work, |later| processes.join(later))?;
        let (processes, comms) = processes.by_size();
        Ok(Usage { parts: Parts::of(recording, &counted)?, counted, processes, comms })
    }

    fn text(&self) -> String {
        let Usage { parts, counted, processes, comms } = self;
        let tally = &counted.tally;
        let line = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let part =
            |name: &str, bytes: u64, of: u64| vec![name.to_owned(), units::count(bytes), percent(bytes, of)];
        let total = parts.total();
        let mut rows = vec![line(&["part", "bytes"])];
        rows.extend(parts.rows.iter().map(|(name, bytes)| part(name, *bytes, total)));
        rows.push(part("all", total, total));
        let mut text = table(&rows);

        let row = |name: String, count: Count, of: u64| {
            let share = percent(count.bytes, of);
            vec![name, units::count(count.bytes), share, units::count(count.records)]
        };
        let mut kinds = |title: &str, kinds: &ByKind| {
            let all = kinds.total();
            let mut rows = vec![line(&[title, "bytes", "", "records"])];
            rows.extend(kinds.iter().map(|(kind, count)| row(kind_name(kind), count, all.bytes)));
            rows.push(row("all".to_owned(), all, all.bytes));
            text += "\n";
            text += &table(&rows);
        };
        kinds("records", &tally.stored);
        if tally.compressed().records > 0 {
            kinds("compressed records hold", &tally.expanded);
        }

        let opened = self.opened();
        let mut rows = vec![line(&["samples of", "bytes", "", "records"])];
        for (index, name) in counted.names.iter().enumerate() {
            let of = tally.events.get(index).copied().unwrap_or_default();
            rows.push(row(render::readable(&name.name), of.samples, opened));
        }
        text += "\n";
        text += &table(&rows);

        let mut rows = vec![line(&["process", "bytes", "", "records"])];
        rows.extend(
            processes.iter().take(SHOWN).map(|process| row(process.name(comms), process.records, opened)),
        );
        let mut others = Count::default();
        let behind = processes.iter().skip(SHOWN);
        behind.for_each(|process| others.join(process.records));
        if others.records > 0 {
            rows.push(row(format!("{} others", processes.len() - SHOWN), others, opened));
        }
        text += "\n";
        text += &table(&rows);

        let mut rows = vec![line(&["feature", "bytes"])];
        rows.extend(parts.features.iter().map(|(feature, &bytes)| part(&feature.to_string(), bytes, total)));
        text += "\n";
        text += &table(&rows);
        if !parts.holes.is_empty() {
            let hole = |hole: &Section| vec![format!("{:#x}", hole.offset), units::count(hole.size)];
            let mut rows = vec![line(&["hole at", "bytes"])];
            rows.extend(parts.holes.iter().take(SHOWN).map(hole));
            if parts.holes.len() > SHOWN {
                rows.push(vec![format!("{} others", parts.holes.len() - SHOWN)]);
            }
            text += "\n";
            text += &table(&rows);
        }
        text
    }

    /// Bytes of all records, with compressed ones counted by their contents.
    fn opened(&self) -> u64 {
        let tally = &self.counted.tally;
        tally.stored.total().bytes - tally.compressed().bytes + tally.expanded.total().bytes
    }

    fn document(&self, recording: &Recording) -> Json {
        let Usage { parts, counted, processes, comms } = self;
        let tally = &counted.tally;
        let kinds = |kinds: &ByKind| {
            let kind = |(kind, count): (RecordType, Count)| json!({ "kind": kind_name(kind), "type": kind.0, "records": count.records, "bytes": count.bytes });
            kinds.iter().map(kind).collect::<Vec<_>>()
        };
        let event = |(index, name): (usize, &EventName)| {
            let of = tally.events.get(index).copied().unwrap_or_default().samples;
            json!({ "name": ShownValue(&Value::Text(&name.name)), "samples": of.records, "bytes": of.bytes })
        };
        let process = |process: &Process| {
            let comm = process.comm(comms).map(|comm| json!(ShownValue(&Value::Text(&comm))));
            let Count { records, bytes, .. } = process.records;
            json!({ "pid": process.signed_pid(), "comm": comm, "records": records, "bytes": bytes })
        };
        let feature = |(feature, bytes): (&Feature, &u64)| json!({ "feature": feature.name().unwrap_or("unknown"), "bit": feature.0, "bytes": bytes });
        let part = |(name, bytes): &(String, u64)| json!({ "part": name, "bytes": bytes });
        let hole = |hole: &Section| json!({ "offset": format!("{:#x}", hole.offset), "bytes": hole.size });
        json!({
            "schema": SCHEMA,
            "what": "du",
            "form": FormName(recording.form),
            "bytes": parts.total(),
            "parts": parts.rows.iter().map(part).collect::<Vec<_>>(),
            "stored": kinds(&tally.stored),
            "expanded": kinds(&tally.expanded),
            "events": counted.names.iter().enumerate().map(event).collect::<Vec<_>>(),
            "processes": processes.iter().map(process).collect::<Vec<_>>(),
            "features": parts.features.iter().map(feature).collect::<Vec<_>>(),
            "holes": parts.holes.iter().map(hole).collect::<Vec<_>>(),
        })
    }
}

impl Process {
    /// The kernel's pid is -1.
    fn signed_pid(&self) -> Option<i32> {
        self.pid.map(|pid| pid as i32)
    }

    /// The process's name; `None` for the kernel.
    fn comm<'a>(&self, comms: &'a [Box<[u8]>]) -> Option<Cow<'a, [u8]>> {
        let pid = self.pid.filter(|&pid| pid != KERNEL)?;
        let comm = self.comm.and_then(|comm| comms.get(comm as usize));
        Some(comm.map_or_else(|| name_of_nameless(pid).into(), |comm| Cow::Borrowed(&**comm)))
    }

    fn name(&self, comms: &[Box<[u8]>]) -> String {
        match (self.signed_pid(), self.comm(comms)) {
            (None, _) => "(no process)".to_owned(),
            (Some(pid), None) => pid.to_string(),
            (Some(pid), Some(comm)) => format!("{pid} {}", render::readable(&comm)),
        }
    }
}
