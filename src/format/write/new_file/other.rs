//! Systems without nameless files, and without renames that never replace a file.

use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn nameless(_folder: &Path) -> Option<File> {
    None
}

pub(super) fn link(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn rename_at_once(_from: &Path, _to: &Path) -> Option<io::Result<()>> {
    None
}
