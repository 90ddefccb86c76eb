//! Decides which of a guest's records are merged, and why the others are not.

use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::{Event, Kinds, Layouts, Record, RecordType};
use perfx_pipeline::Level;

/// Which of a guest's records are merged.
#[derive(Clone, Default, Debug)]
pub(crate) struct MergedKinds {
    pub(crate) kinds: Kinds,
    /// True to merge symbols of BPF programs, too.
    bpf: bool,
    /// Events whose samples no reader of the host could decode: tracepoints, because the host's formats are
    /// not the guest's.
    mute: Vec<bool>,
}

/// The kinds that perf inject merges.
pub(crate) const DEFAULT: [RecordType; 10] = [
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
];

/// Further kinds that are useful to readers.
const MORE: [RecordType; 6] = [
    RecordType::NAMESPACES,
    RecordType::CGROUP,
    RecordType::THROTTLE,
    RecordType::UNTHROTTLE,
    RecordType::LOST_SAMPLES,
    RecordType::BPF_EVENT,
];

const SAMPLES: [RecordType; 2] = [RecordType::SAMPLE, RecordType::CALLCHAIN_DEFERRED];

impl MergedKinds {
    pub(crate) fn new(samples: bool, all: bool, events: &[Event]) -> MergedKinds {
        let mut kinds = Kinds::of(&DEFAULT);
        if all {
            kinds = kinds.union(Kinds::of(&MORE));
        }
        if samples {
            kinds = kinds.union(Kinds::of(&SAMPLES));
        }
        let mute = events.iter().map(|event| event.attr().is_tracepoint()).collect();
        MergedKinds { kinds, bpf: all, mute }
    }

    pub(crate) fn takes(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        let kind = record.kind();
        // perf leaves out the symbols of BPF programs, as their BPF_EVENTs are not merged either. A guest of
        // the guest has no name on the host.
        let bpf = || {
            kind == RecordType::KSYMBOL
                && !self.bpf
                && Ksymbol::of(record).is_none_or(|symbol| symbol.kind != Ksymbol::OUT_OF_LINE)
        };
        let mute = || {
            let event = layouts.event_of(record).and_then(|event| self.mute.get(event));
            SAMPLES.contains(&kind) && event == Some(&true)
        };
        self.kinds.contains(kind) && kind.is_kernel() && !record.is_of_guest() && !bpf() && !mute()
    }

    /// Why records of a kind are not merged, and how much that matters.
    pub(crate) fn why_not(&self, kind: RecordType) -> (Level, &'static str) {
        let asked = self.kinds.contains(kind);
        if asked && SAMPLES.contains(&kind) && self.mute.contains(&true) {
            (Level::Loss, "because the host's recording lacks the formats of their tracepoints")
        } else if asked && (self.bpf || kind != RecordType::KSYMBOL) {
            (Level::Loss, "because they are of guests of the guest")
        } else if SAMPLES.contains(&kind) {
            (Level::Info, "perfx merge --samples keeps them")
        } else if MORE.contains(&kind) || kind == RecordType::KSYMBOL {
            (Level::Info, "perfx merge --all keeps them")
        } else {
            let level = if self.bpf { Level::Loss } else { Level::Info };
            (level, "because they mean nothing in the host's recording")
        }
    }
}
