//! `--symbol`, `--exclude-symbol` and `--leaf`: the selected samples are those that `perfx list functions`
//! counts, in every form of a recording.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value as Json;

use crate::folded::INLINED;
use crate::support::{
    Fixture, Stdin, Tier, clean, each_fixture, perf, perfx, perfx_with, recorded, run, skipped, temp,
    workloads,
};
use crate::{args, tiers};

fn json(line: Vec<std::ffi::OsString>) -> Result<Json, String> {
    let ran = perfx(line);
    serde_json::from_slice(&ran.stdout).map_err(|error| format!("{error}: {}", ran.stderr))
}

/// The samples of an event that are selected by an option.
fn selected(input: &Path, root: &Path, event: &str, option: &str, name: &str) -> Result<u64, String> {
    let line = args!["list", "events", "-q", "--json", "--foreign", "--root", root, option, name, input];
    let document = json(line.to_vec())?;
    let rows = document["rows"].as_array().ok_or("there are no rows")?;
    let of_event = rows.iter().filter(|row| row["name"] == event);
    Ok(of_event.map(|row| row["samples"].as_u64().unwrap()).sum())
}

tiers!(the_samples_with_a_function_are_those_that_list_functions_counts);
fn the_samples_with_a_function_are_those_that_list_functions_counts(tier: Tier) {
    let Some(root) = workloads() else { return };
    let mut fixtures = tier.of(recorded());
    fixtures.retain(|fixture| {
        let name = fixture.path.file_name().unwrap().to_string_lossy();
        !fixture.has_siblings() && ["cut-", "killed", "twice"].iter().all(|part| !name.contains(part))
    });
    let checked = AtomicUsize::new(0);
    each_fixture(&fixtures, |fixture| {
        let options = ["--inline", "--children", "-q", "--json", "--foreign", "--root"];
        let mut line = args!["list", "functions", fixture.path].to_vec();
        line.extend(options.map(Into::into));
        line.push(root.into());
        let Ok(document) = json(line) else { return Ok(()) };
        let Some(event) = document["counted"]["event"].as_str() else { return Ok(()) };
        let all = document["counted"]["samples"].as_u64().unwrap();
        let rows = document["rows"].as_array().unwrap();
        let named = rows.iter().filter(|row| !row["function"].as_str().unwrap().starts_with('['));
        for row in named.take(3) {
            let name = row["function"].as_str().unwrap();
            // A function of this name in another file is selected, too.
            let sum = |key: &str| {
                let same = rows.iter().filter(|row| row["function"] == name);
                same.map(|row| row[key].as_u64().unwrap()).sum::<u64>()
            };
            if rows.iter().filter(|row| row["function"] == name).count() > 1 {
                continue;
            }
            let found = ["--symbol", "--exclude-symbol", "--leaf"]
                .map(|option| selected(&fixture.path, root, event, option, name));
            let [with, without, leaf] = found;
            let (with, without, leaf) = (with?, without?, leaf?);
            if (with, without, leaf) != (sum("total_samples"), all - with, sum("samples")) {
                return Err(format!("{name}: {with} with, {without} without, {leaf} in it; {row}"));
            }
            checked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    assert!(checked.into_inner() > tier.pick(10, 50));
}

/// Files, pipe data and compressed recordings, on any number of threads.
#[test]
fn a_function_selects_the_same_samples_in_every_form() {
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    let root = crate::support::root().join("tests/data/unstripped");
    let fixture = Fixture::new("recorded/fp.p61.data");
    assert_eq!(perfx(args!["compress", fixture.path, "-o", at("z.data")]).code, Some(0));
    assert_eq!(perfx(args!["copy", "--to", "pipe", fixture.path, "-o", at("pipe.data")]).code, Some(0));
    let mut written = Vec::new();
    for (input, threads) in
        [(&fixture.path, "1"), (&fixture.path, "4"), (&at("z.data"), "2"), (&at("pipe.data"), "2")]
    {
        let line = args![
            "filter",
            "--foreign",
            "--root",
            root,
            "--symbol",
            "work_.*",
            "-@",
            threads,
            input,
            "-f",
            "-o",
            at("out.data")
        ];
        assert_eq!(perfx(line).code, Some(0));
        let line =
            args!["list", "functions", "--foreign", "--root", root, "-q", "--children", at("out.data")];
        written.push((perfx(line).text(), fs::read(at("out.data")).unwrap()));
    }
    assert!(written[0].1 == written[1].1, "it depends on the number of threads");
    assert!(written.iter().all(|(text, _)| *text == written[0].0));
    assert!(
        written[0].0.lines().any(|line| line.contains("100.00%") && line.ends_with("main")),
        "{}",
        written[0].0
    );
    let line = args!["filter", "--foreign", "--root", root, "--symbol", "work_.*"];
    let piped = perfx_with(Stdin::Pipe(&fs::read(at("pipe.data")).unwrap()), line);
    assert_eq!(piped.code, Some(0), "{}", piped.stderr);
}

#[test]
fn a_function_that_is_missing_is_an_error_that_names_similar_ones() {
    let root = crate::support::root().join("tests/data/unstripped");
    let input = Fixture::new("recorded/fp.p61.data").path;
    let said = |option: &str, name: &str| {
        perfx(args!["view", "--count", "--foreign", "--root", root, option, name, input]).stderr
    };
    let nothing = said("--symbol", "work");
    assert!(
        nothing.contains("nothing in the recording matches --symbol; similar names: `work_one`"),
        "{nothing}"
    );
    assert!(said("--symbol", "LEAF_xor").contains("did you mean `leaf_xor`?"));
    assert!(said("--exclude-symbol", "LEAF_xor").contains("--exclude-symbol `LEAF_xor` matches nothing"));
}

/// Callers that are only in a recorded stack, and calls inlined by the compiler.
#[test]
fn inlined_and_unwound_functions_count() {
    let Some(perf) = perf("perf") else { return };
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    // Some 100 ms: the 2 ms of the other tests are two samples, and sometimes none of them in `mix`.
    fs::write(at("inlined.c"), INLINED.replace("work(20000)", "work(1000000)")).unwrap();
    let built =
        run(clean("gcc").args(["-O2", "-g", "-o"]).args([at("inlined"), at("inlined.c")]), Stdin::Null);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let line = args![
        "record",
        "-q",
        "-e",
        "cpu-clock:u",
        "-F",
        "999",
        "--call-graph",
        "dwarf",
        "-o",
        at("in.data"),
        at("inlined")
    ];
    if perf.run(Stdin::Null, line).code != Some(0) {
        return skipped("what perf records here");
    }
    let count = |option: &str, name: &str| -> u64 {
        let line = args!["view", "-q", "--count", option, name, "--root", "/", at("in.data")];
        perfx(line).text().trim().parse().unwrap()
    };
    let main = count("--symbol", "main");
    assert!(main > 0);
    assert!(count("--symbol", "mix") > 0 && count("--symbol", "mix") <= main);
    assert!(count("--leaf", "mix") > 0);
    assert_eq!(count("--leaf", "main"), 0);
    let written = at("out.data");
    let line = args!["filter", "--symbol", "mix", "--root", "/", at("in.data"), "-o", written];
    assert_eq!(perfx(line).code, Some(0));
    // The stacks are still there.
    assert!(fs::metadata(&written).unwrap().len() > 8192 * count("--symbol", "mix"));
}
