//! Reads decoded branches.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::{FlowFlags, Sample, Stencil};
use perfx_format::{Endian, Kinds, Layouts, OrderKey, Record, RecordType, SWITCH_OUT};
use perfx_pipeline::Result;
use perfx_resolve::Facts;
use perfx_samples::{Alike, IsSelected, Losses, Rows, SampleView, Sampled};

use super::branch::{Branch, Event, Part, Runner};
use crate::chains::{At, Resolver, numbered};
use crate::recent::{self, Recent};
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
    /// The number of this reader.
    pub(super) number: usize,
    pub(super) known: Known,
}

/// The events of the batches so far.
#[derive(Default)]
pub(super) struct Known {
    /// The number of events.
    count: usize,
    /// The numbers of branches since the last record that may change what they mean: of those of a table,
    /// by their stencil and number there, and of others.
    shared: HashMap<u64, u32, RandomState>,
    recent: Recent,
    branches: HashMap<Key, u32, RandomState>,
    /// The number of batches with changes before them.
    changes: u32,
    /// The stencils of their samples, and the number of each by its place in memory.
    stencils: Vec<Arc<Stencil>>,
    numbers: HashMap<usize, u32, RandomState>,
}

/// Equal branches: the stencil of their samples and flags, the source, the target, and the address after the
/// source.
type Key = (u64, u64, u64, u64);

/// Maximum number of events, and of stencils, before a batch.
const MOST_EVENTS: usize = 1 << 16;
const MOST_STENCILS: usize = 1 << 10;

impl Known {
    fn is_full(&self) -> bool {
        self.count > MOST_EVENTS || self.stencils.len() > MOST_STENCILS
    }

    /// Adds an event; returns its number.
    fn add(&mut self, event: Event<u32>, part: &mut Part) -> Result<u32> {
        part.events.push(event);
        self.count += 1;
        numbered(self.count - 1)
    }

    /// The same addresses and threads may have another meaning from here on.
    fn forget_branches(&mut self) {
        self.shared.clear();
        self.recent.clear();
        self.branches.clear();
    }

    /// The number of a branch of a table.
    #[inline]
    fn shared(&mut self, shared: u64) -> Option<u32> {
        self.recent.get(shared).or_else(|| {
            let number = *self.shared.get(&shared)?;
            self.recent.set(shared, number);
            Some(number)
        })
    }

    /// The number of a stencil.
    fn stencil(&mut self, stencil: &Arc<Stencil>) -> Result<u32> {
        let place = Arc::as_ptr(stencil).addr();
        if let Some(&known) = self.numbers.get(&place) {
            return Ok(known);
        }
        let number = numbered(self.stencils.len())?;
        self.stencils.push(stencil.clone());
        self.numbers.insert(place, number);
        Ok(number)
    }
}

impl Reader<'_> {
    /// Reads the branches of a batch. Before it were `changes` batches with changes.
    pub(super) fn read(&mut self, changes: u32, rows: &Rows) -> Result<(Part, Losses)> {
        let (facts, layouts, endian) = (self.facts, self.layouts, self.endian);
        let is_anew = self.known.is_full();
        if is_anew {
            self.known = Known::default();
        }
        if std::mem::replace(&mut self.known.changes, changes) != changes {
            self.known.forget_branches();
        }
        let mut part = Part { reader: self.number, is_anew, ..Part::default() };
        let (mut losses, mut bytes) = (Losses::default(), Vec::new());
        part.seen.reserve(rows.count());
        let mut alike = rows.alike(layouts, facts);
        let stencils = rows.stencils().iter().map(|stencil| self.known.stencil(stencil));
        let stencils: Vec<u32> = stencils.collect::<Result<_>>()?;
        for number in 0..rows.count() {
            let mut shared = None;
            if let Some((stencil, branch, time)) = rows.branch(number) {
                let equal = recent::key(stencils[stencil], branch);
                if let Some(known) = self.known.shared(equal) {
                    part.seen.push((known, time));
                    continue;
                }
                shared = Some(equal);
            }
            let mut own;
            let mut key = None;
            let known = match rows.get(number) {
                Some(Sampled::Alike(stencil, fields)) => {
                    if shared.is_none() {
                        let (flags, behind) = meaning(fields.raw, endian);
                        let alike_in = u64::from(stencils[stencil]) << 32 | u64::from(flags.0);
                        let equal = (alike_in, fields.ip, fields.addr, behind);
                        if let Some(&known) = self.known.branches.get(&equal) {
                            part.seen.push((known, fields.time));
                            continue;
                        }
                        key = Some(equal);
                    }
                    let alike = &mut alike[stencil];
                    alike
                        .iter_mut()
                        .flat_map(|alike| &mut alike.parts)
                        .for_each(|parts| fields.set_in(parts));
                    alike
                }
                Some(Sampled::Record(bytes)) => {
                    let record = rows.record(number, bytes, endian)?;
                    if let Some((event, time)) = self.switch(&record) {
                        let number = self.known.add(event, &mut part)?;
                        part.seen.push((number, time));
                        continue;
                    }
                    if is_change(&record) {
                        self.known.forget_branches();
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
            let number = self.known.add(Event::Branch(branch), &mut part)?;
            part.seen.push((number, time));
            // A selection may depend on the time.
            if is_timed && self.is_selected.is_none() {
                if let Some(shared) = shared {
                    self.known.shared.insert(shared, number);
                }
                if let Some(key) = key {
                    self.known.branches.insert(key, number);
                }
            }
        }
        if !part.events.is_empty() {
            part.tree = self.resolver.take();
        }
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

/// True if a record may change what addresses and threads mean.
fn is_change(record: &Record<'_>) -> bool {
    record.kind() != RecordType::SAMPLE && !Kinds::SWITCHES.contains(record.kind())
}

/// True if some records may change what addresses and threads mean.
pub(super) fn has_changes(rows: &Rows, endian: Endian) -> bool {
    let mut records = rows.records();
    records.any(|(number, bytes)| rows.record(number, bytes, endian).is_ok_and(|record| is_change(&record)))
}

/// The flags of a branch, and the address after its source, in the raw data of its sample.
fn meaning(raw: &[u8], endian: Endian) -> (FlowFlags, u64) {
    let flags = FlowFlags::of_raw(raw, endian).unwrap_or_default();
    (flags, FlowFlags::return_address(raw, endian).unwrap_or(0))
}
