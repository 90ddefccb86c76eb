//! Turns a parsed sample into named values.

use std::ops::Range;

use crate::layout::TRACEPOINT_MIN;
use crate::record::reader::{Reader, any, named};
use crate::sample::{Branch, Branches, Marker, Read, Regs, Sample, Stop, U64s, Weight};
use crate::sample_type as st;
use crate::value::{Fields, bytes_of, bytes_that};
use crate::{Decoded, Endian, FaultCode, HEADER_SIZE, Issue, Layout, Layouts, Record, Value, bit_names};

/// `enum perf_sample_regs_abi`
const ABIS: &[(u64, &str)] = &[(0, "NONE"), (1, "32"), (2, "64")];

/// PERF_TXN_*; bits 32-63 are the code given to the abort instruction.
const TRANSACTION: &[(u32, &str)] = &[
    (0, "ELISION"),
    (1, "TRANSACTION"),
    (2, "SYNC"),
    (3, "ASYNC"),
    (4, "RETRY"),
    (5, "CONFLICT"),
    (6, "CAPACITY_WRITE"),
    (7, "CAPACITY_READ"),
];

pub(super) fn sample<'a>(record: &Record<'a>, layouts: &Layouts, layout: &Layout) -> Decoded<'a> {
    let (sample, stop) = Sample::read(record, layout);
    let mut d = Decoded { fields: Vec::with_capacity(12), ..Decoded::default() };
    // `extend` would look for room even without a value.
    let mut add = |name, value: Option<Value<'a>>| {
        if let Some(value) = value {
            d.fields.push((name, value));
        }
    };
    let number = |value: Option<u64>| value.map(Value::Number);
    let hex = |value: Option<u64>| value.map(Value::Hex);
    let (pid, tid) = sample.pid_tid.unzip();
    add("identifier", number(sample.identifier));
    add("ip", hex(sample.ip));
    add("pid", pid.map(any));
    add("tid", tid.map(any));
    add("time", number(sample.time));
    add("addr", hex(sample.addr));
    add("id", number(sample.id));
    add("stream_id", number(sample.stream_id));
    add("cpu", sample.cpu.map(any));
    add("period", number(sample.period));
    add("read", sample.read.map(|read| Value::Map(counters(&read))));
    add("callchain", sample.callchain.map(callchain));
    add("raw", sample.raw.map(Value::Bytes));
    add("branch_stack", sample.branches.map(branch_stack));
    add("regs_user", sample.regs_user.map(regs));
    let stack_user = sample.stack_user.map(|stack| {
        let size = stack.dyn_size.map(|size| ("dyn_size", Value::Number(size)));
        Value::Map(size.into_iter().chain([("bytes", Value::Bytes(stack.bytes))]).collect())
    });
    add("stack_user", stack_user);
    add("weight", sample.weight.map(weight));
    let data_src = sample.data_src.map(|source| {
        let parts = source.parts().map(|(name, value)| (name, Value::Name(value)));
        Value::Map([("val", Value::Hex(source.0))].into_iter().chain(parts).collect())
    });
    add("data_src", data_src);
    add("transaction", sample.transaction.map(transaction));
    add("regs_intr", sample.regs_intr.map(regs));
    add("phys_addr", hex(sample.phys_addr));
    add("cgroup", number(sample.cgroup));
    add("data_page_size", number(sample.data_page_size));
    add("code_page_size", number(sample.code_page_size));
    add("aux", sample.aux.map(Value::Bytes));
    sample_issues(record, layouts, layout, &sample, stop, &mut d.issues);
    d.gaps = sample_gaps(record, layout, sample.cpu.is_some(), sample.rest.len()).collect();
    if !sample.rest.is_empty() {
        d.push("rest", Value::Bytes(sample.rest));
    }
    d
}

/// The bytes after the CPU, if it is there, are reserved, and the last `rest` bytes after the parts are unknown.
pub(super) fn sample_gaps(
    record: &Record<'_>,
    layout: &Layout,
    has_cpu: bool,
    rest: usize,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let cpu = layout.sample.cpu.filter(|_| has_cpu);
    let reserved = cpu.map(|at| usize::from(at) + 4 - HEADER_SIZE);
    let end = record.body().len();
    // Parts that have no name yet are the last.
    let is_rest = rest > 0 && layout.sample_type & st::UNNAMED == 0;
    let rest = is_rest.then(|| end - rest..end);
    reserved.map(|at| at..at + 4).into_iter().chain(rest)
}

/// PERF_SAMPLE_BRANCH_HW_INDEX of `branch_sample_type`.
const HW_INDEX: u64 = 1 << 17;
const COUNTERS: u64 = 1 << 19;

