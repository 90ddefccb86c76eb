//! Packets of Intel PT, one at a time.
//!
//! The first byte, or the first two, determine a packet's kind and length. Little-endian throughout. Source:
//! Intel SDM volume 3, "Intel Processor Trace", "Trace Packets and Data Types".
//!
//! | bytes | packet |
//! |---|---|
//! | 00 | PAD |
//! | bit 0 clear, more than 2 | TNT: up to 6 branches below the stop bit, the oldest highest |
//! | 02 a3, 6 bytes | TNT with up to 47 branches |
//! | low 5 bits 0d, 11, 01, 1d; 0 to 8 bytes | TIP, TIP.PGE, TIP.PGD, FUP; the high 3 bits: how the IP is compressed |
//! | 02 82, eight times | PSB |
//! | 02 23, 02 f3, 02 83 | PSBEND, OVF, TraceStop |
//! | 19, 7 bytes | TSC |
//! | 02 73, 5 bytes | TMA: CTC (2), reserved (1), fast counter (9 bits) |
//! | 59, 1 byte | MTC |
//! | low 2 bits 11 | CYC: 5 bits, and 7 in each byte that follows while the lowest (in the first: third) bit is set |
//! | 02 03, 2 bytes | CBR: ratio (1), reserved (1) |
//! | 99, 1 byte | MODE: the high 3 bits 0 Exec (bits 1-0 the size of code, 2 the interrupt flag), 1 TSX |
//! | 02 43, 6 bytes | PIP: bit 0 guest, then bits 5-51 of CR3 |
//! | 02 c8, 5 bytes | VMCS |
//! | 02 and low 5 bits 12, 4 or 8 bytes | PTW; bit 5 the size, bit 7: FUP follows |
//! | 02 c2, 8 bytes; 02 22, 2 bytes; 02 a2, 5 bytes | MWAIT, PWRE, PWRX |
//! | 02 62 or 02 e2 | EXSTOP; the latter: FUP follows |
//! | 02 63, 1 byte | BBP: a group of items begins, of this kind (bits 4-0); bit 7: of 4 bytes instead of 8 |
//! | low 3 bits 100 between BBP and BEP, 4 or 8 bytes | BIP: the high 5 bits are the item's number |
//! | 02 33 or 02 b3 | BEP; the latter: FUP follows |
//! | 02 13, 2 bytes; 02 53, 9 bytes; 02 c3 88, 8 bytes | CFE, EVD, MNT |

use super::errata::Errata;
use crate::bytes::{Cursor, LONGEST, Trace};

pub(super) const PSB: [u8; LONGEST] =
    [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];

const LONG_TNT: [u8; 2] = [2, 0xa3];

const OVF: [u8; 2] = [2, 0xf3];

/// A packet. An address is `None` if the packet lacks it (out of context).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packet {
    /// The oldest branch is the highest of `count` bits, which is at least 1.
    Tnt {
        bits: u64,
        count: u32,
    },
    Tip(Option<u64>),
    Pge(Option<u64>),
    Pgd(Option<u64>),
    Fup(Option<u64>),
    Psb,
    PsbEnd,
    Overflow,
    Tsc(u64),
    Tma {
        ctc: u16,
        fast: u16,
    },
    Mtc(u8),
    Cyc(u64),
    Cbr(u8),
    Exec {
        bits: u32,
        interrupts: bool,
    },
    Tsx {
        inside: bool,
        aborted: bool,
    },
    Pip {
        cr3: u64,
        guest: bool,
    },
    Ptwrite {
        value: u64,
        has_fup: bool,
    },
    Mwait(u64),
    Pwre(u64),
    Pwrx(u64),
    Exstop {
        has_fup: bool,
    },
    /// A group of items begins. It is the first of a block unless a block is already open.
    Bbp {
        is_first: bool,
        group: u8,
        is_short: bool,
    },
    Bip {
        id: u8,
        value: u64,
    },
    Bep {
        has_fup: bool,
    },
    Cfe {
        has_fup: bool,
        kind: u8,
        vector: u8,
    },
    Evd {
        kind: u8,
        payload: u64,
    },
    TraceStop,
    /// PAD, VMCS, MNT, and unknown modes.
    Other,
    Bad,
    Cut,
}

