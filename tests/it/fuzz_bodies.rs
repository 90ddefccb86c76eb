//! For any bytes, perfx neither panics nor hangs nor uses much memory, and can read its own output: the
//! bodies of the fuzz target in tests/fuzz, run here on every recording, truncated and changed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use build_id::{Endianness, KnownIds, from_elf, from_notes};
use perfx_doctor::{FindingKind, Verdict, examine};
use perfx_export::branch_files::BranchFiles;
use perfx_export::branches::{BranchProfile, Program, SumFormat};
use perfx_export::changes::{self, ChangeOptions, compare};
use perfx_export::csv::write_tables;
use perfx_export::firefox::{FirefoxProfile, losses};
use perfx_export::folded::{Folded, FoldedOptions};
use perfx_export::html::{Side, pack};
use perfx_export::list::{What, list};
use perfx_export::otlp::{Attributes, Otlp};
use perfx_export::parquet;
use perfx_export::pprof::Profile;
use perfx_export::view::{ViewOptions, view};
use perfx_export::{Facts, Grouping, NamedStacks, Row, Search, ShownEvent, Stacks, Weight};
use perfx_filter::{FilterOptions, Split, SplitBy};
use perfx_format::branch_list::{binaries, messages};
use perfx_format::decode::{decode, decode_attr, issues, misc_names, mmap_build_id};
use perfx_format::features::{
    BuildIds as Entries, FeatureContext, NrCpus, decode_feature, read_auxtrace_index, read_event_desc,
    read_group_desc, write_auxtrace_index, write_event_desc, write_group_desc,
};
use perfx_format::header::{self, Features};
use perfx_format::jitdump::Dump;
use perfx_format::names::{rename_feature, rename_record};
use perfx_format::read::{Batch, Chain, Expand, Form, Index, IndexedBatch, Recording, SampleSpan};
use perfx_format::sample::{Sample, callchain, frames};
use perfx_format::spe::{Packets, Records};
use perfx_format::write::{Changes, replace_sections};
use perfx_format::{
    Bytes, Endian, Event, Feature, Kinds, Layouts, Origins, Record, RecordType, Result, Walker,
};
use perfx_jit::{Functions, Image, Target, arenas};
use perfx_look::clock::Clock;
use perfx_look::json::Fields;
use perfx_look::render::{Style, indented, line, with_odd};
use perfx_passes::{
    CombineOptions, Compress, CompressOptions, Decompress, DecompressOptions, IdOptions, Joined, Merge,
    MergeOptions, MoreKinds, PassSpec, REGISTRY, Recover, RecoverOptions, ReindexAux, ReindexBuildIds,
    ReindexIds, ReindexTimes, in_time_order, parse_chain,
};
use perfx_pipeline::{Level, Outcome, OutputForm, Pass, Report};
use perfx_trace::{
    Blocks, Event as TraceEvent, Image as CodeImage, Mapping, Point, Sink, Space, Step, Switch, Trace,
    coresight, intel_pt,
};
use symbols::ShownNames;

use crate::examples::examples;
use crate::promises::{self, Holds, Input, temp_files, unnamed};

/// A check of arbitrary bytes.
pub(crate) type Run = Box<dyn Fn(&[u8]) + Send + Sync>;

