//! Decodes CoreSight data on many threads: the trace of each trace unit in a piece is decoded separately.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perfx_format::record::time_conv::TimeConv;
use perfx_pipeline::Result;
use perfx_trace::{Image, Mapping, Space, Switches, Trace, Visit, coresight};

use crate::coresight::{CoreSight, Piece, TraceUnit};
use crate::decode::{Decoding, Part, Split, Work, decode_parts};
use crate::functions::Function;
use crate::image::Code;
use crate::summary::Summary;

/// The first timestamp is searched for in the first bytes of a piece.
const FRONT: usize = 4 << 10;

/// An upper bound of the time that a byte of a trace describes, ns.
const LONGEST_BYTE: u64 = 100;

impl CoreSight {
    /// The code that ran, for decoding these traces.
    pub fn image<'a>(&'a self, code: &'a Code) -> ByThread<'a> {
        ByThread { code, spaces: self.names_threads().then_some(&self.spaces) }
    }

    /// A lower bound for the times in a piece, from its first timestamps; `None` without one.
    pub fn begin(&self, piece: &Piece, conv: &TimeConv) -> Option<u64> {
        let traces = piece.front(FRONT);
        let begins = traces.iter().filter_map(|(id, bytes)| {
            let (_, unit) = self.unit(*id)?;
            let trace = Trace::new(vec![bytes], Vec::new());
            let (ticks, offset) = coresight::first_time(&trace, &unit.config)?;
            Some(conv.time(ticks).saturating_sub(offset.saturating_mul(LONGEST_BYTE)))
        });
        begins.min()
    }

    pub(crate) fn in_file_order(&self) -> PieceOrder {
        PieceOrder { pieces: (0..self.pieces.len()).map(|piece| (piece, 0)).collect(), conv: None }
    }

    pub(crate) fn summary(&self, piece: &Piece) -> Summary {
        let mut found = Summary::default();
        self.each_trace(piece, |unit, trace| {
            for packet in coresight::list(trace, &unit.config) {
                *found.packets.entry(packet.kind()).or_default() += 1;
                found.syncs += u64::from(packet.is_sync());
                found.overflows += u64::from(packet.is_overflow());
            }
        });
        found
    }

    /// Calls `add` with the addresses in the packets of a piece, in the spaces of `image`.
    pub(crate) fn visits(&self, piece: &Piece, image: &ByThread<'_>, add: &mut dyn FnMut(Visit)) {
        self.each_trace(piece, |unit, trace| {
            let visits = coresight::visits(trace, &unit.config);
            visits.for_each(|visit| add(Visit { space: image.space(visit.space), ..visit }));
        });
    }

    fn each_trace(&self, piece: &Piece, mut each: impl FnMut(&TraceUnit, &Trace<'_>)) {
        let switches = self.switches(piece);
        for (id, bytes) in piece.streams() {
            if let Some((_, unit)) = self.unit(id) {
                each(unit, &Trace::new(vec![&bytes], switches.clone()));
            }
        }
    }

    /// Decodes the trace of each trace unit in pieces, and passes the results of `work` to `done` in the
    /// order of the pieces. Returns the threads' sinks, and the number of traces whose id belongs to no trace
    /// unit.
    ///
    /// [`Part::trace`] is the number of the piece times the number of units, plus the number of the unit.
    /// [`Part::buffer`] is the same with the number of the buffer; in a thread's, all units count as one.
    ///
    /// # Errors
    ///
    /// The first error of `done`, or a thread cannot be started.
    pub fn decode<W: Work>(
        &self,
        code: &Code,
        Split { threads, size }: Split,
        order: PieceOrder,
        work: &W,
        done: impl FnMut(Part, W::Done) -> Result<()>,
    ) -> Result<(Vec<W::Sink>, u64)> {
        let Some(first) = self.units.values().next() else { return Ok((Vec::new(), 0)) };
        let (image, unknown) = (self.image(code), AtomicU64::new(0));
        let decoding = Decoding {
            decoder: || coresight::Decoder::new(&image, &first.config),
            decode: |decoder: &mut coresight::Decoder<_>, (stream, unit): &Traced<'_>, sink: &mut W::Sink| {
                decoder.decode(stream.config, &stream.trace(), unit, sink);
            },
            blocks: coresight::Decoder::blocks,
        };
        let sinks = decode_parts(self.parts(order, size, &unknown), &decoding, threads, work, done)?;
        Ok((sinks, unknown.into_inner()))
    }

