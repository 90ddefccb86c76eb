//! Collects the branch stacks (`perf record -b`) of one program, and prints them for compilers: [`BranchProfile::bolt`]
//! for `perf2bolt -pa`, [`BranchProfile::profgen`] for `llvm-profgen --perfscript`.
//!
//! A branch stack holds the last branches, newest first. Between the target of a branch and the source of the
//! next newer one, code ran straight on. Addresses are those of the program's file, so processes and recordings add up. As
//! perf2bolt does, the profile for it leaves out branches from and to the kernel (interrupts); for llvm-profgen, the
//! kernel is a place outside of the program.
//!
//! Formats: llvm-project, bolt/include/bolt/Profile/DataAggregator.h (pre-aggregated profile) and
//! llvm/tools/llvm-profgen/PerfReader.h.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_format::read::{Batch, Recording};
use perfx_format::sample::Sample;
use perfx_format::{Kinds, Layout, Layouts, Record, RecordType, sample_type};
use perfx_model::address_space::{Lookup, Machine, Space, moment};
use perfx_passes::{FilterOptions, SampleChooser, SelectedSamples, dso_name};
use perfx_pipeline::{Error, Level, Report, Result, bail, counted};
use symbols::{ElfFile, Symbols};

use crate::batches::each_batch;
use crate::counters::event_of;
use crate::facts::Facts;

/// The program whose branches are collected.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    elf: ElfFile,
    functions: Symbols,
}

impl Program {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no ELF file.
    pub fn open(path: &Path) -> Result<Program> {
        let elf = ElfFile::read(path).map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
        let functions = Symbols::new(elf.symbols.clone());
        Ok(Program { path: path.to_owned(), elf, functions })
    }

    /// True if both addresses are in the same function.
    fn same_function(&self, one: u64, other: u64) -> bool {
        let start = |address| self.functions.find(address).map(|symbol| symbol.start);
        start(one).is_some_and(|one| Some(one) == start(other))
    }

    /// Whether each DSO of a recording is this program, and the ids of those of its name that are not.
    fn among(&self, facts: &Facts) -> (Vec<bool>, Vec<String>) {
        let own_name = self.path.file_name().unwrap_or_default();
        let mut others = Vec::new();
        let is_own = facts.spaces.dsos().iter().map(|(dso, _)| {
            let name = Path::new(OsStr::from_bytes(dso_name(dso))).file_name().unwrap_or_default();
            if dso.kernel || dso.machine != Machine::Host {
                return false;
            }
            match (facts.ids.get(dso), self.elf.build_id) {
                (Some(recorded), Some(own)) if recorded == own => true,
                (Some(recorded), Some(_)) => {
                    others.extend((name == own_name).then(|| recorded.to_string()));
                    false
                }
                _ => name == own_name,
            }
        });
        (is_own.collect(), others)
    }
}

/// An address in the program; `None`: elsewhere.
type Place = Option<u64>;

/// A branch, and where the code behind its target ran to: the source of the next branch, if that is in the program,
/// too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Trace {
    from: Place,
    to: Place,
    end: Place,
}

/// How often a branch was taken, and how often it was mispredicted.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    count: u64,
    mispredicted: u64,
}

/// The branches of a stack, newest first.
type Stack = Box<[(Place, Place)]>;

/// The branches of a program, over all samples of all recordings.
#[derive(Clone, Default, Debug)]
pub struct BranchProfile {
    traces: HashMap<Trace, Taken, RandomState>,
    stacks: HashMap<Stack, u64, RandomState>,
    keeps_stacks: bool,
    counts: BranchCounts,
}

/// What was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BranchCounts {
    /// Samples with branches.
    pub samples: u64,
    /// Their branches.
    pub branches: u64,
    /// Those with neither end in the program.
    pub outside: u64,
    /// Those of the kernel.
    pub kernel: u64,
}

impl BranchCounts {
    fn add(&mut self, other: BranchCounts) {
        self.samples += other.samples;
        self.branches += other.branches;
        self.outside += other.outside;
        self.kernel += other.kernel;
    }
}

/// The lowest address of a kernel, on all machines with branch stacks.
const KERNEL_ADDRESS: u64 = 1 << 63;

impl BranchProfile {
    /// An empty profile. Whole stacks are needed only for [`BranchProfile::profgen`].
    pub fn new(keeps_stacks: bool) -> BranchProfile {
        BranchProfile { keeps_stacks, ..BranchProfile::default() }
    }

