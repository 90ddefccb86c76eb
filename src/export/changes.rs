//! Compares what functions weigh in the samples of the runs of two programs, and says what is more than noise.

use std::collections::BTreeMap;

use perfx_look::json::Decimal;
use perfx_look::render::readable;
use schemars::JsonSchema;
use serde::Serialize;

use crate::functions::NamedStacks;
use crate::noise::{between_runs, beyond_noise, sampling};
use crate::stacks::{Row, Stacks, Weight};

/// The probability that anything at all is taken for a change where none is.
const ERROR: f64 = 0.05;

/// How what was sampled has changed, as [`compare()`] returns it.
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
    /// Functions have the samples in them and in what they called; otherwise only those in the function
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

/// What a change was compared with.
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

/// What a part of the samples weighs in a run of each side, on average.
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
    /// What changed
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
    /// What changed
    pub change: Change,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChangeOptions {
    /// The least change that counts, percent.
    pub threshold: f64,
    /// With one run a side, a change of the threshold that sampling does not explain is one.
    pub trusts_one_run: bool,
    /// Functions with what they called.
    pub total: bool,
    /// Shares in place of weights.
    pub shares: bool,
}

/// What was sampled in one recording.
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
    /// By function; those that were found later have none.
    functions: Vec<u64>,
    comms: BTreeMap<Box<[u8]>, u64>,
}

impl Run {
    /// Counts the samples of a recording, whose stacks are at these nodes. `count` gives the weight of a row, or nothing
    /// if it is not counted.
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
            // Of samples that are not told apart, the periods are taken for equal.
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
}

/// A part of the samples: its weight in each run.
type PartOf<'p> = &'p dyn Fn(&Run) -> u64;

/// Two sides that are compared.
struct Sides<'r> {
    runs: [&'r [Run]; 2],
    options: ChangeOptions,
    /// What all samples of a run weigh, on average.
    means: [f64; 2],
    /// The weight of a sample in the sense of [`sampling`].
    of_sample: [f64; 2],
}

/// Compares the runs of two sides. Each side has one at least.
pub fn compare(named: &NamedStacks, runs: [&[Run]; 2], options: ChangeOptions) -> ProfileDiff {
    let sides = Sides::new(runs, options);
    let mut all = sides.change(&|run| run.weight, !options.shares);
    let mut functions: Vec<FunctionChange> = (0..)
        .zip(&named.functions)
        .map(|(at, function)| FunctionChange {
            function: function.name.to_string(),
            file: function.file.map(|file| named.files[file as usize].path.clone()),
            change: sides.change(&|run| run.functions.get(at).copied().unwrap_or(0), true),
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

    /// What a part weighs in each run; with shares, of 1.
    fn values(&self, side: usize, part: PartOf<'_>) -> Vec<f64> {
        let value = |run: &Run| match self.options.shares {
            true if run.weight == 0 => 0.0,
            true => part(run) as f64 / run.weight as f64,
            false => part(run) as f64,
        };
        self.runs[side].iter().map(value).collect()
    }

    fn change(&self, part: PartOf<'_>, tested: bool) -> Change {
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
            probability: tested.then(|| self.probability(part, [weight(0), weight(1)])),
            beyond_noise: false,
        }
    }

    /// The larger of the probabilities of both noises: a change must be larger than either.
    fn probability(&self, part: PartOf<'_>, weights: [f64; 2]) -> f64 {
        let samples = |side: usize, weight: f64| match self.of_sample[side] {
            0.0 => 0.0,
            of_sample => weight / of_sample,
        };
        let exposures = [0, 1].map(|side| {
            let runs = self.runs[side].len() as f64;
            samples(side, if self.options.shares { self.means[side] * runs } else { runs })
        });
        let by_sampling = sampling([0, 1].map(|side| samples(side, weights[side])), exposures);
        let by_runs = between_runs(&self.values(0, part), &self.values(1, part));
        // More digits would depend on the processor.
        let rounded = |probability: f64| format!("{probability:.2e}").parse().unwrap_or(probability);
        rounded(by_runs.map_or(by_sampling, |by_runs| by_runs.max(by_sampling)))
    }

    fn counts(&self, change: &Change) -> bool {
        change.change != 0.0 && change.change.abs() >= self.options.threshold
    }

    /// Half of the error is for the sum of all, and half for the functions: for each as much as its share of both sides,
    /// so that however many small functions there are, large ones can be told from noise.
    fn judge(&self, all: &mut Change, functions: &mut [FunctionChange]) {
        let share = |change: &Change| change.share_a + change.share_b;
        let sum: f64 = functions.iter().map(|function| share(&function.change)).sum();
        let part = |change: &Change| if sum > 0.0 { share(change) / sum } else { 0.0 };
        let test =
            |function: &FunctionChange| (function.change.probability.unwrap_or(1.0), part(&function.change));
        let mut tests: Vec<(f64, f64)> = functions.iter().map(test).collect();
        tests.extend(all.probability.map(|probability| (probability, 1.0)));
        let changes = functions.iter_mut().map(|function| &mut function.change).chain([all]);
        for (change, beyond) in changes.zip(beyond_noise(&tests, ERROR)) {
            change.beyond_noise = beyond && self.counts(change);
        }
    }

    fn comms(&self) -> Vec<CommChange> {
        let names: BTreeMap<_, ()> = self
            .runs
            .iter()
            .flat_map(|runs| runs.iter())
            .flat_map(|run| &run.comms)
            .map(|(name, _)| (name, ()))
            .collect();
        let change = |name: &[u8]| self.change(&|run| run.comms.get(name).copied().unwrap_or(0), false);
        let mut comms: Vec<CommChange> =
            names.keys().map(|name| CommChange { comm: readable(name), change: change(name) }).collect();
        comms.retain(|comm| self.counts(&comm.change));
        // The sort is stable: among equals the order of names stays.
        comms.sort_by(|one, other| other.change.change.abs().total_cmp(&one.change.change.abs()));
        comms
    }
}
