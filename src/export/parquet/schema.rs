//! The tables with their columns. docs/guide/tables.md lists them; a test compares.

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A flag.
    Bool,
    /// A number of 32 bits.
    I32,
    /// A number of 64 bits.
    I64,
    /// An unsigned number of 64 bits.
    U64,
    /// Microseconds since 1970, UTC.
    WallTime,
    /// UTF-8.
    Text,
    /// A list of numbers of 64 bits.
    Ids,
    /// A list of unsigned numbers of 64 bits.
    U64s,
    /// A list of texts.
    Texts,
    /// A list of calls: function, file, line.
    Calls,
    /// Texts by name.
    TextMap,
}

impl Kind {
    /// The type as DuckDB shows it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "BOOLEAN",
            Kind::I32 => "INTEGER",
            Kind::I64 => "BIGINT",
            Kind::U64 => "UBIGINT",
            Kind::WallTime => "TIMESTAMP WITH TIME ZONE",
            Kind::Text => "VARCHAR",
            Kind::Ids => "BIGINT[]",
            Kind::U64s => "UBIGINT[]",
            Kind::Texts => "VARCHAR[]",
            Kind::Calls => "STRUCT(\"function\" VARCHAR, file VARCHAR, line INTEGER)[]",
            Kind::TextMap => "MAP(VARCHAR, VARCHAR)",
        }
    }
}

/// A column. Lists and maps are never null, but may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// True if it may be null.
    pub nullable: bool,
    /// True if it is stored as differences, for numbers that mostly increase.
    pub(crate) delta: bool,
    /// Its contents.
    pub about: &'static str,
}

/// A table. Its first column, which is not listed, is `recording`.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The name, and that of its folder.
    pub name: &'static str,
    /// The contents of its rows.
    pub about: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    /// The column by which it is sorted.
    pub(crate) sorted_by: Option<usize>,
}

pub(crate) const fn column(name: &'static str, kind: Kind, about: &'static str) -> Column {
    Column { name, kind, nullable: false, delta: false, about }
}

pub(crate) const fn maybe(name: &'static str, kind: Kind, about: &'static str) -> Column {
    Column { nullable: true, ..column(name, kind, about) }
}

impl Column {
    const fn rising(self) -> Column {
        Column { delta: true, ..self }
    }
}

/// The table `recordings`.
pub const RECORDINGS: Table = Table {
    name: "recordings",
    about: "The recordings",
    sorted_by: None,
    columns: &[
        column("path", Kind::Text, "Its name, as it was given"),
        column("bytes", Kind::I64, "Its size"),
        column("form", Kind::Text, "`file`, `pipe` or `directory`"),
        column("compressed", Kind::Bool, "It has COMPRESSED records"),
        maybe("hostname", Kind::Text, "The recorded machine"),
        maybe("os_release", Kind::Text, "Its kernel"),
        maybe("arch", Kind::Text, "Its architecture"),
        maybe("cpudesc", Kind::Text, "Its CPU"),
        maybe("cpuid", Kind::Text, "Vendor, family, model and stepping of the CPU"),
        maybe("nr_cpus", Kind::I32, "CPUs online"),
        maybe("total_mem_kb", Kind::I64, "Memory, KiB"),
        maybe("perf_version", Kind::Text, "The perf that recorded"),
        column("cmdline", Kind::Texts, "Its command line"),
        maybe("kernel_build_id", Kind::Text, "The build-id of the recorded kernel"),
        maybe("clockid", Kind::I32, "The clock of the times, as for clock_gettime(2); null for perf's own"),
        maybe("wall_offset_ns", Kind::I64, "Added to `time_ns`, it gives ns since 1970"),
        maybe("first_ns", Kind::I64, "The time of the first sample"),
        maybe("last_ns", Kind::I64, "The time of the last sample"),
        column("samples", Kind::I64, "Rows in `samples`"),
        column("lost", Kind::I64, "Records and samples that were lost while recording"),
    ],
};

