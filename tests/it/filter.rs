//! What `perfx filter` cuts out is what perf would have shown of the whole, and nothing else is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::args;
use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Form, Perf, Stdin, each, named, perfs, perfx, perfx_with, recorded, same_lines, temp,
};

/// One line of `perf script -F comm,pid,tid,time,…`.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) comm: String,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) ns: u64,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        // A comm can hold spaces, so the first `PID/TID SECONDS.NS:` is looked for.
        let (at, task) = text.match_indices('/').find_map(|(slash, _)| {
            let start = text[..slash].rfind(' ')? + 1;
            let pid: u32 = text[start..slash].parse().ok()?;
            let mut rest = text[slash + 1..].split_whitespace();
            let tid: u32 = rest.next()?.parse().ok()?;
            let (seconds, fraction) = rest.next()?.strip_suffix(':')?.split_once('.')?;
            let ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?;
            Some((start, (pid, tid, ns)))
        })?;
        let (pid, tid, ns) = task;
        Some(Line { text: text.to_owned(), comm: text[..at].trim().to_owned(), pid, tid, ns })
    }
}

/// What perf shows of a recording's samples, call chains left out; `None` where it refuses the recording.
pub(crate) fn samples(perf: &Perf, path: &Path, more: &[&str]) -> Option<Vec<Line>> {
    let fields = "comm,pid,tid,time,event,ip,sym,dso";
    let mut args =
        args!["script", "-f", "--ns", "-G", "--no-demangle", "--kallsyms", "/dev/null", "-F", fields, "-i"]
            .to_vec();
    let bytes = if path.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    let is_pipe = bytes.get(8..16).is_some_and(|size| size[0] == 16 || size[7] == 16);
    args.push(if is_pipe { "-".into() } else { path.into() });
    args.extend(more.iter().map(Into::into));
    let ran = perf.run(if is_pipe { Stdin::Pipe(&bytes) } else { Stdin::Null }, args);
    (ran.code == Some(0)).then(|| ran.text().lines().filter_map(Line::parse).collect())
}

/// The one that occurs most often.
fn most<T: Ord + Clone>(all: impl Iterator<Item = T>) -> T {
    let mut counts = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_insert(0u32) += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).expect("there are some").0
}

pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A way to cut, and which of perf's lines must be left.
type Cut = (Vec<String>, Box<dyn Fn(&Line) -> bool>);

fn cuts(lines: &[Line]) -> Vec<Cut> {
    let mut times: Vec<u64> = lines.iter().map(|line| line.ns).collect();
    times.sort_unstable();
    let (start, stop) = (times[times.len() / 3], times[times.len() * 2 / 3]);
    let (pid, tid) = (most(lines.iter().map(|line| line.pid)), most(lines.iter().map(|line| line.tid)));
    let comm = most(lines.iter().map(|line| line.comm.clone()));
    let escaped: String =
        comm.chars().flat_map(|c| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c])).collect();
    let name = comm.clone();
    let window = format!("{},{}", seconds(start), seconds(stop));
    let args = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
    let mut cuts: Vec<Cut> = vec![
        (args(&["--time", &window]), Box::new(move |line| (start..stop).contains(&line.ns))),
        (args(&["--pid", &pid.to_string()]), Box::new(move |line| line.pid == pid)),
        (args(&["--exclude-tid", &tid.to_string()]), Box::new(move |line| line.tid != tid)),
    ];
    // perf makes up a name where none was recorded.
    if !comm.starts_with(':') && !comm.contains(',') {
        let both = args(&["--comm", &escaped, "--time", &window]);
        cuts.push((both, Box::new(move |line| line.comm == name && (start..stop).contains(&line.ns))));
    }
    cuts
}

