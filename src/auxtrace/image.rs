//! The code that ran: the mapping at an address at a time, and the file with its bytes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use build_id::{BuildId, Object};
use perfx_format::header::Features;
use perfx_format::record::cpumode::KERNEL_START;
use perfx_format::{Bytes, Endian, OrderKey};
use perfx_model::address_space::{Dso, Hit, KERNEL, Machine, Space as MappedSpace};
use perfx_resolve::is_kernel_name;
use perfx_trace::{Image, Mapping, Space};
use symbols::{Content, ElfFile, Sources};

use crate::clock::Clock;
use crate::functions::{Function, Functions};
use crate::kernel::{KernelText, Segment};
use crate::mappings::{Mappings, Place};
use crate::pokes::{MOST_BYTES, Poke, Sites};
use crate::programs::Programs;
use crate::recorded::Recorded;
use crate::running::Task;

/// The object to find for a DSO.
#[derive(Clone, Debug)]
pub struct Known {
    /// The object.
    pub object: Object,
    /// Its build-id in the recording, if that has one.
    pub id: Option<BuildId>,
}

/// A file whose code was decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// The name of the DSO in the recording.
    pub name: Box<[u8]>,
    /// Where it was found; `None` for the vdso of the running kernel.
    pub path: Option<PathBuf>,
    /// Its build-id, if it has one.
    pub id: Option<BuildId>,
}

/// The code of a recording.
#[derive(Debug)]
pub struct Code {
    pub(crate) mappings: Mappings,
    tasks: Vec<Task>,
    clock: Clock,
    known: Vec<Option<Known>>,
    pub(crate) sources: Sources,
    /// Where files of guests are searched for, by build-id.
    guest_sources: Sources,
    /// The file that replaces those of some DSOs, by their numbers.
    pub(crate) own: OnceLock<(PathBuf, Vec<bool>)>,
    /// The file of each DSO, from its first use on.
    files: Vec<OnceLock<Option<CodeFile>>>,
    functions: Vec<OnceLock<Option<Functions>>>,
    /// The decoder's number for each piece of code, by DSO and place.
    ids: Mutex<HashMap<(u32, Place), u64>>,
    /// The recording's copy of the kernel's memory; else the running kernel is used.
    kcore: Option<PathBuf>,
    memory: OnceLock<Option<CodeFile>>,
    programs: Programs,
    /// The changes of the kernel's code, by what was mapped there, from the first use on.
    sites: OnceLock<BTreeMap<Option<Mapped>, Sites>>,
}

/// The number of a DSO, and the address at which it was mapped.
type Mapped = (u32, u64);

#[derive(Debug)]
pub(crate) struct CodeFile {
    path: Option<PathBuf>,
    id: Option<BuildId>,
    content: FileContent,
}

#[derive(Debug)]
enum FileContent {
    /// By offset in the file.
    Whole(Bytes),
    /// By address.
    Kernel(KernelText),
}

/// The memory of the kernel, in place of a DSO's number.
pub(crate) const MEMORY: u32 = u32::MAX;
/// Likewise: changed code of the kernel.
pub(crate) const CHANGED: u32 = u32::MAX - 1;

const HOST_KERNEL: MappedSpace = MappedSpace { machine: Machine::Host, pid: KERNEL };

/// A mapping that overlaps more than this many others is split at their ends.
const MOST_BOUNDS: usize = 64;

impl Code {
    /// The code of a recording. `known` has an entry for each of [`Recorded::dsos`], `None` if it has no
    /// file; `kcore` is the recording's copy of the kernel's memory.
    pub fn new(
        recorded: &mut Recorded,
        clock: Clock,
        known: Vec<Option<Known>>,
        (sources, guest_sources): (Sources, Sources),
        kcore: Option<PathBuf>,
    ) -> Code {
        let mappings = std::mem::take(&mut recorded.mappings);
        Code {
            tasks: recorded.tasks.clone(),
            clock,
            files: mappings.spaces.dsos().iter().map(|_| OnceLock::new()).collect(),
            functions: mappings.spaces.dsos().iter().map(|_| OnceLock::new()).collect(),
            mappings,
            known,
            sources,
            guest_sources,
            own: OnceLock::new(),
            ids: Mutex::default(),
            kcore,
            memory: OnceLock::new(),
            programs: Programs::default(),
            sites: OnceLock::new(),
        }
    }

    pub(crate) fn with_programs(self, features: &Features, endian: Endian) -> Code {
        Code { programs: Programs::of(features, endian), ..self }
    }

