//! Derives the name that perf gives an event from its type and config alone.

use std::borrow::Cow;

use crate::Attr;

/// Config, perf's name, the kernel's name.
type Names = [(u64, &'static str, &'static str)];

const HARDWARE: &Names = &[
    (0, "cycles", "PERF_COUNT_HW_CPU_CYCLES"),
    (1, "instructions", "PERF_COUNT_HW_INSTRUCTIONS"),
    (2, "cache-references", "PERF_COUNT_HW_CACHE_REFERENCES"),
    (3, "cache-misses", "PERF_COUNT_HW_CACHE_MISSES"),
    (4, "branches", "PERF_COUNT_HW_BRANCH_INSTRUCTIONS"),
    (5, "branch-misses", "PERF_COUNT_HW_BRANCH_MISSES"),
    (6, "bus-cycles", "PERF_COUNT_HW_BUS_CYCLES"),
    (7, "stalled-cycles-frontend", "PERF_COUNT_HW_STALLED_CYCLES_FRONTEND"),
    (8, "stalled-cycles-backend", "PERF_COUNT_HW_STALLED_CYCLES_BACKEND"),
    (9, "ref-cycles", "PERF_COUNT_HW_REF_CPU_CYCLES"),
];

const SOFTWARE: &Names = &[
    (0, "cpu-clock", "PERF_COUNT_SW_CPU_CLOCK"),
    (1, "task-clock", "PERF_COUNT_SW_TASK_CLOCK"),
    (2, "page-faults", "PERF_COUNT_SW_PAGE_FAULTS"),
    (3, "context-switches", "PERF_COUNT_SW_CONTEXT_SWITCHES"),
    (4, "cpu-migrations", "PERF_COUNT_SW_CPU_MIGRATIONS"),
    (5, "minor-faults", "PERF_COUNT_SW_PAGE_FAULTS_MIN"),
    (6, "major-faults", "PERF_COUNT_SW_PAGE_FAULTS_MAJ"),
    (7, "alignment-faults", "PERF_COUNT_SW_ALIGNMENT_FAULTS"),
    (8, "emulation-faults", "PERF_COUNT_SW_EMULATION_FAULTS"),
    (9, "dummy", "PERF_COUNT_SW_DUMMY"),
    (10, "bpf-output", "PERF_COUNT_SW_BPF_OUTPUT"),
    (11, "cgroup-switches", "PERF_COUNT_SW_CGROUP_SWITCHES"),
];

const CACHES: &Names = &[
    (0, "L1-dcache", "PERF_COUNT_HW_CACHE_L1D"),
    (1, "L1-icache", "PERF_COUNT_HW_CACHE_L1I"),
    (2, "LLC", "PERF_COUNT_HW_CACHE_LL"),
    (3, "dTLB", "PERF_COUNT_HW_CACHE_DTLB"),
    (4, "iTLB", "PERF_COUNT_HW_CACHE_ITLB"),
    (5, "branch", "PERF_COUNT_HW_CACHE_BPU"),
    (6, "node", "PERF_COUNT_HW_CACHE_NODE"),
];

const CACHE_OPS: &Names = &[
    (0, "load", "PERF_COUNT_HW_CACHE_OP_READ"),
    (1, "store", "PERF_COUNT_HW_CACHE_OP_WRITE"),
    (2, "prefetch", "PERF_COUNT_HW_CACHE_OP_PREFETCH"),
];

const CACHE_RESULTS: &Names =
    &[(0, "refs", "PERF_COUNT_HW_CACHE_RESULT_ACCESS"), (1, "misses", "PERF_COUNT_HW_CACHE_RESULT_MISS")];

fn find(names: &Names, config: u64) -> Option<(&'static str, &'static str)> {
    names.iter().find(|(known, _, _)| *known == config).map(|&(_, perf, kernel)| (perf, kernel))
}

/// Cache, operation and result of an event of type HW_CACHE, or perf's words for the error.
fn cache(config: u64) -> Result<[(&'static str, &'static str); 3], &'static str> {
    let part = |names, shift: u32| find(names, config >> shift & 0xff);
    Ok([
        part(CACHES, 0).ok_or("unknown-ext-hardware-cache-type")?,
        part(CACHE_OPS, 8).ok_or("unknown-ext-hardware-cache-op")?,
        part(CACHE_RESULTS, 16).ok_or("unknown-ext-hardware-cache-result")?,
    ])
}

fn cache_name(config: u64) -> String {
    match cache(config) {
        Err(unknown) => unknown.to_owned(),
        Ok([("iTLB" | "branch", _), ("store" | "prefetch", _), _] | [("L1-icache", _), ("store", _), _]) => {
            "invalid-cache".to_owned()
        }
        Ok([(cache, _), ("prefetch", _), ("refs", _)]) => format!("{cache}-prefetches"),
        Ok([(cache, _), (op, _), ("refs", _)]) => format!("{cache}-{op}s"),
        Ok([(cache, _), (op, _), (result, _)]) => format!("{cache}-{op}-{result}"),
    }
}

