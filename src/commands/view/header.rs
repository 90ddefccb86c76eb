//! Writes the header of a recording as `perf script --header` does, for programs that read its lines.

use std::ops::Range;
use std::time::UNIX_EPOCH;

use perfx_format::decode::{clock_name, event_as_perf};
use perfx_format::event_name::{EventName, event_names};
use perfx_format::features::{
    FeatureContext, GroupDesc, NrCpus, decode_feature, grouped_events, read_group_desc,
};
use perfx_format::read::Recording;
use perfx_format::{Decoded, Event, Feature, Value};
use perfx_look::clock::rfc3339;
use perfx_look::render::readable;

use crate::io::source::Source;
use crate::term::units;

/// The lines, each after a number sign. As in perf, features of pipe data come last; `only` omits them.
pub(super) fn text(source: &Source, recording: &Recording, only: bool) -> String {
    let mut lines = vec!["========".to_owned()];
    let modified = source.metadata().and_then(|metadata| metadata.modified().ok());
    let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    lines.push(format!("captured on    : {}", date(modified.as_nanos() as u64)));
    let file = recording.file.as_ref();
    let (data, table) = file.map_or((Default::default(), 0), |file| (file.data, file.data.end()));
    lines.push("header version : 1".to_owned());
    lines.push(format!("data offset    : {}", data.offset));
    lines.push(format!("data size      : {}", data.size));
    lines.push(format!("feat offset    : {table}"));
    let of_features: Vec<_> =
        recording.features.keys().flat_map(|&feature| lines_of(feature, recording)).collect();
    let mut later = Vec::new();
    if file.is_none() {
        later = if only { Vec::new() } else { of_features };
    } else {
        lines.extend(of_features);
        // perf's features have numbers from 1 on.
        let known = (1..).map(Feature).map_while(|feature| Some((feature, feature.name()?)));
        let missing = known.filter(|(feature, _)| !recording.features.contains_key(feature));
        let missing: String = missing.map(|(_, name)| format!("{name} ")).collect();
        if !missing.is_empty() {
            lines.push(format!("missing features: {missing}"));
        }
    }
    lines.push("========".to_owned());
    let shown = |lines: &[String]| lines.iter().map(|line| format!("# {line}\n")).collect::<String>();
    format!("{}#\n{}", shown(&lines), shown(&later))
}

/// A time, ns since 1970, as ctime(3) shows it in UTC.
fn date(ns: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = rfc3339(ns);
    let number = |at: std::ops::Range<usize>| text[at].parse().unwrap_or(0);
    let weekday = DAYS[(ns / 1_000_000_000 / 86400 % 7) as usize];
    let month = MONTHS.get(number(5..7) - 1).unwrap_or(&"");
    format!("{weekday} {month} {:2} {} {}", number(8..10), &text[11..19], &text[..4])
}

