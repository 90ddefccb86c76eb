//! Finds the build-id of a recorded DSO: in the user's list, the recording, then the places the user allows.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use build_id::{Answer, BuildId, Finder, KnownIds, Object, Places, Reason, RecordedOn, Source};
use clap::Args;
use perfx_format::features::{BuildIds, read_str, trimmed_id};
use perfx_format::header::Features;
use perfx_format::names::is_memory;
use perfx_format::record::build_id::{BuildIdEntry, set_build_id};
use perfx_format::record::cpumode;
use perfx_format::{Endian, Feature, Kinds, Layouts, Record, RecordType, hex, set_mmap2_build_id};
use perfx_model::address_space::{Dso, Identity, Machine, Mapping};
use perfx_pipeline::{Context as _, LISTED, Level, Report, Result, Session, counted, ensure};
use symbols::{Debuginfod, KernelFile};

/// The places to look for files that a recording names.
#[derive(Args, Clone, Default, Debug)]
pub struct SearchArgs {
    /// Also look in this sysroot or container image; repeatable
    #[arg(help_heading = "Where to search for files", long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Also look in this build-id cache of perf; repeatable
    #[arg(help_heading = "Where to search for files", long, value_name = "DIR")]
    buildid_dir: Vec<PathBuf>,
    /// The recording is from another machine: do not read files or the kernel of this one
    #[arg(help_heading = "Where to search for files", long, alias = "no-files")]
    foreign: bool,
    /// As perf: take the files and the kernel of this machine even if they may not be the recorded ones
    #[arg(long, hide = true, conflicts_with = "foreign")]
    unverified: bool,
}

impl SearchArgs {
    /// True if the user named a place.
    pub fn is_given(&self) -> bool {
        !self.root.is_empty() || !self.buildid_dir.is_empty() || self.foreign
    }

    /// The places to search.
    ///
    /// # Errors
    ///
    /// The list cannot be read, or a folder does not exist.
    pub fn options(mut self, known: Option<&str>) -> Result<IdOptions> {
        if self.unverified {
            // A file below a root is taken by its name, if the recording has no build-id.
            self.root.push("/".into());
        }
        let options = IdOptions::new(known, self.root, self.buildid_dir, self.foreign)?;
        Ok(IdOptions { unverified: self.unverified, ..options })
    }
}

/// The places to look for the symbols of files.
#[derive(Args, Clone, Default, Debug)]
pub struct FileArgs {
    #[command(flatten)]
    search: SearchArgs,
    /// Download missing files and their symbols from the servers in DEBUGINFOD_URLS
    #[arg(help_heading = "Where to search for files", long)]
    debuginfod: bool,
}

impl FileArgs {
    /// The places to search.
    ///
    /// # Errors
    ///
    /// A folder does not exist, no server is set, or no client is installed.
    pub fn options(self) -> Result<IdOptions> {
        let options = self.search.options(None)?;
        let debuginfod = match self.debuginfod {
            true => Some(Debuginfod::download().context("--debuginfod")?),
            false => (!options.foreign).then(Debuginfod::cache),
        };
        Ok(IdOptions { debuginfod, ..options })
    }
}

/// The places to look for symbols.
#[derive(Args, Clone, Default, Debug)]
pub struct SymbolArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Take the kernel's symbols from this copy of /proc/kallsyms, or this System.map
    #[arg(help_heading = "Where to search for files", long, value_name = "FILE", conflicts_with = "vmlinux")]
    kallsyms: Option<PathBuf>,
    /// Take the kernel's symbols from this file
    #[arg(help_heading = "Where to search for files", long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
}

impl SymbolArgs {
    /// True if the user named a place.
    pub fn is_given(&self) -> bool {
        let FileArgs { search, debuginfod } = &self.files;
        search.is_given() || *debuginfod || self.kallsyms.is_some() || self.vmlinux.is_some()
    }