/// The table `events`.
pub const EVENTS: Table = Table {
    name: "events",
    about: "The events",
    sorted_by: None,
    columns: &[
        column("event", Kind::I32, "Its number, from 0"),
        column("name", Kind::Text, "Its name"),
        column("type", Kind::I64, "`attr.type`"),
        column("config", Kind::U64, "`attr.config`"),
        column("sample_type", Kind::I64, "`attr.sample_type`, bits"),
        maybe("sample_period", Kind::I64, "The fixed period, if it has one"),
        maybe("freq", Kind::I64, "Samples a second that were asked for"),
        column("precise", Kind::I32, "`precise_ip`, 0 to 3"),
        column("exclude_user", Kind::Bool, "User code is not counted"),
        column("exclude_kernel", Kind::Bool, "The kernel is not counted"),
        column("exclude_hv", Kind::Bool, "The hypervisor is not counted"),
        column("exclude_host", Kind::Bool, "The host is not counted"),
        column("exclude_guest", Kind::Bool, "Guests are not counted"),
        column("ids", Kind::U64s, "The ids of its counters"),
        maybe("group_leader", Kind::I32, "The event that leads its group"),
        column("samples", Kind::I64, "Its rows in `samples`"),
        column("period_sum", Kind::I64, "The sum of their periods"),
    ],
};

/// The table `samples`.
pub const SAMPLES: Table = Table {
    name: "samples",
    about: "The samples, sorted by time",
    sorted_by: Some(1),
    columns: &[
        column(
            "sample",
            Kind::I64,
            "Its number among the samples of the recording, from 0, in the order of the file",
        )
        .rising(),
        maybe("time_ns", Kind::I64, "Its time").rising(),
        maybe("wall_time", Kind::WallTime, "Its time in UTC, if the recording relates its clock to it"),
        column("event", Kind::I32, "Its event"),
        maybe("cpu", Kind::I32, "The CPU"),
        maybe("pid", Kind::I32, "The process"),
        maybe("tid", Kind::I32, "The thread"),
        maybe("comm", Kind::Text, "The name of the thread at that time"),
        column(
            "mode",
            Kind::Text,
            "The mode of the CPU: `user`, `kernel`, `hypervisor`, `guest_user`, `guest_kernel` or `unknown`",
        ),
        column("frame", Kind::I64, "The sampled code: a row of `frames`"),
        maybe("stack", Kind::I64, "The call chain: a row of `stacks`"),
        column(
            "period",
            Kind::I64,
            "The period, in the unit of the event; its event's if the sample has none",
        ),
        maybe("weight", Kind::I64, "The cost, for most events in cycles"),
        maybe("weight2", Kind::I32, "More costs, for example the latency of the instruction"),
        maybe("weight3", Kind::I32, "More costs, for example the latency of its retirement"),
        maybe("addr", Kind::I64, "The address of data or of a branch target; the bits of 64 without a sign"),
        maybe("data_frame", Kind::I64, "The same address, if it is in a file or kernel: a row of `frames`"),
        maybe("phys_addr", Kind::I64, "The physical address"),
        maybe("data_src", Kind::I64, "`union perf_mem_data_src`"),
        maybe("transaction", Kind::I64, "PERF_TXN_ bits"),
        maybe("cgroup", Kind::Text, "The path of the cgroup"),
        maybe("machine_pid", Kind::I32, "For a guest, the process that runs it"),
        maybe("vcpu", Kind::I32, "For a guest, its CPU"),
        maybe("code_page_size", Kind::I64, "The size of the page with the code, bytes"),
        maybe("data_page_size", Kind::I64, "The size of the page with the data, bytes"),
        column(
            "fields",
            Kind::TextMap,
            "The own fields of a tracepoint: numbers in decimal, pointers in hexadecimal",
        ),
    ],
};

/// The table `stacks`.
pub const STACKS: Table = Table {
    name: "stacks",
    about: "The distinct call chains",
    sorted_by: None,
    columns: &[
        column("stack", Kind::I64, "Its number, from 0").rising(),
        column("depth", Kind::I32, "The number of frames"),
        column("kernel_depth", Kind::I32, "The number of those in a kernel"),
        column(
            "truncated",
            Kind::Bool,
            "Outer frames may be missing: the chain is as long as its event allows, or lacks its user part",
        ),
        column("frames", Kind::Ids, "Rows of `frames`, innermost first"),
    ],
};

