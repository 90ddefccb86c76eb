//! Names the functions of frames as `perf script` does.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use build_id::{BuildId, Object, RecordedOn};
use perfx_format::header::Features;
use perfx_format::jitdump::Header;
use perfx_format::read::KCORE_DIR;
use perfx_format::{Bytes, Endian};
use perfx_jit::Functions;
use perfx_model::address_space::{Dso, Machine};
use perfx_pipeline::{Context as _, Error, Level, Report, Result, count, counted};
use symbols::{
    Arch, Call, Content, DWARF_STACK, DwarfFiles, Image, Inlined, Mapped, ShownNames, Sources, Symbol,
    SymbolFile, Symbols,
};

use crate::dumps::PerfMaps;
use crate::facts::Facts;
use crate::frames::Frame;
use crate::ids::{IdOptions, can_have_id, dso_name, is_kernel_name, object_of, recorded_on};
use crate::stored::StoredFiles;

/// The recording whose code is named, and the places to search for symbols.
#[derive(Clone, Copy, Debug)]
pub struct Search<'s> {
    /// The interpreted records.
    pub facts: &'s Facts,
    /// These describe the recorded machine.
    pub features: &'s Features,
    /// Their byte order.
    pub endian: Endian,
    /// The places to search.
    pub ids: &'s IdOptions,
    /// Also find inlined calls and source lines.
    pub inlined: bool,
}

/// Finds the symbols of a recording's DSOs.
#[derive(Debug)]
pub struct Images<'f> {
    facts: &'f Facts,
    sources: Sources,
    /// For guests, whose files are not on this machine.
    guest_sources: Sources,
    stored: StoredFiles<'f>,
}

/// Why no file of a DSO can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The recording has no build-id for it.
    BuildId,
    /// No file has its build-id.
    File,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::BuildId => "the recording has no build-id for it",
            Lack::File => "no file with this build-id was found",
        })
    }
}

impl<'f> Images<'f> {
    /// The images of a recording.
    pub fn new(Search { facts, features, endian, ids, .. }: Search<'f>) -> Images<'f> {
        let recorded_on = recorded_on(features, endian);
        let sources = sources(ids, !ids.is_foreign(), &recorded_on);
        let stored = StoredFiles::new(features, endian);
        Images { facts, sources, guest_sources: guest_sources(ids, &recorded_on), stored }
    }

    /// A DSO of the recording.
    pub fn dso(&self, number: u32) -> Option<&'f Dso> {
        self.facts.spaces.dsos().get(number as usize).map(|(dso, _)| dso)
    }

    /// The object with a DSO's symbols; `None` without a file.
    pub fn object(&self, number: u32) -> Option<(&'f Dso, Object)> {
        let (dso, flags) = self.facts.spaces.dsos().get(number as usize)?;
        let object = || object_of(dso, self.facts.files.process(number as usize));
        can_have_id(dso, *flags).then(|| (dso, object()))
    }

    /// The recorded build-id of a DSO.
    pub fn id(&self, number: u32) -> Option<BuildId> {
        self.facts.ids.get(self.dso(number)?)
    }

    /// The files with a DSO's symbols; `None` if it needs none. The error states why none can be used.
    pub fn files(&self, number: u32) -> Option<Result<Vec<SymbolFile>, Lack>> {
        let is_named_by_records = self.facts.ksymbols.contains_key(&number);
        let (dso, object) = self.object(number).filter(|_| !is_named_by_records)?;
        let Some(id) = self.facts.ids.get(dso) else {
            return Some(Err(Lack::BuildId));
        };
        let sources = if dso.machine == Machine::Host { &self.sources } else { &self.guest_sources };
        let files = sources.files(&object, id);
        Some(if files.is_empty() { Err(Lack::File) } else { Ok(files) })
    }

    /// A DSO's symbols, if found: those of its file, or those in the recording, which may be incomplete.
    pub fn of(&self, number: u32) -> Option<Image> {
        self.of_file(number).or_else(|| self.stored.image(number, self.facts))
    }

