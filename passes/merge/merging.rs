//! Merges the guests' records into the stream of the host's records, in time order.

use std::collections::BTreeSet;
use std::sync::Arc;

use perfx_format::features::SampleTime;
use perfx_format::read::Batch;
use perfx_format::record::identifier;
use perfx_format::{Endian, Feature, Kinds, Layouts, Origin, Record, RecordType, sample_type as st};
use perfx_model::address_space::Machine;
use perfx_pipeline::{Emit, Interest, Level, Place, Prescan, Prescanned, Result, Rewrite, Session, counted};

use super::clock::Clock;
use super::events::{add_events, translation};
use super::guest::Guest;
use super::judged::{Judged, PARTS};
use super::machines::Machines;
use super::placed::Placed;
use super::report::{tell, tell_done};
use super::sorted::{Sorted, timeless};
use super::switches::{Switches, ThreadState, VcpuRunLog};
use super::translate::Translator;
use crate::support::event_ids::{FreeIds, identified, identified_late, lacks_identifier};

pub(crate) struct Merging {
    endian: Endian,
    guests: Vec<ActiveGuest>,
    /// ID_INDEX records, to be written before the host's first record with a time.
    front: Vec<Vec<u8>>,
    begun: bool,
    /// The host's first record with a time, unless that is FINISHED_INIT.
    begun_at: Option<(RecordType, Origin)>,
    finished_init: bool,
    /// The host's switches, and the state of its VCPU threads at the last guest record written.
    pub(crate) switches: Switches,
    now: Vec<ThreadState>,
    /// Batches were prescanned, because this pass is the first of the chain.
    prescanned: bool,
    /// The first id of each host event, if the host's records must get an IDENTIFIER.
    identify: Option<Vec<u64>>,
}

struct ActiveGuest {
    guest: Guest,
    translator: Arc<Translator>,
    sorted: Sorted,
    judged: Vec<Judged>,
    times: Option<(u64, u64)>,
}

/// The size of steps after the end of the host's records, bytes.
const STEP: usize = 4 << 20;

impl Merging {
    pub(crate) fn new(
        guests: Vec<(Placed, Clock)>,
        run_log: &VcpuRunLog,
        machines: &Machines,
        session: &mut Session,
    ) -> Result<Merging> {
        let endian = session.endian;
        let host_attr = session.events.iter().map(|event| event.raw().len()).max().unwrap_or(0);
        let used: BTreeSet<u64> = session.events.iter().flat_map(|event| event.ids.iter().copied()).collect();
        let mut free = FreeIds::beyond(used, machines.late_id);
        let mut events = session.events.clone();
        let identify = lacks_identifier(&events).then(|| {
            for event in &mut events {
                *event = identified(event, endian);
                if event.ids.is_empty() {
                    event.ids.push(free.next());
                }
            }
            session.report.say(
                Level::Info,
                "every record of the host gets an IDENTIFIER, so that perf can distinguish it from a guest's",
            );
            events.iter().map(|event| event.ids[0]).collect()
        });
        let switches = run_log.switches.empty_fork();
        let (mut merged, mut front, mut added) = (Vec::new(), Vec::new(), Vec::new());
        let mut span: Option<(u64, u64)> = None;
        let (mut build_ids, mut mapped_ids) = (Vec::new(), Vec::new());
        for (mut placed, clock) in guests {
            let translation = translation(&placed, &mut free, host_attr, endian);
            let times = tell(&placed, &clock, &translation, &mut session.report)?;
            let sampled = placed.guest.facts.sampled;
            let sampled = sampled.and_then(|(from, to)| clock.host_time(from).zip(clock.host_time(to)));
            span = span.into_iter().chain(sampled).reduce(|(a, b), (from, to)| (a.min(from), b.max(to)));
            let (mut ids, nested) = placed.guest.build_ids(placed.pid);
            if nested > 0 {
                let lost = counted(nested, "build-id", "build-ids");
                session.report.say(Level::Loss, format!("{}: {lost} of guests of its own", placed.name()));
            }
            if let Some(root) = &placed.root {
                let (found, missing) = placed.guest.build_ids_below(root, placed.pid, &mut ids);
                let found = counted(found, "build-id", "build-ids");
                let missing = if missing > 0 { format!(", {missing} more not there") } else { String::new() };
                let text = format!("{}: {found} found below {}{missing}", placed.name(), root.display());
                session.report.say(Level::Info, text);
            }
            build_ids.extend(ids);
            if !placed.guest.recording.features.contains_key(&Feature::BUILD_ID) {
                let machine = Machine::Guest(placed.pid);
                mapped_ids.extend(placed.guest.facts.mapped_ids.entries(machine, endian));
            }
            events.extend(translation.events.iter().cloned());
            front.extend(translation.index);
            let number = |thread: u32| switches.number_of(thread).map(|number| number as u32);
            let translator = Arc::new(Translator {
                clock,
                chosen: placed.guest.chosen.clone(),
                ids: translation.ids,
                events: placed.guest.recording.events.iter().map(|event| event.ids.clone()).collect(),
                threads: placed
                    .threads
                    .iter()
                    .filter_map(|(&v, thread)| Some((v, number(thread.tid)?)))
                    .collect(),
            });
            let sorted = Sorted::new(&mut placed.guest, translator.clone(), session.threads)?;
            added.push(translation.events);
            let judged = vec![Judged::default(); PARTS];
            merged.push(ActiveGuest { guest: placed.guest, translator, sorted, judged, times });
        }
        let guests = merged.iter().zip(&added).map(|(way, events)| (&way.guest.recording, &events[..]));
        let guests: Vec<_> = guests.collect();
        add_events(session, &guests, events);
        session.add_build_ids(&build_ids);
        if session.feature(Feature::BUILD_ID).is_some() {
            // The feature hides the ids in MMAP2 records.
            session.add_build_ids(&mapped_ids);
        }
        widen_sample_time(session, span);
        Ok(Merging {
            endian,
            guests: merged,
            front,
            begun: false,
            begun_at: None,
            finished_init: machines.finished_init,
            switches,
            now: run_log.at_first(),
            prescanned: false,
            identify,
        })
    }

