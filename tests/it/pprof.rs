//! `perfx export pprof`: the profile has the counts of folded lines, and Go's pprof reads it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use perfx_export::pprof::{Mapping, Profile};
use perfx_format::record::cpumode::KERNEL;
use perfx_format::record::id_index::{ANY, IdEntry, IdIndex, one_id_index};
use perfx_format::sample::{Branch, BranchFlags, NewSample};
use perfx_format::{Attr, Event, MappedFile, Mmap2, RecordType, sample_type as st};
use prost::Message as _;

use crate::folded::samples_by;
use crate::maker::{LE, Maker, PLAIN, USER, event};
use crate::snapshots::same;
use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, each_export, perfx, rewritten, root, run, skipped, temp, workloads,
};
use crate::{args, support, tiers};

fn export(input: &Path, more: &[&str]) -> Ran {
    support::export("pprof", &[input], more)
}

pub(crate) fn profile(bytes: &[u8]) -> Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    Profile::decode(&*plain).unwrap()
}

/// The name of each location's innermost function, or nothing.
fn functions(profile: &Profile) -> BTreeMap<u64, String> {
    let name = |id: u64| profile.string_table[profile.function[id as usize - 1].name as usize].clone();
    let of =
        |line: Option<&perfx_export::pprof::Line>| line.map_or(String::new(), |line| name(line.function_id));
    profile.location.iter().map(|location| (location.id, of(location.line.first()))).collect()
}

/// Performs the checks of readers.
fn check(profile: &Profile) -> Result<(), String> {
    if profile.string_table.first().map(String::as_str) != Some("") {
        return Err("the first string is not the empty one".into());
    }
    for mapping in &profile.mapping {
        let named = profile.string_table.get(mapping.filename as usize).is_some_and(|name| !name.is_empty());
        if !named || mapping.memory_start >= mapping.memory_limit {
            return Err(format!("{mapping:?}"));
        }
    }
    for location in profile.location.iter().filter(|location| location.mapping_id != 0) {
        let inside = |mapping: &&Mapping| {
            let range = mapping.memory_start..mapping.memory_limit;
            mapping.id == location.mapping_id && range.contains(&location.address)
        };
        if !profile.mapping.get(location.mapping_id as usize - 1).is_some_and(|mapping| inside(&mapping)) {
            return Err(format!("{location:?} is outside of its mapping"));
        }
    }
    let odd = profile.sample.iter().find(|sample| sample.value.len() != profile.sample_type.len());
    odd.map_or(Ok(()), |sample| Err(format!("{sample:?}")))
}

/// Regression: the first file of a recording with -a belongs to some daemon, and `go tool pprof` gave its
/// name to the profile.
#[test]
fn the_main_program_of_a_recording_of_all_cpus_has_the_most_samples() {
    let folder = temp();
    let input = Fixture::new("recorded/addresses.p61.data").path;
    let all_cpus = folder.path().join("all-cpus.data");
    let changed = rewritten(&input, Clone::clone, |record, _, bytes| {
        if let Some(index) = IdIndex::of(record) {
            let entries: Vec<_> = index.entries().map(|entry| IdEntry { tid: ANY, ..entry }).collect();
            *bytes = one_id_index(&entries, index.has_machines(), record.endian());
        }
        true
    });
    fs::write(&all_cpus, changed).unwrap();
    let sampled = |input: &Path| {
        let profile = profile(&export(input, &[]).stdout);
        check(&profile).unwrap();
        let mut samples = vec![0; profile.mapping.len() + 1];
        for sample in &profile.sample {
            let leaf = sample.location_id.first();
            let location = leaf.and_then(|id| profile.location.iter().find(|location| location.id == *id));
            samples[location.map_or(0, |location| location.mapping_id as usize)] += sample.value[0];
        }
        let is_file = |mapping: &&Mapping| profile.string_table[mapping.filename as usize].starts_with('/');
        let files = profile.mapping.iter().filter(is_file).map(|mapping| samples[mapping.id as usize]);
        files.collect::<Vec<i64>>()
    };
    let (one, all) = (sampled(&input), sampled(&all_cpus));
    assert!(all.is_sorted_by(|a, b| a >= b) && all.len() > 1, "{all:?}");
    assert!(!one.is_sorted_by(|a, b| a >= b), "{one:?}");
}

