//! The tracers whose traces are decoded with the code that ran. All dispatch on the tracer is here.

use perfx_format::record::aux::AuxtraceInfo;
use perfx_pipeline::Result;

use crate::clock::Clock;
use crate::coresight::CoreSight;
use crate::decode::{Part, Split, Work};
use crate::image::Code;
use crate::intel_pt::IntelPt;
use crate::needed::{Needed, needed};
use crate::summary::{Summary, sum};

/// The tracer, with all traces.
#[derive(Debug)]
pub enum Tracer {
    /// Intel PT.
    IntelPt(IntelPt),
    /// CoreSight.
    CoreSight(CoreSight),
}

/// The instructions besides branches for which a trace has atoms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atoms {
    /// WFI and WFE.
    pub waits: bool,
}

impl Tracer {
    /// The tracers.
    pub const ALL: [AuxtraceInfo; 2] = [AuxtraceInfo::INTEL_PT, AuxtraceInfo::CORESIGHT];

    /// How the ticks of the traces become times.
    pub fn clock(&self) -> Clock {
        match self {
            Tracer::IntelPt(pt) => pt.clock(),
            Tracer::CoreSight(_) => Clock { conv: None },
        }
    }

    /// `Some` if the trace has an atom for each branch, taken or not.
    pub fn atoms(&self) -> Option<Atoms> {
        match self {
            Tracer::IntelPt(_) => None,
            Tracer::CoreSight(etm) => {
                Some(Atoms { waits: etm.units.values().any(|unit| unit.config.waits()) })
            }
        }
    }

    /// Decodes all traces, and passes the results of `work` to `done`; the parts of a trace come in order.
    /// Returns the threads' sinks, and the number of traces whose id belongs to no trace unit.
    ///
    /// # Errors
    ///
    /// The first error of `done`, or a thread cannot be started.
    pub fn decode<W: Work>(
        &self,
        code: &Code,
        split: Split,
        work: &W,
        done: impl FnMut(Part, W::Done) -> Result<()>,
    ) -> Result<(Vec<W::Sink>, u64)> {
        match self {
            Tracer::IntelPt(pt) => Ok((pt.decode(code, split, work, done)?, 0)),
            Tracer::CoreSight(etm) => etm.decode(code, split, etm.in_file_order(), work, done),
        }
    }

    /// Counts the packets of all traces.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn summary(&self, threads: usize) -> Result<Summary> {
        match self {
            Tracer::IntelPt(pt) => sum(pt.traces(), threads, |(_, trace)| pt.summary(&trace), Summary::add),
            Tracer::CoreSight(etm) => sum(&etm.pieces, threads, |piece| etm.summary(piece), Summary::add),
        }
    }

    /// The code that the traces execute, the most important first. Only packets are read: the targets of
    /// direct jumps and calls are unknown.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn needed(&self, code: &Code, threads: usize) -> Result<Vec<Needed>> {
        match self {
            Tracer::IntelPt(pt) => {
                needed(code, pt.traces(), threads, |(_, trace), add| pt.visits(&trace, add))
            }
            Tracer::CoreSight(etm) => {
                needed(code, &etm.pieces, threads, |piece, add| etm.visits(piece, &etm.image(code), add))
            }
        }
    }
}
