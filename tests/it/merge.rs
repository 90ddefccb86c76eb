//! What a merge of host and guest must satisfy, shown on the pair of tests/data/guests, and on every pair below /tmp/perfx-data/guest where
//! record-guest.sh of the shared tools has been run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perfx_format::expand::Expand;
use perfx_format::features::{BuildIds, read_event_desc};
use perfx_format::input::Recording;
use perfx_format::{Event, Feature, Layouts, RecordType, until_nul};
use perfx_passes::Merge;
use tempfile::TempDir;

use crate::args;
use crate::support::{
    Perf, Ran, Stdin, each, perf, perfs, perfx, perfx_command, root, run, same_bytes, temp,
};

/// The process of tests/data/guests that ran the guest, and its threads.
const PID: u32 = 31188;
const THREADS: [u32; 2] = [31314, 31315];

fn pair() -> TempDir {
    let folder = temp();
    for name in ["host.data", "guest.data"] {
        let packed = File::open(root().join("tests/data/guests").join(format!("{name}.zst"))).unwrap();
        fs::write(folder.path().join(name), zstd::decode_all(packed).unwrap()).unwrap();
    }
    folder
}

/// One record, as far as a merge is concerned.
#[derive(Clone, Debug)]
struct Rec {
    kind: RecordType,
    misc: u16,
    /// Without header and trailer.
    body: Vec<u8>,
    bytes: Vec<u8>,
    time: u64,
    id: u64,
    cpu: Option<u32>,
    task: (u32, u32),
}

struct Loaded {
    events: Vec<Event>,
    features: perfx_format::header::Features,
    records: Vec<Rec>,
}

