//! `perfx stats` counts what `perf report --stats` of 6.1 and 7.3 counts, on every recording that perf reads;
//! [`expected`] describes where the two perfs differ.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use crate::kept::{Answers, answers};
use crate::schema::differences;
use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Form, Ran, Stdin, Tier, all, each_fixture, perfx, perfx_command, perfx_with, root, run, sound,
    temp,
};
use crate::{args, tiers};

/// Fails unless the document matches the project's schema.
pub(crate) fn conforms(command: &str, document: &Json) -> Result<(), String> {
    // Reading a schema takes longer than checking most documents.
    static SCHEMAS: Mutex<BTreeMap<String, Arc<Json>>> = Mutex::new(BTreeMap::new());
    let read = || {
        let path = root().join(format!("schemas/{command}.schema.json"));
        Arc::new(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    };
    let schema = SCHEMAS.lock().unwrap().entry(command.to_owned()).or_insert_with(read).clone();
    let wrong = differences(&schema, document);
    let shown = || document.to_string().chars().take(400).collect::<String>();
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} in {}", wrong.join("\n"), shown())) }
}

/// A command's JSON for a recording; `None` if it cannot be read.
pub(crate) fn json_of(command: &str, fixture: &Fixture) -> Result<Option<Json>, String> {
    let ran = perfx(args![command, "-q", "--json", fixture.path]);
    match ran.code {
        Some(0 | 3) => serde_json::from_slice(&ran.stdout).map(Some).map_err(|e| e.to_string()),
        Some(1) if ran.stdout.is_empty() && ran.stderr.starts_with("perfx: ") => Ok(None),
        _ => Err(format!("{:?}: {}", ran.code, ran.stderr)),
    }
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Json) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{value} is no number"))
}

type Counts = BTreeMap<String, u64>;

/// The numbers of `perf report --stats`: counts by kind, and for each event with samples its name and counts.
#[derive(PartialEq, Debug)]
struct Printed {
    kinds: Counts,
    events: Vec<(String, Counts)>,
}

impl Printed {
    fn parse(text: &str) -> Printed {
        let mut printed = Printed { kinds: Counts::new(), events: Vec::new() };
        for line in text.lines() {
            if let Some(name) = line.strip_suffix(" stats:").filter(|name| *name != "Aggregated") {
                printed.events.push((name.to_owned(), Counts::new()));
            } else if let Some((kind, count)) = line.split_once(" events: ") {
                let count = count.split_whitespace().next().unwrap().parse().unwrap();
                let counts = printed.events.last_mut().map_or(&mut printed.kinds, |(_, counts)| counts);
                counts.insert(kind.trim().to_owned(), count);
            }
        }
        printed
    }
}

/// The perfs whose numbers are compared.
const OLD: &str = "perf";
const NEW: &str = "perf-new";

/// The output of this perf for a recording with these counts of perfx. The exceptions:
///
/// - perf 7.3 leaves out unknown kinds, from 87 on, and records too small for their kind. (Both abort at
///   unknown kinds below 64.)
/// - perf counts a final AUXTRACE whose payload is truncated.
/// - If samples hold counters (READ), perf delivers one sample for each counter with a new value, instead of
///   the sample itself. perf 7 distinguishes threads if the event is inherited.
/// - perf 6.1 adds filtered samples to the lost ones.
/// - An event without samples and without lost samples is not printed.
fn expected(stats: &Json, attrs: &[Attr], perf: &str) -> Printed {
    let mut kinds = Counts::new();
    let mut total = 0;
    let mut add = |kind: &str, records: u64| {
        total += records;
        *kinds.entry(kind.trim_start_matches("HEADER_").to_owned()).or_default() += records;
    };
    for kind in list(&stats["kinds"]) {
        let left_out = match number(&kind["type"]) {
            _ if perf == OLD => 0,
            0..87 => number(&kind["too_small"]),
            _ => number(&kind["records"]),
        };
        add(kind["kind"].as_str().unwrap(), number(&kind["records"]) - left_out);
    }
    for fragment in list(&stats["torn"]) {
        add("AUXTRACE", u64::from(fragment["kind"] == "AUXTRACE"));
    }
    kinds.retain(|_, records| *records > 0);
    kinds.insert("TOTAL".to_owned(), total);
    let mut events = Vec::new();
    for (event, attr) in list(&stats["events"]).iter().zip(attrs) {
        let new_values = &event["new_values"];
        let samples = match attr {
            Attr { reads: false, .. } => &event["samples"],
            Attr { by_thread: true, .. } if perf == NEW => &new_values["by_thread"],
            _ => &new_values["by_id"],
        };
        let (lost, filtered) = (number(&event["lost_samples"]), number(&event["filtered_samples"]));
        let lost = if perf == NEW { [lost, filtered] } else { [lost + filtered, 0] };
        let rows = [("SAMPLE", number(samples)), ("LOST_SAMPLES", lost[0]), ("LOST_SAMPLES (BPF)", lost[1])];
        let counts: Counts = rows
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        if !counts.is_empty() {
            events.push((event["name"].as_str().unwrap_or("?").to_owned(), counts));
        }
    }
    Printed { kinds, events }
}

