//! Frames: the data of several trace units in one buffer, 16 bytes at a time. Source: Arm CoreSight
//! Architecture Specification (IHI 0029), "Trace Formatter".
//!
//! | byte | meaning |
//! |---|---|
//! | 0, 2, … 14, bit 0 set | bits 7-1: the id of what follows; with its bit in byte 15 set, of what follows the next byte |
//! | 0, 2, … 14, bit 0 clear | data, whose bit 0 is in byte 15 |
//! | 1, 3, … 13 | data |
//! | 15 | bit n belongs to byte 2n |

const FRAME: usize = 16;

/// A whole frame of these is padding; it is recognized only at the start of a frame.
const FULL_SYNC: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];

/// The id of bytes without meaning.
const NOTHING: u8 = 0;

/// The bytes of each trace unit, by its id, in the order in which the ids first appear.
///
/// An id applies until the next one, across frames. Bytes without id or of id 0, and cut frames, are dropped.
pub fn deformat(frames: &[u8]) -> Vec<(u8, Vec<u8>)> {
    deformat_by(frames, |bytes: &mut Vec<u8>, _, byte| bytes.push(byte))
}

/// The bytes of a trace unit, and their positions in the frames.
#[derive(Clone, Default, Debug)]
pub struct Deformatted {
    /// The data of the trace unit.
    pub bytes: Vec<u8>,
    /// Pairs of an index in `bytes` and one in the frames, from which on both advance together.
    places: Vec<(usize, usize)>,
}

impl Deformatted {
    /// The data of one trace unit, recorded without frames.
    pub fn contiguous(data: &[u8]) -> Deformatted {
        Deformatted { bytes: data.to_vec(), places: Vec::new() }
    }

    fn push(&mut self, place: usize, byte: u8) {
        let at = self.bytes.len();
        let follows = |&(from, first): &(usize, usize)| place - first == at - from;
        if !self.places.last().is_some_and(follows) {
            self.places.push((at, place));
        }
        self.bytes.push(byte);
    }

    /// The position of a byte in the frames.
    pub fn place(&self, at: usize) -> usize {
        let next = self.places.partition_point(|&(from, _)| from <= at);
        next.checked_sub(1).map_or(at, |run| self.places[run].1 + (at - self.places[run].0))
    }
}

/// Like [`deformat`], with the positions of the bytes.
pub fn deformat_with_places(frames: &[u8]) -> Vec<(u8, Deformatted)> {
    deformat_by(frames, Deformatted::push)
}

/// Calls `push` for each byte, with the data of its trace unit and its position in the frames.
fn deformat_by<B: Default>(frames: &[u8], mut push: impl FnMut(&mut B, usize, u8)) -> Vec<(u8, B)> {
    let mut found: Vec<(u8, B)> = Vec::new();
    let mut indices: [Option<usize>; 128] = [None; 128];
    let mut current = None;
    let mut rest = frames;
    loop {
        if let Some(after) = rest.strip_prefix(&FULL_SYNC) {
            rest = after;
            continue;
        }
        let begin = frames.len() - rest.len();
        let Some((frame, after)) = rest.split_first_chunk::<FRAME>() else { return found };
        rest = after;
        let mut index = |id: u8| {
            (id != NOTHING).then(|| {
                *indices[usize::from(id)].get_or_insert_with(|| {
                    found.push((id, B::default()));
                    found.len() - 1
                })
            })
        };
        let mut pieces = [(None, 0, 0); FRAME];
        let mut count = 0;
        let mut add = |to: Option<usize>, at: usize, byte: u8| {
            pieces[count] = (to, begin + at, byte);
            count += 1;
        };
        for (at, pair) in frame.chunks_exact(2).enumerate() {
            let low = frame[FRAME - 1] >> at & 1;
            // The last byte holds bit 0 of the others and is no data.
            let second = (at < FRAME / 2 - 1).then_some(pair[1]);
            if pair[0] & 1 == 0 {
                add(current, 2 * at, pair[0] | low);
                second.into_iter().for_each(|byte| add(current, 2 * at + 1, byte));
            } else {
                let next = index(pair[0] >> 1);
                let of_second = if low == 1 { current } else { next };
                second.into_iter().for_each(|byte| add(of_second, 2 * at + 1, byte));
                current = next;
            }
        }
        for (to, place, byte) in &pieces[..count] {
            if let Some(to) = to {
                push(&mut found[*to].1, *place, *byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_takes_effect_at_once_or_after_a_byte() {
        let mut frame = [0; FRAME];
        frame[..6].copy_from_slice(&[0x21, 0xaa, 0x22, 0xbb, 0x43, 0xcc]);
        frame[6] = 1;
        // Bit 0 of byte 2; and the id in byte 4 applies after 0xcc.
        frame[15] = 0b110;
        let second = [0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0];
        let third = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0x80];
        let frames = [&FULL_SYNC[..], &frame, &second, &FULL_SYNC, &third, &third[..9]].concat();
        let mut first = vec![0xaa, 0x23, 0xbb, 0xcc];
        first.extend(1..15);
        first.extend(2..16);
        first.push(17);
        assert_eq!(deformat(&frames), [(0x10, first), (0x21, Vec::new())]);
    }

    #[test]
    fn the_place_of_each_byte_is_that_in_its_frame() {
        let second = [0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0];
        let third = [0x43, 3, 0x20, 5, 0x21, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0b100];
        let found = deformat_with_places(&[&FULL_SYNC[..], &second, &third].concat());
        let [(0x10, one), (0x21, other)] = &found[..] else { panic!("{found:?}") };
        // The id in byte 4 of the last frame applies after its byte 5.
        assert_eq!(other.bytes, [3, 0x20, 5, 7]);
        assert_eq!([0, 1, 2, 3].map(|at| other.place(at)), [21, 22, 23, 25]);
        assert_eq!(one.bytes.len(), 14 + 9);
        assert_eq!([0, 13, 14, 22].map(|at| one.place(at)), [5, 18, 26, 34]);
        assert_eq!((one.places.len(), other.places.len()), (2, 2));
        let whole = Deformatted::contiguous(&[1, 2, 3]);
        assert_eq!((whole.place(2), whole.bytes.len()), (2, 3));
    }
}
