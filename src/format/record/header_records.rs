//! Reads the records of pipe data that correspond to a file's header, in any of the layouts that writers use.

use super::build_id::BuildIdEntry;
use super::builder::build;
use super::reader::Reader;
use super::tracing_data::tracing_data;
use crate::header::{EVENT_TYPE_SIZE, are_event_types};
use crate::{
    ATTR_SIZE_MAX, ATTR_SIZE_MIN, Bytes, Cursor, Event, FaultCode, Feature, Record, RecordType, Result, Value,
};

pub(crate) const EVENT_TYPE_NAME: usize = EVENT_TYPE_SIZE - 8;

/// Converts a HEADER_EVENT_TYPE record to an entry of a file's event types: u64 `attr.config`, char
/// name\[64\]. perf before 3.3 pads the name to 8 bytes only, and leaves out the NUL if the name fills them.
/// `None` for any other record, and for one whose name does not fit into a file.
fn event_type(record: &Record<'_>) -> Option<[u8; EVENT_TYPE_SIZE]> {
    let body = record.body();
    let mut entry = [0; EVENT_TYPE_SIZE];
    entry.get_mut(..body.len())?.copy_from_slice(body);
    let fits = record.kind() == RecordType::HEADER_EVENT_TYPE && are_event_types(&entry);
    fits.then_some(entry)
}

/// A record of pipe data whose contents belong to the header of a file.
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
    /// The mark after the last HEADER_FEATURE: no payload, and the number of features known to the writer.
    EndOfFeatures,
}

impl HeaderRecord {
    /// True if readers of pipe data would treat the record as part of the header, or fail at it.
    pub fn is_front(record: &Record<'_>) -> bool {
        !matches!(HeaderRecord::read(record), Ok(None | Some(HeaderRecord::BuildId(_))))
    }

    /// Reads a record of [`Kinds::HEADER`](crate::Kinds::HEADER); `None` for any other kind.
    ///
    /// # Errors
    ///
    /// The record has one of these kinds, but is too short for its fields.
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
                    return Err(record.error(what).code(FaultCode::AttrSize));
                }
                let (attr, mut ids) = (&body[..size], Cursor::new(&body[size..], record.endian()));
                let ids = std::iter::from_fn(|| ids.u64()).collect();
                HeaderRecord::Event(Event::new(attr.to_vec(), ids, record.endian()))
            }
            RecordType::HEADER_FEATURE => {
                let Some(bit) = record.u64(8) else {
                    return Err(record.error("too short to name its feature").code(FaultCode::TooSmall));
                };
                let payload = record.bytes()[16..].to_vec();
                let Ok(bit) = u8::try_from(bit) else {
                    // Too large for a file, so it stays an ordinary record, which every perf skips.
                    return Ok(None);
                };
                // The end mark has the number after the writer's last feature, and no payload. The only
                // features with an empty section are the two flags.
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
                    .ok_or_else(|| record.error("too short to hold a build-id").code(FaultCode::TooSmall))?;
                HeaderRecord::BuildId(entry)
            }
            RecordType::HEADER_EVENT_TYPE => match event_type(record) {
                Some(entry) => HeaderRecord::EventType(entry),
                // Not possible in a file either.
                None => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }
}

/// A HEADER_ATTR record with its attr changed; `None` for any other record, and for a damaged one.
pub fn with_attr(record: &Record<'_>, change: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let Ok(Some(HeaderRecord::Event(event))) = HeaderRecord::read(record) else { return None };
    let (attr, ids) = record.body().split_at_checked(event.raw().len())?;
    let mut attr = attr.to_vec();
    change(&mut attr);
    build(record.kind(), record.misc(), &[&attr, ids], record.endian())
}

/// The feature number in a HEADER_FEATURE record (which need not be a valid [`Feature`]), and the section.
pub fn feature_section<'a>(record: &Record<'a>) -> Option<(u64, &'a [u8])> {
    let section = record.bytes().get(16..).filter(|_| record.kind() == RecordType::HEADER_FEATURE)?;
    Some((record.u64(8)?, section))
}

/// True for a HEADER_FEATURE record of this feature.
pub fn is_feature(record: &Record<'_>, feature: Feature) -> bool {
    feature_section(record).is_some_and(|(number, _)| number == u64::from(feature.0))
}

pub(crate) fn decode_event_type(d: &mut Reader<'_>) -> Option<()> {
    d.hex::<u64>("event_id")?;
    // perf before 3.3 pads the name to 8 bytes instead of the 64 of the struct.
    d.field_text("name", d.left().min(EVENT_TYPE_NAME))
}

pub(crate) fn decode_feature(d: &mut Reader<'_>) -> Option<()> {
    let number = d.number::<u64>("feat_id")?;
    let feature = u8::try_from(number).ok().map(Feature);
    let payload = d.take("payload", d.left())?;
    // These two are flags and have no bytes.
    let flag = feature == Some(Feature::BRANCH_STACK) || feature == Some(Feature::STAT);
    if payload.is_empty() && !flag {
        // The mark after the last feature, with the first number unknown to the perf that wrote it.
        d.note("feature", Value::Name("end".into()));
        return Some(());
    }
    match feature.and_then(Feature::name) {
        Some(name) => d.note("feature", Value::Name(name.into())),
        None => d.add_issue(FaultCode::FeatureUnknown, format!("unknown feature {number}")),
    }
    d.note("payload", Value::Bytes(payload));
    Some(())
}
