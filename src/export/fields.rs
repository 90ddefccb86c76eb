//! Counts and adds up tracepoints by their own fields, and the times between two of them, for `perfx list
//! fields` and named lists such as `perfx list syscalls`.
//!
//! Samples are read in time order, because a pair may be in the buffers of different CPUs. Memory depends on
//! the number of rows and open pairs, not on the number of samples.

mod ready;
mod source;
mod sum;
mod syscalls;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use perfx_filter::{FilterOptions, SelectedSamples};
use perfx_format::event_name::generic_name;
use perfx_format::read::Recording;
use perfx_format::tracepoint::{NamedField, TraceValue};
use perfx_format::{ByTracepoint, Endian, RecordType, Time};
use perfx_look::json::{Integer, Text};
use perfx_look::trace::{TracePrinter, printers};
use perfx_pipeline::{Error, Level, Purpose, Report, Result, bail, count, counted, did_you_mean, ensure};
use perfx_resolve::{Facts, Frame, IdOptions, Named, Search, name_frames, recorded_on};
use perfx_samples::{Losses, SampleView, Select};
use schemars::JsonSchema;
use serde::Serialize;

pub use ready::{READY, Ready};
use source::{Cell, Chains, OF_SAMPLES, Source, is_lock, owned};
use sum::Sum;

/// A quantity to count or time.
#[derive(Clone, Copy, Debug)]
pub struct Measure<'m> {
    /// The title of its rows.
    pub title: &'m str,
    /// The samples to count, or at which time begins. The first role is required, others are optional.
    pub begin: &'m [Role<'m>],
    /// The samples at which time ends; empty to count samples.
    pub end: &'m [Role<'m>],
    /// Samples that discard an earlier beginning.
    pub reset: &'m [Role<'m>],
    /// The columns that distinguish rows.
    pub by: &'m [Column<'m>],
    /// Without `end`, the field to add up.
    pub value: Option<&'m str>,
    /// Of several samples before an end, time begins at the first, not the last.
    pub keeps_first: bool,
    /// Leave out thread 0, which stands for an idle CPU.
    pub skips_idle: bool,
}

/// Samples with a part in a measure.
#[derive(Clone, Copy, Debug)]
pub struct Role<'m> {
    /// The name of their event; `*` at the end stands for any text.
    pub events: &'m str,
    /// The fields that a beginning and its end have in common.
    pub key: &'m [&'m str],
    /// A field, and its accepted texts.
    pub only: Option<(&'m str, &'m [&'m str])>,
}

/// A column that distinguishes rows.
#[derive(Clone, Copy, Debug)]
pub struct Column<'m> {
    /// A field, or a value of all samples. The prefix `end.` takes it from the end of a pair; without it, the
    /// end is used only for fields that no beginning has.
    pub from: &'m str,
    /// Its title.
    pub title: &'m str,
}

/// Tables of the fields of tracepoints, or of the times between them.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FieldTables {
    /// A table for each measure
    pub tables: Vec<FieldTable>,
}

/// The rows of a measure.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FieldTable {
    /// The title of the measure: the things that are counted or timed
    pub title: String,
    /// The titles of the keys
    pub by: Vec<String>,
    /// The field whose values are added up, or `time`; null if samples are only counted
    pub value: Option<String>,
    /// `ns` for times; null otherwise
    pub unit: Option<&'static str>,
    /// The number of beginnings without an end, which are not counted
    pub without_end: u64,
    /// The number of ends without a beginning, which are not counted
    pub without_beginning: u64,
    /// The number of rows, including those that are not listed
    pub all_rows: u64,
    /// The rows, with the highest sums first, or counts if there are no sums
    pub rows: Vec<FieldRow>,
}

/// The samples or times with equal keys.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FieldRow {
    /// A value for each title in `by`
    pub keys: Vec<Text<Vec<u8>>>,
    /// The number of samples, or of pairs
    pub count: u64,
    /// The number of these samples, or pairs, whose field `ret` is an error; null without such a field
    pub failed: Option<u64>,
    /// The sum of the values; null without values
    pub sum: Option<Integer<i128>>,
    /// Their arithmetic mean
    pub mean: Option<f64>,
    /// The value that 99 % of the values do not exceed; up to 1 % too high
    pub p99: Option<Integer<i64>>,
    /// The highest value
    pub max: Option<Integer<i64>>,
}

