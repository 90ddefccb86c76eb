//! Determines the relation of a guest's clock to the host's: from the options, or from the recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perfx_format::decode::clock_name;
use perfx_format::features::ClockData;
use perfx_format::{Event, Feature};
use perfx_pipeline::{Context as _, Level, Result, Session, bail, list, signed_seconds};

use super::clock::{Clock, Scale};
use super::clock_fit::{Event as At, Fit, Schedule, Unfit};
use super::machines::{Machines, Thread};
use super::moments::Moment;
use super::placed::{Opened, Placed, Process};
use super::switches::VcpuRunLog;

pub(crate) type Found = (Placed, Approach);

#[derive(Debug)]
pub(crate) enum Approach {
    Known(Clock),
    /// Known for a part of the host's recording, to be followed through the rest.
    InPart(Timeline, Fit),
}

/// The clock of each guest and, among several processes, the one whose schedule it fits.
pub(crate) fn find_clocks(
    guests: Vec<Opened>,
    machines: &Machines,
    run_log: &VcpuRunLog,
    guestmount: Option<&Path>,
    session: &mut Session,
) -> Result<Vec<Found>> {
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    let mut tried = Vec::new();
    for mut opened in guests {
        let clock = Clock {
            guest: opened.guest.facts.time_conv,
            host: machines.time_conv,
            offset: opened.spec.offset.unwrap_or(0),
            scale: opened.spec.scale.unwrap_or(Scale::ONE),
        };
        let timeline = Timeline::new(&mut opened, clock);
        let fits: Vec<_> = opened.processes.iter().map(|process| timeline.fit(process, run_log)).collect();
        if let [process] = &opened.processes[..] {
            taken.insert(process.pid);
        }
        tried.push((opened, timeline, fits));
    }
    // A guest that fits only one process excludes it for the others.
    for _ in 0..tried.len() {
        for (opened, _, fits) in tried.iter_mut().filter(|(opened, ..)| opened.processes.len() > 1) {
            let free = |at: &usize| fits[*at].is_ok() && !taken.contains(&opened.processes[*at].pid);
            let fitting: Vec<usize> = (0..fits.len()).filter(free).collect();
            if let [only] = fitting[..] {
                taken.insert(opened.processes[only].pid);
                opened.processes = vec![opened.processes.swap_remove(only)];
                *fits = vec![fits.swap_remove(only)];
            }
        }
    }
    tried
        .into_iter()
        .map(|(opened, timeline, fits)| {
            check_process(&opened, &fits)?;
            let approach = approach(&opened, timeline, fits, run_log, session)?;
            let process = opened.processes[0].clone();
            Ok((opened.placed(process, guestmount, session)?, approach))
        })
        .collect()
}

fn check_process(opened: &Opened, fits: &[Result<Fit, Unfit>]) -> Result<()> {
    if opened.processes.len() == 1 {
        return Ok(());
    }
    let name = opened.name();
    let each = opened.processes.iter().zip(fits).map(|(process, fit)| match fit {
        Ok(fit) => format!("process {} fits, with {} of {}", process.pid, fit.inside, fit.judged),
        Err(unfit) => format!("process {}: {unfit}", process.pid),
    });
    bail!(
        "{name}: several processes of the host may run it, and their schedules do not show which; give pid=N [{}]",
        list(each)
    )
}

