//! The text of `perfx info`: short lines under headings. Long lists are counted; `perfx dump` shows them.

use std::collections::BTreeSet;

use perfx_format::decode::{attr_as_perf, clock_name};
use perfx_format::features::{GroupDesc, grouped_events, read_group_desc};
use perfx_format::header::Severity;
use perfx_format::{Decoded, Endian, Feature, Value};
use perfx_look::clock::rfc3339;
use perfx_look::render::{self, Style, form_name, readable};
use perfx_pipeline::ranges;

use super::facts::{InfoFacts, Section};
use crate::term::units;

pub(super) type Rows = Vec<(String, String)>;

/// All other features are about the recording.
const MACHINE: [Feature; 16] = [
    Feature::HOSTNAME,
    Feature::OSRELEASE,
    Feature::ARCH,
    Feature::E_MACHINE,
    Feature::CPUDESC,
    Feature::CPUID,
    Feature::NRCPUS,
    Feature::CPU_TOPOLOGY,
    Feature::HYBRID_TOPOLOGY,
    Feature::CPU_DOMAIN_INFO,
    Feature::CACHE,
    Feature::CLN_SIZE,
    Feature::TOTAL_MEM,
    Feature::NUMA_TOPOLOGY,
    Feature::MEM_TOPOLOGY,
    Feature::PMU_MAPPINGS,
];

/// More features about the machine, possibly long.
const PMUS: [Feature; 2] = [Feature::CPU_PMU_CAPS, Feature::PMU_CAPS];

/// Everything about the recording except its events.
pub(super) fn headings(facts: &InfoFacts<'_>) -> [(&'static str, Rows); 5] {
    let machine: Vec<Feature> = MACHINE.into_iter().chain(PMUS).collect();
    let of_machine = machine.iter().flat_map(|feature| facts.features.iter().find(|s| s.feature == *feature));
    let mut others: Vec<_> = facts.features.iter().filter(|s| !machine.contains(&s.feature)).collect();
    // The program that wrote the recording comes first.
    others.sort_by_key(|section| match section.feature {
        Feature::CMDLINE => 0,
        Feature::VERSION => 1,
        _ => 2,
    });
    [
        ("recording", recording(facts)),
        ("machine", of_machine.flat_map(rows).collect()),
        ("time", time(facts)),
        ("contents", others.into_iter().flat_map(rows).chain(counts(facts)).collect()),
        ("faults", faults(facts)),
    ]
}

pub(super) fn page(facts: &InfoFacts<'_>) -> String {
    let headings = headings(facts);
    let widest = |rows: &Rows| rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let width = headings.iter().map(|(_, rows)| widest(rows)).max().unwrap_or(0);
    let events = ("events", events(facts));
    let narrow = widest(&events.1);
    let headings = headings.into_iter().map(|heading| (heading, width)).chain([(events, narrow)]);
    let mut page = String::new();
    for ((heading, rows), width) in headings.filter(|((_, rows), _)| !rows.is_empty()) {
        page += &format!("{heading}\n");
        for (label, text) in rows {
            page += format!("  {label:width$}  {text}").trim_end();
            page += "\n";
        }
    }
    page
}

fn row(label: &str, text: impl Into<String>) -> (String, String) {
    (label.to_owned(), text.into())
}

fn recording(facts: &InfoFacts<'_>) -> Rows {
    let recording = facts.recording;
    let order = if recording.endian == Endian::Little { "little-endian" } else { "big-endian" };
    let mut rows = vec![row("name", readable(recording.name.as_bytes()))];
    let Some(file) = &recording.file else {
        rows.push(row("form", format!("{}, {order}", form_name(recording.form))));
        return rows;
    };
    let version = if file.magic.version1 { "1 (PERFFILE)" } else { "2" };
    rows.push(row("form", format!("{}, version {version}, {order}", form_name(recording.form))));
    let at = |size, offset| format!("{} at {offset:#x}", units::size(size));
    rows.push(row("header", units::size(file.magic.size)));
    rows.push(row("attrs", at(file.attrs.size, file.attrs.offset)));
    rows.push(row("data", at(file.data.size, file.data.offset)));
    if !file.sections.is_empty() {
        let size = file.sections.iter().map(|(_, section)| section.size).fold(0, u64::saturating_add);
        let table = file.data.end();
        rows.push(row(
            "features",
            format!("{}, {}, table at {table:#x}", file.sections.len(), units::size(size)),
        ));
    }
    rows
}

