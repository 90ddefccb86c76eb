//! Collects the branch stacks (`perf record -b`) of a program, and prints them for compilers.
//!
//! [`BranchProfile::sums`] is for `perf2bolt -pa` and `create_llvm_prof --profiler=text`,
//! [`BranchProfile::profgen`] for `llvm-profgen --perfscript`. A branch stack holds the last branches, newest
//! first. Between the target of a branch and the source of the next newer one, code ran straight on.
//! Addresses are those of the program's file, so processes and recordings add up. As in perf2bolt, the sums
//! leave out branches from and to the kernel (interrupts); for llvm-profgen, the kernel is outside.
//!
//! Formats: llvm-project, bolt/include/bolt/Profile/DataAggregator.h (pre-aggregated profile) and
//! llvm/tools/llvm-profgen/PerfReader.h; google/autofdo, sample_reader.cc (TextSampleReaderWriter), and AOSP,
//! simpleperf/cmd_inject.cpp.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_auxtrace::Atoms;
use perfx_filter::{FilterOptions, SelectedSamples};
use perfx_format::read::Recording;
use perfx_format::record::cpumode::{KERNEL_START, USER};
use perfx_format::sample::frames;
use perfx_format::{BranchStacks, Bytes, Event, Feature, Layout};
use perfx_model::address_space::{Dso, Lookup, Machine, Space};
use perfx_pipeline::{Error, Level, Report, Result, counted};
use perfx_resolve::{Facts, IdOptions, RecordedIds, dso_name};
use perfx_samples::{Before, Counters, Losses, SampleView, Visit, visit};
use perfx_trace::Run;
use symbols::{ElfFile, Symbols, relocated_branches};

use crate::lists::{ListedRun, Wanted, each_list};
use crate::ranges::{Code, Ranges};
use crate::traced::{Ran, Traced, is_kernel};

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
        Ok(Program::new(path.to_owned(), elf))
    }

    pub(crate) fn new(path: PathBuf, elf: ElfFile) -> Program {
        let functions = Symbols::new(elf.symbols.clone());
        Program { path, elf, functions }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn code(&self) -> io::Result<Code> {
        let bytes = Bytes::map(&build_id::open(&self.path)?.0).map_err(io::Error::other)?;
        let module = self.elf.is_relocatable.then(|| relocated_branches(&self.path));
        let module = module.transpose().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Code::new(bytes, self.elf.code.clone(), module))
    }

    fn same_function(&self, one: u64, other: u64) -> bool {
        let start = |address| self.functions.find(address).map(|symbol| symbol.start);
        start(one).is_some_and(|one| Some(one) == start(other))
    }

    /// For each DSO of a recording, true if it is this program; and the ids of others of the same name.
    ///
    /// With `with_kernel`, the kernel and its modules count, too. A kernel without a build-id matches any
    /// file whose name begins with `vmlinux`.
    fn among<'d>(
        &self,
        dsos: impl Iterator<Item = &'d Dso>,
        ids: &RecordedIds,
        with_kernel: bool,
    ) -> (Vec<bool>, Vec<String>) {
        let own_name = self.path.file_name().unwrap_or_default();
        let mut others = Vec::new();
        let is_own = dsos.map(|dso| {
            let name = Path::new(OsStr::from_bytes(dso_name(dso))).file_name().unwrap_or_default();
            if dso.machine != Machine::Host {
                // Files of guests are recognised by build-id only, and only traces have their branches.
                return with_kernel
                    && !dso.kernel
                    && ids.get(dso).is_some_and(|id| self.elf.build_id == Some(id));
            }
            if dso.kernel && !with_kernel {
                return false;
            }
            match (ids.get(dso), self.elf.build_id) {
                (Some(recorded), Some(own)) if recorded == own => true,
                (Some(recorded), Some(_)) => {
                    others.extend((name == own_name).then(|| recorded.to_string()));
                    false
                }
                _ if is_kernel(dso) => own_name.as_bytes().starts_with(b"vmlinux"),
                _ => name == own_name,
            }
        });
        (is_own.collect(), others)
    }
}

/// The formats with each branch once and its count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SumFormat {
    /// The text form of create_llvm_prof, which simpleperf also writes.
    Autofdo,
    /// The pre-aggregated profile of perf2bolt.
    Bolt,
}

