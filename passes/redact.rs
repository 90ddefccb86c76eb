//! `redact` removes from a recording what tells of its user and machine, so that it can be published: names become
//! pseudonyms, and data that may hold anything is zeroed or cut out. Samples stay, with their addresses and times.
//!
//! Every byte of the output is a value that was decoded and may stay, a pseudonym, or zero: bytes in which perfx knows
//! no field become zeros, and records and features that it does not know are left out. Both are reported as a loss.

mod known;
mod names;
mod raw;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use perfx_format::decode::{MmapBuildId, mmap_build_id};
use perfx_format::event_name::{OwnNames, names_of};
use perfx_format::features::{
    NrCpus, TracingData, initial_maps, is_probe_pmu, pmu_names, read_str, trace_formats, trimmed_id,
};
use perfx_format::names::{Name, NameKind, change_build_ids, rename_record};
use perfx_format::read::Recording;
use perfx_format::record::bpf_event::{bpf_tag, set_bpf_tag};
use perfx_format::record::build_id::{BuildIdEntry, set_build_id};
use perfx_format::record::cpumode::is_kernel;
use perfx_format::record::frames::change_frames;
use perfx_format::record::namespaces::change_namespaces;
use perfx_format::record::off_cpu::{OFF_CPU_NAME, changed_off_cpu};
use perfx_format::record::stat_config::without_unknown_tags;
use perfx_format::sample::{raw_range, without_parts as sample_without};
use perfx_format::tracepoint::TraceFormat;
use perfx_format::{
    ByTracepoint, Decoded, Endian, Event, Feature, Inode, Kinds, Layout, Layouts, Mmap, Record, RecordType,
    Task, clear, hex, sample_type as st, set_mmap2_build_id, set_mmap2_inode, without_parts,
};
use perfx_pipeline::{
    Emit, Fork, LISTED, Level, Needs, OutputForm, Pass, Result, Session, Stage, Survey, bail, counted,
};
use perfx_unwind::{has_callers_in_registers, has_stacks};

use crate::scrub::{CALLERS_LOST, Key, LeftOut, OF_TRACES, Scrub, Scrubber, needs};
use crate::support::features::{Fate, renamed};
use crate::support::options::PassOptions;
use known::{is_count_of_cpus, is_ftrace, is_ftrace_text, is_header, is_known, is_pmu, is_unit};
use names::{CommandLine, HOST, is_public};
use raw::{Stays, is_for_users, kept, made_by_users, redacted, stays};

/// What can be redacted, or kept.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// The command line that made the recording
    Cmdline,
    /// The name of the machine
    Host,
    /// Paths of files outside the system's folders
    Paths,
    /// Build-ids of these files
    BuildIds,
    /// Devices and inodes of files
    Inodes,
    /// Names of threads
    Comms,
    /// Paths of cgroups
    Cgroups,
    /// Inodes of namespaces
    Namespaces,
    /// Names of events that a user chose, and of probes
    Events,
    /// Raw data of samples
    Raw,
    /// User stacks and registers
    Stacks,
    /// BPF programs
    Bpf,
    /// AUX data
    Aux,
    /// Wall-clock time
    Clock,
    /// Copies of the kernel's memory and symbols beside the records
    Kcore,
    /// Records and features that this version of perfx does not know
    Unknown,
}

impl Category {
    /// How reports speak of it.
    fn wording(self) -> Wording {
        let (name, one, many, done) = match self {
            Category::Cmdline => ("cmdline", "word", "words", "replaced"),
            Category::Host => ("host", "name", "names", "replaced"),
            Category::Paths => ("paths", "path", "paths", "replaced"),
            Category::BuildIds => ("build-ids", "id", "ids", "replaced"),
            Category::Inodes => ("inodes", "file", "files", "renumbered"),
            Category::Comms => ("comms", "name", "names", "replaced"),
            Category::Cgroups => ("cgroups", "path", "paths", "replaced"),
            Category::Namespaces => ("namespaces", "namespace", "namespaces", "renumbered"),
            Category::Events => ("events", "name", "names", "replaced"),
            Category::Raw => ("raw", "sample", "samples", "zeroed except for what is known"),
            Category::Stacks => ("stacks", "sample", "samples", "cut"),
            Category::Bpf => ("bpf", "name", "names", "replaced"),
            Category::Aux => ("aux", "sample", "samples", "cut"),
            Category::Clock => ("clock", "feature", "features", "left out"),
            Category::Kcore => ("kcore", "file", "files", "left out"),
            Category::Unknown => ("unknown", "sample", "samples", "cut"),
        };
        Wording { name, one, many, done }
    }
}

/// How reports speak of a category.
struct Wording {
    /// Its name on the command line.
    name: &'static str,
    one: &'static str,
    many: &'static str,
    /// What is done with it.
    done: &'static str,
}

/// The options of `redact`.
#[derive(Args, Clone, Debug, Default)]
pub struct RedactArgs {
    /// Keep these as they are
    #[arg(long, value_name = "CATEGORY,…", value_delimiter = ',')]
    keep: Vec<Category>,
    /// The key of pseudonyms: recordings with the same one have equal pseudonyms for equal names [default: made from
    /// what is removed]
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
}

impl RedactArgs {
    /// True if the user keeps this category.
    pub fn keeps(&self, category: Category) -> bool {
        self.keep.contains(&category)
    }
}

