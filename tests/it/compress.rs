//! Every perf reads the output of `compress` like the original recording, `decompress` restores the same
//! bytes, and data that cannot be decompressed is always reported.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::filter;
use crate::oracle::{BUILD_IDS, Case, HEADER, Question, REPORT, SCRIPT, STATS, all_agree};
use crate::parse::{AUXTRACE, Contents, HEADER_FEATURE, Order, Rec, feature, records};
use crate::second_opinion::theirs;
use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Form, Perf, Stdin, Tier, all, each, each_fixture, named, perfs, perfx, perfx_with, recorded,
    root, same_bytes, same_lines, skipped, sound, temp, workloads,
};
use crate::tiny;
use crate::{args, tiers};

const SAMPLE: u32 = 9;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
const FINISHED_ROUND: u32 = 68;

/// Options of every form of the output.
const OPTIONS: [&[&str]; 4] = [&[], &["-l", "19"], &["--solid"], &["--compressed2"]];

/// Runs a command that writes a recording; `None` if it refuses.
fn made(command: &str, options: &[&str], input: &Path) -> Result<Option<(Vec<u8>, i32)>, String> {
    let folder = temp();
    let out = folder.path().join("out.data");
    let mut args = args![command, "-q", "-o", out, input].to_vec();
    args.extend(options.iter().map(Into::into));
    let ran = perfx(args);
    match ran.code {
        Some(1) if out.exists() => Err("failed, and yet left an output".into()),
        Some(1) => Ok(None),
        Some(code @ (0 | 3)) => {
            let data = if out.is_dir() { out.join("data") } else { out };
            Ok(Some((fs::read(data).unwrap(), code)))
        }
        _ => Err(format!("{options:?}: {ran:?}")),
    }
}

fn changed_with_code(command: &str, options: &[&str], bytes: &[u8]) -> (Vec<u8>, i32) {
    let folder = temp();
    let input = folder.path().join("in.data");
    fs::write(&input, bytes).unwrap();
    made(command, options, &input).unwrap().unwrap_or_else(|| panic!("{command} {options:?} refuses"))
}

fn changed(command: &str, options: &[&str], bytes: &[u8]) -> Vec<u8> {
    changed_with_code(command, options, bytes).0
}

fn contents(bytes: &[u8], form: Form) -> Contents {
    if form == Form::Pipe { Contents::pipe(bytes) } else { Contents::file(bytes) }
}

/// The piece of zstd data in a record.
fn piece(record: &Rec, order: Order) -> &[u8] {
    match record.kind {
        COMPRESSED => &record.bytes[8..record.size],
        _ => &record.bytes[16..16 + order.u64(&record.bytes, 8) as usize],
    }
}

fn is_compressed(record: &&Rec) -> bool {
    matches!(record.kind, COMPRESSED | COMPRESSED2)
}

#[test]
fn every_perf_says_the_same_of_what_was_compressed() {
    let (to, solid): (&[&str], &[&str]) = (&["compress"], &["compress", "--solid", "-l", "19"]);
    let best: &[&str] = &["compress", "-l", "22"];
    let pipe: &[&str] = &["compress", "--to", "pipe"];
    let everything: &[&Question] = &[&SCRIPT, &REPORT, &STATS, &HEADER, &BUILD_IDS];
    let most: &[&Question] = &[&SCRIPT, &REPORT, &HEADER, &BUILD_IDS];
    let cases: &[Case<'_>] = &[
        ("recorded/several.p61.data", to, everything),
        ("recorded/several.p61.data", solid, everything),
        ("recorded/tracepoint.p61.data", to, everything),
        ("recorded/allbits.p61.data", best, everything),
        // Already compressed.
        ("recorded/z-straddle.p61.data", best, everything),
        ("recorded/z-tracepoint.p61.data", to, everything),
        ("recorded/threads-z.p61.data", to, most),
        ("recorded/forkexec.p61.data", pipe, &[&SCRIPT, &HEADER]),
        ("recorded/pipe.p61.data", to, &[&SCRIPT]),
        ("crafted/aux-le.data", to, &[&SCRIPT]),
        ("crafted/be-forkexec.p61.data", to, &[&SCRIPT]),
    ];
    all_agree(&perfs(&["perf", "perf-trixie", "perf-new"]), cases);
    let newest: &[&str] = &["compress", "--compressed2"];
    all_agree(
        &perfs(&["perf-new"]),
        &[("recorded/tracepoint.p61.data", newest, everything), ("recorded/z.p73.data", newest, everything)],
    );
}

#[test]
fn every_perf_says_the_same_of_what_was_decompressed() {
    let most: &[&Question] = &[&SCRIPT, &REPORT, &HEADER, &BUILD_IDS];
    let to: &[&str] = &["decompress"];
    let cases: &[Case<'_>] = &[
        ("recorded/z1.p61.data", to, most),
        ("recorded/z22.p61.data", to, most),
        ("recorded/z-straddle.p61.data", to, most),
        ("recorded/z-tracepoint.p61.data", to, most),
        ("recorded/threads-z.p61.data", to, most),
        ("recorded/z.p73.data", to, most),
        ("recorded/pipe-z.p61.data", to, &[&SCRIPT]),
        ("crafted/z-mixed-be.data", to, &[&SCRIPT]),
        ("crafted/z-datasize-zero-le.data", to, &[&SCRIPT]),
    ];
    all_agree(&perfs(&["perf", "perf-trixie", "perf-new"]), cases);
}

