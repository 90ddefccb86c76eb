//! `strip` leaves out AUX data, events and SWITCH records, and the result is a valid recording.

use std::fs;
use std::path::Path;

use perfx_format::header::Features;
use perfx_format::read::Recording;
use perfx_format::{Event, Feature, RecordType, sample_type as st};

use crate::args;
use crate::maker::{Maker, PLAIN, event};
use crate::promises::{Holds, Input};
use crate::snapshots::same;
use crate::support::{
    Fixture, Form, Perf, Stdin, crafted, each_fixture, named, perfs, perfx, root, same_lines, temp,
};

fn strip(input: &Path, output: &Path, options: &[&str]) -> Result<(), String> {
    let options = options.iter().map(Into::into);
    let ran = perfx(args!["strip", "-f", input, "-o", output].into_iter().chain(options));
    if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
}

fn shown(perf: &Perf, recording: &Path) -> Vec<String> {
    let ran = perf.run(Stdin::Null, args!["script", "-f", "-F", "tid,event,ip", "-i", recording]);
    // The width of the columns depends on the names of events.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    ran.text().lines().map(words).collect()
}

#[test]
fn nothing_of_aux_data_is_left() {
    let aux = [
        RecordType::AUXTRACE,
        RecordType::AUXTRACE_INFO,
        RecordType::AUXTRACE_ERROR,
        RecordType::AUX,
        RecordType::ITRACE_START,
        RecordType::AUX_OUTPUT_HW_ID,
    ];
    let mut fixtures = named("crafted/aux");
    // In `beyond` and `overflow`, a record extends beyond the end of the file.
    fixtures.retain(|fixture| fixture.form != Form::Directory);
    fixtures.retain(|fixture| !["beyond", "overflow"].iter().any(|part| fixture.name.contains(part)));
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        let before = Holds::of(&Input::Bytes(&fixture.bytes())).ok_or("it can't be opened")?;
        strip(&fixture.path, &out, &["--aux"])?;
        let bytes = fs::read(&out).unwrap();
        let recording = Input::Bytes(&bytes).open().unwrap();
        assert!(!recording.features.contains_key(&Feature::AUXTRACE));
        assert!(recording.events.iter().all(|event| event.attr().sample_type & st::AUX == 0));
        let after = Holds::of(&Input::Bytes(&bytes)).ok_or("what was written can't be opened")?;
        for kind in aux {
            assert!(!after.kinds.contains_key(&kind), "{kind}");
        }
        for (kind, count) in before.kinds.iter().filter(|(kind, _)| !aux.contains(kind)) {
            let is_same = after.kinds.get(kind) == Some(count);
            let of_form = *kind == RecordType::HEADER_ATTR || *kind == RecordType::HEADER_FEATURE;
            assert!(is_same || of_form || *kind == RecordType::EVENT_UPDATE, "{kind}");
        }
        Ok(())
    });
}

#[test]
fn remaining_samples_have_neither_the_event_nor_the_bit() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let mut text = String::new();
    for name in ["aux-le", "aux-pipe-be", "aux-samples"] {
        let input = Fixture::new(&format!("crafted/{name}.data")).path;
        let ran = perfx(args!["strip", "--aux", "-f", input, "-o", out]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let said = ran.stderr.lines().filter(|line| line.contains("left out"));
        let said: String = said.map(|line| format!("{line}\n")).collect();
        let dump = perfx(args!["dump", out]).text();
        let head = dump.lines().take_while(|line| !line.starts_with("0x"));
        let is_told = |line: &&str| {
            ["event ", "  name:", "  sample_type:", "  ids:", "  aux"]
                .iter()
                .any(|front| line.starts_with(front))
        };
        let head: String = head.filter(is_told).map(|line| format!("{line}\n")).collect();
        text += &format!("{name}\n{said}{head}\n");
    }
    same("strip", "aux", &text);
}

#[test]
fn samples_lose_their_aux_data_and_nothing_else() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("crafted/aux-samples.data").path;
    strip(&input, &out, &["--aux"]).unwrap();
    let dump = |path: &Path| perfx(args!["dump", "--only", "SAMPLE", path]).text();
    let fields = |line: &str| -> String {
        let words = line.split(' ').filter(|word| !word.starts_with("0x") && !word.starts_with("size="));
        words.take_while(|word| !word.starts_with("aux=")).collect::<Vec<_>>().join(" ")
    };
    let lines = |path: &Path| dump(path).lines().map(fields).collect::<Vec<_>>();
    same_lines("samples", &lines(&input), &lines(&out)).unwrap();
    assert!(dump(&input).contains(" aux=") && !dump(&out).contains(" aux="));
}

