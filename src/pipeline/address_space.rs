//! Which DSO an address of a process belonged to at a time, answered in any order and from many threads, without sorting a single sample.
//!
//! Only the records that change an address space need time order, and they are few. They become a timeline for each process: it begins anew at
//! every fork and exec; within such a span the newest mapping over an address, at that time, is the one that counts, for a later mapping takes
//! the place of what it covers. A span that began with a fork asks its parent for what it has not mapped itself.

use std::collections::HashMap;
use std::sync::Arc;

use perfx_format::decode::{MmapBuildId, mmap_build_id};
use perfx_format::{Kinds, Layout, Layouts, Record, RecordType, until_nul};

/// The pid of a kernel's address space.
pub const KERNEL: u32 = u32::MAX;

/// Which machine an address space is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Machine {
    /// The machine that was recorded.
    Host,
    /// A guest on it; the pid of the process that runs it, 0 when that is not known.
    Guest(u32),
}

impl Machine {
    /// As HEADER_BUILD_ID's `pid` says it: -1 the host, else the guest's pid.
    pub fn pid(self) -> i32 {
        match self {
            Machine::Host => -1,
            Machine::Guest(pid) => pid as i32,
        }
    }
}

/// An address space: a process of a machine, or its kernel (pid [`KERNEL`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space {
    /// Where.
    pub machine: Machine,
    /// Whose.
    pub pid: u32,
}

/// What tells two files of one name apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Identity {
    /// MMAP says nothing but the name.
    Unknown,
    /// MMAP2's device and inode.
    Inode {
        /// Device, major number.
        major: u32,
        /// Device, minor number.
        minor: u32,
        /// Inode number.
        inode: u64,
        /// Inode generation.
        generation: u64,
    },
    /// MMAP2's build-id: 20 bytes, of which the first `len` count.
    BuildId {
        /// The id, zeros behind it.
        id: [u8; 20],
        /// 1 to 20.
        len: u8,
    },
}

/// A file (or kernel, module, vdso, anonymous memory) that was mapped.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dso {
    /// Where it was mapped.
    pub machine: Machine,
    /// Mapped into a kernel.
    pub kernel: bool,
    /// The name in the MMAP record.
    pub name: Box<[u8]>,
    /// Tells it from another file of that name.
    pub identity: Identity,
}

impl Dso {
    /// Its mappings carry its build-id.
    pub fn tells_id(&self) -> bool {
        matches!(self.identity, Identity::BuildId { .. })
    }
}

/// A MMAP or MMAP2 record.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// Process, or [`KERNEL`].
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Of the first byte, in the file. Of a kernel: the address of the symbol that ends the name (`[kernel.kallsyms]_text`).
    pub pgoff: u64,
    /// MMAP2's `flags` (`MAP_SHARED`, `MAP_HUGETLB`, …); 0 for MMAP.
    pub flags: u32,
    /// What is mapped.
    pub name: &'a [u8],
    /// Which of that name.
    pub identity: Identity,
}

impl<'a> Mapping<'a> {
    /// Reads a MMAP or MMAP2 record; `None` for other kinds and for one too short.
    pub fn read(record: &Record<'a>, layouts: &Layouts) -> Option<Mapping<'a>> {
        let name_at = match record.kind() {
            RecordType::MMAP => 40,
            RecordType::MMAP2 => 72,
            _ => return None,
        };
        // A name that does not end in NUL ends where the trailer begins.
        let trailer = layouts.layout_of(record).map_or(0, |layout| usize::from(layout.trailer.size));
        let end = record.bytes().len().saturating_sub(trailer).max(name_at);
        let identity = match mmap_build_id(record, layouts) {
            Some(MmapBuildId::BuildId(bytes)) => {
                let mut id = [0; 20];
                id.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Identity::BuildId { id, len: bytes.len() as u8 }
            }
            Some(_) if record.u64(48)? != 0 => Identity::Inode {
                major: record.u32(40)?,
                minor: record.u32(44)?,
                inode: record.u64(48)?,
                generation: record.u64(56)?,
            },
            _ => Identity::Unknown,
        };
        Some(Mapping {
            pid: record.u32(8)?,
            start: record.u64(16)?,
            len: record.u64(24)?,
            pgoff: record.u64(32)?,
            flags: if record.kind() == RecordType::MMAP2 { record.u32(68)? } else { 0 },
            name: until_nul(record.bytes().get(name_at..end)?),
            identity,
        })
    }

    /// What the record maps.
    pub fn dso(&self, record: &Record<'_>, machine: Machine) -> Dso {
        let kernel = self.pid == KERNEL || matches!(record.cpumode(), 1 | 4);
        Dso { machine, kernel, name: self.name.into(), identity: self.identity }
    }
}

/// Changes of address spaces, collected in file order; [`AddressSpaces::new`] sorts them by time.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    changes: Vec<Change>,
    mappings: u32,
    dsos: Vec<(Dso, u32)>,
    known: HashMap<Dso, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    time: u64,
    space: Space,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Map { start: u64, end: u64, hit: Hit },
    Fork { parent: u32 },
    Exec,
}

