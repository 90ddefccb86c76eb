//! `merge` puts the records of guests into the recording of their host: each at its place in time, under ids that tell its machine and VCPU,
//! while every record of the host stays as it is.

mod clock;
mod guest;
mod host;
pub(crate) mod report;
mod schedule;
mod spec;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use perfx_format::features::{ClockData, EventDesc, SampleTime, read_event_desc, read_str, write_event_desc};
use perfx_format::header::Weight;
use perfx_format::input::Recording;
use perfx_format::{
    Endian, Event, Feature, Kinds, Layouts, RECORD_SIZE_MAX, Record, RecordType, sample_type as st,
    set_attr_flag,
};
use perfx_pipeline::{Emit, Level, Needs, Pass, Place, Report, Session, counted, worker_as};

use crate::support::event_ids::{self, FreeIds, lacks_identifier};
use crate::support::options::{Choice, Options};
use clock::{Clock, Scale};
use guest::{Chosen, Guest, Moment, NewId, Sorted, TRACEPOINT, Translator, timeless};
use host::{Machines, Thread, Times};
use report::{by_kind, list, ranges, seconds, signed_seconds};
use schedule::{Event as At, Schedule, Unfit};
pub use spec::GuestSpec;

/// The pass.
#[derive(Debug, Default)]
pub struct Merge {
    options: MergeOptions,
    step: Step,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// The guests, as [`GuestSpec::parse`] reads them.
    pub guests: Vec<OsString>,
    /// The guests' samples, too.
    pub samples: bool,
    /// Kinds that perf inject leaves out, where they say something to a reader.
    pub all: bool,
    /// `PID` below this folder stands for `/` of the guest of that process.
    pub guestmount: Option<PathBuf>,
}

/// The entry of a recording's directory that holds its kernel's memory; that of a guest's has `__` and its pid behind it.
pub const KCORE_DIR: &str = "kcore_dir";

/// What it is doing.
#[derive(Debug, Default)]
enum Step {
    /// Nothing yet, or not any more.
    #[default]
    Idle,
    /// Look 1: who is there.
    Machines(Machines),
    /// Look 2: when what happened.
    Times { machines: Machines, guests: Vec<Placed>, times: Times },
    /// All is known.
    Known { guests: Vec<(Placed, Clock)>, times: Times, time_zero: u64 },
    /// Records are on their way.
    Merging(Merging),
}

/// A guest and where it ran.
#[derive(Debug)]
struct Placed {
    spec: GuestSpec,
    guest: Guest,
    pid: u32,
    threads: BTreeMap<u32, Thread>,
    /// Stands for its `/`.
    root: Option<PathBuf>,
}

impl Placed {
    fn name(&self) -> Arc<str> {
        self.guest.recording.name.clone()
    }
}

/// Guests being merged.
#[derive(Debug)]
struct Merging {
    /// Where ID_INDEXes and records without a time go.
    place: Option<Place>,
    begun: bool,
    guests: Vec<(Guest, Arc<Translator>)>,
    sources: Vec<Sorted>,
    /// ID_INDEX records.
    front: Vec<Vec<u8>>,
    /// The latest time before each FINISHED_ROUND of the host.
    levels: Vec<u64>,
    /// FINISHED_ROUNDs that went by.
    rounds: usize,
    /// Host events' first ids, where the host's records must get an IDENTIFIER.
    identify: Option<Vec<u64>>,
}

/// Bytes that are put behind the host's records at a time.
const STEP: usize = 4 << 20;