impl PassOptions for RedactArgs {
    const NAME: &'static str = "redact";
    const ABOUT: &'static str =
        "replace names by pseudonyms, and remove data that tells of the user or the machine";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Redact::new(self)))
    }
}

/// The pass.
#[derive(Clone, Debug)]
pub struct Redact {
    args: Arc<RedactArgs>,
    /// True to report what there is to redact as a warning.
    checks: bool,
    /// The names of files beside the records that the caller leaves out.
    beside: Vec<String>,
}

impl Redact {
    /// The pass with these options.
    pub fn new(args: RedactArgs) -> Redact {
        Redact { args: Arc::new(args), checks: false, beside: Vec::new() }
    }

    /// Reports what the recording still tells, as warnings, instead of what was done.
    #[must_use]
    pub fn checking(self) -> Redact {
        Redact { checks: true, ..self }
    }

    /// Also reports that these files beside the records are left out.
    #[must_use]
    pub fn leaving_out(self, beside: Vec<String>) -> Redact {
        Redact { beside, ..self }
    }
}

/// The survey: makes the key from what will be removed, and learns what user code is mapped.
struct Learn {
    redact: Redact,
    key: Key,
    mapped: Ranges,
    /// The processes with mappings, and those that were made, with their parents.
    processes: BTreeSet<u32>,
    made: BTreeSet<(u32, u32)>,
}

impl Learn {
    fn new(redact: Redact) -> Learn {
        let (mapped, processes, made) = Default::default();
        Learn { redact, key: Key::default(), mapped, processes, made }
    }

    fn learn_mapping(&mut self, record: &Record<'_>) {
        if let Some(mmap) = Mmap::of(record).filter(|mmap| !mmap.is_of_kernel()) {
            self.mapped.insert((mmap.start(), mmap.start().saturating_add(mmap.len())));
            self.processes.insert(mmap.pid());
        }
    }

    /// Returns the mapped user code.
    fn mapped(self) -> Mapped {
        let mut processes = self.processes;
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.made.iter().for_each(|&(parent, child)| of.entry(parent).or_default().push(child));
        let mut left: Vec<u32> = processes.iter().copied().collect();
        while let Some(parent) = left.pop() {
            // It begins with the mappings of its parent.
            left.extend(
                of.remove(&parent).unwrap_or_default().into_iter().filter(|&child| processes.insert(child)),
            );
        }
        Mapped { ranges: united(self.mapped), processes }
    }
}

/// User code that is mapped.
#[derive(Debug)]
struct Mapped {
    /// Its addresses in any process.
    ranges: Vec<(u64, u64)>,
    /// The processes with mappings.
    processes: BTreeSet<u32>,
}

/// Ranges of addresses: the first of each, and the first after it.
type Ranges = BTreeSet<(u64, u64)>;

/// Merges ranges that overlap, and sorts them.
fn united(ranges: Ranges) -> Vec<(u64, u64)> {
    let mut united: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match united.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => united.push((start, end)),
        }
    }
    united
}

/// True for the modifiers of an event (perf-list(1)), such as `u` and `ppp`.
fn are_modifiers(text: &[u8]) -> bool {
    text.len() <= 16 && text.iter().all(|byte| b"ukhGHpPSDIeWRb".contains(byte))
}

/// True for what follows the name of a PMU: terms with numbers, then `/` and modifiers. The value of `name=` is a person's
/// word.
fn are_terms(text: &[u8]) -> bool {
    let Some(end) = text.iter().rposition(|&byte| byte == b'/') else { return false };
    let (terms, modifiers) = (&text[..end], &text[end + 1..]);
    let is_number = |value: &[u8]| {
        let digits = value.strip_prefix(b"0x").unwrap_or(value);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)
    };
    let is_term = |term: &[u8]| match term.iter().position(|&byte| byte == b'=') {
        Some(at) => is_number(&term[at + 1..]),
        None => true,
    };
    are_modifiers(modifiers) && terms.split(|&byte| byte == b',').all(is_term)
}

/// What the rewrite needs to know.
#[derive(Debug)]
struct Plan {
    redact: Redact,
    key: Key,
    /// The parts that samples lose, as bits of `sample_type`.
    parts: u64,
    /// What stays of the raw data of each event.
    raw: Vec<Stays>,
    /// The systems of tracepoints that users have made.
    systems: BTreeSet<Vec<u8>>,
    /// The names of events that stay.
    events: HashSet<Vec<u8>>,
    /// The PMUs whose names every machine may have.
    pmus: BTreeSet<Vec<u8>>,
    /// What the events count, in the words of perf.
    own_names: OwnNames,
    /// True if samples have the stacks out of which perf makes call chains.
    has_stacks: bool,
    /// The registers that go complete call chains.
    cuts_callers: bool,
    /// No address of user code is as large.
    user_end: u64,
    mapped: Mapped,
}

/// What was found and replaced.
#[derive(Clone, Default, Debug)]
struct Done {
    /// Each name with its pseudonym.
    names: BTreeMap<(Category, Vec<u8>), Vec<u8>>,
    /// Devices and inodes of files and namespaces.
    numbers: BTreeSet<(Category, Vec<u8>)>,
    /// Entries of call chains in no mapping.
    entries: u64,
    /// Samples at addresses in no mapping.
    ips: u64,
    /// Both of processes without a known mapping.
    unmapped: u64,
    /// Samples that were changed, by category.
    samples: BTreeMap<Category, u64>,
    /// Features that were left out.
    features: BTreeSet<(Category, Feature)>,
    /// True if an attr had settings of parts that samples lose.
    asked: bool,
    /// Settings of perf stat that are not known.
    tags: u64,
    /// Formats of tracepoints that cannot be read.
    formats: u64,
}

