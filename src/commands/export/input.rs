//! Opens a recording for an export: it can be read again, and its user stacks have become call chains.

use anyhow::Result;
use perfx_export::Stacks;
use perfx_format::read::Recording;
use perfx_format::{Layouts, sample_type};
use perfx_passes::{ConvertCallchain, IdOptions};
use perfx_pipeline::{Error, Job, Level, Output, OutputForm, Report};

use crate::io::source::{Source, temp_files};
use crate::term::units::size;

/// Opens it. Stacks (perf record --call-graph dwarf) are unwound into a temporary file of about the size of
/// the rest of the recording.
pub(super) fn open_for_stacks(
    source: &Source,
    ids: &IdOptions,
    threads: usize,
    report: &mut Report,
) -> Result<Recording> {
    let recording = source.open()?;
    recording.check_whole()?;
    let layouts = Layouts::new(&recording.events);
    if !layouts.any_samples(sample_type::STACK_USER) {
        return Ok(if recording.is_rereadable() { recording } else { recording.spooled(&temp_files())? });
    }
    let name = recording.name.clone();
    let file = temp_files()().map_err(Error::from)?;
    let passes: Vec<Box<dyn perfx_pipeline::Pass>> =
        vec![Box::new(ConvertCallchain::new(false, ids.clone()))];
    let job = Job { recording, passes, threads, temp_files: temp_files() };
    let done = job.run(Output::File(&file, OutputForm::File))?;
    report.bytes = done.report.bytes;
    report.lines.extend(done.report.lines);
    Ok(Recording::from_file(file, name, temp_files())?)
}

/// Adds to the report what was read: of a recording with user stacks its own size, not that of its chains.
pub(super) fn say_read(report: &mut Report, recording: &Recording, stacks: &Stacks) {
    let bytes = if report.bytes > 0 { report.bytes } else { stacks.bytes };
    report.lines.insert(0, (Level::Info, format!("read {}: {}", recording.name, size(bytes))));
    if stacks.rows.is_empty() && !report.lines.iter().any(|(level, _)| *level == Level::Warning) {
        report.say(Level::Warning, "the recording has no samples");
    }
}
