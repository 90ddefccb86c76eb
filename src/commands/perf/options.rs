//! Lists the options of perf's commands, with their equivalents in perfx.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::Result;
use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, ValueEnum as _};
use perfx_export::view::Field;

use super::buildid_list::BuildidList;
use super::evlist::Evlist;
use super::words::Becomes::{Left, Made, Nothing, Same};
use super::words::{Becomes, Row, Takes};
use crate::commands::inject::Inject;
use crate::commands::view::View;

/// A command of perf that perfx runs.
pub(super) struct Tool {
    /// Its name in perf.
    pub(super) name: &'static str,
    /// The command of perfx that takes its options.
    pub(super) command: fn() -> Command,
    /// Runs it; `None` for a command of perfx itself.
    pub(super) run: Option<fn(&ArgMatches) -> Result<u8>>,
    pub(super) rows: &'static [Row],
    /// The first word that is no option ends the options.
    pub(super) stops: bool,
}

/// The commands of perf that perfx runs.
pub(super) const TOOLS: [Tool; 4] = [
    Tool {
        name: "script",
        command: || View::augment_args(Command::new("view")),
        run: None,
        rows: SCRIPT,
        stops: true,
    },
    Tool {
        name: "inject",
        command: || Inject::augment_args(Command::new("inject")),
        run: None,
        rows: INJECT,
        stops: false,
    },
    Tool {
        name: "evlist",
        command: || Evlist::augment_args(Command::new("evlist")),
        run: Some(|given| Evlist::from_arg_matches(given)?.run()),
        rows: EVLIST,
        stops: false,
    },
    Tool {
        name: "buildid-list",
        command: || BuildidList::augment_args(Command::new("buildid-list")),
        run: Some(|given| BuildidList::from_arg_matches(given)?.run()),
        rows: BUILDID_LIST,
        stops: false,
    },
];

/// An option; the letter b' ' stands for none.
const fn row(letter: u8, long: &'static str, takes: Takes, becomes: Becomes) -> Row {
    Row { letter: if letter == b' ' { None } else { Some(letter) }, long, takes, becomes }
}

/// An option without a value.
const fn flag(letter: u8, long: &'static str, becomes: Becomes) -> Row {
    row(letter, long, Takes::Nothing, becomes)
}

/// An option with a value.
const fn with(letter: u8, long: &'static str, becomes: Becomes) -> Row {
    row(letter, long, Takes::Value, becomes)
}

