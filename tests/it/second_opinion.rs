//! An independent reader of perf.data (linux-perf-data) finds the same records, in perf's recordings and in
//! the output of perfx.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use linux_perf_data::{PerfFileReader, PerfFileRecord};

use crate::parse::{Contents, feature};
use crate::support::{Form, Tier, each_fixture, perfx, recorded, temp};
use crate::{args, tiers};

/// Records that it does not return: FINISHED_ROUND, the front of a pipe, and event names.
const USED_UP: [u32; 6] = [64, 66, 67, 68, 78, 80];

/// In such a pipe it takes the payload for records.
fn has_tracing_data(pipe: &[u8]) -> bool {
    Contents::pipe(pipe).features.contains_key(&feature::TRACING_DATA)
}

/// Records by kind, as counted by the other reader. `None` for recordings it cannot read.
pub(crate) fn theirs(bytes: &[u8], is_pipe: bool) -> Option<BTreeMap<u32, usize>> {
    let mut counts = BTreeMap::new();
    let mut count = |record: Option<PerfFileRecord<'_>>| {
        let kind = match record? {
            PerfFileRecord::EventRecord { record, .. } => record.record_type,
            PerfFileRecord::UserRecord(record) => record.record_type.record_type(),
        };
        *counts.entry(kind.0).or_default() += 1;
        Some(())
    };
    if is_pipe {
        if has_tracing_data(bytes) {
            return None;
        }
        let PerfFileReader { mut perf_file, mut record_iter } = PerfFileReader::parse_pipe(bytes).ok()?;
        while count(record_iter.next_record(&mut perf_file).ok()?).is_some() {}
    } else {
        let PerfFileReader { mut perf_file, mut record_iter } =
            PerfFileReader::parse_file(Cursor::new(bytes)).ok()?;
        while count(record_iter.next_record(&mut perf_file).ok()?).is_some() {}
    }
    counts.retain(|kind, _| !USED_UP.contains(kind));
    Some(counts)
}

/// Like [`theirs`], from perfx dump.
fn ours(path: &Path) -> BTreeMap<u32, usize> {
    let dump = perfx(args!["dump", "--format", "ndjson", path]);
    let mut counts = BTreeMap::new();
    for line in dump.text().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(kind) = line["type"].as_u64() {
            *counts.entry(kind as u32).or_default() += 1;
        }
    }
    counts.retain(|kind, _| !USED_UP.contains(kind));
    counts
}

tiers!(it_counts_the_same_records_of_each_kind);
fn it_counts_the_same_records_of_each_kind(tier: Tier) {
    let fixtures: Vec<_> =
        tier.of(recorded()).into_iter().filter(|fixture| fixture.form != Form::Directory).collect();
    let read = AtomicUsize::new(0);
    each_fixture(&fixtures, |fixture| {
        let Some(expected) = theirs(&fixture.bytes(), fixture.form == Form::Pipe) else { return Ok(()) };
        read.fetch_add(1, Ordering::Relaxed);
        let counts = ours(&fixture.path);
        if counts != expected {
            return Err(format!("{counts:?}, not {expected:?}"));
        }
        for (form, is_pipe) in [("file", false), ("pipe", true)] {
            let folder = temp();
            let out = folder.path().join("out.data");
            perfx(args!["copy", "--to", form, "-o", out, fixture.path]).done()?;
            let out = fs::read(&out).unwrap();
            if is_pipe && has_tracing_data(&out) {
                continue;
            }
            match theirs(&out, is_pipe) {
                Some(counts) if counts == expected => {}
                counts => return Err(format!("as a {form} {counts:?}, not {expected:?}")),
            }
        }
        Ok(())
    });
    let read = read.into_inner();
    assert!(read * 4 > fixtures.len() * 3, "it reads only {read} of {}", fixtures.len());
}
