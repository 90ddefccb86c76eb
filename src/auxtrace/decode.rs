//! Decodes the traces of a recording on many threads, part by part in the order of time.

use perfx_pipeline::{Result, ordered};
use perfx_trace::{Blocks, Sink};

/// A part of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The buffer.
    pub buffer: usize,
    /// The number of the trace among all traces. Between two of a buffer, data was lost.
    pub trace: usize,
    /// The number of the part among those of its buffer, from 0 without gaps.
    pub number: u64,
    /// A lower bound for times in this part and later ones, ticks; earlier if a trace goes back in time.
    pub time: u64,
    /// Its bytes.
    pub size: u64,
}

/// The work on the parts.
pub trait Work: Sync {
    /// Takes what is decoded; each thread has one for all its parts.
    type Sink: Sink + Send;
    /// The result of a part.
    type Done: Send;

    /// The sink of a thread.
    fn sink(&self) -> Self::Sink;
    /// Called before a part is decoded.
    fn begin(&self, sink: &mut Self::Sink, part: &Part);
    /// Called when a part has been decoded. Earlier parts have begun, but may not have ended.
    fn end(&self, sink: &mut Self::Sink, blocks: &Blocks, part: &Part) -> Self::Done;
    /// Called when all parts have been decoded; the blocks are dropped.
    fn finish(&self, _sink: &mut Self::Sink, _blocks: &Blocks) {}
    /// Called when a thread has panicked: its part may never end, so no thread may wait for it.
    fn abandon(&self) {}
}

/// Abandons the work when it is dropped by a panic.
struct Panics<'w, W: Work>(&'w W);

impl<W: Work> Drop for Panics<'_, W> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The minimum size of a part, bytes. At a quarter, two threads wait often and take an eighth more CPU time.
pub const UNIT: u64 = 128 << 10;

/// How traces are cut for threads.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// The number of threads.
    pub threads: usize,
    /// Parts have at least this many bytes; with [`u64::MAX`], each trace is one part.
    pub size: u64,
}

pub(crate) struct Decoding<M, E, B> {
    /// Makes a decoder; each thread has its own.
    pub(crate) decoder: M,
    pub(crate) decode: E,
    pub(crate) blocks: B,
}

/// Decodes parts on `threads` threads, and passes the results of `work` to `done` in the parts' order.
/// Returns the threads' sinks, which no longer refer to blocks, or the first error of `done`.
pub(crate) fn decode_parts<U: Send, D: Send, W: Work>(
    parts: impl Iterator<Item = (U, Part)> + Send,
    decoding: &Decoding<
        impl Fn() -> D + Sync,
        impl Fn(&mut D, &U, &mut W::Sink) + Sync,
        impl for<'d> Fn(&'d D) -> &'d Blocks + Sync,
    >,
    threads: usize,
    work: &W,
    mut done: impl FnMut(Part, W::Done) -> Result<()>,
) -> Result<Vec<W::Sink>> {
    let Decoding { decoder: new, decode, blocks } = decoding;
    let threads = threads.max(1);
    let mut workers: Vec<(W::Sink, Option<D>)> = (0..threads).map(|_| (work.sink(), None)).collect();
    let each = |(sink, decoder): &mut (W::Sink, Option<D>), (unit, part): (U, Part)| {
        let panics = Panics(work);
        let decoder = decoder.get_or_insert_with(new);
        work.begin(sink, &part);
        decode(decoder, &unit, sink);
        let made = work.end(sink, blocks(decoder), &part);
        std::mem::forget(panics);
        (part, made)
    };
    ordered(parts, &mut workers, threads == 1, each, |(part, made)| done(part, made))?;
    let end = |(mut sink, decoder): (W::Sink, Option<D>)| {
        if let Some(decoder) = decoder {
            work.finish(&mut sink, blocks(&decoder));
        }
        sink
    };
    Ok(workers.into_iter().map(end).collect())
}
