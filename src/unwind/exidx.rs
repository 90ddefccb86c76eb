//! Reads the exception tables of 32-bit Arm: how to compute the registers of a caller from those of a frame
//! (Exception Handling ABI for the Arm Architecture, chapters 6 and 10).
//!
//! They are valid at calls, not at each instruction: in the first instructions of a function they are wrong.

use std::ops::Range;

use perfx_format::Endian;

use crate::arch::Number;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unwound {
    /// The caller's stack pointer, a register plus an offset, and the registers at these distances from it.
    Frame { base: Number, offset: i64, saved: Vec<(Number, i64)> },
    /// According to the tables, the frame can't be unwound.
    Refused,
}

/// The size of an entry of the index: the start of a function, and its instructions or their address.
const ENTRY: usize = 8;

const SP: Number = 13;
const LR: Number = 14;
const PC: Number = 15;

/// The instructions for a function, and the addresses where they apply. `index` is the section `.ARM.exidx`
/// at `start`, and `memory` the rest of the file at an address.
pub(crate) fn find<'a>(
    index: &'a [u8],
    start: u64,
    address: u64,
    endian: Endian,
    memory: impl Fn(u64) -> Option<&'a [u8]>,
) -> Option<(Unwound, Range<u64>)> {
    let word = |at: usize| endian.u32(index, at);
    let function = |entry: usize| {
        let at = entry * ENTRY;
        Some(place(start.checked_add(at as u64)?, word(at)?))
    };
    let count = index.len() / ENTRY;
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if function(middle)? <= address { low = middle + 1 } else { high = middle }
    }
    let entry = low.checked_sub(1)?;
    let range = function(entry)?..function(low).unwrap_or(address + 1);
    let at = entry * ENTRY + 4;
    let found = match word(at)? {
        1 => Unwound::Refused,
        inline if inline >> 31 == 1 => interpret(&inline.to_be_bytes()[1..])?,
        far => {
            let table = memory(place(start.checked_add(at as u64)?, far))?;
            let words = |at: usize| endian.u32(table, at).map(u32::to_be_bytes);
            let first = words(0)?;
            // The generic form begins with the address of a personality routine: C++'s, with compact data.
            let (first, begin) = if first[0] >> 7 == 1 { (first, 4) } else { (words(4)?, 8) };
            let (more, skipped) = match (begin, first[0] & 0xf) {
                (4, 0) => (0, 1),
                (4, 1 | 2) => (first[1], 2),
                (4, _) => return None,
                (_, _) => (first[0], 1),
            };
            let mut code = first[skipped..].to_vec();
            for number in 0..usize::from(more) {
                code.extend(words(begin + 4 * number)?);
            }
            interpret(&code)?
        }
    };
    Some((found, range))
}

/// Resolves a relative address of 31 bits.
fn place(at: u64, relative: u32) -> u64 {
    let distance = (relative << 1) as i32 >> 1;
    at.wrapping_add_signed(distance.into()) & u64::from(u32::MAX)
}

