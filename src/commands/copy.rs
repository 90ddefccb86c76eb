//! `perfx copy` changes only the form of a recording.

use anyhow::Result;
use clap::Args;

use crate::io::output::WriteArgs;

/// Copy a recording into another form: file, pipe data, or a directory's files into one
///
/// Keeps every record and feature, including those perfx does not know, and adds nothing from this
/// machine. A file in perf's own layout is copied byte for byte.
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
