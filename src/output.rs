//! Where a command's output goes, and that it gets there whole or not at all: a temporary name in the same folder, then one rename.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use perfx_format::Feature;
use perfx_format::in_place::replace_section;
use perfx_format::input::{Form, Recording};
use perfx_pipeline::{Job, Level, Outcome, Output, OutputForm, Pass, Report, counted};
use tempfile::{NamedTempFile, TempDir};

use crate::cli::{InputArgs, TalkArgs, ThreadArgs, Usage};
use crate::human::size;
use crate::input::{Source, spool};

/// How to write a recording.
#[derive(Args, Debug, Clone)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write to this file; - is standard output [default: standard output, or on a terminal a file beside the input]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Form of the output [default: pipe on standard output, else file]
    #[arg(long, value_name = "FORM")]
    pub(crate) to: Option<To>,
    /// Overwrite an existing output
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Change the input itself, in one step: it is the old or the new one at any time
    #[arg(long, conflicts_with_all = ["output", "to"])]
    pub(crate) in_place: bool,
    /// Do everything but write: say what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) talk: TalkArgs,
}

/// The forms a recording can be written in.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// A file with a header, as perf record writes it
    File,
    /// A stream, as perf record -o - writes it
    Pipe,
}

/// Where it goes.
#[derive(Debug)]
enum Target {
    Stdout,
    /// Something that is neither file nor directory: a FIFO, /dev/null.
    Device(PathBuf),
    /// A file, or a directory when the recording needs one.
    Path(PathBuf),
}

impl WriteArgs {
    fn target(&self, command: &str, source: &Source) -> Result<(Target, Option<&'static str>)> {
        if self.in_place {
            let Source::Path(path) = source else {
                bail!(Usage("standard input can't be changed in place".into()));
            };
            refuse_device(path)?;
            if path.is_dir() {
                bail!(Usage("a directory can't be changed in place: give -o".into()));
            }
            // The file itself is replaced, not a link to it.
            return Ok((Target::Path(fs::canonicalize(path)?), None));
        }
        match &self.output {
            Some(path) if path != Path::new("-") => Ok((self.named(path)?, None)),
            given => {
                if !io::stdout().is_terminal() {
                    return Ok((Target::Stdout, None));
                }
                if given.is_some() {
                    bail!(Usage(
                        "a recording is binary and would upset the terminal: give -o FILE or a pipe".into()
                    ));
                }
                let beside = beside(source, command);
                Ok((self.named(&beside)?, Some("standard output is a terminal")))
            }
        }
    }

