//! The offset of a guest that misjudges the rate of its clock: offset and rate at once.
//!
//! Pairs of an offset and a rate are taken together in cells, and a cell is given up as soon as too many events would lie in gaps with every pair
//! of it; what is left is halved until it is small. The long gaps of VCPUs that rest rule out nearly all cells while these are still few. (A grid of
//! rates with a search for the offset at each takes thousands of such searches.)

use super::{EDGE, EVENTS_MIN, Event, Fit, NEAR, Plateau, SAMPLE, SCORE_MIN, STEP, Schedule};
use super::{clamp, score, thinned, windows};

/// Rates that are tried, from and to, as shares of what the guest thinks: what a hurried calibration makes of a clock, and what QEMU's TCG does, which
/// has made a guest miss by 2.8.
const RATES: [(f64, f64); 2] = [(0.997, 1.003), (0.25, 4.0)];
/// The guest's time in which both are looked for, ns: the longer, the surer, but clocks drift.
const WINDOW: i64 = 16_000_000_000;
/// Events that decide about a cell.
const DECIDE: usize = 1024;
/// So far the pairs of a cell may be apart when it is small, ns.
const SMALL: f64 = 50_000.0;
/// An event so near to a span may have been in it, ns.
const SLACK: i64 = 10_000;
/// Looks at an event in a cell: a second or two.
const LOOKS_MAX: usize = 1 << 27;
/// With more small cells than this there is no clear answer.
const CELLS_MAX: usize = 4096;
/// In the end so many of all events must be where they belong.
const SHARE_MIN: f64 = 0.97;

/// Pairs of a rate, by which the guest's time is multiplied, and a time on the host at which the middle of the guest's window is.
#[derive(Clone, Copy)]
struct Cell {
    rate: f64,
    rates: f64,
    at: i64,
    reach: f64,
}

impl Cell {
    /// Both halves: those of its times while they are long, so that what is near the middle decides, then of its rates, then of what is larger;
    /// `length` is how far the window reaches from its middle.
    fn halves(self, length: f64, long: f64) -> [Cell; 2] {
        if self.reach > long || self.rates * length < self.reach {
            let reach = self.reach / 2.0;
            [-reach, reach].map(|by| Cell { at: self.at + by as i64, reach, ..self })
        } else {
            let rates = self.rates / 2.0;
            [-rates, rates].map(|by| Cell { rate: self.rate + by, rates, ..self })
        }
    }
}

/// When a VCPU did certainly not run.
struct Rests {
    /// From and to, ascending.
    rests: Vec<(i64, i64)>,
    /// For each of as many steps of time, the first rest that ends in it or behind it: a binary search would take longer than all else.
    first: Vec<u32>,
    begin: i64,
    step: i64,
}

impl Rests {
    fn new(rests: Vec<(i64, i64)>, begin: i64, end: i64) -> Rests {
        let steps = rests.len() as i64 * 8 + 1;
        let step = (end - begin) / steps + 1;
        let first = (0..steps).map(|number| {
            let at = begin + number * step;
            rests.partition_point(|rest| rest.1 < at) as u32
        });
        Rests { first: first.collect(), rests, begin, step }
    }

    /// Whether one of them holds all of this.
    fn hold(&self, from: i64, to: i64) -> bool {
        let number = usize::try_from((to - self.begin) / self.step).unwrap_or(0);
        let first = self.first.get(number).map_or(self.rests.len(), |&first| first as usize);
        let mut rests = self.rests.get(first..).unwrap_or_default().iter();
        rests.find(|rest| rest.1 >= to).is_some_and(|rest| rest.0 <= from)
    }
}

