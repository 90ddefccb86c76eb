//! Checks a merged recording: by the assertions A1 to A14 below, and by perf's own merge of the same pair.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use perfx_format::features::{BuildIds, read_event_desc};
use perfx_format::read::{Expand, Recording};
use perfx_format::{Event, Feature, RecordType, until_nul};
use perfx_passes::Merge;

/// The parts of a record that a merge affects.
#[derive(Clone, Debug)]
pub(super) struct Rec {
    pub(super) kind: RecordType,
    pub(super) misc: u16,
    /// Without header and trailer.
    pub(super) body: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    pub(super) time: u64,
    pub(super) id: u64,
    pub(super) cpu: Option<u32>,
    pub(super) task: (u32, u32),
}

pub(super) struct Loaded {
    pub(super) events: Vec<Event>,
    pub(super) features: perfx_format::header::Features,
    pub(super) records: Vec<Rec>,
}

pub(super) fn load(path: &Path) -> Loaded {
    let mut recording = Recording::open(path).unwrap();
    let endian = recording.endian;
    let mut records = Vec::new();
    for batch in Expand::new(recording.batches(), endian, 0) {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
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
                time: layout.and_then(|layout| layout.recorded_time(&record)).unwrap_or(0),
                id: layout.and_then(|layout| layout.id(&record)).unwrap_or(0),
                cpu: layout.and_then(|layout| layout.cpu(&record)),
                task: layout.and_then(|layout| layout.pid_tid(&record)).unwrap_or_default(),
            });
        }
    }
    Loaded { events: recording.events.clone(), features: recording.features.clone(), records }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// perf's formula, computed in doubles as in perf.
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

/// `offset=N,scale=F` from the report.
pub(super) fn clock_said(stderr: &str) -> Option<(i64, f64)> {
    let (_, rest) = stderr.split_once(": offset=")?;
    let (offset, rest) = rest.split_once(",scale=")?;
    Some((offset.parse().ok()?, rest.lines().next()?.parse().ok()?))
}

/// An error with this text unless the condition is true.
pub(super) fn holds(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

/// Checks the assertions A1 to A14.
pub(super) fn check(
    host: &Loaded,
    guest: &Loaded,
    merged: &Loaded,
    pid: u32,
    clock: (i64, f64),
) -> Result<(), String> {
    let identified = host.events.iter().all(|event| event.attr().sample_type >> 16 & 1 == 1);
    // A1: the host's events come first and unchanged, the guest's differ in three places.
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
    // The owner of each record.
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
    // A4: all of the host's records are there, in order.
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
        Merge::KINDS.contains(record.kind)
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
    // A10: the times and CPUs of each VCPU's thread.
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
    // A8: no record is older than those already flushed by a FINISHED_ROUND.
    let (mut allowed, mut seen_before, mut seen) = (0, 0, 0);
    for record in &merged.records {
        if record.kind == RecordType::FINISHED_ROUND {
            (allowed, seen_before) = (seen_before, seen);
        } else if record.time != 0 && record.time != u64::MAX {
            holds(record.time >= allowed, || format!("A8: {record:?} is older than {allowed}"))?;
            seen = seen.max(record.time);
        }
    }
    // A9: markers exchanged between host and guest, at most 30 µs apart.
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

/// The number of records in two merges of the same recordings that differ, by kind and difference, in any
/// order.
pub(super) fn differences(ours: &Loaded, theirs: &Loaded) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut count = |record: &Rec, what: &str| {
        let whose = if record.misc & 7 >= 4 && record.kind.is_kernel() { "guest's" } else { "host's" };
        *counts.entry(format!("{whose} {}: {what}", record.kind)).or_default() += 1;
    };
    // Known errors of perf are separate: the host's CPU, and a LOST record's own id.
    let key = |record: &Rec| {
        let mut body = record.body.clone();
        if record.kind == RecordType::LOST {
            body[..8].fill(0);
        }
        (record.kind, record.misc, record.time, record.id, record.task, body)
    };
    let mut left: HashMap<_, Vec<&Rec>> = HashMap::new();
    theirs.records.iter().rev().for_each(|record| left.entry(key(record)).or_default().push(record));
    for record in &ours.records {
        match left.get_mut(&key(record)).and_then(Vec::pop) {
            None => count(record, "not in perf's"),
            Some(other) => {
                if record.cpu != other.cpu {
                    count(record, "another CPU");
                }
                if record.body != other.body {
                    count(record, "another id lost");
                }
            }
        }
    }
    left.values().flatten().for_each(|record| count(record, "perf's alone"));
    counts
}
