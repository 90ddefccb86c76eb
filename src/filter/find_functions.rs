//! Finds the functions of the samples that all other options select.
//!
//! First, facts about the recording are collected. Then the distinct frames of samples are collected and
//! named once; a sample is selected by its frames.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_format::header::Features;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::cpumode::USER;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::frames;
use perfx_format::{Bytes, Endian, Event, Kinds, Layouts, Record, RecordType};
use perfx_pipeline::{Fork, Level, Report, Result, Session, Stage, Survey, scan};
use perfx_resolve::{Facts, FactsSurvey, Frame, FrameCache, Search, frame_at, name_frames};
use perfx_samples::SampleView;
use perfx_unwind::{Convert, Kept, Mapped, Unwinder};

use crate::choice::{FilterOptions, is_function};
use crate::choose::Choose;
use crate::chooser::{Chooser, Lookups};
use crate::functions::{Found, Functions, each_address};
use crate::hints::Hints;

#[derive(Default)]
struct Frames {
    all: HashSet<Frame, RandomState>,
    cache: FrameCache<()>,
    /// By thread and cookie, the frames of user parts of call chains. Equal ones share memory.
    user_parts: HashMap<(u32, u64), Arc<[Frame]>>,
    distinct: HashSet<Arc<[Frame]>, RandomState>,
    unwind: Option<Convert>,
}

impl Frames {
    fn new(unwinder: Option<&Unwinder>) -> Frames {
        Frames { unwind: unwinder.map(|unwinder| unwinder.on_thread(Kept::Registers)), ..Frames::default() }
    }

    fn add(
        &mut self,
        (record, layouts): (&Record<'_>, &Layouts),
        facts: &Facts,
        chooser: &Chooser,
        lookups: &mut Lookups,
    ) {
        let Some(sample) = SampleView::of(record, layouts) else { return };
        let Frames { all, cache, unwind, .. } = self;
        if record.kind() == RecordType::SAMPLE {
            let Some((_, key)) = chooser.choose(sample, lookups) else { return };
            each_address(sample, &facts.stacks, unwind.as_mut(), |mode, address| {
                let learn = |frame| {
                    all.insert(frame);
                    Ok::<_, ()>(())
                };
                cache
                    .get(facts, sample.space(&facts.guests, mode), key, (mode, address), learn)
                    .unwrap_or_default();
            });
            return;
        }
        let Some((user, (pid, tid))) = CallchainDeferred::of(record).zip(sample.task()) else {
            return;
        };
        let frame =
            |(mode, address)| frame_at(facts, (record, layouts), Some(pid), sample.key(), (mode, address));
        let part: Arc<[Frame]> = frames(user.ips, USER).map(frame).collect();
        all.extend(part.iter().copied());
        let part = self.distinct.get(&part).cloned().unwrap_or_else(|| {
            self.distinct.insert(part.clone());
            part
        });
        self.user_parts.insert((tid, user.cookie), part);
    }

    fn join(&mut self, later: Frames) {
        self.all.extend(later.all);
        self.user_parts.extend(later.user_parts);
        if let Some((unwind, later)) = self.unwind.as_mut().zip(later.unwind) {
            unwind.absorb(later);
        }
    }

    fn named(
        self,
        (facts, unwinder): (Arc<Facts>, Option<Arc<Unwinder>>),
        options: &FilterOptions,
        (features, endian): (&Features, Endian),
        report: &mut Report,
    ) -> Result<Functions> {
        let search = Search { facts: &facts, features, endian, ids: &options.search, inlined: true };
        let mut of_frames = HashMap::default();
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut all: Vec<Frame> = self.all.into_iter().collect();
        all.sort_unstable();
        let named = name_frames(all.into_iter(), search, |_, frame, name| {
            let found = Found::of(&name, options);
            if found != Found::default() {
                of_frames.insert(frame, found);
            }
            names.extend(name.functions.iter().map(|function| function.name.clone()));
        })?;
        named.say(report);
        if let Some(unwind) = &self.unwind {
            unwind.say_unresolved(Level::Warning, ("", ""), report);
        }
        let of_part = |part: &[Frame]| {
            let mut found = Found::default();
            part.iter().filter_map(|frame| of_frames.get(frame)).for_each(|caller| found.add(*caller));
            found
        };
        let of_user_parts = self.user_parts.iter().map(|(key, part)| (*key, of_part(part)));
        let of_user_parts = of_user_parts.filter(|(_, found)| *found != Found::default()).collect();
        let mut hints = Hints::default();
        let known = || names.iter().map(|name| name.as_bytes());
        hints.of_names(("symbol", "functions"), &options.symbol, known(), is_function);
        hints.of_names(("leaf", "functions"), &options.leaf, known(), is_function);
        Ok(Functions { facts: facts.clone(), of_frames, of_user_parts, unwinder, hints })
    }
}

/// The unwinder that completes call chains, if the recording needs one.
fn unwinder(
    facts: &Facts,
    options: &FilterOptions,
    events: &[Event],
    (features, endian): (&Features, Endian),
    made: HashMap<PathBuf, Bytes>,
) -> Option<Arc<Unwinder>> {
    perfx_unwind::is_needed(events, features, endian).then(|| {
        let (spaces, files, ids) = (facts.spaces.clone(), facts.files.clone(), facts.ids.clone());
        let mapped = Mapped { spaces, files, ids, guests: facts.guests.clone() };
        Arc::new(Unwinder::new(mapped, options.search.clone(), (features, endian), made))
    })
}

pub(crate) struct LearnFacts {
    chooser: Arc<Chooser>,
    facts: FactsSurvey,
}

impl LearnFacts {
    /// After this survey, the chooser decides by functions, too.
    pub(crate) fn new(chooser: Arc<Chooser>) -> LearnFacts {
        LearnFacts { chooser, facts: FactsSurvey::new(false) }
    }
}

pub(crate) fn kinds() -> [Kinds; 2] {
    [FactsSurvey::kinds(false), Kinds::SAMPLES]
}

impl Survey for LearnFacts {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.facts.learn(record, layouts, |_, _, _, _| {});
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let LearnFacts { chooser, facts } = self;
        let events = session.all_events();
        let known = (session.features(), session.endian);
        let facts = Arc::new(facts.finish(&events, known.0, &session.event_types, known.1));
        let unwinder = unwinder(&facts, &chooser.options, &events, known, session.made_files()?);
        let frames = Frames::new(unwinder.as_deref());
        Ok(Stage::survey(FindFrames { lookups: chooser.lookups(), chooser, facts, unwinder, frames }))
    }
}

