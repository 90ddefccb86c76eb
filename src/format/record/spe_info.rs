//! The AUXTRACE_INFO record of Arm SPE names the event of the data, and describes the CPUs.

use super::aux::AuxtraceInfo;
use super::builder::build;
use crate::{HEADER_SIZE, Record};

/// The private part of an AUXTRACE_INFO record of Arm SPE (tools/perf/util/arm-spe.h).
///
/// Version 1, before perf 6.13, has exactly 16 bytes:
///
/// | byte | |
/// |---|---|
/// | 16 | u64 PMU type, u64 1 if there is a buffer for each CPU |
///
/// Version 2:
///
/// | byte | |
/// |---|---|
/// | 16 | u64 version, u64 words of this header, u64 PMU type, u64 number of CPUs |
/// | 16 + 8 × words | for each CPU: u64 magic, CPU, number of following words, MIDR, PMU type, interval, since perf 7.0 event filter |
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SpeInfo {
    /// `attr.type` of the event with the data.
    pub pmu_type: u64,
    /// The description of each CPU; `None` in version 1.
    pub cpus: Option<Vec<SpeCpu>>,
}

/// The description of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SpeCpu {
    /// Its number.
    pub cpu: u64,
    /// Its main id register: implementer, part and revision.
    pub midr: u64,
    /// The events that it can filter by, and so reports; 0 if unknown.
    pub event_filter: u64,
}

const PRIVATE: usize = 16;

impl SpeInfo {
    /// Parses an AUXTRACE_INFO record of Arm SPE; `None` for other records, and for one that is too short.
    pub fn of(record: &Record<'_>) -> Option<SpeInfo> {
        AuxtraceInfo::ARM_SPE.describes(record)?;
        let words = record.bytes().len().checked_sub(PRIVATE)? / 8;
        let word = |number: usize| record.u64(PRIVATE + number.checked_mul(8)?);
        if words == 2 {
            return Some(SpeInfo { pmu_type: word(0)?, cpus: None });
        }
        let (header, count) = (usize::try_from(word(1)?).ok()?, usize::try_from(word(3)?).ok()?);
        let each = words.checked_sub(header)?.checked_div(count)?;
        let cpu = |number: usize| {
            let at = header + number * each;
            let event_filter = if each > 6 { word(at + 6)? } else { 0 };
            Some(SpeCpu { cpu: word(at + 1)?, midr: word(at + 3)?, event_filter })
        };
        // A CPU without a MIDR is useless.
        let cpus = if each < 4 { None } else { (0..count).map(cpu).collect::<Option<Vec<_>>>() };
        Some(SpeInfo { pmu_type: word(2)?, cpus: Some(cpus?) })
    }
}

/// The AUXTRACE_INFO record of Arm SPE in version 1, for perf before 6.13: its words are only the PMU's type
/// and 1, so the descriptions of CPUs are lost. `None` for other records, and for version 1.
pub fn spe_info_v1(record: &Record<'_>) -> Option<Vec<u8>> {
    let SpeInfo { pmu_type, .. } = SpeInfo::of(record).filter(|info| info.cpus.is_some())?;
    let endian = record.endian();
    let parts =
        [record.bytes().get(HEADER_SIZE..PRIVATE)?, &endian.bytes_u64(pmu_type), &endian.bytes_u64(1)];
    build(record.kind(), record.misc(), &parts, endian)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endian, Origin, RecordType};

    fn info(kind: u32, words: &[u64]) -> Option<SpeInfo> {
        let endian = Endian::Big;
        let words: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
        let parts = [&endian.bytes_u32(kind)[..], &[0; 4], &words];
        let bytes = build(RecordType::AUXTRACE_INFO, 0, &parts, endian).unwrap();
        SpeInfo::of(&Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap())
    }

    #[test]
    fn both_versions_are_read() {
        assert_eq!(info(4, &[10, 1]), Some(SpeInfo { pmu_type: 10, cpus: None }));
        let cpu = |cpu, event_filter| SpeCpu { cpu, midr: 0x410f_d0c1, event_filter };
        let old = [2, 4, 11, 2, 9, 0, 3, 0x410f_d0c1, 11, 256, 9, 1, 3, 0x410f_d0c1, 11, 256];
        assert_eq!(info(4, &old), Some(SpeInfo { pmu_type: 11, cpus: Some(vec![cpu(0, 0), cpu(1, 0)]) }));
        let new = [2, 4, 11, 1, 9, 7, 4, 0x410f_d0c1, 11, 256, 5];
        assert_eq!(info(4, &new), Some(SpeInfo { pmu_type: 11, cpus: Some(vec![cpu(7, 5)]) }));
    }

    #[test]
    fn a_wrong_count_is_refused() {
        assert_eq!(info(1, &[10, 1]), None);
        assert_eq!(info(4, &[10]), None);
        assert_eq!(info(4, &[2, 4, 11, 0]), None);
        assert_eq!(info(4, &[2, 4, 11, u64::MAX, 9, 7, 4, 1]), None);
        assert_eq!(info(4, &[2, u64::MAX, 11, 1, 9, 7, 4, 1]), None);
    }
}
