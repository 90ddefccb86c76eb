//! Nameless files, and renames that never replace a file, if the system has them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

/// A file without a name on the file system of this folder, if there can be one that gets a name later.
#[cfg(target_os = "linux")]
pub(super) fn nameless(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, openat};

    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)?;
    by_descriptor(&file).exists().then_some(file)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn nameless(_folder: &Path) -> Option<File> {
    None
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a nameless file a name that must not exist.
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    Ok(linkat(CWD, by_descriptor(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// Renames to a name that must not exist; `None` if the file system cannot.
pub(super) fn rename_at_once(from: &Path, to: &Path) -> Option<io::Result<()>> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => None,
        renamed => Some(renamed.map_err(io::Error::from)),
    }
}
