//! Parses the command line, runs the command, and returns the exit code. No other file imports this one.

use std::ffi::OsString;
use std::hash::RandomState;
use std::io::{self, Write as _};
use std::panic;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args as _, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use perfx_passes::{PassCommand, PassSpec, REGISTRY};
use perfx_pipeline::is_typo;

use crate::args::{ThreadArgs, Usage};
use crate::commands::inject::PERF_ONLY;
use crate::commands::{
    self, completion, copy, decompress, diff, doctor, du, dump, export, filter, index, info, inject, join,
    list, man, merge, overview, pack, passes, perf, recover, redact, reindex, repair, run, shim, sort, split,
    stats, symbolize, unpack, view, watch,
};
use crate::first_page::first_page;
use crate::io::streams::Streams;
use crate::io::{signals, streams};
use crate::term::report::{ColorWhen, HEADING, LITERAL, STYLES, VerbosityArgs, tell_failure};

/// The end of `--help`, unless a command has its own.
const EXIT_CODES: &str = "\
Exit codes:
  0  done, and nothing was lost
  1  failed; there is no output, and an existing file is unchanged
  2  invalid command line
  3  done, but something was lost or is suspect; standard error says what and how much";

/// Read, transform and write Linux perf.data recordings at the speed of a copy, losing nothing.
#[derive(Parser, Debug)]
#[command(name = "perfx", version, long_version = env!("PERFX_VERSION"), args_override_self = true, styles = STYLES)]
struct Cli {
    /// Use colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        global = true,
        help_heading = "Report",
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        display_order = 990
    )]
    color: ColorWhen,
}

struct Entry {
    name: &'static str,
    augment: fn(clap::Command) -> clap::Command,
    read: fn(&ArgMatches) -> Result<Ready, clap::Error>,
}

type Ready = Box<dyn FnOnce(&Program) -> Result<u8>>;

/// The entry of a command with options of this type.
macro_rules! entry {
    ($name:literal, $options:ty) => {
        entry!($name, $options, |command, _| command.run())
    };
    ($name:literal, $options:ty, $run:expr) => {
        Entry {
            name: $name,
            augment: <$options>::augment_args,
            read: |matches| {
                let command = <$options>::from_arg_matches(matches)?;
                let run: fn($options, &Program) -> Result<u8> = $run;
                Ok(Box::new(move |program| run(command, program)))
            },
        }
    };
}

/// The commands of this package by the groups of `perfx --help`. Passes name their group themselves.
const GROUPS: [(&str, &[Entry]); 8] = [
    ("Inject and merge", &[entry!("inject", inject::Inject), entry!("merge", merge::Merge)]),
    (
        "Cut and join",
        &[
            entry!("filter", filter::Filter),
            entry!("split", split::Split),
            entry!("join", join::Join),
            entry!("sort", sort::Sort),
            entry!("index", index::Index),
        ],
    ),
    (
        "Check and repair",
        &[
            entry!("doctor", doctor::Doctor),
            entry!("repair", repair::Repair),
            entry!("recover", recover::Recover),
            entry!("reindex", reindex::Reindex),
        ],
    ),
    (
        "Look",
        &[
            entry!("overview", overview::Overview),
            entry!("info", info::Info),
            entry!("list", list::List),
            entry!("stats", stats::Stats),
            entry!("du", du::Du),
            entry!("view", view::View),
            entry!("dump", dump::Dump),
            entry!("diff", diff::Diff),
            entry!("watch", watch::Watch),
        ],
    ),
    ("Export", &[entry!("export", export::Export), entry!("symbolize", symbolize::Symbolize)]),
    (
        "Share",
        &[entry!("redact", redact::Redact), entry!("pack", pack::Pack), entry!("unpack", unpack::Unpack)],
    ),
    ("Change the form", &[entry!("copy", copy::Copy), entry!("decompress", decompress::Decompress)]),
    (
        "Passes and documentation",
        &[
            entry!("run", run::Run, |command, program| command.run(&program.passes)),
            entry!("passes", passes::Passes, |command, program| command.run(&program.passes)),
            entry!("shim", shim::Shim),
            entry!("completion", completion::Completion, |command, program| command
                .run(program.command_line(), &program.passes)),
            entry!("man", man::Man, |command, program| command.run(program.command_line())),
        ],
    ),
];

fn entries() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|(_, entries)| *entries)
}

/// The program: the commands, and the passes of perfx with those of other packages.
#[derive(Clone, Debug)]
pub struct Program {
    passes: Vec<PassSpec>,
}

