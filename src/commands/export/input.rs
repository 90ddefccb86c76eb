//! Reads the call stacks for exports, by the options that these have in common.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use perfx_auxtrace::{Presence, Tracer};
use perfx_export::annotate::Annotated;
use perfx_export::{
    ChainQuality, ChosenCalls, EventFacts, Facts, Grouping, Search, ShownEvent, Stacks, Watched, WatchedCalls,
};
use perfx_filter::{Filter, FilterOptions, SelectArgs};
use perfx_format::read::Recording;
use perfx_format::record::aux::AuxtraceInfo;
use perfx_look::render::printable;
use perfx_passes::{Apart, ConvertCallchain, DecodedTrace, IdOptions, Itrace};
use perfx_pipeline::{Job, LISTED, Level, OutputForm, Pass, Read, Report, counted};

use crate::args::{ReadArgs, ThreadArgs, Usage, usage};
use crate::io::source::{Source, temp_files};
use crate::term::progress::Bar;
use crate::term::report::VerbosityArgs;
use crate::term::units::duration;

/// Options that select samples, locate symbols, and control the work.
#[derive(Args, Debug)]
pub(crate) struct StackArgs {
    #[command(flatten, next_help_heading = "Samples")]
    pub(crate) select: SelectArgs,
    #[command(flatten, next_help_heading = "Options")]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) verbosity: VerbosityArgs,
}

pub(crate) struct Collected {
    pub(crate) recording: Recording,
    pub(crate) facts: Facts,
    pub(crate) stacks: Stacks,
    pub(crate) chooses_events: bool,
    /// Call chains were recorded, neither unwound from stacks nor made from a trace.
    pub(crate) are_chains_recorded: bool,
    pub(crate) bar: Bar,
}

impl Collected {
    /// How many of the recorded call chains are broken.
    pub(crate) fn chain_quality(&self) -> ChainQuality {
        match self.are_chains_recorded {
            true => self.stacks.chain_quality(&self.facts.events),
            false => ChainQuality::default(),
        }
    }

    pub(crate) fn search<'c>(&'c self, ids: &'c IdOptions, inlined: bool) -> Search<'c> {
        let Collected { recording, facts, .. } = self;
        Search { facts, features: &recording.features, endian: recording.endian, ids, inlined }
    }

    /// The event to count: the selected ones together, or one of several. `by_samples` ignores periods.
    pub(crate) fn shown(&mut self, shown: &mut ShownEvent, by_samples: bool) -> Result<Option<u32>> {
        if self.chooses_events {
            self.stacks.unite(&self.facts, by_samples)?;
        }
        let (name, sampled) = (&self.recording.name, self.stacks.sampled(&self.facts));
        Ok(match self.chooses_events {
            true => shown.of_selected(name, &sampled, by_samples)?,
            false => shown.of(name, &sampled)?,
        })
    }
}

/// The groups in which samples are counted.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// The thread's name
    Comm,
    /// NAME-PID, with the last name of the main thread
    #[value(alias = "process")]
    Pid,
    /// NAME-PID/TID, as stackcollapse-perf.pl --tid
    #[value(alias = "thread")]
    Tid,
    /// cpu-N, then the thread's name
    Cpu,
    /// The cgroup (perf record --all-cgroups), then the thread's name
    Cgroup,
    /// The first 12 digits of the container's id (perf record --all-cgroups), then the thread's name
    Container,
}

impl By {
    pub(crate) fn grouping(self) -> Grouping {
        let comm = Grouping { comm: true, ..Grouping::default() };
        match self {
            By::Comm => comm,
            By::Pid => Grouping { main: true, pid: true, ..comm },
            By::Tid => Grouping { pid: true, tid: true, ..comm },
            By::Cpu => Grouping { cpu: true, ..comm },
            By::Cgroup => Grouping { cgroup: true, ..comm },
            By::Container => Grouping { cgroup: true, container: true, ..comm },
        }
    }

