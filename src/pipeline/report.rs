//! Collects the report of a run: what was read and done, what is odd, what is lost. The caller prints it.

use std::collections::BTreeMap;

use perfx_format::RecordType;

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Part of the recording is missing in the output: exit code 3.
    Loss,
    /// Something is suspect in the input or the result; the output is complete.
    Warning,
    /// What was done.
    Info,
    /// Shown only with `-v`.
    Detail,
}

/// The report of a run. Its lines are in an order that depends only on the input.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Bytes of records read, as stored.
    pub bytes: u64,
    /// Records that passes dropped on purpose, by kind.
    pub dropped: BTreeMap<RecordType, u64>,
    /// Lines in the order in which they were added.
    pub lines: Vec<(Level, String)>,
}

/// The end of a line whose details `-v` shows. With `-v`, this end is left out.
pub const LISTED: &str = " (-v lists them)";

impl Report {
    /// Adds a line.
    pub fn say(&mut self, level: Level, line: impl Into<String>) {
        self.lines.push((level, line.into()));
    }

    /// Combines the report of a first step with that of the next.
    #[must_use]
    pub fn followed_by(mut self, then: Report) -> Report {
        self.lines.extend(then.lines);
        for (kind, count) in then.dropped {
            *self.dropped.entry(kind).or_default() += count;
        }
        self
    }

    /// True if something was lost.
    pub fn has_loss(&self) -> bool {
        self.lines.iter().any(|(level, _)| *level == Level::Loss)
    }
}
