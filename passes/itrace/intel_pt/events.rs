//! Determines from the options which Intel PT samples and error records are made.

use perfx_auxtrace::{IntelPt, Task};
use perfx_format::record::pt_info::PtInfo;
use perfx_format::sample::BRANCH_HW_INDEX;
use perfx_format::{Event, sample_type as st};
use perfx_pipeline::Result;

use super::cycles::Cycles;
use super::non_flow_events::NonFlowEvents;
use super::pebs::Pebs;
use super::period::Period;
use crate::itrace::code_events::CodeEvents;
use crate::itrace::events::{Decoded, Traced};
use crate::itrace::options::{DEFAULT, ItraceOptions, scale};

/// The constant inputs of decoding.
pub(super) type Context = crate::itrace::context::Context<IntelPt, Events>;

/// The selected events, and the settings of their samples.
#[derive(Clone, Debug)]
pub(super) struct Events {
    pub(super) sampled: CodeEvents,
    pub(super) non_flow: NonFlowEvents,
    /// The events whose samples are in the trace.
    pub(super) pebs: Pebs,
    /// True if samples have times.
    pub(super) is_timed: bool,
    /// The number of samples left out at the beginning.
    pub(super) skip: u64,
    pub(super) period: Period,
    /// Core cycles at the beginning, if samples need them.
    pub(super) cycles: Option<Cycles>,
    /// True if there are error records: any, of lost packets, of lost data.
    pub(super) errors: bool,
    pub(super) overflows: bool,
    pub(super) lost: bool,
}

impl Events {
    pub(super) fn of(
        options: &ItraceOptions,
        tracer: &IntelPt,
        tasks: &[Task],
        all: &[Event],
    ) -> Result<Events> {
        let info = &tracer.info;
        let traced = Traced::of(info.pmu_type, all)?;
        let mut attr = traced.attr(0);
        attr.sample_type |= st::IP | st::TID | st::PERIOD;
        let clock = tracer.clock();
        let is_timed = clock.conv.is_some() && !options.timeless;
        attr.sample_type |= st::TIME;
        if !is_timed {
            attr.sample_type &= !st::TIME;
        }
        if !info.is_per_cpu {
            attr.sample_type &= !st::CPU;
        }
        if options.recorded_stack > 0 {
            // As in perf 7.3: the stacks of decoded samples are those of `l`, or empty.
            attr.sample_type |= st::BRANCH_STACK;
            attr.branch_sample_type = BRANCH_HW_INDEX;
        }
        let (period, sample_period) = match (options.every, options.time) {
            (Some(every), _) => (Period::Instructions(every), every),
            (None, Some((ticks, "t"))) => (Period::of_ticks(ticks), ticks),
            (None, time) => {
                let ns = time.map_or(DEFAULT, |(number, unit)| number.saturating_mul(scale(unit)));
                let ticks = clock.ticks(ns.wrapping_add(clock.time(0)));
                (Period::of_ticks(ticks), ticks)
            }
        };
        let config = tracer.event_config;
        let has = |bit: u64| config & bit != 0;
        let recorded_events = (has(PtInfo::POWER), has(PtInfo::EVENT_TRACE), info.has_event_trace);
        let vcpus = tasks.iter().filter_map(|task| task.vcpu).collect();
        let mut ids = traced.ids(CodeEvents::IDS + NonFlowEvents::IDS, vcpus, all).into_iter();
        Ok(Events {
            sampled: CodeEvents::of(options, attr, sample_period, &mut ids),
            non_flow: NonFlowEvents::of(options, attr, recorded_events, &mut ids),
            pebs: if options.pebs { Pebs::of(tracer, all, is_timed) } else { Pebs::default() },
            is_timed,
            skip: options.skip,
            period,
            cycles: (options.cycles || options.extras.counts).then(|| Cycles::new(options.approximate)),
            errors: options.errors,
            overflows: options.errors && !options.no_overflows,
            lost: options.errors && !options.no_lost,
        })
    }

    /// True if building the samples takes longer than decoding the trace.
    pub(super) fn has_many(&self) -> bool {
        let (Period::Instructions(period) | Period::Ticks(period)) = self.period;
        self.sampled.branches.is_some() || self.sampled.counts() && period < FEW
    }

    /// All selected events, in the order of their ids.
    pub(super) fn decoded(&self) -> Vec<Decoded> {
        self.sampled.decoded().into_iter().chain(self.non_flow.decoded().cloned()).collect()
    }
}

/// From this period on, building samples is a small part of the work.
const FEW: u64 = 1 << 12;
