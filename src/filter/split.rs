//! Splits a recording into parts: every sample, and every other event record, is in exactly one. Each part
//! has what readers need for its samples, and joining the parts restores the recording.
//!
//! A part is made by a `filter` whose two surveys are shared by all parts. It has what `filter` keeps for its
//! samples. A mapping, name or fork that no part needs goes into the part of its time or process, so that
//! nothing is lost.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use perfx_format::event_name::names_of;
use perfx_format::features::{grouped_events, read_group_desc};
use perfx_format::header::{FileFront, FileHeader};
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::{Event, Feature, HEADER_SIZE, Kinds, Layouts, OrderKey, Record, RecordType, sample_type};
use perfx_pipeline::{
    Context as _, Error, Pass, Place, Result, bail, count, counted as plural, ensure, scan, zeros_before_data,
};

use crate::choice::FilterOptions;
use crate::chooser::Chooser;
use crate::chosen::ChosenSamples;
use crate::cut::{CutRecords, FilterPlan};
use crate::gathered::Gathered;
use crate::kept_kinds::CHOSEN;
use crate::owner::{Key, OfParts, Owner, Property, Rule};
use crate::sideband::{BatchNeeders, SideBand};
use crate::time::parse_duration;

/// How a recording is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitBy {
    /// Parts of this many ns, from the first sample on. A part without samples is added to the one before.
    Time(u64),
    /// Parts of at most this many bytes.
    Size(u64),
    /// Parts of this many samples.
    Samples(u64),
    /// A part for each process that has samples.
    Pid,
    /// A part for each event that has samples.
    Event,
    /// A part for each value of another property that samples have.
    Property(Property),
}

impl SplitBy {
    /// Parses the value of an option with this name: `time` a duration (`10s`, `500ms`), `size` bytes
    /// (`100M`, `64KiB`), `samples` a number, `by` a property of samples.
    ///
    /// # Errors
    ///
    /// The value is not of that form, or is zero.
    pub fn parse(name: &str, value: &str) -> Result<SplitBy> {
        let by = match (name, value) {
            ("time", duration) => parse_duration(duration).map(SplitBy::Time),
            ("size", bytes) => parse_bytes(bytes).map(SplitBy::Size),
            ("samples", number) => number.parse().context("it is not a number").map(SplitBy::Samples),
            ("by", "pid") => Ok(SplitBy::Pid),
            ("by", "event") => Ok(SplitBy::Event),
            ("by", "tid") => Ok(SplitBy::Property(Property::Tid)),
            ("by", "comm") => Ok(SplitBy::Property(Property::Comm)),
            ("by", "cpu") => Ok(SplitBy::Property(Property::Cpu)),
            ("by", "cgroup") => Ok(SplitBy::Property(Property::Cgroup)),
            _ => Err(Error::new("expected `pid`, `tid`, `comm`, `cpu`, `cgroup` or `event`")),
        };
        let nothing = |by: &SplitBy| matches!(by, SplitBy::Time(0) | SplitBy::Size(0) | SplitBy::Samples(0));
        let by = by
            .and_then(|by| if nothing(&by) { Err(Error::new("it must be greater than 0")) } else { Ok(by) });
        by.with_context(|| format!("--{name} {value}"))
    }
}

/// Parses a number of bytes, with `k`, `M` or `G` (powers of 1000) or `KiB`, `MiB` or `GiB` (of 1024).
///
/// # Errors
///
/// The text is not of that form, or the number has more than 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        other => bail!("`{other}` is not a unit; the units are k, M, G, KiB, MiB and GiB"),
    };
    let number: u64 = digits.parse().with_context(|| format!("`{digits}` is not a number of bytes"))?;
    number.checked_mul(unit).context("it is too large")
}

/// One part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The part of the file name that identifies it.
    pub name: PartName,
    /// The number of its samples.
    pub samples: u64,
    /// The times of the first and the last one, ns, if the recording has times.
    pub times: Option<(u64, u64)>,
}

