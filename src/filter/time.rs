//! Parses time windows in perf's syntax (`START,STOP` or shares of the recording), and points with a time
//! span around them, into half-open intervals in ns.

use std::fmt;
use std::ops::Range;
use std::time::UNIX_EPOCH;

use perfx_format::OrderKey;
use perfx_format::features::ClockData;
use perfx_pipeline::{Context as _, Result, bail, ensure, seconds};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Window {
    /// `None` is the start or the end of the recording.
    Between(Option<Point>, Option<Point>),
    /// From one share of the recording to another; [`WHOLE`] is 100 %.
    Share(u64, u64),
    /// From this many ns before a point to a tenth of them after it.
    Around(Point, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    /// ns of the recording's clock.
    At(u64),
    /// ns after the recording's first sample.
    After(u64),
    /// Wall-clock time, ns since 1970.
    Wall(u64),
}

const WHOLE: u64 = 100_000_000_000;

/// Half-open: `stop` is excluded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) stop: u64,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.start, self.stop) {
            (0, stop) => write!(f, "all before {}", seconds(stop)),
            (start, u64::MAX) => write!(f, "all from {} on", seconds(start)),
            (start, stop) => write!(f, "{} to {}", seconds(start), seconds(stop)),
        }
    }
}

impl Window {
    /// Parses windows: `START,STOP`, where either end may be left out; `10%`, `10%-20%`, `10%-`, `10%/2` and
    /// comma-separated lists of these; or several windows separated by spaces. A point is
    /// `SECONDS[.FRACTION]`, `+DURATION` (after the first sample; `ns`, `us`, `ms`, `s`, `m`, or seconds
    /// without a unit) or an RFC 3339 time.
    pub(crate) fn parse(text: &str) -> Result<Vec<Window>> {
        let mut windows = Vec::new();
        for part in text.split_whitespace() {
            if part.contains('%') {
                for share in part.split(',') {
                    ensure!(
                        !share.is_empty(),
                        "`{part}`: there is nothing on one side of a comma; 30%- means everything from 30% on"
                    );
                    windows.push(
                        parse_share(share)
                            .with_context(|| format!("`{share}` is not a percentage of the time"))?,
                    );
                }
            } else {
                let Some((start, stop)) = part.split_once(',') else {
                    bail!(
                        "`{part}` is not a time window: give START,STOP (either may be left out) or 10%-20%"
                    );
                };
                let point = |text: &str| -> Result<Option<Point>> {
                    Some(text).filter(|text| !text.is_empty()).map(parse_point).transpose()
                };
                let (start, stop) = (point(start)?, point(stop)?);
                // Points of the same kind can be compared without the recording.
                let ordered = match (start, stop) {
                    (Some(Point::At(start)), Some(Point::At(stop)))
                    | (Some(Point::After(start)), Some(Point::After(stop)))
                    | (Some(Point::Wall(start)), Some(Point::Wall(stop))) => start <= stop,
                    _ => true,
                };
                ensure!(ordered, "`{part}` ends before it begins");
                windows.push(Window::Between(start, stop));
            }
        }
        ensure!(!windows.is_empty(), "no time window is given");
        Ok(windows)
    }

    pub(crate) fn is_relative(&self) -> bool {
        let after = |point: &Option<Point>| matches!(point, Some(Point::After(_)));
        match self {
            Window::Between(start, stop) => after(start) || after(stop),
            Window::Share(..) => true,
            Window::Around(moment, _) => after(&Some(*moment)),
        }
    }

    /// Parses `TIME` or `TIME,DURATION`: a point as in [`Window::parse`], and the time before (or 10 ms).
    pub(crate) fn parse_around(text: &str) -> Result<Window> {
        let (moment, before) = text.split_once(',').unwrap_or((text, "10ms"));
        Ok(Window::Around(parse_point(moment)?, parse_duration(before)?))
    }

    /// The intervals of the windows, sorted and disjoint; `None` (all times) without windows.
    pub(crate) fn intervals(
        windows: &[Window],
        range: (u64, u64),
        clock: Option<ClockData>,
    ) -> Result<Option<Vec<Interval>>> {
        let intervals = || windows.iter().map(|window| window.interval(range, clock)).collect();
        let intervals = (!windows.is_empty()).then(intervals).transpose()?;
        Ok(intervals.map(united))
    }

