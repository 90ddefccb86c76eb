//! The recordings with Intel PT in tests/data/trace: perf decodes each to exactly the branches in its truth,
//! so that they can be used to test a decoder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfx_format::features::{BpfFunction, bpf_functions};
use perfx_format::jitdump::{Load, Writer};
use perfx_format::read::Recording;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::builder::build;
use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::write::RecordingWriter;
use perfx_format::{Endian, Feature, Record, RecordType, hex, sample_type as st};

use crate::itrace::{events, samples};
use crate::support::{
    Ran, Stdin, Tier, clean, perfs, perfx, perfx_command, root, run, same_lines, skipped, temp,
};
use crate::{args, tiers};

/// Branches by thread, in order: source and target; `-` where tracing begins or ends.
type Branches = BTreeMap<String, Vec<(String, String)>>;

/// Without kernel.data, because perf does not search for a vmlinux below --symfs.
const NAMES: [&str; 25] = [
    "user", "noret", "times", "ptwrite", "defer", "overflow", "halve", "switch", "cpus", "schedule",
    "threads", "tasks", "own-buffers", "32-bit", "filtered", "events", "snapshots", "sampled", "cut", "rare",
    "pebs", "old-psb", "bdm70", "begun", "skl014",
];

/// The recordings that perf does not decode as the processor executed them.
const WRONG_IN_PERF: [&str; 5] = ["late-psbend", "lost", "wrong-target", "skd022", "skz84"];

/// The branches of a recording, or of the one with the same packets in another form.
fn truth_of(name: &str) -> Branches {
    let of = match name {
        "old-psb" | "bdm70" | "late-psbend" | "begun" => "switch",
        "skl014" => "filtered",
        "skd022" => "hypervisor",
        "skz84" => "vm",
        _ => name,
    };
    let path = root().join("tests/data/trace").join(of).with_extension("truth");
    let mut truth = truth(&fs::read_to_string(path).unwrap());
    if name == "begun" {
        // It begins in user code of the first thread.
        truth.get_mut("1000").unwrap().drain(..309);
    }
    truth
}

/// True for recordings whose programs move between CPUs: perf orders samples of one time on several CPUs
/// differently, and a process has several lists in the truth.
fn is_across_cpus(name: &str) -> bool {
    matches!(name, "cpus" | "schedule" | "tasks" | "pieces" | "history" | "counters" | "moves")
}

fn truth(text: &str) -> Branches {
    let mut all = Branches::new();
    for line in text.lines() {
        if let [from, to, _kind, tid, _cpu] = line.split(' ').collect::<Vec<_>>()[..]
            && from != "#"
        {
            all.entry(tid.into()).or_default().push((from.into(), to.into()));
        }
    }
    all
}

/// Lines of `perf script -F tid,ip,addr`: the thread, FROM, `=>`, TO. Lines of other samples have no arrow.
fn decoded(text: &str) -> Branches {
    let mut all = Branches::new();
    for line in text.lines() {
        let place = |place: &str| if place == "0" { "-".to_owned() } else { place.to_owned() };
        if let [tid, from, "=>", to] = line.split_whitespace().collect::<Vec<_>>()[..] {
            all.entry(tid.into()).or_default().push((place(from), place(to)));
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
            let options = ["--itrace=b", "-F", "tid,ip,addr"];
            let mut decoded = decoded(&perf.script(&input, &folder.join("root"), &options).text());
            let mut truth = truth_of(name);
            if name == "cut" {
                // The truth continues after the cut.
                let (tid, branches) = decoded.first_key_value().unwrap();
                assert!(branches.len() > 100, "{}", branches.len());
                truth.get_mut(tid).unwrap().truncate(branches.len());
            }
            assert!(decoded.values().map(Vec::len).sum::<usize>() > 100, "{name}");
            if is_across_cpus(name) {
                decoded.values_mut().chain(truth.values_mut()).for_each(|branches| branches.sort());
            }
            assert!(decoded == truth, "{name}: {} decodes something else", perf.path().display());
        }
    }
}

/// The branches of the samples in the output of `inject --itrace=b`, by thread.
fn branches(path: &Path) -> Branches {
    let mut recording = Recording::open(path).unwrap();
    let mut records = recording.records();
    let mut all = Branches::new();
    let place = |ip: u64| if ip == 0 { "-".to_owned() } else { format!("{ip:x}") };
    while let Some(record) = records.next_record().unwrap() {
        // Samples of sched_switch have no address.
        if let Some(sample) = record.sample().unwrap()
            && let Some(addr) = sample.addr
        {
            let ends = (place(sample.ip.unwrap()), place(addr));
            all.entry(record.pid_tid().unwrap().1.to_string()).or_default().push(ends);
        }
    }
    all
}

/// The kernel of a recording, by its name.
fn kernel_of(input: &Path) -> PathBuf {
    let name = input.file_stem().unwrap().to_string_lossy();
    let is_host = ["hypervisor", "vm", "vm-kernel", "skd022", "skz84", "merged", "host"].contains(&&*name);
    let kernel = if is_host { "vmlinux-kvm" } else { "vmlinux" };
    root().join("tests/data/trace/root/opt/perfx/trace").join(kernel)
}

/// Runs `inject` with the code of the recordings.
fn inject(letters: &str, threads: &str, input: &Path, output: &Path) -> Ran {
    let root = root().join("tests/data/trace/root");
    let vmlinux = kernel_of(input);
    let letters = format!("--itrace={letters}");
    perfx(args![
        "inject", letters, "-f", "-@", threads, "-k", vmlinux, "--root", root, "--foreign", input, "-o",
        output
    ])
}

#[test]
fn inject_makes_a_sample_of_each_branch_of_the_truth() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let output = folder.path().join("out.data");
    let others = ["kernel", "poke", "bpf", "paging", "hypervisor"].into_iter().chain(WRONG_IN_PERF);
    for name in NAMES.into_iter().chain(others).filter(|name| *name != "cut") {
        let input = data.join(name).with_extension("data");
        let ran = inject("b", "2", &input, &output);
        let is_lossy = matches!(name, "overflow" | "hypervisor" | "lost");
        assert_eq!(ran.code, Some(if is_lossy { 3 } else { 0 }), "{name}: {}", ran.stderr);
        let mut decoded = branches(&output);
        let mut truth = truth_of(name);
        if is_across_cpus(name) {
            decoded.values_mut().chain(truth.values_mut()).for_each(|branches| branches.sort());
        }
        assert!(decoded == truth, "{name}");
    }
}

/// Regression: the positions of a kernel were related by a symbol alone.
#[test]
fn a_vmlinux_without_symbols_has_the_code_of_the_kernel() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    let input = data.join("kernel.data");
    let mut kernel = fs::read(kernel_of(&input)).unwrap();
    let sections = u64::from_le_bytes(kernel[40..48].try_into().unwrap()) as usize;
    for section in kernel[sections..].chunks_exact_mut(64).filter(|section| section[4] == 2) {
        section[4] = 0;
    }
    fs::write(path("stripped"), kernel).unwrap();
    let [whole, stripped] = [kernel_of(&input), path("stripped")].map(|kernel| {
        let line = args!["view", "--itrace=b", "-F", "tid,ip,addr,time", "--foreign", "--vmlinux", kernel];
        perfx([&line[..], &args!["--root", data.join("root"), &input]].concat()).done().unwrap().text()
    });
    assert!(whole.lines().count() > 1000 && stripped == whole);
}

/// Puts the programs of the recordings at their recorded paths, where only the given command sees them: `perf
/// inject` has no option for other places. Files in /opt stay. The processes of this machine are hidden: perf
/// would search for the programs in the namespace of a process with a recorded number, 1000 or 1001.
const AT_RECORDED_PATHS: &str = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work && \
    mount -t overlay overlay -o lowerdir=/opt,upperdir=/mnt/upper,workdir=/mnt/work /opt && \
    mkdir -p /opt/perfx/trace && cp \"$0\"/* /opt/perfx/trace/ && exec \"$@\"";

/// Runs a program that finds those of the recordings at their recorded paths. `None` if this machine forbids
/// it, which is reported.
fn at_recorded_paths(program: &Path, args: &[OsString]) -> Option<Ran> {
    let programs = root().join("tests/data/trace/root/opt/perfx/trace");
    let mut command = clean("unshare");
    command.args(["-m", "-p", "-f", "--mount-proc", "sh", "-c", AT_RECORDED_PATHS]);
    command.args([&programs, program]).args(args);
    command.env("HOME", "/nonexistent").env("PERF_CONFIG_NOSYSTEM", "1").env("DEBUGINFOD_URLS", "");
    let ran = run(&mut command, Stdin::Null);
    let is_refused = ran.stderr.contains("unshare") || ran.stderr.contains("mount:");
    if is_refused {
        skipped(&format!("perf inject, as this machine allows no mount namespace: {}", ran.stderr));
    }
    (!is_refused).then_some(ran)
}

