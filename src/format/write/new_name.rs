//! A file gets its name, and replaces the one that has it, in one step when it is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempPath};

/// The name that a file will get. Until then it has a temporary one in the same folder; if this is dropped, the
/// file is removed.
#[derive(Debug)]
pub(super) struct NewName {
    /// The same open file, to write it to disk.
    file: File,
    temporary: TempPath,
    path: PathBuf,
}

impl NewName {
    /// Creates a file for this path that only its owner can read, as perf does. If a link is there, the file that
    /// it points to is replaced.
    pub(super) fn create(path: &Path) -> io::Result<(File, NewName)> {
        let there = fs::metadata(path);
        if there.as_ref().is_ok_and(|there| !there.is_file()) {
            // A rename would replace the device or the FIFO itself.
            return Err(io::Error::other("it is not a regular file"));
        }
        let path = if there.is_ok() { path.canonicalize()? } else { path.to_owned() };
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let (file, temporary) = Builder::new().prefix(".perfx-").tempfile_in(folder)?.into_parts();
        Ok((file.try_clone()?, NewName { file, temporary, path }))
    }

    /// Gives the file its name.
    pub(super) fn take(self) -> io::Result<()> {
        // The rename may reach the disk before the contents, and then a crash would lose both files.
        if self.path.exists() {
            self.file.sync_all()?;
        }
        Ok(self.temporary.persist(&self.path)?)
    }
}
