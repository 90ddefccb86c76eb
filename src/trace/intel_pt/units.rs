//! Cuts a trace into parts that can be decoded by themselves, with what their decoders must know of what is
//! in front of them: the time, and the address space.

use super::Config;
use super::clock::Clock;
use super::packet::{PSB, Packet, Packets};
use super::schedule::Schedule;
use crate::bytes::Trace;

/// A part of a trace that can be decoded by itself: from a point of synchronization (PSB) to another one.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The offset of the PSB.
    pub start: u64,
    /// The offset of the PSB at which the next unit begins, or the length of the trace.
    pub end: u64,
    /// What packets told before.
    pub(super) past: Past,
}

impl Unit {
    /// The time in front of it, in ticks of the time-stamp counter; 0 if the trace has none there.
    pub fn time(&self) -> u64 {
        self.past.clock.now
    }
}

/// What the packets in front of a place told, wherever decoding began.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) clock: Clock,
    pub(super) schedule: Schedule,
    pub(super) is_in_psb: bool,
    /// The interrupt flag, as MODE.Exec told it last.
    pub(super) interrupts: bool,
    /// MWAIT awaits its FUP packet, to which PWRE and EXSTOP belong.
    is_in_mwait: bool,
}

impl Past {
    /// Takes a packet into account; `packets` are those behind it. True if it told the time.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        packet: &Packet,
        packets: &Packets<'_>,
        config: &Config,
        trace: &Trace<'_>,
    ) -> bool {
        let has_told_time = self.clock.read(packet, packets, self.is_in_psb, config);
        match packet {
            Packet::Tnt { .. } => self.is_in_psb = false,
            Packet::Psb => self.is_in_psb = true,
            _ => {
                if self.is_in_psb && matches!(packet, Packet::Fup(_)) {
                    self.clock.set_on();
                }
                self.schedule.read(packet, self.is_in_psb);
                self.schedule.advance(self.clock.now, &trace.switches);
                if !belongs_to_psb(packet) {
                    self.is_in_psb = false;
                }
            }
        }
        has_told_time
    }

    /// What [`Past::read`] does with a TIP packet outside of PSB+.
    #[inline(always)]
    pub(super) fn read_target(&mut self, ip: u64, trace: &Trace<'_>) {
        self.schedule.target(ip);
        self.schedule.advance(self.clock.now, &trace.switches);
    }

    /// Ends what [`Past::read`] began, when the code that the packet leads through has been walked.
    #[inline(always)]
    pub(super) fn end(&mut self, packet: &Packet) {
        match packet {
            Packet::Exec { interrupts, .. } => self.interrupts = *interrupts,
            Packet::Mwait(_) => self.is_in_mwait = true,
            Packet::Fup(_) | Packet::Psb | Packet::Overflow | Packet::Bad | Packet::Cut => {
                self.is_in_mwait = false;
            }
            _ => {}
        }
        let clock = &mut self.clock;
        let tells_flow = match packet {
            Packet::Tnt { .. } | Packet::Tip(_) | Packet::Pge(_) | Packet::Pgd(_) => true,
            Packet::Fup(_) => !self.is_in_psb,
            Packet::Overflow | Packet::Bad | Packet::Cut => true,
            Packet::Ptwrite { has_fup, .. } | Packet::Exstop { has_fup } | Packet::Bep { has_fup } => {
                !has_fup
            }
            Packet::Pwre(_) => !self.is_in_mwait,
            Packet::Pwrx(_) => true,
            Packet::Cbr(ratio) => std::mem::replace(&mut clock.told_ratio, *ratio) != *ratio,
            Packet::PsbEnd => true,
            _ => false,
        };
        if tells_flow {
            clock.flow = clock.now;
        }
    }
}

/// A packet that was read, or [`Packet::Other`] in place of a FUP that a processor sends by mistake while
/// tracing is off: in PSB+ (erratum BDM70), or where packets were lost (APL12). `packets` are those behind
/// it.
#[inline(always)]
pub(super) fn valid(packet: Packet, packets: &Packets<'_>) -> Packet {
    if matches!(packet, Packet::Fup(_)) && tracing_begins(packets.clone()) { Packet::Other } else { packet }
}

