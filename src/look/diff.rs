//! Compares the contents of two recordings in any form, and shows where they begin to differ.

mod compare;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::decode::decode_attr;
use perfx_format::event_name::event_names;
use perfx_format::features::{BuildIds, FeatureContext, NrCpus, decode_feature, trimmed_id};
use perfx_format::read::{Form, Recording};
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::{Endian, Event, Feature, Kinds, RecordType, Value, ValueFields};
use perfx_pipeline::{Level, Purpose, Report};
use schemars::JsonSchema;
use serde::Serialize;

use self::compare::{Aside, compare};
pub use self::compare::{FirstRecord, RecordPlace};
use self::values::differences;
pub use self::values::{Difference, Shown};
use crate::Result;
use crate::count::{Counted, count};
use crate::json::{ByteOrder, FormName};
use crate::render::{self, kind_name};

/// The differences between two recordings, as [`diff()`] returns them.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Diff {
    /// True if there is no difference
    pub equal: bool,
    /// One recording
    pub a: Side,
    /// The other recording
    pub b: Side,
    /// Equal records at the beginning
    pub equal_records: u64,
    /// Events, features; if records differ, their counts
    pub differences: Vec<Difference>,
    /// The first record that differs
    pub first_record: Option<FirstRecord>,
}

/// How a recording is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Side {
    /// The form of the recording
    #[serde(flatten)]
    pub form: FormName,
    /// Its byte order
    pub byte_order: ByteOrder,
}

impl Side {
    fn of(recording: &Recording) -> Side {
        Side { form: FormName(recording.form), byte_order: recording.endian.into() }
    }
}

const OF_FORM: [Feature; 3] = [Feature::AUXTRACE, Feature::COMPRESSED, Feature::DIR_FORMAT];

/// Kinds that are not counted: those compared with the header, and compressed records, which are expanded.
const ASIDE: Kinds = Kinds::HEADER
    .union(Kinds::COMPRESSED)
    .and(RecordType::EVENT_UPDATE)
    // Event types are not compared.
    .without(RecordType::HEADER_EVENT_TYPE);

/// Compares two recordings that can be read more than once (see [`Recording::spooled`]), except for details
/// of storage and features in `ignored`. After a difference, the records are counted on `threads` threads.
/// Faults of the recordings are reported.
///
/// # Errors
///
/// One of the recordings cannot be read.
pub fn diff(
    a: &mut Recording,
    b: &mut Recording,
    ignored: &BTreeSet<Feature>,
    threads: usize,
    report: &mut Report,
) -> Result<Diff> {
    for recording in [&*a, &*b] {
        report.say_faults(recording, Purpose::Describe);
    }
    let mut ignored = ignored.clone();
    ignored.extend(OF_FORM);
    let (found, equal_records) = Found::between(a, b, &mut ignored, threads, report)?;
    Ok(Diff {
        equal: found.differences.is_empty() && found.first.is_none(),
        a: Side::of(a),
        b: Side::of(b),
        equal_records,
        differences: found.differences,
        first_record: found.first,
    })
}

struct Contents {
    names: Vec<Vec<u8>>,
    build_ids: BTreeMap<BuildId, Vec<u8>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BuildId {
    filename: Vec<u8>,
    pid: i32,
    cpumode: u16,
    /// Without zeros at the end, which are padding.
    id: Vec<u8>,
}

impl Contents {
    /// Merges records that belong to the header into the contents.
    fn of(recording: &mut Recording, aside: Aside) -> Contents {
        let endian = recording.endian;
        let mut entries =
            recording.features.get(&Feature::BUILD_ID).map_or_else(Vec::new, |section| section.to_vec());
        for header in aside.header {
            entries.extend(recording.absorb(header).unwrap_or_default());
        }
        let build_id = |entry: BuildIdEntry<'_>| {
            let (filename, id) = (entry.filename.to_vec(), trimmed_id(entry.id).to_vec());
            (BuildId { filename, pid: entry.pid, cpumode: entry.cpumode(), id }, entry.id.to_vec())
        };
        let build_ids = BuildIds::new(&entries, endian).map(build_id).collect();
        let names = event_names(recording, &aside.names).into_iter().map(|name| name.name).collect();
        Contents { names, build_ids }
    }
}

