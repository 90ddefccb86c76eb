//! `perfx diff` reports recordings with the same contents as equal, in any form, and reports every
//! difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::snapshots::{Place, same};
use crate::stats::conforms;
use crate::support::{
    Fixture, Form, Stdin, Tier, each_fixture, perfx, perfx_command, perfx_with, recorded, run, sound, temp,
    workloads,
};
use crate::{args, tiers};

/// The diff document of two recordings, and the exit code.
fn diff(a: &Path, b: &Path) -> Result<(Json, Option<i32>), String> {
    let ran = perfx(args!["diff", "-q", "--json", a, b]).done()?;
    let document = serde_json::from_slice(&ran.stdout).map_err(|e| e.to_string())?;
    conforms("diff", &document)?;
    Ok((document, ran.code))
}

tiers!(every_recording_is_equal_to_itself);
fn every_recording_is_equal_to_itself(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        let ran = perfx(args!["diff", "--json", fixture.path, fixture.path]);
        if ran.code == Some(1) && ran.stdout.is_empty() {
            return Ok(());
        }
        let document: Json =
            serde_json::from_slice(&ran.stdout).map_err(|e| format!("{e} {}", ran.stderr))?;
        conforms("diff", &document)?;
        if document["equal"] == true { Ok(()) } else { Err(document.to_string()) }
    });
}

tiers!(a_copy_in_another_form_is_equal);
fn a_copy_in_another_form_is_equal(tier: Tier) {
    each_fixture(&tier.of(recorded()), |fixture| {
        let folder = temp();
        for (form, name) in [("pipe", "pipe.data"), ("file", "file.data")] {
            let path = folder.path().join(name);
            let copied = perfx(args!["copy", "--to", form, "-o", path, fixture.path]);
            // `copy` reports damage, and data that does not fit the form.
            if copied.code != Some(0) {
                continue;
            }
            let ran = perfx(args!["diff", "-q", "--json", fixture.path, path]);
            // A zstd stream that began in another file can be copied but not expanded.
            if ran.code == Some(1) && ran.stderr.contains("zstd can't decompress it") {
                continue;
            }
            let (document, code) = diff(&fixture.path, &path)?;
            if document["equal"] != true || code != Some(0) {
                return Err(format!("{form}: {document}"));
            }
        }
        Ok(())
    });
}

#[test]
fn compressed_or_not_it_is_equal() {
    let names =
        ["several.p61", "z.p61", "pipe.p61", "pipe-z.p73", "threads.p73", "threads-z.p61", "tracepoint.p73"];
    let fixtures: Vec<_> = names.iter().map(|name| Fixture::new(&format!("recorded/{name}.data"))).collect();
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let ways = [
            &["compress"][..],
            &["compress", "--solid", "--to", "pipe"],
            &["compress", "--compressed2", "-l", "9"],
            &["decompress"],
            &["decompress", "--to", "pipe"],
        ];
        for (number, way) in ways.iter().enumerate() {
            let path = folder.path().join(number.to_string());
            let mut args = args!["-q", fixture.path, "-o", path].to_vec();
            args.splice(0..0, way.iter().map(Into::into));
            perfx(args).done()?;
            let (document, code) = diff(&fixture.path, &path)?;
            if document["equal"] != true || code != Some(0) {
                return Err(format!("{way:?}: {document}"));
            }
        }
        Ok(())
    });
}

#[test]
fn decompressed_records_are_compared() {
    // mmap2-build-ids without any id only decompresses.
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("recorded/threads-z.p61.data").path;
    perfx(args!["run", "-p", "mmap2-build-ids:foreign", "-o", out, input]).done().unwrap();
    let ran = perfx(args!["diff", "--json", input, out]);
    let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
    let kinds: Vec<_> =
        document["differences"].as_array().unwrap().iter().map(|d| d["in"].to_string()).collect();
    assert!(!kinds.iter().any(|kind| kind.contains("SAMPLE")), "{document}");
}

/// Every changed byte of a small file is found, unless it belongs to the layout.
#[test]
fn a_changed_byte_of_a_record_is_found() {
    let folder = temp();
    let changed = folder.path().join("changed.data");
    for name in ["recorded/plain.p61.data", "recorded/pipe.p61.data"] {
        let fixture = Fixture::new(name);
        let bytes = fixture.bytes();
        let end = if fixture.form == Form::Pipe { bytes.len() } else { 2500 };
        for at in (end - 400..end).step_by(23) {
            let mut other = bytes.clone();
            other[at] ^= 0x55;
            fs::write(&changed, &other).unwrap();
            let ran = perfx(args!["diff", "-q", fixture.path, changed]);
            assert!(matches!(ran.code, Some(1 | 3)), "{name} at {at:#x}: {:?}", ran.code);
        }
    }
}

