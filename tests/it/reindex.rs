//! `reindex` leaves correct indexes byte for byte unchanged, repairs others so that every perf reads them,
//! and a second run has nothing to do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::parse::{AUXTRACE, BUILD_ID, Contents, Rec, feature};
use crate::support::{
    Fixture, Form, Perf, Ran, Stdin, Tier, all, each, each_fixture, perf, perfs, perfx, perfx_with, root,
    same_bytes, same_lines, temp,
};
use crate::{args, tiers};

const ID_INDEX: u32 = 69;
const AUXTRACE_INFO: u32 = 70;
const SAMPLE_TIME: u64 = 21;

fn reindex(input: &Path, output: &Path, options: &[&str]) -> Ran {
    let mut args = args!["reindex", "-o", output, input].to_vec();
    args.extend(options.iter().map(Into::into));
    perfx(args)
}

/// The output of reindex for these bytes.
fn reindexed(bytes: &[u8], options: &[&str]) -> Result<(Vec<u8>, String), String> {
    let folder = temp();
    let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, bytes).unwrap();
    let ran = reindex(&input, &output, options).done()?;
    Ok((fs::read(output).unwrap(), ran.stderr))
}

fn data_of(path: &Path) -> Vec<u8> {
    fs::read(if path.is_dir() { path.join("data") } else { path.to_owned() }).unwrap()
}

/// The unusual lines of a report.
fn repaired(report: &str) -> Vec<String> {
    let usual = ["nothing to repair", "perfx: read ", "perfx: wrote "];
    let lines = report.lines().filter(|line| !usual.iter().any(|usual| line.contains(usual)));
    lines.map(str::to_owned).collect()
}

/// A file in perf's layout with other records.
fn with_records(file: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    let contents = Contents::file(file);
    assert_eq!(contents.not_canonical(file), None);
    let data = records.concat();
    let mut front = file[..contents.data.start].to_vec();
    let mut rest = file[contents.data.end..].to_vec();
    contents.order.set_u64(&mut front, 48, data.len() as u64);
    for slot in 0..contents.features.len() {
        let offset = contents.order.u64(&rest, slot * 16) + data.len() as u64;
        contents.order.set_u64(&mut rest, slot * 16, offset - contents.data.len() as u64);
    }
    [front, data, rest].concat()
}

fn records(file: &[u8]) -> Vec<Vec<u8>> {
    Contents::file(file).records(file).into_iter().map(|record| record.bytes).collect()
}

fn kind(file: &[u8], record: &[u8]) -> u32 {
    Contents::file(file).order.u32(record, 0)
}

/// {id, idx, cpu, tid} of all ID_INDEX records, and {machine_pid, vcpu} of long ones.
fn id_index(file: &[u8]) -> Vec<Vec<u64>> {
    let contents = Contents::file(file);
    let mut entries = Vec::new();
    for Rec { bytes, .. } in contents.records(file).iter().filter(|record| record.kind == ID_INDEX) {
        let u64 = |at| contents.order.u64(bytes, at);
        let count = u64(8) as usize;
        let long = bytes.len() >= 16 + count * 48;
        for number in 0..count {
            let mut entry: Vec<u64> = (0..4).map(|word| u64(16 + number * 32 + word * 8)).collect();
            entry.extend((0..2).filter(|_| long).map(|word| u64(16 + count * 32 + number * 16 + word * 8)));
            entries.push(entry);
        }
    }
    entries
}

fn index_record(file: &[u8], entries: &[Vec<u64>]) -> Vec<u8> {
    let order = Contents::file(file).order;
    let words =
        [&[entries.len() as u64][..], &entries.iter().flat_map(|e| e[..4].to_vec()).collect::<Vec<_>>()]
            .concat()
            .into_iter()
            .chain(entries.iter().flat_map(|e| e[4..].to_vec()));
    let mut bytes = if order.big { vec![0, 0, 0, 69, 0, 0, 0, 0] } else { vec![69, 0, 0, 0, 0, 0, 0, 0] };
    for word in words {
        bytes.extend(if order.big { word.to_be_bytes() } else { word.to_le_bytes() });
    }
    let size = (bytes.len() as u16).to_le_bytes();
    bytes[6..8].copy_from_slice(&if order.big { [size[1], size[0]] } else { size });
    bytes
}

