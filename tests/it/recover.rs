//! `perfx recover` recovers all readable data, and perf reads it.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

use perfx_format::Feature;
use perfx_format::decode::issues;
use perfx_format::read::Recording;

use crate::filter::records;
use crate::parse::{self, Contents, Order, Rec};
use crate::snapshots::{Place, copy_all, same};
use crate::support::{
    Fixture, Form, Stdin, Tier, clean, crafted, each, each_fixture, holds, perfs, perfx, perfx_command,
    perfx_with, recorded, run, same_bytes, temp,
};
use crate::{args, tiers};

/// `recover` does not look for oddities in such a batch again.
#[test]
fn a_sound_batch_contains_no_odd_record() {
    let [sound, others] = [0, 0].map(AtomicUsize::new);
    let all: Vec<_> = recorded().into_iter().chain(crafted()).collect();
    each_fixture(&all, |fixture| {
        let Ok(recording) = Recording::open(&fixture.path) else { return Ok(()) };
        let mut recording = recording.lenient();
        // The second reading knows the extents of the batches from the first.
        for _ in 0..2 {
            for batch in recording.batches().map_while(Result::ok) {
                if !batch.is_sound() {
                    others.fetch_add(1, Atomic::Relaxed);
                    continue;
                }
                sound.fetch_add(1, Atomic::Relaxed);
                let mut walker = batch.walk();
                while let Some(record) = walker.next_record().map_err(|e| e.to_string())? {
                    let odd = issues(&record, &batch.layouts);
                    if !odd.is_empty() || !record.kind().may_exist() {
                        return Err(record.error(format!("{odd:?}")).to_string());
                    }
                }
            }
        }
        Ok(())
    });
    assert!(sound.into_inner() > 100 && others.into_inner() > 0);
}

/// Regression: bytes added by a text conversion move the rest: the table of features then points to other
/// bytes, which were kept as features of any size, and perf refused them.
#[test]
fn features_of_a_text_conversion_are_left_out_unless_they_can_be_read() {
    let fixture = Fixture::new("recorded/fp.p61.data");
    let (bytes, data) = (fixture.bytes(), Contents::file(&fixture.bytes()).data);
    let perfs = perfs(&["perf", "perf-new"]);
    for added in [8, 16, 24] {
        let folder = temp();
        let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
        let middle = data.start + data.len() / 2;
        fs::write(&input, [&bytes[..middle], &vec![b'\r'; added], &bytes[middle..]].concat()).unwrap();
        let ran = perfx(args!["recover", input, "-o", out]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("features with a section that can't be read: "), "{}", ran.stderr);
        let recovered = fs::read(&out).unwrap();
        assert!(recovered.len() <= bytes.len() + 100, "{} of {}", recovered.len(), bytes.len());
        let found = perfx(args!["doctor", out]).text();
        assert!(!["section-", "version-", "nrcpus-"].iter().any(|code| found.contains(code)), "{found}");
        for perf in &perfs {
            let ran = perf.run(Stdin::Null, args!["script", "-f", "-i", out]);
            assert!(ran.code == Some(0) && !ran.text().is_empty(), "{}: {}", perf.name, ran.stderr);
        }
    }
}

/// Regression: perf report counts branches in place of samples if this feature is there.
#[test]
fn call_stacks_of_branch_records_do_not_make_the_feature_of_branches() {
    for (name, has_branches) in [("lbr", false), ("lbr-and-branch", true)] {
        let fixture = Fixture::new(&format!("crafted/sample-{name}-le.data"));
        let folder = temp();
        let [cut, recovered] = ["cut", "recovered"].map(|name| folder.path().join(name));
        // Without its features.
        let mut bytes = fixture.bytes();
        let end = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        bytes.truncate(end(40) + end(48));
        fs::write(&cut, bytes).unwrap();
        let ran = perfx(args!["recover", cut, "-o", recovered]);
        let features = Recording::open(&recovered).unwrap().features;
        assert_eq!(features.contains_key(&Feature::BRANCH_STACK), has_branches, "{}", ran.stderr);
    }
}

tiers!(a_complete_recording_is_unchanged);
fn a_complete_recording_is_unchanged(tier: Tier) {
    let whole: Vec<_> = tier
        .of(recorded())
        .into_iter()
        .filter(|f| f.form == Form::File && !["cut-", "killed"].iter().any(|part| f.name.contains(part)))
        .collect();
    each_fixture(&whole, |fixture| {
        let folder = temp();
        let (copied, recovered) = (folder.path().join("copy"), folder.path().join("recovered"));
        let code = perfx(args!["copy", "-q", fixture.path, "-o", copied]).code;
        if code != Some(0) {
            return Ok(());
        }
        let ran = perfx(args!["recover", "-q", fixture.path, "-o", recovered]);
        // The later files of -z --switch-output cannot be read alone.
        if ran.code != Some(0) && !fixture.name.contains("switch-output-z") {
            return Err(ran.stderr);
        }
        if ran.code != Some(0) {
            return Ok(());
        }
        same_bytes("copy", &fs::read(copied).unwrap(), &fs::read(recovered).unwrap())
    });
}

