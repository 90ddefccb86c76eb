//! The options of `filter`: for each property of a sample, which values are kept or excluded.

use std::ops::{Range, RangeInclusive};

use clap::Args;
use perfx_format::RecordType;
use perfx_format::event_name::{EventName, generic_name, without_modifiers};
use perfx_format::record::namespaces::NamespaceKind;
use perfx_model::address_space::{Dso, Machine};
use perfx_pipeline::{Context as _, Error, Level, Report, Result, ensure};
use perfx_resolve::{IdOptions, SymbolArgs, dso_name};
use regex::bytes::Regex;

use crate::fields::Condition;
use crate::meant::{brackets, whole, with_parts, written};
use crate::time::{Point, Window};

/// A value is selected if it is in `only`, unless that is empty, and not in `not`.
#[derive(Clone, Debug)]
pub(crate) struct Selection<T> {
    pub(crate) only: Vec<T>,
    pub(crate) not: Vec<T>,
}

impl<T> Default for Selection<T> {
    fn default() -> Self {
        Selection { only: Vec::new(), not: Vec::new() }
    }
}

impl<T> Selection<T> {
    fn new(only: Vec<List<T>>, not: Vec<List<T>>) -> Selection<T> {
        Selection { only: united(only), not: united(not) }
    }

    pub(crate) fn is_set(&self) -> bool {
        !self.only.is_empty() || !self.not.is_empty()
    }

    pub(crate) fn allows(&self, is: impl Fn(&T) -> bool) -> bool {
        (self.only.is_empty() || self.only.iter().any(&is)) && !self.not.iter().any(&is)
    }

