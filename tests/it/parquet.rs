//! `perfx export parquet`: the tables agree with `perfx stats`, `export csv` and `export folded`, other
//! programs read them, and they appear together or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::{Field, Row};
use perfx_export::parquet::TABLES;
use tempfile::TempDir;

use crate::support::{
    Fixture, Ran, Stdin, Tier, all, clean, each_fixture, one_of, perfx, perfx_command, perfx_with, recorded,
    root, run, same_bytes, skipped, temp, workloads,
};
use crate::{args, support, tiers};

/// The tables of a recording, without this machine's files.
pub(crate) fn export(input: &Path, more: &[&str]) -> (TempDir, Ran) {
    let folder = temp();
    let mut command = perfx_command();
    command
        .args(["export", "parquet", "--foreign", "--dir"])
        .args([&folder.path().join("out"), input])
        .args(more);
    let ran = run(&mut command, Stdin::Null);
    (folder, ran)
}

/// All files below a folder, by path from there.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn rows(folder: &TempDir, table: &str) -> Vec<BTreeMap<String, Field>> {
    rows_below(&folder.path().join("out"), table)
}

/// The rows of a file, or of all files in a folder.
pub(crate) fn rows_below(out: &Path, table: &str) -> Vec<BTreeMap<String, Field>> {
    let mut rows = Vec::new();
    for file in files(out).iter().filter(|file| file.split('/').next() == Some(table)) {
        let reader = SerializedFileReader::new(File::open(out.join(file)).unwrap()).unwrap();
        let row =
            |row: Row| row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect();
        rows.extend(reader.get_row_iter(None).unwrap().map(|found| row(found.unwrap())));
    }
    rows
}

pub(crate) fn int(row: &BTreeMap<String, Field>, column: &str) -> Option<i64> {
    match &row[column] {
        Field::Int(value) => Some((*value).into()),
        Field::Long(value) => Some(*value),
        Field::ULong(value) => Some(*value as i64),
        Field::TimestampMicros(value) => Some(*value),
        Field::Bool(value) => Some((*value).into()),
        Field::Null => None,
        other => panic!("{column}: {other:?}"),
    }
}

pub(crate) fn text(row: &BTreeMap<String, Field>, column: &str) -> Option<String> {
    match &row[column] {
        Field::Str(text) => Some(text.clone()),
        Field::Null => None,
        other => panic!("{column}: {other:?}"),
    }
}

fn list(row: &BTreeMap<String, Field>, column: &str) -> Vec<i64> {
    let Field::ListInternal(list) = &row[column] else { panic!("{column}: {:?}", row[column]) };
    let element = |field: &Field| if let Field::Long(value) = field { *value } else { panic!("{field:?}") };
    list.elements().iter().map(element).collect()
}

/// Rows by a column that identifies them.
pub(crate) fn by<'r>(
    rows: &'r [BTreeMap<String, Field>],
    column: &str,
) -> BTreeMap<i64, &'r BTreeMap<String, Field>> {
    let keyed: BTreeMap<_, _> = rows.iter().map(|row| (int(row, column).unwrap(), row)).collect();
    assert_eq!(keyed.len(), rows.len(), "{column} identifies a row");
    keyed
}

/// As in results.csv.
fn plain(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\x0a")
}

/// The tables that are written without an option.
fn unasked() -> Vec<&'static str> {
    TABLES.iter().map(|table| table.name).filter(|name| !["branches", "spe"].contains(name)).collect()
}

const READ: i64 = 1 << 4;

/// The totals of a recording: samples by event, or samples and periods by place.
type Totals = BTreeMap<(String, String, String), (i64, i64)>;

