//! Turns the packets of Intel PT into control flow.

mod quick;
mod sampled;

use self::sampled::Sampled;
use super::packet::{Packet, Packets};
use super::units::{Past, Unit, after_damage, belongs_to_psb, valid};
use super::{Config, Power, Walk};
use crate::block::{Blocks, InstructionSet};
use crate::bytes::Trace;
use crate::flow::Flow;
use crate::image::Image;
use crate::kind::Kind;
use crate::path::MOST_BITS;
use crate::sink::{Event, Fault, Reason, Sink};

/// Decodes units, of any traces in any order. Each thread has its own.
///
/// Memory: up to 16 MiB of blocks and paths, see [`Sink::forget`].
#[derive(Debug)]
pub struct Decoder<I> {
    flow: Flow<I>,
    config: Config,
}

impl<I: Image> Decoder<I> {
    /// A decoder for the traces of one processor and the code it executed.
    pub fn new(image: I, config: Config) -> Decoder<I> {
        Decoder { flow: Flow::new(image, InstructionSet::X86, config.compressed_returns), config }
    }

    /// The blocks decoded so far.
    pub fn blocks(&self) -> &Blocks {
        self.flow.blocks()
    }

    /// Drops the blocks, after [`Sink::forget`].
    pub fn forget<S: Sink>(&mut self, sink: &mut S) {
        self.flow.forget(sink);
    }

    /// Decodes a unit of `trace`, up to the address at which the next one begins.
    ///
    /// Decoding units one after the other has the same result as decoding them as one.
    pub fn decode<S: Sink>(&mut self, trace: &Trace<'_>, unit: &Unit, sink: &mut S) {
        let past = unit.past.clone();
        let is_in_guest = past.schedule.is_in_guest;
        self.flow.reset(64, past.schedule.space(), past.clock.now);
        self.flow.point.time = past.clock.flow;
        let mut reader = UnitReader {
            flow: &mut self.flow,
            config: &self.config,
            sink,
            past,
            is_lost: true,
            bits: 0,
            count: 0,
            address_bits: 64,
            psb_ip: None,
            psb_offset: unit.start,
            last_address: None,
            is_on: false,
            is_in_guest,
            interrupted: None,
            bound: Bound::default(),
            sampled: Sampled::default(),
            flag: Flag::default(),
        };
        match self.config.walk {
            Walk::Code => reader.read(trace, unit),
            Walk::Addresses | Walk::Syncs => reader.read_addresses(trace, unit),
        }
    }
}

/// Events that wait for the FUP packet with their address.
#[derive(Clone, Copy, Default, Debug)]
struct Bound {
    ptwrite: Option<u64>,
    transaction: Option<Transaction>,
    mwait: Option<u64>,
    enter: Option<u64>,
    stop: bool,
    sampled: bool,
    control: Option<Control>,
    flag: Option<bool>,
}

/// The event of a CFE packet.
#[derive(Clone, Copy, Debug)]
struct Control {
    /// It has a FUP packet of its own. Otherwise it belongs to the interrupt of FUP and TIP packets.
    has_fup: bool,
    kind: u8,
    vector: u8,
}

impl Control {
    /// True if its FUP packet may also be that of an interrupt or of another external event.
    fn may_be_interrupt(self) -> bool {
        matches!(self.kind, 1 | 3 | 5 | 6 | 8..=10 | 12)
    }
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    inside: bool,
    aborted: bool,
}

struct UnitReader<'a, I, S> {
    flow: &'a mut Flow<I>,
    config: &'a Config,
    sink: &'a mut S,
    past: Past,
    /// If the flow is unknown: true after a fault, up to the next address; false if tracing is off.
    is_lost: bool,
    /// Pending branches after an indirect one whose TIP packet comes later: the `count` lowest bits.
    bits: u64,
    count: u32,
    /// The address size from the next address packet on.
    address_bits: u32,
    psb_ip: Option<u64>,
    psb_offset: u64,
    /// Without decoding code: the last address in a packet if tracing is on there.
    last_address: Option<u64>,
    is_on: bool,
    /// A guest runs. If its code is unknown, the flow is lost.
    is_in_guest: bool,
    interrupted: Option<Interrupted>,
    bound: Bound,
    sampled: Sampled,
    flag: Flag,
}

