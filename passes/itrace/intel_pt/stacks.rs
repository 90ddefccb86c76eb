//! Keeps the last branches of each thread.

use std::collections::HashMap;

use perfx_format::sample::{Branch, BranchFlags};
use perfx_trace::{Blocks, PathId, Space};

/// The last branches of the threads in a buffer.
#[derive(Debug)]
pub(super) struct Stacks {
    /// The most that are kept of one thread.
    most: usize,
    /// For each thread, its stay on this CPU, and its branches then.
    rings: HashMap<u32, (Space, Ring)>,
    /// The thread that runs now.
    current: Option<(u32, Space)>,
    ring: Ring,
}

/// The branches, the last of which is at `end` - 1; older ones are overwritten.
#[derive(Clone, Default, Debug)]
struct Ring {
    branches: Vec<Branch>,
    end: usize,
}

impl Stacks {
    pub(super) fn new(most: usize) -> Stacks {
        Stacks { most, rings: HashMap::new(), current: None, ring: Ring::default() }
    }

    /// Another thread runs: `space` is its stay on the CPU, `tid` its number.
    pub(super) fn switch(&mut self, tid: u32, space: Option<Space>) {
        let next = space.map(|space| (tid, space));
        if self.most == 0 || next == self.current {
            return;
        }
        let ring = std::mem::take(&mut self.ring);
        if let Some((tid, space)) = self.current {
            self.rings.insert(tid, (space, ring));
        }
        self.current = next;
        // What it did on another CPU in between is not known here.
        let known = next.and_then(|(tid, space)| self.rings.remove(&tid).filter(|(stay, _)| *stay == space));
        self.ring = known.map(|(_, ring)| ring).unwrap_or_default();
    }

    /// Data is lost: nothing follows on what is known.
    pub(super) fn forget(&mut self) {
        self.rings.clear();
        self.ring = Ring::default();
    }

    #[inline(always)]
    pub(super) fn push(&mut self, from: u64, to: u64, flags: u64) {
        if self.most == 0 {
            return;
        }
        let branch = Branch { from, to, flags: BranchFlags(flags) };
        let ring = &mut self.ring;
        if ring.end == self.most {
            ring.end = 0;
        }
        match ring.branches.get_mut(ring.end) {
            Some(oldest) => *oldest = branch,
            None => ring.branches.push(branch),
        }
        ring.end += 1;
    }

    /// Adds the branches of some paths, or those that are kept of them.
    pub(super) fn extend(&mut self, paths: &[PathId], blocks: &Blocks) {
        let mut count = 0;
        let last = paths.iter().rev().take_while(|id| {
            let is_kept = count < self.most;
            count += usize::from(blocks.path(**id).taken);
            is_kept
        });
        for id in &paths[paths.len() - last.count()..] {
            for step in blocks.steps(*id) {
                if let Some(to) = step.to {
                    self.push(blocks[step.block].last, blocks[to].start, 0);
                }
            }
        }
    }

    /// The branches, newest first.
    pub(super) fn get(&self) -> Vec<Branch> {
        let (new, old) = self.ring.branches.split_at(self.ring.end);
        new.iter().rev().chain(old.iter().rev()).copied().collect()
    }
}
