//! The rewrite: replaces the user stack of each sample by a call chain, or completes its chain by frame
//! pointers, and counts the stacks that can't be unwound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{error, fmt};

use perfx_format::record::cpumode::{GUEST_USER, USER};
use perfx_format::sample::registers::{ABI_64, ABI_NONE, ARM64_LR};
use perfx_format::sample::{Marker, Sample, UserParts, with_callchain};
use perfx_format::{Layout, Layouts, OrderKey, Record, sample_type as st};
use perfx_model::address_space::Space;
use perfx_model::guests::Guests;
use perfx_pipeline::{Context as _, Emit, Fork, LISTED, Level, Report, Result, Rewrite, Session, counted};

use crate::arch::Registers;
use crate::walk::{Caller, End, Shared, Stack, Walker};

/// True if samples of this type have a call chain, and the registers and the stack to complete it.
pub fn has_stacks(sample_type: u64) -> bool {
    let all = st::CALLCHAIN | st::REGS_USER | st::STACK_USER;
    sample_type & all == all
}

/// True if samples of an event of an aarch64 machine have a call chain by frame pointers, and the link
/// register. perf records both for `-g`: a function that calls no other may have no frame, so that the chain
/// lacks its caller.
pub(crate) fn has_link_register(sample_type: u64, regs_user: u64) -> bool {
    let all = st::CALLCHAIN | st::REGS_USER;
    sample_type & (all | st::STACK_USER) == all && regs_user & ARM64_LR != 0
}

/// True if perf recorded only the link register of an event, for its call chains.
pub(crate) fn has_only_link_register(sample_type: u64, regs_user: u64) -> bool {
    has_link_register(sample_type, regs_user) && regs_user == ARM64_LR
}

/// The registers and stacks that samples keep when their call chains are completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// None.
    Nothing {
        /// The first sample that can't be unwound ends the run with [`StacksNeeded`].
        must_resolve: bool,
    },
    /// The registers and stacks of samples that can't be unwound.
    Unresolved,
    /// The registers, for a reader of complete call chains that still has the stacks in the recording.
    Registers,
}

/// The cause of an error: a user stack can't be unwound, and the output has no room for it.
#[derive(Debug)]
pub struct StacksNeeded;

impl fmt::Display for StacksNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a user stack that can't be unwound has no place in the output")
    }
}

impl error::Error for StacksNeeded {}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Unresolved {
    /// Its task has an unsupported architecture.
    Arch,
    Registers,
    Stack,
    File,
    /// The file that shows whether the link register contains the caller is missing.
    LinkedFile,
    TooLong,
    /// Only the innermost frame was found: the stack contradicts the unwind tables, or there are none.
    Broken,
    /// It ends at a frame with a caller: the stack contradicts the unwind tables.
    Misfit,
    Abi,
}

impl Unresolved {
    fn has_frames(self) -> bool {
        matches!(self, Unresolved::File | Unresolved::LinkedFile | Unresolved::TooLong | Unresolved::Misfit)
    }

    fn line(self, count: u64, files: &BTreeSet<u32>) -> String {
        let chains = counted(count, "call chain", "call chains");
        let (one, many) = (
            "file that is missing, not the recorded one or without unwind tables",
            "files that are missing, not the recorded ones or without unwind tables",
        );
        let files = || format!("{}{LISTED}", counted(files.len() as u64, one, many));
        let end = if count == 1 { "ends" } else { "end" };
        match self {
            Unresolved::Arch => {
                format!("{chains} of tasks that can't be unwound: only the innermost frame is known")
            }
            Unresolved::Registers => {
                format!("{chains} without the registers for unwinding: only the innermost frame is known")
            }
            Unresolved::Stack => format!("{chains} without a stack: only the innermost frame is known"),
            Unresolved::File => format!("{chains} {end} early, at code of {}", files()),
            Unresolved::LinkedFile => {
                format!("{chains} may lack the caller of the innermost function, in code of {}", files())
            }
            Unresolved::TooLong => format!("{chains} cut at the maximum number of frames"),
            Unresolved::Broken => {
                format!("{chains} with only the innermost frame: no unwind table fits the stack")
            }
            Unresolved::Misfit => {
                format!("{chains} {end} early, where the unwind tables do not fit the stack")
            }
            Unresolved::Abi => {
                format!("{chains} with registers of an unknown ABI: only the recorded part is known")
            }
        }
    }
}

