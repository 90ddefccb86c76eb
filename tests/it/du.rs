//! `perfx du` accounts for every byte: the parts of every recording add up to its size.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::snapshots::{Place, same};
use crate::stats::{conforms, json_of};
use crate::support::{Fixture, Tier, each_fixture, perfx, sound};
use crate::{args, tiers};

fn size(path: &Path) -> u64 {
    if !path.is_dir() {
        return path.symlink_metadata().unwrap().len();
    }
    fs::read_dir(path).unwrap().map(|entry| size(&entry.unwrap().path())).sum()
}

fn sum(list: &Json, field: &str) -> u64 {
    list.as_array().unwrap().iter().map(|item| item[field].as_u64().unwrap()).sum()
}

/// The bytes of a part, 0 if there is none.
fn part(du: &Json, name: &str) -> u64 {
    let parts = du["parts"].as_array().unwrap();
    parts.iter().find(|part| part["part"] == name).map_or(0, |part| part["bytes"].as_u64().unwrap())
}

tiers!(the_parts_add_up_to_the_file);
fn the_parts_add_up_to_the_file(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        let Some(du) = json_of("du", fixture)? else { return Ok(()) };
        conforms("du", &du)?;
        let total = sum(&du["parts"], "bytes");
        if total != size(&fixture.path) || du["bytes"] != total {
            return Err(format!("{total} of {} bytes: {}", size(&fixture.path), du["parts"]));
        }
        let same = |what: &str, one: u64, other: u64| {
            if one == other { Ok(()) } else { Err(format!("{what}: {one} is not {other}")) }
        };
        same("records", sum(&du["stored"], "bytes"), part(&du, "records"))?;
        same("holes", sum(&du["holes"], "bytes"), part(&du, "holes"))?;
        if fixture.form != crate::support::Form::Pipe {
            same("features", sum(&du["features"], "bytes"), part(&du, "features"))?;
        }
        let opened: u64 = [&du["stored"], &du["expanded"]]
            .into_iter()
            .flat_map(|kinds| kinds.as_array().unwrap())
            .filter(|kind| !kind["kind"].as_str().unwrap().starts_with("COMPRESSED"))
            .map(|kind| kind["bytes"].as_u64().unwrap())
            .sum();
        same("processes", sum(&du["processes"], "bytes"), opened)
    });
}

tiers!(it_agrees_with_stats_and_with_any_number_of_threads);
fn it_agrees_with_stats_and_with_any_number_of_threads(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        let (Some(du), Some(stats)) = (json_of("du", fixture)?, json_of("stats", fixture)?) else {
            return Ok(());
        };
        let records = sum(&du["stored"], "records") + sum(&du["expanded"], "records");
        let events = |document: &Json| -> Vec<Json> {
            let fields = ["name", "samples", "bytes"];
            let events = document["events"].as_array().unwrap().iter();
            events.map(|event| fields.iter().map(|field| event[field].clone()).collect()).collect()
        };
        if stats["records"] != records || events(&du) != events(&stats) {
            return Err(format!("{du}\n{stats}"));
        }
        let alone = perfx(args!["du", "-q", "--format", "ndjson", "-@1", fixture.path]);
        let many = perfx(args!["du", "-q", "--format", "ndjson", "-@4", fixture.path]);
        if alone.stdout == many.stdout { Ok(()) } else { Err("threads make a difference".to_owned()) }
    });
}

#[test]
fn what_is_printed() {
    let place = Place::new(&[
        ("perf.data", "recorded/forkexec.p73.data"),
        ("z.data", "recorded/threads-z.p73.data"),
        ("pipe.data", "recorded/pipe.p73.data"),
        ("holes.data", "crafted/data-4096.data"),
        ("kcore.data", "crafted/dir-kcore.data"),
        ("cut.data", "recorded/pipe-cut.p61.data"),
        ("bad.data", "crafted/val-size-4.data"),
    ]);
    same("du", "text", &place.say_all(&["du", "du z.data", "du holes.data"]));
    same("du", "forms", &place.say_all(&["du < pipe.data", "du kcore.data", "du cut.data"]));
    same("du", "json", &place.say("du --format ndjson holes.data"));
    same("du", "errors", &place.say_all(&["du bad.data", "du missing.data", "du --format xml"]));
}

#[test]
fn aux_data_is_counted_by_cpu() {
    let fixture = Fixture::new("crafted/spe-v2.data");
    let [du, stats] = ["du", "stats"].map(|command| json_of(command, &fixture).unwrap().unwrap());
    assert_eq!(du["aux"].as_array().unwrap().len(), 4);
    assert_eq!(du["aux"], stats["aux"]["buffers"]);
    assert!(perfx(args!["du", fixture.path]).text().contains("\nAUX data of "));
}

/// The counts of selected samples are those of stats, and of a copy written by filter.
#[test]
fn the_bytes_of_selected_records_are_counted() {
    for name in ["forks.p61", "pipe-z.p73", "threads-z.p61", "several.p61", "crafted/two-be"] {
        let name = if name.contains('/') { format!("{name}.data") } else { format!("recorded/{name}.data") };
        let fixture = Fixture::new(&name);
        let of = |command: &str| -> Json {
            let line = args![command, "-q", "--json", "--time", "0%-50%", fixture.path];
            let document = serde_json::from_slice(&perfx(line).stdout).unwrap();
            conforms(command, &document).unwrap();
            document
        };
        let (du, stats) = (of("du"), of("stats"));
        assert_eq!(
            (&du["bytes"], sum(&du["stored"], "records")),
            (&stats["bytes"], number(&stats["records"]))
        );
        assert_eq!(sum(&du["events"], "samples"), sum(&stats["events"], "samples"), "{name}");
        for what in ["parts", "stored", "processes"] {
            assert_eq!(sum(&du[what], "bytes"), number(&stats["bytes"]), "{name}: {what}");
        }
    }
}

fn number(value: &Json) -> u64 {
    value.as_u64().unwrap()
}
