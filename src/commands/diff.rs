//! `perfx diff` compares the contents of two recordings in any form, and shows where they begin to differ.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use perfx_format::decode::{decode, decode_attr, misc_names};
use perfx_format::event_name::event_names;
use perfx_format::features::{BuildIds, FeatureContext, NrCpus, decode_feature};
use perfx_format::read::{Batch, Form, Fragment, Recording};
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::record::event_update::name_update;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Endian, Event, Feature, Kinds, Layouts, Origin, Record, RecordType, Value, ValueFields};
use perfx_look::json::{FormName, ShownValue};
use perfx_look::render::{self, Style, kind_name};
use perfx_pipeline::{Level, Report, counted, scan_two};
use serde_json::{Value as Json, json};

use crate::args::{ReadArgs, Usage};
use crate::io::source::{Source, refuse_twice, temp_files};
use crate::tally::{Counted, count};

/// Compare two recordings: events, features, counts, and the first record that differs
///
/// Recordings are equal if they have the same contents, in any form: file, pipe data, directory,
/// compressed or not. Details of storage are ignored: offsets, the order of sections, the size of
/// attrs, features AUXTRACE, COMPRESSED and DIR_FORMAT, and whether names and build-ids are stored
/// in the header or among the records. If they are equal, nothing is printed to standard output.
///
/// Examples:
///   perfx diff a.data b.data
///   perfx diff --ignore HOSTNAME,CMDLINE expected.data new.data
///   perfx inject -b perf.data | perfx diff --json perf.data -
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, after_help = EXIT_CODES)]
pub(crate) struct Diff {
    /// Recording to compare; - is standard input
    #[arg(help_heading = "Input", value_name = "A")]
    a: PathBuf,
    /// The recording to compare it with
    #[arg(help_heading = "Input", value_name = "B")]
    b: PathBuf,
    /// Features that may differ
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',')]
    ignore: Vec<String>,
    #[command(flatten)]
    read: ReadArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  equal
  1  failed: one of them can't be read
  2  invalid command line
  3  different, or damaged";

/// Version of the JSON form.
const SCHEMA: u32 = 1;

/// Features about how a recording is stored, not about its contents.
const OF_FORM: [Feature; 3] = [Feature::AUXTRACE, Feature::COMPRESSED, Feature::DIR_FORMAT];

/// Kinds that are not counted: their contents are compared with the header, and compressed records are
/// expanded.
const ASIDE: [RecordType; 7] = [
    RecordType::HEADER_ATTR,
    RecordType::HEADER_FEATURE,
    RecordType::HEADER_TRACING_DATA,
    RecordType::HEADER_BUILD_ID,
    RecordType::EVENT_UPDATE,
    RecordType::COMPRESSED,
    RecordType::COMPRESSED2,
];

/// The characters of a value shown in text; JSON has all.
const SHOWN: usize = 120;

impl Diff {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut ignored = BTreeSet::from(OF_FORM);
        for name in &self.ignore {
            let wanted = name.to_ascii_uppercase();
            let Some(feature) = Feature::NAMED.iter().find(|feature| feature.name() == Some(&*wanted)) else {
                bail!(Usage(format!("unknown feature `{name}`")));
            };
            ignored.insert(*feature);
        }
        let sources = [&self.a, &self.b].map(|path| Source::named(path));
        refuse_twice(&sources)?;
        let (mut a, mut b) = (open(&sources[0])?, open(&sources[1])?);
        let mut report = Report::default();
        for recording in [&a, &b] {
            for fault in &recording.faults {
                report.say(Level::Warning, fault.to_error().file(&recording.name).to_string());
            }
        }
        let bar = self.read.verbosity.progress(&a);
        let threads = self.read.threads.count();
        let (found, records) = Found::between(&mut a, &mut b, &mut ignored, threads, &mut report)?;
        drop(bar);
        let names =
            [&a, &b].map(|recording| format!("{} ({})", recording.name, render::form_name(recording.form)));
        let equal = found.is_empty();
        self.read.format.print(|| found.text(), || found.document(&a, &b, records))?;
        let [name_a, name_b] = names;
        let same = counted(records, "record", "records");
        report.say(
            Level::Info,
            match equal {
                true => format!("{name_a} and {name_b} are equal: {same}"),
                false if records == 0 => {
                    format!("{name_a} and {name_b} differ from the first record on")
                }
                false => format!("{name_a} and {name_b} differ; the first {same} are equal"),
            },
        );
        let code = self.read.verbosity.print(&report);
        Ok(if equal { code } else { 3 })
    }
}

