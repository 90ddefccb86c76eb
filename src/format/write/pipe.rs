//! Writes the front of pipe data: the records with the contents of a file's header, in perf's order.

use crate::features::{BuildIds, read_event_desc};
use crate::header::{Features, Magic};
use crate::record::event_update::EVENT_UPDATE_NAME;
use crate::value::bytes_that;
use crate::{Endian, Error, Event, Feature, HEADER_SIZE, RECORD_SIZE_MAX, RecordType, Result};

/// Features that describe offsets in a file or the form of a directory; pipe data has neither.
const FILE_ONLY: [Feature; 2] = [Feature::AUXTRACE, Feature::DIR_FORMAT];

const SECTION_MAX: usize = u16::MAX as usize - HEADER_SIZE - 8;

/// The features that pipe data cannot hold, with the reasons.
pub type Unsaid = Vec<(Feature, String)>;

/// Builds the header, HEADER_ATTRs, HEADER_FEATUREs in ascending order, HEADER_TRACING_DATA, the events'
/// names and HEADER_BUILD_IDs. Also returns the features that pipe data cannot hold, with the reasons.
///
/// # Errors
///
/// An event has more ids than fit into a record; without them no perf could read the records.
pub fn pipe_front(events: &[Event], features: &Features, endian: Endian) -> Result<(Vec<u8>, Unsaid)> {
    let mut out = Magic::pipe_header(endian).to_vec();
    for (index, event) in events.iter().enumerate() {
        // Record sizes are multiples of 8 bytes, and so are the attrs in them.
        let mut body = event.written(event.raw().len().next_multiple_of(8), endian).into_owned();
        event.ids.iter().for_each(|&id| body.extend(endian.bytes_u64(id)));
        if HEADER_SIZE + body.len() > RECORD_SIZE_MAX {
            let ids = event.ids.len();
            return Err(Error::new(format!(
                "event {index} has {ids} ids, more than fit in its HEADER_ATTR record"
            ))
            .hint("write a file instead"));
        }
        record(&mut out, RecordType::HEADER_ATTR, &[&body], endian);
    }
    let mut unsaid = Vec::new();
    for (&feature, section) in features {
        if FILE_ONLY.contains(&feature) || feature == Feature::TRACING_DATA || feature == Feature::BUILD_ID {
            continue;
        }
        // Without contents it would look like the mark at the end of the features, where perf 6 fails.
        if section.is_empty() && !Feature::FLAGS.contains(&feature) {
            unsaid.push((feature, "it is empty".to_owned()));
            continue;
        }
        match feature_record(feature, section, endian) {
            Some(record) => out.extend(record),
            None => {
                let why = format!(
                    "it has {} bytes, and a record of pipe data holds at most {SECTION_MAX}",
                    section.len()
                );
                unsaid.push((feature, why));
            }
        }
    }
    if let Some(section) = features.get(&Feature::TRACING_DATA) {
        match tracing_data_record(section, endian) {
            Some((record, payload)) => {
                out.extend(record);
                out.extend(payload);
            }
            None => {
                let why = format!("it has {} bytes, and pipe data holds {}", section.len(), u32::MAX);
                unsaid.push((Feature::TRACING_DATA, why));
            }
        }
    }
    let descriptions =
        features.get(&Feature::EVENT_DESC).and_then(|section| read_event_desc(section, endian));
    for (index, (event, description)) in events.iter().zip(descriptions.iter().flatten()).enumerate() {
        // perf takes id 0 as the first event; other events without an id cannot be named.
        let id = event.ids.first().copied().or((index == 0).then_some(0));
        if let (Some(id), false) = (id, description.name.is_empty()) {
            let mut name = description.name.to_vec();
            name.resize((name.len() + 1).next_multiple_of(8), 0);
            let kind = endian.bytes_u64(EVENT_UPDATE_NAME);
            record(&mut out, RecordType::EVENT_UPDATE, &[&kind, &endian.bytes_u64(id), &name], endian);
        }
    }
    let mut ids = BuildIds::new(features.get(&Feature::BUILD_ID).map_or(&[][..], |section| section), endian);
    let too_long = ids.by_ref().filter(|entry| entry.write_record(&[], endian, &mut out).is_none()).count();
    if too_long > 0 {
        unsaid.push((Feature::BUILD_ID, format!("{too_long} of its entries do not fit in a record")));
    }
    if !ids.rest().is_empty() {
        let why = bytes_that(ids.rest().len(), " at its end is", " at its end are") + " not an entry";
        unsaid.push((Feature::BUILD_ID, why));
    }
    Ok((out, unsaid))
}

/// A HEADER_FEATURE record of a section; `None` if it is too long.
pub fn feature_record(feature: Feature, section: &[u8], endian: Endian) -> Option<Vec<u8>> {
    let fits = section.len() <= SECTION_MAX;
    fits.then(|| {
        let mut out = Vec::new();
        record(&mut out, RecordType::HEADER_FEATURE, &[&endian.bytes_u64(feature.0.into()), section], endian);
        out
    })
}

/// A HEADER_TRACING_DATA record and its payload, the section padded to 8 bytes; `None` if it is too long.
pub fn tracing_data_record(section: &[u8], endian: Endian) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut payload = section.to_vec();
    payload.resize(section.len().next_multiple_of(8), 0);
    let size = u32::try_from(payload.len()).ok()?;
    let mut out = Vec::new();
    record(&mut out, RecordType::HEADER_TRACING_DATA, &[&endian.bytes_u32(size), &[0; 4]], endian);
    Some((out, payload))
}

/// The HEADER_EVENT_TYPE record for an entry of a file's event types.
pub fn event_type_record(entry: &[u8], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    record(&mut out, RecordType::HEADER_EVENT_TYPE, &[entry], endian);
    out
}

fn record(out: &mut Vec<u8>, kind: RecordType, parts: &[&[u8]], endian: Endian) {
    let size = HEADER_SIZE + parts.iter().map(|part| part.len()).sum::<usize>();
    out.extend(endian.bytes_u32(kind.0));
    out.extend(endian.bytes_u16(0));
    // Callers have checked that it fits.
    out.extend(endian.bytes_u16(u16::try_from(size).unwrap_or(u16::MAX)));
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
