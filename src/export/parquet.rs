//! Writes a recording as tables in Parquet files, for DuckDB, Spark, pandas and others.
//!
//! Spark cannot read all types: times are plain numbers, and the table of samples has no unsigned 64-bit
//! numbers. The bytes of a table depend only on the recording and the options.

mod gather;
mod history;
mod row;
mod schema;
mod spe;
mod table;

use std::io::Write;
use std::mem;
use std::sync::Arc;

use perfx_filter::FilterOptions;
use perfx_format::features::{
    NrCpus, decode_feature, grouped_events, read_cmdline, read_group_desc, read_str,
};
use perfx_format::read::{Form, Recording, TempFiles};
use perfx_format::record::cpumode;
use perfx_format::sample::BranchFlags;
use perfx_format::{ByTracepoint, Bytes, Feature, OrderKey, hex};
use perfx_look::clock::Clock;
use perfx_look::trace::{TracePrinter, printers};
use perfx_model::address_space::{Dso, Machine};
use perfx_pipeline::{Context as _, Error, Report, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::chains::{Resolver, StackTree};
use gather::{BranchRow, Gathered, Texts, gather};
use history::{History, signed};
use perfx_resolve::{Facts, Frame, FrameName, Function, IdOptions, Named, Search, dso_name, name_frames};
use row::{Part, SampleRow};
pub use schema::{
    BRANCHES, COMMS, Column, DSOS, EVENTS, FRAMES, Kind, MAPPINGS, RECORDINGS, SAMPLES, SPE, STACKS, TABLES,
    THREADS, Table,
};
pub(crate) use schema::{column, maybe};
use spe::Traced;
pub(crate) use table::{About, TableWriter};

/// Increased whenever a query for the old schema would misread the new one.
pub const SCHEMA: u32 = 2;

/// The identity of a recording, before any conversion.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The first 16 hex digits of the SHA-256 of its bytes; for a directory, of its files' bytes in order.
    pub id: String,
    /// The path as given by the user.
    pub path: String,
    /// Its size, bytes.
    pub bytes: u64,
    form: Form,
    is_compressed: bool,
}

impl Identity {
    /// Reads all bytes of a recording, which must be rereadable.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn of(recording: &Recording) -> Result<Identity> {
        let mut hash = Sha256::new();
        let mut bytes = 0;
        for file in recording.files() {
            let file = Bytes::map(file).map_err(|error| error.file(&recording.name))?;
            hash.update(&*file);
            bytes += file.len() as u64;
        }
        let id = shown_hash(hash);
        let (path, form) = (recording.name.to_string(), recording.form);
        Ok(Identity { id, path, bytes, form, is_compressed: recording.is_compressed() })
    }
}

/// The first 16 hex digits of the SHA-256 of some bytes.
pub fn short_hash(bytes: &[u8]) -> String {
    shown_hash(Sha256::new_with_prefix(bytes))
}

fn shown_hash(hash: Sha256) -> String {
    hex(&hash.finalize()[..8])
}

/// How the tables are written.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The samples that are written.
    pub filter: Arc<FilterOptions>,
    /// Where symbols are searched for.
    pub ids: IdOptions,
    /// Search for inlined calls and source lines.
    pub inlined: bool,
    /// The number of threads.
    pub threads: usize,
}

/// The results of writing.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The tables with their numbers of rows.
    pub rows: Vec<(&'static str, u64)>,
    /// The recorded machine.
    pub hostname: Option<Vec<u8>>,
    /// The time of the first sample, ns since 1970, if the recording relates its clock to the wall clock.
    pub first_wall_ns: Option<u64>,
    /// The number of DSOs with symbols; `None` if frames were not written.
    pub named: Option<Named>,
}

