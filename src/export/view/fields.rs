//! Chooses the fields of samples to show.

use clap::ValueEnum;
use perfx_format::sample::{Sample, Weight, synth};
use perfx_format::{Event, Kinds, SAMPLE_TYPE_NAMES, sample_type};
use perfx_look::clock::Clock;
use perfx_look::render::readable;
use perfx_pipeline::{Result, bail};
use perfx_resolve::Facts;

use super::other::ShownRecords;

/// A field of a sample, by perf's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of perf script -F")]
pub enum Field {
    Comm,
    Pid,
    Tid,
    Cpu,
    Misc,
    Tod,
    Time,
    Period,
    Event,
    Flags,
    Callindent,
    Trace,
    Synth,
    Addr,
    DataSrc,
    Weight,
    InsLat,
    RetireLat,
    Cgroup,
    Ip,
    Sym,
    Symoff,
    Dso,
    Dsoff,
    Srcline,
    Iregs,
    Uregs,
    Brstack,
    Brstacksym,
    Insn,
    Insnlen,
    Disasm,
    PhysAddr,
    DataPageSize,
    CodePageSize,
    Ipc,
    MachinePid,
    Vcpu,
}

impl Field {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Bits of `attr.sample_type` that suffice, and an option of perf record; `None` if all samples have it.
    fn needs(self) -> Option<(u64, &'static str)> {
        Some(match self {
            Field::Pid | Field::Tid => (sample_type::TID, "the process"),
            Field::Cpu => (sample_type::CPU, "the CPU (perf record --sample-cpu)"),
            Field::Time | Field::Tod => (sample_type::TIME, "the time (perf record --timestamp)"),
            Field::Flags => (sample_type::RAW, "what kind of branch it was (--itrace)"),
            Field::Callindent => (sample_type::RAW, "calls and returns (--itrace)"),
            Field::Synth => (sample_type::RAW, "data of a trace"),
            Field::Ipc => (sample_type::RAW, "how many cycles it took (--itrace)"),
            Field::Insn | Field::Insnlen | Field::Disasm => (sample_type::RAW, "its instruction (--itrace)"),
            Field::Trace => (sample_type::RAW, "raw data (perf record -R, and tracepoints always)"),
            Field::Addr => (sample_type::ADDR, "the address (perf record --data; branches of a trace)"),
            Field::DataSrc => (sample_type::DATA_SRC, "where data came from (perf mem record)"),
            Field::Weight => {
                (sample_type::WEIGHT | sample_type::WEIGHT_STRUCT, "the weight (perf record --weight)")
            }
            Field::InsLat | Field::RetireLat => {
                (sample_type::WEIGHT_STRUCT, "latencies (perf record -W with an event of loads)")
            }
            Field::Cgroup => (sample_type::CGROUP, "the cgroup (perf record --all-cgroups)"),
            Field::Ip => (sample_type::IP, "the instruction pointer"),
            Field::Sym | Field::Symoff | Field::Dso | Field::Dsoff => {
                (sample_type::IP | sample_type::ADDR, "an address")
            }
            Field::Srcline => (sample_type::IP, "the instruction pointer"),
            Field::Iregs => (sample_type::REGS_INTR, "registers (perf record --intr-regs)"),
            Field::Uregs => (sample_type::REGS_USER, "registers of user code (perf record --user-regs)"),
            Field::Brstack | Field::Brstacksym => (sample_type::BRANCH_STACK, "branches (perf record -b)"),
            Field::PhysAddr => (sample_type::PHYS_ADDR, "physical addresses (perf record --phys-data)"),
            Field::DataPageSize => (sample_type::DATA_PAGE_SIZE, "page sizes (perf record --data-page-size)"),
            Field::CodePageSize => (sample_type::CODE_PAGE_SIZE, "page sizes (perf record --code-page-size)"),
            Field::MachinePid | Field::Vcpu | Field::Comm | Field::Misc | Field::Period | Field::Event => {
                return None;
            }
        })
    }

    /// True if perf refuses to show the field of an event that does not record it.
    fn is_required(self) -> bool {
        use Field::{
            Addr, Cgroup, CodePageSize, Cpu, DataPageSize, DataSrc, Dso, InsLat, Ip, Iregs, PhysAddr, Pid,
            RetireLat, Sym, Tid, Time, Uregs, Weight,
        };
        let required = [
            Ip, Addr, DataSrc, Weight, Sym, Dso, Pid, Tid, Time, Cpu, Iregs, Uregs, PhysAddr, DataPageSize,
            CodePageSize, InsLat, RetireLat, Cgroup,
        ];
        required.contains(&self)
    }