/// The file with these entries in one ID_INDEX, in place of the first one.
fn with_index(file: &[u8], entries: &[Vec<u64>]) -> Vec<u8> {
    let mut records = records(file);
    let at = records.iter().position(|record| kind(file, record) == ID_INDEX).unwrap();
    records[at] = index_record(file, entries);
    let mut seen = 0;
    records.retain(|record| {
        seen += usize::from(kind(file, record) == ID_INDEX);
        kind(file, record) != ID_INDEX || seen == 1
    });
    with_records(file, &records)
}

/// {offset, size} of feature AUXTRACE.
fn aux_index(file: &[u8]) -> Option<Vec<(u64, u64)>> {
    let contents = Contents::file(file);
    let section = contents.features.get(&feature::AUXTRACE)?;
    let word = |at| contents.order.u64(section, at);
    Some((0..word(0) as usize).map(|n| (word(8 + n * 16), word(16 + n * 16))).collect())
}

fn aux_records(file: &[u8]) -> Vec<(u64, u64)> {
    let contents = Contents::file(file);
    let records = contents.records(file).into_iter().filter(|record| record.kind == AUXTRACE);
    records.map(|record| ((contents.data.start + record.at) as u64, record.size as u64)).collect()
}

/// These, and one recording with each fault that reindex repairs.
fn damaged_and(mut recordings: Vec<Fixture>) -> Vec<Fixture> {
    let damaged = [
        "aux-index-none",
        "aux-index-plus-8",
        "val-feature-build-id-cut",
        "val-feature-sample-time-short",
        "val-id-index-count",
    ];
    recordings.extend(damaged.map(|name| Fixture::new(&format!("crafted/{name}.data"))));
    recordings
}

tiers!(correct_recordings_stay_and_a_second_repair_finds_nothing);
fn correct_recordings_stay_and_a_second_repair_finds_nothing(tier: Tier) {
    let told = Mutex::new(BTreeMap::new());
    each_fixture(&damaged_and(tier.of(all())), |fixture| {
        let folder = temp();
        let path = |name: &str| folder.path().join(name);
        let copy = perfx(args!["copy", "-q", "-o", path("copy"), fixture.path]);
        let once = reindex(&fixture.path, &path("once"), &["-@", "1"]);
        if once.code == Some(1) {
            let refused = copy.code == Some(1) || ["z-", "-z."].iter().any(|z| fixture.name.contains(z));
            return if refused { Ok(()) } else { Err(once.stderr) };
        }
        let repaired = repaired(&once.stderr);
        // Losses in a copy are not repaired.
        let name = fixture.path.display().to_string();
        let repaired: Vec<_> = repaired.iter().map(|line| line.replace(&name, "RECORDING")).collect();
        if repaired.iter().all(|line| copy.stderr.contains(&line.replace("RECORDING", &name))) {
            same_bytes("beside a copy", &data_of(&path("copy")), &data_of(&path("once")))?;
        } else {
            told.lock().unwrap().insert(fixture.name.clone(), repaired);
        }
        reindex(&fixture.path, &path("threads"), &["-@", "4"]).done()?;
        same_bytes("four threads", &data_of(&path("once")), &data_of(&path("threads")))?;
        let twice = reindex(&path("once"), &path("twice"), &[]).done()?;
        let again: Vec<_> = self::repaired(&twice.stderr);
        if !again.is_empty() {
            return Err(format!("the second time: {again:?}"));
        }
        // Late events of a pipe are at the end of the first file.
        if !["attr-late", "index-first", "update-first"].iter().any(|late| fixture.name.contains(late)) {
            same_bytes("the second time", &data_of(&path("once")), &data_of(&path("twice")))?;
        }
        Ok(())
    });
    let mut text = String::new();
    for (name, lines) in told.into_inner().unwrap() {
        writeln!(text, "{name}").unwrap();
        lines.iter().for_each(|line| writeln!(text, "    {line}").unwrap());
    }
    if tier == Tier::Exhaustive {
        snapshot("all", &text);
    }
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/reindex"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn ids_are_dropped_and_added_and_what_nobody_knows_is_not_guessed() {
    // Event ids, CPU and thread in every record; in no record; of four CPUs with AUX data; of a guest.
    for name in
        ["recorded/allbits.p61.data", "recorded/fp.p61.data", "crafted/aux-le.data", "crafted/guest-be.data"]
    {
        let file = Fixture::new(name).bytes();
        let right = id_index(&file);
        let mut proven = 0;
        for gone in 0..right.len() {
            let mut entries = right.clone();
            entries.remove(gone);
            // And one of no event.
            entries.insert(0, [vec![0xdead], right[gone][1..].to_vec()].concat());
            let wrong = with_index(&file, &entries);
            let (repaired, report) = reindexed(&wrong, &["--ids", "--aux"]).unwrap();
            assert!(report.contains("1 id left out that no event has, 1 id added"), "{name}: {report}");
            let is = id_index(&repaired);
            for (was, is) in right.iter().zip(&is) {
                let known = |at: usize| was[at] == is[at] || (is[at] == u64::MAX && was == &right[gone]);
                assert!((0..was.len()).all(|at| at == 5 || known(at)), "{name}: {was:?} became {is:?}");
                assert!(was.get(4) == is.get(4), "{name}: {was:?} became {is:?}");
            }
            proven += usize::from(is == right);
            if is == right {
                same_bytes(name, &file, &repaired).unwrap();
            }
        }
        // perf opened each for one CPU or thread; records with these fields reveal it.
        assert_eq!(proven > 0, !name.contains("fp.p61"), "{name}: {proven}");
    }
}