/// The properties of an event's attr that perf's counts depend on.
struct Attr {
    /// `sample_type` has READ.
    reads: bool,
    /// ... and TID, and the event is inherited.
    by_thread: bool,
}

/// The attrs, and true if feature EVENT_DESC names the events.
fn attrs(fixture: &Fixture) -> (Vec<Attr>, bool) {
    let dump = perfx(args!["dump", "-q", "--stored", "--format", "ndjson", fixture.path]).text();
    let (mut attrs, mut named) = (Vec::new(), false);
    for line in dump.lines() {
        let part: Json = serde_json::from_str(line).unwrap();
        // In pipe data an event may come late.
        let attr = match (part["what"].as_str(), part["kind"].as_str()) {
            (Some("event"), _) => &part["fields"],
            (Some("record"), Some("HEADER_ATTR")) if fixture.form == Form::Pipe => &part["fields"]["attr"],
            _ => {
                named |= part["what"] == "feature" && part["which"] == "EVENT_DESC (12)";
                continue;
            }
        };
        let has = |field: &str, bit: &str| {
            attr[field].as_str().is_some_and(|bits| bits.split('|').any(|b| b == bit))
        };
        let reads = has("sample_type", "READ");
        attrs.push(Attr { reads, by_thread: reads && has("sample_type", "TID") && has("flags", "inherit") });
    }
    (attrs, named)
}

/// True if perf has read everything; it also exits with 0 if it has not.
fn has_read(fixture: &Fixture, stats: &Json, code: Option<i32>, stderr: &str) -> bool {
    let gives_up = [
        "Error:", "failed to process", "processing failed", "bad event header", "Couldn't decompress",
        "data size field is 0",
    ];
    let gave_up = gives_up.iter().any(|words| stderr.contains(words));
    // `report --stats` does not skip the payload of HEADER_TRACING_DATA, and reads it as records.
    let kinds = || list(&stats["kinds"]).iter();
    let lost_its_way =
        fixture.form == Form::Pipe && kinds().any(|kind| kind["kind"] == "HEADER_TRACING_DATA");
    code == Some(0) && !gave_up && !lost_its_way
}

fn ask(perf: &Answers, fixture: &Fixture) -> Result<Ran, String> {
    let words = ["report", "--stats", "-f", "-i", "-"];
    perf.ask(fixture, if fixture.form == Form::Pipe { &words } else { &words[..4] })
}

/// Damaged recordings that a perf counts without any rule, or that perfx refuses: which perf, or both; the
/// recording; the reason.
const EXCEPTIONS: &[(&[&str], &str, &str)] = &[
    (
        &[OLD, NEW],
        "crafted/val-small-66.data",
        "perf takes the payload of HEADER_TRACING_DATA in a file for records",
    ),
    (&[OLD, NEW], "crafted/val-tracing-data-beyond.data", "the same"),
    (&[NEW], "crafted/z-datasize-small-le.data", "perf believes a data_size that cuts the zstd stream short"),
    (&[OLD, NEW], "crafted/z-nested-le.data", "perf opens compressed records in compressed ones"),
    (&[NEW], "crafted/val-small-72.data", "perf wants one byte of the message in an AUXTRACE_ERROR, too"),
    (
        &[NEW],
        "crafted/val-small-65.data",
        "perf wants all 80 bytes of a HEADER_EVENT_TYPE, however short the name",
    ),
    (&[NEW], "crafted/pipe-3-0.data", "the same"),
    (&[OLD, NEW], "crafted/z-feature-inside-le.data", "perf skips a HEADER_FEATURE in a compressed record"),
    (&[OLD], "crafted/val-small-13.data", "perf reads what was lost behind the end of the record"),
    (&[OLD], "crafted/val-data-overflow.data", "perf does not come back"),
    (&[OLD], "crafted/val-data-size-odd.data", "perf does not come back"),
    (&[OLD], "crafted/val-ids-overflow.data", "perf does without ids that are not in the file"),
    (&[OLD], "crafted/val-ids-unaligned.data", "perf does without half an id"),
    (&[OLD], "crafted/z-mmap-len-small-le.data", "perf drops what exceeds mmap_len"),
    (&[OLD], "crafted/z-padded-81-le.data", "perf shows what came before the padding"),
    (
        &[OLD],
        "recorded/cut-05687.p61.data",
        "perf takes the byte behind the end of the file for the last of a record",
    ),
];