type Rows = IndexMap<Vec<String>, Sum, RandomState>;

#[derive(Default, Debug)]
struct Table {
    is_answered: bool,
    rows: Rows,
    without_end: u64,
    without_beginning: u64,
    has_failed: bool,
}

/// The sums of measures over recordings.
#[derive(Debug)]
pub struct FieldSums<'m> {
    measures: &'m [Measure<'m>],
    tables: Vec<Table>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    End,
    Reset,
    Begin,
}

struct EventRole<'m> {
    measure: usize,
    part: Part,
    key: Vec<Source>,
    only: Option<(Source, &'m [&'m str])>,
    by: Vec<Option<Source>>,
    value: Option<Source>,
    ret: Option<NamedField<'static>>,
}

struct Open {
    time: u64,
    by: Vec<Cell>,
    is_selected: bool,
}

#[derive(Default)]
struct Tally {
    rows: HashMap<Vec<Cell>, Sum, RandomState>,
    open: HashMap<Vec<Cell>, Open, RandomState>,
    pairs: u64,
    /// The beginnings followed by another one before an end.
    again: u64,
    without_beginning: u64,
    /// The keys of ends without a beginning, and the number of further ends with these keys: only the first
    /// of each may have its beginning before the recording.
    ends: HashSet<Vec<Cell>, RandomState>,
    later_ends: u64,
    /// The pairs that were open when records were lost.
    cut: u64,
    /// The counted samples whose value is not a number below 2^63.
    without_value: u64,
    /// Only the beginning of a pair selects it: its end is in any thread.
    begins_select: bool,
}

