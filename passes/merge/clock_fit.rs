//! Finds the relation of a guest's clock to the host's by the schedule: guest events can only happen while
//! the thread of their VCPU runs on the host, and the host's switch records show when it does. Only near the
//! right offset do (almost) all of the guest's events fall into those spans.

mod rates;

use std::fmt;

use perfx_pipeline::{counted, list, signed_seconds};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Event {
    pub(crate) at: i64,
    pub(crate) vcpu: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Fit {
    /// The host's time at the guest's time 0, ns.
    pub(crate) offset: i64,
    /// The fraction by which the host's clock runs faster than assumed.
    pub(crate) drift: f64,
    pub(crate) inside: u64,
    pub(crate) judged: u64,
    /// The largest possible error of the offset at any event, ns.
    pub(crate) error: i64,
    pub(crate) second: Option<Other>,
    /// The guest's time range in which it was found, ns.
    pub(crate) known: (i64, i64),
}

/// An offset, the number of events that could be judged, and of those inside a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Other {
    pub(crate) offset: i64,
    pub(crate) inside: u64,
    pub(crate) judged: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// The host's recording does not show when the VCPUs ran.
    NoSpans,
    TooFew(usize),
    /// The VCPUs ran nearly all the time, or never long enough.
    NoGaps,
    /// The guest's clock advances in steps of this many ns.
    Coarse(i64),
    Ambiguous {
        best: Option<Other>,
        second: Option<Other>,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |found: &Other| {
            format!("at {} {} of {}", signed_seconds(found.offset), found.inside, found.judged)
        };
        match self {
            Unfit::NoSpans => f.write_str(
                "the host's recording does not show when its VCPUs ran (record the host with --switch-events)",
            ),
            Unfit::TooFew(events) => {
                let events = counted(*events as u64, "record", "records");
                write!(f, "{events} with a time and a VCPU are too few (record the guest with -a, for longer)")
            }
            Unfit::NoGaps => f.write_str(
                "its VCPUs ran, or idled, nearly all the time the host was recorded, so any offset fits (record a \
                 guest that is sometimes idle)",
            ),
            Unfit::Coarse(step) => {
                let ms = *step as f64 / 1e6;
                write!(
                    f,
                    "its clock only advances every {ms:.1} ms, as one that counts jiffies does, and VCPUs run for less than that (give the guest a \
                     finer clock: kvm-clock, or a TSC that its kernel trusts)"
                )
            }
            Unfit::Ambiguous { best, second } => {
                let places = [best, second].into_iter().flatten().filter(|place| place.judged > 0);
                write!(
                    f,
                    "no offset is clearly the best one: share of events while their VCPU ran [{}]; do both \
                     recordings cover the same seconds, and this process? (record longer, all of the guest and all of its VCPU threads, with --switch-events)",
                    list(places.map(text))
                )
            }
        }
    }
}

/// Ignored at both edges of a gap, because the coarse search may be off by this much, ns.
const EDGE: i64 = 48_000;
/// The step of the coarse search, ns: half of it is less than an edge.
const STEP: i64 = 64_000;
/// The part of the guest in the coarse search, ns: a drift of 20 ppm makes 40 µs in it.
const WINDOW: i64 = 2_000_000_000;
/// The number of events examined first, and the maximum number of offsets examined closely.
const FIRST: usize = 64;
const LOOKS_MAX: usize = 1 << 24;
/// The number of windows to try, and of events in each.
const WINDOWS: usize = 6;
const SAMPLE: usize = 4096;
const EVENTS_MIN: usize = 100;
const BITS_MAX: i64 = 1 << 26;
/// The share of events outside spans although the offset is right.
const ASTRAY: f64 = 0.005;
const CANDIDATES: usize = 16;
const DRIFTS: i32 = 32;
const FINE: usize = 8192;
/// The offset must hold for each of this many parts.
const PARTS: usize = 32;
/// A clock with such steps, ns, is too coarse; a jiffy is 1 ms or more.
const COARSE: i64 = 500_000;

