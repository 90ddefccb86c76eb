//! When a filter keeps nothing, says what the recording has of what was asked for.

use std::collections::{BTreeMap, BTreeSet};

use perfx_pipeline::count;
use regex::bytes::{Regex, RegexBuilder};

use super::choice::Chosen;
use super::time::Window;

/// So many names are listed.
const LISTED: usize = 5;

/// A line for each option that nothing of the recording answers to.
#[derive(Debug, Default)]
pub(super) struct Hints(Vec<String>);

impl Hints {
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// `range` are the times of the first and the last sample.
    pub(super) fn of_times(&mut self, windows: &[Window], (first, last): (u64, u64)) {
        if !windows.is_empty() {
            let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            self.0.push(format!("the recording has samples from {} to {}", seconds(first), seconds(last)));
        }
    }

    /// For an option that takes regular expressions for these names.
    pub(super) fn of_names<'n>(
        &mut self,
        option: &str,
        chosen: &Chosen<Regex>,
        names: impl Iterator<Item = &'n [u8]>,
        is: impl Fn(&Regex, &[u8]) -> bool,
    ) {
        if chosen.only.is_empty() {
            return;
        }
        let names: BTreeSet<&[u8]> = names.collect();
        if names.iter().any(|name| chosen.only.iter().any(|regex| is(regex, name))) {
            return;
        }
        // Part of a name, as `sched_switch` of `sched:sched_switch`, or a name in other case.
        let loose = chosen.only.iter().filter_map(|regex| {
            let part = regex.as_str().trim_start_matches("^(?:").trim_end_matches(")$");
            RegexBuilder::new(part).case_insensitive(true).build().ok()
        });
        let loose: Vec<Regex> = loose.collect();
        let shown = |name: &&[u8]| format!("`{}`", String::from_utf8_lossy(name));
        let meant = names.iter().find(|name| loose.iter().any(|regex| regex.is_match(name)));
        self.0.push(match meant {
            Some(name) => format!("nothing in the recording fits --{option}; did you mean {}?", shown(name)),
            None => format!("nothing in the recording fits --{option}; {}", list(names.iter().map(shown))),
        });
    }

    /// For `--pid`.
    pub(super) fn of_pids(&mut self, chosen: &Chosen<u32>, pids: BTreeMap<u32, &[u8]>) {
        if chosen.only.is_empty() || chosen.only.iter().any(|pid| pids.contains_key(pid)) {
            return;
        }
        let shown = |(pid, name): (&u32, &&[u8])| format!("{pid} ({})", String::from_utf8_lossy(name));
        self.0.push(format!("the recording has no such process; {}", list(pids.iter().map(shown))));
    }
}

/// `it has a, b and 12 others`.
fn list(names: impl ExactSizeIterator<Item = String>) -> String {
    let all = names.len();
    let listed: Vec<String> = names.take(LISTED).collect();
    match all - listed.len() {
        _ if all == 0 => "it has none".to_owned(),
        0 => format!("it has {}", listed.join(", ")),
        more => format!("it has {} and {} others", listed.join(", "), count(more as u64)),
    }
}
