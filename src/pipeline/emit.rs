//! The output of a pass, which leads into the passes after it and finally into the plan of the output.
//!
//! An `Emit` passes a record to the next pass together with another `Emit`, so both are defined here.

use std::any::Any;
use std::sync::Arc;

use perfx_format::read::Batch;
use perfx_format::{Endian, Kinds, Layouts, Origin, Origins, Record, Walker};

use crate::each_batch::{AnyPrescan, Work};
use crate::error::{Context as _, Result};
use crate::needs::Interest;
use crate::plan::Planner;
use crate::session::{Place, Session};

/// The output of a pass, which leads into the passes after it and finally into the plan.
pub struct Emit<'e> {
    rest: &'e mut [Rewriting],
    planner: &'e mut Planner,
    /// At this point of the chain.
    layouts: &'e Layouts,
    of_input: &'e Layouts,
}

impl<'e> Emit<'e> {
    pub(crate) fn new(rest: &'e mut [Rewriting], planner: &'e mut Planner, layouts: &'e Layouts) -> Emit<'e> {
        Emit { rest, planner, layouts, of_input: layouts }
    }

    /// Byte order of the recording.
    pub fn endian(&self) -> Endian {
        self.planner.endian()
    }

    /// The layouts, by which records find their events.
    pub fn layouts(&self) -> &'e Layouts {
        self.layouts
    }

    /// The place of a record in the input.
    pub fn place(&self, record: &Record<'_>) -> Option<Place> {
        Place::of_record(record)
    }

    /// Passes a record on unchanged; no bytes are moved.
    ///
    /// # Errors
    ///
    /// A later pass fails, or the output cannot hold the record.
    pub fn keep(&mut self, record: Record<'_>) -> Result<()> {
        let Some(next) = self.rest.iter().position(|stage| stage.wants(&record)) else {
            return self.planner.keep(record);
        };
        let Some((stage, rest)) = self.rest[next..].split_first_mut() else { return Ok(()) };
        let changed = stage.layouts.clone();
        let layouts = changed.as_deref().unwrap_or(self.of_input);
        let mut out = Emit { rest, planner: self.planner, layouts, of_input: self.of_input };
        let result = stage.rewrite.record(record, &mut out);
        result.with_context(|| format!("pass {}, {} at {}", stage.name, record.kind(), record.origin()))
    }

    /// Passes a new record on: whole bytes with a header whose size is their length, at most 65,528 and a
    /// multiple of 8 (any size for COMPRESSED). The pass must split larger data.
    ///
    /// # Errors
    ///
    /// As for [`Emit::keep`], and if the bytes are not one whole record.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let endian = self.planner.endian();
        self.keep(Record::new(bytes, &[], Origin::Synthetic, endian)?)
    }

    /// Passes several new records on, one after the other, each as for [`Emit::put`].
    ///
    /// # Errors
    ///
    /// As for [`Emit::put`].
    pub fn put_all(&mut self, bytes: &[u8]) -> Result<()> {
        if self.rest.is_empty() && self.planner.takes_any() {
            self.planner.place(bytes);
            return Ok(());
        }
        let origins = Origins::default();
        let mut walker = Walker::new(bytes, &origins, self.planner.endian());
        while let Some(record) = walker.next_record()? {
            self.put(record.bytes())?;
        }
        Ok(())
    }

    /// Replaces this record by another of any size, which keeps the old one's place for later passes.
    ///
    /// # Errors
    ///
    /// As for [`Emit::put`].
    pub fn replace(&mut self, record: &Record<'_>, bytes: &[u8]) -> Result<()> {
        self.keep(Record::new(bytes, &[], record.origin(), record.endian())?)
    }

    /// Replaces this record by another, or keeps it if there is none.
    ///
    /// # Errors
    ///
    /// As for [`Emit::put`].
    pub fn replace_if(&mut self, record: Record<'_>, bytes: Option<Vec<u8>>) -> Result<()> {
        match bytes {
            Some(bytes) => self.replace(&record, &bytes),
            None => self.keep(record),
        }
    }

    /// Passes on an edited copy of the same size.
    ///
    /// # Errors
    ///
    /// As for [`Emit::put`].
    pub fn patch(&mut self, record: Record<'_>, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = record.bytes().to_vec();
        edit(&mut bytes);
        self.keep(Record::new(&bytes, record.payload(), record.origin(), record.endian())?)
    }

    /// Drops a record and counts it at `Level::Info`; also report `Level::Loss` if no user requested it.
    pub fn drop_record(&mut self, record: Record<'_>) {
        self.planner.drop_record(record);
    }
}

pub(crate) trait AnyRewrite: Any + Send {
    fn begin_batch(&mut self, batch: &Batch) -> Interest;
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()>;
    fn end_batch(&mut self, out: &mut Emit<'_>) -> Result<()>;
    fn drain(&mut self, out: &mut Emit<'_>) -> Result<bool>;
    fn finish(&mut self, session: &mut Session, out: &mut Emit<'_>) -> Result<()>;
    fn fork(&self) -> Option<Box<dyn AnyRewrite>>;
    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()>;
    fn prescan(&self) -> Option<Box<dyn AnyPrescan>>;
    fn absorb_prescan(&mut self, prescan: Box<dyn Any>) -> Result<Vec<Place>>;
}

pub(crate) struct Rewriting {
    pub(crate) name: &'static str,
    pub(crate) rewrite: Box<dyn AnyRewrite>,
    pub(crate) kinds: Kinds,
    /// The places at which it needs a record of any kind, sorted.
    pub(crate) places: Arc<[Place]>,
    pub(crate) found: Vec<Place>,
    /// The layouts of the records that reach it, if passes before it changed the events.
    pub(crate) layouts: Option<Arc<Layouts>>,
}

impl Rewriting {
    pub(crate) fn wants(&self, record: &Record<'_>) -> bool {
        let at = |places: &[Place]| {
            !places.is_empty()
                && Place::of_record(record).is_some_and(|place| places.binary_search(&place).is_ok())
        };
        self.kinds.contains(record.kind()) || at(&self.places) || at(&self.found)
    }
}

impl Work for Rewriting {
    fn fork(&self) -> Option<Rewriting> {
        let Rewriting { name, kinds, .. } = *self;
        let (places, found, layouts) = (self.places.clone(), self.found.clone(), self.layouts.clone());
        Some(Rewriting { name, rewrite: self.rewrite.fork()?, kinds, places, found, layouts })
    }

    fn absorb(&mut self, worker: Rewriting) -> Result<()> {
        self.rewrite.absorb(worker.rewrite)
    }

    fn prescan(&self) -> Option<Box<dyn AnyPrescan>> {
        self.rewrite.prescan()
    }

    fn absorb_prescan(&mut self, prescan: Box<dyn AnyPrescan>) -> Result<()> {
        self.found = self.rewrite.absorb_prescan(prescan)?;
        self.found.sort_unstable();
        Ok(())
    }
}