/// True if a sample has user registers, with which its stack is unwound, even if their ABI is unknown.
fn has_stack(sample: &Sample<'_>) -> bool {
    !sample.has_known_user_parts() || sample.regs_user.is_some_and(|regs| regs.abi != ABI_NONE)
}

#[derive(Debug, Default)]
struct Counts {
    converted: u64,
    frames: u64,
    /// Call chains by frame pointers, and those that got a caller from the link register.
    linked: [u64; 2],
    /// Call chains that end with the recorded part of the stack.
    cut: u64,
    /// Call chains that end where tables do not fit the stack, as perf shows them.
    broken: u64,
    unresolved: BTreeMap<Unresolved, u64>,
    /// DSOs at which call chains end because the file is missing.
    files: BTreeSet<u32>,
}

/// Completes call chains on one thread: those of requested samples, or of all in a rewrite.
pub struct Convert {
    walker: Walker,
    guests: Arc<Guests>,
    kept: Kept,
    /// The machine's call chains by frame pointers may lack callers.
    inserts_callers: bool,
    counts: Counts,
    /// The new call chain, and the user frames of the recorded one; kept to reuse their memory.
    chain: Vec<u64>,
    recorded: Vec<u64>,
}

impl Convert {
    pub(crate) fn new(shared: Arc<Shared>, guests: Arc<Guests>, kept: Kept) -> Convert {
        let inserts_callers = shared.images.archs.has_link_register();
        let (walker, counts) = (Walker::new(shared), Counts::default());
        let (chain, recorded) = Default::default();
        Convert { walker, guests, kept, inserts_callers, counts, chain, recorded }
    }

    /// Appends a sample's user frames to the call chain. Returns why some of the recording are missing.
    fn unwind(
        &mut self,
        sample: &Sample<'_>,
        record: &Record<'_>,
        layout: &Layout,
        layouts: &Layouts,
    ) -> Option<Unresolved> {
        if !sample.has_known_user_parts() {
            return Some(Unresolved::Abi);
        }
        let regs = sample.regs_user?;
        let ip = sample.ip.filter(|_| !record.is_of_kernel());
        let Some(arch) = self.walker.shared.images.archs.of_task(regs.abi) else {
            self.chain.extend(ip);
            return Some(Unresolved::Arch);
        };
        let start = Registers::recorded(&regs, arch);
        let Some((pc, sp)) = start.get(arch.pc).zip(start.get(arch.sp)) else {
            self.chain.extend(ip);
            return Some(Unresolved::Registers);
        };
        let stack = sample.stack_user.filter(|stack| !stack.used().is_empty());
        let space = self.space(sample, record, layouts);
        let Some((stack, space)) = stack.zip(space) else {
            self.chain.push(pc);
            return Some(Unresolved::Stack);
        };
        let bytes = stack.used();
        let is_cut = bytes.len() == stack.bytes.len();
        let stack = Stack { start: sp, bytes, is_cut, endian: record.endian(), word: arch.word };
        let (key, before) = (OrderKey::of(record, Some(layout), layouts), self.chain.len());
        match self.walker.walk((space, key), arch, pc, start, stack, &mut self.chain) {
            End::Outermost => None,
            End::StackCut => {
                self.counts.cut += 1;
                None
            }
            End::Broken if self.chain.len() - before <= 1 => Some(Unresolved::Broken),
            End::Broken if self.kept == Kept::Registers => {
                self.counts.broken += 1;
                None
            }
            End::Broken => Some(Unresolved::Misfit),
            End::Missing(dso) => {
                self.counts.files.insert(dso);
                Some(Unresolved::File)
            }
            End::TooLong => Some(Unresolved::TooLong),
        }
    }
}

impl Convert {
    fn space(&self, sample: &Sample<'_>, record: &Record<'_>, layouts: &Layouts) -> Option<Space> {
        let pid = sample.pid_tid.map(|(pid, _)| pid);
        let cpumode = if record.is_of_guest() { GUEST_USER } else { USER };
        self.guests.space(record, layouts, pid, cpumode)
    }

