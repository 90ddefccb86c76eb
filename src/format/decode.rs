//! Decodes records of every kind into named values, for all code that shows, counts or checks them. Oddities
//! are noted next to the fields, and decoding continues as far as possible.
//!
//! To add a kind: a row in `kinds.rs`, its `decode` in `record/`, an arm in `fields` and a record typed by
//! hand in `decode/tests.rs`.

mod attr;
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use attr::header_attr;
pub use attr::{
    BRANCH_SAMPLE_TYPE_NAMES, attr_as_perf, attr_issues, attr_tail, clear_unknown, clock_name, decode_attr,
    event_as_perf,
};
use sample::{read_record, sample, sample_gaps, sample_id, sample_issues};

use crate::record::aux::{Aux, Auxtrace, AuxtraceInfo};
use crate::record::build_id::BuildIdEntry;
use crate::record::cgroup::Cgroup;
use crate::record::deferred::CallchainDeferred;
use crate::record::header_records::{decode_event_type, decode_feature};
use crate::record::id_index::IdIndex;
use crate::record::ksymbol::{Ksymbol, decode_text_poke};
pub use crate::record::mmap::{MmapBuildId, mmap_build_id};
use crate::record::namespaces::Namespaces;
use crate::record::reader::Reader;
use crate::record::task::decode_switch;
use crate::record::time_conv::TimeConv;
use crate::record::{
    aux_error, bpf_event, compressed, cpu_map, event_update, lost, mmap, schedstat, stat, stat_config,
    tracing_data,
};
use crate::sample::Sample;
use crate::value::bytes_of;
use crate::{
    Comm, Decoded, FaultCode, HEADER_SIZE, Issue, Layout, Layouts, Record, RecordType, Task, Value,
    bit_names, clear,
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
/// | `trailer-missing` | no room for the sample_id trailer that the event's attr requires |
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
/// | `regs-abi` | above 2: the parts from these registers on can't be read |
/// | `read-group-empty` | a group of counters without counters |
/// | `branch-index-missing` | `branch_sample_type` includes `hw_idx`, but the branch stack has none |
/// | `branch-counters-missing` | this branch stack has no counters, but an event of its group has them, so the newest perf expects them |
/// | `raw-short` | a tracepoint without its data |
pub fn decode<'a>(record: &Record<'a>, layouts: &Layouts) -> Decoded<'a> {
    decoded(record, layouts, true)
}

/// Without `values`, only the oddities.
fn decoded<'a>(record: &Record<'a>, layouts: &Layouts, values: bool) -> Decoded<'a> {
    let mut decoded = match record.kind() {
        kind if kind.is_kernel() => kernel_record(record, layouts, values),
        _ => read(record, layouts, None, record.body(), values).0,
    };
    if has_odd_frame(record) {
        decoded.issues.extend(frame_issues(record));
    }
    decoded
}

/// The oddities that [`decode`] would find. This builds no values.
pub fn issues(record: &Record<'_>, layouts: &Layouts) -> Vec<Issue> {
    if record.kind() != RecordType::SAMPLE {
        return decoded(record, layouts, false).issues;
    }
    let (layout, lost) = layout_of(record, layouts);
    let mut odd = Vec::new();
    if let Some(layout) = layout.filter(|layout| !layout.is_all_of(record)) {
        let (sample, stop) = Sample::read(record, layout);
        sample_issues(record, layouts, layout, &sample, stop, &mut odd);
    }
    odd.extend(lost.map(|(code, what)| Issue { code, what }));
    if has_odd_frame(record) {
        odd.extend(frame_issues(record));
    }
    odd
}

/// The [gaps](Decoded::gaps) of a sample. For samples, the bulk of a recording, this builds no values.
pub fn gaps_of_sample(record: &Record<'_>, layout: &Layout) -> impl Iterator<Item = Range<usize>> + use<> {
    let (has_cpu, rest) = match layout.is_all_of(record) {
        true => (true, 0),
        false => {
            let (sample, _) = Sample::read(record, layout);
            (sample.cpu.is_some(), sample.rest.len())
        }
    };
    sample_gaps(record, layout, has_cpu, rest)
}

/// Fills gaps of a record with zeros in `bytes`, which are those of the record, perhaps with other changes of
/// the same size; they are copied only to be changed. Returns the number of bytes that were not zero.
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