    fn start(&mut self, out: &mut Emit<'_>) -> Result<()> {
        self.begun = true;
        for record in std::mem::take(&mut self.front) {
            out.put(&record)?;
        }
        for way in &mut self.guests {
            timeless(&mut way.guest, &way.translator, |record| out.put(record))?;
        }
        Ok(())
    }

    /// Writes the guests' records up to a time, or about `most` bytes; returns true if there may be more.
    fn put(&mut self, limit: u64, most: usize, out: &mut Emit<'_>) -> Result<bool> {
        let mut put = 0;
        while put < most {
            // The numbers of the two guests with the earliest records, and the times of these.
            let mut turns: [Option<(u64, usize)>; 2] = [None; 2];
            for (number, way) in self.guests.iter_mut().enumerate() {
                if let Some(time) = way.sorted.peek(limit)? {
                    let turn = (time, number);
                    match turns {
                        [Some(first), _] if turn > first => {
                            turns[1] = turns[1].map_or(Some(turn), |next| Some(next.min(turn)))
                        }
                        [first, _] => turns = [Some(turn), first],
                    }
                }
            }
            let [Some((_, number)), next] = turns else { return Ok(false) };
            let Some(way) = self.guests.get_mut(number) else { return Ok(false) };
            // Records with the same time are in the order of the guests on the command line.
            let until = next
                .map_or(limit, |(time, other)| if number < other { time } else { time.saturating_sub(1) });
            let (records, bytes) = way.sorted.take(until.min(limit));
            let mut at = 0;
            let (first, last) = way.times.unwrap_or_default();
            let length = (last.saturating_sub(first) / PARTS as u64).saturating_add(1);
            for made in records {
                let record = bytes.get_mut(at..).unwrap_or_default();
                at += made.range().len();
                advance(&mut self.now, &mut self.switches, made.time);
                let now = made.thread.and_then(|thread| self.now.get(thread as usize));
                let covered = self.switches.times().is_some_and(|(_, last)| made.time <= last);
                if let Some(runs) = now.and_then(|now| now.runs).filter(|_| covered) {
                    let part = (made.time.saturating_sub(first) / length).min(PARTS as u64 - 1) as usize;
                    way.judged[part].all += 1;
                    way.judged[part].inside += u64::from(runs);
                }
                made.set_cpu(record, now.map_or(0, |now| now.cpu), self.endian);
            }
            out.put_all(bytes)?;
            put += bytes.len();
        }
        Ok(true)
    }
}

