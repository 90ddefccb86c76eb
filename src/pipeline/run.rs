//! Drives a recording through its passes: looks first, then batches into plans (on as many threads as the passes allow), then the writer in
//! file order. The bytes written never depend on the number of threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, slice, thread};

use anyhow::{Context as _, Result};
use crossbeam_channel::bounded;
use perfx_format::expand::{Expand, Parcel, Parcels};
use perfx_format::features::{AuxtraceEntry, read_auxtrace_index, write_auxtrace_index};
use perfx_format::header::{
    EVENT_TYPE_SIZE, FILE_HEADER_SIZE, Features, FileFront, FileHeader, Magic, Section, Weight, feature_table,
};
use perfx_format::input::{Batch, Form, Recording, Spool};
use perfx_format::pipe::{event_type_record, pipe_front};
use perfx_format::{Bytes, Endian, Error, Event, Feature, Kinds, Layouts, Origin, RecordType};

use crate::draft::{self, Open};
use crate::hidden::Hidden;
use crate::ordered::{mapped, ordered, started};
use crate::pass::{Damage, Emit, Needs, Pass, Place, Scope, Session, Stage};
use crate::plan::{Mark, Piece, Plan, Planner, Terminal};
use crate::report::{Level, Report};
use crate::sink::Sink;
use crate::words::counted;

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputForm {
    /// A file with header, data and feature sections.
    File,
    /// The main file of a directory, beside which the caller keeps `kcore_dir`.
    DirectoryData,
    /// Pipe data.
    Pipe,
    /// The input's own file, whose records stay where they are: only features can change, and [`Outcome::moved`] tells when that is not enough.
    /// Nothing is written.
    InPlace,
}

/// Where the output goes.
pub enum Output<'a> {
    /// Into an empty file.
    File(&'a File, OutputForm),
    /// Into a pipe.
    Pipe(&'a mut (dyn Write + Send)),
    /// Nowhere: for what it would be, and for the feature sections that passes make.
    Nowhere(OutputForm),
}

impl std::fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Output({:?})", self.form())
    }
}

impl Output<'_> {
    fn form(&self) -> OutputForm {
        match self {
            Output::File(_, form) | Output::Nowhere(form) => *form,
            Output::Pipe(_) => OutputForm::Pipe,
        }
    }
}

/// A recording and what is to be done with it.
pub struct Job {
    /// The input.
    pub recording: Recording,
    /// In the order records go through them.
    pub passes: Vec<Box<dyn Pass>>,
    /// Threads that turn batches into plans; 1: everything on the calling thread.
    pub threads: usize,
    /// Makes temporary files.
    pub spool: Spool,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({:?}, {} passes)", self.recording, self.passes.len())
    }
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// What there is to tell.
    pub report: Report,
    /// The feature sections as written.
    pub features: Features,
    /// Bytes written.
    pub written: u64,
    /// Passes changed records.
    pub moved: bool,
    /// What goes into an output directory beside the records, and under which name.
    pub beside: Vec<(PathBuf, OsString)>,
}

/// A pass that must be the last one is not.
#[derive(Debug)]
pub struct NotLast(&'static str);

impl fmt::Display for NotLast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pass {} must be the last one: no other can read what it writes", self.0)
    }
}

impl std::error::Error for NotLast {}

/// How a job will be done, decided before the first byte moves.
#[derive(Debug)]
pub struct Schedule {
    needs: Vec<(&'static str, Needs)>,
    looks: usize,
    /// COMPRESSED records are replaced by what they hold.
    expand: bool,
    compressed: bool,
    spool: bool,
    threads: usize,
    damage: Damage,
}

impl Schedule {
    fn new(job: &Job) -> Result<Schedule> {
        let needs: Vec<_> = job.passes.iter().map(|pass| (pass.name(), pass.needs(&job.recording))).collect();
        let recording = &job.recording;
        let looks = needs.iter().map(|(_, needs)| needs.looks.len()).max().unwrap_or(0);
        // Records of several zstd streams can't stand in one file: it has one.
        let several = recording.stream_count() > 1 && recording.is_compressed();
        if let Some(at) = needs.iter().position(|(_, needs)| needs.last).filter(|at| at + 1 < needs.len()) {
            anyhow::bail!(NotLast(needs[at].0));
        }
        if needs.iter().any(|(_, needs)| needs.ids) {
            Layouts::new(&recording.events).check_ids().map_err(|e| e.file(&recording.name))?;
        }
        Ok(Schedule {
            looks,
            expand: several || needs.iter().any(|(_, needs)| needs.decompressed),
            compressed: recording.is_compressed(),
            spool: looks > 0 && !recording.is_rereadable(),
            threads: job.threads,
            damage: needs.iter().map(|(_, needs)| needs.damage).max().unwrap_or_default(),
            needs,
        })
    }