    pub(crate) fn excludes(&self, is: impl Fn(&T) -> bool) -> bool {
        self.not.iter().any(is)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// Which times to take.
#[derive(Args, Clone, Debug, Default)]
pub struct WindowArgs {
    /// Time windows START,STOP (STOP exclusive): seconds of the recording's clock, as perf script shows them,
    /// +DURATION after the first sample, or RFC 3339; either end may be left out. Or parts of the recording:
    /// 10%-20%, 90%- for the last tenth, 10%/2 for the second tenth
    #[arg(long, value_name = "WINDOW", value_parser = windows)]
    time: Vec<List<Window>>,
    /// Keep samples from DURATION (10ms unless given) before TIME to a tenth of it after TIME, a time as in
    /// --time
    #[arg(long, value_name = "TIME[,DURATION]", value_parser = Window::parse_around)]
    around: Vec<Window>,
}

/// Which samples to take. Lists have commas between their parts, and regular expressions match the whole name.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    #[command(flatten)]
    window: WindowArgs,
    /// Keep samples of these processes
    #[arg(long, value_name = "PID,…", value_parser = pids)]
    pid: Vec<List<u32>>,
    /// Exclude samples of these processes
    #[arg(long, value_name = "PID,…", value_parser = pids)]
    exclude_pid: Vec<List<u32>>,
    /// Keep samples of these threads
    #[arg(long, value_name = "TID,…", value_parser = tids)]
    tid: Vec<List<u32>>,
    /// Exclude samples of these threads
    #[arg(long, value_name = "TID,…", value_parser = tids)]
    exclude_tid: Vec<List<u32>>,
    /// Keep samples of threads whose name matches at that time
    #[arg(short = 'c', long, value_name = "REGEX,…", value_parser = regexes)]
    comm: Vec<List<Regex>>,
    /// Exclude samples of threads whose name matches at that time
    #[arg(long, value_name = "REGEX,…", value_parser = regexes)]
    exclude_comm: Vec<List<Regex>>,
    /// Keep samples on these CPUs, such as 0-3,8
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = cpus)]
    cpu: Vec<List<RangeInclusive<u32>>>,
    /// Exclude samples on these CPUs
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    exclude_cpu: Vec<List<RangeInclusive<u32>>>,
    /// Keep samples of events whose name matches, with or without its modifiers; a name may have commas, too
    #[arg(short = 'e', long, value_name = "REGEX,…", value_parser = EventList::parse)]
    event: Vec<EventList>,
    /// Exclude samples of events whose name matches
    #[arg(long, value_name = "REGEX,…", value_parser = EventList::parse)]
    exclude_event: Vec<EventList>,
    /// Keep samples whose instruction pointer is in a file with a matching path or name
    #[arg(short = 'd', long, value_name = "REGEX,…", value_parser = regexes)]
    dso: Vec<List<Regex>>,
    /// Exclude samples whose instruction pointer is in such a file
    #[arg(long, value_name = "REGEX,…", value_parser = regexes)]
    exclude_dso: Vec<List<Regex>>,
    /// Keep samples of cgroups whose path matches
    #[arg(long, value_name = "REGEX,…", value_parser = regexes)]
    cgroup: Vec<List<Regex>>,
    /// Exclude samples of cgroups whose path matches
    #[arg(long, value_name = "REGEX,…", value_parser = regexes)]
    exclude_cgroup: Vec<List<Regex>>,
    /// Keep samples of threads in these network namespaces at that time, by their inodes, which `perfx list namespaces`
    /// and `ls -Li /proc/PID/ns/net` show (perf record --namespaces)
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    netns: Vec<List<u64>>,
    /// Keep samples of threads in these PID namespaces
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    pidns: Vec<List<u64>>,
    /// Keep samples of threads in these mount namespaces
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    mntns: Vec<List<u64>>,
    /// Keep samples of threads in these user namespaces
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    userns: Vec<List<u64>>,
    /// Keep samples of threads in these UTS namespaces
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    utsns: Vec<List<u64>>,
    /// Keep samples of threads in these IPC namespaces
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    ipcns: Vec<List<u64>>,
    /// Keep samples of threads in these cgroup namespaces
    #[arg(long, value_name = "INODE,…", value_parser = inodes)]
    cgroupns: Vec<List<u64>>,
    /// Keep samples of the host, or of the guest run by this host process
    #[arg(long, value_name = "host|PID,…", value_parser = machines)]
    machine: Vec<List<Machine>>,
    /// Exclude samples of the host, or of the guest run by this host process
    #[arg(long, value_name = "host|PID,…", value_parser = machines)]
    exclude_machine: Vec<List<Machine>>,
    /// Keep samples with a matching function on their stack: the function itself, or one that it called, was running.
    /// Inlined calls and callers in recorded stacks (perf record --call-graph dwarf) count, too
    #[arg(long, value_name = "REGEX,…", value_parser = functions)]
    symbol: Vec<List<Regex>>,
    /// Exclude samples with a matching function on their stack
    #[arg(long, value_name = "REGEX,…", value_parser = functions)]
    exclude_symbol: Vec<List<Regex>>,
    /// Keep samples whose innermost function matches
    #[arg(long, value_name = "REGEX,…", value_parser = functions)]
    leaf: Vec<List<Regex>>,
    /// Keep samples of tracepoints whose own fields fulfil a condition: FIELD OPERATOR VALUE, with the operators ==, !=,
    /// <, <=, >, >=, and ~ for texts with *, ? and [a-z]; several with &&, || and parentheses
    #[arg(id = "where", long = "where", value_name = "CONDITION", value_parser = Condition::parse)]
    conditions: Vec<Condition>,
    #[command(flatten)]
    search: SymbolArgs,
}

impl SelectArgs {
    /// True if the user said where to search for symbols.
    pub fn searches(&self) -> bool {
        self.search.is_given()
    }

    /// True if samples are selected by their functions.
    pub fn chooses_functions(&self) -> bool {
        !(self.symbol.is_empty() && self.exclude_symbol.is_empty() && self.leaf.is_empty())
    }