fn check(fixture: &Fixture, more: &[&str]) -> Result<(), String> {
    let (folder, ran) = export(&fixture.path, more);
    let csv = temp();
    let line = args!["export", "csv", "--foreign", fixture.path, "-o", csv.path().join("csv")];
    let tables = perfx(line.into_iter().chain(more.iter().map(Into::into)));
    if ran.code == Some(1) {
        let left = files(folder.path());
        let same = tables.code == Some(1) || ran.stderr.contains("can't be unwound");
        let same = same && !folder.path().join("out").exists();
        return if same { Ok(()) } else { Err(format!("{left:?} {}", ran.stderr)) };
    }
    let ran = ran.done()?;
    let written = unasked();
    let folders: BTreeSet<String> = files(&folder.path().join("out"))
        .iter()
        .map(|file| file.split('/').next().unwrap().to_owned())
        .collect();
    if folders != written.iter().map(|&name| name.to_owned()).collect() {
        return Err(format!("wrote {folders:?}"));
    }
    let [recordings, events, samples, stacks, frames, dsos] =
        ["recordings", "events", "samples", "stacks", "frames", "dsos"].map(|table| rows(&folder, table));
    // As counted by stats.
    let stats = perfx(args!["stats", "--json", fixture.path]).done()?;
    let stats: serde_json::Value =
        serde_json::from_slice(&stats.stdout).map_err(|error| error.to_string())?;
    let counted: Vec<i64> =
        stats["events"].as_array().unwrap().iter().map(|event| event["samples"].as_i64().unwrap()).collect();
    let unwound = events.iter().any(|event| int(event, "sample_type").unwrap() & 1 << 13 != 0);
    let mut of_event = vec![(0, 0); events.len()];
    for sample in &samples {
        let count = &mut of_event[int(sample, "event").unwrap() as usize];
        count.0 += 1;
        count.1 += int(sample, "period").unwrap();
    }
    // A sample that read counters is one of each event that gained.
    let reads = |event: usize| int(&events[event], "sample_type").unwrap() & READ != 0;
    let differs = |event: &usize| !reads(*event) && of_event[*event].0 != counted[*event];
    if !unwound && (0..counted.len()).any(|event| differs(&event)) {
        return Err(format!("stats counts {counted:?}, the table {of_event:?}"));
    }
    for (event, count) in events.iter().zip(&of_event) {
        assert_eq!(
            (int(event, "samples").unwrap(), int(event, "period_sum").unwrap()),
            *count,
            "{}",
            ran.stderr
        );
    }
    assert_eq!(int(&recordings[0], "samples"), Some(samples.len() as i64));
    if !samples.is_sorted_by_key(|sample| int(sample, "time_ns")) {
        return Err("samples are not sorted by time".into());
    }
    let numbers: BTreeSet<_> = samples.iter().map(|row| (int(row, "sample"), int(row, "event"))).collect();
    assert_eq!(numbers.len(), samples.len(), "sample and event identify a row");
    // The places of the samples.
    let (frames, stacks, dsos) = (by(&frames, "frame"), by(&stacks, "stack"), by(&dsos, "dso"));
    let mut totals = Totals::new();
    for sample in &samples {
        let event = &events[int(sample, "event").unwrap() as usize];
        let frame = frames[&int(sample, "frame").unwrap()];
        if let Some(stack) = int(sample, "stack") {
            let stack = stacks[&stack];
            let frames: Vec<_> = list(stack, "frames").iter().map(|frame| frames[frame]).collect();
            let in_kernel =
                |frame: &&&BTreeMap<String, Field>| text(frame, "mode").unwrap().ends_with("kernel");
            assert_eq!(int(stack, "depth"), Some(frames.len() as i64));
            assert_eq!(int(stack, "kernel_depth"), Some(frames.iter().filter(in_kernel).count() as i64));
        }
        let dso = int(frame, "dso").map(|dso| text(dsos[&dso], "path").unwrap());
        let address = int(frame, "offset").or(int(frame, "ip")).unwrap();
        let symbol = text(frame, "symbol").unwrap_or_else(|| format!("{address:#x}"));
        let name = text(event, "name").unwrap();
        let total =
            totals.entry((name, plain(&dso.unwrap_or("[unknown]".into())), plain(&symbol))).or_default();
        total.0 += 1;
        total.1 += int(sample, "period").unwrap();
    }
    // The addresses of memory without a file are addresses of processes here, and offsets in it there.
    let memory = |path: &str| {
        dsos.values()
            .any(|dso| text(dso, "kind").unwrap() == "memory" && plain(&text(dso, "path").unwrap()) == path)
    };
    let mut results = Totals::new();
    let mut reader = csv::Reader::from_path(csv.path().join("csv/results.csv")).unwrap();
    for row in reader.deserialize() {
        let (event, dso, symbol, samples, period): (String, String, String, i64, i64) = row.unwrap();
        if !memory(&dso) {
            *results.entry((event, dso, symbol)).or_default() = (samples, period);
        }
    }
    totals.retain(|(_, dso, _), _| !memory(dso));
    if totals != results {
        let odd: Vec<_> =
            totals.iter().filter(|(key, total)| results.get(*key) != Some(total)).take(5).collect();
        let missing: Vec<_> =
            results.iter().filter(|(key, total)| totals.get(*key) != Some(total)).take(5).collect();
        return Err(format!("the tables have {odd:?}, results.csv has {missing:?}"));
    }
    Ok(())
}

