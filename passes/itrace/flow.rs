//! Makes the raw data of branch samples: perf's flags of the last branch of a block.

use perfx_format::sample::FlowFlags;
use perfx_trace::Kind;

/// The flags of an interrupt.
pub(super) const INTERRUPTED: u32 =
    FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::ASYNC | FlowFlags::INTERRUPT;

/// The flags of an exit from a guest.
pub(super) const LEFT_GUEST: u32 =
    FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::ASYNC | FlowFlags::GUEST_EXIT;

/// The flags of an AArch64 exception other than a call, by its type in ETMv4 or ETE packets. perf
/// distinguishes those caused by an instruction (trap, alignment, faults) from external ones: reset, debug
/// halt, system error, instruction and data debug, IRQ, FIQ.
pub(super) fn exception_flow(number: u16) -> u32 {
    const FROM_OUTSIDE: [u16; 7] = [0, 1, 4, 6, 7, 14, 15];
    if FROM_OUTSIDE.contains(&number) { INTERRUPTED } else { INTERRUPTED & !FlowFlags::ASYNC }
}

pub(super) fn flow(kind: Kind) -> u32 {
    match kind {
        Kind::Conditional => FlowFlags::BRANCH | FlowFlags::CONDITIONAL,
        Kind::Jump | Kind::IndirectJump | Kind::FarJump | Kind::Barrier => FlowFlags::BRANCH,
        Kind::Call | Kind::IndirectCall | Kind::FarCall => FlowFlags::BRANCH | FlowFlags::CALL,
        Kind::Return | Kind::FarReturn => FlowFlags::BRANCH | FlowFlags::RETURN,
        Kind::SystemCall => FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::SYSCALL,
        Kind::SystemReturn => FlowFlags::BRANCH | FlowFlags::RETURN | FlowFlags::SYSCALL,
        Kind::Interrupt => FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::INTERRUPT,
        Kind::InterruptReturn => FlowFlags::BRANCH | FlowFlags::RETURN | FlowFlags::INTERRUPT,
        Kind::GuestEntry => FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::GUEST_ENTRY,
        Kind::Next | Kind::NoCode | Kind::BadCode => 0,
    }
}

/// The class of a branch for the letters `c` and `r`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Call,
    Return,
    /// Tracing begins or ends.
    Begin,
    End,
    /// Either of them: perf selects both for CoreSight.
    Edge,
    /// An unconditional jump: it may lead to another function.
    Jump,
    Other,
}

impl Class {
    pub(super) fn of(kind: Kind) -> Class {
        match kind {
            Kind::GuestEntry => Class::Call,
            Kind::Jump | Kind::IndirectJump | Kind::FarJump => Class::Jump,
            kind if kind.is_call() => Class::Call,
            kind if kind.is_return() => Class::Return,
            _ => Class::Other,
        }
    }
}

/// The call depth after a branch with these flags. A return counts for the call that it ended.
pub(super) fn depth_words(flow: u32, depth: usize) -> [u32; 2] {
    [depth as u32 + u32::from(flow & FlowFlags::RETURN != 0), 0]
}

/// A 32-bit word, then a 64-bit one.
pub(super) fn with_word(first: u32, word: u64) -> [u32; 3] {
    [first, word as u32, (word >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_come_from_outside_or_from_an_instruction() {
        for (numbers, name) in [([0, 1, 4, 6, 7, 14, 15], "hw int"), ([2, 3, 8, 10, 11, 12, 16], "int")] {
            for number in numbers {
                assert_eq!(FlowFlags(exception_flow(number)).text(), name, "{number}");
            }
        }
    }
}