/// The kernel header's name for `attr.config`, for the types it defines.
pub(crate) fn config_name(attr: &Attr) -> Option<Cow<'static, str>> {
    match attr.type_ {
        0 => find(HARDWARE, attr.config_on_any_pmu()).map(|(_, kernel)| kernel.into()),
        1 => find(SOFTWARE, attr.config).map(|(_, kernel)| kernel.into()),
        3 => {
            let [(_, cache), (_, op), (_, result)] = cache(attr.config_on_any_pmu()).ok()?;
            Some(format!("{result} | {op} | {cache}").into())
        }
        _ => None,
    }
}

/// The name that perf 7.3 derives for an event without one: the counted event, then modifiers. perf before
/// 6.13 adds `:HG` for events that also count in guests.
pub(crate) fn made_name(attr: &Attr) -> String {
    let config = attr.config_on_any_pmu();
    let known = |names, unknown: &str| find(names, config).map_or(unknown, |(perf, _)| perf).to_owned();
    let name = match attr.type_ {
        0 => known(HARDWARE, "unknown-hardware"),
        1 => known(SOFTWARE, "unknown-software"),
        2 => return "unknown tracepoint".to_owned(),
        3 => cache_name(config),
        4 => format!("raw {config:#x}"),
        5 => {
            let access = [(1, "r"), (2, "w"), (4, "x")];
            let access = access.map(|(bit, letter)| if attr.bp_type & bit != 0 { letter } else { "" });
            format!("mem:{:#x}:{}", attr.config1, access.concat())
        }
        other => return format!("unknown event PMU={other} config={config:#x}"),
    };
    name + &modifiers(attr)
}

/// Other names that perf accepts for an event, and one that Arm's PMUs have in sysfs.
const ALIASES: [(&str, &str); 8] = [
    ("cpu-cycles", "cycles"),
    ("cpu_cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("faults", "page-faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
];

/// The counted event in perf's words, without modifiers; `None` if type and config do not determine it.
pub(crate) fn counted_name(attr: &Attr) -> Option<String> {
    let mut name = matches!(attr.type_, 0 | 1 | 3).then(|| made_name(attr))?;
    name.truncate(name.find(':').unwrap_or(name.len()));
    Some(name)
}

pub(crate) fn without_alias(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name)
}

/// `:u`, `:kpp`, `:H`: the measured levels unless all are, the precision, then host or guest unless both are.
pub(crate) fn modifiers(attr: &Attr) -> String {
    let mut text = String::new();
    let mut measured = |levels: &[(u32, char)]| {
        if levels.iter().any(|&(excluded, _)| attr.flag(excluded)) {
            text.extend(
                levels.iter().filter(|&&(excluded, _)| !attr.flag(excluded)).map(|(_, letter)| letter),
            );
        }
        text.len()
    };
    let levels = measured(&[(5, 'k'), (4, 'u'), (6, 'h')]);
    measured(&[(19, 'H'), (20, 'G')]);
    text.insert_str(levels, &"p".repeat(attr.precise_ip().into()));
    if text.is_empty() { text } else { format!(":{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(type_: u32, config: u64) -> String {
        made_name(&Attr { type_, config, ..Attr::default() })
    }

    #[test]
    fn names_are_those_of_perf() {
        let names = [
            (name(0, 0), "cycles"),
            (name(0, 99), "unknown-hardware"),
            (name(1, 9), "dummy"),
            (name(2, 300), "unknown tracepoint"),
            (name(3, 0x10000), "L1-dcache-load-misses"),
            (name(3, 0x00203), "dTLB-prefetches"),
            (name(3, 0x00102), "LLC-stores"),
            (name(3, 0x77), "unknown-ext-hardware-cache-type"),
            (name(3, 0x104), "invalid-cache"),
            (name(4, 0x1a8), "raw 0x1a8"),
            (name(42, 1), "unknown event PMU=42 config=0x1"),
        ];
        for (made, expected) in names {
            assert_eq!(made, expected);
        }
        let memory = Attr { type_: 5, bp_type: 3, config1: 0x1000, ..Attr::default() };
        assert_eq!(made_name(&memory), "mem:0x1000:rw");
        // The names that perf 7.3 shows.
        for (bits, expected) in [
            (1 << 4, ":kh"),
            (1 << 5, ":uh"),
            (1 << 4 | 1 << 5 | 1 << 6, ""),
            (1 << 15, ":p"),
            (1 << 19, ":G"),
            (1 << 20, ":H"),
            (1 << 19 | 1 << 20, ""),
            (1 << 5 | 1 << 16 | 1 << 20, ":uhppH"),
        ] {
            let attr = Attr { type_: 1, flags: bits, ..Attr::default() };
            assert_eq!(made_name(&attr), format!("cpu-clock{expected}"));
        }
    }
}
