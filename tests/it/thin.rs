//! `thin` keeps fewer samples, and the sums of their periods stay.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use perfx_format::features::SampleTime;
use perfx_format::record::cpumode;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{Marker, deferred_cookie};
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, Layouts, RecordType, sample_type as st};

use crate::args;
use crate::promises::Input;
use crate::snapshots::{Place, same};
use crate::support::{Fixture, Perf, Stdin, each_fixture, named, perfs, perfx, temp};

const WAYS: [&[&str]; 4] =
    [&["--every", "4"], &["--every", "1000000"], &["--fraction", "0.3"], &["--rate", "200"]];

/// For each event the number of its samples and the sum of their periods, as perf shows them.
fn sums(perf: &Perf, recording: &Path) -> Result<BTreeMap<String, (u64, u64)>, String> {
    let fields = args!["script", "-f", "-F", "event,period", "-i", recording];
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for line in perf.run(Stdin::Null, fields).done()?.text().lines() {
        let mut words = line.split_whitespace();
        let (Some(period), Some(event)) = (words.next(), words.next()) else { continue };
        let Ok(period) = period.parse::<u64>() else { continue };
        let (samples, sum) = sums.entry(event.to_owned()).or_default();
        (*samples, *sum) = (*samples + 1, *sum + period);
    }
    Ok(sums)
}

#[test]
fn perf_shows_the_same_sums_of_fewer_samples() {
    let names =
        ["several.p61", "fp.p61", "z.p73", "threads.p61", "pipe.p61", "allbits.p61", "tracepoint.p61"];
    let fixtures: Vec<_> = names.iter().map(|name| Fixture::new(&format!("recorded/{name}.data"))).collect();
    let perfs = perfs(&["perf", "perf-new"]);
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        for way in WAYS {
            let line = args!["thin", "-q", "-f", fixture.path, "-o", out];
            perfx(line.into_iter().chain(way.iter().map(Into::into))).done()?;
            for perf in perfs.iter().filter(|perf| perf.can_read(&fixture.path)) {
                let (before, after) = (sums(perf, &fixture.path)?, sums(perf, &out)?);
                assert!(!before.is_empty(), "{}", perf.name);
                for (event, (samples, sum)) in before {
                    let (kept, kept_sum) = after.get(&event).copied().unwrap_or_default();
                    assert_eq!(kept_sum, sum, "{event} {way:?}, {}", perf.name);
                    assert!(kept < samples || samples == 1 || way[0] == "--rate", "{event} {way:?}");
                }
            }
        }
        Ok(())
    });
}

/// For each event and CPU, one sample in three is kept, and the last.
#[test]
fn every_counts_by_event_and_cpu() {
    each_fixture(&named("recorded/several"), |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        perfx(args!["thin", "-q", "--every", "3", fixture.path, "-o", out]).done()?;
        let counts = |path: &Path| {
            let mut recording = Input::Bytes(&fs::read(path).unwrap()).open().unwrap();
            let layouts = Layouts::new(&recording.events);
            let mut counts = BTreeMap::<(Option<usize>, Option<u32>), u64>::new();
            let mut records = recording.records();
            while let Some(record) = records.next_record().unwrap() {
                if let Some(sample) = record.sample().unwrap() {
                    let event = sample.id.and_then(|id| layouts.event_of_id(id));
                    *counts.entry((event, sample.cpu)).or_default() += 1;
                }
            }
            counts
        };
        let wanted: BTreeMap<_, _> =
            counts(&fixture.path).into_iter().map(|(id, count)| (id, count.div_ceil(3))).collect();
        assert_eq!(counts(&out), wanted);
        Ok(())
    });
}

#[test]
fn the_times_are_those_of_the_remaining_samples() {
    let folder = temp();
    let (input, out) = (Fixture::new("recorded/several.p61.data"), folder.path().join("out.data"));
    perfx(args!["thin", "-q", "--every", "5", input.path, "-o", out]).done().unwrap();
    let bytes = fs::read(&out).unwrap();
    let recording = Input::Bytes(&bytes).open().unwrap();
    let times = SampleTime::read(&recording.features[&Feature::SAMPLE_TIME], recording.endian).unwrap();
    let text = perfx(args!["stats", "--format", "json", out]).done().unwrap().text();
    assert!(times.first_ns < times.last_ns, "{times:?}");
    assert!(
        text.contains(&times.first_ns.to_string()) && text.contains(&times.last_ns.to_string()),
        "{text}"
    );
}

