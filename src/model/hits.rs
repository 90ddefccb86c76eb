//! Which mappings samples hit, by every address they hold, and which more may be needed to unwind or decode them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::address_space::{AddressSpaces, Changes, Hit, KERNEL, Lookup, Space, moment};
use crate::guests::Guests;
use perfx_format::record::cpumode::{GUEST_USER, USER};
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{Branches, Sample, U64s, callchain, frames};
use perfx_format::{Kinds, Layout, Layouts, Origin, Record, RecordType, Task, named_pid, sample_type as st};

/// Where a DSO is first mapped or hit, and the sample_id trailer of that moment.
#[derive(Clone, Debug)]
pub struct Spot {
    /// The record that maps or hits it.
    pub origin: Origin,
    /// The fields of the sample_id, as they stand in a trailer.
    pub trailer: Box<[u8]>,
    /// A process that has it mapped.
    pub pid: Option<u32>,
}

impl Spot {
    /// Of a MMAP or MMAP2 record: the trailer is its own.
    pub fn of_mapping(record: &Record<'_>, layouts: &Layouts) -> Spot {
        let trailer = layouts.layout_of(record).and_then(|layout| {
            let bytes = record.bytes();
            bytes.get(bytes.len().checked_sub(layout.trailer.size.into())?..)
        });
        Spot {
            origin: record.origin(),
            trailer: trailer.unwrap_or_default().into(),
            pid: named_pid(record).filter(|&pid| pid != KERNEL),
        }
    }
}

/// What a recording maps, collected in file order, for the look at its samples.
///
/// An exec changes nothing here: readers of a recording know the old image's mappings until new ones cover them, and while an exec is under way
/// the chains of samples are still the old image's.
#[derive(Debug, Default)]
pub struct Mapped {
    changes: Changes,
    guests: Guests,
    /// Where each DSO is first mapped.
    spots: Vec<Spot>,
    /// Samples hold AUX data, or AUXTRACE records do. What these hit is known only once they are decoded.
    aux: bool,
    /// By the number of the mapping: whose it is and what it maps. Only where user stacks are sampled.
    owners: Vec<(Space, u32)>,
    /// Forks, child and parent. Only where user stacks are sampled.
    forks: Vec<(Space, Space)>,
}

impl Mapped {
    /// The kinds it wants to see.
    pub fn kinds() -> Kinds {
        Kinds::of(&[
            RecordType::MMAP,
            RecordType::MMAP2,
            RecordType::FORK,
            RecordType::ID_INDEX,
            RecordType::AUXTRACE_INFO,
            RecordType::AUXTRACE,
        ])
    }

    /// Takes in a record of these kinds.
    pub fn learn(&mut self, record: &Record<'_>, layouts: &Layouts) {
        self.aux |= layouts.any_samples(st::AUX);
        match record.kind() {
            RecordType::ID_INDEX => self.guests.learn(record),
            RecordType::AUXTRACE_INFO | RecordType::AUXTRACE => self.aux = true,
            _ => {
                let Some(pid) = named_pid(record) else { return };
                let machine = self.guests.machine(record, layouts, Some(pid));
                let dso = self.changes.add(record, layouts, machine);
                if dso.is_some_and(|dso| dso as usize == self.spots.len()) {
                    self.spots.push(Spot::of_mapping(record, layouts));
                }
                if layouts.any_samples(st::STACK_USER) {
                    let space = |pid| Space { machine, pid };
                    let fork = Task::of(record).filter(|fork| fork.pid != fork.ppid);
                    self.forks.extend(fork.map(|fork| (space(fork.pid), space(fork.ppid))));
                    self.owners.extend(dso.map(|dso| (space(pid), dso)));
                }
            }
        }
    }

    /// The recording holds AUX data.
    pub fn has_aux(&self) -> bool {
        self.aux
    }

    /// All has been seen: where each DSO is first mapped, and what the look at samples begins with.
    pub fn into_hits(self) -> (Vec<Spot>, Hits) {
        let Mapped { changes, guests, spots, owners, mut forks, .. } = self;
        forks.sort_unstable();
        forks.dedup();
        let processes = Arc::new(Processes { owners, forks });
        (spots, Hits::new(Arc::new(AddressSpaces::new(changes)), Arc::new(guests), processes))
    }
}

/// Who mapped what, and who forked whom.
#[derive(Debug)]
struct Processes {
    /// By the number of the mapping.
    owners: Vec<(Space, u32)>,
    /// Child and parent, sorted.
    forks: Vec<(Space, Space)>,
}

impl Processes {
    /// Numbers of all mappings, and their DSOs, that these processes ever had: their own and what they may have from the processes they were
    /// forked from.
    fn mappings_of(&self, processes: &HashSet<Space>) -> impl Iterator<Item = (usize, u32)> {
        let mut all = processes.clone();
        let mut next: Vec<Space> = processes.iter().copied().collect();
        while let Some(child) = next.pop() {
            let from = self.forks.partition_point(|&(other, _)| other < child);
            let parents = self.forks[from..].iter().take_while(|&&(other, _)| other == child);
            next.extend(parents.map(|&(_, parent)| parent).filter(|&parent| all.insert(parent)));
        }
        let owners = self.owners.iter().enumerate();
        owners.filter(move |(_, (space, _))| all.contains(space)).map(|(mapping, &(_, dso))| (mapping, dso))
    }
}

/// What samples hit. A worker's hits are joined in file order.
#[derive(Debug)]
pub struct Hits {
    lookup: Lookup,
    guests: Arc<Guests>,
    /// By the number of the DSO.
    dsos: Vec<bool>,
    /// By the number of the mapping.
    mappings: Vec<bool>,
    /// The first sample that hits each DSO, in file order.
    first: Vec<(u32, Spot)>,
    processes: Arc<Processes>,
    /// Processes whose user stacks samples hold: a reader unwinds these with all that the process had mapped.
    unwound: HashSet<Space>,
}