pub(crate) type Body = (&'static str, fn(&[u8]));

/// All bodies by name: those below, and `pass-NAME` for each pass of the registry.
pub(crate) fn all() -> Vec<(String, Run)> {
    let below = RECORDINGS.iter().chain(PARTS);
    let mut bodies: Vec<(String, Run)> =
        below.map(|&(name, body)| (name.to_owned(), Box::new(body) as Run)).collect();
    bodies.extend(REGISTRY.iter().map(|entry| (format!("pass-{}", entry.name), pass_body(entry))));
    bodies
}

/// One of the pass's examples, selected by the input's length, keeps the promises.
fn pass_body(entry: &'static PassSpec) -> Run {
    Box::new(|bytes| {
        let (length, examples) = (bytes.len(), examples(entry));
        let chain = promises::chain(entry, examples[length / 2 % examples.len()]);
        let input = Input::Bytes(bytes);
        if let Some(before) = Holds::of(&input) {
            let kept = promises::kept(&input, &before, &chain, FORMS[length % 2]);
            if let Err(broken) = kept {
                let input = std::env::temp_dir().join(format!("perfx-fuzz-{}-{length}.data", entry.name));
                let _ = std::fs::write(&input, bytes);
                panic!("{chain} to {:?}: {broken} (the input is {})", FORMS[length % 2], input.display());
            }
        }
    })
}

/// Bodies whose input is a whole recording.
pub(crate) const RECORDINGS: &[Body] = &[
    ("file", file),
    ("pipe", pipe),
    ("copy", copy),
    ("in_place", in_place),
    ("compress", compress),
    ("decompress", decompress),
    ("reindex", reindex),
    ("doctor", doctor),
    ("merge", merge),
    ("join", join),
    ("split", split),
    ("index", index),
    ("recover", recover),
    ("du", du),
    ("diff", diff),
    ("export", export),
];

/// Bodies whose input is a part of a recording, or something else, as each describes.
pub(crate) const PARTS: &[Body] = &[
    ("expand", expand),
    ("records", records),
    ("features", features),
    ("known_ids", known_ids),
    ("elf", elf),
    ("jitdump", jitdump),
    ("spe", spe),
    ("intel_pt", intel_pt),
    ("coresight", coresight),
    ("branch_list", branch_list),
    ("symbol_name", symbol_name),
];

fn open(bytes: &[u8]) -> Result<Recording> {
    Input::Bytes(bytes).open()
}

/// Reading stops after this many bytes: a little zstd data can expand to many records.
const ENOUGH: usize = 8 << 20;

/// Calls `look` with every record, as stored or expanded.
fn walk(recording: &mut Recording, expanded: bool, mut look: impl FnMut(&Record<'_>, &Batch)) -> Result<()> {
    let endian = recording.endian;
    let mmap_len = recording.compressed().map_or(0, |compressed| compressed.mmap_len);
    let stored = recording.batches();
    let batches: Box<dyn Iterator<Item = Result<Batch>>> =
        if expanded { Box::new(Expand::new(stored, endian, mmap_len)) } else { Box::new(stored) };
    let mut seen = 0;
    for batch in batches {
        let batch = batch?;
        let (mut count, mut walker) = (0, batch.walk());
        while let Some(record) = walker.next_record()? {
            assert!(batch.kinds.contains(record.kind()), "a batch knows its kinds");
            count += 1;
            look(&record, &batch);
        }
        assert_eq!(count, batch.records, "a batch knows how many records it has");
        seen += batch.bytes.len();
        if seen > ENOUGH {
            break;
        }
    }
    Ok(())
}

/// Decodes a record in every possible way and checks that the results agree.
fn look_at(record: &Record<'_>, layouts: &Layouts) {
    let decoded = decode(record, layouts);
    assert_eq!(decoded.issues, issues(record, layouts), "{record:?}");
    let fields = with_odd(decoded);
    std::hint::black_box(line(&fields, Style::default()));
    serde_json::to_string(&Fields::from(&fields)).expect("fields have names");
    std::hint::black_box(misc_names(record.kind(), record.misc()));
    std::hint::black_box(mmap_build_id(record, layouts));
    let Some(layout) = layouts.layout_of(record) else { return };
    if record.kind() != RecordType::SAMPLE {
        std::hint::black_box((layout.time(record), layout.pid_tid(record), layout.cpu(record)));
        return;
    }
    let Ok(sample) = Sample::parse(record, layout) else { return };
    assert_eq!(sample.time, layout.recorded_time(record));
    assert_eq!(sample.pid_tid, layout.pid_tid(record));
    assert_eq!(sample.cpu, layout.cpu(record));
    assert_eq!(sample.ip, layout.ip(record));
    assert_eq!(sample.identifier.or(sample.id), layout.id(record));
    assert_eq!(sample.callchain, callchain(record, layout));
    sample.callchain.map(|chain| frames(chain, record.cpumode()).count());
    let trailer = layout.trailer_of_sample(record);
    assert_eq!(trailer.len(), usize::from(layout.trailer.size));
}

fn read(opened: Result<Recording>) {
    let Ok(mut recording) = opened else { return };
    let endian = recording.endian;
    for event in &recording.events {
        std::hint::black_box(indented(&decode_attr(event.raw(), endian), 1, Style::default()));
    }
    let cpus = recording.features.get(&Feature::NRCPUS).and_then(|section| NrCpus::read(section, endian));
    for (&feature, section) in &recording.features {
        let fields = with_odd(decode_feature(feature, section, endian, FeatureContext { cpus }));
        std::hint::black_box(indented(&fields, 1, Style::default()));
    }
    for batch in recording.take_head() {
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().expect("the head was read once") {
            look_at(&record, &batch.layouts);
        }
    }
    // Decoding is much slower than walking, and the first records are as good as later ones.
    let mut left = 2000;
    let _ = walk(&mut recording, true, |record, batch| {
        if left > 0 {
            left -= 1;
            look_at(record, &batch.layouts);
        }
    });
}

/// Any bytes as a file.
pub(crate) fn file(bytes: &[u8]) {
    read(open(bytes));
}

/// Any bytes read from a pipe.
pub(crate) fn pipe(bytes: &[u8]) {
    read(Recording::from_reader(Box::new(Cursor::new(bytes.to_vec())), "fuzzed".into(), temp_files()));
}

/// The facts that must not change.
#[derive(PartialEq, Debug)]
struct Summary {
    endian: Endian,
    events: Vec<Event>,
    features: Features,
    stored: u64,
    data: Vec<u8>,
    /// True if compressed data can be read.
    whole: bool,
}

/// `None` if reading fails.
fn summary(bytes: &[u8]) -> Option<Summary> {
    let mut recording = open(bytes).ok()?;
    let (mut data, mut stored) = (Vec::new(), 0);
    walk(&mut recording, false, |record, _| {
        stored += 1;
        data.extend_from_slice(record.bytes());
        data.extend_from_slice(record.payload());
    })
    .ok()?;
    let whole = walk(&mut recording, true, |_, _| ()).is_ok();
    Some(Summary {
        endian: recording.endian,
        events: recording.events,
        features: recording.features,
        stored,
        data,
        whole,
    })
}

/// Runs a recording through passes; returns the output.
fn run(
    bytes: &[u8],
    passes: Vec<Box<dyn Pass>>,
    form: OutputForm,
    threads: usize,
) -> Option<(Outcome, Vec<u8>)> {
    promises::run(open(bytes).ok()?, passes, form, threads).ok()
}

/// Checks that the output is a recording without faults.
fn check(written: &[u8], form: OutputForm) -> Summary {
    let recording = open(written).expect("what was written can be opened");
    assert_eq!(recording.form, if form == OutputForm::Pipe { Form::Pipe } else { Form::File });
    // Unknown features, and attrs that do not state their size, are kept as they are; nothing else may be
    // odd.
    for fault in &recording.faults {
        assert!(fault.severity == header::Severity::Odd, "{}", fault.to_error());
    }
    summary(written).expect("what was written can be read")
}

const FORMS: [OutputForm; 2] = [OutputForm::File, OutputForm::Pipe];

/// A file of the other byte order without HOSTNAME: like perf, perfx may interpret its feature bits as those
/// of a 32-bit machine.
fn by_hostname(summary: &Summary, form: OutputForm) -> bool {
    form == OutputForm::File
        && summary.endian == Endian::Big
        && !summary.features.contains_key(&Feature::HOSTNAME)
}

/// Without a pass only the form changes, and a second copy equals the first.
pub(crate) fn copy(bytes: &[u8]) {
    let Some(before) = summary(bytes) else { return };
    for form in FORMS {
        let Some((outcome, mut written)) = run(bytes, Vec::new(), form, 1) else { continue };
        if by_hostname(&before, form) {
            continue;
        }
        let after = check(&written, form);
        assert_eq!(before.whole, after.whole, "what is compressed can be read as before");
        let same_form =
            open(bytes).is_ok_and(|recording| (recording.form == Form::Pipe) == (form == OutputForm::Pipe));
        if same_form && !outcome.report.has_loss() {
            assert!(before.data == after.data, "the records are the same bytes");
        }
        let copy = |bytes: &[u8]| run(bytes, Vec::new(), form, 1).expect("a copy can be copied").1;
        let mut again = copy(&written);
        // Events that became known while records were written are at the end at first.
        if has_late_events(&written) {
            (written, again) = (again.clone(), copy(&again));
        }
        assert!(again == written, "a copy of a copy is the copy");
    }
}

/// With a pass: the output can be read, and does not depend on the number of threads.
fn rewritten(
    bytes: &[u8],
    options: usize,
    make: impl Fn() -> Box<dyn Pass>,
) -> Option<(Summary, Outcome, Summary)> {
    let before = summary(bytes)?;
    let form = FORMS[options % 2];
    let (outcome, written) = run(bytes, vec![make()], form, 1)?;
    if by_hostname(&before, form) {
        return None;
    }
    let after = check(&written, form);
    if options.is_multiple_of(8) {
        let (_, threaded) = run(bytes, vec![make()], form, 3).expect("threads change nothing");
        assert!(threaded == written, "the bytes depend on the number of threads");
    }
    Some((before, outcome, after))
}

/// Runs a pass; every dropped record is counted.
fn pass(bytes: &[u8], options: usize, make: impl Fn() -> Box<dyn Pass>) {
    let form = FORMS[options % 2];
    let Some((before, outcome, after)) = rewritten(bytes, options, make) else { return };
    let dropped: u64 = outcome.report.dropped.values().sum();
    let compressed = before.data != after.data && !after.features.contains_key(&Feature::COMPRESSED);
    if open(bytes).is_ok_and(|recording| recording.form == Form::File)
        && form == OutputForm::File
        && !compressed
    {
        assert!(after.stored + dropped >= before.stored, "only what was counted was left out");
    }
}

/// The doctor's answer does not depend on the number of threads, counts unlisted places, and contains
/// `unreadable` exactly if the recording cannot be copied.
pub(crate) fn doctor(bytes: &[u8]) {
    let Ok(recording) = open(bytes) else { return };
    let is_pipe = recording.form == Form::Pipe;
    let said = examine(recording, 1, 2).expect("no fault of the recording is an error");
    for finding in &said.findings {
        assert_eq!(finding.locations.len() as u64, finding.count.min(2));
        assert_ne!(finding.code.code, "unlisted", "{finding:?}");
    }
    let faults = said.findings.iter().any(|finding| finding.code.kind == FindingKind::Fault);
    assert!(faults || said.verdict == Verdict::Sound);
    if bytes.len().is_multiple_of(8) {
        let again = examine(open(bytes).unwrap(), 3, 2).unwrap();
        assert_eq!(format!("{said:?}"), format!("{again:?}"));
    }
    if said.verdict == Verdict::Sound {
        let form = if is_pipe { OutputForm::Pipe } else { OutputForm::File };
        assert!(run(bytes, Vec::new(), form, 1).is_some(), "what is sound can be copied");
    }
}

/// Every sample is in one part, and each part is a valid recording.
pub(crate) fn split(bytes: &[u8]) {
    let ways = [
        SplitBy::Samples(3),
        SplitBy::Time(1_000_000),
        SplitBy::Pid,
        SplitBy::Event,
        SplitBy::Size(1 << 14),
        SplitBy::Time(1),
    ];
    split_by(bytes, ways[bytes.len() / 2 % ways.len()]);
}

pub(crate) fn split_by(bytes: &[u8], by: SplitBy) {
    let Ok(mut recording) = open(bytes) else { return };
    let Ok(split) = Split::new(&mut recording, by, bytes.len().is_multiple_of(3), 10_000, 1) else { return };
    let parts: Vec<_> = split.parts().collect();
    // Writing all files takes too long, and the first ones are as good as the others.
    let whole =
        Split::new(&mut recording, by, bytes.len().is_multiple_of(3), 10_000, 1).expect("it was just split");
    let whole = whole.passes(recording.try_clone().expect("it is in a file"));
    let passes = split.passes(recording).zip(whole);
    for (part, ((narrow, pass), (_, same))) in parts.iter().zip(passes).take(20) {
        let Some((_, written)) = run(bytes, vec![same], OutputForm::File, 1) else { return };
        let narrow = narrow.expect("as before");
        let (_, narrow) = promises::run(narrow, vec![pass], OutputForm::File, 1).expect("all of it was read");
        assert!(narrow == written, "the batches that are left out are not needed");
        if let SplitBy::Size(most) = by {
            assert!(written.len() as u64 <= most, "a part of {} bytes", written.len());
        }
        let mut recording = open(&written).expect("a part can be opened");
        let samples = recording.batches().map(|batch| batch.expect("a part can be read").sample_span().count);
        assert_eq!(samples.sum::<u64>(), part.samples);
    }
}

/// Every recording that can be opened becomes one without faults, and a second run changes nothing.
pub(crate) fn recover(bytes: &[u8]) {
    let passes =
        || -> Vec<Box<dyn Pass>> { vec![Box::new(Recover::new(RecoverOptions { guess: true, like: None }))] };
    let recovered = |bytes: &[u8]| {
        let recording = open(bytes).ok()?.lenient();
        promises::run(recording, passes(), OutputForm::File, 1).ok()
    };
    let Some((_, written)) = recovered(bytes) else { return };
    let recording = open(&written).expect("what came back can be opened");
    // As in `by_hostname`.
    let sure = recording.endian == Endian::Little || recording.features.contains_key(&Feature::HOSTNAME);
    if sure {
        assert!(
            recording.faults.iter().all(|fault| fault.severity == header::Severity::Odd),
            "{:?}",
            recording.faults
        );
        summary(&written).expect("what came back can be read");
    }
}

/// With its index, a recording has the same records, batches and samples.
pub(crate) fn index(bytes: &[u8]) {
    let Some(mut recording) = open(bytes).and_then(|recording| recording.spooled(&temp_files())).ok() else {
        return;
    };
    let read: Result<Vec<_>> = recording.batches().map(|batch| IndexedBatch::of(&batch?)).collect();
    let Ok(read) = read else { return };
    let index = Index::new(&recording, read).expect("all batches were read");
    let written = index.to_bytes();
    let index = Index::read(&written).expect("perfx reads its own output");
    assert!(index.to_bytes() == written && index.belongs_to(&recording, true));
    let records = |recording: &mut Recording| {
        let mut all = Vec::new();
        let walked = walk(recording, false, |record, _| all.push((record.kind(), record.origin())));
        (walked.is_ok(), all)
    };
    let before = records(&mut recording);
    let mut again = recording.try_clone().expect("it is in a file");
    again.use_index(index);
    assert_eq!(records(&mut again), before);
    let spans = |recording: &mut Recording| -> Result<Vec<_>> {
        recording.batches().map(|batch| batch.map(|batch| batch.sample_span())).collect()
    };
    let known = spans(&mut again).expect("they are known");
    let found = spans(&mut recording).expect("they were read before");
    assert!(known.iter().zip(&found).all(|(known, found)| {
        let mut known = SampleSpan::clone(known);
        known.pids = None;
        known == **found
    }));
}

/// The rows add up to the total, and the number of threads makes no difference.
pub(crate) fn du(bytes: &[u8]) {
    let Ok(mut recording) = open(bytes) else { return };
    let du = |recording: &mut Recording, threads| perfx_look::du(recording, threads, &mut Report::default());
    let Ok(said) = du(&mut recording, 1) else { return };
    if bytes.len().is_multiple_of(8) {
        let again = du(&mut open(bytes).unwrap(), 3).expect("threads change nothing");
        assert_eq!(said, again);
    }
}

/// A recording equals itself and its copies, and diff is symmetric.
pub(crate) fn diff(bytes: &[u8]) {
    let opened = |bytes: &[u8]| open(bytes).and_then(|recording| recording.spooled(&temp_files())).ok();
    let equal = |a: &[u8], b: &[u8]| {
        let (ignored, mut report) = (BTreeSet::new(), Report::default());
        let found = perfx_look::diff(&mut opened(a)?, &mut opened(b)?, &ignored, 1, &mut report);
        found.ok().map(|found| found.equal)
    };
    let same = equal(bytes, bytes);
    assert!(same != Some(false), "a recording differs from itself");
    assert_eq!(equal(bytes, HOST), equal(HOST, bytes));
}

/// Merges the recording as the guest of a sound host, and as the host of itself.
pub(crate) fn merge(bytes: &[u8]) {
    let options = bytes.len();
    let (samples, all) = (options & 2 != 0, options & 4 != 0);
    let Ok(mut guest) = tempfile::Builder::new().prefix("perfx-fuzz-").tempfile() else { return };
    guest.write_all(bytes).unwrap();
    let spec = |clock: &str| {
        let vcpus: String = (0..8).map(|vcpu| format!(",vcpu={vcpu}:{}", 31314 + vcpu)).collect();
        format!("{},pid=77{vcpus}{clock}", guest.path().display()).into()
    };
    let merged = |clock: &str| -> Box<dyn Pass> {
        let guests = vec![spec(clock)];
        Box::new(Merge::new(MergeOptions { guests, more: MoreKinds { samples, all }, guestmount: None }))
    };
    // Any offset must work: the merged records are at the right times, or nothing is written.
    for clock in [",offset=-1000000,scale=1", ""] {
        pass(bytes, options, || merged(clock));
    }
    run(HOST, vec![merged(",offset=-5457500000000,scale=1")], OutputForm::File, 1);
}

/// A host, whatever its guest.
const HOST: &[u8] = include_bytes!("../data/recorded/switch.p61.data");

/// A sorted recording is in order, and sorting it again changes nothing; joins it with a sound recording, in
/// both orders.
pub(crate) fn join(bytes: &[u8]) {
    let form = FORMS[bytes.len() % 2];
    let Some(before) = summary(bytes) else { return };
    if let Some((_, sorted)) = run(bytes, vec![Box::new(perfx_passes::sort())], form, 1) {
        if !by_hostname(&before, form) {
            check(&sorted, form);
            let mut recording = open(&sorted).expect("what was sorted can be read");
            assert!(
                in_time_order(&mut recording, 1).is_ok_and(|sorted| sorted),
                "what was sorted is in order"
            );
        }
        if bytes.len().is_multiple_of(8) {
            let (_, threaded) =
                run(bytes, vec![Box::new(perfx_passes::sort())], form, 3).expect("threads change nothing");
            assert!(threaded == sorted, "the bytes depend on the number of threads");
        }
    }
    for (first, other) in [(bytes, HOST), (HOST, bytes)] {
        let Ok(other) = open(other) else { continue };
        let others = vec![Joined::Open(Box::new(other), None)];
        let join = perfx_passes::join(CombineOptions {
            others,
            mix: true,
            take_kcore: true,
            ..CombineOptions::default()
        });
        if let Some((_, joined)) = run(first, vec![Box::new(join)], form, 1)
            && !by_hostname(&before, form)
        {
            check(&joined, form);
        }
    }
}

/// Changing a section in place changes nothing else.
pub(crate) fn in_place(bytes: &[u8]) {
    let (Some(before), Ok(recording)) = (summary(bytes), open(bytes)) else { return };
    let Some(header) = &recording.file else { return };
    let section = Bytes::from(vec![0xa5; bytes.len() % 61]);
    let set = |feature| (feature, Some(section.clone()));
    for changes in [
        vec![set(Feature::BUILD_ID)],
        vec![set(Feature::AUXTRACE), (Feature::OSRELEASE, None)],
        vec![set(Feature::BUILD_ID), set(Feature::SAMPLE_TIME), set(Feature(200))],
    ] {
        let mut file = unnamed(bytes);
        let changes = Changes::from_iter(changes);
        if !replace_sections(&file, header, &changes).unwrap() {
            continue;
        }
        let mut changed = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut changed).unwrap();
        let after = summary(&changed).expect("what was changed in place can be read");
        assert!(before.data == after.data, "the records are the same bytes");
        assert!(before.events == after.events, "the events are the same");
        let mut expected = before.features.clone();
        for (feature, section) in &changes {
            match section {
                Some(section) => expected.insert(*feature, section.clone()),
                None => expected.remove(feature),
            };
        }
        assert!(expected == after.features, "only {:?} change", changes.keys());
    }
}

/// True if events became known while records were written, and are at the end: a copy moves them to the
/// front.
fn has_late_events(written: &[u8]) -> bool {
    open(written).unwrap().file.is_some_and(|header| header.attrs.offset > header.data.offset)
}

/// With options selected by the input's length: decompressing restores the same bytes, and the output does
/// not depend on the number of threads.
pub(crate) fn compress(bytes: &[u8]) {
    let Some(before) = summary(bytes) else { return };
    let length = bytes.len();
    let form = FORMS[length % 2];
    if by_hostname(&before, form) {
        return;
    }
    let decompress = |bytes: &[u8], threads| {
        run(bytes, vec![Box::new(Decompress::default())], form, threads).map(|(_, written)| written)
    };
    let Some(mut plain) = decompress(bytes, 1) else { return };
    if has_late_events(&plain) {
        plain = decompress(&plain, 1).expect("what was written can be copied");
    }
    let [compressed2, solid] = [2, 4].map(|bit| length & bit != 0);
    // A continuous stream of a high level uses a window of many MiB.
    let level = 1 + (length / 16 % if solid { 9 } else { 22 }) as i32;
    let options = CompressOptions { level, compressed2, solid, ratio: true };
    let compress = |threads| run(&plain, vec![Box::new(Compress::new(options))], form, threads);
    let (outcome, small) = compress(1).expect("what can be copied can be compressed");
    let after = check(&small, form);
    assert!(after.whole, "what was compressed can be opened");
    let back = decompress(&small, 1).expect("what was compressed can be opened");
    // Zeros of perf stat in place of the feature; a section that stops some perf is rewritten, which is
    // reported.
    let repaired = outcome.report.lines.iter().any(|(level, _)| *level <= Level::Warning);
    if !open(&plain).unwrap().features.contains_key(&Feature::COMPRESSED) && !repaired {
        assert!(back == plain, "what was compressed comes back");
    }
    if length.is_multiple_of(8) {
        assert!(compress(3).expect("threads change nothing").1 == small, "compressed on three threads");
        assert!(decompress(&small, 3).expect("threads change nothing") == back, "opened on three threads");
    }
}

/// With and without salvage, alone and as every file of a chain: the output has no compressed records, and is
/// the same for any number of threads.
pub(crate) fn decompress(bytes: &[u8]) {
    let Some(before) = summary(bytes) else { return };
    let form = FORMS[bytes.len() % 2];
    if by_hostname(&before, form) {
        return;
    }
    let run = |salvage, chain: Option<Chain>, threads| {
        let mut recording = open(bytes).ok()?;
        chain.into_iter().for_each(|chain| recording.continue_from(chain));
        let pass = Decompress::new(DecompressOptions { salvage });
        promises::run(recording, vec![Box::new(pass)], form, threads).ok()
    };
    // The chain ends at the first file that cannot be read.
    let links = |salvage, threads| -> Option<[Vec<u8>; 2]> {
        let mut chain = Chain::default();
        let (_, first) = run(salvage, Some(chain.clone()), threads)?;
        chain.last = true;
        let (_, second) = run(salvage, Some(chain), threads)?;
        Some([first, second])
    };
    let strict = run(false, None, 1);
    let salvaged = run(true, None, 1);
    for (outcome, written) in [&strict, &salvaged].into_iter().flatten() {
        // A file without any contents looks unfinished.
        if outcome.report.read.records == Some(0) && outcome.report.has_loss() {
            continue;
        }
        let after = check(written, form);
        let mut opened = open(written).unwrap();
        let compressed = Kinds::of(&[RecordType::COMPRESSED, RecordType::COMPRESSED2]);
        walk(&mut opened, false, |record, _| assert!(!compressed.contains(record.kind()))).unwrap();
        assert!(after.whole, "{:?}", outcome.report.lines);
    }
    if let (Some((_, strict)), Some((outcome, salvaged))) = (&strict, &salvaged)
        && !outcome.report.has_loss()
    {
        assert!(strict == salvaged, "where nothing is lost there is nothing to salvage");
    }
    let bytes_of = |made: &Option<(Outcome, Vec<u8>)>| made.as_ref().map(|(_, written)| written.clone());
    assert!(bytes_of(&run(false, None, 3)) == bytes_of(&strict), "on three threads");
    assert!(bytes_of(&run(true, None, 3)) == bytes_of(&salvaged), "salvaged on three threads");
    for salvage in [false, true] {
        assert!(links(salvage, 1) == links(salvage, 3), "a chain on three threads");
    }
}

/// Each index alone, then all of them: nothing else is lost, and a second run has nothing to do.
pub(crate) fn reindex(bytes: &[u8]) {
    let add = bytes.len() / 8 % 2 == 1;
    let passes = || -> Vec<Box<dyn Pass>> {
        vec![
            Box::new(ReindexIds::default()),
            Box::new(ReindexAux { add }),
            Box::new(ReindexTimes { add }),
            Box::new(ReindexBuildIds { add }),
        ]
    };
    pass(bytes, bytes.len(), || passes().swap_remove(bytes.len() / 16 % 4));
    let form = FORMS[bytes.len() % 2];
    let Some(before) = summary(bytes) else { return };
    if by_hostname(&before, form) {
        return;
    }
    let Some((_, once)) = run(bytes, passes(), form, 1) else { return };
    // Events among the records of a pipe are at the end of its file at first; and build-ids among them are
    // records, so that `add`, which knows those at the front, adds them again.
    if has_late_events(&once) || add && form == OutputForm::Pipe {
        return;
    }
    let Some((_, twice)) = run(&once, passes(), form, 1) else { return };
    assert!(once == twice, "what was repaired is repaired");
}

/// The first byte selects: bit 0 records to compress, else data for zstd to read; bit 1 the byte order, bit 2
/// COMPRESSED2. The next two bytes seed the places of the cuts.
pub(crate) fn expand(bytes: &[u8]) {
    let Some((&[how, a, b], rest)) = bytes.split_first_chunk() else { return };
    let endian = if how & 2 == 0 { Endian::Little } else { Endian::Big };
    let kind = if how & 4 == 0 { RecordType::COMPRESSED } else { RecordType::COMPRESSED2 };
    let mut seed = u64::from(a) << 8 | u64::from(b);
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below.max(1)
    };
    let zstd = if how & 1 == 0 { rest.to_vec() } else { zstd::encode_all(rest, 1).unwrap() };
    let mut stream = Vec::new();
    let mut left = &zstd[..];
    while !left.is_empty() {
        let (part, more) = left.split_at(1 + next(left.len().min(5000)));
        left = more;
        let front = if kind == RecordType::COMPRESSED2 { 16 } else { 8 };
        let size = front + part.len();
        let padded = if front == 16 { size.next_multiple_of(8) } else { size };
        stream.extend(endian.bytes_u32(kind.0));
        stream.extend(endian.bytes_u16(0));
        stream.extend(endian.bytes_u16(padded as u16));
        if front == 16 {
            stream.extend(endian.bytes_u64(part.len() as u64));
        }
        stream.extend(part);
        stream.resize(stream.len() + padded - size, 0);
    }
    let mut input = perfx_format::header::Magic::pipe_header(endian).to_vec();
    input.extend(stream);
    let reader = Box::new(Cursor::new(input));
    let Ok(mut recording) = Recording::from_reader(reader, "fuzzed".into(), temp_files()) else { return };
    let mut out = Vec::new();
    let done = walk(&mut recording, true, |record, _| {
        out.extend_from_slice(record.bytes());
        out.extend_from_slice(record.payload());
    });
    if how & 1 == 1 && done.is_ok() {
        assert!(rest.starts_with(&out), "what comes out of the stream is what went in");
    }
}

