//! Finds the jitdump and the perf map of a process, also in a container, and opens them only if that is safe.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use build_id::RecordedOn;
use perfx_format::names::without_deleted;
use perfx_format::{Bytes, Inode};
use rustix::process::geteuid;

use crate::facts::Facts;
use crate::ids::IdOptions;

/// The largest dump to read, bytes. Larger ones are from many days, or meant to exhaust memory.
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
    /// Why the recorded paths are not searched on this machine.
    pub not_here: Option<&'static str>,
    /// The process with code in memory without a file, if there is only one. In a container, its perf map has
    /// another pid in its name, so a map that is alone in a folder or root belongs to it.
    pub only_process: Option<u32>,
}

/// Finds perf maps, the lists of code that JIT compilers write, and opens them only if that is safe.
#[derive(Clone, Debug)]
pub struct PerfMaps(Places);

impl PerfMaps {
    /// Searches the roots and, if the recording is of this machine, its paths and living processes.
    pub fn new(ids: &IdOptions, recorded_on: &RecordedOn, facts: &Facts) -> PerfMaps {
        let places = Places::new(Vec::new(), ids.roots().to_vec(), ids.is_foreign());
        PerfMaps(Places { only_process: facts.only_jit_process(), ..places.of_recording(recorded_on) })
    }

    /// The path at which a process writes its perf map. perf shows it as the name of the listed memory.
    pub fn path(pid: u32) -> String {
        format!("/tmp/perf-{pid}.map")
    }

    /// The pid in the name of a perf map.
    pub fn pid_in(map: &Path) -> Option<u32> {
        map.file_name()?.to_str()?.strip_prefix("perf-")?.strip_suffix(".map")?.parse().ok()
    }

    /// Opens the perf map of a process.
    ///
    /// # Errors
    ///
    /// Why none can be used.
    pub fn open(&self, pid: u32) -> Result<(Bytes, PathBuf), String> {
        self.0.perf_map(pid)
    }
}

impl Places {
    /// Searches these folders and roots, and this machine unless `foreign`.
    pub fn new(folders: Vec<PathBuf>, roots: Vec<PathBuf>, foreign: bool) -> Places {
        Places { folders, roots, not_here: foreign.then_some("--foreign"), only_process: None }
    }

    /// The places for a recording: this machine only if it provably is the recorded one: dumps lack ids.
    #[must_use]
    pub fn of_recording(&self, recorded_on: &RecordedOn) -> Places {
        let is_foreign = || !recorded_on.is_machine(Path::new("/"));
        let why = "the recording is not provably of this machine (--root / searches it nevertheless)";
        let foreign = || is_foreign().then_some(why);
        Places { not_here: self.not_here.or_else(foreign), ..self.clone() }
    }

    /// Opens the perf map of a process; in a pid namespace, its name has the pid there.
    ///
    /// # Errors
    ///
    /// Why none can be used.
    pub fn perf_map(&self, pid: u32) -> Result<(Bytes, PathBuf), String> {
        let path = PathBuf::from(PerfMaps::path(pid));
        let mut candidates = self.named(&path);
        candidates.extend(self.only_process.filter(|&only| only == pid).and_then(|_| self.lone_map()));
        if self.not_here.is_none() {
            let inner = inner_pid(Path::new(PROC), pid).filter(|&inner| inner != pid);
            let inside = PerfMaps::path(inner.unwrap_or(pid));
            let inside = seen_by(Path::new(PROC), pid, Path::new(&inside));
            let here =
                Candidate { found: Ok(path.clone()), shown: path.clone(), trust: Trust::Recorded(None) };
            let (first, second) = if inner.is_some() { (inside, Some(here)) } else { (Some(here), inside) };
            candidates.extend(first.into_iter().chain(second));
        }
        self.first_of(candidates, &path)
    }

    /// Opens the dump that this process mapped at this path. `mapped` is the inode of the mapped file, if
    /// recorded.
    ///
    /// # Errors
    ///
    /// Why none can be used.
    pub fn open(&self, path: &[u8], mapped: Option<Inode>, pid: u32) -> Result<(Bytes, PathBuf), String> {
        let path = Path::new(OsStr::from_bytes(without_deleted(path)));
        let mut candidates = self.named(path);
        if self.not_here.is_none() && path.is_absolute() {
            let trust = Trust::Recorded(mapped);
            candidates.push(Candidate { found: Ok(path.to_owned()), shown: path.to_owned(), trust });
            candidates.extend(seen_by(Path::new(PROC), pid, path));
        }
        self.first_of(candidates, path)
    }

    /// The places named by the user: the file in the folders, and at its path below the roots.
    fn named(&self, path: &Path) -> Vec<Candidate> {
        let in_folders = self.folders.iter().map(|folder| {
            let place = folder.join(path.file_name().unwrap_or_default());
            Candidate { found: Ok(place.clone()), shown: place, trust: Trust::User }
        });
        let below_root = path.strip_prefix("/").unwrap_or(path);
        let in_roots = self.roots.iter().map(|root| Candidate {
            shown: root.join(below_root),
            found: build_id::resolve_folder(root, path),
            trust: Trust::User,
        });
        in_folders.chain(in_roots).collect()
    }

