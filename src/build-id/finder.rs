//! Finds the build-id of a recorded object in the first place that has it, or reports why each has none.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::installed::{self, Modules};
use crate::running::{Looked, Running};
use crate::{Answer, BuildId, KnownIds, Reason, Source, cache, elf, root};

/// A recorded object whose build-id may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A file that a process mapped.
    File {
        /// The recorded path, in the mount namespace of the process.
        path: PathBuf,
        /// The recorded inode number; `None` (MMAP records have none) and 0 both mean unknown.
        inode: Option<u64>,
        /// The pid on the recorded machine.
        pid: Option<u32>,
    },
    /// The kernel without its modules.
    Kernel,
    /// A kernel module, by path (`/lib/modules/REL/kernel/fs/ext4/ext4.ko.xz`) or by name (`[ext4]`, `ext4`).
    Module(PathBuf),
    /// The code that the kernel maps into every process (vdso(7)).
    Vdso,
    /// The vdso of a 32-bit process, which may differ from another vdso of the same name on a 64-bit kernel.
    Vdso32,
}

impl Object {
    /// The name in `perf buildid-list`, in lists of known build-ids and in the build-id cache.
    fn name(&self) -> &Path {
        match self {
            Object::File { path, .. } | Object::Module(path) => path,
            Object::Kernel => Path::new("[kernel.kallsyms]"),
            Object::Vdso | Object::Vdso32 => Path::new("[vdso]"),
        }
    }
}

/// The places where a [`Finder`] searches: in the order of these fields, and nowhere by default.
///
/// The running kernel comes last, and only if [`Places::recorded_on`] identifies it as the recorded one.
#[derive(Debug)]
pub struct Places {
    /// Build-ids given by the user. They come first and are not checked.
    pub known: KnownIds,
    /// True to read the recorded paths on this machine, then below `/proc/PID/root` for processes in a
    /// container; given a build-id, also the files that the process still has mapped.
    ///
    /// A file whose inode number differs from the recorded one is not used. Recordings without inode numbers,
    /// and those of another machine, have no such protection.
    pub files: bool,
    /// Folders that replace `/`, such as a sysroot. Symbolic links in them are resolved inside them.
    ///
    /// Their inode numbers are not compared, because they are on other file systems than the recorded files.
    pub roots: Vec<PathBuf>,
    /// perf's build-id caches, such as `~/.debug`.
    pub caches: Vec<PathBuf>,
    /// The machine of the recording.
    pub recorded_on: RecordedOn,
    /// True to query the running kernel for itself, its modules and its vdso.
    pub running_kernel: bool,
    /// The folder that contains this machine's /proc and /sys: `/`, or a simulated machine in a test.
    pub system_root: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            known: KnownIds::default(),
            files: false,
            roots: Vec::new(),
            caches: Vec::new(),
            recorded_on: RecordedOn::default(),
            running_kernel: false,
            system_root: PathBuf::from("/"),
        }
    }
}

/// The recorded machine, from a recording.
#[derive(Clone, Debug, Default)]
pub struct RecordedOn {
    /// `uname -n`.
    pub host: Option<String>,
    /// `uname -r`. Without it, neither the running kernel nor a kernel in a root is used.
    pub release: Option<String>,
    /// `uname -m`. Without it, only the release is compared.
    pub arch: Option<String>,
}

impl RecordedOn {
    /// True if its kernel may have processes of 64 bits, and so another vdso for those of 32 bits.
    pub fn may_be_64_bit(&self) -> bool {
        self.arch.as_ref().is_none_or(|arch| arch.contains("64") || arch == "s390x")
    }

    /// True if the machine with this folder, which contains /proc and /sys, is provably the recorded one: the
    /// recording has its host name, the release of its kernel and its architecture.
    pub fn is_machine(&self, system_root: &Path) -> bool {
        let running = Running(system_root);
        let is_here = |recorded: &Option<String>, here: Option<String>| here.is_some() && *recorded == here;
        is_here(&self.host, running.host())
            && is_here(&self.release, running.release().ok())
            && is_here(&self.arch, Some(running.arch()))
    }
}

