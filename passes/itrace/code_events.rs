//! Makes the events of the samples that are decoded from traces of code, with perf's names.

use perfx_format::sample::BRANCH_HW_INDEX;
use perfx_format::{Attr, Event, sample_type as st};

use super::events::{BRANCHES, Decoded, INSTRUCTIONS, Traced, modifier};
use super::options::ItraceOptions;

/// The selected events, and what belongs to their samples.
#[derive(Clone, Debug)]
pub(super) struct CodeEvents {
    pub(super) branches: Option<Decoded>,
    pub(super) instructions: Option<Decoded>,
    /// The most branches of a sample.
    pub(super) stack: usize,
    /// Of the branches only calls, only returns; both or neither.
    pub(super) calls: bool,
    pub(super) returns: bool,
}

impl CodeEvents {
    /// Makes the events from what their attrs have in common. `period` is that of the samples of instructions.
    pub(super) fn of(
        options: &ItraceOptions,
        (traced, common): (Traced<'_>, Attr),
        period: u64,
        all: &[Event],
    ) -> CodeEvents {
        let mut ids = traced.ids(2, all).into_iter();
        let mut event = |is_selected: bool, name: &str, change: &dyn Fn(&mut Attr)| {
            let mut attr = common;
            change(&mut attr);
            let name = format!("{name}{}", modifier(&attr));
            is_selected.then(|| Some(Decoded { name, id: ids.next()?, attr })).flatten()
        };
        let branches = event(options.branches, "branches", &|attr| {
            attr.config = BRANCHES;
            attr.sample_type |= st::ADDR;
            attr.sample_period = 1;
        });
        let instructions = event(options.instructions, "instructions", &|attr| {
            attr.config = INSTRUCTIONS;
            attr.sample_type &= !st::ADDR;
            attr.sample_period = period;
            if options.stack > 0 {
                attr.sample_type |= st::BRANCH_STACK;
                attr.branch_sample_type = BRANCH_HW_INDEX;
            }
        });
        CodeEvents {
            branches,
            instructions,
            stack: usize::try_from(options.stack).unwrap_or(0),
            calls: options.calls,
            returns: options.returns,
        }
    }

    /// All of them, in the order of their ids.
    pub(super) fn decoded(&self) -> Vec<Decoded> {
        self.branches.iter().chain(&self.instructions).cloned().collect()
    }
}
