//! `thin` drops samples of each event and CPU, and adds their periods to the next sample that is kept, so
//! that sums of periods, which perf report shows, stay the same.
//!
//! The last sample of each event and CPU is always kept, so no period is lost. Rejected: multiplying the
//! periods of kept samples, which keeps sums only on average.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use clap::Args;
use foldhash::fast::RandomState;
use perfx_filter::{EventList, named_events};
use perfx_format::event_name::names_of;
use perfx_format::read::Recording;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::record::event_update::name_update;
use perfx_format::sample::deferred_cookie;
use perfx_format::{Attr, Kinds, Layouts, Record, RecordType, Time, sample_type as st, set_sample_period};
use perfx_pipeline::{
    Begin, Emit, Level, Needs, Pass, Result, Rewrite, Session, Stage, Survey, bail, change_attr_of_each,
    count, counted, ensure,
};

use crate::support::factor::Factor;
use crate::support::options::{PassCommand, PassOptions};

/// Keep fewer samples, as if the recording had been made at a lower rate
///
/// Samples are counted for each event and CPU. The period of a sample that is left out is added to the next
/// one that is kept, so perf report shows the same sums. The attr of the event gets the new period or
/// frequency. If its samples have no period, only that of the attr becomes longer, and sums are estimates.
///
/// Records other than samples stay.
///
/// Examples:
///   perfx thin --every 10 perf.data -o small.data
///   perfx thin --rate 99 perf.data -o 99hz.data
///   perfx thin --fraction 0.01 --event 'sched:.*' perf.data -o few-switches.data
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct ThinArgs {
    /// Keep one of N samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Keep at most HZ samples per second
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), conflicts_with = "every")]
    rate: Option<u64>,
    /// Keep this part of the samples, a decimal number up to 1, chosen at random
    #[arg(long, value_name = "P", conflicts_with_all = ["every", "rate"])]
    fraction: Option<Factor>,
    /// With --fraction, make another random choice
    #[arg(long, value_name = "N", default_value_t = 0, requires = "fraction", conflicts_with_all = ["every", "rate"])]
    seed: u64,
    /// Thin only events whose name matches
    #[arg(short, long, value_name = "REGEX,…", value_parser = EventList::parse)]
    event: Vec<EventList>,
}

impl PassOptions for ThinArgs {
    const NAME: &'static str = "thin";
    const ABOUT: &'static str = "keep fewer samples of each event and CPU, with longer periods";
    const COMMAND: Option<PassCommand> =
        Some(PassCommand { group: "Cut and join", one_of: &["every", "rate", "fraction"] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        let Factor { numerator, denominator } = self.fraction.unwrap_or_default();
        ensure!(numerator <= denominator, "--fraction: a part of the samples is at most 1");
        Ok(Box::new(Thin { args: Arc::new(self) }))
    }
}

#[derive(Debug)]
struct Thin {
    args: Arc<ThinArgs>,
}

#[derive(Clone, Copy, Debug)]
enum ThinRule {
    Every(u64),
    Rate(u64),
    Fraction(Factor, u64),
}

/// An event and its CPU; without the field CPU, all samples of an event.
type StreamId = (usize, Option<u32>);

type ByStream<T> = HashMap<StreamId, T, RandomState>;

#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    seen: u64,
    /// The interval of `--rate` that contains the last kept sample.
    interval: Option<u128>,
    /// The sum of the periods of samples dropped since then.
    owed: u64,
}

/// Simulates the rewrite, to find the kept samples.
struct Gather {
    way: ThinRule,
    args: Arc<ThinArgs>,
    streams: ByStream<(Stream, Last)>,
    events: Vec<EventSamples>,
    names: HashMap<u64, Vec<u8>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Last {
    time: Option<u64>,
    cookie: Option<u64>,
}

#[derive(Clone, Default, Debug)]
struct EventSamples {
    all: Samples,
    kept: Samples,
}

#[derive(Clone, Debug)]
struct Samples {
    /// The times of the first and the last one, ns; reversed if there are none.
    times: (u64, u64),
    cookies: HashSet<u64>,
}

struct KeepFewer {
    way: ThinRule,
    events: Vec<bool>,
    totals: ByStream<u64>,
    cookies: HashSet<u64>,
    streams: ByStream<Stream>,
    kept: u64,
    dropped: u64,
}

impl ThinArgs {
    fn way(&self) -> Option<ThinRule> {
        let fraction = self.fraction.map(|part| ThinRule::Fraction(part, self.seed));
        self.every.map(ThinRule::Every).or(self.rate.map(ThinRule::Rate)).or(fraction)
    }
}

impl ThinRule {
    /// Counts a sample, and returns true if it is kept.
    fn keeps(self, stream: &mut Stream, (event, cpu): StreamId, time: u64) -> bool {
        stream.seen += 1;
        match self {
            ThinRule::Every(every) => stream.seen.is_multiple_of(every),
            ThinRule::Rate(rate) => {
                let interval = Some(u128::from(time) * u128::from(rate) / 1_000_000_000);
                std::mem::replace(&mut stream.interval, interval) != interval
            }
            ThinRule::Fraction(part, seed) => {
                let cpu = cpu.map_or(0, |cpu| u64::from(cpu) + 1);
                let mixed =
                    [event as u64, cpu, stream.seen].into_iter().fold(seed, |mix, next| random(mix ^ next));
                u128::from(mixed) * u128::from(part.denominator) < u128::from(part.numerator) << 64
            }
        }
    }

