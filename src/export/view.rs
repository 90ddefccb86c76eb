//! Prints samples in time order as `perf script` does, with chosen fields.
//!
//! The layout of a block is that of perf 7.3 (tools/perf/builtin-script.c, `process_event`): a line with the
//! fields, then a line for each frame of a call chain, and an empty line.
//!
//! One thread sorts, others write the text of samples, and one prints it.

mod branches;
mod data_src;
mod fields;
mod form;
mod json;
mod names;
mod other;
mod part;
mod printer;
mod sample;
mod synth;
mod text;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use perfx_filter::{FilterOptions, SelectedSamples};
use perfx_format::read::Recording;
use perfx_format::{Endian, Layouts, RecordType};
use perfx_look::clock::Clock;
use perfx_look::trace::printers;
use perfx_pipeline::{Level, Purpose, Report, Result, ordered};
use perfx_resolve::{Facts, IdOptions, Search, recorded_on};
use perfx_samples::{Rows, Select};

use crate::counted::wanted_events;
pub use fields::{Field, FieldChoice, Group, Times, ViewOptions};
use form::Form;
pub use json::Line;
use names::{SharedNames, with_names};
pub use other::ShownRecords;
use part::{Reader, WANTED};
use printer::Printer;
use sample::SampleWriter;

/// The results of printing.
#[derive(Clone, Default, Debug)]
pub struct Viewed {
    /// The number of samples.
    pub samples: u64,
    /// The recording was read to its end.
    pub is_whole: bool,
}

/// Prints the samples that `filter` selects; if that is empty, all. `decoded` samples, if given, replace the
/// recorded ones: they are of the recording's events, in order.
///
/// # Errors
///
/// The recording cannot be read or decompressed, its samples lack a needed field, or `out` fails.
pub fn view(
    (mut recording, decoded): (Recording, Option<&mut (dyn Iterator<Item = Rows> + Send)>),
    ids: &IdOptions,
    filter: &Arc<FilterOptions>,
    options: &ViewOptions,
    threads: usize,
    report: &mut Report,
    out: &mut (dyn Write + Send),
) -> Result<Viewed> {
    let facts = Facts::survey(&mut recording, threads, true)?;
    let events = recording.all_events();
    let clock = Clock::of(&recording);
    options.check(&events, &facts, clock).map_err(|error| error.in_file(&recording.name))?;
    let selected = SelectedSamples::if_any(&mut recording, filter, threads, report)?;
    // Counters are read in all samples.
    if let Some(selected) =
        selected.as_ref().filter(|_| !facts.events.iter().any(|event| event.reads_counters))
    {
        let others = options.shown_kinds().and(RecordType::CALLCHAIN_DEFERRED);
        selected.narrow(&mut recording, others);
    }
    let (wanted, layouts) = (wanted_events(&facts, filter), Layouts::new(&events));
    report.say_faults(&recording, Purpose::UseRecords);
    let name = recording.name.clone();
    let (features, endian) = (recording.features.clone(), recording.endian);
    let has_chains = facts.events.iter().any(|event| event.has_chains);
    let (inlined, is_decoded) = (options.reads_dwarf(has_chains), decoded.is_some());
    let search = Search { facts: &facts, features: &features, endian, ids, inlined };
    let machine = recorded_on(&features, endian).arch.unwrap_or_default();
    let traces = printers(&events, &features, endian);
    let forms = Form::all(&facts, (&machine, clock, &events), options, &traces);
    let (printed, named) = with_names(search, options, |names| {
        let selected = (selected.as_ref(), &wanted[..]);
        let shown =
            decoded.map_or_else(|| by_time(recording, options), |decoded| Ok(Box::new(decoded.map(Ok))))?;
        print(shown, (&facts, &layouts, endian, &forms, names), selected, options, threads, report, out)
    })?;
    let viewed = printed?;
    named.say_reasons(report);
    if let Some(selected) = selected.filter(|_| viewed.samples == 0) {
        selected.say_none(&name, is_decoded, report);
    }
    Ok(viewed)
}

/// The size of records that a thread gets at once, bytes: their text may be a hundred times as long.
const BATCH: usize = 1 << 17;

/// Samples, and the records that complete them, in the order to show.
type Shown<'d> = Box<dyn Iterator<Item = perfx_format::Result<Rows>> + Send + 'd>;

fn by_time(recording: Recording, options: &ViewOptions) -> Result<Shown<'static>> {
    let (mut records, mut failed) = (recording.records_by_time()?, None);
    let wanted = WANTED.union(options.shown_kinds());
    // Samples whose counters were first read in an earlier batch are written last.
    let size = if options.times == Times::Recorded { BATCH } else { 1 };
    Ok(Box::new(std::iter::from_fn(move || {
        let mut rows = Rows::default();
        while rows.size() < size && failed.is_none() {
            match records.next_record() {
                Ok(Some(record)) if wanted.contains(record.kind()) => {
                    let place = record.origin().stored_at().map_or(0, |(_, offset)| offset);
                    rows.push(place, |bytes| bytes.extend_from_slice(record.bytes()));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => failed = Some(error),
            }
        }
        if rows.count() > 0 { Some(Ok(rows)) } else { failed.take().map(Err) }
    })))
}

fn print(
    mut shown: Shown<'_>,
    (facts, layouts, endian, forms, names): (&Facts, &Layouts, Endian, &[Form<'_>], &SharedNames),
    (selected, wanted): (Option<&SelectedSamples>, &[bool]),
    options: &ViewOptions,
    threads: usize,
    report: &mut Report,
    out: &mut (dyn Write + Send),
) -> Result<Viewed> {
    // Other threads would name functions that are not shown; relative times depend on earlier samples.
    let is_serial = options.head.is_some() || options.times != Times::Recorded;
    let threads = if is_serial { 1 } else { threads.max(1) };
    let before = AtomicU64::new(0);
    let writer = || SampleWriter::new(facts, forms, options, names, &before);
    let reader = || {
        let is_selected = selected.map(Select::on_thread);
        let counts_only = options.count_only;
        let shows_errors = is_selected.is_none() && !counts_only && !options.json;
        Reader {
            writer: writer(),
            layouts,
            endian,
            is_selected,
            wanted,
            counts_only,
            shows_errors,
            longest: 0,
        }
    };
    let mut readers: Vec<Reader<'_>> = (0..threads).map(|_| reader()).collect();
    let mut printer = Printer::new((writer(), (layouts, endian)), options, out);
    let left = AtomicU64::new(printer.left());
    let is_whole = AtomicBool::new(false);
    let rows = std::iter::from_fn(|| {
        if left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let next = shown.next();
        is_whole.store(next.is_none(), Ordering::Relaxed);
        next
    });
    let read = |reader: &mut Reader<'_>, rows: perfx_format::Result<Rows>| {
        rows.map(|rows| reader.read(&rows, left.load(Ordering::Relaxed)))
    };
    ordered(rows, &mut readers, threads == 1, read, |part| -> Result<()> {
        match part {
            Ok(part) => printer.print(part?)?,
            // Records after the damage can be read.
            Err(error) => report.say(Level::Loss, error.to_string()),
        }
        left.store(printer.left(), Ordering::Relaxed);
        Ok(())
    })?;
    Ok(Viewed { samples: printer.finish(report)?, is_whole: is_whole.into_inner() })
}
