//! Finds the instructions that are sampled, by their number or by the time of the trace, as perf does.

/// The distance between samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Period {
    /// A number of instructions.
    Instructions(u64),
    /// At multiples of this power of two, ticks.
    Ticks(u64),
}

impl Period {
    /// Rounds ticks down to a power of two; with 0, every instruction is sampled.
    pub(super) fn of_ticks(ticks: u64) -> Period {
        match ticks.checked_ilog2() {
            Some(log) => Period::Ticks(1 << log),
            None => Period::Instructions(1),
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PeriodState {
    pub(super) period: Option<Period>,
    /// Instructions since the last sample.
    since: u64,
    /// The time of the last packet, in ticks, and the number of instructions since then: each takes a tick.
    pub(super) now: u64,
    pub(super) elapsed: u64,
    /// The last multiple of the period that was sampled, or from which it is counted.
    last: u64,
    /// False until tracing has begun again.
    pub(super) is_continuous: bool,
}

impl PeriodState {
    /// The state at the beginning of a buffer; without a period, nothing is sampled.
    pub(super) fn new(period: Option<Period>) -> PeriodState {
        PeriodState { period, ..PeriodState::default() }
    }

    /// The number of instructions up to the next sample.
    pub(super) fn next(&mut self) -> Option<u64> {
        match self.period? {
            Period::Instructions(period) => Some(period.saturating_sub(self.since).max(1)),
            Period::Ticks(period) => {
                let mask = !(period - 1);
                let mut time = self.now.wrapping_add(self.elapsed);
                if self.is_continuous {
                    if time & mask > self.last {
                        return Some(1);
                    }
                } else {
                    time = time.wrapping_add(1);
                    if time & mask > self.last {
                        self.last = time & mask;
                        self.is_continuous = true;
                    }
                }
                Some(if time & mask < self.last { period } else { period - (time - (time & mask)) })
            }
        }
    }

    /// True if only counted instructions bring the next sample closer; not if time went back past the last
    /// one.
    pub(super) fn is_regular(&self) -> bool {
        match self.period {
            Some(Period::Ticks(period)) => self.now.wrapping_add(self.elapsed) & !(period - 1) >= self.last,
            _ => true,
        }
    }

    #[inline(always)]
    pub(super) fn count(&mut self, instructions: u64) {
        self.since += instructions;
        self.elapsed += instructions;
    }

    pub(super) fn sampled(&mut self) {
        self.since = 0;
        if let Some(Period::Ticks(period)) = self.period {
            let time = self.now.wrapping_add(self.elapsed) & !(period - 1);
            self.last = if time > self.last { time } else { self.last.wrapping_add(period) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the first sampled instructions after a packet with a time.
    fn samples(state: &mut PeriodState, now: u64, count: u64) -> Vec<u64> {
        (state.now, state.elapsed) = (now, 0);
        let (mut samples, mut done) = (Vec::new(), 0);
        while let Some(next) = state.next()
            && done + next <= count
        {
            state.count(next);
            state.sampled();
            done += next;
            samples.push(done);
        }
        state.count(count - done);
        samples
    }

    #[test]
    fn instructions_are_counted_from_packet_to_packet() {
        let mut state = PeriodState::new(Some(Period::Instructions(10)));
        assert_eq!(samples(&mut state, 100, 25), [10, 20]);
        assert_eq!(samples(&mut state, 500, 25), [5, 15, 25]);
    }

    #[test]
    fn a_sample_is_due_where_the_time_passes_a_multiple_of_the_period() {
        let mut state = PeriodState::new(Some(Period::of_ticks(70)));
        assert_eq!(state.period, Some(Period::Ticks(64)));
        // When tracing begins, the multiple before it counts as sampled.
        assert_eq!(samples(&mut state, 100, 100), [27, 91]);
        // A packet is past the next multiple, and so is its first instruction.
        assert_eq!(samples(&mut state, 300, 10), [1]);
        assert!(state.is_regular());
        state.now = 10;
        assert!(!state.is_regular());
        assert_eq!(PeriodState::new(None).next(), None);
        assert_eq!(Period::of_ticks(0), Period::Instructions(1));
    }
}