    /// The perf map that is alone in a folder or root.
    fn lone_map(&self) -> Option<Candidate> {
        let in_roots = self.roots.iter().filter_map(|root| build_id::resolve(root, Path::new("/tmp")).ok());
        let mut folders = self.folders.iter().cloned().chain(in_roots);
        folders.find_map(|folder| {
            let names = std::fs::read_dir(folder).ok()?.flatten();
            let mut maps = names.map(|entry| entry.path()).filter(|place| PerfMaps::pid_in(place).is_some());
            let place = maps.next().filter(|_| maps.next().is_none())?;
            Some(Candidate { found: Ok(place.clone()), shown: place, trust: Trust::User })
        })
    }

    fn first_of(&self, candidates: Vec<Candidate>, path: &Path) -> Result<(Bytes, PathBuf), String> {
        let mut why = None;
        for Candidate { shown, found, trust } in candidates {
            let found = found.map_err(build_id::Error::from).map_err(Refused::from);
            match found.and_then(|found| Ok((open(&found, trust)?, found))) {
                Ok(opened) => return Ok(opened),
                // An existing file that can't be used is a more helpful reason than a missing file.
                Err(Refused { there, what }) if there || why.is_none() => {
                    why = Some(format!("{}: {what}", shown.display()));
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

const PROC: &str = "/proc";

struct Candidate {
    shown: PathBuf,
    found: std::io::Result<PathBuf>,
    trust: Trust,
}

/// Why root may read a file that another user owns.
#[derive(Clone, Copy)]
enum Trust {
    User,
    /// The path is recorded; anyone may have put another file there. The file must have this inode.
    Recorded(Option<Inode>),
    /// This user owns a recorded process that is alive.
    Process(u32),
}

/// The pid of a living process in its innermost pid namespace.
fn inner_pid(proc: &Path, pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(proc.join(pid.to_string()).join("status")).ok()?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    pids.split_whitespace().last()?.parse().ok()
}

/// The file at a path as a living process sees it.
fn seen_by(proc: &Path, pid: u32, path: &Path) -> Option<Candidate> {
    let process = proc.join(pid.to_string());
    let owner = std::fs::metadata(&process).ok()?.uid();
    let root = process.join("root");
    let shown = root.join(path.strip_prefix("/").unwrap_or(path));
    Some(Candidate { shown, found: build_id::resolve_folder(&root, path), trust: Trust::Process(owner) })
}

struct Refused {
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

fn open(path: &Path, trust: Trust) -> Result<Bytes, Refused> {
    let (file, metadata) = build_id::open_unlinked(path)?;
    map(&file, &metadata, trust).map_err(|what| Refused { there: true, what })
}

fn map(file: &File, metadata: &Metadata, trust: Trust) -> Result<Bytes, String> {
    let (user, owner) = (geteuid().as_raw(), metadata.uid());
    let is_trusted = match trust {
        Trust::User => true,
        Trust::Recorded(mapped) => mapped.is_some_and(|inode| inode.inode == metadata.ino()),
        Trust::Process(of) => of == owner,
    };
    // Root reads the dumps of other users, except files that they may have put in place of recorded ones.
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
        let open = |path: &[u8]| places.open(path, None, 0).map(|(bytes, _)| bytes.to_vec());
        assert_eq!(open(b"/elsewhere/jit-1.dump").unwrap(), b"dump");
        for (name, why) in [
            (&b"/tmp/jit-2.dump"[..], "link"),
            (b"/tmp/jit-3.dump", "not a regular file"),
            (b"/tmp/jit-4.dump", "not a regular file"),
            (b"/tmp/jit-5.dump", "No such file"),
        ] {
            let error = open(name).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let recorded = at("jit-1.dump").into_os_string().into_encoded_bytes();
        assert!(Places::default().open(&recorded, None, 0).is_ok());
        let foreign = Places::default().of_recording(&RecordedOn::default());
        for nowhere in [Places::new(Vec::new(), Vec::new(), true), foreign] {
            assert!(nowhere.open(&recorded, None, 0).is_err());
        }
    }

    /// Regression: samples of such a process had no names.
    #[test]
    fn the_perf_map_of_a_process_in_a_container_has_the_pid_of_its_namespace() {
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("4711");
        std::fs::create_dir_all(process.join("root/tmp")).unwrap();
        std::fs::write(process.join("status"), "Name:\tnode\nNStgid:\t4711\t12\t1\nNSpid:\t4711\n").unwrap();
        std::fs::write(process.join("root/tmp/perf-1.map"), b"map").unwrap();
        assert_eq!(inner_pid(proc.path(), 4711), Some(1));
        assert_eq!(inner_pid(proc.path(), 4712), None);
        let open = |pid| {
            let candidates = seen_by(proc.path(), pid, Path::new("/tmp/perf-1.map")).into_iter().collect();
            Places::default().first_of(candidates, Path::new("/tmp/perf-1.map")).map(|(map, _)| map.to_vec())
        };
        assert_eq!(open(4711).unwrap(), b"map");
        assert!(open(4712).is_err());
    }

    #[test]
    fn a_perf_map_that_is_alone_in_a_root_is_that_of_the_only_process_with_such_code() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        let write = |name: &str| std::fs::write(root.path().join("tmp").join(name), name).unwrap();
        write("perf-1.map");
        write("perf-x.map");
        let places = Places::new(Vec::new(), vec![root.path().to_owned()], true);
        let places = Places { only_process: Some(4711), ..places };
        let map = |pid| places.perf_map(pid).map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(map(4711).unwrap(), "perf-1.map");
        assert!(map(4712).is_err());
        // Nothing shows which of two is right.
        write("perf-2.map");
        assert!(map(4711).is_err());
        write("perf-4711.map");
        assert_eq!(map(4711).unwrap(), "perf-4711.map");
    }
}
