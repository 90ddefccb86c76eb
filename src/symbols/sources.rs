//! Finds the symbols of a recorded object, in files that are the recorded ones as far as can be known.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use build_id::{Answer, BuildId, Finder, Object, Places, Reason, RecordedOn, Source};

use crate::debuginfod::{Artifact, Debuginfod};
use crate::elf::ElfFile;
use crate::memory::{self, KernelCode};
use crate::unwind::UnwindTables;
use crate::{DwarfFiles, DwarfPlaces, Inlined, Symbol, Symbols, kallsyms};

/// The device and the inode of a file.
pub type FileIdentity = (u64, u64);

/// The places to search for symbols.
///
/// ```no_run
/// use std::path::PathBuf;
/// use build_id::{Object, RecordedOn};
/// use symbols::Sources;
///
/// let sources = Sources::new(true, &[], &[], &RecordedOn::default());
/// let object = Object::File { path: PathBuf::from("/bin/sh"), inode: None, pid: None };
/// let image = sources.image(&object, None, None);
/// if let Some(symbol) = image.as_ref().and_then(|image| image.find(0x1_2340)) {
///     println!("{}", symbol.shown());
/// }
/// ```
#[derive(Debug)]
pub struct Sources {
    searches: Vec<PlaceSearch>,
    running: Option<Finder>,
    /// True if the recording is provably of this machine: its files and kernel are then found by name.
    is_of_here: bool,
    caches: Vec<PathBuf>,
    debug: Vec<DebugFolder>,
    debuginfod: Option<Debuginfod>,
    kernel: Option<KernelFile>,
    unverified: bool,
    known: Mutex<KnownFiles>,
}

/// The files that are in memory, by identity and recorded path, and the last one: many objects can be the
/// same file, such as those of containers.
#[derive(Debug, Default)]
struct KnownFiles {
    files: HashMap<(FileIdentity, PathBuf), Weak<ImageFile>>,
    last: Option<Arc<ImageFile>>,
}

/// A search of one place, so that a wrong build-id in one place does not hide the right file in the next.
#[derive(Debug)]
struct PlaceSearch {
    finder: Finder,
    /// True if a name is sufficient for a file without a build-id in the recording.
    by_name: bool,
}

/// The user's file with the kernel's symbols. No other is searched for then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelFile {
    /// A copy of `/proc/kallsyms`, or a System.map. It has no build-id, so it is trusted to be the right one.
    Kallsyms(PathBuf),
    /// An ELF file; if the recording has a build-id of the kernel, the file must have the same.
    Vmlinux(PathBuf),
}

impl KernelFile {
    /// The path of the file.
    pub fn path(&self) -> &Path {
        match self {
            KernelFile::Kallsyms(path) | KernelFile::Vmlinux(path) => path,
        }
    }

    /// Checks that it has symbols or code of a kernel.
    ///
    /// # Errors
    ///
    /// It cannot be read, or has neither symbols with addresses nor code.
    pub fn check(&self) -> io::Result<()> {
        let (symbols, what) = match self {
            KernelFile::Kallsyms(_) => (
                self.symbols(None)?,
                "it has no kernel function with an address; only root sees the addresses in /proc/kallsyms",
            ),
            // Traces are decoded with the code of a file without symbols.
            KernelFile::Vmlinux(path) if has_code(path) => return Ok(()),
            KernelFile::Vmlinux(_) => (self.symbols(None)?, "it has neither symbols nor code"),
        };
        if symbols.is_empty() { Err(io::Error::other(what)) } else { Ok(()) }
    }

    fn symbols(&self, module: Option<&[u8]>) -> io::Result<Symbols> {
        match self {
            KernelFile::Kallsyms(path) => kallsyms::read(path, module),
            KernelFile::Vmlinux(_) if module.is_some() => Ok(Symbols::default()),
            KernelFile::Vmlinux(path) => {
                // The text contains the causes.
                let elf = ElfFile::read(path).map_err(|error| io::Error::other(error.to_string()))?;
                Ok(Symbols::new(elf.symbols))
            }
        }
    }

    fn fits(&self, id: Option<BuildId>) -> bool {
        match self {
            KernelFile::Kallsyms(_) => true,
            KernelFile::Vmlinux(path) => fits(id, build_id::of_file(path).ok().flatten()),
        }
    }
}

/// `/` of this machine or a root, which has debug files.
#[derive(Clone, Debug)]
struct DebugFolder {
    root: PathBuf,
}

impl DebugFolder {
    fn anywhere(&self, below: &Path) -> Option<PathBuf> {
        build_id::resolve(&self.root, below).ok()
    }
}

/// A symbol of the recorded kernel with its address, which perf record writes into the kernel's mapping. It
/// relates the addresses of another boot or of vmlinux to the recorded kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// `_text` or `_stext`.
    pub name: Vec<u8>,
    /// Its recorded address.
    pub address: u64,
    /// The build-id of the kernel, if known.
    pub kernel: Option<BuildId>,
}

impl Reference {
    /// An address in a file with these symbols minus the recorded one; wraps. `None` without the symbol.
    fn shift(&self, symbols: &Symbols) -> Option<u64> {
        Some(symbols.address_of(&self.name)?.wrapping_sub(self.address))
    }

    /// The same for a file without symbols: `_text` begins the code of a kernel, and `_stext` its `.text`.
    fn shift_of_stripped(&self, elf: &ElfFile) -> Option<u64> {
        let begin = match &*self.name {
            b"_stext" => elf.text,
            _ => elf.code.iter().map(|&(_, _, address)| address).min(),
        };
        Some(begin?.wrapping_sub(self.address))
    }
}

