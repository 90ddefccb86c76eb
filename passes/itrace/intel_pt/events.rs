//! Reads from the options when there is a sample of a trace of Intel PT, and which errors get a record.

use perfx_auxtrace::Recorded;
use perfx_format::{Event, sample_type as st};
use perfx_pipeline::Result;

use crate::itrace::code_events::CodeEvents;
use crate::itrace::events::Traced;
use crate::itrace::options::{DEFAULT, ItraceOptions, scale};

/// The selected events, and what belongs to them.
#[derive(Clone, Debug)]
pub(super) struct Events {
    pub(super) sampled: CodeEvents,
    pub(super) period: Period,
    /// Whether there are records of errors: of any, of lost packets, of lost data.
    pub(super) errors: bool,
    pub(super) overflows: bool,
    pub(super) lost: bool,
}

/// When there is a sample of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Period {
    /// After so many instructions.
    Instructions(u64),
    /// At multiples of a power of two of ticks.
    Ticks(u64),
}

impl Events {
    /// Makes the events.
    pub(super) fn of(options: &ItraceOptions, recorded: &Recorded, all: &[Event]) -> Result<Events> {
        let info = &recorded.tracer.info;
        let traced = Traced::of(info.pmu_type, all)?;
        let mut attr = traced.attr(0);
        attr.sample_type |= st::IP | st::TID | st::PERIOD;
        let clock = recorded.clock();
        attr.sample_type |= st::TIME;
        if clock.conv.is_none() {
            attr.sample_type &= !st::TIME;
        }
        if !info.is_per_cpu {
            attr.sample_type &= !st::CPU;
        }
        let (period, sample_period) = match (options.every, options.time) {
            (Some(every), _) => (Period::Instructions(every), every),
            (None, Some((ticks, "t"))) => (ticks_of(ticks), ticks),
            (None, time) => {
                let ns = time.map_or(DEFAULT, |(number, unit)| number.saturating_mul(scale(unit)));
                let ticks = clock.ticks(ns.wrapping_add(clock.time(0)));
                (ticks_of(ticks), ticks)
            }
        };
        Ok(Events {
            sampled: CodeEvents::of(options, (traced, attr), sample_period, all),
            period,
            errors: options.errors,
            overflows: options.errors && !options.no_overflows,
            lost: options.errors && !options.no_lost,
        })
    }
}

/// A period of ticks is rounded down to a power of two; without ticks there is a sample of every instruction.
fn ticks_of(ticks: u64) -> Period {
    match ticks.checked_ilog2() {
        Some(log) => Period::Ticks(1 << log),
        None => Period::Instructions(1),
    }
}
