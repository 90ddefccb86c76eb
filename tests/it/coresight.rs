//! The recordings with CoreSight in tests/data/trace: perf, with OpenCSD, decodes each to the branches in its
//! truth, so that they can be used to test a decoder.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use perfx_format::read::Recording;
use perfx_format::record::aux::{Aux, Auxtrace};
use perfx_format::record::builder::build;
use perfx_format::record::time::replace_times;
use perfx_format::write::RecordingWriter;
use perfx_format::{Feature, Record, RecordType, hex};

use crate::args;
use crate::intel_pt::rewrite;
use crate::itrace::{events, samples};
use crate::support::{Stdin, perf, perfs, perfx, root, same_lines, temp};

/// Source and target; `-` where tracing begins or ends.
type Branch = (String, String);

/// The recordings that perf can check. For the others, it does not look for a vmlinux below --symfs
/// (etm-kernel), ends at the last timestamp (etm-times, etm-cycles), mixes what two CPUs did (etm-cpus), goes
/// on after an overflow at the next synchronization only (etm-overflow), and omits a branch if nothing was
/// executed between it and an interrupt (etm-interrupt, etm-threads).
const NAMES: [&str; 10] = [
    "etm-user", "etm-signal", "etm-raw", "etm-ete", "etm-stack", "etm-context", "etm-speculation", "etm-ids",
    "etm-cut", "etm-q",
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
                // The truth continues after the cut, where perf ends tracing.
                decoded.truncate(500);
                truth.truncate(500);
            }
            assert!(decoded.len() >= 500, "{name}: {}", decoded.len());
            assert!(decoded == truth, "{name}: {} decodes something else", perf.path().display());
        }
    }
}

/// A folder with a name of a given length that links to another one.
struct Alias(PathBuf);

impl Drop for Alias {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Alias {
    /// An alias of the length of [`PLACE`] that links to the programs, for a test.
    fn of_programs(test: u32) -> Alias {
        let alias = Alias(format!("/tmp/etm{:08}", std::process::id() * 10 % 100_000_000 + test).into());
        assert_eq!(alias.0.as_os_str().len(), PLACE.len());
        symlink(root().join("tests/data/trace/root").join(&PLACE[1..]), &alias.0).unwrap();
        alias
    }