    /// The places where symbols are searched for.
    ///
    /// # Errors
    ///
    /// Those of [`SymbolArgs::options`].
    pub fn ids(&self) -> Result<IdOptions> {
        self.search.clone().options()
    }
}

/// The options of `filter`.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// Of the records that belong to events (SAMPLE, SWITCH, THROTTLE, READ, LOST), keep only these kinds
    #[arg(long, value_name = "KIND,…", value_parser = kinds)]
    kind: Vec<List<RecordType>>,
    /// Exclude all records of these kinds
    #[arg(long, value_name = "KIND,…", value_parser = kinds)]
    exclude_kind: Vec<List<RecordType>>,
    /// Keep mappings, names and forks of all processes
    #[arg(long)]
    keep_all_sideband: bool,
    /// Leave out events without samples, and build-ids of files that no process maps
    #[arg(long)]
    drop_unused: bool,
}

/// The options, with the lists of repeated options merged.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    pub(crate) windows: Vec<Window>,
    pub(crate) pid: Selection<u32>,
    pub(crate) tid: Selection<u32>,
    pub(crate) cpu: Selection<RangeInclusive<u32>>,
    pub(crate) comm: Selection<Regex>,
    pub(crate) event: Selection<EventList>,
    pub(crate) dso: Selection<Regex>,
    pub(crate) cgroup: Selection<Regex>,
    pub(crate) kind: Selection<RecordType>,
    pub(crate) machine: Selection<Machine>,
    pub(crate) namespaces: Vec<(NamespaceKind, Vec<u64>)>,
    pub(crate) symbol: Selection<Regex>,
    pub(crate) leaf: Selection<Regex>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) search: IdOptions,
    pub(crate) keep_all_sideband: bool,
    pub(crate) drop_unused: bool,
    /// For a part of a recording split by event: drop the events of other parts.
    pub(crate) drop_others: bool,
    /// For a part of a recording split by thread name.
    pub(crate) names_threads: bool,
}

impl TryFrom<SelectArgs> for FilterOptions {
    type Error = Error;

    fn try_from(args: SelectArgs) -> Result<FilterOptions> {
        let namespaces = [
            (NamespaceKind::Net, args.netns),
            (NamespaceKind::Pid, args.pidns),
            (NamespaceKind::Mnt, args.mntns),
            (NamespaceKind::User, args.userns),
            (NamespaceKind::Uts, args.utsns),
            (NamespaceKind::Ipc, args.ipcns),
            (NamespaceKind::Cgroup, args.cgroupns),
        ];
        let namespaces = namespaces.into_iter().map(|(kind, inodes)| (kind, united(inodes)));
        Ok(FilterOptions {
            namespaces: namespaces.filter(|(_, inodes)| !inodes.is_empty()).collect(),
            pid: Selection::new(args.pid, args.exclude_pid),
            tid: Selection::new(args.tid, args.exclude_tid),
            cpu: Selection::new(args.cpu, args.exclude_cpu),
            comm: Selection::new(args.comm, args.exclude_comm),
            event: Selection { only: args.event, not: args.exclude_event },
            dso: Selection::new(args.dso, args.exclude_dso),
            cgroup: Selection::new(args.cgroup, args.exclude_cgroup),
            machine: Selection::new(args.machine, args.exclude_machine),
            symbol: Selection::new(args.symbol, args.exclude_symbol),
            leaf: Selection::new(args.leaf, Vec::new()),
            conditions: args.conditions,
            search: args.search.options()?,
            ..args.window.into()
        })
    }
}

impl From<WindowArgs> for FilterOptions {
    fn from(args: WindowArgs) -> FilterOptions {
        let windows = united(args.time).into_iter().chain(args.around).collect();
        FilterOptions { windows, ..FilterOptions::default() }
    }
}

impl TryFrom<FilterArgs> for FilterOptions {
    type Error = Error;