/// Counting after a difference needs a second reading, so an input that can be read only once is spooled.
fn open(source: &Source) -> Result<Recording> {
    Ok(source.open()?.spooled(&temp_files())?)
}

/// The result of reading the records of both.
struct Compared {
    /// The number of equal records at the front.
    records: u64,
    first: Option<FirstRecord>,
    sides: [Aside; 2],
}

/// Records that are compared with the header and not with other records.
#[derive(Default)]
struct Aside {
    header: Vec<HeaderRecord>,
    names: HashMap<u64, Vec<u8>>,
    fragments: Vec<Fragment>,
}

impl Aside {
    /// Takes in a record whose contents belong to the header; false for any other.
    fn take(&mut self, record: &Record<'_>, form: Form) -> perfx_format::Result<bool> {
        if let Some((id, name)) = name_update(record) {
            self.names.insert(id, name.to_vec());
            return Ok(true);
        }
        // perf inject puts build-ids among the records of a file, too.
        if form != Form::Pipe && record.kind() != RecordType::HEADER_BUILD_ID {
            return Ok(false);
        }
        let header = match HeaderRecord::read(record) {
            // In a file it is an ordinary record.
            Err(_) if form != Form::Pipe => None,
            header => header?,
        };
        let taken = header.is_some();
        self.header.extend(header);
        Ok(taken)
    }
}

/// The records of one recording without those that belong to the header.
struct Records<'i> {
    batches: &'i mut dyn Iterator<Item = perfx_format::Result<Batch>>,
    form: Form,
    batch: Option<Batch>,
    at: usize,
    aside: Aside,
}

impl Records<'_> {
    /// Goes to the next record; false if there is none.
    fn seek(&mut self) -> Result<bool> {
        loop {
            let Some(batch) = self.batch.as_ref().filter(|batch| self.at < batch.bytes.len()) else {
                let Some(next) = self.batches.next().transpose()? else { return Ok(false) };
                self.aside.fragments.extend(next.fragment);
                (self.batch, self.at) = (Some(next), 0);
                continue;
            };
            if self.is_plain() {
                return Ok(true);
            }
            let mut walker = batch.walk();
            walker.seek(self.at);
            let Some(record) = walker.next_record()? else { continue };
            if !self.aside.take(&record, self.form).map_err(|e| e.file(&batch.name))? {
                return Ok(true);
            }
            self.at = walker.position();
        }
    }

    /// True if no record of the current batch belongs to the header.
    fn is_plain(&self) -> bool {
        let header = Kinds::of(&HeaderRecord::KINDS).union(Kinds::of(&[RecordType::EVENT_UPDATE]));
        self.batch.as_ref().is_none_or(|batch| !batch.kinds.intersects(header))
    }

    /// The rest of the current batch.
    fn rest(&self) -> &[u8] {
        self.batch.as_ref().map_or(&[], |batch| &batch.bytes[self.at..])
    }

    /// The record found by `seek`.
    fn record(&self) -> Result<Option<(Record<'_>, &Layouts)>> {
        let Some(batch) = &self.batch else { return Ok(None) };
        let mut walker = batch.walk();
        walker.seek(self.at);
        Ok(walker.next_record()?.map(|record| (record, &*batch.layouts)))
    }

    /// The number of records in the next `bytes`, which end at a record boundary.
    fn count(&self, bytes: usize) -> Result<u64> {
        let Some(batch) = &self.batch else { return Ok(0) };
        if self.at == 0 && bytes == batch.bytes.len() {
            return Ok(batch.records);
        }
        let mut walker = batch.walk();
        walker.seek(self.at);
        let mut records = 0;
        while walker.position() < self.at + bytes && walker.next_record()?.is_some() {
            records += 1;
        }
        Ok(records)
    }
}