fn has_odd_frame(record: &Record<'_>) -> bool {
    let aligned = record.bytes().len().is_multiple_of(8) && record.payload().len().is_multiple_of(8);
    !aligned || record.cpumode() > 5
}

fn frame_issues(record: &Record<'_>) -> impl Iterator<Item = Issue> {
    let (kind, size, payload) = (record.kind(), record.bytes().len(), record.payload().len());
    let oddity = |is_odd: bool, code, what: &dyn Fn() -> String| is_odd.then(|| Issue { code, what: what() });
    let size = oddity(!size.is_multiple_of(8) && !kind.may_be_unaligned(), FaultCode::SizeUnaligned, &|| {
        format!("a size of {size} bytes is not a multiple of 8")
    });
    let payload = oddity(!payload.is_multiple_of(8), FaultCode::PayloadUnaligned, &|| {
        format!("a payload of {} is not a multiple of 8", bytes_of(payload))
    });
    // perf before 3.x sent HEADER_ATTR with uninitialised memory in `misc`.
    let code = if kind == RecordType::HEADER_ATTR { FaultCode::AttrMisc } else { FaultCode::CpumodeUnknown };
    let cpumode = oddity(record.cpumode() > 5, code, &|| format!("cpumode {}", record.cpumode()));
    [size, payload, cpumode].into_iter().flatten()
}

fn kernel_record<'a>(record: &Record<'a>, layouts: &Layouts, values: bool) -> Decoded<'a> {
    let (layout, lost) = layout_of(record, layouts);
    let mut decoded = match layout {
        Some(layout) if record.kind() == RecordType::SAMPLE => sample(record, layouts, layout),
        _ if record.kind() == RecordType::SAMPLE => {
            Decoded { fields: vec![("bytes", Value::Bytes(record.body()))], ..Decoded::default() }
        }
        Some(layout) if layout.trailer.size > 0 => match with_trailer(record, layouts, layout, values) {
            Some(decoded) => decoded,
            None => {
                let (mut decoded, _) = read(record, layouts, Some(layout), record.body(), values);
                if decoded.issues.is_empty() {
                    decoded.add_issue(
                        FaultCode::TrailerMissing,
                        format!("no room for a sample_id of {} bytes", layout.trailer.size),
                    );
                }
                // The bytes at the position of the id are not an id.
                return decoded;
            }
        },
        _ => read(record, layouts, layout, record.body(), values).0,
    };
    if layout.is_none() {
        // The rest is the trailer, whose length is unknown.
        decoded.issues.retain(|odd| odd.code != FaultCode::Rest);
    }
    if let Some((code, what)) = lost {
        decoded.add_issue(code, what);
    }
    decoded
}

/// Splits the record into fields and trailer. `None` if there is no trailer: records from programs other than
/// the kernel may lack it, and then the fields fill the record, with less than 8 bytes of padding.
fn with_trailer<'a>(
    record: &Record<'a>,
    layouts: &Layouts,
    layout: &Layout,
    values: bool,
) -> Option<Decoded<'a>> {
    let body = record.body();
    let (front, trailer) = body.split_at(body.len().checked_sub(layout.trailer.size.into())?);
    let (mut decoded, _) = read(record, layouts, Some(layout), front, values);
    if !decoded.issues.is_empty() {
        let (whole, left) = read(record, layouts, Some(layout), body, false);
        // An unknown id is suspicious, too: it may be the end of a string.
        let strange = layout.id(record).is_some_and(|id| !layouts.knows(id));
        if whole.issues.len() < decoded.issues.len() + usize::from(strange) && left < 8 {
            return None;
        }
    }
    if values {
        let id = sample_id(trailer, layout, record.endian());
        decoded.push("sample_id", Value::Map(id.fields));
        decoded.add_gaps(front.len(), id.gaps);
    }
    Some(decoded)
}

/// The layout of the record, and the reason if the layout or the event is uncertain.
fn layout_of<'l>(
    record: &Record<'_>,
    layouts: &'l Layouts,
) -> (Option<&'l Layout>, Option<(FaultCode, String)>) {
    let Some(first) = layouts.all().first() else {
        return (None, Some((FaultCode::NoEvent, "there is no event before this record".to_owned())));
    };
    if let Some(layout) = layouts.layout_of(record) {
        let unknown = layout.id(record).filter(|&id| !layouts.knows(id));
        return (Some(layout), unknown.map(|id| (FaultCode::IdUnknown, format!("no event has the id {id}"))));
    }
    if layouts.check_ids().is_err() {
        return (
            None,
            Some((FaultCode::IdPosition, "the events store their id at different places".to_owned())),
        );
    }
    // All events have the id at the same position; perf's own records have the layout of the first event.
    let id = first.id(record).unwrap_or(0);
    let layout = (record.kind() != RecordType::SAMPLE).then_some(first);
    (layout, Some((FaultCode::IdUnknown, format!("no event has the id {id}"))))
}

