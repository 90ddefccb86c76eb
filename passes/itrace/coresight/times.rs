//! Estimates the times of samples between the timestamps of a trace, as perf 7.3 does.
//!
//! A timestamp is told behind the code that was executed before it. What comes between two is at the time of the first
//! one, and a nanosecond later for ten instructions, but not later than the second one. Where the trace was not
//! contiguous or a thread was named, times are not known up to the next timestamp: that counts back.

/// What is known of the time at a place of a trace.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times {
    /// The time of what is executed, ns.
    now: u64,
    /// The last timestamp, ns; 0 if there is none that counts.
    next: u64,
    /// Instructions that are not in `now` yet.
    behind: u64,
}

/// Instructions that perf takes for a nanosecond.
const PER_NS: u64 = 10;

impl Times {
    /// The time of what was executed last, ns.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// False if the next timestamp says what the time is.
    pub(super) fn is_known(&self) -> bool {
        self.next != 0
    }

    /// So many instructions are executed.
    #[inline(always)]
    pub(super) fn execute(&mut self, count: u64) {
        self.behind = self.behind.wrapping_add(count);
        if self.is_known() {
            self.now = self.next.min(self.now.saturating_add(self.behind / PER_NS));
            self.behind %= PER_NS;
        }
    }

    /// A timestamp, ns.
    pub(super) fn tell(&mut self, time: u64) {
        if self.is_known() {
            (self.now, self.next) = (self.next, time);
            return;
        }
        self.now = match time.checked_sub(self.behind / PER_NS) {
            Some(begin) if time > 0 => self.now.max(begin),
            _ => 0,
        };
        (self.next, self.behind) = (time, 0);
    }

    /// What follows is not known up to the next timestamp.
    pub(super) fn forget(&mut self) {
        (self.next, self.behind) = (0, 0);
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
        times.tell(1000);
        assert_eq!((times.now(), times.is_known()), (998, true));
        times.execute(15);
        assert_eq!(times.now(), 999);
        times.execute(1000);
        assert_eq!(times.now(), 1000, "not later than the timestamp behind it");
        times.tell(1100);
        times.execute(105);
        assert_eq!(times.now(), 1011);
        times.forget();
        times.execute(2000);
        times.tell(1150);
        assert_eq!(times.now(), 1011, "it does not go back");
    }
}