    /// What each pass needs, in the order records go through them.
    pub fn needs(&self) -> &[(&'static str, Needs)] {
        &self.needs
    }

    /// The input goes to a temporary file first, because it is looked at more than once.
    pub fn spools(&self) -> bool {
        self.spool
    }

    /// COMPRESSED records, of which there are some, are replaced by what they hold.
    pub fn decompresses(&self) -> bool {
        self.expand && self.compressed
    }

    /// The first pass that looks at what one before it leaves or makes.
    fn parts_at(&self) -> Option<usize> {
        let reshaped = self.needs.iter().position(|(_, needs)| needs.reshapes)?;
        let behind = self.needs.iter().enumerate().skip(reshaped + 1);
        behind.filter(|(_, (_, needs))| !needs.looks.is_empty()).map(|(at, _)| at).next()
    }

    /// One line a step, as `--explain` prints it.
    pub fn explain(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.spool {
            lines.push(
                "spool the input to a temporary file, because it is looked at more than once".to_owned(),
            );
        }
        let (front, behind) = self.needs.split_at(self.parts_at().unwrap_or(self.needs.len()));
        explain_looks(front, &mut lines);
        if self.decompresses() {
            lines.push("decompress: COMPRESSED records are replaced by what they hold".to_owned());
        }
        explain_passes(front, &mut lines);
        if let Some((name, _)) = behind.first() {
            lines.push(format!("write that to a temporary file, because {name} looks at what is left"));
            explain_looks(behind, &mut lines);
            explain_passes(behind, &mut lines);
        }
        lines.push("write, in file order".to_owned());
        lines
    }
}

fn explain_looks(needs: &[(&str, Needs)], lines: &mut Vec<String>) {
    let looks = needs.iter().map(|(_, needs)| needs.looks.len()).max().unwrap_or(0);
    for look in 0..looks {
        for (name, needs) in needs {
            if let Some(kinds) = needs.looks.get(look) {
                lines.push(format!("look {}: {name} reads {}", look + 1, kinds_text(*kinds)));
            }
        }
    }
}

fn explain_passes(needs: &[(&str, Needs)], lines: &mut Vec<String>) {
    for (name, needs) in needs {
        let mut line = format!("pass {name}: changes {}", kinds_text(needs.records));
        if !needs.stale.is_empty() {
            let stale: Vec<_> = needs.stale.iter().map(ToString::to_string).collect();
            line += &format!(", rebuilds {}", stale.join(", "));
        }
        lines.push(line);
    }
}

fn kinds_text(kinds: Kinds) -> String {
    match kinds.names() {
        names if names.is_empty() => "no record where it stands".to_owned(),
        names if kinds == Kinds::ALL || names.len() == perfx_format::RecordType::NAMED.len() => {
            "every record".to_owned()
        }
        names => names.join(", "),
    }
}

impl Job {
    /// How it will be done.
    pub fn schedule(&self) -> Result<Schedule> {
        Schedule::new(self)
    }

    /// Does it. An error names the file, the place and the kind of the record; what was written by then is the caller's to remove.
    pub fn run(mut self, output: Output<'_>) -> Result<Outcome> {
        let schedule = Schedule::new(&self)?;
        let Some(at) = schedule.parts_at() else { return self.run_at_once(output, &schedule) };
        let form = match output.form() {
            OutputForm::DirectoryData => OutputForm::DirectoryData,
            _ => OutputForm::File,
        };
        let (behind, name, threads, spool) =
            (self.passes.split_off(at), self.recording.name.clone(), self.threads, self.spool.clone());
        let file = spool().map_err(|e| Error::io("a temporary file can't be made", e))?;
        let schedule = Schedule::new(&self)?;
        let made = self.run_at_once(Output::File(&file, form), &schedule)?;
        let recording = Recording::from_file(file, name, spool.clone())?;
        let done = Job { recording, passes: behind, threads, spool }.run(output)?;
        let beside = [made.beside, done.beside].concat();
        let report = made.report.followed_by(done.report);
        Ok(Outcome { report, moved: made.moved || done.moved, beside, ..done })
    }