    /// Writes a recording with its programs at the alias.
    fn move_programs(&self, name: &str, to: &Path) {
        let mut bytes = fs::read(root().join("tests/data/trace").join(name).with_extension("data")).unwrap();
        let moved = self.0.as_os_str().as_encoded_bytes();
        let places = (0..bytes.len() - PLACE.len()).filter(|&at| bytes[at..].starts_with(PLACE.as_bytes()));
        for at in places.collect::<Vec<_>>() {
            bytes[at..at + PLACE.len()].copy_from_slice(moved);
        }
        fs::write(to, bytes).unwrap();
    }
}

/// The folder of the programs in the recordings.
const PLACE: &str = "/opt/perfx/trace";

/// `perf inject` searches for code only at the paths in the recording, so these are replaced by others of the
/// same length.
#[test]
fn inject_makes_the_samples_of_perf() {
    let Some(perf) = perf("perf-new") else { return };
    let (alias, dir) = (Alias::of_programs(0), temp());
    let path = |name: &str| dir.path().join(name);
    for name in NAMES {
        alias.move_programs(name, &path("in"));
        for letters in ["b", "c", "i1000i", "i100il", "i7il4g", "i100ib"] {
            let (what, itrace) = (format!("{name} {letters}"), format!("--itrace={letters}"));
            perf.run(Stdin::Null, args!["inject", "-f", &itrace, "-i", path("in"), "-o", path("perf")]);
            perfx(args!["inject", "-f", "--root", "/", &itrace, path("in"), "-o", path("ours")])
                .done()
                .unwrap();
            same_lines(&what, &events(&path("perf")), &events(&path("ours"))).unwrap();
            same_lines(&what, &samples(&path("perf")), &samples(&path("ours"))).unwrap();
        }
    }
}

/// The bytes of an AUX record with another offset, size and flags.
fn aux_with(record: &Record<'_>, change: impl Fn(Aux) -> Aux) -> Option<Vec<u8>> {
    let Aux { offset, size, flags } = change(Aux::of(record)?);
    let mut bytes = record.bytes().to_vec();
    for (at, word) in [(8, offset), (16, size), (24, flags)] {
        bytes[at..at + 8].copy_from_slice(&record.endian().bytes_u64(word));
    }
    Some(bytes)
}

/// Regression: the offset of a snapshot is its end, so it was treated as data without a record, and decoded
/// as frames.
#[test]
fn a_snapshot_is_identified_by_the_offset_of_its_end() {
    let (folder, place) = (temp(), root().join("tests/data/trace"));
    let snapshot = folder.path().join("snapshot.data");
    for (name, more) in [("etm-raw", 0), ("etm-raw", 1 << 20), ("etm-ete", 0), ("etm-user", 0)] {
        rewrite(&format!("{name}.data"), &snapshot, |record| {
            aux_with(record, |Aux { offset, size, flags }| Aux {
                offset: offset + size,
                size: size + more,
                flags: flags | Aux::OVERWRITE,
            })
        });
        let branches = |input: &Path| {
            let ran =
                perfx(args!["view", "-q", "--itrace=b", "--foreign", "--root", place.join("root"), input]);
            assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
            ran.stdout
        };
        assert!(branches(&snapshot) == branches(&place.join(name).with_extension("data")), "{name} {more}");
        for perf in perfs(&["perf-new"]) {
            let options = ["--itrace=b", "-F", "ip,addr"];
            let theirs = decoded(&perf.script(&snapshot, &place.join("root"), &options).text());
            let args = args![
                "view",
                "-q",
                "--itrace=b",
                "-F",
                "ip,addr",
                "--foreign",
                "--root",
                place.join("root"),
                snapshot
            ];
            assert!(decoded(&perfx(args).text()) == theirs, "{name} {more}");
        }
    }
}

/// Regression: the time grew with the number of records of the same data times its size.
#[test]
fn aux_data_of_several_records_is_decoded_once() {
    let folder = temp();
    let repeated = folder.path().join("repeated.data");
    rewrite("etm-user.data", &repeated, |record| {
        let later = aux_with(record, |Aux { offset, size, flags }| Aux {
            offset: offset + 16,
            size: size - 16,
            flags,
        })?;
        Some([record.bytes(), record.bytes(), &later].concat())
    });
    let place = root().join("tests/data/trace");
    let view = |input: &Path| {
        perfx(args!["view", "--itrace=b", "--count", "--foreign", "--root", place.join("root"), input])
    };
    let (once, ran) = (view(&place.join("etm-user.data")), view(&repeated));
    assert_eq!((once.code, ran.code), (Some(0), Some(3)), "{}{}", once.stderr, ran.stderr);
    assert!(ran.stdout == once.stdout && once.stdout.len() > 3);
    let what = "2 AUX records cover AUX data that earlier ones cover, too: it was decoded once";
    assert!(ran.stderr.contains(what), "{}", ran.stderr);
}

/// Including the reason why tracing ends: a system call or an interrupt.
#[test]
fn view_shows_kinds_and_instructions_of_branches_like_perf() {
    let folder = root().join("tests/data/trace");
    let programs = folder.join("root");
    let names = ["user", "signal", "interrupt", "raw", "ete", "stack", "times", "context", "speculation"];
    for perf in perfs(&["perf-new"]) {
        for name in names {
            let input = folder.join(format!("etm-{name}.data"));
            for (letters, fields) in
                [("b", "tid,ip,addr,flags,insn,insnlen"), ("i10i", "tid,ip,insn,insnlen")]
            {
                let options = [format!("--itrace={letters}"), "-F".into(), fields.into()];
                let theirs = perf.script(&input, &programs, &options.each_ref().map(|text| &**text)).text();
                let ours = args!["view", "-q", "--foreign", "--root", programs, input];
                let ours = perfx(ours.into_iter().chain(options.map(OsString::from))).text();
                // perf treats longjmp as a return, and omits a branch directly before an interrupt.
                let is_longjmp = |line: &&str| {
                    [" 4002ec =>", " 400318 =>"].iter().any(|jump| line.contains(jump))
                        && [" jmp ", " return "].iter().any(|kind| line.contains(kind))
                };
                let is_omitted = |line: &&str| name == "interrupt" && line.contains(" 4001bc =>");
                let lines = |text: &str| -> Vec<String> {
                    let lines = text.lines().filter(|line| !is_longjmp(line) && !is_omitted(line));
                    lines.map(str::to_owned).collect()
                };
                let (theirs, ours) = (lines(&theirs), lines(&ours));
                assert!(theirs.len() > 700, "{name}: {}", theirs.len());
                let ends = theirs.iter().filter(|line| line.contains("tr end ")).count();
                assert!(letters != "b" || ends > 1, "{name}");
                same_lines(&format!("{name} {letters}"), &theirs, &ours).unwrap();
            }
        }
    }
}

/// perf shows no function for a call of the kernel that ends tracing.
#[test]
fn calls_are_indented_as_by_perf() {
    let folder = root().join("tests/data/trace");
    let programs = folder.join("root");
    for perf in perfs(&["perf-new"]) {
        for (name, options) in [
            ("etm-user", ["--itrace=c", "-F", "callindent"]),
            ("etm-signal", ["--itrace=c", "-F", "callindent"]),
            ("etm-stack", ["--call-trace", "-F", "-time"]),
        ] {
            let input = folder.join(name).with_extension("data");
            let theirs = perf.script(&input, &programs, &options).text();
            let ours = args!["view", "-q", "--foreign", "--root", programs, input];
            let ours = perfx(ours.into_iter().chain(options.map(OsString::from))).text();
            let function = |line: &str| line.rsplit('\t').next().map(str::trim_start).map(str::to_owned);
            let named = |(theirs, ours): (&str, &str)| {
                function(theirs)
                    .is_some_and(|name| !name.is_empty())
                    .then(|| (theirs.to_owned(), ours.to_owned()))
            };
            let (theirs, ours): (Vec<_>, Vec<_>) = theirs.lines().zip(ours.lines()).filter_map(named).unzip();
            assert!(theirs.len() > 130, "{name}: {theirs:?}");
            same_lines(&format!("{name} {options:?}"), &ours, &theirs).unwrap();
        }
    }
}

/// perf 7.3 ignores the letters that only Intel PT has, except the period of y, and L: it marks the samples
/// of all events as having branch stacks, although recorded samples have none.
#[test]
fn letters_of_intel_pt_have_the_effect_that_they_have_in_perf() {
    let Some(perf) = perf("perf-new") else { return };
    let (alias, dir) = (Alias::of_programs(2), temp());
    let path = |name: &str| dir.path().join(name);
    let letters =
        ["G", "G8", "s0", "s3", "q", "qq", "y", "y10i", "x", "w", "p", "o", "I", "A", "yqs3xwpoIAG"];
    for name in ["etm-user", "etm-cut"] {
        alias.move_programs(name, &path("in"));
        let given = letters.iter().map(|letters| format!("--itrace=bi100il4{letters}"));
        // Without letters, there are no cycles either.
        for itrace in given.chain(["--itrace".to_owned()]) {
            let what = format!("{name} {itrace}");
            perf.run(Stdin::Null, args!["inject", "-f", &itrace, "-i", path("in"), "-o", path("perf")]);
            perfx(args!["inject", "-f", "--root", "/", &itrace, path("in"), "-o", path("ours")])
                .done()
                .unwrap();
            assert!(samples(&path("ours")).len() > 500, "{what}");
            same_lines(&what, &events(&path("perf")), &events(&path("ours"))).unwrap();
            same_lines(&what, &samples(&path("perf")), &samples(&path("ours"))).unwrap();
        }
        let with = |letters: &str| {
            perfx(args![
                "inject",
                "-f",
                "--root",
                "/",
                format!("--itrace={letters}"),
                path("in"),
                "-o",
                path("ours")
            ])
            .done()
            .unwrap();
            fs::read(path("ours")).unwrap()
        };
        assert!(with("bi100il4L") == with("bi100il4"), "{name}");
    }
}

/// Samples of one time on two CPUs are in the order of the CPUs; perf's order depends on its queues.
#[test]
fn samples_have_the_times_that_perf_estimates_from_virtual_timestamps() {
    let Some(perf) = perf("perf-new") else { return };
    let (alias, dir) = (Alias::of_programs(1), temp());
    let path = |name: &str| dir.path().join(name);
    alias.move_programs("etm-virtual", &path("in"));
    let sorted = |name: &str| {
        let mut lines = samples(&path(name));
        lines.sort();
        lines
    };
    // Branch stacks at the end of a trace belong to the thread on any CPU in perf.
    for letters in ["b", "i7i", "i100ibg", "Zi100ib", "cT"] {
        let itrace = format!("--itrace={letters}");
        perf.run(Stdin::Null, args!["inject", "-f", &itrace, "-i", path("in"), "-o", path("perf")]);
        for threads in ["1", "3"] {
            let run = perfx(args![
                "inject",
                "-f",
                "--root",
                "/",
                "-@",
                threads,
                &itrace,
                path("in"),
                "-o",
                path("ours")
            ]);
            run.done().unwrap();
            let what = format!("{letters} -@{threads}");
            same_lines(&what, &events(&path("perf")), &events(&path("ours"))).unwrap();
            same_lines(&what, &sorted("perf"), &sorted("ours")).unwrap();
        }
        assert!(letters.starts_with('Z') || times(&path("ours")).is_sorted(), "{letters}");
    }
}

/// The times of samples, in file order.
fn times(path: &Path) -> Vec<u64> {
    let mut recording = Recording::open(path).unwrap();
    let (mut records, mut times) = (recording.records(), Vec::new());
    while let Some(record) = records.next_record().unwrap() {
        times.extend(record.sample().unwrap().and_then(|sample| sample.time));
    }
    times
}

/// Regression: their events have no IDENTIFIER, and samples of branches have their id at another position,
/// which was an error.
#[test]
fn inject_decodes_what_simpleperf_recorded() {
    let folder = root().join("tests/data/trace");
    let (dir, input) = (temp(), folder.join("etm-android.data"));
    let out = dir.path().join("out");
    let mut truth = truth(&fs::read_to_string(input.with_extension("truth")).unwrap());
    for letters in ["b", "i100il", "i1000ibl8"] {
        let itrace = format!("--itrace={letters}");
        perfx(args!["inject", "-f", &itrace, "--root", folder.join("root"), &input, "-o", &out])
            .done()
            .unwrap();
        for perf in perfs(&["perf", "perf-new"]) {
            let shown = perf.script(&out, &folder.join("root"), &["-F", "hw:event,ip"]).text();
            assert_eq!(shown.lines().count(), samples(&out).len(), "{letters}: {}", perf.path().display());
        }
    }
    perfx(args!["inject", "-f", "--itrace=b", "--root", folder.join("root"), &input, "-o", &out])
        .done()
        .unwrap();
    let mut recording = Recording::open(&out).unwrap();
    let (mut records, mut made) = (recording.records(), Vec::new());
    let place = |at: u64| if at == 0 { "-".to_owned() } else { format!("{at:x}") };
    while let Some(record) = records.next_record().unwrap() {
        if let Some(sample) = record.sample().unwrap() {
            made.push((place(sample.ip.unwrap()), place(sample.addr.unwrap())));
        }
    }
    // The traces do not contain the ends on the two CPUs.
    assert_eq!(made.len() + 2, truth.len());
    made.sort();
    truth.sort();
    assert!(made.iter().all(|branch| truth.binary_search(branch).is_ok()));
}

/// Recordings that perf can't check or decodes wrongly: the branches are those of the truth.
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
        // A trace does not contain its own end.
        assert_eq!(made.len(), branches.len() - 1, "{name}");
        assert!(made == branches[..made.len()], "{name}");
    }
}

