//! The call stacks that hiperf keeps in a feature are shown like call chains in samples.

use std::path::Path;

use perfx_format::{Feature, MappedFile, RecordType, sample_type as st};

use crate::args;
use crate::maker::{LE, Maker, PLAIN, USER, event};
use crate::support::{perfx, temp};

/// The table of process 7: index, address and caller of each frame.
const FRAMES: [(u32, u64, u64); 3] = [(4, 0x10_1000, 0), (9, 0x10_2000, 4), (2, 0x10_3000, 9)];

/// A recording with samples of these stacks: index of the innermost frame and number of frames; 0: bytes of
/// the stack are missing.
fn recorded(path: &Path, stacks: &[(u64, u64)]) {
    of_process(path, &FRAMES, stacks);
}

fn of_process(path: &Path, frames: &[(u32, u64, u64)], stacks: &[(u64, u64)]) {
    let mut maker = Maker::new(path, &[event(PLAIN | st::CALLCHAIN, Vec::new())]);
    let mut table = [1, 7, 1 << 22, frames.len() as u32].map(u32::to_le_bytes).concat();
    for (index, address, caller) in frames {
        table.extend(index.to_le_bytes());
        table.extend((address | caller << 40).to_le_bytes());
    }
    maker.writer.set_feature(Feature::HIPERF_STACK_TABLE, table).unwrap();
    maker.comm(7, "prog", 0);
    maker.mmap2(7, 0x10_0000, 0x10_000, MappedFile::BuildId(&[7; 20]), "/bin/prog");
    for (index, count) in stacks {
        let end = maker.trailer(RecordType::SAMPLE, 7);
        let stack = LE.bytes_u64(index | count << 23);
        let stack = if *count == 0 { &[][..] } else { &stack };
        let parts = [&LE.bytes_u64(0x10_3000)[..], &end, &[0; 8], stack];
        maker.writer.write_parts(RecordType::SAMPLE, USER, &parts).unwrap();
        maker.time += 1;
    }
    maker.writer.finish().unwrap();
}

/// They were dropped with exit code 0.
#[test]
fn stacks_in_the_table_of_hiperf_are_call_chains() {
    let folder = temp();
    let data = folder.path().join("in.data");
    recorded(&data, &[(2, 3), (2, 3), (4, 1)]);
    let folded = perfx(args!["export", "folded", "--foreign", "--addrs", data, "-o", "-"]);
    assert_eq!(folded.code, Some(0), "{}", folded.stderr);
    let expected = "prog;[prog <1000>] 1000\nprog;[prog <1000>];[prog <2000>];[prog <3000>] 2000\n";
    assert_eq!(folded.text(), expected);
    let view = perfx(args!["view", "--foreign", "-F", "ip", data]);
    assert_eq!(view.code, Some(0), "{}", view.stderr);
    let addresses: Vec<String> = view.text().split_whitespace().map(str::to_owned).collect();
    assert_eq!(addresses, ["103000", "102000", "101000", "103000", "102000", "101000", "101000"]);
    let json = perfx(args!["view", "--json", "--foreign", "-F", "ip", data]).text();
    assert_eq!(json.matches("102000").count(), 2, "{json}");
}

#[test]
fn a_stack_that_the_table_of_hiperf_lacks_is_a_loss() {
    let folder = temp();
    let data = folder.path().join("in.data");
    // Without a caller in the table, of another index, and a sample without a stack.
    recorded(&data, &[(2, 3), (3, 3), (0, 0)]);
    for line in [
        args!["export", "folded", "--foreign", data, "-o", "-"].to_vec(),
        args!["export", "pprof", "--foreign", data, "-f", "-o", folder.path().join("out")].to_vec(),
        args!["list", "stacks", "--foreign", data].to_vec(),
        args!["view", "--foreign", data].to_vec(),
        args!["view", "--json", "--foreign", data].to_vec(),
    ] {
        let ran = perfx(line.clone());
        let lost = "lost: 1 call chain is cut off, or some of its frames are not in the recording";
        assert!(ran.code == Some(3) && ran.stderr.contains(lost), "{line:?}: {}", ran.stderr);
    }
}

/// Its samples got the call stacks of the first recording.
#[test]
fn recordings_with_other_stacks_of_a_process_are_not_joined() {
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    recorded(&at("one.data"), &[(2, 3)]);
    recorded(&at("same.data"), &[(4, 1)]);
    of_process(&at("other.data"), &[(2, 0x10_9000, 0)], &[(2, 1)]);
    let join = |other: &str| perfx(args!["join", "-f", at("one.data"), at(other), "-o", at("out.data")]);
    let ran = join("same.data");
    assert!(ran.code == Some(0), "{}", ran.stderr);
    let ran = join("other.data");
    let said = "has other call stacks of a process than those of the inputs before it";
    assert!(ran.code == Some(1) && ran.stderr.contains(said), "{}", ran.stderr);
}

/// Regression: unread parts of the tables were not reported.
#[test]
fn doctor_finds_tables_of_hiperf_that_end_early() {
    let folder = temp();
    let data = folder.path().join("in.data");
    let mut maker = Maker::new(&data, &[event(PLAIN | st::CALLCHAIN, Vec::new())]);
    let table = [1, 7, 1 << 22, 2, 4, 0x1000, 0].map(u32::to_le_bytes).concat();
    maker.writer.set_feature(Feature::HIPERF_STACK_TABLE, table).unwrap();
    maker.writer.finish().unwrap();
    let ran = perfx(args!["doctor", data]);
    assert!(ran.code == Some(3) && ran.text().contains("it ends within a table"), "{}", ran.text());
}
