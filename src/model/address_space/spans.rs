//! Stores the address spaces of all processes at all times. A fork takes about 50 bytes however much its
//! parent has mapped, and a lookup follows no chain of parents.
//!
//! An address space starts over at every fork and exec; the time between two of these is a *span*. A span
//! that begins with a fork starts with the parent's mappings at that time, so spans form trees with forks as
//! edges. A walk through a tree visits each span where its parent forks it, and gives every span and every
//! mapping the next *slot*. A mapping is valid from its slot until the slot where the walk leaves its span,
//! and of the mappings valid at a slot, the one with the highest slot is the newest.
//!
//! Until an exec returns to the new program, call chains from the kernel still lead to the old one. So
//! addresses not mapped by the new program are looked up in the mappings of the old one, as in perf.

use std::ops::Range;

use perfx_format::OrderKey;

use super::changes::{Begin, Changes, Dsos};
use super::dso::{Dso, KERNEL, Key, PAGE_BITS, Space};
use super::map::{Hit, Map, NONE};
use super::newest::Newest;

#[derive(Clone, Copy, Debug)]
struct Span {
    start: OrderKey,
    /// Index of its first mapping; its last one precedes the first of the next span.
    maps: u32,
    slot: u32,
    /// The slot of its tree's root; [`NONE`] until the walk reaches it.
    root: u32,
    /// It begins with an exec, which replaced the mappings of the span before it.
    is_exec: bool,
}

/// The mappings of all processes over time.
#[derive(Debug, Default)]
pub struct AddressSpaces {
    dsos: Vec<(Dso, u32)>,
    /// Ascending.
    keys: Vec<Key>,
    /// The index of each space's first span, and the end.
    first: Vec<u32>,
    spans: Vec<Span>,
    maps: Vec<Map>,
    slots: Vec<u32>,
    /// For each slot, the mapping that becomes valid there, if any.
    mapping_at: Vec<u32>,
    /// For each slot, the slot from which on it is no longer valid.
    until: Vec<u32>,
    /// A search tree for each tree with many slots, by the slot of its root, ascending.
    large: Vec<(u32, Newest)>,
    /// Pages in which a mapping begins or ends, ascending: kernel modules are not page-aligned.
    split_pages: Vec<u64>,
}

/// Up to this many slots are searched linearly.
const FEW: usize = 32;

impl AddressSpaces {
    /// Sorts the changes into spans. Changes with the same time keep their order.
    pub fn new(changes: Changes) -> AddressSpaces {
        let Changes { mut maps, mut begins, dsos } = changes;
        let Dsos { mut list, .. } = dsos;
        list.shrink_to_fit();
        maps.sort_unstable_by_key(|(key, map)| (*key, map.at, map.hit.mapping));
        let order = |begin: &Begin| (begin.key, begin.at, begin.mapping);
        begins.sort_by_key(order);
        // A space with a mapping before its first fork or exec existed before that.
        let earlier: Vec<Begin> = maps
            .chunk_by(|(one, _), (other, _)| one == other)
            .filter_map(|maps| maps.first())
            .filter(|&&(key, map)| {
                let first = begins.get(begins.partition_point(|begin| begin.key < key));
                first.is_none_or(|first| (key, map.at, map.hit.mapping) < order(first))
            })
            .map(|&(key, _)| Begin { at: OrderKey::FIRST, key, parent: KERNEL, mapping: 0 })
            .collect();
        begins.extend(earlier);
        begins.sort_by_key(order);
        let mut all = AddressSpaces { dsos: list, ..AddressSpaces::default() };
        let parents = all.cut(&maps, begins);
        all.maps = maps.into_iter().map(|(_, map)| map).collect();
        all.number(parents);
        let bounds = all.maps.iter().flat_map(|map| [map.start, map.end]);
        let inside = bounds.filter(|bound| bound.trailing_zeros() < PAGE_BITS);
        all.split_pages = inside.map(|bound| bound >> PAGE_BITS).collect();
        all.split_pages.sort_unstable();
        all.split_pages.dedup();
        all
    }

