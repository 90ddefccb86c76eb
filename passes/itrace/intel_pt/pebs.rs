//! The events whose samples PEBS wrote to the trace and not to its own buffer (`aux-output`).

use std::collections::HashMap;

use perfx_auxtrace::{Counter, IntelPt};
use perfx_format::pebs::Items;
use perfx_format::record::aux::AuxOwner;
use perfx_format::sample::registers;
use perfx_format::{Attr, Event, sample_type as st};

use crate::support::event_ids::lacks_identifier;

/// The events, and when each counter counted which one.
#[derive(Clone, Default, Debug)]
pub(super) struct Pebs {
    events: Vec<PebsEvent>,
    by_id: HashMap<u64, usize>,
    /// By CPU or thread and number of a counter: the ids that it counted, and since when.
    counters: HashMap<(AuxOwner, u64), Vec<Since>>,
    owners: Vec<AuxOwner>,
    /// Samples have times.
    is_timed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct PebsEvent {
    pub(super) attr: Attr,
    first_id: u64,
    /// The period of all samples; 0 if it varies.
    pub(super) period: u64,
}

/// A tick from which a counter counted the event with this id.
#[derive(Clone, Copy, Debug)]
struct Since {
    ticks: u64,
    id: u64,
}

impl Pebs {
    pub(super) fn of(tracer: &IntelPt, all: &[Event], is_timed: bool) -> Pebs {
        let written = |event: &&Event| event.attr().aux_output() && !event.ids.is_empty();
        let identifier = if lacks_identifier(all) { st::IDENTIFIER } else { 0 };
        let mut pebs = Pebs { is_timed, ..Pebs::default() };
        for event in all.iter().filter(written) {
            let mut attr = *event.attr();
            attr.sample_type |= identifier;
            let period = if attr.freq() { 0 } else { attr.sample_period };
            pebs.by_id.extend(event.ids.iter().map(|id| (*id, pebs.events.len())));
            pebs.events.push(PebsEvent { attr, first_id: event.ids[0], period });
        }
        pebs.owners = tracer.buffers.iter().map(|buffer| AuxOwner::of(buffer.cpu, buffer.tid)).collect();
        for &Counter { time, cpu, tid, number, id } in &tracer.counters {
            let since = Since { ticks: tracer.clock().ticks(time), id };
            for owner in [AuxOwner::Cpu(cpu), AuxOwner::Thread(tid)] {
                pebs.counters.entry((owner, number)).or_default().push(since);
            }
        }
        pebs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events sampled by these items at this tick of a buffer, each with its id; `None` for a counter
    /// whose event is unknown. As in perf, a single event belongs to any counter.
    pub(super) fn of_sample(
        &self,
        buffer: usize,
        ticks: u64,
        items: &Items,
    ) -> Vec<Option<(&PebsEvent, u64)>> {
        let only = match &self.events[..] {
            [only] => Some((only, only.first_id)),
            _ => None,
        };
        let counters = items.counters();
        let mut found = Vec::new();
        for number in (0..u64::from(u64::BITS)).filter(|number| counters >> number & 1 != 0) {
            let event = self.event_of(buffer, number, ticks);
            found.push(event.or(only));
            if event.is_none() && only.is_some() {
                break;
            }
        }
        if found.is_empty() {
            found.push(only);
        }
        found
    }

    fn event_of(&self, buffer: usize, number: u64, ticks: u64) -> Option<(&PebsEvent, u64)> {
        let since = self.counters.get(&(*self.owners.get(buffer)?, number))?;
        let done = match self.is_timed {
            true => since.partition_point(|since| since.ticks <= ticks),
            false => since.len(),
        };
        let Since { id, .. } = *since.get(done.checked_sub(1)?)?;
        Some((&self.events[*self.by_id.get(&id)?], id))
    }
}

impl PebsEvent {
    /// The registers of a sample with these items: their ABI and values.
    pub(super) fn registers(&self, items: &Items, is_32_bit: bool) -> Option<(u64, Vec<u64>)> {
        let mask = self.attr.sample_regs_intr;
        let numbers = (0..u64::BITS).filter(|number| mask >> number & 1 != 0);
        let abi = if is_32_bit { registers::ABI_32 } else { registers::ABI_64 };
        items.has_registers().then(|| (abi, numbers.map(|number| items.register(number)).collect()))
    }
}