#[test]
fn a_record_more_or_less_at_the_end_is_found() {
    let fixture = Fixture::new("recorded/pipe.p61.data");
    let bytes = fixture.bytes();
    let more = [&bytes[..], &[68, 0, 0, 0, 0, 0, 8, 0]].concat();
    let ran = perfx_with(Stdin::Pipe(&more), args!["diff", "--json", fixture.path, "-"]);
    let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.code, &document["first_record"]["a"]), (Some(3), &Json::Null), "{}", ran.stderr);
    assert_eq!(document["first_record"]["b"]["kind"], "FINISHED_ROUND");
}

#[test]
fn large_recordings_differ_where_they_differ() {
    let folder = temp();
    let (a, b) = (folder.path().join("a.data"), folder.path().join("b.data"));
    let mut bytes = Fixture::new("recorded/pipe.p61.data").repeated(9 << 20);
    fs::write(&a, &bytes).unwrap();
    let (same, _) = diff(&a, &a).unwrap();
    assert_eq!(same["equal"], true);
    // `misc` of the last record, a FINISHED_ROUND.
    let at = bytes.len() - 4;
    bytes[at] = 7;
    fs::write(&b, &bytes).unwrap();
    let (different, code) = diff(&a, &b).unwrap();
    assert_eq!(code, Some(3));
    let total = same["equal_records"].as_u64().unwrap();
    assert!(different["first_record"]["number"].as_u64().unwrap() + 1 == total, "{different}");
}

#[test]
fn what_is_printed() {
    let place = Place::new(&[
        ("a.data", "recorded/plain.p61.data"),
        ("b.data", "recorded/fp.p61.data"),
        ("le.data", "crafted/two-le.data"),
        ("pipe.data", "recorded/pipe.p61.data"),
        ("cut.data", "recorded/cut-05687.p61.data"),
        ("z.data", "crafted/z-two-events.data"),
        ("bad.data", "crafted/val-size-4.data"),
        ("n.data", "recorded/no-buildid.p61.data"),
    ]);
    place.say("copy a.data --to pipe -o a.pipe");
    place.say(
        "inject --buildid-all --foreign --known-build-ids 'ab /tmp/perfx-data/work/burn' n.data -o ids.data",
    );
    let lines = [
        "diff a.data a.pipe",
        "diff a.data b.data",
        "diff --ignore CMDLINE,event_desc a.data b.data",
        "diff n.data ids.data",
        "diff le.data z.data",
        "diff a.data - < pipe.data",
    ];
    same("diff", "text", &place.say_all(&lines));
    same("diff", "json", &place.say("diff --format ndjson a.data ids.data"));
    let lines = [
        "diff a.data",
        "diff - -",
        "diff --ignore NOTHING a.data b.data",
        "diff a.data missing.data",
        "diff a.data bad.data",
        "diff cut.data cut.data",
    ];
    same("diff", "errors", &place.say_all(&lines));
}

/// The share of each function in folded lines, percent: of samples in it, or, if `total`, of those with it on
/// their stack.
fn shares(input: &Path, root: &Path, total: bool) -> BTreeMap<String, f64> {
    let text = perfx(args!["export", "folded", "--foreign", "--root", root, input]).text();
    let lines: Vec<(&str, f64)> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(stack, count)| (stack.split_once(';').unwrap().1, count.parse().unwrap()))
        .collect();
    let sum: f64 = lines.iter().map(|(_, count)| count).sum();
    let mut shares = BTreeMap::new();
    for (stack, count) in lines {
        let names = stack.split(';').collect::<BTreeSet<_>>();
        let own = stack.rsplit(';').next();
        for name in names.into_iter().filter(|&name| total || Some(name) == own) {
            *shares.entry(name.to_owned()).or_default() += count * 100.0 / sum;
        }
    }
    shares
}

