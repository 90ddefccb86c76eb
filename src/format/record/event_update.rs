//! EVENT_UPDATE records of pipe data give an event its name, unit, scale or CPUs.

use crate::{Record, RecordType, until_nul};

/// The kind of EVENT_UPDATE that names an event.
pub(crate) const EVENT_UPDATE_NAME: u64 = 2;

/// The offset of the name in such a record.
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
