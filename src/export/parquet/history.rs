//! Collects the mappings, threads and names of a recording while its facts are learned.

use std::collections::{BTreeMap, HashMap};

use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::record::time::own_time;
use perfx_format::{COMM_EXEC, Comm, Layouts, Mmap, OrderKey, Record, RecordType, Task};
use perfx_model::address_space::{KERNEL, Machine, Mapping, Space};

#[derive(Default)]
pub(super) struct History {
    pub(super) mappings: Vec<Mapped>,
    pub(super) comms: Vec<Named>,
    pub(super) threads: BTreeMap<Thread, Life>,
    /// When processes executed a program or ended, and the number of mappings before that.
    ends: Vec<(Space, OrderKey, Option<i64>, usize)>,
}

pub(super) type Thread = (Machine, u32, u32);

pub(super) struct Mapped {
    pub(super) space: Space,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) dso: u32,
    /// As in /proc/PID/maps, if the record has it.
    pub(super) access: Option<String>,
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    key: OrderKey,
}

pub(super) struct Named {
    pub(super) thread: Thread,
    pub(super) time: Option<i64>,
    pub(super) name: Box<[u8]>,
    pub(super) exec: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Life {
    pub(super) parent: Option<u32>,
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    pub(super) exec: bool,
}

pub(super) fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

impl History {
    /// Reads a record that changes tasks or address spaces; `dso` is the one it maps.
    pub(super) fn add(&mut self, record: &Record<'_>, layouts: &Layouts, machine: Machine, dso: Option<u32>) {
        let layout = layouts.layout_of(record);
        let time = layouts.recorded_time(record).or_else(|| own_time(record)).map(signed);
        let key = OrderKey::of(record, layout, layouts);
        if let Some(dso) = dso {
            self.mappings.extend(mapped(record, layouts, machine, dso, time, key));
        }
        match record.kind() {
            RecordType::COMM => {
                let trailer = layout.map_or(0, |layout| usize::from(layout.trailer.size));
                let Some(Comm { pid, tid, name }) = Comm::of(record, trailer) else { return };
                let (thread, exec) = ((machine, pid, tid), record.misc() & COMM_EXEC != 0);
                self.threads.entry(thread).or_default().exec |= exec;
                self.comms.push(Named { thread, time, name: name.into(), exec });
                if exec {
                    self.ends.push((Space { machine, pid }, key, time, self.mappings.len()));
                }
            }
            RecordType::FORK => {
                let Some(Task { pid, ppid, tid, .. }) = Task::of(record) else { return };
                let life = self.threads.entry((machine, pid, tid)).or_default();
                life.from = life.from.into_iter().chain(time).min();
                life.parent = life.parent.or(Some(ppid).filter(|_| pid != ppid));
            }
            RecordType::EXIT => {
                let Some(Task { pid, tid, .. }) = Task::of(record) else { return };
                let life = self.threads.entry((machine, pid, tid)).or_default();
                life.to = life.to.max(time);
                if pid == tid {
                    self.ends.push((Space { machine, pid }, key, time, self.mappings.len()));
                }
            }
            _ => {}
        }
    }

    pub(super) fn end_mappings(&mut self) {
        #[derive(Clone, Copy)]
        enum Change {
            Map(usize),
            End,
        }
        let maps = self.mappings.iter().enumerate();
        let maps = maps.map(|(number, map)| (map.space, map.key, number, Change::Map(number), map.from));
        let ends =
            self.ends.iter().map(|&(space, key, time, before)| (space, key, before, Change::End, time));
        let mut changes: Vec<_> = ends.chain(maps).collect();
        changes.sort_by_key(|&(space, key, number, ..)| (space, key, number));
        let mut current = None;
        // The uncovered parts with start, end and mapping, and the number of parts of each mapping.
        let mut parts: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut left: HashMap<usize, usize> = HashMap::new();
        for (space, _, _, change, time) in changes {
            if current != Some(space) {
                current = Some(space);
                parts.clear();
                left.clear();
            }
            match change {
                Change::End => {
                    parts.clear();
                    left.drain().for_each(|(number, _)| self.mappings[number].to = time);
                }
                Change::Map(number) => {
                    let map = &self.mappings[number];
                    let (start, end) = (map.start, map.start.saturating_add(map.size));
                    for covered in cut(&mut parts, start, end, &mut left) {
                        self.mappings[covered].to = time;
                    }
                    if start < end {
                        parts.insert(start, (end, number));
                        left.insert(number, 1);
                    }
                }
            }
        }
    }
}

/// Removes a range from the parts; returns the mappings without parts.
fn cut(
    parts: &mut BTreeMap<u64, (u64, usize)>,
    start: u64,
    end: u64,
    left: &mut HashMap<usize, usize>,
) -> Vec<usize> {
    let mut hit: Vec<u64> = parts.range(start..end).map(|(&start, _)| start).collect();
    hit.extend(
        parts.range(..start).next_back().filter(|(_, (part_end, _))| *part_end > start).map(|(&at, _)| at),
    );
    let mut covered = Vec::new();
    for part_start in hit {
        let Some((part_end, number)) = parts.remove(&part_start) else { continue };
        let mut remaining = 0;
        if part_start < start {
            parts.insert(part_start, (start, number));
            remaining += 1;
        }
        if part_end > end {
            parts.insert(end, (part_end, number));
            remaining += 1;
        }
        let count = left.entry(number).or_default();
        *count = (*count + remaining).saturating_sub(1);
        if *count == 0 {
            left.remove(&number);
            covered.push(number);
        }
    }
    covered
}

fn mapped(
    record: &Record<'_>,
    layouts: &Layouts,
    machine: Machine,
    dso: u32,
    from: Option<i64>,
    key: OrderKey,
) -> Option<Mapped> {
    let kernel = Space { machine, pid: KERNEL };
    let (access, to) = (None, None);
    if let Some(symbol) = Ksymbol::of(record) {
        let (start, size) = (symbol.address, symbol.length.into());
        return Some(Mapped { space: kernel, start, size, offset: 0, dso, access, from, to, key });
    }
    let map = Mapping::read(record, layouts)?;
    let space = if map.kernel { kernel } else { Space { machine, pid: map.pid } };
    let access = Mmap::of(record).and_then(|map| map.access());
    let (start, size, offset) = (map.start, map.len, map.pgoff);
    Some(Mapped { space, start, size, offset, dso, access, from, to, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_ends_when_others_have_covered_all_of_it() {
        let space = Space { machine: Machine::Host, pid: 1 };
        let map = |time: u64, start, size| Mapped {
            space,
            start,
            size,
            offset: 0,
            dso: 0,
            access: None,
            from: Some(time as i64),
            to: None,
            key: OrderKey::at(time),
        };
        let mappings = vec![map(1, 10, 30), map(2, 20, 10), map(3, 30, 20), map(4, 5, 15), map(6, 5, 1)];
        let ends = vec![(space, OrderKey::at(5), Some(5), 4)];
        let mut history = History { mappings, ends, ..History::default() };
        history.end_mappings();
        let ends: Vec<_> = history.mappings.iter().map(|map| map.to).collect();
        assert_eq!(ends, [Some(4), Some(5), Some(5), Some(5), None]);
    }
}