tiers!(whole_records_before_any_cut_are_recovered_and_perf_reads_them);
fn whole_records_before_any_cut_are_recovered_and_perf_reads_them(tier: Tier) {
    let fixture = Fixture::new("recorded/plain.p61.data");
    let (bytes, whole) = (fixture.bytes(), records(&fixture.path));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (data, size) = (u64_at(40), u64_at(48));
    let ends: Vec<usize> = {
        let mut ends = vec![data];
        while *ends.last().unwrap() < data + size {
            let at = *ends.last().unwrap();
            ends.push(at + usize::from(u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap())));
        }
        ends
    };
    let perfs = perfs(&["perf"]);
    let cuts: Vec<usize> = (data..=bytes.len()).step_by(tier.pick(511, 37)).collect();
    each(
        &cuts,
        |cut| format!("cut at {cut}"),
        |&cut| {
            let folder = temp();
            let (input, output) = (folder.path().join("cut.data"), folder.path().join("out.data"));
            fs::write(&input, &bytes[..cut]).unwrap();
            let ran = perfx(args!["recover", "-q", input, "-o", output]);
            if ran.code != Some(if cut == bytes.len() { 0 } else { 3 }) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let left = ends.iter().filter(|&&end| end > data && end <= cut.min(data + size)).count();
            if records(&output) != whole[..left] {
                return Err(format!("{} records came back, not {left}", records(&output).len()));
            }
            // perf prints a warning for a recording without records, although it reads it.
            for perf in perfs.iter().filter(|_| left > 0) {
                let said = perf.run(Stdin::Null, args!["script", "-f", "-i", output]);
                if said.code != Some(0) {
                    return Err(said.stderr);
                }
            }
            Ok(())
        },
    );
}

#[test]
fn a_hole_is_stepped_over() {
    let fixture = Fixture::new("recorded/several.p61.data");
    let mut bytes = fixture.bytes();
    let whole = records(&fixture.path);
    let data = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes[data + 2000..data + 2600].fill(0);
    let folder = temp();
    let (input, output) = (folder.path().join("hole.data"), folder.path().join("out.data"));
    fs::write(&input, &bytes).unwrap();
    let ran = perfx(args!["recover", input, "-o", output]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("more records follow them"), "{}", ran.stderr);
    let left = records(&output);
    assert!(left.len() > whole.len() / 2 && left.len() < whole.len());
    let mut rest = whole.iter();
    assert!(left.iter().all(|record| rest.any(|other| other == record)), "a record was made up");
}

#[test]
fn killed_recordings_come_back() {
    let place = Place::new(&[
        ("killed.data", "recorded/killed.p61.data"),
        ("killed-z.data", "recorded/killed-z.p61.data"),
        ("killed-threads.data", "recorded/killed-threads.p61.data"),
        ("killed-pipe.data", "recorded/killed-pipe.p61.data"),
        ("whole.data", "recorded/plain.p61.data"),
        ("none.data", "crafted/val-text.data"),
    ]);
    let lines = [
        "recover killed.data -o a.data",
        "recover --guess killed-z.data -o b.data",
        "recover killed-threads.data -o c.data",
        "recover killed-pipe.data -o d.data",
        "recover whole.data -o e.data",
        "recover none.data -o f.data",
    ];
    let mut text = place.say_all(&lines);
    text += &place.dump("a.data", &["feature EVENT_DESC", "feature SAMPLE_TIME"], &["FINISHED_INIT"]);
    same("recover", "killed", &text);
    for perf in perfs(&["perf"]) {
        for name in ["a.data", "b.data", "c.data"] {
            let said = perf.run(Stdin::Null, args!["script", "-f", "-i", place.path(name)]);
            assert_eq!(said.code, Some(0), "{name}: {}", said.stderr);
        }
    }
}

/// A record of a dump: its file, the offset of it or its COMPRESSED record, and its contents.
struct Dumped {
    stream: usize,
    at: usize,
    compressed: bool,
    text: String,
}

fn dumped(path: &Path) -> Vec<Dumped> {
    let ran = perfx(args!["dump", "-q", path]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let text = ran.text();
    let lines = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let record = |line: &str| {
        let (place, text) = line.split_once(' ')?;
        let (stream, place) = place.split_once(':').unwrap_or(("0", place));
        let (at, inside) = place.split_once('+').map_or((place, None), |(at, inside)| (at, Some(inside)));
        let at = usize::from_str_radix(at.strip_prefix("0x")?, 16).ok()?;
        Some(Dumped { stream: stream.parse().ok()?, at, compressed: inside.is_some(), text: text.to_owned() })
    };
    lines.filter_map(record).collect()
}

/// One file of a recording, and the position of its truncation.
struct Cut<'a> {
    fixture: &'a Fixture,
    stream: usize,
    len: usize,
}

fn file_of(path: &Path, stream: usize) -> PathBuf {
    match (path.is_dir(), stream) {
        (false, _) => path.to_owned(),
        (true, 0) => path.join("data"),
        (true, number) => path.join(format!("data.{}", number - 1)),
    }
}

