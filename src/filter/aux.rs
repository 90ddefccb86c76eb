//! Decides what AUX data is kept for a window, and cuts it out of its chunks.
//!
//! Data of Arm SPE is cut into records, each with its time. Data of Intel PT is cut at PSB packets, where a
//! decoder can begin: data between two of them is kept if the time between them meets the window. Chunks of
//! other data, snapshots, and data without times are kept or dropped whole: an AUX record has the time by
//! which the data up to its end was written.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use perfx_format::intel_pt::psbs;
use perfx_format::record::aux::{Aux, AuxOwner, Auxtrace, AuxtraceInfo};
use perfx_format::record::pt_info::PtInfo;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::spe::pieces;
use perfx_format::{Layouts, OrderKey, Record};

use crate::choice::FilterOptions;
use crate::time::Windows;

/// The AUX records of each buffer, which belongs to a CPU or to a thread, and the times of its PSB packets.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    buffers: HashMap<AuxOwner, Vec<Written>>,
    synced: HashMap<AuxOwner, Vec<Synced>>,
    is_spe: bool,
    is_pt: bool,
    is_other: bool,
    /// Snapshots overlap, and a decoder needs all of their data to find where.
    is_snapshot: bool,
    spe_time: Option<TimeConv>,
    pt_time: Option<TimeConv>,
    /// Samples of sched:sched_switch indicate the traced thread.
    pub(crate) needs_switches: bool,
    /// The earliest counter at the start of a chunk of Arm SPE.
    spe_first: Option<u64>,
}

/// Data in `start..end` of the AUX stream was written by this time.
#[derive(Clone, Copy, Debug)]
struct Written {
    start: u64,
    end: u64,
    time: u64,
}

/// The counter at the first and at the last PSB packet of a chunk that begins at `offset` of the AUX stream.
#[derive(Clone, Copy, Debug)]
struct Synced {
    offset: u64,
    first: u64,
    last: u64,
}

/// A record of Arm SPE begins within this many bytes of a chunk.
const FRONT: usize = 4096;

pub(crate) enum Kept<'r> {
    All,
    Nothing,
    /// These bytes, from this offset of the AUX stream on.
    Part(u64, Cow<'r, [u8]>),
}

impl Chunks {
    /// Reads a record that describes or holds AUX data. With `scan`, data is searched for PSB packets.
    pub(crate) fn learn(&mut self, record: &Record<'_>, layouts: &Layouts, scan: bool) {
        if let Some(info) = AuxtraceInfo::of(record) {
            let (is_spe, is_pt) = (info == AuxtraceInfo::ARM_SPE, info == AuxtraceInfo::INTEL_PT);
            self.is_spe |= is_spe;
            self.is_pt |= is_pt;
            self.is_other |= !is_spe && !is_pt;
            if let Some(info) = PtInfo::of(record) {
                self.needs_switches |= info.switches == PtInfo::BY_SAMPLES;
                self.is_snapshot |= info.is_snapshot;
            }
            self.pt_time = self.pt_time.or(AuxtraceInfo::pt_time(record));
        }
        self.spe_time = self.spe_time.or(TimeConv::of(record));
        if let Some(auxtrace) = Auxtrace::of(record).filter(|_| scan) {
            let data = record.payload();
            let front = &data[..data.len().min(FRONT)];
            let first = pieces(front, auxtrace.offset).find_map(|(_, record)| record?.timestamp);
            self.spe_first = self.spe_first.into_iter().chain(first).min();
            let times = || psbs(record.payload()).filter_map(|psb| psb.near(auxtrace.reference));
            if let Some(first) = times().next() {
                let last = times().last().unwrap_or(first);
                let synced = Synced { offset: auxtrace.offset, first, last };
                self.synced.entry(AuxOwner::of(auxtrace.cpu, auxtrace.tid)).or_default().push(synced);
            }
        }
        let Some(layout) = layouts.layout_of(record) else { return };
        let Some((aux, time)) = Aux::of(record).zip(layout.recorded_time(record)) else { return };
        let written = Written { start: aux.offset, end: aux.offset.saturating_add(aux.size), time };
        let thread = layout.pid_tid(record).map(|(_, tid)| AuxOwner::Thread(tid));
        for buffer in layout.cpu(record).map(AuxOwner::Cpu).into_iter().chain(thread) {
            self.buffers.entry(buffer).or_default().push(written);
        }
    }

