//! The recordings with CoreSight in tests/data/trace: perf, with OpenCSD, decodes each to the branches in its truth, so
//! that they can be used to test a decoder.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use perfx_format::read::Recording;
use perfx_format::record::aux::{Aux, Auxtrace};
use perfx_format::record::time::replace_times;
use perfx_format::write::RecordingWriter;

use crate::args;
use crate::itrace::{events, samples};
use crate::support::{Stdin, perf, perfs, perfx, root, same_lines, temp};

/// From where to where; `-` where tracing begins or ends.
type Branch = (String, String);

/// perf cannot be asked about the others: it does not look for a vmlinux below --symfs (etm-kernel), ends at the last
/// timestamp (etm-times, etm-cycles), mixes what two CPUs did (etm-cpus), goes on after an overflow at the next
/// synchronization only (etm-overflow), and omits a branch if nothing was executed between it and an interrupt
/// (etm-interrupt, etm-threads).
const NAMES: [&str; 9] = [
    "etm-user",
    "etm-signal",
    "etm-raw",
    "etm-ete",
    "etm-stack",
    "etm-context",
    "etm-speculation",
    "etm-ids",
    "etm-cut",
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

/// A folder with a name of a given length that leads to another one.
struct Alias(PathBuf);

impl Drop for Alias {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// `perf inject` looks for code at the paths in the recording only, so that these become others of the same length.
#[test]
fn inject_makes_the_samples_of_perf() {
    let Some(perf) = perf("perf-new") else { return };
    const PLACE: &str = "/opt/perfx/trace";
    let folder = root().join("tests/data/trace");
    let alias = Alias(format!("/tmp/etm{:08}", std::process::id()).into());
    assert_eq!(alias.0.as_os_str().len(), PLACE.len());
    symlink(folder.join("root").join(&PLACE[1..]), &alias.0).unwrap();
    let dir = temp();
    let path = |name: &str| dir.path().join(name);
    for name in NAMES {
        let bytes = fs::read(folder.join(name).with_extension("data")).unwrap();
        let place = bytes.windows(PLACE.len()).position(|window| window == PLACE.as_bytes()).unwrap();
        let moved = alias.0.as_os_str().as_encoded_bytes();
        fs::write(path("in"), [&bytes[..place], moved, &bytes[place + PLACE.len()..]].concat()).unwrap();
        for letters in ["b", "c", "i1000i", "i100il", "i7il4", "i100ib"] {
            // A range of ETE has several blocks: samples of one place come in another order.
            if (name, letters) == ("etm-ete", "i100ib") {
                continue;
            }
            let (what, itrace) = (format!("{name} {letters}"), format!("--itrace={letters}"));
            perf.run(Stdin::Null, args!["inject", "-f", &itrace, "-i", path("in"), "-o", path("perf")]);
            perfx(args!["inject", "-f", &itrace, path("in"), "-o", path("ours")]).done().unwrap();
            same_lines(&what, &events(&path("perf")), &events(&path("ours"))).unwrap();
            same_lines(&what, &samples(&path("perf")), &samples(&path("ours"))).unwrap();
        }
    }
}

/// What perf cannot be asked about, or gets wrong: the branches are those of the truth.
#[test]
fn inject_makes_the_branches_that_were_taken() {
    let folder = root().join("tests/data/trace");
    let (dir, kernel) = (temp(), folder.join("root/opt/perfx/trace/vmlinux64"));
    let out = dir.path().join("out");
    for name in ["etm-kernel", "etm-times", "etm-cycles", "etm-interrupt"] {
        let input = folder.join(name).with_extension("data");
        let (root, itrace) = (folder.join("root"), "--itrace=b");
        perfx(args!["inject", "-f", itrace, "--root", root, "-k", &kernel, input, "-o", &out])
            .done()
            .unwrap();
        let truth = truth(&fs::read_to_string(folder.join(name).with_extension("truth")).unwrap());
        let place = |at: &str| u64::from_str_radix(at, 16).unwrap_or(0);
        let branches: Vec<_> = truth.iter().map(|(from, to)| (place(from), place(to))).collect();
        let mut recording = Recording::open(&out).unwrap();
        let mut records = recording.records();
        let mut made = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            if let Some(sample) = record.sample().unwrap() {
                made.push((sample.ip.unwrap(), sample.addr.unwrap()));
            }
        }
        // Nothing tells where a trace ends.
        assert_eq!(made.len(), branches.len() - 1, "{name}");
        assert!(made == branches[..made.len()], "{name}");
    }
}

/// CPU 0 writes its trace twice before CPU 1's is saved, which is of a time between these.
#[test]
fn samples_of_several_cpus_come_in_the_order_of_their_times() {
    let folder = root().join("tests/data/trace");
    let dir = temp();
    let (input, out) = (dir.path().join("in.data"), dir.path().join("out.data"));
    let mut recording = Recording::open(folder.join("etm-cpus.data")).unwrap();
    let (endian, events) = (recording.endian, recording.events.clone());
    let mut writer = RecordingWriter::create(&input, &events, endian).unwrap();
    for (&feature, section) in &recording.features {
        writer.set_feature(feature, section.to_vec()).unwrap();
    }
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        let (bytes, layout) = (record.bytes(), record.layouts().layout_of(&record));
        let cpu = layout.and_then(|layout| layout.cpu(&record));
        if let Some(aux) = Aux::of(&record) {
            let is_first = cpu == Some(0);
            for again in 0..1 + u64::from(is_first) {
                let mut bytes = Cow::Borrowed(bytes);
                let later = 200 * again + if is_first { 0 } else { 100 };
                replace_times(&record, layout, &mut bytes, |time| Ok::<_, ()>(time + later)).unwrap();
                let mut bytes = bytes.into_owned();
                endian.set_u64(&mut bytes, 8, aux.offset + again * aux.size);
                writer.write(&bytes).unwrap();
            }
        } else if let Some(Auxtrace { cpu: 0, offset, size, .. }) = Auxtrace::of(&record) {
            let mut head = bytes.to_vec();
            Auxtrace::set_part(&mut head, offset, 2 * size, endian);
            writer.write(&[&head, record.payload(), record.payload()].concat()).unwrap();
        } else {
            writer.write(&[bytes, record.payload()].concat()).unwrap();
        }
    }
    writer.finish().unwrap();
    perfx(args!["inject", "--itrace=b", "--root", folder.join("root"), input, "-o", &out]).done().unwrap();
    let mut recording = Recording::open(&out).unwrap();
    let (mut records, mut made) = (recording.records(), Vec::new());
    while let Some(record) = records.next_record().unwrap() {
        if let Some(sample) = record.sample().unwrap() {
            made.push((sample.time.unwrap(), sample.cpu.unwrap()));
        }
    }
    made.dedup();
    let start = made[0].0;
    assert_eq!(made, [(start, 0), (start + 100, 1), (start + 200, 0)]);
}

