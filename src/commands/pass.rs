//! Generates the commands of single passes from the registry, so that a new pass has one automatically.

use anyhow::Result;
use clap::{ArgGroup, ArgMatches, Args as _, Command, FromArgMatches as _};
use perfx_passes::{PassCommand, PassSpec};

use crate::args::usage;
use crate::io::output::{MoreArgs, WriteArgs};

pub(crate) fn command(spec: &PassSpec, PassCommand { one_of, .. }: PassCommand) -> Command {
    let command = spec.augment(Command::new(spec.name));
    let (about, help) = (command.get_about().cloned(), command.get_long_about().cloned());
    let command = MoreArgs::augment_args(WriteArgs::augment_args(command));
    // Without any of these, the pass has no effect.
    let command = match one_of {
        [] => command,
        _ => command.group(ArgGroup::new("what").args(one_of).required(true).multiple(true)),
    };
    command.about(about.unwrap_or_default()).long_about(help.unwrap_or_default())
}

pub(crate) fn run(spec: &PassSpec, matches: &ArgMatches) -> Result<u8> {
    // Invalid options are reported before anything is read.
    spec.make(matches).map_err(usage)?;
    let more = MoreArgs::from_arg_matches(matches)?;
    WriteArgs::from_arg_matches(matches)?
        .each(&more, |write| write.transform(spec.name, vec![spec.make(matches).map_err(usage)?]))
}