impl SumFormat {
    pub(crate) fn extension(self) -> &'static str {
        match self {
            SumFormat::Autofdo => "autofdo",
            SumFormat::Bolt => "preagg",
        }
    }
}

/// The longest range without a branch that create_llvm_prof and simpleperf accept, bytes.
const LONGEST_RANGE: u64 = 1 << 20;

/// An address in the program, or an offset until its file is read; `None` is elsewhere.
type Place = Option<u64>;

/// A branch, and the straight-line code from its target to the next branch, if that is in the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Trace {
    from: Place,
    to: Place,
    end: Place,
}

#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    count: u64,
    mispredicted: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Stack {
    /// Innermost first; empty if the event records none.
    chain: Box<[Place]>,
    /// Newest first.
    branches: Box<[(Place, Place)]>,
}

/// The branches of a program, over all samples of all recordings.
#[derive(Clone, Default, Debug)]
pub struct BranchProfile {
    traces: HashMap<Trace, Taken, RandomState>,
    /// Straight-line code without a preceding branch in the hardware trace.
    runs: HashMap<(u64, u64), u64, RandomState>,
    stacks: HashMap<Stack, u64, RandomState>,
    /// Set if CoreSight traced the program: the text for create_llvm_prof then equals simpleperf's.
    atoms: Option<Atoms>,
    /// The name of the program in the first recording with a hardware trace of it.
    pub(crate) recorded: Option<Box<[u8]>>,
    keeps_stacks: bool,
    counts: BranchCounts,
}

/// The counts of what was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BranchCounts {
    /// Samples with branches.
    pub samples: u64,
    /// Recordings with a hardware trace that was decoded.
    pub traced: u64,
    /// Their branches.
    pub branches: u64,
    /// Branches with neither end in the program.
    pub outside: u64,
    /// Branches of the kernel.
    pub kernel: u64,
}

impl BranchCounts {
    pub(crate) fn add(&mut self, other: BranchCounts) {
        self.samples += other.samples;
        self.traced += other.traced;
        self.branches += other.branches;
        self.outside += other.outside;
        self.kernel += other.kernel;
    }
}

impl BranchProfile {
    /// An empty profile. Whole stacks are needed only for [`BranchProfile::profgen`].
    pub fn new(keeps_stacks: bool) -> BranchProfile {
        BranchProfile { keeps_stacks, ..BranchProfile::default() }
    }

    /// Adds the samples of a recording that `filter` selects; if that is empty, all. If no event records
    /// branches, adds those of a hardware trace (Intel PT, CoreSight), whose code is searched for in the
    /// places of `ids`. Returns false if the recording has neither.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed, samples lack a field to select by, or decoding fails.
    pub fn add(
        &mut self,
        recording: &mut Recording,
        program: &Program,
        filter: &Arc<FilterOptions>,
        ids: &IdOptions,
        threads: usize,
        report: &mut Report,
    ) -> Result<bool> {
        if let Some(section) =
            recording.features.get(&Feature::ETM_BRANCH_LIST).filter(|_| !self.keeps_stacks)
        {
            return self.add_lists(section, &recording.name, program, report).map(|()| true);
        }
        let (facts, has_branches) = survey(recording, threads)?;
        let traced = if has_branches { None } else { Traced::read(recording, filter, threads, report)? };
        if !has_branches && traced.is_none() {
            return Ok(false);
        }
        let (is_own, others) = match &traced {
            Some(traced) => program.among(traced.dsos().map(|(dso, ..)| dso), &facts.ids, true),
            None => program.among(facts.spaces.dsos().iter().map(|(dso, _)| dso), &facts.ids, false),
        };
        if let Some(traced) = &traced
            && let Some(((dso, ..), _)) = traced.dsos().zip(&is_own).find(|(_, is_own)| **is_own)
        {
            self.named(dso_name(dso));
        }
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
        let owners: Vec<Option<u32>> = is_own.iter().map(|is_own| is_own.then_some(0)).collect();
        let files = Files {
            facts: &facts,
            owners: &owners,
            elf: Some(&program.elf),
            keeps_stacks: self.keeps_stacks,
        };
        let read = match traced {
            Some(traced) => {
                let own = Some((program.path(), &is_own[..]));
                files.count(&traced.decode(recording, (&facts.ids, ids), own, threads, report)?)
            }
            None => files.read(recording, filter, threads, report)?,
        };
        self.counts.add(read.counts);
        read.profiles.into_values().for_each(|profile| self.join(profile));
        Ok(true)
    }

