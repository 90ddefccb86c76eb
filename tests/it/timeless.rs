//! A sample without a time has none in any output: no file position and no order of records is shown as a
//! time.

use std::fs;
use std::path::{Path, PathBuf};

use perfx_export::pprof::Profile;
use perfx_format::features::{ClockData, SampleTime};
use perfx_format::read::Recording;
use perfx_format::sample::NewSample;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, RecordType, record::cpumode::USER, sample_type as st};
use prost::Message as _;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::args;
use crate::maker::{Maker, PLAIN, event};
use crate::support::{Fixture, Ran, Stdin, perfx, perfx_command, root, run, temp};
use crate::tiny;

const LE: Endian = Endian::Little;

/// The number that means no time, and the one below it, the sort key of such records.
const NO_TIMES: [&str; 4] =
    ["18446744073709551615", "18446744073709551614", "18446744073.709551", "9223372036"];

fn has_no_time(what: &str, text: &str) {
    for no_time in NO_TIMES {
        assert!(!text.contains(no_time), "{what}: {no_time}: {text}");
    }
}

/// 15 s after boot, it was 2026.
const CLOCK: ClockData =
    ClockData { clockid: 1, wall_ns: 1_800_000_000_000_000_000, clock_ns: 15_000_000_000 };

/// A recording whose samples alternate between an event with times, 16 s to 16 s and 9 µs, and one without.
/// If `has_times` is false, only the one without.
fn mixed(has_times: bool) -> (TempDir, PathBuf) {
    let folder = temp();
    let path = folder.path().join("mixed.data");
    let event = |sample_type: u64, id: u64| {
        let mut attr = Attr::default();
        (attr.type_, attr.sample_period, attr.sample_type) =
            (1, 1000, st::IDENTIFIER | st::IP | st::TID | sample_type);
        // use_clockid, CLOCK_MONOTONIC.
        (attr.flags, attr.clockid) = (1 << 25, 1);
        Event::made(&attr, vec![id], LE)
    };
    let events = [event(st::TIME, 1), event(0, 2)];
    let mut writer = RecordingWriter::create(&path, &events, LE).unwrap();
    for number in 0..20 {
        let id = if has_times { 1 + number % 2 } else { 2 };
        let (ip, time) = (0x40_1000 + number, 16_000_000_000 + number / 2 * 1000);
        let sample = NewSample { cpumode: USER, ip, pid: 7, tid: 7, time, id, ..NewSample::default() };
        writer.write(&sample.build(events[id as usize - 1].attr(), LE).unwrap()).unwrap();
    }
    writer.set_feature(Feature::CLOCK_DATA, CLOCK.write(LE)).unwrap();
    let times = SampleTime { first_ns: 16_000_000_000, last_ns: 16_000_009_000 };
    writer.set_feature(Feature::SAMPLE_TIME, times.write(LE)).unwrap();
    writer.finish().unwrap();
    (folder, path)
}

fn export(format: &str, input: &Path) -> Ran {
    let mut command = perfx_command();
    command.args(["export", format, "--foreign", "-o", "-"]).arg(input);
    run(&mut command, Stdin::Null)
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut plain).unwrap();
    plain
}

fn sample_time(path: &Path) -> Option<SampleTime> {
    let recording = Recording::open(path).unwrap();
    let section = recording.features.get(&Feature::SAMPLE_TIME)?;
    Some(SampleTime::read(section, recording.endian).unwrap())
}

#[test]
fn a_profile_of_pprof_lasts_from_the_first_to_the_last_time() {
    let per_thread = Fixture::new("recorded/per-thread.p61.data").path;
    let (_folders, paths): (Vec<_>, Vec<_>) = [true, false].map(mixed).into_iter().unzip();
    for (path, lasts) in [(&paths[0], 9000), (&paths[1], 0), (&per_thread, 0)] {
        let profile = Profile::decode(&*plain(&export("pprof", path).stdout)).unwrap();
        assert_eq!(profile.duration_nanos, lasts, "{}", path.display());
        assert!(!profile.sample.is_empty());
    }
}

#[test]
fn a_profile_of_firefox_begins_at_the_first_time() {
    for (has_times, start) in [(true, 1_800_000_001_000.0), (false, 0.0)] {
        let (_folder, path) = mixed(has_times);
        let profile: Json = serde_json::from_slice(&plain(&export("firefox", &path).stdout)).unwrap();
        assert_eq!(profile["meta"]["startTime"].as_f64(), Some(start), "{has_times}");
        has_no_time("firefox", &profile.to_string());
    }
}

