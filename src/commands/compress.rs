//! `perfx compress` makes of any recording what `perf record -z` makes, and smaller.

use anyhow::Result;
use clap::Args;
use perfx_passes::{Compress as Pass, CompressOptions};

use crate::io::target::WriteArgs;

/// Compress a recording, as perf record -z does
///
/// Every perf since 5.2 reads the result as it reads the input. What is compressed already is
/// compressed anew.
///
/// Examples:
///   perfx compress perf.data -o small.data
///   perfx compress -l 19 --in-place perf.data
///   perf record -o - ./program | perfx compress | ssh host 'cat > perf.data'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Compress {
    /// zstd level: 1 is fast, 22 small
    #[arg(short, long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// Write COMPRESSED2 records, whose sizes are multiples of 8; only perf 6.16 and later reads them
    #[arg(long)]
    compressed2: bool,
    /// Keep one continuous zstd stream, as perf record does: smaller, but only one thread can work on it
    #[arg(long)]
    solid: bool,
    /// Compress FINISHED_ROUND records, too, which perf record leaves between: much smaller where they are many
    #[arg(long)]
    rounds: bool,
    /// Report how much was saved
    #[arg(long)]
    ratio: bool,
    #[command(flatten)]
    write: WriteArgs,
}

impl Compress {
    pub(crate) fn run(&self) -> Result<u8> {
        let pass = Pass::new(CompressOptions {
            level: self.level,
            compressed2: self.compressed2,
            solid: self.solid,
            rounds: self.rounds,
            ratio: self.ratio,
        });
        self.write.transform("compress", vec![Box::new(pass)])
    }
}
