//! Uses perfx as a library: the examples of perfx-format, copies made record by record, and a pass in a
//! package of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Cursor;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use perfx_format::read::{Form, Recording};
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Error, ErrorKind, Event, Feature, Origin, RecordType, Time, sample_type};

use crate::args;
use crate::promises::unnamed;
use crate::support::{
    Fixture, Stdin, clean, each_fixture, perf, perfs, perfx, recorded, root, run, skipped, target, temp,
    workloads,
};

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/count_functions.rs"]
mod count_functions;

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/count_samples.rs"]
mod count_samples;

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/drop_process.rs"]
mod drop_process;

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/strip_kind.rs"]
mod strip_kind;

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/write_recording.rs"]
mod write_recording;

/// All records with their payloads, and the first fault.
fn records_of(recording: &mut Recording) -> (Vec<Vec<u8>>, Option<Error>) {
    let (mut all, mut records) = (Vec::new(), recording.records());
    loop {
        match records.next_record() {
            Ok(Some(record)) => all.push([record.bytes(), record.payload()].concat()),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        }
    }
}

fn copy_file(recording: &mut Recording) -> perfx_format::Result<Vec<u8>> {
    let mut writer = RecordingWriter::to_file(Cursor::new(Vec::new()), &recording.events, recording.endian)?;
    for (&feature, section) in &recording.features {
        writer.set_feature(feature, section.clone())?;
    }
    let mut records = recording.records();
    while let Some(record) = records.next_record()? {
        writer.write_record(&record)?;
    }
    Ok(writer.finish()?.into_inner())
}

fn copy_pipe(recording: &mut Recording) -> perfx_format::Result<Vec<u8>> {
    let Recording { events, features, endian, .. } = &*recording;
    let mut writer = RecordingWriter::to_pipe(Vec::new(), events, features, *endian)?;
    let mut records = recording.records();
    while let Some(record) = records.next_record()? {
        writer.write_record(&record)?;
    }
    writer.finish()
}