tiers!(tables_of_every_recording_agree_with_stats_and_results);
fn tables_of_every_recording_agree_with_stats_and_results(tier: Tier) {
    let fixtures = if one_of() == 1 { tier.of(all()) } else { tier.of(recorded()) };
    let root = workloads().map(|root| ["--root", root.to_str().unwrap()]);
    each_fixture(&fixtures, |fixture| match fixture.has_siblings() {
        true => Ok(()),
        false => check(fixture, root.as_ref().map_or(&[], |root| root)),
    });
}

tiers!(stacks_are_those_of_folded_lines);
/// The stacks of the tables, as the numbers of samples by the numbers of frames.
fn stacks_are_those_of_folded_lines(tier: Tier) {
    let Some(files) = workloads().map(|root| root.to_str().unwrap()) else { return };
    each_fixture(&tier.of(recorded()), |fixture| {
        let more = ["--root", files, "--no-inline"];
        let line = args!["export", "folded", "--foreign", "--weight", "samples", fixture.path];
        let folded = perfx(line.into_iter().chain(more.map(Into::into)));
        if folded.code == Some(1) || fixture.has_siblings() {
            return Ok(());
        }
        let (folder, ran) = export(&fixture.path, &more);
        ran.done()?;
        let [events, samples, stacks, frames] =
            ["events", "samples", "stacks", "frames"].map(|table| rows(&folder, table));
        // Only the first event with call chains is folded.
        let chains = |event: i64| int(&events[event as usize], "sample_type").unwrap() & 1 << 5 != 0;
        let sampled = samples.iter().map(|sample| int(sample, "event").unwrap());
        let first = sampled.min_by_key(|&event| (!chains(event), event));
        let Some(first) =
            first.filter(|&event| int(&events[event as usize], "sample_type").unwrap() & READ == 0)
        else {
            return Ok(());
        };
        let (stacks, frames) = (by(&stacks, "stack"), by(&frames, "frame"));
        let mut ours = BTreeMap::<(usize, bool), i64>::new();
        for sample in samples.iter().filter(|sample| int(sample, "event") == Some(first)) {
            let stack = int(sample, "stack").map(|stack| list(stacks[&stack], "frames"));
            let depth = stack.as_ref().map_or(1, Vec::len);
            let leaf = stack.unwrap_or(vec![int(sample, "frame").unwrap()]).first().copied();
            let named = leaf.is_some_and(|leaf| text(frames[&leaf], "symbol").is_some());
            *ours.entry((depth, named)).or_default() += 1;
        }
        let mut theirs = BTreeMap::<(usize, bool), i64>::new();
        for line in folded.text().lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            let frames: Vec<_> = stack.split(';').skip(1).collect();
            let named = frames.last().is_some_and(|leaf| !leaf.starts_with('['));
            *theirs.entry((frames.len(), named)).or_default() += count.parse::<i64>().unwrap();
        }
        if ours == theirs { Ok(()) } else { Err(format!("tables {ours:?}\nfolded {theirs:?}")) }
    });
}

