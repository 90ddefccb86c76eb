//! Which DSO an address of a process belonged to at a time, answered in any order and from many threads, without sorting a single sample.
//!
//! Only the records that change an address space need time order, and they are few. They become a timeline for each process: it begins anew at
//! every fork and exec; within such a span the newest mapping over an address, at that time, is the one that counts, for a later mapping takes
//! the place of what it covers. A span that began with a fork asks its parent for what it has not mapped itself.

use std::collections::HashMap;
use std::sync::Arc;

use perfx_format::decode::{MmapBuildId, mmap_build_id};
use perfx_format::{Inode, Kinds, Layout, Layouts, Mmap, Record, RecordType, until_nul};

/// The pid of a kernel's address space.
pub const KERNEL: u32 = u32::MAX;

/// What perf calls a thread that no COMM names: `swapper` the idle thread of each CPU, tid 0 (`perf_session__register_idle_thread`), and others by
/// their tid, `:131` (`thread__new`).
pub fn name_of_nameless(tid: u32) -> Vec<u8> {
    match tid {
        0 => b"swapper".to_vec(),
        tid => format!(":{}", tid as i32).into_bytes(),
    }
}

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

impl Identity {
    /// The build-id, if that is what it is.
    pub fn build_id(&self) -> Option<&[u8]> {
        match self {
            Identity::BuildId { id, len } => id.get(..usize::from(*len)),
            _ => None,
        }
    }
}

/// A file (or kernel, module, vdso, anonymous memory) that was mapped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
    /// MMAP2's `flags` (`MAP_SHARED`, `MAP_HUGETLB`, …); 0 where there are none.
    pub flags: u32,
    /// What is mapped.
    pub name: &'a [u8],
    /// Which of that name.
    pub identity: Identity,
}

impl<'a> Mapping<'a> {
    /// Reads a MMAP or MMAP2 record; `None` for other kinds and for one too short.
    pub fn read(record: &Record<'a>, layouts: &Layouts) -> Option<Mapping<'a>> {
        let mmap = Mmap::of(record)?;
        let trailer = layouts.layout_of(record).map_or(0, |layout| usize::from(layout.trailer.size));
        let identity = match mmap_build_id(record, layouts) {
            Some(MmapBuildId::BuildId(bytes)) => {
                let mut id = [0; 20];
                id.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Identity::BuildId { id, len: bytes.len() as u8 }
            }
            _ => match mmap.file() {
                Some(Inode { major, minor, inode, generation }) if inode != 0 => {
                    Identity::Inode { major, minor, inode, generation }
                }
                _ => Identity::Unknown,
            },
        };
        Some(Mapping {
            pid: mmap.pid(),
            start: mmap.start(),
            len: mmap.len(),
            pgoff: mmap.pgoff(),
            flags: mmap.prot_and_flags().map_or(0, |(_, flags)| flags),
            name: mmap.name(trailer),
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

/// Mappings that may cover one another: a segment tree. Leaf n stands for the addresses from bound n up to the next one, an inner node for those of
/// both its children; a mapping is listed at the few nodes that together are its addresses. So only what lies over an address is looked at, and
/// of that only the newest in time, however many there are.
#[derive(Debug, Default)]
struct Maps {
    /// Where mappings begin or end, ascending.
    bounds: Vec<u64>,
    /// Oldest first.
    maps: Vec<Map>,
    /// The mappings of node n, oldest first: `listed[first[n]..first[n + 1]]`, as positions in `maps`. Node 1 is the root, 2n and 2n + 1 are
    /// the children of n, and leaf n is node `bounds.len()` + n.
    first: Vec<usize>,
    listed: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Map {
    start: u64,
    end: u64,
    time: u64,
    hit: Hit,
}

impl Maps {
    /// Of mappings in the order they were made.
    fn new(maps: Vec<Map>) -> Maps {
        let mut bounds: Vec<u64> = maps.iter().flat_map(|map| [map.start, map.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let leaf = |bound| bounds.len() + bounds.partition_point(|&other| other < bound);
        let nodes = |map: &Map| {
            let (mut from, mut until) = (leaf(map.start), leaf(map.end));
            let mut nodes = Vec::new();
            while from < until {
                if from % 2 == 1 {
                    nodes.push(from);
                    from += 1;
                }
                if until % 2 == 1 {
                    until -= 1;
                    nodes.push(until);
                }
                (from, until) = (from / 2, until / 2);
            }
            nodes
        };
        let mut counts = vec![0_usize; 2 * bounds.len() + 1];
        for node in maps.iter().flat_map(nodes) {
            counts[node + 1] += 1;
        }
        let first: Vec<usize> = counts
            .iter()
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            })
            .collect();
        let mut next = first.clone();
        let mut listed = vec![0; first.last().copied().unwrap_or(0)];
        for (number, map) in maps.iter().enumerate() {
            for node in nodes(map) {
                listed[next[node]] = number as u32;
                next[node] += 1;
            }
        }
        Maps { bounds, maps, first, listed }
    }

    /// The newest mapping over `address` that is not newer than `time`.
    fn find(&self, address: u64, time: u64) -> Option<&Map> {
        let leaf = self.bounds.partition_point(|&bound| bound <= address).checked_sub(1)?;
        let mut node = self.bounds.len() + leaf;
        let mut newest = None;
        while node > 0 {
            let listed = &self.listed[self.first[node]..self.first[node + 1]];
            let old = listed.partition_point(|&map| self.maps[map as usize].time <= time);
            newest = newest.max(old.checked_sub(1).map(|last| listed[last]));
            node /= 2;
        }
        newest.map(|map| &self.maps[map as usize])
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
            for change in changes {
                if timeline.changes.last() != Some(&change.time) {
                    timeline.changes.push(change.time);
                }
                let parent = match change.what {
                    What::Map { start, end, hit } => {
                        let inside =
                            [start, end].into_iter().filter(|bound| bound.trailing_zeros() < PAGE_BITS);
                        all.split_pages.extend(inside.map(|bound| bound >> PAGE_BITS));
                        maps.push(Map { start, end, time: change.time, hit });
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
