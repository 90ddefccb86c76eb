//! Holds the constant inputs of decoding CoreSight.

use perfx_auxtrace::{Code, CoreSight, Recorded};
use perfx_format::{Endian, Event, sample_type as st};
use perfx_pipeline::Result;

use crate::itrace::code_events::CodeEvents;
use crate::itrace::events::Traced;
use crate::itrace::options::{DEFAULT, ItraceOptions, scale};

/// The selected events, and what belongs to their samples.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) sampled: CodeEvents,
    /// There is a sample after so many instructions.
    pub(super) period: u64,
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
        // perf takes nanoseconds for a number of instructions.
        let given = options.time.map_or(DEFAULT, |(number, unit)| number.saturating_mul(scale(unit)));
        let period = options.every.unwrap_or(given).max(1);
        let mut ids = traced.ids(2, all).into_iter();
        Ok(Events { sampled: CodeEvents::of(options, attr, period, &mut ids), period, timed })
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