fn perf_counts_the_same(tier: Tier, name: &'static str, at_least: usize) {
    let Some(perf) = answers(name, tier) else { return };
    let compared = AtomicUsize::new(0);
    each_fixture(&tier.of(all()), |fixture| {
        let is_this =
            |(perfs, file, _): &&(&[&str], &str, &str)| perfs.contains(&name) && *file == fixture.name;
        if EXCEPTIONS.iter().any(|exception| is_this(&exception)) {
            return Ok(());
        }
        let ran = ask(&perf, fixture)?;
        let Some(stats) = json_of("stats", fixture)? else {
            return match has_read(fixture, &Json::Null, ran.code, &ran.stderr) {
                true => Err("perf reads it".to_owned()),
                false => Ok(()),
            };
        };
        if !has_read(fixture, &stats, ran.code, &ran.stderr) {
            return Ok(());
        }
        let (attrs, named) = attrs(fixture);
        let mut printed = Printed::parse(&ran.text());
        let mut expected = expected(&stats, &attrs, name);
        // If the recording has no names, each perf derives its own, and 6.1 does so for all pipe data.
        // Crafted recordings have damaged names, and attrs that some perf does not trust.
        let named = named && fixture.form != Form::Pipe && fixture.name.starts_with("recorded/");
        if !named {
            for (name, _) in printed.events.iter_mut().chain(&mut expected.events) {
                name.clear();
            }
        }
        // perf prints nothing for an empty recording.
        if expected.kinds["TOTAL"] == 0 {
            printed.kinds.entry("TOTAL".to_owned()).or_default();
        }
        compared.fetch_add(1, Ordering::Relaxed);
        if printed == expected { Ok(()) } else { Err(format!("perf: {printed:?}\nperfx: {expected:?}")) }
    });
    let compared = compared.into_inner();
    assert!(compared >= tier.pick(at_least / 20, at_least), "{name} reads {compared} recordings only");
}

tiers!(perf_6_1_counts_the_same);
fn perf_6_1_counts_the_same(tier: Tier) {
    perf_counts_the_same(tier, OLD, 300);
}

tiers!(perf_7_3_counts_the_same);
fn perf_7_3_counts_the_same(tier: Tier) {
    perf_counts_the_same(tier, NEW, 300);
}

tiers!(json_is_as_its_schema_says_and_the_same_on_any_number_of_threads);
fn json_is_as_its_schema_says_and_the_same_on_any_number_of_threads(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        let Some(stats) = json_of("stats", fixture)? else { return Ok(()) };
        conforms("stats", &stats)?;
        let alone = perfx(args!["stats", "-q", "--format", "ndjson", "-@1", fixture.path]);
        let many = perfx(args!["stats", "-q", "--format", "ndjson", "-@4", fixture.path]);
        if alone.stdout != many.stdout || alone.text() != format!("{stats}\n") {
            return Err(format!("{} {}", alone.text(), many.text()));
        }
        Ok(())
    });
}