    fn of_file(&self, number: u32) -> Option<Image> {
        let (dso, object) = self.object(number)?;
        let (id, reference) = (self.facts.ids.get(dso), self.facts.reference.as_ref());
        let module = |sources: &Sources| {
            let start = self.facts.modules.get(&number).copied().flatten()?;
            sources.module_file(&object, id?, start)
        };
        if dso.machine == Machine::Host {
            return self.sources.image(&object, id, reference).or_else(|| module(&self.sources));
        }
        // A root may be that of the host or of a guest, so a name is not sufficient.
        if let Some(reference) =
            self.facts.guest_references.get(&dso.machine).filter(|_| is_kernel_name(&dso.name))
        {
            return self.guest_sources.guest_kernel(id?, reference);
        }
        let image = self.guest_sources.image(&object, Some(id?), None);
        image.or_else(|| module(&self.guest_sources))
    }

    pub(crate) fn why_missing(&self, number: u32) -> Option<String> {
        let (dso, object) = self.object(number)?;
        let sources = if dso.machine == Machine::Host { &self.sources } else { &self.guest_sources };
        let why = || sources.why_missing(&object, self.facts.ids.get(dso));
        Some(self.why_no_kernel(number).unwrap_or_else(why))
    }

    /// The bytes of its file, not of its debug file, if found.
    pub fn code(&self, number: u32) -> Option<Content> {
        let (dso, object) = self.object(number)?;
        let id = self.facts.ids.get(dso);
        let code = match dso.machine {
            Machine::Host => self.sources.code(&object, id),
            Machine::Guest(_) => self.guest_sources.code(&object, Some(id?)),
        };
        code.map(|(content, _)| content)
    }

    fn why_no_kernel(&self, number: u32) -> Option<String> {
        let (dso, object) = self.object(number)?;
        let is_kernel = object == Object::Kernel && dso.machine == Machine::Host;
        is_kernel.then(|| self.sources.why_no_kernel(self.facts.ids.get(dso), self.facts.reference.as_ref()))
    }
}

/// The sources for code of guests: this machine has no files of theirs.
pub fn guest_sources(ids: &IdOptions, recorded_on: &RecordedOn) -> Sources {
    sources(ids, false, recorded_on)
}

/// The places to search; with `files`, including this machine.
pub fn sources(ids: &IdOptions, files: bool, recorded_on: &RecordedOn) -> Sources {
    // perf searches its own cache by default.
    let own = build_id::home().filter(|_| !ids.is_foreign()).map(|home| home.join(".debug"));
    let sources = Sources::new(files, ids.roots(), ids.caches(), recorded_on);
    let sources = sources.with_own_cache(own.filter(|own| own.is_dir()));
    sources
        .with_debuginfod(ids.debuginfod().cloned())
        .with_kernel(ids.kernel().cloned())
        .unverified(ids.is_unverified())
}

/// The copy of the kernel's memory for a recording of this name.
pub fn kcore_of(recording: &str) -> Option<PathBuf> {
    let kcore = Path::new(recording).join(KCORE_DIR).join("kcore");
    kcore.is_file().then_some(kcore)
}

/// Advice for the user on how to provide the code of an object; `id` is its build-id, if known.
pub fn code_advice(object: &Object, id: Option<BuildId>) -> String {
    match (object, id) {
        (Object::Kernel, Some(id)) => {
            format!(
                "--vmlinux FILE, --root DIR with its vmlinux, or --vmlinux $(debuginfod-find debuginfo {id})"
            )
        }
        (Object::Kernel, None) => {
            "--vmlinux FILE or --root DIR with its vmlinux; perf record --kcore keeps it".into()
        }
        (Object::Module(_), _) => "only perf record --kcore keeps the code of modules".into(),
        (Object::Vdso | Object::Vdso32, _) => {
            "--buildid-dir DIR with the cache of the recorded machine".into()
        }
        (_, Some(id)) => {
            format!("--root DIR, --buildid-dir DIR, --debuginfod, or debuginfod-find executable {id}")
        }
        (_, None) => "--root DIR with the file that was recorded".into(),
    }
}