fn lines_of(feature: Feature, recording: &Recording) -> Vec<String> {
    let Recording { features, endian, .. } = recording;
    let Some(section) = features.get(&feature) else { return Vec::new() };
    let context =
        FeatureContext { cpus: features.get(&Feature::NRCPUS).and_then(|cpus| NrCpus::read(cpus, *endian)) };
    let decoded = decode_feature(feature, section, *endian, context);
    let number = |name: &str| decoded.get(name).and_then(Value::number).unwrap_or(0);
    let text = |name: &str| plain(decoded.get(name));
    let items = |name: &str| decoded.get(name).map(Value::items).unwrap_or_default();
    let one = |line: String| vec![line];
    match feature {
        Feature::HOSTNAME => one(format!("hostname : {}", text("text"))),
        Feature::OSRELEASE => one(format!("os release : {}", text("text"))),
        Feature::VERSION => one(format!("perf version : {}", text("text"))),
        Feature::ARCH => one(format!("arch : {}", text("text"))),
        Feature::NRCPUS => vec![
            format!("nrcpus online : {}", number("online")),
            format!("nrcpus avail : {}", number("available")),
        ],
        Feature::CPUDESC => one(format!("cpudesc : {}", text("text"))),
        Feature::CPUID => one(format!("cpuid : {}", text("text"))),
        Feature::TOTAL_MEM => one(format!("total memory : {} kB", number("kb"))),
        Feature::CMDLINE => {
            let words = items("arguments").iter();
            let words: String = words.map(|word| plain(Some(word)).replace('\'', "\\'") + " ").collect();
            one(format!("cmdline : {words}"))
        }
        Feature::EVENT_DESC => events(recording),
        Feature::CPU_TOPOLOGY
        | Feature::NUMA_TOPOLOGY
        | Feature::CACHE
        | Feature::MEM_TOPOLOGY
        | Feature::HYBRID_TOPOLOGY
        | Feature::CPU_DOMAIN_INFO => {
            one(format!("{} info available, use -I to display", feature.name().unwrap_or_default()))
        }
        Feature::BRANCH_STACK => one("contains samples with branch stack".to_owned()),
        Feature::PMU_MAPPINGS => {
            let one_pmu =
                |pmu: &Value<'_>| format!("{} = {}", plain(pmu.get("name")), plain(pmu.get("type")));
            let pmus: Vec<_> = items("pmus").iter().map(one_pmu).collect();
            one(format!("pmu mappings: {}", pmus.join(", ")))
        }
        Feature::GROUP_DESC => {
            let names = event_names(recording, &Default::default());
            let groups = read_group_desc(section, *endian).unwrap_or_default();
            let line = |(events, group): (Range<usize>, Option<usize>)| {
                let group = groups[group?].name;
                let members: Vec<_> = names[events].iter().map(|name| readable(&name.name)).collect();
                let name = if group == GroupDesc::NO_NAME { String::new() } else { readable(group) };
                Some(format!("group: {name}{{{}}}", members.join(",")))
            };
            grouped_events(&groups, names.len()).into_iter().filter_map(line).collect()
        }
        Feature::AUXTRACE => one("contains AUX area data (e.g. instruction trace)".to_owned()),
        Feature::STAT => one("contains stat data".to_owned()),
        Feature::SAMPLE_TIME => {
            let (first, last) = (number("first_ns"), number("last_ns"));
            let duration = last.saturating_sub(first) as f64 / 1e6;
            vec![
                format!("time of first sample : {}", units::time(first)),
                format!("time of last sample : {}", units::time(last)),
                format!("sample duration : {duration:10.3} ms"),
            ]
        }
        Feature::CLOCKID => one(format!("clockid frequency: {} MHz", 1000 * number("resolution_ns"))),
        Feature::BPF_PROG_INFO => listed(items("programs"), "bpf_prog_info"),
        Feature::BPF_BTF => listed(items("btfs"), "btf info"),
        Feature::COMPRESSED => {
            let method = if number("method") == 1 { "Zstd" } else { "Unknown" };
            one(format!("compressed : {method}, level = {}, ratio = {}", number("level"), number("ratio")))
        }
        Feature::CPU_PMU_CAPS => capabilities("cpu", items("capabilities")).into_iter().collect(),
        Feature::PMU_CAPS => {
            let pmus = items("pmus").iter();
            let of_pmu = |pmu: &Value<'_>| {
                let all = pmu.get("capabilities").map(Value::items).unwrap_or_default();
                capabilities(&plain(pmu.get("name")), all)
            };
            pmus.filter_map(of_pmu).collect()
        }
        Feature::CLOCK_DATA => clock(&decoded),
        Feature::DIR_FORMAT => one(format!("directory data version : {}", number("version"))),
        Feature::E_MACHINE => {
            vec![format!("e_machine : {}", number("e_machine")), format!("  e_flags : {}", number("e_flags"))]
        }
        Feature::CLN_SIZE => one(format!("cacheline size: {}", number("size"))),
        _ => Vec::new(),
    }
}

fn plain(value: Option<&Value<'_>>) -> String {
    match value {
        Some(Value::Text(text)) => readable(text),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn events(recording: &Recording) -> Vec<String> {
    let names = event_names(recording, &Default::default());
    let line = |(event, name): (&Event, &EventName)| {
        let ids: Vec<_> = event.ids.iter().map(u64::to_string).collect();
        let ids = if ids.is_empty() { String::new() } else { format!(", id = {{ {} }}", ids.join(", ")) };
        let name = readable(&name.name);
        let fields = event_as_perf(event.attr(), &name).into_iter();
        let fields: String = fields.map(|(field, value)| format!(", {field} = {value}")).collect();
        format!("event : name = {name}, {ids}{fields}")
    };
    recording.events.iter().zip(&names).map(line).collect()
}

/// The ids in a list, or a text for an empty one.
fn listed(all: &[Value<'_>], what: &str) -> Vec<String> {
    if all.is_empty() {
        return vec![format!("{what} empty")];
    }
    all.iter().map(|item| format!("{what} of id {}", plain(item.get("id")))).collect()
}

fn capabilities(pmu: &str, all: &[Value<'_>]) -> Option<String> {
    let one = |item: &Value<'_>| format!("{}={}", plain(item.get("name")), plain(item.get("value")));
    let all: Vec<_> = all.iter().map(one).collect();
    match &all[..] {
        [] if pmu == "cpu" => Some("cpu pmu capabilities: not available".to_owned()),
        [] => None,
        all => Some(format!("{pmu} pmu capabilities: {}", all.join(", "))),
    }
}

fn clock(decoded: &Decoded<'_>) -> Vec<String> {
    let number = |name: &str| decoded.get(name).and_then(Value::number).unwrap_or(0);
    let id = number("clockid");
    let name = u32::try_from(id).ok().and_then(clock_name).unwrap_or("unknown").to_lowercase();
    let (wall, clock) = (number("wall_ns"), number("clock_ns"));
    let seconds = |ns: u64, digits: usize| {
        let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        text[..text.len() - (9 - digits)].to_owned()
    };
    let date = rfc3339(wall).replace('T', " ");
    let date = &date[.."1970-01-01 00:00:00.000000".len()];
    vec![
        format!("clockid: {name} ({id})"),
        format!("reference time: {date} = {} (TOD) = {} ({name})", seconds(wall, 6), seconds(clock, 9)),
    ]
}
