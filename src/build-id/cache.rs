//! From the folder of a path in perf's build-id cache to the build-ids that the path was added with.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::BuildId;

/// The build-ids for which `folder`, the one of some path in a cache, has an entry, and where.
///
/// The cache keeps a copy of `/bin/x` at `<cache>/bin/x/<hex id>/elf`, and in old versions of perf at
/// `<cache>/bin/x/<hex id>` (perf-buildid-cache(1)), so the build-id need not be read: it is the name. Names
/// that are no build-id belong to longer paths.
pub(crate) fn entries(folder: &Path) -> io::Result<BTreeMap<BuildId, PathBuf>> {
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|hex| BuildId::from_hex(hex).ok());
        entries.extend(id.map(|id| (id, entry.path())));
    }
    Ok(entries)
}