    fn period_of(self, attr: &Attr) -> u64 {
        let period = attr.sample_period;
        let times = |up: u64, down: u64| {
            let product = u128::from(period) * u128::from(up) + u128::from(down) / 2;
            u64::try_from(product / u128::from(down)).unwrap_or(u64::MAX)
        };
        match (self, attr.freq()) {
            _ if period == 0 => 0,
            (ThinRule::Every(every), true) => times(1, every).max(1),
            (ThinRule::Every(every), false) => times(every, 1),
            (ThinRule::Rate(rate), true) => period.min(rate),
            (ThinRule::Rate(_), false) => period,
            (ThinRule::Fraction(part, _), true) => times(part.numerator, part.denominator).max(1),
            (ThinRule::Fraction(part, _), false) => times(part.denominator, part.numerator),
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): the next of a sequence of random numbers.
fn random(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn stream_of(record: &Record<'_>, layouts: &Layouts) -> Option<StreamId> {
    let event = layouts.event_of(record).filter(|_| record.kind() == RecordType::SAMPLE)?;
    Some((event, layouts.layout_of(record)?.cpu(record)))
}

/// True if samples of the event are dropped. A sample may belong to no event of the header.
fn is_thinned(events: &[bool], event: usize) -> bool {
    events.get(event) == Some(&true)
}

fn has_period(attr: &Attr) -> bool {
    attr.sample_type & st::PERIOD != 0
}

impl Pass for Thin {
    fn name(&self) -> &'static str {
        ThinArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let records = Kinds::SAMPLES;
        let surveys = vec![Kinds::of(&[RecordType::SAMPLE, RecordType::EVENT_UPDATE])];
        Needs { records, surveys, decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let Some(way) = self.args.way() else {
            return Stage::begin(|_| bail!("nothing to thin: give --every, --rate or --fraction"));
        };
        let (streams, events, names) = Default::default();
        Stage::survey_in_order(Gather { way, args: self.args, streams, events, names })
    }
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { times: (u64::MAX, 0), cookies: HashSet::new() }
    }
}

impl Samples {
    fn add(&mut self, time: Option<u64>, cookie: Option<u64>) {
        if let Some(time) = time {
            self.times = (self.times.0.min(time), self.times.1.max(time));
        }
        self.cookies.extend(cookie);
    }

    fn absorb(&mut self, other: Samples) {
        self.times = (self.times.0.min(other.times.0), self.times.1.max(other.times.1));
        self.cookies.extend(other.cookies);
    }
}

impl Survey for Gather {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
        let Some(id) = stream_of(record, layouts) else { return Ok(()) };
        let time = layouts.time(record).map(Time::ns);
        let (stream, last) = self.streams.entry(id).or_default();
        let keeps = self.way.keeps(stream, id, time.unwrap_or(0));
        let cookie = layouts.layout_of(record).and_then(|layout| deferred_cookie(record, layout));
        *last = Last { time: time.or(last.time), cookie };
        if self.events.len() <= id.0 {
            self.events.resize(id.0 + 1, EventSamples::default());
        }
        let found = &mut self.events[id.0];
        found.all.add(time, cookie);
        if keeps {
            found.kept.add(time, cookie);
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(move |begin| Ok(Stage::rewrite_in_order(self.plan(begin)?))))
    }
}

impl Gather {
    /// Decides which events are thinned, and changes their attrs and feature SAMPLE_TIME.
    fn plan(mut self, session: &mut Begin<'_>) -> Result<KeepFewer> {
        let events = self.thinned(session)?;
        let attrs: Vec<Attr> = session.events.iter().map(|event| *event.attr()).collect();
        for (&(event, _), &(_, last)) in &self.streams {
            // The last sample of a stream is kept.
            if attrs.get(event).is_some_and(has_period) {
                self.events[event].kept.add(last.time, last.cookie);
            }
        }
        let mut stay = Samples::default();
        for (number, found) in self.events.into_iter().enumerate() {
            stay.absorb(if is_thinned(&events, number) { found.kept } else { found.all });
        }
        session.set_sample_time(stay.times);
        let way = self.way;
        change_attr_of_each(session, |number, raw, endian| {
            if is_thinned(&events, number) {
                let period = way.period_of(&Attr::decode(raw, endian));
                set_sample_period(raw, period, endian);
            }
        });
        let totals =
            self.streams.into_iter().filter(|((event, _), _)| attrs.get(*event).is_some_and(has_period));
        let totals = totals.map(|(id, (stream, _))| (id, stream.seen)).collect();
        let cookies = stay.cookies;
        Ok(KeepFewer { way, events, totals, cookies, streams: ByStream::default(), kept: 0, dropped: 0 })
    }

