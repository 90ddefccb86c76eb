//! Decodes records of every kind into named values, for all code that shows, counts or checks them. Oddities
//! are noted next to the fields, and decoding goes on as far as it can.
//!
//! To add a kind: a line in `kinds.rs`, an arm in `fields` and a record typed by hand in `decode/tests.rs`.

mod attr;
mod reader;
mod sample;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

pub use attr::{
    BRANCH_SAMPLE_TYPE_NAMES, attr_as_perf, attr_issues, attr_tail, clear_unknown, clock_name, decode_attr,
};
use reader::{Reader, any};
use sample::{callchain, counters, sample, sample_gaps, sample_id, sample_issues};

use crate::record::aux::AuxtraceInfo;
use crate::record::compressed::is_piece_size;
use crate::record::header_records::EVENT_TYPE_NAME;
use crate::record::namespaces::NamespaceKind;
use crate::record::stat_config::STAT_TAGS;
use crate::record::tracing_data::tracing_data;
use crate::sample::{Read, Sample, U64s};
use crate::value::bytes_of;
use crate::{
    ATTR_SIZE_MIN, Attr, Cursor, Decoded, Feature, HEADER_SIZE, Issue, Layout, Layouts, MMAP_BUILD_ID, Mmap,
    Record, RecordType, Value, bit_names, clear,
};

/// Decodes a record of any kind. Fields have the names and the order of the structs in
/// include/uapi/linux/perf_event.h and tools/lib/perf/include/perf/event.h. The counts of lists are left out,
/// the trailer is the map `sample_id`, bytes after the known fields are `rest`, and an unknown kind has only
/// `bytes`. `misc` is decoded by [`misc_names`]. The payload of an AUXTRACE or HEADER_TRACING_DATA record is
/// not decoded.
///
/// Oddities; most of them make some version of perf refuse or skip the record:
///
/// | code | |
/// |---|---|
/// | `kind-unknown` | the record kind is unknown |
/// | `size-unaligned` | `header.size` is not a multiple of 8, and the kind requires it |
/// | `payload-unaligned` | the length of the payload is not a multiple of 8 |
/// | `cpumode-unknown` | bits 0-2 of `misc` are 6 or 7 |
/// | `attr-misc` | the same in a HEADER_ATTR, in which old perfs never set `misc` |
/// | `too-small` | a field does not fit |
/// | `count-too-large` | items do not fit |
/// | `string-unterminated` | no NUL |
/// | `rest` | bytes other than zero follow the known fields; in a sample, any bytes |
/// | `trailer-missing` | no room for the sample_id trailer that the event's attr asks for |
/// | `no-event` | no event is known at this point |
/// | `id-position` | events keep their id at different places, so the event of this record is ambiguous |
/// | `id-unknown` | no event has this id |
/// | `mmap-build-id-bit` | bit 14 of an MMAP2's `misc` is set, but the record holds no build-id: see [`mmap_build_id`] |
/// | `build-id-size` | bit 15 of a HEADER_BUILD_ID's `misc` is set, but the size is not 1 to 20 |
/// | `attr-size`, `attr-bits`, `read-without-id` | see [`attr_issues`] |
/// | `feature-unknown`, `auxtrace-type`, `cpu-map-type`, `update-type`, `schedstat-version` | this number is unknown, and so is the layout of what follows it |
/// | `compressed-size` | a piece of a zstd stream is empty or larger than its record |
/// | `cpu-map-range` | the last CPU is before the first |
/// | `stack-size` | the used part of a user stack is larger than the stack |
/// | `regs-abi` | above 2 |
/// | `read-group-empty` | a group of counters without counters |
/// | `branch-index-missing` | `branch_sample_type` asks for `hw_idx`, but the branch stack has none |
/// | `branch-counters-missing` | this branch stack has no counters, but an event of its group asks for them, so the newest perf expects them |
/// | `raw-short` | a tracepoint without its data |
pub fn decode<'a>(record: &Record<'a>, layouts: &Layouts) -> Decoded<'a> {
    let mut decoded = match record.kind() {
        kind if kind.is_kernel() => kernel_record(record, layouts),
        _ => read(record, layouts, None, record.body()).0,
    };
    decoded.issues.extend(frame_issues(record));
    decoded
}

