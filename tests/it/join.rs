//! `perfx sort` changes only the order, and perf shows the same for a join as for its inputs together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use perfx_format::read::{Expand, Recording};
use perfx_format::{Layouts, RecordType};

use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Form, Perf, Stdin, Tier, each, each_fixture, perf, perfs, perfx, recorded, root, same_bytes,
    same_lines, temp,
};
use crate::tiny;
use crate::{args, tiers};

fn data(name: &str) -> PathBuf {
    root().join("tests/data").join(name)
}

/// Kind, time and bytes of each record, except FINISHED_ROUNDs.
fn records(path: &Path) -> Vec<(RecordType, u64, Vec<u8>)> {
    let mut recording = Recording::open(path).unwrap();
    let endian = recording.endian;
    let mut records = Vec::new();
    for batch in Expand::new(recording.batches(), endian, 1 << 20) {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().unwrap() {
            if record.kind() != RecordType::FINISHED_ROUND {
                let time = batch.layouts.recorded_time(&record).unwrap_or(0);
                let bytes = [record.bytes(), record.payload()].concat();
                records.push((record.kind(), if time == u64::MAX { 0 } else { time }, bytes));
            }
        }
    }
    records
}

fn in_order(records: &[(RecordType, u64, Vec<u8>)]) -> bool {
    let mut latest = 0;
    records.iter().filter(|(_, time, _)| *time != 0).all(|(_, time, _)| {
        let ordered = *time >= latest;
        latest = *time;
        ordered
    })
}

/// perf's output; perf must not report an error.
fn script(perf: &Perf, path: &Path, fields: &str) -> Result<Vec<String>, String> {
    let ran = perf.run(Stdin::Null, args!["script", "-f", "-F", fields, "--ns", "-i", path]);
    let complains = ran.stderr.contains("out of order");
    if ran.code != Some(0) || complains {
        return Err(format!("{}: {:?} {}", perf.name, ran.code, ran.stderr));
    }
    Ok(ran.text().lines().map(str::to_owned).collect())
}

/// The recordings that a transformation accepts.
fn whole() -> Vec<Fixture> {
    let unfinished = ["killed", "cut-0", "cut-1", "switch-output-z", "pipe-cut"];
    recorded().into_iter().filter(|f| !unfinished.iter().any(|part| f.name.contains(part))).collect()
}

tiers!(sorting_changes_nothing_but_the_order);
fn sorting_changes_nothing_but_the_order(tier: Tier) {
    each_fixture(&tier.of(whole()), |fixture| {
        let folder = temp();
        let (out, again) = (folder.path().join("out"), folder.path().join("again"));
        let ran = perfx(args!["sort", "-q", fixture.path, "-o", out]).done()?;
        let out = if out.is_dir() { out.join("data") } else { out };
        let (mut before, mut after) = (records(&fixture.path), records(&out));
        if !in_order(&after) {
            return Err("the output is not in order".into());
        }
        // A file has the contents of these records in its header.
        let of_header = |kind: RecordType| (64..=66).contains(&kind.0) || kind == RecordType::HEADER_FEATURE;
        before.retain(|(kind, ..)| fixture.form != Form::Pipe || !of_header(*kind));
        let sorted = in_order(&before);
        if sorted && before != after {
            return Err("it was in order, and is another now".into());
        }
        before.sort();
        after.sort();
        if before != after {
            return Err(format!("{} records became {}: {}", before.len(), after.len(), ran.stderr));
        }
        perfx(args!["sort", "-q", out, "-o", again]).done()?;
        same_bytes("sorted twice", &fs::read(out).unwrap(), &fs::read(again).unwrap())
    });
}

