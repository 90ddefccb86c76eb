//! `perfx copy` runs no pass: a recording changes its form and nothing else.

use anyhow::Result;
use clap::Args;

use crate::io::target::WriteArgs;

/// Copy a recording into another form: file, pipe data, or a directory's files into one
///
/// Every record and every feature is kept, those perfx does not know too; nothing of this machine
/// gets in. A file in perf's own layout comes out byte for byte the same.
///
/// Examples:
///   perfx copy perf.data -o copy.data
///   perfx copy perf.data --to pipe -o perf.pipe
///   perfx copy perf.data.dir -o flat.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Copy {
    #[command(flatten)]
    write: WriteArgs,
}

impl Copy {
    pub(crate) fn run(&self) -> Result<u8> {
        self.write.transform("copy", Vec::new())
    }
}
