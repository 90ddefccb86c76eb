//! `--drop-unused`: drops events without samples, build-ids of unmapped files, and all references to them.

use std::collections::{HashMap, HashSet};

use perfx_format::features::BuildIds;
use perfx_format::{Event, Feature, Layouts, OrderKey, Record};
use perfx_model::address_space::Mapping;
use perfx_model::tasks::TaskKey;
use perfx_pipeline::{Level, Session, UsedEvents, counted, leave_out_events};

#[derive(Debug, Default)]
pub(crate) struct Unused {
    events: UsedEvents,
    files: HashMap<Box<[u8]>, Vec<Mapped>>,
}

/// The process that mapped a file (`None`: the kernel), and the key of the record.
type Mapped = (Option<TaskKey>, OrderKey);

impl Unused {
    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        self.events.look_at(record, layouts);
        if let Some(mapping) = Mapping::read(record, layouts) {
            let who = (!mapping.kernel).then(|| TaskKey::of(record, layouts, mapping.pid));
            let key = OrderKey::of(record, layouts.layout_of(record), layouts);
            self.files.entry(mapping.name.into()).or_default().push((who, key));
        }
    }

    pub(crate) fn join(&mut self, later: Unused) {
        self.events.join(later.events);
        for (file, mapped) in later.files {
            self.files.entry(file).or_default().extend(mapped);
        }
    }

    pub(crate) fn ids(&self, events: &[Event], samples: &[u64]) -> HashSet<u64> {
        self.events.gone(events, samples)
    }

    pub(crate) fn leave_out_events(&self, session: &mut Session, gone: &HashSet<u64>) {
        let left_out = leave_out_events(session, gone);
        if left_out > 0 {
            let what = counted(left_out, "event", "events");
            session.report.say(Level::Info, format!("left out {what} without samples"));
        }
    }

    /// Removes build-ids of files that no `needed` process maps.
    pub(crate) fn leave_out_build_ids(
        &self,
        session: &mut Session,
        needed: &dyn Fn(TaskKey, OrderKey) -> bool,
    ) {
        let Some(section) = session.feature(Feature::BUILD_ID).cloned() else { return };
        let mut kept = Vec::new();
        let mut ids = 0;
        // Any number of entries may name the same file.
        let mut known: HashMap<&[u8], bool> = HashMap::new();
        for entry in BuildIds::new(&section, session.endian) {
            // A file that was never mapped is listed for another reason.
            let stays = known.entry(entry.filename).or_insert_with(|| {
                self.files.get(entry.filename).is_none_or(|mapped| {
                    mapped.iter().any(|&(who, key)| who.is_none_or(|who| needed(who, key)))
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
