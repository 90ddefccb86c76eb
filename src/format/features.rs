//! Decodes every feature section that perf is known to write, and encodes those that passes change. Damage
//! and unknown fields are noted; no length or count is trusted.
//!
//! To add a feature: a line in `kinds.rs`, an arm in `read`, a section in `features/tests.rs`.

mod bpf;
mod build_id;
mod groups;
mod initial_maps;
mod numbered;
mod repaired;
mod section;
mod simpleperf;
mod stack_tables;
mod stored_files;
#[cfg(test)]
mod tests;
mod tracing_data;

pub use bpf::{BpfFunction, bpf_functions};
pub use build_id::{BuildIds, NamedIds, trimmed_id};
pub use groups::{GroupDesc, grouped_events, read_group_desc, write_group_desc};
pub use initial_maps::{InitialMaps, initial_maps};
pub use numbered::{ListedBy, is_probe_pmu, numbered_entries, pmu_names, write_numbered};
pub use repaired::{Repaired, meaningless, repair};
pub(crate) use section::put_str;
use section::{Int, Section};
pub(crate) use simpleperf::meta_info;
pub use stack_tables::{StackTables, united_stack_tables};
pub use stored_files::{StoredFile, StoredSymbol, stored_files};
use tracing_data::MAGIC;
pub use tracing_data::TracingData;

use std::collections::HashMap;

use crate::decode::{attr_tail, decode_attr};
use crate::record::build_id::BUILD_ID_SIZE_VALID;
use crate::tracepoint::TraceFormat;
use crate::value::bytes_of;
use crate::{ATTR_SIZE_MIN, Decoded, Endian, FaultCode, Feature, RecordType, Value, until_nul};

const CPUS_MAX: u32 = 1 << 20;

/// The parts of other sections that a section needs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeatureContext {
    /// The NRCPUS section, without which the lengths in CPU_TOPOLOGY and CPU_DOMAIN_INFO are unknown.
    pub cpus: Option<NrCpus>,
}

/// Decodes a feature section or the equal payload of a HEADER_FEATURE. An unknown feature yields its `bytes`.
///
/// Do not pass a HEADER_FEATURE record without payload: it marks the end of the features. Its number is the
/// first one unknown to the perf that wrote it (30 for 5.10, 32 for 6.1 and 6.12) and may be known by now.
///
/// Oddities: `section-empty`, `section-short`, `section-rest` (bytes other than zero follow),
/// `version-unknown`, `string-unterminated`, `nrcpus-missing`, `nrcpus-range`, `bitmap-size`,
/// `build-id-size`, `build-id-type`, `build-id-without-pid`, `tracing-magic`, `attr-size`. Undecoded bytes
/// are in `rest`.
pub fn decode_feature<'a>(
    feature: Feature,
    payload: &'a [u8],
    endian: Endian,
    context: FeatureContext,
) -> Decoded<'a> {
    let mut section = Section::new(payload, endian);
    let done = read(feature, &mut section, context);
    section.finish(done)
}