impl Merge {
    pub(crate) const ABOUT: &'static str = "put the records of guests into the recording of their host";
    pub(crate) const OPTIONS: &'static [Choice] = &[
        Choice {
            name: "guest",
            value: Some("GUEST"),
            about: r"PATH[\,pid=N][\,offset=N][\,scale=F][\,vcpu=V\:TID]…[\,root=DIR]; repeatable",
        },
        Choice { name: "samples", value: None, about: "the guests' samples, too" },
        Choice {
            name: "all",
            value: None,
            about: "NAMESPACES, CGROUP, THROTTLE, LOST_SAMPLES and BPF records, too",
        },
    ];

    pub(crate) fn make(options: &Options) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Merge::new(MergeOptions {
            guests: options.all("guest").map(Into::into).collect(),
            samples: options.has("samples"),
            all: options.has("all"),
            guestmount: None,
        })))
    }

    /// With these options.
    pub fn new(options: MergeOptions) -> Merge {
        Merge { options, step: Step::Idle }
    }

    /// Opens the guests and finds the processes and threads that run them.
    fn guests(&self, machines: &Machines, session: &mut Session) -> Result<Vec<Placed>> {
        ensure!(!self.options.guests.is_empty(), "no guest to merge is given");
        check_host(session)?;
        let specs: Vec<_> =
            self.options.guests.iter().map(|text| GuestSpec::parse(text)).collect::<Result<_>>()?;
        let mut taken = BTreeSet::new();
        for spec in &specs {
            if let Some(pid) = spec.pid {
                let shown = spec.path.display();
                ensure!(
                    taken.insert(pid),
                    "{shown}: another guest is given pid {pid}, too; each has a process of its own"
                );
                ensure!(
                    !machines.merged.contains(&u64::from(pid)),
                    "{shown}: the recording has records of guest {pid} already; merged again they would be there twice"
                );
            }
        }
        let mut placed = Vec::new();
        for spec in specs {
            let recording = session.open(&spec.path)?;
            let name = recording.name.clone();
            ensure!(
                recording.endian == session.endian,
                "{name}: its byte order is not the host's, and records of both can't stand in one recording"
            );
            for fault in &recording.faults {
                let level = if fault.weight == Weight::Loss { Level::Loss } else { Level::Warning };
                session.report.say(level, fault.to_error().file(&name).to_string());
            }
            let hostname = same_machine(session, &recording);
            let chosen = Chosen::new(self.options.samples, self.options.all, &recording.events);
            let guest = Guest::new(recording, chosen, spec.offset.is_none())?;
            guest.facts.torn.iter().for_each(|torn| session.report.say(Level::Loss, torn.clone()));
            let needed = guest.vcpus();
            let pid = match spec.pid {
                Some(pid) => pid,
                None => find_pid(&name, machines, &taken, &needed, hostname)?,
            };
            taken.insert(pid);
            let threads = find_threads(&name, pid, machines, &spec, &needed)?;
            let mount = self.options.guestmount.as_ref().map(|folder| folder.join(pid.to_string()));
            let root = spec.root.clone().or(mount);
            if let Some(root) = &root {
                ensure!(root.is_dir(), "{name}: {} is no folder, and can't stand for its /", root.display());
            }
            for extra in &guest.recording.extras {
                let entry = extra.file_name().unwrap_or_default().to_string_lossy();
                if entry == KCORE_DIR {
                    session.beside.push((extra.clone(), format!("{KCORE_DIR}__{pid}").into()));
                } else {
                    let lost = format!("{name}: {entry}, for which the host's recording has no place");
                    session.report.say(Level::Loss, lost);
                }
            }
            placed.push(Placed { spec, guest, pid, threads, root });
        }
        Ok(placed)
    }
}

/// What no guest could be merged into.
fn check_host(session: &Session) -> Result<()> {
    ensure!(!session.events.is_empty(), "the host's recording has no event");
    for (index, event) in session.events.iter().enumerate() {
        ensure!(
            event.attr().sample_id_all(),
            "event {index} of the host gives its records no sample_id, but the guests' need one: record the host with a perf newer than 3.0"
        );
    }
    Ok(())
}

/// The name of the machine, when host and guest call it the same.
fn same_machine(session: &Session, guest: &Recording) -> Option<String> {
    let host = read_str(session.feature(Feature::HOSTNAME)?, session.endian)?;
    let guest = read_str(guest.features.get(&Feature::HOSTNAME)?, guest.endian)?;
    (host == guest && !host.is_empty()).then(|| String::from_utf8_lossy(host).into_owned())
}

fn threads_text(threads: &BTreeMap<u32, Thread>) -> String {
    list(threads.values().map(|thread| format!("{} ({})", thread.tid, thread.name)))
}