tiers!(perf_reads_the_whole_records_before_a_cut_in_every_form);
fn perf_reads_the_whole_records_before_a_cut_in_every_form(tier: Tier) {
    let names = [
        "recorded/z.p61.data",
        "recorded/z.p612.data",
        "recorded/z.p73.data",
        "recorded/z22.p73.data",
        "recorded/z-straddle.p61.data",
        "recorded/z-straddle.p73.data",
        "recorded/pipe.p61.data",
        "recorded/pipe.p73.data",
        "recorded/pipe-z.p61.data",
        "recorded/pipe-z.p73.data",
        "recorded/threads.p61.data",
        "recorded/threads-z.p61.data",
        "recorded/threads-z.p73.data",
        "crafted/z-81-le.data",
        "crafted/z-83-be.data",
    ];
    // Frames that are all independent, and COMPRESSED2, which no installed perf writes for so little data.
    let folder = temp();
    let mut fixtures: Vec<Fixture> = names.iter().map(|name| Fixture::new(name)).collect();
    for (name, more) in
        [("frames", &[][..]), ("frames2", &["--compressed2"]), ("solid2", &["--compressed2", "--solid"])]
    {
        let path = folder.path().join(name);
        let mut args =
            args!["compress", "-q", Fixture::new("recorded/several.p61.data").path, "-o", path].to_vec();
        args.extend(more.iter().map(Into::into));
        assert_eq!(perfx(args).code, Some(0));
        fixtures.push(Fixture { name: name.to_owned(), path, form: Form::File });
    }
    // A file has the contents of these records in its header.
    let in_header = ["HEADER_ATTR ", "HEADER_FEATURE ", "HEADER_TRACING_DATA "];
    let is_data = |record: &Dumped| !in_header.iter().any(|kind| record.text.starts_with(kind));
    let data = |fixture: &Fixture| dumped(&fixture.path).into_iter().filter(is_data).collect();
    let whole: Vec<Vec<Dumped>> = fixtures.iter().map(data).collect();
    let mut cuts = Vec::new();
    for (number, fixture) in fixtures.iter().enumerate() {
        let streams = whole[number].iter().map(|record| record.stream).max().unwrap();
        for stream in 0..=streams {
            let size = fs::metadata(file_of(&fixture.path, stream)).unwrap().len() as usize;
            let first =
                whole[number].iter().find(|record| record.stream == stream).map_or(0, |record| record.at);
            // Coprime to 8, so that every position in a record occurs, and the end of a frame, too.
            let step = (size / 9).max(1) | 1;
            let lens = (first + 1..size).step_by(step).chain((size.saturating_sub(9)..size).step_by(4));
            cuts.extend(lens.map(|len| (number, Cut { fixture, stream, len })));
        }
    }
    // Another place of each recording.
    let cuts: Vec<_> = cuts.into_iter().step_by(tier.pick(11, 1)).collect();
    let perfs = perfs(&["perf", "perf-new"]);
    each(
        &cuts,
        |(_, cut)| format!("{} file {} cut at {}", cut.fixture.name, cut.stream, cut.len),
        |(number, cut)| {
            let folder = temp();
            let (input, output) = (folder.path().join("cut.data"), folder.path().join("out.data"));
            copy_all(&cut.fixture.path, &input);
            let bytes = fs::read(file_of(&input, cut.stream)).unwrap();
            fs::write(file_of(&input, cut.stream), &bytes[..cut.len]).unwrap();
            let ran = perfx(args!["recover", "-q", input, "-o", output]);
            if !matches!(ran.code, Some(0 | 3)) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let end = |record: &Dumped| {
                let big = bytes.starts_with(b"2ELIFREP");
                let size = [bytes[record.at + 6], bytes[record.at + 7]];
                record.at + usize::from(if big { u16::from_be_bytes(size) } else { u16::from_le_bytes(size) })
            };
            let (mut before, mut here, mut behind) = (Vec::new(), Vec::new(), Vec::new());
            let (mut least, mut most) = (0, 0);
            for record in &whole[*number] {
                match record.stream.cmp(&cut.stream) {
                    Ordering::Less => before.push(&record.text),
                    Ordering::Greater => behind.push(&record.text),
                    Ordering::Equal => {
                        here.push(&record.text);
                        if end(record) <= cut.len {
                            least = here.len();
                        }
                        if record.at < cut.len {
                            most = here.len();
                        }
                    }
                }
            }
            // The last record in a COMPRESSED record may continue in the next one.
            let last =
                whole[*number].iter().filter(|record| record.stream == cut.stream).nth(least.max(1) - 1);
            if last.is_some_and(|record| record.compressed) {
                least = least.saturating_sub(1);
            }
            let found = records(&output);
            let Some(there) = found.len().checked_sub(before.len() + behind.len()) else {
                return Err(format!("{} records came back, less than other files have", found.len()));
            };
            let expected = before.iter().chain(&here[..there.min(here.len())]).chain(&behind);
            if !(least..=most).contains(&there) || !expected.copied().eq(&found) {
                return Err(format!("{there} records came back, not {least} to {most}, or not as they were"));
            }
            // Nothing shows that pipe data had more records.
            let untold = cut.fixture.form == Form::Pipe && least == most;
            if ran.code == Some(0) && there < here.len() && !untold {
                return Err("what was lost was not said".into());
            }
            // An older perf refuses the attrs of a newer one.
            let old = cut.fixture.recorded_by().is_some_and(|by| by != "p61");
            for perf in perfs.iter().filter(|perf| found.len() > 20 && !(old && perf.name == "perf")) {
                let said = perf.run(Stdin::Null, args!["script", "-f", "-i", output]);
                if said.code != Some(0) {
                    return Err(format!("{}: {}", perf.name, said.stderr));
                }
            }
            Ok(())
        },
    );
}

