//! Writes a recording by the options common to all commands that write one.

use std::fs;
use std::mem::take;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use perfx_format::Endian;
use perfx_format::read::{Form, Recording};
use perfx_format::write::folder;
use perfx_pipeline::{Job, Level, Outcome, Output, OutputForm, Pass, Report, counted};
use rustix::process::geteuid;

use crate::args::{ThreadArgs, Usage};
use crate::io::index_file::index_path;
use crate::io::make_index::make_index;
use crate::io::output::made::{put_made, write};
use crate::io::output::names::OutputPath;
use crate::io::output::place::{Existing, Rules, Target, check_writable};
use crate::io::source::{InputArgs, InputsArgs, Source, each_input, temp_files};
use crate::io::streams;
use crate::term::report::{VerbosityArgs, message};
use crate::term::units::size;

/// How to write a recording.
#[derive(Args, Debug, Clone)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write to this file; - is standard output [default: standard output, or on a terminal a file beside the input]
    #[arg(help_heading = "Output", short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Form of the output [default: pipe on standard output, else file]
    #[arg(help_heading = "Output", long, value_name = "FORM", value_parser = forms())]
    pub(crate) to: Option<OutputForm>,
    /// Overwrite an existing output
    #[arg(help_heading = "Output", short, long)]
    pub(crate) force: bool,
    /// Overwrite, keeping the old file as FILE.old (replacing an earlier FILE.old)
    #[arg(help_heading = "Output", long)]
    pub(crate) backup: bool,
    /// Change the input file itself; if that fails or is interrupted, nothing in it is lost
    #[arg(help_heading = "Output", long, conflicts_with_all = ["output", "to"])]
    pub(crate) in_place: bool,
    /// Also write an index of the output, as perfx index does
    #[arg(help_heading = "Output", long)]
    pub(crate) index: bool,
    /// Dry run: report what would be done, write nothing
    #[arg(help_heading = "Output", short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) verbosity: VerbosityArgs,
}

/// More inputs of a command that changes each of them in place.
#[derive(Args, Debug, Clone)]
pub(crate) struct MoreArgs {
    /// With --in-place, more recordings; @FILE is a list of recordings, one per line
    #[arg(help_heading = "Input", value_name = "INPUT")]
    more: Vec<PathBuf>,
}

fn forms() -> impl TypedValueParser<Value = OutputForm> {
    let file = PossibleValue::new("file").help("A file with a header, as perf record writes it");
    let pipe = PossibleValue::new("pipe").help("A stream, as perf record -o - writes it");
    let form = |name: String| if name == "pipe" { OutputForm::Pipe } else { OutputForm::File };
    PossibleValuesParser::new([file, pipe]).map(form)
}

/// perf swaps all fields of records in a file, but only some in pipe data.
const SWAPPED_PIPE: &str = "the recording is big-endian: perf on a little-endian machine misreads big-endian pipe data, so \
                            write a file for it (--to file)";

impl WriteArgs {
    /// The input, after checking that --in-place can change it: opening a FIFO would wait for a writer.
    pub(crate) fn source(&self) -> Result<Source> {
        let source = Source::of(&self.input);
        if let (true, Source::Path(path)) = (self.in_place, &source) {
            // Reading a FIFO or device consumes its data.
            let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
            if !metadata.is_file() && !metadata.is_dir() {
                bail!(Usage(format!("{} is not a file, so it can't be changed in place", path.display())));
            }
        }
        Ok(source)
    }

    /// Does the work on the input, or with `--in-place` on each of several, even if one fails; that one is
    /// unchanged. Returns the exit code.
    pub(crate) fn each(&self, more: &MoreArgs, work: impl Fn(&WriteArgs) -> Result<u8>) -> Result<u8> {
        if !self.in_place {
            let Some(more) = more.more.first().map(|more| more.display()) else { return work(self) };
            // --in-place would change a file that the user meant as the output, so it is not suggested.
            bail!(Usage(format!("unexpected argument '{more}': to write to {more}, give -o {more}")));
        }
        let named = self.input.all().chain(&more.more).cloned().collect();
        let sources = InputsArgs::of(named).sources()?;
        each_input(&sources, "are unchanged", |source| {
            work(&WriteArgs { input: InputArgs::of(source), ..self.clone() })
        })
    }

    /// True if a failed run can begin again: its input can be read twice, and its output is a file.
    pub(crate) fn can_run_again(&self, command: &str, source: &Source) -> Result<bool> {
        let input = source.metadata().filter(|_| *source != Source::Stdin);
        let is_stored = input.is_some_and(|found| found.is_file() || found.is_dir());
        Ok(is_stored && self.target(command, source)?.0.path().is_some())
    }

