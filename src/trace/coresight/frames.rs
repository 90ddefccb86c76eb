//! Frames: the data of several trace units in one buffer, 16 bytes at a time. Source: Arm CoreSight Architecture
//! Specification (IHI 0029), "Trace Formatter".
//!
//! | byte | meaning |
//! |---|---|
//! | 0, 2, … 14, bit 0 set | bits 7-1: the id of what follows; with its bit in byte 15 set, of what follows the next byte |
//! | 0, 2, … 14, bit 0 clear | data, whose bit 0 is in byte 15 |
//! | 1, 3, … 13 | data |
//! | 15 | bit n belongs to byte 2n |

/// The size of a frame, bytes.
const FRAME: usize = 16;

/// A frame of it fills time, and is only looked for where a frame begins.
const FULL_SYNC: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];

/// The id of bytes that mean nothing.
const NOTHING: u8 = 0;

/// Takes frames apart: the bytes of each trace unit, by its id, in the order in which the ids appear first.
///
/// An id holds from frame to frame. What is in front of the first is dropped, as is id 0, and a frame that is cut off.
pub fn deformat(frames: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found: Vec<(u8, Vec<u8>)> = Vec::new();
    // Where the bytes of each id are in `found`.
    let mut places: [Option<usize>; 128] = [None; 128];
    let mut current = None;
    let mut rest = frames;
    loop {
        if let Some(behind) = rest.strip_prefix(&FULL_SYNC) {
            rest = behind;
            continue;
        }
        let Some((frame, behind)) = rest.split_first_chunk::<FRAME>() else { return found };
        rest = behind;
        let mut place = |id: u8| {
            (id != NOTHING).then(|| {
                *places[usize::from(id)].get_or_insert_with(|| {
                    found.push((id, Vec::new()));
                    found.len() - 1
                })
            })
        };
        let mut pieces = [(None, 0); FRAME];
        let mut count = 0;
        let mut add = |to: Option<usize>, byte: u8| {
            pieces[count] = (to, byte);
            count += 1;
        };
        for (at, pair) in frame.chunks_exact(2).enumerate() {
            let low = frame[FRAME - 1] >> at & 1;
            // The last pair has the bits of the others in place of a second byte.
            let second = (at < FRAME / 2 - 1).then_some(pair[1]);
            if pair[0] & 1 == 0 {
                add(current, pair[0] | low);
                second.into_iter().for_each(|byte| add(current, byte));
            } else {
                let next = place(pair[0] >> 1);
                let of_second = if low == 1 { current } else { next };
                second.into_iter().for_each(|byte| add(of_second, byte));
                current = next;
            }
        }
        for (to, byte) in &pieces[..count] {
            if let Some(to) = to {
                found[*to].1.push(*byte);
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
        // From here on nothing.
        frame[6] = 1;
        // The bit 0 of byte 2, and the id of byte 4 is that of what follows 0xcc.
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
}
