//! Reads every batch of a recording once, on as many threads as there are, and hands out what was learned in file order; nothing is written.

use anyhow::Result;
use perfx_format::input::{Batch, Recording};

use crate::ordered::ordered;
use crate::run::{expanded, in_file};

/// `work` for every batch, on `threads` threads (1: the calling one), each batch with a fresh `R`; then `done` on the calling thread in file
/// order. With `open`, COMPRESSED records are replaced by what they hold.
///
/// The first error of `work`, `done` or the reader ends it, with the file's name; [`Batch::torn`] is for `done` to judge.
pub fn scan<R: Send>(
    recording: &mut Recording,
    threads: usize,
    open: bool,
    work: impl Fn(&Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let step = |_: &mut (), batch: perfx_format::Result<Batch>| -> Result<(Batch, R)> {
        let batch = batch?;
        let result = work(&batch).map_err(|e| in_file(e, &batch.name))?;
        Ok((batch, result))
    };
    let finish = |stepped: Result<(Batch, R)>| {
        let (batch, result) = stepped?;
        done(&batch, result)
    };
    let mut workers = vec![(); threads.max(1)];
    if open {
        expanded(recording, threads, false, |batches| {
            ordered(batches, &mut workers, threads <= 1, step, finish)
        })
    } else {
        ordered(recording.batches(), &mut workers, threads <= 1, step, finish)
    }
}
