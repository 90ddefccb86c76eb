//! `perfx decompress` undoes `perf record -z` and `perfx compress`.

use anyhow::Result;
use clap::Args;
use perfx_passes::{Decompress as Pass, DecompressOptions};

use crate::output::WriteArgs;

/// Decompress a recording
///
/// Examples:
///   perfx decompress z.data -o plain.data
///   perfx decompress --salvage damaged.data -o rest.data
///   perfx decompress --chain perf.data.2026* -o plain/
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Decompress {
    /// Keep what can be read of a damaged recording, and say what is lost
    #[arg(long)]
    salvage: bool,
    #[command(flatten)]
    write: WriteArgs,
}

impl Decompress {
    pub(crate) fn run(&self) -> Result<u8> {
        let pass = Pass::new(DecompressOptions { salvage: self.salvage });
        self.write.transform("decompress", vec![Box::new(pass)])
    }
}