    fn try_from(args: FilterArgs) -> Result<FilterOptions> {
        Ok(FilterOptions {
            kind: Selection::new(args.kind, args.exclude_kind),
            keep_all_sideband: args.keep_all_sideband,
            drop_unused: args.drop_unused,
            ..args.select.try_into()?
        })
    }
}

fn united<T>(lists: Vec<List<T>>) -> Vec<T> {
    lists.into_iter().flat_map(|List(list)| list).collect()
}

impl FilterOptions {
    /// True if nothing is selected, so that the output would equal the input.
    pub fn is_empty(&self) -> bool {
        self.selects() == [false; 3]
    }

    pub(crate) fn drops_events(&self) -> bool {
        self.drop_unused || self.drop_others
    }

    pub(crate) fn excludes_numbers(&self) -> bool {
        !self.cpu.not.is_empty() || !self.machine.not.is_empty()
    }

    /// True if samples are selected by their event.
    pub fn chooses_events(&self) -> bool {
        self.event.is_set()
    }

    /// For each of these events, true if its samples are selected.
    pub fn wanted_events<'n>(&self, names: impl Iterator<Item = &'n [u8]> + Clone) -> Vec<bool> {
        let selection = self.event.of_names(names.clone()).with_parts(names.clone(), is_event);
        names.map(|name| selection.allows(|regex| is_event(regex, name))).collect()
    }

    /// True if samples are selected, so that processes without kept ones can be dropped.
    pub(crate) fn chooses_samples(&self) -> bool {
        let [by_task, by_event, _] = self.selects();
        by_task || by_event
    }

    /// True if samples are selected by their threads, CPUs or code; by their events or fields; and if times,
    /// kinds or unused events are selected. Without `..`, a new option does not compile until it is decided.
    fn selects(&self) -> [bool; 3] {
        #[rustfmt::skip]
        let FilterOptions {
            windows, pid, tid, cpu, comm, event, dso, cgroup, kind, machine, namespaces, symbol, leaf, conditions,
            drop_unused,
            // These select nothing by themselves.
            search: _, keep_all_sideband: _, drop_others: _, names_threads: _,
        } = self;
        let by_number = pid.is_set() || tid.is_set() || cpu.is_set() || machine.is_set();
        let by_name = comm.is_set() || dso.is_set() || cgroup.is_set() || !namespaces.is_empty();
        let by_function = symbol.is_set() || leaf.is_set();
        let by_event = event.is_set() || !conditions.is_empty();
        let others = !windows.is_empty() || kind.is_set() || *drop_unused;
        [by_number || by_name || by_function, by_event, others]
    }

    /// True if samples are selected by their threads, CPUs or code.
    pub fn chooses_tasks(&self) -> bool {
        self.selects()[0]
    }

    /// True if samples are selected by their functions.
    pub fn chooses_functions(&self) -> bool {
        self.symbol.is_set() || self.leaf.is_set()
    }

    /// The number of times a recording is read before the selected samples are known.
    pub fn readings(&self) -> u64 {
        match self.is_empty() {
            true => 0,
            false if self.chooses_functions() => 3,
            false => 1,
        }
    }

    /// The options that depend only on the task and CPU of a sample, not on its time or code.
    pub fn of_tasks(&self) -> FilterOptions {
        let (dso, symbol, leaf) = Default::default();
        FilterOptions { windows: Vec::new(), dso, symbol, leaf, ..self.clone() }
    }

    /// A filter for these half-open ranges in ns.
    pub fn at(times: &[Range<u64>]) -> FilterOptions {
        FilterOptions::default().with_times(times)
    }

    /// The same options with these times.
    #[must_use]
    pub fn with_times(&self, times: &[Range<u64>]) -> FilterOptions {
        let window =
            |times: &Range<u64>| Window::Between(Some(Point::At(times.start)), Some(Point::At(times.end)));
        let mut windows: Vec<Window> = times.iter().map(window).collect();
        if windows.is_empty() {
            windows.push(window(&(0..0)));
        }
        FilterOptions { windows, ..self.clone() }
    }

    pub(crate) fn needs_task(&self) -> bool {
        self.pid.is_set() || self.tid.is_set() || self.comm.is_set() || !self.namespaces.is_empty()
    }
}

