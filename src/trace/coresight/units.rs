//! Cuts a trace into parts that can be decoded by themselves: from a point of synchronization (A-Sync, Trace
//! Info, address) to another one, if nothing is outstanding there.

use super::Config;
use super::packet::{Packet, Packets, find_sync};
use crate::bytes::Trace;

/// A part of a trace that can be decoded by itself.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The offset of its A-Sync packet.
    pub start: u64,
    /// The offset of the A-Sync packet at which the next unit begins, or the length of the trace.
    pub end: u64,
    /// The last timestamp in front of it; 0 if there is none.
    pub time: u64,
}

/// Packets between Trace Info and an address, at most.
const MOST_BETWEEN: usize = 8;

/// True if `packets`, those behind an A-Sync packet, tell at once where execution is.
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

/// The first timestamp of a trace, in ticks, and how far behind its first A-Sync packet it is, bytes.
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

/// Cuts a trace into units of at least `size` bytes, in order. What is in front of the first A-Sync packet
/// cannot be decoded: the first unit's `start` says how much that is; without one there is no unit.
///
/// This reads all packets, but walks no code. What [`Decoder::decode`] gives for all units of a trace, in
/// order, does not depend on `size`.
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
    /// Where the next unit begins.
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
            // Nothing is cut, so that nothing must be read.
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