/// The symbols of an object.
#[derive(Clone, Debug)]
pub enum Image {
    /// The symbols of a file, looked up by file offset, which several objects may share.
    File(Arc<ImageFile>),
    /// Symbols of a kernel by address, or those of a recorded file by offset; `shift` is added first.
    Kernel {
        /// The table, which several objects may share.
        symbols: Arc<Symbols>,
        /// The distance, which wraps around.
        shift: u64,
        /// The file with the symbols; `None` if it is the recording.
        place: Option<PathBuf>,
    },
}

/// A file with its symbols.
#[derive(Debug)]
pub struct ImageFile {
    /// The file, without its symbols.
    pub elf: ElfFile,
    /// Its symbols, by address.
    pub symbols: Symbols,
    /// The files with its DWARF.
    pub dwarf: Option<DwarfPlaces>,
    /// The source of the symbols.
    pub table: SymbolTable,
}

/// The source of a file's symbols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolTable {
    /// The file itself, or its debug file.
    pub place: PathBuf,
    /// True if it has the names of all functions, not only of those that the dynamic linker needs.
    pub is_full: bool,
}

/// One of the files with the symbols of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolFile {
    /// Its build-id.
    pub id: BuildId,
    /// Its name in perf's build-id cache, below the build-id: `elf`, `debug`, `vdso` or `kallsyms`.
    pub entry: &'static str,
    /// Its contents.
    pub content: Content,
}

/// The bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// The contents of this file.
    File(PathBuf),
    /// These bytes: the running kernel's list of symbols, or its vdso.
    Bytes(Vec<u8>),
}

impl Image {
    /// The symbol that covers an offset of a file or an address of a kernel.
    pub fn find(&self, at: u64) -> Option<&Symbol> {
        match self {
            Image::File(file) => file.symbols.find(file.elf.address_of(at)?),
            Image::Kernel { symbols, shift, .. } => symbols.find(at.wrapping_add(*shift)),
        }
    }

    /// The range around an offset or address with the same symbol.
    pub fn extent(&self, at: u64) -> Option<Range<u64>> {
        let address = self.address_of(at)?;
        let (symbols, piece) = match self {
            Image::File(file) => (&file.symbols, file.elf.piece_of(at)),
            Image::Kernel { symbols, .. } => (&**symbols, 0..u64::MAX),
        };
        let Range { start, end } = symbols.extent(address)?;
        let (start, end) = (at.saturating_sub(address - start), at.saturating_add(end - address));
        Some(piece.start.max(start)..piece.end.min(end))
    }

    /// The DWARF of a file, if found.
    pub fn inlined<'a>(&self, files: &'a DwarfFiles) -> Option<Inlined<'a>> {
        match self {
            Image::File(file) => Inlined::open(files, file.dwarf.as_ref()?),
            Image::Kernel { .. } => None,
        }
    }

    /// The virtual address for an offset of a file, or the table's address for one of a kernel.
    pub fn address_of(&self, at: u64) -> Option<u64> {
        match self {
            Image::File(file) => file.elf.address_of(at),
            Image::Kernel { shift, .. } => Some(at.wrapping_add(*shift)),
        }
    }
}

impl Sources {
    /// With `files`, the files and the kernel of this machine are used; files without a build-id only if the
    /// recording is provably of this machine. `roots` are folders that replace `/`, `caches` are perf's
    /// build-id caches. The user named both, so files in them may be found by name.
    pub fn new(files: bool, roots: &[PathBuf], caches: &[PathBuf], recorded_on: &RecordedOn) -> Sources {
        let is_of_here = files && recorded_on.is_machine(Path::new("/"));
        let places = || Places { recorded_on: recorded_on.clone(), ..Places::default() };
        let search = |places, by_name| PlaceSearch { finder: Finder::new(places), by_name };
        let mut searches = Vec::new();
        if files {
            searches.push(search(Places { files, ..places() }, is_of_here));
        }
        let of_root = |root: &PathBuf| search(Places { roots: vec![root.clone()], ..places() }, true);
        let of_cache = |cache: &PathBuf| search(Places { caches: vec![cache.clone()], ..places() }, true);
        searches.extend(roots.iter().map(of_root).chain(caches.iter().map(of_cache)));
        let mut debug: Vec<DebugFolder> =
            roots.iter().map(|root| DebugFolder { root: root.clone() }).collect();
        if files {
            debug.push(DebugFolder { root: PathBuf::from("/") });
        }
        let running = files.then(|| Finder::new(Places { running_kernel: true, ..places() }));
        let caches = caches.to_vec();
        Sources {
            searches,
            running,
            is_of_here,
            caches,
            debug,
            debuginfod: None,
            kernel: None,
            unverified: false,
            known: Mutex::default(),
        }
    }

    /// Also searches this cache of perf by build-id only: the user did not name it, and it has any files.
    #[must_use]
    pub fn with_own_cache(mut self, cache: Option<PathBuf>) -> Sources {
        self.caches.extend(cache);
        self
    }

    /// Also searches the cache of debuginfod's clients, and the servers if `debuginfod` downloads.
    #[must_use]
    pub fn with_debuginfod(self, debuginfod: Option<Debuginfod>) -> Sources {
        Sources { debuginfod, ..self }
    }

    /// Uses this file for the kernel's symbols.
    #[must_use]
    pub fn with_kernel(self, kernel: Option<KernelFile>) -> Sources {
        Sources { kernel, ..self }
    }

