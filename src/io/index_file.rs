//! Finds the index beside a recording, and uses it only if it belongs to that recording.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use perfx_format::Bytes;
use perfx_format::read::{Index, Recording};
use rustix::process::geteuid;

use crate::term::report::tell;

pub(crate) fn index_path(recording: &Path) -> PathBuf {
    let mut path = OsString::from(recording.components().as_path());
    path.push(".pfi");
    path.into()
}

/// Uses the index beside the recording at this path. One of another recording is reported and ignored.
pub(crate) fn use_index(recording: &mut Recording, path: &Path) {
    let place = index_path(path);
    let Some(metadata) = fs::metadata(&place).ok().filter(Metadata::is_file) else { return };
    match read(&place, &metadata, recording) {
        Ok(index) => recording.use_index(index),
        Err(why) => {
            let renews =
                is_replaceable(&place).then(|| format!("; perfx index {} rebuilds it", path.display()));
            let what = format!("{} is not used: {why}{}", place.display(), renews.unwrap_or_default());
            tell(&what);
        }
    }
}

fn read(place: &Path, metadata: &Metadata, recording: &Recording) -> Result<Index, String> {
    // Reading it must not take longer than reading the recording, unless that is small.
    if metadata.len() > recording.data_size().unwrap_or(0).saturating_add(1 << 16) {
        return Err("it is larger than the recording".to_owned());
    }
    let owners = recording.files().map(|file| file.metadata().map(|metadata| metadata.uid()));
    let owners = owners.collect::<io::Result<Vec<_>>>().map_err(|error| error.to_string())?;
    // A forged index could hide samples.
    if ![0, geteuid().as_raw()].contains(&metadata.uid()) && !owners.contains(&metadata.uid()) {
        return Err(format!("it belongs to user {}, and the recording does not", metadata.uid()));
    }
    let open = || Index::read(&Bytes::map(&File::open(place)?)?).map_err(anyhow::Error::from);
    let index = open().map_err(|error| error.to_string())?;
    let is_unchanged =
        metadata.modified().ok().is_some_and(|made_for| last_change(recording) == Some(made_for));
    match index.belongs_to(recording, !is_unchanged) {
        true => Ok(index),
        false => Err("the recording has changed since, or this is the index of another recording".to_owned()),
    }
}

/// The ctime of the recording, which becomes the mtime of its index. No program can set a ctime, so a
/// recording with this one is the indexed one; any other may be a copy, which only its content shows. The
/// index may also be a copy, with a later mtime.
pub(crate) fn last_change(recording: &Recording) -> Option<SystemTime> {
    let changes = recording.files().map(|file| {
        let metadata = file.metadata().ok()?;
        let since = Duration::new(metadata.ctime().try_into().ok()?, metadata.ctime_nsec().try_into().ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    });
    changes.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// True if an index may replace this file: it is an index, empty or missing.
pub(crate) fn is_replaceable(place: &Path) -> bool {
    let begins_well =
        |file: File| Bytes::map(&file).is_ok_and(|bytes| bytes.is_empty() || Index::is_index(&bytes));
    match fs::metadata(place) {
        // Opening a FIFO would wait for a writer.
        Ok(metadata) => metadata.is_file() && File::open(place).is_ok_and(begins_well),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_beside_the_recording_and_replaces_only_an_index() {
        assert_eq!(index_path(Path::new("a/perf.data")), Path::new("a/perf.data.pfi"));
        assert_eq!(index_path(Path::new("/a/folder//")), Path::new("/a/folder.pfi"));
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, content: Option<&str>| {
            let path = folder.path().join(name);
            content.into_iter().for_each(|content| fs::write(&path, content).unwrap());
            is_replaceable(&path)
        };
        assert!(at("missing", None) && at("empty", Some("")) && !at("text", Some("an index?")));
        assert!(!is_replaceable(folder.path()) && !at("text/below", None));
    }

    #[test]
    fn a_recording_in_memory_has_no_last_change() {
        let file = include_bytes!("../../tests/data/recorded/z.p73.data");
        let recording = Recording::from_bytes(file.to_vec(), "z").unwrap();
        assert_eq!(last_change(&recording), None);
    }
}
