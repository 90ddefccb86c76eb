//! Declares the options of a pass once, as a clap `Args` struct, which parses both `perfx NAME --option
//! value` and `perfx run -p NAME:option=value`.

use clap::{ArgMatches, Args, Command};
use perfx_pipeline::{Error, Pass, Result, bail, did_you_mean};

/// The options of a pass, and its entry in the registry.
pub trait PassOptions: Args {
    /// In kebab-case.
    const NAME: &'static str;
    /// A sentence that describes the pass.
    const ABOUT: &'static str;
    /// Present if the pass has the command `perfx NAME`.
    const COMMAND: Option<PassCommand> = None;

    /// Creates the pass. Must succeed with all defaults, because `perfx passes` shows what each pass needs.
    /// Options that the command requires are in [`PassCommand::one_of`].
    ///
    /// # Errors
    ///
    /// The values of options are wrong, or exclude each other: a usage error.
    fn pass(self) -> Result<Box<dyn Pass>>;
}

/// The command that runs one pass. Its help is the documentation of the options' type.
#[derive(Clone, Copy, Debug)]
pub struct PassCommand {
    /// Its heading in `perfx --help`.
    pub group: &'static str,
    /// The command requires at least one of these options, if there are any.
    pub one_of: &'static [&'static str],
}

/// A pass of the registry.
#[derive(Clone, Copy, Debug)]
pub struct PassSpec {
    /// The name.
    pub name: &'static str,
    /// A sentence that describes it.
    pub about: &'static str,
    /// Its own command, if any.
    pub command: Option<PassCommand>,
    augment: fn(Command) -> Command,
    make: fn(&ArgMatches) -> Result<Box<dyn Pass>>,
}

impl PassSpec {
    /// The entry of the pass with these options.
    pub const fn of<O: PassOptions>() -> PassSpec {
        PassSpec {
            name: O::NAME,
            about: O::ABOUT,
            command: O::COMMAND,
            augment: O::augment_args,
            make: |matches| {
                let options = O::from_arg_matches(matches).map_err(|error| Error::new(error.to_string()))?;
                options.pass()
            },
        }
    }

    /// `command` with the pass's options added.
    pub fn augment(&self, command: Command) -> Command {
        (self.augment)(command)
    }

    /// Creates the pass from a command line that [`PassSpec::augment`] has parsed.
    ///
    /// # Errors
    ///
    /// The options are wrong: a usage error.
    pub fn make(&self, matches: &ArgMatches) -> Result<Box<dyn Pass>> {
        (self.make)(matches)
    }

    /// The options, as a command without a name.
    pub fn options(&self) -> Command {
        let command = Command::new(self.name).about(self.about).no_binary_name(true).disable_help_flag(true);
        self.augment(command)
    }

    /// Creates the pass from a chain's options: `NAME` or `NAME=VALUE`, where `\` escapes the next character.
    pub(crate) fn parse(&self, options: impl Iterator<Item = String>) -> Result<Box<dyn Pass>> {
        let command = self.options();
        let mut arguments = Vec::new();
        for option in options {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(unescape(value))),
                None => (option.as_str(), None),
            };
            let takes_value = takes_value(&command, name)?;
            match value {
                Some(value) if takes_value => arguments.push(format!("--{name}={value}")),
                None if !takes_value => arguments.push(format!("--{name}")),
                Some(_) => bail!("option `{name}` does not take a value"),
                None => bail!("option `{name}` needs a value: {name}=VALUE"),
            }
        }
        let matches = command.try_get_matches_from(arguments).map_err(|error| {
            // The other lines describe a command line that does not exist here.
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Error::new(first.trim_start_matches("error: "))
        })?;
        self.make(&matches)
    }
}

fn takes_value(command: &Command, name: &str) -> Result<bool> {
    let is_named = |option: &&clap::Arg| {
        option.get_long_and_visible_aliases().is_some_and(|names| names.contains(&name))
            || option.get_all_aliases().is_some_and(|names| names.contains(&name))
    };
    if let Some(option) = command.get_arguments().find(is_named) {
        return Ok(option.get_action().takes_values());
    }
    let names: Vec<_> =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long).collect();
    let meant = did_you_mean(name, &names);
    bail!("unknown option `{name}`; available: {}{meant}", names.join(", "));
}

/// Splits at separators without a `\` before them; keeps the `\`.
pub(crate) fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == separator {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(char);
            if char == '\\' {
                part.extend(chars.next());
            }
        }
    }
    parts
}

fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.push(if char == '\\' { chars.next().unwrap_or('\\') } else { char });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_can_be_escaped() {
        assert_eq!(split(r"a:b=x\:y:c", ':'), ["a", r"b=x\:y", "c"]);
        assert_eq!(unescape(r"x\:y\\"), r"x:y\");
    }
}