/// AUX traces decode as before, wherever their records moved.
#[test]
fn perf_decodes_the_same_branches() {
    const BRANCHES: Question =
        Question { args: &["script", "-f", "--itrace=b"], line: |line| Some(line.to_owned()) };
    let cases: Vec<Case<'_>> = ["crafted/aux-le.data", "crafted/aux-big.data", "crafted/aux-odd-size.data"]
        .into_iter()
        .flat_map(|name| {
            let questions: &[&Question] = &[&BRANCHES];
            [(name, &["compress"] as &[&str], questions), (name, &["compress", "--solid"], questions)]
        })
        .collect();
    all_agree(&perfs(&["perf", "perf-new"]), &cases);
}

/// perf's decoders of AUX data in samples read it from the file itself, before anything is decompressed.
#[test]
fn a_sample_with_aux_data_stays_in_clear() {
    for to in ["file", "pipe"] {
        let folder = temp();
        let out = folder.path().join("out.data");
        let input = Fixture::new("crafted/aux-samples.data");
        perfx(args!["compress", "--to", to, "-o", out, input.path]).done().unwrap();
        let small = fs::read(&out).unwrap();
        let contents = contents(&small, if to == "pipe" { Form::Pipe } else { Form::File });
        let samples = contents.records(&small).into_iter().filter(|record| record.kind == SAMPLE);
        assert_eq!(samples.count(), 5, "{to}");
    }
}

