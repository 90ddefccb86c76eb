//! Yields the batches of a recording in file order; any thread may have found them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::batch::{BATCH_SIZE, Batch, SparseIndex};
use super::cutter::Cutter;
use super::fragment::Fragment;
use super::resync::likely_start;
use super::sample_span::SampleSpan;
use super::stream::Source;
use crate::header::EVENTS_MAX;
use crate::record::header_records::HeaderRecord;
use crate::{Error, Event, FaultCode, Kinds, Layouts, RecordType, Result};

/// The part of a recording that has been read, for a progress display.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    readings: AtomicU64,
}

impl Progress {
    /// Bytes of records read so far, as stored, summed over all passes through the recording.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// How many times the recording will be read; 1 unless [`Progress::expect`] was called.
    pub fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed).max(1)
    }

    /// Announces that the recording will be read at least this many times.
    pub fn expect(&self, readings: u64) {
        self.readings.fetch_max(readings, Ordering::Relaxed);
    }
}

/// The extent of a batch of a mapped stream, without its bytes.
#[derive(Clone, Debug)]
pub struct BatchExtent {
    pub(super) stream: usize,
    /// The start, in bytes from the start of the stream.
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) kinds: Kinds,
    pub(super) records: u64,
    pub(super) sparse_index: Option<SparseIndex>,
    pub(super) fragment: Option<Fragment>,
    pub(super) sound: bool,
    pub(super) samples: Option<Arc<SampleSpan>>,
}

impl BatchExtent {
    fn of(batch: &Batch, stream: usize, start: usize) -> BatchExtent {
        let Batch { kinds, records, fragment, sound, .. } = *batch;
        let (len, sparse_index, samples) =
            (batch.bytes.len(), batch.sparse_index.clone(), batch.samples.clone());
        BatchExtent { stream, start, len, kinds, records, sparse_index, fragment, sound, samples }
    }
}

/// Yields the batches of a recording.
pub struct Batches {
    pub(super) cutters: Vec<Cutter>,
    pub(super) at: usize,
    /// For pipe data: the events so far, and the number of those in the head. More may follow.
    pub(super) pipe: Option<(Vec<Event>, usize)>,
    /// True to ignore unreadable attrs among the records; the code that walks the records reports them.
    pub(super) lenient: bool,
    pub(super) layouts: Arc<Layouts>,
    pub(super) again: Option<usize>,
    pub(super) new_extents: Option<Vec<BatchExtent>>,
    pub(super) extents: Arc<OnceLock<Vec<BatchExtent>>>,
    pub(super) late_events: Arc<OnceLock<Vec<Event>>>,
    pub(super) progress: Arc<Progress>,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batches({} streams)", self.cutters.len())
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let next = match self.again {
            Some(number) => self.known(number),
            None => self.cut(),
        };
        let named = |error: Error, name: Arc<str>| Some(Err(error.file(&name)));
        match next {
            Ok(Some(mut batch)) => {
                self.progress.read.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
                match self.take_late_events(&mut batch) {
                    Ok(()) => Some(Ok(batch)),
                    Err(error) => named(error, batch.name),
                }
            }
            Ok(None) => None,
            Err(error) => {
                let name = self.cutters.get(self.at).map(|cutter| cutter.stream.name.clone());
                self.new_extents = None;
                // No records can be found after the fault, except in the other files of a directory.
                self.at += 1;
                named(error, name.unwrap_or_else(|| "".into()))
            }
        }
    }
}

/// A fixed window of a mapped stream. Its batch starts at the first record that starts inside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    stream: usize,
    from: usize,
    to: usize,
}

/// A window in which any thread can look for a batch by guessing the first record boundary.
pub struct SpeculativeBatch {
    /// The window.
    pub window: Window,
    cutter: Cutter,
}

impl std::fmt::Debug for SpeculativeBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpeculativeBatch({:?})", self.window)
    }
}

impl SpeculativeBatch {
    /// The batch, if the guess is right, which [`Batches::accept`] decides. `None` if no records seem to
    /// begin here, or if they seem damaged, which can only be decided in file order.
    pub fn batch(mut self) -> Option<(BatchExtent, Batch)> {
        let Window { stream, from, to } = self.window;
        let start = likely_start(self.cutter.mapped()?, from, to, self.cutter.endian)?;
        self.cutter.at = start;
        let batch = self.cutter.next_batch().ok()??;
        let whole = batch.fragment.is_none() && self.cutter.at >= to;
        whole.then(|| (BatchExtent::of(&batch, stream, start), batch))
    }
}

