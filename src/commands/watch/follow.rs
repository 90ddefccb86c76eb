//! Follows the files of a recording while a program writes them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use perfx_format::header::data_end;
use perfx_format::read::Recording;
use perfx_format::write::pipe_front;
use rustix::fs::OFlags;

use super::seen::Seen;
use crate::io::output::is_recording;
use crate::io::signals::try_wait;
use crate::io::source::{identity, temp_files};

/// The interval between checks for new data.
const TICK: Duration = Duration::from_millis(100);

/// A followed recording. At the end, it may have another name (perf record --switch-output) or none.
pub(super) struct Found {
    file: File,
    path: PathBuf,
}

impl Found {
    pub(super) fn open(self) -> Result<Recording> {
        let name = self.path.display().to_string();
        Ok(if self.path.is_dir() {
            Recording::open(&self.path)?
        } else {
            Recording::from_file(self.file, name.into(), temp_files())?
        })
    }
}

/// Waits for the child, and counts the recordings that it writes. Returns its status and the recordings.
pub(super) fn until_exit(child: &mut Child, seen: &Seen) -> Result<(ExitStatus, Vec<Found>)> {
    let ended = Arc::new(AtomicBool::new(false));
    let (mut known, mut threads, mut found) = (HashSet::new(), Vec::new(), Vec::new());
    let status = loop {
        let status = try_wait(child).context("can't wait for the command")?;
        for path in written_by(child.id()) {
            let Ok(file) = File::open(&path) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let identity = identity(&metadata);
            if known.contains(&identity) {
                continue;
            }
            // perf may not have written the header yet.
            if let Some(streams) = streams(&path) {
                known.insert(identity);
                threads.extend(streams.into_iter().filter_map(|stream| count(stream, seen, &ended)));
                found.push(Found { file, path: recording_of(&path).to_owned() });
            }
        }
        if let Some(status) = status {
            break status;
        }
        thread::sleep(TICK);
    };
    ended.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().ok();
    }
    Ok((status, found))
}

fn written_by(pid: u32) -> Vec<PathBuf> {
    let mut recordings = Vec::new();
    let mut processes = vec![pid];
    while let Some(pid) = processes.pop() {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let children = fs::read_to_string(process.join(format!("task/{pid}/children"))).unwrap_or_default();
        processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let Ok(path) = fs::read_link(entry.path()) else { continue };
            let info = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default();
            if path.is_absolute() && is_written(&info) && is_recording(&path) {
                recordings.push(path);
            }
        }
    }
    recordings
}

/// True if the file was opened for writing: /proc/PID/fdinfo has the flags of open(2) in octal.
fn is_written(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    let mode = OFlags::from_bits_retain(flags) & OFlags::RWMODE;
    mode == OFlags::WRONLY || mode == OFlags::RDWR
}

/// The file itself, or the directory for its `data`.
fn recording_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if path.ends_with("data") && folder.join("data.0").exists() => folder,
        _ => path,
    }
}

struct Stream {
    path: PathBuf,
    from: u64,
    /// The events in the form that a stream has before the records.
    front: Vec<u8>,
}

/// The files of a recording, if its header is complete.
fn streams(path: &Path) -> Option<Vec<Stream>> {
    let recording = Recording::open(path).ok()?.lenient();
    let (front, _) = pipe_front(&recording.events, &recording.features, recording.endian).ok()?;
    let header = recording.file.as_ref()?;
    let folder = recording_of(path);
    let stream = |path: PathBuf, from| Stream { path, from, front: front.clone() };
    let mut streams = vec![stream(path.to_owned(), header.data.offset)];
    if folder != path {
        let beside = (0..).map(|number| folder.join(format!("data.{number}")));
        streams.extend(beside.take_while(|file| file.exists()).map(|file| stream(file, 0)));
    }
    Some(streams)
}

fn count(stream: Stream, seen: &Seen, ended: &Arc<AtomicBool>) -> Option<JoinHandle<()>> {
    let (seen, ended) = (seen.clone(), ended.clone());
    let work = move || {
        let name = stream.path.display().to_string();
        let Ok(file) = Growing::open(stream, seen.clone(), ended) else { return };
        // All is counted again at the end: while perf finishes the file, later data may look like records.
        let recording = Recording::from_reader(Box::new(file), name.into(), temp_files());
        recording.map_err(anyhow::Error::from).and_then(|recording| seen.count(recording)).ok();
    };
    thread::Builder::new().spawn(work).ok()
}

/// Reads the records of a file as a pipe while they are written.
struct Growing {
    file: File,
    at: u64,
    has_header: bool,
    /// The events, which precede the records.
    front: io::Cursor<Vec<u8>>,
    seen: Seen,
    ended: Arc<AtomicBool>,
}

impl Growing {
    fn open(stream: Stream, seen: Seen, ended: Arc<AtomicBool>) -> io::Result<Growing> {
        let Stream { path, from, front } = stream;
        let (file, front, has_header) = (File::open(path)?, io::Cursor::new(front), from > 0);
        Ok(Growing { file, at: from, has_header, front, seen, ended })
    }
}

impl Read for Growing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.front.read(into)?;
        if count > 0 {
            return Ok(count);
        }
        loop {
            let ended = self.ended.load(Ordering::Relaxed);
            let mut count = self.file.read_at(into, self.at)?;
            if let Some(end) = self.has_header.then(|| data_end(&self.file)).transpose()?.flatten() {
                count = count.min(usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX));
                if count == 0 {
                    return Ok(0);
                }
            }
            if count > 0 || ended {
                self.at += count as u64;
                self.seen.add_bytes(count as u64);
                return Ok(count);
            }
            thread::sleep(TICK);
        }
    }
}
