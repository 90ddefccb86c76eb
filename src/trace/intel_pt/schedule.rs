//! The address space at each packet, and whether a guest runs, from packets alone, wherever decoding began.

use super::packet::Packet;
use crate::image::{Space, Switch, is_user};

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

    #[inline(always)]
    pub(super) fn is_hidden(&self) -> bool {
        self.is_in_guest && self.guest.is_none()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_8000_0000_1000;
    const USER: u64 = 0x40_1000;

    fn switch(time: u64, space: u32) -> Switch {
        Switch { time, space: Some(Space(space)), guest: Some(Space(100 + space)) }
    }

    #[test]
    fn the_space_changes_with_the_switches_up_to_now_but_not_in_user_code() {
        let switches = [switch(10, 1), switch(20, 2), switch(20, 3), switch(30, 4)];
        let mut schedule = Schedule::default();
        let mut space_at = |now, packet| {
            schedule.read(&packet, false);
            schedule.advance(now, &switches);
            schedule.space().map(|space| space.0)
        };
        assert_eq!(space_at(9, Packet::Tip(Some(KERNEL))), None);
        assert_eq!(space_at(10, Packet::Cbr(1)), Some(1));
        assert_eq!(space_at(20, Packet::Tip(Some(USER))), Some(1));
        assert_eq!(space_at(25, Packet::Pge(Some(KERNEL))), Some(3));
        assert_eq!(space_at(40, Packet::Pge(Some(USER))), Some(3));
        assert_eq!(space_at(40, Packet::Pgd(None)), Some(4));
        assert_eq!(space_at(50, Packet::Cbr(1)), Some(4));
    }

    #[test]
    fn the_address_of_a_psb_counts_from_its_end_on() {
        let mut schedule = Schedule::default();
        let mut is_in_user = |packet, is_in_psb| {
            schedule.read(&packet, is_in_psb);
            schedule.is_in_user
        };
        assert!(is_in_user(Packet::Tip(Some(USER)), false));
        assert!(is_in_user(Packet::Psb, true) && is_in_user(Packet::PsbEnd, true));
        assert!(is_in_user(Packet::Psb, true) && is_in_user(Packet::Fup(Some(KERNEL)), true));
        assert!(!is_in_user(Packet::PsbEnd, true) && !is_in_user(Packet::Fup(Some(USER)), false));
        assert!(!is_in_user(Packet::Fup(Some(USER)), true) && is_in_user(Packet::PsbEnd, true));
        for ends in [Packet::Pgd(None), Packet::Overflow, Packet::Bad, Packet::Cut, Packet::Tip(None)] {
            assert!(is_in_user(Packet::Tip(Some(USER)), false) && !is_in_user(ends, false));
        }
    }

    #[test]
    fn a_guest_runs_from_the_address_after_its_page_table_on() {
        let mut schedule = Schedule::default();
        schedule.advance(10, &[switch(10, 1)]);
        let mut seen = |packet, is_in_psb| {
            schedule.read(&packet, is_in_psb);
            (schedule.is_in_guest, schedule.space().map(|space| space.0))
        };
        let pip = |guest| Packet::Pip { cr3: 0, guest };
        assert_eq!(seen(pip(true), false), (false, Some(1)));
        assert_eq!(seen(Packet::Pge(None), false), (false, Some(1)));
        assert_eq!(seen(Packet::Pge(Some(KERNEL)), false), (true, Some(101)));
        assert_eq!(seen(pip(false), false), (true, Some(101)));
        assert_eq!(seen(Packet::Tip(Some(KERNEL)), false), (false, Some(1)));
        assert_eq!(seen(pip(true), true), (true, Some(101)));
        assert_eq!(seen(Packet::Psb, true), (false, Some(1)));
        let hidden = |is_in_guest, guest| Schedule { is_in_guest, guest, ..Schedule::default() }.is_hidden();
        assert!(hidden(true, None) && !hidden(true, Some(Space(1))) && !hidden(false, None));
        let unknown = Schedule { is_in_guest: true, host: Some(Space(7)), ..Schedule::default() };
        assert_eq!(unknown.space(), Some(Space(7)));
    }
}
