//! Compares the records of two recordings in order, up to the first that differs.

use std::collections::HashMap;

use perfx_format::decode::{decode, misc_names};
use perfx_format::read::{Batch, Form, Fragment, Recording};
use perfx_format::record::event_update::name_update;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Kinds, Layouts, Record, RecordType, Value, ValueFields};
use perfx_pipeline::scan_two;
use schemars::JsonSchema;
use serde::Serialize;

use super::values::{Difference, differences};
use crate::Result;
use crate::json::{Kind, Place};
use crate::render::with_odd;

pub(super) struct Compared {
    pub(super) records: u64,
    pub(super) first: Option<FirstRecord>,
    pub(super) sides: [Aside; 2],
}

/// Records that are compared with the header and not with other records.
#[derive(Default)]
pub(super) struct Aside {
    pub(super) header: Vec<HeaderRecord>,
    pub(super) names: HashMap<u64, Vec<u8>>,
    pub(super) fragments: Vec<Fragment>,
}

impl Aside {
    /// Takes a record that belongs to the header; false for any other.
    fn take(&mut self, record: &Record<'_>, form: Form) -> perfx_format::Result<bool> {
        if let Some((id, name)) = name_update(record) {
            self.names.insert(id, name.to_vec());
            return Ok(true);
        }
        // perf inject puts build-ids among the records of a file, too.
        if form != Form::Pipe && record.kind() != RecordType::HEADER_BUILD_ID {
            return Ok(false);
        }
        let header = match HeaderRecord::read(record) {
            // In a file it is an ordinary record.
            Err(_) if form != Form::Pipe => None,
            header => header?,
        };
        let taken = header.is_some();
        self.header.extend(header);
        Ok(taken)
    }
}

/// The records of one recording, except those that belong to the header.
struct Records<'i> {
    batches: &'i mut dyn Iterator<Item = perfx_format::Result<Batch>>,
    form: Form,
    batch: Option<Batch>,
    at: usize,
    aside: Aside,
}

impl Records<'_> {
    /// Moves to the next record; false at the end.
    fn seek(&mut self) -> Result<bool> {
        loop {
            let Some(batch) = self.batch.as_ref().filter(|batch| self.at < batch.bytes.len()) else {
                let Some(next) = self.batches.next().transpose()? else { return Ok(false) };
                self.aside.fragments.extend(next.fragment);
                (self.batch, self.at) = (Some(next), 0);
                continue;
            };
            if self.is_plain() {
                return Ok(true);
            }
            let mut walker = batch.walk();
            walker.seek(self.at);
            let Some(record) = walker.next_record()? else { continue };
            if !self.aside.take(&record, self.form).map_err(|e| e.file(&batch.name))? {
                return Ok(true);
            }
            self.at = walker.position();
        }
    }

    /// True if no record of the current batch belongs to the header.
    fn is_plain(&self) -> bool {
        let header = Kinds::HEADER.and(RecordType::EVENT_UPDATE);
        self.batch.as_ref().is_none_or(|batch| !batch.kinds.intersects(header))
    }

    fn rest(&self) -> &[u8] {
        self.batch.as_ref().map_or(&[], |batch| &batch.bytes[self.at..])
    }

    fn record(&self) -> Result<Option<(Record<'_>, &Layouts)>> {
        let Some(batch) = &self.batch else { return Ok(None) };
        Ok(batch.walk().record_at(self.at)?.map(|record| (record, &*batch.layouts)))
    }

    fn count(&self, bytes: usize) -> Result<u64> {
        let Some(batch) = &self.batch else { return Ok(0) };
        if self.at == 0 && bytes == batch.bytes.len() {
            return Ok(batch.records);
        }
        let mut walker = batch.walk();
        walker.seek(self.at);
        let mut records = 0;
        while walker.position() < self.at + bytes && walker.next_record()?.is_some() {
            records += 1;
        }
        Ok(records)
    }
}

