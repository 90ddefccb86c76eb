//! The passes of `perfx reindex`. Each rebuilds one index, and leaves a correct one unchanged.
//!
//! An index may be missing by design: pipe data has no AUXTRACE index, perf before 4.15 wrote no SAMPLE_TIME,
//! and `perf record --buildid-mmap` writes no BUILD_ID. Such an index is created only on request (`add`).

mod aux;
mod build_ids;
pub(crate) mod ids;
mod times;

use perfx_pipeline::{Level, Session, counted};

pub use aux::ReindexAux;
pub use build_ids::ReindexBuildIds;
pub use ids::ReindexIds;
pub use times::ReindexTimes;

fn report_repaired(session: &mut Session, index: &str, repaired: &[String]) {
    let line = if repaired.is_empty() { "nothing to repair".to_owned() } else { repaired.join(", ") };
    session.report.say(Level::Info, format!("{index}: {line}"));
}

/// The counts that are not 0, each with its singular or plural word.
fn counts(counts: &[(u64, &str, &str)]) -> Vec<String> {
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    some.map(|&(count, one, many)| counted(count, one, many)).collect()
}
