//! The next thread of a CPU, from samples of the tracepoint sched:sched_switch, which `perf record` takes
//! where the kernel has no SWITCH records for whole CPUs.

use perfx_format::read::Recording;
use perfx_format::sample::Sample;
use perfx_format::tracepoint::TraceField;
use perfx_format::{ByTracepoint, Layouts, Record, RecordType};

#[derive(Debug, Default)]
pub(crate) struct SchedSwitch {
    /// The fields with the previous and the next thread.
    fields: ByTracepoint<Option<[TraceField; 2]>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Switched {
    pub(crate) cpu: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl SchedSwitch {
    /// Finds the events by the formats in feature TRACING_DATA.
    pub(crate) fn of(recording: &Recording) -> SchedSwitch {
        let Recording { events, features, endian, .. } = recording;
        let fields = ByTracepoint::new(events, features, *endian, |format| {
            let is_it = format.system == b"sched" && format.name == b"sched_switch";
            is_it.then(|| Some([format.field("prev_pid")?, format.field("next_pid")?])).flatten()
        });
        SchedSwitch { fields }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.values().all(Option::is_none)
    }

    pub(crate) fn read(&self, record: &Record<'_>, layouts: &Layouts) -> Option<Switched> {
        let event = layouts.event_of(record).filter(|_| record.kind() == RecordType::SAMPLE)?;
        let fields = (*self.fields.get(event)?)?;
        let layout = layouts.layout_of(record)?;
        let raw = Sample::parse_known(record, layout).ok()?.raw?;
        let [from, to] = fields.map(|field| u32::try_from(field.number(raw, record.endian())?).ok());
        Some(Switched { cpu: layout.cpu(record)?, from: from?, to: to? })
    }
}
