//! The choice of the counted event: cycles or a clock first, the same event on several PMUs as one; omitted
//! events are reported.

use std::ffi::OsString;
use std::fs;

use std::path::{Path, PathBuf};

use perfx_format::{Attr, Event, sample_type as st};
use serde_json::Value;

use crate::args;
use crate::maker::{LE, Maker, PLAIN};
use crate::support::{Fixture, perfx, temp};

/// The 46 samples: 3 of `cpu_core/cycles/`, which comes first, and 43 of `cpu_atom/cycles/`.
const HYBRID: &str = "recorded/hybrid.p73.data";

/// Five samples of a tracepoint, three of page faults, two of cycles.
const ORDER: &str = "crafted/events-order.data";

/// The event and number of samples that functions are listed of.
fn counted(name: &str, options: &[&str]) -> (String, u64) {
    let input = Fixture::new(name).path;
    let mut words: Vec<OsString> = args!["list", "functions", "--json", "--foreign", input].to_vec();
    words.extend(options.iter().map(Into::into));
    let document: Value = serde_json::from_str(&perfx(words).done().unwrap().text()).unwrap();
    let counted = &document["counted"];
    (counted["event"].as_str().unwrap_or_default().to_owned(), counted["samples"].as_u64().unwrap())
}

/// Only the first one that had a sample was counted: 3 of 46 samples.
#[test]
fn cycles_of_several_pmus_are_one_event() {
    assert_eq!(counted(HYBRID, &[]), ("cycles".to_owned(), 46));
    let input = Fixture::new(HYBRID).path;
    for what in [
        "export folded", "export svg", "export pprof", "export otlp", "export html", "export firefox",
        "overview",
    ] {
        let folder = temp();
        let out = folder.path().join("out");
        let mut words: Vec<OsString> = what.split(' ').map(Into::into).collect();
        words.extend(args!["--foreign", input]);
        if what.starts_with("export") {
            words.extend(args!["-o", out]);
        }
        let ran = perfx(words).done().unwrap();
        assert!(!ran.stderr.contains("not counted"), "{what}: {}", ran.stderr);
        if what == "export folded" {
            assert!(ran.stderr.contains("cycles: 46 samples"), "{}", ran.stderr);
        }
        if what == "export svg" {
            assert!(fs::read_to_string(out).unwrap().contains("hybrid.p73.data: cycles</title>"));
        }
    }
    let folder = temp();
    let tables = folder.path().join("tables");
    perfx(args!["export", "csv", "--foreign", input, "-o", tables]).done().unwrap();
    let results = fs::read_to_string(tables.join("results.csv")).unwrap();
    assert!(results.lines().skip(1).all(|line| line.starts_with("cycles,")), "{results}");
}

#[test]
fn an_event_of_several_pmus_is_selected_by_its_name_and_by_that_of_each() {
    for (option, expected) in [
        ("cycles", ("cycles", 46)),
        ("cpu_core/cycles/", ("cpu_core/cycles/", 3)),
        ("cpu_atom/cycles/", ("cpu_atom/cycles/", 43)),
        ("cpu_core/cycles/,cpu_atom/cycles/", ("cycles", 46)),
        ("cpu_.*", ("cycles", 46)),
    ] {
        let (event, samples) = counted(HYBRID, &["--event", option]);
        assert_eq!((&*event, samples), expected, "{option}");
        let input = Fixture::new(HYBRID).path;
        let lines =
            perfx(args!["view", "--foreign", "--event", option, "-F", "event", input]).done().unwrap();
        assert_eq!(lines.text().lines().count() as u64, samples, "{option}");
    }
}

#[test]
fn cycles_of_several_pmus_are_compared_with_those_of_one() {
    let (hybrid, other) = (Fixture::new(HYBRID).path, Fixture::new(ORDER).path);
    for [a, b] in [[&hybrid, &other], [&other, &hybrid]] {
        let ran = perfx(args!["diff", "--profile", "--foreign", a, b]);
        assert!(ran.stderr.contains("cycles: 46 samples, counted by period (cycles)"), "{}", ran.stderr);
        assert!(ran.stderr.contains("cycles:P: 2 samples, counted by period (cycles)"), "{}", ran.stderr);
    }
}

/// Regression: the event that comes first was counted, here a tracepoint.
#[test]
fn cycles_are_counted_before_other_events_and_tracepoints_last() {
    assert_eq!(counted(ORDER, &[]), ("cycles:P".to_owned(), 2));
    assert_eq!(counted(ORDER, &["--event", "crafted:tick"]), ("crafted:tick".to_owned(), 5));
}

