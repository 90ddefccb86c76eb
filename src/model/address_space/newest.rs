//! Finds the newest of many overlapping mappings over an address at a slot, in logarithmic time.
//!
//! A segment tree: leaf n covers the addresses from bound n to the next bound, an inner node those of both
//! its children. A mapping is listed at the few nodes that together cover its addresses. Each node's list has
//! the newest of its mappings by slot.

use std::ops::Range;

use super::map::{Map, NONE};

#[derive(Debug)]
pub(super) struct Newest {
    bounds: Vec<u64>,
    /// The list of node n is `listed[first[n]..first[n + 1]]`. Node 1 is the root, 2n and 2n + 1 are the
    /// children of n, and leaf n is node `bounds.len()` + n.
    first: Vec<u32>,
    /// A slot, and the slot of the mapping that is the newest from there on, or [`NONE`].
    listed: Vec<(u32, u32)>,
}

impl Newest {
    /// Builds the tree of the mappings in all slots from `first_slot` on; `None` if there are none.
    pub(super) fn new(first_slot: usize, mapping_at: &[u32], until: &[u32], maps: &[Map]) -> Option<Newest> {
        let own = (0..).zip(&mapping_at[first_slot..]);
        let own = own.filter_map(|(number, &mapping)| Some((number, maps.get(mapping as usize)?)));
        // Sorted with their mappings, so that none must search for its leaves; slots without one have none.
        let mut ends: Vec<(u64, u32, u8)> =
            own.flat_map(|(number, map)| [(map.start, number, 0), (map.end, number, 1)]).collect();
        ends.sort_unstable_by_key(|(bound, ..)| *bound);
        let mut bounds: Vec<u64> = Vec::new();
        let mut leaves = vec![[0_u32; 2]; mapping_at.len() - first_slot];
        for (bound, number, end) in ends {
            if bounds.last() != Some(&bound) {
                bounds.push(bound);
            }
            leaves[number as usize][usize::from(end)] = bounds.len() as u32 - 1;
        }
        if bounds.is_empty() {
            return None;
        }
        let nodes = |slot: usize, each: &mut dyn FnMut(usize)| {
            let [from, until] = leaves[slot - first_slot].map(|leaf| bounds.len() + leaf as usize);
            nodes(from..until, each);
        };
        // A mapping that is valid to the end is listed once; any other is listed again where it ends.
        let ends = |slot: usize| (until[slot] as usize) < mapping_at.len();
        let mut first = vec![0_u32; 2 * bounds.len() + 1];
        for slot in first_slot..mapping_at.len() {
            nodes(slot, &mut |node| first[node + 1] += 1 + u32::from(ends(slot)));
        }
        for node in 1..first.len() {
            first[node] += first[node - 1];
        }
        let mut next = first.clone();
        let mut listed = vec![(NONE, NONE); first.last().map_or(0, |&len| len as usize)];
        // Valid mappings, the newest last: they end in the opposite order.
        let mut open: Vec<usize> = Vec::new();
        for slot in first_slot..mapping_at.len() {
            while let Some(&ended) = open.last().filter(|&&open| until[open] as usize <= slot) {
                open.pop();
                nodes(ended, &mut |node| {
                    let list = &listed[first[node] as usize..next[node] as usize];
                    // Entries after its own are nested in it; the entry before its own is valid again.
                    let own = list.partition_point(|&(from, _)| from as usize <= ended);
                    let before = own.checked_sub(2).map_or(NONE, |before| list[before].1);
                    listed[next[node] as usize] = (slot as u32, before);
                    next[node] += 1;
                });
            }
            nodes(slot, &mut |node| {
                listed[next[node] as usize] = (slot as u32, slot as u32);
                next[node] += 1;
            });
            if ends(slot) {
                open.push(slot);
            }
        }
        Some(Newest { bounds, first, listed })
    }

    /// The slot of the newest mapping over `address` that is valid at `slot`.
    pub(super) fn find(&self, address: u64, slot: u32) -> Option<u32> {
        let leaf = self.bounds.partition_point(|&bound| bound <= address).checked_sub(1)?;
        let mut node = self.bounds.len() + leaf;
        let mut newest = None;
        while node > 0 {
            let listed = &self.listed[self.first[node] as usize..self.first[node + 1] as usize];
            let after = listed.partition_point(|&(from, _)| from <= slot);
            let here = after.checked_sub(1).map(|last| listed[last].1).filter(|&slot| slot != NONE);
            newest = newest.max(here);
            node /= 2;
        }
        newest
    }
}

/// Calls `each` with the nodes that together cover these leaves.
fn nodes(Range { start: mut from, end: mut until }: Range<usize>, each: &mut dyn FnMut(usize)) {
    while from < until {
        if from % 2 == 1 {
            each(from);
            from += 1;
        }
        if until % 2 == 1 {
            until -= 1;
            each(until);
        }
        (from, until) = (from / 2, until / 2);
    }
}

#[cfg(test)]
impl Newest {
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.bounds) + size_of_val(&*self.first) + size_of_val(&*self.listed)
    }

    pub(super) fn depth(&self) -> u32 {
        (2 * self.bounds.len()).ilog2() + 1
    }
}
