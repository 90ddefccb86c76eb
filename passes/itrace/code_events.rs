//! Builds the events of samples decoded from traces of code, with perf's names.

use perfx_format::sample::BRANCH_HW_INDEX;
use perfx_format::{Attr, sample_type as st};

use super::events::{BRANCHES, CYCLES, Decoded, EventIds, INSTRUCTIONS, modifier};
use super::flow::Class;
use super::options::{Extras, ItraceOptions};

/// The selected events, and the settings of their samples.
#[derive(Clone, Debug)]
pub(super) struct CodeEvents {
    pub(super) branches: Option<Decoded>,
    pub(super) instructions: Option<Decoded>,
    /// Cycles, at some of the sampled instructions.
    pub(super) cycles: Option<Decoded>,
    /// Maximum of branches in a sample.
    pub(super) stack: usize,
    /// Maximum of entries in its call chain.
    pub(super) chain: usize,
    pub(super) extras: Extras,
    /// Only calls, or returns, or both; with neither, all branches.
    pub(super) calls: bool,
    pub(super) returns: bool,
    /// With either, unconditional jumps, too.
    pub(super) jumps: bool,
}

impl CodeEvents {
    /// The maximum number of ids.
    pub(super) const IDS: usize = 3;

    /// Builds the events from the common attr and the next ids; `period` is that of instructions.
    pub(super) fn of(
        options: &ItraceOptions,
        common: Attr,
        period: u64,
        ids: &mut impl Iterator<Item = EventIds>,
    ) -> CodeEvents {
        let mut event = |is_selected: bool, name: &str, change: &dyn Fn(&mut Attr)| {
            let mut attr = common;
            change(&mut attr);
            if options.extras.flow {
                attr.sample_type |= st::RAW;
            }
            let name = format!("{name}{}", modifier(&attr));
            is_selected.then(|| Some(Decoded { name, ids: ids.next()?, attr })).flatten()
        };
        let branches = event(options.branches, "branches", &|attr| {
            attr.config = BRANCHES;
            attr.sample_type |= st::ADDR;
            attr.sample_period = 1;
        });
        let counting = |attr: &mut Attr, config| {
            attr.config = config;
            attr.sample_type &= !st::ADDR;
            if options.extras.targets {
                attr.sample_type |= st::ADDR;
            }
            attr.sample_period = period;
            add_history(options, attr);
        };
        let instructions = event(options.instructions, "instructions", &|attr| counting(attr, INSTRUCTIONS));
        let cycles = event(options.cycles, "cycles", &|attr| counting(attr, CYCLES));
        CodeEvents {
            branches,
            instructions,
            cycles,
            stack: usize::try_from(options.stack).unwrap_or(0),
            chain: usize::try_from(options.chain).unwrap_or(0),
            extras: options.extras,
            calls: options.calls,
            returns: options.returns,
            jumps: options.jumps,
        }
    }

    /// True if branches of this class are selected.
    #[inline(always)]
    pub(super) fn selects(&self, class: Class) -> bool {
        match class {
            _ if !self.calls && !self.returns => true,
            Class::Call | Class::End => self.calls,
            Class::Return | Class::Begin => self.returns,
            Class::Edge => true,
            Class::Jump => self.jumps,
            Class::Other => false,
        }
    }

    /// True if samples of branches refer to a table: they have neither counts nor code.
    pub(super) fn shares_branches(&self) -> bool {
        self.jumps
    }

    /// True if samples of instructions and cycles contain the preceding branches or calls.
    pub(super) fn has_history(&self) -> bool {
        self.stack > 0 || self.chain > 0
    }

    /// The events of branches, instructions and cycles, in the order of their ids.
    pub(super) fn decoded(&self) -> Vec<Decoded> {
        [&self.branches, &self.instructions, &self.cycles].into_iter().flatten().cloned().collect()
    }

    pub(super) fn counts(&self) -> bool {
        self.instructions.is_some() || self.cycles.is_some()
    }
}

/// Adds call chains and branch stacks to the samples of an event.
pub(super) fn add_history(options: &ItraceOptions, attr: &mut Attr) {
    if options.chain > 0 {
        attr.sample_type |= st::CALLCHAIN;
    }
    if options.stack > 0 {
        attr.sample_type |= st::BRANCH_STACK;
        attr.branch_sample_type = BRANCH_HW_INDEX;
    }
}