/// Regression: the last sample of each event and CPU is kept whatever the choice; it lost the user part of
/// its call chain.
#[test]
fn the_last_sample_keeps_its_deferred_call_chain() {
    let (folder, endian) = (temp(), Endian::Little);
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period) = (1, 1000);
    attr.sample_type = st::IP | st::TID | st::TIME | st::PERIOD | st::CALLCHAIN;
    // sample_id_all
    attr.flags = 1 << 18;
    let event = Event::made(&attr, vec![1], endian);
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    let mut write = |kind, mode, words: &[u64]| {
        let body: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
        writer.write_parts(kind, mode, &[&body]).unwrap();
    };
    let task = 7 << 32 | 7;
    for time in 1..=3 {
        let chain = [Marker::KERNEL.0, 0x1000, Marker::USER_DEFERRED.0, time];
        write(RecordType::SAMPLE, cpumode::KERNEL, &[&[0x1000, task, time, 1000, 4][..], &chain].concat());
        write(RecordType::CALLCHAIN_DEFERRED, cpumode::USER, &[time, 1, 0x40_0000, task, time]);
    }
    writer.finish().unwrap();
    perfx(args!["thin", "-q", "--every", "1000", input, "-o", out]).done().unwrap();
    let mut recording = Input::Bytes(&fs::read(&out).unwrap()).open().unwrap();
    let layouts = Layouts::new(&recording.events);
    let (mut samples, mut chains) = (Vec::new(), Vec::new());
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        samples.extend(layouts.layout_of(&record).and_then(|layout| deferred_cookie(&record, layout)));
        chains.extend(CallchainDeferred::of(&record).map(|deferred| deferred.cookie));
    }
    assert_eq!((samples, chains), (vec![3], vec![3]));
}

/// If samples have no period (perf record -c of older perfs), that of the event becomes longer.
#[test]
fn an_event_without_periods_in_samples_gets_a_longer_one() {
    let (folder, endian) = (temp(), Endian::Little);
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_type) = (1, 1000, st::IP | st::TID | st::TIME);
    attr.flags = 1 << 18;
    let event = Event::made(&attr, vec![1], endian);
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    for time in 1..=100_u64 {
        let parts = [&endian.bytes_u64(0x1000)[..], &[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(time)];
        writer.write_parts(RecordType::SAMPLE, cpumode::USER, &parts).unwrap();
    }
    writer.finish().unwrap();
    perfx(args!["thin", "-q", "--every", "10", input, "-o", out]).done().unwrap();
    for perf in perfs(&["perf", "perf-new"]) {
        let (before, after) = (sums(&perf, &input).unwrap(), sums(&perf, &out).unwrap());
        let of_only = |sums: BTreeMap<String, (u64, u64)>| sums.into_values().next().unwrap();
        assert_eq!((of_only(before), of_only(after)), ((100, 100_000), (10, 100_000)), "{}", perf.name);
    }
    let ran = perfx(args!["thin", "-f", "--rate", "10", input, "-o", out]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("no period that could be made longer: use --every"), "{}", ran.stderr);
}

#[test]
fn what_thin_says() {
    let place = Place::new(&[
        ("several.data", "recorded/several.p61.data"),
        ("fixed.data", "recorded/fixed-period.p61.data"),
    ]);
    let lines = [
        "thin --every 10 several.data -o every.data",
        "thin --rate 100 several.data -o rate.data",
        "thin --fraction 0.25 --event cpu-clock several.data -o fraction.data",
        "thin --every 10 --event nope several.data -o nope.data",
        "thin several.data -o all.data",
        "thin --every 0 several.data -o x",
        "thin --fraction 1.5 several.data -o x",
        "thin --every 2 --rate 3 several.data -o x",
        "thin --seed 2 several.data -o x",
        "thin --every 100 fixed.data -o every-100.data",
        "diff fixed.data every-100.data",
    ];
    same("thin", "says", &place.say_all(&lines));
}