fn errors(path: &Path) -> Vec<String> {
    let mut recording = Recording::open(path).unwrap();
    let mut records = recording.records();
    let mut lines = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        if record.kind() == RecordType::AUXTRACE_ERROR {
            lines.push(format!("{:x?}", record.bytes()));
        }
    }
    lines
}

tiers!(inject_makes_the_samples_events_and_errors_of_perf_inject);
fn inject_makes_the_samples_events_and_errors_of_perf_inject(tier: Tier) {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
    for perf in perfs(&["perf", "perf-new"]) {
        let names: Vec<_> = NAMES.into_iter().chain(["pieces", "history", "counters", "moves"]).collect();
        for name in names.into_iter().step_by(tier.pick(5, 1)) {
            let input = data.join(name).with_extension("data");
            let letters: &[&str] = match name {
                // perf gives instructions before MWAIT and EXSTOP the time before these packets.
                "rare" => &["bpwxe", "pwxl8"],
                // Without longjmp.
                "halve" => &["b", "i100ig", "i64nsg3l8e"],
                // Without stacks, code between samples is only counted.
                "switch" => &["b", "i10ns", "i100ile", "i64nsl8e", "bi100is37", "by10il4s11"],
                "times" => &["b", "i100ile", "cr", "i64nsl8e", "i10usbe", "ipy", "y1i", "iy7iA", "pq"],
                "user" => &["b", "i3t", "i100ile", "byA", "bq", "bqi", "qqip", "i1il2q", "Zi100ib", "bTe"],
                "overflow" => &["b", "i100ile", "by1ie", "biqe", "bqqie"],
                "history" => &["L", "L3", "bi90igL8", "i1000ilL", "pxwL"],
                "pieces" => &["b", "i100ile", "cr", "bpwe"],
                "pebs" => &["b", "o", "oe", "bi7io", "oqi", "og64l3", "i64nsog1s9", "obL3"],
                "counters" => &["o", "op", "oqi"],
                // Threads continue on another CPU.
                "moves" => &["i100igl8", "bi50ig", "L4", "i64nsg3l3e"],
                // After the data of evt and iflag, perf writes stray bytes: see the test of I.
                "events" => &["bw", "i10il4w", "by3i", "qbi"],
                "sampled" | "snapshots" => &["b", "i100ile", "cr", "i64nsl8e", "i10usbe", "biq", "by3ipe"],
                // With q, perf takes the address in a PSB+ while tracing is off for code that ran.
                "bdm70" => &["b", "i10ns", "i100ile", "cr", "i64nsl8e", "i10usbe", "by3i"],
                _ => &["b", "i10ns", "i100ile", "cr", "i64nsl8e", "i10usbe", "by3i", "biq"],
            };
            // perf 6.1 does not know A, T and y, nor follow L, and has other sources of data in PEBS samples.
            let is_known =
                |letters: &&&str| perf.name == "perf-new" || !letters.contains(['A', 'T', 'y', 'L', 'o']);
            for letters in letters.iter().filter(is_known) {
                let itrace = format!("--itrace={letters}");
                let args = args!["inject", "-f", itrace, "-i", input, "-o", theirs];
                let Some(ran) = at_recorded_paths(perf.path(), &args) else { return };
                assert_eq!(ran.code, Some(0), "{} {name}: {}", perf.name, ran.stderr);
                inject(letters, "2", &input, &ours);
                let [mut theirs, mut ours] =
                    [&theirs, &ours].map(|path| [events(path), samples(path), errors(path)].concat());
                if is_across_cpus(name) {
                    theirs.sort();
                    ours.sort();
                }
                let what = format!("{} {name} {letters}", perf.name);
                same_lines(&what, &theirs, &ours).unwrap();
                assert!(theirs.len() > 2, "{what}: {theirs:?}");
            }
        }
    }
}

/// The lines of decoded samples with a time from `first` to `last`, ns.
fn samples_between(path: &Path, first: u64, last: u64) -> Vec<String> {
    let time = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once(" time: Some(")?;
        rest.split_once(')')?.0.parse().ok()
    };
    let mut lines = samples(path);
    lines.retain(|line| time(line).is_some_and(|time| (first..=last).contains(&time)));
    lines
}

#[test]
fn a_window_is_decoded_by_itself() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    for name in ["times", "switch"] {
        let input = data.join(name).with_extension("data");
        perfx(args!["filter", "-f", "--time", "1.000002,1.000004", input, "-o", path("window")])
            .done()
            .unwrap();
        let [whole, window] = [&input, &path("window")].map(|from| {
            assert_eq!(inject("b", "2", from, &path("out")).code, Some(0), "{name}");
            (samples(&path("out")).len(), samples_between(&path("out"), 1_000_002_000, 1_000_004_000))
        });
        assert!(window.1.len() > 100 && whole.1 == window.1, "{name}: {} {}", whole.1.len(), window.1.len());
        assert!(window.0 * 3 < whole.0 * 2, "{name}: {} of {}", window.0, whole.0);
        // In one command.
        let out = fs::read(path("out")).unwrap();
        let root = data.join("root");
        let line = args!["inject", "--time", "1.000002,1.000004", "--itrace=b", "-f", "--foreign", "--root"];
        perfx([&line[..], &args![root, input, "-o", path("once")]].concat()).done().unwrap();
        assert!(fs::read(path("once")).unwrap() == out, "{name}");
    }
}

#[test]
fn a_window_without_earlier_switches_is_suspect() {
    let (input, folder) = (root().join("tests/data/trace/schedule.data"), temp());
    let ran = perfx(args!["filter", "--time", "20%-30%", input, "-o", folder.path().join("cut")]);
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.stderr.contains("lost: which thread was traced at the beginning of a window"),
        "{}",
        ran.stderr
    );
}

tiers!(the_samples_do_not_depend_on_the_number_of_threads);
fn the_samples_do_not_depend_on_the_number_of_threads(tier: Tier) {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    for name in NAMES.into_iter().chain(["kernel", "bpf"]).step_by(tier.pick(5, 1)) {
        let input = data.join(name).with_extension("data");
        for letters in ["i100ibl4e", "i64nsleo"] {
            for threads in ["1", "2", "5"] {
                inject(letters, threads, &input, &path(threads));
            }
            let [one, two, five] = ["1", "2", "5"].map(|threads| fs::read(path(threads)).unwrap());
            assert!(one == two && one == five, "{name} {letters}");
        }
    }
}

