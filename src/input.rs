//! Where a command's input comes from, by the rules perf users know.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::builder::Resettable;
use clap::{Arg, ArgAction, Args};
use perfx_format::input::{Recording, Spool};

use crate::cli::Usage;

/// Which recording to read.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputArgs {
    /// Recording to read: a file, a FIFO, a directory, or - for standard input [default: standard input if that is a pipe, else perf.data]
    #[arg(value_name = "INPUT")]
    positional: Option<PathBuf>,
    /// The same, as perf writes it
    #[arg(short, long, value_name = "INPUT", action = ArgAction::Set, num_args = 1, conflicts_with = "positional")]
    input: Vec<PathBuf>,
}

impl InputArgs {
    /// What the user gave.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.all().next()
    }

    /// What the user gave of a command for which -i is [`repeatable`].
    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.input.iter().chain(&self.positional)
    }
}

/// The -i of a command that takes more inputs than [`InputArgs`] has.
pub(crate) fn repeatable(input: Arg) -> Arg {
    let repeatable = input.action(ArgAction::Append).conflicts_with(Resettable::Reset);
    repeatable.help("The same, as perf writes it; repeatable")
}

/// Which recordings to read.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputsArgs {
    /// Recordings to read: files, FIFOs, directories, - for standard input, or @FILE for a list of them, one a line [default: standard input if that is a pipe, else perf.data]
    #[arg(value_name = "INPUT")]
    positional: Vec<PathBuf>,
    /// The same, as perf writes it; repeatable
    #[arg(short, long, value_name = "INPUT")]
    input: Vec<PathBuf>,
}

impl InputsArgs {
    /// For a command that has other names for them.
    pub(crate) fn of(positional: Vec<PathBuf>) -> InputsArgs {
        InputsArgs { positional, input: Vec::new() }
    }

    /// At least one; standard input at most once, for the second time it would be empty. `-i` come first, then the others.
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
        if sources.iter().filter(|source| **source == Source::Stdin).count() > 1 {
            return Err(
                Usage("standard input can be read only once, but - is given more often".into()).into()
            );
        }
        Ok(sources)
    }
}

/// The inputs that a file names, one a line; what stands between them (empty lines, those that begin with `#`) is for people. A name that begins with
/// `@` or `#` is written `./@name`.
fn listed(list: &Path) -> Result<Vec<Source>> {
    let wrong = |what: String| Usage(format!("@{}: {what}", list.display()));
    let text =
        std::fs::read(list).map_err(|error| wrong(format!("the list of inputs can't be read: {error}")))?;
    let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let names: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).collect();
    if names.is_empty() {
        return Err(wrong("the list names no input".into()).into());
    }
    if let Some(name) = names.iter().find(|name| name.starts_with(b"@")) {
        return Err(wrong(format!("a list can't name another one, {}", name.escape_ascii())).into());
    }
    Ok(names.iter().map(|name| Source::named(Path::new(OsStr::from_bytes(name)))).collect())
}

/// What perf calls a recording that nobody names.
const PERF_DATA: &str = "perf.data";

/// Where a recording comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Stdin,
    Path(PathBuf),
}

impl Source {
    /// Given, or by perf's rule: standard input when it is a pipe, else `perf.data`.
    pub(crate) fn of(args: &InputArgs) -> Source {
        args.path().map_or_else(Source::by_default, |path| Source::named(path))
    }

    fn named(path: &Path) -> Source {
        if path == Path::new("-") { Source::Stdin } else { Source::Path(path.to_owned()) }
    }

    fn by_default() -> Source {
        if stdin_is_pipe() { Source::Stdin } else { Source::Path(PathBuf::from(PERF_DATA)) }
    }

    pub(crate) fn open(&self) -> Result<Recording> {
        Ok(match self {
            Source::Path(path) if path == Path::new(PERF_DATA) && !path.exists() => {
                bail!("there is no {PERF_DATA} here: name a recording, or make one with `perf record`")
            }
            Source::Path(path) => Recording::open(path, spool())?,
            Source::Stdin => {
                let stdin =
                    io::stdin().as_fd().try_clone_to_owned().context("standard input can't be used")?;
                Recording::from_file(File::from(stdin), STDIN.into(), spool())?
            }
        })
    }
}

/// As errors name it.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Stdin => f.write_str(STDIN),
            Source::Path(path) => path.display().fmt(f),
        }
    }
}

/// The name of standard input.
const STDIN: &str = "<stdin>";

fn stdin_is_pipe() -> bool {
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    stdin.and_then(|stdin| stdin.metadata()).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Temporary files go where the system wants them (`TMPDIR`), without a name, so that nothing is left whatever happens.
pub(crate) fn spool() -> Spool {
    Arc::new(tempfile::tempfile)
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
        for (text, wrong) in [("\n#\n", "names no input"), ("@other", "can't name another one")] {
            std::fs::write(&list, text).unwrap();
            let error = sources(std::slice::from_ref(&at)).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
        std::fs::remove_file(&list).unwrap();
        assert!(sources(&[at]).unwrap_err().contains("can't be read"));
        assert!(sources(&["-".into(), "-".into()]).unwrap_err().contains("only once"));
        assert_eq!(sources(&["x".into()]).unwrap(), [path("x")]);
    }
}