#[test]
fn the_share_of_uncounted_samples_is_reported() {
    let input = Fixture::new(ORDER).path;
    let said =
        "not counted: 80.0% of the samples, which are of crafted:tick (5), page-faults (3); --event selects";
    for what in [
        "list functions", "list stacks", "list threads", "overview", "export folded", "export svg",
        "diff --profile",
    ] {
        let mut words: Vec<OsString> = what.split(' ').map(Into::into).collect();
        words.extend(args![input]);
        if what.starts_with("diff") {
            words.extend(args![Fixture::new(HYBRID).path]);
        }
        let ran = perfx(words);
        assert!(ran.stderr.contains(said), "{what}: {}", ran.stderr);
    }
}

/// Page and folded lines counted the samples of tracepoints, and lists the times that `off-cpu` sets.
#[test]
fn times_off_the_cpu_have_the_same_weight_everywhere() {
    let folder = temp();
    let waits = folder.path().join("waits.data");
    perfx(args!["off-cpu", Fixture::new("recorded/off-cpu.p61.data").path, "-o", waits]).done().unwrap();
    let json = |what: &str| -> Value {
        let ran = perfx(args!["list", what, "--json", waits]).done().unwrap();
        serde_json::from_str(&ran.text()).unwrap()
    };
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let counted = &json("functions")["counted"];
    let (all, samples) = (number(&counted["period"]), counted["samples"].as_u64().unwrap());
    assert!(counted["unit"] == "ns" && all > 1000 * samples, "{counted}");
    for what in ["stacks", "threads", "processes"] {
        let document = json(what);
        assert_eq!(&document["counted"], counted, "{what}");
        let periods: Vec<u64> =
            document["rows"].as_array().unwrap().iter().map(|row| number(&row["period"])).collect();
        assert!(
            periods.iter().sum::<u64>() == all && periods.is_sorted_by(|a, b| a >= b),
            "{what}: {periods:?}"
        );
    }
    let folded = perfx(args!["export", "folded", "--foreign", waits]).done().unwrap();
    let counts: u64 =
        folded.text().lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(all, counts);
    assert!(folded.stderr.contains("counted by period (ns)"), "{}", folded.stderr);
    let text = perfx(args!["list", "threads", waits]).done().unwrap().text();
    assert!(text.lines().next().unwrap().ends_with("period (ns)"), "{text}");
}

/// Regression: only the functions were those of the selected samples.
#[test]
fn the_overview_of_a_time_has_only_figures_of_that_time() {
    let input = Fixture::new("recorded/fp.p61.data").path;
    let overview = |options: &[&str]| {
        let mut words: Vec<OsString> = args!["overview", "--foreign", input].to_vec();
        words.extend(options.iter().map(Into::into));
        perfx(words).done().unwrap().text()
    };
    let figure = |text: &str, label: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| panic!("{text}"));
        line[label.len()..].trim().to_owned()
    };
    let (whole, part) = (overview(&[]), overview(&["--time", "50%-100%"]));
    for label in ["first sample", "duration", "cpu-clock"] {
        assert_ne!(figure(&whole, label), figure(&part, label), "{label}");
    }
    let listed = perfx(args!["list", "events", "--time", "50%-100%", input]).done().unwrap().text();
    assert_eq!(figure(&part, "cpu-clock"), figure(&listed, "cpu-clock"));
}

/// Regression: LOST and LOST_SAMPLES records of the same loss were added up.
#[test]
fn losses_reported_by_two_kinds_of_records_count_once() {
    let input = Fixture::new("recorded/lost.p61.data").path;
    let lost = perfx(args!["overview", "--foreign", input]).text();
    assert!(lost.lines().any(|line| line.starts_with("lost ") && line.ends_with(" 91 records")), "{lost}");
    let stats: Value = serde_json::from_str(&perfx(args!["stats", "--json", input]).text()).unwrap();
    assert_eq!(stats["lost"]["lost"], "91");
}

/// Events by type, config, flags and number of samples, of period 1000.
fn made(folder: &Path, events: &[(u32, u64, u64, u32)]) -> PathBuf {
    let path = folder.join("made.data");
    let attrs = (1..).zip(events).map(|(id, &(type_, config, modes, _))| {
        let sample_type = PLAIN | st::IDENTIFIER;
        let flags = 1 << 18 | modes;
        let mut attr = Attr::default();
        (attr.type_, attr.config, attr.flags) = (type_, config, flags);
        (attr.sample_type, attr.sample_period) = (sample_type, 1000);
        Event::made(&attr, vec![id], LE)
    });
    let mut maker = Maker::new(&path, &attrs.collect::<Vec<_>>());
    maker.comm(7, "prog", 0);
    maker.mmap(7, 0x10_0000, 0x10_000, "/opt/prog");
    for (id, &(.., samples)) in (1..).zip(events) {
        (0..samples).for_each(|_| maker.sample_of(id, 7, 0x10_1000));
    }
    maker.writer.finish().unwrap();
    path
}