/// The process that runs a guest: the only one with threads of all its VCPUs.
fn find_pid(
    name: &str,
    machines: &Machines,
    taken: &BTreeSet<u32>,
    needed: &BTreeSet<u32>,
    hostname: Option<String>,
) -> Result<u32> {
    let free = |pid: &u32| !taken.contains(pid) && !machines.merged.contains(&u64::from(*pid));
    let fits = |threads: &BTreeMap<u32, Thread>| needed.iter().all(|vcpu| threads.contains_key(vcpu));
    let fitting: Vec<_> = machines
        .vcpus
        .iter()
        .filter(|(pid, threads)| free(pid) && fits(threads))
        .map(|(pid, _)| *pid)
        .collect();
    if let [pid] = fitting[..] {
        return Ok(pid);
    }
    let seen = list(machines.vcpus.iter().map(|(pid, threads)| {
        let merged = if free(pid) { "" } else { ", a guest already" };
        format!("process {pid} with threads {}{merged}", threads_text(threads))
    }));
    let join = hostname.map_or(String::new(), |hostname| {
        format!("; both recordings are of machine {hostname}: recordings of one machine are put together by perfx join")
    });
    if seen.is_empty() {
        bail!(
            "{name}: no thread of the host's recording is named like a VCPU (`CPU 0/KVM`): give pid=N and vcpu=V:TID, or record the host with -a{join}"
        );
    }
    let what = if fitting.is_empty() {
        "no process of the host fits"
    } else {
        "several processes of the host may run it"
    };
    bail!(
        "{name}: {what}; give pid=N. It has VCPUs {}; the host's recording shows {seen}{join}",
        ranges(&needed.iter().map(|&v| v.into()).collect::<Vec<_>>())
    )
}

