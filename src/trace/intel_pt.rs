//! Intel Processor Trace. Source: Intel SDM volume 3, chapter "Intel Processor Trace".

mod clock;
mod decoder;
mod errata;
#[cfg(test)]
#[path = "tests/libipt/packets.rs"]
mod oracle;
mod packet;
mod schedule;
mod show;
mod tally;
mod units;
mod visits;

pub use self::decoder::Decoder;
pub use self::errata::Errata;
pub use self::show::{Listed, list};
pub use self::tally::{Tally, tally};
pub use self::units::{Unit, units};
pub use self::visits::visits;

/// The configuration of the processor and of its tracer, as far as decoding depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// An MTC packet comes whenever bit `mtc_period` of the crystal clock (CTC) changes: MTCFreq, 0 to 15.
    pub mtc_period: u8,
    /// Ticks of the time-stamp counter for ticks of the crystal clock: CPUID 15H, EBX and EAX. `None` if
    /// unknown: MTC packets then give no time.
    pub tsc_per_ctc: Option<(u32, u32)>,
    /// The ratio of the time-stamp counter's frequency to the bus clock, in the unit of CBR packets; 0 if
    /// unknown: CYC packets then give the time only between two MTC packets.
    pub tsc_ratio: u32,
    /// True if returns may be compressed, that is, RTIT_CTL.DisRETC was not set.
    pub compressed_returns: bool,
    /// True if branches are traced (RTIT_CTL.BranchEn). Otherwise there is no flow, only events.
    pub branches: bool,
    /// A time-stamp counter value near the trace, used for the upper 8 bits that TSC packets lack.
    pub near: u64,
    /// [`Sink::cycles`](crate::Sink::cycles) is called.
    pub counts_cycles: bool,
    /// How much is decoded.
    pub walk: Walk,
    /// The errata of the processor.
    pub errata: Errata,
}

/// How much of a trace is decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// All code that was executed.
    Code,
    /// No code: only the addresses in packets, each with an [`Event::Passed`](crate::Event::Passed).
    Addresses,
    /// No code: only the addresses at sync points.
    Syncs,
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
            counts_cycles: false,
            walk: Walk::Code,
            errata: Errata::default(),
        }
    }
}

/// A change of the power state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Power {
    /// MWAIT or UMWAIT was executed: its hints (bits 0-7) and extensions (bits 32-33).
    Mwait(u64),
    /// A C-state was entered: bits 15-12 the state, 11-8 the sub-state, 7 set if hardware asked for it.
    Enter(u64),
    /// Execution stopped.
    Stop,
    /// Execution continued: bits 3-0 the last, 7-4 the deepest core C-state, 11-8 the reason.
    Exit(u64),
}
