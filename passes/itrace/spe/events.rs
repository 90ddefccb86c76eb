//! Builds the events of decoded samples, with perf's names, and selects the events of a record.

use std::collections::BTreeSet;

use perfx_format::sample::BRANCH_HW_INDEX;
use perfx_format::spe::{SpeRecord, events};
use perfx_format::{Event, named, sample_type as st};
use perfx_model::spe::is_of_memory;
use perfx_pipeline::Result;

use crate::itrace::events::{Decoded, Traced};
use crate::itrace::options::ItraceOptions;

named! {
    /// The kinds of events, in perf's order.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub(super) enum Kind {
        L1dMiss = "l1d-miss",
        L1dAccess = "l1d-access",
        LlcMiss = "llc-miss",
        LlcAccess = "llc-access",
        TlbMiss = "tlb-miss",
        TlbAccess = "tlb-access",
        Branch = "branch",
        RemoteAccess = "remote-access",
        Memory = "memory",
        Instructions = "instructions",
    }
    fn name
}

impl Kind {
    fn is_selected(self, options: &ItraceOptions) -> bool {
        match self {
            Kind::L1dMiss | Kind::L1dAccess => options.first_level,
            Kind::LlcMiss | Kind::LlcAccess => options.last_level,
            Kind::TlbMiss | Kind::TlbAccess => options.tlb,
            Kind::Branch => options.branches,
            Kind::RemoteAccess => options.remote,
            Kind::Memory => options.memory,
            Kind::Instructions => options.instructions,
        }
    }

    fn has(self, record: &SpeRecord) -> bool {
        let happened = |event| record.events & event != 0;
        match self {
            Kind::L1dMiss => happened(events::L1D_REFILL),
            Kind::L1dAccess => happened(events::L1D_ACCESS),
            Kind::LlcMiss => happened(events::LLC_MISS),
            Kind::LlcAccess => happened(events::LLC_ACCESS),
            Kind::TlbMiss => happened(events::TLB_WALK),
            Kind::TlbAccess => happened(events::TLB_ACCESS),
            Kind::Branch => record.operation.is_branch,
            Kind::RemoteAccess => happened(events::REMOTE_ACCESS),
            Kind::Memory => is_of_memory(record),
            Kind::Instructions => true,
        }
    }

    /// True if its address is in code, and its samples have branches.
    pub(super) fn is_of_code(self) -> bool {
        matches!(self, Kind::Branch | Kind::Instructions)
    }

    /// True if its samples contain the source of data.
    pub(super) fn has_data_source(self) -> bool {
        self != Kind::Branch
    }
}

#[derive(Clone, Debug)]
pub(super) struct Events {
    kinds: Vec<(Kind, Decoded)>,
    /// The period of samples: one record in this many is used.
    pub(super) period: u64,
    /// Maximum of branches in a sample.
    pub(super) stack: u64,
    /// True if samples have a time.
    pub(super) has_time: bool,
}

/// Parts of decoded samples copied from the recorded event, in addition to those of all tracers.
const TAKEN: u64 = st::PHYS_ADDR;

/// `attr.config` of the hardware event that counts instructions.
const INSTRUCTIONS: u64 = 1;

impl Events {
    /// Builds the events for the data recorded by the event of this PMU type.
    pub(super) fn of(options: &ItraceOptions, pmu_type: u64, recorded: &[Event]) -> Result<Events> {
        let traced = Traced::of(pmu_type, recorded)?;
        let has_time = recorded.iter().any(|event| event.attr().sample_type & st::TIME != 0);
        let period = options.every.unwrap_or(1);
        let mut attr = traced.attr(TAKEN);
        attr.sample_period = period;
        attr.sample_type |= st::IP | st::TID | st::PERIOD | st::DATA_SRC | st::WEIGHT | st::ADDR;
        attr.sample_type |= if has_time { st::TIME } else { 0 };
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_selected(options)).collect();
        let ids = traced.ids(kinds.len(), BTreeSet::new(), recorded);
        let kinds = kinds.into_iter().zip(ids).map(|(kind, ids)| {
            let mut attr = attr;
            if options.stack > 0 && kind >= Kind::Branch {
                attr.sample_type |= st::BRANCH_STACK;
                attr.branch_sample_type = BRANCH_HW_INDEX;
            }
            attr.config = if kind == Kind::Instructions { INSTRUCTIONS } else { 0 };
            (kind, Decoded { name: kind.name().into(), ids, attr })
        });
        Ok(Events { kinds: kinds.collect(), period, stack: options.stack, has_time })
    }

    /// The events that the record is a sample of, in perf's order.
    pub(super) fn of_record<'e>(
        &'e self,
        record: &'e SpeRecord,
    ) -> impl Iterator<Item = (Kind, &'e Decoded)> {
        let kinds = self.kinds.iter().filter(|(kind, _)| kind.has(record));
        kinds.map(|(kind, decoded)| (*kind, decoded))
    }

    pub(super) fn decoded(&self) -> Vec<Decoded> {
        self.kinds.iter().map(|(_, decoded)| decoded.clone()).collect()
    }
}
