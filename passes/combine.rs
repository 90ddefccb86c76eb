//! Merges the records of one or several recordings of one machine into time order, as if perf had recorded
//! them together. Equal events become one event, and records that several inputs share are written once.
//!
//! perf processes a record without a time (time 0, ~0, kinds from 64 on) as soon as it reads it; records with
//! a time wait for the end of the next round. So a record without a time is placed after the records that
//! perf has flushed by then, and before the waiting ones. Such records keep their order. perf reads a
//! recording without sample_id_all in file order; there the record stays between its neighbours. Two
//! FINISHED_ROUNDs before a kernel record make perf flush everything older. A record without a time is held
//! back no longer than its batch, so the payload of AUXTRACE is never buffered.

mod chunks;
mod dedup;
mod index;
mod input;
mod lists;
mod missing_ids;
mod report;
mod rewrite;
pub(crate) mod spec;
mod unite;

use perfx_format::read::{Batch, KCORE_DIR, Recording};
use perfx_format::{Event, Feature, Kinds, Layouts, Record, sample_type};
use perfx_pipeline::{
    Begin, Fork, Level, Needs, OutputForm, Pass, Purpose, Result, Session, Stage, Survey, ahead, counted,
    ensure,
};

use dedup::Deduplicator;
pub(crate) use input::{Batches, Made};
use input::{Input, InputFacts, Translator};
use missing_ids::lacking;
use report::{IDENTIFIED, check, report_plan};
use rewrite::Combining;
pub(crate) use rewrite::Step;
use spec::InputSpec;
use unite::{JoinSource, Union, clocks, one_kernel, unite_features};

/// The passes `join` (with other inputs) and `sort`, or a step that needs the records in time order.
pub struct Combine {
    name: &'static str,
    options: CombineOptions,
    step: Option<Box<dyn Step>>,
}

impl Combine {
    pub(crate) fn new(name: &'static str, options: CombineOptions) -> Combine {
        Combine { name, options, step: None }
    }

    pub(crate) fn with_step(name: &'static str, step: impl Step) -> Combine {
        Combine { step: Some(Box::new(step)), ..Combine::new(name, CombineOptions::default()) }
    }

    /// The first stage, for a pass that surveys before it.
    pub(crate) fn stage(self) -> Stage {
        let Combine { options, step, .. } = self;
        Stage::survey(FactSurvey { options, facts: Box::default(), step })
    }
}

/// The options, checked.
#[derive(Debug, Default)]
pub struct CombineOptions {
    /// The lead of the first input's clock, ns.
    pub offset: Option<i64>,
    /// The other inputs.
    pub others: Vec<Joined>,
    /// Allow inputs of different machines or boots.
    pub mix: bool,
    /// True if the first input has no `kcore_dir`, so that the output may get another input's.
    pub take_kcore: bool,
}

/// An input after the first.
#[derive(Debug)]
pub enum Joined {
    /// Opened when the pass starts.
    Named(InputSpec),
    /// An open recording, and the lead of its clock, ns.
    Open(Box<Recording>, Option<i64>),
}

struct FactSurvey {
    options: CombineOptions,
    facts: Box<InputFacts>,
    step: Option<Box<dyn Step>>,
}

struct IndexSurvey {
    options: CombineOptions,
    facts: Box<InputFacts>,
}

/// The report line for a recording that is already sorted.
pub const IN_ORDER: &str = "its records are in time order already: nothing to sort";

impl CombineOptions {
    fn open(&mut self, session: &mut Session) -> Result<Vec<(Recording, Option<i64>, InputFacts)>> {
        let mut opened = Vec::new();
        for other in std::mem::take(&mut self.others) {
            let (mut recording, offset) = match other {
                Joined::Named(InputSpec { path, offset }) => (session.open(&path)?, offset),
                Joined::Open(recording, offset) => (recording.spooled(&session.temp_files())?, offset),
            };
            let name = recording.name.clone();
            ensure!(
                recording.endian == session.endian,
                "{name}: its byte order differs from that of {}; a recording has only one byte order",
                session.name
            );
            recording.check_whole()?;
            session.report.say_faults(&recording, Purpose::Use);
            Layouts::new(&recording.events).check_ids().map_err(|e| e.file(&name))?;
            let facts = InputFacts::of(&mut recording, session.threads)?;
            facts.fragments.iter().for_each(|fragment| session.report.say(Level::Loss, fragment.clone()));
            for (feature, section) in &facts.features {
                recording.features.entry(*feature).or_insert_with(|| section.clone());
            }
            opened.push((recording, offset, facts));
        }
        Ok(opened)
    }

