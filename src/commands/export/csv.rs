//! `perfx export csv` writes the four tables of CERN's readperf for any recording.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use perfx_export::csv::{TABLES, write_tables};
use perfx_pipeline::{Level, Report, counted};
use perfx_resolve::IdOptions;

use super::folder::{Folder, check_folder};
use super::input::ChosenArgs;
use crate::args::ThreadArgs;
use crate::io::source::{InputsArgs, Source, each_input, temp_files};
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Write stat.csv, overview.csv, processes.csv and results.csv into a folder
///
///   stat.csv       records by kind: kind, count
///   overview.csv   one row per record, sorted by time: nr, kind, pid, tid, time (ns), info
///   processes.csv  one row per process: pid, comm, mappings, fork, exit (ns), samples, period
///   results.csv    what was sampled: event, dso, symbol (or address), samples, period
///
/// Samples and periods are those of perf report -n. Symbols come from the recorded files themselves,
/// as long as their build-id or inode is still the recorded one, from their debug files, and from the
/// running kernel if it is the recorded one.
///
/// Of several recordings, each has its tables in a folder of its own in DIR, named after the recording.
///
/// Options that select samples, such as --time and --symbol, write the tables of what perfx filter
/// would keep.
///
/// Examples:
///   perfx export csv perf.data --dir tables
///   perfx export csv perf.data --dir tables --root /srv/image --buildid-dir ~/.debug
///   perfx export csv @recordings.txt --dir tables
///   perf record -o - ./program | perfx export csv - --dir tables --no-files
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Csv {
    #[command(flatten)]
    inputs: InputsArgs,
    /// Folder to write to; it is created if necessary
    #[arg(short = 'o', long, value_name = "DIR", visible_alias = "output")]
    dir: PathBuf,
    /// Overwrite existing files
    #[arg(short, long)]
    force: bool,
    /// Dry run: report what would be done, write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    chosen: ChosenArgs,
    #[command(flatten, next_help_heading = "Options")]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Csv {
    pub(crate) fn run(&self) -> Result<u8> {
        let (ids, sources) = (self.chosen.ids()?, self.inputs.sources()?);
        if let [source] = &sources[..] {
            return self.export(source, &ids, &self.dir);
        }
        check_folder(&self.dir)?;
        let mut names = Source::names(&sources).into_iter();
        each_input(&sources, "have no tables", |source| {
            self.export(source, &ids, &self.dir.join(names.next().unwrap_or_default()))
        })
    }

    /// Exports one recording into a folder; returns the exit code for it.
    fn export(&self, source: &Source, ids: &IdOptions, dir: &Path) -> Result<u8> {
        let mut recording = source.open()?;
        let threads = self.threads.count(&recording);
        recording.check_whole()?;
        let folder = Folder::new(dir, &TABLES, source, self.force, self.dry_run)?;
        if !recording.is_rereadable() {
            recording = recording.spooled(&temp_files())?;
        }
        let mut report = Report::default();
        recording = self.chosen.applied(recording, threads, &mut report)?;
        let selected = report.bytes;
        // First the names, then the events.
        recording.progress().expect(2);
        let bar = self.verbosity.progress(&recording);
        let create = |name: &str| {
            folder.create(name).map_err(|error| perfx_pipeline::Error::new(format!("{error:#}")))
        };
        let spill = temp_files()()?;
        let filter = self.chosen.filter()?;
        let rows = write_tables(&mut recording, ids, &filter, spill, create, threads, &mut report)?;
        let read = counted(report.records, "record", "records");
        let bytes = if selected > 0 { selected } else { report.bytes };
        let read = format!("read {}: {read}, {}", recording.name, size(bytes));
        report.lines.insert(0, (Level::Info, read));
        folder.commit()?;
        drop(bar);
        let done = if self.dry_run { "would write" } else { "wrote" };
        let rows: Vec<String> =
            TABLES.iter().zip(rows).map(|(name, rows)| format!("{name} ({rows})")).collect();
        report.say(Level::Info, format!("{done} {}, rows: {}", dir.display(), rows.join(", ")));
        Ok(self.verbosity.print(&report))
    }
}
