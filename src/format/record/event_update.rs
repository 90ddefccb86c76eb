//! EVENT_UPDATE records of pipe data give an event its name, unit, scale or CPUs.

use super::reader::Reader;
use super::{cpu_map, stat};
use crate::{FaultCode, Layouts, Record, RecordType, Value, until_nul};

pub(crate) const EVENT_UPDATE_NAME: u64 = 2;

pub(crate) const UPDATED_NAME: usize = 24;

/// The id and name in an EVENT_UPDATE record that names an event. perf takes id 0 as the first event.
pub fn name_update<'a>(record: &Record<'a>) -> Option<(u64, &'a [u8])> {
    if record.kind() != RecordType::EVENT_UPDATE || record.u64(8) != Some(EVENT_UPDATE_NAME) {
        return None;
    }
    Some((record.u64(16)?, until_nul(record.bytes().get(UPDATED_NAME..)?)))
}

/// The event id in an EVENT_UPDATE record.
pub fn updated_id(record: &Record<'_>) -> Option<u64> {
    record.u64(16).filter(|_| record.kind() == RecordType::EVENT_UPDATE)
}

pub(crate) fn decode(layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    let kind = d.named::<u64>("type", &[(0, "UNIT"), (1, "SCALE"), (2, "NAME"), (3, "CPUS")])?;
    let id = d.number::<u64>("id")?;
    // 0 means the first event, which may have no id.
    if id != 0 {
        stat::check_id(id, layouts, d);
    }
    match kind {
        0 => d.text("unit"),
        1 => {
            let scale = d.int::<u64>("scale")?;
            d.note("scale", Value::Float(f64::from_bits(scale)));
            Some(())
        }
        2 => d.text("name"),
        3 => d.map("cpus", cpu_map::decode),
        kind => {
            d.add_issue(FaultCode::UpdateType, format!("unknown type {kind}"));
            None
        }
    }
}