/// Adds the times of the guests' samples to feature SAMPLE_TIME. Unknown times stay unknown.
fn widen_sample_time(session: &mut Session, span: Option<(u64, u64)>) {
    let section = session.feature(Feature::SAMPLE_TIME);
    let known = section.and_then(|section| SampleTime::read(section, session.endian)?.times());
    if let (Some((first_ns, last_ns)), Some((first, last))) = (known, span) {
        let wider = SampleTime { first_ns: first_ns.min(first), last_ns: last_ns.max(last) };
        session.set_feature(Feature::SAMPLE_TIME, wider.write(session.endian));
    }
}

impl Rewrite for Merging {
    fn begin_batch(&mut self, _batch: &Batch) -> Interest {
        // After the first guest record, records are inserted only at FINISHED_ROUNDs.
        if self.begun && self.identify.is_none() {
            Interest::KeepRest(Kinds::of(&[RecordType::FINISHED_ROUND]))
        } else {
            Interest::AsDeclared
        }
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        if !self.prescanned {
            self.switches.look_at(&record, out.layouts());
        }
        let is_first = !self.begun && !Kinds::HEADER.contains(record.kind());
        if is_first && (!record.kind().is_kernel() || out.layouts().time(&record).is_some()) {
            if record.kind() != RecordType::FINISHED_INIT {
                self.begun_at = Some((record.kind(), record.origin()));
            }
            self.start(out)?;
        }
        if record.kind() == RecordType::FINISHED_ROUND {
            // No older records follow, and the host's switches are known up to there.
            let flushed_until = self.switches.finish_round();
            self.put(flushed_until, usize::MAX, out)?;
            // Also if no guest has records; otherwise switches would pile up.
            advance(&mut self.now, &mut self.switches, flushed_until);
        }
        match &self.identify {
            Some(first) if has_sample_id(&record, out.layouts()) => {
                let new = with_identifier(&record, out.layouts(), first)?;
                out.replace(&record, &new)
            }
            Some(_) => out.replace_if(record, identified_late(&record)),
            None => out.keep(record),
        }
    }

    fn drain(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        if !self.begun {
            self.start(out)?;
        }
        self.switches.finish();
        self.put(u64::MAX, STEP, out)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let report = &mut session.report;
        if let Some((kind, origin)) = self.begun_at {
            let init =
                if self.finished_init { "comes late" } else { "is missing (perf before 6.0 writes none)" };
            let text = format!(
                "the host's FINISHED_INIT {init}: the guests' initial records were put before the {kind} at {origin}"
            );
            report.say(Level::Info, text);
        }
        for way in &self.guests {
            let name = &way.guest.recording.name;
            tell_done(name, way.times, self.switches.times(), &way.judged, report);
        }
        Ok(())
    }
}

impl Prescanned for Merging {
    type Prescan = Switches;

    fn prescan(&self) -> Switches {
        self.switches.empty_fork()
    }

    fn absorb_prescan(&mut self, switches: Switches) -> Result<Vec<Place>> {
        self.prescanned = true;
        self.switches.join(switches);
        Ok(Vec::new())
    }
}

impl Prescan for Switches {
    fn fork(&self) -> Switches {
        self.empty_fork()
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        self.look_into(batch);
        Ok(())
    }
}

fn advance(now: &mut [ThreadState], switches: &mut Switches, time: u64) {
    while let Some(switch) = switches.next_until(time) {
        if let Some(now) = now.get_mut(switch.thread as usize) {
            now.take(switch);
        }
    }
}

/// True for kernel records, and for a HEADER_BUILD_ID that perf inject made for a sample.
fn has_sample_id(record: &Record<'_>, layouts: &Layouts) -> bool {
    record.kind().is_kernel() || layouts.layout_of_build_id(record).is_some()
}

/// A host record with an IDENTIFIER; `first` has the first id of each event.
fn with_identifier(record: &Record<'_>, layouts: &Layouts, first: &[u64]) -> Result<Vec<u8>> {
    let event = layouts.event_of(record);
    let layout = event.and_then(|event| layouts.all().get(event));
    let Some((event, layout)) = event.zip(layout) else {
        return Err(record.error("no event has its id").into());
    };
    if layout.sample_type & st::IDENTIFIER != 0 {
        return Ok(record.bytes().to_vec());
    }
    let id = layout.id(record).or_else(|| first.get(event).copied()).unwrap_or(0);
    Ok(identifier::with_identifier(record, id)?)
}
