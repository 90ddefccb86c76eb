//! Intel PT as a tracer: its description in the recording, its buffers, and their decoding.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use perfx_format::Event;
use perfx_format::intel_pt::psbs;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::pt_info::PtInfo;
use perfx_format::record::time_conv::TimeConv;
use perfx_pipeline::{Result, bail};
use perfx_trace::{Image, Trace, Visit, intel_pt};

use crate::buffer::Buffer;
use crate::clock::Clock;
use crate::decode::{Decoding, Part, Split, Work, decode_parts};
use crate::kept::Chunk;
use crate::overlap::Ending;
use crate::recorded::Counter;
use crate::summary::Summary;

/// The processor, the event, and their traces.
#[derive(Debug)]
pub struct IntelPt {
    /// The description in the recording.
    pub info: PtInfo,
    /// The configuration of the decoder.
    pub config: intel_pt::Config,
    /// `attr.config` of the event.
    pub event_config: u64,
    /// In the order of their first AUXTRACE records.
    pub buffers: Vec<Buffer>,
    /// For all traces of all buffers, where they begin in the data of their buffer.
    pub begins: Vec<u64>,
    /// The events whose samples are in the traces, in time order.
    pub counters: Vec<Counter>,
}

impl IntelPt {
    /// A tracer without traces; `near` is a time of the recording near that of the traces, ns. Fails if there
    /// is no such event, or if traces of its kind are not decoded.
    pub(crate) fn new(info: PtInfo, events: &[Event], near: u64) -> Result<IntelPt> {
        let event = events.iter().find(|event| u64::from(event.attr().type_) == info.pmu_type);
        let Some(event) = event else {
            bail!(
                "AUXTRACE_INFO says that PMU {} wrote the AUX data, but no event belongs to it",
                info.pmu_type
            )
        };
        let event_config = event.attr().config;
        let config = intel_pt::Config {
            mtc_period: info.mtc_period(event_config),
            tsc_per_ctc: info.tsc_per_ctc,
            tsc_ratio: ratio(&info),
            compressed_returns: event_config & info.no_return_compression_bit == 0,
            branches: PtInfo::traces_branches(event_config),
            near: Clock { conv: info.conv }.ticks(near),
            ..intel_pt::Config::default()
        };
        Ok(IntelPt {
            info,
            config,
            event_config,
            buffers: Vec::new(),
            begins: Vec::new(),
            counters: Vec::new(),
        })
    }
}

/// The errata of a processor, by feature CPUID: vendor, family, model and stepping.
pub(crate) fn errata(cpuid: &[u8]) -> Option<intel_pt::Errata> {
    let mut words = str::from_utf8(cpuid).ok()?.split(',');
    words.next().filter(|vendor| *vendor == "GenuineIntel")?;
    let mut number = || words.next()?.trim().parse().ok();
    Some(intel_pt::Errata::of(number()?, number()?))
}

/// The frequency of the time-stamp counter in units of 100 MHz.
fn ratio(info: &PtInfo) -> u32 {
    if info.max_non_turbo_ratio > 0 {
        return info.max_non_turbo_ratio;
    }
    u32::try_from((frequency(info) + 50_000_000) / 100_000_000).unwrap_or(0)
}

/// The frequency of the time-stamp counter, Hz; 0 if unknown.
fn frequency(info: &PtInfo) -> u64 {
    Clock { conv: info.conv.map(|conv| TimeConv { zero: 0, ..conv }) }.ticks(1_000_000_000)
}

impl IntelPt {
    /// The frequency of the core at a ratio to the bus clock, kHz; 0 if unknown.
    pub fn core_khz(&self, ratio: u8) -> u32 {
        let unit =
            frequency(&self.info).checked_div(self.info.max_non_turbo_ratio.into()).unwrap_or(0) / 1000;
        (u64::from(ratio) * unit) as u32
    }
}

impl IntelPt {
    pub(crate) fn read(&mut self, chunks: &[Chunk], has_samples: bool) {
        // Pieces of a buffer may overlap; otherwise each follows the one before.
        let may_overlap = self.info.is_snapshot || has_samples;
        // For each buffer, the end of its data so far, and the ending of its last piece.
        let mut ends: Vec<(u64, Option<Ending>)> = Vec::new();
        for Chunk { auxtrace, buffer, switches, data } in chunks {
            let Auxtrace { size, offset, tid, cpu, .. } = *auxtrace;
            if *buffer == ends.len() {
                self.buffers.push(Buffer { cpu, tid, traces: Vec::new(), switches: switches.clone() });
                ends.push((0, None));
            }
            let traces = &mut self.buffers[*buffer].traces;
            let (end, before) = &ends[*buffer];
            // The number of bytes already seen, if the data continues the last piece.
            let known = match may_overlap {
                true => before.as_ref().and_then(|before| before.overlap(data)),
                false => (*end == offset).then_some(0),
            };
            match (traces.last_mut(), known) {
                (Some(_), Some(known)) if known == data.len() && may_overlap => continue,
                (Some(pieces), Some(known)) => pieces.push(data.slice(known..data.len())),
                // Like perf, skip data before the first sync point.
                (Some(_), None) if may_overlap => match psbs(data).next() {
                    Some(first) => traces.push(vec![data.slice(first.at..data.len())]),
                    None => continue,
                },
                (None, _) | (_, None) => traces.push(vec![data.clone()]),
            }
            let ending = if may_overlap { Ending::of(data) } else { None };
            ends[*buffer] = (offset.wrapping_add(size), ending);
        }
        for buffer in &self.buffers {
            let mut end = 0;
            for pieces in &buffer.traces {
                self.begins.push(end);
                end += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
            }
        }
    }

