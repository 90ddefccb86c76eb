//! Merges the events and features of several recordings, or explains why they cannot be joined.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use perfx_format::event_name::names_of;
use perfx_format::features::{
    BuildIds, ClockData, GroupDesc, ListedBy, NrCpus, SampleTime, grouped_events, read_group_desc, read_str,
    trimmed_id, united_stack_tables, write_group_desc,
};
use perfx_format::header::Features;
use perfx_format::names::KERNEL_NAME;
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::{Endian, Event, Feature, Layout, Layouts, set_clockid};
use perfx_model::address_space::Machine;
use perfx_pipeline::{Level, Report, Result, Session, bail, counted, ensure};

use super::input::{InputFacts, Translator, shifted};
use super::lists::{united_list, united_tracing};
use crate::support::event_desc::event_desc;
use crate::support::event_ids::{FreeIds, identified};

#[derive(Debug)]
pub(super) struct JoinSource<'a> {
    pub(super) name: &'a str,
    pub(super) events: Vec<Event>,
    pub(super) features: &'a Features,
    pub(super) facts: &'a InputFacts,
    pub(super) offset: Option<i64>,
}

/// The clock's number in clock_gettime(2); `None` for perf's default.
fn clock_of(events: &[Event]) -> Option<u32> {
    let attr = events.first()?.attr();
    attr.use_clockid().then_some(attr.clockid)
}

/// CLOCK_BOOTTIME of clock_gettime(2): within a boot, only its distance from the wall clock is constant.
const BOOTTIME: u32 = 7;

/// The amount by which the wall clock may have been set within a boot, ns.
const SAME_BOOT: u64 = 60_000_000_000;

/// Why two recordings are not of one machine and boot, if they show it.
fn machine_mismatch(one: &JoinSource<'_>, other: &JoinSource<'_>, endian: Endian) -> Option<String> {
    let text = |source: &JoinSource<'_>, feature| {
        let text = read_str(source.features.get(&feature)?, endian)?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    for feature in [Feature::HOSTNAME, Feature::OSRELEASE, Feature::ARCH] {
        if let (Some(this), Some(that)) = (text(other, feature), text(one, feature))
            && this != that
        {
            return Some(format!("{feature} {this}, not {that}"));
        }
    }
    let cpus = |source: &JoinSource<'_>| NrCpus::read(source.features.get(&Feature::NRCPUS)?, endian);
    if let (Some(NrCpus { available: this, .. }), Some(NrCpus { available: that, .. })) =
        (cpus(other), cpus(one))
        && this != that
    {
        return Some(format!("{this} CPUs, not {that}"));
    }
    if let (Some((this, name)), Some((that, known))) = (&other.facts.kernel, &one.facts.kernel)
        && name == known
        && this != that
    {
        return Some(format!("the kernel at {this:#x}, not {that:#x}"));
    }
    let kernel = |source: &JoinSource<'_>| {
        let section = source.features.get(&Feature::BUILD_ID)?;
        let mut ids = BuildIds::new(section, endian);
        Some(ids.find(|entry| entry.pid == -1 && entry.filename == KERNEL_NAME)?.id.to_vec())
    };
    if let (Some(this), Some(that)) = (kernel(other), kernel(one))
        && this != that
    {
        return Some("different build-ids of the kernel".to_owned());
    }
    let booted = |source: &JoinSource<'_>| {
        let data = clock_data(source, endian).filter(|data| data.clockid == BOOTTIME)?;
        Some(data.wall_ns.wrapping_sub(data.clock_ns))
    };
    if let (Some(this), Some(that)) = (booted(other), booted(one))
        && this.abs_diff(that) > SAME_BOOT
    {
        return Some("boot times differ (CLOCK_DATA)".to_owned());
    }
    None
}

/// True if both are evidently of one boot of one kernel: its address, usually randomised at each boot, is the
/// same, and nothing contradicts it.
pub(super) fn one_kernel(one: &JoinSource<'_>, other: &JoinSource<'_>, endian: Endian) -> bool {
    one.facts.kernel.is_some()
        && one.facts.kernel == other.facts.kernel
        && machine_mismatch(one, other, endian).is_none()
}

