//! The numbers of registers, as bits of `attr.sample_regs_user` (arch/ARCH/include/uapi/asm/perf_regs.h),
//! those of DWARF (the ABI supplement of each architecture), and the names that perf gives them
//! (tools/perf/util/perf-regs-arch).

use std::borrow::Cow;

/// x86-64: by the kernel's number, the number of DWARF (System V ABI, AMD64 supplement, figure 3.36). Flags
/// and segments have none here, because unwinding does not need them.
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

/// 32-bit x86: by the kernel's number, that of x86-64, DWARF's (System V ABI, i386 supplement, table 2.14).
pub const I386_DWARF: [Option<u8>; 9] =
    [Some(0), Some(3), Some(1), Some(2), Some(6), Some(7), Some(5), Some(4), Some(8)];

/// aarch64: x0 to x30, sp and pc have the same number in DWARF.
pub const ARM64_DWARF: [Option<u8>; 33] = same_numbers();

/// The bit of the link register of aarch64, which perf records with every frame pointer chain.
pub const ARM64_LR: u64 = 1 << 30;

/// 32-bit Arm, also as tasks of a 64-bit kernel: r0 to r15 have the same number in DWARF.
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

/// s390x: r0 to r15; f0 to f15, numbered in DWARF with the even ones first in each half; the mask and the
/// address of the program status word.
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

/// `abi` of user registers: none, because the task has no user side.
pub const ABI_NONE: u64 = 0;
/// `abi` of user registers: a 32-bit task.
pub const ABI_32: u64 = 1;
/// `abi` of user registers: a 64-bit task.
pub const ABI_64: u64 = 2;

/// The name that perf gives a register of a machine with this name (`uname -m`); `None` if it has none.
///
/// ```
/// use perfx_format::sample::registers::name;
///
/// assert_eq!(name("x86_64", 8).as_deref(), Some("IP"));
/// assert_eq!(name("aarch64", 30).as_deref(), Some("lr"));
/// assert_eq!(name("aarch64", 40), None);
/// ```
pub fn name(machine: &str, number: u32) -> Option<Cow<'static, str>> {
    let at = number as usize;
    let of =
        |names: &[&'static str], from: usize| names.get(at.checked_sub(from)?).map(|name| (*name).into());
    let numbered =
        |prefix: &str, first: u32| number.checked_sub(first).map(|rest| format!("{prefix}{rest}").into());
    match machine {
        machine if machine.starts_with("x86") || machine.ends_with("86") => match number {
            0..16 => of(&X86, 0),
            16..24 => numbered("R", 8),
            // Each XMM register has two numbers.
            32..64 => Some(format!("XMM{}", (number - 32) / 2).into()),
            _ => None,
        },
        machine if machine == "arm64" || machine.starts_with("aarch64") => match number {
            0..30 => numbered("x", 0),
            46 => Some("vg".into()),
            _ => of(&["lr", "sp", "pc"], 30),
        },
        machine if machine.starts_with("arm") => match number {
            0..11 => numbered("r", 0),
            _ => of(&["fp", "ip", "sp", "lr", "pc"], 11),
        },
        machine if machine.starts_with("riscv") => match number {
            0..10 => of(&["pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"], 0),
            10..18 => numbered("a", 10),
            18..28 => numbered("s", 16),
            28..32 => numbered("t", 25),
            _ => None,
        },
        machine if machine.starts_with("ppc") => match number {
            0..32 => numbered("r", 0),
            51..57 => numbered("pmc", 50),
            57.. => of(&["sdar", "siar"], 57),
            _ => of(&PPC, 32),
        },
        machine if machine.starts_with("s390") => match number {
            0..16 => numbered("R", 0),
            16..32 => numbered("FP", 16),
            _ => of(&["MASK", "PC"], 32),
        },
        machine if machine.starts_with("loongarch") => match number {
            0 => Some("PC".into()),
            1..32 => numbered("%r", 0),
            _ => None,
        },
        machine if machine.starts_with("mips") => match number {
            0 => Some("PC".into()),
            1..26 => numbered("$", 0),
            // $26 and $27, which are the kernel's, have no numbers.
            26..30 => Some(format!("${}", number + 2).into()),
            _ => None,
        },
        _ => None,
    }
}

const X86: [&str; 16] =
    ["AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS", "DS", "ES", "FS", "GS"];

const PPC: [&str; 19] = [
    "nip", "msr", "orig_r3", "ctr", "link", "xer", "ccr", "softe", "trap", "dar", "dsisr", "sier", "mmcra",
    "mmcr0", "mmcr1", "mmcr2", "mmcr3", "sier2", "sier3",
];

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
    fn registers_have_the_names_of_perf() {
        let names = |machine, numbers: &[u32]| {
            let name = |number: &u32| name(machine, *number).unwrap_or("-".into());
            numbers.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        for machine in ["x86_64", "i686"] {
            assert_eq!(
                names(machine, &[0, 9, 15, 16, 23, 24, 32, 33, 63]),
                "AX FLAGS GS R8 R15 - XMM0 XMM0 XMM15"
            );
        }
        assert_eq!(names("aarch64", &[0, 29, 30, 31, 32, 33, 46]), "x0 x29 lr sp pc - vg");
        assert_eq!(names("armv7l", &[10, 11, 12, 15, 16]), "r10 fp ip pc -");
        assert_eq!(names("riscv64", &[0, 9, 10, 17, 18, 27, 28, 31, 32]), "pc s1 a0 a7 s2 s11 t3 t6 -");
        assert_eq!(
            names("ppc64le", &[31, 32, 44, 50, 51, 56, 58, 59]),
            "r31 nip mmcra sier3 pmc1 pmc6 siar -"
        );
        assert_eq!(names("s390x", &[15, 16, 31, 32, 33, 34]), "R15 FP0 FP15 MASK PC -");
        assert_eq!(names("loongarch64", &[0, 31, 32]), "PC %r31 -");
        assert_eq!(names("mips64", &[0, 25, 26, 29, 30]), "PC $25 $28 $31 -");
        assert_eq!(names("vax", &[0]), "-");
    }

    #[test]
    fn registers_of_x86_64_have_the_numbers_of_its_abi() {
        assert_eq!(X86_64_DWARF[..9], [0, 3, 2, 1, 4, 5, 6, 7, 16].map(Some));
        assert_eq!((X86_64_DWARF[9], X86_64_DWARF[16], X86_64_DWARF[23]), (None, Some(8), Some(15)));
    }
}
