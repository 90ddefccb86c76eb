//! Which DSO an address of a process belonged to at a time, answered in any order and from many threads, without sorting a single sample.
//!
//! Only the records that change an address space need time order, and they are few: [`Changes`] collects them, and [`AddressSpaces`] puts them in
//! order.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashTable;
use map::Map;
pub use spans::AddressSpaces;
use spans::Begin;

mod map;
mod newest;
mod spans;

use perfx_format::decode::{MmapBuildId, mmap_build_id};
use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::{Inode, Kinds, Layout, Layouts, Mmap, Record, RecordType, Task, named_pid};

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

/// A space in 8 bytes: 0 for the host or 1 more than the pid that runs the guest, then the pid.
pub type Key = u64;

impl Space {
    /// It in 8 bytes.
    pub fn key(self) -> Key {
        let machine = match self.machine {
            Machine::Host => 0,
            // The kernel's pid, which is the highest, runs no guest.
            Machine::Guest(pid) => pid.saturating_add(1),
        };
        Key::from(machine) << 32 | Key::from(self.pid)
    }

    /// The space of a key.
    pub fn of_key(key: Key) -> Space {
        let machine = ((key >> 32) as u32).checked_sub(1).map_or(Machine::Host, Machine::Guest);
        Space { machine, pid: key as u32 }
    }
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
    /// Of a `[vdso]` that says nothing but its name: it lies below 4 GiB, where only 32-bit processes have it.
    Below4GiB,
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
        let name = mmap.name(trailer);
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
                _ if name == b"[vdso]" && mmap.start() < 1 << 32 => Identity::Below4GiB,
                _ => Identity::Unknown,
            },
        };
        Some(Mapping {
            pid: mmap.pid(),
            start: mmap.start(),
            len: mmap.len(),
            pgoff: mmap.pgoff(),
            flags: mmap.prot_and_flags().map_or(0, |(_, flags)| flags),
            name,
            identity,
        })
    }

    /// What the record maps.
    pub fn dso(&self, record: &Record<'_>, machine: Machine) -> Dso {
        let kernel = self.pid == KERNEL || record.is_of_kernel();
        Dso { machine, kernel, name: self.name.into(), identity: self.identity }
    }
}

/// Changes of address spaces, collected in file order; [`AddressSpaces::new`] sorts them by time.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Mappings, each with its space.
    maps: Vec<(Key, Map)>,
    /// Forks and execs.
    begins: Vec<Begin>,
    dsos: Dsos,
}

/// DSOs in the order they were first mapped, each once, with the flags of that mapping.
#[derive(Clone, Debug, Default)]
struct Dsos {
    list: Vec<(Dso, u32)>,
    /// Their numbers, by the hash of the DSO.
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Dsos {
    /// The number of a DSO, which joins the list if it is not there.
    fn number(&mut self, dso: Dso, flags: u32) -> u32 {
        let Dsos { list, numbers, hasher } = self;
        let next = list.len() as u32;
        let known = numbers.entry(
            hasher.hash_one(&dso),
            |&number| list[number as usize].0 == dso,
            |&number| hasher.hash_one(&list[number as usize].0),
        );
        let number = *known.or_insert(next).get();
        if number == next {
            list.push((dso, flags));
        }
        number
    }
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
                let Task { pid, ppid, time: own, .. } = Task::of(record)?;
                if pid != ppid {
                    // Its own time field is there even without a trailer.
                    self.begin(Space { machine, pid }, if layouts.has_time() { own } else { time }, ppid);
                }
                None
            }
            RecordType::COMM => {
                if record.misc() & COMM_EXEC != 0 {
                    self.begin(Space { machine, pid: named_pid(record)? }, time, KERNEL);
                }
                None
            }
            RecordType::KSYMBOL => {
                let symbol = Ksymbol::of(record).filter(|symbol| !symbol.is_gone())?;
                let name = symbol.name.into();
                let dso = Dso { machine, kernel: true, name, identity: Identity::Unknown };
                let kernel = Space { machine, pid: KERNEL };
                Some(self.map(time, kernel, symbol.address, symbol.length.into(), dso, 0))
            }
            _ => {
                let mapping = Mapping::read(record, layouts)?;
                let dso = mapping.dso(record, machine);
                let pid = if dso.kernel { KERNEL } else { mapping.pid };
                Some(self.map(time, Space { machine, pid }, mapping.start, mapping.len, dso, mapping.flags))
            }
        }
    }

    /// A space begins anew, with what its parent has mapped, unless that is [`KERNEL`].
    fn begin(&mut self, space: Space, time: u64, parent: u32) {
        self.begins.push(Begin { time, key: space.key(), parent, mapping: self.maps.len() as u32 });
    }

    fn map(&mut self, time: u64, space: Space, start: u64, len: u64, dso: Dso, flags: u32) -> u32 {
        let number = self.dsos.number(dso, flags);
        let hit = Hit { dso: number, mapping: self.maps.len() as u32 };
        self.maps.push((space.key(), Map { start, end: start.saturating_add(len), time, hit }));
        number
    }
}

/// The smallest page, in bits.
const PAGE_BITS: u32 = 12;

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
        let (hit, Range { start: from, end: until }) = self.spaces.find(space, address, time);
        let page = address >> PAGE_BITS;
        if !self.spaces.splits(page) {
            self.pages[slot] = Page { space, page, from, until, hit };
        }
        hit
    }
}
