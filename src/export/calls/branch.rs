//! Branches of threads that may lead to another function.

use foldhash::fast::RandomState;
use indexmap::IndexSet;
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
    pub(super) branches: Vec<Branch<u32>>,
}

/// A thread, or a CPU if the thread has no number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Runner {
    pub(super) machine: Machine,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: u32,
}

/// A branch that may lead to another function. `P` is a place: the number of a frame, or its function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch<P> {
    pub(super) runner: Runner,
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
    pub(super) fn has(&self, flags: u32) -> bool {
        self.flags.0 & flags != 0
    }
}
