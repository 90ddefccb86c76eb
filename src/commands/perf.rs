//! Runs perf's own commands: a program called `perf` or `perf-COMMAND` takes perf's command lines, behaves
//! like perf, and leaves to the next perf in PATH what perfx lacks.

mod buildid_list;
mod evlist;
mod next;
mod options;
mod pager;
mod words;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::error::{ContextKind, ErrorKind};

use self::options::{TOOLS, Tool};
use self::words::{Grammar, Refused};
use crate::args::Usage;
use crate::io::streams;
use crate::term::report::tell;

/// perf's exit codes for a wrong command line, for a failure, and for wrong times.
const WRONG: u8 = 129;
const FAILED: u8 = 255;
const INVALID: u8 = 234;

/// The result of a command line of perf.
#[derive(Debug)]
pub(crate) enum Called {
    /// perfx runs these words.
    Words(Vec<OsString>),
    /// It has run, with this exit code.
    Done(u8),
}

/// Translates the command line of a program called by a name of perf; `None` for another name.
///
/// # Errors
///
/// A command that perfx runs only as perf fails.
pub(crate) fn called(args: &[OsString]) -> Result<Option<Called>> {
    let Some((called, words)) = args.split_first() else { return Ok(None) };
    let name = Path::new(called).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let translated = match name.strip_prefix("perf-").and_then(tool) {
        Some(tool) => translated(tool, words),
        None if name == "perf" => subcommand(words),
        None => return Ok(None),
    };
    let (tool, words) = match translated {
        Ok(translated) => translated,
        Err(Refused::Wrong(what)) => {
            tell(&format!("{what}; perf refuses it, too"));
            return Ok(Some(Called::Done(WRONG)));
        }
        Err(Refused::Left(what)) => return Ok(Some(Called::Done(leave(name, words, &what)))),
    };
    if words.iter().any(|word| word == "-h") {
        let mut command = (tool.command)().bin_name(format!("perf {}", tool.name));
        write!(streams::stderr(), "{}", command.render_help())?;
        return Ok(Some(Called::Done(WRONG)));
    }
    let Some(run) = tool.run else {
        // The program that runs in the pager is perfx itself.
        let is_paged = tool.name == "script" && !args.iter().any(|word| word == "--no-pager");
        return Ok(Some(match pager::wanted().filter(|_| is_paged) {
            Some(pager) => Called::Done(exit_code(pager::run(&pager, &words[1..])?)),
            None => Called::Words(words),
        }));
    };
    let given = (tool.command)().try_get_matches_from(&words[1..]);
    let given = given.map_err(|error| Usage(error.to_string()))?;
    run(&given).map(|code| Some(Called::Done(code)))
}

/// perf's exit code for a wrong command line: it reads texts after the options, which makes their faults failures.
pub(crate) fn exit_code_of(error: &clap::Error) -> u8 {
    let option = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    match error.kind() {
        ErrorKind::ValueValidation if option.starts_with("--time ") => INVALID,
        ErrorKind::ValueValidation if !option.starts_with("--max-stack ") => FAILED,
        _ => WRONG,
    }
}

/// perf's exit code for one of perfx.
pub(crate) fn exit_code(code: u8) -> u8 {
    match code {
        1 => FAILED,
        2 => WRONG,
        code => code,
    }
}

fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// A command with its words for perfx.
type Translated = Result<(&'static Tool, Vec<OsString>), Refused>;

/// The words of perfx for those after `perf`.
fn subcommand(words: &[OsString]) -> Translated {
    let mut own = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match name {
            "--no-pager" | "-p" | "--paginate" => {}
            "--buildid-dir" | "--debugfs-dir" => {
                let value = value.map(OsString::from).or_else(|| words.next().cloned());
                let value = value.ok_or_else(|| Refused::Wrong(format!("{name} needs a value")))?;
                // A missing cache is an empty one.
                if name == "--buildid-dir" && Path::new(&value).is_dir() {
                    let mut option = OsString::from("--buildid-dir=");
                    option.push(value);
                    own.push(option);
                }
            }
            _ => {
                let tool = tool(text).ok_or_else(|| Refused::Left(format!("the command perf {text}")))?;
                let (tool, mut whole) = translated(tool, words.as_slice())?;
                if tool.run.is_none() {
                    whole.extend(own);
                }
                return Ok((tool, whole));
            }
        }
    }
    Err(Refused::Left("perf without a command".to_owned()))
}