#[derive(Clone, Debug)]
pub(super) struct Packets<'a> {
    cursor: Cursor<'a>,
    /// The last address, used to decompress addresses.
    last: u64,
    /// The size of BIP packets, between BBP and BEP.
    item: Option<u8>,
    errata: Errata,
}

impl<'a> Packets<'a> {
    /// Reads packets of a processor with these errata, from an offset on, where a PSB should be.
    pub(super) fn new(trace: &'a Trace<'_>, at: u64, errata: Errata) -> Packets<'a> {
        Packets { cursor: trace.cursor(at), last: 0, item: None, errata }
    }

    /// Reads from an offset on, where a packet begins; `item` is [`Packets::item`] at that offset.
    pub(super) fn within_block(trace: &'a Trace<'_>, at: u64, item: Option<u8>) -> Packets<'a> {
        Packets { item, ..Packets::new(trace, at, Errata::default()) }
    }

    pub(super) fn offset(&self) -> u64 {
        self.cursor.offset()
    }

    pub(super) fn head(&self) -> [u8; LONGEST] {
        self.cursor.window().0
    }

    pub(super) fn item(&self) -> Option<u8> {
        self.item
    }

    /// The next packet; `None` at the end of the trace. After one that is bad or cut off, do not read on.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Packet> {
        let (window, available) = self.cursor.window();
        if available == 0 {
            return None;
        }
        let (packet, len) = self.read(&window);
        if len > available {
            return Some(Packet::Cut);
        }
        if self.item.is_some() && !belongs_to_block(&packet, &window) {
            self.item = None;
        }
        self.cursor.advance(len);
        Some(packet)
    }

    /// The next packet, if it is a TNT packet: its branches and their count.
    #[inline(always)]
    pub(super) fn next_branches(&mut self) -> Option<(u64, u32)> {
        let first = *self.cursor.rest().first()?;
        if first & 1 != 0 || first == 0 || self.item.is_some() {
            return None;
        }
        if first == LONG_TNT[0] {
            let window = self.cursor.rest().first_chunk().filter(|window| window[1] == LONG_TNT[1])?;
            let branches = long_branches(window)?;
            self.cursor.advance(8);
            return Some(branches);
        }
        self.cursor.advance(1);
        Some(short_branches(first))
    }

    #[inline(always)]
    pub(super) fn next_target(&mut self) -> Option<u64> {
        let window = self.cursor.rest().first_chunk().filter(|window| window[0] & 0x1f == 0x0d)?;
        let (ip, len) = self.address(window)?;
        (self.last, self.item) = (ip, None);
        self.cursor.advance(len);
        Some(ip)
    }

    #[inline(always)]
    fn address(&self, window: &[u8; LONGEST]) -> Option<(u64, usize)> {
        let value = word(window, 1, 8);
        Some(match window[0] >> 5 {
            1 => ((self.last & !0xffff) | (value & 0xffff), 3),
            2 => ((self.last & !0xffff_ffff) | (value & 0xffff_ffff), 5),
            3 => (((value << 16).cast_signed() >> 16).cast_unsigned(), 7),
            4 => ((self.last & !(u64::MAX >> 16)) | (value & (u64::MAX >> 16)), 7),
            6 => (value, 9),
            _ => return None,
        })
    }

    #[inline(always)]
    fn read(&mut self, window: &[u8; LONGEST]) -> (Packet, usize) {
        let first = window[0];
        if first & 1 == 0 && first > 2 {
            if let Some(len) = self.item.filter(|_| first & 7 == 4).map(usize::from) {
                return (Packet::Bip { id: first >> 3, value: word(window, 1, len - 1) }, len);
            }
            let (bits, count) = short_branches(first);
            return (Packet::Tnt { bits, count }, 1);
        }
        let kind: fn(Option<u64>) -> Packet = match first & 0x1f {
            0x0d => Packet::Tip,
            0x11 => Packet::Pge,
            0x01 => Packet::Pgd,
            0x1d => Packet::Fup,
            _ => return self.read_other(window),
        };
        match self.address(window) {
            Some((ip, len)) => {
                self.last = ip;
                (kind(Some(ip)), len)
            }
            None if first >> 5 == 0 => (kind(None), 1),
            None => (Packet::Bad, 1),
        }
    }

    fn read_other(&mut self, window: &[u8; LONGEST]) -> (Packet, usize) {
        match window[0] {
            0 => (Packet::Other, 1),
            2 => self.read_extended(window),
            0x19 => (Packet::Tsc(word(window, 1, 7)), 8),
            0x59 => (Packet::Mtc(window[1]), 2),
            0x99 => match window[1] >> 5 {
                0 => {
                    let bits = match window[1] & 3 {
                        0 => 16,
                        2 => 32,
                        _ => 64,
                    };
                    (Packet::Exec { bits, interrupts: window[1] & 4 != 0 }, 2)
                }
                1 => (Packet::Tsx { inside: window[1] & 1 != 0, aborted: window[1] & 2 != 0 }, 2),
                _ => (Packet::Other, 2),
            },
            // Two CYC packets never follow each other, unless the first one is full.
            first if first & 7 == 7 && self.errata.skd007 && window[1..3] == OVF => (Packet::Other, 1),
            first if first & 3 == 3 => cyc(window),
            _ => (Packet::Bad, 1),
        }
    }

    fn read_extended(&mut self, window: &[u8; LONGEST]) -> (Packet, usize) {
        let second = window[1];
        match second {
            0xa3 => {
                let Some((bits, count)) = long_branches(window) else { return (Packet::Bad, 8) };
                (Packet::Tnt { bits, count }, 8)
            }
            0x82 => {
                self.last = 0;
                let same = window.iter().zip(PSB).take_while(|(byte, expected)| **byte == *expected).count();
                if same == LONGEST { (Packet::Psb, LONGEST) } else { (Packet::Bad, same + 1) }
            }
            0x23 => (Packet::PsbEnd, 2),
            0xf3 => {
                self.last = 0;
                (Packet::Overflow, 2)
            }
            0x03 => (Packet::Cbr(window[2]), 4),
            0x43 => {
                let value = word(window, 2, 6);
                (Packet::Pip { cr3: (value & !1) << 4, guest: value & 1 != 0 }, 8)
            }
            0xc8 => (Packet::Other, 7),
            0x73 if self.errata.skz84 && (window[4] != 0 || window[6] > 1) => (Packet::Other, 8),
            0x73 => {
                let fast = word(window, 5, 2) as u16 & 0x1ff;
                (Packet::Tma { ctc: word(window, 2, 2) as u16, fast }, 7)
            }
            0x83 => (Packet::TraceStop, 2),
            0xc2 => (Packet::Mwait(word(window, 2, 8)), 10),
            0x22 => (Packet::Pwre(word(window, 2, 2)), 4),
            0xa2 => (Packet::Pwrx(word(window, 2, 5)), 7),
            0x62 | 0xe2 => (Packet::Exstop { has_fup: second & 0x80 != 0 }, 2),
            0x63 => {
                let (is_first, is_short) = (self.item.is_none(), window[2] & 0x80 != 0);
                self.item = Some(if is_short { 5 } else { 9 });
                (Packet::Bbp { is_first, group: window[2] & 0x1f, is_short }, 3)
            }
            0x33 | 0xb3 => (Packet::Bep { has_fup: second & 0x80 != 0 }, 2),
            0x13 => {
                let (kind, vector) = (window[2] & 0x1f, window[3]);
                (Packet::Cfe { has_fup: window[2] & 0x80 != 0, kind, vector }, 4)
            }
            0x53 => (Packet::Evd { kind: window[2] & 0x3f, payload: word(window, 3, 8) }, 11),
            0xc3 if window[2] == 0x88 => (Packet::Other, 11),
            0xc3 => (Packet::Bad, 3),
            _ if second & 0x1f == 0x12 && second & 0x40 == 0 => {
                let len = if second & 0x20 != 0 { 8 } else { 4 };
                (Packet::Ptwrite { value: word(window, 2, len), has_fup: second & 0x80 != 0 }, 2 + len)
            }
            _ => (Packet::Bad, 2),
        }
    }
}