    /// The interval on the recording's clock; `range` is from its first to its last sample.
    fn interval(&self, range: (u64, u64), clock: Option<ClockData>) -> Result<Interval> {
        let (first, last) = range;
        let point = |point: Point| -> Result<u64> {
            Ok(match point {
                Point::At(ns) => ns,
                Point::After(ns) => first.saturating_add(ns),
                Point::Wall(wall) => {
                    let Some(clock) = clock else {
                        bail!(
                            "--time: the recording does not say how its clock relates to the time of day (no feature \
                             CLOCK_DATA: perf record -k CLOCKID writes it); give seconds of its own clock"
                        );
                    };
                    let since = i128::from(wall) - i128::from(clock.wall_ns) + i128::from(clock.clock_ns);
                    u64::try_from(since.max(0)).unwrap_or(u64::MAX)
                }
            })
        };
        let interval = match *self {
            Window::Between(start, stop) => {
                Interval { start: start.map_or(Ok(0), point)?, stop: stop.map_or(Ok(u64::MAX), point)? }
            }
            Window::Share(start, stop) => {
                let total = u128::from(last.saturating_sub(first));
                let at = |share: u64| {
                    let after = (total * u128::from(share) + u128::from(WHOLE) / 2) / u128::from(WHOLE);
                    first.saturating_add(after as u64)
                };
                // The end of the recording is its last sample, inclusive.
                let stop = if stop >= WHOLE { last.saturating_add(1) } else { at(stop) };
                Interval { start: at(start), stop }
            }
            Window::Around(moment, before) => {
                let moment = point(moment)?;
                let stop = moment.saturating_add(before / 10).saturating_add(1);
                Interval { start: moment.saturating_sub(before), stop }
            }
        };
        ensure!(
            interval.start <= interval.stop,
            "--time: the window from {} to {} of the recording's clock ends before it begins",
            seconds(interval.start),
            seconds(interval.stop)
        );
        Ok(interval)
    }
}

/// Parses `10%` (the first tenth), `10%-20%`, `10%-` (all but the first), `-10%`, `10%/2` (the second).
fn parse_share(text: &str) -> Result<Window> {
    let share = |text: &str| -> Result<u64> {
        let number = text.trim().strip_suffix('%').context("the % is missing")?;
        // 1 % is 10^9 parts.
        let parts = parse_decimal(number)?;
        ensure!(parts <= WHOLE, "it is more than 100 %");
        Ok(parts)
    };
    if let Some((start, stop)) = text.split_once('-') {
        let either = |text: &str, end| if text.is_empty() { Ok(end) } else { share(text) };
        let (start, stop) = (either(start, 0)?, either(stop, WHOLE)?);
        ensure!(start <= stop, "it ends before it begins");
        return Ok(Window::Share(start, stop));
    }
    let (size, number) = match text.split_once('/') {
        Some((size, number)) => {
            (share(size)?, number.trim().parse().context("what follows / is not a number")?)
        }
        None => (share(text)?, 1u64),
    };
    ensure!(number > 0, "slices are counted from 1");
    let stop = size.checked_mul(number).filter(|&stop| stop <= WHOLE);
    let stop = stop.context("100 % does not have that many slices")?;
    Ok(Window::Share(stop - size, stop))
}

fn parse_point(text: &str) -> Result<Point> {
    if let Some(duration) = text.strip_prefix('+') {
        return Ok(Point::After(parse_duration(duration)?));
    }
    if text.contains('T') || text.contains(':') {
        let time = humantime::parse_rfc3339_weak(text).with_context(|| {
            format!("`{text}` is not an RFC 3339 time in UTC, such as 2026-01-31T12:00:00.5Z")
        })?;
        let since = time.duration_since(UNIX_EPOCH).context("no recording has times before 1970")?;
        let ns = u64::try_from(since.as_nanos()).context("it is too far in the future")?;
        return Ok(Point::Wall(ns));
    }
    let point = parse_decimal(text).map(Point::At);
    ensure!(
        point.is_ok() || parse_duration(text).is_err(),
        "`{text}` is not a time: give +{text} for {text} after the first sample, or seconds of the recording's clock \
         without a unit"
    );
    point.with_context(|| format!("`{text}` is not a time: give SECONDS.FRACTION"))
}