    /// The same, where no pass must see what another made.
    fn run_at_once(mut self, mut output: Output<'_>, schedule: &Schedule) -> Result<Outcome> {
        if schedule.damage != Damage::Salvage {
            self.recording.check_whole()?;
        }
        if schedule.spool {
            self.recording = self.recording.spooled(&self.spool)?;
        }
        let recording = &mut self.recording;
        recording.progress().expect(schedule.looks as u64 + 1);
        let form = output.form();
        let mut report = Report::default();
        for fault in &recording.faults {
            let level = if fault.weight >= Weight::Loss { Level::Loss } else { Level::Warning };
            report.say(level, fault.to_error().file(&recording.name).to_string());
        }
        let features = features_of(recording, form, schedule.expand);
        let mut session = Session::new(
            recording,
            form,
            features,
            report,
            !schedule.expand,
            self.threads,
            self.spool.clone(),
        );

        for batch in &recording.head {
            session.report.records += batch.records;
            session.report.bytes += batch.bytes.len() as u64;
        }
        let mut chain = Vec::new();
        for (pass, (_, needs)) in self.passes.into_iter().zip(&schedule.needs) {
            let stage =
                Stage { pass, kinds: needs.records, places: Arc::new([]), seen_enough: false, layouts: None };
            chain.push(stage);
        }
        for look in 0..schedule.looks {
            survey(recording, &mut chain, look, schedule, &mut session)?;
        }
        for stage in &mut chain {
            if session.events != recording.events {
                stage.layouts = Some(Arc::new(Layouts::new(&session.events)));
            }
            session.places.clear();
            let begun = stage.pass.begin(&mut session);
            begun.with_context(|| format!("pass {}", stage.pass.name()))?;
            stage.kinds = session.kinds.take().unwrap_or(stage.kinds);
            session.places.sort_unstable();
            session.places.dedup();
            stage.places = session.places.as_slice().into();
        }

        let to_file = form != OutputForm::Pipe;
        let from_pipe = recording.form == Form::Pipe;
        let has_index = session.list_aux || session.feature(Feature::AUXTRACE).is_some();
        let terminal = Terminal {
            endian: recording.endian,
            mark_aux: to_file && (from_pipe || has_index),
            absorb: to_file && from_pipe,
            strip: !to_file && !from_pipe,
        };
        let mut writer = Writer::new(&mut output, recording, &mut session)?;
        write_records(recording, &mut chain, schedule, terminal, &mut session, &mut writer)?;
        session.settle();
        if terminal.absorb && writer.kinds.has(RecordType::STAT_CONFIG) {
            set_stat(&mut session);
        }
        let layouts = Layouts::new(&session.events);
        for at in 0..chain.len() {
            let Some((stage, rest)) = chain[at..].split_first_mut() else { continue };
            write_rest(stage, rest, schedule.threads, terminal, &layouts, &mut session, &mut writer)?;
            let mut planner = Planner::new(None, terminal);
            let finished = stage.pass.finish(&mut session, &mut Emit::new(rest, &mut planner, &layouts));
            finished.with_context(|| format!("pass {}", stage.pass.name()))?;
            writer.plan(&planner.done(), &[], &mut session)?;
        }
        drop_stale(schedule, &mut session);
        let nothing = writer.is_empty() && session.features().is_empty();
        anyhow::ensure!(
            !nothing || schedule.damage != Damage::Salvage,
            "{}: no record and no feature of it is left, and a file without both is what perf record leaves when it is killed",
            session.name
        );
        let (written, moved) = writer.finish(from_pipe, &mut session)?;
        let features = session.features().clone();
        Ok(Outcome { features, report: session.report, written, moved, beside: session.beside })
    }
}

/// The features that go into the output, before passes change them: all but those that only hold for the form it had.
fn features_of(recording: &Recording, form: OutputForm, expand: bool) -> Features {
    let mut features = recording.features.clone();
    if form == OutputForm::InPlace {
        return features;
    }
    if expand {
        // The zeros of perf stat record tell of no compression that could be undone.
        features.retain(|feature, section| {
            *feature != Feature::COMPRESSED || section.iter().all(|byte| *byte == 0)
        });
    }
    // A directory's streams are written as one file.
    if matches!(recording.form, Form::Directory { version } if version > 0 || form != OutputForm::DirectoryData)
    {
        features.remove(&Feature::DIR_FORMAT);
    }
    if form == OutputForm::Pipe {
        features.remove(&Feature::AUXTRACE);
        features.remove(&Feature::DIR_FORMAT);
    }
    features
}

/// Pipe data of perf stat never says that it is such, but a file must: perf refuses counters that keep their ids nowhere without feature STAT.
fn set_stat(session: &mut Session) {
    let counts = session.events.iter().all(|event| event.attr().sample_period == 0);
    if counts && session.feature(Feature::STAT).is_none() {
        session.set_feature(Feature::STAT, Vec::new());
        let what =
            "feature STAT was set: there is a STAT_CONFIG record, and the events count and do not sample";
        session.report.say(Level::Info, what);
    }
}

fn drop_stale(schedule: &Schedule, session: &mut Session) {
    for (name, needs) in &schedule.needs {
        for &feature in needs.stale {
            if !session.set.contains(&feature) && session.feature(feature).is_some() {
                session.clear_feature(feature);
                session.report.say(
                    Level::Loss,
                    format!("feature {feature} no longer holds after {name} and was dropped"),
                );
            }
        }
    }
}

/// A pass's or a reader's error with the name of the file it is about.
pub fn in_file(error: anyhow::Error, name: &Arc<str>) -> anyhow::Error {
    match error.downcast::<Error>() {
        Ok(error) => error.file(name).into(),
        Err(error) => error.context(name.to_string()),
    }
}

/// All batches of a recording, COMPRESSED records replaced by what they hold, for who reads on and off: the same batches that [`crate::scan`] shows.
pub fn opened(
    recording: &mut Recording,
) -> Expand<impl Iterator<Item = perfx_format::Result<Parcel>> + Send + use<>> {
    let mmap_len = recording.compressed().map_or(0, |compressed| compressed.mmap_len);
    expand_alone(recording.batches(), recording.endian, mmap_len, false)
}

/// `then` with the batches of a recording, expanded: by `threads` threads where zstd frames allow it. The batches are the same for any number.
pub(crate) fn expanded<O>(
    recording: &mut Recording,
    threads: usize,
    salvage: bool,
    then: impl FnOnce(Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send + '_>) -> Result<O>,
) -> Result<O> {
    expanded_seen(recording, threads, salvage, |_| {}, then)
}

/// The same, and `stored` sees every batch as it lies in the input, in file order.
pub(crate) fn expanded_seen<O>(
    recording: &mut Recording,
    threads: usize,
    salvage: bool,
    mut stored: impl FnMut(&Batch) + Send,
    then: impl FnOnce(Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send + '_>) -> Result<O>,
) -> Result<O> {
    let (endian, chain) = (recording.endian, recording.chain.clone());
    let mmap_len = recording.compressed().map_or(0, |compressed| compressed.mmap_len);
    let alone = threads <= 1 || !recording.is_compressed();
    let batches = recording.batches().inspect(|batch| {
        if let Ok(batch) = batch {
            stored(batch);
        }
    });
    if alone {
        return then(Box::new(expand_alone(batches, endian, mmap_len, salvage).chained(chain)));
    }
    mapped(
        Parcels::new(batches),
        &mut vec![(); threads],
        |_, parcel| parcel.map(|parcel| parcel.opened()),
        |parcels| {
            let batches = Expand::new(parcels, endian, mmap_len);
            then(Box::new(batches.salvage(salvage).chained(chain)))
        },
    )
}

/// Batches expanded on the thread that asks for them, the same as many threads make.
pub(crate) fn expand_alone<'a>(
    batches: impl Iterator<Item = perfx_format::Result<Batch>> + Send + 'a,
    endian: Endian,
    mmap_len: u32,
    salvage: bool,
) -> Expand<impl Iterator<Item = perfx_format::Result<Parcel>> + Send + 'a> {
    let opened = move |parcel: perfx_format::Result<Parcel>| parcel.map(|parcel| parcel.opened());
    Expand::new(Parcels::new(batches).map(opened), endian, mmap_len).salvage(salvage)
}

/// `work` for every batch on as many threads as the passes allow, then `done` in file order. A batch that is not `touched` gets no chain.
fn each_batch<R: Send>(
    schedule: &Schedule,
    chain: &mut Vec<Stage>,
    recording: &mut Recording,
    open: bool,
    touched: impl Fn(&Batch) -> bool + Sync,
    work: impl Fn(&mut [Stage], &Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let fork = |chain: &[Stage]| -> Vec<Stage> { chain.iter().filter_map(Stage::fork).collect() };
    let threads = schedule.threads;
    let salvage = schedule.damage == Damage::Salvage;
    let open = if open { Open::Yes { salvage, stored: |_: &Batch| {} } } else { Open::No };
    // Also on one thread, so that a pass can tell one batch from the next.
    if chain.iter().all(|stage| stage.pass.fork().is_some()) {
        let forked = fork(chain);
        let step = |chain: &mut Vec<Stage>, batch: perfx_format::Result<Batch>| -> Result<_> {
            let batch = batch?;
            let mut forks = if touched(&batch) { fork(chain) } else { Vec::new() };
            let result = work(&mut forks, &batch).map_err(|e| in_file(e, &batch.name))?;
            Ok((batch, result, forks))
        };
        return draft::each(
            recording,
            threads,
            open,
            || fork(&forked),
            step,
            |stepped| {
                let (batch, result, forks) = stepped?;
                done(&batch, result)?;
                let joined =
                    chain.iter_mut().zip(forks).try_for_each(|(stage, fork)| stage.pass.join(fork.pass));
                joined.map_err(|e| in_file(e, &batch.name))
            },
        );
    }
    // The passes must see one batch after another, but any thread can find and scout them.
    let scout: Vec<Stage> = chain.first().and_then(Stage::scout).into_iter().collect();
    let found = |scout: &mut Vec<Stage>, batch: perfx_format::Result<Batch>| -> Result<(Batch, Vec<Stage>)> {
        let batch = batch?;
        let mut scouts = fork(scout);
        let looking: Vec<_> = scouts.iter().map(|scout| (0, scout.kinds)).collect();
        look_into(&batch, &mut scouts, 0, &looking).map_err(|e| in_file(e, &batch.name))?;
        Ok((batch, scouts))
    };
    let step = |chain: &mut Vec<Stage>, found: Result<(Batch, Vec<Stage>)>| -> Result<(Batch, R)> {
        let (batch, scouts) = found?;
        let joined = chain.iter_mut().zip(scouts).try_for_each(|(stage, scout)| stage.pass.join(scout.pass));
        joined.map_err(|e| in_file(e, &batch.name))?;
        let chain = if touched(&batch) { &mut chain[..] } else { &mut [] };
        let result = work(chain, &batch).map_err(|e| in_file(e, &batch.name))?;
        Ok((batch, result))
    };
    let mut done = |stepped: Result<(Batch, R)>| {
        let (batch, result) = stepped?;
        done(&batch, result)
    };
    if threads <= 1 {
        return draft::each(
            recording,
            threads,
            open,
            || fork(&scout),
            found,
            |found| done(step(chain, found)),
        );
    }
    thread::scope(|scope| {
        let (sender, receiver) = bounded(0);
        started(thread::Builder::new().spawn_scoped(scope, move || {
            let hand_on = |found| sender.send(found).ok().context("nobody wants more batches");
            let _ = draft::each(recording, threads, open, || fork(&scout), found, hand_on);
        }))?;
        ordered(receiver.into_iter(), slice::from_mut(chain), false, step, done)
    })
}

/// One read-only look at all records some pass wants to see in it.
fn survey(
    recording: &mut Recording,
    chain: &mut Vec<Stage>,
    look: usize,
    schedule: &Schedule,
    session: &mut Session,
) -> Result<()> {
    let wishes = chain.iter().zip(&schedule.needs).enumerate().filter(|(_, (stage, _))| !stage.seen_enough);
    let looking: Vec<(usize, Kinds)> =
        wishes.filter_map(|(stage, (_, (_, needs)))| Some((stage, *needs.looks.get(look)?))).collect();
    if looking.is_empty() {
        return Ok(());
    }
    let wanted = looking.iter().fold(Kinds::NONE, |all, (_, kinds)| all.union(*kinds));
    let read = |chain: &mut [Stage], batch: &Batch| match chain {
        [] => Ok(()),
        chain => look_into(batch, chain, look, &looking),
    };
    let touched = |batch: &Batch| batch.kinds.meets(wanted);
    each_batch(schedule, chain, recording, true, touched, read, |_, ()| Ok(()))?;
    for (stage, _) in looking {
        let stage = &mut chain[stage];
        let name = stage.pass.name();
        stage.pass.surveyed(look, session).with_context(|| format!("pass {name}"))?;
        stage.seen_enough = std::mem::take(&mut session.seen_enough);
    }
    Ok(())
}

/// Shows the records of a batch to those passes of the chain that are looking, each for the kinds it wants.
fn look_into(batch: &Batch, chain: &mut [Stage], look: usize, looking: &[(usize, Kinds)]) -> Result<()> {
    let scoped = looking.iter().map(|&(stage, kinds)| match chain[stage].pass.scope(Some(look), batch) {
        Scope::Wanted => (stage, kinds),
        Scope::Only(only) | Scope::These(only) => (stage, kinds.intersection(only)),
    });
    let looking: Vec<(usize, Kinds)> = scoped.collect();
    let wanted = looking.iter().fold(Kinds::NONE, |all, (_, kinds)| all.union(*kinds));
    let mut walker = batch.walk();
    while batch.kinds.meets(wanted)
        && let Some(record) = walker.next_wanted(wanted, usize::MAX)?
    {
        for (stage, kinds) in &looking {
            if kinds.has(record.kind()) {
                chain[*stage].pass.survey(look, &record, &batch.layouts)?;
            }
        }
    }
    Ok(())
}

fn write_records(
    recording: &mut Recording,
    chain: &mut Vec<Stage>,
    schedule: &Schedule,
    terminal: Terminal,
    session: &mut Session,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let pipe = recording.form == Form::Pipe;
    // Where header records mean another thing in the output than in the input, none may go by unseen.
    let mut hidden = Hidden::new(recording, !schedule.expand && (terminal.absorb || terminal.strip));
    let wanted = chain.iter().fold(terminal.kinds(), |all, stage| all.union(stage.kinds));
    let mut places: Vec<Place> = chain.iter().flat_map(|stage| stage.places.iter().copied()).collect();
    places.sort_unstable();
    places.dedup();
    let stops = |batch: &Batch| -> Vec<usize> {
        let Some((stream, span)) = batch.origins.span(batch.bytes.len()).filter(|_| !places.is_empty())
        else {
            return Vec::new();
        };
        let from = places.partition_point(|place| place.stored() < (stream, *span.start()));
        let until = places.partition_point(|place| place.stored() <= (stream, *span.end()));
        let inside = places.get(from..until).unwrap_or_default();
        let mut stops: Vec<usize> =
            inside.iter().filter_map(|place| batch.origins.position_of(place.origin())).collect();
        stops.retain(|&stop| stop < batch.bytes.len());
        stops.sort_unstable();
        stops
    };
    let touched = |batch: &Batch| batch.kinds.meets(wanted) || !stops(batch).is_empty();
    let work = |chain: &mut [Stage], batch: &Batch| {
        if !touched(batch) {
            return Ok(plan_all(batch, terminal));
        }
        match chain.first_mut().map(|stage| stage.pass.scope(None, batch)) {
            Some(Scope::Only(kinds)) => plan_only(chain, batch, kinds, terminal),
            Some(Scope::These(kinds)) => {
                let others = chain.iter().skip(1).fold(terminal.kinds(), |all, stage| all.union(stage.kinds));
                let (wanted, stops) = (kinds.union(others), stops(batch));
                if !batch.kinds.meets(wanted) && stops.is_empty() {
                    return Ok(plan_all(batch, terminal));
                }
                plan(chain, batch, wanted, &stops, terminal)
            }
            _ => plan(chain, batch, wanted, &stops(batch), terminal),
        }
    };
    let done = |batch: &Batch, plan: Plan| {
        session.report.records += batch.records;
        session.report.bytes += batch.bytes.len() as u64;
        if let Some(torn) = &batch.torn {
            // perf bears that in pipe data and at the end of a compressed stream; elsewhere in a file it means that the file is damaged.
            let error = torn.to_error().file(&batch.name);
            let borne = match schedule.damage {
                Damage::Bear => pipe || matches!(torn.origin, Origin::Chunk { .. }),
                Damage::Refuse => pipe && !torn.is_of_zstd(),
                Damage::Salvage => true,
            };
            if !borne {
                return Err(error.into());
            }
            session.report.say(Level::Loss, error.to_string());
        }
        if let Some(lost) = &batch.lost {
            if schedule.damage == Damage::Refuse {
                return Err(lost.to_error().into());
            }
            session.report.say(Level::Loss, lost.to_string());
        }
        hidden.look(batch)?;
        writer.kinds = writer.kinds.union(batch.kinds);
        writer.plan(&plan, &batch.bytes, session)?;
        plan.absorbed.into_iter().for_each(|header| session.absorb(header));
        Ok(())
    };
    each_batch(schedule, chain, recording, schedule.expand, touched, work, done)?;
    hidden.found()
}

/// What a pass puts behind all records of the input.
fn write_rest(
    stage: &mut Stage,
    behind: &mut [Stage],
    threads: usize,
    terminal: Terminal,
    layouts: &Layouts,
    session: &mut Session,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let mut rest = (true, stage, behind);
    let next = |(there_is_more, stage, behind): &mut (bool, &mut Stage, &mut [Stage])| {
        there_is_more.then(|| {
            let mut planner = Planner::new(None, terminal);
            let more = stage.pass.rest(&mut Emit::new(behind, &mut planner, layouts));
            *there_is_more = *more.as_ref().unwrap_or(&false);
            more.with_context(|| format!("pass {}", stage.pass.name())).map(|_| planner.done())
        })
    };
    let mut write = |plan: Result<Plan>| writer.plan(&plan?, &[], session);
    if threads <= 1 {
        return std::iter::from_fn(|| next(&mut rest)).try_for_each(write);
    }
    let work = |rest: &mut _, ()| next(rest);
    mapped(std::iter::repeat(()), slice::from_mut(&mut rest), work, |plans| {
        plans.map_while(|plan| plan).try_for_each(&mut write)
    })
}

/// A batch that nobody wants anything of.
fn plan_all(batch: &Batch, terminal: Terminal) -> Plan {
    let mut planner = Planner::new(Some(batch), terminal);
    planner.stored(0..batch.bytes.len());
    planner.done()
}

/// Sends the records of these kinds through the chain; all others are left out.
fn plan_only(chain: &mut [Stage], batch: &Batch, kinds: Kinds, terminal: Terminal) -> Result<Plan> {
    let mut planner = Planner::new(Some(batch), terminal);
    if batch.kinds.meets(kinds) {
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(kinds, usize::MAX)? {
            Emit::new(chain, &mut planner, &batch.layouts).keep(record)?;
        }
    }
    end_batch(chain, batch, &mut planner)?;
    Ok(planner.done())
}

fn end_batch(chain: &mut [Stage], batch: &Batch, planner: &mut Planner) -> Result<()> {
    for at in 0..chain.len() {
        if let Some((stage, rest)) = chain[at..].split_first_mut() {
            let ended = stage.pass.end_of_batch(&mut Emit::new(rest, planner, &batch.layouts));
            ended.with_context(|| format!("pass {}", stage.pass.name()))?;
        }
    }
    Ok(())
}

/// Sends the wanted records, and those that begin at `stops`, through the chain.
fn plan(
    chain: &mut [Stage],
    batch: &Batch,
    wanted: Kinds,
    stops: &[usize],
    terminal: Terminal,
) -> Result<Plan> {
    let mut planner = Planner::new(Some(batch), terminal);
    let mut walker = batch.walk();
    let mut stops = stops.iter().copied().peekable();
    let mut done = 0;
    while let Some(record) = walker.next_wanted(wanted, stops.peek().copied().unwrap_or(usize::MAX))? {
        let end = walker.position();
        let start = end - record.bytes().len() - record.payload().len();
        while stops.next_if(|&stop| stop <= start).is_some() {}
        planner.stored(done..start);
        Emit::new(chain, &mut planner, &batch.layouts).keep(record)?;
        done = end;
    }
    planner.stored(done..batch.bytes.len());
    end_batch(chain, batch, &mut planner)?;
    Ok(planner.done())
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// Writes front, records, features, and knows where records came to lie.
struct Writer<'a> {
    sink: Sink<Box<dyn Write + 'a>>,
    file: Option<&'a File>,
    front: Option<FileFront>,
    events: Vec<Event>,
    data_offset: u64,
    spare_slots: Vec<u8>,
    event_types: Vec<u8>,
    /// What stood behind the last section of the input's file.
    trailing: Bytes,
    marks: Vec<Mark>,
    moved: bool,
    /// Records that would become part of the front of pipe data, and were left out.
    misplaced: BTreeMap<RecordType, u64>,
    /// Of all records read.
    kinds: Kinds,
    /// Where AUXTRACE records were that passes left out, bytes from the start of the input.
    dropped_aux: HashSet<u64>,
}

impl<'a> Writer<'a> {
    fn new(output: &'a mut Output<'_>, recording: &Recording, session: &mut Session) -> Result<Writer<'a>> {
        let form = output.form();
        let (inner, file): (Box<dyn Write + 'a>, _) = match output {
            Output::File(file, _) => (Box::new(*file), Some(*file)),
            Output::Pipe(pipe) => (Box::new(&mut **pipe), None),
            Output::Nowhere(_) => (Box::new(io::sink()), None),
        };
        let named = recording.file.as_ref();
        let mut writer = Writer {
            sink: Sink::new(inner),
            file,
            front: None,
            events: session.events.clone(),
            data_offset: 0,
            // Kept, so that what nobody changes comes out byte by byte the same.
            spare_slots: named.map_or(Vec::new(), |file| file.spare_slots.clone()),
            event_types: recording.event_types.clone(),
            trailing: named.map_or_else(Bytes::default, |file| file.trailing.clone()),
            marks: Vec::new(),
            moved: false,
            misplaced: BTreeMap::new(),
            kinds: Kinds::NONE,
            dropped_aux: HashSet::new(),
        };
        if form != OutputForm::InPlace {
            writer.say_unnamed(form, named, session);
        }
        if form == OutputForm::Pipe {
            writer.pipe_front(recording, session)?;
            return Ok(writer);
        }
        let mut front = FileFront::new(&session.events, recording.endian);
        let long = recording.file.as_ref().is_some_and(|file| file.magic.size == FILE_HEADER_SIZE as u64);
        front.may_be_short = recording.endian == Endian::Big && !long;
        if session.events.len() > recording.events.len() {
            // perf begins the data on a page where it adds events, and those who compare expect it there.
            front.bytes.resize(front.bytes.len().next_multiple_of(PAGE), 0);
        }
        writer.append(&front.bytes)?;
        writer.front = Some(front);
        writer.data_offset = writer.sink.position();
        Ok(writer)
    }

    /// Says which bytes of the input's file, named by no section, the output can't hold. Zeros say nothing, so nothing is said of them.
    fn say_unnamed(&self, form: OutputForm, file: Option<&FileHeader>, session: &mut Session) {
        let mut lose = |what: Error| {
            let what = what.file(&session.name).to_string();
            session.report.say(Level::Loss, what);
        };
        for Section { offset, size } in file.map_or(&[][..], |file| &file.holes) {
            lose(Error::at(*offset, format!("{size} bytes that no section names were left out")));
        }
        let in_pipe = [
            ("behind the last section", &self.trailing[..]),
            ("behind the feature table", &self.spare_slots),
        ];
        for (place, bytes) in in_pipe.into_iter().filter(|_| form == OutputForm::Pipe) {
            if bytes.iter().any(|&byte| byte != 0) {
                lose(Error::new(format!(
                    "{} bytes {place} were left out: pipe data has no place for them",
                    bytes.len()
                )));
            }
        }
    }

    fn pipe_front(&mut self, recording: &Recording, session: &mut Session) -> Result<()> {
        let endian = recording.endian;
        let same = session.events == recording.events && *session.features() == recording.features;
        if recording.form == Form::Pipe && same {
            self.append(&Magic::pipe_header(endian))?;
            return recording.head.iter().try_for_each(|batch| self.append(&batch.bytes));
        }
        let but_compressed = |features: &Features| {
            let mut features = features.clone();
            features.remove(&Feature::COMPRESSED);
            features
        };
        let same = but_compressed(session.features()) == but_compressed(&recording.features);
        if recording.form == Form::Pipe && session.events == recording.events && same {
            return self.pipe_head(recording, session);
        }
        session.mend_features(Feature(u8::MAX));
        let front = pipe_front(&session.events, session.features(), endian);
        let (front, unsaid) = front.map_err(|e| e.file(&recording.name))?;
        self.append(&front)?;
        for (feature, why) in unsaid {
            session.report.say(Level::Loss, format!("feature {feature} was left out: {why}"));
        }
        for entry in recording.event_types.chunks_exact(EVENT_TYPE_SIZE) {
            self.append(&event_type_record(entry, endian))?;
        }
        Ok(())
    }

    /// The leading records of pipe data with another feature COMPRESSED, so that what is compressed and decompressed again is the same pipe.
    fn pipe_head(&mut self, recording: &Recording, session: &Session) -> Result<()> {
        let endian = recording.endian;
        self.append(&Magic::pipe_header(endian))?;
        for batch in &recording.head {
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                if record.kind() != RecordType::HEADER_FEATURE
                    || record.u64(8) != Some(Feature::COMPRESSED.0.into())
                {
                    self.append(record.bytes())?;
                    self.append(record.payload())?;
                }
            }
        }
        let Some(section) = session.feature(Feature::COMPRESSED) else { return Ok(()) };
        let size = (16 + section.len()) as u16;
        self.append(&endian.bytes_u32(RecordType::HEADER_FEATURE.0))?;
        self.append(&[endian.bytes_u16(0), endian.bytes_u16(size)].concat())?;
        self.append(&endian.bytes_u64(Feature::COMPRESSED.0.into()))?;
        self.append(section)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.append(bytes).map_err(|e| Error::io("the output can't be written", e).into())
    }