impl<'m> FieldSums<'m> {
    /// No sums.
    pub fn new(measures: &'m [Measure<'m>]) -> FieldSums<'m> {
        FieldSums { measures, tables: measures.iter().map(|_| Table::default()).collect() }
    }

    /// Adds the samples of a recording that `filter` selects. A pair counts if either sample is selected; if
    /// its end may be in another thread, options for threads and CPUs apply to the beginning only. `record`
    /// contains the options of `perf record` that record the necessary tracepoints.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed, or lacks the tracepoints or fields.
    pub fn add(
        &mut self,
        mut recording: Recording,
        filter: &Arc<FilterOptions>,
        ids: &IdOptions,
        record: Option<&str>,
        threads: usize,
        report: &mut Report,
    ) -> Result<()> {
        let facts = Facts::survey(&mut recording, threads, true)?;
        let selected = SelectedSamples::if_any(&mut recording, filter, threads, report)?;
        let (events, features, endian) =
            (recording.all_events(), recording.features.clone(), recording.endian);
        let name = recording.name.clone();
        let points = printers(&events, &features, endian);
        let (roles, answered) = self.roles(&facts, &points, record).map_err(|error| error.in_file(&name))?;
        report.say_faults(&recording, Purpose::UseRecords);
        if let Some(options) = record {
            let titles: BTreeSet<&str> = self.measures.iter().map(|measure| measure.title).collect();
            for title in titles.into_iter().filter(|title| !answered.contains(title)) {
                let what = format!("{title}: not listed, because the recording lacks what it needs");
                report.say(Level::Info, format!("{what}: perf record {options}"));
            }
        }
        let mut is_selected = selected.as_ref().map(Select::on_thread);
        let tally = |measure: &Measure<'_>| {
            let is_of_thread = |role: &Role<'_>| role.key.first() == Some(&"sample.tid");
            let begins_select = filter.chooses_tasks() && !measure.begin.iter().all(is_of_thread);
            Tally { begins_select, ..Tally::default() }
        };
        let mut tallies: Vec<Tally> = self.measures.iter().map(tally).collect();
        let (mut losses, mut chains, mut timeless) = (Losses::default(), Chains::default(), 0);
        let mut records = recording.records_by_time()?;
        loop {
            let read = match records.next_record() {
                Ok(Some(read)) => read,
                Ok(None) => break,
                // Records after the damage can be read.
                Err(error) => {
                    report.say(Level::Loss, error.to_string());
                    continue;
                }
            };
            let (read, layouts) = (*read, read.layouts());
            let lost_before = losses.recording.total();
            losses.recording.add(&read, layouts);
            if losses.recording.total() > lost_before {
                tallies.iter_mut().for_each(Tally::cut);
            }
            if read.kind() != RecordType::SAMPLE {
                continue;
            }
            let known = SampleView::of(&read, layouts);
            let Some((sample, event)) = known.and_then(|sample| Some((sample, sample.event_in(&facts)?)))
            else {
                losses.astray += 1;
                continue;
            };
            if roles[event].is_empty() {
                continue;
            }
            let Ok(parts) = sample.parts() else {
                losses.short += 1;
                continue;
            };
            let time = sample.time();
            let is_paired = |role: &EventRole<'_>| !self.measures[role.measure].end.is_empty();
            timeless += u64::from(time.is_none() && roles[event].iter().any(is_paired));
            let is_selected = is_selected.as_mut().is_none_or(|is_selected| is_selected(sample));
            let raw = parts.raw.unwrap_or_default();
            for role in roles[event].iter().filter(|role| time.is_some() || !is_paired(role)) {
                let mut cell = |source: &Source| source.cell((sample, raw), (&facts, event), &mut chains);
                let measure = &self.measures[role.measure];
                tallies[role.measure].take(
                    role,
                    measure,
                    (time.map_or(0, Time::ns), is_selected, raw, endian),
                    &mut cell,
                );
            }
        }
        losses.say("not counted", report);
        if timeless > 0 {
            let what = counted(timeless, "sample has no time and belongs", "samples have no time and belong");
            report.say(Level::Loss, format!("{what} to no pair"));
        }
        let search = Search { facts: &facts, features: &features, endian, ids, inlined: false };
        let is_empty = tallies.iter().all(|tally| tally.rows.is_empty());
        let named = self.name(tallies, &chains, search, (record.is_some(), report))?;
        named.say_reasons(report);
        if is_empty {
            match &selected {
                Some(selected) => selected.say_none(&name, false, report),
                None => {
                    let what = format!("{name} has no samples of the tracepoints that are counted");
                    report.say(Level::Warning, what);
                }
            }
        }
        Ok(())
    }

    /// The roles of each event, and the titles of the measures for which the recording has data.
    fn roles(
        &mut self,
        facts: &Facts,
        points: &ByTracepoint<TracePrinter<'_>>,
        record: Option<&str>,
    ) -> Result<(Vec<Vec<EventRole<'m>>>, Vec<&'m str>)> {
        let mut roles: Vec<Vec<EventRole<'m>>> = facts.events.iter().map(|_| Vec::new()).collect();
        let known = |role: &Role<'_>| {
            let of_event = |event: usize| {
                let is_it = matches_name(role.events, &facts.events[event].name);
                is_it.then(|| Some((event, points.get(event)?, facts.events[event].has_chains))).flatten()
            };
            (0..facts.events.len()).filter_map(of_event).collect::<Vec<_>>()
        };
        let mut missing = BTreeSet::new();
        let mut answered: Vec<&'m str> = Vec::new();
        for (number, measure) in self.measures.iter().enumerate() {
            if answered.contains(&measure.title) {
                continue;
            }
            let [begins, ends] = [measure.begin, measure.end]
                .map(|roles| roles.iter().map(|role| (role, known(role))).collect::<Vec<_>>());
            let is_there = begins.first().is_some_and(|(_, events)| !events.is_empty())
                && (measure.end.is_empty() || ends.iter().any(|(_, events)| !events.is_empty()));
            if !is_there {
                continue;
            }
            // The end is used only for columns that no beginning has.
            let has = |name: &str| {
                let mut events = begins.iter().flat_map(|(_, events)| events);
                events.any(|(_, point, chains)| Source::of(name, point, *chains).is_some())
            };
            let column =
                |is_end: bool, (_, point, chains): (usize, &TracePrinter<'_>, bool), column: &Column<'_>| {
                    let of_end = column.from.strip_prefix("end.");
                    let name = of_end.unwrap_or(column.from);
                    let is_own = is_end == (of_end.is_some() || !has(name));
                    is_own.then(|| Source::of(name, point, chains)).flatten()
                };
            let mut own: Vec<(usize, EventRole<'m>)> = Vec::new();
            // An event may be the end of one pair and the beginning of another.
            let resets = measure.reset.iter().map(|role| (Part::Reset, role, known(role)));
            let parts = ends.iter().map(|(role, events)| (Part::End, *role, events.clone()));
            let parts = parts.chain(resets);
            let parts = parts.chain(begins.iter().map(|(role, events)| (Part::Begin, *role, events.clone())));
            for (part, role, events) in parts {
                let is_end = part == Part::End;
                for (event, point, chains) in events {
                    let source = |name: &&str| {
                        Source::key(name, point, chains).ok_or_else(|| lacks(name, event, facts, point))
                    };
                    let value = measure.value.filter(|_| part == Part::Begin);
                    let only = role.only.map(|(name, texts)| {
                        let source = Source::of(name, point, chains);
                        source.map(|source| (source, texts)).ok_or_else(|| lacks(name, event, facts, point))
                    });
                    let role = EventRole {
                        measure: number,
                        part,
                        key: role.key.iter().map(source).collect::<Result<_>>()?,
                        only: only.transpose()?,
                        by: measure.by.iter().map(|by| column(is_end, (event, point, chains), by)).collect(),
                        value: value.as_ref().map(source).transpose()?,
                        ret: point.fields().iter().find(|field| field.name == "ret").map(owned),
                    };
                    own.push((event, role));
                }
            }
            let lacking = (0..measure.by.len()).find(|&by| own.iter().all(|(_, role)| role.by[by].is_none()));
            if let Some(by) = lacking {
                let (event, point, _) = begins[0].1[0];
                missing.insert(lacks(measure.by[by].from, event, facts, point).to_string());
                continue;
            }
            answered.push(measure.title);
            let table = &mut self.tables[number];
            table.is_answered = true;
            let mut of_ends = own.iter().filter(|(_, role)| role.part == Part::End || measure.end.is_empty());
            table.has_failed |= of_ends.any(|(_, role)| role.ret.is_some());
            own.into_iter().for_each(|(event, role)| roles[event].push(role));
        }
        if answered.is_empty() {
            if let Some(lacks) = missing.first() {
                bail!("{lacks}");
            }
            let is_event =
                |role: &&Role<'_>| facts.events.iter().any(|event| matches_name(role.events, &event.name));
            let necessary: Vec<&Role<'_>> = self
                .measures
                .first()
                .map_or_else(Vec::new, |measure| measure.begin.iter().take(1).chain(measure.end).collect());
            let missing = necessary.iter().find(|role| !is_event(role));
            let unusable = necessary.iter().find(|role| known(role).is_empty());
            let wanted = missing.or(unusable).map_or("", |role| role.events);
            let names: BTreeSet<String> =
                facts.events.iter().map(|event| String::from_utf8_lossy(&event.name).into_owned()).collect();
            let is_unknown =
                !(0..facts.events.len()).any(|event| matches_name(wanted, &facts.events[event].name));
            ensure!(is_unknown, "`{wanted}` is no tracepoint, or the recording does not describe its fields");
            match record {
                Some(options) => bail!(
                    "the recording has no samples of the tracepoints that this list needs: perf record {options}"
                ),
                None => {
                    let meant = did_you_mean(wanted, names.iter().map(String::as_str).collect::<Vec<_>>());
                    bail!(
                        "the recording has no event `{wanted}`; it has {}{meant}",
                        perfx_pipeline::list(names.iter().cloned())
                    )
                }
            }
        }
        Ok((roles, answered))
    }

    /// Names the addresses and system calls in keys, and adds the rows to those of earlier recordings.
    fn name(
        &mut self,
        tallies: Vec<Tally>,
        chains: &Chains,
        search: Search<'_>,
        (is_strict, report): (bool, &mut Report),
    ) -> Result<Named> {
        let cells = tallies.iter().flat_map(|tally| tally.rows.keys()).flatten();
        let of_cells = cells.filter_map(|cell| match cell {
            Cell::Code(frame) => Some(*frame),
            _ => None,
        });
        let frames: BTreeSet<Frame> = of_cells.chain(chains.iter().flatten().copied()).collect();
        let mut names: HashMap<Frame, String> = HashMap::new();
        let named = name_frames(frames.iter().copied(), search, |_, frame, name| {
            names.extend(name.functions.last().map(|function| (frame, function.name.to_string())));
        })?;
        let machine = recorded_on(search.features, search.endian).arch.unwrap_or_default();
        let caller = |chain: usize| {
            let functions = chains.get_index(chain).into_iter().flatten();
            let functions = functions.map(|frame| names.get(frame).map_or("[unknown]", String::as_str));
            functions.filter(|function| !is_lock(function)).map(str::to_owned).next()
        };
        let text = |cell: Cell| match cell {
            Cell::Missing => "[unknown]".to_owned(),
            Cell::Number(number) => number.to_string(),
            Cell::Syscall(number) => syscalls::name(&machine, number)
                .map_or_else(|| number.cast_signed().to_string(), str::to_owned),
            Cell::Text(text) => text,
            Cell::Code(frame) => names.get(&frame).cloned().unwrap_or_else(|| format!("{:#x}", frame.at)),
            Cell::Chain(chain) => caller(chain).unwrap_or_else(|| "[unknown]".to_owned()),
        };
        for ((measure, tally), table) in self.measures.iter().zip(tallies).zip(&mut self.tables) {
            tally.say(measure, is_strict, report);
            table.without_end += tally.without_end();
            table.without_beginning += tally.without_beginning;
            let mut rows: Vec<(Vec<Cell>, Sum)> = tally.rows.into_iter().collect();
            rows.sort_by(|(a, _), (b, _)| a.cmp(b));
            for (key, sum) in rows {
                let key = key.into_iter().map(&text).collect();
                table.rows.entry(key).or_default().join(sum);
            }
        }
        Ok(named)
    }

    /// The tables, with at most `head` rows each.
    pub fn tables(&self, head: usize) -> FieldTables {
        let tables = self.measures.iter().zip(&self.tables).filter(|(_, table)| table.is_answered);
        let tables = tables.map(|(measure, table)| {
            let is_time = !measure.end.is_empty();
            let mut rows: Vec<(&Vec<String>, &Sum)> = table.rows.iter().collect();
            rows.sort_by(|(a, one), (b, other)| {
                Reverse((one.sum, one.count)).cmp(&Reverse((other.sum, other.count))).then_with(|| a.cmp(b))
            });
            FieldTable {
                title: measure.title.to_owned(),
                by: measure.by.iter().map(|column| column.title.to_owned()).collect(),
                value: if is_time { Some("time".to_owned()) } else { measure.value.map(str::to_owned) },
                unit: is_time.then_some("ns"),
                without_end: table.without_end,
                without_beginning: table.without_beginning,
                all_rows: rows.len() as u64,
                rows: rows.into_iter().take(head).map(|(key, sum)| row(key, sum, table.has_failed)).collect(),
            }
        });
        FieldTables { tables: tables.collect() }
    }
}

