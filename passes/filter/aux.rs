//! Decides which chunks of AUX data may cover a window: an AUX record has the time by which the data up to
//! its end was written.

use std::collections::HashMap;

use perfx_format::record::aux::{Aux, Auxtrace};
use perfx_format::{Layouts, Record};

use super::choice::FilterOptions;

/// The AUX records of each buffer, which belongs to a CPU or else to a thread.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    buffers: HashMap<Buffer, Vec<Written>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Buffer {
    Cpu(u32),
    Thread(u32),
}

/// `start..end` of the AUX stream was written by that time.
#[derive(Clone, Copy, Debug)]
struct Written {
    start: u64,
    end: u64,
    time: u64,
}

impl Chunks {
    /// Takes in an AUX record.
    pub(super) fn learn(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let Some(layout) = layouts.layout_of(record) else { return };
        let Some((aux, time)) = Aux::of(record).zip(layout.time(record)) else { return };
        let written = Written { start: aux.offset, end: aux.offset.saturating_add(aux.size), time };
        let thread = layout.pid_tid(record).map(|(_, tid)| Buffer::Thread(tid));
        for buffer in layout.cpu(record).map(Buffer::Cpu).into_iter().chain(thread) {
            self.buffers.entry(buffer).or_default().push(written);
        }
    }

    pub(super) fn join(&mut self, later: Chunks) {
        for (buffer, written) in later.buffers {
            self.buffers.entry(buffer).or_default().extend(written);
        }
    }

    pub(super) fn sorted(mut self) -> Chunks {
        self.buffers.values_mut().for_each(|written| written.sort_by_key(|written| written.time));
        self
    }

    /// Whether an AUXTRACE record may hold selected data. Data without AUX records may.
    pub(super) fn keeps(
        &self,
        record: &Record<'_>,
        options: &FilterOptions,
        in_windows: &dyn Fn(u64, u64) -> bool,
    ) -> bool {
        let Some(Auxtrace { size, offset: start, tid, cpu, .. }) = Auxtrace::of(record) else { return true };
        if cpu != Auxtrace::ANY && !options.cpu.allows(|cpus| cpus.contains(&cpu)) {
            return false;
        }
        if cpu == Auxtrace::ANY && tid != Auxtrace::ANY && !options.tid.allows(|&wanted| wanted == tid) {
            return false;
        }
        let buffer = if cpu == Auxtrace::ANY { Buffer::Thread(tid) } else { Buffer::Cpu(cpu) };
        let Some(written) = self.buffers.get(&buffer) else { return true };
        let end = start.saturating_add(size);
        let before = written.iter().filter(|written| written.end <= start).map(|written| written.time).max();
        let inside = |written: &&Written| written.start < end && written.end > start;
        let until = written.iter().filter(inside).map(|written| written.time).max();
        match until {
            Some(until) => in_windows(before.unwrap_or(0), until),
            None => true,
        }
    }
}