/// The thread of each VCPU that is needed.
fn find_threads(
    name: &str,
    pid: u32,
    machines: &Machines,
    spec: &GuestSpec,
    needed: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, Thread>> {
    let none = BTreeMap::new();
    let known = machines.vcpus.get(&pid).unwrap_or(&none);
    let mut threads = known.clone();
    for (&vcpu, &tid) in &spec.vcpus {
        threads.insert(vcpu, Thread { tid, name: "given".to_owned() });
    }
    for vcpu in needed {
        if threads.contains_key(vcpu) {
            continue;
        }
        if known.is_empty() {
            let others = list(
                machines
                    .vcpus
                    .iter()
                    .map(|(pid, threads)| format!("process {pid} has {}", threads_text(threads))),
            );
            let others = if others.is_empty() { String::new() } else { format!("; {others}") };
            bail!(
                "{name}: no thread of process {pid} is named like a VCPU in the host's recording (give vcpu={vcpu}:TID){others}"
            );
        }
        bail!(
            "{name}: VCPU {vcpu} has no thread among those of process {pid}, {} (give vcpu={vcpu}:TID)",
            threads_text(known)
        );
    }
    threads.retain(|vcpu, _| needed.contains(vcpu));
    Ok(threads)
}

impl Merge {
    /// The clock of each guest.
    fn clocks(
        &self,
        guests: Vec<Placed>,
        machines: &Machines,
        times: &Times,
        session: &mut Session,
    ) -> Result<Vec<(Placed, Clock)>> {
        let mut known = Vec::new();
        for placed in guests {
            let clock = find_clock(&placed, machines, times, session)?;
            known.push((placed, clock));
        }
        Ok(known)
    }
}

/// Given, or found: by the schedule, which is exact to microseconds, else by the wall clocks that both recordings tell.
fn find_clock(placed: &Placed, machines: &Machines, times: &Times, session: &mut Session) -> Result<Clock> {
    let facts = &placed.guest.facts;
    let (guest, host) = (facts.time_conv, machines.time_conv);
    let scale = placed.spec.scale;
    if let Some(offset) = placed.spec.offset {
        return Ok(Clock { guest, host, offset, scale: scale.unwrap_or(Scale::ONE) });
    }
    let name = placed.name();
    let unfit = match clock_from_schedule(placed, Clock { guest, host, offset: 0, scale: Scale::ONE }, times)
    {
        Ok((clock, text)) => {
            session.report.say(Level::Info, format!("{name}: {text}"));
            return Ok(clock);
        }
        Err(unfit) => unfit,
    };
    if let Some(offset) = offset_of_wall_clocks(placed, session).filter(|_| guest.is_none() && host.is_none())
    {
        let what =
            "the wall clocks of both machines tell its offset (CLOCK_DATA), which is as good as those agree";
        session.report.say(Level::Info, format!("{name}: {what}"));
        return Ok(Clock { guest, host, offset, scale: scale.unwrap_or(Scale::ONE) });
    }
    bail!("{name}: how its clock compares to the host's can't be told: {unfit}; or give offset= and scale=")
}

/// Both recordings tell what their clocks showed at a wall-clock time.
fn offset_of_wall_clocks(placed: &Placed, session: &Session) -> Option<i64> {
    let read = |section: &[u8]| ClockData::read(section, session.endian);
    let host = read(session.feature(Feature::CLOCK_DATA)?)?;
    let guest = read(placed.guest.recording.features.get(&Feature::CLOCK_DATA)?)?;
    let ahead = |clock: ClockData| i128::from(clock.clock_ns) - i128::from(clock.wall_ns);
    i64::try_from(ahead(guest) - ahead(host)).ok()
}

/// The clock by the host's switch records, and a sentence about how sure that is.
fn clock_from_schedule(placed: &Placed, clock: Clock, times: &Times) -> Result<(Clock, String), Unfit> {
    let facts = &placed.guest.facts;
    // Units of the guest in a ns, and in a unit, of the host.
    let guest_rate = clock.guest.map_or(1.0, |conv| conv.rate());
    let host_rate = clock.host.map_or(1.0, |conv| conv.rate());
    let scale = placed.spec.scale.map_or(guest_rate / host_rate, Scale::get);
    let per_ns = scale * host_rate;
    let Some(first) = facts.moments.iter().map(|moment| clock.units(moment.time)).min() else {
        return Err(Unfit::TooFew(0));
    };
    let vcpus: Vec<u32> = placed.threads.keys().copied().collect();
    let event = |moment: &Moment| {
        let units = clock.units(moment.time).wrapping_sub(first);
        let vcpu = vcpus.binary_search(&moment.vcpu).ok()?;
        Some(At { at: (units as f64 / per_ns) as i64, vcpu })
    };
    let mut events: Vec<At> = facts.moments.iter().filter_map(event).collect();
    events.sort_unstable();
    let spans = |thread: &Thread| times.run(thread.tid).map_or(&[][..], |run| &run.spans);
    let schedule = Schedule {
        spans: placed.threads.values().map(spans).collect(),
        from: times.earliest.unwrap_or(0).min(1 << 62) as i64,
        to: times.latest.min(1 << 62) as i64,
    };
    let fit = schedule.fit(&events, placed.spec.scale.is_none())?;
    // The guest's first moment is at `fit.offset` on the host.
    let scale = scale / (1.0 + fit.drift);
    let there = clock.host_units(fit.offset.max(0) as u64);
    let offset = i128::from(first) - (there as f64 * scale) as i128;
    let clock = Scale::new(scale)
        .zip(i64::try_from(offset).ok())
        .map(|(scale, offset)| Clock { offset, scale, ..clock })
        .ok_or(Unfit::NoGaps)?;
    let share = |part: f64| format!("{:.2} %", part * 100.0);
    let inside = share(fit.inside as f64 / fit.judged.max(1) as f64);
    let second = fit.second.map_or(String::new(), |(offset, part)| {
        format!("; the second best is {} away, with {}", signed_seconds(offset - fit.offset), share(part))
    });
    let text = format!(
        "the offset is found from the schedule: {inside} of {} events happened while the host ran their VCPU, to ±{}.{} µs{second}",
        fit.judged,
        fit.spread / 1000,
        fit.spread % 1000 / 100,
    );
    Ok((clock, text))
}

/// What the records of a guest become, in ids and events.
struct Translation {
    events: Vec<Event>,
    ids: HashMap<u64, NewId>,
    /// ID_INDEX records.
    index: Vec<Vec<u8>>,
    new: Vec<u64>,
}

fn translation(placed: &Placed, free: &mut FreeIds, host_attr: usize, endian: Endian) -> Translation {
    let mut result =
        Translation { events: Vec::new(), ids: HashMap::new(), index: Vec::new(), new: Vec::new() };
    let mut entries = Vec::new();
    for event in &placed.guest.recording.events {
        let mut new = event.edited(endian, |raw| {
            endian.set_u64(raw, 24, event.attr().sample_type | st::IDENTIFIER);
            set_attr_flag(raw, EXCLUDE_HOST, true, endian);
            set_attr_flag(raw, EXCLUDE_GUEST, false, endian);
            if event.attr().type_ == TRACEPOINT {
                // The host's recording has no format for it, and perf opens none with a tracepoint it has no format for.
                endian.set_u32(raw, 0, SOFTWARE);
                endian.set_u64(raw, 8, DUMMY);
            }
            // A larger attr than the host's locks out the perf that recorded the host, and may say no more.
            if raw.len() > host_attr && raw[host_attr..].iter().all(|&byte| byte == 0) {
                raw.truncate(host_attr);
                endian.set_u32(raw, 4, host_attr as u32);
            }
        });
        new.ids = event.ids.iter().map(|_| free.next()).collect();
        for (&old, &id) in event.ids.iter().zip(&new.ids) {
            let vcpu = placed.guest.facts.vcpu_of_id.get(&old).copied().flatten();
            result.ids.insert(old, NewId { id, vcpu });
            let thread =
                vcpu.and_then(|vcpu| placed.threads.get(&vcpu)).map_or(placed.pid, |thread| thread.tid);
            entries.push((id, thread, vcpu));
        }
        result.new.extend(&new.ids);
        result.events.push(new);
    }
    for entries in entries.chunks((RECORD_SIZE_MAX - 16) / 48) {
        result.index.push(id_index(entries, placed.pid, endian));
    }
    result
}

/// An ID_INDEX record: u64 number of entries, then for each `{id, idx, cpu, tid}`, then for each `{machine_pid, vcpu}`.
fn id_index(entries: &[(u64, u32, Option<u32>)], machine: u32, endian: Endian) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(endian.bytes_u32(RecordType::ID_INDEX.0));
    record.extend(endian.bytes_u16(0));
    record.extend(endian.bytes_u16((16 + entries.len() * 48) as u16));
    let mut words = vec![entries.len() as u64];
    for &(id, tid, _) in entries {
        words.extend([id, 0, u64::MAX, tid.into()]);
    }
    for &(_, _, vcpu) in entries {
        words.extend([machine.into(), vcpu.map_or(u64::MAX, u64::from)]);
    }
    words.into_iter().for_each(|word| record.extend(endian.bytes_u64(word)));
    record
}

