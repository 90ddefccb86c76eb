//! Sends every batch through the stages of a chain, on as many threads as they allow; results in file order.

use std::any::Any;
use std::panic::resume_unwind;
use std::thread;

use crossbeam_channel::bounded;
use perfx_format::read::{Batch, Recording};

use crate::damage::Damage;
use crate::error::{Context as _, Result};
use crate::ordered::{ordered, started};
use crate::speculate::{self, Open};

pub(crate) trait Work: Sized + Send + 'static {
    /// Creates a worker for one batch; `None` if batches must be processed in order.
    fn fork(&self) -> Option<Self>;

    fn absorb(&mut self, worker: Self) -> Result<()>;

    /// Creates a worker that reads a batch in advance, before any stage has changed it.
    fn prescan(&self) -> Option<Box<dyn AnyPrescan>> {
        None
    }

    /// Absorbs the prescan of the next batch. Called in file order.
    fn absorb_prescan(&mut self, _prescan: Box<dyn AnyPrescan>) -> Result<()> {
        Ok(())
    }
}

pub(crate) trait AnyPrescan: Any + Send {
    fn fork(&self) -> Box<dyn AnyPrescan>;
    fn batch(&mut self, batch: &Batch) -> Result<()>;
}

#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// With 1, only the calling thread works.
    pub(crate) threads: usize,
    /// Replace COMPRESSED records with their contents.
    pub(crate) open: bool,
    /// Data that cannot be decompressed is dropped and reported, or an error.
    pub(crate) damage: Damage,
}

impl Reading {
    fn open(self) -> Open<'static> {
        if self.open { Open::Yes { salvage: self.damage == Damage::Salvage, stored: None } } else { Open::No }
    }
}

/// Calls `work` for every batch, then `done` on the calling thread in file order. A batch that no stage needs
/// (`touched` is false) gets an empty chain.
pub(crate) fn each_batch<W: Work, R: Send + 'static>(
    recording: &mut Recording,
    chain: &mut [W],
    reading: Reading,
    touched: impl Fn(&[W], &Batch) -> bool + Sync,
    work: impl Fn(&mut [W], &Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let work = |chain: &mut [W], batch: Batch| -> Result<(Batch, R)> {
        let result = work(chain, &batch).map_err(|e| e.in_file(&batch.name))?;
        Ok((batch, result))
    };
    if chain.iter().all(|stage| stage.fork().is_some()) {
        return each_in_any_order(recording, chain, reading, touched, work, done);
    }
    let prescans = Prescans::of(chain);
    let lead = |found: FoundBatch| -> Result<(Batch, R)> {
        let batch = found?.absorb(chain)?;
        let chain = if touched(chain, &batch) { &mut chain[..] } else { &mut [] };
        work(chain, batch)
    };
    let done = |worked: Result<(Batch, R)>| {
        let (batch, result) = worked?;
        done(&batch, result)
    };
    each_led(recording, prescans, reading, 1, lead, |worked| worked, done)
}

/// [`each_batch`] for stages that accept the batches in any order.
fn each_in_any_order<W: Work, R: Send + 'static>(
    recording: &mut Recording,
    chain: &mut [W],
    reading: Reading,
    touched: impl Fn(&[W], &Batch) -> bool + Sync,
    work: impl Fn(&mut [W], Batch) -> Result<(Batch, R)> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let fork = |chain: &[W]| -> Vec<W> { chain.iter().filter_map(W::fork).collect() };
    let with_workers = |chain: &[W], batch: Batch| {
        let workers = if touched(chain, &batch) { fork(chain) } else { Vec::new() };
        (batch, workers)
    };
    let work = |(batch, mut workers): (Batch, Vec<W>)| -> Result<_> {
        let (batch, result) = work(&mut workers, batch)?;
        Ok((batch, result, workers))
    };
    let mut absorb = |chain: &mut [W], worked: Result<(Batch, R, Vec<W>)>| {
        let (batch, result, workers) = worked?;
        done(&batch, result)?;
        let absorbed = chain.iter_mut().zip(workers).try_for_each(|(stage, worker)| stage.absorb(worker));
        absorbed.map_err(|e| e.in_file(&batch.name))
    };
    let prescans = Prescans::of(chain);
    // Workers are forked from a copy, so that the chain itself can absorb results meanwhile. A single thread
    // does the same, so that a stage always knows where a batch begins.
    let mut forked = fork(chain);
    if prescans.are_none() {
        let step = |chain: &mut Vec<W>, batch: perfx_format::Result<Batch>| work(with_workers(chain, batch?));
        return speculate::each(
            recording,
            reading.threads,
            reading.open(),
            || fork(&forked),
            step,
            |worked| absorb(chain, worked),
        );
    }
    // The chain itself absorbs the prescans, so a copy absorbs the results.
    let lead = |found: FoundBatch| -> Result<_> {
        let batch = found?.absorb(chain)?;
        Ok(with_workers(chain, batch))
    };
    each_led(
        recording,
        prescans,
        reading,
        reading.threads,
        lead,
        |led| work(led?),
        |worked| absorb(&mut forked, worked),
    )?;
    chain.iter_mut().zip(forked).try_for_each(|(stage, absorbed)| stage.absorb(absorbed))
}

