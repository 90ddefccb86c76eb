//! `perfx filter` cuts a smaller recording out of a large one.

use anyhow::{Result, bail};
use clap::Args;
use perfx_filter::{Filter as Pass, FilterArgs, FilterOptions};

use crate::args::{Usage, usage};
use crate::io::output::WriteArgs;

/// Cut a smaller recording out of a large one
///
/// Keeps the samples that match all given options, and the records that readers need for them:
/// mappings, names and forks of the processes with kept samples and of their ancestors (with --time
/// alone, of all processes alive in the window). Options can be repeated, and lists are separated by
/// commas. A regular expression must match the whole name. The output is not compressed.
///
/// Examples:
///   perfx filter --time 10%-20% perf.data -o slice.data
///   perfx filter --time 5231.5,5232 --comm 'nginx.*' --exclude-cpu 0 perf.data -o nginx.data
///   perfx filter --time +1s,+1.5s --drop-unused perf.data -o small.data
///   perf record -o - ./program | perfx filter --dso 'libc.*' | perf report -i -
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Filter {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    write: WriteArgs,
}

impl Filter {
    pub(crate) fn run(&self) -> Result<u8> {
        let options = FilterOptions::try_from(self.filter.clone()).map_err(usage)?;
        if options.is_empty() {
            bail!(Usage("no filter given; see --help".into()));
        }
        let source = self.write.source()?;
        let mut recording = source.open()?;
        source.use_index(&mut recording);
        self.write.write_recording("filter", &source, recording, vec![Box::new(Pass::new(options))], false)
    }
}