    /// Adds the samples of a recording that `filter` selects; if that is empty, all.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed, its samples have no branches or lack what they are selected by.
    pub fn add(
        &mut self,
        recording: &mut Recording,
        program: &Program,
        filter: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<()> {
        let facts = Facts::survey(recording, threads, true)?;
        let has_branches = |layout: &Layout| layout.sample_type & sample_type::BRANCH_STACK != 0;
        let events = [&recording.events[..], &facts.late].concat();
        if !events.is_empty() && !Layouts::new(&events).all().iter().any(has_branches) {
            bail!("{}: no event of this recording records branches (perf record -b)", recording.name);
        }
        let selected = match filter.is_empty() {
            true => None,
            false => Some(SelectedSamples::survey(recording, &facts.late, filter, threads, report)?),
        };
        let (is_own, others) = program.among(&facts);
        if !is_own.contains(&true) {
            let ids = if others.is_empty() {
                String::new()
            } else {
                format!(" with build-id {}", others.join(", "))
            };
            let path = program.path.display();
            let what = format!("{}: its processes did not map {path}", recording.name);
            let what = if ids.is_empty() { what } else { format!("{what}, but a file of that name{ids}") };
            report.say(Level::Loss, what);
        }
        let keeps_stacks = self.keeps_stacks;
        let work = |batch: &Batch| {
            let part = BranchProfile::new(keeps_stacks);
            let lookup = Lookup::new(facts.spaces.clone());
            let chooser = selected.as_ref().map(SelectedSamples::chooser);
            Worker { facts: &facts, program, is_own: &is_own, lookup, chooser, part }.read(batch)
        };
        let mut all = BranchProfile::new(keeps_stacks);
        report.bytes += each_batch(recording, threads, report, work, |_, part| {
            all.join(part);
            Ok(())
        })?;
        if let Some(selected) = selected.filter(|_| all.counts.samples == 0) {
            selected.hints(&recording.name).for_each(|hint| report.say(Level::Warning, hint));
        }
        self.join(all);
        Ok(())
    }

    fn join(&mut self, other: BranchProfile) {
        for (trace, taken) in other.traces {
            let sum = self.traces.entry(trace).or_default();
            sum.count += taken.count;
            sum.mispredicted += taken.mispredicted;
        }
        for (stack, count) in other.stacks {
            *self.stacks.entry(stack).or_default() += count;
        }
        self.counts.add(other.counts);
    }

    /// What was read.
    pub fn counts(&self) -> BranchCounts {
        self.counts
    }

    /// The number of distinct branches with what ran behind them.
    pub fn len(&self) -> usize {
        self.traces.len()
    }

    /// True if no branch was in the program.
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty()
    }

    /// Adds the traces of a stack of branches, newest first, without those of the kernel.
    fn add_traces(&mut self, branches: &[(Place, Place, bool)]) {
        let mut next: Option<Place> = None;
        for &(from, to, mispredicted) in branches {
            let end = next.flatten().filter(|_| to.is_some());
            next = Some(from);
            if from.is_none() && to.is_none() {
                self.counts.outside += 1;
                continue;
            }
            let taken = self.traces.entry(Trace { from, to, end }).or_default();
            taken.count += 1;
            taken.mispredicted += u64::from(mispredicted);
        }
    }

