//! Lists the kinds of records that `filter` selects like samples, and those that it keeps because they
//! describe one or all processes.

use perfx_format::read::Batch;
use perfx_format::{Kinds, RecordType};

/// Kinds of event records that are selected like samples. Switches are not, if they say whose code was traced.
pub(crate) const CHOSEN: [RecordType; 7] = [
    RecordType::SAMPLE,
    RecordType::THROTTLE,
    RecordType::UNTHROTTLE,
    RecordType::READ,
    RecordType::SWITCH,
    RecordType::SWITCH_CPU_WIDE,
    RecordType::LOST,
];

/// Kinds that are dropped without a report: the number of kept samples is reported anyway, and a round only
/// says that the records before it may be sorted, as does the round after the next kept sample.
pub(crate) const UNTOLD: [RecordType; 2] = [RecordType::SAMPLE, RecordType::FINISHED_ROUND];

/// The kinds that are read of a batch without a kept sample. Only those that it has: if none of them is common, the
/// walk leaps from one to the next.
pub(crate) fn told(batch: &Batch) -> Kinds {
    UNTOLD.into_iter().fold(batch.kinds, Kinds::without)
}

/// A process's records that readers need to understand its samples.
pub(crate) const OF_PROCESS: [RecordType; 7] = [
    RecordType::MMAP,
    RecordType::MMAP2,
    RecordType::COMM,
    RecordType::FORK,
    RecordType::EXIT,
    RecordType::NAMESPACES,
    RecordType::ITRACE_START,
];

/// Records of the kernel, of cgroups and of AUX data that readers need.
pub(crate) const OF_ALL: [RecordType; 6] = [
    RecordType::KSYMBOL,
    RecordType::BPF_EVENT,
    RecordType::TEXT_POKE,
    RecordType::CGROUP,
    RecordType::AUX,
    RecordType::AUX_OUTPUT_HW_ID,
];
