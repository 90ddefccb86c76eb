//! Checks the design's promises for one run: the contents of a recording before and after, and the report
//! about the difference. `every_pass.rs` and the fuzz bodies share them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfx_doctor::{FindingKind, examine};
use perfx_format::header::{self, Features};
use perfx_format::read::{Form, Recording, TempFiles};
use perfx_format::{Endian, Feature, RecordType};
use perfx_passes::{PassSpec, parse_chain};
use perfx_pipeline::{Job, Level, Outcome, Output, OutputForm, Pass, Report, count};

/// A file without a name, in memory if possible.
pub(crate) fn unnamed(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

pub(crate) fn temp_files() -> TempFiles {
    Arc::new(|| Ok(unnamed(&[])))
}

/// A recording that can be opened repeatedly.
#[derive(Clone, Debug)]
pub(crate) enum Input<'a> {
    Bytes(&'a [u8]),
    Directory(&'a Path),
}

/// The name of an input without a path, in errors.
pub(crate) const NAME: &str = "input.data";

impl Input<'_> {
    pub(crate) fn open(&self) -> perfx_format::Result<Recording> {
        match self {
            Input::Bytes(bytes) => Recording::from_file(unnamed(bytes), NAME.into(), temp_files()),
            Input::Directory(path) => Recording::open_with(path, temp_files()),
        }
    }

    fn name(&self) -> String {
        match self {
            Input::Bytes(_) => NAME.to_owned(),
            Input::Directory(path) => path.display().to_string(),
        }
    }
}

/// The folder `tests/data`.
pub(crate) fn data() -> PathBuf {
    // The fuzz target, which is in another package, includes this file, too.
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(file!());
    here.parent().expect("a file is in a folder").join("../data")
}

/// The chain for `perfx run -p` with one of a pass's examples. Files in an example are in `tests/data`.
pub(crate) fn chain(entry: &PassSpec, example: &str) -> String {
    let recorded = data().join("recorded/");
    let example = example.replace("recorded/", &recorded.display().to_string());
    if example.is_empty() { entry.name.to_owned() } else { format!("{}:{example}", entry.name) }
}

/// Runs a recording through passes; returns the output.
pub(crate) fn run(
    recording: Recording,
    passes: Vec<Box<dyn Pass>>,
    form: OutputForm,
    threads: usize,
) -> perfx_pipeline::Result<(Outcome, Vec<u8>)> {
    let mut file = unnamed(&[]);
    let job = Job { recording, passes, threads, temp_files: temp_files() };
    let outcome = match form {
        OutputForm::Pipe => job.run(Output::Pipe(&mut file))?,
        form => job.run(Output::File(&file, form))?,
    };
    let mut written = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut written).unwrap();
    assert_eq!(outcome.written, written.len() as u64, "the number of bytes written");
    Ok((outcome, written))
}

/// A little zstd data can expand to many records; larger contents are left to the tests of memory.
const MOST: usize = 8 << 20;

/// The contents of a recording, expanded.
pub(crate) struct Holds {
    endian: Endian,
    form: Form,
    attrs: Vec<Vec<u8>>,
    features: Features,
    pub(crate) kinds: BTreeMap<RecordType, u64>,
    /// EVENT_UPDATE records before the batches: those after HEADER_FEATURE records of pipe data are there.
    updates_in_head: u64,
    /// Records of unknown kinds above 63, with the number of occurrences.
    unnamed: BTreeMap<Vec<u8>, u64>,
    stored: Vec<u8>,
    /// Nothing is damaged or missing.
    pub(crate) whole: bool,
    /// Codes that the doctor finds.
    codes: BTreeSet<&'static str>,
    sound: bool,
}

/// Records that only one of the forms has, or that contain others.
pub(crate) fn of_form(kind: RecordType) -> bool {
    [
        RecordType::HEADER_ATTR,
        RecordType::HEADER_EVENT_TYPE,
        RecordType::HEADER_TRACING_DATA,
        RecordType::HEADER_BUILD_ID,
        RecordType::HEADER_FEATURE,
        RecordType::COMPRESSED,
        RecordType::COMPRESSED2,
    ]
    .contains(&kind)
}

