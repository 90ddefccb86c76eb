//! Reads decoded branches.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::{FlowFlags, Sample};
use perfx_format::{Endian, Kinds, Layouts, OrderKey, Record, RecordType, SWITCH_OUT};
use perfx_pipeline::Result;
use perfx_resolve::Facts;
use perfx_samples::{Alike, IsSelected, Losses, Rows, SampleView, Sampled};

use super::branch::{Branch, Event, Part, Runner};
use crate::chains::{At, Resolver, numbered};
use crate::stacks::{Grouping, Label};

/// Reads branches on one thread.
pub(super) struct Reader<'f> {
    pub(super) facts: &'f Facts,
    pub(super) grouping: Grouping,
    pub(super) layouts: &'f Layouts,
    pub(super) endian: Endian,
    pub(super) event: usize,
    /// Set if samples are selected; the others are followed, too.
    pub(super) is_selected: Option<IsSelected<'f>>,
    /// The frames; there are no stacks.
    pub(super) resolver: Resolver<'f>,
    /// The numbers of branches since the last record that may change what they mean.
    pub(super) known: HashMap<Key, u32, RandomState>,
}

/// Equal branches: the stencil of their samples, flags, source, target, and the address after the source.
type Key = (usize, u32, u64, u64, u64);

impl Reader<'_> {
    /// Reads the branches of a batch.
    pub(super) fn read(&mut self, rows: &Rows) -> Result<(Part, Losses)> {
        let (facts, layouts, endian) = (self.facts, self.layouts, self.endian);
        let (mut part, mut losses, mut bytes) = (Part::default(), Losses::default(), Vec::new());
        self.known.clear();
        part.seen.reserve(rows.count());
        let mut known = rows.alike(layouts, facts);
        for number in 0..rows.count() {
            let mut own;
            let mut key = None;
            let known = match rows.get(number) {
                Some(Sampled::Alike(stencil, fields)) => {
                    let (flags, behind) = meaning(fields.raw, endian);
                    let equal = (stencil, flags.0, fields.ip, fields.addr, behind);
                    if let Some(&known) = self.known.get(&equal) {
                        part.seen.push((known, fields.time));
                        continue;
                    }
                    key = Some(equal);
                    let known = &mut known[stencil];
                    known
                        .iter_mut()
                        .flat_map(|known| &mut known.parts)
                        .for_each(|parts| fields.set_in(parts));
                    known
                }
                Some(Sampled::Record(bytes)) => {
                    let record = rows.record(number, bytes, endian)?;
                    if let Some((event, time)) = self.switch(&record) {
                        let number = part.add(event)?;
                        part.seen.push((number, time));
                        continue;
                    }
                    if record.kind() != RecordType::SAMPLE {
                        self.known.clear();
                        continue;
                    }
                    own = Alike::of(record, layouts, facts);
                    &mut own
                }
                None => break,
            };
            let Some(Alike { record, layout, event, parts }) = known else {
                losses.astray += 1;
                continue;
            };
            if *event != self.event {
                continue;
            }
            let Some(Sample { ip: Some(from), addr: Some(to), raw: Some(raw), time, .. }) = parts else {
                losses.short += 1;
                continue;
            };
            let sample = SampleView { record, layout, layouts };
            let is_chosen = match &mut self.is_selected {
                Some(is_selected) => {
                    let record = rows.record_in(number, &mut bytes, endian)?;
                    is_selected(SampleView { record: &record, ..sample })
                }
                None => true,
            };
            // Without timestamps, branches come after all records, and calls take no time.
            let (is_timed, time) = (time.is_some(), time.unwrap_or(u64::MAX));
            let at = At { sample, pid: sample.pid(), key: OrderKey::at(time) };
            let mut frame = |address: u64| match address {
                // Not traced.
                0 => Ok(None),
                _ => self.resolver.frame(at, record.level_of(address), address).map(Some),
            };
            let task = sample.task().unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
            let cpu = sample.cpu().unwrap_or(Auxtrace::ANY);
            let label = Label::of(at, facts, self.grouping, &mut losses);
            let (flags, behind) = meaning(raw, endian);
            let branch = Branch {
                runner: Runner::new(sample.machine(&facts.guests), task, cpu),
                cpu,
                from: frame(*from)?,
                to: frame(*to)?,
                address: *to,
                behind,
                flags,
                label: numbered(part.labels.insert_full(label).0)?,
                is_chosen,
            };
            let number = part.add(Event::Branch(branch))?;
            part.seen.push((number, time));
            // A selection may depend on the time.
            if let Some(key) = key.filter(|_| is_timed && self.is_selected.is_none()) {
                self.known.insert(key, number);
            }
        }
        part.tree = self.resolver.take();
        Ok((part, losses))
    }

    /// The switch that a record reports, and its time.
    fn switch(&self, record: &Record<'_>) -> Option<(Event<u32>, u64)> {
        let sample =
            SampleView::of(record, self.layouts).filter(|_| Kinds::SWITCHES.contains(record.kind()))?;
        let cpu = sample.cpu().unwrap_or(Auxtrace::ANY);
        let runner = Runner::new(sample.machine(&self.facts.guests), sample.task()?, cpu);
        Some((Event::Switch { runner, leaves: record.misc() & SWITCH_OUT != 0 }, sample.time()?.ns()))
    }
}

/// The flags of a branch, and the address after its source, in the raw data of its sample.
fn meaning(raw: &[u8], endian: Endian) -> (FlowFlags, u64) {
    let flags = FlowFlags::of_raw(raw, endian).unwrap_or_default();
    (flags, FlowFlags::return_address(raw, endian).unwrap_or(0))
}