fn load(path: &Path) -> Loaded {
    let mut recording = Recording::open(path, Arc::new(tempfile::tempfile)).unwrap();
    let endian = recording.endian;
    let mut records = Vec::new();
    for batch in Expand::new(recording.batches(), endian, 0) {
        let batch = batch.unwrap();
        let mut walker = batch.walk(endian);
        while let Some(record) = walker.next_record().unwrap() {
            let layout = batch.layouts.layout_of(&record).filter(|_| record.kind().is_kernel());
            let trailer = match layout {
                Some(layout) if record.kind() != RecordType::SAMPLE => usize::from(layout.trailer.size),
                _ => 0,
            };
            records.push(Rec {
                kind: record.kind(),
                misc: record.misc(),
                body: record.body()[..record.body().len() - trailer].to_vec(),
                bytes: record.bytes().to_vec(),
                time: layout.and_then(|layout| layout.time(&record)).unwrap_or(0),
                id: layout.and_then(|layout| layout.id(&record)).unwrap_or(0),
                cpu: layout.and_then(|layout| layout.cpu(&record)),
                task: layout.and_then(|layout| layout.pid_tid(&record)).unwrap_or_default(),
            });
        }
    }
    Loaded { events: recording.events.clone(), features: recording.features.clone(), records }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// perf's formula, in doubles as perf computes it.
struct Formula {
    guest: Option<(u64, u64, u64)>,
    host: Option<(u64, u64, u64)>,
    offset: i64,
    scale: f64,
}

impl Formula {
    fn host_time(&self, time: u64) -> u64 {
        let mut x = time;
        if let Some((shift, mult, zero)) = self.guest {
            let t = time.wrapping_sub(zero);
            x = ((t / mult) << shift).wrapping_add(((t % mult) << shift) / mult);
        }
        x = (x.wrapping_sub(self.offset as u64) as f64 / self.scale) as u64;
        if let Some((shift, mult, zero)) = self.host {
            x = zero
                .wrapping_add((x >> shift) * mult)
                .wrapping_add(((x & ((1 << shift) - 1)) * mult) >> shift);
        }
        x
    }
}

fn time_conv(loaded: &Loaded) -> Option<(u64, u64, u64)> {
    let record = loaded.records.iter().find(|record| record.kind == RecordType::TIME_CONV)?;
    (record.bytes.get(48) != Some(&0))
        .then(|| (u64_at(&record.bytes, 8), u64_at(&record.bytes, 16), u64_at(&record.bytes, 24)))
}

/// `offset=N,scale=F` of the report.
fn clock_said(stderr: &str) -> Option<(i64, f64)> {
    let (_, rest) = stderr.split_once(": offset=")?;
    let (offset, rest) = rest.split_once(",scale=")?;
    Some((offset.parse().ok()?, rest.lines().next()?.parse().ok()?))
}

/// Says what is wrong unless it holds.
fn holds(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

/// The assertions A1 to A14 of the reference.
fn check(host: &Loaded, guest: &Loaded, merged: &Loaded, pid: u32, clock: (i64, f64)) -> Result<(), String> {
    let identified = host.events.iter().all(|event| event.attr().sample_type >> 16 & 1 == 1);
    // A1: the host's events are first and unchanged, the guest's differ in three places.
    let (first, rest) = merged.events.split_at(host.events.len());
    if identified {
        holds(
            first.iter().zip(&host.events).all(|(a, b)| a.ids == b.ids && a.raw()[8..] == b.raw()[8..]),
            || "A1: host events".into(),
        )?;
    }
    holds(rest.len() == guest.events.len(), || "A1: number of events".into())?;
    let mut ids = HashMap::new();
    let mut next = host.events.iter().flat_map(|event| &event.ids).copied().max().unwrap();
    let mut machines = BTreeMap::new();
    for (new, old) in rest.iter().zip(&guest.events) {
        let (a, b) = (new.attr(), old.attr());
        let flags = (b.flags | 1 << 19) & !(1 << 20);
        holds(a.sample_type == b.sample_type | 1 << 16 && a.flags == flags, || "A1: guest events".into())?;
        let kept = a.type_ == b.type_ && a.config == b.config;
        holds(kept || b.type_ == 2 && (a.type_, a.config) == (1, 9), || "A1: type and config".into())?;
        holds(new.ids.len() == old.ids.len(), || "A1: ids of an event".into())?;
        for (&old, &new) in old.ids.iter().zip(&new.ids) {
            next += 1;
            holds(new == next, || format!("A2: id {new} is not {next}"))?;
            ids.insert(old, new);
        }
    }
    // A3: one ID_INDEX with the new ids.
    let index = |loaded: &Loaded| -> Vec<(usize, Vec<u64>)> {
        let words = |record: &Rec| record.bytes[8..].chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        let records = loaded.records.iter().enumerate();
        records
            .filter(|(_, record)| record.kind == RecordType::ID_INDEX)
            .map(|(at, record)| (at, words(record)))
            .collect()
    };
    let guest_cpu: HashMap<u64, u64> = index(guest)
        .iter()
        .flat_map(|(_, words)| {
            words[1..=4 * words[0] as usize]
                .chunks_exact(4)
                .map(|entry| (entry[0], entry[2]))
                .collect::<Vec<_>>()
        })
        .collect();
    let ours: Vec<_> = index(merged)
        .into_iter()
        .filter(|(_, words)| ids.values().any(|id| words.get(1) == Some(id)))
        .collect();
    holds(ours.len() == 1, || format!("A3: {} ID_INDEX records", ours.len()))?;
    let (index_at, words) = &ours[0];
    let count = words[0] as usize;
    holds(count == ids.len() && words.len() == 1 + 6 * count, || "A3: entries".into())?;
    for at in 0..count {
        let entry = &words[1 + 4 * at..][..4];
        let machine = &words[1 + 4 * count + 2 * at..][..2];
        let (&old, _) = ids.iter().find(|(_, new)| **new == entry[0]).ok_or("A3: an unknown id")?;
        holds(entry[1..3] == [0, u64::MAX] && machine[0] == u64::from(pid), || "A3: entry".into())?;
        if let Some(&cpu) = guest_cpu.get(&old) {
            holds(machine[1] == cpu, || "A3: vcpu".into())?;
        }
        machines.insert(machine[1] as u32, entry[3] as u32);
    }
    // Whose records are whose.
    let new_ids: BTreeSet<u64> = ids.values().copied().collect();
    let is_guests = |record: &&Rec| {
        record.kind.is_kernel() && new_ids.contains(&record.id) && matches!(record.misc & 7, 4 | 5)
    };
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for (at, record) in merged.records.iter().enumerate() {
        if is_guests(&record) {
            theirs.push((at, record));
        } else if at != *index_at {
            own.push(record);
        }
    }
    // A4: the host's records are all there, in their order.
    holds(own.len() == host.records.len(), || {
        format!("A4: {} host records became {}", host.records.len(), own.len())
    })?;
    let same = own
        .iter()
        .zip(&host.records)
        .all(|(a, b)| if identified { a.bytes == b.bytes } else { a.kind == b.kind && a.time == b.time });
    holds(same, || "A4: host records differ".into())?;
    // A5, A6: the guest's, field by field.
    let taken = |record: &&Rec| {
        Merge::KINDS.contains(&record.kind)
            && (record.kind != RecordType::KSYMBOL || record.body[12..14] == [2, 0])
    };
    let mut wanted: HashMap<_, Vec<&Rec>> = HashMap::new();
    let formula = Formula { guest: time_conv(guest), host: time_conv(host), offset: clock.0, scale: clock.1 };
    let lost_mapped = |record: &Rec| {
        let mut body = record.body.clone();
        if record.kind == RecordType::LOST {
            // A13
            let id = u64_at(&body, 0);
            body[..8].copy_from_slice(&ids.get(&id).copied().unwrap_or(id).to_le_bytes());
        }
        body
    };
    let mut sorted: Vec<&Rec> = guest.records.iter().filter(taken).collect();
    holds(sorted.len() == theirs.len(), || {
        format!("A5: {} guest records became {}", sorted.len(), theirs.len())
    })?;
    sorted.sort_by_key(|record| std::cmp::Reverse(record.time));
    for record in sorted {
        let time = if record.time == 0 { 0 } else { formula.host_time(record.time) };
        wanted
            .entry((record.kind, lost_mapped(record), time, record.task, record.misc >> 3))
            .or_default()
            .push(record);
    }
    let first_id = guest.events.iter().flat_map(|event| &event.ids).next().map(|id| ids[id]);
    // A10: when each VCPU's thread went onto which CPU.
    let mut runs: BTreeMap<u32, Vec<(u64, u32, bool)>> = BTreeMap::new();
    for record in &host.records {
        let is_switch = matches!(record.kind, RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE);
        if let Some(cpu) = record.cpu.filter(|_| is_switch && record.misc & 7 < 4) {
            runs.entry(record.task.1).or_default().push((record.time, cpu, record.misc & 0x2000 != 0));
        }
    }
    runs.values_mut().for_each(|run| run.sort_by_key(|&(time, ..)| time));
    let mut last = 0;
    let init = merged.records.iter().position(|record| record.kind == RecordType::FINISHED_INIT);
    for &(at, record) in &theirs {
        let key = (record.kind, record.body.clone(), record.time, record.task, record.misc >> 3);
        let of = wanted.get_mut(&key).and_then(Vec::pop);
        let of = of.ok_or_else(|| format!("A5, A6: the guest has nothing that {record:?} could be"))?;
        let mode = if of.misc & 7 == 2 { 5 } else { 4 };
        holds(record.misc == of.misc & !7 | mode, || format!("A6: misc of {record:?}"))?;
        let id = ids.get(&of.id).copied().or(first_id).unwrap();
        holds(record.id == id || of.id == 0, || format!("A6: id of {record:?}"))?;
        // A7
        holds(record.time == 0 || record.time >= last, || format!("A7: {record:?} is late"))?;
        last = last.max(record.time);
        holds(at > *index_at, || format!("A3: {record:?} stands before the ID_INDEX"))?;
        if let Some(init) = init {
            holds((record.time == 0) == (at < init), || {
                format!("A7: {record:?} is on the wrong side of FINISHED_INIT")
            })?;
        }
        let run = of.cpu.and_then(|vcpu| runs.get(machines.get(&vcpu)?));
        if let (Some(run), true, Some(cpu)) = (run, record.time != 0, record.cpu) {
            let before =
                run.iter().rev().find(|&&(when, _, out)| !out && when <= record.time).map(|&(_, cpu, _)| cpu);
            let first = run.iter().find(|(.., out)| *out).map(|&(_, cpu, _)| cpu);
            holds(Some(cpu) == before.or(first), || format!("A10: CPU of {record:?}"))?;
        }
    }
    // A8: no record is older than what a FINISHED_ROUND let go.
    let (mut allowed, mut seen_before, mut seen) = (0, 0, 0);
    for record in &merged.records {
        if record.kind == RecordType::FINISHED_ROUND {
            (allowed, seen_before) = (seen_before, seen);
        } else if record.time != 0 && record.time != u64::MAX {
            holds(record.time >= allowed, || format!("A8: {record:?} is older than {allowed}"))?;
            seen = seen.max(record.time);
        }
    }
    // A9: markers of the ping-pong between host and guest, 30 µs at most beside.
    let name = |record: &Rec| String::from_utf8_lossy(until_nul(&record.body[8..])).into_owned();
    let comms = |records: &mut dyn Iterator<Item = &Rec>| -> HashMap<String, u64> {
        records
            .filter(|record| record.kind == RecordType::COMM && record.time != 0)
            .map(|record| (name(record), record.time))
            .collect()
    };
    let (here, there) = (comms(&mut own.into_iter()), comms(&mut theirs.iter().map(|(_, record)| *record)));
    for (marker, time) in there {
        if let (7, Some((tag, number))) = (marker.len(), marker.split_once('g'))
            && let (Some(before), Some(after)) =
                (here.get(&format!("{tag}h{number}a")), here.get(&format!("{tag}h{number}b")))
        {
            let fits = before.saturating_sub(30_000) <= time && time <= after + 30_000;
            holds(fits, || format!("A9: marker {marker} at {time} is not between {before} and {after}"))?;
        }
    }
    // A11
    let ids_of = |loaded: &Loaded| -> BTreeSet<(i32, Vec<u8>, Vec<u8>)> {
        let section = loaded.features.get(&Feature::BUILD_ID).map_or(&[][..], |section| section);
        let entries = BuildIds::new(section, perfx_format::Endian::Little);
        entries.map(|entry| (entry.pid, entry.id.to_vec(), entry.filename.to_vec())).collect()
    };
    let mut expected = ids_of(host);
    expected.extend(ids_of(guest).into_iter().map(|(_, id, name)| (pid as i32, id, name)));
    holds(ids_of(merged) == expected, || "A11: build-ids".into())?;
    // A14
    let described = read_event_desc(&merged.features[&Feature::EVENT_DESC], perfx_format::Endian::Little);
    let described: Vec<_> = described.unwrap().into_iter().map(|event| event.ids).collect();
    let events: Vec<_> = merged.events.iter().map(|event| event.ids.clone()).collect();
    holds(described == events, || "A14: EVENT_DESC".into())?;
    for (feature, section) in &host.features {
        let changed = [
            Feature::EVENT_DESC,
            Feature::BUILD_ID,
            Feature::SAMPLE_TIME,
            Feature::COMPRESSED,
            Feature::DIR_FORMAT,
        ];
        let same = merged.features.get(feature) == Some(section);
        holds(same || changed.contains(feature), || format!("A14: feature {feature}"))?;
    }
    Ok(())
}

fn merge(host: &Path, guest: &str, output: &Path) -> Ran {
    perfx(args!["merge", host, guest, "-f", "--to", "file", "-o", output])
}

#[test]
fn the_pair_satisfies_all_assertions_and_its_offset_is_found() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let ran = merge(&path("host.data"), path("guest.data").to_str().unwrap(), &path("merged.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let clock = clock_said(&ran.stderr).expect("an offset is said");
    check(&load(&path("host.data")), &load(&path("guest.data")), &load(&path("merged.data")), PID, clock)
        .unwrap();
    // Within 10 µs of where TSCs that host and guest read in turns put it.
    assert!((clock.1 - 2.596135).abs() < 1e-5, "{}", clock.1);
}

/// Real pairs: folder, guest's folder.
fn real_pairs() -> Vec<(PathBuf, PathBuf)> {
    let mut pairs = Vec::new();
    let Ok(folders) = fs::read_dir("/tmp/perfx-data/guest") else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: real pairs of host and guest, for record-guest.sh was not run"
        );
        return pairs;
    };
    for folder in folders.map(|folder| folder.unwrap().path()) {
        for guest in ["g1", "g2"].map(|guest| folder.join(guest)) {
            let done = |name: &str| guest.join(name).exists();
            if folder.join("host.data").exists() && done("guest.data") && done("qemu.pid") {
                pairs.push((folder.clone(), guest));
            }
        }
    }
    pairs.sort();
    pairs
}

#[test]
fn real_pairs_satisfy_all_assertions() {
    let pairs = real_pairs();
    if pairs.is_empty() {
        return;
    }
    let perfs = perfs(&["perf", "perf-trixie", "perf-new"]);
    let name = |(_, guest): &(PathBuf, PathBuf)| guest.display().to_string();
    each(&pairs, name, |(folder, guest)| {
        let out = temp();
        let (host, merged) = (folder.join("host.data"), out.path().join("merged.data"));
        let pid: u32 = fs::read_to_string(guest.join("qemu.pid")).unwrap().trim().parse().unwrap();
        let given = |more: &str| format!("{},pid={pid}{more}", guest.join("guest.data").display());
        let mut ran = merge(&host, &given(""), &merged);
        if ran.code == Some(1) {
            // Refused with a sentence: no switch records on the host, no time in the guest, a guest that misjudged its clock.
            let told = fs::read_to_string(guest.join("time.json")).unwrap_or_default();
            let number = |name: &str| {
                let (_, rest) = told.split_once(&format!("\"{name}\": "))?;
                Some(rest.split([',', '\n']).next()?.trim().to_owned())
            };
            let sentence = ["can't be told", "no time"].iter().any(|part| ran.stderr.contains(part));
            holds(sentence && ran.stderr.lines().count() == 1, || ran.stderr.clone())?;
            let (Some(offset), Some(scale)) = (number("offset"), number("scale")) else { return Ok(()) };
            ran = merge(&host, &given(&format!(",offset={offset},scale={scale}")), &merged);
            if ran.code == Some(1) && ran.stderr.contains("no time") {
                return Ok(());
            }
        }
        let ran = ran.done()?;
        let clock = clock_said(&ran.stderr).ok_or("no offset is said")?;
        check(&load(&host), &load(&guest.join("guest.data")), &load(&merged), pid, clock)?;
        for perf in &perfs {
            let question = ["script", "--show-task-events", "-F", "+machine_pid,+vcpu", "-i"];
            let mut all: Vec<std::ffi::OsString> = question.iter().map(Into::into).collect();
            all.push(merged.clone().into());
            let said = perf.run(Stdin::Null, all);
            // It knows no attr as large as a newer perf's, merged or not; and it may say that the recordings themselves lost something.
            let newer = said.stderr.contains("incompatible file format")
                && load(&merged).events.iter().any(|event| event.raw().len() > 136);
            let quiet = said.stderr.trim().is_empty() || said.stderr.contains("Check IO/CPU overload");
            let shown = said.text().contains("VM:");
            holds(newer || said.code == Some(0) && quiet && shown, || {
                format!("{}: {:?} {}", perf.name, said.code, said.stderr)
            })?;
        }
        Ok(())
    });
}

#[test]
fn perf_merges_the_same_records_but_for_its_faults() {
    let Some(perf) = perf("perf") else { return };
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let ran = merge(&path("host.data"), path("guest.data").to_str().unwrap(), &path("merged.data"));
    let (offset, scale) = clock_said(&ran.stderr).unwrap();
    let guest = format!("--guest-data={},{PID},{offset},{scale}", path("guest.data").display());
    let said =
        perf.run(Stdin::Null, args!["inject", "-i", path("host.data"), "-o", path("perf.data"), guest]);
    if said.code != Some(0) {
        // From 6.12 on it crashes.
        assert!(said.code.is_none(), "{}", said.stderr);
        return;
    }
    let (ours, theirs) = (load(&path("merged.data")), load(&path("perf.data")));
    assert_eq!(ours.events, theirs.events);
    // Host CPUs: perf's rule is another. Order: perf sorts.
    let lines = |loaded: &Loaded| {
        let mut lines: Vec<_> = loaded
            .records
            .iter()
            .map(|record| {
                let guests = matches!(record.misc & 7, 4 | 5) && record.kind.is_kernel();
                let cpu = if guests { None } else { record.cpu };
                (record.kind, record.misc, record.time, record.id, record.task, cpu, record.body.clone())
            })
            .collect();
        lines.sort();
        lines
    };
    assert!(lines(&ours) == lines(&theirs), "not the same records");
}

#[test]
fn guests_in_any_order_give_the_same_records() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let clock = ",offset=-14026330256359,scale=2.5961349024293154";
    let first = format!("{},pid={PID}{clock}", path("guest.data"));
    // The same guest as if another process ran it.
    let second = format!("{},pid=7,vcpu=0:{},vcpu=1:{}{clock}", path("guest.data"), THREADS[0], THREADS[1]);
    let merge = |input: &str, guests: &[&str], output: &str, threads: &str| {
        let mut line = args!["merge", "-@", threads, "-f", "-o", path(output), path(input)].to_vec();
        line.extend(guests.iter().map(Into::into));
        let ran = perfx(line);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    merge("host.data", &[&first], "1", "1");
    merge("1", &[&second], "12", "1");
    merge("host.data", &[&second], "2", "2");
    merge("2", &[&first], "21", "2");
    merge("host.data", &[&first, &second], "both", "1");
    merge("host.data", &[&first, &second], "both4", "4");
    same_bytes("threads", &fs::read(path("both")).unwrap(), &fs::read(path("both4")).unwrap()).unwrap();
    let records = |name: &str| {
        let loaded = load(Path::new(&path(name)));
        let guests: BTreeSet<u64> = loaded.events[2..].iter().flat_map(|event| event.ids.clone()).collect();
        let mut records: Vec<_> = loaded
            .records
            .into_iter()
            .filter(|record| record.kind != RecordType::ID_INDEX)
            .map(|record| {
                let id = if guests.contains(&record.id) { 0 } else { record.id };
                (record.kind, record.misc, record.time, id, record.cpu, record.task, record.body)
            })
            .collect();
        records.sort();
        records
    };
    let both = records("both");
    for other in ["12", "21"] {
        assert!(records(other) == both, "{other} has other records than both at once");
    }
}

#[test]
fn a_merge_through_pipes_has_the_same_records() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let guest = path("guest.data");
    let ran = merge(&path("host.data"), guest.to_str().unwrap(), &path("merged.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let host = perfx(args!["copy", path("host.data"), "--to", "pipe"]).stdout;
    let guest_pipe = path("guest.pipe");
    fs::write(&guest_pipe, perfx(args!["copy", guest, "--to", "pipe"]).stdout).unwrap();
    let piped = run(perfx_command().args(args!["merge", "-", guest_pipe]), Stdin::Pipe(&host));
    assert_eq!(piped.code, Some(0), "{}", piped.stderr);
    fs::write(path("merged.pipe"), &piped.stdout).unwrap();
    let bytes =
        |name: &str| -> Vec<_> { load(&path(name)).records.into_iter().map(|record| record.bytes).collect() };
    let front = load(&path("merged.pipe")).events;
    assert_eq!(front, load(&path("merged.data")).events);
    // Names of events are records in pipe data.
    let (file, pipe) = (bytes("merged.data"), bytes("merged.pipe"));
    let is_made = |bytes: &&Vec<u8>| !matches!(bytes[0], 64..=68 | 78 | 80) || bytes[0] == 68;
    assert!(file.iter().filter(is_made).eq(pipe.iter().filter(is_made)), "not the same records");
    for perf in perfs(&["perf", "perf-new"]) {
        let said = perf.run(
            Stdin::Pipe(&piped.stdout),
            ["script", "-i", "-", "--show-task-events", "-F", "+machine_pid,+vcpu"],
        );
        assert!(said.code == Some(0) && said.text().contains("VM:31188"), "{}: {}", perf.name, said.stderr);
    }
}

/// perf has nothing to say of a merged recording, and shows the guest's records. (Where it can't read the host alone, it need not; nor an attr
/// of a newer perf, which it takes in pipe data only.)
fn perf_reads(perf: &Perf, host: &Path, merged: &Path, least: usize) -> Result<(), String> {
    let newer = load(merged).events.iter().any(|event| event.raw().len() > 128);
    if newer || perf.run(Stdin::Null, args!["script", "-i", host]).code != Some(0) {
        return Ok(());
    }
    let question = ["script", "--show-task-events", "--show-mmap-events", "-F", "+machine_pid,+vcpu", "-i"];
    let mut all: Vec<std::ffi::OsString> = question.iter().map(Into::into).collect();
    all.push(merged.into());
    let said = perf.run(Stdin::Null, all);
    let bad = ["out of order", "non matching", "incompatible", "Can't parse", "unknown"];
    let wrong = bad.iter().any(|part| said.stderr.contains(part));
    holds(!wrong && said.code == Some(0) && said.text().matches("VM:").count() >= least, || {
        format!(
            "{} shows {} records of guests: {}",
            perf.name,
            said.text().matches("VM:").count(),
            said.stderr
        )
    })
}

/// Done, or refused with one of these sentences.
fn done_or_refused(ran: Ran, known: &[&str]) -> Result<Option<Ran>, String> {
    if ran.code != Some(1) {
        return ran.done().map(Some);
    }
    let sentence = known.iter().any(|part| ran.stderr.contains(part)) && ran.stderr.lines().count() == 1;
    holds(sentence, || ran.stderr.clone()).map(|()| None)
}

/// Hosts of all forms, that have no IDENTIFIER, one or several events, and no FINISHED_INIT.
#[test]
fn hosts_of_every_age_and_form_are_read_by_perf() {
    let folder = pair();
    let Some(perf) = perf("perf") else { return };
    let spec = format!(
        "{},pid=1,vcpu=0:1,vcpu=1:2,offset=-14026330256359,scale=2.5961349024293154",
        folder.path().join("guest.data").display()
    );
    crate::support::each_fixture(&crate::support::recorded(), |host| {
        let merged = temp();
        let merged = merged.path().join("merged.data");
        let known = [
            "has a time",
            "no sample_id",
            "event id",
            "missing",
            "too few",
            "ends inside",
            "reaches past",
            "larger than",
            "killed before",
            "zstd can't",
            "no event",
        ];
        match done_or_refused(merge(&host.path, &spec, &merged), &known)? {
            Some(_) => perf_reads(&perf, &host.path, &merged, 100),
            None => Ok(()),
        }
    });
}

/// Guests of all forms: files, pipes, directories, compressed ones, by perf 5.10 to 7.3.
#[test]
fn guests_of_every_age_and_form_are_read_by_perf() {
    let Some(perf) = perf("perf") else { return };
    let host = crate::support::Fixture::new("recorded/switch.p61.data").path;
    let vcpus: String = (0..64).map(|vcpu| format!(",vcpu={vcpu}:{}", vcpu + 1)).collect();
    let merged_some = AtomicUsize::new(0);
    crate::support::each_fixture(&crate::support::recorded(), |guest| {
        let out = temp();
        let merged = out.path().join("merged.data");
        let spec = format!("{},pid=1,offset=0,scale=1{vcpus}", guest.path.display());
        let known = [
            "no time",
            "no sample_id",
            "event id",
            "missing",
            "too few",
            "ends inside",
            "reaches past",
            "larger than",
            "killed before",
            "zstd can't",
            "no event",
            "none of its records can be merged",
        ];
        if done_or_refused(merge(&host, &spec, &merged), &known)?.is_none() {
            return Ok(());
        }
        merged_some.fetch_add(1, Ordering::Relaxed);
        perf_reads(&perf, &host, &merged, 1)
    });
    assert!(merged_some.into_inner() > 100, "most recordings can be merged");
}

fn say(folder: &Path, line: &[&str]) -> String {
    let ran = run(perfx_command().current_dir(folder).env("NO_COLOR", "1").args(line), Stdin::Null);
    let mut text = format!("$ perfx {}\n{}{}", line.join(" "), ran.text(), ran.stderr);
    if ran.code != Some(0) {
        text += &format!("(exit code {})\n", ran.code.unwrap());
    }
    text
}

fn same(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/merge"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn what_a_merge_says_and_every_refusal() {
    let folder = pair();
    let dir = folder.path();
    fs::write(dir.join("empty.data"), b"").unwrap();
    fs::copy(root().join("tests/data/crafted/attr-128-be.data"), dir.join("big-endian.data")).unwrap();
    let ran = run(
        perfx_command().current_dir(dir).args(["merge", "host.data", "guest.data", "-o", "merged.data"]),
        Stdin::Null,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: &[&[&str]] = &[
        &["merge", "-n", "host.data", "guest.data"],
        &[
            "merge",
            "-n",
            "--samples",
            "--all",
            "host.data",
            "guest.data,offset=-14026330256359,scale=2.596135",
        ],
        &["merge", "-n", "host.data", "guest.data,31188,-14126330256359,2.596135"],
        &["merge", "-n", "host.data", "guest.data,31188,140263302563590,2.596135"],
        &["inject", "-n", "host.data", "--guest-data=guest.data,31188,-14026330256359,2.596135"],
        &["merge", "-n", "host.data"],
        &["merge", "-n", "host.data", "guest.data,pid=0"],
        &["merge", "-n", "host.data", "guest.data,1,2,3,4"],
        &["merge", "-n", "host.data", "guest.data,scale=0"],
        &["merge", "-n", "host.data", "guest.data,root=nowhere"],
        &["merge", "-n", "host.data", "guest.data,pid=12"],
        &["merge", "-n", "host.data", "guest.data,pid=12,vcpu=0:12"],
        &["merge", "-n", "host.data", "guest.data,pid=12,vcpu=0:12,vcpu=1:13"],
        &["merge", "-n", "host.data", "guest.data,pid=12", "guest.data,pid=12"],
        &["merge", "-n", "host.data", "guest.data", "guest.data"],
        &["merge", "-n", "merged.data", "guest.data"],
        &["merge", "-n", "merged.data", "guest.data,pid=31188"],
        &["merge", "-n", "guest.data", "host.data"],
        &["merge", "-n", "host.data", "big-endian.data,pid=1"],
        &["merge", "-n", "host.data", "empty.data"],
        &["merge", "-n", "host.data", "missing.data"],
        &["merge", "-n", "host.data", "."],
        &["run", "-p", "merge", "-n", "host.data"],
    ];
    let text: Vec<_> = lines.iter().map(|line| say(dir, line)).collect();
    same("said", &text.join("\n"));
}

#[test]
fn around_finished_init() {
    let folder = pair();
    let dir = folder.path();
    let ran = run(
        perfx_command().current_dir(dir).args(["merge", "host.data", "guest.data", "-o", "merged.data"]),
        Stdin::Null,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let dump = perfx(args!["dump", dir.join("merged.data")]).text();
    let lines: Vec<_> = dump.lines().collect();
    let near = |what: &str, before: usize, behind: usize| {
        let at = lines.iter().position(|line| line.contains(what)).expect("the line is there");
        lines[at - before..=at + behind].join("\n")
    };
    let text = [near("machine_pid", 3, 4), near(" FINISHED_INIT", 4, 4)].join("\n…\n");
    same("around_finished_init", &text);
}

/// Records of a file's data section.
fn stored(path: &Path) -> Vec<Vec<u8>> {
    load(path).records.into_iter().map(|record| record.bytes).collect()
}

#[test]
fn a_merge_is_a_pass_among_others() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let guest = path("guest.data");
    let done = |ran: Ran| assert!(ran.code == Some(0), "{}", ran.stderr);
    done(merge(&path("host.data"), guest.to_str().unwrap(), &path("merged.data")));
    done(perfx(args!["inject", "--buildid-all", "--no-files", path("merged.data"), "-o", path("ids.data")]));
    // Through a pipe, nothing is different.
    let piped = perfx(args!["merge", path("host.data"), guest]).stdout;
    let ran = run(
        perfx_command().args(args!["inject", "--buildid-all", "--no-files", "-", "-o", path("piped.data")]),
        Stdin::Pipe(&piped),
    );
    done(ran);
    let is_kernels = |bytes: &&Vec<u8>| u32::from_le_bytes(bytes[..4].try_into().unwrap()) < 64;
    let (file, pipe) = (stored(&path("ids.data")), stored(&path("piped.data")));
    assert!(file.iter().filter(is_kernels).eq(pipe.iter().filter(is_kernels)), "not the same records");
    // In one chain, compressed behind it.
    let chain = format!("merge:guest={},build-ids:all:no-files,compress", guest.display());
    done(perfx(args!["run", "-p", chain, path("host.data"), "-o", path("chain.data")]));
    done(perfx(args!["decompress", path("chain.data"), "-o", path("chain.plain")]));
    let (merged, chained) = (stored(&path("merged.data")), stored(&path("chain.plain")));
    let is_build_id = |bytes: &&Vec<u8>| bytes[..4] != [67, 0, 0, 0];
    assert!(merged.iter().eq(chained.iter().filter(is_build_id)), "not the records of a merge alone");
    // Behind another pass, which hands it every record.
    let chain = format!("reindex-times,merge:guest={}", guest.display());
    done(perfx(args!["run", "-p", chain, path("host.data"), "-o", path("behind.data")]));
    assert!(merged == stored(&path("behind.data")), "not the records of a merge alone");
    // As perf is asked for it.
    let clock = clock_said(&merge(&path("host.data"), guest.to_str().unwrap(), &path("again.data")).stderr);
    let (offset, scale) = clock.unwrap();
    let guest_data = format!("--guest-data={},{PID},{offset},{scale}", guest.display());
    done(perfx(args!["inject", guest_data, path("host.data"), "-o", path("injected.data")]));
    same_bytes(
        "inject --guest-data",
        &fs::read(path("injected.data")).unwrap(),
        &fs::read(path("merged.data")).unwrap(),
    )
    .unwrap();
}

/// A guest is a directory, compressed, pipe data: the same records.
#[test]
fn a_guest_of_any_form_gives_the_same_records() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let host = path("host.data");
    assert_eq!(merge(&host, path("guest.data").to_str().unwrap(), &path("merged.data")).code, Some(0));
    let expected = stored(&path("merged.data"));
    // With its kernel's memory, as by perf record --kcore.
    fs::create_dir_all(path("guest.dir/kcore_dir")).unwrap();
    fs::copy(path("guest.data"), path("guest.dir/data")).unwrap();
    fs::write(path("guest.dir/kcore_dir/kallsyms"), "ffffffff81000000 T _text\n").unwrap();
    let ran = perfx(args!["merge", host, path("guest.dir"), "-o", path("merged.dir")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(expected == stored(&path("merged.dir")), "a directory has other records");
    let kallsyms = fs::read_to_string(path(&format!("merged.dir/kcore_dir__{PID}/kallsyms"))).unwrap();
    assert_eq!(kallsyms, "ffffffff81000000 T _text\n");
    let ran = merge(&host, path("guest.dir").to_str().unwrap(), &path("file.data"));
    assert!(ran.code == Some(3) && ran.stderr.contains("only a directory can hold it"), "{}", ran.stderr);
    // Compressed, on either side.
    for name in ["guest", "host"] {
        let ran = perfx(args!["compress", path(&format!("{name}.data")), "-o", path(&format!("{name}.z"))]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    for (host, guest) in [("host.data", "guest.z"), ("host.z", "guest.data"), ("host.z", "guest.z")] {
        let ran = merge(&path(host), path(guest).to_str().unwrap(), &path("z.data"));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(expected == stored(&path("z.data")), "{host} and {guest} have other records");
    }
}

/// A guest that is no guest: an error with a sentence, or a warning; never an unreadable recording.
#[test]
fn what_makes_no_sense_is_refused_or_suspect() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let host = path("host.data");
    let refused = |guest: String, part: &str| {
        let ran = merge(&host, &guest, &path("out.data"));
        assert!(ran.code == Some(1) && ran.stderr.contains(part), "{guest}: {:?} {}", ran.code, ran.stderr);
        assert!(!path("out.data").exists(), "{guest}");
    };
    fs::write(path("empty.data"), b"").unwrap();
    fs::write(path("text.data"), b"this is no recording, but long enough to be taken for one\n".repeat(4))
        .unwrap();
    refused("/dev/null".into(), "too few for a perf.data header");
    refused(path("empty.data").display().to_string(), "too few for a perf.data header");
    refused(path("text.data").display().to_string(), "magic");
    // The host is no guest of its own, nor is there any one moment.
    refused(format!("{},pid={PID}", host.display()), "can't be told");
    let few = crate::support::Fixture::new("recorded/switch.p61.data").path;
    let named: String = (0..8).map(|vcpu| format!(",vcpu={vcpu}:{}", THREADS[vcpu % 2])).collect();
    refused(format!("{},pid={PID}{named}", few.display()), "can't be told");
    // Guests' pids are no pids of the host, whatever their number.
    let clock = "offset=-14026330256359,scale=2.5961349024293154";
    let vcpus = format!("vcpu=0:{},vcpu=1:{}", THREADS[0], THREADS[1]);
    let guest = path("guest.data").display().to_string();
    let ran = merge(&host, &format!("{guest},pid=1,{vcpus},{clock}"), &path("one.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = merge(&path("one.data"), &format!("{guest},pid={PID},{clock}"), &path("two.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // VCPUs swapped: the schedule is another.
    let swapped = format!("vcpu=0:{},vcpu=1:{}", THREADS[1], THREADS[0]);
    let ran = merge(&host, &format!("{guest},pid={PID},{swapped},{clock}"), &path("swapped.data"));
    assert!(ran.code == Some(3) && ran.stderr.contains("but nearly all would"), "{}", ran.stderr);
}

#[test]
fn samples_come_along_when_asked_for() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let ran =
        perfx(args!["merge", "--samples", path("host.data"), path("guest.data"), "-o", path("merged.data")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (guest, merged) = (load(&path("guest.data")), load(&path("merged.data")));
    let count = |loaded: &Loaded, from: usize| {
        let ids: BTreeSet<u64> = loaded.events[from..].iter().flat_map(|event| event.ids.clone()).collect();
        loaded
            .records
            .iter()
            .filter(|record| record.kind == RecordType::SAMPLE && ids.contains(&record.id))
            .count()
    };
    let host = load(&path("host.data")).events.len();
    assert_eq!(count(&merged, host), count(&guest, 0));
    assert!(Layouts::new(&merged.events).check_ids().is_ok());
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let said =
            perf.run(Stdin::Null, args!["script", "-F", "+machine_pid,+vcpu", "-i", path("merged.data")]);
        assert!(said.text().contains("cpu-clock:G"), "{}: {}", perf.name, said.stderr);
        assert_eq!(said.text().matches("VM:").count(), count(&guest, 0), "{}", perf.name);
    }
}
