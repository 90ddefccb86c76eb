//! `perfx sort` puts the records of a recording in the order of time.

use anyhow::Result;
use clap::Args;
use perfx_passes::{Join, in_time_order};
use perfx_pipeline::Pass;

use crate::input::{Source, spool};
use crate::output::WriteArgs;

/// Put the records of a recording in the order of time
///
/// perf record writes the records of each CPU in a row, and perf sorts them whenever it reads them.
/// Here they are sorted once, for whoever reads them without perf. What is in order already stays
/// as it is, byte by byte; FINISHED_ROUND records are written anew. Memory is bounded whatever the
/// size; what must wait long goes to a temporary file (TMPDIR).
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
        let source = Source::of(&self.write.input);
        let mut recording = source.open()?;
        let mut passes: Vec<Box<dyn Pass>> = vec![Box::new(Join::sort())];
        if recording.is_compressed() {
            // The pass must see what is compressed, and then leaves it uncompressed; so whether it is needed is found out before.
            recording = recording.spooled(&spool())?;
            if in_time_order(&mut recording, self.write.threads.count()).is_ok_and(|sorted| sorted) {
                passes.clear();
            }
        }
        self.write.transform_opened("sort", &source, recording, passes, false)
    }
}