fn compare(a: &mut Recording, b: &mut Recording) -> Result<Compared> {
    let (form_a, form_b) = (a.form, b.form);
    let same_order = a.endian == b.endian;
    scan_two(a, b, |batches_a, batches_b| {
        let side = |batches, form| Records { batches, form, batch: None, at: 0, aside: Aside::default() };
        let (mut a, mut b) = (side(batches_a, form_a), side(batches_b, form_b));
        let mut records = 0;
        let first = loop {
            if !(a.seek()? & b.seek()?) {
                let end = FirstRecord::of(records, &a, &b)?;
                break (end.a.is_some() || end.b.is_some()).then_some(end);
            }
            // Equal bytes are equal records, and end at a record boundary in both.
            let run = a.rest().len().min(b.rest().len());
            if same_order && a.is_plain() && b.is_plain() && a.rest()[..run] == b.rest()[..run] {
                records += a.count(run)?;
                a.at += run;
                b.at += run;
                continue;
            }
            // A run that differs is read record by record up to the difference.
            let until = if same_order && a.is_plain() && b.is_plain() { a.at + run } else { a.at + 1 };
            let mut found = false;
            while a.at < until && !found {
                let (Some((one, layouts)), Some((other, other_layouts))) = (a.record()?, b.record()?) else {
                    break;
                };
                if same_record(&one, &other, layouts, other_layouts) {
                    let sizes = (one.whole_size() as usize, other.whole_size() as usize);
                    a.at += sizes.0;
                    b.at += sizes.1;
                    records += 1;
                } else {
                    found = true;
                }
            }
            if found {
                break Some(FirstRecord::of(records, &a, &b)?);
            }
        };
        // Records that belong to the header may still come.
        for side in [&mut a, &mut b] {
            while first.is_some() && side.seek()? {
                let end = side.batch.as_ref().map_or(0, |batch| batch.bytes.len());
                if side.is_plain() {
                    side.at = end;
                } else if let Some((record, _)) = side.record()? {
                    side.at += record.whole_size() as usize;
                }
            }
        }
        Ok(Compared { records, first, sides: [a.aside, b.aside] })
    })
}

/// True if the bytes are equal; for different byte orders, if the fields are.
fn same_record(one: &Record<'_>, other: &Record<'_>, layouts: &Layouts, other_layouts: &Layouts) -> bool {
    if one.endian() == other.endian() {
        return one.bytes() == other.bytes() && one.payload() == other.payload();
    }
    (one.kind(), one.misc(), one.payload()) == (other.kind(), other.misc(), other.payload())
        && decode(one, layouts) == decode(other, other_layouts)
}

/// The first record that differs.
#[derive(Default)]
struct FirstRecord {
    /// The number of equal records before it.
    number: u64,
    a: Option<RecordPlace>,
    b: Option<RecordPlace>,
    fields: Vec<Difference>,
}

/// A record and its place.
struct RecordPlace {
    kind: RecordType,
    origin: Origin,
    bytes: u64,
}

impl FirstRecord {
    fn of(number: u64, a: &Records<'_>, b: &Records<'_>) -> Result<FirstRecord> {
        let place = |record: &Record<'_>| RecordPlace {
            kind: record.kind(),
            origin: record.origin(),
            bytes: record.whole_size(),
        };
        let at_hand = |side: &Records<'_>| side.at < side.batch.as_ref().map_or(0, |batch| batch.bytes.len());
        let one = if at_hand(a) { a.record()? } else { None };
        let other = if at_hand(b) { b.record()? } else { None };
        let mut fields = Vec::new();
        if let (Some((one, layouts)), Some((other, other_layouts))) = (&one, &other)
            && one.kind() == other.kind()
        {
            let (fields_a, fields_b) = (record_fields(one, layouts), record_fields(other, other_layouts));
            fields = differences("", &fields_a, &fields_b);
            let (raw_a, raw_b) = (one.bytes(), other.bytes());
            if fields.is_empty() && raw_a != raw_b {
                fields.push(Difference::between("", "bytes", &Value::Bytes(raw_a), &Value::Bytes(raw_b)));
            } else if fields.is_empty() {
                fields.push(Difference::between(
                    "",
                    "payload",
                    &Value::Bytes(one.payload()),
                    &Value::Bytes(other.payload()),
                ));
            }
        }
        let (a, b) = (one.map(|(record, _)| place(&record)), other.map(|(record, _)| place(&record)));
        Ok(FirstRecord { number, a, b, fields })
    }
}

/// The contents of a recording besides its records.
struct Contents {
    names: Vec<Vec<u8>>,
    build_ids: BTreeSet<BuildId>,
}

