//! `perfx sort` sorts the records of a recording by time.

use anyhow::Result;
use clap::Args;
use perfx_passes::{IN_ORDER, in_time_order, sort};
use perfx_pipeline::{Level, Report};

use crate::io::output::WriteArgs;
use crate::io::source::temp_files;

/// Sort the records of a recording by time
///
/// perf record writes the records of one CPU after those of another, and perf sorts them each time it
/// reads them. This sorts them once, for other programs. A recording that is already sorted is copied
/// byte for byte; otherwise, FINISHED_ROUND records are rewritten. Memory is bounded for any size;
/// records that must wait a long time go to a temporary file (TMPDIR).
///
/// Examples:
///   perfx sort perf.data -o sorted.data
///   perf record -o - ./program | perfx sort - -o sorted.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Sort {
    #[command(flatten)]
    write: WriteArgs,
}

impl Sort {
    pub(crate) fn run(&self) -> Result<u8> {
        let source = self.write.source()?;
        let mut recording = source.open()?;
        if recording.is_compressed() {
            // The pass would decompress sorted input, too, which is to stay, so the order is checked first.
            recording = recording.spooled(&temp_files())?;
            let threads = self.write.threads.count(&recording);
            if in_time_order(&mut recording, threads).is_ok_and(|sorted| sorted) {
                let code = self.write.write_recording("sort", &source, recording, Vec::new(), false)?;
                let mut report = Report::default();
                report.say(Level::Info, IN_ORDER);
                return Ok(code.max(self.write.verbosity.print(&report)));
            }
        }
        self.write.write_recording("sort", &source, recording, vec![Box::new(sort())], false)
    }
}
