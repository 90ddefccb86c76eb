//! Finds the jitdump that a process mapped, and opens it only if that is safe.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use build_id::RecordedOn;
use perfx_format::names::without_deleted;
use perfx_format::{Bytes, Inode};
use rustix::process::geteuid;

use crate::ids::IdOptions;

/// The largest dump that is read, bytes. A larger one comes from a process that ran for days, or is meant to
/// exhaust memory.
const DUMP_MAX: u64 = 4 << 30;

/// The pid in the name of a dump, `…/jit-4711.dump`. perf recognises a mapped dump by this name.
pub fn pid_in(path: &[u8]) -> Option<u32> {
    let path = without_deleted(path);
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let digits = path[slash + 1..].strip_prefix(b"jit-")?.strip_suffix(b".dump")?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// The places where dumps are searched for.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders with dumps, which are found by file name alone.
    pub folders: Vec<PathBuf>,
    /// Folders that replace `/` of the recorded machine.
    pub roots: Vec<PathBuf>,
    /// The reason not to search the recorded paths on this machine, if there is one.
    pub not_here: Option<&'static str>,
}

/// Finds perf maps, the lists of code that JIT compilers write, and opens them only if that is safe.
#[derive(Clone, Debug)]
pub struct PerfMaps(Places);

impl PerfMaps {
    /// Searches the roots and, if the recording is of this machine, its paths.
    pub fn new(ids: &IdOptions, recorded_on: &RecordedOn) -> PerfMaps {
        let places = Places::new(Vec::new(), ids.roots().to_vec(), ids.is_foreign());
        PerfMaps(places.of_recording(recorded_on))
    }

    /// The path at which a process writes its perf map. perf shows it as the name of the listed memory.
    pub fn path(pid: u32) -> String {
        format!("/tmp/perf-{pid}.map")
    }

    /// Opens the perf map of a process.
    ///
    /// # Errors
    ///
    /// The reason why none can be used.
    pub fn open(&self, pid: u32) -> Result<(Bytes, PathBuf), String> {
        self.0.perf_map(pid)
    }
}

impl Places {
    /// Searches these folders and roots, and this machine unless `foreign`.
    pub fn new(folders: Vec<PathBuf>, roots: Vec<PathBuf>, foreign: bool) -> Places {
        Places { folders, roots, not_here: foreign.then_some("--foreign") }
    }

    /// The places for a recording: without this machine unless it is provably the recorded one, because dumps
    /// have no build-id.
    #[must_use]
    pub fn of_recording(&self, recorded_on: &RecordedOn) -> Places {
        let is_foreign = || !recorded_on.is_machine(Path::new("/"));
        let why = "the recording is not provably of this machine (--root / searches it nevertheless)";
        let foreign = || is_foreign().then_some(why);
        Places { not_here: self.not_here.or_else(foreign), ..self.clone() }
    }

    /// Opens the perf map of a process.
    ///
    /// # Errors
    ///
    /// The reason why none can be used.
    pub fn perf_map(&self, pid: u32) -> Result<(Bytes, PathBuf), String> {
        self.open(PerfMaps::path(pid).as_bytes(), None)
    }

    /// Opens the dump that was mapped at this path; if that fails, the error is the reason. `mapped` is the
    /// inode of the mapped file, if the recording contains it.
    ///
    /// # Errors
    ///
    /// The reason why none can be used.
    pub fn open(&self, path: &[u8], mapped: Option<Inode>) -> Result<(Bytes, PathBuf), String> {
        let path = Path::new(OsStr::from_bytes(without_deleted(path)));
        let name = path.file_name().unwrap_or_default();
        let below_root = path.strip_prefix("/").unwrap_or(path);
        let in_folders =
            self.folders.iter().map(|folder| folder.join(name)).map(|place| (place.clone(), Ok(place)));
        let in_roots =
            self.roots.iter().map(|root| (root.join(below_root), build_id::resolve_folder(root, path)));
        let mut why = None;
        let here = self.not_here.is_none() && path.is_absolute();
        for (place, found, is_named) in in_folders
            .chain(in_roots)
            .map(|(place, found)| (place, found, true))
            .chain(here.then(|| (path.to_owned(), Ok(path.to_owned()), false)))
        {
            let found = found.map_err(build_id::Error::from).map_err(Refused::from);
            match found.and_then(|found| Ok((open(&found, (!is_named).then_some(mapped))?, found))) {
                Ok(opened) => return Ok(opened),
                // An existing file that can't be used is a more helpful reason than a missing file.
                Err(Refused { there, what }) if there || why.is_none() => {
                    why = Some(format!("{}: {what}", place.display()));
                }
                Err(_) => {}
            }
        }
        Err(why.unwrap_or_else(|| {
            let reason = self.not_here.unwrap_or("it is not absolute");
            format!("{}: its recorded path is not searched: {reason}", path.display())
        }))
    }
}

