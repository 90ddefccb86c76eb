//! Makes the index of a recording, in one read on all threads, and writes it beside the recording.

use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use perfx_format::read::{Index, IndexedBatch, Recording};
use perfx_pipeline::{Level, counted, scan};

use crate::io::commit::{Existing, NewFile, OutputPath, folder};
use crate::io::index_file::{index_path, is_replaceable, last_change};
use crate::term::units::size;

/// How exactly a kernel notes the time of a change, at worst.
const TICK: Duration = Duration::from_millis(20);

/// Writes the index of the recording at this path, which must just have been opened. Returns the line that reports it.
pub(crate) fn make_index(path: &Path, mut recording: Recording, threads: usize) -> Result<(Level, String)> {
    let place = index_path(path);
    ensure!(is_replaceable(&place), "{} is not an index and is not overwritten", place.display());
    recording.check_whole()?;
    ensure!(
        recording.is_rereadable(),
        "{} can be read only once: write it to a file first (perfx copy)",
        recording.name
    );
    let before = last_change(&recording).with_context(|| recording.name.to_string())?;
    // Any further change then gets another time.
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
    ensure!(is_unchanged, "{}: another program has changed it while it was read: try again", path.display());
    let bytes = index.to_bytes();
    let new = NewFile::unfinished(folder(&place)).with_context(|| place.display().to_string())?;
    let mut file = new.get().file();
    let written = file.write_all(&bytes).and_then(|()| file.set_modified(before));
    written.with_context(|| place.display().to_string())?;
    OutputPath::new(&place, Existing::Replace).commit(new)?;
    let (batches, samples) =
        (counted(index.batches() as u64, "batch", "batches"), counted(index.samples(), "sample", "samples"));
    Ok((
        Level::Info,
        format!("wrote {}: {batches}, {samples}, {}", place.display(), size(bytes.len() as u64)),
    ))
}
