//! Builds the branch stack of an SPE record: the branch itself, and the target of the branch before it.

use perfx_format::sample::{Branch, BranchFlags, branch_kind};
use perfx_format::spe::{Link, SpeRecord, events};

/// At most two branches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    branches: [Branch; 2],
    len: usize,
}

impl Stack {
    /// The stack with at most `most` branches.
    pub(super) fn of(record: &SpeRecord, most: u64) -> Stack {
        let none = Branch { from: 0, to: 0, flags: BranchFlags(0) };
        let mut stack = Stack { branches: [none; 2], len: 0 };
        if record.operation.is_branch && most > 0 {
            let (from, to) = (record.pc.unwrap_or(0), record.target.unwrap_or(0));
            stack.push(Branch { from, to, flags: flags(record) });
        }
        let previous = record.previous_target.filter(|&target| target != 0);
        if let Some(to) = previous.filter(|_| most > stack.len as u64) {
            stack.push(Branch { to, ..none });
        }
        stack
    }

    fn push(&mut self, branch: Branch) {
        self.branches[self.len] = branch;
        self.len += 1;
    }

    pub(super) fn branches(&self) -> &[Branch] {
        &self.branches[..self.len]
    }
}

fn flags(record: &SpeRecord) -> BranchFlags {
    let operation = &record.operation;
    let happened = |event: u64| record.events & event != 0;
    let is_return = operation.link == Some(Link::Return)
        // perf treats a branch to a register as a return if it is not a call.
        || operation.is_indirect && operation.link != Some(Link::Call);
    let kind = match (operation.link, operation.is_conditional) {
        (Some(Link::Call), false) => branch_kind::CALL,
        (Some(Link::Call), true) => branch_kind::COND_CALL,
        (_, false) if is_return => branch_kind::RET,
        (_, true) if is_return => branch_kind::COND_RET,
        (_, true) => branch_kind::COND,
        (Some(_), false) => branch_kind::UNCOND,
        (None, false) => branch_kind::UNKNOWN,
    };
    let bit = |event, bit| if happened(event) { bit } else { 0 };
    let predicted =
        if happened(events::MISPREDICTED) { BranchFlags::MISPRED } else { BranchFlags::PREDICTED };
    let bits = predicted
        | bit(events::TRANSACTIONAL, BranchFlags::IN_TX)
        | bit(events::NOT_TAKEN, BranchFlags::NOT_TAKEN);
    BranchFlags::made(kind, record.latency.unwrap_or(0), bits)
}