#[test]
fn events_go_with_all_that_names_them() {
    for perf in perfs(&["perf", "perf-new"]) {
        let folder = temp();
        let out = folder.path().join("out.data");
        for name in ["recorded/several.p61.data", "recorded/group.p61.data", "recorded/pipe-group.p61.data"] {
            let input = Fixture::new(name).path;
            strip(&input, &out, &["--event", "page-faults,cs"]).unwrap();
            let again = folder.path().join("again.data");
            strip(&input, &again, &["--events", "page-faults,cs"]).expect("the old spelling of --event");
            assert!(fs::read(&out).unwrap() == fs::read(&again).unwrap());
            let (before, after) = (shown(&perf, &input), shown(&perf, &out));
            let stays = |line: &&String| !line.contains("page-faults") && !line.contains(" cs:");
            let wanted: Vec<String> = before.iter().filter(stays).cloned().collect();
            assert!(wanted.len() < before.len(), "{name}: there was nothing to leave out");
            same_lines(name, &wanted, &after).unwrap();
            let events = perf.run(Stdin::Null, args!["evlist", "-f", "-g", "-i", out]).text();
            assert!(events.contains("task-clock") && !events.contains("page-faults"), "{name}: {events}");
        }
    }
}

#[test]
fn only_switch_records_are_dropped() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let fixture = Fixture::new("recorded/switch.p61.data");
    strip(&fixture.path, &out, &["--switches"]).unwrap();
    let dump = |path: &Path| -> Vec<String> {
        let text = perfx(args!["dump", "--raw", path]).text();
        text.lines()
            .filter_map(|line| line.strip_prefix("0x")?.split_once(' '))
            .map(|(_, rest)| rest.to_owned())
            .collect()
    };
    let mut wanted = dump(&fixture.path);
    wanted.retain(|line| !line.starts_with("SWITCH "));
    assert!(wanted.len() < dump(&fixture.path).len());
    same_lines("records", &wanted, &dump(&out)).unwrap();
}

/// perf decodes the AUX data, and perfx then leaves out what `perf inject --strip` would have left out.
#[test]
fn recorded_events_are_left_out_as_perf_inject_strip_does() {
    for perf in perfs(&["perf", "perf-new"]) {
        let folder = temp();
        let path = |name: &str| folder.path().join(name);
        let input = Fixture::new("crafted/aux-le.data").path;
        for (name, strip) in [("decoded", &[][..]), ("theirs", &["--strip"])] {
            let options = strip.iter().map(Into::into);
            let line = args!["inject", "-f", "--itrace=b", "-i", input, "-o", path(name)];
            perf.run(Stdin::Null, line.into_iter().chain(options)).done().unwrap();
        }
        let wanted = shown(&perf, &path("theirs"));
        assert!(wanted.len() > 100);
        strip(&path("decoded"), &path("ours"), &["--recorded"]).unwrap();
        same_lines("strip --recorded", &wanted, &shown(&perf, &path("ours"))).unwrap();
        let events = perf.run(Stdin::Null, args!["evlist", "-f", "-i", path("ours")]).text();
        let decoded = |line: &str| line.starts_with("branches");
        assert!(events.lines().all(|line| decoded(line) || line.contains("dummy")), "{events}");
        perfx(args!["inject", "--strip", "-q", path("decoded"), "-o", path("inject")]).done().unwrap();
        assert_eq!(fs::read(path("ours")).unwrap(), fs::read(path("inject")).unwrap());
    }
}

/// The contents of a recording, except zeros before its data.
fn held(path: &Path) -> (Vec<Event>, Features, Vec<Vec<u8>>) {
    let mut recording = Recording::open(path).unwrap();
    let (events, features) = (recording.events.clone(), recording.features.clone());
    let (mut records, mut all) = (recording.records(), Vec::new());
    while let Some(record) = records.next_record().unwrap() {
        all.push([record.bytes(), record.payload()].concat());
    }
    (events, features, all)
}