    /// The places to search.
    ///
    /// # Errors
    ///
    /// A folder does not exist, no server is set, no client is installed, or a file has neither symbols nor
    /// code of a kernel.
    pub fn options(self) -> Result<IdOptions> {
        let kernel = self.kallsyms.map(KernelFile::Kallsyms).or(self.vmlinux.map(KernelFile::Vmlinux));
        if let Some(kernel) = &kernel {
            let option = if matches!(kernel, KernelFile::Kallsyms(_)) { "--kallsyms" } else { "--vmlinux" };
            kernel.check().with_context(|| format!("{option} {}", kernel.path().display()))?;
        }
        Ok(IdOptions { kernel, ..self.files.options()? })
    }
}

/// The sources of build-ids.
#[derive(Args, Clone, Default, Debug)]
pub struct IdArgs {
    /// Build-ids that override those of the recording: `HEX PATH[,HEX PATH…]`, or file://NAME with one such
    /// pair per line
    #[arg(long, alias = "known", value_name = "LIST")]
    known_build_ids: Option<String>,
    #[command(flatten)]
    search: SearchArgs,
}

impl IdArgs {
    /// True if the user named a source.
    pub fn is_given(&self) -> bool {
        self.known_build_ids.is_some() || self.search.is_given()
    }

    /// The places to search.
    ///
    /// # Errors
    ///
    /// The list cannot be read, or a folder does not exist.
    pub fn options(self) -> Result<IdOptions> {
        self.search.options(self.known_build_ids.as_deref())
    }
}

/// The sources of build-ids besides the recording.
#[derive(Clone, Debug, Default)]
pub struct IdOptions {
    known: Arc<KnownIds>,
    roots: Vec<PathBuf>,
    caches: Vec<PathBuf>,
    foreign: bool,
    debuginfod: Option<Debuginfod>,
    kernel: Option<KernelFile>,
    unverified: bool,
}

impl IdOptions {
    /// The kinds of records that can contradict the user's list.
    pub fn correctable(&self) -> Kinds {
        if self.known.is_empty() {
            return Kinds::NONE;
        }
        Kinds::of(&[RecordType::MMAP2, RecordType::HEADER_BUILD_ID])
    }

    /// The user's id for the object of a record of these kinds, if the record has a different one.
    pub fn correction(&self, record: &Record<'_>, layouts: &Layouts) -> Option<Correction> {
        if !self.correctable().contains(record.kind()) {
            return None;
        }
        if let Some(entry) = BuildIdEntry::read(record.bytes(), record.endian())
            && record.kind() == RecordType::HEADER_BUILD_ID
        {
            return self.correction_of(entry.filename, entry.id);
        }
        let dso = Mapping::read(record, layouts)?.dso(Machine::Host);
        self.correction_of(dso_name(&dso), dso.identity.build_id()?)
    }

    fn correction_of(&self, name: &[u8], own: &[u8]) -> Option<Correction> {
        let id = self.known.get(Path::new(OsStr::from_bytes(name)))?;
        let own = trimmed_id(own);
        // Without an id there is no contradiction.
        let differs = !own.is_empty() && own != trimmed_id(id.as_bytes());
        differs.then(|| Correction { name: name.into(), own: own.into(), id })
    }

    /// Sets the user's ids in entries of feature BUILD_ID; entries that become equal are merged.
    pub fn correct_feature(&self, session: &mut Session, corrections: &mut BTreeSet<Correction>) {
        let Some(section) = session.feature(Feature::BUILD_ID).cloned() else { return };
        let mut entries = BuildIds::new(&section, session.endian);
        // Entries without a pid have another layout, which no program has written since 2010.
        if self.known.is_empty() || entries.without_pid() {
            return;
        }
        let (mut new, mut corrected, mut there) = (Vec::new(), Vec::new(), HashSet::new());
        while let Some((bytes, entry)) = entries.split() {
            match self.correction_of(entry.filename, entry.id) {
                Some(correction) => corrected.push((bytes, correction)),
                None => {
                    there.insert((entry.pid, entry.filename));
                    new.extend(bytes);
                }
            }
        }
        if corrected.is_empty() {
            return;
        }
        for (bytes, correction) in corrected {
            let entry = BuildIdEntry::read(bytes, session.endian);
            if entry.is_some_and(|entry| there.insert((entry.pid, entry.filename))) {
                let from = new.len();
                new.extend(bytes);
                correction.apply(RecordType::HEADER_BUILD_ID, &mut new[from..], session.endian);
            }
            corrections.insert(correction);
        }
        new.extend(entries.rest());
        session.set_feature(Feature::BUILD_ID, new);
    }

