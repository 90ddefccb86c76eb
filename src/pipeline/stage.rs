//! The next step of a pass, without its type: a survey, or a rewrite that may not have begun.

use std::any::Any;

use perfx_format::read::Batch;
use perfx_format::{Kinds, Layouts, Record};

use crate::bail;
use crate::each_batch::Work;
use crate::emit::AnyRewrite;
use crate::error::Result;
use crate::session::{Begin, Session};

/// The next stage of a pass.
pub struct Stage(pub(crate) Kind);

pub(crate) enum Kind {
    Survey(Box<dyn AnySurvey>),
    Begin(Box<Beginning>),
    Rewrite(Box<dyn AnyRewrite>),
}

pub(crate) type Beginning = dyn FnOnce(&mut Begin<'_>) -> Result<Stage> + Send;

impl Stage {
    /// The survey, or the stage itself if it is not one.
    pub(crate) fn into_survey(self) -> Result<Box<dyn AnySurvey>, Stage> {
        match self.0 {
            Kind::Survey(survey) => Ok(survey),
            _ => Err(self),
        }
    }

    pub(crate) fn into_rewrite(self, begin: &mut Begin<'_>) -> Result<Box<dyn AnyRewrite>> {
        match self.0 {
            Kind::Rewrite(rewrite) => Ok(rewrite),
            Kind::Begin(make) => make(begin)?.into_rewrite(begin),
            Kind::Survey(_) => bail!("internal error: a survey after all surveys are over"),
        }
    }
}

pub(crate) trait AnySurvey: Any + Send {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds;
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()>;
    /// Calls `record` for the records of these kinds.
    fn batch(&mut self, batch: &Batch, kinds: Kinds) -> Result<()>;
    fn end(self: Box<Self>, session: &mut Session) -> Result<Stage>;
    fn fork(&self) -> Option<Box<dyn AnySurvey>>;
    fn absorb(&mut self, worker: Box<dyn Any>) -> Result<()>;
}

pub(crate) struct Surveying {
    pub(crate) survey: Box<dyn AnySurvey>,
    pub(crate) pass: usize,
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
