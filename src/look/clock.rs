//! Relates the times of a recording to the wall clock.

use std::time::{Duration, UNIX_EPOCH};

use perfx_format::Feature;
use perfx_format::decode::clock_name;
use perfx_format::features::ClockData;
use perfx_format::read::Recording;

/// ns since 1970 in RFC 3339, UTC. The largest u64 is in the year 2554, which the library supports.
pub fn rfc3339(ns: u64) -> String {
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
}

/// The clock of the records' times.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// As for clock_gettime(2); `None` is perf's own clock, which starts near boot.
    pub id: Option<u32>,
    /// The clock and the wall clock at the same moment.
    pub reference: Option<ClockData>,
}

impl Clock {
    /// The clock of a recording.
    pub fn of(recording: &Recording) -> Clock {
        let asked = recording.events.iter().map(|event| event.attr()).find(|attr| attr.use_clockid());
        let section = recording.features.get(&Feature::CLOCK_DATA);
        let reference = section.and_then(|section| ClockData::read(section, recording.endian));
        let id = asked.map(|attr| attr.clockid);
        // A reference of another clock does not apply to these times, nor do the zeros of perf stat record.
        let reference = reference.filter(|reference| id.is_none_or(|id| id == reference.clockid));
        let reference = reference.filter(|reference| reference.wall_ns > 0);
        Clock { id: id.or(reference.map(|reference| reference.clockid)), reference }
    }

    /// The difference between ns since 1970 and the recording's clock; `None` if unknown.
    pub fn wall_offset(&self) -> Option<i128> {
        match self.reference {
            Some(ClockData { wall_ns, clock_ns, .. }) => Some(i128::from(wall_ns) - i128::from(clock_ns)),
            None => (self.id.and_then(clock_name) == Some("REALTIME")).then_some(0),
        }
    }

    /// ns since 1970.
    pub fn wall_ns(&self, ns: u64) -> Option<u64> {
        u64::try_from(self.wall_offset()? + i128::from(ns)).ok()
    }
}
