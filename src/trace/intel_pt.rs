//! Intel Processor Trace. Source: Intel SDM volume 3, chapter "Intel Processor Trace".

use crate::bytes::Trace;
use crate::image::{Image, Switch};
use crate::sink::Sink;

/// What must be known of the processor and of how it was told to trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// An MTC packet comes whenever bit `mtc_period` of the crystal clock (CTC) changes: MTCFreq, 0 to 15.
    pub mtc_period: u8,
    /// Ticks of the time-stamp counter for ticks of the crystal clock: CPUID 15H, EBX and EAX. `None` if not
    /// known: MTC packets then tell no time.
    pub tsc_per_ctc: Option<(u32, u32)>,
    /// The ratio of the time-stamp counter's frequency to the bus clock, in the unit of CBR packets; 0 if not
    /// known: CYC packets then tell the time only between two MTC packets.
    pub tsc_ratio: u32,
    /// True if returns may be compressed, unless RTIT_CTL.DisRETC was set.
    pub compressed_returns: bool,
    /// True if branches are traced (RTIT_CTL.BranchEn). Otherwise there is no flow, only events.
    pub branches: bool,
    /// A value of the whole time-stamp counter near to the trace, whose upper 8 bits TSC packets lack.
    pub near: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mtc_period: 0,
            tsc_per_ctc: None,
            tsc_ratio: 0,
            compressed_returns: true,
            branches: true,
            near: 0,
        }
    }
}

/// A change of the power state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Power {
    /// MWAIT or UMWAIT was executed: its hints (bits 0-7) and extensions (bits 32-33).
    Mwait(u64),
    /// A C-state was entered: bits 15-12 the state, 11-8 the sub-state, 7 whether hardware asked for it.
    Enter(u64),
    /// Execution stopped.
    Stop,
    /// It went on: bits 3-0 the last, 7-4 the deepest core C-state, 11-8 why it woke up.
    Exit(u64),
}

/// A part of a trace that can be decoded by itself: from a point of synchronization (PSB) to another one.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The offset of the PSB.
    pub start: u64,
    /// The offset of the PSB at which the next unit begins, or the length of the trace.
    pub end: u64,
    /// True for the first of a trace.
    pub is_first: bool,
    clock: Clock,
}

/// What is known of the time between two packets.
#[derive(Clone, Debug)]
struct Clock;

impl Unit {
    /// The time at its beginning, ticks of the time-stamp counter; 0 if the trace has none.
    pub fn time(&self) -> u64 {
        let _ = &self.clock;
        todo!()
    }
}

/// Cuts a trace into units of at least `size` bytes, in order. What is in front of the first PSB cannot be
/// decoded: the first unit's `start` says how much that is.
///
/// This reads all packets to follow the time, at about 1 GB/s, but walks no code. The results of
/// [`Decoder::decode`] for all units of a trace, in order, do not depend on `size`: neither steps nor times.
pub fn units<'a>(trace: &'a Trace<'a>, config: &Config, size: usize) -> impl Iterator<Item = Unit> + use<'a> {
    let _ = (trace, config, size);
    std::iter::empty()
}

/// Decodes units, of any traces in any order. Each thread has its own.
///
/// Memory: up to 8 MiB of blocks, see [`Sink::forget`].
#[derive(Debug)]
pub struct Decoder<I> {
    image: I,
    config: Config,
}

impl<I: Image> Decoder<I> {
    /// A decoder of traces of one processor, with the code that ran.
    pub fn new(image: I, config: Config) -> Decoder<I> {
        Decoder { image, config }
    }

    /// Decodes a unit of `trace`, which may look at what is behind it. `switches` are those of the whole trace.
    ///
    /// Two units, one after the other, give what they would give as one, but that a step may be cut in two at
    /// the address where the second begins.
    pub fn decode<S: Sink>(&mut self, trace: &Trace<'_>, unit: &Unit, switches: &[Switch], sink: &mut S) {
        let _ = (&self.image, self.config, trace, unit, switches, sink);
        todo!()
    }
}