#[test]
fn an_index_too_large_for_one_record_is_split_as_perf_splits_it() {
    let fixture = all().into_iter().find(|fixture| fixture.name.contains("ids-many")).unwrap();
    let file = fixture.bytes();
    let right = id_index(&file);
    let count = |file: &[u8]| records(file).iter().filter(|record| kind(file, record) == ID_INDEX).count();
    assert!(right.len() > 1364 && count(&file) > 1);
    let (repaired, _) = reindexed(&with_index(&file, &right[..1]), &["--ids"]).unwrap();
    let ids = |entries: &[Vec<u64>]| entries.iter().map(|entry| entry[0]).collect::<Vec<_>>();
    assert_eq!(ids(&id_index(&repaired)), ids(&right));
    assert_eq!(count(&repaired), count(&file));
}

#[test]
fn an_id_index_after_auxtrace_info_is_moved_before_it() {
    let file = Fixture::new("crafted/aux-le.data").bytes();
    let mut wrong = records(&file);
    let info = wrong.iter().position(|record| kind(&file, record) == AUXTRACE_INFO).unwrap();
    wrong.swap(info - 1, info);
    let (repaired, report) = reindexed(&with_records(&file, &wrong), &["--ids"]).unwrap();
    assert!(report.contains("1 record moved between attrs and AUXTRACE_INFO"), "{report}");
    same_bytes("moved", &file, &repaired).unwrap();
    // A missing index is made: a trace cannot be assigned to its owner without it.
    wrong.remove(info);
    let without: Vec<_> = wrong.into_iter().filter(|record| kind(&file, record) != ID_INDEX).collect();
    let (repaired, report) = reindexed(&with_records(&file, &without), &["--ids", "--aux"]).unwrap();
    assert!(report.contains("8 ids added") || report.contains("ids added"), "{report}");
    assert_eq!(id_index(&repaired).len(), id_index(&file).len());
}

#[test]
fn the_aux_index_lists_every_record_once() {
    for fixture in all().iter().filter(|fixture| fixture.name.contains("/aux-") && fixture.form == Form::File)
    {
        let folder = temp();
        let out = folder.path().join("out.data");
        let before = fixture.bytes();
        if fixture.name.contains("pipe") || reindex(&fixture.path, &out, &["--aux"]).code == Some(1) {
            continue;
        }
        let after = fs::read(&out).unwrap();
        let there = aux_records(&after);
        assert_eq!(aux_index(&after).unwrap_or_default(), there, "{}", fixture.name);
        let records: fn(&[u8]) -> Vec<Vec<u8>> = records;
        assert_eq!(records(&before), records(&after), "{}: the records are the same", fixture.name);
    }
    let many = Fixture::new("crafted/aux-le.data").bytes();
    assert!(aux_records(&many).len() > 256);
}