/// The oddities that [`decode`] would find. For samples, the bulk of a recording, this builds no values.
pub fn issues(record: &Record<'_>, layouts: &Layouts) -> Vec<Issue> {
    if record.kind() != RecordType::SAMPLE {
        return decode(record, layouts).issues;
    }
    let (layout, lost) = layout_of(record, layouts);
    let mut odd = Vec::new();
    if let Some(layout) = layout.filter(|layout| !layout.is_all_of(record)) {
        let (sample, short) = Sample::read(record, layout);
        sample_issues(record, layouts, layout, &sample, short, &mut odd);
    }
    odd.extend(lost.map(|(code, what)| Issue { code, what }));
    if !record.bytes().len().is_multiple_of(8) || record.cpumode() > 5 {
        odd.extend(frame_issues(record));
    }
    odd
}

/// The [gaps](Decoded::gaps) of a sample. For samples, the bulk of a recording, this builds no values.
pub fn gaps_of_sample(record: &Record<'_>, layout: &Layout) -> impl Iterator<Item = Range<usize>> + use<> {
    let (sample, _) = Sample::read(record, layout);
    sample_gaps(record, layout, &sample)
}

/// Fills gaps of a record with zeros in `bytes`, which are those of the record, perhaps with other changes of the same
/// size; they are copied only to be changed. Returns how many bytes were something else.
pub fn clear_gaps(gaps: impl IntoIterator<Item = Range<usize>>, bytes: &mut Cow<'_, [u8]>) -> u64 {
    let mut cleared = 0;
    for gap in gaps {
        let gap = gap.start + HEADER_SIZE..gap.end + HEADER_SIZE;
        if bytes.get(gap.clone()).is_some_and(|gap| gap.iter().any(|&byte| byte != 0)) {
            cleared += clear(bytes.to_mut(), gap);
        }
    }
    cleared
}

/// Oddities that do not depend on the kind.
fn frame_issues(record: &Record<'_>) -> impl Iterator<Item = Issue> {
    let (kind, size, payload) = (record.kind(), record.bytes().len(), record.payload().len());
    let oddity = |is_odd: bool, code, what: &dyn Fn() -> String| is_odd.then(|| Issue { code, what: what() });
    let size = oddity(!size.is_multiple_of(8) && !kind.may_be_unaligned(), "size-unaligned", &|| {
        format!("a size of {size} bytes is not a multiple of 8")
    });
    let payload = oddity(!payload.is_multiple_of(8), "payload-unaligned", &|| {
        format!("a payload of {} is not a multiple of 8", bytes_of(payload))
    });
    // perf before 3.x sent HEADER_ATTR with uninitialised memory in `misc`.
    let code = if kind == RecordType::HEADER_ATTR { "attr-misc" } else { "cpumode-unknown" };
    let cpumode = oddity(record.cpumode() > 5, code, &|| format!("cpumode {}", record.cpumode()));
    [size, payload, cpumode].into_iter().flatten()
}

/// Decodes a record of the kernel and finds its event.
fn kernel_record<'a>(record: &Record<'a>, layouts: &Layouts) -> Decoded<'a> {
    let (layout, lost) = layout_of(record, layouts);
    let mut decoded = match layout {
        Some(layout) if record.kind() == RecordType::SAMPLE => sample(record, layouts, layout),
        _ if record.kind() == RecordType::SAMPLE => {
            Decoded { fields: vec![("bytes", Value::Bytes(record.body()))], ..Decoded::default() }
        }
        Some(layout) if layout.trailer.size > 0 => match with_trailer(record, layouts, layout) {
            Some(decoded) => decoded,
            None => {
                let (mut decoded, _) = read(record, layouts, Some(layout), record.body());
                if decoded.issues.is_empty() {
                    decoded.add_issue(
                        "trailer-missing",
                        format!("no room for a sample_id of {} bytes", layout.trailer.size),
                    );
                }
                // The bytes in the place of the id are not an id.
                return decoded;
            }
        },
        _ => read(record, layouts, layout, record.body()).0,
    };
    if layout.is_none() {
        // The rest is the trailer, whose length is unknown.
        decoded.issues.retain(|odd| odd.code != "rest");
    }
    if let Some((code, what)) = lost {
        decoded.add_issue(code, what);
    }
    decoded
}

