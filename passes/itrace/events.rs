//! Adds the events of decoded samples to a recording, with perf's ids.

use std::collections::{BTreeSet, HashMap};

use perfx_auxtrace::Vcpu;
use perfx_format::event_name::names_of;
use perfx_format::record::id_index::{ANY, IdEntry, write_id_index};
use perfx_format::{Attr, Event, Feature, sample_type as st};
use perfx_pipeline::{Result, Session, bail, ensure};

use crate::support::event_desc::event_desc;
use crate::support::event_ids::{FreeIds, identified, lacks_identifier};

#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(super) name: String,
    pub(super) ids: EventIds,
    pub(super) attr: Attr,
}

#[derive(Clone, Debug)]
pub(crate) struct EventIds {
    /// The id of samples of the host.
    pub(super) host: u64,
    /// The ids of samples of guests, by VCPU, ascending: ID_INDEX records name the machine of an id.
    pub(super) guests: Vec<(Vcpu, u64)>,
}

impl EventIds {
    /// The id of samples of a VCPU, or of the host.
    #[inline(always)]
    pub(super) fn of(&self, vcpu: Option<Vcpu>) -> u64 {
        vcpu.map_or(self.host, |vcpu| self.of_guest(vcpu))
    }

    fn of_guest(&self, vcpu: Vcpu) -> u64 {
        let at = self.guests.binary_search_by_key(&vcpu, |(vcpu, _)| *vcpu);
        at.map_or(self.host, |at| self.guests[at].1)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.host).chain(self.guests.iter().map(|(_, id)| *id))
    }
}

/// `attr.config` of the hardware events that count cycles, instructions and branches.
pub(super) const CYCLES: u64 = 0;
pub(super) const INSTRUCTIONS: u64 = 1;
pub(super) const BRANCHES: u64 = 4;

/// perf's suffix for the name of an event: the counted levels, unless it counts all.
pub(super) fn modifier(attr: &Attr) -> String {
    const EXCLUDED: [(u32, char); 3] = [(5, 'k'), (4, 'u'), (6, 'h')];
    if EXCLUDED.iter().all(|(bit, _)| !attr.flag(*bit)) {
        return String::new();
    }
    let levels = EXCLUDED.iter().filter(|(bit, _)| !attr.flag(*bit));
    std::iter::once(':').chain(levels.map(|(_, level)| *level)).collect()
}

/// The event that made the AUX data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traced<'e> {
    event: &'e Event,
    /// All records get an IDENTIFIER: readers expect all ids at one place, but ADDR of branches precedes ID.
    identifies: bool,
}

/// perf's distance from the first id of the recorded event to those of decoded events.
const DISTANCE: u64 = 1_000_000_000;

/// Attr flags to copy: exclude_user, exclude_kernel, exclude_hv, sample_id_all, exclude_host, exclude_guest.
const SHARED_FLAGS: u64 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 18 | 1 << 19 | 1 << 20;

/// The parts of decoded samples copied from the recorded event.
const TAKEN: u64 =
    st::IP | st::TID | st::TIME | st::ADDR | st::ID | st::STREAM_ID | st::CPU | st::PERIOD | st::IDENTIFIER;

impl<'e> Traced<'e> {
    /// The event of this PMU type.
    pub(super) fn of(pmu_type: u64, recorded: &'e [Event]) -> Result<Traced<'e>> {
        let Some(traced) = recorded.iter().find(|event| u64::from(event.attr().type_) == pmu_type) else {
            bail!("AUXTRACE_INFO says that PMU {pmu_type} wrote the AUX data, but no event belongs to it");
        };
        Ok(Traced { event: traced, identifies: lacks_identifier(recorded) })
    }

    /// The common attr of decoded events, whose samples may also have these parts.
    pub(super) fn attr(self, parts: u64) -> Attr {
        let recorded = self.event.attr();
        let mut attr = Attr::default();
        attr.sample_type = recorded.sample_type & (TAKEN | parts);
        attr.sample_type |= if self.identifies { st::IDENTIFIER } else { 0 };
        attr.flags = recorded.flags & SHARED_FLAGS;
        attr.read_format = recorded.read_format;
        attr
    }

    /// The ids of `count` decoded events, also for samples of these VCPUs.
    pub(super) fn ids(self, count: usize, vcpus: BTreeSet<Vcpu>, recorded: &[Event]) -> Vec<EventIds> {
        let first = self.event.ids.first().copied().unwrap_or(0).wrapping_add(DISTANCE).max(1);
        let used: BTreeSet<u64> = recorded.iter().flat_map(|event| event.ids.iter().copied()).collect();
        let wanted = |n: usize| first.checked_add(n as u64).filter(|id| !used.contains(id));
        let ids: Option<Vec<u64>> = (0..count).map(wanted).collect();
        let mut free = FreeIds::beyond(used.clone(), DISTANCE);
        let hosts = ids.unwrap_or_else(|| (0..count).map(|_| free.next()).collect());
        free.used.extend(&hosts);
        let mut free = FreeIds::beyond(free.used, DISTANCE);
        let guests = |free: &mut FreeIds| vcpus.iter().map(|vcpu| (*vcpu, free.next())).collect();
        hosts.into_iter().map(|host| EventIds { host, guests: guests(&mut free) }).collect()
    }
}

/// Adds events to the recording. `updates` are the names in its EVENT_UPDATE records. Returns true if all
/// attrs now have IDENTIFIER, so all records need one; fails if an event then has no id.
pub(super) fn add(
    decoded: &[Decoded],
    session: &mut Session,
    updates: &HashMap<u64, Vec<u8>>,
) -> Result<bool> {
    let endian = session.endian;
    let identifies = lacks_identifier(&session.events);
    if identifies {
        ensure!(
            session.events.iter().all(|event| !event.ids.is_empty()),
            "{}: an event has no id, so readers could not distinguish decoded samples from its records; perfx export needs no \
             samples",
            session.name
        );
        for event in &mut session.events {
            *event = identified(event, endian);
        }
    }
    let names = names_of(&session.events, session.features(), &[], endian, updates);
    let mut names: Vec<Vec<u8>> = names.into_iter().map(|event| event.name).collect();
    names.extend(decoded.iter().map(|event| event.name.clone().into_bytes()));
    let made = decoded.iter().map(|event| Event::made(&event.attr, event.ids.all().collect(), endian));
    session.events.extend(made);
    if let Some(section) = event_desc(&session.events, &names, 0, endian) {
        session.set_feature(Feature::EVENT_DESC, section);
    }
    Ok(identifies)
}

/// ID_INDEX records with the ids of events.
pub(super) fn index(decoded: &[Decoded], session: &Session) -> Vec<Vec<u8>> {
    let entry = |(id, vcpu): (u64, Option<Vcpu>)| IdEntry {
        id,
        idx: 0,
        cpu: ANY,
        tid: vcpu.map_or(ANY, |vcpu| vcpu.tid.into()),
        machine_pid: vcpu.map_or(0, |vcpu| vcpu.machine_pid.into()),
        vcpu: vcpu.map_or(0, |vcpu| vcpu.number.into()),
    };
    let ids = decoded.iter().flat_map(|event| {
        let guests = event.ids.guests.iter().map(|(vcpu, id)| (*id, Some(*vcpu)));
        std::iter::once((event.ids.host, None)).chain(guests)
    });
    let entries: Vec<IdEntry> = ids.map(entry).collect();
    let has_guests = entries.iter().any(|entry| entry.machine_pid != 0);
    write_id_index(&entries, has_guests, session.endian)
}
