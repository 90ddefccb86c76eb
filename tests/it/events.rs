//! The event that is counted of several: cycles or a clock first, the same event on several PMUs as one, and what is not
//! counted is said.

use std::ffi::OsString;
use std::fs;

use serde_json::Value;

use crate::args;
use crate::support::{Fixture, perfx, temp};

/// Of 46 samples, 3 are of `cpu_core/cycles/`, which comes first, and 43 of `cpu_atom/cycles/`.
const HYBRID: &str = "recorded/hybrid.p73.data";

/// Five samples of a tracepoint, three of page faults, two of cycles.
const ORDER: &str = "crafted/events-order.data";

/// The event and number of samples that functions are listed of.
fn counted(name: &str, options: &[&str]) -> (String, u64) {
    let input = Fixture::new(name).path;
    let mut words: Vec<OsString> = args!["list", "functions", "--json", "--no-files", input].to_vec();
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
    for what in ["export folded", "export svg", "export pprof", "export html", "export firefox", "overview"] {
        let folder = temp();
        let out = folder.path().join("out");
        let mut words: Vec<OsString> = what.split(' ').map(Into::into).collect();
        words.extend(args!["--no-files", input]);
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
    perfx(args!["export", "csv", "--no-files", input, "-o", tables]).done().unwrap();
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
            perfx(args!["view", "--no-files", "--event", option, "-F", "event", input]).done().unwrap();
        assert_eq!(lines.text().lines().count() as u64, samples, "{option}");
    }
}

#[test]
fn cycles_of_several_pmus_are_compared_with_those_of_one() {
    let (hybrid, other) = (Fixture::new(HYBRID).path, Fixture::new(ORDER).path);
    for [a, b] in [[&hybrid, &other], [&other, &hybrid]] {
        let ran = perfx(args!["diff", "--profile", "--no-files", a, b]);
        assert!(ran.stderr.contains("cycles: 46 samples, counted by period (cycles)"), "{}", ran.stderr);
        assert!(ran.stderr.contains("cycles:P: 2 samples, counted by period (cycles)"), "{}", ran.stderr);
    }
}

/// The event that comes first was counted, here a tracepoint.
#[test]
fn cycles_are_counted_before_other_events_and_tracepoints_last() {
    assert_eq!(counted(ORDER, &[]), ("cycles:P".to_owned(), 2));
    assert_eq!(counted(ORDER, &["--event", "crafted:tick,page-faults"]), ("page-faults".to_owned(), 3));
    assert_eq!(counted(ORDER, &["--event", "crafted:tick"]), ("crafted:tick".to_owned(), 5));
}

#[test]
fn the_share_of_the_samples_that_are_not_counted_is_said() {
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
    let folded = perfx(args!["export", "folded", "--no-files", waits]).done().unwrap();
    let counts: u64 =
        folded.text().lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(all, counts);
    assert!(folded.stderr.contains("counted by period (ns)"), "{}", folded.stderr);
    let text = perfx(args!["list", "threads", waits]).done().unwrap().text();
    assert!(text.lines().next().unwrap().ends_with("period (ns)"), "{text}");
}

/// Only the functions were those of the chosen samples.
#[test]
fn the_overview_of_a_time_has_only_figures_of_that_time() {
    let input = Fixture::new("recorded/fp.p61.data").path;
    let overview = |options: &[&str]| {
        let mut words: Vec<OsString> = args!["overview", "--no-files", input].to_vec();
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

/// LOST and LOST_SAMPLES records of the same loss were added up.
#[test]
fn what_two_kinds_of_records_report_is_lost_once() {
    let input = Fixture::new("recorded/lost.p61.data").path;
    let lost = perfx(args!["overview", "--no-files", input]).text();
    assert!(lost.lines().any(|line| line.starts_with("lost ") && line.ends_with(" 91 records")), "{lost}");
    let stats: Value = serde_json::from_str(&perfx(args!["stats", "--json", input]).text()).unwrap();
    assert_eq!(stats["lost"]["lost"], "91");
}