/// Takes the clock from the options, or finds it by the schedule, to a few µs, or by the wall clocks.
fn approach(
    opened: &Opened,
    timeline: Timeline,
    mut fits: Vec<Result<Fit, Unfit>>,
    run_log: &VcpuRunLog,
    session: &mut Session,
) -> Result<Approach> {
    let Clock { guest, host, .. } = timeline.clock;
    let name = opened.name();
    let differ = clocks_differ(&opened.guest.recording.events, &session.events);
    if let Some(differ) = &differ {
        session.report.say(Level::Info, format!("{name}: {differ}"));
    }
    if opened.spec.offset.is_some() {
        return Ok(Approach::Known(timeline.clock));
    }
    let unfit = match fits.pop().unwrap_or(Err(Unfit::NoSpans)) {
        Ok(fit) if run_log.is_cut() => return Ok(Approach::InPart(timeline, fit)),
        Ok(fit) => match timeline.clock(&fit) {
            Some(clock) => {
                session.report.say(Level::Info, format!("{name}: {}", about(&fit)));
                return Ok(Approach::Known(clock));
            }
            None => Unfit::NoGaps,
        },
        Err(unfit) => unfit,
    };
    let is_coarse = matches!(unfit, Unfit::Coarse(_));
    let wall = offset_of_wall_clocks(opened, session);
    if let Some(offset) = wall.filter(|_| guest.is_none() && host.is_none() && !is_coarse) {
        let what = "its offset comes from the wall clocks of both machines (CLOCK_DATA) and is only as exact as these clocks agree";
        session.report.say(Level::Info, format!("{name}: {what}"));
        return Ok(Approach::Known(Clock { offset, ..timeline.clock }));
    }
    let differ = differ.map_or(String::new(), |differ| format!(" ({differ})"));
    // The guest kernel's idea of its clock rate may be far off.
    let cycles = guest.is_some() && opened.spec.scale.is_none() && matches!(unfit, Unfit::Ambiguous { .. });
    let rate = if cycles {
        "if its kernel misjudges its clock, give scale=: the guest's cycles per ns of the host (the GHz of the TSC, with all digits of the host's kernel log: \
         dmesg | grep MHz); or give "
    } else {
        "or give "
    };
    bail!("{name}: cannot determine the clock offset{differ}: {unfit}; {rate}offset= and scale=")
}

/// The windows of host time in which the VCPUs' runs are needed to follow these clocks.
pub(crate) fn windows(guests: &[Found]) -> Vec<(u64, u64)> {
    let wanted = guests.iter().filter_map(|(_, approach)| match approach {
        Approach::InPart(timeline, fit) => Some(timeline.windows(fit)),
        Approach::Known(_) => None,
    });
    wanted.flatten().collect()
}

pub(crate) fn follow_clocks(
    guests: Vec<Found>,
    run_log: &VcpuRunLog,
    session: &mut Session,
) -> Result<Vec<(Placed, Clock)>> {
    let followed = |(placed, approach): Found| {
        let clock = match approach {
            Approach::Known(clock) => clock,
            Approach::InPart(timeline, fit) => {
                let name = placed.name();
                let fit = timeline.follow(&placed.threads, fit, run_log);
                session.report.say(Level::Info, format!("{name}: {}", about(&fit)));
                let clock = timeline.clock(&fit);
                clock.with_context(|| format!("{name}: its clock would run at an impossible rate"))?
            }
        };
        Ok((placed, clock))
    };
    guests.into_iter().map(followed).collect()
}

/// Clocks with a larger difference in rate do not drift; one of them was misjudged.
const MISJUDGED: f64 = 1e-3;

/// Describes the clocks, if `-k` was given on one side only, or with another clock.
fn clocks_differ(guest: &[Event], host: &[Event]) -> Option<String> {
    let clock = |events: &[Event]| {
        let attr = events.first()?.attr();
        attr.use_clockid().then_some(attr.clockid)
    };
    let name = |clock: Option<u32>| match clock {
        None => "perf's own clock".to_owned(),
        Some(clock) => clock_name(clock).map_or(format!("clock {clock}"), |name| format!("CLOCK_{name}")),
    };
    let (guest, host) = (clock(guest), clock(host));
    (guest != host)
        .then(|| format!("its times are of {}, the host's of {}, which drift apart", name(guest), name(host)))
}

fn offset_of_wall_clocks(opened: &Opened, session: &Session) -> Option<i64> {
    let read = |section: &[u8]| ClockData::read(section, session.endian);
    let host = read(session.feature(Feature::CLOCK_DATA)?)?;
    let guest = read(opened.guest.recording.features.get(&Feature::CLOCK_DATA)?)?;
    let ahead = |clock: ClockData| i128::from(clock.clock_ns) - i128::from(clock.wall_ns);
    i64::try_from(ahead(guest) - ahead(host)).ok()
}

