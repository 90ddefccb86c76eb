//! Runs work on many threads and returns the results in the order of the items, with a bounded number of
//! items in memory.

use std::io;
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Context as _, Error, Result};

/// For every item calls `work` on one of the `workers` (one thread each), then `done` on the calling thread,
/// in the order of the items. With a single worker and `alone`, everything runs on the calling thread.
///
/// # Errors
///
/// The first error of `done`, or a thread cannot be started.
pub fn ordered<T: Send, R: Send, W: Send, E: From<Error>>(
    items: impl Iterator<Item = T> + Send,
    workers: &mut [W],
    alone: bool,
    work: impl Fn(&mut W, T) -> R + Sync,
    mut done: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    if alone {
        let Some(worker) = workers.first_mut() else { return Ok(()) };
        for item in items {
            done(work(worker, item))?;
        }
        return Ok(());
    }
    mapped(items, workers, work, |mut results| results.try_for_each(&mut done))
}

/// Calls `then`, on the calling thread, with an iterator over the results of `work`, which runs on the
/// `workers` (one thread each); the results are in the order of the items. Uses fewer threads if not all can
/// be started.
pub(crate) fn mapped<'a, T: Send, R: Send + 'a, W: Send, O, E: From<Error>>(
    items: impl Iterator<Item = T> + Send,
    workers: &mut [W],
    work: impl Fn(&mut W, T) -> R + Sync,
    then: impl FnOnce(Box<dyn Iterator<Item = R> + Send + 'a>) -> Result<O, E>,
) -> Result<O, E> {
    // A job carries the sender of a channel for its single result. The calling thread gets the receivers in
    // the order of the items, so it waits for the oldest result, whichever worker produces it. The bounds are
    // the back-pressure.
    let (job_in, job_out) = bounded::<(T, Sender<R>)>(workers.len());
    let (order_in, order_out) = bounded::<Receiver<R>>(workers.len());
    thread::scope(|scope| {
        started(thread::Builder::new().spawn_scoped(scope, move || {
            for item in items {
                let (result_in, result_out) = bounded(1);
                // Either end is closed when no more results are needed.
                if order_in.send(result_out).is_err() || job_in.send((item, result_in)).is_err() {
                    break;
                }
            }
        }))?;
        for (number, worker) in workers.iter_mut().enumerate() {
            let jobs = job_out.clone();
            let work = &work;
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                for (item, result) in jobs {
                    // After `then` has returned, no code receives the result.
                    let _ = result.send(work(worker, item));
                }
            });
            match started(spawned) {
                Err(error) if number == 0 => return Err(error.into()),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop(job_out);
        // A worker that panics drops its result's sender; the scope propagates the panic.
        then(Box::new(order_out.into_iter().flatten()))
    })
}

/// Returns the thread, or an error where `spawn` of std would panic.
pub(crate) fn started<T>(spawned: io::Result<T>) -> Result<T> {
    spawned.context("can't start a thread; -@ 1 needs fewer")
}

/// Returns the same items; with several threads, one thread produces the next item while the current one is
/// in use.
///
/// # Errors
///
/// The thread cannot be started.
pub fn ahead<T: Send + 'static>(
    items: impl Iterator<Item = T> + Send + 'static,
    threads: usize,
) -> Result<Box<dyn Iterator<Item = T> + Send>> {
    if threads <= 1 {
        return Ok(Box::new(items));
    }
    // A rendezvous channel: at most two items exist at a time, not three.
    let (sender, receiver) = bounded(0);
    let mut thread = Some(started(thread::Builder::new().spawn(move || {
        for item in items {
            // No more items are needed.
            if sender.send(item).is_err() {
                break;
            }
        }
    }))?);
    Ok(Box::new(std::iter::from_fn(move || {
        let item = receiver.recv().ok();
        if item.is_none()
            && let Some(Err(panic)) = thread.take().map(JoinHandle::join)
        {
            resume_unwind(panic);
        }
        item
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        for threads in [1, 4] {
            let mut seen = Vec::new();
            let work = |_: &mut (), n: u64| {
                thread::sleep(std::time::Duration::from_micros(n * 7 % 50));
                n * 2
            };
            let mut workers = vec![(); threads];
            ordered(0..200, &mut workers, threads == 1, work, |n| {
                seen.push(n);
                Ok::<_, Error>(())
            })
            .unwrap();
            assert_eq!(seen, (0..200).map(|n| n * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_it() {
        let mut workers = vec![(); 3];
        let result = ordered(
            0..,
            &mut workers,
            false,
            |_, n: u64| n,
            |n| {
                crate::ensure!(n < 10, "ten");
                Ok(())
            },
        );
        assert_eq!(result.unwrap_err().to_string(), "ten");
    }
}