/// Layouts: tools/perf/util/header.c, the `write_*` and `process_*` functions. STR is a u32 length and that
/// many bytes; STRLIST is a u32 count and that many STR; a list is a u32 count and its items unless another
/// width is given. Nothing is aligned.
fn read<'a>(feature: Feature, s: &mut Section<'a>, context: FeatureContext) -> Option<()> {
    match feature {
        Feature::TRACING_DATA => tracing_data(s, &mut Vec::new()),
        Feature::BUILD_ID => build_ids(s),
        Feature::HOSTNAME
        | Feature::OSRELEASE
        | Feature::VERSION
        | Feature::ARCH
        | Feature::CPUDESC
        | Feature::CPUID => s.text("text").map(drop),
        Feature::NRCPUS => {
            let cpus = NrCpus::take(s)?;
            if cpus.online > cpus.available || cpus.available > CPUS_MAX {
                s.add_issue(
                    FaultCode::NrcpusRange,
                    format!("{} CPUs online of {}", cpus.online, cpus.available),
                );
            }
            Some(())
        }
        Feature::TOTAL_MEM => s.number::<u64>("kb").map(drop),
        Feature::CMDLINE => s.strings("arguments"),
        Feature::EVENT_DESC => event_desc(s).map(drop),
        Feature::CPU_TOPOLOGY => cpu_topology(s, context),
        Feature::NUMA_TOPOLOGY => s.counted("nodes", 24, |s| {
            s.number::<u32>("node")?;
            s.number::<u64>("total_kb")?;
            s.number::<u64>("free_kb")?;
            s.text("cpus")
        }),
        Feature::BRANCH_STACK | Feature::STAT => Some(()),
        Feature::PMU_MAPPINGS => s.counted("pmus", 8, |s| {
            s.number::<u32>("type")?;
            s.text("name")
        }),
        Feature::GROUP_DESC => groups::group_desc(s).map(drop),
        Feature::AUXTRACE => auxtrace_index(s).map(drop),
        Feature::META_INFO => simpleperf::meta_infos(s),
        Feature::FILE => simpleperf::old_files(s),
        Feature::FILE2 => simpleperf::files(s),
        Feature::HIPERF_FILES_SYMBOL => stored_files::hiperf_files(s),
        Feature::CACHE => {
            s.version::<u32>(1)?;
            s.counted("caches", 28, |s| {
                s.number::<u32>("level")?;
                s.number::<u32>("line_size")?;
                s.number::<u32>("sets")?;
                s.number::<u32>("ways")?;
                s.text("type")?;
                s.text("size")?;
                s.text("cpus")
            })
        }
        Feature::SAMPLE_TIME => SampleTime::take(s).map(drop),
        Feature::MEM_TOPOLOGY => {
            s.version::<u64>(1)?;
            s.hex::<u64>("block_size")?;
            let nodes = s.int::<u64>("number of nodes")?;
            s.list("nodes", nodes, 24, |s| {
                s.number::<u64>("node")?;
                let bits = s.number::<u64>("blocks")?;
                let again = s.int::<u64>("size of the bitmap")?;
                if again != bits {
                    s.add_issue(
                        FaultCode::BitmapSize,
                        format!("a node of {bits} memory blocks has a bitmap of {again} bits"),
                    );
                }
                s.list("bitmap", again.div_ceil(64), 8, |s| s.hex::<u64>(""))
            })
            .map(drop)
        }
        Feature::CLOCKID => s.number::<u64>("resolution_ns").map(drop),
        // 0: one file with other files next to it; 1: one file for each ring buffer.
        Feature::DIR_FORMAT => {
            let version = s.number::<u64>("version")?;
            if version > 1 {
                s.add_issue(FaultCode::VersionUnknown, format!("version {version}, only 0 and 1 are known"));
            }
            Some(())
        }
        Feature::BPF_PROG_INFO => s.counted("programs", 16, bpf_program),
        Feature::BPF_BTF => s.counted("btfs", 8, |s| {
            s.number::<u32>("id")?;
            let size = s.number::<u32>("size")?;
            s.take("the type information", size)
        }),
        Feature::COMPRESSED => Compressed::take(s).map(drop),
        Feature::CPU_PMU_CAPS => capabilities(s),
        Feature::CLOCK_DATA => ClockData::take(s).map(drop),
        Feature::HYBRID_TOPOLOGY => s.counted("pmus", 8, |s| {
            s.text("name")?;
            s.text("cpus")
        }),
        Feature::PMU_CAPS => s.counted("pmus", 8, |s| {
            capabilities(s)?;
            s.text("name")
        }),
        Feature::CPU_DOMAIN_INFO => cpu_domains(s, context),
        Feature::E_MACHINE => {
            s.number::<u32>("e_machine")?;
            s.hex::<u32>("e_flags").map(drop)
        }
        Feature::CLN_SIZE => s.number::<u32>("size").map(drop),
        _ => {
            let bytes = s.take("bytes", s.left() as u64)?;
            s.note("bytes", Value::Bytes(bytes));
            Some(())
        }
    }
}

fn capabilities(s: &mut Section<'_>) -> Option<()> {
    s.counted("capabilities", 8, |s| {
        s.text("name")?;
        s.text("value")
    })
}

