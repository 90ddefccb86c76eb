//! The faults that reading finds, each with the short name that `perfx doctor` shows.

use std::fmt;

macro_rules! fault_codes {
    ($($code:ident $name:literal $about:literal;)*) => {
        /// A fault of a recording, or a deviation of one record or section from the format.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum FaultCode {
            $(#[doc = $about] $code,)*
        }

        impl FaultCode {
            /// All of them.
            pub const ALL: &[FaultCode] = &[$(FaultCode::$code),*];

            /// Its name, which never changes.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(FaultCode::$code => $name,)*
                }
            }
        }
    };
}

fault_codes! {
    Magic "magic" "Bad magic: not a perf.data file.";
    PerfMessage "perf-message" "Text before or after the records: standard error went into the pipe.";
    HeaderSize "header-size" "Unknown header size.";
    HeaderCut "header-cut" "The file ends inside the header.";
    Directory "directory" "Not a directory written by perf record, or one of a newer version.";
    DirectoryPart "directory-part" "A data file of a directory is missing.";
    SecondRecording "second-recording" "Another recording begins where a record should (cat of several): recover keeps the first.";
    Unfinished "unfinished" "perf record was killed: data.size is 0, and no feature follows the records.";
    DataCut "data-cut" "The data section reaches past the end of the file.";
    SectionsOverlap "sections-overlap" "Two sections share bytes.";
    InPlaceInterrupted "in-place-interrupted" "A change in place was interrupted: perf misses some features until it is finished.";
    AttrsOutside "attrs-outside" "The attrs section reaches past the end of the file.";
    AttrsSize "attrs-size" "The size of the attrs section is not a multiple of the attrs' size.";
    AttrsMany "attrs-many" "More events than perf allows.";
    AttrSize "attr-size" "The size of an attr is wrong, or does not fit its record or section.";
    AttrBits "attr-bits" "Unknown bits in an attr; perf then loses the names of the events.";
    ReadWithoutId "read-without-id" "Samples have counters without their ids.";
    IdsOutside "ids-outside" "Ids outside the file, or a size of ids that is not a multiple of 8 bytes.";
    IdPosition "id-position" "Events store their id at different places in a record, so ids can't be read.";
    NoEvent "no-event" "A record before any event, or no event at all.";
    FeatureTableCut "feature-table-cut" "The file ends inside the feature table.";
    FeatureOutside "feature-outside" "The section of a feature reaches past the end of the file.";
    SectionShort "section-short" "The section of a feature is too short for its declared content.";
    SectionEmpty "section-empty" "The section of a feature is empty, but must have content.";
    SectionRest "section-rest" "Bytes follow the known part of a section.";
    VersionUnknown "version-unknown" "A section of an unknown version.";
    NrcpusMissing "nrcpus-missing" "CPU_TOPOLOGY or CPU_DOMAIN_INFO without NRCPUS, which gives their length.";
    NrcpusRange "nrcpus-range" "More CPUs online than available, or more than perf considers possible.";
    BitmapSize "bitmap-size" "A node of MEM_TOPOLOGY has a bitmap of the wrong size.";
    BuildIdType "build-id-type" "An entry of BUILD_ID has an unknown type.";
    BuildIdWithoutPid "build-id-without-pid" "BUILD_ID written by perf before 2.6.34.";
    TracingMagic "tracing-magic" "TRACING_DATA has a wrong magic.";
    RecordSize "record-size" "The size of a record can't be right, so nothing after it can be found.";
    Torn "torn" "A pipe or a compressed stream ends inside a record.";
    KindUnknown "kind-unknown" "Unknown kind of record.";
    SizeUnaligned "size-unaligned" "The size of a record is not a multiple of 8 (HEADER_BUILD_ID: perfx reindex repairs it, too).";
    PayloadUnaligned "payload-unaligned" "The size of the payload after a record is not a multiple of 8.";
    AttrMisc "attr-misc" "The misc of a HEADER_ATTR record is meaningless: old perfs did not set it.";
    CpumodeUnknown "cpumode-unknown" "Unknown cpumode.";
    TooSmall "too-small" "A field does not fit in its record.";
    CountTooLarge "count-too-large" "A record claims more items than it has room for.";
    StringUnterminated "string-unterminated" "A string without a terminating NUL.";
    Rest "rest" "Bytes follow the fields of a record.";
    TrailerMissing "trailer-missing" "A record lacks the sample_id that its event requires.";
    IdUnknown "id-unknown" "An id that no event has.";
    MmapBuildIdBit "mmap-build-id-bit" "An MMAP2 record claims a build-id, but has device and inode: a kernel bug while another recording asks for build-ids.";
    BuildIdSize "build-id-size" "A build-id of 0 or more than 20 bytes.";
    FeatureUnknown "feature-unknown" "Unknown feature.";
    AuxtraceType "auxtrace-type" "AUX data of an unknown type.";
    CpuMapType "cpu-map-type" "A CPU_MAP of an unknown form.";
    CpuMapRange "cpu-map-range" "A CPU_MAP whose last CPU is before the first.";
    UpdateType "update-type" "An EVENT_UPDATE of an unknown type.";
    SchedstatVersion "schedstat-version" "Scheduler statistics of an unknown version.";
    StackSize "stack-size" "The used part of a user stack is larger than the stack.";
    RegsAbi "regs-abi" "Registers of an unknown ABI.";
    ReadGroupEmpty "read-group-empty" "A sample with the counters of a group that has none.";
    BranchIndexMissing "branch-index-missing" "A branch stack without the hw_idx that its event requires.";
    BranchCountersMissing "branch-counters-missing" "A branch stack without the counters that an event of its group requires.";
    RawShort "raw-short" "A tracepoint without its data.";
    Zstd "zstd" "A zstd stream that can't be decompressed further.";
    ZstdContinued "zstd-continued" "A zstd stream that began in another file of perf record -z --switch-output: give all of them to perfx decompress --chain.";
    ZstdBomb "zstd-bomb" "A zstd stream expands to more than any perf writes.";
    Nested "nested" "A kind of record that can't be inside a compressed record.";
    CompressedSize "compressed-size" "A compressed record is empty, or its data_size is wrong: a bug of perf 6.16 to 7.1.";
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
