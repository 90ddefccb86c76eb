//! Which thread a CPU runs next, as samples of the tracepoint sched:sched_switch say: `perf record` takes these where the
//! kernel has no SWITCH records for whole CPUs.

use perfx_format::features::{formats_by_id, trace_formats};
use perfx_format::read::Recording;
use perfx_format::sample::Sample;
use perfx_format::tracepoint::TraceField;
use perfx_format::{Feature, Layouts, Record, RecordType};

/// What [`PtInfo::switches`](perfx_format::record::pt_info::PtInfo::switches) is then.
pub(crate) const BY_SAMPLES: u64 = 1;

/// The events of a recording that are sched_switch.
#[derive(Debug, Default)]
pub(crate) struct SchedSwitch {
    /// For each event, the field with the next thread.
    next: Vec<Option<TraceField>>,
}

impl SchedSwitch {
    /// Finds them by the formats in feature TRACING_DATA.
    pub(crate) fn of(recording: &Recording) -> SchedSwitch {
        let section = recording.features.get(&Feature::TRACING_DATA);
        let formats = section.map(|section| trace_formats(section, recording.endian)).unwrap_or_default();
        let formats = formats_by_id(&formats);
        let next = recording.events.iter().map(|event| {
            let attr = event.attr();
            let format = formats.get(&attr.config).filter(|_| attr.is_tracepoint())?;
            let is_it = format.system == b"sched" && format.name == b"sched_switch";
            is_it.then(|| format.field("next_pid")).flatten()
        });
        SchedSwitch { next: next.collect() }
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.next.iter().all(Option::is_none)
    }

    /// The CPU, and the thread that runs there next.
    pub(crate) fn read(&self, record: &Record<'_>, layouts: &Layouts) -> Option<(u32, u32)> {
        let event = layouts.event_of(record).filter(|_| record.kind() == RecordType::SAMPLE)?;
        let field = (*self.next.get(event)?)?;
        let layout = layouts.layout_of(record)?;
        let raw = Sample::parse(record, layout).ok()?.raw?;
        let tid = field.number(raw, record.endian())?;
        Some((layout.cpu(record)?, u32::try_from(tid).ok()?))
    }
}
