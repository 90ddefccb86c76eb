//! Rewrites a guest's record for the host's recording: its time, its ids, and the machine it belongs to.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use perfx_format::read::Batch;
use perfx_format::record::builder::{set_misc, set_size};
use perfx_format::record::cpumode::{self, GUEST_KERNEL, GUEST_USER, USER};
use perfx_format::record::ids::{READ_FORMAT_ID, ids_about, ids_in_read};
use perfx_format::record::time::own_time_at;
use perfx_format::sample::Read;
use perfx_format::{
    Cursor, Endian, HEADER_SIZE, Layout, Record, RecordType, sample_fields, sample_type as st, trailer_fields,
};
use perfx_pipeline::Result;

use super::chosen::MergedKinds;
use super::clock::Clock;

/// The output's id for an id of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewId {
    pub(crate) id: u64,
    pub(crate) vcpu: Option<u32>,
}

/// Rewrites a guest's records for the host.
#[derive(Debug)]
pub(crate) struct Translator {
    pub(crate) endian: Endian,
    pub(crate) clock: Clock,
    pub(crate) chosen: MergedKinds,
    pub(crate) ids: HashMap<u64, NewId>,
    /// The guest's ids of each event.
    pub(crate) events: Vec<Vec<u64>>,
    /// The index of the host's thread of each VCPU.
    pub(crate) threads: BTreeMap<u32, u32>,
}

// PERF_RECORD_MISC_* of perf_event_open(2).
/// A guest's record rewritten for the host. Its CPU stays 0 until all earlier switches of the host are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslatedRecord {
    /// The host's time; 0 for none.
    pub(crate) time: u64,
    /// Its position in the buffer, bytes.
    pub(crate) at: usize,
    size: u16,
    /// The offset of its CPU in the record, bytes.
    cpu_at: Option<u16>,
    /// The index of the host's thread that ran its VCPU at that time.
    pub(crate) thread: Option<u32>,
}

