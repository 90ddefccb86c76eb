//! Decompresses one block: its literals, and its sequences of literals and repetitions (RFC 8878, 3.1.1.3).

use super::codes::{BLOCK_MAX, BackwardBits, DAMAGED, Fse, Huffman};
use crate::unzstd::header::little;

type Result<T> = std::result::Result<T, &'static str>;

/// The tables and offsets of a block, which the next one may use.
pub(super) struct Tables {
    huffman: Option<Huffman>,
    literal_lengths: Option<Fse>,
    offsets: Option<Fse>,
    match_lengths: Option<Fse>,
    last_offsets: [usize; 3],
    literals: Vec<u8>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            huffman: None,
            literal_lengths: None,
            offsets: None,
            match_lengths: None,
            last_offsets: [1, 4, 8],
            literals: Vec::new(),
        }
    }
}

/// The lowest length of each code, and the number of bits whose value is added to it.
const LITERAL_LENGTHS: [(u32, u8); 36] = [
    (0, 0),
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (13, 0),
    (14, 0),
    (15, 0),
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16384, 14),
    (32768, 15),
    (65536, 16),
];

/// Lengths of matches for the codes above 31, in the same form; a lower code is the length minus 3.
const MATCH_LENGTHS: [(u32, u8); 21] = [
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16387, 14),
    (32771, 15),
    (65539, 16),
];

/// The probabilities of blocks that have no tables.
const DEFAULT_LITERAL_LENGTHS: [i16; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1,
    -1, -1,
];
const DEFAULT_OFFSETS: [i16; 29] =
    [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1];
const DEFAULT_MATCH_LENGTHS: [i16; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];

impl Tables {
    pub(super) fn decompress(&mut self, block: &[u8], contents: &mut Vec<u8>) -> Result<()> {
        let size = self.read_literals(block)?;
        let rest = block.get(size..).ok_or(DAMAGED)?;
        let most = contents.len() + BLOCK_MAX;
        let literals = std::mem::take(&mut self.literals);
        let used = self.sequences(rest, &literals, contents, most)?;
        contents.extend_from_slice(&literals[used..]);
        self.literals = literals;
        if contents.len() > most { Err(DAMAGED) } else { Ok(()) }
    }

    /// Reads the literals; returns the size of their section, bytes.
    fn read_literals(&mut self, block: &[u8]) -> Result<usize> {
        let first = *block.first().ok_or(DAMAGED)?;
        let header = little(&block[..block.len().min(5)]);
        let (kind, format) = (first & 3, first >> 2 & 3);
        self.literals.clear();
        if kind < 2 {
            let (size, regenerated) = match format {
                0 | 2 => (1, header >> 3 & 0x1f),
                1 => (2, header >> 4 & 0xfff),
                _ => (3, header >> 4 & 0xf_ffff),
            };
            let count = literals_count(regenerated)?;
            let rest = block.get(size..).ok_or(DAMAGED)?;
            if kind == 0 {
                self.literals.extend_from_slice(rest.get(..count).ok_or(DAMAGED)?);
                return Ok(size + count);
            }
            self.literals.resize(count, *rest.first().ok_or(DAMAGED)?);
            return Ok(size + 1);
        }
        let (size, bits) = [(3, 10), (3, 10), (4, 14), (5, 18)][usize::from(format)];
        let count = literals_count(header >> 4 & ((1 << bits) - 1))?;
        let compressed = (header >> (4 + bits) & ((1 << bits) - 1)) as usize;
        let mut rest = block.get(size..size + compressed).ok_or(DAMAGED)?;
        if kind == 2 {
            let (huffman, size) = Huffman::read(rest)?;
            self.huffman = Some(huffman);
            rest = rest.get(size..).ok_or(DAMAGED)?;
        }
        let huffman = self.huffman.as_ref().ok_or(DAMAGED)?;
        if format == 0 {
            huffman.decode(rest, count, &mut self.literals)?;
            return Ok(size + compressed);
        }
        // Four streams, with the sizes of the first three before them.
        let (sizes, mut streams) = rest.split_first_chunk::<6>().ok_or(DAMAGED)?;
        let each = count.div_ceil(4);
        for pair in sizes.chunks_exact(2) {
            let size = usize::from(pair[0]) | usize::from(pair[1]) << 8;
            let (stream, after) = streams.split_at_checked(size).ok_or(DAMAGED)?;
            huffman.decode(stream, each, &mut self.literals)?;
            streams = after;
        }
        huffman.decode(streams, count.checked_sub(3 * each).ok_or(DAMAGED)?, &mut self.literals)?;
        Ok(size + compressed)
    }