/// Writes a recording with other records: `change` returns the bytes of changed ones.
pub(crate) fn rewrite(name: &str, output: &Path, change: impl Fn(&Record<'_>) -> Option<Vec<u8>>) {
    rewrite_with(name, output, change, &[]);
}

/// Like [`rewrite`], with additional features.
pub(crate) fn rewrite_with(
    name: &str,
    output: &Path,
    change: impl Fn(&Record<'_>) -> Option<Vec<u8>>,
    more: &[(Feature, Vec<u8>)],
) {
    let mut recording = Recording::open(root().join("tests/data/trace").join(name)).unwrap();
    let (endian, features) = (recording.endian, recording.features.clone());
    let mut writer = RecordingWriter::create(output, &recording.events, endian).unwrap();
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        match change(&record) {
            Some(bytes) => writer.write(&bytes).unwrap(),
            None => writer.write_record(&record).unwrap(),
        }
    }
    for (feature, section) in features.into_iter().filter(|(feature, _)| *feature != Feature::AUXTRACE) {
        writer.set_feature(feature, section).unwrap();
    }
    for (feature, section) in more {
        writer.set_feature(*feature, section.clone()).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes a recording whose traces are repeated, so that each buffer has several parts.
fn repeat(name: &str, output: &Path) {
    rewrite(name, output, |record| {
        let auxtrace = Auxtrace::of(record)?;
        let data = record.payload().repeat(200);
        let mut bytes = record.bytes().to_vec();
        Auxtrace::set_part(&mut bytes, auxtrace.offset, data.len() as u64, record.endian());
        Some([bytes, data].concat())
    });
}

tiers!(parts_are_joined_as_if_they_were_decoded_in_order);
fn parts_are_joined_as_if_they_were_decoded_in_order(tier: Tier) {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    for (name, letters) in
        [("cpus.data", &["bi3igl4e", "i70tle", "i9000ile"][..]), ("rare.data", &["cri90il", "i200tgxwpe"])]
    {
        repeat(name, &path("long"));
        for letters in tier.first(1, letters) {
            let made = ["1", "3"].map(|threads| {
                let ran = inject(letters, threads, &path("long"), &path("out"));
                assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
                (fs::read(path("out")).unwrap(), ran.stderr)
            });
            assert!(made[0] == made[1], "{name} {letters}");
        }
    }
}

#[test]
fn undecodable_data_is_counted_and_nothing_else_is_lost() {
    let folder = temp();
    let output = folder.path().join("out.data");
    let input = root().join("tests/data/trace/user.data");
    // Without the code.
    let ran = perfx(args!["inject", "--itrace=be", "--foreign", input, "-o", output]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("the code is not known"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the code of 1 file was not found, of /opt/perfx/trace/loop"),
        "{}",
        ran.stderr
    );
    // With a flipped byte in the trace, errors are counted, and the parts before it and after the next sync
    // point are unchanged.
    let whole = truth(&fs::read_to_string(input.with_extension("truth")).unwrap()).into_values().flatten();
    let whole: Vec<_> = whole.filter(|(from, to)| from != "-" && to != "-").collect();
    let bytes = fs::read(&input).unwrap();
    let data = perfx_format::intel_pt::psbs(&bytes).next().unwrap().at;
    let damaged = folder.path().join("damaged.data");
    let mut counted = 0;
    for at in (data + 60..data + 1000).step_by(37) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0xff;
        fs::write(&damaged, bytes).unwrap();
        let ran = inject("be", "2", &damaged, &output);
        assert!(matches!(ran.code, Some(0 | 3)), "{at}: {}", ran.stderr);
        let found = branches(&output).into_values().flatten();
        let found: Vec<_> = found.filter(|(from, to)| from != "-" && to != "-").collect();
        let front = found.iter().zip(&whole).take_while(|(found, truth)| found == truth).count();
        let back = found.iter().rev().zip(whole.iter().rev()).take_while(|(found, truth)| found == truth);
        assert!(front + back.count() > whole.len() / 2, "{at}: {front} branches of {}", whole.len());
        counted += u32::from(ran.code == Some(3));
    }
    assert!(counted > 15, "{counted}");
}

#[test]
fn a_trace_in_samples_is_decoded_in_every_form_of_a_recording_and_left_out_of_the_output() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    let input = data.join("sampled.data");
    assert_eq!(inject("b", "2", &input, &path("plain")).code, Some(0));
    let whole = branches(&path("plain"));
    perfx(args!["compress", input, "-o", path("compressed")]).done().unwrap();
    perfx(args!["filter", "-f", "--time", "0,2", input, "-o", path("filtered")]).done().unwrap();
    for name in ["compressed", "filtered"] {
        assert_eq!(inject("b", "2", &path(name), &path("out")).code, Some(0), "{name}");
        assert!(branches(&path("out")) == whole, "{name}");
    }
    let mut recording = Recording::open(path("plain")).unwrap();
    assert!(recording.events.iter().all(|event| event.attr().sample_type & st::AUX == 0));
    let mut records = recording.records();
    let mut sampled = 0;
    while let Some(record) = records.next_record().unwrap() {
        if let Some(sample) = record.sample().unwrap().filter(|sample| sample.addr.is_none()) {
            assert!(sample.aux.is_none() && sample.period == Some(600) && sample.rest.is_empty());
            sampled += 1;
        }
    }
    assert_eq!(sampled, 17);
    // stats and doctor decode it, too.
    let text = perfx(args!["stats", input]).text();
    assert!(text.contains("AUX flow        13 sync points"), "{text}");
    assert!(perfx(args!["doctor", "--foreign", input]).text().contains("100.00%  /opt/perfx/trace/loop"));
}

/// Addresses of the guest are also those of the host, and of its programs. perf 7.3 confuses host and guest
/// after the exit, up to its next user code.
#[test]
fn a_guest_is_not_confused_with_the_host_and_is_reported() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let (input, output) = (data.join("hypervisor.data"), folder.path().join("out.data"));
    let ran = inject("i1ie", "2", &input, &output);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let told =
        "decoding stopped at 24 places, each time up to the next known address: 24 × a guest was running";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    let truth = fs::read_to_string(data.join("hypervisor.truth")).unwrap();
    let executed: usize = truth.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!((samples(&output).len(), errors(&output).len()), (executed, 24));
    // Without code, too, no sample has an address of the guest alone.
    inject("i1iq", "2", &input, &output);
    let of_guest = format!("ip: Some({})", 0xffff_ffff_c000_1000_u64);
    let quick = samples(&output);
    assert!(quick.len() > 150 && !quick.iter().any(|line| line.contains(&of_guest)), "{}", quick.len());
    let code = doctor_shares(&input, &data.join("root"));
    let told =
        "code that no record maps: of a guest that has no records in the recording; perfx merge adds them";
    assert!(code.lines().count() == 2 && code.contains(told), "{code}");
}

/// With the records of the guest in the recording, as written by `perfx merge`, its code is decoded,
/// too.
#[test]
fn a_guest_with_records_is_decoded() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    // The kernel of the guest, in perf's cache.
    let cached = path("cache/.build-id/c3");
    fs::create_dir_all(&cached).unwrap();
    let programs = data.join("root/opt/perfx/trace");
    fs::copy(programs.join("vmlinux"), cached.join("vmlinux")).unwrap();
    let run = |letters: &str, threads: &str, input: &Path, cache: &Path, output: &Path| {
        let (letters, vmlinux) = (format!("--itrace={letters}"), programs.join("vmlinux-kvm"));
        let line = args!["inject", "-f", letters, "-@", threads, "-k", vmlinux, "--root", data.join("root")];
        perfx([&line[..], &args!["--buildid-dir", cache, "--foreign", input, "-o", output]].concat())
    };
    for name in ["vm", "vm-kernel"] {
        let input = data.join(name).with_extension("data");
        let text = fs::read_to_string(input.with_extension("truth")).unwrap();
        let executed: usize = text.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
        let outputs = ["1", "2"].map(|threads| {
            let ran = run("i1ie", threads, &input, &path("cache"), &path("out"));
            assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
            assert_eq!((samples(&path("out")).len(), errors(&path("out")).len()), (executed, 0), "{name}");
            run("b", threads, &input, &path("cache"), &path("out")).done().unwrap();
            fs::read(path("out")).unwrap()
        });
        assert!(outputs[0] == outputs[1], "{name}");
        assert!(branches(&path("out")) == truth(&text), "{name}");
        // Readers identify the guest by the ids of its samples.
        for reader in [perfx(args!["view", "-F", "tid,machine_pid,vcpu", path("out")])].into_iter().chain(
            perfs(&["perf-new"]).iter().map(|perf| {
                perf.run(Stdin::Null, args!["script", "-F", "tid,machine_pid,vcpu", "-i", path("out")])
            }),
        ) {
            let text = reader.text();
            let lines: Vec<_> = text.lines().map(|line| (line.contains("VM: 1000 VCPU:000"), line)).collect();
            assert!(lines.iter().filter(|(is_of_guest, _)| *is_of_guest).count() > 400, "{name}");
            assert!(lines.iter().all(|(is_of_guest, line)| *is_of_guest != line.trim().ends_with("1000")));
        }
    }
    // Only the right kernel is used for the guest.
    let input = data.join("vm-kernel.data");
    fs::create_dir(path("none")).unwrap();
    let ran = run("be", "2", &input, &path("none"), &path("out"));
    assert_eq!(ran.code, Some(3));
    let in_guest = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(" machine_pid 1000 vcpu 0 cpu 0 pid 50"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        // perf shows them in the order of the file.
        lines.sort();
        lines
    };
    let told = in_guest(&perfx(args!["view", "-q", path("out")]).text());
    assert!(told.len() > 30, "{told:?}");
    for perf in perfs(&["perf-new"]) {
        let theirs = perf.run(Stdin::Null, args!["script", "-i", path("out")]).text();
        same_lines("errors in a guest", &in_guest(&theirs), &told).unwrap();
    }
    let told = "the code of 1 file was not found, of [kernel.kallsyms]_text at ";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    let told = doctor_shares(&input, &data.join("root"));
    assert!(told.contains("%  [kernel.kallsyms], build-id c3: "), "{told}");
}