    pub(crate) fn join(&mut self, later: Chunks) {
        for (buffer, written) in later.buffers {
            self.buffers.entry(buffer).or_default().extend(written);
        }
        for (buffer, synced) in later.synced {
            self.synced.entry(buffer).or_default().extend(synced);
        }
        self.is_spe |= later.is_spe;
        self.is_pt |= later.is_pt;
        self.needs_switches |= later.needs_switches;
        self.is_other |= later.is_other;
        self.is_snapshot |= later.is_snapshot;
        self.spe_time = self.spe_time.or(later.spe_time);
        self.pt_time = self.pt_time.or(later.pt_time);
        self.spe_first = self.spe_first.into_iter().chain(later.spe_first).min();
    }

    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let written = || self.buffers.values().flatten().map(|written| written.time);
        let synced = || {
            let conv = self.pt_time.filter(|_| self.is_pt);
            let counters = self.synced.values().flatten().flat_map(|synced| [synced.first, synced.last]);
            counters.filter_map(move |counter| Some(conv?.time(counter)))
        };
        let spe = self.spe_first.zip(self.spe_time.filter(|_| self.is_spe));
        let times = || synced().chain(written()).chain(spe.map(|(first, conv)| conv.time(first)));
        times().min().zip(times().max())
    }

    /// Sorts both lists as in the AUX stream. For binary searches, ends and times become the largest so far.
    pub(crate) fn sorted(mut self) -> Chunks {
        for written in self.buffers.values_mut() {
            written.sort_by_key(|written| (written.start, written.end));
            let mut before = (0, 0);
            for Written { end, time, .. } in written {
                (*end, *time) = ((*end).max(before.0), (*time).max(before.1));
                before = (*end, *time);
            }
        }
        self.synced.values_mut().for_each(|synced| synced.sort_by_key(|synced| synced.offset));
        self
    }

    pub(crate) fn has_data(&self) -> bool {
        self.is_spe || self.traces_code()
    }

    /// True if the AUX data is a trace of code: switch records name the traced thread.
    pub(crate) fn traces_code(&self) -> bool {
        self.is_pt || self.is_other
    }

    /// The time up to which switch records are needed for a window that ends at `end`: the last piece of
    /// trace ends at a PSB packet, at the latest the first one of a chunk after the window.
    pub(crate) fn switches_end(&self, end: OrderKey) -> OrderKey {
        let Some(conv) = self.pt_time.filter(|_| self.is_pt && !self.is_other) else { return OrderKey::END };
        let ends = self.synced.values().map(|synced| {
            let after =
                synced.iter().map(|synced| OrderKey::at(conv.time(synced.first))).find(|key| *key >= end);
            after.unwrap_or(OrderKey::END)
        });
        ends.max().unwrap_or(end).max(end)
    }

    /// The kept part of an AUXTRACE record. With `owned`, data between two PSB packets belongs to the time of
    /// the first one only, so that it is in one part of a split recording.
    pub(crate) fn cut<'r>(
        &self,
        record: &Record<'r>,
        options: &FilterOptions,
        windows: &Windows,
        owned: bool,
    ) -> Kept<'r> {
        let Some(auxtrace) = Auxtrace::of(record) else { return Kept::All };
        let Auxtrace { cpu, tid, .. } = auxtrace;
        let is_of_cpu = cpu == Auxtrace::ANY || options.cpu.allows(|cpus| cpus.contains(&cpu));
        let has_thread = cpu == Auxtrace::ANY && tid != Auxtrace::ANY;
        if !is_of_cpu || has_thread && !options.tid.allows(|&wanted| wanted == tid) {
            return Kept::Nothing;
        }
        if windows.are_all() {
            return Kept::All;
        }
        let (data, base) = (record.payload(), auxtrace.offset);
        let ranges = match (self.is_spe, self.is_pt, self.is_other) {
            (true, false, false) => self.spe_time.and_then(|conv| spe_ranges(data, base, conv, windows)),
            (false, true, false) if !self.is_snapshot => {
                self.pt_time.and_then(|conv| self.pt_ranges(data, &auxtrace, conv, windows, owned))
            }
            _ => None,
        };
        match ranges {
            Some(ranges) => part(data, base, &ranges),
            None if self.may_meet(&auxtrace, windows) => Kept::All,
            None => Kept::Nothing,
        }
    }

    /// True if a chunk may hold data of the windows; true for data without AUX records.
    fn may_meet(&self, auxtrace: &Auxtrace, windows: &Windows) -> bool {
        let Some(written) = self.buffers.get(&AuxOwner::of(auxtrace.cpu, auxtrace.tid)) else { return true };
        let (start, end) = (auxtrace.offset, auxtrace.offset.saturating_add(auxtrace.size));
        let ended = written.partition_point(|written| written.end <= start);
        let begun = written.partition_point(|written| written.start < end);
        let latest = |count: usize| OrderKey::at(written[..count].last().map_or(0, |written| written.time));
        begun <= ended || windows.meet(latest(ended), latest(begun))
    }

    /// The kept ranges of Intel PT data between PSB packets; `None` if the buffer has no times.
    fn pt_ranges(
        &self,
        data: &[u8],
        auxtrace: &Auxtrace,
        conv: TimeConv,
        windows: &Windows,
        owned: bool,
    ) -> Option<Vec<Range<usize>>> {
        let synced = self.synced.get(&AuxOwner::of(auxtrace.cpu, auxtrace.tid))?;
        let next = synced.partition_point(|synced| synced.offset < auxtrace.offset);
        // The data before the first packet belongs to the last one of an earlier chunk.
        let before = next.checked_sub(1).and_then(|before| synced.get(before));
        let after = synced.get(synced.partition_point(|synced| synced.offset <= auxtrace.offset));
        let first = (0, before.map_or(0, |synced| conv.time(synced.last)));
        let last = (data.len(), after.map_or(u64::MAX, |synced| conv.time(synced.first)));
        let inside = psbs(data).filter_map(|psb| Some((psb.at, conv.time(psb.near(auxtrace.reference)?))));
        let points: Vec<(usize, u64)> = [first].into_iter().chain(inside).chain([last]).collect();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for pair in points.windows(2) {
            let ((start, from), (end, to)) = (pair[0], pair[1]);
            // After kernel code, a decoder estimates times that can be later than those that follow.
            let past = to.saturating_sub(from);
            let until = if owned { from } else { to.saturating_add(past).saturating_sub(1).max(from) };
            if start < end && windows.meet(OrderKey::at(from), OrderKey::at(until)) {
                add(&mut ranges, start..end);
            }
        }
        Some(ranges)
    }
}