/// Regression: they began at the page of the lowest sample, so `go tool pprof` treated the code of a file
/// without symbols as the part of the file before it.
#[test]
fn mappings_are_those_of_the_recording() {
    let folder = temp();
    let input = folder.path().join("in.data");
    let mut maker = Maker::new(&input, &[event(PLAIN, Vec::new())]);
    let file = MappedFile::BuildId(&[7; 20]);
    for (start, pgoff, len) in [(0x70_0000, 0x5000, 0x4000), (0x90_0000, 0x2_0000, 0x1000)] {
        let mapping = Mmap2 {
            misc: USER,
            pid: 7,
            tid: 7,
            start,
            len,
            pgoff,
            file,
            prot: 5,
            flags: 2,
            name: b"/bin/prog",
            trailer: &maker.trailer(RecordType::MMAP2, 7),
        };
        maker.writer.write(&mapping.write(LE).unwrap()).unwrap();
    }
    [0x70_2010, 0x70_3010, 0x90_0010].iter().for_each(|ip| maker.sample(7, *ip));
    maker.writer.finish().unwrap();
    let made = export(&input, &[]).stdout;
    let profile = profile(&made);
    check(&profile).unwrap();
    let places = |mapping: &Mapping| [mapping.memory_start, mapping.memory_limit, mapping.file_offset];
    let expected = [[0x5000, 0x9000, 0x5000], [0x2_0000, 0x2_1000, 0x2_0000]];
    assert_eq!(profile.mapping.iter().map(places).collect::<Vec<_>>(), expected);
    let addresses = profile.location.iter().map(|location| (location.mapping_id, location.address));
    assert_eq!(addresses.collect::<Vec<_>>(), [(1, 0x7010), (1, 0x8010), (2, 0x2_0010)]);
    // The same file in another recording has the same mappings.
    let copy = folder.path().join("copy.data");
    fs::copy(&input, &copy).unwrap();
    let joined = self::profile(&export(&input, &[copy.to_str().unwrap()]).stdout);
    assert_eq!(joined.mapping, profile.mapping);
}

tiers!(a_profile_counts_what_folded_lines_count);
fn a_profile_counts_what_folded_lines_count(tier: Tier) {
    each_export(tier, "pprof", |fixture, ran, root| {
        let profile = profile(&ran.stdout);
        check(&profile)?;
        let functions = functions(&profile);
        let theirs = samples_by(&fixture.path, root, |stack| {
            let leaf = stack.rsplit(';').next().unwrap_or_default();
            // Frames without a name have the name of their file.
            if leaf.starts_with('[') { "" } else { leaf }
        });
        let mut ours = BTreeMap::<String, u64>::new();
        for sample in profile.sample.iter().filter(|sample| sample.value[0] > 0) {
            let leaf = sample.location_id.first().map_or("", |id| &functions[id]);
            *ours.entry(leaf.to_owned()).or_default() += sample.value[0] as u64;
        }
        if ours == theirs { Ok(()) } else { Err(format!("pprof {ours:?}\nfolded {theirs:?}")) }
    });
}

#[test]
fn a_profile_does_not_depend_on_threads() {
    let folder = temp();
    let large = folder.path().join("large.data");
    fs::write(&large, Fixture::new("recorded/fp.p61.data").repeated(9 << 20)).unwrap();
    let one = export(&large, &["--labels", "comm,pid,tid,cpu,cgroup", "-@1"]);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    assert!(export(&large, &["--labels", "comm,pid,tid,cpu,cgroup", "-@4"]).stdout == one.stdout);
}

