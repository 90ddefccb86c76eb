//! Returns the records of a recording one at a time, each with the layouts that describe it.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use super::batch::Batch;
use crate::sample::Sample;
use crate::{Error, Layout, Layouts, Record, RecordType, Result, Time};

/// The records of a recording in file order, COMPRESSED ones replaced by their contents. Made by
/// [`Recording::records`](super::Recording::records).
///
/// A record borrows the bytes of its batch, which the next one may replace, so this is not an [`Iterator`],
/// but it is read like one. An error names the file, the place and the kind of the record, and reading can
/// continue after it:
///
/// ```
/// use std::collections::BTreeMap;
/// use perfx_format::read::Recording;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recorded/default.p73.data");
/// let mut counts = BTreeMap::new();
/// let mut records = Recording::open(path)?.records();
/// loop {
///     match records.next_record() {
///         Ok(Some(record)) => {
///             if let Some(sample) = record.sample()? {
///                 *counts.entry(sample.pid_tid).or_insert(0) += 1;
///             }
///         }
///         Ok(None) => break,
///         Err(error) => eprintln!("{:?} at {:?}: {}", error.file_name(), error.place(), error.what()),
///     }
/// }
/// assert!(counts.values().sum::<i32>() > 0);
/// # Ok::<(), perfx_format::Error>(())
/// ```
///
/// Where an error ends everything, this is `while let Some(record) = records.next_record()? { … }`.
pub struct Records {
    batches: Box<dyn Iterator<Item = Result<Batch>> + Send>,
    batch: Option<Batch>,
    at: usize,
    errors: VecDeque<Error>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Records(at {} of {:?})", self.at, self.batch.as_ref().map(|batch| batch.bytes.len()))
    }
}

impl Records {
    /// The records of batches that contain no compressed ones.
    pub fn new(batches: impl Iterator<Item = Result<Batch>> + Send + 'static) -> Records {
        Records { batches: Box::new(batches), batch: None, at: 0, errors: VecDeque::new() }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, a record is cut short, or compressed data is damaged. All records before
    /// the fault have been returned. Calling again continues with the records after it, if they can be found.
    pub fn next_record(&mut self) -> Result<Option<ReadRecord<'_>>> {
        while self.batch.as_ref().is_none_or(|batch| self.at == batch.bytes.len()) {
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            let Some(batch) = self.batches.next().transpose()? else { return Ok(None) };
            self.at = 0;
            self.errors.extend(batch.faults());
            self.batch = Some(batch);
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        let mut walker = batch.walk();
        walker.seek(self.at);
        let record = walker.next_record();
        self.at = if record.is_ok() { walker.position() } else { batch.bytes.len() };
        let record = record.map_err(|error| error.file(&batch.name))?;
        Ok(record.map(|record| ReadRecord { record, layouts: &batch.layouts, file: &batch.name }))
    }
}

/// A record with the layouts that describe it. It dereferences to [`Record`].
#[derive(Clone, Copy)]
pub struct ReadRecord<'a> {
    pub(super) record: Record<'a>,
    pub(super) layouts: &'a Layouts,
    pub(super) file: &'a Arc<str>,
}

impl<'a> ReadRecord<'a> {
    /// The layouts of all events.
    pub fn layouts(&self) -> &'a Layouts {
        self.layouts
    }

    /// The name of the file it came from.
    pub fn file(&self) -> &'a Arc<str> {
        self.file
    }

    /// The index of its event in [`Recording::events`](super::Recording::events).
    pub fn event(&self) -> Option<usize> {
        self.record.kind().is_kernel().then(|| self.layouts().event_of(&self.record)).flatten()
    }

    /// The time; `None` if the record has none.
    pub fn time(&self) -> Option<Time> {
        self.layouts().time(&self.record)
    }

    /// The process that the record is about.
    pub fn pid(&self) -> Option<u32> {
        self.layouts().process(&self.record)
    }

    /// The process and thread in which the event happened.
    pub fn pid_tid(&self) -> Option<(u32, u32)> {
        self.layout()?.pid_tid(&self.record)
    }

    /// The CPU on which the event happened.
    pub fn cpu(&self) -> Option<u32> {
        self.layout()?.cpu(&self.record)
    }

    /// All fields of a sample; `None` for other records, and for samples of an unknown event.
    ///
    /// # Errors
    ///
    /// The sample is shorter than its event's attr says, or has registers of an unknown ABI.
    pub fn sample(&self) -> Result<Option<Sample<'a>>> {
        let layout = self.layout().filter(|_| self.record.kind() == RecordType::SAMPLE);
        let sample = layout.map(|layout| Sample::parse(&self.record, layout)).transpose();
        sample.map_err(|error| error.file(self.file))
    }

    /// An error about this record, with its file, place and kind.
    pub fn error(&self, what: impl Into<String>) -> Error {
        self.record.error(what).file(self.file)
    }

    fn layout(&self) -> Option<&'a Layout> {
        self.layouts().layout_of(&self.record)
    }
}

impl<'a> Deref for ReadRecord<'a> {
    type Target = Record<'a>;

    fn deref(&self) -> &Record<'a> {
        &self.record
    }
}

impl std::fmt::Debug for ReadRecord<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.record.fmt(f)
    }
}
