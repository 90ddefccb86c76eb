//! Ranks functions and call stacks of recordings by their samples, and shows callers or callees of functions.
//!
//! Weights are sums of periods, as in `perf report`. A function is a symbol of a file.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_look::json::Decimal;
use perfx_pipeline::Result;
use perfx_resolve::{Named, Search};
use schemars::JsonSchema;
use serde::Serialize;

use crate::chains::StackTree;
use crate::durations::{DurationSummary, Durations};
use crate::functions::{CodePlace, FunctionTotal, NamedStacks};
use crate::shown::Counted;
use crate::stacks::{Grouping, Label, Row, Stacks, Weight};

/// A ranked list, the heaviest rows first.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub enum Ranked {
    /// The functions.
    Functions {
        /// Events and unit of the counts
        counted: Counted,
        /// In the requested order
        rows: Vec<FunctionRow>,
    },
    /// The functions, with all of their calls in a trace.
    TracedFunctions {
        /// Events and unit of the counts
        counted: Counted,
        /// In the requested order
        rows: Vec<TracedRow>,
    },
    /// The call stacks.
    Stacks {
        /// Events and unit of the counts
        counted: Counted,
        /// The heaviest first
        rows: Vec<StackRow>,
    },
    /// Functions with their callers.
    Callers {
        /// Events and unit of the counts
        counted: Counted,
        /// A tree: each function is followed by its callers, which are one deeper
        rows: Vec<CallRow>,
    },
    /// Functions with what they call.
    Callees {
        /// Events and unit of the counts
        counted: Counted,
        /// A tree: each function is followed by those that it calls, which are one deeper
        rows: Vec<CallRow>,
    },
}

/// A function.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FunctionRow {
    /// The process, thread, CPU, cgroup or container whose samples are counted; absent unless these are listed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its name; that of its file in brackets if no symbol was found
    pub function: String,
    /// The path of its file; null if its address was in no mapping
    pub dso: Option<String>,
    /// Percent of the period sampled in it
    pub self_percent: f64,
    /// Percent of the period sampled in it and in the functions that it called
    pub total_percent: f64,
    /// Samples in it
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
    /// Samples in it and in the functions that it called
    pub total_samples: u64,
    /// The sum of their periods
    pub total_period: Decimal<u64>,
}

/// A function, with all of its calls in a trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TracedRow {
    /// Its name; that of its file in brackets if no symbol was found
    pub function: String,
    /// The path of its file; null if its address was in no mapping
    pub dso: Option<String>,
    /// How often it was called
    pub calls: u64,
    /// The time in it, ns
    pub self_ns: Decimal<u64>,
    /// The time in it and in the functions that it called, ns
    pub total_ns: Decimal<u64>,
    /// The durations of its calls; null if none began and ended in the trace. A recursive call counts, too
    pub durations: Option<DurationSummary>,
}

/// A call stack.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct StackRow {
    /// The process, thread, CPU, cgroup or container whose samples are counted; absent unless these are listed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its functions, outermost first
    pub stack: Vec<String>,
    /// Percent of the period sampled in it
    pub percent: f64,
    /// Its samples
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A function in a tree of calls.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CallRow {
    /// Calls between it and the requested function, which has 0
    pub depth: u32,
    /// The process, thread, CPU, cgroup or container whose samples are counted; absent unless these are listed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its name
    pub function: String,
    /// The path of its file; null if its address was in no mapping
    pub dso: Option<String>,
    /// Percent of the period of the whole list
    pub percent: f64,
    /// Samples of stacks with these calls
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// The order of functions; equal ones are sorted by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By the period sampled in it.
    Own,
    /// By the period sampled in it and its callees.
    Total,
    /// By the number of samples in it.
    Samples,
    /// By name.
    Name,
    /// By file, then as [`Order::Own`].
    Dso,
    /// By the longest call in a trace.
    Longest,
    /// By the duration that 99 % of the calls in a trace do not exceed.
    Percentile,
}

/// The limits of a tree of calls.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// The maximum number of calls from the requested function.
    pub depth: u32,
    /// The minimum share of a row, percent of the whole.
    pub percent_limit: f64,
}

/// The stacks of one event in all recordings.
#[derive(Debug)]
pub struct Ranking {
    named: NamedStacks,
    by: Option<Grouping>,
    /// The samples in the innermost function of each node.
    of_nodes: Vec<Weight>,
    /// For each function, those of its calls in a trace.
    durations: Vec<Durations>,
    counted: Counted,
}