/// A guest's moments on the host's time scale, without offset and drift.
#[derive(Debug)]
pub(crate) struct Timeline {
    clock: Clock,
    scale: f64,
    drifts: bool,
    /// The guest's first moment, in units of its clock: time 0 of `events`.
    first: u64,
    events: Vec<At>,
}

/// The number of moments at which a clock is followed, and their events and maximum length, ns.
const STOPS: usize = 128;
const STOP_EVENTS: usize = 512;
const STOP_LENGTH: i64 = 4_000_000_000;
/// A clock is searched for at least this far around its expected time, ns.
const MARGIN: f64 = 10_000_000.0;
/// Additional drift of a clock outside the part in which it was found.
const DRIFT_MORE: f64 = 2e-6;

impl Timeline {
    fn new(opened: &mut Opened, clock: Clock) -> Timeline {
        // Units of the guest per ns, and per unit, of the host.
        let guest_rate = clock.guest.map_or(1.0, |conv| conv.rate());
        let host_rate = clock.host.map_or(1.0, |conv| conv.rate());
        let scale = opened.spec.scale.map_or(guest_rate / host_rate, Scale::get);
        let per_ns = scale * host_rate;
        let moments = opened.guest.facts.moments.take();
        let facts = &opened.guest.facts;
        let first = moments.iter().map(|moment| clock.units(moment.time)).min().unwrap_or(0);
        // All these processes have the same VCPUs.
        let vcpus: Vec<u32> = opened
            .processes
            .first()
            .map_or_else(Vec::new, |process| process.threads.keys().copied().collect());
        let event = |moment: &Moment| {
            let units = clock.units(moment.time).wrapping_sub(first);
            let vcpu = vcpus.binary_search(&facts.vcpu(moment)?).ok()?;
            Some(At { at: (units as f64 / per_ns) as i64, vcpu })
        };
        let mut events: Vec<At> = moments.iter().filter_map(event).collect();
        events.sort_unstable();
        Timeline { clock, scale, drifts: opened.spec.scale.is_none(), first, events }
    }

    fn fit(&self, process: &Process, run_log: &VcpuRunLog) -> Result<Fit, Unfit> {
        if self.events.is_empty() {
            return Err(Unfit::TooFew(0));
        }
        let schedule = schedule(&process.threads, run_log);
        schedule.fit(self.early(&schedule.covered, run_log.is_cut()), self.drifts)
    }

    /// The events while the host's schedule is known, if both recordings begin together.
    fn early(&self, covered: &[(i64, i64)], is_cut: bool) -> &[At] {
        let Some((&(from, _), &(_, to))) = covered.first().zip(covered.last()) else { return &self.events };
        let count = self.events.partition_point(|event| event.at < to - from);
        let early = &self.events[..count];
        if is_cut && Schedule::is_enough(early) { early } else { &self.events }
    }

    /// The events at some moments of the whole recording. Each is near enough to predict the clock there from
    /// those before it, beginning with the range `known`.
    fn stops(&self, known: (i64, i64)) -> Vec<&[At]> {
        let count = self.events.len();
        let length = (known.1 - known.0).max(1);
        let near = (0..64).map(|step| known.1.saturating_add((length as f64 * 1.5f64.powi(step)) as i64));
        let near = near.map(|at| self.events.partition_point(|event| event.at < at));
        let mut starts: Vec<usize> = (0..STOPS).map(|stop| stop * count / STOPS).chain(near).collect();
        starts.push(count.saturating_sub(STOP_EVENTS));
        starts.sort_unstable();
        let mut done = 0;
        let stops = starts.into_iter().filter_map(|start| {
            let events = self.events.get(start.max(done)..)?;
            let first = events.first()?.at;
            let length = events
                .iter()
                .take(STOP_EVENTS)
                .take_while(|event| event.at < first.saturating_add(STOP_LENGTH))
                .count();
            done = start.max(done) + length;
            Some(&events[..length])
        });
        stops.collect()
    }

