//! Determines the inputs of a command, by the rules of perf.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::builder::Resettable;
use clap::{Arg, ArgAction, Args};
use perfx_format::read::{Recording, TempFiles};
use perfx_pipeline::{count, counted};

use crate::args::Usage;
use crate::io::index_file::use_index;
use crate::io::streams;
use crate::term::report::tell_failure;

/// Which recording to read.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputArgs {
    /// Recording to read: a file, a FIFO, a directory, or - for standard input [default: standard input if it is a pipe, socket or file, else perf.data]
    #[arg(help_heading = "Input", value_name = "INPUT")]
    positional: Option<PathBuf>,
    /// Input, as an option (like perf -i)
    #[arg(help_heading = "Input", short, long, value_name = "INPUT", action = ArgAction::Set, num_args = 1, conflicts_with = "positional")]
    input: Vec<PathBuf>,
}

impl InputArgs {
    pub(crate) fn of(source: &Source) -> InputArgs {
        let path = match source {
            Source::Path(path) => path.clone(),
            Source::Stdin => PathBuf::from("-"),
        };
        InputArgs { positional: Some(path), input: Vec::new() }
    }

    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.all().next()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.input.iter().chain(&self.positional)
    }
}

/// The -i of a command with more inputs than [`InputArgs`].
pub(crate) fn repeatable(input: Arg) -> Arg {
    let repeatable = input.action(ArgAction::Append).conflicts_with(Resettable::Reset);
    repeatable.help("Input, as an option (like perf -i); repeatable")
}

/// Which recordings to read.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputsArgs {
    /// Recordings to read: files, FIFOs, directories, - for standard input, or @FILE for a list of them, one per
    /// line [default: standard input if it is a pipe, socket or file, else perf.data]
    #[arg(help_heading = "Input", value_name = "INPUT")]
    positional: Vec<PathBuf>,
    /// Input, as an option (like perf -i); repeatable
    #[arg(help_heading = "Input", short, long, value_name = "INPUT")]
    input: Vec<PathBuf>,
}

impl InputsArgs {
    pub(crate) fn of(positional: Vec<PathBuf>) -> InputsArgs {
        InputsArgs { positional, input: Vec::new() }
    }

    /// The first positional argument, for a command that has another meaning for it, and the other inputs.
    pub(crate) fn split_first(&self) -> (Option<&PathBuf>, InputsArgs) {
        let mut positional = self.positional.iter();
        let first = positional.next();
        (first, InputsArgs { positional: positional.cloned().collect(), input: self.input.clone() })
    }

    /// At least one, first those of `-i`. Standard input, empty if read again, may occur once.
    pub(crate) fn sources(&self) -> Result<Vec<Source>> {
        let mut sources = Vec::new();
        for path in self.input.iter().chain(&self.positional) {
            match path.as_os_str().as_bytes().strip_prefix(b"@") {
                Some(list) => sources.extend(listed(Path::new(OsStr::from_bytes(list)))?),
                None => sources.push(Source::named(path)),
            }
        }
        if sources.is_empty() && self.input.is_empty() && self.positional.is_empty() {
            sources.push(Source::by_default());
        }
        refuse_twice(&sources)?;
        Ok(sources)
    }
}

const LIST_MAX: u64 = 64 << 20;

/// The inputs listed in a file, one per line. Empty lines and lines that begin with `#` are comments. A name
/// that begins with `@` or `#` is written `./@name`.
fn listed(list: &Path) -> Result<Vec<Source>> {
    let wrong = |what: String| Usage(format!("@{}: {what}", list.display()));
    let mut text = Vec::new();
    let read = File::open(list).and_then(|list| list.take(LIST_MAX + 1).read_to_end(&mut text));
    read.map_err(|error| wrong(format!("the list of inputs can't be read: {error}")))?;
    if text.len() as u64 > LIST_MAX || text.contains(&0) {
        return Err(wrong("it is not a list of inputs, one per line".into()).into());
    }
    let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let names: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).collect();
    if names.is_empty() {
        return Err(wrong("the list names no input".into()).into());
    }
    if let Some(name) = names.iter().find(|name| name.starts_with(b"@")) {
        return Err(wrong(format!("a list can't include another list, {}", name.escape_ascii())).into());
    }
    Ok(names.iter().map(|name| Source::named(Path::new(OsStr::from_bytes(name)))).collect())
}

const PERF_DATA: &str = "perf.data";