/// What lies at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The DSO, as its number in [`AddressSpaces::dsos`].
    pub dso: u32,
    /// The MMAP or MMAP2 record, counted from 0 in the order they were collected.
    pub mapping: u32,
}

/// When a record happened, in the order of address spaces: its time by its `layout`, or where no event keeps the time, its place in the file.
#[inline]
pub fn moment(record: &Record<'_>, layout: Option<&Layout>, layouts: &Layouts) -> u64 {
    if layouts.has_time() {
        layout.and_then(|layout| layout.time(record)).unwrap_or(0)
    } else {
        record.origin().stored_at().map_or(0, |(_, offset)| offset)
    }
}

/// Bit 13 of a COMM's `misc`.
const COMM_EXEC: u16 = 1 << 13;

/// Bit 0 of a KSYMBOL's flags.
const KSYMBOL_GONE: u16 = 1;

impl Changes {
    /// The kinds that change an address space.
    pub fn kinds() -> Kinds {
        Kinds::of(&[RecordType::MMAP, RecordType::MMAP2, RecordType::FORK, RecordType::COMM])
    }

    /// Takes in a record of these kinds, or a KSYMBOL for whoever wants code that the kernel made at run time as a DSO of the symbol's name; returns
    /// the DSO it maps, as a number of these changes. `machine` is where it happened.
    pub fn add(&mut self, record: &Record<'_>, layouts: &Layouts, machine: Machine) -> Option<u32> {
        let time = moment(record, layouts.layout_of(record), layouts);
        match record.kind() {
            RecordType::FORK => {
                let (pid, parent) = (record.u32(8)?, record.u32(12)?);
                if pid != parent {
                    // Its own time field is there even without a trailer.
                    let own = record.u64(24).filter(|_| layouts.has_time());
                    self.push(Space { machine, pid }, own.unwrap_or(time), What::Fork { parent });
                }
                None
            }
            RecordType::COMM => {
                if record.misc() & COMM_EXEC != 0 {
                    self.push(Space { machine, pid: record.u32(8)? }, time, What::Exec);
                }
                None
            }
            RecordType::KSYMBOL => {
                if record.u16(22)? & KSYMBOL_GONE != 0 {
                    return None;
                }
                let (start, len) = (record.u64(8)?, record.u32(16)?);
                let name = until_nul(record.bytes().get(24..)?).into();
                let dso = Dso { machine, kernel: true, name, identity: Identity::Unknown };
                Some(self.map(time, Space { machine, pid: KERNEL }, start, len.into(), dso, 0))
            }
            _ => {
                let mapping = Mapping::read(record, layouts)?;
                let dso = mapping.dso(record, machine);
                let pid = if dso.kernel { KERNEL } else { mapping.pid };
                Some(self.map(time, Space { machine, pid }, mapping.start, mapping.len, dso, mapping.flags))
            }
        }
    }

    fn push(&mut self, space: Space, time: u64, what: What) {
        self.changes.push(Change { time, space, what });
    }

