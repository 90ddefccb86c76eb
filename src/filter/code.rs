//! Applies --symbol, --leaf and --dso to stacks that were not sampled, such as those rebuilt from a trace.

use perfx_pipeline::{Level, Report, Result};
use perfx_resolve::{Frame, Search, name_frames};

use crate::choice::{self, FilterOptions, is_function};
use crate::functions::Found;
use crate::hints::Hints;

/// The options that select code, matched with the frames of a recording.
#[derive(Debug)]
pub struct ChosenCode<'o> {
    options: &'o FilterOptions,
    /// For each frame, its matches, and true if its file is kept.
    of_frames: Vec<(Found, bool)>,
    hints: Hints,
}

/// How a stack matches.
#[derive(Clone, Copy, Debug)]
pub struct ChosenStack {
    functions: Found,
    in_file: bool,
}

impl<'o> ChosenCode<'o> {
    /// Matches all frames; `None` if no option selects by code.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn of(
        options: &'o FilterOptions,
        frames: impl ExactSizeIterator<Item = Frame>,
        search: Search<'_>,
    ) -> Result<Option<ChosenCode<'o>>> {
        if !options.chooses_functions() && !options.dso.is_set() {
            return Ok(None);
        }
        let dsos = search.facts.spaces.dsos().iter();
        let names = dsos.clone().map(|(dso, _)| perfx_resolve::dso_name(dso));
        let of_dsos = options.dso.with_parts(names, choice::is_file);
        let kept: Vec<bool> =
            dsos.clone().map(|(dso, _)| of_dsos.allows(|regex| choice::is_dso(regex, dso))).collect();
        let nowhere = options.dso.allows(|_| false);
        let mut of_frames = vec![(Found::default(), nowhere); frames.len()];
        let mut names = std::collections::BTreeSet::new();
        name_frames(frames, search, |number, frame, name| {
            let in_file = frame.dso.and_then(|dso| kept.get(dso as usize)).copied().unwrap_or(nowhere);
            of_frames[number as usize] = (Found::of(&name, options), in_file);
            names.extend(name.functions.iter().map(|function| function.name.clone()));
        })?;
        let mut hints = Hints::default();
        let known = || names.iter().map(|name| name.as_bytes());
        hints.of_names(("symbol", "functions"), &options.symbol, known(), is_function);
        hints.of_names(("leaf", "functions"), &options.leaf, known(), is_function);
        let names = dsos.map(|(dso, _)| perfx_resolve::dso_name(dso));
        hints.of_names(("dso", "dsos"), &options.dso, names, choice::is_file);
        Ok(Some(ChosenCode { options, of_frames, hints }))
    }

    /// The stack that ends with this frame, called from `caller`.
    pub fn called(&self, caller: Option<&ChosenStack>, frame: u32) -> ChosenStack {
        let (mut functions, in_file) = self.of_frames[frame as usize];
        if let Some(caller) = caller {
            functions.add(caller.functions);
        }
        ChosenStack { functions, in_file }
    }

    /// True if the stack is kept.
    pub fn takes(&self, stack: &ChosenStack) -> bool {
        stack.in_file && stack.functions.is_taken(self.options)
    }

    /// Reports hints for options that match nothing in the recording of this name.
    pub fn say_none(&self, recording: &str, report: &mut Report) {
        self.hints.lines(recording).for_each(|hint| report.say(Level::Warning, hint));
    }
}
