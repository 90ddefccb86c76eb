//! Keeps the open calls of a thread, as perf does (tools/perf/util/thread-stack.c), for call chains.
//!
//! perf keeps the frames that longjmp skips until an older one returns. Here they are popped: longjmp jumps
//! to a return address of an earlier call, that of setjmp, whose depth is known. Frames ended by an exception
//! are popped, too: it returns into the middle of the function that has a handler or destructors.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_format::record::cpumode::KERNEL_START;
use perfx_format::sample::Marker;
use perfx_trace::{Block, Kind};

use crate::functions::Function;

/// How a branch changes the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A call or interrupt that returns to this address.
    Call(u64),
    /// A return; the address is the end of the instruction.
    Return(u64),
    /// An indirect jump; the address is the end of the instruction.
    Jump(u64),
    /// Tracing begins.
    Begin,
    /// None of these.
    None,
}

impl Change {
    /// The change by the branch at the end of a block.
    pub fn of(block: &Block) -> Change {
        match block.kind {
            kind if kind.is_call() => Change::Call(block.next),
            kind if kind.is_return() => Change::Return(block.next),
            Kind::IndirectJump => Change::Jump(block.next),
            _ => Change::None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// Where it returns to.
    to: u64,
    is_end: bool,
    /// The function that called: `None` until it is looked up, `Some(None)` if unknown.
    caller: Option<Option<(u32, u64)>>,
}

/// The open calls of a thread, the oldest first.
#[derive(Clone, Default, Debug)]
pub struct Calls {
    calls: VecDeque<Call>,
    dropped: usize,
    /// The number of calls that return to each address: a return to any other needs no search. Most returns
    /// are to the newest call, so it is kept only for the next `counted` calls and returns.
    returns: HashMap<u64, u32, RandomState>,
    counted: usize,
    /// For each return address, the number of open calls after a return to it, unless it is in `noted`.
    depths: HashMap<u64, usize, RandomState>,
    /// The same for the last address with these lowest bits, or address 0; empty before the first one.
    noted: Vec<(u64, usize)>,
    /// By end and target of a jump: true if it leads into the middle of another function. Shared by copies.
    jumps: Arc<HashMap<(u64, u64), Option<bool>, RandomState>>,
}

/// Maximum number of kept calls; the oldest are dropped. No chain has more than 1,024.
const MOST: usize = 1 << 16;

/// Maximum size of `depths`, and of `jumps`.
const MOST_PLACES: usize = 1 << 16;

/// A power of two.
const NOTED: usize = 256;

/// The number of newest calls that are searched before the number of calls is looked up.
const NEWEST: usize = 4;

/// The number of newest calls among which a function is searched.
const SEARCHED: usize = 256;

/// An unmatched return pops the newest call if that returns to at most this many bytes before the end of the return
/// instruction: a retpoline calls itself, and overwrites the return address.
const RETPOLINE: u64 = 32;

impl Calls {
    /// Takes in a branch to `to`, which is 0 if the target is not traced. `ends` is true if tracing ends with
    /// the branch. `function` finds the function now at an address.
    pub fn branch(
        &mut self,
        to: u64,
        change: Change,
        ends: bool,
        function: impl Fn(u64) -> Option<Function>,
    ) {
        match change {
            Change::Begin => {
                let open = self.calls.iter().rposition(|call| !call.is_end).map_or(0, |at| at + 1);
                self.truncate(open);
            }
            _ if to == 0 => {}
            // A call of the next instruction, used to read the instruction pointer.
            Change::Call(next) if next == to => {}
            Change::Call(next) => {
                if self.calls.len() == MOST {
                    let oldest = self.calls.pop_front();
                    oldest.into_iter().for_each(|call| self.forget(call.to));
                    self.dropped += 1;
                    self.forget_depths();
                }
                self.calls.push_back(Call { to: next, is_end: ends, caller: None });
                if self.counted > 0 {
                    *self.returns.entry(next).or_default() += 1;
                    self.count_down();
                }
            }
            Change::Return(next) => match self.count_to(to) {
                Some(count) => {
                    self.truncate(count);
                    self.note(to, count);
                }
                None => {
                    let newest = self.calls.back().map_or(0, |call| next.wrapping_sub(call.to));
                    let is_own = (1..=RETPOLINE).contains(&newest);
                    let count = self.count_to_caller(to, &function);
                    let count = count.or_else(|| is_own.then(|| self.calls.len() - 1));
                    count.into_iter().for_each(|count| self.truncate(count));
                }
            },
            Change::Jump(next) => {
                let count = match self.leaves(next, to, &function) {
                    // A jump within a function pops nothing, even if a call returns to its target.
                    Some(false) => None,
                    Some(true) => {
                        let known = self.count_to(to).or_else(|| self.depth_at(to));
                        known.or_else(|| self.count_to_caller(to, &function))
                    }
                    None => self.depth_at(to),
                };
                count.into_iter().for_each(|count| self.truncate(count));
            }
            Change::None => {}
        }
    }

    /// The number of calls older than the newest one that returns to an address.
    fn count_to(&mut self, to: u64) -> Option<usize> {
        let older = self.calls.len().saturating_sub(NEWEST);
        if let Some(above) = self.calls.iter().rev().take(NEWEST).position(|call| call.to == to) {
            return Some(self.calls.len() - 1 - above);
        }
        if older > 0 && self.counted == 0 {
            self.calls.iter().for_each(|call| *self.returns.entry(call.to).or_default() += 1);
            // It takes as long as what is saved.
            self.counted = 4 * self.calls.len();
        }
        if older == 0 || !self.returns.contains_key(&to) {
            return None;
        }
        self.calls.range(..older).rposition(|call| call.to == to)
    }

    /// True if a call leaves all others open.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.calls.len() < MOST
    }

    /// Takes in a call and then the return to the address after it.
    #[inline]
    pub fn call_and_return(&mut self, to: u64) {
        self.note(to, self.calls.len());
    }

    /// Notes the number of open calls after a return to an address.
    #[inline]
    fn note(&mut self, to: u64, count: usize) {
        match self.noted.get_mut(to as usize % NOTED) {
            Some((known, noted)) if *known == to => *noted = count,
            _ => self.note_anew(to, count),
        }
    }

    #[cold]
    fn note_anew(&mut self, to: u64, count: usize) {
        if self.depths.len() >= MOST_PLACES {
            self.forget_depths();
        }
        self.noted.resize(NOTED, (0, 0));
        let (known, noted) = std::mem::replace(&mut self.noted[to as usize % NOTED], (to, count));
        if known != 0 {
            self.depths.insert(known, noted);
        }
    }

    /// The number of open calls after the last return to an address.
    fn depth_at(&self, to: u64) -> Option<usize> {
        match self.noted.get(to as usize % NOTED) {
            Some((known, noted)) if *known == to => Some(*noted),
            _ => self.depths.get(&to).copied(),
        }
    }

    fn forget_depths(&mut self) {
        self.depths.clear();
        self.noted.clear();
    }

    /// A call or return was counted.
    fn count_down(&mut self) {
        self.counted -= 1;
        if self.counted == 0 {
            self.returns.clear();
        }
    }

    /// True if the jump that ends at `next` leads into the middle of another function; `None` if unknown.
    fn leaves(&mut self, next: u64, to: u64, function: impl Fn(u64) -> Option<Function>) -> Option<bool> {
        if let Some(known) = self.jumps.get(&(next, to)) {
            return *known;
        }
        let here = function(to);
        let leaves = match here {
            Some(here) if here.start == to => Some(false),
            _ => function(next.wrapping_sub(1)).zip(here).map(|(from, here)| from.id != here.id),
        };
        let jumps = Arc::make_mut(&mut self.jumps);
        if jumps.len() == MOST_PLACES {
            jumps.clear();
        }
        jumps.insert((next, to), leaves);
        leaves
    }

    /// The number of calls before the newest one that the function around `to` made; its exception handler is
    /// there. The newest call of all is left out: the unwinder made it, and is never resumed.
    fn count_to_caller(&mut self, to: u64, function: impl Fn(u64) -> Option<Function>) -> Option<usize> {
        let here = function(to).filter(|here| here.start != to)?;
        let is_own = |call: &mut Call| {
            let caller = call.caller.get_or_insert_with(|| Some(function(call.to.wrapping_sub(1))?.id));
            *caller == Some(here.id)
        };
        let above = self.calls.iter_mut().rev().skip(1).take(SEARCHED).position(is_own)?;
        Some(self.calls.len() - 2 - above)
    }

    /// The number of open calls.
    pub fn depth(&self) -> usize {
        self.dropped + self.calls.len()
    }

    /// Keeps only the oldest `depth` calls.
    pub fn cut(&mut self, depth: usize) {
        self.truncate(depth.saturating_sub(self.dropped));
    }

    fn truncate(&mut self, count: usize) {
        while self.calls.len() > count {
            let newest = self.calls.pop_back();
            newest.into_iter().for_each(|call| self.forget(call.to));
        }
    }

    fn forget(&mut self, to: u64) {
        if self.counted == 0 {
            return;
        }
        if let Entry::Occupied(mut count) = self.returns.entry(to) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.count_down();
    }

    /// A chain of at most `most` addresses, starting with `ip`, and its markers.
    pub fn chain(&self, ip: u64, most: usize) -> Vec<u64> {
        let calls = self.calls.iter().rev().map(|call| call.to);
        chain_of(std::iter::once(ip).chain(calls), most)
    }

    /// The chain of a sample taken some time after its event, as perf makes it: without the newest calls of
    /// the kernel, up to the first that returns to `ip` or to user code. Empty if there is none.
    pub fn chain_before(&self, ip: u64, most: usize) -> Vec<u64> {
        let calls = self.calls.iter().rev().map(|call| call.to);
        chain_of(calls.skip_while(|to| *to >= KERNEL_START && *to != ip), most)
    }
}

/// At most `most` addresses, with a marker for each level.
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
        changes.iter().for_each(|(to, change)| calls.branch(*to, *change, false, function));
        calls.chain(1, 16)[2..].to_vec()
    }

    /// Each has ten bytes, from 100 on; the one at 190 belongs to the one at 110.
    fn function(ip: u64) -> Option<Function> {
        let start = ip / 10 * 10;
        let id = (0, if start == 190 { 110 } else { start });
        (ip >= 100).then_some(Function { start, id })
    }

    #[test]
    fn a_return_pops_what_is_above_its_call() {
        let three = [(10, Change::Call(1)), (20, Change::Call(2)), (30, Change::Call(3))];
        assert_eq!(calls(&three), [3, 2, 1]);
        assert_eq!(calls(&[&three[..], &[(2, Change::Return(99))]].concat()), [1]);
        assert_eq!(calls(&[&three[..], &[(7, Change::Return(99))]].concat()), [3, 2, 1]);
        assert_eq!(calls(&[(5, Change::Call(5)), (0, Change::Call(6))]), []);
    }

    #[test]
    fn a_recursive_call_returns_once_for_each_time() {
        let twice = [(10, Change::Call(1)), (10, Change::Call(1))];
        assert_eq!(calls(&[&twice[..], &[(1, Change::Return(99))]].concat()), [1]);
        assert_eq!(calls(&[&twice[..], &[(1, Change::Return(99)); 3]].concat()), []);
        assert_eq!(calls(&[&twice[..], &[(1, Change::Return(99)); 2], &twice].concat()), [1, 1]);
    }

    #[test]
    fn a_return_finds_its_call_at_any_depth() {
        let (mut calls, mut open, mut random) = (Calls::default(), Vec::new(), 1_u64);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = 1 + (random >> 33) % 300;
            if random >> 60 < 12 {
                calls.branch(1000, Change::Call(place), false, |_| None);
                open.push(place);
            } else {
                calls.branch(place, Change::Return(1 << 40), false, |_| None);
                open.truncate(open.iter().rposition(|call| *call == place).unwrap_or(open.len()));
            }
            assert_eq!(calls.depth(), open.len());
        }
    }

    #[test]
    fn longjmp_pops_to_the_frame_that_called_setjmp() {
        let called = [(10, Change::Call(1)), (90, Change::Call(2)), (2, Change::Return(99))];
        let deeper = [(20, Change::Call(3)), (20, Change::Call(4)), (95, Change::Call(5))];
        assert_eq!(calls(&[&called[..], &deeper, &[(2, Change::Jump(99))]].concat()), [1]);
        assert_eq!(calls(&[&called[..], &deeper, &[(50, Change::Jump(99))]].concat()), [5, 4, 3, 1]);
    }

    /// A frame used to stay until the function with the handler returned.
    #[test]
    fn an_exception_ends_the_calls_above_its_handler() {
        let called = [(100, 5), (110, 103), (110, 115), (120, 116), (130, 125)];
        let called = called.map(|(to, next)| (to, Change::Call(next)));
        assert_eq!(calls(&called), [125, 116, 115, 103, 5]);
        // The handler of the function at 110 is at 190: the newest call handles it, and then the next.
        let thrown = [&called[..], &[(195, Change::Return(139))]].concat();
        assert_eq!(calls(&thrown), [115, 103, 5]);
        let resumed = [(130, Change::Call(199)), (195, Change::Return(139))];
        assert_eq!(calls(&[&thrown[..], &resumed].concat()), [103, 5]);
        assert_eq!(calls(&[&called[..], &[(195, Change::Jump(139))]].concat()), [115, 103, 5]);
        // The beginning of a function, and a function that has not called.
        assert_eq!(calls(&[&called[..], &[(110, Change::Return(239))]].concat()), [125, 116, 115, 103, 5]);
        assert_eq!(calls(&[&called[..], &[(145, Change::Return(239))]].concat()), [125, 116, 115, 103, 5]);
    }

    #[test]
    fn a_retpoline_is_left_with_its_call() {
        let called = [(170, Change::Call(105)), (177, Change::Call(173))];
        assert_eq!(calls(&[&called[..], &[(120, Change::Return(182))]].concat()), [105]);
    }

    #[test]
    fn a_jump_to_a_label_behind_a_call_of_the_same_function_ends_no_call() {
        let called = [(110, Change::Call(5)), (110, Change::Call(115))];
        assert_eq!(calls(&[&called[..], &[(115, Change::Jump(113))]].concat()), [115, 5]);
        // A jump from another stack, as goroutines have.
        assert_eq!(calls(&[&called[..], &[(115, Change::Jump(133))]].concat()), [5]);
    }

    #[test]
    fn the_chain_before_a_sample_lacks_the_kernel_behind_it() {
        let kernel = KERNEL_START + 1;
        let mut calls = Calls::default();
        [(kernel, 1), (kernel, 2), (kernel, kernel + 5), (kernel, kernel + 9)]
            .iter()
            .for_each(|(to, next)| calls.branch(*to, Change::Call(*next), false, function));
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
            .for_each(|(to, next)| calls.branch(*to, Change::Call(*next), false, function));
        let [in_kernel, in_user] = [Marker::KERNEL.0, Marker::USER.0];
        assert_eq!(calls.chain(kernel, 16), [in_kernel, kernel, kernel + 5, in_user, 2, 1]);
        assert_eq!(calls.chain(kernel, 3), [in_kernel, kernel, kernel + 5]);
        assert_eq!(calls.chain(kernel, 4), [in_kernel, kernel, kernel + 5, in_user, 2][..5]);
    }
}
