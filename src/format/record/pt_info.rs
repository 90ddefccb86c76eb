//! The AUXTRACE_INFO record of Intel PT describes the processor and its bits of `attr.config`.

use super::aux::AuxtraceInfo;
use super::time_conv::TimeConv;
use crate::Record;

/// The private part of an AUXTRACE_INFO record of Intel PT (tools/perf/util/intel-pt.h). Older versions of
/// perf wrote less of it; missing fields are 0.
///
/// | byte | |
/// |---|---|
/// | 16 | u64 PMU type, time shift, time multiplier, time zero, 1 if times can be converted |
/// | 56 | u64 TSC bit, NoRETComp bit, the source of context switches (see [`PtInfo::switches`]), 1 for snapshots, 1 for a buffer per CPU |
/// | 96 | u64 MTC bit, MTC frequency bits, TSC/CTC ratio's numerator and denominator, CYC bit |
/// | 136 | u64 maximum non-turbo ratio, length of the address filters; these with a zero byte, padded to 8 |
/// | after them | u64 1 if the processor has event trace |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PtInfo {
    /// `attr.type` of the event with the data.
    pub pmu_type: u64,
    /// The conversion of the time-stamp counter to the time of the recording, if there is one.
    pub conv: Option<TimeConv>,
    /// The bit of `attr.config` for times in the trace.
    pub tsc_bit: u64,
    /// The bit of `attr.config` for uncompressed returns.
    pub no_return_compression_bit: u64,
    /// The source of context switches: 0 none, 1 `sched:sched_switch`, 2 SWITCH records of the traced
    /// threads, 3 SWITCH records of CPUs.
    pub switches: u64,
    /// True if the buffers were read now and then, and may overlap.
    pub is_snapshot: bool,
    /// True if each CPU has a buffer.
    pub is_per_cpu: bool,
    /// The bit of `attr.config` for MTC packets.
    pub mtc_bit: u64,
    /// The bit of `attr.config` for CYC packets.
    pub cyc_bit: u64,
    /// The bits of `attr.config` for the distance between two MTC packets.
    pub mtc_freq_bits: u64,
    /// Ticks of the time-stamp counter for ticks of the crystal clock.
    pub tsc_per_ctc: Option<(u32, u32)>,
    /// The frequency of the time-stamp counter in units of the bus clock; 0 if not known.
    pub max_non_turbo_ratio: u32,
    /// True if the processor can trace events such as interrupts.
    pub has_event_trace: bool,
}

const PRIVATE: usize = 16;

impl PtInfo {
    /// Samples of `sched:sched_switch` contain the context switches: a value of [`PtInfo::switches`].
    pub const BY_SAMPLES: u64 = 1;

    /// Parses an AUXTRACE_INFO record of Intel PT; `None` for other records, and for one that is too short.
    pub fn of(record: &Record<'_>) -> Option<PtInfo> {
        AuxtraceInfo::INTEL_PT.describes(record)?;
        let word = |number: usize| record.u64(PRIVATE + 8 * number);
        let later = |number: usize| word(number).unwrap_or(0);
        let after_filters = || match usize::try_from(word(16)?).ok()? {
            0 => word(17),
            len if len < record.bytes().len() => word(17 + len / 8 + 1),
            _ => None,
        };
        let ratio = |number: usize| u32::try_from(later(number)).ok().filter(|&value| value > 0);
        Some(PtInfo {
            pmu_type: word(0)?,
            conv: AuxtraceInfo::pt_time(record),
            tsc_bit: word(5)?,
            no_return_compression_bit: word(6)?,
            switches: word(7)?,
            is_snapshot: word(8)? != 0,
            is_per_cpu: word(9)? != 0,
            mtc_bit: later(10),
            cyc_bit: later(14),
            mtc_freq_bits: later(11),
            tsc_per_ctc: ratio(12).zip(ratio(13)),
            max_non_turbo_ratio: ratio(15).unwrap_or(0),
            has_event_trace: after_filters().is_some_and(|word| word != 0),
        })
    }

    /// The address filters of an AUXTRACE_INFO record of Intel PT, as `perf record` gave them to the kernel.
    pub fn filters<'r>(record: &Record<'r>) -> Option<&'r [u8]> {
        AuxtraceInfo::INTEL_PT.describes(record)?;
        let len = usize::try_from(record.u64(PRIVATE + 8 * 16)?).ok()?;
        record.bytes().get(PRIVATE + 8 * 17..)?.get(..len)
    }

    /// The bit of `attr.config` for power events; like that for PTWRITE, the same on all processors.
    pub const POWER: u64 = 1 << 4;
    /// The bit of `attr.config` for PTWRITE.
    pub const PTWRITE: u64 = 1 << 12;
    /// The bit of `attr.config` for events such as interrupts.
    pub const EVENT_TRACE: u64 = 1 << 31;

    /// The distance between two MTC packets in `attr.config`, as a power of two.
    pub fn mtc_period(&self, config: u64) -> u8 {
        let shift = self.mtc_freq_bits.trailing_zeros();
        (config & self.mtc_freq_bits).checked_shr(shift).unwrap_or(0) as u8
    }

    /// True unless `attr.config` disables the packets of branches.
    pub fn traces_branches(config: u64) -> bool {
        const PASS_THROUGH: u64 = 1;
        const BRANCHES: u64 = 1 << 13;
        config & PASS_THROUGH == 0 || config & BRANCHES != 0
    }
}
