//! Lists the packets in AUXTRACE records and samples as perf (Intel PT, Arm SPE) and OpenCSD (CoreSight) do.

use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;

use perfx_format::record::aux::{Aux, AuxOwner, Auxtrace, AuxtraceInfo};
use perfx_format::{Kinds, Layouts, Record, RecordType, sample_type as st, spe};
use perfx_trace::{Trace, coresight, intel_pt};

use crate::coresight::{TraceUnit, Written};
use crate::sampled::trace_in_sample;

/// Lists packets by what the records seen so far describe.
#[derive(Debug, Default)]
pub struct Listing {
    is_pt: bool,
    is_spe: bool,
    /// Records that configure trace units, and the units built from them so far.
    written: Written,
    units: Option<BTreeMap<u8, TraceUnit>>,
    /// The last AUX record of each CPU, and of each thread.
    last: HashMap<AuxOwner, Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    /// All data is from one trace unit, that of `cpu`.
    is_raw: bool,
    cpu: u32,
}

/// A packet.
#[derive(Debug)]
pub struct ListedPacket<'a> {
    /// Its offset in the data of the record.
    pub offset: u64,
    /// The bytes of the packet; `None` for CoreSight, where they are not contiguous.
    pub bytes: Option<&'a [u8]>,
    /// The id of the CoreSight trace unit.
    pub id: Option<u8>,
    /// The packet in words.
    pub text: String,
}

/// The trace in a record: the data of an AUXTRACE record, or of a sample (`perf record --aux-sample`).
pub fn trace_of<'r>(record: &Record<'r>, layouts: &Layouts) -> Option<&'r [u8]> {
    match record.kind() {
        RecordType::AUXTRACE => Some(record.payload()),
        RecordType::SAMPLE => {
            let layout = layouts.layout_of(record).filter(|layout| layout.sample_type & st::AUX != 0)?;
            Some(trace_in_sample(record, layout)?.1)
        }
        _ => None,
    }
}

/// Longer Arm SPE packets are shown in pieces of this many bytes.
const LONGEST_SPE: usize = 16;

impl Listing {
    /// The kinds of records that [`Listing::see`] reads.
    pub const KINDS: Kinds =
        Kinds::of(&[RecordType::AUXTRACE_INFO, RecordType::AUX, RecordType::AUX_OUTPUT_HW_ID]);

    /// Takes in a record, in file order.
    pub fn see(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let layout = layouts.layout_of(record);
        if let Some(aux) = Aux::of(record) {
            let cpu = layout.and_then(|layout| layout.cpu(record)).unwrap_or(Auxtrace::ANY);
            let tid = layout.and_then(|layout| layout.pid_tid(record)).map_or(Auxtrace::ANY, |(_, tid)| tid);
            let last = Last { is_raw: aux.flags & Aux::RAW != 0, cpu };
            self.last.extend([(AuxOwner::Cpu(cpu), last), (AuxOwner::Thread(tid), last)]);
            return;
        }
        let info = AuxtraceInfo::of(record);
        self.is_pt |= info == Some(AuxtraceInfo::INTEL_PT);
        self.is_spe |= info == Some(AuxtraceInfo::ARM_SPE);
        self.written.add(record, layout);
        // Built when needed: very many records may describe units.
        self.units = None;
    }

    /// Calls `each` for the packets in a record of [`trace_of`], in order. False if the packets of its tracer
    /// are not listed, or if no earlier record describes them.
    ///
    /// # Errors
    ///
    /// That of `each`.
    pub fn list<E>(
        &mut self,
        record: &Record<'_>,
        layouts: &Layouts,
        mut each: impl FnMut(ListedPacket<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Some(data) = trace_of(record, layouts) else { return Ok(false) };
        if self.is_pt {
            for packet in intel_pt::list(data) {
                let (offset, bytes) = (packet.offset as u64, Some(packet.bytes));
                each(ListedPacket { offset, bytes, id: None, text: packet.to_string() })?;
            }
            return Ok(true);
        }
        let Some(chunk) = Auxtrace::of(record) else { return Ok(false) };
        if self.is_spe {
            let (mut packets, mut start) = (spe::Packets::new(data, chunk.offset), 0);
            while let Some(packet) = packets.next() {
                // Long padding is shown in several pieces, as in perf.
                for bytes in data[start..packets.position()].chunks(LONGEST_SPE) {
                    let text = packet.text(bytes[0]);
                    each(ListedPacket { offset: start as u64, bytes: Some(bytes), id: None, text })?;
                    start += bytes.len();
                }
            }
            return Ok(true);
        }
        let units = &*self.units.get_or_insert_with(|| self.written.known_units().unwrap_or_default());
        if units.is_empty() {
            return Ok(false);
        }
        let streams = match self.last.get(&AuxOwner::of(chunk.cpu, chunk.tid)) {
            Some(Last { is_raw: true, cpu }) => {
                let unit = units.iter().find(|(_, unit)| unit.cpu == *cpu);
                unit.map(|(id, _)| (*id, coresight::Deformatted::contiguous(data))).into_iter().collect()
            }
            _ => coresight::deformat_with_places(data),
        };
        let traces: Vec<_> =
            streams.iter().map(|(id, of)| (*id, of, Trace::new(vec![&of.bytes], Vec::new()))).collect();
        let mut packets: Vec<Peekable<_>> = Vec::new();
        for (id, of, trace) in &traces {
            if let Some(TraceUnit { config, .. }) = units.get(id) {
                let place =
                    |packet: coresight::Listed| (of.place(packet.offset as usize) as u64, *id, packet);
                packets.push(coresight::list(trace, config).map(place).peekable());
            }
        }
        loop {
            let next = |packets: &mut Peekable<_>| packets.peek().map(|(offset, _, _): &(u64, _, _)| *offset);
            let first =
                packets.iter_mut().filter_map(|own| Some((next(own)?, own))).min_by_key(|(at, _)| *at);
            let Some((offset, id, packet)) = first.and_then(|(_, own)| own.next()) else { return Ok(true) };
            each(ListedPacket { offset, bytes: None, id: Some(id), text: packet.to_string() })?;
        }
    }
}