    /// True if samples of a decoded trace may have the field, so that perf accepts it then.
    fn comes_of_traces(self) -> bool {
        use Field::{Addr, Cpu, DataSrc, Iregs, PhysAddr, Weight};
        matches!(self, Addr | DataSrc | Weight | Cpu | Iregs | PhysAddr)
    }

    /// True if an event has the field. With `decoded`, hardware events have flags as raw data. As in perf, the
    /// `first` event of its group decides for all.
    fn is_of(self, (event, first): (&Event, &Event), options: &ViewOptions) -> bool {
        let ViewOptions { fields, decoded, like_perf, has_trace, .. } = options;
        let (attr, decoded, like_perf) = (event.attr(), *decoded, *like_perf);
        // perf then shows a field that the user names even for samples without it, as 0.
        if like_perf && *has_trace && self.comes_of_traces() && fields.names(self) {
            return true;
        }
        let is_of_kind = match self {
            Field::Callindent => decoded && attr.type_ == HARDWARE && attr.config == BRANCHES,
            // Other samples have none, but the same column.
            Field::Flags => return decoded || like_perf,
            // The target of a branch; else 0, as in perf.
            Field::Addr if decoded && matches!(attr.type_, HARDWARE | synth::TYPE) => return true,
            Field::Ipc | Field::Insn | Field::Insnlen | Field::Disasm => decoded && attr.type_ == HARDWARE,
            Field::Synth => attr.type_ == synth::TYPE,
            _ => true,
        };
        let recorded = if like_perf && self.is_required() { first.attr() } else { attr }.sample_type;
        is_of_kind && self.needs().is_none_or(|(bits, _)| recorded & bits != 0)
    }
}

/// `attr.type` of hardware events, then `attr.config` of branches and instructions.
pub(super) const HARDWARE: u32 = 0;
const BRANCHES: u64 = 4;

/// A group of events whose fields are chosen together, as in perf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// PERF_TYPE_HARDWARE.
    Hardware,
    /// PERF_TYPE_SOFTWARE.
    Software,
    /// PERF_TYPE_TRACEPOINT.
    Tracepoint,
    /// PERF_TYPE_HW_CACHE.
    Cache,
    /// PERF_TYPE_RAW.
    Raw,
    /// PERF_TYPE_BREAKPOINT.
    Breakpoint,
    /// Events that are made when a trace is decoded.
    Synth,
    /// Those of other PMUs.
    Other,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 8] = [
        Group::Hardware,
        Group::Software,
        Group::Tracepoint,
        Group::Cache,
        Group::Raw,
        Group::Breakpoint,
        Group::Synth,
        Group::Other,
    ];

    /// By the name before the fields of `-F`.
    pub fn named(name: &str) -> Option<Group> {
        Some(match name {
            "hw" => Group::Hardware,
            "sw" => Group::Software,
            "trace" => Group::Tracepoint,
            "raw" => Group::Raw,
            "break" => Group::Breakpoint,
            "synth" => Group::Synth,
            _ => return None,
        })
    }

    fn of(event: &Event) -> Group {
        match event.attr().type_ {
            synth::TYPE => Group::Synth,
            number => Group::ALL[..6].get(number as usize).copied().unwrap_or(Group::Other),
        }
    }

    /// perf's default fields, as far as the event has them; tracepoints' addresses only with a chain.
    fn defaults(self, chain: bool) -> u64 {
        use Field::{
            Addr, CodePageSize, Comm, Cpu, DataPageSize, DataSrc, Dso, Event, InsLat, Ip, Period, PhysAddr,
            RetireLat, Sym, Symoff, Synth, Tid, Time, Trace, Weight,
        };
        let code = bits(&[Ip, Sym, Symoff, Dso]);
        bits(&[Comm, Tid, Cpu, Time, Event])
            | match self {
                Group::Tracepoint => bits(&[Trace]) | if chain { code } else { 0 },
                Group::Synth => code | bits(&[Synth]),
                Group::Raw => {
                    let data =
                        [Addr, DataSrc, Weight, InsLat, RetireLat, PhysAddr, DataPageSize, CodePageSize];
                    code | bits(&[Period]) | bits(&data)
                }
                _ => code | bits(&[Period]),
            }
    }
}

