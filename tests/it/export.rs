//! `perfx export csv`: its tables agree with one another and with `perf report`, support names of any bytes,
//! and appear together or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::snapshots::same;
use crate::support::{
    Fixture, Perf, Ran, Stdin, Tier, all, each, each_fixture, perf, perfx, perfx_command, recorded, run,
    temp, workloads,
};
use crate::{args, tiers};

const TABLES: [&str; 4] = ["overview.csv", "processes.csv", "results.csv", "stat.csv"];

/// The tables of a recording, without using this machine's files unless `more` says so.
fn export(input: &Path, more: &[&str]) -> (TempDir, Ran) {
    let folder = temp();
    let dir = folder.path().join("tables");
    let mut command = perfx_command();
    command.args(["export", "csv", "--foreign", "--dir"]).args([&dir, input]).args(more);
    let ran = run(&mut command, Stdin::Null);
    (folder, ran)
}

/// The rows of a table, as the csv crate reads them.
fn rows(folder: &TempDir, table: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(folder.path().join("tables").join(table)).unwrap();
    reader.deserialize().map(|row| row.unwrap()).collect()
}

fn sum(rows: &[BTreeMap<String, String>], column: &str) -> u64 {
    rows.iter().map(|row| row[column].parse::<u64>().unwrap()).sum()
}

fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn each_of_several_recordings_has_a_folder_of_tables() {
    let folder = temp();
    let tables = folder.path().join("tables");
    let path = |name: &str| Fixture::new(&format!("recorded/{name}.data")).path;
    let (plain, fp) = (path("plain.p61"), path("fp.p61"));
    let ran =
        perfx(args!["export", "csv", "--foreign", plain, path("cut-00050.p61"), fp, plain, "-o", tables]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("1 of 4 recordings failed and have no tables"), "{}", ran.stderr);
    let alone = folder.path().join("alone");
    perfx(args!["export", "csv", "--foreign", plain, "-o", alone]);
    let names = ["plain.p61.data", "plain.p61.data-2"];
    for (name, table) in names.iter().flat_map(|name| ["stat.csv", "results.csv"].map(|table| (name, table)))
    {
        assert!(fs::read(tables.join(name).join(table)).unwrap() == fs::read(alone.join(table)).unwrap());
    }
    assert_eq!(fs::read_dir(&tables).unwrap().count(), 3);
    let ran = perfx(args!["export", "csv", "@nowhere", "-o", tables]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("@nowhere: the list of inputs can't be read"),
        "{}",
        ran.stderr
    );
}

/// Only the other exports could select.
#[test]
fn selected_samples_have_the_tables_of_what_filter_keeps() {
    let input = Fixture::new("recorded/several.p61.data").path;
    let select = ["--event", "cpu-clock", "--time", "20%-80%"];
    let (given, ran) = export(&input, &select);
    ran.done().unwrap();
    let folder = temp();
    let kept = folder.path().join("kept.data");
    let mut filter = args!["filter", input, "-o", kept].to_vec();
    filter.extend(select.map(Into::into));
    perfx(filter).done().unwrap();
    let (filtered, _) = export(&kept, &[]);
    for table in TABLES {
        assert_eq!(rows(&given, table), rows(&filtered, table), "{table}");
    }
    let samples = sum(&rows(&given, "results.csv"), "samples");
    assert!(samples > 0 && samples < 57, "{samples}");
}

tiers!(the_tables_of_every_recording_agree_with_one_another_and_with_dump);
fn the_tables_of_every_recording_agree_with_one_another_and_with_dump(tier: Tier) {
    each_fixture(&tier.of(all()), |fixture| {
        let dump = perfx(args!["dump", fixture.path]);
        let (folder, ran) = export(&fixture.path, &[]);
        if ran.code == Some(1) && dump.code == Some(1) {
            let left = files(folder.path());
            return if left.is_empty() { Ok(()) } else { Err(format!("left {left:?} behind")) };
        }
        let ran = ran.done()?;
        if files(&folder.path().join("tables")) != TABLES {
            return Err(format!("wrote {:?}", files(&folder.path().join("tables"))));
        }
        let dump = dump.text();
        let records =
            dump.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count() as u64;
        let (stat, overview) = (rows(&folder, "stat.csv"), rows(&folder, "overview.csv"));
        if sum(&stat, "count") != records || overview.len() as u64 != records {
            let counts = (sum(&stat, "count"), overview.len());
            return Err(format!("{counts:?} records, dump has {records}"));
        }
        let mut numbers: Vec<u64> = overview.iter().map(|row| row["nr"].parse().unwrap()).collect();
        let times: Vec<(Option<u64>, u64)> =
            overview.iter().map(|row| row["time"].parse().ok()).zip(numbers.iter().copied()).collect();
        if !times.is_sorted() {
            return Err("overview.csv is not by time and number".into());
        }
        numbers.sort_unstable();
        if !numbers.into_iter().eq(0..records) {
            return Err("overview.csv does not number all records".into());
        }
        let (results, processes) = (rows(&folder, "results.csv"), rows(&folder, "processes.csv"));
        let samples = sum(&results, "samples");
        let counted = overview.iter().filter(|row| row["kind"] == "SAMPLE").count() as u64;
        // With READ a sample counts once, several times or not at all; a sample of an unknown event is
        // reported.
        let reads = dump.lines().any(|line| line.contains("sample_type:") && line.contains("READ"));
        if samples != sum(&processes, "samples")
            || !reads && !ran.stderr.contains("no event") && samples != counted
        {
            let processes = sum(&processes, "samples");
            return Err(format!(
                "{samples} samples in results, {processes} in processes, {counted} in overview"
            ));
        }
        Ok(())
    });
}

