//! Branches of threads that may lead to another function.

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::FlowFlags;
use perfx_model::address_space::Machine;

use crate::chains::StackTree;
use crate::stacks::Label;

/// The branches and switches of one batch. Equal branches are stored once: most are taken again and again.
#[derive(Default)]
pub(super) struct Part {
    /// The number of the reader. Its events are numbered through all its batches, or again from this one.
    pub(super) reader: usize,
    pub(super) is_anew: bool,
    /// The frames of the new events; there are no stacks.
    pub(super) tree: StackTree,
    pub(super) labels: IndexSet<Label, RandomState>,
    /// The events that no earlier batch has.
    pub(super) events: Vec<Event<u32>>,
    /// The number of each event, and its time, in their order.
    pub(super) seen: Vec<(u32, u64)>,
}

/// An event of a thread: it takes a branch, leaves its CPU, or begins to run. `P` is as for [`Branch`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<P> {
    Branch(Branch<P>),
    Switch { runner: Runner, leaves: bool },
}

/// A thread, or a CPU if the thread has no number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
    /// This branch with other places and another label.
    pub(super) fn at<Q>(&self, from: Option<Q>, to: Option<Q>, label: u32) -> Branch<Q> {
        let Branch { runner, cpu, address, behind, flags, is_chosen, .. } = *self;
        Branch { runner, cpu, from, to, address, behind, flags, label, is_chosen }
    }

    pub(super) fn has(&self, flags: u32) -> bool {
        self.flags.0 & flags != 0
    }
}