#[test]
fn what_a_profile_holds() {
    let Some(root) = workloads() else { return };
    let mut shown = String::new();
    for (name, labels) in [("recorded/fp.p61.data", "comm,pid"), ("recorded/group-read.p61.data", "cpu")] {
        let ran = export(&Fixture::new(name).path, &["--root", root.to_str().unwrap(), "--labels", labels]);
        let profile = profile(&ran.stdout);
        let text = |number: i64| profile.string_table[number as usize].as_str();
        let types = profile.sample_type.iter().map(|it| format!(" {}/{}", text(it.r#type), text(it.unit)));
        let report = ran.stderr.replace(&crate::support::root().display().to_string(), "");
        shown += &format!("{report}types:{}\n", types.collect::<String>());
        shown += &format!("shown first: {}, period {}\n", text(profile.default_sample_type), profile.period);
        profile.comment.iter().for_each(|&comment| shown += &format!("comment: {}\n", text(comment)));
        for mapping in &profile.mapping {
            shown +=
                &format!("mapping {}: {} {}\n", mapping.id, text(mapping.filename), text(mapping.build_id));
        }
        let functions = functions(&profile);
        for sample in profile.sample.iter().take(5) {
            let names: Vec<_> = sample.location_id.iter().map(|id| functions[id].as_str()).collect();
            let label = |label: &perfx_export::pprof::PprofLabel| match label.str {
                0 => format!("{}={} ", text(label.key), label.num),
                str => format!("{}={} ", text(label.key), text(str)),
            };
            let labels: String = sample.label.iter().map(label).collect();
            shown += &format!("{:?} {labels}{}\n", sample.value, names.join(" < "));
        }
    }
    same("export", "pprof", &shown);
}

/// Go, if it is installed: Debian has each version in a folder of its own. Regression: pprof interpreted the
/// names as symbols, demangled them and cut `<rs::Ci as rs::Shape>::area` to `::area`.
#[test]
fn the_system_name_of_a_function_is_its_symbol_in_the_file() {
    let folder = temp();
    let program = folder.path().join("tmp/perfx-data/work/burn");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let mut bytes = fs::read(root().join("tests/data/unstripped/tmp/perfx-data/work/burn")).unwrap();
    while let Some(at) = bytes.windows(8).position(|part| part == b"leaf_xor") {
        bytes[at..at + 8].copy_from_slice(b"_Z4leafv");
    }
    fs::write(&program, bytes).unwrap();
    let fixture = Fixture::new("recorded/fp.p61.data");
    let profile = profile(&export(&fixture.path, &["--root", folder.path().to_str().unwrap()]).stdout);
    let text = |number: i64| &*profile.string_table[number as usize];
    let names: Vec<_> =
        profile.function.iter().map(|function| (text(function.name), text(function.system_name))).collect();
    assert!(
        names.contains(&("leaf()", "_Z4leafv")) && names.contains(&("leaf_mul", "leaf_mul")),
        "{names:?}"
    );
}

fn go() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let debian = ["1.19", "1.22", "1.23", "1.24"].map(|version| format!("/usr/lib/go-{version}/bin").into());
    std::env::split_paths(&path).chain(debian).map(|folder| folder.join("go")).find(|go| go.is_file())
}

#[test]
fn gos_pprof_reads_it() {
    let Some(root) = workloads() else { return };
    let Some(go) = go() else {
        return skipped("what needs Go's pprof, which is missing. To install it: apt-get install golang-go");
    };
    let folder = temp();
    let file = folder.path().join("fp.pb.gz");
    let fixture = Fixture::new("recorded/fp.p61.data");
    fs::write(&file, export(&fixture.path, &["--root", root.to_str().unwrap()]).stdout).unwrap();
    let mut pprof = clean(go);
    pprof.args(["tool", "pprof", "-top", "-unit", "ns"]).arg(&file).env("HOME", folder.path());
    let ran = run(&mut pprof, Stdin::Null);
    let text = ran.text();
    let folded = perfx(args!["export", "folded", "--foreign", "--root", root, fixture.path]).text();
    for name in ["leaf_xor", "leaf_mul"] {
        let stacks = folded.lines().filter_map(|line| line.rsplit_once(' '));
        let own = stacks.filter(|(stack, _)| stack.ends_with(name));
        let sum: u64 = own.map(|(_, count)| count.parse::<u64>().unwrap()).sum();
        let row = text.lines().find(|line| line.ends_with(name)).unwrap_or_default();
        assert!(row.trim_start().starts_with(&format!("{sum}ns ")), "{name}, {sum}: {text}{}", ran.stderr);
    }
}

/// The values of each function, by the name of its event.
fn totals(profile: &Profile) -> BTreeMap<(String, String), i64> {
    let text = |number: i64| profile.string_table[number as usize].clone();
    let functions = functions(profile);
    let mut totals = BTreeMap::new();
    for sample in &profile.sample {
        let leaf = sample.location_id.first().map_or(String::new(), |id| functions[id].clone());
        for (of, value) in profile.sample_type.iter().zip(&sample.value) {
            // With one event, its samples have no name.
            let name = text(of.r#type).rsplit_once(':').map_or(text(of.r#type), |(_, last)| last.to_owned());
            *totals.entry((name, leaf.clone())).or_default() += value;
        }
    }
    totals.retain(|_, value| *value != 0);
    totals
}

#[test]
fn profiles_of_several_recordings_add_up() {
    let Some(root) = workloads() else { return };
    let options = ["--root", root.to_str().unwrap(), "--labels", "comm"];
    let names = ["recorded/fp.p61.data", "recorded/several.p61.data", "recorded/plain.p73.data"];
    let paths = names.map(|name| Fixture::new(name).path);
    let mut expected = BTreeMap::new();
    for path in &paths {
        for (key, value) in totals(&profile(&export(path, &options).stdout)) {
            *expected.entry(key).or_default() += value;
        }
    }
    let others = [&options[..], &[paths[1].to_str().unwrap(), paths[2].to_str().unwrap()]].concat();
    let ran = export(&paths[0], &others).done().unwrap();
    let joined = profile(&ran.stdout);
    check(&joined).unwrap();
    assert_eq!(totals(&joined), expected);
    let twice = profile(&export(&paths[0], &[&options[..], &[paths[0].to_str().unwrap()]].concat()).stdout);
    let once = profile(&export(&paths[0], &options).stdout);
    assert_eq!((twice.sample.len(), twice.location.len()), (once.sample.len(), once.location.len()));
    assert_eq!(twice.mapping, once.mapping);
    let doubled: BTreeMap<_, _> = totals(&once).into_iter().map(|(key, value)| (key, value * 2)).collect();
    assert_eq!(totals(&twice), doubled);
}

/// Regression: the addresses of calls were treated as return addresses, and the byte before them may be in
/// another function.
#[test]
fn only_return_addresses_are_moved_into_their_calls() {
    let folder = temp();
    let input = folder.path().join("in.data");
    let sample_type = PLAIN | st::CALLCHAIN | st::BRANCH_STACK;
    // USER, CALL_STACK, NO_FLAGS, NO_CYCLES.
    let lbr = 1 | 1 << 11 | 1 << 14 | 1 << 15;
    let addresses = |branch_sample_type: u64| {
        let mut attr = Attr::default();
        (attr.type_, attr.sample_period, attr.sample_type) = (1, 1000, sample_type);
        attr.branch_sample_type = branch_sample_type;
        let mut maker = Maker::new(&input, &[Event::made(&attr, Vec::new(), LE)]);
        maker.mmap(7, 0x10_0000, 0x1_0000, "/bin/prog");
        let call = |from, to| Branch { from, to, flags: BranchFlags(0) };
        let calls = [call(0x10_1200, 0x10_1150), call(0x10_1300, 0x10_11f0)];
        let kernel = 0xffff_ffff_8100_0000;
        let callchain = &[!127, kernel, kernel + 0x100, !511, 0x10_5000, 0x10_6000];
        let sample = NewSample {
            cpumode: KERNEL,
            ip: kernel,
            pid: 7,
            tid: 7,
            time: 2000,
            callchain,
            ..NewSample::default()
        };
        let sample = NewSample { branches: [&calls, &[]], ..sample };
        maker.writer.write(&sample.build(&attr, LE).unwrap()).unwrap();
        maker.writer.finish().unwrap();
        let profile = profile(&export(&input, &[]).stdout);
        let address = |id: &u64| profile.location.iter().find(|location| location.id == *id).unwrap().address;
        profile.sample[0].location_id.iter().map(address).collect::<Vec<u64>>()
    };
    // The kernel is in no mapping: its addresses are themselves.
    let kernel = [0xffff_ffff_8100_0000, 0xffff_ffff_8100_00ff];
    // The first address of the process is where it was interrupted: in a call stack, the beginning of a
    // function.
    assert_eq!(addresses(lbr), [&kernel[..], &[0x1150, 0x1200, 0x1300]].concat());
    assert_eq!(addresses(1 << 3), [&kernel[..], &[0x5000, 0x5fff]].concat());
}
