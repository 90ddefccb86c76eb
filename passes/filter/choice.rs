//! What the user chose: for each question what may stay and what may not, from the same words for the command line and for a chain of passes.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use perfx_format::RecordType;
use perfx_pipeline::address_space::{Dso, Machine};
use regex::bytes::Regex;

use super::time::Window;
use crate::support::ids::dso_name;
use crate::support::options::{Choice, Options};

/// Something is chosen when it is one of `only`, if there are any, and none of `not`.
#[derive(Clone, Debug)]
pub(super) struct Chosen<T> {
    pub(super) only: Vec<T>,
    not: Vec<T>,
}

impl<T> Default for Chosen<T> {
    fn default() -> Self {
        Chosen { only: Vec::new(), not: Vec::new() }
    }
}

impl<T> Chosen<T> {
    pub(super) fn is_set(&self) -> bool {
        !self.only.is_empty() || !self.not.is_empty()
    }

    pub(super) fn allows(&self, is: impl Fn(&T) -> bool) -> bool {
        (self.only.is_empty() || self.only.iter().any(&is)) && !self.not.iter().any(&is)
    }

    pub(super) fn excludes(&self, is: impl Fn(&T) -> bool) -> bool {
        self.not.iter().any(is)
    }
}

/// What to cut out.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    pub(super) windows: Vec<Window>,
    pub(super) pid: Chosen<u32>,
    pub(super) tid: Chosen<u32>,
    pub(super) cpu: Chosen<RangeInclusive<u32>>,
    pub(super) comm: Chosen<Regex>,
    pub(super) event: Chosen<Regex>,
    pub(super) dso: Chosen<Regex>,
    pub(super) cgroup: Chosen<Regex>,
    pub(super) kind: Chosen<RecordType>,
    pub(super) machine: Chosen<Machine>,
    /// Keep mappings, names and forks of all processes, of the dead ones, too.
    pub(super) keep_all_sideband: bool,
    /// Leave out events without samples, and build-ids of what nobody maps any more.
    pub(super) drop_unused: bool,
}

const fn choice(name: &'static str, value: &'static str, about: &'static str) -> Choice {
    Choice { name, value: Some(value), about }
}

pub(super) const OPTIONS: &[Choice] = &[
    choice("time", "WINDOW", "START,STOP or 10%-20% or 10%/2; repeatable"),
    choice("pid", "PID", "samples of this process; repeatable, as all that follow"),
    choice("exclude-pid", "PID", "not of this one"),
    choice("tid", "TID", "samples of this thread"),
    choice("exclude-tid", "TID", "not of this one"),
    choice("comm", "REGEX", "samples of threads of this name, at that time"),
    choice("exclude-comm", "REGEX", "not of these"),
    choice("cpu", "CPUS", "samples on these CPUs, as 0-3"),
    choice("exclude-cpu", "CPUS", "not on these"),
    choice("event", "REGEX", "samples of events of this name"),
    choice("exclude-event", "REGEX", "not of these"),
    choice("dso", "REGEX", "samples whose instruction pointer is in this file"),
    choice("exclude-dso", "REGEX", "not in these"),
    choice("cgroup", "REGEX", "samples of this cgroup"),
    choice("exclude-cgroup", "REGEX", "not of these"),
    choice("kind", "KIND", "of the records that happen to events only those of this kind"),
    choice("exclude-kind", "KIND", "no record of this kind"),
    choice("machine", "host|PID", "samples of the host, or of the guest run by this process"),
    choice("exclude-machine", "host|PID", "not of these"),
    Choice {
        name: "keep-all-sideband",
        value: None,
        about: "keep mappings, names and forks of all processes",
    },
    Choice {
        name: "drop-unused",
        value: None,
        about: "leave out events without samples, and build-ids of what is gone",
    },
];

impl FilterOptions {
    /// Nothing chosen yet. `keep_all_sideband`: mappings, names and forks of all processes stay, of the dead ones, too; `drop_unused`: events
    /// without samples go, and build-ids of what nobody maps any more.
    pub fn new(keep_all_sideband: bool, drop_unused: bool) -> FilterOptions {
        FilterOptions { keep_all_sideband, drop_unused, ..FilterOptions::default() }
    }

    pub(crate) fn from_options(options: &Options) -> Result<FilterOptions> {
        let mut all = FilterOptions::new(options.has("keep-all-sideband"), options.has("drop-unused"));
        for choice in OPTIONS.iter().filter(|choice| choice.value.is_some()) {
            options.all(choice.name).try_for_each(|value| all.choose(choice.name, value))?;
        }
        Ok(all)
    }