/// Regression: call chains, calls and targets of branches in a guest had the names of the host's kernel, or
/// none; its programs had no profile; and windows lacked the records of context switches after them.
#[test]
fn readers_find_the_code_of_a_guest() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    let (programs, cached) = (path("opt/perfx/trace"), path("cache/.build-id/c3"));
    fs::create_dir_all(&programs).unwrap();
    fs::create_dir_all(&cached).unwrap();
    let of_root = data.join("root/opt/perfx/trace");
    fs::copy(data.join("loop-symbols"), programs.join("loop")).unwrap();
    fs::copy(of_root.join("halve"), programs.join("halve")).unwrap();
    fs::copy(of_root.join("vmlinux"), cached.join("vmlinux")).unwrap();
    let options = args![
        "-q",
        "--foreign",
        "--root",
        folder.path(),
        "--vmlinux",
        of_root.join("vmlinux-kvm"),
        "--buildid-dir",
        path("cache")
    ];
    let run = |command: &[&str], name: &str| {
        let words = command.iter().map(OsString::from).chain(options.clone());
        perfx(words.chain([data.join(name).into_os_string()]))
    };
    // Chains, targets and calls of the guest are in its own kernel and programs.
    let of_host = ["vcpu_run", "vmx_vmexit", "table_call+"];
    let of_guest = ["do_syscall_64", "__libc_start_main"];
    for letters in ["--itrace=i20ig", "--itrace=b"] {
        let fields = if letters == "--itrace=b" { "comm,ip,sym,addr" } else { "comm,ip,sym" };
        let text = run(&["view", letters, "-F", fields, "--machine", "1000"], "vm-kernel.data").text();
        assert!(of_guest.iter().all(|name| text.contains(name)), "{text}");
        assert!(!of_host.iter().any(|name| text.contains(name)), "{text}");
    }
    let text = run(&["list", "functions", "--itrace", "--machine", "1000"], "vm-kernel.data").text();
    assert!(of_guest.iter().all(|name| text.contains(name)) && !text.contains("vcpu_run"), "{text}");
    let page = path("page.json.gz");
    run(&["export", "firefox", "--itrace", "-o", page.to_str().unwrap()], "vm.data").done().unwrap();
    let page = crate::firefox::profile(&fs::read(page).unwrap());
    let threads = page["threads"].as_array().unwrap().iter();
    let names = threads.map(|thread| (thread["name"].as_str(), thread["pid"].as_str()));
    assert!(names.clone().any(|name| name == (Some("guest500"), Some("1000:500"))));
    assert!(names.clone().any(|name| name == (Some("prog1000"), Some("1000"))));
    // Its program has a profile.
    let words = args!["--binary", of_root.join("halve"), data.join("vm.data")];
    let words = ["export", "bolt"].map(OsString::from).into_iter().chain(options.clone()).chain(words);
    assert!(perfx(words).done().unwrap().text().lines().count() > 25);
    // Windows equal their parts of the whole, and nothing is lost.
    for name in ["vm.data", "vm-kernel.data"] {
        let view = |window: &str| {
            let ran = run(&["view", "--itrace=be", "--ns", "-F", "time,tid,ip,addr", "--time", window], name);
            assert_eq!(ran.code, Some(0), "{name} {window}: {}", ran.stderr);
            ran.text().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let whole = view("1,1.1");
        for start in (0..9000).step_by(900) {
            let (from, to) = (format!("1.{start:09}"), format!("1.{:09}", start + 700));
            let is_inside = |line: &&String| {
                let time = line.split_whitespace().find_map(|word| word.strip_suffix(':')).unwrap();
                (&*from..&*to).contains(&time)
            };
            let expected: Vec<String> = whole.iter().filter(is_inside).cloned().collect();
            same_lines(&format!("{name} {from}"), &expected, &view(&format!("{from},{to}"))).unwrap();
        }
    }
}

/// Regression: the names and mappings of processes without samples were dropped, and the trace could not be
/// decoded.
#[test]
fn a_selection_by_thread_keeps_what_a_trace_needs() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let [out, decoded] = ["out.data", "decoded.data"].map(|name| folder.path().join(name));
    for name in ["kernel", "switch"] {
        let input = data.join(name).with_extension("data");
        assert_eq!(inject("b", "2", &input, &decoded).code, Some(0));
        let whole = branches(&decoded);
        for selected in [["--pid", "1000"], ["--comm", "prog1000"], ["--machine", "host"]] {
            perfx(args!["filter", "-f", selected[0], selected[1], input, "-o", out]).done().unwrap();
            assert_eq!(inject("b", "2", &out, &decoded).code, Some(0), "{name} {selected:?}");
            assert!(branches(&decoded) == whole, "{name} {selected:?}");
        }
    }
}

/// vm.data, taken apart into the recordings of the host and of the guest.
fn host_and_guest(host: &Path, guest: &Path) {
    let input = root().join("tests/data/trace/vm.data");
    let mut recording = Recording::open(input).unwrap();
    let (endian, features, events) = (recording.endian, recording.features.clone(), recording.events.clone());
    let mut of_host = RecordingWriter::create(host, &events[..2], endian).unwrap();
    let mut of_guest = RecordingWriter::create(guest, &events[2..], endian).unwrap();
    let mut records = recording.records();
    let mut indexes = 0;
    while let Some(record) = records.next_record().unwrap() {
        indexes += usize::from(record.kind() == RecordType::ID_INDEX);
        if record.is_of_guest() {
            let mut bytes = record.bytes().to_vec();
            // The level is in the lowest bits of the header's misc field: 4 and 5 are the kernel and user
            // code of a guest.
            bytes[4] = if bytes[4] & 7 == 5 { bytes[4] & !7 | 2 } else { bytes[4] & !7 };
            of_guest.write(&bytes).unwrap();
        } else if record.kind() != RecordType::ID_INDEX || indexes == 1 {
            of_host.write_record(&record).unwrap();
        }
    }
    for (feature, section) in features {
        if !matches!(feature, Feature::AUXTRACE | Feature::BUILD_ID | Feature::EVENT_DESC) {
            of_host.set_feature(feature, section.clone()).unwrap();
            of_guest.set_feature(feature, section).unwrap();
        }
    }
    of_host.finish().unwrap();
    of_guest.finish().unwrap();
}

#[test]
fn a_merged_trace_of_host_and_guest_is_decoded() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    let (programs, input) = (data.join("root"), data.join("vm.data"));
    host_and_guest(&path("host"), &path("guest"));
    let guest = format!(
        "{},pid=1000,offset=0,scale=1,vcpu=0:1000,root={}",
        path("guest").display(),
        programs.display()
    );
    perfx(args!["merge", path("host"), guest, "-o", path("merged")]).done().unwrap();
    let [whole, merged, alone] = [&input, &path("merged"), &path("host")].map(|input| {
        let ran = inject("i1ib", "2", input, &path("guest.out"));
        (ran.code, samples(&path("guest.out")).len(), branches(&path("guest.out")))
    });
    assert_eq!((whole.0, merged.0), (Some(0), Some(0)));
    assert!(merged == whole);
    // Without its records, the guest is counted only.
    assert_eq!(alone.0, Some(3));
    assert!(alone.2.keys().eq(["1000"]) && alone.2["1000"] == merged.2["1000"]);
}

/// The times of samples after the kernel are perf's estimates, even if the path there has no sample.
#[test]
fn view_shows_kernels_and_guests_as_perf_does() {
    let data = root().join("tests/data/trace");
    let fields = "comm,pid,tid,time,event,ip";
    for perf in perfs(&["perf-new"]) {
        for (name, letters) in [
            // PIP packets are between the ratio and the end of a point of synchronization.
            ("paging", &["p"][..]),
            ("kernel", &["b", "i100i", "i10i", "i1us", "i64ns", "p"]),
            ("vm", &["b", "cr", "i100i", "i1us", "p"]),
        ] {
            let (input, root) = (data.join(name).with_extension("data"), data.join("root"));
            let vmlinux = kernel_of(&input);
            for letters in letters {
                let itrace = format!("--itrace={letters}");
                let fields = match name {
                    "vm" => format!("{fields},machine_pid,vcpu"),
                    _ => fields.to_owned(),
                };
                let line = args!["script", "-f", "--ns", itrace, "-k", vmlinux, "-F", fields, "-i", input];
                let Some(theirs) = at_recorded_paths(perf.path(), &line) else { return };
                let line = args!["view", "--ns", itrace, "--vmlinux", vmlinux, "--foreign", "-F", fields];
                let ours = perfx([&line[..], &args!["--root", root, input]].concat());
                let [theirs, ours] = [theirs.text(), ours.text()]
                    .map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
                assert!(theirs.len() > 4, "{name} {letters}");
                same_lines(&format!("{} {name} {letters}", perf.name), &theirs, &ours).unwrap();
            }
        }
    }
}

/// The lines of `doctor` about missing code.
fn doctor_shares(input: &Path, programs: &Path) -> String {
    let vmlinux = programs.join("opt/perfx/trace/vmlinux-kvm");
    let text = perfx(args!["doctor", "--foreign", "--vmlinux", vmlinux, "--root", programs, input]).text();
    text.lines().skip(1).map(|line| format!("{line}\n")).collect()
}

fn without(name: &str, kind: RecordType, output: &Path) {
    rewrite(name, output, |record| (record.kind() == kind).then(Vec::new));
}

