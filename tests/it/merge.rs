//! Checks merges of host and guest, with the pair in tests/data/guests, and with all pairs below
//! /tmp/perfx-data/guest, if there are any.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use perfx_format::{Layouts, RecordType};
use tempfile::TempDir;

use self::check::{Loaded, check, clock_said, differences, holds, load, u64_at};

use crate::support::{
    Perf, Ran, Stdin, Tier, each, perf, perfs, perfx, perfx_command, root, run, same_bytes, skipped, temp,
};
use crate::{args, tiers};

/// The process of tests/data/guests that ran the guest, and its threads.
const PID: u32 = 31188;
const THREADS: [u32; 2] = [31314, 31315];

fn pair() -> TempDir {
    let folder = temp();
    for name in ["host.data", "guest.data"] {
        let packed = File::open(root().join("tests/data/guests").join(format!("{name}.zst"))).unwrap();
        fs::write(folder.path().join(name), zstd::decode_all(packed).unwrap()).unwrap();
    }
    folder
}

fn merge(host: &Path, guest: &str, output: &Path) -> Ran {
    perfx(args!["merge", host, guest, "-f", "--to", "file", "-o", output])
}

/// The guest of the pair, for `merge`. In a quick run with its clock: to find it takes a second.
fn guest_of_pair(tier: Tier, guest: PathBuf) -> String {
    format!("{}{}", guest.display(), tier.pick(",offset=-14026330256359,scale=2.5961349024293154", ""))
}