/// The rules.
struct Remove {
    plan: Arc<Plan>,
    done: Done,
    /// The pseudonyms of tasks, which are in every sample of some tracepoints.
    comms: HashMap<Vec<u8>, Vec<u8>>,
}

/// Records from whose contents the key is made.
const KEYED: Kinds = Kinds::MAPPINGS.and(RecordType::COMM).and(RecordType::CGROUP);

/// Kinds whose texts and bytes have a rule of their own. Those of all others become zeros.
const WITH_TEXTS: Kinds = KEYED.union(OF_TRACES).union(Kinds::of(&[
    RecordType::KSYMBOL,
    RecordType::BPF_EVENT,
    RecordType::BPF_METADATA,
    RecordType::THREAD_MAP,
    RecordType::HEADER_ATTR,
    RecordType::HEADER_BUILD_ID,
    RecordType::HEADER_EVENT_TYPE,
]));

// A new kind with texts does not compile without a rule. Samples and features have theirs elsewhere, and EVENT_UPDATE
// has it in `clear_texts`.
const _: () = assert!(
    WITH_TEXTS
        .union(Kinds::of(&[RecordType::SAMPLE, RecordType::HEADER_FEATURE, RecordType::EVENT_UPDATE]))
        .covers(Kinds::TEXTS)
);

/// Features from whose contents the key is made.
const KEYED_FEATURES: [Feature; 4] =
    [Feature::HOSTNAME, Feature::CMDLINE, Feature::BUILD_ID, Feature::BPF_PROG_INFO];

impl Pass for Redact {
    fn name(&self) -> &'static str {
        RedactArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let kinds = if self.args.seed.is_some() { Kinds::MAPPINGS } else { KEYED };
        needs(vec![kinds.union(Kinds::of(&[RecordType::FORK]))])
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(Learn::new(*self))
    }
}

impl Survey for Learn {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        if self.redact.args.seed.is_none() && KEYED.contains(record.kind()) {
            self.key.add(record.bytes());
        }
        self.learn_mapping(record);
        self.made.extend(Task::of(record).map(|task| (task.ppid, task.pid)));
        Ok(())
    }

    fn end(mut self, session: &mut Session) -> Result<Stage> {
        let maps = initial_maps(session.features(), session.endian);
        maps.records().for_each(|record| self.learn_mapping(&record));
        match &self.redact.args.seed {
            Some(seed) => self.key = Key::of_seed(seed),
            None => {
                let sections = KEYED_FEATURES.iter().filter_map(|feature| session.feature(*feature));
                sections.for_each(|section| self.key.add(section));
            }
        }
        Ok(Remove::stage(self.redact.clone(), self.key, self.mapped()))
    }
}

impl Fork for Learn {
    fn fork(&self) -> Learn {
        Learn::new(self.redact.clone())
    }

    fn absorb(&mut self, later: Learn) {
        self.key.join(&later.key);
        self.mapped.extend(later.mapped);
        self.processes.extend(later.processes);
        self.made.extend(later.made);
    }
}

impl Plan {
    fn new(redact: Redact, key: Key, mapped: Mapped, session: &Session) -> Plan {
        let keeps = |category| redact.args.keeps(category);
        let parts = [
            (Category::Stacks, st::REGS_USER | st::STACK_USER | st::REGS_INTR),
            (Category::Aux, st::AUX),
            (Category::Unknown, st::UNNAMED),
        ];
        let parts =
            parts.iter().filter(|(category, _)| !keeps(*category)).fold(0, |all, (_, bits)| all | bits);
        let endian = session.endian;
        let section = |feature| session.feature(feature).map(|section| &section[..]).unwrap_or_default();
        let formats = trace_formats(section(Feature::TRACING_DATA), endian);
        let names =
            names_of(&session.events, session.features(), &session.event_types, endian, &HashMap::new());
        let of_events = || session.events.iter().zip(&names);
        let fields = ByTracepoint::new(&session.events, session.features(), endian, kept);
        let raw = of_events().enumerate().map(|(number, (event, name))| match keeps(Category::Raw) {
            true => Stays::All,
            false => stays(event.attr(), &name.name, fields.get(number)),
        });
        let by_users = made_by_users(&formats, TracingData::read(section(Feature::TRACING_DATA)).as_ref());
        let known = formats.iter().filter(|format| !by_users.contains(format.system));
        let mut events: HashSet<Vec<u8>> = known.map(TraceFormat::full_name).collect();
        events.extend([&b""[..], OFF_CPU_NAME, b"__augmented_syscalls__"].map(<[u8]>::to_vec));
        let pmus = pmu_names(section(Feature::PMU_MAPPINGS), endian).unwrap_or_default().into_iter();
        let pmus = pmus.map(|(_, pmu)| pmu).filter(|pmu| is_pmu(pmu) && !is_probe_pmu(pmu));
        let pmus = pmus.map(<[u8]>::to_vec).collect();
        let raw = raw.collect();
        let cuts_callers = parts & st::REGS_USER != 0
            && has_callers_in_registers(&session.events, session.features(), session.endian);
        let attrs = || session.events.iter().map(Event::attr);
        let has_stacks = attrs().any(|attr| has_stacks(attr.sample_type));
        let own_names = OwnNames::new(attrs());
        let arch = read_str(section(Feature::ARCH), endian);
        // 47 bits, or as many as any other machine uses.
        let user_end = if arch == Some(b"x86_64") { 1 << 47 } else { 1 << 52 };
        let systems = by_users.into_iter().map(<[u8]>::to_vec).collect();
        Plan {
            raw,
            parts,
            systems,
            events,
            pmus,
            own_names,
            has_stacks,
            cuts_callers,
            user_end,
            mapped,
            redact,
            key,
        }
    }

