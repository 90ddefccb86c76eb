//! The current stage of a pass, without its type: this is the only place that erases the types of surveys and
//! rewrites and restores them.

use std::any::Any;
use std::sync::Arc;

use anyhow::{Result, bail};
use perfx_format::read::Batch;
use perfx_format::{Kinds, Layouts, Record};

use crate::emit::Emit;
use crate::pass::{Fork, Interest, Prescan, Prescanned, Rewrite, Survey};
use crate::session::{Begin, Place, Session};

/// The next stage of a pass.
pub struct Stage(pub(crate) Kind);

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Survey(_) => "Stage(survey)",
            Kind::Begin(_) => "Stage(begin)",
            Kind::Rewrite(_) => "Stage(rewrite)",
        })
    }
}

pub(crate) enum Kind {
    Survey(Box<dyn AnySurvey>),
    Begin(Box<Beginning>),
    Rewrite(Box<dyn AnyRewrite>),
}

/// Creates a rewrite.
pub(crate) type Beginning = dyn FnOnce(&mut Begin<'_>) -> Result<Stage> + Send;

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

    /// A rewrite that needs the batches in order; each is prescanned on any thread.
    pub fn rewrite_prescanned<R: Prescanned>(rewrite: R) -> Stage {
        let prescans = Prescans {
            start: |rewrite: &R| Box::new(rewrite.prescan()),
            absorb: |rewrite, prescan| rewrite.absorb_prescan(found_again(prescan)?),
        };
        Stage(Kind::Rewrite(Box::new(Erased { prescans: Some(prescans), ..Erased::new(rewrite) })))
    }

    /// A rewrite that is created when all surveys of all passes are finished and before any record is
    /// written. Passes begin in the order of the chain, so each sees the events and features that earlier
    /// ones have set.
    pub fn begin(make: impl FnOnce(&mut Begin<'_>) -> Result<Stage> + Send + 'static) -> Stage {
        Stage(Kind::Begin(Box::new(make)))
    }

    /// A rewrite that copies every record.
    pub fn copy() -> Stage {
        Stage::rewrite(Copy)
    }

    /// The survey, if this is one; a rewrite that copies takes its place until the survey ends.
    pub(crate) fn take_survey(&mut self) -> Option<Box<dyn AnySurvey>> {
        match std::mem::replace(self, Stage::copy()).0 {
            Kind::Survey(survey) => Some(survey),
            kind => {
                self.0 = kind;
                None
            }
        }
    }

    /// Begins the rewrite.
    pub(crate) fn into_rewrite(self, begin: &mut Begin<'_>) -> Result<Box<dyn AnyRewrite>> {
        match self.0 {
            Kind::Rewrite(rewrite) => Ok(rewrite),
            Kind::Begin(make) => make(begin)?.into_rewrite(begin),
            Kind::Survey(_) => bail!("internal error: a survey after all surveys are over"),
        }
    }
}

struct Copy;

impl Rewrite for Copy {}

impl Fork for Copy {
    fn fork(&self) -> Copy {
        Copy
    }

    fn absorb(&mut self, _later: Copy) -> Result<()> {
        Ok(())
    }
}

/// A survey or rewrite, with the functions for several threads if it supports them.
struct Erased<T> {
    inner: T,
    workers: Option<Workers<T>>,
    prescans: Option<Prescans<T>>,
}

struct Workers<T> {
    fork: fn(&T) -> T,
    absorb: fn(&mut T, T) -> Result<()>,
}

struct Prescans<T> {
    start: fn(&T) -> Box<dyn AnyPrescan>,
    absorb: fn(&mut T, Box<dyn Any>) -> Result<()>,
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

impl<T: 'static> Erased<T> {
    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()> {
        let Erased { inner: worker, .. } = found_again::<Erased<T>>(worker)?;
        self.workers.as_ref().map_or(Ok(()), |workers| (workers.absorb)(&mut self.inner, worker))
    }
}

/// Restores the type of a worker. It is always the type of the stage that forked it; anything else is a bug
/// and must be reported.
fn found_again<T: 'static>(worker: Box<dyn Any>) -> Result<T> {
    match worker.downcast() {
        Ok(worker) => Ok(*worker),
        Err(_) => bail!("internal error: a worker came back to another stage than the one that forked it"),
    }
}

/// [`Survey`] without its type.
pub(crate) trait AnySurvey: Any + Send {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds;
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()>;
    fn end(self: Box<Self>, session: &mut Session) -> Result<Stage>;
    fn fork(&self) -> Option<Box<dyn AnySurvey>>;
    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()>;
}

