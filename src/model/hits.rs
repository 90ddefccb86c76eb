//! Finds the mappings that samples hit with any address, and those needed to unwind or decode them.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::address_space::{AddressSpaces, Changes, Hit, KERNEL, Lookup, Space};
use crate::callers::Callers;
use crate::guests::Guests;
use perfx_format::record::cpumode::{GUEST_USER, USER};
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{Branches, Sample, U64s, callchain, frames};
use perfx_format::{
    Kinds, Layout, Layouts, OrderKey, Origin, Record, RecordType, Task, named_pid, sample_type as st,
};

/// The first record that maps or hits a DSO, with its sample_id trailer.
#[derive(Clone, Debug)]
pub struct FirstUse {
    /// Its position.
    pub origin: Origin,
    /// The fields of the sample_id, as in a trailer.
    pub trailer: Box<[u8]>,
    /// A process that has mapped it.
    pub pid: Option<u32>,
}

impl FirstUse {
    /// For an MMAP or MMAP2 record, with its own trailer.
    pub fn of_mapping(record: &Record<'_>, layouts: &Layouts) -> FirstUse {
        let trailer = layouts.layout_of(record).and_then(|layout| layout.trailer_of(record));
        FirstUse {
            origin: record.origin(),
            trailer: trailer.unwrap_or_default().into(),
            pid: named_pid(record).filter(|&pid| pid != KERNEL),
        }
    }
}

/// The mappings of a recording, collected in file order, for the survey of its samples.
///
/// An exec changes nothing here: readers keep the old image's mappings until new ones cover them, and during
/// an exec, call chains are still those of the old image.
#[derive(Debug, Default)]
pub struct Mapped {
    changes: Changes,
    guests: Guests,
    first_uses: Vec<FirstUse>,
    /// There is AUX data, whose addresses are known only after decoding.
    aux: bool,
    /// For each mapping, its space and DSO; only if user stacks are sampled.
    owners: Vec<(Space, u32)>,
    /// Child and parent; only if user stacks are sampled.
    forks: Vec<(Space, Space)>,
}

impl Mapped {
    /// The kinds of records to pass to [`Mapped::learn`].
    pub fn kinds() -> Kinds {
        // Without COMM, an exec leaves the old mappings in place, but samples hit only the new ones.
        let kinds = Changes::kinds().without(RecordType::COMM);
        kinds.union(Kinds::of(&[RecordType::ID_INDEX, RecordType::AUXTRACE_INFO, RecordType::AUXTRACE]))
    }