    /// The complete call chain of a sample; `None` if the recorded one can't be completed.
    ///
    /// # Errors
    ///
    /// The sample does not have the fields of its event.
    pub fn chain_of(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<Option<&[u64]>> {
        let Some(layout) = layouts.layout_of(record) else { return Ok(None) };
        let (stack, linked) = (has_stacks(layout.sample_type), self.has_link_register(layout));
        if !stack && !linked {
            return Ok(None);
        }
        let sample = Sample::parse_known(record, layout)?;
        if stack {
            self.chain_by_stack(&sample, record, layout, layouts);
        } else {
            self.chain_by_link_register(&sample, record, layout, layouts);
        }
        Ok(Some(&self.chain))
    }

    /// True if samples of this layout may lack the caller of their innermost function.
    fn has_link_register(&self, layout: &Layout) -> bool {
        self.inserts_callers && has_link_register(layout.sample_type, layout.regs_user)
    }

    /// Builds the call chain of a sample with a user stack. Returns the number of user frames, and why some
    /// are missing.
    fn chain_by_stack(
        &mut self,
        sample: &Sample<'_>,
        record: &Record<'_>,
        layout: &Layout,
        layouts: &Layouts,
    ) -> (usize, Option<Unresolved>) {
        self.chain.clear();
        self.recorded.clear();
        let mut has_marker = false;
        // Without user registers, or if the sample was converted before, only the marker is added.
        let is_done = !has_stack(sample);
        for entry in sample.callchain.iter().flat_map(|chain| chain.iter()) {
            let to = if has_marker && !is_done { &mut self.recorded } else { &mut self.chain };
            to.push(entry);
            has_marker |= entry == Marker::USER.0;
        }
        if !has_marker {
            self.chain.push(Marker::USER.0);
        }
        let before = self.chain.len();
        let unresolved = if is_done { None } else { self.unwind(sample, record, layout, layouts) };
        if let Some(unresolved) = unresolved {
            *self.counts.unresolved.entry(unresolved).or_default() += 1;
            if self.recorded.len() > self.chain.len() - before {
                self.chain.truncate(before);
                self.chain.append(&mut self.recorded);
            }
        }
        (self.chain.len() - before, unresolved)
    }

    fn convert_stack(&mut self, record: Record<'_>, layout: &Layout, out: &mut Emit<'_>) -> Result<()> {
        let sample = Sample::parse_known(&record, layout)?;
        let (frames, unresolved) = self.chain_by_stack(&sample, &record, layout, out.layouts());
        if unresolved.is_some() && self.kept == Kept::Unresolved {
            return out.keep(record);
        }
        self.check_resolved()?;
        if has_stack(&sample) && unresolved.is_none_or(Unresolved::has_frames) {
            self.counts.converted += 1;
            self.counts.frames += frames as u64;
        }
        let parts = match self.kept {
            Kept::Nothing { .. } => UserParts::LeftOut,
            Kept::Unresolved => UserParts::Empty,
            Kept::Registers => UserParts::Registers,
        };
        out.replace(&record, &with_callchain(&record, layout, &sample, &self.chain, parts)?)
    }

    /// Completes a sample's call chain by frame pointers: if the link register contains the caller of the
    /// innermost function, and the chain continues after that caller, inserts the caller, as perf script
    /// does. Returns false if the chain is unchanged and no file is missing.
    fn chain_by_link_register(
        &mut self,
        sample: &Sample<'_>,
        record: &Record<'_>,
        layout: &Layout,
        layouts: &Layouts,
    ) -> bool {
        self.chain.clear();
        self.chain.extend(sample.callchain.iter().flat_map(|chain| chain.iter()));
        let user = self.chain.iter().position(|&entry| entry == Marker::USER.0);
        let frames = user.and_then(|user| Some((user + 2, self.chain.get(user + 1..user + 3)?)));
        let regs = sample.regs_user.filter(|regs| regs.abi == ABI_64);
        let lr = regs.and_then(|regs| regs.get(ARM64_LR.trailing_zeros()));
        self.counts.linked[0] += 1;
        let mut found = Caller::NotLinked;
        if let Some(((_, &[pc, _]), lr)) = frames.zip(lr)
            && let Some(space) = self.space(sample, record, layouts)
            && let Some(arch) = self.walker.shared.images.archs.of_task(ABI_64)
        {
            let key = OrderKey::of(record, Some(layout), layouts);
            found = self.walker.linked((space, key), arch, pc, lr);
        }
        match (found, frames) {
            // The chain may have it already, from an earlier insertion.
            (Caller::Linked(caller), Some((place, &[_, next]))) if caller != next => {
                self.counts.linked[1] += 1;
                self.chain.insert(place, caller);
                true
            }
            (Caller::Missing(dso), _) => {
                self.counts.files.insert(dso);
                *self.counts.unresolved.entry(Unresolved::LinkedFile).or_default() += 1;
                true
            }
            _ => false,
        }
    }

    fn insert_caller(&mut self, record: Record<'_>, layout: &Layout, out: &mut Emit<'_>) -> Result<()> {
        let sample = Sample::parse_known(&record, layout)?;
        let leaves_out = matches!(self.kept, Kept::Nothing { .. })
            && has_only_link_register(layout.sample_type, layout.regs_user);
        let parts = if leaves_out { UserParts::LeftOut } else { UserParts::Kept };
        let is_new = self.chain_by_link_register(&sample, &record, layout, out.layouts());
        if leaves_out {
            self.check_resolved()?;
        }
        if !is_new && parts == UserParts::Kept {
            return out.keep(record);
        }
        out.replace(&record, &with_callchain(&record, layout, &sample, &self.chain, parts)?)
    }

    /// Fails if the stack or registers of a sample that can't be unwound would be lost.
    fn check_resolved(&self) -> Result<()> {
        let is_lost = self.kept == Kept::Nothing { must_resolve: true } && !self.counts.unresolved.is_empty();
        if is_lost { Err(StacksNeeded).context("call chains can't be completed") } else { Ok(()) }
    }

    /// Reports why call chains are incomplete, then `rest`, and the reasons for each missing file.
    pub fn say_unresolved(&self, level: Level, (what, rest): (&str, &str), report: &mut Report) {
        let Counts { unresolved, files, .. } = &self.counts;
        for (at, (reason, count)) in (1..).zip(unresolved) {
            let rest = if at == unresolved.len() { rest } else { "" };
            report.say(level, format!("{what}{}{rest}", reason.line(*count, files)));
        }
        for &dso in &self.counts.files {
            let (name, reasons) = self.walker.shared.images.missing(dso);
            report.say(Level::Detail, format!("not unwound: {}; {reasons}", name.escape_ascii()));
        }
    }
}

impl Rewrite for Convert {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match out.layouts().layout_of(&record) {
            Some(layout) if has_stacks(layout.sample_type) => self.convert_stack(record, layout, out),
            Some(layout) if self.has_link_register(layout) => self.insert_caller(record, layout, out),
            _ => out.keep(record),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let Counts { converted, frames, linked: [chains, inserted], cut, broken, .. } = &self.counts;
        let report: &mut Report = &mut session.report;
        if *converted > 0 {
            let samples = counted(*converted, "sample", "samples");
            let frames = counted(*frames, "user frame", "user frames");
            let line = format!("converted the user stacks of {samples} into call chains, with {frames}");
            report.say(Level::Info, line);
        } else if *chains == 0 {
            report.say(Level::Info, "converted no user stack into a call chain");
        }
        if *chains > 0 {
            let of = counted(*chains, "call chain", "call chains");
            let line = format!("inserted the caller of the innermost function into {inserted} of {of}");
            report.say(Level::Info, line);
        }
        if *cut > 0 {
            let chains = counted(*cut, "call chain ends", "call chains end");
            report.say(
                Level::Info,
                format!(
                    "{chains} with the recorded part of the stack (record more: --call-graph dwarf,65528)"
                ),
            );
        }
        if *broken > 0 {
            let chains = counted(*broken, "call chain ends", "call chains end");
            report.say(Level::Info, format!("{chains} where the unwind tables do not fit the stack"));
        }
        let (level, texts) = match self.kept {
            Kept::Unresolved => {
                let rest = "; the stacks of such samples stay, and --drop-unresolved leaves them out";
                (Level::Warning, ("not converted: ", rest))
            }
            Kept::Nothing { .. } | Kept::Registers => (Level::Loss, ("", "")),
        };
        self.say_unresolved(level, texts, report);
        Ok(())
    }
}

impl Fork for Convert {
    fn fork(&self) -> Convert {
        Convert::new(self.walker.shared.clone(), self.guests.clone(), self.kept)
    }

    fn absorb(&mut self, later: Convert) {
        let Counts { converted, frames, linked, cut, broken, unresolved, files } = later.counts;
        self.counts.converted += converted;
        self.counts.frames += frames;
        self.counts.linked.iter_mut().zip(linked).for_each(|(all, more)| *all += more);
        self.counts.cut += cut;
        self.counts.broken += broken;
        for (reason, count) in unresolved {
            *self.counts.unresolved.entry(reason).or_default() += count;
        }
        self.counts.files.extend(files);
        later.walker.end();
    }
}