/// True if the next of these packets that depends on the flow says that tracing begins, or is stopped.
#[cold]
fn tracing_begins(mut packets: Packets<'_>) -> bool {
    loop {
        match packets.next() {
            Some(Packet::Pge(_) | Packet::TraceStop) => return true,
            Some(Packet::PsbEnd) => {}
            Some(Packet::Psb | Packet::Fup(_)) | None => return false,
            Some(packet) if belongs_to_psb(&packet) => {}
            _ => return false,
        }
    }
}

/// True for packets that do not end PSB+ (PSBEND does, and TIP.PGE, which may come in front of it).
pub(super) fn belongs_to_psb(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr(_)
            | Packet::Exec { .. }
            | Packet::Tsx { .. }
            | Packet::Pip { .. }
            | Packet::Fup(_)
            | Packet::Psb
            | Packet::Other
    )
}

/// The packets from the PSB on that is next behind a bad packet, or around it: what was read in front of it
/// may not have been packets, but the first bytes of a PSB.
pub(super) fn behind_damage<'a>(trace: &'a Trace<'_>, bad: u64, config: &Config) -> Option<Packets<'a>> {
    let next = trace.find(&PSB, bad.saturating_sub(PSB.len() as u64 - 1))?;
    Some(Packets::new(trace, next, config.errata))
}

/// Cuts a trace into units of at least `size` bytes, in order. What is in front of the first PSB cannot be
/// decoded: the first unit's `start` says how much that is; without a PSB there is no unit.
///
/// This reads all packets to follow the time, at about 1 GB/s, but walks no code; with [`u64::MAX`] there is
/// one unit, and nothing is read. What [`Decoder::decode`] gives for all units of a trace, in order, does not
/// depend on `size`.
///
/// [`Decoder::decode`]: super::Decoder::decode
pub fn units<'a>(trace: &'a Trace<'_>, config: &Config, size: u64) -> impl Iterator<Item = Unit> + use<'a> {
    let start = trace.find(&PSB, 0).unwrap_or(trace.len());
    let mut cutter = Cutter {
        trace,
        config: *config,
        size,
        packets: Packets::new(trace, start, config.errata),
        start,
        past: Past::default(),
    };
    std::iter::from_fn(move || cutter.next())
}

struct Cutter<'a, 't> {
    trace: &'a Trace<'t>,
    config: Config,
    size: u64,
    packets: Packets<'a>,
    /// Where the next unit begins.
    start: u64,
    /// What is known there.
    past: Past,
}

impl Cutter<'_, '_> {
    fn next(&mut self) -> Option<Unit> {
        if self.start == self.trace.len() {
            return None;
        }
        let (start, past) = (self.start, self.past.clone());
        if self.size == u64::MAX {
            self.start = self.trace.len();
            return Some(Unit { start, end: self.start, past });
        }
        self.start = loop {
            if !self.past.is_in_psb {
                // What a trace has most needs the least work.
                while self.packets.next_branches().is_some() || self.skip_target() {
                    self.past.clock.branches();
                }
            }
            let offset = self.packets.offset();
            let Some(packet) = self.packets.next() else { break offset };
            let packet = valid(packet, &self.packets);
            if packet == Packet::Psb && offset > start && offset - start >= self.size {
                self.packets = Packets::new(self.trace, offset, self.config.errata);
                break offset;
            }
            self.past.read(&packet, &self.packets, &self.config, self.trace);
            self.past.end(&packet);
            if matches!(packet, Packet::Bad | Packet::Cut) {
                let Some(next) = behind_damage(self.trace, offset, &self.config) else {
                    break self.trace.len();
                };
                self.packets = next;
            }
        };
        Some(Unit { start, end: self.start, past })
    }

    /// Skips the next packet if it is a TIP packet with an address.
    #[inline(always)]
    fn skip_target(&mut self) -> bool {
        let target = self.packets.next_target();
        if let Some(ip) = target {
            self.past.read_target(ip, self.trace);
        }
        target.is_some()
    }
}
