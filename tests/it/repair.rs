//! `perfx repair` repairs the faults in its list, so that doctor and perf find none, and changes nothing
//! else.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::Value as Json;

use crate::parse::{Contents, Order, records};
use crate::support::{
    Fixture, Form, Perf, Ran, Stdin, Tier, all, each, each_fixture, perf, perfs, perfx, perfx_with,
    same_bytes, temp,
};
use crate::{args, tiers};

/// Recordings with a repairable fault, and the remainder of samples of unknown events.
const MENDABLE: &[(&str, &str)] = &[
    ("size-unaligned", "recorded/inject-b.p61.data"),
    ("size-unaligned", "recorded/pipe-inject-b.p61.data"),
    ("size-unaligned", "crafted/val-size-unaligned.data"),
    ("mmap-len", "recorded/stat.p61.data"),
    ("mmap-len", "recorded/stat-interval.p73.data"),
    ("mmap-len", "crafted/be-stat.p61.data"),
    ("mmap-len", "crafted/z-mmap-len-odd-le.data"),
    ("mmap-len", "crafted/z-mmap-len-zero-le.data"),
    ("mmap-len", "crafted/val-feature-mmap-len.data"),
    ("dir-format", "crafted/dir-format-in-file.data"),
    ("dir-format", "crafted/val-feature-dir-format.data"),
    ("mmap-build-id-bit", "crafted/val-mmap2-build-id-0.data"),
    ("mmap-build-id-bit", "crafted/val-mmap2-build-id-size.data"),
    ("compressed-size", "crafted/z-datasize-zero-le.data"),
    ("compressed-size", "crafted/z-datasize-zero-be.data"),
    ("compressed-size", "crafted/z-datasize-big-le.data"),
    ("compressed-size", "crafted/z-datasize-wild-le.data"),
    ("compressed-size", "crafted/z-datasize-small-le.data"),
    ("compressed-size", "crafted/z-empty-record-le.data"),
    ("auxtrace-index", "crafted/aux-index-missing.data"),
    ("auxtrace-index", "crafted/aux-index-other-record.data"),
    ("auxtrace-index", "crafted/aux-index-outside.data"),
    ("auxtrace-index", "crafted/aux-index-plus-8.data"),
    ("auxtrace-index", "crafted/aux-index-size.data"),
    ("auxtrace-index", "crafted/aux-index-size-zero.data"),
    ("auxtrace-index", "crafted/aux-index-twice.data"),
    ("id-unknown", "crafted/val-id-index-unknown.data"),
    ("id-unknown", "crafted/unknown-id-sample.data"),
    ("id-unknown", "crafted/unknown-id-trailer.data"),
    ("id-unknown", "crafted/val-event-update-unknown.data"),
    ("section-empty", "crafted/val-feature-cpudesc-none.data"),
    ("string-unterminated", "crafted/val-unterminated-buildid.data"),
    ("string-unterminated", "crafted/val-unterminated-cgroup.data"),
    ("string-unterminated", "crafted/val-unterminated-comm.data"),
    ("string-unterminated", "crafted/val-unterminated-ksymbol.data"),
    ("string-unterminated", "crafted/val-unterminated-mmap.data"),
    ("string-unterminated", "crafted/val-unterminated-mmap2.data"),
    ("string-unterminated", "crafted/val-feature-hostname-unterminated.data"),
];

/// The doctor's findings: code, severity.
fn doctor(path: &std::path::Path) -> Vec<(String, String)> {
    let ran = perfx(args!["doctor", "--format", "ndjson", path]);
    let file: Json = serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let text = |finding: &Json, name: &str| finding[name].as_str().unwrap().to_owned();
    let findings = file["findings"].as_array().unwrap().iter();
    findings.map(|finding| (text(finding, "code"), text(finding, "severity"))).collect()
}

/// perf's output for a recording.
fn script(perf: &Perf, bytes: &[u8], path: &std::path::Path) -> Ran {
    let pipe = matches!(bytes[8..16], [16, 0, 0, 0, 0, 0, 0, 0] | [0, 0, 0, 0, 0, 0, 0, 16]);
    let (stdin, path) = if pipe { (Stdin::Pipe(bytes), "-".into()) } else { (Stdin::Null, path.to_owned()) };
    perf.run(stdin, args!["script", "-D", "-f", "-i", path])
}