/// Splits the record into fields and trailer. `None` if there is no trailer: records from programs other than
/// the kernel may lack it, and then the fields fill the record, with less than 8 bytes of padding.
fn with_trailer<'a>(record: &Record<'a>, layouts: &Layouts, layout: &Layout) -> Option<Decoded<'a>> {
    let body = record.body();
    let (front, trailer) = body.split_at(body.len().checked_sub(layout.trailer.size.into())?);
    let (mut decoded, _) = read(record, layouts, Some(layout), front);
    if !decoded.issues.is_empty() {
        let (whole, left) = read(record, layouts, Some(layout), body);
        // An unknown id is suspicious, too: it may be the end of a string.
        let strange = layout.id(record).is_some_and(|id| !layouts.knows(id));
        if whole.issues.len() < decoded.issues.len() + usize::from(strange) && left < 8 {
            return None;
        }
    }
    let id = sample_id(trailer, layout, record.endian());
    decoded.push("sample_id", Value::Map(id.fields));
    decoded.add_gaps(front.len(), id.gaps);
    Some(decoded)
}

/// The layout of the record, and why the layout or the event is uncertain.
fn layout_of<'l>(
    record: &Record<'_>,
    layouts: &'l Layouts,
) -> (Option<&'l Layout>, Option<(&'static str, String)>) {
    let Some(first) = layouts.all().first() else {
        return (None, Some(("no-event", "there is no event before this record".to_owned())));
    };
    if let Some(layout) = layouts.layout_of(record) {
        let unknown = layout.id(record).filter(|&id| !layouts.knows(id));
        return (Some(layout), unknown.map(|id| ("id-unknown", format!("no event has the id {id}"))));
    }
    if layouts.check_ids().is_err() {
        return (None, Some(("id-position", "the events store their id at different places".to_owned())));
    }
    // All events have the id at the same place. Records that perf itself wrote have the layout of the first
    // event.
    let id = first.id(record).unwrap_or(0);
    let layout = (record.kind() != RecordType::SAMPLE).then_some(first);
    (layout, Some(("id-unknown", format!("no event has the id {id}"))))
}

/// Decodes the bytes between header and trailer, and returns how many of them are left over.
fn read<'a>(
    record: &Record<'a>,
    layouts: &Layouts,
    layout: Option<&Layout>,
    bytes: &'a [u8],
) -> (Decoded<'a>, usize) {
    let mut d = Reader::new(bytes, record.endian());
    let done = fields(record, layouts, layout, &mut d);
    d.finish(done)
}

