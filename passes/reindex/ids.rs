//! `reindex-ids` makes ID_INDEX list every id of the events and no other, before AUXTRACE_INFO: perf aborts
//! at an unknown id, and cannot assign a trace whose id is missing. Facts about an added id that records do
//! not reveal are -1.
//!
//! A recording without any ID_INDEX gets one only if it has AUX data: perf before 5.18 wrote none for others,
//! and readers do not need it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use clap::Args;
use perfx_format::read::{Form, Recording};
use perfx_format::record::id_index::IdEntry;
use perfx_format::{Kinds, Layouts, Origin, Record, RecordType};
use perfx_pipeline::{Emit, Fork, Level, Needs, Pass, Place, Result, Rewrite, Session, Stage, Survey};

use super::{counts, report_repaired};
use crate::support::id_index::{Index, IndexFacts, Seen, Slot, is_unknown};
use crate::support::options::PassOptions;

/// The pass; it has no options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ReindexIds {}

impl PassOptions for ReindexIds {
    const NAME: &'static str = "reindex-ids";
    const ABOUT: &'static str = "make ID_INDEX list exactly the ids of the events";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(self))
    }
}

#[derive(Default)]
struct IndexSurvey(IndexFacts);

struct EvidenceSurvey {
    found: IndexFacts,
    wanted: Vec<(u64, usize)>,
    seen: HashMap<u64, Seen>,
}

struct WriteIndexes(Arc<HashMap<Place, Edit>>);

impl WriteIndexes {
    fn stage(edits: HashMap<Place, Edit>) -> Stage {
        Stage::begin(move |begin| {
            edits.keys().for_each(|&place| begin.want_at(place));
            Ok(Stage::rewrite(WriteIndexes(Arc::new(edits))))
        })
    }
}

#[derive(Debug, Default)]
struct Edit {
    before: Vec<Vec<u8>>,
    own: OwnRecord,
    after: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
enum OwnRecord {
    #[default]
    Stays,
    /// Its entries move to another record.
    Moves,
    Becomes(Vec<Vec<u8>>),
}

impl ReindexIds {
    fn edit(
        mut found: IndexFacts,
        wanted: &[(u64, usize)],
        seen: &HashMap<u64, Seen>,
        session: &mut Session,
    ) -> Stage {
        let ids = found.ids(session);
        let there: HashMap<u64, usize> = ids.iter().copied().collect();
        let before: Vec<Slot> = found.indexes.iter().map(|index| index.at).collect();
        let broken = found.indexes.iter().filter(|index| index.changed).count() as u64;
        let mut dropped = 0;
        for index in &mut found.indexes {
            let count = index.entries.len();
            index.entries.retain(|entry| there.contains_key(&entry.id));
            let gone = count - index.entries.len();
            dropped += gone as u64;
            index.changed |= gone > 0;
        }
        let (moved, anchor) = found.put_in_order();
        let added = add(&mut found, &ids, wanted, seen, anchor);
        let unknown = added.iter().filter(|entry| is_unknown(entry)).count() as u64;

        let mut edits: HashMap<Place, Edit> = HashMap::new();
        let mut closed = false;
        let mut edit = |origin: Origin, change: &mut dyn FnMut(&mut Edit)| {
            if let Some(place) = session.place(origin) {
                change(edits.entry(place).or_default());
            }
        };
        for (old, new) in before.iter().zip(&found.indexes).filter(|(_, new)| new.changed) {
            if let Slot::Instead(origin) = *old {
                closed |= is_closed(origin, session);
                let stays = *old == new.at || new.entries.is_empty();
                edit(origin, &mut |edit| {
                    edit.own =
                        if stays { OwnRecord::Becomes(new.write(session.endian)) } else { OwnRecord::Moves };
                });
            }
        }
        for index in found.indexes.iter().filter(|index| index.changed) {
            match index.at {
                Slot::Instead(_) => {}
                Slot::Before(origin) => {
                    edit(origin, &mut |edit| edit.before.extend(index.write(session.endian)));
                }
                Slot::After(origin) => {
                    edit(origin, &mut |edit| edit.after.extend(index.write(session.endian)));
                }
            }
        }
        if closed {
            let what = "an ID_INDEX to repair is inside a COMPRESSED record: run perfx decompress first";
            session.report.say(Level::Warning, what);
            return Stage::copy();
        }
        let repaired = [
            (
                broken,
                "record rewritten that claimed more entries than it has",
                "records rewritten that claimed more entries than they have",
            ),
            (dropped, "id left out that no event has", "ids left out that no event has"),
            (
                moved,
                "record moved between attrs and AUXTRACE_INFO",
                "records moved between attrs and AUXTRACE_INFO",
            ),
            (added.len() as u64, "id added", "ids added"),
            (unknown, "whose CPU and thread are unknown", "whose CPU and thread are unknown"),
        ];
        report_repaired(session, "ID_INDEX", &counts(&repaired));
        WriteIndexes::stage(edits)
    }
}

/// True if the record is inside a COMPRESSED record that stays compressed.
fn is_closed(origin: Origin, session: &Session) -> bool {
    let Origin::Chunk { stream, record, .. } = origin else { return false };
    session.place(origin) == session.place(Origin::Input { stream, offset: record })
}

/// Inserts an entry for each `wanted` id after its predecessor in `ids` (in attr order); returns them.
fn add(
    found: &mut IndexFacts,
    ids: &[(u64, usize)],
    wanted: &[(u64, usize)],
    seen: &HashMap<u64, Seen>,
    anchor: Option<Slot>,
) -> Vec<IdEntry> {
    let Some(anchor) = anchor.filter(|_| !wanted.is_empty()) else { return Vec::new() };
    let added = found.entries(ids, wanted, seen);
    if found.indexes.is_empty() {
        found.indexes.push(Index { at: anchor, entries: Vec::new(), long: false, changed: true });
    }
    // New entries, by the last preceding id that has an entry.
    let mut following: HashMap<Option<u64>, Vec<IdEntry>> = HashMap::new();
    let (mut last, mut rest) = (None, added.iter().peekable());
    for &(id, _) in ids {
        match rest.next_if(|entry| entry.id == id) {
            Some(entry) => following.entry(last).or_default().push(*entry),
            None if id != 0 => last = Some(id),
            None => {}
        }
    }
    for (number, index) in found.indexes.iter_mut().enumerate() {
        let mut entries = if number == 0 { following.remove(&None).unwrap_or_default() } else { Vec::new() };
        for &entry in &index.entries {
            entries.push(entry);
            entries.extend(following.remove(&Some(entry.id)).unwrap_or_default());
        }
        index.changed |= entries.len() > index.entries.len();
        index.long |= entries.iter().any(|entry| entry.machine_pid != 0);
        index.entries = entries;
    }
    added
}

impl Pass for ReindexIds {
    fn name(&self) -> &'static str {
        ReindexIds::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let mut kinds = Kinds::of(&[RecordType::ID_INDEX, RecordType::AUXTRACE_INFO, RecordType::AUXTRACE]);
        if input.form == Form::Pipe {
            kinds.insert(RecordType::HEADER_ATTR);
        }
        // Later surveys may read old indexes: dropped ids have no event, and records have what is added.
        Needs { surveys: vec![kinds, Kinds::OF_KERNEL], barrier: false, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(IndexSurvey::default())
    }
}

impl Survey for IndexSurvey {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        self.0.learn(record)
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let IndexSurvey(found) = self;
        let ids = found.ids(session);
        let wanted = found.missing(&ids);
        if wanted.is_empty() {
            return Ok(ReindexIds::edit(found, &wanted, &HashMap::new(), session));
        }
        let events: HashSet<usize> = wanted.iter().map(|(_, event)| *event).collect();
        let related = ids.iter().filter(|(_, event)| events.contains(event));
        let seen = related.map(|(id, _)| (*id, Seen::default())).collect();
        Ok(Stage::survey(EvidenceSurvey { found, wanted, seen }))
    }
}