    /// Also takes the running kernel and its vdso if they may not be the recorded ones, after all others.
    #[must_use]
    pub fn unverified(self, unverified: bool) -> Sources {
        Sources { unverified, ..self }
    }

    /// True if an object with a build-id is the recorded one, or need not be.
    fn fits_or_unverified(&self, recorded: Option<BuildId>, found: Option<BuildId>) -> bool {
        self.unverified || fits(recorded, found)
    }

    /// The symbols of an object; `id` is its build-id, if known.
    pub fn image(
        &self,
        object: &Object,
        id: Option<BuildId>,
        reference: Option<&Reference>,
    ) -> Option<Image> {
        match object {
            Object::File { path, .. } => self.file(object, path, id),
            Object::Vdso | Object::Vdso32 => {
                let file = self.file(object, Path::new("[vdso]"), id);
                file.or_else(|| {
                    let mut elf = ElfFile::from_bytes(&self.running_vdso(object, id)?).ok()?;
                    let symbols = Symbols::new(std::mem::take(&mut elf.symbols));
                    let table = SymbolTable { place: PathBuf::from("[vdso]"), is_full: true };
                    Some(Image::File(Arc::new(ImageFile { elf, symbols, dwarf: None, table })))
                })
            }
            Object::Kernel => self.kernel(id, reference),
            Object::Module(path) => self.module(object, path, id, reference?),
        }
    }

    /// The file of an object itself, not its debug file, with its path; `id` is its build-id, if known.
    pub fn recorded(&self, object: &Object, id: Option<BuildId>) -> Option<(PathBuf, ElfFile)> {
        self.places(object, id).find_map(|place| {
            let elf = ElfFile::read(&place).ok()?;
            fits(id, elf.build_id).then_some((place, elf))
        })
    }

    /// The bytes of an object itself, not of its debug file, with their build-id; `id` is that of the object,
    /// if known. For a kernel or module, these differ from the code in memory.
    pub fn code(&self, object: &Object, id: Option<BuildId>) -> Option<(Content, Option<BuildId>)> {
        let file = self.places(object, id).find_map(|place| {
            let found = build_id::of_file(&place).ok()?;
            fits(id, found).then_some((Content::File(place), found))
        });
        file.or_else(|| {
            let image = self.running_vdso(object, id)?;
            let found = build_id::from_elf(&image).ok()?;
            Some((Content::Bytes(image), found))
        })
    }

    /// A kernel's file with code, and the difference of the file's addresses from the recorded ones; wraps.
    pub fn kernel_code(&self, id: Option<BuildId>, reference: &Reference) -> Option<(PathBuf, ElfFile, u64)> {
        let places = match &self.kernel {
            Some(KernelFile::Vmlinux(given)) => vec![given.clone()],
            _ => self.found(&Object::Kernel, id),
        };
        kernel_of(places.into_iter(), id, reference)
    }

    /// Like [`Sources::kernel_code`] for the kernel of a guest: the user's file or one of a cache, a debug
    /// package or debuginfod, if it has this build-id.
    pub fn guest_kernel_code(&self, id: BuildId, reference: &Reference) -> Option<(PathBuf, ElfFile, u64)> {
        kernel_of(self.guest_kernel_files(id), Some(id), reference)
    }

    fn guest_kernel_files(&self, id: BuildId) -> impl Iterator<Item = PathBuf> {
        let given = self.kernel.iter().filter_map(|kernel| match kernel {
            KernelFile::Vmlinux(given) => Some(given.clone()),
            _ => None,
        });
        let cached = self.cached(Some(id), &["vmlinux", "elf", ""]);
        let served = [Artifact::Executable, Artifact::DebugInfo].into_iter();
        let served = served.filter_map(move |artifact| self.served(Some(id), artifact));
        given.chain(cached).chain(self.debug_files(id)).chain(served)
    }

    /// The code in the memory of the running kernel at these addresses, of the kernel (`None`) or the module
    /// of this name, and its file. `None` for another kernel or boot, and if the user named a file.
    pub fn kernel_memory(
        &self,
        id: Option<BuildId>,
        reference: &Reference,
        mapped: &[(Option<Vec<u8>>, Range<u64>)],
    ) -> Option<(PathBuf, Vec<KernelCode>)> {
        let kernel = self.listed(&Object::Kernel, id, None).filter(|_| self.kernel.is_none())?;
        let is_of_boot = kernel.address_of(&reference.name) == Some(reference.address);
        let folder = Path::new(memory::RUNNING);
        is_of_boot.then(|| (folder.join(memory::MEMORY), memory::read(folder, mapped)))
    }

    /// The files that another machine needs to name the functions of an object: first the object's own, then
    /// its debug file and the common file of dwz(1). All with the right build-id; none without the first.
    pub fn files(&self, object: &Object, id: BuildId) -> Vec<SymbolFile> {
        let own = |entry, content| vec![SymbolFile { id, entry, content }];
        match object {
            Object::Kernel => self.kernel_file(id).into_iter().collect(),
            Object::Vdso | Object::Vdso32 => {
                let found = self.recorded(object, Some(id)).map(|(place, _)| Content::File(place));
                let image = found.or_else(|| self.running_vdso(object, Some(id)).map(Content::Bytes));
                image.map_or_else(Vec::new, |image| own("vdso", image))
            }
            Object::File { path, .. } | Object::Module(path) => {
                let Some((place, elf)) = self.recorded(object, Some(id)) else { return Vec::new() };
                let (debug, dwarf) = self.debug(&elf, &place, path);
                let mut files = own("elf", Content::File(place));
                files.extend(debug.into_iter().flat_map(|(place, _)| own("debug", Content::File(place))));
                let common = dwarf.and_then(|dwarf| dwarf.common);
                files.extend(common.and_then(|common| {
                    let id = build_id::of_file(&common).ok()??;
                    Some(SymbolFile { id, entry: "debug", content: Content::File(common) })
                }));
                files
            }
        }
    }

