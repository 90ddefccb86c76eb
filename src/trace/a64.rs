//! The branches among the instructions of AArch64, and their targets.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), "A64 instruction set encoding", "Branches, Exception
//! Generating and System instructions". All of these have 101 in bits 28-26.

use crate::kind::Kind;

pub(crate) const SIZE: usize = 4;

/// The bits with the distance to a branch's target, in instructions: `width` bits from bit `low` on.
#[derive(Clone, Copy)]
struct Distance {
    low: u32,
    width: u32,
}

const NONE: Distance = Distance { low: 0, width: 0 };
const IMM26: Distance = Distance { low: 0, width: 26 };
const IMM19: Distance = Distance { low: 5, width: 19 };
const IMM14: Distance = Distance { low: 5, width: 14 };
const IMM9: Distance = Distance { low: 5, width: 9 };

/// An instruction matches a row if its bits in the mask equal the value.
const TABLE: [(u32, u32, Kind, Distance); 25] = [
    // B.cond, BC.cond; CBZ, CBNZ; TBZ, TBNZ; CB<cc> of registers; CBB<cc>, CBH<cc>; CB<cc> of a number
    (0xff00_0000, 0x5400_0000, Kind::Conditional, IMM19),
    (0x7e00_0000, 0x3400_0000, Kind::Conditional, IMM19),
    (0x7e00_0000, 0x3600_0000, Kind::Conditional, IMM14),
    (0x7f00_c000, 0x7400_0000, Kind::Conditional, IMM9),
    (0xff00_8000, 0x7400_8000, Kind::Conditional, IMM9),
    (0x7f00_4000, 0x7500_0000, Kind::Conditional, IMM9),
    // B, BL
    (0xfc00_0000, 0x1400_0000, Kind::Jump, IMM26),
    (0xfc00_0000, 0x9400_0000, Kind::Call, IMM26),
    // RET; RETAASPPC of a register, RETAA; RETAASPPC of a label
    (0xffff_fc1f, 0xd65f_0000, Kind::Return, NONE),
    (0xffff_fbe0, 0xd65f_0be0, Kind::Return, NONE),
    (0xffc0_001f, 0x5500_001f, Kind::Return, NONE),
    // BR, BRAAZ, BRAA
    (0xffff_fc1f, 0xd61f_0000, Kind::IndirectJump, NONE),
    (0xffff_f81f, 0xd61f_081f, Kind::IndirectJump, NONE),
    (0xffff_f800, 0xd71f_0800, Kind::IndirectJump, NONE),
    // BLR, BLRAAZ, BLRAA
    (0xffff_fc1f, 0xd63f_0000, Kind::IndirectCall, NONE),
    (0xffff_f81f, 0xd63f_081f, Kind::IndirectCall, NONE),
    (0xffff_f800, 0xd73f_0800, Kind::IndirectCall, NONE),
    // SVC, HVC, SMC
    (0xffe0_001f, 0xd400_0001, Kind::SystemCall, NONE),
    (0xffe0_001f, 0xd400_0002, Kind::SystemCall, NONE),
    (0xffe0_001f, 0xd400_0003, Kind::SystemCall, NONE),
    // ERET, ERETAA, TEXIT
    (0xffff_ffff, 0xd69f_03e0, Kind::SystemReturn, NONE),
    (0xffff_fbff, 0xd69f_0bff, Kind::SystemReturn, NONE),
    (0xffff_fbff, 0xd6ff_03e0, Kind::SystemReturn, NONE),
    // ISB, TSTART
    (0xffff_f0ff, 0xd503_30df, Kind::Barrier, NONE),
    (0xffff_ffe0, 0xd523_3060, Kind::Barrier, NONE),
];

/// WFE and WFI, and both with a timeout.
const WAITS: [(u32, u32); 2] = [(0xffff_ffdf, 0xd503_205f), (0xffff_ffc0, 0xd503_1000)];

