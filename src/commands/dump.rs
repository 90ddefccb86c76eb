//! `perfx dump` shows the whole recording, one record a line, in a text that is the same on every machine.

mod packets;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::sync::Mutex;

use anyhow::Result;
use clap::Args;
use perfx_auxtrace::trace_of;
use perfx_format::decode::{decode, decode_attr, misc_names};
use perfx_format::features::{FeatureContext, NrCpus, decode_feature, read_event_desc};
use perfx_format::header::Severity;
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::{
    Endian, Feature, HexNumber, Kinds, Layouts, Origin, Record, RecordType, Value, ValueFields, push_hex,
};
use perfx_look::json::{Document, Fields, HexDigits, Kind, Offset, Place, push_json};
use perfx_look::render::{self, Style, push_line, push_number};
use perfx_pipeline::{Level, Purpose, Report, scan_past};
use schemars::JsonSchema;
use serde::Serialize;

use self::packets::{PacketEntry, Packets};
use crate::args::{Format, ReadArgs, record_kind};
use crate::io::output::stdout;
use crate::io::source::{InputArgs, Source};
use crate::io::streams;
use crate::term::report::{heading, message};

/// Show a recording: header, events, features, then a line for each record
///
/// Each line has: offset, kind, size in bytes, misc bits, then the decoded fields. A record that was
/// compressed has two offsets: that of the COMPRESSED record in which it begins, and its own within
/// the expanded data. Anything unexpected is shown at the end of the line as odd=[…].
///
/// With --aux the packets of Intel PT and CoreSight follow each AUXTRACE record, and each sample that has a
/// trace: their offset in its data and their bytes, with the descriptions of perf script -D; for CoreSight
/// the id of the trace unit instead of the bytes. A packet that continues in the next record is shown as bad,
/// as in perf.
///
/// Examples:
///   perfx dump perf.data
///   perfx dump --kind AUXTRACE --aux perf.data
///   perfx dump --kind MMAP2,COMM perf.data
///   perfx dump --json perf.data | jq '.records[] | select(.kind == "COMM")'
///   perf record -o - ./program | perfx dump --format ndjson
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Dump {
    #[command(flatten)]
    input: InputArgs,
    /// Show only records of these kinds, given by name or number, and no header
    #[arg(long, alias = "only", value_name = "KIND,…", value_delimiter = ',')]
    kind: Vec<String>,
    /// Also show the bytes of each record
    #[arg(long)]
    raw: bool,
    /// Show COMPRESSED records themselves instead of the records they hold
    #[arg(long)]
    stored: bool,
    /// Show the packets of hardware traces: Intel PT, Arm SPE, and ETMv4 and ETE of CoreSight
    #[arg(long)]
    aux: bool,
    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) type Output<'r> = Document<SCHEMA, Printed<'r>>;

/// Version of the JSON forms; it increases whenever a reader of the old form would misread the new one.
const SCHEMA: u32 = 1;

/// # perfx dump
///
/// The document of perfx dump --format json, or a line of --format ndjson
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "lowercase")]
#[schemars(deny_unknown_fields)]
pub(crate) enum Printed<'r> {
    #[expect(dead_code, reason = "`Shown` writes it part by part")]
    Dump {
        /// Absent with --kind
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Header<'r>")]
        header: Option<Header<'r>>,
        faults: Vec<Fault<'r>>,
        events: Vec<Event<'r>>,
        features: Vec<FeatureEntry<'r>>,
        records: Vec<RecordEntry<'r>>,
        /// Why the rest could not be read
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        error: Option<String>,
    },
    Header(Header<'r>),
    Fault(Fault<'r>),
    Event(Event<'r>),
    Feature(FeatureEntry<'r>),
    Record(RecordEntry<'r>),
    Error {
        /// Why the rest could not be read
        error: String,
    },
}

/// The header of the recording.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Header<'r> {
    fields: Fields<'r>,
}

/// A fault of the header.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Fault<'r> {
    fields: Fields<'r>,
}

/// An event.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Event<'r> {
    /// Index of the event, from 0
    which: String,
    fields: Fields<'r>,
}

/// A feature section.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FeatureEntry<'r> {
    /// NAME (bit)
    which: String,
    fields: Fields<'r>,
}