impl Hits {
    /// Nothing hit yet.
    fn new(spaces: Arc<AddressSpaces>, guests: Arc<Guests>, processes: Arc<Processes>) -> Hits {
        Hits {
            dsos: vec![false; spaces.dsos().len()],
            lookup: Lookup::new(spaces),
            guests,
            mappings: Vec::new(),
            first: Vec::new(),
            processes,
            unwound: HashSet::new(),
        }
    }

    /// The kinds it wants to see.
    pub fn kinds() -> Kinds {
        Kinds::of(&[RecordType::SAMPLE, RecordType::CALLCHAIN_DEFERRED])
    }

    /// For one batch.
    pub fn fork(&self) -> Hits {
        Hits::new(self.lookup.spaces().clone(), self.guests.clone(), self.processes.clone())
    }

    /// Takes in the hits of a batch that follows.
    pub fn absorb(&mut self, later: Hits) {
        for (dso, spot) in later.first {
            if !std::mem::replace(&mut self.dsos[dso as usize], true) {
                self.first.push((dso, spot));
            }
        }
        if self.mappings.len() < later.mappings.len() {
            self.mappings.resize(later.mappings.len(), false);
        }
        self.mappings.iter_mut().zip(later.mappings).for_each(|(hit, later)| *hit |= later);
        self.unwound.extend(later.unwound);
    }

    /// The address spaces.
    pub fn spaces(&self) -> &Arc<AddressSpaces> {
        self.lookup.spaces()
    }

    /// DSOs with the first sample that hit them, in file order.
    pub fn take_first(&mut self) -> Vec<(u32, Spot)> {
        std::mem::take(&mut self.first)
    }

    /// Whether samples need a mapping, by its number: they hit it, or hold a stack that is unwound with it. Those behind the end are not needed.
    pub fn needed_mappings(&self) -> Vec<bool> {
        let mut needed = self.mappings.clone();
        for (mapping, _) in self.processes.mappings_of(&self.unwound) {
            mark(&mut needed, mapping);
        }
        needed
    }

    /// Of how many processes samples hold user stacks.
    pub fn unwound(&self) -> u64 {
        self.unwound.len() as u64
    }

    /// DSOs that no address of a sample hits, but that a user stack may, in ascending order.
    pub fn unwound_dsos(&self) -> BTreeSet<u32> {
        let dsos = self.processes.mappings_of(&self.unwound).map(|(_, dso)| dso);
        dsos.filter(|&dso| !self.dsos[dso as usize]).collect()
    }

    /// A SAMPLE or CALLCHAIN_DEFERRED record.
    pub fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let Some(layout) = layouts.layout_of(record) else { return };
        let pid = layout.pid_tid(record).map(|(pid, _)| pid);
        let at = At { record, layouts, layout, pid, time: moment(record, Some(layout), layouts) };
        if record.kind() == RecordType::CALLCHAIN_DEFERRED {
            if let Some(deferred) = CallchainDeferred::of(record) {
                self.chain(&at, deferred.ips, USER);
            }
            return;
        }
        if let Some(ip) = layout.ip(record) {
            self.hit(&at, record.cpumode(), ip);
        }
        if let Some(chain) = callchain(record, layout) {
            self.chain(&at, chain, record.cpumode());
        }
        if let Some(addr) = layout.sample.addr.and_then(|field| record.u64(field.into())) {
            self.touch(&at, addr);
        }
        if layout.sample_type & (st::BRANCH_STACK | st::STACK_USER) != 0 {
            let Ok(sample) = Sample::parse(record, layout) else { return };
            for branch in sample.branches.iter().flat_map(Branches::iter) {
                self.touch(&at, branch.from);
                self.touch(&at, branch.to);
            }
            if sample.stack_user.is_some_and(|stack| stack.dyn_size.is_some()) {
                self.unwound.extend(self.guests.space(record, layouts, pid, at.user()));
            }
        }
    }

    /// An address that is shown with its DSO, but is not run: it makes the mapping worth keeping, but no DSO worth symbolizing. Only the address
    /// itself says whether it is the kernel's, whose mappings all stay.
    fn touch(&mut self, at: &At<'_, '_>, address: u64) {
        if let Some(hit) = self.find(at, at.user(), address) {
            mark(&mut self.mappings, hit.mapping as usize);
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
        mark(&mut self.mappings, hit.mapping as usize);
        if !self.dsos[hit.dso as usize] {
            self.dsos[hit.dso as usize] = true;
            let trailer = at.layout.trailer_of_sample(at.record).into();
            self.first.push((hit.dso, Spot { origin: at.record.origin(), trailer, pid: at.pid }));
        }
    }

    #[inline(always)]
    fn find(&mut self, at: &At<'_, '_>, cpumode: u16, address: u64) -> Option<Hit> {
        let space = self.guests.space(at.record, at.layouts, at.pid, cpumode)?;
        self.lookup.find(space, address, at.time)
    }
}

#[inline]
fn mark(mappings: &mut Vec<bool>, mapping: usize) {
    if mappings.len() <= mapping {
        mappings.resize(mapping + 1, false);
    }
    mappings[mapping] = true;
}

/// The sample being looked at.
struct At<'r, 'a> {
    record: &'r Record<'a>,
    layouts: &'r Layouts,
    layout: &'r Layout,
    pid: Option<u32>,
    time: u64,
}

impl At<'_, '_> {
    /// The cpumode of the sampled process's own code.
    fn user(&self) -> u16 {
        if self.record.is_of_guest() { GUEST_USER } else { USER }
    }
}
