//! perf shows the same for the parts that `perfx split` writes as for the whole recording: every sample
//! exactly once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use perfx_filter::{Property, SplitBy};

use crate::filter::{Line, records, samples, seconds};
use crate::fuzz_bodies::split_by;
use crate::index::several_batches;
use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Form, Stdin, Tier, each, each_fixture, perfs, perfx, perfx_command, perfx_with, recorded, run,
    same_bytes, same_lines, sound, temp,
};
use crate::{args, tiers};

tiers!(a_part_needs_none_of_its_skipped_batches);
/// Each part is written from the batches that it needs, and equals one written from all batches.
fn a_part_needs_none_of_its_skipped_batches(tier: Tier) {
    let folder = temp();
    let path = folder.path().join("in.data");
    several_batches(&path);
    let bytes = fs::read(&path).unwrap();
    let ways = [
        SplitBy::Time(30_000_000),
        SplitBy::Samples(20_000),
        SplitBy::Time(1_000_000_000),
        SplitBy::Pid,
        SplitBy::Event,
        SplitBy::Property(Property::Tid),
        SplitBy::Property(Property::Comm),
        SplitBy::Size(2_000_000),
    ];
    for &by in tier.first(1, &ways) {
        split_by(&bytes, by);
    }
    for name in tier.first(0, &["forks.p61", "fp-defer.p73", "cgroups.p73"]) {
        let bytes = Fixture::new(&format!("recorded/{name}.data")).repeated(5 << 20);
        for by in [SplitBy::Samples(30_000), SplitBy::Time(1_000_000), SplitBy::Pid] {
            split_by(&bytes, by);
        }
    }
}

/// Every way to split, with parts of a size that fits a small recording.
fn ways(lines: &[Line]) -> Vec<[String; 2]> {
    let (first, last) = lines.iter().fold((u64::MAX, 0), |(a, b), line| (a.min(line.ns), b.max(line.ns)));
    let way = |option: &str, value: &str| [option.to_owned(), value.to_owned()];
    vec![
        way("--time", &format!("{}ns", (last - first) / 4 + 1)),
        way("--samples", &(lines.len() / 3).max(1).to_string()),
        way("--by", "pid"),
        way("--by", "event"),
        way("--by", "tid"),
        way("--by", "comm"),
    ]
}

/// The files in a folder, sorted by name.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    parts
}