fn list<T>(text: &str, part: impl Fn(&str) -> Result<T>) -> Result<List<T>> {
    Ok(List(text.split(',').map(|text| part(text.trim())).collect::<Result<_>>()?))
}

fn windows(text: &str) -> Result<List<Window>> {
    Window::parse(text).map(List)
}

fn pids(text: &str) -> Result<List<u32>> {
    list(text, |text| text.parse().map_err(|_| Error::new(format!("`{text}` is not a PID"))))
}

fn tids(text: &str) -> Result<List<u32>> {
    list(text, |text| text.parse().map_err(|_| Error::new(format!("`{text}` is not a TID"))))
}

fn inodes(text: &str) -> Result<List<u64>> {
    let what = "is not the inode of a namespace, such as 4026531840";
    list(text, |text| text.parse().map_err(|_| Error::new(format!("`{text}` {what}"))))
}

fn cpus(text: &str) -> Result<List<RangeInclusive<u32>>> {
    let cpu = |text: &str| {
        text.trim().parse().map_err(|_| Error::new(format!("`{text}` is not a CPU: give 2 or 0-3")))
    };
    list(text, |text| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (cpu(first)?, cpu(last)?);
        ensure!(first <= last, "CPU {first} is greater than CPU {last}: give the smaller one first");
        Ok(first..=last)
    })
}

fn kinds(text: &str) -> Result<List<RecordType>> {
    list(text, |text| {
        RecordType::parse(text)
            .with_context(|| format!("`{text}` is not a kind of record; `perfx dump` shows their names"))
    })
}

fn machines(text: &str) -> Result<List<Machine>> {
    list(text, |text| match text {
        "host" => Ok(Machine::Host),
        pid => Ok(Machine::Guest(
            pid.parse().map_err(|_| Error::new(format!("`{pid}` is neither `host` nor a PID")))?,
        )),
    })
}

/// The parts of a list. Commas inside brackets, including those of templates, do not separate.
fn parts(text: &str) -> Vec<&str> {
    parts_outside(text, |_, _| false)
}

/// [`parts`], except that a comma does not separate if `is_inside` is true for the part so far and the rest.
fn parts_outside(text: &str, is_inside: impl Fn(&str, &str) -> bool) -> Vec<&str> {
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, char, depth) in brackets(text, ["([{<", ")]}>"]) {
        if char == ',' && depth == 0 && !is_inside(&text[from..at], &text[at..]) {
            parts.push(&text[from..at]);
            from = at + 1;
        }
    }
    parts.push(&text[from..]);
    parts
}

pub(crate) fn regexes(text: &str) -> Result<List<Regex>> {
    Ok(List(parts(text).into_iter().map(whole).collect::<Result<_>>()?))
}

/// Like [`regexes`], but a part that is not a regular expression is a function's name: `operator[](int)`.
fn functions(text: &str) -> Result<List<Regex>> {
    let function = |part| whole(part).or_else(|_| whole(&regex::escape(part)));
    Ok(List(parts(text).into_iter().map(function).collect::<Result<_>>()?))
}

/// A value of an option that selects events.
#[derive(Clone, Debug)]
pub struct EventList {
    /// May be the name of an event.
    whole: String,
    list: Vec<Regex>,
}