tiers!(holes_and_text_cost_what_they_cover);
fn holes_and_text_cost_what_they_cover(tier: Tier) {
    let plain = Fixture::new("recorded/several.p61.data");
    let (bytes, whole) = (plain.bytes(), dumped(&plain.path));
    let text =
        "2026-11-21T17:00:00Z INFO nothing happened, and it took 0.003 s of the time of this machine\n"
            .repeat(200);
    let data = whole[0].at;
    let end = whole.last().unwrap().at + 8;
    let cases: Vec<(usize, usize, bool)> = (0..60)
        .flat_map(|n| [(data + 200 + n * 131, [1, 8, 64, 700, 3000][n % 5], n % 2 == 0)])
        .filter(|(from, len, _)| from + len + 600 < end)
        .collect();
    assert!(cases.len() > 30);
    let cases: Vec<_> = cases.into_iter().step_by(tier.pick(4, 1)).collect();
    each(
        &cases,
        |case| format!("{case:?}"),
        |&(from, len, zeros)| {
            let folder = temp();
            let (input, output) = (folder.path().join("hole.data"), folder.path().join("out.data"));
            let mut bytes = bytes.clone();
            let filler = if zeros { vec![0; len] } else { text.as_bytes()[..len].to_vec() };
            bytes[from..from + len].copy_from_slice(&filler);
            fs::write(&input, &bytes).unwrap();
            let ran = perfx(args!["recover", "-q", input, "-o", output]);
            if !matches!(ran.code, Some(0 | 3)) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let found = records(&output);
            // The records in the hole are lost or, if the hole covers no header, changed. All others are
            // there, in order.
            let mut rest = found.iter();
            for (record, next) in whole.iter().zip(whole.iter().skip(1)) {
                let outside = next.at <= from || record.at >= from + len;
                if outside && !rest.any(|other| *other == record.text) {
                    return Err(format!("not there any more: {} at {:#x}", record.text, record.at));
                }
            }
            Ok(())
        },
    );
    // The bytes after the records are not records.
    for name in [
        "recorded/killed.p61.data",
        "recorded/killed-z.p73.data",
        "recorded/pipe.p61.data",
        "recorded/killed-pipe.p61.data",
    ] {
        let fixture = Fixture::new(name);
        for &len in tier.first(2, &[7, 5000, 1, 8, 100, text.len()]) {
            let folder = temp();
            let (input, output) = (folder.path().join("text.data"), folder.path().join("out.data"));
            fs::write(&input, [&fixture.bytes(), &text.as_bytes()[..len]].concat()).unwrap();
            assert_eq!(perfx(args!["recover", "-q", input, "-o", output]).code, Some(3), "{name} {len}");
            let without = folder.path().join("without.data");
            perfx(args!["recover", "-q", fixture.path, "-o", without]).done().unwrap();
            assert_eq!(records(&output), records(&without), "{name} with {len} bytes of text");
        }
    }
}

tiers!(a_hole_costs_only_the_samples_in_it);
/// The size in a damaged header may reach over sound records, and records may seem to begin at the wrong byte
/// where all have the same size.
fn a_hole_costs_only_the_samples_in_it(tier: Tier) {
    let names = ["pipe.p61", "pipe-tracepoint.p73", "several.p61", "identifier.p73", "dwarf.p73"];
    let cases: Vec<(&str, usize, &[u8])> = names
        .iter()
        .flat_map(|name| (0..24).map(move |n| (*name, n)))
        .map(|(name, n)| (name, n, [&[0xff; 300][..], &[0x41; 60], &[8; 9], &[0xff; 4]][n % 4]))
        .step_by(tier.pick(7, 1))
        .collect();
    each(
        &cases,
        |(name, n, hole)| format!("{name} {n}: {} bytes of {:#x}", hole.len(), hole[0]),
        |&(name, n, hole)| {
            let fixture = Fixture::new(&format!("recorded/{name}.data"));
            let mut bytes = fixture.bytes();
            // The records of a pipe begin with its header.
            let first = if name.starts_with("pipe") { 16 } else { dumped(&fixture.path)[0].at };
            let from = first + (bytes.len() - first - hole.len()) * n / 24;
            bytes[from..from + hole.len()].copy_from_slice(hole);
            let folder = temp();
            let (input, output) = (folder.path().join("hole.data"), folder.path().join("out.data"));
            fs::write(&input, &bytes).unwrap();
            let ran = perfx(args!["recover", "-q", input, "-o", output]);
            if !matches!(ran.code, Some(0 | 3)) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let (before, after) = (samples(&fixture.path), samples(&output));
            // A sample has at least 40 bytes. The front of one may be gone, too.
            let most = hole.len() / 40 + 2;
            if after.len() + most < before.len() {
                return Err(format!("{} of {} samples are left", after.len(), before.len()));
            }
            Ok(())
        },
    );
}

