//! Compares the weights of functions in the runs of two programs, and reports which differences exceed noise.

use std::collections::BTreeMap;

use perfx_look::json::Decimal;
use perfx_look::render::readable;
use schemars::JsonSchema;
use serde::Serialize;

use crate::functions::NamedStacks;
use crate::noise::{Spread, beyond_noise, sampling};
use crate::stacks::{Row, Stacks, Weight};

/// The share of the error spent on the sum of all samples. A general slowdown shows there long before it does in
/// functions, so functions need the larger share.
const ERROR_OF_ALL: f64 = 1.0 / 3.0;

/// The samples per run that a function needs to estimate how much functions vary: with fewer, single samples
/// dominate its variance.
const SAMPLES_TO_VARY: f64 = 10.0;

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

/// The average weight of a part of the samples in a run of each side.
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

/// The options of a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChangeOptions {
    /// The least change that counts, percent.
    pub threshold: f64,
    /// The probability that any change is reported if there is none (family-wise error rate).
    pub error: f64,
    /// With one run a side, report a change if it reaches the threshold and sampling does not explain it.
    pub trusts_one_run: bool,
    /// Functions include what they called.
    pub total: bool,
    /// Shares in place of weights.
    pub shares: bool,
}

/// The samples of one recording.
#[derive(Clone, Default, Debug)]
pub struct Run {
    /// The names of the events that are counted.
    pub events: Vec<String>,
    /// True if weights are times, ns.
    pub time: bool,
    /// Their samples.
    pub samples: u64,
    weight: u64,
    /// The sum of the squares of their periods.
    squares: f64,
    /// By function number; functions found later are missing.
    functions: Vec<u64>,
    comms: BTreeMap<Box<[u8]>, u64>,
}