    /// All DSOs in the order in which they were first mapped, with the flags of that mapping.
    pub fn dsos(&self) -> &[(Dso, u32)] {
        &self.dsos
    }

    /// Builds the spans from sorted changes; returns the parent of each, or [`NONE`].
    fn cut(&mut self, maps: &[(Key, Map)], begins: Vec<Begin>) -> Vec<u32> {
        let mut parents: Vec<u32> = begins.iter().map(|begin| begin.parent).collect();
        for (number, begin) in (0..).zip(&begins) {
            if self.keys.last() != Some(&begin.key) {
                self.keys.push(begin.key);
                self.first.push(number);
            }
        }
        self.first.push(begins.len() as u32);
        let mut map = 0;
        // Reuses the memory of the begins: a span has the same size.
        let spans = begins.into_iter().map(|begin| {
            let is_before = |&(key, map): &(Key, Map)| {
                (key, map.at, map.hit.mapping) < (begin.key, begin.at, begin.mapping)
            };
            while maps.get(map).is_some_and(is_before) {
                map += 1;
            }
            let is_exec = begin.parent == KERNEL;
            Span { start: begin.at, maps: map as u32, slot: NONE, root: NONE, is_exec }
        });
        self.spans = spans.collect();
        let spaces = self.keys.iter().zip(self.first.windows(2));
        let of_spans = spaces.flat_map(|(&key, ends)| (ends[0]..ends[1]).map(move |_| key));
        for ((parent, span), key) in parents.iter_mut().zip(&self.spans).zip(of_spans) {
            let space = (*parent != KERNEL).then_some(Space { pid: *parent, ..Space::of_key(key) }.key());
            *parent = space.and_then(|key| self.span_at(key, span.start)).unwrap_or(NONE);
        }
        parents
    }

    fn spans_of(&self, key: Key) -> Option<Range<usize>> {
        let at = self.keys.binary_search(&key).ok()?;
        Some(*self.first.get(at)? as usize..*self.first.get(at + 1)? as usize)
    }

    fn span_at(&self, key: Key, at: OrderKey) -> Option<u32> {
        let range = self.spans_of(key)?;
        let after = self.spans[range.clone()].partition_point(|span| span.start <= at);
        Some((range.start + after.checked_sub(1)?) as u32)
    }

    fn maps_of(&self, span: usize) -> Range<usize> {
        let end = self.spans.get(span + 1).map_or(self.maps.len(), |next| next.maps as usize);
        self.spans[span].maps as usize..end
    }

    fn number(&mut self, parents: Vec<u32>) {
        let children = Children::new(&parents, &self.spans);
        self.slots = vec![NONE; self.maps.len()];
        let slots = self.maps.len() + self.spans.len();
        (self.mapping_at, self.until) = (Vec::with_capacity(slots), Vec::with_capacity(slots));
        // Forks with equal times may form a cycle without a root: then its first span becomes the root.
        let roots = (0..parents.len()).filter(|&span| parents[span] == NONE).chain(0..parents.len());
        for root in roots {
            if self.spans[root].root == NONE {
                let first = self.mapping_at.len();
                self.walk(root, &children);
                if self.mapping_at.len() - first > FEW {
                    let newest = Newest::new(first, &self.mapping_at, &self.until, &self.maps);
                    self.large.extend(newest.map(|newest| (first as u32, newest)));
                }
            }
        }
    }