/// The interrupt flag, from MODE.Exec packets.
#[derive(Clone, Copy, Default, Debug)]
struct Flag {
    now: bool,
    next: bool,
    /// The offset after the packet that set `next`.
    end: u64,
}

impl Flag {
    fn of(past: &Past) -> Flag {
        Flag { now: past.interrupts, next: past.interrupts, end: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interrupted {
    from: u64,
    is_certain: bool,
    aborts: bool,
    control: Option<Control>,
}

impl<I: Image, S: Sink> UnitReader<'_, I, S> {
    fn read(&mut self, trace: &Trace<'_>, unit: &Unit) {
        let mut packets = Packets::new(trace, unit.start, self.config.errata);
        loop {
            let offset = packets.offset();
            // The most frequent packets need the least work.
            if !self.past.is_in_psb {
                if let Some((bits, count)) = packets.next_branches() {
                    self.begin_packet(offset, &packets);
                    self.past.clock.branches();
                    self.tnt(bits, count);
                    self.flow.point.time = self.past.clock.flow;
                    continue;
                }
                if let Some(mut ip) = packets.next_target() {
                    if self.config.errata.bdm64 {
                        ip = self.target(ip, packets.clone());
                    }
                    self.begin_packet(offset, &packets);
                    self.past.clock.branches();
                    self.past.read_target(ip, trace);
                    self.tip(Some(ip));
                    self.flow.point.time = self.past.clock.flow;
                    self.flow.set_space(self.past.schedule.space());
                    continue;
                }
            }
            let Some(packet) = packets.next() else { return };
            let packet = match packet {
                Packet::Tip(Some(ip)) if self.config.errata.bdm64 => {
                    Packet::Tip(Some(self.target(ip, packets.clone())))
                }
                packet => valid(packet, &packets),
            };
            self.begin_packet(offset, &packets);
            if packet == Packet::Psb {
                self.psb(packets.clone());
                if offset == unit.end {
                    return;
                }
            }
            let was_in_psb = self.past.is_in_psb;
            if self.read_past(&packet, &packets, trace) {
                self.flow.set_now(self.past.clock.now);
            }
            if was_in_psb && !self.past.is_in_psb {
                match packet {
                    Packet::PsbEnd | Packet::Pge(_) => self.synchronized(),
                    // These report the fault themselves.
                    Packet::Overflow | Packet::Bad | Packet::Cut => {}
                    _ => self.fault(Reason::UnexpectedPacket),
                }
            }
            self.read_one(packet);
            self.past.end(&packet);
            self.flow.point.time = self.past.clock.flow;
            self.flow.set_space(self.past.schedule.space());
            if matches!(packet, Packet::Bad | Packet::Cut) {
                let Some(next) = after_damage(trace, offset, self.config) else { return };
                packets = next;
            }
        }
    }

    #[inline(always)]
    fn read_past(&mut self, packet: &Packet, packets: &Packets<'_>, trace: &Trace<'_>) -> bool {
        let sets_time = self.past.read(packet, packets, self.config, trace);
        if sets_time {
            self.sink.time(self.past.clock.now);
        }
        let total = &self.past.clock.total;
        if self.config.counts_cycles && total.is_updated_by(packet, sets_time) {
            self.sink.cycles(total.cycles, total.is_exact);
        }
        sets_time
    }

    #[inline(always)]
    fn begin_packet(&mut self, offset: u64, packets: &Packets<'_>) {
        self.flow.begin_packet((packets.offset() - offset) as u32, self.sink);
        self.flow.point.offset = offset;
    }

    /// Goes on to the address of a PSB+; `packets` are those after the PSB.
    fn psb(&mut self, mut packets: Packets<'_>) {
        if self.count > 0 || self.is_interrupted() {
            self.fault(Reason::UnexpectedPacket);
        }
        let bound = std::mem::take(&mut self.bound);
        self.events(bound, None);
        self.sampled.clear();
        // The state in a PSB+ does not depend on earlier packets, so that a trace can be cut there.
        (self.flag, self.is_in_guest) = (Flag::of(&self.past), self.past.schedule.is_in_guest);
        (self.psb_ip, self.address_bits) = (None, 64);
        self.psb_offset = self.flow.point.offset;
        self.flow.synchronize();
        // Up to the end of the PSB+.
        self.is_lost = true;
        if !self.flow.is_known() {
            return;
        }
        let mut found = None;
        loop {
            match packets.next().map(|packet| valid(packet, &packets)) {
                Some(Packet::Fup(ip)) => found = ip,
                Some(Packet::PsbEnd | Packet::Pge(_)) => break,
                Some(packet) if packet != Packet::Psb && belongs_to_psb(&packet) => {}
                // Reported when it is read.
                _ => return self.flow.lose(),
            }
        }
        let reached = match found {
            Some(ip) => self.flow.run_to(ip, self.sink),
            None => Err(Reason::UnexpectedPacket),
        };
        if let Err(reason) = reached {
            self.fault(reason);
        }
    }

    fn event(&mut self, event: Event) {
        self.flow.event(event, self.sink);
    }

    #[cold]
    fn fault(&mut self, reason: Reason) {
        self.flow.fault(reason, self.sink);
        self.is_lost = true;
        self.count = 0;
        self.interrupted = None;
    }

    fn resume(&mut self, ip: u64) {
        self.is_lost = false;
        self.flow.set_bits(self.address_bits);
        self.flow.set_ip(Some(ip));
        self.event(Event::Resumed { ip });
    }

    /// Sets the time of what follows to that of the packet.
    #[inline(always)]
    fn arrive(&mut self) {
        self.flow.point.time = self.past.clock.now;
    }

    #[inline(always)]
    fn read_one(&mut self, packet: Packet) {
        match packet {
            Packet::Tnt { bits, count } => self.tnt(bits, count),
            Packet::Tip(ip) => self.tip(ip),
            Packet::Pge(ip) => self.pge(ip),
            Packet::Pgd(ip) => self.pgd(ip),
            Packet::Fup(ip) if !self.past.is_in_psb => self.fup(ip),
            Packet::Overflow => self.broken(Reason::Overflow),
            Packet::Bad => self.broken(Reason::BadPacket),
            Packet::Cut => self.broken(Reason::CutPacket),
            _ => self.read_other(packet),
        }
    }

    fn broken(&mut self, reason: Reason) {
        self.arrive();
        self.fault(reason);
        self.bound = Bound::default();
        self.sampled.clear();
        self.past.is_in_psb = false;
    }

    #[inline(always)]
    fn tnt(&mut self, bits: u64, count: u32) {
        if !self.flow.is_known() {
            if !self.is_lost {
                self.fault(Reason::UnexpectedPacket);
            }
            return;
        }
        if self.count > 0 || self.is_interrupted() {
            self.fault(Reason::UnexpectedPacket);
            return;
        }
        self.follow(bits, count);
    }

    /// True if only the address of a handler can follow.
    #[inline(always)]
    fn is_interrupted(&mut self) -> bool {
        // A FUP that is not followed by an address was no interrupt, unless that is certain.
        self.interrupted.take().is_some_and(|interrupted| interrupted.is_certain)
    }

    /// Takes branches up to an indirect one, whose TIP packet comes later.
    #[inline(always)]
    fn follow(&mut self, bits: u64, mut count: u32) {
        while count > 0 {
            let some = count.min(MOST_BITS);
            let next = (bits >> (count - some)) as u32 & ((1 << some) - 1);
            let taken = self.flow.take_path(1 << some | next, self.sink);
            if taken > 0 {
                self.arrive();
                count -= taken;
                continue;
            }
            let is_taken = bits >> (count - 1) & 1 != 0;
            match self.flow.run(self.sink) {
                Ok(Kind::Conditional) => {
                    self.arrive();
                    if is_taken {
                        self.flow.jump(self.sink);
                    } else {
                        self.flow.pass(self.sink);
                    }
                }
                Ok(Kind::Return) => {
                    let is_possible = is_taken && self.config.compressed_returns;
                    let was = self.flow.point.time;
                    self.arrive();
                    let gone = if is_possible { self.flow.go_back(self.sink) } else { Err(Reason::Mismatch) };
                    if let Err(reason) = gone {
                        self.flow.point.time = was;
                        return self.fault(reason);
                    }
                }
                Ok(_) => {
                    (self.bits, self.count) = (bits, count);
                    return;
                }
                Err(reason) => return self.fault(reason),
            }
            count -= 1;
        }
    }

    #[inline(always)]
    fn tip(&mut self, ip: Option<u64>) {
        let Some(ip) = ip else { return self.fault(Reason::NoAddress) };
        if self.is_elsewhere(ip) {
            return;
        }
        if !self.flow.is_known() {
            if !self.is_lost {
                self.fault(Reason::UnexpectedPacket);
            }
            self.arrive();
            return self.resume(ip);
        }
        if let Some(interrupted) = self.interrupted.take() {
            return self.interrupt(interrupted, ip);
        }
        if self.changes_flag() || !self.flow.take_path_to(ip, self.address_bits, self.sink) {
            match self.flow.run(self.sink) {
                Ok(Kind::Conditional) => return self.mistaken(ip),
                Ok(kind) => {
                    self.arrive();
                    self.flow.go(kind, ip, self.address_bits, self.sink);
                }
                Err(reason) => {
                    self.fault(reason);
                    self.arrive();
                    return self.resume(ip);
                }
            }
        }
        self.arrive();
        let count = std::mem::take(&mut self.count);
        self.follow(self.bits, count);
    }

    /// The true target of a TIP packet with this address; `packets` follow it. Before an aborted transaction
    /// the address may be wrong (BDM64): then it does not lead to the place of the abort.
    #[cold]
    fn target(&mut self, ip: u64, mut packets: Packets<'_>) -> u64 {
        let aborts = |packet: &Packet| matches!(packet, Packet::Tsx { aborted: true, .. });
        if packets.next().is_some_and(|packet| aborts(&packet))
            && let Some(Packet::Fup(Some(aborted))) = packets.next()
            && self.flow.is_known()
            && !self.flow.leads_straight(ip, aborted)
        {
            return aborted;
        }
        ip
    }

    /// Updates the guest state for `ip`, the next address. True if nothing more is to do: the guest is not
    /// decoded, or its entry or exit was reported.
    #[inline(always)]
    fn is_elsewhere(&mut self, ip: u64) -> bool {
        let was_in_guest = std::mem::replace(&mut self.is_in_guest, self.past.schedule.is_in_guest);
        match (was_in_guest, self.is_in_guest) {
            (false, false) => false,
            (true, true) => self.past.schedule.is_hidden(),
            (false, true) => {
                self.enter_guest(ip);
                true
            }
            (true, false) => self.leave_guest(ip),
        }
    }

    #[cold]
    fn enter_guest(&mut self, ip: u64) {
        if self.flow.is_known() {
            let left = match self.flow.run(self.sink) {
                _ if self.is_interrupted() || self.count > 0 => Err(Reason::UnexpectedPacket),
                Ok(Kind::GuestEntry) => {
                    let goes_on = Some(ip).filter(|_| !self.past.schedule.is_hidden());
                    self.flow.run_over((None, goes_on), self.past.clock.now, self.sink)
                }
                Ok(_) => Err(Reason::Mismatch),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = left {
                self.fault(reason);
            }
        }
        if self.past.schedule.is_hidden() {
            self.hide(ip);
        } else {
            self.exchange(ip);
        }
    }

    /// The guest exits to the host at `ip`. False if the flow in the guest was unknown.
    #[cold]
    fn leave_guest(&mut self, ip: u64) -> bool {
        let is_quick = self.config.walk != Walk::Code;
        match self.interrupted.take() {
            Some(interrupted) if self.flow.is_known() || is_quick => {
                self.arrive();
                self.control(interrupted);
                self.end(interrupted.from, None, Some(ip));
                self.exchange(ip);
                true
            }
            _ => {
                if self.flow.is_known() {
                    self.fault(Reason::UnexpectedPacket);
                }
                self.flow.set_space(self.past.schedule.space());
                false
            }
        }
    }

    /// Execution switched between a guest and its host and continues at `ip`.
    fn exchange(&mut self, ip: u64) {
        self.arrive();
        self.flow.set_space(self.past.schedule.space());
        if self.config.walk == Walk::Code {
            self.flow.set_bits(self.address_bits);
            self.flow.set_ip(Some(ip));
        }
        self.changes_flag();
        self.event(Event::Begin { ip, is_exchange: true });
        (self.is_lost, self.count, self.interrupted) = (false, 0, None);
    }

    fn hide(&mut self, ip: u64) {
        self.arrive();
        self.flow.lose();
        self.event(Event::Fault(Fault { reason: Reason::Guest, ip: Some(ip) }));
        (self.is_lost, self.count, self.interrupted) = (true, 0, None);
    }

    /// Updates the guest state at `ip`, a start or sync point. False if the guest is not decoded.
    fn is_decoded(&mut self, ip: u64) -> bool {
        let was_in_guest = std::mem::replace(&mut self.is_in_guest, self.past.schedule.is_in_guest);
        if !self.past.schedule.is_hidden() {
            return true;
        }
        self.flow.lose();
        if !was_in_guest {
            self.hide(ip);
        }
        false
    }

    /// Ends tracing before the instruction at `from`.
    fn end(&mut self, from: u64, to: Option<u64>, exchange: Option<u64>) {
        self.event(Event::End { ip: from, block: None, to, exchange });
    }

    /// Handles an address in place of a conditional branch.
    #[cold]
    fn mistaken(&mut self, ip: u64) {
        self.fault(Reason::Mismatch);
        self.arrive();
        self.resume(ip);
    }

    #[cold]
    fn interrupt(&mut self, interrupted: Interrupted, to: u64) {
        self.arrive();
        self.control(interrupted);
        self.changes_flag();
        self.event(Event::Interrupt { from: interrupted.from, to, aborts: interrupted.aborts });
        self.flow.set_bits(self.address_bits);
        self.flow.set_ip(Some(to));
    }

    fn pge(&mut self, ip: Option<u64>) {
        if self.flow.is_known() {
            self.fault(Reason::UnexpectedPacket);
        }
        self.arrive();
        match ip {
            Some(ip) => {
                let was_in_guest = self.is_in_guest;
                if !self.is_decoded(ip) {
                    return;
                }
                if self.is_in_guest != was_in_guest {
                    self.flow.set_space(self.past.schedule.space());
                }
                self.is_lost = false;
                self.flow.set_bits(self.address_bits);
                self.flow.set_ip(Some(ip));
                self.changes_flag();
                self.event(Event::Begin { ip, is_exchange: false });
            }
            None => self.fault(Reason::NoAddress),
        }
    }

    fn pgd(&mut self, to: Option<u64>) {
        if !self.flow.is_known() {
            if !self.is_lost {
                self.fault(Reason::UnexpectedPacket);
            }
        } else if let Some(interrupted) = self.interrupted.take()
            && !(self.config.errata.skd022 && self.flow.enters_guest())
        {
            self.arrive();
            self.control(interrupted);
            self.end(interrupted.from, to, None);
        } else if self.count > 0 {
            self.fault(Reason::UnexpectedPacket);
        } else {
            self.changes_flag();
            if let Err(reason) = self.flow.run_out(to, self.past.clock.now, self.sink) {
                self.fault(reason);
            }
        }
        self.flow.set_ip(None);
        self.is_lost = false;
    }

    fn fup(&mut self, ip: Option<u64>) {
        let mut bound = std::mem::take(&mut self.bound);
        if self.flag.end == self.flow.point.offset {
            bound.flag = Some(self.flag.next);
            self.flag.now = self.flag.next;
        }
        let Some(ip) = ip else {
            self.events(bound, None);
            return self.fault(Reason::NoAddress);
        };
        if !self.config.branches {
            self.arrive();
            return self.events(bound, Some(ip));
        }
        if self.past.schedule.is_hidden() {
            self.arrive();
            return self.events(bound, None);
        }
        if self.flow.is_known() {
            let is_expected = self.count == 0 && !self.is_interrupted();
            let reached = match is_expected {
                true => self.flow.run_to(ip, self.sink),
                false => Err(Reason::UnexpectedPacket),
            };
            if let Err(reason) = reached {
                self.fault(reason);
                self.arrive();
                self.resume(ip);
            }
        } else if self.is_lost {
            // Without a cause, it is the address after lost packets.
            self.arrive();
            self.resume(ip);
            if !bound.is_some() {
                return;
            }
        } else {
            if !bound.is_some() {
                self.fault(Reason::UnexpectedPacket);
            }
            self.arrive();
            return self.events(bound, Some(ip));
        }
        // It belongs to the interrupt.
        let control = bound.control.take_if(|control| !control.has_fup);
        if bound.is_some() {
            self.arrive();
            self.events(bound, Some(ip));
        }
        self.interrupted = bound.interrupted(ip, control);
    }

    fn events(&mut self, bound: Bound, ip: Option<u64>) {
        if bound.sampled {
            self.sample(ip);
        }
        if let Some(Control { kind, vector, .. }) = bound.control {
            self.event(Event::Control { ip, kind, vector });
        }
        if let (Some(on), Some(_)) = (bound.flag, ip) {
            self.event(Event::InterruptFlag { ip, on });
        }
        if let Some(value) = bound.ptwrite {
            self.event(Event::Ptwrite { ip, exact: ip.is_some(), value });
        }
        if let Some(Transaction { inside, aborted: false }) = bound.transaction {
            self.event(Event::Transaction { ip, inside });
        }
        let powers =
            [bound.mwait.map(Power::Mwait), bound.enter.map(Power::Enter), bound.stop.then_some(Power::Stop)];
        for what in powers.into_iter().flatten() {
            self.event(Event::Power { ip, exact: ip.is_some(), what });
        }
    }

    fn control(&mut self, interrupted: Interrupted) {
        if let Some(Control { kind, vector, .. }) = interrupted.control {
            self.event(Event::Control { ip: Some(interrupted.from), kind, vector });
        }
    }

    /// True if the next branch changes the interrupt flag, which is reported.
    #[inline(always)]
    fn changes_flag(&mut self) -> bool {
        let is_new = self.flag.now != self.flag.next;
        if is_new {
            self.flag.now = self.flag.next;
            self.event(Event::InterruptFlag { ip: None, on: self.flag.next });
        }
        is_new
    }

    fn read_other(&mut self, packet: Packet) {
        let ip = self.flow.ip();
        match packet {
            Packet::Fup(ip) => self.psb_ip = ip,
            Packet::Exec { bits, interrupts } => {
                self.address_bits = bits;
                self.flag.next = interrupts;
                if self.past.is_in_psb {
                    self.flag.now = interrupts;
                } else {
                    self.flag.end = self.flow.point.offset + 2;
                }
            }
            Packet::Tsx { inside, aborted } => {
                // In PSB+ and without tracing it is a state, not an event.
                let is_event = self.flow.is_known() && !self.past.is_in_psb;
                if is_event {
                    self.bound.transaction = Some(Transaction { inside, aborted });
                }
            }
            Packet::Pip { cr3, guest } => self.event(Event::PageTable { cr3, guest }),
            Packet::Cbr(ratio) if ratio != self.past.clock.last_ratio => {
                // PSB+ itself has the address.
                let ip = ip.filter(|_| !self.past.is_in_psb);
                self.event(Event::Frequency { ip, ratio })
            }
            Packet::Ptwrite { value, has_fup: true } => self.bound.ptwrite = Some(value),
            Packet::Ptwrite { value, has_fup: false } => {
                self.arrive();
                self.event(Event::Ptwrite { ip, exact: false, value });
            }
            Packet::Mwait(hints) => self.bound.mwait = Some(hints),
            Packet::Pwre(state) if self.bound.mwait.is_some() => self.bound.enter = Some(state),
            Packet::Pwre(state) => self.power(Power::Enter(state)),
            Packet::Pwrx(state) => self.power(Power::Exit(state)),
            Packet::Exstop { has_fup: true } => self.bound.stop = true,
            Packet::Exstop { has_fup: false } => self.power(Power::Stop),
            Packet::Bbp { is_first, group, is_short } => self.sampled.begin(is_first, group, is_short),
            Packet::Bip { id, value } => self.sampled.add(id, value),
            Packet::Bep { has_fup: true } => self.bound.sampled = true,
            Packet::Bep { has_fup: false } => {
                self.arrive();
                self.sample(self.flow.ip());
            }
            Packet::Cfe { has_fup, kind, vector } if has_fup || self.flow.is_known() || self.is_on => {
                self.bound.control = Some(Control { has_fup, kind, vector });
            }
            Packet::Cfe { kind, vector, .. } => {
                self.arrive();
                self.event(Event::Control { ip: None, kind, vector });
            }
            Packet::Evd { kind, payload } => self.event(Event::ControlData { kind, payload }),
            Packet::TraceStop => {
                if self.flow.is_known() {
                    self.fault(Reason::UnexpectedPacket);
                }
                self.is_lost = false;
            }
            _ => {}
        }
    }

    fn sample(&mut self, ip: Option<u64>) {
        for event in std::mem::take(&mut self.sampled).events(ip) {
            self.event(event);
        }
    }

    fn power(&mut self, what: Power) {
        self.arrive();
        let ip = self.flow.ip();
        self.event(Event::Power { ip, exact: false, what });
    }

    fn synchronized(&mut self) {
        let address = self.psb_ip.take();
        let ip = address.filter(|&ip| self.is_decoded(ip));
        self.is_lost = address.is_some() && ip.is_none();
        if self.config.branches {
            self.flow.set_bits(self.address_bits);
            self.flow.set_ip(ip);
        }
        self.event(Event::Sync { ip, offset: self.psb_offset, interrupts: self.flag.now });
    }
}

impl Bound {
    fn is_some(&self) -> bool {
        let Bound { ptwrite, transaction, mwait, enter, stop, sampled, control, flag } = self;
        let words = [ptwrite, mwait, enter].iter().any(|word| word.is_some());
        words || transaction.is_some() || *stop || *sampled || control.is_some() || flag.is_some()
    }

    /// The interrupt that a FUP at `ip` may begin, if these events do not explain it; `control` came with it.
    fn interrupted(&self, ip: u64, control: Option<Control>) -> Option<Interrupted> {
        let aborts = self.transaction.is_some_and(|transaction| transaction.aborted);
        let is_unsure = self.control.is_some_and(Control::may_be_interrupt);
        let may_be = !self.is_some() || control.is_some() || is_unsure || aborts;
        may_be.then_some(Interrupted { from: ip, is_certain: !is_unsure, aborts, control })
    }
}