impl EventList {
    /// Parses a list of regular expressions; commas inside slashes (`cpu/event=0x3c,umask=0/`) do not count.
    ///
    /// # Errors
    ///
    /// A part is not a regular expression.
    pub fn parse(text: &str) -> Result<EventList> {
        // Slashes in the names of breakpoints are not in pairs: `mem:0x1234/8:rw`.
        let is_inside = |part: &str, rest: &str| {
            part.matches('/').count() % 2 == 1 && rest.contains('/') && !part.trim_start().starts_with("mem:")
        };
        let list = parts_outside(text, is_inside).into_iter().map(whole).collect::<Result<_>>()?;
        Ok(EventList { whole: text.to_owned(), list })
    }

    /// The regular expressions for these event names: only the whole value, if that is a name.
    fn regexes<'n>(&self, mut names: impl Iterator<Item = &'n [u8]>) -> Vec<Regex> {
        let is_whole = |name| names_of(name).contains(&self.whole.as_bytes());
        if self.whole.contains(',')
            && names.any(is_whole)
            && let Ok(name) = whole(&regex::escape(&self.whole))
        {
            return vec![name];
        }
        self.list.clone()
    }
}

impl Selection<EventList> {
    pub(crate) fn of_names<'n>(&self, names: impl Iterator<Item = &'n [u8]> + Clone) -> Selection<Regex> {
        let all = |lists: &[EventList]| -> Vec<Regex> {
            lists.iter().flat_map(|list| list.regexes(names.clone())).collect()
        };
        Selection { only: all(&self.only), not: all(&self.not) }
    }
}

impl Selection<Regex> {
    /// Replaces parts of names by whole names; not in exclusions, where it would hide that nothing matches.
    pub(crate) fn with_parts<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]>,
        is: impl Fn(&Regex, &[u8]) -> bool,
    ) -> Selection<Regex> {
        Selection { only: with_parts(&self.only, names, is), not: self.not.clone() }
    }
}

/// Matches an event's name, with or without its modifiers, or the name of what it counts on any PMU.
pub(crate) fn is_event(regex: &Regex, name: &[u8]) -> bool {
    names_of(name).iter().any(|name| regex.is_match(name))
}

fn names_of(name: &[u8]) -> [&[u8]; 3] {
    [name, without_modifiers(name), generic_name(name)]
}

/// True for each event whose name matches a regular expression. Warns of expressions without a match.
pub fn named_events(events: &[EventName], chosen: &[EventList], report: &mut Report) -> Vec<bool> {
    let names = events.iter().map(|event| &event.name[..]);
    let regexes: Vec<Regex> = chosen.iter().flat_map(|list| list.regexes(names.clone())).collect();
    let regexes = with_parts(&regexes, names, is_event);
    for regex in regexes.iter().filter(|regex| !events.iter().any(|event| is_event(regex, &event.name))) {
        let all = perfx_pipeline::list(
            events.iter().map(|event| String::from_utf8_lossy(&event.name).into_owned()),
        );
        let what = format!("no event matches `{}`; the events are {all}", written(regex));
        report.say(Level::Warning, what);
    }
    events.iter().map(|event| regexes.iter().any(|regex| is_event(regex, &event.name))).collect()
}

/// Matches a function's name, or equals it: names of C++ contain parentheses.
pub(crate) fn is_function(regex: &Regex, name: &[u8]) -> bool {
    regex.is_match(name) || written(regex).as_bytes() == name
}

/// Matches a DSO's name in the recording, or the name under which it is shown and has its build-id.
pub(crate) fn is_dso(regex: &Regex, dso: &Dso) -> bool {
    is_file(regex, &dso.name) || is_file(regex, dso_name(dso))
}