    pub(crate) fn say(self, facts: &Facts, stacks: &Stacks, report: &mut Report) {
        let lacks = stacks.labels.iter().all(|label| label.cgroup.is_none()) && !stacks.rows.is_empty();
        let what = match self {
            By::Cgroup | By::Container if facts.cgroups.is_empty() => {
                "the recording has no cgroups: record with perf record --all-cgroups"
            }
            By::Cgroup => "no sample has a cgroup",
            By::Container => "no cgroup of a sample has the id of a container in its path",
            _ => return,
        };
        if lacks {
            report.say(Level::Warning, what);
        }
    }
}

/// Whether calls of a trace are shown.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TraceArgs {
    /// Decode the hardware trace (Intel PT, CoreSight): instead of samples, show each call and how long it took
    #[arg(long)]
    pub(crate) itrace: bool,
}

impl StackArgs {
    /// The options of a command that has some of them in other groups.
    pub(crate) fn of(select: &SelectArgs, ReadArgs { threads, verbosity, .. }: ReadArgs) -> StackArgs {
        StackArgs { select: select.clone(), threads, verbosity }
    }

    pub(crate) fn ids(&self) -> Result<IdOptions> {
        // A missing kernel is no wrong command line for perf.
        self.select.ids().map_err(if self.verbosity.like_perf { anyhow::Error::from } else { usage })
    }

    pub(crate) fn filter(&self) -> Result<Arc<FilterOptions>> {
        filter_of(&self.select)
    }

    /// The selected samples, and records that they need, in a temporary file if filtered.
    pub(crate) fn applied(&self, recording: Recording, report: &mut Report) -> Result<Recording> {
        let filter = self.filter()?;
        if filter.is_empty() {
            return Ok(recording);
        }
        let threads = self.threads.count(&recording);
        rewritten(recording, vec![Box::new(Filter::new((*filter).clone()))], threads, report)
    }

    pub(crate) fn collect(
        &self,
        recording: Recording,
        ids: &IdOptions,
        grouping: Grouping,
        report: &mut Report,
    ) -> Result<Collected> {
        self.collect_selected(recording, ids, grouping, &self.filter()?, report)
    }

    pub(crate) fn collect_selected(
        &self,
        recording: Recording,
        ids: &IdOptions,
        grouping: Grouping,
        filter: &Arc<FilterOptions>,
        report: &mut Report,
    ) -> Result<Collected> {
        let threads = self.threads.count(&recording);
        let are_chains_recorded = !ConvertCallchain::concerns(&recording);
        let mut recording = with_chains(recording, ids, threads, report)?;
        recording.progress().expect(2 + filter.readings());
        let bar = self.verbosity.progress(&recording);
        let facts = Facts::survey(&mut recording, threads, true)?;
        let stacks = Stacks::collect(&mut recording, &facts, grouping, filter, threads, report)?;
        let chooses_events = filter.chooses_events();
        Ok(Collected { recording, facts, stacks, chooses_events, are_chains_recorded, bar })
    }

    /// Reads the selected samples or, with `itrace`, the calls of the trace.
    pub(crate) fn collect_or_trace(
        &self,
        TraceArgs { itrace }: TraceArgs,
        recording: Recording,
        ids: &IdOptions,
        grouping: Grouping,
        report: &mut Report,
    ) -> Result<Collected> {
        match itrace {
            true => Ok(self.trace(recording, ids, grouping, None, report)?.0),
            false => self.collect(recording, ids, grouping, report),
        }
    }

    pub(crate) fn trace(
        &self,
        recording: Recording,
        ids: &IdOptions,
        grouping: Grouping,
        watched: Option<&WatchedCalls<'_>>,
        report: &mut Report,
    ) -> Result<(Collected, Option<Watched>)> {
        let (filter, threads) = (self.filter()?, self.threads.count(&recording));
        let what = "--event selects among samples; with --itrace, the calls of the trace are shown";
        ensure!(!filter.chooses_events(), Usage(what.to_owned()));
        let times = filter.times(&mut again(&recording)?, threads, report)?;
        let pass = Itrace::calls(ids.clone());
        let Traced { mut recording, mut decoded, before } =
            Traced::new(recording, (pass, true), times.as_deref(), ids, threads, report)?;
        let bar = match &decoded {
            Some(decoded) => self.verbosity.progress_of_trace(decoded),
            None => self.verbosity.progress(&recording),
        };
        let mut facts = Facts::survey(&mut recording, threads, true)?;
        facts.events.last_mut().into_iter().for_each(|event| *event = EventFacts::of_calls());
        let chosen = ChosenCalls { filter: &filter, times: times.as_deref(), watched };
        let mut rows = decoded.iter_mut().flatten();
        let traced = (&mut recording, &mut rows as _);
        let (stacks, watched) = Stacks::of_calls(traced, &facts, ids, grouping, chosen, threads, report)?;
        Traced::end((decoded, before), true, report)?;
        let (chooses_events, are_chains_recorded) = (false, false);
        Ok((Collected { recording, facts, stacks, chooses_events, are_chains_recorded, bar }, watched))
    }
}