#[test]
fn records_of_aux_data_that_others_moved_are_still_listed() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    for name in ["crafted/aux-le.data", "crafted/aux-be.data", "crafted/aux-spe.data"] {
        let known = "0102030405060708090a0b0c0d0e0f1011121314 /bin/a,01020304 /usr/bin/init,05 [vdso]";
        let ran = perfx(args![
            "inject",
            "-q",
            "-f",
            "--foreign",
            "--buildid-all",
            "--known-build-ids",
            known,
            "-o",
            path("injected"),
            Fixture::new(name).path
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let injected = fs::read(path("injected")).unwrap();
        let ran = reindex(&path("injected"), &path("out"), &["--aux", "-f"]);
        assert_eq!(
            aux_index(&fs::read(path("out")).unwrap()).unwrap(),
            aux_records(&injected),
            "{}",
            ran.stderr
        );
        // Records inserted at the front by a tool that does not update the index.
        let file = Fixture::new(name).bytes();
        let mut moved = records(&file);
        moved.insert(0, moved[0].clone());
        let moved = with_records(&file, &moved);
        let (repaired, _) = reindexed(&moved, &["--aux"]).unwrap();
        assert_eq!(aux_index(&repaired).unwrap(), aux_records(&moved), "{name}");
        // And without any records.
        let without: Vec<_> =
            records(&file).into_iter().filter(|record| kind(&file, record) != AUXTRACE).collect();
        let (repaired, report) = reindexed(&with_records(&file, &without), &[]).unwrap();
        assert_eq!(aux_index(&repaired), None, "{report}");
    }
}

/// perf's lines without the offsets of records.
fn dumped(perf: &Perf, path: &Path, args: &[&str]) -> Option<Vec<String>> {
    let mut all = args!["-f", "-i", path].to_vec();
    all.splice(0..0, args.iter().map(Into::into));
    let ran = perf.run(Stdin::Null, all);
    let aux = |line: &&str| line.contains("PERF_RECORD_AUX");
    let text = ran.text();
    let lines = text.lines().filter(aux).filter_map(|line| Some(line.split_once(": ")?.1.to_owned()));
    (ran.code == Some(0)).then(|| lines.collect())
}

#[test]
fn perf_shows_the_same_aux_records_before_and_after_and_reads_what_it_could_not() {
    let perfs = perfs(&["perf", "perf-trixie", "perf-new"]);
    let branches = |perf: &Perf, path: &Path| {
        let ran = perf.run(Stdin::Null, args!["script", "-f", "--itrace=b", "-i", path]);
        (ran.code == Some(0)).then(|| ran.text().lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let faults = [
        "missing", "none", "other-record", "outside", "plus-8", "reversed", "twice", "size", "size-zero",
        "count", "short",
    ];
    let folder = temp();
    for perf in &perfs {
        let right = folder.path().join("right.data");
        assert_eq!(reindex(&Fixture::new("crafted/aux-index-none.data").path, &right, &["-f"]).code, Some(0));
        let expected = branches(perf, &right).expect("perf reads it");
        assert!(expected.len() >= 360, "{}: {} branches", perf.name, expected.len());
        for fault in faults {
            let fixture = Fixture::new(&format!("crafted/aux-index-{fault}.data"));
            let out = folder.path().join("out.data");
            assert_eq!(reindex(&fixture.path, &out, &["-f"]).code, Some(0));
            same_lines(fault, &expected, &branches(perf, &out).unwrap_or_default()).unwrap();
            for args in [["script", "-D"], ["report", "-D"]] {
                let after = dumped(perf, &out, &args).unwrap_or_else(|| panic!("{} {args:?}", perf.name));
                assert!(after.len() >= 80, "{} {args:?} shows {} records", perf.name, after.len());
                if let Some(before) = dumped(perf, &fixture.path, &args) {
                    same_lines(fault, &before, &after).unwrap();
                }
            }
        }
    }
}

/// Like snapshots: AUX records report overwritten data, and every other piece of the trace begins
/// 8 bytes early.
fn overlapping(file: &[u8]) -> Vec<u8> {
    let order = Contents::file(file).order;
    let mut records = records(file);
    let mut early = false;
    for record in &mut records {
        match order.u32(record, 0) {
            AUX => {
                let flags = order.u64(record, 24);
                order.set_u64(record, 24, flags | AUX_FLAG_OVERWRITE);
            }
            AUXTRACE => {
                let offset = order.u64(record, 16);
                order.set_u64(record, 16, offset.saturating_sub(if early { 8 } else { 0 }));
                early = !early;
            }
            _ => {}
        }
    }
    with_records(file, &records)
}

const AUX: u32 = 11;
const AUX_FLAG_OVERWRITE: u64 = 2;

/// Four queues, hundreds of pieces, pieces of odd multiples of 8, pieces that overlap: through every pass
/// that moves them.
#[test]
fn traces_decode_the_same_after_every_pass() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let right = Fixture::new("crafted/aux-le.data").bytes();
    fs::write(path("right"), &right).unwrap();
    fs::write(path("overlapping"), overlapping(&right)).unwrap();
    fs::write(path("odd"), Fixture::new("crafted/aux-odd-size.data").bytes()).unwrap();
    fs::write(path("big"), Fixture::new("crafted/aux-big.data").bytes()).unwrap();
    let known = "0102030405060708090a0b0c0d0e0f1011121314 /bin/a,01020304 /usr/bin/init,05 [vdso]";
    let steps: [(&str, &[&str]); 5] = [
        ("inject", &["--foreign", "--buildid-all", "--known-build-ids", known]),
        ("compress", &[]),
        ("reindex", &[]),
        ("decompress", &[]),
        ("reindex", &["--aux"]),
    ];
    assert!(aux_index(&right).is_some_and(|index| index.len() > 256));
    for name in ["right", "overlapping", "odd", "big"] {
        let mut stages = vec![path(name)];
        for (step, options) in steps {
            let out = path(&format!("{name}.{}", stages.len()));
            let mut line = args![step, "-q", "-o", out, stages.last().unwrap()].to_vec();
            line.extend(options.iter().map(Into::into));
            perfx(line).done().unwrap_or_else(|e| panic!("{name}, {step}: {e}"));
            let made = fs::read(&out).unwrap();
            assert!(aux_index(&made).is_none_or(|index| index == aux_records(&made)), "{name}, {step}");
            stages.push(out);
        }
        for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
            for args in [["script", "-D"], ["report", "-D"], ["script", "--itrace=b"]] {
                let said = |stage: &Path| {
                    if args[1] == "-D" {
                        return dumped(&perf, stage, &args);
                    }
                    let ran = perf.run(Stdin::Null, args!["script", "-f", "--itrace=b", "-i", stage]);
                    (ran.code == Some(0)).then(|| ran.text().lines().map(str::to_owned).collect())
                };
                let Some(before) = said(&stages[0]) else { continue };
                for stage in &stages[1..] {
                    let what = format!("{} {args:?} of {}", perf.name, stage.display());
                    same_lines(&what, &before, &said(stage).unwrap_or_default()).unwrap();
                }
            }
        }
    }
}

#[test]
fn perf_reads_a_recording_again_whose_index_named_a_stranger() {
    let count = |perf: &Perf, path: &Path| {
        let ran = perf.run(Stdin::Null, args!["script", "-f", "-F", "time", "-i", path]);
        if ran.code == Some(0) { ran.text().lines().count() } else { 0 }
    };
    let folder = temp();
    let (wrong, out) = (folder.path().join("wrong.data"), folder.path().join("out.data"));
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let fixture = Fixture::new("recorded/fp.p61.data");
        let file = fixture.bytes();
        let mut entries = id_index(&file);
        entries.push(vec![0xdead, 0, 0, 1]);
        fs::write(&wrong, with_index(&file, &entries)).unwrap();
        assert_eq!(count(&perf, &wrong), 0, "{} aborts at the id", perf.name);
        assert_eq!(reindex(&wrong, &out, &["-f"]).code, Some(0));
        same_bytes(perf.name, &file, &fs::read(&out).unwrap()).unwrap();
        assert!(count(&perf, &out) > 0, "{}", perf.name);
    }
}

