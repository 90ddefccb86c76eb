//! Finds the name of an event: the recorded one, or else the one that perf derives from type and config.

use std::collections::{HashMap, HashSet};

use crate::attr_name::{counted_name, made_name, without_alias};
use crate::features::{formats_by_id, meta_info, read_event_desc, trace_formats};
use crate::header::{EVENT_TYPE_SIZE, Features};
use crate::read::Recording;
use crate::{Attr, Endian, Event, Feature, until_nul};

/// The source of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameSource {
    /// An EVENT_UPDATE record of pipe data, which overrides the others.
    EventUpdate,
    /// Feature EVENT_DESC: the name from the command line.
    EventDesc,
    /// The event types of perf before 3.3.
    EventTypes,
    /// Feature TRACING_DATA, which names tracepoints.
    TracingData,
    /// Feature META_INFO of simpleperf.
    MetaInfo,
    /// Not stored: derived from type and config.
    Attr,
}

/// An event's name and its source.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EventName {
    /// The name, which need not be UTF-8.
    pub name: Vec<u8>,
    /// The source of the name.
    pub source: NameSource,
}

/// The names of a recording's events, in order. `updates` are those in its EVENT_UPDATE records, by id.
pub fn event_names(recording: &Recording, updates: &HashMap<u64, Vec<u8>>) -> Vec<EventName> {
    let Recording { events, features, event_types, endian, .. } = recording;
    names_of(events, features, event_types, *endian, updates)
}

/// Like [`event_names`], from the parts of a recording; `event_types` may be empty.
pub fn names_of(
    events: &[Event],
    features: &Features,
    event_types: &[u8],
    endian: Endian,
    updates: &HashMap<u64, Vec<u8>>,
) -> Vec<EventName> {
    let section = |feature| features.get(&feature);
    // perf also matches them by position.
    let described =
        section(Feature::EVENT_DESC).and_then(|section| read_event_desc(section, endian)).unwrap_or_default();
    let types = event_types.chunks_exact(EVENT_TYPE_SIZE);
    // Of several with the same id, the first counts.
    let types = types.rev().filter_map(|entry| Some((endian.u64(entry, 0)?, until_nul(&entry[8..]))));
    let types: HashMap<u64, &[u8]> = types.collect();
    let tracing = section(Feature::TRACING_DATA).map(|s| tracepoints(s, endian)).unwrap_or_default();
    let infos = section(Feature::META_INFO).map_or(&[][..], |section| section);
    let listed = types_of_simpleperf(meta_info(infos, b"event_type_info").unwrap_or_default());
    let name = |(index, event): (usize, &Event)| {
        let attr = event.attr();
        let first = (index == 0).then_some(&0);
        let updated = event.ids.iter().chain(first).find_map(|id| updates.get(id)).cloned();
        let desc = || described.get(index).map(|desc| desc.name.to_vec());
        let typed = || types.get(&attr.config).map(|name| name.to_vec());
        let listed = || listed.get(&(attr.type_.into(), attr.config)).map(|name| name.to_vec());
        let traced = || tracing.get(&attr.config).filter(|_| attr.is_tracepoint()).cloned();
        let found = |name: Option<Vec<u8>>, source| {
            name.filter(|name| !name.is_empty()).map(|name| EventName { name, source })
        };
        found(updated, NameSource::EventUpdate)
            .or_else(|| found(desc(), NameSource::EventDesc))
            .or_else(|| found(typed(), NameSource::EventTypes))
            .or_else(|| found(traced(), NameSource::TracingData))
            .or_else(|| found(listed(), NameSource::MetaInfo))
            .unwrap_or_else(|| EventName { name: made_name(attr).into_bytes(), source: NameSource::Attr })
    };
    events.iter().enumerate().map(name).collect()
}

/// The counted events in perf's words, without anything chosen by a user: `cycles:u`, `r1a8`,
/// `mem:0x1000:rw`. Does not include names of tracepoints and of events of other PMUs.
#[derive(Clone, Default, Debug)]
pub struct OwnNames {
    made: HashSet<String>,
    has_raw: bool,
    has_breakpoint: bool,
}

impl OwnNames {
    /// The names that events with these attrs can have.
    pub fn new<'a>(attrs: impl IntoIterator<Item = &'a Attr>) -> OwnNames {
        let mut names = OwnNames::default();
        for attr in attrs {
            names.has_raw |= attr.type_ == 4;
            names.has_breakpoint |= attr.is_breakpoint();
            names.made.extend(counted_name(attr));
        }
        names
    }

    /// True if this is such a name.
    pub fn contains(&self, name: &[u8]) -> bool {
        let Ok(name) = str::from_utf8(name) else { return false };
        let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let address = name.strip_prefix("mem:0x").filter(|_| self.has_breakpoint);
        let is_of_address = |byte: u8| byte.is_ascii_hexdigit() || b"x/:rwukhpPGH".contains(&byte);
        if address.is_some_and(|address| address.bytes().all(is_of_address)) {
            return true;
        }
        let (bare, modifiers) = name.split_once(':').unwrap_or((name, ""));
        let raw = bare.strip_prefix("raw 0x").or(bare.strip_prefix('r')).filter(|_| self.has_raw);
        let is_raw = raw.is_some_and(hex) && modifiers.bytes().all(|byte| MODIFIERS.contains(&byte));
        is_raw || str::from_utf8(generic_name(name.as_bytes())).is_ok_and(|name| self.made.contains(name))
    }
}

