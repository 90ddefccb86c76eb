//! Removes unfinished files when a signal ends the process: all temporary files on disk are registered here.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use perfx_format::reset_bus_signal;
use perfx_format::write::NewFile;
use perfx_look::render::printable;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGBUS, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, exit};
use tempfile::TempDir;

use crate::term::report::tell_failure;

/// Paths of unfinished files. The lock is held while one is created, renamed or removed, and kept after a
/// deadly signal: so none is missed, and no file with its final name is removed.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new file or a temporary folder. It is removed when dropped, and when a signal ends the process.
pub(crate) struct Unfinished<T> {
    /// `None` once it is finished.
    inner: Option<T>,
    path: Option<PathBuf>,
}

impl Unfinished<TempDir> {
    pub(crate) fn folder(make: impl FnOnce() -> io::Result<TempDir>) -> io::Result<Self> {
        Self::new(make, |folder| Some(folder.path()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().expect("a folder has a name")
    }

    /// Removes it with its contents, unless it was renamed.
    pub(crate) fn remove(self) -> Result<()> {
        self.finish(|folder| {
            let path = folder.path();
            let removed = match fs::remove_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(path),
                // A file may have taken its place.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
                removed => removed,
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let what =
                        "the output is complete, but this remnant of the replaced file can't be removed";
                    Err(error).with_context(|| format!("{}: {what}", path.display()))
                }
                _ => Ok(()),
            }
        })
    }
}

impl Unfinished<NewFile> {
    /// Creates a file on the file system of this folder, and registers it.
    pub(crate) fn file(folder: &Path) -> io::Result<Self> {
        Self::new(|| NewFile::in_folder(folder), NewFile::temporary_name)
    }
}

impl<T> Unfinished<T> {
    /// Registers what `make` creates; `path` returns its temporary name.
    pub(crate) fn new(
        make: impl FnOnce() -> io::Result<T>,
        path: impl Fn(&T) -> Option<&Path>,
    ) -> io::Result<Self> {
        watch();
        let mut unfinished = lock();
        let inner = make()?;
        let path = path(&inner).map(Path::to_owned);
        unfinished.extend(path.clone());
        Ok(Unfinished { inner: Some(inner), path })
    }

    pub(crate) fn get(&self) -> &T {
        self.inner.as_ref().expect("only `finish` takes it, and that consumes this")
    }

    /// Names it, or fails, without a signal in between. `finish` must be short.
    pub(crate) fn finish<R>(mut self, finish: impl FnOnce(T) -> R) -> R {
        let mut unfinished = lock();
        let inner = self.inner.take().expect("only this takes it, and consumes it");
        let finished = finish(inner);
        self.forget(&mut unfinished);
        finished
    }

    fn forget(&self, unfinished: &mut BTreeSet<PathBuf>) {
        if let Some(path) = &self.path {
            unfinished.remove(path);
        }
    }
}

impl<T> Drop for Unfinished<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            let mut unfinished = lock();
            drop(inner);
            if let Some(path) = self.path.as_ref().filter(|path| path.symlink_metadata().is_ok())
                && let Err(error) = remove_by_path(path)
            {
                tell_failure(&anyhow!("{} can't be removed: {error}", path.display()));
            }
            self.forget(&mut unfinished);
        }
    }
}

/// Makes exceeding the file size limit (ulimit -f) an error of write(2), like a full disk, not a death.
pub(crate) fn survive_file_size_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without the handler, the process is killed like any other.
        signal_hook::flag::register(SIGXFSZ, Arc::default()).ok();
    });
}

/// Ignore the next SIGINT.
static SURVIVES: AtomicBool = AtomicBool::new(false);

/// Signals are passed on to this child. The lock is held while it is started and awaited, so that no signal
/// is lost or reaches another process with its pid.
static CHILD: Mutex<Option<Pid>> = Mutex::new(None);

fn child() -> MutexGuard<'static, Option<Pid>> {
    CHILD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command. Until it ends, signals that would end this process end the command instead.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    watch();
    let mut child = child();
    let started = command.spawn()?;
    *child = Some(Pid::from_child(&started));
    Ok(started)
}

pub(crate) fn try_wait(started: &mut Child) -> io::Result<Option<ExitStatus>> {
    let mut child = child();
    let status = started.try_wait()?;
    *child = child.filter(|_| status.is_none());
    Ok(status)
}

fn pass_on(signal: i32) -> bool {
    let child = child();
    let Some((pid, signal)) = child.zip(Signal::from_named_raw(signal)) else { return false };
    kill_process(pid, signal).is_ok()
}

/// Runs work that must not be interrupted: a signal that would end the process waits for it.
pub(crate) fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    watch();
    let _held = lock();
    work()
}