    /// A file with the symbols of a kernel: from perf's cache, a vmlinux, or the list of the running kernel.
    fn kernel_file(&self, id: BuildId) -> Option<SymbolFile> {
        if let Some(given) = &self.kernel {
            let entry = if matches!(given, KernelFile::Kallsyms(_)) { "kallsyms" } else { "elf" };
            let content = Content::File(given.path().to_owned());
            return given.fits(Some(id)).then_some(SymbolFile { id, entry, content });
        }
        let cached = self.cached(Some(id), &["kallsyms", ""]).into_iter();
        let mut cached = cached
            .filter(|file| kallsyms::read(file, None).is_ok_and(|symbols| !symbols.is_empty()))
            .map(|file| ("kallsyms", Content::File(file)));
        let found = self.found(&Object::Kernel, Some(id)).into_iter();
        let mut found = found
            .filter(|file| ElfFile::read(file).is_ok_and(|elf| elf.has_symtab))
            .map(|file| ("elf", Content::File(file)));
        let root = || Some(("kallsyms", Content::File(self.in_roots(Some(id)).into_iter().next()?)));
        let running = || {
            self.listed(&Object::Kernel, Some(id), None)?;
            Some(("kallsyms", Content::Bytes(std::fs::read(kallsyms::RUNNING).ok()?)))
        };
        let (entry, content) = cached.next().or_else(|| found.next()).or_else(running).or_else(root)?;
        Some(SymbolFile { id, entry, content })
    }

    /// The debug file of a file that lacks something, and the DWARF of either.
    fn debug(
        &self,
        elf: &ElfFile,
        place: &Path,
        recorded: &Path,
    ) -> (Option<(PathBuf, ElfFile)>, Option<DwarfPlaces>) {
        let lacks = !elf.has_symtab || !elf.has_dwarf;
        let debug = lacks.then(|| self.debug_file(elf, place, recorded)).flatten();
        let in_debug = || debug.as_ref().and_then(|(place, debug)| self.dwarf(debug, place, recorded));
        let in_table = || Some(DwarfPlaces { go: Some(elf.go?), ..DwarfPlaces::of(place.to_owned()) });
        let mut dwarf = self.dwarf(elf, place, recorded).or_else(in_debug).or_else(in_table);
        if let Some(dwarf) = &mut dwarf {
            // `prog.dwp` or `prog.debug.dwp`, beside the file or where that was recorded.
            let own = build_id::without_deleted(recorded).file_name();
            let link = elf.debug_link.as_ref().map(|(name, _)| OsStr::from_bytes(name));
            for name in own.into_iter().chain(link) {
                let name = [name.as_bytes(), b".dwp"].concat();
                let name = Path::new(OsStr::from_bytes(&name));
                dwarf.packages.push(place.with_file_name(name));
                dwarf.packages.extend(self.beside(recorded, elf.build_id, name));
            }
            dwarf.folders.extend(place.parent().map(Path::to_owned));
            dwarf.folders.extend(self.beside(recorded, elf.build_id, Path::new("")));
            dwarf.roots = self.debug.iter().map(|folder| folder.root.clone()).collect();
        }
        (debug, dwarf)
    }

    /// The existing files of this name, which may have several components, beside a recorded file and beside its
    /// debug file. The file itself may be in a cache.
    fn beside(&self, recorded: &Path, id: Option<BuildId>, name: &Path) -> Vec<PathBuf> {
        let folder = recorded.parent().and_then(|folder| folder.strip_prefix("/").ok());
        let by_path =
            folder.into_iter().flat_map(|folder| [folder.to_owned(), Path::new(DEBUG).join(folder)]);
        let ids = id.into_iter().flat_map(|id| id.spellings().collect::<Vec<_>>());
        let by_id = ids.map(|hex| Path::new(DEBUG).join(".build-id").join(&hex[..2]));
        let places = by_path.chain(by_id).map(|folder| folder.join(name));
        places.flat_map(|place| self.debug.iter().filter_map(move |root| root.anywhere(&place))).collect()
    }

    fn file(&self, object: &Object, path: &Path, id: Option<BuildId>) -> Option<Image> {
        let file = self.places(object, id).find_map(|place| {
            let (_, metadata) = build_id::open(&place).ok()?;
            let key = ((metadata.dev(), metadata.ino()), path.to_owned());
            let file = self.known().files.get(&key).and_then(Weak::upgrade);
            if let Some(file) = file {
                return fits(id, file.elf.build_id).then_some(file);
            }
            let elf = ElfFile::read(&place).ok().filter(|elf| fits(id, elf.build_id))?;
            let file = Arc::new(self.image_file(elf, place, path));
            self.known().files.insert(key, Arc::downgrade(&file));
            Some(file)
        })?;
        self.known().last = Some(file.clone());
        Some(Image::File(file))
    }

