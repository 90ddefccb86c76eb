//! Converts between the ticks of a trace and the time of the recording.

use perfx_format::OrderKey;
use perfx_format::record::time_conv::TimeConv;

/// The conversion. Without it, a trace has no times.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// How ticks become times.
    pub conv: Option<TimeConv>,
}

impl Clock {
    /// The time of a tick, ns; 0 if unknown.
    pub fn time(&self, ticks: u64) -> u64 {
        self.conv.map_or(0, |conv| conv.time(ticks))
    }

    /// The tick at a time, ns, rounded down as perf does; 0 if unknown.
    pub fn ticks(&self, time: u64) -> u64 {
        self.ticks_at(OrderKey::at(time))
    }

    /// The tick at a key that is a time; 0 if unknown.
    pub(crate) fn ticks_at(&self, key: OrderKey) -> u64 {
        self.conv.and_then(|conv| conv.counter(key)).unwrap_or(0)
    }

    /// The key of a tick for lookups over time; without a conversion, the end of the recording.
    pub(crate) fn key(&self, ticks: u64) -> OrderKey {
        self.conv.map_or(OrderKey::LAST, |conv| OrderKey::at(conv.time(ticks)))
    }
}
