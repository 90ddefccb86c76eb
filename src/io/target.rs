//! Decides where a command's output goes, and refuses harmful targets before anything is read.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use perfx_format::Endian;
use perfx_format::FaultCode;
use perfx_format::read::{Form, Recording};
use perfx_format::write::{Changes, replace_sections};
use perfx_pipeline::{Job, Level, Outcome, Output, OutputForm, Pass, Report, counted};
use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::process::geteuid;

use crate::args::{ThreadArgs, Usage};
use crate::io::commit::{Existing, OutputPath, folder, is_empty, put_made};
use crate::io::index_file::index_path;
use crate::io::make_index::make_index;
use crate::io::signals::undisturbed;
use crate::io::source::{InputArgs, InputsArgs, Source, Version, each_input, identity, temp_files};
use crate::io::streams::{self, Stdout};
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
    #[arg(help_heading = "Output", long, value_name = "FORM")]
    pub(crate) to: Option<To>,
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

/// The forms a recording can be written in.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// A file with a header, as perf record writes it
    File,
    /// A stream, as perf record -o - writes it
    Pipe,
}

/// The destination of the output.
#[derive(Debug)]
pub(crate) enum Target {
    Stdout,
    /// Neither file nor directory: a FIFO, /dev/null.
    Device(PathBuf),
    /// A file, or a directory if the recording needs one: the resolved path, and the path that the user gave.
    Path {
        at: PathBuf,
        given: PathBuf,
    },
}

impl Target {
    /// What is at the path that the user gave, or can be made there.
    ///
    /// # Errors
    ///
    /// The path is a link to nothing, or ends like a folder's.
    pub(crate) fn named(path: &Path) -> Result<Target> {
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(Target::Device(path.to_owned())),
            // A file is made beside the one that it replaces, whose folder is not that of a link to it (/dev/fd/5).
            Ok(_) => Ok(Target::Path { at: canonical(path)?, given: path.to_owned() }),
            Err(error) => {
                refuse_dangling(path, &error)?;
                // Otherwise a pass could make files below it first.
                if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                    bail!("{} is not a directory", path.display());
                }
                Ok(Target::Path { at: path.to_owned(), given: path.to_owned() })
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stdout => f.write_str("standard output"),
            Target::Device(path) | Target::Path { given: path, .. } => path.display().fmt(f),
        }
    }
}

/// perf swaps the records of files, and not all fields of those of pipe data.
const SWAPPED_PIPE: &str = "the recording is big-endian: perf on a little-endian machine misreads big-endian pipe data, so \
                            write a file for it (--to file)";

impl WriteArgs {
    /// The input, after checking that --in-place can change it: opening a FIFO would wait for a writer.
    pub(crate) fn source(&self) -> Result<Source> {
        let source = Source::of(&self.input);
        if let (true, Source::Path(path)) = (self.in_place, &source) {
            refuse_device(path)?;
        }
        Ok(source)
    }

    /// Does the work on the input, or with `--in-place` on each of several. Then one that fails is unchanged, and does not
    /// stop the others. Returns the exit code.
    pub(crate) fn each(&self, more: &MoreArgs, work: impl Fn(&WriteArgs) -> Result<u8>) -> Result<u8> {
        if !self.in_place {
            let Some(more) = more.more.first().map(|more| more.display()) else { return work(self) };
            // Who means the output must not be led to --in-place, which would change it.
            bail!(Usage(format!("unexpected argument '{more}': to write to {more}, give -o {more}")));
        }
        let named = self.input.all().chain(&more.more).cloned().collect();
        let sources = InputsArgs::of(named).sources()?;
        each_input(&sources, "are unchanged", |source| {
            work(&WriteArgs { input: InputArgs::of(source), ..self.clone() })
        })
    }

    /// True if a run that failed can begin again: its input can be read twice, and its output is a file.
    pub(crate) fn can_run_again(&self, command: &str, source: &Source) -> Result<bool> {
        let is_stored = |path: &Path| path.metadata().is_ok_and(|found| found.is_file() || found.is_dir());
        let is_stored = matches!(source, Source::Path(path) if is_stored(path));
        Ok(is_stored && matches!(self.target(command, source)?.0, Target::Path { .. }))
    }