#[derive(Default)]
struct Found {
    differences: Vec<Difference>,
    first: Option<FirstRecord>,
}

impl Found {
    fn between(
        a: &mut Recording,
        b: &mut Recording,
        ignored: &mut BTreeSet<Feature>,
        threads: usize,
        report: &mut Report,
    ) -> Result<(Found, u64)> {
        if (a.form == Form::Pipe) != (b.form == Form::Pipe) {
            // A file of perf stat needs feature STAT, which pipe data lacks.
            ignored.insert(Feature::STAT);
        }
        let compared = compare(a, b)?;
        let mut found = Found { first: compared.first, ..Found::default() };
        for (side, recording) in compared.sides.iter().zip([&*a, &*b]) {
            for fragment in &side.fragments {
                report.say(Level::Warning, fragment.to_error().file(&recording.name).to_string());
            }
        }
        let [side_a, side_b] = compared.sides;
        let (side_a, side_b) = (Contents::of(a, side_a), Contents::of(b, side_b));
        found.events(&side_a, &side_b, (a, b));
        found.features(&side_a, &side_b, (a, b), ignored);
        if found.first.is_some() {
            let counts = |recording: &mut Recording| {
                drop(recording.take_head());
                count(recording, threads, &mut Report::default())
            };
            let (counts_a, counts_b) = (counts(a)?, counts(b)?);
            found.counts(&counts_a, &counts_b);
        }
        Ok((found, compared.records))
    }

    fn events(&mut self, held_a: &Contents, held_b: &Contents, (a, b): (&Recording, &Recording)) {
        for index in 0..a.events.len().max(b.events.len()) {
            let place = format!("event {index}");
            let name = |held: &Contents| held.names.get(index).map(|name| Shown::new(&Value::Text(name)));
            let (one, other) = match (a.events.get(index), b.events.get(index)) {
                (Some(one), Some(other)) => (one, other),
                _ => {
                    let (a, b) = (name(held_a), name(held_b));
                    self.differences.push(Difference { place, field: String::new(), a, b });
                    continue;
                }
            };
            // The size of an attr is ignored: all attrs of a file have one size, so some grow.
            let size = one.raw().len().max(other.raw().len());
            let (raw_one, raw_other) = (one.written(size, a.endian), other.written(size, b.endian));
            let fields_one = event_fields(one, &raw_one, &held_a.names[index], a.endian);
            let fields_other = event_fields(other, &raw_other, &held_b.names[index], b.endian);
            self.differences.extend(differences(&place, &fields_one, &fields_other));
        }
    }