/// The name that identifies a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartName {
    /// Its number.
    Number,
    /// The process.
    Pid(u32),
    /// The name of the event.
    Event(Vec<u8>),
    /// The thread.
    Tid(u32),
    /// The name of the threads.
    Comm(Vec<u8>),
    /// The CPU.
    Cpu(u32),
    /// The path of the cgroup; if no record names it, its id.
    Cgroup(Vec<u8>),
}

/// The division of a recording into parts.
pub struct Split {
    rule: Arc<Rule>,
    chooser: Arc<Chooser>,
    parts: Vec<(PartName, ChosenSamples)>,
    cookies: Arc<HashSet<u64>>,
    sideband: SideBand,
    /// The events without samples, which every part has.
    unsampled: Vec<usize>,
    /// A part has all events of a group or none.
    groups: Vec<Range<usize>>,
    /// The records of the whole recording, and their bytes.
    pub read: (u64, u64),
}

#[derive(Default)]
struct Counted {
    first: Option<u64>,
    /// For parts by number or size: key and size of the records that belong to one part only.
    moments: Vec<(OrderKey, u32)>,
    /// Bytes of the records that may be in every part.
    others: u64,
    rounds: u64,
    pids: BTreeMap<u32, usize>,
    samples: Vec<u64>,
    aux: bool,
    read: (u64, u64),
}

impl Counted {
    fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, by: SplitBy, form: Form) {
        let (kind, size) = (record.kind(), record.bytes().len());
        let is_sample = kind == RecordType::SAMPLE;
        let layout = layouts.layout_of(record);
        match by {
            SplitBy::Time(_) | SplitBy::Samples(_) if !is_sample => {}
            SplitBy::Time(_) => self.begin(layouts.recorded_time(record)),
            SplitBy::Size(_) if kind == RecordType::FINISHED_ROUND => self.rounds += 1,
            SplitBy::Size(_) if !CHOSEN.contains(kind) => {
                // In a file, the contents of these records go into the header; build-ids also stay records.
                let twice = form == Form::Pipe && Kinds::HEADER.contains(kind);
                self.others += (size + record.payload().len()) as u64 * if twice { 2 } else { 1 };
                self.aux |= kind == RecordType::AUXTRACE;
            }
            SplitBy::Samples(_) | SplitBy::Size(_) => {
                self.moments.push((OrderKey::of(record, layout, layouts), size as u32));
            }
            SplitBy::Pid if is_sample => {
                self.pids.extend(layout.and_then(|layout| layout.pid_tid(record)).map(|(pid, _)| (pid, 0)));
            }
            SplitBy::Event if is_sample => {
                if let Some(event) = layouts.event_of(record) {
                    self.samples.resize(self.samples.len().max(event + 1), 0);
                    self.samples[event] += 1;
                }
            }
            SplitBy::Pid | SplitBy::Event | SplitBy::Property(_) => {}
        }
    }

    fn begin(&mut self, time: Option<u64>) {
        self.first = [self.first, time].into_iter().flatten().min();
    }

    fn join(&mut self, later: Counted) {
        self.begin(later.first);
        self.moments.extend(later.moments);
        self.others += later.others;
        self.rounds += later.rounds;
        self.pids.extend(later.pids);
        self.samples.resize(self.samples.len().max(later.samples.len()), 0);
        self.samples.iter_mut().zip(later.samples).for_each(|(all, later)| *all += later);
        self.aux |= later.aux;
        self.read.0 += later.read.0;
        self.read.1 += later.read.1;
    }
}