/// Properties of each group of events that decide in perf how all of them are shown.
pub(super) struct Groups<'e> {
    first: [Option<&'e Event>; Group::ALL.len()],
    /// True if an event has call chains.
    has_chains: [bool; Group::ALL.len()],
}

impl<'e> Groups<'e> {
    pub(super) fn new(events: &'e [Event]) -> Groups<'e> {
        let mut groups = Groups { first: Default::default(), has_chains: Default::default() };
        for event in events.iter().filter(|event| !event.attr().is_dummy()) {
            let group = Group::of(event) as usize;
            groups.first[group].get_or_insert(event);
            groups.has_chains[group] |= has_chain(event);
        }
        groups
    }
}

fn has_chain(event: &Event) -> bool {
    event.attr().sample_type & sample_type::CALLCHAIN != 0
}

/// Fields as bits, by number.
#[inline]
pub(super) const fn bits(fields: &[Field]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < fields.len() {
        bits |= 1 << fields[at] as u64;
        at += 1;
    }
    bits
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct GroupChoice {
    /// Only `with`, without perf's default fields.
    only: bool,
    with: u64,
    without: u64,
}

impl GroupChoice {
    /// True if the user changes no field. As for perf, added flags are no change.
    fn is_default(self) -> bool {
        !self.only && self.without == 0 && self.with & !bits(&[Field::Flags]) == 0
    }
}

/// The fields to print.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FieldChoice([GroupChoice; Group::ALL.len()]);

impl FieldChoice {
    fn of_group(&mut self, group: Option<Group>) -> &mut [GroupChoice] {
        match group {
            Some(group) => &mut self.0[group as usize..=group as usize],
            None => &mut self.0,
        }
    }

    /// Only these fields, in perf's order, for a group of events or all.
    pub fn set(&mut self, group: Option<Group>, fields: &[Field]) {
        let only = GroupChoice { only: true, with: bits(fields), without: 0 };
        self.of_group(group).fill(only);
    }

    /// Adds this field.
    pub fn add(&mut self, group: Option<Group>, field: Field) {
        for choice in self.of_group(group) {
            choice.with |= bits(&[field]);
            choice.without &= !bits(&[field]);
        }
    }

    /// Removes this field.
    pub fn remove(&mut self, group: Option<Group>, field: Field) {
        for choice in self.of_group(group) {
            choice.with &= !bits(&[field]);
            choice.without |= bits(&[field]);
        }
    }

    /// The fields of an event, as bits.
    pub(super) fn of(&self, event: &Event, groups: &Groups<'_>, options: &ViewOptions) -> u64 {
        let group = Group::of(event);
        let choice = self.0[group as usize];
        let first = groups.first[group as usize].unwrap_or(event);
        // As perf, which adds to the default fields of tracepoints only if the user changes none.
        let is_default = !options.like_perf || choice.is_default();
        let like_perf_of_pipe = options.like_perf && options.is_pipe;
        let chain = has_chain(event) && !options.hides_chains;
        let GroupChoice { only, with, without } = choice;
        let shows_code = chain && is_default && !like_perf_of_pipe;
        let mut chosen = if only { 0 } else { group.defaults(shows_code) } | with;
        // Of pipe data, perf shows the addresses and names of call chains whatever the fields are.
        if like_perf_of_pipe && groups.has_chains[group as usize] && !options.hides_chains {
            chosen |= bits(&[Field::Ip, Field::Sym]);
        }
        chosen &= !without;
        if chosen & bits(&[Field::Dsoff]) != 0 {
            chosen |= bits(&[Field::Dso]);
        }
        let of_event = Field::value_variants().iter().filter(|field| field.is_of((event, first), options));
        of_event.fold(0, |fields, field| fields | chosen & bits(&[*field]))
    }

    /// True if perf shows the targets of a trace's branches: by default, and if the user chooses `addr`.
    pub(super) fn shows_targets(&self) -> bool {
        self.0[Group::Hardware as usize].is_default() || self.names(Field::Addr)
    }

    /// True if the raw data of decoded samples is shown.
    pub fn shows_flow(&self) -> bool {
        let has_flow = self.names(Field::Flags) || self.names(Field::Ipc);
        has_flow || self.shows_instructions() || self.shows_depths()
    }

    /// True if samples of instructions are shown with an address.
    pub fn shows_addresses(&self) -> bool {
        self.names(Field::Addr)
    }

    /// True if instructions or their lengths are shown.
    pub fn shows_instructions(&self) -> bool {
        [Field::Insn, Field::Insnlen, Field::Disasm].into_iter().any(|field| self.names(field))
    }

    /// True if the call depth is shown.
    pub fn shows_depths(&self) -> bool {
        self.names(Field::Callindent)
    }

    pub(super) fn names(&self, field: Field) -> bool {
        self.0.iter().any(|choice| choice.with & bits(&[field]) != 0)
    }

    /// Fails if a field that the user named is in no sample or, as in perf, not in a group's first event.
    fn check(&self, events: &[Event], facts: &Facts, options: &ViewOptions) -> Result<()> {
        let groups = Groups::new(events);
        let real: Vec<&Event> = events.iter().filter(|event| !event.attr().is_dummy()).collect();
        for group in Group::ALL {
            let GroupChoice { only, with, .. } = self.0[group as usize];
            let has = |field| with & bits(&[field]) != 0;
            let Some(first) = groups.first[group as usize] else { continue };
            let shown = self.of(first, &groups, options);
            let lacks = |what: Field, of: Field| {
                let is_wanted = has(what) || options.like_perf && shown & bits(&[what]) != 0;
                is_wanted && shown & bits(&[of]) == 0
            };
            if (only || options.like_perf) && lacks(Field::Srcline, Field::Ip) {
                bail!("srcline is the line of an address; -F needs ip, too");
            }
            if options.like_perf {
                if lacks(Field::Symoff, Field::Sym) {
                    bail!("symoff is the offset in a symbol; -F needs sym, too");
                }
                let is_refused = |field: &&Field| {
                    let may_be_decoded = options.has_trace && field.comes_of_traces();
                    has(**field)
                        && field.is_required()
                        && !may_be_decoded
                        && !field.is_of((first, first), options)
                };
                let refused = Field::value_variants().iter().find(is_refused);
                if let Some((field, (bits, _))) = refused.and_then(|field| Some((field, field.needs()?))) {
                    let number = events.iter().position(|event| std::ptr::eq(event, first)).unwrap_or(0);
                    let event = facts.events.get(number).map(|event| readable(&event.name));
                    let bit = SAMPLE_TYPE_NAMES.iter().find(|(bit, _)| bits >> bit & 1 != 0);
                    // perf2bolt expects this message if there are no data addresses.
                    bail!(
                        "Samples for '{}' event do not have {} attribute set. Cannot print '{}' field.",
                        event.unwrap_or_default(),
                        bit.map_or("", |(_, name)| name),
                        field.name()
                    );
                }
            }
        }
        if !options.like_perf && !real.is_empty() {
            let is_in_none = |field: &&Field| {
                let is_made = options.decoded && **field == Field::Synth;
                let mut of = real.iter().filter(|event| field.is_of((event, event), options));
                self.names(**field) && !is_made && of.next().is_none()
            };
            let lacking = Field::value_variants().iter().find(is_in_none);
            if let Some((field, (_, what))) = lacking.and_then(|field| Some((field, field.needs()?))) {
                let name = field.name();
                bail!("no event of this recording records {what}, so {name} can't be shown");
            }
        }
        Ok(())
    }
}

/// The start of shown times.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Times {
    /// The clock of the recording.
    #[default]
    Recorded,
    /// The first sample.
    First,
    /// The sample before.
    Previous,
}

/// The output of `view`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ViewOptions {
    /// The fields.
    pub fields: FieldChoice,
    /// Show times with nine digits after the point instead of six.
    pub nanoseconds: bool,
    /// The minimum width of a DSO's name before the calls of a trace.
    pub dso_width: usize,
    /// Show inlined calls.
    pub inlined: bool,
    /// The maximum number of samples.
    pub head: Option<u64>,
    /// Print nothing, but count the samples.
    pub count_only: bool,
    /// Print each sample as a line of JSON.
    pub json: bool,
    /// Addresses in place of call chains.
    pub hides_chains: bool,
    /// The maximum number of frames of a chain, from the innermost.
    pub max_stack: Option<usize>,
    /// The start of shown times.
    pub times: Times,
    /// Names of functions as in the symbol table.
    pub mangled: bool,
    /// Source files with their folders.
    pub whole_paths: bool,
    /// Narrow columns for names and CPUs.
    pub narrow: bool,
    /// Other records that are shown.
    pub others: Vec<ShownRecords>,
    /// Refuse a field only if the first event of a group lacks it.
    pub like_perf: bool,
    /// The recording has AUX data.
    pub has_trace: bool,
    /// The recording is pipe data.
    pub is_pipe: bool,
    /// The recording was decoded for this: samples have flags
    /// ([`FlowFlags`](perfx_format::sample::FlowFlags)) if [`FieldChoice::shows_flow`].
    pub decoded: bool,
}

