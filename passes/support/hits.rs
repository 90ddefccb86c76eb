//! Which mappings samples hit: by their instruction pointer, by every entry of their call chain, and, for data mappings, by their address.

use std::collections::HashMap;
use std::sync::Arc;

use perfx_format::sample::{U64s, callchain, frames};
use perfx_format::{Kinds, Layout, Layouts, Origin, Record, RecordType};
use perfx_pipeline::address_space::{AddressSpaces, Hit, KERNEL, Lookup, Machine, Space, moment};

/// Which events are those of a guest: the ids to which an ID_INDEX record gives a `machine_pid`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests {
    machines: HashMap<u64, u32>,
}

impl Guests {
    /// Takes in an ID_INDEX record: u64 number of entries, `{id, idx, cpu, tid}` for each, and where there is room `{machine_pid, vcpu}`.
    pub(crate) fn learn(&mut self, record: &Record<'_>) {
        let Some(count) = record.u64(8).and_then(|count| usize::try_from(count).ok()) else { return };
        let Some(body) = record.bytes().get(16..) else { return };
        if count.checked_mul(48).is_none_or(|needed| needed > body.len()) {
            return;
        }
        let (ids, machines) = body.split_at(count * 32);
        for (id, machine) in ids.chunks_exact(32).zip(machines.chunks_exact(16)) {
            let endian = record.endian();
            if let (Some(id), Some(pid)) = (endian.u64(id, 0), endian.u64(machine, 0).filter(|&pid| pid != 0))
            {
                self.machines.insert(id, pid as u32);
            }
        }
    }

    /// Takes in what another learned from later records.
    pub(crate) fn join(&mut self, later: Guests) {
        self.machines.extend(later.machines);
    }

    /// The machine on which a record happened; `pid` is the process it is about.
    pub(crate) fn machine(&self, record: &Record<'_>, layouts: &Layouts, pid: Option<u32>) -> Machine {
        if matches!(record.cpumode(), 4 | 5) { self.guest(record, layouts, pid) } else { Machine::Host }
    }

    /// The guest of a record: by its event id, else, as `perf kvm` records it, by the process that runs the guest.
    fn guest(&self, record: &Record<'_>, layouts: &Layouts, pid: Option<u32>) -> Machine {
        let id = layouts.layout_of(record).and_then(|layout| layout.id(record));
        let pid = id.and_then(|id| self.machines.get(&id).copied()).or(pid);
        Machine::Guest(pid.filter(|&pid| pid != KERNEL).unwrap_or(0))
    }
}

/// Where a DSO is first mapped or hit, and the sample_id trailer of that moment.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) origin: Origin,
    pub(crate) trailer: Vec<u8>,
    /// A process that has it mapped.
    pub(crate) pid: Option<u32>,
}

impl Spot {
    /// Of a MMAP or MMAP2 record: the trailer is its own.
    pub(crate) fn of_mapping(record: &Record<'_>, layouts: &Layouts) -> Spot {
        let trailer = layouts.layout_of(record).and_then(|layout| {
            let bytes = record.bytes();
            bytes.get(bytes.len().checked_sub(layout.trailer.size.into())?..)
        });
        Spot {
            origin: record.origin(),
            trailer: trailer.unwrap_or_default().to_vec(),
            pid: record.u32(8).filter(|&pid| pid != KERNEL),
        }
    }
}

/// What samples hit. A worker's hits are joined in file order.
#[derive(Debug)]
pub(crate) struct Hits {
    lookup: Lookup,
    guests: Arc<Guests>,
    /// By the number of the DSO.
    dsos: Vec<bool>,
    /// By the number of the mapping.
    mappings: Vec<bool>,
    /// The first sample that hits each DSO, in file order.
    first: Vec<(u32, Spot)>,
}

impl Hits {
    /// Nothing hit yet.
    pub(crate) fn new(spaces: Arc<AddressSpaces>, guests: Arc<Guests>) -> Hits {
        let dsos = vec![false; spaces.dsos().len()];
        Hits { lookup: Lookup::new(spaces), guests, dsos, mappings: Vec::new(), first: Vec::new() }
    }

    /// The kinds it wants to see.
    pub(crate) fn kinds() -> Kinds {
        Kinds::of(&[RecordType::SAMPLE, RecordType::CALLCHAIN_DEFERRED])
    }

