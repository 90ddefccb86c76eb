//! Checks each record by itself, and collects the facts to be checked in file order.

use perfx_format::decode::issues;
use perfx_format::features::{FeatureContext, NamedIds, NrCpus, decode_feature};
use perfx_format::read::Batch;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::header_records::{HeaderRecord, feature_section};
use perfx_format::record::id_index::IdIndex;
use perfx_format::record::tracing_data::tracing_data;
use perfx_format::{FaultCode, Feature, Origin, Record, RecordType, Time};

use crate::finding::{Findings, Location};
use crate::order::Rounds;

#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) endian: perfx_format::Endian,
    pub(crate) features: FeatureContext,
    pub(crate) named: NamedIds,
    /// Pipe data, in which header records are valid.
    pub(crate) pipe: bool,
    pub(crate) most: usize,
}

/// Event ids, and records about AUX data.
#[derive(Clone, Debug)]
pub(crate) enum Aux {
    Event(Vec<u64>),
    Index {
        origin: Origin,
        ids: Vec<u64>,
        /// The record has as many entries as its count says.
        whole: bool,
    },
    Info,
    Trace {
        origin: Origin,
        size: u64,
        idx: u32,
        /// u32 tid, u32 cpu.
        owner: (u32, u32),
    },
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Times {
    pub(crate) first: Option<u64>,
    pub(crate) last: u64,
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
}

impl Times {
    #[inline]
    fn add(&mut self, time: u64) {
        self.append(Times { first: Some(time), last: time, oldest: time, newest: time });
    }

    pub(crate) fn append(&mut self, later: Times) {
        if self.first.is_none() {
            *self = later;
        } else if later.first.is_some() {
            self.last = later.last;
            self.oldest = self.oldest.min(later.oldest);
            self.newest = self.newest.max(later.newest);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) findings: Findings,
    pub(crate) rounds: Rounds,
    pub(crate) times: Times,
    pub(crate) aux: Vec<Aux>,
    cpus: Option<NrCpus>,
    pub(crate) first_event: Option<Origin>,
    /// The first ID_INDEX before the first HEADER_ATTR.
    pub(crate) early_index: Option<Origin>,
}

pub(crate) fn look(batch: &Batch, context: &Context) -> Seen {
    let mut seen = Seen {
        findings: Findings::new(context.most),
        rounds: Rounds::new(),
        times: Times::default(),
        aux: Vec::new(),
        cpus: None,
        first_event: None,
        early_index: None,
    };
    let mut walker = batch.walk();
    loop {
        match walker.next_record() {
            Ok(Some(record)) if record.kind() == RecordType::FINISHED_ROUND => {
                seen.record(&record, batch, context);
                seen.rounds.finished(walker.position());
            }
            Ok(Some(record)) => seen.record(&record, batch, context),
            Ok(None) => break,
            Err(error) => {
                seen.findings.error(&error);
                break;
            }
        }
    }
    seen
}

impl Seen {
    fn record(&mut self, record: &Record<'_>, batch: &Batch, context: &Context) {
        let kind = record.kind();
        for odd in issues(record, &batch.layouts) {
            if odd.code == FaultCode::MmapBuildIdBit && context.named.prove(record) {
                continue;
            }
            self.findings.issue(odd, Some(record.origin()), Some(kind));
        }
        if kind.is_kernel() {
            let layout = batch.layouts.layout_of(record);
            // Without a time, perf flushes it at once.
            if let Some(time) = layout.and_then(|layout| layout.time(record)).map(Time::ns) {
                self.rounds.time(time);
                if kind == RecordType::SAMPLE {
                    self.times.add(time);
                }
            }
            if kind == RecordType::SAMPLE
                && let Some(cpus) = context.features.cpus
                && let Some(cpu) = layout.and_then(|layout| layout.cpu(record))
                && cpu >= cpus.available
            {
                let what = format!("CPU {cpu}, but NRCPUS says that there are only {}", cpus.available);
                self.add("sample-cpu", record, what);
            }
            if kind == RecordType::CALLCHAIN_DEFERRED {
                self.newer(record);
            }
            return;
        }
        match kind {
            RecordType::HEADER_ATTR => self.first_event = self.first_event.or(Some(record.origin())),
            RecordType::ID_INDEX if self.first_event.is_none() => {
                self.early_index = self.early_index.or(Some(record.origin()));
            }
            _ => {}
        }
        match kind {
            RecordType::ID_INDEX => {
                if let Some(index) = IdIndex::of(record) {
                    let ids = index.entries().map(|entry| entry.id).collect();
                    let whole = index.is_count_right();
                    self.aux.push(Aux::Index { origin: record.origin(), ids, whole });
                }
            }
            RecordType::HEADER_ATTR if context.pipe => {
                if let Ok(Some(HeaderRecord::Event(event))) = HeaderRecord::read(record) {
                    self.aux.push(Aux::Event(event.ids));
                }
            }
            RecordType::AUXTRACE_INFO => self.aux.push(Aux::Info),
            RecordType::AUXTRACE => {
                let size = record.bytes().len() as u64;
                let (idx, owner) =
                    Auxtrace::of(record).map_or((0, (0, 0)), |aux| (aux.idx, (aux.tid, aux.cpu)));
                self.aux.push(Aux::Trace { origin: record.origin(), size, idx, owner });
            }
            _ if !context.pipe && HeaderRecord::is_front(record) => {
                self.add("header-record", record, "in a file, this belongs in the header".to_owned());
            }
            RecordType::HEADER_FEATURE if record.bytes().len() >= 16 => self.feature(record, context),
            RecordType::HEADER_TRACING_DATA => {
                if record.payload().is_empty() && !tracing_data(record).is_empty() {
                    let what = "perf expects its payload after it".to_owned();
                    self.add("payload-inside", record, what);
                }
                self.section(record, Feature::TRACING_DATA, tracing_data(record), context);
            }
            RecordType::COMPRESSED2
            | RecordType::BPF_METADATA
            | RecordType::SCHEDSTAT_CPU
            | RecordType::SCHEDSTAT_DOMAIN => self.newer(record),
            _ => {}
        }
    }

