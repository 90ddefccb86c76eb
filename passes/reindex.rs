//! The passes of `perfx reindex`: each mends one index of a recording, and leaves one that is right as it is, byte by byte.
//!
//! An index that a recording has no need of may be missing by design: pipe data has no AUXTRACE index, perf before 4.15 wrote no SAMPLE_TIME,
//! `perf record --buildid-mmap` writes no BUILD_ID. That is no fault, so it is made only if the user asks for it by name (`add`).

mod aux;
mod build_ids;
pub(crate) mod ids;
mod times;

use perfx_pipeline::{Level, Session, counted};

pub use aux::ReindexAux;
pub use build_ids::ReindexBuildIds;
pub use ids::ReindexIds;
pub use times::ReindexTimes;

/// Tells what was done to an index.
fn tell(session: &mut Session, index: &str, mended: &[String]) {
    let line = if mended.is_empty() { "nothing to repair".to_owned() } else { mended.join(", ") };
    session.report.say(Level::Info, format!("{index}: {line}"));
}

/// Of several counts those that are not 0, each with one of its two words.
fn counts(counts: &[(u64, &str, &str)]) -> Vec<String> {
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    some.map(|&(count, one, many)| counted(count, one, many)).collect()
}