    /// How the ticks of the traces become times.
    pub fn clock(&self) -> Clock {
        Clock { conv: self.info.conv }
    }

    pub(crate) fn traces(&self) -> impl Iterator<Item = (usize, Trace<'_>)> {
        let buffers = self.buffers.iter().enumerate();
        buffers.flat_map(|(number, buffer)| buffer.traces().map(move |trace| (number, trace)))
    }

    /// The bytes of all traces.
    pub fn size(&self) -> u64 {
        let pieces = self.buffers.iter().flat_map(|buffer| buffer.traces.iter().flatten());
        pieces.map(|piece| piece.len() as u64).sum()
    }

    pub(crate) fn summary(&self, trace: &Trace<'_>) -> Summary {
        let (tally, clock) = (intel_pt::tally(trace, &self.config), self.clock());
        let count = |kind| tally.packets.get(kind).copied().unwrap_or(0);
        let length = |ticks| clock.time(ticks).wrapping_sub(clock.time(0));
        let time = clock.conv.map(|_| (length(tally.span), length(tally.traced)));
        Summary { syncs: count("PSB"), overflows: count("OVF"), time, packets: tally.packets }
    }

    pub(crate) fn visits(&self, trace: &Trace<'_>, add: &mut dyn FnMut(Visit)) {
        intel_pt::visits(trace, &self.config).for_each(add);
    }

    /// Decodes all buffers, and passes the results of `work` to `done` by the times of the parts; those of
    /// one buffer stay in order. Returns the threads' sinks, which no longer refer to blocks.
    ///
    /// # Errors
    ///
    /// The first error of `done`, or a thread cannot be started.
    pub fn decode<W: Work>(
        &self,
        image: &(impl Image + Sync),
        Split { threads, size }: Split,
        work: &W,
        done: impl FnMut(Part, W::Done) -> Result<()>,
    ) -> Result<Vec<W::Sink>> {
        let traces: Vec<(usize, Trace<'_>)> = self.traces().collect();
        let decoding = Decoding {
            decoder: || intel_pt::Decoder::new(image, self.config),
            decode: |decoder: &mut intel_pt::Decoder<_>, (at, unit): &Unit, sink: &mut W::Sink| {
                decoder.decode(&traces[*at].1, unit, sink);
            },
            blocks: intel_pt::Decoder::blocks,
        };
        decode_parts(self.parts(&traces, size), &decoding, threads, work, done)
    }

    /// The parts of all traces in time order. The traces of a buffer follow each other.
    fn parts<'a>(
        &'a self,
        traces: &'a [(usize, Trace<'a>)],
        size: u64,
    ) -> impl Iterator<Item = (Unit, Part)> + Send + 'a {
        let mut order = BinaryHeap::new();
        let mut queues: Vec<Queue<'a>> = Vec::new();
        let mut end = 0;
        for buffer in 0..self.buffers.len() {
            let first = end;
            end += self.buffers[buffer].traces.len();
            let units = (first..end).flat_map(move |at| {
                intel_pt::units(&traces[at].1, &self.config, size).map(move |unit| (at, unit))
            });
            let units: Box<dyn Iterator<Item = Unit> + Send + 'a> = Box::new(units);
            let mut queue = Queue { units: units.peekable(), number: 0, time: 0 };
            order.extend(queue.turn(buffer));
            queues.push(queue);
        }
        std::iter::from_fn(move || {
            let Reverse((time, buffer)) = order.pop()?;
            let queue = &mut queues[buffer];
            let unit = queue.units.next()?;
            let size = unit.1.end - unit.1.start;
            let part = Part { buffer, trace: unit.0, number: queue.number, time, size };
            queue.number += 1;
            order.extend(queue.turn(buffer));
            Some((unit, part))
        })
    }
}

type Unit = (usize, intel_pt::Unit);

/// The units of a buffer that have not been handed out.
struct Queue<'a> {
    units: Peekable<Box<dyn Iterator<Item = Unit> + Send + 'a>>,
    /// The number and the time of the next part.
    number: u64,
    time: u64,
}

impl Queue<'_> {
    /// The key by which the next unit is ordered.
    fn turn(&mut self, buffer: usize) -> Option<Reverse<(u64, usize)>> {
        let (_, unit) = self.units.peek()?;
        self.time = self.time.max(unit.time());
        Some(Reverse((self.time, buffer)))
    }
}