/// Ignores the next SIGINT, which Ctrl-C also sends to the program that writes the input: this process ends
/// after that one. A second SIGINT ends this process.
pub(crate) fn survive_interrupt() {
    SURVIVES.store(true, Ordering::Relaxed);
}

/// Signals that were ignored when the process started (nohup, background jobs) stay ignored.
///
/// SIGBUS means that a mapped file was truncated: the thread that accessed the missing page repeats the
/// access until this thread, which does not need the page, has reported it and ended the process. A handler
/// on the faulting thread would need unsafe code and could do far less.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ignored = ignored();
        let deadly =
            [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let (sender, receiver) = mpsc::channel::<Signals>();
        let spawned = thread::Builder::new().spawn(move || {
            let ends = |signal: &i32| match *signal {
                SIGBUS => true,
                SIGINT if SURVIVES.swap(false, Ordering::Relaxed) => false,
                signal => !pass_on(signal),
            };
            let Some(signal) = receiver.recv().ok().and_then(|mut signals| signals.forever().find(ends))
            else {
                return;
            };
            let shrunk = if signal == SIGBUS { shrunk() } else { Vec::new() };
            for name in &shrunk {
                let what = format!(
                    "perfx: {}: another program truncated the file while it was being read\n",
                    printable(name)
                );
                // Not through std's stream: the faulting thread may have locked it.
                rustix::io::write(io::stderr(), what.as_bytes()).ok();
            }
            // The faulting thread may also hold this lock, and then never releases it.
            let unfinished = if signal == SIGBUS { lock_soon() } else { Some(lock()) };
            unfinished.iter().flat_map(|unfinished| unfinished.iter()).for_each(|path| remove(path));
            if !shrunk.is_empty() {
                exit(1);
            }
            emulate_default_handler(signal).ok();
        });
        // Without this thread, a SIGBUS would repeat for ever. Without the signals, temporary files may stay,
        // which is no reason to refuse the output.
        if spawned.is_ok() {
            reset_bus_signal();
            Signals::new(deadly.chain([SIGBUS])).map(|signals| sender.send(signals)).ok();
        }
    });
}

/// The lock, if it is available within a second.
fn lock_soon() -> Option<MutexGuard<'static, BTreeSet<PathBuf>>> {
    (0..100).find_map(|_| match UNFINISHED.try_lock() {
        Ok(unfinished) => Some(unfinished),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            thread::sleep(Duration::from_millis(10));
            None
        }
    })
}

/// Mapped files that have become shorter, from proc(5); memmap2 maps files shared.
fn shrunk() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut names: Vec<String> = maps.lines().filter_map(shrunk_name).collect();
    names.dedup();
    names
}

/// The name in a line `start-end perms offset device inode name` if the file ends a page before the mapping.
fn shrunk_name(line: &str) -> Option<String> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let is_shared = fields.next()?.ends_with('s');
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.next()?)?);
    let name = fields.nth(2)?.trim_start();
    // Only a newline is escaped there.
    let names = [name.to_owned(), name.replace("\\012", "\n")];
    let (file, name) = names.into_iter().find_map(|name| Some((fs::metadata(&name).ok()?, name)))?;
    if !is_shared || !file.is_file() {
        return None;
    }
    let pages = file.len().next_multiple_of(rustix::param::page_size() as u64);
    (pages < offset + (end - start)).then_some(name)
}

/// The set of ignored signals from proc(5), bit 0 for signal 1; std and signal-hook do not expose it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Removes a file or folder that only this process fills, with one descriptor at a time: the standard library
/// needs one per level of folders, and there may be none left.
fn remove_by_path(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return fs::remove_file(path);
    }
    let inside = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    inside.iter().try_for_each(|inside| remove_by_path(inside))?;
    fs::remove_dir(path)
}

fn remove(path: &Path) {
    // Other threads may still create files in a folder that is being removed.
    for _ in 0..100 {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        if removed.is_ok() || !path.exists() {
            break;
        }
    }
}

/// Handles a closed pipe in the middle of a recording: ends by the signal, as Unix filters do, so that the
/// incomplete recording is not mistaken for a whole one.
pub(crate) fn die_of_closed_pipe() -> u8 {
    // If the process survives, its exit code is 1.
    emulate_default_handler(SIGPIPE).ok();
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_by_its_path_and_what_links_lead_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("made/a/b/c")).unwrap();
        fs::write(at("made/a/file"), "").unwrap();
        fs::write(at("mine"), "").unwrap();
        std::os::unix::fs::symlink(folder.path(), at("made/a/b/link")).unwrap();
        remove_by_path(&at("made")).unwrap();
        assert!(!at("made").exists() && at("mine").exists());
    }
}