fn add(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// The ranges of Arm SPE records in the windows; `None` without any time. Records without one have the last.
fn spe_ranges(data: &[u8], base: u64, conv: TimeConv, windows: &Windows) -> Option<Vec<Range<usize>>> {
    let (mut ranges, mut is_kept) = (Vec::new(), None);
    for (range, record) in pieces(data, base) {
        if let Some(counter) = record.and_then(|record| record.timestamp) {
            let key = OrderKey::at(conv.time(counter));
            is_kept = Some(windows.meet(key, key));
        }
        if is_kept.unwrap_or(true) {
            add(&mut ranges, range);
        }
    }
    // With END packets only, the chunk is kept or dropped as a whole.
    is_kept.map(|_| ranges)
}

/// The bytes in these ranges of a chunk that begins at `base`.
fn part<'r>(data: &'r [u8], base: u64, ranges: &[Range<usize>]) -> Kept<'r> {
    let Some(first) = ranges.first() else { return Kept::Nothing };
    let offset = base.saturating_add(first.start as u64);
    match ranges {
        [all] if *all == (0..data.len()) => Kept::All,
        [one] if one.len().is_multiple_of(8) => Kept::Part(offset, Cow::Borrowed(&data[one.clone()])),
        ranges => {
            let mut kept: Vec<u8> = ranges.iter().flat_map(|range| &data[range.clone()]).copied().collect();
            // Both tracers use zeros as padding.
            kept.resize(kept.len().next_multiple_of(8), 0);
            Kept::Part(offset, Cow::Owned(kept))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kept: &Kept<'_>) -> Option<(u64, Vec<u8>)> {
        match kept {
            Kept::Part(offset, data) => Some((*offset, data.to_vec())),
            Kept::All | Kept::Nothing => None,
        }
    }

    #[test]
    fn ranges_that_touch_are_one_and_parts_are_padded_to_eight_bytes() {
        let mut ranges = Vec::new();
        for range in [0..4, 4..8, 12..16] {
            add(&mut ranges, range);
        }
        assert_eq!(ranges, [0..8, 12..16]);
        let data: Vec<u8> = (0..16).collect();
        let of = |ranges: &[Range<usize>]| part(&data, 100, ranges);
        let one = |range| part(&data, 100, std::slice::from_ref(&range));
        assert!(matches!(of(&[]), Kept::Nothing) && matches!(one(0..16), Kept::All));
        assert_eq!(bytes(&one(8..16)), Some((108, data[8..].to_vec())));
        assert_eq!(bytes(&of(&[2..4, 8..9])), Some((102, vec![2, 3, 8, 0, 0, 0, 0, 0])));
    }

    #[test]
    fn a_chunk_is_kept_if_it_was_written_in_a_window_or_no_record_says_when() {
        let written = |start, end, time| Written { start, end, time };
        // The second record came late, so its time becomes that of the first.
        let list = vec![written(64, 128, 20), written(0, 64, 30), written(128, 192, 50)];
        let chunks =
            Chunks { buffers: HashMap::from([(AuxOwner::Cpu(0), list)]), ..Chunks::default() }.sorted();
        let may_meet = |cpu, offset, size, window: Range<u64>| {
            let tid = Auxtrace::ANY;
            let auxtrace = Auxtrace { size, offset, reference: 0, idx: 0, tid, cpu };
            let window = OrderKey::at(window.start)..OrderKey::at(window.end);
            chunks.may_meet(&auxtrace, &Windows::one(window))
        };
        assert!(may_meet(0, 0, 64, 0..31) && may_meet(0, 0, 64, 30..31) && !may_meet(0, 0, 64, 31..99));
        assert!(may_meet(0, 128, 64, 31..99) && may_meet(0, 128, 64, 0..31) && !may_meet(0, 128, 64, 51..99));
        assert!(may_meet(0, 192, 64, 99..100) && may_meet(1, 0, 64, 99..100), "no record says when");
    }

    #[test]
    fn the_range_of_a_trace_is_that_of_what_was_written_and_of_its_counters() {
        let conv = TimeConv { shift: 1, mult: 2, zero: 100, short: None, can_convert: true };
        let written = |time| Written { start: 0, end: 8, time };
        let synced = |first, last| Synced { offset: 0, first, last };
        let mut one = Chunks {
            buffers: HashMap::from([(AuxOwner::Cpu(0), vec![written(150), written(90)])]),
            ..Chunks::default()
        };
        assert_eq!((one.range(), Chunks::default().range()), (Some((90, 150)), None));
        let other = Chunks {
            synced: HashMap::from([
                (AuxOwner::Cpu(0), vec![synced(20, 60)]),
                (AuxOwner::Cpu(1), vec![synced(30, 40)]),
            ]),
            buffers: HashMap::from([(AuxOwner::Cpu(0), vec![written(140)])]),
            pt_time: Some(conv),
            is_pt: true,
            ..Chunks::default()
        };
        assert_eq!(other.range(), Some((120, 160)));
        assert!(!one.has_data() && other.has_data() && other.traces_code());
        // Switches up to the next sync point of every buffer name the threads of a window.
        let end = |at: u64| other.switches_end(OrderKey::at(at));
        assert_eq!((end(110), end(131)), (OrderKey::at(130), OrderKey::END));
        one.join(other);
        assert_eq!((one.range(), one.is_pt, one.is_spe), (Some((90, 160)), true, false));
        assert_eq!(one.buffers[&AuxOwner::Cpu(0)].len(), 3);
        let spe = Chunks { is_spe: true, spe_first: Some(70), spe_time: Some(conv), ..Chunks::default() };
        assert_eq!(spe.range(), Some((170, 170)));
        assert!(spe.has_data() && !spe.traces_code());
        assert_eq!(Chunks { spe_time: None, ..spe }.range(), None);
        one.join(Chunks {
            is_spe: true,
            is_other: true,
            is_snapshot: true,
            needs_switches: true,
            spe_first: Some(5),
            ..Chunks::default()
        });
        assert!(
            one.is_spe && one.is_other && one.is_snapshot && one.needs_switches && one.spe_first == Some(5)
        );
        assert_eq!(one.switches_end(OrderKey::at(1)), OrderKey::END);
    }
}