#[test]
fn many_batches_are_counted_as_one() {
    for name in ["recorded/group-read.p61.data", "recorded/lost.p61.data", "crafted/aux-le.data"] {
        let fixture = Fixture::new(name);
        let folder = temp();
        let path = folder.path().join("large.data");
        let large = fixture.repeated(20 << 20);
        std::fs::write(&path, &large).unwrap();
        let one = json_of("stats", &fixture).unwrap().unwrap();
        let many = json_of("stats", &Fixture { path, ..fixture.clone() }).unwrap().unwrap();
        let times = number(&many["records"]) / number(&one["records"]);
        assert!(times > 1 && number(&many["records"]) == times * number(&one["records"]), "{name}");
        for (kind, of_many) in list(&one["kinds"]).iter().zip(list(&many["kinds"])) {
            assert_eq!(
                number(&kind["records"]) * times,
                number(&of_many["records"]),
                "{name} {}",
                kind["kind"]
            );
            assert_eq!(number(&kind["bytes"]) * times, number(&of_many["bytes"]), "{name} {}", kind["kind"]);
            assert_eq!(kind["largest_bytes"], of_many["largest_bytes"], "{name} {}", kind["kind"]);
        }
        for (event, of_many) in list(&one["events"]).iter().zip(list(&many["events"])) {
            for field in ["samples", "lost_samples", "period"] {
                assert_eq!(number(&event[field]) * times, number(&of_many[field]), "{name} {field}");
            }
        }
        assert_eq!((&one["time"], &one["largest"]), (&many["time"], &many["largest"]), "{name}");
    }
}

/// Options that select samples.
const SELECTIONS: [&[&str]; 6] = [
    &["--time", "20%-60%"],
    &["--time", "+1ms,", "--cpu", "0"],
    &["--exclude-comm", "a.*"],
    &["--event", ".*clock.*"],
    &["--exclude-dso", ".*lib.*"],
    &["--pid", "101"],
];

/// A file does not have the header records of pipe data.
fn without_headers(stats: &Json) -> (Vec<Json>, [Json; 6]) {
    let is_header = |kind: &&Json| kind["kind"].as_str().is_some_and(|name| name.starts_with("HEADER_"));
    let kinds = list(&stats["kinds"]).iter().filter(|kind| !is_header(kind)).cloned().collect();
    let facts = ["events", "of_unknown_events", "lost", "aux", "compressed", "time"];
    (kinds, facts.map(|fact| stats[fact].clone()))
}

