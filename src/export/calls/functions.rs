//! Distinguishes functions by their symbols.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::record::cpumode::is_kernel;
use perfx_pipeline::Result;
use perfx_resolve::{Frame, NamedPlace, Names, Search};
use symbols::DwarfFiles;

use super::watched::{Role, Slowest, Watched, WatchedCalls};
use crate::chains::StackTree;
use crate::folded::{FoldedOptions, functions as names_of, whole};

/// The function of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) function: u32,
    /// The frame at its start; without a symbol, this frame.
    pub(super) start: u32,
    pub(super) is_start: bool,
    pub(super) is_kernel: bool,
    pub(super) role: Role,
}

/// A file or process memory, and where the function begins in it; `None` for all code without a symbol.
type Key = (Option<u32>, u32, Option<u64>);

pub(super) struct Functions<'n> {
    names: Names<'n>,
    files: &'n DwarfFiles,
    named: HashMap<(Option<u32>, u32), NamedPlace<'n>>,
    numbers: IndexSet<Key, RandomState>,
    known: Vec<Option<Place>>,
    /// The calls to watch, and then the name and the role of each function.
    watched: Option<&'n WatchedCalls<'n>>,
    roles: Vec<(String, Role)>,
}

impl<'n> Functions<'n> {
    pub(super) fn new(
        search: Search<'n>,
        files: &'n DwarfFiles,
        watched: Option<&'n WatchedCalls<'n>>,
    ) -> Functions<'n> {
        let (named, numbers, known) = (HashMap::new(), IndexSet::default(), Vec::new());
        Functions { names: Names::new(search), files, named, numbers, known, watched, roles: Vec::new() }
    }

    /// The place of a frame of the tree. Adds the frame at its function's start to the tree.
    pub(super) fn at(&mut self, frame: u32, tree: &mut StackTree) -> Result<Place> {
        if let Some(Some(place)) = self.known.get(frame as usize) {
            return Ok(*place);
        }
        let place = self.find(frame, tree)?;
        let known = &mut self.known;
        known.resize(known.len().max(frame as usize + 1), None);
        known[frame as usize] = Some(place);
        Ok(place)
    }

    fn find(&mut self, number: u32, tree: &mut StackTree) -> Result<Place> {
        let frame = tree.frame_of(number).unwrap_or(Frame::UNTRACED);
        let Functions { names, files, named, numbers, watched, roles, .. } = self;
        let named = named.entry((frame.dso, frame.process)).or_insert_with(|| names.place(frame, files));
        let name = named.name(frame.at);
        let offset = (!name.functions.is_empty()).then_some(name.offset);
        let at = offset.map(|offset| frame.at.wrapping_sub(offset));
        let (function, is_new) = numbers.insert_full((frame.dso, frame.process, at));
        if let Some(watched) = watched.filter(|_| is_new) {
            let name = names_of(frame, &name, &FoldedOptions::default(), whole).pop().unwrap_or_default();
            let role = watched.role(&name);
            roles.push((name, role));
        }
        Ok(Place {
            function: function as u32,
            start: at.map_or(Ok(number), |at| tree.frame(Frame { at, ..frame }))?,
            is_start: offset == Some(0),
            is_kernel: is_kernel(frame.mode),
            role: roles.get(function).map(|(_, role)| *role).unwrap_or_default(),
        })
    }

    /// The watched calls, with the names of functions.
    pub(super) fn named(&self, slowest: Slowest) -> Watched {
        let name = |function: u32| {
            let known = self.roles.get(function as usize);
            known.map_or_else(|| "[untraced]".to_owned(), |(name, _)| name.clone())
        };
        let names = |is: fn(Role) -> bool| {
            self.roles.iter().filter(|(_, role)| is(*role)).map(|(name, _)| name.clone()).collect()
        };
        let functions = [names(|role| role.begins), names(|role| role.ends_by_call || role.ends_by_return)];
        Watched { functions, names: names(|_| true), ..slowest.named(name) }
    }
}