/// Decodes the fields of every kind except SAMPLE, in the order of the record.
fn fields<'a>(
    record: &Record<'a>,
    layouts: &Layouts,
    layout: Option<&Layout>,
    d: &mut Reader<'a>,
) -> Option<()> {
    use RecordType as T;
    match record.kind() {
        T::MMAP => {
            mapping(d)?;
            d.text("filename")
        }
        T::LOST => {
            d.number::<u64>("id")?;
            d.number::<u64>("lost").map(drop)
        }
        T::COMM => {
            task(d)?;
            d.text("comm")
        }
        T::EXIT | T::FORK => {
            d.any::<u32>("pid")?;
            d.any::<u32>("ppid")?;
            d.any::<u32>("tid")?;
            d.any::<u32>("ptid")?;
            d.number::<u64>("time").map(drop)
        }
        T::THROTTLE | T::UNTHROTTLE => {
            d.number::<u64>("time")?;
            d.number::<u64>("id")?;
            d.number::<u64>("stream_id").map(drop)
        }
        T::READ => {
            task(d)?;
            let Some(layout) = layout else { return bytes(d) };
            let read = Read::take(d.cursor(), layout.read_format);
            let read = d.need("read", read)?;
            d.note_all(counters(&read));
            Some(())
        }
        T::MMAP2 => {
            mapping(d)?;
            mmap2_union(record, layouts, d)?;
            if Mmap::of(record).is_none_or(|mmap| mmap.prot_and_flags().is_some()) {
                d.bits::<u32>("prot", &[(0, "READ"), (1, "WRITE"), (2, "EXEC")])?;
                d.hex::<u32>("flags")?;
            }
            d.text("filename")
        }
        T::AUX => {
            d.hex::<u64>("aux_offset")?;
            d.number::<u64>("aux_size")?;
            let flags = d.int::<u64>("flags")?;
            let names = [(0, "TRUNCATED"), (1, "OVERWRITE"), (2, "PARTIAL"), (3, "COLLISION")];
            d.note("flags", Value::Name(bit_names(flags & !0xff00, &names)));
            // The meaning depends on the PMU.
            d.note("format", Value::Number(flags >> 8 & 0xff));
            Some(())
        }
        T::ITRACE_START => task(d),
        T::LOST_SAMPLES => d.number::<u64>("lost").map(drop),
        T::SWITCH | T::FINISHED_ROUND | T::FINISHED_INIT => Some(()),
        T::SWITCH_CPU_WIDE => {
            d.any::<u32>("next_prev_pid")?;
            d.any::<u32>("next_prev_tid").map(drop)
        }
        T::NAMESPACES => {
            task(d)?;
            let count = d.int::<u64>("nr_namespaces")?;
            let mut kinds = NamespaceKind::ALL.into_iter();
            d.list("link_info", count, 16, |d| {
                if let Some(kind) = kinds.next() {
                    d.note("ns", Value::Name(kind.name().into()));
                }
                d.number::<u64>("dev")?;
                d.number::<u64>("ino").map(drop)
            })
        }
        T::KSYMBOL => {
            d.hex::<u64>("addr")?;
            d.number::<u32>("len")?;
            d.named::<u16>("ksym_type", &[(0, "UNKNOWN"), (1, "BPF"), (2, "OOL")])?;
            d.bits::<u16>("flags", &[(0, "UNREGISTER")])?;
            d.text("name")
        }
        T::BPF_EVENT => {
            d.named::<u16>("type", &[(0, "UNKNOWN"), (1, "PROG_LOAD"), (2, "PROG_UNLOAD")])?;
            d.hex::<u16>("flags")?;
            d.number::<u32>("id")?;
            d.bytes("tag", 8).map(drop)
        }
        T::CGROUP => {
            d.number::<u64>("id")?;
            d.text("path")
        }
        T::TEXT_POKE => {
            d.hex::<u64>("addr")?;
            let old = d.number::<u16>("old_len")?;
            let new = d.number::<u16>("new_len")?;
            for (name, length) in [("old_bytes", old), ("new_bytes", new)] {
                if usize::from(length) > d.left() {
                    d.add_issue(
                        "count-too-large",
                        format!("`{name}` says {}, {} are left", bytes_of(length), d.left()),
                    );
                    return None;
                }
                d.bytes(name, length.into())?;
            }
            Some(())
        }
        T::AUX_OUTPUT_HW_ID => d.hex::<u64>("hw_id").map(drop),
        T::CALLCHAIN_DEFERRED => {
            d.hex::<u64>("cookie")?;
            let count = d.int::<u64>("nr")?;
            let all = d.left() / 8;
            let fitting = usize::try_from(count).unwrap_or(usize::MAX).min(all);
            let chain = U64s::new(d.take("ips", fitting * 8)?, d.endian());
            d.note("ips", callchain(chain));
            if count > fitting as u64 {
                d.add_issue(
                    "count-too-large",
                    format!("{count} items of `ips`, of which only {fitting} are there"),
                );
                return None;
            }
            Some(())
        }
        T::HEADER_ATTR => header_attr(d),
        T::HEADER_EVENT_TYPE => {
            d.hex::<u64>("event_id")?;
            // perf before 3.3 pads the name to 8 bytes instead of the 64 of the struct.
            d.field_text("name", d.left().min(EVENT_TYPE_NAME))
        }
        T::HEADER_TRACING_DATA => {
            d.number::<u32>("size")?;
            let inside = tracing_data(record).len();
            if record.payload().is_empty() && inside > 0 {
                let data = d.take("data", inside)?;
                d.note("data", Value::Bytes(data));
            }
            Some(())
        }
        T::HEADER_BUILD_ID => header_build_id(record, layouts, d),
        T::ID_INDEX => id_index(layouts, d),
        T::AUXTRACE_INFO => {
            let kind = d.named::<u32>("type", AuxtraceInfo::TYPES)?;
            if kind == 0 || kind as usize > AuxtraceInfo::TYPES.len() {
                d.add_issue("auxtrace-type", format!("unknown type {kind}"));
            }
            d.skip("reserved__", 4)?;
            let words = d.left() / 8;
            d.list("priv", words as u64, 8, |d| d.hex::<u64>("").map(drop))
        }
        T::AUXTRACE => {
            d.number::<u64>("size")?;
            d.hex::<u64>("offset")?;
            d.hex::<u64>("reference")?;
            d.number::<u32>("idx")?;
            d.any::<u32>("tid")?;
            d.any::<u32>("cpu")?;
            d.skip("reserved__", 4)
        }
        T::AUXTRACE_ERROR => {
            d.named::<u32>("type", &[(1, "ITRACE")])?;
            d.number::<u32>("code")?;
            d.any::<u32>("cpu")?;
            task(d)?;
            let format = d.number::<u32>("fmt")?;
            d.hex::<u64>("ip")?;
            if format > 0 {
                d.number::<u64>("time")?;
            }
            if format < 2 {
                return d.text("msg");
            }
            d.field_text("msg", 64)?;
            d.any::<u32>("machine_pid")?;
            d.any::<u32>("vcpu").map(drop)
        }
        T::THREAD_MAP => {
            let count = d.int::<u64>("nr")?;
            d.list("entries", count, 24, |d| {
                d.any::<u64>("pid")?;
                d.field_text("comm", 16)
            })
        }
        T::CPU_MAP => cpu_map(d),
        T::STAT_CONFIG => {
            let count = d.int::<u64>("nr")?;
            d.list("data", count, 16, |d| {
                d.named::<u64>("tag", STAT_TAGS)?;
                d.number::<u64>("val").map(drop)
            })
        }
        T::STAT => {
            let id = d.number::<u64>("id")?;
            check_id(id, layouts, d);
            d.any::<u32>("cpu")?;
            d.number::<u32>("thread")?;
            d.number::<u64>("val")?;
            d.number::<u64>("ena")?;
            d.number::<u64>("run").map(drop)
        }
        T::STAT_ROUND => {
            d.named::<u64>("type", &[(0, "INTERVAL"), (1, "FINAL")])?;
            d.number::<u64>("time").map(drop)
        }
        T::EVENT_UPDATE => {
            let kind = d.named::<u64>("type", &[(0, "UNIT"), (1, "SCALE"), (2, "NAME"), (3, "CPUS")])?;
            let id = d.number::<u64>("id")?;
            // 0 means the first event, which may have no id.
            if id != 0 {
                check_id(id, layouts, d);
            }
            match kind {
                0 => d.text("unit"),
                1 => {
                    let scale = d.int::<u64>("scale")?;
                    d.note("scale", Value::Float(f64::from_bits(scale)));
                    Some(())
                }
                2 => d.text("name"),
                3 => d.map("cpus", cpu_map),
                kind => {
                    d.add_issue("update-type", format!("unknown type {kind}"));
                    None
                }
            }
        }
        T::TIME_CONV => {
            d.number::<u64>("time_shift")?;
            d.number::<u64>("time_mult")?;
            d.number::<u64>("time_zero")?;
            if d.left() == 0 {
                // Before Linux 5.10.
                return Some(());
            }
            d.number::<u64>("time_cycles")?;
            d.hex::<u64>("time_mask")?;
            d.number::<u8>("cap_user_time_zero")?;
            d.number::<u8>("cap_user_time_short").map(drop)
        }
        T::HEADER_FEATURE => {
            let number = d.number::<u64>("feat_id")?;
            let feature = u8::try_from(number).ok().map(Feature);
            let payload = d.take("payload", d.left())?;
            // These two are flags and have no bytes.
            let flag = feature == Some(Feature::BRANCH_STACK) || feature == Some(Feature::STAT);
            if payload.is_empty() && !flag {
                // The mark after the last feature. Its number is the first one unknown to the perf that wrote
                // it.
                d.note("feature", Value::Name("end".into()));
                return Some(());
            }
            match feature.and_then(Feature::name) {
                Some(name) => d.note("feature", Value::Name(name.into())),
                None => d.add_issue("feature-unknown", format!("unknown feature {number}")),
            }
            d.note("payload", Value::Bytes(payload));
            Some(())
        }
        T::COMPRESSED => {
            let size = d.left();
            d.take("size", size)?;
            d.note("size", Value::Number(size as u64));
            if size == 0 {
                d.add_issue("compressed-size", "it has no compressed data");
            }
            Some(())
        }
        T::COMPRESSED2 => {
            let size = d.number::<u64>("data_size")?;
            let all = d.left();
            let used = usize::try_from(size).ok().filter(|&size| is_piece_size(size, d.rest()));
            if used.is_none() {
                d.add_issue("compressed-size", format!("data_size is {size}, of {all} bytes"));
            }
            d.take("data", used.unwrap_or(all)).map(drop)
        }
        T::BPF_METADATA => {
            d.field_text("prog_name", 512)?;
            let count = d.int::<u64>("nr_entries")?;
            d.list("entries", count, 320, |d| {
                d.field_text("key", 64)?;
                d.field_text("value", 256)
            })
        }
        T::SCHEDSTAT_CPU => {
            schedstat(d, false)?;
            for name in ["yld_count", "array_exp", "sched_count", "sched_goidle", "ttwu_count", "ttwu_local"]
            {
                d.number::<u32>(name)?;
            }
            for name in ["rq_cpu_time", "run_delay", "pcount"] {
                d.number::<u64>(name)?;
            }
            Some(())
        }
        T::SCHEDSTAT_DOMAIN => schedstat_domain(d),
        kind => {
            d.add_issue("kind-unknown", format!("unknown record type {}", kind.0));
            bytes(d)
        }
    }
}