/// Decodes the bytes between header and trailer, and returns the number of remaining ones.
fn read<'a>(
    record: &Record<'a>,
    layouts: &Layouts,
    layout: Option<&Layout>,
    bytes: &'a [u8],
    values: bool,
) -> (Decoded<'a>, usize) {
    let mut d = Reader::new(bytes, record.endian());
    d.values = values;
    let done = fields(record, layouts, layout, &mut d);
    d.finish(done)
}

fn fields<'a>(
    record: &Record<'a>,
    layouts: &Layouts,
    layout: Option<&Layout>,
    d: &mut Reader<'a>,
) -> Option<()> {
    use RecordType as T;
    match record.kind() {
        T::MMAP | T::MMAP2 => mmap::decode(record, layouts, d),
        T::LOST => lost::decode(d),
        T::COMM => Comm::decode(d),
        T::EXIT | T::FORK => Task::decode(d),
        T::THROTTLE | T::UNTHROTTLE => lost::decode_throttle(d),
        T::READ => read_record(layout, d),
        T::AUX => Aux::decode(d),
        T::ITRACE_START => d.task(),
        T::LOST_SAMPLES => lost::decode_samples(d),
        T::SWITCH | T::FINISHED_ROUND | T::FINISHED_INIT => Some(()),
        T::SWITCH_CPU_WIDE => decode_switch(d),
        T::NAMESPACES => Namespaces::decode(d),
        T::KSYMBOL => Ksymbol::decode(d),
        T::BPF_EVENT => bpf_event::decode(d),
        T::CGROUP => Cgroup::decode(d),
        T::TEXT_POKE => decode_text_poke(d),
        T::AUX_OUTPUT_HW_ID => d.hex::<u64>("hw_id").map(drop),
        T::CALLCHAIN_DEFERRED => CallchainDeferred::decode(d),
        T::HEADER_ATTR => header_attr(d),
        T::HEADER_EVENT_TYPE => decode_event_type(d),
        T::HEADER_TRACING_DATA => tracing_data::decode(record, d),
        T::HEADER_BUILD_ID => {
            BuildIdEntry::decode(record.misc(), d)?;
            trailer_of_build_id(layouts, d)
        }
        T::ID_INDEX => IdIndex::decode(layouts, d),
        T::AUXTRACE_INFO => AuxtraceInfo::decode(d),
        T::AUXTRACE => Auxtrace::decode(d),
        T::AUXTRACE_ERROR => aux_error::decode(d),
        T::THREAD_MAP => stat::decode_threads(d),
        T::CPU_MAP => cpu_map::decode(d),
        T::STAT_CONFIG => stat_config::decode(d),
        T::STAT => stat::decode(layouts, d),
        T::STAT_ROUND => stat::decode_round(d),
        T::EVENT_UPDATE => event_update::decode(layouts, d),
        T::TIME_CONV => TimeConv::decode(d),
        T::HEADER_FEATURE => decode_feature(d),
        T::COMPRESSED => compressed::decode(d),
        T::COMPRESSED2 => compressed::decode_sized(d),
        T::BPF_METADATA => bpf_event::decode_metadata(d),
        T::SCHEDSTAT_CPU => schedstat::decode_cpu(d),
        T::SCHEDSTAT_DOMAIN => schedstat::decode_domain(d),
        kind => {
            d.add_issue(FaultCode::KindUnknown, format!("unknown kind of record: {}", kind.0));
            d.all_bytes()
        }
    }
}

/// A HEADER_BUILD_ID made by perf inject may end in the sample_id trailer of its sample's event.
fn trailer_of_build_id(layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
    if let Some((layout, trailer)) = layouts.trailer_after(d.rest()) {
        d.skip("padding", d.left() - trailer.len())?;
        let id = sample_id(trailer, layout, d.endian());
        d.note("sample_id", Value::Map(id.fields));
        d.take("sample_id", trailer.len())?;
        id.gaps.into_iter().for_each(|gap| d.add_gap(gap, trailer.len()));
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