/// The prescans of the stages; `None` for a stage without one.
struct Prescans(Vec<Option<Box<dyn AnyPrescan>>>);

impl Prescans {
    fn of<W: Work>(chain: &[W]) -> Prescans {
        // A later stage that needs the batches in order has none: it depends on the stage before.
        let used = |(at, stage): (usize, &W)| stage.prescan().filter(|_| at == 0 || stage.fork().is_some());
        Prescans(chain.iter().enumerate().map(used).collect())
    }

    fn are_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn fork(&self) -> Prescans {
        Prescans(self.0.iter().map(|prescan| prescan.as_ref().map(|prescan| prescan.fork())).collect())
    }
}

struct PrescannedBatch {
    batch: Batch,
    prescans: Prescans,
}

type FoundBatch = Result<PrescannedBatch>;

impl PrescannedBatch {
    fn new(template: &Prescans, batch: Batch) -> FoundBatch {
        let mut prescans = template.fork();
        let scanned = prescans.0.iter_mut().flatten().try_for_each(|prescan| prescan.batch(&batch));
        scanned.map_err(|e| e.in_file(&batch.name))?;
        Ok(PrescannedBatch { batch, prescans })
    }

    fn absorb<W: Work>(self, chain: &mut [W]) -> Result<Batch> {
        let PrescannedBatch { batch, prescans } = self;
        let prescans = chain.iter_mut().zip(prescans.0);
        let mut absorbed = prescans.filter_map(|(stage, prescan)| Some(stage.absorb_prescan(prescan?)));
        absorbed.try_for_each(|absorbed| absorbed).map_err(|e| e.in_file(&batch.name))?;
        Ok(batch)
    }
}

/// Finds and prescans the batches on any thread, calls `lead` for them in file order, `work` for its results
/// on `workers` threads, and `done` on the calling thread in file order. With one thread, everything runs on
/// the calling thread.
fn each_led<L: Send, R: Send + 'static>(
    recording: &mut Recording,
    prescans: Prescans,
    reading: Reading,
    workers: usize,
    mut lead: impl FnMut(FoundBatch) -> L + Send,
    work: impl Fn(L) -> R + Sync,
    mut done: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let find =
        |template: &mut Prescans, batch: perfx_format::Result<Batch>| PrescannedBatch::new(template, batch?);
    let (threads, open) = (reading.threads, reading.open());
    if threads <= 1 {
        return speculate::each(
            recording,
            threads,
            open,
            || prescans.fork(),
            find,
            |found| done(work(lead(found))),
        );
    }
    thread::scope(|scope| {
        let (sender, receiver) = bounded(0);
        let reader = started(thread::Builder::new().spawn_scoped(scope, move || {
            let hand_on = |found| sender.send(found).ok().context("the receiver has stopped");
            speculate::each(recording, threads, open, || prescans.fork(), find, hand_on)
        }))?;
        let led = receiver.into_iter().map(lead);
        ordered(led, &mut vec![(); workers], false, |(), led| work(led), done)?;
        // Batches also end when the reader fails, for example because its own threads can't start.
        reader.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