    fn add(&mut self, code: &'static str, record: &Record<'_>, what: String) {
        let location = Location { origin: Some(record.origin()), kind: Some(record.kind()), what };
        self.findings.add(code, location);
    }

    fn newer(&mut self, record: &Record<'_>) {
        self.add("kind-newer", record, "perf 6.1 does not know it".to_owned());
    }

    fn feature(&mut self, record: &Record<'_>, context: &Context) {
        let Some((number, payload)) = feature_section(record) else { return };
        let Ok(feature) = u8::try_from(number).map(Feature) else { return };
        if !payload.is_empty() || Feature::FLAGS.contains(&feature) {
            self.section(record, feature, payload, context);
        } else if feature < Feature::CPU_DOMAIN_INFO {
            // perf 6.1 and 6.12 know all features below this one.
            let what = format!("the record that ends the features has number {number}");
            self.add("end-mark", record, what);
        }
    }

    fn section(&mut self, record: &Record<'_>, feature: Feature, section: &[u8], context: &Context) {
        if feature == Feature::NRCPUS {
            self.cpus = NrCpus::read(section, context.endian);
        }
        let features = FeatureContext { cpus: context.features.cpus.or(self.cpus) };
        let odd = decode_feature(feature, section, context.endian, features).issues;
        // Among the records of pipe data (perf record --tail-synthesize), NRCPUS may be in another batch.
        for mut odd in odd.into_iter().filter(|odd| odd.code != FaultCode::NrcpusMissing) {
            odd.what = format!("feature {feature}: {}", odd.what);
            self.findings.issue(odd, Some(record.origin()), Some(record.kind()));
        }
    }
}