    /// The destination and, if perfx chose it, the reason.
    fn target(&self, command: &str, source: &Source) -> Result<(Target, Option<&'static str>)> {
        if self.in_place {
            let Source::Path(path) = source else {
                bail!(Usage("standard input can't be changed in place".into()));
            };
            if path.is_dir() {
                bail!(Usage("a directory can't be changed in place: give -o".into()));
            }
            // The file is replaced, not the link to it.
            return Ok((Target::resolved(path)?, None));
        }
        let (target, why) = match &self.output {
            None if streams::stdout().is_terminal() => {
                (Target::named(&beside(source, command))?, Some("standard output is a terminal"))
            }
            output => (Target::of(output.as_deref(), false)?, None),
        };
        self.rules(slice::from_ref(source)).check(&target)?;
        Ok((target, why))
    }

    pub(crate) fn rules<'s>(&self, inputs: &'s [Source]) -> Rules<'s> {
        Rules { inputs, existing: self.existing(), folders: true, in_place: true }
    }

    pub(crate) fn existing(&self) -> Existing {
        match self.existing_made() {
            Existing::Keep => Existing::forced(self.in_place),
            existing => existing,
        }
    }

    /// How to treat existing files that passes make, such as JIT images, even with --in-place.
    fn existing_made(&self) -> Existing {
        if self.backup { Existing::BackUp } else { Existing::forced(self.force) }
    }

    /// Reads the input, runs the passes and writes the output. Returns the exit code.
    pub(crate) fn transform(&self, command: &str, passes: Vec<Box<dyn Pass>>) -> Result<u8> {
        let source = self.source()?;
        self.write_recording(command, &source, source.open()?, passes, false)
    }

    /// [`WriteArgs::transform`] for an open recording of `source`; `directory`: with entries beside records.
    pub(crate) fn write_recording(
        &self,
        command: &str,
        source: &Source,
        recording: Recording,
        passes: Vec<Box<dyn Pass>>,
        directory: bool,
    ) -> Result<u8> {
        let (target, why) = self.target(command, source)?;
        if self.index && target.path().is_none() {
            bail!(Usage(format!("{target} is not a file, so there is no place for an index: give -o FILE")));
        }
        let (input, extras) = (recording.form, recording.extras.clone());
        let form = self.form(&target, input, directory || !extras.is_empty())?;
        let place = match target.path() {
            Some(path) => Some(self.place(path, source, &recording, form)?),
            None if self.backup => bail!(Usage(format!(
                "{target} is not a file, so there is nothing to back up: give -o FILE or --in-place"
            ))),
            None => None,
        };
        let is_swapped = recording.endian == Endian::Big && input != Form::Pipe && form == OutputForm::Pipe;
        let threads = self.threads.count(&recording);
        let job = Job { recording, passes, threads, temp_files: temp_files() };
        let how = if self.verbosity.says_how() { job.schedule()?.explain(form) } else { Vec::new() };
        let kept = place.as_ref().map_or(Ok(None), OutputPath::kept_as)?;
        let bar = self.verbosity.progress(&job.recording);
        let done = match place {
            _ if self.dry_run => job.run(Output::Nowhere(form)).map_err(anyhow::Error::from),
            Some(place) => write(place, job, form, &extras, self.existing_made()),
            None => self.stream(job, &target),
        };
        drop(bar);
        let mut outcome = done.map_err(|error| about_output(error, &target))?;
        if form != OutputForm::DirectoryData {
            say_left_out(&mut outcome, if matches!(input, Form::Directory { .. }) { &extras } else { &[] });
        }
        let report = &mut Report { read: take(&mut outcome.report.read), ..Report::default() };
        how.into_iter().for_each(|line| report.say(Level::Detail, line));
        report.include(outcome.report);
        if is_swapped {
            report.say(Level::Info, SWAPPED_PIPE);
        }
        for (kind, count) in &report.dropped.clone() {
            let kind = kind.name().map_or_else(|| kind.to_string(), str::to_owned);
            let records = counted(*count, &format!("{kind} record"), &format!("{kind} records"));
            report.say(Level::Info, format!("left out {records}"));
        }
        let (wrote, keeps) = if self.dry_run { ("would write", "would keep") } else { ("wrote", "kept") };
        let (why, written) = (why.map(|why| format!(", because {why}")), size(outcome.written));
        report.say(
            Level::Info,
            match target {
                Target::Stdout => format!("{wrote} {written} to {target}"),
                _ => format!("{wrote} {target}: {written}{}", why.unwrap_or_default()),
            },
        );
        if let Some(kept) = kept {
            report.say(Level::Info, format!("{keeps} the old file as {}", kept.display()));
        }
        if let Some(path) = target.path() {
            self.make_index(path, report);
        }
        Ok(self.verbosity.print(report))
    }

    /// The form of the output. Entries beside the records need a directory.
    fn form(&self, target: &Target, input: Form, has_entries: bool) -> Result<OutputForm> {
        Ok(match (target, self.to) {
            (Target::Path { .. }, Some(form)) => form,
            (Target::Path { .. }, None) if has_entries => OutputForm::DirectoryData,
            (Target::Path { .. }, None) if self.in_place && input == Form::Pipe => OutputForm::Pipe,
            (Target::Path { .. }, None) => OutputForm::File,
            (_, Some(OutputForm::File)) => {
                bail!(Usage("only pipe data can be written to a stream, not a file: give -o FILE".into()))
            }
            _ => OutputForm::Pipe,
        })
    }

    fn stream(&self, job: Job, target: &Target) -> Result<Outcome> {
        let outcome = job.run(Output::Pipe(&mut target.stream()?))?;
        put_made(&outcome.made, self.existing_made(), || Ok(()))?;
        Ok(outcome)
    }

    /// Checks that the path can be written, even in a dry run and before reading inputs; returns it.
    fn place(
        &self,
        path: &Path,
        source: &Source,
        recording: &Recording,
        form: OutputForm,
    ) -> Result<OutputPath> {
        let name = || path.display().to_string();
        ensure!(form == OutputForm::DirectoryData || !path.is_dir(), "{} is a directory", name());
        check_writable(folder(path)).with_context(name)?;
        let place = OutputPath::new(path, self.existing());
        if let (Some(old), Source::Path(input)) = (place.kept_as()?, source) {
            let input = fs::canonicalize(input);
            let within = |old| input.is_ok_and(|input| input.starts_with(old));
            let replaced = fs::canonicalize(&old).is_ok_and(within);
            ensure!(!replaced, "{} is the input itself, and --backup would replace it", old.display());
        }
        if !self.in_place {
            return Ok(place);
        }
        let owner = path.metadata().with_context(name)?.uid();
        // A new file belongs to its creator, and only root may change the owner.
        let may = geteuid().is_root() || geteuid().as_raw() == owner;
        ensure!(may, "{} belongs to another user and would become yours: give -o", name());
        Ok(place.changed(recording))
    }

    /// With `--index`, writes an index of the complete output at this path; failure is only reported.
    pub(crate) fn make_index(&self, path: &Path, report: &mut Report) {
        if !self.index {
            return;
        }
        if self.dry_run {
            return report.say(Level::Info, format!("would write {}", index_path(path).display()));
        }
        let open = || Source::Path(path.to_owned()).open();
        let made = open().and_then(|recording| {
            let threads = self.threads.count(&recording);
            make_index(path, recording, threads, report)
        });
        if let Err(error) = made {
            report.say(Level::Warning, format!("no index was written: {}", message(&error)));
        }
    }
}

