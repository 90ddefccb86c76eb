//! Makes stacks of the calls and returns that a hardware trace tells: one for each change of the running function, which
//! lasts until the next change of its thread.
//!
//! [`Itrace::calls`](perfx_passes::Itrace::calls) decodes a trace into samples of branches. All threads read these; then one
//! follows them in the order of time, so that each costs the same, however deep the stack is.

mod follow;
mod functions;
mod nodes;

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode::{KERNEL, KERNEL_START, USER};
use perfx_format::sample::{FlowFlags, Sample};
use perfx_format::{Kinds, Layouts, Record, RecordType};
use perfx_model::address_space::moment;
use perfx_passes::{ChosenCode, ChosenStack, FilterOptions, SampleChooser, SelectedSamples};
use perfx_pipeline::{Context as _, Level, Report, Result};
use perfx_resolve::{Facts, IdOptions, Search, dwarf_files};

use self::follow::{Branch, Follower, Out, Runner};
use self::functions::Functions;
use crate::batches::each_batch;
use crate::chains::{At, Resolver, StackTree, numbered};
use crate::counters::event_of;
use crate::losses::Losses;
use crate::stacks::{Grouping, Label, Stacks};

/// What is selected of the calls.
#[derive(Clone, Copy, Debug)]
pub struct ChosenCalls<'c> {
    /// Tasks, CPUs and code.
    pub filter: &'c FilterOptions,
    /// Ascending half-open ranges in ns; `None` for all times.
    pub times: Option<&'c [Range<u64>]>,
}

impl Stacks {
    /// Follows the calls in a recording whose trace was decoded. Its last event is that of the branches, which is
    /// [`EventFacts::of_calls`](perfx_resolve::EventFacts::of_calls) in `facts`. In the rows, the number of samples is that
    /// of calls, and the period the time, ns. Functions are told apart by their symbols, which are searched for in the places
    /// of `ids`.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or lacks what the calls are selected by.
    pub fn of_calls(
        recording: &mut Recording,
        facts: &Facts,
        ids: &IdOptions,
        grouping: Grouping,
        chosen: ChosenCalls<'_>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Stacks> {
        let event = facts.events.len().checked_sub(1).context("the recording has no events")?;
        let of_tasks = Arc::new(chosen.filter.of_tasks());
        let selected = SelectedSamples::if_any(recording, &of_tasks, threads, report)?;
        let (features, endian) = (recording.features.clone(), recording.endian);
        let search = Search { facts, features: &features, endian, ids, inlined: false };
        let (files, out) = (dwarf_files(), Out::new(event as u32, grouping, chosen.times));
        let mut follower = Follower::new(Functions::new(search, &files), out)?;
        let mut losses = Losses::default();
        let work = |batch: &Batch| {
            let chooser = selected.as_ref().map(SelectedSamples::chooser);
            let part = Part::default();
            Reader { facts, grouping, event, chooser, resolver: Resolver::new(facts), part }.read(batch)
        };
        let bytes = each_batch(recording, threads, report, work, |_, part| {
            losses += part.losses;
            follower.join(part)
        })?;
        losses.say("not followed", report);
        let mut stacks = follower.finish()?;
        stacks.bytes = bytes;
        if let Some(code) = ChosenCode::of(chosen.filter, stacks.tree.frames(), search)? {
            stacks.retain(&code);
            if stacks.rows.is_empty() {
                code.say_none(&recording.name, report);
            }
        }
        if let Some(selected) = selected.filter(|_| stacks.rows.is_empty()) {
            selected.say_none(&recording.name, report);
        }
        if stacks.rows.is_empty() && chosen.times.is_some() {
            report.say(Level::Warning, "nothing was traced at these times");
        }
        Ok(stacks)
    }

    /// Keeps the stacks with the chosen code.
    fn retain(&mut self, code: &ChosenCode<'_>) {
        let mut known: Vec<ChosenStack> = Vec::with_capacity(self.tree.nodes().len());
        for (parent, frame) in self.tree.nodes() {
            // A parent has a lower number than its children.
            known.push(code.called(known.get(parent as usize), frame));
        }
        self.rows.retain(|row, _| known.get(row.stack as usize).is_some_and(|stack| code.takes(stack)));
    }
}

/// The branches of one batch.
#[derive(Default)]
struct Part {
    /// Their frames; it has no stacks.
    tree: StackTree,
    labels: IndexSet<Label, RandomState>,
    branches: Vec<Branch<u32>>,
    losses: Losses,
}

/// Reads the samples of one batch.
struct Reader<'f> {
    facts: &'f Facts,
    grouping: Grouping,
    /// The number of the event of the branches.
    event: usize,
    chooser: Option<SampleChooser>,
    resolver: Resolver<'f>,
    part: Part,
}

impl Reader<'_> {
    fn read(mut self, batch: &Batch) -> Result<Part> {
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX)? {
            self.sample(&record, &batch.layouts)?;
        }
        self.part.tree = self.resolver.tree;
        Ok(self.part)
    }

    fn sample(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let Some((_, layout)) =
            event_of(record, layouts, self.facts).filter(|(event, _)| *event == self.event)
        else {
            return Ok(());
        };
        let Ok(Sample { ip: Some(from), addr: Some(to), raw: Some(raw), pid_tid, cpu, .. }) =
            Sample::parse(record, layout)
        else {
            self.part.losses.short += 1;
            return Ok(());
        };
        let is_chosen = self.chooser.as_mut().is_none_or(|chooser| chooser.takes(record, layouts));
        let time = match layouts.has_time() {
            // A trace without timestamps: all that the recording tells has happened.
            true => layout.time(record).unwrap_or(u64::MAX),
            false => moment(record, Some(layout), layouts),
        };
        let at = At { record, layouts, pid: pid_tid.map(|(pid, _)| pid), time };
        let Reader { facts, grouping, resolver, part, .. } = self;
        let mut frame = |address: u64| match address {
            // Not traced.
            0 => Ok(None),
            _ => {
                let mode = if address >= KERNEL_START { KERNEL } else { USER };
                resolver.frame(at, mode, address).map(Some)
            }
        };
        let (pid, tid) = pid_tid.unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
        let cpu = cpu.unwrap_or(Auxtrace::ANY);
        let label = Label::of((record, layout, layouts), facts, *grouping, time, &mut part.losses);
        part.branches.push(Branch {
            // Each CPU has an idle thread, and without a number there is no telling threads of a CPU apart.
            runner: Runner {
                pid,
                tid,
                cpu: if matches!(tid, 0 | Auxtrace::ANY) { cpu } else { Auxtrace::ANY },
            },
            time,
            from: frame(from)?,
            to: frame(to)?,
            address: to,
            behind: FlowFlags::return_address(raw, record.endian()).unwrap_or(0),
            flags: FlowFlags::of_raw(raw, record.endian()).unwrap_or_default(),
            label: numbered(part.labels.insert_full(label).0)?,
            is_chosen,
        });
        Ok(())
    }
}
