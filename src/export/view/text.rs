//! Writes the parts of a sample as `perf script` does.

use perfx_format::record::cpumode::{GUEST_KERNEL, GUEST_USER, HYPERVISOR, KERNEL, USER};
use perfx_format::sample::registers::{ABI_NONE, name};
use perfx_format::sample::{BranchFlags, Regs};
use perfx_look::clock::rfc3339;
use perfx_look::render::{push_number, readable};

use super::form::FrameForm;
use super::names::Called;

/// Appends text, right-aligned to a width. `format!` takes three times as long.
pub(super) fn push_wide(out: &mut Vec<u8>, width: usize, push: impl FnOnce(&mut Vec<u8>)) {
    let from = out.len();
    push(out);
    let (end, wide) = (out.len(), from + width);
    if end < wide {
        out.resize(wide, b' ');
        out.copy_within(from..end, from + wide - end);
        out[from..from + wide - end].fill(b' ');
    }
}

pub(super) fn push_cpu(out: &mut Vec<u8>, cpu: i32) {
    match cpu {
        0..1000 => {
            // Four digits; the leading 1 becomes the bracket.
            let bracket = out.len();
            push_number(out, 1000 + cpu);
            out[bracket] = b'[';
        }
        _ => out.extend_from_slice(format!("[{cpu:03}").as_bytes()),
    }
    out.extend_from_slice(b"] ");
}

/// Appends a time, ns, in seconds with nine or six digits after the point.
pub(super) fn push_time(out: &mut Vec<u8>, time: u64, nanoseconds: bool) {
    let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
    push_wide(out, if nanoseconds { 15 } else { 12 }, |out| {
        push_number(out, seconds);
        // Ten digits; the leading 1 becomes the point.
        let point = out.len();
        push_number(out, rest + 1_000_000_000);
        out[point] = b'.';
        out.truncate(if nanoseconds { out.len() } else { out.len() - 3 });
    });
    out.extend_from_slice(b": ");
}

/// Appends a number in hexadecimal, 16 characters wide.
pub(super) fn push_address(out: &mut Vec<u8>, address: u64) {
    let mut digits = [b' '; 16];
    let mut rest = address;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits);
}

pub(super) fn push_call(out: &mut Vec<u8>, form: FrameForm, call: &Called, past: u64) {
    let Called { name, offset, inlined, dso, dsoff, line } = call;
    if form.sym {
        out.push(b' ');
        match name {
            Some(name) => out.extend_from_slice(readable(name.as_bytes()).as_bytes()),
            None => out.extend_from_slice(b"[unknown]"),
        }
        if form.symoff && name.is_some() {
            out.extend_from_slice(format!("+{:#x}", offset.wrapping_add(past)).as_bytes());
        }
    }
    if form.dso && !inlined {
        let file = dso.as_ref().map_or_else(|| "[unknown]".to_owned(), |dso| readable(dso));
        let at = dsoff.filter(|_| form.dsoff).map(|at| format!("+{:#x}", at.wrapping_add(past)));
        out.extend_from_slice(format!(" ({file}{})", at.unwrap_or_default()).as_bytes());
    }
    if let Some(line) = line {
        out.extend_from_slice(format!("\n  {line}").as_bytes());
    }
    if *inlined {
        out.extend_from_slice(b" (inlined)");
    }
}

pub(super) fn push_registers(out: &mut Vec<u8>, regs: Option<Regs<'_>>, machine: &str) {
    let Some(regs) = regs.filter(|regs| regs.abi != ABI_NONE) else { return };
    out.extend_from_slice(format!(" ABI:{} ", regs.abi).as_bytes());
    for (number, value) in regs.iter() {
        let name = name(machine, number).unwrap_or("unknown".into());
        out.extend_from_slice(format!("{name:>5}:{value:#x} ").as_bytes());
    }
}

pub(super) fn shown_flags(flags: BranchFlags) -> String {
    let part = |name: &str| flags.parts().find(|(known, _)| *known == name).map(|(_, value)| value);
    let bit = |mask: u64, shown: &'static str| if flags.0 & mask != 0 { shown } else { "-" };
    let predicted = match (flags.predicted(), flags.mispred()) {
        (true, _) => "P",
        (_, true) => "M",
        _ => "-",
    };
    let not_taken = if flags.0 & BranchFlags::NOT_TAKEN != 0 { "N" } else { "" };
    let (in_tx, abort) = (bit(BranchFlags::IN_TX, "X"), bit(BranchFlags::ABORT, "A"));
    let kind = flags.kind_name().unwrap_or_default();
    let spec = part("spec").unwrap_or("-".into());
    format!("{predicted}{not_taken}/{in_tx}/{abort}/{}/{kind}/{spec}", flags.cycles())
}

