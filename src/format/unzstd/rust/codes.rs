//! Reads bits from the last to the first, and the two codes (FSE, Huffman) of a block: RFC 8878, 4.

use crate::Endian;
use crate::unzstd::ROOM;
use crate::unzstd::header::little;

pub(super) const BLOCK_MAX: usize = ROOM;

pub(super) const DAMAGED: &str = "the data is damaged";

type Result<T> = std::result::Result<T, &'static str>;

/// Bits that are read from the last one to the first, and then zeros.
pub(super) struct BackwardBits<'a> {
    bytes: &'a [u8],
    /// The number of bits that were not read; negative after reading zeros before the first.
    left: isize,
}

impl BackwardBits<'_> {
    /// The bits end before the highest set bit of the last byte.
    pub(super) fn new(bytes: &[u8]) -> Result<BackwardBits<'_>> {
        let last = bytes.last().filter(|&&last| last != 0).ok_or(DAMAGED)?;
        Ok(BackwardBits { bytes, left: 8 * bytes.len() as isize - 1 - last.leading_zeros() as isize })
    }

    /// The next `count` bits, at most 32.
    fn peek(&self, count: u32) -> u32 {
        let from = self.left - count as isize;
        let mask = |count: isize| (1_u64 << count) - 1;
        let bits = match from {
            0.. => word(self.bytes, from as usize / 8) >> (from % 8) & mask(count as isize),
            _ if self.left > 0 => (word(self.bytes, 0) & mask(self.left)) << -from,
            _ => 0,
        };
        bits as u32
    }

    fn skip(&mut self, count: u32) {
        self.left -= count as isize;
    }

    pub(super) fn read(&mut self, count: u32) -> u32 {
        let bits = self.peek(count);
        self.skip(count);
        bits
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.left == 0 { Ok(()) } else { Err(DAMAGED) }
    }
}

/// The 8 bytes from `at` on, with zeros after the last one.
fn word(bytes: &[u8], at: usize) -> u64 {
    Endian::Little.u64(bytes, at).unwrap_or_else(|| little(bytes.get(at..).unwrap_or_default()))
}

/// A table of a code whose symbols take fractions of a bit (finite state entropy).
pub(super) struct Fse {
    log: u32,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    symbol: u8,
    /// The number of bits whose value is added to `base` for the next cell.
    bits: u8,
    base: u16,
}

impl Fse {
    pub(super) fn of_one(symbol: u8) -> Fse {
        Fse { log: 0, cells: vec![Cell { symbol, bits: 0, base: 0 }] }
    }

    /// Reads a table of at most `1 << log_max` cells. Also returns its size in bytes.
    pub(super) fn read(bytes: &[u8], log_max: u32) -> Result<(Fse, usize)> {
        let mut at = 0;
        let peek = |at: usize, count: u32| word(bytes, at / 8) as u32 >> (at % 8) & ((1 << count) - 1);
        let log = peek(0, 4) + 5;
        at += 4;
        if log > log_max {
            return Err(DAMAGED);
        }
        let (mut left, mut probabilities) = (1_i32 << log, Vec::new());
        while left > 0 {
            // A value from 0 to `left` + 1. The smaller values take one bit less.
            let count = (left + 1).ilog2() + 1;
            let few = (1 << count) - 2 - left as u32;
            let (value, low) = (peek(at, count), peek(at, count - 1));
            let value = if low < few {
                at -= 1;
                low
            } else if value < 1 << (count - 1) {
                value
            } else {
                value - few
            };
            at += count as usize;
            let probability = value as i32 - 1;
            left -= probability.abs();
            probabilities.push(probability as i16);
            let mut more = if probability == 0 { 3 } else { 0 };
            while more == 3 {
                more = peek(at, 2);
                at += 2;
                probabilities.resize(probabilities.len() + more as usize, 0);
            }
            if probabilities.len() > 256 || at > 8 * bytes.len() {
                return Err(DAMAGED);
            }
        }
        Ok((Fse::new(&probabilities, log)?, at.div_ceil(8)))
    }