/// Matches a file's whole path or its last component, as in perf.
pub(crate) fn is_file(regex: &Regex, name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    regex.is_match(name) || regex.is_match(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `Tab<int, 1u>::fast(long)` became the two filters `Tab<int` and ` 1u>::fast(long)`.
    #[test]
    fn functions_of_cpp_are_taken_as_they_are_listed() {
        for name in [
            "Tab<int, 1u>::fast(long)",
            "std::vector<int, std::allocator<int> >::operator[](unsigned long)",
            "bool operator< <char, A>(A const&, A const&)",
            "A::operator->() const",
            "f(int, std::function<void (int, int)>)",
        ] {
            let List(list) = functions(&format!("main,{name},f")).unwrap();
            assert_eq!(list.len(), 3, "{name}");
            assert!(is_function(&list[1], name.as_bytes()), "{name}");
        }
        assert!(regexes("a{1,2},[b,c],d->e,(f|g,h)").unwrap().0.len() == 4);
        assert!(regexes("[a").is_err());
    }

    #[test]
    fn the_names_of_events_may_have_commas() {
        let events: [&[u8]; 4] = [b"cpu/event=0x3c,umask=0/u", b"cs", b"a,cs", b"mem:0x10/8:rw"];
        let wanted = |value: &str| {
            let event = Selection { only: vec![EventList::parse(value).unwrap()], not: Vec::new() };
            FilterOptions { event, ..FilterOptions::default() }.wanted_events(events.into_iter())
        };
        for (value, expected) in [
            ("cpu/event=0x3c,umask=0/", [true, false, false, false]),
            ("cpu/event=0x3c,umask=0/u", [true, false, false, false]),
            ("cpu/.*,umask=0/,cs", [true, true, false, false]),
            ("cs,cpu/event=0x3c,umask=0/", [true, true, false, false]),
            ("a,cs", [false, false, true, false]),
            ("b,cs", [false, true, false, false]),
            ("mem:0x10/8:rw,cs", [false, true, false, true]),
            ("mem:0x10/8:rw,cpu/event=0x3c,umask=0/", [true, false, false, true]),
        ] {
            assert_eq!(wanted(value), expected, "{value}");
        }
        assert!(EventList::parse("[a").is_err());
    }

    #[test]
    fn a_selection_without_values_takes_all_and_what_is_excluded_is_never_taken() {
        let takes = |only: &[u32], not: &[u32]| {
            let selection = Selection { only: only.to_vec(), not: not.to_vec() };
            [1, 2, 3].map(|value| selection.allows(|&of| of == value))
        };
        assert_eq!(takes(&[], &[]), [true, true, true]);
        assert_eq!(takes(&[1, 2], &[]), [true, true, false]);
        assert_eq!(takes(&[], &[2]), [true, false, true]);
        assert_eq!(takes(&[1, 2], &[2, 3]), [true, false, false]);
    }

    #[test]
    fn every_option_that_selects_is_known_to_do_so() {
        let none = FilterOptions::default;
        fn only<T>(value: T) -> Selection<T> {
            Selection { only: vec![value], not: Vec::new() }
        }
        fn not<T>(value: T) -> Selection<T> {
            Selection { only: Vec::new(), not: vec![value] }
        }
        assert!(none().is_empty() && none().readings() == 0);
        assert!(FilterOptions { keep_all_sideband: true, names_threads: true, ..none() }.is_empty());
        let by_samples = [
            FilterOptions { pid: only(1), ..none() },
            FilterOptions { tid: not(1), ..none() },
            FilterOptions { cpu: only(0..=3), ..none() },
            FilterOptions { machine: not(Machine::Host), ..none() },
            FilterOptions { comm: only(whole("a").unwrap()), ..none() },
            FilterOptions { leaf: only(whole("f").unwrap()), ..none() },
            FilterOptions { conditions: vec![Condition::parse("a==1").unwrap()], ..none() },
        ];
        for options in by_samples {
            assert!(!options.is_empty() && options.chooses_samples(), "{options:?}");
            assert_eq!(options.readings(), if options.chooses_functions() { 3 } else { 1 });
        }
        let others = [
            FilterOptions::at(&[]),
            FilterOptions::at(&[1..2, 5..6]),
            FilterOptions { kind: not(RecordType::MMAP), ..none() },
            FilterOptions { drop_unused: true, ..none() },
        ];
        for options in others {
            assert!(!options.is_empty() && !options.chooses_samples(), "{options:?}");
        }
        let windows = FilterOptions {
            pid: only(1),
            leaf: only(whole("f").unwrap()),
            ..FilterOptions::at(&[1..2, 5..6])
        };
        let of_tasks = windows.of_tasks();
        assert!(of_tasks.pid.is_set() && !of_tasks.leaf.is_set() && of_tasks.windows.is_empty());
    }

    #[test]
    fn lists_have_commas_and_ranges_hyphens() {
        let List(list) = cpus("0-3, 8").unwrap();
        assert_eq!(list, [0..=3, 8..=8]);
        let List(list) = machines("host,7").unwrap();
        assert_eq!(list, [Machine::Host, Machine::Guest(7)]);
        assert!(["", "3-0", "a", "-1", "0-", "1,,2"].iter().all(|text| cpus(text).is_err()));
        assert!(
            ["", "-1", "1 2", "4294967296"].iter().all(|text| pids(text).is_err() && tids(text).is_err())
        );
        assert!(machines("guest").is_err() && kinds("SAMPEL").is_err());
        // A name in brackets is not a character class; classes still work.
        let is = |pattern: &str, name: &str| whole(pattern).unwrap().is_match(name.as_bytes());
        assert!(is("[kernel.kallsyms]", "[kernel.kallsyms]") && !is("[kernel.kallsyms]", "k"));
        assert!(is("[a-c]", "b") && is("a.*", "abc") && !is("a", "abc"));
        assert!(is_file(&whole("libc.so.6").unwrap(), b"/usr/lib/libc.so.6"));
        assert!(!is_file(&whole("libc.so.6").unwrap(), b"/usr/lib/libc.so.60"));
    }

    #[test]
    fn every_option_reaches_the_filter_as_one_of_its_own() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            filter: FilterArgs,
        }
        let of = |words: &[&str]| {
            let line = Line::try_parse_from(["filter"].iter().chain(words)).unwrap();
            format!("{:?}", FilterOptions::try_from(line.filter).unwrap())
        };
        let numbers =
            ["--pid", "--exclude-pid", "--tid", "--exclude-tid", "--cpu", "--exclude-cpu", "--machine"];
        let more = [
            "--exclude-machine", "--netns", "--pidns", "--mntns", "--userns", "--utsns", "--ipcns",
            "--cgroupns",
        ];
        let names =
            ["--comm", "--exclude-comm", "--event", "--exclude-event", "--dso", "--exclude-dso", "--cgroup"];
        let others = ["--exclude-cgroup", "--symbol", "--exclude-symbol", "--leaf"];
        let numbers = numbers.into_iter().chain(more).map(|option| vec![option, "7"]);
        let names = names.into_iter().chain(others).map(|option| vec![option, "a"]);
        let rest = [
            &["--kind", "MMAP"][..],
            &["--exclude-kind", "MMAP"],
            &["--keep-all-sideband"],
            &["--drop-unused"],
            &["--where", "a==1"],
            &["--time", "1,2"],
            &["--around", "1"],
            &[],
        ];
        let all: Vec<Vec<&str>> =
            numbers.chain(names).chain(rest.into_iter().map(<[&str]>::to_vec)).collect();
        let different: std::collections::BTreeSet<String> = all.iter().map(|words| of(words)).collect();
        assert_eq!(different.len(), all.len());
        let needs_task = |options: FilterOptions| options.needs_task();
        let none = FilterOptions::default;
        assert!(!needs_task(none()));
        assert!(needs_task(FilterOptions { pid: Selection { only: vec![1], not: Vec::new() }, ..none() }));
        assert!(needs_task(FilterOptions { tid: Selection { only: Vec::new(), not: vec![1] }, ..none() }));
        assert!(needs_task(FilterOptions { namespaces: vec![(NamespaceKind::Pid, vec![1])], ..none() }));
    }
}