/// CPU 0 writes its trace twice before CPU 1's is saved, which is of a time between these.
#[test]
fn samples_of_several_cpus_are_in_the_order_of_their_times() {
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

/// The output of `simpleperf inject` of the NDK r27 for the same recordings, byte by byte.
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

/// Linkers write build-ids of 8 or 16 bytes, too. simpleperf records 20 bytes, the last of which are then 0.
#[test]
fn a_short_build_id_in_a_recording_of_simpleperf_is_that_of_the_file() {
    let (folder, dir) = (root().join("tests/data/trace"), temp());
    let program = dir.path().join(&PLACE[1..]).join("android64");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let (input, profiles) = (dir.path().join("in.data"), dir.path().join("profiles"));
    let expected = fs::read_to_string(folder.join("etm-android.simpleperf")).unwrap();
    for size in [8, 16] {
        let mut old = [0; 20];
        (old[0], old[1], old[2], old[3], old[19]) = (0x5a, 0x11, 0xe6, 0x40, 1);
        let new: Vec<u8> = (1..=20).map(|byte| if byte <= size { byte } else { 0 }).collect();
        for (from, to) in [(folder.join(ANDROID), &program), (folder.join("etm-android.data"), &input)] {
            let mut bytes = fs::read(from).unwrap();
            for at in 0..bytes.len() - old.len() {
                if bytes[at..].starts_with(&old) {
                    bytes[at..at + old.len()].copy_from_slice(&new);
                    // In the program, the size of the note is before its name.
                    if bytes[..at].ends_with(b"GNU\0") {
                        bytes[at - 12] = size;
                    }
                }
            }
            fs::write(to, bytes).unwrap();
        }
        let id = format!("{}{}", hex(&new[..usize::from(size)]), "00".repeat(20 - usize::from(size)));
        let expected = expected.replace(&hex(&old), &id);
        let export = args!["export", "autofdo", "--root", dir.path(), &input];
        let text = perfx([&export[..], &args!["--binary", &program]].concat()).done().unwrap().text();
        assert_eq!(text, expected, "{size}");
        perfx([&export[..], &args!["--dir", &profiles]].concat()).done().unwrap();
        let profile = fs::read_dir(&profiles).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::read_to_string(profile).unwrap(), expected, "{size}");
        fs::remove_dir_all(&profiles).unwrap();
    }
}