impl Split {
    /// Reads the recording twice. `drop_unused` drops events without samples in a part, and build-ids of
    /// files that no process of the part maps. More parts than `most` are refused: each has its own copy of
    /// records that several need, so a small recording could become any number of large ones.
    ///
    /// # Errors
    ///
    /// The recording is damaged, its events cannot be distinguished, no record has the property to split by,
    /// or there would be more than `most` parts.
    pub fn new(
        recording: &mut Recording,
        by: SplitBy,
        drop_unused: bool,
        most: usize,
        threads: usize,
    ) -> Result<Split> {
        recording.check_whole()?;
        // Any process may have any event, and there are few events.
        let options = Arc::new(FilterOptions {
            keep_all_sideband: by == SplitBy::Event,
            drop_unused,
            drop_others: by == SplitBy::Event,
            names_threads: by == SplitBy::Property(Property::Comm),
            ..FilterOptions::default()
        });
        let (gathered, counted) = first_look(recording, by, &options, threads)?;
        let events = recording.all_events();
        let layouts = Layouts::new(&events);
        let check = if by == SplitBy::Event { layouts.check_ids() } else { layouts.check_layouts() };
        check.map_err(|e| e.file(&recording.name))?;
        let has_task = layouts.all().iter().any(|layout| layout.sample.tid.is_some());
        let has_cpu = layouts.all().iter().any(|layout| layout.sample.cpu.is_some());
        let has_cgroup = layouts.all().iter().any(|layout| layout.sample_type & sample_type::CGROUP != 0);
        let missing = match by {
            SplitBy::Time(_) if !layouts.has_time() => "the time (perf record --timestamp)",
            SplitBy::Pid | SplitBy::Property(Property::Tid | Property::Comm) if !has_task => "pid and tid",
            SplitBy::Property(Property::Cpu) if !has_cpu => "the CPU (perf record --sample-cpu)",
            SplitBy::Property(Property::Cgroup) if !has_cgroup => "the cgroup (perf record --all-cgroups)",
            _ => "",
        };
        if !missing.is_empty() {
            bail!("{}: no event has {missing}, so it can't be split by it", recording.name);
        }
        ensure!(gathered.samples > 0, "{} has no samples to split by", recording.name);
        let head = |batch: &Batch| (batch.records, batch.bytes.len() as u64);
        let sum = |all: (u64, u64), more: (u64, u64)| (all.0 + more.0, all.1 + more.1);
        let read = recording.head().iter().map(head).fold(counted.read, sum);
        let is_sampled = |event: &usize| counted.samples.get(*event).is_some_and(|&count| count > 0);
        // With --drop-unused, only events with samples stay.
        let keeps_others = by == SplitBy::Event && !drop_unused;
        let unsampled = (0..events.len()).filter(|event| keeps_others && !is_sampled(event)).collect();
        let section = recording.features.get(&Feature::GROUP_DESC).filter(|_| keeps_others);
        let groups =
            section.and_then(|section| read_group_desc(section, recording.endian)).unwrap_or_default();
        let grouped = grouped_events(&groups, events.len()).into_iter();
        let groups = grouped.filter(|(_, group)| group.is_some()).map(|(events, _)| events).collect();
        let (names, cgroups) = (gathered.names.clone(), gathered.cgroups.clone());
        let known = (&events[..], &recording.features, recording.endian);
        let chooser = Arc::new(Chooser::new(gathered, &options, known)?);
        let (rule, parts) = match by {
            SplitBy::Pid => by_pid(counted),
            SplitBy::Event => by_event(recording, &events, &names, &counted),
            SplitBy::Time(duration) => {
                by_time(recording, counted.first.unwrap_or(0), duration, most, threads)?
            }
            SplitBy::Size(_) | SplitBy::Samples(_) => by_moment(recording, &events, by, counted)?,
            SplitBy::Property(of) => by_property(recording, of, &chooser, &cgroups, (most, threads))?,
        };
        ensure!(
            parts.len() <= most,
            "would create more than {}: --max-parts allows more",
            plural(most as u64, "part", "parts")
        );
        let mut parts: Vec<_> = parts.into_iter().map(|part| (part, ChosenSamples::default())).collect();
        let sideband = second_look(recording, &rule, &chooser, &mut parts, threads)?;
        let cookies = parts.iter().flat_map(|(_, chosen)| chosen.cookies.iter().copied()).collect();
        let (rule, cookies) = (Arc::new(rule), Arc::new(cookies));
        Ok(Split { rule, chooser, parts, cookies, sideband, unsampled, groups, read })
    }

