//! The differences between the architectures whose stacks can be unwound.

use perfx_format::sample::Regs;
use perfx_format::sample::registers::{
    ABI_32, ABI_64, ARM_DWARF, ARM64_DWARF, I386_DWARF, PPC64_DWARF, RISCV_DWARF, S390X_DWARF, X86_64_DWARF,
};
use symbols::{Arch, SignalFrame};

/// The index of a register: its DWARF number, or the one that [`Architecture::place`] assigns.
pub(crate) type Number = u8;

/// s390x and PowerPC have the most, with the program counter.
pub(crate) const REGISTERS: usize = 34;

#[derive(Debug)]
pub(crate) struct Architecture {
    pub(crate) arch: Arch,
    /// The DWARF numbers of the recorded registers, by the kernel's numbers.
    recorded: &'static [Option<Number>],
    /// The indices of registers whose DWARF numbers are too large.
    places: &'static [(u16, Number)],
    /// Bytes.
    pub(crate) word: u8,
    pub(crate) pc: Number,
    pub(crate) sp: Number,
    pub(crate) fp: Number,
    /// The column of the tables with the rule for the return address, except in signal frames.
    pub(crate) return_address: Number,
    /// The registers that are restored for callers: first the return address, then the frame pointer.
    pub(crate) saved: &'static [Number],
    /// A bit for the stack pointer and for each of these that still has the caller's value after a call.
    pub(crate) kept: u64,
    /// A call puts the return address on the stack, not into a register.
    pub(crate) call_pushes: bool,
    /// The distance from the caller's stack pointer up to the canonical frame address, in bytes.
    pub(crate) cfa_above_sp: u64,
    /// The distance from the frame pointer, if code has one, up to the canonical frame address, in words; the
    /// return address and the caller's frame pointer are right below that address. `None`: compilers differ.
    pub(crate) frame_record: Option<u8>,
    /// The address bits of a pointer to code. Others may authenticate it, or give the code's encoding.
    pointer: u64,
    /// The registers of the interrupted code in the frame of a signal handler: the distance in bytes from the
    /// stack pointer on return from the handler, and the order of the registers, one word each.
    interrupted: &'static [(SignalFrame, u64, &'static [Number])],
}

/// Maximum number of registers that are restored for callers.
pub(crate) const MOST_SAVED: usize = 7;

const fn bits(numbers: &[Number]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < numbers.len() {
        bits |= 1 << numbers[at];
        at += 1;
    }
    bits
}

pub(crate) static X86_64: Architecture = Architecture {
    arch: Arch::X86_64,
    recorded: &X86_64_DWARF,
    places: &[],
    word: 8,
    pc: 16,
    sp: 7,
    fp: 6,
    return_address: 16,
    // rbp, rbx and r12 to r15.
    saved: &[16, 6, 3, 12, 13, 14, 15],
    kept: bits(&[16, 6, 3, 12, 13, 14, 15, 7]),
    call_pushes: true,
    cfa_above_sp: 0,
    frame_record: Some(2),
    pointer: u64::MAX,
    // struct rt_sigframe of arch/x86 after its first word, popped by the return: struct ucontext with
    // mcontext_t at 40: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
    interrupted: &[(SignalFrame::Rt, 40, &[8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16])],
};

pub(crate) static I386: Architecture = Architecture {
    arch: Arch::I386,
    recorded: &I386_DWARF,
    places: &[],
    word: 4,
    pc: 8,
    sp: 4,
    fp: 5,
    return_address: 8,
    // ebp, ebx, esi and edi.
    saved: &[8, 5, 3, 6, 7],
    kept: bits(&[8, 5, 3, 6, 7, 4]),
    call_pushes: true,
    cfa_above_sp: 0,
    frame_record: Some(2),
    pointer: u32::MAX as u64,
    interrupted: &[],
};

pub(crate) static AARCH64: Architecture = Architecture {
    arch: Arch::Aarch64,
    recorded: &ARM64_DWARF,
    places: &[],
    word: 8,
    pc: 32,
    sp: 31,
    fp: 29,
    return_address: 30,
    // Compilers use no others to locate frames.
    saved: &[30, 29, 19],
    kept: bits(&[29, 19, 31]),
    call_pushes: false,
    cfa_above_sp: 0,
    frame_record: Some(2),
    pointer: (1 << 48) - 1,
    // struct rt_sigframe of arch/arm64: struct siginfo of 128 bytes; struct ucontext, whose struct sigcontext
    // begins at 176 with a word before x0; after x30 come sp and pc.
    interrupted: &[(
        SignalFrame::Rt,
        128 + 176 + 8,
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            27, 28, 29, 30, 31, 32,
        ],
    )],
};

