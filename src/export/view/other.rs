//! Writes records other than samples as `perf script` does with `--show-KIND-events`.

use clap::ValueEnum;
use perfx_format::decode::{decode, misc_names};
use perfx_format::record::bpf_event::bpf_kind;
use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::{Kinds, Layouts, Mmap, Record, RecordType, Value, hex};
use perfx_look::render::readable;

/// Kinds of records that are shown among samples, by perf's name of the option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "`kinds` lists them")]
pub enum ShownRecords {
    Task,
    Mmap,
    Switch,
    Lost,
    Namespace,
    Cgroup,
    Bpf,
}

impl ShownRecords {
    pub(super) fn kinds(self) -> Kinds {
        Kinds::of(match self {
            ShownRecords::Task => &[RecordType::COMM, RecordType::FORK, RecordType::EXIT],
            ShownRecords::Mmap => &[RecordType::MMAP, RecordType::MMAP2],
            ShownRecords::Switch => &[RecordType::SWITCH, RecordType::SWITCH_CPU_WIDE],
            ShownRecords::Lost => &[RecordType::LOST],
            ShownRecords::Namespace => &[RecordType::NAMESPACES],
            ShownRecords::Cgroup => &[RecordType::CGROUP],
            ShownRecords::Bpf => &[RecordType::KSYMBOL, RecordType::BPF_EVENT],
        })
    }
}

pub(super) fn text(record: &Record<'_>, layouts: &Layouts) -> String {
    let (kind, decoded) = (record.kind(), decode(record, layouts));
    let number = |name: &str| decoded.get(name).and_then(Value::number).unwrap_or(0);
    let signed = |name: &str| match decoded.get(name) {
        Some(Value::Signed(number)) => *number,
        _ => i64::from(number(name) as i32),
    };
    let name = |name: &str| decoded.get(name).and_then(Value::text).map(readable).unwrap_or_default();
    let misc = misc_names(kind, record.misc());
    let has = |flag: &str| misc.split('|').any(|name| name == flag);
    let fields = match kind {
        RecordType::COMM => {
            let exec = if has("COMM_EXEC") { " exec" } else { "" };
            format!("{exec}: {}:{}/{}\n", name("comm"), signed("pid"), signed("tid"))
        }
        RecordType::FORK | RecordType::EXIT => {
            let [pid, tid, ppid, ptid] = ["pid", "tid", "ppid", "ptid"].map(signed);
            format!("({pid}:{tid}):({ppid}:{ptid})\n")
        }
        RecordType::MMAP | RecordType::MMAP2 => {
            let [start, len, offset] = ["addr", "len", "pgoff"].map(|name| alternate(number(name)));
            let file = match decoded.get("build_id") {
                _ if kind == RecordType::MMAP => String::new(),
                Some(Value::Bytes(id)) => format!(" <{}>", hex(id)),
                _ => {
                    let [major, minor, inode, generation] =
                        ["maj", "min", "ino", "ino_generation"].map(number);
                    format!(" {major:02x}:{minor:02x} {inode} {generation}")
                }
            };
            let access = match Mmap::of(record).and_then(|mmap| mmap.access()) {
                Some(access) => access,
                None if has("MMAP_DATA") => "r".to_owned(),
                None => "x".to_owned(),
            };
            let (pid, tid, path) = (signed("pid"), signed("tid"), name("filename"));
            format!(" {pid}/{tid}: [{start}({len}) @ {offset}{file}]: {access} {path}\n")
        }
        RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE => {
            let is_out = has("SWITCH_OUT");
            let way = match (is_out, has("SWITCH_OUT_PREEMPT")) {
                (true, true) => "OUT preempt",
                (true, false) => "OUT        ",
                (false, _) => "IN         ",
            };
            let other = match kind {
                RecordType::SWITCH => String::new(),
                _ => {
                    let which = if is_out { "next" } else { "prev" };
                    let (pid, tid) = (signed("next_prev_pid"), signed("next_prev_tid"));
                    format!("  {which} pid/tid: {pid:5}/{tid:<5}")
                }
            };
            format!(" {way}{other}\n")
        }
        RecordType::LOST => format!(" lost {}\n", number("lost")),
        RecordType::NAMESPACES => {
            let all = decoded.get("link_info").map(Value::items).unwrap_or_default();
            let one = |(at, namespace): (usize, &Value<'_>)| {
                let part = |name: &str| namespace.get(name).and_then(Value::number).unwrap_or(0);
                let kind = match namespace.get("ns") {
                    Some(Value::Name(kind)) => kind,
                    _ => "unknown",
                };
                let before = if at > 0 && at % 4 == 0 { "\n\t\t " } else { "" };
                let after = if at + 1 == all.len() { "]\n" } else { ", " };
                format!("{before}{at}/{kind}: {}/{:#x}{after}", part("dev"), part("ino"))
            };
            let each: String = all.iter().enumerate().map(one).collect();
            format!(" {}/{} - nr_namespaces: {}\n\t\t[{each}", signed("pid"), signed("tid"), all.len())
        }
        RecordType::CGROUP => format!(" cgroup: {} {}\n", number("id"), name("path")),
        RecordType::KSYMBOL => {
            let Some(Ksymbol { address, length, kind, flags, .. }) = Ksymbol::of(record) else {
                return String::new();
            };
            format!(" addr {address:x} len {length} type {kind} flags {flags:#x} name {}\n", name("name"))
        }
        RecordType::BPF_EVENT => {
            let kind = bpf_kind(record).unwrap_or_default();
            format!(" type {kind}, flags {}, id {}\n", number("flags"), number("id"))
        }
        _ => "\n".to_owned(),
    };
    format!("PERF_RECORD_{}{fields}", kind.name().unwrap_or_default())
}

/// Hexadecimal as C's `%#x`: 0 has no prefix.
fn alternate(number: u64) -> String {
    if number == 0 { "0".to_owned() } else { format!("{number:#x}") }
}