    /// The parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        self.parts.iter().map(|(name, chosen)| Part {
            name: name.clone(),
            samples: chosen.samples,
            times: chosen.times,
        })
    }

    /// For each part, the recording without batches that it does not need, and the pass that writes it.
    pub fn passes(
        self,
        mut recording: Recording,
    ) -> impl Iterator<Item = (Option<Recording>, Box<dyn Pass>)> {
        let Split { rule, chooser, parts, cookies, mut sideband, unsampled, groups, .. } = self;
        let (mut numbers, mut always) = (HashMap::new(), Vec::new());
        recording.number_batches(|number, batch| match batch.and_then(Place::of_batch) {
            Some(place) => drop(numbers.insert(place, number)),
            None => always.push(number),
        });
        parts.into_iter().enumerate().map(move |(number, (_, mut chosen))| {
            let is_here = |event: usize| chosen.by_event.get(event).is_some_and(|&count| count > 0);
            let here = groups.iter().filter(|group| (*group).clone().any(is_here)).cloned().flatten();
            let here: Vec<usize> = here.chain(unsampled.iter().copied()).collect();
            here.into_iter().for_each(|event| chosen.of_event(Some(event)));
            let ranges = sideband.take_own(number);
            let owner = Owner { rule: rule.clone(), number, ranges, cookies: cookies.clone() };
            let plan = FilterPlan::new(chooser.clone(), chosen, Some(owner), &recording.events);
            let needed = sideband.needed_by(number, &plan);
            let needed = needed.iter().filter_map(|place| numbers.get(place));
            let mut needed: Vec<usize> = needed.chain(&always).copied().collect();
            needed.sort_unstable();
            let part = recording.try_clone().map(|mut part| {
                part.retain_numbered(&needed);
                part
            });
            (part, Box::new(CutRecords::new(plan)) as Box<dyn Pass>)
        })
    }
}

fn first_look(
    recording: &mut Recording,
    by: SplitBy,
    options: &Arc<FilterOptions>,
    threads: usize,
) -> Result<(Gathered, Counted)> {
    let form = recording.form;
    let has_windows = matches!(by, SplitBy::Time(_) | SplitBy::Size(_) | SplitBy::Samples(_));
    let gather = Gathered::kinds(options).without(RecordType::SAMPLE);
    let sample = Kinds::of(&[RecordType::SAMPLE]);
    let wanted = if matches!(by, SplitBy::Size(_)) { Kinds::ALL } else { gather.union(sample) };
    let work = |batch: &Batch| -> Result<(Gathered, Counted)> {
        let mut gathered = Gathered { has_windows, ..Gathered::new(options) };
        gathered.count_samples(batch);
        let read = (batch.records, batch.bytes.len() as u64);
        let mut counted = Counted { read, ..Counted::default() };
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            if gather.contains(record.kind()) {
                gathered.look_at(&record, &batch.layouts, options);
            }
            counted.look_at(&record, &batch.layouts, by, form);
        }
        Ok((gathered, counted))
    };
    let (mut gathered, mut counted) = (Gathered::new(options), Counted::default());
    scan(recording, threads, true, work, |_, (later, more)| {
        gathered.join(later);
        counted.join(more);
        Ok(())
    })?;
    Ok((gathered, counted))
}

