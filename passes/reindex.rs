//! The passes of `perfx reindex`: each mends one index of a recording, and leaves one that is right as it is, byte by byte.
//!
//! An index that a recording has no need of may be missing by design: pipe data has no AUXTRACE index, perf before 4.15 wrote no SAMPLE_TIME,
//! `perf record --buildid-mmap` writes no BUILD_ID. That is no fault, so it is made only for who asks for it by name ([`ADD`]).

mod aux;
mod build_ids;
mod ids;
mod times;

use perfx_pipeline::{Level, Session, counted};

use crate::support::options::Choice;

pub use aux::ReindexAux;
pub use build_ids::ReindexBuildIds;
pub use ids::ReindexIds;
pub use times::ReindexTimes;

/// The option of those whose index may be missing by design.
pub(crate) const ADD: Choice =
    Choice { name: "add", value: None, about: "also make or complete what is missing by design" };

/// Tells what was done to an index: how many of what, for every number that is not 0.
fn tell(session: &mut Session, index: &str, mended: &[(u64, &str, &str)]) {
    let done = mended.iter().filter(|(count, ..)| *count > 0);
    let done: Vec<_> = done.map(|&(count, one, many)| counted(count, one, many)).collect();
    let line = if done.is_empty() { "nothing to mend".to_owned() } else { done.join(", ") };
    session.report.say(Level::Info, format!("{index}: {line}"));
}
