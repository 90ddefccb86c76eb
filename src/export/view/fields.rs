//! Chooses the fields of samples to show.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use perfx_format::sample::{Sample, Weight, synth};
use perfx_format::{Event, sample_type};
use perfx_look::clock::Clock;
use perfx_pipeline::{Result, bail};

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
    PhysAddr,
    DataPageSize,
    CodePageSize,
    Ipc,
    MachinePid,
    Vcpu,
}

impl Field {
    /// The bits of `attr.sample_type`, any of which is enough, and the option of perf record that sets one;
    /// `None` if every sample has the field.
    fn needs(self) -> Option<(u64, &'static str)> {
        Some(match self {
            Field::Pid | Field::Tid => (sample_type::TID, "the process"),
            Field::Cpu => (sample_type::CPU, "the CPU (perf record --sample-cpu)"),
            Field::Time | Field::Tod => (sample_type::TIME, "the time (perf record --timestamp)"),
            Field::Flags => (sample_type::RAW, "what kind of branch it was (--itrace)"),
            Field::Callindent => (sample_type::RAW, "calls and returns (--itrace)"),
            Field::Synth => (sample_type::RAW, "data of a trace"),
            Field::Ipc => (sample_type::RAW, "how many cycles it took (--itrace)"),
            Field::Insn | Field::Insnlen => (sample_type::RAW, "its instruction (--itrace)"),
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

    /// Whether an event has the field. With `decoded`, hardware events have flags as raw data.
    fn is_of(self, event: &Event, decoded: bool) -> bool {
        let attr = event.attr();
        let is_of_kind = match self {
            Field::Callindent => decoded && attr.type_ == HARDWARE && attr.config == BRANCHES,
            // Other samples have none, but the same column.
            Field::Flags => return decoded,
            // The target of a branch; else 0, as in perf.
            Field::Addr if decoded && matches!(attr.type_, HARDWARE | synth::TYPE) => return true,
            Field::Ipc | Field::Insn | Field::Insnlen => decoded && attr.type_ == HARDWARE,
            Field::Synth => attr.type_ == synth::TYPE,
            _ => true,
        };
        is_of_kind && self.needs().is_none_or(|(bits, _)| attr.sample_type & bits != 0)
    }
}

/// `attr.type` of hardware events, branches and instructions, and `attr.config` of branches.
pub(super) const HARDWARE: u32 = 0;
const BRANCHES: u64 = 4;

/// The fields that perf prints by default.
const DEFAULT: [Field; 12] = [
    Field::Comm,
    Field::Tid,
    Field::Cpu,
    Field::Time,
    Field::Period,
    Field::Event,
    Field::Trace,
    Field::Synth,
    Field::Ip,
    Field::Sym,
    Field::Symoff,
    Field::Dso,
];

/// The fields to print.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FieldChoice {
    /// Only these, in perf's order; `None` for perf's default fields.
    pub only: Option<Vec<Field>>,
    /// Additional fields.
    pub with: Vec<Field>,
    /// Excluded fields.
    pub without: Vec<Field>,
}

impl FieldChoice {
    /// The fields of an event.
    ///
    /// By default, perf shows the CPU only for tracepoints, without period, and addresses only with a chain.
    pub(super) fn of(&self, event: &Event, decoded: bool) -> Vec<Field> {
        let attr = event.attr();
        let (trace, chain) = (attr.is_tracepoint(), attr.sample_type & sample_type::CALLCHAIN != 0);
        let by_default = |field: &&Field| match field {
            Field::Period => !trace && attr.type_ != synth::TYPE,
            Field::Trace => trace,
            Field::Ip | Field::Sym | Field::Symoff | Field::Dso => !trace || chain,
            _ => true,
        };
        let mut fields = match &self.only {
            Some(only) => only.clone(),
            None => DEFAULT.iter().filter(by_default).copied().collect(),
        };
        fields.extend(&self.with);
        fields.retain(|field| !self.without.contains(field) && field.is_of(event, decoded));
        fields
    }

    /// True if perf shows the targets of a trace's branches: unless the user chooses other fields.
    pub(super) fn shows_targets(&self) -> bool {
        let is_default = self.only.is_none() && self.without.is_empty();
        (is_default && self.with.iter().all(|field| *field == Field::Flags)) || self.names(Field::Addr)
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

    /// True if the bytes or the length of instructions are shown.
    pub fn shows_instructions(&self) -> bool {
        self.names(Field::Insn) || self.names(Field::Insnlen)
    }

    /// True if the call depth is shown.
    pub fn shows_depths(&self) -> bool {
        self.names(Field::Callindent)
    }

    /// True if the user named the field.
    pub(super) fn names(&self, field: Field) -> bool {
        self.only.iter().flatten().chain(&self.with).any(|named| *named == field)
    }

    /// Fails if a field that the user named is in no sample.
    fn check(&self, events: &[Event], decoded: bool) -> Result<()> {
        if self.only.is_some() && self.names(Field::Srcline) && !self.names(Field::Ip) {
            bail!("srcline is the line of an address; -F needs ip, too");
        }
        for field in self.only.iter().flatten().chain(&self.with) {
            if let Some((_, what)) = field.needs()
                && !(decoded && *field == Field::Synth)
                && !events.is_empty()
                && !events.iter().any(|event| field.is_of(event, decoded))
            {
                let value = field.to_possible_value();
                let name = value.as_ref().map_or("it", PossibleValue::get_name);
                bail!("no event of this recording records {what}, so {name} can't be shown");
            }
        }
        Ok(())
    }
}

/// The output of `view`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ViewOptions {
    /// The fields.
    pub fields: FieldChoice,
    /// Shows times with nine digits after the point instead of six.
    pub nanoseconds: bool,
    /// The minimum width of a DSO's name before the calls of a trace.
    pub dso_width: usize,
    /// Shows inlined calls.
    pub inlined: bool,
    /// The maximum number of samples.
    pub head: Option<u64>,
    /// Prints nothing, but counts the samples.
    pub count_only: bool,
    /// Prints each sample as a line of JSON.
    pub json: bool,
    /// The recording was decoded for this: samples have flags
    /// ([`FlowFlags`](perfx_format::sample::FlowFlags)) if [`FieldChoice::shows_flow`].
    pub decoded: bool,
}

impl ViewOptions {
    /// Fails if a field that the user named is in no sample.
    pub(super) fn check(&self, events: &[Event], clock: Clock) -> Result<()> {
        if self.fields.names(Field::Tod) && clock.wall_offset().is_none() {
            bail!(
                "the recording does not relate its times to the wall clock (perf record -k), so tod can't be shown"
            );
        }
        self.fields.check(events, self.decoded)
    }

    /// True if DWARF is searched for functions and source lines. Inlined calls are only shown in chains.
    pub(super) fn reads_dwarf(&self, has_chains: bool) -> bool {
        self.inlined && has_chains || self.fields.names(Field::Srcline)
    }
}

/// The cost of a sample, for most events in cycles.
pub(super) fn weight(parts: &Sample<'_>) -> Option<u64> {
    Some(match parts.weight? {
        Weight::Full(weight) => weight,
        Weight::Parts { var1_dw, .. } => var1_dw.into(),
    })
}

/// The latencies of the instruction and of its retirement, cycles.
pub(super) fn latencies(parts: &Sample<'_>) -> Option<[u16; 2]> {
    match parts.weight? {
        Weight::Full(_) => None,
        Weight::Parts { var2_w, var3_w, .. } => Some([var2_w, var3_w]),
    }
}
