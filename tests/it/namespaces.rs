//! Namespaces: `perfx list namespaces` and `--netns`, `--pidns` and so on agree with perf's output for
//! NAMESPACES records.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value as Json;

use crate::args;
use crate::stats::conforms;
use crate::support::{Fixture, Perf, Stdin, clean, perf, perfx, run, skipped, temp};
use crate::tiny;

/// For each kind and inode the samples of the threads in it, from the lines of perf script.
fn counted(perf: &Perf, path: &Path) -> BTreeMap<(String, u64), u64> {
    let line = args!["script", "--show-namespace-events", "-F", "comm,pid,tid,time,event", "-i", path];
    let text = perf.run(Stdin::Null, line).text();
    let given = Regex::new(r"PERF_RECORD_NAMESPACES \d+/(\d+)").unwrap();
    let namespace = Regex::new(r"\d/([a-z]+): \d+/0x([0-9a-f]+)").unwrap();
    let sample = Regex::new(r"^.* \d+/(\d+) +[\d.]+: [a-z-]+:").unwrap();
    let mut all: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut of_threads: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    let mut thread = String::new();
    for line in text.lines() {
        if let Some(found) = given.captures(line) {
            thread = found[1].to_owned();
            of_threads.insert(thread.clone(), Vec::new());
        } else if namespace.is_match(line) {
            for found in namespace.captures_iter(line) {
                let inode = u64::from_str_radix(&found[2], 16).unwrap();
                all.entry((found[1].to_owned(), inode)).or_default();
                of_threads.get_mut(&thread).unwrap().push((found[1].to_owned(), inode));
            }
        } else if let Some(found) = sample.captures(line) {
            for namespace in of_threads.get(&found[1]).into_iter().flatten() {
                *all.get_mut(namespace).unwrap() += 1;
            }
        }
    }
    all
}

fn rows(path: &Path) -> Vec<Json> {
    let ran = perfx(args!["list", "namespaces", "-q", "--json", path]);
    let document: Json = serde_json::from_slice(&ran.stdout).unwrap();
    conforms("list", &document).unwrap();
    document["rows"].as_array().unwrap().clone()
}

fn listed(path: &Path) -> BTreeMap<(String, u64), u64> {
    let text = |row: &Json, name: &str| row[name].as_str().unwrap().to_owned();
    let key = |row: &Json| (text(row, "kind"), text(row, "inode").parse().unwrap());
    rows(path).iter().map(|row| (key(row), row["samples"].as_u64().unwrap())).collect()
}

fn check(perf: &Perf, path: &Path) {
    let (ours, theirs) = (listed(path), counted(perf, path));
    assert!(theirs.len() >= 7, "{theirs:?}");
    assert_eq!(ours, theirs, "{} of {}", path.display(), perf.name);
    for ((kind, inode), samples) in &ours {
        let option = format!("--{kind}ns={inode}");
        let count = perfx(args!["view", "-q", "--foreign", "--count", option, path]);
        assert_eq!(count.text().trim(), samples.to_string(), "{option}");
    }
}

#[test]
fn samples_of_namespaces_are_those_that_perf_script_shows() {
    for (perf_name, name) in
        [("perf", "namespaces.p61"), ("perf", "allbits.p61"), ("perf-new", "namespaces.p73")]
    {
        let Some(perf) = perf(perf_name) else { continue };
        check(&perf, &Fixture::new(&format!("recorded/{name}.data")).path);
    }
}

/// A fresh recording of a program that runs in its own network, then in several namespaces of its own.
#[test]
fn namespaces_of_a_fresh_recording_are_those_of_perf() {
    let Some(perf) = perf("perf") else { return };
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("busy.sh"), "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo $(sh -c 'exit 3')\n")
        .unwrap();
    let busy = format!("sh {}", path("busy.sh").display());
    let script = format!("{busy}; unshare -n {busy}; unshare -m -u -n -p -f {busy}");
    let mut unshare = clean("unshare");
    if run(unshare.args(["-n", "true"]), Stdin::Null).code != Some(0) {
        return skipped("unshare does not work here");
    }
    let recording: PathBuf = path("perf.data");
    let line = args![
        "record", "-q", "-B", "--namespaces", "-e", "cpu-clock", "-F", "2000", "-o", recording, "sh", "-c",
        script
    ];
    if perf.run(Stdin::Null, line).code != Some(0) {
        return skipped("perf record does not work here");
    }
    check(&perf, &recording);
    let nets: Vec<u64> = listed(&recording)
        .into_iter()
        .filter(|((kind, _), _)| kind == "net")
        .map(|(_, samples)| samples)
        .collect();
    assert!(nets.len() == 3 && nets.iter().all(|&samples| samples > 0), "{nets:?}");
    // A cut part has the same namespaces.
    let inode = listed(&recording).into_keys().rfind(|(kind, _)| kind == "net").unwrap().1;
    let (option, cut) = (format!("--netns={inode}"), path("cut.data"));
    perfx(args!["filter", "-q", option, recording, "-o", cut]).done().unwrap();
    check(&perf, &cut);
}

/// NAMESPACES of a thread: seven kinds, each with the inode of the number.
fn namespaces(tid: u32, inode: u64) -> Vec<u8> {
    let mut words = vec![u64::from(tid) << 32 | u64::from(tid), 7];
    (0..7).for_each(|kind| words.extend([4, inode + kind]));
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    tiny::record(16, 0, &body)
}

/// A thread has the namespaces of its parent, unless a record changes them.
#[test]
fn a_forked_thread_inherits_its_namespaces() {
    let folder = temp();
    let path = folder.path().join("perf.data");
    let fork = |child: u32, parent: u32, time: u64| {
        let words = [child, parent, child, parent].map(u32::to_le_bytes).concat();
        tiny::record(7, 0, &[&words[..], &time.to_le_bytes()].concat())
    };
    let data = [
        namespaces(5, 100),
        tiny::sample(5, 10),
        fork(6, 5, 20),
        fork(7, 6, 30),
        tiny::sample(7, 40),
        tiny::sample(8, 50),
    ];
    fs::write(&path, tiny::file(tiny::IP | tiny::TID | tiny::TIME, 0, &data.concat(), &[])).unwrap();
    let list = perfx(args!["list", "namespaces", path]);
    assert!(list.stderr.contains("1 sample is in no row"), "{}", list.stderr);
    assert_eq!(listed(&path)[&("net".to_owned(), 100)], 2);
    let view = |option: &str| perfx(args!["view", "-q", "-F", "tid", option, path]).text();
    assert_eq!(view("--cgroupns=106,9").split_whitespace().collect::<Vec<_>>(), ["5", "7"]);
    let none = perfx(args!["view", "--pidns=100", path]);
    assert_eq!(none.code, Some(3));
    assert!(none.stderr.contains("no task is in such a namespace (--pidns); it has 103"), "{}", none.stderr);
}

#[test]
fn a_recording_without_namespaces_says_so() {
    let path = Fixture::new("recorded/plain.p61.data").path;
    let ran = perfx(args!["filter", "--netns", "4026531840", path, "-o", "/dev/null"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("perf record --namespaces"), "{}", ran.stderr);
    let ran = perfx(args!["filter", "--netns", "net:[5]", path, "-o", "/dev/null"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}
