//! The numbers of user registers, as bits of `attr.sample_regs_user` (arch/ARCH/include/uapi/asm/perf_regs.h), and
//! those of DWARF (the ABI supplement of each architecture).

/// x86-64: by the kernel's number, the number of DWARF (System V ABI, AMD64 supplement, figure 3.36). Flags and
/// segments have none here, because no frame is found by them.
pub const X86_64_DWARF: [Option<u8>; 24] = {
    let ax_to_ip = [0, 3, 2, 1, 4, 5, 6, 7, 16];
    let mut numbers = [None; 24];
    let mut number = 0;
    while number < ax_to_ip.len() {
        numbers[number] = Some(ax_to_ip[number]);
        number += 1;
    }
    // r8 to r15.
    number = 16;
    while number < 24 {
        numbers[number] = Some(number as u8 - 8);
        number += 1;
    }
    numbers
};

/// 32-bit tasks of x86: by the kernel's number, which is that of x86-64, the number of DWARF (System V ABI, i386
/// supplement, table 2.14).
pub const I386_DWARF: [Option<u8>; 9] =
    [Some(0), Some(3), Some(1), Some(2), Some(6), Some(7), Some(5), Some(4), Some(8)];

/// aarch64: x0 to x30, sp and pc have the same number in DWARF.
pub const ARM64_DWARF: [Option<u8>; 33] = same_numbers();

/// The bit of the link register of aarch64, which perf records with every frame pointer chain.
pub const ARM64_LR: u64 = 1 << 30;

/// 32-bit Arm: r0 to r15 have the same number in DWARF. A 64-bit kernel records those of 32-bit tasks with these
/// numbers, too.
pub const ARM_DWARF: [Option<u8>; 16] = same_numbers();

/// RISC-V: pc, whose number in DWARF is the alternate column for return addresses, and x1 to x31.
pub const RISCV_DWARF: [Option<u8>; 32] = {
    let mut numbers = same_numbers();
    numbers[0] = Some(64);
    numbers
};

/// 64-bit PowerPC: r0 to r31; nip, as the kernel's table for signal frames numbers it; ctr and lr.
pub const PPC64_DWARF: [Option<u8>; 37] = {
    let mut numbers = same_numbers();
    numbers[32] = Some(67);
    numbers[33] = None;
    numbers[34] = None;
    numbers[35] = Some(66);
    numbers[36] = Some(65);
    numbers
};

/// s390x: r0 to r15; f0 to f15, of which DWARF has the even ones first in each half; the mask and the address of the
/// program status word.
pub const S390X_DWARF: [Option<u8>; 34] = {
    let mut numbers = same_numbers();
    let mut number = 0;
    while number < 16 {
        let (half, place) = (number / 8, number % 8);
        numbers[16 + number] = Some(16 + (8 * half + place / 2 + place % 2 * 4) as u8);
        number += 1;
    }
    numbers[32] = Some(64);
    numbers[33] = Some(65);
    numbers
};

const fn same_numbers<const N: usize>() -> [Option<u8>; N] {
    let mut numbers = [None; N];
    let mut number = 0;
    while number < N {
        numbers[number] = Some(number as u8);
        number += 1;
    }
    numbers
}

/// `abi` of user registers: there are none, because the task has no user side.
pub const ABI_NONE: u64 = 0;
/// `abi` of user registers: those of a 32-bit task.
pub const ABI_32: u64 = 1;
/// `abi` of user registers: those of a 64-bit task.
pub const ABI_64: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the z/Architecture ABI supplement, chapter "DWARF definition".
    #[test]
    fn floating_point_registers_of_s390x_have_the_numbers_of_its_abi() {
        let of = |f: usize| S390X_DWARF[16 + f].unwrap();
        let by_dwarf = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15];
        assert_eq!(by_dwarf.map(of).to_vec(), (16..32).collect::<Vec<u8>>());
        assert_eq!((S390X_DWARF[15], S390X_DWARF[33]), (Some(15), Some(65)));
    }

    #[test]
    fn registers_of_x86_64_have_the_numbers_of_its_abi() {
        assert_eq!(X86_64_DWARF[..9], [0, 3, 2, 1, 4, 5, 6, 7, 16].map(Some));
        assert_eq!((X86_64_DWARF[9], X86_64_DWARF[16], X86_64_DWARF[23]), (None, Some(8), Some(15)));
    }
}
