//! Finds the packets of Intel PT at which a decoder can begin, and their times.
//!
//! A PSB packet is followed by packets with the state of the trace (PSB+), up to a PSBEND packet. Source:
//! Intel SDM volume 3, "Intel Processor Trace", "Trace Packets and Data Types".
//!
//! | bytes | packet of PSB+ |
//! |---|---|
//! | 02 82, eight times | PSB |
//! | 19, 7 bytes | TSC: bits 0-55 of the time-stamp counter |
//! | 02 73, 5 bytes | TMA |
//! | 02 03, 2 bytes | CBR |
//! | 02 43, 6 bytes | PIP |
//! | 02 c8, 5 bytes | VMCS |
//! | 99, 1 byte | MODE |
//! | 59, 1 byte | MTC |
//! | low 5 bits 1d, 0 to 8 bytes | FUP; the high 3 bits determine the length |
//! | 00 | PAD |
//! | 02 23 | PSBEND |

use crate::Endian;

const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];

/// A PSB packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Psb {
    /// The position in the data, bytes.
    pub at: usize,
    /// Bits 0-55 of the time-stamp counter, if the trace has them.
    pub tsc: Option<u64>,
}

impl Psb {
    /// The whole counter, which is near to another value of it.
    pub fn near(&self, reference: u64) -> Option<u64> {
        const HALF: u64 = 1 << 55;
        let tsc = self.tsc? | reference & (0xff << 56);
        Some(match tsc.abs_diff(reference) {
            0..=HALF => tsc,
            _ if tsc < reference => tsc.wrapping_add(2 * HALF),
            _ => tsc.wrapping_sub(2 * HALF),
        })
    }
}

/// The complete PSB packets in AUX data of Intel PT.
pub fn psbs(data: &[u8]) -> impl Iterator<Item = Psb> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let window = data.get(at..at + PSB.len())?;
            // The last byte determines the distance to the next possible match.
            at += match window[PSB.len() - 1] {
                0x82 if window == PSB => {
                    let found = at;
                    at += PSB.len();
                    return Some(Psb { at: found, tsc: tsc(&data[at..]) });
                }
                0x82 => 2,
                2 => 1,
                _ => PSB.len(),
            };
        }
    })
}

fn tsc(mut data: &[u8]) -> Option<u64> {
    loop {
        let size = match *data {
            [0x19, ..] => {
                let mut word = [0; 8];
                word[..7].copy_from_slice(data.get(1..8)?);
                return Endian::Little.u64(&word, 0);
            }
            [0, ..] => 1,
            [0x99 | 0x59, ..] => 2,
            [2, 0x03, ..] => 4,
            [2, 0x73 | 0xc8, ..] => 7,
            [2, 0x43, ..] => 8,
            [first, ..] if first & 0x1f == 0x1d => match first >> 5 {
                0 => 1,
                1 => 3,
                2 => 5,
                3 | 4 => 7,
                6 => 9,
                _ => return None,
            },
            _ => return None,
        };
        data = data.get(size..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psb_is_found_wherever_it_begins() {
        for before in 0..40 {
            let mut data = vec![0x82; before];
            data.extend(PSB);
            data.extend([2, 0x82, 2, 2]);
            data.extend(PSB);
            data.extend([0x99; 5]);
            let found: Vec<_> = psbs(&data).map(|psb| psb.at).collect();
            assert_eq!(found, [before, before + 20], "after {before} bytes");
        }
        assert_eq!(psbs(&PSB[1..]).count(), 0);
        assert_eq!(psbs(&PSB.repeat(3)).count(), 3);
    }

    #[test]
    fn a_psb_has_the_time_of_its_tsc_packet() {
        let data =
            [&PSB[..], &[0, 0x99, 1, 2, 0x03, 9, 9, 0x3d, 1, 2, 0x19, 1, 2, 3, 4, 5, 6, 7, 2, 0x23]].concat();
        let psb = psbs(&data).next().unwrap();
        assert_eq!(psb.tsc, Some(0x07_0605_0403_0201));
        assert_eq!(psb.near(0x1107_0605_0403_0000), Some(0x1107_0605_0403_0201));
        let low = Psb { at: 0, tsc: Some(5) };
        assert_eq!(low.near(0x11ff_ffff_ffff_ffff), Some(0x1200_0000_0000_0005));
        let high = Psb { at: 0, tsc: Some(0xff_ffff_ffff_ffff) };
        assert_eq!(high.near(0x1200_0000_0000_0005), Some(0x11ff_ffff_ffff_ffff));
        let without = [&PSB[..], &[2, 0x23, 0x19]].concat();
        assert_eq!(psbs(&without).next().unwrap().tsc, None);
    }
}