    /// Adds a record of these kinds.
    pub fn learn(&mut self, record: &Record<'_>, layouts: &Layouts) {
        self.aux |= layouts.any_samples(st::AUX);
        match record.kind() {
            RecordType::ID_INDEX => self.guests.learn(record),
            RecordType::AUXTRACE_INFO | RecordType::AUXTRACE => self.aux = true,
            _ => {
                let Some(pid) = named_pid(record) else { return };
                let machine = self.guests.machine(record, layouts, Some(pid));
                let dso = self.changes.add(record, layouts, machine);
                if dso.is_some_and(|dso| dso as usize == self.first_uses.len()) {
                    self.first_uses.push(FirstUse::of_mapping(record, layouts));
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

    /// True if the recording contains AUX data.
    pub fn has_aux(&self) -> bool {
        self.aux
    }

    /// Ends the collection: the first mapping of each DSO, and the start of the survey of samples.
    pub fn into_hits(self) -> (Vec<FirstUse>, Hits) {
        let Mapped { changes, guests, first_uses, owners, mut forks, .. } = self;
        forks.sort_unstable();
        forks.dedup();
        let processes = Arc::new(Processes { owners, forks });
        (first_uses, Hits::new(Arc::new(AddressSpaces::new(changes)), Arc::new(guests), processes))
    }
}

#[derive(Debug)]
struct Processes {
    owners: Vec<(Space, u32)>,
    /// Child and parent, sorted.
    forks: Vec<(Space, Space)>,
}

impl Processes {
    /// The numbers of all mappings that these processes ever had or inherited, and of their DSOs.
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

/// The mappings that samples hit. Workers' hits are absorbed in file order.
#[derive(Debug)]
pub struct Hits {
    lookup: Lookup,
    guests: Arc<Guests>,
    dsos: Vec<bool>,
    mappings: Vec<bool>,
    first: Vec<(u32, FirstUse)>,
    processes: Arc<Processes>,
    /// The processes with user stacks in samples; unwinding these may need all their mappings.
    unwound: HashSet<Space>,
    /// The last call chain: the mappings of its callers are marked.
    last: Callers,
}

impl Hits {
    fn new(spaces: Arc<AddressSpaces>, guests: Arc<Guests>, processes: Arc<Processes>) -> Hits {
        Hits {
            dsos: vec![false; spaces.dsos().len()],
            lookup: Lookup::new(spaces),
            guests,
            mappings: Vec::new(),
            first: Vec::new(),
            processes,
            unwound: HashSet::new(),
            last: Callers::default(),
        }
    }

    /// The kinds of records to pass to [`Hits::look_at`].
    pub fn kinds() -> Kinds {
        Kinds::SAMPLES
    }

    /// An empty copy for one batch.
    pub fn fork(&self) -> Hits {
        Hits::new(self.lookup.spaces().clone(), self.guests.clone(), self.processes.clone())
    }

    /// Adds the hits of a later batch.
    pub fn absorb(&mut self, later: Hits) {
        for (dso, first_use) in later.first {
            if !std::mem::replace(&mut self.dsos[dso as usize], true) {
                self.first.push((dso, first_use));
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

    /// DSOs with the first sample that hits them, in file order.
    pub fn take_first(&mut self) -> Vec<(u32, FirstUse)> {
        std::mem::take(&mut self.first)
    }

    /// For each mapping, true if samples hit it or may need it to unwind. Missing ones are not needed.
    pub fn needed_mappings(&self) -> Vec<bool> {
        let mut needed = self.mappings.clone();
        for (mapping, _) in self.processes.mappings_of(&self.unwound) {
            mark(&mut needed, mapping);
        }
        needed
    }

    /// The number of processes whose user stacks are in samples.
    pub fn unwound(&self) -> u64 {
        self.unwound.len() as u64
    }

    /// DSOs that no address of a sample hits, but that a user stack may hit, ascending.
    pub fn unwound_dsos(&self) -> BTreeSet<u32> {
        let dsos = self.processes.mappings_of(&self.unwound).map(|(_, dso)| dso);
        dsos.filter(|&dso| !self.dsos[dso as usize]).collect()
    }

    /// Adds a SAMPLE or CALLCHAIN_DEFERRED record.
    pub fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let Some(layout) = layouts.layout_of(record) else { return };
        let pid = layout.pid_tid(record).map(|(pid, _)| pid);
        let at = At { record, layouts, layout, pid, key: OrderKey::of(record, Some(layout), layouts) };
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
        if let Some(addr) = layout.addr(record) {
            self.touch(&at, addr);
        }
        if layout.sample_type & (st::BRANCH_STACK | st::STACK_USER) != 0 {
            let Ok(sample) = Sample::parse_known(record, layout) else { return };
            for branch in sample.branches.iter().flat_map(Branches::iter) {
                self.touch(&at, branch.from);
                self.touch(&at, branch.to);
            }
            if sample.stack_user.is_some_and(|stack| stack.dyn_size.is_some()) {
                self.unwound.extend(self.guests.space(record, layouts, pid, at.user()));
            }
        }
    }

    /// Marks the mapping of an address that is shown with its DSO but was not executed: no symbols are
    /// needed. Only the address shows whether it is the kernel's, whose mappings are all kept.
    fn touch(&mut self, at: &At<'_, '_>, address: u64) {
        if let (Some(hit), _) = self.find(at, at.user(), address) {
            mark(&mut self.mappings, hit.mapping as usize);
        }
    }

    fn chain(&mut self, at: &At<'_, '_>, chain: U64s<'_>, cpumode: u16) {
        let shared = self.last.begin(at.record, (at.pid, at.key), chain, cpumode);
        for (cpumode, ip) in frames(chain.first(chain.len() - shared), cpumode) {
            let during = self.hit(at, cpumode, ip);
            self.last.are_during(at.record, cpumode, &during);
        }
    }

    /// Marks the mapping of an address; returns the times for which the result holds.
    #[inline(always)]
    fn hit(&mut self, at: &At<'_, '_>, cpumode: u16, ip: u64) -> Range<OrderKey> {
        let (hit, during) = self.find(at, cpumode, ip);
        let Some(hit) = hit else { return during };
        mark(&mut self.mappings, hit.mapping as usize);
        if !self.dsos[hit.dso as usize] {
            self.dsos[hit.dso as usize] = true;
            let trailer = at.layout.trailer_of_sample(at.record).into();
            self.first.push((hit.dso, FirstUse { origin: at.record.origin(), trailer, pid: at.pid }));
        }
        during
    }

    #[inline(always)]
    fn find(&mut self, at: &At<'_, '_>, cpumode: u16, address: u64) -> (Option<Hit>, Range<OrderKey>) {
        match self.guests.space(at.record, at.layouts, at.pid, cpumode) {
            Some(space) => self.lookup.find_during(space, address, at.key),
            None => (None, OrderKey::ALL),
        }
    }
}

#[inline]
fn mark(mappings: &mut Vec<bool>, mapping: usize) {
    if mappings.len() <= mapping {
        mappings.resize(mapping + 1, false);
    }
    mappings[mapping] = true;
}

struct At<'r, 'a> {
    record: &'r Record<'a>,
    layouts: &'r Layouts,
    layout: &'r Layout,
    pid: Option<u32>,
    key: OrderKey,
}

impl At<'_, '_> {
    fn user(&self) -> u16 {
        if self.record.is_of_guest() { GUEST_USER } else { USER }
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::record::builder::build;
    use perfx_format::sample::Marker;
    use perfx_format::{Attr, Endian, Event};

    use super::*;

    const ENDIAN: Endian = Endian::Little;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|&word| ENDIAN.bytes_u64(word)).collect()
    }

    fn pair(low: u32, high: u32) -> u64 {
        u64::from(high) << 32 | u64::from(low)
    }

    fn mmap(pid: u32, time: u64, start: u64, name: &[u8; 8]) -> Vec<u8> {
        let name = u64::from_le_bytes(*name);
        let words = [pair(pid, pid), start, 0x1_0000, 0, name, pair(pid, pid), time];
        build(RecordType::MMAP, 2, &[&bytes(&words)], ENDIAN).unwrap()
    }

    fn sample(pid: u32, time: u64, chain: &[u64]) -> Vec<u8> {
        let front = bytes(&[0, pair(pid, pid), time, chain.len() as u64]);
        build(RecordType::SAMPLE, 1, &[&front, &bytes(chain)], ENDIAN).unwrap()
    }

    fn record(bytes: &[u8]) -> Record<'_> {
        Record::new(bytes, &[], Origin::Synthetic, ENDIAN).unwrap()
    }

    #[test]
    fn callers_shared_by_neighbouring_samples_hit_the_same_mappings() {
        let sample_type = st::IP | st::TID | st::TIME | st::CALLCHAIN;
        let mut attr = Attr::default();
        // sample_id_all
        (attr.sample_type, attr.flags) = (sample_type, 1 << 18);
        let layouts = Layouts::new(&[Event::made(&attr, Vec::new(), ENDIAN)]);
        let markers = [Marker::KERNEL, Marker::USER, Marker::USER_DEFERRED, Marker::GUEST_USER].map(|m| m.0);
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut shared = 0;
        for _ in 0..200 {
            let mut mapped = Mapped::default();
            for number in 0..8 {
                let (pid, time, start) = (1 + random(2) as u32, random(40), random(4) * 0x1_0000);
                let name = [b'a' + number, 0, 0, 0, 0, 0, 0, 0];
                mapped.learn(&record(&mmap(pid, time, start, &name)), &layouts);
            }
            let (_, mut hits) = mapped.into_hits();
            let mut alone = hits.fork();
            let mut chain: Vec<u64> = Vec::new();
            for _ in 0..20 {
                let keep = random(chain.len() as u64 + 1) as usize;
                let entry = |word| if word < 4 { markers[word as usize] } else { word * 0x2000 };
                let new: Vec<u64> = (0..random(5)).map(|_| entry(random(32))).collect();
                chain = [new, chain.split_off(keep)].concat();
                let sample = sample(1 + random(2) as u32, random(40), &chain);
                hits.look_at(&record(&sample), &layouts);
                alone.last = Callers::default();
                alone.look_at(&record(&sample), &layouts);
                assert_eq!((&hits.mappings, &hits.dsos), (&alone.mappings, &alone.dsos));
                shared += u64::from(hits.last.are_known());
            }
        }
        assert!(shared > 100, "{shared}");
    }
}