fn time(facts: &InfoFacts<'_>) -> Rows {
    let clock = &facts.clock;
    let name = match clock.id {
        None => "perf clock (starts near boot)".to_owned(),
        Some(id) => match clock_name(id) {
            Some(name) => format!("CLOCK_{name} ({id})"),
            None => format!("clock {}", id as i32),
        },
    };
    let mut rows = vec![row("clock", name)];
    let resolution = field(facts.feature(Feature::CLOCKID), "resolution_ns").and_then(|ns| ns.number());
    // perf stat record writes zeros here, in COMPRESSED and in CLOCK_DATA.
    if let Some(ns) = resolution.filter(|&ns| ns > 0) {
        rows.push(row("resolution", format!("{} ns", units::count(ns))));
    }
    if let Some(reference) = clock.reference {
        let text = format!("{} is {}", units::time(reference.clock_ns), rfc3339(reference.wall_ns));
        rows.push(row("wall clock", text));
    }
    // Zeros come from writers without the times: of pipe data, or of a file for each buffer.
    let Some(times) = facts.times.filter(|times| times.last_ns > 0) else {
        rows.push(row("samples", "no times in the header"));
        return rows;
    };
    for (label, ns) in [("first sample", times.first_ns), ("last sample", times.last_ns)] {
        let wall = facts.wall(ns).map(|wall| format!("  {wall}")).unwrap_or_default();
        rows.push(row(label, units::time(ns) + &wall));
    }
    let duration = times.last_ns.checked_sub(times.first_ns);
    let duration =
        duration.map_or_else(|| "unknown: the last sample is before the first".to_owned(), units::duration);
    rows.push(row("duration", duration));
    rows
}

fn counts(facts: &InfoFacts<'_>) -> Rows {
    let recording = facts.recording;
    let ids = recording.events.iter().map(|event| event.ids.len() as u64).sum();
    let mut rows = Rows::new();
    if !facts.tracers.names.is_empty() {
        rows.push(row("AUX tracer", facts.tracers.names.join(", ")));
    }
    if !facts.tracers.traced.is_empty() {
        rows.push(row("traced", facts.tracers.traced.join(", ")));
    }
    rows.push(row("events", units::count(recording.events.len() as u64)));
    rows.push(row("event ids", units::count(ids)));
    if recording.stream_count() > 1 {
        rows.push(row("files", units::count(recording.stream_count() as u64)));
    }
    let size = recording.data_size().map_or_else(|| "unknown until the pipe ends".to_owned(), units::size);
    rows.push(row("records", size));
    rows
}

pub(super) fn events(facts: &InfoFacts<'_>) -> Rows {
    let recording = facts.recording;
    let section = recording.features.get(&Feature::GROUP_DESC);
    let groups = section.and_then(|section| read_group_desc(section, recording.endian)).unwrap_or_default();
    let grouped = grouped_events(&groups, recording.events.len()).into_iter();
    let mut group_of = grouped.flat_map(|(events, group)| events.map(move |_| group));
    let mut rows = Rows::new();
    for (index, (event, name)) in recording.events.iter().zip(&facts.names).enumerate() {
        let mut text = readable(&name.name);
        if let Some(number) = group_of.next().flatten() {
            let group = &groups[number];
            let role = if group.leader as usize == index { "leads" } else { "in" };
            let name = if group.name == GroupDesc::NO_NAME {
                String::new()
            } else {
                format!(" {}", readable(group.name))
            };
            text += &format!(", {role} group {number}{name}");
        }
        let ids = ranges(event.ids.iter().copied(), "-", ",");
        match event.ids.len() {
            0 => {}
            1 => text += &format!(", id {ids}"),
            count => text += &format!(", {} ids: {ids}", units::count(count as u64)),
        }
        rows.push((index.to_string(), text));
        let fields = attr_as_perf(event.attr()).into_iter().map(|(name, value)| {
            match (name, facts.pmu(event.attr().type_)) {
                ("type", Some(pmu)) if !value.contains('(') => format!("{name}: {value} ({})", readable(pmu)),
                _ => format!("{name}: {value}"),
            }
        });
        rows.push((String::new(), fields.collect::<Vec<_>>().join(", ")));
    }
    rows
}