fn clock_data(source: &JoinSource<'_>, endian: Endian) -> Option<ClockData> {
    ClockData::read(source.features.get(&Feature::CLOCK_DATA)?, endian)
}

/// The lead of each source's clock over the first one's, ns. Afterwards all attrs name the first one's clock.
/// Fails if the sources do not belong together, unless `mix` is set.
pub(super) fn clocks(
    sources: &mut [JoinSource<'_>],
    mix: bool,
    endian: Endian,
    report: &mut Report,
) -> Result<Vec<i64>> {
    let Some((first, others)) = sources.split_first_mut() else { return Ok(Vec::new()) };
    let clock = clock_of(&first.events);
    let mut offsets = vec![first.offset.unwrap_or(0)];
    for other in others {
        let (name, known) = (other.name, first.name);
        if let Some(why) = machine_mismatch(first, other, endian) {
            let why = format!("{name}: it is from a different machine or boot than {known} ({why})");
            ensure!(mix, "{why}; use --mix to join them anyway");
            report.say(Level::Warning, format!("{why}: processes with the same pid are treated as one"));
        }
        let own = clock_of(&other.events);
        let offset = match (other.offset, clock_data(first, endian), clock_data(other, endian)) {
            (Some(offset), ..) => offset,
            _ if own == clock || other.events.is_empty() || first.events.is_empty() => 0,
            (None, Some(there), Some(here)) => {
                let ahead = |data: ClockData| i128::from(data.clock_ns) - i128::from(data.wall_ns);
                let offset = i64::try_from(ahead(here) - ahead(there)).ok().map(|ahead| ahead + offsets[0]);
                let Some(offset) = offset else { bail!("{name}: its CLOCK_DATA is invalid") };
                let what = format!(
                    "{name}: its clock differs from that of {known}; according to their CLOCK_DATA, it is ahead by \
                     {offset} ns"
                );
                report.say(Level::Info, what);
                offset
            }
            _ if mix => {
                report.say(
                    Level::Warning,
                    format!(
                        "{name}: its clock differs from that of {known}; its times are \
                    used as they are"
                    ),
                );
                0
            }
            _ => bail!(
                "{name}: its clock ({}) is not that of {known} ({}), and without CLOCK_DATA in both, they can't be \
                 compared: give offset=NS, by how much it is ahead",
                clock_text(own),
                clock_text(clock)
            ),
        };
        if own != clock {
            for event in &mut other.events {
                *event = event.edited(endian, |raw| set_clockid(raw, clock, endian));
            }
        }
        offsets.push(offset);
    }
    for (source, &offset) in sources.iter().zip(&offsets) {
        let early = source.facts.earliest.filter(|&time| offset != 0 && shifted(time, offset).is_none());
        if let Some(time) = early {
            bail!("{}: its time {time} would be before 0, so offset {offset} can't be right", source.name);
        }
    }
    Ok(offsets)
}

fn clock_text(clock: Option<u32>) -> String {
    const NAMES: [&str; 12] =
        ["realtime", "monotonic", "", "", "monotonic_raw", "", "", "boottime", "", "", "", "tai"];
    match clock {
        None => "perf's own".to_owned(),
        Some(id) => match NAMES.get(id as usize) {
            Some(name) if !name.is_empty() => (*name).to_owned(),
            _ => format!("clockid {id}"),
        },
    }
}

#[derive(Debug, Default)]
pub(super) struct Union {
    pub(super) events: Vec<Event>,
    names: Vec<Vec<u8>>,
    groups: Vec<(Vec<u8>, Range<usize>)>,
    pub(super) translators: Vec<Translator>,
    pub(super) identify: bool,
    /// For each source, how many of its events were merged with those of earlier sources.
    pub(super) shared: Vec<usize>,
}

/// A group of events, or a single one.
struct Unit {
    events: Range<usize>,
    group: Option<Vec<u8>>,
    source: usize,
}

fn units(source: &JoinSource<'_>, number: usize, endian: Endian) -> Vec<Unit> {
    let section = source.features.get(&Feature::GROUP_DESC);
    let groups = section.and_then(|section| read_group_desc(section, endian)).unwrap_or_default();
    let unit = |(events, group): (Range<usize>, Option<usize>)| {
        let group = group.map(|number| groups[number]).filter(|group| group.members > 1);
        Unit { events, group: group.map(|group| group.name.to_vec()), source: number }
    };
    grouped_events(&groups, source.events.len()).into_iter().map(unit).collect()
}

impl Union {
    /// Merges the events. The ids of the first source, and of its `late` events, do not change.
    pub(super) fn new(
        sources: &[JoinSource<'_>],
        late: &[Event],
        offsets: &[i64],
        endian: Endian,
    ) -> Result<Union> {
        let union = Union::of(sources, late, false, endian);
        let mut union = match Layouts::new(&union.events).check_ids() {
            Ok(()) => union,
            Err(_) => {
                if let Some(first) = sources.first() {
                    ensure!(
                        late.is_empty(),
                        "{}: this pipe data has an event among its records and can't be joined with events that \
                         store their id elsewhere: convert it to a file first (perfx copy)",
                        first.name
                    );
                }
                let union = Union::of(sources, late, true, endian);
                if let Err(error) = Layouts::new(&union.events).check_ids() {
                    let names: Vec<_> = sources.iter().map(|source| source.name).collect();
                    bail!(
                        "{}: some events give all their records a sample_id and some do not, so one recording \
                         can't hold both: {}",
                        names.join(", "),
                        error.what()
                    );
                }
                union
            }
        };
        for (translator, &offset) in union.translators.iter_mut().zip(offsets) {
            translator.offset = offset;
        }
        Ok(union)
    }

    fn of(sources: &[JoinSource<'_>], late: &[Event], identify: bool, endian: Endian) -> Union {
        let mut union = Union { identify, ..Union::default() };
        let mut all: Vec<Unit> = Vec::new();
        let every = || sources.iter().flat_map(|source| &source.events).chain(late);
        let last = every().flat_map(|event| &event.ids).copied().max().unwrap_or(0);
        let mut free = FreeIds::beyond(BTreeSet::new(), last);
        for (number, source) in sources.iter().enumerate() {
            let names = names_of(&source.events, source.features, &[], endian, &HashMap::new());
            let events: Vec<Event> = source
                .events
                .iter()
                .map(|event| if identify { identified(event, endian) } else { event.clone() })
                .collect();
            let mut places = Vec::with_capacity(events.len());
            let mut shared = 0;
            for unit in units(source, number, endian) {
                let same = |there: &&mut Unit| {
                    there.source != number
                        && there.events.len() == unit.events.len()
                        && there.events.clone().zip(unit.events.clone()).all(|(there, here)| {
                            union.events[there].measures_the_same_as(&events[here])
                                && union.names[there] == names[here].name
                        })
                };
                match all.iter_mut().find(same) {
                    Some(there) => {
                        there.source = number;
                        shared += unit.events.len();
                        places.extend(there.events.clone());
                    }
                    None => {
                        let start = union.events.len();
                        for here in unit.events.clone() {
                            let raw = events[here].raw().to_vec();
                            union.events.push(Event::new(raw, Vec::new(), endian));
                            union.names.push(names[here].name.clone());
                        }
                        places.extend(start..union.events.len());
                        let events = start..union.events.len();
                        if let Some(name) = &unit.group {
                            union.groups.push((name.clone(), events.clone()));
                        }
                        all.push(Unit { events, group: unit.group, source: number });
                    }
                }
            }
            let translator = union.ids(&events, &places, &mut free);
            union.translators.push(translator);
            union.shared.push(shared);
            free.used.extend(late.iter().flat_map(|event| &event.ids));
        }
        union
    }

    /// Assigns a source's ids to the events at these indices. An id is kept if it is free, or if it and all
    /// other ids of the source already belong to the same events, except new ones: recordings of one boot
    /// share ids only if they are parts of one recording, split for example by event.
    fn ids(&mut self, events: &[Event], places: &[usize], free: &mut FreeIds) -> Translator {
        let is_new = |place: usize| self.events[place].ids.is_empty();
        let mut each = events.iter().zip(places);
        let keeps_all = each.all(|(event, &place)| {
            let there: BTreeSet<u64> = self.events[place].ids.iter().copied().collect();
            let mut ids = event.ids.iter();
            !event.ids.is_empty()
                && if is_new(place) {
                    ids.all(|id| !free.used.contains(id))
                } else {
                    ids.all(|id| there.contains(id))
                }
        });
        let is_part = keeps_all && !places.iter().all(|&place| is_new(place));
        let mut changed = HashMap::new();
        let mut first = Vec::new();
        // Ids listed by several events of this source.
        let mut own = BTreeSet::new();
        for (event, &place) in events.iter().zip(places) {
            let mut ids: Vec<u64> = Vec::with_capacity(event.ids.len());
            for &id in &event.ids {
                let new = match changed.get(&id) {
                    Some(&new) => new,
                    None if free.used.insert(id) || id == 0 || is_part || own.contains(&id) => id,
                    None => free.next(),
                };
                own.insert(id);
                if new != id {
                    changed.insert(id, new);
                }
                ids.push(new);
            }
            if ids.is_empty() && self.identify {
                ids.push(free.next());
            }
            first.push(ids.first().copied().unwrap_or(0));
            if !is_part || self.events[place].ids.is_empty() {
                self.events[place].ids.extend(ids);
            }
        }
        let trailer = |event: &Event| Layout::new(event.attr()).trailer;
        let odd =
            events.first().zip(self.events.first()).is_some_and(|(own, all)| trailer(own) != trailer(all));
        let id_for_unattributed = first.first().copied().filter(|_| odd);
        Translator { ids: changed, offset: 0, identify: self.identify.then_some(first), id_for_unattributed }
    }

    pub(super) fn describe(&self, session: &mut Session) {
        let endian = session.endian;
        if let Some(section) = event_desc(&self.events, &self.names, 0, endian) {
            session.set_feature(Feature::EVENT_DESC, section);
        }
        let groups: Vec<_> = self
            .groups
            .iter()
            .map(|(name, events)| GroupDesc {
                name,
                leader: events.start as u32,
                members: events.len() as u32,
            })
            .collect();
        if !groups.is_empty() || session.feature(Feature::GROUP_DESC).is_some() {
            session.set_feature(Feature::GROUP_DESC, write_group_desc(&groups, endian));
        }
    }
}

const MOMENTARY: [Feature; 6] = [
    Feature::VERSION,
    Feature::CMDLINE,
    Feature::TOTAL_MEM,
    Feature::NUMA_TOPOLOGY,
    Feature::CLOCKID,
    Feature::CLOCK_DATA,
];

/// Features that are rebuilt, or describe only the form of an input.
const ELSEWHERE: [Feature; 7] = [
    Feature::EVENT_DESC,
    Feature::GROUP_DESC,
    Feature::BUILD_ID,
    Feature::SAMPLE_TIME,
    Feature::AUXTRACE,
    Feature::COMPRESSED,
    Feature::DIR_FORMAT,
];

pub(super) fn unite_features(
    sources: &[JoinSource<'_>],
    offsets: &[i64],
    session: &mut Session,
) -> Result<()> {
    let endian = session.endian;
    let mut span: Option<SampleTime> = None;
    let mut has_times = false;
    for (number, (source, &offset)) in sources.iter().zip(offsets).enumerate() {
        let times = source.features.get(&Feature::SAMPLE_TIME);
        let times = times.and_then(|section| SampleTime::read(section, endian));
        has_times |= times.is_some_and(|times| times.times().is_some());
        let moved = |time| shifted(time, offset).unwrap_or(time);
        // From the samples, because perf may have written wrong times into the feature.
        if let Some((first, last)) = source.facts.sampled {
            let (first_ns, last_ns) = (moved(first), moved(last));
            let all = span.get_or_insert(SampleTime { first_ns, last_ns });
            all.first_ns = all.first_ns.min(first_ns);
            all.last_ns = all.last_ns.max(last_ns);
        }
        if number > 0 {
            unite_feature(source, session)?;
        }
    }
    if let Some(span) = span.filter(|_| has_times) {
        session.set_feature(Feature::SAMPLE_TIME, span.write(endian));
    }
    if session.feature(Feature::BUILD_ID).is_some() {
        // The feature hides the ids in MMAP2 records, including those of inputs without the feature.
        for source in sources.iter().filter(|source| !source.features.contains_key(&Feature::BUILD_ID)) {
            session.add_build_ids(&source.facts.mapped_ids.entries(Machine::Host, endian));
        }
    }
    Ok(())
}

fn unite_feature(source: &JoinSource<'_>, session: &mut Session) -> Result<()> {
    let endian = session.endian;
    let name = source.name;
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for (&feature, section) in source.features.iter().filter(|(feature, _)| !ELSEWHERE.contains(feature)) {
        let Some(there) = session.feature(feature).cloned() else {
            session.set_feature(feature, section.clone());
            continue;
        };
        if there == *section {
            continue;
        }
        let union = match feature {
            Feature::TRACING_DATA => united_tracing(&there, section),
            Feature::BPF_PROG_INFO => united_list(&there, section, ListedBy::Programs, endian),
            Feature::BPF_BTF | Feature::PMU_MAPPINGS => {
                united_list(&there, section, ListedBy::Number, endian)
            }
            Feature::HIPERF_STACK_TABLE => {
                let union = united_stack_tables(&there, section, endian);
                // Samples of one recording would get the call stacks of another.
                ensure!(
                    union.is_some(),
                    "{name}: feature {feature} has other call stacks of a process than those of the inputs before it, \
                     or is damaged: export each recording by itself"
                );
                union
            }
            _ => None,
        };
        match union {
            Some(union) => session.set_feature(feature, union),
            None if MOMENTARY.contains(&feature) => kept.push(feature.to_string()),
            None => lost.push(feature.to_string()),
        }
    }
    if !kept.is_empty() {
        let what = format!("{name}: kept the first input's {}", kept.join(", "));
        session.report.say(Level::Info, what);
    }
    if !lost.is_empty() {
        let what = format!("{name}: its {}; the first input's is kept", lost.join(", "));
        session.report.say(Level::Loss, what);
    }
    unite_build_ids(source, session);
    Ok(())
}

/// Adds the missing build-ids. perf knows one per name, so the first one is kept.
fn unite_build_ids(source: &JoinSource<'_>, session: &mut Session) {
    let endian = session.endian;
    let none = perfx_format::Bytes::from(Vec::new());
    let there = session.feature(Feature::BUILD_ID).cloned().unwrap_or_else(|| none.clone());
    let key = |entry: &BuildIdEntry<'_>| (entry.pid, entry.filename.to_vec());
    let known: HashMap<_, Vec<u8>> =
        BuildIds::new(&there, endian).map(|entry| (key(&entry), entry.id.to_vec())).collect();
    let section = source.features.get(&Feature::BUILD_ID).unwrap_or(&none);
    let (mut new, mut other) = (Vec::new(), Vec::new());
    for entry in BuildIds::new(section, endian).chain(BuildIds::new(&source.facts.build_ids, endian)) {
        // Ids are compared without the zeros that pad shorter ones.
        let same = |id: &[u8]| trimmed_id(id) == trimmed_id(entry.id);
        match known.get(&key(&entry)) {
            Some(id) if same(id) => {}
            Some(_) => other.push(entry.filename.escape_ascii().to_string()),
            // It was written before, so it fits.
            None => drop(entry.write_section(endian, &mut new)),
        }
    }
    session.add_build_ids(&new);
    if !other.is_empty() {
        let files = counted(other.len() as u64, "file has", "files have");
        let what = format!(
            "{}: {files} a different build-id in it ({}); feature BUILD_ID has one per file and keeps the first \
             input's, and MMAP2 records keep their own",
            source.name,
            other.join(", ")
        );
        session.report.say(Level::Warning, what);
    }
}