/// Takes all remaining bytes, uninterpreted.
fn bytes(d: &mut Reader<'_>) -> Option<()> {
    d.bytes("bytes", d.left()).map(drop)
}

/// u32 pid, u32 tid; -1 for the kernel and for tasks that have ended.
fn task(d: &mut Reader<'_>) -> Option<()> {
    d.any::<u32>("pid")?;
    d.any::<u32>("tid").map(drop)
}

/// The fields that MMAP and MMAP2 begin with.
fn mapping(d: &mut Reader<'_>) -> Option<()> {
    task(d)?;
    d.hex::<u64>("addr")?;
    d.hex::<u64>("len")?;
    d.hex::<u64>("pgoff").map(drop)
}

fn check_id(id: u64, layouts: &Layouts, d: &mut Reader<'_>) {
    if !layouts.knows(id) {
        d.add_issue("id-unknown", format!("no event has the id {id}"));
    }
}

/// Whether bit 14 of an MMAP2's `misc` is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmapBuildId<'a> {
    /// Not set: bytes 40 to 63 hold u32 major, u32 minor, u64 inode, u64 inode generation.
    Clear,
    /// Set, and the record holds this build-id of 1 to 20 bytes. Bytes 40 to 63: u8 size, u8 0, u16 0, the id
    /// padded with zeros to 20 bytes.
    BuildId(&'a [u8]),
    /// Set, but the record holds no build-id.
    Wrong,
}