    /// Starts the union of the inputs; `facts` are those of the first one.
    fn begin(
        mut self,
        mut facts: InputFacts,
        mut step: Option<Box<dyn Step>>,
        session: &mut Begin<'_>,
    ) -> Result<Stage> {
        facts.end_survey();
        if let Some(step) = &mut step
            && !step.begin(session)?
        {
            session.want_only(Kinds::NONE);
            return Ok(Stage::copy());
        }
        let mut others = self.open(session)?;
        let alone = others.is_empty();
        if facts.index.is_needed() || others.iter().any(|(.., facts)| facts.index.is_needed()) {
            for (recording, _, facts) in &mut others {
                let late = std::mem::take(&mut facts.events);
                let ids = recording.events.iter().chain(&late).flat_map(|event| &event.ids);
                if facts.index.lacks(ids) {
                    facts.index.see_all(recording, session.threads)?;
                }
                facts.events = late;
            }
        }
        let offset = self.offset.unwrap_or(0);
        if alone && facts.late == 0 && offset == 0 && step.is_none() {
            session.want_only(Kinds::NONE);
            let timeless = facts.earliest.is_none() && facts.records > 0;
            let what = "no record has a time to sort by";
            session.report.say(Level::Info, if timeless { what } else { IN_ORDER });
            return Ok(Stage::copy());
        }
        let (session_name, features) = (session.name.clone(), session.features().clone());
        let first_events = session.events.clone();
        let mut sources = vec![JoinSource {
            name: &session_name,
            events: session.events.clone(),
            features: &features,
            facts: &facts,
            offset: self.offset,
        }];
        for (recording, offset, facts) in &others {
            sources.push(JoinSource {
                name: &recording.name,
                events: recording.events.iter().chain(&facts.events).cloned().collect(),
                features: &recording.features,
                facts,
                offset: *offset,
            });
        }
        for source in sources.iter_mut().filter(|_| !alone) {
            source.facts.unlisted.list_in(&mut source.events);
        }
        let endian = session.endian;
        let (mut index, mut in_turn) = (Vec::new(), false);
        let translators = if alone {
            // The feature may hold the times of the first and last sample in file order.
            unite_features(&sources, &[offset], session)?;
            let first = |event: &Event| event.ids.first().copied().unwrap_or(0);
            let identify = step.as_ref().is_some_and(|step| step.identifies());
            let identify = identify.then(|| {
                session.report.say(Level::Info, IDENTIFIED);
                session.events.iter().map(first).collect()
            });
            vec![Translator { offset, identify, ..Translator::default() }]
        } else {
            in_turn = check(&sources)?;
            let offsets = clocks(&mut sources, self.mix, endian, &mut session.report)?;
            let mut union = Union::new(&sources, &facts.events, &offsets, endian)?;
            report_plan(&sources, &union, &mut session.report);
            let mut take_kcore = self.take_kcore;
            for (source, (recording, ..)) in sources.iter().skip(1).zip(&others) {
                for extra in &recording.extras {
                    let name = extra.file_name().unwrap_or_default();
                    // A copy of the kernel is useful only for inputs that ran on that kernel.
                    if take_kcore && name == KCORE_DIR && one_kernel(&sources[0], source, endian) {
                        let what = format!("{}: its {KCORE_DIR} goes into the output", source.name);
                        session.report.say(Level::Info, what);
                        session.beside.push((extra.clone(), name.to_owned()));
                        take_kcore = false;
                        continue;
                    }
                    let what =
                        format!("{}: {}, which the output has no place for", source.name, name.display());
                    session.report.say(Level::Loss, what);
                }
            }
            index = lacking(&sources, &union, endian, &mut session.report);
            session.events.clone_from(&union.events);
            union.describe(session);
            unite_features(&sources, &offsets, session)?;
            if sources.iter().any(|source| source.facts.has_aux) {
                session.rebuild_aux_index();
            }
            std::mem::take(&mut union.translators)
        };
        drop(sources);
        let mut translators = translators.into_iter();
        let mut own = || translators.next().unwrap_or_default();
        let spool = session.temp_files();
        let made = step.as_mut().and_then(|step| step.made());
        if made.is_some() {
            // The step's records may be the earliest; only records without a time stay before them.
            facts.earliest = Some(1);
        }
        let mut inputs = vec![Input::first(&facts, &first_events, own(), endian, spool.clone())];
        let made = made.map(|made| ahead(made, session.threads)).transpose()?.map(Made::from);
        for (recording, _, facts) in &mut others {
            inputs.push(Input::other(recording, facts, own(), spool.clone(), session.threads)?);
        }
        if alone && facts.late > 0 {
            let late = counted(facts.late, "record was", "records were");
            session.report.say(Level::Info, format!("at least {late} out of order"));
        }
        let sets_times = step.is_some() && session.feature(Feature::SAMPLE_TIME).is_some();
        if sets_times {
            session.clear_feature(Feature::SAMPLE_TIME);
            if session.form == OutputForm::Pipe {
                let feature = Feature::SAMPLE_TIME;
                let what = format!("left out feature {feature}: pipe data begins before the times are known");
                session.report.say(Level::Info, what);
            }
        }
        if in_turn {
            let what = "no record has a time, so the records of each input follow those of the one before";
            session.report.say(Level::Info, what);
        }
        let deduplicator = (!alone).then(|| Deduplicator::new(in_turn));
        let combining = Combining::new((inputs, made), index, step, sets_times, deduplicator);
        Ok(Stage::rewrite_prescanned_in_order(combining))
    }
}