#[test]
fn texts_and_tables_have_no_time_of_a_sample_without_one() {
    for has_times in [true, false] {
        let (folder, path) = mixed(has_times);
        let page = crate::html::Data::of(&export("html", &path).stdout).head;
        let page = &page.recordings[0];
        assert_eq!(page.first_time, if has_times { "16000000000" } else { "0" });
        // Samples of one stack without a time are one row.
        assert_eq!((page.rows, page.timeless), if has_times { (11, 1) } else { (1, 1) });
        for line in
            [&["view"][..], &["view", "--json"], &["overview"], &["stats"], &["info"], &["list", "threads"]]
        {
            let mut command = perfx_command();
            has_no_time(&line.join(" "), &run(command.args(line).arg(&path), Stdin::Null).text());
        }
        let tables = folder.path().join("tables");
        perfx(args!["export", "csv", "--foreign", path, "--dir", tables]).done().unwrap();
        for table in ["overview", "results", "processes"] {
            let text = fs::read_to_string(tables.join(table).with_extension("csv")).unwrap();
            has_no_time(table, &text);
        }
        let (tables, ran) = crate::parquet::export(&path, &[]);
        let rows = crate::parquet::rows(&tables, "samples");
        let timed = rows.iter().filter(|row| crate::parquet::int(row, "time_ns").is_some()).count();
        assert_eq!((rows.len(), timed), (20, if has_times { 10 } else { 0 }), "{}", ran.stderr);
    }
}

#[test]
fn a_selection_says_only_times_that_samples_have() {
    let (folder, path) = mixed(true);
    let out = |name: &str| folder.path().join(name);
    // Shares and open windows select samples with a time; perf treats those without one as the last ones.
    for (window, kept) in [("0%-50%", 5), ("50%-100%", 5), ("16.000005,", 5), (",16.000005", 5), ("0,", 10)] {
        let ran = perfx(args!["filter", "-f", path, "--time", window, "-o", out("window")]);
        let says = format!("kept {kept} of 20 samples, from 16.00000");
        assert!(ran.stderr.contains(&says), "{window}: {}", ran.stderr);
        has_no_time(window, &ran.stderr);
    }
    // Without one event, the times are those of the other.
    let ran = perfx(args!["filter", "-f", path, "--cpu", "1", "-o", out("none")]);
    has_no_time("none", &ran.stderr);
    for (way, value) in [("--samples", "5"), ("--time", "2us"), ("--by", "event")] {
        let ran = perfx(args!["split", path, way, value, "-o", out(&format!("part{way}"))]);
        assert!(ran.stderr.contains("from 16.00000"), "{way}: {}", ran.stderr);
        has_no_time(way, &ran.stderr);
    }
    for entry in fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let times = sample_time(&entry).unwrap();
        assert!((16_000_000_000..=times.last_ns).contains(&times.first_ns), "{}", entry.display());
        assert!(times.last_ns <= 16_000_009_000, "{}", entry.display());
    }
}

/// It had the number by which such samples are sorted.
#[test]
fn decoded_samples_without_times_leave_no_feature_with_their_times() {
    let folder = temp();
    let [input, output, retimed] = ["in", "out", "retimed"].map(|name| folder.path().join(name));
    for (name, letters) in
        [("user", "i100nsZ"), ("user", "bZ"), ("etm-user", "bZ"), ("etm-virtual", "i100iZ")]
    {
        let times = SampleTime { first_ns: 1000, last_ns: 2000 };
        let features = [(Feature::SAMPLE_TIME, times.write(LE))];
        crate::intel_pt::rewrite_with(&format!("{name}.data"), &input, |_| None, &features);
        let places = args!["--root", root().join("tests/data/trace/root"), input, "-f", "-o", output];
        let itrace = format!("--itrace={letters}");
        let ran = perfx([&args!["inject", itrace][..], &places].concat()).done().unwrap();
        assert!(ran.stderr.contains("left out feature SAMPLE_TIME"), "{name}: {}", ran.stderr);
        assert_eq!(sample_time(&output), None, "{name} {letters}");
        has_no_time(name, &perfx(args!["info", output]).text());
        let doctor = perfx(args!["doctor", output]);
        assert_eq!(doctor.code, Some(0), "{name}: {}", doctor.text());
        perfx(args!["retime", "--offset", "5000", output, "-f", "-o", retimed]).done().unwrap();
    }
}

