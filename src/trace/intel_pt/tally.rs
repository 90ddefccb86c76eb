//! Counts the packets of a trace, and the time in traced code.

use std::collections::BTreeMap;

use super::Config;
use super::packet::{PSB, Packet, Packets};
use super::show::kind;
use super::units::{Past, after_damage, valid};
use crate::bytes::Trace;

/// The packet counts and times of a trace, without its code.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Tally {
    /// The number of packets by kind, in the words of perf, without PAD.
    pub packets: BTreeMap<&'static str, u64>,
    /// The ticks between the first and the last time in a packet.
    pub span: u64,
    /// The ticks of `span` with tracing on and no packets lost.
    pub traced: u64,
}

#[derive(Default)]
struct Tracing {
    since: Option<u64>,
    sum: u64,
}

impl Tracing {
    fn set(&mut self, is_on: bool, now: u64) {
        if is_on {
            self.since = self.since.or(Some(now));
        } else if let Some(since) = self.since.take() {
            self.sum = self.sum.saturating_add(now.saturating_sub(since));
        }
    }
}

/// Counts the packets of a trace from its first sync point on.
///
/// This reads packets as [`units`](super::units()) does, and walks no code.
pub fn tally(trace: &Trace<'_>, config: &Config) -> Tally {
    let Some(start) = trace.find(&PSB, 0) else { return Tally::default() };
    let mut packets = Packets::new(trace, start, config.errata);
    let (mut past, mut tracing) = (Past::default(), Tracing::default());
    let (mut branches, mut targets, mut others) = (0, 0, BTreeMap::new());
    let mut first = None;
    // True if the PSB+ says that code is traced.
    let mut is_on_in_psb = false;
    loop {
        if !past.is_in_psb {
            // The most frequent packets need the least work.
            loop {
                if packets.next_branches().is_some() {
                    branches += 1;
                } else if let Some(ip) = packets.next_target() {
                    past.read_target(ip, trace);
                    targets += 1;
                } else {
                    break;
                }
                past.clock.branches();
            }
        }
        let (offset, head) = (packets.offset(), packets.head());
        let Some(packet) = packets.next() else { break };
        let (flow, is_in_psb) = (valid(packet, &packets), past.is_in_psb);
        past.read(&flow, &packets, config, trace);
        past.end(&flow);
        let now = past.clock.now;
        first = first.or((now > 0).then_some(now));
        match flow {
            Packet::Pge(_) => tracing.set(true, now),
            // The time of PSB+ may follow it.
            Packet::Fup(ip) if is_in_psb => is_on_in_psb = ip.is_some(),
            Packet::Psb => is_on_in_psb = false,
            Packet::PsbEnd if is_in_psb => tracing.set(is_on_in_psb, now),
            // After lost packets, a FUP has the address at which execution continues.
            Packet::Fup(_) | Packet::Tnt { .. } | Packet::Tip(_) => tracing.set(true, now),
            Packet::Pgd(_) | Packet::TraceStop | Packet::Overflow | Packet::Bad | Packet::Cut => {
                tracing.set(false, now);
            }
            _ => {}
        }
        match packet {
            Packet::Tnt { .. } => branches += 1,
            Packet::Tip(_) => targets += 1,
            Packet::Other if head[0] == 0 => {}
            _ => *others.entry(kind(&packet, &head)).or_default() += 1,
        }
        if matches!(packet, Packet::Bad | Packet::Cut) {
            let Some(next) = after_damage(trace, offset, config) else { break };
            packets = next;
        }
    }
    let now = past.clock.now;
    tracing.set(false, now);
    others.extend([("TNT", branches), ("TIP", targets)].into_iter().filter(|(_, count)| *count > 0));
    let span = first.map_or(0, |first| now.saturating_sub(first));
    Tally { packets: others, span, traced: tracing.sum.min(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_tracing_is_off_does_not_count() {
        let tsc = |low: u8| [0x19, low, 1, 0, 0, 0, 0, 0];
        let on = [0x71, 0, 0x10, 0, 0, 0, 0];
        let bytes = [
            &PSB[..],
            &tsc(0),
            &[2, 0x23, 0, 0],
            &on,
            &[0x0e, 0x2d, 1, 2, 0x0e],
            &tsc(10),
            &[1],
            &tsc(100),
            &on,
            &tsc(120),
            &[2, 0xf3],
            &tsc(150),
            &[0x3d, 0, 0x10],
            &tsc(200),
        ]
        .concat();
        let trace = Trace::new(vec![&bytes], Vec::new());
        let tally = tally(&trace, &Config::default());
        assert_eq!((tally.span, tally.traced), (200, 10 + 20 + 50));
        let packets: Vec<_> = tally.packets.into_iter().collect();
        let expected = [
            ("FUP", 1),
            ("OVF", 1),
            ("PSB", 1),
            ("PSBEND", 1),
            ("TIP", 1),
            ("TIP.PGD", 1),
            ("TIP.PGE", 2),
            ("TNT", 2),
            ("TSC", 6),
        ];
        assert_eq!(packets, expected);
    }
}
