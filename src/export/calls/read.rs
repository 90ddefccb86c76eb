//! Reads decoded branches.

use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::{FlowFlags, Sample};
use perfx_format::{Endian, Kinds, Layouts, OrderKey, Record, RecordType, SWITCH_OUT};
use perfx_pipeline::Result;
use perfx_resolve::Facts;
use perfx_samples::{Alike, IsSelected, Losses, Rows, SampleView, Sampled};

use super::branch::{Branch, Part, Runner, Seen, Switch};
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
}

impl Reader<'_> {
    /// Reads the branches of a batch.
    pub(super) fn read(&mut self, rows: &Rows) -> Result<(Part, Losses)> {
        let (facts, layouts, endian) = (self.facts, self.layouts, self.endian);
        let (mut part, mut losses, mut bytes) = (Part::default(), Losses::default(), Vec::new());
        let mut known = rows.alike(layouts, facts);
        for number in 0..rows.count() {
            let mut own;
            let known = match rows.get(number) {
                Some(Sampled::Alike(stencil, fields)) => {
                    let known = &mut known[stencil];
                    known
                        .iter_mut()
                        .flat_map(|known| &mut known.parts)
                        .for_each(|parts| fields.set_in(parts));
                    known
                }
                Some(Sampled::Record(bytes)) => {
                    let record = rows.record(number, bytes, endian)?;
                    if record.kind() != RecordType::SAMPLE {
                        part.seen.extend(self.switch(&record).map(Seen::Switch));
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
                    bytes.clear();
                    rows.write(number, &mut bytes);
                    let record = rows.record(number, &bytes, endian)?;
                    is_selected(SampleView { record: &record, ..sample })
                }
                None => true,
            };
            // Without timestamps, branches come after all records, and calls take no time.
            let time = time.unwrap_or(u64::MAX);
            let at = At { sample, pid: sample.pid(), key: OrderKey::at(time) };
            let mut frame = |address: u64| match address {
                // Not traced.
                0 => Ok(None),
                _ => self.resolver.frame(at, record.level_of(address), address).map(Some),
            };
            let task = sample.task().unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
            let cpu = sample.cpu().unwrap_or(Auxtrace::ANY);
            let label = Label::of(at, facts, self.grouping, &mut losses);
            part.seen.push(Seen::Branch(Branch {
                runner: Runner::new(sample.machine(&facts.guests), task, cpu),
                cpu,
                time,
                from: frame(*from)?,
                to: frame(*to)?,
                address: *to,
                behind: FlowFlags::return_address(raw, endian).unwrap_or(0),
                flags: FlowFlags::of_raw(raw, endian).unwrap_or_default(),
                label: numbered(part.labels.insert_full(label).0)?,
                is_chosen,
            }));
        }
        part.tree = self.resolver.take();
        Ok((part, losses))
    }

    /// The switch that a record reports.
    fn switch(&self, record: &Record<'_>) -> Option<Switch> {
        let sample =
            SampleView::of(record, self.layouts).filter(|_| Kinds::SWITCHES.contains(record.kind()))?;
        let cpu = sample.cpu().unwrap_or(Auxtrace::ANY);
        Some(Switch {
            runner: Runner::new(sample.machine(&self.facts.guests), sample.task()?, cpu),
            time: sample.time()?.ns(),
            leaves: record.misc() & SWITCH_OUT != 0,
        })
    }
}