impl Run {
    /// Counts the samples of a recording, whose stacks are at these nodes. `count` gives the weight of a row,
    /// or `None` to skip it.
    pub fn new(
        named: &NamedStacks,
        stacks: &Stacks,
        placed: &[u32],
        total: bool,
        count: impl Fn(&Row, &Weight) -> Option<u64>,
    ) -> Run {
        let mut run = Run::default();
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
}

/// The weight of a part of the samples in a run.
type PartOf<'p> = &'p dyn Fn(&Run) -> u64;

struct Sides<'r> {
    runs: [&'r [Run]; 2],
    options: ChangeOptions,
    /// The average weight of all samples of a run.
    means: [f64; 2],
    /// The weight of a sample in the sense of [`sampling`].
    of_sample: [f64; 2],
}

/// Compares the runs of two sides, each with at least one.
pub fn compare(named: &NamedStacks, runs: [&[Run]; 2], options: ChangeOptions) -> ProfileDiff {
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

impl<'r> Sides<'r> {
    fn new(runs: [&'r [Run]; 2], options: ChangeOptions) -> Sides<'r> {
        let sum = |of: fn(&Run) -> f64| runs.map(|runs| runs.iter().map(of).sum::<f64>());
        let (weights, squares) = (sum(|run| run.weight as f64), sum(|run| run.squares));
        let means = [0, 1].map(|side| weights[side] / runs[side].len() as f64);
        let of_sample =
            [0, 1].map(|side| if weights[side] > 0.0 { squares[side] / weights[side] } else { 0.0 });
        Sides { runs, options, means, of_sample }
    }

    /// The weight of a part in each run; with shares, a fraction.
    fn values(&self, part: PartOf<'_>) -> [Vec<f64>; 2] {
        let value = |run: &Run| match self.options.shares {
            true if run.weight == 0 => 0.0,
            true => part(run) as f64 / run.weight as f64,
            false => part(run) as f64,
        };
        self.runs.map(|runs| runs.iter().map(value).collect())
    }

    fn change(&self, part: PartOf<'_>) -> Change {
        let weight = |side: usize| self.runs[side].iter().map(|run| part(run) as f64).sum::<f64>();
        let [a, b] = [0, 1].map(|side| weight(side) / self.runs[side].len() as f64);
        let percent = |part: f64, all: f64| if all > 0.0 { part * 100.0 / all } else { 0.0 };
        let [share_a, share_b] = [percent(a, self.means[0]), percent(b, self.means[1])];
        Change {
            a,
            b,
            share_a,
            share_b,
            change: if self.options.shares { share_b - share_a } else { percent(b - a, self.means[0]) },
            probability: None,
            beyond_noise: false,
        }
    }

    /// The number of samples in all runs of a side that weigh this much a run.
    fn samples(&self, side: usize, weight: f64) -> f64 {
        match self.of_sample[side] {
            0.0 => 0.0,
            of_sample => weight * self.runs[side].len() as f64 / of_sample,
        }
    }

    /// The larger of the two noises' probabilities: a change must exceed both noises.
    fn probability(&self, change: &Change, by_runs: Option<f64>) -> f64 {
        let found = [self.samples(0, change.a), self.samples(1, change.b)];
        let exposures =
            [0, 1].map(|side| self.samples(side, if self.options.shares { self.means[side] } else { 1.0 }));
        let by_sampling = sampling(found, exposures);
        // Further digits would depend on the processor.
        let rounded = |probability: f64| format!("{probability:.2e}").parse().unwrap_or(probability);
        rounded(by_runs.map_or(by_sampling, |by_runs| by_runs.max(by_sampling)))
    }

    fn counts(&self, change: &Change) -> bool {
        change.change != 0.0 && change.change.abs() >= self.options.threshold
    }

    /// True if both sides' weights together reach the threshold. Otherwise no change can, so it is not tested
    /// and gets no share of the error.
    fn can_count(&self, change: &Change) -> bool {
        let both = match self.options.shares {
            true => change.share_a + change.share_b,
            false if self.means[0] > 0.0 => (change.a + change.b) * 100.0 / self.means[0],
            false => 0.0,
        };
        both > 0.0 && both >= self.options.threshold
    }

    /// Tests the sum of all and the functions. Functions get the error in proportion to their shares of both
    /// sides, so that many small ones do not hide changes of large ones.
    fn judge(&self, all: &mut Change, functions: &mut [FunctionChange]) {
        let mut parts = Vec::new();
        for (at, function) in functions.iter_mut().enumerate() {
            if self.can_count(&function.change) {
                parts.push((self.values(&|run| run.function(at)), &mut function.change));
            }
        }
        let typical = self.typical(&parts);
        let mut tests = Vec::new();
        for (values, change) in &mut parts {
            let values = [&*values[0], &*values[1]];
            let spread = Spread::of(values);
            let spread = spread.map(|spread| typical.map_or(spread, |typical| spread.moderated(typical)));
            let probability = self.probability(change, spread.map(|spread| spread.between(values)));
            change.probability = Some(probability);
            tests.push((probability, change.share_a + change.share_b));
        }
        let mut changes: Vec<&mut Change> = parts.into_iter().map(|(_, change)| change).collect();
        if !self.options.shares {
            let [a, b] = self.values(&|run| run.weight);
            let spread = Spread::of([&a, &b]);
            let probability = self.probability(all, spread.map(|spread| spread.between([&a, &b])));
            all.probability = Some(probability);
            let of_functions: f64 = tests.iter().map(|(_, share)| share).sum();
            let share = of_functions * ERROR_OF_ALL / (1.0 - ERROR_OF_ALL);
            tests.push((probability, if share > 0.0 { share } else { 1.0 }));
            changes.push(all);
        }
        for (change, beyond) in changes.into_iter().zip(beyond_noise(&tests, self.options.error)) {
            change.beyond_noise = beyond && self.counts(change);
        }
    }

    /// The typical relative variation of functions.
    fn typical(&self, functions: &[([Vec<f64>; 2], &mut Change)]) -> Option<f64> {
        let runs = self.runs[0].len() + self.runs[1].len();
        let relative = |([a, b], change): &([Vec<f64>; 2], &mut Change)| {
            let samples = self.samples(0, change.a) + self.samples(1, change.b);
            Some(Spread::of([a, b]).filter(|_| samples >= SAMPLES_TO_VARY * runs as f64)?.relative())
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

    /// The weights of functions in percent of a program with 5,000 samples: a few large, and many small.
    const PERCENT: [u32; 29] =
        [24, 18, 12, 10, 8, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    /// The function of 10 % that becomes slower, and the one that varies, if one does.
    const SLOWED: usize = 3;
    const VARYING: usize = 1;

    /// Pseudo-random numbers (xorshift), the same in each run of the tests.
    struct Random(u64);

    impl Random {
        /// From 0 to 1.
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// About 1, with this standard deviation.
        fn about_one(&mut self, deviation: f64) -> f64 {
            let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            1.0 + deviation * normal
        }
    }

    /// The variation between runs of a program, in addition to sampling, and how much slower it is.
    #[derive(Clone, Copy)]
    struct Program {
        all: f64,
        slowed: f64,
        varying: f64,
    }

    const SAME: Program = Program { all: 1.0, slowed: 1.0, varying: 0.0 };

    impl Program {
        /// A run: everything varies by 1 %, and each function by another 2 %.
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

    const OPTIONS: ChangeOptions =
        ChangeOptions { threshold: 1.0, error: 0.05, trusts_one_run: false, total: false, shares: false };

    /// 100 comparisons of two programs with this many runs a side.
    fn compared(runs: usize, [a, b]: [Program; 2], shares: bool) -> Vec<ProfileDiff> {
        let (named, mut random) = (named(), Random(0x9e37_79b9_7f4a_7c15));
        let side = |program: Program, random: &mut Random| {
            (0..runs).map(|_| program.run(random)).collect::<Vec<_>>()
        };
        let options = ChangeOptions { shares, ..OPTIONS };
        (0..100)
            .map(|_| {
                let (a, b) = (side(a, &mut random), side(b, &mut random));
                compare(&named, [&a, &b], options)
            })
            .collect()
    }

    fn count(found: &[ProfileDiff], is: impl Fn(&ProfileDiff) -> bool) -> usize {
        found.iter().filter(|found| is(found)).count()
    }

    fn has_slowed(found: &ProfileDiff) -> bool {
        let is = |function: &FunctionChange| function.function == format!("f{SLOWED}");
        found.functions.iter().any(|function| is(function) && function.change.beyond_noise)
    }

    /// The gate errs in at most 5 of 100 comparisons, also if one large function varies much between runs.
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
        // The others have not.
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
        // In shares nothing has.
        let changed = count(&compared(5, [SAME, Program { all: 1.1, ..SAME }], true), |found| found.changed);
        assert!(changed <= 5, "{changed}");
    }

    /// One run a side does not show how much runs differ.
    #[test]
    fn one_run_a_side_is_changed_only_if_that_is_asked_for() {
        let (named, mut random) = (named(), Random(1));
        let mut run = |all| [Program { all, ..SAME }.run(&mut random)];
        let (a, b) = (run(1.0), run(2.0));
        for trusts_one_run in [false, true] {
            let found = compare(&named, [&a, &b], ChangeOptions { trusts_one_run, ..OPTIONS });
            assert_eq!((found.all.beyond_noise, found.noise), (true, Noise::Sampling));
            assert_eq!(found.changed, trusts_one_run);
        }
    }

    /// Neither side weighs anything, or one function has everything.
    #[test]
    fn runs_without_weight_are_compared() {
        let named = named();
        for weight in [0, 7] {
            let functions = vec![weight];
            let run = Run { samples: 7, weight, squares: weight as f64, functions, ..Run::default() };
            for shares in [false, true] {
                let options = ChangeOptions { shares, threshold: 0.0, ..OPTIONS };
                let sides = [vec![run.clone(); 3], vec![run.clone(); 2]];
                let found = compare(&named, [&sides[0], &sides[1]], options);
                assert!(!found.changed && found.functions.is_empty());
            }
        }
    }
}