#[test]
fn profiles_are_compared_by_the_shares_of_folded_lines() {
    let Some(root) = workloads() else { return };
    let [a, b] = ["fp.p61", "fp.p73"].map(|name| Fixture::new(&format!("recorded/{name}.data")).path);
    let profile = |more: &[&str]| {
        let mut line =
            args!["diff", "--profile", "--shares", "--json", "--foreign", "--root", root, a, b].to_vec();
        line.extend(more.iter().map(Into::into));
        let ran = perfx(line);
        let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
        conforms("diff", &document).unwrap();
        (document, ran.code)
    };
    for total in [false, true] {
        let (document, code) =
            profile(if total { &["--threshold=0", "--total"] } else { &["--threshold=0%"] });
        assert_eq!(code, Some(if document["changed"] == true { 4 } else { 0 }));
        let [before, after] = [&a, &b].map(|path| shares(path, root, total));
        let mut moved = BTreeMap::new();
        for function in document["functions"].as_array().unwrap() {
            let [a, b, change] =
                ["share_a", "share_b", "change"].map(|field| function["change"][field].as_f64().unwrap());
            assert!((b - a - change).abs() < 1e-9);
            moved.insert(function["function"].as_str().unwrap(), [a, b]);
        }
        for name in before.keys().chain(after.keys()) {
            let share = |of: &BTreeMap<String, f64>| of.get(name).copied().unwrap_or_default();
            let [a, b] = moved.get(&**name).copied().unwrap_or([share(&before); 2]);
            let near = (a - share(&before)).abs() < 1e-9 && (b - share(&after)).abs() < 1e-9;
            assert!(near, "{name}: {a} {b}, folded {} {}", share(&before), share(&after));
        }
    }
    // A threshold that no difference reaches, and no difference at all.
    let (document, code) = profile(&["--threshold", "100%"]);
    assert_eq!((document["functions"].as_array().unwrap().len(), code), (0, Some(0)));
    let ran = perfx(args!["diff", "--profile", "--threshold=0", "--foreign", a, a]);
    assert_eq!((ran.code, ran.text().lines().count()), (Some(0), 2), "{}", ran.stderr);
    // An event that only one of them has.
    let other = Fixture::new("recorded/tracepoint.p61.data").path;
    let ran = perfx(args!["diff", "--profile", "--foreign", a, other]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("has no samples of cpu-clock, the event chosen in"), "{}", ran.stderr);
    for wrong in [
        &["--event", "x"][..],
        &["--threshold", "2%"],
        &["--profile", "--threshold", "x"],
        &["--profile", "--threshold=-1"],
    ] {
        let mut line = args!["diff", a, b].to_vec();
        line.extend(wrong.iter().map(Into::into));
        assert_eq!(perfx(line).code, Some(2), "{wrong:?}");
    }
}

/// Every exit code of the gate, one run a side and several.
#[test]
fn the_exit_code_of_a_gate_is_its_verdict() {
    let place = Place::new(&[
        ("whole.data", "recorded/plain.p61.data"),
        ("lost.data", "recorded/cut-05988.p61.data"),
        ("empty.data", "recorded/empty.p61.data"),
    ]);
    place.say("filter --time 0%-50% whole.data -o half.data");
    place.say("filter --time 0%-20% whole.data -o fifth.data");
    place.write("runs", "# before\nwhole.data\nwhole.data\nwhole.data\n");
    let lines = [
        // One run per side: only a threshold makes it a gate.
        "diff --profile --foreign whole.data half.data",
        "diff --profile --foreign --threshold 5% whole.data half.data",
        "diff --profile --foreign --threshold 60% whole.data half.data",
        // Several.
        "diff --profile --foreign --head 1 @runs --vs half.data half.data",
        "diff --profile --foreign @runs --vs whole.data whole.data",
        "diff --profile --foreign --shares @runs --vs half.data half.data",
        // Something was lost, there is nothing to compare, or too much.
        "diff --profile --foreign -q --threshold 5% lost.data fifth.data",
        "diff --profile --foreign whole.data empty.data",
        "diff --profile whole.data half.data whole.data",
        "diff --vs whole.data half.data",
    ];
    same("diff", "gate", &place.say_all(&lines));
    let json = |line: &str| {
        let mut command = perfx_command();
        command.current_dir(place.path("")).args(line.split(' '));
        let ran = run(&mut command, Stdin::Null);
        let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
        conforms("diff", &document).unwrap();
        (document, ran.code)
    };
    // A loss sets the exit code, and the document still contains the verdict.
    let (document, code) = json("diff --profile --foreign -q --json --threshold 5% lost.data fifth.data");
    assert_eq!((&document["changed"], code), (&true.into(), Some(3)));
    let (document, code) = json("diff --profile --foreign -q --json --head 1 @runs --vs half.data half.data");
    assert_eq!((&document["changed"], code), (&true.into(), Some(4)));
    assert_eq!((&document["a"]["runs"], &document["b"]["runs"]), (&3.into(), &2.into()));
    assert_eq!(document["functions"].as_array().unwrap().len(), 1);
}

#[test]
fn weights_are_compared_per_unit_of_work() {
    let place = Place::new(&[("whole.data", "recorded/named.p61.data")]);
    place.say("filter --time 0%-50% whole.data -o half.data");
    let of = |more: &[&str]| {
        let mut line = args![
            "diff",
            "--profile",
            "--json",
            "--foreign",
            place.path("whole.data"),
            place.path("half.data")
        ]
        .to_vec();
        line.extend(more.iter().map(Into::into));
        let ran = perfx(line);
        let document: Json = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        document["all"]["relative"].as_f64().unwrap()
    };
    // The half has 5 of the 11 samples of my_event, and half of the others.
    assert_eq!(of(&[]), -50.0);
    assert!((of(&["--per", "my_event"]) - 10.0).abs() < 1e-9);
    let ran = perfx(args![
        "diff",
        "--profile",
        "--per",
        "x",
        "--foreign",
        place.path("whole.data"),
        place.path("half.data")
    ]);
    assert!(ran.code == Some(1) && ran.stderr.contains("has no samples of x (--per)"), "{}", ran.stderr);
}