#[test]
fn the_pair_satisfies_all_assertions_and_its_offset_is_found() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let ran = merge(&path("host.data"), path("guest.data").to_str().unwrap(), &path("merged.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let clock = clock_said(&ran.stderr).expect("an offset is said");
    check(&load(&path("host.data")), &load(&path("guest.data")), &load(&path("merged.data")), PID, clock)
        .unwrap();
    // Within 10 µs of the offset measured by reading the TSC on host and guest in turns.
    assert!((clock.1 - 2.596135).abs() < 1e-5, "{}", clock.1);
}

/// Real pairs: folder, guest's folder.
fn real_pairs() -> Vec<(PathBuf, PathBuf)> {
    let mut pairs = Vec::new();
    let Ok(folders) = fs::read_dir("/tmp/perfx-data/guest") else {
        skipped("real pairs of host and guest, for record-guest.sh was not run");
        return pairs;
    };
    for folder in folders.map(|folder| folder.unwrap().path()) {
        for guest in ["g1", "g2"].map(|guest| folder.join(guest)) {
            let done = |name: &str| guest.join(name).exists();
            if folder.join("host.data").exists() && done("guest.data") && done("qemu.pid") {
                pairs.push((folder.clone(), guest));
            }
        }
    }
    pairs.sort();
    pairs
}

#[test]
fn real_pairs_satisfy_all_assertions() {
    let pairs = real_pairs();
    if pairs.is_empty() {
        return;
    }
    let perfs = perfs(&["perf", "perf-trixie", "perf-new"]);
    let name = |(_, guest): &(PathBuf, PathBuf)| guest.display().to_string();
    each(&pairs, name, |(folder, guest)| {
        let out = temp();
        let (host, merged) = (folder.join("host.data"), out.path().join("merged.data"));
        let pid: u32 = fs::read_to_string(guest.join("qemu.pid")).unwrap().trim().parse().unwrap();
        let given = |more: &str| format!("{},pid={pid}{more}", guest.join("guest.data").display());
        let mut ran = merge(&host, &given(""), &merged);
        if ran.code == Some(1) {
            // Refused with a sentence: no switch records on the host, or no time in the guest.
            let told = fs::read_to_string(guest.join("time.json")).unwrap_or_default();
            let number = |name: &str| {
                let (_, rest) = told.split_once(&format!("\"{name}\": "))?;
                Some(rest.split([',', '\n']).next()?.trim().to_owned())
            };
            let sentence =
                ["does not show when its VCPUs ran", "no time"].iter().any(|part| ran.stderr.contains(part));
            holds(sentence && ran.stderr.lines().count() == 1, || ran.stderr.clone())?;
            let (Some(offset), Some(scale)) = (number("offset"), number("scale")) else { return Ok(()) };
            ran = merge(&host, &given(&format!(",offset={offset},scale={scale}")), &merged);
            if ran.code == Some(1) && ran.stderr.contains("no time") {
                return Ok(());
            }
        }
        let ran = ran.done()?;
        let clock = clock_said(&ran.stderr).ok_or("no offset is said")?;
        let loaded = load(&host);
        check(&loaded, &load(&guest.join("guest.data")), &load(&merged), pid, clock)?;
        // perf 6.1 merges these correctly: hosts with an IDENTIFIER, neither recording compressed or pipe
        // data, no tracepoints.
        let simple = ["02", "03", "04", "07", "13", "14", "15", "24", "26", "27"];
        let number = folder.file_name().unwrap_or_default().to_string_lossy()[..2].to_owned();
        if let Some(perf) = perfs.iter().find(|perf| perf.name == "perf" && simple.contains(&&*number))
            && let Some(found) = against_perf(perf, &host, &guest.join("guest.data"), pid, &merged, clock)
        {
            let known = |what: &&String| what.ends_with("another CPU") || what.ends_with("another id lost");
            let unknown: Vec<_> = found.iter().filter(|(what, _)| !known(what)).collect();
            holds(unknown.is_empty(), || format!("differs from perf's: {unknown:?}"))?;
        }
        for perf in &perfs {
            let question = ["script", "--show-task-events", "-F", "+machine_pid,+vcpu", "-i"];
            let mut all: Vec<std::ffi::OsString> = question.iter().map(Into::into).collect();
            all.push(merged.clone().into());
            let said = perf.run(Stdin::Null, all);
            // It refuses the larger attrs of a newer perf, merged or not; and it may report losses of the
            // recordings themselves.
            let newer = said.stderr.contains("incompatible file format")
                && load(&merged).events.iter().any(|event| event.raw().len() > 136);
            let quiet = said.stderr.trim().is_empty() || said.stderr.contains("Check IO/CPU overload");
            let shown = said.text().contains("VM:");
            holds(newer || said.code == Some(0) && quiet && shown, || {
                format!("{}: {:?} {}", perf.name, said.code, said.stderr)
            })?;
        }
        Ok(())
    });
}

/// The guest with two VCPUs can only belong to the process with two; so the other guest belongs to the other
/// process, in any order of the arguments.
#[test]
fn guests_find_their_processes_in_any_order() {
    let folder = Path::new("/tmp/perfx-data/guest/04-two");
    if !real_pairs().iter().any(|(found, _)| found == folder) {
        return;
    }
    for guests in [["g1", "g2"], ["g2", "g1"]] {
        let guests = guests.map(|guest| folder.join(guest).join("guest.data"));
        let ran = perfx(args!["merge", "-n", folder.join("host.data"), guests[0], guests[1]]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
}

/// The differences between perf's merge of a pair and perfx's; `None` if perf crashes, as it does from 6.12
/// on.
fn against_perf(
    perf: &Perf,
    host: &Path,
    guest: &Path,
    pid: u32,
    merged: &Path,
    clock: (i64, f64),
) -> Option<BTreeMap<String, usize>> {
    let out = temp();
    let out = out.path().join("perf.data");
    let data = format!("--guest-data={},{pid},{},{}", guest.display(), clock.0, clock.1);
    let said = perf.run(Stdin::Null, args!["inject", "-i", host, "-o", out, data]);
    if said.code != Some(0) {
        assert!(said.code.is_none(), "{}", said.stderr);
        return None;
    }
    let (ours, theirs) = (load(merged), load(&out));
    assert_eq!(ours.events, theirs.events);
    Some(differences(&ours, &theirs))
}

#[test]
fn perf_merges_the_same_records_except_for_its_faults() {
    let Some(perf) = perf("perf") else { return };
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let ran = merge(&path("host.data"), path("guest.data").to_str().unwrap(), &path("merged.data"));
    let clock = clock_said(&ran.stderr).unwrap();
    let (host, guest, merged) = (path("host.data"), path("guest.data"), path("merged.data"));
    if let Some(found) = against_perf(&perf, &host, &guest, PID, &merged, clock) {
        // This host has SWITCH records, for which perf finds the right CPU by chance; for SWITCH_CPU_WIDE it
        // does not.
        assert_eq!(found, BTreeMap::new());
    }
}

#[test]
fn guests_in_any_order_give_the_same_records() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let clock = ",offset=-14026330256359,scale=2.5961349024293154";
    let first = format!("{},pid={PID}{clock}", path("guest.data"));
    // The same guest, as if another process ran it.
    let second = format!("{},pid=7,vcpu=0:{},vcpu=1:{}{clock}", path("guest.data"), THREADS[0], THREADS[1]);
    let merge = |input: &str, guests: &[&str], output: &str, threads: &str| {
        let mut line = args!["merge", "-@", threads, "-f", "-o", path(output), path(input)].to_vec();
        line.extend(guests.iter().map(Into::into));
        let ran = perfx(line);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    merge("host.data", &[&first], "1", "1");
    merge("1", &[&second], "12", "1");
    merge("host.data", &[&second], "2", "2");
    merge("2", &[&first], "21", "2");
    merge("host.data", &[&first, &second], "both", "1");
    merge("host.data", &[&first, &second], "both4", "4");
    same_bytes("threads", &fs::read(path("both")).unwrap(), &fs::read(path("both4")).unwrap()).unwrap();
    let records = |name: &str| {
        let loaded = load(Path::new(&path(name)));
        let guests: BTreeSet<u64> = loaded.events[2..].iter().flat_map(|event| event.ids.clone()).collect();
        let mut records: Vec<_> = loaded
            .records
            .into_iter()
            .filter(|record| record.kind != RecordType::ID_INDEX)
            .map(|record| {
                let id = if guests.contains(&record.id) { 0 } else { record.id };
                (record.kind, record.misc, record.time, id, record.cpu, record.task, record.body)
            })
            .collect();
        records.sort();
        records
    };
    let both = records("both");
    for other in ["12", "21"] {
        assert!(records(other) == both, "{other} has other records than both at once");
    }
}

#[test]
fn a_merge_through_pipes_has_the_same_records() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let guest = path("guest.data");
    let ran = merge(&path("host.data"), guest.to_str().unwrap(), &path("merged.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let host = perfx(args!["copy", path("host.data"), "--to", "pipe"]).stdout;
    let guest_pipe = path("guest.pipe");
    fs::write(&guest_pipe, perfx(args!["copy", guest, "--to", "pipe"]).stdout).unwrap();
    let piped = run(perfx_command().args(args!["merge", "-", guest_pipe]), Stdin::Pipe(&host));
    assert_eq!(piped.code, Some(0), "{}", piped.stderr);
    fs::write(path("merged.pipe"), &piped.stdout).unwrap();
    let bytes =
        |name: &str| -> Vec<_> { load(&path(name)).records.into_iter().map(|record| record.bytes).collect() };
    let front = load(&path("merged.pipe")).events;
    assert_eq!(front, load(&path("merged.data")).events);
    // In pipe data, event names are records.
    let (file, pipe) = (bytes("merged.data"), bytes("merged.pipe"));
    let is_made = |bytes: &&Vec<u8>| !matches!(bytes[0], 64..=68 | 78 | 80) || bytes[0] == 68;
    assert!(file.iter().filter(is_made).eq(pipe.iter().filter(is_made)), "not the same records");
    for perf in perfs(&["perf", "perf-trixie", "perf-sid", "perf-new"]) {
        if !perf.can_read(&path("host.data")) {
            continue;
        }
        let said = perf.run(
            Stdin::Pipe(&piped.stdout),
            ["script", "-i", "-", "--show-task-events", "-F", "+machine_pid,+vcpu"],
        );
        assert!(said.code == Some(0) && said.text().contains("VM:31188"), "{}: {}", perf.name, said.stderr);
    }
}

/// perf reports no error for a merged recording, and shows the guest's records. (Unless it cannot read the
/// host alone, or an attr is from a newer perf, which it accepts in pipe data only.)
fn perf_reads(perf: &Perf, host: &Path, merged: &Path, least: usize) -> Result<(), String> {
    let newer = load(merged).events.iter().any(|event| event.raw().len() > 128);
    if newer || !perf.can_read(host) {
        return Ok(());
    }
    let question = ["script", "--show-task-events", "--show-mmap-events", "-F", "+machine_pid,+vcpu", "-i"];
    let mut all: Vec<std::ffi::OsString> = question.iter().map(Into::into).collect();
    all.push(merged.into());
    let said = perf.run(Stdin::Null, all);
    let bad = ["out of order", "non matching", "incompatible", "Can't parse", "unknown"];
    let wrong = bad.iter().any(|part| said.stderr.contains(part));
    holds(!wrong && said.code == Some(0) && said.text().matches("VM:").count() >= least, || {
        format!(
            "{} shows {} records of guests: {}",
            perf.name,
            said.text().matches("VM:").count(),
            said.stderr
        )
    })
}

/// The merge succeeds, or is refused with one of these sentences.
fn done_or_refused(ran: Ran, known: &[&str]) -> Result<Option<Ran>, String> {
    if ran.code != Some(1) {
        return ran.done().map(Some);
    }
    let sentence = known.iter().any(|part| ran.stderr.contains(part)) && ran.stderr.lines().count() == 1;
    holds(sentence, || ran.stderr.clone()).map(|()| None)
}

/// The reasons why a host or a guest may be unsuitable, as in the errors.
const UNFIT: [&str; 10] = [
    "no sample_id", "event id", "missing", "too few", "ends inside", "reaches past", "larger than",
    "killed before", "zstd can't", "no event",
];

tiers!(hosts_of_every_age_and_form_are_read_by_perf);
/// Hosts of all forms, without IDENTIFIER, with one or several events, and without FINISHED_INIT.
fn hosts_of_every_age_and_form_are_read_by_perf(tier: Tier) {
    let folder = pair();
    let Some(perf) = perf("perf") else { return };
    let spec = format!(
        "{},pid=1,vcpu=0:1,vcpu=1:2,offset=-14026330256359,scale=2.5961349024293154",
        folder.path().join("guest.data").display()
    );
    crate::support::each_fixture(&tier.of(crate::support::recorded()), |host| {
        let merged = temp();
        let merged = merged.path().join("merged.data");
        let known = [&["has a time"][..], &UNFIT].concat();
        match done_or_refused(merge(&host.path, &spec, &merged), &known)? {
            Some(_) => perf_reads(&perf, &host.path, &merged, 100),
            None => Ok(()),
        }
    });
}

tiers!(guests_of_every_age_and_form_are_read_by_perf);
/// Guests of all forms: files, pipes, directories, compressed ones, by perf 5.10 to 7.3.
fn guests_of_every_age_and_form_are_read_by_perf(tier: Tier) {
    let Some(perf) = perf("perf") else { return };
    let host = crate::support::Fixture::new("recorded/switch.p61.data").path;
    let vcpus: String = (0..64).map(|vcpu| format!(",vcpu={vcpu}:{}", vcpu + 1)).collect();
    let merged_some = AtomicUsize::new(0);
    crate::support::each_fixture(&tier.of(crate::support::recorded()), |guest| {
        let out = temp();
        let merged = out.path().join("merged.data");
        let spec = format!("{},pid=1,offset=0,scale=1{vcpus}", guest.path.display());
        let known = [&["no time", "none of its records can be merged"][..], &UNFIT].concat();
        if done_or_refused(merge(&host, &spec, &merged), &known)?.is_none() {
            return Ok(());
        }
        merged_some.fetch_add(1, Ordering::Relaxed);
        perf_reads(&perf, &host, &merged, 1)
    });
    assert!(merged_some.into_inner() > tier.pick(10, 100), "most recordings can be merged");
}

fn say(folder: &Path, line: &[&str]) -> String {
    let ran = run(perfx_command().current_dir(folder).env("NO_COLOR", "1").args(line), Stdin::Null);
    let mut text = format!("$ perfx {}\n{}{}", line.join(" "), ran.text(), ran.stderr);
    if ran.code != Some(0) {
        text += &format!("(exit code {})\n", ran.code.unwrap());
    }
    text
}

fn same(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/merge"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn what_a_merge_says_and_every_refusal() {
    let folder = pair();
    let dir = folder.path();
    fs::write(dir.join("empty.data"), b"").unwrap();
    fs::copy(root().join("tests/data/crafted/attr-128-be.data"), dir.join("big-endian.data")).unwrap();
    let ran = run(
        perfx_command().current_dir(dir).args(["merge", "host.data", "guest.data", "-o", "merged.data"]),
        Stdin::Null,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: &[&[&str]] = &[
        &["merge", "-n", "host.data", "guest.data"],
        &[
            "merge",
            "-n",
            "--samples",
            "--all",
            "host.data",
            "guest.data,offset=-14026330256359,scale=2.596135",
        ],
        &["merge", "-n", "host.data", "guest.data,31188,-14126330256359,2.596135"],
        &["merge", "-n", "host.data", "guest.data,31188,140263302563590,2.596135"],
        &["inject", "-n", "host.data", "--guest-data=guest.data,31188,-14026330256359,2.596135"],
        &["merge", "-n", "host.data"],
        &["merge", "-n", "host.data", "guest.data,pid=0"],
        &["merge", "-n", "host.data", "guest.data,1,2,3,4"],
        &["merge", "-n", "host.data", "guest.data,scale=0"],
        &["merge", "-n", "host.data", "guest.data,root=nowhere"],
        &["merge", "-n", "host.data", "guest.data,pid=12"],
        &["merge", "-n", "host.data", "guest.data,pid=12,vcpu=0:12"],
        &["merge", "-n", "host.data", "guest.data,pid=12,vcpu=0:12,vcpu=1:13"],
        &["merge", "-n", "host.data", "guest.data,pid=12", "guest.data,pid=12"],
        &["merge", "-n", "host.data", "guest.data", "guest.data"],
        &["merge", "-n", "merged.data", "guest.data"],
        &["merge", "-n", "merged.data", "guest.data,pid=31188"],
        &["merge", "-n", "guest.data", "host.data"],
        &["merge", "-n", "host.data", "big-endian.data,pid=1"],
        &["merge", "-n", "host.data", "empty.data"],
        &["merge", "-n", "host.data", "missing.data"],
        &["merge", "-n", "host.data", "."],
        &["run", "-p", "merge", "-n", "host.data"],
    ];
    let text: Vec<_> = lines.iter().map(|line| say(dir, line)).collect();
    same("said", &text.join("\n"));
}

#[test]
fn clocks_are_distinguished_and_related_by_wall_clocks() {
    let folder = pair();
    let dir = folder.path();
    // The guest as if recorded with -k CLOCK_MONOTONIC: flag 25 of its attrs, and the clock's number.
    let mut bytes = fs::read(dir.join("guest.data")).unwrap();
    let word = |bytes: &[u8], at: usize| u64_at(bytes, at) as usize;
    let (size, attrs, length) = (word(&bytes, 16), word(&bytes, 24), word(&bytes, 32));
    for attr in (attrs..attrs + length).step_by(size) {
        bytes[attr + 40 + 3] |= 1 << 1;
        bytes[attr + 92] = 1;
    }
    fs::write(dir.join("monotonic.data"), bytes).unwrap();
    for name in ["clock-monotonic.p61.data", "plain.p61.data"] {
        fs::copy(root().join("tests/data/recorded").join(name), dir.join(name)).unwrap();
    }
    let vcpus: String = (0..16).map(|vcpu| format!(",vcpu={vcpu}:{}", vcpu + 1)).collect();
    let clock = ",offset=-14026330256359,scale=2.5961349024293154";
    let given = format!("guest.data,pid=1{vcpus}{clock}");
    let wall = format!("clock-monotonic.p61.data,pid=1{vcpus}");
    let lines: &[&[&str]] = &[
        &["merge", "-n", "host.data", "monotonic.data"],
        &["merge", "-n", "clock-monotonic.p61.data", &wall],
        &["merge", "-n", "plain.p61.data", &wall],
        &["merge", "-n", "plain.p61.data", &given],
    ];
    let text: Vec<_> = lines.iter().map(|line| say(dir, line)).collect();
    same("clocks", &text.join("\n"));
}

#[test]
fn around_finished_init() {
    let folder = pair();
    let dir = folder.path();
    let ran = run(
        perfx_command().current_dir(dir).args(["merge", "host.data", "guest.data", "-o", "merged.data"]),
        Stdin::Null,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let dump = perfx(args!["dump", dir.join("merged.data")]).text();
    let lines: Vec<_> = dump.lines().collect();
    let near = |what: &str, before: usize, behind: usize| {
        let at = lines.iter().position(|line| line.contains(what)).expect("the line is there");
        lines[at - before..=at + behind].join("\n")
    };
    let text = [near("machine_pid", 3, 4), near(" FINISHED_INIT", 4, 4)].join("\n…\n");
    same("around_finished_init", &text);
}

/// Records of a file's data section.
fn stored(path: &Path) -> Vec<Vec<u8>> {
    load(path).records.into_iter().map(|record| record.bytes).collect()
}

#[test]
#[ignore = "exhaustive: the clock is found five times"]
fn a_merge_is_a_pass_among_others() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let guest = path("guest.data");
    let done = |ran: Ran| assert!(ran.code == Some(0), "{}", ran.stderr);
    done(merge(&path("host.data"), guest.to_str().unwrap(), &path("merged.data")));
    done(perfx(args!["inject", "--buildid-all", "--foreign", path("merged.data"), "-o", path("ids.data")]));
    // The same result through a pipe.
    let piped = perfx(args!["merge", path("host.data"), guest]).stdout;
    let ran = run(
        perfx_command().args(args!["inject", "--buildid-all", "--foreign", "-", "-o", path("piped.data")]),
        Stdin::Pipe(&piped),
    );
    done(ran);
    let is_kernels = |bytes: &&Vec<u8>| u32::from_le_bytes(bytes[..4].try_into().unwrap()) < 64;
    let (file, pipe) = (stored(&path("ids.data")), stored(&path("piped.data")));
    assert!(file.iter().filter(is_kernels).eq(pipe.iter().filter(is_kernels)), "not the same records");
    // In one chain, followed by compression.
    let chain = format!("merge:guest={},build-ids:all:foreign,compress", guest.display());
    done(perfx(args!["run", "-p", chain, path("host.data"), "-o", path("chain.data")]));
    done(perfx(args!["decompress", path("chain.data"), "-o", path("chain.plain")]));
    let (merged, chained) = (stored(&path("merged.data")), stored(&path("chain.plain")));
    let is_build_id = |bytes: &&Vec<u8>| bytes[..4] != [67, 0, 0, 0];
    assert!(merged.iter().eq(chained.iter().filter(is_build_id)), "not the records of a merge alone");
    // After another pass, which passes on every record.
    let chain = format!("reindex-times,merge:guest={}", guest.display());
    done(perfx(args!["run", "-p", chain, path("host.data"), "-o", path("behind.data")]));
    assert!(merged == stored(&path("behind.data")), "not the records of a merge alone");
    // In perf's syntax.
    let clock = clock_said(&merge(&path("host.data"), guest.to_str().unwrap(), &path("again.data")).stderr);
    let (offset, scale) = clock.unwrap();
    let guest_data = format!("--guest-data={},{PID},{offset},{scale}", guest.display());
    done(perfx(args!["inject", guest_data, path("host.data"), "-o", path("injected.data")]));
    same_bytes(
        "inject --guest-data",
        &fs::read(path("injected.data")).unwrap(),
        &fs::read(path("merged.data")).unwrap(),
    )
    .unwrap();
}

tiers!(a_guest_of_any_form_gives_the_same_records);
/// A guest that is a directory, compressed or pipe data gives the same records.
fn a_guest_of_any_form_gives_the_same_records(tier: Tier) {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let host = path("host.data");
    assert_eq!(merge(&host, &guest_of_pair(tier, path("guest.data")), &path("merged.data")).code, Some(0));
    let expected = stored(&path("merged.data"));
    // With a copy of its kernel, as from perf record --kcore.
    fs::create_dir_all(path("guest.dir/kcore_dir")).unwrap();
    fs::copy(path("guest.data"), path("guest.dir/data")).unwrap();
    fs::write(path("guest.dir/kcore_dir/kallsyms"), "ffffffff81000000 T _text\n").unwrap();
    let ran = perfx(args!["merge", host, guest_of_pair(tier, path("guest.dir")), "-o", path("merged.dir")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(expected == stored(&path("merged.dir")), "a directory has other records");
    let kallsyms = fs::read_to_string(path(&format!("merged.dir/kcore_dir__{PID}/kallsyms"))).unwrap();
    assert_eq!(kallsyms, "ffffffff81000000 T _text\n");
    let ran = merge(&host, &guest_of_pair(tier, path("guest.dir")), &path("file.data"));
    assert!(ran.code == Some(3) && ran.stderr.contains("only a directory can hold it"), "{}", ran.stderr);
    // Compressed, on either side.
    for name in ["guest", "host"] {
        let ran = perfx(args!["compress", path(&format!("{name}.data")), "-o", path(&format!("{name}.z"))]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    for (host, guest) in [("host.data", "guest.z"), ("host.z", "guest.data"), ("host.z", "guest.z")] {
        let ran = merge(&path(host), &guest_of_pair(tier, path(guest)), &path("z.data"));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(expected == stored(&path("z.data")), "{host} and {guest} have other records");
    }
}

tiers!(nonsensical_data_is_refused_or_suspect);
/// An unsuitable guest leads to an error or a warning, and never to an unreadable recording.
fn nonsensical_data_is_refused_or_suspect(tier: Tier) {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let host = path("host.data");
    let refused = |guest: String, part: &str| {
        let ran = merge(&host, &guest, &path("out.data"));
        assert!(ran.code == Some(1) && ran.stderr.contains(part), "{guest}: {:?} {}", ran.code, ran.stderr);
        assert!(!path("out.data").exists(), "{guest}");
    };
    fs::write(path("empty.data"), b"").unwrap();
    fs::write(path("text.data"), b"this is no recording, but long enough to be taken for one\n".repeat(4))
        .unwrap();
    refused("/dev/null".into(), "too few for a perf.data header");
    refused(path("empty.data").display().to_string(), "too few for a perf.data header");
    refused(path("text.data").display().to_string(), "magic");
    // The host is not a guest of its own, and no offset fits.
    if tier == Tier::Exhaustive {
        refused(format!("{},pid={PID}", host.display()), "cannot determine the clock offset");
    }
    let few = crate::support::Fixture::new("recorded/switch.p61.data").path;
    let named: String = (0..8).map(|vcpu| format!(",vcpu={vcpu}:{}", THREADS[vcpu % 2])).collect();
    refused(format!("{},pid={PID}{named}", few.display()), "cannot determine the clock offset");
    // A guest's pids are not the host's, even if the numbers are equal.
    let clock = "offset=-14026330256359,scale=2.5961349024293154";
    let vcpus = format!("vcpu=0:{},vcpu=1:{}", THREADS[0], THREADS[1]);
    let guest = path("guest.data").display().to_string();
    let ran = merge(&host, &format!("{guest},pid=1,{vcpus},{clock}"), &path("one.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = merge(&path("one.data"), &format!("{guest},pid={PID},{clock}"), &path("two.data"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // With the VCPUs swapped, the schedule differs.
    let swapped = format!("vcpu=0:{},vcpu=1:{}", THREADS[1], THREADS[0]);
    let ran = merge(&host, &format!("{guest},pid={PID},{swapped},{clock}"), &path("swapped.data"));
    assert!(ran.code == Some(3) && ran.stderr.contains("but nearly all should be"), "{}", ran.stderr);
}

#[test]
fn samples_are_merged_on_request() {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let ran =
        perfx(args!["merge", "--samples", path("host.data"), path("guest.data"), "-o", path("merged.data")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (guest, merged) = (load(&path("guest.data")), load(&path("merged.data")));
    let count = |loaded: &Loaded, from: usize| {
        let ids: BTreeSet<u64> = loaded.events[from..].iter().flat_map(|event| event.ids.clone()).collect();
        loaded
            .records
            .iter()
            .filter(|record| record.kind == RecordType::SAMPLE && ids.contains(&record.id))
            .count()
    };
    let host = load(&path("host.data")).events.len();
    assert_eq!(count(&merged, host), count(&guest, 0));
    assert!(Layouts::new(&merged.events).check_ids().is_ok());
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let said =
            perf.run(Stdin::Null, args!["script", "-F", "+machine_pid,+vcpu", "-i", path("merged.data")]);
        assert!(said.text().contains("cpu-clock:G"), "{}: {}", perf.name, said.stderr);
        assert_eq!(said.text().matches("VM:").count(), count(&guest, 0), "{}", perf.name);
    }
}

tiers!(a_guest_in_great_disorder_is_merged_in_order);
/// None of its records can be written before all have been read, and they do not fit in memory, so they are
/// sorted in a temporary file.
fn a_guest_in_great_disorder_is_merged_in_order(tier: Tier) {
    let times = tier.pick(8, 320);
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let guest = fs::read(path("guest.data")).unwrap();
    let (start, size) = (u64_at(&guest, 40) as usize, u64_at(&guest, 48) as usize);
    let data = guest[start..start + size].repeat(times);
    assert!(data.len() > tier.pick(0, 33 << 20), "more than is to wait in memory");
    let mut disorder = [&guest[..start], &data].concat();
    disorder[48..56].copy_from_slice(&(data.len() as u64).to_le_bytes());
    // No features.
    disorder[72..104].fill(0);
    fs::write(path("disorder.data"), disorder).unwrap();
    let merged = |guest: &str| {
        let given = format!("{},offset=-14026330256359,scale=2.5961349024293154", path(guest).display());
        let out = path(guest).with_extension("merged");
        let ran = merge(&path("host.data"), &given, &out);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        load(&out)
    };
    let host = load(&path("host.data")).records.len();
    let (one, many) = (merged("guest.data"), merged("disorder.data"));
    // Except for the ID_INDEX.
    assert_eq!(many.records.len() - host - 1, (one.records.len() - host - 1) * times);
    let ran = perfx(args!["doctor", path("disorder.merged")]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
}

/// An ELF file that contains only this build-id.
fn elf(id: u8) -> Vec<u8> {
    let notes = notes(id);
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(120, 0);
    // e_type, e_machine, e_phoff, e_ehsize, e_phentsize, e_phnum; p_type, p_offset, p_filesz, p_align.
    let fields: [(usize, u64); 10] = [
        (16, 3),
        (18, 62),
        (32, 64),
        (52, 64),
        (54, 56),
        (56, 1),
        (64, 4),
        (72, 120),
        (96, notes.len() as u64),
        (112, 4),
    ];
    for (at, value) in fields {
        let size = if matches!(at, 32 | 72 | 96 | 112) { 8 } else { 2 };
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    [bytes, notes].concat()
}

/// The note of a build-id, as in /sys/kernel/notes.
fn notes(id: u8) -> Vec<u8> {
    [&b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"[..], &[id; 20]].concat()
}

/// The guest's own build-ids are removed from its recording, and a folder replaces its `/`: directly, or
/// below `--guestmount` by pid.
#[test]
fn build_ids_of_a_guest_are_found_below_its_root() {
    use std::os::unix::fs::symlink;
    let folder = pair();
    let dir = folder.path();
    let mut guest = fs::read(dir.join("guest.data")).unwrap();
    let table = u64_at(&guest, 40) as usize + u64_at(&guest, 48) as usize;
    // BUILD_ID is the first of its features.
    assert_eq!(guest[72] & 7, 4);
    guest[table + 8..table + 16].fill(0);
    fs::write(dir.join("guest.data"), guest).unwrap();
    let root = dir.join(format!("mount/{PID}"));
    let put = |path: &str, bytes: &[u8]| {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), bytes).unwrap();
    };
    put("usr/bin/perf", &elf(1));
    put("usr/lib/deep/libwl.so.1", &elf(2));
    symlink("/usr/lib/deep/libwl.so.1", root.join("usr/lib/libwl.so")).unwrap();
    put("proc/sys/kernel/osrelease", b"6.1.0-perfx-00\n");
    put("proc/sys/kernel/arch", b"x86_64\n");
    put("sys/kernel/notes", &notes(3));
    put("sys/module/virtio/notes/.note.gnu.build-id", &notes(4));
    put("lib/modules/6.1.0-perfx-00/kernel/net/9p/9pnet.ko", &elf(5));
    // Links that lead out of it are not followed.
    fs::create_dir_all(dir.join("outside/notes")).unwrap();
    fs::write(dir.join("outside/elf"), elf(6)).unwrap();
    fs::write(dir.join("outside/notes/note"), notes(7)).unwrap();
    symlink(dir.join("outside/elf"), root.join("usr/bin/busybox")).unwrap();
    symlink("../../../../outside/elf", root.join("usr/bin/wl")).unwrap();
    symlink(dir.join("outside"), root.join("sys/module/virtio_ring")).unwrap();
    fs::create_dir_all(root.join("sys/module/virtio_pci/notes")).unwrap();
    symlink(dir.join("outside/notes/note"), root.join("sys/module/virtio_pci/notes/note")).unwrap();
    let given = format!("--guest-data=guest.data,{PID},-14026330256359,2.5961349024293154");
    let clock = "offset=-14026330256359,scale=2.5961349024293154";
    let (relative, absolute) = (format!("guest.data,{clock},root=mount/{PID}"), dir.join("mount"));
    let lines = [
        args!["merge", "host.data", relative].to_vec(),
        args!["merge", "host.data", format!("guest.data,{clock},root={}", root.display())].to_vec(),
        args!["inject", "host.data", given, "--guestmount=mount"].to_vec(),
        args!["inject", "host.data", given, format!("--guestmount={}", absolute.display())].to_vec(),
    ];
    let mut merged = None;
    for line in lines {
        let ran = run(perfx_command().current_dir(dir).args(&line).args(["-f", "-o", "out"]), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("5 build-ids found below"), "{}", ran.stderr);
        let bytes = fs::read(dir.join("out")).unwrap();
        let found: BTreeMap<String, Vec<u8>> = crate::parse::Contents::file(&bytes)
            .build_ids(&bytes)
            .into_iter()
            .filter(|(pid, ..)| *pid == PID as i32)
            .map(|(_, id, name)| (String::from_utf8(name).unwrap(), id))
            .collect();
        let expected = [
            ("/usr/bin/perf", 1),
            ("/usr/lib/libwl.so", 2),
            ("[kernel.kallsyms]", 3),
            ("[virtio]", 4),
            ("[9pnet]", 5),
        ];
        assert_eq!(found, expected.map(|(name, id)| (name.to_owned(), vec![id; 20])).into());
        merged = merged.or(Some(bytes.clone()));
        same_bytes("however it is named", &bytes, merged.as_ref().unwrap()).unwrap();
    }
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let said = perf.run(Stdin::Null, args!["buildid-list", "-i", dir.join("out")]).text();
        for (id, name) in [("03", "[kernel.kallsyms]"), ("02", "/usr/lib/libwl.so"), ("04", "[virtio]")] {
            let line = format!("{} {name}", id.repeat(20));
            assert!(said.lines().any(|said| said == line), "{}: no {line} in {said}", perf.name);
        }
    }
    // A kernel other than the recorded one is not used.
    put("proc/sys/kernel/osrelease", b"6.1.0-57-amd64\n");
    let line = ["merge", "-n", "host.data", &relative];
    let ran = run(perfx_command().current_dir(dir).args(line), Stdin::Null);
    assert!(ran.stderr.contains("3 build-ids found below"), "{}", ran.stderr);
}

tiers!(a_sample_time_that_is_unknown_stays_unknown);
/// Regression: a host whose perf did not read its samples has 0 to 0 in SAMPLE_TIME. The end of the guest's
/// records replaced it, so that `perf script --time 0%-50%` showed nothing.
fn a_sample_time_that_is_unknown_stays_unknown(tier: Tier) {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let bytes = fs::read(path("host.data")).unwrap();
    let sample_time = |bytes: &[u8]| -> (usize, (u64, u64)) {
        let slot = (u64_at(bytes, 72) & ((1 << 21) - 1)).count_ones() as usize;
        let at = u64_at(bytes, (u64_at(bytes, 40) + u64_at(bytes, 48)) as usize + slot * 16) as usize;
        (at, (u64_at(bytes, at), u64_at(bytes, at + 8)))
    };
    let (at, known) = sample_time(&bytes);
    assert!(known.0 > 0 && known.1 > known.0);
    let mut unknown = bytes.clone();
    unknown[at..at + 16].fill(0);
    fs::write(path("unknown.data"), unknown).unwrap();
    let merged = |host: &str, more: &[&str]| {
        let ran = perfx(
            args![
                "merge",
                "-q",
                "-f",
                "-o",
                path("out"),
                path(host),
                guest_of_pair(tier, path("guest.data"))
            ]
            .iter()
            .chain(&more.iter().map(Into::into).collect::<Vec<_>>()),
        );
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        sample_time(&fs::read(path("out")).unwrap()).1
    };
    assert_eq!(merged("unknown.data", &[]), (0, 0));
    assert_eq!(merged("unknown.data", &["--samples"]), (0, 0));
    // A guest that ends after the host extends the host's times by its samples, if they are merged, and by
    // nothing else.
    let guest =
        format!("{},pid={PID},offset=-14126330256359,scale=2.5961349024293154", path("guest.data").display());
    let late = |more: &[&str]| {
        let line = args!["merge", "-q", "-f", "-o", path("out"), path("host.data"), guest];
        let ran = perfx(line.iter().chain(&more.iter().map(Into::into).collect::<Vec<_>>()));
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        sample_time(&fs::read(path("out")).unwrap()).1
    };
    assert_eq!(late(&[]), known);
    let ids: BTreeSet<u64> =
        load(&path("guest.data")).events.iter().flat_map(|event| event.ids.clone()).collect();
    assert!(!ids.is_empty());
    let (first, last) = late(&["--samples"]);
    let loaded = load(&path("out"));
    let host = load(&path("host.data")).events.len();
    let ids: BTreeSet<u64> = loaded.events[host..].iter().flat_map(|event| event.ids.clone()).collect();
    let sampled = |record: &&check::Rec| record.kind == RecordType::SAMPLE && ids.contains(&record.id);
    let latest = loaded.records.iter().filter(sampled).map(|record| record.time).max().unwrap();
    assert_eq!((first, last), (known.0, known.1.max(latest)));
}

tiers!(the_process_with_the_matching_schedule_ran_the_guest);
/// Regression: another process with threads of the same names had to be excluded with pid=, although it ran
/// at other times.
fn the_process_with_the_matching_schedule_ran_the_guest(tier: Tier) {
    let folder = pair();
    let path = |name: &str| folder.path().join(name);
    let bytes = fs::read(path("host.data")).unwrap();
    let (start, size) = (u64_at(&bytes, 40) as usize, u64_at(&bytes, 48) as usize);
    let layouts = Layouts::new(&load(&path("host.data")).events);
    let mut other = Vec::new();
    let times =
        || load(&path("host.data")).records.into_iter().map(|record| record.time).filter(|time| *time != 0);
    let (first, last) = (times().min().unwrap(), times().max().unwrap());
    for record in load(&path("host.data")).records {
        let is_switch = matches!(record.kind, RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE);
        let is_named = record.kind == RecordType::COMM && record.bytes[16..].starts_with(b"CPU ");
        let Some(layout) = layouts.all().first().filter(|_| is_switch || is_named) else { continue };
        if !THREADS.contains(&record.task.1) && !is_named {
            continue;
        }
        let mut bytes = record.bytes.clone();
        let trailer = bytes.len() - usize::from(layout.trailer.size);
        let mut renamed = |at: usize| {
            let thread = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) - THREADS[0];
            bytes[at..at + 4].copy_from_slice(&4000u32.to_le_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&(4001 + thread).to_le_bytes());
        };
        // {pid, tid} of a COMM, and of the trailer, which begins with them.
        if is_named {
            renamed(8);
        }
        if record.time != 0 {
            renamed(trailer);
            // It runs when the other one is idle, from start to end.
            let time = first + last - u64_at(&bytes, trailer + 8);
            bytes[trailer + 8..trailer + 16].copy_from_slice(&time.to_le_bytes());
        }
        if is_switch {
            // PERF_RECORD_MISC_SWITCH_OUT.
            bytes[5] ^= 1 << 5;
        }
        other.extend(bytes);
    }
    let mut two = [&bytes[..start + size], &other].concat();
    two[48..56].copy_from_slice(&((size + other.len()) as u64).to_le_bytes());
    two[72..104].fill(0);
    fs::write(path("two.data"), two).unwrap();
    perfx(args!["sort", "-q", path("two.data"), "-o", path("sorted.data")]).done().unwrap();
    let guest = path("guest.data");
    if tier == Tier::Exhaustive {
        let ran = merge(&path("sorted.data"), guest.to_str().unwrap(), &path("merged.data"));
        let said =
            ran.stderr.contains(&format!("machine {PID};")) && ran.stderr.contains("VCPU 0 is thread 31314");
        assert!(ran.code == Some(0) && said, "{:?} {}", ran.code, ran.stderr);
    }
    // If the offset is given, the running times are not compared.
    let given = format!("{},offset=-14026330256359,scale=2.5961349024293154", guest.display());
    let ran = merge(&path("sorted.data"), &given, &path("merged.data"));
    assert!(
        ran.code == Some(1) && ran.stderr.contains("processes 4000, 31188 of the host may run it"),
        "{}",
        ran.stderr
    );
}
