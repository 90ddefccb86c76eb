//! Decides by the functions on a sample's stack, with inlined ones and callers only in a recorded stack.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_format::OrderKey;
use perfx_format::features::StackTables;
use perfx_format::sample::deferred_cookie;
use perfx_resolve::{Facts, Frame, FrameCache, FrameName, Function, stack_of};
use perfx_samples::SampleView;
use perfx_unwind::{Convert, Kept, Unwinder};
use regex::bytes::Regex;

use crate::choice::{FilterOptions, is_function};
use crate::hints::Hints;

/// Matches of the functions of a frame or stack.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Found {
    pub(crate) wanted: bool,
    pub(crate) excluded: bool,
    pub(crate) leaf: bool,
}

impl Found {
    pub(crate) fn of(name: &FrameName<'_>, options: &FilterOptions) -> Found {
        let is = |regex: &Regex, function: &Function<'_>| {
            is_function(regex, function.name.as_bytes()) || is_function(regex, function.symbol.as_bytes())
        };
        let any = |regexes: &[Regex]| {
            regexes.iter().any(|regex| name.functions.iter().any(|function| is(regex, function)))
        };
        let innermost = name.functions.last();
        let leaf =
            options.leaf.only.iter().any(|regex| innermost.is_some_and(|function| is(regex, function)));
        Found { wanted: any(&options.symbol.only), excluded: any(&options.symbol.not), leaf }
    }

    pub(crate) fn is_taken(self, options: &FilterOptions) -> bool {
        let (symbol, leaf) = (&options.symbol, &options.leaf);
        (symbol.only.is_empty() || self.wanted) && !self.excluded && (leaf.only.is_empty() || self.leaf)
    }

    pub(crate) fn add(&mut self, caller: Found) {
        self.wanted |= caller.wanted;
        self.excluded |= caller.excluded;
    }
}

pub(crate) struct Functions {
    pub(crate) facts: Arc<Facts>,
    pub(crate) of_frames: HashMap<Frame, Found, RandomState>,
    /// By thread and cookie, matches of user parts that come after their samples.
    pub(crate) of_user_parts: HashMap<(u32, u64), Found>,
    pub(crate) unwinder: Option<Arc<Unwinder>>,
    pub(crate) hints: Hints,
}

pub(crate) struct FunctionLookup {
    functions: Arc<Functions>,
    cache: FrameCache<Found>,
    unwind: Option<Convert>,
}

/// Calls `see` with the addresses of a sample and their cpumodes, innermost first. A damaged sample has none.
pub(crate) fn each_address(
    SampleView { record, layout, layouts }: SampleView<'_>,
    stacks: &StackTables,
    unwind: Option<&mut Convert>,
    mut see: impl FnMut(u16, u64),
) {
    let unwound = unwind.and_then(|unwind| unwind.chain_of(record, layouts).ok().flatten());
    match unwound {
        Some(chain) => {
            stack_of(record, layout, chain.iter().copied()).for_each(|(mode, address)| see(mode, address));
        }
        None => {
            let mut buffer = Vec::new();
            let stack = stacks.call_stack(record, layout, &mut buffer);
            let chain = stack.into_iter().flat_map(|stack| stack.entries());
            stack_of(record, layout, chain).for_each(|(mode, address)| see(mode, address));
        }
    }
}

impl FunctionLookup {
    pub(crate) fn new(functions: Arc<Functions>) -> FunctionLookup {
        let unwind = functions.unwinder.as_ref().map(|unwinder| unwinder.on_thread(Kept::Registers));
        FunctionLookup { functions, cache: FrameCache::default(), unwind }
    }

    pub(crate) fn allows(&mut self, sample: SampleView<'_>, key: OrderKey, options: &FilterOptions) -> bool {
        let FunctionLookup { functions, cache, unwind } = self;
        let facts = &*functions.facts;
        let task = sample.task();
        let mut stack: Option<Found> = None;
        each_address(sample, &facts.stacks, unwind.as_mut(), |mode, address| {
            let space = sample.space(&facts.guests, mode);
            let learn =
                |frame: Frame| Ok::<_, ()>(functions.of_frames.get(&frame).copied().unwrap_or_default());
            let found = cache.get(facts, space, key, (mode, address), learn).unwrap_or_default();
            stack.get_or_insert(found).add(found);
        });
        let mut stack = stack.unwrap_or_default();
        let part =
            task.zip(deferred_cookie(sample.record, sample.layout)).map(|((_, tid), cookie)| (tid, cookie));
        stack.add(part.and_then(|part| functions.of_user_parts.get(&part)).copied().unwrap_or_default());
        stack.is_taken(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_taken_by_any_function_but_its_leaf_by_the_innermost() {
        let regexes =
            |names: &[&str]| names.iter().map(|name| Regex::new(&format!("^{name}$")).unwrap()).collect();
        let options = |symbol: &[&str], not: &[&str], leaf: &[&str]| {
            let mut options = FilterOptions::default();
            (options.symbol.only, options.symbol.not) = (regexes(symbol), regexes(not));
            options.leaf.only = regexes(leaf);
            options
        };
        // From the innermost: `leaf` is called by `caller`.
        let stack = |options: &FilterOptions| {
            let is =
                |regexes: &[Regex], name: &str| regexes.iter().any(|regex| regex.is_match(name.as_bytes()));
            let found = |name: &str| Found {
                wanted: is(&options.symbol.only, name),
                excluded: is(&options.symbol.not, name),
                leaf: is(&options.leaf.only, name),
            };
            let mut stack = found("leaf");
            stack.add(found("caller"));
            stack.is_taken(options)
        };
        assert!(stack(&options(&[], &[], &[])));
        assert!(stack(&options(&["caller"], &[], &[])) && stack(&options(&["leaf"], &[], &[])));
        assert!(!stack(&options(&["other"], &[], &[])));
        assert!(!stack(&options(&[], &["caller"], &[])) && !stack(&options(&["leaf"], &["caller"], &[])));
        assert!(stack(&options(&[], &["other"], &["leaf"])) && !stack(&options(&[], &[], &["caller"])));
    }
}
