//! `perfx export bolt` and `perfx export profgen` write the branch stacks of a program for compilers.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use perfx_export::branches::{BranchProfile, Program, say_branches};
use perfx_passes::{FilterOptions, SelectArgs};
use perfx_pipeline::{Level, Report, counted};
use std::sync::Arc;

use super::output::OutputArgs;
use crate::args::ThreadArgs;
use crate::io::source::InputsArgs;
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Write the branches of a program for BOLT: a pre-aggregated profile for perf2bolt -pa
///
/// perf2bolt makes the same .fdata of it as of the recordings, without perf, in one reading of any number
/// of recordings. Branches of other programs and of the kernel are left out.
///
/// Examples:
///   perfx export bolt perf.data --binary ./server -o server.preagg
///   perf2bolt -pa -p server.preagg -o server.fdata ./server
///   perfx export bolt @recordings.txt --binary ./server --time 10%-90% -o server.preagg
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bolt {
    #[command(flatten)]
    branches: BranchArgs,
}

/// Write the branches of a program for llvm-profgen, which makes a profile for clang (AutoFDO)
///
/// The output is what llvm-profgen reads with --perfscript: the lines of perf script with mappings and
/// branch stacks, each distinct stack once with its count.
///
/// Examples:
///   perfx export profgen perf.data --binary ./server -o server.script
///   llvm-profgen --perfscript=server.script --binary=./server --output=server.prof
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Profgen {
    #[command(flatten)]
    branches: BranchArgs,
}

#[derive(Args, Debug)]
struct BranchArgs {
    #[command(flatten)]
    inputs: InputsArgs,
    /// The program; its build-id must be the recorded one
    #[arg(help_heading = "Input", long, value_name = "FILE")]
    binary: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten, next_help_heading = "Samples")]
    select: SelectArgs,
    #[command(flatten, next_help_heading = "Options")]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Bolt {
    pub(crate) fn run(&self) -> Result<u8> {
        self.branches.run(false)
    }
}

impl Profgen {
    pub(crate) fn run(&self) -> Result<u8> {
        self.branches.run(true)
    }
}

impl BranchArgs {
    fn run(&self, stacks: bool) -> Result<u8> {
        let sources = self.inputs.sources()?;
        let output = self.output.open(&sources, true)?;
        let program = Program::open(&self.binary)?;
        let filter: Arc<FilterOptions> = Arc::new(self.select.clone().into());
        let mut profile = BranchProfile::new(stacks);
        let mut report = Report::default();
        for source in &sources {
            let mut recording = source.open_rereadable()?;
            recording.progress().expect(if filter.is_empty() { 2 } else { 3 });
            let bar = self.verbosity.progress(&recording);
            let before = report.bytes;
            profile.add(&mut recording, &program, &filter, self.threads.count(), &mut report)?;
            drop(bar);
            let read = size(report.bytes - before);
            report.say(Level::Info, format!("read {}: {read}", recording.name));
        }
        output
            .write(|out| if stacks { profile.profgen(&program, out) } else { profile.bolt(&program, out) })?;
        say_branches(profile.counts(), &mut report);
        let branches = counted(profile.len() as u64, "distinct branch", "distinct branches");
        report.say(Level::Info, format!("wrote {branches} of {}", self.binary.display()));
        Ok(self.verbosity.print(&report))
    }
}