    /// Adds the branches of the program in the branch lists of a simpleperf file with these bytes.
    ///
    /// # Errors
    ///
    /// The lists are damaged, or the program cannot be read.
    pub fn add_lists(
        &mut self,
        bytes: &[u8],
        name: &str,
        program: &Program,
        report: &mut Report,
    ) -> Result<()> {
        self.counts.traced += 1;
        let code = program.code();
        let code = code.map_err(|error| Error::new(format!("{}: {error}", program.path.display())))?;
        let stext = program.functions.address_of(b"_stext");
        let wanted = Wanted { path: &program.path, id: program.elf.build_id, stext, code };
        each_list(bytes, name, &wanted, report, |path, runs, count| {
            self.named(path);
            self.take_list(runs, count);
        })
    }

    fn take_list(&mut self, runs: Vec<ListedRun>, count: u64) {
        self.atoms = self.atoms.or(Some(Atoms { waits: false }));
        for (from, to, end) in runs {
            self.counts.branches =
                self.counts.branches.saturating_add(if from.is_some() { count } else { 0 });
            self.add_traced(from.map(Some), Some(to), end, count);
        }
    }

    fn named(&mut self, name: &[u8]) {
        self.recorded.get_or_insert_with(|| name.into());
    }

    pub(crate) fn join(&mut self, other: BranchProfile) {
        other.traces.into_iter().for_each(|(trace, taken)| self.take(trace, taken));
        other.runs.into_iter().for_each(|((start, end), count)| self.run(start, end, count));
        self.atoms = self.atoms.or(other.atoms);
        for (stack, count) in other.stacks {
            *self.stacks.entry(stack).or_default() += count;
        }
    }

    /// The counts of what was read.
    pub fn counts(&self) -> BranchCounts {
        self.counts
    }

    /// The number of distinct branches with the code after them.
    pub fn len(&self) -> usize {
        self.traces.len()
    }