/// Folds a recording, and writes its tables.
pub(crate) fn export(bytes: &[u8]) {
    let ids = IdOptions::new(None, Vec::new(), Vec::new(), true).expect("no folder is named");
    let reread = || open(bytes).and_then(|recording| recording.spooled(&temp_files())).ok();
    let Some(mut recording) = reread() else { return };
    let mut report = Report::default();
    let Ok(facts) = Facts::survey(&mut recording, 1, true) else { return };
    let all = Arc::new(FilterOptions::default());
    let by = Grouping {
        comm: true,
        main: false,
        pid: true,
        tid: true,
        cpu: true,
        cgroup: true,
        container: false,
        time: true,
        unmapped: true,
        own_address: true,
    };
    let stacks = Stacks::collect(&mut recording, &facts, by, &all, 1, &mut report);
    if let Ok(stacks) = stacks {
        let samples = |_: &Row, weight: &Weight| Some(weight.samples);
        let (features, endian) = (&recording.features, recording.endian);
        let search = Search { facts: &facts, features, endian, ids: &ids, inlined: false };
        let (folded, _) =
            Folded::new(&stacks, search, &FoldedOptions::default(), samples).expect("a thread starts");
        let mut text = Vec::new();
        folded.write(&mut text).expect("memory takes all bytes");
        let text = String::from_utf8(text).expect("names are UTF-8");
        let lines: Vec<&str> = text.lines().map(|line| line.rsplit_once(' ').expect("a count").0).collect();
        let (profile, _) = Profile::new(&stacks, search).expect("a thread starts");
        profile.write(&mut std::io::sink()).expect("a sink takes all bytes");
        let mut otlp = Otlp::default();
        if let Some(again) = reread() {
            otlp.add(&stacks, search, Clock::of(&again), Attributes::default()).expect("a thread starts");
            otlp.finish().write(&mut std::io::sink()).expect("a sink takes all bytes");
        }
        let mut firefox = FirefoxProfile::default();
        if let Some(mut again) = reread() {
            let lost = losses(&mut again, 1).unwrap_or_default();
            firefox.add(&stacks, search, lost, None, Clock::of(&again)).expect("a thread starts");
            firefox.write(&mut std::io::sink()).expect("a sink takes all bytes");
        }
        let mut named = NamedStacks::new(1);
        let (placed, _) = named.add(&stacks, search).expect("a thread starts");
        let samples = |_: &Row, weight: &Weight| Some(weight.samples);
        let run = [changes::Run::new(&named, &stacks, &placed, true, samples)];
        let options = ChangeOptions {
            threshold: 0.0,
            error: 0.05,
            trusts_one_run: true,
            total: true,
            shares: false,
            per: None,
        };
        let same = compare(&named, [&run, &run], &options);
        assert!(!same.changed && same.functions.is_empty(), "{same:?}");
        let about = serde_json::Value::Null;
        pack(
            &named,
            vec![Side {
                annotated: perfx_export::annotate::Annotated::default(),
                stacks: &stacks,
                facts: &facts,
                placed: &placed,
                shown: stacks.sampled(&facts).default_event(),
                about,
            }],
        )
        .expect("memory");
        assert!(lines.is_sorted() && lines.len() == folded.len(), "one line a stack, sorted: {lines:?}");
    }
    let Some(mut recording) = reread() else { return };
    let table =
        |_: &str| -> perfx_pipeline::Result<Box<dyn std::io::Write>> { Ok(Box::new(std::io::sink())) };
    let spill = || temp_files()().expect("there is space");
    let _ = write_tables(&mut recording, &ids, &FilterOptions::default(), spill(), table, 1, &mut report);
    if let (Ok(program), Some(mut recording)) = (Program::open(Path::new("/bin/true")), reread()) {
        let mut profile = BranchProfile::new(true);
        if profile.add(&mut recording, &program, &all, &ids, 1, &mut report).is_ok() {
            for format in [SumFormat::Autofdo, SumFormat::Bolt] {
                profile.sums(format, &program, &mut std::io::sink()).expect("a sink takes all bytes");
            }
            profile.profgen(&program, &mut std::io::sink()).expect("a sink takes all bytes");
        }
    }
    let Some(mut recording) = reread() else { return };
    let mut files = BranchFiles::default();
    if files.add(&mut recording, &all, &ids, 1, &mut report).is_ok() {
        files.into_profiles(SumFormat::Bolt, &ids, &mut report).expect("memory takes all bytes");
    }
    let Some(recording) = reread() else { return };
    let options = ViewOptions { inlined: true, ..ViewOptions::default() };
    let _ = view((recording, None), &ids, &all, &options, 1, &mut report, &mut std::io::sink());
    for what in [What::Events, What::Dsos, What::BuildIds, What::Threads, What::Cgroups, What::Mappings] {
        let Some(mut recording) = reread() else { return };
        let _ = list(&mut recording, what, &all, &ids, &mut ShownEvent::default(), 1, &mut report);
    }
    let Some(mut recording) = reread() else { return };
    let identity = parquet::Identity::of(&recording).expect("it is in memory");
    let options = parquet::TableOptions { filter: all, ids, inlined: false, threads: 1 };
    let table =
        |_: &'static parquet::Table| -> perfx_pipeline::Result<Option<Box<dyn std::io::Write + Send>>> {
            Ok(Some(Box::new(std::io::sink())))
        };
    let _ = parquet::write_tables(&mut recording, &identity, &options, &temp_files(), table, &mut report);
}