/// A build-id from the header or from a record.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BuildId {
    filename: Vec<u8>,
    pid: i32,
    cpumode: u16,
    id: Vec<u8>,
}

impl BuildId {
    fn name(&self) -> String {
        render::readable(&self.filename)
    }

    fn shown(&self) -> Shown {
        Shown::new(&Value::Bytes(&self.id))
    }
}

impl Contents {
    /// Merges the records that belong to the header into the contents.
    fn of(recording: &mut Recording, aside: Aside) -> Contents {
        let endian = recording.endian;
        let mut entries =
            recording.features.get(&Feature::BUILD_ID).map_or_else(Vec::new, |section| section.to_vec());
        for header in aside.header {
            match header {
                HeaderRecord::Event(event) => recording.events.push(event),
                HeaderRecord::Feature(feature, section) => drop(recording.features.insert(feature, section)),
                HeaderRecord::BuildId(entry) => entries.extend(entry),
                HeaderRecord::EventType(entry) => recording.event_types.extend(entry),
                HeaderRecord::EndOfFeatures => {}
            }
        }
        let build_id = |entry: BuildIdEntry<'_>| BuildId {
            filename: entry.filename.to_vec(),
            pid: entry.pid,
            cpumode: entry.cpumode(),
            id: entry.id.to_vec(),
        };
        let build_ids = BuildIds::new(&entries, endian).map(build_id).collect();
        let names = event_names(recording, &aside.names).into_iter().map(|name| name.name).collect();
        Contents { names, build_ids }
    }
}

/// A value that differs.
struct Difference {
    /// What the value belongs to.
    place: String,
    field: String,
    a: Option<Shown>,
    b: Option<Shown>,
}

/// A value as it is shown.
struct Shown {
    text: String,
    json: Json,
}

impl Shown {
    fn new(value: &Value<'_>) -> Shown {
        Shown { text: render::value(value, Style::default()).to_string(), json: json!(ShownValue(value)) }
    }

    /// A number of bytes that are not shown.
    fn bytes(bytes: usize) -> Shown {
        Shown { text: format!("{bytes} bytes"), json: bytes.into() }
    }

    fn number(number: u64) -> Shown {
        Shown { text: crate::term::units::count(number), json: number.into() }
    }
}

impl Difference {
    fn between(place: &str, field: &str, a: &Value<'_>, b: &Value<'_>) -> Difference {
        let (a, b) = (Some(Shown::new(a)), Some(Shown::new(b)));
        Difference { place: place.to_owned(), field: field.to_owned(), a, b }
    }

    fn document(&self) -> Json {
        let json = |shown: &Option<Shown>| shown.as_ref().map(|shown| shown.json.clone());
        json!({ "in": self.place, "field": self.field, "a": json(&self.a), "b": json(&self.b) })
    }

    fn text(&self) -> String {
        let chars =
            |shown: &Option<Shown>| shown.iter().flat_map(|shown| shown.text.chars()).collect::<Vec<_>>();
        let (a, b) = (chars(&self.a), chars(&self.b));
        let alike = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        // Long values are shown from shortly before the first difference.
        let from = if a.len().max(b.len()) > SHOWN { alike.saturating_sub(SHOWN / 4) } else { 0 };
        let text = |shown: &Option<Shown>, chars: &[char]| {
            if shown.is_none() {
                return "absent".to_owned();
            }
            let part = chars.iter().skip(from).take(SHOWN);
            let (before, behind) = (from > 0, chars.len() > from + SHOWN);
            let dots = |cut: bool| cut.then_some('…');
            dots(before).into_iter().chain(part.copied()).chain(dots(behind)).collect()
        };
        let words = [&*self.place, &*self.field].into_iter().filter(|word| !word.is_empty());
        format!("{}: {} | {}\n", words.collect::<Vec<_>>().join(" "), text(&self.a, &a), text(&self.b, &b))
    }
}

/// The fields that differ, in the order of `a`.
fn differences(place: &str, a: &ValueFields<'_>, b: &ValueFields<'_>) -> Vec<Difference> {
    let find = |fields: &ValueFields<'_>, name: &str| {
        fields.iter().find(|(other, _)| *other == name).map(|(_, value)| Shown::new(value))
    };
    let names: Vec<&str> = a.iter().chain(b).map(|(name, _)| *name).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| seen.insert(*name)) {
        let (a, b) = (find(a, name), find(b, name));
        if a.as_ref().map(|shown| &shown.json) != b.as_ref().map(|shown| &shown.json) {
            found.push(Difference { place: place.to_owned(), field: name.to_owned(), a, b });
        }
    }
    found
}

