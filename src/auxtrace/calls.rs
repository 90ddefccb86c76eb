//! Keeps the calls of a thread that have not returned, as perf does (tools/perf/util/thread-stack.c), and makes call
//! chains of them.
//!
//! longjmp does not return: perf keeps the frames that it leaves behind until an older one returns. Here they are popped:
//! it jumps to where a call, that of setjmp, has returned before, so that the depth of this frame is known.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use perfx_format::record::cpumode::KERNEL_START;
use perfx_format::sample::Marker;
use perfx_trace::{Block, Kind};

/// How a branch changes the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A call or interrupt that returns to this address.
    Call(u64),
    /// A return.
    Return,
    /// A jump to an address that only execution tells.
    Jump,
    /// Tracing begins.
    Begin,
    /// It does not.
    None,
}

impl Change {
    /// What the branch at the end of a block does.
    pub fn of(block: &Block) -> Change {
        match block.kind {
            kind if kind.is_call() => Change::Call(block.next),
            kind if kind.is_return() => Change::Return,
            Kind::IndirectJump => Change::Jump,
            _ => Change::None,
        }
    }
}

/// A call.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Where it returns to.
    to: u64,
    /// Tracing ended with it.
    is_end: bool,
}

/// The calls of a thread, the oldest first.
#[derive(Clone, Default, Debug)]
pub struct Calls {
    calls: VecDeque<Call>,
    /// How many older ones were dropped.
    dropped: usize,
    /// How many of them return to each address: a return to another one is not searched for among all of them.
    returns: HashMap<u64, u32, RandomState>,
    /// How many calls were left when one had returned to an address.
    depths: HashMap<u64, usize, RandomState>,
}

/// The most calls that are kept; the oldest are dropped. No chain has more than 1,024.
const MOST: usize = 1 << 16;

/// The most addresses of which the depth is kept.
const MOST_DEPTHS: usize = 1 << 16;

impl Calls {
    /// A branch goes to `to`, 0 if that is not traced. `ends` tells that tracing ends with it.
    pub fn branch(&mut self, to: u64, change: Change, ends: bool) {
        match change {
            Change::Begin => {
                let open = self.calls.iter().rposition(|call| !call.is_end).map_or(0, |at| at + 1);
                self.truncate(open);
            }
            _ if to == 0 => {}
            // The code asks for its own address.
            Change::Call(behind) if behind == to => {}
            Change::Call(behind) => {
                if self.calls.len() == MOST {
                    let oldest = self.calls.pop_front();
                    oldest.into_iter().for_each(|call| self.forget(call.to));
                    self.dropped += 1;
                    self.depths.clear();
                }
                self.calls.push_back(Call { to: behind, is_end: ends });
                *self.returns.entry(behind).or_default() += 1;
            }
            Change::Return => {
                // A return to a call that was not seen changes nothing.
                if self.returns.contains_key(&to)
                    && let Some(at) = self.calls.iter().rposition(|call| call.to == to)
                {
                    self.truncate(at);
                    if self.depths.len() == MOST_DEPTHS {
                        self.depths.clear();
                    }
                    self.depths.insert(to, at);
                }
            }
            Change::Jump => {
                if let Some(&depth) = self.depths.get(&to) {
                    self.truncate(depth);
                }
            }
            Change::None => {}
        }
    }

    /// How many calls have not returned.
    pub fn depth(&self) -> usize {
        self.dropped + self.calls.len()
    }

    /// Drops the newest calls, but for so many.
    pub fn cut(&mut self, depth: usize) {
        self.truncate(depth.saturating_sub(self.dropped));
    }

    /// Drops the newest calls, but for so many that are kept.
    fn truncate(&mut self, count: usize) {
        while self.calls.len() > count {
            let newest = self.calls.pop_back();
            newest.into_iter().for_each(|call| self.forget(call.to));
        }
    }

