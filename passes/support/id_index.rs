//! Finds the ids listed by ID_INDEX records, and the facts in other records about unlisted ones.

use std::collections::{HashMap, HashSet};

use perfx_format::record::aux::Auxtrace;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::record::id_index::{ANY, IdEntry, IdIndex, write_id_index};
use perfx_format::{Endian, Layouts, Origin, Record, RecordType};
use perfx_pipeline::{Result, Session};

pub(crate) fn unknown(id: u64) -> IdEntry {
    IdEntry { id, idx: ANY, cpu: ANY, tid: ANY, ..IdEntry::default() }
}

pub(crate) fn is_unknown(entry: &IdEntry) -> bool {
    (entry.cpu, entry.tid) == (ANY, ANY)
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) at: Slot,
    pub(crate) entries: Vec<IdEntry>,
    /// It has the second array.
    pub(crate) long: bool,
    pub(crate) changed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Instead(Origin),
    Before(Origin),
    After(Origin),
}

impl Index {
    pub(crate) fn read(index: &IdIndex<'_>, origin: Origin) -> Index {
        Index {
            at: Slot::Instead(origin),
            entries: index.entries().collect(),
            long: index.has_machines(),
            changed: !index.is_count_right(),
        }
    }

    pub(crate) fn write(&self, endian: Endian) -> Vec<Vec<u8>> {
        write_id_index(&self.entries, self.long, endian)
    }
}

/// The ID_INDEX records, and other facts about ids and the required place of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexFacts {
    pub(crate) indexes: Vec<Index>,
    info: Option<Origin>,
    /// Events among the records of pipe data: the place and the ids of each.
    late: Vec<(Origin, Vec<u64>)>,
    queues: Queues,
}