    /// True if no branch was in the program.
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty()
    }

    pub(crate) fn branches(&self) -> u64 {
        self.traces.values().map(|taken| taken.count).sum()
    }

    pub(crate) fn at_addresses(&self, program: &Program) -> BranchProfile {
        let address = |place: Place| program.elf.address_of(place?);
        let mut moved = BranchProfile { atoms: self.atoms, ..BranchProfile::default() };
        for (trace, taken) in &self.traces {
            let (from, to) = (address(trace.from), address(trace.to));
            let end = address(trace.end).filter(|_| to.is_some());
            if from.or(to).is_some() {
                moved.take(Trace { from, to, end }, *taken);
            }
        }
        for (&(start, end), &count) in &self.runs {
            if let (Some(start), Some(end)) = (address(Some(start)), address(Some(end))) {
                moved.run(start, end, count);
            }
        }
        moved
    }

    fn run(&mut self, start: u64, end: u64, count: u64) {
        let sum = self.runs.entry((start, end)).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds a branch of a hardware trace and the code after its target, or only that code, if any place is in
    /// the program.
    ///
    /// In a stack, a branch out of the program represents the end of the code: llvm-profgen does not count
    /// it. The real branch there begins another stack.
    pub(crate) fn add_traced(&mut self, from: Option<Place>, to: Place, end: Place, count: u64) {
        let end = end.filter(|_| to.is_some());
        let is_inside = from.flatten().or(to).is_some();
        if self.keeps_stacks && is_inside {
            let branches = end.map(|end| (Some(end), None)).into_iter().chain([(from.flatten(), to)]);
            let stack = Stack { chain: Box::default(), branches: branches.collect() };
            *self.stacks.entry(stack).or_default() += count;
        }
        match (from, to, end) {
            (Some(from), ..) if is_inside => {
                self.take(Trace { from, to, end }, Taken { count, mispredicted: 0 });
            }
            (None, Some(start), Some(end)) => self.run(start, end, count),
            _ => {}
        }
    }

    fn take(&mut self, trace: Trace, taken: Taken) {
        let sum = self.traces.entry(trace).or_default();
        sum.count = sum.count.saturating_add(taken.count);
        sum.mispredicted = sum.mispredicted.saturating_add(taken.mispredicted);
    }

    fn add_traces(&mut self, branches: impl Iterator<Item = (Place, Place, bool)>) {
        let mut next: Option<Place> = None;
        for (from, to, mispredicted) in branches {
            let end = next.flatten().filter(|_| to.is_some());
            next = Some(from);
            if from.or(to).is_some() {
                let taken = Taken { count: 1, mispredicted: u64::from(mispredicted) };
                self.take(Trace { from, to, end }, taken);
            }
        }
    }

    /// Writes the branches in this format. Returns how often straight-line code was left out because the
    /// source of the next branch cannot be right.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn sums(&self, format: SumFormat, program: &Program, out: &mut dyn Write) -> io::Result<u64> {
        match format {
            SumFormat::Autofdo => match self.atoms {
                Some(atoms) => {
                    let ranges = Ranges::new(self.traced_runs(), &program.code()?, atoms);
                    ranges.write(&self.recorded_name(program), program.elf.build_id, out).map(|()| 0)
                }
                None => self.autofdo(program, out),
            },
            SumFormat::Bolt => self.bolt(program, out).map(|()| 0),
        }
    }

    /// All runs of code: the branch to each, the straight-line code after it, and the count.
    fn traced_runs(&self) -> impl Iterator<Item = (Place, Option<(u64, Place)>, u64)> {
        let traces = self.traces.iter();
        let traces =
            traces.map(|(trace, taken)| (trace.from, trace.to.map(|to| (to, trace.end)), taken.count));
        let runs = self.runs.iter().map(|(&(start, end), &count)| (None, Some((start, Some(end))), count));
        traces.chain(runs)
    }

    fn recorded_name(&self, program: &Program) -> Vec<u8> {
        let own = || program.path.as_os_str().as_bytes();
        self.recorded.as_deref().unwrap_or_else(own).to_vec()
    }

    /// Writes the text that `create_llvm_prof --profiler=text` reads: the number of straight-line ranges,
    /// `START-END:COUNT` for each, the number of single addresses (0), the number of branches, and
    /// `FROM->TO:COUNT` for each. END is the address of the branch that ends the range. Addresses are
    /// relative to the first segment; in most files, except those that lld links, these are file offsets.
    /// Branches from and to other files cannot be written and are left out.
    fn autofdo(&self, program: &Program, out: &mut dyn Write) -> io::Result<u64> {
        let first = program.elf.first_address();
        let offset = |place: Place| place?.checked_sub(first);
        let mut ranges: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut branches: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut left_out = 0;
        for (trace, Taken { count, .. }) in &self.traces {
            let [from, to, end] = [trace.from, trace.to, trace.end].map(offset);
            if let (Some(start), Some(end)) = (to, end) {
                if end.checked_sub(start).is_some_and(|size| size <= LONGEST_RANGE) {
                    *ranges.entry((start, end)).or_default() += count;
                } else {
                    left_out += count;
                }
            }
            if let (Some(from), Some(to)) = (from, to) {
                *branches.entry((from, to)).or_default() += count;
            }
        }
        for (&(start, end), count) in &self.runs {
            if let (Some(start), Some(end)) = (offset(Some(start)), offset(Some(end)))
                && end.checked_sub(start).is_some_and(|size| size <= LONGEST_RANGE)
            {
                *ranges.entry((start, end)).or_default() += count;
            } else {
                left_out += count;
            }
        }
        writeln!(out, "{}", ranges.len())?;
        for ((start, end), count) in ranges {
            writeln!(out, "{start:x}-{end:x}:{count}")?;
        }
        writeln!(out, "0\n{}", branches.len())?;
        for ((from, to), count) in branches {
            writeln!(out, "{from:x}->{to:x}:{count}")?;
        }
        out.flush()?;
        Ok(left_out)
    }

    /// Writes the pre-aggregated profile of `perf2bolt -pa`: `B FROM TO COUNT MISPREDICTED` for branches,
    /// then `F START END COUNT` for straight-line code, or `f` if the branch to it came from another
    /// function. `X:0` is outside the program.
    fn bolt(&self, program: &Program, out: &mut dyn Write) -> io::Result<()> {
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
        for (&(start, end), count) in &self.runs {
            *runs.entry((start, end, false)).or_default() += count;
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

    /// Writes the output of `perf script -F ip,brstack --show-mmap-events` for the program: each distinct
    /// stack once, with its count and any call chain. The program is mapped at its file's addresses.
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
        for (Stack { chain, branches }, count) in stacks {
            writeln!(out, "{count}")?;
            if chain.is_empty() {
                write!(out, " {:x}", branches.first().and_then(|(from, _)| *from).unwrap_or(0))?;
            }
            for place in chain {
                writeln!(out, "\t{:16x}", place.unwrap_or(0))?;
            }
            for (from, to) in branches {
                write!(out, " {:#x}/{:#x}/P/-/-/0", from.unwrap_or(0), to.unwrap_or(0))?;
            }
            writeln!(out)?;
        }
        out.flush()
    }
}