pub(crate) fn parse_duration(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1000,
        "ns" => 1,
        "m" | "min" => 60_000_000_000,
        other => bail!("`{other}` is not a unit of time; the units are ns, us, ms, s and m"),
    };
    let billionths = parse_decimal(digits).with_context(|| format!("`{text}` is not a duration"))?;
    u64::try_from(u128::from(billionths) * unit / 1_000_000_000).context("it is too long")
}

/// Parses a decimal number into billionths, truncated after nine digits.
fn parse_decimal(text: &str) -> Result<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(
        !(whole.is_empty() && fraction.is_empty()) && digits(whole) && digits(fraction),
        "`{text}` is not a number"
    );
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().context("it is too large")? };
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let billionths = whole.checked_mul(1_000_000_000).zip(fraction.parse::<u64>().ok());
    billionths.and_then(|(whole, fraction)| whole.checked_add(fraction)).context("it is too large")
}

/// Selected times, or positions in a recording without times.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// Sorted and disjoint. `None` means all.
    ranges: Option<Vec<Range<OrderKey>>>,
}

impl Windows {
    /// Selects these sorted, disjoint intervals; `None` selects all.
    pub(crate) fn new(intervals: Option<&[Interval]>) -> Windows {
        let range = |interval: &Interval| OrderKey::at(interval.start)..OrderKey::at(interval.stop);
        Windows { ranges: intervals.map(|intervals| intervals.iter().map(range).collect()) }
    }

    pub(crate) fn one(range: Range<OrderKey>) -> Windows {
        Windows { ranges: Some(vec![range]) }
    }

    pub(crate) fn are_all(&self) -> bool {
        self.ranges.is_none()
    }

    pub(crate) fn meet(&self, first: OrderKey, last: OrderKey) -> bool {
        let Some(ranges) = &self.ranges else { return true };
        let next = ranges.partition_point(|range| range.end <= first);
        ranges.get(next).is_some_and(|range| range.start <= last)
    }

    /// The key from which on nothing is selected.
    pub(crate) fn end(&self) -> OrderKey {
        self.ranges().last().map_or(OrderKey::FIRST, |range| range.end)
    }

    pub(crate) fn ranges(&self) -> &[Range<OrderKey>] {
        const ALL: [Range<OrderKey>; 1] = [OrderKey::ALL];
        self.ranges.as_deref().unwrap_or(&ALL)
    }
}

