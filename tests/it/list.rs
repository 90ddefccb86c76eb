//! `perfx list`: its counts are those of the tables and of stats, for every recording and any number of
//! threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value as Json;

use crate::snapshots::same;
use crate::stats::conforms;
use crate::support::{Fixture, Stdin, Tier, each_fixture, perfs, perfx, recorded, sound, temp};
use crate::{args, tiers};

const LISTS: [&str; 8] =
    ["events", "dsos", "build-ids", "processes", "threads", "cgroups", "namespaces", "mappings"];

fn rows(list: &str, fixture: &Fixture) -> Result<Option<Vec<Json>>, String> {
    rows_with(list, fixture, &[])
}

fn rows_with(list: &str, fixture: &Fixture, options: &[&str]) -> Result<Option<Vec<Json>>, String> {
    let mut line = args!["list", list, "-q", "--json", fixture.path].to_vec();
    line.extend(options.iter().map(Into::into));
    let ran = perfx(line);
    if ran.code == Some(1) && ran.stdout.is_empty() && ran.stderr.starts_with("perfx: ") {
        return Ok(None);
    }
    let document: Json = serde_json::from_slice(&ran.stdout).map_err(|e| format!("{e}: {}", ran.stderr))?;
    conforms("list", &document)?;
    Ok(document["rows"].as_array().cloned())
}

fn samples(rows: &[Json]) -> u64 {
    rows.iter().map(|row| row["samples"].as_u64().unwrap()).sum()
}

tiers!(the_lists_of_every_recording_agree_with_the_tables);
fn the_lists_of_every_recording_agree_with_the_tables(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        let folder = temp();
        let tables = perfx(args!["export", "csv", "-q", "--foreign", "--dir", folder.path(), fixture.path]);
        let mut lists = BTreeMap::new();
        for list in LISTS {
            // The tables are of all events; none can be selected if records of different events look alike.
            let of_all = match rows_with(list, fixture, &["--event", ".*"]) {
                Err(refusal) if refusal.contains("don't add up") => return Ok(()),
                of_all => of_all?,
            };
            let Some(rows) = of_all.map_or_else(|| rows_with(list, fixture, &[]), |rows| Ok(Some(rows)))?
            else {
                return if tables.code == Some(1) { Ok(()) } else { Err(format!("{list} failed")) };
            };
            lists.insert(list, rows);
        }
        let read = |name: &str| {
            let mut reader = csv::Reader::from_path(folder.path().join(name)).unwrap();
            reader.deserialize().map(|row| row.unwrap()).collect::<Vec<BTreeMap<String, String>>>()
        };
        let (results, processes) = (read("results.csv"), read("processes.csv"));
        let sum = |rows: &[BTreeMap<String, String>],
                   column: &str,
                   hit: &dyn Fn(&BTreeMap<String, String>) -> bool| {
            rows.iter().filter(|row| hit(row)).map(|row| row[column].parse::<u64>().unwrap()).sum::<u64>()
        };
        let counted = sum(&results, "samples", &|_| true);
        let hit = sum(&results, "samples", &|row| row["dso"] != "[unknown]");
        let named = sum(&processes, "samples", &|row| !row["pid"].is_empty());
        for (list, expected) in
            [("events", counted), ("dsos", hit), ("mappings", hit), ("processes", named), ("threads", named)]
        {
            if samples(&lists[list]) != expected {
                return Err(format!("{} samples in {list}, {expected} in the tables", samples(&lists[list])));
            }
        }
        let mapped: u64 = lists["processes"].iter().map(|row| row["mappings"].as_u64().unwrap()).sum();
        let kernel = lists["mappings"].iter().filter(|row| row["pid"] == -1).count();
        if mapped as usize + kernel < lists["mappings"].len() {
            return Err(format!(
                "{mapped} mappings of processes and {kernel} of {}",
                lists["mappings"].len()
            ));
        }
        Ok(())
    });
}

