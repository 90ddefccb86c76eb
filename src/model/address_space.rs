//! Finds which DSO an address of a process belonged to at a time, in any order and from many threads, without
//! sorting the samples.
//!
//! Only the records that change an address space must be in time order, and they are few: [`Changes`]
//! collects them, and [`AddressSpaces`] sorts them.

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

/// perf's name for a thread that no COMM names: `swapper` for the idle thread of each CPU, tid 0
/// (`perf_session__register_idle_thread`), and the tid for others, as in `:131` (`thread__new`).
pub fn name_of_nameless(tid: u32) -> Vec<u8> {
    match tid {
        0 => b"swapper".to_vec(),
        tid => format!(":{}", tid as i32).into_bytes(),
    }
}

/// The machine of an address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Machine {
    /// The recorded machine.
    Host,
    /// A guest of that machine: the pid of the process that runs it, 0 if unknown.
    Guest(u32),
}

impl Machine {
    /// The machine as in HEADER_BUILD_ID's `pid`: -1 for the host, else the guest's pid.
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
    /// The machine.
    pub machine: Machine,
    /// The process, or [`KERNEL`].
    pub pid: u32,
}

/// A space in 8 bytes: 0 for the host or 1 + the pid that runs the guest, then the pid.
pub type Key = u64;

impl Space {
    /// Encodes the space in 8 bytes.
    pub fn key(self) -> Key {
        let machine = match self.machine {
            Machine::Host => 0,
            // Saturation is harmless: the highest pid is the kernel's, which runs no guest.
            Machine::Guest(pid) => pid.saturating_add(1),
        };
        Key::from(machine) << 32 | Key::from(self.pid)
    }

    /// Decodes a key.
    pub fn of_key(key: Key) -> Space {
        let machine = ((key >> 32) as u32).checked_sub(1).map_or(Machine::Host, Machine::Guest);
        Space { machine, pid: key as u32 }
    }
}

/// Distinguishes two files of the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Identity {
    /// MMAP has only the name.
    Unknown,
    /// Device and inode of an MMAP2.
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
    /// Build-id of an MMAP2: 20 bytes, of which the first `len` count.
    BuildId {
        /// The id, padded with zeros.
        id: [u8; 20],
        /// 1 to 20.
        len: u8,
    },
    /// A `[vdso]` without other identity, mapped below 4 GiB: only 32-bit processes have it there.
    Below4GiB,
}

impl Identity {
    /// The build-id, if the identity is one.
    pub fn build_id(&self) -> Option<&[u8]> {
        match self {
            Identity::BuildId { id, len } => id.get(..usize::from(*len)),
            _ => None,
        }
    }
}

/// A mapped file (or kernel, module, vdso, anonymous memory).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Dso {
    /// The machine that mapped it.
    pub machine: Machine,
    /// It is mapped into a kernel.
    pub kernel: bool,
    /// The name in the MMAP record.
    pub name: Box<[u8]>,
    /// Distinguishes it from other files of that name.
    pub identity: Identity,
}

impl Dso {
    /// True if its mappings carry its build-id.
    pub fn tells_id(&self) -> bool {
        matches!(self.identity, Identity::BuildId { .. })
    }
}

/// An MMAP or MMAP2 record.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// Process, or [`KERNEL`].
    pub pid: u32,
    /// Start address.
    pub start: u64,
    /// Length, bytes.
    pub len: u64,
    /// Offset in the file of the first byte. For a kernel: the address of the symbol at the end of the name
    /// (`[kernel.kallsyms]_text`).
    pub pgoff: u64,
    /// `flags` of an MMAP2 (`MAP_SHARED`, `MAP_HUGETLB`, …); 0 if there are none.
    pub flags: u32,
    /// The name of the mapped file.
    pub name: &'a [u8],
    /// Distinguishes it from other files of that name.
    pub identity: Identity,
}

impl<'a> Mapping<'a> {
    /// Reads an MMAP or MMAP2 record; `None` for other kinds, and for a record that is too short.
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

    /// The DSO that the record maps.
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

/// DSOs in the order in which they were first mapped, each once, with the flags of that mapping.
#[derive(Clone, Debug, Default)]
struct Dsos {
    list: Vec<(Dso, u32)>,
    /// Their numbers, by hash.
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Dsos {
    /// The number of a DSO. Adds it to the list if it is new.
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

/// The mapping at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The DSO, as an index into [`AddressSpaces::dsos`].
    pub dso: u32,
    /// The MMAP or MMAP2 record, counted from 0 in the order of collection.
    pub mapping: u32,
}

/// The time of a record, for ordering address spaces: its time by `layout`, or its place in the file if no
/// event records the time.
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
    /// The kinds of records that change an address space.
    pub fn kinds() -> Kinds {
        Kinds::of(&[RecordType::MMAP, RecordType::MMAP2, RecordType::FORK, RecordType::COMM])
    }

    /// Takes in a record of these kinds. Also accepts KSYMBOL: code that the kernel made at run time becomes
    /// a DSO with the symbol's name. Returns the number of the mapped DSO within these changes. `machine` is
    /// the machine of the record.
    pub fn add(&mut self, record: &Record<'_>, layouts: &Layouts, machine: Machine) -> Option<u32> {
        let time = moment(record, layouts.layout_of(record), layouts);
        match record.kind() {
            RecordType::FORK => {
                let Task { pid, ppid, time: own, .. } = Task::of(record)?;
                if pid != ppid {
                    // FORK has a time field of its own, even without a trailer.
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

    /// A space starts over with its parent's mappings, or empty if the parent is [`KERNEL`].
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

/// The smallest page size, as a power of two.
const PAGE_BITS: u32 = 12;

/// Looks up addresses in one set of address spaces, with a cache: samples hit the same pages again and again.
#[derive(Debug)]
pub struct Lookup {
    spaces: Arc<AddressSpaces>,
    pages: Box<[Page]>,
}

/// The cached result for a page of an address space between two changes.
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
    /// Starts with an empty cache.
    pub fn new(spaces: Arc<AddressSpaces>) -> Lookup {
        let space = Space { machine: Machine::Host, pid: 0 };
        // `from` above `until` matches no time.
        let empty = Page { space, page: 0, from: 1, until: 0, hit: None };
        Lookup { spaces, pages: vec![empty; PAGES].into() }
    }

    /// The address spaces that it searches.
    pub fn spaces(&self) -> &Arc<AddressSpaces> {
        &self.spaces
    }

    /// The mapping at `address` of a space at `time`.
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
