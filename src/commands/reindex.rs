//! `perfx reindex` mends what a recording says about itself: ID_INDEX, and features AUXTRACE, SAMPLE_TIME and BUILD_ID.

use anyhow::Result;
use clap::Args;
use perfx_passes::{ReindexAux, ReindexBuildIds, ReindexIds, ReindexTimes};
use perfx_pipeline::Pass;

use crate::io::target::WriteArgs;

/// Rebuild the indexes of a recording: ID_INDEX, AUXTRACE, SAMPLE_TIME, BUILD_ID
///
/// Without an option, all that are wrong. What is right stays as it is, byte for byte. An index that
/// is missing by design (SAMPLE_TIME of pipe data, BUILD_ID with --buildid-mmap) is made when it is
/// asked for by name.
///
/// Examples:
///   perfx reindex perf.data -o mended.data
///   perfx reindex --in-place perf.data
///   perfx reindex --times perf.data -o timed.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Reindex {
    /// ID_INDEX: without ids that no event has, with those it lacks, before AUXTRACE_INFO
    #[arg(long)]
    ids: bool,
    /// Feature AUXTRACE: every AUXTRACE record once, in file order
    #[arg(long)]
    aux: bool,
    /// Feature SAMPLE_TIME: when the first and the last sample are; made if it is missing
    #[arg(long)]
    times: bool,
    /// Feature BUILD_ID: no entry or record that some perf refuses; completed from the records
    #[arg(long)]
    build_ids: bool,
    #[command(flatten)]
    write: WriteArgs,
}

impl Reindex {
    pub(crate) fn run(&self) -> Result<u8> {
        if self.write.in_place
            && let Some(code) = self.write.rewrite_features_in_place(self.passes())?
        {
            return Ok(code);
        }
        self.write.transform("reindex", self.passes())
    }

    fn passes(&self) -> Vec<Box<dyn Pass>> {
        let all = !(self.ids || self.aux || self.times || self.build_ids);
        let mut passes: Vec<Box<dyn Pass>> = Vec::new();
        if self.ids || all {
            passes.push(Box::new(ReindexIds {}));
        }
        if self.aux || all {
            passes.push(Box::new(ReindexAux { add: self.aux }));
        }
        if self.times || all {
            passes.push(Box::new(ReindexTimes { add: self.times }));
        }
        if self.build_ids || all {
            passes.push(Box::new(ReindexBuildIds { add: self.build_ids }));
        }
        passes
    }
}