impl Batches {
    /// All windows in file order, to look for batches on many threads. `None` if the batches must be read in
    /// order, or their extents are known.
    pub fn speculative_batches(&self) -> Option<impl Iterator<Item = SpeculativeBatch> + Send + use<>> {
        let cutters: Option<Vec<Cutter>> = self.cutters.iter().map(Cutter::of_mapped).collect();
        let cutters = cutters.filter(|cutters| cutters.iter().all(|cutter| !cutter.lenient))?;
        let unknown = self.pipe.is_none() && self.again.is_none();
        let drafts = |(stream, whole): (usize, Cutter)| {
            let size = whole.mapped().map_or(0, |bytes| bytes.len());
            (0..size).step_by(BATCH_SIZE).filter_map(move |from| {
                let window = Window { stream, from, to: size.min(from + BATCH_SIZE) };
                Some(SpeculativeBatch { window, cutter: whole.of_mapped()? })
            })
        };
        unknown.then(|| cutters.into_iter().enumerate().flat_map(drafts))
    }

    /// Accepts a speculative batch as the next one if its extent is right.
    pub fn accept(&mut self, extent: BatchExtent) -> bool {
        if self.place() != Some((extent.stream, extent.start)) {
            return false;
        }
        self.at = extent.stream;
        self.cutters[extent.stream].at += extent.len;
        self.progress.read.fetch_add(extent.len as u64, Ordering::Relaxed);
        if let Some(extents) = &mut self.new_extents {
            extents.push(extent);
        }
        true
    }

    /// True if the next batch begins after this window, or there is none.
    pub fn is_past(&self, window: Window) -> bool {
        self.place().is_none_or(|place| place >= (window.stream, window.to))
    }

    fn place(&self) -> Option<(usize, usize)> {
        let left = |cutter: &&Cutter| cutter.mapped().is_some_and(|bytes| cutter.at < bytes.len());
        let streams = self.cutters.iter().enumerate().skip(self.at);
        streams.filter(|(_, cutter)| left(cutter)).map(|(stream, cutter)| (stream, cutter.at)).next()
    }

    fn cut(&mut self) -> Result<Option<Batch>> {
        while let Some(cutter) = self.cutters.get_mut(self.at) {
            let start = cutter.at;
            if let Some(batch) = cutter.next_batch()? {
                if let Some(extents) = &mut self.new_extents {
                    extents.push(BatchExtent::of(&batch, self.at, start));
                }
                return Ok(Some(batch));
            }
            self.at += 1;
        }
        if let Some(extents) = self.new_extents.take() {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "another reading may have set them first; they are the same"
            )]
            let _ = self.extents.set(extents);
        }
        if let Some((events, of_head)) = &self.pipe {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "another reading may have set them first; they are the same"
            )]
            let _ = self.late_events.set(events[*of_head..].to_vec());
        }
        Ok(None)
    }

    fn known(&mut self, number: usize) -> Result<Option<Batch>> {
        let Some(extent) = self.extents.get().and_then(|extents| extents.get(number)) else {
            return Ok(None);
        };
        self.again = Some(number + 1);
        let Some(cutter) = self.cutters.get(extent.stream) else { return Ok(None) };
        let Source::Mapped { bytes, file, offset } = &cutter.stream.source else { return Ok(None) };
        let at = offset + extent.start as u64;
        Ok(Some(Batch {
            bytes: bytes.slice(extent.start..extent.start + extent.len),
            kinds: extent.kinds,
            records: extent.records,
            sparse_index: extent.sparse_index.clone(),
            samples: extent.samples.clone(),
            stored: file.clone().map(|file| (file, at)),
            fragment: extent.fragment,
            sound: extent.sound,
            layouts: self.layouts.clone(),
            ..cutter.empty_batch(at)
        }))
    }

    /// Takes events from attrs among the records, such as those that perf inject --itrace writes.
    fn take_late_events(&mut self, batch: &mut Batch) -> Result<()> {
        let Some((events, _)) = &mut self.pipe else { return Ok(()) };
        // The records were examined with the events known then.
        batch.sound = false;
        let attrs = Kinds::of(&[RecordType::HEADER_ATTR]);
        if batch.kinds.intersects(attrs) {
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(attrs, usize::MAX)? {
                let read = match HeaderRecord::read(&record) {
                    Err(_) if self.lenient => continue,
                    read => read?,
                };
                if let Some(HeaderRecord::Event(event)) = read {
                    events.push(event);
                    if events.len() > EVENTS_MAX {
                        let what = format!("more than the {EVENTS_MAX} events perf allows");
                        return Err(record.error(what).code(FaultCode::AttrsMany));
                    }
                }
            }
            self.layouts = Arc::new(Layouts::new(events));
            self.cutters.iter_mut().for_each(|cutter| cutter.layouts = self.layouts.clone());
            batch.layouts = self.layouts.clone();
        }
        Ok(())
    }
}
