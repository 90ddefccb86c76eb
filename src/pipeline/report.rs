//! What a run has to tell: what was read and done, what is odd, what is lost; nothing is printed here.

use std::collections::BTreeMap;

use perfx_format::RecordType;

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something of the recording is missing in the output: exit code 3.
    Loss,
    /// Something is suspect in the input or the outcome; the output holds all there was.
    Warning,
    /// What was done.
    Info,
    /// What only `-v` shows.
    Detail,
}

/// Collected while a recording flows by, in an order that depends on nothing but the input.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Bytes of records read, as stored.
    pub bytes: u64,
    /// Records that passes left out on purpose, by kind.
    pub dropped: BTreeMap<RecordType, u64>,
    /// Lines in the order they were said.
    pub lines: Vec<(Level, String)>,
}

/// Ends a line whose details follow it: said unless `-v` shows them.
pub const LISTED: &str = " (-v lists them)";

impl Report {
    /// Adds a line.
    pub fn say(&mut self, level: Level, line: impl Into<String>) {
        self.lines.push((level, line.into()));
    }

    /// What was done first, and what then with the outcome.
    #[must_use]
    pub fn followed_by(mut self, then: Report) -> Report {
        self.lines.extend(then.lines);
        for (kind, count) in then.dropped {
            *self.dropped.entry(kind).or_default() += count;
        }
        self
    }

    /// Something was lost.
    pub fn has_loss(&self) -> bool {
        self.lines.iter().any(|(level, _)| *level == Level::Loss)
    }
}
