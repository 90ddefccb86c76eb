//! `inject -s` merges sched_stat_* with sched_switch samples as perf inject does, and also in recordings at
//! which perf inject fails; `off-cpu` needs only sched_switch.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use perfx_format::record::id_index::{ANY, IdEntry, IdIndex, one_id_index};
use perfx_format::{Endian, Event, RecordType, set_attr_flag, set_sample_period};
use perfx_passes::parse_chain;
use perfx_pipeline::OutputForm;

use crate::args;
use crate::promises::{Input, run};
use crate::snapshots::same;
use crate::support::{
    Fixture, Perf, Stdin, each, perf, perfs, perfx, perfx_with, rewritten, root, same_bytes, same_lines, temp,
};

/// Samples as perf shows them.
fn samples(perf: &Perf, recording: &Path) -> Result<Vec<String>, String> {
    let fields = "comm,tid,cpu,time,event,period,ip";
    let ran = perf.run(Stdin::Null, args!["script", "-f", "--ns", "-F", fields, "-i", recording]).done()?;
    Ok(ran.text().lines().map(ToOwned::to_owned).collect())
}

fn crafted(name: &str) -> std::path::PathBuf {
    root().join(format!("tests/data/crafted/{name}.data"))
}

/// The numbers of sched_stat_* samples that `inject -s` drops: those of tasks that were off the CPU from the
/// beginning, and those whose sched_switch sample is lost. Only the latter are a loss: exit code 3.
fn inject(input: &Path, output: &Path) -> (u64, u64) {
    let ran = perfx(args!["inject", "-s", "-f", input, "-o", output]);
    let number = |why: &str| {
        let line = ran.stderr.lines().find(|line| line.contains("sched_stat_*") && line.contains(why));
        line.map_or(0, |line| line.split_whitespace().find_map(|word| word.parse().ok()).unwrap())
    };
    let (early, lost) = (number("before the recording began"), number("is missing"));
    assert_eq!(ran.code, Some(if lost > 0 { 3 } else { 0 }), "{}", ran.stderr);
    (early, lost)
}

#[test]
fn perf_shows_the_samples_that_perf_inject_makes() {
    let perfs = perfs(&["perf", "perf-trixie", "perf-sid", "perf-new"]);
    let names = ["recorded/sched-stat.p61", "recorded/sched-stat.p73", "crafted/sched-stat-le"];
    let cases: Vec<_> = perfs
        .iter()
        .flat_map(|perf| names.map(|name| (perf, Fixture::new(&format!("{name}.data")))))
        .filter(|(perf, fixture)| perf.can_read(&fixture.path))
        .collect();
    if perfs.is_empty() {
        return;
    }
    each(
        &cases,
        |(perf, fixture)| format!("{} by {}", fixture.name, perf.name),
        |(perf, fixture)| {
            let folder = temp();
            let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
            perf.run(Stdin::Null, args!["inject", "-f", "-s", "-i", fixture.path, "-o", theirs]).done()?;
            let (early, _) = inject(&fixture.path, &ours);
            assert!(early > 0);
            let wanted = samples(perf, &theirs)?;
            assert!(!wanted.is_empty());
            same_lines("samples", &wanted, &samples(perf, &ours)?)
        },
    );
}

/// perf inject -s crashes on recordings in the other byte order, and its output for a pipe can't be read.
#[test]
fn samples_are_merged_in_either_byte_order_and_every_form() {
    let folder = temp();
    let out = |name: &str| folder.path().join(name);
    let dump = |path: &Path| -> Vec<String> {
        let text = perfx(args!["dump", "--only", "SAMPLE", path]).text();
        // The offset of a record depends on the form.
        text.lines()
            .map(|line| line.split_once(' ').map_or(line, |(_, rest)| rest).trim().to_owned())
            .collect()
    };
    assert_eq!(inject(&crafted("sched-stat-le"), &out("le")), (1, 1));
    let wanted = dump(&out("le"));
    assert_eq!(wanted.iter().filter(|line| line.contains("SAMPLE")).count(), 3, "{wanted:?}");
    perfx(args!["compress", "-q", crafted("sched-stat-le"), "-o", out("z")]).done().unwrap();
    for (name, input) in [("pipe", crafted("sched-stat-pipe-le")), ("from-z", out("z"))] {
        assert_eq!(inject(&input, &out(name)), (1, 1), "{name}");
        same_lines(name, &wanted, &dump(&out(name))).unwrap();
    }
    let piped = fs::read(crafted("sched-stat-pipe-le")).unwrap();
    let ran = perfx_with(Stdin::Pipe(&piped), args!["inject", "-q", "-s", "-o", out("stdin")]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    same_bytes(
        "from a file and from a pipe",
        &fs::read(out("pipe")).unwrap(),
        &fs::read(out("stdin")).unwrap(),
    )
    .unwrap();
    assert_eq!(inject(&crafted("sched-stat-be"), &out("be")), (1, 1));
    if let Some(perf) = perf("perf-new") {
        same_lines("be", &samples(&perf, &out("le")).unwrap(), &samples(&perf, &out("be")).unwrap()).unwrap();
    }
}

#[test]
fn a_new_task_does_not_get_the_call_chain_of_an_old_one_with_its_tid() {
    let folder = temp();
    let out = folder.path().join("out.data");
    assert_eq!(inject(&crafted("sched-stat-mixed-le"), &out), (1, 2));
    same("sched", "sched-stat-mixed-le", &perfx(args!["dump", "--only", "SAMPLE", out]).text());
}

#[test]
fn build_ids_can_be_injected_in_the_same_run() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let known = "b0 /tmp/perfx-data/work/crew";
    let input = Fixture::new("recorded/sched-stat.p61.data").path;
    let ran = perfx(args!["inject", "-s", "-b", "--foreign", "--known-build-ids", known, input, "-o", out]);
    assert!(
        ran.stderr.contains("2 HEADER_BUILD_ID records") && ran.stderr.contains("merged"),
        "{}",
        ran.stderr
    );
}