/// Writes tables. `create` opens a table, or returns `None` to skip it; samples are sorted in `temp_files`.
///
/// # Errors
///
/// The recording cannot be read or decompressed, or a table not written, as always on big-endian machines.
pub fn write_tables(
    recording: &mut Recording,
    identity: &Identity,
    options: &TableOptions,
    temp_files: &TempFiles,
    mut create: impl FnMut(&'static Table) -> Result<Option<Box<dyn Write + Send>>>,
    report: &mut Report,
) -> Result<Written> {
    // The crate parquet writes numbers in the machine's byte order, so no program could read the files.
    ensure!(
        cfg!(target_endian = "little"),
        "Parquet files can't be written on a big-endian machine: use perfx export csv, or a little-endian machine"
    );
    let TableOptions { filter, ids, inlined, threads } = options;
    let mut history = History::default();
    let facts = Facts::survey_with(recording, *threads, true, |record, layouts, machine, dso| {
        history.add(record, layouts, machine, dso);
    })?;
    history.end_mappings();
    let clock = Clock::of(recording);
    let hostname = text(recording, Feature::HOSTNAME).map(<[u8]>::to_vec);
    let about = About {
        id: Some(identity.id.clone()),
        facts: vec![
            ("perfx.schema", SCHEMA.to_string()),
            ("perfx.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("recording", identity.id.clone()),
            ("hostname", String::from_utf8_lossy(hostname.as_deref().unwrap_or_default()).into_owned()),
        ],
    };
    let mut written = Written { hostname, ..Written::default() };
    let mut open = |table: &'static Table| -> Result<Option<TableWriter>> {
        let out = create(table)?;
        out.map(|out| TableWriter::new(table, &about, out, *threads)).transpose()
    };
    let open_spe = open(&SPE)?;
    let mut branches = open(&BRANCHES)?;
    let has_branches = branches.is_some();
    let mut branch = |row: BranchRow| match &mut branches {
        Some(branches) => write_branch(branches, &row),
        None => Ok(()),
    };
    let wanted: Option<&mut dyn FnMut(BranchRow) -> Result<()>> =
        if has_branches { Some(&mut branch) } else { None };
    let spill = || temp_files().map_err(Error::from);
    let spe = open_spe.map(|out| Traced::survey(recording, spill()?, *threads).map(|traced| (out, traced)));
    let spe = spe.transpose()?;
    let (events, features) =
        ([&recording.events[..], recording.late_events()].concat(), recording.features.clone());
    let traces = printers(&events, &features, recording.endian);
    let mut gathered = gather(recording, (&facts, &traces), filter, spill()?, wanted, *threads, report)?;
    written.first_wall_ns = gathered.times.and_then(|(first, _)| clock.wall_ns(first.ns()));
    let mut done = |table: &Table, rows: u64| written.rows.push((table.name, rows));
    if let Some(branches) = branches {
        done(&BRANCHES, branches.close()?);
    }
    if let Some((mut out, traced)) = spe {
        let mut resolver = Resolver::new(&facts, true);
        (resolver.tree, resolver.lowest) = (mem::take(&mut gathered.tree), mem::take(&mut gathered.lowest));
        traced.write(recording, &mut resolver, &mut out, report)?;
        (gathered.tree, gathered.lowest) = (resolver.tree, resolver.lowest);
        done(&SPE, out.close()?);
    }
    let all = Tables { recording, identity, facts: &facts, history: &history, gathered: &gathered, clock };
    let mut symbols = vec![false; facts.spaces.dsos().len()];
    if let Some(table) = open(&FRAMES)? {
        let (rows, named) = all.frames(table, ids, *inlined, &mut symbols)?;
        done(&FRAMES, rows);
        written.named = Some(named);
    }
    type Fill<'t> = &'t dyn Fn(&mut TableWriter) -> Result<()>;
    let dsos = |out: &mut TableWriter| all.dsos(out, &symbols);
    let fills: [(&'static Table, Fill<'_>); 7] = [
        (&EVENTS, &|out| all.events(out)),
        (&STACKS, &|out| all.stacks(out)),
        (&DSOS, &dsos),
        (&MAPPINGS, &|out| all.mappings(out)),
        (&THREADS, &|out| all.threads(out)),
        (&COMMS, &|out| all.comms(out)),
        (&RECORDINGS, &|out| all.recordings(out)),
    ];
    for (table, fill) in fills {
        if let Some(mut out) = open(table)? {
            fill(&mut out)?;
            done(table, out.close()?);
        }
    }
    if let Some(mut out) = open(&SAMPLES)? {
        write_samples(&mut out, clock, &traces, gathered)?;
        done(&SAMPLES, out.close()?);
    }
    written.rows.sort_by_key(|(name, _)| TABLES.iter().position(|table| table.name == *name));
    Ok(written)
}

fn text(recording: &Recording, feature: Feature) -> Option<&[u8]> {
    read_str(recording.features.get(&feature)?, recording.endian)
}

struct Tables<'a> {
    recording: &'a Recording,
    identity: &'a Identity,
    facts: &'a Facts,
    history: &'a History,
    gathered: &'a Gathered,
    clock: Clock,
}

