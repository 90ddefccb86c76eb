//! What a user sees: reports, progress, records as text, numbers.

pub(crate) mod progress;
pub mod render;
pub(crate) mod report;
pub(crate) mod units;