    fn thinned(&self, session: &mut Begin<'_>) -> Result<Vec<bool>> {
        let events = session.events.clone();
        let names = names_of(&events, session.features(), &[], session.endian, &self.names);
        let thinned = match &self.args.event[..] {
            [] => vec![true; names.len()],
            chosen => named_events(&names, chosen, &mut session.report),
        };
        if let ThinRule::Rate(_) = self.way {
            let sampled: BTreeSet<usize> = self.streams.keys().map(|(event, _)| *event).collect();
            let refused = |event: usize, what| {
                let name = String::from_utf8_lossy(&names[event].name);
                format!("{}: samples of {name} have no {what}: use --every", session.name)
            };
            for event in sampled.into_iter().filter(|&event| is_thinned(&thinned, event)) {
                let attr = events[event].attr();
                ensure!(
                    attr.sample_type & st::TIME != 0,
                    "{}",
                    refused(event, "time, so their rate is unknown")
                );
                ensure!(has_period(attr), "{}", refused(event, "period that could be made longer"));
            }
        }
        Ok(thinned)
    }
}

impl Rewrite for KeepFewer {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        if let Some(deferred) = CallchainDeferred::of(&record) {
            if self.cookies.contains(&deferred.cookie) {
                return out.keep(record);
            }
            out.drop_record(record);
            return Ok(());
        }
        let layouts = out.layouts();
        let id = stream_of(&record, layouts);
        let thinned = id.filter(|&(event, _)| is_thinned(&self.events, event));
        let Some((id, layout)) = thinned.zip(layouts.layout_of(&record)) else {
            self.kept += u64::from(record.kind() == RecordType::SAMPLE);
            return out.keep(record);
        };
        let stream = self.streams.entry(id).or_default();
        let keeps = self.way.keeps(stream, id, layout.recorded_time(&record).unwrap_or(0));
        let period = layout.period(&record);
        let sum = stream.owed.saturating_add(period.unwrap_or(0));
        if !keeps && self.totals.get(&id) != Some(&stream.seen) {
            stream.owed = sum;
            self.dropped += 1;
            out.drop_record(record);
            return Ok(());
        }
        stream.owed = 0;
        self.kept += 1;
        if period == Some(sum) || period.is_none() {
            return out.keep(record);
        }
        out.patch(record, |bytes| {
            let _ = layout.set_period(bytes, sum, record.endian());
        })
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let all = counted(self.kept + self.dropped, "sample", "samples");
        session.report.say(Level::Info, format!("kept {} of {all}", count(self.kept)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rule: ThinRule, times: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let mut stream = Stream::default();
        let keeps =
            times.into_iter().map(|time| rule.keeps(&mut stream, (0, None), time)).collect::<Vec<_>>();
        keeps.iter().enumerate().filter(|(_, kept)| **kept).map(|(number, _)| number).collect()
    }

    #[test]
    fn every_nth_sample_or_the_first_of_each_interval_is_kept() {
        assert_eq!(kept(ThinRule::Every(1), [0; 3]), [0, 1, 2]);
        assert_eq!(kept(ThinRule::Every(3), [0; 8]), [2, 5]);
        // At 1000 Hz an interval is a millisecond; time going backwards begins another one, too.
        let times = [0, 999_999, 1_000_000, 1_500_000, 3_000_000, 2_999_999, 2_999_999];
        assert_eq!(kept(ThinRule::Rate(1000), times), [0, 2, 4, 5]);
        assert_eq!(kept(ThinRule::Rate(1_000_000_000), [u64::MAX - 1, u64::MAX, u64::MAX]), [0, 1]);
    }

    #[test]
    fn a_fraction_keeps_about_its_part_and_another_choice_for_another_seed_or_cpu() {
        let part = |numerator, denominator| Factor { numerator, denominator };
        let of = |part, seed| kept(ThinRule::Fraction(part, seed), [0; 10_000]);
        assert_eq!((of(part(0, 1), 0).len(), of(part(1, 1), 0).len()), (0, 10_000));
        let quarter = of(part(1, 4), 0);
        assert!((2400..2600).contains(&quarter.len()), "{}", quarter.len());
        assert!(quarter == of(part(1, 4), 0) && quarter != of(part(1, 4), 1));
        // A larger part includes a smaller one.
        assert!(of(part(1, 8), 0).iter().all(|sample| quarter.contains(sample)));
        let on = |cpu| {
            let mut stream = Stream::default();
            [(); 64].map(|()| ThinRule::Fraction(part(1, 2), 0).keeps(&mut stream, (0, cpu), 0))
        };
        assert!(on(None) != on(Some(0)) && on(Some(0)) != on(Some(1)));
    }

    #[test]
    fn the_attr_gets_the_longer_period_or_the_lower_frequency() {
        let fraction = ThinRule::Fraction(Factor { numerator: 1, denominator: 3 }, 0);
        for (rule, period, frequency, expected) in [
            (ThinRule::Every(10), 1000, false, 10_000),
            (ThinRule::Every(10), 4999, true, 500),
            (ThinRule::Every(10_000), 4999, true, 1),
            (ThinRule::Every(10), u64::MAX / 2, false, u64::MAX),
            (ThinRule::Rate(99), 1000, false, 1000),
            (ThinRule::Rate(99), 4999, true, 99),
            (ThinRule::Rate(9999), 4999, true, 4999),
            (fraction, 1000, false, 3000),
            (fraction, 1000, true, 333),
            (fraction, 1, true, 1),
            (fraction, 0, false, 0),
        ] {
            let mut attr = Attr::default();
            // Bit 10 is `freq`.
            (attr.sample_period, attr.flags) = (period, u64::from(frequency) << 10);
            assert_eq!(rule.period_of(&attr), expected, "{rule:?} {period} {frequency}");
        }
    }

    #[test]
    fn periods_of_samples_left_out_are_added_to_the_next_kept_one_and_the_last_stays() {
        use crate::support::tiny::{FIELDS, file, ran, sample};
        let samples: Vec<_> = (1..=7).map(|at| sample(7, 100 * at, at)).collect();
        let mut thinned = ran("thin:every=3", file(FIELDS, 0, &samples, &[])).unwrap();
        let kept: Vec<_> = thinned.bodies().into_iter().map(|body| (body[2], body[3])).collect();
        assert_eq!(kept, [(300, 1 + 2 + 3), (600, 4 + 5 + 6), (700, 7)]);
        assert_eq!(thinned.said, ["Info: kept 3 of 7 samples"]);
        assert_eq!(thinned.recording.events[0].attr().sample_period, 3_000_000);
        // Without periods, the last sample need not stay, and only the attr's period becomes longer.
        let samples: Vec<_> = samples
            .iter()
            .map(|sample| crate::support::tiny::record(9, 2, &[1, 7, sample[24].into()]))
            .collect();
        let mut thinned = ran("thin:every=3", file(FIELDS & !st::PERIOD, 0, &samples, &[])).unwrap();
        assert_eq!(thinned.bodies().len(), 2);
        for (chain, part) in [
            ("thin", "nothing to thin"),
            ("thin:rate=5", "have no period that could be made longer: use --every"),
            ("thin:fraction=1.5", "a part of the samples is at most 1"),
        ] {
            let error = ran(chain, file(FIELDS & !st::PERIOD, 0, &samples, &[])).err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_span_of_samples_grows_with_each_time() {
        let mut samples = Samples::default();
        for (time, cookie) in [(Some(5), None), (Some(3), Some(9)), (None, None), (Some(4), Some(8))] {
            samples.add(time, cookie);
        }
        assert_eq!((samples.times, samples.cookies.len()), ((3, 5), 2));
        let mut all = Samples::default();
        all.absorb(samples.clone());
        all.absorb(Samples { times: (2, 4), cookies: [8, 7].into() });
        assert_eq!((all.times, all.cookies), ((2, 5), [7, 8, 9].into()));
        assert!(is_thinned(&[true, false], 0) && !is_thinned(&[true, false], 1) && !is_thinned(&[true], 1));
    }
}