/// Every command that adds up samples, with the words that follow the recording.
const ADDS_UP: [(&str, &[&str]); 8] = [
    ("list functions", &["--json"]),
    ("list stacks", &["--json"]),
    ("list threads", &["--json"]),
    ("list dsos", &["--json"]),
    ("overview", &[]),
    ("export folded", &[]),
    ("export svg", &["-o", "OUT"]),
    ("export firefox", &["-o", "OUT"]),
];

fn adding_up((what, more): (&str, &[&str]), input: &Path, event: Option<&str>) -> crate::support::Ran {
    let folder = temp();
    let mut words: Vec<OsString> = what.split(' ').map(Into::into).collect();
    words.extend(args![input]);
    let out = folder.path().join("out");
    words.extend(more.iter().map(|&word| if word == "OUT" { out.clone().into() } else { word.into() }));
    words.extend(event.into_iter().flat_map(|event| args!["--event", event]));
    perfx(words)
}

/// Without the kernel and a hypervisor, and without users and a hypervisor.
const USER: u64 = 0b110 << 4;
const KERNEL: u64 = 0b101 << 4;

/// Half of the commands counted the first of the selected events alone.
#[test]
fn all_selected_events_are_counted_by_every_command() {
    let folder = temp();
    let halves = made(folder.path(), &[(0, 0, KERNEL, 10), (0, 0, USER, 90)]);
    for what in ADDS_UP {
        for event in [None, Some("cycles:u,cycles:k"), Some("cycles")] {
            let ran = adding_up(what, &halves, event);
            assert_eq!(ran.code, Some(0), "{what:?}: {}", ran.stderr);
            assert!(!ran.stderr.contains("not counted"), "{what:?} {event:?}: {}", ran.stderr);
            if what.1 == ["--json"] {
                let document: Value = serde_json::from_str(&ran.text()).unwrap();
                let counted = &document["counted"];
                assert_eq!(
                    (&counted["event"], &counted["samples"]),
                    (&"cycles".into(), &100.into()),
                    "{what:?}"
                );
            }
        }
    }
    let ran = adding_up(ADDS_UP[5], &halves, Some("cycles:u,cycles:k"));
    assert_eq!(ran.text(), "prog;[prog] 100000\n");
    // Clocks count the same, but neither is a half of the other.
    let clocks = made(folder.path(), &[(1, 0, 0, 10), (1, 1, 0, 90)]);
    for what in ADDS_UP.into_iter().filter(|(_, more)| *more == ["--json"]) {
        let ran = adding_up(what, &clocks, Some("cpu-clock,task-clock"));
        let document: Value = serde_json::from_str(&ran.text()).unwrap();
        let counted = &document["counted"];
        let expected = ("cpu-clock, task-clock", 100, "ns");
        assert_eq!(counted["event"], expected.0, "{what:?}");
        assert_eq!(
            (&counted["samples"], &counted["unit"]),
            (&expected.1.into(), &expected.2.into()),
            "{what:?}"
        );
    }
}

/// Page faults and nanoseconds were one number.
#[test]
fn events_with_different_units_are_not_added_up() {
    let folder = temp();
    let input = made(folder.path(), &[(1, 2, 0, 10), (1, 0, 0, 90)]);
    for what in ADDS_UP {
        let ran = adding_up(what, &input, Some("page-faults,cpu-clock"));
        assert_eq!((ran.code, ran.text()), (Some(2), String::new()), "{what:?}: {}", ran.stderr);
        let said = "don't add up: page-faults (page-faults), cpu-clock (ns); choose one with --event";
        assert!(ran.stderr.contains(said), "{what:?}: {}", ran.stderr);
    }
    // Samples are added up, and a page and pprof keep events apart.
    let samples = ("export folded", &["--weight", "samples"][..]);
    assert_eq!(adding_up(samples, &input, Some("page-faults,cpu-clock")).text(), "prog;[prog] 100\n");
    for apart in ["export html", "export pprof", "export otlp"] {
        let ran = adding_up((apart, &["-o", "OUT"]), &input, Some("page-faults,cpu-clock"));
        assert_eq!(ran.code, Some(0), "{apart}: {}", ran.stderr);
    }
}
