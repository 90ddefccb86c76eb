//! What differs between the architectures whose stacks can be unwound.

use perfx_format::sample::Regs;
use perfx_format::sample::registers::{ARM64_DWARF, X86_DWARF};
use symbols::Arch;

/// The DWARF number of a register.
pub(super) type Number = u8;

/// How many registers there are: those of aarch64, up to its program counter.
pub(super) const REGISTERS: usize = 33;

/// An architecture.
#[derive(Debug)]
pub(super) struct Architecture {
    /// As in the header of an ELF file.
    pub(super) arch: Arch,
    /// The DWARF numbers of the recorded registers, by the kernel's numbers.
    recorded: &'static [Option<Number>],
    pub(super) pc: Number,
    pub(super) sp: Number,
    pub(super) fp: Number,
    /// The column of the tables with the rule for the return address.
    pub(super) return_address: Number,
    /// The registers that callers get back: first the return address, then the frame pointer.
    pub(super) saved: &'static [Number],
    /// A bit for each of these, and for the stack pointer.
    pub(super) kept: u64,
    /// A call puts the return address on the stack, not into a register.
    pub(super) call_pushes: bool,
    /// The bits of a pointer to code. Above these, return addresses may have a code that authenticates them.
    pointer: u64,
    /// The distance from the stack pointer, on return from a signal handler, to the registers of the code that
    /// the signal interrupted; in bytes.
    interrupted: u64,
    /// The order of these registers, of 8 bytes each.
    order: &'static [Number],
}

/// The most registers that callers get back.
pub(super) const MOST_SAVED: usize = 7;

/// x86-64.
pub(super) static X86_64: Architecture = Architecture {
    arch: Arch::X86_64,
    recorded: &X86_DWARF,
    pc: 16,
    sp: 7,
    fp: 6,
    return_address: 16,
    // rbp, rbx and r12 to r15.
    saved: &[16, 6, 3, 12, 13, 14, 15],
    kept: 0b1_1111_0000_1100_1000,
    call_pushes: true,
    pointer: u64::MAX,
    // struct rt_sigframe of arch/x86, without its first word, which the return has taken: struct ucontext,
    // whose mcontext_t begins at 40: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
    interrupted: 40,
    order: &[8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16],
};

/// 64-bit Arm.
pub(super) static AARCH64: Architecture = Architecture {
    arch: Arch::Aarch64,
    recorded: &ARM64_DWARF,
    pc: 32,
    sp: 31,
    fp: 29,
    return_address: 30,
    // Compilers use no others to find frames.
    saved: &[30, 29, 19],
    kept: 1 << 31 | 1 << 30 | 1 << 29 | 1 << 19,
    call_pushes: false,
    pointer: (1 << 48) - 1,
    // struct rt_sigframe of arch/arm64: struct siginfo of 128 bytes; struct ucontext, whose struct sigcontext
    // begins at 176 with a word before x0; and behind x30 are sp and pc.
    interrupted: 128 + 176 + 8,
    order: &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31, 32,
    ],
};

/// The registers of a frame, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    values: [u64; REGISTERS],
    /// A bit for each that is known.
    known: u64,
}

impl Registers {
    pub(super) const UNKNOWN: Registers = Registers { values: [0; REGISTERS], known: 0 };

    /// Those of a sample.
    pub(super) fn recorded(regs: &Regs<'_>, arch: &Architecture) -> Registers {
        let mut found = Registers::UNKNOWN;
        for (number, value) in regs.iter() {
            if let Some(&Some(number)) = arch.recorded.get(number as usize) {
                found.set(number, value);
            }
        }
        found
    }

    /// Those of the code that a signal interrupted. `sp` is the stack pointer on return from the handler.
    pub(super) fn interrupted(
        sp: u64,
        arch: &Architecture,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let mut found = Registers::UNKNOWN;
        for (&number, at) in arch.order.iter().zip((sp.wrapping_add(arch.interrupted)..).step_by(8)) {
            match read(at) {
                Some(value) => found.set(number, value),
                None => found.forget(number),
            }
        }
        found.get(arch.sp).and(found.get(arch.pc)).map(|_| found)
    }

    #[inline]
    pub(super) fn get(&self, number: Number) -> Option<u64> {
        let is_known = self.known.checked_shr(number.into()).unwrap_or(0) & 1 == 1;
        self.values.get(usize::from(number)).copied().filter(|_| is_known)
    }

    /// `number` is one of the architecture's.
    #[inline]
    pub(super) fn set(&mut self, number: Number, value: u64) {
        self.values[usize::from(number)] = value;
        self.known |= 1 << number;
    }

    pub(super) fn forget(&mut self, number: Number) {
        self.known &= !(1 << number);
    }

    /// Forgets all but these.
    #[inline]
    pub(super) fn keep(&mut self, mask: u64) {
        self.known &= mask;
    }
}

impl Architecture {
    /// A code pointer without its authentication code.
    #[inline]
    pub(super) fn pointer(&self, value: u64) -> u64 {
        value & self.pointer
    }
}