#[test]
fn perf_7_reads_what_perf_6_1_injected_once_it_is_padded() {
    let fixture = Fixture::new("recorded/inject-b.p61.data");
    let folder = temp();
    let out = folder.path().join("out.data");
    assert_eq!(reindex(&fixture.path, &out, &[]).code, Some(0));
    let padded = fs::read(&out).unwrap();
    let sizes = |file: &[u8]| {
        let records = Contents::file(file).records(file).into_iter();
        records.filter(|record| record.kind == BUILD_ID).map(|record| record.size).collect::<Vec<_>>()
    };
    assert_eq!((sizes(&fixture.bytes()), sizes(&padded)), (vec![100, 100], vec![104, 104]));
    let samples = |perf: &Perf, path: &Path| {
        let fields = "comm,pid,tid,time,event,ip,dso";
        let args = args!["script", "-f", "-F", fields, "-i", path];
        let ran = perf.run(Stdin::Null, args);
        // perf's versions pad differently.
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        (ran.code == Some(0)).then(|| ran.text().lines().map(words).collect::<Vec<_>>())
    };
    let Some(old) = perf("perf") else { return };
    let expected = samples(&old, &fixture.path).unwrap();
    same_lines("6.1", &expected, &samples(&old, &out).unwrap()).unwrap();
    for new in perfs(&["perf-new", "perf-sid"]) {
        assert_eq!(samples(&new, &fixture.path), None, "{} gives up at a record of 100 bytes", new.name);
        same_lines(new.name, &expected, &samples(&new, &out).unwrap_or_default()).unwrap();
    }
}

