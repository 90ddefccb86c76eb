//! `perfx export csv` writes the four tables of CERN's readperf for any recording.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::Result;
use clap::Args;
use perfx_export::csv::{TABLES, write_tables};
use perfx_pipeline::{Level, Report};
use perfx_resolve::IdOptions;

use super::input::StackArgs;
use crate::io::output::{Existing, NewFiles, check_folder};
use crate::io::source::{InputsArgs, Source, each_input, temp_files};

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
/// The tables of each of several recordings are in a folder of their own in DIR, named after the recording.
///
/// Options that select samples, such as --time and --symbol, write the tables of the records that perfx
/// filter would keep.
///
/// Examples:
///   perfx export csv perf.data --dir tables
///   perfx export csv perf.data --dir tables --root /srv/image --buildid-dir ~/.debug
///   perfx export csv @recordings.txt --dir tables
///   perf record -o - ./program | perfx export csv - --dir tables --foreign
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
    stacks: StackArgs,
}

impl Csv {
    pub(crate) fn run(&self) -> Result<u8> {
        let (ids, sources) = (self.stacks.ids()?, self.inputs.sources()?);
        if let [source] = &sources[..] {
            return self.export(source, &ids, &self.dir);
        }
        check_folder(&self.dir, &[], &[], Existing::Keep)?;
        let mut names = Source::names(&sources).into_iter();
        each_input(&sources, "have no tables", |source| {
            self.export(source, &ids, &self.dir.join(names.next().unwrap_or_default()))
        })
    }

    fn export(&self, source: &Source, ids: &IdOptions, dir: &Path) -> Result<u8> {
        let mut recording = source.open()?;
        let threads = self.stacks.threads.count(&recording);
        recording.check_whole()?;
        let existing = Existing::forced(self.force);
        check_folder(dir, &TABLES, slice::from_ref(source), existing)?;
        let files = NewFiles::below(dir)?;
        if !recording.is_rereadable() {
            recording = recording.spooled(&temp_files())?;
        }
        let mut report = Report::default();
        recording = self.stacks.applied(recording, &mut report)?;
        let selected = report.read.bytes;
        // First for names, then for events.
        recording.progress().expect(2);
        let bar = self.stacks.verbosity.progress(&recording);
        let create = |name: &str| -> perfx_pipeline::Result<Box<dyn Write>> {
            if self.dry_run {
                return Ok(Box::new(io::sink()));
            }
            let file = files.create(dir.join(name));
            Ok(file.map_err(|error| perfx_pipeline::Error::new(format!("{error:#}")))?)
        };
        let spill = temp_files()()?;
        let filter = self.stacks.filter()?;
        let rows = write_tables(&mut recording, ids, &filter, spill, create, threads, &mut report)?;
        report.read.name = Some(recording.name.clone());
        if selected > 0 {
            report.read.bytes = selected;
        }
        files.commit(existing, Path::to_owned)?;
        drop(bar);
        let done = if self.dry_run { "would write" } else { "wrote" };
        let rows: Vec<String> =
            TABLES.iter().zip(rows).map(|(name, rows)| format!("{name} ({rows})")).collect();
        report.say(Level::Info, format!("{done} {}, rows: {}", dir.display(), rows.join(", ")));
        Ok(self.stacks.verbosity.print(&report))
    }
}
