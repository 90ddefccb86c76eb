//! How a guest's clock compares to the host's: given, or found in the recordings.

use anyhow::{Result, bail};
use perfx_format::decode::clock_name;
use perfx_format::features::ClockData;
use perfx_format::{Event, Feature};
use perfx_pipeline::{Level, Session};

use super::clock::{Clock, Scale};
use super::guest::Moment;
use super::machines::{Machines, Thread};
use super::placed::Placed;
use super::report::signed_seconds;
use super::schedule::{Event as At, Schedule, Unfit};
use super::switches::Watch;

/// Given, or found: by the schedule, which is exact to microseconds, else by the wall clocks that both recordings tell.
pub(crate) fn find_clock(
    placed: &Placed,
    machines: &Machines,
    watch: &Watch,
    session: &mut Session,
) -> Result<Clock> {
    let facts = &placed.guest.facts;
    let (guest, host) = (facts.time_conv, machines.time_conv);
    let scale = placed.spec.scale;
    let name = placed.name();
    let differ = clocks_differ(&placed.guest.recording.events, &session.events);
    if let Some(differ) = &differ {
        session.report.say(Level::Info, format!("{name}: {differ}"));
    }
    if let Some(offset) = placed.spec.offset {
        return Ok(Clock { guest, host, offset, scale: scale.unwrap_or(Scale::ONE) });
    }
    let unfit = match clock_from_schedule(placed, Clock { guest, host, offset: 0, scale: Scale::ONE }, watch)
    {
        Ok((clock, text)) => {
            session.report.say(Level::Info, format!("{name}: {text}"));
            return Ok(clock);
        }
        Err(unfit) => unfit,
    };
    if let Some(offset) = offset_of_wall_clocks(placed, session).filter(|_| guest.is_none() && host.is_none())
    {
        let what =
            "the wall clocks of both machines tell its offset (CLOCK_DATA), which is as good as those agree";
        session.report.say(Level::Info, format!("{name}: {what}"));
        return Ok(Clock { guest, host, offset, scale: scale.unwrap_or(Scale::ONE) });
    }
    let differ = differ.map_or(String::new(), |differ| format!(" ({differ})"));
    // What the guest's kernel takes for the rate of its clock may be far from it, and then the rate is half of the answer.
    let cycles = guest.is_some() && scale.is_none() && matches!(unfit, Unfit::Ambiguous { .. });
    let rate = if cycles {
        "if its kernel misjudges its clock, give scale=, its cycles in a ns of the host (the GHz of the TSC, with all digits of the host's kernel log: \
         dmesg | grep MHz); or give "
    } else {
        "or give "
    };
    bail!(
        "{name}: how its clock compares to the host's can't be told{differ}: {unfit}; {rate}offset= and scale="
    )
}

/// Clocks that are so much apart do not drift, one of them was misjudged.
const MISJUDGED: f64 = 1e-3;

/// `-k` was given on one side only, or with another clock.
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

/// Both recordings tell what their clocks showed at a wall-clock time.
fn offset_of_wall_clocks(placed: &Placed, session: &Session) -> Option<i64> {
    let read = |section: &[u8]| ClockData::read(section, session.endian);
    let host = read(session.feature(Feature::CLOCK_DATA)?)?;
    let guest = read(placed.guest.recording.features.get(&Feature::CLOCK_DATA)?)?;
    let ahead = |clock: ClockData| i128::from(clock.clock_ns) - i128::from(clock.wall_ns);
    i64::try_from(ahead(guest) - ahead(host)).ok()
}

/// The clock by the host's switch records, and a sentence about how sure that is.
fn clock_from_schedule(placed: &Placed, clock: Clock, watch: &Watch) -> Result<(Clock, String), Unfit> {
    let facts = &placed.guest.facts;
    // Units of the guest in a ns, and in a unit, of the host.
    let guest_rate = clock.guest.map_or(1.0, |conv| conv.rate());
    let host_rate = clock.host.map_or(1.0, |conv| conv.rate());
    let scale = placed.spec.scale.map_or(guest_rate / host_rate, Scale::get);
    let per_ns = scale * host_rate;
    let Some(first) = facts.moments.iter().map(|moment| clock.units(moment.time)).min() else {
        return Err(Unfit::TooFew(0));
    };
    let vcpus: Vec<u32> = placed.threads.keys().copied().collect();
    let event = |moment: &Moment| {
        let units = clock.units(moment.time).wrapping_sub(first);
        let vcpu = vcpus.binary_search(&facts.vcpu(moment)?).ok()?;
        Some(At { at: (units as f64 / per_ns) as i64, vcpu })
    };
    let mut events: Vec<At> = facts.moments.iter().filter_map(event).collect();
    events.sort_unstable();
    let (from, to) = watch.covered().unwrap_or_default();
    let spans = |thread: &Thread| watch.run(thread.tid).map_or(&[][..], |run| &run.spans);
    let schedule = Schedule {
        spans: placed.threads.values().map(spans).collect(),
        from: from.min(1 << 62) as i64,
        to: to.min(1 << 62) as i64,
    };
    let fit = schedule.fit(&events, placed.spec.scale.is_none())?;
    // The guest's first moment is at `fit.offset` on the host.
    let scale = scale / (1.0 + fit.drift);
    let there = clock.host_units(fit.offset.max(0) as u64);
    let offset = i128::from(first) - (there as f64 * scale) as i128;
    let clock = Scale::new(scale)
        .zip(i64::try_from(offset).ok())
        .map(|(scale, offset)| Clock { offset, scale, ..clock })
        .ok_or(Unfit::NoGaps)?;
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
    let text = format!(
        "the offset is found from the schedule: {inside} of {} events happened while the host ran their VCPU, to ±{}.{} µs{second}{misjudged}",
        fit.judged,
        fit.spread / 1000,
        fit.spread % 1000 / 100,
    );
    Ok((clock, text))
}