pub(crate) static ARM: Architecture = Architecture {
    arch: Arch::Arm,
    recorded: &ARM_DWARF,
    places: &[],
    word: 4,
    pc: 15,
    sp: 13,
    fp: 11,
    return_address: 14,
    // Frame pointers are r11, and r7 in Thumb code.
    saved: &[14, 11, 7, 4, 5, 6, 8],
    kept: bits(&[11, 7, 4, 5, 6, 8, 13]),
    call_pushes: false,
    cfa_above_sp: 0,
    frame_record: None,
    // In Thumb code, the lowest bit of a return address is set.
    pointer: u32::MAX as u64 & !1,
    interrupted: &[],
};

pub(crate) static RISCV64: Architecture = Architecture {
    arch: Arch::Riscv64,
    recorded: &RISCV_DWARF,
    places: &[(64, 32)],
    word: 8,
    pc: 32,
    sp: 2,
    fp: 8,
    return_address: 1,
    // s0 to s5.
    saved: &[1, 8, 9, 18, 19, 20, 21],
    kept: bits(&[8, 9, 18, 19, 20, 21, 2]),
    call_pushes: false,
    cfa_above_sp: 0,
    frame_record: Some(0),
    pointer: u64::MAX,
    // struct rt_sigframe of arch/riscv: siginfo (128 bytes); ucontext, with mcontext_t at 176: pc, x1 to x31.
    interrupted: &[(
        SignalFrame::Rt,
        128 + 176,
        &[
            32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
            26, 27, 28, 29, 30, 31,
        ],
    )],
};

pub(crate) static PPC64: Architecture = Architecture {
    arch: Arch::Ppc64,
    recorded: &PPC64_DWARF,
    // lr; nip in signal frames.
    places: &[(65, 32), (67, 33)],
    word: 8,
    pc: 33,
    sp: 1,
    fp: 31,
    return_address: 32,
    saved: &[32, 31, 30, 29, 28, 27, 26],
    kept: bits(&[31, 30, 29, 28, 27, 26, 1]),
    call_pushes: false,
    cfa_above_sp: 0,
    frame_record: None,
    pointer: u64::MAX,
    interrupted: &[],
};

pub(crate) static S390X: Architecture = Architecture {
    arch: Arch::S390x,
    recorded: &S390X_DWARF,
    places: &[(64, 32), (65, 33)],
    word: 8,
    pc: 33,
    sp: 15,
    fp: 11,
    return_address: 14,
    saved: &[14, 11, 12, 13, 10, 9, 8],
    kept: bits(&[11, 12, 13, 10, 9, 8, 15]),
    call_pushes: false,
    // Each function reserves room there for the registers saved by its callees.
    cfa_above_sp: 160,
    frame_record: None,
    pointer: u64::MAX,
    // struct rt_sigframe of arch/s390: that room; an instruction; struct siginfo of 128 bytes at 168; struct
    // ucontext, whose _sigregs begin at 40 with the mask and the address of the program status word, and r0
    // to r15. struct sigframe: that room, struct sigcontext of 16 bytes, and _sigregs.
    interrupted: &[
        (SignalFrame::Rt, 168 + 128 + 40, &S390X_SIGREGS),
        (SignalFrame::Old, 160 + 16, &S390X_SIGREGS),
    ],
};