    /// The threads that ran while a piece was traced; none if the trace itself names them.
    fn switches(&self, piece: &Piece) -> Switches {
        if self.names_threads() { Switches::default() } else { piece.switches.clone() }
    }

    /// The parts of all traces, each with its trace. Pieces are split one after the other.
    fn parts<'a>(
        &'a self,
        PieceOrder { pieces, conv }: PieceOrder,
        size: u64,
        unknown: &'a AtomicU64,
    ) -> impl Iterator<Item = (Traced<'a>, Part)> + Send {
        let mut numbers: HashMap<usize, u64> = HashMap::new();
        pieces.into_iter().flat_map(move |(number, begin)| {
            let mut parts = Vec::new();
            let Some(piece) = self.pieces.get(number) else { return parts };
            let streams = piece.streams();
            // In a thread's buffer, the trace of each CPU is kept whole.
            let conv = conv.filter(|_| piece.is_of_cpu() || streams.len() == 1);
            for (id, bytes) in streams {
                let Some((at, unit)) = self.unit(id) else {
                    unknown.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let switches = self.switches(piece);
                let stream = Arc::new(Stream { bytes, switches, config: &unit.config });
                let trace = number * self.units.len() + at;
                let buffer = piece.buffer * self.units.len() + if piece.is_of_cpu() { at } else { 0 };
                let (mut time, mut last) = (begin, 0);
                for unit in coresight::units(&stream.trace(), &unit.config, size) {
                    // Packets after a timestamp may describe earlier code: the last timestamp but one counts.
                    if let Some(conv) = conv.filter(|_| unit.time > last) {
                        time = time.max(if last > 0 { conv.time(last) } else { 0 });
                        last = unit.time;
                    }
                    let size = unit.end - unit.start;
                    parts.push(((stream.clone(), unit), Part { buffer, trace, number: 0, time, size }));
                }
            }
            parts.sort_by_key(|(_, part)| part.time);
            for (_, part) in &mut parts {
                let next = numbers.entry(part.buffer).or_default();
                part.number = *next;
                *next += 1;
            }
            parts
        })
    }
}

/// The order in which pieces are decoded.
#[derive(Debug)]
pub struct PieceOrder {
    /// The numbers of the pieces, each with a lower time bound for it and all later ones.
    pub pieces: Vec<(usize, u64)>,
    /// With a conversion, the parts of a piece after the first have times of their own.
    pub conv: Option<TimeConv>,
}

type Traced<'a> = (Arc<Stream<'a>>, coresight::Unit);

#[derive(Debug)]
struct Stream<'a> {
    bytes: Vec<u8>,
    switches: Switches,
    config: &'a coresight::Config,
}

impl Stream<'_> {
    fn trace(&self) -> Trace<'_> {
        Trace::new(vec![&self.bytes], self.switches.clone())
    }
}

/// The code that ran, for traces whose spaces may be thread ids.
#[derive(Clone, Copy, Debug)]
pub struct ByThread<'a> {
    code: &'a Code,
    /// The space of each thread id; `None` if spaces are not thread ids.
    spaces: Option<&'a HashMap<u32, Space>>,
}

impl ByThread<'_> {
    /// The function at an address.
    pub fn function(&self, space: Option<Space>, ip: u64) -> Option<Function> {
        self.code.function(self.space(space), ip, 0)
    }

    pub(crate) fn space(&self, space: Option<Space>) -> Option<Space> {
        match self.spaces {
            Some(spaces) => space.and_then(|Space(tid)| spaces.get(&tid).copied()),
            None => space,
        }
    }
}

impl Image for ByThread<'_> {
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>> {
        self.code.code(self.space(space), ip, time)
    }
}
