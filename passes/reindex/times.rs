//! `reindex-times` makes feature SAMPLE_TIME say the time of the first and of the last sample that is there.

use anyhow::Result;
use perfx_format::features::SampleTime;
use perfx_format::input::Recording;
use perfx_format::{Feature, Kinds, Layouts, Record, RecordType};
use perfx_pipeline::{Needs, Pass, Session, worker_as};

use super::{ADD, tell};
use crate::support::options::{Choice, Options};

/// The pass.
#[derive(Debug, Default)]
pub struct ReindexTimes {
    add: bool,
    /// The least and the greatest time of a sample, ns.
    seen: Option<(u64, u64)>,
}

impl ReindexTimes {
    pub(crate) const ABOUT: &'static str =
        "make feature SAMPLE_TIME say when the first and the last sample are";
    pub(crate) const OPTIONS: &'static [Choice] = &[ADD];

    pub(crate) fn make(options: &Options) -> Result<Box<dyn Pass>> {
        Ok(Box::new(ReindexTimes::new(options.has(ADD.name))))
    }

    /// With `add`, also where there is no such feature, or one of zeros, as perf writes it into pipe data and with `--buildid-all`.
    pub fn new(add: bool) -> ReindexTimes {
        ReindexTimes { add, seen: None }
    }

    fn see(&mut self, (first, last): (u64, u64)) {
        let (least, greatest) = self.seen.unwrap_or((first, last));
        self.seen = Some((least.min(first), greatest.max(last)));
    }
}

impl Pass for ReindexTimes {
    fn name(&self) -> &'static str {
        "reindex-times"
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs { looks: vec![Kinds::of(&[RecordType::SAMPLE])], ..Needs::default() }
    }

    fn survey(&mut self, _look: usize, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        // Like perf, which takes both for a sample without a time.
        if let Some(time) = layouts.time(record).filter(|&time| time != 0 && time != u64::MAX) {
            self.see((time, time));
        }
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        let (first_ns, last_ns) = self.seen.unwrap_or_default();
        let (unknown, is) = (SampleTime::default(), SampleTime { first_ns, last_ns });
        let section = session.feature(Feature::SAMPLE_TIME);
        let old = section.map(|section| SampleTime::read(section, session.endian));
        let wrong = match old {
            // Where samples have no time, perf may say anything.
            Some(Some(old)) if old != unknown => is != unknown && old != is,
            // A section that is cut off.
            Some(None) => true,
            Some(Some(_)) | None => self.add && is != unknown,
        };
        let mut mended = Vec::new();
        if wrong {
            session.set_feature(Feature::SAMPLE_TIME, is.write(session.endian));
            mended.push(format!(
                "set to {first_ns} ns and {last_ns} ns, the times of the first and the last sample"
            ));
        }
        tell(session, "feature SAMPLE_TIME", &mended);
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        Some(Box::new(ReindexTimes::new(self.add)))
    }

    fn join(&mut self, worker: Box<dyn Pass>) -> Result<()> {
        if let Some(ReindexTimes { seen: Some(seen), .. }) = worker_as(worker) {
            self.see(seen);
        }
        Ok(())
    }
}