/// Interprets instructions; `None` if they are unknown, or not expressible as an offset from a register.
fn interpret(code: &[u8]) -> Option<Unwound> {
    let (mut base, mut offset) = (SP, 0_i64);
    let mut popped: Vec<(Number, i64)> = Vec::new();
    let mut code = code.iter().copied();
    while let Some(byte) = code.next() {
        let low = i64::from(byte & 0x3f);
        let mut numbers: u16 = 0;
        match byte {
            0x00..=0x3f => offset += 4 * low + 4,
            0x40..=0x7f => offset -= 4 * low + 4,
            0x80..=0x8f => match u16::from_be_bytes([byte & 0xf, code.next()?]) {
                0 => return Some(Unwound::Refused),
                mask => numbers = mask << 4,
            },
            // The stack pointer becomes a register's value. Its distance from popped registers is unknown.
            0x90..=0x9f if ![SP, PC].contains(&(byte & 0xf)) && popped.is_empty() => {
                (base, offset) = (byte & 0xf, 0);
            }
            0xa0..=0xaf => {
                // Bit 3 adds the link register to r4 and up.
                numbers = ((2 << (byte & 7)) - 1) << 4 | u16::from(byte >> 3 & 1) << 14;
            }
            0xb0 => break,
            0xb1 => match code.next()? {
                mask @ 1..=0xf => numbers = mask.into(),
                _ => return None,
            },
            0xb2 => {
                let (mut value, mut shift) = (0, 0);
                loop {
                    let byte = code.next().filter(|_| shift < 28)?;
                    value |= i64::from(byte & 0x7f) << shift;
                    shift += 7;
                    if byte >> 7 == 0 {
                        break;
                    }
                }
                offset += 0x204 + 4 * value;
            }
            // Floating-point registers, with one more word in the older form.
            0xb3 => offset += 8 * i64::from(code.next()? & 0xf) + 12,
            0xb8..=0xbf => offset += 8 * (low & 7) + 12,
            0xc8 | 0xc9 => offset += 8 * i64::from(code.next()? & 0xf) + 8,
            0xd0..=0xd7 => offset += 8 * (low & 7) + 8,
            _ => return None,
        }
        for number in (0..16).filter(|number| numbers >> number & 1 == 1) {
            popped.push((number, offset));
            offset += 4;
        }
    }
    if popped.iter().any(|&(number, _)| number == SP) {
        return None;
    }
    // The value popped into the program counter is the return address.
    if popped.iter().any(|&(number, _)| number == PC) {
        popped.retain(|&(number, _)| number != LR);
        popped.iter_mut().filter(|(number, _)| *number == PC).for_each(|(number, _)| *number = LR);
    }
    let saved = popped.into_iter().map(|(number, at)| (number, at - offset)).collect();
    Some(Unwound::Frame { base, offset, saved })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(base: Number, offset: i64, saved: &[(Number, i64)]) -> Option<Unwound> {
        Some(Unwound::Frame { base, offset, saved: saved.to_vec() })
    }

    /// The examples in section 10.3 of the ABI, and instructions that compilers write.
    #[test]
    fn instructions_say_where_registers_are() {
        // push {r4, lr}; and 8 bytes of room below.
        assert_eq!(interpret(&[0xa8, 0xb0, 0xb0]), frame(13, 8, &[(4, -8), (14, -4)]));
        assert_eq!(interpret(&[0x01, 0xa8, 0xb0]), frame(13, 16, &[(4, -8), (14, -4)]));
        // A frame pointer in r7: push {r4, r7, lr}.
        assert_eq!(interpret(&[0x97, 0x84, 0x09]), frame(7, 12, &[(4, -12), (7, -8), (14, -4)]));
        // vpush {d8}; a large frame; argument registers after the saved ones.
        assert_eq!(interpret(&[0xd0, 0xb1, 0x0f]), frame(13, 24, &[(0, -16), (1, -12), (2, -8), (3, -4)]));
        assert_eq!(interpret(&[0xb2, 0x80, 0x01, 0xb0]), frame(13, 0x404, &[]));
        assert_eq!(interpret(&[0x80, 0x00]), Some(Unwound::Refused));
        for unknown in [&[0xb4][..], &[0x9d], &[0xb1, 0x10], &[0xb2, 0xff], &[0xa0, 0x97], &[0x82, 0x00]] {
            assert_eq!(interpret(unknown), None, "{unknown:x?}");
        }
    }

    #[test]
    fn the_index_is_searched_for_the_function_of_an_address() {
        // At 0x1000: functions at 0x2000, inline; 0x2010, not unwindable; 0x2020, with a table at 0x1100.
        let words: [u32; 6] = [0x1000, 0x80a8_b0b0, 0x1008, 1, 0x1010, 0xec];
        let index: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let table: Vec<u8> =
            [0x8101_0102, 0x0304_b0b0_u32].iter().flat_map(|word| word.to_le_bytes()).collect();
        let find = |address| {
            let memory = |at| (at == 0x1100).then_some(&table[..]);
            find(&index, 0x1000, address, Endian::Little, memory)
        };
        assert_eq!(find(0x1fff), None);
        assert_eq!(find(0x200f).map(|(_, range)| range), Some(0x2000..0x2010));
        assert_eq!(find(0x2010), Some((Unwound::Refused, 0x2010..0x2020)));
        assert_eq!(find(0x2024).map(|(found, _)| found), frame(13, 8 + 12 + 16 + 20, &[]));
    }
}
