//! Reads every batch of a recording once, on several threads, with results in file order.

use std::thread;

use crossbeam_channel::bounded;
use perfx_format::read::{Batch, Recording};

use crate::error::{Error, Result};
use crate::expanded::expanded;
use crate::ordered::started;
use crate::speculate::{self, Open};

/// Calls `work` for every batch, on `threads` threads (1: the calling thread), each batch with a fresh `R`;
/// then `done` on the calling thread in file order. With `open`, COMPRESSED records are replaced with their
/// contents.
///
/// `done` must check [`Batch::fragment`].
///
/// # Errors
///
/// The first error of `work`, `done` or the reader, with the file's name.
pub fn scan<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    open: bool,
    work: impl Fn(&Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let work = |batch: &Batch| work(batch).map_err(|e| e.in_file(&batch.name));
    scan_past(recording, threads, open, work, |read| {
        let (batch, result) = read?;
        done(batch, result?)
    })
}

/// Like [`scan`], but an error of the reader is passed to `done`, which may continue with the readable rest:
/// records before the fault, the other files of a directory, uncompressed records after an incomplete zstd
/// stream.
///
/// # Errors
///
/// The first error of `done`, or the recording is cut short.
pub fn scan_past<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    open: bool,
    work: impl Fn(&Batch) -> R + Sync,
    done: impl FnMut(perfx_format::Result<(&Batch, R)>) -> Result<()>,
) -> Result<()> {
    let open = if open { Open::Yes { salvage: false, stored: None } } else { Open::No };
    each(recording, threads, open, work, done)
}

/// Like [`scan`] with expanded COMPRESSED records; `stored` sees batches with any as stored, in file order.
///
/// # Errors
///
/// As for [`scan`].
pub fn scan_both<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    mut stored: impl FnMut(&Batch) + Send,
    work: impl Fn(&Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let work = |batch: &Batch| work(batch).map_err(|e| e.in_file(&batch.name));
    each(recording, threads, Open::Yes { salvage: false, stored: Some(&mut stored) }, work, |read| {
        let (batch, result) = read?;
        done(batch, result?)
    })
}

fn each<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    open: Open<'_>,
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
    speculate::each(recording, threads, open, || (), step, finish)?;
    Ok(recording.check_not_cut_short()?)
}

/// Passes the batches of two recordings to `work`, expanded. A thread reads each recording ahead.
///
/// # Errors
///
/// The first error of `work`, or a recording cannot be read at all.
pub fn scan_two<R, E: From<Error>>(
    one: &mut Recording,
    other: &mut Recording,
    work: impl FnOnce(&mut dyn Iterator<Item = ReadBatch>, &mut dyn Iterator<Item = ReadBatch>) -> Result<R, E>,
) -> Result<R, E> {
    expanded(one, 1, false, None, |one| {
        expanded(other, 1, false, None, |other| {
            thread::scope(|scope| {
                let ahead = |batches| {
                    let (sender, receiver) = bounded(2);
                    let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                        for batch in batches {
                            if sender.send(batch).is_err() {
                                break;
                            }
                        }
                    });
                    started(spawned).map(|_| receiver.into_iter())
                };
                work(&mut ahead(one)?, &mut ahead(other)?)
            })
        })
    })
}

type ReadBatch = perfx_format::Result<Batch>;
