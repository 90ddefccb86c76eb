//! If a filter keeps nothing, or excludes what the recording does not have, reports what it has instead.

use std::collections::BTreeSet;

use perfx_format::record::namespaces::{NamespaceKind, Namespaces};
use perfx_model::tasks::TaskChanges;
use perfx_pipeline::{count, seconds};
use regex::bytes::{Regex, RegexBuilder};

use crate::choice::Selection;
use crate::meant::{nearest, parts_of_names, replaced, written};
use crate::time::Interval;

/// The number of names listed.
const LISTED: usize = 5;

/// A line for an option that matches nothing, and the argument of `perfx list` that lists more values.
type Hint = (String, Option<&'static str>);

/// Hints for options that match nothing.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// For each option; reported only if nothing is kept.
    kept: Vec<Hint>,
    /// Lines with parts of names and the names that they select.
    taken: Vec<String>,
    /// For each excluded value: if it is misspelt, the output contains what the user wanted to withhold.
    excluded: Vec<Hint>,
}

impl Hints {
    /// The lines if nothing is kept, for a recording of this name.
    pub(crate) fn lines(&self, recording: &str) -> impl Iterator<Item = String> {
        shown(&self.kept, recording)
    }

    /// The lines with parts of names and the only name that contains each.
    pub(crate) fn taken(&self) -> &[String] {
        &self.taken
    }

    /// The lines about exclusions, for a recording of this name.
    pub(crate) fn exclusions(&self, recording: &str) -> impl Iterator<Item = String> {
        shown(&self.excluded, recording)
    }

    /// Checks `--time`, which selects `intervals`; `range` is from the first sample to the last, if timed.
    pub(crate) fn of_times(&mut self, intervals: &[Interval], range: Option<(u64, u64)>) {
        let asked = match intervals {
            [] => "no time".to_owned(),
            [one] => one.to_string(),
            [one, .., last] => format!("{} windows from {one} to {last}", intervals.len()),
        };
        let has = match range {
            Some((first, last)) => {
                format!("the recording has samples from {} to {}", seconds(first), seconds(last))
            }
            None => "the samples of the recording have no times".to_owned(),
        };
        self.kept.push((format!("--time selects {asked}; {has}"), None));
    }

    /// Checks an option with regular expressions for these names, which `perfx list` shows as `list`; returns
    /// it with names in place of parts of names.
    pub(crate) fn of_names<'n>(
        &mut self,
        (option, list): (&str, &'static str),
        chosen: &Selection<Regex>,
        names: impl Iterator<Item = &'n [u8]>,
        is: impl Fn(&Regex, &[u8]) -> bool,
    ) -> Selection<Regex> {
        if !chosen.is_set() {
            return chosen.clone();
        }
        let names: BTreeSet<&[u8]> = names.collect();
        let parts = parts_of_names(&chosen.only, &names, &is);
        let taken = parts.iter().filter_map(|(regex, name)| Some((regex, (*name)?)));
        self.taken.extend(taken.map(|(regex, name)| {
            format!("--{option} {} selects `{}`", written(regex), String::from_utf8_lossy(name))
        }));
        let is_missing = |regex: &&Regex| !names.iter().any(|name| is(regex, name));
        for regex in chosen.not.iter().filter(is_missing) {
            let (named, more) = instead(&names, std::slice::from_ref(regex), list);
            let line =
                format!("--exclude-{option} `{}` matches nothing in the recording; {named}", written(regex));
            self.excluded.push((line, more));
        }
        if !parts.is_empty() && parts.iter().all(|(regex, name)| name.is_none() && is_missing(regex)) {
            let (named, more) = instead(&names, &chosen.only, list);
            self.kept.push((format!("nothing in the recording matches --{option}; {named}"), more));
        }
        Selection { only: replaced(parts), not: chosen.not.clone() }
    }

    /// Checks `--netns` and the like.
    pub(crate) fn of_namespaces(&mut self, kind: NamespaceKind, chosen: &[u64], sets: &[Namespaces]) {
        let inodes: BTreeSet<u64> = sets.iter().filter_map(|set| set.inode(kind)).collect();
        if !chosen.iter().any(|inode| inodes.contains(inode)) {
            let has = has(inodes.iter().map(u64::to_string));
            let line = format!("no task is in such a namespace (--{}ns); {has}", kind.name());
            self.kept.push((line, (inodes.len() > LISTED).then_some("namespaces")));
        }
    }

    /// Checks `--pid` or `--tid`; `what` is `process` or `thread`.
    pub(crate) fn of_tasks(
        &mut self,
        (option, what, list): (&str, &str, &'static str),
        chosen: &Selection<u32>,
        tasks: &TaskChanges,
    ) {
        let names = tasks.last_names();
        let shown = |(task, name): (&u32, &&[u8])| format!("{task} ({})", String::from_utf8_lossy(name));
        let has = has(names.iter().map(shown));
        let more = (names.len() > LISTED).then_some(list);
        // No record names the idle task of each CPU.
        for task in chosen.not.iter().filter(|&task| *task != 0 && !tasks.mentions(*task)) {
            let line = format!("--exclude-{option} {task}: the recording names no such {what}; {has}");
            self.excluded.push((line, more));
        }
        if !chosen.only.is_empty() && !chosen.only.iter().any(|task| names.contains_key(task)) {
            self.kept.push((format!("the recording has no such {what}; {has}"), more));
        }
    }
}

fn shown(hints: &[Hint], recording: &str) -> impl Iterator<Item = String> {
    // Standard input cannot be read again.
    let is_file = !recording.starts_with('<');
    hints.iter().map(move |(line, more)| match more.filter(|_| is_file) {
        Some(list) => format!("{line}; `perfx list {list} {recording}` shows all"),
        None => line.clone(),
    })
}

/// The names that the recording has instead, and the argument of `perfx list` if there are more.
fn instead(names: &BTreeSet<&[u8]>, asked: &[Regex], list: &'static str) -> (String, Option<&'static str>) {
    // A part of a name, such as `sched_switch` of `sched:sched_switch`, or a name in a different case.
    let loose = asked
        .iter()
        .filter_map(|regex| RegexBuilder::new(written(regex)).case_insensitive(true).build().ok());
    let loose: Vec<Regex> = loose.collect();
    let shown = |name: &&[u8]| format!("`{}`", String::from_utf8_lossy(name));
    let mut meant: Vec<_> =
        names.iter().filter(|name| loose.iter().any(|regex| regex.is_match(name))).collect();
    // If several match, the shortest is first.
    meant.sort_by_key(|name| name.len());
    let named = match meant[..] {
        [] => {
            let asked: Vec<&str> = loose.iter().map(Regex::as_str).collect();
            has(nearest(names.iter().copied(), &asked).iter().map(shown))
        }
        [one] => format!("did you mean {}?", shown(one)),
        ref some => format!("similar names: {}", listed(some.iter().map(|name| shown(name)))),
    };
    // A name that is probably meant is enough.
    let all = if meant.is_empty() { names.len() } else { meant.len() };
    (named, (all > LISTED).then_some(list))
}

/// `it has a, b and 12 others`.
fn has(names: impl ExactSizeIterator<Item = String>) -> String {
    if names.len() == 0 { "it has none".to_owned() } else { format!("it has {}", listed(names)) }
}

/// `a, b and 12 others`.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let all = names.len();
    let listed: Vec<String> = names.take(LISTED).collect();
    match all - listed.len() {
        0 => listed.join(", "),
        1 => format!("{} and 1 other", listed.join(", ")),
        more => format!("{} and {} others", listed.join(", "), count(more as u64)),
    }
}
