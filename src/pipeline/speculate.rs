//! Distributes the batches of a recording, including the search for them, to many threads: each thread
//! guesses where records begin in its window of the input, and its result counts if the previous batch turns
//! out to end there.
//!
//! Rejected: one thread that walks all headers to cut batches for the others. It takes as long as they do,
//! and takes all page faults.

use perfx_format::read::{Batch, Batches, Recording, SpeculativeBatch, expand_alone};
use perfx_format::{Endian, Kinds};

use crate::error::Result;
use crate::expanded::expanded_seen;
use crate::ordered::ordered;

/// How COMPRESSED records are read.
pub(crate) enum Open<S> {
    /// As stored.
    No,
    /// Replaced with their contents.
    Yes {
        /// True if data that cannot be expanded is dropped and reported; otherwise it is an error.
        salvage: bool,
        /// Sees every batch that may hold compressed records as stored, in file order.
        stored: S,
    },
}

/// Calls `step` for every batch, with one of the `threads` workers made by `worker`, then `done` on the
/// calling thread, in file order. With one thread, everything runs on the calling thread. The batches do not
/// depend on the number of threads. Stops at the first error of `done`.
pub(crate) fn each<W: Send, R: Send>(
    recording: &mut Recording,
    threads: usize,
    open: Open<impl FnMut(&Batch) + Send>,
    worker: impl Fn() -> W,
    step: impl Fn(&mut W, perfx_format::Result<Batch>) -> R + Sync,
    mut done: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let mut workers: Vec<W> = (0..threads.max(1)).map(|_| worker()).collect();
    let alone = threads <= 1;
    if let Some((batches, drafts)) = drafts(recording, threads) {
        let (batches, open, endian) = (Some(batches), Some(open), recording.endian);
        let in_order = InOrder { endian, open, batches, worker: worker(), step: &step };
        return in_order.check(drafts, &mut workers, done);
    }
    match open {
        Open::No => ordered(recording.batches(), &mut workers, alone, step, done),
        Open::Yes { salvage, stored } => expanded_seen(recording, threads, salvage, stored, |batches| {
            ordered(batches, &mut workers, alone, step, &mut done)
        }),
    }
}

fn drafts(
    recording: &mut Recording,
    threads: usize,
) -> Option<(Batches, impl Iterator<Item = SpeculativeBatch> + Send + use<>)> {
    // An input that is not a file can be read only once.
    let fit = recording.is_rereadable() && !recording.is_compressed() && recording.chain.is_none();
    if threads <= 1 || !fit {
        return None;
    }
    let batches = recording.batches();
    let drafts = batches.speculative_batches()?;
    Some((batches, drafts))
}

/// Consumes batches in order, so it knows each true start and accepts or rejects the guess.
struct InOrder<'a, W, F, S> {
    endian: Endian,
    /// `None` after a record has been expanded, because later ones may continue it.
    open: Option<Open<S>>,
    /// `None` after the end.
    batches: Option<Batches>,
    worker: W,
    step: &'a F,
}

impl<W, R, F, S> InOrder<'_, W, F, S>
where
    W: Send,
    R: Send,
    F: Fn(&mut W, perfx_format::Result<Batch>) -> R + Sync,
    S: FnMut(&Batch) + Send,
{
    fn check(
        mut self,
        drafts: impl Iterator<Item = SpeculativeBatch> + Send,
        workers: &mut [W],
        mut done: impl FnMut(R) -> Result<()>,
    ) -> Result<()> {
        let (opens, step) = (matches!(self.open, Some(Open::Yes { .. })), self.step);
        let draft = |worker: &mut W, draft: SpeculativeBatch| {
            let window = draft.window;
            let batch = draft.batch().filter(|(_, batch)| !(opens && is_compressed(batch)));
            (window, batch.map(|(cut, batch)| (cut, step(worker, Ok(batch)))))
        };
        ordered(drafts, workers, false, draft, |(window, drafted)| {
            if let (Some(batches), Some((cut, result))) = (&mut self.batches, drafted)
                && batches.accept(cut)
            {
                return done(result);
            }
            while self.batches.as_ref().is_some_and(|batches| !batches.is_past(window)) {
                self.next(&mut done)?;
            }
            Ok(())
        })?;
        // The extents are stored only when the end is reached.
        while self.batches.is_some() {
            self.next(&mut done)?;
        }
        Ok(())
    }

    /// Reads the next batch itself, or the whole rest if that must be expanded although the header does not
    /// announce it.
    fn next(&mut self, done: &mut impl FnMut(R) -> Result<()>) -> Result<()> {
        let Some(next) = self.batches.as_mut().and_then(Iterator::next) else {
            self.batches = None;
            return Ok(());
        };
        let opens = matches!(self.open, Some(Open::Yes { .. })) && next.as_ref().is_ok_and(is_compressed);
        if !opens {
            return done((self.step)(&mut self.worker, next));
        }
        if let Some(Open::Yes { salvage, mut stored }) = self.open.take() {
            let rest = std::iter::once(next).chain(self.batches.take().into_iter().flatten());
            let rest = rest.inspect(|batch| batch.iter().for_each(&mut stored));
            let mut opened = expand_alone(rest, self.endian, 0, salvage);
            opened.try_for_each(|batch| done((self.step)(&mut self.worker, batch)))?;
        }
        Ok(())
    }
}

fn is_compressed(batch: &Batch) -> bool {
    batch.kinds.intersects(Kinds::COMPRESSED)
}