    fn target(&self, command: &str, source: &Source) -> Result<(Target, Option<&'static str>)> {
        if self.in_place {
            let Source::Path(path) = source else {
                bail!(Usage("standard input can't be changed in place".into()));
            };
            if path.is_dir() {
                bail!(Usage("a directory can't be changed in place: give -o".into()));
            }
            // The file is replaced, not the link to it.
            return Ok((Target::Path { at: canonical(path)?, given: path.clone() }, None));
        }
        match &self.output {
            Some(path) if path != Path::new("-") => Ok((self.named(path, source)?, None)),
            given => {
                if !streams::stdout().is_terminal() {
                    refuse_same(source, &Target::Stdout)?;
                    return Ok((Target::Stdout, None));
                }
                if given.is_some() {
                    bail!(Usage(
                        "refusing to write binary data to a terminal: give -o FILE or a pipe".into()
                    ));
                }
                let beside = beside(source, command);
                Ok((self.named(&beside, source)?, Some("standard output is a terminal")))
            }
        }
    }

    fn named(&self, path: &Path, source: &Source) -> Result<Target> {
        let target = Target::named(path)?;
        refuse_same(source, &target)?;
        if matches!(target, Target::Path { .. }) && path.exists() {
            if path.is_dir() && !is_replaceable(path) {
                bail!("{} is a directory but not a recording and is not overwritten", path.display());
            }
            if self.existing() == Existing::Keep && !is_empty(path) {
                bail!("{} exists; -f overwrites it, --backup keeps it as {0}.old", path.display());
            }
        }
        Ok(target)
    }

    /// What happens to an existing file.
    pub(crate) fn existing(&self) -> Existing {
        match () {
            () if self.backup => Existing::BackUp,
            () if self.force || self.in_place => Existing::Replace,
            () => Existing::Keep,
        }
    }

