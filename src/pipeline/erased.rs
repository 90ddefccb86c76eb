//! Creates stages from surveys and rewrites; only here are their types erased and restored.

use std::any::Any;

use perfx_format::read::Batch;
use perfx_format::{Kinds, Layouts, Record};

use crate::bail;
use crate::each_batch::AnyPrescan;
use crate::emit::{AnyRewrite, Emit};
use crate::error::Result;
use crate::needs::Interest;
use crate::pass::{Fork, Prescan, Prescanned, Rewrite, Survey};
use crate::session::{Begin, Place, Session};
use crate::stage::{AnySurvey, Kind, Stage};

impl Stage {
    /// A survey whose batches can be read in any order.
    pub fn survey<S: Survey + Fork>(survey: S) -> Stage {
        Stage(Kind::Survey(Box::new(Erased::new(survey).forking())))
    }

    /// A survey that needs the batches in order.
    pub fn survey_in_order(survey: impl Survey) -> Stage {
        Stage(Kind::Survey(Box::new(Erased::new(survey))))
    }

    /// A rewrite whose batches can be rewritten in any order.
    pub fn rewrite<R: Rewrite + Fork>(rewrite: R) -> Stage {
        Stage(Kind::Rewrite(Box::new(Erased::new(rewrite).forking())))
    }

    /// A rewrite that needs the batches in order.
    pub fn rewrite_in_order(rewrite: impl Rewrite) -> Stage {
        Stage(Kind::Rewrite(Box::new(Erased::new(rewrite))))
    }

    /// A rewrite whose batches can be rewritten in any order, each after the prescans of all batches up to
    /// it. The prescan saves a last survey and its walk, and sees batches as a survey does.
    pub fn rewrite_prescanned<R: Prescanned + Fork>(rewrite: R) -> Stage {
        Stage(Kind::Rewrite(Box::new(Erased::new(rewrite).prescanned().forking())))
    }

    /// A rewrite that needs the batches in order; each is prescanned on any thread, to reduce the work of the
    /// rewrite. Only the first pass of a chain is prescanned, because the others depend on its output.
    pub fn rewrite_prescanned_in_order<R: Prescanned>(rewrite: R) -> Stage {
        Stage(Kind::Rewrite(Box::new(Erased::new(rewrite).prescanned())))
    }

    /// A rewrite created when all surveys are finished and before any record is written. Passes begin in the
    /// order of the chain, so each sees the events and features set by earlier ones.
    pub fn begin(make: impl FnOnce(&mut Begin<'_>) -> Result<Stage> + Send + 'static) -> Stage {
        Stage(Kind::Begin(Box::new(make)))
    }

    /// A rewrite that copies every record.
    pub fn copy() -> Stage {
        Stage::rewrite(Copy)
    }
}

struct Copy;

impl Rewrite for Copy {}

impl Fork for Copy {
    fn fork(&self) -> Copy {
        Copy
    }

    fn absorb(&mut self, _later: Copy) {}
}

/// A survey or rewrite, with functions for several threads if supported.
struct Erased<T> {
    inner: T,
    workers: Option<Workers<T>>,
    prescans: Option<Prescans<T>>,
}

struct Workers<T> {
    fork: fn(&T) -> T,
    absorb: fn(&mut T, T),
}

struct Prescans<T> {
    start: fn(&T) -> Box<dyn AnyPrescan>,
    absorb: fn(&mut T, Box<dyn Any>) -> Result<Vec<Place>>,
}

impl<T> Erased<T> {
    fn new(inner: T) -> Erased<T> {
        Erased { inner, workers: None, prescans: None }
    }

    fn fork(&self) -> Option<Erased<T>> {
        let Workers { fork, absorb } = *self.workers.as_ref()?;
        Some(Erased { inner: fork(&self.inner), workers: Some(Workers { fork, absorb }), prescans: None })
    }
}

impl<T: Fork> Erased<T> {
    fn forking(self) -> Erased<T> {
        Erased { workers: Some(Workers { fork: T::fork, absorb: T::absorb }), ..self }
    }
}

impl<T: Prescanned> Erased<T> {
    fn prescanned(self) -> Erased<T> {
        let prescans = Prescans {
            start: |rewrite: &T| Box::new(rewrite.prescan()),
            absorb: |rewrite, prescan| rewrite.absorb_prescan(found_again(prescan)?),
        };
        Erased { prescans: Some(prescans), ..self }
    }
}

impl<T: 'static> Erased<T> {
    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()> {
        let Erased { inner: worker, .. } = found_again::<Erased<T>>(worker)?;
        if let Some(workers) = &self.workers {
            (workers.absorb)(&mut self.inner, worker);
        }
        Ok(())
    }
}

/// Restores the type of a worker: that of the stage that forked it, unless there is a bug.
fn found_again<T: 'static>(worker: Box<dyn Any>) -> Result<T> {
    match worker.downcast() {
        Ok(worker) => Ok(*worker),
        Err(_) => bail!("internal error: a worker came back to another stage than the one that forked it"),
    }
}

impl<S: Survey> AnySurvey for Erased<S> {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.inner.begin_batch(batch, declared)
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.inner.record(record, layouts)
    }

    fn batch(&mut self, batch: &Batch, kinds: Kinds) -> Result<()> {
        batch.each(kinds, |record| self.inner.record(record, &batch.layouts))
    }

    fn end(self: Box<Self>, session: &mut Session) -> Result<Stage> {
        self.inner.end(session)
    }

    fn fork(&self) -> Option<Box<dyn AnySurvey>> {
        Some(Box::new(Erased::fork(self)?))
    }

    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()> {
        Erased::absorb(self, worker)
    }
}

impl<R: Rewrite> AnyRewrite for Erased<R> {
    fn begin_batch(&mut self, batch: &Batch) -> Interest {
        self.inner.begin_batch(batch)
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        self.inner.record(record, out)
    }

    fn end_batch(&mut self, out: &mut Emit<'_>) -> Result<()> {
        self.inner.end_batch(out)
    }

    fn drain(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        self.inner.drain(out)
    }

    fn finish(&mut self, session: &mut Session, out: &mut Emit<'_>) -> Result<()> {
        self.inner.finish(session, out)
    }

    fn fork(&self) -> Option<Box<dyn AnyRewrite>> {
        Some(Box::new(Erased::fork(self)?))
    }

    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()> {
        Erased::absorb(self, worker)
    }

    fn prescan(&self) -> Option<Box<dyn AnyPrescan>> {
        self.prescans.as_ref().map(|prescans| (prescans.start)(&self.inner))
    }

    fn absorb_prescan(&mut self, prescan: Box<dyn Any>) -> Result<Vec<Place>> {
        self.prescans.as_ref().map_or(Ok(Vec::new()), |prescans| (prescans.absorb)(&mut self.inner, prescan))
    }
}

impl<P: Prescan> AnyPrescan for P {
    fn fork(&self) -> Box<dyn AnyPrescan> {
        Box::new(Prescan::fork(self))
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        Prescan::batch(self, batch)
    }
}