#[test]
fn samples_of_pebs_that_belong_to_no_event_are_counted() {
    let folder = temp();
    let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
    without("pebs.data", RecordType::AUX_OUTPUT_HW_ID, &input);
    let ran = inject("o", "2", &input, &output);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let told = "lost: 161 samples of PEBS in the trace belong to no event";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(samples(&output).len(), 0);
    // With one event, all are its own.
    let ran = inject("o", "2", &root().join("tests/data/trace/counters.data"), &output);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(samples(&output).len() > 100);
}

tiers!(damaged_samples_of_pebs_are_left_out_or_counted);
fn damaged_samples_of_pebs_are_left_out_or_counted(tier: Tier) {
    let folder = temp();
    let (damaged, output) = (folder.path().join("damaged.data"), folder.path().join("out.data"));
    let input = root().join("tests/data/trace/pebs.data");
    let bytes = fs::read(&input).unwrap();
    let data = perfx_format::intel_pt::psbs(&bytes).next().unwrap().at;
    assert_eq!(inject("oe", "2", &input, &output).code, Some(0));
    let whole = samples(&output);
    let (mut kept, mut runs) = (0, 0);
    for at in (data..data + 6000).step_by(tier.pick(670, 67)) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0xff;
        fs::write(&damaged, bytes).unwrap();
        let ran = inject("oe", "2", &damaged, &output);
        assert!(matches!(ran.code, Some(0 | 3)), "{at}: {}", ran.stderr);
        let found = samples(&output);
        kept += whole.iter().filter(|line| found.contains(line)).count();
        runs += 1;
    }
    // Most are unchanged.
    assert!(kept * 10 > runs * whole.len() * 9, "{kept} of {runs} × {}", whole.len());
}

#[test]
fn letters_that_are_not_decoded_are_refused_by_name() {
    let folder = temp();
    let input = root().join("tests/data/trace/user.data");
    for letters in ["yq", "qw"] {
        let ran = inject(letters, "1", &input, &folder.path().join("out.data"));
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("which q does not look at"), "{}", ran.stderr);
    }
}

/// With a copy of the kernel's memory, the branches have the same positions in vmlinux as with its code.
#[test]
fn profiles_of_the_kernel_are_the_same_from_its_memory() {
    let data = root().join("tests/data/trace");
    let (vmlinux, dir) = (data.join("root/opt/perfx/trace/vmlinux"), temp());
    let memory = dir.path().join("memory.data");
    fs::create_dir_all(memory.join("kcore_dir")).unwrap();
    fs::copy(data.join("kernel.data"), memory.join("data")).unwrap();
    fs::copy(&vmlinux, memory.join("kcore_dir/kcore")).unwrap();
    for format in ["autofdo", "bolt", "profgen"] {
        let [file, memory] = [data.join("kernel.data"), memory.clone()].map(|input| {
            let line = args!["export", format, "--root", data.join("root"), "--binary", &vmlinux, input];
            perfx(line).done().unwrap().text()
        });
        assert!(file.lines().count() > 20, "{file}");
        assert_eq!(file, memory, "{format}");
    }
}

#[test]
fn dump_lists_the_packets_that_perf_lists() {
    let data = root().join("tests/data/trace");
    for perf in perfs(&["perf-new"]) {
        for name in NAMES.into_iter().chain(["kernel", "hypervisor"]) {
            let input = data.join(name).with_extension("data");
            let theirs = perf.run(Stdin::Null, args!["script", "-f", "-D", "-i", input]).stdout;
            let theirs = String::from_utf8_lossy(&theirs).into_owned();
            let is_packet = |line: &&str| line.starts_with(".  0") && line.find(':') == Some(11);
            let theirs: Vec<_> = theirs.lines().filter(is_packet).map(|line| line[1..].to_owned()).collect();
            let ours = perfx(args!["dump", "--kind", "AUXTRACE,SAMPLE", "--aux", input]).text();
            let ours: Vec<_> =
                ours.lines().filter(|line| line.starts_with("  0")).map(str::to_owned).collect();
            assert!(theirs.len() > 50, "{name}");
            same_lines(name, &theirs, &ours).unwrap();
        }
    }
}

/// A line of OpenCSD without its position and the words that explain its name: `I_ATOM_F2 EE`, `I_ADDR_S_IS0
/// 400480`.
fn packet_of_opencsd(line: &str) -> Option<String> {
    let (_, rest) = line.trim().strip_prefix("Idx:")?.split_once("\tI_")?;
    let (name, rest) = rest.split_once(" : ")?;
    let address = rest.split("Addr=0x").nth(1).and_then(|rest| rest.split([';', ' ']).next());
    let address = address.map(|digits| format!(" {:x}", u64::from_str_radix(digits, 16).unwrap()));
    let atoms = rest.split("; ").nth(1).filter(|_| name.starts_with("ATOM"));
    let atoms = atoms.map(|atoms| format!(" {}", atoms.trim()));
    Some(format!("I_{name}{}{}", address.unwrap_or_default(), atoms.unwrap_or_default()))
}

/// Like [`packet_of_opencsd`], for our lines.
fn packet_of_ours(line: &str) -> Option<String> {
    let rest = line.strip_prefix("  0")?.split_once(" I_")?.1;
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let address = rest.split("Addr=0x").nth(1).and_then(|rest| rest.split(' ').next());
    let address = address.map(|digits| format!(" {digits}")).unwrap_or_default();
    let atoms = if name.starts_with("ATOM") { format!(" {rest}") } else { String::new() };
    Some(format!("I_{name}{address}{atoms}"))
}

#[test]
fn dump_lists_the_packets_of_coresight_that_opencsd_lists() {
    let data = root().join("tests/data/trace");
    for perf in perfs(&["perf-new"]) {
        for name in ["etm-cpus", "etm-cycles", "etm-ete", "etm-raw", "etm-speculation"] {
            let input = data.join(name).with_extension("data");
            let theirs = perf.run(Stdin::Null, args!["script", "-f", "-D", "-i", input]).stdout;
            let theirs = String::from_utf8_lossy(&theirs).into_owned();
            let theirs: Vec<_> = theirs.lines().filter_map(packet_of_opencsd).collect();
            let ours = perfx(args!["dump", "--kind", "AUXTRACE", "--aux", input]).text();
            let ours: Vec<_> = ours.lines().filter_map(packet_of_ours).collect();
            assert!(theirs.len() > 500, "{name}");
            same_lines(name, &theirs, &ours).unwrap();
        }
    }
}

#[test]
fn stats_and_info_describe_the_trace() {
    let data = root().join("tests/data/trace");
    let text = perfx(args!["stats", data.join("overflow.data")]).text();
    assert!(text.contains("AUX flow        5 sync points, 2 overflows\n"), "{text}");
    assert!(text.contains("102 TIP, 11 TIP.PGD, 11 TIP.PGE, 114 TNT, 16 TSC\n"), "{text}");
    assert!(text.contains("AUX traced      67.45% of 0.006 ms"), "{text}");
    let text = perfx(args!["stats", data.join("etm-overflow.data")]).text();
    assert!(text.contains("AUX flow        9 sync points, 4 overflows\n"), "{text}");
    let text = perfx(args!["info", data.join("times.data")]).text();
    let traced =
        "traced        branches, TSC, CYC, MTC every 64 ticks of the crystal clock, a buffer for each CPU";
    assert!(text.contains(traced), "{text}");
    let text = perfx(args!["info", data.join("etm-cycles.data")]).text();
    assert!(text.contains("traced        ETMv4 of 1 CPU, cycle counts, timestamps\n"), "{text}");
}

/// A line without the letters of states among the flags, as perf 7.3 shows it.
fn without_states(line: &str) -> String {
    const STATES: [&str; 7] = ["(x)", "(D)", "(t)", "(xD)", "(xt)", "(Dt)", "(xDt)"];
    let blank = |line: String, state: &&str| line.replace(*state, &format!("{:>1$}", "()", state.len()));
    STATES.iter().fold(line.to_owned(), blank)
}

/// perf 6.1 shows the letters; states are without brackets.
#[test]
fn the_states_among_the_flags_have_the_letters_of_perf() {
    let data = root().join("tests/data/trace");
    let letters = |text: &str| -> Vec<String> {
        let state = |word: &str| {
            let word = word.trim_matches(['(', ')']);
            (!word.is_empty() && word.chars().all(|letter| "xDt".contains(letter))).then(|| word.to_owned())
        };
        let of_line = |line: &str| line.split_whitespace().find_map(state).unwrap_or_default();
        text.lines().map(of_line).collect()
    };
    for perf in perfs(&["perf"]) {
        for (name, itrace) in [("events", "--itrace=bi1i"), ("rare", "--itrace=bi1i")] {
            let input = data.join(name).with_extension("data");
            let fields = [itrace, "-F", "ip,flags"];
            let theirs = letters(&perf.script(&input, &data.join("root"), &fields).text());
            let line = args!["view", "-q", "--foreign", "--root", data.join("root"), input];
            let line: Vec<OsString> = line.into_iter().chain(fields.map(Into::into)).collect();
            let ours = letters(&perfx(line).text());
            assert!(theirs.iter().filter(|letters| !letters.is_empty()).count() > 1000, "{name}");
            same_lines(name, &theirs, &ours).unwrap();
        }
    }
}