    /// With `--in-place` and passes that change no record: the file keeps its data in place and gets new
    /// sections, or stays as it is. `None` if that is not possible, or records do change, so that the whole
    /// file must be rewritten.
    pub(crate) fn rewrite_features_in_place(&self, passes: Vec<Box<dyn Pass>>) -> Result<Option<u8>> {
        let Source::Path(path) = self.source()? else { return Ok(None) };
        let mut recording = Source::Path(path.clone()).open()?;
        let seen = recording.opened().map(Version::of);
        let header = recording.file.take();
        // The interrupted change is finished below, so it is not a fault of the result.
        let faults = recording.faults.len();
        recording.faults.retain(|fault| fault.code != FaultCode::InPlaceInterrupted);
        let interrupted = recording.faults.len() < faults;
        let form = if header.is_some() { OutputForm::InPlace } else { OutputForm::Pipe };
        let path = if path.is_dir() { path.join("data") } else { path };
        let (name, before) = (recording.name.clone(), recording.features.clone());
        let threads = self.threads.count(&recording);
        let job = Job { recording, passes, threads, temp_files: temp_files() };
        let mut outcome = job.run(Output::Nowhere(form))?;
        if outcome.moved {
            return Ok(None);
        }
        let report = &mut outcome.report;
        report.lines.insert(0, read_line(&name, report));
        let changed = before.keys().chain(outcome.features.keys()).copied();
        let changed = changed.filter(|feature| before.get(feature) != outcome.features.get(feature));
        let changes: Changes =
            changed.map(|feature| (feature, outcome.features.get(&feature).cloned())).collect();
        let names: Vec<_> = changes.keys().map(ToString::to_string).collect();
        let what = if names.len() == 1 { "feature" } else { "features" };
        let names = names.join(", ");
        let done = if changes.is_empty() && !interrupted {
            format!("{} is unchanged", path.display())
        } else {
            // Pipe data has no sections. A backup is the old file itself, so the new one must be another
            // file.
            let Some(header) = header.filter(|_| !self.backup) else { return Ok(None) };
            if self.dry_run && changes.is_empty() {
                format!("would finish the interrupted change of {}", path.display())
            } else if self.dry_run {
                format!("would change {what} {names} of {}", path.display())
            } else {
                let file = fs::OpenOptions::new().read(true).write(true).open(&path);
                let file = file.with_context(|| path.display().to_string())?;
                // Two programs that change one file take turns, and the second one sees that the file has
                // changed since it read it.
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    let what = "another program has locked it: waiting until it is done";
                    #[expect(
                        clippy::let_underscore_must_use,
                        reason = "without standard error, nobody reads the message"
                    )]
                    let _ = writeln!(streams::stderr(), "perfx: {}: {what}", path.display());
                    flock(&file, FlockOperation::LockExclusive).map_err(io::Error::from)?;
                }
                let now = file.metadata()?;
                seen.map_or(Ok(()), |seen| seen.check(&now)).with_context(|| path.display().to_string())?;
                let replaced = undisturbed(|| replace_sections(&file, &header, &changes));
                if !replaced.map_err(|e| e.file(&name))? {
                    return Ok(None);
                }
                if !path.metadata().is_ok_and(|there| identity(&there) == identity(&now)) {
                    let what = "another program has replaced it, and only the file that it was is changed: run the \
                                command again";
                    bail!("{}: {what}", path.display());
                }
                if changes.is_empty() {
                    format!("finished the interrupted change of {}", path.display())
                } else {
                    format!("changed {what} {names} of {}; its records are unchanged", path.display())
                }
            }
        };
        report.say(Level::Info, done);
        self.make_index(&path, report);
        Ok(Some(self.verbosity.print(report)))
    }

    /// Reads the input, runs the passes and writes the output, as every command that writes a recording does.
    /// Returns the exit code.
    pub(crate) fn transform(&self, command: &str, passes: Vec<Box<dyn Pass>>) -> Result<u8> {
        self.transform_into(command, passes, false)
    }

    /// Like [`WriteArgs::transform`]; with `directory`, a pass adds entries next to the records.
    pub(crate) fn transform_into(
        &self,
        command: &str,
        passes: Vec<Box<dyn Pass>>,
        directory: bool,
    ) -> Result<u8> {
        let source = self.source()?;
        let recording = source.open()?;
        self.write_recording(command, &source, recording, passes, directory)
    }

    /// Like [`WriteArgs::transform`], for an open recording of `source`.
    pub(crate) fn write_recording(
        &self,
        command: &str,
        source: &Source,
        recording: Recording,
        passes: Vec<Box<dyn Pass>>,
        directory: bool,
    ) -> Result<u8> {
        let (target, why) = self.target(command, source)?;
        if self.index && !matches!(target, Target::Path { .. }) {
            bail!(Usage(format!("{target} is not a file, so there is no place for an index: give -o FILE")));
        }
        let name = recording.name.clone();
        let is_directory = matches!(recording.form, Form::Directory { .. });
        let extras = recording.extras.clone();
        let is_big_endian_file = recording.endian == Endian::Big && recording.form != Form::Pipe;
        let threads = self.threads.count(&recording);
        let job = Job { recording, passes, threads, temp_files: temp_files() };
        let some_extras = directory || !extras.is_empty();
        let kept_extras = some_extras && self.to.is_none() && matches!(target, Target::Path { .. });
        let form = match (&target, self.to) {
            (Target::Path { .. }, Some(To::Pipe)) => OutputForm::Pipe,
            (Target::Path { .. }, None) if self.in_place && job.recording.form == Form::Pipe => {
                OutputForm::Pipe
            }
            (Target::Path { .. }, _) if kept_extras => OutputForm::DirectoryData,
            (Target::Path { .. }, _) => OutputForm::File,
            (_, Some(To::File)) => {
                bail!(Usage("only pipe data can be written to a stream, not a file: give -o FILE".into()))
            }
            (_, _) => OutputForm::Pipe,
        };
        let output = target.to_string();
        let place = match &target {
            Target::Path { at: path, .. } => Some(self.place(path, source, &job.recording, kept_extras)?),
            Target::Stdout | Target::Device(_) if self.backup => {
                bail!(Usage(format!(
                    "{output} is not a file, so there is nothing to back up: give -o FILE or --in-place"
                )))
            }
            Target::Stdout | Target::Device(_) => None,
        };
        let how = if self.verbosity.says_how() { job.schedule()?.explain(form) } else { Vec::new() };
        let kept = place.as_ref().map_or(Ok(None), OutputPath::kept_as)?;
        let bar = self.verbosity.progress(&job.recording);
        let done = match (&target, place) {
            _ if self.dry_run => job.run(Output::Nowhere(form)).map_err(anyhow::Error::from),
            (_, Some(place)) if kept_extras => place.write_directory(job, &extras),
            (_, Some(place)) => place.write_file(job, form),
            (Target::Device(path), None) => {
                let mut file = fs::OpenOptions::new().write(true).open(path).context(output.clone())?;
                self.stream(job, &mut file)
            }
            (_, None) => {
                let stdout = streams::stdout()
                    .as_fd()
                    .try_clone_to_owned()
                    .context("standard output can't be used")?;
                self.stream(job, &mut File::from(stdout))
            }
        };
        drop(bar);
        let mut outcome = done.map_err(|error| about_output(error, &output))?;
        let report = &mut outcome.report;
        if is_directory && !extras.is_empty() && !kept_extras {
            let names: Vec<_> = extras
                .iter()
                .filter_map(|path| path.file_name())
                .map(|name| name.to_string_lossy())
                .collect();
            report.say(
                Level::Loss,
                format!("{} of the directory: only a directory can hold it", names.join(", ")),
            );
        }
        if !kept_extras {
            for (_, name) in &outcome.beside {
                let name = name.to_string_lossy();
                report.say(Level::Loss, format!("{name}: only a directory can hold it"));
            }
        }
        if is_big_endian_file && form == OutputForm::Pipe {
            report.say(Level::Info, SWAPPED_PIPE);
        }
        for (kind, count) in &report.dropped.clone() {
            let kind = kind.name().map_or_else(|| kind.to_string(), str::to_owned);
            let records = counted(*count, &format!("{kind} record"), &format!("{kind} records"));
            report.say(Level::Info, format!("left out {records}"));
        }
        let mut front = vec![read_line(&name, report)];
        front.extend(how.into_iter().map(|line| (Level::Detail, line)));
        report.lines.splice(0..0, front);
        let (wrote, keeps) = if self.dry_run { ("would write", "would keep") } else { ("wrote", "kept") };
        let why = why.map(|why| format!(", because {why}")).unwrap_or_default();
        report.say(
            Level::Info,
            match target {
                Target::Stdout => format!("{wrote} {} to {output}", size(outcome.written)),
                _ => format!("{wrote} {output}: {}{why}", size(outcome.written)),
            },
        );
        if let Some(kept) = kept {
            report.say(Level::Info, format!("{keeps} the old file as {}", kept.display()));
        }
        if let Target::Path { at, .. } = &target {
            self.make_index(at, report);
        }
        Ok(self.verbosity.print(&outcome.report))
    }

    /// With `--index`, writes the index of the output at this path. The output is complete, so a failure is only
    /// reported.
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
            make_index(path, recording, threads)
        });
        report.lines.push(
            made.unwrap_or_else(|error| {
                (Level::Warning, format!("no index was written: {}", message(&error)))
            }),
        );
    }

    /// Writes to a stream or device, which gets no name at the end.
    fn stream(&self, job: Job, to: &mut File) -> Result<Outcome> {
        let outcome = job.run(Output::Pipe(to))?;
        put_made(&outcome.made, self.existing(), || Ok(()))?;
        Ok(outcome)
    }

    /// Checks that the path can be written, and returns it. A dry run thus finds out, too, and no input is
    /// read in vain.
    fn place<'a>(
        &self,
        path: &'a Path,
        source: &Source,
        recording: &Recording,
        is_directory: bool,
    ) -> Result<OutputPath<'a>> {
        ensure!(is_directory || !path.is_dir(), "{} is a directory", path.display());
        access(folder(path).join("."), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(io::Error::from)
            .with_context(|| path.display().to_string())?;
        let place = OutputPath::new(path, self.existing());
        let existing_made = if self.force || self.backup { self.existing() } else { Existing::Keep };
        let place = if self.in_place { place.changed(existing_made, recording) } else { place };
        if self.in_place {
            let owner = path.metadata().with_context(|| path.display().to_string())?.uid();
            // A new file belongs to its creator, and only root may change the owner.
            let may = geteuid().is_root() || geteuid().as_raw() == owner;
            ensure!(may, "{} belongs to another user and would become yours: give -o", path.display());
        }
        if let (Some(old), Source::Path(input)) = (place.kept_as()?, source) {
            let input = fs::canonicalize(input);
            let within = |old| input.is_ok_and(|input| input.starts_with(old));
            let replaced = fs::canonicalize(&old).is_ok_and(within);
            ensure!(!replaced, "{} is the input itself, and --backup would replace it", old.display());
        }
        Ok(place)
    }
}