    /// Excludes the files and the kernel of this machine unless the recording is provably of it.
    #[must_use]
    pub fn of_recording(mut self, recorded_on: &RecordedOn) -> IdOptions {
        self.foreign |= !recorded_on.is_machine(Path::new("/"));
        self
    }

    /// The user's id of a DSO.
    pub fn known_id(&self, dso: &Dso) -> Option<BuildId> {
        self.known.get(Path::new(OsStr::from_bytes(dso_name(dso))))
    }

    /// Also searches the cache of debuginfod's clients unless this machine is excluded; uses this kernel.
    #[must_use]
    pub fn with_code(self, vmlinux: Option<PathBuf>) -> IdOptions {
        let debuginfod = (!self.foreign).then(Debuginfod::cache);
        IdOptions { debuginfod, kernel: vmlinux.map(KernelFile::Vmlinux), ..self }
    }

    /// Uses this file as the kernel.
    #[must_use]
    pub fn with_vmlinux(self, vmlinux: PathBuf) -> IdOptions {
        IdOptions { kernel: Some(KernelFile::Vmlinux(vmlinux)), ..self }
    }

    /// Folders that replace `/` of the recorded machine.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// perf's build-id caches.
    pub fn caches(&self) -> &[PathBuf] {
        &self.caches
    }

    /// The access to debuginfod's files.
    pub fn debuginfod(&self) -> Option<&Debuginfod> {
        self.debuginfod.as_ref()
    }

    /// The file with the kernel's symbols.
    pub fn kernel(&self) -> Option<&KernelFile> {
        self.kernel.as_ref()
    }

    /// True if this machine's files are used although they may not be the recorded ones.
    pub fn is_unverified(&self) -> bool {
        self.unverified
    }

    /// True if this machine's files are not the recorded ones.
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// `known` is `HEX PATH[,…]` or `file://NAME`; `roots` are folders that replace `/` of the recorded
    /// machine, `caches` are build-id caches of perf; `foreign` excludes the files of this machine.
    ///
    /// # Errors
    ///
    /// The list cannot be read, or a folder does not exist.
    pub fn new(
        known: Option<&str>,
        roots: Vec<PathBuf>,
        caches: Vec<PathBuf>,
        foreign: bool,
    ) -> Result<IdOptions> {
        let known =
            known.map(KnownIds::parse).transpose().context("known build-ids")?.unwrap_or_default().into();
        for (what, folder) in
            roots.iter().map(|folder| ("root", folder)).chain(caches.iter().map(|cache| ("cache", cache)))
        {
            let there = std::fs::metadata(folder).with_context(|| format!("{what} {}", folder.display()))?;
            ensure!(there.is_dir(), "{what} {} is not a directory", folder.display());
        }
        Ok(IdOptions { known, roots, caches, foreign, debuginfod: None, kernel: None, unverified: false })
    }
}

/// The build-ids stored in a recording.
#[derive(Clone, Debug)]
pub struct RecordedIds {
    /// From BUILD_ID entries and records, by machine and name.
    by_name: HashMap<(i32, Box<[u8]>), BuildId>,
    /// Names of several different files, so that a name alone identifies none.
    ambiguous: HashSet<Box<[u8]>>,
    /// A 64-bit kernel may have another vdso for 32-bit processes.
    is_64_bit: bool,
}

impl RecordedIds {
    /// From features. `dsos` are those of the recording, if they are known in advance.
    pub fn new(features: &Features, endian: Endian, dsos: &[(Dso, u32)]) -> RecordedIds {
        let is_64_bit = recorded_on(features, endian).may_be_64_bit();
        let mut ids = RecordedIds { by_name: HashMap::new(), ambiguous: ambiguous(dsos), is_64_bit };
        let section = features.get(&Feature::BUILD_ID).map(|section| &**section);
        BuildIds::new(section.unwrap_or_default(), endian).for_each(|entry| ids.learn(&entry));
        ids
    }