/// Device and inode, which identify a file under any name.
pub(crate) fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Identity, size and times of a file, which stay the same until a program changes or replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    identity: (u64, u64),
    size: u64,
    /// mtime and ctime, s and ns; no program can set the ctime.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    pub(crate) fn of(metadata: &Metadata) -> Version {
        Version {
            identity: identity(metadata),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Checks that a file is unchanged since it was read.
    ///
    /// # Errors
    ///
    /// It has changed.
    pub(crate) fn check(self, now: &Metadata) -> io::Result<()> {
        let what =
            "another program has changed or replaced it, so nothing was written: run the command again";
        if Version::of(now) == self { Ok(()) } else { Err(io::Error::other(what)) }
    }

    /// `check` for a file renamed since then, which counts as a change.
    pub(crate) fn check_renamed(self, now: &Metadata) -> io::Result<()> {
        Version { changed: Version::of(now).changed, ..self }.check(now)
    }
}

/// Refuses standard input or a FIFO given twice: a second reader would wait for ever.
pub(crate) fn refuse_twice(sources: &[Source]) -> Result<()> {
    let mut seen = Vec::new();
    for source in sources {
        let Some(fifo) = source.metadata().filter(|metadata| metadata.file_type().is_fifo()) else {
            continue;
        };
        let fifo = identity(&fifo);
        if seen.contains(&fifo) {
            return Err(Usage(format!("{source} is given twice, but it can be read only once")).into());
        }
        seen.push(fifo);
    }
    if sources.iter().filter(|source| **source == Source::Stdin).count() > 1 {
        return Err(Usage("standard input is given twice, but it can be read only once".into()).into());
    }
    Ok(())
}

/// Calls `work` for each input, even if one fails; `failed` describes its result. Returns the exit code.
pub(crate) fn each_input(
    sources: &[Source],
    failed: &str,
    mut work: impl FnMut(&Source) -> Result<u8>,
) -> Result<u8> {
    let (mut failures, mut suspect) = (0, false);
    for source in sources {
        match work(source) {
            Ok(code) => suspect |= code > 0,
            Err(error) if sources.len() == 1 => return Err(error),
            Err(error) => {
                tell_failure(&error);
                failures += 1;
            }
        }
    }
    if failures > 0 {
        let all = counted(sources.len() as u64, "recording", "recordings");
        bail!("{} of {all} failed and {failed}", count(failures));
    }
    Ok(if suspect { 3 } else { 0 })
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Stdin,
    Path(PathBuf),
}

impl Source {
    /// The given input, else standard input if it can be read, else `perf.data`.
    pub(crate) fn of(args: &InputArgs) -> Source {
        args.path().map_or_else(Source::by_default, |path| Source::named(path))
    }

    pub(crate) fn named(path: &Path) -> Source {
        if path == Path::new("-") { Source::Stdin } else { Source::Path(path.to_owned()) }
    }

    fn by_default() -> Source {
        let stdin = Source::Stdin.metadata().map(|metadata| metadata.file_type());
        if stdin.is_some_and(|kind| kind.is_dir()) {
            // A directory's files are opened by path.
            return Source::Path(fs::canonicalize("/dev/stdin").unwrap_or_else(|_| "/dev/stdin".into()));
        }
        // Under cron, CI and ssh -n, standard input is /dev/null, which is not an input, nor is a terminal.
        if Source::has_stdin() { Source::Stdin } else { Source::Path(PathBuf::from(PERF_DATA)) }
    }

    pub(crate) fn is_missing_default(&self) -> bool {
        matches!(self, Source::Path(path) if path == Path::new(PERF_DATA) && !path.exists())
    }

    /// True if standard input is a pipe, a socket or a file, which may be a recording.
    pub(crate) fn has_stdin() -> bool {
        let kind = Source::Stdin.metadata().map(|metadata| metadata.file_type());
        kind.is_some_and(|kind| kind.is_fifo() || kind.is_file() || kind.is_socket())
    }

    pub(crate) fn metadata(&self) -> Option<Metadata> {
        match self {
            Source::Path(path) => fs::metadata(path).ok(),
            Source::Stdin => File::from(streams::stdin().ok()?).metadata().ok(),
        }
    }