/// The first byte selects the byte order and the number of attrs (1 to 3) of 144 bytes each; records follow.
pub(crate) fn records(bytes: &[u8]) {
    let Some((&how, mut rest)) = bytes.split_first() else { return };
    let endian = if how & 1 == 0 { Endian::Little } else { Endian::Big };
    let mut events = Vec::new();
    for number in 0..=u64::from(how >> 1) % 3 {
        let Some((attr, more)) = rest.split_at_checked(144) else { return };
        events.push(Event::new(attr.to_vec(), vec![number * 2 + 1, number * 2 + 2], endian));
        rest = more;
    }
    let layouts = Layouts::new(&events);
    let origins = Origins::input(0, 0);
    let mut walker = Walker::new(rest, &origins, endian);
    while let Ok(Some(record)) = walker.next_record() {
        look_at(&record, &layouts);
        // The new name is found in place of the old one.
        if let Ok(Some(new)) = rename_record(&record, &layouts, |_| Some(b"/new".to_vec())) {
            let new =
                Record::new(&new, record.payload(), record.origin(), endian).expect("it was just written");
            let kept = rename_record(&new, &layouts, |name| {
                assert!(b"/new".starts_with(name.text), "{:?} is left", name.text);
                None
            });
            assert!(matches!(kept, Ok(None)), "{kept:?}");
        }
    }
}

