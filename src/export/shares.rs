//! Compares the shares that functions have in the samples of two recordings.

use perfx_look::json::Decimal;
use schemars::JsonSchema;
use serde::Serialize;

use crate::functions::NamedStacks;
use crate::stacks::{Row, Stacks, Weight};

/// How the shares of functions changed, as [`compare()`] returns it.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileDiff {
    /// Percentage points by which the share of a listed function moved at least
    pub threshold: f64,
    /// Shares are of the samples in a function and in what it called; otherwise only of those in the function
    pub total: bool,
    /// The samples of one recording
    pub a: ProfileSide,
    /// The samples of the other recording
    pub b: ProfileSide,
    /// Functions whose share moved, the largest change first
    pub moved: Vec<MovedFunction>,
}

/// The samples of a recording that are compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileSide {
    /// The names of their events
    pub events: Vec<String>,
    /// Their number
    pub samples: u64,
    /// What shares are parts of: the sum of their periods, or of tracepoints their number
    pub weight: Decimal<u64>,
}

/// A function whose share moved.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct MovedFunction {
    /// Its name
    pub function: String,
    /// The path of its file, in the first recording that has it; null if it is unknown
    pub file: Option<String>,
    /// Its share in one recording, percent
    pub a: f64,
    /// Its share in the other recording, percent
    pub b: f64,
    /// How the share changed, percentage points
    pub change: f64,
}

/// A recording to compare.
#[derive(Debug)]
pub struct Profile<'s> {
    /// Its stacks.
    pub stacks: &'s Stacks,
    /// The node of each stack.
    pub placed: &'s [u32],
    /// The names of the events that are counted.
    pub events: Vec<String>,
}

/// Compares two recordings. `count` gives the weight of a row of the first or second recording, or nothing if it is not
/// counted.
pub fn compare(
    named: &NamedStacks,
    profiles: [Profile<'_>; 2],
    count: impl Fn(usize, &Row, &Weight) -> Option<u64>,
    threshold: f64,
    total: bool,
) -> ProfileDiff {
    let mut shares = Vec::new();
    let sides = [0, 1].map(|at: usize| {
        let Profile { stacks, placed, events } = &profiles[at];
        let of_nodes = named.of_nodes(stacks, placed, |row, weight| {
            count(at, row, weight)
                .map_or(Weight::default(), |period| Weight { samples: weight.samples, period })
        });
        let of_functions = named.totals(of_nodes);
        let counted = stacks.rows.iter().filter_map(|(row, of)| Some((of.samples, count(at, row, of)?)));
        let (samples, weight) = counted
            .fold((0, 0_u64), |sum, (samples, weight)| (sum.0 + samples, sum.1.saturating_add(weight)));
        let percent = |part: u64| if weight == 0 { 0.0 } else { part as f64 * 100.0 / weight as f64 };
        let part =
            |function: &crate::FunctionTotal| if total { function.total.period } else { function.own.period };
        shares.push(of_functions.iter().map(|function| percent(part(function))).collect::<Vec<_>>());
        ProfileSide { events: events.clone(), samples, weight: Decimal(weight) }
    });
    let function = |(at, function): (usize, &crate::FunctionId)| {
        let (a, b) = (shares[0][at], shares[1][at]);
        let file = function.file.map(|file| named.files[file as usize].path.clone());
        MovedFunction { function: function.name.to_string(), file, a, b, change: b - a }
    };
    let mut moved: Vec<_> = named.functions.iter().enumerate().map(function).collect();
    moved.retain(|function| function.change != 0.0 && function.change.abs() >= threshold);
    moved.sort_by(|one, other| {
        let by_size = other.change.abs().total_cmp(&one.change.abs());
        by_size.then_with(|| (&one.function, &one.file).cmp(&(&other.function, &other.file)))
    });
    let [a, b] = sides;
    ProfileDiff { threshold, total, a, b, moved }
}