/// Finds build-ids in the given places.
///
/// ```
/// use std::path::PathBuf;
/// use build_id::{Answer, Finder, Object, Places};
///
/// let finder = Finder::new(Places { roots: vec![PathBuf::from("/no/such/root")], ..Places::default() });
/// let object = Object::File { path: PathBuf::from("/bin/sh"), inode: None, pid: None };
/// match finder.find(&object) {
///     Answer::Found { id, place, .. } => println!("{id} {}", place.display()),
///     Answer::Missing { tried } => assert_eq!(tried.len(), 1),
/// }
/// ```
#[derive(Debug)]
pub struct Finder {
    places: Places,
    /// The modules of the recorded release in each root; the folders are walked once, on first use.
    modules: Vec<OnceLock<Modules>>,
}

#[derive(Default)]
struct Search {
    wanted: Option<BuildId>,
    tried: Vec<(Source, Reason)>,
}

struct Hit {
    id: BuildId,
    place: PathBuf,
    checked: bool,
}

impl Finder {
    /// A finder for these places.
    pub fn new(places: Places) -> Finder {
        let modules = places.roots.iter().map(|_| OnceLock::new()).collect();
        Finder { places, modules }
    }

    /// The build-id of an object, or the reasons why there is none.
    pub fn find(&self, object: &Object) -> Answer {
        self.search(object, Search::default())
    }

    /// The first place of an object that has this build-id, or the reasons why there is none. The id
    /// identifies the file: its inode may differ, and the file may have been deleted.
    pub fn find_same(&self, object: &Object, id: BuildId) -> Answer {
        self.search(object, Search { wanted: Some(id), ..Search::default() })
    }

    fn search(&self, object: &Object, mut search: Search) -> Answer {
        self.in_known(object, &mut search)
            .or_else(|| self.in_files(object, &mut search))
            .or_else(|| self.in_roots(object, &mut search))
            .or_else(|| self.in_caches(object, &mut search))
            .or_else(|| self.in_running(object, &mut search))
            .unwrap_or(Answer::Missing { tried: search.tried })
    }

    /// The bytes of the vdso of 64-bit processes, if the recorded kernel is running and may be used.
    pub fn vdso_image(&self) -> Option<Vec<u8>> {
        self.recorded_is_running().ok()?;
        self.running_vdso_image()
    }

    /// The bytes of the vdso of 64-bit processes, whichever kernel is running, if it may be used.
    pub fn running_vdso_image(&self) -> Option<Vec<u8>> {
        let here = self.places.running_kernel && cfg!(target_pointer_width = "64");
        here.then(|| Running(&self.places.system_root).vdso_image()).flatten()
    }

    fn in_known(&self, object: &Object, search: &mut Search) -> Option<Answer> {
        if self.places.known.is_empty() {
            return None;
        }
        let place = object.name().to_owned();
        let hit = self.places.known.get(&place).map(|id| Hit { id, place, checked: true });
        search.accept(Source::KnownList, hit.ok_or(Reason::NotListed))
    }

    fn in_files(&self, object: &Object, search: &mut Search) -> Option<Answer> {
        let (path, inode, pid) = match object {
            _ if !self.places.files => return None,
            Object::File { path, inode, pid } => (path, *inode, *pid),
            Object::Module(path) if path.is_absolute() => (path, None, None),
            Object::Module(_) | Object::Kernel | Object::Vdso | Object::Vdso32 => return None,
        };
        if !path.is_absolute() {
            return search.accept(Source::File, Err(Reason::NotAbsolute));
        }
        let living = without_deleted(path);
        if living != path && search.wanted.is_none() {
            return search.accept(Source::File, Err(Reason::Deleted));
        }
        let inode = inode.filter(|_| search.wanted.is_none());
        search.accept(Source::File, read(living.to_owned(), inode)).or_else(|| {
            let pid = pid?;
            search
                .accept(Source::ProcRoot(pid), self.as_seen_by(pid, living, inode))
                .or_else(|| self.in_memory_of(pid, path, search))
        })
    }

