//! Compares the weights of functions in the runs of two programs, and reports which differences exceed noise.

use std::collections::BTreeMap;

use perfx_format::Time;
use perfx_look::json::Decimal;
use perfx_look::render::readable;
use schemars::JsonSchema;
use serde::Serialize;

use crate::functions::NamedStacks;
use crate::noise::{NORMAL, Spread, beyond_noise, sampling, student};
use crate::stacks::{Row, Stacks, Weight};

/// The share of the error spent on the sum of all samples. A general slowdown shows there long before it does
/// in functions, so functions need the larger share.
const ERROR_OF_ALL: f64 = 1.0 / 3.0;

/// Functions with fewer samples per run do not show how much functions vary: single samples would dominate.
const SAMPLES_TO_VARY: f64 = 10.0;

/// The probability that a change is within its margin, and that a detectable change is found.
const CONFIDENCE: f64 = 0.95;
const POWER: f64 = 0.8;

/// The minimum number of turns to compare by their differences.
const TURNS: usize = 4;

/// Differences are used if the smallest change they find is at most this fraction of that of whole runs.
const PAYS: f64 = 0.8;

/// The changes of the sampled functions, as [`compare()`] returns it.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileDiff {
    /// True if something changed by more than noise. With one run a side, only if a threshold was given
    pub changed: bool,
    /// The noise that changes were compared with
    pub noise: Noise,
    /// Least change that counts, percent
    pub threshold: f64,
    /// True if functions also count the samples in the functions that they called
    pub total: bool,
    /// Shares of runs were compared, and not their weights
    pub shares: bool,
    /// Weights are times, ns
    pub time: bool,
    /// The event whose number is the work of a run; null if each run has the same work
    pub per: Option<String>,
    /// The runs of the sides took turns, so that each was compared with the other one of its turn
    pub paired: bool,
    /// One side
    pub a: ProfileSide,
    /// The other side
    pub b: ProfileSide,
    /// All samples
    pub all: Change,
    /// By comm, those that changed by the threshold or more, the largest change first; they are not tested
    pub comms: Vec<CommChange>,
    /// Functions that changed by the threshold or more: those beyond noise, then the others, the largest change first
    pub functions: Vec<FunctionChange>,
}

/// The noise that a change was compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// The noise of sampling: there is one run a side
    Sampling,
    /// The noise of sampling, and that between runs
    SamplingAndRuns,
}

/// The samples of a side.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileSide {
    /// The recordings
    pub runs: usize,
    /// The names of the events
    pub events: Vec<String>,
    /// Samples of all runs
    pub samples: u64,
    /// Sum of their periods, or of tracepoints their number
    pub weight: Decimal<u64>,
}

/// The average weight of a part of the samples in a run of each side, or per unit of work.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Change {
    /// Weight in a run of one side
    pub a: f64,
    /// Weight in a run of the other side
    pub b: f64,
    /// Share of the runs of one side, percent
    pub share_a: f64,
    /// Share of the runs of the other side, percent
    pub share_b: f64,
    /// Change of the weight, percent of all that a run of the first side weighs; or of the share, percentage points
    pub change: f64,
    /// Change of the weight, or of the share, percent of that of the first side; null if that is 0
    pub relative: Option<f64>,
    /// Half of the 95 % confidence interval of `relative`; null if that is null, or was not tested
    pub margin: Option<f64>,
    /// The least `relative` that 8 of 10 such comparisons find; null as `margin`
    pub detectable: Option<f64>,
    /// The probability of such a change by noise alone; null if it was not tested
    pub probability: Option<f64>,
    /// True if it is more than noise, and not less than the threshold
    pub beyond_noise: bool,
}

/// How the weight of the threads with a name changed.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct CommChange {
    /// The name
    pub comm: String,
    /// Change of the weight
    pub change: Change,
}

/// How a function changed.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct FunctionChange {
    /// Its name
    pub function: String,
    /// The path of its file, in the first recording that has it; null if it is unknown
    pub file: Option<String>,
    /// Change of the weight
    pub change: Change,
}