impl Tally {
    fn take(
        &mut self,
        role: &EventRole<'_>,
        measure: &Measure<'_>,
        (time, is_selected, raw, endian): (u64, bool, &[u8], Endian),
        cell: &mut impl FnMut(&Source) -> Cell,
    ) {
        if let Some((source, texts)) = &role.only
            && !matches!(cell(source), Cell::Text(text) if texts.contains(&&*text))
        {
            return;
        }
        let key: Vec<Cell> = role.key.iter().map(&mut *cell).collect();
        if measure.skips_idle && key.first() == Some(&Cell::Number(0)) {
            return;
        }
        let has_failed =
            || matches!(role.ret.and_then(|ret| ret.value(raw, endian)), Some(TraceValue::Signed(..0)));
        match role.part {
            Part::Begin if measure.end.is_empty() && !is_selected => {}
            Part::Begin => {
                let columns = role.by.iter();
                let by = columns.map(|source| source.as_ref().map_or(Cell::Missing, &mut *cell)).collect();
                if measure.end.is_empty() {
                    let value = role.value.as_ref().map(|source| match cell(source) {
                        Cell::Number(number) => i64::try_from(number).ok(),
                        _ => None,
                    });
                    self.without_value += u64::from(value == Some(None));
                    return self.add(by, value.flatten(), has_failed());
                }
                let open = Open { time, by, is_selected };
                match self.open.entry(key) {
                    Entry::Occupied(_) if measure.keeps_first => {}
                    Entry::Occupied(mut earlier) => {
                        self.again += u64::from(earlier.insert(open).is_selected);
                    }
                    Entry::Vacant(place) => {
                        place.insert(open);
                    }
                }
            }
            Part::Reset => drop(self.open.remove(&key)),
            Part::End => match self.open.remove(&key) {
                None => {
                    self.without_beginning += u64::from(is_selected);
                    self.later_ends += u64::from(is_selected && !self.ends.insert(key));
                }
                Some(open) if open.is_selected || is_selected && !self.begins_select => {
                    let columns = open.by.into_iter().zip(&role.by);
                    let by = columns.map(|(of_begin, of_end)| of_end.as_ref().map_or(of_begin, &mut *cell));
                    let by = by.collect();
                    self.pairs += 1;
                    let span = time.saturating_sub(open.time);
                    self.add(by, Some(i64::try_from(span).unwrap_or(i64::MAX)), has_failed());
                }
                Some(_) => {}
            },
        }
    }