impl Default for Program {
    fn default() -> Program {
        Program { passes: REGISTRY.to_vec() }
    }
}

impl Program {
    /// Adds a pass to `perfx run -p` and `perfx passes`, with its own command if it has one.
    ///
    /// # Panics
    ///
    /// There is a pass with this name.
    #[must_use]
    pub fn with_pass(mut self, pass: PassSpec) -> Program {
        assert!(self.passes.iter().all(|other| other.name != pass.name), "two passes named {}", pass.name);
        self.passes.push(pass);
        self
    }

    /// Parses the process's command line, runs the command, and turns the outcome into an exit code.
    pub fn main(&self) -> ExitCode {
        ExitCode::from(self.run(std::env::args_os()))
    }

    /// Runs a command line, whose first argument is the program's name, in this process; returns the exit
    /// code. It uses the environment and current directory of the process; a closed pipe ends the process.
    pub fn run_with(&self, args: impl IntoIterator<Item = OsString>, streams: Streams) -> u8 {
        streams::with(streams, || self.run(args))
    }

    /// The complete command line, from which help, manual pages and completion are generated.
    pub fn command_line(&self) -> clap::Command {
        let command = self.command_line_of(|_| true);
        let template =
            format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}", self.listed(&command));
        let exit_codes = format!("{EXIT_CODES}\n  4  only from perfx diff --profile: the profile changed");
        command.help_template(template + "Options:\n{options}{after-help}").after_help(exit_codes)
    }

    fn command_line_of(&self, wanted: impl Fn(&str) -> bool) -> clap::Command {
        let shared = VerbosityArgs::augment_args(ThreadArgs::augment_args(clap::Command::new("shared")));
        // Accepts shared options before any command, even before `perfx info`, which ignores `-@ 4`.
        let anywhere = shared.get_arguments().map(|arg| arg.clone().global(true).hide(true));
        let mut own: Vec<_> = entries().filter(|entry| wanted(entry.name)).collect();
        own.sort_unstable_by_key(|entry| entry.name);
        let own = own.into_iter().map(|entry| (entry.augment)(clap::Command::new(entry.name)));
        let passes = self.commands().filter(|(spec, _)| wanted(spec.name));
        let passes = passes.map(|(spec, command)| commands::pass::command(spec, command));
        let command = Cli::command().subcommand_required(true).arg_required_else_help(true);
        complete(command.args(anywhere).subcommands(own.chain(passes)))
    }

    fn commands(&self) -> impl Iterator<Item = (&PassSpec, PassCommand)> {
        self.passes.iter().filter_map(|spec| Some((spec, spec.command?)))
    }

    fn listed(&self, command: &clap::Command) -> String {
        let about = |name: &str| match command.find_subcommand(name).and_then(clap::Command::get_about) {
            Some(about) => about.to_string(),
            None => "Print this message or the help of a command".to_owned(),
        };
        let line = |name: &&str| format!("  {LITERAL}{name:<12}{LITERAL:#}{}\n", about(name));
        let group = |(title, names): (&str, Vec<&str>)| {
            format!("{HEADING}{title}:{HEADING:#}\n{}\n", names.iter().map(line).collect::<String>())
        };
        self.groups().into_iter().map(group).collect()
    }

    fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let names = |entries: &[Entry]| entries.iter().map(|entry| entry.name).collect();
        let mut groups: Vec<(_, Vec<_>)> =
            GROUPS.iter().map(|(title, entries)| (*title, names(entries))).collect();
        if let Some((_, last)) = groups.last_mut() {
            last.push("help");
        }
        for (spec, command) in self.commands() {
            match groups.iter_mut().find(|(title, _)| *title == command.group) {
                Some((_, names)) => names.push(spec.name),
                None => groups.push((command.group, vec![spec.name])),
            }
        }
        groups
    }
}

fn with_heading(arg: Arg) -> Arg {
    let shared = arg.is_positional() || arg.is_hide_set() || arg.get_id() == "threads";
    if shared || arg.get_help_heading().is_some() { arg } else { arg.help_heading("Command options") }
}

/// Makes each paragraph of a help text one line, which clap breaks at the width of the terminal. Examples and
/// lists, whose lines begin with a space, stay.
fn refilled(text: &str) -> String {
    let mut filled = String::new();
    let mut last = "";
    for line in text.lines() {
        let continues = ![line, last].iter().any(|line| line.is_empty() || line.starts_with(' '));
        filled += if filled.is_empty() {
            ""
        } else if continues {
            " "
        } else {
            "\n"
        };
        filled += line;
        last = line;
    }
    filled
}

