//! Examines a whole recording: its front, each record once on all threads, then facts that need all records.

use std::sync::Arc;

use perfx_format::features::{Compressed, FeatureContext, NamedIds, NrCpus};
use perfx_format::header::Severity;
use perfx_format::read::{Batch, Form, Fragment, Recording};
use perfx_format::{Error, FaultCode, Feature, RecordType, sample_type};
use perfx_pipeline::{Damage, Result, scan_past};

use crate::finding::{Diagnosis, Findings, Location};
use crate::order::Order;
use crate::records::{Aux, Context, Seen, Times, look};
use crate::{compressed, front};

/// Examines a recording and keeps the first `most` places of each code.
///
/// # Errors
///
/// The recording cannot be read for a reason outside it. Faults inside it are findings.
pub fn examine(mut recording: Recording, threads: usize, most: usize) -> Result<Diagnosis> {
    let features = FeatureContext {
        cpus: recording.features.get(&Feature::NRCPUS).and_then(|cpus| NrCpus::read(cpus, recording.endian)),
    };
    let pipe = recording.form == Form::Pipe;
    let named = recording.features.get(&Feature::BUILD_ID);
    let named = named.map_or_else(NamedIds::default, |section| NamedIds::new(section, recording.endian));
    let context = Context { endian: recording.endian, features, named, pipe, most };
    let killed = recording.faults.iter().any(|fault| fault.code == FaultCode::Unfinished);
    let has_feature = recording.features.contains_key(&Feature::COMPRESSED);
    let can_tell = !killed && has_feature == recording.compressed().is_some();
    let mut patient = Patient {
        findings: Findings::new(most),
        pipe,
        compression: can_tell.then(|| recording.compressed()),
        broken: recording.faults.iter().any(|fault| fault.severity == Severity::Fatal),
        whole: recording
            .faults
            .iter()
            .all(|fault| fault.severity == Severity::Odd || fault.code == FaultCode::Unfinished),
        records: 0,
        has_event: !pipe,
        order: sorts(&recording).then(Order::default),
        times: Times::default(),
        aux: Vec::new(),
    };
    front::check(&recording, features, &mut patient.findings);
    let head: u64 = recording.head().iter().map(|batch| batch.records).sum();
    for batch in recording.take_head() {
        patient.batch(&batch, look(&batch, &context));
    }
    let work = |batch: &Batch| look(batch, &context);
    scan_past(&mut recording, threads, true, work, |read| match read {
        Ok((batch, seen)) => {
            patient.batch(batch, seen);
            Ok(())
        }
        Err(error) if patient.findings.error(&error) => {
            (patient.broken, patient.whole) = (true, false);
            Ok(())
        }
        Err(error) => Err(error.into()),
    })?;
    if patient.pipe && !patient.has_event && patient.records == head {
        patient.findings.add("empty", Location::nowhere("it has no event and no record"));
    }
    front::times(&recording, &patient.times, &mut patient.findings);
    front::aux(&recording, &patient.aux, &mut patient.findings);
    front::id_index(&recording, &patient.aux, &mut patient.findings);
    let samples_have = |part| recording.all_events().iter().any(|event| event.attr().sample_type & part != 0);
    let has_traces =
        samples_have(sample_type::AUX) || patient.aux.iter().any(|aux| matches!(aux, Aux::Trace { .. }));
    let Patient { findings, broken, whole, records, .. } = patient;
    Ok(Diagnosis {
        records,
        whole,
        has_traces,
        has_chains: samples_have(sample_type::CALLCHAIN),
        ..Diagnosis::new(recording.name.clone(), recording.stream_names(), findings, broken)
    })
}

/// The diagnosis of a recording that could not be opened.
///
/// # Errors
///
/// The error itself, if the recording is not at fault.
pub fn unopened(name: &Arc<str>, error: Error) -> Result<Diagnosis, Error> {
    let mut findings = Findings::new(1);
    if !findings.error(&error) {
        return Err(error);
    }
    Ok(Diagnosis::new(name.clone(), Vec::new(), findings, true))
}

/// True if perf sorts records by rounds: they are in one file, have times, and buffers are read forwards.
fn sorts(recording: &Recording) -> bool {
    let attrs = || recording.events.iter().map(|event| event.attr());
    attrs().all(|attr| attr.sample_id_all() && !attr.flag(WRITE_BACKWARD)) && recording.stream_count() == 1
}

const WRITE_BACKWARD: u32 = 27;

struct Patient {
    findings: Findings,
    pipe: bool,
    /// Feature COMPRESSED. The outer `None` means unknown: the section is damaged, or was not yet written.
    compression: Option<Option<Compressed>>,
    /// Part of the recording is unreadable.
    broken: bool,
    /// All records can be read, and `recover` restores the recording.
    whole: bool,
    records: u64,
    has_event: bool,
    order: Option<Order>,
    times: Times,
    aux: Vec<Aux>,
}

impl Patient {
    fn batch(&mut self, batch: &Batch, seen: Seen) {
        let Seen { findings, rounds, times, aux, first_event, early_index, .. } = seen;
        if let Some(origin) = early_index.filter(|_| !self.has_event) {
            let what = "no event precedes it".to_owned();
            let kind = Some(RecordType::ID_INDEX);
            self.findings.add("no-event", Location { origin: Some(origin), kind, what });
        }
        self.has_event |= first_event.is_some();
        for opened in &batch.opened {
            compressed::check(opened, self.compression.as_ref(), &mut self.findings);
        }
        self.findings.append(findings);
        if let Some(order) = &mut self.order {
            order.batch(batch, &rounds, &mut self.findings);
        }
        self.records += batch.records;
        self.times.append(times);
        self.aux.extend(aux);
        if let Some(fragment) = &batch.fragment {
            self.fragment(fragment);
        }
    }

    fn fragment(&mut self, fragment: &Fragment) {
        let error = fragment.to_error();
        let borne = Damage::Tolerate.tolerates(fragment, self.pipe);
        self.broken |= !borne;
        self.whole = false;
        let code = match error.fault_code() {
            Some(code) if fragment.stray.is_some() => code.as_str(),
            _ if borne => "torn",
            _ => "record-cut",
        };
        self.findings.add(
            code,
            Location { origin: Some(fragment.origin), kind: fragment.kind, what: error.what().to_owned() },
        );
    }
}
