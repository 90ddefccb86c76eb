//! Chooses the event to count in recordings with several events, the same in all of them, and reports its
//! unit and the samples of other events.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use perfx_format::event_name::generic_name;
use perfx_format::siblings::CountedAs;
use perfx_look::json::Decimal;
use perfx_pipeline::{Error, Level, Report, Result, bail, count};
use perfx_resolve::{EventFacts, Facts};
use schemars::JsonSchema;
use serde::Serialize;

use crate::stacks::{Row, Stacks, Weight};

/// The samples that shares are parts of.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Counted {
    /// The event, or several, separated by `, `, if these are added up; null if there are no samples
    pub event: Option<String>,
    /// Its samples
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
    /// Unit of a period: `ns`, `samples` or the event; null if it differs between recordings
    pub unit: Option<String>,
}

impl Counted {
    /// Adds the counts of another recording.
    pub fn add(&mut self, more: Counted) {
        let Some(event) = &mut self.event else {
            *self = more;
            return;
        };
        if let Some(other) = more.event {
            if !event.split(", ").any(|event| event == other) {
                *event += ", ";
                *event += &other;
            }
            self.samples += more.samples;
            self.period = Decimal(self.period.0.saturating_add(more.period.0));
            self.unit = self.unit.take().filter(|unit| Some(unit) == more.unit.as_ref());
        }
    }
}

/// The events of a recording that were sampled.
#[derive(Debug)]
pub struct SampledEvents<'f> {
    pub(crate) weights: BTreeMap<u32, Weight>,
    pub(crate) counted_as: &'f [Option<CountedAs>],
    pub(crate) facts: &'f Facts,
}

impl Stacks {
    /// The events that were sampled.
    pub fn sampled<'s>(&'s self, facts: &'s Facts) -> SampledEvents<'s> {
        let none = |event: &u32| (*event, Weight::default());
        let mut weights: BTreeMap<u32, Weight> = self.times.keys().map(none).collect();
        self.rows.iter().for_each(|(row, weight)| *weights.entry(row.event).or_default() += *weight);
        SampledEvents { weights, counted_as: &self.counted_as, facts }
    }

    /// Merges the sampled events into one.
    ///
    /// # Errors
    ///
    /// That of [`SampledEvents::adds_up`], unless only samples are counted.
    pub fn unite(&mut self, facts: &Facts, by_samples: bool) -> Result<()> {
        let sampled = self.sampled(facts);
        if !by_samples {
            sampled.adds_up()?;
        }
        let Some((first, _)) = sampled.iter().next() else { return Ok(()) };
        let name = sampled.counted(None).event.unwrap_or_default().into_bytes();
        for (row, weight) in std::mem::take(&mut self.rows) {
            self.add(Row { event: first, ..row }, weight);
        }
        std::mem::take(&mut self.times).into_values().for_each(|times| self.seen(first, times));
        if let Some(counted) = self.counted_as.get_mut(first as usize) {
            *counted = Some(CountedAs { first: first as usize, name });
        }
        Ok(())
    }
}

