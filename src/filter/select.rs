//! Selects samples for programs that read a recording without rewriting it, by the same rules as `filter`.

use std::ops::Range;
use std::sync::Arc;

use perfx_format::read::{Batch, Recording};
use perfx_format::{Kinds, Record, RecordType};
use perfx_model::address_space::Changes;
use perfx_pipeline::{Error, Level, Place, Report, Result, count, counted, scan};
use perfx_samples::{IsSelected, Select};

use crate::aux::Kept;
use crate::choice::FilterOptions;
use crate::chooser::Chooser;
use crate::chosen::ChosenSamples;
use crate::cut::{FilterPlan, with_part};
use crate::find_functions;
use crate::gathered::Gathered;
use crate::kept_kinds::reported;

/// The samples of a recording that a filter keeps.
pub struct SelectedSamples {
    chooser: Arc<Chooser>,
}

/// The records of a recording that a filter keeps: the selected samples, and what readers need for them.
pub struct KeptRecords {
    plan: FilterPlan,
}

impl FilterOptions {
    /// The times that are selected in a recording, ascending half-open ranges in ns; `None` if all are.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or it has no times.
    pub fn times(
        &self,
        recording: &mut Recording,
        threads: usize,
        report: &mut Report,
    ) -> Result<Option<Vec<Range<u64>>>> {
        if self.windows.is_empty() {
            return Ok(None);
        }
        let windows = FilterOptions { windows: self.windows.clone(), ..FilterOptions::default() };
        let selected = SelectedSamples::survey(recording, &Arc::new(windows), threads, report)?;
        let intervals = selected.chooser.intervals.iter().flatten();
        Ok(Some(intervals.map(|interval| interval.start..interval.stop).collect()))
    }
}