    fn named(&self, path: &Path) -> Result<Target> {
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(Target::Device(path.to_owned())),
            Ok(_) => {
                if path.is_dir() && !is_replaceable(path) {
                    bail!("{} is a directory, and no recording that could be overwritten", path.display());
                }
                if !self.force && !self.dry_run {
                    bail!("{} exists; -f overwrites it", path.display());
                }
                Ok(Target::Path(fs::canonicalize(path)?))
            }
            Err(_) => Ok(Target::Path(path.to_owned())),
        }
    }

    /// With `--in-place`, for passes that only set `feature`: the file keeps its data where it is, and gets a new section. `None` where that
    /// can't be done and the whole file must be written anew.
    pub(crate) fn set_feature(&self, passes: Vec<Box<dyn Pass>>, feature: Feature) -> Result<Option<u8>> {
        let Source::Path(path) = Source::of(&self.input) else { return Ok(None) };
        refuse_device(&path)?;
        let mut recording = Source::Path(path.clone()).open()?;
        let Some(header) = recording.file.take() else { return Ok(None) };
        let path = if path.is_dir() { path.join("data") } else { path };
        let (name, before) = (recording.name.clone(), recording.features.get(&feature).cloned());
        let job = Job { recording, passes, threads: self.threads.count(), spool: spool() };
        let mut outcome = job.run(Output::Nowhere(OutputForm::File))?;
        let report = &mut outcome.report;
        report.lines.insert(0, read_line(&name, report));
        let section = outcome.features.get(&feature).filter(|section| Some(*section) != before.as_ref());
        let done = match section {
            None => format!("{} stays as it is", path.display()),
            Some(_) if self.dry_run => format!("would change feature {feature} of {}", path.display()),
            Some(section) => {
                let file = fs::OpenOptions::new().read(true).write(true).open(&path);
                let file = file.with_context(|| path.display().to_string())?;
                if !replace_section(&file, &header, feature, section).map_err(|e| e.file(&name))? {
                    return Ok(None);
                }
                format!("changed feature {feature} of {}; its records stay as they are", path.display())
            }
        };
        report.say(Level::Info, done);
        Ok(Some(self.talk.tell(report)))
    }

    /// Reads the input, sends it through passes, writes it: what every command that writes a recording does. Returns the exit code.
    pub(crate) fn transform(&self, command: &str, passes: Vec<Box<dyn Pass>>) -> Result<u8> {
        self.transform_into(command, passes, false)
    }

    /// The same; with `directory`, a pass has something to put beside the records.
    pub(crate) fn transform_into(
        &self,
        command: &str,
        passes: Vec<Box<dyn Pass>>,
        directory: bool,
    ) -> Result<u8> {
        let source = Source::of(&self.input);
        let recording = source.open()?;
        let (target, why) = self.target(command, &source)?;
        if !self.in_place && !self.dry_run {
            refuse_same(&source, &target)?;
        }
        let name = recording.name.clone();
        let is_directory = matches!(recording.form, Form::Directory { .. });
        let extras = recording.extras.clone();
        let threads = self.threads.count();
        let job = Job { recording, passes, threads, spool: spool() };
        let some_extras = directory || !extras.is_empty();
        let kept_extras = some_extras && self.to.is_none() && matches!(target, Target::Path(_));
        let form = match (&target, self.to) {
            (Target::Path(_), Some(To::Pipe)) => OutputForm::Pipe,
            (Target::Path(_), None) if self.in_place && job.recording.form == Form::Pipe => OutputForm::Pipe,
            (Target::Path(_), _) if kept_extras => OutputForm::DirectoryData,
            (Target::Path(_), _) => OutputForm::File,
            (_, Some(To::File)) => {
                bail!(Usage("a file can't be written to a stream, only pipe data can: give -o FILE".into()))
            }
            (_, _) => OutputForm::Pipe,
        };
        let (mut outcome, wrote) = if self.dry_run {
            (job.run(Output::Nowhere(form))?, "would write".to_owned())
        } else {
            match &target {
                Target::Stdout => {
                    let stdout =
                        io::stdout().as_fd().try_clone_to_owned().context("standard output can't be used")?;
                    (job.run(Output::Pipe(&mut File::from(stdout)))?, "wrote standard output:".to_owned())
                }
                Target::Device(path) => {
                    let mut file = fs::OpenOptions::new().write(true).open(path)?;
                    (job.run(Output::Pipe(&mut file))?, format!("wrote {}:", path.display()))
                }
                Target::Path(path) if kept_extras => {
                    (write_directory(path, job, &extras)?, format!("wrote {}:", path.display()))
                }
                Target::Path(path) => (write_file(path, job, form)?, format!("wrote {}:", path.display())),
            }
        };
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
        for (kind, count) in &report.dropped.clone() {
            report.say(Level::Info, format!("left out {} of {kind}", counted(*count, "record", "records")));
        }
        let why = why.map(|why| format!(", because {why}")).unwrap_or_default();
        report.lines.insert(
            0,
            (
                Level::Info,
                format!(
                    "read {name}: {}, {}",
                    counted(report.records, "record", "records"),
                    size(report.bytes)
                ),
            ),
        );
        report.say(Level::Info, format!("{wrote} {}{why}", size(outcome.written)));
        Ok(self.talk.tell(&outcome.report))
    }
}

fn read_line(name: &str, report: &Report) -> (Level, String) {
    (
        Level::Info,
        format!("read {name}: {}, {}", counted(report.records, "record", "records"), size(report.bytes)),
    )
}