/// Bits of an attr's flags.
const EXCLUDE_HOST: u32 = 19;
const EXCLUDE_GUEST: u32 = 20;
/// `attr.type` and `attr.config` of an event that never happens.
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;

/// `cpu-clock` becomes `cpu-clock:G`, as perf names an event that counts in guests only.
fn guest_name(name: &[u8]) -> Vec<u8> {
    const MODIFIERS: &[u8] = b"ukhHGpPSDIWeb";
    let is_modifiers = |text: &[u8]| text.iter().all(|byte| MODIFIERS.contains(byte));
    let end = name.iter().rposition(|&byte| byte == b':' || byte == b'/').map(|at| at + 1);
    let (base, modifiers) = match end {
        Some(end) if is_modifiers(&name[end..]) => name.split_at(end),
        _ => (name, &b""[..]),
    };
    let mut new = base.to_vec();
    if !base.ends_with(b":") && !base.ends_with(b"/") {
        new.push(b':');
    }
    new.extend(modifiers.iter().filter(|byte| !b"HG".contains(byte)));
    new.push(b'G');
    new
}

/// Feature EVENT_DESC with the guests' events behind the host's; `None` where the host has none.
fn event_desc(session: &Session, guests: &[(&Recording, &[Event])], events: &[Event]) -> Option<Vec<u8>> {
    let endian = session.endian;
    let section = session.feature(Feature::EVENT_DESC)?;
    let host = read_event_desc(section, endian)?;
    let largest = events.iter().map(|event| event.raw().len()).max()?;
    let described: usize = host.iter().map(|event| event.attr.len()).max().unwrap_or(0);
    let size = largest.max(described);
    let written: Vec<_> = events.iter().map(|event| event.written(size, endian).into_owned()).collect();
    let mut names: Vec<Vec<u8>> = host.iter().map(|event| event.name.to_vec()).collect();
    let host_events = events.len() - guests.iter().map(|(_, events)| events.len()).sum::<usize>();
    // It has one for each event, or says nothing about the guests' either.
    if host.len() != host_events {
        return None;
    }
    for (recording, new) in guests {
        let section = recording.features.get(&Feature::EVENT_DESC);
        let told = section.and_then(|section| read_event_desc(section, endian)).unwrap_or_default();
        for (index, event) in new.iter().enumerate() {
            let name = told.get(index).map(|event| guest_name(event.name));
            let attr = event.attr();
            let number = || guest_name(format!("type {} config {:#x}", attr.type_, attr.config).as_bytes());
            names.push(name.unwrap_or_else(number));
        }
    }
    let described: Vec<_> = events
        .iter()
        .zip(&written)
        .zip(&names)
        .map(|((event, attr), name)| EventDesc { attr, name, ids: event.ids.clone() })
        .collect();
    write_event_desc(u32::try_from(size).ok()?, &described, endian)
}

