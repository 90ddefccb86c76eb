//! Decodes only the addresses in packets, without the code.

use super::super::Walk;
use super::super::packet::{Packet, Packets};
use super::super::units::{Unit, after_damage, valid};
use super::{Bound, Flag, Interrupted, UnitReader};
use crate::bytes::Trace;
use crate::image::Image;
use crate::sink::{Event, Fault, Reason, Sink};

impl<I: Image, S: Sink> UnitReader<'_, I, S> {
    pub(super) fn read_addresses(&mut self, trace: &Trace<'_>, unit: &Unit) {
        let mut packets = Packets::new(trace, unit.start, self.config.errata);
        loop {
            while !self.past.is_in_psb && packets.next_branches().is_some() {
                self.past.clock.branches();
            }
            let offset = packets.offset();
            let Some(packet) = packets.next() else { return };
            let packet = valid(packet, &packets);
            self.flow.point.offset = offset;
            if packet == Packet::Psb {
                if offset == unit.end {
                    return;
                }
                (self.psb_ip, self.psb_offset) = (None, offset);
                self.bound = Bound::default();
                self.sampled.clear();
                (self.flag, self.is_in_guest) = (Flag::of(&self.past), self.past.schedule.is_in_guest);
            }
            let was_in_psb = self.past.is_in_psb;
            self.read_past(&packet, &packets, trace);
            self.arrive();
            if was_in_psb && matches!(packet, Packet::PsbEnd | Packet::Pge(_)) {
                self.passed_sync();
            }
            self.read_address(packet);
            self.past.end(&packet);
            self.flow.set_space(self.past.schedule.space());
            if matches!(packet, Packet::Bad | Packet::Cut) {
                let Some(next) = after_damage(trace, offset, self.config) else { return };
                packets = next;
            }
        }
    }

    fn read_address(&mut self, packet: Packet) {
        let is_sync = matches!(packet, Packet::Psb | Packet::PsbEnd | Packet::Bad | Packet::Cut);
        if self.config.walk == Walk::Syncs && !self.past.is_in_psb && !is_sync {
            return;
        }
        if let Packet::Tip(Some(ip)) | Packet::Pge(Some(ip)) | Packet::Pgd(Some(ip)) | Packet::Fup(Some(ip)) =
            packet
        {
            self.last_address = Some(ip);
        }
        if let Packet::Tip(Some(ip)) | Packet::Pge(Some(ip)) | Packet::Fup(Some(ip)) = packet
            && !self.past.is_in_psb
            && self.is_elsewhere(ip)
        {
            if !self.past.schedule.is_hidden() {
                self.is_on = true;
                self.event(Event::Passed { ip });
            }
            return;
        }
        self.is_on = match packet {
            Packet::Tip(_) | Packet::Pge(_) => true,
            Packet::Fup(_) => self.is_on || self.past.is_in_psb,
            Packet::Pgd(_) | Packet::Overflow | Packet::Bad | Packet::Cut | Packet::TraceStop => false,
            _ => self.is_on,
        };
        match packet {
            Packet::Tip(Some(ip)) | Packet::Pge(Some(ip)) | Packet::Fup(Some(ip))
                if self.is_lost && !self.past.is_in_psb =>
            {
                (self.is_lost, self.interrupted) = (false, None);
                let bound = std::mem::take(&mut self.bound);
                let begins = matches!(packet, Packet::Pge(_));
                if begins {
                    self.changes_flag();
                }
                self.event(match begins {
                    true => Event::Begin { ip, is_exchange: false },
                    false => Event::Resumed { ip },
                });
                self.passed(bound, ip);
            }
            Packet::Tip(ip) => match (self.interrupted.take(), ip) {
                (None, Some(ip)) if self.flag.now != self.flag.next => {
                    self.flag.now = self.flag.next;
                    self.event(Event::InterruptFlag { ip: Some(ip), on: self.flag.next });
                    self.event(Event::Passed { ip });
                }
                (Some(interrupted), Some(to)) => {
                    let Interrupted { from, aborts, .. } = interrupted;
                    self.event(Event::Interrupt { from, to, aborts });
                    self.event(Event::Passed { ip: to });
                }
                (None, Some(ip)) => self.event(Event::Passed { ip }),
                (_, None) => {}
            },
            Packet::Pge(Some(ip)) => {
                self.interrupted = None;
                self.changes_flag();
                self.event(Event::Begin { ip, is_exchange: false });
                self.event(Event::Passed { ip });
            }
            Packet::Pge(None) => {}
            Packet::Pgd(to) => match (self.interrupted.take(), to) {
                (Some(Interrupted { from, .. }), to) => self.end(from, to, None),
                (None, Some(_)) => self.end(0, to, None),
                (None, None) => {}
            },
            Packet::Fup(Some(ip)) if !self.past.is_in_psb => {
                let mut bound = std::mem::take(&mut self.bound);
                if self.flag.end == self.flow.point.offset {
                    bound.flag = Some(self.flag.next);
                    self.flag.now = self.flag.next;
                }
                self.passed(bound, ip);
                let control = bound.control.take_if(|control| !control.has_fup);
                self.interrupted = bound.interrupted(ip, control);
            }
            Packet::Fup(None) if !self.past.is_in_psb => self.bound = Bound::default(),
            Packet::Tsx { inside, aborted } if !self.past.is_in_psb => {
                self.bound.transaction = Some(super::Transaction { inside, aborted });
            }
            Packet::Overflow => self.lose(Reason::Overflow),
            Packet::Bad => self.lose(Reason::BadPacket),
            Packet::Cut => self.lose(Reason::CutPacket),
            _ => self.read_other(packet),
        }
    }

    fn passed_sync(&mut self) {
        let ip = self.psb_ip.take();
        let ip = ip.filter(|&ip| self.is_decoded(ip));
        self.is_lost = ip.is_none() && self.is_lost;
        self.event(Event::Sync { ip, offset: self.psb_offset, interrupts: self.flag.now });
        ip.into_iter().for_each(|ip| self.event(Event::Passed { ip }));
    }

    /// Reports the address and the events there.
    fn passed(&mut self, bound: Bound, ip: u64) {
        self.events(Bound { ptwrite: None, transaction: None, ..bound }, Some(ip));
        self.event(Event::Passed { ip });
        let rest = Bound {
            mwait: None,
            enter: None,
            stop: false,
            sampled: false,
            control: None,
            flag: None,
            ..bound
        };
        self.events(rest, Some(ip));
    }

    fn lose(&mut self, reason: Reason) {
        let ip = self.last_address.take();
        self.event(Event::Fault(Fault { reason, ip }));
        (self.is_lost, self.interrupted) = (true, None);
        self.bound = Bound::default();
        self.sampled.clear();
        self.past.is_in_psb = false;
    }
}