/// Surveys the samples of each part, and which parts need the other records.
fn second_look(
    recording: &mut Recording,
    rule: &Rule,
    chooser: &Chooser,
    parts: &mut [(PartName, ChosenSamples)],
    threads: usize,
) -> Result<SideBand> {
    let work = |batch: &Batch| -> Result<(OfParts<ChosenSamples>, BatchNeeders)> {
        let mut found: OfParts<ChosenSamples> = OfParts::default();
        let mut needers = BatchNeeders::default();
        let (mut part, mut last) = (0, None);
        let place = Place::of_batch(batch);
        let layouts = &*batch.layouts;
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record()? {
            let kind = record.kind();
            let end = walker.position();
            let range = || end - record.bytes().len()..end;
            if kind == RecordType::FINISHED_ROUND {
                needers.end_round(range());
                continue;
            } else if !CHOSEN.contains(kind) {
                needers.look_at(&record, layouts, chooser, rule);
                continue;
            }
            part = rule.part_after(part, &record, layouts);
            needers.own(part, range());
            if kind != RecordType::SAMPLE {
                continue;
            }
            let layout = layouts.layout_of(&record);
            let key = OrderKey::of(&record, layout, layouts);
            let pid = layout.and_then(|layout| layout.pid_tid(&record)).map(|(pid, _)| pid);
            last = pid.map(|pid| chooser.process_of(&record, layouts, pid, key, last));
            let chosen = found.of(part, || ChosenSamples { batch: place, ..ChosenSamples::default() });
            chosen.take(&record, layouts, last);
        }
        Ok((found, needers))
    };
    let mut sideband = SideBand::default();
    scan(recording, threads, true, work, |batch, (found, needers)| {
        for (number, chosen) in found.all() {
            if let Some((_, all)) = parts.get_mut(number) {
                all.join(chosen);
            }
        }
        if let Some(place) = Place::of_batch(batch) {
            sideband.join(place, needers);
        }
        Ok(())
    })?;
    Ok(sideband)
}

fn by_pid(counted: Counted) -> (Rule, Vec<PartName>) {
    // Samples without a pid need a part, too.
    let mut pids: Vec<u32> = counted.pids.into_keys().collect();
    if pids.is_empty() {
        pids.push(u32::MAX);
    }
    let rule = pids.iter().copied().zip(0..).collect();
    (Rule::Pids(rule), pids.into_iter().map(PartName::Pid).collect())
}

fn by_event(
    recording: &Recording,
    events: &[Event],
    updates: &HashMap<u64, Vec<u8>>,
    counted: &Counted,
) -> (Rule, Vec<PartName>) {
    let names = names_of(events, &recording.features, &[], recording.endian, updates);
    let mut parts = Vec::new();
    let mut rule = vec![0; counted.samples.len()];
    for (event, part) in rule.iter_mut().enumerate().filter(|(event, _)| counted.samples[*event] > 0) {
        *part = parts.len();
        parts.push(PartName::Event(names.get(event).map_or_else(Vec::new, |event| event.name.to_vec())));
    }
    if parts.is_empty() {
        parts.push(PartName::Event(Vec::new()));
    }
    (Rule::Events(rule), parts)
}

fn by_moment(
    recording: &Recording,
    events: &[Event],
    by: SplitBy,
    counted: Counted,
) -> Result<(Rule, Vec<PartName>)> {
    let Counted { mut moments, others, rounds, aux, .. } = counted;
    moments.sort_unstable();
    let mut starts = Vec::new();
    match by {
        SplitBy::Samples(most) => fill(&moments, most, |_| 1, &mut starts),
        SplitBy::Size(most) => {
            if aux {
                bail!("AUX data can't be split by size: split {} by --time or --samples", recording.name);
            }
            let front = FileFront::new(events, recording.endian).bytes.len();
            let spare = |file: &FileHeader| file.spare_slots.len() + file.trailing.len();
            let spare = recording.file.as_ref().map_or(0, spare);
            let sections = recording.features.values().map(|section| 16 + section.len() as u64);
            let rest = (front + spare + recording.event_types.len()) as u64 + zeros_before_data(most);
            // A part has at most as many rounds as the recording, and at most one after each own record.
            let round = HEADER_SIZE as u64;
            let mean = total(&moments) / moments.len().max(1) as u64;
            let few = rounds <= most / (mean + round);
            let (rounds, round) = if few { (rounds * round, 0) } else { (0, round) };
            let weight = |&(_, size): &(OrderKey, u32)| u64::from(size) + round;
            let fixed = rest + sections.sum::<u64>() + others + rounds;
            let moment = |same: &[(OrderKey, u32)]| same.iter().map(weight).sum::<u64>();
            let largest = moments.chunk_by(|a, b| a.0 == b.0).map(moment).max().unwrap_or(0);
            ensure!(
                fixed + largest <= most,
                "a part has up to {} bytes of mappings, names and features before its samples, so --size {} is too small: \
                 give at least {}",
                count(fixed),
                count(most),
                count(fixed + largest)
            );
            fill(&moments, most - fixed, weight, &mut starts);
        }
        SplitBy::Time(_) | SplitBy::Pid | SplitBy::Event | SplitBy::Property(_) => {}
    }
    Ok(numbered(starts))
}