/// {first, last} of feature SAMPLE_TIME.
fn times(bytes: &[u8], is_pipe: bool) -> Option<(u64, u64)> {
    let contents = if is_pipe { Contents::pipe(bytes) } else { Contents::file(bytes) };
    let section = contents.features.get(&SAMPLE_TIME)?;
    Some((contents.order.u64(section, 0), contents.order.u64(section, 8)))
}

#[test]
fn times_are_those_that_perf_finds() {
    // perf wrote zeros if it did not read the samples; if it did, its times are those found by perfx.
    let cases = [
        "recorded/fp.p61.data",
        "recorded/several.p61.data",
        "recorded/several.p73.data",
        "crafted/be-plain.p61.data",
    ];
    for name in cases {
        let right = Fixture::new(name).bytes();
        let contents = Contents::file(&right);
        let slot = contents.features.keys().position(|&feature| feature == SAMPLE_TIME).unwrap();
        let at = contents.order.u64(&right, contents.data.end + slot * 16) as usize;
        for (option, wrong, repaired) in [("--times", 0, true), ("-q", 0, false), ("-q", 1, true)] {
            let mut file = right.clone();
            contents.order.set_u64(&mut file, at, wrong);
            contents.order.set_u64(&mut file, at + 8, wrong);
            let expected = if repaired { &right } else { &file };
            same_bytes(name, expected, &reindexed(&file, &[option]).unwrap().0).unwrap();
        }
    }
    // Into pipe data, where they must come first.
    let pipe = Fixture::new("recorded/pipe.p61.data");
    let ran = perfx(args!["reindex", "--times", pipe.path]);
    let (first, last) = times(&ran.stdout, true).unwrap();
    assert!(0 < first && first < last, "{}", ran.stderr);
    let ran = perfx_with(Stdin::Pipe(&pipe.bytes()), args!["reindex", "--times", "-"]);
    assert_eq!(times(&ran.stdout, true), Some((first, last)), "{}", ran.stderr);
}

#[test]
fn times_are_those_of_the_output_if_a_later_pass_changes_them() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let fixture = Fixture::new("recorded/several.p61.data");
    for later in ["filter:time=20%-60%", "thin:every=7", "retime:offset=1000", "retime:zero"] {
        for (out, chain) in [("one", vec![later]), ("both", vec!["reindex-times:add", later])] {
            let passes = chain.iter().flat_map(|pass| ["-p", pass]);
            let line = args!["run", "-q", "-f", "-o", path(out), fixture.path].to_vec();
            perfx(line.into_iter().chain(passes.map(Into::into)).collect::<Vec<_>>()).done().unwrap();
        }
        let found = ["one", "both"].map(|out| times(&fs::read(path(out)).unwrap(), false));
        assert_eq!(found[0], found[1], "{later}");
    }
}

#[test]
fn build_ids_of_mappings_are_added_to_the_feature_on_request() {
    let file = Fixture::new("recorded/buildid-mmap.p73.data").bytes();
    same_bytes("not asked", &file, &reindexed(&file, &[]).unwrap().0).unwrap();
    let (with, _) = reindexed(&file, &["--build-ids"]).unwrap();
    let ids = Contents::file(&with).build_ids(&with);
    let burn = b"/tmp/perfx-data/work/burn".to_vec();
    let id = ids.iter().find(|(pid, _, name)| *pid == -1 && *name == burn).map(|(_, id, _)| id.clone());
    assert_eq!(id.unwrap()[0], 0xb0, "{ids:?}");
    let (again, report) = reindexed(&with, &["--build-ids"]).unwrap();
    same_bytes("again", &with, &again).unwrap();
    assert!(report.contains("feature BUILD_ID: nothing to repair"), "{report}");
}