    /// Adds a HEADER_BUILD_ID record.
    pub fn learn(&mut self, entry: &BuildIdEntry<'_>) {
        if let Some(id) = BuildId::new(entry.id) {
            self.by_name.entry((entry.pid, entry.filename.into())).or_insert(id);
        }
    }

    /// Adds the bytes of HEADER_BUILD_ID records.
    pub fn learn_records(&mut self, records: &[Vec<u8>], endian: Endian) {
        let entries = records.iter().filter_map(|record| BuildIdEntry::read(record, endian));
        entries.for_each(|entry| self.learn(&entry));
    }

    /// Machine (see [`Machine::pid`]), name and unpadded build-id of each entry, unordered.
    pub fn entries(&self) -> impl Iterator<Item = (i32, &[u8], BuildId)> {
        self.by_name.iter().map(|((machine, name), &id)| (*machine, &**name, id.unpadded()))
    }

    /// The recorded build-id of a DSO, without padding.
    pub fn get(&self, dso: &Dso) -> Option<BuildId> {
        self.stored(dso).map(BuildId::unpadded)
    }

    /// The recorded build-id of a DSO with its padding: from its mapping, or else by its name.
    fn stored(&self, dso: &Dso) -> Option<BuildId> {
        if let Identity::BuildId { id, len } = &dso.identity {
            return BuildId::new(&id[..usize::from(*len)]);
        }
        let name = dso_name(dso);
        // [vdso] is that of 64-bit processes; perf names the other one [vdso32].
        let is_other_vdso = self.is_64_bit && dso.identity == Identity::Below4GiB;
        if is_other_vdso || self.ambiguous.contains(name) {
            return None;
        }
        self.by_name.get(&(dso.machine.pid(), name.into())).copied()
    }
}

/// The recorded machine, from the features of a recording.
pub fn recorded_on(features: &Features, endian: Endian) -> RecordedOn {
    let text = |feature| {
        let section = features.get(&feature)?;
        Some(String::from_utf8_lossy(read_str(section, endian)?).into_owned())
    };
    // The release becomes part of paths below a root.
    let release =
        text(Feature::OSRELEASE).filter(|release| !release.contains('/') && !release.starts_with('.'));
    RecordedOn { host: text(Feature::HOSTNAME), release, arch: text(Feature::ARCH) }
}

/// The object to search for on a machine. `pid` is a process that mapped it.
pub fn object_of(dso: &Dso, pid: Option<u32>) -> Object {
    let name = dso_name(dso);
    let path = PathBuf::from(OsStr::from_bytes(name));
    match (dso.kernel, name) {
        // This machine has no files of a guest, so only the name is usable.
        _ if dso.machine != Machine::Host => Object::File { path, inode: None, pid: None },
        (_, b"[vdso]") if dso.identity == Identity::Below4GiB => Object::Vdso32,
        (_, b"[vdso]") => Object::Vdso,
        (true, name) if name.starts_with(b"[kernel.") => Object::Kernel,
        (true, _) => Object::Module(path),
        (false, _) => {
            let inode = match dso.identity {
                Identity::Inode { inode, .. } => Some(inode),
                _ => None,
            };
            Object::File { path, inode, pid }
        }
    }
}

/// A build-id from the user that replaces a different one in the recording.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Correction {
    name: Box<[u8]>,
    own: Box<[u8]>,
    id: BuildId,
}

impl Correction {
    /// Replaces the id in an MMAP2 record, an entry of feature BUILD_ID, or a HEADER_BUILD_ID record.
    pub fn apply(&self, kind: RecordType, bytes: &mut [u8], endian: Endian) {
        match kind {
            RecordType::MMAP2 => set_mmap2_build_id(bytes, self.id.as_bytes(), endian),
            _ => set_build_id(bytes, self.id.as_bytes(), endian),
        };
    }

    fn report(corrections: &BTreeSet<Correction>, report: &mut Report) {
        if corrections.is_empty() {
            return;
        }
        let count = counted(corrections.len() as u64, "build-id", "build-ids");
        report.say(Level::Info, format!("{count} of the recording replaced with the ones you gave{LISTED}"));
        for Correction { name, own, id } in corrections {
            let own = hex(own);
            report.say(Level::Detail, format!("{}: {id} in place of {own}", name.escape_ascii()));
        }
    }
}

