//! Lists the packets of a trace, each with its offset, its bytes and a description in the words of perf.

use std::fmt;

use super::packet::{Packet, Packets};
use crate::bytes::Trace;

/// A packet in a list.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its offset in the data.
    pub offset: usize,
    /// Its bytes, and PAD packets after it up to 8 bytes: perf lists these together.
    pub bytes: &'a [u8],
    packet: Packet,
}

/// PAD packets are joined to the packet before them up to this size.
const PADDED: usize = 8;

/// Lists the packets of `data`, which begins with one. A byte that begins no packet is listed by itself.
///
/// ```
/// let listed = perfx_trace::intel_pt::list(&[0x2d, 0x20, 0x10, 0, 0x0e]);
/// let lines: Vec<_> = listed.map(|packet| (packet.offset, packet.to_string())).collect();
/// assert_eq!(lines, [(0, "TIP 0x1020".to_owned()), (4, "TNT TT (2)".to_owned())]);
/// ```
pub fn list(data: &[u8]) -> impl Iterator<Item = Listed<'_>> {
    let mut reader = Reader { trace: Trace::new(vec![data], Vec::new()), data, at: 0, item: None };
    std::iter::from_fn(move || reader.next())
}

struct Reader<'a> {
    trace: Trace<'a>,
    data: &'a [u8],
    at: usize,
    item: Option<u8>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Listed<'a>> {
        let offset = self.at;
        let mut packets = Packets::within_block(&self.trace, offset as u64, self.item);
        let mut packet = packets.next()?;
        let mut end = packets.offset() as usize;
        if !is_known(&packet, self.data.get(offset..end)?) {
            (packet, end) = (Packet::Bad, offset + 1);
        } else {
            self.item = packets.item();
            let padding = self.data[end..].iter().take(PADDED.saturating_sub(end - offset));
            end += padding.take_while(|byte| **byte == 0).count();
        }
        self.at = end;
        Some(Listed { offset, bytes: self.data.get(offset..end)?, packet })
    }
}

/// False for bytes that perf does not list as a packet.
fn is_known(packet: &Packet, bytes: &[u8]) -> bool {
    match packet {
        Packet::Bad | Packet::Cut => false,
        Packet::Exec { .. } => bytes.get(1).is_some_and(|mode| mode & 3 != 3),
        Packet::Tsx { inside, aborted } => !(*inside && *aborted),
        // An undefined mode.
        Packet::Other => bytes.first() != Some(&0x99),
        _ => true,
    }
}

pub(super) fn kind(packet: &Packet, bytes: &[u8]) -> &'static str {
    match packet {
        Packet::Tnt { .. } => "TNT",
        Packet::Tip(_) => "TIP",
        Packet::Pge(_) => "TIP.PGE",
        Packet::Pgd(_) => "TIP.PGD",
        Packet::Fup(_) => "FUP",
        Packet::Psb => "PSB",
        Packet::PsbEnd => "PSBEND",
        Packet::Overflow => "OVF",
        Packet::Tsc(_) => "TSC",
        Packet::Tma { .. } => "TMA",
        Packet::Mtc(_) => "MTC",
        Packet::Cyc(_) => "CYC",
        Packet::Cbr(_) => "CBR",
        Packet::Exec { .. } => "MODE.Exec",
        Packet::Tsx { .. } => "MODE.TSX",
        Packet::Pip { .. } => "PIP",
        Packet::Ptwrite { .. } => "PTWRITE",
        Packet::Mwait(_) => "MWAIT",
        Packet::Pwre(_) => "PWRE",
        Packet::Pwrx(_) => "PWRX",
        Packet::Exstop { .. } => "EXSTOP",
        Packet::Bbp { .. } => "BBP",
        Packet::Bip { .. } => "BIP",
        Packet::Bep { .. } => "BEP",
        Packet::Cfe { .. } => "CFE",
        Packet::Evd { .. } => "EVD",
        Packet::TraceStop => "TraceSTOP",
        Packet::Other => match bytes {
            [2, 0xc8, ..] => "VMCS",
            [2, 0xc3, ..] => "MNT",
            _ => "PAD",
        },
        Packet::Bad | Packet::Cut => "Bad packet!",
    }
}

