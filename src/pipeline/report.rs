//! The report of a run: what was read and done, and what is odd or lost. The caller prints it.

use std::collections::BTreeMap;
use std::sync::Arc;

use perfx_format::RecordType;
use perfx_format::read::Batch;

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Part of the recording is missing in the output: exit code 3.
    Loss,
    /// The input or the result is suspect; the output is complete.
    Warning,
    /// Normal progress.
    Info,
    /// Shown only with `-v`.
    Detail,
}

/// A recording that was read.
#[derive(Clone, Default, Debug)]
pub struct Read {
    /// The name that the user gave; `None` if the report is that of a step, and is added to another.
    pub name: Option<Arc<str>>,
    /// Records; `None` if they were not counted.
    pub records: Option<u64>,
    /// Bytes of records, as stored.
    pub bytes: u64,
}

impl Read {
    pub(crate) fn add(&mut self, batch: &Batch) {
        *self.records.get_or_insert(0) += batch.records;
        self.bytes += batch.bytes.len() as u64;
    }
}

/// The report of a run. The order of its lines depends only on the input.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// The reports of recordings that were read before, which come first.
    pub before: Vec<Report>,
    /// The recording that was read, reported before the lines.
    pub read: Read,
    /// Records that passes dropped on purpose, by kind.
    pub dropped: BTreeMap<RecordType, u64>,
    /// Lines in the order in which they were added.
    pub lines: Vec<(Level, String)>,
}

/// Ends a line that has details for `-v`; with `-v`, it is omitted.
pub const LISTED: &str = " (-v lists them)";

impl Report {
    /// Adds a line.
    pub fn say(&mut self, level: Level, line: impl Into<String>) {
        self.lines.push((level, line.into()));
    }

    /// Adds the report of a step, and its `read` where there is none yet.
    pub fn include(&mut self, step: Report) {
        self.read.records = self.read.records.or(step.read.records);
        if self.read.bytes == 0 {
            self.read.bytes = step.read.bytes;
        }
        self.before.extend(step.before);
        self.lines.extend(step.lines);
        for (kind, count) in step.dropped {
            *self.dropped.entry(kind).or_default() += count;
        }
    }

    /// True if something was lost.
    pub fn has_loss(&self) -> bool {
        self.has(Level::Loss)
    }

    /// True if something was lost or is suspect.
    pub fn is_suspect(&self) -> bool {
        self.has(Level::Warning)
    }

    fn has(&self, least: Level) -> bool {
        self.before.iter().any(|before| before.has(least))
            || self.lines.iter().any(|(level, _)| *level <= least)
    }
}
