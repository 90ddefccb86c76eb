//! Uses perfx-format as a library: its examples, and copies made record by record.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perfx_format::read::{Form, Recording};
use perfx_format::write::RecordingWriter;
use perfx_format::{Error, Feature, RecordType};

use crate::args;
use crate::promises::unnamed;
use crate::support::{Fixture, Stdin, each_fixture, perf, perfs, perfx, recorded, root, temp};

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/count_samples.rs"]
mod count_samples;

#[allow(dead_code, reason = "main is for cargo run")]
#[path = "../../src/format/examples/drop_process.rs"]
mod drop_process;

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
        // perfx sort leaves records without a time where they are if the others are in order already.
        let timed = |records: &[(Option<u64>, Vec<u8>)]| -> Vec<Vec<u8>> {
            let timed =
                records.iter().filter(|(time, _)| time.is_some_and(|time| time > 0 && time < u64::MAX));
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
            Ok(Some(record)) => times.extend(record.time().filter(|&time| time > 0)),
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
fn a_writer_refuses_what_some_perf_stops_at() {
    let mut writer =
        RecordingWriter::to_file(Cursor::new(Vec::new()), &[], perfx_format::Endian::Little).unwrap();
    let error = writer.set_feature(Feature::CACHE, vec![9, 0, 0, 0]).unwrap_err();
    assert!(error.to_string().contains("CACHE"), "{error}");
    assert!(writer.write(&[0; 7]).is_err());
    let attr = fs::read(root().join("tests/data/recorded/pipe.p61.data")).unwrap();
    let size = u16::from_le_bytes([attr[22], attr[23]]).into();
    let error = writer.write(&attr[16..][..size]).unwrap_err();
    assert!(error.to_string().contains("HEADER_ATTR"), "{error}");
}
