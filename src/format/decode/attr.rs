//! Decodes the attr of an event, of any size, and reports reasons why perf refuses it.

use std::borrow::Cow;
use std::ops::Range;

use crate::attr::KnownAttr;
use crate::attr_name::config_name;
use crate::record::reader::{Reader, named};
use crate::sample_type as st;
use crate::value::Fields;
use crate::{
    ATTR_FLAGS, ATTR_SIZE_MIN, Attr, Endian, FaultCode, Issue, READ_FORMAT_NAMES, SAMPLE_TYPE_NAMES, Value,
    bit_names, clear,
};

/// The names of the `branch_sample_type` bits (`enum perf_branch_sample_type`).
pub const BRANCH_SAMPLE_TYPE_NAMES: &[(u32, &str)] = &[
    (0, "USER"),
    (1, "KERNEL"),
    (2, "HV"),
    (3, "ANY"),
    (4, "ANY_CALL"),
    (5, "ANY_RETURN"),
    (6, "IND_CALL"),
    (7, "ABORT_TX"),
    (8, "IN_TX"),
    (9, "NO_TX"),
    (10, "COND"),
    (11, "CALL_STACK"),
    (12, "IND_JUMP"),
    (13, "CALL"),
    (14, "NO_FLAGS"),
    (15, "NO_CYCLES"),
    (16, "TYPE_SAVE"),
    (17, "HW_INDEX"),
    (18, "PRIV_SAVE"),
    (19, "COUNTERS"),
];

/// `enum perf_type_id`; the numbers of PMUs from 6 on are named in feature PMU_MAPPINGS.
const TYPES: &[(u64, &str)] =
    &[(0, "HARDWARE"), (1, "SOFTWARE"), (2, "TRACEPOINT"), (3, "HW_CACHE"), (4, "RAW"), (5, "BREAKPOINT")];

/// include/uapi/linux/time.h
const CLOCKS: &[(u64, &str)] =
    &[(0, "REALTIME"), (1, "MONOTONIC"), (4, "MONOTONIC_RAW"), (7, "BOOTTIME"), (11, "TAI")];

/// The name of a clock of clock_gettime(2) that a recording can use, without `CLOCK_`.
pub fn clock_name(clockid: u32) -> Option<&'static str> {
    CLOCKS.iter().find(|(number, _)| *number == u64::from(clockid)).map(|(_, name)| *name)
}

/// Bits 15 and 16 of the flags are a number.
const PRECISE_IP: u64 = 3 << 15;

const AUX_ACTIONS: &[(u32, &str)] = &[(0, "START_PAUSED"), (1, "PAUSE"), (2, "RESUME")];

fn bits_of(names: &[(u32, &str)]) -> u64 {
    names.iter().fold(0, |bits, (bit, _)| bits | 1 << bit)
}

fn known() -> KnownAttr {
    KnownAttr {
        size: usize::MAX,
        flags: bits_of(ATTR_FLAGS) | PRECISE_IP,
        sample_type: bits_of(SAMPLE_TYPE_NAMES),
        read_format: bits_of(READ_FORMAT_NAMES),
        branch_sample_type: bits_of(BRANCH_SAMPLE_TYPE_NAMES),
    }
}

/// Decodes `struct perf_event_attr` (include/uapi/linux/perf_event.h; [`Attr`] has the offsets): the fields
/// that `raw` is long enough for. Bytes after the known fields are in `tail`.
pub fn decode_attr(raw: &[u8], endian: Endian) -> Fields<'_> {
    let d = read_attr(raw, endian);
    let tail = d.rest();
    let (mut decoded, _) = d.finish(None);
    decoded.fields.retain(|(name, _)| *name != "rest");
    if !tail.is_empty() {
        decoded.push("tail", Value::Bytes(tail));
    }
    decoded.fields
}

/// The range of the bytes after the known fields of an attr; may be empty.
pub fn attr_tail(raw: &[u8], endian: Endian) -> Range<usize> {
    raw.len() - read_attr(raw, endian).left()..raw.len()
}

/// Clears the bytes and bits of an attr without a known meaning. Returns the number of changed bytes.
///
/// Unknown bits of `sample_type` and `read_format` may stand for parts of samples after the known ones.
pub fn clear_unknown(raw: &mut [u8], endian: Endian) -> u64 {
    let old = raw.to_vec();
    known().clear_bits(raw, endian);
    if let Some(action) = endian.u32(raw, 116) {
        endian.set_u32(raw, 116, action & bits_of(AUX_ACTIONS) as u32);
    }
    // __reserved_2
    clear(raw, 110..112);
    clear(raw, attr_tail(raw, endian));
    old.iter().zip(raw.iter()).filter(|(old, new)| old != new).count() as u64
}

