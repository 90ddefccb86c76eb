//! Lists every fault code in one line: its meaning, perf's reaction, and the command that repairs it.

use std::fmt;

/// The severity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingKind {
    /// Nothing is wrong, but some readers cannot read it.
    Note,
    /// The recording violates the format.
    Fault,
}

/// How perf reacts to a recording with the fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// Reads all of it.
    Reads,
    /// Reads everything except that record or section.
    Skips,
    /// Stops there, or shows wrong records from there on.
    Aborts,
    /// Does not open the recording.
    Refuses,
    /// Crashes, or never ends.
    Crashes,
    /// Different reactions, depending on the record.
    Varies,
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reaction::Reads => "reads it",
            Reaction::Skips => "skips it",
            Reaction::Aborts => "aborts",
            Reaction::Refuses => "refuses",
            Reaction::Crashes => "crashes",
            Reaction::Varies => "may fail",
        })
    }
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// The short name; it never changes.
    pub code: &'static str,
    /// The severity.
    pub kind: FindingKind,
    /// The reaction of perf 6.1. Perf 6.12 does the same, but reads attrs of 136 bytes, aborts at
    /// `branch-counters-missing` and reads `raw-short`; 5.10 refuses all files of 6.1(large attrs).
    pub perf_61: Reaction,
    /// The reaction of perf 7.3; 7.2 reacts alike. All were measured on the recordings of tests/data.
    pub perf_73: Reaction,
    /// The command that repairs the fault.
    pub repair: Option<&'static str>,
    /// A sentence that describes the fault.
    pub about: &'static str,
}

/// The code with this name, which must be in the table.
pub fn code(name: &str) -> &'static Code {
    CODES.iter().find(|code| code.code == name).unwrap_or(&UNLISTED)
}

/// A fault outside the table; there should be none.
static UNLISTED: Code = Code {
    code: "unlisted",
    kind: FindingKind::Fault,
    perf_61: Reaction::Varies,
    perf_73: Reaction::Varies,
    repair: None,
    about: "A fault missing from the list of codes",
};

macro_rules! codes {
    ($($code:literal $kind:ident $old:ident $new:ident $repair:expr, $about:literal;)*) => {
        &[$(Code {
            code: $code,
            kind: FindingKind::$kind,
            perf_61: Reaction::$old,
            perf_73: Reaction::$new,
            repair: $repair,
            about: $about,
        }),*]
    };
}

const REPAIR: Option<&str> = Some("repair");
const REPAIR_IN_PLACE: Option<&str> = Some("repair --in-place");
const REINDEX: Option<&str> = Some("reindex");
const RECOVER: Option<&str> = Some("recover");
const SORT: Option<&str> = Some("sort");
const COPY: Option<&str> = Some("copy");
const TO_PIPE: Option<&str> = Some("copy --to pipe");
const NORMALIZE: Option<&str> = Some("normalize --for perf-6.1");
const DECOMPRESS: Option<&str> = Some("decompress");

