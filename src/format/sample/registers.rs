//! The numbers of user registers, as bits of `attr.sample_regs_user`
//! (arch/x86/include/uapi/asm/perf_regs.h, arch/arm64/include/uapi/asm/perf_regs.h), and those of DWARF.

/// x86-64: by the kernel's number, the number of DWARF (System V ABI, AMD64 supplement, figure 3.36). Flags and
/// segments have none here, because no frame is found by them.
pub const X86_DWARF: [Option<u8>; 24] = [
    Some(0),
    Some(3),
    Some(2),
    Some(1),
    Some(4),
    Some(5),
    Some(6),
    Some(7),
    Some(16),
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    Some(8),
    Some(9),
    Some(10),
    Some(11),
    Some(12),
    Some(13),
    Some(14),
    Some(15),
];

/// aarch64: x0 to x30, sp and pc have the same number in DWARF.
pub const ARM64_DWARF: [Option<u8>; 33] = {
    let mut numbers = [None; 33];
    let mut number = 0;
    while number < 33 {
        numbers[number] = Some(number as u8);
        number += 1;
    }
    numbers
};

/// `abi` of user registers: there are none, because the task has no user side.
pub const ABI_NONE: u64 = 0;
/// `abi` of user registers: those of a 64-bit task.
pub const ABI_64: u64 = 2;
