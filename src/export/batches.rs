//! Reads all batches of a recording on all threads, and reports its damage as a loss.

use perfx_format::read::{Batch, Form, Recording};
use perfx_pipeline::{Damage, Level, Purpose, Report, Result, scan};

/// Calls `work` for each batch, those of the head first, then `join` in the order of the file. Returns the bytes of
/// the records behind the head, decompressed.
pub(crate) fn each_batch<R: Send + 'static>(
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
