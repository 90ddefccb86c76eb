//! Reports what the recording has if a filter keeps nothing, or excludes what does not exist.

use std::collections::BTreeSet;

use perfx_format::record::namespaces::{NamespaceKind, Namespaces};
use perfx_model::tasks::TaskChanges;
use perfx_pipeline::{count, seconds};
use regex::bytes::{Regex, RegexBuilder};

use crate::choice::Selection;
use crate::meant::{nearest, parts_of_names, replaced, written};
use crate::time::Interval;

const LISTED: usize = 5;

/// A line for an option that matches nothing, and the argument of `perfx list` that lists more values.
type Hint = (String, Option<&'static str>);

#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// For each option; reported only if nothing is kept.
    kept: Vec<Hint>,
    /// Parts of names, and the names that they select.
    taken: Vec<String>,
    /// For each excluded value. If it is misspelt, the output contains what the user wanted to withhold.
    excluded: Vec<Hint>,
}

impl Hints {
    /// The lines to print if nothing is kept, for a recording of this name.
    pub(crate) fn lines(&self, recording: &str) -> impl Iterator<Item = String> {
        shown(&self.kept, recording)
    }

    /// Lines with parts of names, and the only name that contains each.
    pub(crate) fn taken(&self) -> &[String] {
        &self.taken
    }

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

    /// Checks an option with regular expressions against these names, which `perfx list` shows as `list`;
    /// returns the expressions with names in place of parts of names.
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

/// Names that the recording has instead, and the argument of `perfx list` if there are more.
fn instead(names: &BTreeSet<&[u8]>, asked: &[Regex], list: &'static str) -> (String, Option<&'static str>) {
    // A part of a name, such as `sched_switch` of `sched:sched_switch`, or a name in a different case.
    let loose = asked
        .iter()
        .filter_map(|regex| RegexBuilder::new(written(regex)).case_insensitive(true).build().ok());
    let loose: Vec<Regex> = loose.collect();
    let shown = |name: &&[u8]| format!("`{}`", String::from_utf8_lossy(name));
    let mut meant: Vec<_> =
        names.iter().filter(|name| loose.iter().any(|regex| regex.is_match(name))).collect();
    meant.sort_by_key(|name| name.len());
    let named = match meant[..] {
        [] => {
            let asked: Vec<&str> = loose.iter().map(Regex::as_str).collect();
            has(nearest(names.iter().copied(), &asked).iter().map(shown))
        }
        [one] => format!("did you mean {}?", shown(one)),
        ref some => format!("similar names: {}", listed(some.iter().map(|name| shown(name)))),
    };
    // The names that are probably meant suffice.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn regexes(list: &[&str]) -> Vec<Regex> {
        list.iter().map(|text| Regex::new(text).unwrap()).collect()
    }

    fn of(only: &[&str], not: &[&str], names: &[&str]) -> Hints {
        let mut hints = Hints::default();
        let chosen = Selection { only: regexes(only), not: regexes(not) };
        let names = names.iter().map(|name| name.as_bytes());
        let is = |regex: &Regex, name: &[u8]| regex.find(name).is_some_and(|found| found.len() == name.len());
        hints.of_names(("event", "events"), &chosen, names, is);
        hints
    }

    fn lines(hints: &Hints) -> String {
        hints.lines("a.data").collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn names_that_are_probably_meant_are_listed() {
        let names = ["sched:sched_switch", "cycles", "CYCLES:u"];
        let text = |only: &[&str]| lines(&of(only, &[], &names));
        assert_eq!(text(&["cycles"]), "");
        assert_eq!(text(&["cycles", "nothing"]), "");
        let front = "nothing in the recording matches --event; ";
        assert_eq!(text(&["Sched_Switch"]), format!("{front}did you mean `sched:sched_switch`?"));
        assert_eq!(text(&["Cycle"]), format!("{front}similar names: `cycles`, `CYCLES:u`"));
        assert_eq!(lines(&of(&["x"], &[], &[])), format!("{front}it has none"));
        let many: Vec<String> = (0..7).map(|number| format!("event{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let five = "`event0`, `event1`, `event2`, `event3`, `event4`";
        let all = of(&["event"], &[], &many);
        let more = format!("{front}similar names: {five} and 2 others");
        assert_eq!(lines(&all), format!("{more}; `perfx list events a.data` shows all"));
        assert_eq!(all.lines("<stdin>").collect::<Vec<_>>(), [more]);
        let six = of(&["event"], &[], &many[..6]);
        assert_eq!(six.lines("<").collect::<Vec<_>>(), [format!("{front}similar names: {five} and 1 other")]);
        assert_eq!(lines(&of(&["event"], &[], &many[..5])), format!("{front}similar names: {five}"));
    }

    #[test]
    fn what_is_excluded_and_not_there_is_reported() {
        let hints = of(&[], &["cycles", "faults"], &["cycles", "page-faults"]);
        let line = "--exclude-event `faults` matches nothing in the recording; did you mean `page-faults`?";
        assert_eq!(hints.exclusions("a.data").collect::<Vec<_>>(), [line]);
        assert_eq!(lines(&hints), "");
        let mut hints = Hints::default();
        let tasks = TaskChanges::new(true);
        let chosen = Selection { only: vec![7], not: vec![0, 9] };
        hints.of_tasks(("pid", "process", "processes"), &chosen, &tasks);
        let excluded = "--exclude-pid 9: the recording names no such process; it has none";
        assert_eq!(hints.exclusions("a.data").collect::<Vec<_>>(), [excluded]);
        assert_eq!(lines(&hints), "the recording has no such process; it has none");
    }

    #[test]
    fn the_times_of_the_recording_are_told_after_those_asked_for() {
        let interval = |start, stop| Interval { start, stop };
        let (one, last) = (interval(0, 1_500_000_000), interval(3_000_000_000, u64::MAX));
        for (intervals, range, expected) in [
            (&[][..], None, "--time selects no time; the samples of the recording have no times"),
            (
                &[one],
                Some((2_000_000_000, 4_000_000_000)),
                "--time selects all before 1.500000000; the recording has samples from 2.000000000 to 4.000000000",
            ),
            (
                &[one, last, last],
                None,
                "--time selects 3 windows from all before 1.500000000 to all from 3.000000000 on; the samples of the \
                 recording have no times",
            ),
        ] {
            let mut hints = Hints::default();
            hints.of_times(intervals, range);
            assert_eq!(lines(&hints), expected);
        }
    }

    #[test]
    fn namespaces_are_listed_if_no_task_is_in_one_asked_for() {
        let mut hints = Hints::default();
        hints.of_namespaces(NamespaceKind::Pid, &[5], &[]);
        assert_eq!(lines(&hints), "no task is in such a namespace (--pidns); it has none");
    }
}
