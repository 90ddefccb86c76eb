//! The rewrite: puts a call chain into each sample in place of its user stack, and counts what can't be
//! unwound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perfx_format::record::cpumode::{GUEST_USER, USER};
use perfx_format::sample::registers::{ABI_64, ABI_NONE};
use perfx_format::sample::{Marker, Sample, with_callchain};
use perfx_format::{Layout, Record, sample_type as st};
use perfx_model::address_space::moment;
use perfx_model::guests::Guests;
use perfx_pipeline::{Emit, Fork, LISTED, Level, Report, Result, Rewrite, Session, counted};

use super::arch::Registers;
use super::walk::{End, Shared, Stack, Walker};

/// True if samples of this type have a call chain, and the registers and the stack to complete it.
pub(crate) fn has_stacks(sample_type: u64) -> bool {
    let all = st::CALLCHAIN | st::REGS_USER | st::STACK_USER;
    sample_type & all == all
}

/// Why a sample has no complete call chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Unresolved {
    /// Its registers are those of a 32-bit task.
    Compat,
    /// The registers for unwinding were not recorded.
    Registers,
    /// It has registers, but no stack.
    Stack,
    /// A file is missing.
    File,
    /// It would be too long.
    TooLong,
}

impl Unresolved {
    /// The line about this number of call chains.
    fn line(self, count: u64, files: &BTreeSet<u32>) -> String {
        let chains = counted(count, "call chain", "call chains");
        match self {
            Unresolved::Compat => format!("{chains} of 32-bit tasks: only the innermost frame is known"),
            Unresolved::Registers => {
                format!("{chains} without the registers for unwinding: only the innermost frame is known")
            }
            Unresolved::Stack => format!("{chains} without a stack: only the innermost frame is known"),
            Unresolved::File => {
                let end = if count == 1 { "ends" } else { "end" };
                let (one, many) = (
                    "file that is missing or not the recorded one",
                    "files that are missing or not the recorded ones",
                );
                format!("{chains} {end} early, at code of {}{LISTED}", counted(files.len() as u64, one, many))
            }
            Unresolved::TooLong => format!("{chains} cut at the most frames that a call chain may have"),
        }
    }
}

/// What was converted.
#[derive(Debug, Default)]
struct Counts {
    converted: u64,
    frames: u64,
    /// Call chains that end with the recorded part of the stack.
    cut: u64,
    /// Call chains that end where the tables do not fit the stack.
    broken: u64,
    unresolved: BTreeMap<Unresolved, u64>,
    /// DSOs at whose code call chains end, because the file is missing.
    files: BTreeSet<u32>,
}

/// The rewrite.
pub(super) struct Convert {
    walker: Walker,
    guests: Arc<Guests>,
    keep_unresolved: bool,
    counts: Counts,
    /// The new call chain; kept for its memory.
    chain: Vec<u64>,
}

impl Convert {
    pub(super) fn new(shared: Arc<Shared>, guests: Arc<Guests>, keep_unresolved: bool) -> Convert {
        let walker = Walker::new(shared);
        Convert { walker, guests, keep_unresolved, counts: Counts::default(), chain: Vec::new() }
    }

    /// Appends the user frames of a sample to the call chain. Returns why some are missing that the recording
    /// could have shown.
    fn unwind(
        &mut self,
        sample: &Sample<'_>,
        record: &Record<'_>,
        layout: &Layout,
        out: &Emit<'_>,
    ) -> Option<Unresolved> {
        let regs = sample.regs_user?;
        let ip = sample.ip.filter(|_| !record.is_of_kernel());
        let arch = self.walker.shared.images.arch;
        let start = Registers::recorded(&regs, arch);
        let Some((pc, sp)) = start.get(arch.pc).zip(start.get(arch.sp)) else {
            self.chain.extend(ip);
            return Some(Unresolved::Registers);
        };
        if regs.abi != ABI_64 {
            self.chain.push(pc);
            return Some(Unresolved::Compat);
        }
        let stack = sample.stack_user.filter(|stack| !stack.used().is_empty());
        let pid = sample.pid_tid.map(|(pid, _)| pid);
        let cpumode = if record.is_of_guest() { GUEST_USER } else { USER };
        let space = self.guests.space(record, out.layouts(), pid, cpumode);
        let Some((stack, space)) = stack.zip(space) else {
            self.chain.push(pc);
            return Some(Unresolved::Stack);
        };
        let bytes = stack.used();
        let is_cut = bytes.len() == stack.bytes.len();
        let stack = Stack { start: sp, bytes, is_cut, endian: record.endian() };
        let time = moment(record, Some(layout), out.layouts());
        match self.walker.walk((space, time), pc, start, stack, &mut self.chain) {
            End::Outermost => None,
            End::StackCut => {
                self.counts.cut += 1;
                None
            }
            End::Broken => {
                self.counts.broken += 1;
                None
            }
            End::Missing(dso) => {
                self.counts.files.insert(dso);
                Some(Unresolved::File)
            }
            End::TooLong => Some(Unresolved::TooLong),
        }
    }
}