struct FindFrames {
    chooser: Arc<Chooser>,
    lookups: Lookups,
    facts: Arc<Facts>,
    unwinder: Option<Arc<Unwinder>>,
    frames: Frames,
}

impl Survey for FindFrames {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        if self.chooser.may_choose_of(batch) { declared } else { declared.without(RecordType::SAMPLE) }
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.frames.add((record, layouts), &self.facts, &self.chooser, &mut self.lookups);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let FindFrames { chooser, facts, unwinder, frames, .. } = self;
        let mut report = Report::default();
        let known = (session.features(), session.endian);
        let functions = frames.named((facts, unwinder), &chooser.options, known, &mut report)?;
        session.report.lines.extend(report.lines);
        chooser.set_functions(functions);
        Ok(Stage::survey(Choose::new(chooser)))
    }
}

impl Fork for FindFrames {
    fn fork(&self) -> FindFrames {
        let (chooser, facts, unwinder) = (self.chooser.clone(), self.facts.clone(), self.unwinder.clone());
        let frames = Frames::new(unwinder.as_deref());
        FindFrames { lookups: chooser.lookups(), chooser, facts, unwinder, frames }
    }

    fn absorb(&mut self, later: FindFrames) {
        self.frames.join(later.frames);
    }
}

/// Reads a recording twice, for programs that do not rewrite it.
pub(crate) fn survey(
    recording: &mut Recording,
    chooser: &Chooser,
    threads: usize,
    report: &mut Report,
) -> Result<()> {
    let facts = Arc::new(Facts::survey(recording, threads, false)?);
    let events = recording.all_events();
    let (features, endian) = (recording.features.clone(), recording.endian);
    let unwinder = unwinder(&facts, &chooser.options, &events, (&features, endian), HashMap::new());
    let read = |batch: &Batch| -> Result<Frames> {
        let mut frames = Frames::new(unwinder.as_deref());
        let mut lookups = chooser.lookups();
        let wanted = Kinds::SAMPLES;
        let wanted = if chooser.may_choose_of(batch) { wanted } else { wanted.without(RecordType::SAMPLE) };
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            frames.add((&record, &batch.layouts), &facts, chooser, &mut lookups);
        }
        Ok(frames)
    };
    let mut all = Frames::new(unwinder.as_deref());
    scan(recording, threads, true, read, |_, frames| {
        all.join(frames);
        Ok(())
    })?;
    chooser.set_functions(all.named((facts, unwinder), &chooser.options, (&features, endian), report)?);
    Ok(())
}