impl Tables<'_> {
    fn recordings(&self, out: &mut TableWriter) -> Result<()> {
        let Tables { recording, identity, facts, gathered, clock, .. } = self;
        let text = |feature| text(recording, feature);
        let section = |feature| recording.features.get(&feature);
        let cpus = section(Feature::NRCPUS).and_then(|section| NrCpus::read(section, recording.endian));
        let memory = section(Feature::TOTAL_MEM).and_then(|section| {
            let memory = decode_feature(Feature::TOTAL_MEM, section, recording.endian, Default::default());
            memory.get("kb").and_then(|kb| kb.number())
        });
        let line = section(Feature::CMDLINE).and_then(|section| read_cmdline(section, recording.endian));
        let is_kernel = |dso: &Dso| dso.machine == Machine::Host && kind(dso) == "kernel";
        let kernel = facts.spaces.dsos().iter().map(|(dso, _)| dso).find(|dso| is_kernel(dso));
        let kernel = kernel.and_then(|kernel| facts.ids.get(kernel)).map(|id| id.to_string());
        let form = match identity.form {
            Form::File => "file",
            Form::Pipe => "pipe",
            Form::Directory { .. } => "directory",
        };
        out.text(identity.path.as_bytes())
            .number(signed(identity.bytes))
            .text(form.as_bytes())
            .number(i64::from(identity.is_compressed))
            .text(text(Feature::HOSTNAME))
            .text(text(Feature::OSRELEASE))
            .text(text(Feature::ARCH))
            .text(text(Feature::CPUDESC))
            .text(text(Feature::CPUID))
            .number(cpus.map(|cpus| cpus.online.into()))
            .number(memory.map(signed))
            .text(text(Feature::VERSION))
            .texts(line.into_iter().flatten())
            .text(kernel.as_ref().map(|id| id.as_bytes()))
            .number(clock.id.map(i64::from))
            .number(clock.wall_offset().and_then(|offset| i64::try_from(offset).ok()))
            .number(gathered.times.map(|(first, _)| signed(first.ns())))
            .number(gathered.times.map(|(_, last)| signed(last.ns())))
            .number(signed(gathered.rows))
            .number(i64::try_from(gathered.lost.total()).unwrap_or(i64::MAX));
        out.end_row()
    }

    fn events(&self, out: &mut TableWriter) -> Result<()> {
        let Tables { recording, facts, gathered, .. } = self;
        let groups = recording.features.get(&Feature::GROUP_DESC);
        let groups =
            groups.and_then(|section| read_group_desc(section, recording.endian)).unwrap_or_default();
        let grouped = grouped_events(&groups, facts.events.len()).into_iter();
        let mut group_of = grouped.flat_map(|(events, group)| events.map(move |_| group));
        for (number, (event, known)) in recording.all_events().iter().zip(&facts.events).enumerate() {
            let attr = event.attr();
            let leader = group_of.next().flatten().map(|number| groups[number].leader);
            let (period, freq) = match attr.freq() {
                true => (None, Some(signed(attr.sample_period))),
                false => (Some(signed(attr.sample_period)), None),
            };
            let weight = gathered.events[number];
            out.number(number as i64)
                .text(&known.name[..])
                .number(i64::from(attr.type_))
                .number(attr.config as i64)
                .number(attr.sample_type as i64)
                .number(period)
                .number(freq)
                .number(i64::from(attr.precise_ip()));
            for bit in [4, 5, 6, 19, 20] {
                out.number(i64::from(attr.flag(bit)));
            }
            out.numbers(event.ids.iter().map(|&id| id as i64))
                .number(leader.map(i64::from))
                .number(signed(weight.samples))
                .number(signed(weight.period));
            out.end_row()?;
        }
        Ok(())
    }

    fn stacks(&self, out: &mut TableWriter) -> Result<()> {
        let Gathered { tree, chains, .. } = self.gathered;
        let nodes: Vec<(u32, u32)> = tree.nodes().collect();
        let frames: Vec<Frame> = tree.frames().collect();
        let mut chain = Vec::new();
        for (number, &(node, truncated)) in chains.list.iter().enumerate() {
            chain.clear();
            let mut next = node;
            while next != StackTree::ROOT {
                let (parent, frame) = nodes[next as usize];
                chain.push(frame);
                next = parent;
            }
            let in_kernel =
                chain.iter().filter(|&&frame| cpumode::is_kernel(frames[frame as usize].mode)).count();
            out.number(number as i64)
                .number(chain.len() as i64)
                .number(in_kernel as i64)
                .number(i64::from(truncated))
                .numbers(chain.iter().map(|&frame| frame.into()));
            out.end_row()?;
        }
        Ok(())
    }

    /// Writes the frames by DSO and offset, and marks the DSOs that have symbols.
    fn frames(
        &self,
        mut out: TableWriter,
        ids: &IdOptions,
        inlined: bool,
        symbols: &mut [bool],
    ) -> Result<(u64, Named)> {
        let Tables { recording, facts, gathered, .. } = self;
        let mut result = Ok(());
        let visit = |number: u32, frame: Frame, name: FrameName<'_>| {
            // Code after the kernel's mapping belongs to the kernel only if it has a symbol.
            let dso = frame.dso.filter(|_| name.dso.is_some());
            if let Some(has) =
                dso.filter(|_| !name.functions.is_empty()).and_then(|dso| symbols.get_mut(dso as usize))
            {
                *has = true;
            }
            if result.is_ok() {
                out.number(i64::from(number))
                    .text(mode(frame.mode).as_bytes())
                    .number(dso.map(i64::from))
                    .number(dso.map(|_| frame.at as i64))
                    .number(gathered.lowest[number as usize] as i64);
                result = write_functions(&mut out, &name.functions, name.offset).end_row();
            }
        };
        let (features, endian) = (&recording.features, recording.endian);
        let search = Search { facts, features, endian, ids, inlined };
        let named = name_frames(gathered.tree.frames(), search, visit)?;
        result?;
        Ok((out.close()?, named))
    }

    fn dsos(&self, out: &mut TableWriter, symbols: &[bool]) -> Result<()> {
        let facts = self.facts;
        for (number, (dso, _)) in facts.spaces.dsos().iter().enumerate() {
            let id = facts.ids.get(dso).map(|id| id.to_string());
            out.number(number as i64)
                .text(dso_name(dso))
                .text(id.as_ref().map(|id| id.as_bytes()))
                .text(if facts.is_memory(number as u32) { "memory" } else { kind(dso) }.as_bytes())
                .number(machine_pid(dso.machine))
                .number(i64::from(symbols[number]));
            out.end_row()?;
        }
        Ok(())
    }

    fn mappings(&self, out: &mut TableWriter) -> Result<()> {
        for map in &self.history.mappings {
            out.number(i64::from(map.space.pid as i32))
                .number(machine_pid(map.space.machine))
                .number(map.start as i64)
                .number(map.size as i64)
                .number(map.offset as i64)
                .number(i64::from(map.dso))
                .text(map.access.as_ref().map(|access| access.as_bytes()))
                .number(map.from)
                .number(map.to);
            out.end_row()?;
        }
        Ok(())
    }

    fn threads(&self, out: &mut TableWriter) -> Result<()> {
        let Tables { facts, history, gathered, .. } = self;
        let mut threads = history.threads.clone();
        for &thread in gathered.threads.keys() {
            threads.entry(thread).or_default();
        }
        for (thread, life) in threads {
            let (machine, pid, tid) = thread;
            let name = facts.tasks.name(machine, tid, OrderKey::END);
            let weight = gathered.threads.get(&thread).copied().unwrap_or_default();
            out.number(i64::from(pid as i32))
                .number(i64::from(tid as i32))
                .number(machine_pid(machine))
                .number(life.parent.map(|parent| i64::from(parent as i32)))
                .text(&name[..])
                .number(life.from)
                .number(life.to)
                .number(i64::from(life.exec))
                .number(signed(weight.samples))
                .number(signed(weight.period));
            out.end_row()?;
        }
        Ok(())
    }

    fn comms(&self, out: &mut TableWriter) -> Result<()> {
        for named in &self.history.comms {
            let (machine, pid, tid) = named.thread;
            out.number(i64::from(pid as i32))
                .number(i64::from(tid as i32))
                .number(machine_pid(machine))
                .number(named.time)
                .text(&named.name[..])
                .number(i64::from(named.exec));
            out.end_row()?;
        }
        Ok(())
    }
}

