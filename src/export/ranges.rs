//! Writes the text of `simpleperf inject --output autofdo` for a trace of CoreSight.
//!
//! The trace has each branch, taken or not, and each ends a range of code, as does an ISB, which the trace
//! unit treats as a branch. simpleperf does not write the targets of indirect branches. Addresses are offsets
//! in the file, as newer readers of AutoFDO expect; simpleperf before 2025 counts them from the first
//! segment, which only differs in files that lld links. Addresses of a kernel module are relative to its
//! `.text`, as simpleperf writes them from branch lists; from a trace, it reads the code of modules at the
//! wrong place of their files.
//!
//! Source: AOSP, simpleperf/ETMDecoder.cpp (InstrRangeParser) and cmd_inject.cpp (AutoFDOWriter).

use std::collections::BTreeMap;
use std::io::{self, Write};

use build_id::BuildId;
use perfx_auxtrace::Atoms;
use perfx_format::Bytes;
use perfx_trace::{Kind, coresight};

pub(crate) const INSTRUCTION: u64 = 4;

pub(crate) struct Code {
    bytes: Bytes,
    /// Offset in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
    /// A kernel module's branches without a target in the instruction, by address, with that in `.text`.
    module: Option<Vec<(u64, Option<u64>)>>,
}

impl Code {
    /// A file with these segments of code: offset in the file, size, address; `module` as in the field.
    pub(crate) fn new(
        bytes: Bytes,
        segments: Vec<(u64, u64, u64)>,
        module: Option<Vec<(u64, Option<u64>)>>,
    ) -> Code {
        Code { bytes, segments, module }
    }

    /// The address to write: the offset in the file, or a module's address in `.text`, as simpleperf does.
    /// create_llvm_prof finds functions by either.
    fn shown(&self, address: u64) -> Option<u64> {
        let offset = self.offset(address)?;
        Some(if self.module.is_some() { address } else { offset })
    }

    fn branch(&self, ip: u64, waits: bool) -> Option<(Kind, Option<u64>)> {
        let (kind, target) = coresight::branch(self.word(ip)?, ip, waits)?;
        let relocated = self.module.as_ref().and_then(|branches| {
            let at = branches.binary_search_by_key(&ip, |(address, _)| *address).ok()?;
            Some(branches.get(at)?.1)
        });
        let is_fixed = matches!(kind, Kind::Conditional | Kind::Jump | Kind::Call);
        Some((kind, relocated.unwrap_or_else(|| is_fixed.then_some(target))))
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let inside = |&&(_, size, start): &&(u64, u64, u64)| address >= start && address - start < size;
        let (offset, _, start) = self.segments.iter().find(inside)?;
        offset.checked_add(address - start)
    }

