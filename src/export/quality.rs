//! Measures how far the data of a recording can be trusted: broken call chains, and files without names.

use std::collections::BTreeMap;

use perfx_filter::FilterOptions;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::cpumode::USER;
use perfx_look::json::Text;
use perfx_pipeline::{Report, Result};
use perfx_resolve::{EventFacts, Explainer, Facts, Frame, IdOptions, Search, dso_name};
use perfx_samples::{IsSelected, SampleView, Select};
use schemars::JsonSchema;
use serde::Serialize;

use crate::chains::StackTree;
use crate::counted::counted_events;
use crate::stacks::{Grouping, Stacks};

/// The call chains of samples, and how many are broken
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ChainQuality {
    /// Samples with a call chain that were looked at
    pub chains: u64,
    /// Chains with a caller in user code at an address where no code was mapped
    pub unmapped: u64,
    /// Chains with a single address of user code, without a caller
    pub alone: u64,
    /// Chains with as many frames as could be recorded
    pub full: u64,
}

/// A smaller share of broken chains is not reported: some break where a process or signal handler begins.
const LEAST: f64 = 0.05;

/// The same for chains without a caller, which small programs have at their beginning.
const LEAST_ALONE: f64 = 0.2;

impl ChainQuality {
    /// A sentence for each problem of many chains, with advice for recording.
    pub fn sentences(&self) -> Vec<String> {
        let whole = "record with --call-graph dwarf, or build with -fno-omit-frame-pointer";
        [
            (self.unmapped, LEAST, "pass through addresses where no code was mapped", whole),
            (self.alone, LEAST_ALONE, "end in user code without a caller", whole),
            (self.full, LEAST, "have no room for outer callers", "raise sysctl kernel.perf_event_max_stack"),
        ]
        .into_iter()
        .map(|(count, least, what, hint)| (count as f64 / self.chains.max(1) as f64, least, what, hint))
        .filter(|(share, least, ..)| share >= least)
        .map(|(share, _, what, hint)| format!("{:.0}% of call chains {what}: {hint}", share * 100.0))
        .collect()
    }
}

/// A file or other code whose functions have no names, or only some of them
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Unnamed {
    /// Its path, or a name such as `[vdso]`
    pub name: Text<Vec<u8>>,
    /// Samples of its code
    pub samples: u64,
    /// All samples that were looked at
    pub of_samples: u64,
    /// Why names are missing
    pub why: String,
    /// Options or a command that would help
    pub help: Option<String>,
}

/// From this share of the samples on, in percent, missing names of a DSO are reported.
pub(crate) const WORTH_SAYING: u128 = 1;

/// The quality of about `most` bytes of samples, evenly spread over a recording: of their call chains, and which
/// DSOs have no names, those with most samples first. Symbols are searched for in the places of `ids`.
///
/// # Errors
///
/// The recording can't be read or decompressed.
pub fn data_quality(
    recording: &mut Recording,
    ids: &IdOptions,
    most: u64,
    threads: usize,
) -> Result<(ChainQuality, Vec<Unnamed>)> {
    let facts = Facts::survey(recording, threads, false)?;
    let one_of = OneOf(recording.data_size().unwrap_or(0) / most + 1);
    let counted_as = counted_events(&facts, &FilterOptions::default());
    let (grouping, read) = (Grouping { own_address: true, ..Grouping::default() }, (&facts, Some(&one_of)));
    let stacks = Stacks::read(recording, read, &counted_as, grouping, threads, &mut Report::default())?;
    let search = Search {
        facts: &facts,
        features: &recording.features,
        endian: recording.endian,
        ids,
        inlined: false,
    };
    Ok((stacks.chain_quality(&facts.events), stacks.unnamed(search)))
}

/// Selects one of this many samples of each batch.
struct OneOf(u64);

impl Select for OneOf {
    fn on_thread(&self) -> IsSelected<'_> {
        let mut seen = 0;
        Box::new(move |_: SampleView<'_>| {
            // The first one, too: a batch of large samples has few.
            let is_selected = seen % self.0 == 0;
            seen += 1;
            is_selected
        })
    }

    fn passed_over(&self, _batch: &Batch) -> Option<u64> {
        None
    }
}

/// The frames of a stack, from its outermost one to one of them.
#[derive(Clone, Copy, Default)]
struct Outer {
    depth: usize,
    user: usize,
    is_unmapped: bool,
}

impl Outer {
    fn with(self, frame: Frame) -> Outer {
        let is_user = frame.mode == USER && frame != Frame::UNTRACED;
        Outer {
            depth: self.depth + 1,
            user: self.user + usize::from(is_user),
            is_unmapped: self.is_unmapped || is_user && frame.dso.is_none(),
        }
    }
}

