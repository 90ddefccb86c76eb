//! Decodes the traces of a recording on many threads, part by part in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perfx_pipeline::{Result, ordered};
use perfx_trace::{Blocks, Image, Sink, Trace};

use crate::buffer::Buffer;

/// A kind of trace, which can be cut into units that are decoded by themselves.
pub trait Tracer: Sync {
    /// A unit: from one point of synchronization to another.
    type Unit: Send;
    /// What decodes units; each thread has its own.
    type Decoder<I: Image + Send>: Send;

    /// Cuts a trace into units of at least `size` bytes.
    fn units<'a>(&'a self, trace: &'a Trace<'_>, size: u64) -> impl Iterator<Item = Self::Unit> + Send + 'a;
    /// The time in front of a unit, in ticks of the trace.
    fn time(unit: &Self::Unit) -> u64;
    /// A decoder with the code that ran.
    fn decoder<I: Image + Send>(&self, image: I) -> Self::Decoder<I>;
    /// Decodes a unit.
    fn decode<I: Image + Send>(
        decoder: &mut Self::Decoder<I>,
        trace: &Trace<'_>,
        unit: &Self::Unit,
        sink: &mut impl Sink,
    );
    /// The blocks of which the sink knows the numbers.
    fn blocks<I: Image + Send>(decoder: &Self::Decoder<I>) -> &Blocks;
}

/// A part of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The buffer.
    pub buffer: usize,
    /// The trace, of all traces of all buffers: data is lost between two of a buffer.
    pub trace: usize,
    /// The number of the part among those of its buffer, from 0 without gaps.
    pub number: u64,
    /// A time in ticks: nothing in this part, nor in those that come after it, is earlier.
    ///
    /// A trace may go back in time. Then its parts have the time at which it was before.
    pub time: u64,
}

/// What is made of the parts.
pub trait Work: Sync {
    /// Takes what is decoded; each thread has its own for all the parts it gets.
    type Sink: Sink + Send;
    /// What is made of a part.
    type Done: Send;

    /// The sink of a thread.
    fn sink(&self) -> Self::Sink;
    /// A part comes next.
    fn begin(&self, sink: &mut Self::Sink, part: &Part);
    /// The part has been decoded. Parts that come earlier have begun, but may not have ended.
    fn end(&self, sink: &mut Self::Sink, blocks: &Blocks, part: &Part) -> Self::Done;
    /// All parts have been decoded; the blocks are dropped.
    fn finish(&self, _sink: &mut Self::Sink, _blocks: &Blocks) {}
    /// A thread has panicked: the part that it had may never end, and no other thread may wait for it.
    fn abandon(&self) {}
}

/// Abandons the work when it is dropped by a panic.
struct Panics<'w, W: Work>(&'w W);

impl<W: Work> Drop for Panics<'_, W> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Units have at least so many bytes of a trace. With a quarter of that, threads wait for each other so often that two take
/// an eighth more CPU time.
pub const UNIT: u64 = 128 << 10;

/// Decodes all buffers on `threads` threads, in parts of at least `size` bytes or, with [`u64::MAX`], each trace as a whole.
/// Calls `done` with what `work` makes of each part: in the order of the parts' times, those of a buffer in their order.
/// Returns the sinks of the threads, which know no blocks any more.
///
/// # Errors
///
/// The first error of `done`, or a thread cannot be started.
pub fn decode<T: Tracer, W: Work>(
    (tracer, buffers): (&T, &[Buffer]),
    image: &(impl Image + Sync),
    (threads, size): (usize, u64),
    work: &W,
    done: impl FnMut(Part, W::Done) -> Result<()>,
) -> Result<Vec<W::Sink>> {
    let traces: Vec<(usize, Trace<'_>)> = buffers
        .iter()
        .enumerate()
        .flat_map(|(buffer, data)| data.traces().map(move |trace| (buffer, trace)))
        .collect();
    let parts = parts(tracer, &traces, (buffers.len(), size)).map(|(at, unit, part)| ((at, unit), part));
    let decoding = Decoding {
        decoder: || tracer.decoder(image),
        decode: |decoder: &mut T::Decoder<_>, (at, unit): &(usize, T::Unit), sink: &mut W::Sink| {
            T::decode(decoder, &traces[*at].1, unit, sink);
        },
        blocks: T::blocks,
    };
    decode_parts(parts, &decoding, threads, work, done)
}

/// How parts are decoded.
pub(crate) struct Decoding<M, E, B> {
    /// Makes a decoder; each thread has its own.
    pub(crate) decoder: M,
    /// Decodes a part into a sink.
    pub(crate) decode: E,
    /// The blocks of a decoder.
    pub(crate) blocks: B,
}

/// Decodes parts on `threads` threads, as [`decode`] does.
///
/// # Errors
///
/// The first error of `done`, or a thread cannot be started.
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

/// The units of a buffer that have not been handed out.
struct Queue<'a, U> {
    rest: Box<dyn Iterator<Item = (usize, U)> + Send + 'a>,
    next: Option<(usize, U)>,
    /// The number and the time of the next part.
    number: u64,
    time: u64,
}

/// The parts of all traces, in the order of their times. Each trace has the number of its buffer, and those of a buffer
/// follow each other.
fn parts<'a, T: Tracer>(
    tracer: &'a T,
    traces: &'a [(usize, Trace<'a>)],
    (buffers, size): (usize, u64),
) -> impl Iterator<Item = (usize, T::Unit, Part)> + Send + 'a {
    let mut order = BinaryHeap::new();
    let mut queues: Vec<Queue<'a, T::Unit>> = Vec::new();
    let mut end = 0;
    for buffer in 0..buffers {
        let first = end;
        end += traces[first..].partition_point(|(number, _)| *number == buffer);
        let units =
            (first..end).flat_map(move |at| tracer.units(&traces[at].1, size).map(move |unit| (at, unit)));
        let mut queue = Queue { rest: Box::new(units), next: None, number: 0, time: 0 };
        queue.next = queue.rest.next();
        order.extend(queue.advance::<T>(buffer));
        queues.push(queue);
    }
    std::iter::from_fn(move || {
        let Reverse((time, buffer)) = order.pop()?;
        let queue = &mut queues[buffer];
        let (at, unit) = queue.next.take()?;
        let part = Part { buffer, trace: at, number: queue.number, time };
        queue.number += 1;
        queue.next = queue.rest.next();
        order.extend(queue.advance::<T>(buffer));
        Some((at, unit, part))
    })
}

impl<U> Queue<'_, U> {
    /// The turn of the next unit.
    fn advance<T: Tracer<Unit = U>>(&mut self, buffer: usize) -> Option<Reverse<(u64, usize)>> {
        let (_, unit) = self.next.as_ref()?;
        self.time = self.time.max(T::time(unit));
        Some(Reverse((self.time, buffer)))
    }
}
