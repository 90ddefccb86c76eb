//! `reindex-build-ids` rewrites HEADER_BUILD_ID records and entries of feature BUILD_ID that some perf
//! refuses and, on request, completes the feature from HEADER_BUILD_ID and MMAP2 records.

use std::collections::HashSet;
use std::sync::Arc;

use clap::Args;
use perfx_format::features::{BuildIds, trimmed_id};
use perfx_format::read::{Form, Recording};
use perfx_format::record::build_id::{BuildIdEntry, aligned};
use perfx_format::{Endian, Feature, Kinds, Layouts, PATH_MAX, Record, RecordType};
use perfx_model::address_space::{Identity, Mapping};
use perfx_model::guests::Guests;
use perfx_pipeline::{Emit, Fork, Level, Needs, Pass, Result, Rewrite, Session, Stage, Survey, counted};
use perfx_resolve::{cpumode_of, dso_name};

use super::{counts, report_repaired};
use crate::support::options::PassOptions;

/// The pass and its options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ReindexBuildIds {
    /// Also complete feature BUILD_ID with what HEADER_BUILD_ID and MMAP2 records say
    #[arg(long)]
    pub add: bool,
}

impl PassOptions for ReindexBuildIds {
    const NAME: &'static str = "reindex-build-ids";
    const ABOUT: &'static str = "rewrite build-ids that some perf refuses";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(self))
    }
}

#[derive(Default)]
struct IndexSurvey(Guests);

#[derive(Default)]
struct RecordSurvey {
    guests: Arc<Guests>,
    entries: Vec<Vec<u8>>,
    known: HashSet<Vec<u8>>,
    recorded: HashSet<EntryKey>,
}

/// Pads records that perf 7 would refuse.
#[derive(Default)]
struct Align {
    aligned: u64,
}

type EntryKey = (i32, Vec<u8>, Vec<u8>);

fn key(entry: &BuildIdEntry<'_>) -> EntryKey {
    (entry.pid, trimmed_id(entry.id).to_vec(), entry.filename.to_vec())
}

impl RecordSurvey {
    fn learn(&mut self, entry: &BuildIdEntry<'_>, endian: Endian) {
        let mut bytes = Vec::new();
        let has_id = entry.id.iter().any(|&byte| byte != 0);
        if has_id && entry.write_section(endian, &mut bytes).is_some() && self.known.insert(bytes.clone()) {
            self.entries.push(bytes);
        }
    }

    fn complete(&self, session: &mut Session) -> u64 {
        let endian = session.endian;
        let section = session.feature(Feature::BUILD_ID).cloned();
        let there = section.as_deref().unwrap_or_default();
        let mut there: HashSet<_> = BuildIds::new(there, endian).map(|entry| key(&entry)).collect();
        if session.input == Form::Pipe {
            // In pipe data, HEADER_BUILD_ID records replace the feature.
            there.extend(self.recorded.iter().cloned());
        }
        let lacking = self.entries.iter().filter(|bytes| {
            BuildIds::new(bytes, endian).next().is_some_and(|entry| there.insert(key(&entry)))
        });
        let lacking: Vec<u8> = lacking.flatten().copied().collect();
        session.add_build_ids(&lacking)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Repaired {
    rewritten: u64,
    /// Bytes in no entry.
    lost: u64,
}

/// A valid BUILD_ID section if this one is invalid: every perf reads it, its names are terminated and fit,
/// its ids have at most 20 bytes, and nothing follows the entries. Correct entries are kept verbatim.
fn repaired_section(section: &[u8], endian: Endian) -> Option<(Vec<u8>, Repaired)> {
    let mut entries = BuildIds::new(section, endian);
    // Every perf reads the form without pids.
    if entries.without_pid() {
        return None;
    }
    let (mut new, mut repaired) = (Vec::new(), Repaired::default());
    while let Some((bytes, entry)) = entries.split() {
        if entries.every_perf_reads(bytes, &entry) {
            new.extend(bytes);
        } else if entry.filename.len() < PATH_MAX && entry.write_section(endian, &mut new).is_some() {
            repaired.rewritten += 1;
        } else {
            repaired.lost += bytes.len() as u64;
        }
    }
    repaired.lost += entries.rest().len() as u64;
    (repaired != Repaired::default()).then_some((new, repaired))
}

impl Pass for ReindexBuildIds {
    fn name(&self) -> &'static str {
        ReindexBuildIds::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let recorded = Kinds::of(&[RecordType::HEADER_BUILD_ID]);
        let surveys = match self.add {
            true => vec![Kinds::of(&[RecordType::ID_INDEX]), recorded.union(Kinds::of(&[RecordType::MMAP2]))],
            false => Vec::new(),
        };
        Needs { records: recorded, surveys, barrier: false, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        if self.add { Stage::survey(IndexSurvey::default()) } else { Align::stage(None) }
    }
}

impl Survey for IndexSurvey {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        self.0.learn(record);
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::survey(RecordSurvey { guests: Arc::new(self.0), ..RecordSurvey::default() }))
    }
}

