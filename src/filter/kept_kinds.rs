//! Lists the kinds of records that `filter` selects like samples, or keeps because they describe processes.

use perfx_format::read::Batch;
use perfx_format::{Kinds, RecordType};

/// Kinds selected like samples. Switches are not if they name the traced thread.
pub(crate) const CHOSEN: Kinds = Kinds::OF_EVENT.union(Kinds::SWITCHES).and(RecordType::LOST);

/// Kinds dropped without a report: kept samples are counted anyway, and a later round replaces a dropped one.
pub(crate) const UNREPORTED: Kinds = Kinds::of(&[RecordType::SAMPLE, RecordType::FINISHED_ROUND]);

/// Kinds to read in a batch without kept samples, of those that it has: between rare ones the walk jumps.
pub(crate) fn reported(batch: &Batch) -> Kinds {
    batch.kinds.minus(UNREPORTED)
}

/// A process's records that readers need to understand its samples.
pub(crate) const OF_PROCESS: Kinds = Kinds::NAMING_PID.minus(CHOSEN);

/// Records of the kernel, of cgroups and of AUX data that readers need.
const OF_ALL: Kinds = Kinds::of(&[
    RecordType::KSYMBOL,
    RecordType::BPF_EVENT,
    RecordType::TEXT_POKE,
    RecordType::CGROUP,
    RecordType::AUX,
    RecordType::AUX_OUTPUT_HW_ID,
]);

/// Records that readers need to understand samples.
pub(crate) const NEEDED: Kinds = OF_PROCESS.union(OF_ALL);

// `FilterPlan::keeps` decides about every kind of the kernel: these, and two that kept samples need.
const _: () = assert!(
    CHOSEN
        .union(NEEDED)
        .and(RecordType::CALLCHAIN_DEFERRED)
        .and(RecordType::LOST_SAMPLES)
        .covers(Kinds::NAMED.intersection(Kinds::OF_KERNEL))
);
