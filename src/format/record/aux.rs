//! AUX records describe the data that the kernel wrote into an AUX buffer; AUXTRACE records contain the data,
//! and AUXTRACE_INFO describes its source.

use super::reader::Reader;
use super::time_conv::TimeConv;
use crate::{Endian, FaultCode, Record, RecordType, Value, bit_names};

/// An AUX record (include/uapi/linux/perf_event.h, `PERF_RECORD_AUX`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 offset, u64 size, u64 flags |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aux {
    /// The start of the data in the buffer, bytes since the buffer was created.
    pub offset: u64,
    /// Length of the data, bytes.
    pub size: u64,
    /// `PERF_AUX_FLAG_*`.
    pub flags: u64,
}

impl Aux {
    /// Bit 0 of the flags: data was lost because the buffer was full.
    pub const TRUNCATED: u64 = 1;

    /// Bit 1: a snapshot of a buffer that is overwritten when full; [`Aux::offset`] is the end of the data.
    pub const OVERWRITE: u64 = 2;

    /// Bit 2: the data has gaps, for example of the time in which a virtual machine ran.
    pub const PARTIAL: u64 = 4;

    /// Bit 3: the processor discarded data, because samples that it had to write came too close together.
    pub const COLLISION: u64 = 8;

    /// The flags with which data is missing.
    pub const LOST: u64 = Aux::TRUNCATED | Aux::PARTIAL | Aux::COLLISION;

    /// Bit 8: the data is that of one CoreSight trace unit; otherwise it is in frames of 16 bytes.
    pub const RAW: u64 = 0x100;

    /// Parses an AUX record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<Aux> {
        let word = |at| record.u64(at).filter(|_| record.kind() == RecordType::AUX);
        Some(Aux { offset: word(8)?, size: word(16)?, flags: word(24)? })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.hex::<u64>("aux_offset")?;
        d.number::<u64>("aux_size")?;
        let flags = d.int::<u64>("flags")?;
        let names = [(0, "TRUNCATED"), (1, "OVERWRITE"), (2, "PARTIAL"), (3, "COLLISION")];
        d.note("flags", Value::Name(bit_names(flags & !0xff00, &names)));
        // The meaning depends on the PMU.
        d.note("format", Value::Number(flags >> 8 & 0xff));
        Some(())
    }
}

/// The hardware id of an AUX_OUTPUT_HW_ID record: for Intel PT, the counter of the event in the record's
/// trailer, whose samples are in the trace.
///
/// | byte | |
/// |---|---|
/// | 8 | u64 hardware id |
pub fn hardware_id(record: &Record<'_>) -> Option<u64> {
    record.u64(8).filter(|_| record.kind() == RecordType::AUX_OUTPUT_HW_ID)
}

/// An AUXTRACE record without its payload (tools/lib/perf/include/perf/event.h, `perf_record_auxtrace`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 size of the payload, u64 offset, u64 reference |
/// | 32 | u32 idx, u32 tid, u32 cpu, u32 reserved |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auxtrace {
    /// Size of the payload, bytes.
    pub size: u64,
    /// The start of the payload in the buffer, bytes since the buffer was created.
    pub offset: u64,
    /// Identifies the buffer: a counter or a random number, not a time of the recording.
    pub reference: u64,
    /// Index of the buffer.
    pub idx: u32,
    /// The thread that was traced, or [`Auxtrace::ANY`].
    pub tid: u32,
    /// The CPU that was traced, or [`Auxtrace::ANY`].
    pub cpu: u32,
}

impl Auxtrace {
    /// -1: no particular thread or CPU.
    pub const ANY: u32 = u32::MAX;

    /// Reduces an AUXTRACE record to a part of its data: this many bytes, from this offset in the buffer on.
    pub fn set_part(record: &mut [u8], offset: u64, size: u64, endian: Endian) {
        endian.set_u64(record, 8, size);
        endian.set_u64(record, 16, offset);
    }

    /// Parses an AUXTRACE record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<Auxtrace> {
        if record.kind() != RecordType::AUXTRACE {
            return None;
        }
        let (size, offset, reference) = (record.u64(8)?, record.u64(16)?, record.u64(24)?);
        let (idx, tid, cpu) = (record.u32(32)?, record.u32(36)?, record.u32(40)?);
        Some(Auxtrace { size, offset, reference, idx, tid, cpu })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.number::<u64>("size")?;
        d.hex::<u64>("offset")?;
        d.hex::<u64>("reference")?;
        d.number::<u32>("idx")?;
        d.any::<u32>("tid")?;
        d.any::<u32>("cpu")?;
        d.skip("reserved__", 4)
    }
}

