//! Prints samples in order of time as `perf script` does, with chosen fields.
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
use perfx_format::RecordType;
use perfx_format::read::{Batch, Recording};
use perfx_look::clock::Clock;
use perfx_look::trace::printers;
use perfx_pipeline::{Level, Purpose, Report, Result, ordered};
use perfx_resolve::{Facts, IdOptions, Search, recorded_on};
use perfx_samples::Select;

use crate::counted::wanted_events;
pub use fields::{Field, FieldChoice, Group, Times, ViewOptions};
use form::Form;
pub use json::Line;
use names::{SharedNames, with_names};
pub use other::ShownRecords;
use part::{Reader, Texts, WANTED};
use printer::Printer;
use sample::SampleWriter;

/// The results of printing.
#[derive(Clone, Default, Debug)]
pub struct Viewed {
    /// The number of samples.
    pub samples: u64,
    /// True if the recording was read to its end.
    pub is_whole: bool,
}

/// Prints the samples that `filter` selects; if that is empty, all. Samples come from `decoded` if given: a
/// recording with the same events whose samples are shown in its order, and which is read once.
///
/// # Errors
///
/// The recording cannot be read or decompressed, its samples lack a needed field, or `out` fails.
pub fn view(
    (mut recording, decoded): (Recording, Option<Recording>),
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
    options.check(&events, clock).map_err(|error| error.in_file(&recording.name))?;
    let selected = SelectedSamples::if_any(&mut recording, filter, threads, report)?;
    if let Some(selected) = &selected {
        let others = options.shown_kinds().and(RecordType::CALLCHAIN_DEFERRED);
        selected.narrow(&mut recording, others);
    }
    let wanted = wanted_events(&facts, filter);
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
        let records = batches(recording, decoded, options)?;
        print(records, (&facts, &forms, names), selected, options, threads, report, out)
    })?;
    let viewed = printed?;
    named.say_reasons(report);
    if let Some(selected) = selected.filter(|_| viewed.samples == 0) {
        selected.say_none(&name, is_decoded, report);
    }
    Ok(viewed)
}

/// Bytes of records that a thread gets at once: their text has up to a hundred times as many.
const BATCH: usize = 1 << 17;

fn batches(
    recording: Recording,
    decoded: Option<Recording>,
    options: &ViewOptions,
) -> Result<Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send>> {
    Ok(match decoded {
        Some(mut decoded) => Box::new(decoded.decompressed()),
        None => {
            let mut records = recording.records_by_time()?;
            let wanted = WANTED.union(options.shown_kinds());
            Box::new(std::iter::from_fn(move || records.next_batch(wanted, BATCH).transpose()))
        }
    })
}

fn print(
    mut records: impl Iterator<Item = perfx_format::Result<Batch>> + Send,
    (facts, forms, names): (&Facts, &[Form<'_>], &SharedNames),
    (selected, wanted): (Option<&SelectedSamples>, &[bool]),
    options: &ViewOptions,
    threads: usize,
    report: &mut Report,
    out: &mut (dyn Write + Send),
) -> Result<Viewed> {
    // Other threads would read on and name functions that are not shown, or times depend on earlier ones.
    let is_serial = options.head.is_some() || options.times != Times::Recorded;
    let threads = if is_serial { 1 } else { threads.max(1) };
    let before = AtomicU64::new(0);
    let writer = || SampleWriter::new(facts, forms, options, names, &before);
    let texts = Texts::new(threads + 2);
    let reader = || {
        let is_selected = selected.map(Select::on_thread);
        let counts_only = options.count_only;
        let shows_errors = is_selected.is_none() && !counts_only && !options.json;
        Reader { writer: writer(), is_selected, wanted, counts_only, shows_errors, texts: &texts }
    };
    let mut readers: Vec<Reader<'_>> = (0..threads).map(|_| reader()).collect();
    let mut printer = Printer::new(writer(), options, out, &texts);
    let left = AtomicU64::new(printer.left());
    let is_whole = AtomicBool::new(false);
    let batches = std::iter::from_fn(|| {
        if left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let next = records.next();
        is_whole.store(next.is_none(), Ordering::Relaxed);
        next
    });
    let read = |reader: &mut Reader<'_>, batch: perfx_format::Result<Batch>| {
        batch.map(|batch| reader.read(&batch, left.load(Ordering::Relaxed)))
    };
    ordered(batches, &mut readers, threads == 1, read, |part| -> Result<()> {
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