/// Surveys a recording; also returns true if one of its events records all taken branches.
///
/// # Errors
///
/// The recording cannot be read or decompressed.
pub(crate) fn survey(recording: &mut Recording, threads: usize) -> Result<(Facts, bool)> {
    let facts = Facts::survey(recording, threads, true)?;
    let events = recording.all_events();
    Ok((facts, events.is_empty() || any_records(&events, BranchStacks::Taken)))
}

fn any_records(events: &[Event], stacks: BranchStacks) -> bool {
    events.iter().any(|event| Layout::new(event.attr()).branch_stacks() == stacks)
}

/// Why a recording without a hardware trace has no taken branches, and what to record instead.
pub fn why_no_branches(recording: &Recording) -> &'static str {
    let events = recording.all_events();
    if any_records(&events, BranchStacks::Calls) {
        "its branch stacks are call stacks (--call-graph lbr), not the branches that were taken; record with perf record -b"
    } else if any_records(&events, BranchStacks::OfKinds) {
        "its branch stacks leave out branches (perf record -j), so the code between two is unknown; record with perf record -b"
    } else {
        "no event of this recording records branches (perf record -b)"
    }
}

pub(crate) struct Files<'f> {
    pub(crate) facts: &'f Facts,
    /// For each DSO, the number of its file, if wanted.
    pub(crate) owners: &'f [Option<u32>],
    /// The only file, to collect addresses in place of offsets.
    pub(crate) elf: Option<&'f ElfFile>,
    pub(crate) keeps_stacks: bool,
}

#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) profiles: HashMap<u32, BranchProfile>,
    pub(crate) counts: BranchCounts,
}

impl Files<'_> {
    /// Reads the branches of the samples that `filter` selects; if that is empty, of all.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed, or its samples lack a field to select by.
    pub(crate) fn read(
        &self,
        recording: &mut Recording,
        filter: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Collected> {
        let selected = SelectedSamples::if_any(recording, filter, threads, report)?;
        let lookup = || Lookup::new(self.facts.spaces.clone());
        let new = || Worker { files: self, lookup: lookup(), part: Collected::default() };
        let mut all = Collected::default();
        let source = (self.facts, selected.as_ref());
        let (losses, bytes) = visit(recording, source, threads, report, new, &mut all)?;
        report.read.bytes += bytes;
        losses.say("not counted", report);
        if let Some(selected) = selected.filter(|_| all.counts.samples == 0) {
            selected.say_none(&recording.name, false, report);
        }
        Ok(all)
    }
}

impl Files<'_> {
    pub(crate) fn count(&self, ran: &Ran) -> Collected {
        let mut all = Collected::default();
        all.counts.traced = 1;
        let place = |place| {
            let (dso, offset) = ran.in_file(place)?;
            let owner = self.owners.get(dso as usize).copied().flatten()?;
            Some((owner, self.elf.map_or(Some(offset), |elf| elf.address_of(offset))?))
        };
        let is_of_kernel = |place: &perfx_trace::Place| place.ip >= KERNEL_START;
        for (&Run { from, to, end }, &count) in &ran.runs {
            let is_to_kernel = is_of_kernel(&to);
            if let Some(from) = &from {
                let is_known = place(*from).or(place(to)).is_some();
                let kernel = is_to_kernel != is_of_kernel(from) || is_to_kernel && !is_known;
                let outside = !kernel && !is_known;
                all.counts.branches += count;
                all.counts.kernel += if kernel { count } else { 0 };
                all.counts.outside += if outside { count } else { 0 };
            }
            // Branches into and out of the kernel are left out, as in samples; the code after them counts.
            let from = from.filter(|from| is_to_kernel == is_of_kernel(from)).map(place);
            let (to, end) = (place(to), end.and_then(place));
            let mut owners: Vec<u32> =
                [from.flatten(), to].into_iter().flatten().map(|(owner, _)| owner).collect();
            owners.dedup();
            for owner in owners {
                let own = |place: Option<(u32, u64)>| place.filter(|&(of, _)| of == owner).map(|(_, at)| at);
                let new = || BranchProfile::new(self.keeps_stacks);
                let profile = all.profiles.entry(owner).or_insert_with(new);
                profile.atoms = ran.atoms;
                profile.add_traced(from.map(own), own(to), own(end), count);
            }
        }
        all
    }
}

