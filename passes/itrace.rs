//! `itrace` decodes AUX data into samples, as `perf inject --itrace` does: for Arm SPE, whose data needs no
//! program to decode it. Data of other tracers is left to perf.
//!
//! perf 7.3 is the model: its events, ids and names, and its samples. A record of a branch is not taken for
//! one of memory, as perf 7.3 does if the branch is a call or a return, because it tests a bit that means
//! something else there.

mod decode;
mod events;
mod options;
mod stack;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use perfx_format::read::{Recording, StoredBytes};
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::event_update::name_update;
use perfx_format::{Feature, Kinds, Layouts, Record, RecordType};
use perfx_model::spe::{AuxData, Running, SpeCounts, SpeRecords, TaskChange};
use perfx_pipeline::{
    Begin, Context as _, Emit, Fork, Level, Needs, Pass, Report, Result, Session, Stage, Survey, bail, count,
    counted,
};

use self::decode::{Context, Counts, Decoder};
use self::events::Events;
use self::options::ItraceOptions;
use crate::combine::{Batches, Combine, Step};
use crate::support::options::PassOptions;

/// The options of `itrace`.
#[derive(Args, Clone, Debug, Default)]
pub struct ItraceArgs {
    /// What to make of the data: letters as for perf script --itrace; without any, everything
    #[arg(long, value_name = "LETTERS", default_value = "")]
    events: String,
}

impl PassOptions for ItraceArgs {
    const NAME: &'static str = "itrace";
    const ABOUT: &'static str = "decode the AUX data of Arm SPE into samples";
    const EXAMPLES: &'static [&'static str] = &["", "events=i2ibl2M"];

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Itrace::new(&self.events, false)?))
    }
}

/// The pass.
#[derive(Debug)]
pub struct Itrace {
    /// The options of `perf inject` that do the same.
    like_perf: String,
    options: ItraceOptions,
}

impl Itrace {
    /// The pass with the letters of `perf inject --itrace`. `strip` says whether [`Strip::recorded`] follows,
    /// as with `--strip`.
    ///
    /// [`Strip::recorded`]: crate::Strip::recorded
    ///
    /// # Errors
    ///
    /// perf does not know a letter, or a number is out of range.
    pub fn new(letters: &str, strip: bool) -> Result<Itrace> {
        let (equals, strip) =
            (if letters.is_empty() { "" } else { "=" }, if strip { " --strip" } else { "" });
        let like_perf = format!("--itrace{equals}{letters}{strip}");
        Ok(Itrace { like_perf, options: ItraceOptions::parse(letters)? })
    }
}

/// The first survey: finds the AUX data, and what describes it.
struct Traces {
    pass: Itrace,
    stored: StoredBytes,
    found: Found,
}

#[derive(Debug, Default)]
struct Found {
    aux: AuxData,
    /// The names in EVENT_UPDATE records.
    names: HashMap<u64, Vec<u8>>,
}

/// The kinds that mean nothing without AUX data.
const DROPPED: Kinds = Kinds::of(&[
    RecordType::AUXTRACE_INFO,
    RecordType::AUXTRACE,
    RecordType::AUX,
    RecordType::ITRACE_START,
    RecordType::AUX_OUTPUT_HW_ID,
]);

impl Pass for Itrace {
    fn name(&self) -> &'static str {
        ItraceArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        // AUX data, and the names of events.
        let described = AuxData::KINDS.union(Kinds::of(&[RecordType::EVENT_UPDATE]));
        Needs {
            records: Kinds::ALL,
            surveys: vec![described, Kinds::ALL],
            decompressed: true,
            ids: true,
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, input: &Recording) -> Stage {
        Stage::survey(Traces { pass: *self, stored: input.stored_bytes(), found: Found::default() })
    }
}

impl Survey for Traces {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        let found = &mut self.found;
        found.aux.add(record)?;
        found.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let Traces { pass, stored, found } = self;
        let name = &session.name;
        if found.aux.is_empty() {
            session.report.say(Level::Warning, "there is no AUX data to decode");
            return Ok(Stage::begin(|begin| {
                begin.want_only(Kinds::NONE);
                Ok(Stage::copy())
            }));
        }
        let Some(spe) = found.aux.spe() else {
            let like_perf = pass.like_perf;
            bail!(
                "{name}: contains AUX data of {}, which perf must decode: perf inject {like_perf} -i {name} \
                 -o FILE; perfx strip --aux leaves the data out",
                found.aux.tracers()
            );
        };
        let events = pass.options.check_for_spe();
        let events = events.and_then(|()| Events::of(&pass.options, spe.pmu_type, &session.events));
        let events = events.with_context(|| name.to_string())?;
        let context = Context { conv: found.aux.conv(), endian: session.endian, events };
        let has_time = context.events.has_time;
        let cpuid = session.feature(Feature::CPUID).map(|section| &section[..]);
        let records = found.aux.records(stored, cpuid, session.endian, has_time);
        let decode = Decode {
            context: Arc::new(context),
            records: Some(records),
            names: found.names,
            index: Vec::new(),
            layouts: Layouts::new(&[]),
            decoded_from: session.events.len(),
            running: Running::default(),
            unknown: 0,
            counts: Arc::default(),
        };
        Ok(Combine::with_step(ItraceArgs::NAME, decode).stage())
    }
}

