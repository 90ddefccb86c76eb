//! Decodes what CoreSight wrote, piece by piece, on many threads: the trace of each trace unit in a piece by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perfx_pipeline::Result;
use perfx_trace::{Image, Mapping, Space, Switch, Trace, coresight};

use crate::coresight::{CoreSight, TraceUnit};
use crate::decode::{Decoding, Part, UNIT, Work, decode_parts};
use crate::image::Code;

impl CoreSight {
    /// The code that ran, for decoding these traces.
    pub fn image<'a>(&'a self, code: &'a Code) -> ByThread<'a> {
        ByThread { code, spaces: self.names_threads().then_some(&self.spaces) }
    }

    /// Decodes the trace of each trace unit in each piece, on `threads` threads, and calls `done` with what `work` makes
    /// of each part, in their order: [`Part::buffer`] is the number of a trace unit in a buffer, [`Part::trace`] that of
    /// its trace in a piece, and there are no times. Also returns how many traces have the id of no trace unit.
    ///
    /// # Errors
    ///
    /// The first error of `done`, or a thread cannot be started.
    pub fn decode<W: Work>(
        &self,
        code: &Code,
        threads: usize,
        work: &W,
        done: impl FnMut(Part, W::Done) -> Result<()>,
    ) -> Result<(Vec<W::Sink>, u64)> {
        let Some(first) = self.units.values().next() else { return Ok((Vec::new(), 0)) };
        let (image, unknown) = (self.image(code), AtomicU64::new(0));
        // One thread decodes a trace as a whole, so that nothing must be read to cut it.
        let size = if threads > 1 { UNIT } else { u64::MAX };
        let decoding = Decoding {
            decoder: || coresight::Decoder::new(&image, &first.config),
            decode: |decoder: &mut coresight::Decoder<_>, (stream, unit): &Traced<'_>, sink: &mut W::Sink| {
                Stream::decode(stream, decoder, unit, sink);
            },
            blocks: coresight::Decoder::blocks,
        };
        let sinks = decode_parts(self.parts(size, &unknown), &decoding, threads, work, done)?;
        Ok((sinks, unknown.into_inner()))
    }

    /// The parts of all traces, each with the trace it belongs to. Pieces are taken apart one after the other.
    fn parts<'a>(
        &'a self,
        size: u64,
        unknown: &'a AtomicU64,
    ) -> impl Iterator<Item = (Traced<'a>, Part)> + Send {
        let streams = self
            .pieces
            .iter()
            .flat_map(|piece| piece.streams().into_iter().map(move |(id, bytes)| (piece, id, bytes)));
        let mut trace = 0;
        // For each trace unit in a buffer: its number, and that of its next part.
        let mut buffers: HashMap<(usize, u8), (usize, u64)> = HashMap::new();
        streams.flat_map(move |(piece, id, bytes)| {
            let mut parts = Vec::new();
            let Some(TraceUnit { config, .. }) = self.units.get(&id) else {
                unknown.fetch_add(1, Ordering::Relaxed);
                return parts;
            };
            let switches = if self.names_threads() { &[] } else { &piece.switches[..] };
            let stream = Arc::new(Stream { bytes, switches, config });
            let next = buffers.len();
            let (buffer, number) = buffers.entry((piece.buffer, id)).or_insert((next, 0));
            for unit in coresight::units(&stream.trace(), config, size) {
                parts.push((
                    (stream.clone(), unit),
                    Part { buffer: *buffer, trace, number: *number, time: 0 },
                ));
                *number += 1;
            }
            trace += 1;
            parts
        })
    }
}

/// A part of a trace.
type Traced<'a> = (Arc<Stream<'a>>, coresight::Unit);

/// The trace of a trace unit in a piece.
#[derive(Debug)]
struct Stream<'a> {
    bytes: Vec<u8>,
    switches: &'a [Switch],
    config: &'a coresight::Config,
}

impl Stream<'_> {
    fn trace(&self) -> Trace<'_> {
        Trace::new(vec![&self.bytes], self.switches.to_vec())
    }

    fn decode(
        &self,
        decoder: &mut coresight::Decoder<impl Image>,
        unit: &coresight::Unit,
        sink: &mut impl perfx_trace::Sink,
    ) {
        decoder.decode(self.config, &self.trace(), unit, sink);
    }
}

/// The code that ran, for traces whose spaces may be the numbers of threads.
#[derive(Clone, Copy, Debug)]
pub struct ByThread<'a> {
    code: &'a Code,
    /// The spaces of these numbers; `None` if spaces are not numbers of threads.
    spaces: Option<&'a HashMap<u32, Space>>,
}

impl Image for ByThread<'_> {
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>> {
        let space = match self.spaces {
            Some(spaces) => space.and_then(|Space(tid)| spaces.get(&tid).copied()),
            None => space,
        };
        self.code.code(space, ip, time)
    }
}