    fn known(&self) -> MutexGuard<'_, KnownFiles> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image_file(&self, mut elf: ElfFile, place: PathBuf, path: &Path) -> ImageFile {
        let (debug, dwarf) = self.debug(&elf, &place, path);
        let mut symbols = std::mem::take(&mut elf.symbols);
        let mut table = SymbolTable { place, is_full: true };
        match debug {
            _ if elf.has_symtab => {}
            Some((place, debug)) => (symbols, table.place) = (debug.symbols, place),
            None => {
                let mini = elf.take_mini_symbols();
                table.is_full = !mini.is_empty();
                symbols.extend(mini);
            }
        }
        let symbols = Symbols::new(symbols).with_stubs(std::mem::take(&mut elf.stubs));
        ImageFile { elf, symbols, dwarf, table }
    }

    /// The running kernel, if it may name code: it has the build-id, or is provably the recorded one.
    fn running(&self, id: Option<BuildId>) -> Option<&Finder> {
        self.running.as_ref().filter(|_| id.is_some() || self.is_of_here || self.unverified)
    }

    fn running_vdso(&self, object: &Object, id: Option<BuildId>) -> Option<Vec<u8>> {
        let running = self.running(id).filter(|_| *object == Object::Vdso)?;
        let image = if self.unverified { running.running_vdso_image() } else { running.vdso_image() }?;
        self.fits_or_unverified(id, build_id::from_elf(&image).ok()?).then_some(image)
    }

    /// An object's unwind tables, and the device and inode of its file. `map` maps an open file into memory.
    ///
    /// # Errors
    ///
    /// No file is the recorded one. The error has the reason for each place.
    pub fn unwind_tables<B: Deref<Target = [u8]> + From<Vec<u8>>>(
        &self,
        object: &Object,
        id: Option<BuildId>,
        map: impl Fn(&File) -> Option<B>,
    ) -> Result<(UnwindTables<B>, Option<FileIdentity>), String> {
        let read = |place: PathBuf| {
            let (file, metadata) = build_id::open(&place).ok()?;
            let tables = UnwindTables::new(map(&file)?).ok()?;
            Some((tables, Some((metadata.dev(), metadata.ino()))))
        };
        let is_recorded = |(tables, _): &(UnwindTables<B>, _)| fits(id, tables.build_id());
        let found = self.places(object, id).find_map(|place| read(place).filter(is_recorded));
        let found = found.or_else(|| {
            let vdso = UnwindTables::new(B::from(self.running_vdso(object, id)?)).ok()?;
            Some((vdso, None)).filter(is_recorded)
        });
        let Some((tables, identity)) = found else { return Err(self.reasons(object, id)) };
        if tables.has_debug_frame() {
            return Ok((tables, identity));
        }
        let own = tables.build_id();
        let mut files = own.into_iter().flat_map(|own| self.debug_files(own));
        let debug = files.find_map(|file| read(file).filter(|(debug, _)| debug.build_id() == own));
        // `.eh_frame` may contain only that of the C runtime.
        let tables = match debug {
            Some((debug, _)) => tables.with_debug_frame(debug),
            None => tables,
        };
        Ok((tables, identity))
    }

    /// The most helpful reason why no file is the object: another one is at its path.
    pub fn why_missing(&self, object: &Object, id: Option<BuildId>) -> String {
        let tried =
            self.searches.iter().flat_map(|PlaceSearch { finder, .. }| match look(finder, object, id) {
                Answer::Missing { tried } => tried,
                Answer::Found { .. } => Vec::new(),
            });
        let other = tried.into_iter().find_map(|(_, reason)| match reason {
            Reason::OtherId { place, found, .. } => {
                Some(format!("{} is another build, {found}", place.display()))
            }
            Reason::Replaced { place, .. } => Some(format!("{} was replaced", place.display())),
            _ => None,
        });
        match (other, id) {
            (Some(other), _) => other,
            (None, Some(id)) => format!("no file with build-id {id} was found"),
            (None, None) if self.running.is_some() && !self.is_of_here => NOT_OF_HERE.to_owned(),
            (None, None) => "the recording has no build-id for it".to_owned(),
        }
    }

    fn reasons(&self, object: &Object, id: Option<BuildId>) -> String {
        let mut reasons = Vec::new();
        for PlaceSearch { finder, by_name } in &self.searches {
            match look(finder, object, id) {
                Answer::Found { source, place, .. } => {
                    let what = if id.is_none() && !by_name { NOT_OF_HERE } else { "can't be read" };
                    reasons.push(format!("{source}: {}: {what}", place.display()));
                }
                Answer::Missing { tried } => {
                    reasons.extend(tried.iter().map(|(source, reason)| format!("{source}: {reason}")));
                }
            }
        }
        if reasons.is_empty() { "no place to look for it".to_owned() } else { reasons.join("; ") }
    }

    /// The places of the object itself, in the order in which all readers try them: files stored under its
    /// build-id, its path here and below the user's folders, debuginfod.
    fn places<'a>(
        &'a self,
        object: &'a Object,
        id: Option<BuildId>,
    ) -> impl Iterator<Item = PathBuf> + use<'a> {
        let stored = self.cached(id, &["elf", "vdso", ""]).into_iter();
        let stored =
            stored.chain(std::iter::once_with(move || Some(self.in_trees(id?, ""))).flatten().flatten());
        let found = std::iter::once_with(move || self.found(object, id)).flatten();
        let served = std::iter::once_with(move || self.served(id, Artifact::Executable)).flatten();
        stored.chain(found).chain(served)
    }

    fn found(&self, object: &Object, id: Option<BuildId>) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for PlaceSearch { finder, .. } in self.searches.iter().filter(|place| id.is_some() || place.by_name) {
            match look(finder, object, id) {
                Answer::Found { place, source: Source::Cache, .. } if place.is_dir() => {
                    files.extend(["elf", "vdso"].map(|name| place.join(name)));
                }
                Answer::Found { place, .. } => files.push(place),
                // The file passed the check of inode and name; neither it nor the recording has a build-id.
                Answer::Missing { tried } if id.is_none() => {
                    files.extend(tried.into_iter().filter_map(|(_, reason)| match reason {
                        Reason::NoId { place } if place.is_file() => Some(place),
                        _ => None,
                    }));
                }
                Answer::Missing { .. } => {}
            }
        }
        files
    }

    /// The files stored under a build-id below `/` and the roots: by packages of RPM, by packages of debug
    /// files, or because a root is itself such a tree. Debug files have the suffix `.debug`.
    fn in_trees(&self, id: BuildId, suffix: &str) -> Vec<PathBuf> {
        let below = |hex: String| format!(".build-id/{}/{}{suffix}", &hex[..2], &hex[2..]);
        let trees =
            id.spellings().map(below).flat_map(|below| TREES.map(|tree| Path::new(tree).join(&below)));
        let folders = |below: PathBuf| self.debug.iter().filter_map(move |folder| folder.anywhere(&below));
        trees.flat_map(folders).collect()
    }

    /// The caches' entries for a build-id under these names; the empty name is the entry itself, an old form.
    fn cached(&self, id: Option<BuildId>, names: &[&str]) -> Vec<PathBuf> {
        let entries = id.iter().flat_map(BuildId::spellings);
        let entries: Vec<PathBuf> =
            entries.map(|hex| Path::new(".build-id").join(&hex[..2]).join(&hex[2..])).collect();
        let caches = self.caches.iter().flat_map(|cache| entries.iter().map(move |entry| cache.join(entry)));
        caches
            .flat_map(|entry| {
                names.iter().map(move |name| if name.is_empty() { entry.clone() } else { entry.join(name) })
            })
            .filter(|file| file.is_file())
            .collect()
    }

    fn debug_files(&self, id: BuildId) -> Vec<PathBuf> {
        let mut files = self.cached(Some(id), &["debug"]);
        for hex in id.spellings() {
            let below = Path::new(".build-id").join(&hex[..2]).join(format!("{}.debug", &hex[2..]));
            files.extend(self.caches.iter().map(|cache| cache.join(&below)));
        }
        files.extend(self.in_trees(id, ".debug"));
        files
    }

    fn served(&self, id: Option<BuildId>, artifact: Artifact) -> Option<PathBuf> {
        self.debuginfod.as_ref()?.find(id?, artifact)
    }

    /// The DWARF of a file at this path. Its common file must exist, too.
    fn dwarf(&self, elf: &ElfFile, place: &Path, recorded: &Path) -> Option<DwarfPlaces> {
        let mut dwarf = elf.has_dwarf.then(|| DwarfPlaces::of(place.to_owned()))?;
        let Some((link, id)) = &elf.alt_link else { return Some(dwarf) };
        let link = Path::new(OsStr::from_bytes(link));
        let mut files = match link.strip_prefix("/") {
            Ok(below) => self.debug.iter().filter_map(|folder| folder.anywhere(below)).collect(),
            Err(_) => [vec![place.parent()?.join(link)], self.beside(recorded, elf.build_id, link)].concat(),
        };
        files.extend(self.debug_files(*id));
        let served = std::iter::once_with(|| self.served(Some(*id), Artifact::DebugInfo)).flatten();
        let is_common = |file: &PathBuf| {
            ElfFile::read(file).is_ok_and(|common| common.build_id == Some(*id) && common.has_dwarf)
        };
        dwarf.common = Some(files.into_iter().chain(served).find(is_common)?);
        Some(dwarf)
    }

    /// The file with the symbols stripped from this one, by build-id, debug link, or debuginfod.
    fn debug_file(&self, elf: &ElfFile, place: &Path, recorded: &Path) -> Option<(PathBuf, ElfFile)> {
        let files: Vec<_> = elf.build_id.into_iter().flat_map(|id| self.debug_files(id)).collect();
        let by_id = files.iter().find_map(|file| {
            let debug = ElfFile::read(file).ok()?;
            (debug.has_symtab && debug.build_id == elf.build_id).then(|| (file.clone(), debug))
        });
        by_id
            .or_else(|| {
                let (name, crc) = elf.debug_link.as_ref()?;
                let name = Path::new(OsStr::from_bytes(name));
                let names = [name.to_owned(), Path::new(".debug").join(name)];
                let folder = place.parent()?;
                let beside = names.iter().flat_map(|name| self.beside(recorded, None, name));
                let mut files = names.iter().map(|name| folder.join(name)).chain(beside);
                files.find_map(|file| {
                    let debug = ElfFile::read(&file).ok()?;
                    let same = match (debug.build_id, elf.build_id) {
                        (Some(debug), Some(id)) => debug == id,
                        _ => crc_of(&file).ok()? == *crc,
                    };
                    (same && debug.has_symtab).then_some((file, debug))
                })
            })
            .or_else(|| {
                let file = self.served(elf.build_id, Artifact::DebugInfo)?;
                let debug = ElfFile::read(&file).ok()?;
                (debug.has_symtab && debug.build_id == elf.build_id).then_some((file, debug))
            })
    }

    fn kernel(&self, id: Option<BuildId>, reference: Option<&Reference>) -> Option<Image> {
        let placed = |(symbols, place): (Symbols, PathBuf)| placed(symbols, reference, place);
        if let Some(given) = &self.kernel {
            let symbols = given.fits(id).then(|| given.symbols(None).ok()).flatten()?;
            return placed((symbols, given.path().to_owned()));
        }
        reference?;
        let list = |file: PathBuf| Some((kallsyms::read(&file, None).ok()?, file));
        let cached = self.cached(id, &["kallsyms", ""]).into_iter().filter_map(list);
        let found = std::iter::once_with(|| self.found(&Object::Kernel, id)).flatten();
        let found = found.filter_map(|file| Some((Symbols::new(ElfFile::read(&file).ok()?.symbols), file)));
        let roots = std::iter::once_with(|| self.in_roots(id)).flatten().filter_map(list);
        let running = std::iter::once_with(|| self.listed(&Object::Kernel, id, None)).flatten();
        let running = running.map(|symbols| (symbols, PathBuf::from(kallsyms::RUNNING)));
        cached.chain(found).chain(roots).chain(running).find_map(placed)
    }

    /// The symbols of a guest's kernel with this build-id.
    pub fn guest_kernel(&self, id: BuildId, reference: &Reference) -> Option<Image> {
        let cached = self.cached(Some(id), &["kallsyms", ""]).into_iter();
        let cached = cached.filter_map(|file| Some((kallsyms::read(&file, None).ok()?, file)));
        let files = self.guest_kernel_files(id).filter_map(|file| {
            let elf = ElfFile::read(&file).ok().filter(|elf| elf.build_id == Some(id))?;
            Some((Symbols::new(elf.symbols), file))
        });
        cached.chain(files).find_map(|(symbols, place)| placed(symbols, Some(reference), place))
    }

    /// The reason why [`Sources::image`] has no symbols of the kernel.
    pub fn why_no_kernel(&self, id: Option<BuildId>, reference: Option<&Reference>) -> String {
        let given = self.kernel.as_ref();
        match (given, reference, id) {
            (Some(given), _, Some(id)) if !given.fits(Some(id)) => {
                let own = build_id::of_file(given.path()).ok().flatten();
                let own = own.map_or_else(|| "no build-id".to_owned(), |own| format!("build-id {own}"));
                format!("{} has {own}, the recording says {id}", given.path().display())
            }
            (Some(given), Some(reference), _) => {
                let name = String::from_utf8_lossy(&reference.name);
                format!(
                    "{} lacks the symbol {name}, which relates its addresses to the recorded ones",
                    given.path().display()
                )
            }
            (_, None, _) => "the recording does not say where its symbols are".to_owned(),
            (_, _, Some(id)) => format!("nothing with its build-id, {id}, was found"),
            (_, _, None) if self.running.is_some() && !self.is_of_here => NOT_OF_HERE.to_owned(),
            (_, _, None) => "the recording has no build-id for it".to_owned(),
        }
    }

    /// The lists of kernel symbols below `/` and the roots, if their kernel has this build-id.
    fn in_roots(&self, id: Option<BuildId>) -> Vec<PathBuf> {
        let of_root = |folder: &DebugFolder| {
            let (notes, _) = build_id::open(&folder.anywhere(Path::new("sys/kernel/notes"))?).ok()?;
            let mut text = Vec::new();
            notes.take(MOST_NOTES).read_to_end(&mut text).ok()?;
            let orders = [build_id::Endianness::Little, build_id::Endianness::Big];
            let found = orders.iter().find_map(|&order| build_id::from_notes(&text, order))?;
            fits(Some(id?), Some(found)).then(|| folder.anywhere(Path::new("proc/kallsyms")))?
        };
        self.debug.iter().filter_map(of_root).collect()
    }

    /// The symbols of a kernel module, from its file with this build-id: `start` is the address at which the
    /// kernel loaded its `.text`. [`Sources::image`] finds those of the running kernel.
    pub fn module_file(&self, object: &Object, id: BuildId, start: u64) -> Option<Image> {
        let Object::Module(path) = object else { return None };
        let (place, elf) = self.recorded(object, Some(id))?;
        let debug = || self.debug_file(&elf, &place, path).map(|(_, debug)| debug);
        let elf = if elf.has_symtab { elf } else { debug()? };
        let symbols = elf.is_relocatable.then(|| Symbols::new(elf.symbols))?;
        Some(Image::Kernel { symbols: symbols.into(), shift: start.wrapping_neg(), place: Some(place) })
    }

    /// Modules have other addresses after each boot, and only the running kernel lists all of them.
    fn module(
        &self,
        object: &Object,
        path: &Path,
        id: Option<BuildId>,
        reference: &Reference,
    ) -> Option<Image> {
        let name = build_id::module_name(path);
        let name = Some(name.as_bytes());
        let is_of_boot = |kernel: &Symbols| kernel.address_of(&reference.name) == Some(reference.address);
        let symbols = match &self.kernel {
            Some(given) => is_of_boot(&given.symbols(None).ok()?)
                .then(|| Some((given.symbols(name).ok()?, given.path().to_owned())))?,
            None => self
                .listed(&Object::Kernel, reference.kernel, None)
                .filter(is_of_boot)
                .and_then(|_| Some((self.listed(object, id, name)?, PathBuf::from(kallsyms::RUNNING)))),
        };
        let of_root = || {
            let lists = self.in_roots(reference.kernel).into_iter().filter(|_| self.kernel.is_none());
            let mut lists =
                lists.filter(|list| kallsyms::read(list, None).is_ok_and(|kernel| is_of_boot(&kernel)));
            let list = lists.next()?;
            Some((kallsyms::read(&list, name).ok()?, list))
        };
        let (symbols, place) = symbols.or_else(of_root).filter(|(symbols, _)| !symbols.is_empty())?;
        Some(Image::Kernel { symbols: symbols.into(), shift: 0, place: Some(place) })
    }

    fn listed(&self, object: &Object, id: Option<BuildId>, module: Option<&[u8]>) -> Option<Symbols> {
        let found = self.running(id)?.find(object).id();
        let symbols = || kallsyms::read(Path::new(kallsyms::RUNNING), module).ok();
        let is_it = found.is_some_and(|found| fits(id, Some(found))) || self.unverified;
        is_it.then(symbols).flatten().filter(|symbols| !symbols.is_empty())
    }
}