/// Whether an MMAP2 record holds a build-id. `None` for other kinds and for a record that is too short.
///
/// While a recording with `attr.build_id` runs, some kernels (seen with 6.18) set bit 14 also in the records
/// of other recordings, which still hold device and inode: the major number is then in the place of the
/// build-id's size. On the other hand, `perf inject --mmap2-buildid-all` adds build-ids without setting
/// `attr.build_id`. So the bit counts if the size is 1 to 20 and
///
/// - the event of the record has `attr.build_id`; for records that perf itself writes with id 0, any event;
///   or
/// - the bytes cannot be device and inode: minor numbers end at 2^20, generations at 2^32, no inode is 0; and
///   only zeros follow the id. Even so, one id of 8 bytes in 4096 looks like an inode; no id of 20 bytes
///   does. Callers that have feature BUILD_ID can rule that out with [`crate::features::NamedIds`].
pub fn mmap_build_id<'a>(record: &Record<'a>, layouts: &Layouts) -> Option<MmapBuildId<'a>> {
    let union = record.bytes().get(40..64).filter(|_| record.kind() == RecordType::MMAP2)?;
    if record.misc() & MMAP_BUILD_ID == 0 {
        return Some(MmapBuildId::Clear);
    }
    let size = usize::from(union[0]);
    if !(1..=20).contains(&size) || union[1..4] != [0; 3] {
        return Some(MmapBuildId::Wrong);
    }
    let (id, behind) = union[4..].split_at(size);
    let inode = record.u32(44)? < 1 << 20 && record.u64(48)? != 0 && record.u64(56)? < 1 << 32;
    let looks_so = !inode && behind.iter().all(|&b| b == 0);
    Some(if layouts.may_map_build_ids(record) || looks_so {
        MmapBuildId::BuildId(id)
    } else {
        MmapBuildId::Wrong
    })
}

fn mmap2_union(record: &Record<'_>, layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    // Relative to these bytes and not to the record, which may end in a trailer before that.
    let union = d.rest().get(..24);
    let union = d.need("maj", union)?;
    let verdict = mmap_build_id(record, layouts)?;
    if let MmapBuildId::BuildId(id) = verdict {
        d.take("build_id", 24)?;
        d.add_gap(1..4, 24);
        d.add_gap(4 + id.len()..24, 24);
        d.note("build_id", Value::Bytes(&union[4..4 + id.len()]));
        return Some(());
    }
    let major = d.number::<u32>("maj")?;
    let minor = d.number::<u32>("min")?;
    let inode = d.number::<u64>("ino")?;
    d.number::<u64>("ino_generation")?;
    if verdict == MmapBuildId::Wrong {
        let size = union[0];
        d.add_issue(
            "mmap-build-id-bit",
            format!(
                "misc claims a build-id, which would have {}; the bytes read as inode {inode} of \
                device {major}:{minor}",
                bytes_of(size)
            ),
        );
        d.note("build_id_size", Value::Number(size.into()));
        d.note("build_id", Value::Bytes(&union[4..]));
    }
    Some(())
}

