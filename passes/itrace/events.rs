//! Makes the events of decoded samples, with perf's names and ids, and selects those that a record has.

use std::collections::{BTreeSet, HashMap};

use perfx_format::event_name::names_of;
use perfx_format::record::id_index::{ANY, IdEntry, write_id_index};
use perfx_format::sample::BRANCH_HW_INDEX;
use perfx_format::spe::{SpeRecord, events};
use perfx_format::{Attr, Event, Feature, sample_type as st};
use perfx_model::spe::is_of_memory;
use perfx_pipeline::{Result, Session, ensure};

use super::options::ItraceOptions;
use crate::support::event_desc::event_desc;
use crate::support::event_ids::{FreeIds, lacks_identifier};

/// What an event counts. The order is that of perf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    L1dMiss,
    L1dAccess,
    LlcMiss,
    LlcAccess,
    TlbMiss,
    TlbAccess,
    Branch,
    RemoteAccess,
    Memory,
    Instructions,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::L1dMiss,
        Kind::L1dAccess,
        Kind::LlcMiss,
        Kind::LlcAccess,
        Kind::TlbMiss,
        Kind::TlbAccess,
        Kind::Branch,
        Kind::RemoteAccess,
        Kind::Memory,
        Kind::Instructions,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::L1dMiss => "l1d-miss",
            Kind::L1dAccess => "l1d-access",
            Kind::LlcMiss => "llc-miss",
            Kind::LlcAccess => "llc-access",
            Kind::TlbMiss => "tlb-miss",
            Kind::TlbAccess => "tlb-access",
            Kind::Branch => "branch",
            Kind::RemoteAccess => "remote-access",
            Kind::Memory => "memory",
            Kind::Instructions => "instructions",
        }
    }

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

    /// True if the record is one of its samples.
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

    /// True if its address is that of code, and its samples have branches.
    pub(super) fn is_of_code(self) -> bool {
        matches!(self, Kind::Branch | Kind::Instructions)
    }

    /// True if its samples say where data came from.
    pub(super) fn has_data_source(self) -> bool {
        self != Kind::Branch
    }
}

/// An event of decoded samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub(super) kind: Kind,
    pub(super) id: u64,
    pub(super) attr: Attr,
}

/// The selected events.
#[derive(Clone, Debug)]
pub(super) struct Events {
    decoded: Vec<Decoded>,
    /// The period of each sample: one record in so many is used.
    pub(super) period: u64,
    /// The most branches of a sample.
    pub(super) stack: u64,
    /// True if samples have a time.
    pub(super) has_time: bool,
}

/// perf's distance from the first id of the recorded event to those of decoded events.
const DISTANCE: u64 = 1_000_000_000;

/// Flags of the attr that decoded events take from the recorded one: exclude_user, exclude_kernel, exclude_hv,
/// sample_id_all, exclude_host, exclude_guest.
const SHARED_FLAGS: u64 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 18 | 1 << 19 | 1 << 20;

/// The parts of its samples that decoded events take from the recorded one.
const TAKEN: u64 = st::IP
    | st::TID
    | st::TIME
    | st::ADDR
    | st::ID
    | st::STREAM_ID
    | st::CPU
    | st::PERIOD
    | st::IDENTIFIER
    | st::PHYS_ADDR;

/// `attr.config` of the hardware event that counts instructions.
const INSTRUCTIONS: u64 = 1;

impl Events {
    /// Makes the events of the data that the event of this PMU type recorded.
    pub(super) fn of(options: &ItraceOptions, pmu_type: u64, recorded: &[Event]) -> Result<Events> {
        let traced = recorded.iter().find(|event| u64::from(event.attr().type_) == pmu_type);
        ensure!(
            traced.is_some(),
            "AUXTRACE_INFO says that PMU {pmu_type} made the AUX data, but no event is of it"
        );
        ensure!(
            !lacks_identifier(recorded),
            "the events have no IDENTIFIER, so readers could not tell decoded samples from others: decode the \
             recording with perf script --itrace"
        );
        let has_time = recorded.iter().any(|event| event.attr().sample_type & st::TIME != 0);
        let period = options.every.unwrap_or(1);
        let mut attr = Attr::default();
        attr.sample_period = period;
        let mut first = DISTANCE;
        if let Some(traced) = traced {
            attr.sample_type = traced.attr().sample_type & TAKEN;
            attr.flags = traced.attr().flags & SHARED_FLAGS;
            attr.read_format = traced.attr().read_format;
            first = traced.ids.first().copied().unwrap_or(0).wrapping_add(DISTANCE).max(1);
        }
        attr.sample_type |= st::IP | st::TID | st::PERIOD | st::DATA_SRC | st::WEIGHT | st::ADDR;
        attr.sample_type |= if has_time { st::TIME } else { 0 };
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_selected(options)).collect();
        let used: BTreeSet<u64> = recorded.iter().flat_map(|event| event.ids.iter().copied()).collect();
        let wanted = |n: usize| first.checked_add(n as u64).filter(|id| !used.contains(id));
        let ids: Option<Vec<u64>> = (0..kinds.len()).map(wanted).collect();
        let ids = ids.unwrap_or_else(|| {
            let mut free = FreeIds::beyond(used, DISTANCE);
            kinds.iter().map(|_| free.next()).collect()
        });
        let decoded = kinds.into_iter().zip(ids).map(|(kind, id)| {
            let mut attr = attr;
            if options.stack > 0 && kind >= Kind::Branch {
                attr.sample_type |= st::BRANCH_STACK;
                attr.branch_sample_type = BRANCH_HW_INDEX;
            }
            attr.config = if kind == Kind::Instructions { INSTRUCTIONS } else { 0 };
            Decoded { kind, id, attr }
        });
        Ok(Events { decoded: decoded.collect(), period, stack: options.stack, has_time })
    }

    /// The events of which the record is a sample, in perf's order.
    pub(super) fn of_record<'e>(&'e self, record: &'e SpeRecord) -> impl Iterator<Item = &'e Decoded> {
        self.decoded.iter().filter(|event| event.kind.has(record))
    }

    /// Adds the events to the recording. `updates` are the names in its EVENT_UPDATE records.
    pub(super) fn add_to(&self, session: &mut Session, updates: &HashMap<u64, Vec<u8>>) {
        let endian = session.endian;
        let names = names_of(&session.events, session.features(), &[], endian, updates);
        let mut names: Vec<Vec<u8>> = names.into_iter().map(|event| event.name).collect();
        names.extend(self.decoded.iter().map(|event| event.kind.name().as_bytes().to_vec()));
        let made = self.decoded.iter().map(|event| Event::made(&event.attr, vec![event.id], endian));
        session.events.extend(made);
        if let Some(section) = event_desc(&session.events, &names, 0, endian) {
            session.set_feature(Feature::EVENT_DESC, section);
        }
    }

    /// ID_INDEX records with the ids of the events.
    pub(super) fn index(&self, session: &Session) -> Vec<Vec<u8>> {
        let entry = |event: &Decoded| IdEntry { id: event.id, cpu: ANY, tid: ANY, ..IdEntry::default() };
        let entries: Vec<IdEntry> = self.decoded.iter().map(entry).collect();
        write_id_index(&entries, false, session.endian)
    }
}