/// `perf.data` becomes `perf.inject.data`, in the folder of the input.
fn beside(source: &Source, command: &str) -> PathBuf {
    let path = match source {
        Source::Path(path) => path.clone(),
        Source::Stdin => PathBuf::from("perf.data"),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}.{command}{extension}"))
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// What is read from a FIFO or a device is gone, so nothing there can be changed in place.
fn refuse_device(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
    if !metadata.is_file() && !metadata.is_dir() {
        bail!(Usage(format!("{} is no file and can't be changed in place", path.display())));
    }
    Ok(())
}

/// Input and output being one file would destroy both, and so would an output directory around the input or inside it.
fn refuse_same(source: &Source, target: &Target) -> Result<()> {
    let input = match source {
        Source::Path(path) => fs::metadata(path)?,
        Source::Stdin => File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()?,
    };
    let inside = match source {
        Source::Path(path) if input.is_dir() => fs::metadata(path.join("data")).ok(),
        _ => None,
    };
    let (output, name) = match target {
        Target::Stdout => {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            (File::from(stdout).metadata().ok(), "standard output".to_owned())
        }
        Target::Device(path) | Target::Path(path) => (fs::metadata(path).ok(), path.display().to_string()),
    };
    // A terminal or /dev/null may well be both.
    if let Some(output) = output.filter(|output| output.is_file() || output.is_dir()) {
        let same = [Some(&input), inside.as_ref()]
            .into_iter()
            .flatten()
            .any(|input| identity(input) == identity(&output));
        ensure!(!same, "{name} is the input itself; --in-place changes it");
    }
    if let (Target::Path(target), Source::Path(path)) = (target, source) {
        let input = fs::canonicalize(path)?;
        // A folder that is not there is told when the output is made in it.
        let inside = fs::canonicalize(folder(target))
            .map(|folder| folder.join(target.file_name().unwrap_or_default()));
        let nested = inside.is_ok_and(|target| input.starts_with(&target) || target.starts_with(&input));
        ensure!(!nested, "{name} and the input {} lie inside one another", path.display());
    }
    Ok(())
}

/// What may be overwritten: a recording, or an empty directory. Anything else of the name was not meant.
fn is_replaceable(directory: &Path) -> bool {
    let mut magic = [0; 8];
    let data = directory.join("data");
    let is_recording = data.is_file()
        && File::open(data).and_then(|mut data| io::Read::read_exact(&mut data, &mut magic)).is_ok()
        && matches!(&magic, b"PERFILE2" | b"2ELIFREP" | b"PERFFILE");
    is_recording || fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Without the temporary name that tempfile adds, which is another one every time.
fn plain(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((what, _)) => io::Error::new(error.kind(), what),
        None => error,
    }
}

/// A file under a temporary name, readable by its owner only, as perf makes its files; then in one step under its own.
fn write_file(path: &Path, job: Job, form: OutputForm) -> Result<Outcome> {
    let name = || path.display().to_string();
    ensure!(!path.is_dir(), "{} is a directory", path.display());
    let temporary = tempfile::Builder::new().prefix(".perfx-").tempfile_in(folder(path));
    let mut temporary = temporary.map_err(plain).with_context(name)?;
    let outcome = match form {
        OutputForm::Pipe => job.run(Output::Pipe(temporary.as_file_mut()))?,
        _ => job.run(Output::File(temporary.as_file(), form))?,
    };
    settle(temporary, path)?;
    Ok(outcome)
}

fn settle(temporary: NamedTempFile, path: &Path) -> Result<()> {
    let name = || path.display().to_string();
    // A rename may reach the disk before the bytes it names. Where it takes an old file away, those bytes must be there first; a new file
    // takes nothing away (its input is still there), and waiting for the disk would double the time of a copy.
    if path.exists() {
        temporary.as_file().sync_all().with_context(name)?;
    }
    temporary.persist(path).with_context(name)?;
    Ok(())
}

/// A directory with the recording as `data` and the input's other entries beside it.
fn write_directory(path: &Path, job: Job, extras: &[PathBuf]) -> Result<Outcome> {
    let name = || path.display().to_string();
    // As perf makes its directories.
    let owner_only = fs::Permissions::from_mode(0o700);
    let temporary =
        tempfile::Builder::new().prefix(".perfx-").permissions(owner_only).tempdir_in(folder(path));
    let temporary = temporary.map_err(plain).with_context(name)?;
    let data = temporary.path().join("data");
    let outcome = write_file(&data, job, OutputForm::DirectoryData)?;
    for extra in extras {
        if let Some(name) = extra.file_name() {
            copy_tree(extra, &temporary.path().join(name))?;
        }
    }
    for (from, name) in &outcome.beside {
        copy_tree(from, &temporary.path().join(name))?;
    }
    replace_directory(temporary, path).with_context(name)?;
    Ok(outcome)
}

/// rename(2) replaces a directory only when that is empty, so the old one steps aside first.
fn replace_directory(temporary: TempDir, path: &Path) -> Result<()> {
    let old = tempfile::Builder::new().prefix(".perfx-").tempdir_in(folder(path))?;
    let aside = old.path().join("old");
    let exists = path.symlink_metadata().is_ok();
    if exists {
        fs::rename(path, &aside)?;
    }
    let new = temporary.keep();
    if let Err(error) = fs::rename(&new, path) {
        if exists {
            fs::rename(&aside, path)?;
        }
        fs::remove_dir_all(&new)?;
        return Err(error.into());
    }
    Ok(())
}

/// Files, directories and links as they are; of what else a directory may hold (FIFOs, sockets, devices) nothing can be copied.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let name = || from.display().to_string();
    let kind = from.symlink_metadata().with_context(name)?.file_type();
    if kind.is_dir() {
        fs::create_dir(to).with_context(name)?;
        for entry in fs::read_dir(from).with_context(name)? {
            let entry = entry.with_context(name)?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_symlink() {
        let to_where = fs::read_link(from).with_context(name)?;
        std::os::unix::fs::symlink(to_where, to).with_context(name)?;
    } else {
        ensure!(kind.is_file(), "{} is neither file nor directory and can't be copied", from.display());
        fs::copy(from, to).with_context(name)?;
    }
    Ok(())
}

/// The recording's form does not matter to whoever only reads it; kept here beside its twin for writing.
pub(crate) fn form_name(recording: &Recording) -> String {
    match recording.form {
        Form::File => "file".to_owned(),
        Form::Pipe => "pipe".to_owned(),
        Form::Directory { version } => format!("directory (version {version})"),
    }
}