impl Default for Ranking {
    fn default() -> Ranking {
        let (named, counted) = (NamedStacks::new(1), Counted::default());
        Ranking { named, by: None, of_nodes: Vec::new(), durations: Vec::new(), counted }
    }
}

impl Ranking {
    /// Ranks the functions of each group separately. The stacks must have the same grouping.
    pub fn by(grouping: Grouping) -> Ranking {
        Ranking { by: Some(grouping), ..Ranking::default() }
    }

    /// Adds the samples of an event of a recording. Returns how many DSOs have symbols.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn add(&mut self, stacks: &Stacks, search: Search<'_>, event: Option<u32>) -> Result<Named> {
        let (placed, named) = self.named.add(stacks, search)?;
        if event.is_some() {
            self.counted.add(stacks.sampled(search.facts).counted(event));
        }
        let of_event =
            |row: &Row, weight: &Weight| if Some(row.event) == event { *weight } else { Weight::default() };
        let of_rows = self.by.map(|by| {
            let text = |label: &Label| label.texts(by).into_iter().flatten().collect::<Vec<_>>().join(" ");
            self.named.by_group(stacks, &placed, text)
        });
        self.of_nodes.resize(self.named.nodes.len(), Weight::default());
        if let Some(of_rows) = of_rows {
            for ((row, weight), node) in stacks.rows.iter().zip(of_rows) {
                self.of_nodes
                    .get_mut(node as usize)
                    .into_iter()
                    .for_each(|sum| *sum += of_event(row, weight));
            }
        } else {
            let of_nodes = self.named.of_nodes(stacks, &placed, of_event);
            self.of_nodes.iter_mut().zip(of_nodes).for_each(|(sum, weight)| *sum += weight);
        }
        self.durations.resize(self.named.functions.len(), Durations::default());
        for (&(stack, bucket), &calls) in &stacks.durations {
            let node = placed.get(stack as usize).and_then(|&node| self.named.nodes.get_index(node as usize));
            let of = node.and_then(|&(_, function)| self.durations.get_mut(function as usize));
            of.into_iter().for_each(|durations| durations.add(bucket, calls));
        }
        Ok(named)
    }

    /// The samples to which shares relate.
    pub fn counted(&self) -> Counted {
        self.counted.clone()
    }

    /// Percent of the period of all samples; without periods, of their number.
    fn percent(&self, part: Weight) -> f64 {
        let (part, all) = match self.counted.period.0 {
            0 => (part.samples, self.counted.samples),
            period => (part.period, period),
        };
        if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
    }

    fn function(&self, number: u32) -> (&str, Option<&str>) {
        let Some(function) = self.named.functions.get_index(number as usize) else { return ("", None) };
        let dso = function.file.map(|file| &*self.named.files[file as usize].path);
        // All code outside of mappings is one row for the kernel and one for processes.
        let is_of_kernel = function.place == CodePlace::Kernel && dso.is_none();
        (if is_of_kernel { "[kernel]" } else { &function.name }, dso)
    }

    fn group(&self, function: u32) -> Option<&str> {
        let group = self.named.functions.get_index(function as usize)?.group?;
        self.named.groups.get_index(group as usize).map(String::as_str)
    }

    fn sorted(&self, order: Order) -> Vec<(u32, FunctionTotal)> {
        let totals = (0..).zip(self.named.totals(self.of_nodes.clone()));
        let mut sorted: Vec<_> = totals.filter(|(_, of)| !of.total.is_zero()).collect();
        let own = |of: &FunctionTotal| Reverse((of.own.period, of.own.samples, of.total.period));
        let total = |of: &FunctionTotal| Reverse((of.total.period, of.total.samples, of.own.period));
        let lasting: Vec<Option<Decimal<u64>>> = match order {
            Order::Longest => self.durations.iter().map(|of| Some(of.summary()?.max_ns)).collect(),
            Order::Percentile => self.durations.iter().map(|of| Some(of.summary()?.p99_ns)).collect(),
            _ => Vec::new(),
        };
        let lasting = |function: u32| Reverse(lasting.get(function as usize).copied().flatten());
        sorted.sort_by(|(one, a), (other, b)| {
            let lasting = (lasting(*one), lasting(*other));
            let groups = (self.group(*one), self.group(*other));
            let (one, other) = (self.function(*one), self.function(*other));
            let by_order = match order {
                Order::Longest | Order::Percentile => (lasting.0, own(a)).cmp(&(lasting.1, own(b))),
                Order::Own => own(a).cmp(&own(b)),
                Order::Total => total(a).cmp(&total(b)),
                Order::Samples => (Reverse(a.own.samples), own(a)).cmp(&(Reverse(b.own.samples), own(b))),
                Order::Name => std::cmp::Ordering::Equal,
                Order::Dso => (one.1, own(a)).cmp(&(other.1, own(b))),
            };
            by_order.then(one.cmp(&other)).then(groups.0.cmp(&groups.1))
        });
        sorted
    }

    /// The functions of a trace with their calls, at most `head` of them.
    pub fn traced_functions(&self, order: Order, head: usize) -> Ranked {
        let row = |(number, FunctionTotal { own, total })| {
            let (function, dso) = self.function(number);
            TracedRow {
                function: function.to_owned(),
                dso: dso.map(str::to_owned),
                calls: own.samples,
                self_ns: Decimal(own.period),
                total_ns: Decimal(total.period),
                durations: self.durations.get(number as usize).and_then(Durations::summary),
            }
        };
        let rows = self.sorted(order).into_iter().take(head).map(row).collect();
        Ranked::TracedFunctions { counted: self.counted(), rows }
    }

    /// The functions, at most `head` of them.
    pub fn functions(&self, order: Order, head: usize) -> Ranked {
        let sorted = self.sorted(order);
        let rows = sorted.iter().take(head).map(|(number, FunctionTotal { own, total })| {
            let (function, dso) = self.function(*number);
            FunctionRow {
                group: self.group(*number).map(str::to_owned),
                function: function.to_owned(),
                dso: dso.map(str::to_owned),
                self_percent: self.percent(*own),
                total_percent: self.percent(*total),
                samples: own.samples,
                period: Decimal(own.period),
                total_samples: total.samples,
                total_period: Decimal(total.period),
            }
        });
        Ranked::Functions { counted: self.counted(), rows: rows.collect() }
    }

    /// The stacks, at most `head` of them.
    pub fn stacks(&self, head: usize) -> Ranked {
        let mut sorted: Vec<(u32, Weight)> = (0..).zip(self.of_nodes.iter().copied()).collect();
        sorted.retain(|(_, weight)| !weight.is_zero());
        // Stacks of the same weight stay in the order of the recording.
        sorted.sort_by_key(|&(_, Weight { samples, period })| Reverse((period, samples)));
        let rows = sorted.iter().take(head).map(|&(node, weight)| {
            let functions = self.outwards(node).map(|function| self.function(function).0.to_owned());
            let mut stack: Vec<String> = functions.collect();
            stack.reverse();
            let percent = self.percent(weight);
            let innermost = self.outwards(node).next();
            let group = innermost.and_then(|function| self.group(function)).map(str::to_owned);
            StackRow { group, stack, percent, samples: weight.samples, period: Decimal(weight.period) }
        });
        Ranked::Stacks { counted: self.counted(), rows: rows.collect() }
    }

    fn outwards(&self, node: u32) -> impl Iterator<Item = u32> {
        let mut next = node;
        std::iter::from_fn(move || {
            let &(parent, function) = self.named.nodes.get_index(next as usize)?;
            next = parent;
            Some(function)
        })
    }

    /// The names of all functions, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.named.functions.iter().map(|function| &*function.name)
    }

    /// The callees of the chosen functions, by number. For a recursive one, the outermost call counts.
    pub fn callees(&self, chosen: &[bool], shape: Shape) -> Ranked {
        let mut tree = CallTree::default();
        let mut places: Vec<u32> = Vec::with_capacity(self.of_nodes.len());
        for (&(parent, function), &weight) in self.named.nodes.iter().zip(&self.of_nodes) {
            let above = places.get(parent as usize).copied().unwrap_or(StackTree::ROOT);
            let place = match above {
                StackTree::ROOT if chosen.get(function as usize) == Some(&true) => {
                    tree.child(StackTree::ROOT, function)
                }
                StackTree::ROOT => StackTree::ROOT,
                above if tree.depth(above) >= shape.depth => above,
                above => tree.child(above, function),
            };
            tree.add(place, weight);
            places.push(place);
        }
        Ranked::Callees { counted: self.counted(), rows: self.rows(tree, shape) }
    }

    /// The callers of the chosen functions, by number. For a recursive one, the outermost call counts.
    pub fn callers(&self, chosen: &[bool], shape: Shape) -> Ranked {
        // For each node, the outermost one with such a function on its path.
        let mut outermost: Vec<u32> = Vec::with_capacity(self.of_nodes.len());
        let mut weights = vec![Weight::default(); self.of_nodes.len()];
        for (node, &(parent, function)) in self.named.nodes.iter().enumerate() {
            let above = outermost.get(parent as usize).copied().unwrap_or(StackTree::ROOT);
            let place = match above {
                StackTree::ROOT if chosen.get(function as usize) == Some(&true) => node as u32,
                above => above,
            };
            if let Some(weight) = weights.get_mut(place as usize) {
                *weight += self.of_nodes[node];
            }
            outermost.push(place);
        }
        let mut tree = CallTree::default();
        for (node, &weight) in weights.iter().enumerate().filter(|(_, weight)| !weight.is_zero()) {
            let callers = self.outwards(node as u32).take(shape.depth as usize + 1);
            let place = callers.fold(StackTree::ROOT, |place, function| tree.child(place, function));
            tree.add(place, weight);
        }
        Ranked::Callers { counted: self.counted(), rows: self.rows(tree, shape) }
    }

    /// The rows of a tree: each function is followed by its children, the heaviest first.
    fn rows(&self, tree: CallTree, shape: Shape) -> Vec<CallRow> {
        let weights = tree.totals();
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); tree.nodes.len()];
        let mut roots = Vec::new();
        let shown = |number: usize| {
            !weights[number].is_zero() && self.percent(weights[number]) >= shape.percent_limit
        };
        for (number, &(parent, _)) in tree.nodes.iter().enumerate().filter(|(number, _)| shown(*number)) {
            children.get_mut(parent as usize).unwrap_or(&mut roots).push(number as u32);
        }
        let function = |number: u32| self.function(tree.nodes[number as usize].1);
        // The lightest first, because the last one is taken first.
        let sort = |of: &mut Vec<u32>| {
            let weight = |number: u32| (weights[number as usize].period, weights[number as usize].samples);
            let group = |number: u32| self.group(tree.nodes[number as usize].1);
            let key = |number: &u32| (weight(*number), Reverse((function(*number), group(*number))));
            of.sort_by(|one, other| key(one).cmp(&key(other)));
        };
        sort(&mut roots);
        let mut rows = Vec::new();
        while let Some(number) = roots.pop() {
            let (name, dso) = function(number);
            let weight = weights[number as usize];
            let group = self.group(tree.nodes[number as usize].1).map(str::to_owned);
            rows.push(CallRow {
                depth: tree.depth(number),
                group,
                function: name.to_owned(),
                dso: dso.map(str::to_owned),
                percent: self.percent(weight),
                samples: weight.samples,
                period: Decimal(weight.period),
            });
            let mut next = std::mem::take(&mut children[number as usize]);
            sort(&mut next);
            roots.append(&mut next);
        }
        rows
    }
}