    /// Writes the pre-aggregated profile of `perf2bolt -pa`: `B FROM TO COUNT MISPREDICTED` for branches, then
    /// `F START END COUNT` for code that ran straight on; `f`, if the branch to it came from another function. `X:0`
    /// is outside of the program.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn bolt(&self, program: &Program, out: &mut dyn Write) -> io::Result<()> {
        let mut branches: BTreeMap<(Place, Place), Taken> = BTreeMap::new();
        let mut runs: BTreeMap<(u64, u64, bool), u64> = BTreeMap::new();
        for (&Trace { from, to, end }, taken) in &self.traces {
            let sum = branches.entry((from, to)).or_default();
            sum.count += taken.count;
            sum.mispredicted += taken.mispredicted;
            if let (Some(start), Some(end)) = (to, end) {
                let is_inside = from.is_some_and(|from| program.same_function(from, start));
                *runs.entry((start, end, is_inside)).or_default() += taken.count;
            }
        }
        let shown = |place: Place| place.map_or_else(|| "X:0".to_owned(), |address| format!("{address:x}"));
        for ((from, to), Taken { count, mispredicted }) in branches {
            writeln!(out, "B {} {} {count} {mispredicted}", shown(from), shown(to))?;
        }
        for ((start, end, is_inside), count) in runs {
            writeln!(out, "{} {start:x} {end:x} {count}", if is_inside { 'F' } else { 'f' })?;
        }
        out.flush()
    }

    /// Writes what `perf script -F ip,brstack --show-mmap-events` shows of the program, each distinct stack once with
    /// its count. The program is mapped at the addresses of its file.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn profgen(&self, program: &Program, out: &mut dyn Write) -> io::Result<()> {
        let name = program.path.file_name().unwrap_or_default().display();
        for &(offset, size, address) in &program.elf.code {
            writeln!(
                out,
                "PERF_RECORD_MMAP2 1/1: [{address:#x}({size:#x}) @ {} 00:00 0 0]: r-xp {name}",
                if offset == 0 { "0".to_owned() } else { format!("{offset:#x}") }
            )?;
        }
        let mut stacks: Vec<_> = self.stacks.iter().collect();
        stacks.sort_unstable();
        for (stack, count) in stacks {
            writeln!(out, "{count}")?;
            write!(out, " {:x}", stack.first().and_then(|(from, _)| *from).unwrap_or(0))?;
            for (from, to) in stack {
                write!(out, " {:#x}/{:#x}/P/-/-/0", from.unwrap_or(0), to.unwrap_or(0))?;
            }
            writeln!(out)?;
        }
        out.flush()
    }
}

/// Reads one batch.
struct Worker<'f> {
    facts: &'f Facts,
    program: &'f Program,
    /// For each DSO, whether it is the program.
    is_own: &'f [bool],
    lookup: Lookup,
    chooser: Option<SampleChooser>,
    part: BranchProfile,
}

impl Worker<'_> {
    fn read(mut self, batch: &Batch) -> Result<BranchProfile> {
        let mut walker = batch.walk();
        while let Some(sample) = walker.next_wanted(Kinds::of(&[RecordType::SAMPLE]), usize::MAX)? {
            let Some((_, layout)) = event_of(&sample, &batch.layouts, self.facts) else { continue };
            let takes = |chooser: &mut SampleChooser| chooser.takes(&sample, &batch.layouts);
            if layout.sample_type & sample_type::BRANCH_STACK != 0 && self.chooser.as_mut().is_none_or(takes)
            {
                self.sample(&sample, layout, &batch.layouts);
            }
        }
        Ok(self.part)
    }

    fn sample(&mut self, sample: &Record<'_>, layout: &Layout, layouts: &Layouts) {
        let parsed = Sample::parse(sample, layout).ok();
        let Some(branches) = parsed.and_then(|sample| sample.branches) else { return };
        let Some(pid) = layout.pid_tid(sample).map(|(pid, _)| pid).filter(|_| !sample.is_of_guest()) else {
            return;
        };
        let (space, time) = (Space { machine: Machine::Host, pid }, moment(sample, Some(layout), layouts));
        let Worker { facts, program, is_own, lookup, part, .. } = self;
        part.counts.samples += 1;
        let mut place = |address| -> Place {
            let hit = lookup.find(space, address, time).filter(|hit| is_own[hit.dso as usize])?;
            program.elf.address_of(facts.files.offset(hit, address))
        };
        let (mut stack, mut user) = (Vec::new(), Vec::with_capacity(branches.len()));
        for branch in branches.iter() {
            part.counts.branches += 1;
            let (from, to) = (place(branch.from), place(branch.to));
            if part.keeps_stacks {
                stack.push((from, to));
            }
            if branch.from >= KERNEL_ADDRESS || branch.to >= KERNEL_ADDRESS {
                part.counts.kernel += 1;
            } else {
                user.push((from, to, branch.flags.mispred()));
            }
        }
        part.add_traces(&user);
        if stack.iter().any(|(from, to)| from.is_some() || to.is_some()) {
            *part.stacks.entry(stack.into()).or_default() += 1;
        }
    }
}

/// Adds to the report what was read.
pub fn say_branches(counts: BranchCounts, report: &mut Report) {
    let BranchCounts { samples, branches, outside, kernel } = counts;
    let all = counted(branches, "branch", "branches");
    let mut line = format!("{} with {all}", counted(samples, "sample", "samples"));
    for (count, what) in [(outside, "outside of the program"), (kernel, "of the kernel")] {
        if count > 0 {
            line += &format!(", {} {what}", perfx_pipeline::count(count));
        }
    }
    report.say(if samples == 0 { Level::Warning } else { Level::Info }, line);
}