/// The build-ids in MMAP2 records, as entries of feature BUILD_ID.
///
/// If a file has the feature, perf 7 lists only its build-ids, so a new feature must contain these, too.
#[derive(Clone, Debug, Default)]
pub struct MappedIds {
    dsos: BTreeSet<Dso>,
}

impl MappedIds {
    /// Adds a DSO, if its mapping has a build-id.
    pub fn learn(&mut self, dso: &Dso) {
        if dso.tells_id() && !self.dsos.contains(dso) {
            self.dsos.insert(dso.clone());
        }
    }

    /// Adds a record, if it is an MMAP2 of the host.
    #[inline]
    pub fn learn_record(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if record.kind() == RecordType::MMAP2
            && !record.is_of_guest()
            && let Some(mapping) = Mapping::read(record, layouts)
        {
            self.learn(&mapping.dso(Machine::Host));
        }
    }

    /// Adds the ids of a later batch.
    pub fn join(&mut self, later: MappedIds) {
        self.dsos.extend(later.dsos);
    }

    /// The entries; the host's are assigned to `machine`.
    pub fn entries(&self, machine: Machine, endian: Endian) -> Vec<u8> {
        let mut entries = Vec::new();
        for dso in &self.dsos {
            let of_host = dso.machine == Machine::Host;
            let dso = Dso { machine: if of_host { machine } else { dso.machine }, ..dso.clone() };
            if let Some(id) = dso.identity.build_id() {
                let entry = BuildIdEntry::new(cpumode_of(&dso), dso.machine.pid(), id, dso_name(&dso));
                // A name that fits into an MMAP2 record fits into an entry.
                let _ = entry.write_section(endian, &mut entries);
            }
        }
        entries
    }

    /// Adds entries, and these ids if feature BUILD_ID is new; returns the number of new entries.
    pub fn add_with(&self, entries: &[u8], session: &mut Session) -> u64 {
        let makes = session.feature(Feature::BUILD_ID).is_none();
        let added = session.add_build_ids(entries);
        if !makes || added == 0 {
            return added;
        }
        added + session.add_build_ids(&self.entries(Machine::Host, session.endian))
    }
}