/// Samples and periods by DSO and by symbol.
type Totals = (BTreeMap<String, (u64, u64)>, BTreeMap<(String, String), u64>);

fn perfs_totals(perf: &Perf, fixture: &Fixture, root: &Path) -> Totals {
    let line = "report --stdio --no-children --no-group -g none --no-branch-stack -F sample,period,dso,sym -t | --symfs";
    let mut args: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
    // perfx finds no symbols for a kernel that is not running here.
    args.extend(args![root, "--kallsyms", "/dev/null", "-i", fixture.path]);
    let ran = perf.run(Stdin::Null, args);
    let mut totals = Totals::default();
    for line in ran.text().lines() {
        let cells: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
        let [samples, period, dso, symbol] = cells[..] else { continue };
        let (Ok(samples), Ok(period)) = (samples.parse(), period.parse()) else { continue };
        // `[.] name`, and an address in 16 digits.
        let symbol = symbol.split_once("] ").map_or(symbol, |(_, symbol)| symbol);
        let address = symbol.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let symbol = address.map_or(symbol.to_owned(), |address| format!("{address:#x}"));
        // perf names memory without a file after its JIT maps.
        let dso = if dso.starts_with("[JIT] tid") { "anon" } else { dso };
        add(&mut totals, dso, symbol, samples, period);
    }
    totals
}

fn add(totals: &mut Totals, dso: &str, symbol: String, samples: u64, period: u64) {
    let total = totals.0.entry(dso.to_owned()).or_default();
    *total = (total.0 + samples, total.1 + period);
    *totals.1.entry((dso.to_owned(), symbol)).or_default() += samples;
}

