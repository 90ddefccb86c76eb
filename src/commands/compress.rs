//! `perfx compress` makes of any recording what `perf record -z` makes, and smaller.

use anyhow::Result;
use clap::Args;
use perfx_passes::{Compress as Pass, CompressOptions};

use crate::io::target::WriteArgs;

/// Compress a recording, as perf record -z does
///
/// Every perf since 5.2 reads the result as it reads the input. What is compressed already is
/// compressed again.
///
/// Examples:
///   perfx compress perf.data -o small.data
///   perfx compress -l 19 --in-place perf.data
///   perf record -o - ./program | perfx compress | ssh host 'cat > perf.data'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Compress {
    #[command(flatten)]
    options: CompressOptions,
    #[command(flatten)]
    write: WriteArgs,
}

impl Compress {
    pub(crate) fn run(&self) -> Result<u8> {
        let pass = Pass::new(self.options);
        self.write.transform("compress", vec![Box::new(pass)])
    }
}