#[test]
fn without_the_events_the_recording_stays_as_it_is() {
    let folder = temp();
    let out = folder.path().join("out.data");
    for (input, line, what) in [
        ("plain.p61", "inject -s", "there is no event sched:sched_switch"),
        ("off-cpu.p61", "inject -s", "there is no event sched:sched_stat_*"),
        ("exec-tracepoint.p61", "off-cpu", "there is no event sched:sched_switch"),
    ] {
        let input = Fixture::new(&format!("recorded/{input}.data"));
        let line = line.split(' ').map(Into::into).chain(args!["-f", input.path, "-o", out]);
        let ran = perfx(line);
        assert!(ran.code == Some(3) && ran.stderr.contains(what), "{}", ran.stderr);
        same_bytes(&input.name, &input.bytes(), &fs::read(&out).unwrap()).unwrap();
    }
}

/// Without PERIOD the samples have no field for the time that a task waited, and without RAW no tid of the
/// task.
#[test]
fn an_event_without_a_period_or_raw_data_is_an_error_that_names_it() {
    let bytes = fs::read(crafted("sched-stat-le")).unwrap();
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    // The attrs begin at 0x98. Each takes 112 bytes plus the 16 of the section of its ids; `sample_type` is
    // at byte 24.
    for (event, bit, what) in [
        (1, 8, "event 1, sched:sched_switch: its samples have no PERIOD: record with --period"),
        (0, 10, "event 0, sched:sched_stat_sleep: its samples have no RAW: record with --raw-samples"),
    ] {
        let mut bytes = bytes.clone();
        bytes[0x98 + event * 128 + 24 + bit / 8] &= !(1 << (bit % 8));
        fs::write(&input, bytes).unwrap();
        let ran = perfx(args!["inject", "-s", input, "-o", out]);
        assert!(ran.code == Some(1) && !out.exists(), "{}", ran.stderr);
        // The error named no file once.
        assert!(ran.stderr.contains(&format!("in.data: {what}")), "{}", ran.stderr);
    }
}

/// The time off the CPU of each task after each of its switches, from the output of perf script: tid, time of
/// the return, and duration, ns.
fn away(perf: &Perf, recording: &Path) -> Vec<(String, u64, u64)> {
    let fields = "tid,time,event,trace";
    let args = args!["script", "-f", "--ns", "--show-switch-events", "-F", fields, "-i", recording];
    let text = perf.run(Stdin::Null, args).done().unwrap().text();
    let mut left = HashMap::new();
    let mut away = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(tid), Some(time), Some(what)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Ok(time) = time.trim_end_matches(':').replace('.', "").parse::<u64>() else { continue };
        let next = words.clone().find_map(|word| word.strip_prefix("next_pid="));
        let back =
            if what == "PERF_RECORD_SWITCH" { words.find(|&word| word == "IN").map(|_| tid) } else { next };
        if let Some((back, since)) = back.and_then(|tid| left.remove_entry(tid)) {
            away.push((back, time, time - since));
        }
        if next.is_some() {
            left.insert(tid.to_owned(), time);
        }
    }
    away.sort_unstable();
    away
}