    /// A call that returns to an address is dropped.
    fn forget(&mut self, to: u64) {
        if let Entry::Occupied(mut count) = self.returns.entry(to) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// The chain of at most `most` addresses from `ip` on, with its markers.
    pub fn chain(&self, ip: u64, most: usize) -> Vec<u64> {
        let calls = self.calls.iter().rev().map(|call| call.to);
        chain_of(std::iter::once(ip).chain(calls), most)
    }

    /// That of a sample at `ip` which was taken some time after the event, as perf makes it: without `ip`, and without the
    /// calls in the kernel behind it. Empty if there is nothing else.
    pub fn chain_before(&self, ip: u64, most: usize) -> Vec<u64> {
        let calls = self.calls.iter().rev().map(|call| call.to);
        chain_of(calls.skip_while(|to| *to >= KERNEL_START && *to != ip), most)
    }
}

/// So many of these addresses, with a marker for each level.
fn chain_of(addresses: impl Iterator<Item = u64>, most: usize) -> Vec<u64> {
    let (mut chain, mut last) = (Vec::new(), None);
    for address in addresses {
        let next = if address >= KERNEL_START { Marker::KERNEL } else { Marker::USER };
        let is_new = last.replace(next) != Some(next);
        // A marker counts, too, and an address follows it.
        if chain.len() + if is_new { 2 } else { 1 } > most + 1 {
            break;
        }
        chain.extend(is_new.then_some(next.0));
        chain.push(address);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(changes: &[(u64, Change)]) -> Vec<u64> {
        let mut calls = Calls::default();
        changes.iter().for_each(|(to, change)| calls.branch(*to, *change, false));
        calls.chain(1, 16)[2..].to_vec()
    }

    #[test]
    fn a_return_pops_what_is_above_its_call() {
        let three = [(10, Change::Call(1)), (20, Change::Call(2)), (30, Change::Call(3))];
        assert_eq!(calls(&three), [3, 2, 1]);
        assert_eq!(calls(&[&three[..], &[(2, Change::Return)]].concat()), [1]);
        assert_eq!(calls(&[&three[..], &[(7, Change::Return)]].concat()), [3, 2, 1]);
        assert_eq!(calls(&[(5, Change::Call(5)), (0, Change::Call(6))]), []);
    }

    #[test]
    fn a_recursive_call_returns_once_for_each_time() {
        let twice = [(10, Change::Call(1)), (10, Change::Call(1))];
        assert_eq!(calls(&[&twice[..], &[(1, Change::Return)]].concat()), [1]);
        assert_eq!(calls(&[&twice[..], &[(1, Change::Return); 3]].concat()), []);
        assert_eq!(calls(&[&twice[..], &[(1, Change::Return); 2], &twice].concat()), [1, 1]);
    }

    #[test]
    fn longjmp_pops_to_the_frame_that_called_setjmp() {
        let called = [(10, Change::Call(1)), (90, Change::Call(2)), (2, Change::Return)];
        let deeper = [(20, Change::Call(3)), (20, Change::Call(4)), (95, Change::Call(5))];
        assert_eq!(calls(&[&called[..], &deeper, &[(2, Change::Jump)]].concat()), [1]);
        assert_eq!(calls(&[&called[..], &deeper, &[(50, Change::Jump)]].concat()), [5, 4, 3, 1]);
    }

    #[test]
    fn the_chain_before_a_sample_lacks_the_kernel_behind_it() {
        let kernel = KERNEL_START + 1;
        let mut calls = Calls::default();
        [(kernel, 1), (kernel, 2), (kernel, kernel + 5), (kernel, kernel + 9)]
            .iter()
            .for_each(|(to, behind)| calls.branch(*to, Change::Call(*behind), false));
        let [in_kernel, in_user] = [Marker::KERNEL.0, Marker::USER.0];
        assert_eq!(calls.chain_before(7, 16), [in_user, 2, 1]);
        assert_eq!(calls.chain_before(kernel + 5, 16), [in_kernel, kernel + 5, in_user, 2, 1]);
        assert_eq!(calls.chain_before(kernel + 5, 3), [in_kernel, kernel + 5, in_user, 2]);
        assert_eq!(calls.chain_before(kernel + 7, 1), [in_user, 2]);
        assert_eq!(Calls::default().chain_before(7, 16), []);
    }

    #[test]
    fn a_chain_has_a_marker_for_each_level() {
        let kernel = KERNEL_START + 1;
        let mut calls = Calls::default();
        [(kernel, 1), (kernel, 2), (kernel, kernel + 5)]
            .iter()
            .for_each(|(to, behind)| calls.branch(*to, Change::Call(*behind), false));
        let [in_kernel, in_user] = [Marker::KERNEL.0, Marker::USER.0];
        assert_eq!(calls.chain(kernel, 16), [in_kernel, kernel, kernel + 5, in_user, 2, 1]);
        assert_eq!(calls.chain(kernel, 3), [in_kernel, kernel, kernel + 5]);
        assert_eq!(calls.chain(kernel, 4), [in_kernel, kernel, kernel + 5, in_user, 2][..5]);
    }
}
