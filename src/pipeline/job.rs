//! Runs a job: surveys first, then plans from batches, then the writer in file order. The bytes written never
//! depend on the number of threads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use perfx_format::header::Features;
use perfx_format::read::{Form, Recording, TempFiles};
use perfx_format::{Feature, Kinds, Layouts, RecordType};

use crate::damage::{Damage, Purpose};
use crate::each_batch::Reading;
use crate::emit::{Emit, Rewriting};
use crate::ensure;
use crate::error::{Context as _, Result};
use crate::output::{Output, OutputForm};
use crate::pass::Pass;
use crate::plan::{OutputNeeds, Planner};
use crate::report::{Level, Read, Report};
use crate::rewrite::{write_drained, write_records};
use crate::schedule::Schedule;
use crate::session::{Begin, Session, SideFile};
use crate::stage::{Stage, Surveying};
use crate::survey::survey;
use crate::writer::Writer;

/// A recording and the passes to run on it.
///
/// ```no_run
/// use std::fs::File;
/// use std::sync::Arc;
/// use perfx_format::read::Recording;
/// use perfx_pipeline::{Job, Output, OutputForm};
///
/// let recording = Recording::open("perf.data")?;
/// let output = File::create("copy.data")?;
/// let job = Job { recording, passes: Vec::new(), threads: 1, temp_files: Arc::new(tempfile::tempfile) };
/// let outcome = job.run(Output::File(&output, OutputForm::File))?;
/// println!("{} bytes", outcome.written);
/// # Ok::<(), perfx_pipeline::Error>(())
/// ```
pub struct Job {
    /// The input.
    pub recording: Recording,
    /// The passes, in the order in which records go through them.
    pub passes: Vec<Box<dyn Pass>>,
    /// Threads that turn batches into plans; with 1, everything runs on the calling thread.
    pub threads: usize,
    /// Creates temporary files.
    pub temp_files: TempFiles,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The feature sections as written.
    pub features: Features,
    /// Bytes written.
    pub written: u64,
    /// Passes changed records.
    pub moved: bool,
    /// Files to put into an output directory next to the records, with their names.
    pub beside: Vec<(PathBuf, OsString)>,
    /// Files made by passes and named in records of the output.
    pub made: Vec<SideFile>,
}

impl Job {
    /// The steps of the job.
    ///
    /// # Errors
    ///
    /// The passes cannot work on this recording.
    pub fn schedule(&self) -> Result<Schedule> {
        Schedule::new(&self.recording, &self.passes, self.threads)
    }

    /// Runs the job.
    ///
    /// # Errors
    ///
    /// The input cannot be read, a pass fails, or the output cannot be written. The error names the file, the
    /// place and the kind of the record; the caller removes the partial output.
    pub fn run(self, output: Output<'_>) -> Result<Outcome> {
        self.run_after(Vec::new(), output)
    }

    /// Runs the job into a temporary file; returns that as a recording with the name of the input.
    ///
    /// # Errors
    ///
    /// The errors of [`Job::run`], and if no temporary file can be created.
    pub fn into_recording(self, form: OutputForm) -> Result<(Recording, Outcome)> {
        self.into_temporary(|job, file| job.run(Output::File(file, form)))
    }

    fn run_after(mut self, made: Vec<SideFile>, output: Output<'_>) -> Result<Outcome> {
        let schedule = self.schedule()?;
        let Some(at) = schedule.parts_at(output.form()) else {
            return self.run_at_once(made, output, &schedule);
        };
        let form = match output.form() {
            OutputForm::DirectoryData => OutputForm::DirectoryData,
            _ => OutputForm::File,
        };
        let passes = self.passes.split_off(at);
        let (threads, temp_files) = (self.threads, self.temp_files.clone());
        let schedule = self.schedule()?;
        let (recording, mut first) =
            self.into_temporary(|job, file| job.run_at_once(made, Output::File(file, form), &schedule))?;
        let done = Job { recording, passes, threads, temp_files }.run_after(first.made, output)?;
        let beside = [first.beside, done.beside].concat();
        first.report.include(done.report);
        Ok(Outcome { report: first.report, moved: first.moved || done.moved, beside, ..done })
    }

    fn into_temporary(self, run: impl FnOnce(Job, &File) -> Result<Outcome>) -> Result<(Recording, Outcome)> {
        let (name, temp_files) = (self.recording.name.clone(), self.temp_files.clone());
        let file = temp_files().with_context(|| format!("{name}: can't create a temporary file"))?;
        let outcome = run(self, &file)?;
        Ok((Recording::from_file(file, name, temp_files)?, outcome))
    }