/// Decodes the oldest fields of the info of a BPF program, and the functions it was compiled to.
fn bpf_program(s: &mut Section<'_>) -> Option<()> {
    let info_size = s.number::<u32>("info_size")?;
    let data_size = s.number::<u32>("data_size")?;
    let arrays = s.hex::<u64>("arrays")?;
    let endian = s.endian();
    let info = s.take("the info of the program", info_size)?;
    for (at, name) in [(0, "type"), (4, "id")] {
        if let Some(value) = endian.u32(info, at) {
            s.note(name, Value::Number(value.into()));
        }
    }
    if let Some(tag) = info.get(8..16) {
        s.note("tag", Value::Bytes(tag));
    }
    if let Some(name) = info.get(64..80) {
        s.note("name", Value::Text(until_nul(name)));
    }
    let data = s.take("the data of the program", data_size)?;
    let functions = bpf::Program { arrays, info, data, endian }.functions().map(|function| {
        let mut fields = vec![("addr", Value::Hex(function.address))];
        fields.extend(function.size.map(|size| ("size", Value::Number(size.into()))));
        fields.extend(function.tag.map(|tag| ("tag", Value::Bytes(tag))));
        Value::Map(fields)
    });
    let functions: Vec<_> = functions.collect();
    if !functions.is_empty() {
        s.note("functions", Value::List(functions));
    }
    Some(())
}

/// STRLIST sets of CPUs in one package, STRLIST sets of threads of one core; newer perfs add {u32 core, u32
/// package} for each available CPU, and then STRLIST sets of CPUs on one die and a u32 die for each available
/// CPU. -1 is an id that the machine did not report.
fn cpu_topology(s: &mut Section<'_>, context: FeatureContext) -> Option<()> {
    s.strings("packages")?;
    s.strings("threads")?;
    if s.left() == 0 {
        return Some(());
    }
    let Some(cpus) = context.cpus else {
        s.add_issue(FaultCode::NrcpusMissing, "without NRCPUS the number of CPUs described is unknown");
        return None;
    };
    s.list("cpus", cpus.available, 8, |s| {
        s.signed("core")?;
        s.signed("package")
    })?;
    if s.left() == 0 {
        return Some(());
    }
    s.strings("dies")?;
    s.list("die_of_cpu", cpus.available, 4, |s| s.signed("")).map(drop)
}

/// u32 version of /proc/schedstat, u32 largest number of domains of a CPU, then for each online CPU {u32 cpu,
/// list of {u32 domain, STR name (from version 17 on), STR mask, STR list of CPUs}}.
fn cpu_domains(s: &mut Section<'_>, context: FeatureContext) -> Option<()> {
    let version = s.number::<u32>("schedstat_version")?;
    s.number::<u32>("domains_max")?;
    let Some(cpus) = context.cpus else {
        s.add_issue(FaultCode::NrcpusMissing, "without NRCPUS the number of CPUs described is unknown");
        return None;
    };
    s.list("cpus", cpus.online, 8, |s| {
        s.number::<u32>("cpu")?;
        s.counted("domains", 12, |s| {
            s.number::<u32>("domain")?;
            if version >= 17 {
                s.text("name")?;
            }
            s.text("mask")?;
            s.text("cpus")
        })
    })
    .map(drop)
}

fn build_ids(s: &mut Section<'_>) -> Option<()> {
    let mut ids = BuildIds::new(s.rest(), s.endian());
    let without_pid = ids.without_pid();
    if without_pid {
        s.add_issue(FaultCode::BuildIdWithoutPid, "made by perf before 2.6.34");
    }
    let endian = s.endian();
    let count = ids.clone().count() as u64;
    s.list("dsos", count, 1, |s| {
        let (bytes, entry) = ids.split()?;
        let (kind, length) = (endian.u32(bytes, 0)?, bytes.get(32).copied().unwrap_or(0));
        if kind != 0 && kind != RecordType::HEADER_BUILD_ID.0 {
            s.add_issue(FaultCode::BuildIdType, format!("an entry has type {kind}"));
        }
        if entry.misc & BUILD_ID_SIZE_VALID != 0 && !(1..=20).contains(&length) {
            s.add_issue(FaultCode::BuildIdSize, format!("an id of {}", bytes_of(length)));
        }
        s.note("misc", Value::Hex(entry.misc.into()));
        s.note("pid", Value::Signed(entry.pid.into()));
        s.note("id", Value::Bytes(entry.id));
        s.note("filename", Value::Text(entry.filename));
        s.take("entry", bytes.len() as u64)?;
        entry.gaps(bytes.len(), without_pid).into_iter().for_each(|gap| s.add_gap(gap, bytes.len()));
        Some(())
    })?;
    if s.rest().iter().all(|&b| b == 0) {
        return Some(());
    }
    s.short("an entry does not fit in the bytes left")
}

