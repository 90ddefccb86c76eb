//! CoreSight as a tracer: the trace units of the CPUs, and what each AUX record wrote.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use perfx_format::record::aux::{Aux, Auxtrace};
use perfx_format::record::etm_info::{EtmHwId, EtmInfo, EtmRegisters, TraceUnitKind};
use perfx_format::record::time_conv::TimeConv;
use perfx_format::{Bytes, Layout, Record};
use perfx_pipeline::{Result, bail, ensure};
use perfx_trace::{Space, Switches, coresight};

use crate::kept::Chunk;

/// The trace units, and what they wrote.
#[derive(Debug)]
pub struct CoreSight {
    /// `attr.type` of the event that made the data.
    pub pmu_type: u32,
    /// By their ids in frames.
    pub units: BTreeMap<u8, TraceUnit>,
    /// How timestamps become times, if the recording contains it.
    pub conv: Option<TimeConv>,
    /// In file order.
    pub pieces: Vec<Piece>,
    /// The threads of context ids.
    pub spaces: HashMap<u32, Space>,
}

impl CoreSight {
    /// True if context ids name the thread: then the spaces of traces are thread ids.
    pub fn names_threads(&self) -> bool {
        self.units.values().any(|unit| unit.config.context().is_some())
    }

    /// The bytes of all pieces, with their frames.
    pub fn size(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.data.len() as u64).sum()
    }

    /// A trace unit by its id in frames, and its number among all of them.
    pub fn unit(&self, id: u8) -> Option<(usize, &TraceUnit)> {
        let unit = self.units.get(&id)?;
        Some((self.units.range(..id).count(), unit))
    }
}

/// The trace unit of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct TraceUnit {
    /// The CPU.
    pub cpu: u32,
    /// The configuration of the decoder.
    pub config: coresight::Config,
    /// The trace has timestamps.
    pub is_timed: bool,
    /// They are of the counter that [`CoreSight::conv`] converts.
    pub is_virtual: bool,
}

/// Data reported by an AUX record, decoded separately: the trace units were switched on for it.
#[derive(Debug)]
pub struct Piece {
    /// The number of the buffer.
    pub buffer: usize,
    /// The CPU of the buffer, or [`Auxtrace::ANY`] for that of a thread.
    pub cpu: u32,
    /// The time of the AUX record, ns; 0 if there is none.
    pub time: u64,
    /// The threads that ran, if the trace has no context ids.
    pub switches: Switches,
    data: Bytes,
    /// The trace unit that wrote the bytes; `None` if they are frames with ids.
    raw: Option<u8>,
}

impl Piece {
    /// True if its buffer is that of a CPU.
    pub fn is_of_cpu(&self) -> bool {
        self.cpu != Auxtrace::ANY
    }

    /// The trace of each trace unit, by its id.
    pub fn streams(&self) -> Vec<(u8, Vec<u8>)> {
        self.front(self.data.len())
    }

    /// The same for the first bytes of the piece.
    pub(crate) fn front(&self, size: usize) -> Vec<(u8, Vec<u8>)> {
        let data = &self.data[..size.min(self.data.len())];
        match self.raw {
            Some(id) => vec![(id, data.to_vec())],
            None => coresight::deformat(data),
        }
    }
}

/// The records that describe trace units and their data, in file order.
#[derive(Debug, Default)]
pub(crate) struct Written {
    info: Option<EtmInfo>,
    conv: Option<TimeConv>,
    /// The ids of trace units that the kernel reports, by CPU.
    ids: BTreeMap<u32, u8>,
    records: Vec<Recorded>,
}

/// An AUX record, with its CPU, thread and time.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    aux: Aux,
    cpu: u32,
    tid: u32,
    time: u64,
}

impl Written {
    pub(crate) fn add(&mut self, record: &Record<'_>, layout: Option<&Layout>) {
        self.info = self.info.take().or_else(|| EtmInfo::of(record));
        self.conv = self.conv.or_else(|| TimeConv::of(record));
        let cpu = || layout.and_then(|layout| layout.cpu(record)).unwrap_or(Auxtrace::ANY);
        if let Some(id) = EtmHwId::of(record) {
            self.ids.entry(cpu()).or_insert(id.trace_id);
        } else if let Some(aux) = Aux::of(record) {
            let tid = layout.and_then(|layout| layout.pid_tid(record)).map_or(Auxtrace::ANY, |(_, tid)| tid);
            let time = layout.and_then(|layout| layout.recorded_time(record)).unwrap_or(0);
            self.records.push(Recorded { aux, cpu: cpu(), tid, time });
        }
    }

    pub(crate) fn has_info(&self) -> bool {
        self.info.is_some()
    }

    pub(crate) fn known_units(&self) -> Result<BTreeMap<u8, TraceUnit>> {
        let Some(info) = &self.info else { bail!("the AUX data is not of CoreSight") };
        self.units(info)
    }