#[test]
fn in_place_only_what_is_wrong_changes() {
    let cases = [
        // Only features: the data is not moved.
        ("crafted/aux-index-outside.data", true),
        ("crafted/features-all-le.data", true),
        ("crafted/attrs-last-be.data", true),
        ("crafted/val-feature-sample-time-short.data", true),
        ("recorded/fp.p61.data", true),
        ("recorded/z.p73.data", true),
        // Records, too: the whole file is rewritten.
        ("recorded/inject-b.p61.data", false),
        ("crafted/val-id-index-unknown.data", false),
        ("recorded/pipe-inject-b.p61.data", false),
    ];
    each(
        &cases,
        |(name, _)| (*name).to_owned(),
        |(name, stays)| {
            let folder = temp();
            let (there, out) = (folder.path().join("there.data"), folder.path().join("out.data"));
            let before = Fixture::new(name).bytes();
            fs::write(&there, &before).unwrap();
            let dry = perfx(args!["reindex", "--in-place", "-n", there]).done()?;
            same_bytes(&format!("-n: {}", dry.stderr), &before, &fs::read(&there).unwrap())?;
            let wrong = !repaired(&reindex(&there, &out, &[]).stderr).is_empty();
            let done = perfx(args!["reindex", "--in-place", there]).done()?;
            let after = fs::read(&there).unwrap();
            if !wrong {
                return same_bytes(&done.stderr, &before, &after);
            }
            if !stays {
                let whole = if name.contains("pipe") { return Ok(()) } else { fs::read(&out).unwrap() };
                return same_bytes("written anew", &whole, &after);
            }
            if !done.stderr.contains("its records are unchanged") {
                return Err(done.stderr);
            }
            let (old, new) = (Contents::file(&before), Contents::file(&after));
            same_bytes("data", &before[old.data.clone()], &after[new.data.clone()])?;
            if new.features.contains_key(&feature::AUXTRACE) {
                assert_eq!(aux_index(&after).unwrap(), aux_records(&after));
            }
            let again = perfx(args!["reindex", "--in-place", there]).done()?;
            same_bytes(&again.stderr, &after, &fs::read(&there).unwrap())
        },
    );
}