/// The functions of one frame: that of the symbol table, and the calls inlined into it.
#[derive(Clone, Debug)]
pub struct FrameName<'n> {
    /// The DSO's name; `None` if the address is in no mapping.
    pub dso: Option<Cow<'n, [u8]>>,
    /// Outermost first; empty if unknown.
    pub functions: Vec<Function<'n>>,
    /// Bytes from the start of the symbol.
    pub offset: u64,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function<'n> {
    /// Its name, demangled.
    pub name: Arc<str>,
    /// Its name in the symbol table or DWARF.
    pub symbol: Cow<'n, str>,
    /// Inlined into its caller.
    pub inlined: bool,
    /// For an outer function, the position of the inlined call.
    pub file: Option<String>,
    /// From 1.
    pub line: Option<u32>,
}

/// The number of named DSOs.
#[derive(Clone, Default, Debug)]
pub struct Named {
    /// DSOs with symbols for code of the samples.
    pub with_symbols: u64,
    /// The names of the others.
    pub without: Vec<String>,
    /// The number of samples whose innermost frame has a name, and of all; 0 if not counted.
    pub samples: [u64; 2],
    /// Further messages: DWARF that was not read completely, missing names of kernel functions.
    pub messages: Vec<(Level, String)>,
}

impl Named {
    /// Reports how many DSOs have symbols.
    pub fn say(&self, report: &mut Report) {
        let dsos = counted(self.with_symbols + self.without.len() as u64, "DSO", "DSOs");
        let mut line = format!("found symbols of {} of {dsos}", self.with_symbols);
        let [named, all] = self.samples;
        if all > 0 {
            line += &format!(" ({} of {})", count(named), counted(all, "sample", "samples"));
        }
        report.say(Level::Info, line);
        if u128::from(named) * 10 < u128::from(all) * 9 {
            report.say(Level::Info, "perfx list dsos shows why names are missing, and what finds them");
        }
        self.without.iter().for_each(|name| report.say(Level::Detail, format!("no symbols: {name}")));
        self.say_reasons(report);
    }

    /// Reports why names of DSOs are missing, where a user can help.
    pub fn say_reasons(&self, report: &mut Report) {
        self.messages.iter().for_each(|(level, what)| report.say(*level, what));
    }
}

/// Passes the names of all frames, with the numbers of these, to `visit`: DSO by DSO, to bound memory.
///
/// # Errors
///
/// A thread cannot be started.
pub fn name_frames(
    frames: impl Iterator<Item = Frame>,
    search: Search<'_>,
    visit: impl FnMut(u32, Frame, FrameName<'_>) + Send,
) -> Result<Named> {
    let frames: Vec<Frame> = frames.collect();
    with_deep_stack(|| named(frames, &Names::new(search), visit))
}

/// Finds the functions of files by their build-ids, without a recording.
#[derive(Debug)]
pub struct FileNames {
    sources: Sources,
    inlined: bool,
}

impl FileNames {
    /// Searches the places in `ids`. With `inlined`, it also finds inlined calls and source lines.
    pub fn new(ids: &IdOptions, inlined: bool) -> FileNames {
        FileNames { sources: sources(ids, !ids.is_foreign(), &RecordedOn::default()), inlined }
    }

    /// Passes the functions at offsets of a file to `visit`: outermost first, with the distance from the
    /// start of the symbol. Returns false, and passes nothing, if no file with its build-id has symbols.
    pub fn name(
        &self,
        path: PathBuf,
        id: BuildId,
        offsets: impl Iterator<Item = u64>,
        mut visit: impl FnMut(u64, Vec<Function<'_>>, u64),
    ) -> bool {
        let object = Object::File { path, inode: None, pid: None };
        let Some(image) = self.sources.image(&object, Some(id), None) else { return false };
        let files = dwarf_files();
        let source = named_by(image, &files, self.inlined);
        let mut shown = ShownNames::default();
        for offset in offsets {
            let (functions, distance) = source.functions(offset, &mut shown).unwrap_or_default();
            visit(offset, functions, distance);
        }
        true
    }
}

/// Runs `work` on a thread whose stack is large enough to read DWARF.
///
/// # Errors
///
/// The thread cannot be started.
pub fn with_deep_stack<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().stack_size(DWARF_STACK).spawn_scoped(scope, work);
        let spawned = spawned.context("can't start a thread")?;
        spawned.join().map_err(|_| Error::new("the thread that names functions has died"))
    })
}