/// The first byte selects the feature, the second the byte order and the number of CPUs; the section follows.
pub(crate) fn features(bytes: &[u8]) {
    let Some((&[feature, how], section)) = bytes.split_first_chunk() else { return };
    let endian = if how & 1 == 0 { Endian::Little } else { Endian::Big };
    let cpus = u32::from(how >> 1);
    let context = FeatureContext { cpus: (cpus > 0).then_some(NrCpus { available: cpus, online: cpus / 2 }) };
    let fields = with_odd(decode_feature(Feature(feature), section, endian, context));
    std::hint::black_box(indented(&fields, 1, Style::default()));
    serde_json::to_string(&Fields::from(&fields)).expect("fields have names");
    if let Some(renamed) = rename_feature(Feature(feature), section, endian, |_| Some(b"/new".to_vec())) {
        let again = rename_feature(Feature(feature), &renamed.section, endian, |name| {
            assert!(!renamed.whole || name.text == b"/new", "{:?} is left", name.text);
            None
        });
        assert!(again.is_some_and(|again| again.section == renamed.section));
    }
    // Readable data can be written, and is the same when read again.
    if let Some(index) = read_auxtrace_index(section, endian) {
        assert_eq!(read_auxtrace_index(&write_auxtrace_index(&index, endian), endian), Some(index));
    }
    if let Some(groups) = read_group_desc(section, endian) {
        let written = write_group_desc(&groups, endian);
        assert_eq!(read_group_desc(&written, endian), Some(groups));
    }
    if let Some(events) = read_event_desc(section, endian)
        && let Some(written) =
            write_event_desc(events.first().map_or(64, |event| event.attr.len() as u32), &events, endian)
    {
        assert_eq!(read_event_desc(&written, endian), Some(events.clone()));
    }
    for entry in Entries::new(section, endian) {
        let mut written = Vec::new();
        if entry.write_section(endian, &mut written).is_some() {
            let again = perfx_format::record::build_id::BuildIdEntry::read(&written, endian)
                .expect("an entry just written");
            assert_eq!((again.pid, again.id, again.filename), (entry.pid, entry.id, entry.filename));
        }
    }
}

