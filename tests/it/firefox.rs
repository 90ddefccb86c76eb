//! `perfx export firefox`: its tables are sound, and its samples are those of folded lines, for every
//! recording.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use perfx_format::RecordType;
use serde_json::Value as Json;

use crate::folded::weights_by;
use crate::snapshots::same;
use crate::support::{Fixture, Ran, Tier, each_export, perfx, rewritten, temp, workloads};
use crate::{args, support, tiers};

fn export(input: &Path, more: &[&str]) -> Ran {
    support::export("firefox", &[input], more)
}

pub(crate) fn profile(bytes: &[u8]) -> Json {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    serde_json::from_slice(&plain).unwrap()
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The tables of version 62 (src/types/profile.ts of the profiler), with the table to which each column
/// refers.
const COLUMNS: &[(&str, &[(&str, &str)])] = &[
    (
        "frameTable",
        &[
            ("address", ""),
            ("category", "categories"),
            ("column", ""),
            ("func", "funcTable"),
            ("inlineDepth", ""),
            ("innerWindowID", ""),
            ("line", ""),
            ("nativeSymbol", "nativeSymbols"),
            ("subcategory", ""),
        ],
    ),
    (
        "funcTable",
        &[
            ("columnNumber", ""),
            ("isJS", ""),
            ("lineNumber", ""),
            ("name", "stringArray"),
            ("relevantForJS", ""),
            ("resource", "resourceTable"),
            ("source", "sources"),
        ],
    ),
    (
        "nativeSymbols",
        &[("address", ""), ("functionSize", ""), ("libIndex", "libs"), ("name", "stringArray")],
    ),
    ("resourceTable", &[("host", ""), ("lib", "libs"), ("name", "stringArray"), ("type", "")]),
    (
        "sources",
        &[
            ("filename", "stringArray"),
            ("id", ""),
            ("sourceMapURL", ""),
            ("startColumn", ""),
            ("startLine", ""),
        ],
    ),
    ("stackTable", &[("frame", "frameTable"), ("prefix", "stackTable")]),
];

const SAMPLES: &[(&str, &str)] = &[("stack", "stackTable"), ("timeDeltas", ""), ("weight", "")];

/// The column that some threads have.
const CPU: (&str, &str) = ("threadCPUDelta", "");

const MARKERS: &[(&str, &str)] = &[
    ("category", "categories"),
    ("data", ""),
    ("endTime", ""),
    ("name", "stringArray"),
    ("phase", ""),
    ("startTime", ""),
];

/// Checks the columns of a table: those of the format, of equal length, with valid indexes into other tables.
fn check_table(profile: &Json, name: &str, table: &Json, columns: &[(&str, &str)]) -> Result<(), String> {
    let length = table["length"].as_u64().ok_or(format!("{name} has no length"))? as usize;
    let size = |table: &str| match table {
        "stringArray" => list(&profile["shared"]["stringArray"]).len() as u64,
        "libs" => list(&profile["libs"]).len() as u64,
        "categories" => list(&profile["meta"]["categories"]).len() as u64,
        table => profile["shared"][table]["length"].as_u64().unwrap(),
    };
    let mut known: Vec<&str> =
        columns.iter().map(|&(column, _)| column).chain(["length", "weightType"]).collect();
    known.sort_unstable();
    for key in table.as_object().unwrap().keys() {
        known.binary_search(&key.as_str()).map_err(|_| format!("{name} has {key}"))?;
    }
    for &(column, other) in columns {
        let values = list(&table[column]);
        if values.len() != length {
            return Err(format!("{name}.{column} has {} of {length} values", values.len()));
        }
        for (at, value) in values.iter().enumerate().filter(|_| !other.is_empty()) {
            let none = value.is_null() || value.as_i64() == Some(-1);
            let end = if column == "prefix" { at as u64 } else { size(other) };
            if !none && value.as_u64().is_none_or(|index| index >= end) {
                return Err(format!("{name}.{column}[{at}] is {value}, of {end}"));
            }
        }
    }
    Ok(())
}

fn check(profile: &Json) -> Result<(), String> {
    for (name, columns) in COLUMNS {
        check_table(profile, name, &profile["shared"][name], columns)?;
    }
    for thread in list(&profile["threads"]) {
        let has_cpu = !thread["samples"][CPU.0].is_null();
        let columns: Vec<_> = SAMPLES.iter().copied().chain(has_cpu.then_some(CPU)).collect();
        check_table(profile, "samples", &thread["samples"], &columns)?;
        check_table(profile, "markers", &thread["markers"], MARKERS)?;
        let first = list(&thread["samples"]["timeDeltas"]).iter().find(|delta| delta.as_f64().unwrap() < 0.0);
        first.map_or(Ok(()), |delta| Err(format!("time goes back by {delta}")))?;
    }
    for counter in list(&profile["counters"]) {
        check_table(profile, "counter", &counter["samples"], &[("count", ""), ("timeDeltas", "")])?;
        let thread = counter["mainThreadIndex"].as_u64().unwrap() as usize;
        if list(&profile["threads"]).get(thread).is_none_or(|thread| thread["pid"] != counter["pid"]) {
            return Err(format!("{counter} is of another process"));
        }
    }
    Ok(())
}

/// The weights of samples by stack, their number or ns, outermost frame first; a function without a name is
/// that of its file.
fn stacks(profile: &Json) -> BTreeMap<String, u64> {
    let shared = &profile["shared"];
    let text = |index: &Json| shared["stringArray"][index.as_u64().unwrap() as usize].as_str().unwrap();
    let at = |table: &str, column: &str, index: u64| shared[table][column][index as usize].clone();
    let mut all = BTreeMap::new();
    for thread in list(&profile["threads"]) {
        let samples = &thread["samples"];
        for (stack, weight) in list(&samples["stack"]).iter().zip(list(&samples["weight"])) {
            let (mut names, mut next) = (Vec::new(), stack.as_u64());
            while let Some(stack) = next {
                let frame = at("stackTable", "frame", stack).as_u64().unwrap();
                let function = at("frameTable", "func", frame).as_u64().unwrap();
                let name = text(&at("funcTable", "name", function)).to_owned();
                let printable = |name: &str| name.replace(char::is_control, "?");
                names.push(match (name.starts_with("0x"), at("funcTable", "resource", function).as_u64()) {
                    (false, _) => name,
                    (true, None) => "[unknown]".to_owned(),
                    (true, Some(file)) => {
                        format!("[{}]", printable(text(&at("resourceTable", "name", file))))
                    }
                });
                next = at("stackTable", "prefix", stack).as_u64();
            }
            names.reverse();
            let weight = weight.as_u64().unwrap_or_else(|| (weight.as_f64().unwrap() * 1e6).round() as u64);
            *all.entry(names.join(";")).or_default() += weight;
        }
    }
    all
}

tiers!(samples_are_those_of_folded_lines_for_every_recording);
fn samples_are_those_of_folded_lines_for_every_recording(tier: Tier) {
    each_export(tier, "firefox", |fixture, ran, root| {
        let profile = profile(&ran.stdout);
        check(&profile)?;
        let of_time =
            list(&profile["threads"]).iter().any(|thread| thread["samples"]["weightType"] == "tracing-ms");
        let by = if of_time { "period" } else { "samples" };
        let theirs = weights_by(&fixture.path, root, by, |stack| stack);
        let ours = stacks(&profile);
        if ours == theirs { Ok(()) } else { Err(format!("{ours:?}\n{theirs:?}")) }
    });
}

#[test]
fn counters_and_losses_are_those_of_stats() {
    let stats = |path: &Path| -> Json {
        serde_json::from_slice(&perfx(args!["stats", "-q", "--json", path]).stdout).unwrap()
    };
    let path = Fixture::new("recorded/lost.p73.data").path;
    let (profile, stats_of) = (profile(&export(&path, &[]).stdout), stats(&path));
    let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
    let strings = list(&profile["shared"]["stringArray"]);
    for thread in list(&profile["threads"]) {
        let markers = &thread["markers"];
        for (name, data) in list(&markers["name"]).iter().zip(list(&markers["data"])) {
            let name = strings[name.as_u64().unwrap() as usize].as_str().unwrap();
            *lost.entry(name).or_default() += data["count"].as_u64().unwrap();
        }
    }
    // LOST_SAMPLES records report the same ones.
    assert_eq!(lost.keys().collect::<Vec<_>>(), [&"lost records"]);
    assert_eq!(lost["lost records"].to_string(), stats_of["lost"]["lost"].as_str().unwrap());
    let sum = |counter: &Json| {
        list(&counter["samples"]["count"]).iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    let counters = list(&profile["counters"]);
    assert_eq!(counters.len(), 1);
    let event = list(&stats_of["events"]).iter().find(|event| event["name"] == counters[0]["name"]).unwrap();
    assert_eq!(event["period"].as_str().unwrap(), sum(&counters[0]).to_string());
}

/// Regression: they had the same weight, however long a thread waited.
#[test]
fn waits_weigh_their_time() {
    let folder = temp();
    let waits = folder.path().join("waits.data");
    perfx(args!["off-cpu", Fixture::new("recorded/off-cpu.p73.data").path, "-o", waits]).done().unwrap();
    let profile = profile(&export(&waits, &[]).stdout);
    check(&profile).unwrap();
    assert!(list(&profile["threads"]).iter().all(|thread| thread["samples"]["weightType"] == "tracing-ms"));
    let root = folder.path().to_str().unwrap();
    let theirs = weights_by(&waits, root, "period", |stack| stack);
    assert_eq!(stacks(&profile), theirs);
    assert!(theirs.values().any(|&ns| ns > 1_000_000));
}

tiers!(a_profile_does_not_depend_on_form_or_threads_and_recordings_are_side_by_side);
fn a_profile_does_not_depend_on_form_or_threads_and_recordings_are_side_by_side(tier: Tier) {
    let folder = temp();
    for name in tier.first(1, &["recorded/group-read.p61.data", "recorded/fp.p61.data"]) {
        let large = folder.path().join("large.data");
        std::fs::write(&large, Fixture::new(name).repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
        assert!(export(&large, &["-@1"]).stdout == export(&large, &["-@4"]).stdout, "{name}");
        let pipe = folder.path().join("pipe.data");
        perfx(args!["copy", "-f", Fixture::new(name).path, "--to", "pipe", "-o", pipe]).done().unwrap();
        let (file, pipe) =
            (profile(&export(&Fixture::new(name).path, &[]).stdout), profile(&export(&pipe, &[]).stdout));
        assert_eq!(file["threads"], pipe["threads"], "{name}");
    }
    let paths = ["recorded/fp.p61.data", "recorded/threads.p61.data"].map(|name| Fixture::new(name).path);
    let both = profile(&export(&paths[0], &[paths[1].to_str().unwrap()]).stdout);
    check(&both).unwrap();
    let mut sum: BTreeMap<String, u64> = BTreeMap::new();
    for path in &paths {
        for (stack, count) in stacks(&profile(&export(path, &[]).stdout)) {
            *sum.entry(stack).or_default() += count;
        }
    }
    assert_eq!(stacks(&both), sum);
}

/// `startTime` was 0 for all, so that the profiler showed no date.
#[test]
fn a_profile_begins_at_the_wall_clock_if_the_recording_has_it() {
    let json = |command: &str, path: &Path| -> Json {
        serde_json::from_slice(&perfx(args![command, "-q", "--json", path]).stdout).unwrap()
    };
    let number = |value: &Json| value.as_str().unwrap().parse::<u64>().unwrap();
    let path = Fixture::new("recorded/clock-monotonic.p61.data").path;
    let (clock, counts) = (&json("info", &path)["clock"]["reference"], json("stats", &path));
    let first = number(&counts["time"]["samples"]["first_ns"]);
    let wall = number(&clock["wall_ns"]) - number(&clock["clock_ns"]) + first;
    let started = profile(&export(&path, &[]).stdout)["meta"]["startTime"].as_f64().unwrap();
    assert!((started - wall as f64 / 1e6).abs() < 0.001, "{started} {wall}");
    let path = Fixture::new("recorded/fp.p61.data").path;
    assert_eq!(profile(&export(&path, &[]).stdout)["meta"]["startTime"], 0.0);
}

/// The profiler draws a thread without `threadCPUDelta` as busy from sample to sample, however far apart they
/// are.
#[test]
fn a_thread_is_idle_where_it_has_no_samples() {
    let folder = temp();
    let path = folder.path().join("gap.data");
    let samples = stats_samples(&Fixture::new("recorded/fp.p61.data").path);
    let mut seen = 0;
    let gap =
        rewritten(&Fixture::new("recorded/fp.p61.data").path, Clone::clone, |record, layouts, bytes| {
            seen += u64::from(record.kind() == RecordType::SAMPLE);
            let layout = layouts.layout_of(record).filter(|_| seen > samples / 2);
            if let Some((layout, time)) =
                layout.and_then(|layout| Some((layout, layout.recorded_time(record)?)))
            {
                layout.set_time(bytes, time + 1_000_000_000, record.endian()).unwrap();
            }
            true
        });
    fs::write(&path, gap).unwrap();
    let profile_of = |path: &Path| profile(&export(path, &[]).stdout);
    let gap = profile_of(&path);
    let interval = gap["meta"]["interval"].as_f64().unwrap();
    let mut gaps = 0;
    for thread in list(&gap["threads"]) {
        let (times, cpu) =
            (list(&thread["samples"]["timeDeltas"]), list(&thread["samples"]["threadCPUDelta"]));
        for (time, cpu) in times.iter().zip(cpu) {
            let (ms, cpu) = (time.as_f64().unwrap(), cpu.as_f64().unwrap() / 1000.0);
            assert!(cpu <= ms + 1e-9 && cpu <= 2.0 * interval, "{cpu} of {ms} ms");
            gaps += u32::from(ms > 900.0);
        }
    }
    assert!(gaps > 0, "{gap}");
    // Page faults do not show how long a thread ran.
    let tracepoint = profile_of(&Fixture::new("recorded/tracepoint.p61.data").path);
    assert!(list(&tracepoint["threads"]).iter().all(|thread| thread["samples"]["threadCPUDelta"].is_null()));
}

fn stats_samples(path: &Path) -> u64 {
    let counts: Json = serde_json::from_slice(&perfx(args!["stats", "-q", "--json", path]).stdout).unwrap();
    list(&counts["events"]).iter().map(|event| event["samples"].as_u64().unwrap()).sum()
}

#[test]
fn what_a_profile_holds() {
    let Some(root) = workloads() else { return };
    let ran = export(
        &Fixture::new("recorded/lost.p61.data").path,
        &["--root", root.to_str().unwrap(), "--time", "0%-3%"],
    );
    let mut profile = profile(&ran.stdout);
    profile["meta"]["arguments"] = "perf record …".into();
    let parts =
        ["meta", "libs", "shared", "threads", "counters"].map(|part| format!("{part}: {}\n", profile[part]));
    same("export", "firefox", &parts.concat());
}
