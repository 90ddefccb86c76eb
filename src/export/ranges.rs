//! The text that `simpleperf inject --output autofdo` makes of a trace of CoreSight.
//!
//! The trace tells of each branch, and each ends a range of code, also one that was not taken, and so does what the
//! trace unit takes for a branch (ISB). simpleperf does not write where indirect branches went. Addresses are offsets in
//! the file, which newer readers of AutoFDO expect; simpleperf before 2025 counts them from the first segment on, which
//! is the same but for what lld links.
//!
//! Source: AOSP, simpleperf/ETMDecoder.cpp (InstrRangeParser) and cmd_inject.cpp (AutoFDOWriter).

use std::collections::BTreeMap;
use std::io::{self, Write};

use build_id::BuildId;
use perfx_format::Bytes;
use perfx_trace::{Kind, coresight};

use crate::traced::Atoms;

/// The size of an instruction of AArch64, bytes.
pub(crate) const INSTRUCTION: u64 = 4;

/// The code of a program, by address.
pub(crate) struct Code {
    bytes: Bytes,
    /// Offset in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Code {
    /// A file with these segments of code: offset in the file, size, address.
    pub(crate) fn new(bytes: Bytes, segments: Vec<(u64, u64, u64)>) -> Code {
        Code { bytes, segments }
    }

    /// The offset in the file.
    fn offset(&self, address: u64) -> Option<u64> {
        let inside = |&&(_, size, start): &&(u64, u64, u64)| address >= start && address - start < size;
        let (offset, _, start) = self.segments.iter().find(inside)?;
        offset.checked_add(address - start)
    }

    /// Goes on to the next branch that a trace unit tells: what it is, and its target if that is fixed.
    pub(crate) fn next_branch(&self, ip: &mut u64) -> Option<(Kind, u64)> {
        loop {
            match coresight::branch(self.word(*ip)?, *ip, false) {
                Some((kind, target)) if kind != Kind::FarCall => return Some((kind, target)),
                _ => *ip = ip.checked_add(INSTRUCTION)?,
            }
        }
    }

    fn word(&self, address: u64) -> Option<u32> {
        let at = usize::try_from(self.offset(address)?).ok()?;
        let word = self.bytes.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*word))
    }
}

/// Ranges of code and branches, by their offsets in the file, with their counts.
#[derive(Default)]
pub(crate) struct Ranges {
    ranges: BTreeMap<(u64, u64), u64>,
    branches: BTreeMap<(u64, u64), u64>,
}

impl Ranges {
    /// Of code that ran straight on: the branch to it, its first and its last instruction, and how often.
    pub(crate) fn new(
        runs: impl Iterator<Item = (Option<u64>, Option<(u64, Option<u64>)>, u64)>,
        code: &Code,
        Atoms { waits }: Atoms,
    ) -> Ranges {
        let mut found = Ranges::default();
        let branch = |ip| coresight::branch(code.word(ip)?, ip, waits);
        for (from, run, count) in runs {
            if let (Some(from), Some((to, _))) = (from, run)
                && let Some((Kind::Conditional, _)) = branch(from)
            {
                found.branch(code, from, to, count);
            }
            let Some((mut start, Some(end))) = run else { continue };
            let mut ip = start;
            while ip <= end && code.word(ip).is_some() {
                let kind = branch(ip).filter(|(kind, _)| *kind != Kind::FarCall);
                if ip == end || kind.is_some() {
                    found.range(code, start, ip, count);
                    start = ip + INSTRUCTION;
                }
                match kind {
                    None | Some((Kind::Conditional | Kind::Barrier, _)) => {}
                    // Where indirect branches went is not told.
                    Some((_, to)) => found.branch(code, ip, to, count),
                }
                ip += INSTRUCTION;
            }
        }
        found
    }

    fn range(&mut self, code: &Code, start: u64, end: u64, count: u64) {
        if let (Some(start), Some(end)) = (code.offset(start), code.offset(end)) {
            let sum = self.ranges.entry((start, end)).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    fn branch(&mut self, code: &Code, from: u64, to: u64, count: u64) {
        if let Some(from) = code.offset(from) {
            let sum = self.branches.entry((from, code.offset(to).unwrap_or(0))).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Writes the text of a file with this name and build-id.
    pub(crate) fn write(&self, name: &[u8], id: Option<BuildId>, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.ranges.len())?;
        for ((start, end), count) in &self.ranges {
            writeln!(out, "{start:x}-{end:x}:{count}")?;
        }
        writeln!(out, "0\n{}", self.branches.len())?;
        for ((from, to), count) in &self.branches {
            writeln!(out, "{from:x}->{to:x}:{count}")?;
        }
        let id = id.map_or_else(String::new, |id| id.to_string());
        write!(out, "// build_id: 0x{id:0<40}\n// ")?;
        out.write_all(name)?;
        out.write_all(b"\n\n")?;
        out.flush()
    }
}