/// A list of known build-ids, as an argument and as a file; also parsed as a chain of passes and as the name
/// of a kind.
pub(crate) fn known_ids(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        // A list may name files, and a fuzzer would find /dev/zero.
        if !text.contains("file:") {
            let _ = KnownIds::parse(text);
        }
        let _ = parse_chain(text);
        let _ = RecordType::parse(text);
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let _ = KnownIds::parse(&format!("ab /a,file://{}", file.path().display()));
}

/// An ELF file, or notes alone.
pub(crate) fn elf(bytes: &[u8]) {
    let _ = from_elf(bytes);
    let _ = [Endianness::Little, Endianness::Big].map(|endian| from_notes(bytes, endian));
}

/// A jitdump becomes images, whatever its bytes.
pub(crate) fn jitdump(bytes: &[u8]) {
    let Ok(dump) = Dump::new(bytes) else { return };
    let functions = Functions::of(&dump);
    let target = Target::of(functions.header, None);
    for arena in arenas(&functions.list) {
        let image = Image::new(&functions, &arena, target);
        let file = unnamed(&[]);
        let Ok(written) = image.write(&file, 0) else { continue };
        assert_eq!(file.metadata().unwrap().len(), written.len);
        let moved: u64 = image.functions().iter().map(|(_, function)| function.size).sum();
        // An arena has at most 1 GiB of memory; the rest grows with the dump.
        assert!(written.len <= (1 << 30) + moved + 64 * bytes.len() as u64 + (1 << 16), "{written:?}");
    }
}

/// AUX data of Arm SPE: each packet has a length, and data that is cut between two packets has the same
/// records.
pub(crate) fn spe(bytes: &[u8]) {
    let (mut packets, mut records) = (Packets::new(bytes, 0), Records::default());
    let (mut ends, mut whole) = (vec![0], Vec::new());
    while let Some(packet) = packets.next() {
        assert!(packets.position() > ends[ends.len() - 1] && packets.position() <= bytes.len());
        ends.push(packets.position());
        whole.extend(records.push(packet));
    }
    assert_eq!(packets.position(), bytes.len());
    let (mut again, mut pieces) = (Records::default(), Vec::new());
    for piece in ends.windows(2) {
        let packets = Packets::new(&bytes[piece[0]..piece[1]], piece[0] as u64);
        pieces.extend(packets.take(1).filter_map(|packet| again.push(packet)));
    }
    assert_eq!((pieces, again.bad_bytes, again.broken), (whole, records.bad_bytes, records.broken));
}

/// The code of a trace of arbitrary bytes: its own bytes, at every page, and from time to time other ones.
struct OwnBytes<'a>(&'a [u8]);

impl CodeImage for OwnBytes<'_> {
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>> {
        let turn = time >> 16 & 1;
        let from = self.0.len() / 3 * turn as usize;
        let bytes = &self.0[from..self.0.len().min(from + 4096)];
        let page = Mapping {
            id: ip >> 12 << 1 | turn,
            start: ip & !4095,
            bytes,
            until: (time | 0xffff).saturating_add(1),
        };
        (space.is_some() || ip >> 63 != 0).then_some(page)
    }
}

/// The text of all events, and its amount.
#[derive(Default)]
struct Transcript {
    hash: u64,
    steps: u64,
    others: u64,
}

impl Transcript {
    fn add(&mut self, words: [u64; 4], point: &Point) {
        let point =
            [point.time, point.now, point.offset, point.space.map_or(u64::MAX, |Space(space)| space.into())];
        for word in words.into_iter().chain(point) {
            self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }
}

impl Sink for Transcript {
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        let block = &blocks[step.block];
        assert!(step.count <= block.count && (step.to.is_none() || step.count == block.count));
        assert_eq!(blocks.nth(step.block, 0), (block.count > 0).then_some(block.start));
        let to = step.to.map_or(0, |to| blocks[to].start);
        self.steps += 1;
        self.add([block.start, block.last, u64::from(step.count), to], point);
    }

    fn event(&mut self, blocks: &Blocks, point: &Point, event: TraceEvent) {
        let words = match event {
            TraceEvent::Begin { ip, is_exchange } => [1, ip, is_exchange.into(), 0],
            TraceEvent::Resumed { ip } => [2, ip, 0, 0],
            TraceEvent::Sync { ip, offset, interrupts } => [3, ip.unwrap_or(1), offset, interrupts.into()],
            TraceEvent::Item { group, id, value } => [9, group.into(), id.into(), value],
            TraceEvent::Sampled { ip, is_32_bit } => [10, ip.unwrap_or(1), is_32_bit.into(), 0],
            TraceEvent::End { ip, block, to, exchange } => {
                [4, ip, block.map_or(0, |block| blocks[block].start), to.or(exchange).unwrap_or(1)]
            }
            TraceEvent::Interrupt { from, to, aborts } => [5, from, to, aborts.into()],
            TraceEvent::Ptwrite { ip, exact, value } => [6, ip.unwrap_or(1), exact.into(), value],
            TraceEvent::Fault(fault) => [7, fault.reason as u64, fault.ip.unwrap_or(1), 0],
            _ => [8, 0, 0, 0],
        };
        self.others += 1;
        self.add(words, point);
    }