    /// A file that a living process still has mapped, although its path is gone or leads to another file.
    fn in_memory_of(&self, pid: u32, path: &Path, search: &mut Search) -> Option<Answer> {
        search.wanted?;
        let folder = self.places.system_root.join("proc").join(pid.to_string()).join("map_files");
        let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let is_mapping = |link: &PathBuf| {
            std::fs::read_link(link).is_ok_and(|target| without_deleted(&target) == without_deleted(path))
        };
        let links: BTreeSet<PathBuf> = entries.filter(is_mapping).collect();
        links.into_iter().find_map(|link| search.accept(Source::MapFiles(pid), read(link, None)))
    }

    fn as_seen_by(&self, pid: u32, path: &Path, inode: Option<u64>) -> Result<Hit, Reason> {
        let process = self.places.system_root.join("proc").join(pid.to_string());
        if !process.exists() {
            return Err(Reason::NoProcess);
        }
        read(inside(&process.join("root"), path)?, inode)
    }

    fn in_roots(&self, object: &Object, search: &mut Search) -> Option<Answer> {
        let mut roots = self.places.roots.iter().zip(&self.modules);
        roots.find_map(|(root, modules)| match object {
            Object::File { path, .. } => {
                let hit = if path.is_absolute() {
                    inside(root, without_deleted(path)).and_then(|place| read(place, None))
                } else {
                    Err(Reason::NotAbsolute)
                };
                search.accept(Source::Root(root.clone()), hit)
            }
            Object::Kernel | Object::Module(_) => self.of_release(object, root, modules, search),
            // `make vdso_install` puts several below /lib/modules; a recording does not show the right one.
            Object::Vdso | Object::Vdso32 => None,
        })
    }

    fn of_release(
        &self,
        object: &Object,
        root: &Path,
        modules: &OnceLock<Modules>,
        search: &mut Search,
    ) -> Option<Answer> {
        let source = Source::Root(root.to_owned());
        let Some(release) = &self.places.recorded_on.release else {
            return search.accept(source, Err(Reason::NoRelease));
        };
        let mut places = BTreeSet::new();
        if let Object::Module(path) = object {
            // The recorded path decides between modules of the same name, if it can be read.
            let named = path.is_absolute().then(|| root::resolve(root, path).ok()).flatten();
            if let Some(Ok(hit)) = named.clone().map(|place| read(place, None)) {
                return search.accept(source, Ok(hit));
            }
            let modules = modules.get_or_init(|| installed::modules(root, release));
            places.extend(modules.get(&installed::module_name(path)).into_iter().flatten().cloned());
            places.extend(named);
        } else {
            places.extend(installed::kernels(root, release));
        }
        if places.is_empty() {
            return search.accept(source, Err(Reason::NotInRoot { release: release.clone() }));
        }
        let mut found = BTreeMap::new();
        for place in places {
            match read(place, None) {
                Ok(hit) => found.extend([(hit.id, hit.place)]),
                Err(reason) => search.tried.push((source.clone(), reason)),
            }
        }
        search.accept(source, only(root, found, search.wanted)?)
    }

    fn in_caches(&self, object: &Object, search: &mut Search) -> Option<Answer> {
        // If there are two vdsos, the cache's entry of that name is the other one.
        let is_other = *object == Object::Vdso32 && self.places.recorded_on.may_be_64_bit();
        let mut caches = self.places.caches.iter().filter(|_| !is_other);
        caches.find_map(|folder| search.accept(Source::Cache, cached(folder, object.name(), search.wanted)))
    }

    fn in_running(&self, object: &Object, search: &mut Search) -> Option<Answer> {
        if !self.places.running_kernel {
            return None;
        }
        let running = || self.recorded_is_running();
        let hit = match object {
            Object::File { .. } => return None,
            Object::Kernel => running().and_then(|it| judge(it.kernel(), true)),
            Object::Module(path) => {
                running().and_then(|it| judge(it.module(&installed::module_name(path)), true))
            }
            Object::Vdso if cfg!(target_pointer_width = "32") => Err(Reason::OtherWordSize),
            Object::Vdso32 if cfg!(target_pointer_width = "64") => Err(Reason::OtherWordSize),
            // There may be several of one word size, and the recording does not show which one it was.
            Object::Vdso | Object::Vdso32 => {
                running().and_then(|it| judge(it.vdso().ok_or(Reason::NoVdso)?, false))
            }
        };
        search.accept(Source::RunningKernel, hit)
    }

