//! What the host's recording tells about its guests: which threads are VCPUs, when and where they ran, and how far time had come at every
//! FINISHED_ROUND.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perfx_format::{Kinds, Layouts, Origin, Record, RecordType, until_nul};

use super::clock::TimeConv;

/// Bits 0-2 of `misc`: the record is of a guest, merged before.
pub(crate) fn is_guests(record: &Record<'_>) -> bool {
    matches!(record.cpumode(), 4 | 5)
}

/// Names that virtual machine monitors give their VCPU threads, up to the number.
const VCPU_NAMES: [&[u8]; 5] = [b"CPU ", b"vcpu", b"fc_vcpu ", b"crosvm_vcpu", b"kvm-vcpu-"];

/// The number of a VCPU whose thread has this name: `CPU 1/KVM`, `fc_vcpu 1`.
fn vcpu_of(comm: &[u8]) -> Option<u32> {
    VCPU_NAMES.iter().find_map(|name| {
        let rest = comm.strip_prefix(*name)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        (rest.is_empty() || rest[0] == b'/').then(|| std::str::from_utf8(number).ok()?.parse().ok())?
    })
}

/// A thread and its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
}

/// First look: who is there.
#[derive(Clone, Default, Debug)]
pub(crate) struct Machines {
    /// By process and VCPU.
    pub(crate) vcpus: BTreeMap<u32, BTreeMap<u32, Thread>>,
    /// Guests that are in the host's recording already.
    pub(crate) merged: BTreeSet<u64>,
    pub(crate) time_conv: Option<TimeConv>,
    /// The largest id of an event that pipe data tells among its records.
    pub(crate) late_id: u64,
}

impl Machines {
    pub(crate) fn kinds() -> Kinds {
        Kinds::of(&[RecordType::COMM, RecordType::ID_INDEX, RecordType::TIME_CONV, RecordType::HEADER_ATTR])
    }

    pub(crate) fn look_at(&mut self, record: &Record<'_>) {
        match record.kind() {
            RecordType::COMM if !is_guests(record) => {
                let comm = until_nul(record.bytes().get(16..).unwrap_or_default());
                if let (Some(pid), Some(tid), Some(vcpu)) = (record.u32(8), record.u32(12), vcpu_of(comm)) {
                    let name = String::from_utf8_lossy(comm).into_owned();
                    self.vcpus.entry(pid).or_default().insert(vcpu, Thread { tid, name });
                }
            }
            RecordType::ID_INDEX => {
                self.merged.extend(IdIndex::read(record).filter_map(|entry| entry.machine))
            }
            RecordType::TIME_CONV => self.time_conv = self.time_conv.or_else(|| TimeConv::read(record)),
            RecordType::HEADER_ATTR => {
                if let Ok(Some(perfx_format::input::HeaderRecord::Event(event))) =
                    perfx_format::input::HeaderRecord::read(record)
                {
                    self.late_id = event.ids.into_iter().fold(self.late_id, u64::max);
                }
            }
            _ => {}
        }
    }

    /// Takes in what a batch that follows told.
    pub(crate) fn join(&mut self, later: Machines) {
        for (pid, vcpus) in later.vcpus {
            self.vcpus.entry(pid).or_default().extend(vcpus);
        }
        self.merged.extend(later.merged);
        self.time_conv = self.time_conv.or(later.time_conv);
        self.late_id = self.late_id.max(later.late_id);
    }
}

/// An entry of an ID_INDEX record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdIndex {
    pub(crate) id: u64,
    /// `None`: all of them.
    pub(crate) cpu: Option<u32>,
    /// The guest it is of.
    pub(crate) machine: Option<u64>,
}

impl IdIndex {
    /// Entries that are there, whatever their number claims to be.
    pub(crate) fn read<'a>(record: &Record<'a>) -> impl Iterator<Item = IdIndex> + use<'a> {
        let record = *record;
        let count = record.u64(8).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let count = count.min(record.bytes().len() / 32);
        let long = record.bytes().len() >= 16 + count * 48;
        (0..count).map_while(move |at| {
            let machine = record.u64(16 + count * 32 + at * 16).filter(|&machine| long && machine != 0);
            let cpu = record.u64(16 + at * 32 + 16)?;
            Some(IdIndex { id: record.u64(16 + at * 32)?, cpu: u32::try_from(cpu).ok(), machine })
        })
    }
}

/// A thread goes onto a CPU or leaves it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Switch {
    time: u64,
    out: bool,
    thread: u32,
    cpu: Option<u32>,
}