impl<S: Survey> AnySurvey for Erased<S> {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.inner.begin_batch(batch, declared)
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.inner.record(record, layouts)
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

/// [`Rewrite`] without its type.
pub(crate) trait AnyRewrite: Any + Send {
    fn begin_batch(&mut self, batch: &Batch) -> Interest;
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()>;
    fn end_batch(&mut self, out: &mut Emit<'_>) -> Result<()>;
    fn drain(&mut self, out: &mut Emit<'_>) -> Result<bool>;
    fn finish(&mut self, session: &mut Session, out: &mut Emit<'_>) -> Result<()>;
    fn fork(&self) -> Option<Box<dyn AnyRewrite>>;
    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()>;
    fn prescan(&self) -> Option<Box<dyn AnyPrescan>>;
    fn absorb_prescan(&mut self, prescan: Box<dyn Any>) -> Result<()>;
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

    fn absorb_prescan(&mut self, prescan: Box<dyn Any>) -> Result<()> {
        self.prescans.as_ref().map_or(Ok(()), |prescans| (prescans.absorb)(&mut self.inner, prescan))
    }
}

/// [`Prescan`] without its type.
pub(crate) trait AnyPrescan: Any + Send {
    fn fork(&self) -> Box<dyn AnyPrescan>;
    fn batch(&mut self, batch: &Batch) -> Result<()>;
}

impl<P: Prescan> AnyPrescan for P {
    fn fork(&self) -> Box<dyn AnyPrescan> {
        Box::new(Prescan::fork(self))
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        Prescan::batch(self, batch)
    }
}

/// A stage that may have a worker for each batch.
pub(crate) trait Work: Sized + Send {
    /// Creates a worker for one batch; `None` if batches must come in order.
    fn fork(&self) -> Option<Self>;

    /// Takes in a worker's result. Called in file order.
    fn absorb(&mut self, worker: Self) -> Result<()>;

    /// Creates a worker that reads a batch in advance.
    fn prescan(&self) -> Option<Box<dyn AnyPrescan>> {
        None
    }

    /// Takes in the prescan of the next batch.
    fn absorb_prescan(&mut self, _prescan: Box<dyn AnyPrescan>) -> Result<()> {
        Ok(())
    }
}

/// A pass that is surveying.
pub(crate) struct Surveying {
    pub(crate) survey: Box<dyn AnySurvey>,
    /// Its index in the chain.
    pub(crate) pass: usize,
    /// The kinds that it needs.
    pub(crate) kinds: Kinds,
}

impl Work for Surveying {
    fn fork(&self) -> Option<Surveying> {
        Some(Surveying { survey: self.survey.fork()?, ..*self })
    }

    fn absorb(&mut self, worker: Surveying) -> Result<()> {
        self.survey.absorb(worker.survey)
    }
}

/// A pass that is rewriting.
pub(crate) struct Rewriting {
    pub(crate) name: &'static str,
    pub(crate) rewrite: Box<dyn AnyRewrite>,
    /// The kinds that it needs.
    pub(crate) kinds: Kinds,
    /// The places at which it needs a record of any kind, sorted.
    pub(crate) places: Arc<[Place]>,
    /// The layouts of the records that reach it, if passes before it changed the events.
    pub(crate) layouts: Option<Arc<Layouts>>,
}

impl Rewriting {
    pub(crate) fn wants(&self, record: &Record<'_>) -> bool {
        let at = || Place::of_record(record).is_some_and(|place| self.places.binary_search(&place).is_ok());
        self.kinds.has(record.kind()) || !self.places.is_empty() && at()
    }
}

impl Work for Rewriting {
    fn fork(&self) -> Option<Rewriting> {
        let (places, layouts) = (self.places.clone(), self.layouts.clone());
        Some(Rewriting { name: self.name, rewrite: self.rewrite.fork()?, kinds: self.kinds, places, layouts })
    }

    fn absorb(&mut self, worker: Rewriting) -> Result<()> {
        self.rewrite.absorb(worker.rewrite)
    }

    fn prescan(&self) -> Option<Box<dyn AnyPrescan>> {
        self.rewrite.prescan()
    }

    fn absorb_prescan(&mut self, prescan: Box<dyn AnyPrescan>) -> Result<()> {
        self.rewrite.absorb_prescan(prescan)
    }
}