impl Schedule<'_> {
    /// Offset and rate, if one pair of them is right beyond doubt.
    pub(super) fn fit_with_rate(&self, events: &[Event]) -> Option<Fit> {
        let rests: Vec<Rests> = self.spans.iter().map(|spans| self.rests(spans)).collect();
        let mut looks = LOOKS_MAX;
        let windows = windows(events, WINDOW);
        let tries = RATES.iter().flat_map(|rates| windows.iter().map(move |window| (*rates, *window)));
        tries.into_iter().find_map(|(rates, window)| {
            let (middle, cells) = self.small_cells(window, rates, &rests, &mut looks)?;
            let (found, rate) = self.best_cell(window, middle, &cells)?;
            // Back to the guest's moment 0.
            let drift = rate - 1.0;
            let offset = found.middle - middle - (middle as f64 * drift) as i64;
            let fit = self.refine(events, window, Fit { offset, drift, ..Fit::default() }, true);
            let sure = fit.judged >= EVENTS_MIN as u64 && fit.inside as f64 >= fit.judged as f64 * SHARE_MIN;
            sure.then_some(fit)
        })
    }

    fn rests(&self, spans: &[(u64, u64)]) -> Rests {
        let mut rests = Vec::new();
        let mut end = self.from;
        for (from, to) in spans.iter().map(|&(from, to)| (clamp(from), clamp(to))) {
            rests.push((end + SLACK, from - SLACK));
            end = end.max(to);
        }
        rests.push((end + SLACK, self.to - SLACK));
        rests.retain(|(from, to)| from < to);
        // Of a VCPU nobody saw nothing is known.
        Rests::new(if spans.is_empty() { Vec::new() } else { rests }, self.from, self.to)
    }

    /// A moment amid the window, and all cells that are left when they are small; `None` if those are too many, or looking takes too long.
    fn small_cells(
        &self,
        window: &[Event],
        (slowest, fastest): (f64, f64),
        rests: &[Rests],
        looks: &mut usize,
    ) -> Option<(i64, Vec<Cell>)> {
        // Where events are dense.
        let middle = window.get(window.len() / 2)?.at;
        let mut events: Vec<(i64, &Rests)> = thinned(window, DECIDE)
            .iter()
            .filter_map(|event| Some((event.at - middle, rests.get(event.vcpu)?)))
            .collect();
        // The nearer an event is to the middle, the less the rate matters.
        events.sort_by_key(|(at, _)| at.abs());
        let length = events.last()?.0.abs().max(1) as f64;
        let mut lengths: Vec<i64> =
            rests.iter().flat_map(|rests| &rests.rests).map(|(from, to)| to - from).collect();
        lengths.sort_unstable();
        let half = lengths.iter().sum::<i64>() / 2;
        let mut sum = 0;
        let common = lengths.iter().find(|&&length| {
            sum += length;
            sum >= half
        });
        let long = *common? as f64 / 4.0;
        let mut ahead = vec![Cell {
            rate: (slowest + fastest) / 2.0,
            rates: (fastest - slowest) / 2.0,
            at: self.from + (self.to - self.from) / 2,
            reach: (self.to - self.from) as f64 / 2.0,
        }];
        let mut small = Vec::new();
        while let Some(cell) = ahead.pop() {
            if !self.may_be(&cell, &events, long, looks) {
                continue;
            }
            *looks = looks.checked_sub(1)?;
            if cell.reach + cell.rates * length > SMALL {
                ahead.extend(cell.halves(length, long));
            } else if small.len() < CELLS_MAX {
                small.push(cell);
            } else {
                return None;
            }
        }
        Some((middle, small))
    }

    /// Whether few enough events lie in gaps, with some pair of the cell, and enough at times that were recorded, as far as one can tell.
    fn may_be(&self, cell: &Cell, events: &[(i64, &Rests)], long: f64, looks: &mut usize) -> bool {
        let (mut out, mut elsewhere) = (0, 0);
        for (number, (at, rests)) in events.iter().enumerate() {
            let reach = cell.reach + cell.rates * at.abs() as f64;
            // Hardly any gap is so long.
            if reach > 4.0 * long {
                break;
            }
            *looks = looks.saturating_sub(1);
            let there = cell.at + (*at as f64 * cell.rate) as i64;
            let (from, to) = (there - reach as i64, there + reach as i64);
            out += usize::from(rests.hold(from, to));
            elsewhere += usize::from(to < self.from || from >= self.to);
            if out > 12 + number / 64 || elsewhere > 16 + number / 2 {
                return false;
            }
        }
        true
    }

    /// What is right beyond doubt, and its rate.
    fn best_cell(&self, window: &[Event], middle: i64, cells: &[Cell]) -> Option<(Plateau, f64)> {
        let events: Vec<Event> = thinned(window, SAMPLE)
            .into_iter()
            .map(|event| Event { at: event.at - middle, ..event })
            .collect();
        let gaps = self.all_gaps();
        let mut judged: Vec<(f64, Plateau, f64)> = cells
            .iter()
            .map(|cell| {
                let found = self.plateau(&events, cell.at, cell.rate - 1.0, STEP + EDGE);
                (score(found.inside, found.judged, &gaps), found, cell.rate)
            })
            .collect();
        judged.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.middle.cmp(&b.1.middle)));
        let &(most, best, rate) = judged.first()?;
        let reach = events.iter().map(|event| event.at.abs()).max()? as f64;
        let is_other = |found: &Plateau, other: f64| {
            (found.middle - best.middle).abs() as f64 + (other - rate).abs() * reach > NEAR as f64
        };
        let second = judged.iter().find(|(_, found, other)| is_other(found, *other));
        let behind = second.map_or(0.0, |second| second.0.max(0.0));
        (most >= behind + SCORE_MIN).then_some((best, rate))
    }
}