impl Fork for IndexSurvey {
    fn fork(&self) -> IndexSurvey {
        IndexSurvey::default()
    }

    fn absorb(&mut self, later: IndexSurvey) {
        self.0.join(later.0);
    }
}

impl Survey for EvidenceSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        if let Some((id, now)) = Seen::of(record, layouts)
            && let Some(seen) = self.seen.get_mut(&id)
        {
            seen.and(now);
        }
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        Ok(ReindexIds::edit(self.found, &self.wanted, &self.seen, session))
    }
}

impl Fork for EvidenceSurvey {
    fn fork(&self) -> EvidenceSurvey {
        let seen = self.seen.keys().map(|&id| (id, Seen::default())).collect();
        EvidenceSurvey { found: IndexFacts::default(), wanted: Vec::new(), seen }
    }

    fn absorb(&mut self, later: EvidenceSurvey) {
        for (id, later) in later.seen {
            self.seen.entry(id).or_default().and(later);
        }
    }
}

impl Rewrite for WriteIndexes {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let Some(edit) = out.place(&record).and_then(|place| self.0.get(&place)) else {
            return out.keep(record);
        };
        edit.before.iter().try_for_each(|new| out.put(new))?;
        match &edit.own {
            OwnRecord::Stays => out.keep(record)?,
            OwnRecord::Moves => {}
            OwnRecord::Becomes(new) => match new.split_first() {
                Some((first, others)) => {
                    out.replace(&record, first)?;
                    others.iter().try_for_each(|new| out.put(new))?;
                }
                None => out.drop_record(record),
            },
        }
        edit.after.iter().try_for_each(|new| out.put(new))
    }
}

impl Fork for WriteIndexes {
    fn fork(&self) -> WriteIndexes {
        WriteIndexes(self.0.clone())
    }

    fn absorb(&mut self, _later: WriteIndexes) {}
}