static S390X_SIGREGS: [Number; 18] = [32, 33, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Architectures {
    of_64_bits: Option<&'static Architecture>,
    of_32_bits: Option<&'static Architecture>,
}

impl Architectures {
    pub(crate) const NAMES: &'static str = "x86_64, i386, aarch64, arm, riscv64, ppc64 and s390x";

    pub(crate) fn of_machine(name: &str) -> Architectures {
        let (of_64_bits, of_32_bits) = match name {
            // A 32-bit perf may report a 32-bit name for its 64-bit kernel.
            "x86_64" | "i386" | "i486" | "i586" | "i686" => (Some(&X86_64), Some(&I386)),
            name if name.starts_with("arm") || name.starts_with("aarch64") => (Some(&AARCH64), Some(&ARM)),
            "riscv64" => (Some(&RISCV64), None),
            "ppc64" | "ppc64le" => (Some(&PPC64), None),
            "s390x" => (Some(&S390X), None),
            _ => (None, None),
        };
        Architectures { of_64_bits, of_32_bits }
    }

    pub(crate) fn of_task(&self, abi: u64) -> Option<&'static Architecture> {
        match abi {
            ABI_64 => self.of_64_bits,
            ABI_32 => self.of_32_bits,
            _ => None,
        }
    }

    /// True if perf records the link register with call chains by frame pointers.
    pub(crate) fn has_link_register(&self) -> bool {
        self.of_64_bits.is_some_and(|arch| arch.arch == Arch::Aarch64)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Architecture> {
        self.of_64_bits.into_iter().chain(self.of_32_bits)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    values: [u64; REGISTERS],
    known: u64,
}

impl Registers {
    pub(crate) const UNKNOWN: Registers = Registers { values: [0; REGISTERS], known: 0 };

    pub(crate) fn recorded(regs: &Regs<'_>, arch: &Architecture) -> Registers {
        let mut found = Registers::UNKNOWN;
        for (number, value) in regs.iter() {
            let dwarf = arch.recorded.get(number as usize).copied().flatten();
            if let Some(place) = dwarf.and_then(|dwarf| arch.place(dwarf.into())) {
                found.set(place, value);
            }
        }
        found
    }

    /// The registers of the code that a signal interrupted; `sp` on return from the handler.
    pub(crate) fn interrupted(
        sp: u64,
        frame: SignalFrame,
        arch: &Architecture,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let mut found = Registers::UNKNOWN;
        let (_, offset, order) = arch.interrupted.iter().find(|(known, ..)| *known == frame)?;
        let mut at = sp.wrapping_add(*offset);
        for &number in *order {
            let value = read(at);
            at = at.wrapping_add(arch.word.into());
            match value {
                Some(value) => found.set(number, value),
                None => found.forget(number),
            }
        }
        found.get(arch.sp).and(found.get(arch.pc)).map(|_| found)
    }

    #[inline]
    pub(crate) fn get(&self, number: Number) -> Option<u64> {
        let is_known = self.known.checked_shr(number.into()).unwrap_or(0) & 1 == 1;
        self.values.get(usize::from(number)).copied().filter(|_| is_known)
    }

    #[inline]
    pub(crate) fn set(&mut self, number: Number, value: u64) {
        self.values[usize::from(number)] = value;
        self.known |= 1 << number;
    }

    pub(crate) fn forget(&mut self, number: Number) {
        self.known &= !(1 << number);
    }

    #[inline]
    pub(crate) fn keep(&mut self, mask: u64) {
        self.known &= mask;
    }
}

impl Architecture {
    /// A code pointer without its authentication code.
    #[inline]
    pub(crate) fn pointer(&self, value: u64) -> u64 {
        value & self.pointer
    }

    /// The index of the register with this DWARF number; `None` if no frame needs it.
    pub(crate) fn place(&self, dwarf: u16) -> Option<Number> {
        if let Some(&(_, place)) = self.places.iter().find(|&&(number, _)| number == dwarf) {
            return Some(place);
        }
        let is_special = |place: u16| self.places.iter().any(|&(_, special)| u16::from(special) == place);
        Number::try_from(dwarf).ok().filter(|&number| usize::from(number) < REGISTERS && !is_special(dwarf))
    }

    /// The canonical frame address of a function with an unchanged stack pointer.
    pub(crate) fn cfa_of_leaf(&self, sp: u64) -> Option<u64> {
        let pushed = if self.call_pushes { u64::from(self.word) } else { 0 };
        sp.checked_add(pushed + self.cfa_above_sp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_registers_are_recorded_and_kept() {
        for machine in ["x86_64", "i686", "aarch64", "armv7l", "riscv64", "ppc64le", "s390x"] {
            for arch in Architectures::of_machine(machine).all() {
                assert!(arch.saved.len() <= MOST_SAVED, "{machine}");
                assert_eq!((arch.saved[0], arch.saved[1]), (arch.return_address, arch.fp), "{machine}");
                let all = arch.saved.iter().chain([&arch.pc, &arch.sp]);
                assert!(all.clone().all(|&number| usize::from(number) < REGISTERS), "{machine}");
                let kept = bits(arch.saved) | 1 << arch.sp;
                assert!(arch.kept & !kept == 0 && kept & !arch.kept & !(1 << arch.return_address) == 0);
                // The kernel's number of each is known.
                let recorded = |place| {
                    arch.recorded.iter().flatten().any(|&dwarf| arch.place(dwarf.into()) == Some(place))
                };
                assert!(all.into_iter().all(|&place| recorded(place)), "{machine}");
            }
        }
    }
}
