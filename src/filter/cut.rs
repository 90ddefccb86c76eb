//! Writes the selected samples, and the records that readers need for them.

use std::collections::HashSet;
use std::sync::Arc;

use perfx_format::read::{Batch, Recording};
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::record::event_update::updated_id;
use perfx_format::{Event, Kinds, Layouts, OrderKey, Record, RecordType, sample_type};
use perfx_model::tasks::{Process, Processes, TaskKey};
use perfx_pipeline::{
    Emit, Fork, Interest, Level, Needs, Pass, Place, Result, Rewrite, Session, Stage, count, counted,
    seconds, shorten_id_index,
};
use perfx_samples::SampleView;

use crate::aux::Kept;
use crate::chooser::{Chooser, Lookups};
use crate::chosen::ChosenSamples;
use crate::kept_kinds::{CHOSEN, NEEDED, UNREPORTED, reported};
use crate::owner::Owner;
use crate::time::Windows;

pub(crate) const NAME: &str = "filter";

pub(crate) struct CutRecords {
    pub(crate) cut: Arc<FilterPlan>,
    pub(crate) lookups: Lookups,
    /// For a part of a split: true from an event record of the part to the next round. Another has no effect.
    pub(crate) rounds: bool,
    pub(crate) aux: CutAux,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CutAux {
    chunks: u64,
    kept: u64,
    all: u64,
}

pub(crate) struct FilterPlan {
    pub(crate) chooser: Arc<Chooser>,
    pub(crate) chosen: ChosenSamples,
    pub(crate) windows: Windows,
    /// Context switches after this time are dropped.
    switches_end: OrderKey,
    pub(crate) owner: Option<Owner>,
    pub(crate) needed: Processes,
    /// Also keep processes whose start and end are unknown.
    pub(crate) timeless: bool,
    pub(crate) gone: HashSet<u64>,
}

impl FilterPlan {
    pub(crate) fn new(
        chooser: Arc<Chooser>,
        chosen: ChosenSamples,
        owner: Option<Owner>,
        events: &[Event],
    ) -> FilterPlan {
        let windows = owner.as_ref().map_or_else(|| chooser.windows.clone(), Owner::windows);
        let timeless = match &owner {
            Some(owner) => owner.is_of_time(),
            // AUX data traces everything that ran on its CPU.
            None => !chooser.options.chooses_samples() || chooser.chunks.has_data(),
        };
        let mut needed = Processes::default();
        let mut need = |process: Process| {
            let mut next = Some(process);
            while let Some(process) = next.filter(|&process| needed.insert(process)) {
                next = chooser.tasks.parent(process);
            }
        };
        chosen.processes.iter().for_each(&mut need);
        if timeless {
            for window in windows.ranges() {
                chooser.tasks.living(window.start, window.end).for_each(&mut need);
            }
        }
        let gone = if chooser.options.drops_events() {
            chooser.unused.ids(events, &chosen.by_event)
        } else {
            HashSet::new()
        };
        let switches_end = chooser.chunks.switches_end(windows.end());
        FilterPlan { chooser, chosen, windows, switches_end, owner, needed, timeless, gone }
    }