#[test]
fn perf_shows_of_the_cut_what_it_shows_of_that_part_of_the_whole() {
    let mut compared = 0;
    for perf in perfs(&["perf", "perf-new"]) {
        let own = if perf.name == "perf" { "p61" } else { "p73" };
        let mine: Vec<_> = recorded().into_iter().filter(|f| f.recorded_by() == Some(own)).collect();
        let mut cases = Vec::new();
        for fixture in mine {
            let Some(lines) = samples(&perf, &fixture.path, &[]).filter(|lines| lines.len() > 3) else {
                continue;
            };
            // perf shows what group members counted since the sample before, which in a cut is another one; and a name with a newline is no line.
            if ["group-read", "pipe-group", "name-newline"].iter().any(|name| fixture.name.contains(name)) {
                continue;
            }
            // What perf record was killed over is for `perfx recover`.
            if perfx(args!["copy", "-n", fixture.path]).code != Some(0) {
                continue;
            }
            cases.extend(cuts(&lines).into_iter().map(|cut| (fixture.clone(), lines.clone(), cut.0, cut.1)));
        }
        let cases: Vec<_> = cases
            .into_iter()
            .map(|(f, l, a, k)| {
                let expected: Vec<String> =
                    l.into_iter().filter(|line| k(line)).map(|line| line.text).collect();
                (f, expected, a)
            })
            .collect();
        compared += cases.len();
        each(
            &cases,
            |(fixture, _, args)| format!("{} {}", fixture.name, args.join(" ")),
            |(fixture, expected, how)| {
                let folder = temp();
                let output = folder.path().join("cut.data");
                let mut args = args!["filter", "-q", fixture.path, "-o", output].to_vec();
                args.extend(how.iter().map(Into::into));
                let ran = perfx(args);
                let empty = expected.is_empty();
                if ran.code != Some(if empty { 3 } else { 0 }) {
                    return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
                }
                let lines = samples(&perf, &output, &[]).ok_or("perf refuses the cut")?;
                let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
                same_lines(perf.name, expected, &lines)
            },
        );
    }
    assert!(compared > 200, "only {compared} cuts could be compared");
}

#[test]
fn shares_of_time_and_pids_are_cut_as_perf_script_cuts_them() {
    for perf in perfs(&["perf"]) {
        for fixture in [Fixture::new("recorded/forks.p61.data"), Fixture::new("recorded/several.p61.data")] {
            for how in [&["--time", "10%-40%"], &["--time", "25%/3"], &["--time", "0%-10%,50%-75%"]] {
                let folder = temp();
                let output = folder.path().join("cut.data");
                let mut args = args!["filter", "-q", fixture.path, "-o", output].to_vec();
                args.extend(how.iter().map(Into::into));
                assert!(matches!(perfx(args).code, Some(0 | 3)));
                let text = |lines: Option<Vec<Line>>| -> Vec<String> {
                    lines.expect("perf reads it").into_iter().map(|line| line.text).collect()
                };
                let whole = text(samples(&perf, &fixture.path, how));
                same_lines(&format!("{} {how:?}", fixture.name), &whole, &text(samples(&perf, &output, &[])))
                    .unwrap();
            }
        }
    }
}

/// The records of a dump without their places.
pub(crate) fn records(path: &Path) -> Vec<String> {
    let ran = perfx(args!["dump", "-q", path]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let text = ran.text();
    let lines = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines.filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
}

#[test]
fn what_stays_is_as_it_was_and_in_order() {
    let fixtures: Vec<_> = crate::support::all()
        .into_iter()
        .filter(|f| !f.name.contains("bomb") && !f.name.contains("killed"))
        .collect();
    crate::support::each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let output = folder.path().join("cut.data");
        let ran = perfx(args![
            "filter",
            "-q",
            "--time",
            "20%-60%",
            "--exclude-kind",
            "EXIT",
            fixture.path,
            "-o",
            output
        ]);
        if !matches!(ran.code, Some(0 | 3)) {
            return if output.exists() { Err("a failure left an output".into()) } else { Ok(()) };
        }
        let whole = records(&fixture.path);
        let mut rest = whole.iter();
        for record in records(&output) {
            if !rest.any(|other| *other == record) {
                return Err(format!("the input has no such record, or not there: {record}"));
            }
            if record.starts_with("EXIT ") {
                return Err("an excluded record stayed".into());
            }
        }
        let same = perfx(args![
            "filter",
            "-q",
            "--time",
            "20%-60%",
            "--exclude-kind",
            "EXIT",
            fixture.path,
            "-o",
            folder.path().join("one"),
            "-@",
            "1"
        ]);
        assert_eq!(same.code, ran.code);
        let data = |name: &str| {
            let path = folder.path().join(name);
            fs::read(if path.is_dir() { path.join("data") } else { path }).unwrap()
        };
        crate::support::same_bytes("on one thread", &data("cut.data"), &data("one"))
    });
}