fn read_attr(raw: &[u8], endian: Endian) -> Reader<'_> {
    let mut d = Reader::new(raw, endian);
    // Stops at the end of an attr from a perf that knew fewer fields.
    let _ = attr(&mut d, &Attr::decode(raw, endian));
    d
}

fn attr(d: &mut Reader<'_>, attr: &Attr) -> Option<()> {
    let flag = |name| ATTR_FLAGS.iter().any(|&(bit, known)| known == name && attr.flag(bit));
    d.named::<u32>("type", TYPES)?;
    d.number::<u32>("size")?;
    d.hex::<u64>("config")?;
    d.number::<u64>(if flag("freq") { "sample_freq" } else { "sample_period" })?;
    d.bits::<u64>("sample_type", SAMPLE_TYPE_NAMES)?;
    d.bits::<u64>("read_format", READ_FORMAT_NAMES)?;
    d.take("flags", 8)?;
    d.note("flags", Value::Name(bit_names(attr.flags & !PRECISE_IP, ATTR_FLAGS)));
    d.note("precise_ip", Value::Number(attr.precise_ip().into()));
    d.number::<u32>(if flag("watermark") { "wakeup_watermark" } else { "wakeup_events" })?;
    d.hex::<u32>("bp_type")?;
    d.hex::<u64>("config1")?;
    d.hex::<u64>("config2")?;
    d.bits::<u64>("branch_sample_type", BRANCH_SAMPLE_TYPE_NAMES)?;
    d.hex::<u64>("sample_regs_user")?;
    d.number::<u32>("sample_stack_user")?;
    let clock = d.int::<u32>("clockid")?;
    d.note(
        "clockid",
        if flag("use_clockid") { named(clock.into(), CLOCKS) } else { Value::Number(clock.into()) },
    );
    d.hex::<u64>("sample_regs_intr")?;
    d.number::<u32>("aux_watermark")?;
    d.number::<u16>("sample_max_stack")?;
    d.hex::<u16>("reserved_2")?;
    d.number::<u32>("aux_sample_size")?;
    d.bits::<u32>("aux_action", AUX_ACTIONS)?;
    d.hex::<u64>("sig_data")?;
    d.hex::<u64>("config3")?;
    d.hex::<u64>("config4")?;
    Some(())
}

/// The fields of an attr with the names and the spelling of `perf evlist -v`, so that both outputs can be
/// searched for the same words: type and size always, other fields if they are not zero.
pub fn attr_as_perf(attr: &Attr) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("type", annotated(attr.type_.to_string(), perf_type(attr.type_))),
        ("size", attr.size.to_string()),
        ("config", annotated(plain_hex(attr.config), config_name(attr).map(Cow::into_owned))),
    ];
    let mut note = |name, value: u64, text: String| {
        if value != 0 {
            fields.push((name, text));
        }
    };
    let number = |value: u64| (value, value.to_string());
    let hex = |value: u64| (value, plain_hex(value));
    let bits = |value: u64, names| (value, bit_names(value, names).into_owned());
    let mut all = vec![
        ("{ sample_period, sample_freq }", number(attr.sample_period)),
        ("sample_type", bits(attr.sample_type, SAMPLE_TYPE_NAMES)),
        ("read_format", bits(attr.read_format, READ_FORMAT_NAMES)),
    ];
    let flag = |&(bit, name): &(u32, &'static str)| (name, number(attr.flag(bit).into()));
    // Its two bits are between `watermark` and `mmap_data`.
    let (before, after) = ATTR_FLAGS.split_at(ATTR_FLAGS.partition_point(|(bit, _)| *bit < 15));
    all.extend(before.iter().map(flag));
    all.push(("precise_ip", number(attr.precise_ip().into())));
    all.extend(after.iter().map(flag));
    all.extend([
        ("{ wakeup_events, wakeup_watermark }", number(attr.wakeup_events.into())),
        ("bp_type", number(attr.bp_type.into())),
        ("{ bp_addr, config1 }", hex(attr.config1)),
        ("{ bp_len, config2 }", hex(attr.config2)),
        ("branch_sample_type", bits(attr.branch_sample_type, BRANCH_SAMPLE_TYPE_NAMES)),
        ("sample_regs_user", hex(attr.sample_regs_user)),
        ("sample_stack_user", number(attr.sample_stack_user.into())),
        // A clockid of clock_getcpuclockid(3) is negative.
        ("clockid", (attr.clockid.into(), (attr.clockid as i32).to_string())),
        ("sample_regs_intr", hex(attr.sample_regs_intr)),
        ("aux_watermark", number(attr.aux_watermark.into())),
        ("sample_max_stack", number(attr.sample_max_stack.into())),
        ("aux_sample_size", number(attr.aux_sample_size.into())),
    ]);
    for (bit, name) in [(0, "aux_start_paused"), (1, "aux_pause"), (2, "aux_resume")] {
        all.push((name, number(u64::from(attr.aux_action >> bit & 1))));
    }
    all.extend([
        ("sig_data", number(attr.sig_data)),
        ("config3", hex(attr.config3)),
        ("config4", hex(attr.config4)),
    ]);
    for (name, (value, text)) in all {
        note(name, value, text);
    }
    fields
}

