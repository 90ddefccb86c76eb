//! The log of a decoded part: a few bytes for each step or path, kept until all earlier parts are known.

use std::ops::Range;

use perfx_auxtrace::Part;
use perfx_trace::{Block, BlockId, Blocks, Event, Kind, PathId, Space, Step};

/// A decoded item.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Step(Step),
    /// A step whose end has no packet.
    Straight(Step),
    /// This many paths of the log in a row without a new time between them, and their instructions.
    Paths(u32, u32),
    /// The steps of the next path after its lead are at this time, in ticks.
    AfterLead(u64),
    /// The following steps and events are at this time, in ticks.
    Time(u64),
    /// A packet contains this time, in ticks.
    Now(u64),
    /// A packet contains this number of core cycles; true if it is exact.
    Cycles(u64, bool),
    /// The following steps are of this thread.
    Space(Option<Space>),
    /// An event, by its number.
    Event(u32),
}

/// The decoded part, or its rest that has not been replayed.
#[derive(Debug)]
pub(crate) struct PartLog {
    pub(crate) part: Part,
    pub(crate) entries: Vec<Entry>,
    pub(crate) paths: Vec<PathId>,
    pub(crate) events: Vec<Event>,
    pub(crate) selected: SelectedBranches,
}

/// The selected branches of each path, found once. All samplers of a decoder select the same.
#[derive(Default, Debug)]
pub(crate) struct SelectedBranches {
    /// The range of each path in `branches`, by the path's number; `None` until it is looked up.
    of_paths: Vec<Option<Range<u32>>>,
    branches: Vec<PathBranch>,
}

/// A branch of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathBranch {
    pub(crate) from: u64,
    /// The address after it.
    pub(crate) next: u64,
    pub(crate) to: u64,
    pub(crate) kind: Kind,
    /// Its number in the table of branches, if known.
    pub(crate) number: Option<u32>,
}

impl PathBranch {
    fn of(blocks: &Blocks, (from, to): (BlockId, BlockId)) -> PathBranch {
        let Block { last, next, kind, .. } = blocks[from];
        PathBranch { from: last, next, to: blocks[to].start, kind, number: None }
    }
}

impl SelectedBranches {
    /// The selected branches of a path.
    pub(crate) fn of(
        &mut self,
        id: PathId,
        blocks: &Blocks,
        is_selected: impl Fn(Kind) -> bool,
    ) -> &mut [PathBranch] {
        let SelectedBranches { of_paths, branches } = self;
        if of_paths.len() <= id.index() {
            of_paths.resize(id.index() + 1, None);
        }
        let range = of_paths[id.index()].get_or_insert_with(|| {
            let taken = blocks.steps(id).iter().filter_map(|step| Some((step.block, step.to?)));
            let start = branches.len() as u32;
            let selected = taken.filter(|(from, _)| is_selected(blocks[*from].kind));
            branches.extend(selected.map(|ends| PathBranch::of(blocks, ends)));
            start..branches.len() as u32
        });
        &mut branches[range.start as usize..range.end as usize]
    }

    /// The numbers of paths and blocks become invalid.
    pub(crate) fn clear(&mut self) {
        self.of_paths.clear();
        self.branches.clear();
    }
}
