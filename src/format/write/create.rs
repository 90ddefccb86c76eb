//! Creates recordings by their paths.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::RecordingWriter;
use super::new_file::{NewFile, folder};
use super::recording::Created;
use crate::{Endian, Error, Event, Result};

impl RecordingWriter<File> {
    /// Writes a file that gets its name in [`RecordingWriter::finish`], and only then replaces an existing
    /// one, which may be the recording that is being read. Until then it has no name, or on file systems
    /// without nameless files a temporary one in the same folder; nothing of it remains if the writer is
    /// dropped. Only its owner can read it, like perf's files.
    ///
    /// # Errors
    ///
    /// The file cannot be created or written, or the path is not that of a regular file.
    pub fn create(path: impl AsRef<Path>, events: &[Event], endian: Endian) -> Result<Self> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let fail = |e| Error::io("can't be created", e).file(&name);
        let (new_file, path) = create(path).map_err(fail)?;
        let file = new_file.file().try_clone().map_err(fail)?;
        let mut writer = RecordingWriter::to_file(file, events, endian).map_err(|e| e.file(&name))?;
        let commit = Box::new(move || {
            new_file.sync_to_replace(&path)?;
            new_file.replace(&path)
        });
        writer.created = Some(Created { name, commit });
        Ok(writer)
    }
}

/// Creates a file for this path. If a link is there, the file that it points to is replaced.
fn create(path: &Path) -> io::Result<(NewFile, PathBuf)> {
    let there = fs::metadata(path);
    if there.as_ref().is_ok_and(|there| !there.is_file()) {
        // A rename would replace the device or the FIFO itself.
        return Err(io::Error::other("it is not a regular file"));
    }
    if there.is_err() && path.is_symlink() {
        // A rename would replace the link.
        return Err(io::Error::other("it is a symbolic link to nothing"));
    }
    let path = if there.is_ok() { path.canonicalize()? } else { path.to_owned() };
    Ok((NewFile::in_folder(folder(&path))?, path))
}