    fn time(&mut self, now: u64) {
        self.others += 1;
        self.hash = (self.hash ^ now).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
}

/// A trace decodes the same however it is cut, and its output is bounded.
fn however_cut(bytes: &[u8], mut decode: impl FnMut(&Trace<'_>, u64, &mut Transcript)) {
    let switches: Vec<_> = (0..4)
        .map(|at| Switch {
            time: at << 14,
            space: (at != 2).then_some(Space(at as u32)),
            guest: (at % 2 == 1).then_some(Space(4)),
        })
        .collect();
    let said: Vec<Transcript> = [(u64::MAX, usize::MAX), (0, 7), (100, 1)]
        .into_iter()
        .map(|(size, piece)| {
            let mut said = Transcript::default();
            decode(&Trace::new(bytes.chunks(piece).collect(), switches.clone()), size, &mut said);
            said
        })
        .collect();
    for said in &said {
        assert!(said.others <= 4 * bytes.len() as u64, "{} events", said.others);
        assert!(said.steps <= 300 * bytes.len() as u64 + (1 << 13), "{} steps", said.steps);
    }
    assert!(said.iter().all(|other| (other.hash, other.steps) == (said[0].hash, said[0].steps)));
}

/// Units follow each other up to the end of a trace.
fn check_unit(start: u64, end: u64, before: &mut Option<u64>, trace: &Trace<'_>) {
    assert!(start < end && end <= trace.len() && before.is_none_or(|before| before == start));
    *before = Some(end);
}

pub(crate) fn intel_pt(bytes: &[u8]) {
    let config =
        intel_pt::Config { mtc_period: 6, tsc_per_ctc: Some((5, 2)), tsc_ratio: 20, ..Default::default() };
    let code = OwnBytes(bytes);
    let mut warm = intel_pt::Decoder::new(&code, config);
    however_cut(bytes, |trace, size, said| {
        let mut before = None;
        for unit in intel_pt::units(trace, &config, size) {
            check_unit(unit.start, unit.end, &mut before, trace);
            warm.decode(trace, &unit, said);
        }
        assert!(before.is_none_or(|end| end == trace.len()));
    });
}

/// A CoreSight trace, after a byte that selects the trace unit.
pub(crate) fn coresight(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let has = |bit: u8| u64::from(how >> bit & 1);
    let registers = coresight::Registers {
        config: has(0) << 12 | has(1) << 6 | has(2) << 15 | has(2) << 7,
        id0: has(3) << 29,
        id2: 4 << 5 | 4 << 10 | has(4) << 31,
        id8: has(5) * 20,
    };
    let config = coresight::Config::new(&registers, has(6) != 0);
    let code = OwnBytes(bytes);
    let mut warm = coresight::Decoder::new(&code, &config);
    however_cut(bytes, |trace, size, said| {
        let mut before = None;
        for unit in coresight::units(trace, &config, size) {
            check_unit(unit.start, unit.end, &mut before, trace);
            warm.decode(&config, trace, &unit, said);
        }
        assert!(before.is_none_or(|end| end == trace.len()));
    });
    let streams = coresight::deformat(bytes);
    assert!(streams.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= bytes.len());
}

/// Branch lists of simpleperf: no more of them than bytes.
pub(crate) fn branch_list(bytes: &[u8]) {
    for message in messages(bytes).unwrap_or_default() {
        let binaries = binaries(&message).map(|(binaries, _)| binaries).unwrap_or_default();
        let lists: Vec<_> = binaries.iter().flat_map(|binary| &binary.lists).collect();
        assert!(binaries.len() + lists.len() <= message.len());
        assert!(lists.iter().map(|list| list.taken().count()).sum::<usize>() <= 8 * message.len());
    }
}

/// A symbol: its name is text of a bounded length, and the same in a second request.
pub(crate) fn symbol_name(bytes: &[u8]) {
    let mut names = ShownNames::default();
    let name = names.of(bytes);
    // Each damaged byte is three in UTF-8.
    assert!(name.len() <= (1 << 16).max(3 * bytes.len()));
    assert_eq!(name, names.of(bytes));
}

/// Inputs for [`PARTS`] from a recording.
pub(crate) fn parts_of(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut parts = Vec::new();
    let Some(summary) = summary(bytes) else { return parts };
    let big = u8::from(open(bytes).is_ok_and(|recording| recording.endian == Endian::Big));
    for (feature, section) in &summary.features {
        parts.push(("features", [&[feature.0, 4 | big][..], section].concat()));
    }
    let attrs: Vec<u8> = summary
        .events
        .iter()
        .take(3)
        .flat_map(|event| {
            let mut attr = event.raw().to_vec();
            attr.resize(144, 0);
            attr
        })
        .collect();
    let how = big | (summary.events.len().clamp(1, 3) as u8 - 1) << 1;
    parts.push(("records", [&[how][..], &attrs, &summary.data].concat()));
    if let Ok(mut recording) = open(bytes) {
        let _ = walk(&mut recording, false, |record, _| {
            if record.kind() == RecordType::AUXTRACE && parts.len() < 40 {
                parts.push(("spe", record.payload().to_vec()));
                parts.push(("intel_pt", record.payload().to_vec()));
                for (number, (_, stream)) in coresight::deformat(record.payload()).iter().enumerate() {
                    parts.push(("coresight", [&[(number as u8).wrapping_mul(37)][..], stream].concat()));
                }
            }
        });
    }
    let stream = &summary.data[..summary.data.len().min(8000)];
    parts.push(("expand", [&[1 | big << 1 | 4, 1, 2][..], stream].concat()));
    parts.push(("expand", [&[big << 1, 3, 4][..], &zstd::encode_all(stream, 3).unwrap()].concat()));
    parts
}

/// Inputs for [`PARTS`] that are not in any recording.
pub(crate) fn other_parts() -> Vec<(&'static str, Vec<u8>)> {
    let lists = [
        "b000000000000000000000000000000000000001 /tmp/perfx-data/work/burn,ab [kernel.kallsyms]",
        "# ids\n\nAB /a,b\r\n  cd /odd name\nab /a,b\n12 /no line end",
        "mmap2-build-ids:hit:root=/a\\,b,build-ids:all:known=ab /a\\,cd /b",
    ];
    let mut parts: Vec<_> = lists.iter().map(|list| ("known_ids", list.as_bytes().to_vec())).collect();
    for class in [1, 2] {
        for order in [1, 2] {
            parts.push(("elf", elf_with_id(class, order, &[0xb0, 0, 0, 0, 0, 0, 0, 4])));
        }
    }
    let symbols = [
        "_ZNSt8functionIFvRN4llvm16MachineIRBuilderEEEC2IZNS0_1AclEvEUlT_E_EEOS5_.isra.0",
        "_Z1fIJifEEDTcl1gspclsr3stdE3fooIT_Efp_EEEDpT_",
        "_ZN1AcvT_I1BIiEEEv@plt",
        "_RNvMC0TThB4_h3foo",
        "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE",
    ];
    parts.extend(symbols.iter().map(|symbol| ("symbol_name", symbol.as_bytes().to_vec())));
    let list = promises::data().join("trace/etm-android.branches");
    parts.push(("branch_list", fs::read(list).unwrap()));
    let is_dump = |path: &PathBuf| path.extension().is_some_and(|end| end == "dump");
    let mut dumps: Vec<_> =
        fs::read_dir(promises::data().join("jit")).unwrap().map(|file| file.unwrap().path()).collect();
    dumps.retain(is_dump);
    dumps.sort();
    parts.extend(dumps.iter().map(|dump| ("jitdump", fs::read(dump).unwrap())));
    parts
}

/// The smallest ELF file with a build-id: a header, a note segment, the note. `class` 1: 32 bits, 2: 64;
/// `order` 1: little endian, 2: big.
pub(crate) fn elf_with_id(class: u8, order: u8, id: &[u8]) -> Vec<u8> {
    let endian = if order == 1 { Endian::Little } else { Endian::Big };
    let (header, segment) = if class == 1 { (52, 32) } else { (64, 56) };
    let note_at = header + segment;
    let note_len = 16 + id.len();
    let mut file = vec![0; note_at];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order, 1]);
    let word = |file: &mut Vec<u8>, at32: usize, at64: usize, value: usize| {
        if class == 1 {
            endian.set_u32(file, at32, value as u32)
        } else {
            endian.set_u64(file, at64, value as u64)
        }
    };
    // e_type EXEC, e_machine x86-64, e_version, e_phoff, e_ehsize, e_phentsize, e_phnum.
    endian.set_u16(&mut file, 16, 2);
    endian.set_u16(&mut file, 18, 62);
    endian.set_u32(&mut file, 20, 1);
    word(&mut file, 28, 32, header);
    let sizes = if class == 1 { 40 } else { 52 };
    for (at, value) in [(sizes, header), (sizes + 2, segment), (sizes + 4, 1)] {
        endian.set_u16(&mut file, at, value as u16);
    }
    // p_type NOTE, p_offset, p_filesz.
    endian.set_u32(&mut file, header, 4);
    word(&mut file, header + 4, header + 8, note_at);
    word(&mut file, header + 16, header + 32, note_len);
    for value in [4, id.len() as u32, 3] {
        file.extend(endian.bytes_u32(value));
    }
    file.extend(b"GNU\0");
    file.extend(id);
    file
}

