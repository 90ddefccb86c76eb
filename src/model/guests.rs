//! Finds the guest of a record: by its event id, or by the process that runs the guest.

use std::collections::HashMap;

use perfx_format::record::cpumode::{GUEST_KERNEL, GUEST_USER, KERNEL as KERNEL_MODE, USER};
use perfx_format::record::id_index::{ANY, IdIndex};
use perfx_format::{Layouts, Record};

use crate::address_space::{KERNEL, Machine, Space};

/// The guests of events: the event ids to which an ID_INDEX record assigns a `machine_pid`.
#[derive(Clone, Debug, Default)]
pub struct Guests {
    machines: HashMap<u64, u32>,
    vcpus: HashMap<u64, u32>,
}

impl Guests {
    /// Adds an ID_INDEX record.
    pub fn learn(&mut self, record: &Record<'_>) {
        let entries = IdIndex::of(record).into_iter().flat_map(|index| index.entries());
        for entry in entries.filter(|entry| entry.machine_pid != 0) {
            self.machines.insert(entry.id, entry.machine_pid as u32);
            self.vcpus.extend((entry.vcpu != ANY).then_some((entry.id, entry.vcpu as u32)));
        }
    }

    /// Adds the contents of later records.
    pub fn absorb(&mut self, later: Guests) {
        self.machines.extend(later.machines);
        self.vcpus.extend(later.vcpus);
    }

    /// The CPU of a guest that the event with this id counts.
    pub fn vcpu(&self, id: u64) -> Option<u32> {
        self.vcpus.get(&id).copied()
    }

    /// The process that runs the guest of the event with this id, and the guest's CPU.
    pub fn cpu_of(&self, id: u64) -> Option<(u32, Option<u32>)> {
        self.machines.get(&id).map(|&pid| (pid, self.vcpu(id)))
    }

    /// The machine of a record; `pid` is the record's process.
    pub fn machine(&self, record: &Record<'_>, layouts: &Layouts, pid: Option<u32>) -> Machine {
        if record.is_of_guest() { self.guest(record, layouts, pid) } else { Machine::Host }
    }

    /// The address space of code with this cpumode in a sample of process `pid`. In a record of a guest,
    /// kernel and user code are the guest's.
    #[inline(always)]
    pub fn space(
        &self,
        record: &Record<'_>,
        layouts: &Layouts,
        pid: Option<u32>,
        cpumode: u16,
    ) -> Option<Space> {
        let (guest, kernel) = match record.level(cpumode) {
            KERNEL_MODE => (false, true),
            USER => (false, false),
            GUEST_KERNEL => (true, true),
            GUEST_USER => (true, false),
            _ => return None,
        };
        let machine = if guest { self.guest(record, layouts, pid) } else { Machine::Host };
        Some(Space { machine, pid: if kernel { KERNEL } else { pid? } })
    }

    /// The guest of a record: by its event id, or else (`perf kvm`) by the process that runs the guest.
    fn guest(&self, record: &Record<'_>, layouts: &Layouts, pid: Option<u32>) -> Machine {
        self.of_id(layouts.layout_of(record).and_then(|layout| layout.id(record)), pid)
    }

    /// The guest of an event id, or else that of process `pid`.
    pub fn of_id(&self, id: Option<u64>, pid: Option<u32>) -> Machine {
        let pid = id.and_then(|id| self.machines.get(&id).copied()).or(pid);
        Machine::Guest(pid.filter(|&pid| pid != KERNEL).unwrap_or(0))
    }
}