impl SelectedSamples {
    /// Surveys the recording if the options choose anything.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or its samples lack a field to select by.
    pub fn if_any(
        recording: &mut Recording,
        options: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Option<SelectedSamples>> {
        match options.is_empty() {
            true => Ok(None),
            false => SelectedSamples::survey(recording, options, threads, report).map(Some),
        }
    }

    /// Reads the recording once, to match the options with it.
    fn survey(
        recording: &mut Recording,
        options: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<SelectedSamples> {
        let wanted = Gathered::kinds(options).without(RecordType::SAMPLE);
        let read = |batch: &Batch| -> Result<Gathered> {
            let mut part = Gathered { changes: None, ..Gathered::new(options) };
            part.count_samples(batch);
            batch.each(wanted, |record| {
                part.look_at(record, &batch.layouts, options);
                Ok::<(), Error>(())
            })?;
            Ok(part)
        };
        let mut all = Gathered::new(options);
        let mut join = |batch: &Batch, part: Gathered| -> Result<()> {
            all.join(part);
            let mappings = if all.changes.is_some() { Changes::kinds() } else { Kinds::NONE };
            batch.each(mappings, |record| {
                all.learn_mapping(record, &batch.layouts);
                Ok(())
            })
        };
        recording.head().iter().try_for_each(|batch| join(batch, read(batch)?))?;
        scan(recording, threads, true, read, join)?;
        let events = recording.all_events();
        let known = (&events[..], &recording.features, recording.endian);
        let chooser = Chooser::new(all, options, known).map_err(|error| error.in_file(&recording.name))?;
        if let Some(doubt) = &chooser.doubt {
            report.say(Level::Warning, doubt.clone());
        }
        if options.chooses_functions() {
            find_functions::survey(recording, &chooser, threads, report)?;
        }
        chooser.hints.taken().iter().for_each(|line| report.say(Level::Info, line));
        let exclusions = chooser.all_hints().flat_map(|hints| hints.exclusions(&recording.name));
        exclusions.for_each(|hint| report.say(Level::Warning, hint));
        Ok(SelectedSamples { chooser: Arc::new(chooser) })
    }

    /// Leaves batches without selected samples out of later readings, unless they have kinds of `others`.
    pub fn narrow(&self, recording: &mut Recording, others: Kinds) {
        recording.retain_batches(|batch| batch.kinds.intersects(others) || self.chooser.may_choose_of(batch));
    }

    /// Reads the selected samples, to learn which other records `filter` keeps.
    ///
    /// # Errors
    ///
    /// The recording cannot be read.
    pub fn with_records(self, recording: &mut Recording, threads: usize) -> Result<KeptRecords> {
        let chooser = self.chooser;
        let read = |batch: &Batch| -> Result<ChosenSamples> {
            let mut chosen = ChosenSamples::default();
            chosen.turn_to(Place::of_batch(batch));
            if chooser.may_choose_of(batch) {
                let (mut walker, mut lookups) = (batch.walk(), chooser.lookups());
                while let Some(sample) = walker.next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX)? {
                    chosen.look_at(&sample, &batch.layouts, &chooser, &mut lookups);
                }
            }
            Ok(chosen)
        };
        let mut all = ChosenSamples::default();
        scan(recording, threads, true, read, |_, chosen| {
            all.join(chosen);
            Ok(())
        })?;
        Ok(KeptRecords { plan: FilterPlan::new(chooser, all, None, &recording.events) })
    }

    /// Reports that no sample was selected, and for each option what the recording of this name has instead.
    /// The number of samples is unknown if a trace was decoded (`is_decoded`).
    pub fn say_none(&self, recording: &str, is_decoded: bool, report: &mut Report) {
        self.chooser.say_none(recording, is_decoded, report);
    }
}

impl Chooser {
    fn say_none(&self, recording: &str, is_decoded: bool, report: &mut Report) {
        if self.samples == 0 && !is_decoded {
            report.say(Level::Warning, "the recording has no samples");
            return;
        }
        let line = match is_decoded {
            true => "no sample was selected".to_owned(),
            false => format!("selected {} of {}", count(0), counted(self.samples, "sample", "samples")),
        };
        report.say(Level::Warning, line);
        self.all_hints()
            .flat_map(|hints| hints.lines(recording))
            .for_each(|hint| report.say(Level::Warning, hint));
    }
}

impl KeptRecords {
    /// Calls `see` for each record of the batch that `filter` keeps, as it writes it.
    ///
    /// # Errors
    ///
    /// The batch holds bytes that are not records.
    pub fn each(&self, batch: &Batch, mut see: impl FnMut(&Record<'_>)) -> Result<()> {
        let plan = &self.plan;
        let mut lookups = plan.chooser.lookups();
        let has_chosen = Place::of_batch(batch).is_some_and(|place| plan.chosen.batches.contains_key(&place));
        let wanted = if has_chosen { Kinds::ALL } else { reported(batch) };
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            if record.kind() == RecordType::AUXTRACE {
                match plan.kept_aux(&record) {
                    Kept::All => see(&record),
                    Kept::Nothing => {}
                    Kept::Part(offset, data) => with_part(&record, offset, &data, |part| {
                        see(&part);
                        Ok(())
                    })?,
                }
            } else if plan.keeps(&record, &batch.layouts, &mut lookups) {
                see(&record);
            }
        }
        Ok(())
    }

    /// If no sample is kept: reports that, and for each option what the recording of this name has instead.
    pub fn say_if_none(&self, recording: &str, report: &mut Report) {
        if self.plan.chosen.samples == 0 {
            self.plan.chooser.say_none(recording, false, report);
        }
    }
}

impl Select for SelectedSamples {
    fn on_thread(&self) -> IsSelected<'_> {
        let mut lookups = self.chooser.lookups();
        Box::new(move |sample| self.chooser.choose(sample, &mut lookups).is_some())
    }

    fn passed_over(&self, batch: &Batch) -> Option<u64> {
        let count = || self.chooser.samples_of(batch).map_or(0, |samples| samples.count);
        (!self.chooser.may_choose_of(batch)).then(count)
    }
}