type Sourced = (BuildId, Cow<'static, str>);

/// Finds build-ids and counts their sources.
#[derive(Debug)]
pub struct Ids {
    recorded: RecordedIds,
    finder: Finder,
    /// For guests, whose files are not on this machine.
    guest_finder: Finder,
    sources: BTreeMap<Cow<'static, str>, u64>,
    /// The results for DSOs that may be requested again, with the process used in the last search.
    found: HashMap<Dso, (Option<Sourced>, Option<u32>)>,
    known: Arc<KnownIds>,
    known_used: HashSet<PathBuf>,
    details: Vec<String>,
    missing: Vec<Box<str>>,
    replaced: Vec<String>,
    /// Found by name alone.
    by_name: u64,
    is_of_here: bool,
}

impl Ids {
    /// `dsos` are those of the recording, if they are known in advance.
    pub fn new(options: &IdOptions, session: &Session, dsos: &[(Dso, u32)]) -> Ids {
        let known = options.known.clone();
        let recorded_on = recorded_on(session.features(), session.endian);
        let is_of_here = recorded_on.is_machine(Path::new("/"));
        let places = Places {
            known: KnownIds::clone(&known),
            files: !options.foreign,
            roots: options.roots.clone(),
            caches: options.caches.clone(),
            recorded_on,
            running_kernel: !options.foreign,
            ..Places::default()
        };
        Ids {
            recorded: RecordedIds::new(session.features(), session.endian, dsos),
            finder: Finder::new(places),
            guest_finder: Finder::new(Places { known: KnownIds::clone(&known), ..Places::default() }),
            sources: BTreeMap::new(),
            found: HashMap::new(),
            known,
            known_used: HashSet::new(),
            details: Vec::new(),
            missing: Vec::new(),
            replaced: Vec::new(),
            by_name: 0,
            is_of_here,
        }
    }

    /// Adds a HEADER_BUILD_ID record.
    pub fn learn(&mut self, entry: &BuildIdEntry<'_>) {
        self.recorded.learn(entry);
    }

    /// The build-id of a DSO; `pid` is a process that mapped it. `None` for DSOs that cannot have one (such
    /// as anonymous memory). For the report, missing DSOs are counted once, and ids each time.
    pub fn find(&mut self, dso: &Dso, flags: u32, pid: Option<u32>) -> Option<BuildId> {
        if !can_have_id(dso, flags) {
            return None;
        }
        let (found, asked) = match self.found.get(dso).cloned() {
            None => (self.look_for(dso, pid, true), pid),
            // A later record may have named it, and another process may see a file at that path.
            Some((None, asked)) if asked != pid => (self.look_for(dso, pid, false), pid),
            Some((found, asked)) => (self.given(dso).or(found), asked),
        };
        match self.found.get_mut(dso) {
            Some(known) => *known = (found.clone(), asked),
            None => drop(self.found.insert(dso.clone(), (found.clone(), asked))),
        }
        self.count(found)
    }

    /// [`Ids::find`], for a DSO that is requested once.
    pub fn find_once(&mut self, dso: &Dso, flags: u32, pid: Option<u32>) -> Option<BuildId> {
        if !can_have_id(dso, flags) {
            return None;
        }
        let found = self.look_for(dso, pid, true);
        self.count(found)
    }

    fn count(&mut self, found: Option<Sourced>) -> Option<BuildId> {
        let (id, source) = found?;
        *self.sources.entry(source).or_default() += 1;
        Some(id)
    }

    /// The user's id of a DSO, or else the recording's.
    fn given(&mut self, dso: &Dso) -> Option<Sourced> {
        let place = Path::new(OsStr::from_bytes(dso_name(dso)));
        if let Some(id) = self.known.get(place) {
            if !self.known_used.contains(place) {
                self.known_used.insert(place.to_owned());
            }
            return Some((id, Source::KnownList.to_string().into()));
        }
        Some((self.recorded.stored(dso)?, "recording".into()))
    }

    /// Searches for a DSO, and counts the result the `first` time.
    fn look_for(&mut self, dso: &Dso, pid: Option<u32>, first: bool) -> Option<Sourced> {
        let shown = dso_name(dso).escape_ascii();
        if let Some((id, source)) = self.given(dso) {
            if first {
                self.details.push(format!("{id} {shown}, from {source}"));
            }
            return Some((id, source));
        }
        let object = object_of(dso, pid);
        let finder = if dso.machine == Machine::Host { &self.finder } else { &self.guest_finder };
        match finder.find(&object) {
            Answer::Found { id, source, .. } if !first => Some((id, source.to_string().into())),
            Answer::Found { id, source, place, checked } => {
                // A vdso has no file to check. On another machine, an inode or a release has no meaning.
                let is_vdso = matches!(object, Object::Vdso | Object::Vdso32);
                let is_here = matches!(source, Source::File | Source::ProcRoot(_) | Source::RunningKernel);
                let by_name = !checked && !is_vdso || is_here && !self.is_of_here;
                self.by_name += u64::from(by_name);
                let by_name = if by_name { ", by its name alone" } else { "" };
                self.details.push(format!("{id} {shown}, from {source} ({}{by_name})", place.display()));
                Some((id, source.to_string().into()))
            }
            Answer::Missing { .. } if !first => None,
            Answer::Missing { tried } => {
                let mut line = format!("no build-id: {shown}");
                for (source, reason) in tried {
                    line += &format!("; {source}: {reason}");
                    if matches!(reason, Reason::Replaced { .. }) {
                        self.replaced.push(shown.to_string());
                    }
                }
                self.missing.push(line.into());
                None
            }
        }
    }

    /// Reports the sources of ids and the missing ones. `done` describes and counts the work. If `any` is
    /// false, no id was found, which is suspect unless no DSO could have one.
    pub fn report(&mut self, done: &str, any: bool, corrections: &BTreeSet<Correction>, report: &mut Report) {
        let sources: Vec<_> =
            self.sources.iter().map(|(source, count)| format!("{count} from {source}")).collect();
        let sources = if sources.is_empty() { String::new() } else { format!(" ({})", sources.join(", ")) };
        report.say(Level::Info, format!("{done}{sources}"));
        self.details.drain(..).for_each(|detail| report.say(Level::Detail, detail));
        if self.by_name > 0 {
            let files = counted(self.by_name, "file was", "files were");
            report.say(
                Level::Info,
                format!(
                    "{files} found by name only; if a different file of that name was recorded, its build-id \
                    is wrong{LISTED}"
                ),
            );
        }
        if !self.replaced.is_empty() {
            let names = self.replaced.join(", ");
            report.say(Level::Info, format!("replaced since the recording, so not read: {names}"));
        }
        if !self.missing.is_empty() {
            let missing = counted(self.missing.len() as u64, "DSO", "DSOs");
            if any {
                report.say(Level::Info, format!("no build-id found for {missing}{LISTED}"));
            } else {
                report
                    .say(Level::Warning, format!("no build-id found at all: {missing} without one{LISTED}"));
            }
            self.missing.drain(..).for_each(|line| report.say(Level::Detail, line));
        }
        Correction::report(corrections, report);
        let corrected: HashSet<&[u8]> = corrections.iter().map(|correction| &*correction.name).collect();
        let used =
            |path: &Path| self.known_used.contains(path) || corrected.contains(path.as_os_str().as_bytes());
        let unused: Vec<_> = self.known.paths().filter(|path| !used(path)).collect();
        if !unused.is_empty() {
            let unused_ids = counted(unused.len() as u64, "known build-id was", "known build-ids were");
            report.say(Level::Info, format!("{unused_ids} not needed{LISTED}"));
            for path in unused {
                report.say(
                    Level::Detail,
                    format!("not needed: {}", path.as_os_str().as_bytes().escape_ascii()),
                );
            }
        }
    }
}

fn ambiguous(dsos: &[(Dso, u32)]) -> HashSet<Box<[u8]>> {
    let mut first: HashMap<&[u8], &Identity> = HashMap::new();
    let mut ambiguous = HashSet::new();
    for (dso, _) in dsos.iter().filter(|(dso, _)| dso.identity != Identity::Below4GiB) {
        if *first.entry(&dso.name).or_insert(&dso.identity) != &dso.identity {
            ambiguous.insert(dso.name.clone());
        }
    }
    ambiguous
}

const MAP_HUGETLB: u32 = 0x40000;

/// True for a mapping of a file or of a part of the kernel, false for anonymous memory. Programs run from
/// memory files, too (memfd_create(2)); their mapping has a build-id.
pub fn can_have_id(dso: &Dso, flags: u32) -> bool {
    let name = &*dso.name;
    if dso.kernel || name == b"[vdso]" {
        return !name.is_empty();
    }
    name.starts_with(b"/") && (dso.tells_id() || flags & MAP_HUGETLB == 0 && !is_memory(name))
}

/// True for the name of a kernel, not of a module; `perf kvm` adds the pid to a guest's.
pub fn is_kernel_name(name: &[u8]) -> bool {
    name.starts_with(b"[kernel.") || name.starts_with(b"[guest.kernel.")
}

/// The name under which a build-id is stored: the kernel's mapping is named after its first symbol
/// (`[kernel.kallsyms]_text`), its DSO is not.
pub fn dso_name(dso: &Dso) -> &[u8] {
    let name = &*dso.name;
    let bracket = name.iter().position(|&byte| byte == b']');
    match bracket {
        Some(end) if dso.kernel && name.starts_with(b"[") => &name[..=end],
        _ => name,
    }
}

/// Bits 0-2 of a HEADER_BUILD_ID's `misc`: those of the DSO, whatever the cpumode of the sample that hit it.
pub fn cpumode_of(dso: &Dso) -> u16 {
    match (dso.machine, dso.kernel) {
        (Machine::Host, true) => cpumode::KERNEL,
        (Machine::Host, false) => cpumode::USER,
        (Machine::Guest(_), true) => cpumode::GUEST_KERNEL,
        (Machine::Guest(_), false) => cpumode::GUEST_USER,
    }
}