/// When one VCPU certainly did not run, in slots.
struct Gaps {
    words: Vec<u64>,
    /// Log likelihood ratios of an event inside and outside spans.
    inside: f32,
    outside: f32,
}

pub(crate) struct Schedule<'a> {
    /// When each VCPU ran: (in, out) in ns, ascending.
    spans: Vec<&'a [(u64, u64)]>,
    /// The windows of time that the spans cover completely, ns, ascending, and their total range.
    pub(crate) covered: Vec<(i64, i64)>,
    from: i64,
    to: i64,
}

impl Schedule<'_> {
    /// `spans` must be complete in the windows `covered`.
    pub(crate) fn new(spans: Vec<&[(u64, u64)]>, covered: Vec<(i64, i64)>) -> Schedule<'_> {
        let from = covered.first().map_or(0, |window| window.0);
        let to = covered.last().map_or(0, |window| window.1);
        Schedule { spans, covered, from, to }
    }

    fn covers(&self, from: i64, to: i64) -> bool {
        let next = self.covered.partition_point(|window| window.1 <= to);
        self.covered.get(next).is_some_and(|window| window.0 <= from)
    }

    pub(crate) fn is_enough(events: &[Event]) -> bool {
        events.len() >= EVENTS_MIN
    }

    /// Finds the offset for ascending events. Without `drifts`, both clocks have the same rate.
    pub(crate) fn fit(&self, events: &[Event], drifts: bool) -> Result<Fit, Unfit> {
        if self.spans.iter().all(|spans| spans.is_empty()) || self.to <= self.from {
            return Err(Unfit::NoSpans);
        }
        if !Schedule::is_enough(events) {
            return Err(Unfit::TooFew(events.len()));
        }
        if let Some(step) = coarse_step(events) {
            return Err(Unfit::Coarse(step));
        }
        let (slot, gaps) = (self.slot(), self.all_gaps());
        if gaps.iter().all(|gaps| gaps.outside == 0.0) {
            return Err(Unfit::NoGaps);
        }
        let mut best = None;
        for window in windows(events, WINDOW) {
            let found = self.candidates(window, &gaps, slot);
            let judged = self.judge(window, &found, &gaps);
            match judged {
                Ok((offset, second)) => {
                    let near = Fit { offset, second, ..Fit::default() };
                    let fit = self.refine(events, window, near, drifts);
                    if fit.inside as f64 >= fit.judged as f64 * SHARE_MIN {
                        return Ok(fit);
                    }
                    let Fit { offset, inside, judged, .. } = fit;
                    let near = Some(Other { offset, inside, judged });
                    best = best.or(Some(Unfit::Ambiguous { best: near, second: None }));
                }
                Err(unfit) => best = best.or(Some(unfit)),
            }
        }
        let with_rate = if drifts { self.fit_with_rate(events) } else { None };
        with_rate.ok_or(best.unwrap_or(Unfit::TooFew(0)))
    }

    fn all_gaps(&self) -> Vec<Gaps> {
        let slot = self.slot();
        self.spans.iter().map(|spans| self.gaps(spans, slot)).collect()
    }

    fn slot(&self) -> i64 {
        let all = (self.to - self.from).saturating_mul(self.spans.len() as i64);
        (all / BITS_MAX).max(1 << 14)
    }

    fn gaps(&self, spans: &[(u64, u64)], slot: i64) -> Gaps {
        let slots = (self.to - self.from) / slot + 1;
        let mut gaps = Gaps { words: vec![0; slots as usize / 64 + 1], inside: 0.0, outside: 0.0 };
        let mut set = 0u64;
        let mut gap = |from: i64, to: i64| {
            // Slots completely inside the gap.
            let first = (from + EDGE - self.from + slot - 1).div_euclid(slot).max(0);
            let last = (to - EDGE - self.from).div_euclid(slot).min(slots);
            for at in first..last {
                gaps.words[at as usize / 64] |= 1 << (at % 64);
                set += 1;
            }
        };
        if spans.is_empty() {
            return gaps;
        }
        let mut end = self.from;
        for &(from, to) in spans {
            let (from, to) = (clamp(from), clamp(to));
            if from - end > 2 * EDGE {
                gap(end, from.min(self.to));
            }
            end = end.max(to);
        }
        if self.to - end > 2 * EDGE {
            gap(end, self.to);
        }
        let share = set as f64 / slots as f64;
        if share > 0.001 && share < 0.999 {
            gaps.inside = ((1.0 - ASTRAY) / (1.0 - share)).ln() as f32;
            gaps.outside = (ASTRAY / share).ln().min(0.0) as f32;
        }
        gaps
    }

    /// The score of an offset; stops early if it does not fit.
    fn score(&self, events: &[Event], offset: i64, gaps: &[Gaps], slot: i64) -> f32 {
        let mut score = 0.0f32;
        for event in events {
            let at = event.at.saturating_add(offset);
            if at < self.from || at >= self.to {
                continue;
            }
            let Some(gaps) = gaps.get(event.vcpu) else { continue };
            let number = ((at - self.from) / slot) as usize;
            let in_gap = gaps.words[number / 64] >> (number % 64) & 1 == 1;
            score += if in_gap { gaps.outside } else { gaps.inside };
            if score < -40.0 {
                return score;
            }
        }
        score
    }

    /// Offsets, ascending, with few of the first events in gaps. 64 offsets, a slot apart, are tested at a
    /// time, one bit each; each stands for those up to the next one.
    fn plausible(
        &self,
        events: &[Event],
        from: i64,
        to: i64,
        gaps: &[Gaps],
        slot: i64,
    ) -> impl Iterator<Item = i64> {
        let sure = |words: &Vec<u64>| -> Vec<u64> {
            (0..words.len()).map(|at| words[at] & bits(words, at as i64 * 64 + 1)).collect()
        };
        let sure: Vec<Vec<u64>> = gaps.iter().map(|gaps| sure(&gaps.words)).collect();
        let first_slot = |event: &Event| (event.at + from - self.from).div_euclid(slot);
        let places: Vec<(i64, usize)> = events
            .iter()
            .filter(|event| event.vcpu < sure.len())
            .take(FIRST)
            .map(|event| (first_slot(event), event.vcpu))
            .collect();
        let blocks = (0..).step_by(64).take_while(move |&block| from + block * slot < to);
        blocks
            .flat_map(move |block| {
                // The number of events in a gap, up to seven, for all offsets, in binary digits.
                let (mut ones, mut twos, mut fours, mut many) = (0u64, 0, 0, 0);
                for &(place, vcpu) in &places {
                    let one = bits(&sure[vcpu], place + block);
                    let two = ones & one;
                    ones ^= one;
                    let four = twos & two;
                    twos ^= two;
                    many |= fours & four;
                    fours ^= four;
                    if many == u64::MAX {
                        break;
                    }
                }
                (0..64).filter(move |at| many >> at & 1 == 0).map(move |at| from + (block + at) * slot)
            })
            .flat_map(move |offset| (offset..offset + slot).step_by(STEP as usize))
            .take(LOOKS_MAX)
    }

    /// The best offsets of a coarse search, best first, with a minimum distance.
    fn candidates(&self, window: &[Event], gaps: &[Gaps], slot: i64) -> Vec<i64> {
        let (Some(first), Some(last)) = (window.first(), window.last()) else { return Vec::new() };
        let events = shuffled(window, SAMPLE);
        let mut found: Vec<(f32, i64)> = Vec::new();
        for offset in self.plausible(&events, self.from - last.at, self.to - first.at, gaps, slot) {
            let score = self.score(&events, offset, gaps, slot);
            // An offset that fits partly may be the second best.
            if score <= 0.0 {
                continue;
            }
            match found.last_mut() {
                Some(near) if offset - near.1 <= NEAR => {
                    if score > near.0 {
                        *near = (score, offset);
                    }
                }
                _ => found.push((score, offset)),
            }
            if found.len() > 4096 {
                found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                found.truncate(CANDIDATES);
                found.sort_by_key(|&(_, offset)| offset);
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        found.truncate(CANDIDATES);
        found.into_iter().map(|(_, offset)| offset).collect()
    }

    /// The candidate that is right beyond doubt, and the runner-up.
    fn judge(
        &self,
        window: &[Event],
        candidates: &[i64],
        gaps: &[Gaps],
    ) -> Result<(i64, Option<Other>), Unfit> {
        let events = thinned(window, SAMPLE);
        let mut judged: Vec<(f64, Other)> = Vec::new();
        for &offset in candidates {
            let Plateau { middle: offset, inside, judged: all, .. } =
                self.plateau(&events, offset, 0.0, STEP + EDGE);
            judged.push((score(inside, all, gaps), Other { offset, inside, judged: all }));
        }
        judged.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.offset.cmp(&b.1.offset)));
        let second = judged.get(1).map(|second| second.1);
        let runner_up = judged.get(1).map_or(0.0, |second| second.0.max(0.0));
        match judged.first() {
            Some((score, best)) if *score >= runner_up + SCORE_MIN => Ok((best.offset, second)),
            best => Err(Unfit::Ambiguous { best: best.map(|best| best.1), second }),
        }
    }

    /// Extends the fit from the window to the whole recording, doubling its range each time.
    fn refine(&self, events: &[Event], window: &[Event], found: Fit, drifts: bool) -> Fit {
        let (Some(first), Some(last)) = (window.first(), window.last()) else { return found };
        self.follow(events, Fit { known: (first.at, last.at), ..found }, drifts)
    }

    /// Extends a fit found in a part of the guest's time.
    pub(crate) fn follow(&self, events: &[Event], found: Fit, drifts: bool) -> Fit {
        let (mut fit, (mut from, mut to)) = (found, found.known);
        loop {
            let start = events.partition_point(|event| event.at < from);
            let end = events.partition_point(|event| event.at <= to);
            let part = thinned(&events[start..end], FINE);
            // Moves the ends by a few µs per step.
            fit = self.turned(&part, fit, drifts, 8_000.0);
            if start == 0 && end == events.len() {
                let fine = self.turned(&part, fit, drifts, 1_000.0);
                let error = fit.error.max(fine.error) + self.worst_miss(events, &fine);
                let known = events.first().zip(events.last()).map_or(found.known, |(a, b)| (a.at, b.at));
                return Fit { error, known, ..fine };
            }
            let more = (to - from).max(WINDOW / 4);
            (from, to) = (from.saturating_sub(more), to.saturating_add(more));
        }
    }

    /// Tries drifts around that of `fit`, `step` ns apart at the ends of these events.
    fn turned(&self, events: &[Event], fit: Fit, drifts: bool, step: f64) -> Fit {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return fit };
        let (from, to) = (first.at, last.at);
        let middle = from + (to - from) / 2;
        // Times relative to the middle, where drift has no effect.
        let turned: Vec<Event> =
            events.iter().map(|event| Event { at: event.at - middle, ..*event }).collect();
        let there = fit.offset + middle + (middle as f64 * fit.drift) as i64;
        let step = step / (to - from).max(1) as f64;
        let steps = if drifts { DRIFTS } else { 0 };
        let tried = (-steps..=steps).map(|number| {
            let drift = fit.drift + f64::from(number) * step;
            (self.plateau(&turned, there, drift, STEP), drift)
        });
        // Among drifts with nearly the most events inside, the one with the widest margin.
        let tried: Vec<_> = tried.collect();
        let most = tried.iter().map(|(found, _)| found.inside).max().unwrap_or(0);
        let enough = most - most / 1000;
        let good = || tried.iter().filter(|(found, _)| found.inside >= enough);
        let Some(&(found, drift)) = good().max_by_key(|(found, _)| found.high - found.low) else {
            return fit;
        };
        // Any good drift may be the true one: the error is their distance at either end.
        let ends = [from - middle, to - middle];
        let apart = |(other, slope): &(Plateau, f64)| {
            let at_end = |end: i64| {
                let turned = (end as f64 * (slope - drift)) as i64;
                [other.low, other.high].map(|edge| (edge + turned - found.middle).abs()).into_iter().max()
            };
            ends.into_iter().filter_map(at_end).max()
        };
        Fit {
            // Relative to the guest's time 0 again.
            offset: found.middle - middle - (middle as f64 * drift) as i64,
            drift,
            inside: found.inside,
            judged: found.judged,
            error: good().filter_map(apart).max().unwrap_or(0),
            ..fit
        }
    }

    /// The largest distance of a part's best offset from the overall one: drift may be uneven.
    fn worst_miss(&self, events: &[Event], fit: &Fit) -> i64 {
        let miss = |part: &[Event]| {
            let middle = part.get(part.len() / 2)?.at;
            let turned: Vec<Event> = thinned(part, SAMPLE)
                .into_iter()
                .map(|event| Event { at: event.at - middle, ..event })
                .collect();
            let there = fit.offset + middle + (middle as f64 * fit.drift) as i64;
            let best = self.plateau(&turned, there, fit.drift, STEP);
            let enough = best.judged >= EVENTS_MIN as u64;
            enough.then(|| (best.low - there).max(there - best.high).max(0))
        };
        let length = (events.len() / PARTS).max(EVENTS_MIN);
        events.chunks(length).filter_map(miss).max().unwrap_or(0)
    }

    fn plateau(&self, events: &[Event], offset: i64, drift: f64, reach: i64) -> Plateau {
        let mut edges: Vec<(i64, i32)> = Vec::new();
        let mut judged = 0;
        for event in events {
            let at = event.at + offset + (event.at as f64 * drift) as i64;
            if !self.covers(at - reach, at + reach) {
                continue;
            }
            judged += 1;
            let Some(spans) = self.spans.get(event.vcpu) else { continue };
            let first = spans.partition_point(|&(_, out)| clamp(out) <= at - reach);
            for &(from, to) in spans.iter().skip(first) {
                let (from, to) = (clamp(from) - at, clamp(to) - at);
                if from >= reach {
                    break;
                }
                edges.push((from.max(-reach), 1));
                edges.push((to.min(reach), -1));
            }
        }
        edges.sort_unstable();
        let (mut levels, mut count, mut most) = (Vec::new(), 0i32, 0i32);
        for edges in edges.chunk_by(|a, b| a.0 == b.0) {
            count += edges.iter().map(|&(_, change)| change).sum::<i32>();
            most = most.max(count);
            levels.push((edges[0].0, count));
        }
        levels.push((reach, 0));
        // Slightly fewer count as equal, because of outliers.
        let enough = (most - (most / 500).max(1)).max(1);
        let (mut low, mut longest) = (None, (0, 0));
        for &(at, level) in &levels {
            match low {
                None if level >= enough => low = Some(at),
                Some(from) if level < enough => {
                    if at - from > longest.1 - longest.0 {
                        longest = (from, at);
                    }
                    low = None;
                }
                _ => {}
            }
        }
        let (low, high) = longest;
        Plateau {
            middle: offset + low + (high - low) / 2,
            low: offset + low,
            high: offset + high,
            inside: most.max(0) as u64,
            judged,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Plateau {
    middle: i64,
    low: i64,
    high: i64,
    inside: u64,
    judged: u64,
}

/// The log likelihood of this many events inside, compared with chance.
fn score(inside: u64, judged: u64, gaps: &[Gaps]) -> f64 {
    let gain = f64::from(gaps.iter().fold(0.0f32, |most, gaps| most.max(gaps.inside)));
    let cost = f64::from(gaps.iter().fold(0.0f32, |most, gaps| most.min(gaps.outside)));
    inside as f64 * gain + judged.max(1).saturating_sub(inside) as f64 * cost
}

/// Offsets closer than this are one answer, ns.
const NEAR: i64 = 1_000_000;
const SHARE_MIN: f64 = 0.90;
/// The required lead in log likelihood, far above chance because events are not independent.
const SCORE_MIN: f64 = 60.0;

fn clamp(time: u64) -> i64 {
    // Leaves room for sums.
    i64::try_from(time).unwrap_or(i64::MAX).min(1 << 62)
}

/// 64 bits from bit `at` on; zeros beyond both ends.
fn bits(words: &[u64], at: i64) -> u64 {
    let word =
        |number: i64| usize::try_from(number).ok().and_then(|number| words.get(number)).copied().unwrap_or(0);
    let (number, shift) = (at.div_euclid(64), at.rem_euclid(64));
    let low = word(number) >> shift;
    if shift == 0 { low } else { low | word(number + 1) << (64 - shift) }
}

/// Slices of this length, those with most events first.
fn windows(events: &[Event], length: i64) -> Vec<&[Event]> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Vec::new() };
    if last.at - first.at <= length {
        return vec![events];
    }
    let mut windows = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        let end = rest.partition_point(|event| event.at < first.at.saturating_add(length));
        let (window, later) = rest.split_at(end);
        if window.len() >= EVENTS_MIN {
            windows.push(window);
        }
        rest = later;
    }
    windows.sort_by_key(|window| std::cmp::Reverse(window.len()));
    windows.truncate(WINDOWS);
    windows
}