/// The doctor's codes that reindex claims to repair, and all other codes.
fn diagnosed(path: &Path) -> (Vec<String>, Vec<String>) {
    let ran = perfx(args!["doctor", "--format", "ndjson", path]);
    let said: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let findings = said["findings"].as_array().unwrap().iter();
    let (ours, others): (Vec<_>, Vec<_>) = findings.partition(|finding| finding["repair"] == "reindex");
    let codes = |findings: Vec<&serde_json::Value>| {
        findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    (codes(ours), codes(others))
}

tiers!(doctor_names_what_reindex_repairs_and_is_content_afterwards);
fn doctor_names_what_reindex_repairs_and_is_content_afterwards(tier: Tier) {
    let seen = Mutex::new(BTreeMap::new());
    each_fixture(&damaged_and(tier.of(all())), |fixture| {
        let folder = temp();
        let path = |name: &str| folder.path().join(name);
        let ran = reindex(&fixture.path, &path("out"), &[]);
        if ran.code == Some(1) {
            return Ok(());
        }
        let copy = perfx(args!["copy", "-o", path("copy"), fixture.path]);
        let repairs = repaired(&ran.stderr).iter().any(|line| !copy.stderr.contains(line.as_str()));
        let (before, others) = diagnosed(&fixture.path);
        // reindex repairs these in HEADER_BUILD_ID; repair does so everywhere.
        let of_repair = ["size-unaligned", "string-unterminated"];
        let padded = ran.stderr.contains("HEADER_BUILD_ID:")
            && others.iter().any(|code| of_repair.contains(&code.as_str()));
        if repairs && before.is_empty() && !padded {
            return Err(format!("doctor does not name what reindex repairs: {others:?}, {}", ran.stderr));
        }
        if !repairs && !before.is_empty() {
            return Err(format!("doctor says that reindex repairs {before:?}: {}", ran.stderr));
        }
        let (after, left) = diagnosed(&path("out"));
        // Differences due to the form occur in a copy, too.
        let (_, copied) =
            if copy.code == Some(1) { diagnosed(&fixture.path) } else { diagnosed(&path("copy")) };
        if !after.is_empty() || left.iter().any(|code| !copied.contains(code)) {
            return Err(format!("{before:?} and {others:?} became {after:?} and {left:?}"));
        }
        let mut seen = seen.lock().unwrap();
        before.into_iter().for_each(|code| *seen.entry(code).or_insert(0) += 1);
        Ok(())
    });
    let seen = seen.into_inner().unwrap();
    let planted = ["auxtrace-index", "auxtrace-index-empty", "build-id-entry", "id-index", "sample-time"];
    assert_eq!(seen.keys().collect::<Vec<_>>(), planted, "{seen:?}");
}

#[test]
fn it_says_what_it_did() {
    let folder = temp();
    let mut text = String::new();
    let mut say = |line: &str| {
        let args = line.split(' ').skip(2);
        let mut command = crate::support::perfx_command();
        command.current_dir(folder.path()).env("NO_COLOR", "1").args(args);
        let ran = crate::support::run(&mut command, Stdin::Null);
        let report = ran.stderr.replace(&format!("{}/", folder.path().display()), "");
        write!(text, "{line}\n{report}[{}]\n\n", ran.code.unwrap_or(-1)).unwrap();
    };
    let faulty = Fixture::new("crafted/aux-index-outside.data").bytes();
    let mut entries = id_index(&faulty);
    entries[0][0] = 0xdead;
    fs::write(folder.path().join("faulty.data"), with_index_any(&faulty, &entries)).unwrap();
    for (name, fixture) in [
        ("right.data", "recorded/fp.p61.data"),
        ("injected.data", "recorded/inject-b.p61.data"),
        ("cut.data", "crafted/val-feature-build-id-cut.data"),
        ("corrupt.data", "crafted/z-corrupt-magic-le.data"),
        ("unfinished.data", "recorded/cut-02977.p61.data"),
        ("pipe.data", "recorded/pipe.p61.data"),
    ] {
        fs::write(folder.path().join(name), Fixture::new(fixture).bytes()).unwrap();
    }
    say("$ perfx reindex right.data -o right.out");
    say("$ perfx reindex right.data -o right.out");
    say("$ perfx reindex --in-place right.data");
    say("$ perfx reindex -n faulty.data -o faulty.out");
    say("$ perfx reindex --ids faulty.data -o faulty.ids");
    say("$ perfx reindex --aux -q faulty.data -o faulty.aux");
    say("$ perfx reindex --in-place faulty.data");
    say("$ perfx reindex injected.data -o injected.out");
    say("$ perfx reindex cut.data -o cut.out");
    say("$ perfx reindex corrupt.data -o corrupt.out");
    say("$ perfx reindex unfinished.data -o unfinished.out");
    say("$ perfx reindex --times pipe.data -o pipe.out");
    say("$ perfx reindex --everything right.data");
    say("$ perfx reindex nowhere.data -o nowhere.out");
    snapshot("reports", &text);
}

/// Like [`with_index`], for a file whose AUXTRACE index is wrong anyway.
fn with_index_any(file: &[u8], entries: &[Vec<u64>]) -> Vec<u8> {
    let contents = Contents::file(file);
    let mut changed = file.to_vec();
    let index = contents.records(file).into_iter().find(|record| record.kind == ID_INDEX).unwrap();
    let new = index_record(file, entries);
    assert_eq!(new.len(), index.size);
    let at = contents.data.start + index.at;
    changed[at..at + new.len()].copy_from_slice(&new);
    changed
}

/// Regression: the contents of pipe data's records were repeated at the front.
#[test]
fn build_ids_are_added_to_a_pipe_once() {
    let fixture = Fixture::new("recorded/pipe-inject-b.p73.data");
    let add = |chain: &str, bytes: &[u8]| {
        let ran = perfx_with(Stdin::Pipe(bytes), ["run", "-p", chain, "-"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    let once = add("reindex-build-ids:add", &fixture.bytes());
    same_bytes("in one chain", &once, &add("reindex-build-ids:add,reindex-build-ids:add", &fixture.bytes()))
        .unwrap();
    same_bytes("again", &once, &add("reindex-build-ids:add", &once)).unwrap();
    let ran = perfx_with(Stdin::Pipe(&once), ["dump", "--only", "HEADER_BUILD_ID", "-"]);
    let text = ran.text();
    let mut named: Vec<_> = text.lines().filter_map(|line| line.split("build_id=").nth(1)).collect();
    let named: Vec<_> = named.iter_mut().map(|name| name.split(" sample_id").next().unwrap()).collect();
    let each: std::collections::BTreeSet<_> = named.iter().collect();
    assert!(!named.is_empty() && each.len() == named.len(), "{text}");
}
