//! Counts core cycles and instructions from one sample to the next, as perf does for its IPC.
//!
//! A CYC packet contains the cycles up to the first branch of the next packet. The count is known only there;
//! with `A`, the last one is used at each sample. As in perf, it is ignored if this branch is not taken.

use std::mem::take;

/// The count of core cycles at a position.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cycles {
    /// The last count is used at each sample.
    is_approximate: bool,
    /// The count in the last packet, and that at the last branch that needed a packet.
    in_packet: u64,
    reached: u64,
    /// The count when this trace began.
    before: u64,
    /// True for CYC packets; else estimates by time are used everywhere.
    is_exact: bool,
    /// No branch after these packets has been reached.
    is_new: bool,
    /// The last known count, and whether it is that of the current position.
    known: u64,
    is_known: bool,
    /// The counts at the last sample of each kind.
    last: [Counted; 3],
}

/// Kinds of samples that are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Counts {
    Instructions,
    Cycles,
    Branches,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counted {
    pub(super) instructions: u64,
    pub(super) cycles: u64,
}

impl Cycles {
    pub(super) fn new(is_approximate: bool) -> Cycles {
        Cycles { is_approximate, is_known: true, ..Cycles::default() }
    }

    /// Takes in the count of a packet.
    pub(super) fn packet(&mut self, count: u64, is_exact: bool) {
        (self.in_packet, self.is_exact, self.is_new) = (self.before + count, is_exact, true);
    }

    pub(super) fn begin(&mut self) {
        self.before = self.in_packet;
    }

    /// True if the next branch that needs a packet may have a new count.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Execution is at a branch that needed a packet; `is_seen` if perf uses its count.
    #[inline(always)]
    pub(super) fn reach(&mut self, is_seen: bool) {
        self.reached = self.in_packet;
        let is_known = take(&mut self.is_new) && is_seen;
        if is_known {
            self.known = self.in_packet;
        }
        self.is_known = is_known || !self.is_exact;
    }

    /// Execution is at an instruction that needed none.
    #[inline(always)]
    pub(super) fn pass(&mut self) {
        self.is_known = !self.is_exact;
    }

    /// The flow is lost.
    pub(super) fn lose(&mut self) {
        self.known = self.in_packet;
    }

    /// The counts since the last sample of a kind, if they are known and there were cycles; the current
    /// sample, at this number of instructions, becomes the last.
    pub(super) fn since(&mut self, kind: Counts, instructions: u64) -> Option<Counted> {
        let cycles = match (self.is_approximate, self.is_known) {
            (true, _) => self.reached,
            (false, true) => self.known,
            (false, false) => return None,
        };
        let last = &mut self.last[kind as usize];
        let since = Counted {
            instructions: instructions.wrapping_sub(last.instructions),
            cycles: cycles.saturating_sub(last.cycles),
        };
        if since.cycles == 0 {
            return None;
        }
        *last = Counted { instructions, cycles };
        Some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(cycles: &mut Cycles, kind: Counts, instructions: u64) -> Option<(u64, u64)> {
        cycles.since(kind, instructions).map(|counted| (counted.instructions, counted.cycles))
    }

    #[test]
    fn cycles_are_known_at_the_branch_that_a_packet_counted_up_to() {
        let mut cycles = Cycles::new(false);
        assert_eq!(since(&mut cycles, Counts::Branches, 9), None, "no cycles yet");
        cycles.packet(100, true);
        assert!(cycles.is_new());
        assert_eq!(since(&mut cycles, Counts::Branches, 10), None);
        cycles.reach(true);
        assert!(!cycles.is_new());
        assert_eq!(since(&mut cycles, Counts::Branches, 10), Some((10, 100)));
        // Each kind has its own last sample, and one without new cycles is none.
        assert_eq!(since(&mut cycles, Counts::Branches, 15), None);
        assert_eq!(since(&mut cycles, Counts::Cycles, 15), Some((15, 100)));
        cycles.pass();
        cycles.packet(130, true);
        assert_eq!(since(&mut cycles, Counts::Branches, 20), None, "not known between branches");
        // A count is ignored where the branch was not taken, and used after the next one.
        cycles.reach(false);
        assert_eq!(since(&mut cycles, Counts::Branches, 25), None);
        cycles.packet(150, true);
        cycles.reach(true);
        assert_eq!(since(&mut cycles, Counts::Branches, 30), Some((20, 50)));
        // Counts of the next trace begin anew.
        cycles.begin();
        cycles.packet(7, true);
        cycles.lose();
        cycles.reach(false);
        assert_eq!(since(&mut cycles, Counts::Branches, 31), None);
        cycles.packet(8, false);
        cycles.reach(true);
        cycles.pass();
        assert_eq!(since(&mut cycles, Counts::Branches, 32), Some((2, 8)), "estimates are known everywhere");
    }

    #[test]
    fn approximately_the_last_count_holds_everywhere() {
        let mut cycles = Cycles::new(true);
        cycles.packet(100, true);
        cycles.reach(false);
        cycles.pass();
        assert_eq!(since(&mut cycles, Counts::Instructions, 4), Some((4, 100)));
        cycles.packet(120, true);
        assert_eq!(since(&mut cycles, Counts::Instructions, 5), None, "not before the next branch");
        cycles.reach(true);
        assert_eq!(since(&mut cycles, Counts::Instructions, 6), Some((2, 20)));
    }
}
