//! `perfx shim` makes a folder whose program `perf` runs perfx where it can, else the next perf in PATH.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use perfx_pipeline::{Level, Report};

use crate::term::report::VerbosityArgs;

/// Make a folder with a program perf: perfx where it can, else the next perf
///
/// With the folder first in PATH, `perf script`, `perf inject`, `perf evlist` and `perf buildid-list` are run by
/// perfx, which prints the same. Other commands, and options that perfx does not have, go to the next perf in
/// PATH. With PERFX_VERBOSE=1, a line on standard error says so; with PERFX_STRICT=1, the exit code is 3 if
/// something was lost or is suspect.
///
/// Examples:
///   perfx shim ~/perfx-bin && PATH=~/perfx-bin:$PATH perf script -i perf.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Shim {
    /// The folder; it is made if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Shim {
    pub(crate) fn run(&self) -> Result<u8> {
        let own = env::current_exe().context("the path of perfx is not known")?;
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let perf = self.folder.join("perf");
        match fs::read_link(&perf) {
            Ok(to) => {
                // If perfx was moved or removed, only its name identifies it.
                let is_perfx = to.file_name() == own.file_name()
                    || fs::canonicalize(&perf).ok() == fs::canonicalize(&own).ok();
                ensure!(
                    is_perfx,
                    "{}: it is a link to {}, not to perfx, and stays",
                    perf.display(),
                    to.display()
                );
                fs::remove_file(&perf).with_context(|| perf.display().to_string())?;
            }
            Err(_) => ensure!(!perf.exists(), "{}: it exists, and is not a link", perf.display()),
        }
        symlink(&own, &perf).with_context(|| perf.display().to_string())?;
        let mut report = Report::default();
        report.say(
            Level::Info,
            format!("made {}: put {} first in PATH", perf.display(), self.folder.display()),
        );
        Ok(self.verbosity.print(&report))
    }
}