#[test]
fn a_sorted_recording_stays_byte_by_byte() {
    let folder = temp();
    for name in ["plain.p61", "z.p61", "pipe.p61"] {
        let input = data(&format!("recorded/{name}.data"));
        let (sorted, again) = (folder.path().join("sorted"), folder.path().join("again"));
        assert_eq!(perfx(args!["sort", "-q", "-f", input, "-o", sorted]).code, Some(0));
        let ran = perfx(args!["sort", "-f", sorted, "-o", again]);
        assert!(ran.stderr.contains("in time order already"), "{name}: {}", ran.stderr);
        assert_eq!(fs::read(&sorted).unwrap(), fs::read(&again).unwrap(), "{name}");
    }
}

tiers!(perf_shows_the_same_for_a_sorted_recording);
fn perf_shows_the_same_for_a_sorted_recording(tier: Tier) {
    let perfs = perfs(&["perf", "perf-new"]);
    each_fixture(&tier.of(whole()), |fixture| {
        let folder = temp();
        let out = folder.path().join("out");
        perfx(args!["sort", "-q", fixture.path, "-o", out]).done()?;
        for perf in &perfs {
            let show = |path: &Path| perf.run(Stdin::Null, args!["script", "-f", "-i", path]);
            let (before, after) = (show(&fixture.path), show(&out));
            // perf may accept attrs larger than its own in pipe data, but refuse them in a file.
            if before.code != Some(0) || fixture.form == Form::Pipe && after.code != Some(0) {
                continue;
            }
            let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
            same_lines(perf.name, &lines(before.text()), &lines(after.text()))?;
            if after.stderr.contains("out of order") {
                return Err(after.stderr);
            }
        }
        Ok(())
    });
}

/// Recordings of one machine and boot that test different parts of perf and perfx.
const JOINS: &[&[&str]] = &[
    &["plain.p61", "fp.p61"],
    &["fp.p61", "plain.p61"],
    &["forks.p61", "switch.p61", "plain.p61"],
    &["tracepoint.p61", "trace.p61"],
    &["group.p61", "group-read.p61"],
    &["single-read.p61", "group-read.p61", "identifier.p61"],
    &["pipe.p61", "plain.p61"],
    &["threads.p61", "z.p61"],
    &["bpf.p61", "dwarf.p61"],
    &["lost.p61", "namespaces.p61"],
    &["tail-synthesize.p61", "overwrite.p61"],
    &["plain.p61", "plain.p612"],
    &["plain.p73", "tracepoint-group.p73", "fp.p73"],
    &["z.p73", "z-tracepoint.p73", "threads-z.p73"],
    &["fp-defer.p73", "plain.p73"],
    &["cgroups.p73", "kernel.p73", "buildid-mmap.p73"],
];

/// Lines grouped by their time, in order of time and of the inputs.
fn by_time(scripts: &[Vec<String>]) -> Vec<String> {
    let mut blocks: Vec<(String, Vec<String>)> = Vec::new();
    for script in scripts {
        for line in script {
            let is_time = |word: &&str| word.split_once('.').is_some_and(|(_, ns)| ns.len() == 9);
            let time = line.split_whitespace().map(|word| word.trim_end_matches(':')).find(is_time);
            match time.filter(|_| !line.starts_with('\t')) {
                Some(time) => blocks.push((format!("{time:0>24}"), vec![line.clone()])),
                None => blocks.last_mut().unwrap().1.push(line.clone()),
            }
        }
    }
    blocks.sort_by(|a, b| a.0.cmp(&b.0));
    blocks.into_iter().flat_map(|(_, lines)| lines).map(|line| squeezed(&line)).collect()
}

