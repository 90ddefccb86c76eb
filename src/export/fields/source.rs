//! Reads the values by which tracepoint samples are grouped and paired: own fields, and those of any sample.

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::event_name::generic_name;
use perfx_format::record::cpumode::KERNEL;
use perfx_format::sample::CallStack;
use perfx_format::tracepoint::{NamedField, TraceFieldKind, TraceValue};
use perfx_format::until_nul;
use perfx_look::trace::{FieldText, TracePrinter, value_text};
use perfx_resolve::{Facts, Frame, frame_at};
use perfx_samples::SampleView;

/// The values of all samples. Without `sample.`, a tracepoint's own field takes precedence.
pub(super) const OF_SAMPLES: [&str; 7] = ["pid", "tid", "comm", "cpu", "event", "caller", "syscall"];

const SAMPLE: &str = "sample.";

/// In these frames the caller of a lock is searched for.
const FRAMES_MAX: usize = 16;

/// A field without its name and type.
pub(super) fn owned(field: &NamedField<'_>) -> NamedField<'static> {
    NamedField { name: "", type_name: "", ..*field }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Cell {
    Missing,
    Number(i128),
    Syscall(u64),
    Text(String),
    Code(Frame),
    /// The innermost frames of a call chain, by their number in [`Chains`].
    Chain(usize),
}

pub(super) type Chains = IndexSet<Vec<Frame>, RandomState>;

#[derive(Clone, Debug)]
pub(super) enum Source {
    Pid,
    Tid,
    Comm,
    Cpu,
    Event,
    Caller,
    /// The system call in the event's name, or the field with its number.
    Syscall(Option<NamedField<'static>>),
    Field {
        field: NamedField<'static>,
        text: Option<FieldText>,
        is_code: bool,
    },
}

impl Source {
    /// The source of a value in samples of a tracepoint. `has_chains`: they have call chains.
    pub(super) fn of(name: &str, point: &TracePrinter<'_>, has_chains: bool) -> Option<Source> {
        let own = |name: &str| point.fields().iter().find(|field| field.name == name);
        if let Some(field) = own(name) {
            let is_code = field.kind == TraceFieldKind::Pointer || point.shows_function(name);
            let text = point.field_text(name);
            return Some(Source::Field { field: owned(field), text, is_code });
        }
        Some(match name.strip_prefix(SAMPLE).unwrap_or(name) {
            "pid" => Source::Pid,
            "tid" => Source::Tid,
            "comm" => Source::Comm,
            "cpu" => Source::Cpu,
            "event" => Source::Event,
            "caller" if has_chains => Source::Caller,
            "syscall" => Source::Syscall(own("id").map(owned)),
            _ => return None,
        })
    }

    /// [`Source::of`] for comparing: without texts.
    pub(super) fn key(name: &str, point: &TracePrinter<'_>, has_chains: bool) -> Option<Source> {
        Some(match Source::of(name, point, has_chains)? {
            Source::Field { field, .. } => Source::Field { field, text: None, is_code: false },
            other => other,
        })
    }

    pub(super) fn cell(
        &self,
        (sample, raw): (SampleView<'_>, &[u8]),
        (facts, event): (&Facts, usize),
        chains: &mut Chains,
    ) -> Cell {
        let number = |number: Option<u32>| {
            number.map_or(Cell::Missing, |number| Cell::Number(number.cast_signed().into()))
        };
        let endian = sample.record.endian();
        match self {
            Source::Pid => number(sample.pid()),
            Source::Tid => number(sample.task().map(|(_, tid)| tid)),
            Source::Cpu => number(sample.cpu()),
            Source::Comm => {
                let Some((_, tid)) = sample.task() else { return Cell::Missing };
                let name = facts.tasks.name(sample.machine(&facts.guests), tid, sample.key());
                Cell::Text(String::from_utf8_lossy(&name).into_owned())
            }
            Source::Event => {
                Cell::Text(String::from_utf8_lossy(generic_name(&facts.events[event].name)).into_owned())
            }
            Source::Caller => {
                let mut buffer = Vec::new();
                let stack = facts.stacks.call_stack(sample.record, sample.layout, &mut buffer);
                let frames = stack.iter().flat_map(CallStack::frames).take(FRAMES_MAX);
                Cell::Chain(chains.insert_full(frames.map(|place| frame(sample, facts, place)).collect()).0)
            }
            Source::Syscall(None) => {
                let name = String::from_utf8_lossy(&facts.events[event].name);
                let call = ["sys_enter_", "sys_exit_"].iter().find_map(|word| name.split_once(word));
                call.map_or(Cell::Missing, |(_, call)| Cell::Text(call.to_owned()))
            }
            Source::Syscall(Some(field)) => match field.value(raw, endian) {
                Some(TraceValue::Signed(number)) => Cell::Syscall(number.cast_unsigned()),
                Some(TraceValue::Unsigned(number)) => Cell::Syscall(number),
                _ => Cell::Missing,
            },
            Source::Field { text: Some(text), .. } => text.of(raw).map_or(Cell::Missing, Cell::Text),
            Source::Field { field, is_code, .. } => match field.value(raw, endian) {
                Some(TraceValue::Unsigned(at) | TraceValue::Pointer(at)) if *is_code => {
                    Cell::Code(frame(sample, facts, (KERNEL, at)))
                }
                Some(TraceValue::Signed(number)) => Cell::Number(number.into()),
                Some(TraceValue::Unsigned(number) | TraceValue::Pointer(number)) => {
                    Cell::Number(number.into())
                }
                Some(TraceValue::Text(text)) => {
                    Cell::Text(String::from_utf8_lossy(until_nul(text)).into_owned())
                }
                Some(value) => Cell::Text(value_text(value)),
                None => Cell::Missing,
            },
        }
    }
}

fn frame(sample: SampleView<'_>, facts: &Facts, (mode, address): (u16, u64)) -> Frame {
    let SampleView { record, layouts, .. } = sample;
    frame_at(facts, (record, layouts), sample.pid(), sample.key(), (record.level(mode), address))
}

/// True for functions that take locks or wait: the caller of a lock is the first other one. The kernel places
/// them between `__sched_text_start` and `__sched_text_end`, and `__lock_text_start` and `__lock_text_end`.
pub(super) fn is_lock(function: &str) -> bool {
    const EXACT: [&str; 5] = ["schedule", "down", "up", "yield", "do_nanosleep"];
    const BEGINNINGS: [&str; 28] = [
        "raw_spin", "raw_read", "raw_write", "raw_callee_save", "native_queued_", "pv_queued_", "queued_",
        "resilient_", "mutex_", "rt_mutex_", "ww_mutex_", "try_to_take_rt_mutex", "task_blocks_on_rt_mutex",
        "rwsem_down_", "rwbase_", "down_", "percpu_down_", "ldsem_down_", "schedule_timeout",
        "schedule_hrtimeout", "schedule_idle", "schedule_preempt_", "preempt_schedule", "io_schedule",
        "cond_resched", "wait_for_co", "wait_on_bit", "out_of_line_wait_on_bit",
    ];
    let name = function.trim_start_matches('_');
    let name = name.split_once('.').map_or(name, |(name, _)| name);
    EXACT.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}