/// All codes by subject: front, attrs and events, features, records, samples, order, AUX data, compression.
pub static CODES: &[Code] = codes! {
    "magic" Fault Refuses Refuses None, "Bad magic: not a perf.data file";
    "perf-message" Fault Varies Varies RECOVER, "Text before or after the records: standard error went into the pipe";
    "header-size" Fault Refuses Refuses None, "Unknown header size";
    "header-cut" Fault Refuses Refuses None, "The file ends inside the header";
    "empty" Fault Reads Reads None, "Pipe data without an event or any other record; no perf would open it as a file";
    "directory" Fault Refuses Refuses None, "Not a directory written by perf record, or one of a newer version";
    "directory-part" Fault Reads Reads None, "A data file of a directory is missing";
    "second-recording" Fault Varies Varies RECOVER, "Another recording begins where a record should (cat of several): recover keeps the first";
    "unfinished" Fault Refuses Refuses RECOVER, "perf record was killed: data.size is 0, and no feature follows the records";
    "data-cut" Fault Varies Refuses RECOVER, "The data section reaches past the end of the file";
    "sections-overlap" Fault Varies Varies COPY, "Two sections share bytes";
    "in-place-interrupted" Fault Skips Skips REPAIR_IN_PLACE, "A change in place was interrupted: perf misses some features until it is finished";
    "trailing-bytes" Note Reads Reads None, "Bytes follow the last section";
    "hole" Note Reads Reads COPY, "Nonzero bytes outside all sections; a copy leaves them out";
    "version-1" Fault Refuses Refuses COPY, "Only perfx can detect the byte order of this version 1 file";

    "attrs-outside" Fault Refuses Refuses None, "The attrs section reaches past the end of the file";
    "attrs-size" Fault Varies Refuses COPY, "The size of the attrs section is not a multiple of the attrs' size";
    "attrs-many" Fault Refuses Refuses None, "More events than perf allows";
    "attr-size" Fault Varies Varies COPY, "The size of an attr is wrong, or does not fit its record or section";
    "attr-newer" Note Refuses Reads NORMALIZE, "An attr is larger than older versions of perf know: they refuse a file, but read pipe data";
    "attr-unknown" Note Refuses Refuses TO_PIPE, "An attr is larger than any perf knows: they refuse a file, but read pipe data";
    "attr-bits" Fault Reads Reads None, "Unknown bits in an attr; perf then loses the names of the events";
    "read-without-id" Fault Refuses Refuses None, "Samples have counters without their ids";
    "ids-outside" Fault Varies Refuses None, "Ids outside the file, or a size of ids that is not a multiple of 8 \
     bytes";
    "id-position" Fault Refuses Refuses None, "Events store their id at different places in a record, so ids can't \
     be read";
    "id-twice" Fault Reads Reads None, "Two events have the same id";
    "no-event" Fault Aborts Aborts None, "A record before any event, or no event at all";
    "tracing-data-missing" Fault Refuses Refuses None, "Tracepoints without feature TRACING_DATA";

    "feature-table-cut" Fault Reads Refuses RECOVER, "The file ends inside the feature table";
    "feature-outside" Fault Varies Refuses RECOVER, "The section of a feature reaches past the end of the file";
    "features-none" Fault Reads Refuses None, "A big-endian header with room for features, but without any";
    "section-short" Fault Varies Varies None, "The section of a feature is too short for its declared content";
    "section-empty" Fault Varies Refuses REPAIR, "The section of a feature is empty, but must have content";
    "section-rest" Fault Varies Varies None, "Bytes follow the known part of a section";
    "version-unknown" Fault Varies Varies None, "A section of an unknown version";
    "nrcpus-missing" Fault Reads Refuses None, "CPU_TOPOLOGY or CPU_DOMAIN_INFO without NRCPUS, which gives their \
     length";
    "nrcpus-range" Fault Reads Refuses None, "More CPUs online than available, or more than perf considers possible";
    "bitmap-size" Fault Reads Refuses None, "A node of MEM_TOPOLOGY has a bitmap of the wrong size";
    "build-id-type" Fault Reads Varies None, "An entry of BUILD_ID has an unknown type";
    "build-id-entry" Note Varies Varies REINDEX, "An entry of BUILD_ID that some perf refuses: its id is too long, \
     or its name is unterminated or too long; or bytes follow the entries";
    "build-id-without-pid" Note Reads Reads None, "BUILD_ID written by perf before 2.6.34";
    "tracing-magic" Fault Varies Refuses None, "TRACING_DATA has a wrong magic";
    "event-desc" Fault Reads Reads None, "EVENT_DESC does not agree with the attrs and their ids";
    "group-range" Fault Reads Refuses None, "A group of GROUP_DESC reaches past the last event";
    "sample-time" Fault Reads Reads REINDEX, "SAMPLE_TIME does not agree with the samples";
    "sample-time-none" Note Reads Reads None, "SAMPLE_TIME says that no sample has a time, as perf writes it with --no-timestamp";
    "dir-format" Fault Reads Refuses REPAIR, "DIR_FORMAT in a plain file: records may be in other files that are not here";
    "mmap-len" Fault Varies Refuses REPAIR, "mmap_len of feature COMPRESSED is 0 or not a multiple of 4096";
    "end-mark" Note Aborts Reads COPY, "The record that ends the features has a number that perf 6.1 and 6.12 \
     mistake for a feature";

    "record-size" Fault Aborts Varies RECOVER, "The size of a record can't be right, so nothing after it can be \
     found";
    "record-cut" Fault Varies Varies RECOVER, "A record reaches past the end of its data";
    "torn" Fault Varies Varies RECOVER, "A pipe or a compressed stream ends inside a record";
    "kind-unknown" Fault Aborts Varies None, "Unknown kind of record";
    "kind-newer" Note Aborts Reads None, "A kind of record that older versions of perf do not know (perfx decompress opens \
     COMPRESSED2, perfx filter --exclude-kind leaves out others)";
    "header-record" Fault Varies Varies None, "HEADER_ATTR, HEADER_EVENT_TYPE, HEADER_FEATURE or HEADER_TRACING_DATA among the records of a file";
    "payload-inside" Fault Aborts Aborts COPY, "HEADER_TRACING_DATA of pipe data holds its payload inside, as simpleperf writes it";
    "size-unaligned" Fault Reads Aborts REPAIR, "The size of a record is not a multiple of 8 (HEADER_BUILD_ID: perfx reindex repairs it, too)";
    "payload-unaligned" Fault Varies Varies None, "The size of the payload after a record is not a multiple of 8";
    "attr-misc" Note Reads Reads None, "The misc of a HEADER_ATTR record is meaningless: old perfs did not set it";
    "cpumode-unknown" Fault Reads Reads None, "Unknown cpumode";
    "too-small" Fault Varies Varies None, "A field does not fit in its record";
    "count-too-large" Fault Varies Varies None, "A record claims more items than it has room for";
    "string-unterminated" Fault Reads Varies REPAIR, "A string without a terminating NUL";
    "rest" Fault Reads Reads None, "Bytes follow the fields of a record";
    "trailer-missing" Fault Reads Varies None, "A record lacks the sample_id that its event requires";
    "id-unknown" Fault Varies Varies REPAIR, "An id that no event has";
    "mmap-build-id-bit" Fault Varies Reads REPAIR, "An MMAP2 record claims a build-id, but has device and inode: a \
     kernel bug while another recording asks for build-ids";
    "build-id-size" Fault Varies Varies None, "A build-id of 0 or more than 20 bytes";
    "feature-unknown" Note Reads Reads None, "Unknown feature";
    "auxtrace-type" Fault Aborts Aborts None, "AUX data of an unknown type";
    "cpu-map-type" Fault Varies Varies None, "A CPU_MAP of an unknown form";
    "cpu-map-range" Fault Aborts Aborts None, "A CPU_MAP whose last CPU is before the first";
    "update-type" Fault Reads Reads None, "An EVENT_UPDATE of an unknown type";
    "schedstat-version" Fault Aborts Varies None, "Scheduler statistics of an unknown version";

    "stack-size" Fault Aborts Aborts None, "The used part of a user stack is larger than the stack";
    "regs-abi" Fault Reads Reads None, "Registers of an unknown ABI";
    "read-group-empty" Fault Aborts Aborts None, "A sample with the counters of a group that has none";
    "branch-index-missing" Fault Aborts Aborts None, "A branch stack without the hw_idx that its event requires";
    "branch-counters-missing" Fault Reads Aborts None, "A branch stack without the counters that an event of its group requires";
    "raw-short" Fault Crashes Reads None, "A tracepoint without its data";
    "sample-cpu" Fault Reads Reads None, "A sample of a CPU that does not exist";
    "out-of-order" Fault Reads Reads SORT, "A record comes after its round was flushed, so perf shows it too late";

    "auxtrace-info-missing" Fault Aborts Aborts None, "AUX data without AUXTRACE_INFO before it";
    "auxtrace-queue" Fault Varies Varies None, "One queue of AUX data belongs to two threads or CPUs";
    "auxtrace-index" Fault Varies Varies REINDEX, "The AUXTRACE index does not match the AUXTRACE records";
    "auxtrace-index-uncounted" Fault Aborts Aborts REINDEX, "The AUXTRACE index lacks the number of its entries, as simpleperf writes it";
    "auxtrace-index-empty" Note Reads Reads REINDEX, "The AUXTRACE index is empty, so perf finds the records itself";
    "id-index" Note Varies Varies REINDEX, "ID_INDEX lacks ids of events, claims more entries than it has, or is \
     not between the events and AUXTRACE_INFO";

    "zstd" Fault Varies Aborts RECOVER, "A zstd stream that can't be decompressed further";
    "zstd-continued" Fault Aborts Aborts None, "A zstd stream that began in another file of perf \
     record -z --switch-output: give all of them to perfx decompress --chain";
    "zstd-bomb" Fault Aborts Aborts RECOVER, "A zstd stream expands to more than any perf writes";
    "nested" Fault Varies Varies RECOVER, "A kind of record that can't be inside a compressed record";
    "compressed-size" Fault Aborts Varies REPAIR, "A compressed record is empty, or its data_size is wrong: a bug \
     of perf 6.16 to 7.1";
    "compressed-empty" Fault Aborts Aborts DECOMPRESS, "A compressed record that expands to nothing";
    "compressed-frames" Fault Aborts Reads DECOMPRESS, "More than one zstd frame in a record";
    "compressed-large" Fault Varies Aborts DECOMPRESS, "A compressed record that expands to more than mmap_len";
    "compressed-feature" Fault Aborts Aborts DECOMPRESS, "Compressed records without feature COMPRESSED before them";
};