impl Stacks {
    /// Counts the broken call chains.
    pub fn chain_quality(&self, events: &[EventFacts]) -> ChainQuality {
        // A parent has a lower number than its children.
        let mut stacks: Vec<(Outer, Outer)> = Vec::with_capacity(self.tree.nodes().len());
        for (parent, frame) in self.tree.nodes() {
            let callers = stacks.get(parent as usize).map_or(Outer::default(), |(_, all)| *all);
            let frame = self.tree.frame_of(frame);
            stacks.push((callers, frame.map_or(callers, |frame| callers.with(frame))));
        }
        let mut quality = ChainQuality::default();
        let rows = self.rows.iter().filter(|(row, _)| row.stack != StackTree::ROOT);
        for (row, weight) in rows {
            let event = events.get(row.event as usize).filter(|event| event.has_chains);
            let Some(event) = event else { continue };
            let (callers, all) = stacks[row.stack as usize];
            let count = |is: bool| if is { weight.samples } else { 0 };
            quality.chains += weight.samples;
            quality.unmapped += count(event.has_user_chains && callers.is_unmapped);
            quality.alone += count(event.has_user_chains && all.user == 1);
            quality.full += count(all.depth >= event.max_stack);
        }
        quality
    }

    /// The DSOs without names that have a share of the samples worth reporting.
    fn unnamed(&self, search: Search<'_>) -> Vec<Unnamed> {
        let (mut of_samples, mut dsos) = (0, BTreeMap::<u32, u64>::new());
        for (row, weight) in &self.rows {
            of_samples += weight.samples;
            if let Some(number) = self.tree.innermost(row.stack).and_then(|frame| frame.dso) {
                *dsos.entry(number).or_default() += weight.samples;
            }
        }
        let least = WORTH_SAYING * u128::from(of_samples);
        dsos.retain(|_, samples| u128::from(*samples) * 100 >= least);
        let explainer = Explainer::new(search);
        let unnamed = |(&number, &samples): (&u32, &u64)| {
            let explanation = explainer.explain(number);
            let name = Text(dso_name(&search.facts.spaces.dsos().get(number as usize)?.0).to_vec());
            Some(Unnamed { name, samples, of_samples, why: explanation.why?, help: explanation.help })
        };
        let mut unnamed: Vec<Unnamed> = dsos.iter().filter_map(unnamed).collect();
        unnamed.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.name.0.cmp(&b.name.0)));
        unnamed
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::record::cpumode::KERNEL;

    use super::*;
    use crate::stacks::{Row, Weight};

    const UNMAPPED: Frame = Frame { dso: None, at: 0, mode: USER, process: 0 };

    fn user(at: u64) -> Frame {
        Frame { dso: Some(0), at, mode: USER, process: 0 }
    }

    /// The quality of samples with these stacks, outermost frame first; four frames fit into a chain.
    fn of(stacks: &[&[Frame]]) -> [u64; 4] {
        let mut all = Stacks::default();
        for frames in stacks {
            let stack = frames.iter().fold(StackTree::ROOT, |stack, &frame| {
                let frame = all.tree.frame(frame).unwrap();
                all.tree.child(stack, frame).unwrap()
            });
            all.add(Row { event: 0, label: 0, stack, time: None }, Weight { samples: 1, period: 10 });
        }
        let mut event = EventFacts::of_calls();
        event.max_stack = 4;
        let quality = all.chain_quality(std::slice::from_ref(&event));
        // Chains recorded without callers in user code lack none.
        event.has_user_chains = false;
        let kernel = all.chain_quality(&[event]);
        assert_eq!(kernel, ChainQuality { unmapped: 0, alone: 0, ..quality });
        [quality.chains, quality.unmapped, quality.alone, quality.full]
    }

    #[test]
    fn a_chain_is_broken_at_a_caller_without_code_or_without_any_caller_or_by_its_length() {
        let kernel = Frame { dso: Some(1), at: 0, mode: KERNEL, process: 0 };
        assert_eq!(of(&[]), [0, 0, 0, 0]);
        assert_eq!(of(&[&[user(1), user(2)], &[user(1), user(2), kernel]]), [2, 0, 0, 0]);
        assert_eq!(of(&[&[user(1), UNMAPPED, user(2)], &[UNMAPPED, user(2)]]), [2, 2, 0, 0]);
        // Code without a mapping that was sampled itself has no name, but right callers.
        assert_eq!(of(&[&[user(1), UNMAPPED], &[user(1), UNMAPPED, kernel]]), [2, 1, 0, 0]);
        assert_eq!(of(&[&[user(1)], &[user(1), kernel], &[kernel], &[kernel, kernel]]), [4, 0, 2, 0]);
        assert_eq!(of(&[&[user(1), user(2), user(3)], &[user(1), user(2), kernel, kernel]]), [2, 0, 0, 1]);
        // Nothing is missing where a thread was not traced.
        assert_eq!(of(&[&[user(1), Frame::UNTRACED, user(2)]]), [1, 0, 0, 0]);
    }

    #[test]
    fn only_what_is_wrong_with_many_chains_is_said() {
        let texts =
            |chains, unmapped, alone, full| ChainQuality { chains, unmapped, alone, full }.sentences();
        assert!(texts(0, 0, 0, 0).is_empty() && texts(100, 4, 19, 4).is_empty());
        let all = texts(100, 59, 20, 5);
        assert!(all[0].starts_with("59% of call chains pass through addresses where no code was mapped: "));
        assert!(all[1].starts_with("20% of call chains end in user code without a caller: "));
        assert!(all[2].starts_with("5% of call chains have no room for outer callers: "));
    }
}
