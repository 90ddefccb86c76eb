//! The output of `perfx filter` is perf's output for the selected samples, and nothing else changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use perfx_format::read::Recording;
use perfx_format::{Kinds, Layouts, RecordType};

use crate::parse::{self, HEADER_ATTR, HEADER_FEATURE, Order};
use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Form, Perf, Stdin, Tier, each, named, perf, perfs, perfx, perfx_with, recorded, same_bytes,
    same_lines, temp,
};
use crate::tiny;
use crate::{args, tiers};

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
        // A name may contain spaces, so search the first `PID/TID SECONDS.NS:`.
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

impl Line {
    fn event(&self) -> String {
        let words: Vec<_> = self.text.split_whitespace().collect();
        let time = words.iter().position(|word| word.ends_with(':') && word.contains('.')).unwrap_or(0);
        let event = words[time + 1..].iter().find(|word| word.ends_with(':'));
        event.map_or_else(String::new, |word| word[..word.len() - 1].to_owned())
    }

    fn dso(&self) -> String {
        let dso = self.text.rsplit_once('(').and_then(|(_, dso)| dso.strip_suffix(')'));
        dso.unwrap_or_default().to_owned()
    }
}

/// A regular expression that matches exactly this name.
fn escape(name: &str) -> String {
    name.chars().flat_map(|c| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c])).collect()
}

/// perf's lines for a recording's samples, without call chains; `None` if perf refuses the recording.
pub(crate) fn samples(perf: &Perf, path: &Path, more: &[&str]) -> Option<Vec<Line>> {
    let fields = "comm,pid,tid,time,event,ip,sym,dso";
    let mut args = args!["script", "-f", "--ns", "-G", "--no-demangle", "-F", fields, "-i"].to_vec();
    let bytes = if path.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    let is_pipe = bytes.get(8..16).is_some_and(|size| size[0] == 16 || size[7] == 16);
    args.push(if is_pipe { "-".into() } else { path.into() });
    args.extend(more.iter().map(Into::into));
    let ran = perf.run(if is_pipe { Stdin::Pipe(&bytes) } else { Stdin::Null }, args);
    (ran.code == Some(0)).then(|| ran.text().lines().filter_map(Line::parse).collect())
}

/// The most frequent value.
fn most<T: Ord + Clone>(all: impl Iterator<Item = T>) -> T {
    let mut counts = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_insert(0u32) += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).expect("there are some").0
}

pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Options of a filter, and which of perf's lines must remain.
type Cut = (Vec<String>, Box<dyn Fn(&Line) -> bool>);

fn cuts(lines: &[Line]) -> Vec<Cut> {
    let mut times: Vec<u64> = lines.iter().map(|line| line.ns).collect();
    times.sort_unstable();
    let (start, stop) = (times[times.len() / 3], times[times.len() * 2 / 3]);
    let (pid, tid) = (most(lines.iter().map(|line| line.pid)), most(lines.iter().map(|line| line.tid)));
    let comm = most(lines.iter().map(|line| line.comm.clone()));
    let escaped = escape(&comm);
    let name = comm.clone();
    let window = format!("{},{}", seconds(start), seconds(stop));
    let args = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
    let mut cuts: Vec<Cut> = vec![
        (args(&["--time", &window]), Box::new(move |line| (start..stop).contains(&line.ns))),
        (args(&["--pid", &pid.to_string()]), Box::new(move |line| line.pid == pid)),
        (args(&["--exclude-tid", &tid.to_string()]), Box::new(move |line| line.tid != tid)),
    ];
    // Two windows: the second begins with the first sample that the first one excludes. Then the windows
    // relative to the first sample.
    let first = times[0];
    let later = times[times.len() * 5 / 6];
    let both = move |line: &Line| (start..stop).contains(&line.ns) || line.ns >= later;
    cuts.push((args(&["--time", &format!("{window} {},", seconds(later))]), Box::new(both)));
    let after = format!("+{}ns,+{}ns", start - first, stop - first);
    cuts.push((args(&["--time", &after]), Box::new(move |line| (start..stop).contains(&line.ns))));
    let event = most(lines.iter().map(Line::event));
    if !event.contains(',') {
        let name = event.clone();
        cuts.push((args(&["--event", &escape(&event)]), Box::new(move |line| line.event() == name)));
    }
    let dso = most(lines.iter().map(Line::dso));
    if dso.starts_with('/') && !dso.contains(',') {
        let name = dso.clone();
        cuts.push((args(&["--exclude-dso", &escape(&dso)]), Box::new(move |line| line.dso() != name)));
    }
    // perf invents a name if none was recorded.
    if !comm.starts_with(':') && !comm.contains(',') {
        let both = args(&["--comm", &escaped, "--time", &window]);
        cuts.push((both, Box::new(move |line| line.comm == name && (start..stop).contains(&line.ns))));
    }
    cuts
}