/// Options for comparing.
#[derive(Clone, PartialEq, Debug)]
pub struct ChangeOptions {
    /// Smaller changes do not count, percent.
    pub threshold: f64,
    /// The probability of reporting any change if there is none (family-wise error rate).
    pub error: f64,
    /// With one run per side, report a change that reaches the threshold and that sampling does not explain.
    pub trusts_one_run: bool,
    /// Functions include their callees.
    pub total: bool,
    /// Compare shares, not weights.
    pub shares: bool,
    /// The event that counts units of work.
    pub per: Option<String>,
}

/// The samples of one recording.
#[derive(Clone, Default, Debug)]
pub struct Run {
    /// The counted events.
    pub events: Vec<String>,
    /// True if weights are times, ns.
    pub time: bool,
    /// Their samples.
    pub samples: u64,
    /// The units of work; `None` if every run does the same.
    pub work: Option<u64>,
    /// The time of the first sample.
    pub start: Option<Time>,
    weight: u64,
    squares: f64,
    /// By function number; functions found later are missing.
    functions: Vec<u64>,
    comms: BTreeMap<Box<[u8]>, u64>,
}

impl Run {
    /// Counts the samples of a recording, with the nodes of its stacks. `count` returns `None` to skip a row.
    pub fn new(
        named: &NamedStacks,
        stacks: &Stacks,
        placed: &[u32],
        total: bool,
        count: impl Fn(&Row, &Weight) -> Option<u64>,
    ) -> Run {
        let mut run = Run { start: stacks.span().map(|(first, _)| first), ..Run::default() };
        for (row, of) in &stacks.rows {
            let Some(weight) = count(row, of) else { continue };
            run.samples += of.samples;
            run.weight = run.weight.saturating_add(weight);
            // The periods of samples in one row are assumed to be equal.
            run.squares += (weight as f64).powi(2) / of.samples.max(1) as f64;
            let comm = stacks.labels.get_index(row.label as usize).and_then(|label| label.comm.clone());
            if let Some(comm) = comm {
                let sum = run.comms.entry(comm).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
        let of_nodes = named.of_nodes(stacks, placed, |row, weight| {
            count(row, weight).map_or(Weight::default(), |period| Weight { samples: weight.samples, period })
        });
        let functions = named.totals(of_nodes).into_iter();
        run.functions =
            functions.map(|function| if total { function.total } else { function.own }.period).collect();
        run
    }

    fn function(&self, at: usize) -> u64 {
        self.functions.get(at).copied().unwrap_or(0)
    }

    fn units(&self) -> f64 {
        self.work.map_or(1.0, |work| work as f64)
    }
}

type PartOf<'p> = &'p dyn Fn(&Run) -> u64;

struct Sides<'r> {
    /// By time, if they took turns.
    runs: [Vec<&'r Run>; 2],
    paired: bool,
    options: &'r ChangeOptions,
    units: [f64; 2],
    /// The average weight of all samples in a run, or per unit of work.
    means: [f64; 2],
    /// In the sense of [`sampling`].
    of_sample: [f64; 2],
}

/// Compares the runs of two sides, each with at least one.
pub fn compare(named: &NamedStacks, runs: [&[Run]; 2], options: &ChangeOptions) -> ProfileDiff {
    let sides = Sides::new(runs, options);
    let mut all = sides.change(&|run| run.weight);
    let mut functions: Vec<FunctionChange> = (0..)
        .zip(&named.functions)
        .map(|(at, function)| FunctionChange {
            function: function.name.to_string(),
            file: function.file.map(|file| named.files[file as usize].path.clone()),
            change: sides.change(&|run| run.function(at)),
        })
        .collect();
    sides.judge(&mut all, &mut functions);
    functions.retain(|function| sides.counts(&function.change));
    functions.sort_by(|one, other| {
        let by_size = other.change.change.abs().total_cmp(&one.change.change.abs());
        let first = other.change.beyond_noise.cmp(&one.change.beyond_noise).then(by_size);
        first.then_with(|| (&one.function, &one.file).cmp(&(&other.function, &other.file)))
    });
    let changed = all.beyond_noise || functions.iter().any(|function| function.change.beyond_noise);
    let noise = match runs.iter().any(|runs| runs.len() > 1) {
        true => Noise::SamplingAndRuns,
        false => Noise::Sampling,
    };
    ProfileDiff {
        changed: changed && (noise == Noise::SamplingAndRuns || options.trusts_one_run),
        noise,
        threshold: options.threshold,
        total: options.total,
        shares: options.shares,
        time: runs.iter().flat_map(|runs| runs.iter()).all(|run| run.time),
        per: options.per.clone(),
        paired: sides.paired,
        a: side(runs[0]),
        b: side(runs[1]),
        all,
        comms: sides.comms(),
        functions,
    }
}

fn side(runs: &[Run]) -> ProfileSide {
    let mut events: Vec<String> = Vec::new();
    for event in runs.iter().flat_map(|run| &run.events) {
        if !events.contains(event) {
            events.push(event.clone());
        }
    }
    let weight = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.weight));
    let samples = runs.iter().map(|run| run.samples).sum();
    ProfileSide { runs: runs.len(), events, samples, weight: Decimal(weight) }
}