impl<'f> SampledEvents<'f> {
    pub(crate) fn facts(&self, event: u32) -> Option<&'f EventFacts> {
        self.facts.events.get(event as usize)
    }

    fn is(&self, event: u32, what: fn(&EventFacts) -> bool) -> bool {
        self.facts(event).is_some_and(what)
    }

    /// The name by which an event is counted.
    pub fn name(&self, event: u32) -> Cow<'f, str> {
        let counted = self.counted_as.get(event as usize).and_then(Option::as_ref);
        let own = || self.facts(event).map_or(&b""[..], |event| &event.name);
        String::from_utf8_lossy(counted.map_or_else(own, |counted| &counted.name))
    }

    /// The events with their samples.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Weight)> {
        self.weights.iter().map(|(&event, &weight)| (event, weight))
    }

    fn counted_events(&self, only: Option<u32>) -> impl Iterator<Item = (u32, Weight)> {
        self.iter().filter(move |(event, _)| only.is_none_or(|only| only == *event))
    }

    /// The default event: cycles or a clock before other events, tracepoints last, and those with call chains
    /// before those without; then the first event, unless another has over ten times as many samples.
    pub fn default_event(&self) -> Option<u32> {
        let rank = |event: u32| {
            let works = self.is(event, |event| event.counts_cycles() || event.counts_time());
            let is_tracepoint = self.is(event, EventFacts::is_tracepoint);
            (!works, is_tracepoint, !self.is(event, |event| event.has_chains))
        };
        let best = self.iter().map(|(event, _)| rank(event)).min()?;
        let equals = || self.iter().filter(|&(event, _)| rank(event) == best);
        let most = equals().map(|(_, weight)| weight.samples).max()?;
        Some(equals().find(|(_, weight)| weight.samples.saturating_mul(10) >= most)?.0)
    }

    /// True if the periods of an event are times, ns.
    pub fn is_time(&self, event: u32) -> bool {
        let Weight { samples, period } = self.weights.get(&event).copied().unwrap_or_default();
        self.is(event, EventFacts::counts_time)
            || self.is(event, EventFacts::measures_time) && period != samples
    }

    /// The unit of an event's periods: `ns`, `samples` if each sample has period 1, or the event.
    pub fn unit(&self, event: u32) -> Cow<'f, str> {
        let Weight { samples, period } = self.weights.get(&event).copied().unwrap_or_default();
        let each_is_one = period == samples || period == 0;
        if each_is_one && !self.is_time(event) { "samples".into() } else { self.what(event) }
    }

    /// The unit of an event: `ns`, or the event without its PMU and modifiers.
    fn what(&self, event: u32) -> Cow<'f, str> {
        match self.is_time(event) {
            true => "ns".into(),
            false => {
                String::from_utf8_lossy(generic_name(self.facts(event).map_or(b"", |event| &event.name)))
            }
        }
    }

    /// Checks that the periods of these events can be added up.
    ///
    /// # Errors
    ///
    /// They count different things, and not every sample counts the same.
    pub fn adds_up(&self) -> Result<()> {
        let events = || self.iter().map(|(event, _)| event);
        let differ = |unit: fn(&Self, u32) -> Cow<'f, str>| {
            events().map(|event| unit(self, event)).collect::<BTreeSet<_>>().len() > 1
        };
        if differ(Self::what) && differ(Self::unit) {
            let units = events().map(|event| format!("{} ({})", self.name(event), self.what(event)));
            let units = units.collect::<Vec<_>>().join(", ");
            let what = "the selected events have different units, which don't add up";
            return Err(Error::usage(format!("{what}: {units}; choose one with --event")));
        }
        Ok(())
    }

    /// The counted event, or all.
    pub fn counted(&self, only: Option<u32>) -> Counted {
        let mut counted = Counted::default();
        for (event, Weight { samples, period }) in self.counted_events(only) {
            let (event, unit) = (Some(self.name(event).into_owned()), Some(self.unit(event).into_owned()));
            counted.add(Counted { event, samples, period: Decimal(period), unit });
        }
        counted
    }

    /// Reports the counted event, or all, and the others. With `by_samples`, periods are ignored.
    pub fn say(&self, only: Option<u32>, by_samples: bool, report: &mut Report) {
        for (event, Weight { samples, .. }) in self.counted_events(only) {
            let unit = match self.unit(event) {
                unit if unit == "samples" || by_samples => "samples".to_owned(),
                unit => format!("period ({unit})"),
            };
            let samples = perfx_pipeline::counted(samples, "sample", "samples");
            report.say(Level::Info, format!("{}: {samples}, counted by {unit}", self.name(event)));
        }
        self.say_others(only, report);
    }

    /// If only one event is counted, reports the others and their share of samples.
    pub fn say_others(&self, only: Option<u32>, report: &mut Report) {
        let sum = |all: u64, (_, weight): (u32, Weight)| all.saturating_add(weight.samples);
        let is_other = |event: u32| only.is_some_and(|only| only != event);
        let others = || self.iter().filter(|of| is_other(of.0) && of.1.samples > 0);
        let (all, rest) = (self.iter().fold(0, sum), others().fold(0, sum));
        if rest > 0 {
            let other =
                |(event, weight): (u32, Weight)| format!("{} ({})", self.name(event), count(weight.samples));
            let names: Vec<String> = others().map(other).collect();
            let share = 100.0 * rest as f64 / all as f64;
            let what = format!("not counted: {share:.1}% of the samples, which are of {}", names.join(", "));
            report.say(Level::Info, format!("{what}; --event selects events"));
        }
    }
}

/// The event to show, chosen in the first recording that has samples: its name and what it counts.
#[derive(Clone, Default, Debug)]
pub struct ShownEvent(Option<[String; 3]>);