tiers!(perf_shows_the_same_for_a_cut_and_that_part_of_the_whole);
fn perf_shows_the_same_for_a_cut_and_that_part_of_the_whole(tier: Tier) {
    let mut compared = 0;
    let perfs = perfs(&["perf", "perf-new"]);
    for perf in &perfs {
        let own = if perf.name == "perf" { "p61" } else { "p73" };
        let mine: Vec<_> = tier.of(recorded()).into_iter().filter(|f| f.recorded_by() == Some(own)).collect();
        let mut cases = Vec::new();
        for fixture in mine {
            let Some(lines) = samples(perf, &fixture.path, &[]).filter(|lines| lines.len() > 3) else {
                continue;
            };
            // perf shows the counts of group members since the previous sample, which differ after a cut; and
            // a name with a newline is not one line.
            if ["group-read", "pipe-group", "name-newline"].iter().any(|name| fixture.name.contains(name)) {
                continue;
            }
            // A recording of a killed perf record is a case for `perfx recover`.
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
                let lines = samples(perf, &output, &[]).ok_or("perf refuses the cut")?;
                let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
                same_lines(perf.name, expected, &lines)
            },
        );
    }
    assert!(perfs.is_empty() || compared > tier.pick(20, 200), "only {compared} cuts could be compared");
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

/// perf uses feature SAMPLE_TIME, and would show nothing.
#[test]
fn shares_of_time_are_those_of_the_samples_where_sample_time_is_nonsense() {
    let sampled = tiny::IP | tiny::TID | tiny::TIME;
    let data: Vec<u8> = (0..10).flat_map(|number| tiny::sample(7, 1_000 + 100 * number)).collect();
    let folder = temp();
    let [input, output] = ["in.data", "out.data"].map(|name| folder.path().join(name));
    let far = 1_000_000_000_000_000;
    for (said, code) in
        [((1_000, 1_900), 0), ((0, 0), 0), ((0, u64::MAX), 3), ((1_900, 1_000), 3), ((far, far + 900), 3)]
    {
        let (first, last): (u64, u64) = said;
        let section = [first.to_le_bytes(), last.to_le_bytes()].concat();
        fs::write(&input, tiny::file(sampled, 0, &data, &[(21, section)])).unwrap();
        for window in ["0%-50%", "+0ns,+450ns"] {
            let ran = perfx(args!["filter", "-f", "--time", window, input, "-o", output]);
            assert_eq!(ran.code, Some(code), "{said:?} {window}: {}", ran.stderr);
            assert_eq!(ran.stderr.contains("feature SAMPLE_TIME says"), code == 3, "{}", ran.stderr);
            assert!(ran.stderr.contains("kept 5 of 10 samples"), "{said:?} {window}: {}", ran.stderr);
        }
        // Absolute times do not depend on it.
        let ran = perfx(args!["filter", "-f", "--time", "0.0000010,0.0000014", input, "-o", output]);
        assert_eq!(ran.code, Some(0), "{said:?}: {}", ran.stderr);
    }
}