impl Holds {
    /// `None` if it cannot be opened, or its contents are too large.
    pub(crate) fn of(input: &Input<'_>) -> Option<Holds> {
        let mut recording = input.open().ok()?;
        let diagnosis = examine(input.open().ok()?, 1, 1).ok()?;
        let faults = diagnosis.findings.iter().filter(|found| found.code.kind == FindingKind::Fault);
        let mut holds = Holds {
            endian: recording.endian,
            form: recording.form,
            attrs: recording.events.iter().map(|event| event.raw().to_vec()).collect(),
            features: recording.features.clone(),
            kinds: BTreeMap::new(),
            updates_in_head: 0,
            unnamed: BTreeMap::new(),
            stored: Vec::new(),
            whole: recording.faults.iter().all(|fault| fault.severity == header::Severity::Odd),
            codes: faults.map(|found| found.code.code).collect(),
            sound: diagnosis.findings.is_empty(),
        };
        for batch in recording.head() {
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record().expect("a head was walked before") {
                holds.updates_in_head += u64::from(record.kind() == RecordType::EVENT_UPDATE);
            }
        }
        for batch in recording.batches() {
            let Ok(batch) = batch else { break };
            holds.stored.extend_from_slice(&batch.bytes);
        }
        let mut seen = 0;
        for batch in recording.decompressed() {
            let Ok(batch) = batch else {
                holds.whole = false;
                break;
            };
            holds.whole &= batch.fragment.is_none() && batch.lost.is_none();
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record().expect("a batch was walked before") {
                *holds.kinds.entry(record.kind()).or_default() += 1;
                // Kernel records end with ids and times, which some passes change.
                if record.kind().name().is_none() && record.kind().0 >= 64 {
                    let bytes = [record.bytes(), record.payload()].concat();
                    *holds.unnamed.entry(bytes).or_default() += 1;
                }
            }
            seen += batch.bytes.len();
            if seen > MOST {
                return None;
            }
        }
        Some(holds)
    }

    /// perf interprets the feature bits of such a file as those of a 32-bit machine, and so does perfx.
    fn may_be_misread(&self, form: OutputForm) -> bool {
        form != OutputForm::Pipe
            && self.endian == Endian::Big
            && !self.features.contains_key(&Feature::HOSTNAME)
    }

    fn count(&self, kind: RecordType) -> u64 {
        // An MMAP record may become an MMAP2 record.
        let of = |kind| self.kinds.get(&kind).copied().unwrap_or(0);
        if kind == RecordType::MMAP || kind == RecordType::MMAP2 {
            return of(RecordType::MMAP) + of(RecordType::MMAP2);
        }
        of(kind)
    }
}

/// How many records of a kind were dropped according to a report.
fn left_out(report: &Report, kind: RecordType) -> u64 {
    let of = |kind| report.dropped.get(&kind).copied().unwrap_or(0);
    if kind == RecordType::MMAP || kind == RecordType::MMAP2 {
        return of(RecordType::MMAP) + of(RecordType::MMAP2);
    }
    of(kind)
}

fn is_left_empty(report: &Report) -> bool {
    report.read.records == Some(report.dropped.values().sum::<u64>()) || names(report, "kept 0 of ")
}

fn names(report: &Report, what: &str) -> bool {
    report.lines.iter().any(|(_, line)| line.contains(what))
}

/// The contents of `before` that are neither in `after` nor in the report (promises 1, 2 and 4).
fn lost_in_silence(before: &Holds, after: &Holds, outcome: &Outcome) -> Result<(), String> {
    let report = &outcome.report;
    if report.has_loss() {
        return Ok(());
    }
    // Damaged data may be valid in its new place.
    let taken_out = names(report, "was inside a compressed record");
    // All records of an unfinished file are there; what was lost at its end is a warning.
    let unfinished = names(report, "perf record was killed");
    if !before.whole && after.whole && !taken_out && !unfinished {
        return Err(format!(
            "the input is damaged, the output is not, and no loss is reported: {:?}",
            report.lines
        ));
    }
    // A pass that selects samples reports how many it keeps.
    let chosen = names(report, &format!("kept {} of ", count(after.count(RecordType::SAMPLE))));
    for &kind in before.kinds.keys() {
        // A round only means that the records before it can be sorted: dropping it loses nothing. Events and
        // features are compared separately.
        if kind == RecordType::SAMPLE && chosen || kind == RecordType::FINISHED_ROUND || of_form(kind) {
            continue;
        }
        let in_head = if kind == RecordType::EVENT_UPDATE { after.updates_in_head } else { 0 };
        let (before, after) = (before.count(kind), after.count(kind) + in_head);
        if after + left_out(report, kind) < before {
            let dropped = &report.dropped;
            return Err(format!(
                "{before} records of {kind} became {after}, and it reports only {dropped:?}"
            ));
        }
    }
    for (bytes, count) in &before.unnamed {
        let found = |bytes: &[u8]| after.unnamed.get(bytes).copied().unwrap_or(0);
        // Where repair says that it aligned records, this may be one of them.
        let aligned = if names(report, "size-unaligned") { found(&padded(bytes, before.endian)) } else { 0 };
        let there = found(bytes).max(aligned);
        let kind = RecordType(before.endian.u32(bytes, 0).unwrap_or_default());
        if there + left_out(report, kind) < *count {
            return Err(format!("a record of kind {kind}, which has no name, was changed or left out"));
        }
    }
    for (feature, section) in &before.features {
        let other = after.features.get(feature);
        let of_form = [Feature::AUXTRACE, Feature::DIR_FORMAT, Feature::COMPRESSED].contains(feature);
        let named = names(report, &feature.to_string())
            // In pipe data its entries may be among the records.
            || *feature == Feature::BUILD_ID && (names(report, "build-id") || after.count(RecordType::HEADER_BUILD_ID) > 0);
        if other.is_none() && !of_form && !named {
            return Err(format!("feature {feature} is gone, which no line of the report says"));
        }
        if feature.name().is_none() && other.is_some_and(|other| other != section) {
            return Err(format!("feature {feature}, which has no name, was changed"));
        }
    }
    let tails = |holds: &Holds| -> Vec<Vec<u8>> {
        // A file pads each attr to the largest.
        let trimmed = |tail: &[u8]| {
            tail[..tail.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)].to_vec()
        };
        let mut tails: Vec<_> =
            holds.attrs.iter().map(|attr| trimmed(attr.get(144..).unwrap_or_default())).collect();
        tails.sort();
        tails
    };
    if after.attrs.len() < before.attrs.len() && !names(report, "event") {
        return Err(format!("of {} events {} are left", before.attrs.len(), after.attrs.len()));
    }
    if after.attrs.len() == before.attrs.len() && tails(before) != tails(after) {
        return Err("the bytes of an attr that no field has are not what they were".to_owned());
    }
    Ok(())
}