/// All files of two folders are the same.
fn same_tables(one: &TempDir, other: &TempDir) -> Result<(), String> {
    let (names, others) = (files(one.path()), files(other.path()));
    if names != others {
        return Err(format!("{names:?} and {others:?}"));
    }
    let read = |folder: &TempDir, name: &String| fs::read(folder.path().join(name)).unwrap();
    names.iter().try_for_each(|name| same_bytes(name, &read(one, name), &read(other, name)))
}

tiers!(tables_depend_on_neither_threads_nor_the_form_of_the_input);
fn tables_depend_on_neither_threads_nor_the_form_of_the_input(tier: Tier) {
    let folder = temp();
    for name in tier.first(1, &["fp", "fp-defer", "group-read", "forks"]) {
        let name = if *name == "fp-defer" { "fp-defer.p73".to_owned() } else { format!("{name}.p61") };
        let large = folder.path().join("large.data");
        fs::write(
            &large,
            Fixture::new(&format!("recorded/{name}.data")).repeated(tier.pick(5 << 20, 9 << 20)),
        )
        .unwrap();
        let (one, ran) = export(&large, &["-@1"]);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        for threads in tier.first(1, &["-@4", "-@2"]) {
            same_tables(&one, &export(&large, &[threads]).0).unwrap();
        }
        // A second run replaces the tables of the first.
        let again = perfx(args!["export", "parquet", "--foreign", "--dir", one.path().join("out"), large]);
        assert!(matches!(again.code, Some(0 | 3)), "{}", again.stderr);
        same_tables(&one, &export(&large, &[]).0).unwrap();
    }
    // A pipe has no name, but the same id.
    let fixture = Fixture::new("recorded/fp.p61.data");
    let (file, _) = export(&fixture.path, &[]);
    let piped = temp();
    let line = args!["export", "parquet", "--foreign", "--dir", piped.path().join("out"), "-"];
    assert_eq!(perfx_with(Stdin::Pipe(&fixture.bytes()), line).code, Some(0));
    assert_eq!(files(file.path()), files(piped.path()));
    for table in unasked() {
        let (one, mut other) = (rows(&file, table), rows(&piped, table));
        if table == "recordings" {
            assert_eq!(text(&other[0], "path").as_deref(), Some("<stdin>"));
            other[0].insert("path".to_owned(), one[0]["path"].clone());
        }
        assert_eq!(one, other, "{table}");
    }
}

