//! Checks everything around the records: header, attrs, ids, feature sections, and whether they agree.

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::decode::attr_issues;
use perfx_format::features::{
    AuxtraceEntry, BuildIds, Compressed, FeatureContext, SampleTime, StackTables, decode_feature,
    lacks_count, read_auxtrace_index, read_event_desc, read_group_desc,
};
use perfx_format::header::{FILE_HEADER_SIZE, FileHeader};
use perfx_format::read::{Form, Recording};
use perfx_format::section::Section;
use perfx_format::{Endian, Feature, Layouts, Origin, PAGE, bytes_of, bytes_that};

use crate::finding::{Findings, Location};
use crate::records::{Aux, Times};

/// The largest attr that perf 6.1 knows.
const ATTR_SIZE_61: usize = 128;
/// The largest attr that perf 7.3 knows; no perf knows a larger one.
const ATTR_SIZE_73: usize = 144;
pub(crate) fn check(recording: &Recording, context: FeatureContext, findings: &mut Findings) {
    for fault in &recording.faults {
        findings.add(fault.code.as_str(), Location::at(fault.offset, fault.what.clone()));
    }
    if let Some(file) = &recording.file {
        attrs(recording, file, findings);
        sections(file, findings);
        for (feature, section) in &file.sections {
            let Some(bytes) = recording.features.get(feature) else { continue };
            for mut odd in decode_feature(*feature, bytes, recording.endian, context).issues {
                odd.what = format!("feature {feature}: {}", odd.what);
                findings.issue(odd, Some(Origin::Input { stream: 0, offset: section.offset }), None);
            }
        }
        if recording.form == Form::File && recording.features.contains_key(&Feature::DIR_FORMAT) {
            findings.add("dir-format", location(recording, Feature::DIR_FORMAT, "it is a plain file"));
        }
        let no_front = file.magic.size == FILE_HEADER_SIZE as u64 && file.sections.is_empty();
        if recording.endian == Endian::Big && no_front && recording.faults.is_empty() {
            let what = "a big-endian header of 104 bytes without features";
            findings.add("features-none", Location::at(8, what));
        }
    }
    let tracepoint = recording.events.iter().position(|event| event.attr().is_tracepoint());
    // In pipe data TRACING_DATA comes after the other features, and may come late.
    if let Some(event) = tracepoint.filter(|_| recording.file.is_some())
        && !recording.features.contains_key(&Feature::TRACING_DATA)
    {
        let what = format!("event {event} is a tracepoint, but feature TRACING_DATA (1) is missing");
        findings.add("tracing-data-missing", Location::nowhere(what));
    }
    // perf checks this only in files, except those of perf stat.
    if recording.form != Form::Pipe
        && !recording.features.contains_key(&Feature::STAT)
        && let Err(error) = Layouts::new(&recording.events).check_ids()
    {
        findings.add("id-position", Location::nowhere(error.what()));
    }
    ids(recording, findings);
    agree(recording, findings);
}

fn location(recording: &Recording, feature: Feature, what: impl std::fmt::Display) -> Location {
    let sections = recording.file.as_ref().map(|file| file.sections.as_slice()).unwrap_or_default();
    let offset = sections.iter().find(|(other, _)| *other == feature).map(|(_, section)| section.offset);
    let what = format!("feature {feature}: {what}");
    match offset {
        Some(offset) => Location::at(offset, what),
        None => Location::nowhere(what),
    }
}

