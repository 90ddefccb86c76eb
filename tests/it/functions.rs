//! `perfx list functions` and `perfx list stacks`: their figures are those of `perf report`, and those of a
//! function's callers and callees add up to its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value as Json;

use crate::stats::conforms;
use crate::support::{
    Fixture, Perf, Stdin, Tier, all, clean, each_fixture, export, perf, perfx, perfx_command, recorded, root,
    run, sound, temp, workloads,
};
use crate::{args, tiers};

fn listed(what: &str, input: &Path, more: &[&str]) -> Result<Json, String> {
    let mut line = args!["list", what, "-q", "--json", "--foreign", input].to_vec();
    line.extend(more.iter().map(std::ffi::OsString::from));
    let ran = perfx(line);
    let document: Json = serde_json::from_slice(&ran.stdout).map_err(|e| format!("{e}: {}", ran.stderr))?;
    conforms("list-functions", &document)?;
    Ok(document)
}

fn rows(document: &Json) -> &[Json] {
    document["rows"].as_array().unwrap()
}

fn number(value: &Json) -> u64 {
    value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

/// A DSO in the form common to both: memory without a file is named after its JIT map, in two ways. perf has one
/// name for two builds of a program.
fn short(dso: &str) -> String {
    let last = dso.rsplit('/').next().unwrap();
    let build = last.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let is_id = |id: &str| id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let last = build.filter(|(_, id)| is_id(id)).map_or(last, |(name, _)| name);
    let is_map = dso.starts_with("[JIT] tid") || last.starts_with("perf-") && last.ends_with(".map");
    if is_map { "anon".to_owned() } else { last.to_owned() }
}

/// Rows by DSO and symbol. perf has one for each address without a symbol, perfx one for all of them in a
/// DSO.
type Rows = BTreeMap<(String, String), (u64, u64)>;

fn add(rows: &mut Rows, dso: &str, symbol: &str, (samples, period): (u64, u64)) {
    let dso = short(dso);
    let is_address = symbol.trim_start_matches("0x").len() == 16
        && symbol.trim_start_matches("0x").bytes().all(|digit| digit.is_ascii_hexdigit());
    let symbol = if is_address || symbol.starts_with('[') { "" } else { symbol };
    let sum = rows.entry((dso, symbol.to_owned())).or_default();
    *sum = (sum.0 + samples, sum.1 + period);
}

/// The rows of `perf report`, by event.
fn of_perf(perf: &Perf, fixture: &Fixture, root: &Path) -> BTreeMap<String, Rows> {
    let line = "report --stdio --no-children --no-group -g none --no-branch-stack -F sample,period,dso,sym -t | --symfs";
    let mut args: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
    args.extend(args![root, "--kallsyms", "/dev/null", "-i", fixture.path]);
    let mut found = BTreeMap::<String, Rows>::new();
    let mut event = String::new();
    for line in perf.run(Stdin::Null, args).text().lines() {
        if let Some((_, name)) = line.split_once(" of event").and_then(|(_, rest)| rest.split_once(" '")) {
            event = name.trim_end_matches('\'').to_owned();
        }
        let cells: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
        let [samples, period, dso, symbol] = cells[..] else { continue };
        let (Ok(samples), Ok(period)) = (samples.parse(), period.parse()) else { continue };
        let symbol = symbol.split_once("] ").map_or(symbol, |(_, symbol)| symbol);
        add(found.entry(event.clone()).or_default(), dso, symbol, (samples, period));
    }
    found
}

/// The samples of each group, which are those of the rows with its functions.
fn samples_by_group(what: &str, by: &str, recording: &str) -> BTreeMap<String, u64> {
    let document =
        listed(what, &root().join("tests/data/recorded").join(recording), &["--by", by, "--head", "999"]);
    let mut groups = BTreeMap::new();
    for row in rows(&document.unwrap()) {
        *groups.entry(row["group"].as_str().unwrap().to_owned()).or_default() += number(&row["samples"]);
    }
    groups
}

#[test]
fn functions_are_listed_by_process_with_the_name_of_its_main_thread() {
    for what in ["functions", "stacks"] {
        let groups = |by, recording| samples_by_group(what, by, recording);
        let threads = groups("tid", "threads-named.p73.data");
        assert!(threads.keys().any(|thread| thread.starts_with("hand-0-1665/")), "{threads:?}");
        let process = [("crew-1665".to_owned(), threads.values().sum())].into();
        assert_eq!(groups("pid", "threads-named.p73.data"), process);
        let processes = groups("pid", "forks.p73.data");
        assert_eq!((processes.len(), processes["forks-1519"], processes["child-13-1534"]), (11, 6, 1));
        assert_eq!(groups("cgroup", "cgroups.p73.data"), [("/".to_owned(), 28)].into());
    }
    let input = root().join("tests/data/recorded/threads-named.p73.data");
    let pid = |format| export(format, &[&input], &["--by", "pid", "-q"]).text();
    assert!(pid("folded").lines().all(|line| line.starts_with("crew-1665;")));
    assert!(pid("svg").contains("<title>crew-1665 (100.00%)</title>"));
}

#[test]
fn a_recording_without_cgroups_is_not_listed_by_cgroup_in_silence() {
    let input = root().join("tests/data/recorded/fp.p61.data");
    for (line, why) in [
        (
            args!["list", "functions", "--by", "container", "--foreign", &input],
            "the recording has no cgroups",
        ),
        (args!["export", "folded", "--by", "cgroup", "--foreign", &input], "the recording has no cgroups"),
        (
            args!["list", "stacks", "--by", "sym", "--foreign", &input],
            "--by one of comm, pid, tid, cpu, cgroup, container",
        ),
    ] {
        let ran = perfx(line);
        assert!(ran.stderr.contains(why) && ran.code != Some(0), "{}", ran.stderr);
    }
}

tiers!(functions_are_those_of_perf_report);
fn functions_are_those_of_perf_report(tier: Tier) {
    let Some(root) = workloads() else { return };
    for (name, version) in [("perf", "p61"), ("perf-new", "p73")] {
        let Some(perf) = perf(name) else { continue };
        let mut fixtures = tier.of(recorded());
        // A line feed in a name breaks the lines of perf report.
        fixtures.retain(|fixture| {
            fixture.recorded_by() == Some(version) && !fixture.name.contains("name-newline")
        });
        let compared = AtomicUsize::new(0);
        each_fixture(&fixtures, |fixture| {
            // perf shows nothing for a truncated file, or for an event without samples.
            for (event, theirs) in of_perf(&perf, fixture, root) {
                let more = ["--root", root.to_str().unwrap(), "--event", &event];
                let Ok(document) = listed("functions", &fixture.path, &more) else { continue };
                let mut ours = Rows::default();
                for row in rows(&document) {
                    let weight = (number(&row["samples"]), number(&row["period"]));
                    let dso = row["dso"].as_str().unwrap_or("[unknown]");
                    if weight.0 > 0 {
                        add(&mut ours, dso, row["function"].as_str().unwrap(), weight);
                    }
                }
                if ours != theirs {
                    return Err(format!("{event}\n  perfx {ours:?}\n  perf  {theirs:?}"));
                }
                compared.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        assert!(compared.into_inner() > tier.pick(4, 60), "{name} was asked for too few events");
    }
}

/// Regression: for samples with the counters of a group, `--event` found nothing for a member, and all events
/// of the group for the leader.
#[test]
fn members_of_a_group_are_selected_by_their_names() {
    for name in ["group-read.p510", "group-read.p61", "group-read.p612", "group-read.p73", "pipe-group.p61"] {
        let path = Fixture::new(&format!("recorded/{name}.data")).path;
        let all = perfx(args!["view", "--foreign", path]).text();
        let events = perfx(args!["list", "events", "-q", "--json", path]).text();
        let events: Json = serde_json::from_str(&events).unwrap();
        assert!(rows(&events).len() > 1);
        for row in rows(&events) {
            let event = row["name"].as_str().unwrap();
            let figures = (number(&row["samples"]), number(&row["period"]));
            assert!(figures.0 > 0, "{name}: {event}");
            let functions = listed("functions", &path, &["--event", event]).unwrap();
            let counted = &functions["counted"];
            assert_eq!(counted["event"], event, "{name}");
            assert_eq!((number(&counted["samples"]), number(&counted["period"])), figures, "{name}: {event}");
            let stacks = listed("stacks", &path, &["--event", event]).unwrap();
            assert_eq!(stacks["counted"], *counted, "{name}: {event}");
            let is_of = |line: &&str| line.contains(&format!(" {event}:"));
            let expected: Vec<&str> = all.lines().filter(is_of).collect();
            let viewed = perfx(args!["view", "--foreign", "--event", event, path]).text();
            assert_eq!(viewed.lines().collect::<Vec<_>>(), expected, "{name}: {event}");
            assert_eq!(expected.len() as u64, figures.0);
            let folded = perfx(args!["export", "folded", "-q", "--foreign", "--event", event, path]).text();
            let weight = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
            assert_eq!(folded.lines().map(weight).sum::<u64>(), figures.1, "{name}: {event}");
            let folder = temp();
            let tables = folder.path().join("tables");
            perfx(args!["export", "csv", "-q", "--foreign", "--event", event, path, "--dir", tables]).text();
            let results = fs::read_to_string(tables.join("results.csv")).unwrap();
            let results: Vec<Vec<&str>> =
                results.lines().skip(1).map(|line| line.split(',').collect()).collect();
            assert!(results.iter().all(|cells| cells[0] == event), "{name}: {results:?}");
            let periods = results.iter().map(|cells| cells.last().unwrap().parse::<u64>().unwrap());
            assert_eq!(periods.sum::<u64>(), figures.1, "{name}: {event}");
            let other = perfx(args!["list", "events", "-q", "--json", "--exclude-event", event, path]).text();
            let other: Json = serde_json::from_str(&other).unwrap();
            for (one, without) in rows(&events).iter().zip(rows(&other)) {
                let expected = if one == row { 0 } else { number(&one["samples"]) };
                assert_eq!(number(&without["samples"]), expected, "{name}: --exclude-event {event}");
            }
        }
    }
}

#[test]
fn totals_are_those_of_perf_report_children() {
    let Some(root) = workloads() else { return };
    let of_61 = ["fp", "fp-deep", "callgraph-user"].map(|name| (name, "p61"));
    let of_73 = ["fp", "fp-defer"].map(|name| (name, "p73"));
    for (name, version) in of_61.into_iter().chain(of_73) {
        let (name, reader) =
            (format!("{name}.{version}"), if version == "p61" { "perf" } else { "perf-new" });
        let path = Fixture::new(&format!("recorded/{name}.data")).path;
        let document = listed("functions", &path, &["--root", root.to_str().unwrap(), "--children"]).unwrap();
        if let Some(perf) = perf(reader) {
            let line = "report --stdio --children -g none -F overhead_children,overhead,dso,sym -t | --symfs";
            let mut args: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
            args.extend(args![root, "--kallsyms", "/dev/null", "-i", path]);
            let mut theirs = BTreeMap::new();
            for line in perf.run(Stdin::Null, args).text().lines() {
                let cells: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
                let [total, own, dso, symbol] = cells[..] else { continue };
                let symbol = symbol.split_once("] ").map_or(symbol, |(_, symbol)| symbol);
                theirs.insert((short(dso), symbol.to_owned()), (total.to_owned(), own.to_owned()));
            }
            let with_symbol = |row: &&Json| !row["function"].as_str().unwrap().starts_with('[');
            let mut compared = 0;
            for row in rows(&document).iter().filter(with_symbol) {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                let percent = |key: &str| format!("{:.2}%", row[key].as_f64().unwrap());
                let ours = (percent("total_percent"), percent("self_percent"));
                let key = (short(&text("dso")), text("function"));
                assert_eq!(theirs.get(&key), Some(&ours), "{name}, {}: {key:?}", perf.name);
                compared += 1;
            }
            assert!(compared > 0 && !theirs.is_empty(), "{name}");
        }
    }
}

tiers!(lists_of_every_recording_add_up);
fn lists_of_every_recording_add_up(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        let Ok(functions) = listed("functions", &fixture.path, &[]) else { return Ok(()) };
        let stacks = listed("stacks", &fixture.path, &["--head", "1000000"])?;
        let sum = |document: &Json| -> u64 { rows(document).iter().map(|row| number(&row["samples"])).sum() };
        let all = number(&functions["counted"]["samples"]);
        if sum(&functions) != sum(&stacks)
            || sum(&stacks) > all
            || number(&stacks["counted"]["samples"]) != all
        {
            return Err(format!("{} in functions, {} in stacks, {all}", sum(&functions), sum(&stacks)));
        }
        for row in rows(&functions) {
            if number(&row["samples"]) > number(&row["total_samples"]) {
                return Err(format!("more samples in a function than in it and below: {row}"));
            }
        }
        Ok(())
    });
}

#[test]
fn trees_of_calls_add_up() {
    let root = root().join("tests/data/unstripped");
    let path = Fixture::new("recorded/fp.p61.data").path;
    let more = ["--root", root.to_str().unwrap()];
    let with = |extra: &[&str]| listed("functions", &path, &[&more[..], extra].concat()).unwrap();
    let functions = with(&[]);
    let total = |name: &str| {
        let row = rows(&functions).iter().find(|row| row["function"] == name).unwrap();
        number(&row["total_samples"])
    };
    for side in ["--callers", "--callees"] {
        for name in ["main", "down", "leaf_xor", "leaf_mul", "work_one"] {
            let tree = with(&[side, name, "--depth", "1", "--percent-limit", "0"]);
            let (first, calls) = rows(&tree).split_first().unwrap();
            assert_eq!((&first["depth"], &first["function"]), (&0.into(), &name.into()));
            assert_eq!(number(&first["samples"]), total(name), "{side} {name}");
            assert!(calls.iter().all(|row| row["depth"] == 1));
            let sum: u64 = calls.iter().map(|row| number(&row["samples"])).sum();
            match side {
                // Every stack has an outermost function, which is not one of these.
                "--callers" => assert_eq!(sum, total(name), "{name}"),
                _ => assert!(sum <= total(name), "{name}"),
            }
        }
    }
    // Both leaves in one tree each, and a function that calls itself once.
    let leaves = with(&["--callers", "leaf_.*", "--depth", "0"]);
    let names: Vec<&str> = rows(&leaves).iter().map(|row| row["function"].as_str().unwrap()).collect();
    assert_eq!(names, ["leaf_xor", "leaf_mul"]);
    assert_eq!(number(&rows(&with(&["--callees", "down", "--depth", "0"]))[0]["samples"]), total("down"));
    // A part that only one name contains.
    assert_eq!(with(&["--callees", "leaf_x"]), with(&["--callees", "leaf_xor"]));
    let ran = perfx(args!["list", "functions", path, "--callers", "nothing"]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(3), 0), "{}", ran.stderr);
    let said = "no function has the name `nothing`; similar names: `";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let several =
        perfx(args!["list", "functions", path, "--foreign", "--root", root, "--callers", "leaf"]).stderr;
    let said = "several functions contain `leaf`, so give more of the name: `leaf_mul`, `leaf_xor`";
    assert!(several.contains(said), "{several}");
    let hidden = args!["--callers", "leaf_mul", "--percent-limit", "99", "--foreign", "--root", root];
    let ran = perfx([&args!["list", "functions", path][..], &hidden].concat());
    assert_eq!((ran.code, ran.stdout.len()), (Some(3), 0), "{}", ran.stderr);
    let said = "% of the samples, and rows below 99% are left out: --percent-limit 0 shows them";
    assert!(ran.stderr.contains("warning: `leaf_mul` has ") && ran.stderr.contains(said), "{}", ran.stderr);
}

#[test]
fn several_recordings_add_up_and_selections_apply() {
    let path = |name: &str| Fixture::new(&format!("recorded/{name}.data")).path;
    let (one, two) = (path("fp.p61"), path("fp.p73"));
    let both = listed("functions", &one, &[two.to_str().unwrap()]).unwrap();
    let sum = [&one, &two].map(|path| number(&listed("functions", path, &[]).unwrap()["counted"]["samples"]));
    assert_eq!(number(&both["counted"]["samples"]), sum[0] + sum[1]);
    let faults = listed("functions", &path("several.p61"), &["--event", "page-faults"]).unwrap();
    assert_eq!(
        (&faults["counted"]["event"], number(&faults["counted"]["samples"])),
        (&"page-faults".into(), 10)
    );
    let events = perfx(args!["list", "events", "-q", path("several.p61"), "--event", "page-faults"]).text();
    assert!(events.contains("cpu-clock          0 ") && events.contains("page-faults       10 "), "{events}");
}

#[test]
fn options_that_a_list_does_not_have_are_refused() {
    let path = Fixture::new("recorded/fp.p61.data").path;
    for (line, said) in [
        ("events --head 3", "--head is for functions, stacks, lines, calls and fields"),
        ("dsos --inline", "--inline is for functions and stacks"),
        ("syscalls --insn", "--insn is for lines"),
        ("stacks --callers main", "--callers is for functions"),
        ("functions --depth 3", "--depth is for --callers and --callees"),
        ("threads --foreign", "options that search for symbols"),
        ("threads again.data", "processes, threads, namespaces and mappings are those of one recording"),
    ] {
        let mut words = args!["list"].to_vec();
        words.extend(line.split(' ').map(std::ffi::OsString::from));
        words.push(path.clone().into());
        let ran = perfx(words);
        assert_eq!((ran.code, ran.stdout.len()), (Some(2), 0), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{line}: {}", ran.stderr);
    }
}

tiers!(a_recording_in_place_of_a_command_is_shown_on_one_screen);
fn a_recording_in_place_of_a_command_is_shown_on_one_screen(tier: Tier) {
    let folder = temp();
    let path = Fixture::new("recorded/fp.p61.data").path;
    let root = root().join("tests/data/unstripped");
    let options = args!["--foreign", "--root", root];
    let ran = perfx([&args![path][..], &options].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let shown = ran.text();
    for part in ["command ", "perf record", "cpu-clock", "leaf_xor", "lost ", "perfx export html "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.lines().count() <= 24, "{shown}");
    assert_eq!(perfx([&args!["overview", path][..], &options].concat()).text(), shown);
    // The commands that it prints work.
    let line = shown.lines().find(|line| line.starts_with("perfx list functions ")).unwrap();
    let line = line.replace("FUNCTION", "leaf_xor").replacen("perfx", "\"$0\"", 1) + " \"$@\"";
    let mut shell = clean("sh");
    shell.args(["-c", &line]).arg(perfx_command().get_program()).args(options);
    assert!(run(&mut shell, Stdin::Null).text().contains("leaf_xor"), "{line}");
    // The name of a command wins, and the typo of a command is called that.
    fs::copy(&path, folder.path().join("list")).unwrap();
    let in_folder = |name: &str| run(perfx_command().arg(name).current_dir(folder.path()), Stdin::Null);
    assert!(in_folder("list").stderr.contains("<WHAT>"), "{}", in_folder("list").stderr);
    assert!(in_folder("./list").text().contains("cpu-clock"));
    assert!(in_folder("lits").stderr.contains("a similar subcommand exists: 'list'"));
    // Events without samples are shown, too.
    each_fixture(&tier.of(all()), |fixture| {
        let ran = perfx(args![fixture.path, "--foreign"]);
        match ran.code {
            Some(0 | 3) if ran.text().contains("lost ") => Ok(()),
            Some(1) if ran.stdout.is_empty() && ran.stderr.starts_with("perfx: ") => Ok(()),
            code => Err(format!("{code:?}: {}", ran.stderr)),
        }
    });
}
