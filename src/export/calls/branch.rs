//! Branches of threads that may lead to another function.

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::FlowFlags;
use perfx_model::address_space::Machine;

use crate::chains::StackTree;
use crate::stacks::Label;

/// The branches of one batch.
#[derive(Default)]
pub(super) struct Part {
    /// The frames of the branches; there are no stacks.
    pub(super) tree: StackTree,
    pub(super) labels: IndexSet<Label, RandomState>,
    pub(super) seen: Vec<Seen>,
}

/// A branch, or a switch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    Branch(Branch<u32>),
    Switch(Switch),
}

/// A thread leaves its CPU, or begins to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    pub(super) runner: Runner,
    pub(super) time: u64,
    pub(super) leaves: bool,
}

/// A thread, or a CPU if the thread has no number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Runner {
    pub(super) machine: Machine,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: u32,
}

impl Runner {
    pub(super) fn new(machine: Machine, (pid, tid): (u32, u32), cpu: u32) -> Runner {
        // Each CPU has an idle thread, and threads without a number are known only by their CPU.
        let cpu = if matches!(tid, 0 | Auxtrace::ANY) { cpu } else { Auxtrace::ANY };
        Runner { machine, pid, tid, cpu }
    }
}

/// A branch that may lead to another function. `P` is a place: the number of a frame, or its function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch<P> {
    pub(super) runner: Runner,
    pub(super) cpu: u32,
    pub(super) time: u64,
    /// `None` where tracing begins and ends.
    pub(super) from: Option<P>,
    pub(super) to: Option<P>,
    /// The target, and the address after the branch.
    pub(super) address: u64,
    pub(super) behind: u64,
    pub(super) flags: FlowFlags,
    pub(super) label: u32,
    pub(super) is_chosen: bool,
}

impl<P> Branch<P> {
    /// The same branch between other places, with another label.
    pub(super) fn at<Q>(&self, from: Option<Q>, to: Option<Q>, label: u32) -> Branch<Q> {
        let Branch { runner, cpu, time, address, behind, flags, is_chosen, .. } = *self;
        Branch { runner, cpu, time, from, to, address, behind, flags, label, is_chosen }
    }

    pub(super) fn has(&self, flags: u32) -> bool {
        self.flags.0 & flags != 0
    }
}