    fn walk(&mut self, root: usize, children: &Children) {
        let first = self.mapping_at.len() as u32;
        let mut open = vec![self.enter(root, first, children)];
        while let Some(visit) = open.last_mut() {
            let (own, its) = (self.maps_of(visit.span as usize), children.of(visit.span as usize));
            let child = children.list[..its.end].get(visit.child as usize);
            let start = child.map(|&child| self.spans[child as usize].start);
            let map = self.maps[..own.end].get(visit.map as usize);
            if let Some(map) = map
                && start.is_none_or(|start| map.at <= start)
            {
                self.slots[visit.map as usize] = self.mapping_at.len() as u32;
                self.mapping_at.push(visit.map);
                self.until.push(NONE);
                visit.map += 1;
            } else if let Some(&child) = child {
                visit.child += 1;
                if self.spans[child as usize].root == NONE {
                    let visit = self.enter(child as usize, first, children);
                    open.push(visit);
                }
            } else {
                let end = self.mapping_at.len() as u32;
                for slot in self.slots[own].iter().chain([&self.spans[visit.span as usize].slot]) {
                    self.until[*slot as usize] = end;
                }
                open.pop();
            }
        }
    }

    fn enter(&mut self, span: usize, root: u32, children: &Children) -> Visit {
        let slot = self.mapping_at.len() as u32;
        self.mapping_at.push(NONE);
        self.until.push(NONE);
        let entered = &mut self.spans[span];
        (entered.slot, entered.root) = (slot, root);
        Visit { span: span as u32, map: entered.maps, child: children.of(span).start as u32 }
    }

    /// The mapping at an address of a space at a time, and the times for which this result holds.
    pub fn find(&self, space: Space, address: u64, at: OrderKey) -> (Option<Hit>, Range<OrderKey>) {
        let Some(spans) = self.spans_of(space.key()) else {
            return (None, OrderKey::ALL);
        };
        let after = spans.start + self.spans[spans.clone()].partition_point(|span| span.start <= at);
        let next = self.spans[after..spans.end].first().map_or(OrderKey::END, |span| span.start);
        if after == spans.start {
            return (None, OrderKey::FIRST..next);
        }
        let span = after - 1;
        let own = self.maps_of(span);
        let old = own.start + self.maps[own.clone()].partition_point(|map| map.at <= at);
        let until = self.maps[old..own.end].first().map_or(next, |map| map.at);
        let start = self.spans[span].start;
        let from = self.maps[own.start..old].last().map_or(start, |newest| newest.at.max(start));
        let replaced = (self.spans[span].is_exec && span > spans.start).then(|| span - 1);
        let newest = self
            .newest(span, own.start..old, address)
            .or_else(|| replaced.and_then(|span| self.newest(span, self.maps_of(span), address)));
        (newest.map(|map| map.hit), from..until)
    }

    /// The newest mapping over an address in a span with these mappings.
    fn newest(&self, span: usize, mapped: Range<usize>, address: u64) -> Option<&Map> {
        let span = &self.spans[span];
        // The parent's mappings at the time of the fork do not change any more.
        let slot = self.slots[mapped.clone()].last().map_or(span.slot, |&newest| newest) as usize;
        let root = span.root as usize;
        if slot - root >= FEW {
            // Its own mappings are newer than the inherited ones.
            let mut own = self.maps[mapped].iter().rev().take(FEW);
            if let Some(newest) = own.find(|map| (map.start..map.end).contains(&address)) {
                return Some(newest);
            }
            let at = self.large.binary_search_by_key(&span.root, |(root, _)| *root).ok()?;
            let mapping = self.large[at].1.find(address, slot as u32)?;
            return self.maps.get(self.mapping_at[mapping as usize] as usize);
        }
        (root..=slot).rev().find_map(|at| {
            let map = self.maps.get(self.mapping_at[at] as usize)?;
            ((map.start..map.end).contains(&address) && self.until[at] as usize > slot).then_some(map)
        })
    }

    pub(super) fn splits(&self, page: u64) -> bool {
        self.split_pages.binary_search(&page).is_ok()
    }
}

/// A span on the walk's stack, with its next mapping and the position of its next child in the list.
struct Visit {
    span: u32,
    map: u32,
    child: u32,
}