    pub(crate) fn keeps(&self, record: &Record<'_>, layouts: &Layouts, lookups: &mut Lookups) -> bool {
        let (chooser, kind) = (&*self.chooser, record.kind());
        let options = &*chooser.options;
        if options.kind.excludes(|&excluded| excluded == kind) {
            return false;
        }
        let owner = self.owner.as_ref();
        let is_past =
            |end| layouts.has_time() && OrderKey::of(record, layouts.layout_of(record), layouts) >= end;
        let is_switch = Kinds::SWITCHES.contains(kind);
        if is_switch && owner.is_none() && chooser.chunks.traces_code() {
            // Switches before a window name the thread traced at its start; later ones, those up to a sync.
            return !is_past(self.switches_end);
        }
        if CHOSEN.contains(kind) {
            let sample = SampleView::of(record, layouts);
            let chosen = || sample.is_some_and(|sample| chooser.choose(sample, lookups).is_some());
            return owner.map_or_else(chosen, |owner| owner.owns(record, layouts));
        }
        match kind {
            RecordType::CALLCHAIN_DEFERRED => {
                let cookie = CallchainDeferred::of(record).map(|deferred| deferred.cookie);
                let nobody_s =
                    owner.is_some_and(|owner| owner.owns_cookie(cookie) && owner.owns(record, layouts));
                return nobody_s || cookie.is_some_and(|cookie| self.chosen.cookies.contains(&cookie));
            }
            RecordType::LOST_SAMPLES if owner.is_some() => {
                return owner.is_some_and(|owner| owner.owns(record, layouts));
            }
            // A round only makes readers sort the records before it.
            RecordType::FINISHED_ROUND => {
                let here = Place::of_record(record);
                return self
                    .chosen
                    .places
                    .zip(here)
                    .is_some_and(|((first, last), here)| first < here && here < last);
            }
            RecordType::EVENT_UPDATE => return updated_id(record).is_none_or(|id| !self.gone.contains(&id)),
            _ => {}
        }
        if !NEEDED.contains(kind) || options.keep_all_sideband {
            return true;
        }
        if owner.is_some_and(|owner| owner.owns(record, layouts)) {
            return true;
        }
        if is_past(self.windows.end()) {
            return false;
        }
        let process = chooser.process_that_needs(record, layouts, lookups.last);
        let Some(process) = process else { return true };
        lookups.last = Some(process);
        self.needed.contains(process) || self.timeless && matches!(process, Process::Timeless(_))
    }

    pub(crate) fn kept_aux<'r>(&self, record: &Record<'r>) -> Kept<'r> {
        let options = &self.chooser.options;
        if options.kind.excludes(|&excluded| excluded == RecordType::AUXTRACE) {
            return Kept::Nothing;
        }
        self.chooser.chunks.cut(record, options, &self.windows, self.owner.is_some())
    }
}

/// Calls `keep` with an AUXTRACE record that has only `data`, from `offset` of the AUX stream on.
pub(crate) fn with_part(
    record: &Record<'_>,
    offset: u64,
    data: &[u8],
    keep: impl FnOnce(Record<'_>) -> Result<()>,
) -> Result<()> {
    let mut bytes = record.bytes().to_vec();
    Auxtrace::set_part(&mut bytes, offset, data.len() as u64, record.endian());
    keep(Record::new(&bytes, data, record.origin(), record.endian())?)
}

impl CutRecords {
    pub(crate) fn new(cut: FilterPlan) -> CutRecords {
        let lookups = cut.chooser.lookups();
        CutRecords { cut: Arc::new(cut), lookups, rounds: false, aux: CutAux::default() }
    }

    pub(crate) fn begin(self, session: &mut Session) -> Stage {
        let cut = &*self.cut;
        let chooser = &*cut.chooser;
        let times = cut.chosen.times;
        if let Some(times) = times.filter(|_| cut.chosen.samples < chooser.samples) {
            session.set_sample_time(times);
        }
        chooser.unused.leave_out_events(session, &cut.gone);
        if chooser.options.drop_unused {
            let needed = |process: Process| {
                cut.needed.contains(process) || cut.timeless && matches!(process, Process::Timeless(_))
            };
            let process = |who: TaskKey, key| chooser.tasks.process(who.space(&chooser.guests), key);
            chooser.unused.leave_out_build_ids(session, &|who, key| needed(process(who, key)));
        }
        let (kept, all) = (cut.chosen.samples, chooser.samples);
        let mut line = format!("kept {} of {}", count(kept), counted(all, "sample", "samples"));
        if let Some((first, last)) = times {
            line += &format!(", from {} to {}", seconds(first), seconds(last));
        }
        // No samples are expected in a part of a split, or if all are excluded by kind.
        let asked = cut.owner.is_some() || !chooser.options.kind.allows(|kind| *kind == RecordType::SAMPLE);
        let suspect = kept == 0 && all > 0 && !asked;
        session.report.say(if suspect { Level::Warning } else { Level::Info }, line);
        let hints = chooser.all_hints().flat_map(|hints| hints.lines(&session.name));
        let hints: Vec<String> = hints.filter(|_| suspect).collect();
        let exclusions = chooser.all_hints().flat_map(|hints| hints.exclusions(&session.name));
        let exclusions = exclusions.filter(|_| cut.owner.is_none());
        let hints: Vec<String> = exclusions.chain(hints).collect();
        hints.into_iter().for_each(|hint| session.report.say(Level::Warning, hint));
        if kept == all && cut.owner.is_none() && chooser.options.excludes_numbers() {
            let line = "no sample has a CPU or machine that is excluded";
            session.report.say(Level::Warning, line);
        }
        Stage::rewrite(self)
    }

    fn cut_aux(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match self.cut.kept_aux(&record) {
            Kept::All => out.keep(record),
            Kept::Nothing => {
                out.drop_record(record);
                Ok(())
            }
            Kept::Part(offset, data) => {
                self.aux.chunks += 1;
                self.aux.kept += data.len() as u64;
                self.aux.all += record.payload().len() as u64;
                with_part(&record, offset, &data, |part| out.keep(part))
            }
        }
    }

    pub(crate) fn needs() -> Needs {
        Needs { records: Kinds::ALL, decompressed: true, ids: true, ..Needs::default() }
    }
}

impl Pass for CutRecords {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        CutRecords::needs()
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::begin(|begin| Ok(self.begin(begin)))
    }
}

