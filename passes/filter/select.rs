//! Selects samples for programs that read a recording without rewriting it, by the same rules as `filter`.

use std::sync::Arc;

use perfx_format::read::{Batch, Recording};
use perfx_format::{Event, Kinds, Layouts, Record, RecordType};
use perfx_model::address_space::Changes;
use perfx_pipeline::{Level, Report, Result, scan};

use super::choice::FilterOptions;
use super::chooser::{Chooser, Lookups};
use super::gathered::Gathered;

/// The samples of a recording that a filter keeps.
#[derive(Debug)]
pub struct SelectedSamples {
    chooser: Arc<Chooser>,
}

/// Decides for one sample after the other; each thread has its own.
#[derive(Debug)]
pub struct SampleChooser {
    chooser: Arc<Chooser>,
    lookups: Lookups,
}

impl SelectedSamples {
    /// Surveys the recording if the options choose anything.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or its samples lack what they are selected by.
    pub fn if_any(
        recording: &mut Recording,
        late: &[Event],
        options: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Option<SelectedSamples>> {
        match options.is_empty() {
            true => Ok(None),
            false => SelectedSamples::survey(recording, late, options, threads, report).map(Some),
        }
    }

    /// Reads the recording once, to learn what the options mean in it. `late` are the events that pipe data defines
    /// after its head.
    fn survey(
        recording: &mut Recording,
        late: &[Event],
        options: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<SelectedSamples> {
        let wanted = Gathered::kinds(options).without(RecordType::SAMPLE);
        let read = |batch: &Batch| -> Result<Gathered> {
            let mut part = Gathered { changes: None, ..Gathered::new(options) };
            part.count_samples(batch);
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
                part.look_at(&record, &batch.layouts, options);
            }
            Ok(part)
        };
        let mut all = Gathered::new(options);
        let mut join = |batch: &Batch, part: Gathered| -> Result<()> {
            all.join(part);
            if all.changes.is_some() && batch.kinds.intersects(Changes::kinds()) {
                let mut walker = batch.walk();
                while let Some(record) = walker.next_wanted(Changes::kinds(), usize::MAX)? {
                    all.learn_mapping(&record, &batch.layouts);
                }
            }
            Ok(())
        };
        recording.head.iter().try_for_each(|batch| join(batch, read(batch)?))?;
        scan(recording, threads, true, read, join)?;
        let events = [&recording.events[..], late].concat();
        let known = (&events[..], &recording.features, recording.endian);
        let chooser = Chooser::new(all, options, known).map_err(|error| error.in_file(&recording.name))?;
        if let Some(doubt) = &chooser.doubt {
            report.say(Level::Warning, doubt.clone());
        }
        Ok(SelectedSamples { chooser: Arc::new(chooser) })
    }

    /// What decides on one thread.
    pub fn chooser(&self) -> SampleChooser {
        SampleChooser { chooser: self.chooser.clone(), lookups: self.chooser.lookups() }
    }

    /// Leaves batches without a selected sample out of later readings, unless they hold records of the kinds `others`.
    pub fn narrow(&self, recording: &mut Recording, others: Kinds) {
        recording.retain_batches(|batch| batch.kinds.intersects(others) || self.chooser.may_choose_of(batch));
    }

    /// If nothing was selected: reports for each option what the recording of this name has instead.
    pub fn say_hints(&self, recording: &str, report: &mut Report) {
        self.chooser.hints.lines(recording).for_each(|hint| report.say(Level::Warning, hint));
    }
}

impl SampleChooser {
    /// Takes SAMPLE out of `wanted` if no sample of the batch can be selected; returns the number of samples that need
    /// not be read.
    pub fn leave_out(&self, batch: &Batch, wanted: &mut Kinds) -> u64 {
        if self.chooser.may_choose_of(batch) {
            return 0;
        }
        *wanted = wanted.without(RecordType::SAMPLE);
        self.chooser.samples_of(batch).map_or(0, |samples| samples.count)
    }

    /// True if the sample is selected.
    pub fn takes(&mut self, sample: &Record<'_>, layouts: &Layouts) -> bool {
        self.chooser.choose(sample, layouts, &mut self.lookups).is_some()
    }
}