#[test]
fn off_cpu_gives_the_time_between_the_way_out_and_the_way_back() {
    for perf in perfs(&["perf", "perf-new"]) {
        for name in ["off-cpu.p61", "off-cpu.p73"] {
            let input = Fixture::new(&format!("recorded/{name}.data"));
            if !perf.can_read(&input.path) {
                continue;
            }
            let folder = temp();
            let out = folder.path().join("out.data");
            let ran = perfx(args!["off-cpu", input.path, "-o", out]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let fields = args!["script", "-f", "--ns", "-F", "tid,time,period", "-i", out];
            let text = perf.run(Stdin::Null, fields).done().unwrap().text();
            let mut made: Vec<_> = text
                .lines()
                .filter_map(|line| {
                    let mut words = line.split_whitespace();
                    let (tid, time) = (words.next()?.to_owned(), words.next()?);
                    let time = time.trim_end_matches(':').replace('.', "").parse().ok()?;
                    Some((tid, time, words.next()?.parse().ok()?))
                })
                .collect();
            made.sort_unstable();
            let wanted = away(&perf, &input.path);
            assert!(wanted.len() > 5, "{name}: {wanted:?}");
            assert_eq!(made, wanted, "{name} by {}", perf.name);
        }
    }
}

#[test]
fn off_cpu_needs_no_switch_records_where_all_cpus_are_recorded() {
    let folder = temp();
    let out = folder.path().join("out.data");
    for (name, options) in [("off-cpu", &[][..]), ("off-cpu-blocked", &["--blocked"])] {
        let line = args!["off-cpu", "-f", crafted("sched-stat-le"), "-o", out];
        let ran = perfx(line.into_iter().chain(options.iter().map(Into::into)));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let events = ["--only", "SAMPLE"].map(Into::into);
        let text = perfx(args!["dump", out].into_iter().chain(events)).text();
        let switches: String = text
            .split_inclusive('\n')
            .filter(|line| line.contains(" id=23 ") || line.contains(" id=24 "))
            .collect();
        let said: String = ran
            .stderr
            .lines()
            .filter(|line| line.contains("sample"))
            .map(|line| format!("{line}\n"))
            .collect();
        same("sched", name, &format!("{said}{switches}"));
    }
}

/// Samples of a recording as `perfx view` shows these fields.
fn shown(path: &Path, fields: &str) -> Vec<Vec<u64>> {
    let text = perfx(args!["view", "-F", fields, path]).text();
    let number = |word: &str| word.trim_end_matches(':').replace('.', "").parse().unwrap();
    text.lines().map(|line| line.split_whitespace().map(number).collect()).collect()
}

fn sampled_event(event: &Event, frequency: u64) -> Event {
    event.edited(Endian::Little, |raw| {
        set_attr_flag(raw, 10, true, Endian::Little).unwrap();
        set_sample_period(raw, frequency, Endian::Little);
    })
}

/// With `perf record -F`, a task seemed to wait from a sampled switch to the next sampled one: 17 to 35 ms
/// for usleep(1000).
#[test]
fn off_cpu_of_sampled_switches_gives_each_task_the_time_of_all_its_switches() {
    let folder = temp();
    let out = |name: &str| folder.path().join(name);
    let input = Fixture::new("recorded/off-cpu.p61.data").path;
    // Of each task only the last sample.
    let mut last = HashMap::<u64, u64>::new();
    for sample in shown(&input, "tid,time") {
        last.entry(sample[0]).and_modify(|time| *time = sample[1].max(*time)).or_insert(sample[1]);
    }
    let few = rewritten(
        &input,
        |event| sampled_event(event, 99),
        |record, layouts, bytes| {
            if record.kind() != RecordType::SAMPLE {
                return true;
            }
            let layout = layouts.layout_of(record).unwrap();
            layout.set_period(bytes, 3, record.endian()).unwrap();
            let (_, tid) = layout.pid_tid(record).unwrap();
            // `view` shows µs.
            layout.recorded_time(record).unwrap() / 1000 == last[&u64::from(tid)]
        },
    );
    fs::write(out("few"), few).unwrap();
    perfx(args!["off-cpu", &input, "-o", out("all-away")]).done().unwrap();
    let ran = perfx(args!["off-cpu", out("few"), "-o", out("few-away")]);
    assert!(
        ran.stderr.contains("no sample, because only some switches were sampled (perf record -F)"),
        "{}",
        ran.stderr
    );
    let sums = |name: &str| {
        let mut sums = HashMap::<u64, u64>::new();
        shown(&out(name), "tid,period")
            .iter()
            .for_each(|sample| *sums.entry(sample[0]).or_default() += sample[1]);
        sums
    };
    let (all, few) = (sums("all-away"), sums("few-away"));
    assert!(few.len() > 2 && few.len() == all.len(), "{few:?} {all:?}");
    for (tid, few) in few {
        // The SWITCH record of a switch is some microseconds later than its sample.
        let (few, all) = (few as f64, all[&tid] as f64);
        assert!((few / all - 1.0).abs() < 0.02, "{tid}: {few} of {all} ns");
    }
}

#[test]
fn off_cpu_refuses_sampled_switches_if_nothing_shows_the_others() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let sampled = |period: u64| {
        rewritten(
            &crafted("sched-stat-le"),
            |event| sampled_event(event, 99),
            |record, layouts, bytes| {
                if let Some(layout) =
                    layouts.layout_of(record).filter(|_| record.kind() == RecordType::SAMPLE)
                {
                    layout.set_period(bytes, period, record.endian()).unwrap();
                }
                true
            },
        )
    };
    fs::write(&input, sampled(7)).unwrap();
    let ran = perfx(args!["off-cpu", input, "-o", out]);
    assert!(ran.code == Some(1) && !out.exists(), "{}", ran.stderr);
    let what = "represents 7 switches, because only some were sampled (perf record -F";
    assert!(ran.stderr.contains(what) && ran.stderr.contains("--switch-events"), "{}", ran.stderr);
    // With -c 10, too, kernels write a sample for each switch, if it has a period.
    fs::write(&input, sampled(1)).unwrap();
    perfx(args!["off-cpu", input, "-o", out]).done().unwrap();
}