#[test]
fn one_folder_has_the_tables_of_many_recordings_and_a_bad_one_leaves_none() {
    let folder = temp();
    let path = |name: &str| Fixture::new(&format!("recorded/{name}.data")).path;
    let list = folder.path().join("list");
    let names = ["fp.p61", "cut-00050.p61", "forks.p73", "threads.p61"];
    let lines: Vec<_> = names.map(|name| path(name).display().to_string()).into();
    fs::write(&list, lines.join("\n")).unwrap();
    let at = format!("@{}", list.display());
    let out = folder.path().join("out");
    let ran = perfx(args!["export", "parquet", "--foreign", "-o", out, at, "--tables", "samples,recordings"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("1 of 4 recordings failed"), "{}", ran.stderr);
    let found = files(&out);
    assert_eq!(found.iter().filter(|file| file.starts_with("samples/part-")).count(), 3, "{found:?}");
    assert_eq!(found.len(), 6, "{found:?}");
    let recordings = rows(&folder, "recordings");
    let mut paths: Vec<_> = recordings.iter().map(|row| text(row, "path").unwrap()).collect();
    paths.sort();
    let mut expected: Vec<_> = lines.iter().filter(|line| !line.contains("cut-")).cloned().collect();
    expected.sort();
    assert_eq!(paths, expected);
}

#[test]
fn partitions_are_folders_whose_names_lead_nowhere_else() {
    let fixture = Fixture::new("recorded/clock-realtime.p73.data");
    let (folder, ran) =
        export(&fixture.path, &["--partition-by", "host,date,site=../b", "--tables", "events"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let found = files(&folder.path().join("out"));
    let [file] = &found[..] else { panic!("{found:?}") };
    let parts: Vec<_> = file.split('/').collect();
    assert!(parts[1].starts_with("host=") && parts[2].starts_with("date=20"), "{file}");
    assert_eq!(parts[3], "site=%2E.%2Fb");
    for keys in ["place", "pid=1", "Host=1", "=1", "recording=1", "host,host"] {
        let (folder, ran) = export(&fixture.path, &["--partition-by", keys]);
        assert_eq!(ran.code, Some(2), "{keys}: {}", ran.stderr);
        assert!(!folder.path().join("out").exists());
    }
}

#[test]
fn a_selection_keeps_the_numbers_of_samples_and_branches_are_written_on_demand() {
    let fixture = Fixture::new("recorded/fp.p61.data");
    let (all, _) = export(&fixture.path, &[]);
    let (half, ran) = export(&fixture.path, &["--time", "20%-60%"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (all, half) = (rows(&all, "samples"), rows(&half, "samples"));
    assert!(!half.is_empty() && half.len() < all.len());
    let all = by(&all, "sample");
    for sample in &half {
        assert_eq!(all[&int(sample, "sample").unwrap()]["time_ns"], sample["time_ns"]);
    }
    let (none, ran) = export(&fixture.path, &["--pid", "1"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(rows(&none, "samples").len(), 0);
    let (folder, ran) = export(&Fixture::new("crafted/sample-all-le.data").path, &["--branches"]);
    let ran = ran.done().unwrap();
    let [branches, frames, samples] = ["branches", "frames", "samples"].map(|table| rows(&folder, table));
    let (frames, samples) = (by(&frames, "frame"), by(&samples, "sample"));
    assert_eq!(branches.len(), 3, "{}", ran.stderr);
    for branch in &branches {
        assert!(samples.contains_key(&int(branch, "sample").unwrap()));
        assert!(frames.contains_key(&int(branch, "from_frame").unwrap()));
        assert!(frames.contains_key(&int(branch, "to_frame").unwrap()));
    }
}

/// The schema on the page is that of the tables.
#[test]
fn the_page_lists_all_columns() {
    let mut page = String::new();
    for table in TABLES {
        page += &format!("### {}\n\n{}.\n\n| column | type | |\n|---|---|---|\n", table.name, table.about);
        page += "| recording | VARCHAR | the id of the recording |\n";
        for column in table.columns {
            let null = if column.nullable { ", null" } else { "" };
            page += &format!("| {} | {}{null} | {} |\n", column.name, column.kind.name(), column.about);
        }
        page += "\n";
    }
    let path = root().join("docs/guide/tables.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- columns -->\n\n").unwrap();
    let (listed, after) = rest.split_once("<!-- end -->\n").unwrap();
    if listed != page && std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, format!("{before}<!-- columns -->\n\n{page}<!-- end -->\n{after}")).unwrap();
        return;
    }
    assert_eq!(listed, page);
}

/// Reads all tables with pyarrow and DuckDB; DuckDB shows the types on the page.
const READ_ALL: &str = r#"
import sys, json, duckdb, pyarrow.parquet as pq
out, tables = sys.argv[1], json.loads(sys.argv[2])
for table, columns in tables.items():
    pattern = f"{out}/{table}/**/*.parquet"
    shown = {name: type for name, type, *_ in duckdb.sql(f"DESCRIBE SELECT * FROM '{pattern}'").fetchall()}
    assert shown == {**columns, **{k: v for k, v in shown.items() if k == "host"}}, (table, shown, columns)
    rows = duckdb.sql(f"SELECT count(*) FROM '{pattern}'").fetchall()[0][0]
    read = pq.read_table(f"{out}/{table}")
    assert read.num_rows == rows, (table, read.num_rows, rows)
    print(table, rows)
top = f"""SELECT symbol, sum(period) p FROM '{out}/samples/**/*.parquet' JOIN '{out}/frames/**/*.parquet'
    USING (recording, frame) GROUP BY 1 ORDER BY p DESC, symbol"""
print(duckdb.sql(top).fetchall())
"#;

const RUN: &str = "import sys, duckdb; print(duckdb.sql(sys.argv[1]).fetchall())";

/// Python with DuckDB and pyarrow, if there is one.
fn python() -> Option<impl Fn(&str, &[&str]) -> Ran> {
    let python = support::python("duckdb, pyarrow")?;
    Some(move |code: &str, args: &[&str]| python(&[&["-c", code], args].concat(), Path::new("/")))
}

/// The module of the wheel, with the program of these tests.
#[test]
fn the_module_for_python_reads_and_rewrites_recordings() {
    let wheel = root().join(".ci/wheel");
    let python = std::env::var("PERFX_PYTHON").unwrap_or("python3".to_owned());
    let mut command = clean(&python);
    command.arg("-B").arg(wheel.join("test.py"));
    command
        .args(["recorded/default.p73.data", "crafted/attr-stride.data"].map(|name| Fixture::new(name).path));
    command.env("PYTHONPATH", wheel.join("python")).env("PERFX", env!("CARGO_BIN_EXE_perfx"));
    let Ok(ran) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&mut command, Stdin::Null)))
    else {
        return skipped("the module for Python: there is no python3");
    };
    assert_eq!(ran.text(), "the module works\n", "{}", ran.stderr);
}

/// The columns of all tables with the types that DuckDB shows.
fn columns() -> serde_json::Value {
    let mut all = serde_json::Map::new();
    for table in TABLES {
        let mut columns = serde_json::Map::from_iter([("recording".to_owned(), "VARCHAR".into())]);
        columns
            .extend(table.columns.iter().map(|column| (column.name.to_owned(), column.kind.name().into())));
        all.insert(table.name.to_owned(), columns.into());
    }
    all.into()
}

#[test]
fn other_programs_read_the_tables() {
    let Some(python) = python() else { return };
    let Some(files) = workloads().map(|root| root.to_str().unwrap()) else { return };
    let fixture = Fixture::new("recorded/fp.p61.data");
    let (folder, _) =
        export(&fixture.path, &["--root", files, "--branches", "--spe", "--partition-by", "host"]);
    let out = folder.path().join("out");
    let ran = python(READ_ALL, &[out.to_str().unwrap(), &columns().to_string()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let shown = ran.text();
    assert!(shown.contains("samples 33\n") && shown.contains("spe 0\n"), "{shown}");
    // The queries of the page.
    let page = fs::read_to_string(root().join("docs/guide/tables.md")).unwrap();
    let queries: Vec<_> =
        page.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert!(queries.len() >= 3);
    let (folder, _) = export(&fixture.path, &["--root", files]);
    let (switches, _) = export(&Fixture::new("recorded/off-cpu.p61.data").path, &[]);
    for query in queries {
        let (folder, part) = match query.contains("fields[") {
            true => (&switches, "('crew', '1', "),
            false => (&folder, "leaf_xor"),
        };
        let tables = format!("'{}/", folder.path().join("out").display());
        let ran = python(RUN, &[&query.replace("'tables/", &tables)]);
        assert_eq!(ran.code, Some(0), "{query}: {}", ran.stderr);
        assert!(ran.text().contains(part), "{query}: {}", ran.text());
    }
    assert!(shown.contains("('leaf_xor', 3400680)"), "{shown}");
}

#[test]
fn own_fields_of_tracepoints_are_those_that_view_shows() {
    for name in ["off-cpu.p61", "trace.p61", "tracepoint.p73", "pipe-tracepoint.p61", "z-tracepoint.p61"] {
        let path = Fixture::new(&format!("recorded/{name}.data")).path;
        let (folder, _) = export(&path, &[]);
        let own = |row: &BTreeMap<String, Field>| {
            let Field::MapInternal(map) = &row["fields"] else { panic!("{:?}", row["fields"]) };
            let entry = |(key, value): &(Field, Field)| match (key, value) {
                (Field::Str(key), Field::Str(value)) => (key.clone(), value.clone()),
                other => panic!("{other:?}"),
            };
            map.entries().iter().map(entry).collect::<BTreeMap<String, String>>()
        };
        let table: Vec<_> = rows(&folder, "samples").iter().map(own).collect();
        let ran = perfx(args!["view", "-q", "--foreign", "--json", "-F", "trace", path]);
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            serde_json::from_value(line["fields"].clone()).unwrap_or_default()
        };
        let shown: Vec<BTreeMap<String, String>> = ran.text().lines().map(line).collect();
        assert_eq!(table, shown, "{name}");
        assert!(table.iter().any(|own| !own.is_empty()), "{name}");
    }
}

#[test]
fn other_programs_read_records_of_spe() {
    let Some(python) = python() else { return };
    let (folder, _) = export(&Fixture::new("crafted/spe-v2.data").path, &["--branches", "--spe"]);
    let out = folder.path().join("out");
    let ran = python(READ_ALL, &[out.to_str().unwrap(), &columns().to_string()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("spe 240\n"), "{}", ran.text());
    let query = format!(
        "SELECT op, count(*), sum(latency) FROM '{0}/spe/*.parquet' JOIN '{0}/frames/*.parquet' \
         USING (recording, frame) GROUP BY 1 ORDER BY 1 NULLS LAST",
        out.display()
    );
    let ran = python(RUN, &[&query]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut expected = std::collections::BTreeMap::<String, (i64, i64)>::new();
    for row in rows(&folder, "spe") {
        let sums = expected.entry(text(&row, "op").unwrap()).or_default();
        *sums = (sums.0 + 1, sums.1 + int(&row, "latency").unwrap());
    }
    let expected: Vec<_> =
        expected.iter().map(|(op, (count, latency))| format!("('{op}', {count}, {latency})")).collect();
    assert_eq!(ran.text().trim(), format!("[{}]", expected.join(", ")));
}

/// It was replaced, with all that was in it.
#[test]
fn a_folder_in_the_way_of_a_table_stays() {
    let (folder, input) = (temp(), Fixture::new("recorded/plain.p61.data").path);
    let dir = folder.path().join("tables");
    let export = || perfx(args!["export", "parquet", "-q", "--foreign", input, "--dir", dir]);
    export().done().unwrap();
    let table = fs::read_dir(dir.join("samples")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&table).unwrap();
    fs::create_dir(&table).unwrap();
    fs::write(table.join("precious"), "precious").unwrap();
    let ran = export();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("it is not a regular file"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(table.join("precious")).unwrap(), "precious");
}

#[test]
fn a_recording_or_a_device_is_not_a_list_of_recordings() {
    for list in
        [format!("@{}", Fixture::new("recorded/plain.p61.data").path.display()), "@/dev/zero".to_owned()]
    {
        let ran = perfx(args!["export", "folded", list]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("it is not a list of inputs"), "{}", ran.stderr);
    }
}

/// Regression: in a query that joined `samples` with `events` or `threads`, `period` was ambiguous.
#[test]
fn only_samples_have_a_period() {
    let with_period =
        TABLES.iter().filter(|table| table.columns.iter().any(|column| column.name == "period"));
    assert_eq!(with_period.map(|table| table.name).collect::<Vec<_>>(), ["samples"]);
}

/// Regression: it found nothing in a folder of recordings without a folder for each date, and ended with exit
/// code 0.
#[test]
fn the_job_for_spark_says_if_it_finds_no_recording() {
    if !crate::support::is_installed("python3", "apt-get install python3") {
        return;
    }
    let (empty, out) = (temp(), temp());
    let mut job = crate::support::clean("python3");
    let ran = run(job.arg(root().join("docs/fleet/job.py")).args([empty.path(), out.path()]), Stdin::Null);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("no recordings: neither *.data nor */*.data is there"), "{}", ran.stderr);
}
