//! The command line: what every command shares is here, once, and so are the exit codes.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use perfx_pipeline::{Level, Report};

use crate::commands;

/// Exit codes, as every command's `--help` ends.
const EXIT_CODES: &str = "\
Exit codes:
  0  done, and nothing was lost
  1  failed; no output was left behind, and an existing file is as it was
  2  the command line can't be understood
  3  done, but something was lost or is suspect: standard error says what, and how much";

/// Read, transform and write Linux perf.data recordings at the speed of a copy, losing nothing.
#[derive(Parser, Debug)]
#[command(name = "perfx", version, arg_required_else_help = true, after_help = EXIT_CODES, infer_subcommands = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[command(after_help = EXIT_CODES)]
    Copy(commands::copy::Copy),
    #[command(after_help = EXIT_CODES)]
    Dump(commands::dump::Dump),
    #[command(after_help = EXIT_CODES)]
    Inject(commands::inject::Inject),
    #[command(after_help = EXIT_CODES)]
    Merge(commands::merge::Merge),
    #[command(after_help = EXIT_CODES)]
    Run(commands::run::Run),
    #[command(after_help = EXIT_CODES)]
    Passes(commands::passes::Passes),
}

/// Which recording to read.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputArgs {
    /// Recording to read: a file, a FIFO, a directory, or - for standard input [default: standard input if that is a pipe, else perf.data]
    #[arg(value_name = "INPUT", conflicts_with = "input")]
    positional: Option<PathBuf>,
    /// The same, as perf writes it
    #[arg(short, long, value_name = "INPUT")]
    input: Option<PathBuf>,
}

impl InputArgs {
    /// What the user gave.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.positional.as_ref().or(self.input.as_ref())
    }
}

/// How many threads.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct ThreadArgs {
    /// Threads to work with; 0 is one for each processor. The output does not depend on it
    #[arg(short = '@', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=1024))]
    threads: u16,
}

impl ThreadArgs {
    /// At least one.
    pub(crate) fn count(self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads.into(),
        }
    }
}

/// The form of what a command prints.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct FormatArgs {
    /// Form of the output
    #[arg(long, value_name = "FORM", default_value = "text")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// The forms of what a command prints. `schema` is the version of a JSON form: one more whenever a reader of the old one would misread the new.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON document; 64-bit values are strings
    Json,
    /// One JSON object a line
    Ndjson,
}

impl FormatArgs {
    /// What was asked for.
    pub(crate) fn format(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// What is told on standard error.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct TalkArgs {
    /// Say nothing but what is lost, suspect or wrong
    #[arg(short, long)]
    quiet: bool,
    /// Say more
    #[arg(short, long)]
    verbose: bool,
}

impl TalkArgs {
    /// Prints a report's lines; the exit code they amount to.
    pub(crate) fn tell(self, report: &Report) -> u8 {
        let most = match (self.quiet, self.verbose) {
            (true, _) => Level::Warning,
            (_, true) => Level::Detail,
            _ => Level::Info,
        };
        let mut code = 0;
        let mut text = String::new();
        for (level, line) in &report.lines {
            if *level <= Level::Warning {
                code = 3;
            }
            let line = printable(line);
            if *level <= most {
                let prefix = match level {
                    Level::Loss => "lost: ",
                    Level::Warning => "warning: ",
                    Level::Info | Level::Detail => "",
                };
                text += &format!("perfx: {prefix}{line}\n");
            }
        }
        // When standard error is gone there is nobody left to tell.
        let _ = io::stderr().write_all(text.as_bytes());
        code
    }
}

/// Parses the process's command line, does what it says, and turns the outcome into an exit code.
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come as errors, too; a closed pipe is no failure of ours.
            let _ = error.print();
            return error.exit_code().try_into().unwrap_or(2);
        }
    };
    let done: Result<u8> = match cli.command {
        Command::Copy(command) => command.run(),
        Command::Dump(command) => command.run(),
        Command::Inject(command) => command.run(),
        Command::Merge(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Passes(command) => command.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            // Not `eprintln!`, which panics when standard error is gone.
            let _ = writeln!(io::stderr(), "perfx: {}", printable(&format!("{error:#}")));
            if error.is::<Usage>() { 2 } else { 1 }
        }
    }
}

/// Names in a recording can hold anything, also what a terminal takes for a command or shows in another order.
fn printable(text: &str) -> String {
    let hidden = |char: &char| {
        char.is_control()
            || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |char: char| if hidden(&char) { char.escape_default().to_string() } else { char.to_string() };
    text.chars().map(shown).collect()
}

/// What the user asked for makes no sense, though the command line could be parsed.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Whoever read our output has enough of it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io =
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        io || cause.downcast_ref::<perfx_format::Error>().is_some_and(perfx_format::Error::is_broken_pipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