    /// Takes the code of these DSOs, by number, from this file, and limits [`Code::places`] to it. The code
    /// of the kernel still comes from the sources.
    pub fn take_from(&self, path: &Path, dsos: &[bool]) {
        self.own.get_or_init(|| (path.to_owned(), dsos.to_vec()));
        for (dso, file) in self.files.iter().enumerate() {
            let known = self.known.get(dso).and_then(Option::as_ref);
            let is_file = known.is_some_and(|known| matches!(known.object, Object::File { .. }));
            if dsos.get(dso) == Some(&true) && is_file {
                file.get_or_init(|| {
                    let (file, _) = build_id::open(path).ok()?;
                    let id = build_id::of_file(path).ok()?;
                    let content = FileContent::Whole(Bytes::map(&file).ok()?);
                    Some(CodeFile { path: Some(path.to_owned()), id, content })
                });
            }
        }
    }

    /// Replaces the code of files with these paths by these bytes.
    pub fn take_bytes(&self, files: &HashMap<PathBuf, Bytes>) {
        for ((dso, ..), file) in self.mappings.dsos().zip(&self.files) {
            let path = Path::new(OsStr::from_bytes(&dso.name));
            if let Some(bytes) = files.get(path) {
                file.get_or_init(|| {
                    let id = build_id::from_elf(bytes).ok()?;
                    let content = FileContent::Whole(bytes.clone());
                    Some(CodeFile { path: Some(path.to_owned()), id, content })
                });
            }
        }
    }

    /// The files whose code was used, in the order of their mappings.
    pub fn used(&self) -> Vec<Used> {
        let used =
            |name: &[u8], file: &CodeFile| Used { name: name.into(), path: file.path.clone(), id: file.id };
        let dsos = self.mappings.dsos().zip(&self.files);
        let files = dsos.filter_map(|((dso, ..), file)| Some(used(&dso.name, file.get()?.as_ref()?)));
        let memory = self.memory.get().and_then(|memory| memory.as_ref());
        memory.map(|memory| used(b"[kernel]", memory)).into_iter().chain(files).collect()
    }

    /// The number of changes of the kernel's code (TEXT_POKE) that were needed but not followed.
    pub fn ignored_changes(&self) -> u64 {
        let ignored = |sites: &BTreeMap<_, Sites>| sites.values().map(|sites| sites.ignored).sum::<u64>();
        self.sites.get().map_or(0, |sites| self.mappings.ignored_pokes + ignored(sites))
    }

    /// True if [`Code::places`] includes the file of this DSO.
    pub(crate) fn is_wanted(&self, dso: u32) -> bool {
        self.own.get().is_none_or(|(_, dsos)| dsos.get(dso as usize) == Some(&true))
    }

    pub(crate) fn ids(&self) -> MutexGuard<'_, HashMap<(u32, Place), u64>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the mapping at an address; `None` without one.
    pub fn name(&self, space: Option<Space>, ip: u64, ticks: u64) -> Option<&[u8]> {
        let (hit, _) = self.hit(space, ip, ticks);
        let (dso, _) = self.mappings.spaces.dsos().get(hit?.dso as usize)?;
        Some(&dso.name)
    }

    /// The function at an address of user code; `None` if its file has no symbol there.
    pub fn function(&self, space: Option<Space>, ip: u64, ticks: u64) -> Option<Function> {
        let hit = self.hit(space, ip, ticks).0.filter(|_| ip < KERNEL_START)?;
        let functions = self.functions.get(hit.dso as usize)?.get_or_init(|| {
            let path = self.file(hit.dso)?.path.as_ref()?;
            Some(Functions::new(ElfFile::read(path).ok()?))
        });
        let shift = self.mappings.places.get(hit.mapping as usize)?.shift;
        let (distance, begin) = functions.as_ref()?.find(ip.wrapping_add(shift))?;
        Some(Function { start: ip.wrapping_sub(distance), id: (hit.dso, begin) })
    }

    /// The number of the DSO at an address, whether its code is found, and the time at which this may change.
    pub(crate) fn state(&self, space: Option<Space>, ip: u64, ticks: u64) -> (Option<u32>, bool, u64) {
        let (hit, during) = self.hit(space, ip, ticks);
        let is_found = self.code(space, ip, ticks).is_some();
        (hit.map(|hit| hit.dso), is_found, self.until(during.end))
    }

    pub(crate) fn dso(&self, number: u32) -> Option<(&Dso, Option<&Known>)> {
        let (dso, _) = self.mappings.spaces.dsos().get(number as usize)?;
        Some((dso, self.known.get(number as usize)?.as_ref()))
    }

