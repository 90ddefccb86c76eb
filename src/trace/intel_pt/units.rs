//! Cuts a trace into units to be decoded independently, each with the needed state: time and address space.

use super::Config;
use super::clock::Clock;
use super::packet::{PSB, Packet, Packets};
use super::schedule::Schedule;
use crate::bytes::Trace;

/// A part of a trace that can be decoded independently: from one sync point (PSB) to another.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The offset of the PSB.
    pub start: u64,
    /// The offset of the PSB at which the next unit begins, or the length of the trace.
    pub end: u64,
    pub(super) past: Past,
}

impl Unit {
    /// The time before it, in ticks of the time-stamp counter; 0 if unknown.
    pub fn time(&self) -> u64 {
        self.past.clock.now
    }
}

/// The state that packets alone determine, wherever decoding began.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) clock: Clock,
    pub(super) schedule: Schedule,
    pub(super) is_in_psb: bool,
    /// The interrupt flag, from the last MODE.Exec.
    pub(super) interrupts: bool,
    /// An MWAIT waits for its FUP packet; PWRE and EXSTOP belong to it.
    is_in_mwait: bool,
}

impl Past {
    /// Processes a packet; `packets` are those after it. True if it set the time.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        packet: &Packet,
        packets: &Packets<'_>,
        config: &Config,
        trace: &Trace<'_>,
    ) -> bool {
        let sets_time = self.clock.read(packet, packets, self.is_in_psb, config);
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
        sets_time
    }

    #[inline(always)]
    pub(super) fn read_target(&mut self, ip: u64, trace: &Trace<'_>) {
        self.schedule.target(ip);
        self.schedule.advance(self.clock.now, &trace.switches);
    }

    /// Completes [`Past::read`] after the code of the packet has been walked.
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
            Packet::Cbr(ratio) => std::mem::replace(&mut clock.last_ratio, *ratio) != *ratio,
            Packet::PsbEnd => true,
            _ => false,
        };
        if tells_flow {
            clock.flow = clock.now;
        }
    }
}

/// Replaces a FUP that a processor sends by mistake while tracing is off with [`Packet::Other`]: in PSB+
/// (erratum BDM70), or where packets were lost (APL12). `packets` are those after it.
#[inline(always)]
pub(super) fn valid(packet: Packet, packets: &Packets<'_>) -> Packet {
    if matches!(packet, Packet::Fup(_)) && tracing_begins(packets.clone()) { Packet::Other } else { packet }
}

/// True if the next of these packets that affects the flow begins or stops tracing.
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

/// True for packets that do not end PSB+ (PSBEND does, and TIP.PGE, which may precede it).
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

/// The packets from the next PSB on, after or around a bad packet: bytes read before it may begin a PSB.
pub(super) fn after_damage<'a>(trace: &'a Trace<'_>, bad: u64, config: &Config) -> Option<Packets<'a>> {
    let next = trace.find(&PSB, bad.saturating_sub(PSB.len() as u64 - 1))?;
    Some(Packets::new(trace, next, config.errata))
}

/// Cuts a trace into units of at least `size` bytes, in order. Bytes before the first PSB cannot be decoded;
/// without one there is no unit.
///
/// ```text
/// trace    ┄┄┄┄┄┄┄┄┄┄│PSB+ packets │PSB+ packets │PSB+ packets ┄┄┄│
/// unit              start of unit 0              start of unit 1  end
/// state              none           ─────────────► time, space, flag (`Past`), from packets alone
/// ```
///
/// This reads all packets to follow the time, at about 1 GB/s, but walks no code; with [`u64::MAX`] there is
/// one unit, and nothing is read. The result of [`Decoder::decode`] for all units of a trace, in order, does
/// not depend on `size`.
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
    start: u64,
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
                // The most frequent packets need the least work.
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
                let Some(next) = after_damage(self.trace, offset, &self.config) else {
                    break self.trace.len();
                };
                self.packets = next;
            }
        };
        Some(Unit { start, end: self.start, past })
    }

    #[inline(always)]
    fn skip_target(&mut self) -> bool {
        let target = self.packets.next_target();
        if let Some(ip) = target {
            self.past.read_target(ip, self.trace);
        }
        target.is_some()
    }
}