/// Reads the recording once more instead of keeping the times of all samples in memory.
fn by_time(
    recording: &mut Recording,
    first: u64,
    duration: u64,
    most: usize,
    threads: usize,
) -> Result<(Rule, Vec<PartName>)> {
    let work = |batch: &Batch| -> Result<BTreeSet<OrderKey>> {
        let (mut sampled, mut last) = (BTreeSet::new(), None);
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX)? {
            let time = batch.layouts.recorded_time(&record);
            let start = time.map(|time| OrderKey::at(time - time.saturating_sub(first) % duration));
            let start = start.unwrap_or(OrderKey::LAST);
            if last.replace(start) != Some(start) && sampled.len() <= most {
                sampled.insert(start);
            }
        }
        Ok(sampled)
    };
    let mut sampled = BTreeSet::new();
    scan(recording, threads, true, work, |_, more| {
        if sampled.len() <= most {
            sampled.extend(more);
        }
        Ok(())
    })?;
    Ok(numbered(sampled.into_iter().skip(1).collect()))
}

/// Reads the recording once more, because only then all names are known.
fn by_property(
    recording: &mut Recording,
    of: Property,
    chooser: &Arc<Chooser>,
    cgroups: &BTreeMap<u64, Box<[u8]>>,
    (most, threads): (usize, usize),
) -> Result<(Rule, Vec<PartName>)> {
    let work = |batch: &Batch| -> Result<BTreeSet<Key>> {
        let (mut keys, mut last) = (BTreeSet::new(), None);
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX)? {
            let key = of.of(&record, &batch.layouts, chooser);
            if key != last && keys.len() <= most {
                keys.extend(key.clone());
            }
            last = key;
        }
        Ok(keys)
    };
    let mut keys = BTreeSet::new();
    scan(recording, threads, true, work, |_, more| {
        if keys.len() <= most {
            keys.extend(more);
        }
        Ok(())
    })?;
    let name = |key: &Key| match (of, key) {
        (_, Key::Name(name)) => PartName::Comm(name.to_vec()),
        (Property::Cpu, Key::Number(cpu)) => PartName::Cpu(*cpu as u32),
        (Property::Cgroup, Key::Number(id)) => {
            PartName::Cgroup(cgroups.get(id).map_or_else(|| id.to_string().into(), |path| path.to_vec()))
        }
        (_, Key::Number(tid)) => PartName::Tid(*tid as u32),
    };
    let mut names: Vec<PartName> = keys.iter().map(name).collect();
    if names.is_empty() {
        names.push(PartName::Number);
    }
    let parts = keys.into_iter().zip(0..).collect();
    Ok((Rule::Keys { of, parts, chooser: chooser.clone() }, names))
}

fn numbered(starts: Vec<OrderKey>) -> (Rule, Vec<PartName>) {
    let parts = vec![PartName::Number; starts.len() + 1];
    (Rule::Times(starts), parts)
}

fn total(moments: &[(OrderKey, u32)]) -> u64 {
    moments.iter().map(|&(_, size)| u64::from(size)).sum()
}

