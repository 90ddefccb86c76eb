//! CoreSight's AUXTRACE_INFO record describes each CPU's trace unit; AUX_OUTPUT_HW_ID has its id.

use super::aux::{AuxtraceInfo, hardware_id};
use crate::Record;

/// The private part of an AUXTRACE_INFO record of CoreSight (tools/perf/util/cs-etm.h).
///
/// | byte | |
/// |---|---|
/// | 16 | u64 version (0 or 1), u64 PMU type (high half) and number of CPUs (low half), u64 1 for snapshots |
/// | 40 | for each CPU: u64 magic, u64 CPU, in version 1 u64 number of following words, then the registers, u64 each |
///
/// | magic | registers |
/// |---|---|
/// | 0x3030303030303030 ETMv3 | ETMCR, ETMTRACEIDR, ETMCCER, ETMIDR |
/// | 0x4040404040404040 ETMv4 | TRCCONFIGR, TRCTRACEIDR, TRCIDR0, 1, 2, 8, TRCAUTHSTATUS; in version 1 the source of timestamps |
/// | 0x5050505050505050 ETE | as ETMv4, with TRCDEVARCH before the source of timestamps |
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EtmInfo {
    /// `attr.type` of the event with the data.
    pub pmu_type: u32,
    /// The trace units, each of a CPU.
    pub units: Vec<TraceUnit>,
}

/// The configuration of a trace unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TraceUnit {
    /// The number of its CPU.
    pub cpu: u64,
    /// Its id in frames: 0x01 to 0x6f; with bit 31 set, newer kernels report it in AUX_OUTPUT_HW_ID.
    pub trace_id: u64,
    /// Its timestamps come from the virtual counter, which TIME_CONV converts.
    pub has_virtual_times: bool,
    /// The kind of unit, with its registers.
    pub kind: TraceUnitKind,
}

/// Kinds of trace units, with the registers that a decoder needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceUnitKind {
    /// Of 32-bit processors.
    Etm3,
    /// Embedded trace macrocell, version 4.
    Etm4(EtmRegisters),
    /// Embedded trace extension.
    Ete(EtmRegisters),
}

/// Registers of an ETMv4 or ETE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EtmRegisters {
    /// TRCCONFIGR: the enabled features.
    pub config: u64,
    /// TRCIDR0, TRCIDR1, TRCIDR2 and TRCIDR8: the capabilities of the unit.
    pub id0: u64,
    /// TRCIDR1.
    pub id1: u64,
    /// TRCIDR2.
    pub id2: u64,
    /// TRCIDR8.
    pub id8: u64,
}

impl EtmRegisters {
    /// The trace has timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.config >> 11 & 1 != 0
    }
}

const PRIVATE: usize = 16;

const ETM3: u64 = 0x3030_3030_3030_3030;
const ETM4: u64 = 0x4040_4040_4040_4040;
const ETE: u64 = 0x5050_5050_5050_5050;

const VIRTUAL: u64 = 1;

impl EtmInfo {
    /// Parses an AUXTRACE_INFO record of CoreSight; `None` for other records, for other versions, and for one
    /// that is too short or has a unit of an unknown kind.
    pub fn of(record: &Record<'_>) -> Option<EtmInfo> {
        AuxtraceInfo::CORESIGHT.describes(record)?;
        let mut words = record.bytes().get(PRIVATE..)?.chunks_exact(8).enumerate();
        let mut word = || words.next().and_then(|(number, _)| record.u64(PRIVATE + 8 * number));
        let (version, packed, _is_snapshot) = (word()?, word()?, word()?);
        if version > 1 {
            return None;
        }
        let mut units = Vec::new();
        for _ in 0..packed as u32 {
            let (magic, cpu) = (word()?, word()?);
            // The number of registers in version 0.
            let known = if magic == ETM3 { 4 } else { 7 };
            let count = if version == 0 { known } else { word()? };
            let mut registers = [0; 9];
            for at in 0..count {
                let value = word()?;
                if let Some(register) = registers.get_mut(usize::try_from(at).ok()?) {
                    *register = value;
                }
            }
            let [config, trace_id, id0, id1, id2, id8, _, source, ete_source] = registers;
            let registers = EtmRegisters { config, id0, id1, id2, id8 };
            let kind = match magic {
                ETM3 => TraceUnitKind::Etm3,
                ETM4 => TraceUnitKind::Etm4(registers),
                ETE => TraceUnitKind::Ete(registers),
                _ => return None,
            };
            let source = if magic == ETE { ete_source } else { source };
            let has_virtual_times = magic != ETM3 && source == VIRTUAL;
            units.push(TraceUnit { cpu, trace_id, has_virtual_times, kind });
        }
        Some(EtmInfo { pmu_type: (packed >> 32) as u32, units })
    }
}