tiers!(totals_by_dso_and_symbol_are_those_of_perf_report);
fn totals_by_dso_and_symbol_are_those_of_perf_report(tier: Tier) {
    let Some(root) = workloads() else { return };
    for (name, version) in [("perf", "p61"), ("perf-new", "p73")] {
        let Some(perf) = perf(name) else { continue };
        // A line feed in a name breaks the lines of perf report.
        let mut fixtures = tier.of(recorded());
        fixtures.retain(|fixture| {
            fixture.recorded_by() == Some(version) && !fixture.name.contains("name-newline")
        });
        let compared = std::sync::atomic::AtomicUsize::new(0);
        each_fixture(&fixtures, |fixture| {
            let (folder, ran) = export(&fixture.path, &["--root", root.to_str().unwrap()]);
            if ran.code == Some(1) {
                return Ok(());
            }
            let mut ours = Totals::default();
            for row in rows(&folder, "results.csv") {
                let dso = if row["dso"].starts_with('[') {
                    &row["dso"]
                } else {
                    row["dso"].rsplit('/').next().unwrap()
                };
                let numbers = ["samples", "period"].map(|column| row[column].parse().unwrap());
                add(&mut ours, dso, row["symbol"].clone(), numbers[0], numbers[1]);
            }
            let perfs = perfs_totals(&perf, fixture, root);
            if ours.0 != perfs.0 {
                return Err(format!("DSOs\n  perfx {:?}\n  perf  {:?}", ours.0, perfs.0));
            }
            if ours.1 != perfs.1 {
                return Err(format!("symbols\n  perfx {:?}\n  perf  {:?}", ours.1, perfs.1));
            }
            compared.fetch_add(usize::from(!ours.0.is_empty()), std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        assert!(compared.into_inner() > tier.pick(3, 40), "{name} was asked of too few recordings");
    }
}

tiers!(tables_do_not_depend_on_the_number_of_threads);
fn tables_do_not_depend_on_the_number_of_threads(tier: Tier) {
    let folder = temp();
    for name in tier.first(1, &["recorded/group-read.p61.data", "recorded/plain.p61.data"]) {
        // Several batches.
        let input = folder.path().join("large.data");
        fs::write(&input, Fixture::new(name).repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
        let (one, four) = (export(&input, &["-@1"]).0, export(&input, &["-@4"]).0);
        for table in TABLES {
            let read = |folder: &TempDir| fs::read(folder.path().join("tables").join(table)).unwrap();
            assert!(read(&one) == read(&four), "{name}: {table}");
        }
    }
}

#[test]
fn names_of_any_bytes_become_one_safe_cell() {
    let folder = temp();
    let mut bytes = Fixture::new("recorded/plain.p61.data").bytes();
    let places: Vec<usize> =
        bytes.windows(5).enumerate().filter(|(_, at)| at == b"burn\0").map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|&at| bytes[at..at + 4].copy_from_slice(b"=,\"\xff"));
    let input = folder.path().join("perf.data");
    fs::write(&input, bytes).unwrap();
    let (folder, ran) = export(&input, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(rows(&folder, "processes.csv").iter().any(|row| row["comm"] == "\\x3d,\"\\xff"));
    assert!(rows(&folder, "results.csv").iter().any(|row| row["dso"] == "/tmp/perfx-data/work/=,\"\\xff"));
    let text = fs::read_to_string(folder.path().join("tables/processes.csv")).unwrap();
    assert!(text.contains("\"\\x3d,\"\"\\xff\""), "{text}");
}

/// Symbols of `burn` in results.csv.
fn symbols_of_burn(more: &[&str]) -> Vec<String> {
    let (folder, ran) = export(&Fixture::new("recorded/plain.p61.data").path, more);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder, "results.csv").into_iter();
    rows.filter(|row| row["dso"].ends_with("/burn")).map(|row| row["symbol"].clone()).collect()
}

#[test]
fn symbols_come_from_the_file_its_debug_files_and_the_build_id_cache() {
    let Some(root) = workloads() else { return };
    let burn = root.join("tmp/perfx-data/work/burn");
    let known = symbols_of_burn(&["--root", root.to_str().unwrap()]);
    assert!(known.contains(&"leaf_xor".to_owned()), "{known:?}");
    let without = symbols_of_burn(&["--root", temp().path().to_str().unwrap()]);
    assert!(without.iter().all(|symbol| symbol.starts_with("0x")), "{without:?}");
    let tool = |args: &[&std::ffi::OsStr]| {
        let ran = run(Command::new("objcopy").args(args), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    let os = |text: &str| std::ffi::OsString::from(text);
    let folder = temp();
    let (stripped, debug) = (folder.path().join("burn"), folder.path().join("burn.debug"));
    tool(&[&os("--only-keep-debug"), burn.as_os_str(), debug.as_os_str()]);
    let link = os(&format!("--add-gnu-debuglink={}", debug.display()));
    tool(&[&os("--strip-all"), &link, burn.as_os_str(), stripped.as_os_str()]);
    let id = "00000000000000000000000000000000000001";
    let place = |what: &Path, at: String| {
        let at = folder.path().join(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::copy(what, at).unwrap();
    };
    let work = "tmp/perfx-data/work";
    for (name, at) in [
        ("beside", format!("{work}/burn.debug")),
        ("hidden", format!("{work}/.debug/burn.debug")),
        ("installed", format!("usr/lib/debug/{work}/burn.debug")),
        ("by-id", format!("usr/lib/debug/.build-id/b0/{id}.debug")),
    ] {
        place(&stripped, format!("{name}/{work}/burn"));
        place(&debug, format!("{name}/{at}"));
        let root = folder.path().join(name);
        assert_eq!(symbols_of_burn(&["--root", root.to_str().unwrap()]), known, "{name}");
    }
    place(&burn, format!("cache/.build-id/b0/{id}/elf"));
    let cache = folder.path().join("cache");
    assert_eq!(symbols_of_burn(&["--buildid-dir", cache.to_str().unwrap()]), known);
    // A different build of the program, and the symbols of another file, must not be used.
    place(&root.join(work).join("calls"), format!("other/{work}/burn"));
    let other = folder.path().join("other");
    assert_eq!(symbols_of_burn(&["--root", other.to_str().unwrap()]), without);
    place(&stripped, format!("damaged/{work}/burn"));
    fs::write(folder.path().join("damaged").join(work).join("burn.debug"), "no ELF").unwrap();
    let damaged = folder.path().join("damaged");
    let symbols = symbols_of_burn(&["--root", damaged.to_str().unwrap()]);
    assert!(symbols.iter().all(|symbol| symbol.starts_with("0x")), "{symbols:?}");
}

#[test]
fn snapshots_of_tables() {
    for (name, fixture) in [
        ("forks", "recorded/forkexec.p61.data"),
        ("group", "recorded/group-read.p61.data"),
        ("pipe", "recorded/pipe.p61.data"),
        ("z", "recorded/z.p61.data"),
    ] {
        let (folder, ran) = export(&Fixture::new(fixture).path, &["-v"]);
        let mut text = ran.stderr.replace(&folder.path().display().to_string(), "[TMP]");
        text = text.replace(&crate::support::root().display().to_string(), "");
        for table in TABLES {
            let contents = fs::read_to_string(folder.path().join("tables").join(table)).unwrap();
            // Kinds that do not occur are the same everywhere; the samples of an overview are similar.
            let lines: Vec<&str> =
                contents.lines().filter(|line| !line.ends_with(",0") || table != "stat.csv").collect();
            let shown = lines.len().min(32);
            text += &format!("--- {table}, {} lines\n{}\n", lines.len(), lines[..shown].join("\n"));
        }
        same("export", name, &text);
    }
}

#[test]
fn what_it_says_when_it_refuses() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::copy(Fixture::new("recorded/plain.p61.data").path, path("perf.data")).unwrap();
    fs::copy(Fixture::new("recorded/killed.p61.data").path, path("killed.data")).unwrap();
    fs::write(path("text"), "no recording").unwrap();
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/results.csv"), "mine").unwrap();
    fs::create_dir_all(path("odd/stat.csv")).unwrap();
    let say = |line: &str| {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' '));
        let ran = run(&mut command, Stdin::Null);
        format!("$ perfx {line}\n{}{}(exit code {:?})\n", ran.text(), ran.stderr, ran.code.unwrap())
    };
    let before = files(folder.path());
    let lines = [
        "export",
        "export csv perf.data",
        "export csv perf.data --dir full",
        "export csv perf.data --dir odd -f",
        "export csv perf.data --dir text",
        "export csv perf.data --dir text/such",
        "export csv text --dir new",
        "export csv killed.data --dir new",
        "export csv nothing.data --dir new",
        "export csv perf.data --dir new -n --foreign",
    ];
    let text: Vec<String> = lines.iter().map(|line| say(line)).collect();
    same("export", "refusals", &text.join("\n"));
    assert_eq!(files(folder.path()), before);
    assert_eq!(files(&path("full")), ["results.csv"]);
    assert_eq!(fs::read(path("full/results.csv")).unwrap(), b"mine");
    let ran = say("export csv perf.data --dir full -f --foreign");
    assert!(ran.ends_with("(exit code 0)\n"), "{ran}");
    assert_eq!(files(&path("full")), TABLES);
    assert_ne!(fs::read(path("full/results.csv")).unwrap(), b"mine");
    let ran = say("export csv perf.data --dir made/with/parents --foreign");
    assert!(ran.ends_with("(exit code 0)\n"), "{ran}");
    assert_eq!(files(&path("made/with/parents")), TABLES);
}

#[test]
fn a_recording_cut_while_it_is_read_leaves_nothing_and_a_pipe_is_read_like_a_file() {
    let file = Fixture::new("recorded/plain.p61.data");
    let pipe = perfx(args!["copy", file.path, "--to", "pipe"]).stdout;
    let cases: Vec<(&str, &[u8], i32)> =
        vec![("whole", &pipe, 0), ("cut", &pipe[..pipe.len() - 20], 3), ("nothing", &[], 1)];
    each(
        &cases,
        |case| case.0.to_owned(),
        |(_, bytes, code)| {
            let folder = temp();
            let mut command = perfx_command();
            command.args(["export", "csv", "-", "--foreign", "--dir"]).arg(folder.path().join("tables"));
            let ran = run(&mut command, Stdin::Pipe(bytes));
            if ran.code != Some(*code) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let expected: &[&str] = if *code == 1 { &[] } else { &["tables"] };
            if files(folder.path()) != expected {
                return Err(format!("{:?}", files(folder.path())));
            }
            if *code == 0 {
                let (from_file, _) = export(&file.path, &[]);
                for table in ["results.csv", "processes.csv"] {
                    if rows(&folder, table) != rows(&from_file, table) {
                        return Err(format!("{table} differs"));
                    }
                }
            }
            Ok(())
        },
    );
}
