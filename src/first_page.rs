//! Prints the page of `perfx` and `perfx -h`: in 20 lines, what perfx is, first steps, and further help.

use std::ffi::OsString;
use std::io::{self, Write};

use crate::io::source::Source;
use crate::io::streams::{coloured_stdout, stderr};
use crate::term::report::{HEADING, LITERAL, tell_failure};

/// Commands to begin with; a test runs each.
pub const FIRST_COMMANDS: [(&str, &str); 5] = [
    ("perfx perf.data", "a summary on one screen"),
    ("perfx list functions perf.data", "the slowest functions"),
    ("perfx export html perf.data -o page.html", "a page with a flame graph"),
    ("perfx inject --buildids perf.data -o out.data", "add build-ids"),
    ("perfx filter --time 40%-60% perf.data -o cut.data", "cut out a part"),
];

/// Sources of further help.
const MORE: [(&str, &str); 4] = [
    ("perfx --help, perfx help all", "all commands"),
    ("perfx help COMMAND", "a command with its options"),
    ("perfx man -o DIR", "manual pages"),
    ("perfx completion SHELL", "completion for your shell"),
];

/// Prints the page for these command lines, and returns the exit code.
pub(crate) fn first_page(args: &[OsString]) -> Option<(io::Result<()>, u8)> {
    match args {
        [] | [_] => Some((write(&mut stderr()).map(|()| say_stdin()), 2)),
        [_, flag] if flag == "-h" => Some((write(&mut coloured_stdout()), 0)),
        _ => None,
    }
}

fn say_stdin() {
    if Source::has_stdin() {
        let what =
            "no command: for the recording on standard input, type `perfx overview` or another command";
        tell_failure(&anyhow::anyhow!(what));
    }
}

fn write(to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "Read, transform and write Linux perf.data recordings, losing nothing\n")?;
    writeln!(to, "{HEADING}Usage:{HEADING:#} perfx [OPTIONS] <COMMAND>, or perfx RECORDING\n")?;
    for (title, commands) in [("To begin with", &FIRST_COMMANDS[..]), ("More", &MORE)] {
        writeln!(to, "{HEADING}{title}:{HEADING:#}")?;
        for (command, what) in commands {
            writeln!(to, "  {LITERAL}{command:<50}{LITERAL:#} {what}")?;
        }
        writeln!(to)?;
    }
    writeln!(to, "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 a loss, 4 a diff changed")
}
