//! `perfx join` makes one recording from several of the same machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use perfx_format::read::{Chain, Recording};
use perfx_passes::{CombineOptions, Decompress, DecompressOptions, InputSpec, Joined};
use perfx_pipeline::{Job, OutputForm};

use super::decompress::broken_chain;
use crate::args::{Usage, usage};
use crate::io::output::WriteArgs;
use crate::io::source::{InputsArgs, Source, identity, refuse_twice, repeatable, temp_files};

/// Join several recordings of one machine into one, in time order
///
/// INPUT is PATH[,offset=NS], where PATH is a file, FIFO, directory, or - for standard input. @FILE is
/// a list of inputs, one per line. An input's time t becomes t - offset.
///
/// Events with the same name and attr become one event, and ids that two inputs use are renumbered.
/// Records that occur in several inputs are written once, so the files of perf record
/// --switch-output become the recording they would have been without it (with -z: oldest first).
/// Inputs from different machines, boots or clocks are refused.
///
/// Examples:
///   perfx join cpu.data io.data -o all.data
///   perfx join perf.data.2026* -o perf.data
///   perfx join host.data trace.data,offset=-1500 -o all.data
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "perfx join [OPTIONS] INPUT INPUT…",
    mut_arg("input", repeatable),
    // Refused with a reason.
    mut_arg("in_place", |option| option.hide(true))
)]
pub(crate) struct Join {
    // Before the options that it reads, because those move its values out.
    #[command(flatten)]
    inputs: InOrder,
    #[command(flatten)]
    write: WriteArgs,
    /// More recordings to read
    #[arg(help_heading = "Input", value_name = "INPUT")]
    others: Vec<PathBuf>,
    /// Also join recordings of different machines or boots, or with clocks that can't be compared; --force does the
    /// same
    #[arg(long)]
    mix: bool,
}

/// The inputs as on the command line, with and without -i.
#[derive(Debug)]
struct InOrder(Vec<PathBuf>);

impl Args for InOrder {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for InOrder {
    fn from_arg_matches(matches: &ArgMatches) -> Result<InOrder, clap::Error> {
        let mut given: Vec<(usize, PathBuf)> = Vec::new();
        for name in ["positional", "input", "others"] {
            let (places, paths) = (matches.indices_of(name), matches.get_many::<PathBuf>(name));
            given.extend(places.into_iter().flatten().zip(paths.into_iter().flatten().cloned()));
        }
        given.sort_by_key(|(place, _)| *place);
        Ok(InOrder(given.into_iter().map(|(_, path)| path).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = InOrder::from_arg_matches(matches)?;
        Ok(())
    }
}

struct Input {
    source: Source,
    offset: Option<i64>,
    recording: Recording,
}

impl Join {
    pub(crate) fn run(&self) -> Result<u8> {
        if self.write.in_place {
            bail!(Usage("join writes a new recording and can't change one in place: give -o FILE".into()));
        }
        let mut inputs = self.open_chains(self.open()?)?.into_iter();
        let first = inputs.next().context("there is no input")?;
        let inputs: Vec<_> = inputs.collect();
        let take_kcore = first.recording.extras.is_empty();
        let has_kcore = |input: &Input| !input.recording.extras.is_empty();
        let directory = take_kcore && inputs.iter().any(has_kcore);
        let others = inputs.into_iter().map(|input| Joined::Open(Box::new(input.recording), input.offset));
        let options = CombineOptions {
            offset: first.offset,
            others: others.collect(),
            mix: self.mix || self.write.force,
            take_kcore,
        };
        let pass = Box::new(perfx_passes::join(options));
        self.write.write_recording("join", &first.source, first.recording, vec![pass], directory)
    }

    fn open(&self) -> Result<Vec<Input>> {
        let mut inputs: Vec<Input> = Vec::new();
        let spec = |source: Source| {
            let Source::Path(path) = &source else { return Ok((source, None)) };
            let spec = InputSpec::parse(path.as_os_str()).map_err(usage)?;
            Ok((Source::named(&spec.path), spec.offset))
        };
        let given = InputsArgs::of(self.inputs.0.clone())
            .sources()?
            .into_iter()
            .map(spec)
            .collect::<Result<Vec<_>>>()?;
        refuse_twice(&given.iter().map(|(source, _)| source.clone()).collect::<Vec<_>>())?;
        for (source, offset) in given {
            if let Source::Path(path) = &source {
                self.refuse(path, &inputs)?;
            }
            let recording = source.open()?.spooled(&temp_files())?;
            inputs.push(Input { source, offset, recording });
        }
        Ok(inputs)
    }

    /// Refuses an input given twice, which would be duplicated, and an output that is also an input.
    fn refuse(&self, path: &PathBuf, inputs: &[Input]) -> Result<()> {
        let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
        let same =
            |other: &PathBuf| fs::metadata(other).is_ok_and(|other| identity(&other) == identity(&metadata));
        let twice = inputs.iter().any(|input| matches!(&input.source, Source::Path(other) if same(other)));
        ensure!(!twice, "{} is given twice", path.display());
        let is_output = self.write.output.as_ref().is_some_and(same);
        ensure!(!is_output, "{} is an input and can't also be the output", path.display());
        Ok(())
    }

    /// Opens the files of `perf record -z --switch-output`. Only the first can be read alone; as each needs
    /// the state of the one before, all are decompressed in order into temporary files.
    fn open_chains(&self, mut inputs: Vec<Input>) -> Result<Vec<Input>> {
        let going_on = inputs.iter_mut().map(|input| input.recording.continues_stream());
        let mut goes_on = going_on.collect::<perfx_format::Result<Vec<bool>>>()?;
        goes_on.push(false);
        let compressed: Vec<bool> = inputs.iter().map(|input| input.recording.is_compressed()).collect();
        let mut chain = Chain::default();
        let paths: Vec<PathBuf> = inputs.iter().map(|input| input.source.to_string().into()).collect();
        let open = |(number, mut input): (usize, Input)| {
            if !goes_on[number] {
                chain = Chain::default();
            }
            chain.last = !goes_on[number + 1];
            if chain.last && !goes_on[number] {
                return Ok(input);
            }
            ensure!(
                !goes_on[number] || number > 0 && compressed[number - 1],
                "{}: it continues the zstd stream of an earlier file: give all files of perf record -z \
                 --switch-output, oldest first",
                input.source
            );
            let name = input.recording.name.clone();
            input.recording.continue_from(chain.clone());
            let pass = Decompress::new(DecompressOptions { salvage: false });
            let recording = input.recording;
            let threads = self.write.threads.count(&recording);
            let job = Job { recording, passes: vec![Box::new(pass)], threads, temp_files: temp_files() };
            let after = number.checked_sub(1).filter(|_| goes_on[number]).map(|before| &paths[before]);
            let ran = job.into_recording(OutputForm::File);
            let (recording, _) = ran.map_err(|error| broken_chain(error.into(), &name, after))?;
            Ok(Input { recording, ..input })
        };
        inputs.into_iter().enumerate().map(open).collect()
    }
}