    /// Takes in one choice: `name` is that of an option that takes a value. Lists have commas between their parts, regular expressions match
    /// the whole name.
    pub fn choose(&mut self, name: &str, value: &str) -> Result<()> {
        let (excluded, what) = match name.strip_prefix("exclude-") {
            Some(what) => (true, what),
            None => (false, name),
        };
        fn add<T>(chosen: &mut Chosen<T>, excluded: bool, parsed: Result<Vec<T>>) -> Result<()> {
            if excluded { &mut chosen.not } else { &mut chosen.only }.extend(parsed?);
            Ok(())
        }
        let chosen = match what {
            "time" => Window::parse(value).map(|windows| self.windows.extend(windows)),
            "pid" => add(&mut self.pid, excluded, numbers(value)),
            "tid" => add(&mut self.tid, excluded, numbers(value)),
            "cpu" => add(&mut self.cpu, excluded, value.split(',').map(cpus).collect()),
            "comm" => add(&mut self.comm, excluded, regex(value)),
            "event" => add(&mut self.event, excluded, regex(value)),
            "dso" => add(&mut self.dso, excluded, regex(value)),
            "cgroup" => add(&mut self.cgroup, excluded, regex(value)),
            "kind" => add(&mut self.kind, excluded, value.split(',').map(kind).collect()),
            "machine" => add(&mut self.machine, excluded, value.split(',').map(machine).collect()),
            other => bail!("samples can't be chosen by `{other}`"),
        };
        chosen.with_context(|| format!("--{name} {value}"))
    }

    /// Something must be asked for, or the recording would come out as it is.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty() && !self.chooses_samples() && !self.kind.is_set() && !self.drop_unused
    }

    /// More is asked for than times, kinds and machines: whoever has no sample is not needed.
    pub(super) fn chooses_samples(&self) -> bool {
        let by_name = self.comm.is_set() || self.event.is_set() || self.dso.is_set() || self.cgroup.is_set();
        self.pid.is_set() || self.tid.is_set() || self.cpu.is_set() || self.machine.is_set() || by_name
    }

    pub(super) fn needs_task(&self) -> bool {
        self.pid.is_set() || self.tid.is_set() || self.comm.is_set()
    }
}

fn numbers(text: &str) -> Result<Vec<u32>> {
    text.split(',')
        .map(|part| part.trim().parse().with_context(|| format!("`{part}` is not a PID or TID")))
        .collect()
}

fn cpus(text: &str) -> Result<RangeInclusive<u32>> {
    let cpu =
        |text: &str| text.trim().parse().with_context(|| format!("`{text}` is not a CPU: give 2 or 0-3"));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (cpu(first)?, cpu(last)?);
    ensure!(first <= last, "CPU {first} is behind CPU {last}: give the smaller one first");
    Ok(first..=last)
}

fn kind(text: &str) -> Result<RecordType> {
    RecordType::parse(text.trim())
        .with_context(|| format!("`{text}` is not a kind of record; `perfx dump` shows their names"))
}

fn machine(text: &str) -> Result<Machine> {
    Ok(match text.trim() {
        "host" => Machine::Host,
        pid => Machine::Guest(pid.parse().with_context(|| format!("`{pid}` is neither `host` nor a pid"))?),
    })
}

/// A list of names is a list of regular expressions: a comma ends one unless it is inside brackets.
fn regex(text: &str) -> Result<Vec<Regex>> {
    let mut depth = 0u32;
    let parts = text.split(|char: char| {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    });
    let whole = |part: &str| {
        // `[kernel.kallsyms]` is a name; as a regular expression it would stand for a single character.
        let inner = part.strip_prefix('[').and_then(|part| part.strip_suffix(']'));
        if inner.is_some_and(|inner| inner.len() > 1 && !inner.contains(['[', ']', '\\', '^', '-'])) {
            return Ok(Regex::new(&format!("^(?:{})$", regex::escape(part)))?);
        }
        // Of a mistake the parser draws a picture; what is wrong stands in its last line.
        Regex::new(&format!("^(?:{part})$")).map_err(|error| {
            let error = error.to_string();
            let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            anyhow!("`{part}` is not a regular expression: {what}")
        })
    };
    parts.map(whole).collect()
}

/// An event's name, with or without the modifiers behind its last colon.
pub(super) fn is_event(regex: &Regex, name: &[u8]) -> bool {
    let modifiers = |part: &[u8]| part.iter().all(|byte| b"ukhGHpPSDIWebR".contains(byte));
    let colon = name.iter().rposition(|&byte| byte == b':').filter(|&colon| modifiers(&name[colon + 1..]));
    regex.is_match(name) || colon.is_some_and(|colon| regex.is_match(&name[..colon]))
}

/// By its name in the recording, or by the one it is shown and has its build-id by.
pub(super) fn is_dso(regex: &Regex, dso: &Dso) -> bool {
    is_file(regex, &dso.name) || is_file(regex, dso_name(dso))
}

/// A file by its whole path or by its last part, as perf has it.
pub(super) fn is_file(regex: &Regex, name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    regex.is_match(name) || regex.is_match(last)
}