    /// Converts a result's end from a key to ticks.
    fn until(&self, key: OrderKey) -> u64 {
        if key == OrderKey::END { u64::MAX } else { self.clock.ticks_at(key) }
    }

    fn hit(&self, space: Option<Space>, ip: u64, ticks: u64) -> (Option<Hit>, Range<OrderKey>) {
        let Some(space) = self.space(space, ip) else { return (None, OrderKey::ALL) };
        self.mappings.spaces.find(space, ip, self.clock.key(ticks))
    }

    fn space(&self, space: Option<Space>, ip: u64) -> Option<MappedSpace> {
        let task = space.and_then(|space| self.tasks.get(space.0 as usize));
        let pid = if ip >= KERNEL_START { KERNEL } else { task?.pid };
        Some(MappedSpace { machine: task.map_or(Machine::Host, Task::machine), pid })
    }

    /// The part of a mapping around an address that no other mapping covers at that time.
    fn visible(&self, space: MappedSpace, ip: u64, ticks: u64, hit: Hit) -> Option<Place> {
        let place = *self.mappings.places.get(hit.mapping as usize)?;
        let key = self.clock.key(ticks);
        let bounds = self.mappings.bounds.get_or_init(|| {
            let places = self.mappings.places.iter();
            let mut bounds: Vec<u64> = places.flat_map(|place| [place.start, place.end]).collect();
            bounds.sort_unstable();
            bounds.dedup();
            bounds
        });
        let is_own = |at: u64| self.mappings.spaces.find(space, at, key).0 == Some(hit);
        Some(part_around(ip, place, bounds, is_own))
    }

    fn file(&self, dso: u32) -> Option<&CodeFile> {
        let file = self.files.get(dso as usize)?.get_or_init(|| {
            let Known { object, id } = self.known.get(dso as usize)?.as_ref()?;
            let (mapped, _) = self.mappings.spaces.dsos().get(dso as usize)?;
            let is_of_host = mapped.machine == Machine::Host;
            let sources = if is_of_host { &self.sources } else { &self.guest_sources };
            match object {
                _ if mapped.kernel && !is_of_host => {
                    let reference = self.mappings.guest_references.get(&mapped.machine)?;
                    let text = || KernelText::of_guest(sources, (*id)?, reference);
                    is_kernel_name(&mapped.name).then(text).flatten().map(CodeFile::of_kernel)
                }
                // A name is not enough: a root may be that of the host.
                _ if id.is_none() && !is_of_host => None,
                Object::Kernel => self.kernel(*id),
                // A module is relocated when it is loaded.
                Object::Module(_) => None,
                _ => {
                    let (content, id) = sources.code(object, *id)?;
                    let (path, bytes) = match content {
                        Content::File(path) => {
                            let bytes = Bytes::map(&build_id::open(&path).ok()?.0).ok()?;
                            (Some(path), bytes)
                        }
                        Content::Bytes(bytes) => (None, Bytes::from(bytes)),
                    };
                    Some(CodeFile { path, id, content: FileContent::Whole(bytes) })
                }
            }
        });
        file.as_ref()
    }

    fn kernel(&self, id: Option<BuildId>) -> Option<CodeFile> {
        let reference = self.mappings.reference.as_ref()?;
        KernelText::of_file(&self.sources, id, reference).map(CodeFile::of_kernel)
    }

    pub(crate) fn memory(&self) -> Option<&CodeFile> {
        let memory = self.memory.get_or_init(|| {
            let text = match &self.kcore {
                Some(kcore) => KernelText::of_copy(kcore),
                None => self.running(),
            };
            text.map(CodeFile::of_kernel)
        });
        memory.as_ref()
    }

    fn running(&self) -> Option<KernelText> {
        let known = |dso: u32| self.known.get(dso as usize)?.as_ref();
        let mapped = self.mappings.kernel.iter().filter_map(|(dso, place)| {
            let module = match &known(*dso)?.object {
                Object::Kernel => None,
                Object::Module(path) => Some(build_id::module_name(path).as_bytes().to_vec()),
                _ => return None,
            };
            Some((module, place.start..place.end))
        });
        let mapped: Vec<_> = mapped.collect();
        let kernels = self.known.iter().flatten().filter(|known| known.object == Object::Kernel);
        // Without a build-id, a different kernel of the same release could pass for the recorded one.
        let id = kernels.filter_map(|known| known.id).next()?;
        KernelText::of_running(&self.sources, id, self.mappings.reference.as_ref()?, &mapped)
    }

