//! Adds the guests' events to the host's: ids, the ID_INDEX records that name their machines, and names.

use std::collections::HashMap;

use perfx_format::features::read_event_desc;
use perfx_format::read::Recording;
use perfx_format::record::id_index::{ANY, IdEntry, write_id_index};
use perfx_format::{
    Attr, Endian, Event, Feature, sample_type as st, set_attr_flag, set_event, set_sample_type, shorten_attr,
};
use perfx_pipeline::{Level, Session};

use super::placed::Placed;
use super::translate::NewId;
use crate::support::event_desc::event_desc as describe;
use crate::support::event_ids::FreeIds;

pub(crate) struct Translation {
    pub(crate) events: Vec<Event>,
    pub(crate) ids: HashMap<u64, NewId>,
    pub(crate) index: Vec<Vec<u8>>,
    pub(crate) new: Vec<u64>,
}

/// New events and ids for a guest's; `host_attr` is the size of the host's largest attr.
pub(crate) fn translation(
    placed: &Placed,
    free: &mut FreeIds,
    host_attr: usize,
    endian: Endian,
) -> Translation {
    let mut result =
        Translation { events: Vec::new(), ids: HashMap::new(), index: Vec::new(), new: Vec::new() };
    let mut entries = Vec::new();
    for event in &placed.guest.recording.events {
        let mut new = event.edited(endian, |raw| {
            set_sample_type(raw, event.attr().sample_type | st::IDENTIFIER, endian);
            set_attr_flag(raw, EXCLUDE_HOST, true, endian);
            set_attr_flag(raw, EXCLUDE_GUEST, false, endian);
            if event.attr().is_tracepoint() {
                // perf refuses a tracepoint whose format the recording lacks.
                let (kind, config) = Attr::DUMMY;
                set_event(raw, kind, config, endian);
            }
            // The host's perf refuses a larger attr; bytes at its end may be zero.
            if raw.len() > host_attr && raw[host_attr..].iter().all(|&byte| byte == 0) {
                shorten_attr(raw, host_attr, endian);
            }
        });
        new.ids = event.ids.iter().map(|_| free.next()).collect();
        for (&old, &id) in event.ids.iter().zip(&new.ids) {
            let vcpu = placed.guest.facts.vcpu_of_id.get(&old).copied().flatten();
            result.ids.insert(old, NewId { id, vcpu });
            let thread =
                vcpu.and_then(|vcpu| placed.threads.get(&vcpu)).map_or(placed.pid, |thread| thread.tid);
            entries.push(IdEntry {
                id,
                cpu: ANY,
                tid: thread.into(),
                machine_pid: placed.pid.into(),
                vcpu: vcpu.map_or(ANY, u64::from),
                ..IdEntry::default()
            });
        }
        result.new.extend(&new.ids);
        result.events.push(new);
    }
    result.index = write_id_index(&entries, true, endian);
    result
}

const EXCLUDE_HOST: u32 = 19;
const EXCLUDE_GUEST: u32 = 20;

/// Renames `cpu-clock` to `cpu-clock:G`, perf's name for an event that counts only in guests.
fn guest_name(name: &[u8]) -> Vec<u8> {
    const MODIFIERS: &[u8] = b"ukhHGpPSDIWeb";
    let is_modifiers = |text: &[u8]| text.iter().all(|byte| MODIFIERS.contains(byte));
    let end = name.iter().rposition(|&byte| byte == b':' || byte == b'/').map(|at| at + 1);
    let (base, modifiers) = match end {
        Some(end) if is_modifiers(&name[end..]) => name.split_at(end),
        _ => (name, &b""[..]),
    };
    let mut new = base.to_vec();
    if !base.ends_with(b":") && !base.ends_with(b"/") {
        new.push(b':');
    }
    new.extend(modifiers.iter().filter(|byte| !b"HG".contains(byte)));
    new.push(b'G');
    new
}

pub(crate) fn add_events(session: &mut Session, guests: &[(&Recording, &[Event])], events: Vec<Event>) {
    match event_desc(session, guests, &events) {
        Some(section) => session.set_feature(Feature::EVENT_DESC, section),
        None if session.feature(Feature::EVENT_DESC).is_some() => {
            let what = "feature EVENT_DESC is damaged, so names of events can't be added to it";
            session.report.say(Level::Loss, what);
            session.clear_feature(Feature::EVENT_DESC);
        }
        None => {}
    }
    session.events = events;
}

/// Feature EVENT_DESC with the guests' events after the host's; `None` if the host has none.
fn event_desc(session: &Session, guests: &[(&Recording, &[Event])], events: &[Event]) -> Option<Vec<u8>> {
    let endian = session.endian;
    let section = session.feature(Feature::EVENT_DESC)?;
    let host = read_event_desc(section, endian)?;
    let described = host.iter().map(|event| event.attr.len()).max().unwrap_or(0);
    let mut names: Vec<Vec<u8>> = host.iter().map(|event| event.name.to_vec()).collect();
    let host_events = events.len() - guests.iter().map(|(_, events)| events.len()).sum::<usize>();
    // Entries are assigned to attrs in order, so the host must have one for each event.
    if host.len() != host_events {
        return None;
    }
    for (recording, new) in guests {
        let section = recording.features.get(&Feature::EVENT_DESC);
        let descs = section.and_then(|section| read_event_desc(section, endian)).unwrap_or_default();
        for (index, event) in new.iter().enumerate() {
            let name = descs.get(index).map(|event| guest_name(event.name));
            let attr = event.attr();
            let number = || guest_name(format!("type {} config {:#x}", attr.type_, attr.config).as_bytes());
            names.push(name.unwrap_or_else(number));
        }
    }
    describe(events, &names, described, endian)
}
