//! Formats what a user sees: reports, progress, numbers.

pub(crate) mod escape;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod units;
