//! Shows the output of a command on a terminal through a pager, as perf does.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::io::streams;

/// The command line of the pager, if the output goes to a terminal and the user wants one.
pub(super) fn wanted() -> Option<OsString> {
    if streams::are_given() || !io::stdout().is_terminal() {
        return None;
    }
    let installed = || Some(OsString::from("less")).filter(|_| Path::new("/usr/bin/less").exists());
    let pager = env::var_os("PERF_PAGER").or_else(|| env::var_os("PAGER")).or_else(installed)?;
    (!pager.is_empty() && pager != "cat").then_some(pager)
}

/// Runs perfx with these words, and shows its output in the pager; returns the exit code of perfx.
pub(super) fn run(pager: &OsStr, words: &[OsString]) -> io::Result<u8> {
    let less = env::var_os("LESS").unwrap_or_else(|| "FRSX".into());
    let mut shell = Command::new("/bin/sh");
    let mut pager = shell.arg("-c").arg(pager).env("LESS", less).stdin(Stdio::piped()).spawn()?;
    let out = pager.stdin.take().map_or_else(Stdio::null, Stdio::from);
    let status = Command::new(env::current_exe()?).args(words).stdout(out).status()?;
    pager.wait()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