fn attrs(recording: &Recording, file: &FileHeader, findings: &mut Findings) {
    let mut at = file.attrs.offset;
    let mut largest = 0;
    for (index, event) in recording.events.iter().enumerate() {
        let size = event.raw().len();
        for mut odd in attr_issues(event.attr(), size) {
            odd.what = format!("event {index}: {}", odd.what);
            findings.issue(odd, Some(Origin::Input { stream: 0, offset: at }), None);
        }
        largest = largest.max(size);
        at += size as u64 + 16;
    }
    if recording.events.is_empty() {
        findings.add("no-event", Location::at(24, "there is no event"));
    }
    if largest > ATTR_SIZE_61 {
        let (code, who) =
            if largest > ATTR_SIZE_73 { ("attr-unknown", "7.3") } else { ("attr-newer", "6.1") };
        let what = format!("attr.size {largest} is larger than perf {who} knows");
        findings.add(code, Location::at(16, what));
    }
    // perf detects the byte order of version 1 by the sizes that an attr had at that time.
    if file.magic.version1 && largest > 104 {
        findings.add("version-1", Location::at(16, format!("attr.size {largest} in a file of version 1")));
    }
}

/// Finds parts of the file that share bytes, and bytes that nothing points to.
fn sections(file: &FileHeader, findings: &mut Findings) {
    let table = Section { offset: file.data.end(), size: file.sections.len() as u64 * 16 };
    let named = |name: &str, section: Section| (name.to_owned(), section);
    let mut parts = vec![named("the data", file.data), named("the feature table", table)];
    parts.extend(file.sections.iter().map(|(feature, section)| (format!("feature {feature}"), *section)));
    parts.push(named("the header", Section { offset: 0, size: file.magic.size }));
    parts.push(named("the attrs", file.attrs));
    parts.extend(file.ids.iter().enumerate().map(|(event, ids)| (format!("the ids of event {event}"), *ids)));
    parts.retain(|(_, part)| part.size > 0);
    parts.sort_by_key(|(_, part)| (part.offset, part.size));
    for pair in parts.windows(2) {
        let [(name, part), (next, other)] = pair else { continue };
        // The check of the header has already reported the attrs and the data.
        let is_checked = |name: &str| matches!(name, "the header" | "the attrs" | "the data");
        if part.end() > other.offset && !(is_checked(name) && is_checked(next)) {
            let what = format!("{next} begins inside {name}");
            findings.add("sections-overlap", Location::at(other.offset, what));
        }
    }
    if !file.trailing.is_empty() && !file.sections.is_empty() {
        let what = bytes_that(file.trailing.len(), " follows", " follow") + " the last section";
        findings.add("trailing-bytes", Location::at(file.len - file.trailing.len() as u64, what));
    }
    for hole in &file.holes {
        let what = bytes_of(hole.size) + " outside all sections";
        findings.add("hole", Location::at(hole.offset, what));
    }
}

fn ids(recording: &Recording, findings: &mut Findings) {
    let mut owners = BTreeMap::new();
    for (index, event) in recording.events.iter().enumerate() {
        for &id in event.ids.iter().filter(|&&id| id != 0) {
            if let Some(other) = owners.insert(id, index) {
                let what = format!("events {other} and {index} both have the id {id}");
                findings.add("id-twice", Location::nowhere(what));
            }
        }
    }
}