const SCRIPT: &[Row] = &[
    flag(b'a', "all-cpus", Nothing),
    with(b'c', "comms", Made(|names| list("--comm", names))),
    with(b'C', "cpu", Same("--cpu")),
    flag(b'd', "debug-mode", Left),
    flag(b'D', "dump-raw-trace", Left),
    row(b'F', "fields", Takes::Values, Made(fields)),
    flag(b'f', "force", Nothing),
    with(b'g', "gen-script", Left),
    flag(b'G', "hide-call-graph", Same("--hide-call-graph")),
    with(b'i', "input", Same("--input")),
    flag(b'I', "show-info", Left),
    with(b'k', "vmlinux", Same("--vmlinux")),
    flag(b'L', "Latency", Same("--latency")),
    flag(b'l', "list", Left),
    with(b's', "script", Left),
    with(b'S', "symbols", Made(|names| list("--leaf", names))),
    flag(b'v', "verbose", Same("--verbose")),
    with(b' ', "addr-range", Left),
    with(b' ', "addr2line", Nothing),
    row(b' ', "call-ret-trace", Takes::Optional, Made(|value| preset("--call-ret-trace", value, ""))),
    row(b' ', "call-trace", Takes::Optional, Made(|value| preset("--call-trace", value, ""))),
    flag(b' ', "deltatime", Same("--deltatime")),
    flag(b' ', "demangle", Nothing),
    flag(b' ', "demangle-kernel", Left),
    flag(b' ', "no-demangle", Same("--no-demangle")),
    with(b' ', "dlarg", Left),
    with(b' ', "dlfilter", Left),
    with(b' ', "dsos", Made(|names| list("--dso", names))),
    flag(b' ', "dump-unsorted-raw-trace", Left),
    flag(b' ', "full-source-path", Same("--full-source-path")),
    with(b' ', "graph-function", Left),
    flag(b' ', "guest-code", Left),
    with(b' ', "guestkallsyms", Left),
    with(b' ', "guestmodules", Left),
    with(b' ', "guestmount", Left),
    with(b' ', "guestvmlinux", Left),
    flag(b' ', "header", Same("--header")),
    flag(b' ', "header-only", Same("--header-only")),
    flag(b' ', "inline", Nothing),
    flag(b' ', "no-inline", Same("--no-inline")),
    row(b' ', "insn-trace", Takes::Optional, Made(|value| preset("--insn-trace", value, "raw"))),
    row(b' ', "itrace", Takes::Optional, Made(itrace)),
    flag(b' ', "no-itrace", Same("--no-itrace")),
    with(b' ', "kallsyms", Same("--kallsyms")),
    flag(b' ', "list-dlfilters", Left),
    with(b' ', "max-blocks", Nothing),
    with(b' ', "max-stack", Same("--max-stack")),
    flag(b' ', "merge-callchains", Nothing),
    flag(b' ', "no-merge-callchains", Left),
    flag(b' ', "ns", Same("--ns")),
    flag(b' ', "per-event-dump", Left),
    with(b' ', "pid", Same("--pid")),
    flag(b' ', "reltime", Same("--reltime")),
    flag(b' ', "show-bpf-events", Made(|_| show("bpf"))),
    flag(b' ', "show-cgroup-events", Made(|_| show("cgroup"))),
    flag(b' ', "show-kernel-path", Left),
    flag(b' ', "show-lost-events", Made(|_| show("lost"))),
    flag(b' ', "show-mmap-events", Made(|_| show("mmap"))),
    flag(b' ', "show-namespace-events", Made(|_| show("namespace"))),
    flag(b' ', "show-on-off-events", Left),
    flag(b' ', "show-round-events", Left),
    flag(b' ', "show-switch-events", Made(|_| show("switch"))),
    flag(b' ', "show-task-events", Made(|_| show("task"))),
    flag(b' ', "show-text-poke-events", Left),
    flag(b' ', "stitch-lbr", Left),
    with(b' ', "stop-bt", Left),
    with(b' ', "switch-off", Left),
    with(b' ', "switch-on", Left),
    with(b' ', "symfs", Made(symfs)),
    with(b' ', "tid", Same("--tid")),
    with(b' ', "time", Made(time)),
    with(b' ', "unwind-style", Nothing),
    row(b' ', "xed", Takes::Optional, Left),
];

const INJECT: &[Row] = &[
    flag(b' ', "aslr", Same("--aslr")),
    flag(b'b', "build-ids", Same("--build-ids")),
    flag(b' ', "buildid-all", Same("--buildid-all")),
    flag(b' ', "convert-callchain", Same("--convert-callchain")),
    flag(b'f', "force", Same("--force")),
    row(b' ', "guest-data", Takes::Values, Same("--guest-data")),
    with(b' ', "guestmount", Same("--guestmount")),
    flag(b' ', "ignore-vmlinux", Same("--ignore-vmlinux")),
    with(b'i', "input", Same("--input")),
    row(b' ', "itrace", Takes::Optional, Same("--itrace")),
    flag(b'j', "jit", Same("--jit")),
    with(b' ', "kallsyms", Same("--kallsyms")),
    with(b' ', "known-build-ids", Same("--known-build-ids")),
    flag(b' ', "mmap2-buildid-all", Same("--mmap2-buildid-all")),
    flag(b'B', "mmap2-buildids", Same("--mmap2-buildids")),
    with(b'o', "output", Same("--output")),
    flag(b's', "sched-stat", Same("--sched-stat")),
    flag(b' ', "strip", Same("--strip")),
    with(b' ', "unwind-style", Same("--unwind-style")),
    flag(b'v', "verbose", Nothing),
    row(b' ', "vm-time-correlation", Takes::Optional, Left),
    with(b'k', "vmlinux", Same("--vmlinux")),
];

