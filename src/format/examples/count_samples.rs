//! Counts the samples of each thread.
//!
//! ```sh
//! cargo run -p perfx-format --example count_samples -- perf.data
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use perfx_format::read::Recording;

/// Samples by process and thread.
pub(crate) fn count_samples(path: &Path) -> perfx_format::Result<BTreeMap<(u32, u32), u64>> {
    let mut counts = BTreeMap::new();
    let mut records = Recording::open(path)?.records();
    while let Some(record) = records.next_record()? {
        if let Some(pid_tid) = record.sample()?.and_then(|sample| sample.pid_tid) {
            *counts.entry(pid_tid).or_default() += 1;
        }
    }
    Ok(counts)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: count_samples RECORDING")?;
    for ((pid, tid), count) in count_samples(path.as_ref())? {
        println!("{pid:>8} {tid:>8} {count:>12}");
    }
    Ok(())
}