/// Reads both up to the first record that differs, and then the rest for records that belong to the header.
pub(super) fn compare(a: &mut Recording, b: &mut Recording) -> Result<Compared> {
    let (form_a, form_b) = (a.form, b.form);
    let same_order = a.endian == b.endian;
    scan_two(a, b, |batches_a, batches_b| {
        let side = |batches, form| Records { batches, form, batch: None, at: 0, aside: Aside::default() };
        let (mut a, mut b) = (side(batches_a, form_a), side(batches_b, form_b));
        let mut records = 0;
        let first = loop {
            if !(a.seek()? & b.seek()?) {
                let end = FirstRecord::of(records, &a, &b)?;
                break (end.a.is_some() || end.b.is_some()).then_some(end);
            }
            // Equal bytes are equal records, and end at a record boundary in both.
            let run = a.rest().len().min(b.rest().len());
            if same_order && a.is_plain() && b.is_plain() && a.rest()[..run] == b.rest()[..run] {
                records += a.count(run)?;
                a.at += run;
                b.at += run;
                continue;
            }
            // A run that differs is read record by record up to the difference.
            let until = if same_order && a.is_plain() && b.is_plain() { a.at + run } else { a.at + 1 };
            let mut found = false;
            while a.at < until && !found {
                let (Some((one, layouts)), Some((other, other_layouts))) = (a.record()?, b.record()?) else {
                    break;
                };
                if same_record(&one, &other, layouts, other_layouts) {
                    let sizes = (one.whole_size() as usize, other.whole_size() as usize);
                    a.at += sizes.0;
                    b.at += sizes.1;
                    records += 1;
                } else {
                    found = true;
                }
            }
            if found {
                break Some(FirstRecord::of(records, &a, &b)?);
            }
        };
        // Records that belong to the header may follow.
        for side in [&mut a, &mut b] {
            while first.is_some() && side.seek()? {
                let end = side.batch.as_ref().map_or(0, |batch| batch.bytes.len());
                if side.is_plain() {
                    side.at = end;
                } else if let Some((record, _)) = side.record()? {
                    side.at += record.whole_size() as usize;
                }
            }
        }
        Ok(Compared { records, first, sides: [a.aside, b.aside] })
    })
}

/// True if the bytes are equal; for different byte orders, if the fields are.
fn same_record(one: &Record<'_>, other: &Record<'_>, layouts: &Layouts, other_layouts: &Layouts) -> bool {
    if one.endian() == other.endian() {
        return one.bytes() == other.bytes() && one.payload() == other.payload();
    }
    (one.kind(), one.misc(), one.payload()) == (other.kind(), other.misc(), other.payload())
        && decode(one, layouts) == decode(other, other_layouts)
}

/// The first record that differs.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct FirstRecord {
    /// Equal records before it
    pub number: u64,
    /// null: the end of the recording
    pub a: Option<RecordPlace>,
    /// null: the end of the recording
    pub b: Option<RecordPlace>,
    /// Fields that differ, if the kind is the same
    pub fields: Vec<Difference>,
}

/// A record and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordPlace {
    /// Its kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Its size with payload
    pub bytes: u64,
    /// Its place.
    #[serde(flatten)]
    pub place: Place,
}

impl FirstRecord {
    fn of(number: u64, a: &Records<'_>, b: &Records<'_>) -> Result<FirstRecord> {
        let place = |record: &Record<'_>| RecordPlace {
            kind: Kind(record.kind()),
            bytes: record.whole_size(),
            place: Place(record.origin()),
        };
        let at_hand = |side: &Records<'_>| side.at < side.batch.as_ref().map_or(0, |batch| batch.bytes.len());
        let one = if at_hand(a) { a.record()? } else { None };
        let other = if at_hand(b) { b.record()? } else { None };
        let mut fields = Vec::new();
        if let (Some((one, layouts)), Some((other, other_layouts))) = (&one, &other)
            && one.kind() == other.kind()
        {
            let (fields_a, fields_b) = (record_fields(one, layouts), record_fields(other, other_layouts));
            fields = differences("", &fields_a, &fields_b);
            let (raw_a, raw_b) = (one.bytes(), other.bytes());
            if fields.is_empty() && raw_a != raw_b {
                fields.push(Difference::between("", "bytes", &Value::Bytes(raw_a), &Value::Bytes(raw_b)));
            } else if fields.is_empty() {
                fields.push(Difference::between(
                    "",
                    "payload",
                    &Value::Bytes(one.payload()),
                    &Value::Bytes(other.payload()),
                ));
            }
        }
        let (a, b) = (one.map(|(record, _)| place(&record)), other.map(|(record, _)| place(&record)));
        Ok(FirstRecord { number, a, b, fields })
    }
}

fn record_fields<'a>(record: &Record<'a>, layouts: &Layouts) -> ValueFields<'a> {
    let misc = misc_names(record.kind(), record.misc());
    let mut fields: ValueFields<'a> = vec![("misc", Value::Name(misc))];
    fields.extend(with_odd(decode(record, layouts)));
    fields
}