/// All differences.
#[derive(Default)]
struct Found {
    differences: Vec<Difference>,
    first: Option<FirstRecord>,
}

/// The output of `perfx diff --json` for two recordings that can be read more than once.
pub fn document(a: &mut Recording, b: &mut Recording, threads: usize) -> Result<Json> {
    let mut ignored = BTreeSet::from(OF_FORM);
    let (found, records) = Found::between(a, b, &mut ignored, threads, &mut Report::default())?;
    Ok(found.document(a, b, records))
}

impl Found {
    /// All differences, and the number of equal records at the front.
    fn between(
        a: &mut Recording,
        b: &mut Recording,
        ignored: &mut BTreeSet<Feature>,
        threads: usize,
        report: &mut Report,
    ) -> Result<(Found, u64)> {
        if (a.form == Form::Pipe) != (b.form == Form::Pipe) {
            // A file of perf stat needs feature STAT, which its pipe data does not have.
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
                recording.head.clear();
                // Fragments were reported above.
                count(recording, threads, &mut Report::default())
            };
            let (counts_a, counts_b) = (counts(a)?, counts(b)?);
            found.counts(&counts_a, &counts_b);
        }
        Ok((found, compared.records))
    }

    fn is_empty(&self) -> bool {
        self.differences.is_empty() && self.first.is_none()
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
            // The size of an attr does not count: a file has one size for all, so that some attrs grow.
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
            for id in held_a.build_ids.symmetric_difference(&held_b.build_ids) {
                let shown = |held: &Contents| held.build_ids.contains(id).then(|| id.shown());
                let (a, b) = (shown(held_a), shown(held_b));
                self.differences.push(Difference { place: place.clone(), field: id.name(), a, b });
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
        // Only a directory can hold other files than the recording.
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
                .filter(|(kind, _)| !ASIDE.contains(kind))
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

    fn text(&self) -> String {
        let mut text: String = self.differences.iter().map(Difference::text).collect();
        if let Some(first) = &self.first {
            let place = |place: &Option<RecordPlace>| match place {
                None => "end".to_owned(),
                Some(RecordPlace { kind, origin, bytes }) => {
                    format!("{} of {bytes} bytes at {}", kind_name(*kind), origin)
                }
            };
            text += &format!("record {}: {} | {}\n", first.number, place(&first.a), place(&first.b));
            for field in &first.fields {
                text += &format!("  {}", field.text());
            }
        }
        text
    }

    fn document(&self, a: &Recording, b: &Recording, records: u64) -> Json {
        let recording = |recording: &Recording| {
            let order = if recording.endian == Endian::Little { "little" } else { "big" };
            json!({ "form": FormName(recording.form), "byte_order": order })
        };
        let place = |place: &Option<RecordPlace>| {
            place.as_ref().map(|RecordPlace { kind, origin, bytes }| {
                let (stream, _) = origin.stored_at().unwrap_or_default();
                let offset = origin.to_string();
                json!({
                    "kind": kind_name(*kind), "type": kind.0, "bytes": bytes,
                    "stream": stream, "offset": offset.trim_start_matches("offset "),
                })
            })
        };
        let fields = |fields: &[Difference]| fields.iter().map(Difference::document).collect::<Vec<_>>();
        json!({
            "schema": SCHEMA,
            "what": "diff",
            "equal": self.is_empty(),
            "a": recording(a),
            "b": recording(b),
            "equal_records": records,
            "differences": fields(&self.differences),
            "first_record": self.first.as_ref().map(|first| {
                json!({
                    "number": first.number, "a": place(&first.a), "b": place(&first.b),
                    "fields": fields(&first.fields),
                })
            }),
        })
    }
}

/// The fields shown of a record that differs.
fn record_fields<'a>(record: &Record<'a>, layouts: &Layouts) -> ValueFields<'a> {
    let misc = misc_names(record.kind(), record.misc());
    let mut fields: ValueFields<'a> = vec![("misc", Value::Name(misc.into()))];
    fields.extend(render::with_odd(decode(record, layouts)));
    fields
}

/// The compared fields of an event: its name, the fields of its attr, its ids.
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
