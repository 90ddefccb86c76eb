//! The call stack of a sample as perf shows it, including stacks from calls recorded by the processor.

use super::{Branches, Marker, Sample, U64s, callchain, cookie_of, frames_of};
use crate::record::cpumode::USER;
use crate::{BranchStacks, Layout, Record};

/// The call stack of a sample, innermost first. It is the recorded chain; with `perf record --call-graph
/// lbr`, its user part is replaced by the addresses of the calls that have not returned.
#[derive(Clone, Copy, Debug)]
pub struct CallStack<'a> {
    /// The recorded chain, up to the marker of its user part if that is replaced.
    chain: U64s<'a>,
    /// The replacement of the user part: the current address in the process, then its calls.
    calls: Option<(Option<u64>, Branches<'a>)>,
}

impl<'a> CallStack<'a> {
    /// The call stack of a sample. `None` if its event records none, or it does not fit into the record.
    #[inline]
    pub fn of(record: &Record<'a>, layout: &Layout) -> Option<CallStack<'a>> {
        match layout.branch_stacks() {
            BranchStacks::Calls => {
                CallStack::in_sample(&Sample::parse_known(record, layout).ok()?, record, layout)
            }
            _ => Some(CallStack { chain: callchain(record, layout)?, calls: None }),
        }
    }

    /// The call stack of a sample that is already parsed.
    #[inline]
    pub fn in_sample(sample: &Sample<'a>, record: &Record<'a>, layout: &Layout) -> Option<CallStack<'a>> {
        let recorded = CallStack { chain: sample.callchain?, calls: None };
        let Some(branches) = sample.branches.filter(|_| layout.branch_stacks() == BranchStacks::Calls) else {
            return Some(recorded);
        };
        // As in perf, a chain without a user part is unchanged.
        let Some(marker) = recorded.chain.iter().position(|entry| entry == Marker::USER.0) else {
            return Some(recorded);
        };
        // The last call went to the beginning of the innermost function. perf 7.2 and 7.3 use the sample's
        // own address instead, even if it is in the kernel; earlier versions never did.
        let innermost = match record.cpumode() {
            USER => sample.ip,
            _ => branches.iter().next().map(|branch| branch.to),
        };
        Some(CallStack { chain: recorded.chain.first(marker + 1), calls: Some((innermost, branches)) })
    }

    /// Its addresses, each with its cpumode; markers and the cookie of a deferred chain are left out. As in
    /// perf, addresses before the first marker are those of a process.
    pub fn frames(&self) -> impl Iterator<Item = (u16, u64)> + use<'a> {
        frames_of(self.entries(), USER)
    }

    /// Its addresses, and markers before those of each kind, as in a call chain.
    pub fn entries(&self) -> impl Iterator<Item = u64> + use<'a> {
        let calls = self.calls.into_iter().flat_map(|(innermost, branches)| {
            innermost.into_iter().chain(branches.iter().map(|branch| branch.from))
        });
        self.chain.iter().chain(calls)
    }

    /// The recorded chain, if nothing replaces its user part: it has all entries.
    #[inline]
    pub fn recorded(&self) -> Option<U64s<'a>> {
        if self.calls.is_none() { Some(self.chain) } else { None }
    }

    /// The cookie of the CALLCHAIN_DEFERRED record that completes it.
    pub fn cookie(&self) -> Option<u64> {
        cookie_of(self.chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::cpumode::KERNEL;
    use crate::sample::{Branch, BranchFlags, NewSample};
    use crate::{Attr, Endian, Origin, sample_type as st};

    const SYSTEM: u64 = 0xffff_ffff_8100_0000;

    /// The frames of a sample of this mode at 0x401158 or in the kernel with this chain, and the first
    /// `calls` of the calls 0x401200 to 0x401150 and 0x401300 to 0x4011f0.
    fn frames(cpumode: u16, chain: &[u64], calls: usize, branch_sample_type: u64) -> Vec<(u16, u64)> {
        let sample_type = st::IP | st::CALLCHAIN | st::BRANCH_STACK;
        let attr = Attr { sample_type, branch_sample_type, ..Attr::default() };
        let layout = Layout::new(&attr);
        let ip = if cpumode == USER { 0x40_1158 } else { SYSTEM };
        let call = |from, to| Branch { from, to, flags: BranchFlags(0) };
        let branches = &[call(0x40_1200, 0x40_1150), call(0x40_1300, 0x40_11f0)][..calls];
        let sample =
            NewSample { cpumode, ip, callchain: chain, branches: [branches, &[]], ..NewSample::default() };
        let mut both = [Endian::Little, Endian::Big].map(|endian| {
            let bytes = sample.build(&attr, endian).unwrap();
            let record = Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap();
            let stack = CallStack::of(&record, &layout).unwrap();
            let parts = Sample::parse(&record, &layout).unwrap();
            let again = CallStack::in_sample(&parts, &record, &layout).unwrap();
            assert!(stack.frames().eq(again.frames()));
            stack.frames().collect::<Vec<_>>()
        });
        assert_eq!(both[0], both[1]);
        std::mem::take(&mut both[0])
    }

    #[test]
    fn the_last_branch_records_replace_the_user_part_of_a_chain() {
        // USER, CALL_STACK, NO_FLAGS, NO_CYCLES, HW_INDEX.
        let lbr = 1 | 1 << 11 | 1 << 14 | 1 << 15 | 1 << 17;
        let [system, user, deferred] =
            [Marker::KERNEL, Marker::USER, Marker::USER_DEFERRED].map(|marker| marker.0);
        let of_kernel = [(KERNEL, SYSTEM), (KERNEL, SYSTEM + 9)];
        let both = [system, SYSTEM, SYSTEM + 9, user, 0x40_1160, 0x40_1666];
        let calls = [(USER, 0x40_1200), (USER, 0x40_1300)];
        assert_eq!(frames(KERNEL, &both, 2, lbr), [&of_kernel[..], &[(USER, 0x40_1150)], &calls].concat());
        assert_eq!(frames(USER, &both[3..], 2, lbr), [&[(USER, 0x40_1158)], &calls[..]].concat());
        // Without a call, only the address in the process is known.
        assert_eq!(frames(USER, &both[3..], 0, lbr), [(USER, 0x40_1158)]);
        assert_eq!(frames(KERNEL, &both, 0, lbr), of_kernel);
        // The user part is missing, deferred, or not one: the chain is unchanged.
        assert_eq!(frames(KERNEL, &both[..3], 2, lbr), of_kernel);
        assert_eq!(frames(KERNEL, &[system, SYSTEM, deferred, 7], 2, lbr), of_kernel[..1]);
        assert_eq!(frames(USER, &both[4..], 2, lbr), [(USER, 0x40_1160), (USER, 0x40_1666)]);
        // Branches that were taken (perf record -b) are not calls.
        let recorded = [&of_kernel[..], &[(USER, 0x40_1160), (USER, 0x40_1666)]].concat();
        assert_eq!(frames(KERNEL, &both, 2, 1 << 3), recorded);
    }
}
