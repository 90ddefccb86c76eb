//! `perfx export autofdo`, `bolt` and `profgen` write the branch stacks of a program for compilers.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use perfx_export::branch_files::BranchFiles;
use perfx_export::branches::{BranchProfile, Program, SumFormat, say_branches, say_runs, why_no_branches};
use perfx_filter::{FilterOptions, SelectArgs};
use perfx_format::branch_list::{HEAD, is_branch_list};
use perfx_format::read::Recording;
use perfx_pipeline::{Level, Report, counted};

use super::input::{each_recording, filter_of};
use crate::args::{ThreadArgs, Usage, usage};
use crate::io::output::{Existing, OutputArgs, check_folder, writable_above, write_files};
use crate::io::source::{InputsArgs, Source};
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Write the branches of a program for create_llvm_prof, which makes a profile for clang (AutoFDO)
///
/// The output is the text for create_llvm_prof --profiler=text, which simpleperf inject writes, too: ranges
/// of code that ran without a taken branch, and branches, each with its count. Addresses count from the first
/// segment of the file. Branches from and to other files and the kernel are left out. For CoreSight, each
/// branch ends a range, indirect branches go to 0, and addresses are offsets in the file. With --dir, one
/// reading gives a profile of each program and library that has a build-id in the recording and whose file is
/// found.
///
/// The branches are those of branch stacks (perf record -b). For a recording with a trace of Intel PT or
/// CoreSight (perf, simpleperf), every branch of the trace counts; the code of all files that ran must be
/// found.
///
/// Examples:
///   perfx export autofdo perf.data --binary ./server -o server.autofdo
///   create_llvm_prof --profiler=text --profile=server.autofdo --binary=./server --out=server.prof
///   perfx export autofdo @recordings.txt --dir profiles
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Autofdo {
    #[command(flatten)]
    sums: SumArgs,
}

/// Write the branches of a program for BOLT: a pre-aggregated profile for perf2bolt -pa
///
/// perf2bolt makes the same .fdata from it as from the recordings, but without perf, and from any number of
/// recordings at once. Branches of other programs and of the kernel are left out. With --dir, one reading
/// gives a profile of each program and library that has a build-id in the recording and whose file is found.
///
/// The branches are those of branch stacks (perf record -b). For a recording with a trace of Intel PT or
/// CoreSight (perf, simpleperf), every branch of the trace counts; the code of all files that ran must be
/// found.
///
/// Examples:
///   perfx export bolt perf.data --binary ./server -o server.preagg
///   perf2bolt -pa -p server.preagg -o server.fdata ./server
///   perfx export bolt @recordings.txt --binary ./server --time 10%-90% -o server.preagg
///   perfx export bolt @recordings.txt --dir profiles
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bolt {
    #[command(flatten)]
    sums: SumArgs,
}

/// The inputs and the output of `autofdo` and `bolt`.
#[derive(Args, Debug)]
struct SumArgs {
    /// The program; its build-id must be the recorded one
    #[arg(help_heading = "Input", long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Write a file NAME-BUILDID.preagg (autofdo: NAME-BUILDID.autofdo) of each program and library to this folder; it
    /// is created if necessary
    #[arg(help_heading = "Output", long, value_name = "DIR", conflicts_with_all = ["binary", "output"])]
    dir: Option<PathBuf>,
    #[command(flatten)]
    branches: BranchArgs,
}

/// Write the branches of a program for llvm-profgen, which makes a profile for clang (AutoFDO)
///
/// The output is for llvm-profgen --perfscript: the lines of perf script with mappings and branch stacks,
/// each distinct stack once with its count. If samples have call chains, too (perf record -b -g), they are
/// written with them, and the profile distinguishes the callers of a function (CSSPGO).
///
/// For a recording with a trace of Intel PT, every branch of the trace counts, in stacks of one branch and
/// the code after it; the code of all files that ran must be found.
///
/// Examples:
///   perfx export profgen perf.data --binary ./server -o server.script
///   llvm-profgen --perfscript=server.script --binary=./server --output=server.prof
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Profgen {
    /// The program; its build-id must be the recorded one
    #[arg(help_heading = "Input", long, value_name = "FILE")]
    binary: PathBuf,
    #[command(flatten)]
    branches: BranchArgs,
}

/// The options of all kinds of branch files.
#[derive(Args, Debug)]
struct BranchArgs {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten, next_help_heading = "Samples")]
    select: SelectArgs,
    #[command(flatten, next_help_heading = "Options")]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

/// The path of a simpleperf file with branch lists, which is not a recording.
fn list_at(source: &Source) -> Option<&Path> {
    let Source::Path(path) = source else { return None };
    fs::metadata(path).ok().filter(|metadata| metadata.is_file())?;
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD as u64).read_to_end(&mut head).ok()?;
    is_branch_list(&head).then_some(path)
}

impl Autofdo {
    pub(crate) fn run(&self) -> Result<u8> {
        self.sums.run(SumFormat::Autofdo)
    }
}