/// To three digits: further ones would depend on the processor.
fn rounded(number: f64) -> f64 {
    format!("{number:.2e}").parse().unwrap_or(number)
}

/// True if each two successive runs are of both sides.
fn take_turns(runs: [&[Run]; 2]) -> bool {
    let starts = (0..2).flat_map(|side| runs[side].iter().map(move |run| (run.start, side)));
    let mut starts: Vec<(Option<Time>, usize)> = starts.collect();
    starts.sort_unstable();
    let is_apart = starts.windows(2).all(|two| two[0].0 < two[1].0);
    let are_turns = starts.chunks(2).all(|turn| turn.len() == 2 && turn[0].1 != turn[1].1);
    starts.len() >= 2 * TURNS && starts[0].0.is_some() && is_apart && are_turns
}

impl<'r> Sides<'r> {
    fn new(runs: [&'r [Run]; 2], options: &'r ChangeOptions) -> Sides<'r> {
        let sum = |of: fn(&Run) -> f64| runs.map(|runs| runs.iter().map(of).sum::<f64>());
        let (weights, squares) = (sum(|run| run.weight as f64), sum(|run| run.squares));
        let of_sample =
            [0, 1].map(|side| if weights[side] > 0.0 { squares[side] / weights[side] } else { 0.0 });
        let units = sum(Run::units);
        let take_turns = take_turns(runs);
        let mut runs = runs.map(|runs| runs.iter().collect::<Vec<_>>());
        if take_turns {
            runs.iter_mut().for_each(|runs| runs.sort_by_key(|run| run.start));
        }
        let mut sides = Sides { runs, paired: false, options, units, means: [0.0; 2], of_sample };
        sides.means = sides.averages(&|run| run.weight);
        sides.paired = take_turns && sides.turns_differ();
        sides
    }

    /// True if differences within turns find smaller changes of the total. That depends on how much it varies
    /// between turns: differences have only half as many degrees of freedom.
    fn turns_differ(&self) -> bool {
        let [a, b] = self.averages_of_runs(&|run| run.weight);
        let runs = [a.len(), b.len()];
        let found =
            |spread: Option<Spread>| spread.map(|spread| spread.difference(runs, &[1.0 - CONFIDENCE]));
        let [turns, all] = [Spread::of_turns([&a, &b]), Spread::of([&a, &b])].map(found);
        turns.zip(all).is_some_and(|(turns, all)| turns < PAYS * all)
    }

    fn averages_of_runs(&self, part: PartOf<'_>) -> [Vec<f64>; 2] {
        self.runs.each_ref().map(|runs| runs.iter().map(|run| part(run) as f64 / run.units()).collect())
    }

    fn averages(&self, part: PartOf<'_>) -> [f64; 2] {
        self.averages_of_runs(part).map(|weights| weights.iter().sum::<f64>() / weights.len() as f64)
    }