    fn keeps(&self, category: Category) -> bool {
        self.redact.args.keeps(category)
    }

    /// True if the name of an event says only what it counts.
    fn is_known_event(&self, name: &[u8]) -> bool {
        let mut parts = name.splitn(3, |&byte| byte == b':');
        let tracepoint = [parts.next().unwrap_or_default(), parts.next().unwrap_or_default()].join(&b':');
        let is_bare = parts.next().is_none_or(are_modifiers);
        let pmu = name.iter().position(|&byte| byte == b'/').map(|at| (&name[..at], &name[at + 1..]));
        let of_pmu = pmu.is_some_and(|(pmu, terms)| self.pmus.contains(pmu) && are_terms(terms));
        let is_own = || pmu.is_none() && self.own_names.contains(name);
        self.events.contains(name) || is_bare && self.events.contains(&tracepoint) || of_pmu || is_own()
    }

    /// The pseudonym of an event's name.
    fn event(&self, name: &[u8]) -> Vec<u8> {
        if self.is_known_event(name) {
            return name.to_vec();
        }
        let system = name.iter().position(|&byte| byte == b':').map(|at| name.split_at(at));
        match system.filter(|(system, _)| is_for_users(system) || self.systems.contains(*system)) {
            Some((_, probe)) => [b"probe:", &self.probe(&probe[1..])[..]].concat(),
            None => self.key.word("event", name),
        }
    }

    /// The pseudonym of a tracepoint that a user made.
    fn probe(&self, name: &[u8]) -> Vec<u8> {
        let name = name.split(|&byte| byte == b':').next().unwrap_or_default();
        // perf takes `-` for an operator here.
        let word = self.key.word("event", &swapped(name, b'_', b'-'));
        swapped(&word, b'-', b'_')
    }

    /// The name as it is in the output.
    fn name(&self, done: &mut Done, name: Name<'_>) -> Vec<u8> {
        let (key, text) = (&self.key, name.text);
        let (category, new) = match name.kind {
            NameKind::Path => (Category::Paths, names::path(key, text).unwrap_or_else(|| text.to_vec())),
            NameKind::Comm => (Category::Comms, names::comm(key, text)),
            NameKind::Cgroup => (Category::Cgroups, names::cgroup(key, text)),
            NameKind::Symbol => (Category::Bpf, names::symbol(key, text)),
            NameKind::Event => (Category::Events, self.event(text)),
            NameKind::Group if text == b"{anon_group}" || text.is_empty() => return text.to_vec(),
            NameKind::Group => (Category::Events, key.word("group", text)),
            NameKind::Host => (Category::Host, HOST.to_vec()),
            // A new kind of name, which is not known.
            _ => (Category::Unknown, key.word("name", text)),
        };
        if self.keeps(category) { text.to_vec() } else { done.note(category, text, new) }
    }

    /// The replacement of a call chain's entry that is not an address of mapped user code. In code without frame
    /// pointers, the kernel takes parts of the stack for return addresses: words, or the text in them.
    fn cleared(&self, cpumode: u16, entry: u64) -> Option<u64> {
        let is_code = || {
            let ranges = &self.mapped.ranges;
            let behind = ranges.partition_point(|&(start, _)| start <= entry);
            // A call may be the last instruction of its mapping, and returns behind it.
            let range = behind.checked_sub(1).and_then(|last| ranges.get(last));
            entry < self.user_end && range.is_some_and(|&(_, end)| entry <= end)
        };
        (!is_kernel(cpumode) && !is_code()).then_some(0).filter(|_| !self.keeps(Category::Stacks))
    }

    /// Clears such entries of a record.
    fn clear_memory(
        &self,
        done: &mut Done,
        record: &Record<'_>,
        layout: Option<&Layout>,
        bytes: &mut Cow<'_, [u8]>,
    ) {
        let cleared = change_frames(record, layout, bytes, |cpumode, entry| self.cleared(cpumode, entry));
        done.clears(cleared, cleared > 0 && self.has_mappings(record, layout));
    }

    /// True if the mappings of the process of a record are known.
    fn has_mappings(&self, record: &Record<'_>, layout: Option<&Layout>) -> bool {
        let Mapped { processes, .. } = &self.mapped;
        let process = layout.and_then(|layout| layout.pid_tid(record));
        process.map_or(!processes.is_empty(), |(pid, _)| processes.contains(&pid))
    }

    /// Clears the address of a sample if it is such an entry: often it is the first one, too.
    fn clear_ip(&self, sample: &Record<'_>, layout: &Layout, bytes: &mut Cow<'_, [u8]>) -> bool {
        let cleared = |ip| self.cleared(sample.cpumode(), ip).is_some_and(|new| new != ip);
        let is_cleared = layout.ip(sample).is_some_and(cleared);
        if is_cleared {
            layout.set_ip(bytes.to_mut(), 0, sample.endian());
        }
        is_cleared
    }
}