/// True for packets within a block of items, as in perf. `window` distinguishes PAD and MNT from others.
fn belongs_to_block(packet: &Packet, window: &[u8; LONGEST]) -> bool {
    match packet {
        Packet::Bbp { .. } | Packet::Bip { .. } | Packet::Fup(_) => true,
        Packet::Tsc(_) | Packet::Tma { .. } | Packet::Mtc(_) | Packet::Cyc(_) | Packet::Cbr(_) => true,
        Packet::Exstop { .. } | Packet::Pwre(_) | Packet::Pwrx(_) => true,
        Packet::Other => matches!(window, [0, ..] | [2, 0xc3, ..]),
        _ => false,
    }
}

#[inline(always)]
fn short_branches(first: u8) -> (u64, u32) {
    let count = 6 - first.leading_zeros();
    ((u64::from(first) >> 1) & ((1 << count) - 1), count)
}

/// The branches of a long TNT packet. A stop bit without branches below it is never sent.
#[inline(always)]
fn long_branches(window: &[u8; LONGEST]) -> Option<(u64, u32)> {
    let value = word(window, 2, 6);
    let count = value.checked_ilog2().filter(|count| *count > 0)?;
    Some((value & ((1 << count) - 1), count))
}

#[inline(always)]
fn word(window: &[u8; LONGEST], at: usize, len: usize) -> u64 {
    let number = u128::from_le_bytes(*window) >> (8 * at);
    (number & ((1 << (8 * len)) - 1)) as u64
}