impl ViewOptions {
    pub(super) fn shown_kinds(&self) -> Kinds {
        self.others.iter().fold(Kinds::NONE, |kinds, other| kinds.union(other.kinds()))
    }

    pub(super) fn check(&self, events: &[Event], facts: &Facts, clock: Clock) -> Result<()> {
        if self.fields.names(Field::Tod) && clock.wall_offset().is_none() {
            bail!(
                "the recording does not relate its times to the wall clock (perf record -k), so tod can't be shown"
            );
        }
        self.fields.check(events, facts, self)
    }

    /// True if DWARF is searched for functions and source lines. Inlined calls are shown only in chains.
    pub(super) fn reads_dwarf(&self, has_chains: bool) -> bool {
        self.inlined && has_chains || self.fields.names(Field::Srcline)
    }
}

/// For most events, in cycles.
pub(super) fn weight(parts: &Sample<'_>) -> Option<u64> {
    Some(match parts.weight? {
        Weight::Full(weight) => weight,
        Weight::Parts { var1_dw, .. } => var1_dw.into(),
    })
}

/// Of the instruction and of its retirement, cycles.
pub(super) fn latencies(parts: &Sample<'_>) -> Option<[u16; 2]> {
    match parts.weight? {
        Weight::Full(_) => None,
        Weight::Parts { var2_w, var3_w, .. } => Some([var2_w, var3_w]),
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::Endian;

    use super::*;

    fn event(type_: u32, config: u64, sample_type: u64) -> Event {
        let mut raw = vec![0; 64];
        raw[..4].copy_from_slice(&type_.to_le_bytes());
        raw[8..16].copy_from_slice(&config.to_le_bytes());
        raw[24..32].copy_from_slice(&sample_type.to_le_bytes());
        Event::new(raw, Vec::new(), Endian::Little)
    }

    fn shown(choice: &FieldChoice, event: &Event, options: &ViewOptions) -> String {
        let fields = choice.of(event, &Groups::new(std::slice::from_ref(event)), options);
        let shown = Field::value_variants().iter().filter(|field| fields & bits(&[**field]) != 0);
        shown.map(|field| field.name()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_kind_of_event_shows_its_own_fields() {
        let chain = sample_type::CALLCHAIN;
        let none = FieldChoice::default();
        for (type_, sample_type, expected) in [
            (0, u64::MAX, "comm tid cpu time period event ip sym symoff dso"),
            (1, !sample_type::TID, "comm cpu time period event ip sym symoff dso"),
            (2, u64::MAX, "comm tid cpu time event trace ip sym symoff dso"),
            (2, !chain, "comm tid cpu time event trace"),
            (3, sample_type::IP, "comm period event ip sym symoff dso"),
            (
                4,
                u64::MAX,
                "comm tid cpu time period event addr data_src weight ins_lat retire_lat ip sym symoff dso \
                 phys_addr data_page_size code_page_size",
            ),
            (4, sample_type::WEIGHT, "comm period event weight"),
            (5, 0, "comm period event"),
            (9, sample_type::ADDR, "comm period event sym symoff dso"),
            (synth::TYPE, u64::MAX, "comm tid cpu time event synth ip sym symoff dso"),
        ] {
            assert_eq!(
                shown(&none, &event(type_, 0, sample_type), &ViewOptions::default()),
                expected,
                "{type_}"
            );
        }
        let no_chains = ViewOptions { hides_chains: true, ..ViewOptions::default() };
        assert_eq!(shown(&none, &event(2, 0, u64::MAX), &no_chains), "comm tid cpu time event trace");
    }

    #[test]
    fn fields_are_chosen_added_and_removed_for_all_events_or_a_group() {
        let (hardware, software) = (event(0, 0, u64::MAX), event(1, 0, u64::MAX));
        let options = ViewOptions::default();
        let mut choice = FieldChoice::default();
        choice.set(Group::named("sw"), &[Field::Ip, Field::Dsoff]);
        assert_eq!(shown(&choice, &software, &options), "ip dso dsoff");
        assert_eq!(shown(&choice, &hardware, &options), "comm tid cpu time period event ip sym symoff dso");
        choice.set(None, &[Field::Ip, Field::Sym]);
        choice.add(Group::named("hw"), Field::Addr);
        choice.remove(Group::named("hw"), Field::Sym);
        choice.remove(Group::named("sw"), Field::Ip);
        assert_eq!(
            (shown(&choice, &hardware, &options), shown(&choice, &software, &options)),
            ("addr ip".into(), "sym".into())
        );
        choice.remove(None, Field::Addr);
        choice.add(None, Field::Sym);
        assert_eq!(
            (shown(&choice, &hardware, &options), shown(&choice, &software, &options)),
            ("ip sym".into(), "sym".into())
        );
        assert!(choice.names(Field::Sym) && !choice.names(Field::Addr) && !choice.shows_addresses());
    }

    #[test]
    fn what_a_trace_has_is_shown_of_its_events() {
        let decoded = ViewOptions { decoded: true, ..ViewOptions::default() };
        let branches = event(HARDWARE, BRANCHES, sample_type::RAW);
        let all = |group: &str| {
            let mut choice = FieldChoice::default();
            choice.set(Group::named(group), Field::value_variants());
            choice
        };
        let of_code =
            "comm misc period event flags callindent trace addr insn insnlen disasm ipc machine_pid vcpu";
        assert_eq!(shown(&all("hw"), &branches, &decoded), of_code);
        let instructions = event(HARDWARE, 1, sample_type::RAW);
        assert_eq!(shown(&all("hw"), &instructions, &decoded), of_code.replace("callindent ", ""));
        let recorded = "comm misc period event trace machine_pid vcpu";
        assert_eq!(shown(&all("hw"), &branches, &ViewOptions::default()), recorded);
        assert_eq!(
            shown(&all("sw"), &event(1, 0, sample_type::RAW), &decoded),
            recorded.replace("event", "event flags")
        );
        // As in perf, samples without a field that the user names show 0.
        let mut like_perf = ViewOptions { like_perf: true, has_trace: true, ..ViewOptions::default() };
        like_perf.fields.set(None, &[Field::Cpu, Field::PhysAddr, Field::Tid]);
        assert_eq!(shown(&like_perf.fields, &event(1, 0, 0), &like_perf), "cpu phys_addr");
        like_perf.has_trace = false;
        assert_eq!(shown(&like_perf.fields, &event(1, 0, 0), &like_perf), "");
    }

    #[test]
    fn what_fields_need_of_a_trace_is_asked_of_all_groups() {
        let of = |fields: &[Field]| {
            let mut choice = FieldChoice::default();
            fields.iter().for_each(|field| choice.add(Group::named("synth"), *field));
            [
                choice.shows_flow(),
                choice.shows_instructions(),
                choice.shows_depths(),
                choice.shows_addresses(),
            ]
        };
        assert_eq!(of(&[]), [false; 4]);
        assert_eq!(of(&[Field::Flags]), [true, false, false, false]);
        assert_eq!(of(&[Field::Ipc]), [true, false, false, false]);
        assert_eq!(of(&[Field::Insn]), [true, true, false, false]);
        assert_eq!(of(&[Field::Insnlen]), [true, true, false, false]);
        assert_eq!(of(&[Field::Callindent]), [true, false, true, false]);
        assert_eq!(of(&[Field::Addr]), [false, false, false, true]);
    }

    #[test]
    fn targets_of_branches_are_shown_unless_other_fields_are_chosen() {
        let mut choice = FieldChoice::default();
        assert!(choice.shows_targets());
        choice.add(None, Field::Flags);
        assert!(choice.shows_targets());
        choice.add(None, Field::Ipc);
        assert!(!choice.shows_targets());
        choice.add(None, Field::Addr);
        assert!(choice.shows_targets());
        choice = FieldChoice::default();
        choice.remove(None, Field::Tid);
        assert!(!choice.shows_targets());
        choice.set(None, &[]);
        assert!(!choice.shows_targets());
    }
}
