//! Writes the records of Arm SPE as a table, with their threads and places.
//!
//! SWITCH and other records of running threads are sorted in a temporary file, and the records of SPE are
//! merged between them by time, so memory does not depend on the size of the recording.

use std::fs::File;

use perfx_auxtrace::{say_spe_losses, say_unknown_threads};
use perfx_format::read::{Batch, Recording};
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode::{KERNEL, KERNEL_START, USER};
use perfx_format::record::time_conv::TimeConv;
use perfx_format::spe::{events, operation_details, operation_name};
use perfx_format::{Feature, Layouts, OrderKey};
use perfx_model::address_space::{self, Machine, Space};
use perfx_model::spe::{Running, SpeData, TaskChange, TracedRecord, is_of_memory};
use perfx_pipeline::{Context as _, Level, Report, Result, scan};

use super::history::signed;
use super::table::TableWriter;
use crate::chains::{Resolver, numbered};
use crate::sorted::{RowPlace, Sorted, sorted};

pub(super) struct Traced {
    aux: SpeData,
    tasks: Sorted,
}

#[derive(Default)]
struct Found {
    aux: SpeData,
    text: Vec<u8>,
    rows: Vec<RowPlace>,
}

impl Found {
    fn read(batch: &Batch) -> Result<Found> {
        let (mut found, wanted) = (Found::default(), SpeData::KINDS.union(TaskChange::KINDS));
        if !batch.kinds.intersects(wanted) {
            return Ok(found);
        }
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            found.aux.add(&record)?;
            let Some(change) = TaskChange::of(&record, &batch.layouts) else { continue };
            let start = found.text.len();
            match change {
                TaskChange::Belongs { pid, tid } => pack(&[pid, tid], &mut found.text),
                TaskChange::Runs { cpu, pid, tid } => pack(&[pid, tid, cpu], &mut found.text),
            }
            // ~0 means no time.
            let time = batch.layouts.recorded_time(&record).filter(|&time| time != u64::MAX);
            let index = numbered(found.rows.len())?;
            found.rows.push(RowPlace { time, index, text: start..found.text.len() });
        }
        Ok(found)
    }
}

fn pack(numbers: &[u32], text: &mut Vec<u8>) {
    numbers.iter().for_each(|number| text.extend(number.to_le_bytes()));
}

fn unpack(row: &[u8]) -> Option<TaskChange> {
    let (numbers, _) = row.as_chunks::<4>();
    match *numbers {
        [pid, tid] => {
            Some(TaskChange::Belongs { pid: u32::from_le_bytes(pid), tid: u32::from_le_bytes(tid) })
        }
        [pid, tid, cpu] => {
            let [pid, tid, cpu] = [pid, tid, cpu].map(u32::from_le_bytes);
            Some(TaskChange::Runs { cpu, pid, tid })
        }
        _ => None,
    }
}

impl Traced {
    /// Reads the recording; `spill` is an empty file.
    pub(super) fn survey(recording: &mut Recording, spill: File, threads: usize) -> Result<Traced> {
        let mut traced = Traced { aux: SpeData::default(), tasks: Sorted::new(spill) };
        let mut join = |found: Found| {
            traced.aux.absorb(found.aux);
            let records = found.rows.len() as u64;
            if records > 0 { traced.tasks.push(&sorted(&found.text, &found.rows), records) } else { Ok(()) }
        };
        recording.head().iter().try_for_each(|batch| join(Found::read(batch)?))?;
        scan(recording, threads, true, Found::read, |_, found| join(found))?;
        Ok(traced)
    }

