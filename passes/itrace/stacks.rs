//! Keeps the last branches and the calls of each thread of a buffer.

use std::collections::HashMap;

use perfx_auxtrace::{Calls, Change, Function, Task};
use perfx_format::record::cpumode::KERNEL_START;
use perfx_format::sample::{Branch, BranchFlags};
use perfx_model::address_space::Machine;
use perfx_trace::{Blocks, PathId, Space};

use super::ring::Ring;

#[derive(Clone, Debug)]
pub(super) struct Stacks {
    /// Maximum of branches kept for a thread.
    most: usize,
    /// Maximum of entries in a chain.
    chain: usize,
    /// Calls are kept.
    keeps_calls: bool,
    /// For each thread that is not running: its last stay on this CPU, and its history.
    histories: HashMap<ThreadKey, (Space, History)>,
    /// The running thread.
    current: Option<(ThreadKey, Space)>,
    history: History,
}

/// A thread: its machine and thread id.
type ThreadKey = (Machine, u32);

#[derive(Clone, Default, Debug)]
struct History {
    ring: Ring,
    calls: Calls,
}

impl Stacks {
    /// Calls are kept for chains, and for `depths`.
    pub(super) fn new(most: usize, chain: usize, depths: bool) -> Stacks {
        let (keeps_calls, history) = (chain > 0 || depths, History::default());
        Stacks { most, chain, keeps_calls, histories: HashMap::new(), current: None, history }
    }

    /// True if anything is kept.
    #[inline(always)]
    pub(super) fn are_kept(&self) -> bool {
        self.most > 0 || self.keeps_calls
    }

    /// Another thread runs: `space` is its stay on the CPU.
    pub(super) fn switch(&mut self, task: Task, space: Option<Space>) {
        let key = (task.machine(), task.tid);
        let next = space.map(|space| (key, space));
        if !self.are_kept() || next == self.current {
            return;
        }
        let history = std::mem::take(&mut self.history);
        let histories = &mut self.histories;
        if let Some((key, space)) = self.current {
            histories.insert(key, (space, history));
        }
        self.current = next;
        // As in perf, the history of a thread ends when it has run on another CPU.
        let kept = next.and_then(|(key, space)| Some((histories.remove(&key)?, space)));
        let known = kept.filter(|((stay, _), space)| stay == space);
        self.history = known.map(|((_, history), _)| history).unwrap_or_default();
    }

    /// Data is lost: the histories end here.
    pub(super) fn forget(&mut self) {
        self.histories.clear();
        self.history = History::default();
    }

    #[inline(always)]
    pub(super) fn push(&mut self, from: u64, to: u64, flags: u64) {
        if self.most > 0 {
            self.history.ring.push(Branch { from, to, flags: BranchFlags(flags) }, self.most);
        }
    }

    /// Applies the change of a branch to the calls, if kept. `function` finds the function at an address now.
    #[inline(always)]
    pub(super) fn call(
        &mut self,
        to: u64,
        change: impl FnOnce() -> Change,
        ends: bool,
        function: impl Fn(u64) -> Option<Function>,
    ) {
        if self.keeps_calls {
            self.history.calls.branch(to, change(), ends, function);
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.history.calls.depth()
    }

    /// The call chain of an instruction, with its markers.
    pub(super) fn chain(&self, ip: u64) -> Vec<u64> {
        self.shorter_chain(ip, 0)
    }

    /// The same, shorter by `fewer` entries.
    pub(super) fn shorter_chain(&self, ip: u64, fewer: usize) -> Vec<u64> {
        match self.chain {
            0 => Vec::new(),
            most => self.history.calls.chain(ip, most.saturating_sub(fewer)),
        }
    }

    /// Adds the branches of paths with these flags, as many as are kept, and their calls.
    pub(super) fn extend(
        &mut self,
        paths: &[PathId],
        blocks: &Blocks,
        flags: u64,
        function: impl Fn(u64) -> Option<Function>,
    ) {
        if self.keeps_calls {
            for step in paths.iter().flat_map(|id| blocks.steps(*id)) {
                if let Some(to) = step.to {
                    self.call(blocks[to].start, || Change::of(&blocks[step.block]), false, &function);
                }
            }
        }
        let mut count = 0;
        let last = paths.iter().rev().take_while(|id| {
            let is_kept = count < self.most;
            count += usize::from(blocks.path(**id).taken);
            is_kept
        });
        for id in &paths[paths.len() - last.count()..] {
            for step in blocks.steps(*id) {
                if let Some(to) = step.to {
                    self.push(blocks[step.block].last, blocks[to].start, flags);
                }
            }
        }
    }

    /// The history of a thread of the host, if known.
    fn history_of(&self, tid: u32) -> Option<&History> {
        let key = (Machine::Host, tid);
        match self.current {
            Some((current, _)) if current == key => Some(&self.history),
            _ => self.histories.get(&key).map(|(_, history)| history),
        }
    }

    /// The last branches of a thread, newest first, for a sample taken at `ip` some time after the event:
    /// without those that, as perf assumes, follow `ip`.
    pub(super) fn branches_before(&self, tid: u32, ip: u64, most: usize) -> Vec<Branch> {
        let Some(history) = self.history_of(tid) else { return Vec::new() };
        let is_user = |address: u64| address != 0 && address < KERNEL_START;
        let mut newer: Option<Branch> = None;
        let is_behind = |branch: &Branch| {
            let begins = if ip < KERNEL_START {
                is_user(branch.to)
            } else {
                // It is between two branches, or the beginning was missed.
                newer.is_some_and(|newer| (branch.to..=newer.from).contains(&ip))
                    || branch.from < KERNEL_START
                    || is_user(branch.to)
            };
            newer = Some(*branch);
            !begins
        };
        let branches = history.ring.pieces().into_iter().flatten().copied();
        branches.skip_while(is_behind).take(most).collect()
    }

    /// The call chain of a thread for such a sample.
    pub(super) fn chain_before(&self, tid: u32, ip: u64, most: usize) -> Vec<u64> {
        self.history_of(tid).map_or_else(Vec::new, |history| history.calls.chain_before(ip, most))
    }

    /// The last branches, newest first, in two pieces.
    pub(super) fn branches(&self) -> [&[Branch]; 2] {
        self.history.ring.pieces()
    }
}

#[cfg(test)]
mod tests {
    use perfx_auxtrace::Vcpu;

    use super::*;

    /// The branches of one used to be lost when the other ran.
    #[test]
    fn guest_and_host_threads_with_the_same_id_are_distinguished() {
        let vcpu = Some(Vcpu { machine_pid: 7, number: 0, tid: 9 });
        let host = Task { tid: 5, ..Task::UNKNOWN };
        let guest = Task { vcpu, ..host };
        let mut stacks = Stacks::new(4, 0, false);
        let mut run = |task, space, from| -> Vec<u64> {
            stacks.switch(task, Some(Space(space)));
            stacks.push(from, from + 8, 0);
            stacks.branches().concat().iter().map(|branch| branch.from).collect()
        };
        assert_eq!(run(host, 0, 0x10), [0x10]);
        assert_eq!(run(guest, 1, 0x20), [0x20]);
        assert_eq!(run(host, 0, 0x30), [0x30, 0x10]);
        assert_eq!(run(guest, 1, 0x40), [0x40, 0x20]);
        let of_host: Vec<u64> =
            stacks.branches_before(5, 0x100, 4).iter().map(|branch| branch.from).collect();
        assert_eq!(of_host, [0x30, 0x10]);
    }
}