struct Jump {
    from: Option<(u32, u64)>,
    to: Option<(u32, u64)>,
    mispredicted: bool,
    is_of_kernel: bool,
}

struct Worker<'f> {
    files: &'f Files<'f>,
    lookup: Lookup,
    part: Collected,
}

impl Visit for Worker<'_> {
    type Part = Collected;
    type All = Collected;

    fn sample(&mut self, sample: SampleView<'_>, _event: usize, counters: &mut Counters<'_>) -> Result<()> {
        let stacks = sample.layout.branch_stacks();
        if stacks != BranchStacks::None {
            counters.losses.see(sample);
        }
        match stacks {
            BranchStacks::None => {}
            BranchStacks::Taken => self.branches(sample, &mut counters.losses),
            _ => counters.losses.gappy += 1,
        }
        Ok(())
    }

    fn part(self, _passed_over: u64) -> Result<Collected> {
        Ok(self.part)
    }

    fn join(all: &mut Collected, part: Collected, _before: &Before) -> Result<()> {
        all.counts.add(part.counts);
        for (owner, profile) in part.profiles {
            all.profiles.entry(owner).or_default().join(profile);
        }
        Ok(())
    }
}

impl Worker<'_> {
    fn branches(&mut self, sample: SampleView<'_>, losses: &mut Losses) {
        let Ok(parsed) = sample.parts() else {
            losses.short += 1;
            return;
        };
        let Some(branches) = parsed.branches else { return };
        let Some(pid) = sample.pid().filter(|_| !sample.record.is_of_guest()) else { return };
        let (space, key) = (Space { machine: Machine::Host, pid }, sample.key());
        let Worker { files, lookup, part } = self;
        part.counts.samples += 1;
        let mut place = |address| {
            let hit = lookup.find(space, address, key)?;
            let owner = files.owners.get(hit.dso as usize).copied().flatten()?;
            let offset = files.facts.files.offset(hit, address);
            Some((owner, files.elf.map_or(Some(offset), |elf| elf.address_of(offset))?))
        };
        let mut chain = Vec::new();
        if let Some(addresses) = parsed.callchain.filter(|_| files.keeps_stacks) {
            let of_user = |(mode, address)| if mode == USER { place(address) } else { None };
            chain.extend(frames(addresses, USER).map(of_user));
        }
        let mut stack = Vec::with_capacity(branches.len());
        for branch in branches.iter() {
            let (from, to) = (place(branch.from), place(branch.to));
            let is_of_kernel = branch.from >= KERNEL_START || branch.to >= KERNEL_START;
            part.counts.branches += 1;
            part.counts.kernel += u64::from(is_of_kernel);
            part.counts.outside += u64::from(!is_of_kernel && from.or(to).is_none());
            stack.push(Jump { from, to, mispredicted: branch.flags.mispred(), is_of_kernel });
        }
        let mut owners: Vec<u32> =
            stack.iter().flat_map(|jump| [jump.from, jump.to]).flatten().map(|(owner, _)| owner).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            let own = |place: Option<(u32, u64)>| place.filter(|&(of, _)| of == owner).map(|(_, at)| at);
            let profile = part.profiles.entry(owner).or_default();
            let user = stack.iter().filter(|jump| !jump.is_of_kernel);
            profile.add_traces(user.map(|jump| (own(jump.from), own(jump.to), jump.mispredicted)));
            if files.keeps_stacks {
                let chain = chain.iter().map(|&place| own(place)).collect();
                let branches = stack.iter().map(|jump| (own(jump.from), own(jump.to))).collect();
                *profile.stacks.entry(Stack { chain, branches }).or_default() += 1;
            }
        }
    }
}