/// perf's columns are as wide as the widest value of a recording, so spaces are squeezed.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn perf_shows_the_same_for_a_join_and_its_inputs() {
    const FIELDS: &str = "comm,pid,tid,time,event,ip,sym,symoff,dso";
    let perfs = perfs(&["perf", "perf-trixie", "perf-new"]);
    each(
        JOINS,
        |names| names.join(" + "),
        |names| {
            let folder = temp();
            let out = folder.path().join("out");
            let inputs: Vec<PathBuf> =
                names.iter().map(|name| data(&format!("recorded/{name}.data"))).collect();
            let mut line = args!["join", "-q", "-o", out].to_vec();
            line.extend(inputs.iter().map(Into::into));
            perfx(line).done()?;
            for perf in &perfs {
                let scripts: Result<Vec<_>, _> =
                    inputs.iter().map(|input| script(perf, input, FIELDS)).collect();
                // An older perf can't read newer ones.
                let Ok(scripts) = scripts else { continue };
                let joined = script(perf, &out, FIELDS)?;
                same_lines(perf.name, &by_time(&scripts), &by_time(&[joined]))?;
                let samples = |path: &Path| -> u64 {
                    let ran = perf.run(Stdin::Null, args!["report", "-f", "--stats", "--stdio", "-i", path]);
                    let lines = ran.text();
                    let line = lines.lines().find(|line| line.contains(" SAMPLE events:"));
                    line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok()).unwrap_or(0)
                };
                let (all, sum) = (samples(&out), inputs.iter().map(|input| samples(input)).sum::<u64>());
                if all != sum {
                    return Err(format!("{}: {all} samples, not {sum}", perf.name));
                }
            }
            Ok(())
        },
    );
}

/// Names and attrs of the events, in any order, with the number of their ids; and everything else that does
/// not depend on the order of the inputs.
fn content(path: &Path) -> BTreeMap<String, usize> {
    let recording = Recording::open(path).unwrap();
    let mut content = BTreeMap::new();
    for event in &recording.events {
        *content.entry(format!("{:?} {} ids", event.attr(), event.ids.len())).or_default() += 1;
    }
    let layouts = Layouts::new(&recording.events);
    assert!(layouts.check_ids().is_ok());
    for (kind, time, bytes) in records(path) {
        if time != 0 {
            *content.entry(format!("{kind} {time} {}", bytes.len())).or_default() += 1;
        }
    }
    content
}

#[test]
fn the_order_of_inputs_affects_only_ids() {
    each(
        &[["plain.p61", "fp.p61"], ["tracepoint.p61", "trace.p61"], ["group.p61", "group-read.p61"]],
        |pair| pair.join(" + "),
        |[one, other]| {
            let folder = temp();
            let (there, back) = (folder.path().join("there"), folder.path().join("back"));
            let (one, other) =
                (data(&format!("recorded/{one}.data")), data(&format!("recorded/{other}.data")));
            perfx(args!["join", "-q", one, other, "-o", there]).done()?;
            perfx(args!["join", "-q", other, one, "-o", back]).done()?;
            let (there, back) = (content(&there), content(&back));
            if there == back { Ok(()) } else { Err("they differ".into()) }
        },
    );
}

#[test]
fn a_join_of_one_recording_is_that_recording() {
    let folder = temp();
    let input = data("recorded/forks.p61.data");
    let (joined, sorted) = (folder.path().join("joined"), folder.path().join("sorted"));
    assert_eq!(perfx(args!["join", "-q", input, "-o", joined]).code, Some(0));
    assert_eq!(perfx(args!["sort", "-q", input, "-o", sorted]).code, Some(0));
    assert_eq!(fs::read(&joined).unwrap(), fs::read(&sorted).unwrap());
}

tiers!(the_output_depends_on_no_thread);
fn the_output_depends_on_no_thread(tier: Tier) {
    each_fixture(&tier.of(whole()), |fixture| {
        let folder = temp();
        let out = ["1", "4"].map(|threads| folder.path().join(threads));
        for (threads, out) in ["1", "4"].iter().zip(&out) {
            let plain = data("recorded/fp.p61.data");
            let ran = perfx(args![
                "join", "-q", "--mix", "-@", threads, "--to", "pipe", fixture.path, plain, "-o", out
            ]);
            if ran.code == Some(1) {
                return Ok(());
            }
        }
        same_bytes("-@ 1 and 4", &fs::read(&out[0]).unwrap(), &fs::read(&out[1]).unwrap())
    });
}

