//! Batches of samples made by a thread.

use std::iter::once;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use perfx_pipeline::{Context as _, Error, Result};
use perfx_samples::Rows;

use super::losses::Counts;
use crate::combine::Batches;

/// Hands out a batch; fails if no more are needed.
pub(crate) type HandOut<'h> = dyn FnMut(Rows) -> Result<()> + 'h;

/// The batches that `make` hands out on a thread, which ends early if they are dropped. `counts` gets its
/// result. If it panics, so does the receiver of the batches, which thus never seem complete.
pub(super) fn made_by(
    counts: Arc<Mutex<Counts>>,
    make: impl FnOnce(&mut HandOut<'_>) -> Result<Counts> + Send + 'static,
) -> Batches {
    let (sender, receiver) = sync_channel(2);
    let spawned = thread::Builder::new().spawn(move || {
        let mut hand_out =
            |batch| sender.send(Ok(batch)).map_err(|_| Error::new("no more samples are needed"));
        match make(&mut hand_out) {
            Ok(found) => *counts.lock().unwrap_or_else(PoisonError::into_inner) = found,
            // Fails if the receiver needs no more batches.
            Err(error) => drop(sender.send(Err(error))),
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
        let mut batches = made_by(Arc::default(), |_| panic!("a fault of the program"));
        assert!(catch_unwind(AssertUnwindSafe(|| batches.next().is_some())).is_err());
        let mut batches = made_by(Arc::default(), |_| Err(Error::new("cannot be read")));
        assert_eq!(batches.next().unwrap().unwrap_err().to_string(), "cannot be read");
        assert!(batches.next().is_none());
    }
}
