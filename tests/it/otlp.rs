//! `perfx export otlp`: the official schema reads the profiles, and their sums are those of `list functions`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use perfx_export::otlp::{AnyValue, ProfilesData, ProfilesDictionary, Value};
use perfx_format::features::{ClockData, write_str};
use perfx_format::{Feature, MappedFile, RecordType, sample_type as st};
use prost::Message as _;

use crate::maker::{LE, Maker, PLAIN, USER, event};
use crate::support::{Fixture, Ran, Tier, each_export, perfx, python, temp, workloads};
use crate::{args, support, tiers};

fn export(input: &Path, more: &[&str]) -> Ran {
    support::export("otlp", &[input], more)
}

fn decoded(ran: &Ran) -> ProfilesData {
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    ProfilesData::decode(&*ran.stdout).unwrap()
}

/// An attribute as text: `process.pid=7`.
fn attribute(tables: &ProfilesDictionary, number: i32) -> String {
    let attribute = &tables.attribute_table[number as usize];
    let key = &tables.string_table[attribute.key_strindex as usize];
    match &attribute.value {
        Some(AnyValue { value: Some(Value::Text(text)) }) => format!("{key}={text}"),
        Some(AnyValue { value: Some(Value::Number(number)) }) => format!("{key}={number}"),
        other => panic!("{key}: {other:?}"),
    }
}

/// Sums of a kind of values by the name of the innermost function, or of its file.
fn sums(data: &ProfilesData, profile: usize) -> BTreeMap<String, i64> {
    let tables = data.dictionary.as_ref().unwrap();
    let text = |number: i32| tables.string_table[number as usize].as_str();
    let mut sums = BTreeMap::new();
    for sample in &data.profiles().nth(profile).unwrap().samples {
        let stack = &tables.stack_table[sample.stack_index as usize];
        let location = &tables.location_table[*stack.location_indices.first().unwrap_or(&0) as usize];
        let mapping = &tables.mapping_table[location.mapping_index as usize];
        let name = match location.lines.first() {
            Some(line) => text(tables.function_table[line.function_index as usize].name_strindex).to_owned(),
            // Lists are for terminals.
            None => text(mapping.filename_strindex).rsplit('/').next().unwrap().replace('\n', "?"),
        };
        *sums.entry(name).or_default() += sample.values.iter().sum::<i64>();
    }
    sums
}

/// Checks the rules of the schema for the tables.
fn check(data: &ProfilesData) -> Result<(), String> {
    let tables = data.dictionary.as_ref().unwrap();
    let zero = tables.mapping_table[0] == Default::default()
        && tables.location_table[0] == Default::default()
        && tables.function_table[0] == Default::default()
        && tables.link_table == [Default::default()]
        && tables.string_table[0].is_empty()
        && tables.attribute_table[0] == Default::default()
        && tables.stack_table[0] == Default::default();
    if !zero {
        return Err("an entry 0 is not empty".into());
    }
    for location in &tables.location_table {
        let mapping = &tables.mapping_table[location.mapping_index as usize];
        let range = mapping.memory_start..mapping.memory_limit;
        if location.mapping_index != 0 && !range.contains(&location.address) {
            return Err(format!("{location:?} is outside of {mapping:?}"));
        }
    }
    for profile in data.profiles() {
        let mut identities = BTreeSet::new();
        for sample in &profile.samples {
            let times = sample.timestamps_unix_nano.len();
            if sample.values.is_empty() || times != 0 && times != sample.values.len() {
                return Err(format!("{sample:?}"));
            }
            if !identities.insert((sample.stack_index, &sample.attribute_indices, times > 0)) {
                return Err(format!("{sample:?} is there twice"));
            }
            let time = profile.time_unix_nano..profile.time_unix_nano + profile.duration_nano;
            if let Some(odd) = sample.timestamps_unix_nano.iter().find(|at| !time.contains(at)) {
                return Err(format!("{odd} is not in {time:?}"));
            }
        }
    }
    Ok(())
}