#[test]
fn a_stream_is_cut_as_the_file_is() {
    let fixture = Fixture::new("recorded/forks.p61.data");
    let pipe = perfx(args!["copy", "-q", "--to", "pipe", fixture.path, "-o", "-"]).stdout;
    let folder = temp();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    assert_eq!(perfx(args!["filter", "-q", "--comm", "forks", fixture.path, "-o", a]).code, Some(0));
    assert_eq!(
        perfx_with(Stdin::Pipe(&pipe), args!["filter", "-q", "--comm", "forks", "-o", b]).code,
        Some(0)
    );
    assert_eq!(records(&a), records(&b));
}

#[test]
fn processes_without_samples_leave_and_their_parents_stay() {
    let place = Place::new(&[("forks.data", "recorded/forks.p61.data")]);
    let kinds = ["COMM", "FORK", "EXIT", "MMAP2", "FINISHED_ROUND"];
    let mut text = place.say("filter --time 40%-60% forks.data -o cut.data");
    text += &place.dump("cut.data", &["feature SAMPLE_TIME"], &kinds);
    same("filter", "forks", &text);
}

#[test]
fn aux_data_stays_in_whole_chunks_with_its_index() {
    let place = Place::new(&[("aux.data", "crafted/aux-le.data")]);
    let lines = [
        "filter --time 0%-30% aux.data -o cut.data",
        "dump --only AUXTRACE cut.data",
        "doctor cut.data",
        "filter --cpu 1000 aux.data -o none.data",
        "dump --only AUXTRACE none.data",
        "doctor none.data",
    ];
    let text = place.say_all(&lines);
    same("filter", "aux", &text);
}

#[test]
fn unused_events_and_build_ids_leave_with_all_that_names_them() {
    for fixture in named("recorded/several.p").into_iter().filter(|fixture| fixture.form == Form::File) {
        for perf in perfs(&["perf"]).iter().filter(|_| fixture.recorded_by() == Some("p61")) {
            let folder = temp();
            let output = folder.path().join("cut.data");
            let lines = samples(perf, &fixture.path, &[]).unwrap();
            let event = |line: &Line| {
                line.text
                    .split_whitespace()
                    .find(|word| word.ends_with(':') && !word.contains('.'))
                    .unwrap()
                    .trim_end_matches(':')
                    .to_owned()
            };
            let name = most(lines.iter().map(event));
            let ran = perfx(args!["filter", "--event", name, "--drop-unused", fixture.path, "-o", output]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let left = samples(perf, &output, &[]).unwrap();
            assert_eq!(left.len(), lines.iter().filter(|line| event(line) == name).count());
            let said = perf.run(Stdin::Null, args!["evlist", "-i", output]);
            assert!(
                said.text().lines().count()
                    < perf.run(Stdin::Null, args!["evlist", "-i", fixture.path]).text().lines().count(),
                "{}",
                said.text()
            );
        }
    }
}

/// perf makes a sample of each counter that a group read has, and knows whose it is by its id.
#[test]
fn events_that_only_group_reads_name_are_used() {
    for (name, perf) in [("recorded/group-read.p61.data", "perf"), ("recorded/group-read.p73.data", "perf-new")] {
        let fixture = Fixture::new(name);
        let folder = temp();
        let output = folder.path().join("cut.data");
        let ran = perfx(args!["filter", "--time", "20%-50%", "--drop-unused", fixture.path, "-o", output]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        for perf in perfs(&[perf]) {
            let said = perf.run(Stdin::Null, args!["script", "-i", output]);
            assert!(!said.stderr.contains("not present"), "{}", said.stderr);
            assert!(said.text().contains("page-faults:"), "{}", said.text());
        }
    }
}

#[test]
fn what_cannot_be_understood_is_a_usage_error_and_says_why() {
    let place = Place::new(&[
        ("plain.data", "recorded/plain.p61.data"),
        ("no-time.data", "crafted/order-no-time.data"),
    ]);
    let lines = [
        "filter plain.data -o out",
        "filter --time 1 plain.data -o out",
        "filter --time 110% plain.data -o out",
        "filter --time 2,1 plain.data -o out",
        "filter --time 2026-01-01T00:00:00Z, plain.data -o out",
        "filter --pid bash plain.data -o out",
        "filter --comm '(' plain.data -o out",
        "filter --kind NONSENSE plain.data -o out",
        "filter --cpu 0 plain.data -o out",
        "filter --time 10%-20% no-time.data -o out",
        "filter --comm nobody plain.data -o out",
        "run -p filter:time=1 plain.data -o out",
    ];
    same("filter", "errors", &place.say_all(&lines));
}