/// A record.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct RecordEntry<'r> {
    #[serde(flatten)]
    place: Place,
    #[serde(flatten)]
    kind: Kind,
    /// header.size, bytes
    #[schemars(range(min = 8))]
    size: u16,
    misc: Cow<'static, str>,
    fields: Fields<'r>,
    /// With --raw: the bytes of the record
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HexDigits<'r>")]
    raw: Option<HexDigits<'r>>,
    /// With --aux: the packets of a trace, which are written one after the other
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<PacketEntry<'r>>")]
    packets: Option<Vec<PacketEntry<'r>>>,
}

/// The members of the JSON document, in order: an object, then arrays.
const MEMBERS: [&str; 5] = ["header", "faults", "events", "features", "records"];

struct Shown<W> {
    out: W,
    format: Format,
    /// The index in [`MEMBERS`] of the current member, and true if it has content.
    member: Option<(usize, bool)>,
}

impl<W: Write> Shown<W> {
    fn new(out: W, format: Format) -> Shown<W> {
        Shown { out, format, member: None }
    }

    fn json(&mut self, part: Printed<'_>) -> io::Result<()> {
        if self.format == Format::Ndjson {
            return self.line(&Output::new(part), b"\n");
        }
        match &part {
            Printed::Header(header) => self.member(0, header),
            Printed::Fault(fault) => self.member(1, fault),
            Printed::Event(event) => self.member(2, event),
            Printed::Feature(feature) => self.member(3, feature),
            Printed::Record(_) | Printed::Dump { .. } | Printed::Error { .. } => Ok(()),
        }
    }

    fn member(&mut self, member: usize, part: &impl Serialize) -> io::Result<()> {
        self.advance(member)?;
        let Some((_, begun)) = &mut self.member else { return Ok(()) };
        if member > 0 {
            self.out.write_all(if std::mem::replace(begun, true) { b",\n" } else { b"\n" })?;
        }
        self.line(part, b"")
    }

    fn line(&mut self, value: &impl Serialize, end: &[u8]) -> io::Result<()> {
        let mut line = Vec::new();
        push_json(&mut line, value, false)?;
        line.extend_from_slice(end);
        self.out.write_all(&line)
    }

    fn records(&mut self, mut text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if self.format == Format::Json {
            self.advance(MEMBERS.len() - 1)?;
            if let Some((_, begun)) = &mut self.member
                && !std::mem::replace(begun, true)
            {
                text = text.strip_prefix(b",").unwrap_or(text);
            }
        }
        self.out.write_all(text)
    }