/// `struct tracing_data` of trace-cmd: bytes 23 8 68 "tracing", version and NUL, u8 1 if the rest is
/// big-endian, u8 size of a long, u32 page size, then texts with their u64 length: "header_page" NUL text,
/// "header_event" NUL text, a list of ftrace formats, a list of {system NUL, list of formats}, kallsyms and
/// printk formats (u32 length), and since version 0.6 command names. Texts are counted, not noted.
fn tracing_data<'a>(s: &mut Section<'a>, formats: &mut Vec<TraceFormat<'a>>) -> Option<()> {
    if !s.rest().starts_with(MAGIC) {
        s.add_issue(FaultCode::TracingMagic, "does not begin with 23 8 68 \"tracing\"");
        return None;
    }
    s.take("magic", MAGIC.len() as u64)?;
    let version = s.c_str("version")?;
    let big = s.take("byte order", 1u64)?[0] != 0;
    s.note("byte_order", Value::Name(if big { "big" } else { "little" }.into()));
    s.set_endian(if big { Endian::Big } else { Endian::Little });
    let long = s.take("size of a long", 1u64)?[0];
    s.note("long_size", Value::Number(long.into()));
    s.number::<u32>("page_size")?;
    for (title, name) in [("header_page\0", "header_page_size"), ("header_event\0", "header_event_size")] {
        if !s.rest().starts_with(title.as_bytes()) {
            s.add_issue(
                FaultCode::TracingMagic,
                format!("`{}` is missing where it is expected", title.trim_end_matches('\0')),
            );
            return None;
        }
        s.take(title, title.len() as u64)?;
        counted_text::<u64>(s, name)?;
    }
    s.counted("ftrace", 8, |s| trace_format(s, b"ftrace", formats))?;
    s.counted("systems", 5, |s| {
        let system = s.c_str("name")?;
        s.counted("events", 8, |s| trace_format(s, system, formats))
    })?;
    counted_text::<u32>(s, "kallsyms_size")?;
    counted_text::<u32>(s, "printk_size")?;
    let mut numbers = version.split(|&b| b == b'.').map(|n| std::str::from_utf8(n).ok()?.parse::<u32>().ok());
    if (numbers.next().flatten(), numbers.next().flatten()) >= (Some(0), Some(6)) {
        counted_text::<u64>(s, "saved_cmdlines_size")?;
    }
    Some(())
}

/// A text preceded by its length; only the length is noted.
fn counted_text<'a, T: Int>(s: &mut Section<'a>, name: &'static str) -> Option<&'a [u8]> {
    let size = s.number::<T>(name)?;
    s.take(name, size)
}

/// A file `format` of tracefs. Notes the `attr.config` of its events, and the name.
fn trace_format<'a>(s: &mut Section<'a>, system: &'a [u8], formats: &mut Vec<TraceFormat<'a>>) -> Option<()> {
    let text = counted_text::<u64>(s, "size")?;
    if let Some(format) = TraceFormat::parse(system, text) {
        s.note("name", Value::Text(format.name));
        if let Some(id) = format.id {
            s.note("id", Value::Number(id));
        }
        formats.push(format);
    }
    Some(())
}

/// The formats in a TRACING_DATA section, which contains its own byte order, up to the first damage.
///
/// ```
/// use perfx_format::Endian;
/// use perfx_format::features::trace_formats;
///
/// assert!(trace_formats(b"not tracing data", Endian::Little).is_empty());
/// ```
pub fn trace_formats(section: &[u8], endian: Endian) -> Vec<TraceFormat<'_>> {
    let mut formats = Vec::new();
    let _ = tracing_data(&mut Section::new(section, endian), &mut formats);
    formats
}

