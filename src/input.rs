//! Where a command's input comes from, by the rules perf users know.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use perfx_format::input::{Recording, Spool};

use crate::cli::InputArgs;

/// Where a recording comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Stdin,
    Path(PathBuf),
}

impl Source {
    /// Given, or by perf's rule: standard input when it is a pipe, else `perf.data`.
    pub(crate) fn of(args: &InputArgs) -> Source {
        Source::named(args.path())
    }

    /// The same of a path that may be given.
    pub(crate) fn named(path: Option<&PathBuf>) -> Source {
        match path {
            Some(path) if path == Path::new("-") => Source::Stdin,
            Some(path) => Source::Path(path.clone()),
            None if stdin_is_pipe() => Source::Stdin,
            None => Source::Path(PathBuf::from("perf.data")),
        }
    }

    pub(crate) fn open(&self) -> Result<Recording> {
        Ok(match self {
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