    fn plan(&mut self, plan: &Plan, stored: &[u8], session: &mut Session) -> Result<()> {
        let start = self.sink.position();
        self.moved |= !plan.is_all_of(stored.len());
        for piece in &plan.pieces {
            match piece {
                Piece::Stored(range) => self.append(&stored[range.clone()])?,
                Piece::Made(range) => self.append(&plan.arena[range.clone()])?,
            }
        }
        anyhow::ensure!(
            self.sink.position() == start + plan.len,
            "the plan of a batch is {} bytes long, not what was written",
            plan.len
        );
        self.marks.extend(plan.marks.iter().map(|mark| Mark { at: start + mark.at, ..*mark }));
        self.dropped_aux.extend(plan.dropped_aux.iter().filter_map(|origin| Some(origin.stored_at()?.1)));
        for (&kind, count) in &plan.dropped {
            *session.report.dropped.entry(kind).or_default() += count;
        }
        for (&kind, count) in &plan.misplaced {
            *self.misplaced.entry(kind).or_default() += count;
        }
        Ok(())
    }

    /// It is a file, and has no record so far.
    fn is_empty(&self) -> bool {
        self.front.is_some() && self.sink.position() == self.data_offset
    }

    /// Writes what follows the data; returns the length of the output, and whether records changed.
    fn finish(mut self, from_pipe: bool, session: &mut Session) -> Result<(u64, bool)> {
        for (kind, count) in &self.misplaced {
            let records = counted(*count, "record", "records");
            let what = format!(
                "left out {records} of {kind} among the data: in pipe data that would be a part of the header"
            );
            session.report.say(Level::Loss, what);
        }
        let Some(mut front) = self.front.take() else {
            self.flush()?;
            return Ok((self.sink.position(), self.moved));
        };
        let endian = session.endian;
        let data = Section { offset: self.data_offset, size: self.sink.position() - self.data_offset };
        self.index_aux(from_pipe, session);
        let features = session.features();
        let sizes: Vec<u64> = features.values().map(|section| section.len() as u64).collect();
        self.append(&feature_table(data.end(), sizes.into_iter(), &self.spare_slots, endian))?;
        for section in features.values() {
            self.append(section)?;
        }
        if session.events != self.events {
            let bytes = front.move_to(self.sink.position(), &session.events);
            self.append(&bytes)?;
        }
        let types = Section { offset: self.sink.position(), size: self.event_types.len() as u64 };
        let types = if types.size == 0 { Section::default() } else { types };
        self.append(&self.event_types.clone())?;
        self.append(&self.trailing.clone())?;
        self.flush()?;
        if let Some(file) = self.file {
            let mut header = front.header(data, types, features.keys().copied()).to_vec();
            if session.events != self.events {
                // Nothing names what stood there for them.
                header.resize(self.data_offset as usize, 0);
            }
            file.write_all_at(&header, 0).map_err(|e| Error::io("the output can't be written", e))?;
        }
        Ok((self.sink.position(), self.moved))
    }