/// Begins a new part before the current one exceeds `most`; records with the same time stay together.
fn fill(
    moments: &[(OrderKey, u32)],
    most: u64,
    weight: impl Fn(&(OrderKey, u32)) -> u64,
    starts: &mut Vec<OrderKey>,
) {
    let mut held = 0;
    for same in moments.chunk_by(|a, b| a.0 == b.0) {
        let more = same.iter().map(&weight).sum::<u64>();
        if held > 0 && held + more > most {
            starts.extend(same.first().map(|&(key, _)| key));
            held = 0;
        }
        held += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_have_units() {
        let by = |name, value| SplitBy::parse(name, value).ok();
        assert_eq!(by("size", "4096"), Some(SplitBy::Size(4096)));
        assert_eq!(by("size", "100M"), Some(SplitBy::Size(100_000_000)));
        assert_eq!(by("size", "2KiB"), Some(SplitBy::Size(2048)));
        assert_eq!(by("time", "1.5s"), Some(SplitBy::Time(1_500_000_000)));
        assert_eq!(by("time", "250ms"), Some(SplitBy::Time(250_000_000)));
        assert_eq!(by("samples", "7"), Some(SplitBy::Samples(7)));
        assert_eq!(by("by", "event"), Some(SplitBy::Event));
        assert_eq!(by("by", "tid"), Some(SplitBy::Property(Property::Tid)));
        for (name, value) in [
            ("size", ""),
            ("size", "M"),
            ("size", "-1"),
            ("size", "0"),
            ("size", "18446744073709551615k"),
            ("time", "0ms"),
            ("samples", "1e3"),
            ("samples", "0"),
            ("by", "thread"),
        ] {
            assert_eq!(by(name, value), None, "{name} {value}");
        }
    }

    #[test]
    fn parts_are_filled_and_a_moment_stays_whole() {
        let starts = |moments: &[(u64, u32)], most: u64| {
            let moments: Vec<_> = moments.iter().map(|&(time, size)| (OrderKey::at(time), size)).collect();
            let mut starts = Vec::new();
            fill(&moments, most, |&(_, size)| size.into(), &mut starts);
            starts
        };
        assert_eq!(starts(&[(1, 4), (2, 4), (3, 4), (4, 4), (5, 1)], 8), [3, 5].map(OrderKey::at));
        assert_eq!(starts(&[(1, 4), (2, 3), (2, 3), (3, 4)], 8), [2, 3].map(OrderKey::at));
        assert_eq!(starts(&[(1, 9), (2, 9)], 8), [OrderKey::at(2)]);
        assert!(starts(&[], 8).is_empty());
        assert!(starts(&[(u64::MAX, u32::MAX); 3], u64::MAX).is_empty());
    }

    #[test]
    fn sizes_of_what_every_part_has_are_added_up_apart_from_what_one_part_has() {
        use perfx_format::{Endian, Origin};
        let layouts = Layouts::new(&[]);
        let counted = |kinds: &[u32], by, form| {
            let mut counted = Counted::default();
            for kind in kinds {
                let bytes = [&kind.to_le_bytes()[..], &[0, 0, 16, 0], &[0; 8]].concat();
                let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
                counted.look_at(&record, &layouts, by, form);
            }
            (counted.others, counted.rounds, counted.moments.len(), counted.aux)
        };
        // MMAP, HEADER_BUILD_ID, FINISHED_ROUND and LOST.
        let kinds = [1, 67, 68, 2];
        assert_eq!(
            counted(&kinds, SplitBy::Size(100), Form::File).0,
            counted(&kinds, SplitBy::Size(100), Form::Pipe).0 - 16
        );
        assert_eq!(counted(&[1, 1], SplitBy::Size(100), Form::Pipe), (32, 0, 0, false));
        assert_eq!(counted(&[68, 68], SplitBy::Size(100), Form::Pipe), (0, 2, 0, false));
        assert_eq!(counted(&[9, 9, 1], SplitBy::Samples(2), Form::File), (0, 0, 2, false));
        assert_eq!(counted(&[9, 1], SplitBy::Size(2), Form::File), (16, 0, 1, false));
        assert_eq!(counted(&[9, 1, 68], SplitBy::Pid, Form::File), (0, 0, 0, false));
    }

    #[test]
    fn counts_of_batches_add_up() {
        let mut all = Counted::default();
        all.begin(Some(7));
        all.begin(None);
        let later = |first| Counted {
            first,
            others: 3,
            rounds: 2,
            samples: vec![1, 5],
            aux: true,
            read: (2, 9),
            ..Counted::default()
        };
        all.join(later(Some(5)));
        all.join(later(Some(6)));
        assert_eq!(
            (all.first, all.others, all.rounds, all.samples, all.aux, all.read),
            (Some(5), 6, 4, vec![2, 10], true, (4, 18))
        );
    }
}