#[test]
fn view_shows_the_lines_of_perf_script() {
    let data = root().join("tests/data/trace");
    let programs = data.join("root");
    let vmlinux = programs.join("opt/perfx/trace/vmlinux");
    for perf in perfs(&["perf-new"]) {
        for (name, letters, fields) in [
            ("times", "b", None),
            ("switch", "b", Some("+flags")),
            ("overflow", "cr", Some("ip,addr,sym,dso,flags")),
            ("halve", "i100ig", None),
            ("threads", "i100il8", Some("+brstack")),
            ("tasks", "b", Some("tid,cpu,time,ip,sym,addr")),
            ("tasks", "bi100i", None),
            ("own-buffers", "bi100il8", Some("+pid,+flags,+brstack")),
            ("rare", "pw", None),
            ("pieces", "w", None),
            ("times", "bi10iy", Some("+ipc")),
            ("rare", "bA", Some("+ipc")),
            ("times", "bi10iyA", Some("+ipc")),
            ("times", "bi", Some("+flags,+ipc")),
            ("history", "G", None),
            ("history", "GL4", Some("+brstack")),
            ("history", "GL4", Some("+brstacksym")),
            ("moves", "G", None),
            ("moves", "GL4", Some("+brstack")),
            ("history", "L", Some("tid,cpu,time,ip,sym,brstack")),
            ("32-bit", "bi100il8", Some("+flags,+brstack")),
            ("32-bit", "cr", Some("ip,addr,flags")),
            ("filtered", "bi10ile", Some("+flags,+brstack")),
            ("filtered", "bqi", None),
            ("switch", "bi5i", Some("+flags")),
            ("times", "bi10iy", Some("+insn,+insnlen,+ipc")),
            ("32-bit", "i7i", Some("+insn,+flags")),
            ("filtered", "cri3i", Some("+insnlen")),
            ("events", "bIwe", None),
            ("events", "bi10iIwl4", Some("+brstack")),
            ("events", "qbiI", None),
            ("events", "bi3i", Some("+flags")),
            ("events", "cri1iy", Some("+flags")),
            ("rare", "bi1i", Some("+flags")),
            ("overflow", "e", None),
            ("overflow", "be", Some("+flags")),
            ("user", "bZ", None),
            ("user", "b", Some("ip,sym,addr,srcline")),
            // Missing fields of one of the events are 0, or empty.
            ("user", "bi10i", Some("+addr,+synth")),
            ("rare", "wi7i", Some("+addr")),
            ("pebs", "o", None),
            ("pebs", "ol8", Some("+brstack,+weight")),
            ("pebs", "ogL4", Some("+brstack")),
            ("counters", "o", Some("+addr,+weight")),
        ] {
            let input = data.join(name).with_extension("data");
            let itrace = format!("--itrace={letters}");
            let fields: Vec<&str> = fields.map(|fields| ["-F", fields]).into_iter().flatten().collect();
            let mut args =
                args!["script", "-f", itrace, "-k", vmlinux, "--symfs", programs, "-i", input].to_vec();
            args.extend(fields.iter().map(Into::into));
            let theirs = perf.run(Stdin::Null, args).text();
            let mut args =
                args!["view", "-q", itrace, "--vmlinux", vmlinux, "--root", programs, "--foreign", input]
                    .to_vec();
            args.extend(fields.iter().map(Into::into));
            let ours = perfx(args).text();
            // perf 7.3 loses the letters. Where tracing begins, it shows the instruction of the previous
            // branch.
            let begins = " 0 [unknown] ([unknown])";
            let lines = |text: &str| -> Vec<String> {
                let shown = |line: &str| match line.split_once(" ilen: ") {
                    // For a file without symbols, perf shows the offset of the line in the mapping.
                    _ if line.starts_with("  loop[") => "  loop".to_owned(),
                    Some((front, _)) if front.ends_with(begins) => front.to_owned(),
                    _ => without_states(line).trim_end().to_owned(),
                };
                text.lines().map(shown).collect()
            };
            let what = format!("{name} {letters}");
            assert!(lines(&theirs).len() > 1, "{what}");
            let [mut theirs, mut ours] = [theirs, ours].map(|text| lines(&text));
            if is_across_cpus(name) {
                theirs.sort();
                ours.sort();
            }
            same_lines(&what, &theirs, &ours).unwrap();
        }
    }
}

/// Of these programs, only `halve` has no longjmp, whose frames perf keeps: calls are indented in the same
/// way there. `coresight.rs` compares the other tracer.
#[test]
fn calls_are_indented_as_by_perf() {
    let data = root().join("tests/data/trace");
    let programs = data.join("root");
    for perf in perfs(&["perf-new"]) {
        for (name, options) in [
            ("halve", &["--call-trace"][..]),
            ("halve", &["--call-ret-trace"]),
            ("halve", &["--insn-trace"]),
            ("halve", &["--call-trace", "-F", "+flags"]),
            ("halve", &["--itrace=b", "-F", "+callindent,+addr"]),
            ("halve", &["--itrace=cri100", "-F", "comm,dso,sym,callindent"]),
            ("user", &["--call-ret-trace"]),
            ("user", &["--insn-trace"]),
            ("rare", &["--call-trace"]),
            ("times", &["--itrace=cr", "-F", "callindent"]),
        ] {
            let input = data.join(name).with_extension("data");
            let options = options.iter().map(OsString::from);
            let theirs = args!["script", "-f", "--symfs", programs, "-i", input];
            let theirs = perf.run(Stdin::Null, theirs.into_iter().chain(options.clone())).text();
            let ours = args!["view", "-q", "--root", programs, "--foreign", input];
            let ours = perfx(ours.into_iter().chain(options.clone())).text();
            let lines = |text: &str| -> Vec<String> {
                let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
                let shown = |line: &str| if name == "halve" { line.to_owned() } else { squeezed(line) };
                text.lines().map(shown).collect()
            };
            let what = format!("{name} {:?}", options.collect::<Vec<_>>());
            assert!(lines(&theirs).len() > 20, "{what}: {theirs}");
            same_lines(&what, &lines(&theirs), &lines(&ours)).unwrap();
        }
    }
}

/// Regression: records of switches before a window were left out, so that the code at its beginning was
/// attributed to another thread; and overlaps of snapshots were not found in the cut part.
#[test]
fn a_window_of_a_trace_has_the_same_branches_as_the_whole() {
    let data = root().join("tests/data/trace");
    let programs = data.join("root");
    // Without cpus: its clock is known a little better with the trace before the window.
    for name in ["tasks", "threads", "own-buffers", "schedule", "snapshots", "sampled", "overflow", "vm"] {
        let input = data.join(name).with_extension("data");
        let vmlinux = kernel_of(&input);
        let view = |more: &[&str]| {
            let line = args!["view", "-q", "--foreign", "--root", programs, "--itrace=b", "--ns"];
            let line = [&line[..], &args!["--vmlinux", vmlinux, input]].concat();
            let line = line.into_iter().chain(["-F", "time,tid,ip,addr"].map(Into::into));
            let text = perfx(line.chain(more.iter().map(OsString::from))).text();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let time =
            |line: &str| line.split_whitespace().find_map(|word| word.strip_suffix(':').map(str::to_owned));
        let whole = view(&[]);
        let times: Vec<String> = whole.iter().filter_map(|line| time(line)).collect();
        let (from, to) = (&times[times.len() / 4], &times[times.len() * 3 / 4]);
        let is_inside = |line: &String| time(line).is_some_and(|time| (from..to).contains(&&time));
        let mut expected: Vec<String> = whole.into_iter().filter(is_inside).collect();
        let mut shown = view(&["--time", &format!("{from},{to}")]);
        if is_across_cpus(name) {
            expected.sort();
            shown.sort();
        }
        assert!(expected.len() > 300, "{name}: {from} to {to}");
        same_lines(name, &expected, &shown).unwrap();
    }
}

/// Regression: AUX data in a sample was recorded before it.
#[test]
fn a_window_of_a_trace_in_samples_reports_missing_data() {
    let (input, folder) = (root().join("tests/data/trace/sampled.data"), temp());
    let ran = perfx(args!["filter", "--time", ",1.000006", input, "-o", folder.path().join("out.data")]);
    assert!(ran.code == Some(3) && ran.stderr.contains("at the end of a window"), "{}", ran.stderr);
}

#[test]
fn samples_in_the_kernel_have_the_branches_before_their_address() {
    let input = root().join("tests/data/trace/history-kernel.data");
    let vmlinux = root().join("tests/data/trace/root/opt/perfx/trace/vmlinux");
    for perf in perfs(&["perf-new"]) {
        let fields = ["--itrace=L", "-F", "tid,time,ip,sym,brstack"];
        let line = args!["script", "-f", "-k", "/opt/perfx/trace/vmlinux", "-i", input];
        let line: Vec<OsString> = line.into_iter().chain(fields.map(Into::into)).collect();
        let Some(theirs) = at_recorded_paths(perf.path(), &line) else { return };
        let programs = root().join("tests/data/trace/root");
        let line = args!["view", "-q", "--vmlinux", vmlinux, "--root", programs, "--foreign", input];
        let line: Vec<OsString> = line.into_iter().chain(fields.map(Into::into)).collect();
        let [theirs, ours] = [theirs.text(), perfx(line).text()];
        let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert!(lines(&theirs).len() > 70, "{theirs}");
        same_lines("L", &lines(&theirs), &lines(&ours)).unwrap();
    }
}

#[test]
fn events_of_interrupts_are_injected_as_view_shows_them() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let (input, out) = (data.join("events.data"), folder.path().join("out"));
    let ran = inject("Iw", "2", &input, &out);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let view = |more: &[OsString]| perfx([&args!["view", "-q", "--foreign"][..], more].concat()).text();
    let shown = view(&args!["--itrace=Iw", "--root", data.join("root"), input]);
    assert!(shown.contains("evt:  cfe: INTR IP: 1 vector: 14 PFA: 0x7f0000001010 "), "{shown}");
    assert!(shown.contains("iflag:  IFLAG: 1->0 via branch "), "{shown}");
    assert_eq!(shown, view(&args![out]));
    let names: Vec<String> =
        events(&out).iter().map(|event| event.split(' ').next().unwrap().into()).collect();
    assert_eq!(names, ["ptwrite", "evt", "iflag"]);
}