impl Rewrite for CutRecords {
    fn begin_batch(&mut self, batch: &Batch) -> Interest {
        self.rounds = false;
        let (cut, place) = (&*self.cut, Place::of_batch(batch));
        let stay = place.and_then(|place| cut.chosen.batches.get(&place).copied());
        let there = cut.chooser.samples_of(batch);
        if stay.is_some_and(|count| there.is_some_and(|there| there.count == count)) {
            return Interest::KeepRest(Kinds::ALL.without(RecordType::SAMPLE));
        }
        match &cut.owner {
            Some(owner) => {
                let own = place.and_then(|place| owner.ranges.get(&place).cloned());
                let elsewhere = Kinds::ALL.minus(CHOSEN.and(RecordType::FINISHED_ROUND));
                Interest::DropOutside(own.unwrap_or_default(), elsewhere)
            }
            None if stay.is_some() => Interest::AsDeclared,
            None => Interest::DropRest(reported(batch)),
        }
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let (cut, lookups) = (&self.cut, &mut self.lookups);
        if record.kind() == RecordType::ID_INDEX && !cut.gone.is_empty() {
            return shorten_id_index(&record, &cut.gone, out);
        }
        if record.kind() == RecordType::AUXTRACE {
            return self.cut_aux(record, out);
        }
        let is_round = record.kind() == RecordType::FINISHED_ROUND && cut.owner.is_some();
        if (!is_round || self.rounds) && cut.keeps(&record, out.layouts(), lookups) {
            self.rounds = CHOSEN.contains(record.kind()) || self.rounds && !is_round;
            out.keep(record)?;
        } else if !UNREPORTED.contains(record.kind()) {
            out.drop_record(record);
        }
        Ok(())
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let is_window = self.cut.owner.is_none() && !self.cut.windows.are_all();
        if is_window && Layouts::new(&session.events).any_samples(sample_type::AUX) {
            let what = "the trace at the end of a window: it is in later samples, which are left out";
            session.report.say(Level::Loss, what.to_owned());
        }
        let CutAux { chunks, kept, all } = self.aux;
        if chunks > 0 {
            let (chunks, kept) = (counted(chunks, "AUXTRACE record", "AUXTRACE records"), count(kept));
            let what = format!("cut {chunks}: kept {kept} of {} of AUX data", counted(all, "byte", "bytes"));
            session.report.say(Level::Info, what);
            if self.cut.chooser.chunks.needs_switches {
                let what = "which thread was traced at the beginning of a window: samples of sched:sched_switch in \
                            front of it, which say that, are left out, so inject --itrace may take another's code";
                session.report.say(Level::Loss, what.to_owned());
            }
        }
        Ok(())
    }
}

impl Fork for CutRecords {
    fn fork(&self) -> CutRecords {
        let lookups = self.cut.chooser.lookups();
        CutRecords { cut: self.cut.clone(), lookups, rounds: false, aux: CutAux::default() }
    }

    fn absorb(&mut self, later: CutRecords) {
        self.aux.chunks += later.aux.chunks;
        self.aux.kept += later.aux.kept;
        self.aux.all += later.aux.all;
    }
}