/// An empty store of DWARF.
pub fn dwarf_files() -> DwarfFiles {
    DwarfFiles::new(|file| Some(Box::new(Bytes::map(file).ok()?) as Mapped))
}

fn named(frames: Vec<Frame>, names: &Names<'_>, mut visit: impl FnMut(u32, Frame, FrameName<'_>)) -> Named {
    let mut sorted: Vec<(Frame, u32)> = frames.into_iter().zip(0..).collect();
    sorted.sort_unstable_by_key(|(frame, number)| (frame.dso, frame.process, frame.at, *number));
    let mut places: Vec<&[(Frame, u32)]> =
        sorted.chunk_by(|(a, _), (b, _)| (a.dso, a.process) == (b.dso, b.process)).collect();
    // DSOs of one name come together, because they may be the same file.
    let mut firsts = HashMap::new();
    places.sort_by_cached_key(|frames| {
        let (Frame { dso, .. }, _) = frames[0];
        let name = dso.and_then(|dso| names.images.dso(dso)).map(dso_name);
        *firsts.entry(name).or_insert(dso)
    });
    let mut named = Named::default();
    for frames in places {
        let (first, _) = frames[0];
        let files = dwarf_files();
        let place = names.place(first, &files);
        for &(frame, number) in frames {
            visit(number, frame, place.name(frame.at));
        }
        named.count(&place);
    }
    named
}

/// Finds the names of DSOs and of the functions in them.
pub struct Names<'f> {
    images: Images<'f>,
    maps: PerfMaps,
    endian: Endian,
    inlined: bool,
}

/// A DSO, or the memory of a process, with its functions.
pub struct NamedPlace<'f> {
    facts: &'f Facts,
    number: Option<u32>,
    dso: Option<Cow<'f, [u8]>>,
    source: Option<NameSource<'f>>,
    shown: RefCell<ShownNames>,
    has_named: Cell<bool>,
    why: Option<String>,
    note: Option<String>,
}

impl<'f> Names<'f> {
    /// The names of a recording.
    pub fn new(search: Search<'f>) -> Names<'f> {
        let Search { features, endian, ids, inlined, .. } = search;
        let maps = PerfMaps::new(ids, &recorded_on(features, endian), search.facts);
        Names { images: Images::new(search), maps, endian, inlined }
    }

    /// The DSO of a frame, or the memory of its process.
    pub fn place<'n>(&self, frame: Frame, files: &'n DwarfFiles) -> NamedPlace<'n>
    where
        'f: 'n,
    {
        let (facts, number, has_named) = (self.images.facts, frame.dso, Cell::new(false));
        let dso = number.and_then(|number| self.images.dso(number)).map(dso_name);
        let shown = RefCell::default();
        // perf names memory without a file after the perf map of its process, even if there is none.
        match frame.process {
            _ if frame == Frame::UNTRACED => {
                let source = Some(NameSource::Ksymbol("[untraced]".into(), [frame.at].into()));
                NamedPlace { facts, number, dso: None, source, shown, has_named, why: None, note: None }
            }
            0 => {
                let source = frame.dso.and_then(|number| {
                    let name = || String::from_utf8_lossy(dso.unwrap_or_default()).into();
                    let ksymbol = self.images.facts.ksymbols.get(&number);
                    let ksymbol = ksymbol.map(|starts| NameSource::Ksymbol(name(), starts.clone()));
                    ksymbol
                        .or_else(|| self.images.of(number).map(|image| named_by(image, files, self.inlined)))
                });
                let why =
                    number.filter(|_| source.is_none()).and_then(|number| self.images.why_no_kernel(number));
                let dso = dso.map(Cow::Borrowed);
                NamedPlace { facts, number, dso, source, shown, has_named, why, note: None }
            }
            pid => {
                let map = self.maps.open(pid).ok();
                let dso = Some(PerfMaps::path(pid).into_bytes().into());
                let is_other = |place: &PathBuf| PerfMaps::pid_in(place) != Some(pid);
                let other = map.as_ref().map(|(_, place)| place).filter(|place| is_other(place));
                let note = other
                    .map(|place| format!("code in memory of process {pid} is named by {}", place.display()));
                let source = map.map(|(text, _)| NameSource::Map(listed(&text, pid, self.endian)));
                NamedPlace { facts, number, dso, source, shown, has_named, why: None, note }
            }
        }
    }
}

