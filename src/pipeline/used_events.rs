//! Finds the events with records, and removes all others from the header, the features and ID_INDEX.

use std::collections::{BTreeSet, HashSet};

use perfx_format::features::{
    EventDesc, GroupDesc, read_event_desc, read_group_desc, write_event_desc, write_group_desc,
};
use perfx_format::record::id_index::{IdEntry, IdIndex, one_id_index};
use perfx_format::record::ids::ids_named;
use perfx_format::{Endian, Event, Feature, Layout, Layouts, Record, RecordType};

use crate::{Emit, Result, Session};

/// The events to which records belong.
#[derive(Debug, Default)]
pub struct UsedEvents {
    events: BTreeSet<usize>,
    /// True if records have id 0, of no event: perf's own records, which have the layout of the first event.
    nobodys: bool,
}

impl UsedEvents {
    /// Adds a record that is not a sample.
    pub fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let id = layouts.layout_of(record).and_then(|layout| layout.id(record));
        if record.kind().is_kernel() && id == Some(0) {
            self.nobodys = true;
        } else if record.kind().is_kernel() {
            self.events.extend(layouts.event_of(record));
        }
        if record.kind() == RecordType::STAT {
            self.events.extend(ids_named(record).filter_map(|id| layouts.event_of_id(id)));
        }
    }

    /// Adds events that stay in any case.
    pub fn add(&mut self, events: impl IntoIterator<Item = usize>) {
        self.events.extend(events);
    }

    /// Adds the events of a later part of the recording.
    pub fn join(&mut self, later: UsedEvents) {
        self.events.extend(later.events);
        self.nobodys |= later.nobodys;
    }

    /// The ids of events that can be removed: those without samples or other records. One event always
    /// remains, because a recording without events can't be read.
    pub fn gone(&self, events: &[Event], samples: &[u64]) -> HashSet<u64> {
        let named = |index: usize| self.events.contains(&index) || samples.get(index).is_some_and(|&n| n > 0);
        let numbered = || events.iter().enumerate();
        // The event that would become the first must have the same layout.
        let end = |event: &Event| Layout::new(event.attr()).trailer;
        let next = events.iter().enumerate().find(|(index, _)| named(*index)).map(|(_, event)| end(event));
        let ends_differ = next.is_some_and(|next| events.first().is_some_and(|first| end(first) != next));
        let used = |index: &usize| named(*index) || *index == 0 && self.nobodys && ends_differ;
        let none = !numbered().any(|(index, _)| used(&index));
        let gone = numbered().filter(|(index, _)| !(used(index) || none && *index == 0));
        // Id 0 means the first event, and must not mean another one afterwards.
        let ids = |(index, event): (usize, &Event)| {
            let first = (index == 0 && !event.ids.is_empty()).then_some(0);
            event.ids.iter().copied().chain(first).collect::<Vec<_>>()
        };
        gone.flat_map(ids).collect()
    }
}

/// Removes events whose ids are all in `gone` from the header and the features; returns their number.
pub fn leave_out_events(session: &mut Session, gone: &HashSet<u64>) -> u64 {
    let stays: Vec<bool> = session
        .events
        .iter()
        .map(|event| event.ids.is_empty() || !event.ids.iter().all(|id| gone.contains(id)))
        .collect();
    let before = session.events.len();
    let mut stay = stays.iter();
    session.events.retain(|_| stay.next().copied().unwrap_or(true));
    let left_out = (before - session.events.len()) as u64;
    if left_out > 0 {
        leave_out_of_features(session, &stays);
    }
    left_out
}

/// Changes the attrs of all events, also in EVENT_DESC.
pub fn change_attrs(session: &mut Session, change: impl Fn(&mut Vec<u8>, Endian)) {
    change_attr_of_each(session, |_, raw, endian| change(raw, endian));
}

/// Like [`change_attrs`], with the number of the event.
pub fn change_attr_of_each(session: &mut Session, change: impl Fn(usize, &mut Vec<u8>, Endian)) {
    let endian = session.endian;
    let edited = |(number, event): (usize, &Event)| event.edited(endian, |raw| change(number, raw, endian));
    session.events = session.events.iter().enumerate().map(edited).collect();
    let Some(section) = session.feature(Feature::EVENT_DESC).cloned() else { return };
    if let Some(changed) = changed_event_desc(&section, endian, change) {
        session.set_feature(Feature::EVENT_DESC, changed);
    }
}

/// Feature EVENT_DESC with the attrs changed; `None` if it stays the same, or can't be read.
pub fn changed_event_desc(
    section: &[u8],
    endian: Endian,
    change: impl Fn(usize, &mut Vec<u8>, Endian),
) -> Option<Vec<u8>> {
    let events = read_event_desc(section, endian)?;
    let mut attrs: Vec<Vec<u8>> = events.iter().map(|event| event.attr.to_vec()).collect();
    attrs.iter_mut().enumerate().for_each(|(number, attr)| change(number, attr, endian));
    let size = attrs.first().map_or(0, |attr| attr.len() as u32);
    let changed: Vec<EventDesc<'_>> =
        events.into_iter().zip(&attrs).map(|(event, attr)| EventDesc { attr, ..event }).collect();
    write_event_desc(size, &changed, endian).filter(|changed| changed[..] != *section)
}

/// Removes events from EVENT_DESC and GROUP_DESC, which refer to events by their position among the attrs.
fn leave_out_of_features(session: &mut Session, stays: &[bool]) {
    let endian = session.endian;
    if let Some(section) = session.feature(Feature::EVENT_DESC).cloned()
        && let Some(events) = read_event_desc(&section, endian)
        && events.len() == stays.len()
    {
        let kept: Vec<EventDesc<'_>> =
            events.into_iter().zip(stays).filter(|(_, stays)| **stays).map(|(event, _)| event).collect();
        let attr_size = kept.first().map_or(0, |event| event.attr.len() as u32);
        if let Some(section) = write_event_desc(attr_size, &kept, endian) {
            session.set_feature(Feature::EVENT_DESC, section);
        }
    }
    if let Some(section) = session.feature(Feature::GROUP_DESC).cloned()
        && let Some(groups) = read_group_desc(&section, endian)
    {
        // For each old place of an event, the number of events that stay before it.
        let mut before = vec![0_u32];
        before.extend(stays.iter().scan(0, |count, stays| {
            *count += u32::from(*stays);
            Some(*count)
        }));
        let kept = groups.into_iter().filter_map(|group| {
            let first = group.leader as usize;
            let leader = *before.get(first)?;
            let members = before.get(first.checked_add(group.members as usize)?)? - leader;
            (members > 1).then_some(GroupDesc { leader, members, ..group })
        });
        let kept: Vec<GroupDesc<'_>> = kept.collect();
        session.set_feature(Feature::GROUP_DESC, write_group_desc(&kept, endian));
    }
}

/// Writes the ID_INDEX record without the entries of removed events.
///
/// # Errors
///
/// The errors of [`Emit`].
pub fn shorten_id_index(record: &Record<'_>, gone: &HashSet<u64>, out: &mut Emit<'_>) -> Result<()> {
    let Some(index) = IdIndex::of(record) else { return out.keep(*record) };
    let kept: Vec<IdEntry> = index.entries().filter(|entry| !gone.contains(&entry.id)).collect();
    if kept.len() == index.len() {
        return out.keep(*record);
    }
    out.replace(record, &one_id_index(&kept, index.has_machines(), record.endian()))
}