    /// For one batch.
    pub(crate) fn fork(&self) -> Hits {
        Hits::new(self.lookup.spaces().clone(), self.guests.clone())
    }

    /// Takes in the hits of a batch that follows.
    pub(crate) fn join(&mut self, later: Hits) {
        for (dso, spot) in later.first {
            if !std::mem::replace(&mut self.dsos[dso as usize], true) {
                self.first.push((dso, spot));
            }
        }
        if self.mappings.len() < later.mappings.len() {
            self.mappings.resize(later.mappings.len(), false);
        }
        self.mappings.iter_mut().zip(later.mappings).for_each(|(hit, later)| *hit |= later);
    }

    /// The address spaces.
    pub(crate) fn spaces(&self) -> &Arc<AddressSpaces> {
        self.lookup.spaces()
    }

    /// DSOs with the first sample that hit them, in file order.
    pub(crate) fn first(&self) -> &[(u32, Spot)] {
        &self.first
    }

    /// By the number of the mapping; those behind the end were not hit.
    pub(crate) fn mappings(&self) -> &[bool] {
        &self.mappings
    }

    /// A SAMPLE or CALLCHAIN_DEFERRED record.
    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let Some(layout) = layouts.layout_of(record) else { return };
        let pid = layout.pid_tid(record).map(|(pid, _)| pid);
        let at = At { record, layouts, layout, pid, time: moment(record, Some(layout), layouts) };
        if record.kind() == RecordType::CALLCHAIN_DEFERRED {
            let count = usize::try_from(record.u64(16).unwrap_or(0)).unwrap_or(usize::MAX);
            let ips = record.bytes().get(24..).unwrap_or_default();
            let ips = ips.get(..count.saturating_mul(8)).unwrap_or_default();
            self.chain(&at, U64s::new(ips, record.endian()), USER);
            return;
        }
        if let Some(ip) = layout.ip(record) {
            self.hit(&at, record.cpumode(), ip);
        }
        if let Some(chain) = callchain(record, layout) {
            self.chain(&at, chain, record.cpumode());
        }
        if let Some(addr) = layout.sample.addr.and_then(|field| record.u64(field.into())) {
            // What is read or written there is data: it makes the mapping worth keeping, but no DSO worth symbolizing.
            if let Some(hit) = self.find(&at, record.cpumode(), addr) {
                self.mark(hit);
            }
        }
    }

    fn chain(&mut self, at: &At<'_, '_>, chain: U64s<'_>, cpumode: u16) {
        for (cpumode, ip) in frames(chain, cpumode) {
            self.hit(at, cpumode, ip);
        }
    }

    #[inline(always)]
    fn hit(&mut self, at: &At<'_, '_>, cpumode: u16, ip: u64) {
        let Some(hit) = self.find(at, cpumode, ip) else { return };
        self.mark(hit);
        if !self.dsos[hit.dso as usize] {
            self.dsos[hit.dso as usize] = true;
            let trailer = at.layout.trailer_of_sample(at.record);
            self.first.push((hit.dso, Spot { origin: at.record.origin(), trailer, pid: at.pid }));
        }
    }

    #[inline(always)]
    fn find(&mut self, at: &At<'_, '_>, cpumode: u16, address: u64) -> Option<Hit> {
        let (guest, kernel) = match cpumode {
            KERNEL_MODE => (false, true),
            USER => (false, false),
            GUEST_KERNEL => (true, true),
            GUEST_USER => (true, false),
            _ => return None,
        };
        let machine = if guest { self.guests.guest(at.record, at.layouts, at.pid) } else { Machine::Host };
        let pid = if kernel { KERNEL } else { at.pid? };
        self.lookup.find(Space { machine, pid }, address, at.time)
    }

    #[inline]
    fn mark(&mut self, hit: Hit) {
        let mapping = hit.mapping as usize;
        if self.mappings.len() <= mapping {
            self.mappings.resize(mapping + 1, false);
        }
        self.mappings[mapping] = true;
    }
}

/// The sample being looked at.
struct At<'r, 'a> {
    record: &'r Record<'a>,
    layouts: &'r Layouts,
    layout: &'r Layout,
    pid: Option<u32>,
    time: u64,
}

// PERF_RECORD_MISC_* of perf_event_open(2).
const KERNEL_MODE: u16 = 1;
const USER: u16 = 2;
const GUEST_KERNEL: u16 = 4;
const GUEST_USER: u16 = 5;
