//! The numbers of the registers that unwinding begins with, as bits of `attr.sample_regs_user`
//! (arch/x86/include/uapi/asm/perf_regs.h, arch/arm64/include/uapi/asm/perf_regs.h).

/// x86-64: the frame pointer, rbp.
pub const X86_BP: u32 = 6;
/// x86-64: the stack pointer, rsp.
pub const X86_SP: u32 = 7;
/// x86-64: the instruction pointer, rip.
pub const X86_IP: u32 = 8;
/// aarch64: the frame pointer, x29.
pub const ARM64_FP: u32 = 29;
/// aarch64: the link register, x30.
pub const ARM64_LR: u32 = 30;
/// aarch64: the stack pointer.
pub const ARM64_SP: u32 = 31;
/// aarch64: the program counter.
pub const ARM64_PC: u32 = 32;

/// `abi` of user registers: there are none, because the task has no user side.
pub const ABI_NONE: u64 = 0;
/// `abi` of user registers: those of a 64-bit task.
pub const ABI_64: u64 = 2;
