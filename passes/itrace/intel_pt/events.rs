//! Makes the events of decoded samples, with perf's names.

use perfx_auxtrace::Recorded;
use perfx_format::sample::BRANCH_HW_INDEX;
use perfx_format::{Attr, Event, sample_type as st};
use perfx_pipeline::Result;

use crate::itrace::events::{BRANCHES, Decoded, INSTRUCTIONS, Traced, modifier};
use crate::itrace::options::{DEFAULT, ItraceOptions, scale};

/// The selected events, and what belongs to their samples.
#[derive(Clone, Debug)]
pub(super) struct Events {
    pub(super) branches: Option<Decoded>,
    pub(super) instructions: Option<Decoded>,
    pub(super) period: Period,
    /// The most branches of a sample.
    pub(super) stack: usize,
    /// Of the branches only calls, only returns; both or neither.
    pub(super) calls: bool,
    pub(super) returns: bool,
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
        let (period, sample_period) = match (options.every, options.time) {
            (Some(every), _) => (Period::Instructions(every), every),
            (None, Some((ticks, "t"))) => (ticks_of(ticks), ticks),
            (None, time) => {
                let ns = time.map_or(DEFAULT, |(number, unit)| number.saturating_mul(scale(unit)));
                let ticks = clock.ticks(ns.wrapping_add(clock.time(0)));
                (ticks_of(ticks), ticks)
            }
        };
        let instructions = event(options.instructions, "instructions", &|attr| {
            attr.config = INSTRUCTIONS;
            attr.sample_type &= !st::ADDR;
            attr.sample_period = sample_period;
            if options.stack > 0 {
                attr.sample_type |= st::BRANCH_STACK;
                attr.branch_sample_type = BRANCH_HW_INDEX;
            }
        });
        Ok(Events {
            branches,
            instructions,
            period,
            stack: usize::try_from(options.stack).unwrap_or(0),
            calls: options.calls,
            returns: options.returns,
            errors: options.errors,
            overflows: options.errors && !options.no_overflows,
            lost: options.errors && !options.no_lost,
        })
    }

    /// All of them, in the order of their ids.
    pub(super) fn decoded(&self) -> Vec<Decoded> {
        self.branches.iter().chain(&self.instructions).cloned().collect()
    }
}

/// A period of ticks is rounded down to a power of two; without ticks there is a sample of every instruction.
fn ticks_of(ticks: u64) -> Period {
    match ticks.checked_ilog2() {
        Some(log) => Period::Ticks(1 << log),
        None => Period::Instructions(1),
    }
}
