//! STAT and STAT_ROUND records have counts of perf stat, THREAD_MAP records its threads.

use super::reader::Reader;
use crate::{FaultCode, Layouts};

pub(super) fn check_id(id: u64, layouts: &Layouts, d: &mut Reader<'_>) {
    if !layouts.knows(id) {
        d.add_issue(FaultCode::IdUnknown, format!("no event has the id {id}"));
    }
}

pub(crate) fn decode(layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    let id = d.number::<u64>("id")?;
    check_id(id, layouts, d);
    d.any::<u32>("cpu")?;
    d.number::<u32>("thread")?;
    d.number::<u64>("val")?;
    d.number::<u64>("ena")?;
    d.number::<u64>("run").map(drop)
}

pub(crate) fn decode_round(d: &mut Reader<'_>) -> Option<()> {
    d.named::<u64>("type", &[(0, "INTERVAL"), (1, "FINAL")])?;
    d.number::<u64>("time").map(drop)
}

pub(crate) fn decode_threads(d: &mut Reader<'_>) -> Option<()> {
    let count = d.int::<u64>("nr")?;
    d.list("entries", count, 24, |d| {
        d.any::<u64>("pid")?;
        d.field_text("comm", 16)
    })
}