/// The selection of samples. Fails with a usage error.
pub(crate) fn filter_of(select: &SelectArgs) -> Result<Arc<FilterOptions>> {
    Ok(Arc::new(select.clone().try_into().map_err(usage)?))
}

/// Opens the recordings in order; each one's reports follow those of earlier ones.
pub(crate) fn each_recording(
    sources: &[Source],
    report: &mut Report,
    mut work: impl FnMut(Recording, &mut Report) -> Result<()>,
) -> Result<()> {
    for source in sources {
        let mut own = Report::default();
        work(source.open_indexed()?, &mut own)?;
        report.before.push(own);
    }
    Ok(())
}

/// The recording with complete call chains, in a temporary file: user stacks (perf record --call-graph dwarf)
/// are unwound, and callers in aarch64's link register are inserted.
pub(crate) fn with_chains(
    recording: Recording,
    ids: &IdOptions,
    threads: usize,
    report: &mut Report,
) -> Result<Recording> {
    if !ConvertCallchain::concerns(&recording) {
        return Ok(recording);
    }
    rewritten(recording, vec![Box::new(ConvertCallchain::if_possible(ids.clone()))], threads, report)
}

/// A recording whose hardware trace is decoded while it is shown.
pub(crate) struct Traced {
    /// Without the trace: all events, and records of tasks and code.
    pub(crate) recording: Recording,
    /// The samples of the trace and the recorded ones; `None` if `recording` has them, or there is no trace.
    pub(crate) decoded: Option<DecodedTrace>,
    pub(crate) before: Report,
}

/// The recording, for another reading.
pub(crate) fn again(recording: &Recording) -> Result<Recording> {
    recording.try_clone().context("the recording can be read only once")
}

impl Traced {
    pub(crate) fn none(recording: Recording) -> Traced {
        Traced { recording, decoded: None, before: Report::default() }
    }

    /// Decodes with `pass`, and completes call chains with `ids`. Decodes only `times`, if given, and if
    /// nothing else is needed. With `streams`, samples are not stored, because a trace of 200 MB may have 100
    /// GB of them; otherwise they go into the recording, in a temporary file.
    pub(crate) fn new(
        mut recording: Recording,
        (pass, streams): (Itrace, bool),
        times: Option<&[Range<u64>]>,
        ids: &IdOptions,
        threads: usize,
        report: &mut Report,
    ) -> Result<Traced> {
        let completes = ConvertCallchain::concerns(&recording);
        let presence = Presence::of(&mut recording)?;
        let times = times.filter(|_| presence.decodes_in_windows());
        let at = |times| -> Box<dyn Pass> { Box::new(Filter::new(FilterOptions::at(times))) };
        let mut passes: Vec<_> = times.map(at).into_iter().collect();
        let apart = (streams && presence.tracer.is_some()).then(Apart::default);
        passes.push(Box::new(match &apart {
            Some(apart) => pass.apart(apart.clone()),
            None => pass,
        }));
        if completes {
            passes.push(Box::new(ConvertCallchain::if_possible(ids.clone())));
        }
        let mut before = Report::default();
        let recording = rewritten(recording, passes, threads, &mut before)?;
        let Some(apart) = apart else {
            report.include(before);
            return Ok(Traced::none(recording));
        };
        let decoded = Some(DecodedTrace::new(&apart, again(&recording)?));
        Ok(Traced { recording, decoded, before })
    }

