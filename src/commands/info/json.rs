//! The facts of `perfx info` as JSON, with exact numbers; `schemas/info.schema.json` describes the form.

use perfx_format::decode::{clock_name, decode_attr};
use perfx_format::event_name::NameSource;
use perfx_format::features::read_group_desc;
use perfx_format::header::Severity;
use perfx_format::read::Form;
use perfx_format::{Endian, Feature, Value};
use serde_json::{Map, Value as Json, json};

use super::facts::{InfoFacts, rfc3339};
use crate::term::render;

/// Version of the form; it increases whenever a reader of the old form would misread the new one.
const SCHEMA: u32 = 1;

/// One document.
pub(super) fn document(facts: &InfoFacts<'_>) -> Json {
    let mut document = Map::new();
    document.insert("schema".into(), json!(SCHEMA));
    document.insert("what".into(), "info".into());
    document.extend(parts(facts));
    Json::Object(document)
}

/// The same facts, with a line for each part, and for each item of a part that is a list.
pub(super) fn lines(facts: &InfoFacts<'_>) -> Vec<Json> {
    let line = |part: &str, value: Json| {
        let mut line = Map::new();
        line.insert("schema".into(), json!(SCHEMA));
        line.insert("what".into(), format!("info.{}", part.strip_suffix('s').unwrap_or(part)).into());
        if let Json::Object(fields) = value {
            line.extend(fields);
        }
        Json::Object(line)
    };
    let mut lines = Vec::new();
    for (part, value) in parts(facts) {
        match value {
            Json::Null => {}
            Json::Array(items) => lines.extend(items.into_iter().map(|item| line(&part, item))),
            value => lines.push(line(&part, value)),
        }
    }
    lines
}

fn parts(facts: &InfoFacts<'_>) -> Map<String, Json> {
    let mut parts = Map::new();
    for (name, value) in [
        ("header", header(facts)),
        ("count", counts(facts)),
        ("clock", clock(facts)),
        ("time", time(facts)),
        ("events", events(facts)),
        ("groups", groups(facts)),
        ("features", features(facts)),
        ("faults", faults(facts)),
    ] {
        parts.insert(name.into(), value);
    }
    parts
}

fn text(text: &[u8]) -> Json {
    render::json_value(&Value::Text(text))
}

/// 64-bit numbers are strings.
fn exact(number: u64) -> Json {
    number.to_string().into()
}

fn offset(offset: u64) -> Json {
    format!("{offset:#x}").into()
}

fn header(facts: &InfoFacts<'_>) -> Json {
    let recording = facts.recording;
    let mut header = Map::new();
    header.insert("name".into(), (*recording.name).into());
    let form = match recording.form {
        Form::File => "file",
        Form::Pipe => "pipe",
        Form::Directory { .. } => "directory",
    };
    header.insert("form".into(), form.into());
    if let Form::Directory { version } = recording.form {
        header.insert("directory_version".into(), exact(version));
    }
    let order = if recording.endian == Endian::Little { "little" } else { "big" };
    header.insert("byte_order".into(), order.into());
    if let Some(file) = &recording.file {
        header.insert("version".into(), json!(if file.magic.version1 { 1 } else { 2 }));
        header.insert("size".into(), exact(file.magic.size));
        for (name, section) in [("attrs", file.attrs), ("data", file.data)] {
            header
                .insert(name.into(), json!({"offset": offset(section.offset), "size": exact(section.size)}));
        }
        header.insert("feature_table".into(), json!({"offset": offset(file.data.end())}));
    }
    Json::Object(header)
}

fn counts(facts: &InfoFacts<'_>) -> Json {
    let recording = facts.recording;
    json!({
        "events": recording.events.len(),
        "ids": exact(recording.events.iter().map(|event| event.ids.len() as u64).sum()),
        "features": facts.features.len(),
        "build_ids": exact(facts.items(Feature::BUILD_ID, "dsos") as u64),
        "auxtrace_index": exact(facts.items(Feature::AUXTRACE, "entries") as u64),
        "streams": recording.stream_count(),
        "data_bytes": recording.data_size().map(exact),
    })
}