    fn id(&self, dso: u32, place: Place) -> u64 {
        let mut ids = self.ids();
        let next = ids.len() as u64;
        *ids.entry((dso, place)).or_insert(next)
    }

    fn of_kernel<'a>(
        &'a self,
        dso: u32,
        text: &'a KernelText,
        (before, after): (u64, u64),
        ip: u64,
    ) -> Option<Mapping<'a>> {
        let &Segment { start, offset, ref bytes } = text.segment(ip)?;
        let end = start.saturating_add(bytes.len() as u64);
        let shift = offset.wrapping_sub(start);
        let (first, end) = (start.max(before), end.min(after));
        let bytes = bytes.get(usize::try_from(first - start).ok()?..usize::try_from(end - start).ok()?)?;
        let id = self.id(dso, Place { start: first, end, shift });
        Some(Mapping { id, start: first, bytes, until: u64::MAX })
    }

    fn mapped(&self, hit: Hit) -> Option<Mapped> {
        Some((hit.dso, self.mappings.places.get(hit.mapping as usize)?.start))
    }

    fn sites(&self, mapped: Option<Mapped>) -> Option<&Sites> {
        let all = self.sites.get_or_init(|| {
            let mut groups: BTreeMap<Option<Mapped>, Vec<Poke>> = BTreeMap::new();
            for poke in &self.mappings.pokes {
                let (hit, _) = self.mappings.spaces.find(HOST_KERNEL, poke.address, poke.at);
                groups.entry(hit.and_then(|hit| self.mapped(hit))).or_default().push(poke.clone());
            }
            let mut left = MOST_BYTES;
            let sites = |(mapped, pokes): (_, Vec<Poke>)| {
                let time = pokes.first().map_or(0, |poke| self.clock.ticks_at(poke.at));
                let code = |address, most: usize| {
                    let found = self.unchanged(None, address, time, (0, u64::MAX));
                    let bytes = found.and_then(|Mapping { start, bytes, .. }| {
                        bytes.get(usize::try_from(address - start).ok()?..)
                    });
                    let bytes = bytes.unwrap_or_default();
                    &bytes[..most.min(bytes.len())]
                };
                (mapped, Sites::new(pokes, &mut left, code))
            };
            groups.into_iter().map(sites).collect()
        });
        // Code may be named only after its change.
        all.get(&mapped).or_else(|| all.get(&None))
    }

    /// The changed code at an address and a time, where `mapped` was mapped.
    fn changed(&self, mapped: Option<Mapped>, ip: u64, ticks: u64) -> Option<Mapping<'_>> {
        let site = self.sites(mapped)?.at(ip)?;
        let (number, bytes, until) = site.version(self.clock.key(ticks));
        let end = site.start.saturating_add(bytes.len() as u64);
        let version = u64::from(mapped.map_or(u32::MAX, |(dso, _)| dso)) << 32 | number as u64;
        let id = self.id(CHANGED, Place { start: site.start, end, shift: version });
        Some(Mapping { id, start: site.start, bytes, until: self.until(until) })
    }

    /// The code at an address, between two others, as if the kernel never changed it.
    fn unchanged(&self, space: Option<Space>, ip: u64, time: u64, around: (u64, u64)) -> Option<Mapping<'_>> {
        let mapped = self.space(space, ip)?;
        let (hit, during) = self.hit(space, ip, time);
        let until = self.until(during.end);
        let within = |hit: Hit, bytes| {
            let Place { start, end, shift } = self.visible(mapped, ip, time, hit)?;
            let (start, end) = (start.max(around.0), end.min(around.1));
            let offset = usize::try_from(start.wrapping_add(shift)).ok()?;
            let len = usize::try_from(end - start).unwrap_or(usize::MAX);
            let bytes: &[u8] = <[u8]>::get(bytes, offset..)?;
            let bytes = &bytes[..len.min(bytes.len())];
            let id = self.id(hit.dso, Place { start, end, shift });
            Some(Mapping { id, start, bytes, until })
        };
        if mapped == HOST_KERNEL {
            if let Some((hit, bytes)) = hit.and_then(|hit| Some((hit, self.program(hit)?))) {
                return within(hit, bytes);
            }
            if let Some(text) = self.memory().and_then(CodeFile::kernel_text)
                && let Some(found) = self.of_kernel(MEMORY, text, around, ip)
            {
                return Some(found);
            }
        }
        let hit = hit?;
        match &self.file(hit.dso)?.content {
            FileContent::Kernel(text) => {
                Some(Mapping { until, ..self.of_kernel(hit.dso, text, around, ip)? })
            }
            FileContent::Whole(bytes) => within(hit, bytes),
        }
    }

    fn program(&self, hit: Hit) -> Option<&[u8]> {
        let place = self.mappings.places.get(hit.mapping as usize)?;
        let (dso, _) = self.mappings.spaces.dsos().get(hit.dso as usize)?;
        self.programs.code(place.start, &dso.name)
    }
}