#[test]
fn a_copy_made_record_by_record_holds_the_same() {
    let copied = AtomicUsize::new(0);
    each_fixture(&recorded(), |fixture| {
        let Ok(mut recording) = Recording::open(&fixture.path) else { return Ok(()) };
        let (records, fault) = records_of(&mut recording);
        if fault.is_some() || !recording.faults.is_empty() {
            return Ok(());
        }
        let again = || Recording::open(&fixture.path).map_err(|e| e.to_string());
        let copies = [("file", copy_file(&mut again()?)), ("pipe", copy_pipe(&mut again()?))];
        for (form, copy) in copies {
            let copy = copy.map_err(|e| format!("{form}: {e}"))?;
            let mut copy = Recording::from_file(unnamed(&copy), form.into(), Arc::new(tempfile::tempfile))
                .map_err(|e| format!("{form}: {e}"))?;
            if !copy.faults.is_empty() || copy.events != recording.events {
                return Err(format!("{form}: faults {:?}, or other events", copy.faults));
            }
            let form_only = [Feature::AUXTRACE, Feature::COMPRESSED, Feature::DIR_FORMAT];
            for (feature, section) in &recording.features {
                if !form_only.contains(feature)
                    && copy.features.get(feature).is_none_or(|copy| **copy != **section)
                {
                    let in_records = [Feature::BUILD_ID, Feature::EVENT_DESC, Feature::TRACING_DATA];
                    if form == "file" || !in_records.contains(feature) {
                        return Err(format!("{form}: another {feature}"));
                    }
                }
            }
            let (copied, fault) = records_of(&mut copy);
            // Pipe data has additional records for names and build-ids.
            let own = copied.len() - records.len();
            if fault.is_some() || copied[own..] != records || form == "file" && own > 0 {
                return Err(format!("{form}: {} records of {}", copied.len(), records.len()));
            }
        }
        copied.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(copied.into_inner() > 100);
}

/// The records of a sequence that are not ends of a round, with their times.
macro_rules! all_of {
    ($records:expr) => {{
        let (mut all, mut records) = (Vec::new(), $records);
        while let Some(record) = records.next_record().map_err(|e| e.to_string())? {
            if record.kind() != RecordType::FINISHED_ROUND {
                all.push((record.time(), [record.bytes(), record.payload()].concat()));
            }
        }
        all
    }};
}

#[test]
fn records_by_time_come_in_the_order_of_perfx_sort() {
    let compared = AtomicUsize::new(0);
    each_fixture(&recorded(), |fixture| {
        let folder = temp();
        let sorted = folder.path().join("sorted.data");
        let Ok(recording) = Recording::open(&fixture.path) else { return Ok(()) };
        let is_file = recording.form == Form::File;
        if !is_file || perfx(args!["sort", &fixture.path, "-o", &sorted]).code != Some(0) {
            return Ok(());
        }
        let mut sorted = Recording::open(&sorted).map_err(|e| e.to_string())?;
        let (mut expected, mut all) =
            (all_of!(sorted.records()), all_of!(recording.records_by_time().map_err(|e| e.to_string())?));
        // perfx sort does not move records without a time if the others are in order already.
        let timed = |records: &[(Option<Time>, Vec<u8>)]| -> Vec<Vec<u8>> {
            let timed = records.iter().filter(|(time, _)| time.is_some());
            timed.map(|(_, bytes)| bytes.clone()).collect()
        };
        if timed(&all) != timed(&expected) {
            return Err("records with a time are in another order".to_owned());
        }
        all.sort();
        expected.sort();
        if all != expected {
            return Err(format!("{} records and {}", all.len(), expected.len()));
        }
        compared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(compared.into_inner() > 50);
}

#[test]
fn records_by_time_before_a_cut_are_handed_out_and_the_cut_is_an_error() {
    let fixture = Fixture::new("recorded/pipe-cut.p61.data");
    let mut records = Recording::open(fixture.path).unwrap().records_by_time().unwrap();
    let mut times = Vec::new();
    let error = loop {
        match records.next_record() {
            Ok(Some(record)) => times.extend(record.time()),
            Ok(None) => panic!("the cut was passed over"),
            Err(error) => break error,
        }
    };
    assert!(!times.is_empty() && times.is_sorted());
    assert!(error.to_string().contains("pipe-cut.p61.data: at offset"));
}

#[test]
fn records_before_a_cut_are_handed_out_and_the_cut_is_an_error() {
    let fixture = Fixture::new("recorded/pipe-cut.p61.data");
    let (records, fault) = records_of(&mut Recording::open(fixture.path).unwrap());
    assert!(!records.is_empty());
    assert!(fault.unwrap().to_string().contains("pipe-cut.p61.data: at offset"));
}

/// Regression: an error about a record's fields did not name the file.
#[test]
fn an_error_of_reading_says_the_file_the_place_and_the_kind() {
    let folder = temp();
    let path = folder.path().join("short.data");
    let mut attr = Attr::default();
    attr.sample_type = sample_type::TID | sample_type::TIME;
    let events = [Event::made(&attr, vec![1], Endian::Little)];
    let mut writer = RecordingWriter::create(&path, &events, Endian::Little).unwrap();
    // The time is missing.
    writer.write_parts(RecordType::SAMPLE, 0, &[&[7; 8]]).unwrap();
    writer.write_parts(RecordType::SAMPLE, 0, &[&[7; 16]]).unwrap();
    writer.finish().unwrap();
    let mut recording = Recording::open(&path).unwrap();
    let data = recording.file.as_ref().unwrap().data.offset;
    let mut records = recording.records();
    let record = records.next_record().unwrap().unwrap();
    for error in [record.sample().unwrap_err(), record.error("it is not as expected")] {
        assert_eq!(error.file_name(), path.to_str());
        assert_eq!(error.place(), Some(Origin::Input { stream: 0, offset: data }));
        assert_eq!(error.record_kind(), Some(RecordType::SAMPLE));
    }
    let next = records.next_record().unwrap().unwrap();
    assert_eq!(next.sample().unwrap().unwrap().pid_tid, Some((0x0707_0707, 0x0707_0707)));
}

#[test]
fn count_samples_counts_what_perf_script_lists() {
    let fixture = Fixture::new("recorded/threads-named.p61.data");
    let counts = count_samples::count_samples(&fixture.path).unwrap();
    assert!(counts.len() > 1);
    let Some(perf) = perf("perf") else { return };
    let listed = perf.run(Stdin::Null, args!["script", "-f", "-F", "pid,tid", "-i", &fixture.path]).text();
    let mut expected = BTreeMap::new();
    for line in listed.lines() {
        let (pid, tid) = line.trim().split_once('/').expect("PID/TID");
        *expected.entry((pid.parse().unwrap(), tid.trim().parse().unwrap())).or_insert(0) += 1;
    }
    assert_eq!(counts, expected);
}

#[test]
fn count_functions_counts_what_list_functions_lists() {
    let Some(root) = workloads() else { return };
    let fixture = Fixture::new("recorded/fp.p61.data");
    let counts = count_functions::count_functions(&fixture.path, root).unwrap();
    let ran = perfx(args!["list", "functions", "--json", "-q", "--root", root, &fixture.path]);
    let document: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    let rows = document["rows"].as_array().unwrap();
    let of = |row: &serde_json::Value| {
        (row["function"].as_str().unwrap().to_owned(), row["samples"].as_u64().unwrap())
    };
    // perfx also finds the symbols of files that are not below the root folder.
    let of_program = rows.iter().filter(|row| row["dso"].as_str().unwrap().ends_with("/burn"));
    let named: BTreeMap<_, _> = of_program.map(of).filter(|(_, count)| *count > 0).collect();
    assert!(named.len() > 2, "{named:?}");
    let found: BTreeMap<_, _> = counts.into_iter().filter(|(name, _)| named.contains_key(name)).collect();
    assert_eq!(found, named);
}

#[test]
fn strip_kind_leaves_all_others() {
    let fixture = Fixture::new("recorded/forks.p61.data");
    let folder = temp();
    let output = folder.path().join("out.data");
    let kinds = |path: &Path| {
        let mut counts = BTreeMap::new();
        let mut records = Recording::open(path).unwrap().records();
        while let Some(record) = records.next_record().unwrap() {
            *counts.entry(record.kind()).or_insert(0_u64) += 1;
        }
        counts
    };
    let mut expected = kinds(&fixture.path);
    let left_out = strip_kind::strip_kind(&fixture.path, RecordType::FORK, &output).unwrap();
    assert_eq!(expected.remove(&RecordType::FORK), Some(left_out));
    assert_eq!(kinds(&output), expected);
}

#[test]
fn drop_process_leaves_all_others() {
    let fixture = Fixture::new("recorded/forkexec.p61.data");
    let counts = count_samples::count_samples(&fixture.path).unwrap();
    let pids: Vec<u32> = counts.keys().map(|(pid, _)| *pid).collect();
    let (first, last) = (pids[0], pids[pids.len() - 1]);
    assert_ne!(first, last);
    let folder = temp();
    let output = folder.path().join("out.data");
    let dropped = drop_process::drop_process(&fixture.path, last, &output).unwrap();
    let left = count_samples::count_samples(&output).unwrap();
    let expected: BTreeMap<_, _> = counts.iter().filter(|((pid, _), _)| *pid != last).collect();
    assert_eq!(left.iter().collect::<BTreeMap<_, _>>(), expected);
    let count = |path| records_of(&mut Recording::open(path).unwrap()).0.len() as u64;
    assert_eq!(count(&fixture.path), count(&output) + dropped);
    let Some(perf) = perf("perf") else { return };
    let fields = "comm,pid,tid,time,event,ip";
    let listed = |path| perf.run(Stdin::Null, args!["script", "-f", "-F", fields, "-i", path]).text();
    let of_last = format!(" {last}/");
    let expected: Vec<_> =
        listed(&fixture.path).lines().filter(|line| !line.contains(&of_last)).map(str::to_owned).collect();
    assert_eq!(listed(&output).lines().collect::<Vec<_>>(), expected);
}

/// The output was emptied before the input was read, which then ended in SIGBUS.
#[test]
fn a_recording_may_be_written_over_the_one_that_is_read() {
    let folder = temp();
    let path = folder.path().join("perf.data");
    let input = Fixture::new("recorded/forkexec.p61.data");
    fs::copy(&input.path, &path).unwrap();
    let open = Recording::open(&path).unwrap();
    let unfinished = RecordingWriter::create(&path, &open.events, open.endian).unwrap();
    drop(unfinished);
    assert_eq!(fs::read(&path).unwrap(), input.bytes());
    assert_eq!(drop_process::drop_process(&path, 4_000_000, &path).unwrap(), 0);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let records = |path: &Path| records_of(&mut Recording::open(path).unwrap()).0;
    assert_eq!(records(&path), records(&input.path));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = RecordingWriter::create("/dev/null", &open.events, open.endian).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

/// Regression: the error of a writer did not name its file, and a dangling link was replaced.
#[test]
fn a_writer_that_fails_names_its_file_and_leaves_nothing() {
    let folder = temp();
    let create = |path: &Path| RecordingWriter::create(path, &[], Endian::Little);
    let link = folder.path().join("link");
    symlink(folder.path().join("missing"), &link).unwrap();
    let in_way = folder.path().join("in-way");
    let writer = create(&in_way).unwrap();
    fs::create_dir_all(in_way.join("mine")).unwrap();
    for (error, path) in [
        (create(&link).unwrap_err(), &link),
        (create(&folder.path().join("missing/made")).unwrap_err(), &folder.path().join("missing/made")),
        (writer.finish().unwrap_err(), &in_way),
    ] {
        assert_eq!((error.file_name(), error.kind()), (path.to_str(), ErrorKind::Io), "{error}");
        assert!(!error.to_string().contains(".perfx-"), "{error}");
    }
    assert!(link.is_symlink() && in_way.join("mine").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn every_perf_reads_a_recording_written_from_nothing() {
    let folder = temp();
    let path = folder.path().join("made.data");
    write_recording::write_recording(&path).unwrap();
    assert_eq!(count_samples::count_samples(&path).unwrap(), BTreeMap::from([((42, 42), 3)]));
    perfx(args!["doctor", &path]).done().unwrap();
    let lines = ["400010", "400020", "400010"].into_iter().zip(1..);
    let expected: Vec<_> =
        lines.map(|(ip, us)| format!("made 42 0.00000{us}: made-clock: {ip} (/opt/made)")).collect();
    for perf in perfs(&["perf", "perf-bullseye", "perf-trixie", "perf-sid", "perf-new"]) {
        let ran = perf.run(Stdin::Null, args!["script", "-F", "comm,tid,time,event,ip,dso", "-i", &path]);
        let text = ran.text();
        let found: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(found, expected, "{}: {}", perf.name, ran.stderr);
        assert!(!ran.stderr.contains("WARNING"), "{}: {}", perf.name, ran.stderr);
    }
}

#[test]
fn a_writer_refuses_features_that_stop_some_perf() {
    let mut writer =
        RecordingWriter::to_file(Cursor::new(Vec::new()), &[], perfx_format::Endian::Little).unwrap();
    let error = writer.set_feature(Feature::CACHE, vec![9, 0, 0, 0]).unwrap_err();
    assert!(error.to_string().contains("CACHE"), "{error}");
    // perf does not know simpleperf's additions, and skips them.
    writer.set_feature(Feature::FILE, vec![9, 0, 0, 0]).unwrap();
    assert!(writer.write(&[0; 7]).is_err());
    let attr = fs::read(root().join("tests/data/recorded/pipe.p61.data")).unwrap();
    let size = u16::from_le_bytes([attr[22], attr[23]]).into();
    let error = writer.write(&attr[16..][..size]).unwrap_err();
    assert!(error.to_string().contains("HEADER_ATTR"), "{error}");
}

/// Its lock file is that of the workspace, without unneeded packages. `.ci/run` compiles it.
#[test]
fn the_lock_file_of_the_example_of_a_pass_is_up_to_date() {
    if Command::new(env!("CARGO")).arg("--version").output().is_err() {
        return skipped("the example of a pass: cargo is not executable for this user");
    }
    let package = root().join("tests/example-pass");
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        run(cargo.args(args).arg("--manifest-path").arg(package.join("Cargo.toml")), Stdin::Null).done()
    };
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::copy(root().join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
        cargo(&["update", "--workspace", "--offline"]).unwrap();
    }
    let checked = cargo(&["tree", "--locked", "--offline"]);
    assert!(checked.is_ok(), "{checked:?}\nINSTA_UPDATE=always makes it anew");
}

#[test]
fn a_pass_in_a_package_of_its_own_is_a_pass_like_others() {
    // Cargo compiles it as an example of perfx, too, but not for `cargo test --test it`.
    let program = target().join("debug/examples/perfx-example");
    assert!(program.exists(), "the example of a pass is missing: cargo build --example perfx-example");
    let example = |args: &[OsString]| run(clean(&program).args(args), Stdin::Null);
    let listed = example(&args!["passes"]).done().unwrap().text();
    assert!(listed.contains("\ndrop-comm\n    drop the samples"), "{listed}");
    assert!(example(&args!["help", "all"]).text().contains("  drop-comm   Drop the samples"));
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    // Its threads have several names, one after the other; some samples are compressed.
    for name in ["recorded/threads-named.p61.data", "recorded/z.p73.data"] {
        let input = Fixture::new(name).path;
        let names = perfx(args!["list", "threads", "--json", &input]).text();
        let names: serde_json::Value = serde_json::from_str(&names).unwrap();
        let rows = names["rows"].as_array().unwrap().iter();
        let comm = rows.max_by_key(|row| row["samples"].as_u64()).unwrap()["comm"].as_str().unwrap();
        let (chain, rest) = (format!("decompress,drop-comm:name={comm}"), at("rest.data"));
        example(&args!["run", "-p", &chain, &input, "-f", "-o", &rest]).done().unwrap();
        example(&args!["drop-comm", "--name", comm, &input, "-f", "-o", at("alone.data")]).done().unwrap();
        assert!(fs::read(&rest).unwrap() == fs::read(at("alone.data")).unwrap(), "{name}: {comm}");
        let kept = format!("^{comm}$");
        perfx(args!["filter", "--comm", &kept, &input, "-f", "-o", at("kept.data")]).done().unwrap();
        let samples = |path: &Path| -> u64 { count_samples::count_samples(path).unwrap().values().sum() };
        assert!(samples(&at("kept.data")) > 0);
        assert_eq!(samples(&rest) + samples(&at("kept.data")), samples(&input), "{name}: {comm}");
    }
}

/// Regression: the tests' own dependencies also enable features for the program, so an installed program did
/// not accept `\w`, `\d` and `(?i)`, and no test noticed.
#[test]
fn an_installed_program_takes_the_regular_expressions_that_the_tests_write() {
    if Command::new(env!("CARGO")).arg("--version").output().is_err() {
        return skipped("features of an installed program: cargo is not executable for this user");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "-e", "no-dev,features", "-i", "regex", "--manifest-path"]);
    let ran = run(cargo.arg(root().join("Cargo.toml")), Stdin::Null);
    for feature in ["unicode-case", "unicode-perl"] {
        assert!(ran.text().contains(&format!("regex feature \"{feature}\"")), "{}{}", ran.text(), ran.stderr);
    }
}