#[derive(Default)]
struct CallTree {
    /// Parent, or [`StackTree::ROOT`], and function. A parent has a lower number than its children.
    nodes: IndexSet<(u32, u32), RandomState>,
    depths: Vec<u32>,
    weights: Vec<Weight>,
}

impl CallTree {
    fn child(&mut self, parent: u32, function: u32) -> u32 {
        let (number, is_new) = self.nodes.insert_full((parent, function));
        if is_new {
            self.depths.push(self.depths.get(parent as usize).map_or(0, |depth| depth + 1));
            self.weights.push(Weight::default());
        }
        number as u32
    }

    fn depth(&self, number: u32) -> u32 {
        self.depths[number as usize]
    }

    fn add(&mut self, number: u32, weight: Weight) {
        if let Some(sum) = self.weights.get_mut(number as usize) {
            *sum += weight;
        }
    }

    fn totals(&self) -> Vec<Weight> {
        let mut weights = self.weights.clone();
        for (number, &(parent, _)) in self.nodes.iter().enumerate().rev() {
            let weight = weights[number];
            if let Some(sum) = weights.get_mut(parent as usize) {
                *sum += weight;
            }
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durations::{Bucket, Calls};
    use crate::functions::tests::{recursive, weights};

    fn ranking() -> Ranking {
        let period = Decimal(100);
        let counted = Counted { samples: 32, period, ..Counted::default() };
        let mut durations = vec![Durations::default(); 4];
        for (function, ns) in [(0, 5), (1, 90), (1, 10), (2, 70)] {
            durations[function].add(Bucket::of(ns), Calls::one(ns, 0));
        }
        Ranking { named: recursive(), by: None, of_nodes: weights(), durations, counted }
    }

    fn calls(ranked: Ranked) -> Vec<(u32, String, f64, u64)> {
        let (Ranked::Callers { rows, .. } | Ranked::Callees { rows, .. }) = ranked else {
            panic!("{ranked:?}")
        };
        rows.into_iter().map(|row| (row.depth, row.function, row.percent, row.samples)).collect()
    }

    const ALL: Shape = Shape { depth: 9, percent_limit: 0.0 };

    #[test]
    fn functions_are_sorted_by_what_is_asked_for() {
        let ranking = ranking();
        for (order, head, expected) in [
            (Order::Own, 9, "[kernel] a b main"),
            (Order::Own, 2, "[kernel] a"),
            (Order::Total, 9, "[kernel] main a b"),
            (Order::Samples, 9, "b a [kernel] main"),
            (Order::Name, 9, "[kernel] a b main"),
            (Order::Dso, 9, "[kernel] b a main"),
            (Order::Longest, 9, "a b main [kernel]"),
            (Order::Percentile, 9, "a b main [kernel]"),
        ] {
            let Ranked::Functions { rows, .. } = ranking.functions(order, head) else { panic!() };
            let names = rows.iter().map(|row| &*row.function).collect::<Vec<_>>().join(" ");
            assert_eq!(names, expected, "{order:?}");
        }
        let Ranked::Functions { rows, .. } = ranking.functions(Order::Total, 9) else { panic!() };
        let a = &rows[2];
        assert_eq!((a.self_percent, a.total_percent, a.dso.as_deref()), (28.0, 32.0, Some("/bin/p")));
        assert_eq!((a.samples, a.period.0, a.total_samples, a.total_period.0), (10, 28, 14, 32));
        let Ranked::TracedFunctions { rows, .. } = ranking.traced_functions(Order::Longest, 1) else {
            panic!()
        };
        let [a] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((&*a.function, a.calls, a.self_ns.0, a.total_ns.0), ("a", 10, 28, 32));
        assert_eq!(a.durations.as_ref().map(|of| (of.calls, of.max_ns.0)), Some((2, 90)));
        assert_eq!(ranking.names().collect::<Vec<_>>(), ["main", "a", "b", "0x1"]);
    }

    #[test]
    fn stacks_are_the_heaviest_first() {
        let Ranked::Stacks { rows, .. } = ranking().stacks(3) else { panic!() };
        let rows: Vec<_> = rows.iter().map(|row| (row.stack.join(";"), row.percent, row.samples)).collect();
        let expected = [("[kernel]", 51.0, 1), ("main;a", 20.0, 2), ("main;b", 16.0, 16)];
        assert_eq!(rows, expected.map(|(stack, percent, samples)| (stack.to_owned(), percent, samples)));
    }

    #[test]
    fn callees_and_callers_of_the_outermost_call_count() {
        let ranking = ranking();
        let rows = |rows: &[(u32, &str, f64, u64)]| {
            rows.iter()
                .map(|&(depth, name, percent, samples)| (depth, name.to_owned(), percent, samples))
                .collect::<Vec<_>>()
        };
        let chosen = [false, true, false, false];
        let callees = rows(&[(0, "a", 32.0, 14), (1, "b", 12.0, 12), (2, "a", 8.0, 8)]);
        assert_eq!(calls(ranking.callees(&chosen, ALL)), callees);
        assert_eq!(calls(ranking.callees(&chosen, Shape { depth: 1, ..ALL })), callees[..2]);
        assert_eq!(calls(ranking.callees(&chosen, Shape { percent_limit: 12.0, ..ALL })), callees[..2]);
        assert_eq!(calls(ranking.callers(&chosen, ALL)), rows(&[(0, "a", 32.0, 14), (1, "main", 32.0, 14)]));
        let chosen = [false, false, true, false];
        let callers =
            rows(&[(0, "b", 28.0, 28), (1, "main", 16.0, 16), (1, "a", 12.0, 12), (2, "main", 12.0, 12)]);
        assert_eq!(calls(ranking.callers(&chosen, ALL)), callers);
        assert_eq!(calls(ranking.callers(&chosen, Shape { depth: 0, ..ALL })), callers[..1]);
        assert_eq!(calls(ranking.callers(&chosen, Shape { percent_limit: 16.0, ..ALL })), callers[..2]);
        assert!(calls(ranking.callees(&[], ALL)).is_empty());
    }

    #[test]
    fn shares_are_of_periods_or_else_of_samples() {
        let mut ranking = ranking();
        let part = Weight { samples: 8, period: 25 };
        assert_eq!(ranking.percent(part), 25.0);
        ranking.counted.period = Decimal(0);
        assert_eq!(ranking.percent(part), 25.0);
        ranking.counted.samples = 16;
        assert_eq!(ranking.percent(part), 50.0);
        assert_eq!(Ranking::default().percent(part), 0.0);
    }
}
