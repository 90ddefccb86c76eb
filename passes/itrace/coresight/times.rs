//! Estimates the times of samples between the timestamps of a trace, as perf 7.3 does.
//!
//! A timestamp follows the code executed before it. Code between two timestamps has the time of the first
//! one, plus a nanosecond per ten instructions, but at most that of the second. After a gap, or where the
//! trace names a thread, times are counted back from the next timestamp.

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times {
    /// The time of the code being executed, ns.
    now: u64,
    /// The last timestamp, ns; 0 for none since the last gap.
    next: u64,
    /// Instructions not yet included in `now`.
    elapsed: u64,
}

/// Instructions per nanosecond, as perf assumes.
const PER_NS: u64 = 10;

impl Times {
    /// The time of the last instruction, ns.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// False if the time is unknown until the next timestamp.
    pub(super) fn is_known(&self) -> bool {
        self.next != 0
    }

    #[inline(always)]
    pub(super) fn execute(&mut self, count: u64) {
        self.elapsed = self.elapsed.wrapping_add(count);
        if self.is_known() {
            self.now = self.next.min(self.now.saturating_add(self.elapsed / PER_NS));
            self.elapsed %= PER_NS;
        }
    }

    /// Takes in a timestamp, ns.
    pub(super) fn reach(&mut self, time: u64) {
        if self.is_known() {
            (self.now, self.next) = (self.next, time);
            return;
        }
        self.now = match time.checked_sub(self.elapsed / PER_NS) {
            Some(begin) if time > 0 => self.now.max(begin),
            _ => 0,
        };
        (self.next, self.elapsed) = (time, 0);
    }

    /// Makes the time unknown up to the next one.
    pub(super) fn forget(&mut self) {
        (self.next, self.elapsed) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_between_timestamps() {
        let mut times = Times::default();
        times.execute(25);
        assert!(!times.is_known());
        times.reach(1000);
        assert_eq!((times.now(), times.is_known()), (998, true));
        times.execute(15);
        assert_eq!(times.now(), 999);
        times.execute(1000);
        assert_eq!(times.now(), 1000, "not later than the next timestamp");
        times.reach(1100);
        times.execute(105);
        assert_eq!(times.now(), 1011);
        times.forget();
        times.execute(2000);
        times.reach(1150);
        assert_eq!(times.now(), 1011, "it does not go back");
    }

    #[test]
    fn a_timestamp_of_zero_says_nothing() {
        let mut times = Times::default();
        times.reach(1000);
        times.forget();
        times.reach(0);
        assert_eq!((times.now(), times.is_known()), (0, false));
        times.execute(9);
        times.execute(u64::MAX);
        times.reach(7);
        assert_eq!(times.now(), 7);
        // More instructions than there was time for.
        times.forget();
        times.execute(80);
        times.reach(7);
        assert_eq!((times.now(), times.is_known()), (0, true));
    }
}