/// The attr, `attr.size` bytes (0 means 64), then u64 ids.
fn header_attr(d: &mut Reader<'_>) -> Option<()> {
    let says = d.endian().u32(d.rest(), 4).unwrap_or(0) as usize;
    let size = if says == 0 { ATTR_SIZE_MIN } else { says };
    let raw = d.rest();
    let raw = &raw[..size.min(raw.len())];
    let attr = Attr::decode(raw, d.endian());
    for odd in attr_issues(&attr, raw.len()) {
        d.add_issue(odd.code, odd.what);
    }
    d.note("attr", Value::Map(decode_attr(raw, d.endian())));
    d.take("attr", raw.len())?;
    d.add_gap(attr_tail(raw, d.endian()), raw.len());
    let ids = d.left() / 8;
    d.list("ids", ids as u64, 8, |d| d.number::<u64>("").map(drop))
}

/// s32 pid, id in 20 bytes, u8 size of the id (if bit 15 of `misc` is set), 3 bytes, file name. A record made
/// by perf inject may end in a sample_id trailer, with the layout of the event whose sample caused it.
fn header_build_id(record: &Record<'_>, layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    d.any::<u32>("pid")?;
    let id = d.take("build_id", 20)?;
    let size = d.int::<u8>("size")?;
    let length =
        if record.misc() & crate::record::build_id::BUILD_ID_SIZE_VALID == 0 { 20 } else { size.into() };
    d.note("build_id", Value::Bytes(&id[..length.min(20)]));
    d.add_gap(length.min(20)..20, 21);
    if !(1..=20).contains(&length) {
        d.add_issue("build-id-size", format!("a build-id of {}", bytes_of(length)));
    }
    d.skip("reserved", 3)?;
    d.text("filename")?;
    if let Some((layout, trailer)) = layouts.trailer_behind(d.rest()) {
        d.skip("padding", d.left() - trailer.len())?;
        let id = sample_id(trailer, layout, d.endian());
        d.note("sample_id", Value::Map(id.fields));
        d.take("sample_id", trailer.len())?;
        id.gaps.into_iter().for_each(|gap| d.add_gap(gap, trailer.len()));
    }
    Some(())
}

/// u64 count, then for each entry id, idx, cpu, tid; and, if there is room, for each entry machine_pid, vcpu.
/// All are u64.
fn id_index(layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    let count = d.int::<u64>("nr")?;
    let all = d.rest();
    // A record has less than 64 KiB, so this saturates without harm.
    let first = usize::try_from(count).unwrap_or(usize::MAX).min(all.len()) * 32;
    let second = all.get(first..first + first / 2).unwrap_or_default();
    let mut machines = Cursor::new(second, d.endian());
    let mut unknown = Vec::new();
    d.list("entries", count, 32, |d| {
        let id = d.number::<u64>("id")?;
        // perf looks the id up even if there is only one event, without ids.
        if id != 0 && layouts.event_of_id(id).is_none() {
            unknown.push(id);
        }
        d.number::<u64>("idx")?;
        d.any::<u64>("cpu")?;
        d.any::<u64>("tid")?;
        if let Some((pid, vcpu)) = machines.u64().zip(machines.u64()) {
            d.note("machine_pid", any(pid));
            d.note("vcpu", any(vcpu));
        }
        Some(())
    })?;
    if let Some(id) = unknown.first() {
        d.add_issue("id-unknown", format!("no event has the id {id} ({} such ids)", unknown.len()));
    }
    d.take("machines", second.len()).map(drop)
}

/// `struct perf_record_cpu_map_data`: u16 type, then a list of CPUs, the words of a mask, or a range. -1 is
/// any CPU.
fn cpu_map(d: &mut Reader<'_>) -> Option<()> {
    match d.named::<u16>("type", &[(0, "CPUS"), (1, "MASK"), (2, "RANGE")])? {
        0 => {
            let count = d.int::<u16>("nr")?;
            d.list("cpu", count, 2, |d| d.any::<u16>("").map(drop))
        }
        1 => {
            let count = d.int::<u16>("nr")?;
            match d.number::<u16>("long_size")? {
                4 => d.list("mask", count, 4, |d| d.hex::<u32>("").map(drop)),
                8 => {
                    d.skip("padding", 4)?;
                    d.list("mask", count, 8, |d| d.hex::<u64>("").map(drop))
                }
                size => {
                    d.add_issue("cpu-map-type", format!("words of {}", bytes_of(size)));
                    None
                }
            }
        }
        2 => {
            d.number::<u8>("any_cpu")?;
            d.skip("padding", 1)?;
            let start = d.number::<u16>("start_cpu")?;
            let end = d.number::<u16>("end_cpu")?;
            if end < start {
                d.add_issue("cpu-map-range", format!("the CPUs from {start} to {end}"));
            }
            Some(())
        }
        kind => {
            d.add_issue("cpu-map-type", format!("unknown type {kind}"));
            None
        }
    }
}