/// simpleperf before 2025 counts addresses from the first segment on; these are offsets in the file, as it
/// writes now.
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

/// Regression: AUX data in compressed records was refused: simpleperf record -z compresses everything,
/// including AUXTRACE records with their data.
#[test]
fn traces_compressed_by_simpleperf_are_decoded() {
    let folder = root().join("tests/data/trace");
    let dir = temp();
    let (packed, out) = (dir.path().join("packed.data"), dir.path().join("out.data"));
    for name in ["etm-android", "etm-android-kernel"] {
        let input = folder.join(name).with_extension("data");
        let mut recording = Recording::open(&input).unwrap();
        let (endian, events) = (recording.endian, recording.events.clone());
        let mut writer = RecordingWriter::create(&packed, &events, endian).unwrap();
        let compressed = |bytes: &[u8]| {
            let stream = zstd::encode_all(bytes, 3).unwrap();
            let pieces = stream.chunks(100);
            let pieces = pieces.map(|piece| build(RecordType::COMPRESSED, 0, &[piece], endian).unwrap());
            pieces.collect::<Vec<_>>()
        };
        for (&feature, section) in &recording.features {
            let is_maps = feature == Feature::INIT_MAP;
            assert!(!is_maps || name == "etm-android-kernel");
            let section = if is_maps { compressed(section).concat() } else { section.to_vec() };
            writer.set_feature(feature, section).unwrap();
        }
        let (mut records, mut all) = (recording.records(), Vec::new());
        while let Some(record) = records.next_record().unwrap() {
            all.extend([record.bytes(), record.payload()].concat());
        }
        compressed(&all).iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap();
        let profile = |input: &Path| {
            let root = folder.join("root");
            let run =
                perfx(args!["export", "autofdo", "--root", root, "--binary", folder.join(ANDROID), input]);
            run.done().unwrap().text()
        };
        let expected = profile(&input);
        assert!(expected.lines().count() > 20, "{expected}");
        assert_eq!(profile(&packed), expected);
        perfx(args!["inject", "-f", "--itrace=b", "--root", folder.join("root"), &packed, "-o", &out])
            .done()
            .unwrap();
        assert!(samples(&out).len() > 1000);
    }
}