/// Sorts the intervals and merges those that touch.
fn united(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|interval| interval.start < interval.stop);
    intervals.sort_unstable();
    let mut united: Vec<Interval> = Vec::new();
    for interval in intervals {
        match united.last_mut() {
            Some(last) if interval.start <= last.stop => last.stop = last.stop.max(interval.stop),
            _ => united.push(interval),
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(text: &str) -> Vec<(u64, u64)> {
        let windows = Window::parse(text).unwrap();
        let clock = ClockData { clockid: 1, wall_ns: 1_000_000_000_000, clock_ns: 5_000_000_000 };
        let intervals =
            windows.iter().map(|window| window.interval((1000, 2000), Some(clock)).unwrap()).collect();
        united(intervals).into_iter().map(|interval| (interval.start, interval.stop)).collect()
    }

    #[test]
    fn windows_are_perf_s() {
        assert_eq!(intervals("1.5,2"), [(1_500_000_000, 2_000_000_000)]);
        assert_eq!(intervals(",2 3.000000001,"), [(0, 2_000_000_000), (3_000_000_001, u64::MAX)]);
        assert_eq!(intervals("10%-20%"), [(1100, 1200)]);
        assert_eq!(intervals("10%/2,10%/10"), [(1100, 1200), (1900, 2001)]);
        assert_eq!(intervals("10%"), [(1000, 1100)]);
        assert_eq!(intervals("90%-,-10%"), [(1000, 1100), (1900, 2001)]);
        assert_eq!(intervals("0%-100%"), [(1000, 2001)]);
        assert_eq!(intervals("0%-10%,10%-12.5%"), [(1000, 1125)]);
        assert_eq!(intervals("+100ns,+0.5us"), [(1100, 1500)]);
        assert_eq!(intervals("1970-01-01T00:16:41Z,"), [(6_000_000_000, u64::MAX)]);
    }

    #[test]
    fn a_moment_has_what_is_before_it() {
        let interval = |text: &str| {
            let interval = Window::parse_around(text).unwrap().interval((1000, 2000), None).unwrap();
            (interval.start, interval.stop)
        };
        assert_eq!(interval("1.5"), (1_490_000_000, 1_501_000_001));
        assert_eq!(interval("+0.5us,200ns"), (1300, 1521));
        assert_eq!(interval("0,1s"), (0, 100_000_001));
        for text in ["", "1,", ",1us", "10%", "1,1us,1us", "1,x"] {
            assert!(Window::parse_around(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "1", "2,1", "a,b", "1,2,3", "110%", "10%/0", "10%/11", "10%,", "-%", "40%-30%", "+5parsecs,",
            "1e9,", "-1,2", ".,",
        ] {
            assert!(Window::parse(text).is_err(), "{text}");
        }
        assert!(Window::parse("2,+1").unwrap()[0].interval((0, 1), None).is_err());
        assert!(Window::parse("2026-01-01T00:00:00Z,").unwrap()[0].interval((0, 1), None).is_err());
    }

    #[test]
    fn windows_meet_what_begins_before_their_end_and_ends_in_or_after_their_beginning() {
        let windows = |ranges: &[(u64, u64)]| {
            let intervals: Vec<Interval> =
                ranges.iter().map(|&(start, stop)| Interval { start, stop }).collect();
            Windows::new(Some(&intervals))
        };
        let two = windows(&[(10, 20), (30, 40)]);
        for (first, last, expected) in [
            (0, 9, false),
            (0, 10, true),
            (19, 19, true),
            (20, 29, false),
            (20, 30, true),
            (5, 50, true),
            (39, 99, true),
            (40, 99, false),
        ] {
            assert_eq!(two.meet(OrderKey::at(first), OrderKey::at(last)), expected, "{first}..={last}");
        }
        assert_eq!(two.end(), OrderKey::at(40));
        assert!(!two.are_all());
        // No window selects everything; an empty list of windows, nothing.
        let (all, none) = (Windows::new(None), windows(&[]));
        assert!(all.are_all() && all.meet(OrderKey::FIRST, OrderKey::FIRST) && all.end() == OrderKey::END);
        assert!(!none.are_all() && !none.meet(OrderKey::FIRST, OrderKey::END));
        assert_eq!(none.end(), OrderKey::FIRST);
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in
            [("1", 1_000_000_000), ("1.5s", 1_500_000_000), ("250ms", 250_000_000), ("7us", 7000)]
                .into_iter()
                .chain([("9ns", 9), ("0.0000000019s", 1), ("2m", 120_000_000_000), ("1min", 60_000_000_000)])
        {
            assert_eq!(parse_duration(text).unwrap(), expected, "{text}");
        }
        for text in
            ["", "s", ".", "1h", "1 s", "99999999999999999999", "18446744073.709551616", "400000000000m"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn without_windows_all_times_are_meant() {
        let of = |windows: &[Window]| Window::intervals(windows, (100, 200), None).unwrap();
        assert_eq!(of(&[]), None);
        let two = [Window::Between(Some(Point::At(5)), None), Window::Between(None, Some(Point::After(7)))];
        assert_eq!(of(&two), Some(vec![Interval { start: 0, stop: u64::MAX }]));
        assert_eq!(of(&two[..1]), Some(vec![Interval { start: 5, stop: u64::MAX }]));
        assert_eq!([&two[0], &two[1], &Window::Share(0, 1)].map(Window::is_relative), [false, true, true]);
        let around = |moment| Window::Around(moment, 1).is_relative();
        assert!(around(Point::After(1)) && !around(Point::At(1)) && !around(Point::Wall(1)));
        for (interval, shown) in
            [((0, 5), "all before"), ((5, u64::MAX), "all from"), ((0, u64::MAX), "all before")]
        {
            assert!(Interval { start: interval.0, stop: interval.1 }.to_string().starts_with(shown));
        }
    }
}