/// The table `frames`.
pub const FRAMES: Table = Table {
    name: "frames",
    about: "The distinct places in files and kernels, by DSO and offset",
    sorted_by: None,
    columns: &[
        column("frame", Kind::I64, "Its number, from 0"),
        column("mode", Kind::Text, "The mode of the CPU, as in `samples`"),
        maybe("dso", Kind::I32, "A row of `dsos`; null if nothing was mapped there"),
        maybe(
            "offset",
            Kind::U64,
            "The offset in the file; in a kernel and in memory without a file, the address",
        ),
        column("ip", Kind::U64, "The lowest address at which it was found"),
        maybe("symbol", Kind::Text, "The function, as perf names it"),
        maybe("symbol_offset", Kind::I64, "The distance from its beginning, bytes"),
        maybe("file", Kind::Text, "The source file, of the function or where it calls the first inlined one"),
        maybe("line", Kind::I32, "The line in it"),
        column(
            "inline",
            Kind::Calls,
            "Calls that the compiler inlined into it, innermost first: function, file, line",
        ),
    ],
};

/// The table `dsos`.
pub const DSOS: Table = Table {
    name: "dsos",
    about: "The files, kernels and memory that processes mapped",
    sorted_by: None,
    columns: &[
        column("dso", Kind::I32, "Its number, from 0"),
        column("path", Kind::Text, "Its name in the recording"),
        maybe("build_id", Kind::Text, "Its build-id in the recording, hex"),
        column("kind", Kind::Text, "`file`, `jit`, `vdso`, `memory`, `kernel`, `module`, `bpf` or `ksymbol`"),
        maybe("machine_pid", Kind::I32, "For a guest's, the process that runs the guest"),
        column("has_symbols", Kind::Bool, "A frame in it has a symbol"),
    ],
};

/// The table `mappings`.
pub const MAPPINGS: Table = Table {
    name: "mappings",
    about: "The MMAP records; a forked process also has the mappings of its parent",
    sorted_by: None,
    columns: &[
        column("pid", Kind::I32, "The process; -1 is the kernel"),
        maybe("machine_pid", Kind::I32, "For a guest's, the process that runs the guest"),
        column("start", Kind::U64, "The first address"),
        column("size", Kind::U64, "Bytes"),
        column("offset", Kind::U64, "The offset in the file"),
        column("dso", Kind::I32, "A row of `dsos`"),
        maybe("prot", Kind::Text, "Protection and sharing, as in /proc/PID/maps"),
        maybe("from_ns", Kind::I64, "The time of the record"),
        maybe(
            "to_ns",
            Kind::I64,
            "When others had covered all of it, or the process executed a program or ended",
        ),
    ],
};

/// The table `threads`.
pub const THREADS: Table = Table {
    name: "threads",
    about: "The threads; a thread that got the number of an ended one counts as the same",
    sorted_by: None,
    columns: &[
        column("pid", Kind::I32, "Its process"),
        column("tid", Kind::I32, "Its number"),
        maybe("machine_pid", Kind::I32, "For a guest's, the process that runs the guest"),
        maybe("ppid", Kind::I32, "The process that forked its process, in the row of the main thread"),
        maybe("comm", Kind::Text, "Its last name"),
        maybe("from_ns", Kind::I64, "When it began"),
        maybe("to_ns", Kind::I64, "When it ended"),
        column("exec", Kind::Bool, "It executed a program"),
        column("samples", Kind::I64, "Its rows in `samples`"),
        column("period_sum", Kind::I64, "The sum of their periods, of all events"),
    ],
};

/// The table `comms`.
pub const COMMS: Table = Table {
    name: "comms",
    about: "The names that threads took",
    sorted_by: None,
    columns: &[
        column("pid", Kind::I32, "The process"),
        column("tid", Kind::I32, "The thread"),
        maybe("machine_pid", Kind::I32, "For a guest's, the process that runs the guest"),
        maybe("time_ns", Kind::I64, "When"),
        column("comm", Kind::Text, "The name"),
        column("exec", Kind::Bool, "By executing a program"),
    ],
};