    /// The weight of a part in each run, or per unit of work; with shares, a fraction.
    fn values(&self, part: PartOf<'_>) -> [Vec<f64>; 2] {
        let value = |run: &&Run| match self.options.shares {
            true if run.weight == 0 => 0.0,
            true => part(run) as f64 / run.weight as f64,
            false => part(run) as f64 / run.units(),
        };
        self.runs.each_ref().map(|runs| runs.iter().map(value).collect())
    }

    fn change(&self, part: PartOf<'_>) -> Change {
        let [a, b] = self.averages(part);
        let percent = |part: f64, all: f64| if all > 0.0 { part * 100.0 / all } else { 0.0 };
        let [share_a, share_b] = [percent(a, self.means[0]), percent(b, self.means[1])];
        let [before, after] = if self.options.shares { [share_a, share_b] } else { [a, b] };
        Change {
            a,
            b,
            share_a,
            share_b,
            change: if self.options.shares { share_b - share_a } else { percent(b - a, self.means[0]) },
            relative: (before > 0.0).then(|| percent(after - before, before)),
            margin: None,
            detectable: None,
            probability: None,
            beyond_noise: false,
        }
    }

    /// The number of samples, in all runs of a side, that weigh this much per run or unit of work.
    fn samples(&self, side: usize, weight: f64) -> f64 {
        match self.of_sample[side] {
            0.0 => 0.0,
            of_sample => weight * self.units[side] / of_sample,
        }
    }

    fn spread(&self, [a, b]: &[Vec<f64>; 2]) -> Option<Spread> {
        if self.paired { Spread::of_turns([a, b]) } else { Spread::of([a, b]) }
    }

    /// The change by noise, percent of the first side's weight: the sum of those less likely than each
    /// probability.
    fn by_noise(&self, change: &Change, spread: Option<Spread>, probabilities: &[f64]) -> Option<f64> {
        let all = if self.options.shares { self.means[0] } else { 1.0 };
        let before = change.relative.map(|_| change.a / all)?;
        let runs = self.runs.each_ref().map(Vec::len);
        let by_runs = spread.map_or(0.0, |spread| spread.difference(runs, probabilities) / before);
        // The relative variance of a number of samples is its inverse.
        let found = [self.samples(0, change.a), self.samples(1, change.b).max(1.0)];
        let ratio = change.relative? / 100.0 + 1.0;
        let variance = 1.0 / found[0] + ratio.powi(2) / found[1];
        let sum: f64 = probabilities.iter().map(|&probability| student(NORMAL, probability)).sum();
        Some(rounded(100.0 * by_runs.max(sum * variance.sqrt())))
    }

    /// The larger of the probabilities by both noises: a change must exceed both.
    fn probability(&self, change: &Change, by_runs: Option<f64>) -> f64 {
        let found = [self.samples(0, change.a), self.samples(1, change.b)];
        let exposures =
            [0, 1].map(|side| self.samples(side, if self.options.shares { self.means[side] } else { 1.0 }));
        let by_sampling = sampling(found, exposures);
        rounded(by_runs.map_or(by_sampling, |by_runs| by_runs.max(by_sampling)))
    }

    fn counts(&self, change: &Change) -> bool {
        change.change != 0.0 && change.change.abs() >= self.options.threshold
    }

    /// True if both sides together reach the threshold: else no change can, and a test would only cost error.
    fn can_count(&self, change: &Change) -> bool {
        let both = match self.options.shares {
            true => change.share_a + change.share_b,
            false if self.means[0] > 0.0 => (change.a + change.b) * 100.0 / self.means[0],
            false => 0.0,
        };
        both > 0.0 && both >= self.options.threshold
    }