    fn map(&mut self, time: u64, space: Space, start: u64, len: u64, dso: Dso, flags: u32) -> u32 {
        let next = self.dsos.len() as u32;
        let number = *self.known.entry(dso.clone()).or_insert(next);
        if number == next {
            self.dsos.push((dso, flags));
        }
        let hit = Hit { dso: number, mapping: self.mappings };
        self.mappings += 1;
        self.push(space, time, What::Map { start, end: start.saturating_add(len), hit });
        number
    }
}

/// The timelines of all processes.
#[derive(Debug, Default)]
pub struct AddressSpaces {
    dsos: Vec<(Dso, u32)>,
    spaces: HashMap<Space, u32>,
    timelines: Vec<Timeline>,
    /// Pages inside which a mapping begins or ends, ascending: kernel modules do not keep to pages.
    split_pages: Vec<u64>,
}

#[derive(Debug, Default)]
struct Timeline {
    /// By time; the first may begin later than a sample, which is then taken to be in it.
    spans: Vec<Span>,
    /// Times at which anything changes, ascending.
    changes: Vec<u64>,
}

#[derive(Debug, Default)]
struct Span {
    start: u64,
    /// The address space it was copied from when it began.
    parent: Option<Space>,
    maps: Maps,
}

/// Mappings that may cover one another. An implicit interval tree: sorted by start, each node of the binary tree over the array knows the
/// highest end below it, so that those over an address are found without looking at the others.
#[derive(Debug, Default)]
struct Maps {
    maps: Vec<Map>,
}

#[derive(Clone, Copy, Debug)]
struct Map {
    start: u64,
    end: u64,
    /// Highest end in the subtree whose root this is.
    highest: u64,
    time: u64,
    /// Order among mappings of one time.
    order: u32,
    hit: Hit,
}

impl Maps {
    fn new(mut maps: Vec<Map>) -> Maps {
        maps.sort_unstable_by_key(|map| (map.start, map.order));
        fn highest(maps: &mut [Map]) -> u64 {
            let Some(middle) = maps.len().checked_sub(1).map(|last| last.div_ceil(2)) else { return 0 };
            let (left, right) = maps.split_at_mut(middle);
            let Some((root, right)) = right.split_first_mut() else { return 0 };
            root.highest = root.end.max(highest(left)).max(highest(right));
            root.highest
        }
        highest(&mut maps);
        Maps { maps }
    }

    /// The newest mapping over `address` that is not newer than `time`.
    fn find(&self, address: u64, time: u64) -> Option<&Map> {
        fn search<'m>(maps: &'m [Map], address: u64, time: u64, best: &mut Option<&'m Map>) {
            let Some(middle) = maps.len().checked_sub(1).map(|last| last.div_ceil(2)) else { return };
            let root = &maps[middle];
            if root.highest <= address {
                return;
            }
            search(&maps[..middle], address, time, best);
            if root.start <= address {
                let newer = best.is_none_or(|best| (best.time, best.order) < (root.time, root.order));
                if address < root.end && root.time <= time && newer {
                    *best = Some(root);
                }
                search(&maps[middle + 1..], address, time, best);
            }
        }
        let mut best = None;
        search(&self.maps, address, time, &mut best);
        best
    }
}

/// How many forks back a mapping is looked for.
const GENERATIONS: usize = 1024;

/// The smallest page, in bits.
const PAGE_BITS: u32 = 12;