tiers!(build_ids_are_those_of_perf_buildid_list);
/// perf 6.1 also lists DSOs without a build-id, and pads short ones.
fn build_ids_are_those_of_perf_buildid_list(tier: Tier) {
    for perf in perfs(&["perf", "perf-new"]) {
        each_fixture(&tier.of(recorded()), |fixture| {
            // A line feed in a name breaks perf's lines; 7.3 reads build-ids that a recording lacks from
            // files.
            let other = ["newline", "z-straddle"].iter().any(|part| fixture.name.contains(part));
            if other || !perf.can_read(&fixture.path) {
                return Ok(());
            }
            let theirs = perf.run(Stdin::Null, args!["buildid-list", "-f", "-i", fixture.path]).text();
            let Some(ours) = rows("build-ids", fixture)? else { return Ok(()) };
            let ours: BTreeSet<String> = ours
                .iter()
                .filter_map(|row| Some(format!("{} {}", row["build_id"].as_str()?, row["name"].as_str()?)))
                .collect();
            let entry = |line: &str| {
                let (id, name) = line.split_once(' ')?;
                (!id.is_empty()).then(|| format!("{id} {}", name.trim()))
            };
            let missing: Vec<String> =
                theirs.lines().filter_map(entry).filter(|line| !ours.contains(line)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{}: not listed: {missing:?}", perf.name)) }
        });
    }
}

tiers!(lists_do_not_depend_on_form_or_threads);
fn lists_do_not_depend_on_form_or_threads(tier: Tier) {
    let folder = temp();
    for name in
        tier.first(1, &["recorded/fp.p61.data", "recorded/group-read.p61.data", "recorded/forks.p73.data"])
    {
        let large = folder.path().join("large.data");
        fs::write(&large, Fixture::new(name).repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
        let pipe = folder.path().join("pipe.data");
        perfx(args!["copy", "-f", Fixture::new(name).path, "--to", "pipe", "-o", pipe]).done().unwrap();
        for list in LISTS.into_iter().chain(["functions", "stacks"]) {
            let one = perfx(args!["list", list, "-q", "-@1", large]).text();
            assert!(perfx(args!["list", list, "-q", "-@4", large]).text() == one, "{list} of {name}");
            let file = perfx(args!["list", list, "-q", Fixture::new(name).path]).text();
            assert_eq!(perfx(args!["list", list, "-q", pipe]).text(), file, "{list} of {name} as a pipe");
        }
    }
}

#[test]
fn lists_as_text() {
    let say = |list: &str, name: &str| {
        let foreign = args!["--foreign"].into_iter().filter(|_| list == "dsos");
        let ran = perfx(args!["list", list, Fixture::new(name).path].into_iter().chain(foreign));
        format!("$ perfx list {list} {name}\n{}{}", ran.text(), ran.stderr)
    };
    let mut text: String = LISTS.iter().map(|list| say(list, "recorded/forks.p73.data") + "\n").collect();
    text += &say("cgroups", "recorded/cgroups.p61.data");
    text += &("\n".to_owned() + &say("namespaces", "recorded/namespaces.p61.data"));
    same("list", "text", &text);
}

#[test]
fn the_lists_of_several_recordings_add_up() {
    let inputs = ["forks.p61", "several.p61", "cgroups.p61", "forks.p61"]
        .map(|name| Fixture::new(&format!("recorded/{name}.data")));
    let number = |value: &Json| value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    for list in LISTS {
        let mut line = args!["list", list, "-q", "--json"].to_vec();
        line.extend(inputs.iter().map(|input| input.path.clone().into_os_string()));
        let ran = perfx(line);
        if ["processes", "threads", "namespaces", "mappings"].contains(&list) {
            assert_eq!(ran.code, Some(2), "{list}");
            continue;
        }
        let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
        conforms("list", &document).unwrap();
        let key =
            |row: &Json| format!("{} {} {} {}", row["name"], row["build_id"], row["guest"], row["path"]);
        let sums = |rows: &[Json]| {
            let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for row in rows {
                let sum = sums.entry(key(row)).or_default();
                *sum = (sum.0 + number(&row["samples"]), sum.1 + number(&row["period"]));
            }
            sums
        };
        let found = document["rows"].as_array().unwrap();
        let each: Vec<Json> = inputs.iter().flat_map(|input| rows(list, input).unwrap().unwrap()).collect();
        assert_eq!(sums(found), sums(&each), "{list}");
        assert_eq!(found.len(), sums(found).len(), "{list}: a row stands twice");
    }
}

/// It was listed as the source of all names.
#[test]
fn an_empty_perf_map_is_no_source_of_names() {
    let folder = temp();
    fs::create_dir(folder.path().join("tmp")).unwrap();
    fs::write(folder.path().join("tmp/perf-24758.map"), "").unwrap();
    let recording = Fixture::new("jit/node.data").path;
    let ran = perfx(args!["list", "dsos", "--foreign", "--root", folder.path(), recording]);
    assert!(ran.stderr.contains("tmp/perf-24758.map has no functions; what helps: "), "{}", ran.stderr);
}
