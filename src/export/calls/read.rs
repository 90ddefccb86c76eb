//! Reads samples of branches.

use perfx_format::OrderKey;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::{FlowFlags, Sample};
use perfx_pipeline::Result;
use perfx_resolve::Facts;
use perfx_samples::{Before, Counters, IsSelected, SampleView, Visit};

use super::branch::{Branch, Part, Runner};
use super::follow::Follower;
use crate::chains::{At, Resolver, numbered};
use crate::stacks::{Grouping, Label};

pub(super) struct Reader<'f> {
    pub(super) facts: &'f Facts,
    pub(super) grouping: Grouping,
    pub(super) event: usize,
    /// Set if samples are selected; the others are followed, too.
    pub(super) is_selected: Option<IsSelected<'f>>,
    /// The frames; there are no stacks.
    pub(super) resolver: Resolver<'f>,
    pub(super) part: Part,
}

impl<'f> Visit for Reader<'f> {
    type Part = Part;
    type All = Follower<'f>;

    fn sample(&mut self, sample: SampleView<'_>, event: usize, counters: &mut Counters<'_>) -> Result<()> {
        if event != self.event {
            return Ok(());
        }
        let Ok(Sample { ip: Some(from), addr: Some(to), raw: Some(raw), pid_tid, cpu, .. }) = sample.parts()
        else {
            counters.losses.short += 1;
            return Ok(());
        };
        let is_chosen = self.is_selected.as_mut().is_none_or(|is_selected| is_selected(sample));
        // Without timestamps, everything in the recording has happened by then, and nothing lasts.
        let time = sample.layout.recorded_time(sample.record).unwrap_or(u64::MAX);
        let at = At { sample, pid: pid_tid.map(|(pid, _)| pid), key: OrderKey::at(time) };
        let Reader { facts, grouping, resolver, part, .. } = self;
        let mut frame = |address: u64| match address {
            // Not traced.
            0 => Ok(None),
            _ => resolver.frame(at, sample.record.level_of(address), address).map(Some),
        };
        let (pid, tid) = pid_tid.unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
        let cpu = cpu.unwrap_or(Auxtrace::ANY);
        let label = Label::of(at, facts, *grouping, &mut counters.losses);
        part.branches.push(Branch {
            // Each CPU has an idle thread, and threads without a number can only be distinguished by CPU.
            runner: Runner {
                machine: sample.machine(&facts.guests),
                pid,
                tid,
                cpu: if matches!(tid, 0 | Auxtrace::ANY) { cpu } else { Auxtrace::ANY },
            },
            time,
            from: frame(from)?,
            to: frame(to)?,
            address: to,
            behind: FlowFlags::return_address(raw, sample.record.endian()).unwrap_or(0),
            flags: FlowFlags::of_raw(raw, sample.record.endian()).unwrap_or_default(),
            label: numbered(part.labels.insert_full(label).0)?,
            is_chosen,
        });
        Ok(())
    }

    fn part(mut self, _passed_over: u64) -> Result<Part> {
        self.part.tree = self.resolver.tree;
        Ok(self.part)
    }

    fn join(all: &mut Follower<'f>, part: Part, _before: &Before) -> Result<()> {
        all.join(part)
    }
}
