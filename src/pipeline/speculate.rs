//! Distributes the batches of a recording, including the search for them, to many threads: each thread
//! guesses where records begin in its window of the input, and its result is valid if the previous batch ends
//! there.
//!
//! Rejected: one thread that cuts batches for the others. It takes as long, and has all page faults.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use perfx_format::read::{Batch, Batches, Recording, SpeculativeBatch, expand_alone};
use perfx_format::{Endian, Kinds};

use crate::error::{Context as _, Result};
use crate::expanded::{Stored, expanded};
use crate::ordered::ordered;

pub(crate) enum Open<'a> {
    No,
    /// Replaced with their contents.
    Yes {
        /// True if data that cannot be expanded is dropped and reported; otherwise it is an error.
        salvage: bool,
        /// Sees every batch that may hold compressed records as stored, in file order.
        stored: Option<Stored<'a>>,
    },
}

/// Calls `step` for every batch, with one of the `threads` workers made by `worker`, then `done` on the
/// calling thread, in file order. With one thread, everything runs on the calling thread. The batches do not
/// depend on the number of threads. Stops at the first error of `done`.
pub(crate) fn each<W: Send, R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    open: Open<'_>,
    worker: impl Fn() -> W,
    step: impl Fn(&mut W, perfx_format::Result<Batch>) -> R + Sync,
    mut done: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    // The last worker is the calling thread's.
    let workers: Vec<Mutex<W>> = (0..=threads.max(1)).map(|_| Mutex::new(worker())).collect();
    let step = |number: usize, batch: perfx_format::Result<Batch>| -> AnyResult {
        let mut worker = workers[number].lock().unwrap_or_else(PoisonError::into_inner);
        Box::new(step(&mut worker, batch))
    };
    let mut done = |result: AnyResult| {
        let result =
            result.downcast().ok().context("internal error: a step returned a result of the wrong type")?;
        done(*result)
    };
    each_erased(recording, threads.max(1), open, &step, &mut done)
}

/// The result of a step without its type. The threads and the search for batches are compiled once for all
/// types: copies for the ten callers of a package doubled its build time.
type AnyResult = Box<dyn Any + Send>;

type Step<'a> = &'a (dyn Fn(usize, perfx_format::Result<Batch>) -> AnyResult + Sync);

type Done<'a> = &'a mut dyn FnMut(AnyResult) -> Result<()>;

fn each_erased(
    recording: &mut Recording,
    threads: usize,
    open: Open<'_>,
    step: Step<'_>,
    done: Done<'_>,
) -> Result<()> {
    let mut workers: Vec<usize> = (0..threads).collect();
    let alone = threads == 1;
    if let Some((batches, drafts)) = drafts(recording, threads) {
        let (batches, open, endian) = (Some(batches), Some(open), recording.endian);
        let in_order = InOrder { endian, open, batches, worker: threads, step };
        return in_order.check(drafts, &mut workers, done);
    }
    let work = |worker: &mut usize, batch| step(*worker, batch);
    match open {
        Open::No => ordered(recording.batches(), &mut workers, alone, work, done),
        Open::Yes { salvage, stored } => expanded(recording, threads, salvage, stored, |batches| {
            ordered(batches, &mut workers, alone, work, done)
        }),
    }
}

fn drafts(
    recording: &mut Recording,
    threads: usize,
) -> Option<(Batches, impl Iterator<Item = SpeculativeBatch> + Send + use<>)> {
    // An input that is not a file can be read only once.
    let fit = recording.is_rereadable() && !recording.is_compressed() && recording.chain().is_none();
    if threads <= 1 || !fit {
        return None;
    }
    let batches = recording.batches();
    let drafts = batches.speculative_batches()?;
    Some((batches, drafts))
}

/// Consumes batches in order, so that it knows each true start and accepts or rejects the guess.
struct InOrder<'s, 'o> {
    endian: Endian,
    /// `None` after a record has been expanded, because later ones may continue it.
    open: Option<Open<'o>>,
    /// `None` after the end.
    batches: Option<Batches>,
    worker: usize,
    step: Step<'s>,
}

impl InOrder<'_, '_> {
    fn check(
        mut self,
        drafts: impl Iterator<Item = SpeculativeBatch> + Send,
        workers: &mut [usize],
        done: Done<'_>,
    ) -> Result<()> {
        let (opens, step) = (matches!(self.open, Some(Open::Yes { .. })), self.step);
        let draft = |worker: &mut usize, draft: SpeculativeBatch| {
            let window = draft.window;
            let batch = draft.batch().filter(|(_, batch)| !(opens && is_compressed(batch)));
            (window, batch.map(|(cut, batch)| (cut, step(*worker, Ok(batch)))))
        };
        ordered(drafts, workers, false, draft, |(window, drafted)| {
            if let (Some(batches), Some((cut, result))) = (&mut self.batches, drafted)
                && batches.accept(cut)
            {
                return done(result);
            }
            while self.batches.as_ref().is_some_and(|batches| !batches.is_past(window)) {
                self.next(done)?;
            }
            Ok(())
        })?;
        // The extents are stored only at the end.
        while self.batches.is_some() {
            self.next(done)?;
        }
        Ok(())
    }

    /// Reads the next batch, or the whole rest if that must be expanded and the header does not announce it.
    fn next(&mut self, done: Done<'_>) -> Result<()> {
        let Some(next) = self.batches.as_mut().and_then(Iterator::next) else {
            self.batches = None;
            return Ok(());
        };
        let opens = matches!(self.open, Some(Open::Yes { .. })) && next.as_ref().is_ok_and(is_compressed);
        if !opens {
            return done((self.step)(self.worker, next));
        }
        if let Some(Open::Yes { salvage, mut stored }) = self.open.take() {
            let rest = std::iter::once(next).chain(self.batches.take().into_iter().flatten());
            let rest = rest.inspect(|batch| {
                if let (Ok(batch), Some(stored)) = (batch, &mut stored) {
                    stored(batch);
                }
            });
            let mut opened = expand_alone(rest, self.endian, 0, salvage);
            opened.try_for_each(|batch| done((self.step)(self.worker, batch)))?;
        }
        Ok(())
    }
}

fn is_compressed(batch: &Batch) -> bool {
    batch.kinds.intersects(Kinds::COMPRESSED)
}