    /// Ends members, and writes empty ones, before this one.
    fn advance(&mut self, to: usize) -> io::Result<()> {
        let mut at = match self.member {
            Some((at, _)) => at + 1,
            None => {
                write!(self.out, "{{\"schema\": {SCHEMA}, \"what\": \"dump\"")?;
                // Without a header, `header` is absent, not empty.
                usize::from(to > 0)
            }
        };
        while at <= to {
            self.close()?;
            let name = MEMBERS[at];
            write!(self.out, ",\n\"{name}\": {}", if at == 0 { "" } else { "[" })?;
            self.member = Some((at, false));
            at += 1;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        match self.member {
            None | Some((0, _)) => Ok(()),
            Some((_, begun)) => self.out.write_all(if begun { b"\n]" } else { b"]" }),
        }
    }

    fn end(&mut self, error: Option<&anyhow::Error>) -> io::Result<()> {
        match (self.format, error.map(message)) {
            (Format::Json, error) => {
                self.advance(MEMBERS.len() - 1)?;
                self.close()?;
                if let Some(error) = error {
                    self.out.write_all(b",\n\"error\": ")?;
                    self.line(&error, b"")?;
                }
                self.out.write_all(b"}\n")?;
            }
            (Format::Ndjson, Some(error)) => self.json(Printed::Error { error })?,
            (Format::Ndjson | Format::Text, _) => {}
        }
        self.out.flush()
    }
}

impl Dump {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut only = Vec::new();
        for kind in &self.kind {
            only.push(record_kind(kind)?);
        }
        let mut recording = Source::of(&self.input).open()?;
        if !recording.is_rereadable() {
            recording = recording.live();
        }
        // Records scrolling on a terminal already show progress.
        let bar = (!streams::stdout().is_terminal()).then(|| self.read.verbosity.progress(&recording));
        let format = self.read.format.format();
        let mut out = Shown::new(BufWriter::with_capacity(1 << 16, stdout()), format);
        let mut report = Report::default();
        let wanted = if only.is_empty() { Kinds::ALL } else { Kinds::of(&only) };
        let mut packets = self.aux.then(|| Packets::new(format));
        let listed = if self.aux { Packets::KINDS } else { Kinds::NONE };
        let records = Records { wanted, only, listed, raw: self.raw, format, spare: Mutex::default() };
        let shown = self.show(&mut recording, &records, packets.as_mut(), &mut out, &mut report);
        out.end(shown.as_ref().err())?;
        drop(bar);
        shown?;
        if !self.stored && records.only.iter().any(|kind| kind.is_compressed()) {
            let what = "COMPRESSED records are shown expanded; --stored shows the records themselves";
            report.say(Level::Info, what);
        }
        packets.iter().for_each(|packets| packets.finish(&mut report));
        Ok(self.read.verbosity.print(&report))
    }

    fn show(
        &self,
        recording: &mut Recording,
        records: &Records,
        mut packets: Option<&mut Packets>,
        out: &mut Shown<impl Write>,
        report: &mut Report,
    ) -> Result<()> {
        if records.only.is_empty() {
            self.header(recording, out)?;
        }
        let head = recording.take_head();
        for batch in head {
            records.write(&batch, Page::default(), packets.as_deref_mut(), out)?;
        }
        report.say_faults(recording, Purpose::UseRecords);
        let pipe = recording.form == Form::Pipe;
        // Other threads read ahead: after `head` closes the output, they might wait for `perf record -o -`.
        let live = !recording.is_rereadable();
        let threads = if live { 1 } else { self.read.threads.count(recording) };
        if live {
            out.out.flush()?;
        }
        let shown = scan_past(
            recording,
            threads,
            !self.stored,
            |batch| records.page(batch, 0),
            |read| {
                let (batch, page) = read?;
                records.write(batch, page, packets.as_deref_mut(), out)?;
                if let Some(fragment) = &batch.fragment {
                    let error = fragment.to_error().file(&batch.name);
                    if !pipe && matches!(fragment.origin, Origin::Input { .. }) {
                        return Err(error.into());
                    }
                    report.say(Level::Warning, error.to_string());
                }
                if live {
                    // The recorder may pause now.
                    out.out.flush()?;
                }
                Ok(())
            },
        );
        // A fault of the header explains an error in the records.
        recording.check_whole()?;
        Ok(shown?)
    }

