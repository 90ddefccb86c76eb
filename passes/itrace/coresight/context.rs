//! The events that decoding makes, and its constant inputs.

use perfx_auxtrace::{Code, CoreSight, Recorded};
use perfx_format::{Attr, Endian, Event, sample_type as st};
use perfx_pipeline::Result;

use crate::itrace::events::{BRANCHES, Decoded, INSTRUCTIONS, Traced, modifier};
use crate::itrace::options::{DEFAULT, ItraceOptions, scale};

/// The selected events, and what belongs to their samples.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) branches: Option<Decoded>,
    pub(super) instructions: Option<Decoded>,
    /// There is a sample after so many instructions.
    pub(super) period: u64,
    /// The most branches of a sample.
    pub(super) stack: usize,
    /// Of the branches only calls, only returns; both or neither.
    pub(super) calls: bool,
    pub(super) returns: bool,
    /// Whether samples have a time.
    pub(super) timed: bool,
}

/// Bit 28 of `attr.config` of an event of CoreSight: the trace has timestamps.
const TIMESTAMPS: u64 = 1 << 28;

impl Events {
    pub(super) fn of(options: &ItraceOptions, pmu_type: u32, all: &[Event]) -> Result<Events> {
        let traced = Traced::of(pmu_type.into(), all)?;
        let mut attr = traced.attr(0);
        let is_of_pmu = |event: &&Event| event.attr().type_ == pmu_type;
        let timed = all.iter().filter(is_of_pmu).any(|event| event.attr().config & TIMESTAMPS != 0);
        attr.sample_type |= st::IP | st::TID | st::PERIOD | st::TIME;
        if !timed {
            attr.sample_type &= !st::TIME;
        }
        let mut ids = traced.ids(2, all).into_iter();
        let mut event = |is_selected: bool, name: &str, change: &dyn Fn(&mut Attr)| {
            let mut attr = attr;
            change(&mut attr);
            let name = format!("{name}{}", modifier(&attr));
            is_selected.then(|| Some(Decoded { name, id: ids.next()?, attr })).flatten()
        };
        let branches = event(options.branches, "branches", &|attr| {
            attr.config = BRANCHES;
            attr.sample_type |= st::ADDR;
            attr.sample_period = 1;
        });
        // perf takes nanoseconds for a number of instructions.
        let given = options.time.map_or(DEFAULT, |(number, unit)| number.saturating_mul(scale(unit)));
        let period = options.every.unwrap_or(given).max(1);
        let instructions = event(options.instructions, "instructions", &|attr| {
            attr.config = INSTRUCTIONS;
            attr.sample_type &= !st::ADDR;
            attr.sample_period = period;
            if options.stack > 0 {
                attr.sample_type |= st::BRANCH_STACK;
                attr.branch_sample_type = perfx_format::sample::BRANCH_HW_INDEX;
            }
        });
        Ok(Events {
            branches,
            instructions,
            period,
            stack: usize::try_from(options.stack).unwrap_or(0),
            calls: options.calls,
            returns: options.returns,
            timed,
        })
    }
}

/// The constant inputs of decoding.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) recorded: Recorded<CoreSight>,
    pub(super) code: Code,
    pub(super) events: Events,
    pub(super) endian: Endian,
}
