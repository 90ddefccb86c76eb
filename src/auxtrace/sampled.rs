//! Finds the traces in samples (`perf record --aux-sample`): each holds the last bytes of the buffer that its
//! event shares with the others of its CPU or thread.

use std::collections::HashMap;

use perfx_format::record::aux::Auxtrace;
use perfx_format::record::id_index::{IdEntry, IdIndex};
use perfx_format::sample::Sample;
use perfx_format::{Event, Layout, Record, sample_type as st};

#[derive(Debug, Default)]
pub(crate) struct Sampled {
    /// Samples of some event have traces.
    is_expected: bool,
    buffers: HashMap<u64, Buffer>,
}

/// A buffer: its number, and its CPU or thread.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    idx: u32,
    cpu: u32,
    tid: u32,
}

impl Sampled {
    pub(crate) fn of(events: &[Event]) -> Sampled {
        let is_expected = events.iter().any(|event| event.attr().sample_type & st::AUX != 0);
        Sampled { is_expected, buffers: HashMap::new() }
    }

    pub(crate) fn is_expected(&self) -> bool {
        self.is_expected
    }

    pub(crate) fn learn(&mut self, record: &Record<'_>) {
        if self.is_expected {
            let entries = IdIndex::of(record).into_iter().flat_map(|index| index.entries());
            // ANY is truncated to the ANY of the smaller type.
            let buffer = |entry: &IdEntry| Buffer {
                idx: entry.idx as u32,
                cpu: entry.cpu as u32,
                tid: entry.tid as u32,
            };
            self.buffers.extend(entries.map(|entry| (entry.id, buffer(&entry))));
        }
    }

    /// The trace in a sample as AUXTRACE would describe it, its offset in the record, and its bytes.
    pub(crate) fn read<'r>(
        &self,
        record: &Record<'r>,
        layout: &Layout,
    ) -> Option<(Auxtrace, usize, &'r [u8])> {
        let (start, data) = trace_in_sample(record, layout)?;
        let known = layout.id(record).and_then(|id| self.buffers.get(&id).copied());
        // Without an ID_INDEX record each CPU has a buffer.
        let cpu = layout.cpu(record).unwrap_or(Auxtrace::ANY);
        let Buffer { idx, cpu, tid } = known.unwrap_or(Buffer { idx: 0, cpu, tid: Auxtrace::ANY });
        let chunk = Auxtrace { size: data.len() as u64, offset: 0, reference: 0, idx, tid, cpu };
        Some((chunk, start, data))
    }
}

/// The offset of the trace in a sample's record, and its bytes; `None` if it has none.
pub(crate) fn trace_in_sample<'r>(record: &Record<'r>, layout: &Layout) -> Option<(usize, &'r [u8])> {
    let sample = Sample::parse(record, layout).ok()?;
    let data = sample.aux.filter(|data| !data.is_empty())?;
    Some((record.bytes().len().checked_sub(sample.rest.len() + data.len())?, data))
}