fn split(input: &Path, way: &[String], folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut args = args!["split", "-q", input, "-o", folder].to_vec();
    args.extend(way.iter().map(OsString::from));
    perfx(args).done()?;
    Ok(parts(folder))
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

tiers!(perf_shows_the_same_for_the_parts_and_the_whole);
fn perf_shows_the_same_for_the_parts_and_the_whole(tier: Tier) {
    let mut compared = 0;
    let perfs = perfs(&["perf", "perf-new"]);
    for perf in &perfs {
        let own = if perf.name == "perf" { "p61" } else { "p73" };
        let mut cases = Vec::new();
        for fixture in tier.of(recorded()).into_iter().filter(|f| f.recorded_by() == Some(own)) {
            // As in filter.rs: the values of group members are relative to the previous sample, and a newline
            // in a name breaks the line.
            if ["group-read", "pipe-group", "name-newline"].iter().any(|name| fixture.name.contains(name)) {
                continue;
            }
            let Some(lines) = samples(perf, &fixture.path, &[]).filter(|lines| lines.len() > 3) else {
                continue;
            };
            if perfx(args!["copy", "-n", fixture.path]).code != Some(0) {
                continue;
            }
            // Few recordings have these for their samples; split refuses the others.
            let more = ["cpu", "cgroup"].map(|property| ["--by".to_owned(), property.to_owned()]);
            let more = more.into_iter().filter(|way| split(&fixture.path, way, temp().path()).is_ok());
            let ways = ways(&lines).into_iter().chain(more);
            cases.extend(ways.map(|way| (fixture.clone(), lines.clone(), way)));
        }
        for property in tier.first(0, &["cpu", "cgroup"]) {
            assert!(
                cases.iter().any(|(.., way)| way[1] == *property),
                "no recording of {own} says its {property}"
            );
        }
        compared += cases.len();
        each(
            &cases,
            |(fixture, _, way)| format!("{} {}", fixture.name, way.join(" ")),
            |(fixture, lines, way)| {
                let folder = temp();
                let mut found = Vec::new();
                for part in split(&fixture.path, way, folder.path())? {
                    let name = part.display();
                    let lines = samples(perf, &part, &[]).ok_or_else(|| format!("perf refuses {name}"))?;
                    if lines.is_empty() {
                        return Err(format!("{name} is empty"));
                    }
                    found.extend(lines.into_iter().map(words));
                }
                let whole = lines.iter().cloned().map(words).collect();
                same_lines(perf.name, &sorted(whole), &sorted(found))
            },
        );
    }
    assert!(
        perfs.is_empty() || compared > tier.pick(20, 200),
        "only {compared} ways to split could be compared"
    );
}

/// The line without spaces that align it with others: the longest name of an event may be in another part.
fn words(line: Line) -> String {
    line.text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number of occurrences of each record that must be in one part, and the set of other records.
fn counted(records: impl IntoIterator<Item = String>) -> (BTreeMap<String, u32>, BTreeMap<String, u32>) {
    let once = ["SAMPLE ", "THROTTLE ", "UNTHROTTLE ", "READ ", "SWITCH ", "SWITCH_CPU_WIDE ", "LOST "];
    let (mut single, mut others) = (BTreeMap::new(), BTreeMap::new());
    for record in records {
        // A part by event has the entries of its own ids.
        if let Some(entries) = record.strip_prefix("ID_INDEX ").and_then(|rest| rest.split_once("entries=")) {
            let each = entries.1.split(['{', '}']).filter(|entry| entry.starts_with("id="));
            each.for_each(|entry| *others.entry(format!("ID_INDEX {entry}")).or_insert(0) += 1);
            continue;
        }
        // A join rewrites the rounds.
        if record.starts_with("FINISHED_ROUND ") {
            continue;
        }
        let is_single = once.iter().any(|kind| record.starts_with(kind));
        *if is_single { &mut single } else { &mut others }.entry(record).or_insert(0) += 1;
    }
    (single, others)
}

tiers!(every_record_of_the_whole_is_in_a_part_and_nothing_else_is);
fn every_record_of_the_whole_is_in_a_part_and_nothing_else_is(tier: Tier) {
    let fixtures: Vec<_> =
        tier.of(sound()).into_iter().filter(|fixture| !fixture.name.contains("bomb")).collect();
    let ways =
        [["--by", "pid"], ["--samples", "25"], ["--by", "event"], ["--time", "10ms"], ["--size", "30k"]];
    let compared = AtomicUsize::new(0);
    each_fixture(&fixtures, |fixture| {
        // AUX data of other tracers is kept in whole chunks, as in filter.rs; the contents of compressed
        // records are compared uncompressed.
        let folder = temp();
        let plain = folder.path().join("plain.data");
        if perfx(args!["decompress", "-q", fixture.path, "-o", plain]).code != Some(0) {
            return Ok(());
        }
        // Another test compares AUX data that is cut.
        let is_cut = ["/spe-", "/pt-"].iter().any(|part| fixture.name.contains(part));
        let is_compared = |record: &&String| !is_cut || !record.starts_with("AUXTRACE ");
        let whole = counted(records(&plain));
        for way in tier.some_of(fixture, &ways, 1) {
            let folder = temp();
            let way = way.map(str::to_owned);
            compared.fetch_add(1, Ordering::Relaxed);
            let Ok(parts) = split(&fixture.path, &way, folder.path()) else {
                if parts(folder.path()).is_empty() {
                    compared.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                return Err(format!("{way:?}: a failure left parts"));
            };
            let (single, others) = counted(parts.iter().flat_map(|part| records(part)));
            let differs = |a: &BTreeMap<String, u32>, b: &BTreeMap<String, u32>| {
                a.iter()
                    .find(|(record, count)| b.get(*record) != Some(count))
                    .map(|(record, _)| record.clone())
            };
            if let Some(record) = differs(&whole.0, &single).or_else(|| differs(&single, &whole.0)) {
                return Err(format!("{way:?}: not exactly once: {record}"));
            }
            if let Some(record) =
                whole.1.keys().filter(is_compared).find(|record| !others.contains_key(*record))
            {
                return Err(format!("{way:?}: in no part: {record}"));
            }
            if let Some(record) =
                others.keys().filter(is_compared).find(|record| !whole.1.contains_key(*record))
            {
                return Err(format!("{way:?}: not in the whole: {record}"));
            }
        }
        Ok(())
    });
    let compared = compared.into_inner();
    assert!(compared > tier.pick(25, 700), "only {compared} ways to split could be compared");
}

tiers!(parts_are_as_long_as_asked_for);
fn parts_are_as_long_as_asked_for(tier: Tier) {
    for fixture in
        tier.first(1, &["recorded/z.p61.data", "recorded/plain.p61.data", "recorded/threads.p73.data"])
    {
        let fixture = Fixture::new(fixture);
        let whole = records(&fixture.path).len();
        for most in [1, 2, 7, 1000] {
            let folder = temp();
            let way = ["--samples".to_owned(), most.to_string()];
            let counts: Vec<usize> = split(&fixture.path, &way, folder.path())
                .unwrap()
                .iter()
                .map(|part| records(part).iter().filter(|record| record.starts_with("SAMPLE ")).count())
                .collect();
            let (last, others) = counts.split_last().unwrap();
            assert!(
                *last <= most && others.iter().all(|&count| count == most),
                "{most}: {counts:?} of {whole}"
            );
        }
    }
}

tiers!(no_part_is_larger_than_asked_for);
fn no_part_is_larger_than_asked_for(tier: Tier) {
    let fixtures: Vec<_> =
        tier.of(recorded()).into_iter().filter(|fixture| !fixture.name.contains("cut-")).collect();
    each_fixture(&fixtures, |fixture| {
        for most in [6000, 12_000, 20_000, 60_000] {
            let folder = temp();
            let way = ["--size".to_owned(), most.to_string()];
            let Ok(parts) = split(&fixture.path, &way, folder.path()) else { continue };
            for part in parts.iter().filter(|part| part.is_file()) {
                let size = fs::metadata(part).unwrap().len();
                if size > most {
                    return Err(format!("{} bytes, not at most {most}", size));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn parts_do_not_depend_on_threads_or_on_how_the_whole_is_stored() {
    for name in ["recorded/forks.p61.data", "recorded/z.p73.data", "recorded/threads-z.p61.data"] {
        let fixture = Fixture::new(name);
        for way in [["--samples", "9"], ["--by", "pid"]] {
            let (one, four, streamed) = (temp(), temp(), temp());
            let with = |threads: &str, folder: &Path| {
                let args =
                    args!["split", "-q", "-@", threads, way[0], way[1], fixture.path, "-o", folder.join("x")];
                assert_eq!(perfx(args).code, Some(0));
                parts(folder)
            };
            let same = |a: &[PathBuf], b: &[PathBuf]| {
                assert_eq!(a.len(), b.len());
                for (a, b) in a.iter().zip(b) {
                    assert_eq!(a.file_name(), b.file_name());
                    same_bytes(name, &fs::read(a).unwrap(), &fs::read(b).unwrap()).unwrap();
                }
            };
            let made = with("1", one.path());
            same(&made, &with("4", four.path()));
            let pipe = perfx(args!["copy", "-q", "--to", "pipe", fixture.path, "-o", "-"]).stdout;
            let args = args!["split", "-q", way[0], way[1], "-", "-o", streamed.path().join("x")];
            assert_eq!(perfx_with(Stdin::Pipe(&pipe), args).code, Some(0));
            for (a, b) in made.iter().zip(parts(streamed.path())) {
                assert_eq!(records(a), records(&b), "{name}");
            }
        }
    }
}

#[test]
fn a_failure_leaves_nothing_new_and_keeps_old_files() {
    let fixture = Fixture::new("recorded/plain.p61.data");
    let folder = temp();
    let way = ["--samples".to_owned(), "5".to_owned()];
    let first = split(&fixture.path, &way, folder.path()).unwrap();
    assert!(first.len() > 2);
    let bytes: Vec<_> = first.iter().map(|part| fs::read(part).unwrap()).collect();
    // An existing part, without -f; then one that cannot be replaced.
    let args = args!["split", "--samples", "5", fixture.path, "-o", folder.path()];
    assert_eq!(perfx(args).code, Some(1));
    fs::remove_file(&first[1]).unwrap();
    fs::create_dir(&first[1]).unwrap();
    fs::write(first[1].join("mine"), "precious").unwrap();
    let args = args!["split", "-f", "--samples", "5", fixture.path, "-o", folder.path()];
    assert_eq!(perfx(args).code, Some(1));
    assert_eq!(parts(folder.path()), first);
    assert_eq!(fs::read(&first[0]).unwrap(), bytes[0]);
    fs::remove_dir_all(&first[1]).unwrap();
    let args = args!["split", "-f", "--samples", "5", fixture.path, "-o", folder.path()];
    assert_eq!(perfx(args).code, Some(0));
    let again: Vec<_> = parts(folder.path()).iter().map(|part| fs::read(part).unwrap()).collect();
    assert!(again == bytes);
    // A truncated end is found when the first part is written.
    let mut torn = fixture.bytes();
    let data = u64::from_le_bytes(torn[40..48].try_into().unwrap()) as usize;
    let size = u64::from_le_bytes(torn[48..56].try_into().unwrap()) as usize;
    torn[data + size / 2..data + size / 2 + 400].fill(0);
    let (input, parts_of_it) = (folder.path().join("torn"), temp());
    fs::write(&input, &torn).unwrap();
    assert_eq!(perfx(args!["split", "--samples", "5", input, "-o", parts_of_it.path()]).code, Some(1));
    assert!(parts(parts_of_it.path()).is_empty());
}

#[test]
fn a_directory_with_kcore_is_split_into_directories_with_kcore() {
    let fixture = Fixture::new("recorded/kcore.p61.data");
    assert_eq!(fixture.form, Form::Directory);
    let folder = temp();
    let parts = split(&fixture.path, &["--samples".to_owned(), "4".to_owned()], folder.path()).unwrap();
    assert!(parts.len() > 1);
    for part in parts {
        assert!(part.join("kcore_dir").is_dir(), "{}", part.display());
        assert_eq!(perfx(args!["doctor", "-q", part]).code, Some(0));
    }
}

#[test]
fn what_split_says() {
    let place = Place::new(&[
        ("several.data", "recorded/several.p61.data"),
        ("forks.data", "recorded/forks.p61.data"),
        ("z.data", "recorded/z.p61.data"),
        ("modifiers.data", "recorded/modifiers.p61.data"),
        ("killed.data", "recorded/killed.p61.data"),
        ("empty.data", "recorded/empty.p61.data"),
        ("aux.data", "crafted/aux-le.data"),
        ("no-time.data", "crafted/order-no-time.data"),
        ("stat.data", "recorded/stat.p73.data"),
    ]);
    fs::create_dir(place.path("parts")).unwrap();
    let lines = [
        "split --time 5ms forks.data",
        "split --samples 20 -n z.data -o parts",
        "split --by pid forks.data -o parts/",
        "split --by event several.data -o e.data",
        "split --by event --drop-unused modifiers.data -o m",
        "split --size 9k several.data -o s",
        "split --time 5ms forks.data",
        "split forks.data",
        "split --time 5ms --by pid forks.data",
        "split --time 5parsecs forks.data -o x",
        "split --time 0 forks.data -o x",
        "split --size 1X forks.data -o x",
        "split --size 99999999999G forks.data -o x",
        "split --size 2k forks.data -o x",
        "split --samples many forks.data -o x",
        "split --by thread forks.data -o x",
        "split --samples 1 forks.data -o -",
        "split --samples 1 forks.data -o /dev/full",
        "split --samples 1 forks.data -o none/x",
        "split --samples 1 killed.data -o x",
        "split --samples 1 empty.data -o x",
        "split --size 1M aux.data -o x",
        "split --time 1s no-time.data -o x",
        "split --samples 2 -n no-time.data -o y",
        "split --by pid stat.data -o p",
    ];
    same("split", "says", &place.say_all(&lines));
}

#[test]
fn a_window_of_a_part_is_what_filter_cuts() {
    // The first part, which needs nothing from earlier parts, equals the output of filter for that window.
    let fixture = Fixture::new("recorded/forks.p61.data");
    let perf_lines = perfs(&["perf"]).iter().find_map(|perf| samples(perf, &fixture.path, &[]));
    let Some(lines) = perf_lines else { return };
    let folder = temp();
    let parts = split(&fixture.path, &["--samples".to_owned(), "10".to_owned()], folder.path()).unwrap();
    let mut times: Vec<u64> = lines.iter().map(|line| line.ns).collect();
    times.sort_unstable();
    let cut = folder.path().join("cut");
    let window = format!(",{}", seconds(times[10]));
    assert_eq!(perfx(args!["filter", "-q", "--time", window, fixture.path, "-o", cut]).code, Some(0));
    same_bytes("filter", &fs::read(&parts[0]).unwrap(), &fs::read(cut).unwrap()).unwrap();
}

#[test]
fn the_parts_joined_are_the_whole() {
    let names = ["forks", "several", "z", "threads", "fp", "cgroups", "namespaces", "switch", "tracepoint"];
    let cases: Vec<_> = names.iter().flat_map(|name| WAYS.map(|way| (*name, way))).collect();
    for perf in perfs(&["perf"]) {
        each(
            &cases,
            |case| format!("{case:?}"),
            |(name, way)| {
                let fixture = Fixture::new(&format!("recorded/{name}.p61.data"));
                let folder = temp();
                let parts = split(&fixture.path, &way.map(str::to_owned), folder.path())?;
                if parts.len() == 1 {
                    return Ok(());
                }
                let whole = folder.path().join("whole");
                let mut args = args!["join", "-q", "-o", whole].to_vec();
                args.extend(parts.into_iter().map(OsString::from));
                perfx(args).done()?;
                let shown = |path: &Path| -> Vec<String> {
                    let args =
                        args!["script", "--show-task-events", "--show-mmap-events", "--ns", "-f", "-i", path];
                    perf.run(Stdin::Null, args).text().lines().map(str::to_owned).collect()
                };
                same_lines("joined", &shown(&fixture.path), &shown(&whole))
            },
        );
    }
}

/// The notice was hidden by -q, and the exit code was 0.
#[test]
fn a_foreign_recording_that_is_named_like_a_part_is_a_warning() {
    let (folder, plain) = (temp(), Fixture::new("recorded/plain.p61.data").path);
    fs::copy(Fixture::new("recorded/fp.p61.data").path, folder.path().join("g.0044.data")).unwrap();
    for options in [&["-n"][..], &["-q"], &["-q", "-f"]] {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(["split", "--samples", "20", "-o", "g"]).args(options);
        let ran = run(command.arg(&plain), Stdin::Null);
        assert_eq!(ran.code, Some(3), "{options:?}: {}", ran.stderr);
        let warning = "perfx: warning: g.0044.data: named like a part but not written by this split";
        assert!(ran.stderr.contains(warning), "{options:?}: {}", ran.stderr);
    }
}

/// join refused them, because their records can't be sorted.
#[test]
fn parts_without_times_are_joined_one_after_the_other() {
    let folder = temp();
    let path = Fixture::new("recorded/per-thread.p61.data").path;
    let ran = perfx(args!["split", "--samples", "2", path, "-o", folder.path().join("p")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let parts = parts(folder.path());
    assert!(parts.len() > 10, "{parts:?}");
    let whole = folder.path().join("whole.data");
    let mut line = vec!["join".into(), "-o".into(), whole.clone().into_os_string()];
    line.extend(parts.iter().map(|part| part.clone().into_os_string()));
    let ran = perfx(line);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("follow those of the one before"), "{}", ran.stderr);
    for perf in perfs(&["perf", "perf-new"]) {
        let shown = |path: &Path| perf.run(Stdin::Null, args!["script", "-i", path]).done().unwrap().text();
        assert_eq!(shown(&whole), shown(&path), "{}", perf.name);
    }
    // Records with a time can't be ordered among records without one.
    let ran = perfx(args!["join", path, Fixture::new("recorded/plain.p61.data").path, "-n"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("the records of event 0 have no time"), "{}", ran.stderr);
}

/// Regression: the message was "1 bytes are too few".
#[test]
fn a_size_of_1_is_too_small_and_not_1_bytes() {
    let (folder, path) = (temp(), Fixture::new("recorded/plain.p61.data").path);
    let ran = perfx(args!["split", "--size", "1", path, "-o", folder.path().join("p")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("so --size 1 is too small: give at least "), "{}", ran.stderr);
}

const WAYS: [[&str; 2]; 4] = [["--samples", "7"], ["--by", "pid"], ["--by", "event"], ["--time", "3ms"]];

/// Regression: `perfx join g.*` found the third part of an older split, and duplicated its samples.
#[test]
fn parts_that_an_older_split_left_are_named_and_removed() {
    let plain = Fixture::new("recorded/plain.p61.data").path;
    let folder = temp();
    let run = |way: &[&str]| perfx([&["split", plain.to_str().unwrap(), "-o"], way].concat());
    let names = || {
        let names = parts(folder.path()).into_iter().map(|path| path.file_name().unwrap().to_owned());
        names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let prefix = folder.path().join("g").display().to_string();
    assert_eq!(run(&[&prefix, "--samples", "10"]).code, Some(0));
    let many = names();
    assert!(many.len() > 4, "{many:?}");
    // A gap in the numbers ends the parts of a split, and files other than recordings are not parts.
    fs::remove_file(folder.path().join(&many[many.len() - 2])).unwrap();
    fs::write(folder.path().join("g.note.data"), "mine").unwrap();
    let before = names();
    let ran = run(&[&prefix, "--samples", "1000000"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(names(), before);
    let ran = run(&[&prefix, "--samples", "1000000", "-f", "-n"]);
    assert!(ran.stderr.contains("would remove") && names() == before, "{}", ran.stderr);
    let ran = run(&[&prefix, "--samples", "1000000", "-f"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(names(), ["g.0001.data", &many[many.len() - 1], "g.note.data"]);
    for removed in &many[1..many.len() - 2] {
        assert!(ran.stderr.contains(&format!("{removed}, part of an older split")), "{}", ran.stderr);
    }
    let last = format!("{}: named like a part but not written by this split", many[many.len() - 1]);
    assert!(ran.stderr.contains(&last), "{}", ran.stderr);
    // Another recording is not a part either, even if it is named like the next part.
    let other = folder.path().join("g.0002.data");
    fs::copy(Fixture::new("recorded/fp.p61.data").path, &other).unwrap();
    let ran = run(&[&prefix, "--samples", "1000000", "-f"]);
    assert_eq!((ran.code, other.exists()), (Some(3), true), "{}", ran.stderr);
    fs::remove_file(&other).unwrap();
    // If the first part is missing, there is still a second one.
    let ran = run(&[&format!("{prefix}2"), "--samples", "10"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fs::remove_file(folder.path().join("g2.0001.data")).unwrap();
    let ran = run(&[&format!("{prefix}2"), "--samples", "1000000"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("g2.0002.data is part of an older split"), "{}", ran.stderr);
}

#[test]
fn a_prefix_that_ends_with_a_slash_is_a_folder_that_is_made() {
    let folder = temp();
    let plain = Fixture::new("recorded/plain.p61.data").path;
    let to = format!("{}/new/parts/", folder.path().display());
    let split = |more: &str| perfx(args!["split", "--samples", more, &plain, "-o", &to]);
    assert_eq!(perfx(args!["split", "-n", "--samples", "10", &plain, "-o", &to]).code, Some(0));
    assert_eq!(split("nonsense").code, Some(2));
    assert!(!folder.path().join("new").exists());
    let ran = split("1000000");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(folder.path().join("new/parts/plain.p61.0001.data").is_file());
}

/// A chunk of AUX data is in each part that may need it; their join contained it several times.
#[test]
fn aux_data_of_parts_is_joined_once() {
    for name in ["aux-big", "aux-odd-size", "aux-payload-looks", "aux-queue-conflict", "aux-spe"] {
        let fixture = Fixture::new(&format!("crafted/{name}.data"));
        let chunks = |path: &Path| -> Vec<String> {
            sorted(records(path).into_iter().filter(|record| record.starts_with("AUXTRACE ")).collect())
        };
        let whole = chunks(&fixture.path);
        assert!(!whole.is_empty(), "{name}");
        let (folder, out) = (temp(), temp());
        let joined = out.path().join("joined.data");
        let parts = split(&fixture.path, &["--samples", "2"].map(str::to_owned), folder.path()).unwrap();
        assert!(parts.len() > 1 && parts.iter().all(|part| !chunks(part).is_empty()), "{name}");
        let mut args = args!["join", "-q", "-o", joined].to_vec();
        args.extend(parts.iter().map(Into::into));
        perfx(args).done().unwrap();
        assert_eq!(chunks(&joined), whole, "{name}, of {} parts", parts.len());
    }
}

/// Each record of Arm SPE, and all between two PSB packets of Intel PT, is in exactly one part.
#[test]
fn cut_aux_data_of_parts_adds_up() {
    // The data of each buffer, in order. Zeros are padding, or disappear on both sides.
    let data = |paths: &[std::path::PathBuf]| {
        let mut buffers: std::collections::BTreeMap<u32, Vec<u8>> = Default::default();
        for path in paths {
            let mut recording = perfx_format::read::Recording::open(path).unwrap();
            let mut records = recording.records();
            while let Some(record) = records.next_record().unwrap() {
                let auxtrace = perfx_format::record::aux::Auxtrace::of(&record);
                let Some(auxtrace) = auxtrace else { continue };
                let payload = record.payload().iter().filter(|&&byte| byte != 0);
                buffers.entry(auxtrace.idx).or_default().extend(payload);
            }
        }
        buffers
    };
    for (name, way) in [("pt-psb", "10us"), ("spe-v2", "2us"), ("spe-be", "1us")] {
        let fixture = Fixture::new(&format!("crafted/{name}.data"));
        let folder = temp();
        let parts = split(&fixture.path, &["--time", way].map(str::to_owned), folder.path()).unwrap();
        assert!(parts.len() > 1, "{name}");
        assert_eq!(data(&parts), data(std::slice::from_ref(&fixture.path)), "{name}");
        assert!(
            parts.iter().all(|part| part.metadata().unwrap().len() < fixture.path.metadata().unwrap().len())
        );
    }
}