/// u64 timestamp (jiffies), u32 cpu, u16 version of /proc/schedstat, u16 domain; returns the version.
fn schedstat(d: &mut Reader<'_>, domain: bool) -> Option<u16> {
    d.number::<u64>("timestamp")?;
    d.number::<u32>("cpu")?;
    let version = d.number::<u16>("version")?;
    if domain {
        d.number::<u16>("domain")?;
    } else {
        d.skip("padding", 2)?;
    }
    if !(15..=17).contains(&version) {
        d.add_issue("schedstat-version", format!("unknown version {version}"));
        return None;
    }
    Some(version)
}

/// u32 counters as in Documentation/scheduler/sched-stats.rst: the same set for each of three states of the
/// CPU, then those of the domain.
fn schedstat_domain(d: &mut Reader<'_>) -> Option<()> {
    let version = schedstat(d, true)?;
    let mut states =
        if version == 15 { ["idle", "busy", "newidle"] } else { ["busy", "idle", "newidle"] }.into_iter();
    d.list("load_balance", 3u64, if version < 17 { 32 } else { 44 }, |d| {
        d.note("cpu_is", Value::Name(states.next()?.into()));
        for name in ["lb_count", "lb_balanced", "lb_failed"] {
            d.number::<u32>(name)?;
        }
        let imbalances: &[_] = match version {
            15 | 16 => &["lb_imbalance"],
            _ => &["lb_imbalance_load", "lb_imbalance_util", "lb_imbalance_task", "lb_imbalance_misfit"],
        };
        for name in
            imbalances.iter().copied().chain(["lb_gained", "lb_hot_gained", "lb_nobusyq", "lb_nobusyg"])
        {
            d.number::<u32>(name)?;
        }
        Some(())
    })?;
    for name in [
        "alb_count",
        "alb_failed",
        "alb_pushed",
        "sbe_count",
        "sbe_balanced",
        "sbe_pushed",
        "sbf_count",
        "sbf_balanced",
        "sbf_pushed",
        "ttwu_wake_remote",
        "ttwu_move_affine",
        "ttwu_move_balance",
    ] {
        d.number::<u32>(name)?;
    }
    Some(())
}

/// The names of the bits in `misc`: the cpumode, if the kind has one, then the meaning of bits 12 to 15 for
/// this kind; unknown bits are `bitN`; `-` for none.
pub fn misc_names(kind: RecordType, misc: u16) -> Cow<'static, str> {
    use RecordType as T;
    let high: &[(u32, &'static str)] = match kind {
        T::MMAP => &[(13, "MMAP_DATA")],
        T::MMAP2 => &[(12, "PROC_MAP_PARSE_TIMEOUT"), (13, "MMAP_DATA"), (14, "MMAP_BUILD_ID")],
        T::COMM => &[(13, "COMM_EXEC")],
        T::FORK => &[(13, "FORK_EXEC")],
        T::SWITCH | T::SWITCH_CPU_WIDE => &[(13, "SWITCH_OUT"), (14, "SWITCH_OUT_PREEMPT")],
        T::SAMPLE => &[(14, "EXACT_IP")],
        T::LOST_SAMPLES => &[(15, "LOST_SAMPLES_BPF")],
        T::HEADER_BUILD_ID => &[(15, "BUILD_ID_SIZE")],
        _ => &[],
    };
    let modes =
        ["unknown", "kernel", "user", "hypervisor", "guest_kernel", "guest_user", "cpumode6", "cpumode7"];
    let (cpumode, bits) = (misc & 7, (misc & !7).into());
    match modes[usize::from(cpumode)] {
        // Most records written by perf itself have no cpumode.
        _ if cpumode == 0 && !kind.is_kernel() => bit_names(bits, high),
        mode if bits == 0 => mode.into(),
        mode => format!("{mode}|{}", bit_names(bits, high)).into(),
    }
}