#[test]
fn a_feature_with_times_that_no_sample_has_is_named_and_repaired() {
    let sample = tiny::record(9, 2, &[0x40_1150_u64.to_le_bytes(), (7 << 32 | 7_u64).to_le_bytes()].concat());
    let folder = temp();
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    const MAX: u64 = u64::MAX;
    // perf's values if it did not read the samples; times of removed samples; perf's values for samples
    // without times, which is no fault; and values that no clock has.
    let cases = [
        ((0, 0), None, (0, 0)),
        ((1000, 2000), None, (1000, 2000)),
        ((MAX, MAX), Some(("sample-time-none", 0)), (MAX, MAX)),
        ((MAX - 1, MAX - 1), Some(("sample-time", 3)), (0, 0)),
        ((2000, 1000), Some(("sample-time", 3)), (0, 0)),
    ];
    for ((first, last), code, repaired) in cases {
        let section = [first.to_le_bytes(), last.to_le_bytes()].concat();
        fs::write(&input, tiny::file(tiny::IP | tiny::TID, 0, &sample.repeat(3), &[(21, section)])).unwrap();
        let doctor = perfx(args!["doctor", "-v", input]);
        let (name, exit) = code.map_or((None, 0), |(name, exit)| (Some(name), exit));
        assert_eq!(doctor.code, Some(exit), "{first}: {}", doctor.text());
        assert_eq!(doctor.text().contains("sample-time"), name.is_some(), "{first}: {}", doctor.text());
        assert!(name.is_none_or(|name| doctor.text().contains(name)), "{first}: {}", doctor.text());
        perfx(args!["retime", "--offset", "5000", input, "-f", "-o", output]).done().unwrap();
        let is_time = (1..=9000).contains(&first);
        let moved = if is_time { (first + 5000, last + 5000) } else { (first, last) };
        let times = sample_time(&output).unwrap();
        assert_eq!((times.first_ns, times.last_ns), moved, "retime");
        perfx(args!["reindex", input, "-f", "-o", output]).done().unwrap();
        let times = sample_time(&output).unwrap();
        assert_eq!((times.first_ns, times.last_ns), repaired, "reindex");
        assert!(exit == 0 || perfx(args!["doctor", output]).code == Some(0));
    }
}

/// Regression: a window without a beginning selected samples whose time is 0, unless all of a batch had none.
#[test]
fn no_window_has_samples_without_a_time() {
    let folder = temp();
    let (some, none) = (folder.path().join("some.data"), folder.path().join("none.data"));
    for (path, times) in [(&some, [0, 5, u64::MAX, 6]), (&none, [0; 4])] {
        let mut maker = Maker::new(path, &[event(PLAIN, Vec::new())]);
        for time in times {
            maker.time = time;
            let end = maker.trailer(RecordType::SAMPLE, 7);
            maker.writer.write_parts(RecordType::SAMPLE, USER, &[&0x1000_u64.to_le_bytes(), &end]).unwrap();
        }
        maker.writer.finish().unwrap();
    }
    let count = |path: &Path, window: &str| perfx(args!["view", "--count", "--time", window, path]);
    for window in ["0,", ",1", "0%-100%", "0,0.000000006"] {
        let expected = if window == ",1" || window == "0," || window == "0%-100%" { "2\n" } else { "1\n" };
        assert_eq!(count(&some, window).text(), expected, "{window}");
        let ran = count(&none, window);
        assert_eq!(ran.text(), "0\n", "{window}");
        assert!(
            ran.stderr.contains("the samples of the recording have no times"),
            "{window}: {}",
            ran.stderr
        );
    }
}

/// Regression: `--offset` changed nothing without a report, unlike `--zero`.
#[test]
fn an_offset_for_a_recording_without_times_is_reported() {
    let folder = temp();
    let (path, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut maker = Maker::new(&path, &[event(st::IP | st::TID, Vec::new())]);
    let body = [0x1000_u64, 7 << 32 | 7].map(u64::to_le_bytes);
    maker.writer.write_parts(RecordType::SAMPLE, USER, &[body.as_flattened()]).unwrap();
    maker.writer.finish().unwrap();
    for options in [&["--offset", "10"][..], &["--scale", "2"], &["--zero"]] {
        let ran =
            perfx(args!["retime", "-f", path, "-o", out].into_iter().chain(options.iter().map(Into::into)));
        assert_eq!(ran.code, Some(3), "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("has a time, so nothing is moved"), "{options:?}: {}", ran.stderr);
    }
}
