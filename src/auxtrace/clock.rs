//! Converts between the ticks of a trace and the time of the recording.

use perfx_format::record::time::LAST_KEY;
use perfx_format::record::time_conv::TimeConv;

/// The conversion, if there is one. Without it, a trace has no times.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// How ticks become times.
    pub conv: Option<TimeConv>,
}

impl Clock {
    /// The time of a tick, ns; 0 if it is not known.
    pub fn time(&self, ticks: u64) -> u64 {
        self.conv.map_or(0, |conv| conv.time(ticks))
    }

    /// The tick at a time, rounded down as perf does; 0 if it is not known.
    pub fn ticks(&self, time: u64) -> u64 {
        let ticks = self.conv.and_then(|conv| {
            let since = u128::from(time.wrapping_sub(conv.zero));
            let shifted = since.checked_shl(u32::try_from(conv.shift).ok()?.min(63))?;
            shifted.checked_div(u128::from(conv.mult))
        });
        ticks.map_or(0, |ticks| ticks as u64)
    }

    /// The time at which something is looked up that changes over time: of a tick, or the end of the recording.
    pub(crate) fn moment(&self, ticks: u64) -> u64 {
        self.conv.map_or(LAST_KEY, |conv| conv.time(ticks))
    }
}