impl Bolt {
    pub(crate) fn run(&self) -> Result<u8> {
        self.sums.run(SumFormat::Bolt)
    }
}

impl SumArgs {
    fn run(&self, format: SumFormat) -> Result<u8> {
        match (&self.binary, &self.dir) {
            (Some(binary), _) => self.branches.run(binary, Some(format)),
            (None, Some(dir)) => self.files(dir, format),
            (None, None) => bail!(Usage("give --binary FILE or --dir DIR".into())),
        }
    }

    fn files(&self, dir: &Path, format: SumFormat) -> Result<u8> {
        let BranchArgs { output, threads, verbosity, .. } = &self.branches;
        let ids = self.branches.select.ids().map_err(usage)?;
        let sources = self.branches.inputs.sources()?;
        let existing = Existing::forced(output.force);
        check_folder(dir, &[], &sources, existing)?;
        writable_above(dir)?;
        let mut files = BranchFiles::default();
        let mut report = self.branches.read(&sources, |recording, filter, report| {
            let threads = threads.count(recording);
            files.add(recording, filter, &ids, threads, report)
        })?;
        let counts = files.counts();
        let made = files.into_profiles(format, &ids, &mut report)?;
        let names: Vec<&str> = made.texts.keys().map(String::as_str).collect();
        check_folder(dir, &names, &sources, existing)?;
        write_files(dir, &made.texts, existing)?;
        say_branches(counts, "programs and libraries", &mut report);
        let branches = counted(made.branches, "distinct branch", "distinct branches");
        let written = counted(names.len() as u64, "file", "files");
        report.say(Level::Info, format!("wrote {branches} into {written} of {}", dir.display()));
        Ok(verbosity.print(&report))
    }
}

impl Profgen {
    pub(crate) fn run(&self) -> Result<u8> {
        self.branches.run(&self.binary, None)
    }
}

impl BranchArgs {
    /// Reads the recordings in order; `add` returns false if no event records branches.
    fn read(
        &self,
        sources: &[Source],
        mut add: impl FnMut(&mut Recording, &Arc<FilterOptions>, &mut Report) -> perfx_pipeline::Result<bool>,
    ) -> Result<Report> {
        let filter = filter_of(&self.select)?;
        let mut report = Report::default();
        let (mut with_branches, mut without) = (0, None);
        each_recording(sources, &mut report, |mut recording, report| {
            recording.progress().expect(2 + filter.readings());
            let bar = self.verbosity.progress(&recording);
            let has_branches = add(&mut recording, &filter, report)?;
            drop(bar);
            let name = &recording.name;
            if has_branches {
                with_branches += 1;
                report.say(Level::Info, format!("read {name}: {}", size(report.read.bytes)));
            } else {
                let why = why_no_branches(&recording);
                report.say(
                    Level::Loss,
                    format!("{name}: left out: {why}, and it has no trace of Intel PT or CoreSight"),
                );
                without.get_or_insert(why);
            }
            Ok(())
        })?;
        match (sources, without) {
            ([one], Some(why)) => bail!("{one}: {why}"),
            ([first, ..], Some(why)) if with_branches == 0 => {
                bail!("{first}: {why}; the other recordings have no branches either")
            }
            _ => Ok(report),
        }
    }

    /// Writes sums of the program's branches in this format, or whole stacks.
    fn run(&self, binary: &Path, sums: Option<SumFormat>) -> Result<u8> {
        let sources = self.inputs.sources()?;
        let output = self.output.open(&sources, true)?;
        let ids = self.select.ids().map_err(usage)?;
        let program = Program::open(binary)?;
        let mut profile = BranchProfile::new(sums.is_none());
        let (lists, sources): (Vec<Source>, Vec<Source>) =
            sources.into_iter().partition(|source| sums.is_some() && list_at(source).is_some());
        let mut report = Report::default();
        for path in lists.iter().filter_map(list_at) {
            let name = path.to_string_lossy();
            let bytes = fs::read(path).with_context(|| name.clone().into_owned())?;
            profile.add_lists(&bytes, &name, &program, &mut report)?;
        }
        if !sources.is_empty() {
            let read = self.read(&sources, |recording, filter, report| {
                let threads = self.threads.count(recording);
                profile.add(recording, &program, filter, &ids, threads, report)
            })?;
            report = Report { before: vec![report, read], ..Report::default() };
        }
        let mut left_out = 0;
        output.write(|out| match sums {
            Some(format) => profile.sums(format, &program, out).map(|ranges| left_out = ranges),
            None => profile.profgen(&program, out),
        })?;
        say_runs(left_out, binary, &mut report);
        say_branches(profile.counts(), "the program", &mut report);
        let branches = counted(profile.len() as u64, "distinct branch", "distinct branches");
        report.say(Level::Info, format!("wrote {branches} of {}", binary.display()));
        Ok(self.verbosity.print(&report))
    }
}