struct Children {
    first: Vec<u32>,
    list: Vec<u32>,
}

impl Children {
    fn new(parents: &[u32], spans: &[Span]) -> Children {
        let mut list: Vec<u32> =
            (0..parents.len() as u32).filter(|&span| parents[span as usize] != NONE).collect();
        list.sort_unstable_by_key(|&span| (parents[span as usize], spans[span as usize].start, span));
        let mut first = vec![0; parents.len() + 1];
        list.iter().for_each(|&span| first[parents[span as usize] as usize + 1] += 1);
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        Children { first, list }
    }

    fn of(&self, span: usize) -> Range<usize> {
        self.first[span] as usize..self.first[span + 1] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, Machine};
    use super::*;

    fn space(pid: u32) -> Space {
        Space { machine: Machine::Host, pid }
    }

    fn map(changes: &mut Changes, pid: u32, time: u64, start: u64, len: u64) {
        let dso =
            Dso { machine: Machine::Host, kernel: false, name: (*b"x").into(), identity: Identity::Unknown };
        changes.map(OrderKey::at(time), space(pid), start, len, dso, 0);
    }

    fn fork(changes: &mut Changes, pid: u32, parent: u32, time: u64) {
        changes.begin(space(pid), OrderKey::at(time), parent);
    }

    fn found(spaces: &AddressSpaces, pid: u32, address: u64, time: u64) -> Option<u32> {
        spaces.find(space(pid), address, OrderKey::at(time)).0.map(|hit| hit.mapping)
    }

    fn bytes_of<T>(of: &[T]) -> usize {
        std::mem::size_of_val(of)
    }

    fn bytes(spaces: &AddressSpaces) -> usize {
        let AddressSpaces { keys, first, spans, maps, slots, mapping_at, until, large, .. } = spaces;
        let large: usize = large.iter().map(|(_, newest)| 8 + newest.bytes()).sum();
        let slots = bytes_of(slots) + bytes_of(mapping_at) + bytes_of(until);
        bytes_of(keys) + bytes_of(first) + bytes_of(spans) + bytes_of(maps) + slots + large
    }

    #[test]
    fn a_fork_takes_at_most_100_bytes_however_much_its_parent_has_mapped() {
        let forks = 10_000;
        for depth in [false, true] {
            let mut changes = Changes::default();
            for page in 0..1000 {
                map(&mut changes, 1, 0, page << 12, 1 << 12);
            }
            let alone = bytes(&AddressSpaces::new(changes.clone()));
            for pid in 2..2 + forks {
                fork(&mut changes, pid, if depth { pid - 1 } else { 1 }, pid.into());
            }
            assert!(size_of::<Begin>() <= 24, "while they are collected");
            let spaces = AddressSpaces::new(changes);
            let each = (bytes(&spaces) - alone) / forks as usize;
            assert!(each <= 60, "{each} bytes, depth {depth}");
            assert_eq!(found(&spaces, 1 + forks, 999 << 12, u64::MAX), Some(999));
        }
    }

    #[test]
    fn a_lookup_takes_as_many_steps_at_any_depth_of_forks() {
        let steps = |depth: u32| {
            let mut changes = Changes::default();
            map(&mut changes, 1, 1, 1 << 40, 1 << 12);
            for pid in 2..=depth {
                fork(&mut changes, pid, pid - 1, u64::from(pid) * 2);
                map(&mut changes, pid, u64::from(pid) * 2 + 1, u64::from(pid) << 12, 1 << 12);
            }
            let spaces = AddressSpaces::new(changes);
            let (_, newest) = &spaces.large[0];
            // It has the mappings of each of its ancestors from before the fork, and none from after it.
            assert_eq!(found(&spaces, depth, 1 << 40, u64::MAX), Some(0));
            assert_eq!(found(&spaces, depth, 2 << 12, u64::MAX), Some(1));
            assert_eq!(found(&spaces, depth / 2, u64::from(depth) << 12, u64::MAX), None);
            newest.depth()
        };
        let (shallow, deep) = (steps(200), steps(20_000));
        assert!(deep <= 2 * shallow + 2, "{shallow} nodes at depth 200, {deep} at depth 20,000");
    }

