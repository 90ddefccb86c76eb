//! `perfx recover` turns a damaged or incomplete recording into a readable one.

use anyhow::Result;
use clap::Args;
use perfx_format::features::meaningless;
use perfx_format::header::Severity;
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Kinds, RecordType};
use perfx_passes::{Recover as Pass, RecoverOptions, ReindexAux, ReindexBuildIds, ReindexTimes};
use perfx_pipeline::scan_past;

use crate::io::output::WriteArgs;
use crate::io::source::temp_files;

/// Recover the readable part of a truncated or damaged recording
///
/// Reads records as far as possible. After bytes that are not records, such as a hole, reading continues at
/// the next run of consecutive records. Odd but complete records are kept. A feature whose section does not
/// have exactly the size of its contents is left out, because perf stops there. Data that perf record writes
/// only at its end is rebuilt from the records: event names, the times of the first and last sample,
/// build-ids, the index of AUX data. The output is not compressed. A recording without damage is copied
/// unchanged, with exit code 0; otherwise the exit code is 3, and everything lost or odd is reported.
///
/// Examples:
///   perfx recover killed.data -o rescued.data
///   perfx recover --guess --in-place perf.data
///   perfx recover --like whole.data killed.data -o rescued.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Recover {
    #[command(flatten)]
    options: RecoverOptions,
    #[command(flatten)]
    write: WriteArgs,
}

impl Recover {
    pub(crate) fn run(&self) -> Result<u8> {
        let source = self.write.source()?;
        let mut recording = source.open()?.spooled(&temp_files())?.lenient();
        if self.options.like.is_none() && self.is_whole(&mut recording)? {
            return self.write.write_recording("recover", &source, recording, Vec::new(), false);
        }
        let passes: Vec<Box<dyn perfx_pipeline::Pass>> = vec![
            Box::new(Pass::new(self.options.clone())),
            Box::new(ReindexAux { add: true }),
            Box::new(ReindexTimes { add: true }),
            Box::new(ReindexBuildIds { add: true }),
        ];
        self.write.write_recording("recover", &source, recording, passes, false)
    }

    fn is_whole(&self, recording: &mut Recording) -> Result<bool> {
        let mut whole = recording.faults.iter().all(|fault| fault.severity == Severity::Odd)
            && meaningless(&recording.features, recording.endian).is_empty();
        let pipe = recording.form == Form::Pipe;
        let threads = self.write.threads.count(recording);
        scan_past(
            recording,
            threads,
            true,
            |batch| !has_impossible_kinds(batch) && (!pipe || has_readable_headers(batch)),
            |read| {
                whole &= read.is_ok_and(|(batch, readable)| {
                    readable && batch.fragment.is_none() && batch.lost.is_none()
                });
                Ok(())
            },
        )?;
        Ok(whole)
    }
}

/// True if a record has a kind that no perf uses, so its header is damaged.
fn has_impossible_kinds(batch: &Batch) -> bool {
    let unnamed = Kinds::of(&[RecordType(u32::MAX)]);
    let mut walker = batch.walk();
    while let Ok(Some(record)) = walker.next_wanted(unnamed, usize::MAX) {
        if !record.kind().may_exist() {
            return true;
        }
    }
    false
}

fn has_readable_headers(batch: &Batch) -> bool {
    let headers = Kinds::HEADER;
    let mut walker = batch.walk();
    while let Ok(Some(record)) = walker.next_wanted(headers, usize::MAX) {
        if HeaderRecord::read(&record).is_err() {
            return false;
        }
    }
    true
}