tiers!(decompress_restores_every_byte);
/// Decompressing restores the same bytes, with every option and in both forms.
fn decompress_restores_every_byte(tier: Tier) {
    let fixtures: Vec<_> =
        tier.of(all()).into_iter().filter(|fixture| fixture.form != Form::Directory).collect();
    let compared = AtomicUsize::new(0);
    each_fixture(&fixtures, |fixture| {
        // Only recordings in perf's own layout, without compressed data and without errors.
        let Some((plain, 0)) = made("decompress", &[], &fixture.path)? else { return Ok(()) };
        let whole = contents(&plain, Form::File);
        if whole.not_canonical(&plain).is_some() || whole.features.contains_key(&feature::COMPRESSED) {
            return Ok(());
        }
        for options in tier.some_of(fixture, &OPTIONS, 1) {
            let (small, code) = changed_with_code("compress", options, &plain);
            let back = changed("decompress", &[], &small);
            // A short header, without features, grows; and a section that some perf cannot read is rewritten,
            // which is reported.
            if plain[..16] == back[..16] && code == 0 {
                same_bytes(&format!("{options:?}"), &plain, &back)?;
                compared.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    });
    assert!(compared.into_inner() > tier.pick(20, 500));
}

tiers!(pipes_come_back_byte_by_byte);
fn pipes_come_back_byte_by_byte(tier: Tier) {
    let fixtures: Vec<_> = tier.of(all()).into_iter().filter(|fixture| fixture.form == Form::Pipe).collect();
    each_fixture(&fixtures, |fixture| {
        let Some((plain, 0)) = made("decompress", &["--to", "pipe"], &fixture.path)? else { return Ok(()) };
        for options in OPTIONS {
            let through = |command: &str, options: &[&str], bytes: &[u8]| {
                let args = [&[command, "-q"], options].concat();
                perfx_with(Stdin::Pipe(bytes), args).done()
            };
            let compressed = through("compress", options, &plain)?;
            // A section that some perf cannot read is rewritten, which is reported.
            if compressed.code != Some(0) {
                return Ok(());
            }
            let small = compressed.stdout;
            let contents = Contents::pipe(&small);
            let found = contents.records(&small);
            let says = found.iter().position(|record| {
                record.kind == HEADER_FEATURE && contents.order.u64(&record.bytes, 8) == feature::COMPRESSED
            });
            let first = found.iter().position(|record| is_compressed(&record));
            if first.is_some() && (says.is_none() || says > first) {
                return Err(format!("{options:?}: feature 27 is not before the first COMPRESSED"));
            }
            same_bytes(&format!("{options:?}"), &plain, &through("decompress", &[], &small)?.stdout)?;
        }
        Ok(())
    });
}

tiers!(every_piece_is_what_all_perfs_read);
/// The rules in section 13 of the reference (`src/format/README.md`), each found by breaking it and observing
/// perf.
fn every_piece_is_what_all_perfs_read(tier: Tier) {
    let pieces = AtomicUsize::new(0);
    each_fixture(&tier.of(sound()), |fixture| {
        let Some((plain, 0)) = made("decompress", &[], &fixture.path)? else { return Ok(()) };
        for options in tier.some_of(fixture, &OPTIONS, 1) {
            let Some((small, _)) = made("compress", options, &fixture.path)? else { return Ok(()) };
            let contents = Contents::file(&small);
            let order = contents.order;
            let found = contents.records(&small);
            let says = contents.features.get(&feature::COMPRESSED);
            let mmap_len = says.map_or(0, |says| order.u32(says, 16) as usize);
            let solid = options.contains(&"--solid");
            let mut inside = Vec::new();
            let mut stream = zstd::stream::raw::Decoder::new().unwrap();
            for record in found.iter().filter(is_compressed) {
                pieces.fetch_add(1, Ordering::Relaxed);
                let zstd = piece(record, order);
                let held = if solid {
                    let mut held = vec![0; 1 << 20];
                    let done =
                        zstd::stream::raw::Operation::run_on_buffers(&mut stream, zstd, &mut held).unwrap();
                    assert_eq!(done.bytes_read, zstd.len());
                    held.truncate(done.bytes_written);
                    held
                } else {
                    assert_eq!(
                        zstd::zstd_safe::find_frame_compressed_size(zstd),
                        Ok(zstd.len()),
                        "one frame"
                    );
                    zstd::bulk::decompress(zstd, 1 << 20).unwrap()
                };
                assert!(
                    (1..=mmap_len).contains(&held.len()) && mmap_len.is_multiple_of(4096),
                    "{} {mmap_len}",
                    held.len()
                );
                let whole = records(&held, order);
                assert_eq!(
                    whole.iter().map(|record| record.size).sum::<usize>(),
                    held.len(),
                    "whole records"
                );
                for record in &whole {
                    let is_packed = record.kind < 64 && ![11, 12, 21].contains(&record.kind);
                    assert!(is_packed || record.kind == FINISHED_ROUND, "{}", record.kind);
                }
                assert!(record.kind == COMPRESSED || record.size % 8 == 0);
                assert_eq!(record.kind == COMPRESSED2, options.contains(&"--compressed2"));
                inside.extend(whole);
            }
            let clear = found.iter().filter(|record| !is_compressed(record)).count();
            let before = Contents::file(&plain).records(&plain).len();
            assert_eq!(inside.len() + clear, before, "{options:?}: no record got lost");
        }
        Ok(())
    });
    assert!(pieces.into_inner() > tier.pick(50, 1000));
}

tiers!(another_reader_finds_the_same_records);
fn another_reader_finds_the_same_records(tier: Tier) {
    let fixtures: Vec<_> =
        tier.of(recorded()).into_iter().filter(|fixture| fixture.form == Form::File).collect();
    let read = AtomicUsize::new(0);
    each_fixture(&fixtures, |fixture| {
        let Some(expected) = theirs(&fixture.bytes(), false) else { return Ok(()) };
        for command in ["compress", "decompress"] {
            let Some((made, _)) = made(command, &[], &fixture.path)? else { return Ok(()) };
            let found = theirs(&made, false).ok_or("is refused")?;
            if found != expected {
                return Err(format!("{command}: {found:?}, not {expected:?}"));
            }
        }
        read.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(read.into_inner() * 4 > fixtures.len() * 3);
}

/// A recording of many batches.
fn long(tier: Tier) -> Vec<u8> {
    Fixture::new("recorded/several.p61.data").repeated(tier.pick(5 << 20, 9 << 20))
}

#[test]
fn the_bytes_do_not_depend_on_threads() {
    let (plain, rounds) = (long(Tier::Quick), long_of_rounds());
    for (plain, options) in
        [(&plain, &["-l1"] as &[&str]), (&rounds, &["-l3"]), (&plain, &["--solid", "-l1"])]
    {
        let with = |bytes: &[u8], command, options: &[&str], threads| {
            changed(command, &[options, &["-@", threads]].concat(), bytes)
        };
        let small = with(plain, "compress", options, "1");
        assert!(small == with(plain, "compress", options, "4"), "{options:?}");
        assert!(small.len() < plain.len() / 3, "{options:?}: {}", small.len());
        for threads in ["1", "4"] {
            assert!(with(&small, "decompress", &[], threads) == *plain, "{options:?} -@{threads}");
        }
        // The output of a decoder is divided into other batches, the same for any number of threads.
        let again = with(&small, "compress", &["-l2"], "1");
        assert!(again == with(&small, "compress", &["-l2"], "4"), "{options:?} compressed again");
        assert!(with(&again, "decompress", &[], "4") == *plain, "{options:?} compressed again");
    }
}

tiers!(threads_do_not_change_what_is_decompressed);
/// Frames count as independent only if they are: records across frames, frames in frames, wrong lengths.
fn threads_do_not_change_what_is_decompressed(tier: Tier) {
    each_fixture(&tier.of(named("z")), |fixture| {
        for options in [&[] as &[&str], &["--salvage"]] {
            let one = made("decompress", &[options, &["-@1"]].concat(), &fixture.path)?;
            let four = made("decompress", &[options, &["-@4"]].concat(), &fixture.path)?;
            if one != four {
                return Err(format!("{options:?}"));
            }
        }
        Ok(())
    });
}

/// A damaged frame in the middle is an error; with --salvage, only its contents are lost.
#[test]
fn salvage_loses_one_frame_of_many() {
    let plain = long(Tier::Quick);
    let small = changed("compress", &["-l1"], &plain);
    let contents = Contents::file(&small);
    let found = contents.records(&small);
    let pieces: Vec<&Rec> = found.iter().filter(is_compressed).collect();
    let hit = pieces[pieces.len() / 2];
    let held = zstd::bulk::decompress(piece(hit, contents.order), 1 << 20).unwrap();
    let mut damaged = small.clone();
    // Its magic number, so that it is completely unreadable.
    damaged[contents.data.start + hit.at + 8] ^= 1;
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, &damaged).unwrap();
    let ran = perfx(args!["decompress", "-o", out, input]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!out.exists());
    let place = format!("at offset {:#x}: COMPRESSED (81)", contents.data.start + hit.at);
    assert!(ran.stderr.contains(&place), "{}", ran.stderr);
    for threads in ["-@1", "-@4"] {
        let ran = perfx(args!["decompress", "-f", "--salvage", threads, "-o", out, input]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let lost = format!("the rest of this record of {} bytes is lost", hit.size);
        assert!(ran.stderr.contains(&place) && ran.stderr.contains(&lost), "{}", ran.stderr);
        let rest = fs::read(&out).unwrap();
        let data = |file: &[u8]| Contents::file(file).data.len();
        assert_eq!(data(&rest), data(&plain) - held.len());
    }
}

#[test]
fn salvage_reads_a_file_that_was_cut() {
    let fixture = Fixture::new("recorded/z-straddle.p61.data");
    let (whole, bytes) = (changed("decompress", &[], &fixture.bytes()), fixture.bytes());
    let data = Contents::file(&bytes).data;
    let order = Order::of(&bytes);
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut most = 0;
    for tenth in 1..10 {
        fs::write(&input, &bytes[..data.start + data.len() * tenth / 10]).unwrap();
        let ran = perfx(args!["decompress", "-f", "-o", out, input]);
        assert_eq!((ran.code, out.exists()), (Some(1), false), "{}", ran.stderr);
        let ran = perfx(args!["decompress", "-f", "--salvage", "-o", out, input]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let rest = fs::read(&out).unwrap();
        fs::remove_file(&out).unwrap();
        let (from, to) = (order.section(&rest, 40), Contents::file(&whole).data);
        assert!(whole[to].starts_with(&rest[from.clone()]), "{tenth}");
        assert!(from.len() >= most, "{tenth}");
        most = from.len();
    }
    assert!(most > 0);
}

#[test]
fn a_chain_of_files_becomes_readable() {
    for version in ["p61", "p73"] {
        let fixture = Fixture::new(&format!("recorded/switch-output-z.{version}.data"));
        let files: Vec<_> = (1..=2).map(|n| fixture.path.join(format!("{n}.data"))).collect();
        let folder = temp();
        let out = folder.path().join("out");
        let ran = perfx(args!["decompress", files[1], "-o", out]);
        assert!(ran.code == Some(1) && ran.stderr.contains("perfx decompress --chain"), "{}", ran.stderr);
        let mut line = args!["decompress", "-o", out, "--chain"].to_vec();
        line.extend(files.iter().map(Into::into));
        perfx(line).done().unwrap();
        let first = fs::read(out.join("1.data")).unwrap();
        assert!(
            first == changed("decompress", &[], &fs::read(&files[0]).unwrap()),
            "the first needs no other"
        );
        for perf in perfs(&["perf", "perf-new"]) {
            for n in 1..=2 {
                let ran = perf.run(Stdin::Null, args!["script", "-f", "-i", out.join(format!("{n}.data"))]);
                let old = perf.name == "perf" && version == "p73";
                let samples = ran.text().lines().filter(|line| line.contains("cpu-clock")).count();
                assert!(
                    old || ran.code == Some(0) && samples > 20,
                    "{} {n}: {samples}: {}",
                    perf.name,
                    ran.stderr
                );
            }
        }
        // In place: all of them are changed, or none.
        let copies: Vec<_> = (1..=2).map(|n| folder.path().join(format!("{n}.data"))).collect();
        for (from, to) in files.iter().zip(&copies) {
            fs::copy(from, to).unwrap();
        }
        let in_place = |order: &[usize]| {
            let mut line = args!["decompress", "-q", "--in-place", "--chain"].to_vec();
            line.extend(order.iter().map(|&n| copies[n].clone().into_os_string()));
            perfx(line).code
        };
        assert_eq!(in_place(&[1, 0]), Some(1), "not in the order of time");
        assert_eq!(in_place(&[0, 1, 1]), Some(1), "one of them twice");
        for (from, to) in files.iter().zip(&copies) {
            assert!(fs::read(from).unwrap() == fs::read(to).unwrap(), "untouched");
        }
        assert_eq!(in_place(&[0, 1]), Some(0));
        for (n, copy) in copies.iter().enumerate() {
            assert!(fs::read(copy).unwrap() == fs::read(out.join(format!("{}.data", n + 1))).unwrap());
        }
    }
}

/// The index follows the records, which have moved.
#[test]
fn the_aux_index_moves_with_its_records() {
    each_fixture(&named("aux"), |fixture| {
        if fixture.form != Form::File {
            return Ok(());
        }
        let Some((small, 0)) = made("compress", &["--solid"], &fixture.path)? else { return Ok(()) };
        let contents = Contents::file(&small);
        let found = contents.records(&small);
        let Some(index) = contents.features.get(&feature::AUXTRACE) else { return Ok(()) };
        let order = contents.order;
        for at in (8..index.len()).step_by(16) {
            let offset = order.u64(index, at) as usize - contents.data.start;
            let record = found.iter().find(|record| record.at == offset).ok_or("no record there")?;
            if record.kind != AUXTRACE || order.u64(index, at + 8) as usize != record.size {
                return Err(format!("{record:?}"));
            }
        }
        Ok(())
    });
}

/// Other passes see records, never compressed pieces, and no pass may follow compress.
#[test]
fn it_is_the_last_pass_of_any_chain() {
    let fixture = Fixture::new("recorded/several.p61.data");
    let ids = "build-ids:foreign:known=abcd /tmp/perfx-data/work/burn";
    let plain = changed("run", &["-p", ids], &fixture.bytes());
    let small = changed("run", &["-p", &format!("{ids},compress:level=19")], &fixture.bytes());
    assert!(small.len() < plain.len());
    assert!(changed("decompress", &[], &small) == plain);
    let ran = perfx(args!["run", "-n", "-p", "compress,build-ids", fixture.path]);
    assert!(ran.code == Some(2) && ran.stderr.contains("must be the last one"), "{}", ran.stderr);
    let ran = perfx(args!["run", "--explain", "-p", "compress,build-ids", fixture.path]);
    assert!(ran.code == Some(2) && ran.stderr.contains("must be the last one"), "{}", ran.stderr);
}

/// Found by fuzzing: every reader treats a file without records and features as an unfinished one.
#[test]
fn no_output_without_remaining_records() {
    let folder = temp();
    let (input, out) =
        (root().join("tests/fuzz/corpus/decompress/nothing-is-left"), folder.path().join("out"));
    for more in [&["-n"][..], &[]] {
        let mut line = args!["decompress", "--salvage", input, "-o", out].to_vec();
        line.extend(more.iter().map(Into::into));
        let ran = perfx(line);
        assert!(
            ran.code == Some(1) && ran.stderr.contains("none of its records and features are left"),
            "{}",
            ran.stderr
        );
        assert!(!out.exists());
    }
}

/// The error did not suggest `recover`.
#[test]
fn a_frame_that_breaks_off_is_for_recover() {
    let bytes = Fixture::new("recorded/pipe-z.p61.data").bytes();
    let all = records(&bytes[16..], Order { big: false });
    let last = all.iter().rev().find(|record| record.kind == COMPRESSED).unwrap();
    // The end of the zstd stream is missing.
    let (at, size) = (16 + last.at, last.bytes.len() - 16);
    let mut cut = bytes[..at + size].to_vec();
    cut[at + 6..at + 8].copy_from_slice(&(size as u16).to_le_bytes());
    let ran = perfx_with(Stdin::Pipe(&cut), ["decompress", "-", "-n"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("frame is incomplete") && ran.stderr.contains("perfx recover"),
        "{}",
        ran.stderr
    );
}

tiers!(the_header_says_level_and_ratio);
fn the_header_says_level_and_ratio(tier: Tier) {
    let plain = long(Tier::Quick);
    for (level, least) in tier.first(1, &[("1", 5), ("19", 6)]) {
        let small = changed("compress", &["-l", level], &plain);
        let contents = Contents::file(&small);
        let says = &contents.features[&feature::COMPRESSED];
        let word = |at| contents.order.u32(says, at);
        assert_eq!((word(0), word(4), word(8)), (0, 1, level.parse().unwrap()));
        assert!(word(12) >= *least && word(16) <= 1 << 20, "{} {}", word(12), word(16));
    }
}

tiers!(levels_make_it_smaller);
fn levels_make_it_smaller(tier: Tier) {
    let plain = long(tier);
    let size = |level: &&str| changed("compress", &["-l", level], &plain).len();
    let sizes: Vec<usize> = tier.first(2, &["1", "9", "22"]).iter().map(size).collect();
    assert!(sizes[0] > sizes[1] && sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let cases = [0, 23, 100];
    each(
        &cases,
        |level| level.to_string(),
        |level| {
            let ran = perfx(args!["compress", "-n", "-l", level.to_string(), "recorded"]);
            if ran.code == Some(2) { Ok(()) } else { Err(format!("{ran:?}")) }
        },
    );
}

tiers!(every_copyable_recording_is_compressible);
/// Every recording that can be copied can be compressed, including records of invalid kinds and sizes, unless
/// a COMPRESSED record cannot be expanded.
fn every_copyable_recording_is_compressible(tier: Tier) {
    // Copied as a pipe, its HEADER_FEATURE stays; compressed into a file, the parts that no perf can read are
    // dropped.
    let is_fit = |fixture: &Fixture| !fixture.name.contains("pipe-feature-short");
    let fixtures: Vec<_> = tier.of(all()).into_iter().filter(is_fit).collect();
    each_fixture(&fixtures, |fixture| {
        let Some(copied) = made("copy", &[], &fixture.path)? else { return Ok(()) };
        if made("decompress", &[], &fixture.path)?.is_none() {
            return Ok(());
        }
        // A section that stops some perf is rewritten if other features follow it, and in pipe data.
        let piped = made("copy", &["--to", "pipe"], &fixture.path)?.map(|made| made.1);
        match made("compress", &[], &fixture.path)? {
            Some((_, code)) if code == copied.1 || Some(code) == piped => Ok(()),
            // In a big-endian file, what perf cannot find matters only if the file is compressed.
            Some((_, 3))
                if perfx(args![
                    "compress",
                    "-n",
                    "-o",
                    temp().path().join("unwritten.data"),
                    fixture.path
                ])
                .stderr
                .contains("without feature HOSTNAME") =>
            {
                Ok(())
            }
            other => {
                Err(format!("exit code {:?}, where copy ends with {}", other.map(|made| made.1), copied.1))
            }
        }
    });
}

tiers!(frames_are_the_same_for_files_and_pipes);
/// The source of the input makes no difference.
fn frames_are_the_same_for_files_and_pipes(tier: Tier) {
    let file = long(tier);
    let pipe = {
        let folder = temp();
        let input = folder.path().join("in.data");
        fs::write(&input, &file).unwrap();
        perfx(args!["copy", "-q", "--to", "pipe", input]).done().unwrap().stdout
    };
    for &options in tier.first(1, &OPTIONS) {
        let small = changed("compress", options, &file);
        let frames = |contents: Contents, bytes: &[u8]| {
            let found = contents.records(bytes).into_iter().filter(|record| is_compressed(&record));
            found.map(|record| record.bytes).collect::<Vec<_>>()
        };
        let small = frames(Contents::file(&small), &small);
        let args = [&["compress", "-q"], options].concat();
        for (what, bytes) in [("the file", &file), ("pipe data", &pipe)] {
            let read = perfx_with(Stdin::Pipe(bytes), &args).done().unwrap().stdout;
            assert!(frames(Contents::pipe(&read), &read) == small, "{options:?}: {what} from standard input");
        }
    }
}

/// A COMPRESSED record inside another one: perf shows some of their records twice and others not at all, so
/// no writer can have intended it.
#[test]
fn nested_compression_is_refused_and_recovered() {
    let place = Place::new(&[("nested.data", "crafted/z-nested-le.data")]);
    for command in ["compress", "decompress", "reindex"] {
        let said = place.say(&format!("{command} nested.data -o out.data"));
        assert!(
            said.contains("COMPRESSED (81): a record of this kind can't be inside")
                && said.contains("code 1"),
            "{said}"
        );
    }
    let said = place.say("recover nested.data -o out.data");
    assert!(said.contains("exit code 3"), "{said}");
}

/// Time, thread, address and event of every sample, with everything else that `perf script` shows by default.
fn script(perf: &Perf, path: &Path) -> Option<Vec<String>> {
    let ran = perf.run(Stdin::Null, args!["script", "-f", "--no-inline", "--no-demangle", "-i", path]);
    let text = ran.text();
    (ran.code == Some(0)).then(|| text.lines().map(str::to_owned).collect())
}

tiers!(new_compressed_recordings_of_perf_can_be_converted_both_ways);
/// New recordings made by every installed perf: each perf shows the same for them compressed and
/// decompressed. If nothing can be recorded (a container without perf_event_open), the test says so.
fn new_compressed_recordings_of_perf_can_be_converted_both_ways(tier: Tier) {
    let Some(work) = workloads() else { return };
    let crew = work.join("tmp/perfx-data/work/crew");
    let readers = perfs(&["perf", "perf-new"]);
    let forms: [&[&str]; 6] = [
        &["-z1"],
        &["-z3", "-g"],
        &["-z22", "--call-graph", "dwarf,512"],
        &["-z", "--aio"],
        &["-z", "-m", "8", "-e", "sched:sched_switch"],
        &["-z", "--threads"],
    ];
    let check = |perf: &Perf| -> Result<(), String> {
        let folder = temp();
        let mut made = 0;
        for (index, form) in tier.first(2, &forms).iter().enumerate() {
            let path = |name: &str| folder.path().join(format!("{index}.{name}"));
            let z = path("z");
            let record = |milliseconds: &str| {
                let mut line =
                    args!["record", "-q", "-B", "-e", "cpu-clock", "-c", "200000", "-o", z].to_vec();
                line.extend(form.iter().map(Into::into));
                line.extend(args![crew, "2", milliseconds]);
                perf.run(Stdin::Null, line).code == Some(0)
            };
            let samples =
                || filter::records(&z).iter().filter(|record| record.starts_with("SAMPLE ")).count();
            // Tracepoints, threads and asynchronous writes need a newer perf or privileges. On a busy machine
            // the program may run only briefly.
            if !record("20") || samples() < 10 && !record("1000") {
                continue;
            }
            made += 1;
            let make = |name: &str, command: &[&str]| {
                let mut line = args![command[0], "-q", "-o", path(name), z].to_vec();
                line.extend(command[1..].iter().map(Into::into));
                perfx(line).done().unwrap_or_else(|e| panic!("{} {form:?} {command:?}: {e}", perf.name));
                path(name)
            };
            let outputs = [
                make("plain", &["decompress"]),
                make("frames", &["compress", "-l19"]),
                make("solid", &["compress", "--solid"]),
            ];
            for reader in &readers {
                let Some(expected) = script(reader, &z) else { continue };
                assert!(expected.len() > 5, "{} {form:?}: {expected:?}", perf.name);
                for output in &outputs {
                    let what =
                        format!("{} {form:?}, {} read by {}", perf.name, output.display(), reader.name);
                    let found = script(reader, output).unwrap_or_else(|| panic!("{what}: refused"));
                    same_lines(&what, &expected, &found)?;
                }
            }
        }
        if made == 0 {
            skipped(&format!("recordings of {}, which can't record here", perf.name));
        }
        Ok(())
    };
    let perfs = perfs(tier.first(1, &["perf", "perf-trixie", "perf-new"]));
    if !perfs.is_empty() {
        each(&perfs, |perf| perf.name.to_owned(), check);
    }
}

#[test]
fn reports() {
    let place = Place::new(&[("plain.data", "recorded/several.p61.data"), ("z.data", "recorded/z.p61.data")]);
    place.write("long.data", long_of_rounds());
    let text = place.say_all(&[
        "compress plain.data -o small.data",
        "compress plain.data -o small.data",
        "compress plain.data -f -v -l 19 --ratio -o small.data",
        "compress plain.data -n --ratio",
        "compress plain.data -q -f -o small.data",
        "compress --in-place small.data",
        "compress plain.data --to pipe",
        "compress z.data -v -l 22 -o smaller.data",
        "compress --solid --ratio long.data -o solid.data",
        "compress --ratio long.data -o rounds.data",
        "decompress z.data -o plain-again.data",
        "decompress z.data -f -v -o plain-again.data",
        "decompress z.data -n -o other.data",
        "decompress plain.data -o same.data",
        "decompress --in-place smaller.data",
    ]);
    same("compress", "reports", &text);
}

/// An uncompressed round ends a frame, and small frames compress badly; but without any, linux-perf-data
/// sorts the whole recording at once.
#[test]
fn rounds_are_compressed_where_they_are_dense() {
    let plain = long_of_rounds();
    let rounds = |bytes: &[u8]| {
        let contents = Contents::file(bytes);
        contents.records(bytes).iter().filter(|record| record.kind == FINISHED_ROUND).count()
    };
    let small = changed("compress", &[], &plain);
    let (all, outside) = (rounds(&plain), rounds(&small));
    assert!(outside >= 20 && outside < plain.len() >> 19, "{outside} of {all}");
    assert!(changed("decompress", &[], &small) == plain);
}

/// A round after every few records, as perf record writes them when there is little activity.
fn long_of_rounds() -> Vec<u8> {
    let fixture = Fixture::new("recorded/plain.p61.data");
    fixture.with_data(|data| {
        let records = records(data, Order::of(&fixture.bytes()));
        let kept = records.iter().filter(|record| record.kind < 64 || record.kind == FINISHED_ROUND);
        let kept: Vec<u8> = kept.flat_map(|record| record.bytes.clone()).collect();
        kept.repeat((20 << 20) / kept.len())
    })
}

#[test]
fn errors() {
    let damaged = [
        "corrupt-magic", "corrupt-middle", "corrupt-block", "bomb", "nested", "garbage-inside", "unfinished",
        "window-huge", "cut-block",
    ];
    let copies: Vec<_> =
        damaged.iter().map(|name| (format!("{name}.data"), format!("crafted/z-{name}-le.data"))).collect();
    let mut files: Vec<_> = copies.iter().map(|(name, fixture)| (name.as_str(), fixture.as_str())).collect();
    files.extend([
        ("plain.data", "recorded/plain.p61.data"),
        ("cut.data", "crafted/val-cut-in-data.data"),
        ("killed.data", "recorded/killed-z.p61.data"),
        ("1.data", "recorded/switch-output-z.p61.data/1.data"),
        ("2.data", "recorded/switch-output-z.p61.data/2.data"),
        ("dir.data", "recorded/threads-z.p61.data"),
    ]);
    let place = Place::new(&files);
    place.write("empty.data", "");
    let say = |name: &str, lines: &[String]| {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        same("compress", name, &place.say_all(&lines));
    };
    let both = |name: &&str| {
        ["", "--salvage "].map(|option| format!("decompress {option}{name}.data -o {name}.out"))
    };
    say("damaged", &damaged.iter().flat_map(both).collect::<Vec<_>>());
    let mut lines = Vec::new();
    lines.extend(damaged[..2].iter().map(|name| format!("compress {name}.data -o {name}.z")));
    lines.extend(damaged[..2].iter().map(|name| format!("reindex {name}.data -o {name}.z")));
    let others = [
        "compress -l 0 plain.data",
        "compress -l 23 plain.data",
        "compress cut.data -o out",
        "compress killed.data -o out",
        "compress empty.data -o out",
        "compress missing.data -o out",
        "compress --in-place dir.data",
        "decompress --in-place -o out 1.data",
        "decompress 2.data -o out",
        "decompress --salvage 2.data -o rest",
        "decompress --chain",
        "decompress --chain 1.data 2.data",
        "decompress --chain 2.data 1.data -o chain",
        "decompress --chain 1.data 1.data -o chain",
        "decompress --chain 1.data dir.data -o chain",
        "decompress --chain 1.data missing.data -o chain",
        "decompress --chain 1.data 2.data -o .",
        "decompress --chain 1.data 2.data -n -o chain",
        "decompress --chain 1.data 2.data -o chain",
        "decompress --chain 1.data 2.data -o chain",
        "decompress --chain 1.data -i 2.data -o chain",
        "run -p compress:level=99 plain.data -o out",
        "run -p compress,decompress plain.data -o out",
    ];
    lines.extend(others.map(str::to_owned));
    say("errors", &lines);
}

#[test]
fn a_chain_that_lacks_a_file_says_between_which_two() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("plain"), Fixture::new("recorded/pipe.p61.data").repeated(1 << 20)).unwrap();
    perfx(args!["compress", "-q", "--solid", "--to", "pipe", path("plain"), "-o", path("all")])
        .done()
        .unwrap();
    let all = fs::read(path("all")).unwrap();
    let (front, compressed): (Vec<_>, Vec<_>) = crate::parse::records(&all[16..], Order { big: false })
        .into_iter()
        .partition(|record| !matches!(record.kind, 81 | 83));
    assert!(compressed.len() > 2, "{} compressed records", compressed.len());
    let front: Vec<u8> =
        front.iter().filter(|record| record.is_front).flat_map(|record| record.bytes.clone()).collect();
    let third = compressed.len() / 3;
    for (name, part) in
        [("1", &compressed[..third]), ("2", &compressed[third..2 * third]), ("3", &compressed[2 * third..])]
    {
        let records: Vec<u8> = part.iter().flat_map(|record| record.bytes.clone()).collect();
        fs::write(path(name), [&all[..16], &front, &records].concat()).unwrap();
    }
    let ran = perfx(args!["decompress", "-o", path("out"), "--chain", path("1"), path("2"), path("3")]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let ran = perfx(args!["decompress", "-o", path("less"), "--chain", path("1"), path("3")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let between = format!(
        "is a file of the chain missing between {} and {}?",
        path("1").display(),
        path("3").display()
    );
    assert!(ran.stderr.contains(&between), "{}", ran.stderr);
    assert!(!path("less").exists());
}

/// The second of three files of one zstd stream is missing: the only message was that the third is damaged.
#[test]
fn a_chain_whose_middle_is_missing_says_so() {
    use std::io::Write as _;
    let folder = temp();
    let path = |number: usize| folder.path().join(format!("{number}.data"));
    let mut stream = zstd::Encoder::new(Vec::new(), 3).unwrap();
    // The third file repeats the records of the second, so that they are found there.
    let samples = |count: u64, seed: u64| -> Vec<u8> {
        let time = |at: u64| (at + seed).wrapping_mul(6_364_136_223_846_793_005) >> 8;
        (0..count).flat_map(|at| tiny::sample(7, time(at))).collect()
    };
    for (number, records) in [(1, samples(5, 1)), (2, samples(200, 99)), (3, samples(200, 99))] {
        let start = stream.get_ref().len();
        stream.write_all(&records).unwrap();
        stream.flush().unwrap();
        let packed = tiny::record(COMPRESSED, 0, &stream.get_ref()[start..]);
        let packed = [tiny::sample(7, number as u64), packed].concat();
        // {version, type, level, ratio, mmap_len} of feature COMPRESSED.
        let feature: Vec<u8> = [0u32, 1, 3, 1, 1 << 19].iter().flat_map(|word| word.to_le_bytes()).collect();
        let sampled = tiny::IP | tiny::TID | tiny::TIME;
        let bytes = tiny::file(sampled, tiny::SAMPLE_ID_ALL, &packed, &[(27, feature)]);
        fs::write(path(number), bytes).unwrap();
    }
    let out = folder.path().join("out");
    perfx(args!["decompress", "-o", out, "--chain", path(1), path(2), path(3)]).done().unwrap();
    for line in [
        args!["decompress", "-fo", out, "--chain", path(1), path(3)].to_vec(),
        args!["join", "-n", path(1), path(3)].to_vec(),
    ] {
        let shown = format!("{line:?}");
        let ran = perfx(line);
        let said = ran.stderr.contains("is a file of the chain missing between ");
        assert!(ran.code == Some(1) && said, "{shown}: {:?} {}", ran.code, ran.stderr);
    }
    let ran = perfx(args!["decompress", "--salvage", "-fo", out, "--chain", path(1), path(3)]);
    assert!(
        ran.code == Some(3) && ran.stderr.contains("a file of the chain may be missing"),
        "{:?} {}",
        ran.code,
        ran.stderr
    );
}
