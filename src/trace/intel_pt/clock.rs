//! The time at each packet: the time-stamp counter (TSC), advanced by crystal clock (CTC) and core cycles.
//!
//! | packet | contains |
//! |---|---|
//! | TSC | the counter's lower 56 bits |
//! | TMA | the lower 16 bits of the crystal clock at the TSC packet before it |
//! | MTC | 8 bits of the crystal clock, from bit `mtc_period` on |
//! | CYC | core cycles since the last CYC packet |
//! | CBR | the ratio of the core's frequency to the bus clock |
//!
//! Cycles are converted to ticks by the two MTC packets around them if each follows a CYC packet, else by the
//! ratio. The rounding and so the times of samples equal those of perf.
//!
//! For a trace without CYC packets, the cycles are estimated from the times of MTC packets and the ratio.

use super::Config;
use super::packet::{Packet, Packets};

/// A TSC packet older than the packets before it by less than this does not set the time back.
const SLIP: u64 = 0x1_0000;

/// The core slept between two MTC packets if a cycle took this many times longer than by the ratio.
const TOO_LONG: f64 = 1.25;

/// The time and cycles between two packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// The time after the packets so far; 0 if unknown.
    pub(super) now: u64,
    pub(super) flow: u64,
    tsc: u64,
    crystal: Option<Crystal>,
    cycles: Cycles,
    /// The last CBR packet; 0 without one.
    pub(super) ratio: u8,
    pub(super) last_ratio: u8,
    follows_cyc: bool,
    pub(super) total: Total,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    pub(super) cycles: u64,
    /// From CYC packets; else estimated.
    pub(super) is_exact: bool,
    is_on: bool,
    /// The time at which the estimate begins, and the cycles by then.
    base: (u64, u64),
    /// Cycles per tick of the time-stamp counter.
    per_tick: f64,
}

impl Total {
    fn begin(&mut self, now: u64) {
        self.is_on = true;
        if !self.is_exact {
            self.base = (now, self.cycles);
        }
    }

    fn ratio(&mut self, ratio: u8, now: u64, config: &Config) {
        self.per_tick = match config.tsc_ratio {
            0 => 0.0,
            tsc_ratio => f64::from(ratio) / f64::from(tsc_ratio),
        };
        if self.is_on {
            self.begin(now);
        }
    }

    fn estimate(&mut self, now: u64) {
        let (then, cycles) = self.base;
        if self.is_on && !self.is_exact && now > then {
            let estimated = (now - then) as f64 * self.per_tick + cycles as f64;
            self.cycles = self.cycles.max(estimated as u64);
        }
    }

