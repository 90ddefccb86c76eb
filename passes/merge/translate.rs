//! Rewrites a guest's record for the host's recording: its time, its ids, and the machine it belongs to.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use perfx_format::read::Batch;
use perfx_format::record::cpumode::{self, GUEST_KERNEL, GUEST_USER, USER};
use perfx_format::record::identifier::{Moved, NewFields, write_moved};
use perfx_format::{Endian, Layout, Record, Time};
use perfx_pipeline::Result;

use super::chosen::MergedKinds;
use super::clock::Clock;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewId {
    pub(crate) id: u64,
    pub(crate) vcpu: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Translator {
    pub(crate) clock: Clock,
    pub(crate) chosen: MergedKinds,
    pub(crate) ids: HashMap<u64, NewId>,
    pub(crate) events: Vec<Vec<u64>>,
    /// By VCPU, the index of the host's thread.
    pub(crate) threads: BTreeMap<u32, u32>,
}

/// A guest's record rewritten for the host. Its CPU is 0 until all earlier switches of the host are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslatedRecord {
    /// On the host; 0 for none.
    pub(crate) time: u64,
    pub(crate) at: usize,
    moved: Moved,
    /// The index of the host's thread that ran its VCPU.
    pub(crate) thread: Option<u32>,
}

impl TranslatedRecord {
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + self.moved.size()
    }

    pub(crate) fn set_cpu(&self, bytes: &mut [u8], cpu: u32, endian: Endian) {
        self.moved.set_cpu(bytes, cpu, endian);
    }
}

impl Translator {
    /// Appends the rewritten record to `out`. `None` if the record is not merged.
    pub(crate) fn translate(
        &self,
        record: &Record<'_>,
        batch: &Batch,
        out: &mut Vec<u8>,
    ) -> Result<Option<TranslatedRecord>> {
        if !self.chosen.takes(record, &batch.layouts) {
            return Ok(None);
        }
        let Some(event) = batch.layouts.event_of(record) else {
            return Err(record.error("no event has its id").into());
        };
        let Some(layout) = batch.layouts.all().get(event) else { return Ok(None) };
        let time = layout.required_time(record)?;
        let is_timed = Time::recorded(time).is_some();
        let host_time = if is_timed {
            self.clock.host_time(time).filter(|&time| Time::recorded(time).is_some()).ok_or_else(|| {
                record.error(format!(
                    "its time {time} would be before 0 on the host's clock: the offset is wrong"
                ))
            })?
        } else {
            0
        };
        let id = self.id_of(record, layout, event)?;
        let vcpu = id.vcpu.or_else(|| layout.cpu(record));
        let thread = vcpu.and_then(|vcpu| self.threads.get(&vcpu).copied()).filter(|_| is_timed);
        let guest = if record.cpumode() == USER { GUEST_USER } else { GUEST_KERNEL };
        let fields = NewFields {
            id: id.id,
            time: if is_timed { host_time } else { time },
            misc: cpumode::with(record.misc(), guest),
        };
        let at = out.len();
        let new_id = |id| Some(self.ids.get(&id)?.id);
        let moved = write_moved(record, layout, &fields, new_id, out)?;
        Ok(Some(TranslatedRecord { time: host_time, at, moved, thread }))
    }

    fn id_of(&self, record: &Record<'_>, layout: &Layout, event: usize) -> Result<NewId> {
        let id = layout.id(record).filter(|&id| id != 0);
        let found = match id {
            Some(id) => self.ids.get(&id),
            None => {
                // Only its event and possibly its CPU are known.
                let cpu = layout.cpu(record).filter(|_| layout.id(record).is_none());
                let mut ids = self.events.get(event).into_iter().flatten().filter_map(|id| self.ids.get(id));
                let first = ids
                    .clone()
                    .next()
                    .or_else(|| self.events.iter().flatten().find_map(|id| self.ids.get(id)));
                ids.find(|id| cpu.is_some() && id.vcpu == cpu).or(first)
            }
        };
        Ok(*found.ok_or_else(|| record.error(format!("no event has its id {}", id.unwrap_or(0))))?)
    }
}