/// The fields of an event's attr like [`attr_as_perf`], with the name after the id of a tracepoint, and the
/// bits of `sample_type` in perf's order, without TRANSACTION, which perf does not list.
pub fn event_as_perf(attr: &Attr, name: &str) -> Vec<(&'static str, String)> {
    let mut fields = attr_as_perf(attr);
    for (field, value) in &mut fields {
        match *field {
            "config" if attr.is_tracepoint() => *value += &format!(" ({name})"),
            "sample_type" => *value = sample_type_as_perf(attr.sample_type),
            _ => {}
        }
    }
    fields
}

fn sample_type_as_perf(bits: u64) -> String {
    let late = !(st::PHYS_ADDR - 1);
    let early = !(late | st::DATA_SRC | st::WEIGHT | st::TRANSACTION);
    let parts = [early, st::DATA_SRC, st::WEIGHT, late].map(|part| bits & part).into_iter();
    let named = parts.filter(|part| *part != 0).map(|part| bit_names(part, SAMPLE_TYPE_NAMES));
    named.collect::<Vec<_>>().join("|")
}

/// Hexadecimal as C's `%#x` prints it: zero has no `0x`.
fn plain_hex(value: u64) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

fn annotated(value: String, name: Option<String>) -> String {
    match name {
        Some(name) => format!("{value} ({name})"),
        None => value,
    }
}

fn perf_type(number: u32) -> Option<String> {
    let (_, name) = TYPES.iter().find(|(known, _)| *known == u64::from(number))?;
    Some(format!("PERF_TYPE_{name}"))
}

/// The properties that perf rejects in an attr of `size` bytes, wherever the attr is stored:
///
/// - `attr-size`: not a multiple of 8 of at least 64, or `attr.size` (0 means 64) is another size. perf
///   refuses the recording.
/// - `attr-bits`: unknown bits are set, so records may have unknown fields. perf does not use the event
///   names.
/// - `read-without-id`: samples hold counters without ids. perf refuses the recording.
pub fn attr_issues(attr: &Attr, size: usize) -> Vec<Issue> {
    let mut odd = Vec::new();
    let mut note = |code, what| odd.push(Issue { code, what });
    let says = if attr.size == 0 { ATTR_SIZE_MIN } else { attr.size as usize };
    if size < ATTR_SIZE_MIN || !size.is_multiple_of(8) || says != size {
        note(FaultCode::AttrSize, format!("an attr of {size} bytes says it has {says}"));
    }
    for (name, bits, names) in [
        ("flags", attr.flags & !PRECISE_IP, ATTR_FLAGS),
        ("sample_type", attr.sample_type, SAMPLE_TYPE_NAMES),
        ("read_format", attr.read_format, READ_FORMAT_NAMES),
        ("branch_sample_type", attr.branch_sample_type, BRANCH_SAMPLE_TYPE_NAMES),
    ] {
        let unknown = bits & !bits_of(names);
        if unknown != 0 {
            note(FaultCode::AttrBits, format!("`{name}` has {}", bit_names(unknown, &[])));
        }
    }
    if attr.sample_type & st::READ != 0 && attr.read_format & 1 << 2 == 0 {
        note(FaultCode::ReadWithoutId, "samples have counters without their ids".to_owned());
    }
    odd
}

/// The attr, `attr.size` bytes (0 means 64), then u64 ids.
pub(super) fn header_attr(d: &mut Reader<'_>) -> Option<()> {
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