/// The figures of `list functions`: samples and period by name.
fn listed(input: &Path, root: &str) -> Option<[BTreeMap<String, i64>; 2]> {
    let ran = perfx(args!["list", "functions", "--json", "--foreign", "-q", "--root", root, input]);
    let document: serde_json::Value = serde_json::from_slice(&ran.stdout).ok()?;
    let mut sums = [BTreeMap::new(), BTreeMap::new()];
    for row in document["rows"].as_array()? {
        // A name in brackets is that of a file without symbols, or stands for no file.
        let name = row["function"].as_str()?;
        let file = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let name = match (file, row["dso"].is_null()) {
            (Some(_), true) => "",
            (file, _) => file.unwrap_or(name),
        };
        let values = [row["samples"].as_i64()?, row["period"].as_str()?.parse().ok()?];
        for (sums, value) in sums.iter_mut().zip(values).filter(|(_, value)| *value != 0) {
            *sums.entry(name.to_owned()).or_default() += value;
        }
    }
    Some(sums)
}

tiers!(the_sums_of_functions_are_those_of_list_functions);
fn the_sums_of_functions_are_those_of_list_functions(tier: Tier) {
    each_export(tier, "otlp", |fixture, ran, root| {
        let data = decoded(ran);
        check(&data)?;
        let Some(listed) = listed(&fixture.path, root).filter(|[samples, _]| !samples.is_empty()) else {
            return Ok(());
        };
        for (profile, listed) in listed.into_iter().enumerate() {
            let mut sums = sums(&data, profile);
            sums.retain(|_, sum| *sum != 0);
            if sums != listed {
                return Err(format!("otlp {sums:?}\nlist functions {listed:?}"));
            }
        }
        Ok(())
    });
}

/// A recording with the clock and the machine of a fleet, and a container.
fn recording(path: &Path) {
    let sample_type = PLAIN | st::PERIOD | st::CGROUP;
    let mut maker = Maker::new(path, &[event(sample_type, Vec::new())]);
    let clock = ClockData { clockid: 1, wall_ns: 1_700_000_000_000_000_000, clock_ns: 1000 };
    maker.writer.set_feature(Feature::CLOCK_DATA, clock.write(LE)).unwrap();
    maker.writer.set_feature(Feature::HOSTNAME, write_str(b"web1", LE)).unwrap();
    let id = "0123456789abcdef".repeat(4);
    let path = format!("/system.slice/docker-{id}.scope\0");
    let mut padded = path.into_bytes();
    padded.resize(padded.len().next_multiple_of(8), 0);
    maker.put(RecordType::CGROUP, 0, 7, &[&5_u64.to_le_bytes(), &padded]);
    maker.comm(7, "server", 1 << 13);
    maker.mmap2(7, 0x40_0000, 0x1000, MappedFile::BuildId(&[7; 20]), "/bin/server");
    for (ip, period) in [(0x40_0010_u64, 5_u64), (0x40_0020, 7), (0x40_0010, 9)] {
        let words = [ip, 7 << 32 | 7, maker.time, period, 5].map(u64::to_le_bytes);
        maker.writer.write_parts(RecordType::SAMPLE, USER, &[words.as_flattened()]).unwrap();
        maker.time += 1;
    }
    maker.writer.finish().unwrap();
}