/// Events, page tables, and the kinds of the kernel's branches. perf shows samples in the order of decoding:
/// the return times of the kernel are estimates, so that times go back after them.
#[test]
fn events_in_the_kernel_are_those_of_perf() {
    let data = root().join("tests/data/trace");
    let (vmlinux, programs) = (data.join("root/opt/perfx/trace/vmlinux"), data.join("root"));
    for perf in perfs(&["perf-new"]) {
        for (name, letters, fields) in [
            ("paging", "bIwe", "+tid"),
            ("paging", "bi10il4I", "+brstack"),
            ("paging", "qbiI", "+tid"),
            ("kernel", "bi7i", "+flags"),
            ("paging", "bi1iy", "+flags"),
            ("kernel", "cr", "+flags"),
        ] {
            let input = data.join(name).with_extension("data");
            let fields = [format!("--itrace={letters}"), format!("-F{fields}")];
            let line = args!["script", "-f", "-k", "/opt/perfx/trace/vmlinux", "-i", input];
            let line: Vec<OsString> = line.into_iter().chain(fields.iter().map(Into::into)).collect();
            let Some(theirs) = at_recorded_paths(perf.path(), &line) else { return };
            let line = args!["view", "-q", "--vmlinux", vmlinux, "--root", programs, "--foreign", input];
            let line: Vec<OsString> = line.into_iter().chain(fields.iter().map(Into::into)).collect();
            let [theirs, ours] = [theirs.text(), perfx(line).text()].map(|text| {
                let mut lines: Vec<_> =
                    text.lines().map(|line| without_states(line).trim_end().to_owned()).collect();
                lines.sort();
                lines
            });
            assert!(theirs.len() > 100, "{name} {letters}: {theirs:?}");
            same_lines(&format!("{name} {letters}"), &theirs, &ours).unwrap();
        }
    }
}

/// Writes user.data as if its program were code of a JIT compiler, with the jitdump beside it.
fn as_jitted(folder: &Path) -> PathBuf {
    let data = root().join("tests/data/trace");
    let program = fs::read(data.join("root/opt/perfx/trace/loop")).unwrap();
    let mut recording = Recording::open(data.join("user.data")).unwrap();
    let (endian, features) = (recording.endian, recording.features.clone());
    let output = folder.join("jitted.data");
    let mut writer = RecordingWriter::create(&output, &recording.events, endian).unwrap();
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        let bytes = record.bytes();
        let name = b"/opt/perfx/trace/loop";
        match bytes.windows(name.len()).position(|window| window == name) {
            Some(at) if record.kind() == RecordType::MMAP2 => {
                let mut bytes = bytes.to_vec();
                bytes[at..at + name.len()].fill(0);
                bytes[at..at + 18].copy_from_slice(b"/tmp/jit-1000.dump");
                // It is mapped elsewhere than the code.
                endian.set_u64(&mut bytes, 16, 0x10_0000);
                writer.write(&bytes).unwrap();
            }
            _ => writer.write(&[bytes, record.payload()].concat()).unwrap(),
        }
    }
    for (feature, section) in features.into_iter().filter(|(feature, _)| *feature != Feature::AUXTRACE) {
        writer.set_feature(feature, section).unwrap();
    }
    writer.finish().unwrap();
    let mut dump = Writer::new(endian, 62, 1000);
    let code = &program[0x1000..0x53ef];
    let (address, size) = (0x40_1000, code.len() as u64);
    dump.load(1, &Load { pid: 1000, tid: 1000, address, size, index: 1, name: b"all", code });
    fs::write(folder.join("jit-1000.dump"), dump.into_bytes()).unwrap();
    output
}

/// The kernel reports the code of probes and trampolines by TEXT_POKE records alone, without code before it.
#[test]
fn code_that_only_text_pokes_have_is_decoded() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let endian = Endian::Little;
    let section = Recording::open(data.join("bpf.data")).unwrap().features[&Feature::BPF_PROG_INFO].clone();
    let functions: Vec<_> = bpf_functions(&section, endian).collect();
    let poke_before = |record: &Record<'_>| {
        let symbol = Ksymbol::of(record).filter(|symbol| !symbol.is_gone())?;
        let is_it = |function: &&BpfFunction<'_>| {
            let name = format!("bpf_prog_{}", hex(function.tag.unwrap()));
            function.address == symbol.address && symbol.name.starts_with(name.as_bytes())
        };
        let code = functions.iter().find(is_it).unwrap().code.unwrap();
        let sizes = [[0; 2], (code.len() as u16).to_le_bytes()].concat();
        let padding = vec![0; (20 + code.len()).next_multiple_of(8) - 20 - code.len()];
        // Thread, time, CPU and id.
        let trailer = record.bytes().last_chunk::<32>().unwrap();
        let parts: [&[u8]; 5] = [&symbol.address.to_le_bytes(), &sizes, code, &padding, trailer];
        Some([&build(RecordType::TEXT_POKE, 1, &parts, endian).unwrap(), record.bytes()].concat())
    };
    rewrite_with("bpf.data", &input, poke_before, &[(Feature::BPF_PROG_INFO, vec![0; 4])]);
    for threads in ["1", "2"] {
        let ran = inject("b", threads, &input, &output);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(branches(&output) == truth_of("bpf"));
    }
}

/// In jit.data, functions come to the memory of earlier ones.
#[test]
fn code_of_a_jitdump_is_decoded_in_one_command_and_in_two() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    let jitted = as_jitted(folder.path());
    for (input, dumps, name) in [(&jitted, folder.path(), "user"), (&data.join("jit.data"), &*data, "jit")] {
        let truth = truth(&fs::read_to_string(data.join(name).with_extension("truth")).unwrap());
        for threads in ["1", "2"] {
            let run = |more: &[OsString]| {
                let line = args!["inject", "-f", "-@", threads, "--root", data.join("root")];
                let ran = perfx([&line[..], more].concat());
                assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
            };
            let jit = args!["-j", "--jit-dir", dumps, "-i", input];
            run(&[&jit[..], &args!["-o", path("images")]].concat());
            run(&args!["--itrace=b", path("images"), "-o", path("two")]);
            assert!(branches(&path("two")) == truth, "{name}");
            run(&[&jit[..], &args!["--itrace=b", "-o", path("one")]].concat());
            assert!(branches(&path("one")) == truth, "{name}");
        }
    }
}