impl AddressSpaces {
    /// Sorts the changes into timelines. Changes of one time stay in the order they were collected.
    pub fn new(changes: Changes) -> AddressSpaces {
        let Changes { mut changes, dsos, .. } = changes;
        changes.sort_by_key(|change| (change.space, change.time));
        let mut all = AddressSpaces { dsos, ..AddressSpaces::default() };
        for changes in changes.chunk_by(|a, b| a.space == b.space) {
            let mut timeline = Timeline::default();
            let mut maps = Vec::new();
            let mut span = Span::default();
            for (order, change) in changes.iter().enumerate() {
                if timeline.changes.last() != Some(&change.time) {
                    timeline.changes.push(change.time);
                }
                let parent = match change.what {
                    What::Map { start, end, hit } => {
                        let inside =
                            [start, end].into_iter().filter(|bound| bound.trailing_zeros() < PAGE_BITS);
                        all.split_pages.extend(inside.map(|bound| bound >> PAGE_BITS));
                        maps.push(Map {
                            start,
                            end,
                            highest: 0,
                            time: change.time,
                            order: order as u32,
                            hit,
                        });
                        continue;
                    }
                    What::Fork { parent } => Some(Space { pid: parent, ..change.space }),
                    What::Exec => None,
                };
                span.maps = Maps::new(std::mem::take(&mut maps));
                timeline.spans.push(std::mem::replace(
                    &mut span,
                    Span { start: change.time, parent, maps: Maps::default() },
                ));
            }
            span.maps = Maps::new(maps);
            timeline.spans.push(span);
            if let Some(first) = changes.first() {
                all.spaces.insert(first.space, all.timelines.len() as u32);
            }
            all.timelines.push(timeline);
        }
        all.split_pages.sort_unstable();
        all.split_pages.dedup();
        all
    }

    /// All DSOs, in the order they were first mapped, with the flags of that mapping.
    pub fn dsos(&self) -> &[(Dso, u32)] {
        &self.dsos
    }

    fn find(&self, space: Space, address: u64, time: u64) -> Option<Hit> {
        let (mut space, mut time) = (space, time);
        for _ in 0..GENERATIONS {
            let timeline = &self.timelines[*self.spaces.get(&space)? as usize];
            let after = timeline.spans.partition_point(|span| span.start <= time);
            let span = timeline.spans.get(after.saturating_sub(1))?;
            if let Some(map) = span.maps.find(address, time) {
                return Some(map.hit);
            }
            time = span.start;
            space = span.parent?;
        }
        None
    }
}

/// Answers questions about one set of address spaces and remembers what it answered: samples hit the same pages again and again.
#[derive(Debug)]
pub struct Lookup {
    spaces: Arc<AddressSpaces>,
    pages: Box<[Page]>,
}

/// The answer for a page of an address space between two changes of it.
#[derive(Clone, Copy, Debug)]
struct Page {
    space: Space,
    page: u64,
    from: u64,
    until: u64,
    hit: Option<Hit>,
}

const PAGES: usize = 1 << 10;

impl Lookup {
    /// Nothing remembered yet.
    pub fn new(spaces: Arc<AddressSpaces>) -> Lookup {
        let space = Space { machine: Machine::Host, pid: 0 };
        // `from` above `until`: matches no time.
        let empty = Page { space, page: 0, from: 1, until: 0, hit: None };
        Lookup { spaces, pages: vec![empty; PAGES].into() }
    }

    /// The spaces it answers about.
    pub fn spaces(&self) -> &Arc<AddressSpaces> {
        &self.spaces
    }

    /// What lies at `address` of a space at `time`.
    #[inline]
    pub fn find(&mut self, space: Space, address: u64, time: u64) -> Option<Hit> {
        let page = address >> PAGE_BITS;
        let slot = (page ^ page >> 10 ^ u64::from(space.pid) << 3) as usize % PAGES;
        let known = &self.pages[slot];
        if known.page == page && known.space == space && known.from <= time && time < known.until {
            return known.hit;
        }
        self.find_slowly(space, address, time, slot)
    }

    #[cold]
    fn find_slowly(&mut self, space: Space, address: u64, time: u64, slot: usize) -> Option<Hit> {
        let hit = self.spaces.find(space, address, time);
        let timeline = self.spaces.spaces.get(&space).map(|&at| &self.spaces.timelines[at as usize]);
        // A forked process also depends on its parent, but only on what that was at the fork, which does not change any more.
        let (from, until) = match timeline {
            Some(timeline) => {
                let after = timeline.changes.partition_point(|&change| change <= time);
                let from = after.checked_sub(1).map_or(0, |at| timeline.changes[at]);
                (from, timeline.changes.get(after).copied().unwrap_or(u64::MAX))
            }
            None => (0, u64::MAX),
        };
        let page = address >> PAGE_BITS;
        if self.spaces.split_pages.binary_search(&page).is_err() {
            self.pages[slot] = Page { space, page, from, until, hit };
        }
        hit
    }
}
