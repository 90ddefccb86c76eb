//! Generates the commands that run a single pass from the registry, so that a new pass brings its own.

use anyhow::Result;
use clap::{ArgGroup, ArgMatches, Args as _, Command, FromArgMatches as _};
use perfx_passes::{PassCommand, PassSpec};

use crate::args::usage;
use crate::io::output::{MoreArgs, WriteArgs};

/// The command line of a pass's command.
pub(crate) fn command(spec: &PassSpec, PassCommand { one_of, .. }: PassCommand) -> Command {
    let command = spec.augment(Command::new(spec.name));
    let (about, help) = (command.get_about().cloned(), command.get_long_about().cloned());
    let command = MoreArgs::augment_args(WriteArgs::augment_args(command));
    // Without any of them, the pass has nothing to do.
    let command = match one_of {
        [] => command,
        _ => command.group(ArgGroup::new("what").args(one_of).required(true).multiple(true)),
    };
    command.about(about.unwrap_or_default()).long_about(help.unwrap_or_default())
}

/// Runs the pass with the options and input of the command line.
pub(crate) fn run(spec: &PassSpec, matches: &ArgMatches) -> Result<u8> {
    // Wrong options are reported before anything is read.
    spec.make(matches).map_err(usage)?;
    let more = MoreArgs::from_arg_matches(matches)?;
    WriteArgs::from_arg_matches(matches)?
        .each(&more, |write| write.transform(spec.name, vec![spec.make(matches).map_err(usage)?]))
}