/// Formats by the `attr.config` of their events. If several have the same id, the first one counts.
pub fn formats_by_id<'a>(formats: &[TraceFormat<'a>]) -> HashMap<u64, TraceFormat<'a>> {
    formats.iter().rev().filter_map(|format| Some((format.id?, *format))).collect()
}

/// The text of a HOSTNAME, OSRELEASE, VERSION, ARCH, CPUDESC or CPUID section.
pub fn read_str(section: &[u8], endian: Endian) -> Option<&[u8]> {
    Section::new(section, endian).text("text")
}

/// The arguments of a CMDLINE section, the program first.
pub fn read_cmdline(section: &[u8], endian: Endian) -> Option<Vec<&[u8]>> {
    let mut section = Section::new(section, endian);
    let count = section.int::<u32>("nr")?;
    section.list("arguments", count, 4, |section| section.text(""))
}

/// The text of such a section if it lacks the NUL at its end.
pub fn read_unterminated_str(section: &[u8], endian: Endian) -> Option<&[u8]> {
    read_str(section, endian).filter(|text| section.len() == size_of::<u32>() + text.len())
}

/// Encodes this text, up to its first NUL, as such a section.
pub fn write_str(text: &[u8], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    put_str(text, endian, &mut out);
    out
}

/// An event of the EVENT_DESC section, with its name, for the file's attr at the same position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventDesc<'a> {
    /// `struct perf_event_attr` as recorded.
    pub attr: &'a [u8],
    /// The name from the command line.
    pub name: &'a [u8],
    /// The ids of its counters.
    pub ids: Vec<u64>,
}

/// The events of an EVENT_DESC section; `None` when it is damaged.
pub fn read_event_desc(section: &[u8], endian: Endian) -> Option<Vec<EventDesc<'_>>> {
    event_desc(&mut Section::new(section, endian))
}

/// Encodes an EVENT_DESC section: u32 number of events, u32 `attr_size`, then for each event its attr, u32
/// number of ids, STR name, u64 ids. All attrs take `attr_size` bytes; shorter ones are padded with zeros.
/// `None` if an attr is longer.
pub fn write_event_desc(attr_size: u32, events: &[EventDesc<'_>], endian: Endian) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    u32::try_from(events.len()).ok()?.put(endian, &mut out);
    attr_size.put(endian, &mut out);
    for event in events {
        let end = out.len() + attr_size as usize;
        if event.attr.len() > attr_size as usize {
            return None;
        }
        out.extend(event.attr);
        out.resize(end, 0);
        u32::try_from(event.ids.len()).ok()?.put(endian, &mut out);
        put_str(event.name, endian, &mut out);
        event.ids.iter().for_each(|id| id.put(endian, &mut out));
    }
    Some(out)
}

fn event_desc<'a>(s: &mut Section<'a>) -> Option<Vec<EventDesc<'a>>> {
    let count = s.int::<u32>("number of events")?;
    let attr_size = s.number::<u32>("attr_size")?;
    if (attr_size as usize) < ATTR_SIZE_MIN {
        s.add_issue(
            FaultCode::AttrSize,
            format!("attrs of {}; the smallest is {ATTR_SIZE_MIN}", bytes_of(attr_size)),
        );
        return None;
    }
    s.list("events", count, (attr_size as usize).saturating_add(8), |s| {
        let attr = s.take("attr", attr_size)?;
        s.note("attr", Value::Map(decode_attr(attr, s.endian())));
        s.add_gap(attr_tail(attr, s.endian()), attr.len());
        let ids = s.int::<u32>("number of ids")?;
        let name = s.text("name")?;
        let ids = s.list("ids", ids, 8, |s| s.number::<u64>(""))?;
        Some(EventDesc { attr, name, ids })
    })
}

/// An entry of the AUXTRACE section: the place of an AUXTRACE record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuxtraceEntry {
    /// Offset of the record's header in the file, bytes.
    pub offset: u64,
    /// The record's `header.size`, bytes, without the payload.
    pub size: u64,
}

/// The entries of an AUXTRACE section, in file order; `None` when it is damaged.
pub fn read_auxtrace_index(section: &[u8], endian: Endian) -> Option<Vec<AuxtraceEntry>> {
    auxtrace_index(&mut Section::new(section, endian))
}

