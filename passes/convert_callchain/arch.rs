//! What differs between the architectures whose stacks can be unwound.

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Module, Unwinder};
use perfx_format::Bytes;
use perfx_format::sample::Regs;
use perfx_format::sample::registers::{ARM64_FP, ARM64_LR, ARM64_PC, ARM64_SP, X86_BP, X86_IP, X86_SP};
use symbols::Arch;

/// An architecture.
pub(super) trait Architecture: Sized + Send + Sync + 'static {
    /// The registers that unwinding needs.
    type Regs: Copy + Send;
    /// The unwinding rules found so far, by address.
    type Cache: Default + Send;
    /// Unwinds by the tables of one file.
    type Unwinder: Unwinder<UnwindRegs = Self::Regs, Cache = Self::Cache, Module = Module<Bytes>>
        + Default
        + Send
        + Sync;

    /// As in the header of an ELF file.
    const ARCH: Arch;

    /// The instruction pointer, the stack pointer and the registers of a sample; `None` if it does not have
    /// them.
    fn start(regs: &Regs<'_>) -> Option<(u64, u64, Self::Regs)>;

    /// The stack pointer.
    fn sp(regs: &Self::Regs) -> u64;

    /// The instruction pointer and the registers of the code that a signal interrupted. `sp` is the stack
    /// pointer on return from the signal handler.
    fn interrupted(sp: u64, read: impl Fn(u64) -> Result<u64, ()>) -> Result<(u64, Self::Regs), ()>;
}

/// x86-64.
pub(super) struct X86_64;

impl Architecture for X86_64 {
    type Regs = UnwindRegsX86_64;
    type Cache = CacheX86_64;
    type Unwinder = UnwinderX86_64<Bytes>;

    const ARCH: Arch = Arch::X86_64;

    fn start(regs: &Regs<'_>) -> Option<(u64, u64, UnwindRegsX86_64)> {
        let (ip, sp, bp) = (regs.get(X86_IP)?, regs.get(X86_SP)?, regs.get(X86_BP)?);
        Some((ip, sp, UnwindRegsX86_64::new(ip, sp, bp)))
    }

    fn sp(regs: &UnwindRegsX86_64) -> u64 {
        regs.sp()
    }

    fn interrupted(sp: u64, read: impl Fn(u64) -> Result<u64, ()>) -> Result<(u64, UnwindRegsX86_64), ()> {
        // struct rt_sigframe of arch/x86, without its first word, which the return has taken: struct
        // ucontext, whose mcontext_t begins at 40, and in that rbp, rsp and rip are words 10, 15 and 16.
        let word = |number: u64| read(sp.wrapping_add(40 + 8 * number));
        let (bp, sp, ip) = (word(10)?, word(15)?, word(16)?);
        Ok((ip, UnwindRegsX86_64::new(ip, sp, bp)))
    }
}

/// 64-bit Arm.
pub(super) struct Aarch64;

/// Pointers to code have 48 bits; above these, return addresses may have a code that authenticates them.
const POINTER: PtrAuthMask = PtrAuthMask((1 << 48) - 1);

impl Architecture for Aarch64 {
    type Regs = UnwindRegsAarch64;
    type Cache = CacheAarch64;
    type Unwinder = UnwinderAarch64<Bytes>;

    const ARCH: Arch = Arch::Aarch64;

    fn start(regs: &Regs<'_>) -> Option<(u64, u64, UnwindRegsAarch64)> {
        let (pc, sp) = (regs.get(ARM64_PC)?, regs.get(ARM64_SP)?);
        let (fp, lr) = (regs.get(ARM64_FP)?, regs.get(ARM64_LR)?);
        Some((pc, sp, UnwindRegsAarch64::new_with_ptr_auth_mask(POINTER, lr, sp, fp)))
    }

    fn sp(regs: &UnwindRegsAarch64) -> u64 {
        regs.sp()
    }

    fn interrupted(sp: u64, read: impl Fn(u64) -> Result<u64, ()>) -> Result<(u64, UnwindRegsAarch64), ()> {
        // struct rt_sigframe of arch/arm64: struct siginfo of 128 bytes; struct ucontext, whose struct
        // sigcontext begins at 176 with a word before x0; and behind x30 are sp and pc.
        let word = |number: u32| read(sp.wrapping_add(128 + 176 + 8 + 8 * u64::from(number)));
        let (fp, lr, sp, pc) = (word(ARM64_FP)?, word(ARM64_LR)?, word(ARM64_SP)?, word(ARM64_PC)?);
        Ok((pc, UnwindRegsAarch64::new_with_ptr_auth_mask(POINTER, lr, sp, fp)))
    }
}
