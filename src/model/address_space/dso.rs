//! Describes what an MMAP record maps, and into which address space.

use perfx_format::decode::{MmapBuildId, mmap_build_id};
use perfx_format::{Inode, KERNEL_PID, Layouts, Mmap, Record};

/// The pid of a kernel's address space.
pub const KERNEL: u32 = KERNEL_PID;

/// perf's name for a thread without a COMM record: `swapper` for the idle thread of each CPU, tid 0
/// (`perf_session__register_idle_thread`), and the tid for others, as in `:131` (`thread__new`).
pub fn name_of_nameless(tid: u32) -> Vec<u8> {
    match tid {
        0 => b"swapper".to_vec(),
        tid => format!(":{}", tid as i32).into_bytes(),
    }
}

/// The machine of an address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Machine {
    /// The recorded machine.
    #[default]
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

    /// The pid of the process that runs this guest; `None` for the host.
    pub fn guest(self) -> Option<u32> {
        match self {
            Machine::Host => None,
            Machine::Guest(pid) => Some(pid),
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
    /// Build-id of an MMAP2: the first `len` of 20 bytes.
    BuildId {
        /// The id, padded with zeros.
        id: [u8; 20],
        /// The length, 1 to 20.
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
    /// True if it is mapped into a kernel.
    pub kernel: bool,
    /// The name in the MMAP record.
    pub name: Box<[u8]>,
    /// Distinguishes it from other files of that name.
    pub identity: Identity,
}

impl Dso {
    /// True if its mappings contain its build-id.
    pub fn tells_id(&self) -> bool {
        matches!(self.identity, Identity::BuildId { .. })
    }
}

/// An MMAP or MMAP2 record.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// The process, or [`KERNEL`].
    pub pid: u32,
    /// True if the kernel is mapped here, whatever the pid.
    pub kernel: bool,
    /// Start address.
    pub start: u64,
    /// Length, bytes.
    pub len: u64,
    /// Offset in the file of the first byte. For a kernel: the address of the symbol at the end of the name
    /// (`[kernel.kallsyms]_text`).
    pub pgoff: u64,
    /// `flags` of an MMAP2 (`MAP_SHARED`, `MAP_HUGETLB`, …); 0 if there are none.
    pub flags: u32,
    /// True if the mapping may contain code.
    pub is_code: bool,
    /// The name of the mapped file.
    pub name: &'a [u8],
    /// Distinguishes it from other files of that name.
    pub identity: Identity,
}

impl<'a> Mapping<'a> {
    /// Reads an MMAP or MMAP2 record; `None` for other kinds, and for a record that is too short.
    pub fn read(record: &Record<'a>, layouts: &Layouts) -> Option<Mapping<'a>> {
        let mmap = Mmap::of(record)?;
        let name = mmap.name(layouts.trailer_size(record));
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
            kernel: mmap.is_of_kernel(),
            start: mmap.start(),
            len: mmap.len(),
            pgoff: mmap.pgoff(),
            flags: mmap.prot_and_flags().map_or(0, |(_, flags)| flags),
            is_code: mmap.may_be_code(),
            name,
            identity,
        })
    }

    /// The DSO that the record maps.
    pub fn dso(&self, machine: Machine) -> Dso {
        Dso { machine, kernel: self.kernel, name: self.name.into(), identity: self.identity }
    }
}

/// The smallest page size, as a power of two.
pub(super) const PAGE_BITS: u32 = 12;