pub(super) fn sample_issues(
    record: &Record<'_>,
    layouts: &Layouts,
    layout: &Layout,
    sample: &Sample<'_>,
    stop: Option<Stop>,
    odd: &mut Vec<Issue>,
) {
    let mut note = |code, what: String| odd.push(Issue { code, what });
    if let Some((stack, size)) = sample.stack_user.and_then(|stack| Some((stack, stack.dyn_size?)))
        && size > stack.bytes.len() as u64
    {
        note(
            FaultCode::StackSize,
            bytes_that(size, " is", " are")
                + &format!(" used of a user stack of {}", bytes_of(stack.bytes.len())),
        );
    }
    if sample.read.is_some_and(|read| read.group && read.counts().next().is_none()) {
        note(FaultCode::ReadGroupEmpty, "a group of no counters".to_owned());
    }
    if let Some(branches) = sample.branches {
        if branches.hw_idx.is_none() && layout.branch_sample_type & HW_INDEX != 0 {
            let what = format!("{} branches without the hw_idx that the event asks for", branches.len());
            note(FaultCode::BranchIndexMissing, what);
        }
        let asked = || layouts.all().iter().any(|other| other.branch_sample_type & COUNTERS != 0);
        if branches.counters.is_none() && !branches.is_empty() && asked() {
            note(FaultCode::BranchCountersMissing, format!("{} branches without counters", branches.len()));
        }
    }
    if let Some(raw) = sample.raw.filter(|raw| (raw.len() as u64) < TRACEPOINT_MIN)
        && layouts.is_tracepoint(record)
    {
        note(FaultCode::RawShort, bytes_that(raw.len(), " is", " are") + " not the data of a tracepoint");
    }
    match &stop {
        Some(stop) => note(stop.code(), stop.to_string()),
        None if !sample.rest.is_empty() => {
            note(
                FaultCode::Rest,
                bytes_that(sample.rest.len(), " follows", " follow") + " what attr.sample_type asks for",
            );
        }
        None => {}
    }
}

fn counters<'a>(read: &Read<'_>) -> Fields<'a> {
    let times = [("time_enabled", read.enabled), ("time_running", read.running)];
    let times = times.into_iter().filter_map(|(name, time)| Some((name, Value::Number(time?))));
    let mut counts = read.counts().map(|count| {
        let parts = [("value", Some(count.value)), ("id", count.id), ("lost", count.lost)];
        parts
            .into_iter()
            .filter_map(|(name, value)| Some((name, Value::Number(value?))))
            .collect::<Fields<'_>>()
    });
    if read.group {
        return times.chain([("values", Value::List(counts.map(Value::Map).collect()))]).collect();
    }
    let mut fields = counts.next().unwrap_or_default();
    // In the order of the record.
    fields.splice(1..1, times);
    fields
}

/// Decodes the fields of a READ record; without its event, its counters are bytes.
pub(super) fn read_record(layout: Option<&Layout>, d: &mut Reader<'_>) -> Option<()> {
    d.task()?;
    let Some(layout) = layout else { return d.all_bytes() };
    let read = Read::take(d.cursor(), layout.read_format);
    let read = d.need("read", read)?;
    d.note_all(counters(&read));
    Some(())
}

pub(crate) fn callchain<'a>(chain: U64s<'_>) -> Value<'a> {
    let entry = |entry| match Marker::of(entry).and_then(Marker::name) {
        Some(name) => Value::Name(name.into()),
        None => Value::Hex(entry),
    };
    Value::List(chain.iter().map(entry).collect())
}

fn branch_stack<'a>(branches: Branches<'_>) -> Value<'a> {
    let entry = |Branch { from, to, flags }: Branch| {
        let flags = flags.parts().map(|(name, value)| (name, Value::Name(value)));
        Value::Map([("from", Value::Hex(from)), ("to", Value::Hex(to))].into_iter().chain(flags).collect())
    };
    let mut fields = Fields::new();
    fields.extend(branches.hw_idx.map(|index| ("hw_idx", any(index))));
    fields.push(("entries", Value::List(branches.iter().map(entry).collect())));
    fields
        .extend(branches.counters.map(|all| ("counters", Value::List(all.iter().map(Value::Hex).collect()))));
    Value::Map(fields)
}

fn regs<'a>(regs: Regs<'_>) -> Value<'a> {
    let values = regs.values.iter().map(Value::Hex).collect();
    Value::Map(vec![
        ("abi", named(regs.abi, ABIS)),
        ("mask", Value::Hex(regs.mask)),
        ("values", Value::List(values)),
    ])
}

fn weight<'a>(weight: Weight) -> Value<'a> {
    match weight {
        Weight::Full(full) => Value::Number(full),
        Weight::Parts { var1_dw, var2_w, var3_w } => Value::Map(vec![
            ("var1_dw", Value::Number(var1_dw.into())),
            ("var2_w", Value::Number(var2_w.into())),
            ("var3_w", Value::Number(var3_w.into())),
        ]),
    }
}

fn transaction<'a>(word: u64) -> Value<'a> {
    Value::Map(vec![
        ("flags", Value::Name(bit_names(word & 0xffff_ffff, TRANSACTION))),
        ("abort_code", Value::Hex(word >> 32)),
    ])
}

/// The sample_id trailer: the same fields for every kind, 8 bytes each.
pub(super) fn sample_id<'a>(trailer: &'a [u8], layout: &Layout, endian: Endian) -> Decoded<'a> {
    let mut d = Reader::new(trailer, endian);
    let mut read = || {
        let has = |bit| layout.sample_type & bit != 0;
        if has(st::TID) {
            d.any::<u32>("pid")?;
            d.any::<u32>("tid")?;
        }
        for (bit, name) in [(st::TIME, "time"), (st::ID, "id"), (st::STREAM_ID, "stream_id")] {
            if has(bit) {
                d.number::<u64>(name)?;
            }
        }
        if has(st::CPU) {
            d.any::<u32>("cpu")?;
            d.skip("res", 4)?;
        }
        if has(st::IDENTIFIER) {
            d.number::<u64>("identifier")?;
        }
        Some(())
    };
    let done = read();
    d.finish(done).0
}