/// perf takes the first offset in simpleperf's index of AUXTRACE records for the number of its entries.
#[test]
fn normalize_makes_a_recording_of_simpleperf_readable_for_perf() {
    let folder = root().join("tests/data/trace");
    let dir = temp();
    let out = dir.path().join("out");
    for name in ["etm-android", "etm-android-kernel"] {
        let input = folder.join(name).with_extension("data");
        let run = perfx(args!["normalize", "-f", "--for", "perf-6.12", &input, "-o", &out]).done().unwrap();
        let has_maps = name == "etm-android-kernel";
        assert_eq!(run.stderr.contains("3 records of feature INIT_MAP"), has_maps, "{}", run.stderr);
        for perf in perfs(&["perf-new"]) {
            let options = ["--itrace=b", "-F", "ip,addr"];
            let branches = decoded(&perf.script(&out, &folder.join("root"), &options).text());
            let of_user = branches.iter().filter(|(from, _)| from.starts_with('4')).count();
            assert!(of_user > 100, "{name}, {}: {of_user} branches", perf.path().display());
        }
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

/// A branch list that `simpleperf inject` of the NDK r27 made from etm-android, and its text of that.
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

/// A branch list of one file, as simpleperf writes it: the branches from an address on, five times.
fn branch_list(path: &str, build_id: &str, (address, taken): (u64, &[bool])) -> Vec<u8> {
    let number = |mut number: u64| {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let value = |field: u64, value: u64| [number(field << 3), number(value)].concat();
    let field =
        |field: u64, bytes: &[u8]| [&number(field << 3 | 2), &number(bytes.len() as u64), bytes].concat();
    let bits = taken.iter().rev().fold(0, |bits, taken| bits << 1 | u8::from(*taken));
    let branches = [field(1, &[bits]), value(2, taken.len() as u64), value(3, 5)].concat();
    let address = [value(1, address), field(2, &branches)].concat();
    let (path, id) = (field(1, path.as_bytes()), field(2, build_id.as_bytes()));
    let binary = [path, id, field(3, &address), value(4, 2)].concat();
    [field(1, b"simpleperf:EtmBranchList"), field(2, &binary)].concat()
}

/// The last line of it was the path of the file on this machine.
#[test]
fn a_profile_of_a_folder_names_the_program_as_the_recording_does() {
    let (folder, out) = (root().join("tests/data/trace"), temp());
    let dir = out.path().join("profiles");
    let input = folder.join("etm-android.data");
    let ran =
        perfx(args!["export", "autofdo", "--foreign", "--root", folder.join("root"), "--dir", dir, input]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut count = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.ends_with("\n// /opt/perfx/trace/android64\n\n"), "{text}");
        count += 1;
    }
    assert_eq!(count, 1);
}

/// The kernel links a module when it loads it. simpleperf of the NDK r27 writes the first text; in the second
/// it has a call of itself (10->10), like the instruction in the file.
#[test]
fn branch_lists_of_a_module_follow_its_relocations() {
    let (dir, module) = (temp(), root().join("tests/data/trace/root/opt/perfx/trace/module64.ko"));
    let (list, id) = (dir.path().join("list"), "5a11e64000000000000000000000000000000004");
    let text = |from, taken: &[bool]| {
        fs::write(&list, branch_list("/lib/modules/1/module64.ko", id, (from, taken))).unwrap();
        perfx(args!["export", "autofdo", "--binary", &module, &list]).done().unwrap().text()
    };
    let end = format!("// build_id: 0x{id}\n// /lib/modules/1/module64.ko\n\n");
    let inside = text(0x2c, &[false, true, true]);
    assert_eq!(inside, format!("3\n2c-2c:5\n30-34:5\n3c-3c:5\n0\n2\n34->3c:5\n3c->0:5\n{end}"));
    let called = text(4, &[false, true, false, true, true]);
    let ranges = "4-c:5\n10-10:5\n2c-2c:5\n30-34:5\n3c-3c:5";
    assert_eq!(called, format!("5\n{ranges}\n0\n3\n10->2c:5\n34->3c:5\n3c->0:5\n{end}"));
}

/// The code comes from a copy of the kernel's memory. Its positions are converted to those in the file of a
/// module, too, whose code is after stubs, and changed by the kernel's linker.
#[test]
fn code_of_the_kernels_memory_counts_for_its_modules() {
    let folder = root().join("tests/data/trace");
    let (input, programs) = (folder.join("etm-kernel.data"), folder.join("root/opt/perfx/trace"));
    let (dir, vmlinux) = (temp(), programs.join("vmlinux64"));
    let path = |name: &str| dir.path().join(name);
    let export = |binary: &Path, input: &Path| {
        let run = perfx(args!["export", "autofdo", "--root", folder.join("root"), "--binary", binary, input]);
        run.text()
    };
    let of_file = export(&vmlinux, &input);
    assert!(of_file.lines().count() > 20, "{of_file}");
    // The kernel is recorded as a module with a name of the same length.
    let recorded = fs::read(&input).unwrap();
    let (kernel, name) = (b"[kernel.kallsyms]_text", b"/lib/modules/1/fake.ko");
    let at = recorded.windows(kernel.len()).position(|bytes| bytes == kernel).unwrap();
    let renamed = [&recorded[..at], name, &recorded[at + name.len()..]].concat();
    for (form, data) in [("kernel", &recorded), ("module", &renamed)] {
        fs::create_dir_all(path(form).join("kcore_dir")).unwrap();
        fs::write(path(form).join("data"), data).unwrap();
        fs::copy(&vmlinux, path(form).join("kcore_dir/kcore")).unwrap();
    }
    assert_eq!(export(&vmlinux, &path("kernel")), of_file);
    fs::copy(programs.join("module64.ko"), path("fake.ko")).unwrap();
    let of_module = export(&path("fake.ko"), &path("module"));
    // In vmlinux64, .text is at this offset.
    let moved = |text: &str| {
        let places = |line: &str, mark: &str| {
            let (from, rest) = line.split_once(mark)?;
            let (to, count) = rest.split_once(':')?;
            let place = |digits| u64::from_str_radix(digits, 16).unwrap().saturating_sub(0x1000);
            Some(format!("{:x}{mark}{:x}:{count}", place(from), place(to)))
        };
        let lines = text.lines().take_while(|line| !line.starts_with("//"));
        let lines = lines.map(|line| {
            let moved = places(line, "->").or_else(|| places(line, "-"));
            moved.unwrap_or_else(|| line.to_owned())
        });
        lines.collect::<Vec<_>>()
    };
    let own: Vec<&str> = of_module.lines().take_while(|line| !line.starts_with("//")).collect();
    assert_eq!(own, moved(&of_file));
    // Without the memory, the code of a module is missing.
    fs::remove_dir_all(path("module/kcore_dir")).unwrap();
    let text = export(&path("fake.ko"), &path("module"));
    assert!(text.starts_with("0\n0\n0\n"), "{text}");
}

#[test]
fn doctor_tells_which_code_a_trace_of_coresight_lacks() {
    let data = root().join("tests/data/trace");
    let (input, code) = (data.join("etm-kernel.data"), data.join("root"));
    let doctor = |more: &[OsString]| {
        perfx([&args!["doctor", "--foreign"][..], more, &args![input]].concat()).done().unwrap().text()
    };
    let none = doctor(&[]);
    assert!(none.contains("/opt/perfx/trace/small64: --root DIR"), "{none}");
    assert!(none.contains("[kernel.kallsyms]: --vmlinux FILE"), "{none}");
    let text = doctor(&args!["--root", code]);
    assert!(text.contains("[kernel.kallsyms]") && !text.contains("small64"), "{text}");
    let vmlinux = code.join("opt/perfx/trace/vmlinux64");
    assert_eq!(doctor(&args!["--root", code, "--vmlinux", vmlinux]).lines().count(), 1);
}