#[test]
fn samples_have_times_and_attributes_and_mappings_build_ids() {
    let folder = temp();
    let input = folder.path().join("in.data");
    recording(&input);
    let data = decoded(&export(&input, &["--times"]));
    check(&data).unwrap();
    let tables = data.dictionary.as_ref().unwrap();
    let of = |numbers: &[i32]| numbers.iter().map(|&number| attribute(tables, number)).collect::<Vec<_>>();
    let [count, periods] = [0, 1].map(|at| data.profiles().nth(at).unwrap());
    let times: Vec<_> = periods.samples.iter().map(|sample| &sample.timestamps_unix_nano[..]).collect();
    let from = 1_700_000_000_000_000_000;
    assert_eq!(times, [&[from + 3, from + 5][..], &[from + 4]]);
    let values = |profile: &perfx_export::otlp::Profile| {
        profile.samples.iter().map(|sample| sample.values.clone()).collect::<Vec<_>>()
    };
    assert_eq!((values(count), values(periods)), (vec![vec![1, 1], vec![1]], vec![vec![5, 9], vec![7]]));
    assert_eq!((periods.time_unix_nano, periods.duration_nano, periods.period), (from + 3, 3, 1000));
    let id = "0123456789abcdef".repeat(4);
    let expected = [
        "process.pid=7",
        "process.executable.name=server",
        "thread.id=7",
        "thread.name=server",
        &format!("container.id={id}"),
    ];
    assert_eq!(of(&count.samples[0].attribute_indices), expected);
    let build_id = format!("process.executable.build_id.gnu={}", "07".repeat(20));
    assert_eq!(of(&tables.mapping_table[1].attribute_indices), [build_id]);
    assert_eq!(of(&tables.location_table[1].attribute_indices), ["profile.frame.type=native"]);
    let resource = data.resource_profiles[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes[0].key, "host.name");
    // Without the host, times and attributes; two recordings share the tables.
    let copy = folder.path().join("copy.data");
    fs::copy(&input, &copy).unwrap();
    let both = decoded(&export(&input, &["--no-host", "--attributes", "none", copy.to_str().unwrap()]));
    check(&both).unwrap();
    assert!(both.resource_profiles.iter().all(|of| of.resource.as_ref().unwrap().attributes.is_empty()));
    assert_eq!(
        both.profiles().map(values).collect::<Vec<_>>(),
        [[[2], [1]], [[14], [7]], [[2], [1]], [[14], [7]]]
    );
    assert_eq!(both.dictionary.unwrap().location_table.len(), 3);
}

#[test]
fn times_without_a_wall_clock_are_refused() {
    let ran = export(&Fixture::new("recorded/fp.p61.data").path, &["--times"]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(1), 0));
    assert!(ran.stderr.contains("perf record -k CLOCK_MONOTONIC"), "{}", ran.stderr);
}

#[test]
fn profiles_do_not_depend_on_threads() {
    let folder = temp();
    let large = folder.path().join("large.data");
    fs::write(&large, Fixture::new("recorded/fp.p61.data").repeated(9 << 20)).unwrap();
    let one = export(&large, &["-@1"]);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    assert!(export(&large, &["-@4"]).stdout == one.stdout);
}

/// Reads a file with the official classes, and prints sums of periods by function.
const READ: &str = r#"
import sys, collections
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
file = open(sys.argv[1], "rb").read()
data = ProfilesData.FromString(file)
assert ExportProfilesServiceRequest.FromString(file).SerializeToString(deterministic=True) == file
assert data.SerializeToString(deterministic=True) == file, "no field is unknown"
names = [data.DESCRIPTOR.name]
d = data.dictionary
text = lambda at: d.string_table[at]
profile = data.resource_profiles[0].scope_profiles[0].profiles[1]
print(text(profile.sample_type.type_strindex), text(profile.sample_type.unit_strindex), profile.period)
sums = collections.Counter()
for sample in profile.samples:
    leaf = d.location_table[d.stack_table[sample.stack_index].location_indices[0]]
    mapping = text(d.mapping_table[leaf.mapping_index].filename_strindex).split("/")[-1]
    name = text(d.function_table[leaf.lines[0].function_index].name_strindex) if leaf.lines else mapping
    sums[name] += sum(sample.values)
for name in sorted(sums):
    print(name, sums[name])
"#;

#[test]
fn the_official_schema_reads_it() {
    let Some(root) = workloads() else { return };
    let Some(python) = python("opentelemetry.proto.profiles.v1development.profiles_pb2") else { return };
    let (folder, input) = (temp(), Fixture::new("recorded/fp.p61.data").path);
    let file = folder.path().join("fp.otlp");
    let root = root.to_str().unwrap();
    fs::write(&file, export(&input, &["--root", root]).stdout).unwrap();
    let ran = python(&["-c", READ, file.to_str().unwrap()], folder.path()).done().unwrap();
    let [_, periods] = listed(&input, root).unwrap();
    let expected: String = periods.iter().map(|(name, sum)| format!("{name} {sum}\n")).collect();
    assert_eq!(ran.text(), format!("cpu-clock nanoseconds 0\n{expected}"));
}
