//! Reads samples on all threads, in one loop for everything that counts or lists them.

use perfx_format::read::{Batch, Form, Recording};
use perfx_format::{Kinds, Layouts, Record, RecordType};
use perfx_pipeline::{Damage, Level, Purpose, Report, Result, scan};
use perfx_resolve::Facts;

use crate::counters::{Before, Counters};
use crate::losses::Losses;
use crate::sample::SampleView;

/// Decides whether a sample is selected.
pub type IsSelected<'s> = Box<dyn FnMut(SampleView<'_>) -> bool + Send + 's>;

/// Selects samples.
pub trait Select: Sync {
    /// Returns the decision function of one thread.
    fn on_thread(&self) -> IsSelected<'_>;

    /// The number of samples, if none in the batch can be selected.
    fn passed_over(&self, batch: &Batch) -> Option<u64>;
}

/// Collects results from the samples of a batch; those of all batches are joined in file order.
pub trait Visit {
    /// The result of a batch.
    type Part: Send + 'static;
    /// The joined results.
    type All: ?Sized;
    /// The kinds of other records to visit.
    const OTHERS: Kinds = Kinds::NONE;

    /// Visits a selected sample of an event. `counters` determines its weight.
    ///
    /// # Errors
    ///
    /// They end the reading.
    fn sample(&mut self, sample: SampleView<'_>, event: usize, counters: &mut Counters<'_>) -> Result<()>;

    /// Visits a record of [`Visit::OTHERS`], before it is visited as a sample.
    ///
    /// # Errors
    ///
    /// They end the reading.
    fn other(&mut self, _record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        Ok(())
    }

    /// The result. `passed_over` samples were not read, because none can be selected.
    ///
    /// # Errors
    ///
    /// They end the reading.
    fn part(self, passed_over: u64) -> Result<Self::Part>;

    /// Joins the result of the next batch. `before` has the counters of earlier batches.
    ///
    /// # Errors
    ///
    /// They end the reading.
    fn join(all: &mut Self::All, part: Self::Part, before: &Before) -> Result<()>;
}

/// Reads the selected samples of a recording, or all without a selection; `new` makes a visitor for each
/// batch. Returns the losses, and the decompressed size of the records after the head.
///
/// # Errors
///
/// The recording cannot be read or decompressed, or the visitor fails.
pub fn visit<V: Visit>(
    recording: &mut Recording,
    (facts, select): (&Facts, Option<&impl Select>),
    threads: usize,
    report: &mut Report,
    new: impl Fn() -> V + Sync,
    all: &mut V::All,
) -> Result<(Losses, u64)> {
    let work = |batch: &Batch| {
        let (mut visitor, mut counters) = (new(), Counters::new(facts));
        // Counters are read in all samples.
        let may_pass = !facts.events.iter().any(|event| event.reads_counters);
        let passed_over = select.filter(|_| may_pass).and_then(|select| select.passed_over(batch));
        let mut is_selected = select.map(Select::on_thread);
        let wanted = V::OTHERS.union(Kinds::LOST).and(RecordType::SAMPLE);
        let wanted = if passed_over.is_some() { wanted.without(RecordType::SAMPLE) } else { wanted };
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            if Kinds::LOST.contains(record.kind()) {
                counters.losses.recording.add(&record, &batch.layouts);
            }
            if V::OTHERS.contains(record.kind()) {
                visitor.other(&record, &batch.layouts)?;
            }
            if record.kind() != RecordType::SAMPLE {
                continue;
            }
            let sample = SampleView::of(&record, &batch.layouts);
            let known = sample.and_then(|sample| Some((sample, sample.event_in(facts)?)));
            let Some((sample, event)) = known else {
                counters.losses.astray += 1;
                continue;
            };
            if is_selected.as_mut().is_none_or(|is_selected| is_selected(sample)) {
                visitor.sample(sample, event, &mut counters)?;
            } else {
                counters.pass_over(sample, event);
            }
        }
        Ok((visitor.part(passed_over.unwrap_or(0))?, counters.end()))
    };
    let (mut before, mut losses) = (Before::default(), Losses::default());
    let bytes = each_batch(recording, threads, report, work, |_, (part, (ends, lost))| {
        V::join(all, part, &before)?;
        before.add(ends);
        losses += lost;
        Ok(())
    })?;
    Ok((losses, bytes))
}

/// Calls `work` for each batch, first those of the head, and `join` with the results in file order. Returns
/// the decompressed size of the records after the head.
///
/// # Errors
///
/// The recording can't be read, or `work` or `join` failed.
pub fn each_batch<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    report: &mut Report,
    work: impl Fn(&Batch) -> Result<R> + Sync,
    mut join: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<u64> {
    report.say_faults(recording, Purpose::UseRecords);
    let pipe = recording.form == Form::Pipe;
    let head = recording.take_head();
    head.iter().try_for_each(|batch| join(batch, work(batch)?))?;
    let mut bytes = 0;
    scan(recording, threads, true, work, |batch, result| {
        if let Some(fragment) = &batch.fragment {
            let error = fragment.to_error().file(&batch.name);
            if !Damage::Tolerate.tolerates(fragment, pipe) {
                return Err(error.into());
            }
            report.say(Level::Loss, error.to_string());
        }
        bytes += batch.bytes.len() as u64;
        join(batch, result)
    })?;
    Ok(bytes)
}
