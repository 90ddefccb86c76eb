//! `perfx reindex` rebuilds a recording's indexes: ID_INDEX, and features AUXTRACE, SAMPLE_TIME and BUILD_ID.

use anyhow::Result;
use clap::Args;
use perfx_passes::{ReindexAux, ReindexBuildIds, ReindexIds, ReindexTimes};
use perfx_pipeline::Pass;

use crate::io::output::{MoreArgs, WriteArgs};

/// Rebuild the indexes of a recording: ID_INDEX, AUXTRACE, SAMPLE_TIME, BUILD_ID
///
/// Without an option, rebuilds all indexes that are wrong. Correct ones stay the same, byte for byte.
/// An index that is missing by design (SAMPLE_TIME in pipe data, BUILD_ID with --buildid-mmap) is
/// made only if its option is given.
///
/// Examples:
///   perfx reindex perf.data -o reindexed.data
///   perfx reindex --in-place perf.data
///   perfx reindex --times perf.data -o timed.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Reindex {
    /// Rebuild ID_INDEX: leave out ids that no event has, add missing ids, move it before AUXTRACE_INFO
    #[arg(long)]
    ids: bool,
    /// Rebuild feature AUXTRACE: list every AUXTRACE record once, in file order
    #[arg(long)]
    aux: bool,
    /// Set feature SAMPLE_TIME to the times of the first and last sample; create it if it is missing
    #[arg(long)]
    times: bool,
    /// Rewrite entries and records of build-ids that some perf refuses; add missing ones to feature BUILD_ID
    #[arg(long)]
    build_ids: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    more: MoreArgs,
}

impl Reindex {
    pub(crate) fn run(&self) -> Result<u8> {
        self.write.each(&self.more, |write| write.transform_features("reindex", || self.passes()))
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
