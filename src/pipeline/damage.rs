//! The policy for damage: which damage a run tolerates, and how severe a fault is.

use perfx_format::header::{Fault, Severity};
use perfx_format::read::{Fragment, Recording};
use perfx_format::{FaultCode, Origin};

use crate::report::{Level, Report};

/// The reaction to unreadable records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Damage {
    /// Damage that perf tolerates (pipe data or a zstd stream that ends inside a record) is reported as a
    /// loss; any other damage is an error.
    #[default]
    Tolerate,
    /// A zstd stream must be complete, too.
    Refuse,
    /// Everything readable is kept, and the rest is reported as a loss.
    Salvage,
}

impl Damage {
    /// True if a run continues after bytes that are not a record, in pipe data or not.
    pub fn tolerates(self, fragment: &Fragment, pipe: bool) -> bool {
        match self {
            // perf tolerates that in pipe data and at the end of a compressed stream, but not elsewhere.
            Damage::Tolerate => pipe || matches!(fragment.origin, Origin::Chunk { .. }),
            Damage::Refuse => pipe && !fragment.is_of_zstd(),
            Damage::Salvage => true,
        }
    }
}

/// The purpose of reading a recording, which decides how severe a fault of its header is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To describe it, including missing parts.
    Describe,
    /// To use its contents.
    Use,
    /// To use its records. A fatal fault ends the reading, and is reported there.
    UseRecords,
    /// To write it again.
    Rewrite,
}

impl Purpose {
    fn level(self, fault: &Fault) -> Option<Level> {
        let is_loss = match self {
            Purpose::Describe => false,
            Purpose::UseRecords if fault.severity == Severity::Fatal => return None,
            Purpose::Use | Purpose::UseRecords => fault.severity == Severity::Loss,
            // An unfinished file may still contain all its records.
            Purpose::Rewrite => fault.severity >= Severity::Loss && fault.code != FaultCode::Unfinished,
        };
        Some(if is_loss { Level::Loss } else { Level::Warning })
    }
}

impl Report {
    /// Adds the faults in the header of a recording.
    pub fn say_faults(&mut self, recording: &Recording, purpose: Purpose) {
        for fault in &recording.faults {
            if let Some(level) = purpose.level(fault) {
                self.say(level, fault.to_error().file(&recording.name).to_string());
            }
        }
    }
}