fn named_by(image: Image, files: &DwarfFiles, inlined: bool) -> NameSource<'_> {
    let dwarf = inlined.then(|| image.inlined(files)).flatten();
    NameSource::Image(image, dwarf.map(Box::new))
}

impl NamedPlace<'_> {
    /// The functions at an offset, as in [`Frame`].
    pub fn name(&self, at: u64) -> FrameName<'_> {
        let shown = &mut self.shown.borrow_mut();
        let (functions, offset) =
            self.source.as_ref().and_then(|source| source.functions(at, shown)).unwrap_or_default();
        self.has_named.set(self.has_named.get() || !functions.is_empty());
        let is_unmapped = || self.number.is_some_and(|number| self.facts.is_beyond_kernel(number, at));
        let dso = self.dso.clone().filter(|_| !functions.is_empty() || !is_unmapped());
        FrameName { dso, functions, offset }
    }

    /// The offsets around one with the same functions; only this one if DWARF may have inlined calls there.
    pub fn extent(&self, at: u64) -> Range<u64> {
        let extent = match &self.source {
            Some(NameSource::Image(image, None)) => image.extent(at),
            Some(NameSource::Map(symbols)) => symbols.extent(at),
            // Chains of code without frame pointers end at many unmapped addresses.
            None if self.number.is_none() => Some(0..u64::MAX),
            Some(NameSource::Image(_, Some(_)) | NameSource::Ksymbol(..)) | None => None,
        };
        extent.unwrap_or(at..at.saturating_add(1))
    }

    /// The source file and line of the code at an offset, inlined or not.
    pub fn line(&self, at: u64) -> Option<(String, u32)> {
        let Some(NameSource::Image(image, Some(dwarf))) = &self.source else { return None };
        let innermost = dwarf.at(image.address_of(at)?).into_iter().next()?;
        innermost.file.zip(innermost.line)
    }

    /// The compilation directory of the code at an offset.
    pub fn folder(&self, at: u64) -> Option<PathBuf> {
        let Some(NameSource::Image(image, Some(dwarf))) = &self.source else { return None };
        dwarf.folder(image.address_of(at)?)
    }

    /// The virtual address in its file of the code at an offset, if the file was found.
    pub fn address(&self, at: u64) -> Option<u64> {
        match &self.source {
            Some(NameSource::Image(image, _)) => image.address_of(at),
            _ => None,
        }
    }

    /// The virtual addresses of the symbol that covers an offset of a file, and the architecture.
    pub fn symbol(&self, at: u64) -> Option<(Range<u64>, Option<Arch>)> {
        let Some(NameSource::Image(Image::File(file), _)) = &self.source else { return None };
        let symbol = file.symbols.find(file.elf.address_of(at)?)?;
        Some((symbol.start..symbol.end, file.elf.arch))
    }

    /// The range of the kernel's or module's symbol at a recorded address.
    pub fn kernel_symbol(&self, at: u64) -> Option<Range<u64>> {
        let Some(NameSource::Image(Image::Kernel { symbols, shift, .. }, _)) = &self.source else {
            return None;
        };
        let symbol = symbols.find(at.wrapping_add(*shift))?;
        Some(symbol.start.wrapping_sub(*shift)..symbol.end.wrapping_sub(*shift))
    }

    /// Why the functions of the kernel have no names.
    pub fn why_nameless(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(format!("functions of the kernel have no names: {why} (--kallsyms, --vmlinux)"))
    }

    /// `None` if the address is unmapped.
    pub fn dso(&self) -> Option<&[u8]> {
        self.dso.as_deref()
    }
}

