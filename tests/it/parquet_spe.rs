//! `perfx export parquet --spe`: the table has the records decoded by `inject --itrace` and `perf report -D`,
//! with the same threads and places.

use std::collections::BTreeMap;
use std::fs;

use ::parquet::record::Field;
use tempfile::TempDir;

use crate::parquet::{by, export, int, rows, text};
use crate::support::{Fixture, Stdin, Tier, each, perf, perfx, same_bytes, temp};
use crate::{args, tiers};

type Row = BTreeMap<String, Field>;

const NAMES: [&str; 6] = ["spe-v2", "spe-v1", "spe-be", "spe-switch", "spe-threads", "spe-calls"];

fn fixture(name: &str) -> Fixture {
    Fixture::new(&format!("crafted/{name}.data"))
}

/// The tables of a recording with that of Arm SPE, without this machine's files.
fn exported(name: &str) -> TempDir {
    let (folder, ran) = export(&fixture(name).path, &["--spe"]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    folder
}

/// The place of a frame, in the same form in each export: code, file and offset.
fn place(folder: &TempDir) -> impl Fn(Option<i64>) -> Option<(String, String, i64)> {
    let (frames, dsos) = (rows(folder, "frames"), rows(folder, "dsos"));
    let mut places = BTreeMap::new();
    for (number, frame) in by(&frames, "frame") {
        let dso = int(frame, "dso").map(|dso| text(by(&dsos, "dso")[&dso], "path").unwrap());
        let at = int(frame, "offset").or(int(frame, "ip")).unwrap();
        places.insert(number, (text(frame, "mode").unwrap(), dso.unwrap_or_default(), at));
    }
    move |frame| frame.map(|frame| places[&frame].clone())
}

fn sum(rows: &[Row], column: &str) -> i64 {
    rows.iter().filter_map(|row| int(row, column)).sum()
}

fn count(rows: &[Row], column: &str) -> usize {
    rows.iter().filter(|row| int(row, column).is_some()).count()
}

#[test]
fn records_are_those_of_inject() {
    each(
        &NAMES,
        |name| (*name).to_owned(),
        |name| {
            let folder = exported(name);
            let records = rows(&folder, "spe");
            let injected = folder.path().join("injected.data");
            let line = args!["inject", "--itrace=i1ibfmtaM", fixture(name).path, "-o", injected];
            assert!(matches!(perfx(line).code, Some(0 | 3)));
            let (theirs, _) = export(&injected, &[]);
            let (events, samples) = (rows(&theirs, "events"), rows(&theirs, "samples"));
            let number = |name: &str| {
                let event = events.iter().find(|event| text(event, "name").as_deref() == Some(name));
                int(event.unwrap(), "event")
            };
            // In the order of the file.
            let samples = by(&samples, "sample");
            let of = |event: &str| -> Vec<_> {
                let number = number(event);
                samples.values().filter(|sample| int(sample, "event") == number).copied().collect()
            };
            let (here, there) = (place(&folder), place(&theirs));
            let all = of("instructions");
            assert_eq!(records.len(), all.len());
            for (record, sample) in records.iter().zip(&all) {
                for column in ["pid", "tid", "cpu"] {
                    let known = int(sample, column).filter(|&number| number != -1);
                    assert_eq!(int(record, column), known, "{column}: {record:?} {sample:?}");
                }
                if let Some(time) = int(record, "time_ns") {
                    assert_eq!(Some(time), int(sample, "time_ns"));
                }
                assert_eq!(here(int(record, "frame")), there(int(sample, "frame")));
                assert_eq!(int(record, "latency"), int(sample, "weight"));
                assert_eq!(int(record, "data_src").unwrap_or(0), int(sample, "data_src").unwrap());
                let phys_addr = int(sample, "phys_addr").unwrap();
                assert_eq!(int(record, "phys_addr").unwrap_or(0), phys_addr);
            }
            let branches = records.iter().filter(|record| text(record, "op").as_deref() == Some("B"));
            for (record, sample) in branches.zip(of("branch")) {
                let target = here(int(record, "target_frame"));
                assert_eq!(target, there(int(sample, "data_frame")).or(target.clone()));
            }
            let memory: Vec<_> = records.iter().filter(|record| int(record, "data_src").is_some()).collect();
            for (record, sample) in memory.iter().zip(of("memory")) {
                assert_eq!(int(record, "addr").unwrap_or(0), int(sample, "addr").unwrap());
            }
            let counted = [
                ("l1d-miss", sum(&records, "l1d_miss")),
                ("l1d-access", sum(&records, "l1d_access")),
                ("llc-miss", sum(&records, "llc_miss")),
                ("llc-access", sum(&records, "llc_access")),
                ("tlb-miss", sum(&records, "tlb_miss")),
                ("tlb-access", sum(&records, "tlb_access")),
                ("remote-access", sum(&records, "remote")),
                ("memory", memory.len() as i64),
                ("branch", count(&records, "target_frame") as i64),
            ];
            for (event, count) in counted {
                assert_eq!(count, of(event).len() as i64, "{event}");
            }
            Ok(())
        },
    );
}

/// The text of `perf report -D` for each packet, of operations or of all others. perf 7.3 shows the text of
/// the previous packet for an operation of class OTHER without a meaning.
fn dumped(name: &str, operations: bool) -> Option<Vec<String>> {
    let perf = perf("perf-new")?;
    let ran = perf.run(Stdin::Null, args!["report", "-D", "-i", fixture(name).path]);
    let packet = |line: &str| {
        // Offset, the bytes in hex, and their meaning.
        let line = line.strip_prefix(".  ")?;
        let (offset, rest) = line.split_once(":  ")?;
        let is_byte = |word: &str| word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let header = u8::from_str_radix(rest.split_whitespace().next()?, 16).ok()?;
        let words = rest.split_whitespace().skip_while(|word| is_byte(word));
        let is_wanted = offset.len() == 8 && (header & 0xfc == 0x48) == operations;
        is_wanted.then(|| words.collect::<Vec<_>>().join(" "))
    };
    Some(ran.text().lines().filter_map(packet).collect())
}

#[test]
fn packets_are_those_that_perf_shows() {
    for name in NAMES {
        let Some(packets) = dumped(name, false) else { return };
        let records = rows(&exported(name), "spe");
        let with = |start: &str| packets.iter().filter(|packet| packet.starts_with(start)).count();
        let latency = |kind: &str| -> i64 {
            let cycles = packets.iter().filter_map(|packet| packet.strip_prefix("LAT ")?.strip_suffix(kind));
            cycles.map(|cycles| cycles.trim().parse::<i64>().unwrap()).sum()
        };
        assert!(records.len() > 50 && records.len() == with("TS ") + with("END"), "{name}");
        let starts = [
            ("PC ", "frame"),
            ("TGT ", "target_frame"),
            ("PBT ", "prev_target_frame"),
            ("VA ", "addr"),
            ("PA ", "phys_addr"),
            ("CONTEXT ", "context"),
            ("DATA-SOURCE ", "source"),
            ("TS ", "time_ns"),
        ];
        for (start, column) in starts {
            assert_eq!(count(&records, column), with(start), "{name} {column}");
        }
        for (kind, column) in [(" TOT", "latency"), (" ISSUE", "issue_latency"), (" XLAT", "xlat_latency")] {
            assert_eq!(sum(&records, column), latency(kind), "{name} {column}");
        }
        for level in 0..4 {
            let el = format!(" el{level} ");
            let with = packets.iter().filter(|packet| packet.starts_with("PC ") && packet.contains(&el));
            let records = records.iter().filter(|record| int(record, "el") == Some(level));
            assert_eq!(records.count(), with.count(), "{name} {level}");
        }
        let words = [
            ("RETIRED", "retired"),
            ("L1D-ACCESS", "l1d_access"),
            ("L1D-REFILL", "l1d_miss"),
            ("LLC-ACCESS", "llc_access"),
            ("LLC-REFILL", "llc_miss"),
            ("TLB-ACCESS", "tlb_access"),
            ("TLB-REFILL", "tlb_miss"),
            ("NOT-TAKEN", "not_taken"),
            ("MISPRED", "mispredicted"),
            ("REMOTE-ACCESS", "remote"),
        ];
        for (word, column) in words {
            let has =
                |packet: &&String| packet.starts_with("EV ") && packet.split(' ').any(|each| each == word);
            assert_eq!(sum(&records, column), packets.iter().filter(has).count() as i64, "{name} {word}");
        }
    }
}

#[test]
fn every_kind_of_operation_is_named_as_by_perf() {
    let records = rows(&exported("spe-operations"), "spe");
    assert_eq!(records.len(), 3 * 256);
    let shown = |record: &Row| {
        let (op, sub) = (text(record, "op").unwrap(), text(record, "sub"));
        match sub {
            Some(sub) if op == "OTHER" && (sub.starts_with("SVE") || sub.starts_with("SME")) => Some(sub),
            Some(sub) => Some(format!("{op} {sub}")),
            None => Some(op).filter(|op| op != "OTHER"),
        }
    };
    let mut ours: Vec<String> = records.iter().filter_map(shown).collect();
    let Some(packets) = dumped("spe-operations", true) else { return };
    let is_operation = |packet: &&String| {
        let first = packet.split(' ').next();
        first.is_some_and(|word| ["LD", "ST", "B", "OTHER", "SVE-OTHER", "SME-OTHER"].contains(&word))
    };
    let mut theirs: Vec<String> = packets.iter().filter(is_operation).cloned().collect();
    ours.sort();
    theirs.sort();
    assert!(ours.len() > 500, "{}", ours.len());
    assert_eq!(ours, theirs);
}

tiers!(records_depend_on_neither_threads_nor_the_form_of_the_input);
fn records_depend_on_neither_threads_nor_the_form_of_the_input(tier: Tier) {
    let folder = temp();
    let large = folder.path().join("large.data");
    fs::write(&large, fixture("spe-pipe").repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
    let table = |threads: &str| {
        let (out, ran) = export(&large, &["--spe", "--tables", "frames,spe", threads]);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        ["spe", "frames"].map(|table| {
            let file = fs::read_dir(out.path().join("out").join(table)).unwrap().next().unwrap().unwrap();
            fs::read(file.path()).unwrap()
        })
    };
    let one = table("-@1");
    assert!(one[0].len() > 100_000);
    for threads in tier.first(1, &["-@4", "-@2"]) {
        let more = table(threads);
        (0..2).for_each(|at| same_bytes(threads, &one[at], &more[at]).unwrap());
    }
    // The id of the recording differs.
    let without_id = |name: &str| {
        let mut rows = rows(&exported(name), "spe");
        rows.iter_mut().for_each(|row| drop(row.remove("recording")));
        rows
    };
    assert_eq!(without_id("spe-v2"), without_id("spe-pipe"));
    assert_eq!(without_id("spe-z").len(), 120);
}

#[test]
fn damage_is_counted_and_other_recordings_have_an_empty_table() {
    let (folder, ran) = export(&fixture("spe-damaged").path, &["--tables", "spe"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let lost = "lost: 9 bytes of the AUX data do not belong to a packet of Arm SPE; 12 records with such damage were left out";
    assert!(ran.stderr.contains(lost), "{}", ran.stderr);
    let injected =
        perfx(args!["inject", "--itrace=i1i", fixture("spe-damaged").path, "-o", "/dev/null", "-f"]);
    assert!(injected.stderr.contains(lost), "{}", injected.stderr);
    assert!(injected.stderr.contains("made 113 samples of 113 records"), "{}", injected.stderr);
    assert_eq!(rows(&folder, "spe").len(), 113);
    // The thread of a record is unknown only if it really is.
    let (folder, ran) = export(&fixture("spe-switch").path, &["--spe"]);
    let unknown = rows(&folder, "spe").iter().filter(|row| int(row, "tid").is_none()).count();
    assert!(ran.stderr.contains(&format!("the threads of {unknown} records of Arm SPE are unknown")));
    for (input, said) in [("recorded/fp.p61.data", None), ("crafted/aux-le.data", Some("Intel BTS"))] {
        let (folder, ran) = export(&Fixture::new(input).path, &["--spe"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(folder.path().join("out/spe").is_dir());
        assert_eq!(rows(&folder, "spe").len(), 0);
        let said_so = said.is_some_and(|tracer| {
            ran.stderr.contains(&format!("AUX data of {tracer} is not decoded; table spe has none of it"))
        });
        assert_eq!(said_so, said.is_some(), "{}", ran.stderr);
    }
    // Samples are the same with and without the table.
    let (with, without) = (exported("spe-v2"), export(&fixture("spe-v2").path, &[]).0);
    assert_eq!(rows(&with, "samples"), rows(&without, "samples"));
    assert!(!without.path().join("out/spe").exists());
}