    /// The host times of these moments, widened by the remaining uncertainty of the clock.
    fn windows(&self, fit: &Fit) -> Vec<(u64, u64)> {
        let length = (fit.known.1 - fit.known.0).max(1) as f64;
        let drift = DRIFT_MORE + 2.0 * fit.error as f64 / length;
        let window = |events: &[At]| {
            let (first, last) = (events.first()?.at, events.last()?.at);
            let margin = MARGIN + drift * (first - fit.known.1).max(fit.known.0 - first).max(0) as f64;
            let there = |at: i64| fit.offset as f64 + at as f64 * (1.0 + fit.drift);
            Some(((there(first) - margin).max(0.0) as u64, (there(last) + margin).max(0.0) as u64))
        };
        self.stops(fit.known).into_iter().filter_map(window).collect()
    }

    fn follow(&self, threads: &BTreeMap<u32, Thread>, fit: Fit, run_log: &VcpuRunLog) -> Fit {
        let events: Vec<At> = self.stops(fit.known).into_iter().flatten().copied().collect();
        schedule(threads, run_log).follow(&events, fit, self.drifts)
    }

    fn clock(&self, fit: &Fit) -> Option<Clock> {
        // The guest's first moment is at `fit.offset` on the host.
        let scale = self.scale / (1.0 + fit.drift);
        let there = self.clock.host_units(fit.offset.max(0) as u64);
        let offset = i128::from(self.first) - (there as f64 * scale) as i128;
        let found = Scale::new(scale).zip(i64::try_from(offset).ok());
        found.map(|(scale, offset)| Clock { offset, scale, ..self.clock })
    }
}

fn schedule<'w>(threads: &BTreeMap<u32, Thread>, run_log: &'w VcpuRunLog) -> Schedule<'w> {
    let spans = |thread: &Thread| run_log.run(thread.tid).map_or(&[][..], |run| &run.spans);
    let time = |time: u64| time.min(1 << 62) as i64;
    let covered = run_log.covered().into_iter().map(|(from, to)| (time(from), time(to)));
    Schedule::new(threads.values().map(spans).collect(), covered.collect())
}