impl Done {
    /// The pseudonym of a name, and a note of it if it differs.
    fn note(&mut self, category: Category, old: &[u8], new: Vec<u8>) -> Vec<u8> {
        if old != new {
            self.names.entry((category, old.to_vec())).or_insert_with(|| new.clone());
        }
        new
    }

    /// Counts entries of call chains that were cleared.
    fn clears(&mut self, entries: u64, has_mappings: bool) {
        *(if has_mappings { &mut self.entries } else { &mut self.unmapped }) += entries;
    }

    fn join(&mut self, later: Done) {
        self.names.extend(later.names);
        self.numbers.extend(later.numbers);
        self.features.extend(later.features);
        self.entries += later.entries;
        self.ips += later.ips;
        self.unmapped += later.unmapped;
        self.tags += later.tags;
        self.formats += later.formats;
        self.asked |= later.asked;
        for (category, count) in later.samples {
            *self.samples.entry(category).or_default() += count;
        }
    }

    fn report(&self, plan: &Plan, left_out: &LeftOut, session: &mut Session) {
        // The call chains of --call-graph dwarf are in them.
        let unwinds = self.samples.contains_key(&Category::Stacks) && plan.has_stacks;
        let mut counts = self.samples.clone();
        let named = self.names.keys().map(|(category, _)| category);
        let numbered = self.numbers.iter().map(|(category, _)| category);
        named.chain(numbered).for_each(|category| *counts.entry(*category).or_default() += 1);
        if !plan.redact.beside.is_empty() {
            counts.insert(Category::Kcore, plan.redact.beside.len() as u64);
        }
        let checks = plan.redact.checks;
        let report = &mut session.report;
        for (category, count) in counts {
            let Wording { name, one, many, done } = category.wording();
            let listed = if self.names.keys().any(|(listed, _)| *listed == category) { LISTED } else { "" };
            let what = counted(count, one, many);
            match checks {
                true => report.say(Level::Warning, format!("{name}: {what} as recorded{listed}")),
                false => report.say(Level::Info, format!("{name}: {what} {done}{listed}")),
            }
            for ((_, old), new) in self.names.iter().filter(|((listed, _), _)| *listed == category) {
                let new = if checks { String::new() } else { format!(" is now {}", new.escape_ascii()) };
                report.say(Level::Detail, format!("{name}: {}{new}", old.escape_ascii()));
            }
        }
        if unwinds && !checks {
            let what = "call chains end where user code begins, because they were in the stacks: perfx inject \
                        --convert-callchain, run before, keeps them";
            report.say(Level::Info, what);
        }
        if plan.cuts_callers && !checks {
            report.say(Level::Warning, CALLERS_LOST);
        }
        let level = if checks { Level::Warning } else { Level::Info };
        for (count, one, many) in [
            (
                self.entries,
                "entry of call chains is in no mapping",
                "entries of call chains are in no mapping",
            ),
            (self.ips, "address of a sample is in no mapping", "addresses of samples are in no mapping"),
        ] {
            let done = if checks { "" } else { ", now 0" };
            if count > 0 {
                report.say(level, format!("stacks: {}{done}", counted(count, one, many)));
            }
        }
        if self.unmapped > 0 {
            let (one, many) =
                ("address of samples and call chains is", "addresses of samples and call chains are");
            let (level, done) = if checks { (level, "") } else { (Level::Loss, ", now 0") };
            let addresses = counted(self.unmapped, one, many);
            let why = "of processes whose mappings are not in the recording";
            report.say(level, format!("stacks: {addresses} {why}{done}"));
        }
        let cut = [Category::Stacks, Category::Aux, Category::Unknown];
        if self.asked && cut.iter().all(|category| !self.samples.contains_key(category)) {
            let done = if checks { "" } else { ", cleared" };
            let what =
                "stacks: events ask for registers, stacks, AUX data or unknown parts, which no sample has";
            report.say(level, format!("{what}{done}"));
        }
        let done = if checks { "is there" } else { "left out" };
        for (category, feature) in &self.features {
            report.say(level, format!("{}: feature {feature} {done}", category.wording().name));
        }
        left_out.report("unknown: ", checks, report);
        let (level, done) = if checks { (Level::Warning, "") } else { (Level::Loss, " left out") };
        if self.tags > 0 {
            let tags = counted(self.tags, "setting of STAT_CONFIG", "settings of STAT_CONFIG");
            report.say(level, format!("unknown: {tags}{done}: they may hold anything"));
        }
        if self.formats > 0 {
            let (one, many) = ("format of a tracepoint", "formats of tracepoints");
            let formats = counted(self.formats, one, many);
            report.say(level, format!("events: {formats}{done}: not as the kernel writes them"));
        }
        let is_clean = |level: Level| level > Level::Warning;
        if checks && report.lines.iter().all(|(level, _)| is_clean(*level)) && report.dropped.is_empty() {
            report.say(Level::Info, "nothing to redact");
        }
    }
}

impl Remove {
    fn stage(redact: Redact, key: Key, mapped: Mapped) -> Stage {
        Stage::begin(move |begin| {
            if begin.form == OutputForm::DirectoryData && !redact.args.keeps(Category::Kcore) {
                bail!(
                    "{}: the output would have the files beside the records, such as the kernel's memory: use perfx \
                     redact, or keep category kcore",
                    begin.name
                );
            }
            let plan = Arc::new(Plan::new(redact, key, mapped, begin));
            let remove = Remove { plan, done: Done::default(), comms: HashMap::new() };
            Ok(Scrubber::stage(remove, begin))
        })
    }