#[test]
fn options_of_perf_select_the_same_samples() {
    for (perf, version) in [("perf", "p61"), ("perf-new", "p73")] {
        for perf in perfs(&[perf]) {
            for name in ["allbits", "several", "forks", "switch", "threads", "namespaces"] {
                let fixture = Fixture::new(&format!("recorded/{name}.{version}.data"));
                let lines = samples(&perf, &fixture.path, &[]).unwrap();
                let (pid, tid) =
                    (most(lines.iter().map(|line| line.pid)), most(lines.iter().map(|line| line.tid)));
                let comm = most(lines.iter().map(|line| line.comm.clone()));
                let mut options = vec![("--pid", pid.to_string()), ("--tid", tid.to_string())];
                // perf splits a name at a comma, and shows an invented name.
                options.extend((!comm.starts_with(':')).then_some(("--comm", comm)));
                options.extend((name == "allbits").then_some(("--cpu", "1".to_owned())));
                for (option, value) in options {
                    let own = if option == "--comm" { "--comms" } else { option };
                    let whole = samples(&perf, &fixture.path, &[own, &value]).unwrap();
                    let folder = temp();
                    let output = folder.path().join("cut.data");
                    let wanted = if option == "--comm" { escape(&value) } else { value.clone() };
                    let ran = perfx(args!["filter", "-q", option, wanted, fixture.path, "-o", output]);
                    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
                    let text = |lines: Vec<Line>| lines.into_iter().map(|line| line.text).collect::<Vec<_>>();
                    let cut = samples(&perf, &output, &[]).unwrap();
                    same_lines(&format!("{name} {option} {value}"), &text(whole), &text(cut)).unwrap();
                }
            }
        }
    }
}

#[test]
fn wall_clock_times_are_converted_by_clock_data() {
    for name in ["clock-realtime.p73", "clock-monotonic.p61", "clock-boottime.p73", "clock-tai.p73"] {
        let fixture = Fixture::new(&format!("recorded/{name}.data"));
        let dump = perfx(args!["dump", "-q", fixture.path]).text();
        let number = |key: &str| -> u64 {
            let line = dump.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap().trim_start_matches(':').trim().parse().unwrap()
        };
        let (wall, clock) = (number("wall_ns"), number("clock_ns"));
        let time = |line: &str| -> Option<u64> {
            let line = line.split_once(' ')?.1.strip_prefix("SAMPLE ")?;
            line.split(' ').find_map(|word| word.strip_prefix("time=")?.parse().ok())
        };
        let mut times: Vec<u64> = dump.lines().filter_map(time).collect();
        times.sort_unstable();
        let (start, stop) = (times[times.len() / 4], times[times.len() / 2]);
        let rfc3339 = |ns: u64| {
            let since = wall - clock.min(wall) + ns - clock.saturating_sub(wall);
            perfx_look::clock::rfc3339(since)
        };
        let folder = temp();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let window = format!("{},{}", rfc3339(start), rfc3339(stop));
        let ran = perfx(args!["filter", "-q", "--time", window, fixture.path, "-o", a]);
        assert_eq!(ran.code, Some(0), "{name} {window}: {}", ran.stderr);
        let window = format!("{},{}", seconds(start), seconds(stop));
        assert_eq!(perfx(args!["filter", "-q", "--time", window, fixture.path, "-o", b]).code, Some(0));
        assert_eq!(records(&a), records(&b), "{name}");
        let left = records(&a).iter().filter(|record| record.starts_with("SAMPLE ")).count();
        // Half-open: a sample at `stop` is excluded.
        assert_eq!(left, times.iter().filter(|time| (start..stop).contains(time)).count(), "{name}");
    }
}

#[test]
fn guests_are_machines_and_deferred_call_chains_follow_their_samples() {
    let place = Place::new(&[
        ("guest.data", "crafted/guest-le.data"),
        ("deferred.data", "crafted/sample-deferred-le.data"),
    ]);
    let lines = [
        "dump -q --only SAMPLE,MMAP,MMAP2,CALLCHAIN_DEFERRED guest.data",
        "filter --machine host guest.data -o host.data",
        "dump -q --only SAMPLE,MMAP,MMAP2 host.data",
        "filter --exclude-machine host guest.data -o guests.data",
        "dump -q --only SAMPLE,MMAP,MMAP2 guests.data",
        "filter --machine 1 guest.data -o none.data",
        "dump -q --only SAMPLE,CALLCHAIN_DEFERRED deferred.data",
        "filter --time 0%-50% deferred.data -o cut.data",
        "dump -q --only SAMPLE,CALLCHAIN_DEFERRED cut.data",
    ];
    same("filter", "guests", &place.say_all(&lines));
}