    /// Advances to the next branch in the trace; returns its kind, and its target if known.
    pub(crate) fn next_branch(&self, ip: &mut u64) -> Option<(Kind, Option<u64>)> {
        loop {
            match self.branch(*ip, false) {
                Some((kind, target)) if kind != Kind::SystemCall => return Some((kind, target)),
                None if self.word(*ip).is_none() => return None,
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

#[derive(Default)]
pub(crate) struct Ranges {
    ranges: BTreeMap<(u64, u64), u64>,
    branches: BTreeMap<(u64, u64), u64>,
}

impl Ranges {
    /// Counts straight-line runs: the branch to each, its first and last instruction, and the count.
    pub(crate) fn new(
        runs: impl Iterator<Item = (Option<u64>, Option<(u64, Option<u64>)>, u64)>,
        code: &Code,
        Atoms { waits }: Atoms,
    ) -> Ranges {
        let mut found = Ranges::default();
        let branch = |ip| code.branch(ip, waits);
        for (from, run, count) in runs {
            if let (Some(from), Some((to, _))) = (from, run)
                && let Some((Kind::Conditional, _)) = branch(from)
            {
                found.branch(code, from, Some(to), count);
            }
            let Some((mut start, Some(end))) = run else { continue };
            let mut ip = start;
            while ip <= end && code.word(ip).is_some() {
                let kind = branch(ip).filter(|(kind, _)| *kind != Kind::SystemCall);
                if ip == end || kind.is_some() {
                    found.range(code, start, ip, count);
                    start = ip + INSTRUCTION;
                }
                match kind {
                    None | Some((Kind::Conditional | Kind::Barrier, _)) => {}
                    // Targets of indirect branches are not written.
                    Some((_, to)) => found.branch(code, ip, to, count),
                }
                ip += INSTRUCTION;
            }
        }
        found
    }

    fn range(&mut self, code: &Code, start: u64, end: u64, count: u64) {
        if let (Some(start), Some(end)) = (code.shown(start), code.shown(end)) {
            let sum = self.ranges.entry((start, end)).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    fn branch(&mut self, code: &Code, from: u64, to: Option<u64>, count: u64) {
        if let Some(from) = code.shown(from) {
            let to = to.and_then(|to| code.shown(to)).unwrap_or(0);
            let sum = self.branches.entry((from, to)).or_default();
            *sum = sum.saturating_add(count);
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// At 0x1000, 16 bytes from the start of the file.
    fn code(module: Option<Vec<(u64, Option<u64>)>>) -> Code {
        let words: [u32; 7] = [
            0xd503_201f, // 1000 nop
            0x5400_0040, // 1004 b.eq 100c
            0xd503_201f, // 1008 nop
            0xd503_3fdf, // 100c isb
            0xd400_0001, // 1010 svc #0
            0x97ff_fffb, // 1014 bl 1000
            0xd65f_03c0, // 1018 ret
        ];
        let bytes = [0; 16].into_iter().chain(words.into_iter().flat_map(u32::to_le_bytes));
        Code::new(Bytes::from(bytes.collect::<Vec<u8>>()), vec![(0x10, 0x1c, 0x1000)], module)
    }

    type Run = (Option<u64>, Option<(u64, Option<u64>)>, u64);

    fn text(code: &Code, runs: &[Run]) -> String {
        let ranges = Ranges::new(runs.iter().copied(), code, Atoms { waits: false });
        let mut text = Vec::new();
        ranges.write(b"prog", BuildId::new(&[0xab, 0xcd]), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn each_branch_ends_a_range_and_only_direct_ones_have_a_target() {
        let runs = [
            (Some(0x1004), Some((0x100c, Some(0x1018))), 3),
            (None, Some((0x1000, Some(0x1004))), 1),
            (Some(0x1018), Some((0x1000, None)), 5),
            (Some(0x1004), None, 5),
            (None, Some((0x1018, Some(0x1020))), u64::MAX),
        ];
        let id = format!("// build_id: 0x{:0<40}\n// prog\n\n", "abcd");
        let expected = "4\n10-14:1\n1c-1c:3\n20-24:3\n28-28:18446744073709551615\n0\n\
                        3\n14->1c:3\n24->10:3\n28->0:18446744073709551615\n";
        assert_eq!(text(&code(None), &runs), format!("{expected}{id}"));
        // Relocated branches of a module go where the relocation says, and addresses are those of its code.
        let module = code(Some(vec![(0x1014, Some(0x1004)), (0x1018, None)]));
        let expected =
            "3\n100c-100c:3\n1010-1014:3\n1018-1018:3\n0\n3\n1004->100c:3\n1014->1004:3\n1018->0:3\n";
        assert_eq!(text(&module, &runs[..1]), format!("{expected}{id}"));
    }

    #[test]
    fn the_next_branch_is_found_past_system_calls_up_to_the_end_of_the_code() {
        let code = code(None);
        let next = |mut ip: u64| (code.next_branch(&mut ip), ip);
        assert_eq!(next(0x1000), (Some((Kind::Conditional, Some(0x100c))), 0x1004));
        assert_eq!(next(0x1008), (Some((Kind::Barrier, None)), 0x100c));
        assert_eq!(next(0x1010), (Some((Kind::Call, Some(0x1000))), 0x1014));
        assert_eq!(next(0x1018), (Some((Kind::Return, None)), 0x1018));
        assert_eq!(next(0x101c), (None, 0x101c));
        assert_eq!(next(0xffc), (None, 0xffc));
    }
}
