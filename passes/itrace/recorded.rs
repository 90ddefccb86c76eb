//! The history that recorded samples get from the trace, with `L` and `G`.

use perfx_format::record::cpumode::KERNEL_START;
use perfx_format::sample::{Branch, Marker, Sample, with_history};
use perfx_format::{Layout, Record, RecordType, Time, sample_type as st};
use perfx_pipeline::Result;

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedSample {
    pub(super) time: Option<u64>,
    pub(super) ip: u64,
    pub(super) cpu: u32,
    pub(super) tid: u32,
}

/// The history: the last branches, newest first, and a call chain with its markers.
#[derive(Clone, Default, Debug)]
pub(super) struct History {
    pub(super) branches: Vec<Branch>,
    pub(super) chain: Vec<u64>,
}

impl RecordedSample {
    /// `None` if the record is not a sample.
    pub(super) fn of(record: &Record<'_>, layout: &Layout) -> Option<RecordedSample> {
        let (_, tid) = layout.pid_tid(record).unwrap_or_default();
        let (ip, cpu) = (layout.ip(record).unwrap_or(0), layout.cpu(record).unwrap_or(u32::MAX));
        let time = layout.time(record).map(Time::ns);
        (record.kind() == RecordType::SAMPLE).then_some(RecordedSample { time, ip, cpu, tid })
    }
}

/// The sample with the parts (CALLCHAIN, BRANCH_STACK) that its event lacks, left empty if the record would
/// be too large. Also returns whether the history was added.
pub(super) fn extended(
    record: &Record<'_>,
    layout: &Layout,
    parts: u64,
    found: Option<History>,
) -> Result<(Vec<u8>, bool)> {
    let lacks = |part| parts & part & !layout.sample_type != 0;
    let sample = Sample::parse_known(record, layout)?;
    let ip = sample.ip.unwrap_or(0);
    let History { branches, mut chain } = found.unwrap_or_default();
    if chain.is_empty() {
        // As in perf, where no call is known.
        chain = vec![if ip >= KERNEL_START { Marker::KERNEL.0 } else { Marker::USER.0 }, ip];
    }
    let chain = lacks(st::CALLCHAIN).then_some(&chain[..]);
    let branches = lacks(st::BRANCH_STACK).then_some(&branches[..]);
    if let Ok(whole) = with_history(record, layout, &sample, chain, branches) {
        return Ok((whole, true));
    }
    let empty = with_history(record, layout, &sample, chain.map(|_| &[][..]), branches.map(|_| &[][..]));
    Ok((empty?, false))
}
