//! `reindex-times` sets feature SAMPLE_TIME to the times of the first and the last sample in the recording.

use clap::Args;
use perfx_format::features::SampleTime;
use perfx_format::read::{Batch, Recording};
use perfx_format::{Feature, Kinds, Layouts, Record, RecordType, Time};
use perfx_pipeline::{
    Emit, Fork, Needs, OutputForm, Pass, Place, Prescan, Prescanned, Result, Rewrite, Session, Stage, Survey,
};

use super::report_repaired;
use crate::support::options::PassOptions;

/// The pass and its options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ReindexTimes {
    /// Also make what is missing by design: the feature, or its times if they are zeros, as perf writes them
    /// into pipe data and with --buildid-all
    #[arg(long)]
    pub add: bool,
}

impl PassOptions for ReindexTimes {
    const NAME: &'static str = "reindex-times";
    const ABOUT: &'static str = "set feature SAMPLE_TIME to the times of the first and the last sample";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(self))
    }
}

const SAMPLES: Kinds = Kinds::of(&[RecordType::SAMPLE]);

/// Finds whether samples are inside COMPRESSED records.
struct Start {
    add: bool,
}

/// Finds the times of samples, in the rewrite or, if that does not see all, in a second survey.
struct Times {
    add: bool,
    /// The smallest and the largest time, ns.
    seen: Option<(u64, u64)>,
}

impl Times {
    fn new(add: bool) -> Times {
        Times { add, seen: None }
    }

    fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if let Some(time) = layouts.time(record).map(Time::ns) {
            self.see((time, time));
        }
    }

    fn see(&mut self, (first, last): (u64, u64)) {
        let (least, greatest) = self.seen.unwrap_or((first, last));
        self.seen = Some((least.min(first), greatest.max(last)));
    }

    fn correct(&self, session: &mut Session) {
        let (first_ns, last_ns) = self.seen.unwrap_or_default();
        let (unknown, is) = (SampleTime::default(), SampleTime { first_ns, last_ns });
        let section = session.feature(Feature::SAMPLE_TIME);
        let old = section.map(|section| SampleTime::read(section, session.endian));
        let wrong = match old {
            // Without timed samples, perf's own placeholder and the times of removed samples are accepted.
            Some(Some(old)) if is == unknown => {
                !old.says_none() && old.times().is_none_or(|(first, last)| first > last)
            }
            Some(Some(old)) if old != unknown => old != is,
            Some(None) => true,
            Some(Some(_)) | None => self.add && is != unknown,
        };
        let mut repaired = Vec::new();
        if wrong {
            session.set_feature(Feature::SAMPLE_TIME, is.write(session.endian));
            repaired.push(match self.seen {
                Some(_) => {
                    format!(
                        "set to {first_ns} ns and {last_ns} ns, the times of the first and the last sample"
                    )
                }
                None => "set to 0, as no sample has a time".to_owned(),
            });
        }
        report_repaired(session, "feature SAMPLE_TIME", &repaired);
    }
}

impl Pass for ReindexTimes {
    fn name(&self) -> &'static str {
        ReindexTimes::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs { surveys: vec![Kinds::NONE, SAMPLES], barrier: false, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(Start { add: self.add })
    }
}

impl Survey for Start {
    fn end(self, session: &mut Session) -> Result<Stage> {
        let times = Times::new(self.add);
        // Pipe data begins with its features, before the samples.
        let in_time =
            session.nothing_hidden() && session.survey_is_final() && session.form != OutputForm::Pipe;
        Ok(if in_time { Stage::rewrite_prescanned(times) } else { Stage::survey(times) })
    }
}

impl Fork for Start {
    fn fork(&self) -> Start {
        Start { add: self.add }
    }

    fn absorb(&mut self, _later: Start) {}
}

impl Survey for Times {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.look_at(record, layouts);
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(move |begin| {
            self.correct(begin);
            Ok(Stage::copy())
        }))
    }
}

impl Rewrite for Times {
    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.correct(session);
        Ok(())
    }
}

impl Prescanned for Times {
    type Prescan = Times;

    fn prescan(&self) -> Times {
        Fork::fork(self)
    }

    fn absorb_prescan(&mut self, prescan: Times) -> Result<Vec<Place>> {
        self.absorb(prescan);
        Ok(Vec::new())
    }
}

impl Prescan for Times {
    fn fork(&self) -> Times {
        Fork::fork(self)
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        batch.each(SAMPLES, |record| {
            self.look_at(record, &batch.layouts);
            Ok(())
        })
    }
}

impl Fork for Times {
    fn fork(&self) -> Times {
        Times::new(self.add)
    }

    fn absorb(&mut self, later: Times) {
        if let Some(seen) = later.seen {
            self.see(seen);
        }
    }
}