impl Fork for IndexSurvey {
    fn fork(&self) -> IndexSurvey {
        IndexSurvey::default()
    }

    fn absorb(&mut self, later: IndexSurvey) {
        self.0.absorb(later.0);
    }
}

impl Survey for RecordSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let endian = record.endian();
        if record.kind() == RecordType::HEADER_BUILD_ID {
            if let Some(entry) = BuildIdEntry::read(record.bytes(), endian) {
                self.learn(&entry, endian);
                self.recorded.insert(key(&entry));
            }
        } else if let Some(mapping) = Mapping::read(record, layouts)
            && let Identity::BuildId { id, len } = mapping.identity
        {
            let dso = mapping.dso(self.guests.machine(record, layouts, Some(mapping.pid)));
            let id = id.get(..len.into()).unwrap_or_default();
            let entry = BuildIdEntry::new(cpumode_of(&dso), dso.machine.pid(), id, dso_name(&dso));
            self.learn(&entry, endian);
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Align::stage(Some(self)))
    }
}

impl Fork for RecordSurvey {
    fn fork(&self) -> RecordSurvey {
        RecordSurvey { guests: self.guests.clone(), ..RecordSurvey::default() }
    }

    fn absorb(&mut self, later: RecordSurvey) {
        self.recorded.extend(later.recorded);
        for entry in later.entries {
            if self.known.insert(entry.clone()) {
                self.entries.push(entry);
            }
        }
    }
}

impl Align {
    fn stage(named: Option<RecordSurvey>) -> Stage {
        Stage::begin(move |begin| {
            let section = begin.feature(Feature::BUILD_ID).cloned();
            let repaired = section.and_then(|section| repaired_section(&section, begin.endian));
            let Repaired { rewritten, lost } =
                repaired.as_ref().map_or(Repaired::default(), |(_, repaired)| *repaired);
            if let Some((section, _)) = repaired {
                begin.set_feature(Feature::BUILD_ID, section);
                if lost > 0 {
                    let bytes = counted(lost, "byte", "bytes");
                    begin
                        .report
                        .say(Level::Loss, format!("{bytes} of feature BUILD_ID that are not an entry"));
                }
            }
            let added = named.map_or(0, |named| named.complete(begin));
            let repaired = [
                (
                    rewritten,
                    "entry rewritten that some perf refuses",
                    "entries rewritten that some perf refuses",
                ),
                (lost, "byte left out", "bytes left out"),
                (added, "entry added from the records", "entries added from the records"),
            ];
            report_repaired(begin, "feature BUILD_ID", &counts(&repaired));
            Ok(Stage::rewrite(Align::default()))
        })
    }
}

impl Rewrite for Align {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        // perf inject uses the first event's layout of the trailer.
        let trailer = out.layouts().all().first().map_or(0, |layout| layout.trailer.size.into());
        match aligned(&record, trailer) {
            Some(new) => {
                self.aligned += 1;
                out.replace(&record, &new)
            }
            None => out.keep(record),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if self.aligned > 0 {
            let record = "record padded that made perf 7 give up";
            let records = "records padded that made perf 7 give up";
            report_repaired(session, "HEADER_BUILD_ID", &counts(&[(self.aligned, record, records)]));
        }
        Ok(())
    }
}

impl Fork for Align {
    fn fork(&self) -> Align {
        Align::default()
    }

    fn absorb(&mut self, later: Align) {
        self.aligned += later.aligned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wrong_entries_of_a_section_change() {
        let endian = Endian::Big;
        let mut right = Vec::new();
        BuildIdEntry::new(1, -1, &[1; 20], b"[kernel.kallsyms]").write_section(endian, &mut right).unwrap();
        assert_eq!(repaired_section(&right, endian), None);
        let mut wrong = right.clone();
        BuildIdEntry::new(2, -1, &[2; 16], b"/bin/x").write_section(endian, &mut wrong).unwrap();
        let mut expected = wrong.clone();
        let second = right.len();
        wrong[second + 32] = 200;
        expected[second + 32] = 20;
        wrong.extend(b"rest");
        let (new, repaired) = repaired_section(&wrong, endian).unwrap();
        assert_eq!(repaired, Repaired { rewritten: 1, lost: 4 });
        assert_eq!(new, expected);
        assert_eq!(repaired_section(&new, endian), None);
    }
}