    fn header(&self, recording: &Recording, out: &mut Shown<impl Write>) -> Result<()> {
        let endian = recording.endian;
        let mut fields: ValueFields<'_> = vec![
            ("form", Value::Name(render::form_name(recording.form).into())),
            ("byte_order", Value::Name(if endian == Endian::Little { "little" } else { "big" }.into())),
        ];
        if let Some(file) = &recording.file {
            fields.push(("version", Value::Number(if file.magic.version1 { 1 } else { 2 })));
            fields.push(("header_size", Value::Number(file.magic.size)));
            for (name, section) in [("attrs", file.attrs), ("data", file.data)] {
                let place =
                    vec![("offset", Value::Hex(section.offset)), ("size", Value::Number(section.size))];
                fields.push((name, Value::Map(place)));
            }
        }
        self.part(out, "header", &fields, |fields| Printed::Header(Header { fields }))?;
        for fault in &recording.faults {
            let weight = match fault.severity {
                Severity::Odd => "odd",
                Severity::Loss => "loss",
                Severity::Fatal => "fatal",
            };
            let fields = vec![
                ("offset", Value::Hex(fault.offset)),
                ("code", Value::Name(fault.code.as_str().into())),
                ("weight", Value::Name(weight.into())),
                ("what", Value::Name(fault.what.clone().into())),
            ];
            self.part(out, "fault", &fields, |fields| Printed::Fault(Fault { fields }))?;
        }
        let names =
            recording.features.get(&Feature::EVENT_DESC).and_then(|section| read_event_desc(section, endian));
        for (index, event) in recording.events.iter().enumerate() {
            let mut fields: ValueFields<'_> = Vec::new();
            if let Some(name) = names.as_ref().and_then(|names| names.get(index)) {
                fields.push(("name", Value::Text(name.name)));
            }
            fields.extend(decode_attr(event.raw(), endian));
            fields.push(("ids", Value::List(event.ids.iter().map(|&id| Value::Number(id)).collect())));
            let which = index.to_string();
            let entry = |fields| Printed::Event(Event { which: which.clone(), fields });
            self.part(out, &format!("event {which}"), &fields, entry)?;
        }
        let cpus = recording.features.get(&Feature::NRCPUS).and_then(|section| NrCpus::read(section, endian));
        for (&feature, section) in &recording.features {
            let mut fields =
                render::with_odd(decode_feature(feature, section, endian, FeatureContext { cpus }));
            fields.insert(0, ("bytes", Value::Number(section.len() as u64)));
            if self.raw {
                fields.push(("raw", Value::Bytes(section)));
            }
            let which = feature.to_string();
            let entry = |fields| Printed::Feature(FeatureEntry { which: which.clone(), fields });
            self.part(out, &format!("feature {which}"), &fields, entry)?;
        }
        Ok(())
    }

    fn part<'f>(
        &self,
        out: &mut Shown<impl Write>,
        name: &str,
        fields: &'f ValueFields<'f>,
        part: impl FnOnce(Fields<'f>) -> Printed<'f>,
    ) -> Result<()> {
        if out.format == Format::Text {
            write!(
                out.out,
                "{}\n{}",
                heading(name),
                render::indented(fields, 1, Style { all_bytes: self.raw })
            )?;
        } else {
            out.json(part(fields.into()))?;
        }
        Ok(())
    }
}

struct Records {
    /// The kinds that are shown, and others that share their bits.
    wanted: Kinds,
    /// The kinds that are shown; if empty, all.
    only: Vec<RecordType>,
    /// The kinds after which a page ends, because packets may follow.
    listed: Kinds,
    raw: bool,
    format: Format,
    /// Written pages, whose memory is reused: the kernel would have to clear new memory.
    spare: Mutex<Vec<Vec<u8>>>,
}

struct Page {
    text: Vec<u8>,
    /// The position of the last record, if packets may follow it.
    listed: Option<usize>,
    /// The position of the record to continue with; `None` at the end of the batch.
    next: perfx_format::Result<Option<usize>>,
}

impl Default for Page {
    fn default() -> Page {
        Page { text: Vec::new(), listed: None, next: Ok(Some(0)) }
    }
}

/// A page ends after this many bytes of text, to bound memory.
const PAGE: usize = 16 << 20;

