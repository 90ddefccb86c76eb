//! Collects the records that change an address space, in the order in which they are read.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::{COMM_EXEC, Kinds, Layouts, OrderKey, Record, RecordType, Task, named_pid};

use super::dso::{Dso, Identity, KERNEL, Key, Machine, Mapping, Space};
use super::map::{Hit, Map};

/// Changes of address spaces, collected in file order;
/// [`AddressSpaces::new`](super::AddressSpaces::new) sorts them by time.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub(super) maps: Vec<(Key, Map)>,
    pub(super) begins: Vec<Begin>,
    pub(super) dsos: Dsos,
}

/// DSOs in the order in which they were first mapped, with the flags of that mapping.
#[derive(Clone, Debug, Default)]
pub(super) struct Dsos {
    pub(super) list: Vec<(Dso, u32)>,
    pub(super) numbers: HashTable<u32>,
    pub(super) hasher: RandomState,
}

impl Dsos {
    /// The number of a DSO, which is added if it is new.
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

impl Changes {
    /// The kinds of records that change an address space.
    pub fn kinds() -> Kinds {
        Kinds::SPACES
    }

    /// Adds a record of these kinds, or KSYMBOL: code that the kernel made becomes a DSO with the symbol's
    /// name. Returns the number of the mapped DSO within these changes. `machine` is that of the record.
    pub fn add(&mut self, record: &Record<'_>, layouts: &Layouts, machine: Machine) -> Option<u32> {
        let key = OrderKey::of(record, layouts.layout_of(record), layouts);
        match record.kind() {
            RecordType::FORK => {
                let Task { pid, ppid, time: own, .. } = Task::of(record)?;
                if pid != ppid {
                    // FORK has a time field of its own, even without a trailer.
                    self.begin(
                        Space { machine, pid },
                        if layouts.has_time() { OrderKey::at(own) } else { key },
                        ppid,
                    );
                }
                None
            }
            RecordType::COMM => {
                if record.misc() & COMM_EXEC != 0 {
                    self.begin(Space { machine, pid: named_pid(record)? }, key, KERNEL);
                }
                None
            }
            RecordType::KSYMBOL => {
                let symbol = Ksymbol::of(record).filter(|symbol| !symbol.is_gone())?;
                let name = symbol.name.into();
                let dso = Dso { machine, kernel: true, name, identity: Identity::Unknown };
                let kernel = Space { machine, pid: KERNEL };
                Some(self.map(key, kernel, symbol.address, symbol.length.into(), dso, 0))
            }
            _ => {
                let mapping = Mapping::read(record, layouts)?;
                let dso = mapping.dso(machine);
                let pid = if dso.kernel { KERNEL } else { mapping.pid };
                Some(self.map(key, Space { machine, pid }, mapping.start, mapping.len, dso, mapping.flags))
            }
        }
    }

    /// A space starts over with its parent's mappings, or empty if the parent is [`KERNEL`].
    pub(super) fn begin(&mut self, space: Space, at: OrderKey, parent: u32) {
        self.begins.push(Begin { at, key: space.key(), parent, mapping: self.maps.len() as u32 });
    }

    pub(super) fn map(
        &mut self,
        at: OrderKey,
        space: Space,
        start: u64,
        len: u64,
        dso: Dso,
        flags: u32,
    ) -> u32 {
        let number = self.dsos.number(dso, flags);
        let hit = Hit { dso: number, mapping: self.maps.len() as u32 };
        self.maps.push((space.key(), Map { start, end: start.saturating_add(len), at, hit }));
        number
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) at: OrderKey,
    pub(super) key: Key,
    /// [`KERNEL`] for an exec.
    pub(super) parent: u32,
    /// The number of mappings before it in the file.
    pub(super) mapping: u32,
}
