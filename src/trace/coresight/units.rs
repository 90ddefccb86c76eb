//! Cuts a trace into units that can be decoded independently: each begins at a sync point (A-Sync, Trace
//! Info, address) where nothing is outstanding.

use super::Config;
use super::packet::{Packet, Packets, find_sync};
use crate::bytes::Trace;

/// A part of a trace that can be decoded independently.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The offset of its A-Sync packet.
    pub start: u64,
    /// The offset of the A-Sync packet at which the next unit begins, or the length of the trace.
    pub end: u64,
    /// The last timestamp before it; 0 if there is none.
    pub time: u64,
}

/// Maximum number of packets between Trace Info and an address.
const MOST_BETWEEN: usize = 8;

/// True if `packets`, those after an A-Sync packet, give the current address at once.
fn is_complete(mut packets: Packets<'_>) -> bool {
    if packets.next() != Some(Packet::Info { speculative: 0 }) {
        return false;
    }
    for _ in 0..MOST_BETWEEN {
        match packets.next() {
            Some(Packet::Address { address, .. }) => return address.ip.is_some(),
            Some(Packet::On | Packet::Context(_) | Packet::Timestamp(_) | Packet::Other) => {}
            _ => return false,
        }
    }
    false
}

/// The first timestamp of a trace, in ticks, and its distance in bytes from the first A-Sync packet.
pub fn first_time(trace: &Trace<'_>, config: &Config) -> Option<(u64, u64)> {
    let start = find_sync(trace, 0)?;
    let mut packets = Packets::new(trace, config, start);
    loop {
        match packets.next()? {
            Packet::Timestamp(now) if now > 0 => return Some((now, packets.offset() - start)),
            Packet::Bad | Packet::Cut => return None,
            _ => {}
        }
    }
}

/// Cuts a trace into units of at least `size` bytes, in order. Bytes before the first A-Sync packet cannot be
/// decoded; without one there is no unit.
///
/// All packets are read, but no code is walked. The result of [`Decoder::decode`] for all units of a trace,
/// in order, does not depend on `size`.
///
/// [`Decoder::decode`]: super::Decoder::decode
pub fn units<'a>(
    trace: &'a Trace<'_>,
    config: &'a Config,
    size: u64,
) -> impl Iterator<Item = Unit> + use<'a> {
    let start = find_sync(trace, 0).unwrap_or(trace.len());
    let mut cutter =
        Cutter { trace, config, size, packets: Packets::new(trace, config, start), start, time: 0 };
    std::iter::from_fn(move || cutter.next())
}

struct Cutter<'a, 't> {
    trace: &'a Trace<'t>,
    config: &'a Config,
    size: u64,
    packets: Packets<'a>,
    start: u64,
    time: u64,
}

impl Cutter<'_, '_> {
    fn next(&mut self) -> Option<Unit> {
        if self.start == self.trace.len() {
            return None;
        }
        let (start, time) = (self.start, self.time);
        if self.size == u64::MAX {
            // A trace in one unit need not be read.
            self.start = self.trace.len();
            return Some(Unit { start, end: self.start, time });
        }
        self.start = loop {
            let offset = self.packets.offset();
            let Some(packet) = self.packets.next() else { break self.trace.len() };
            match packet {
                Packet::Sync
                    if offset > start && offset - start >= self.size && is_complete(self.packets.clone()) =>
                {
                    self.packets = Packets::new(self.trace, self.config, offset);
                    break offset;
                }
                Packet::Timestamp(now) => self.time = now,
                Packet::Bad | Packet::Cut => {
                    let Some(next) = find_sync(self.trace, offset + 1) else { break self.trace.len() };
                    self.packets = Packets::new(self.trace, self.config, next);
                }
                _ => {}
            }
        };
        Some(Unit { start, end: self.start, time })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Registers;
    use super::*;

    const SYNC: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0];
    const ADDRESS: [u8; 9] = [0x9d, 1, 0, 0, 0, 0, 0, 0, 0];

    fn cut(bytes: &[u8], size: u64) -> Vec<(u64, u64, u64)> {
        let trace = Trace::new(vec![bytes], Vec::new());
        let config = Config::new(&Registers::default(), false);
        units(&trace, &config, size).map(|unit| (unit.start, unit.end, unit.time)).collect()
    }

    #[test]
    fn a_unit_begins_at_a_sync_point_with_an_address_after_enough_bytes() {
        let point = [&SYNC[..], &[2, 9], &ADDRESS].concat();
        let three = [&[7, 7][..], &point, &point, &point].concat();
        assert_eq!(cut(&three, 1), [(2, 27, 0), (27, 52, 9), (52, 77, 9)]);
        assert_eq!(cut(&three, 25), [(2, 27, 0), (27, 52, 9), (52, 77, 9)]);
        assert_eq!(cut(&three, 26), [(2, 52, 0), (52, 77, 9)]);
        assert_eq!(cut(&three, u64::MAX), [(2, 77, 0)]);
        assert_eq!((cut(&[7; 9], 1), cut(&[], 1)), (vec![], vec![]));
        // At the second sync point elements are outstanding, and at the third the address comes too late.
        let mut speculative = point.clone();
        speculative.splice(13..14, [4, 1]);
        let late = [&SYNC[..], &[4; 8], &ADDRESS].concat();
        let in_time = [&SYNC[..], &[4; 7], &ADDRESS].concat();
        assert_eq!(cut(&[&point[..], &speculative, &late, &in_time].concat(), 1), [(0, 82, 0), (82, 112, 9)]);
        // What is bad is skipped up to the next sync point.
        assert_eq!(
            cut(&[&point[..], &[8], &point, &point].concat(), 1),
            [(0, 26, 0), (26, 51, 9), (51, 76, 9)]
        );
    }

    #[test]
    fn the_first_time_is_that_of_the_first_timestamp_before_what_is_bad() {
        let first = |bytes: &[u8]| {
            first_time(&Trace::new(vec![bytes], Vec::new()), &Config::new(&Registers::default(), false))
        };
        assert_eq!(first(&[&[7][..], &SYNC, &[2, 0, 2, 5], &ADDRESS].concat()), Some((5, 18)));
        assert_eq!(
            (first(&[&SYNC[..], &[8, 2, 5]].concat()), first(&SYNC), first(&[2, 5])),
            (None, None, None)
        );
    }
}