impl Fork for Traces {
    fn fork(&self) -> Traces {
        let pass = Itrace { like_perf: String::new(), options: ItraceOptions::default() };
        Traces { pass, stored: StoredBytes::default(), found: Found::default() }
    }

    fn absorb(&mut self, later: Traces) -> Result<()> {
        self.found.aux.absorb(later.found.aux);
        self.found.names.extend(later.found.names);
        Ok(())
    }
}

/// The rewrite: puts decoded samples among the records in time order, and gives them their threads.
#[derive(Debug)]
struct Decode {
    context: Arc<Context>,
    records: Option<SpeRecords>,
    names: HashMap<u64, Vec<u8>>,
    /// ID_INDEX records that go behind the first one.
    index: Vec<Vec<u8>>,
    /// The layouts of the output's records, and the number of the first decoded event.
    layouts: Layouts,
    decoded_from: usize,
    running: Running,
    /// The number of samples whose thread is not known.
    unknown: u64,
    counts: Arc<Mutex<Counts>>,
}

impl Decode {
    /// Gives a decoded sample its process and thread.
    fn attribute(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let endian = record.endian();
        let Some(layout) = self.layouts.layout_of(&record).copied() else { return out.keep(record) };
        let cpu = layout.cpu(&record).unwrap_or(Auxtrace::ANY);
        let (_, tid) = layout.pid_tid(&record).unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
        let (pid, tid) = self.running.task(cpu, tid);
        self.unknown += u64::from(tid == Auxtrace::ANY);
        out.patch(record, |bytes| {
            layout.set_pid_tid(bytes, pid, tid, endian);
        })
    }
}

impl Step for Decode {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool> {
        if session.feature(Feature::AUXTRACE).is_some() {
            session.clear_feature(Feature::AUXTRACE);
        }
        if self.context.conv.is_none() && self.context.events.has_time {
            let what =
                "there is no TIME_CONV record, so the times of decoded samples are unknown: they are 0";
            session.report.say(Level::Warning, what);
        }
        self.context.events.add_to(session, &self.names);
        self.layouts = Layouts::new(&session.events);
        self.index = self.context.events.index(session);
        Ok(true)
    }

    fn made(&mut self) -> Option<Batches> {
        let decoder = Decoder::new(self.context.clone(), self.records.take()?, self.counts.clone());
        Some(Box::new(decoder))
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let kind = record.kind();
        if DROPPED.contains(kind) {
            out.drop_record(record);
            return Ok(false);
        }
        if kind == RecordType::SAMPLE {
            if self.layouts.event_of(&record).is_some_and(|event| event >= self.decoded_from) {
                self.attribute(record, out)?;
            } else {
                out.keep(record)?;
            }
            return Ok(true);
        }
        if let Some(change) = TaskChange::of(&record, &self.layouts) {
            self.running.learn(change);
        }
        if name_update(&record).is_some_and(|(id, _)| self.names.contains_key(&id)) {
            // The name is in feature EVENT_DESC now.
            out.drop_record(record);
            return Ok(false);
        }
        out.keep(record)?;
        if kind == RecordType::ID_INDEX {
            std::mem::take(&mut self.index).iter().try_for_each(|index| out.put(index))?;
        }
        Ok(false)
    }

    fn finish(&mut self, report: &mut Report) {
        let (counts, samples) = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(samples, "sample", "samples");
        let records = counted(counts.records, "record", "records");
        report.say(Level::Info, format!("made {samples} of {records} of Arm SPE"));
        say_spe_losses(counts, report);
        say_unknown_threads(self.unknown, "samples", report);
    }
}

/// Reports how many decoded `samples`, or what else they are called, belong to threads that are not known.
pub fn say_unknown_threads(unknown: u64, samples: &str, report: &mut Report) {
    if unknown > 0 {
        let what = format!(
            "the threads of {} {samples} are unknown: neither CONTEXT packets nor SWITCH records name them",
            count(unknown)
        );
        report.say(Level::Warning, what);
    }
}

/// Reports what could not be decoded.
pub fn say_spe_losses(counts: SpeCounts, report: &mut Report) {
    let SpeCounts { bad_bytes, broken, unreadable, .. } = counts;
    if bad_bytes + broken > 0 {
        let bytes = counted(bad_bytes, "byte of the AUX data is", "bytes of the AUX data are");
        let broken = counted(broken, "record", "records");
        let what = format!("{bytes} no packet of Arm SPE; {broken} with such damage were left out");
        report.say(Level::Loss, what);
    }
    if unreadable > 0 {
        let chunks = counted(unreadable, "piece", "pieces");
        report.say(Level::Loss, format!("{chunks} of AUX data inside compressed records can't be decoded"));
    }
}