/// Writes the columns from `symbol` to `inline`, for functions from the outermost to the innermost.
pub(crate) fn write_functions<'w>(
    out: &'w mut TableWriter,
    functions: &[Function<'_>],
    offset: u64,
) -> &'w mut TableWriter {
    let outer = functions.first();
    out.text(outer.map(|outer| outer.name.as_bytes()))
        .number(outer.map(|_| signed(offset)))
        .text(outer.and_then(|outer| outer.file.as_ref()).map(|file| file.as_bytes()))
        .number(outer.and_then(|outer| outer.line).map(i64::from))
        .calls(functions.iter().skip(1).rev().map(|call| (&*call.name, call.file.as_deref(), call.line)))
}

fn write_branch(out: &mut TableWriter, row: &BranchRow) -> Result<()> {
    let has = |bit: u64| i64::from(row.flags.0 & bit != 0);
    let kind = row.flags.kind_name();
    out.number(signed(row.sample))
        .number(i64::from(row.nr))
        .number(i64::from(row.from))
        .number(i64::from(row.to))
        .number(has(BranchFlags::MISPRED))
        .number(has(BranchFlags::PREDICTED))
        .number(has(BranchFlags::IN_TX))
        .number(has(BranchFlags::ABORT))
        .number(i64::from(row.flags.cycles()))
        .text(kind.map(str::as_bytes));
    out.end_row()
}

