//! Reads the leading records of pipe data, which correspond to a file's header.

use std::collections::HashSet;
use std::sync::Arc;

use super::batch::Batch;
use super::cutter::Cutter;
use super::fragment::Fragment;
use super::recording::{Form, Recording};
use super::stream::{Source, Stream};
use crate::features::read_event_desc;
use crate::header::{EVENTS_MAX, Fault, Features, Severity};
use crate::record::event_update::name_update;
use crate::record::header_records::HeaderRecord;
use crate::value::bytes_that;
use crate::{Endian, Error, FaultCode, Feature, Layouts, Origin, Record, Result};

#[derive(Default)]
struct Head {
    build_ids: Vec<u8>,
    /// The names in EVENT_DESC for the first id of each event; filled at the first EVENT_UPDATE.
    names: Option<HashSet<(u64, Vec<u8>)>>,
}

impl Recording {
    /// Reads the leading header records of pipe data, up to the first record that is not one. Damaged ones
    /// are left out and become a fault that forbids writing; for that, pipe data that is not mapped is
    /// spooled.
    pub(super) fn from_pipe(source: Source, endian: Endian, name: Arc<str>) -> Result<Recording> {
        let mut recording = Recording {
            name: name.clone(),
            form: Form::Pipe,
            endian,
            events: Vec::new(),
            features: Features::new(),
            faults: Vec::new(),
            file: None,
            head: Vec::new(),
            event_types: Vec::new(),
            extras: Vec::new(),
            left_out: 0,
            chain: None,
            streams: Vec::new(),
            opened: None,
            lenient: false,
            live: false,
            progress: Arc::default(),
            extents: Arc::default(),
            late_events: Arc::default(),
        };
        let mut cutter = Cutter::new(Stream { name, index: 0, source }, endian, Arc::new(Layouts::new(&[])));
        // A command that reads only the front of a pipe should get it before the pipe has ended.
        cutter.eager = true;
        let mut head = Head::default();
        loop {
            let batch = match cutter.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    // The pipe has only header records, which must not be read again as records.
                    cutter.use_up();
                    break;
                }
                Err(error) if error.fault_code().is_none() => return Err(error),
                Err(error) => {
                    if let Some(temp_files) = cutter.temp_files() {
                        recording.streams.push(cutter.into_rest());
                        return recording.spooled(&temp_files);
                    }
                    cutter.layouts = Arc::new(Layouts::new(&recording.events));
                    let Some(bytes) = cutter.step_over() else { return Err(error) };
                    recording.faults.push(left_out(
                        &error,
                        &bytes_that(bytes, " here is left out", " here are left out"),
                    ));
                    recording.left_out += bytes as u64;
                    continue;
                }
            };
            let (mut start, mut end) = (0, 0);
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                match recording.read_head(&record, &mut head) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if recording.events.len() > EVENTS_MAX => return Err(error),
                    Err(error) => {
                        if let Some(temp_files) = cutter.temp_files() {
                            recording.head.push(batch.part(0..end)?);
                            cutter.give_back(&batch, end);
                            recording.streams.push(cutter.into_rest());
                            return recording.spooled(&temp_files);
                        }
                        recording.faults.push(left_out(&error, "the record is left out"));
                        recording.left_out += record.whole_size();
                        recording.head.push(batch.part(start..end)?);
                        start = walker.position();
                    }
                }
                end = walker.position();
            }
            // A fragment after other records is found again with them.
            let fragment = batch.fragment.filter(|_| end == batch.bytes.len());
            let skipped = fragment.and_then(|fragment| {
                cutter.layouts = Arc::new(Layouts::new(&recording.events));
                cutter.step_back_over(&fragment)
            });
            if end > start || fragment.is_some() {
                let fragment = fragment.filter(|_| skipped.is_none());
                recording.head.push(Batch { fragment, ..batch.part(start..end)? });
            }
            if end < batch.bytes.len() {
                cutter.give_back(&batch, end);
                break;
            }
            if let (Some(fragment), Some(bytes)) = (fragment, skipped) {
                let one = " here is left out, because records follow it";
                let what = bytes_that(bytes, one, " here are left out, because records follow them");
                recording.faults.push(left_out(&fragment.to_error(), &what));
                recording.left_out += bytes as u64;
            } else if let Some(fragment) = fragment {
                recording.faults.push(end_of_pipe(&fragment));
            }
        }
        if !head.build_ids.is_empty() {
            recording.features.insert(Feature::BUILD_ID, head.build_ids.into());
        }
        // A HEADER_BUILD_ID made by perf inject ends with the ids of an event.
        let layouts = Arc::new(Layouts::new(&recording.events));
        recording.head.iter_mut().for_each(|batch| batch.layouts = layouts.clone());
        recording.streams.push(cutter.into_rest());
        Ok(recording)
    }

    /// Takes the contents of a header record of pipe data; false for any other record.
    fn read_head(&mut self, record: &Record<'_>, head: &mut Head) -> Result<bool> {
        let Some(header) = HeaderRecord::read(record)? else { return Ok(self.is_known_name(record, head)) };
        head.build_ids.extend(self.absorb(header).unwrap_or_default());
        if self.events.len() > EVENTS_MAX {
            let what = format!("more than the {EVENTS_MAX} events perf allows");
            return Err(record.error(what).code(FaultCode::AttrsMany));
        }
        Ok(true)
    }

    /// True for an EVENT_UPDATE record that repeats EVENT_DESC.
    fn is_known_name(&self, record: &Record<'_>, head: &mut Head) -> bool {
        let Some((id, name)) = name_update(record) else { return false };
        let names = head.names.get_or_insert_with(|| {
            let section = self.features.get(&Feature::EVENT_DESC);
            let events =
                section.and_then(|section| read_event_desc(section, self.endian)).unwrap_or_default();
            let id = |index, ids: &[u64]| ids.first().copied().or((index == 0).then_some(0));
            let named = events.into_iter().enumerate();
            named.filter_map(|(at, event)| Some((id(at, &event.ids)?, event.name.to_vec()))).collect()
        });
        names.contains(&(id, name.to_vec()))
    }
}

/// The bytes after the last whole record, if that is a header record.
fn end_of_pipe(fragment: &Fragment) -> Fault {
    let error = fragment.to_error();
    let (code, what) = match fragment.stray {
        Some(_) => (error.fault_code().unwrap_or(FaultCode::Torn), error.what().to_owned()),
        None => {
            let bytes = fragment.bytes;
            (
                FaultCode::Torn,
                format!(
                    "the pipe ends inside a record of its header: {} lost",
                    bytes_that(bytes, " is", " are")
                ),
            )
        }
    };
    let offset = fragment.origin.stored_at().map_or(0, |(_, offset)| offset);
    Fault { code, offset, what, severity: Severity::Loss, hint: None }
}

fn left_out(error: &Error, what: &str) -> Fault {
    let kind = error.record_kind().map_or_else(String::new, |kind| format!("{kind}: "));
    Fault {
        code: error.fault_code().unwrap_or(FaultCode::Torn),
        offset: error.place().and_then(Origin::stored_at).map_or(0, |(_, offset)| offset),
        what: format!("{kind}{}; {what}", error.what()),
        severity: Severity::Fatal,
        hint: Some("perfx recover restores the readable part"),
    }
}