struct Refused {
    /// True if the file exists.
    there: bool,
    what: String,
}

impl From<build_id::Error> for Refused {
    fn from(error: build_id::Error) -> Refused {
        let there =
            !matches!(&error, build_id::Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound);
        Refused { there, what: error.to_string() }
    }
}

/// Opens a dump at a path from the user (`recorded` is `None`) or from the recording. A recorded path may
/// have another file by now, written by anyone.
fn open(path: &Path, recorded: Option<Option<Inode>>) -> Result<Bytes, Refused> {
    let (file, metadata) = build_id::open_unlinked(path)?;
    map(&file, &metadata, recorded).map_err(|what| Refused { there: true, what })
}

fn map(file: &File, metadata: &Metadata, recorded: Option<Option<Inode>>) -> Result<Bytes, String> {
    let (user, owner) = (geteuid().as_raw(), metadata.uid());
    let is_same = |inode: Inode| inode.inode == metadata.ino();
    let is_trusted = match recorded {
        None => true,
        Some(mapped) => mapped.is_some_and(is_same),
    };
    // Root reads the dumps of other users, but not files that they may have put in place of recorded ones.
    if owner != user && owner != 0 && !(user == 0 && is_trusted) {
        return Err(format!(
            "owned by user {owner}, who may have written anything into it: copy the file if you trust it"
        ));
    }
    if metadata.len() > DUMP_MAX {
        return Err(format!("too large: {} bytes, the limit is {DUMP_MAX}", metadata.len()));
    }
    Bytes::map(file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_perf_knows_are_those_of_dumps() {
        for (path, pid) in [
            (&b"/tmp/jit-4711.dump"[..], Some(4711)),
            (b"/tmp/jit-4711.dump (deleted)", Some(4711)),
            (b"/jit-0.dump", Some(0)),
            (b"jit-4711.dump", None),
            (b"/tmp/jit-5x.dump", None),
            (b"/tmp/jit-.dump", None),
            (b"/tmp/jit-+5.dump", None),
            (b"/tmp/jit-99999999999.dump", None),
            (b"/tmp/JIT-5.dump", None),
            (b"/tmp/jit-5.dump/x", None),
            (b"//anon", None),
        ] {
            assert_eq!(pid_in(path), pid, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn a_dump_is_read_only_from_a_regular_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("jit-1.dump"), b"dump").unwrap();
        std::os::unix::fs::symlink(at("jit-1.dump"), at("jit-2.dump")).unwrap();
        std::fs::create_dir(at("jit-3.dump")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("jit-4.dump"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let places = Places::new(vec![folder.path().to_owned()], Vec::new(), false);
        let open = |path: &[u8]| places.open(path, None).map(|(bytes, _)| bytes.to_vec());
        assert_eq!(open(b"/elsewhere/jit-1.dump").unwrap(), b"dump");
        for (name, why) in [
            (&b"/tmp/jit-2.dump"[..], "link"),
            (b"/tmp/jit-3.dump", "not a regular file"),
            (b"/tmp/jit-4.dump", "not a regular file"),
            (b"/tmp/jit-5.dump", "No such file"),
        ] {
            let said = open(name).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let recorded = at("jit-1.dump").into_os_string().into_encoded_bytes();
        assert!(Places::default().open(&recorded, None).is_ok());
        let foreign = Places::default().of_recording(&RecordedOn::default());
        for nowhere in [Places::new(Vec::new(), Vec::new(), true), foreign] {
            assert!(nowhere.open(&recorded, None).is_err());
        }
    }
}