impl Named {
    /// Counts a DSO after all its frames were named.
    pub fn count(&mut self, place: &NamedPlace<'_>) {
        if let Some(NameSource::Image(_, Some(dwarf))) = &place.source
            && let Some(why) = dwarf.stopped()
        {
            let name = String::from_utf8_lossy(place.dso().unwrap_or_default());
            let what =
                "some inlined calls and source lines are not shown, because reading its DWARF was stopped";
            self.messages.push((Level::Warning, format!("{name}: {what}: {why}")));
        }
        let notes = place.why_nameless().into_iter().chain(place.note.clone());
        self.messages.extend(notes.map(|note| (Level::Info, note)));
        match &place.dso {
            Some(_) if place.has_named.get() => self.with_symbols += 1,
            Some(dso) => self.without.push(String::from_utf8_lossy(dso).into_owned()),
            None => {}
        }
    }
}

enum NameSource<'n> {
    Image(Image, Option<Box<Inlined<'n>>>),
    Map(Symbols),
    /// KSYMBOL records, or a mapping without code: a name, and the addresses.
    Ksymbol(Box<str>, BTreeSet<u64>),
}

impl NameSource<'_> {
    /// The functions at a place, and its distance from the start of the symbol. As in perf, the outermost has
    /// the name of the symbol table, and only calls inlined into it have names from DWARF; without a symbol,
    /// DWARF is not searched.
    fn functions(&self, at: u64, shown: &mut ShownNames) -> Option<(Vec<Function<'_>>, u64)> {
        let (symbol, address, mut calls) = match self {
            NameSource::Ksymbol(name, starts) => {
                let start = starts.range(..=at).next_back().copied().unwrap_or(at);
                let symbol = Cow::Borrowed(&**name);
                let function =
                    Function { name: (&**name).into(), symbol, inlined: false, file: None, line: None };
                return Some((vec![function], at - start));
            }
            NameSource::Map(symbols) => (symbols.find(at)?, at, Vec::new()),
            NameSource::Image(image, dwarf) => {
                let (symbol, address) = (image.find(at)?, image.address_of(at)?);
                (symbol, address, dwarf.as_ref().map(|dwarf| dwarf.at(address)).unwrap_or_default())
            }
        };
        let (file, line) = calls.pop().map_or((None, None), |outer| (outer.file, outer.line));
        let name = shown.of(&symbol.name);
        let raw = String::from_utf8_lossy(&symbol.name);
        let mut functions = vec![Function { name, symbol: raw, inlined: false, file, line }];
        functions.extend(calls.into_iter().rev().map(|Call { symbol, file, line }| Function {
            name: shown.of(symbol.as_bytes()),
            symbol: symbol.into(),
            inlined: true,
            file,
            line,
        }));
        Some((functions, address.wrapping_sub(symbol.start)))
    }
}

pub(crate) fn listed(text: &[u8], pid: u32, endian: Endian) -> Symbols {
    let header = Header { endian, machine: 0, is_of_v8: false, pid, time: 0, flags: 0 };
    let functions = Functions::of_perf_map(text, header);
    let symbol = |function: &perfx_jit::Function<'_>| Symbol {
        start: function.address,
        end: function.end(),
        limit: function.end(),
        weak: false,
        global: true,
        name: function.name.into(),
    };
    Symbols::new(functions.list.iter().map(symbol).collect())
}