/// The kind of the branch at `ip`, and its target if fixed. `waits`: WFE and WFI are traced like branches.
pub(crate) fn branch(word: u32, ip: u64, waits: bool) -> Option<(Kind, u64)> {
    if word >> 26 & 7 != 5 {
        return None;
    }
    let found = TABLE.iter().find(|(mask, value, ..)| word & mask == *value);
    if let Some((_, _, kind, distance)) = found {
        let target = match distance.width {
            0 => 0,
            width => {
                let high = (word << (32 - distance.low - width)).cast_signed();
                let distance = i64::from(high >> (32 - width)) * SIZE as i64;
                ip.wrapping_add_signed(distance)
            }
        };
        return Some((*kind, target));
    }
    let is_wait = waits && WAITS.iter().any(|(mask, value)| word & mask == *value);
    is_wait.then_some((Kind::Barrier, 0))
}

/// True for UDF, which can't be executed; zeros decode as UDF.
pub(crate) fn is_undefined(word: u32) -> bool {
    word >> 16 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are the output of GNU as for the text.
    #[test]
    fn each_branch_is_known() {
        const IP: u64 = 0x10_0000;
        let cases = [
            ("b .", 0x1400_0000, Kind::Jump, IP),
            ("b .-4", 0x17ff_ffff, Kind::Jump, IP - 4),
            ("bl .+8", 0x9400_0002, Kind::Call, IP + 8),
            ("b.eq .-8", 0x54ff_ffc0, Kind::Conditional, IP - 8),
            ("bc.eq .+4", 0x5400_0030, Kind::Conditional, IP + 4),
            ("cbz x3, .+16", 0xb400_0083, Kind::Conditional, IP + 16),
            ("cbnz w3, .-4", 0x35ff_ffe3, Kind::Conditional, IP - 4),
            ("tbz w1, #3, .+8", 0x3618_0041, Kind::Conditional, IP + 8),
            ("tbnz x1, #40, .-4", 0xb747_ffe1, Kind::Conditional, IP - 4),
            ("cbgt x1, x2, .+8", 0xf402_0041, Kind::Conditional, IP + 8),
            ("cbbgt w1, w2, .+8", 0x7402_8041, Kind::Conditional, IP + 8),
            ("cbgt w1, #2, .-4", 0x7501_3fe1, Kind::Conditional, IP - 4),
            ("br x1", 0xd61f_0020, Kind::IndirectJump, 0),
            ("braaz x1", 0xd61f_083f, Kind::IndirectJump, 0),
            ("brab x1, x2", 0xd71f_0c22, Kind::IndirectJump, 0),
            ("blr x1", 0xd63f_0020, Kind::IndirectCall, 0),
            ("blraaz x1", 0xd63f_083f, Kind::IndirectCall, 0),
            ("blraa x1, x2", 0xd73f_0822, Kind::IndirectCall, 0),
            ("ret", 0xd65f_03c0, Kind::Return, 0),
            ("retaa", 0xd65f_0bff, Kind::Return, 0),
            ("eret", 0xd69f_03e0, Kind::SystemReturn, 0),
            ("eretab", 0xd69f_0fff, Kind::SystemReturn, 0),
            ("svc #0", 0xd400_0001, Kind::SystemCall, 0),
            ("hvc #0", 0xd400_0002, Kind::SystemCall, 0),
            ("smc #1", 0xd400_0023, Kind::SystemCall, 0),
            ("isb", 0xd503_3fdf, Kind::Barrier, 0),
        ];
        for (text, word, kind, target) in cases {
            assert_eq!(branch(word, IP, false), Some((kind, target)), "{text}");
        }
        let others = [
            ("nop", 0xd503_201f),
            ("brk #0", 0xd420_0000),
            ("dsb sy", 0xd503_3f9f),
            ("mrs x0, tpidr_el0", 0xd53b_d040),
            ("add x0, x0, #1", 0x9100_0400),
        ];
        for (text, word) in others {
            assert_eq!(branch(word, IP, true), None, "{text}");
        }
        for (text, word) in [("wfi", 0xd503_207f), ("wfe", 0xd503_205f), ("wfit x1", 0xd503_1021)] {
            assert_eq!([false, true].map(|waits| branch(word, IP, waits).is_some()), [false, true], "{text}");
        }
    }
}
