//! Makes the index of a recording, in one read on all threads, and writes it beside the recording.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use perfx_format::read::{Index, IndexedBatch, Recording};
use perfx_format::write::folder;
use perfx_pipeline::{Level, Report, counted, scan};

use crate::io::index_file::{index_path, is_replaceable, last_change};
use crate::io::output::{Existing, OutputPath};
use crate::io::signals::Unfinished;
use crate::term::units::size;

/// The coarsest resolution of a kernel's ctimes.
const TICK: Duration = Duration::from_millis(20);

/// Writes the index of the recording at this path, which must just have been opened, and reports it.
pub(crate) fn make_index(
    path: &Path,
    mut recording: Recording,
    threads: usize,
    report: &mut Report,
) -> Result<()> {
    ensure!(
        !is_open_file(path),
        "{} is not the name of a file but of what a program has opened, so there is no place for an index: give the \
         file's own name",
        path.display()
    );
    let place = index_path(path);
    ensure!(is_replaceable(&place), "{} is not an index and is not overwritten", place.display());
    recording.check_whole()?;
    ensure!(
        recording.is_rereadable(),
        "{} can be read only once: write it to a file first (perfx copy)",
        recording.name
    );
    let before = last_change(&recording).with_context(|| recording.name.to_string())?;
    // A later change then has another ctime.
    let ago = SystemTime::now().duration_since(before).unwrap_or(TICK);
    thread::sleep(TICK.saturating_sub(ago));
    let mut batches = Vec::new();
    let read = |batch: &_| IndexedBatch::of(batch).map_err(perfx_pipeline::Error::from);
    scan(&mut recording, threads, false, read, |_, batch| {
        batches.push(batch);
        Ok(())
    })?;
    let index = Index::new(&recording, batches)?;
    let is_unchanged = last_change(&recording) == Some(before);
    ensure!(is_unchanged, "{}: another program changed it during reading: try again", path.display());
    let bytes = index.to_bytes();
    let new = Unfinished::file(folder(&place)).with_context(|| place.display().to_string())?;
    let mut file = new.get().file();
    let written = file.write_all(&bytes).and_then(|()| file.set_modified(before));
    written.with_context(|| place.display().to_string())?;
    OutputPath::new(&place, Existing::Replace).commit(new)?;
    let (batches, samples) =
        (counted(index.batches() as u64, "batch", "batches"), counted(index.samples(), "sample", "samples"));
    let size = size(bytes.len() as u64);
    report.say(Level::Info, format!("wrote {}: {batches}, {samples}, {size}", place.display()));
    Ok(())
}

/// True if the path leads through a descriptor, like /dev/stdin and /proc/self/fd/3: no name of the file.
fn is_open_file(path: &Path) -> bool {
    let mut path = path.to_owned();
    // Linux follows at most this many links.
    for _ in 0..40 {
        let Ok(above) = fs::canonicalize(folder(&path)) else { return false };
        if above.starts_with("/proc") {
            return true;
        }
        let Ok(to) = fs::read_link(&path) else { return false };
        path = above.join(to);
    }
    false
}
