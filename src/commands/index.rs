//! `perfx index` writes an index beside a recording, by which parts of it are found without reading the rest.

use anyhow::{Result, bail};
use clap::Args;
use perfx_pipeline::Report;

use crate::args::{ThreadArgs, Usage};
use crate::io::make_index::make_index;
use crate::io::source::{InputsArgs, Source};
use crate::term::report::{VerbosityArgs, tell_failure};

/// Write an index beside a recording, so that a part of it is found without reading the rest
///
/// The index of perf.data is perf.data.pfi. For every 4 MiB of the recording, it contains the time span and
/// the processes of the samples, and the positions of other records. filter, split, view, stats, list and the
/// exports use it automatically: with --time or --pid, they read little more than what they keep. Their
/// output does not depend on it.
///
/// An index belongs to one recording, and contains its size and checksum. If the recording changes, its old
/// index is not used, and a message says so. Compressed recordings can't be indexed; --index of perfx
/// decompress and of other commands indexes their output.
///
/// Examples:
///   perfx index perf.data
///   perfx view --time 10.5,11 perf.data
///   perfx decompress --index perf.data -o plain.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Index {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Index {
    pub(crate) fn run(&self) -> Result<u8> {
        let (mut report, mut failed) = (Report::default(), false);
        for source in self.inputs.sources()? {
            match self.index(&source, &mut report) {
                Ok(()) => {}
                Err(error) if error.is::<Usage>() => return Err(error),
                Err(error) => {
                    tell_failure(&error);
                    failed = true;
                }
            }
        }
        let code = self.verbosity.print(&report);
        Ok(if failed { 1 } else { code })
    }

    fn index(&self, source: &Source, report: &mut Report) -> Result<()> {
        let Source::Path(path) = source else {
            bail!(Usage("standard input has no name, and so no place for an index: give a file".into()))
        };
        let recording = source.open()?;
        let _bar = self.verbosity.progress(&recording);
        let threads = self.threads.count(&recording);
        make_index(path, recording, threads, report)
    }
}
