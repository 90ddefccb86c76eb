//! Names every record kind and every feature bit in a table; a number without a name is valid, too.

use std::fmt;

/// The kind of a record: `type` of `struct perf_event_header`. The kernel's are below 64, perf's own above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType(pub u32);

/// Defines the columns of the table of kinds, and the values that each of them has.
macro_rules! columns {
    ($($column:ident: $Type:ident { $($value:ident)* })*) => {
        $(#[derive(Clone, Copy)] enum $Type { $($value),* })*

        struct Row { $($column: $Type),* }
    };
}

columns! {
    // Its role for its event: a sample, the user part of a sample's call chain, a context switch, a number of
    // lost records, or another record that is meaningless without the event.
    event: Event { No Sample Chain Switch Lost Other }
    // The task in its own fields, pid first: none, a process, or a thread, too.
    names: Names { No Pid Task }
    // The state that it changes: a mapping, a task and maybe its address space, a task's end, kernel code.
    changes: Changes { No Map Task End Kernel }
    // The texts or bytes in its fields: none, the path of a file, or others.
    text: Text { No Path Yes }
    // The meaning of a later equal record: an addition, the same state, or one too many for perf.
    again: Again { New State Once }
    // Its writer, if it belongs to AUX data: the kernel, perf record, or the program that decodes it.
    aux: Aux { No Kernel Tool Error }
    // Its role for the form: contents of a file's header (`Front`: it has another meaning among a file's
    // records), or part of a zstd stream of records.
    form: Form { No Front Body Stream }
}

macro_rules! record_types {
    ($($number:literal $name:ident $min:literal $event:ident $names:ident $changes:ident $text:ident $again:ident
       $aux:ident $form:ident [$($time:literal)?] [$($id:literal)*] $doc:literal;)*) => {
        impl RecordType {
            $(#[doc = $doc] pub const $name: RecordType = RecordType($number);)*

            /// Every kind with a name, in ascending order.
            pub const NAMED: &'static [RecordType] = &[$(RecordType($number)),*];

            const ROWS: &'static [Row] = &[$(Row {
                event: Event::$event, names: Names::$names, changes: Changes::$changes, text: Text::$text,
                again: Again::$again, aux: Aux::$aux, form: Form::$form,
            }),*];

            /// The name without its `PERF_RECORD_` prefix; `None` for an unknown kind.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The smallest `header.size`, bytes, for the kind's fixed fields, without the sample_id trailer.
            pub fn min_size(self) -> usize {
                match self.0 {
                    $($number => $min,)*
                    _ => 8,
                }
            }

            /// The offset of the time in its own fields, bytes from the start of the record.
            pub(crate) fn own_time(self) -> Option<usize> {
                match self.0 {
                    $($number => [$($time)?].first().copied(),)*
                    _ => None,
                }
            }

            /// The offsets of ids in its own fields, bytes from the start of the record.
            pub(crate) fn own_ids(self) -> &'static [usize] {
                match self.0 {
                    $($number => &[$($id),*],)*
                    _ => &[],
                }
            }
        }
    };
}

