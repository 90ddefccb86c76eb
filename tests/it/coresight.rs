//! The recordings with CoreSight in tests/data/trace: perf, with OpenCSD, decodes each to the branches in its truth, so
//! that they can be used to test a decoder.

use std::fs;

use crate::support::{perfs, root};

/// From where to where; `-` where tracing begins or ends.
type Branch = (String, String);

/// perf cannot be asked about the others: it does not look for a vmlinux below --symfs (etm-kernel), ends at the last
/// timestamp (etm-times, etm-cycles), mixes what two CPUs did (etm-cpus), goes on after an overflow at the next
/// synchronization only (etm-overflow), and omits a branch if nothing was executed between it and an interrupt
/// (etm-interrupt, etm-threads).
const NAMES: [&str; 8] = [
    "etm-user", "etm-signal", "etm-raw", "etm-ete", "etm-stack", "etm-context", "etm-speculation", "etm-cut",
];

fn truth(text: &str) -> Vec<Branch> {
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.filter(|words| words.len() == 5).map(|words| (words[0].into(), words[1].into())).collect()
}

/// Lines of `perf script -F ip,addr`: FROM, `=>`, TO; or without the arrow.
fn decoded(text: &str) -> Vec<Branch> {
    let place = |word: &str| if word == "0" { "-".to_owned() } else { word.to_owned() };
    let lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "=>").collect();
        let [from, to] = words[..] else { return None };
        Some((place(from), place(to)))
    });
    lines.collect()
}

#[test]
fn perf_decodes_each_recording_to_its_truth() {
    let folder = root().join("tests/data/trace");
    for perf in perfs(&["perf-new"]) {
        for name in NAMES {
            let input = folder.join(name).with_extension("data");
            let options = ["--itrace=b", "-F", "ip,addr"];
            let mut decoded = decoded(&perf.script(&input, &folder.join("root"), &options).text());
            let mut truth = truth(&fs::read_to_string(input.with_extension("truth")).unwrap());
            // perf does not show the last line, which is that the program ended.
            assert!(truth.pop().is_some_and(|(_, to)| to == "-"), "{name}");
            if name == "etm-cut" {
                // The truth goes on behind the cut, where perf ends tracing.
                decoded.truncate(500);
                truth.truncate(500);
            }
            assert!(decoded.len() >= 500, "{name}: {}", decoded.len());
            assert!(decoded == truth, "{name}: {} decodes something else", perf.path().display());
        }
    }
}