    /// A name for the output of each recording: the file's own, with a number for duplicates.
    pub(crate) fn names(sources: &[Source]) -> Vec<OsString> {
        let own = |source: &Source| match source {
            Source::Path(path) => path.file_name().unwrap_or_else(|| OsStr::new("recording")).to_owned(),
            Source::Stdin => "stdin".into(),
        };
        // The count of each name: thousands of recordings may all be called perf.data.
        let mut wanted = HashMap::<OsString, u32>::new();
        let named = sources.iter().map(|source| {
            let own = own(source);
            let mut name = own.clone();
            while wanted.contains_key(&name) {
                let number = wanted.entry(own.clone()).or_default();
                *number += 1;
                name = own.clone();
                name.push(format!("-{number}"));
            }
            wanted.insert(name.clone(), 1);
            name
        });
        named.collect()
    }

    pub(crate) fn open(&self) -> Result<Recording> {
        Ok(match self {
            Source::Path(_) if self.is_missing_default() => {
                bail!("no {PERF_DATA} in this directory: give a file, or make one with `perf record`")
            }
            Source::Path(path) if path.as_os_str().as_bytes().starts_with(b"@") && !path.exists() => {
                let what = "no such file; this command reads one recording, not a list";
                return Err(Usage(format!("{self}: {what}")).into());
            }
            Source::Path(path) => Recording::open(path)?,
            Source::Stdin => {
                let stdin = streams::stdin().context("standard input can't be used")?;
                // A larger pipe seldom runs empty.
                #[cfg(target_os = "linux")]
                #[expect(clippy::let_underscore_must_use, reason = "a small pipe works, too")]
                let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_SIZE);
                Recording::from_file(File::from(stdin), STDIN.into(), temp_files())?
            }
        })
    }

    pub(crate) fn open_indexed(&self) -> Result<Recording> {
        let mut recording = self.open_rereadable()?;
        self.use_index(&mut recording);
        Ok(recording)
    }

    /// Uses the recording's index, if any: only for commands that select samples. Those that change or check
    /// all records must not depend on another file.
    pub(crate) fn use_index(&self, recording: &mut Recording) {
        if let Source::Path(path) = self {
            use_index(recording, path);
        }
    }

    pub(crate) fn open_rereadable(&self) -> Result<Recording> {
        let recording = self.open()?;
        recording.check_whole()?;
        Ok(if recording.is_rereadable() { recording } else { recording.spooled(&temp_files())? })
    }
}

/// The name in error messages.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Stdin => f.write_str(STDIN),
            Source::Path(path) => path.display().fmt(f),
        }
    }
}

/// As an unprivileged process may set it (/proc/sys/fs/pipe-max-size).
#[cfg(target_os = "linux")]
const PIPE_SIZE: usize = 1 << 20;

const STDIN: &str = "<stdin>";

/// Temporary files are created in `TMPDIR` without a name, so that none remains however the process ends.
pub(crate) fn temp_files() -> TempFiles {
    Arc::new(|| {
        tempfile::tempfile().map_err(|error| {
            let folder = std::env::temp_dir();
            let what = format!("can't create a temporary file in {} (TMPDIR): {error}", folder.display());
            std::io::Error::new(error.kind(), what)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(positional: &[String]) -> Result<Vec<Source>, String> {
        let positional = positional.iter().map(PathBuf::from).collect();
        InputsArgs { positional, input: Vec::new() }.sources().map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_stands_for_the_inputs_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let at = format!("@{}", list.display());
        let path = |path: &str| Source::Path(PathBuf::from(path));
        std::fs::write(&list, "# of the night\n\nb.data\r\n-\n./@c\nd e").unwrap();
        let found = sources(&["a.data".into(), at.clone(), "z".into()]).unwrap();
        assert_eq!(
            found,
            [path("a.data"), path("b.data"), Source::Stdin, path("./@c"), path("d e"), path("z")]
        );
        for (text, wrong) in [("\n#\n", "names no input"), ("@other", "can't include another list")] {
            std::fs::write(&list, text).unwrap();
            let error = sources(std::slice::from_ref(&at)).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
        std::fs::remove_file(&list).unwrap();
        assert!(sources(&[at]).unwrap_err().contains("can't be read"));
        assert!(sources(&["-".into(), "-".into()]).unwrap_err().contains("only once"));
        assert_eq!(sources(&["x".into()]).unwrap(), [path("x")]);
    }

    #[test]
    fn recordings_of_the_same_name_have_different_ones() {
        let sources = ["a/x", "b/x", "x-2", "-", "x"].map(|path| Source::named(Path::new(path)));
        assert_eq!(Source::names(&sources), ["x", "x-2", "x-2-2", "stdin", "x-3"]);
    }
}