/// A file is written while samples are decoded, and its front when all are known; pipe data is read again.
#[test]
fn decoded_samples_are_stripped_in_the_same_run() {
    let (folder, data) = (temp(), root().join("tests/data"));
    let path = |name: &str| folder.path().join(name);
    let traces = [
        ("trace/switch", "i100il"),
        ("trace/threads", "b"),
        ("trace/kernel", "i1000ibe"),
        ("trace/etm-cpus", "i100ilb"),
        ("trace/etm-raw", "i100il"),
        ("crafted/spe-switch", "i1ibl2M"),
        ("crafted/spe-pipe", "i1i"),
    ];
    for (name, letters) in traces {
        // With the times of samples, which change if samples are dropped.
        let input = data.join(name).with_extension("data");
        perfx(args!["run", "-q", "-p", "reindex-times", input, "-f", "-o", path("in")]);
        let (itrace, code) = (format!("--itrace={letters}"), data.join("trace/root"));
        for threads in ["1", "2"] {
            let options = args!["-q", "-f", "-@", threads, "--foreign", "--root", code];
            let inject = |more: Vec<std::ffi::OsString>| {
                perfx([args!["inject"].to_vec(), options.to_vec(), more].concat());
            };
            inject(args![&itrace, path("in"), "-o", path("decoded")].to_vec());
            inject(args!["--strip", path("decoded"), "-o", path("after")].to_vec());
            inject(args![&itrace, "--strip", path("in"), "-o", path("once")].to_vec());
            inject(args![&itrace, "--strip", "--to", "pipe", path("in"), "-o", path("pipe")].to_vec());
            let (after, once) = (held(&path("after")), held(&path("once")));
            assert!(after.2.len() > 20, "{name}");
            assert!(after == once, "{name} -@{threads}");
            perfx(args!["run", "-q", "-p", "decompress", "-f", path("pipe"), "-o", path("file")]);
            assert_eq!(held(&path("file")).1.get(&Feature::SAMPLE_TIME), once.1.get(&Feature::SAMPLE_TIME));
        }
    }
}

#[test]
fn traces_that_can_not_be_decoded_get_advice() {
    let folder = temp();
    let out = folder.path().join("out.data");
    for (name, line, code, parts) in [
        (
            "aux-le",
            "inject --itrace=i100usle --strip",
            1,
            &["Intel BTS", "perf inject --itrace makes samples of it"][..],
        ),
        ("aux-spe", "inject --itrace", 1, &["AUXTRACE_INFO says that PMU 10 wrote the AUX data"]),
        (
            "aux-pipe-le",
            "inject --strip",
            1,
            &["no event that perf inject --itrace has decoded", "strip --aux"],
        ),
        ("aux-samples", "strip", 2, &["required arguments", "--aux"]),
        ("chain-le", "strip --switches", 0, &["there are no SWITCH records"]),
        ("chain-le", "strip --events nope", 3, &["no event matches `nope`; the events are cpu-clock"]),
        ("chain-le", "strip --aux", 0, &["there is no AUX data"]),
        ("chain-le", "inject --itrace", 3, &["there is no AUX data to decode"]),
    ] {
        let found =
            crafted().into_iter().find(|fixture| fixture.name.ends_with(&format!("{name}.data"))).unwrap();
        let words = line.split(' ').map(Into::into).chain(args![found.path, "-f", "-o", out]);
        let ran = perfx(words);
        assert_eq!(ran.code, Some(code), "{line}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stderr.contains(part), "{line}: {}", ran.stderr);
        }
        assert!([0, 3].contains(&code) || !out.exists());
        let _ = fs::remove_file(&out);
    }
}

/// Regression: the event of the other records stayed without a report, and exit code 0.
#[test]
fn an_event_that_strip_leaves_in_the_header_is_named() {
    let folder = temp();
    let (path, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let events = [1, 2].map(|id| event(PLAIN | st::IDENTIFIER, vec![id]));
    let mut maker = Maker::new(&path, &events);
    maker.comm(7, "prog", 0);
    (1..=2).for_each(|id| maker.sample_of(id, 7, 0x1000));
    maker.writer.finish().unwrap();
    // The COMM record is of the first one.
    let ran = perfx(args!["strip", "--event", "cpu-clock", "-f", path, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let said = "stays in the header without samples, because other records have its id: cpu-clock";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert_eq!(Recording::open(&out).unwrap().events.len(), 1);
}