/// Reports omitted entries of the input and of passes, which only a directory can hold.
fn say_left_out(outcome: &mut Outcome, extras: &[PathBuf]) {
    let names = extras.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    let of_input =
        (!extras.is_empty()).then(|| format!("{} of the directory", names.collect::<Vec<_>>().join(", ")));
    let made = outcome.beside.iter().map(|(_, name)| name.to_string_lossy().into_owned());
    for what in of_input.into_iter().chain(made) {
        outcome.report.say(Level::Loss, format!("{what}: only a directory can hold it"));
    }
}

/// Names the output in an error; errors of the input already name their file.
fn about_output(error: anyhow::Error, output: &Target) -> anyhow::Error {
    if !error.chain().any(|cause| cause.is::<perfx_format::Error>()) {
        return error;
    }
    let found = match error.downcast::<perfx_pipeline::Error>() {
        Ok(error) => error.into_format().map_err(anyhow::Error::from),
        Err(error) => error.downcast(),
    };
    found.map_or_else(
        |error| error,
        |error: perfx_format::Error| error.file(&output.to_string().into()).into(),
    )
}

/// `perf.data` becomes `perf.inject.data`, in the input's folder.
fn beside(source: &Source, command: &str) -> PathBuf {
    let path = match source {
        Source::Path(path) => path.clone(),
        Source::Stdin => PathBuf::from("perf.data"),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}.{command}{extension}"))
}