impl Records {
    fn write(
        &self,
        batch: &Batch,
        mut page: Page,
        mut packets: Option<&mut Packets>,
        out: &mut Shown<impl Write>,
    ) -> perfx_pipeline::Result<()> {
        loop {
            out.records(&page.text)?;
            if let Some((at, packets)) = page.listed.zip(packets.as_deref_mut())
                && let Some(record) = batch.walk().record_at(at)?
            {
                packets.write(&record, &batch.layouts, self.shows(&record), &mut out.out)?;
            }
            page.text.clear();
            if let Ok(mut spare) = self.spare.lock() {
                spare.push(page.text);
            }
            match page.next.map_err(|error| error.file(&batch.name))? {
                Some(at) => page = self.page(batch, at),
                None => return Ok(()),
            }
        }
    }

    fn page(&self, batch: &Batch, from: usize) -> Page {
        let mut text = self.spare.lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default();
        let mut walker = batch.walk();
        walker.seek(from);
        let mut listed = None;
        let mut fill = || {
            while let Some(record) = walker.next_wanted(self.wanted.union(self.listed), usize::MAX)? {
                if self.shows(&record) {
                    self.push(&mut text, &record, batch);
                }
                if self.lists(&record, &batch.layouts) {
                    listed = Some(walker.position() - record.whole_size() as usize);
                }
                if text.len() >= PAGE || listed.is_some() {
                    return Ok(Some(walker.position()));
                }
            }
            Ok(None)
        };
        let next = fill();
        Page { text, listed, next }
    }

    fn shows(&self, record: &Record<'_>) -> bool {
        self.only.is_empty() || self.only.contains(&record.kind())
    }

    fn lists(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        let kind = record.kind();
        self.listed.contains(kind) && (kind != RecordType::SAMPLE || trace_of(record, layouts).is_some())
    }

    /// Appends a record as a line, or as a comma and a member of the JSON document.
    fn push(&self, text: &mut Vec<u8>, record: &Record<'_>, batch: &Batch) {
        let kind = record.kind();
        let misc = misc_names(kind, record.misc());
        let fields = render::with_odd(decode(record, &batch.layouts));
        if self.format == Format::Text {
            self.push_line(text, record, &misc, &fields);
            return;
        }
        let entry = RecordEntry {
            place: Place(record.origin()),
            kind: Kind(kind),
            size: record.bytes().len() as u16,
            misc,
            fields: fields.into(),
            raw: self.raw.then_some(HexDigits(record.bytes())),
            packets: None,
        };
        let begin = text.len();
        if self.format == Format::Json {
            text.extend_from_slice(b",\n");
            push_json(text, &entry, false).ok();
        } else {
            push_json(text, &Output::new(Printed::Record(entry)), false).ok();
            text.push(b'\n');
        }
        if !self.listed.is_empty() && trace_of(record, &batch.layouts).is_some() {
            // The object continues with the packets.
            let end = text[begin..].trim_ascii_end().len();
            text.truncate(begin + end - 1);
        }
    }

    fn push_line(&self, text: &mut Vec<u8>, record: &Record<'_>, misc: &str, fields: &ValueFields<'_>) {
        if let Some((stream, _)) = record.origin().stored_at().filter(|&(stream, _)| stream > 0) {
            push_number(text, stream);
            text.push(b':');
        }
        match record.origin() {
            Origin::Input { offset, .. } => text.extend_from_slice(HexNumber::new(offset).as_bytes()),
            origin => text.extend_from_slice(Offset(origin).to_string().as_bytes()),
        }
        text.push(b' ');
        text.extend_from_slice(render::kind_name(record.kind()).as_bytes());
        text.extend_from_slice(b" size=");
        push_number(text, record.bytes().len());
        text.extend_from_slice(b" misc=");
        text.extend_from_slice(misc.as_bytes());
        if !fields.is_empty() {
            text.push(b' ');
            push_line(text, fields, Style { all_bytes: self.raw });
        }
        if self.raw {
            text.extend_from_slice(b" raw=");
            push_hex(text, record.bytes());
        }
        text.push(b'\n');
    }
}