fn clock(facts: &InfoFacts<'_>) -> Json {
    let clock = &facts.clock;
    let resolution = facts.feature(Feature::CLOCKID).and_then(|decoded| decoded.get("resolution_ns"));
    json!({
        "clockid": clock.id,
        "name": clock.id.map_or(Some("perf"), clock_name),
        "resolution_ns": resolution.map(render::json_value),
        "reference": clock.reference.map(|reference| json!({
            "wall_ns": exact(reference.wall_ns),
            "clock_ns": exact(reference.clock_ns),
            "wall": rfc3339(reference.wall_ns),
        })),
    })
}

fn time(facts: &InfoFacts<'_>) -> Json {
    let Some(times) = facts.times else { return Json::Null };
    json!({
        "first_ns": exact(times.first_ns),
        "last_ns": exact(times.last_ns),
        "duration_ns": times.last_ns.checked_sub(times.first_ns).map(exact),
        "first_wall": facts.clock.wall(times.first_ns),
        "last_wall": facts.clock.wall(times.last_ns),
    })
}

fn events(facts: &InfoFacts<'_>) -> Json {
    let recording = facts.recording;
    let events = recording.events.iter().zip(&facts.names).enumerate();
    let event =
        |(index, (event, name)): (usize, (&perfx_format::Event, &perfx_format::event_name::EventName))| {
            let source = match name.source {
                NameSource::EventUpdate => "EVENT_UPDATE",
                NameSource::EventDesc => "EVENT_DESC",
                NameSource::EventTypes => "event types",
                NameSource::TracingData => "TRACING_DATA",
                NameSource::Attr => "attr",
            };
            let ids: Vec<Json> = event.ids.iter().map(|&id| exact(id)).collect();
            json!({
                "index": index,
                "name": text(&name.name),
                "name_from": source,
                "pmu": facts.pmu(event.attr().type_).map(text),
                "attr": render::json(&decode_attr(event.raw(), recording.endian)),
                "ids": ids,
            })
        };
    events.map(event).collect()
}

fn groups(facts: &InfoFacts<'_>) -> Json {
    let recording = facts.recording;
    let section = recording.features.get(&Feature::GROUP_DESC);
    let groups = section.and_then(|section| read_group_desc(section, recording.endian)).unwrap_or_default();
    let group = |group: perfx_format::features::GroupDesc<'_>| json!({"name": text(group.name), "leader": group.leader, "members": group.members});
    groups.into_iter().map(group).collect()
}

fn features(facts: &InfoFacts<'_>) -> Json {
    let file = facts.recording.file.as_ref();
    let feature = |section: &super::facts::Section<'_>| {
        let place =
            file.and_then(|file| file.sections.iter().find(|(feature, _)| *feature == section.feature));
        let odd = section.decoded.issues.iter().map(|odd| json!({"code": odd.code, "what": odd.what}));
        json!({
            "bit": section.feature.0,
            "name": section.feature.name(),
            "offset": place.map(|(_, place)| offset(place.offset)),
            "size": exact(section.size),
            "fields": render::json(&section.decoded.fields),
            "odd": odd.collect::<Vec<_>>(),
        })
    };
    facts.features.iter().map(feature).collect()
}

fn faults(facts: &InfoFacts<'_>) -> Json {
    let fault = |fault: &perfx_format::header::Fault| {
        let weight = match fault.severity {
            Severity::Odd => "odd",
            Severity::Loss => "loss",
            Severity::Fatal => "fatal",
        };
        json!({
            "code": fault.code,
            "offset": offset(fault.offset),
            "weight": weight,
            // `what` is already the type of an NDJSON line.
            "message": fault.what,
            "hint": fault.hint,
        })
    };
    facts.recording.faults.iter().map(fault).collect()
}