    fn recorded_is_running(&self) -> Result<Running<'_>, Reason> {
        let running = Running(&self.places.system_root);
        let RecordedOn { release, arch, .. } = &self.places.recorded_on;
        let release = release.as_ref().ok_or(Reason::NoRelease)?;
        same(running.release().map_err(|(place, error)| Reason::Unreadable { place, error })?, release)?;
        if let Some(arch) = arch {
            same(running.arch(), arch)?;
        }
        Ok(running)
    }
}

fn same(here: String, recorded: &str) -> Result<(), Reason> {
    if here == recorded { Ok(()) } else { Err(Reason::OtherKernel { here, recorded: recorded.to_owned() }) }
}

impl Search {
    /// Ends the search with a hit, or notes the reason and continues.
    fn accept(&mut self, source: Source, hit: Result<Hit, Reason>) -> Option<Answer> {
        let reason = match hit {
            Ok(Hit { id, place, checked }) => match self.wanted.filter(|&wanted| wanted != id) {
                None => return Some(Answer::Found { id, source, place, checked }),
                Some(wanted) => Reason::OtherId { place, found: id, wanted },
            },
            Err(reason) => reason,
        };
        self.tried.push((source, reason));
        None
    }
}

/// The path without the suffix that the kernel adds to the name of a mapped file that was deleted.
pub fn without_deleted(path: &Path) -> &Path {
    let name = path.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(name.strip_suffix(b" (deleted)").unwrap_or(name)))
}

/// Reads a file, which must have this inode number if one is known.
fn read(place: PathBuf, inode: Option<u64>) -> Result<Hit, Reason> {
    let (file, metadata) = match elf::open(&place) {
        Ok(opened) => opened,
        Err(error) => return Err(Reason::Unreadable { place, error }),
    };
    let recorded = inode.filter(|&inode| inode != 0);
    match recorded {
        Some(recorded) if recorded != metadata.ino() => {
            Err(Reason::Replaced { place, inode: metadata.ino(), recorded })
        }
        _ => judge((place, elf::of_open(file)), recorded.is_some()),
    }
}

fn judge((place, id): Looked, checked: bool) -> Result<Hit, Reason> {
    match id {
        Ok(Some(id)) => Ok(Hit { id, place, checked }),
        Ok(None) => Err(Reason::NoId { place }),
        Err(error) => Err(Reason::Unreadable { place, error }),
    }
}

/// Calls [`root::resolve`] and converts its error to a reason.
fn inside(root: &Path, path: &Path) -> Result<PathBuf, Reason> {
    root::resolve(root, path).map_err(|error| Reason::Unreadable {
        place: root.join(path.strip_prefix("/").unwrap_or(path)),
        error: error.into(),
    })
}

fn cached(cache: &Path, name: &Path, wanted: Option<BuildId>) -> Result<Hit, Reason> {
    // Resolved as in a root, so that a recorded name with `..` cannot lead to a folder outside the cache.
    let folder = inside(cache, without_deleted(name))?;
    match cache::entries(&folder) {
        Ok(entries) => only(&folder, entries, wanted).unwrap_or(Err(Reason::NoId { place: folder })),
        Err(error) => Err(Reason::Unreadable { place: folder, error: error.into() }),
    }
}

/// The wanted build-id of this folder, or else the only one; `None` if there is none.
fn only(
    folder: &Path,
    mut found: BTreeMap<BuildId, PathBuf>,
    wanted: Option<BuildId>,
) -> Option<Result<Hit, Reason>> {
    if let Some((id, place)) = wanted.and_then(|id| found.remove_entry(&id)) {
        return Some(Ok(Hit { id, place, checked: false }));
    }
    if found.len() > 1 {
        return Some(Err(Reason::Several { place: folder.to_owned(), ids: found.into_keys().collect() }));
    }
    found.pop_first().map(|(id, place)| Ok(Hit { id, place, checked: false }))
}