tiers!(of_selected_samples_it_counts_what_filter_keeps);
fn of_selected_samples_it_counts_what_filter_keeps(tier: Tier) {
    let compared = AtomicUsize::new(0);
    each_fixture(&tier.of(sound()), |fixture| {
        let number = fixture.name.bytes().fold(0, |sum, byte| sum + usize::from(byte));
        for selection in [SELECTIONS[0], SELECTIONS[1 + number % 5]] {
            let folder = temp();
            let kept = folder.path().join("kept.data");
            let with = |args: &[OsString]| {
                let selection = selection.iter().map(OsString::from);
                perfx(args.iter().cloned().chain(selection).chain([fixture.path.clone().into()]))
            };
            let filtered = with(&args!["filter", "-q", "-o", kept]);
            if !matches!(filtered.code, Some(0 | 3)) {
                continue;
            }
            let ran = with(&args!["stats", "-q", "--json"]);
            let counted: Json = serde_json::from_slice(&ran.stdout).map_err(|_| ran.stderr.clone())?;
            conforms("stats", &counted)?;
            let kept = Fixture { path: kept, ..fixture.clone() };
            let mut expected = json_of("stats", &kept)?.ok_or("stats cannot read what filter wrote")?;
            // Packets are counted of whole recordings only.
            expected["aux"]["packets"] = Json::Null;
            if without_headers(&counted) != without_headers(&expected) {
                return Err(format!("{selection:?}: {counted}\nof what filter keeps: {expected}"));
            }
            compared.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    let compared = compared.into_inner();
    assert!(compared > tier.pick(40, 800), "{compared}");
}

#[test]
fn the_same_is_read_from_a_pipe() {
    for name in ["recorded/pipe.p73.data", "recorded/pipe-z.p61.data", "recorded/pipe-cut.p61.data"] {
        let fixture = Fixture::new(name);
        let file = perfx(args!["stats", "-q", fixture.path]);
        let pipe = perfx_with(Stdin::Pipe(&fixture.bytes()), args!["stats", "-q"]);
        assert_eq!((file.code, file.text()), (pipe.code, pipe.text()), "{name}");
    }
}

#[test]
fn what_is_printed() {
    let place = Place::new(&[
        ("perf.data", "recorded/lost.p61.data"),
        ("z.data", "recorded/threads-z.p73.data"),
        ("aux.data", "crafted/aux-le.data"),
        ("group.data", "recorded/group-read.p73.data"),
        ("filter.data", "crafted/kinds-to-21-be.data"),
        ("empty.data", "crafted/val-attrs-none.data"),
        ("cut.data", "recorded/cut-05687.p61.data"),
        ("killed.data", "recorded/killed.p61.data"),
        ("bad.data", "crafted/val-size-4.data"),
        ("text.data", "crafted/val-text.data"),
        ("pipe.data", "recorded/pipe-named.p73.data"),
    ]);
    let lines = [
        "stats", "stats z.data", "stats aux.data", "stats group.data", "stats filter.data",
        "stats < pipe.data",
    ];
    same("stats", "text", &place.say_all(&lines));
    same("stats", "json", &place.say("stats --json group.data"));
    same("stats", "ndjson", &place.say("stats --format ndjson cut.data"));
    let lines = [
        "stats --time 20%-60%",
        "stats --time 20%-60% --event .*enter --format ndjson",
        "stats --time 1,2",
        "stats --pid 7 < pipe.data",
        "stats --time 1,2 empty.data",
        "stats --time 50% cut.data",
    ];
    same("stats", "selected", &place.say_all(&lines));
    let lines = [
        "stats empty.data",
        "stats cut.data",
        "stats -q killed.data",
        "stats bad.data",
        "stats text.data",
        "stats missing.data",
        "stats --format xml",
        "stats --json --format text",
    ];
    same("stats", "errors", &place.say_all(&lines));
}

#[test]
fn the_program_ends_for_any_bytes() {
    let folder = temp();
    let fixtures = [
        "recorded/several.p61.data",
        "recorded/pipe-z.p61.data",
        "crafted/aux-le.data",
        "recorded/group-read.p73.data",
    ];
    for (case, name) in fixtures.into_iter().enumerate() {
        let bytes = Fixture::new(name).bytes();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ case as u64;
        for round in 0..12 {
            let mut changed = bytes.clone();
            for _ in 0..round {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (seed >> 33) as usize % changed.len();
                changed[at] = (seed >> 16) as u8;
            }
            changed.truncate(if round % 3 == 0 { bytes.len() * (round + 1) / 13 } else { bytes.len() });
            let path = folder.path().join("changed.data");
            std::fs::write(&path, &changed).unwrap();
            for command in ["stats", "du"] {
                let ran = perfx(args![command, path]);
                assert!(matches!(ran.code, Some(0 | 1 | 3)), "{name} {round}: {:?} {}", ran.code, ran.stderr);
            }
            let ran = perfx(args!["diff", path, Fixture::new(name).path]);
            assert!(matches!(ran.code, Some(0 | 1 | 3)), "{name} {round}: {:?} {}", ran.code, ran.stderr);
        }
    }
    let ran = run(perfx_command().args(["stats", "/dev/null"]), Stdin::Null);
    assert_eq!((ran.code, ran.text().as_str()), (Some(1), ""));
}

#[test]
fn several_recordings_are_counted_each_by_itself() {
    let folder = crate::support::temp();
    let bad = folder.path().join("bad.data");
    std::fs::write(&bad, "not a recording").unwrap();
    let inputs = ["forks.p61", "pipe.p61"].map(|name| Fixture::new(&format!("recorded/{name}.data")));
    let [a, b] = inputs.each_ref().map(|input| &input.path);
    let expected = inputs.each_ref().map(|input| {
        let mut counts = json_of("stats", input).unwrap().unwrap();
        counts["file"] = input.path.to_str().unwrap().into();
        counts
    });
    let ran = perfx(args!["stats", "-q", "--json", a, bad, b]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("1 of 3 recordings failed and are not counted"), "{}", ran.stderr);
    let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
    conforms("stats", &document).unwrap();
    let ran = perfx(args!["stats", "-q", "--format", "ndjson", a, b]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = ran.text();
    let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| conforms("stats", line).unwrap());
    let without = |found: &Json| {
        let mut found = found.clone();
        found.as_object_mut().unwrap().retain(|name, _| name != "what" && name != "schema");
        found
    };
    assert!(lines.iter().map(without).eq(expected.iter().map(without)), "{lines:?}");
    assert!(list(&document["files"]).iter().map(without).eq(expected.iter().map(without)), "{document}");
    let text = perfx(args!["stats", "-q", a, b]).text();
    let alone =
        [a, b].map(|input| format!("{}:\n{}\n", input.display(), perfx(args!["stats", "-q", input]).text()));
    assert_eq!(text, alone.concat());
}
