//! Turns the elements of a CoreSight trace into control flow.

use super::Config;
use super::packet::{Address, Atoms, Context, Packet, Packets, RESET, find_sync, space};
use super::speculation::{Element, Speculation, Wrong};
use super::units::Unit;
use crate::block::{Blocks, InstructionSet};
use crate::bytes::Trace;
use crate::flow::Flow;
use crate::image::{Image, Switch};
use crate::sink::{Event, Reason, Sink};

/// Decodes units, of any traces in any order. Each thread has its own.
///
/// Memory: up to 8 MiB of blocks, see [`Sink::forget`].
#[derive(Debug)]
pub struct Decoder<I> {
    flow: Flow<I>,
}

impl<I: Image> Decoder<I> {
    /// A decoder for the traces of several trace units and the code they executed. `config` is that of any
    /// unit: [`Config::waits`] is the same in all.
    pub fn new(image: I, config: &Config) -> Decoder<I> {
        Decoder { flow: Flow::new(image, InstructionSet::A64 { waits: config.waits }, false) }
    }

    /// The blocks decoded so far.
    pub fn blocks(&self) -> &Blocks {
        self.flow.blocks()
    }

    /// Decodes a unit of `trace`, up to the address at which the next one begins.
    ///
    /// Decoding units one after the other has the same result as decoding them as one.
    pub fn decode<S: Sink>(&mut self, config: &Config, trace: &Trace<'_>, unit: &Unit, sink: &mut S) {
        self.flow.reset(64, None, unit.time);
        self.flow.synchronize();
        self.flow.point.time = unit.time;
        let mut reader = UnitReader {
            flow: &mut self.flow,
            config,
            sink,
            switches: &trace.switches,
            speculation: Speculation::default(),
            pending: None,
            is_lost: true,
            is_a64: true,
            waiting: Waiting::None,
            held: Delayed::default(),
            sync: Sync::None,
        };
        reader.read(trace, unit);
    }
}

/// An exception or Q packet without its address.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Exception { is_target: bool, number: u16 },
    Q { count: Option<u32> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    None,
    /// The target of the branch at the end of the current block.
    Target,
    /// The target of the system call at the end of the current block.
    Call,
    /// The handler of an exception that replaced this instruction.
    Handler(u64),
}

/// Changes that take effect after the next address.
#[derive(Clone, Copy, Default, Debug)]
struct Delayed {
    context: Option<Context>,
    time: Option<u64>,
    /// The timestamp came after the context.
    is_time_later: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sync {
    None,
    /// Its address is next.
    Begun,
    /// Its address is next, and it belongs to the next unit.
    Last,
    Done,
}

struct UnitReader<'a, I, S> {
    flow: &'a mut Flow<I>,
    config: &'a Config,
    sink: &'a mut S,
    switches: &'a [Switch],
    speculation: Speculation,
    pending: Option<Pending>,
    /// If the flow is unknown: true after a fault, up to the next address; false if tracing is off.
    is_lost: bool,
    /// False if the processor executes T32 or A32 instructions.
    is_a64: bool,
    waiting: Waiting,
    held: Delayed,
    sync: Sync,
}

