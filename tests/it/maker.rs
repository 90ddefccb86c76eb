//! Makes recordings with a clock of their own, one record at a time.

use std::fs::File;
use std::path::Path;

use perfx_format::features::TracingData;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, MappedFile, Mmap2, RecordType as T, sample_type as st};

pub(crate) const LE: Endian = Endian::Little;

/// The processor mode of user space in `misc`.
pub(crate) const USER: u16 = 2;

/// A TRACING_DATA section with the formats of tracepoints of a system.
pub(crate) fn tracing_data(system: &str, formats: &[&str]) -> Vec<u8> {
    let front = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0header_page\0";
    let empty = [&front[..], &[0; 8], b"header_event\0", &[0; 24]].concat();
    let mut data = TracingData::read(&empty).unwrap();
    data.systems = vec![(system.as_bytes(), formats.iter().map(|format| format.as_bytes()).collect())];
    data.write().unwrap()
}

/// An event of the tracepoint with this id, which has one id, and raw data.
pub(crate) fn tracepoint(config: u64, id: u64) -> Event {
    let mut attr = Attr::default();
    // PERF_TYPE_TRACEPOINT, sample_id_all.
    (attr.type_, attr.config, attr.flags) = (2, config, 1 << 18);
    attr.sample_type = PLAIN | st::IDENTIFIER | st::RAW;
    Event::made(&attr, vec![id], LE)
}

/// Makes a recording, one record at a time.
pub(crate) struct Maker {
    pub(crate) writer: RecordingWriter<File>,
    /// The time of the next record, ns.
    pub(crate) time: u64,
    /// True if the events have ids, the first of which is 1.
    identified: bool,
}

pub(crate) fn event(sample_type: u64, ids: Vec<u64>) -> Event {
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_type) = (1, 1000, sample_type);
    // sample_id_all, CLOCK_MONOTONIC.
    (attr.flags, attr.clockid) = (1 << 18 | 1 << 25, 1);
    Event::made(&attr, ids, LE)
}

pub(crate) const PLAIN: u64 = st::IP | st::TID | st::TIME;

impl Maker {
    pub(crate) fn new(path: &Path, events: &[Event]) -> Maker {
        let identified = events[0].attr().sample_type & st::IDENTIFIER != 0;
        Maker { writer: RecordingWriter::create(path, events, LE).unwrap(), time: 1000, identified }
    }

    pub(crate) fn put(&mut self, kind: T, misc: u16, pid: u32, body: &[&[u8]]) {
        let end = self.trailer(kind, pid);
        self.writer.write_parts(kind, misc, &[body, &[&end]].concat()).unwrap();
        self.time += 1;
    }

    /// The end of a record: the thread and the time, and with ids that of the first event, which comes first
    /// in samples.
    pub(crate) fn trailer(&self, kind: T, pid: u32) -> Vec<u8> {
        let has_id = self.identified && kind != T::SAMPLE;
        let id: &[u8] = if has_id { &1_u64.to_le_bytes() } else { &[] };
        [&[pid; 2].map(u32::to_le_bytes).concat()[..], &self.time.to_le_bytes(), id].concat()
    }

    pub(crate) fn task(&mut self, kind: T, pid: u32, parent: u32) {
        let words = [pid, parent, pid, parent].map(u32::to_le_bytes);
        let time = self.time.to_le_bytes();
        self.put(kind, 0, pid, &[words.as_flattened(), &time]);
    }

    pub(crate) fn fork(&mut self, pid: u32, parent: u32) {
        self.task(T::FORK, pid, parent);
    }

    pub(crate) fn comm(&mut self, pid: u32, name: &str, misc: u16) {
        let mut padded = name.as_bytes().to_vec();
        padded.resize(16, 0);
        self.put(T::COMM, misc, pid, &[&pid.to_le_bytes(), &pid.to_le_bytes(), &padded]);
    }

    pub(crate) fn mmap(&mut self, pid: u32, start: u64, len: u64, name: &str) {
        let mut padded = name.as_bytes().to_vec();
        padded.resize((name.len() + 8) / 8 * 8, 0);
        let (pids, range) = ([pid; 2].map(u32::to_le_bytes), [start, len, 0].map(u64::to_le_bytes));
        self.put(T::MMAP, USER, pid, &[pids.as_flattened(), range.as_flattened(), &padded]);
    }

    pub(crate) fn sample(&mut self, pid: u32, ip: u64) {
        self.sample_of(0, pid, ip);
    }

    pub(crate) fn sample_of(&mut self, id: u64, pid: u32, ip: u64) {
        let (id, ip) = (id.to_le_bytes(), ip.to_le_bytes());
        let body: &[&[u8]] = if self.identified { &[&id, &ip] } else { &[&ip] };
        self.put(T::SAMPLE, USER, pid, body);
    }

    /// A sample of a [`tracepoint`].
    pub(crate) fn trace(&mut self, id: u64, pid: u32, raw: &[u8]) {
        let words = [id, 0x10010, u64::from(pid) << 32 | u64::from(pid), self.time].map(u64::to_le_bytes);
        let mut padded = raw.to_vec();
        padded.resize((4 + raw.len()).next_multiple_of(8) - 4, 0);
        let size = (padded.len() as u32).to_le_bytes();
        self.writer.write_parts(T::SAMPLE, USER, &[words.as_flattened(), &size, &padded]).unwrap();
        self.time += 1;
    }

    /// A file with a build-id or an inode.
    pub(crate) fn mmap2(&mut self, pid: u32, start: u64, len: u64, file: MappedFile<'_>, name: &str) {
        let (tid, pgoff, prot, flags) = (pid, 0, 5, 2);
        let trailer = self.trailer(T::MMAP2, pid);
        let (misc, name, trailer) = (USER, name.as_bytes(), &trailer[..]);
        let mapping = Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer };
        self.writer.write(&mapping.write(LE).unwrap()).unwrap();
        self.time += 1;
    }
}