/// The records of a dump without their offsets.
pub(crate) fn records(path: &Path) -> Vec<String> {
    let ran = perfx(args!["dump", "-q", path]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let text = ran.text();
    let lines = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines.filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
}

tiers!(remaining_records_are_unchanged_and_in_order);
fn remaining_records_are_unchanged_and_in_order(tier: Tier) {
    let fixtures: Vec<_> = tier
        .of(crate::support::sound())
        .into_iter()
        .filter(|f| !f.name.contains("bomb") && !f.name.contains("killed"))
        .collect();
    crate::support::each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let output = folder.path().join("cut.data");
        let ran = perfx(args![
            "filter", "-q", "--time", "20%-60%", "--exclude-kind", "EXIT", fixture.path, "-o", output
        ]);
        if !matches!(ran.code, Some(0 | 3)) {
            return if output.exists() { Err("a failure left an output".into()) } else { Ok(()) };
        }
        let whole = records(&fixture.path);
        let mut rest = whole.iter();
        for record in records(&output) {
            let is_cut = |line: &str| {
                // A part of the AUX data of these tracers.
                let known = ["/spe-", "/pt-"].iter().any(|part| fixture.name.contains(part));
                known && record.starts_with("AUXTRACE ") && line.starts_with("AUXTRACE ")
            };
            if !rest.any(|other| *other == record || is_cut(other)) {
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
        // It has no samples, so the times of the AUX data count.
        "filter --time 50%-54% aux.data -o cut.data",
        "dump --only AUXTRACE cut.data",
        "doctor cut.data",
        "filter --cpu 1000 aux.data -o none.data",
        "dump --only AUXTRACE none.data",
        "doctor none.data",
    ];
    let text = place.say_all(&lines);
    same("filter", "aux", &text);
}

/// Lines of `perf script --itrace` within the window. Ignores the order of lines of one time, the position of
/// a PSB in its chunk, and perf's repeated report of the frequency at its first PSB.
fn decoded(perf: &Perf, input: &Path, itrace: &str, window: (u64, u64)) -> Vec<String> {
    let fields =
        if itrace.contains('p') { "cpu,time,event,trace" } else { "cpu,time,event,ip,addr,weight,data_src" };
    let args = args!["script", "-f", "--ns", format!("--itrace={itrace}"), "-F", fields, "-i", input];
    let ran = perf.run(Stdin::Null, args).done().unwrap();
    let time = |line: &str| -> Option<u64> {
        let word = line.split_whitespace().nth(1)?.trim_end_matches(':').replace('.', "");
        word.parse().ok()
    };
    let text = ran.text();
    let inside = text.lines().filter(|line| !line.contains("cbr") && !line.contains("cpu-clock"));
    let inside = inside.filter(|line| time(line).is_some_and(|time| (window.0..window.1).contains(&time)));
    // The widths of columns depend on all lines.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> =
        inside.map(|line| words(line.split("psb offs").next().unwrap_or(line))).collect();
    lines.sort();
    lines
}

#[test]
fn aux_data_is_cut_to_the_window() {
    let Some(perf) = perf("perf-new") else { return };
    let folder = temp();
    let out = folder.path().join("out.data");
    let bytes = |path: &Path| {
        let mut recording = Recording::open(path).unwrap();
        let mut records = recording.records();
        let mut bytes = 0;
        while let Some(record) = records.next_record().unwrap() {
            bytes += if record.kind() == RecordType::AUXTRACE { record.payload().len() } else { 0 };
        }
        bytes
    };
    let spe = ["spe-v2", "spe-be", "spe-z", "spe-pipe"].map(|name| (name, "i1ibM"));
    for (name, itrace) in spe.into_iter().chain([("pt-psb", "p")]) {
        let input = Fixture::new(&format!("crafted/{name}.data")).path;
        // perf does not decode SPE from pipe data; the other recording has the same data.
        let whole = if name == "spe-pipe" { Fixture::new("crafted/spe-v2.data").path } else { input.clone() };
        let length = if name == "pt-psb" { 30_000 } else { 2_000 };
        for (from, to) in [(10, 40), (0, 100), (49, 51), (90, 200)] {
            let window = (1_000_000_000 + length * from / 100, 1_000_000_000 + length * to / 100);
            let text = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            let time = format!("{},{}", text(window.0), text(window.1));
            let ran = perfx(args!["filter", "-f", "--to", "file", "--time", time, input, "-o", out]);
            assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
            let wanted = decoded(&perf, &whole, itrace, window);
            assert!(!wanted.is_empty(), "{name} {time}");
            same_lines(&format!("{name} {time}"), &wanted, &decoded(&perf, &out, itrace, window)).unwrap();
            let (kept, all) = (bytes(&out), bytes(&input));
            // The window, and for Intel PT the trace around it up to the next PSB packets, and as much again
            // before that.
            let around = if name == "pt-psb" { 6 * 410 } else { 800 };
            assert!(kept as u64 <= all as u64 * (to - from) / 100 + around, "{name} {time}: {kept} of {all}");
        }
    }
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

/// perf makes a sample from each counter of a group, and finds its event by the id.
#[test]
fn events_that_only_group_reads_name_are_used() {
    for (name, perf) in
        [("recorded/group-read.p61.data", "perf"), ("recorded/group-read.p73.data", "perf-new")]
    {
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
fn invalid_arguments_are_usage_errors_with_a_reason() {
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

/// `run -p filter,build-ids` added the ids of DSOs that the whole recording hits, at records that were
/// dropped.
#[test]
fn later_passes_see_only_the_remaining_records() {
    let folder = temp();
    let input = Fixture::new("recorded/no-buildid.p61.data").path;
    let at = |name: &str| folder.path().join(name);
    let known = "ab /tmp/perfx-data/work/burn_id8";
    let inject = args!["inject", "-qb", "--foreign", "--known-build-ids", known, at("cut"), "-fo", at("two")];
    for choice in ["comm=burn_id8", "time=50%-60%"] {
        let chosen = format!("--{choice}");
        let chain = format!("filter:{choice},build-ids:foreign:known={known}");
        for line in [
            &args!["filter", "-q", chosen, input, "-fo", at("cut")][..],
            &inject[..],
            &args!["run", "-q", "-p", chain, input, "-fo", at("one")][..],
        ] {
            let ran = perfx(line);
            assert_eq!(ran.code, Some(0), "{line:?}: {}", ran.stderr);
        }
        same_bytes(choice, &fs::read(at("one")).unwrap(), &fs::read(at("two")).unwrap()).unwrap();
    }
}

/// Regression: `--dso '\[kernel.kallsyms\]'` found nothing, because the kernel's mapping is named
/// `[kernel.kallsyms]_text`.
#[test]
fn the_kernel_is_selected_by_its_shown_name() {
    let folder = temp();
    let input = Fixture::new("recorded/no-buildid.p61.data").path;
    let kept = |option: &str, name: &str| {
        let out = folder.path().join("out");
        let ran = perfx(args!["filter", option, name, input, "-fo", out]);
        ran.stderr.lines().find_map(|line| line.split_once("kept ")).unwrap().1.to_owned()
    };
    let is = kept("--dso", r"\[kernel.kallsyms\]");
    assert_eq!(is, kept("--dso", r"\[kernel.kallsyms\]_text"));
    assert!(!is.starts_with("0 "), "{is}");
    assert_ne!(kept("--exclude-dso", r"\[kernel.kallsyms\]"), kept("--exclude-dso", "nothing"));
}

/// Records made by perf itself have id 0, which perf assigns to the first event; they are not a reason to
/// keep that event.
#[test]
fn the_first_event_is_left_out_where_only_records_of_id_0_are_left() {
    let folder = temp();
    let (input, output) = (folder.path().join("perf.data"), folder.path().join("cut.data"));
    let fixture = Fixture::new("recorded/several.p61.data");
    let mut recording = Recording::open(&fixture.path).unwrap();
    let mut bytes = fixture.bytes();
    for batch in recording.batches() {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().unwrap() {
            let (_, at) = record.origin().stored_at().unwrap();
            if record.kind().is_kernel() && record.kind() != RecordType::SAMPLE {
                bytes[at as usize + record.bytes().len() - 8..][..8].fill(0);
            }
        }
    }
    fs::write(&input, bytes).unwrap();
    let names = |path: &Path| -> Vec<String> {
        let ran = perfx(args!["stats", "--format", "json", path]);
        let stats: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let events = stats["events"].as_array().unwrap();
        events.iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
    };
    let before = names(&input);
    let first = format!("^{}$", escape(&before[0]));
    let ran = perfx(args!["filter", "--exclude-event", first, "--drop-unused", input, "-o", output]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let after = names(&output);
    assert!(!after.is_empty() && !after.contains(&before[0]), "{before:?} {after:?}");
}

/// No record has the name of the idle threads, but perf shows one.
#[test]
fn thread_0_is_called_swapper() {
    let folder = temp();
    let (input, output) = (folder.path().join("perf.data"), folder.path().join("cut.data"));
    let fixture = Fixture::new("recorded/plain.p61.data");
    let mut recording = Recording::open(&fixture.path).unwrap();
    let tid = Layouts::new(&recording.events).all()[0].sample.tid.unwrap();
    let batch = recording.batches().next().unwrap().unwrap();
    let sample = batch.walk().next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX).unwrap().unwrap();
    let (_, at) = sample.origin().stored_at().unwrap();
    let mut bytes = fixture.bytes();
    bytes[at as usize + usize::from(tid)..][..8].fill(0);
    fs::write(&input, bytes).unwrap();
    let ran = perfx(args!["filter", "--comm", "swapper", &input, "-o", output]);
    assert!(ran.code == Some(0) && ran.stderr.contains("kept 1 of "), "{}", ran.stderr);
}

const NAMES: &str = "recorded/exec-tracepoint.p61.data";
/// An option with a value that matches nothing, and the hint.
const HINTS: [(&str, &str, &str); 8] = [
    (
        "--event",
        "SCHED_process_exec",
        "nothing in the recording matches --event; did you mean `sched:sched_process_exec`?",
    ),
    (
        "--event",
        "cycles",
        "it has `sched:sched_process_exec`, `sched:sched_process_exit`, `sched:sched_process_fork`",
    ),
    ("--comm", "FORKS", "did you mean `forks`?"),
    ("--event", "sched_proces_exit", "it has `sched:sched_process_exit`, "),
    ("--comm", "nosuch", "nothing in the recording matches --comm; it has `"),
    ("--pid", "1", "the recording has no such process; it has 32131 (forks)"),
    ("--tid", "1", "the recording has no such thread; it has 32131 (forks)"),
    ("--time", "1,2", "--time selects 1.000000000 to 2.000000000; the recording has samples from 5863."),
];

/// perf reads it. The reason was that no event records the time.
#[test]
fn pipe_data_whose_events_all_come_late_is_filtered_and_split() {
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    let pipe = Fixture::new("recorded/pipe-group.p61.data");
    let bytes = pipe.bytes();
    let all = parse::records(&bytes[16..], Order::of(&bytes));
    // The first ordinary record comes before all events.
    let first = all.iter().position(|record| !record.is_front && record.kind != HEADER_FEATURE).unwrap();
    let (attrs, others): (Vec<_>, Vec<_>) =
        all.iter().enumerate().filter(|(at, _)| *at != first).partition(|(_, rec)| rec.kind == HEADER_ATTR);
    let moved = std::iter::once(&all[first]).chain(attrs.iter().chain(&others).map(|(_, record)| *record));
    let moved = moved.flat_map(|record| record.bytes.clone());
    fs::write(at("late.data"), bytes[..16].iter().copied().chain(moved).collect::<Vec<u8>>()).unwrap();
    assert!(attrs.len() > 1);
    for way in [["--time", "10%-60%"], ["--event", "task-clock.*"], ["--pid", "1"]] {
        let said = |input: &Path| {
            let ran = perfx([&["filter", "-n"], &way[..], &[input.to_str().unwrap()]].concat());
            let kept = ran.stderr.lines().find(|line| line.contains("kept ")).map(str::to_owned);
            (ran.code, kept.unwrap_or(ran.stderr))
        };
        assert_eq!(said(&at("late.data")), said(&pipe.path), "{way:?}");
    }
    let ran = perfx(args!["split", "--by", "event", "-q", at("late.data"), "-o", at("p")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("p.task-clock")), "{names:?}");
}

#[test]
fn a_part_of_only_one_name_selects_it() {
    let input = Fixture::new(NAMES).path;
    for (option, part, name) in [
        ("--event", "process_exec", "sched:sched_process_exec"),
        ("--dso", "kernel.kallsyms", "[kernel.kallsyms]"),
        ("--comm", "ork", "forks"),
    ] {
        let by = |value: &str| perfx(args!["view", "--foreign", option, value, &input]);
        let (found, whole) = (by(part), by(name));
        assert!(found.stderr.contains(&format!("{option} {part} selects `{name}`")), "{}", found.stderr);
        assert!(!found.stdout.is_empty() && found.stdout == whole.stdout, "{option}");
        assert!(!whole.stderr.contains("selects"), "{}", whole.stderr);
        let kept = perfx(args!["filter", option, part, &input, "-n"]);
        assert!(kept.code == Some(0) && kept.stderr.contains(" selects `"), "{}", kept.stderr);
    }
    // Several events have this part.
    let ran = perfx(args!["filter", "-n", "--event", "process_e", &input]);
    assert!(ran.code == Some(3) && ran.stderr.contains("similar names: `sched"), "{}", ran.stderr);
}

/// A misspelled exclusion of secret data must be noticed.
#[test]
fn an_exclusion_without_a_match_is_reported() {
    let switches = Fixture::new(NAMES).path;
    for (option, value, hint) in [
        (
            "--exclude-comm",
            "forks,FORKs",
            "--exclude-comm `FORKs` matches nothing in the recording; did you mean `forks`?",
        ),
        ("--exclude-event", "sched_process_exec", "did you mean `sched:sched_process_exec`?"),
        ("--exclude-dso", "kernel.kallsyms", "did you mean `[kernel.kallsyms]`?"),
        ("--exclude-pid", "1", "--exclude-pid 1: the recording names no such process; it has 32131 (forks)"),
        ("--exclude-tid", "1", "--exclude-tid 1: the recording names no such thread; it has 32131 (forks)"),
        ("--exclude-cpu", "77", "no sample has a CPU or machine that is excluded"),
    ] {
        let ran = perfx(args!["filter", "-n", option, value, &switches]);
        assert!(ran.stderr.contains(hint), "{option} {value}: {}", ran.stderr);
    }
    let ran = perfx(args!["view", "--exclude-comm", "FORKS", "--foreign", &switches]);
    assert!(ran.stderr.contains("did you mean `forks`?"), "{}", ran.stderr);
    for (option, value) in
        [("--exclude-comm", "swapper"), ("--exclude-pid", "0"), ("--exclude-comm", "forks")]
    {
        let ran = perfx(args!["filter", "-n", option, value, &switches]);
        assert!(
            !ran.stderr.contains("matches nothing") && !ran.stderr.contains("names no"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn an_empty_selection_lists_the_contents_of_the_recording() {
    let switches = Fixture::new(NAMES).path;
    for (option, value, hint) in HINTS {
        let ran = perfx(args!["filter", "-n", option, value, &switches]);
        assert_eq!(ran.code, Some(3), "{option} {value}: {}", ran.stderr);
        assert!(ran.stderr.contains(hint), "{option} {value}: {}", ran.stderr);
    }
    // More names than fit on a line.
    let mixed = Fixture::new("recorded/addresses.p61.data").path;
    let ran = perfx(args!["filter", "-n", "--dso", "nosuch", &mixed]);
    let more = format!(" others; `perfx list dsos {}` shows all", mixed.display());
    assert!(ran.stderr.contains(&more), "{}", ran.stderr);
    // A name in brackets is taken literally, although it is a valid regular expression.
    let ran = perfx(args!["filter", "-n", "--dso", "[kernel.kallsyms]", &switches]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}