    fn without_end(&self) -> u64 {
        self.again + self.open.values().filter(|open| open.is_selected).count() as u64
    }

    fn add(&mut self, key: Vec<Cell>, value: Option<i64>, has_failed: bool) {
        let sum = self.rows.entry(key).or_default();
        sum.add(value);
        sum.failed += u64::from(has_failed);
    }

    fn cut(&mut self) {
        self.cut += self.open.values().filter(|open| open.is_selected).count() as u64;
        self.open.clear();
    }

    /// Reports incomplete pairs. Some are normal at the start and end of a recording; with `is_strict`, at
    /// least 1 % of others are a warning.
    fn say(&self, measure: &Measure<'_>, is_strict: bool, report: &mut Report) {
        if self.without_value > 0 {
            let samples = counted(self.without_value, "sample", "samples");
            let field = measure.value.unwrap_or_default();
            let what =
                format!("`{field}` is text or at least 2^63 in {samples}, so it was not added up there");
            report.say(Level::Loss, what);
        }
        let [without_end, without_beginning] = [self.without_end(), self.without_beginning];
        if without_end + without_beginning + self.cut == 0 {
            return;
        }
        let mut what = format!(
            "{}: {}; not counted: {} without an end, {} without a beginning",
            measure.title,
            counted(self.pairs, "pair", "pairs"),
            count(without_end),
            count(without_beginning)
        );
        let odd = if is_strict { self.again + self.later_ends } else { 0 };
        if self.cut > 0 {
            what += &format!(", {} open when records were lost", count(self.cut));
            report.say(Level::Loss, what);
        } else if self.pairs > odd * 100 {
            report.say(Level::Info, what);
        } else {
            let how =
                "record both tracepoints on all CPUs (-a), with a larger buffer (-m) if records were lost";
            report.say(Level::Warning, format!("{what}; {how}"));
        }
    }
}