// Sources: include/uapi/linux/perf_event.h (1-22), tools/lib/perf/include/perf/event.h (64-86). The columns
// are the number, the name, the smallest size, those of `columns!`, the offset of the own time, and those of
// own ids.
record_types! {
     1 MMAP                 41 No     Task Map    Path State No     No     []   []      "A mapping of an address range, without inode.";
     2 LOST                 24 Lost   No   No     No   New   No     No     []   [8]     "Samples the kernel dropped because the ring buffer was full.";
     3 COMM                 17 No     Task Task   Yes  State No     No     []   []      "A thread's name; with misc bit 13 the name came from exec.";
     4 EXIT                 32 No     Pid  End    No   State No     No     [24] []      "A task ended.";
     5 THROTTLE             32 Other  No   No     No   New   No     No     [8]  [16 24] "An event was throttled.";
     6 UNTHROTTLE           32 Other  No   No     No   New   No     No     [8]  [16 24] "An event runs again.";
     7 FORK                 32 No     Task Task   No   State No     No     [24] []      "A task began.";
     8 READ                 24 Other  Pid  No     No   New   No     No     []   []      "Counter values, in read_format.";
     9 SAMPLE                8 Sample No   No     Yes  New   No     No     []   []      "A sample, laid out by its event's sample_type.";
    10 MMAP2                73 No     Task Map    Path State No     No     []   []      "A mapping with inode or build-id.";
    11 AUX                  32 No     No   No     No   New   Kernel No     []   []      "New data in the AUX area.";
    12 ITRACE_START         16 No     Pid  No     No   New   Kernel No     []   []      "Instruction trace started.";
    13 LOST_SAMPLES         16 Lost   No   No     No   New   No     No     []   []      "Samples dropped by the hardware or a BPF filter.";
    14 SWITCH                8 Switch No   No     No   New   No     No     []   []      "A context switch of the traced task.";
    15 SWITCH_CPU_WIDE      16 Switch No   No     No   New   No     No     []   []      "A context switch with the other task's ids.";
    16 NAMESPACES           24 No     Task No     No   State No     No     []   []      "A task's namespaces.";
    17 KSYMBOL              25 No     No   Kernel Yes  State No     No     []   []      "A kernel symbol came or went.";
    18 BPF_EVENT            24 No     No   No     Yes  State No     No     []   []      "A BPF program came or went.";
    19 CGROUP               17 No     No   No     Yes  State No     No     []   []      "A cgroup's id and path.";
    20 TEXT_POKE            24 No     No   No     Yes  State No     No     []   []      "Kernel text was changed.";
    21 AUX_OUTPUT_HW_ID     16 No     No   No     No   New   Kernel No     []   []      "Ties an event to the hardware id in the AUX stream.";
    22 CALLCHAIN_DEFERRED   24 Chain  No   No     No   New   No     No     []   []      "The user part of an earlier sample's call chain.";
    64 HEADER_ATTR          72 No     No   No     No   New   No     Front  []   []      "An event's attr and ids (pipe form).";
    65 HEADER_EVENT_TYPE    24 No     No   No     Yes  New   No     Body   []   []      "An event's name (pipe form, before 2012).";
    66 HEADER_TRACING_DATA  12 No     No   No     No   New   No     Front  []   []      "Tracepoint formats, in a payload after the record.";
    67 HEADER_BUILD_ID      36 No     No   No     Path State No     Body   []   []      "A DSO's build-id.";
    68 FINISHED_ROUND        8 No     No   No     No   New   No     No     []   []      "All ring buffers were read once.";
    69 ID_INDEX             16 No     No   No     No   State No     No     []   []      "Which CPU and thread each event id belongs to.";
    70 AUXTRACE_INFO        16 No     No   No     No   State Tool   No     []   []      "What made the AUX data.";
    71 AUXTRACE             48 No     No   No     No   New   Tool   No     []   []      "AUX data, in a payload after the record.";
    72 AUXTRACE_ERROR       48 No     No   No     Yes  New   Error  No     [40] []      "A place where AUX data could not be decoded.";
    73 THREAD_MAP           16 No     No   No     Yes  Once  No     No     []   []      "The recorded threads.";
    74 CPU_MAP              16 No     No   No     No   Once  No     No     []   []      "The recorded CPUs.";
    75 STAT_CONFIG          16 No     No   No     No   New   No     No     []   []      "How perf stat aggregated.";
    76 STAT                 48 No     No   No     No   New   No     No     []   [8]     "A counter value of perf stat.";
    77 STAT_ROUND           24 No     No   No     No   New   No     No     []   []      "One interval of perf stat ended.";
    78 EVENT_UPDATE         24 No     No   No     Yes  State No     No     []   [16]    "An event's unit, scale, name or CPUs.";
    79 TIME_CONV            32 No     No   No     No   State No     No     []   []      "How the TSC converts to perf time.";
    80 HEADER_FEATURE       16 No     No   No     Yes  New   No     Front  []   []      "A feature section (pipe form).";
    81 COMPRESSED            8 No     No   No     No   New   No     Stream []   []      "A piece of a zstd stream of records.";
    82 FINISHED_INIT         8 No     No   No     No   State No     No     []   []      "The records synthesised at the start end here.";
    83 COMPRESSED2          16 No     No   No     No   New   No     Stream []   []      "A piece of a zstd stream of records, padded to 8 bytes.";
    84 BPF_METADATA        528 No     No   No     Yes  State No     No     []   []      "Variables of a BPF program.";
    85 SCHEDSTAT_CPU        24 No     No   No     No   New   No     No     []   []      "Scheduler statistics of a CPU.";
    86 SCHEDSTAT_DOMAIN     24 No     No   No     No   New   No     No     []   []      "Scheduler statistics of a scheduling domain.";
}