    /// Puts the reports of decoding first; only known losses unless all samples were read (`is_whole`).
    pub(crate) fn end(
        (decoded, mut before): (Option<DecodedTrace>, Report),
        is_whole: bool,
        report: &mut Report,
    ) -> Result<()> {
        let Some(decoded) = decoded else { return Ok(()) };
        if !is_whole {
            before.lines.retain(|(level, _)| *level == Level::Loss);
            report.include(before);
            return Ok(());
        }
        decoded.end(&mut before)?;
        report.read.bytes += before.read.bytes;
        report.lines = [before.lines, std::mem::take(&mut report.lines)].concat();
        Ok(())
    }
}

fn rewritten(
    recording: Recording,
    passes: Vec<Box<dyn Pass>>,
    threads: usize,
    report: &mut Report,
) -> Result<Recording> {
    let job = Job { recording, passes, threads, temp_files: temp_files() };
    let (recording, done) = job.into_recording(OutputForm::File)?;
    report.include(done.report);
    Ok(recording)
}

/// Reports the size read: for a recording with user stacks its own, not that of its chains.
pub(crate) fn say_read(report: &mut Report, recording: &Recording, stacks: &Stacks) {
    let bytes = if report.read.bytes > 0 { report.read.bytes } else { stacks.bytes };
    report.read = Read { name: Some(recording.name.clone()), records: None, bytes };
    if stacks.rows.is_empty() {
        say_no_samples(|| tracer_of(recording), report);
    }
}

/// Reports the resolution of the times, if they are rounded to a coarse unit.
pub(crate) fn say_step(report: &mut Report, stacks: &Stacks) {
    if stacks.step > 0 {
        let step = duration(stacks.step);
        report.say(Level::Info, format!("there are many samples, so their times are multiples of {step}"));
    }
}

/// Reports the number of source files, in place of `{}` in `what`, and lists them as details.
pub(crate) fn say_files(report: &mut Report, level: Level, files: &BTreeSet<String>, what: &str) {
    if files.is_empty() {
        return;
    }
    let count = counted(files.len() as u64, "source file", "source files");
    report.say(level, format!("{}{LISTED}", what.replace("{}", &count)));
    files.iter().for_each(|file| report.say(Level::Detail, format!("source: {}", printable(file))));
}

pub(crate) fn say_left_out(report: &mut Report, annotated: &Annotated) {
    let outside_of = "left out {} outside the folder of the compiler: --root / takes them from anywhere";
    say_files(report, Level::Warning, &annotated.outside, outside_of);
    say_files(report, Level::Warning, &annotated.links, "left out {}: symbolic links are not followed");
}

pub(crate) fn say_quality(quality: ChainQuality, report: &mut Report) {
    quality.sentences().into_iter().for_each(|sentence| report.say(Level::Info, sentence));
}

/// Reports that there are no samples, unless the report says why already: perf decodes traces by default.
pub(crate) fn say_no_samples(tracer: impl FnOnce() -> Option<AuxtraceInfo>, report: &mut Report) {
    if report.is_suspect() {
        return;
    }
    let Some(info) = tracer() else {
        report.say(Level::Warning, "the recording has no samples");
        return;
    };
    let name = info.tracer().unwrap_or("an unknown tracer");
    let way = match () {
        () if Tracer::ALL.contains(&info) => {
            "decode it with --itrace (inject, view, list functions, export html, export firefox)".to_owned()
        }
        () if info == AuxtraceInfo::ARM_SPE => "decode it with --itrace (inject, view)".to_owned(),
        () => format!("perfx does not decode it; {}", info.shown_by()),
    };
    report
        .say(Level::Warning, format!("the recording has no samples, but a hardware trace of {name}: {way}"));
}

/// The tracer of a file's AUX data, if not decoded; for pipe data it is unknown before the end.
pub(crate) fn tracer_of(recording: &Recording) -> Option<AuxtraceInfo> {
    let mut again = again(recording).ok().filter(|_| Presence::is_listed(recording))?;
    let found = Presence::of(&mut again).ok().and_then(|presence| presence.tracer);
    found.or(Some(AuxtraceInfo { kind: 0 }))
}