    /// Tests the total and the functions. Functions get error in proportion to their shares of both sides, so
    /// that many small ones do not hide changes of large ones.
    fn judge(&self, all: &mut Change, functions: &mut [FunctionChange]) {
        let mut parts = Vec::new();
        for (at, function) in functions.iter_mut().enumerate() {
            if self.can_count(&function.change) {
                parts.push((self.values(&|run| run.function(at)), &mut function.change));
            }
        }
        let typical = self.typical(&parts);
        let (mut tests, mut tested) = (Vec::new(), Vec::new());
        let test = |values: &[Vec<f64>; 2], change: &mut Change, typical: Option<f64>| {
            let spread = self.spread(values);
            let spread = spread.map(|spread| typical.map_or(spread, |typical| spread.moderated(typical)));
            let by_runs = spread.map(|spread| spread.between([&values[0], &values[1]]));
            let probability = self.probability(change, by_runs);
            change.probability = Some(probability);
            (probability, spread)
        };
        for (values, change) in parts {
            let (probability, spread) = test(&values, change, typical);
            tests.push((probability, change.share_a + change.share_b));
            tested.push((change, spread));
        }
        if !self.options.shares {
            let (probability, spread) = test(&self.values(&|run| run.weight), all, None);
            let of_functions: f64 = tests.iter().map(|(_, share)| share).sum();
            let share = of_functions * ERROR_OF_ALL / (1.0 - ERROR_OF_ALL);
            tests.push((probability, if share > 0.0 { share } else { 1.0 }));
            tested.push((all, spread));
        }
        let error = self.options.error;
        let weights: f64 = tests.iter().map(|(_, weight)| weight).sum();
        let beyond = beyond_noise(&tests, error);
        for (((change, spread), beyond), (_, weight)) in tested.into_iter().zip(beyond).zip(&tests) {
            change.beyond_noise = beyond && self.counts(change);
            // The total, and functions that are shown.
            if !self.counts(change) && change.share_a < 100.0 {
                continue;
            }
            change.margin = self.by_noise(change, spread, &[1.0 - CONFIDENCE]);
            // If nothing else changed, Holm's method tests with this error.
            let own = error * weight / weights;
            let least = self.options.threshold * 100.0 / change.share_a;
            let found = self.by_noise(change, spread, &[own, 2.0 * (1.0 - POWER)]);
            change.detectable = found.map(|found| rounded(found.max(least)));
        }
    }

    fn typical(&self, functions: &[([Vec<f64>; 2], &mut Change)]) -> Option<f64> {
        let runs = self.runs[0].len() + self.runs[1].len();
        let relative = |(values, change): &([Vec<f64>; 2], &mut Change)| {
            let samples = self.samples(0, change.a) + self.samples(1, change.b);
            Some(self.spread(values).filter(|_| samples >= SAMPLES_TO_VARY * runs as f64)?.relative())
        };
        let mut relative: Vec<f64> = functions.iter().filter_map(relative).collect();
        relative.sort_by(f64::total_cmp);
        let middle = |at: usize| relative.get(at).copied();
        Some(f64::midpoint(middle(relative.len().saturating_sub(1) / 2)?, middle(relative.len() / 2)?))
    }