/// Checks that features agree with the events and with each other.
fn agree(recording: &Recording, findings: &mut Findings) {
    let endian = recording.endian;
    let section = |feature| recording.features.get(&feature);
    let mut add = |code, feature, what: String| findings.add(code, location(recording, feature, what));
    if let Some(desc) = section(Feature::EVENT_DESC).and_then(|section| read_event_desc(section, endian)) {
        if desc.len() != recording.events.len() {
            let what =
                format!("it describes {} events, but there are {}", desc.len(), recording.events.len());
            add("event-desc", Feature::EVENT_DESC, what);
        }
        let differ = desc.iter().zip(&recording.events).position(|(desc, event)| {
            let set = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<_>>();
            set(&desc.ids) != set(&event.ids)
        });
        if let Some(index) = differ {
            let what = format!("the ids of event {index} differ from those in the attrs section");
            add("event-desc", Feature::EVENT_DESC, what);
        }
    }
    if let Some(groups) = section(Feature::GROUP_DESC).and_then(|section| read_group_desc(section, endian)) {
        for group in groups {
            let end = u64::from(group.leader) + u64::from(group.members);
            if end > recording.events.len() as u64 {
                let what = format!(
                    "a group ends after event {end}, but there are {} events",
                    recording.events.len()
                );
                add("group-range", Feature::GROUP_DESC, what);
            }
        }
    }
    if let Some((code, what)) = StackTables::new(&recording.features, endian).fault() {
        add(code.as_str(), Feature::HIPERF_STACK_TABLE, what.clone());
    }
    if let Some(section) = section(Feature::BUILD_ID) {
        let mut entries = BuildIds::new(section, endian);
        while let Some((bytes, entry)) = entries.split() {
            if !entries.every_perf_reads(bytes, &entry) {
                let name = String::from_utf8_lossy(entry.filename);
                let what = format!(
                    "an id of more than 20 bytes, or a name that is unterminated or too long: {name}"
                );
                add("build-id-entry", Feature::BUILD_ID, what);
            }
        }
        if !entries.rest().is_empty() {
            let what =
                bytes_that(entries.rest().len(), " at its end is", " at its end are") + " not an entry";
            add("build-id-entry", Feature::BUILD_ID, what);
        }
    }
    if let Some(Compressed { mmap_len, .. }) = recording.compressed()
        && (mmap_len == 0 || !mmap_len.is_multiple_of(PAGE))
    {
        add("mmap-len", Feature::COMPRESSED, format!("mmap_len {mmap_len} is not a multiple of {PAGE}"));
    }
}

/// Checks feature SAMPLE_TIME: it holds the times of the first and the last sample, in time order or in file
/// order, because perf record sorts only if it must. A time between the two may be right, too, if another
/// recording was merged into this one.
pub(crate) fn times(recording: &Recording, times: &Times, findings: &mut Findings) {
    let section = recording.features.get(&Feature::SAMPLE_TIME);
    let recorded = section.and_then(|section| SampleTime::read(section, recording.endian));
    let mut add = |code, what| findings.add(code, location(recording, Feature::SAMPLE_TIME, what));
    let Some(recorded) = recorded else {
        if section.is_some() {
            add("sample-time", "too short for two times".to_owned());
        }
        return;
    };
    // perf record -B writes zeros instead of reading the samples.
    if recorded == SampleTime::default() {
        return;
    }
    let SampleTime { first_ns, last_ns } = recorded;
    let Some(first) = times.first else {
        if recorded.says_none() {
            add("sample-time-none", "its times are the largest number: no sample has a time".to_owned());
        } else if recorded.times().is_none_or(|(first, last)| first > last) {
            add("sample-time", format!("it says {first_ns} to {last_ns} ns, but no sample has a time"));
        }
        // Otherwise the samples with these times may have been left out.
        return;
    };
    let good = (times.oldest..=first).contains(&recorded.first_ns)
        && (times.last..=times.newest).contains(&recorded.last_ns);
    if !good {
        let (oldest, newest) = (times.oldest, times.newest);
        let what =
            format!("it says {first_ns} to {last_ns} ns, but samples are from {oldest} to {newest} ns");
        add("sample-time", what);
    }
}

