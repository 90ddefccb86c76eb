//! Collects facts about processes: the jitdumps and other files that they mapped, and when they began.

use std::ops::Range;

use perfx_format::names::is_jit_memory;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::{
    COMM_EXEC, Inode, Kinds, Layout, Layouts, OrderKey, Origin, Record, RecordType, Task, named_pid,
};
use perfx_model::address_space::{Identity, Mapping};
use perfx_model::hits::FirstUse;

use perfx_resolve::pid_in;

#[derive(Clone, Debug)]
pub(super) struct Marker {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) key: OrderKey,
    pub(super) origin: Origin,
    pub(super) path: Box<[u8]>,
    pub(super) named: u32,
    pub(super) inode: Option<Inode>,
    pub(super) trailer: Box<[u8]>,
    pub(super) layout: Layout,
}

/// A mapping of something other than a jitdump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub(super) pid: u32,
    pub(super) key: OrderKey,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) origin: Origin,
    /// Anonymous memory or a memfd, which JIT compilers use for code.
    pub(super) is_memory: bool,
}

impl Map {
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.start < range.end && range.start < self.end
    }
}

#[derive(Clone, Copy, Debug)]
struct Begin {
    pid: u32,
    key: OrderKey,
    /// `None` for an exec.
    parent: Option<u32>,
}

/// The time from a fork or exec of a process to the next one with the same pid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Span {
    pub(super) pid: u32,
    pub(super) start: OrderKey,
    pub(super) end: OrderKey,
}

/// Maximum number of ancestors whose mappings are looked up. Few matter, because an exec empties the memory.
const GENERATIONS: usize = 64;

pub(super) struct Lineage {
    /// The span of the process, of its parent, and so on.
    pub(super) spans: Vec<Span>,
    is_whole: bool,
}

impl Lineage {
    /// Stands for the mappings of further generations: all memory, from the beginning. So code is mapped at
    /// its load time, in case an ancestor had mapped a file there.
    fn unknown(&self) -> Option<Map> {
        let Span { pid, .. } = *self.spans.last().filter(|_| !self.is_whole)?;
        let origin = Origin::Synthetic;
        Some(Map { pid, key: OrderKey::FIRST, start: 0, end: u64::MAX, origin, is_memory: false })
    }
}

/// A mapping without a file, with the fields for mapping an image there.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) map: Map,
    pub(super) tid: u32,
    pub(super) trailer: Box<[u8]>,
}

/// The mapping thread, or its process.
fn tid(record: &Record<'_>, pid: u32) -> u32 {
    perfx_format::Mmap::of(record).map_or(pid, |mmap| mmap.tid())
}

/// In file order until [`Recorded::sort`] is called.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) markers: Vec<Marker>,
    pub(super) maps: Vec<Map>,
    pub(super) memory: Vec<Memory>,
    keeps_memory: bool,
    begins: Vec<Begin>,
    pub(super) conversion: Option<TimeConv>,
}

impl Recorded {
    /// `keeps_memory`: with the details of mappings without a file.
    pub(super) fn new(keeps_memory: bool) -> Recorded {
        Recorded { keeps_memory, ..Recorded::default() }
    }

    pub(super) fn kinds() -> Kinds {
        Kinds::SPACES.and(RecordType::TIME_CONV)
    }

    pub(super) fn learn(&mut self, record: &Record<'_>, layouts: &Layouts) {
        // The jitdumps of a guest are not files of the host.
        if record.is_of_guest() {
            return;
        }
        let key = OrderKey::of(record, layouts.layout_of(record), layouts);
        match record.kind() {
            RecordType::TIME_CONV => self.conversion = self.conversion.or(TimeConv::of(record)),
            RecordType::FORK => {
                let fork = Task::of(record).filter(|fork| fork.pid != fork.ppid);
                let begin = |fork: Task| Begin { pid: fork.pid, key, parent: Some(fork.ppid) };
                self.begins.extend(fork.map(begin));
            }
            RecordType::COMM => {
                let pid = named_pid(record).filter(|_| record.misc() & COMM_EXEC != 0);
                self.begins.extend(pid.map(|pid| Begin { pid, key, parent: None }));
            }
            _ => self.map(record, layouts, key),
        }
    }

    fn map(&mut self, record: &Record<'_>, layouts: &Layouts, key: OrderKey) {
        let Some(mapping) = Mapping::read(record, layouts) else { return };
        let Mapping { pid, start, len, name, .. } = mapping;
        if mapping.kernel {
            return;
        }
        let origin = record.origin();
        let Some((named, layout)) = pid_in(name).zip(layouts.layout_of(record)) else {
            let is_memory = is_jit_memory(name);
            let map = Map { pid, key, start, end: start.saturating_add(len), origin, is_memory };
            self.maps.push(map);
            if is_memory && self.keeps_memory {
                let FirstUse { trailer, .. } = FirstUse::of_mapping(record, layouts);
                self.memory.push(Memory { map, tid: tid(record, pid), trailer });
            }
            return;
        };
        let inode = match mapping.identity {
            Identity::Inode { major, minor, inode, generation } => {
                Some(Inode { major, minor, inode, generation })
            }
            _ => None,
        };
        let tid = tid(record, pid);
        let FirstUse { trailer, .. } = FirstUse::of_mapping(record, layouts);
        let (path, layout) = (name.into(), *layout);
        self.markers.push(Marker { pid, tid, key, origin, path, named, inode, trailer, layout });
    }