/// Encodes an AUXTRACE section: u64 number of entries, then for each u64 offset, u64 size.
pub fn write_auxtrace_index(entries: &[AuxtraceEntry], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    (entries.len() as u64).put(endian, &mut out);
    for entry in entries {
        entry.offset.put(endian, &mut out);
        entry.size.put(endian, &mut out);
    }
    out
}

/// The size of an entry, and that of the header of an AUXTRACE record, bytes.
const AUXTRACE_ENTRY: usize = 16;
const AUXTRACE_SIZE: u64 = 48;

/// True for simpleperf's index of AUXTRACE records, which has no number of entries. perf can't read that.
pub fn lacks_count(section: &[u8], endian: Endian) -> bool {
    let (entries, rest) = section.as_chunks::<AUXTRACE_ENTRY>();
    rest.is_empty()
        && !entries.is_empty()
        && entries.iter().all(|entry| endian.u64(entry, 8) == Some(AUXTRACE_SIZE))
}

fn auxtrace_index(s: &mut Section<'_>) -> Option<Vec<AuxtraceEntry>> {
    let count = match lacks_count(s.rest(), s.endian()) {
        true => (s.left() / AUXTRACE_ENTRY) as u64,
        false => s.int::<u64>("number of entries")?,
    };
    s.list("entries", count, AUXTRACE_ENTRY, |s| {
        Some(AuxtraceEntry { offset: s.hex("offset")?, size: s.number("size")? })
    })
}

/// Sections that consist of integers, preceded by a u32 version if one is given.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident $(version $version:literal)? { $($(#[$about:meta])* $field:ident: $int:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name { $($(#[$about])* pub $field: $int,)* }

        impl $name {
            /// Decodes the section; `None` if it is too short, or of an unknown version.
            pub fn read(section: &[u8], endian: Endian) -> Option<$name> {
                $name::take(&mut Section::new(section, endian))
            }

            /// The section's bytes.
            pub fn write(&self, endian: Endian) -> Vec<u8> {
                let mut out = Vec::new();
                $(Int::put($version as u32, endian, &mut out);)?
                $(self.$field.put(endian, &mut out);)*
                out
            }

            fn take(s: &mut Section<'_>) -> Option<$name> {
                $(s.version::<u32>($version)?;)?
                Some($name { $($field: s.number(stringify!($field))?,)* })
            }
        }
    )*};
}

impl SampleTime {
    /// The times of the first and the last sample in the file, ns; the last may be the earlier one. `None` if
    /// they are not times: perf writes 0 if it did not read the samples and the largest number if these have
    /// no time, and no clock is past 2⁶³ ns, 292 years.
    pub fn times(&self) -> Option<(u64, u64)> {
        let SampleTime { first_ns, last_ns } = *self;
        (last_ns != 0 && i64::try_from(first_ns.max(last_ns)).is_ok()).then_some((first_ns, last_ns))
    }

    /// True for the numbers that perf writes in place of unknown times.
    pub fn says_none(&self) -> bool {
        *self == SampleTime::default() || [self.first_ns, self.last_ns].contains(&u64::MAX)
    }
}

numbers! {
    /// The NRCPUS section.
    NrCpus {
        /// The number of CPUs that the machine can have.
        available: u32,
        /// The number of CPUs online.
        online: u32,
    }
    /// The SAMPLE_TIME section.
    SampleTime {
        /// Time of the first sample, ns.
        first_ns: u64,
        /// Time of the last sample, ns.
        last_ns: u64,
    }
    /// The COMPRESSED section. `perf stat record` writes one that is all zeros.
    Compressed version 0 {
        /// The compression method; 1 is zstd.
        method: u32,
        /// Compression level.
        level: u32,
        /// Ratio of uncompressed to compressed bytes, rounded.
        ratio: u32,
        /// Size of the buffer into which perf decompresses one record, bytes.
        mmap_len: u32,
    }
    /// The CLOCK_DATA section: two clocks read at the same instant.
    ClockData version 1 {
        /// The clock of the recording, as for clock_gettime(2).
        clockid: u32,
        /// Wall-clock time, ns since 1970.
        wall_ns: u64,
        /// Time of the recording's clock, ns.
        clock_ns: u64,
    }
}