/// The CYC packet, if its value fits 64 bits.
fn cyc(window: &[u8; LONGEST]) -> (Packet, usize) {
    let (mut value, mut shift, mut len) = (u128::from(window[0] >> 3), 5, 1);
    let mut goes_on = window[0] & 4 != 0;
    while goes_on {
        let Some(byte) = window.get(len).filter(|_| shift < 64) else {
            return (Packet::Bad, len);
        };
        value |= u128::from(byte >> 1) << shift;
        goes_on = byte & 1 != 0;
        (shift, len) = (shift + 7, len + 1);
    }
    (u64::try_from(value).map_or(Packet::Bad, Packet::Cyc), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Packet> {
        all_of(bytes, Errata::default())
    }

    fn all_of(bytes: &[u8], errata: Errata) -> Vec<Packet> {
        let trace = Trace::new(vec![bytes], Vec::new());
        let mut packets = Packets::new(&trace, 0, errata);
        let mut found = Vec::new();
        while let Some(packet) = packets.next() {
            found.push(packet);
            if matches!(packet, Packet::Bad | Packet::Cut) {
                break;
            }
        }
        found
    }

    #[test]
    fn each_packet_is_read_whole_or_cut() {
        let cases: &[(&[u8], Packet)] = &[
            (&[0], Packet::Other),
            (&[4], Packet::Tnt { bits: 0, count: 1 }),
            (&[0b1101_0110], Packet::Tnt { bits: 0b10_1011, count: 6 }),
            (&[2, 0xa3, 5, 0, 0, 0, 0, 0x80], Packet::Tnt { bits: 5, count: 47 }),
            (&PSB, Packet::Psb),
            (&[2, 0x23], Packet::PsbEnd),
            (&[2, 0xf3], Packet::Overflow),
            (&[2, 0x83], Packet::TraceStop),
            (&[0x19, 1, 2, 3, 4, 5, 6, 7], Packet::Tsc(0x07_0605_0403_0201)),
            (&[2, 0x73, 1, 2, 0, 3, 0xff], Packet::Tma { ctc: 0x201, fast: 0x103 }),
            (&[0x59, 7], Packet::Mtc(7)),
            (&[0b1010_1011], Packet::Cyc(0b10101)),
            (&[0b1010_1111, 0b11, 0b10], Packet::Cyc(0b1_0000_0011_0101)),
            (&[2, 3, 9, 0], Packet::Cbr(9)),
            (&[0x99, 1], Packet::Exec { bits: 64, interrupts: false }),
            (&[0x99, 6], Packet::Exec { bits: 32, interrupts: true }),
            (&[0x99, 0], Packet::Exec { bits: 16, interrupts: false }),
            (&[0x99, 0x21], Packet::Tsx { inside: true, aborted: false }),
            (&[0x99, 0x22], Packet::Tsx { inside: false, aborted: true }),
            (&[2, 0x43, 3, 1, 0, 0, 0, 0], Packet::Pip { cr3: 0x1020, guest: true }),
            (&[2, 0xc8, 1, 2, 3, 4, 5], Packet::Other),
            (&[2, 0x12, 1, 2, 3, 4], Packet::Ptwrite { value: 0x0403_0201, has_fup: false }),
            (&[2, 0xb2, 1, 0, 0, 0, 0, 0, 0, 8], Packet::Ptwrite { value: (8 << 56) + 1, has_fup: true }),
            (&[2, 0xc2, 1, 0, 0, 0, 2, 0, 0, 0], Packet::Mwait(0x2_0000_0001)),
            (&[2, 0x22, 1, 2], Packet::Pwre(0x201)),
            (&[2, 0xa2, 1, 2, 0, 0, 0], Packet::Pwrx(0x201)),
            (&[2, 0x62], Packet::Exstop { has_fup: false }),
            (&[2, 0xe2], Packet::Exstop { has_fup: true }),
            (&[2, 0x63, 0x84], Packet::Bbp { is_first: true, group: 4, is_short: true }),
            (&[2, 0x33], Packet::Bep { has_fup: false }),
            (&[2, 0xb3], Packet::Bep { has_fup: true }),
            (&[2, 0x13, 0x81, 7], Packet::Cfe { has_fup: true, kind: 1, vector: 7 }),
            (
                &[2, 0x53, 0xc1, 1, 2, 3, 4, 5, 6, 7, 8],
                Packet::Evd { kind: 1, payload: 0x0807_0605_0403_0201 },
            ),
            (&[2, 0xc3, 0x88, 1, 2, 3, 4, 5, 6, 7, 8], Packet::Other),
            (&[0x0d], Packet::Tip(None)),
            (&[0x11], Packet::Pge(None)),
            (&[0x21, 1, 2], Packet::Pgd(Some(0x201))),
            (&[0x5d, 1, 2, 3, 4], Packet::Fup(Some(0x0403_0201))),
            (&[0x6d, 1, 0, 0, 0, 0, 0x80], Packet::Tip(Some(0xffff_8000_0000_0001))),
            (&[0x8d, 1, 0, 0, 0, 0, 0x80], Packet::Tip(Some(0x8000_0000_0001))),
            (&[0xcd, 1, 0, 0, 0, 0, 0, 0, 8], Packet::Tip(Some((8 << 56) + 1))),
        ];
        for (bytes, packet) in cases {
            assert_eq!(all(&[bytes, &[0][..]].concat()), [*packet, Packet::Other], "{bytes:x?}");
            for len in 1..bytes.len() {
                assert_eq!(all(&bytes[..len]), [Packet::Cut], "{bytes:x?} up to {len}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_a_packet_are_bad_packets() {
        let long = [0xff; 16];
        let cases: &[&[u8]] = &[
            &[0x05],
            &[0xad, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0xa3, 0, 0, 0, 0, 0, 0],
            &[2, 0xa3, 1, 0, 0, 0, 0, 0],
            &[2, 0x82, 2, 0x82, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0xff],
            &[2, 0x52],
            &long,
        ];
        for bytes in cases {
            assert_eq!(all(bytes), [Packet::Bad], "{bytes:x?}");
        }
    }

    #[test]
    fn errata_change_packets_only_of_their_models() {
        let (overflow, errata) = ([0x0f, 2, 0xf3], Errata { skd007: true, ..Errata::default() });
        assert_eq!(all_of(&overflow, errata), [Packet::Other, Packet::Overflow]);
        assert_eq!(all(&overflow), [Packet::Cyc(0x21), Packet::Cyc(0x1e)]);
        let (tma, errata) = ([2, 0x73, 1, 2, 3, 4, 5, 0xad, 6], Errata { skz84: true, ..Errata::default() });
        let branches = Packet::Tnt { bits: 1, count: 1 };
        assert_eq!(all_of(&tma, errata), [Packet::Other, branches]);
        assert_eq!(all(&tma), [Packet::Tma { ctc: 0x201, fast: 0x104 }, Packet::Bad]);
        let right = [2, 0x73, 1, 2, 0, 4, 1, 6];
        assert_eq!(all_of(&right, errata), [Packet::Tma { ctc: 0x201, fast: 0x104 }, branches]);
    }

    #[test]
    fn addresses_are_compressed_against_the_last_one() {
        let bytes = [0x6d, 1, 2, 3, 4, 5, 6, 0x2d, 9, 9, 0x4d, 8, 8, 8, 8, 2, 0xf3, 0x2d, 7, 7];
        let [a, b, c] = [0x0605_0403_0201, 0x0605_0403_0909, 0x0605_0808_0808];
        let tip = |ip| Packet::Tip(Some(ip));
        assert_eq!(all(&bytes), [tip(a), tip(b), tip(c), Packet::Overflow, tip(0x0707)]);
    }

    #[test]
    fn the_items_of_a_block_are_not_branches() {
        let short = Packet::Bbp { is_first: true, group: 1, is_short: true };
        let long = Packet::Bbp { is_first: false, group: 5, is_short: false };
        let items = [Packet::Bip { id: 1, value: 0x0403_0201 }, Packet::Bip { id: 2, value: 8 << 56 }];
        let bytes =
            [2, 0x63, 0x81, 0x0c, 1, 2, 3, 4, 2, 0x63, 5, 0x14, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0x33, 0x0c];
        let [end, branches] = [Packet::Bep { has_fup: false }, Packet::Tnt { bits: 2, count: 2 }];
        assert_eq!(all(&bytes), [short, items[0], long, items[1], end, branches]);
    }

    #[test]
    fn only_time_and_power_packets_may_interrupt_a_block_of_items() {
        let goes_on = |between: &[u8]| {
            let packets = all(&[&[2, 0x63, 0x81], between, &[0x0c, 1, 2, 3, 4], &[2, 0x63, 4]].concat());
            let second = Packet::Bbp { is_first: false, group: 4, is_short: false };
            packets.ends_with(&[Packet::Bip { id: 1, value: 0x0403_0201 }, second])
        };
        let between: &[&[u8]] =
            &[&[0], &[0x59, 7], &[0x0b], &[2, 3, 9, 0], &[2, 0x62], &[2, 0x22, 1, 2], &[0x3d, 1, 2]];
        assert!(between.iter().all(|between| goes_on(between)));
        let after: &[&[u8]] =
            &[&[6], &[0x2d, 1, 2], &[2, 0x33], &[0x99, 1], &[2, 0xc8, 1, 2, 3, 4, 5], &[2, 0x83]];
        assert!(!after.iter().any(|after| goes_on(after)));
    }

    #[test]
    fn a_target_or_branches_are_read_at_once_only_if_they_come_next() {
        let bytes = [&[0x2d, 0x34, 0x12, 0x0c, 0x4d, 1, 2, 3, 4, 0x0d, 2, 0xf3][..], &[0; 32]].concat();
        let trace = Trace::new(vec![&bytes], Vec::new());
        let mut packets = Packets::new(&trace, 0, Errata::default());
        assert_eq!(packets.next_branches(), None);
        assert_eq!(packets.next_target(), Some(0x1234));
        assert_eq!((packets.next_target(), packets.next_branches()), (None, Some((2, 2))));
        assert_eq!(packets.next_target(), Some(0x0403_0201));
        // A TIP without an address.
        assert_eq!((packets.next_target(), packets.next()), (None, Some(Packet::Tip(None))));
    }
}
