//! `itrace` decodes AUX data into samples, as `perf inject --itrace` does: for Arm SPE, whose data needs no
//! program to decode it. Data of other tracers is left to perf.
//!
//! perf 7.3 is the model: its events, ids and names, and its samples. A record of a branch is not taken for
//! one of memory, as perf 7.3 does if the branch is a call or a return, because it tests a bit that means
//! something else there.

mod cpus;
mod data_source;
mod decode;
mod events;
mod options;
mod stack;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use perfx_format::read::{Recording, StoredBytes};
use perfx_format::record::aux::{Auxtrace, AuxtraceInfo};
use perfx_format::record::event_update::name_update;
use perfx_format::record::spe_info::SpeInfo;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::{Feature, Kinds, Layouts, Record, RecordType, SWITCH_OUT, named_task, next_task};
use perfx_pipeline::{
    Begin, Context as _, Emit, Fork, Level, Needs, Pass, Report, Result, Session, Stage, Survey, bail, count,
    counted,
};

use self::cpus::Cpus;
use self::decode::{Buffer, Chunk, Context, Counts, Decoder};
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
    tracers: BTreeSet<Option<&'static str>>,
    spe: Option<SpeInfo>,
    conv: Option<TimeConv>,
    chunks: Vec<Chunk>,
    /// The names in EVENT_UPDATE records.
    names: HashMap<u64, Vec<u8>>,
}

/// The kinds that describe AUX data.
const SURVEYED: Kinds = Kinds::of(&[
    RecordType::AUXTRACE_INFO,
    RecordType::AUXTRACE,
    RecordType::TIME_CONV,
    RecordType::EVENT_UPDATE,
]);

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
        Needs {
            records: Kinds::ALL,
            surveys: vec![SURVEYED, Kinds::ALL],
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
        if let Some(info) = AuxtraceInfo::of(record) {
            found.tracers.insert(info.tracer());
            if info.is_spe() && found.spe.is_none() {
                let spe = SpeInfo::of(record);
                found.spe = Some(spe.ok_or_else(|| record.error("its description of the CPUs is damaged"))?);
            }
        }
        found.conv = found.conv.or_else(|| TimeConv::of(record));
        if let Some(auxtrace) = Auxtrace::of(record) {
            let (origin, header) = (record.origin(), record.bytes().len());
            found.chunks.push(Chunk { auxtrace, origin, header });
        }
        found.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let Traces { pass, stored, found } = self;
        let name = &session.name;
        if found.tracers.is_empty() && found.chunks.is_empty() {
            session.report.say(Level::Warning, "there is no AUX data to decode");
            return Ok(Stage::begin(|begin| {
                begin.want_only(Kinds::NONE);
                Ok(Stage::copy())
            }));
        }
        let Some(spe) = found.spe.clone().filter(|_| found.tracers.len() == 1) else {
            let tracers: Vec<_> =
                found.tracers.into_iter().map(|tracer| tracer.unwrap_or("an unknown tracer")).collect();
            let of = if tracers.is_empty() { "an unknown tracer".to_owned() } else { tracers.join(" and ") };
            let like_perf = pass.like_perf;
            bail!(
                "{name}: contains AUX data of {of}, which perf must decode: perf inject {like_perf} -i {name} \
                 -o FILE; perfx strip --aux leaves the data out"
            );
        };
        let events = pass.options.check_for_spe();
        let events = events.and_then(|()| Events::of(&pass.options, spe.pmu_type, &session.events));
        let events = events.with_context(|| name.to_string())?;
        let cpus = Cpus::of(spe, session);
        let buffers = Buffer::of(&found.chunks, &cpus);
        let context = Context { stored, events, conv: found.conv, endian: session.endian };
        let decode = Decode {
            context: Arc::new(context),
            buffers,
            names: found.names,
            index: Vec::new(),
            layouts: Layouts::new(&[]),
            decoded_from: session.events.len(),
            running: HashMap::new(),
            processes: HashMap::new(),
            has_context: false,
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
        let Found { tracers, spe, conv, chunks, names } = later.found;
        self.found.tracers.extend(tracers);
        self.found.spe = self.found.spe.take().or(spe);
        self.found.conv = self.found.conv.or(conv);
        self.found.chunks.extend(chunks);
        self.found.names.extend(names);
        Ok(())
    }
}

/// The rewrite: puts decoded samples among the records in time order, and gives them their threads.
#[derive(Debug)]
struct Decode {
    context: Arc<Context>,
    buffers: Vec<Buffer>,
    names: HashMap<u64, Vec<u8>>,
    /// ID_INDEX records that go behind the first one.
    index: Vec<Vec<u8>>,
    /// The layouts of the output's records, and the number of the first decoded event.
    layouts: Layouts,
    decoded_from: usize,
    /// The thread that runs on each CPU.
    running: HashMap<u32, u32>,
    /// The process of each thread.
    processes: HashMap<u32, u32>,
    /// True if records have said which thread runs; SWITCH records are not needed then.
    has_context: bool,
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
        let (_, mut tid) = layout.pid_tid(&record).unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
        if tid == Auxtrace::ANY {
            tid = self.running.get(&cpu).copied().unwrap_or(tid);
        } else if cpu != Auxtrace::ANY {
            self.running.insert(cpu, tid);
            self.has_context = true;
        }
        self.unknown += u64::from(tid == Auxtrace::ANY);
        let pid = self.processes.get(&tid).copied().unwrap_or(Auxtrace::ANY);
        out.patch(record, |bytes| {
            layout.set_pid_tid(bytes, pid, tid, endian);
        })
    }

    /// Learns which thread runs on a CPU from now on.
    fn switch(&mut self, record: &Record<'_>) {
        let layout = self.layouts.layout_of(record);
        let Some(cpu) = layout.and_then(|layout| layout.cpu(record)) else { return };
        let enters =
            (record.misc() & SWITCH_OUT == 0).then(|| layout.and_then(|layout| layout.pid_tid(record)));
        if let Some((pid, tid)) = next_task(record).or(enters.flatten()) {
            self.running.insert(cpu, tid);
            self.processes.insert(tid, pid);
        }
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
        let buffers = std::mem::take(&mut self.buffers);
        Some(Box::new(Decoder::new(self.context.clone(), buffers, self.counts.clone())))
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
        if let Some((pid, tid)) = named_task(&record) {
            self.processes.insert(tid, pid);
        }
        if !self.has_context && matches!(kind, RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE) {
            self.switch(&record);
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
        let Counts { records, samples, bad_bytes, broken, unreadable } =
            *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (records, samples) =
            (counted(records, "record", "records"), counted(samples, "sample", "samples"));
        report.say(Level::Info, format!("made {samples} of {records} of Arm SPE"));
        if bad_bytes + broken > 0 {
            let bytes = counted(bad_bytes, "byte of the AUX data is", "bytes of the AUX data are");
            let broken = counted(broken, "record", "records");
            let what = format!("{bytes} no packet of Arm SPE; {broken} with such damage were left out");
            report.say(Level::Loss, what);
        }
        if unreadable > 0 {
            let chunks = counted(unreadable, "piece", "pieces");
            report
                .say(Level::Loss, format!("{chunks} of AUX data inside compressed records can't be decoded"));
        }
        if self.unknown > 0 {
            let what = format!(
                "the threads of {} samples are unknown: neither CONTEXT packets nor SWITCH records name them",
                count(self.unknown)
            );
            report.say(Level::Warning, what);
        }
    }
}
