//! Finds the code that a trace executes, from packets alone.

use super::Config;
use super::packet::{PSB, Packet, Packets};
use super::units::{Past, after_damage, valid};
use crate::bytes::Trace;
use crate::image::Space;
use crate::visit::{self, Position, PositionReader, Visit};

/// The addresses in the packets of a trace, from its first sync point on.
///
/// Targets of direct branches are missing, because no code is walked.
pub fn visits<'a>(trace: &'a Trace<'_>, config: &Config) -> impl Iterator<Item = Visit> + use<'a> {
    let start = trace.find(&PSB, 0).unwrap_or(trace.len());
    visit::visits(Visits {
        trace,
        config: *config,
        packets: Packets::new(trace, start, config.errata),
        past: Past::default(),
        psb_ip: None,
    })
}

struct Visits<'a, 't> {
    trace: &'a Trace<'t>,
    config: Config,
    packets: Packets<'a>,
    past: Past,
    /// The address in the current PSB+, whose times may follow it.
    psb_ip: Option<u64>,
}

impl Visits<'_, '_> {
    fn at(&self, ip: u64) -> Position {
        if self.past.schedule.is_hidden() { Position::Hidden(ip) } else { Position::At(ip) }
    }
}

impl PositionReader for Visits<'_, '_> {
    fn offset(&self) -> u64 {
        self.packets.offset()
    }

    fn now(&self) -> (Option<Space>, u64) {
        (self.past.schedule.space(), self.past.clock.now)
    }

    fn read(&mut self) -> Option<Position> {
        let offset = self.packets.offset();
        if !self.past.is_in_psb {
            // The most frequent packets need the least work.
            if self.packets.next_branches().is_some() {
                self.past.clock.branches();
                return Some(Position::Nothing);
            }
            if let Some(ip) = self.packets.next_target() {
                self.past.read_target(ip, self.trace);
                self.past.clock.branches();
                return Some(self.at(ip));
            }
        }
        let packet = valid(self.packets.next()?, &self.packets);
        let is_in_psb = self.past.is_in_psb;
        self.past.read(&packet, &self.packets, &self.config, self.trace);
        self.past.end(&packet);
        if matches!(packet, Packet::Bad | Packet::Cut) {
            // Without another sync point, the rest is not read.
            let next = after_damage(self.trace, offset, &self.config);
            self.packets =
                next.unwrap_or_else(|| Packets::new(self.trace, self.trace.len(), self.config.errata));
        }
        Some(match packet {
            Packet::Fup(ip) if is_in_psb => {
                self.psb_ip = ip;
                Position::Nothing
            }
            Packet::PsbEnd if is_in_psb => self.psb_ip.map_or(Position::Nothing, |ip| self.at(ip)),
            Packet::Psb => {
                self.psb_ip = None;
                Position::Nothing
            }
            Packet::Tip(Some(ip)) | Packet::Pge(Some(ip)) | Packet::Fup(Some(ip)) => self.at(ip),
            Packet::Pgd(_) | Packet::TraceStop | Packet::Overflow | Packet::Bad | Packet::Cut => {
                Position::End
            }
            _ => Position::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_up_to_the_next_address_belong_to_an_address() {
        // PSBEND, TIP.PGE 0x1000, a TNT, TIP 0x2000, two TNTs, TIP.PGD, a byte that is not read: PAD, TIP.PGE
        // 0x1000.
        let pge = [0x71, 0, 0x10, 0, 0, 0, 0];
        let flow = [&pge[..], &[0x0e, 0x2d, 0, 0x20, 0x0e, 0x0e, 1, 0], &pge].concat();
        let bytes = [&PSB[..], &[2, 0x23], &flow].concat();
        let trace = Trace::new(vec![&bytes], Vec::new());
        let found = visits(&trace, &Config::default()).map(|visit| (visit.ip, visit.bytes));
        assert_eq!(found.collect::<Vec<_>>(), [(0x1000, 8), (0x2000, 5), (0x1000, 7)]);
    }
}
