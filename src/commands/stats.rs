//! `perfx stats` counts the contents of a recording: records by kind, samples by event, losses, compressed
//! and AUX data.

mod aux;

use anyhow::Result;
use clap::Args;
use perfx_format::event_name::EventName;
use perfx_format::read::Recording;
use perfx_format::{Layouts, Origin, RecordType, Value};
use perfx_look::json::{FormName, ShownValue};
use perfx_look::render::{self, kind_name};
use perfx_pipeline::Report;
use serde_json::{Value as Json, json};

use self::aux::AuxData;
use crate::args::ReadArgs;
use crate::io::source::{InputArgs, Source};
use crate::tally::{Count, Counted, Largest, OfEvent, Span, count_with};
use crate::term::units::{self, percent, table};

/// Count records by kind, samples by event, and what was lost
///
/// Prints the numbers of perf report --stats, and more: bytes, the largest record of each kind,
/// periods, AUX data, compression, first and last time. COMPRESSED records are counted, and so are
/// the records they hold, as in perf. If samples hold counters (perf record -e '{…}:S'), "new values"
/// is how often a sample found a changed value of that event's counter; perf counts these as samples.
///
/// Examples:
///   perfx stats perf.data
///   perfx stats --json perf.data | jq '.kinds[] | select(.kind == "SAMPLE").records'
///   perf record -o - ./program | perfx stats
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Stats {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// Version of the JSON form.
const SCHEMA: u32 = 1;

/// `attr.sample_period` is a frequency.
const FREQ: u32 = 10;

impl Stats {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut recording = Source::of(&self.input).open()?;
        let mut report = Report::default();
        let bar = self.read.verbosity.progress(&recording);
        let mut aux = AuxData::default();
        let threads = self.read.threads.count();
        let counted = count_with(&mut recording, threads, &mut report, AuxData::of, |later| aux.join(later))?;
        drop(bar);
        let events = events(&recording, &counted);
        let document = || document(&recording, &counted, &aux, &events);
        self.read.format.print(|| text(&counted, &aux, &events), document)?;
        Ok(self.read.verbosity.print(&report))
    }
}

/// The row of an event.
struct EventRow<'a> {
    name: &'a [u8],
    counted: OfEvent,
    /// Sum of its samples' periods; `None` if they have none.
    period: Option<u128>,
    /// New values of its counters in samples with READ, by id, and by id and thread.
    reads: [u64; 2],
}

fn events<'a>(recording: &Recording, counted: &'a Counted) -> Vec<EventRow<'a>> {
    let layouts = Layouts::new(&recording.events);
    let reads = counted.tally.new_values(&layouts);
    let row = |(index, name): (usize, &'a EventName)| {
        let of_event = counted.tally.events.get(index).copied().unwrap_or_default();
        let attr = recording.events[index].attr();
        let has_period = layouts.all()[index].sample.period.is_some();
        let fixed = u128::from(attr.sample_period) * u128::from(of_event.samples.records);
        EventRow {
            name: &name.name,
            counted: of_event,
            period: if has_period { Some(of_event.period) } else { (!attr.flag(FREQ)).then_some(fixed) },
            reads: reads.each_ref().map(|reads| reads[index]),
        }
    };
    counted.names.iter().enumerate().map(row).collect()
}

