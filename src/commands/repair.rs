//! `perfx repair` repairs faults that known programs write, by the codes of `perfx doctor`.

use anyhow::Result;
use clap::Args;
use perfx_passes::{Repair as RepairPass, RepairOptions};
use perfx_pipeline::Pass;

use crate::io::output::{MoreArgs, WriteArgs};

/// Repair faults that programs and kernels are known to write into recordings
///
/// Faults have the codes of `perfx doctor --list`. Nothing else changes. Samples whose id belongs to
/// no event are left out and reported. The contents of compressed records are not checked, and the
/// report says so. --in-place finishes an interrupted change in place.
///
/// Examples:
///   perfx repair perf.data -o repaired.data
///   perfx repair --fault mmap-build-id-bit perf.data -o repaired.data
///   perf inject -b -i perf.data -o - | perfx repair | perf-new report -i -
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Repair {
    #[command(flatten)]
    options: RepairOptions,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    more: MoreArgs,
}

impl Repair {
    pub(crate) fn run(&self) -> Result<u8> {
        let passes = || -> Vec<Box<dyn Pass>> { vec![Box::new(RepairPass::new(&self.options.fault))] };
        self.write.each(&self.more, |write| write.transform_features("repair", passes))
    }
}
