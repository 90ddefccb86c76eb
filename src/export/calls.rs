//! Makes stacks of the calls and returns in a hardware trace: one for each change of the running function,
//! which lasts until the next change in its thread.
//!
//! `perfx_passes::Itrace::calls` decodes a trace into samples of branches. All threads read these; then one
//! follows them in order of time, at the same cost for each, however deep the stack is.

mod branch;
mod follow;
mod functions;
mod nodes;
mod read;
mod watched;

use std::ops::Range;
use std::sync::Arc;

use perfx_filter::{ChosenCode, ChosenStack, FilterOptions, SelectedSamples};
use perfx_format::Layouts;
use perfx_format::read::Recording;
use perfx_pipeline::{Context as _, Level, Report, Result, ordered};
use perfx_resolve::{Facts, IdOptions, Search, dwarf_files};
use perfx_samples::{Losses, Rows, Select};

use self::branch::Part;
use self::follow::{Follower, Out};
use self::functions::Functions;
use self::read::{Known, Reader, has_changes};
use self::watched::Slowest;
pub use self::watched::{CallList, CalledRow, Instance, IsNamed, Watched, WatchedCalls};
use crate::chains::Resolver;
use crate::stacks::{Grouping, Stacks};

/// The selection of calls.
#[derive(Clone, Copy, Debug)]
pub struct ChosenCalls<'c> {
    /// Tasks, CPUs and code.
    pub filter: &'c FilterOptions,
    /// Ascending half-open ranges in ns; `None` for all times.
    pub times: Option<&'c [Range<u64>]>,
    /// Calls that are shown one by one.
    pub watched: Option<&'c WatchedCalls<'c>>,
}

impl Stacks {
    /// Follows the calls in the trace of a recording. Its last event is that of the branches in `decoded`; in
    /// `facts`, it is [`EventFacts::of_calls`](perfx_resolve::EventFacts::of_calls). Rows have calls as
    /// samples, and the time in ns as period. Functions are distinguished by their symbols, which are
    /// searched for in the places of `ids`. Returns the watched calls, too.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or lacks a field to select by.
    pub fn of_calls(
        (recording, decoded): (&mut Recording, &mut (dyn Iterator<Item = Rows> + Send)),
        facts: &Facts,
        ids: &IdOptions,
        grouping: Grouping,
        chosen: ChosenCalls<'_>,
        threads: usize,
        report: &mut Report,
    ) -> Result<(Stacks, Option<Watched>)> {
        let event = facts.events.len().checked_sub(1).context("the recording has no events")?;
        let of_tasks = Arc::new(chosen.filter.of_tasks());
        let selected = SelectedSamples::if_any(recording, &of_tasks, threads, report)?;
        let (features, endian) = (recording.features.clone(), recording.endian);
        let search = Search { facts, features: &features, endian, ids, inlined: false };
        let (files, out) = (dwarf_files(), Out::new(event as u32, grouping, chosen.times));
        let slowest = chosen.watched.map(|watched| Slowest::new(watched.most));
        let mut follower = Follower::new(Functions::new(search, &files, chosen.watched), out, slowest)?;
        let layouts = &Layouts::new(&recording.all_events());
        let reader = |number| {
            let is_selected = selected.as_ref().map(Select::on_thread);
            let (resolver, known) = (Resolver::new(facts, true), Known::default());
            Reader { facts, grouping, layouts, endian, event, is_selected, resolver, number, known }
        };
        let mut readers: Vec<Reader<'_>> = (0..threads.max(1)).map(reader).collect();
        let mut losses = Losses::default();
        // The number of earlier batches with changes, which other readers may have read.
        let changes = |changes: &mut u32, rows: Rows| {
            let before = *changes;
            *changes += u32::from(has_changes(&rows, endian));
            Some((before, rows))
        };
        let read = |reader: &mut Reader<'_>, (changes, rows): (u32, Rows)| reader.read(changes, &rows);
        ordered(
            decoded.scan(0, changes),
            &mut readers,
            threads <= 1,
            read,
            |done: Result<(Part, Losses)>| -> Result<()> {
                let (part, lost) = done?;
                losses += lost;
                follower.join(part)
            },
        )?;
        losses.say("not followed", report);
        let (mut stacks, mut watched) = follower.finish()?;
        if !stacks.durations.is_empty() && stacks.durations.values().all(|calls| calls.took_no_time()) {
            let what = "the samples of the trace have no times of their own, so the durations of calls and the \
                        times of functions are not known";
            report.say(Level::Warning, what);
            stacks.durations.clear();
            watched = watched.map(Watched::without_times);
        }
        if let Some(code) = ChosenCode::of(chosen.filter, stacks.tree.frames(), search)? {
            stacks.retain(&code);
            if stacks.rows.is_empty() {
                code.say_none(&recording.name, report);
            }
        }
        if let Some(selected) = selected.as_ref().filter(|_| stacks.rows.is_empty()) {
            selected.say_none(&recording.name, true, report);
        }
        if stacks.rows.is_empty() && chosen.times.is_some() {
            report.say(Level::Warning, "nothing was traced at these times");
        }
        Ok((stacks, watched))
    }

    /// Keeps the stacks with the chosen code.
    fn retain(&mut self, code: &ChosenCode<'_>) {
        let mut known: Vec<ChosenStack> = Vec::with_capacity(self.tree.nodes().len());
        for (parent, frame) in self.tree.nodes() {
            // A parent has a lower number than its children.
            known.push(code.called(known.get(parent as usize), frame));
        }
        let is_taken = |stack: u32| known.get(stack as usize).is_some_and(|stack| code.takes(stack));
        self.rows.retain(|row, _| is_taken(row.stack));
        self.durations.retain(|(stack, _), _| is_taken(*stack));
    }
}