    fn comms(&self) -> Vec<CommChange> {
        let names: BTreeMap<_, ()> = self
            .runs
            .iter()
            .flat_map(|runs| runs.iter())
            .flat_map(|run| &run.comms)
            .map(|(name, _)| (name, ()))
            .collect();
        let change = |name: &[u8]| self.change(&|run| run.comms.get(name).copied().unwrap_or(0));
        let mut comms: Vec<CommChange> =
            names.keys().map(|name| CommChange { comm: readable(name), change: change(name) }).collect();
        comms.retain(|comm| self.counts(&comm.change));
        // The sort is stable: equal changes stay in order of names.
        comms.sort_by(|one, other| other.change.change.abs().total_cmp(&one.change.change.abs()));
        comms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::{CodePlace, FunctionId};

    /// The weights of functions in percent of a program with 5,000 samples: few large ones, many small ones.
    const PERCENT: [u32; 29] =
        [24, 18, 12, 10, 8, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    /// The function of 10 % that becomes slower, and the one that may vary.
    const SLOWED: usize = 3;
    const VARYING: usize = 1;

    /// Pseudo-random numbers (xorshift), the same in each run.
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn about_one(&mut self, deviation: f64) -> f64 {
            let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            1.0 + deviation * normal
        }
    }

    /// How much a program varies between runs, besides sampling, and how much slower it is.
    #[derive(Clone, Copy)]
    struct Program {
        all: f64,
        slowed: f64,
        varying: f64,
    }

    const SAME: Program = Program { all: 1.0, slowed: 1.0, varying: 0.0 };

    impl Program {
        fn run(self, random: &mut Random) -> Run {
            let speed = self.all * random.about_one(0.01);
            let mut below = Vec::new();
            let mut sum = 0.0;
            for (function, percent) in PERCENT.into_iter().enumerate() {
                let slower = if function == SLOWED { self.slowed } else { 1.0 };
                let varies = if function == VARYING { self.varying } else { 0.02 };
                sum += f64::from(percent) * slower * speed * random.about_one(varies).max(0.0);
                below.push(sum);
            }
            let mut run = Run { functions: vec![0; PERCENT.len()], ..Run::default() };
            run.samples = (sum * 50.0) as u64;
            for _ in 0..run.samples {
                let at = random.uniform() * sum;
                run.functions[below.partition_point(|&below| below <= at)] += 1;
            }
            run.weight = run.samples;
            run.squares = run.samples as f64;
            run
        }
    }

    fn named() -> NamedStacks {
        let mut named = NamedStacks::new(2);
        for number in 0..PERCENT.len() {
            let name = format!("f{number}").into();
            let place = CodePlace::User;
            named.functions.insert(FunctionId {
                name,
                file: None,
                place,
                inlined: false,
                nameless: false,
                group: None,
            });
        }
        named
    }

    const OPTIONS: ChangeOptions = ChangeOptions {
        threshold: 1.0,
        error: 0.05,
        trusts_one_run: false,
        total: false,
        shares: false,
        per: None,
    };

    fn compared(runs: usize, [a, b]: [Program; 2], shares: bool) -> Vec<ProfileDiff> {
        let (named, mut random) = (named(), Random(0x9e37_79b9_7f4a_7c15));
        let side = |program: Program, random: &mut Random| {
            (0..runs).map(|_| program.run(random)).collect::<Vec<_>>()
        };
        let options = ChangeOptions { shares, ..OPTIONS };
        (0..100)
            .map(|_| {
                let (a, b) = (side(a, &mut random), side(b, &mut random));
                compare(&named, [&a, &b], &options)
            })
            .collect()
    }

    /// 100 comparisons of programs whose runs take turns, on a machine whose speed varies between turns.
    fn compared_in_turns(runs: u64, [a, b]: [Program; 2], varying: f64) -> Vec<ProfileDiff> {
        let (named, mut random) = (named(), Random(0x9e37_79b9_7f4a_7c15));
        let mut turn = |number: u64| {
            let speed = random.about_one(varying);
            let mut run = |program: Program, start: u64| {
                let program = Program { all: program.all * speed, ..program };
                Run { start: Time::from_ns(start), ..program.run(&mut random) }
            };
            // The sides need not always have the same order.
            (run(a, 10 * number + number % 2), run(b, 10 * number + (number + 1) % 2))
        };
        let compare_turns = |_| {
            let (mut a, b): (Vec<Run>, Vec<Run>) = (0..runs).map(&mut turn).unzip();
            a.reverse();
            compare(&named, [&a, &b], &OPTIONS)
        };
        (0..100).map(compare_turns).collect()
    }

    fn count(found: &[ProfileDiff], is: impl Fn(&ProfileDiff) -> bool) -> usize {
        found.iter().filter(|found| is(found)).count()
    }

    fn has_slowed(found: &ProfileDiff) -> bool {
        let is = |function: &FunctionChange| function.function == format!("f{SLOWED}");
        found.functions.iter().any(|function| is(function) && function.change.beyond_noise)
    }

    /// At most 5 of 100 comparisons err, also if one large function varies much between runs.
    #[test]
    fn equal_programs_have_rarely_changed() {
        for (runs, shares, varying) in [(2, false, 0.15), (5, false, 0.02), (5, false, 0.15), (5, true, 0.15)]
        {
            let program = Program { varying, ..SAME };
            let changed = count(&compared(runs, [program; 2], shares), |found| found.changed);
            assert!(changed <= 5, "{runs} runs, {varying}: {changed}");
        }
    }

    #[test]
    fn a_function_of_a_tenth_that_became_17_percent_slower_has_changed() {
        let found = compared(5, [SAME, Program { slowed: 1.17, ..SAME }], false);
        let changed = count(&found, has_slowed);
        assert!(changed >= 90, "{changed}");
        let wrong = count(&found, |found| {
            found.functions.iter().filter(|function| function.change.beyond_noise).count()
                > usize::from(has_slowed(found))
        });
        assert!(wrong <= 5, "{wrong}");
    }

    #[test]
    fn a_program_that_became_10_percent_slower_has_changed() {
        let found = compared(5, [SAME, Program { all: 1.1, ..SAME }], false);
        assert_eq!(count(&found, |found| found.changed && found.all.beyond_noise), 100);
        let changed = count(&compared(5, [SAME, Program { all: 1.1, ..SAME }], true), |found| found.changed);
        assert!(changed <= 5, "{changed}");
    }

    #[test]
    fn runs_that_take_turns_are_compared_in_pairs() {
        for (runs, paired) in [(3, false), (4, true), (5, true)] {
            let found = compared_in_turns(runs, [SAME; 2], 0.1);
            let (changed, pairs) =
                (count(&found, |found| found.changed), count(&found, |found| found.paired));
            assert!(
                changed <= 5 && if paired { pairs > 75 } else { pairs == 0 },
                "{runs}: {changed} {pairs}"
            );
        }
        // On a machine with a constant speed, pairs have no advantage.
        let found = compared_in_turns(5, [SAME; 2], 0.0);
        let (changed, pairs) = (count(&found, |found| found.changed), count(&found, |found| found.paired));
        assert!(changed <= 5 && pairs < 40, "{changed} {pairs}");
        let slower = [SAME, Program { all: 1.05, ..SAME }];
        let found = count(&compared_in_turns(5, slower, 0.1), |found| found.all.beyond_noise);
        assert!(found >= 80, "{found}");
    }

    /// The interval contains the change, and a change is found as often as it says.
    #[test]
    fn the_margin_and_the_detectable_change_are_right() {
        let slower = Program { slowed: 1.17, ..SAME };
        let of = |found: &ProfileDiff| {
            found.functions.iter().find(|function| function.function == "f3").map(|f| f.change)
        };
        let found: Vec<Change> = compared(5, [SAME, slower], false).iter().filter_map(of).collect();
        let is_within = |change: &&Change| (change.relative.unwrap() - 17.0).abs() <= change.margin.unwrap();
        let within = found.iter().filter(is_within).count();
        assert!((90..=100).contains(&within), "{within}");
        let mut detectable: Vec<f64> = found.iter().filter_map(|change| change.detectable).collect();
        detectable.sort_by(f64::total_cmp);
        let middle = detectable[detectable.len() / 2];
        let slower = Program { slowed: 1.0 + middle / 100.0, ..SAME };
        let found = count(&compared(5, [SAME, slower], false), has_slowed);
        assert!((65..=95).contains(&found), "{middle}: {found}");
    }

    /// One run per side does not show how much runs differ.
    #[test]
    fn one_run_a_side_is_changed_only_if_that_is_asked_for() {
        let (named, mut random) = (named(), Random(1));
        let mut run = |all| [Program { all, ..SAME }.run(&mut random)];
        let (a, b) = (run(1.0), run(2.0));
        for trusts_one_run in [false, true] {
            let found = compare(&named, [&a, &b], &ChangeOptions { trusts_one_run, ..OPTIONS });
            assert_eq!((found.all.beyond_noise, found.noise), (true, Noise::Sampling));
            assert_eq!(found.changed, trusts_one_run);
        }
    }

    #[test]
    fn runs_without_weight_are_compared() {
        let named = named();
        for weight in [0, 7] {
            let functions = vec![weight];
            let run = Run { samples: 7, weight, squares: weight as f64, functions, ..Run::default() };
            for shares in [false, true] {
                let options = ChangeOptions { shares, threshold: 0.0, ..OPTIONS };
                let sides = [vec![run.clone(); 3], vec![run.clone(); 2]];
                let found = compare(&named, [&sides[0], &sides[1]], &options);
                assert!(!found.changed && found.functions.is_empty());
            }
        }
    }
}