fn complete(command: clap::Command) -> clap::Command {
    let mut command = command.mut_subcommands(complete);
    if let Some(text) = command.get_long_about().map(|text| refilled(&text.to_string())) {
        command = command.long_about(text);
    }
    let command = command.mut_args(with_heading);
    if command.get_after_help().is_some() { command } else { command.after_help(EXIT_CODES) }
}

impl Program {
    fn run(&self, args: impl IntoIterator<Item = OsString>) -> u8 {
        let args: Vec<OsString> = args.into_iter().collect();
        match perf::called(&args) {
            Ok(Some(perf::Called::Words(words))) => perf::exit_code(self.run_perfx(words)),
            Ok(Some(perf::Called::Done(code))) => after_text(Ok(()), code),
            Ok(None) => self.run_perfx(args),
            Err(error) => perf::exit_code(fail(&error)),
        }
    }

    fn run_perfx(&self, args: Vec<OsString>) -> u8 {
        let (color, words) = split_color(&args);
        early_color(&color).apply();
        if let Some((written, code)) = first_page(&words) {
            return after_text(written, code);
        }
        // The panic hook of a caller's process is not ours to change.
        if !streams::are_given() && !has_random_numbers() {
            return fail(&anyhow!(
                "the system has no random numbers: neither getrandom(2) nor /dev/urandom works"
            ));
        }
        let args = self.as_help_or_overview(color, words).unwrap_or(args);
        signals::survive_file_size_limit();
        let (color, ready) = match self.parse(&args) {
            Ok(parsed) => parsed,
            Err(error) => {
                // Help and version arrive as errors, too.
                let code = match args.iter().any(|word| word == "--like-perf") {
                    true => perf::exit_code_of(&error),
                    false => error.exit_code().try_into().unwrap_or(2),
                };
                return after_text(print(&error), code);
            }
        };
        color.apply();
        signals::watch();
        match ready(self) {
            Ok(code) => after_text(Ok(()), code),
            Err(error) => match closed_pipe(&error) {
                Some(ClosedPipe::Text) => 0,
                Some(ClosedPipe::Recording) => signals::die_of_closed_pipe(),
                None => fail(&error),
            },
        }
    }

    /// Shows a recording given in place of a command, unless a command has that name. `help all` becomes
    /// `--help`. Moves colour options to the front. `None` for any other command.
    fn as_help_or_overview(&self, color: Vec<OsString>, mut words: Vec<OsString>) -> Option<Vec<OsString>> {
        let first = words.get(1)?;
        if first == "help" {
            if words.len() == 3 && words[2] == "all" {
                words.splice(1.., ["--help".into()]);
            }
        } else if !self.has_command(first) && Path::new(first).exists() {
            words.insert(1, "overview".into());
        } else {
            return None;
        }
        words.splice(1..1, color);
        Some(words)
    }

    fn has_command(&self, name: &OsString) -> bool {
        entries().any(|entry| name == entry.name) || self.commands().any(|(spec, _)| name == spec.name)
    }

    /// Parses the command line, first with only the command that it seems to name: building the options of
    /// all commands takes 3 ms, and is needed only if that fails, as for a request for help.
    fn parse(&self, args: &[OsString]) -> Result<(ColorWhen, Ready), clap::Error> {
        if let Some(name) = args.iter().skip(1).find(|arg| self.has_command(arg))
            && let Ok(parsed) = self.parse_by(&mut self.command_line_of(|other| name == other), args)
        {
            return Ok(parsed);
        }
        let mut command = self.command_line();
        self.parse_by(&mut command, args).map_err(|error| match error.kind() {
            ErrorKind::InvalidSubcommand => with_command_tip(error, &command, args),
            ErrorKind::InvalidValue => with_order_tip(error, args),
            _ => with_tip(error, &mut command, args),
        })
    }

    fn parse_by(
        &self,
        command: &mut clap::Command,
        args: &[OsString],
    ) -> Result<(ColorWhen, Ready), clap::Error> {
        let mut matches = command.try_get_matches_from_mut(args)?;
        let Cli { color } = Cli::from_arg_matches(&matches).map_err(|error| error.format(command))?;
        let ready = matches.remove_subcommand().and_then(|(name, options)| {
            if let Some(entry) = entries().find(|entry| entry.name == name) {
                return Some((entry.read)(&options));
            }
            let spec = *self.passes.iter().find(|spec| spec.name == name)?;
            Some(Ok(Box::new(move |_: &Program| commands::pass::run(&spec, &options))))
        });
        let ready = ready.ok_or_else(|| command.error(ErrorKind::MissingSubcommand, "no command"))?;
        Ok((color, ready.map_err(|error| error.format(command))?))
    }
}