/// True for the name of an event; `wanted` may lack the system, or end with `*`.
fn matches_name(wanted: &str, name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(generic_name(name));
    match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == wanted || name.split_once(':').is_some_and(|(_, own)| own == wanted),
    }
}

fn lacks(name: &str, event: usize, facts: &Facts, point: &TracePrinter<'_>) -> Error {
    let event = String::from_utf8_lossy(&facts.events[event].name).into_owned();
    let own = point.fields().iter().filter(|field| !field.is_common());
    let own: Vec<&str> = own.map(|field| field.name).collect();
    let name = name.strip_prefix("end.").unwrap_or(name);
    if name == "caller" {
        return Error::new(format!(
            "the samples of {event} have no call chains, so their callers are not known: perf record -g"
        ));
    }
    let meant = did_you_mean(name, [&own[..], &OF_SAMPLES].concat());
    Error::new(format!(
        "{event} has no field `{name}`; it has {}, and all samples have {}{meant}",
        own.join(", "),
        OF_SAMPLES.join(", ")
    ))
}

fn row(key: &[String], sum: &Sum, has_failed: bool) -> FieldRow {
    let mean = |_| sum.sum as f64 / sum.values() as f64;
    FieldRow {
        keys: key.iter().map(|key| Text(key.clone().into_bytes())).collect(),
        count: sum.count,
        failed: has_failed.then_some(sum.failed),
        sum: sum.range.map(|_| Integer(sum.sum)),
        mean: sum.range.map(mean),
        p99: sum.p99().map(Integer),
        max: sum.range.map(|(_, high)| Integer(high)),
    }
}