/// In this recording of some tasks, nothing shows when they run again.
#[test]
fn off_cpu_says_how_to_record_what_is_missing() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("recorded/sched-stat.p73.data").path;
    let ran = perfx(args!["off-cpu", input, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("record all CPUs (-a) or with --switch-events"), "{}", ran.stderr);
}

/// ID_INDEX marks an event as counting a CPU, not a thread; without it, samples of the idle task do.
#[test]
fn off_cpu_does_not_advise_a_recording_of_all_cpus_to_record_all_cpus() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let advice = "when the task ran again: if records were lost, record with a larger buffer (-m), and if only some CPUs";
    let recorded = Fixture::new("recorded/sched-stat.p73.data").path;
    let all_cpus = rewritten(&recorded, Clone::clone, |record, _, bytes| {
        if let Some(index) = IdIndex::of(record) {
            let entries: Vec<_> = index.entries().map(|entry| IdEntry { tid: ANY, ..entry }).collect();
            *bytes = one_id_index(&entries, index.has_machines(), record.endian());
        }
        true
    });
    fs::write(&input, all_cpus).unwrap();
    let ran = perfx(args!["off-cpu", input, "-o", out]);
    assert!(ran.code == Some(3) && ran.stderr.contains(advice), "{}", ran.stderr);
    fs::remove_file(&out).unwrap();
    // Without the switch from the idle task to task 101, which leaves its CPU again later.
    let mut dropped = false;
    let lost = rewritten(&crafted("sched-stat-le"), Clone::clone, |record, layouts, _| {
        let layout = layouts.layout_of(record).filter(|_| record.kind() == RecordType::SAMPLE);
        let is_idle = layout.and_then(|layout| layout.pid_tid(record)).is_some_and(|(_, tid)| tid == 0);
        !is_idle || std::mem::replace(&mut dropped, true)
    });
    fs::write(&input, lost).unwrap();
    let ran = perfx(args!["off-cpu", input, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains(advice), "{}", ran.stderr);
}

/// Its output has the same events, so it looks like a recording.
#[test]
fn off_cpu_warns_of_its_own_output() {
    let folder = temp();
    let (once, twice) = (folder.path().join("once.data"), folder.path().join("twice.data"));
    let ran = perfx(args!["off-cpu", crafted("sched-stat-le"), "-o", once]).done().unwrap();
    assert!(!ran.stderr.contains("the output of off-cpu"), "{}", ran.stderr);
    let ran = perfx(args!["off-cpu", once, "-o", twice]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("the output of off-cpu"), "{}", ran.stderr);
}

/// A pass in a chain sees the changes of the passes before it.
#[test]
fn samples_that_a_filter_dropped_are_not_merged() {
    let bytes = fs::read(crafted("sched-stat-le")).unwrap();
    let passes = |chain| parse_chain(chain).unwrap();
    let open = || Input::Bytes(&bytes).open().unwrap();
    let (outcome, _) = run(open(), passes("filter:exclude-tid=102,sched-stat"), OutputForm::File, 1).unwrap();
    let lines: Vec<_> = outcome.report.lines.iter().map(|(_, line)| line.as_str()).collect();
    assert!(lines.iter().any(|line| line.starts_with("1 sched_stat_* sample was")), "{lines:?}");
}
