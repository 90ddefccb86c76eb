//! The bytes of a trace, in one or more pieces: packets and sync points may cross the ends of pieces.

use crate::image::Switches;

/// The data of a buffer, in order, up to a gap, and the context switches of its CPU or thread.
#[derive(Clone, Debug, Default)]
pub struct Trace<'a> {
    /// No piece is empty.
    pieces: Vec<&'a [u8]>,
    ends: Vec<u64>,
    pub(crate) switches: Switches,
}

impl<'a> Trace<'a> {
    /// A trace that consists of these pieces.
    pub fn new(mut pieces: Vec<&'a [u8]>, switches: impl Into<Switches>) -> Trace<'a> {
        pieces.retain(|piece| !piece.is_empty());
        let mut end = 0;
        let ends = pieces.iter().map(|piece| {
            end += piece.len() as u64;
            end
        });
        let ends = ends.collect();
        Trace { pieces, ends, switches: switches.into() }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// True if the trace has no bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn cursor(&self, at: u64) -> Cursor<'_> {
        let next = self.ends.partition_point(|end| *end <= at);
        let Some(piece) = self.pieces.get(next) else {
            return Cursor { rest: &[], next: &[], end: self.len() };
        };
        let end = self.ends[next];
        let begin = piece.len().saturating_sub((end - at) as usize);
        Cursor { rest: &piece[begin..], next: &self.pieces[next + 1..], end }
    }

    /// The offset of the first `pattern` at or after `at`.
    pub(crate) fn find(&self, pattern: &[u8; LONGEST], at: u64) -> Option<u64> {
        let mut cursor = self.cursor(at);
        loop {
            let (window, len) = cursor.window();
            if len < LONGEST {
                return None;
            }
            // Inside a piece, the search skips whole windows by their last byte.
            if let Some(found) = search(cursor.rest, pattern) {
                return Some(cursor.offset() + found as u64);
            }
            if cursor.rest.len() >= LONGEST {
                cursor.advance(cursor.rest.len() - (LONGEST - 1));
            } else if window == *pattern {
                return Some(cursor.offset());
            } else {
                cursor.advance(1);
            }
        }
    }
}

/// The position of `pattern`, 16 bytes that alternate between two values.
fn search(bytes: &[u8], pattern: &[u8; LONGEST]) -> Option<usize> {
    let mut at = 0;
    loop {
        let window: &[u8; LONGEST] = bytes.get(at..)?.first_chunk()?;
        // The last byte determines the distance to the next possible match.
        at += match window[LONGEST - 1] {
            _ if window == pattern => return Some(at),
            last if last == pattern[1] => 2,
            last if last == pattern[0] => 1,
            _ => LONGEST,
        };
    }
}

pub(crate) const LONGEST: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    /// The rest of the current piece; empty only at the end of the trace.
    rest: &'a [u8],
    next: &'a [&'a [u8]],
    /// The offset after the current piece.
    end: u64,
}

impl Cursor<'_> {
    pub(crate) fn offset(&self) -> u64 {
        self.end - self.rest.len() as u64
    }

    #[inline(always)]
    pub(crate) fn rest(&self) -> &[u8] {
        self.rest
    }

    /// The next bytes, padded with zeros after the end of the trace, and the number of real ones.
    #[inline(always)]
    pub(crate) fn window(&self) -> ([u8; LONGEST], usize) {
        match self.rest.first_chunk() {
            Some(window) => (*window, LONGEST),
            None => self.window_across(),
        }
    }

    #[cold]
    fn window_across(&self) -> ([u8; LONGEST], usize) {
        let mut window = [0; LONGEST];
        let bytes = self.rest.iter().chain(self.next.iter().copied().flatten());
        let filled = window.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count();
        (window, filled)
    }

    #[inline(always)]
    pub(crate) fn advance(&mut self, count: usize) {
        if count < self.rest.len() {
            self.rest = &self.rest[count..];
        } else {
            self.advance_across(count);
        }
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.rest.first()?;
        self.advance(1);
        Some(byte)
    }

    #[cold]
    fn advance_across(&mut self, mut count: usize) {
        while count >= self.rest.len() {
            count -= self.rest.len();
            let Some((piece, next)) = self.next.split_first() else {
                self.rest = &[];
                return;
            };
            (self.rest, self.next) = (piece, next);
            self.end += piece.len() as u64;
        }
        self.rest = &self.rest[count..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_across_pieces() {
        let pattern: [u8; 16] = std::array::from_fn(|at| if at % 2 == 0 { 2 } else { 0x82 });
        for before in 0..40 {
            let mut data = vec![0x82; before];
            data.extend(pattern);
            data.extend([2, 0x82, 2, 2]);
            data.extend(pattern);
            for size in 1..40 {
                let trace = Trace::new(data.chunks(size).collect(), Vec::new());
                let found = trace.find(&pattern, 0);
                assert_eq!(found, Some(before as u64), "{size}");
                assert_eq!(trace.find(&pattern, found.unwrap() + 16), Some(before as u64 + 20), "{size}");
                assert_eq!(trace.find(&pattern, before as u64 + 21), None);
                let mut cursor = trace.cursor(3);
                assert_eq!(cursor.offset(), 3);
                cursor.advance(before + 5);
                assert_eq!(cursor.offset(), before as u64 + 8);
                assert_eq!(cursor.window().0[..8], data[before + 8..][..8]);
            }
        }
    }
}