/// True if all records with a time are in time order.
///
/// # Errors
///
/// The recording cannot be read or decompressed.
pub fn in_time_order(recording: &mut Recording, threads: usize) -> Result<bool> {
    Ok(InputFacts::of(recording, threads)?.late == 0)
}

impl Pass for Combine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self, input: &Recording) -> Needs {
        let surveys = [Kinds::ALL, Kinds::OF_KERNEL];
        let surveys = if self.options.others.is_empty() { &surveys[..1] } else { &surveys };
        Needs {
            records: Kinds::ALL,
            surveys: surveys.to_vec(),
            decompressed: true,
            ids: input.events.iter().any(|event| event.attr().sample_type & sample_type::TIME != 0),
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        self.stage()
    }
}

impl Survey for FactSurvey {
    fn begin_batch(&mut self, _batch: &Batch, declared: Kinds) -> Kinds {
        self.facts.begin();
        declared
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.facts.look_at(record, layouts)
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let FactSurvey { options, facts, step } = self;
        let ids = session.events.iter().flat_map(|event| &event.ids);
        if !options.others.is_empty() && facts.index.lacks(ids) {
            return Ok(Stage::survey(IndexSurvey { options, facts }));
        }
        Ok(Stage::begin(move |begin| options.begin(*facts, step, begin)))
    }
}

impl Fork for FactSurvey {
    fn fork(&self) -> FactSurvey {
        let (options, facts, step) = Default::default();
        FactSurvey { options, facts, step }
    }

    fn absorb(&mut self, later: FactSurvey) {
        self.facts.join(*later.facts);
    }
}

impl Survey for IndexSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.facts.index.see(record, layouts);
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        // Runs only with several inputs and without a step.
        Ok(Stage::begin(move |begin| self.options.begin(*self.facts, None, begin)))
    }
}

impl Fork for IndexSurvey {
    fn fork(&self) -> IndexSurvey {
        let (options, facts) = Default::default();
        IndexSurvey { options, facts }
    }

    fn absorb(&mut self, later: IndexSurvey) {
        self.facts.join(*later.facts);
    }
}