    /// Returns the tracer of these AUXTRACE records, with the spaces of the threads named by context ids, and
    /// the number of AUX records that cover data of earlier ones.
    pub(crate) fn done(self, chunks: &[Chunk], spaces: HashMap<u32, Space>) -> Result<(CoreSight, u64)> {
        let units = self.known_units()?;
        let pmu_type = self.info.as_ref().map_or(0, |info| info.pmu_type);
        // A buffer belongs to a thread or a CPU; its AUX records, by offset.
        let is_of_thread = chunks.iter().any(|chunk| chunk.auxtrace.cpu == Auxtrace::ANY);
        let mut records: HashMap<u32, BTreeMap<u64, Vec<Recorded>>> = HashMap::new();
        for record in &self.records {
            let owner = if is_of_thread { record.tid } else { record.cpu };
            // In snapshots, the offset is the end of the data.
            let is_end = record.aux.flags & Aux::OVERWRITE != 0;
            let at = record.aux.offset.saturating_sub(is_end.into());
            records.entry(owner).or_default().entry(at).or_default().push(*record);
        }
        let (mut pieces, mut repeated) = (Vec::new(), 0);
        for Chunk { auxtrace, buffer, switches, data } in chunks {
            let Auxtrace { size, offset, tid, cpu, .. } = *auxtrace;
            let mut add = |time, range: Range<usize>, raw| {
                let data = data.slice(range);
                pieces.push(Piece { buffer: *buffer, cpu, time, switches: switches.clone(), data, raw });
            };
            let mut own = records.get_mut(if is_of_thread { &tid } else { &cpu });
            let (mut has_record, mut decoded) = (false, 0);
            while let Some(own) = own.as_mut()
                && let Some((&at, _)) = own.range(offset..offset.saturating_add(size)).next()
            {
                has_record = true;
                for Recorded { aux, cpu: on, time, .. } in own.remove(&at).unwrap_or_default() {
                    let start = match aux.flags & Aux::OVERWRITE {
                        0 => at,
                        _ => aux.offset.saturating_sub(aux.size).max(offset),
                    };
                    let start = usize::try_from(start - offset).unwrap_or(usize::MAX);
                    let len = usize::try_from(aux.size).unwrap_or(usize::MAX);
                    let end = data.len().min(start.saturating_add(len));
                    // Data is decoded once, even if several records cover it.
                    repeated += u64::from(start < decoded && aux.size > 0);
                    let range = start.max(decoded)..end.max(decoded);
                    decoded = range.end;
                    if range.is_empty() {
                        continue;
                    }
                    let raw = match aux.flags & Aux::RAW {
                        0 => None,
                        // Without CPUs in the records, the trace unit is known only if it is the only one.
                        _ if on == Auxtrace::ANY && units.len() == 1 => Some(units.keys().next().copied()),
                        _ => Some(units.iter().find(|(_, unit)| unit.cpu == on).map(|(id, _)| *id)),
                    };
                    ensure!(
                        raw != Some(None),
                        "AUX data comes from CPU {on}, but its trace unit is not in AUXTRACE_INFO"
                    );
                    add(time, range, raw.flatten());
                }
            }
            if !has_record {
                add(0, 0..data.len(), None);
            }
        }
        Ok((CoreSight { pmu_type, units, conv: self.conv, pieces, spaces }, repeated))
    }

    fn units(&self, info: &EtmInfo) -> Result<BTreeMap<u8, TraceUnit>> {
        let mut units = BTreeMap::new();
        for unit in &info.units {
            let cpu = unit.cpu as u32;
            let (registers, is_ete) = match unit.kind {
                TraceUnitKind::Etm4(registers) => (registers, false),
                TraceUnitKind::Ete(registers) => (registers, true),
                _ => {
                    bail!("the trace unit of CPU {cpu} is not an ETMv4 or ETE; decode its AUX data with perf")
                }
            };
            let EtmRegisters { config, id0, id2, id8, .. } = registers;
            let (is_timed, is_virtual) = (registers.has_timestamps(), unit.has_virtual_times);
            let config = coresight::Config::new(&coresight::Registers { config, id0, id2, id8 }, is_ete);
            // Newer kernels report the id of each CPU that traced; older ones use the id in AUXTRACE_INFO.
            let reported = self.ids.get(&cpu).copied();
            let id = if self.ids.is_empty() { Some((unit.trace_id & 0x7f) as u8) } else { reported };
            let Some(id) = id else { continue };
            units.insert(id, TraceUnit { cpu, config, is_timed, is_virtual });
        }
        ensure!(!units.is_empty(), "neither AUXTRACE_INFO nor AUX_OUTPUT_HW_ID has the id of a trace unit");
        let named = units.values().filter(|unit: &&TraceUnit| unit.config.context().is_some()).count();
        ensure!(
            named == 0 || named == units.len(),
            "only {named} of {} trace units record the thread; decode the AUX data with perf",
            units.len()
        );
        Ok(units)
    }
}