const MODIFIERS: &[u8] = b"ukhpPGHSDIWebRX";

/// The name without modifiers after its last colon, or its last slash: `cpu-clock` of `cpu-clock:ppp`.
///
/// ```
/// use perfx_format::event_name::without_modifiers;
///
/// assert_eq!(without_modifiers(b"cycles:ukp"), b"cycles");
/// assert_eq!(without_modifiers(b"cpu/event=0x3c/u"), b"cpu/event=0x3c/");
/// assert_eq!(without_modifiers(b"sched:sched_switch"), b"sched:sched_switch");
/// ```
pub fn without_modifiers(name: &[u8]) -> &[u8] {
    let is_modifier = |byte: &u8| MODIFIERS.contains(byte);
    let Some(last) = name.iter().rposition(|byte| !is_modifier(byte)) else { return name };
    match name[last] {
        b':' => &name[..last],
        b'/' if name[..last].contains(&b'/') => &name[..=last],
        _ => name,
    }
}

/// The counted event of an event with this name, on any PMU and with any modifiers.
///
/// ```
/// use perfx_format::event_name::generic_name;
///
/// assert_eq!(generic_name(b"cpu-cycles:u"), b"cycles");
/// assert_eq!(generic_name(b"cpu_core/cycles/P"), b"cycles");
/// assert_eq!(generic_name(b"cpu_atom/cycles:P/"), b"cycles");
/// assert_eq!(generic_name(b"armv8_cortex_a53/cpu_cycles/u"), b"cycles");
/// assert_eq!(generic_name(b"cpu_core/event=0x3c/"), b"event=0x3c");
/// assert_eq!(generic_name(b"cpu_core/cycles,freq=99/"), b"cycles");
/// assert_eq!(generic_name(b"cpu-clock/freq=999/u"), b"cpu-clock");
/// assert_eq!(generic_name(b"cpu/cycles,cmask=1/"), b"cycles,cmask=1");
/// assert_eq!(generic_name(b"sched:sched_switch"), b"sched:sched_switch");
/// assert_eq!(generic_name(b"mem:0x10/8:rw"), b"mem:0x10/8:rw");
/// assert_eq!(generic_name(b"intel_pt//u"), b"intel_pt//");
/// ```
pub fn generic_name(name: &[u8]) -> &[u8] {
    let event = match in_slashes(name) {
        Some((event, terms)) if !terms.is_empty() && without_settings(terms).is_empty() => event,
        Some((_, event)) if !event.is_empty() => without_settings(event),
        _ => name,
    };
    let event = without_modifiers(event);
    str::from_utf8(event).map_or(event, |event| without_alias(event).as_bytes())
}

/// PMU and event of `PMU/EVENT/`, which modifiers may follow. `EVENT/freq=99/` has no PMU.
pub(crate) fn of_pmu(name: &[u8]) -> Option<(&[u8], &[u8])> {
    in_slashes(name).filter(|(_, event)| !without_settings(event).is_empty())
}

fn in_slashes(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = without_modifiers(name);
    let slash = name.iter().position(|&byte| byte == b'/')?;
    let inside = name[slash + 1..].strip_suffix(b"/")?;
    Some((&name[..slash], inside)).filter(|(before, _)| !before.contains(&b':'))
}

/// Terms for how an event is sampled, not what it counts (tools/perf/util/parse-events.l).
const SETTINGS: [&[u8]; 19] = [
    b"name", b"period", b"freq", b"time", b"call-graph", b"stack-size", b"max-stack", b"nr", b"inherit",
    b"no-inherit", b"overwrite", b"no-overwrite", b"percore", b"branch_type", b"aux-output", b"aux-action",
    b"aux-sample-size", b"metric-id", b"cpu",
];

fn without_settings(mut terms: &[u8]) -> &[u8] {
    let is_setting =
        |term: &[u8]| SETTINGS.contains(&term.split(|&byte| byte == b'=').next().unwrap_or(term));
    loop {
        let last = terms.iter().rposition(|&byte| byte == b',');
        match last {
            Some(at) if is_setting(&terms[at + 1..]) => terms = &terms[..at],
            None if is_setting(terms) => return &[],
            _ => return terms,
        }
    }
}

/// True if an event of this name counts the cycles of a processor.
pub fn counts_cycles(name: &[u8]) -> bool {
    let event = generic_name(name).to_ascii_lowercase();
    matches!(&event[..], b"cycles" | b"ref-cycles") || event.starts_with(b"cpu_clk_unhalted")
}

/// The names of simpleperf's lines `NAME,TYPE,CONFIG` by type and config; of several, the first counts.
fn types_of_simpleperf(lines: &[u8]) -> HashMap<(u64, u64), &[u8]> {
    let number = |word: &[u8]| str::from_utf8(word).ok()?.trim().parse::<u64>().ok();
    let entries = lines.rsplit(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = line.rsplitn(3, |&byte| byte == b',');
        let (config, kind) = (number(words.next()?)?, number(words.next()?)?);
        Some(((kind, config), words.next().unwrap_or_default()))
    });
    entries.collect()
}

fn tracepoints(section: &[u8], endian: Endian) -> HashMap<u64, Vec<u8>> {
    let formats = formats_by_id(&trace_formats(section, endian));
    formats.into_iter().map(|(id, format)| (id, format.full_name())).collect()
}