    fn sequences(
        &mut self,
        section: &[u8],
        literals: &[u8],
        contents: &mut Vec<u8>,
        most: usize,
    ) -> Result<usize> {
        let (count, rest) = match *section {
            [0] => return Ok(0),
            [count @ 1..128, ref rest @ ..] => (usize::from(count), rest),
            [high @ 128..=254, low, ref rest @ ..] => {
                ((usize::from(high) - 128) << 8 | usize::from(low), rest)
            }
            [255, low, high, ref rest @ ..] => (0x7f00 + (usize::from(high) << 8 | usize::from(low)), rest),
            _ => return Err(DAMAGED),
        };
        let (&modes, mut rest) = rest.split_first().ok_or(DAMAGED)?;
        if modes & 3 != 0 {
            return Err(DAMAGED);
        }
        let lengths =
            table(&mut self.literal_lengths, modes >> 6, &mut rest, 9, (&DEFAULT_LITERAL_LENGTHS, 6))?;
        let offsets = table(&mut self.offsets, modes >> 4 & 3, &mut rest, 8, (&DEFAULT_OFFSETS, 5))?;
        let matches =
            table(&mut self.match_lengths, modes >> 2 & 3, &mut rest, 9, (&DEFAULT_MATCH_LENGTHS, 6))?;
        let bits = &mut BackwardBits::new(rest)?;
        let (mut length, mut offset, mut matching) =
            (lengths.start(bits), offsets.start(bits), matches.start(bits));
        let mut used = 0;
        for left in (0..count).rev() {
            let offset_code = u32::from(offsets.symbol(offset));
            if offset_code > 31 {
                return Err(DAMAGED);
            }
            let offset_value = (1 << offset_code) + u64::from(bits.read(offset_code));
            let (match_length, more) = match usize::from(matches.symbol(matching)) {
                code @ 0..32 => (code as u32 + 3, 0),
                code => *MATCH_LENGTHS.get(code - 32).ok_or(DAMAGED)?,
            };
            let match_length = (match_length + bits.read(more.into())) as usize;
            let (literal_length, more) =
                *LITERAL_LENGTHS.get(usize::from(lengths.symbol(length))).ok_or(DAMAGED)?;
            let literal_length = (literal_length + bits.read(more.into())) as usize;
            if left > 0 {
                length = lengths.next(length, bits);
                matching = matches.next(matching, bits);
                offset = offsets.next(offset, bits);
            }
            contents.extend_from_slice(literals.get(used..used + literal_length).ok_or(DAMAGED)?);
            used += literal_length;
            let distance = real_offset(&mut self.last_offsets, offset_value, literal_length == 0)?;
            if contents.len() + match_length > most {
                return Err(DAMAGED);
            }
            repeat(contents, distance, match_length)?;
        }
        bits.end()?;
        Ok(used)
    }
}

fn literals_count(regenerated: u64) -> Result<usize> {
    usize::try_from(regenerated).ok().filter(|&count| count <= BLOCK_MAX).ok_or(DAMAGED)
}

/// The table of a block by its mode, from the front of `rest` if it is stored.
fn table<'t>(
    last: &'t mut Option<Fse>,
    mode: u8,
    rest: &mut &[u8],
    log_max: u32,
    default: (&[i16], u32),
) -> Result<&'t Fse> {
    match mode {
        0 => *last = Some(Fse::new(default.0, default.1)?),
        1 => {
            let (&symbol, after) = rest.split_first().ok_or(DAMAGED)?;
            (*last, *rest) = (Some(Fse::of_one(symbol)), after);
        }
        2 => {
            let (read, size) = Fse::read(rest, log_max)?;
            (*last, *rest) = (Some(read), rest.get(size..).ok_or(DAMAGED)?);
        }
        _ => {}
    }
    last.as_ref().ok_or(DAMAGED)
}

/// The offset that a value stands for: one of the last three, or a new one.
fn real_offset(last: &mut [usize; 3], value: u64, without_literals: bool) -> Result<usize> {
    let offset = match value + u64::from(without_literals) {
        _ if value > 3 => usize::try_from(value - 3).map_err(|_| DAMAGED)?,
        1 => return Ok(last[0]),
        2 => {
            last.swap(0, 1);
            return Ok(last[0]);
        }
        3 => last[2],
        _ => last[0] - 1,
    };
    if offset == 0 {
        return Err(DAMAGED);
    }
    *last = [offset, last[0], last[1]];
    Ok(offset)
}

/// Appends the `length` bytes that begin `distance` bytes before the end; they may include appended ones.
fn repeat(contents: &mut Vec<u8>, distance: usize, mut length: usize) -> Result<()> {
    let mut from = contents.len().checked_sub(distance).ok_or(DAMAGED)?;
    while length > 0 {
        let now = length.min(contents.len() - from);
        contents.extend_from_within(from..from + now);
        (from, length) = (from + now, length - now);
    }
    Ok(())
}
