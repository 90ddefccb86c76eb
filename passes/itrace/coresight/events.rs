//! Builds the events of CoreSight samples, and determines the source of their times.

use std::collections::BTreeSet;

use perfx_auxtrace::CoreSight;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::{Event, sample_type as st};
use perfx_pipeline::{Result, bail};

use crate::itrace::code_events::CodeEvents;
use crate::itrace::events::Traced;
use crate::itrace::options::{DEFAULT, ItraceOptions, scale};

/// The constant inputs of decoding.
pub(super) type Context = crate::itrace::context::Context<CoreSight, Events>;

#[derive(Debug)]
pub(super) struct Events {
    pub(super) sampled: CodeEvents,
    /// The number of instructions from one sample to the next.
    pub(super) period: u64,
    pub(super) clock: Clock,
}

/// The source of the samples' times.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// The trace has no timestamps: samples have no time.
    None,
    /// The counter of the timestamps is unknown: samples have the times of AUX records.
    Records,
    /// Timestamps are values of the virtual counter, which this converts to times.
    Virtual(TimeConv),
}

impl Clock {
    fn of(options: &ItraceOptions, tracer: &CoreSight) -> Result<Clock> {
        let mut units = tracer.units.values();
        if options.timeless || !units.clone().any(|unit| unit.is_timed) {
            return Ok(Clock::None);
        }
        match tracer.conv {
            Some(conv) if options.timestamps || units.all(|unit| unit.is_virtual) => Ok(Clock::Virtual(conv)),
            None if options.timestamps => {
                bail!("--itrace=T needs a TIME_CONV record, which converts the timestamps: there is none")
            }
            _ => Ok(Clock::Records),
        }
    }
}

/// With a smaller period, building samples takes much of the time.
const MANY: u64 = 1 << 12;

impl Events {
    pub(super) fn of(options: &ItraceOptions, tracer: &CoreSight, all: &[Event]) -> Result<Events> {
        let traced = Traced::of(tracer.pmu_type.into(), all)?;
        let mut attr = traced.attr(0);
        let clock = Clock::of(options, tracer)?;
        attr.sample_type |= st::IP | st::TID | st::PERIOD | st::TIME;
        if matches!(clock, Clock::None) {
            attr.sample_type &= !st::TIME;
        }
        // perf interprets nanoseconds as a number of instructions.
        let given = options.time.map_or(DEFAULT, |(number, unit)| number.saturating_mul(scale(unit)));
        let period = options.every.unwrap_or(given).max(1);
        // As in perf, y selects no samples, but its period applies to i.
        let options = &ItraceOptions { cycles: false, ..*options };
        let mut ids = traced.ids(CodeEvents::IDS, BTreeSet::new(), all).into_iter();
        Ok(Events { sampled: CodeEvents::of(options, attr, period, &mut ids), period, clock })
    }

    /// True if there are many samples for each piece of code.
    pub(super) fn has_many(&self) -> bool {
        self.sampled.branches.is_some() || self.sampled.instructions.is_some() && self.period < MANY
    }
}