fn about(fit: &Fit) -> String {
    let share = |part: f64| format!("{:.2} %", part * 100.0);
    let inside = share(fit.inside as f64 / fit.judged.max(1) as f64);
    let second = fit.second.filter(|other| other.judged > 0).map_or(String::new(), |other| {
        let away = signed_seconds(other.offset - fit.offset);
        format!("; the second best, {away} away, has {} of {}", other.inside, other.judged)
    });
    let shown = 1.0 / (1.0 + fit.drift);
    let misjudged = if (shown - 1.0).abs() < MISJUDGED {
        String::new()
    } else {
        format!("; its kernel misjudges its clock, which shows {shown:.4} s in a second of the host")
    };
    format!(
        "the offset was found from the schedule: {inside} of {} events happened while the host ran their VCPU, to \
         ±{}.{} µs{second}{misjudged}",
        fit.judged,
        fit.error / 1000,
        fit.error % 1000 / 100,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 hours: the host's schedule is known for two minutes, and from a third survey at some moments.
    #[test]
    fn the_clock_of_a_long_merge_is_followed_to_its_end() {
        const DRIFT: f64 = 4.2e-6;
        const BEGIN: i64 = 3_000_000_000;
        let mut state = 1u64;
        let mut below = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let (mut spans, mut events, mut at) = (Vec::new(), Vec::new(), 2_000_000_000u64);
        while at < 7_200_000_000_000 {
            let busy = at + 20_000_000;
            while at < busy {
                let end = at + 100_000 + below(400_000);
                spans.push((at, end));
                let there = (at + 5_000 + below(end - at - 8_000)) as i64 - BEGIN;
                events.push(At { at: (there as f64 / (1.0 + DRIFT)) as i64, vcpu: 0 });
                at = end + 1 + below(2_000_000);
            }
            at = busy + 2_000_000_000;
        }
        let threads = BTreeMap::from([(0, Thread { tid: 7, name: String::new() })]);
        let process = Process { pid: 7, threads: threads.clone() };
        let clock = Clock { guest: None, host: None, offset: 0, scale: Scale::ONE };
        let timeline = Timeline { clock, scale: 1.0, drifts: true, first: 0, events };
        let run_log = VcpuRunLog::new([7], true).seen(&spans, Some(800));
        assert!(run_log.is_cut());
        let fit = timeline.fit(&process, &run_log).unwrap();
        let far_off = |fit: &Fit| {
            let off = |event: &At| (fit.offset - BEGIN) as f64 + event.at as f64 * (fit.drift - DRIFT);
            timeline.events.iter().map(|event| off(event).abs() as i64).max().unwrap()
        };
        // The fit of the start alone is wrong at the end.
        assert!(far_off(&fit) > 40_000, "{} ns", far_off(&fit));
        let run_log = run_log.narrowed_to(timeline.windows(&fit)).seen(&spans, None);
        let found = timeline.follow(&threads, fit, &run_log);
        let off = far_off(&found);
        assert!(off <= found.error && found.error < 30_000, "{off} ns, of {} claimed", found.error);
        assert!(found.judged > 3_000 && found.inside as f64 > found.judged as f64 * 0.99, "{found:?}");
    }

    fn timeline(count: i64) -> Timeline {
        let none = Clock { guest: None, host: None, offset: 0, scale: Scale::new(1.0).unwrap() };
        let events = (0..count).map(|number| At { at: number * 10_000_000, vcpu: 0 }).collect();
        Timeline { clock: none, scale: 1.0, drifts: false, first: 0, events }
    }

    #[test]
    fn a_clock_is_followed_at_moments_in_the_whole_recording() {
        let timeline = timeline(100_000);
        let stops = timeline.stops((0, 2_000_000_000));
        assert!(stops.windows(2).all(|pair| pair[0].last() < pair[1].first()));
        assert!(stops.iter().all(|stop| (1..=400).contains(&stop.len())), "at most 4 s");
        let last = stops.last().and_then(|stop| stop.first()).unwrap().at;
        assert!(last >= timeline.events[100_000 - 512].at, "{last}");
        // The distance of a moment is at most half of what is known before it.
        let mut known = 2_000_000_000;
        for stop in &stops {
            let (first, last) = (stop[0].at, stop[stop.len() - 1].at);
            assert!(first <= known * 5 / 2 + 4_000_000_000, "{first} after {known}");
            known = known.max(last);
        }
        assert_eq!(self::timeline(0).stops((0, 1)).len(), 0);
    }

    #[test]
    fn windows_on_the_host_are_wider_the_further_they_are_from_what_is_known() {
        let known = (1_000_000_000, 3_000_000_000);
        let fit = Fit { offset: 50_000_000_000, drift: 1e-3, error: 1_000, known, ..Fit::default() };
        let timeline = timeline(1_000);
        let (stops, windows) = (timeline.stops(known), timeline.windows(&fit));
        assert_eq!(stops.len(), windows.len());
        // 2 ppm, and the error at both ends of the known two seconds.
        let drift = 2e-6 + 2.0 * 1_000.0 / 2e9;
        for (stop, (from, to)) in stops.iter().zip(windows) {
            let (first, last) = (stop[0].at as f64, stop[stop.len() - 1].at as f64);
            let away = (first - 3e9).max(1e9 - first).max(0.0);
            let margin = 1e7 + drift * away;
            let near = |found: u64, expected: f64| (found as f64 - expected).abs() < 2.0;
            assert!(
                near(from, 5e10 + first * 1.001 - margin) && near(to, 5e10 + last * 1.001 + margin),
                "{first}"
            );
        }
        let before = timeline.windows(&Fit { offset: -5_000_000, ..fit });
        assert_eq!(before[0].0, 0);
    }

    #[test]
    fn events_are_examined_as_long_as_the_schedule_of_the_host_is_known() {
        let timeline = timeline(1_000);
        let count = |covered: &[(i64, i64)], is_cut| timeline.early(covered, is_cut).len();
        assert_eq!(count(&[(5, 3_000_000_005)], true), 300);
        assert_eq!(count(&[(5, 6), (7, 3_000_000_006)], true), 301);
        assert_eq!(count(&[(5, 3_000_000_005)], false), 1_000);
        assert_eq!((count(&[], true), count(&[(0, 500_000_000)], true)), (1_000, 1_000), "too few");
    }
}
