//! Changes feature sections by one rule, in the header and among the records of pipe data.

use perfx_format::event_name::EventName;
use perfx_format::features::{EventDesc, read_event_desc, write_event_desc};
use perfx_format::names::{Name, rename_feature};
use perfx_format::record::header_records::feature_section;
use perfx_format::record::tracing_data::tracing_data;
use perfx_format::write::{feature_record, tracing_data_record};
use perfx_format::{Endian, Feature, Record};
use perfx_pipeline::{Emit, Result, Session, changed_event_desc};

pub(crate) enum Fate {
    Stays,
    Becomes(Vec<u8>),
    Goes,
}

impl Fate {
    pub(crate) fn of(section: &[u8], new: Option<Vec<u8>>) -> Fate {
        match new {
            Some(new) if new == section => Fate::Stays,
            Some(new) => Fate::Becomes(new),
            None => Fate::Goes,
        }
    }
}

/// Changes the features known when a pass begins.
pub(crate) fn change_features(session: &mut Session, mut change: impl FnMut(Feature, &[u8]) -> Fate) {
    let features: Vec<_> =
        session.features().iter().map(|(feature, section)| (*feature, section.clone())).collect();
    for (feature, section) in features {
        match change(feature, &section) {
            Fate::Stays => {}
            Fate::Becomes(section) => session.set_feature(feature, section),
            Fate::Goes => session.clear_feature(feature),
        }
    }
}

pub(crate) fn change_late_feature(
    record: Record<'_>,
    out: &mut Emit<'_>,
    change: impl FnOnce(Feature, &[u8]) -> Fate,
) -> Result<()> {
    let endian = record.endian();
    let (feature, section) = match feature_section(&record) {
        Some((number, section)) => (u8::try_from(number).ok().map(Feature), section),
        None => (Some(Feature::TRACING_DATA), tracing_data(&record)),
    };
    // The mark after the last feature has no section.
    let Some(feature) = feature.filter(|_| !section.is_empty()) else { return out.keep(record) };
    let too_large = || record.error("it is larger than a record can be");
    let fate = match change(feature, section) {
        // The record may be longer than the section.
        Fate::Stays if feature == Feature::TRACING_DATA => Fate::Becomes(section.to_vec()),
        fate => fate,
    };
    match fate {
        Fate::Stays => out.keep(record),
        Fate::Goes => {
            out.drop_record(record);
            Ok(())
        }
        Fate::Becomes(section) if feature == Feature::TRACING_DATA => {
            let (bytes, payload) = tracing_data_record(&section, endian).ok_or_else(too_large)?;
            out.keep(Record::new(&bytes, &payload, record.origin(), endian)?)
        }
        Fate::Becomes(section) => {
            out.replace(&record, &feature_record(feature, &section, endian).ok_or_else(too_large)?)
        }
    }
}

/// True if perfx cannot decode the record: its kind has no name, or its feature an impossible number.
pub(crate) fn is_unknown(record: &Record<'_>) -> bool {
    let is_too_large = |(number, section): (u64, &[u8])| number > u8::MAX.into() && !section.is_empty();
    record.kind().name().is_none() || feature_section(record).is_some_and(is_too_large)
}

pub(crate) fn renamed(
    feature: Feature,
    section: &[u8],
    endian: Endian,
    new: impl FnMut(Name<'_>) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    rename_feature(feature, section, endian, new)
        .filter(|renamed| renamed.whole)
        .map(|renamed| renamed.section)
}

pub(crate) fn changed_events(
    section: &[u8],
    endian: Endian,
    name: impl FnMut(Name<'_>) -> Option<Vec<u8>>,
    attr: impl Fn(&mut Vec<u8>, Endian),
) -> Option<Vec<u8>> {
    let named = renamed(Feature::EVENT_DESC, section, endian, name)?;
    read_event_desc(&named, endian)?;
    let changed = changed_event_desc(&named, endian, |_, raw, endian| attr(raw, endian));
    Some(changed.unwrap_or(named))
}

pub(crate) fn event_desc(session: &Session, names: &[EventName]) -> Option<Vec<u8>> {
    let described = session.events.iter().zip(names).map(|(event, name)| EventDesc {
        attr: event.raw(),
        name: &name.name,
        ids: event.ids.clone(),
    });
    let described: Vec<EventDesc<'_>> = described.collect();
    let size = described.first()?.attr.len() as u32;
    write_event_desc(size, &described, session.endian)
}