    /// True if the packet, which has been read and may have set the time, gives a new total.
    pub(super) fn is_updated_by(&self, packet: &Packet, sets_time: bool) -> bool {
        match packet {
            Packet::Cyc(_) => true,
            Packet::Mtc(_) => sets_time && !self.is_exact,
            Packet::Tma { .. } => !self.is_exact,
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Crystal {
    /// The time when bits 0 to `mtc_period` - 1 of the clock were last 0 before the TMA packet.
    base: u64,
    /// Ticks of the crystal clock from `base` to the last MTC packet.
    ticks: u64,
    /// The last MTC value, without bits 16 and up if it comes from a TMA packet.
    last: u8,
    is_complete: bool,
}

#[derive(Clone, Debug, Default)]
struct Cycles {
    /// The time from which they are counted; 0 if unknown. It comes from an MTC or TSC packet after a CYC
    /// packet, or from a change of the ratio.
    base: u64,
    count: u64,
    /// Ticks of the time-stamp counter per cycle, measured between two MTC packets.
    measured: Option<f64>,
}

impl Crystal {
    fn advance(&mut self, mtc: u8, config: &Config) -> u64 {
        let period = u32::from(config.mtc_period & 15);
        if period > 8 && !self.is_complete {
            // Choose the upper bits that make the least difference; the MTC packet is later than the TMA.
            let first_missing = 1_u32 << (16 - period);
            let known = u32::from(self.last) & (first_missing - 1);
            let last = known | (u32::from(mtc) & !(first_missing - 1));
            let earlier = if last >= u32::from(mtc) { last.wrapping_sub(first_missing) } else { last };
            self.last = earlier as u8;
        }
        self.is_complete = true;
        // The same value again means that all 8 bits wrapped around.
        let changes = match mtc.wrapping_sub(self.last) {
            0 => 256,
            changes => u64::from(changes),
        };
        self.ticks = self.ticks.wrapping_add(changes << period);
        self.last = mtc;
        self.base.wrapping_add(to_tsc(self.ticks, config).unwrap_or(0))
    }
}

/// Converts ticks of the crystal clock to the time-stamp counter, rounded down.
fn to_tsc(ticks: u64, config: &Config) -> Option<u64> {
    let (numerator, denominator) = config.tsc_per_ctc.filter(|ratio| ratio.0 != 0 && ratio.1 != 0)?;
    Some((u128::from(ticks) * u128::from(numerator) / u128::from(denominator)) as u64)
}

fn nearest(low: u64, near: u64) -> u64 {
    const HALF: u64 = 1 << 55;
    let value = (near & (0xff << 56)) | low;
    match value.abs_diff(near) {
        0..=HALF => value,
        _ if value < near => value.wrapping_add(2 * HALF),
        _ => value.wrapping_sub(2 * HALF),
    }
}

impl Clock {
    /// Processes a packet; `packets` are those after it. True if it set the time.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        packet: &Packet,
        packets: &Packets<'_>,
        is_in_psb: bool,
        config: &Config,
    ) -> bool {
        let follows_cyc = self.follows_cyc;
        let sets_time = match *packet {
            Packet::Tnt { .. } | Packet::Tip(_) => false,
            Packet::Other => return false,
            Packet::Tsc(low) => self.tsc(low, follows_cyc, config),
            Packet::Tma { ctc, fast } => {
                // A TMA outside a PSB+, while code is traced, comes after lost time.
                match is_in_psb || !self.total.is_on {
                    true => self.total.estimate(self.now),
                    false => self.total.begin(self.now),
                }
                self.tma(ctc, fast, config)
            }
            Packet::Mtc(mtc) => self.mtc(mtc, follows_cyc, packets, config),
            Packet::Cyc(count) => self.cyc(count, config),
            Packet::Cbr(ratio) => {
                if ratio != self.ratio {
                    self.ratio = ratio;
                    self.cycles = Cycles { base: self.now, count: 0, ..self.cycles };
                    self.total.ratio(ratio, self.now, config);
                }
                false
            }
            Packet::TraceStop | Packet::Bad => {
                self.crystal = None;
                self.total.is_on &= *packet != Packet::Bad;
                false
            }
            Packet::Pge(_) => {
                self.total.begin(self.now);
                false
            }
            Packet::Pgd(_) => {
                self.total.is_on = false;
                false
            }
            _ => false,
        };
        self.follows_cyc = matches!(packet, Packet::Cyc(_));
        sets_time
    }

    #[inline(always)]
    pub(super) fn branches(&mut self) {
        self.follows_cyc = false;
        self.flow = self.now;
    }

    /// A PSB+ says that code is traced.
    pub(super) fn set_on(&mut self) {
        self.total.is_on = true;
    }

    fn tsc(&mut self, low: u64, follows_cyc: bool, config: &Config) -> bool {
        self.crystal = None;
        if self.now == 0 {
            self.tsc = nearest(low, config.near);
            self.now = self.tsc;
        } else {
            self.tsc = nearest(low, self.now);
            let is_late = self.tsc < self.now && self.now - self.tsc < SLIP;
            self.now = if is_late { self.now } else { self.tsc };
        }
        if follows_cyc {
            self.cycles = Cycles { base: self.now, ..Cycles::default() };
        }
        true
    }

    fn tma(&mut self, ctc: u16, fast: u16, config: &Config) -> bool {
        let period = u32::from(config.mtc_period & 15);
        let below = u64::from(ctc) & ((1 << period) - 1);
        self.crystal = to_tsc(below, config).map(|below| Crystal {
            base: self.tsc.wrapping_sub(u64::from(fast)).wrapping_sub(below),
            ticks: 0,
            last: (ctc >> period) as u8,
            is_complete: false,
        });
        false
    }

    fn mtc(&mut self, mtc: u8, follows_cyc: bool, packets: &Packets<'_>, config: &Config) -> bool {
        let Some(crystal) = &mut self.crystal else { return false };
        self.now = self.now.max(crystal.advance(mtc, config));
        self.total.estimate(self.now);
        if follows_cyc {
            let measured = self.measure(packets.clone(), config);
            self.cycles = Cycles { base: self.now, count: 0, measured };
        }
        true
    }

    fn cyc(&mut self, count: u64, config: &Config) -> bool {
        self.total.is_exact = true;
        if self.total.is_on {
            self.total.cycles = self.total.cycles.wrapping_add(count);
        }
        let cycles = &mut self.cycles;
        cycles.count = cycles.count.wrapping_add(count);
        let by_ratio = (self.ratio != 0).then(|| f64::from(config.tsc_ratio) / f64::from(self.ratio));
        let Some(length) = cycles.measured.or(by_ratio).filter(|_| cycles.base != 0) else { return false };
        self.now = self.now.max((cycles.base as f64 + cycles.count as f64 * length) as u64);
        true
    }

    /// Ticks of the time-stamp counter per cycle, from here to the next MTC packet that follows a CYC packet.
    /// The next measurement begins there, so each packet is read once.
    fn measure(&self, mut packets: Packets<'_>, config: &Config) -> Option<f64> {
        let mut crystal = self.crystal.clone()?;
        let (mut count, mut ratio, mut now, mut follows_cyc) = (0_u64, 0, self.now, false);
        let then = loop {
            let packet = packets.next()?;
            match packet {
                Packet::Mtc(mtc) => {
                    let then = crystal.advance(mtc, config);
                    if then < now {
                        return None;
                    }
                    if follows_cyc {
                        break then;
                    }
                    now = then;
                }
                Packet::Cyc(cycles) => count = count.wrapping_add(cycles),
                Packet::Cbr(new) if ratio != 0 && new != ratio => return None,
                Packet::Cbr(new) => ratio = new,
                Packet::Tsc(_) | Packet::Tma { .. } | Packet::Pgd(_) | Packet::TraceStop => return None,
                Packet::Exstop { .. } | Packet::Mwait(_) | Packet::Pwre(_) | Packet::Pwrx(_) => return None,
                Packet::Overflow | Packet::Bad | Packet::Cut => return None,
                _ => {}
            }
            if packet != Packet::Other {
                follows_cyc = matches!(packet, Packet::Cyc(_));
            }
        };
        if count == 0 {
            return None;
        }
        let ratio = if ratio == 0 { self.ratio } else { ratio };
        let measured = (then - self.now) as f64 / count as f64;
        let by_ratio = f64::from(config.tsc_ratio) / f64::from(ratio);
        let is_too_long = ratio != 0 && measured > by_ratio && measured / by_ratio > TOO_LONG;
        (!is_too_long).then_some(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Trace;

    fn times(config: &Config, bytes: &[u8]) -> Vec<u64> {
        let trace = Trace::new(vec![bytes], Vec::new());
        let mut packets = Packets::new(&trace, 0, config.errata);
        let (mut clock, mut times) = (Clock::default(), Vec::new());
        while let Some(packet) = packets.next() {
            if clock.read(&packet, &packets, false, config) {
                times.push(clock.now);
            }
        }
        times
    }

    fn tsc(value: u64) -> Vec<u8> {
        [&[0x19], &value.to_le_bytes()[..7]].concat()
    }

    #[test]
    fn the_upper_bits_of_the_counter_come_from_a_nearby_value() {
        let config = Config { near: (7 << 56) + 5, ..Config::default() };
        assert_eq!(times(&config, &tsc(9)), [(7 << 56) + 9]);
        assert_eq!(times(&config, &tsc((1 << 56) - 1)), [(7 << 56) - 1]);
        let bytes = [tsc(0x2_0000), tsc(0x1_0001), tsc(1)].concat();
        assert_eq!(
            times(&Config::default(), &bytes),
            [0x2_0000, 0x2_0000, 1],
            "a late packet, and time going back"
        );
    }

    #[test]
    fn the_crystal_clock_advances_the_counter() {
        let config = Config { mtc_period: 4, tsc_per_ctc: Some((5, 2)), ..Config::default() };
        // At tick 3 of 16 of the crystal clock, 2 ticks after it.
        let tma = [2, 0x73, 0x13, 0, 0, 2, 0];
        let base = 1000 - 2 - 7;
        let bytes = [&tsc(1000)[..], &tma, &[0x59, 2, 0x59, 4, 0x59, 4]].concat();
        assert_eq!(times(&config, &bytes), [1000, base + 40, base + 120, base + 120 + 256 * 40]);
        let unknown = Config { tsc_per_ctc: None, ..config };
        assert_eq!(times(&unknown, &bytes), [1000]);
    }

    #[test]
    fn missing_bits_of_a_tma_packet_come_from_the_next_mtc_packet() {
        let config = Config { mtc_period: 12, tsc_per_ctc: Some((1, 1)), ..Config::default() };
        // 4 bits of the 8 are known: 0xf, then the MTC packet says 0x31.
        let bytes = [&tsc(1 << 20)[..], &[2, 0x73, 0, 0xf0, 0, 0, 0], &[0x59, 0x31]].concat();
        assert_eq!(times(&config, &bytes), [1 << 20, (1 << 20) + (2 << 12)]);
    }

    #[test]
    fn cycles_are_measured_between_two_mtc_packets_or_taken_by_the_ratio() {
        let config = Config { mtc_period: 4, tsc_per_ctc: Some((10, 1)), tsc_ratio: 30, ..Config::default() };
        let start = [&tsc(1000)[..], &[2, 3, 20, 0, 2, 0x73, 0, 0, 0, 0, 0]].concat();
        let cyc = |count: u8| count << 3 | 3;
        let bytes =
            [&start[..], &[cyc(1), 0x59, 1, cyc(10), cyc(30), cyc(31), cyc(29), 0x59, 2, cyc(2)]].concat();
        // 160 ticks for 100 cycles, then 1.5 for one.
        assert_eq!(times(&config, &bytes), [1000, 1001, 1160, 1176, 1224, 1273, 1320, 1320, 1323]);
        let asleep = [&start[..], &[cyc(1), 0x59, 1, cyc(10), 0x59, 2]].concat();
        assert_eq!(times(&config, &asleep), [1000, 1001, 1160, 1175, 1320]);
    }

    /// Erratum SKL168.
    #[test]
    fn a_cycle_packet_lost_before_a_psb_does_not_change_the_length_of_a_cycle() {
        let config = Config { mtc_period: 4, tsc_per_ctc: Some((10, 1)), tsc_ratio: 30, ..Config::default() };
        let start = [&tsc(1000)[..], &[2, 3, 20, 0, 2, 0x73, 0, 0, 0, 0, 0]].concat();
        let cyc = |count: u8| count << 3 | 3;
        // 20 cycles are missing before the second time, which is 205 ticks after the first.
        let psb = [&[2, 0x82].repeat(8)[..], &tsc(1205), &[2, 0x73, 20, 0, 0, 5, 0, 2, 0x23]].concat();
        let before = [cyc(1), 0x59, 1, cyc(10)];
        let after = [cyc(10), cyc(31), cyc(31), 0x59, 2, cyc(2)];
        let bytes = [&start[..], &before, &psb, &after].concat();
        assert_eq!(times(&config, &bytes), [1000, 1001, 1160, 1175, 1205, 1205, 1236, 1283, 1320, 1323]);
    }
}