#[test]
fn parts_of_a_recording_become_what_it_would_have_been() {
    let folder = temp();
    let out = folder.path().join("out");
    let parts = [1, 2, 3].map(|number| data(&format!("parts/{number}.data")));
    let ran = perfx(args!["join", parts[0], parts[1], parts[2], "-o", out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("become others"), "the ids are those of all parts: {}", ran.stderr);
    // Every record and every event occurs once.
    let happened = |path: &Path| -> Vec<_> {
        records(path)
            .into_iter()
            .filter(|(_, time, _)| *time != 0)
            .map(|(kind, time, _)| (time, kind))
            .collect()
    };
    let mut all: Vec<_> = parts.iter().flat_map(|part| happened(part)).collect();
    all.sort_by_key(|(time, _)| *time);
    assert_eq!(happened(&out), all);
    let events = |path: &Path| Recording::open(path).unwrap().events.len();
    assert_eq!(events(&out), events(&parts[0]));
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let fields = "pid,tid,time,event";
        let scripts = parts.each_ref().map(|part| script(&perf, part, fields).unwrap());
        same_lines(perf.name, &by_time(&scripts), &by_time(&[script(&perf, &out, fields).unwrap()])).unwrap();
        // Alone, a part does not know earlier mappings.
        let unknown = |path: &Path| {
            let lines = script(&perf, path, "tid,time,ip,sym,dso").unwrap();
            lines.iter().filter(|line| line.contains("([unknown])")).count()
        };
        let apart: usize = parts.iter().map(|part| unknown(part)).sum();
        assert!(unknown(&out) < apart, "{}: {apart}", perf.name);
    }
}

#[test]
fn parts_of_one_zstd_stream_are_joined_in_one_step() {
    for version in ["p61", "p73"] {
        let folder = temp();
        let (out, plain, parts) =
            (folder.path().join("out"), folder.path().join("plain"), folder.path().join("parts"));
        let input = |number: u32| data(&format!("recorded/switch-output-z.{version}.data/{number}.data"));
        let first: Vec<_> = (1..).map(input).take_while(|path| path.exists()).collect();
        let mut line = args!["decompress", "-q", "-o", parts, "--chain"].to_vec();
        line.extend(first.iter().map(Into::into));
        assert_eq!(perfx(line).code, Some(0));
        let mut line = args!["join", "-q", "-o", plain].to_vec();
        line.extend(first.iter().map(|path| parts.join(path.file_name().unwrap()).into()));
        assert_eq!(perfx(line).code, Some(0));
        let mut line = args!["join", "-q", "-o", out].to_vec();
        line.extend(first.iter().map(Into::into));
        let ran = perfx(line);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(fs::read(out).unwrap(), fs::read(plain).unwrap(), "{version}");
    }
}

