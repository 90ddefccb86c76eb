//! Counts a program's branches in branch lists of simpleperf. A list says only whether each branch was taken;
//! the program's code shows where the branches are.
//!
//! Source: AOSP, simpleperf/ETMDecoder.cpp (ConvertETMBranchMapToInstrRanges). Unlike there, an ISB has no
//! target: execution continues after it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use build_id::BuildId;
use perfx_format::branch_list::{BranchList, TracedBinary, binaries, messages};
use perfx_pipeline::{Error, Level, Report, Result, counted};
use perfx_trace::Kind;

use crate::ranges::{Code, INSTRUCTION};

pub(crate) struct Wanted<'p> {
    pub(crate) path: &'p Path,
    pub(crate) id: Option<BuildId>,
    /// The address of `_stext` in a kernel.
    pub(crate) stext: Option<u64>,
    pub(crate) code: Code,
}

/// A straight-line run: the branch to it, its first and its last instruction.
pub(crate) type ListedRun = (Option<u64>, u64, Option<u64>);

/// Calls `take` for each program's list in these bytes, with its path, the runs, and their count.
pub(crate) fn each_list(
    bytes: &[u8],
    name: &str,
    wanted: &Wanted<'_>,
    report: &mut Report,
    mut take: impl FnMut(&[u8], Vec<ListedRun>, u64),
) -> Result<()> {
    let fail = |what: &str| Error::new(format!("{name}: {what}"));
    let (mut others, mut thumb, mut is_there, mut stacks) = (0_u64, 0_u64, false, false);
    for message in messages(bytes).map_err(|error| fail(&error.to_string()))? {
        let (binaries, has_stacks) =
            binaries(&message).ok_or_else(|| fail("the branch list ends within a field"))?;
        stacks |= has_stacks;
        for binary in &binaries {
            let Some(shift) = shift(binary, wanted) else {
                others += 1;
                continue;
            };
            is_there = true;
            for list in &binary.lists {
                if list.address & 1 == 0 {
                    take(binary.path, each_run(list, shift, &wanted.code), list.count);
                } else {
                    thumb += 1;
                }
            }
        }
    }
    if !is_there {
        let (others, path) = (counted(others, "file", "files"), wanted.path.display());
        report.say(Level::Loss, format!("{name}: has branches of {others}, but not of {path}"));
    }
    if thumb > 0 {
        report.say(Level::Loss, format!("{name}: {} of 32-bit Arm code", counted(thumb, "list", "lists")));
    }
    if stacks {
        report.say(Level::Loss, format!("{name}: branch stacks in a branch list, which perfx does not read"));
    }
    Ok(())
}

/// The difference between addresses in a binary's lists and in the program; `None` for another program.
fn shift(binary: &TracedBinary<'_>, wanted: &Wanted<'_>) -> Option<u64> {
    let name = Path::new(OsStr::from_bytes(binary.path)).file_name();
    let is_own = match wanted.id.filter(|_| !binary.build_id.is_empty()) {
        Some(own) => {
            let hex = str::from_utf8(binary.build_id).ok();
            hex.and_then(|hex| BuildId::from_hex(hex).ok()) == Some(own)
        }
        None => name == wanted.path.file_name(),
    };
    match binary.kernel_start {
        _ if !is_own => None,
        start if binary.is_kernel && start > 0 => Some(wanted.stext?.wrapping_sub(start)),
        _ => Some(0),
    }
}

fn each_run(list: &BranchList<'_>, shift: u64, code: &Code) -> Vec<ListedRun> {
    let mut runs = Vec::new();
    let (mut from, mut last) = (None, None);
    let mut start = list.address.wrapping_add(shift);
    let mut ip = start;
    for is_taken in list.taken() {
        let Some((kind, target)) = code.next_branch(&mut ip) else { break };
        last = Some(ip);
        match (kind, target) {
            (Kind::Conditional | Kind::Jump | Kind::Call, Some(target)) if is_taken => {
                runs.push((from, start, last.take()));
                (from, start, ip) = (Some(ip), target, target);
            }
            (Kind::Conditional | Kind::Barrier, _) if !is_taken || kind == Kind::Barrier => {
                ip = ip.wrapping_add(INSTRUCTION)
            }
            // A list ends at a branch whose target is not in the code.
            _ => break,
        }
    }
    runs.push((from, start, last));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_build_id_or_else_by_its_name() {
        let id = BuildId::new(&[7; 20]).unwrap();
        let hex = id.to_string();
        let of = |binary: TracedBinary<'_>, own: Option<BuildId>, stext| {
            let code = Code::new(Vec::new().into(), Vec::new(), None);
            shift(&binary, &Wanted { path: Path::new("/a/prog"), id: own, stext, code })
        };
        let binary = |path, build_id| {
            let mut binary = TracedBinary::default();
            (binary.path, binary.build_id) = (path, build_id);
            binary
        };
        let kernel = |is_kernel, kernel_start| {
            let mut kernel = binary(b"/x/prog", b"");
            (kernel.is_kernel, kernel.kernel_start) = (is_kernel, kernel_start);
            kernel
        };
        assert_eq!(of(binary(b"/x/prog", b""), Some(id), None), Some(0));
        assert_eq!(of(binary(b"/x/other", b""), Some(id), None), None);
        assert_eq!(of(binary(b"/x/other", hex.as_bytes()), Some(id), None), Some(0));
        assert_eq!(of(binary(b"/x/prog", b"0808"), Some(id), None), None);
        assert_eq!(of(binary(b"/x/prog", b"?"), Some(id), None), None);
        assert_eq!(of(binary(b"/x/prog", hex.as_bytes()), None, None), Some(0));
        assert_eq!(of(kernel(true, 0x100), None, Some(0x500)), Some(0x400));
        assert_eq!((of(kernel(true, 0x100), None, None), of(kernel(true, 0), None, None)), (None, Some(0)));
        assert_eq!(of(kernel(false, 1), None, Some(0x500)), Some(0));
    }
}