/// perf 6.17 writes sections without content if no BPF program is loaded, which perf 7.3 refuses.
#[test]
fn empty_sections_of_bpf_programs_are_removed() {
    const PROG_INFO: u64 = 25;
    const BTF: u64 = 26;
    let order = Order { big: false };
    let mut bytes = Fixture::new("recorded/plain.p61.data").bytes();
    let contents = Contents::file(&bytes);
    for (slot, _) in contents.features.keys().enumerate().filter(|(_, bit)| [PROG_INFO, BTF].contains(*bit)) {
        order.set_u64(&mut bytes, contents.data.end + slot * 16 + 8, 0);
    }
    let folder = temp();
    let (path, out) = (folder.path().join("empty.data"), folder.path().join("out.data"));
    fs::write(&path, &bytes).unwrap();
    assert_eq!(doctor(&path), [("section-empty".to_owned(), "fault".to_owned())]);
    let ran = perfx(args!["repair", path, "-o", out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("repaired section-empty: 2 places"), "{}", ran.stderr);
    assert_eq!(doctor(&out), []);
    let mut left = contents.features;
    left.retain(|bit, _| ![PROG_INFO, BTF].contains(bit));
    assert_eq!(Contents::file(&fs::read(&out).unwrap()).features, left);
    for perf in perfs(&["perf", "perf-new"]) {
        let ran = perf.run(Stdin::Null, args!["script", "-f", "-i", out]);
        assert!(ran.code == Some(0) && !ran.text().is_empty(), "{}: {}", perf.name, ran.stderr);
    }
}

/// Regression: a section that was too short stayed, and perf still refused the recording, with exit code 0.
#[test]
fn remaining_faults_that_stop_perf_are_reported() {
    let folder = temp();
    let (path, out) = (folder.path().join("short.data"), folder.path().join("out.data"));
    let order = Order { big: false };
    let mut bytes = Fixture::new("recorded/plain.p61.data").bytes();
    let contents = Contents::file(&bytes);
    // Two bytes of feature BPF_PROG_INFO.
    let slot = contents.features.keys().position(|bit| *bit == 25).unwrap();
    order.set_u64(&mut bytes, contents.data.end + slot * 16 + 8, 2);
    fs::write(&path, &bytes).unwrap();
    let ran = perfx(args!["repair", path, "-o", out]);
    assert!(ran.stderr.contains("repaired section-empty: 1 place"), "{}", ran.stderr);
    assert_eq!((ran.code, doctor(&out)), (Some(0), vec![]), "{}", ran.stderr);
    let version = Fixture::new("crafted/val-feature-cache-version.data").path;
    let ran = perfx(args!["repair", "-f", version, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("some versions of perf stop at feature CACHE (20)"), "{}", ran.stderr);
    perfx(args!["recover", "-f", version, "-o", out]).done().unwrap();
    assert_eq!(doctor(&out), []);
}

#[test]
fn doctor_and_perf_are_content_with_what_was_repaired() {
    let perfs = [perf("perf"), perf("perf-new")];
    each(
        MENDABLE,
        |(code, name)| format!("{code} of {name}"),
        |&(code, name)| {
            let fixture = Fixture::new(name);
            let before = doctor(&fixture.path);
            if !before.iter().any(|(found, _)| found == code) {
                return Err(format!("doctor finds {before:?}"));
            }
            let folder = temp();
            let out = folder.path().join("out.data");
            let to = if fixture.form == Form::Pipe { "pipe" } else { "file" };
            let ran = perfx(args!["repair", "--fault", code, "--to", to, "-o", out, fixture.path]);
            let lost = name.ends_with("unknown-id-sample.data");
            if ran.code != Some(if lost { 3 } else { 0 }) {
                return Err(format!("{ran:?}"));
            }
            let after = doctor(&out);
            if after.iter().any(|(_, severity)| severity == "fault") {
                return Err(format!("doctor still finds {after:?} after {}", ran.stderr));
            }
            let bytes = fs::read(&out).unwrap();
            for perf in perfs.iter().flatten() {
                // Features unknown to older perfs are not a fault of the recording.
                if perf.name == "perf" && !after.is_empty() {
                    continue;
                }
                let ran = script(perf, &bytes, &out);
                if ran.code != Some(0) || ran.stderr.contains("skipping") {
                    return Err(format!("{}: {:?}: {}", perf.name, ran.code, ran.stderr));
                }
            }
            Ok(())
        },
    );
}

tiers!(correct_recordings_are_unchanged);
/// The output for a recording without such faults is that of `copy`.
fn correct_recordings_are_unchanged(tier: Tier) {
    let mendable: Vec<_> = MENDABLE.iter().map(|(code, _)| *code).collect();
    let sound: Vec<_> = tier
        .of(all())
        .into_iter()
        .filter(|fixture| doctor(&fixture.path).iter().all(|(code, _)| !mendable.contains(&code.as_str())))
        .collect();
    assert!(sound.len() > tier.pick(25, 500));
    each_fixture(&sound, |fixture| {
        let folder = temp();
        let (copied, repaired) = (folder.path().join("copy.data"), folder.path().join("repair.data"));
        let ran = perfx(args!["copy", "-q", "--to", "file", "-o", copied, fixture.path]);
        if ran.code == Some(1) {
            return Ok(());
        }
        let repair = perfx(args!["repair", "--to", "file", "-o", repaired, fixture.path]);
        let broken = repair.stderr.contains("compressed records are not repaired");
        let code =
            if repair.stderr.contains("some versions of perf stop at feature ") { Some(3) } else { ran.code };
        if (repair.code != code && !broken) || !repair.stderr.contains("nothing to repair") {
            return Err(format!("{repair:?}"));
        }
        same_bytes("repair", &fs::read(&copied).unwrap(), &fs::read(&repaired).unwrap())
    });
}

#[test]
fn only_the_fault_that_is_asked_for_is_repaired() {
    for (code, name) in [("mmap-len", "recorded/inject-b.p61.data"), ("dir-format", "recorded/stat.p61.data")]
    {
        let fixture = Fixture::new(name);
        let folder = temp();
        let (copied, repaired) = (folder.path().join("copy.data"), folder.path().join("repair.data"));
        perfx(args!["copy", "-o", copied, fixture.path]).done().unwrap();
        perfx(args!["repair", "--fault", code, "-o", repaired, fixture.path]).done().unwrap();
        same_bytes(name, &fs::read(&copied).unwrap(), &fs::read(&repaired).unwrap()).unwrap();
    }
}

#[test]
fn threads_and_pipes_make_no_difference() {
    for (code, name) in MENDABLE {
        let fixture = Fixture::new(name);
        let bytes = fixture.bytes();
        let of = |stdin: Stdin<'_>, threads: &str| {
            let ran = perfx_with(stdin, ["repair", "-q", "-@", threads, "--fault", code, "-"]);
            assert!(matches!(ran.code, Some(0 | 3)), "{name}: {ran:?}");
            ran.stdout
        };
        let expected = of(Stdin::File(&fixture.path), "1");
        same_bytes(name, &expected, &of(Stdin::File(&fixture.path), "4")).unwrap();
        same_bytes(name, &expected, &of(Stdin::Pipe(&bytes), "4")).unwrap();
    }
}

/// A record inside a COMPRESSED record cannot be changed in place.
#[test]
fn faults_inside_compressed_records_are_reported() {
    let mut pipe = Fixture::new("crafted/z-pipe.data").bytes();
    let first =
        records(&pipe[16..], Order { big: false }).into_iter().find(|record| record.kind == 81).unwrap();
    pipe.truncate(16 + first.at);
    // A FINISHED_INIT of 12 bytes.
    let inside = zstd::bulk::compress(&[82, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0], 1).unwrap();
    pipe.extend([81, 0, 0, 0, 0, 0, inside.len() as u8 + 8, 0]);
    pipe.extend(inside);
    let ran = perfx_with(Stdin::Pipe(&pipe), ["repair", "-"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("contents of COMPRESSED records were not checked"), "{}", ran.stderr);
    same_bytes("nothing changes", &pipe, &ran.stdout).unwrap();
}

#[test]
fn a_fault_that_nobody_can_repair_is_a_mistake_on_the_command_line() {
    let ran = perfx(["repair", "--fault", "zstd", "perf.data"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("`zstd`") && ran.stderr.contains("mmap-len"), "{}", ran.stderr);
}

/// The file was replaced, and so its inode changed.
#[test]
fn in_place_what_is_right_is_not_touched() {
    let folder = temp();
    let there = folder.path().join("there.data");
    let kept = folder.path().join("there.data.old");
    for (name, stays) in [
        ("recorded/plain.p61.data", true),
        ("recorded/pipe.p61.data", true),
        ("recorded/z.p73.data", true),
        // Only a feature is wrong, so its section changes, and the rest of the file is the same.
        ("crafted/dir-format-in-file.data", false),
        ("crafted/val-mmap2-build-id-0.data", false),
    ] {
        for backup in [false, true] {
            let before = Fixture::new(name).bytes();
            fs::write(&there, &before).unwrap();
            let metadata = fs::metadata(&there).unwrap();
            let mut line = args!["repair", "--in-place", there].to_vec();
            line.extend(backup.then(|| "--backup".into()));
            let ran = perfx(line);
            assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
            let after = fs::metadata(&there).unwrap();
            assert_eq!(stays, ran.stderr.contains("is unchanged"), "{name}: {}", ran.stderr);
            assert_eq!(stays, ran.stderr.contains("nothing to repair"), "{name}: {}", ran.stderr);
            assert_eq!(kept.exists(), backup && !stays, "{name}");
            if stays {
                let of = |metadata: &fs::Metadata| (metadata.ino(), metadata.modified().unwrap());
                assert_eq!(of(&after), of(&metadata), "{name}");
                same_bytes(name, &before, &fs::read(&there).unwrap()).unwrap();
            } else {
                assert!(doctor(&there).iter().all(|(_, severity)| severity != "fault"), "{name}");
                assert!(!backup || fs::read(&kept).unwrap() == before, "{name}");
            }
            let _ = fs::remove_file(&kept);
        }
    }
}

/// Regression: an id of 8 bytes with small numbers, added by perf inject, was mistaken for device and inode.
#[test]
fn build_ids_in_the_feature_are_recognised_in_mmap2_records() {
    const NAME: &[u8] = b"/tmp/perfx-data/work/burn\0";
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    for (named, right) in [([1, 2, 0, 0, 7, 0, 0, 0], true), ([1, 2, 0, 0, 8, 0, 0, 0], false)] {
        let mut bytes = Fixture::new("recorded/buildid-default.p61.data").bytes();
        let mut places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(NAME)).collect();
        // In the feature's entry: u8 size of the id, after its 20 bytes.
        let entry = places.pop().unwrap() - 36;
        bytes[entry + 12..entry + 32].fill(0);
        bytes[entry + 12..entry + 20].copy_from_slice(&named);
        bytes[entry + 32] = 8;
        bytes[entry + 5] |= 0x80;
        places.retain(|name| bytes[name - 72..].starts_with(&[10, 0, 0, 0]));
        for at in places.iter().map(|name| name - 72) {
            bytes[at + 5] |= 0x40;
            bytes[at + 40..at + 64].fill(0);
            bytes[at + 40] = 8;
            bytes[at + 44..at + 52].copy_from_slice(&[1, 2, 0, 0, 7, 0, 0, 0]);
        }
        fs::write(&input, &bytes).unwrap();
        let found = doctor(&input).iter().any(|(code, _)| code == "mmap-build-id-bit");
        let ran = perfx(args!["repair", "-f", "-o", out, input]).done().unwrap();
        assert_eq!((found, ran.stderr.contains("nothing to repair")), (!right, right), "{}", ran.stderr);
        assert_eq!(fs::read(&out).unwrap() == bytes, right);
    }
}

/// Deterministic damage: bytes set to values with a meaning in headers, counts and strings.
fn mutated(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut state = seed;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..1 + next(4) {
        let at = 16 + next(bytes.len() - 16);
        bytes[at] = [0, 1, 7, 8, 9, 0x40, 0x7f, 0xff, b'a'][next(9)];
    }
    bytes
}

tiers!(repairing_twice_is_repairing_once);
fn repairing_twice_is_repairing_once(tier: Tier) {
    let cases: Vec<(Fixture, Option<u64>)> = tier
        .of(all())
        .into_iter()
        .filter(|fixture| !fixture.name.contains("bomb") && !fixture.name.contains("endless"))
        .enumerate()
        .flat_map(|(number, fixture)| {
            let small = fixture.form != Form::Directory && (17..40_000).contains(&fixture.bytes().len());
            let seed = (number % 3 == 0 && small).then_some(number as u64);
            [None]
                .into_iter()
                .chain(seed.map(Some))
                .map(move |seed| (fixture.clone(), seed))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(cases.len() > tier.pick(40, 600));
    each(
        &cases,
        |(fixture, seed)| format!("{} {seed:?}", fixture.name),
        |(fixture, seed)| {
            let folder = temp();
            let path = |name: &str| folder.path().join(name);
            let input = match seed {
                None => fixture.path.clone(),
                Some(seed) => {
                    let input = path("in.data");
                    fs::write(&input, mutated(&fixture.bytes(), *seed)).unwrap();
                    input
                }
            };
            let forms: &[&str] = if fixture.form == Form::Pipe { &["pipe", "file"] } else { &["file"] };
            for to in forms {
                let (once, twice, copy) = (path("once"), path("twice"), path("copy"));
                if perfx(args!["repair", "-q", "-f", "--to", to, "-o", once, input]).code == Some(1) {
                    continue;
                }
                let ran = perfx(args!["repair", "-f", "--to", to, "-o", twice, once]);
                if !matches!(ran.code, Some(0 | 3)) || ran.stderr.contains("perfx: repaired") {
                    return Err(format!("{to}: {:?}: {}", ran.code, ran.stderr));
                }
                // Late events of pipe data are at the end of a file made from it, and a copy moves them to
                // the front.
                let expected =
                    if input == fixture.path && fixture.form != Form::Pipe { &once } else { &copy };
                perfx(args!["copy", "-q", "-f", "--to", to, "-o", copy, once]).done()?;
                same_bytes(to, &fs::read(expected).unwrap(), &fs::read(&twice).unwrap())?;
            }
            Ok(())
        },
    );
}

/// A pipe with this attr, followed by these records.
fn pipe_of(records: &[Vec<u8>]) -> Vec<u8> {
    let pipe = Fixture::new("crafted/val-pipe-attr-late.data").bytes();
    [&pipe[..16], &records.concat()].concat()
}

#[test]
fn a_pipe_without_remaining_records_becomes_a_readable_file() {
    let bytes = Fixture::new("recorded/pipe.p61.data").bytes();
    let front = records(&bytes[16..], Order { big: false });
    let attr = front.iter().find(|record| record.kind == crate::parse::HEADER_ATTR).unwrap();
    let mut other = attr.bytes.clone();
    other[8 + 48] ^= 0xff;
    // A mapping of an unknown event, and an attr after it.
    let update =
        [&[78, 0, 0, 0, 0, 0, 32, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0x77; 8], b"unit\0\0\0\0"].concat();
    let folder = temp();
    let (input, once, copy) =
        (folder.path().join("in.data"), folder.path().join("once.data"), folder.path().join("copy.data"));
    fs::write(&input, pipe_of(&[attr.bytes.clone(), update, other])).unwrap();
    let ran = perfx(args!["repair", "-o", once, input]).done().unwrap();
    assert!(ran.stderr.contains("repaired id-unknown"), "{}", ran.stderr);
    let ran = perfx(args!["copy", once, "-o", copy]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(perfx(args!["repair", "-f", once, "-o", copy]).code, Some(0));
}

#[test]
fn text_of_a_record_is_not_mistaken_for_a_trailer() {
    let bytes = Fixture::new("crafted/val-comm-trailer-only.data").bytes();
    let contents = Contents::file(&bytes);
    let (mut front, rest) = (bytes[..contents.data.start].to_vec(), &bytes[contents.data.end..]);
    // COMM of 25 bytes: u32 pid, u32 tid, nine letters, no NUL.
    let comm = [&[3, 0, 0, 0, 0, 0, 25, 0][..], &[1, 0, 0, 0, 1, 0, 0, 0], b"workerabc"].concat();
    let grown = comm.len() as i64 - contents.data.len() as i64;
    let order = Order { big: false };
    order.set_u64(&mut front, 48, comm.len() as u64);
    let mut rest = rest.to_vec();
    for slot in 0..contents.features.len() {
        let offset = order.u64(&rest, slot * 16).wrapping_add_signed(grown);
        order.set_u64(&mut rest, slot * 16, offset);
    }
    let folder = temp();
    let (input, once, twice) =
        (folder.path().join("in.data"), folder.path().join("once.data"), folder.path().join("twice.data"));
    fs::write(&input, [front, comm, rest].concat()).unwrap();
    perfx(args!["repair", "-o", once, input]).done().unwrap();
    let shown = perfx(args!["dump", once]).text();
    assert!(shown.contains("workerabc"), "{shown}");
    let ran = perfx(args!["repair", "-o", twice, once]);
    assert!(ran.stderr.contains("nothing to repair"), "{}", ran.stderr);
}
