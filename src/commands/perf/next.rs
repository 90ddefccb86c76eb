//! Runs the next perf in PATH in place of this process, never perfx itself.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::io::source::identity;

/// The programs (`DEVICE:INODE,…`) that passed a command line on, and those that got it, with a hash of its
/// words. Otherwise two perfx called perf, or perfx and a script that calls it, would pass it on for ever.
const PASSED: &str = "PERFX_PASSED";

/// The most lines that one program gets before it is passed over.
const MOST_TURNS: usize = 8;

/// Device and inode of a program, as in [`PASSED`].
fn program_id(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let is_program = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    let (device, inode) = identity(&metadata);
    is_program.then(|| format!("{device}:{inode}"))
}

/// The next perf in PATH that has not got these words yet, and the new value of [`PASSED`].
pub(super) fn find(words: &[OsString]) -> Option<(PathBuf, String)> {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    let got = hasher.finish();
    let own = env::current_exe().ok().and_then(|own| program_id(&own))?;
    let mut passed = env::var(PASSED).unwrap_or_default();
    passed = if passed.is_empty() { own } else { format!("{passed},{own}") };
    let has_passed = |entry: &str| passed.split(',').any(|passed| passed == entry);
    // A script that adds a word at each turn gets another line each time.
    let turns = |id: &str| passed.split(',').filter(|passed| passed.starts_with(&format!("{id}:"))).count();
    let folders = env::var_os("PATH").unwrap_or_default();
    let (perf, id) = env::split_paths(&folders).find_map(|folder| {
        // An empty entry is the current folder; `perf` alone would be searched for in PATH.
        let perf = if folder.as_os_str().is_empty() { "./perf".into() } else { folder.join("perf") };
        let id = program_id(&perf)?;
        let may_run = !has_passed(&id) && !has_passed(&format!("{id}:{got:x}")) && turns(&id) < MOST_TURNS;
        may_run.then_some((perf, id))
    })?;
    Some((perf, format!("{passed},{id}:{got:x}")))
}

/// Runs a perf with these words; returns why that failed.
pub(super) fn run(perf: &Path, passed: String, words: &[OsString]) -> io::Error {
    Command::new(perf).arg0("perf").args(words).env(PASSED, passed).exec()
}