/// The hardware id in an AUX_OUTPUT_HW_ID record of CoreSight (include/linux/coresight-pmu.h).
///
/// | bit | |
/// |---|---|
/// | 0-7 | trace id of the CPU in the record's trailer |
/// | 8-39 | in version 0.1: the sink of its data |
/// | 56-59, 60-63 | minor and major version |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EtmHwId {
    /// The id of the trace unit in frames.
    pub trace_id: u8,
    /// The sink: ids are unique in the frames of a sink. `None` if there is only one, or it is unknown.
    pub sink: Option<u32>,
}

impl EtmHwId {
    /// Parses an AUX_OUTPUT_HW_ID record; `None` for other kinds and versions, and if it is too short.
    pub fn of(record: &Record<'_>) -> Option<EtmHwId> {
        let id = hardware_id(record)?;
        let sink = match id >> 56 {
            0 => None,
            1 => Some((id >> 8) as u32),
            _ => return None,
        };
        Some(EtmHwId { trace_id: id as u8, sink })
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::build;
    use super::*;
    use crate::{Endian, Origin, RecordType};

    fn record<T>(kind: RecordType, front: &[u8], words: &[u64], read: fn(&Record<'_>) -> T) -> T {
        let words: Vec<u8> = words.iter().flat_map(|&word| Endian::Big.bytes_u64(word)).collect();
        let bytes = build(kind, 0, &[front, &words], Endian::Big).unwrap();
        read(&Record::new(&bytes, &[], Origin::Synthetic, Endian::Big).unwrap())
    }

    fn info(kind: u8, words: &[u64]) -> Option<EtmInfo> {
        record(RecordType::AUXTRACE_INFO, &[0, 0, 0, kind, 0, 0, 0, 0], words, EtmInfo::of)
    }

    #[test]
    fn both_versions_are_read() {
        let registers = EtmRegisters { config: 1, id0: 2, id1: 3, id2: 4, id8: 5 };
        let unit = |cpu, trace_id, kind| TraceUnit { cpu, trace_id, has_virtual_times: false, kind };
        let (four, three) = (TraceUnitKind::Etm4(registers), TraceUnitKind::Etm3);
        let old = [0, 8 << 32 | 2, 0, ETM4, 7, 1, 0x10, 2, 3, 4, 5, 6, ETM3, 9, 1, 0x11, 3, 4];
        let units = vec![unit(7, 0x10, four), unit(9, 0x11, three)];
        assert_eq!(info(3, &old), Some(EtmInfo { pmu_type: 8, units }));
        let new = [1, 8 << 32 | 2, 0, ETE, 7, 9, 1, 0x10, 2, 3, 4, 5, 6, 7, 8, ETM3, 9, 4, 1, 0x11, 3, 4];
        let units = vec![unit(7, 0x10, TraceUnitKind::Ete(registers)), unit(9, 0x11, three)];
        assert_eq!(info(3, &new), Some(EtmInfo { pmu_type: 8, units }));
    }

    #[test]
    fn a_wrong_count_is_refused() {
        assert_eq!(info(1, &[0, 8 << 32, 0]), None);
        assert_eq!(info(3, &[2, 8 << 32, 0]), None);
        assert_eq!(info(3, &[0, 8 << 32 | 1, 0, ETM4, 7, 1, 2, 3]), None);
        assert_eq!(info(3, &[1, 8 << 32 | 1, 0, ETM4, 7, u64::MAX, 1, 2, 3, 4]), None);
        assert_eq!(info(3, &[1, u64::MAX, 0, ETM4, 7, 0]), None);
        assert_eq!(info(3, &[0, 8 << 32 | 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_hardware_id_has_two_versions() {
        let id = |word| record(RecordType::AUX_OUTPUT_HW_ID, &[], &[word], EtmHwId::of);
        assert_eq!(id(0x10), Some(EtmHwId { trace_id: 0x10, sink: None }));
        assert_eq!(id(1 << 56 | 0x3_0000_0511), Some(EtmHwId { trace_id: 0x11, sink: Some(0x300_0005) }));
        assert_eq!(id(1 << 60 | 0x10), None);
    }
}
