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
    let work = |batch: &Batch| work(batch).map_err(|e| in_file(e, &batch.name));
    scan_past(recording, threads, open, work, |read| {
        let (batch, result) = read?;
        done(batch, result?)
    })
}

/// The same, but an error of the reader is handed to `done`, which may go on with what can be read in spite of it: what stood before the fault,
/// the other files of a directory, records that are not compressed behind a zstd stream that broke off.
pub fn scan_past<R: Send>(
    recording: &mut Recording,
    threads: usize,
    open: bool,
    work: impl Fn(&Batch) -> R + Sync,
    mut done: impl FnMut(perfx_format::Result<(&Batch, R)>) -> Result<()>,
) -> Result<()> {
    let step = |_: &mut (), batch: perfx_format::Result<Batch>| -> perfx_format::Result<(Batch, R)> {
        let batch = batch?;
        let result = work(&batch);
        Ok((batch, result))
    };
    let finish = |stepped: perfx_format::Result<(Batch, R)>| match stepped {
        Ok((batch, result)) => done(Ok((&batch, result))),
        Err(error) => done(Err(error)),
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