    pub(super) fn sort(&mut self) {
        self.begins.sort_by_key(|begin| (begin.pid, begin.key));
        self.maps.sort_by_key(|map| (map.pid, map.key));
    }

    fn begins_of(&self, pid: u32) -> &[Begin] {
        let from = self.begins.partition_point(|begin| begin.pid < pid);
        let len = self.begins[from..].partition_point(|begin| begin.pid == pid);
        &self.begins[from..from + len]
    }

    fn maps_of(&self, pid: u32) -> &[Map] {
        let from = self.maps.partition_point(|map| map.pid < pid);
        let len = self.maps[from..].partition_point(|map| map.pid == pid);
        &self.maps[from..from + len]
    }

    pub(super) fn knows(&self, pid: u32) -> bool {
        !self.begins_of(pid).is_empty() || !self.maps_of(pid).is_empty()
    }

    pub(super) fn span(&self, pid: u32, key: OrderKey) -> Span {
        let begins = self.begins_of(pid);
        let after = begins.partition_point(|begin| begin.key <= key);
        let start = after.checked_sub(1).map_or(OrderKey::FIRST, |at| begins[at].key);
        Span { pid, start, end: begins.get(after).map_or(OrderKey::END, |begin| begin.key) }
    }

    /// The span of a process, and those of its ancestors, each up to the fork.
    pub(super) fn lineage(&self, span: Span) -> Lineage {
        let mut spans = vec![span];
        let mut is_whole = true;
        // In a damaged recording, a process may be its own ancestor.
        while let Some(&Span { pid, start, .. }) = spans.last()
            && let begins = self.begins_of(pid)
            && let Some(begin) = begins[..begins.partition_point(|begin| begin.key <= start)].last()
            && let Some(parent) = begin.parent
            && spans.iter().all(|span| span.pid != parent)
        {
            if spans.len() == GENERATIONS {
                is_whole = false;
                break;
            }
            spans.push(Span { end: begin.key, ..self.span(parent, begin.key) });
        }
        Lineage { spans, is_whole }
    }

    pub(super) fn files(&self, lineage: &Lineage, range: &Range<u64>) -> Vec<Map> {
        let of = |span: &Span| {
            let maps = self.maps_of(span.pid);
            let at = |key: OrderKey| maps.partition_point(|map| map.key < key);
            maps[at(span.start)..at(span.end)].iter().filter(|map| !map.is_memory && map.meets(range))
        };
        lineage.spans.iter().flat_map(of).copied().chain(lineage.unknown()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each process forks the next one, and the first one has mapped a file.
    fn chain(processes: u32) -> Recorded {
        let begin = |pid: u32| Begin { pid, key: OrderKey::at(pid.into()), parent: Some(pid - 1) };
        let mut recorded = Recorded { begins: (1..processes).map(begin).collect(), ..Recorded::default() };
        let (start, end, origin) = (0x1000, 0x2000, Origin::Synthetic);
        recorded.maps.push(Map { pid: 0, key: OrderKey::FIRST, start, end, origin, is_memory: false });
        recorded.sort();
        recorded
    }

    fn files(processes: u32, range: Range<u64>) -> Vec<(u64, u64)> {
        let recorded = chain(processes);
        let lineage = recorded.lineage(recorded.span(processes - 1, OrderKey::END));
        assert_eq!(lineage.spans.len(), GENERATIONS.min(processes as usize));
        recorded.files(&lineage, &range).iter().map(|map| (map.start, map.end)).collect()
    }

    #[test]
    fn a_file_of_ancestors_is_found_and_of_remote_ones_supposed_everywhere() {
        for processes in [2, GENERATIONS as u32] {
            assert_eq!(files(processes, 0x1800..0x3000), [(0x1000, 0x2000)]);
            assert_eq!(files(processes, 0x2000..0x3000), []);
        }
        for processes in [GENERATIONS as u32 + 1, 10_000] {
            assert_eq!(files(processes, 0x2000..0x3000), [(0, u64::MAX)]);
        }
    }

    #[test]
    fn a_mapping_belongs_to_its_thread() {
        use crate::support::tiny::record;
        let of = |bytes: Vec<u8>| {
            tid(&Record::new(&bytes, &[], Origin::Synthetic, perfx_format::Endian::Little).unwrap(), 5)
        };
        assert_eq!(of(record(1, 2, &[9 << 32 | 7, 0x1000, 0x1000, 0, 0x61])), 9);
        assert_eq!(of(record(3, 0, &[9 << 32 | 7, 0x61])), 5);
    }
}