const DEBUG: &str = "usr/lib/debug";

/// The folders of `/` with links from build-ids to files, and a folder that is such a tree itself.
const TREES: [&str; 3] = ["usr/lib", DEBUG, ""];

/// Searches for a file with this build-id, if known, else for any of that name.
fn look(finder: &Finder, object: &Object, id: Option<BuildId>) -> Answer {
    id.map_or_else(|| finder.find(object), |id| finder.find_same(object, id))
}

const NOT_OF_HERE: &str = "the recording has no build-id for it, and is not provably of this machine";

/// The read limit for the notes of a kernel, which have some hundred bytes.
const MOST_NOTES: u64 = 1 << 16;

/// True if a file has the recorded id, or none was recorded.
fn fits(recorded: Option<BuildId>, found: Option<BuildId>) -> bool {
    recorded.is_none() || recorded == found
}

fn has_code(file: &Path) -> bool {
    ElfFile::read(file).is_ok_and(|elf| !elf.code.is_empty())
}

fn crc_of(file: &Path) -> io::Result<u32> {
    let (mut file, _) = build_id::open(file)?;
    let (mut crc, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc.finalize()),
            count => crc.update(&buffer[..count]),
        }
    }
}

/// The symbols of a kernel, if they contain the reference symbol.
fn placed(symbols: Symbols, reference: Option<&Reference>, place: PathBuf) -> Option<Image> {
    let shift = reference.map_or(Some(0), |reference| reference.shift(&symbols))?;
    (!symbols.is_empty()).then(|| Image::Kernel { symbols: symbols.into(), shift, place: Some(place) })
}

