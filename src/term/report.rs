//! Prints reports and errors on standard error, as much as was requested, coloured on a terminal.

use std::io::{self, Write as _};

use anstream::AutoStream;
use clap::builder::styling::{AnsiColor, Style, Styles};
use clap::{ArgAction, Args, ValueEnum};
use perfx_format::read::Recording;
use perfx_look::render::printable;
use perfx_passes::DecodedTrace;
use perfx_pipeline::{LISTED, Level, Read, Report, counted};

use crate::io::streams::{are_given, stderr, stderr_is_terminal};
use crate::term::progress::Bar;
use crate::term::units::size;

pub(crate) const HEADING: Style = AnsiColor::Green.on_default().bold();
pub(crate) const LITERAL: Style = AnsiColor::Cyan.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const ODD: Style = AnsiColor::Yellow.on_default().bold();

pub(crate) const STYLES: Styles =
    Styles::styled().header(HEADING).usage(HEADING).literal(LITERAL).error(BAD).invalid(ODD).valid(LITERAL);

/// When to use colours.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

impl ColorWhen {
    /// Applies the choice to all further output, separately for standard output and standard error.
    pub(crate) fn apply(self) {
        let choice = match self {
            ColorWhen::Auto => anstream::ColorChoice::Auto,
            ColorWhen::Always => anstream::ColorChoice::Always,
            ColorWhen::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

pub(crate) fn heading(text: &str) -> String {
    match AutoStream::choice(&io::stdout()) {
        _ if are_given() => text.to_owned(),
        anstream::ColorChoice::Never => text.to_owned(),
        _ => format!("{HEADING}{text}{HEADING:#}"),
    }
}

/// How much is printed on standard error.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct VerbosityArgs {
    /// Print only losses, warnings and errors
    #[arg(help_heading = "Report", short, long)]
    quiet: bool,
    /// Print more; -vv also prints how the work is done
    #[arg(help_heading = "Report", short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Don't show the progress bar (shown on a terminal after 2 s)
    #[arg(help_heading = "Report", long)]
    no_progress: bool,
    /// As perf: print only losses, and return 0 for them unless PERFX_STRICT=1
    #[arg(long, hide = true)]
    pub(crate) like_perf: bool,
}

impl VerbosityArgs {
    pub(crate) fn says_how(self) -> bool {
        self.verbose > 1 && !self.quiet
    }

    /// Shows the reading progress on a terminal, until the bar is dropped, before any other output.
    pub(crate) fn progress(self, recording: &Recording) -> Bar {
        if self.shows_progress() { Bar::of(recording) } else { Bar::none() }
    }

    /// The same for the decoding of a trace.
    pub(crate) fn progress_of_trace(self, trace: &DecodedTrace) -> Bar {
        if self.shows_progress() { Bar::of_trace(trace.progress()) } else { Bar::none() }
    }

    pub(crate) fn shows_progress(self) -> bool {
        !self.quiet && !self.no_progress && !self.like_perf && stderr_is_terminal()
    }

    pub(crate) fn print(self, report: &Report) -> u8 {
        let most = match (self.quiet, self.verbose) {
            (_, 0) if self.like_perf => Level::Loss,
            (true, _) => Level::Warning,
            (_, 0) => Level::Info,
            _ => Level::Detail,
        };
        let mut text = String::new();
        add_lines(report, most, &mut text);
        // If standard error is closed, the report is lost.
        stderr().write_all(text.as_bytes()).ok();
        let is_strict =
            !self.like_perf || std::env::var_os("PERFX_STRICT").is_some_and(|strict| strict == "1");
        if report.is_suspect() && is_strict { 3 } else { 0 }
    }
}

fn add_lines(report: &Report, most: Level, text: &mut String) {
    report.before.iter().for_each(|before| add_lines(before, most, text));
    if let Read { name: Some(name), records, bytes } = &report.read
        && most >= Level::Info
    {
        let records = records.map(|records| counted(records, "record", "records") + ", ");
        let read = format!("read {name}: {}{}", records.unwrap_or_default(), size(*bytes));
        *text += &format!("perfx: {}\n", printable(&read));
    }
    for (level, line) in report.lines.iter().filter(|(level, _)| *level <= most) {
        let prefix = match level {
            Level::Loss => format!("{BAD}lost:{BAD:#} "),
            Level::Warning => format!("{ODD}warning:{ODD:#} "),
            Level::Info | Level::Detail => String::new(),
        };
        let line = if most == Level::Detail { line.replace(LISTED, "") } else { line.clone() };
        *text += &format!("perfx: {prefix}{}\n", printable(&line));
    }
}

/// The text of an error and its causes. Errors of the libraries already include theirs.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut causes = Vec::new();
    for cause in error.chain() {
        causes.push(cause.to_string());
        if cause.is::<perfx_format::Error>() || cause.is::<perfx_pipeline::Error>() {
            break;
        }
    }
    causes.join(": ")
}

/// Prints a message while a command runs. A closed standard error loses it; `eprintln!` would panic.
pub(crate) fn tell(what: &str) {
    writeln!(stderr(), "perfx: {}", printable(what)).ok();
}

pub(crate) fn tell_failure(error: &anyhow::Error) {
    let what = printable(&message(error));
    let way_out = if what.contains("perfx recover") { "" } else { way_out(error) };
    writeln!(stderr(), "{BAD}perfx:{BAD:#} {what}{way_out}").ok();
}

/// The hint for a recording that ends too early or is damaged, except from `recover` itself.
fn way_out(error: &anyhow::Error) -> &'static str {
    let fault = error.chain().find_map(|cause| cause.downcast_ref::<perfx_format::Error>()?.fault_code());
    match fault.and_then(|fault| perfx_doctor::code(fault.as_str()).repair) {
        Some("recover") => "; perfx recover restores the readable part",
        _ => "",
    }
}