    fn features(
        &mut self,
        held_a: &Contents,
        held_b: &Contents,
        (a, b): (&Recording, &Recording),
        ignored: &BTreeSet<Feature>,
    ) {
        if !ignored.contains(&Feature::BUILD_ID) {
            let place = format!("feature {}", Feature::BUILD_ID);
            let all: BTreeSet<&BuildId> = held_a.build_ids.keys().chain(held_b.build_ids.keys()).collect();
            for id in all {
                let shown = |held: &Contents| Some(Shown::new(&Value::Bytes(held.build_ids.get(id)?)));
                let (a, b) = (shown(held_a), shown(held_b));
                if a.is_none() || b.is_none() {
                    let field = render::readable(&id.filename);
                    self.differences.push(Difference { place: place.clone(), field, a, b });
                }
            }
        }
        let both: BTreeSet<Feature> = a.features.keys().chain(b.features.keys()).copied().collect();
        for feature in
            both.into_iter().filter(|&feature| feature != Feature::BUILD_ID && !ignored.contains(&feature))
        {
            let place = format!("feature {feature}");
            let (Some(one), Some(other)) = (a.features.get(&feature), b.features.get(&feature)) else {
                let size = |recording: &Recording| {
                    recording.features.get(&feature).map(|section| Shown::bytes(section.len()))
                };
                let (a, b) = (size(a), size(b));
                self.differences.push(Difference { place, field: String::new(), a, b });
                continue;
            };
            if same_section(feature, one, other) && (a.endian == b.endian || feature == Feature::TRACING_DATA)
            {
                continue;
            }
            let decoded = |recording: &Recording, section| {
                let nr_cpus = recording.features.get(&Feature::NRCPUS);
                let cpus = nr_cpus.and_then(|section| NrCpus::read(section, recording.endian));
                render::with_odd(decode_feature(feature, section, recording.endian, FeatureContext { cpus }))
            };
            let found = differences(&place, &decoded(a, one), &decoded(b, other));
            if found.is_empty() && a.endian == b.endian {
                self.differences.push(Difference::between(
                    &place,
                    "bytes",
                    &Value::Bytes(one),
                    &Value::Bytes(other),
                ));
            }
            self.differences.extend(found);
        }
        if a.event_types != b.event_types {
            let (one, other) = (Value::Bytes(&a.event_types), Value::Bytes(&b.event_types));
            self.differences.push(Difference::between("event types", "", &one, &other));
        }
        // Only a directory can contain files besides the recording.
        let extras = |recording: &Recording| {
            recording
                .extras
                .iter()
                .filter_map(|path| path.file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect::<BTreeSet<_>>()
        };
        if matches!((a.form, b.form), (Form::Directory { .. }, Form::Directory { .. })) {
            let (one, other) = (extras(a), extras(b));
            for name in one.symmetric_difference(&other) {
                let shown = |names: &BTreeSet<String>| {
                    names.contains(name).then(|| Shown::new(&Value::Name("present".into())))
                };
                let (a, b) = (shown(&one), shown(&other));
                self.differences.push(Difference {
                    place: "directory".to_owned(),
                    field: name.clone(),
                    a,
                    b,
                });
            }
        }
    }

    /// If records differ, compares the number of records of each kind and of samples of each event.
    fn counts(&mut self, a: &Counted, b: &Counted) {
        let mut add = |place: String, one: u64, other: u64| {
            if one != other {
                let (a, b) = (Some(Shown::number(one)), Some(Shown::number(other)));
                self.differences.push(Difference { place, field: String::new(), a, b });
            }
        };
        let of_kind = |counted: &Counted| -> BTreeMap<RecordType, u64> {
            let kinds = counted.tally.kinds();
            kinds
                .iter()
                .filter(|(kind, _)| !ASIDE.contains(*kind))
                .map(|(kind, count)| (kind, count.records))
                .collect()
        };
        let (kinds_a, kinds_b) = (of_kind(a), of_kind(b));
        let both: BTreeSet<RecordType> = kinds_a.keys().chain(kinds_b.keys()).copied().collect();
        for kind in both {
            let count = |kinds: &BTreeMap<RecordType, u64>| kinds.get(&kind).copied().unwrap_or(0);
            add(format!("records of {}", kind_name(kind)), count(&kinds_a), count(&kinds_b));
        }
        for index in 0..a.tally.events.len().max(b.tally.events.len()) {
            let count =
                |counted: &Counted| counted.tally.events.get(index).map_or(0, |event| event.samples.records);
            add(format!("samples of event {index}"), count(a), count(b));
        }
    }
}

fn event_fields<'v>(event: &Event, raw: &'v [u8], name: &'v [u8], endian: Endian) -> ValueFields<'v> {
    let mut fields: ValueFields<'v> = vec![("name", Value::Text(name))];
    fields.extend(decode_attr(raw, endian).into_iter().filter(|(name, _)| *name != "size"));
    fields.push(("ids", Value::List(event.ids.iter().map(|&id| Value::Number(id)).collect())));
    fields
}

/// True if the bytes are equal. TRACING_DATA is padded with zeros to 8 bytes in pipe data.
fn same_section(feature: Feature, one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let padding = if feature == Feature::TRACING_DATA { 7 } else { 0 };
    long.strip_prefix(short).is_some_and(|rest| rest.len() <= padding && rest.iter().all(|&byte| byte == 0))
}