/// When and where one thread ran.
#[derive(Clone, Default, Debug)]
pub(crate) struct Run {
    /// The CPU from each time on, where it changed.
    cpus: Vec<(u64, u32)>,
    /// The CPU it first left.
    first: Option<u32>,
    /// (switched in, switched out), where that was asked for.
    pub(crate) spans: Vec<(u64, u64)>,
    since: Option<u64>,
    pub(crate) switches: u64,
}

/// The most spans that are kept for finding an offset, of all threads: 16 bytes each.
const SPANS_MAX: usize = 1 << 20;

impl Run {
    /// In time order.
    fn take(&mut self, switch: Switch, spans_left: &mut usize) {
        self.switches += 1;
        if let Some(cpu) = switch.cpu {
            if switch.out {
                self.first = self.first.or(Some(cpu));
            } else if self.cpus.last().is_none_or(|&(_, last)| last != cpu) {
                self.cpus.push((switch.time, cpu));
            }
        }
        match (switch.out, self.since) {
            (false, _) => self.since = Some(switch.time),
            // What ran when the recording began has no beginning.
            (true, since) if *spans_left > 0 && (since.is_some() || self.spans.is_empty()) => {
                *spans_left -= 1;
                self.spans.push((since.unwrap_or(0), switch.time));
                self.since = None;
            }
            (true, _) => self.since = None,
        }
    }

    /// The CPU on which it was last switched in; before that, the one it first left; 0 where nothing tells.
    pub(crate) fn cpu_at(&self, time: u64) -> u32 {
        let after = self.cpus.partition_point(|&(since, _)| since <= time);
        match after.checked_sub(1) {
            Some(last) => self.cpus[last].1,
            None => self.first.unwrap_or(0),
        }
    }
}

/// The records up to a FINISHED_ROUND, or the end of a batch.
#[derive(Clone, Default, Debug)]
struct Round {
    latest: u64,
    switches: Vec<Switch>,
}

/// Second look: when what happened.
#[derive(Clone, Default, Debug)]
pub(crate) struct Times {
    /// The threads to watch, ascending.
    threads: Arc<[u32]>,
    /// Of a batch, or what has not been taken in yet.
    rounds: Vec<Round>,
    /// The first FINISHED_INIT, FINISHED_ROUND or record with a time, in file order.
    pub(crate) first: Option<(Origin, RecordType)>,
    pub(crate) finished_init: bool,
    pub(crate) earliest: Option<u64>,
    /// The latest time before each FINISHED_ROUND.
    pub(crate) levels: Vec<u64>,
    pub(crate) latest: u64,
    /// Switches that earlier ones may still follow.
    pending: Vec<Switch>,
    pub(crate) runs: Vec<Run>,
    spans_left: usize,
    /// Not of a batch: rounds can be taken in as they come.
    whole: bool,
}

/// Rounds that may wait to be taken in.
const ROUNDS_MAX: usize = 256;

impl Times {
    /// Watches these threads.
    pub(crate) fn new(threads: impl IntoIterator<Item = u32>, spans: bool) -> Times {
        let threads: BTreeSet<u32> = threads.into_iter().collect();
        let runs = vec![Run::default(); threads.len()];
        let spans_left = if spans { SPANS_MAX } else { 0 };
        Times {
            threads: threads.into_iter().collect(),
            runs,
            spans_left,
            whole: true,
            rounds: vec![Round::default()],
            ..Times::default()
        }
    }

    pub(crate) fn kinds() -> Kinds {
        let mut kinds = Kinds::of(&[RecordType::FINISHED_INIT, RecordType::FINISHED_ROUND]);
        (0..64).for_each(|kind| kinds.insert(RecordType(kind)));
        kinds
    }

    /// For one batch.
    pub(crate) fn fork(&self) -> Times {
        Times { threads: self.threads.clone(), rounds: vec![Round::default()], ..Times::default() }
    }

    /// What is known of a thread.
    pub(crate) fn run(&self, thread: u32) -> Option<&Run> {
        self.runs.get(self.threads.binary_search(&thread).ok()?)
    }