/// The letters of a record's cpumode, as in perf: one for each mode whose bits are all set.
pub(super) fn mode_letters(mode: u16) -> String {
    let modes = [(KERNEL, 'K'), (USER, 'U'), (HYPERVISOR, 'H'), (GUEST_KERNEL, 'G'), (GUEST_USER, 'g')];
    modes.iter().filter(|(bits, _)| mode & bits == *bits).map(|(_, letter)| *letter).collect()
}

/// ns since 1970 as date and time in UTC, in place of perf's local time.
pub(super) fn time_of_day(ns: u64, nanoseconds: bool) -> String {
    let mut text = rfc3339(ns).replace('T', " ");
    text.truncate("1970-01-01 00:00:00.".len() + if nanoseconds { 9 } else { 6 });
    text
}

/// A size in perf's form: a whole number of the largest unit that fits at least twice.
pub(super) fn page_size(mut bytes: u64) -> String {
    if bytes == 0 {
        return "N/A".to_owned();
    }
    let mut units = "BKMG".chars();
    let mut unit = units.next();
    while bytes / 1024 > 1
        && let Some(next) = units.next()
    {
        bytes /= 1024;
        unit = Some(next);
    }
    format!("{bytes}{}", unit.unwrap_or('B'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_wide_as_those_of_format() {
        for number in [0, 7, 99, 100, 999, 1000, 123_456_789_012, u64::MAX] {
            let mut text = Vec::new();
            push_wide(&mut text, 7, |out| push_number(out, number));
            push_cpu(&mut text, number as i32);
            push_address(&mut text, number);
            push_time(&mut text, number, false);
            push_time(&mut text, number, true);
            let (seconds, rest, cpu) = (number / 1_000_000_000, number % 1_000_000_000, number as i32);
            let micro = format!("{seconds}.{:06}", rest / 1000);
            let expected = format!("{number:>7}[{cpu:03}] {number:16x}{micro:>12}: {seconds:5}.{rest:09}: ");
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[test]
    fn sizes_of_pages_have_the_largest_unit_of_which_there_are_at_least_two() {
        let cases = [
            (0, "N/A"),
            (1, "1B"),
            (2047, "2047B"),
            (2048, "2K"),
            (4096, "4K"),
            (2 << 20, "2M"),
            (1 << 30, "1024M"),
            (2 << 30, "2G"),
            (1 << 42, "4096G"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(page_size(bytes), expected);
        }
    }

    #[test]
    fn modes_and_times_of_day_are_those_of_perf_script() {
        for (mode, letters) in [(0, ""), (KERNEL, "K"), (USER, "U"), (HYPERVISOR, "KUH"), (GUEST_USER, "KGg")]
        {
            assert_eq!(mode_letters(mode), letters);
        }
        assert_eq!(time_of_day(1_700_000_000_123_456_789, true), "2023-11-14 22:13:20.123456789");
        assert_eq!(time_of_day(1_700_000_000_123_456_789, false), "2023-11-14 22:13:20.123456");
    }

    #[test]
    fn a_branch_shows_prediction_transaction_cycles_kind_and_speculation() {
        let flags = |bits| shown_flags(BranchFlags::made(0, 0, bits));
        assert_eq!(flags(0), "-/-/-/0//-");
        assert_eq!(flags(BranchFlags::PREDICTED), "P/-/-/0//-");
        assert_eq!(flags(BranchFlags::MISPRED | BranchFlags::IN_TX), "M/X/-/0//-");
        assert_eq!(
            flags(BranchFlags::PREDICTED | BranchFlags::NOT_TAKEN | BranchFlags::ABORT),
            "PN/-/A/0//-"
        );
        assert_eq!(shown_flags(BranchFlags::made(1, 7, 3 << 24)), "-/-/-/7/COND/SPEC_CORRECT_PATH");
    }

    #[test]
    fn a_call_shows_the_parts_of_its_form() {
        let named = || Called {
            name: Some("f".into()),
            offset: 0x10,
            inlined: false,
            dso: Some(b"/bin/p"[..].into()),
            dsoff: Some(0x100),
            line: None,
        };
        let call = named();
        let inlined = Called { inlined: true, line: Some("p.c:7".to_owned()), ..named() };
        let nowhere = Called { name: None, dso: None, dsoff: None, ..named() };
        let none = FrameForm::default();
        let all = FrameForm { sym: true, symoff: true, dso: true, dsoff: true, srcline: true };
        for (form, call, expected) in [
            (none, &call, ""),
            (FrameForm { sym: true, ..none }, &call, " f"),
            (FrameForm { dso: true, ..none }, &call, " (/bin/p)"),
            (FrameForm { symoff: true, dsoff: true, ..none }, &call, ""),
            (all, &call, " f+0x13 (/bin/p+0x103)"),
            (all, &inlined, " f+0x13\n  p.c:7 (inlined)"),
            (all, &nowhere, " [unknown] ([unknown])"),
        ] {
            let mut text = Vec::new();
            push_call(&mut text, form, call, 3);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}