/// The program in the recordings of simpleperf, below `root`.
const ANDROID: &str = "root/opt/perfx/trace/android64";

/// What `simpleperf inject` of the NDK r27 made of the same recordings, byte by byte.
#[test]
fn export_autofdo_writes_the_text_of_simpleperf_inject() {
    let folder = root().join("tests/data/trace");
    let kernel = folder.join("root/opt/perfx/trace/vmlinux64");
    for name in ["etm-android", "etm-android-kernel"] {
        let input = folder.join(name).with_extension("data");
        let expected = fs::read_to_string(input.with_extension("simpleperf")).unwrap();
        for threads in ["1", "2", "5"] {
            let options = ["export", "autofdo", "-@", threads].map(Into::into);
            let files = args!["--vmlinux", &kernel, "--binary", folder.join(ANDROID), &input];
            let run = perfx([&options[..], &files].concat());
            assert_eq!(run.done().unwrap().text(), expected, "{name} -@{threads}");
        }
    }
}

/// simpleperf before 2025 counts addresses from the first segment on; these are offsets in the file, as it writes now.
#[test]
fn export_autofdo_has_the_kernel_as_a_program() {
    let folder = root().join("tests/data/trace");
    let input = folder.join("etm-android-kernel.data");
    let (kernel, root) = (folder.join("root/opt/perfx/trace/vmlinux64"), folder.join("root"));
    let run = perfx(args!["export", "autofdo", "--binary", kernel, "--root", root, input]);
    insta::assert_snapshot!(run.done().unwrap().text());
}

#[test]
fn profiles_of_several_recordings_add_up() {
    let folder = root().join("tests/data/trace");
    let (dir, input) = (temp(), folder.join("etm-android.data"));
    let list = dir.path().join("list");
    fs::write(&list, format!("{0}\n{0}\n", input.display())).unwrap();
    let of = |input: &str| {
        let run = perfx(args!["export", "autofdo", "--binary", folder.join(ANDROID), input]);
        run.done().unwrap().text()
    };
    let (one, two) = (of(input.to_str().unwrap()), of(&format!("@{}", list.display())));
    let doubled = one.lines().map(|line| match line.rsplit_once(':') {
        Some((place, count)) if !line.starts_with("//") => {
            format!("{place}:{}\n", 2 * count.parse::<u64>().unwrap())
        }
        _ => format!("{line}\n"),
    });
    assert_eq!(two, doubled.collect::<String>());
}

/// perf takes the first offset in simpleperf's index of AUXTRACE records for the number of its entries.
#[test]
fn normalize_makes_a_recording_of_simpleperf_readable_for_perf() {
    let folder = root().join("tests/data/trace");
    let (dir, input) = (temp(), folder.join("etm-android.data"));
    let out = dir.path().join("out");
    perfx(args!["normalize", "--for", "perf-6.12", &input, "-o", &out]).done().unwrap();
    for perf in perfs(&["perf-new"]) {
        let options = ["--itrace=b", "-F", "ip,addr"];
        let branches = decoded(&perf.script(&out, &folder.join("root"), &options).text());
        assert!(branches.len() > 1000, "{}: {} branches", perf.path().display(), branches.len());
    }
}

#[test]
fn info_shows_what_simpleperf_records() {
    let run = perfx(args!["info", root().join("tests/data/trace/etm-android-kernel.data")]);
    let text = run.done().unwrap().text();
    for line in ["1 records in the index", "META_INFO (129)", "FILE2 (132)", "INIT_MAP (134)"] {
        assert!(text.contains(line), "{text}");
    }
}

/// A branch list that `simpleperf inject` of the NDK r27 made of etm-android, and its text of that.
#[test]
fn export_autofdo_reads_branch_lists_of_simpleperf() {
    let folder = root().join("tests/data/trace");
    let list = folder.join("etm-android.branches");
    let expected = fs::read_to_string(folder.join("etm-android-branches.simpleperf")).unwrap();
    let of = |list| perfx(args!["export", "autofdo", "--binary", folder.join(ANDROID), list]);
    assert_eq!(of(&list).done().unwrap().text(), expected);
    let (dir, bytes) = (temp(), fs::read(&list).unwrap());
    let cut = dir.path().join("cut");
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let run = of(&cut);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("the branch list ends within a field"), "{}", run.stderr);
}