fn faults(facts: &InfoFacts<'_>) -> Rows {
    let mut rows = Rows::new();
    for fault in &facts.recording.faults {
        let weight = match fault.severity {
            Severity::Odd => "odd",
            Severity::Loss => "lost",
            Severity::Fatal => "fatal",
        };
        rows.push(row(
            fault.code.as_str(),
            format!("{weight}, at {:#x}: {}", fault.offset, render::readable(fault.what.as_bytes())),
        ));
    }
    for section in &facts.features {
        for odd in &section.decoded.issues {
            rows.push(row(
                odd.code.as_str(),
                format!("feature {}: {}", section.feature, readable(odd.what.as_bytes())),
            ));
        }
    }
    rows
}

fn field<'v, 'a>(decoded: Option<&'v Decoded<'a>>, name: &str) -> Option<&'v Value<'a>> {
    decoded?.get(name)
}

/// A value for people: numbers in decimal, text without quotes.
fn plain(value: Option<&Value<'_>>) -> String {
    match value {
        None => "?".to_owned(),
        Some(Value::Text(text)) => readable(text),
        Some(value) => render::value(value, Style::default()),
    }
}

fn rows(section: &Section<'_>) -> Rows {
    let decoded = &section.decoded;
    let get = |name| plain(decoded.get(name));
    let items = |name| decoded.get(name).map_or(&[][..], |list| list.items());
    let number = |value: &Value<'_>, name: &str| value.get(name).and_then(|value| value.number());
    let list = |name| items(name).iter().map(|item| plain(Some(item))).collect::<Vec<_>>().join("  ");
    let counted = |name| units::count(items(name).len() as u64);
    let kib = |kb: Option<u64>| kb.map_or_else(|| "?".to_owned(), |kb| units::size(kb.saturating_mul(1024)));
    let one = |label: &str, text: String| vec![row(label, text)];
    match section.feature {
        Feature::HOSTNAME => one("host", get("text")),
        Feature::OSRELEASE => one("kernel", get("text")),
        Feature::VERSION => one("perf version", get("text")),
        Feature::ARCH => one("architecture", get("text")),
        Feature::CPUDESC => one("CPU", get("text")),
        Feature::CPUID => one("CPU id", get("text")),
        Feature::NRCPUS => one("CPUs", format!("{} online of {}", get("online"), get("available"))),
        Feature::E_MACHINE => one("ELF machine", format!("{}, flags {}", get("e_machine"), get("e_flags"))),
        Feature::TOTAL_MEM => one("memory", kib(decoded.get("kb").and_then(|kb| kb.number()))),
        Feature::CLN_SIZE => one("cache line", format!("{} bytes", get("size"))),
        Feature::CMDLINE => {
            let words = items("arguments").iter();
            let words = words.map(|word| render::value(word, Style::default()));
            one("command", words.collect::<Vec<_>>().join(" "))
        }
        Feature::CPU_TOPOLOGY => topology(decoded, &list),
        Feature::NUMA_TOPOLOGY => items("nodes")
            .iter()
            .map(|node| {
                let (total, free) = (kib(number(node, "total_kb")), kib(number(node, "free_kb")));
                let cpus = plain(node.get("cpus"));
                row("NUMA node", format!("{}: CPUs {cpus}, {total}, {free} free", plain(node.get("node"))))
            })
            .collect(),
        Feature::MEM_TOPOLOGY => memory(decoded, &number),
        Feature::CACHE => caches(items("caches")),
        Feature::PMU_MAPPINGS => {
            let pmus = items("pmus").iter();
            let pmus = pmus.map(|pmu| format!("{} {}", plain(pmu.get("name")), plain(pmu.get("type"))));
            one("PMUs", pmus.collect::<Vec<_>>().join(", "))
        }
        Feature::CPU_PMU_CAPS => one("CPU PMU", capabilities(items("capabilities"))),
        Feature::PMU_CAPS => items("pmus")
            .iter()
            .map(|pmu| {
                let all = pmu.get("capabilities").map_or(&[][..], |list| list.items());
                row("PMU", format!("{}: {}", plain(pmu.get("name")), capabilities(all)))
            })
            .collect(),
        Feature::HYBRID_TOPOLOGY => items("pmus")
            .iter()
            .map(|pmu| {
                row("CPU type", format!("{}: CPUs {}", plain(pmu.get("name")), plain(pmu.get("cpus"))))
            })
            .collect(),
        Feature::CPU_DOMAIN_INFO => {
            let names =
                items("cpus").iter().flat_map(|cpu| cpu.get("domains").map_or(&[][..], |list| list.items()));
            let names: BTreeSet<String> = names
                .map(|domain| {
                    format!(
                        "{} ({})",
                        plain(domain.get("name").or(domain.get("domain"))),
                        plain(domain.get("cpus"))
                    )
                })
                .collect();
            one("domains", names.into_iter().collect::<Vec<_>>().join(", "))
        }
        Feature::TRACING_DATA => {
            let systems = items("systems").iter();
            let events = systems
                .map(|system| system.get("events").map_or(0, |list| list.items().len()))
                .sum::<usize>();
            one(
                "tracepoints",
                format!("formats of {}, {}", units::count(events as u64), units::size(section.size)),
            )
        }
        Feature::BUILD_ID => one("build-ids", counted("dsos")),
        Feature::BRANCH_STACK => one("samples", "with branch stacks".to_owned()),
        Feature::STAT => one("made by", "perf stat".to_owned()),
        Feature::AUXTRACE => one("AUX data", format!("{} records in the index", counted("entries"))),
        Feature::DIR_FORMAT => one("directory", format!("version {}", get("version"))),
        // perf writes these two even if they are empty.
        Feature::BPF_PROG_INFO if decoded.issues.is_empty() && items("programs").is_empty() => Rows::new(),
        Feature::BPF_BTF if decoded.issues.is_empty() && items("btfs").is_empty() => Rows::new(),
        Feature::BPF_PROG_INFO => one("BPF programs", counted("programs")),
        Feature::BPF_BTF => one("BPF types", counted("btfs")),
        Feature::COMPRESSED if decoded.get("mmap_len").and_then(|len| len.number()) == Some(0) => Rows::new(),
        Feature::COMPRESSED => {
            let method = match decoded.get("method").and_then(|method| method.number()) {
                Some(1) => "zstd".to_owned(),
                _ => format!("method {}", get("method")),
            };
            let (level, ratio) = (get("level"), get("ratio"));
            one("compression", format!("{method}, level {level}, about {ratio} : 1"))
        }
        // Shown elsewhere.
        Feature::EVENT_DESC
        | Feature::GROUP_DESC
        | Feature::SAMPLE_TIME
        | Feature::CLOCKID
        | Feature::CLOCK_DATA => Rows::new(),
        feature => one("feature", format!("{feature}, {}", units::size(section.size))),
    }
}