/// The part of a place around an address that belongs to it, which changes only at these ascending bounds.
/// At most [`MOST_BOUNDS`] of them on each side are looked at.
fn part_around(ip: u64, place: Place, bounds: &[u64], is_own: impl Fn(u64) -> bool) -> Place {
    let at_or_before = bounds.partition_point(|bound| *bound <= ip);
    let later = bounds[at_or_before..].iter().take_while(|bound| **bound < place.end);
    let end = later.zip(1..).find(|(bound, count)| *count > MOST_BOUNDS || !is_own(**bound));
    let earlier = bounds[..at_or_before].iter().rev().take_while(|bound| **bound > place.start);
    let start = earlier.zip(1..).find(|(bound, count)| *count > MOST_BOUNDS || !is_own(**bound - 1));
    Place {
        start: start.map_or(place.start, |(bound, _)| *bound),
        end: end.map_or(place.end, |(bound, _)| *bound),
        ..place
    }
}

impl CodeFile {
    pub(crate) fn kernel_text(&self) -> Option<&KernelText> {
        match &self.content {
            FileContent::Kernel(text) => Some(text),
            FileContent::Whole(_) => None,
        }
    }

    fn of_kernel(text: KernelText) -> CodeFile {
        CodeFile { path: Some(text.path.clone()), id: text.id, content: FileContent::Kernel(text) }
    }
}

impl Image for Code {
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>> {
        let whole = (0, u64::MAX);
        if self.space(space, ip)? != HOST_KERNEL || self.mappings.pokes.is_empty() {
            return self.unchanged(space, ip, time, whole);
        }
        let (hit, during) = self.hit(space, ip, time);
        let mapped = hit.and_then(|hit| self.mapped(hit));
        if let Some(changed) = self.changed(mapped, ip, time) {
            return Some(Mapping { until: changed.until.min(self.until(during.end)), ..changed });
        }
        self.unchanged(space, ip, time, self.sites(mapped).map_or(whole, |sites| sites.around(ip)))
    }

    fn is_traced(&self, space: Option<Space>, ip: u64, time: u64) -> bool {
        let filters = &self.mappings.filters;
        if filters.is_empty() {
            return true;
        }
        let (hit, _) = self.hit(space, ip, time);
        let mapped = hit.and_then(|hit| {
            let (dso, _) = self.mappings.spaces.dsos().get(hit.dso as usize)?;
            Some((&dso.name, ip.wrapping_add(self.mappings.places.get(hit.mapping as usize)?.shift)))
        });
        filters.iter().any(|filter| match (&filter.file, mapped) {
            (None, _) => filter.has(ip),
            (Some(file), Some((name, offset))) => file == name && filter.has(offset),
            (Some(_), None) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_cover_each_other_in_part_have_only_what_is_visible() {
        let place = Place { start: 0x1000, end: 0x9000, shift: 7 };
        // Later mappings cover 0x3000 to 0x4000, and all from 0x7000 on; one at 0x5000 is of another process.
        let bounds = [0x1000, 0x3000, 0x4000, 0x5000, 0x7000, 0x9000, 0xf000];
        let is_own = |at: u64| (0x1000..0x3000).contains(&at) || (0x4000..0x7000).contains(&at);
        let part = |ip| {
            let Place { start, end, shift } = part_around(ip, place, &bounds, is_own);
            assert_eq!(shift, 7);
            (start, end)
        };
        assert_eq!([0x1000, 0x2fff].map(part), [(0x1000, 0x3000); 2]);
        assert_eq!([0x4000, 0x4fff, 0x5000, 0x6fff].map(part), [(0x4000, 0x7000); 4]);
        assert_eq!(part_around(0x6000, place, &bounds, |_| true), place);
        assert_eq!(part_around(0x6000, place, &[], is_own), place);
    }

    #[test]
    fn a_mapping_with_many_bounds_is_split_at_those_far_away() {
        let place = Place { start: 0, end: 10_000, shift: 0 };
        let bounds: Vec<u64> = (1..1000).map(|number| 10 * number).collect();
        let Place { start, end, .. } = part_around(5005, place, &bounds, |_| true);
        let most = MOST_BOUNDS as u64;
        assert_eq!((start, end), (5000 - 10 * most, 5010 + 10 * most));
    }
}
