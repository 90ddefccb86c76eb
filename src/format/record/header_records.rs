//! Reads the records of pipe data that say what a file says in its header, whichever of their layouts the writer chose.

use super::build_id::BuildIdEntry;
use crate::header::{EVENT_TYPE_SIZE, are_event_types};
use crate::{ATTR_SIZE_MAX, ATTR_SIZE_MIN, Bytes, Cursor, Event, Feature, Record, RecordType, Result};

/// Bytes of HEADER_TRACING_DATA before a payload inside it: header, u32 size.
const TRACING_DATA_HEAD: usize = 12;

/// Most bytes of the name in a HEADER_EVENT_TYPE.
pub(crate) const EVENT_TYPE_NAME: usize = EVENT_TYPE_SIZE - 8;

/// The payload of `length` bytes lies inside the record of `size` bytes, not behind it. simpleperf writes HEADER_TRACING_DATA that way: u32 size,
/// the payload, zeros to a multiple of 64. perf's record has 12 or 16 bytes and a payload of at least 8, for which it never has room, so the
/// record alone proves which of the two it is, wherever a batch ends.
#[inline]
pub(crate) fn holds_payload(kind: RecordType, size: usize, length: u64) -> bool {
    kind == RecordType::HEADER_TRACING_DATA && length <= size.saturating_sub(TRACING_DATA_HEAD) as u64
}

/// What a HEADER_TRACING_DATA record carries, inside it or behind it.
pub fn tracing_data<'a>(record: &Record<'a>) -> &'a [u8] {
    let length = record.u32(8).unwrap_or(0) as usize;
    let inside = record.bytes().get(TRACING_DATA_HEAD..).and_then(|rest| rest.get(..length));
    inside.filter(|_| record.payload().is_empty()).unwrap_or(record.payload())
}

/// A HEADER_EVENT_TYPE record as an entry of a file's event types: u64 `attr.config`, char name\[64\]. perf before 3.3 pads the name to 8 bytes
/// only, and leaves out the NUL of one that fills them. `None` for any other record, and for one without a name that a file could hold.
fn event_type(record: &Record<'_>) -> Option<[u8; EVENT_TYPE_SIZE]> {
    let body = record.body();
    let mut entry = [0; EVENT_TYPE_SIZE];
    entry.get_mut(..body.len())?.copy_from_slice(body);
    let fits = record.kind() == RecordType::HEADER_EVENT_TYPE && are_event_types(&entry);
    fits.then_some(entry)
}

/// A record of pipe data that a file keeps in its header instead.
#[derive(Debug)]
pub enum HeaderRecord {
    /// HEADER_ATTR.
    Event(Event),
    /// HEADER_FEATURE or HEADER_TRACING_DATA.
    Feature(Feature, Bytes),
    /// HEADER_BUILD_ID, as an entry of a BUILD_ID section.
    BuildId(Vec<u8>),
    /// HEADER_EVENT_TYPE, as an entry of a file's event types.
    EventType([u8; EVENT_TYPE_SIZE]),
    /// The mark behind the last HEADER_FEATURE: the number of features its writer knew, and no payload.
    EndOfFeatures,
}

impl HeaderRecord {
    /// The kinds it can be read from.
    pub const KINDS: [RecordType; 5] = [
        RecordType::HEADER_ATTR,
        RecordType::HEADER_EVENT_TYPE,
        RecordType::HEADER_FEATURE,
        RecordType::HEADER_TRACING_DATA,
        RecordType::HEADER_BUILD_ID,
    ];

    /// The kinds that mean another thing among the data of a file than in pipe data. HEADER_BUILD_ID is good in both.
    pub const FRONT: [RecordType; 3] =
        [RecordType::HEADER_ATTR, RecordType::HEADER_FEATURE, RecordType::HEADER_TRACING_DATA];

    /// Readers of pipe data would take it for a part of the header, or stumble over it.
    pub fn is_front(record: &Record<'_>) -> bool {
        !matches!(HeaderRecord::read(record), Ok(None | Some(HeaderRecord::BuildId(_))))
    }

    /// Reads one; `None` for any other kind of record.
    ///
    /// # Errors
    ///
    /// The record is of such a kind, but too short for its fields.
    pub fn read(record: &Record<'_>) -> Result<Option<HeaderRecord>> {
        Ok(Some(match record.kind() {
            RecordType::HEADER_ATTR => {
                let body = record.body();
                let size = match record.endian().u32(body, 4) {
                    Some(0) => 64,
                    Some(size) => size as usize,
                    None => 0,
                };
                if !(ATTR_SIZE_MIN..=ATTR_SIZE_MAX).contains(&size) || size > body.len() || size % 8 != 0 {
                    let what = format!(
                        "attr.size {size} does not fit in a record of {} bytes",
                        record.bytes().len()
                    );
                    return Err(record.error(what).code("attr-size"));
                }
                let (attr, mut ids) = (&body[..size], Cursor::new(&body[size..], record.endian()));
                let ids = std::iter::from_fn(|| ids.u64()).collect();
                HeaderRecord::Event(Event::new(attr.to_vec(), ids, record.endian()))
            }
            RecordType::HEADER_FEATURE => {
                let Some(bit) = record.u64(8) else {
                    return Err(record.error("too short to name its feature").code("too-small"));
                };
                let payload = record.bytes()[16..].to_vec();
                let Ok(bit) = u8::try_from(bit) else {
                    // No file can hold it, so it stays an ordinary record, which every perf skips.
                    return Ok(None);
                };
                // The end mark is a feature number one above the writer's last feature, with no payload. The two features that are mere flags
                // are the only ones with an equally empty section.
                if payload.is_empty() && !Feature::FLAGS.contains(&Feature(bit)) {
                    HeaderRecord::EndOfFeatures
                } else {
                    HeaderRecord::Feature(Feature(bit), payload.into())
                }
            }
            RecordType::HEADER_TRACING_DATA => {
                HeaderRecord::Feature(Feature::TRACING_DATA, tracing_data(record).to_vec().into())
            }
            RecordType::HEADER_BUILD_ID => {
                let mut entry = Vec::new();
                BuildIdEntry::read(record.bytes(), record.endian())
                    .and_then(|read| read.write_section(record.endian(), &mut entry))
                    .ok_or_else(|| record.error("too short to hold a build-id").code("too-small"))?;
                HeaderRecord::BuildId(entry)
            }
            RecordType::HEADER_EVENT_TYPE => match event_type(record) {
                Some(entry) => HeaderRecord::EventType(entry),
                // No file can hold it either.
                None => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }
}

/// The number of the feature in a HEADER_FEATURE record (which need not be a [`Feature`]), and its section.
pub fn feature_section<'a>(record: &Record<'a>) -> Option<(u64, &'a [u8])> {
    let section = record.bytes().get(16..).filter(|_| record.kind() == RecordType::HEADER_FEATURE)?;
    Some((record.u64(8)?, section))
}

/// A HEADER_FEATURE record that holds this feature.
pub fn is_feature(record: &Record<'_>, feature: Feature) -> bool {
    feature_section(record).is_some_and(|(number, _)| number == u64::from(feature.0))
}