/// The table `branches`.
pub const BRANCHES: Table = Table {
    name: "branches",
    about: "The branch stacks of samples (perf record -b), an entry a row; only with --branches",
    sorted_by: None,
    columns: &[
        column("sample", Kind::I64, "The sample: a row of `samples`").rising(),
        column("nr", Kind::I32, "Its place in the stack; 0 is the newest"),
        column("from_frame", Kind::I64, "The branch: a row of `frames`"),
        column("to_frame", Kind::I64, "Its target: a row of `frames`"),
        column("mispredicted", Kind::Bool, "The CPU predicted another target"),
        column("predicted", Kind::Bool, "The CPU predicted this target"),
        column("in_tx", Kind::Bool, "It was in a transaction"),
        column("abort", Kind::Bool, "It aborted a transaction"),
        column("cycles", Kind::I32, "Cycles since the branch before; 0 if the CPU does not say"),
        maybe("type", Kind::Text, "The kind of branch, as in PERF_BR_"),
    ],
};

/// The table `spe`.
pub const SPE: Table = Table {
    name: "spe",
    about: "The records of Arm SPE in the AUX data, by time; only with --spe",
    sorted_by: None,
    columns: &[
        maybe("time_ns", Kind::I64, "Its time").rising(),
        maybe("cpu", Kind::I32, "The CPU"),
        maybe("pid", Kind::I32, "The process"),
        maybe("tid", Kind::I32, "The thread"),
        maybe("op", Kind::Text, "The operation: `LD`, `ST`, `B` (a branch) or `OTHER`"),
        maybe("sub", Kind::Text, "The kind of operation, as in `perf report -D`: `GP-REG`, `COND IND`"),
        maybe("frame", Kind::I64, "The instruction: a row of `frames`"),
        maybe("el", Kind::I32, "The exception level, 0 to 3"),
        maybe("target_frame", Kind::I64, "The target of a branch: a row of `frames`"),
        maybe("prev_target_frame", Kind::I64, "The target of the branch before it: a row of `frames`"),
        maybe("addr", Kind::I64, "The address of data; the bits of 64 without a sign"),
        maybe("phys_addr", Kind::I64, "Its physical address"),
        column(
            "events",
            Kind::I64,
            "All events of the operation, as bits: those below, and others that the CPU defines",
        ),
        column("retired", Kind::Bool, "It was executed for good"),
        column("l1d_access", Kind::Bool, "It accessed the first-level data cache"),
        column("l1d_miss", Kind::Bool, "It missed this cache"),
        column("llc_access", Kind::Bool, "It accessed the last-level cache"),
        column("llc_miss", Kind::Bool, "It missed this cache"),
        column("tlb_access", Kind::Bool, "It accessed the TLB"),
        column("tlb_miss", Kind::Bool, "It caused a walk of page tables"),
        column("not_taken", Kind::Bool, "A branch that was not taken"),
        column("mispredicted", Kind::Bool, "A branch that was predicted wrongly"),
        column("remote", Kind::Bool, "It accessed memory of another socket"),
        maybe("source", Kind::I32, "The source of the data; the CPU defines the values"),
        maybe("data_src", Kind::I64, "The same as `union perf_mem_data_src`, as perf derives it"),
        maybe("latency", Kind::I32, "Cycles from dispatch to completion"),
        maybe("issue_latency", Kind::I32, "Cycles from dispatch to issue"),
        maybe("xlat_latency", Kind::I32, "Cycles of the translation of the address"),
        maybe("context", Kind::I64, "The CPU's CONTEXTIDR: on Linux, the thread"),
    ],
};

/// All tables. A recording is complete when its row is in `recordings`, which appears last.
pub const TABLES: [&Table; 11] =
    [&EVENTS, &SAMPLES, &STACKS, &FRAMES, &DSOS, &MAPPINGS, &THREADS, &COMMS, &BRANCHES, &SPE, &RECORDINGS];
