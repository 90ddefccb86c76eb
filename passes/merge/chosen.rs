//! Decides which records of a guest are merged, and reports the reasons for the others.

use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::{Event, Kinds, Layouts, Record, RecordType};
use perfx_pipeline::Level;

#[derive(Clone, Default, Debug)]
pub(crate) struct MergedKinds {
    pub(crate) kinds: Kinds,
    /// Merge symbols of BPF programs, too.
    bpf: bool,
    /// Events whose samples no reader of the host can decode: tracepoints, whose formats are the guest's.
    mute: Vec<bool>,
}

pub(crate) const DEFAULT: Kinds = Kinds::of(&[
    RecordType::MMAP,
    RecordType::MMAP2,
    RecordType::COMM,
    RecordType::FORK,
    RecordType::EXIT,
    RecordType::LOST,
    RecordType::SWITCH,
    RecordType::SWITCH_CPU_WIDE,
    RecordType::KSYMBOL,
    RecordType::TEXT_POKE,
]);

const MORE: Kinds = Kinds::of(&[
    RecordType::NAMESPACES,
    RecordType::CGROUP,
    RecordType::THROTTLE,
    RecordType::UNTHROTTLE,
    RecordType::LOST_SAMPLES,
    RecordType::BPF_EVENT,
]);

// Other kinds are meaningless on the host; each new kind must be decided here.
const _: () = assert!(
    DEFAULT
        .union(MORE)
        .union(Kinds::SAMPLES)
        .union(Kinds::AUX_OF_KERNEL)
        .and(RecordType::READ)
        .covers(Kinds::NAMED.intersection(Kinds::OF_KERNEL))
);

impl MergedKinds {
    pub(crate) fn new(samples: bool, all: bool, events: &[Event]) -> MergedKinds {
        let kinds = if all { DEFAULT.union(MORE) } else { DEFAULT };
        let kinds = if samples { kinds.union(Kinds::SAMPLES) } else { kinds };
        let mute = events.iter().map(|event| event.attr().is_tracepoint()).collect();
        MergedKinds { kinds, bpf: all, mute }
    }

    pub(crate) fn takes(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        let kind = record.kind();
        // perf omits them because BPF_EVENTs are not merged either. A nested guest has no name on the host.
        let bpf = || {
            kind == RecordType::KSYMBOL
                && !self.bpf
                && Ksymbol::of(record).is_none_or(|symbol| symbol.kind != Ksymbol::OUT_OF_LINE)
        };
        let mute = || {
            let event = layouts.event_of(record).and_then(|event| self.mute.get(event));
            Kinds::SAMPLES.contains(kind) && event == Some(&true)
        };
        self.kinds.contains(kind) && kind.is_kernel() && !record.is_of_guest() && !bpf() && !mute()
    }

    pub(crate) fn why_not(&self, kind: RecordType) -> (Level, &'static str) {
        let asked = self.kinds.contains(kind);
        if asked && Kinds::SAMPLES.contains(kind) && self.mute.contains(&true) {
            (Level::Loss, "because the host's recording lacks the formats of their tracepoints")
        } else if asked && (self.bpf || kind != RecordType::KSYMBOL) {
            (Level::Loss, "because they belong to nested guests")
        } else if Kinds::SAMPLES.contains(kind) {
            (Level::Info, "perfx merge --samples keeps them")
        } else if MORE.contains(kind) || kind == RecordType::KSYMBOL {
            (Level::Info, "perfx merge --all keeps them")
        } else {
            let level = if self.bpf { Level::Loss } else { Level::Info };
            (level, "because they mean nothing in the host's recording")
        }
    }
}