/// Reports what was read; `program` names the searched code.
pub fn say_branches(counts: BranchCounts, program: &str, report: &mut Report) {
    let BranchCounts { samples, traced, branches, outside, kernel } = counts;
    let all = counted(branches, "branch", "branches");
    let mut line = match (samples, traced) {
        (0, 1..) => format!("{all} in {}", counted(traced, "hardware trace", "hardware traces")),
        _ => format!("{} with {all}", counted(samples, "sample", "samples")),
    };
    let outside_of = format!("outside of {program}");
    for (count, what) in [(outside, &*outside_of), (kernel, "of the kernel")] {
        if count > 0 {
            line += &format!(", {} {what}", perfx_pipeline::count(count));
        }
    }
    report.say(if samples == 0 && traced == 0 { Level::Warning } else { Level::Info }, line);
}

/// Reports how often straight-line code was left out; see [`BranchProfile::sums`].
pub fn say_runs(left_out: u64, program: &Path, report: &mut Report) {
    if left_out > 0 {
        let runs = counted(left_out, "range", "ranges");
        let program = program.display();
        let what = "the next branch comes from before the range, or from more than 1 MiB after its start";
        report.say(Level::Loss, format!("{program}: {runs} of code left out: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file in memory; its only segment is the code from offset 0x40 on, at 0x401040.
    fn program() -> (tempfile::TempDir, Program) {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        let mut words = |words: &[u64]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        words(&[0, 64, 0, 64 << 32 | 56 << 48, 1 | 64 << 16]);
        words(&[1 | 5 << 32, 0x40, 0x40_1040, 0, 0x100, 0x100, 0x1000]);
        bytes.resize(0x140, 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prog");
        std::fs::write(&path, bytes).unwrap();
        let mut elf = ElfFile::read(&path).unwrap();
        let function = |start: u64, end| symbols::Symbol {
            start,
            end,
            limit: end,
            weak: false,
            global: true,
            name: b"f".into(),
        };
        elf.symbols = vec![function(0x40_1040, 0x40_1060), function(0x40_1060, 0x40_10c0)];
        (folder, Program::new(path, elf))
    }

    fn sums(profile: &BranchProfile, format: SumFormat, program: &Program) -> (String, u64) {
        let mut text = Vec::new();
        let left_out = profile.sums(format, program, &mut text).unwrap();
        (String::from_utf8(text).unwrap(), left_out)
    }

    const OUT: Place = None;

    #[test]
    fn branches_and_the_code_between_two_are_summed_in_each_format() {
        let (_folder, program) = program();
        let mut offsets = BranchProfile::new(true);
        // The stack of a sample, newest first: from one function to the other, and a loop in it.
        let stack =
            [(Some(0x90), OUT, false), (Some(0x80), Some(0x70), true), (Some(0x44), Some(0x60), false)];
        offsets.add_traces(stack.into_iter());
        offsets.add_traced(Some(Some(0x80)), Some(0x70), Some(0x90), 4);
        offsets.add_traced(None, Some(0x50), Some(0x58), 2);
        offsets.add_traced(None, Some(0x50), OUT, 7);
        offsets.add_traced(None, OUT, Some(0x50), 7);
        offsets.add_traced(Some(OUT), OUT, Some(0x50), 7);
        offsets.add_traced(Some(OUT), Some(0x48), OUT, 1);
        assert_eq!((offsets.len(), offsets.is_empty(), offsets.branches()), (4, false, 8));
        let profile = offsets.at_addresses(&program);
        let bolt = "B X:0 401048 1 0\n\
                    B 401044 401060 1 0\n\
                    B 401080 401070 5 1\n\
                    B 401090 X:0 1 0\n\
                    f 401050 401058 2\n\
                    f 401060 401080 1\n\
                    F 401070 401090 5\n";
        assert_eq!(sums(&profile, SumFormat::Bolt, &program), (bolt.to_owned(), 0));
        // Relative to the first segment, and without branches from or to elsewhere.
        let autofdo = "3\n10-18:2\n20-40:1\n30-50:5\n0\n2\n4->20:1\n40->30:5\n";
        assert_eq!(sums(&profile, SumFormat::Autofdo, &program), (autofdo.to_owned(), 0));
        let mut twice = profile.clone();
        twice.join(profile);
        assert_eq!((twice.len(), twice.branches()), (4, 16));
        let autofdo = "3\n10-18:4\n20-40:2\n30-50:10\n0\n2\n4->20:2\n40->30:10\n";
        assert_eq!(sums(&twice, SumFormat::Autofdo, &program).0, autofdo);
    }

    #[test]
    fn code_that_ends_before_its_start_or_is_too_long_is_left_out() {
        let (_folder, program) = program();
        let mut profile = BranchProfile::default();
        let (base, most) = (0x40_1040, LONGEST_RANGE);
        profile.add_traced(Some(Some(base + 1)), Some(base + 8), Some(base + 7), 1);
        profile.add_traced(Some(Some(base + 2)), Some(base + 8), Some(base + 8 + most), 2);
        profile.add_traced(Some(Some(base + 3)), Some(base + 8), Some(base + 9 + most), 4);
        profile.run(base + 4, base + 4 + most, 8);
        profile.run(base + 4, base + 5 + most, 16);
        profile.run(base - 1, base, 32);
        let expected = "2\n4-100004:8\n8-100008:2\n0\n3\n1->8:1\n2->8:2\n3->8:4\n";
        assert_eq!(sums(&profile, SumFormat::Autofdo, &program), (expected.to_owned(), 1 + 4 + 16 + 32));
    }

    #[test]
    fn stacks_are_written_as_perf_script_writes_them() {
        let (_folder, program) = program();
        let mut profile = BranchProfile::new(true);
        profile.add_traced(Some(Some(0x40_1044)), Some(0x40_1060), Some(0x40_1080), 3);
        profile.add_traced(Some(OUT), Some(0x40_1060), OUT, 1);
        profile.add_traced(Some(OUT), OUT, Some(0x40_1060), 1);
        let stack = Stack { chain: [Some(0x40_1050), OUT].into(), branches: [(Some(0x40_1050), OUT)].into() };
        profile.stacks.insert(stack, 2);
        let mut text = Vec::new();
        profile.profgen(&program, &mut text).unwrap();
        let expected = "PERF_RECORD_MMAP2 1/1: [0x401040(0x100) @ 0x40 00:00 0 0]: r-xp prog\n\
                        1\n 0 0x0/0x401060/P/-/-/0\n\
                        3\n 401080 0x401080/0x0/P/-/-/0 0x401044/0x401060/P/-/-/0\n\
                        2\n\t          401050\n\t               0\n 0x401050/0x0/P/-/-/0\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        profile.keeps_stacks = false;
        profile.stacks.clear();
        profile.add_traced(Some(OUT), Some(0x40_1060), OUT, 1);
        assert!(profile.stacks.is_empty());
    }

    #[test]
    fn runs_of_a_branch_list_are_counted_with_the_branches_to_them() {
        let mut profile = BranchProfile::default();
        let runs = vec![(None, 0x10, Some(0x20)), (Some(0x20), 0x30, Some(0x38)), (Some(0x38), 0x10, None)];
        profile.take_list(runs, 5);
        assert_eq!((profile.counts().branches, profile.branches(), profile.runs.len()), (10, 10, 1));
        assert!(profile.atoms.is_some_and(|atoms| !atoms.waits));
        profile.named(b"first");
        profile.named(b"second");
        assert_eq!(profile.recorded.as_deref(), Some(&b"first"[..]));
    }

    #[test]
    fn what_was_read_is_reported_with_the_branches_that_do_not_count() {
        let said = |counts, left_out| {
            let mut report = Report::default();
            say_branches(counts, "prog", &mut report);
            say_runs(left_out, Path::new("prog"), &mut report);
            report.lines.into_iter().map(|(level, line)| format!("{level:?} {line}")).collect::<Vec<_>>()
        };
        let counts = BranchCounts { samples: 1, traced: 0, branches: 30, outside: 2, kernel: 0 };
        assert_eq!(said(counts, 0), ["Info 1 sample with 30 branches, 2 outside of prog"]);
        let counts = BranchCounts { samples: 0, traced: 2, branches: 1, outside: 0, kernel: 1 };
        assert_eq!(said(counts, 0), ["Info 1 branch in 2 hardware traces, 1 of the kernel"]);
        let [none, loss] = &said(BranchCounts::default(), 1)[..] else { panic!() };
        assert_eq!(none, "Warning 0 samples with 0 branches");
        assert!(loss.starts_with("Loss prog: 1 range of code left out:"), "{loss}");
    }
}