#[test]
fn ignored_changes_of_code_are_reported() {
    let folder = temp();
    let (input, changed) = (root().join("tests/data/trace/poke.data"), folder.path().join("changed.data"));
    let mut recording = Recording::open(&input).unwrap();
    let endian = recording.endian;
    let mut writer = RecordingWriter::create(&changed, &recording.events, endian).unwrap();
    let features = recording.features.clone();
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        let bytes = record.bytes();
        if record.kind() == RecordType::TEXT_POKE {
            // One that is longer than a page: address, lengths, old bytes, and the trailer.
            let old = 5000;
            let used = 20 + usize::from(endian.u16(bytes, 16).unwrap() + endian.u16(bytes, 18).unwrap());
            let trailer = &bytes[used.next_multiple_of(8)..];
            let mut long = [&bytes[..20], &vec![0; old + 4], trailer].concat();
            let size = long.len() as u16;
            endian.set_u16(&mut long, 6, size);
            endian.set_u16(&mut long, 16, old as u16);
            endian.set_u16(&mut long, 18, 0);
            writer.write(&long).unwrap();
        }
        writer.write(&[bytes, record.payload()].concat()).unwrap();
    }
    for (feature, section) in features.into_iter().filter(|(feature, _)| *feature != Feature::AUXTRACE) {
        writer.set_feature(feature, section).unwrap();
    }
    writer.finish().unwrap();
    let ran = inject("b", "2", &changed, &folder.path().join("out"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let told = "of the kernel's code (TEXT_POKE) are too many, or too long: code decoded there may be wrong";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
}

#[test]
fn perf_decodes_changed_code_of_the_kernel_to_its_truth() {
    let input = root().join("tests/data/trace/poke.data");
    for perf in perfs(&["perf-new"]) {
        let options = ["--itrace=b", "-F", "tid,ip,addr"];
        let line = args!["script", "-f", "-k", "/opt/perfx/trace/vmlinux", "-i", input];
        let line: Vec<OsString> = line.into_iter().chain(options.map(Into::into)).collect();
        let Some(ran) = at_recorded_paths(perf.path(), &line) else { return };
        let truth = truth(&fs::read_to_string(input.with_extension("truth")).unwrap());
        assert!(decoded(&ran.text()) == truth);
    }
}

#[test]
fn inject_adds_call_chains_to_recorded_samples() {
    let folder = temp();
    let out = folder.path().join("out");
    // perf inject ignores G.
    let ran = inject("GL2", "2", &root().join("tests/data/trace/history.data"), &out);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let shown = |fields: &str| perfx(args!["view", "-q", "--foreign", "-F", fields, out]).text();
    let root = root().join("tests/data/trace/root");
    let itrace = args!["view", "-q", "--itrace=GL2", "--foreign", "--root", root];
    for fields in ["tid,time,ip", "tid,time,brstack"] {
        let line = [&itrace[..], &args!["-F", fields, root.with_file_name("history.data")]].concat();
        assert_eq!(shown(fields), perfx(line).text(), "{fields}");
    }
}

#[test]
fn doctor_tells_which_code_a_trace_lacks_and_what_finds_it() {
    let (data, folder) = (root().join("tests/data/trace"), temp());
    let (input, code) = (data.join("kernel.data"), data.join("root"));
    let doctor = |more: &[OsString]| {
        let ran = perfx([&args!["doctor", "--foreign"][..], more, &args![input]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.text()
    };
    let share = |line: &str| line.trim().split_once('%').unwrap().0.parse::<f64>().unwrap();
    let none = doctor(&[]);
    let lines: Vec<&str> = none.lines().skip(2).collect();
    assert!(
        lines.len() == 2 && (lines.iter().map(|line| share(line)).sum::<f64>() - 100.0).abs() < 0.02,
        "{none}"
    );
    let kernel = lines.iter().find(|line| line.contains("[kernel.kallsyms]:")).unwrap();
    assert!(kernel.contains("--vmlinux FILE"), "{kernel}");
    let program = lines.iter().find(|line| line.contains("/opt/perfx/trace/loop")).unwrap();
    assert!(program.contains("--root DIR"), "{program}");
    // With the code of the program, and with that of the kernel, too.
    let text = doctor(&args!["--root", code]);
    assert!(text.contains(kernel) && !text.contains("/opt/perfx/trace/loop"), "{text}");
    let vmlinux = code.join("opt/perfx/trace/vmlinux");
    assert_eq!(doctor(&args!["--root", code, "--vmlinux", vmlinux]).lines().count(), 1);
    // Another program at its place is not its code.
    let place = folder.path().join("opt/perfx/trace");
    fs::create_dir_all(&place).unwrap();
    fs::copy(code.join("opt/perfx/trace/halve"), place.join("loop")).unwrap();
    let known = folder.path().join("known.data");
    let ids = "c1 /opt/perfx/trace/loop";
    perfx(args!["inject", "--buildid-all", "--foreign", "--known-build-ids", ids, input, "-o", known])
        .done()
        .unwrap();
    let text = perfx(args!["doctor", "--foreign", "--root", folder.path(), known]).text();
    assert!(
        text.contains("/opt/perfx/trace/loop, build-id c1: ")
            && text.contains("debuginfod-find executable c1"),
        "{text}"
    );
}

/// Regression: the missing code of a truncated recording was not searched for.
#[test]
fn doctor_lists_missing_code_of_a_truncated_recording() {
    let (data, folder) = (root().join("tests/data/trace/pieces.data"), temp());
    let cut = folder.path().join("cut.data");
    fs::write(&cut, &fs::read(data).unwrap()[..6000]).unwrap();
    let ran = perfx(args!["doctor", "--foreign", cut]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let text = ran.text();
    assert!(
        text.contains(": unreadable, ") && text.contains("100.00%  /opt/perfx/trace/loop: --root"),
        "{text}"
    );
}

/// Regression: a trace of 200 MB has 100 GB of samples, which went into a temporary file before the first was
/// shown.
#[test]
fn decoded_samples_are_shown_without_a_large_temporary_file() {
    let folder = temp();
    let long = folder.path().join("long");
    repeat("cpus.data", &long);
    let program = perfx_command().get_program().to_owned();
    for (line, least) in [
        ("view --itrace=be -q", 80_000),
        ("view --itrace=b --count -q", 1),
        ("view --itrace=b --head 10 -q", 10),
        ("view --itrace=b -q --time 1,2", 40_000),
        ("export firefox -q --itrace -o -", 1),
        ("list functions -q --itrace", 3),
    ] {
        // Files of at most 64 KiB, or that with the trace of a window.
        let trace = fs::metadata(&long).unwrap().len() / 1024;
        let most = if line.contains("--time") { 64 + trace } else { 64 };
        let line = format!("ulimit -f {most}; exec \"$0\" {line} --foreign --root \"$1\" \"$2\"");
        let mut command = Command::new("bash");
        let ran = run(
            command.args(["-c", &line]).arg(&program).arg(root().join("tests/data/trace/root")).arg(&long),
            Stdin::Null,
        );
        assert!(matches!(ran.code, Some(0 | 3)), "{line}: {}", ran.stderr);
        let lines = ran.text().lines().count();
        assert!(lines >= least, "{line}: {lines} lines");
    }
}

/// Regression: no window selected everything, and hints did not count the samples of the trace.
#[test]
fn a_trace_outside_all_windows_shows_nothing() {
    let input = root().join("tests/data/trace/user.data");
    let programs = root().join("tests/data/trace/root");
    for (option, value, hint) in [
        ("--time", "1.0000005,1.0000005", "no sample was selected"),
        ("--comm", "nobody", "it has `prog1000`"),
    ] {
        let ran = perfx(args!["view", "--itrace=b", "--foreign", "--root", programs, option, value, input]);
        assert_eq!((ran.code, ran.text()), (Some(3), String::new()), "{option}");
        assert!(ran.stderr.contains(hint), "{option}: {}", ran.stderr);
    }
}

/// Losses of the recording itself are known before anything is decoded.
#[test]
fn the_first_samples_of_a_cut_trace_are_suspect() {
    let folder = temp();
    let cut = folder.path().join("cut.data");
    fs::write(&cut, &fs::read(root().join("tests/data/trace/kernel.data")).unwrap()[..3000]).unwrap();
    let programs = root().join("tests/data/trace/root");
    let ran = perfx(args!["view", "--itrace=be", "--foreign", "--root", programs, "--head", "3", cut]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("lost: "), "{}", ran.stderr);
}

/// No library decodes all of A64.
#[test]
fn instructions_of_x86_are_disassembled_and_those_of_a64_are_bytes() {
    let data = root().join("tests/data/trace");
    for (name, lines) in [
        ("halve", ["401091\t\txor %rbp,%rbp", "401094\t\tmov %rsp,%rdi"]),
        ("32-bit", ["804815e\t\tpush %ebp", "804815f\t\tpush %edi"]),
        ("etm-user", ["400134\t\t1d 00 80 d2", "400138\t\t39 01 00 94"]),
    ] {
        let view = args!["view", "-q", "--foreign", "--root", data.join("root"), "--itrace=i1i"];
        let input = data.join(name).with_extension("data");
        let rest = args!["-F", "ip,disasm", "--head", "2", input];
        let text = perfx(view.into_iter().chain(rest)).text();
        assert!(text.lines().map(str::trim).eq(lines), "{text}");
    }
}