const EVLIST: &[Row] = &[
    flag(b'f', "force", Nothing),
    flag(b'F', "freq", Same("--freq")),
    flag(b'g', "group", Same("--group")),
    with(b'i', "input", Same("--input")),
    flag(b'v', "verbose", Same("--attrs")),
    flag(b' ', "trace-fields", Same("--trace-fields")),
];

const BUILDID_LIST: &[Row] = &[
    flag(b'f', "force", Nothing),
    flag(b'H', "with-hits", Same("--with-hits")),
    with(b'i', "input", Same("--input")),
    flag(b'k', "kernel", Same("--kernel")),
    flag(b'm', "kernel-maps", Left),
    flag(b'v', "verbose", Nothing),
];

/// For an option of perfx that takes regular expressions where perf takes names. Without the anchor, perfx would
/// also take a part of a name.
fn list(option: &str, names: &OsStr) -> Option<Vec<OsString>> {
    let whole = |name: &str| format!("^{}", regex::escape(name));
    let names = names.to_str()?.split(',').map(whole).collect::<Vec<_>>().join(",");
    Some(vec![format!("{option}={names}").into()])
}

/// The fields of -F, if perfx has all of them. perf skips an empty name, and takes a blank as a part of one.
fn fields(text: &OsStr) -> Option<Vec<OsString>> {
    let text = text.to_str()?;
    let (group, list) = text.split_at(text.find(':').map_or(0, |colon| colon + 1));
    let mut names = Vec::from_iter(list.split(',').filter(|name| !name.is_empty()));
    if names.is_empty() {
        names = vec![list];
    }
    // perf refuses an unknown field, and so does perfx.
    let lacks = |name: &&str| {
        let name = name.trim_start_matches(['+', '-']);
        name.contains(' ') || PERF_ONLY_FIELDS.contains(&name) && Field::from_str(name, false).is_err()
    };
    (!names.iter().any(lacks)).then(|| vec![format!("--fields={group}{}", names.join(",")).into()])
}

/// A window of times, with its end 1 ns later: the end belongs to the window in perf, but not in perfx.
fn time(text: &OsStr) -> Option<Vec<OsString>> {
    let text = text.to_str()?;
    let after = |end: &str| {
        let (seconds, digits) = end.trim().split_once('.').unwrap_or((end.trim(), "0"));
        let fraction = format!("{digits:0<9}").parse::<u64>().ok().filter(|_| digits.len() <= 9)?;
        let ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction + 1)?;
        Some(perfx_pipeline::seconds(ns))
    };
    let later = text.split_once(',').and_then(|(start, end)| Some(format!("{start},{}", after(end)?)));
    Some(vec![format!("--time={}", later.as_deref().unwrap_or(text)).into()])
}

/// Fields that only perf has.
const PERF_ONLY_FIELDS: [&str; 9] = [
    "bpf-output", "brstackinsn", "brstackinsnlen", "brstackdisasm", "brstackoff", "disasm", "metric",
    "srccode", "brcntr",
];

fn preset(option: &str, value: &OsStr, known: &str) -> Option<Vec<OsString>> {
    (value.is_empty() || value == known).then(|| vec![option.into()])
}

fn itrace(value: &OsStr) -> Option<Vec<OsString>> {
    let mut word = OsString::from("--itrace");
    if !value.is_empty() {
        word.push("=");
        word.push(value);
    }
    Some(vec![word])
}

fn show(kind: &str) -> Option<Vec<OsString>> {
    Some(vec![format!("--show={kind}").into()])
}

/// Files below the folder, and no others.
fn symfs(folder: &OsStr) -> Option<Vec<OsString>> {
    let folder = Path::new(folder.to_str()?.split(',').next()?);
    if folder == Path::new("/") {
        return Some(Vec::new());
    }
    // A missing folder is an empty one.
    let root = folder.is_dir().then(|| {
        let mut root = OsString::from("--root=");
        root.push(folder);
        root
    });
    Some(root.into_iter().chain(["--foreign".into()]).collect())
}
