//! Batches of samples that a thread of their own makes.

use std::iter::once;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use perfx_format::read::sort::PreparedBatch;
use perfx_pipeline::{Context as _, Error, Result};

use crate::combine::Batches;

/// Hands out a batch; an error if no more are needed.
pub(crate) type HandOut<'h> = dyn FnMut(PreparedBatch) -> Result<()> + 'h;

/// The batches that `make` hands out, on a thread that ends early if they are dropped. If it panics, so does the caller
/// that wants the next batch: they never seem to be complete.
pub(super) fn made_by(make: impl FnOnce(&mut HandOut<'_>) -> Result<()> + Send + 'static) -> Batches {
    let (sender, receiver) = sync_channel(2);
    let spawned = thread::Builder::new().spawn(move || {
        let mut hand_out =
            |batch| sender.send(Ok(batch)).map_err(|_| Error::new("no more samples are needed"));
        if let Err(error) = make(&mut hand_out) {
            // The receiver is gone if it needs no more batches.
            drop(sender.send(Err(error)));
        }
    });
    let mut thread = match spawned.context("can't start a thread") {
        Ok(thread) => Some(thread),
        Err(error) => return Box::new(once(Err(error))),
    };
    Box::new(std::iter::from_fn(move || {
        let batch = receiver.recv().ok();
        if batch.is_none()
            && let Some(Err(panic)) = thread.take().map(JoinHandle::join)
        {
            resume_unwind(panic);
        }
        batch
    }))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_of_the_thread_is_not_taken_for_the_end() {
        let mut batches = made_by(|_| panic!("a fault of the program"));
        assert!(catch_unwind(AssertUnwindSafe(|| batches.next().is_some())).is_err());
        let mut batches = made_by(|_| Err(Error::new("cannot be read")));
        assert_eq!(batches.next().unwrap().unwrap_err().to_string(), "cannot be read");
        assert!(batches.next().is_none());
    }
}