impl TranslatedRecord {
    /// Its range in the buffer, bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + usize::from(self.size)
    }

    /// Sets the CPU in its bytes.
    pub(crate) fn set_cpu(&self, bytes: &mut [u8], cpu: u32, endian: Endian) {
        if let Some(at) = self.cpu_at {
            endian.set_u32(bytes, at.into(), cpu);
        }
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
        let short = || record.error(format!("no room for a sample_id of {} bytes", layout.trailer.size));
        if record.kind() != RecordType::SAMPLE {
            let needed = record.kind().min_size() + usize::from(layout.trailer.size);
            if record.bytes().len() < needed.min(HEADER_SIZE + usize::from(layout.trailer.size)) {
                return Err(short().into());
            }
        }
        let time = layout.time(record).ok_or_else(short)?;
        let is_timed = time != 0 && time != u64::MAX;
        let host_time = if is_timed {
            self.clock.host_time(time).filter(|&time| time != 0 && time != u64::MAX).ok_or_else(|| {
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
        let fields = Fields { id: id.id, time: if is_timed { host_time } else { time } };
        let is_sample = record.kind() == RecordType::SAMPLE;
        let at = out.len();
        if is_sample {
            self.sample(record, layout, &fields, out)?;
        } else {
            self.other(record, layout, &fields, out);
        }
        let new = out.get_mut(at..).unwrap_or_default();
        let size = self.seal(record, new)?;
        let cpu_at = if is_sample {
            let fields = sample_fields(layout.sample_type | st::IDENTIFIER);
            HEADER_SIZE + 8 * fields.take_while(|&bit| bit != st::CPU).count()
        } else {
            // Only the IDENTIFIER of the trailer follows.
            usize::from(size).saturating_sub(16)
        };
        let cpu_at = u16::try_from(cpu_at).ok().filter(|_| layout.sample_type & st::CPU != 0);
        Ok(Some(TranslatedRecord { time: host_time, at, size, cpu_at, thread }))
    }

    fn id_of(&self, record: &Record<'_>, layout: &Layout, event: usize) -> Result<NewId> {
        let id = layout.id(record).filter(|&id| id != 0);
        let found = match id {
            Some(id) => self.ids.get(&id),
            None => {
                // Only its event is known, and possibly its CPU.
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

    fn other(&self, record: &Record<'_>, layout: &Layout, fields: &Fields, out: &mut Vec<u8>) {
        let (old, start) = (record.bytes(), out.len());
        let trailer_at = old.len() - usize::from(layout.trailer.size);
        out.extend_from_slice(&old[..trailer_at]);
        let mut old_fields = old[trailer_at..].chunks_exact(8);
        for bit in trailer_fields(layout.sample_type | st::IDENTIFIER) {
            let there = if layout.sample_type & bit == 0 { None } else { old_fields.next() };
            out.extend_from_slice(&self.field(bit, there, fields));
        }
        let new = out.get_mut(start..).unwrap_or_default();
        // The ids in the record's own fields.
        for &at in ids_about(record.kind()).iter().filter(|&&at| at + 8 <= trailer_at) {
            if let Some(id) = self.endian.u64(new, at).and_then(|id| self.ids.get(&id)) {
                self.endian.set_u64(new, at, id.id);
            }
        }
        // As in perf inject, the time in a FORK or EXIT stays the guest's: readers use the trailer's.
        let throttled = matches!(record.kind(), RecordType::THROTTLE | RecordType::UNTHROTTLE);
        let own = own_time_at(record).filter(|&at| throttled && at + 8 <= trailer_at);
        if let Some(at) = own {
            self.endian.set_u64(new, at, fields.time);
        }
    }

    fn sample(&self, record: &Record<'_>, layout: &Layout, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
        let old = record.bytes();
        let Some((fixed, rest)) = old.split_at_checked(usize::from(layout.sample.size)) else {
            return Err(record.error("too short for its event's sample_type").into());
        };
        let (header, fixed) = fixed.split_at(HEADER_SIZE);
        out.extend_from_slice(header);
        let mut old_fields = fixed.chunks_exact(8);
        for bit in sample_fields(layout.sample_type | st::IDENTIFIER) {
            let there = if layout.sample_type & bit == 0 { None } else { old_fields.next() };
            out.extend_from_slice(&self.field(bit, there, fields));
        }
        let read_at = out.len();
        out.extend_from_slice(rest);
        if layout.sample_type & st::READ != 0 && layout.read_format & READ_FORMAT_ID != 0 {
            let read = Read::take(&mut Cursor::new(rest, self.endian), layout.read_format);
            let read = read.ok_or_else(|| record.error("its counters do not fit in it"))?;
            for at in ids_in_read(layout.read_format, read.counts().count()) {
                if let Some(id) = self.endian.u64(out, read_at + at).and_then(|id| self.ids.get(&id)) {
                    self.endian.set_u64(out, read_at + at, id.id);
                }
            }
        }
        Ok(())
    }

    /// Eight bytes of a fixed field; `old` holds the guest's, if it has the field.
    fn field(&self, bit: u64, old: Option<&[u8]>, fields: &Fields) -> [u8; 8] {
        match bit {
            st::TIME => self.endian.bytes_u64(fields.time),
            st::ID | st::STREAM_ID | st::IDENTIFIER => self.endian.bytes_u64(fields.id),
            st::CPU => [0; 8],
            _ => old.and_then(|old| old.try_into().ok()).unwrap_or_default(),
        }
    }

    /// Sets cpumode to guest and `header.size`; returns the size in bytes.
    fn seal(&self, record: &Record<'_>, new: &mut [u8]) -> Result<u16> {
        let Some(size) = set_size(new, self.endian) else {
            return Err(record.error("with an id it is larger than a record can be").into());
        };
        let guest = if record.cpumode() == USER { GUEST_USER } else { GUEST_KERNEL };
        set_misc(new, cpumode::with(record.misc(), guest), self.endian);
        Ok(size)
    }
}

/// The fields that are rewritten, except the CPU.
struct Fields {
    id: u64,
    time: u64,
}
