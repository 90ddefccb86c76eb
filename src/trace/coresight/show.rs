//! Lists the packets of a trace unit, with offset and description in the words of OpenCSD, Arm's decoder.

use std::fmt;

use super::Config;
use super::packet::{Address, Atoms, Packet, Packets, find_sync};
use crate::bytes::{LONGEST, Trace};

/// A packet in a list.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its offset in the trace.
    pub offset: u64,
    /// Its size, bytes.
    pub len: u64,
    head: [u8; LONGEST],
    /// `None` for bytes that are not decoded: before the first A-Sync packet and after damage.
    packet: Option<Packet>,
}

/// Lists the packets of a trace unit.
pub fn list<'a>(trace: &'a Trace<'_>, config: &'a Config) -> impl Iterator<Item = Listed> + use<'a> {
    let mut packets = Packets::new(trace, config, 0);
    let mut is_synchronized = false;
    std::iter::from_fn(move || {
        let (offset, head) = (packets.offset(), packets.head());
        if !is_synchronized {
            is_synchronized = true;
            let sync = find_sync(trace, offset).unwrap_or(trace.len());
            if sync > offset {
                packets = Packets::new(trace, config, sync);
                return Some(Listed { offset, len: sync - offset, head, packet: None });
            }
        }
        let packet = packets.next()?;
        is_synchronized = packet != Packet::Bad;
        Some(Listed { offset, len: packets.offset() - offset, head, packet: Some(packet) })
    })
}

/// Exceptions of ETMv4 and ETE, by their number.
const EXCEPTIONS: [&str; 16] = [
    "PE Reset", "Debug Halt", "Call", "Trap", "System Error", "Reserved", "Inst Debug", "Data Debug",
    "Reserved", "Reserved", "Alignment", "Inst Fault", "Data Fault", "Reserved", "IRQ", "FIQ",
];

impl Listed {
    /// The kind of packet.
    pub fn kind(&self) -> &'static str {
        match self.packet {
            None => "I_NOT_SYNC",
            Some(Packet::Bad) => "I_BAD_SEQUENCE",
            Some(Packet::Cut) => "I_INCOMPLETE_EOT",
            Some(Packet::Sync) => "I_ASYNC",
            Some(Packet::Discard) => "I_DISCARD",
            Some(Packet::Overflow) => "I_OVERFLOW",
            Some(_) => name(self.head[0]),
        }
    }

    /// True for a sync point.
    pub fn is_sync(&self) -> bool {
        self.packet == Some(Packet::Sync)
    }

    /// True if the trace unit lost packets here.
    pub fn is_overflow(&self) -> bool {
        self.packet == Some(Packet::Overflow)
    }
}

fn name(first: u8) -> &'static str {
    match first {
        0x01 => "I_TRACE_INFO",
        0x02 | 0x03 => "I_TIMESTAMP",
        0x04 => "I_TRACE_ON",
        0x05 => "I_FUNC_RET",
        0x06 => "I_EXCEPT",
        0x07 => "I_EXCEPT_RTN",
        0x09 => "I_ITE",
        0x0a => "I_TRANS_ST",
        0x0b => "I_TRANS_COMMIT",
        0x0c | 0x0d => "I_CCNT_F2",
        0x0e | 0x0f => "I_CCNT_F1",
        0x10..=0x1f => "I_CCNT_F3",
        0x20..=0x27 => "I_NUM_DS_MKR",
        0x28..=0x2c => "I_UNNUM_DS_MKR",
        0x2d => "I_COMMIT",
        0x2e => "I_CANCEL_F1",
        0x2f => "I_CANCEL_F1_MISPRED",
        0x30..=0x33 => "I_MISPREDICT",
        0x34..=0x37 => "I_CANCEL_F2",
        0x38..=0x3f => "I_CANCEL_F3",
        0x40..=0x42 | 0x44..=0x46 => "I_COND_I_F2",
        0x43 | 0x47 => "I_COND_FLUSH",
        0x48..=0x4a | 0x4c..=0x4e => "I_COND_RES_F4",
        0x50..=0x5f => "I_COND_RES_F2",
        0x68..=0x6b | 0x6e | 0x6f => "I_COND_RES_F1",
        0x6c => "I_COND_I_F1",
        0x6d => "I_COND_I_F3",
        0x70 => "I_IGNORE",
        0x71..=0x7f => "I_EVENT",
        0x80 | 0x81 => "I_CTXT",
        0x82 => "I_ADDR_CTXT_L_32IS0",
        0x83 => "I_ADDR_CTXT_L_32IS1",
        0x85 => "I_ADDR_CTXT_L_64IS0",
        0x86 => "I_ADDR_CTXT_L_64IS1",
        0x88 => "I_TS_MARKER",
        0x90..=0x92 => "I_ADDR_MATCH",
        0x95 => "I_ADDR_S_IS0",
        0x96 => "I_ADDR_S_IS1",
        0x9a => "I_ADDR_L_32IS0",
        0x9b => "I_ADDR_L_32IS1",
        0x9d => "I_ADDR_L_64IS0",
        0x9e => "I_ADDR_L_64IS1",
        0xa0..=0xaf => "I_Q",
        0xb0..=0xb2 => "I_SRC_ADDR_MATCH",
        0xb4 => "I_SRC_ADDR_S_IS0",
        0xb5 => "I_SRC_ADDR_S_IS1",
        0xb6 => "I_SRC_ADDR_L_32IS0",
        0xb7 => "I_SRC_ADDR_L_32IS1",
        0xb8 => "I_SRC_ADDR_L_64IS0",
        0xb9 => "I_SRC_ADDR_L_64IS1",
        0xf6 | 0xf7 => "I_ATOM_F1",
        0xd8..=0xdb => "I_ATOM_F2",
        0xf8..=0xff => "I_ATOM_F3",
        0xdc..=0xdf => "I_ATOM_F4",
        0xd5..=0xd7 | 0xf5 => "I_ATOM_F5",
        0xc0..=0xd4 | 0xe0..=0xf4 => "I_ATOM_F6",
        _ => "I_RESERVED",
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        let Some(packet) = self.packet else { return write!(f, " {} bytes", self.len) };
        let first = self.head[0];
        match packet {
            Packet::Info { .. } => write!(f, " INFO={:#x}", self.head[1]),
            Packet::Timestamp(time) => write!(f, " {time:#x}"),
            Packet::Exception { .. } | Packet::Reset => exception(f, self.head[1]),
            Packet::Commit(count) if first == 0x2d => write!(f, " {count}"),
            Packet::Cancel { count, atoms: left, .. } if (0x2e..=0x3f).contains(&first) => {
                if left.count > 0 {
                    f.write_str(" ")?;
                }
                atoms(f, left)?;
                if count > 0 { write!(f, " Cancel({count})") } else { Ok(()) }
            }
            Packet::Context(_) => context(f, &self.head[1..], packet),
            Packet::Address { address, context: with } => {
                target(f, first, address)?;
                if with.is_none() {
                    return Ok(());
                }
                let at = if first <= 0x83 { 5 } else { 9 };
                context(f, &self.head[at..], packet)
            }
            Packet::Source(address) => target(f, first, address),
            Packet::Q { count, to } => {
                if let Some(count) = count {
                    write!(f, " Count({count})")?;
                }
                to.map_or(Ok(()), |to| ip(f, to))
            }
            Packet::Atoms(branches) => {
                f.write_str(" ")?;
                atoms(f, branches)
            }
            _ => Ok(()),
        }
    }
}