/// The words of perfx for those after the command.
fn translated(tool: &'static Tool, words: &[OsString]) -> Translated {
    let command = (tool.command)();
    let mut whole: Vec<OsString> = vec!["perfx".into(), command.get_name().into()];
    if words.iter().any(|word| word == "-h" || word == "--help") {
        whole.push("-h".into());
        return Ok((tool, whole));
    }
    let (own, rest) = Grammar { rows: tool.rows, perfx: &command }.translate(words, tool.stops)?;
    if let Some(word) = rest.first() {
        return Err(Refused::Left(format!("{} of perf {}", word.display(), tool.name)));
    }
    whole.push("--like-perf".into());
    whole.extend(own);
    // For functions and code, perf takes this machine's files, even if they are not the recorded ones.
    let has = |name: &str| whole.iter().any(|word| word.as_encoded_bytes().starts_with(name.as_bytes()));
    let reads_code = tool.name == "script" || tool.name == "inject" && has("--itrace");
    if reads_code && !has("--foreign") {
        whole.push("--unverified".into());
    }
    Ok((tool, whole))
}

/// Leaves a command line to the next perf, which gets it unchanged; returns the exit code if there is none.
fn leave(name: &str, words: &[OsString], what: &str) -> u8 {
    let tool = name.strip_prefix("perf-").map(OsString::from);
    let words: Vec<OsString> = tool.into_iter().chain(words.iter().cloned()).collect();
    // perf would replace a program that calls perfx as a library.
    let Some((perf, passed)) = next::find(&words).filter(|_| !streams::are_given()) else {
        tell(&format!("there is no other perf in PATH, and perfx does not have {what}"));
        return WRONG;
    };
    if env::var_os("PERFX_VERBOSE").is_some() {
        tell(&format!("{} runs this: perfx does not have {what}", perf.display()));
    }
    let error = next::run(&perf, passed, &words);
    tell(&format!("{}: {error}", perf.display()));
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a line: the words of perfx without those that all lines get, or why it is refused.
    fn becomes(line: &str) -> String {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match subcommand(&words) {
            Ok((_, words)) => {
                let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
                let own =
                    words.iter().filter(|word| !["perfx", "--like-perf", "--unverified"].contains(word));
                own.copied().collect::<Vec<_>>().join(" ")
            }
            Err(Refused::Left(what)) => format!("left: {what}"),
            Err(Refused::Wrong(what)) => format!("wrong: {what}"),
        }
    }

    #[test]
    fn a_line_of_perf_becomes_one_of_perfx_or_is_left_to_perf() {
        for (perf, perfx) in [
            ("script", "view"),
            ("--no-pager script -i -", "view --input=-"),
            ("--debugfs-dir d script -i-", "view --input=-"),
            ("script -i a -i b", "view --input=b"),
            ("script -F ip,sym -F+pid -Ftime", "view --fields=ip,sym --fields=+pid --fields=time"),
            ("script -F trace:time,event", "view --fields=trace:time,event"),
            ("script -F comm,,tid, -F sw:-ip,", "view --fields=comm,tid --fields=sw:-ip"),
            ("script --time 5.25,6", "view --time=5.25,6.000000001"),
            ("script --time 1.999999999,", "view --time=1.999999999,"),
            ("script --time ,1.999999999", "view --time=,2.000000000"),
            ("script --time 10%/2 --time x,y", "view --time=x,y"),
            ("script --fiel comm --inp=x -f", "view --fields=comm --input=x"),
            ("script --comm a.b --comm c,d", "view --comm=^c,^d"),
            ("script --comms a.b -C 0-1", "view --comm=^a\\.b --cpu=0-1"),
            ("script --no-inline --inline -G", "view --hide-call-graph"),
            ("script --inline --no-inline --no-G", "left: the option --no-G"),
            ("script --itrace --ns", "view --itrace --ns"),
            ("script --itrace=i0ns --no-itrace", "view --no-itrace"),
            ("script --no-itrace --itrace=b", "view --itrace=b"),
            ("script --call-trace=x", "left: the value x of --call-trace"),
            ("script --insn-trace=raw", "view --insn-trace"),
            ("script --show-mmap --show-task-events", "view --show=mmap --show=task"),
            ("script --show-mmap --no-show-mmap-events", "view"),
            (
                "script --show",
                "wrong: --show is ambiguous: it could be --show-bpf-events or --show-cgroup-events",
            ),
            ("script --symfs nowhere,flat", "view --foreign"),
            ("script --symfs / --symfs nowhere", "view --foreign"),
            ("script --symfs nowhere --symfs /", "view"),
            ("script -vv --max-stack 5", "view --verbose --max-stack=5"),
            ("script -q", "left: the option -q"),
            ("script --ns=1", "wrong: --ns takes no value"),
            ("script -i", "wrong: --input needs a value"),
            ("script -fGi x", "view --hide-call-graph --input=x"),
            ("script -F brstackinsn", "left: the value brstackinsn of --fields"),
            ("script -F nothing", "view --fields=nothing"),
            ("script --xed", "left: the option --xed"),
            ("script -e x", "left: the option -e"),
            ("script -f time,event", "left: time,event of perf script"),
            ("script -h", "view -h"),
            ("record x", "left: the command perf record"),
            ("", "left: perf without a command"),
            ("evlist -vF", "evlist --attrs --freq"),
            ("evlist --trace -i x -v --no-verbose", "evlist --trace-fields --input=x"),
            ("buildid-list -Hi x --force", "buildid-list --with-hits --input=x"),
            ("buildid-list -k", "buildid-list --kernel"),
            ("buildid-list -m", "left: the option --kernel-maps"),
            ("inject --in a --ou b --build-", "inject --input=a --output=b --build-ids"),
            ("inject --buildid --mmap2-buildids", "inject --buildid-all --mmap2-buildids"),
            ("inject --jit --no-jit --no-force --no-ji -v", "inject"),
            ("inject -b --no-build-ids -bf", "inject --build-ids --force"),
            ("inject -vv --no-verbose -ia -o --jit", "inject --input=a --output=--jit"),
            ("inject --output --jit --no-output -i a", "inject --input=a"),
            ("inject --it=i --vm-time --no-vm-time-correlation", "inject --itrace=i"),
            ("inject --vm-time", "left: the option --vm-time-correlation"),
            ("inject --root a --in-place -- -", "left: - of perf inject"),
            ("inject --root a --in-place -i x", "inject --root=a --in-place --input=x"),
            ("inject --no-jit=5", "wrong: --no-jit takes no value"),
        ] {
            assert_eq!(becomes(perf), perfx, "{perf}");
        }
        for ambiguous in ["--build", "--no-build", "--no", "--s", "--i", "--no-mmap2-b"] {
            assert!(becomes(&format!("inject {ambiguous}")).starts_with("wrong: "), "{ambiguous}");
        }
    }

    #[test]
    fn every_option_of_a_table_has_a_place_in_perfx() {
        for tool in &TOOLS {
            let command = (tool.command)();
            for row in tool.rows {
                let words::Becomes::Same(option) = row.becomes else { continue };
                let name = option.trim_start_matches("--");
                let is = |arg: &clap::Arg| {
                    arg.get_long() == Some(name)
                        || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
                };
                assert!(command.get_arguments().any(is), "{} {option}", tool.name);
            }
        }
    }
}