const PERF_COMMANDS: [&str; 14] = [
    "buildid-cache", "c2c", "data", "kmem", "kvm", "kwork", "lock", "mem", "record", "sched", "stat",
    "timechart", "top", "trace",
];

/// Replacements for names known from perf and other programs.
const INSTEAD: [(&str, &str); 11] = [
    (
        "annotate",
        "perfx export html --annotate N shows source lines and instructions; perf annotate reads every recording, too",
    ),
    ("archive", "perfx pack puts a recording and the files that name its functions into one file"),
    (
        "report",
        "perfx export html writes a page of functions and stacks; perf report reads every recording, too",
    ),
    ("script", "perfx view shows each sample; perf script reads every recording that perfx writes, too"),
    (
        "flamegraph",
        "perfx export html has a flame graph, and perfx export folded is the input of flamegraph.pl",
    ),
    ("convert", "perfx export writes other formats, perfx copy --to pipe or file the other form"),
    ("evlist", "perfx list events shows the events, and perfx info their attributes"),
    ("buildid-list", "perfx list build-ids shows them"),
    ("speedscope", "speedscope reads the output of perfx export pprof"),
    ("perfetto", "perfx export firefox writes stacks over time, for profiler.firefox.com"),
    ("chrome", "perfx export firefox writes stacks over time, for profiler.firefox.com"),
];

/// Adds a tip to the error for an unknown command: its replacement, perf for a command that only perf has, or
/// the perfx command for a misspelt or shortened name.
fn with_command_tip(mut error: clap::Error, command: &clap::Command, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand).cloned() else {
        return error;
    };
    error.remove(ContextKind::Suggested);
    let export = command.find_subcommand("export").filter(|_| args.iter().any(|arg| arg == "export"));
    let format = export.and_then(|export| args.iter().find(|arg| export.find_subcommand(arg).is_some()));
    let tip = if given == "-" {
        "for the recording on standard input, type perfx overview -, or another command before the -"
            .to_owned()
    } else if export.is_some() && (format.is_some() || Path::new(&given).exists()) {
        let format = format.map_or("FORMAT".into(), |format| format.to_string_lossy());
        format!("the format comes before the recording: perfx export {format} {given}")
    } else if let Some((_, what)) = INSTEAD.iter().find(|(name, _)| *name == given) {
        error.remove(ContextKind::SuggestedSubcommand);
        (*what).to_owned()
    } else {
        let is_of_perf = PERF_COMMANDS.contains(&&given[..]);
        if let Some(ContextValue::Strings(meant)) = error.remove(ContextKind::SuggestedSubcommand) {
            let is_meant = |name: &String| is_typo(&given, name) || name.starts_with(&given);
            let meant: Vec<String> = meant.into_iter().filter(is_meant).collect();
            if !meant.is_empty() && !is_of_perf {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
            }
        }
        match &given[..] {
            "record" | "stat" | "top" | "trace" if is_of_perf => {
                format!("use perf {given}: perfx only works on existing recordings")
            }
            _ if is_of_perf => format!("use perf {given}: it reads every recording that perfx writes"),
            path if path.contains(['.', '/']) => {
                format!("there is no file {given}; the name of a recording that exists is enough to show it")
            }
            _ => return error,
        }
    };
    suggest(&mut error, &tip);
    error
}

fn suggest(error: &mut clap::Error, what: &str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![what.to_owned().into()]));
}

/// Adds a tip to the error for `perfx list FILE functions`.
fn with_order_tip(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidValue) else { return error };
    let kinds = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(kinds)) if args.iter().any(|arg| arg == "list") => kinds,
        _ => return error,
    };
    if Path::new(given).exists() {
        let kind = kinds.iter().find(|kind| args.iter().any(|arg| arg == &***kind));
        let kind = kind.map_or("WHAT", String::as_str);
        let what = format!("what to list comes before the recording: perfx list {kind} {given}");
        suggest(&mut error, &what);
    }
    error
}