#[test]
fn a_recording_that_is_split_and_joined_is_the_original() {
    let Some(perf) = perf("perf") else { return };
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let input = data("recorded/forkexec.p61.data");
    for (window, part) in [("0%-40%", "a"), ("40%-70%", "b"), ("70%-100%", "c")] {
        let ran =
            perfx(args!["filter", "-q", "--keep-all-sideband", "--time", window, input, "-o", path(part)]);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    }
    let ran = perfx(args!["join", path("c"), path("a"), path("b"), "-o", path("out")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let fields = "comm,tid,time,event,ip,sym";
    let parts = ["a", "b", "c"].map(|part| script(&perf, &path(part), fields).unwrap());
    same_lines("parts", &by_time(&parts), &by_time(&[script(&perf, &path("out"), fields).unwrap()])).unwrap();
}

#[test]
fn an_input_is_moved_by_its_offset() {
    let folder = temp();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let mut input = data("recorded/forkexec.p61.data").into_os_string();
    let sorted = folder.path().join("sorted");
    assert_eq!(perfx(args!["sort", "-q", input, "-o", sorted]).code, Some(0));
    input.push(",offset=-1500");
    assert_eq!(perfx(args!["join", "-q", input, "-o", there]).code, Some(0));
    let later = |path: &Path| records(path).into_iter().map(|(_, time, _)| time).filter(|time| *time != 0);
    assert!(later(&there).zip(later(&sorted)).all(|(there, here)| there == here + 1500));
    let mut there = there.into_os_string();
    there.push(",offset=+1500");
    assert_eq!(perfx(args!["join", "-q", there, "-o", back]).code, Some(0));
    assert_eq!(records(&back), records(&sorted), "there and back again");
}

#[test]
fn what_a_join_says_and_every_refusal() {
    let place = Place::new(&[
        ("a.data", "recorded/plain.p61.data"),
        ("b.data", "recorded/fp.p61.data"),
        ("c.data", "recorded/tracepoint.p61.data"),
        ("pipe.data", "recorded/pipe.p61.data"),
        ("stat.data", "recorded/stat.p61.data"),
        ("timeless.data", "recorded/per-thread.p61.data"),
        ("mono.data", "recorded/clock-monotonic.p73.data"),
        ("tai.data", "recorded/clock-tai.p73.data"),
        ("be.data", "crafted/be-switch.p61.data"),
        ("z2.data", "recorded/switch-output-z.p61.data/2.data"),
        ("killed.data", "recorded/killed.p61.data"),
        ("forks.data", "recorded/forks.p61.data"),
        ("1.data", "parts/1.data"),
        ("2.data", "parts/2.data"),
        ("3.data", "parts/3.data"),
        ("no-event.data", "crafted/val-attrs-none.data"),
        ("aux.data", "crafted/aux-le.data"),
        ("spe.data", "crafted/aux-spe.data"),
    ]);
    place.write("empty.data", b"");
    place.write("list", b"# two\na.data\nb.data,offset=5\n");
    let bytes = fs::read(place.path("b.data")).unwrap();
    let other = |from: &[u8], to: &[u8]| {
        let mut bytes = bytes.clone();
        let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    place.write("host.data", other(b"perfx-host", b"other-host"));
    same(
        "join",
        "said",
        &place.say_all(&[
            "join a.data b.data -o ab.data",
            "join c.data a.data -n",
            "join pipe.data a.data -n",
            "join a.data - -n < pipe.data",
            "join @list -n",
            "join 1.data 2.data 3.data -n",
            "join mono.data tai.data -n",
            "join ab.data a.data -n",
            "join a.data -n",
            "sort forks.data -n",
            "sort a.data -n",
            "sort stat.data -n",
            "sort timeless.data -n",
            "run -p sort -n forks.data",
            "run -p join:with=b.data -n a.data",
        ]),
    );
    same(
        "join",
        "refused",
        &place.say_all(&[
            "join a.data host.data -n",
            "join --mix a.data host.data -n",
            "join a.data mono.data -n",
            "join --mix a.data mono.data -n",
            "join a.data mono.data,offset=0 -n",
            "join a.data b.data,offset=99999999999999999 -n",
            "join a.data b.data,offset=1s -n",
            "join a.data stat.data -n",
            "join a.data timeless.data -n",
            "join a.data no-event.data -n",
            "join --mix aux.data spe.data -n",
            "join a.data be.data -n",
            "join a.data killed.data -n",
            "join a.data empty.data -n",
            "join a.data missing.data -n",
            "join a.data a.data -n",
            "join a.data ./a.data -n",
            "join a.data b.data -o b.data -f",
            "join a.data z2.data -n",
            "join z2.data -n",
            "join - - -n",
            "join --in-place a.data b.data",
            "join a.data . -n",
            "run -p join:with=b.data,offset=x -n a.data",
            "run -p join:offset=x -n a.data",
            "sort missing.data",
            "sort empty.data -n",
        ]),
    );
}

#[test]
fn where_records_without_a_time_stand() {
    let place = Place::new(&[("1.data", "parts/1.data"), ("2.data", "parts/2.data")]);
    place.say("join -q 1.data 2.data -o out.data");
    let kinds = [
        "FINISHED_ROUND", "ID_INDEX", "THREAD_MAP", "CPU_MAP", "EVENT_UPDATE", "FINISHED_INIT", "MMAP",
        "COMM", "EXIT",
    ];
    same("join", "without_a_time", &place.dump("out.data", &["feature EVENT_DESC"], &kinds));
}

/// Only the inputs' features were merged, and --buildid-all writes no times: perf then used the times of the
/// other inputs.
#[test]
fn sample_time_is_that_of_all_samples() {
    let folder = temp();
    for others in ["recorded/buildid-all.p61.data", "recorded/z1.p61.data", "recorded/pipe.p61.data"] {
        let out = folder.path().join("out");
        let ran =
            perfx(args!["join", "-q", "--mix", data(others), data("recorded/plain.p61.data"), "-fo", out]);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        let said = perfx(args!["doctor", out]).text();
        assert!(!said.contains("sample-time"), "{others}: {said}");
    }
}

/// Ids of an input without an ID_INDEX (from perf before 5.18) were missing in the output's ID_INDEX.
#[test]
fn ids_of_an_input_without_an_index_are_in_the_output_s() {
    let place = Place::new(&[
        ("old.data", "recorded/plain.p510.data"),
        ("older.data", "recorded/fp.p510.data"),
        ("pipe.data", "recorded/pipe.p510.data"),
        ("new.data", "recorded/plain.p61.data"),
        ("aux.data", "crafted/aux-le.data"),
    ]);
    let mut text = Vec::new();
    for inputs in [
        "new.data old.data older.data",
        "old.data new.data",
        "pipe.data new.data",
        "new.data pipe.data --to pipe",
        "old.data older.data",
        "aux.data old.data --mix",
    ] {
        text.push(place.say(&format!("join -f {inputs} -o out.data")));
        text.push(place.dump("out.data", &[], &["ID_INDEX", "AUXTRACE_INFO"]));
        let said = perfx(args!["doctor", place.path("out.data")]).text();
        assert!(!said.contains("id-index"), "{inputs}: {said}");
    }
    same("join", "id_index", &text.join("\n"));
}

/// Regression: the output had the first input's `kcore_dir`, or none.
#[test]
fn a_kcore_of_the_same_kernel_is_copied() {
    let folder = temp();
    let (kcore, plain) = (data("recorded/kcore.p61.data"), data("recorded/plain.p61.data"));
    let join = |first: &Path, second: &Path, more: &[&str]| {
        let out = folder.path().join("out.data");
        let mut line = args!["join", "-f", "-o", out, first, second].to_vec();
        line.extend(more.iter().map(Into::into));
        let ran = perfx(line);
        (ran.code, ran.stderr, out)
    };
    let (code, said, out) = join(&plain, &kcore, &[]);
    assert_eq!(code, Some(0), "{said}");
    for name in ["kallsyms", "kcore", "modules"] {
        let of = |path: &Path| fs::read(path.join("kcore_dir").join(name)).unwrap();
        assert_eq!(of(&out), of(&kcore), "{name}");
    }
    for perf in perfs(&["perf", "perf-new"]) {
        let lines = |path: &Path| script(&perf, path, "tid,time,event").unwrap();
        let apart = [lines(&plain), lines(&kcore)];
        same_lines(perf.name, &by_time(&apart), &by_time(&[lines(&out)])).unwrap();
    }
    // The first input's is kept; a file cannot contain it.
    assert_eq!(join(&kcore, &data("recorded/kcore.p612.data"), &[]).0, Some(3));
    fs::remove_dir_all(&out).unwrap();
    assert_eq!(join(&plain, &kcore, &["--to", "file"]).0, Some(3));
    // One of another boot is useless, and without it the output is a file.
    fs::remove_file(&out).unwrap();
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    let mut bytes = fs::read(kcore.join("data")).unwrap();
    let at = bytes.windows(16).position(|part| part == b"[kernel.kallsyms").unwrap();
    // The address of the mapping: u32 pid, tid, u64 addr, len, pgoff, name.
    bytes[at - 24..at - 16].copy_from_slice(&0xffff_ffff_8200_0000u64.to_le_bytes());
    fs::write(there.join("data"), bytes).unwrap();
    fs::create_dir(there.join("kcore_dir")).unwrap();
    let (code, said, out) = join(&plain, &there, &[]);
    assert!(code == Some(3) && said.contains("kcore_dir") && out.is_file(), "{code:?} {said}");
}

#[test]
fn inputs_may_be_given_as_perf_takes_them() {
    let folder = temp();
    let (named, given) = (folder.path().join("named"), folder.path().join("given"));
    let [a, b, c] = ["plain", "fp", "forks"].map(|name| data(&format!("recorded/{name}.p61.data")));
    perfx(args!["join", "-q", a, b, c, "-o", named]).done().unwrap();
    perfx(args!["join", "-q", "-i", a, "--input", b, c, "-o", given]).done().unwrap();
    same_bytes("-i", &fs::read(named).unwrap(), &fs::read(given).unwrap()).unwrap();
    // A command with one input takes the last one, like perf.
    let ran = perfx(args!["copy", "-i", a, "-i", b, "-n"]);
    assert!(ran.code == Some(0) && ran.stderr.contains("fp.p61.data"), "{}", ran.stderr);
}

/// Regression: the waiting time of records was computed from other batches than those read later.
#[test]
fn a_compressed_input_of_many_batches_is_joined_in_order() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let fixture = Fixture::new("recorded/plain.p61.data");
    fs::write(path("plain.data"), fixture.repeated(10 << 20)).unwrap();
    let ran = perfx(args!["compress", "-l", "1", path("plain.data"), "-o", path("packed.data")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let joined = |input: &str| {
        let out = path(input).with_extension("joined");
        let ran = perfx(args!["join", "-q", fixture.path, path(input), "-o", out]);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        fs::read(out).unwrap()
    };
    same_bytes("joined", &joined("plain.data"), &joined("packed.data")).unwrap();
}

/// perf reads a file without sample_id_all in file order, so process names would come before all samples, or
/// after them.
#[test]
fn records_without_a_time_stay_between_their_neighbours_where_perf_does_not_sort() {
    let sampled = tiny::IP | tiny::TID | tiny::TIME;
    let (mut data, mut plain) = (Vec::new(), Vec::new());
    let mut add = |record: Vec<u8>| data.extend(record);
    add(tiny::comm(7, b"first\0\0\0"));
    // First the records of one CPU, then those of another.
    for time in [1_000, 3_000] {
        add(tiny::sample(7, time));
    }
    add(tiny::comm(7, b"second\0\0"));
    for time in [5_000, 7_000, 2_000] {
        add(tiny::sample(7, time));
    }
    add(tiny::comm(8, b"other\0\0\0"));
    add(tiny::sample(8, 4_000));
    let times = |time: u64| tiny::sample(7, time);
    plain.extend([tiny::comm(7, b"only\0\0\0\0"), times(2_500), times(6_000)].concat());
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.data"), tiny::file(sampled, tiny::COMM, &data, &[])).unwrap();
    fs::write(path("b.data"), tiny::file(sampled, tiny::COMM, &plain, &[])).unwrap();
    // Kinds of records in order, a SAMPLE with its time in µs, a COMM with its name.
    let shown = |name: &str| -> String {
        let told = |(kind, time, bytes): (RecordType, u64, Vec<u8>)| match kind {
            RecordType::COMM => String::from_utf8_lossy(&bytes[16..]).trim_end_matches('\0').to_owned(),
            _ => (time / 1_000).to_string(),
        };
        records(&path(name)).into_iter().map(told).collect::<Vec<_>>().join(" ")
    };
    perfx(args!["sort", "-q", path("a.data"), "-o", path("sorted")]).done().unwrap();
    assert_eq!(shown("sorted"), "first 1 2 other 3 second 4 5 7");
    perfx(args!["join", "-q", path("a.data"), path("b.data"), "-o", path("joined")]).done().unwrap();
    assert_eq!(shown("joined"), "first 1 2 other only 2 3 second 4 5 6 7");
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let named = |name: &str| -> Vec<String> {
            let lines = script(&perf, &path(name), "comm,time").unwrap();
            let mut lines: Vec<_> = lines.iter().map(|line| squeezed(line)).collect();
            lines.sort();
            lines
        };
        // The sample at 2 is from another CPU, and only its time shows that it precedes the second name.
        let differ: Vec<_> =
            named("sorted").into_iter().filter(|line| !named("a.data").contains(line)).collect();
        assert_eq!(differ, ["first 0.000002000:"], "{}", perf.name);
    }
}

#[test]
fn inputs_are_taken_in_the_order_in_which_they_are_given() {
    let folder = temp();
    let (named, given) = (folder.path().join("named"), folder.path().join("given"));
    let [a, b, c] = ["plain", "fp", "forks"].map(|name| data(&format!("recorded/{name}.p61.data")));
    perfx(args!["join", "-q", a, b, c, "-o", named]).done().unwrap();
    perfx(args!["join", "-q", a, "-i", b, c, "-o", given]).done().unwrap();
    same_bytes("-i in between", &fs::read(&named).unwrap(), &fs::read(&given).unwrap()).unwrap();
    perfx(args!["join", "-q", "-f", "-i", a, b, "--input", c, "-o", given]).done().unwrap();
    same_bytes("-i around", &fs::read(&named).unwrap(), &fs::read(&given).unwrap()).unwrap();
}

#[test]
fn a_join_that_an_older_perf_cannot_read_says_so() {
    let said = |one: &str, other: &str| {
        perfx(args![
            "join",
            "-n",
            "--mix",
            data(&format!("recorded/{one}.data")),
            data(&format!("recorded/{other}.data"))
        ])
        .stderr
    };
    let both = said("plain.p61", "plain.p73");
    assert!(
        both.contains("attrs have 144 bytes, as in ")
            && both
                .contains("plain.p61.data knows only 128 bytes, so it can read the output only as pipe data"),
        "{both}"
    );
    assert!(!said("plain.p61", "fp.p61").contains("attrs have"));
}

/// Regression: the records of the only event need no id, so they can have one that it does not list. Among
/// other events they then belonged to none.
#[test]
fn ids_that_the_only_event_does_not_list_are_its_own_among_others() {
    let (equal, two) = (data("crafted/order-equal.data"), data("crafted/two-le.data"));
    let folder = temp();
    let (unlisted, out) = (folder.path().join("unlisted.data"), folder.path().join("out.data"));
    let mut bytes = fs::read(&equal).unwrap();
    // The ids of its event, 11 and 12.
    bytes[0x68..0x78].fill(0);
    fs::write(&unlisted, bytes).unwrap();
    let guest = format!("{},pid=100,offset=0,vcpu=0:100,vcpu=1:101", equal.display());
    // Its samples and four of another recording; merge omits those of guests.
    for (line, samples) in [
        (args!["join", unlisted, two, "-o", out], "8\n"),
        (args!["join", two, unlisted, "-o", out], "8\n"),
        (args!["merge", unlisted, guest, "-o", out], "4\n"),
    ] {
        let ran = perfx([&line[..], &args!["-q", "-f"]].concat());
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        let said = perfx(args!["doctor", out]).text();
        assert!(!said.contains("id-unknown") && !said.contains("rest"), "{line:?}: {said}");
        assert_eq!(perfx(args!["view", "-q", "--count", out]).text(), samples, "{line:?}");
    }
}