fn text(counted: &Counted, aux: &AuxData, events: &[EventRow<'_>]) -> String {
    let tally = &counted.tally;
    let kinds = tally.kinds();
    let total = kinds.total();
    let line = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let row = |name: String, of: Count| {
        let share = percent(of.records, total.records);
        vec![name, units::count(of.records), share, units::size(of.bytes), units::count(of.largest)]
    };
    let mut rows = vec![line(&["kind", "records", "", "bytes", "largest"])];
    rows.extend(kinds.iter().map(|(kind, of)| row(kind_name(kind), of)));
    rows.push(row("all".to_owned(), total));
    let mut text = table(&rows);

    let samples = kinds.get(RecordType::SAMPLE).records;
    // perf shows this number instead of the number of samples.
    let reads = events.iter().any(|event| event.reads != [0, 0]);
    let columns = ["event", "samples", "", "bytes", "period", "lost", "new values"];
    let mut rows = vec![line(&columns[..columns.len() - usize::from(!reads)])];
    let row = |name: String, of: Count, period: String, lost: String| {
        let (count, share) = (units::count(of.records), percent(of.records, samples));
        vec![name, count, share, units::size(of.bytes), period, lost]
    };
    for event in events {
        let OfEvent { samples, lost, filtered, .. } = event.counted;
        let name = render::readable(event.name);
        let period = event.period.map_or_else(|| "-".to_owned(), units::wide_count);
        let mut row = row(name, samples, period, units::wide_count(lost + filtered));
        if reads {
            row.push(units::count(event.reads[0]));
        }
        rows.push(row);
    }
    if tally.unattributed.records > 0 {
        rows.push(row("(unknown)".to_owned(), tally.unattributed, String::new(), String::new()));
    }
    text += "\n";
    text += &table(&rows);
    text += "\n";
    for (name, what) in facts(counted, aux, events) {
        text += &format!("{name:<15} {what}\n");
    }
    text
}

/// The facts below the tables: a name and a few words.
fn facts(counted: &Counted, aux: &AuxData, events: &[EventRow<'_>]) -> Vec<(&'static str, String)> {
    let tally = &counted.tally;
    let kinds = tally.kinds();
    let told_by = |kind: RecordType| {
        format!("reported by {} {}", units::count(kinds.get(kind).records), kind_name(kind))
    };
    let Lost { records, samples, filtered } = Lost::of(counted, events);
    let and_filtered = if filtered > 0 {
        format!(" and {} dropped by a filter", units::wide_count(filtered))
    } else {
        String::new()
    };
    let samples = units::wide_count(samples) + &and_filtered;
    let mut facts = vec![
        ("lost records", format!("{}, {}", units::wide_count(records), told_by(RecordType::LOST))),
        ("lost samples", format!("{samples}, {}", told_by(RecordType::LOST_SAMPLES))),
    ];
    let (traces, written) = (kinds.get(RecordType::AUXTRACE), kinds.get(RecordType::AUX));
    if traces.records + written.records > 0 {
        let held = format!("{} in {} AUXTRACE", units::size(tally.aux_bytes), units::count(traces.records));
        let cut = units::count(tally.aux_truncated);
        facts.push((
            "AUX data",
            format!("{held}, reported by {} AUX, {cut} truncated", units::count(written.records)),
        ));
    }
    facts.extend(aux.facts());
    let (closed, opened) = (tally.compressed(), tally.expanded.total());
    if closed.records > 0 {
        let held = format!("{} records of {}", units::count(opened.records), units::size(opened.bytes));
        let factor = opened.bytes as f64 / closed.bytes as f64;
        let closed = format!("{} records of {}", units::count(closed.records), units::size(closed.bytes));
        facts.push(("compressed", format!("{closed} hold {held} ({factor:.1} to 1)")));
    }
    let too_small = kinds.total().too_small;
    if too_small > 0 {
        facts.push((
            "too small",
            format!("{} records are smaller than the fields of their kind", units::count(too_small)),
        ));
    }
    if let Some(Largest { kind, origin, bytes }) = tally.largest {
        let size = units::count(bytes);
        facts.push(("largest record", format!("{} of {size} bytes at {origin}", kind_name(kind))));
    }
    for (name, span) in [("samples", tally.sampled), ("all records", tally.recorded())] {
        if let Some((first, last)) = span.bounds() {
            let (from, to, long) = (units::time(first), units::time(last), units::duration(last - first));
            facts.push((name, format!("from {from} to {to}, {long}")));
        }
    }
    facts
}

/// What the recording says is lost.
struct Lost {
    records: u128,
    samples: u128,
    filtered: u128,
}

impl Lost {
    fn of(counted: &Counted, events: &[EventRow<'_>]) -> Lost {
        let sum = |of: fn(&OfEvent) -> u128| events.iter().map(|event| of(&event.counted)).sum();
        Lost { records: counted.tally.lost, samples: sum(|of| of.lost), filtered: sum(|of| of.filtered) }
    }
}

fn document(recording: &Recording, counted: &Counted, aux: &AuxData, events: &[EventRow<'_>]) -> Json {
    let tally = &counted.tally;
    let kinds = tally.kinds();
    let of_kind = |(kind, of): (RecordType, Count)| {
        json!({
            "kind": kind_name(kind), "type": kind.0,
            "records": of.records, "bytes": of.bytes, "largest": of.largest, "too_small": of.too_small,
        })
    };
    let of_event = |event: &EventRow<'_>| {
        let OfEvent { samples, lost, filtered, .. } = event.counted;
        let [by_id, by_thread] = event.reads;
        json!({
            "name": ShownValue(&Value::Text(event.name)),
            "samples": samples.records, "bytes": samples.bytes, "largest": samples.largest,
            "period": event.period.map(|period| period.to_string()),
            "lost": lost.to_string(), "filtered": filtered.to_string(),
            "new_values": { "by_id": by_id, "by_thread": by_thread },
        })
    };
    let total = kinds.total();
    let (closed, opened) = (tally.compressed(), tally.expanded.total());
    let Lost { records, samples, filtered } = Lost::of(counted, events);
    let place = |origin: Origin| {
        let (stream, _) = origin.stored_at().unwrap_or_default();
        json!({ "stream": stream, "offset": origin.to_string().trim_start_matches("offset ") })
    };
    let span = |span: Span| {
        span.bounds().map(|(first, last)| json!({ "first": first.to_string(), "last": last.to_string() }))
    };
    let [tracers, buffers, aux_time] = aux.json();
    json!({
        "schema": SCHEMA,
        "what": "stats",
        "form": FormName(recording.form),
        "records": total.records,
        "bytes": total.bytes,
        "kinds": kinds.iter().map(of_kind).collect::<Vec<_>>(),
        "events": events.iter().map(of_event).collect::<Vec<_>>(),
        "of_unknown_events": { "samples": tally.unattributed.records, "bytes": tally.unattributed.bytes },
        "lost": { "records": records.to_string(), "samples": samples.to_string(), "filtered": filtered.to_string() },
        "aux": {
            "bytes": tally.aux_bytes,
            "written": tally.aux_written.to_string(),
            "truncated": tally.aux_truncated,
            "tracers": tracers,
            "buffers": buffers,
            "time": aux_time,
        },
        "compressed": {
            "records": closed.records, "bytes": closed.bytes,
            "expanded_records": opened.records, "expanded_bytes": opened.bytes,
        },
        "largest": tally.largest.map(|Largest { kind, origin, bytes }| {
            json!({ "kind": kind_name(kind), "type": kind.0, "bytes": bytes, "at": place(origin) })
        }),
        "time": { "samples": span(tally.sampled), "records": span(tally.recorded()) },
        "torn": counted.fragments.iter().map(|fragment| {
            let kind = fragment.kind.map(kind_name);
            json!({ "kind": kind, "at": place(fragment.origin), "bytes": fragment.bytes, "needs": fragment.needs.to_string() })
        }).collect::<Vec<_>>(),
    })
}