impl RecordType {
    /// The kind with this name (any case, with or without `PERF_RECORD_`) or number.
    pub fn parse(text: &str) -> Option<RecordType> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("PERF_RECORD_").unwrap_or(&upper);
        let named = Self::NAMED.iter().find(|kind| kind.name() == Some(bare)).copied();
        named.or_else(|| text.parse().ok().map(RecordType))
    }

    /// True for kinds that the kernel writes: these end in a sample_id trailer if their event requires one.
    pub fn is_kernel(self) -> bool {
        self.0 < 64
    }

    /// True for kinds with a part of a zstd stream of records.
    pub fn is_compressed(self) -> bool {
        Kinds::COMPRESSED.contains(self)
    }

    /// True if the kind has a name, or a number so small that a later perf may use it; others are damage.
    pub fn may_exist(self) -> bool {
        self.name().is_some() || (1..=u32::from(u16::MAX)).contains(&self.0)
    }

    /// True if perf writes records of this kind with sizes that are not multiples of 8.
    pub(crate) fn may_be_unaligned(self) -> bool {
        [Self::HEADER_TRACING_DATA, Self::HEADER_FEATURE, Self::COMPRESSED].contains(&self)
    }
}

/// Kinds of simpleperf, which perf does not know: they have no [`RecordType::name`].
// Source: AOSP, simpleperf/record.h.
impl RecordType {
    fn simpleperf_name(self) -> Option<&'static str> {
        const FIRST: u32 = 32769;
        const NAMES: [&str; 10] = [
            "KERNEL_SYMBOL", "DSO", "SYMBOL", "SPLIT", "SPLIT_END", "EVENT_ID", "CALLCHAIN",
            "UNWINDING_RESULT", "TRACING_DATA", "DEBUG",
        ];
        let at = self.0.checked_sub(FIRST).and_then(|at| usize::try_from(at).ok())?;
        NAMES.get(at).copied()
    }
}

/// `MMAP2 (10)`; a kind without a name is `unknown (4000)`.
impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().or(self.simpleperf_name()).unwrap_or("unknown"), self.0)
    }
}

impl fmt::Debug for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A bit of the header's feature bitmap. A file can have 256 features, each with its own section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature(pub u8);

