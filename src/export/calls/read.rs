//! Reads samples of branches.

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::read::Batch;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::{FlowFlags, Sample};
use perfx_format::{Kinds, Layouts, OrderKey, Record, RecordType};
use perfx_pipeline::Result;
use perfx_resolve::Facts;
use perfx_samples::{IsSelected, Losses, SampleView};

use super::branch::{Branch, Runner};
use crate::chains::{At, Resolver, StackTree, numbered};
use crate::stacks::{Grouping, Label};

/// The branches of one batch.
#[derive(Default)]
pub(super) struct Part {
    /// Their frames; it has no stacks.
    pub(super) tree: StackTree,
    pub(super) labels: IndexSet<Label, RandomState>,
    pub(super) branches: Vec<Branch<u32>>,
    pub(super) losses: Losses,
}

/// Reads the samples of one batch.
pub(super) struct Reader<'f> {
    facts: &'f Facts,
    grouping: Grouping,
    /// The number of the event of the branches.
    event: usize,
    is_selected: Option<IsSelected<'f>>,
    resolver: Resolver<'f>,
    part: Part,
}

impl<'f> Reader<'f> {
    /// A reader of the samples of this event; `is_selected` says which are selected.
    pub(super) fn new(
        facts: &'f Facts,
        grouping: Grouping,
        event: usize,
        is_selected: Option<IsSelected<'f>>,
    ) -> Reader<'f> {
        Reader {
            facts,
            grouping,
            event,
            is_selected,
            resolver: Resolver::new(facts, true),
            part: Part::default(),
        }
    }

    pub(super) fn read(mut self, batch: &Batch) -> Result<Part> {
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX)? {
            self.sample(&record, &batch.layouts)?;
        }
        self.part.tree = self.resolver.tree;
        Ok(self.part)
    }

    fn sample(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let sample = SampleView::of(record, layouts);
        let Some(sample) = sample.filter(|sample| sample.event() == Some(self.event)) else { return Ok(()) };
        let Ok(Sample { ip: Some(from), addr: Some(to), raw: Some(raw), pid_tid, cpu, .. }) = sample.parts()
        else {
            self.part.losses.short += 1;
            return Ok(());
        };
        let is_chosen = self.is_selected.as_mut().is_none_or(|is_selected| is_selected(sample));
        // In a trace without timestamps, all that the recording contains has happened, and nothing lasts.
        let time = sample.layout.recorded_time(record).unwrap_or(u64::MAX);
        let at = At { sample, pid: pid_tid.map(|(pid, _)| pid), key: OrderKey::at(time) };
        let Reader { facts, grouping, resolver, part, .. } = self;
        let mut frame = |address: u64| match address {
            // Not traced.
            0 => Ok(None),
            _ => resolver.frame(at, record.level_of(address), address).map(Some),
        };
        let (pid, tid) = pid_tid.unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
        let cpu = cpu.unwrap_or(Auxtrace::ANY);
        let label = Label::of(at, facts, *grouping, &mut part.losses);
        part.branches.push(Branch {
            // Each CPU has an idle thread, and without a number there is no telling threads of a CPU apart.
            runner: Runner {
                machine: facts.guests.machine(record, layouts, at.pid),
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