impl<I: Image, S: Sink> UnitReader<'_, I, S> {
    fn read(&mut self, trace: &Trace<'_>, unit: &Unit) {
        let mut packets = Packets::new(trace, self.config, unit.start);
        let mut is_last = false;
        loop {
            let offset = packets.offset();
            let Some(packet) = packets.next() else { break };
            let len = (packets.offset() - offset) as u32;
            self.flow.begin_packet(len.min(LONGEST), self.sink);
            self.flow.point.offset = offset;
            if packet == Packet::Sync && offset == unit.end {
                is_last = true;
            }
            self.read_one(packet, is_last);
            if self.sync == Sync::Done {
                return;
            }
            if matches!(packet, Packet::Bad | Packet::Cut) {
                let Some(next) = find_sync(trace, offset + 1) else { break };
                packets = Packets::new(trace, self.config, next);
            }
        }
        if matches!(self.waiting, Waiting::Target | Waiting::Call) {
            self.flow.leave(self.sink);
        }
        self.event(Event::Over);
    }

    #[inline(always)]
    fn read_one(&mut self, packet: Packet, is_last: bool) {
        match packet {
            Packet::Atoms(atoms) => self.add(Element::Atoms(atoms)),
            Packet::Address { address, context } => {
                if let Some(context) = context {
                    self.add(Element::Context(context));
                }
                match self.pending.take() {
                    None => self.add(Element::Address(address)),
                    Some(Pending::Exception { is_target, number }) => {
                        self.add(Element::Exception { at: address, is_target, number });
                    }
                    Some(Pending::Q { count }) => self.add(Element::Q { count, to: address }),
                }
            }
            _ => self.read_other(packet, is_last),
        }
    }

    fn read_other(&mut self, packet: Packet, is_last: bool) {
        match packet {
            Packet::Info { speculative } => self.info(speculative, is_last),
            Packet::Timestamp(now) => self.add(Element::Timestamp(now)),
            Packet::On => self.add(Element::On),
            Packet::Context(context) => self.add(Element::Context(context)),
            Packet::Source(address) => self.add(Element::Source(address)),
            Packet::Reset => self.add(Element::Reset),
            Packet::Exception { is_target, number } => {
                self.wait(Pending::Exception { is_target, number });
            }
            Packet::Q { count, to: None } => self.wait(Pending::Q { count }),
            Packet::Q { count, to: Some(to) } => self.add(Element::Q { count, to }),
            Packet::Commit(count) => {
                let done = self.speculation.commit(count);
                // A unit without speculation has committed everything so far.
                if self.config.most_speculative > 0 {
                    self.check(done);
                }
                self.execute();
            }
            Packet::Cancel { count, mispredicted, atoms } => self.cancel(count, mispredicted, atoms),
            Packet::Overflow | Packet::Discard => self.broken(Reason::Overflow),
            Packet::Bad => self.broken(Reason::BadPacket),
            Packet::Cut => self.broken(Reason::CutPacket),
            _ => {}
        }
    }

    fn wait(&mut self, pending: Pending) {
        if self.pending.replace(pending).is_some() {
            self.fault(Reason::NoAddress);
        }
    }

    fn check(&mut self, done: Result<(), Wrong>) {
        if done.is_err() {
            self.drop_speculative();
            self.fault(Reason::UnexpectedPacket);
        }
    }

    #[inline(always)]
    fn add(&mut self, element: Element) {
        if self.config.most_speculative == 0 && self.speculation.is_empty() {
            self.element(element);
        } else {
            self.add_speculative(element);
        }
    }

    fn add_speculative(&mut self, element: Element) {
        if self.sync != Sync::None && self.speculation.is_empty() {
            return self.element(element);
        }
        let done = self.speculation.push(element, self.config.most_speculative);
        self.check(done);
        self.execute();
    }

    fn execute(&mut self) {
        while let Some(element) = self.speculation.next() {
            self.element(element);
        }
    }

    fn cancel(&mut self, count: u32, mispredicted: bool, atoms: Atoms) {
        if atoms.count > 0 {
            self.add(Element::Atoms(atoms));
        }
        let cancelled = self.speculation.cancel(count);
        self.check(cancelled);
        if mispredicted {
            let done = self.speculation.mispredict();
            self.check(done);
        }
    }

    fn info(&mut self, speculative: u32, is_last: bool) {
        if self.pending.take().is_some() {
            self.fault(Reason::NoAddress);
        }
        if speculative == 0 {
            self.speculation.commit_all();
            self.execute();
            self.sync = if is_last { Sync::Last } else { Sync::None };
            self.element(Element::Info);
            return;
        }
        if self.speculation.is_empty() {
            let done =
                self.speculation.push(Element::Unseen(speculative), self.config.most_speculative.max(1));
            self.check(done);
        }
        self.add_speculative(Element::Info);
    }

    fn broken(&mut self, reason: Reason) {
        self.drop_speculative();
        self.pending = None;
        self.fault(reason);
    }

    /// Drops the elements that were neither committed nor cancelled, except the time.
    fn drop_speculative(&mut self) {
        let time = self.speculation.clear();
        self.held.time = time.or(self.held.time);
    }

    fn event(&mut self, event: Event) {
        self.flow.event(event, self.sink);
    }

    #[cold]
    fn fault(&mut self, reason: Reason) {
        if matches!(self.waiting, Waiting::Target | Waiting::Call) {
            self.flow.leave(self.sink);
        }
        self.flow.fault(reason, self.sink);
        self.forget();
        self.is_lost = true;
    }

    fn forget(&mut self) {
        self.waiting = Waiting::None;
        self.apply_held();
        if self.sync == Sync::Begun {
            self.sync = Sync::None;
        }
    }

    #[inline(always)]
    fn element(&mut self, element: Element) {
        match element {
            Element::Atoms(atoms) => self.atoms(atoms),
            Element::Address(address) => self.address(address),
            _ => self.other_element(element),
        }
    }

    fn other_element(&mut self, element: Element) {
        match element {
            Element::Info => {
                self.flow.synchronize();
                self.is_a64 = true;
                // The address makes the flow known again.
                self.is_lost |= !self.flow.is_known();
                if self.sync != Sync::Last {
                    self.sync = Sync::Begun;
                }
            }
            Element::On => self.on(),
            Element::Context(context) => {
                self.held.context = Some(context);
                self.settle();
            }
            Element::Timestamp(now) => {
                self.held =
                    Delayed { time: Some(now), is_time_later: self.held.context.is_some(), ..self.held };
                self.settle();
            }
            Element::Source(address) => self.source(address),
            Element::Exception { at, is_target, number } => self.exception(at, is_target, number),
            Element::Reset => {
                if let Some(ip) = self.flow.ip() {
                    self.exception_at(ip, RESET);
                }
            }
            Element::Q { count, to } => self.q(count, to),
            _ => {}
        }
    }

    /// Applies a new context or time, unless it belongs after the next address.
    fn settle(&mut self) {
        if self.waiting == Waiting::None && self.sync == Sync::None {
            self.apply_held();
        }
    }

    fn apply_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        if !held.is_time_later {
            self.apply_time(held.time);
        }
        if let Some(context) = held.context {
            self.is_a64 = context.is_64;
        }
        let (before, now) = (self.flow.point.space, self.flow.point.now);
        let space = space(self.config, held.context, before, (self.switches, now));
        self.flow.set_space(space);
        if held.context.is_some() && self.config.context.is_some() {
            self.event(Event::Context);
        }
        if held.is_time_later {
            self.apply_time(held.time);
        }
    }

    fn apply_time(&mut self, time: Option<u64>) {
        if let Some(now) = time {
            self.flow.point.time = now;
            self.flow.set_now(now);
            self.sink.time(now);
        }
    }

    #[inline(always)]
    fn address(&mut self, address: Address) {
        match (self.waiting, address.ip) {
            (Waiting::Target, Some(ip)) if address.is_a64() && self.sync == Sync::None => {
                self.flow.arrive(ip, self.sink);
                self.waiting = Waiting::None;
                if self.held.context.is_some() || self.held.time.is_some() {
                    self.apply_held();
                    self.check_set();
                }
            }
            _ => self.other_address(address),
        }
    }

    fn other_address(&mut self, address: Address) {
        let Some(ip) = address.ip else { return self.fault(Reason::NoAddress) };
        let was_known = self.flow.is_known();
        match std::mem::replace(&mut self.waiting, Waiting::None) {
            Waiting::Target | Waiting::Call => self.flow.arrive(ip, self.sink),
            Waiting::Handler(from) => {
                self.event(Event::Interrupt { from, to: ip, aborts: false });
                self.flow.set_ip(Some(ip));
            }
            Waiting::None if was_known => {
                let reached = match self.flow.reach(ip, self.sink) {
                    Ok(false) => Ok(()),
                    Ok(true) => Err(Reason::Mismatch),
                    Err(reason) => Err(reason),
                };
                if let Err(reason) = reached {
                    self.flow.fault(reason, self.sink);
                    self.is_lost = true;
                }
            }
            Waiting::None => {}
        }
        let sync = std::mem::replace(&mut self.sync, Sync::None);
        if sync == Sync::Last {
            self.sync = Sync::Done;
            return;
        }
        if sync == Sync::Begun && self.config.context.is_some() {
            // The following context does not depend on any before.
            self.flow.set_space(None);
        }
        self.apply_held();
        self.is_a64 &= address.is_a64();
        if !self.is_a64 {
            if sync == Sync::Begun {
                // The state before must not matter.
                self.flow.lose();
                self.is_lost = false;
            }
            return self.check_set();
        }
        if !self.flow.is_known() {
            self.flow.set_ip(Some(ip));
            if !self.is_lost {
                self.event(Event::Begin { ip, is_exchange: false });
            } else if sync == Sync::None {
                self.event(Event::Resumed { ip });
            }
            self.is_lost = false;
        }
        if sync == Sync::Begun {
            let offset = self.flow.point.offset;
            self.event(Event::Sync { ip: Some(ip), offset, interrupts: true });
        }
    }

    fn check_set(&mut self) {
        if !self.is_a64 {
            if self.flow.is_known() || !self.is_lost {
                self.fault(Reason::InstructionSet);
            }
            self.is_lost = true;
        }
    }

    fn on(&mut self) {
        match std::mem::replace(&mut self.waiting, Waiting::None) {
            Waiting::Target | Waiting::Call => {
                let (ip, block) = (self.flow.last(), self.flow.block());
                self.flow.leave(self.sink);
                if !self.held.is_time_later {
                    let time = self.held.time.take();
                    self.apply_time(time);
                }
                self.event(Event::End { ip, block, to: None, exchange: None });
            }
            Waiting::Handler(ip) => {
                self.event(Event::End { ip, block: None, to: None, exchange: None });
            }
            Waiting::None => {
                if let Some(ip) = self.flow.ip() {
                    self.event(Event::End { ip, block: None, to: None, exchange: None });
                }
            }
        }
        self.flow.lose();
        self.is_lost = false;
        self.settle();
    }

    #[inline(always)]
    fn atoms(&mut self, atoms: Atoms) {
        if !self.flow.is_known() {
            if !self.is_lost {
                self.fault(Reason::NoAddress);
            }
            return;
        }
        let Atoms { mut bits, count } = atoms;
        for _ in 0..count {
            if self.waiting != Waiting::None && !self.go_back() {
                return;
            }
            match self.flow.atom(bits & 1 != 0, self.sink) {
                Ok(false) => {}
                Ok(true) => self.waiting = Waiting::Target,
                Err(reason) => return self.fault(reason),
            }
            bits >>= 1;
        }
    }

    /// Returns to the last call, at an indirect branch without an address. False if that is not possible.
    #[inline(always)]
    fn go_back(&mut self) -> bool {
        let gone = match self.waiting {
            Waiting::Target if self.config.return_stack => self.flow.go_back(self.sink),
            _ => Err(Reason::NoAddress),
        };
        match gone {
            Ok(()) => self.forget(),
            Err(reason) => self.fault(reason),
        }
        gone.is_ok()
    }

    fn exception(&mut self, at: Address, is_target: bool, number: u16) {
        if !self.flow.is_known() {
            return;
        }
        let Some(ip) = at.ip else { return self.fault(Reason::NoAddress) };
        match self.waiting {
            _ if is_target => self.address(at),
            Waiting::None => {}
            _ => {
                if !self.go_back() {
                    return;
                }
            }
        }
        if self.flow.is_known() {
            self.exception_at(ip, number);
        }
    }

    fn exception_at(&mut self, ip: u64, number: u16) {
        match self.flow.reach(ip, self.sink) {
            Ok(true) => self.waiting = Waiting::Call,
            Ok(false) => self.waiting = Waiting::Handler(ip),
            Err(reason) => {
                self.fault(reason);
                self.is_lost = false;
                self.flow.set_ip(Some(ip));
                self.event(Event::Resumed { ip });
                self.waiting = Waiting::Handler(ip);
            }
        }
        self.event(Event::Exception { number });
    }

    fn source(&mut self, address: Address) {
        let Some(ip) = address.ip else { return self.fault(Reason::NoAddress) };
        if self.waiting != Waiting::None && !self.go_back() || !self.is_a64 {
            return;
        }
        if self.flow.is_known()
            && let Err(reason) = self.flow.reach_branch(ip, self.sink)
        {
            self.fault(reason);
        }
        if !self.flow.is_known() {
            self.flow.set_ip(Some(ip));
            self.event(match self.is_lost {
                true => Event::Resumed { ip },
                false => Event::Begin { ip, is_exchange: false },
            });
            self.is_lost = false;
        }
        self.atoms(Atoms { bits: 1, count: 1 });
    }

    fn q(&mut self, count: Option<u32>, to: Address) {
        let Some(ip) = to.ip else { return self.fault(Reason::NoAddress) };
        if self.waiting != Waiting::None && !self.go_back() || !self.flow.is_known() {
            return;
        }
        let count = count.ok_or(Reason::NoPath);
        if let Err(reason) = count.and_then(|count| self.flow.count_to(count, ip, self.sink)) {
            self.fault(reason);
            self.address(to);
        }
    }
}

/// Longer packets only repeat zeros.
const LONGEST: u32 = 32;