fn topology(decoded: &Decoded<'_>, list: &dyn Fn(&'static str) -> String) -> Rows {
    let mut rows = Rows::new();
    for (label, name) in [("packages", "packages"), ("dies", "dies"), ("cores", "threads")] {
        if decoded.get(name).is_some() {
            rows.push(row(label, format!("CPUs {}", list(name))));
        }
    }
    rows
}

/// Equal caches in one line, with the CPUs that share each of them.
fn caches(all: &[Value<'_>]) -> Rows {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for cache in all {
        let [level, kind, size, cpus] = ["level", "type", "size", "cpus"].map(|name| plain(cache.get(name)));
        let what = format!("L{level} {kind:<11} {size:>7}");
        match lines.iter_mut().find(|(other, _)| *other == what) {
            Some((_, all)) => all.push(cpus),
            None => lines.push((what, vec![cpus])),
        }
    }
    lines.into_iter().map(|(what, cpus)| row("cache", format!("{what}, CPUs {}", cpus.join("  ")))).collect()
}

fn memory(decoded: &Decoded<'_>, number: &dyn Fn(&Value<'_>, &str) -> Option<u64>) -> Rows {
    let block = decoded.get("block_size").and_then(|size| size.number()).unwrap_or(0);
    let nodes = decoded.get("nodes").map_or(&[][..], |nodes| nodes.items());
    let node = |node: &Value<'_>| {
        let words = node.get("bitmap").map_or(&[][..], |bitmap| bitmap.items());
        let words = words.iter().enumerate().filter_map(|(index, word)| Some((index as u64, word.number()?)));
        let blocks: Vec<u64> = words
            .flat_map(|(index, word)| {
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
            })
            .collect();
        let size = units::size(block.saturating_mul(blocks.len() as u64));
        let which = ranges(blocks, "-", ",");
        let text = format!(
            "{}: {size} in blocks {which} of {}",
            number(node, "node").unwrap_or(0),
            units::size(block)
        );
        row("memory node", text)
    };
    nodes.iter().map(node).collect()
}

fn capabilities(all: &[Value<'_>]) -> String {
    let one = |item: &Value<'_>| format!("{}={}", plain(item.get("name")), plain(item.get("value")));
    if all.is_empty() {
        "no capabilities".to_owned()
    } else {
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