    #[inline]
    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let kind = record.kind();
        if !kind.is_kernel() {
            self.first.get_or_insert((record.origin(), kind));
            if kind == RecordType::FINISHED_ROUND {
                self.rounds.push(Round::default());
                if self.whole && self.rounds.len() > ROUNDS_MAX {
                    self.settle();
                }
            } else {
                self.finished_init = true;
            }
            return;
        }
        let layout = layouts.layout_of(record);
        let Some(time) = layout.and_then(|layout| layout.time(record)) else {
            return;
        };
        // perf writes records without a time with a time of 0, and hands them on at once; -1 stands for none, too.
        if time == 0 || time == u64::MAX {
            return;
        }
        if self.first.is_none() {
            self.first = Some((record.origin(), kind));
        }
        if self.earliest.is_none_or(|earliest| time < earliest) {
            self.earliest = Some(time);
        }
        let Some(round) = self.rounds.last_mut() else { return };
        round.latest = round.latest.max(time);
        if matches!(kind, RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE)
            && !is_guests(record)
            && let Some(layout) = layout
            && let Some((_, tid)) = layout.pid_tid(record)
            && let Ok(thread) = self.threads.binary_search(&tid)
        {
            let out = record.misc() & SWITCH_OUT != 0;
            round.switches.push(Switch { time, out, thread: thread as u32, cpu: layout.cpu(record) });
        }
    }

    /// Takes in a batch that follows.
    pub(crate) fn join(&mut self, later: Times) {
        self.first = self.first.or(later.first);
        self.finished_init |= later.finished_init;
        self.earliest = self.earliest.into_iter().chain(later.earliest).min();
        let mut rounds = later.rounds.into_iter();
        if let (Some(open), Some(next)) = (self.rounds.last_mut(), rounds.next()) {
            open.latest = open.latest.max(next.latest);
            open.switches.extend(next.switches);
        }
        self.rounds.extend(rounds);
        self.settle();
    }

    /// Takes in the rounds that are finished.
    fn settle(&mut self) {
        let last = self.rounds.len().saturating_sub(1);
        for round in self.rounds.drain(..last) {
            // No record after this one is older than what had been seen one FINISHED_ROUND earlier.
            let settled = self.levels.last().copied().unwrap_or(0);
            self.latest = self.latest.max(round.latest);
            self.levels.push(self.latest);
            self.pending.extend(round.switches);
            self.pending.sort_unstable();
            let old = self.pending.partition_point(|switch| switch.time <= settled);
            for switch in self.pending.drain(..old) {
                if let Some(run) = self.runs.get_mut(switch.thread as usize) {
                    run.take(switch, &mut self.spans_left);
                }
            }
        }
    }

    /// All has been looked at.
    pub(crate) fn finish(&mut self) {
        self.settle();
        let rest = std::mem::take(&mut self.rounds);
        for round in rest {
            self.latest = self.latest.max(round.latest);
            self.pending.extend(round.switches);
        }
        self.pending.sort_unstable();
        for switch in std::mem::take(&mut self.pending) {
            if let Some(run) = self.runs.get_mut(switch.thread as usize) {
                run.take(switch, &mut self.spans_left);
            }
        }
        for run in &mut self.runs {
            // What still ran when the recording ended.
            if let Some(since) = run.since.take().filter(|_| self.spans_left > 0) {
                run.spans.push((since, u64::MAX));
            }
        }
    }

    /// Some record has a time.
    pub(crate) fn has_times(&self) -> bool {
        self.earliest.is_some()
    }
}

/// Bit 13 of a switch record's `misc`.
const SWITCH_OUT: u16 = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_vcpu_threads() {
        for (name, vcpu) in [
            ("CPU 0/KVM", Some(0)),
            ("CPU 12/TCG", Some(12)),
            ("CPU 3", Some(3)),
            ("fc_vcpu 1", Some(1)),
            ("vcpu7", Some(7)),
            ("kvm-vcpu-2", Some(2)),
            ("CPU ", None),
            ("CPU 1x", None),
            ("CPUs 1", None),
            ("CPU 99999999999", None),
            ("", None),
        ] {
            assert_eq!(vcpu_of(name.as_bytes()), vcpu, "{name}");
        }
    }

    #[test]
    fn a_cpu_counts_from_the_switch_in_on() {
        let mut run = Run::default();
        let mut left = 10;
        for (time, out, cpu) in
            [(10, true, 3), (20, false, 1), (30, true, 1), (40, false, 1), (50, true, 1), (60, false, 0)]
        {
            run.take(Switch { time, out, thread: 0, cpu: Some(cpu) }, &mut left);
        }
        assert_eq!([5, 19, 20, 35, 59, 60, 99].map(|time| run.cpu_at(time)), [3, 3, 1, 1, 1, 0, 0]);
        assert_eq!(run.spans, [(0, 10), (20, 30), (40, 50)]);
    }
}
