//! Diagnoses a recording. Each fault has a short stable code, a place and a description; a sound recording
//! has no faults.

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