/// A writer whose errors name the output.
#[derive(Debug)]
pub(crate) struct Named<W> {
    name: String,
    inner: W,
}

/// Standard output, for text.
pub(crate) fn stdout() -> Named<Stdout> {
    Named::new(Target::Stdout.to_string(), streams::stdout())
}

impl<W> Named<W> {
    pub(crate) fn new(name: String, inner: W) -> Named<W> {
        Named { name, inner }
    }

    fn about(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.name))
    }
}

impl<W: io::Write> io::Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(|error| self.about(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(|error| self.about(error))
    }
}

/// Names the output in an error; errors of the input already name their file.
fn about_output(error: anyhow::Error, output: &str) -> anyhow::Error {
    if !error.chain().any(|cause| cause.is::<perfx_format::Error>()) {
        return error;
    }
    let found = match error.downcast::<perfx_pipeline::Error>() {
        Ok(error) => error.into_format().map_err(anyhow::Error::from),
        Err(error) => error.downcast(),
    };
    found.map_or_else(|error| error, |error: perfx_format::Error| error.file(&output.into()).into())
}

pub(crate) fn read_line(name: &str, report: &Report) -> (Level, String) {
    (
        Level::Info,
        format!("read {name}: {}, {}", counted(report.records, "record", "records"), size(report.bytes)),
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

fn canonical(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| path.display().to_string())
}

/// Data from a FIFO or device is consumed, so it cannot be changed in place.
fn refuse_device(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
    if !metadata.is_file() && !metadata.is_dir() {
        bail!(Usage(format!("{} is not a file, so it can't be changed in place", path.display())));
    }
    Ok(())
}

/// Checks that a command with several outputs may create a path: it may exist only with `force`, and must not
/// be the input.
pub(crate) fn check_new(source: &Source, path: &Path, force: bool) -> Result<()> {
    refuse_same(source, &Target::Path { at: path.to_owned(), given: path.to_owned() })?;
    match fs::metadata(path) {
        Ok(metadata) => {
            let replaceable = metadata.is_file() || metadata.is_dir() && is_replaceable(path);
            ensure!(replaceable, "{} is not a recording and is not overwritten", path.display());
            ensure!(force || is_empty(path), "{} exists; -f overwrites it", path.display());
        }
        Err(error) => refuse_dangling(path, &error)?,
    }
    Ok(())
}

/// Refuses a dangling link: the output would replace the link, or appear in an unexpected place.
pub(crate) fn refuse_dangling(path: &Path, error: &io::Error) -> Result<()> {
    if let Ok(to) = fs::read_link(path) {
        bail!("{} is a symbolic link to {}, which can't be opened: {error}", path.display(), to.display());
    }
    Ok(())
}

/// Refuses an input that is also the output, which would destroy both, and an output directory around or
/// inside the input.
fn refuse_same(source: &Source, target: &Target) -> Result<()> {
    let input = match source {
        Source::Path(path) => fs::metadata(path).with_context(|| path.display().to_string())?,
        Source::Stdin => File::from(streams::stdin()?).metadata()?,
    };
    let inside = match source {
        Source::Path(path) if input.is_dir() => fs::metadata(path.join("data")).ok(),
        _ => None,
    };
    let name = target;
    let output = match target {
        Target::Stdout => File::from(streams::stdout().as_fd().try_clone_to_owned()?).metadata().ok(),
        Target::Device(path) | Target::Path { at: path, .. } => fs::metadata(path).ok(),
    };
    // A terminal or /dev/null may be both.
    if let Some(output) = output.filter(|output| output.is_file() || output.is_dir()) {
        let same = [Some(&input), inside.as_ref()]
            .into_iter()
            .flatten()
            .any(|input| identity(input) == identity(&output));
        ensure!(!same, "{name} is the input itself; --in-place changes it");
    }
    if let (Target::Path { at: target, .. }, Source::Path(path)) = (target, source) {
        // An input without a name on disk, as from a shell's <(…), is in no folder.
        let Ok(input) = fs::canonicalize(path) else { return Ok(()) };
        // A missing folder is reported when the output is created in it.
        let inside = fs::canonicalize(folder(target))
            .map(|folder| folder.join(target.file_name().unwrap_or_default()));
        let nested = inside.is_ok_and(|target| input.starts_with(&target) || target.starts_with(&input));
        ensure!(!nested, "{name} and the input {}: one contains the other", path.display());
    }
    Ok(())
}

/// Whether a directory may be overwritten: it is a recording, or empty. Anything else was not meant.
fn is_replaceable(directory: &Path) -> bool {
    is_recording(directory) || is_empty(directory)
}

/// Whether a file, or a directory's main file, begins like a recording.
pub(crate) fn is_recording(path: &Path) -> bool {
    let mut magic = [0; 8];
    let data = if path.is_dir() { path.join("data") } else { path.to_owned() };
    data.is_file()
        && File::open(data).and_then(|mut data| io::Read::read_exact(&mut data, &mut magic)).is_ok()
        && matches!(&magic, b"PERFILE2" | b"2ELIFREP" | b"PERFFILE")
}