impl IndexFacts {
    pub(crate) fn learn(&mut self, record: &Record<'_>) -> Result<()> {
        if let Some(index) = IdIndex::of(record) {
            let index = Index::read(&index, record.origin());
            // A guest's ring buffers are numbered separately.
            let host = index.entries.iter().filter(|entry| entry.machine_pid == 0);
            host.for_each(|entry| self.queues.learn(entry.cpu, entry.tid, entry.idx));
            self.indexes.push(index);
            return Ok(());
        }
        match record.kind() {
            RecordType::AUXTRACE_INFO => self.info = self.info.or(Some(record.origin())),
            RecordType::AUXTRACE => {
                let signed = |value: u32| i64::from(value as i32) as u64;
                if let Some(Auxtrace { idx, tid, cpu, .. }) = Auxtrace::of(record) {
                    self.queues.learn(signed(cpu), signed(tid), idx.into());
                }
            }
            _ => {
                if let Some(HeaderRecord::Event(event)) = HeaderRecord::read(record)? {
                    self.late.push((record.origin(), event.ids));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn join(&mut self, later: IndexFacts) {
        self.indexes.extend(later.indexes);
        self.info = self.info.or(later.info);
        self.late.extend(later.late);
        self.queues.join(later.queues);
    }

    /// All ids with their events, in attr order, without duplicates.
    pub(crate) fn ids(&self, session: &Session) -> Vec<(u64, usize)> {
        each_once(session.events.iter().map(|event| &event.ids).chain(self.late.iter().map(|(_, ids)| ids)))
    }

    pub(crate) fn is_needed(&self) -> bool {
        !self.indexes.is_empty() || self.info.is_some()
    }

    pub(crate) fn missing(&self, ids: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let there: HashSet<u64> =
            self.indexes.iter().flat_map(|index| &index.entries).map(|entry| entry.id).collect();
        let needed = self.is_needed();
        // 0 belongs to no event.
        let lacks = |(id, _): &&(u64, usize)| needed && *id != 0 && !there.contains(id);
        ids.iter().filter(lacks).copied().collect()
    }

    pub(crate) fn entries(
        &self,
        ids: &[(u64, usize)],
        wanted: &[(u64, usize)],
        seen: &HashMap<u64, Seen>,
    ) -> Vec<IdEntry> {
        let events: HashMap<u64, usize> = ids.iter().copied().collect();
        // All ids of an event were opened alike, so a fact disproved for one is disproved for all.
        let mut alike: HashMap<usize, IdEntry> = HashMap::new();
        let one = IdEntry::default();
        for entry in self.indexes.iter().flat_map(|index| &index.entries) {
            let Some(&event) = events.get(&entry.id) else { continue };
            let alike = alike.entry(event).or_insert(one);
            alike.cpu = if entry.cpu == ANY { ANY } else { alike.cpu };
            alike.tid = if entry.tid == ANY { ANY } else { alike.tid };
            alike.machine_pid = alike.machine_pid.max(entry.machine_pid);
        }
        for (id, seen) in seen {
            let Some(&event) = events.get(id) else { continue };
            let alike = alike.entry(event).or_insert(one);
            alike.cpu = if seen.cpu == Always::Several { ANY } else { alike.cpu };
            alike.tid = if seen.tid == Always::Several { ANY } else { alike.tid };
        }
        let entry = |&(id, event): &(u64, usize)| {
            let alike = alike.get(&event).copied().unwrap_or(one);
            let seen = seen.get(&id).copied().unwrap_or_default();
            let proven = |seen, alike| match seen {
                Always::This(value) if alike != ANY => value.into(),
                _ => ANY,
            };
            let (cpu, tid) = (proven(seen.cpu, alike.cpu), proven(seen.tid, alike.tid));
            let host = alike.machine_pid == 0;
            IdEntry {
                id,
                idx: if host { self.queues.of(cpu, tid) } else { ANY },
                cpu,
                tid,
                machine_pid: alike.machine_pid,
                vcpu: if host { 0 } else { ANY },
            }
        };
        wanted.iter().map(entry).collect()
    }

    /// Moves records to the right place: before the first AUXTRACE_INFO, but after the attrs of their ids.
    /// Returns the number of moved records, and the place for added ids if there is no index.
    pub(crate) fn put_in_order(&mut self) -> (u64, Option<Slot>) {
        let attrs = self.late.last().map(|(origin, _)| *origin);
        let early = |origin: Origin| attrs.is_some_and(|attrs| origin.is_before(attrs));
        let info = self.info.filter(|info| !early(*info));
        let places: Vec<_> = self.indexes.iter().map(|index| index.at).collect();
        let origin = |slot: &Slot| match *slot {
            Slot::Instead(origin) | Slot::Before(origin) | Slot::After(origin) => origin,
        };
        let in_time = |slot: &&Slot| {
            let origin = origin(slot);
            !early(origin) && info.is_none_or(|info| origin.is_before(info))
        };
        let first = places.iter().find(in_time).map(origin);
        let anchor = match (first, info) {
            (Some(first), _) => Some(Slot::After(first)),
            (None, Some(info)) => Some(Slot::Before(info)),
            (None, None) => attrs.map(Slot::After),
        };
        let mut moved = 0;
        for index in &mut self.indexes {
            let misplaced = early(origin(&index.at)) || first.is_none();
            if let Some(anchor) = anchor.filter(|_| misplaced) {
                (index.at, index.changed) = (anchor, true);
                moved += 1;
            }
        }
        (moved, anchor)
    }
}

pub(crate) fn each_once<'a>(events: impl Iterator<Item = &'a Vec<u64>>) -> Vec<(u64, usize)> {
    let mut known = HashSet::new();
    let ids = events.enumerate().flat_map(|(event, ids)| ids.iter().map(move |&id| (id, event)));
    ids.filter(|(id, _)| known.insert(*id)).collect()
}

/// Each ring buffer's CPU or, if there is one per thread, thread. `None`: several.
#[derive(Clone, Debug, Default)]
struct Queues(HashMap<(u64, u64), Option<u64>>);

impl Queues {
    fn owner(cpu: u64, tid: u64) -> Option<(u64, u64)> {
        if cpu != ANY { Some((cpu, ANY)) } else { Some((ANY, tid)).filter(|_| tid != ANY) }
    }

    fn learn(&mut self, cpu: u64, tid: u64, idx: u64) {
        if let Some(owner) = Queues::owner(cpu, tid) {
            let known = self.0.entry(owner).or_insert(Some(idx));
            *known = known.filter(|&known| known == idx);
        }
    }

    fn join(&mut self, later: Queues) {
        for (owner, idx) in later.0 {
            let known = self.0.entry(owner).or_insert(idx);
            *known = known.filter(|&known| idx == Some(known));
        }
    }

    fn of(&self, cpu: u64, tid: u64) -> u64 {
        Queues::owner(cpu, tid).and_then(|owner| *self.0.get(&owner)?).unwrap_or(ANY)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    cpu: Always,
    tid: Always,
}

/// A value that is the same in all records so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Always {
    #[default]
    Never,
    This(u32),
    Several,
}

impl Always {
    fn and(&mut self, other: Always) {
        *self = match (*self, other) {
            (Always::Never, other) => other,
            (this, Always::Never) => this,
            (this, other) if this == other => this,
            _ => Always::Several,
        };
    }
}

impl Seen {
    pub(crate) fn of(record: &Record<'_>, layouts: &Layouts) -> Option<(u64, Seen)> {
        let layout = layouts.layout_of(record)?;
        // perf itself writes LOST_SAMPLES and records without a time: they have no CPU.
        if record.kind() == RecordType::LOST_SAMPLES || layout.recorded_time(record) == Some(0) {
            return None;
        }
        let tid = match layout.pid_tid(record) {
            None | Some((_, u32::MAX)) => Always::Never,
            // An idle CPU, which an event for one thread never sees.
            Some((_, 0)) => Always::Several,
            Some((_, tid)) => Always::This(tid),
        };
        let cpu = layout.cpu(record).map_or(Always::Never, Always::This);
        Some((layout.id(record)?, Seen { cpu, tid }))
    }

    pub(crate) fn and(&mut self, other: Seen) {
        self.cpu.and(other.cpu);
        self.tid.and(other.tid);
    }
}
