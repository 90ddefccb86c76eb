//! `--drop-unused`: drops events without samples and build-ids of unmapped files, and every reference to
//! them.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::Result;
use perfx_format::features::{
    BuildIds, EventDesc, GroupDesc, read_event_desc, read_group_desc, write_event_desc, write_group_desc,
};
use perfx_format::record::id_index::{IdEntry, IdIndex, one_id_index};
use perfx_format::record::ids::ids_about;
use perfx_format::{Event, Feature, Layouts, Record, RecordType};
use perfx_model::address_space::{KERNEL, Mapping, moment};
use perfx_pipeline::{Emit, Level, Session, counted};

use perfx_model::tasks::TaskKey;

/// What records other than samples refer to.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Events with such records.
    events: BTreeSet<usize>,
    /// Files with the process that mapped each, and the time; `None` is the kernel.
    files: HashMap<Box<[u8]>, Vec<Mapped>>,
}

/// The process that mapped a file, and the time.
type Mapped = (Option<TaskKey>, u64);

impl Unused {
    /// Takes in a record other than a sample.
    pub(super) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        // Id 0 belongs to no event: perf's own records have it. perf parses them with the first event, and
        // any event whose records end alike will do.
        let id = layouts.layout_of(record).and_then(|layout| layout.id(record));
        let nobodys =
            id == Some(0) && layouts.all().windows(2).all(|pair| pair[0].trailer == pair[1].trailer);
        if record.kind().is_kernel() && !nobodys {
            self.events.extend(layouts.event_of(record));
        }
        if record.kind() == RecordType::STAT {
            let counts = ids_about(RecordType::STAT).iter().filter_map(|&at| record.u64(at));
            self.events.extend(counts.filter_map(|id| layouts.event_of_id(id)));
        }
        if let Some(mapping) = Mapping::read(record, layouts) {
            let kernel = mapping.pid == KERNEL || record.is_of_kernel();
            let who = (!kernel).then(|| TaskKey::of(record, layouts, mapping.pid));
            let time = moment(record, layouts.layout_of(record), layouts);
            self.files.entry(mapping.name.into()).or_default().push((who, time));
        }
    }

    pub(super) fn join(&mut self, later: Unused) {
        self.events.extend(later.events);
        for (file, mapped) in later.files {
            self.files.entry(file).or_default().extend(mapped);
        }
    }

    /// Ids of events that can be dropped. At least one event is kept, because a recording without events
    /// cannot be read.
    pub(super) fn ids(&self, events: &[Event], samples: &[u64]) -> HashSet<u64> {
        let used = |index: &usize| self.events.contains(index) || samples.get(*index).is_some_and(|&n| n > 0);
        let numbered = || events.iter().enumerate();
        let none = !numbered().any(|(index, _)| used(&index));
        let gone = numbered().filter(|(index, _)| !(used(index) || none && *index == 0));
        // Id 0 means the first event, and must not come to mean another one.
        let ids = |(index, event): (usize, &Event)| {
            let first = (index == 0 && !event.ids.is_empty()).then_some(0);
            event.ids.iter().copied().chain(first).collect::<Vec<_>>()
        };
        gone.flat_map(ids).collect()
    }

    /// Removes events whose ids are all in `gone` from the header, and build-ids of files that no `needed`
    /// process maps.
    pub(super) fn leave_out(
        &self,
        session: &mut Session,
        gone: &HashSet<u64>,
        needed: &dyn Fn(TaskKey, u64) -> bool,
    ) {
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
            let what = counted(left_out, "event", "events");
            session.report.say(Level::Info, format!("left out {what} without samples"));
        }
        let Some(section) = session.feature(Feature::BUILD_ID).cloned() else { return };
        let mut kept = Vec::new();
        let mut ids = 0;
        // Any number of entries may name the same file.
        let mut known: HashMap<&[u8], bool> = HashMap::new();
        for entry in BuildIds::new(&section, session.endian) {
            // A file that was never mapped is listed for another reason.
            let stays = known.entry(entry.filename).or_insert_with(|| {
                self.files.get(entry.filename).is_none_or(|mapped| {
                    mapped.iter().any(|&(who, time)| who.is_none_or(|who| needed(who, time)))
                })
            });
            if *stays {
                entry.write_section(session.endian, &mut kept);
            } else {
                ids += 1;
            }
        }
        if ids > 0 {
            session.set_feature(Feature::BUILD_ID, kept);
            session.report.say(
                Level::Info,
                format!("left out {} of files that no process maps", counted(ids, "build-id", "build-ids")),
            );
        }
    }
}

/// EVENT_DESC and GROUP_DESC refer to events by their position among the attrs.
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
        let new_index = |old: usize| stays[..old].iter().filter(|stays| **stays).count() as u32;
        let kept = groups.into_iter().filter_map(|group| {
            let first = group.leader as usize;
            let members =
                first..first.checked_add(group.members as usize).filter(|&end| end <= stays.len())?;
            let leader = members.clone().find(|&member| stays[member])?;
            let count = members.filter(|&member| stays[member]).count() as u32;
            (count > 1).then(|| GroupDesc { leader: new_index(leader), members: count, ..group })
        });
        let kept: Vec<GroupDesc<'_>> = kept.collect();
        session.set_feature(Feature::GROUP_DESC, write_group_desc(&kept, endian));
    }
}

/// Writes an ID_INDEX record without the entries of dropped events.
pub(super) fn shorten_id_index(record: &Record<'_>, gone: &HashSet<u64>, out: &mut Emit<'_>) -> Result<()> {
    let Some(index) = IdIndex::of(record) else { return out.keep(*record) };
    let kept: Vec<IdEntry> = index.entries().filter(|entry| !gone.contains(&entry.id)).collect();
    if kept.len() == index.len() {
        return out.keep(*record);
    }
    out.replace(record, &one_id_index(&kept, index.has_machines(), record.endian()))
}