/// Checks AUX data: each queue has one owner, the kind is known, and the index points at the records.
pub(crate) fn aux(recording: &Recording, aux: &[Aux], findings: &mut Findings) {
    let mut info = false;
    let mut owners = BTreeMap::new();
    let mut traces = BTreeMap::new();
    for mark in aux {
        let (origin, size, idx, owner) = match *mark {
            Aux::Trace { origin, size, idx, owner } => (origin, size, idx, owner),
            Aux::Info => {
                info = true;
                continue;
            }
            Aux::Index { .. } | Aux::Event(_) => continue,
        };
        let kind = Some(perfx_format::RecordType::AUXTRACE);
        let mut add = |code, what| findings.add(code, Location { origin: Some(origin), kind, what });
        if !info {
            add("auxtrace-info-missing", "no AUXTRACE_INFO before it".to_owned());
        }
        let (tid, cpu) = *owners.entry(idx).or_insert(owner);
        if (tid, cpu) != owner {
            let what = format!(
                "queue {idx} belongs to thread {} on CPU {} here, but to {} on {} before",
                owner.0 as i32, owner.1 as i32, tid as i32, cpu as i32
            );
            add("auxtrace-queue", what);
        }
        if let Some((0, offset)) = origin.stored_at() {
            traces.insert(offset, size);
        }
    }
    let mut add = |code, what: String| findings.add(code, location(recording, Feature::AUXTRACE, what));
    let Some(section) = recording.features.get(&Feature::AUXTRACE) else { return };
    let Some(index) = read_auxtrace_index(section, recording.endian) else {
        add("auxtrace-index", "it can't be read".to_owned());
        return;
    };
    if lacks_count(section, recording.endian) {
        add("auxtrace-index-uncounted", "perf takes its first offset for the number of entries".to_owned());
    }
    // perf then searches for the records itself.
    if index.is_empty() {
        add("auxtrace-index-empty", format!("it lists none of the {} AUXTRACE records", traces.len()));
    }
    let (mut listed, mut before) = (BTreeSet::new(), 0);
    for AuxtraceEntry { offset, size } in &index {
        let Some(real) = traces.get(offset) else {
            add("auxtrace-index", format!("no AUXTRACE record begins at {offset:#x}"));
            continue;
        };
        let is_new = listed.insert(*offset);
        if real != size {
            let what = format!("the AUXTRACE record at {offset:#x} has {real} bytes, not {size}");
            add("auxtrace-index", what);
        } else if !is_new {
            add("auxtrace-index", format!("the AUXTRACE record at {offset:#x} is listed twice"));
        } else if *offset < before {
            // perf decodes traces in the order of the index.
            let what = format!("the AUXTRACE record at {offset:#x} is listed after a later one");
            add("auxtrace-index", what);
        }
        before = *offset;
    }
    for offset in traces.keys().filter(|offset| !index.is_empty() && !listed.contains(offset)) {
        add("auxtrace-index", format!("the AUXTRACE record at {offset:#x} is not listed"));
    }
}

/// Checks that ID_INDEX lists the ids of all events, and precedes AUX data that needs it.
pub(crate) fn id_index(recording: &Recording, aux: &[Aux], findings: &mut Findings) {
    let kind = Some(perfx_format::RecordType::ID_INDEX);
    let mut listed: BTreeSet<u64> = BTreeSet::new();
    let (mut first, mut info, mut early, mut late) = (None, false, None, None);
    let mut ids: BTreeSet<u64> = recording.events.iter().flat_map(|event| &event.ids).copied().collect();
    for mark in aux {
        match mark {
            Aux::Index { origin, ids, whole } => {
                late = late.or(Some(*origin).filter(|_| info && first.is_none()));
                first = first.or(Some(*origin));
                listed.extend(ids);
                if !whole {
                    let what = format!("it only has room for {} entries", ids.len());
                    findings.add("id-index", Location { origin: Some(*origin), kind, what });
                }
            }
            Aux::Event(later) => {
                early = first;
                ids.extend(later);
            }
            Aux::Info => info = true,
            Aux::Trace { .. } => {}
        }
    }
    for (origin, what) in [(late, "it comes after AUXTRACE_INFO"), (early, "it comes before an event")] {
        if origin.is_some() {
            findings.add("id-index", Location { origin, kind, what: what.to_owned() });
        }
    }
    let lacking = ids.iter().filter(|&id| *id != 0 && !listed.contains(id)).count();
    if lacking > 0 && (first.is_some() || info) {
        let what = format!("it lacks {lacking} ids of events");
        findings.add("id-index", Location { origin: first, kind, what });
    }
}