impl Pass for Merge {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn needs(&self, input: &Recording) -> Needs {
        let mut records = Kinds::of(&[RecordType::FINISHED_ROUND]);
        if lacks_identifier(&input.events) {
            records = records.union(Times::kinds());
        }
        Needs {
            records,
            looks: vec![Machines::kinds(), Times::kinds()],
            decompressed: input.is_compressed(),
            ids: true,
            stale: &[],
            ..Needs::default()
        }
    }

    fn survey(&mut self, look: usize, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match &mut self.step {
            Step::Machines(machines) => machines.look_at(record),
            Step::Times { times, .. } => times.look_at(record, layouts),
            Step::Idle if look == 0 => {
                let mut machines = Machines::default();
                machines.look_at(record);
                self.step = Step::Machines(machines);
            }
            Step::Idle | Step::Known { .. } | Step::Merging(_) => {}
        }
        Ok(())
    }

    fn surveyed(&mut self, look: usize, session: &mut Session) -> Result<()> {
        match std::mem::take(&mut self.step) {
            Step::Times { machines, guests, mut times } => {
                times.finish();
                ensure!(
                    times.has_times(),
                    "no record of the host has a time, so nobody knows where a guest's belong: record with --timestamp"
                );
                let guests = self.clocks(guests, &machines, &times, session)?;
                self.step = Step::Known { guests, times, time_zero: machines.late_id };
            }
            Step::Machines(machines) => self.watch(machines, session)?,
            Step::Idle if look == 0 => self.watch(Machines::default(), session)?,
            step => self.step = step,
        }
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        let Step::Known { guests, times, time_zero } = std::mem::take(&mut self.step) else { return Ok(()) };
        self.step = Step::Merging(Merging::new(guests, times, time_zero, session)?);
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match &mut self.step {
            Step::Merging(merging) => merging.record(record, out),
            _ => out.keep(record),
        }
    }