#[cfg(test)]
mod smoke {
    use super::*;
    use crate::support::{Fixture, Tier, all, each, each_fixture, times};
    use crate::tiers;

    /// Larger recordings contain more of the same.
    const LARGEST: usize = 32 << 10;

    /// Recordings that are files or contain one.
    fn readable(tier: Tier) -> Vec<Fixture> {
        tier.of(all())
            .into_iter()
            .filter(|fixture| fixture.path.is_file() || fixture.path.join("data").is_file())
            .collect()
    }

    fn small(tier: Tier) -> Vec<Fixture> {
        readable(tier).into_iter().filter(|fixture| fixture.bytes().len() <= LARGEST).collect()
    }

    /// The next pseudo-random number, the same in every run.
    fn next(seed: &mut u64) -> usize {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 33) as usize
    }

    /// Damaged as by a disk, a network or an attacker: numbers set to extremes, ranges removed, repeated or
    /// overwritten.
    fn changed(bytes: &[u8], seed: &mut u64) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=next(seed) % 3 {
            if bytes.is_empty() {
                break;
            }
            let at = next(seed) % bytes.len();
            // The front locates everything else, so it gets more changes.
            let at = if next(seed).is_multiple_of(2) { at % 300 % bytes.len() } else { at };
            let len = (1 + next(seed) % 32).min(bytes.len() - at);
            let extreme = [0, 1, 7, 8, 0x7f, 0xff][next(seed) % 6];
            match next(seed) % 6 {
                0 => bytes[at] ^= 1 << (next(seed) % 8),
                1 => bytes[at] = extreme,
                2 => bytes[at..at + len.min(8)].fill(extreme),
                3 => drop(bytes.drain(at..at + len)),
                4 => {
                    let run = bytes[at..at + len].to_vec();
                    bytes.splice(at..at, run);
                }
                _ => {
                    let from = next(seed) % (bytes.len() - len + 1);
                    bytes.copy_within(from..from + len, at);
                }
            }
        }
        bytes
    }

    /// The bodies whose input is a whole recording.
    fn recordings() -> Vec<(String, Run)> {
        let mut bodies = super::all();
        bodies.retain(|(name, _)| PARTS.iter().all(|(part, _)| part != name));
        bodies
    }

    tiers!(every_recording_as_it_is);
    fn every_recording_as_it_is(tier: Tier) {
        // every_pass.rs runs the bodies of passes on all recordings.
        each_fixture(&readable(tier), |fixture| {
            let bytes = fixture.bytes();
            RECORDINGS.iter().for_each(|(_, body)| body(&bytes));
            Ok(())
        });
    }

    tiers!(every_recording_cut_short);
    fn every_recording_cut_short(tier: Tier) {
        let bodies = recordings();
        each_fixture(&small(tier), |fixture| {
            let bytes = fixture.bytes();
            // At every boundary of the header, and at some places after it.
            let behind = (1..8).map(|part| 104 + bytes.len().saturating_sub(104) * part / 8 + part % 3);
            for end in [0, 7, 8, 15, 16, 17, 71, 72, 103, 104].into_iter().chain(behind) {
                let cut = &bytes[..end.min(bytes.len())];
                file(cut);
                pipe(cut);
                recover(cut);
                bodies[end % bodies.len()].1(cut);
            }
            Ok(())
        });
    }

    tiers!(every_recording_changed);
    fn every_recording_changed(tier: Tier) {
        let bodies = recordings();
        each_fixture(&small(tier), |fixture| {
            let bytes = fixture.bytes();
            // In a quick run, each recording goes to another third of the bodies.
            let every = tier.pick(3, 1);
            for (name, body) in bodies.iter().skip(fixture.name.len() % every).step_by(every) {
                // The name of the body, too, so that a new body does not change the inputs of others.
                let names = fixture.name.bytes().chain(name.bytes());
                let mut seed = names.fold(0, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
                (0..times()).for_each(|_| body(&changed(&bytes, &mut seed)));
            }
            Ok(())
        });
    }

    tiers!(every_part_as_it_is_and_changed);
    fn every_part_as_it_is_and_changed(tier: Tier) {
        let mut parts = other_parts();
        parts.extend(small(tier).iter().flat_map(|fixture| parts_of(&fixture.bytes())));
        for &(name, body) in PARTS {
            let inputs: Vec<_> =
                parts.iter().filter(|(part, _)| *part == name).map(|(_, input)| input).collect();
            each(
                &inputs.iter().enumerate().collect::<Vec<_>>(),
                |(number, _)| format!("{name} {number}"),
                |(number, input)| {
                    let mut seed = *number as u64;
                    body(input);
                    let times = tier.pick(1, 4);
                    (0..times).for_each(|_| body(&changed(input, &mut seed)));
                    (0..times).for_each(|_| body(&input[..next(&mut seed) % (input.len() + 1)]));
                    Ok(())
                },
            );
        }
    }

    #[test]
    fn what_fuzzing_found_interesting() {
        let corpus = crate::support::root().join("tests/fuzz/corpus");
        let mut inputs = Vec::new();
        let bodies = super::all();
        for (name, body) in &bodies {
            // git keeps no empty folders, so a body may have no corpus.
            let entries = std::fs::read_dir(corpus.join(name)).into_iter().flatten();
            inputs.extend(entries.map(|entry| (entry.unwrap().path(), body)));
        }
        inputs.sort_by(|a, b| a.0.cmp(&b.0));
        each(
            &inputs,
            |(path, _)| path.display().to_string(),
            |(path, body)| {
                body(&std::fs::read(path).unwrap());
                Ok(())
            },
        );
    }
}
