//! Finds the build-ids that perf's build-id cache has for a path.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::BuildId;

/// The entries of `folder`, the folder of a path in a cache, by build-id.
///
/// The cache keeps `/bin/x` at `<cache>/bin/x/<hex id>/elf`, formerly at `<cache>/bin/x/<hex id>`
/// (perf-buildid-cache(1)), so no file has to be read. Names that are not build-ids belong to longer paths.
pub(crate) fn entries(folder: &Path) -> io::Result<BTreeMap<BuildId, PathBuf>> {
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|hex| BuildId::from_hex(hex).ok());
        entries.extend(id.map(|id| (id, entry.path())));
    }
    Ok(entries)
}
