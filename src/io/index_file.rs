//! Finds the index beside a recording, and uses it only if it belongs to that recording.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use perfx_format::Bytes;
use perfx_format::read::{Index, Recording};
use perfx_look::render::printable;

/// The path of a recording's index.
pub(crate) fn index_path(recording: &Path) -> PathBuf {
    let mut path = OsString::from(recording.components().as_path());
    path.push(".pfi");
    path.into()
}

/// Uses the index of the recording that was opened at this path. One that does not belong to it is reported, and not
/// used.
pub(crate) fn use_index(recording: &mut Recording, path: &Path) {
    let place = index_path(path);
    let Some(metadata) = fs::metadata(&place).ok().filter(Metadata::is_file) else { return };
    match read(&place, &metadata, recording) {
        Ok(index) => recording.use_index(index),
        Err(why) => {
            let (place, path) = (place.display(), path.display());
            let what = printable(&format!("{place} is not used: {why}; perfx index {path} renews it"));
            let _ = writeln!(anstream::stderr(), "perfx: {what}");
        }
    }
}

fn read(place: &Path, metadata: &Metadata, recording: &Recording) -> Result<Index, String> {
    let open = || Index::read(&Bytes::map(&File::open(place)?)?).map_err(anyhow::Error::from);
    let index = open().map_err(|error| error.to_string())?;
    // No program can set a file's time of last change, so a recording that changed last before the index was written is
    // the one that was indexed. Otherwise it may be a copy, which only its content tells.
    let written = (metadata.mtime(), metadata.mtime_nsec());
    let is_older = |file: &File| {
        file.metadata().is_ok_and(|metadata| (metadata.ctime(), metadata.ctime_nsec()) < written)
    };
    let thorough = !recording.files().all(is_older);
    match index.belongs_to(recording, thorough) {
        true => Ok(index),
        false => Err("the recording has changed since, or it is the index of another one".to_owned()),
    }
}

/// True if the file at this path may be replaced by an index: it is one, or there is none.
pub(crate) fn is_replaceable(place: &Path) -> bool {
    match fs::metadata(place) {
        Ok(metadata) => {
            let bytes =
                File::open(place).ok().filter(|_| metadata.is_file()).and_then(|file| Bytes::map(&file).ok());
            bytes.is_some_and(|bytes| bytes.is_empty() || Index::is_index(&bytes))
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