/// A record with zeros up to a multiple of 8.
fn padded(record: &[u8], endian: Endian) -> Vec<u8> {
    let mut padded = record.to_vec();
    padded.resize(record.len().next_multiple_of(8), 0);
    let size = padded.len() as u16;
    padded[6..8].copy_from_slice(&endian.bytes_u16(size));
    padded
}

/// Runs a recording through a chain of passes and checks all promises that one run can break. Returns the
/// outcome, or `None` if the run was refused for a reason, or the contents of the input are too large.
pub(crate) fn kept(
    input: &Input<'_>,
    before: &Holds,
    chain: &str,
    form: OutputForm,
) -> Result<Option<(Outcome, Vec<u8>)>, String> {
    let passes =
        || if chain.is_empty() { Vec::new() } else { parse_chain(chain).expect("an example is right") };
    let run = |threads| run(input.open().expect("it was opened before"), passes(), form, threads);
    let (once, again) = (run(1), run(4));
    let (outcome, written) = match (once, again) {
        (Ok(once), Ok(again)) => {
            if once.1 != again.1 {
                return Err("the bytes depend on the run or on the number of threads".to_owned());
            }
            let said = |outcome: &Outcome| (outcome.report.lines.clone(), outcome.report.dropped.clone());
            if said(&once.0) != said(&again.0) {
                return Err(format!(
                    "the report depends on the run: {:?} {:?}",
                    said(&once.0),
                    said(&again.0)
                ));
            }
            once
        }
        (Err(once), Err(again)) => {
            let (once, again) = (once.to_string(), again.to_string());
            if once != again {
                return Err(format!("with one thread it fails with `{once}`, with four with `{again}`"));
            }
            let named = once.contains(&input.name()) || chain.contains(".data") && once.contains(".data");
            if !named {
                return Err(format!("the error names no file: {once}"));
            }
            if before.sound && chain.is_empty() {
                return Err(format!("a sound recording can't be copied: {once}"));
            }
            return Ok(None);
        }
        (once, again) => {
            let said = |done: perfx_pipeline::Result<(Outcome, _)>| {
                done.map_or_else(|e| e.to_string(), |_| "it is done".into())
            };
            return Err(format!("with one thread: {}; with four: {}", said(once), said(again)));
        }
    };
    if before.may_be_misread(form) {
        return Ok(None);
    }
    // A file without records and features looks like that of a killed perf record.
    if form == OutputForm::File && outcome.features.is_empty() && is_left_empty(&outcome.report) {
        return Ok(None);
    }
    let after = Holds::of(&Input::Bytes(&written)).ok_or("what was written can't be opened")?;
    if before.whole && !after.whole {
        return Err("what was written is damaged".to_owned());
    }
    lost_in_silence(before, &after, &outcome)?;
    // Repairing one fault may reveal another, and perf requires less of pipe data than of a file.
    let mut new = after.codes.clone();
    if before.form == Form::Pipe && form != OutputForm::Pipe {
        let of_files = ["no-event", "id-position", "event-desc", "tracing-data-missing"];
        new.retain(|code| !of_files.contains(code));
    }
    // From another machine that was mixed in, with its number of CPUs.
    if chain.contains(":mix") && !before.features.contains_key(&Feature::NRCPUS) {
        new.remove("sample-cpu");
    }
    if before.codes.is_empty() && !new.is_empty() {
        return Err(format!("the doctor finds nothing in the input, but {new:?} in the output"));
    }
    let same_form = (before.form == Form::Pipe) == (form == OutputForm::Pipe);
    let several = matches!(before.form, Form::Directory { .. });
    if chain.is_empty() && before.whole && same_form && !several && before.stored != after.stored {
        return Err("without a pass the data is not byte by byte the same".to_owned());
    }
    if chain.is_empty() && before.sound && same_form && !several {
        let lines = outcome.report.lines.iter().filter(|(level, _)| *level < Level::Info);
        if lines.count() > 0 {
            return Err(format!("a sound recording is copied with a warning: {:?}", outcome.report.lines));
        }
    }
    Ok(Some((outcome, written)))
}
