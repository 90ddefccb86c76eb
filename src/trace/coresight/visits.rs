//! Finds the code that the trace of a trace unit executes, from packets alone.

use super::Config;
use super::packet::{Packet, Packets, find_sync, space};
use crate::bytes::Trace;
use crate::image::Space;
use crate::visit::{self, Position, PositionReader, Visit};

/// The addresses of AArch64 code in the packets of a trace, from its first A-Sync packet on.
///
/// Targets of direct branches are missing, as no code is walked; speculative elements are assumed executed.
pub fn visits<'a>(trace: &'a Trace<'_>, config: &'a Config) -> impl Iterator<Item = Visit> + use<'a> {
    let start = find_sync(trace, 0).unwrap_or(trace.len());
    let packets = Packets::new(trace, config, start);
    visit::visits(Visits { trace, config, packets, space: None, is_a64: true, now: 0 })
}

struct Visits<'a, 't> {
    trace: &'a Trace<'t>,
    config: &'a Config,
    packets: Packets<'a>,
    space: Option<Space>,
    is_a64: bool,
    now: u64,
}

impl PositionReader for Visits<'_, '_> {
    fn offset(&self) -> u64 {
        self.packets.offset()
    }

    fn now(&self) -> (Option<Space>, u64) {
        (self.space, self.now)
    }

    fn read(&mut self) -> Option<Position> {
        let offset = self.packets.offset();
        let packet = self.packets.next()?;
        let mut context = None;
        let address = match packet {
            Packet::Address { address, context: with } => {
                context = with;
                Some(address)
            }
            Packet::Q { to, .. } => to,
            Packet::Context(new) => {
                context = Some(new);
                None
            }
            Packet::Timestamp(now) => {
                self.now = now;
                return Some(Position::Nothing);
            }
            Packet::On | Packet::Overflow | Packet::Discard | Packet::Reset => return Some(Position::End),
            Packet::Bad | Packet::Cut => {
                let next = find_sync(self.trace, offset + 1).unwrap_or(self.trace.len());
                self.packets = Packets::new(self.trace, self.config, next);
                return Some(Position::End);
            }
            _ => return Some(Position::Nothing),
        };
        self.is_a64 = context.map_or(self.is_a64, |context| context.is_64);
        self.space = space(self.config, context, self.space, (&self.trace.switches, self.now));
        let Some(address) = address else { return Some(Position::Nothing) };
        Some(address.ip.filter(|_| self.is_a64 && address.is_a64()).map_or(Position::End, Position::At))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coresight::Registers;

    #[test]
    fn bytes_up_to_the_next_address_belong_to_an_address() {
        // A-Sync, Trace Info, Trace On, an address of 64 bits 0x1000, two atoms, a short address, an atom,
        // Trace On.
        let sync = [[0; 11].as_slice(), &[0x80, 1, 0, 4]].concat();
        let address = [0x9d, 0, 8, 0, 0, 0, 0, 0, 0];
        let bytes = [&sync[..], &address, &[0xf7, 0xf7, 0x95, 0x40, 0xf7, 4, 0xf7]].concat();
        let trace = Trace::new(vec![&bytes], Vec::new());
        let config = Config::new(&Registers::default(), false);
        let found = visits(&trace, &config).map(|visit| (visit.ip, visit.bytes));
        assert_eq!(found.collect::<Vec<_>>(), [(0x1000, 11), (0x1100, 3)]);
    }
}
