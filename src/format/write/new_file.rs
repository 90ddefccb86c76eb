//! A file gets its name in one step when it is complete; until then, the file that it replaces stays.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile, TempPath};

use system::{link, nameless, rename_at_once};

#[cfg(unix)]
#[path = "new_file/unix.rs"]
mod system;
#[cfg(not(unix))]
#[path = "new_file/other.rs"]
mod system;

/// A file without its final name, readable only by its owner, like perf's. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct NewFile(Unnamed);

#[derive(Debug)]
enum Unnamed {
    /// A file without any name, which disappears however the process ends.
    Nameless(File),
    /// For file systems without nameless files (NFS), without /proc to name them, and outside Linux.
    Temporary(NamedTempFile),
}

impl NewFile {
    /// Creates it on the file system of this folder.
    ///
    /// # Errors
    ///
    /// The folder does not exist or can't be written to.
    pub fn in_folder(folder: &Path) -> io::Result<NewFile> {
        match nameless(folder) {
            Some(file) => Ok(NewFile(Unnamed::Nameless(file))),
            None => Ok(NewFile(Unnamed::Temporary(temporary().tempfile_in(folder).map_err(plain)?))),
        }
    }

    /// The file, to write to.
    pub fn file(&self) -> &File {
        match &self.0 {
            Unnamed::Nameless(file) => file,
            Unnamed::Temporary(file) => file.as_file(),
        }
    }

    /// Its temporary name, if any.
    pub fn temporary_name(&self) -> Option<&Path> {
        match &self.0 {
            Unnamed::Nameless(_) => None,
            Unnamed::Temporary(file) => Some(file.path()),
        }
    }

    /// Writes it to disk if it will replace another file: a rename may reach the disk before the contents,
    /// and then a crash would lose both. A new name replaces nothing, and waiting for the disk would double
    /// the time of a copy.
    ///
    /// # Errors
    ///
    /// The disk is full, or fails.
    pub fn sync_to_replace(&self, path: &Path) -> io::Result<()> {
        if path.try_exists().unwrap_or(true) { self.file().sync_all() } else { Ok(()) }
    }

    /// Gives it a name that must not exist.
    ///
    /// # Errors
    ///
    /// The name exists, or can't be given.
    pub fn take_name(&self, path: &Path) -> io::Result<()> {
        match &self.0 {
            Unnamed::Nameless(file) => link(file, path),
            Unnamed::Temporary(file) => rename_new(file.path(), path),
        }
    }

    /// Gives it a temporary name in the folder of a path, so that it can replace a file there.
    ///
    /// # Errors
    ///
    /// The name can't be given.
    pub fn named_beside(self, path: &Path) -> io::Result<TempPath> {
        Ok(match self.0 {
            Unnamed::Nameless(file) => {
                let named = temporary().make_in(folder(path), |name| link(&file, name)).map_err(plain)?;
                named.into_temp_path()
            }
            Unnamed::Temporary(file) => file.into_temp_path(),
        })
    }

    /// Gives it a name that may exist, and replaces the other file in the same step.
    ///
    /// # Errors
    ///
    /// The name can't be given; the other file stays.
    pub fn replace(self, path: &Path) -> io::Result<()> {
        self.named_beside(path)?.persist(path).map_err(|failed| plain(failed.error))
    }
}

/// Names of unfinished files and folders.
pub fn temporary() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".perfx-");
    builder
}

/// Removes the random temporary name that tempfile adds to errors.
pub fn plain(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((what, _)) => io::Error::new(error.kind(), what),
        None => error,
    }
}

/// The folder that contains a path.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Renames without replacing an existing file.
///
/// # Errors
///
/// The new name exists, or the rename fails.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    rename_at_once(from, to).unwrap_or_else(|| rename_new_in_steps(from, to))
}

/// Renames like [`rename_new`], for systems that cannot do it in one step (NFS, Windows).
fn rename_new_in_steps(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        match fs::hard_link(from, to) {
            // Without links, the only way is to check first.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
            linked => return linked.and_then(|()| fs::remove_file(from)),
        }
    }
    if to.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_in_steps_replaces_nothing_either() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (from, to) in [("new", "mine"), ("newdir", "mine"), ("newdir", "dir")] {
            fs::write(at("new"), "new").unwrap();
            fs::create_dir_all(at("newdir")).unwrap();
            fs::write(at("mine"), "mine").unwrap();
            fs::create_dir_all(at("dir/inside")).unwrap();
            for rename in [rename_new, rename_new_in_steps] {
                let error = rename(&at(from), &at(to)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{from} {to}");
                assert_eq!(fs::read(at("mine")).unwrap(), b"mine");
                assert!(at(from).exists() && at("dir/inside").exists());
            }
        }
        rename_new_in_steps(&at("new"), &at("a")).unwrap();
        rename_new_in_steps(&at("newdir"), &at("b")).unwrap();
        assert!(at("a").is_file() && at("b").is_dir() && !at("new").exists() && !at("newdir").exists());
    }
}
