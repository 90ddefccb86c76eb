//! Sends every batch of a recording through the stages of a chain, on as many threads as the stages allow,
//! with results in file order.

use std::any::Any;
use std::{slice, thread};

use crossbeam_channel::bounded;
use perfx_format::read::{Batch, Recording};

use crate::error::{Context as _, Result};
use crate::ordered::{ordered, started};
use crate::speculate::{self, Open};

/// A stage that may have a worker for each batch.
pub(crate) trait Work: Sized + Send {
    /// Creates a worker for one batch; `None` if batches must come in order.
    fn fork(&self) -> Option<Self>;

    /// Takes in a worker's result. Called in file order.
    fn absorb(&mut self, worker: Self) -> Result<()>;

    /// Creates a worker that reads a batch in advance.
    fn prescan(&self) -> Option<Box<dyn AnyPrescan>> {
        None
    }

    /// Takes in the prescan of the next batch.
    fn absorb_prescan(&mut self, _prescan: Box<dyn AnyPrescan>) -> Result<()> {
        Ok(())
    }
}

/// [`Prescan`](crate::Prescan) without its type.
pub(crate) trait AnyPrescan: Any + Send {
    fn fork(&self) -> Box<dyn AnyPrescan>;
    fn batch(&mut self, batch: &Batch) -> Result<()>;
}

/// How the batches are read.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The number of threads; with 1, only the calling thread works.
    pub(crate) threads: usize,
    /// True if COMPRESSED records are replaced with their contents.
    pub(crate) open: bool,
    /// True if data that cannot be decompressed is dropped and reported; otherwise it is an error.
    pub(crate) salvage: bool,
}

impl Reading {
    fn open(self) -> Open<impl FnMut(&Batch) + Send> {
        match self.open {
            true => Open::Yes { salvage: self.salvage, stored: |_: &Batch| {} },
            false => Open::No,
        }
    }
}

/// Calls `work` for every batch, then `done` on the calling thread in file order. A batch that is not
/// `touched` gets an empty chain.
pub(crate) fn each_batch<W: Work, R: Send>(
    recording: &mut Recording,
    chain: &mut Vec<W>,
    reading: Reading,
    touched: impl Fn(&Batch) -> bool + Sync,
    work: impl Fn(&mut [W], &Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    let fork = |chain: &[W]| -> Vec<W> { chain.iter().filter_map(W::fork).collect() };
    let forked = fork(chain);
    if forked.len() < chain.len() {
        return each_in_order(recording, chain, reading, touched, work, done);
    }
    // Workers fork from workers, so that the chain itself can absorb results meanwhile. A single thread does
    // the same, so that a stage always knows where a batch begins.
    let step = |chain: &mut Vec<W>, batch: perfx_format::Result<Batch>| -> Result<_> {
        let batch = batch?;
        let mut workers = if touched(&batch) { fork(chain) } else { Vec::new() };
        let result = work(&mut workers, &batch).map_err(|e| e.in_file(&batch.name))?;
        Ok((batch, result, workers))
    };
    let done = |stepped: Result<(Batch, R, Vec<W>)>| {
        let (batch, result, workers) = stepped?;
        done(&batch, result)?;
        let absorbed = chain.iter_mut().zip(workers).try_for_each(|(stage, worker)| stage.absorb(worker));
        absorbed.map_err(|e| e.in_file(&batch.name))
    };
    speculate::each(recording, reading.threads, reading.open(), || fork(&forked), step, done)
}

/// The same for stages that need the batches in order. Any thread can find a batch and prescan it.
fn each_in_order<W: Work, R: Send>(
    recording: &mut Recording,
    chain: &mut Vec<W>,
    reading: Reading,
    touched: impl Fn(&Batch) -> bool + Sync,
    work: impl Fn(&mut [W], &Batch) -> Result<R> + Sync,
    mut done: impl FnMut(&Batch, R) -> Result<()>,
) -> Result<()> {
    type Prescan = Option<Box<dyn AnyPrescan>>;
    let prescan = chain.first().and_then(W::prescan);
    let find = |template: &mut Prescan, batch: perfx_format::Result<Batch>| -> Result<(Batch, Prescan)> {
        let batch = batch?;
        let mut prescan = template.as_ref().map(|template| template.fork());
        let scanned = prescan.as_mut().map_or(Ok(()), |prescan| prescan.batch(&batch));
        scanned.map_err(|e| e.in_file(&batch.name))?;
        Ok((batch, prescan))
    };
    let step = |chain: &mut Vec<W>, found: Result<(Batch, Prescan)>| -> Result<(Batch, R)> {
        let (batch, prescan) = found?;
        let first = chain.first_mut().zip(prescan);
        let absorbed = first.map_or(Ok(()), |(first, prescan)| first.absorb_prescan(prescan));
        absorbed.map_err(|e| e.in_file(&batch.name))?;
        let chain = if touched(&batch) { &mut chain[..] } else { &mut [] };
        let result = work(chain, &batch).map_err(|e| e.in_file(&batch.name))?;
        Ok((batch, result))
    };
    let mut done = |stepped: Result<(Batch, R)>| {
        let (batch, result) = stepped?;
        done(&batch, result)
    };
    let (threads, open) = (reading.threads, reading.open());
    let template = || prescan.as_ref().map(|prescan| prescan.fork());
    if threads <= 1 {
        return speculate::each(recording, threads, open, template, find, |found| done(step(chain, found)));
    }
    thread::scope(|scope| {
        let (sender, receiver) = bounded(0);
        started(thread::Builder::new().spawn_scoped(scope, move || {
            let hand_on = |found| sender.send(found).ok().context("the receiver has stopped");
            let template = || prescan.as_ref().map(|prescan| prescan.fork());
            let _ = speculate::each(recording, threads, open, template, find, hand_on);
        }))?;
        ordered(receiver.into_iter(), slice::from_mut(chain), false, step, done)
    })
}