    fn run_at_once(
        mut self,
        made: Vec<SideFile>,
        mut output: Output<'_>,
        schedule: &Schedule,
    ) -> Result<Outcome> {
        if schedule.damage != Damage::Salvage {
            self.recording.check_whole()?;
        }
        if schedule.spool {
            self.recording = self.recording.spooled(&self.temp_files)?;
        }
        let recording = &mut self.recording;
        recording.progress().expect(schedule.surveys as u64 + 1);
        let form = output.form();
        let read = Read { name: Some(recording.name.clone()), records: Some(0), bytes: 0 };
        let mut report = Report { read, ..Report::default() };
        report.say_faults(recording, Purpose::Rewrite);
        let features = features_of(recording, form, schedule.expand);
        let mut session = Session::new(
            recording,
            form,
            features,
            report,
            !schedule.expand,
            self.threads,
            self.temp_files.clone(),
        );
        session.made = made;

        for batch in recording.head() {
            session.report.read.add(batch);
        }
        let reading = Reading { threads: schedule.threads, open: schedule.expand, damage: schedule.damage };
        // Surveys read the contents of compressed records, even if the rewrite does not expand them.
        let opened = Reading { open: true, ..reading };
        let stages = survey_all(recording, self.passes, schedule, opened, &mut session)?;
        let mut chain = begin_all(recording, stages, schedule, &mut session)?;

        let to_file = form != OutputForm::Pipe;
        let from_pipe = recording.form == Form::Pipe;
        let has_index = session.rebuild_aux_index || session.feature(Feature::AUXTRACE).is_some();
        let needs = OutputNeeds {
            endian: recording.endian,
            mark_aux: to_file && (from_pipe || has_index),
            absorb: to_file && from_pipe,
            strip: !to_file && !from_pipe,
        };
        let mut writer = Writer::new(&mut output, recording, &mut session)?;
        write_records(recording, &mut chain, reading, needs, &mut session, &mut writer)?;
        session.add_late_build_ids();
        if needs.absorb && writer.kinds.contains(RecordType::STAT_CONFIG) {
            set_stat(&mut session);
        }
        let layouts = Layouts::new(&session.events);
        for at in 0..chain.len() {
            let Some((stage, rest)) = chain[at..].split_first_mut() else { continue };
            write_drained(stage, rest, schedule.threads, needs, &layouts, &mut session, &mut writer)?;
            let mut planner = Planner::new(None, needs);
            let finished = stage.rewrite.finish(&mut session, &mut Emit::new(rest, &mut planner, &layouts));
            finished.with_context(|| format!("pass {}", stage.name))?;
            writer.plan(&planner.done(), None, &mut session)?;
        }
        drop_stale(schedule, &mut session);
        let nothing = writer.is_empty() && session.features().is_empty();
        ensure!(
            !nothing || schedule.damage != Damage::Salvage,
            "{}: none of its records and features are left, and a file without both looks like one of a killed \
             perf record",
            session.name
        );
        let (written, moved) = writer.finish(from_pipe, &mut session)?;
        recording.check_not_cut_short()?;
        let features = session.features().clone();
        let Session { report, beside, made, .. } = session;
        Ok(Outcome { features, report, written, moved, beside, made })
    }
}

/// Runs the surveys of all passes, one walk at a time for all of them, until all are ready to begin.
fn survey_all(
    recording: &mut Recording,
    passes: Vec<Box<dyn Pass>>,
    schedule: &Schedule,
    reading: Reading,
    session: &mut Session,
) -> Result<Vec<Stage>> {
    let mut next: Vec<_> = passes.into_iter().map(|pass| pass.start(recording)).enumerate().collect();
    let mut ready = BTreeMap::new();
    for number in 0.. {
        let mut surveys = Vec::new();
        for (pass, stage) in next.drain(..) {
            match stage.into_survey() {
                Err(stage) => drop(ready.insert(pass, stage)),
                Ok(survey) => {
                    let (name, needs) = &schedule.needs[pass];
                    let kinds = needs.surveys.get(number).copied();
                    let kinds =
                        kinds.with_context(|| format!("pass {name} makes more surveys than it declares"))?;
                    surveys.push(Surveying { survey, pass, kinds });
                }
            }
        }
        if surveys.is_empty() {
            break;
        }
        survey(recording, &mut surveys, reading)?;
        session.late_events = recording.late_events().to_vec();
        session.nothing_hidden = !session.stored || recording.is_known_to_lack(Kinds::COMPRESSED);
        for Surveying { survey, pass, .. } in surveys {
            session.survey_is_final = !schedule.needs[pass + 1..].iter().any(|(_, needs)| needs.barrier);
            let ended = survey.end(session).with_context(|| format!("pass {}", schedule.needs[pass].0))?;
            next.push((pass, ended));
        }
    }
    Ok(ready.into_values().collect())
}

fn begin_all(
    recording: &Recording,
    stages: Vec<Stage>,
    schedule: &Schedule,
    session: &mut Session,
) -> Result<Vec<Rewriting>> {
    let mut chain = Vec::new();
    for (stage, (name, needs)) in stages.into_iter().zip(&schedule.needs) {
        let changed = session.events != recording.events;
        let layouts = changed.then(|| Arc::new(Layouts::new(&session.events)));
        let mut begin = Begin::new(session);
        let rewrite = stage.into_rewrite(&mut begin).with_context(|| format!("pass {name}"))?;
        let Begin { kinds, mut places, .. } = begin;
        places.sort_unstable();
        places.dedup();
        let kinds = kinds.unwrap_or(needs.records);
        chain.push(Rewriting { name, rewrite, kinds, places: places.into(), found: Vec::new(), layouts });
    }
    Ok(chain)
}

/// The features of the output before passes change them: all except those specific to the input's form.
fn features_of(recording: &Recording, form: OutputForm, expand: bool) -> Features {
    let mut features = recording.features.clone();
    if form == OutputForm::InPlace {
        return features;
    }
    if expand {
        // Zeros, which `perf stat record` writes, do not announce compressed records.
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

/// Sets feature STAT for a file of perf stat: pipe data lacks it, but perf needs it for counters without ids.
fn set_stat(session: &mut Session) {
    let counts = session.events.iter().all(|event| event.attr().sample_period == 0);
    if counts && session.feature(Feature::STAT).is_none() {
        session.set_feature(Feature::STAT, Vec::new());
        let what = "feature STAT was set, because there is a STAT_CONFIG record and the events count instead of sampling";
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
                    format!("feature {feature} no longer holds after {name} and was left out"),
                );
            }
        }
    }
}