macro_rules! features {
    ($($number:literal $name:ident $doc:literal;)*) => {
        impl Feature {
            /// Features whose section is empty: the bit is the information.
            pub const FLAGS: [Feature; 2] = [Feature::BRANCH_STACK, Feature::STAT];

            $(#[doc = $doc] pub const $name: Feature = Feature($number);)*

            /// Every feature with a name, in ascending order.
            pub const NAMED: &'static [Feature] = &[$(Feature($number)),*];

            /// The name without its `HEADER_` prefix; `None` for an unknown bit.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

// Source: tools/perf/util/header.h, enum of HEADER_*.
features! {
    1 TRACING_DATA "Tracepoint formats.";
    2 BUILD_ID "Build-ids of DSOs.";
    3 HOSTNAME "Name of the recording machine.";
    4 OSRELEASE "Kernel release.";
    5 VERSION "Version of perf.";
    6 ARCH "Machine architecture.";
    7 NRCPUS "CPUs available and online.";
    8 CPUDESC "CPU name.";
    9 CPUID "CPU vendor, family, model, stepping.";
    10 TOTAL_MEM "Memory, in kB.";
    11 CMDLINE "Command line of the recording.";
    12 EVENT_DESC "Attrs, names and ids of the events.";
    13 CPU_TOPOLOGY "Cores, dies, packages.";
    14 NUMA_TOPOLOGY "NUMA nodes.";
    15 BRANCH_STACK "A flag: samples hold branch stacks.";
    16 PMU_MAPPINGS "PMU type numbers and names.";
    17 GROUP_DESC "Event groups.";
    18 AUXTRACE "File offsets of the AUXTRACE records.";
    19 STAT "A flag: a recording of perf stat.";
    20 CACHE "CPU caches.";
    21 SAMPLE_TIME "Time of the first and the last sample.";
    22 MEM_TOPOLOGY "Memory blocks.";
    23 CLOCKID "Resolution of the clock, in ns.";
    24 DIR_FORMAT "Version of the directory form.";
    25 BPF_PROG_INFO "BPF programs.";
    26 BPF_BTF "BPF type information.";
    27 COMPRESSED "How the COMPRESSED records were made.";
    28 CPU_PMU_CAPS "Capabilities of the CPU PMU.";
    29 CLOCK_DATA "Wall-clock and perf time at one instant.";
    30 HYBRID_TOPOLOGY "PMUs of hybrid CPUs.";
    31 PMU_CAPS "Capabilities of every PMU.";
    32 CPU_DOMAIN_INFO "Scheduling domains.";
    33 E_MACHINE "ELF machine.";
    34 CLN_SIZE "Size of a cache line.";
}

/// Features of simpleperf and hiperf, which perf does not know: they have no [`Feature::name`].
// Source: AOSP, simpleperf/record_file_format.h, and OpenHarmony, developtools_hiperf, perf_file_format.h.
impl Feature {
    /// [`Feature::FILE2`] as it was written before 2022.
    pub const FILE: Feature = Feature(128);
    /// Keys and values that describe the recording.
    pub const META_INFO: Feature = Feature(129);
    /// The files that were mapped, with symbols that were hit.
    pub const FILE2: Feature = Feature(132);
    /// Branches traced by CoreSight, in place of the trace.
    pub const ETM_BRANCH_LIST: Feature = Feature(133);
    /// Records of the mappings and names of threads at the beginning of the recording.
    pub const INIT_MAP: Feature = Feature(134);
    /// The files that were mapped, with symbols that were hit.
    pub const HIPERF_FILES_SYMBOL: Feature = Feature(192);
    /// Call stacks, in place of those in samples.
    pub const HIPERF_STACK_TABLE: Feature = Feature(197);

    fn other_name(self) -> Option<&'static str> {
        Some(match self.0 {
            128 => "FILE",
            129 => "META_INFO",
            130 => "DEBUG_UNWIND",
            131 => "DEBUG_UNWIND_FILE",
            132 => "FILE2",
            133 => "ETM_BRANCH_LIST",
            134 => "INIT_MAP",
            192 => "HIPERF_FILES_SYMBOL",
            197 => "HIPERF_FILES_UNISTACK_TABLE",
            _ => return None,
        })
    }
}

/// `BUILD_ID (2)`; a bit without a name is `unknown (200)`.
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().or(self.other_name()).unwrap_or("unknown"), self.0)
    }
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of record kinds. Kinds from 127 on share one bit, so it contains all of them or none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds(u128);

/// The kinds that have one of these values in a column of the table.
macro_rules! query {
    ($column:ident: $values:pat) => {{
        let (mut set, mut at) = (Kinds::NONE, 0);
        while at < RecordType::ROWS.len() {
            if matches!(RecordType::ROWS[at].$column, $values) {
                set = set.and(RecordType::NAMED[at]);
            }
            at += 1;
        }
        set
    }};
}

impl Kinds {
    /// No kind.
    pub const NONE: Kinds = Kinds(0);
    /// Every kind, known or not.
    pub const ALL: Kinds = Kinds(u128::MAX);
    /// The kinds that the kernel writes, which may end in a sample_id trailer.
    pub const OF_KERNEL: Kinds = Kinds(u64::MAX as u128 - 1);
    /// Every kind with a name.
    pub const NAMED: Kinds = Kinds::of(RecordType::NAMED);

    /// Samples, and the user parts of their call chains.
    pub const SAMPLES: Kinds = query!(event: Event::Sample | Event::Chain);
    /// Records of one event, which are meaningless without it.
    pub const OF_EVENT: Kinds = query!(event: Event::Sample | Event::Other);
    /// Context switches.
    pub const SWITCHES: Kinds = query!(event: Event::Switch);
    /// Numbers of lost records or samples.
    pub const LOST: Kinds = query!(event: Event::Lost);

    /// The kinds whose own fields begin with a pid.
    pub const NAMING_PID: Kinds = query!(names: Names::Pid | Names::Task);
    /// The kinds that name a thread, too.
    pub const NAMING_TASK: Kinds = query!(names: Names::Task);

    /// Mappings of processes and of the kernel.
    pub const MAPPINGS: Kinds = query!(changes: Changes::Map);
    /// Mappings, and code made by the kernel at run time.
    pub const CODE: Kinds = query!(changes: Changes::Map | Changes::Kernel);
    /// Kinds that change the address space of a process.
    pub const SPACES: Kinds = query!(changes: Changes::Map | Changes::Task);
    /// Kinds that begin, name or end a task.
    pub const TASKS: Kinds = query!(changes: Changes::Task | Changes::End);

    /// The kinds with the path of a file.
    pub const PATHS: Kinds = query!(text: Text::Path);
    /// The kinds whose fields include texts or bytes.
    pub const TEXTS: Kinds = query!(text: Text::Path | Text::Yes);

    /// The kinds that describe a state, so that a repeated record adds nothing.
    pub const STATES: Kinds = query!(again: Again::State | Again::Once);
    /// The kinds that should occur once: perf uses the first record, and reports an error for others.
    pub const ONCE: Kinds = query!(again: Again::Once);

    /// The kinds with AUX data or its description.
    pub const AUX: Kinds = query!(aux: Aux::Kernel | Aux::Tool | Aux::Error);
    /// The kinds of [`Kinds::AUX`] that are meaningless once the data is decoded.
    pub const DECODED_AUX: Kinds = query!(aux: Aux::Kernel | Aux::Tool);
    /// The kinds of [`Kinds::AUX`] that the kernel writes, each with the id of its event.
    pub const AUX_OF_KERNEL: Kinds = query!(aux: Aux::Kernel);

    /// The kinds of pipe data with contents of a file's header.
    pub const HEADER: Kinds = query!(form: Form::Front | Form::Body);
    /// The kinds of [`Kinds::HEADER`] that have another meaning among the records of a file.
    pub const HEADER_FRONT: Kinds = query!(form: Form::Front);
    /// The kinds with parts of a zstd stream of records.
    pub const COMPRESSED: Kinds = query!(form: Form::Stream);

    /// The set of these kinds.
    pub const fn of(kinds: &[RecordType]) -> Kinds {
        let (mut set, mut at) = (Kinds::NONE, 0);
        while at < kinds.len() {
            set = set.and(kinds[at]);
            at += 1;
        }
        set
    }

    pub(crate) fn bits(self) -> u128 {
        self.0
    }

    /// The set of the kinds whose number's bit is set. The last bit stands for all kinds from 127 on.
    pub(crate) fn from_bits(bits: u128) -> Kinds {
        Kinds(bits)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn intersection(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// The set with this kind, too.
    #[must_use]
    pub const fn and(self, kind: RecordType) -> Kinds {
        Kinds(self.0 | Self::bit(kind.0))
    }

    /// The set without the kinds of the other one.
    #[must_use]
    pub const fn minus(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    /// The set without this kind (and, from 127 on, without all kinds that share its bit).
    #[must_use]
    pub const fn without(self, kind: RecordType) -> Kinds {
        Kinds(self.0 & !Self::bit(kind.0))
    }

    /// True if the set contains this kind.
    #[inline]
    pub fn contains(self, kind: RecordType) -> bool {
        self.0 & Self::bit(kind.0) != 0
    }

    /// True if both sets contain a common kind.
    #[inline]
    pub fn intersects(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    /// True if the set contains every kind of the other one.
    pub const fn covers(self, other: Kinds) -> bool {
        other.minus(self).0 == 0
    }

    /// The names of the kinds that have one.
    pub fn names(self) -> Vec<&'static str> {
        RecordType::NAMED.iter().filter(|&&kind| self.contains(kind)).filter_map(|kind| kind.name()).collect()
    }

    /// True if the set contains no kind.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds the kind with this number.
    #[inline]
    pub fn insert(&mut self, kind: RecordType) {
        *self = self.and(kind);
    }

    #[inline]
    const fn bit(kind: u32) -> u128 {
        1 << if kind < 127 { kind } else { 127 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_kinds_are_numbers() {
        for &kind in RecordType::NAMED {
            assert_eq!(RecordType::parse(kind.name().unwrap()), Some(kind));
        }
        assert_eq!(RecordType::parse("perf_record_mmap2"), Some(RecordType::MMAP2));
        assert_eq!(RecordType::parse("4000"), Some(RecordType(4000)));
        assert_eq!(RecordType::parse("nonsense"), None);
        assert_eq!(RecordType(4000).to_string(), "unknown (4000)");
        assert_eq!(Feature::BUILD_ID.to_string(), "BUILD_ID (2)");
    }

    #[test]
    fn large_kinds_share_a_bit() {
        let set = Kinds::of(&[RecordType(4000)]);
        assert!(set.contains(RecordType(u32::MAX)));
        assert!(!set.contains(RecordType::SAMPLE));
        assert!(Kinds::ALL.contains(RecordType(0)));
    }
}
