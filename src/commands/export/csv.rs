//! `perfx export csv` writes the four tables of CERN's readperf for any recording.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use csv::Writer;
use perfx_format::RecordType;
use perfx_format::read::Recording;
use perfx_look::render::kind_name;
use perfx_passes::{IdOptions, SearchArgs};
use perfx_pipeline::{Level, Report, counted};

use super::cell::plain;
use super::folder::Folder;
use super::gather::{self, Gathered};
use super::names::{Naming, name_hits};
use crate::args::{ThreadArgs, usage};
use crate::io::source::{InputArgs, Source, temp_files};
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Write stat.csv, overview.csv, processes.csv and results.csv into a folder
///
/// stat.csv       records by kind: kind, count
/// overview.csv   one row per record, sorted by time: nr, kind, pid, tid, time (ns), info
/// processes.csv  one row per process: pid, comm, mappings, fork, exit (ns), samples, period
/// results.csv    what was sampled: event, dso, symbol (or address), samples, period
///
/// Samples and periods are those of perf report -n. Symbols come from the recorded files themselves,
/// as long as their build-id or inode is still the recorded one, from their debug files, and from the
/// running kernel if it is the recorded one.
///
/// Examples:
///   perfx export csv perf.data --dir tables
///   perfx export csv perf.data --dir tables --root /srv/image --buildid-dir ~/.debug
///   perf record -o - ./program | perfx export csv - --dir tables --no-files
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Csv {
    #[command(flatten)]
    input: InputArgs,
    /// Folder to write to; it is created if necessary
    #[arg(short = 'o', long, value_name = "DIR", visible_alias = "output")]
    dir: PathBuf,
    /// Overwrite existing files
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    search: SearchArgs,
    /// Dry run: report what would be done, write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

const STAT: &str = "stat.csv";
const OVERVIEW: &str = "overview.csv";
const PROCESSES: &str = "processes.csv";
const RESULTS: &str = "results.csv";

impl Csv {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.search.clone().options(None).map_err(usage)?;
        let source = Source::of(&self.input);
        let mut recording = source.open()?;
        recording.check_whole()?;
        const NAMES: &[&str] = &[STAT, OVERVIEW, PROCESSES, RESULTS];
        let folder = Folder::new(&self.dir, NAMES, &source, self.force, self.dry_run)?;
        if !recording.is_rereadable() {
            recording = recording.spooled(&temp_files())?;
        }
        let mut report = Report::default();
        // First the names, then the events.
        recording.progress().expect(2);
        let bar = self.verbosity.progress(&recording);
        let rows = self.write(&mut recording, &folder, &ids, &mut report)?;
        folder.commit()?;
        drop(bar);
        let done = if self.dry_run { "would write" } else { "wrote" };
        let rows: Vec<String> =
            NAMES.iter().zip(rows).map(|(name, rows)| format!("{name} ({rows})")).collect();
        report.say(Level::Info, format!("{done} {}, rows: {}", self.dir.display(), rows.join(", ")));
        Ok(self.verbosity.print(&report))
    }

    /// Writes the tables; returns the number of rows of each.
    fn write(
        &self,
        recording: &mut Recording,
        folder: &Folder,
        ids: &IdOptions,
        report: &mut Report,
    ) -> Result<[u64; 4]> {
        let threads = self.threads.count();
        let facts = gather::look(recording, threads)?;
        let gathered = gather::gather(recording, &facts, temp_files()()?, threads, report)?;
        let records = gathered.overview.records();
        let read = counted(records, "record", "records");
        report
            .lines
            .insert(0, (Level::Info, format!("read {}: {read}, {}", recording.name, size(report.bytes))));
        if gathered.astray > 0 {
            let samples = counted(gathered.astray, "sample belongs", "samples belong");
            report.say(
                Level::Loss,
                format!("{samples} to no event of the recording, so {RESULTS} does not count them"),
            );
        }
        let naming = name_hits(&gathered.hits, &facts, &recording.features, recording.endian, ids);
        let dsos = naming.with_symbols + naming.without.len() as u64;
        report.say(
            Level::Info,
            format!("found symbols of {} of {}", naming.with_symbols, counted(dsos, "DSO", "DSOs")),
        );
        naming.without.iter().for_each(|name| report.say(Level::Detail, format!("no symbols: {name}")));
        let stat = stat(&gathered, folder.create(STAT)?)?;
        let processes = processes(&gathered, folder.create(PROCESSES)?)?;
        let results = results(&naming, &facts.events, folder.create(RESULTS)?)?;
        let overview = overview(gathered, folder.create(OVERVIEW)?)?;
        Ok([stat, overview, processes, results])
    }
}

/// Writes a row for every known kind, also with count 0, so that the tables of several recordings have the
/// same rows; then the unknown kinds.
fn stat(gathered: &Gathered, out: impl Write) -> Result<u64> {
    let mut kinds = gathered.kinds.clone();
    for &kind in RecordType::NAMED {
        kinds.entry(kind).or_default();
    }
    let mut table = Writer::from_writer(out);
    table.write_record(["kind", "count"])?;
    for (kind, count) in &kinds {
        table.write_record([kind_name(*kind), count.to_string()])?;
    }
    table.flush()?;
    Ok(kinds.len() as u64)
}

fn overview(gathered: Gathered, mut out: impl Write) -> Result<u64> {
    let rows = gathered.overview.records();
    out.write_all(b"nr,kind,pid,tid,time,info\n")?;
    gathered.overview.write(&mut out)?;
    out.flush()?;
    Ok(rows)
}

fn processes(gathered: &Gathered, out: impl Write) -> Result<u64> {
    let mut table = Writer::from_writer(out);
    table.write_record(["pid", "comm", "mappings", "fork", "exit", "samples", "period"])?;
    for (pid, comm, process) in gathered.processes.named() {
        let comm = plain(&comm).into_owned();
        let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        table.write_record([
            pid.map(|pid| (pid as i32).to_string()).unwrap_or_default(),
            comm,
            process.mappings.to_string(),
            text(process.fork),
            text(process.exit),
            process.count.samples.to_string(),
            process.count.period.to_string(),
        ])?;
    }
    table.flush()?;
    Ok(gathered.processes.len() as u64)
}

/// Writes the results by event, the most sampled first.
fn results(naming: &Naming, events: &[gather::Named], out: impl Write) -> Result<u64> {
    let mut rows: Vec<_> = naming.results.iter().collect();
    // The sort is stable: among equals the order of names stays.
    rows.sort_by_key(|((event, ..), count)| (*event, std::cmp::Reverse((count.period, count.samples))));
    let mut table = Writer::from_writer(out);
    table.write_record(["event", "dso", "symbol", "samples", "period"])?;
    for ((event, dso, symbol), count) in &rows {
        let event = events.get(*event as usize).map_or("", |event| &event.name);
        table.write_record([event, dso, symbol, &count.samples.to_string(), &count.period.to_string()])?;
    }
    table.flush()?;
    Ok(rows.len() as u64)
}