/// The owner of an AUX buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AuxOwner {
    /// A CPU.
    Cpu(u32),
    /// A thread, wherever it runs.
    Thread(u32),
}

impl AuxOwner {
    /// The owner in an AUXTRACE record: the thread if `cpu` is [`Auxtrace::ANY`].
    pub fn of(cpu: u32, tid: u32) -> AuxOwner {
        if cpu == Auxtrace::ANY { AuxOwner::Thread(tid) } else { AuxOwner::Cpu(cpu) }
    }
}

/// The front of an AUXTRACE_INFO record (tools/lib/perf/include/perf/event.h, `perf_record_auxtrace_info`).
///
/// | byte | |
/// |---|---|
/// | 8 | u32 type, u32 reserved |
/// | 16 | u64 each, as the type has it |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AuxtraceInfo {
    /// The source of the AUX data: `enum auxtrace_type`.
    pub kind: u32,
}

impl AuxtraceInfo {
    /// Intel PT.
    pub const INTEL_PT: AuxtraceInfo = AuxtraceInfo { kind: 1 };
    /// CoreSight.
    pub const CORESIGHT: AuxtraceInfo = AuxtraceInfo { kind: 3 };
    /// Arm SPE.
    pub const ARM_SPE: AuxtraceInfo = AuxtraceInfo { kind: 4 };

    /// Parses an AUXTRACE_INFO record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<AuxtraceInfo> {
        let kind = record.u32(8).filter(|_| record.kind() == RecordType::AUXTRACE_INFO)?;
        Some(AuxtraceInfo { kind })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        let info = AuxtraceInfo { kind: d.int::<u32>("type")? };
        match info.row() {
            Some((name, ..)) => d.note("type", Value::Name((*name).into())),
            None => {
                d.note("type", Value::Number(info.kind.into()));
                d.add_issue(FaultCode::AuxtraceType, format!("unknown type {}", info.kind));
            }
        }
        d.skip("reserved__", 4)?;
        let words = d.left() / 8;
        d.list("priv", words as u64, 8, |d| d.hex::<u64>("").map(drop))
    }

    /// `Some` if the record is an AUXTRACE_INFO record of this tracer.
    pub(crate) fn describes(self, record: &Record<'_>) -> Option<()> {
        AuxtraceInfo::of(record).filter(|info| *info == self).map(drop)
    }

    /// The conversion of Intel PT's TSC to the time of the recording: the words 1 to 4 of the private part
    /// (tools/perf/util/intel-pt.h). `None` if there is none, and for other tracers.
    pub fn pt_time(record: &Record<'_>) -> Option<TimeConv> {
        AuxtraceInfo::INTEL_PT.describes(record)?;
        let word = |number: usize| record.u64(16 + 8 * number);
        let (shift, mult, zero, can_convert) = (word(1)?, word(2)?, word(3)?, word(4)? != 0);
        can_convert.then_some(TimeConv { shift, mult, zero, short: None, can_convert })
    }

    /// The name of the tracer.
    pub fn tracer(&self) -> Option<&'static str> {
        Some(self.row()?.1)
    }

    /// The command of perf that shows the data, for tracers that perfx does not decode.
    pub fn shown_by(&self) -> &'static str {
        self.row().map_or(ANY_TRACER, |(.., shown_by)| shown_by)
    }

    fn row(&self) -> Option<&'static (&'static str, &'static str, &'static str)> {
        TRACERS.get(self.kind.checked_sub(1)? as usize)
    }
}

/// Tracers by type, from 1 on: the name in `enum auxtrace_type`, its own, the command of perf that shows it.
const TRACERS: &[(&str, &str, &str)] = &[
    ("INTEL_PT", "Intel PT", ANY_TRACER),
    ("INTEL_BTS", "Intel BTS", "perf inject --itrace makes samples of it"),
    ("CS_ETM", "CoreSight", ANY_TRACER),
    ("ARM_SPE", "Arm SPE", ANY_TRACER),
    ("S390_CPUMSF", "s390 CPU-measurement sampling", "perf script makes samples of it"),
    ("HISI_PTT", "HiSilicon PTT", "perf report -D shows its packets"),
    ("VPA_DTL", "POWER VPA DTL", "perf script makes samples of it"),
    ("RISCV_TRACE", "RISC-V", ANY_TRACER),
];

const ANY_TRACER: &str = "perf report -D shows it if perf knows it";