    /// The id of a file as it is in the output.
    fn build_id<'i>(&mut self, path: &[u8], id: &'i [u8]) -> Cow<'i, [u8]> {
        let id = trimmed_id(id);
        if id.is_empty() || !path.is_empty() && is_public(path) || self.plan.keeps(Category::BuildIds) {
            return id.into();
        }
        let new = names::build_id(&self.plan.key, id);
        if new[..] != *id {
            let old = hex(id).into_bytes();
            self.done.note(Category::BuildIds, &old, hex(&new).into_bytes());
        }
        new.to_vec().into()
    }

    /// Feature BUILD_ID with pseudonyms; `None` if it is damaged.
    fn build_ids(&mut self, section: &[u8], endian: Endian) -> Option<Vec<u8>> {
        let changed = change_build_ids(section, endian, |entry| {
            let name = Name { kind: NameKind::Path, text: entry.filename, build_id: None };
            let id = self.build_id(entry.filename, entry.id);
            let id = if *id == *trimmed_id(entry.id) { entry.id.to_vec() } else { id.into_owned() };
            Some((self.plan.name(&mut self.done, name), id))
        });
        changed.whole.then_some(changed.section)
    }

    /// Feature TRACING_DATA with pseudonyms of the tracepoints that users made, and without what else it says of the
    /// machine; `None` if it is damaged.
    fn tracing_data(&mut self, section: &[u8], endian: Endian) -> Option<Vec<u8>> {
        let data = TracingData::read(section)?.without_texts();
        let head = data.head_without(|text| !is_header(text))?;
        let formats = trace_formats(section, endian);
        let by_users = made_by_users(&formats, Some(&data));
        let mut systems = Vec::new();
        for (system, texts) in &data.systems {
            let is_by_users = by_users.contains(system);
            let name: &[u8] = if is_by_users { b"probe" } else { system };
            let formats = texts.iter().filter_map(|text| TraceFormat::parse(system, text));
            let new: Vec<Cow<'_, [u8]>> = formats
                .map(|format| {
                    if !is_by_users {
                        return format.text.into();
                    }
                    let new = self.plan.probe(format.name);
                    self.done.note(Category::Events, &format.full_name(), [b"probe:", &new[..]].concat());
                    format.with_name(&String::from_utf8_lossy(&new)).into()
                })
                .collect();
            if new.is_empty() {
                self.done.note(Category::Events, system, name.to_vec());
            }
            self.done.formats += (texts.len() - new.len()) as u64;
            systems.push((name, new));
        }
        let systems =
            systems.iter().map(|(name, texts)| (*name, texts.iter().map(|text| &text[..]).collect()));
        let of_ftrace = formats.iter().filter(|format| format.system == b"ftrace");
        let of_ftrace: HashMap<&[u8], &[u8]> = of_ftrace.map(|format| (format.text, format.name)).collect();
        let mut ftrace = Vec::new();
        for text in data.ftrace.iter().copied() {
            let name = of_ftrace.get(text).copied().unwrap_or_default();
            if is_ftrace(name) && is_ftrace_text(text) {
                ftrace.push(text);
            } else {
                self.done.note(Category::Events, &[b"ftrace:", name].concat(), Vec::new());
            }
        }
        let mut new = data.clone();
        (new.head, new.ftrace, new.systems) = (&head, ftrace, systems.collect());
        new.write()
    }

    /// A record with names or numbers that tell something; `None` if it stays.
    fn renamed(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<Option<Vec<u8>>> {
        let endian = record.endian();
        let mut new = rename_record(record, layouts, |name| Some(self.plan.name(&mut self.done, name)))?;
        let mut bytes = || new.take().unwrap_or_else(|| record.bytes().to_vec());
        let changed = match record.kind() {
            RecordType::MMAP2 => {
                let path =
                    Mmap::of(record).map(|mmap| mmap.name(layouts.trailer_size(record))).unwrap_or_default();
                let mut bytes = bytes();
                match mmap_build_id(record, layouts) {
                    Some(MmapBuildId::BuildId(id)) => {
                        let new = self.build_id(path, id);
                        if *new != *trimmed_id(id) {
                            set_mmap2_build_id(&mut bytes, &new, endian);
                        }
                    }
                    _ => {
                        if let Some(inode) = Mmap::of(record).and_then(|mmap| mmap.file()) {
                            set_mmap2_inode(&mut bytes, self.inode(inode), endian);
                        }
                    }
                }
                bytes
            }
            RecordType::HEADER_BUILD_ID => {
                let mut bytes = bytes();
                if let Some(entry) = BuildIdEntry::read(record.bytes(), endian) {
                    let new = self.build_id(entry.filename, entry.id);
                    if *new != *trimmed_id(entry.id) {
                        set_build_id(&mut bytes, &new, endian);
                    }
                }
                bytes
            }
            RecordType::NAMESPACES if !self.plan.keeps(Category::Namespaces) => {
                let (mut bytes, key, numbers) = (bytes(), self.plan.key, &mut self.done.numbers);
                change_namespaces(&mut bytes, endian, |device, inode| {
                    let new = namespace(&key, device, inode);
                    if new != (device, inode) {
                        let words = [device, inode].map(u64::to_le_bytes);
                        numbers.insert((Category::Namespaces, words.concat()));
                    }
                    new
                });
                bytes
            }
            RecordType::BPF_EVENT if !self.plan.keeps(Category::Bpf) => {
                let mut bytes = bytes();
                if let Some(tag) = bpf_tag(record) {
                    let new = names::tag(&self.plan.key, tag);
                    self.done.note(Category::Bpf, hex(&tag).as_bytes(), hex(&new).into_bytes());
                    set_bpf_tag(&mut bytes, new, endian);
                }
                bytes
            }
            _ => return Ok(new),
        };
        Ok((changed != record.bytes()).then_some(changed))
    }

    /// Device and inode of a file as they are in the output: device 0, which no file has, and a number.
    fn inode(&mut self, file: Inode) -> Inode {
        let Inode { major, minor, inode, generation } = file;
        let is_done = major == 0 && minor == 0 && generation == 0;
        if self.plan.keeps(Category::Inodes) || inode == 0 || is_done {
            return file;
        }
        let words = [u64::from(major) << 32 | u64::from(minor), inode, generation].map(u64::to_le_bytes);
        let number = self.plan.key.number("inode", words.as_flattened());
        self.done.numbers.insert((Category::Inodes, words.concat()));
        Inode { major: 0, minor: 0, inode: number >> 24 | 1 << 40, generation: 0 }
    }
}

