//! Diagnoses a recording: each fault has a stable code, a place and a description; a sound one has none.

mod codes;
mod compressed;
mod examine;
mod finding;
mod front;
mod obstacles;
mod order;
mod records;

pub use codes::{CODES, Code, FindingKind, Reaction, code};
pub use examine::{examine, unopened};
pub use finding::{Diagnosis, Finding, Findings, Location, Verdict};
pub use obstacles::{Obstacle, obstacles};