/// The first of these files that is the kernel with this build-id, if known, with code; and the difference
/// between an address in the file and the recorded one; wraps.
fn kernel_of(
    mut places: impl Iterator<Item = PathBuf>,
    id: Option<BuildId>,
    reference: &Reference,
) -> Option<(PathBuf, ElfFile, u64)> {
    places.find_map(|place| {
        let mut elf = ElfFile::read(&place).ok()?;
        let symbols = Symbols::new(std::mem::take(&mut elf.symbols));
        let of_stripped = || reference.shift_of_stripped(&elf).filter(|_| symbols.is_empty());
        let shift = reference.shift(&symbols).or_else(of_stripped)?;
        (fits(id, elf.build_id) && !elf.code.is_empty()).then_some((place, elf, shift))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{ID, elf};

    /// Regression: programs without unwind tables have those of the C runtime, which hid the debug file's.
    #[test]
    fn the_tables_of_a_debug_file_are_read_beside_those_of_its_stripped_file() {
        let cache = tempfile::tempdir().unwrap();
        let id = BuildId::new(&ID).unwrap();
        let hex = id.to_string();
        let entry = cache.path().join(".build-id").join(&hex[..2]).join(&hex[2..]);
        std::fs::create_dir_all(&entry).unwrap();
        std::fs::write(entry.join("elf"), elf(&[(".eh_frame", vec![1; 8])])).unwrap();
        std::fs::write(entry.join("debug"), elf(&[(".debug_frame", vec![2; 8])])).unwrap();
        let sources = Sources::new(false, &[], &[cache.path().to_owned()], &RecordedOn::default());
        let object = Object::File { path: "/bin/prog".into(), inode: None, pid: None };
        let read = |file: &File| {
            let (mut file, mut bytes) = (file, Vec::new());
            file.read_to_end(&mut bytes).ok().map(|_| bytes)
        };
        let (tables, _) = sources.unwind_tables(&object, Some(id), read).unwrap();
        let bytes = |section: Option<crate::Section<'_>>| section.map(|section| section.bytes.to_vec());
        assert_eq!(bytes(tables.eh_frame()), Some(vec![1; 8]));
        assert_eq!(bytes(tables.debug_frame()), Some(vec![2; 8]));
    }

    /// Regression: a hundred inodes of a path, such as those of containers, took 25 s.
    #[test]
    fn the_file_of_several_objects_is_read_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("prog");
        std::fs::write(&path, elf(&[])).unwrap();
        let sources = Sources::new(false, &[root.path().to_owned()], &[], &RecordedOn::default());
        let read = |pid| {
            let object = Object::File { path: "/prog".into(), inode: None, pid: Some(pid) };
            match sources.image(&object, BuildId::new(&ID), None) {
                Some(Image::File(file)) => file,
                other => panic!("{other:?}"),
            }
        };
        let files = [1, 2].map(read);
        assert!(Arc::ptr_eq(&files[0], &files[1]));
        std::fs::write(root.path().join("new"), elf(&[(".text", vec![0; 8])])).unwrap();
        std::fs::rename(root.path().join("new"), &path).unwrap();
        assert!(!Arc::ptr_eq(&files[0], &read(3)));
    }
}
