//! Finds offset and rate at once, for a guest that misjudges the rate of its clock.
//!
//! Pairs of an offset and a rate are grouped into cells. A cell is rejected as soon as too many events would
//! lie in gaps for every pair of it; the others are halved until they are small. The long gaps of idle VCPUs
//! exclude nearly all cells while there are still few. (A grid of rates with a search for the offset at each
//! would take thousands of such searches.)

use super::{EDGE, EVENTS_MIN, Event, Fit, NEAR, Plateau, SAMPLE, SCORE_MIN, STEP, Schedule};
use super::{clamp, score, thinned, windows};

/// The range of rates, relative to the guest's own: the results of a hasty clock calibration, and of QEMU's
/// TCG, where a guest was wrong by a factor of 2.8.
const RATES: [(f64, f64); 2] = [(0.997, 1.003), (0.25, 4.0)];
/// The part of the guest's time that is examined, ns: longer is safer, but clocks drift.
const WINDOW: i64 = 16_000_000_000;
/// The number of events that decide about a cell.
const DECIDE: usize = 1024;
/// The largest distance between the pairs of a small cell, ns.
const SMALL: f64 = 50_000.0;
/// An event this close to a span may have been inside it, ns.
const SLACK: i64 = 10_000;
/// Maximum number of tests of an event in a cell: a second or two, also in the unoptimised test program.
const LOOKS_MAX: usize = if cfg!(test) { 1 << 25 } else { 1 << 27 };
/// Maximum number of small cells; more mean that there is no clear answer.
const CELLS_MAX: usize = 4096;
/// The fraction of all events that must be inside spans in the end.
const SHARE_MIN: f64 = 0.97;

/// Pairs of a rate, which multiplies the guest's time, and a host time for the middle of the guest's window.
#[derive(Clone, Copy)]
struct Cell {
    rate: f64,
    rates: f64,
    at: i64,
    reach: f64,
}

impl Cell {
    /// Halves the cell: first its times, while they are long, so that events near the middle decide; then its
    /// rates; then the larger of the two. `length` is the distance from the window's middle to its end.
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

struct Rests {
    /// Start and end, ascending.
    rests: Vec<(i64, i64)>,
    /// For each step of time, the first rest that ends in it or later: a binary search would take too long.
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

    fn covers(&self, from: i64, to: i64) -> bool {
        let number = usize::try_from((to - self.begin) / self.step).unwrap_or(0);
        let first = self.first.get(number).map_or(self.rests.len(), |&first| first as usize);
        let mut rests = self.rests.get(first..).unwrap_or_default().iter();
        rests.find(|rest| rest.1 >= to).is_some_and(|rest| rest.0 <= from)
    }
}

impl Schedule<'_> {
    /// Offset and rate, if one pair is right beyond doubt.
    pub(super) fn fit_with_rate(&self, events: &[Event]) -> Option<Fit> {
        let rests: Vec<Rests> = self.spans.iter().map(|spans| self.rests(spans)).collect();
        let mut looks = LOOKS_MAX;
        let windows = windows(events, WINDOW);
        let tries = RATES.iter().flat_map(|rates| windows.iter().map(move |window| (*rates, *window)));
        tries.into_iter().find_map(|(rates, window)| {
            let (middle, cells) = self.small_cells(window, rates, &rests, &mut looks)?;
            let (found, rate) = self.best_cell(window, middle, &cells)?;
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
        // Nothing is known about a VCPU that was not seen.
        Rests::new(if spans.is_empty() { Vec::new() } else { rests }, self.from, self.to)
    }

    /// A time in the window, and the remaining small cells; `None` if these or the steps are too many.
    fn small_cells(
        &self,
        window: &[Event],
        (slowest, fastest): (f64, f64),
        rests: &[Rests],
        looks: &mut usize,
    ) -> Option<(i64, Vec<Cell>)> {
        // In the densest part.
        let middle = window.get(window.len() / 2)?.at;
        let mut events: Vec<(i64, &Rests)> = thinned(window, DECIDE)
            .iter()
            .filter_map(|event| Some((event.at - middle, rests.get(event.vcpu)?)))
            .collect();
        // The rate matters least for events near the middle.
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

    /// True if, for some pair of the cell, few enough events lie in gaps, and enough lie in recorded times.
    fn may_be(&self, cell: &Cell, events: &[(i64, &Rests)], long: f64, looks: &mut usize) -> bool {
        let (mut out, mut elsewhere) = (0, 0);
        for (number, (at, rests)) in events.iter().enumerate() {
            let reach = cell.reach + cell.rates * at.abs() as f64;
            // Hardly any gap is this long.
            if reach > 4.0 * long {
                break;
            }
            *looks = looks.saturating_sub(1);
            let there = cell.at + (*at as f64 * cell.rate) as i64;
            let (from, to) = (there - reach as i64, there + reach as i64);
            out += usize::from(rests.covers(from, to));
            elsewhere += usize::from(to < self.from || from >= self.to);
            if out > 12 + number / 64 || elsewhere > 16 + number / 2 {
                return false;
            }
        }
        true
    }

    /// The result that is right beyond doubt, and its rate.
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
        let runner_up = second.map_or(0.0, |second| second.0.max(0.0));
        (most >= runner_up + SCORE_MIN).then_some((best, rate))
    }
}
