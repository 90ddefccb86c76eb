//! The guide to fleets: its queries, programs and examples work on a generated folder of recordings, and their
//! answers are what was generated.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ::parquet::record::Field;
use perfx_export::parquet::Column;
use perfx_export::symbolize::NAMES;
use perfx_format::features::{ClockData, write_str};
use perfx_format::{Feature, MappedFile};
use symbols::ElfFile;

use crate::args;
use crate::maker::{LE, Maker, PLAIN, event};
use crate::parquet::{files, int, rows_below, text};
use crate::support::{Stdin, Tier, clean, is_installed, perfx, python, root, run, temp};
use crate::tiers;

/// Builds of a program, and the recordings of hosts that run them.
struct Fleet {
    folder: tempfile::TempDir,
    /// The functions of the program with their offsets.
    functions: Vec<(String, u64)>,
    /// The build-ids.
    builds: Vec<[u8; 20]>,
    random: u64,
}

const FUNCTIONS: [&str; 3] = ["leaf_xor", "leaf_mul", "down"];

/// 2026-11-16, ns since 1970.
const MONDAY: u64 = 1_794_787_200_000_000_000;
const DAY: u64 = 86_400_000_000_000;

impl Fleet {
    /// Puts each build, with its own build-id, into a folder of its own below `root`.
    fn new(builds: u8) -> Fleet {
        let folder = temp();
        let program = root().join("tests/data/unstripped/tmp/perfx-data/work/burn");
        let elf = ElfFile::read(&program).unwrap();
        let (bytes, id) = (fs::read(&program).unwrap(), elf.build_id.unwrap());
        let at = bytes.windows(20).position(|part| *part == *id.as_bytes()).unwrap();
        let ids: Vec<[u8; 20]> = (1..=builds).map(|build| [build; 20]).collect();
        for (number, id) in ids.iter().enumerate() {
            let mut bytes = bytes.clone();
            bytes[at..at + 20].copy_from_slice(id);
            let path = folder.path().join(format!("root/srv/{number}/burn"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let offset = |name: &str| {
            let symbol = elf.symbols.iter().find(|symbol| *symbol.name == *name.as_bytes()).unwrap();
            assert_eq!(elf.address_of(symbol.start), Some(symbol.start), "the first segment begins at 0");
            symbol.start
        };
        let functions = FUNCTIONS.map(|name| (name.to_owned(), offset(name))).into();
        Fleet { folder, functions, builds: ids, random: 1 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A recording of a build with this many samples in each function. `ns` is its wall-clock time, if known.
    fn record(&self, name: &str, build: usize, host: &str, ns: Option<u64>, samples: [usize; 3]) -> PathBuf {
        let path = self.path("recordings").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut maker = Maker::new(&path, &[event(PLAIN, Vec::new())]);
        maker.writer.set_feature(Feature::HOSTNAME, write_str(host.as_bytes(), LE)).unwrap();
        if let Some(wall_ns) = ns {
            let clock = ClockData { clockid: 1, wall_ns, clock_ns: 0 };
            maker.writer.set_feature(Feature::CLOCK_DATA, clock.write(LE)).unwrap();
        }
        maker.comm(7, "burn", 1 << 13);
        let file = MappedFile::BuildId(&self.builds[build]);
        maker.mmap2(7, 0x40_0000, 0x10_0000, file, &format!("/srv/{build}/burn"));
        for ((_, offset), samples) in self.functions.iter().zip(samples) {
            (0..samples).for_each(|_| maker.sample(7, 0x40_0000 + offset));
        }
        maker.writer.finish().unwrap();
        path
    }

    /// Divides `samples` samples among the functions, at random with these weights.
    fn sampled(&mut self, samples: usize, weights: [f64; 3]) -> [usize; 3] {
        let all: f64 = weights.iter().sum();
        let mut counts = [0; 3];
        for _ in 0..samples {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut at = (self.random >> 11) as f64 / (1_u64 << 53) as f64 * all;
            let of = weights.iter().position(|weight| {
                at -= weight;
                at < 0.0
            });
            counts[of.unwrap_or(2)] += 1;
        }
        counts
    }

    /// Writes the tables of all recordings.
    fn tables(&self, more: &[&str]) {
        let list = self.path("list");
        let recordings = self.path("recordings");
        let lines =
            files(&recordings).into_iter().map(|name| format!("{}\n", recordings.join(name).display()));
        fs::write(&list, lines.collect::<String>()).unwrap();
        let line = args!["export", "parquet", "-q", "--foreign", format!("@{}", list.display()), "--dir"];
        let more = args![self.path("tables"), "--partition-by", "host,date"]
            .into_iter()
            .chain(more.iter().map(Into::into));
        let ran = perfx(line.into_iter().chain(more));
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    }
}

/// 50 recordings of three hosts and two builds, in two weeks; the dates of some are not known. Also returns
/// the samples by build and function.
fn fifty() -> (Fleet, BTreeMap<(String, String), i64>) {
    let fleet = Fleet::new(2);
    let mut truth = BTreeMap::new();
    for number in 0..50_usize {
        let (build, host) = (number / 25, format!("web{}", number % 3));
        let samples = [number + 3, 2, number % 4];
        let ns = (number % 10 != 9).then_some(MONDAY + number as u64 / 4 * DAY);
        fleet.record(&format!("{number:02}.data"), build, &host, ns, samples);
        for (function, samples) in FUNCTIONS.into_iter().zip(samples) {
            let id = format!("{:02x}", build + 1).repeat(20);
            *truth.entry((id, function.to_owned())).or_default() += samples as i64;
        }
    }
    (fleet, truth)
}

/// The blocks of a page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/guide").join(page)).unwrap();
    let start = format!("```{language}\n");
    let blocks = page.split(&start).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs each statement or program, and prints the last result of each on a line.
const RUN_ALL: &str = r#"
import sys, json, duckdb
for query in json.loads(sys.argv[1]):
    if "import " in query:
        exec(query)
        continue
    for statement in query.split(";\n"):
        rows = duckdb.sql(statement) if statement.strip() else rows
    print(json.dumps(rows.fetchall() if rows else [], default=str))
"#;

/// Regression: the queries expected all files of a table in one folder, but `--partition-by` makes several;
/// and pyarrow could not read a folder of recordings without a known date.
#[test]
fn every_query_of_the_guide_runs_on_a_folder_of_hosts_and_dates() {
    let Some(python) = python("duckdb, pyarrow, pandas") else { return };
    let (fleet, truth) = fifty();
    let root = fleet.path("root");
    fleet.tables(&["--root", root.to_str().unwrap()]);
    let queries: Vec<String> = [("tables.md", "sql"), ("fleet.md", "sql"), ("fleet.md", "python")]
        .into_iter()
        .flat_map(|(page, language)| blocks(page, language))
        .filter(|query| !query.contains("spark.") && !query.contains("names.parquet"))
        .collect();
    assert!(queries.len() >= 6, "{queries:?}");
    let ran = python(&["-c", RUN_ALL, &serde_json::to_string(&queries).unwrap()], fleet.folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let shown = ran.text();
    let results: Vec<serde_json::Value> =
        shown.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let all: i64 = truth.values().sum();
    // Functions by event, functions by build, stacks (none), fields of tracepoints (none).
    let periods = |result: &serde_json::Value, at: usize| {
        result.as_array().unwrap().iter().map(|row| row[at].as_i64().unwrap()).sum::<i64>()
    };
    assert_eq!((periods(&results[0], 2), periods(&results[1], 3)), (all * 1000, all * 1000), "{shown}");
    let rows = results[1].as_array().unwrap();
    let found: BTreeMap<_, _> = rows
        .iter()
        .map(|row| {
            let text = |at: usize| row[at].as_str().unwrap().to_owned();
            assert_eq!(row[4], 3, "each build ran on each machine");
            ((text(0), text(2)), row[3].as_i64().unwrap() / 1000)
        })
        .collect();
    assert_eq!(found, truth);
}

#[test]
fn pyarrow_reads_a_folder_where_no_date_is_known() {
    let Some(python) = python("duckdb, pyarrow, pandas") else { return };
    let fleet = Fleet::new(1);
    fleet.record("one.data", 0, "web1", None, [3, 2, 1]);
    fleet.tables(&[]);
    let programs: Vec<_> =
        blocks("fleet.md", "python").into_iter().filter(|block| !block.contains("spark.")).collect();
    assert_eq!(programs.len(), 1);
    let ran = python(&["-c", &programs[0]], fleet.folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("web1") && ran.text().contains("6000"), "{}", ran.text());
}

/// The table was replaced by its names.
#[test]
fn a_table_is_not_overwritten_by_its_own_names() {
    let folder = temp();
    let table = folder.path().join("places.parquet");
    fs::write(&table, "PAR1").unwrap();
    let ran = perfx(args!["symbolize", table, "-o", table, "-f"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("is the input itself"), "{ran:?}");
    assert_eq!(fs::read(&table).unwrap(), b"PAR1");
}

#[test]
fn a_folder_of_tables_without_symbols_is_named_afterwards() {
    let Some(python) = python("duckdb, pyarrow") else { return };
    let (fleet, truth) = fifty();
    fleet.tables(&[]);
    let queries = blocks("fleet.md", "sql");
    let run = |part: &str| {
        let query: Vec<_> = queries.iter().filter(|query| query.contains(part)).collect();
        assert_eq!(query.len(), 1, "{queries:?}");
        let ran = python(&["-c", RUN_ALL, &serde_json::to_string(&query).unwrap()], fleet.folder.path());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str::<serde_json::Value>(ran.text().trim()).unwrap()
    };
    run("TO 'places.parquet'");
    let [places, names, root] = ["places.parquet", "names.parquet", "root"].map(|name| fleet.path(name));
    let ran = perfx(args!["symbolize", "--foreign", places, "--root", root, "-o", names]).done().unwrap();
    assert!(ran.stderr.contains("named 6 of 6 places"), "{}", ran.stderr);
    let rows = run("'names.parquet'");
    let found: BTreeMap<_, _> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |at: usize| row[at].as_str().unwrap().to_owned();
            ((text(0), text(1)), row[2].as_i64().unwrap() / 1000)
        })
        .collect();
    assert_eq!(found, truth);
    // Only one of the builds is found; an existing output stays.
    fs::remove_dir_all(fleet.path("root/srv/0")).unwrap();
    let again = |more: &[&str]| {
        let line = args!["symbolize", "--foreign", places, "--root", root, "-o", names];
        perfx(line.into_iter().chain(more.iter().map(Into::into)))
    };
    assert!(again(&[]).stderr.contains("exists; -f overwrites it"));
    let ran = again(&["-f", "-v"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("named 3 of 6 places") && ran.stderr.contains("/srv/0/burn 0101"),
        "{}",
        ran.stderr
    );
    let columns: Vec<_> = NAMES.columns.iter().map(|column: &Column| column.name).collect();
    let rows = rows_below(fleet.folder.path(), "names.parquet");
    assert!(rows.iter().all(|row| columns.iter().all(|name| row.contains_key(*name))), "{rows:?}");
    let is_null = |row: &&BTreeMap<String, Field>| text(row, "symbol").is_none();
    assert_eq!(rows.iter().filter(is_null).count(), 3);
}

#[test]
fn a_table_without_build_ids_is_refused() {
    let fleet = Fleet::new(1);
    fleet.record("one.data", 0, "web1", None, [1, 1, 1]);
    fleet.tables(&[]);
    let frames = fleet.path("tables/frames");
    let frames = frames.join(files(&frames).pop().unwrap());
    let ran = perfx(args!["symbolize", "--foreign", frames, "-o", fleet.path("names.parquet")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("it has no column build_id"), "{}", ran.stderr);
    let ran = perfx(args!["symbolize", "--foreign", fleet.path("list"), "-o", fleet.path("names.parquet")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!fleet.path("names.parquet").exists());
}

/// Calls `export` of job.py for recordings, and prints its rows and the memory that Python needed.
const JOB: &str = r#"
import sys, json
sys.path.insert(0, sys.argv[1])
import job
perfx, out = sys.argv[2], sys.argv[3]
rows = [job.export(perfx, path, out) for path in sys.argv[4:]]
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps({"rows": rows, "peak": int(peak)}))
"#;

fn job(program: &str, out: &Path, recordings: &[PathBuf]) -> serde_json::Value {
    let mut python = clean("python3");
    python.args(["-c", JOB]).args(args![root().join("docs/fleet"), program, out]).args(recordings);
    let ran = run(python.env("PYTHONDONTWRITEBYTECODE", "1"), Stdin::Null);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn the_job_lists_what_is_broken_and_does_only_what_is_new() {
    if !is_installed("python3", "apt-get install python3") {
        return;
    }
    let fleet = Fleet::new(1);
    let record = |name: &str, samples| fleet.record(name, 0, "web1", None, samples);
    let mut recordings = vec![record("2026-11-23/a.data", [3, 2, 1]), record("b.data", [5, 0, 0])];
    let bytes = fs::read(&recordings[0]).unwrap();
    let broken = fleet.path("recordings/broken.data");
    fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    recordings.push(broken.clone());
    recordings.push(fleet.path("recordings/missing.data"));
    let out = fleet.path("out");
    let program = env!("CARGO_BIN_EXE_perfx");
    let first = job(program, &out, &recordings);
    let done = |value: &serde_json::Value| {
        let rows = value["rows"].as_array().unwrap();
        rows.iter().map(|row| row["sha256"].is_string()).collect::<Vec<_>>()
    };
    assert_eq!(done(&first), [true, true, false, false], "{first}");
    let said = |row: usize| first["rows"][row]["said"].as_str().unwrap();
    assert!(said(2).contains("broken.data") && said(3).contains("No such file"), "{first}");
    // The sums are exact.
    let samples = rows_below(&out.join("tables"), "samples");
    let period: i64 = samples.iter().map(|row| int(row, "period").unwrap()).sum();
    assert_eq!((samples.len(), period), (11, 11_000));
    assert!(out.join("tables/samples/host=web1/date=2026-11-23").is_dir());
    // perfx is run only for recordings that are new or failed.
    let second = job("/nonexistent", &out, &recordings[..2]);
    assert_eq!(first["rows"].as_array().unwrap()[..2], second["rows"].as_array().unwrap()[..]);
    fs::write(&broken, &bytes).unwrap();
    recordings.pop();
    assert_eq!(done(&job(program, &out, &recordings)), [true; 3]);
}

/// Regression: the job held each recording twice in memory.
#[test]
fn the_job_needs_little_memory_for_a_large_recording() {
    if !is_installed("python3", "apt-get install python3") {
        return;
    }
    let folder = temp();
    let program = folder.path().join("perfx");
    let script = "#!/bin/sh\n[ $1 = inject ] && exec head -c 100000000 /dev/zero\nexec cat > /dev/null\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let recording = folder.path().join("large.data");
    fs::write(&recording, "").unwrap();
    let done = job(program.to_str().unwrap(), folder.path(), &[recording]);
    assert!(done["rows"][0]["sha256"].is_string(), "{done}");
    assert!(done["peak"].as_u64().unwrap() < 64 << 10, "{done}");
}

tiers!(planted_regressions_are_found_and_nothing_else);
/// A function of some builds is slower than in the build before, on all hosts or on one.
fn planted_regressions_are_found_and_nothing_else(tier: Tier) {
    let Some(python) = python("duckdb") else { return };
    let (builds, runs, samples) = tier.pick((4, 5, 1000), (12, 6, 5000));
    // (build, function, change in percent, the only host)
    let planted: &[(usize, usize, f64, Option<usize>)] =
        tier.pick(&[(2, 1, 60.0, None)], &[(4, 1, 10.0, None), (8, 1, 30.0, Some(2))]);
    let mut fleet = Fleet::new(builds);
    let mut weights = [[70.0, 20.0, 10.0]; 3];
    for build in 0..usize::from(builds) {
        for &(_, function, percent, only) in planted.iter().filter(|planted| planted.0 == build) {
            for (host, weights) in weights.iter_mut().enumerate() {
                if only.is_none_or(|only| only == host) {
                    weights[function] *= 1.0 + percent / 100.0;
                }
            }
        }
        for (host, weights) in weights.into_iter().enumerate() {
            for run in 0..runs {
                let counts = fleet.sampled(samples, weights);
                let name = format!("{build:02}-{host}-{run}.data");
                let time = MONDAY + build as u64 * 2 * DAY + run * 1_000_000_000;
                fleet.record(&name, build, &format!("web{host}"), Some(time), counts);
            }
        }
    }
    fleet.tables(&[]);
    let root = format!("--option={}", fleet.path("root").display());
    let program = self::root().join("docs/fleet/changes.py");
    let ask = |what: &[&str]| {
        let own =
            [program.to_str().unwrap(), "--perfx", env!("CARGO_BIN_EXE_perfx"), "--option=--root", &root];
        let least = ["--option=--threshold", "--option=0.3", "."];
        let ran = python(&[&own[..], &least, what].concat(), fleet.folder.path());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.text()
    };
    let shown = ask(&["builds", "burn"]);
    let id = |build: usize| format!("{:02x}", build + 1).repeat(20);
    let found: Vec<&str> = shown.lines().filter(|line| line.contains(": larger shares than in ")).collect();
    let expected: Vec<_> = planted
        .iter()
        .map(|&(build, ..)| format!("{}: larger shares than in {}", id(build), id(build - 1)))
        .collect();
    assert_eq!(found, expected, "{shown}");
    assert!(shown.contains(&format!("{} (burn): ", FUNCTIONS[planted[0].1])), "{shown}");
    let last = shown.split(": larger shares than in ").last().unwrap();
    let places: Vec<_> = last.lines().filter_map(|line| line.strip_prefix("  on ")).collect();
    match planted.last().unwrap().3 {
        Some(only) => assert_eq!(places, [format!("web{only}:")], "{shown}"),
        None => assert_eq!(places, ["all hosts:", "web0:", "web1:", "web2:"], "{shown}"),
    }
    if builds == 4 {
        let grown = |from: &str, to: &str| ask(&["grown", from, to]);
        assert_eq!(grown("2026-11-16..2026-11-17", "2026-11-18..2026-11-18"), "");
        let shown = grown("2026-11-16..2026-11-19", "2026-11-20..2026-11-23");
        assert!(shown.starts_with("leaf_mul (burn): ") && shown.lines().count() == 1, "{shown}");
    }
}

#[test]
fn the_days_of_a_lake_are_merged_into_one_file_each_without_a_change_of_rows() {
    let Some(python) = python("pyarrow.parquet") else { return };
    let (fleet, _) = fifty();
    fleet.tables(&[]);
    let out = fleet.path("out");
    fs::create_dir(&out).unwrap();
    fs::rename(fleet.path("tables"), out.join("tables")).unwrap();
    let tables = out.join("tables");
    let rows = |table| {
        let rows = rows_below(&tables, table);
        let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        rows.sort();
        rows
    };
    let names = ["samples", "frames", "recordings"];
    let before = names.map(rows);
    let compact = root().join("docs/fleet/compact.py");
    let compact = compact.to_str().unwrap();
    let merge = |before: &str| {
        let ran = python(&[compact, "--before", before, "out"], fleet.folder.path());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.text()
    };
    // No day is over.
    merge("2026-11-16");
    let days = |table: &str| {
        let folders: BTreeMap<String, usize> = files(&tables)
            .iter()
            .filter(|file| file.starts_with(table))
            .fold(BTreeMap::new(), |mut all, file| {
                *all.entry(file.rsplit_once('/').unwrap().0.to_owned()).or_default() += 1;
                all
            });
        folders
    };
    assert!(days("samples").values().any(|&files| files > 1));
    merge("2027-01-01");
    assert!(days("samples").values().all(|&files| files == 1), "{:?}", days("samples"));
    assert_eq!(names.map(rows), before);
    // A killed run has not removed all parts.
    let day = tables.join(days("samples").into_keys().next().unwrap());
    let whole = files(&day)[0].clone();
    fs::rename(day.join(&whole), day.join(format!("{whole}.new"))).unwrap();
    fs::copy(day.join(format!("{whole}.new")), day.join("part-1.parquet")).unwrap();
    fs::write(
        day.join("_parts"),
        serde_json::json!([whole, ["part-0.parquet", "part-1.parquet"]]).to_string(),
    )
    .unwrap();
    merge("2027-01-01");
    assert_eq!(files(&day), [whole]);
    assert_eq!(names.map(rows), before);
}

#[test]
fn the_examples_of_the_guide_can_be_parsed() {
    let folder = root().join("docs/fleet");
    let names: Vec<String> = files(&folder);
    for name in names.iter().filter(|name| name.ends_with(".sh")) {
        let ran = run(clean("bash").arg("-n").arg(folder.join(name)), Stdin::Null);
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{name}");
    }
    let page = fs::read_to_string(root().join("docs/guide/fleet.md")).unwrap();
    assert!(names.iter().all(|name| page.contains(&format!("docs/fleet/{name}"))), "{names:?}");
    let Some(python) = python("yaml") else { return };
    let check = "import sys, yaml\n\
        for it in yaml.safe_load_all(open(sys.argv[1])): print(it['apiVersion'], it['kind'], it['metadata']['name'])";
    let ran = python(&["-c", check, "kubernetes.yaml"], &folder);
    assert_eq!(ran.text(), "apps/v1 DaemonSet perf-record\nbatch/v1 CronJob perf-tables\n", "{}", ran.stderr);
}