    pub(super) fn write(
        self,
        recording: &Recording,
        resolver: &mut Resolver<'_>,
        out: &mut TableWriter,
        report: &mut Report,
    ) -> Result<()> {
        let Traced { aux, tasks } = self;
        if !aux.is_empty() && aux.spe().is_none() {
            let level = if aux.is_of_others() { Level::Info } else { Level::Loss };
            let what = format!("AUX data of {} is not decoded; table spe has none of it", aux.tracers());
            report.say(level, what);
        }
        let conv = aux.conv();
        if aux.spe().is_some() && conv.is_none() {
            let what = "there is no TIME_CONV record, so the times of the records of Arm SPE are unknown";
            report.say(Level::Warning, what);
        }
        let has_time = Layouts::new(&recording.events).has_time();
        let cpuid = recording.features.get(&Feature::CPUID).map(|section| &section[..]);
        let mut records = aux.records(recording.stored_bytes(), cpuid, recording.endian, has_time);
        let mut rows = Rows {
            out,
            resolver,
            conv,
            has_time,
            running: Running::default(),
            details: details(),
            unknown: 0,
        };
        let mut next = records.next();
        tasks.each(|_, time, row| {
            while let Some(traced) = next.filter(|traced| traced.key < time.unwrap_or(0)) {
                rows.write(&traced)?;
                next = records.next();
            }
            rows.running.learn(unpack(row).context("a temporary file has changed")?);
            Ok(())
        })?;
        while let Some(traced) = next {
            rows.write(&traced)?;
            next = records.next();
        }
        say_spe_losses(records.counts(), report);
        say_unknown_threads(rows.unknown, "records of Arm SPE", report);
        Ok(())
    }
}

/// The meaning of operation packets, by class and payload.
fn details() -> Vec<String> {
    let all = (0..3).flat_map(|class| (0..=u8::MAX).map(move |payload| (class, payload)));
    all.map(|(class, payload)| operation_details(class, payload)).collect()
}

struct Rows<'w, 'f> {
    out: &'w mut TableWriter,
    resolver: &'w mut Resolver<'f>,
    conv: Option<TimeConv>,
    has_time: bool,
    running: Running,
    details: Vec<String>,
    unknown: u64,
}

impl Rows<'_, '_> {
    fn write(&mut self, traced: &TracedRecord) -> Result<()> {
        let record = &traced.record;
        let known = |number: u32| Some(number).filter(|&number| number != Auxtrace::ANY);
        let (pid, tid) = self.running.task(traced.cpu, traced.tid);
        let (pid, tid) = (known(pid), known(tid));
        self.unknown += u64::from(tid.is_none());
        let time = record.timestamp.zip(self.conv).map(|(counter, conv)| conv.time(counter));
        let key = OrderKey::at(time.filter(|_| self.has_time).unwrap_or(traced.key));
        let [frame, target, previous] =
            [record.pc, record.target, record.previous_target].map(|address| -> Result<Option<i64>> {
                let Some(address) = address else { return Ok(None) };
                let is_kernel = address >= KERNEL_START;
                let pid = if is_kernel { Some(address_space::KERNEL) } else { pid };
                let space = pid.map(|pid| Space { machine: Machine::Host, pid });
                let mode = if is_kernel { KERNEL } else { USER };
                self.resolver.frame_in(space, key, (mode, address)).map(|frame| Some(frame.into()))
            });
        let signed_id = |number: Option<u32>| number.map(|number| i64::from(number as i32));
        let (op, sub) = match record.operation.packet {
            Some((class, payload)) => {
                let number = usize::from(class) << 8 | usize::from(payload);
                let sub = self.details.get(number).filter(|details| !details.is_empty());
                let sub = sub.map(|details| (number as u32, details.as_bytes()));
                (Some(operation_name(class, payload)), sub)
            }
            None => (None, None),
        };
        let happened = |event: u64| i64::from(record.events & event != 0);
        let source = is_of_memory(record).then(|| traced.data_source() as i64);
        self.out
            .number(time.map(signed))
            .number(signed_id(known(traced.cpu)))
            .number(signed_id(pid))
            .number(signed_id(tid))
            .text(op.map(str::as_bytes))
            .numbered_text(sub)
            .number(frame?)
            .number(record.exception_level.map(i64::from))
            .number(target?)
            .number(previous?)
            .number(record.virtual_address.map(|address| address as i64))
            .number(record.physical_address.map(|address| address as i64))
            .number(record.events as i64)
            .number(happened(events::RETIRED))
            .number(happened(events::L1D_ACCESS))
            .number(happened(events::L1D_REFILL))
            .number(happened(events::LLC_ACCESS))
            .number(happened(events::LLC_MISS))
            .number(happened(events::TLB_ACCESS))
            .number(happened(events::TLB_WALK))
            .number(happened(events::NOT_TAKEN))
            .number(happened(events::MISPREDICTED))
            .number(happened(events::REMOTE_ACCESS))
            .number(record.source.map(i64::from))
            .number(source)
            .number(record.latency.map(i64::from))
            .number(record.issue_latency.map(i64::from))
            .number(record.translation_latency.map(i64::from))
            .number(record.context.map(i64::from));
        self.out.end_row()
    }
}