/// The header is whole, except for its kind.
#[test]
fn a_kind_unknown_to_every_perf_is_kept_and_exits_with_3() {
    let (mut bytes, starts) = changed_pipe("recorded/pipe.p61.data", |record| record.bytes.clone());
    let whole = temp();
    let middle = starts[starts.len() - 20];
    bytes[middle..middle + 4].copy_from_slice(&[0xff; 4]);
    let (input, output) = (whole.path().join("kind.data"), whole.path().join("out.data"));
    fs::write(&input, &bytes).unwrap();
    let ran = perfx(args!["recover", input, "-o", output]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 record has a kind that no perf writes"), "{}", ran.stderr);
    assert_eq!(samples(&output), samples(&input));
    let unknown = records(&output).into_iter().filter(|record| record.starts_with("unknown"));
    assert_eq!(unknown.count(), 1);
}

/// The size of a damaged record in the head of a pipe may reach past the end.
#[test]
fn a_record_size_beyond_the_end_of_a_pipe_head_is_skipped() {
    let fixture = Fixture::new("recorded/pipe.p61.data");
    let mut bytes = fixture.bytes();
    bytes[2474..2774].fill(0x41);
    let folder = temp();
    let (input, output, piped) =
        (folder.path().join("hole.data"), folder.path().join("out.data"), folder.path().join("piped.data"));
    fs::write(&input, &bytes).unwrap();
    let ran = perfx(args!["recover", "-q", input, "-o", output]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(samples(&output), samples(&fixture.path));
    // The recording through a pipe; the other commands refuse it.
    let ran = perfx_with(Stdin::Pipe(&bytes), args!["recover", "-q", "-", "-o", piped]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    same_bytes("through a pipe", &fs::read(&output).unwrap(), &fs::read(&piped).unwrap()).unwrap();
    let ran = perfx(args!["copy", input, "-o", piped, "-f"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("perfx recover"), "{}", ran.stderr);
}

/// zstd may return some of a damaged frame before it notices the damage, if at all: perf must still be able
/// to read the rest.
#[test]
fn a_hole_in_compressed_records_leaves_a_recording_that_perf_reads() {
    let cases: Vec<(&str, usize, usize)> = ["z-straddle.p61", "z.p61"]
        .into_iter()
        .flat_map(|name| [600, 720, 900].map(|at| (name, at)))
        .flat_map(|(name, at)| [1, 16, 200].map(|len| (name, at, len)))
        .collect();
    let perfs = perfs(&["perf", "perf-new"]);
    each(
        &cases,
        |case| format!("{case:?}"),
        |&(name, at, len)| {
            let folder = temp();
            let (input, one) = (folder.path().join("hole.data"), folder.path().join("one.data"));
            let mut bytes = Fixture::new(&format!("recorded/{name}.data")).bytes();
            let data = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
            bytes[data + at..data + at + len].fill(0);
            fs::write(&input, &bytes).unwrap();
            let ran = perfx(args!["recover", "-q", "-@", "1", input, "-o", one]);
            if !matches!(ran.code, Some(0 | 3)) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let three = folder.path().join("three.data");
            perfx(args!["recover", "-q", "-@", "3", input, "-o", three]).done()?;
            same_bytes("on threads", &fs::read(&one).unwrap(), &fs::read(three).unwrap())?;
            for perf in &perfs {
                let said = perf.run(Stdin::Null, args!["script", "-f", "-i", one]);
                if said.code != Some(0) {
                    return Err(format!("{}: {}", perf.name, said.stderr));
                }
            }
            Ok(())
        },
    );
}

/// Pipe data of tests/data with records changed by `change`, and the position of each record.
fn changed_pipe(name: &str, change: impl Fn(&Rec) -> Vec<u8>) -> (Vec<u8>, Vec<usize>) {
    let pipe = Fixture::new(name).bytes();
    let mut changed = pipe[..16].to_vec();
    let mut starts = Vec::new();
    for record in parse::records(&pipe[16..], Order::of(&pipe)) {
        starts.push(changed.len());
        changed.extend(change(&record));
    }
    (changed, starts)
}

/// The record with additional bytes after its fields.
fn longer(record: &Rec, by: usize) -> Vec<u8> {
    let mut bytes = [&record.bytes[..], &vec![0xa5; by]].concat();
    bytes[6..8].copy_from_slice(&(record.size as u16 + by as u16).to_le_bytes());
    bytes
}

/// dump's lines for samples, also if it reports damage.
fn samples(path: &Path) -> Vec<String> {
    let text = perfx(args!["dump", "-q", path]).text();
    let records = text.lines().filter_map(|line| Some(line.split_once(' ')?.1));
    records.filter(|record| record.starts_with("SAMPLE ")).map(str::to_owned).collect()
}

const SAMPLE: u32 = 9;

#[test]
fn records_that_are_odd_throughout_are_kept_before_and_after_a_hole() {
    let odd = |record: &Rec, by: usize| {
        if record.kind == SAMPLE { longer(record, by) } else { record.bytes.clone() }
    };
    let new_kind = [0xa0, 0x0f, 0, 0, 0, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let name = "recorded/pipe.p61.data";
    let cases = [
        ("rest", changed_pipe(name, |record| odd(record, 8))),
        ("size-unaligned", changed_pipe(name, |record| odd(record, 3))),
        (
            "kind-unknown",
            changed_pipe(name, |record| {
                let new = if record.kind == SAMPLE { &new_kind[..] } else { &[] };
                [new, &record.bytes].concat()
            }),
        ),
    ];
    for (code, (bytes, starts)) in cases {
        let folder = temp();
        let (whole, input, output) = (
            folder.path().join("whole.data"),
            folder.path().join("hole.data"),
            folder.path().join("out.data"),
        );
        fs::write(&whole, &bytes).unwrap();
        let expected = samples(&whole);
        assert!(expected.len() > 20, "{code}: {} samples", expected.len());
        // Without damage, the output equals the input.
        let copy = folder.path().join("copy.data");
        perfx(args!["copy", "-q", whole, "-o", copy]).done().unwrap();
        let ran = perfx(args!["recover", whole, "-o", output]);
        assert_eq!(ran.code, Some(0), "{code}: {}", ran.stderr);
        same_bytes(code, &fs::read(&copy).unwrap(), &fs::read(&output).unwrap()).unwrap();
        let middle = starts[starts.len() / 2];
        for hole in [vec![0; 100], vec![0xff; 64], b"2026-11-21 17:00:00 INFO nothing happened\n".repeat(9)] {
            let damaged = [&bytes[..middle], &hole, &bytes[middle..]].concat();
            fs::write(&input, damaged).unwrap();
            let ran = perfx(args!["recover", "-f", input, "-o", output]);
            assert_eq!(ran.code, Some(3), "{code}: {}", ran.stderr);
            assert!(
                ran.stderr.contains(code) && ran.stderr.contains("kept although they violate the format"),
                "{}",
                ran.stderr
            );
            assert_eq!(samples(&output), expected, "{code}, {} bytes of {:#x}", hole.len(), hole[0]);
        }
    }
}

tiers!(a_pipe_that_is_damaged_in_its_leading_records_comes_back);
fn a_pipe_that_is_damaged_in_its_leading_records_comes_back(tier: Tier) {
    for name in tier.first(1, &["recorded/pipe.p61.data", "recorded/pipe-tracepoint.p73.data"]) {
        let fixture = Fixture::new(name);
        let pipe = fixture.bytes();
        let expected = samples(&fixture.path);
        assert!(expected.len() > 10);
        let front: Vec<Rec> = parse::records(&pipe[16..], Order::of(&pipe))
            .into_iter()
            .take_while(|record| record.is_front)
            .filter(|record| record.kind != parse::HEADER_ATTR)
            .collect();
        assert!(front.len() > 10);
        each(
            &front,
            |record| format!("{name}: record of kind {} at {:#x}", record.kind, record.at),
            |record| {
                let folder = temp();
                let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
                let at = 16 + record.at;
                let mut zeroed = pipe.clone();
                zeroed[at..at + 8].fill(0);
                // Too short for its contents.
                let short = [&pipe[..at], &[80, 0, 0, 0, 0, 0, 8, 0], &pipe[at..]].concat();
                for damaged in [zeroed, short] {
                    fs::write(&input, &damaged).unwrap();
                    let copied = perfx(args!["copy", "-f", input, "-o", output]);
                    if copied.code != Some(1) || !copied.stderr.contains("perfx recover restores") {
                        return Err(format!("copy: {copied:?}"));
                    }
                    if samples(&input) != expected {
                        return Err("dump does not show all samples".to_owned());
                    }
                    for stdin in [Stdin::Null, Stdin::Pipe(&damaged)] {
                        let from = if matches!(stdin, Stdin::Null) { input.clone() } else { "-".into() };
                        let ran = perfx_with(stdin, args!["recover", "-f", from, "-o", output]);
                        if ran.code != Some(3) || samples(&output) != expected {
                            return Err(format!(
                                "{} samples of {}: {ran:?}",
                                samples(&output).len(),
                                expected.len()
                            ));
                        }
                        if !ran.stderr.contains("left out") {
                            return Err(format!("the loss is not reported: {}", ran.stderr));
                        }
                    }
                }
                Ok(())
            },
        );
    }
}

/// A record that a file has in its header, somewhere among the others.
#[test]
fn a_header_record_that_cannot_be_read_is_left_out_and_reported() {
    let pipe = Fixture::new("recorded/pipe.p61.data");
    let bytes = pipe.bytes();
    let folder = temp();
    let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
    for short in [[80, 0, 0, 0, 0, 0, 8, 0], [64, 0, 0, 0, 0, 0, 8, 0], [67, 0, 0, 0, 0, 0, 8, 0]] {
        fs::write(&input, [&bytes[..], &short].concat()).unwrap();
        for threads in ["1", "3"] {
            let ran = perfx(args!["recover", "-f", "-@", threads, input, "-o", output]);
            assert_eq!(ran.code, Some(3), "{}", ran.stderr);
            assert!(
                ran.stderr.contains("lost: 1 header record among the others can't be read"),
                "{}",
                ran.stderr
            );
            assert_eq!(samples(&output), samples(&pipe.path));
        }
    }
}

#[test]
fn a_second_recording_and_messages_of_perf_in_a_pipe_are_recognised() {
    let first = Fixture::new("recorded/pipe.p61.data");
    let second = Fixture::new("recorded/pipe.p73.data").bytes();
    let bytes = first.bytes();
    let place = format!("at offset {:#x}", bytes.len());
    let message =
        b"[ perf record: Woken up 1 times to write data ]\n[ perf record: Captured and wrote 0.000 MB - ]\n";
    let folder = temp();
    let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
    perfx(args!["copy", "-q", "--to", "pipe", first.path, "-o", output]).done().unwrap();
    let expected = fs::read(&output).unwrap();
    for (behind, words, code) in [
        (&second[..], "a second recording begins here", "second-recording"),
        (&message[..], "messages of perf record", "perf-message"),
    ] {
        let both = [&bytes[..], behind].concat();
        fs::write(&input, &both).unwrap();
        for command in ["copy", "recover"] {
            let ran = perfx(args![command, "-f", "--to", "pipe", input, "-o", output]);
            assert_eq!(ran.code, Some(3), "{command}: {}", ran.stderr);
            assert!(ran.stderr.contains(words) && ran.stderr.contains(&place), "{command}: {}", ran.stderr);
            if command == "copy" {
                same_bytes(command, &expected, &fs::read(&output).unwrap()).unwrap();
            }
            assert_eq!(samples(&output), samples(&first.path), "{command}");
            let piped = perfx_with(Stdin::Pipe(&both), [command, "-", "--to", "pipe"]);
            assert!(
                piped.stderr.contains(words) && piped.stderr.contains(&place),
                "{command}: {}",
                piped.stderr
            );
            same_bytes(command, &fs::read(&output).unwrap(), &piped.stdout).unwrap();
        }
        let found = perfx(args!["doctor", input]).text();
        assert!(found.contains(code) && found.contains(words), "{found}");
    }
}

#[test]
fn text_before_a_pipe_is_dropped_with_a_report() {
    let fixture = Fixture::new("recorded/pipe.p61.data");
    let folder = temp();
    let [input, output] = ["in.data", "out.data"].map(|name| folder.path().join(name));
    let message =
        b"Lowering default frequency rate to 1500.\n[ perf record: Woken up 1 times to write data ]\n";
    for command in ["copy", "recover"] {
        let before = [&message[..], &fixture.bytes()].concat();
        fs::write(&input, &before).unwrap();
        let ran = perfx(args![command, "-f", "--to", "pipe", input, "-o", output]);
        assert_eq!(ran.code, Some(3), "{command}: {}", ran.stderr);
        let said = format!("{} bytes of text before the recording are left out", message.len());
        assert!(ran.stderr.contains(&said), "{command}: {}", ran.stderr);
        assert_eq!(samples(&output), samples(&fixture.path), "{command}");
        let piped = perfx_with(Stdin::Pipe(&before), [command, "-", "--to", "pipe"]);
        assert!(piped.stderr.contains(&said), "{command}: {}", piped.stderr);
        same_bytes(command, &fs::read(&output).unwrap(), &piped.stdout).unwrap();
        if command == "copy" {
            same_bytes(command, &fixture.bytes(), &piped.stdout).unwrap();
        }
    }
    assert!(perfx(args!["doctor", input]).text().contains("perf-message"));
    // Text is skipped only if a recording begins within 4 KiB.
    for text in [&message[..], &message.repeat(60)] {
        fs::write(
            &input,
            [text, if text.len() > 4096 { b"PERFILE2\x10\0\0\0\0\0\0\0" } else { b"" }].concat(),
        )
        .unwrap();
        let ran = perfx(args!["copy", "-f", input, "-o", output]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("not a perf.data file"), "{}", ran.stderr);
    }
}

/// Many kinds may be new at once. But consecutive records of a few kinds, aligned as without the hole, are
/// hardly chance.
#[test]
fn records_of_one_unknown_kind_after_a_hole_are_kept() {
    let new_kind = |number: u8| [0xa0, 0x0f, 0, 0, 0, 0, 16, 0, number, 2, 3, 4, 5, 6, 7, 8];
    let pipe = Fixture::new("recorded/pipe.p61.data").bytes();
    let new: Vec<u8> = (0..20).flat_map(new_kind).collect();
    let folder = temp();
    let [input, output] = ["in.data", "out.data"].map(|name| folder.path().join(name));
    for hole in [vec![0; 64], vec![0xff; 64]] {
        fs::write(&input, [&pipe[..], &hole, &new].concat()).unwrap();
        let ran = perfx(args!["recover", "-f", "--to", "pipe", input, "-o", output]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("kind-unknown: 20"), "{}", ran.stderr);
        let recovered = fs::read(&output).unwrap();
        assert!(recovered.ends_with(&new), "{}", ran.stderr);
    }
}

#[test]
fn a_killed_recording_is_unfinished_and_inject_adds_its_build_ids() {
    let killed = Fixture::new("recorded/killed.p61.data");
    let found = perfx(args!["doctor", killed.path]);
    let folder = temp();
    let output = folder.path().join("out.data");
    let ran = perfx(args!["recover", killed.path, "-o", output]);
    assert!(ran.stderr.contains("perfx inject -b"), "{}", ran.stderr);
    let count = records(&output).len();
    assert_eq!(found.code, Some(1), "{found:?}");
    let line = format!("unfinished, 1 fault; perfx recover restores all {count} records");
    assert!(found.text().lines().next().unwrap().ends_with(&line), "{found:?}");
    // A recording that lost records is different.
    let cut = folder.path().join("cut.data");
    fs::write(&cut, &killed.bytes()[..killed.bytes().len() - 20]).unwrap();
    let found = perfx(args!["doctor", cut]).text();
    assert!(found.lines().next().unwrap().contains("unreadable"), "{found}");
}

#[test]
fn a_directory_that_lost_a_data_file_says_so() {
    let whole = Fixture::new("recorded/threads.p61.data");
    let folder = temp();
    let path = folder.path().join("threads.data");
    copy_all(&whole.path, &path);
    fs::remove_file(path.join("data.0")).unwrap();
    let found = perfx(args!["doctor", path]);
    assert_eq!(found.code, Some(3), "{found:?}");
    assert!(
        found.text().contains("directory-part") && found.text().contains("data.0 is missing"),
        "{found:?}"
    );
    let ran = perfx(args!["copy", path, "-o", folder.path().join("out.data")]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("lost: ") && ran.stderr.contains("data.0 is missing"), "{}", ran.stderr);
}

/// Regression: the advice named an event `NAME`, which the user had to find out.
#[test]
fn the_command_for_tracepoints_without_formats_works_as_printed() {
    let folder = temp();
    let fixture = Fixture::new("recorded/exec-tracepoint.p61.data");
    let mut bytes = killed(&fixture.bytes());
    let order = Order::of(&bytes);
    // The first event becomes the CPU's clock.
    let attr = order.u64(&bytes, 24) as usize;
    order.set_u64(&mut bytes, attr + 8, 0);
    bytes[attr..attr + 4].copy_from_slice(&1u32.to_le_bytes());
    let (killed, output) = (folder.path().join("killed.data"), folder.path().join("out.data"));
    fs::write(&killed, bytes).unwrap();
    let ran = perfx(args!["recover", &killed, "-o", &output]);
    let command = ran.stderr.split('`').find(|part| part.starts_with("perfx filter ")).expect(&ran.stderr);
    let line = command.replacen("perfx", "\"$0\"", 1) + " out.data -o rest.data";
    let mut shell = clean("sh");
    shell.args(["-c", &line]).arg(perfx_command().get_program()).current_dir(folder.path());
    let filtered = run(&mut shell, Stdin::Null);
    assert_eq!(filtered.code, Some(0), "{line}: {}", filtered.stderr);
    let listed = perfx(args!["list", "events", folder.path().join("rest.data")]).text();
    assert!(listed.contains("cpu-clock") && !listed.contains("tracepoint"), "{listed}");
}

/// A file as left by a killed perf: no size of the data, no features.
fn killed(whole: &[u8]) -> Vec<u8> {
    let (order, mut bytes) = (Order::of(whole), whole.to_vec());
    bytes.truncate(Contents::file(&bytes).data.end);
    order.set_u64(&mut bytes, 48, 0);
    bytes[72..104].fill(0);
    bytes
}

#[test]
fn what_a_recording_lost_comes_from_another_one_of_the_same_command_and_no_other() {
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    let whole = Fixture::new("recorded/exec-tracepoint.p61.data");
    fs::write(at("killed.data"), killed(&whole.bytes())).unwrap();
    let recover = |other: &Path, input: &Path| {
        perfx(args!["recover", "--like", other, input, "-f", "-o", at("out.data")])
    };
    let ran = recover(&whole.path, &at("killed.data"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("took the names in EVENT_DESC, TRACING_DATA (1), "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("no perf can read it"), "{}", ran.stderr);
    for perf in perfs(&["perf", "perf-new"]) {
        let shown = |path: &Path| perf.run(Stdin::Null, args!["script", "-i", path]).done().unwrap().text();
        assert_eq!(shown(&at("out.data")), shown(&whole.path), "{}", perf.name);
    }
    fs::remove_file(at("out.data")).unwrap();
    // Another command, and the same one on a kernel at another address.
    let ran = recover(&Fixture::new("recorded/tracepoint.p61.data").path, &at("killed.data"));
    assert!(ran.code == Some(1) && ran.stderr.contains("its events are not those of "), "{}", ran.stderr);
    let mut bytes = whole.bytes();
    let order = Order::of(&bytes);
    let contents = Contents::file(&bytes);
    let kernel =
        contents.records(&bytes).into_iter().find(|record| holds(&record.bytes, "[kernel.kallsyms]"));
    let start = contents.data.start + kernel.unwrap().at + 16;
    let moved = order.u64(&bytes, start) + 0x20_0000;
    order.set_u64(&mut bytes, start, moved);
    fs::write(at("moved.data"), bytes).unwrap();
    let ran = recover(&at("moved.data"), &at("killed.data"));
    assert!(
        ran.code == Some(1) && ran.stderr.contains("it is of another kernel, or of another "),
        "{}",
        ran.stderr
    );
    assert!(!at("out.data").exists());
}