    fn flush(&mut self) -> Result<()> {
        self.sink.flush().map_err(|e| Error::io("the output can't be written", e).into())
    }

    /// Feature AUXTRACE names file offsets, so it is written anew where records moved: an entry follows its record; one that pointed at no
    /// AUXTRACE record is told and left out. Pipe data has no such feature, so there the records themselves are listed, and so they are where a
    /// pass asks for that.
    fn index_aux(&mut self, from_pipe: bool, session: &mut Session) {
        let endian = session.endian;
        let listed = |mark: &Mark| AuxtraceEntry { offset: mark.at, size: mark.size };
        if session.list_aux {
            let stays = session.form == OutputForm::InPlace;
            let there = |mark: &Mark| match mark.origin {
                Origin::Input { stream: 0, offset } => Some(AuxtraceEntry { offset, size: mark.size }),
                _ => None,
            };
            let entry = |mark| if stays { there(mark) } else { Some(listed(mark)) };
            let entries: Vec<_> = self.marks.iter().filter_map(entry).collect();
            match entries.as_slice() {
                [] => session.clear_feature(Feature::AUXTRACE),
                entries => session.set_feature(Feature::AUXTRACE, write_auxtrace_index(entries, endian)),
            }
            return;
        }
        if session.form == OutputForm::InPlace {
            return;
        }
        let Some(section) = session.feature(Feature::AUXTRACE) else {
            if from_pipe && !self.marks.is_empty() {
                let entries: Vec<_> = self.marks.iter().map(listed).collect();
                session.set_feature(Feature::AUXTRACE, write_auxtrace_index(&entries, endian));
            }
            return;
        };
        if session.set.contains(&Feature::AUXTRACE) {
            return;
        }
        let moved: HashMap<u64, &Mark> =
            self.marks.iter().filter_map(|mark| Some((mark.origin.stored_at()?.1, mark))).collect();
        let Some(old) = read_auxtrace_index(section, endian) else {
            let what = "the AUXTRACE index can't be read and was made anew from the AUXTRACE records";
            session.report.say(Level::Warning, what);
            let entries: Vec<_> = self.marks.iter().map(listed).collect();
            session.set_feature(Feature::AUXTRACE, write_auxtrace_index(&entries, endian));
            return;
        };
        let new: Vec<AuxtraceEntry> =
            old.iter().filter_map(|entry| moved.get(&entry.offset)).map(|mark| listed(mark)).collect();
        let dropped = old.iter().filter(|entry| self.dropped_aux.contains(&entry.offset)).count();
        let astray = old.len() - new.len() - dropped;
        if astray > 0 {
            let what = format!(
                "{astray} of {} entries of the AUXTRACE index pointed at no AUXTRACE record and were left out",
                old.len()
            );
            session.report.say(Level::Warning, what);
        }
        if self.marks.is_empty() && dropped > 0 {
            session.clear_feature(Feature::AUXTRACE);
        } else if new != old {
            session.set_feature(Feature::AUXTRACE, write_auxtrace_index(&new, endian));
        }
    }
}
