//! The address space at each packet, and whether a guest runs, from packets alone, wherever decoding began.

use super::packet::Packet;
use crate::image::{Space, Switch, is_user};

/// The address space between two packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    host: Option<Space>,
    guest: Option<Space>,
    /// The number of switches that have taken effect.
    done: usize,
    /// True if the last address is in user code. That of a PSB+ counts from its end on, after its times.
    is_in_user: bool,
    is_psb_in_user: Option<bool>,
    /// A guest runs; and one runs from the next address on.
    pub(super) is_in_guest: bool,
    enters_guest: bool,
}

impl Schedule {
    /// Processes the address of a packet, in PSB+ or not.
    #[inline(always)]
    pub(super) fn read(&mut self, packet: &Packet, is_in_psb: bool) {
        match *packet {
            Packet::Tip(Some(ip)) => self.target(ip),
            Packet::Tip(ip) | Packet::Pge(ip) => {
                self.is_in_user = ip.is_some_and(is_user);
                self.is_in_guest = if ip.is_some() { self.enters_guest } else { self.is_in_guest };
            }
            // A PSB+ has a PIP packet if the trace has any.
            Packet::Psb => (self.is_in_guest, self.enters_guest, self.is_psb_in_user) = (false, false, None),
            Packet::PsbEnd => self.is_in_user = self.is_psb_in_user.take().unwrap_or(self.is_in_user),
            Packet::Pip { guest, .. } => {
                self.enters_guest = guest;
                self.is_in_guest = if is_in_psb { guest } else { self.is_in_guest };
            }
            Packet::Fup(ip) if is_in_psb => self.is_psb_in_user = Some(ip.is_some_and(is_user)),
            Packet::Pgd(_) | Packet::Overflow | Packet::Bad | Packet::Cut => self.is_in_user = false,
            _ => {}
        }
    }

    /// The current address space; the host's for a guest whose space is unknown: no code is decoded there.
    #[inline(always)]
    pub(super) fn space(&self) -> Option<Space> {
        if self.is_in_guest { self.guest.or(self.host) } else { self.host }
    }

    /// True if a guest runs whose code is unknown.
    #[inline(always)]
    pub(super) fn is_hidden(&self) -> bool {
        self.is_in_guest && self.guest.is_none()
    }

    /// Processes a TIP packet.
    #[inline(always)]
    pub(super) fn target(&mut self, ip: u64) {
        self.is_in_user = is_user(ip);
        self.is_in_guest = self.enters_guest;
    }

    /// Applies the switches up to `now`, except in user code, which cannot switch.
    #[inline(always)]
    pub(super) fn advance(&mut self, now: u64, switches: &[Switch]) {
        let is_due = |switch: &Switch| switch.time <= now;
        if !self.is_in_user && switches.get(self.done).is_some_and(is_due) {
            self.done += switches[self.done..].partition_point(is_due);
            let last = switches[self.done - 1];
            (self.host, self.guest) = (last.space, last.guest);
        }
    }
}