    /// The table of these probabilities, in cells; -1 means less than one.
    pub(super) fn new(probabilities: &[i16], log: u32) -> Result<Fse> {
        let size = 1_usize << log;
        let mut cells = vec![Cell::default(); size];
        let mut next: Vec<u16> = probabilities.iter().map(|probability| probability.unsigned_abs()).collect();
        if next.iter().map(|&count| usize::from(count)).sum::<usize>() != size {
            return Err(DAMAGED);
        }
        let mut end = size;
        for (symbol, _) in probabilities.iter().enumerate().filter(|(_, probability)| **probability < 0) {
            end -= 1;
            cells[end].symbol = symbol as u8;
        }
        let mut at = 0;
        for (symbol, &probability) in probabilities.iter().enumerate() {
            for _ in 0..probability.max(0) {
                cells[at].symbol = symbol as u8;
                at = (at + size / 2 + size / 8 + 3) % size;
                while at >= end && end > 0 {
                    at = (at + size / 2 + size / 8 + 3) % size;
                }
            }
        }
        for cell in &mut cells {
            let number = &mut next[usize::from(cell.symbol)];
            let bits = log - number.ilog2();
            cell.bits = bits as u8;
            cell.base = (usize::from(*number) << bits).wrapping_sub(size) as u16;
            *number += 1;
        }
        Ok(Fse { log, cells })
    }

    pub(super) fn start(&self, bits: &mut BackwardBits<'_>) -> usize {
        bits.read(self.log) as usize
    }

    pub(super) fn symbol(&self, cell: usize) -> u8 {
        self.cells[cell].symbol
    }

    pub(super) fn next(&self, cell: usize, bits: &mut BackwardBits<'_>) -> usize {
        let Cell { bits: count, base, .. } = self.cells[cell];
        usize::from(base) + bits.read(count.into()) as usize
    }
}

const HUFFMAN_BITS_MAX: u32 = 11;

/// A table: for each value of `bits` bits, the symbol and the length of the code with which it begins.
pub(super) struct Huffman {
    bits: u32,
    cells: Vec<(u8, u8)>,
}

impl Huffman {
    /// Reads a table. Also returns its size in bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<(Huffman, usize)> {
        let (&first, rest) = bytes.split_first().ok_or(DAMAGED)?;
        let (weights, size) = match first {
            0..128 => {
                let size = usize::from(first);
                (compressed_weights(rest.get(..size).ok_or(DAMAGED)?)?, size)
            }
            128.. => {
                let count = usize::from(first) - 127;
                let size = count.div_ceil(2);
                let halves = rest.get(..size).ok_or(DAMAGED)?.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                (halves.take(count).collect(), size)
            }
        };
        Ok((Huffman::new(weights)?, 1 + size))
    }

    fn new(mut weights: Vec<u8>) -> Result<Huffman> {
        if weights.iter().any(|&weight| u32::from(weight) > HUFFMAN_BITS_MAX) {
            return Err(DAMAGED);
        }
        let share = |weight: u8| 1_usize << weight >> 1;
        let sum: usize = weights.iter().map(|&weight| share(weight)).sum();
        let bits = sum.checked_ilog2().ok_or(DAMAGED)? + 1;
        let left = (1_usize << bits) - sum;
        if bits > HUFFMAN_BITS_MAX || !left.is_power_of_two() {
            return Err(DAMAGED);
        }
        // The weight of the last symbol follows from the sum.
        weights.push(left.ilog2() as u8 + 1);
        let mut cells = Vec::with_capacity(1 << bits);
        for weight in 1..=bits as u8 {
            for (symbol, _) in weights.iter().enumerate().filter(|(_, of)| **of == weight) {
                let length = bits as u8 + 1 - weight;
                cells.resize(cells.len() + share(weight), (symbol as u8, length));
            }
        }
        Ok(Huffman { bits, cells })
    }

    /// Appends `count` symbols, which must be all of them.
    pub(super) fn decode(&self, bytes: &[u8], count: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut bits = BackwardBits::new(bytes)?;
        for _ in 0..count {
            let (symbol, length) = self.cells[bits.peek(self.bits) as usize];
            bits.skip(length.into());
            out.push(symbol);
        }
        bits.end()
    }
}

/// Weights in an FSE code, with two cells in turn. When the bits are used up, the other cell has the last.
fn compressed_weights(bytes: &[u8]) -> Result<Vec<u8>> {
    let (table, size) = Fse::read(bytes, 6)?;
    let mut bits = BackwardBits::new(bytes.get(size..).ok_or(DAMAGED)?)?;
    let (mut cell, mut other) = (table.start(&mut bits), table.start(&mut bits));
    let mut weights = Vec::new();
    while bits.left >= 0 {
        if weights.len() > 253 {
            return Err(DAMAGED);
        }
        weights.push(table.symbol(cell));
        cell = table.next(cell, &mut bits);
        std::mem::swap(&mut cell, &mut other);
    }
    weights.push(table.symbol(cell));
    Ok(weights)
}
