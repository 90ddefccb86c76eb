//! A signal that ends the process takes with it what is not finished: no temporary file and no folder is ever on disk without being known here.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::Duration;

use perfx_format::reset_bus_signal;
use signal_hook::consts::{SIGBUS, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, exit};
use tempfile::TempDir;

use crate::term::report::printable;

/// Paths of what is not finished. Whoever makes, renames or removes such a thing holds the lock meanwhile, and a signal never gives it back: so
/// nothing is overlooked, and nothing is removed that has its final name.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new file or a temporary folder: gone when this is, and when a signal ends the process.
pub(crate) struct Unfinished<T> {
    /// `None` once it is finished.
    inner: Option<T>,
    /// Its temporary name, if it has one.
    path: Option<PathBuf>,
}

impl Unfinished<TempDir> {
    /// What `make` makes.
    pub(crate) fn folder(make: impl FnOnce() -> io::Result<TempDir>) -> io::Result<Self> {
        Self::new(make, |folder| Some(folder.path()))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().expect("a folder has a name")
    }
}

impl<T> Unfinished<T> {
    /// What `make` makes; `path` says what its temporary name is.
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

    /// What was made.
    pub(crate) fn get(&self) -> &T {
        self.inner.as_ref().expect("only `finish` takes it, and that consumes this")
    }

    /// Gives it its final name, or fails, without a signal in between. `finish` must not take long.
    pub(crate) fn finish<R>(mut self, finish: impl FnOnce(T) -> R) -> R {
        let mut unfinished = lock();
        let inner = self.inner.take().expect("only this takes it, and consumes it");
        let finished = finish(inner);
        self.forget(&mut unfinished);
        finished
    }
}

impl<T> Unfinished<T> {
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
            self.forget(&mut unfinished);
        }
    }
}

/// A file that gets larger than it may (ulimit -f) is an error of write(2), as a full disk is, and no death without a word.
pub(crate) fn survive_file_size_limit() {
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Does what must not be left half done: a signal that would end the process waits for it.
pub(crate) fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    watch();
    let _held = lock();
    work()
}

/// What the process was started to ignore (nohup, a shell's background) it goes on to ignore.
///
/// SIGBUS means that somebody cut a file short that is mapped: whoever wanted a page of it tries again and again until this thread, which has no use for
/// the page, has told and ended the process. A handler that runs on the faulting thread would need unsafe code and could do far less.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ignored = ignored();
        let deadly =
            [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let (sender, receiver) = mpsc::channel::<Signals>();
        let spawned = thread::Builder::new().spawn(move || {
            let Some(signal) = receiver.recv().ok().and_then(|mut signals| signals.forever().next()) else {
                return;
            };
            let shrunk = if signal == SIGBUS { shrunk() } else { Vec::new() };
            for name in &shrunk {
                let what = format!(
                    "perfx: {}: another program truncated the file while it was being read\n",
                    printable(name)
                );
                // Not through std's stream: the thread that goes round in a circle may have locked it.
                let _ = rustix::io::write(io::stderr(), what.as_bytes());
            }
            // That thread may also have this lock, and then never gives it back.
            let unfinished = if signal == SIGBUS { lock_soon() } else { Some(lock()) };
            unfinished.iter().flat_map(|unfinished| unfinished.iter()).for_each(|path| remove(path));
            if !shrunk.is_empty() {
                exit(1);
            }
            let _ = emulate_default_handler(signal);
        });
        // Without the thread a fault would go round in a circle for ever. Without the signals the temporary file stays behind, which is no reason not to
        // write the output.
        if spawned.is_ok() {
            reset_bus_signal();
            let _ = Signals::new(deadly.chain([SIGBUS])).map(|signals| sender.send(signals));
        }
    });
}

/// The lock, if it can be had within a second.
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

/// Mapped files that have become shorter since, as proc(5) tells; memmap2 maps files shared.
fn shrunk() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut names: Vec<String> = maps.lines().filter_map(shrunk_name).collect();
    names.dedup();
    names
}

/// The name in a line `start-end perms offset device inode name`, if the file ends a page or more before the mapping.
fn shrunk_name(line: &str) -> Option<String> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let is_shared = fields.next()?.ends_with('s');
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.next()?)?);
    let name = fields.nth(2)?.trim_start();
    // A newline, and nothing else, is escaped there.
    let names = [name.to_owned(), name.replace("\\012", "\n")];
    let (file, name) = names.into_iter().find_map(|name| Some((fs::metadata(&name).ok()?, name)))?;
    if !is_shared || !file.is_file() {
        return None;
    }
    let pages = file.len().next_multiple_of(rustix::param::page_size() as u64);
    (pages < offset + (end - start)).then_some(name)
}

/// The set of ignored signals of proc(5), bit 0 for signal 1; std and signal-hook do not tell it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn remove(path: &Path) {
    // Other threads may still make files in a folder that is being removed.
    for _ in 0..100 {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        if removed.is_ok() || !path.exists() {
            break;
        }
    }
}

/// The rest of a recording could not be written to a pipe: ends as every Unix filter does then, so that nobody takes the front of one for the whole.
pub(crate) fn die_of_closed_pipe() -> u8 {
    let _ = emulate_default_handler(SIGPIPE);
    1
}