fn write_samples(
    out: &mut TableWriter,
    clock: Clock,
    traces: &ByTracepoint<TracePrinter<'_>>,
    gathered: Gathered,
) -> Result<()> {
    let Gathered { samples, chains, comms, cgroups, tree, lowest, .. } = gathered;
    drop((tree, lowest));
    let offset = clock.wall_offset();
    samples.each(|number, time, row| {
        let (row, raw) = SampleRow::unpack(row).context("a temporary file has changed")?;
        let trace = traces.get(row.event as usize);
        let wall = time
            .zip(offset)
            .and_then(|(time, offset)| i64::try_from((i128::from(time) + offset).div_euclid(1000)).ok());
        let stack = row.get(Part::Stack).map(|stack| match row.deferred {
            true => chains.deferred[stack as usize].into(),
            false => stack as i64,
        });
        out.number(signed(number))
            .number(time.map(signed))
            .number(wall)
            .number(i64::from(row.event))
            .number(row.get_i32(Part::Cpu))
            .number(row.get_i32(Part::Pid))
            .number(row.get_i32(Part::Tid))
            .numbered_text(text_of(&row, Part::Comm, &comms))
            .numbered_text((u32::from(row.mode), mode(row.mode.into()).as_bytes()))
            .number(i64::from(row.frame))
            .number(stack)
            .number(signed(row.period))
            .number(row.amount(Part::Weight))
            .number(row.amount(Part::Weight2))
            .number(row.amount(Part::Weight3))
            .number(row.bits(Part::Addr))
            .number(row.amount(Part::DataFrame))
            .number(row.bits(Part::PhysAddr))
            .number(row.bits(Part::DataSrc))
            .number(row.bits(Part::Transaction))
            .numbered_text(text_of(&row, Part::Cgroup, &cgroups))
            .number(row.get_i32(Part::MachinePid))
            .number(row.get_i32(Part::Vcpu))
            .number(row.amount(Part::CodePageSize))
            .number(row.amount(Part::DataPageSize))
            .text_map(trace.into_iter().flat_map(|trace| trace.values(raw)));
        out.end_row()
    })
}

fn text_of<'t>(row: &SampleRow, part: Part, texts: &'t Texts) -> Option<(u32, &'t [u8])> {
    let number = row.get(part)? as u32;
    texts.get_index(number as usize).map(|text| (number, &text[..]))
}

fn mode(mode: u16) -> &'static str {
    match mode {
        cpumode::USER => "user",
        cpumode::KERNEL => "kernel",
        cpumode::HYPERVISOR => "hypervisor",
        cpumode::GUEST_USER => "guest_user",
        cpumode::GUEST_KERNEL => "guest_kernel",
        _ => "unknown",
    }
}

fn machine_pid(machine: Machine) -> Option<i64> {
    machine.guest().map(|pid| i64::from(pid as i32))
}

fn kind(dso: &Dso) -> &'static str {
    let name = dso_name(dso);
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    match dso.kernel {
        true if name.starts_with(b"[kernel") || name.starts_with(b"[guest.kernel") => "kernel",
        true if name.starts_with(b"bpf_") => "bpf",
        true if name.starts_with(b"/") || name.starts_with(b"[") => "module",
        true => "ksymbol",
        false if name.starts_with(b"[v") => "vdso",
        false if base.starts_with(b"jitted-") => "jit",
        false => "file",
    }
}
