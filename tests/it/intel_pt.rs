//! The recordings with Intel PT in tests/data/trace: perf decodes each to exactly the branches in its truth, so that they
//! can be used to test a decoder.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{perfs, root};

/// Branches by process, in order: from where to where; `-` where tracing begins or ends.
type Branches = BTreeMap<String, Vec<(String, String)>>;

/// kernel.data is not among them, because perf does not look for a vmlinux below --symfs.
const NAMES: [&str; 11] =
    ["user", "noret", "times", "ptwrite", "defer", "overflow", "halve", "switch", "cpus", "threads", "cut"];

fn truth(text: &str) -> Branches {
    let mut all = Branches::new();
    for line in text.lines() {
        if let [from, to, _kind, pid, _cpu] = line.split(' ').collect::<Vec<_>>()[..]
            && from != "#"
        {
            all.entry(pid.into()).or_default().push((from.into(), to.into()));
        }
    }
    all
}

/// Lines of `perf script -F pid,ip,addr`: the process, FROM, `=>`, TO; or without the arrow.
fn decoded(text: &str) -> Branches {
    let mut all = Branches::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "=>").collect();
        let place = |at: usize| if words[at] == "0" { "-".to_owned() } else { words[at].to_owned() };
        if words.len() == 3 {
            all.entry(words[0].into()).or_default().push((place(1), place(2)));
        }
    }
    all
}

#[test]
fn perf_decodes_each_recording_to_its_truth() {
    let folder = root().join("tests/data/trace");
    for perf in perfs(&["perf", "perf-new"]) {
        for name in NAMES {
            let input = folder.join(name).with_extension("data");
            let options = ["--itrace=b", "-F", "pid,ip,addr"];
            let decoded = decoded(&perf.script(&input, &folder.join("root"), &options).text());
            let mut truth = truth(&fs::read_to_string(input.with_extension("truth")).unwrap());
            if name == "cut" {
                // The truth goes on behind the cut.
                let (pid, branches) = decoded.first_key_value().unwrap();
                assert!(branches.len() > 100, "{}", branches.len());
                truth.get_mut(pid).unwrap().truncate(branches.len());
            }
            assert!(decoded.values().map(Vec::len).sum::<usize>() > 100, "{name}");
            assert!(decoded == truth, "{name}: {} decodes something else", perf.path().display());
        }
    }
}
