//! `retime` changes all times of a recording in the same way, and nothing else.

use std::fs;
use std::path::Path;

use crate::parse::Contents;
use crate::snapshots::same;
use crate::support::{
    Fixture, Perf, Stdin, Tier, each_fixture, named, perfs, perfx, root, same_bytes, same_lines, temp,
};
use crate::{args, tiers};

const RECORDINGS: [&str; 5] = ["plain.p61", "fp.p61", "forks.p73", "z.p73", "threads.p61"];

/// The time of each sample in ns, as perf shows it.
fn times(perf: &Perf, recording: &Path) -> Result<Vec<u64>, String> {
    let ran = perf.run(Stdin::Null, args!["script", "-F", "time", "--ns", "-i", recording]).done()?;
    let ns = |line: &str| line.trim().trim_end_matches(':').replace('.', "").parse();
    ran.text().lines().map(|line| ns(line).map_err(|error| format!("{line}: {error}"))).collect()
}

fn retimed(input: &Path, output: &Path, options: &[&str]) -> Result<(), String> {
    let mut args = args!["retime", "-q", "-f", input, "-o", output].to_vec();
    args.extend(options.iter().map(Into::into));
    perfx(args).done().map(drop)
}

#[test]
fn perf_shows_every_sample_at_its_new_time() {
    let perfs = perfs(&["perf", "perf-new"]);
    let fixtures: Vec<_> =
        RECORDINGS.iter().map(|name| Fixture::new(&format!("recorded/{name}.data"))).collect();
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        for perf in perfs.iter().filter(|perf| perf.can_read(&fixture.path)) {
            let before = times(perf, &fixture.path)?;
            let text = |times: &[u64]| times.iter().map(u64::to_string).collect::<Vec<_>>();
            let check = |options: &[&str], new: &dyn Fn(u64) -> u64| {
                retimed(&fixture.path, &out, options)?;
                let wanted: Vec<u64> = before.iter().copied().map(new).collect();
                same_lines(&format!("{options:?}"), &text(&wanted), &text(&times(perf, &out)?))
            };
            check(&["--offset", "1000000007"], &|time| time + 1_000_000_007)?;
            check(&["--offset", "-1000"], &|time| time - 1_000)?;
            check(&["--scale", "2.5"], &|time| (u128::from(time) * 5 / 2) as u64)?;
            check(&["--scale", "0.5", "--offset", "3"], &|time| time / 2 + 3)?;
        }
        Ok(())
    });
}

tiers!(moving_forth_and_back_restores_the_recording);
fn moving_forth_and_back_restores_the_recording(tier: Tier) {
    let fixtures: Vec<_> =
        ["recorded/", "crafted/kinds", "crafted/aux"].into_iter().flat_map(named).collect();
    each_fixture(&tier.of(fixtures), |fixture| {
        let folder = temp();
        let path = |name: &str| folder.path().join(name);
        let plain = perfx(args!["run", "-q", "-p", "decompress", fixture.path, "-o", path("plain")]);
        // In a damaged recording, a wrong time may be too large for any offset.
        if plain.code != Some(0) || retimed(&path("plain"), &path("there"), &["--offset", "4096"]).is_err() {
            return Ok(());
        }
        retimed(&path("there"), &path("back"), &["--offset", "-4096"])?;
        let data = |name: &str| {
            let path = path(name);
            let file = fs::read(if path.is_dir() { path.join("data") } else { path }).unwrap();
            file[Contents::file(&file).data].to_vec()
        };
        same_bytes("what was moved back", &data("plain"), &data("back"))
    });
}

#[test]
fn the_first_sample_is_at_zero() {
    each_fixture(
        &["plain", "fp"].map(|name| Fixture::new(&format!("recorded/{name}.p61.data"))),
        |fixture| {
            let folder = temp();
            let out = folder.path().join("out.data");
            let ran = perfx(args!["retime", "--zero", fixture.path, "-o", out]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert!(ran.stderr.contains("from before the first sample"), "{}", ran.stderr);
            for perf in perfs(&["perf", "perf-new"]) {
                let (before, after) = (times(&perf, &fixture.path)?, times(&perf, &out)?);
                let Some(start) = before.iter().min() else { return Err("no sample".to_owned()) };
                let wanted: Vec<String> = before.iter().map(|time| (time - start + 1).to_string()).collect();
                same_lines("times", &wanted, &after.iter().map(u64::to_string).collect::<Vec<_>>())?;
            }
            Ok(())
        },
    );
}

#[test]
fn a_time_that_would_be_before_zero_is_an_error_that_names_its_record() {
    let fixture = Fixture::new("recorded/plain.p61.data");
    let folder = temp();
    let out = folder.path().join("out.data");
    let ran = perfx(args!["retime", "--offset", "-999999999999999999", fixture.path, "-o", out]);
    assert!(ran.code == Some(1) && !out.exists(), "{}", ran.stderr);
    for part in ["plain.p61.data", "before 1 or too large"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    for wrong in ["0", "-1", "1e9", "x", "", "0.0", "1.5.2"] {
        let ran = perfx(args!["retime", format!("--scale={wrong}"), fixture.path, "-o", out]);
        assert_eq!(ran.code, Some(2), "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn every_kind_of_record_that_has_a_time_is_moved() {
    let folder = temp();
    let out = folder.path().join("out.data");
    for name in ["kinds-le", "kinds-user-le", "kinds-user-be"] {
        let input = root().join(format!("tests/data/crafted/{name}.data"));
        retimed(&input, &out, &["--offset", "1000000", "--scale", "2"]).unwrap();
        let dump = |path: &Path| perfx(args!["dump", path]).text();
        let (before, after) = (dump(&input), dump(&out));
        let changed = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
        let text: String = changed.map(|(before, after)| format!("- {before}\n+ {after}\n")).collect();
        assert_eq!(before.lines().count(), after.lines().count());
        same("retime", name, &text);
    }
}

#[test]
fn times_that_fall_together_are_counted() {
    let fixture = Fixture::new("recorded/plain.p61.data");
    let folder = temp();
    let out = folder.path().join("out.data");
    let ran = perfx(args!["retime", "--scale", "0.000000001", fixture.path, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("records have the same time as the record before"), "{}", ran.stderr);
    let ran = perfx(args!["retime", "-f", "--scale", "1000.5", fixture.path, "-o", out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn retime_asks_for_an_option_and_for_nanoseconds() {
    let fixture = Fixture::new("recorded/plain.p61.data");
    let nothing = perfx(args!["retime", fixture.path, "-o", temp().path().join("out.data")]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.stderr);
    assert!(nothing.stderr.contains("--zero"), "{}", nothing.stderr);
    let unit = perfx(args!["retime", "--offset", "1ms", fixture.path]);
    assert_eq!(unit.code, Some(2), "{}", unit.stderr);
    assert!(unit.stderr.contains("`1ms` is not a whole number of nanoseconds"), "{}", unit.stderr);
}