    #[test]
    fn mappings_that_cover_one_another_are_listed_at_few_nodes() {
        let listed = |count: u64| {
            let mut changes = Changes::default();
            for number in 0..count {
                map(&mut changes, 1, number, number << 12, (2 * count - 2 * number) << 12);
            }
            let spaces = AddressSpaces::new(changes);
            assert_eq!(found(&spaces, 1, 5 << 12, u64::MAX), Some(5));
            assert_eq!(found(&spaces, 1, (2 * count - 5) << 12, u64::MAX), Some(4));
            spaces.large[0].1.bytes() as u64 / count
        };
        let (few, many) = (listed(1_000), listed(10_000));
        assert!(many <= few * 3 / 2, "{few} bytes a mapping of 1,000, {many} of 10,000");
    }

    #[test]
    fn mappings_of_a_child_end_with_it() {
        let mut changes = Changes::default();
        map(&mut changes, 1, 1, 0x1000, 0x1000);
        // Enough mappings to build a search tree.
        for pid in 2..100 {
            fork(&mut changes, pid, 1, 10 * u64::from(pid));
            map(&mut changes, pid, 10 * u64::from(pid) + 1, 0x1000, 0x1000);
        }
        map(&mut changes, 1, 5000, 0x1000, 0x1000);
        let spaces = AddressSpaces::new(changes);
        assert_eq!(found(&spaces, 1, 0x1000, 4999), Some(0));
        assert_eq!(found(&spaces, 1, 0x1000, 5000), Some(99));
        for pid in 2..100 {
            assert_eq!(found(&spaces, pid, 0x1000, 10 * u64::from(pid)), Some(0));
            assert_eq!(found(&spaces, pid, 0x1000, u64::MAX), Some(pid - 1));
        }
    }

    #[test]
    fn after_an_exec_old_mappings_count_until_new_ones_cover_them() {
        let mut changes = Changes::default();
        map(&mut changes, 1, 1, 0x1000, 0x3000);
        fork(&mut changes, 2, 1, 10);
        map(&mut changes, 2, 11, 0x2000, 0x1000);
        // An exec, the mapping of the new program, and another exec.
        fork(&mut changes, 2, KERNEL, 20);
        map(&mut changes, 2, 21, 0x3000, 0x1000);
        fork(&mut changes, 2, KERNEL, 30);
        // A new process with the pid of the old one inherits nothing from it.
        fork(&mut changes, 2, 3, 40);
        let spaces = AddressSpaces::new(changes);
        let at = |time| [0x1000, 0x2000, 0x3000].map(|address| found(&spaces, 2, address, time));
        assert_eq!(at(19), [Some(0), Some(1), Some(0)]);
        assert_eq!(at(20), [Some(0), Some(1), Some(0)]);
        assert_eq!(at(21), [Some(0), Some(1), Some(2)]);
        assert_eq!(at(30), [None, None, Some(2)]);
        assert_eq!(at(40), [None; 3]);
        let find = |pid, time| spaces.find(space(pid), 0x1000, OrderKey::at(time));
        assert_eq!(find(2, 20), (find(1, 5).0, OrderKey::at(20)..OrderKey::at(21)));
    }

    #[test]
    fn forks_in_a_circle_end() {
        let mut changes = Changes::default();
        map(&mut changes, 1, 7, 0x1000, 0x1000);
        fork(&mut changes, 1, 2, 7);
        fork(&mut changes, 2, 1, 7);
        let spaces = AddressSpaces::new(changes);
        assert_eq!(found(&spaces, 2, 0x2000, 8), None);
        assert_eq!(found(&spaces, 3, 0x1000, 8), None);
    }
}