impl Listed<'_> {
    /// The kind of packet.
    pub fn kind(&self) -> &'static str {
        kind(&self.packet, self.bytes)
    }

    fn word(&self, at: usize, len: usize) -> u64 {
        let bytes = self.bytes.iter().skip(at).take(len);
        bytes.rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Writes the compressed address, as the packet contains it.
    fn address(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = match self.bytes.first().map_or(0, |first| first >> 5) {
            0 => return f.write_str(" no ip"),
            1 => 2,
            2 => 4,
            3 | 4 => 6,
            _ => 8,
        };
        write!(f, " {:#x}", self.word(1, len))
    }
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self.packet {
            Packet::Tnt { bits, count } => {
                let branches = (0..count).rev().map(|bit| if bits >> bit & 1 == 1 { 'T' } else { 'N' });
                write!(f, " {} ({count})", branches.collect::<String>())
            }
            Packet::Tip(_) | Packet::Pge(_) | Packet::Pgd(_) | Packet::Fup(_) => self.address(f),
            Packet::Tsc(value) | Packet::Cyc(value) => write!(f, " {value:#x}"),
            Packet::Tma { ctc, fast } => write!(f, " CTC {ctc:#x} FC {fast:#x}"),
            Packet::Mtc(value) => write!(f, " {value:#x}"),
            Packet::Cbr(_) => write!(f, " {:#x}", self.word(2, 2)),
            Packet::Exec { bits, interrupts } => write!(f, " IF:{} {bits}", u8::from(interrupts)),
            Packet::Tsx { inside, aborted } => {
                write!(f, " TXAbort:{} InTX:{}", u8::from(aborted), u8::from(inside))
            }
            Packet::Pip { guest, .. } => write!(f, " {:#x} (NR={})", self.word(2, 6) >> 1, u8::from(guest)),
            Packet::Ptwrite { value, has_fup } => write!(f, " {value:#x} IP:{}", u8::from(has_fup)),
            Packet::Mwait(value) => {
                write!(f, " {value:#x} Hints {:#x} Extensions {:#x}", value & 0xff, value >> 32 & 3)
            }
            Packet::Pwre(value) => {
                let (hardware, state, sub) = (value >> 7 & 1, value >> 12 & 15, value >> 8 & 15);
                write!(f, " {value:#x} HW:{hardware} CState:{state} Sub-CState:{sub}")
            }
            Packet::Pwrx(value) => {
                let (last, deepest, reason) = (value >> 4 & 15, value & 15, value >> 8 & 15);
                write!(f, " {value:#x} Last CState:{last} Deepest CState:{deepest} Wake Reason {reason:#x}")
            }
            Packet::Exstop { has_fup } | Packet::Bep { has_fup } => write!(f, " IP:{}", u8::from(has_fup)),
            Packet::Bbp { group, is_short, .. } => {
                write!(f, " SZ {}-byte Type {group:#x}", if is_short { 4 } else { 8 })
            }
            Packet::Bip { id, .. } => {
                // The PAD packets joined to the line are zeros above the value.
                write!(f, " ID {id:#04x} Value {:#x}", self.word(1, 8))
            }
            Packet::Cfe { has_fup, kind, vector } => {
                write!(f, " IP:{} Type {kind:#04x} Vector {vector:#x}", u8::from(has_fup))
            }
            Packet::Evd { kind, payload } => write!(f, " Type {kind:#04x} Payload {payload:#x}"),
            Packet::Other => match self.kind() {
                "VMCS" => write!(f, " {:#x}", self.word(2, 5)),
                "MNT" => write!(f, " {:#x}", self.word(3, 8)),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_described_in_the_words_of_perf() {
        // As perf 6.1 and 7.3 list these bytes.
        let cases: &[(&[u8], &str)] = &[
            (&[0, 0, 0], "PAD"),
            (&[0xd6], "TNT TNTNTT (6)"),
            (&[2, 3, 9, 0x55], "CBR 0x5509"),
            (&[2, 0x73, 1, 2, 0, 3, 0x0f], "TMA CTC 0x201 FC 0x103"),
            (&[0xaf, 3, 2], "CYC 0x1035"),
            (&[0x99, 5], "MODE.Exec IF:1 64"),
            (&[0x99, 0x22], "MODE.TSX TXAbort:1 InTX:0"),
            (&[2, 0x43, 0xff, 0x12, 0x34, 0x56, 0x78, 0x90], "PIP 0x483c2b1a097f (NR=1)"),
            (&[2, 0xc8, 1, 2, 3, 4, 5], "VMCS 0x504030201"),
            (&[2, 0x92, 1, 2, 3, 4], "PTWRITE 0x4030201 IP:1"),
            (&[2, 0xc2, 0x21, 0, 0, 0, 3, 0, 0, 0], "MWAIT 0x300000021 Hints 0x21 Extensions 0x3"),
            (&[2, 0x22, 0x80, 0x53], "PWRE 0x5380 HW:1 CState:5 Sub-CState:3"),
            (&[2, 0xa2, 0x34, 5, 0, 0, 0], "PWRX 0x534 Last CState:3 Deepest CState:4 Wake Reason 0x5"),
            (&[2, 0xe2], "EXSTOP IP:1"),
            (&[2, 0x33], "BEP IP:0"),
            (&[2, 0x13, 0x81, 5], "CFE IP:1 Type 0x01 Vector 0x5"),
            (&[2, 0x53, 0xc5, 1, 2, 3, 4, 5, 6, 7, 8], "EVD Type 0x05 Payload 0x807060504030201"),
            (&[2, 0xc3, 0x88, 1, 2, 3, 4, 5, 6, 7, 8], "MNT 0x807060504030201"),
            (&[0x01, 0, 0, 0, 0, 0, 0, 0], "TIP.PGD no ip"),
            (&[0x6d, 1, 0, 0, 0, 0, 0x80], "TIP 0x800000000001"),
        ];
        for (bytes, text) in cases {
            let lines: Vec<_> = list(bytes).map(|packet| (packet.bytes, packet.to_string())).collect();
            assert_eq!(lines, [(*bytes, (*text).to_owned())]);
        }
    }

    #[test]
    fn each_byte_without_a_packet_has_a_line() {
        let bytes = [0x99, 0x60, 0x99, 0x23, 0xad, 2, 0x63, 5, 0x54, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0x82, 2];
        let lines: Vec<_> = list(&bytes).map(|packet| packet.to_string()).collect();
        let [bad, cyc, tnt] = ["Bad packet!", "CYC 0x4", "TNT NNNNNT (6)"];
        let block = ["BBP SZ 8-byte Type 0x5", "BIP ID 0x0a Value 0x807060504030201"];
        let expected = [&[bad, "TNT TNNNN (5)", bad, cyc, bad][..], &block, &[bad, tnt, bad]].concat();
        assert_eq!(lines, expected);
    }
}
