//! The events that perf synthesizes when it decodes a trace, by `attr.type` and `attr.config`:
//! `PERF_TYPE_SYNTH` and `enum perf_synth_id` of perf (tools/perf/util/event.h). Only recordings that perf or
//! perfx injected have them.

/// `attr.type`.
pub const TYPE: u32 = 1 << 31;

/// `attr.config`: PTWRITE, a value that the program gave.
pub const PTWRITE: u64 = 0;
/// MWAIT, the hints for a power state.
pub const MWAIT: u64 = 1;
/// A power state is entered.
pub const POWER_ENTER: u64 = 2;
/// Execution stopped.
pub const STOP: u64 = 3;
/// A power state is left.
pub const POWER_EXIT: u64 = 4;
/// The ratio of the core's frequency to the bus clock.
pub const CBR: u64 = 5;
/// A sync point.
pub const PSB: u64 = 6;
/// An event such as an interrupt, or a return from one.
pub const CONTROL: u64 = 7;
/// The interrupt flag has changed.
pub const INTERRUPT_FLAG: u64 = 8;