/// Device and inode of a namespace as they are in the output. The kernel's first namespaces are the same everywhere.
fn namespace(key: &Key, device: u64, inode: u64) -> (u64, u64) {
    const INITIAL: std::ops::RangeInclusive<u64> = 0xefff_fff0..=0xefff_ffff;
    let number = || {
        let words = [device, inode].map(u64::to_le_bytes);
        key.number("namespace", words.as_flattened()) >> 24 | 1 << 40
    };
    let is_done = device == 0 && inode >> 40 == 1;
    (0, if inode == 0 || INITIAL.contains(&inode) || is_done { inode } else { number() })
}

fn swapped(name: &[u8], from: u8, to: u8) -> Vec<u8> {
    name.iter().map(|&byte| if byte == from { to } else { byte }).collect()
}

impl Scrub for Remove {
    fn keeps_unknown(&self) -> bool {
        self.plan.keeps(Category::Unknown)
    }

    fn drops(&self, kind: RecordType) -> bool {
        OF_TRACES.contains(kind) && !self.plan.keeps(Category::Aux)
            || kind == RecordType::BPF_METADATA && !self.plan.keeps(Category::Bpf)
    }

    fn name(&mut self, name: Name<'_>) -> Option<Vec<u8>> {
        Some(self.plan.name(&mut self.done, name))
    }

    /// Removes the parts that samples lose.
    fn attr(&mut self, raw: &mut [u8], endian: Endian) {
        let old = raw.to_vec();
        without_parts(raw, self.plan.parts, endian);
        self.done.asked |= *raw != old;
    }

    fn fate(&mut self, feature: Feature) -> Option<Fate> {
        let category = match feature {
            Feature::BPF_PROG_INFO | Feature::BPF_BTF => Category::Bpf,
            Feature::AUXTRACE => Category::Aux,
            Feature::CLOCK_DATA => Category::Clock,
            _ => return None,
        };
        if self.plan.keeps(category) {
            return Some(Fate::Stays);
        }
        self.done.features.insert((category, feature));
        Some(Fate::Goes)
    }

    fn rule(&mut self, feature: Feature, section: &[u8], endian: Endian) -> Option<Option<Vec<u8>>> {
        let plan = self.plan.clone();
        let new = match feature {
            Feature::BUILD_ID => self.build_ids(section, endian),
            Feature::TRACING_DATA if plan.keeps(Category::Events) => Some(section.to_vec()),
            Feature::TRACING_DATA => self.tracing_data(section, endian),
            Feature::CMDLINE if plan.keeps(Category::Cmdline) => Some(section.to_vec()),
            Feature::CMDLINE => {
                let (mut line, done) = (CommandLine::default(), &mut self.done);
                let is_event = |word: &[u8]| {
                    word.split(|&byte| byte == b',')
                        .all(|event| !event.is_empty() && plan.is_known_event(event))
                };
                renamed(feature, section, endian, |name| {
                    Some(done.note(Category::Cmdline, name.text, line.word(&plan.key, name.text, is_event)))
                })
            }
            Feature::HOSTNAME => renamed(feature, section, endian, |name| self.name(name)),
            Feature::NRCPUS if !NrCpus::read(section, endian).is_some_and(is_count_of_cpus) => None,
            _ => return None,
        };
        Some(new)
    }

    /// Writes pseudonyms in place of the texts that not every machine may have.
    fn texts(&mut self, feature: Feature, decoded: &Decoded<'_>, old: &[u8], section: &mut [u8]) {
        for (field, place) in decoded.texts(old).into_iter().filter(|_| !self.plan.keeps(Category::Host)) {
            let text = &old[place.clone()];
            if is_known(feature, field, text) {
                continue;
            }
            let gap = decoded.gaps.binary_search_by_key(&place.end, |gap| gap.start);
            let end = gap.map_or(place.end, |gap| decoded.gaps[gap].end);
            let mut pseudonym = known::replaced(&self.plan.key, feature, text);
            // A part of a pseudonym is another name.
            pseudonym.truncate(if pseudonym.len() < end - place.start { pseudonym.len() } else { 0 });
            section[place.start..end].fill(0);
            section[place.start..place.start + pseudonym.len()].copy_from_slice(&pseudonym);
            self.done.note(Category::Host, text, pseudonym);
        }
    }