impl ShownEvent {
    /// The number of the event in a recording; `None` if the recording has no samples. In the first recording
    /// it is [`SampledEvents::default_event`], in others the event with that name, or one that counts the
    /// same: `cpu-clock:ppp` equals `cpu-clock`, and `cycles` are equal on any PMU.
    ///
    /// # Errors
    ///
    /// The recording has samples, but none of that event.
    pub fn of(&mut self, recording: &str, sampled: &SampledEvents<'_>) -> Result<Option<u32>> {
        let Some(first) = sampled.default_event() else { return Ok(None) };
        let [shown, ..] = self.first(first, sampled);
        let events = || sampled.iter().map(|(event, _)| event);
        let same =
            |event: &u32| generic_name(sampled.name(*event).as_bytes()) == generic_name(shown.as_bytes());
        let exact = events().find(|&event| sampled.name(event) == *shown);
        let Some(event) = exact.or_else(|| events().find(same)) else {
            let sampled: Vec<_> = events().map(|event| sampled.name(event)).collect();
            bail!(
                "{recording}: has no samples of {shown}, the event chosen in the first recording, only of {}; \
                 --event selects events",
                sampled.join(", ")
            );
        };
        Ok(Some(event))
    }

    /// Like `of`, for a recording whose selected events are [united](Stacks::unite).
    ///
    /// # Errors
    ///
    /// Its periods have another unit than those of the first recording, unless only samples are counted.
    pub fn of_selected(
        &mut self,
        recording: &str,
        sampled: &SampledEvents<'_>,
        by_samples: bool,
    ) -> Result<Option<u32>> {
        let Some(event) = sampled.default_event() else { return Ok(None) };
        let [shown, what, unit] = self.first(event, sampled);
        if !by_samples && *what != sampled.what(event) && *unit != sampled.unit(event) {
            let (name, other) = (sampled.name(event), sampled.what(event));
            return Err(Error::usage(format!(
                "{recording}: {name} ({other}) does not add up with {shown} ({what}) of the first recording; choose \
                 one with --event"
            )));
        }
        Ok(Some(event))
    }

    fn first(&mut self, event: u32, sampled: &SampledEvents<'_>) -> &[String; 3] {
        self.0.get_or_insert_with(|| {
            [sampled.name(event), sampled.what(event), sampled.unit(event)].map(Cow::into_owned)
        })
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::read::Recording;

    use super::*;

    fn facts() -> Facts {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recorded/several.p61.data");
        Facts::survey(&mut Recording::open(path).unwrap(), 1, false).unwrap()
    }

    fn sampled<'f>(facts: &'f Facts, weights: &[(u32, u64, u64)]) -> SampledEvents<'f> {
        let weight = |&(event, samples, period): &(u32, u64, u64)| (event, Weight { samples, period });
        SampledEvents { weights: weights.iter().map(weight).collect(), counted_as: &[], facts }
    }

    #[test]
    fn the_share_of_other_events_is_reported() {
        let facts = facts();
        let names: Vec<_> = facts.events.iter().map(|event| String::from_utf8_lossy(&event.name)).collect();
        let said = |weights: &[(u32, u64, u64)], only, by_samples| {
            let mut report = Report::default();
            sampled(&facts, weights).say(only, by_samples, &mut report);
            report.lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>()
        };
        let events = [(0, 30, 30), (1, 10, 5_000)];
        let other = format!(
            "not counted: 25.0% of the samples, which are of {} (10); --event selects events",
            names[1]
        );
        assert_eq!(
            said(&events, Some(0), true),
            [format!("{}: 30 samples, counted by samples", names[0]), other]
        );
        assert_eq!(said(&events, None, true).len(), 2);
        let one = said(&[(0, 1, 1), (1, 0, 0)], Some(0), true);
        assert_eq!(one, [format!("{}: 1 sample, counted by samples", names[0])]);
        let all = sampled(&facts, &events).counted(None);
        assert_eq!(
            (all.samples, all.period.0, all.event),
            (40, 5_030, Some(format!("{}, {}", names[0], names[1])))
        );
        assert_eq!(sampled(&facts, &events).counted(Some(1)).samples, 10);
        assert_eq!(sampled(&facts, &[]).default_event(), None);
    }

    #[test]
    fn the_counts_of_recordings_add_up_and_keep_a_common_unit() {
        let counted = |event: &str, samples, unit: &str| Counted {
            event: Some(event.to_owned()),
            samples,
            period: Decimal(10 * samples),
            unit: Some(unit.to_owned()),
        };
        let mut sum = Counted::default();
        sum.add(counted("a", 1, "ns"));
        sum.add(Counted::default());
        assert_eq!(sum, counted("a", 1, "ns"));
        sum.add(counted("a", 2, "ns"));
        assert_eq!(sum, counted("a", 3, "ns"));
        sum.add(counted("ab", 4, "samples"));
        assert_eq!(sum, Counted { unit: None, ..counted("a, ab", 7, "") });
        sum.add(counted("b", u64::MAX / 10 - 7, "samples"));
        assert_eq!((sum.event.as_deref(), sum.unit), (Some("a, ab, b"), None));
    }
}