impl Rewrite for Convert {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let layout = out.layouts().layout_of(&record).filter(|layout| has_stacks(layout.sample_type));
        let Some(layout) = layout else { return out.keep(record) };
        let sample = Sample::parse(&record, layout)?;
        self.chain.clear();
        let mut has_marker = false;
        // Without a user side there is nothing to add but the marker. Nor is there to a sample that was
        // converted before.
        let is_done = sample.regs_user.is_none_or(|regs| regs.abi == ABI_NONE);
        for entry in sample.callchain.iter().flat_map(|chain| chain.iter()) {
            self.chain.push(entry);
            has_marker |= entry == Marker::USER.0;
            if has_marker && !is_done {
                break;
            }
        }
        if !has_marker {
            self.chain.push(Marker::USER.0);
        }
        let before = self.chain.len();
        let unresolved = if is_done { None } else { self.unwind(&sample, &record, layout, out) };
        if let Some(unresolved) = unresolved {
            *self.counts.unresolved.entry(unresolved).or_default() += 1;
            if self.keep_unresolved {
                return out.keep(record);
            }
        }
        self.counts.converted += 1;
        self.counts.frames += (self.chain.len() - before) as u64;
        out.replace(&record, &with_callchain(&record, layout, &sample, &self.chain, self.keep_unresolved)?)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let Counts { converted, frames, cut, broken, unresolved, files } = &self.counts;
        let report: &mut Report = &mut session.report;
        let samples = counted(*converted, "sample", "samples");
        let frames = counted(*frames, "user frame", "user frames");
        report.say(
            Level::Info,
            format!("converted the user stacks of {samples} into call chains, with {frames}"),
        );
        if *cut > 0 {
            let chains = counted(*cut, "call chain ends", "call chains end");
            report.say(Level::Info, format!("{chains} with the recorded part of the stack"));
        }
        if *broken > 0 {
            let chains = counted(*broken, "call chain ends", "call chains end");
            report.say(Level::Info, format!("{chains} where the unwind tables do not fit the stack"));
        }
        for (reason, count) in unresolved {
            let line = reason.line(*count, files);
            match self.keep_unresolved {
                true => report.say(Level::Warning, format!("not converted: {line}")),
                false => report.say(Level::Loss, line),
            }
        }
        for (_, name, reasons) in self.walker.shared.images.missing().filter(|(dso, ..)| files.contains(dso))
        {
            report.say(Level::Detail, format!("not unwound: {}; {reasons}", name.escape_ascii()));
        }
        Ok(())
    }
}

impl Fork for Convert {
    fn fork(&self) -> Convert {
        Convert::new(self.walker.shared.clone(), self.guests.clone(), self.keep_unresolved)
    }

    fn absorb(&mut self, later: Convert) -> Result<()> {
        let Counts { converted, frames, cut, broken, unresolved, files } = later.counts;
        self.counts.converted += converted;
        self.counts.frames += frames;
        self.counts.cut += cut;
        self.counts.broken += broken;
        for (reason, count) in unresolved {
            *self.counts.unresolved.entry(reason).or_default() += count;
        }
        self.counts.files.extend(files);
        later.walker.end();
        Ok(())
    }
}
