//! `perfx decompress` undoes `perf record -z` and `perfx compress`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Args;
use perfx_format::read::{Chain, Form, Recording};
use perfx_passes::{Decompress as Pass, DecompressOptions};
use perfx_pipeline::{Job, Level, Output, OutputForm};

use crate::args::Usage;
use crate::io::output::{MoreArgs, OutputPath, Rules, Target, WriteArgs, with_folders};
use crate::io::source::{Source, temp_files};
use crate::term::report::message;
use crate::term::units::size;

/// Decompress a recording
///
/// `perf record -z --switch-output` writes one zstd stream across all of its files, so perf can read
/// only the first. --chain takes all of them, oldest first, and makes each one readable.
///
/// Examples:
///   perfx decompress z.data -o plain.data
///   perfx decompress --salvage damaged.data -o rest.data
///   perfx decompress -o plain --chain perf.data.2026*
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Decompress {
    #[command(flatten)]
    options: DecompressOptions,
    /// The files of perf record --switch-output, oldest first; -o is the directory to write them to, under their own names
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["positional", "input", "more", "to"])]
    chain: Vec<PathBuf>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    more: MoreArgs,
}

/// Adds a hint: a missing file of a chain can make another one unreadable.
pub(crate) fn broken_chain(error: anyhow::Error, name: &str, after: Option<&PathBuf>) -> anyhow::Error {
    match after {
        Some(after) => {
            anyhow!(
                "{}; is a file of the chain missing between {} and {name}?",
                message(&error),
                after.display()
            )
        }
        None => error,
    }
}

impl Decompress {
    pub(crate) fn run(&self) -> Result<u8> {
        if self.chain.is_empty() {
            return self.write.each(&self.more, |write| write.transform("decompress", vec![self.pass()]));
        }
        let Some(folder) = self.write.output.as_deref().filter(|_| !self.write.in_place) else {
            if self.write.in_place {
                return self.decompress_chain(None);
            }
            bail!(Usage("--chain writes several files: give -o DIRECTORY, or --in-place".into()));
        };
        if self.write.dry_run {
            return self.decompress_chain(Some(folder));
        }
        with_folders(&BTreeSet::from([folder]), || self.decompress_chain(Some(folder)))
    }

    fn pass(&self) -> Box<Pass> {
        Box::new(Pass::new(self.options))
    }

    /// Decompresses one file after the other; no output gets its name before all are written.
    fn decompress_chain(&self, folder: Option<&Path>) -> Result<u8> {
        let (mut made, mut reports) = (Vec::new(), Vec::new());
        let mut chain = Chain::default();
        let targets: Vec<PathBuf> =
            self.chain.iter().map(|path| self.target(path, folder)).collect::<Result<_>>()?;
        for (index, (path, target)) in self.chain.iter().zip(&targets).enumerate() {
            ensure!(!targets[..index].contains(target), "{} is given twice", target.display());
            let mut recording = Recording::open(path)?;
            let name = recording.name.clone();
            ensure!(
                !matches!(recording.form, Form::Directory { .. }),
                "{name} is a directory; --chain takes files"
            );
            chain.last = index + 1 == self.chain.len();
            recording.continue_from(chain.clone());
            let form = match recording.form {
                Form::Pipe if self.write.in_place => OutputForm::Pipe,
                _ => OutputForm::File,
            };
            let threads = self.write.threads.count(&recording);
            let job = Job { recording, passes: vec![self.pass()], threads, temp_files: temp_files() };
            let after = index.checked_sub(1).map(|before| &self.chain[before]);
            let outcome = if self.write.dry_run {
                job.run(Output::Nowhere(form)).map_err(|error| broken_chain(error.into(), &name, after))?
            } else {
                let place = OutputPath::new(target, self.write.existing());
                let place = if self.write.in_place { place.changed(&job.recording) } else { place };
                let made_file = place.make_file(job, form);
                let (temporary, outcome) = made_file.map_err(|error| broken_chain(error, &name, after))?;
                made.push((temporary, place));
                outcome
            };
            let mut report = outcome.report;
            if index > 0 && report.has_loss() {
                let what = "a file of the chain may be missing: give all of them, oldest first";
                report.say(Level::Warning, what);
            }
            let would = if self.write.dry_run { "would write" } else { "wrote" };
            report.say(Level::Info, format!("{would} {}: {}", target.display(), size(outcome.written)));
            reports.push(report);
        }
        // The last one first: a file can be read only while all files before it are still compressed.
        for (temporary, place) in made.into_iter().rev() {
            place.commit(temporary)?;
        }
        for (target, report) in targets.iter().zip(&mut reports) {
            self.write.make_index(target, report);
        }
        // The reports name the written files, so they are printed last.
        Ok(reports.iter().map(|report| self.write.verbosity.print(report)).max().unwrap_or(0))
    }

    fn target(&self, path: &Path, folder: Option<&Path>) -> Result<PathBuf> {
        let Some(folder) = folder else {
            return fs::canonicalize(path).with_context(|| path.display().to_string());
        };
        let target = folder.join(path.file_name().unwrap_or_default());
        let inputs: Vec<Source> = self.chain.iter().cloned().map(Source::Path).collect();
        Rules { folders: false, ..self.write.rules(&inputs) }.check(&Target::at(target.clone()))?;
        Ok(target)
    }
}