    fn rest(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        match &mut self.step {
            Step::Merging(merging) => merging.rest(out),
            _ => Ok(false),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if let Step::Merging(merging) = &self.step {
            merging.finish(&mut session.report);
        }
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        let step = match &self.step {
            Step::Idle | Step::Machines(_) => Step::Machines(Machines::default()),
            Step::Times { times, .. } => {
                Step::Times { machines: Machines::default(), guests: Vec::new(), times: times.fork() }
            }
            // Guests are read from front to back.
            Step::Known { .. } | Step::Merging(_) => return None,
        };
        Some(Box::new(Merge { options: MergeOptions::default(), step }))
    }

    fn join(&mut self, worker: Box<dyn Pass>) -> Result<()> {
        if let Some(Merge { step: later, .. }) = worker_as(worker) {
            match (&mut self.step, later) {
                (Step::Machines(machines), Step::Machines(later)) => machines.join(later),
                (step @ Step::Idle, Step::Machines(later)) => *step = Step::Machines(later),
                (Step::Times { times, .. }, Step::Times { times: later, .. }) => times.join(later),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Merge {
    /// Who is there is known; next is when.
    fn watch(&mut self, machines: Machines, session: &mut Session) -> Result<()> {
        let guests = self.guests(&machines, session)?;
        let find = guests.iter().any(|placed| placed.spec.offset.is_none());
        let threads = guests.iter().flat_map(|placed| placed.threads.values().map(|thread| thread.tid));
        let times = Times::new(threads, find);
        self.step = Step::Times { machines, guests, times };
        Ok(())
    }
}

impl Merging {
    fn new(
        guests: Vec<(Placed, Clock)>,
        times: Times,
        late_id: u64,
        session: &mut Session,
    ) -> Result<Merging> {
        let endian = session.endian;
        let host_attr = session.events.iter().map(|event| event.raw().len()).max().unwrap_or(0);
        let used: BTreeSet<u64> = session.events.iter().flat_map(|event| event.ids.iter().copied()).collect();
        let last = used.last().copied().unwrap_or(0).max(late_id).max(1);
        let mut free = FreeIds { used, last };
        let mut events = session.events.clone();
        let identify = lacks_identifier(&events).then(|| {
            for event in &mut events {
                *event = event.edited(endian, |raw| {
                    endian.set_u64(raw, 24, event.attr().sample_type | st::IDENTIFIER);
                });
                if event.ids.is_empty() {
                    event.ids.push(free.next());
                }
            }
            session.report.say(
                Level::Info,
                "the host's records get an IDENTIFIER each, by which perf tells them from the guests'",
            );
            events.iter().map(|event| event.ids[0]).collect()
        });
        let place = times.first.and_then(|(origin, kind)| {
            if kind != RecordType::FINISHED_INIT {
                let where_ = if times.finished_init { "comes late" } else { "is missing (perf before 6.0 writes none)" };
                session.report.say(
                    Level::Info,
                    format!("the host's FINISHED_INIT {where_}: what the guests began with goes before the {kind} at {origin}"),
                );
            }
            session.place(origin)
        });
        if let Some(place) = place {
            session.want_at(place);
        }
        let levels = times.levels.clone();
        let (earliest, latest) = (times.earliest.unwrap_or(0), times.latest);
        let times = Arc::new(times);
        let (mut sources, mut front, mut merged, mut added) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut span: Option<(u64, u64)> = None;
        let mut build_ids = Vec::new();
        for (mut placed, clock) in guests {
            let translation = translation(&placed, &mut free, host_attr, endian);
            tell(&placed, &clock, &translation, &times, (earliest, latest), &mut session.report)?;
            if let Some((first, last)) = placed.guest.facts.times {
                let (first, last) = (clock.host_time(first).unwrap_or(0), clock.host_time(last).unwrap_or(0));
                let (from, to) = span.unwrap_or((first, last));
                span = Some((from.min(first), to.max(last)));
            }
            let (mut ids, nested) = placed.guest.build_ids(placed.pid);
            if nested > 0 {
                let lost = counted(nested, "build-id", "build-ids");
                session.report.say(Level::Loss, format!("{}: {lost} of guests of its own", placed.name()));
            }
            if let Some(root) = &placed.root {
                let found = placed.guest.build_ids_below(root, placed.pid, &mut ids);
                let found = counted(found, "build-id", "build-ids");
                session
                    .report
                    .say(Level::Info, format!("{}: {found} found below {}", placed.name(), root.display()));
            }
            build_ids.extend(ids);
            events.extend(translation.events.iter().cloned());
            front.extend(translation.index);
            let translator = Arc::new(Translator {
                endian,
                clock,
                chosen: placed.guest.chosen.clone(),
                ids: translation.ids,
                events: placed.guest.recording.events.iter().map(|event| event.ids.clone()).collect(),
                threads: placed.threads.iter().map(|(&vcpu, thread)| (vcpu, thread.tid)).collect(),
                host: times.clone(),
            });
            sources.push(Sorted::new(&mut placed.guest.recording, translator.clone()));
            added.push(translation.events);
            merged.push((placed.guest, translator));
        }
        let guests: Vec<_> =
            merged.iter().zip(&added).map(|((guest, _), events)| (&guest.recording, &events[..])).collect();
        match event_desc(session, &guests, &events) {
            Some(section) => session.set_feature(Feature::EVENT_DESC, section),
            None if session.feature(Feature::EVENT_DESC).is_some() => {
                session.report.say(
                    Level::Loss,
                    "feature EVENT_DESC is damaged, so that names of events can't be added to it",
                );
                session.clear_feature(Feature::EVENT_DESC);
            }
            None => {}
        }
        session.events = events;
        session.add_build_ids(&build_ids);
        let section =
            session.feature(Feature::SAMPLE_TIME).and_then(|section| SampleTime::read(section, endian));
        if let (Some(SampleTime { first_ns, last_ns }), Some((first, last))) = (section, span) {
            let wider = SampleTime { first_ns: first_ns.min(first), last_ns: last_ns.max(last) };
            session.set_feature(Feature::SAMPLE_TIME, wider.write(endian));
        }
        Ok(Merging { place, begun: false, guests: merged, sources, front, levels, rounds: 0, identify })
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        if !self.begun && self.place.is_some() && out.place(&record) == self.place {
            self.start(out)?;
        }
        if record.kind() == RecordType::FINISHED_ROUND {
            // Older records than this may not follow the next FINISHED_ROUND, and those that follow this one may make it no later.
            let level = self.levels.get(self.rounds).copied().unwrap_or(0);
            self.rounds += 1;
            self.put(level, usize::MAX, out)?;
        }
        match &self.identify {
            Some(first) if record.kind().is_kernel() => {
                let new = with_identifier(&record, out.layouts(), first)?;
                out.replace(&record, &new)
            }
            _ => out.keep(record),
        }
    }

    /// What must stand before any record with a time.
    fn start(&mut self, out: &mut Emit<'_>) -> Result<()> {
        self.begun = true;
        for record in std::mem::take(&mut self.front) {
            out.put(&record)?;
        }
        for (guest, translator) in &mut self.guests {
            timeless(guest, translator, |record| out.put(record))?;
        }
        Ok(())
    }

    /// Puts the guests' records up to a time, or about `most` bytes of them; true if there may be more.
    fn put(&mut self, limit: u64, most: usize, out: &mut Emit<'_>) -> Result<bool> {
        let mut put = 0;
        while put < most {
            let mut next: Option<(u64, usize)> = None;
            for (number, source) in self.sources.iter_mut().enumerate() {
                if let Some(time) = source.peek(limit)? {
                    next = Some(next.map_or((time, number), |next| next.min((time, number))));
                }
            }
            let Some(record) = next.and_then(|(_, number)| self.sources.get_mut(number)?.pop()) else {
                return Ok(false);
            };
            out.put(&record)?;
            put += record.len();
        }
        Ok(true)
    }

    fn rest(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        if !self.begun {
            self.start(out)?;
        }
        self.put(u64::MAX, STEP, out)
    }

    fn finish(&self, report: &mut Report) {
        for ((guest, _), source) in self.guests.iter().zip(&self.sources) {
            if source.late > 0 {
                let late = counted(source.late, "record comes", "records come");
                let name = &guest.recording.name;
                report.say(
                    Level::Warning,
                    format!("{name}: {late} later in it than its FINISHED_ROUNDs allow"),
                );
            }
        }
    }
}

/// A kernel record of the host with an IDENTIFIER, `first` being the first id of each event.
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
    event_ids::with_identifier(record, id)
}

/// What is about to be done with a guest.
fn tell(
    placed: &Placed,
    clock: &Clock,
    translation: &Translation,
    times: &Times,
    (earliest, latest): (u64, u64),
    report: &mut Report,
) -> Result<()> {
    let name = placed.name();
    let facts = &placed.guest.facts;
    let old: Vec<u64> =
        placed.guest.recording.events.iter().flat_map(|event| event.ids.iter().copied()).collect();
    let threads = list(placed.threads.iter().map(|(vcpu, thread)| {
        let switches = times.run(thread.tid).map_or(0, |run| run.switches);
        format!(
            "VCPU {vcpu} is thread {} ({}), {}",
            thread.tid,
            thread.name,
            counted(switches, "switch", "switches")
        )
    }));
    report.say(
        Level::Info,
        format!(
            "{name}: machine {}; ids {} become {}; {threads}",
            placed.pid,
            ranges(&old),
            ranges(&translation.new)
        ),
    );
    report.say(Level::Info, format!("{name}: offset={},scale={}", clock.offset, clock.scale));
    if let Some((first, last)) = facts.times {
        let before = || {
            format!(
                "{name}: its time {first} lies before the host's clock began: offset {} can't be right",
                clock.offset
            )
        };
        let (from, to) =
            (clock.host_time(first).with_context(before)?, clock.host_time(last).with_context(before)?);
        let (host_from, host_to) = (seconds(earliest), seconds(latest));
        let text = format!(
            "{name}: from {} to {}, the host from {host_from} to {host_to}",
            seconds(from),
            seconds(to)
        );
        let apart = to < earliest || from > latest;
        let (level, tail) = if apart { (Level::Warning, ": they do not overlap") } else { (Level::Info, "") };
        report.say(level, format!("{text}{tail}"));
    }
    let total: u64 = facts.merged.values().sum();
    ensure!(total > 0, "{name}: none of its records can be merged; it holds {}", by_kind(&facts.left_out));
    report.say(
        Level::Info,
        format!(
            "{name}: {} merged, {} of them without a time: {}",
            counted(total, "record", "records"),
            facts.timeless,
            by_kind(&facts.merged)
        ),
    );
    let mut reasons: BTreeMap<(Level, &str), BTreeMap<RecordType, u64>> = BTreeMap::new();
    for (&kind, &count) in &facts.left_out {
        reasons.entry(placed.guest.chosen.why_not(kind)).or_default().insert(kind, count);
    }
    for ((level, why), counts) in reasons {
        report.say(level, format!("{name}: {} left out, {why}", by_kind(&counts)));
    }
    Ok(())
}