/// Adds a tip to the error for an unknown argument, but only for a likely typo. Arguments that merely share
/// letters (`--itrace`, `--in-place`) may mean something else, and a file called `-k` is unlikely.
fn with_tip(mut error: clap::Error, command: &mut clap::Command, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let name = args.iter().find(|arg| command.find_subcommand(arg).is_some());
    let Some(named) = name.and_then(|name| command.find_subcommand_mut(name)) else { return error };
    error.remove(ContextKind::Suggested);
    if let Some(ContextValue::String(meant)) = error.get(ContextKind::SuggestedArg)
        && !is_typo(&given, meant)
    {
        error.remove(ContextKind::SuggestedArg);
        // The usage in the error contains the wrong suggestion, too.
        error.insert(ContextKind::Usage, ContextValue::StyledStr(named.render_usage()));
    }
    let takes_output = named.get_arguments().any(|arg| arg.get_id() == "output");
    let option = given.split('=').next().unwrap_or_default();
    // An existing file may be an input, so it is unlikely to be meant as the output.
    let tip = if !given.starts_with('-') && takes_output && !std::path::Path::new(&given).exists() {
        format!("to write to {given}, give -o {given}")
    } else if let Some((_, why)) = PERF_ONLY.iter().find(|(name, _)| *name == option)
        && named.get_name() == "inject"
    {
        format!("perf inject has {option}; {why}")
    } else {
        return error;
    };
    suggest(&mut error, &tip);
    error
}

/// Flushes standard output and returns the exit code. A usage error stays 2, even if its message cannot be
/// written. A closed pipe is not a failure.
fn after_text(written: io::Result<()>, code: u8) -> u8 {
    match written.and_then(|()| streams::stdout().flush()) {
        Err(error) if code != 2 && error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&anyhow::Error::new(error).context("standard output"))
        }
        _ => code,
    }
}

/// Without random numbers, the standard library panics when it makes a hash table.
fn has_random_numbers() -> bool {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let made = panic::catch_unwind(RandomState::new);
    panic::set_hook(hook);
    made.is_ok()
}

fn print(error: &clap::Error) -> io::Result<()> {
    if !streams::are_given() {
        return error.print();
    }
    let text = error.render().to_string();
    if error.use_stderr() {
        streams::stderr().write_all(text.as_bytes())
    } else {
        streams::stdout().write_all(text.as_bytes())
    }
}

fn fail(error: &anyhow::Error) -> u8 {
    tell_failure(error);
    let of_options = matches!(error.downcast_ref(), Some(perfx_pipeline::Error::Usage(_)));
    if of_options || error.is::<Usage>() { 2 } else { 1 }
}

/// Separates colour options, with their values, from the other words.
fn split_color(args: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let (mut color, mut words) = (Vec::new(), Vec::new());
    let mut args = args.iter().cloned();
    while let Some(arg) = args.next() {
        match arg.to_str().and_then(|arg| arg.strip_prefix("--color")) {
            Some("") => color.extend([arg].into_iter().chain(args.next())),
            Some(value) if value.starts_with('=') => color.push(arg),
            _ if arg == "--" => words.extend([arg].into_iter().chain(args.by_ref())),
            _ => words.push(arg),
        }
    }
    (color, words)
}

/// Decides before the command line is parsed, because errors in it are coloured, too.
fn early_color(color: &[OsString]) -> ColorWhen {
    let value = color.last().and_then(|last| last.to_str()).map(|last| last.trim_start_matches("--color="));
    value.and_then(|when| ColorWhen::from_str(when, false).ok()).unwrap_or(ColorWhen::Auto)
}

/// The output that could not be written because the reader closed the pipe.
enum ClosedPipe {
    /// The rest of a text is not needed.
    Text,
    /// The recording is incomplete.
    Recording,
}

fn closed_pipe(error: &anyhow::Error) -> Option<ClosedPipe> {
    error.chain().find_map(|cause| {
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return Some(ClosedPipe::Text);
        }
        // Only the writer of recordings has such an error.
        let recording = cause.downcast_ref::<perfx_format::Error>()?.is_broken_pipe();
        recording.then_some(ClosedPipe::Recording)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Program::default().command_line().debug_assert();
    }

    #[test]
    fn paragraphs_of_a_help_are_lines_and_examples_stay() {
        let text = "About\n\nOne sentence that\ngoes on.\n\nExamples:\n  perfx a\n  perfx b\n\nMore\nwords";
        let filled = "About\n\nOne sentence that goes on.\n\nExamples:\n  perfx a\n  perfx b\n\nMore words";
        assert_eq!(refilled(text), filled);
    }

    #[test]
    fn every_command_is_in_a_group() {
        let program = Program::default();
        let mut listed: Vec<_> = program.groups().into_iter().flat_map(|(_, names)| names).collect();
        listed.sort_unstable();
        let mut command = program.command_line();
        command.build();
        let mut names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        names.sort_unstable();
        assert_eq!(listed, names);
    }
}