/// Writes branches: E those that were taken, N the others.
fn atoms(f: &mut fmt::Formatter<'_>, Atoms { bits, count }: Atoms) -> fmt::Result {
    (0..count).try_for_each(|at| f.write_str(if bits >> at & 1 == 1 { "E" } else { "N" }))
}

fn exception(f: &mut fmt::Formatter<'_>, byte: u8) -> fmt::Result {
    let number = byte >> 1 & 0x1f;
    match EXCEPTIONS.get(usize::from(number)) {
        Some(name) => write!(f, " {name}"),
        None => write!(f, " {number:#x}"),
    }
}

/// Writes an address and its index among the last ones.
fn target(f: &mut fmt::Formatter<'_>, first: u8, address: Address) -> fmt::Result {
    if matches!(first, 0x90..=0x92 | 0xb0..=0xb2) {
        write!(f, " [{}]", first & 3)?;
    }
    ip(f, address)
}

fn ip(f: &mut fmt::Formatter<'_>, address: Address) -> fmt::Result {
    match address.ip {
        Some(ip) => write!(f, " Addr={ip:#x}"),
        None => f.write_str(" Addr=?"),
    }
}

/// Writes a context, whose first byte is the first of `bytes`.
fn context(f: &mut fmt::Formatter<'_>, bytes: &[u8], packet: Packet) -> fmt::Result {
    let (Packet::Context(context) | Packet::Address { context: Some(context), .. }) = packet else {
        return Ok(());
    };
    let info = bytes.first().copied().unwrap_or(0);
    let bits = if context.is_64 { 64 } else { 32 };
    write!(f, " AArch{bits},EL{},{}", info & 3, if info & 0x20 == 0 { "S" } else { "NS" })?;
    if let Some(id) = context.id {
        write!(f, " CID={id:#x}")?;
    }
    if let Some(vmid) = context.vmid {
        write!(f, " VMID={vmid:#x}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coresight::Registers;

    #[test]
    fn packets_are_described_and_damage_has_a_line() {
        let sync = [&[0; 11][..], &[0x80]].concat();
        let full = [0x85, 0x4d, 0, 0x40, 0, 0, 0, 0, 0, 0x30];
        let short = [0x95, 0x13, 0xfe, 6, 4, 0x92, 0x2d, 3, 2, 0x81, 1];
        let bytes =
            [&[0xff][..], &sync, &[1, 1, 0], &[4], &full, &short, &[8, 7], &sync, &[0x9d, 1]].concat();
        let trace = Trace::new(vec![&bytes], Vec::new());
        let config = Config::new(&Registers::default(), false);
        let lines: Vec<_> = list(&trace, &config).map(|packet| packet.to_string()).collect();
        let expected = [
            "I_NOT_SYNC 1 bytes",
            "I_ASYNC",
            "I_TRACE_INFO INFO=0x1",
            "I_TRACE_ON",
            "I_ADDR_CTXT_L_64IS0 Addr=0x400134 AArch64,EL0,NS",
            "I_ADDR_S_IS0 Addr=0x40004c",
            "I_ATOM_F3 NEE",
            "I_EXCEPT Call",
            "I_ADDR_MATCH [2] Addr=0x0",
            "I_COMMIT 3",
            "I_TIMESTAMP 0x81",
            "I_BAD_SEQUENCE",
            "I_NOT_SYNC 1 bytes",
            "I_ASYNC",
            "I_INCOMPLETE_EOT",
        ];
        assert_eq!(lines, expected);
    }
}