/// The step of the guest's clock, if it is long: events of a VCPU have equal times or are whole steps apart.
fn coarse_step(events: &[Event]) -> Option<i64> {
    let mut last: Vec<Option<i64>> = Vec::new();
    let (mut same, mut steps) = (0, Vec::new());
    for event in events {
        last.resize(last.len().max(event.vcpu + 1), None);
        match last[event.vcpu].replace(event.at).map(|before| event.at - before) {
            Some(0) => same += 1,
            Some(step) => steps.push(step),
            None => {}
        }
    }
    steps.sort_unstable();
    // A clock that counts ns has few equal times, and some are a few µs apart.
    let shortest = *steps.get(steps.len() / 100)?;
    let shared = same * 10 > steps.len();
    (shortest >= COARSE && shared || same > steps.len()).then(|| steps[steps.len() / 4])
}

/// At most this many events, spread evenly.
fn thinned(events: &[Event], most: usize) -> Vec<Event> {
    let step = events.len().div_ceil(most).max(1);
    events.iter().step_by(step).copied().collect()
}

/// At most this many events, in a fixed pseudo-random order.
fn shuffled(events: &[Event], most: usize) -> Vec<Event> {
    let mut events = thinned(events, most);
    let mut state = 1u64;
    for at in (1..events.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        events.swap(at, (state >> 33) as usize % (at + 1));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers, the same in every run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: i64) -> i64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as i64 % most
        }
    }

    fn spans(dice: &mut Dice, from: u64, to: u64, run: i64, rest: i64) -> Vec<(u64, u64)> {
        let (mut spans, mut at) = (Vec::new(), from);
        while at < to {
            let end = at + 10_000 + dice.below(run) as u64;
            spans.push((at, end));
            at = end + 1 + dice.below(rest) as u64;
        }
        spans
    }

    fn events(dice: &mut Dice, spans: &[(u64, u64)], offset: i64, drift: f64, count: usize) -> Vec<Event> {
        let mut events: Vec<Event> = (0..count)
            .map(|_| {
                let (from, to) = spans[dice.below(spans.len() as i64) as usize];
                let at = from as i64 + 5_000 + dice.below((to - from) as i64 - 8_000) - offset;
                Event { at: (at as f64 / (1.0 + drift)) as i64, vcpu: 0 }
            })
            .collect();
        events.sort_unstable();
        events
    }

    fn schedule(spans: &[(u64, u64)]) -> Schedule<'_> {
        Schedule::new(vec![spans], vec![(spans[0].0 as i64, spans[spans.len() - 1].1 as i64)])
    }

    #[test]
    fn the_offset_is_found_and_followed_through_a_drift() {
        for (seed, drift) in [(1, 0.0), (2, -3e-5)] {
            let mut dice = Dice(seed);
            let spans = spans(&mut dice, 5_000_000_000, 9_000_000_000, 800_000, 900_000);
            let offset = 7_000_000_000 + dice.below(1_000_000_000);
            let events = events(&mut dice, &spans, offset, drift, 3_000);
            let fit = schedule(&spans).fit(&events, true).unwrap();
            for event in [&events[0], &events[1_500], &events[2_999]] {
                let true_at = (event.at as f64 * (1.0 + drift)) as i64 + offset;
                let found = event.at + fit.offset + (event.at as f64 * fit.drift) as i64;
                assert!((found - true_at).abs() < 15_000, "seed {seed}: {} ns beside", found - true_at);
            }
            assert!(fit.inside as f64 > fit.judged as f64 * 0.99);
        }
    }

    #[test]
    fn a_guest_with_a_wrong_clock_rate_is_found() {
        for (seed, shown) in [(11, 2.85), (12, 0.9985), (13, 0.4)] {
            let mut dice = Dice(seed);
            let spans = spans(&mut dice, 5_000_000_000, 9_000_000_000, 800_000, 9_000_000);
            let events = events(&mut dice, &spans[200..600], 7_000_000_000, 1.0 / shown - 1.0, 1_000);
            let fit = schedule(&spans).fit(&events, true).unwrap();
            for event in [&events[0], &events[500], &events[999]] {
                let true_at = (event.at as f64 / shown) as i64 + 7_000_000_000;
                let found = event.at + fit.offset + (event.at as f64 * fit.drift) as i64;
                assert!((found - true_at).abs() < 15_000, "{shown}: {} ns beside", found - true_at);
            }
            assert!(fit.inside as f64 > fit.judged as f64 * 0.99);
            if shown > 1.0 {
                assert!(matches!(schedule(&spans).fit(&events, false), Err(Unfit::Ambiguous { .. })));
            }
        }
    }

    #[test]
    fn a_guest_recorded_in_part_is_found() {
        let mut dice = Dice(5);
        let spans = spans(&mut dice, 6_000_000_000, 12_000_000_000, 800_000, 900_000);
        let events = events(&mut dice, &spans, -3_000_000_000, 0.0, 4_000);
        let seen: Vec<_> =
            spans.iter().copied().filter(|span| (8_000_000_000..10_000_000_000).contains(&span.0)).collect();
        let fit = schedule(&seen).fit(&events, true).unwrap();
        assert!((fit.offset + 3_000_000_000).abs() < 15_000, "{fit:?}");
    }

    #[test]
    fn no_verdict_without_data() {
        let mut dice = Dice(6);
        let busy = [(1_000_000_000u64, 9_000_000_000u64)];
        let many = events(&mut dice, &busy, 500, 0.0, 1_500);
        assert_eq!(schedule(&busy).fit(&many, true), Err(Unfit::NoGaps));
        assert_eq!(Schedule::new(vec![&[]], vec![(0, 10)]).fit(&many, true), Err(Unfit::NoSpans));
        let spans = spans(&mut dice, 1_000_000_000, 2_000_000_000, 800_000, 900_000);
        assert_eq!(schedule(&spans).fit(&many[..50], true), Err(Unfit::TooFew(50)));
        let other = super::tests::spans(&mut Dice(77), 1_000_000_000, 2_000_000_000, 700_000, 1_100_000);
        let strange = events(&mut dice, &other, 500, 0.0, 1_500);
        assert!(matches!(schedule(&spans).fit(&strange, true), Err(Unfit::Ambiguous { .. })));
    }

    #[test]
    fn a_periodic_schedule_gives_no_answer() {
        let spans: Vec<_> = (0..500u64).map(|n| (n * 1_000_000, n * 1_000_000 + 500_000)).collect();
        let events = events(&mut Dice(8), &spans[100..200], 0, 0.0, 500);
        assert!(matches!(schedule(&spans).fit(&events, true), Err(Unfit::Ambiguous { .. })));
    }

    /// One day, with a few seconds at each moment, as from a long recording.
    #[test]
    fn a_drift_is_followed_and_the_stated_error_holds_everywhere() {
        let drift = -7.3e-6;
        let mut dice = Dice(21);
        let mut all = Vec::new();
        let mut covered = Vec::new();
        let near = (1..25).map(|step| (4e9 * 1.5f64.powi(step)) as u64);
        let mut stops: Vec<u64> = (0..20).map(|stop| stop * 4_000_000_000_000).chain(near).collect();
        stops.sort_unstable();
        stops.dedup_by_key(|stop| *stop / 4_000_000_000);
        for stop in stops {
            let from = 5_000_000_000 + stop;
            let (run, rest) = (500_000, 700_000);
            all.extend(spans(&mut dice, from, from + 3_000_000_000, run, rest));
            covered.push((from as i64, from as i64 + 3_000_000_000));
        }
        let offset = 6_000_000_000;
        let events = events(&mut dice, &all, offset, drift, 15_000);
        let early = events.partition_point(|event| event.at < 3_000_000_000);
        let first = all.partition_point(|span| span.0 < 9_000_000_000);
        let begin = Schedule::new(vec![&all[..first]], covered[..1].to_vec());
        let near = begin.fit(&events[..early], true).unwrap();
        let fit = Schedule::new(vec![&all], covered).follow(&events, near, true);
        for event in events.iter().step_by(100) {
            let true_at = (event.at as f64 * (1.0 + drift)) as i64 + offset;
            let found = event.at + fit.offset + (event.at as f64 * fit.drift) as i64;
            let off = (found - true_at).abs();
            assert!(off <= fit.error && fit.error < 40_000, "{off} ns, of {} claimed", fit.error);
        }
        assert!(fit.inside as f64 > fit.judged as f64 * 0.99 && fit.judged > 3_500, "{fit:?}");
    }

    /// No straight line fits; the stated error must be large enough.
    #[test]
    fn the_stated_error_covers_an_uneven_drift() {
        let mut dice = Dice(31);
        let spans = spans(&mut dice, 1_000_000_000, 61_000_000_000, 1_000_000, 1_400_000);
        let bent = |at: i64| at - (at as f64 / 60e9 * (1.0 - at as f64 / 60e9) * 150_000.0) as i64;
        let mut bent: Vec<Event> = events(&mut dice, &spans, 1_000_000_000, 0.0, 15_000)
            .into_iter()
            .map(|event| Event { at: bent(event.at), ..event })
            .collect();
        bent.sort_unstable();
        let fit = schedule(&spans).fit(&bent, true).unwrap();
        let furthest = |event: &Event| {
            let share = event.at as f64 / 60e9;
            let true_at = event.at + (share * (1.0 - share) * 150_000.0) as i64 + 1_000_000_000;
            (event.at + fit.offset + (event.at as f64 * fit.drift) as i64 - true_at).abs()
        };
        let furthest = bent.iter().map(furthest).max().unwrap();
        assert!(furthest > 10_000 && furthest <= fit.error, "{furthest} ns, of {} claimed", fit.error);
    }

    #[test]
    fn a_clock_of_jiffies_is_refused() {
        let mut dice = Dice(41);
        let spans = spans(&mut dice, 1_000_000_000, 21_000_000_000, 3_000_000, 900_000);
        let mut events = events(&mut dice, &spans, 1_000_000_000, 0.0, 20_000);
        events.iter_mut().for_each(|event| event.at = event.at / 4_000_000 * 4_000_000);
        assert_eq!(schedule(&spans).fit(&events, true), Err(Unfit::Coarse(4_000_000)));
    }
}