    fn sample(
        &mut self,
        record: &Record<'_>,
        layout: &Layout,
        mut bytes: Cow<'_, [u8]>,
        out: &mut Emit<'_>,
    ) -> Result<bool> {
        let Remove { plan, done, comms } = self;
        let (endian, event) = (record.endian(), out.layouts().event_of(record));
        let stays = event.and_then(|event| plan.raw.get(event));
        if layout.sample_type & st::RAW != 0 && stays != Some(&Stays::All) {
            let Some(range) = raw_range(record, layout) else { return Ok(false) };
            let old = &record.bytes()[range.clone()];
            let new = match stays {
                Some(Stays::OffCpu) => {
                    let changed = changed_off_cpu(old, endian, |cpumode, entry| plan.cleared(cpumode, entry));
                    let (new, entries) = changed.unwrap_or_else(|| (vec![0; old.len()], 0));
                    done.clears(entries, plan.has_mappings(record, Some(layout)));
                    new
                }
                Some(Stays::Fields(kept)) => redacted(old, kept, endian, |name| {
                    // The pseudonyms of tasks are in every sample of some tracepoints.
                    if let Some(known) = comms.get(name) {
                        return known.clone();
                    }
                    let new = plan.name(done, Name { kind: NameKind::Comm, text: name, build_id: None });
                    comms.entry(name.to_vec()).or_insert(new).clone()
                }),
                _ => vec![0; old.len()],
            };
            if new != old {
                *done.samples.entry(Category::Raw).or_default() += 1;
                bytes.to_mut()[range].copy_from_slice(&new);
            }
        }
        plan.clear_memory(done, record, Some(layout), &mut bytes);
        if plan.clear_ip(record, layout, &mut bytes) {
            *(if plan.has_mappings(record, Some(layout)) { &mut done.ips } else { &mut done.unmapped }) += 1;
        }
        let whole = Record::new(&bytes, &[], record.origin(), endian)?;
        let parts = layout.sample_type & plan.parts;
        if parts == 0 {
            return out.keep(whole).map(|()| true);
        }
        let Ok(cut) = sample_without(&whole, layout, parts) else { return Ok(false) };
        let categories = [
            (parts & !(st::AUX | st::UNNAMED) != 0, Category::Stacks),
            (parts & st::AUX != 0, Category::Aux),
            (parts & st::UNNAMED != 0, Category::Unknown),
        ];
        for (_, category) in categories.iter().filter(|(is_cut, _)| *is_cut) {
            *done.samples.entry(*category).or_default() += 1;
        }
        out.replace(record, &cut).map(|()| true)
    }

    /// Clears the texts and bytes for which no other rule says whether they may stay.
    fn clear_texts(&mut self, record: &Record<'_>, decoded: &Decoded<'_>, bytes: &mut Cow<'_, [u8]>) -> u64 {
        if WITH_TEXTS.contains(record.kind()) {
            return 0;
        }
        let is_update = record.kind() == RecordType::EVENT_UPDATE;
        let mut all = 0;
        for (field, place) in decoded.texts(record.bytes()) {
            let text = &record.bytes()[place.clone()];
            let has_rule =
                is_update && (field == "name" || is_unit(text) || self.plan.keeps(Category::Events));
            if has_rule || text.iter().all(|&byte| byte == 0) {
                continue;
            }
            let cleared = clear(bytes.to_mut(), place);
            match is_update {
                true => drop(self.done.note(Category::Events, text, Vec::new())),
                false => all += cleared,
            }
        }
        all
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match record.kind() {
            RecordType::CALLCHAIN_DEFERRED => {
                let mut bytes = Cow::Borrowed(record.bytes());
                let layout = out.layouts().layout_of(&record);
                self.plan.clear_memory(&mut self.done, &record, layout, &mut bytes);
                out.keep(Record::new(&bytes, record.payload(), record.origin(), record.endian())?)
            }
            RecordType::STAT_CONFIG if !self.plan.keeps(Category::Unknown) => {
                let known = without_unknown_tags(&record).map(|(bytes, tags)| {
                    self.done.tags += tags;
                    bytes
                });
                out.replace_if(record, known)
            }
            _ => {
                let renamed = self.renamed(&record, out.layouts())?;
                out.replace_if(record, renamed)
            }
        }
    }

    fn report(&self, left_out: &LeftOut, session: &mut Session) {
        self.done.report(&self.plan, left_out, session);
    }

    fn fork(&self) -> Remove {
        Remove { plan: self.plan.clone(), done: Done::default(), comms: HashMap::new() }
    }

    fn absorb(&mut self, later: Remove) {
        self.done.join(later.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_behind_the_name_of_an_event_are_modifiers_and_numbers() {
        for (text, expected) in
            [("", true), ("u", true), ("ppp", true), ("SECRET", false), ("pppppppppppppppppp", false)]
        {
            assert_eq!(are_modifiers(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("event=0x3c,umask=0/", true),
            ("cache-misses/u", true),
            ("tsc,noretcomp=0/u", true),
            ("event=0x3c,name=word/", false),
            ("event=0x3c/SECRET", false),
            ("event=secret/", false),
            ("event=1", false),
        ] {
            assert_eq!(are_terms(text.as_bytes()), expected, "{text}");
        }
    }
}
