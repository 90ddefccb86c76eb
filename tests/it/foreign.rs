//! Recordings made on other architectures have the call chains that the perf of their own machine shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};
use perfx_format::read::Recording;
use perfx_format::sample_type as st;

use crate::support::{Ran, Tier, perfs, perfx, root, temp};
use crate::{args, tiers};

/// The recordings of tests/data/foreign, with the number of samples whose frames differ from perf's, and the
/// reason.
/// x86_64 is a 32-bit task.
const STACKS: [(&str, usize, &str); 7] = [
    ("arm64", 0, ""),
    ("armhf", 0, ""),
    ("i386", 0, ""),
    ("ppc64el", 0, ""),
    ("riscv64", 0, ""),
    ("x86_64", 0, ""),
    (
        "s390x",
        1,
        "leaf keeps r11 in a floating-point register, of which the kernel records old values: perf shows a frame of \
         garbage behind its caller",
    ),
];

fn folder(arch: &str) -> PathBuf {
    root().join("tests/data/foreign").join(arch)
}

/// The frames of each sample in a text of perf script or perfx view, by its time: symbol, offset and file.
fn frames(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut time = String::new();
    for line in text.lines().filter(|line| !line.contains("PERF_RECORD_")) {
        if line.starts_with([' ', '\t']) && line.trim_end().ends_with(')') {
            // Without the address: perf 6.1 shows that in the file.
            let frame = line.trim().split_once(' ').unwrap().1;
            found.get_mut(&time).unwrap().push(frame.to_owned());
        } else if let Some(word) = line.split_whitespace().find(|word| word.ends_with(':')) {
            time = word.to_owned();
            found.insert(time.clone(), Vec::new());
        }
    }
    found
}

/// The call chains of a recording's samples.
fn chains(recording: &Path) -> Vec<Vec<u64>> {
    let mut recording = Recording::open(recording).unwrap();
    let mut records = recording.records();
    let mut chains = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        let chain = record.sample().unwrap().and_then(|sample| sample.callchain);
        chains.extend(chain.map(|chain| chain.iter().collect()));
    }
    chains
}

/// The samples that perfx shows with other frames than the machine's own perf, and the number of all samples.
fn compare(arch: &str, name: &str) -> (Vec<String>, usize) {
    let folder = folder(arch);
    let theirs = frames(&fs::read_to_string(folder.join(format!("{name}.script"))).unwrap());
    let data = folder.join(format!("{name}.data"));
    let ours = frames(&perfx(args!["view", "--no-inline", "--foreign", "--root", folder, data]).text());
    assert!(!ours.is_empty(), "{arch}");
    let differs = |(time, ours): (&String, &Vec<String>)| {
        let theirs = theirs.get(time).unwrap_or_else(|| panic!("{arch}: perf has a sample at {time}"));
        (theirs != ours).then(|| format!("{arch} {time}\nperf  {theirs:#?}\nperfx {ours:#?}"))
    };
    (ours.iter().filter_map(differs).collect(), ours.len())
}

/// Converts the user stacks of a recording with the files below a root.
fn unwound(root: &Path, data: &Path, out: &Path) -> Ran {
    perfx(args![
        "inject", "--convert-callchain", "--drop-unresolved", "-f", "--foreign", "--root", root, data, "-o",
        out
    ])
}

#[test]
fn user_stacks_of_other_architectures_have_the_frames_of_their_own_perf() {
    for (arch, expected, why) in STACKS {
        let (differ, all) = compare(arch, "dwarf");
        assert_eq!(differ.len(), expected, "{arch}, of {all}: {why}\n{}", differ.join("\n"));
    }
}

#[test]
fn profiles_of_other_architectures_count_each_sample_with_its_stack() {
    for (arch, ..) in STACKS {
        let folder = folder(arch);
        let data = folder.join("dwarf.data");
        let text = perfx(args!["export", "folded", "--foreign", "--root", folder, data, "-o", "-"]).text();
        let samples: usize =
            text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum();
        // The stacks of s390x are cut, because its frames have room for all registers.
        let is_whole =
            |line: &str| line.contains(";_start;entry;") || arch == "s390x" && line.contains(";leaf ");
        assert!(samples > 0 && text.lines().all(is_whole), "{arch}\n{text}");
    }
}

/// In the byte order of the recording, too.
#[test]
fn perf_reads_the_call_chains_that_stacks_of_other_architectures_became() {
    let out = temp();
    for (arch, ..) in STACKS {
        let (folder, out) = (folder(arch), out.path().join(arch));
        let data = folder.join("dwarf.data");
        unwound(&folder, &data, &out).done().unwrap();
        let ours: Vec<String> = chains(&out)
            .iter()
            .flat_map(|chain| {
                chain.iter().filter(|&&entry| entry < 1 << 63).map(|entry| format!("{entry:x}"))
            })
            .collect();
        for perf in perfs(&["perf-new"]) {
            let text = perf.script(&out, &folder, &["-F", "ip"]).text();
            let theirs: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(theirs, ours, "{arch}");
        }
    }
}

/// A function that calls no other has no frame: only the link register leads to its caller.
#[test]
fn frame_pointer_chains_of_aarch64_get_the_caller_that_only_the_link_register_tells() {
    let (differ, all) = compare("arm64", "fp");
    assert_eq!(differ.len(), 0, "of {all}\n{}", differ.join("\n"));

    let (temp, folder) = (temp(), folder("arm64"));
    let (data, once, twice) = (folder.join("fp.data"), temp.path().join("once"), temp.path().join("twice"));
    let ran = unwound(&folder, &data, &once);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("inserted the caller of the innermost function into"), "{}", ran.stderr);
    let attr = *Recording::open(&once).unwrap().events[0].attr();
    assert_eq!((attr.sample_type & st::REGS_USER, attr.sample_regs_user), (0, 0));
    let (before, after) = (chains(&data), chains(&once));
    let longer = before.iter().zip(&after).filter(|(before, after)| before.len() < after.len()).count();
    assert!(longer > before.len() / 2, "{longer} of {}", before.len());
    // Kept registers do not lead to a second frame.
    for (input, output) in [(&data, &once), (&once, &twice)] {
        let chain = format!("convert-callchain:foreign:root={}", folder.display());
        let keep = args!["run", "-p", chain];
        perfx(keep.into_iter().chain(args!["-f", input, "-o", output])).done().unwrap();
        assert_eq!(chains(output), after);
    }
}

/// A signal handler has no caller: it returns to the first byte of the code that `__kernel_rt_sigreturn`
/// begins with. The byte before, where a call would be, belongs to no function, so this frame was unknown.
#[test]
fn a_signal_frame_in_the_link_register_is_not_treated_as_a_call() {
    let (temp, folder) = (temp(), folder("arm64"));
    let chains_with = |root: &Path| {
        let out = temp.path().join("out");
        let data = folder.join("fp.data");
        let ran = unwound(root, &data, &out);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        chains(&out)
    };
    let (calls, signals) = (chains_with(&folder), chains_with(&folder.join("signal")));
    let (mut moved, mut others) = (0, 0);
    for (call, signal) in calls.iter().zip(&signals) {
        assert_eq!(call.len(), signal.len());
        let differing: Vec<_> = call.iter().zip(signal).filter(|(call, signal)| call != signal).collect();
        match differing[..] {
            [] => others += 1,
            [(&call, &signal)] => {
                assert_eq!(signal, call + 1);
                moved += 1;
            }
            _ => panic!("{call:x?} {signal:x?}"),
        }
    }
    // Those of leaf called by deep.
    assert!(moved > 0 && others > 0, "{moved} and {others}");
}

/// As of a JIT compiler: the innermost function may have no frame, and all others have.
#[test]
fn code_in_no_file_is_unwound_by_the_link_register_and_then_by_frame_pointers() {
    let (temp, folder) = (temp(), folder("arm64"));
    let (data, anonymous) = (folder.join("dwarf.data"), temp.path().join("anonymous.data"));
    let mut bytes = fs::read(&data).unwrap();
    let (file, none) = (b"/usr/bin/wl-tiny\0", b"//anon\0\0\0\0\0\0\0\0\0\0\0");
    for at in 0..bytes.len() - file.len() {
        if bytes[at..].starts_with(file) {
            bytes[at..at + file.len()].copy_from_slice(none);
        }
    }
    fs::write(&anonymous, bytes).unwrap();
    let [ours, theirs] = [("ours", &anonymous), ("theirs", &data)].map(|(name, input)| {
        let out = temp.path().join(name);
        unwound(&folder, input, &out).done().unwrap();
        chains(&out)
    });
    assert_eq!(ours, theirs);
}

#[test]
fn passes_that_cut_the_link_register_say_which_frames_are_lost() {
    let (temp, folder) = (temp(), folder("arm64"));
    let (data, whole, out) = (folder.join("fp.data"), temp.path().join("whole"), temp.path().join("out"));
    let convert = args!["inject", "--convert-callchain", "--foreign", "--root", folder, data, "-o", whole];
    perfx(convert).done().unwrap();
    let said = "call chains lose the caller of the innermost function";
    for pass in [args!["redact"].to_vec(), args!["inject", "--aslr"].to_vec()] {
        let ran = perfx(pass.clone().into_iter().chain(args![data, "-o", out]));
        assert!(ran.code == Some(3) && ran.stderr.contains(said), "{}", ran.stderr);
        fs::remove_file(&out).unwrap();
        let ran = perfx(pass.into_iter().chain(args![whole, "-o", out]));
        assert!(!ran.stderr.contains(said), "{}", ran.stderr);
        fs::remove_file(&out).unwrap();
    }
}

#[test]
fn without_the_file_the_innermost_frame_is_kept_and_the_rest_counted_as_lost() {
    let out = temp();
    for (arch, ..) in STACKS {
        let (data, out) = (folder(arch).join("dwarf.data"), out.path().join(arch));
        let ran =
            perfx(args!["inject", "--convert-callchain", "--drop-unresolved", "--foreign", data, "-o", out]);
        assert_eq!(ran.code, Some(3), "{arch}: {}", ran.stderr);
        assert!(ran.stderr.contains("end early, at code of 1 file"), "{arch}: {}", ran.stderr);
        assert!(chains(&out).iter().all(|chain| chain.len() == 2), "{arch}");
    }
}

/// A program without `.debug_frame` has only the exception tables. They lead to the same callers, and damaged
/// ones end the chain.
#[test]
fn exception_tables_of_arm_lead_to_the_callers_that_dwarf_leads_to() {
    let (temp, folder) = (temp(), folder("armhf"));
    let place = temp.path().join("usr/bin");
    fs::create_dir_all(&place).unwrap();
    let mut program = fs::read(folder.join("usr/bin/wl-tiny")).unwrap();
    let name = program.windows(13).position(|name| name == b".debug_frame\0").unwrap();
    program[name..name + 6].copy_from_slice(b".other");
    let convert = |root: &Path| {
        let (data, out) = (folder.join("dwarf.data"), temp.path().join("out.data"));
        let ran = unwound(root, &data, &out);
        assert!(matches!(ran.code, Some(0 | 3)), "{:?} {}", ran.code, ran.stderr);
        chains(&out)
    };
    fs::write(place.join("wl-tiny"), &program).unwrap();
    assert_eq!(convert(temp.path()), convert(&folder));

    let file = object::File::parse(&*program).unwrap();
    let (start, size) = file.section_by_name(".ARM.exidx").unwrap().file_range().unwrap();
    for at in (start..start + size).step_by(3) {
        let mut bytes = program.clone();
        bytes[at as usize] ^= 0xff;
        fs::write(place.join("wl-tiny"), bytes).unwrap();
        convert(temp.path());
    }
}

tiers!(damaged_unwind_tables_of_any_architecture_end_the_chain);
fn damaged_unwind_tables_of_any_architecture_end_the_chain(tier: Tier) {
    let temp = temp();
    for (arch, ..) in STACKS {
        let place = temp.path().join(arch).join("usr/bin");
        fs::create_dir_all(&place).unwrap();
        let sound = fs::read(folder(arch).join("usr/bin/wl-tiny")).unwrap();
        let file = object::File::parse(&*sound).unwrap();
        let tables =
            [".eh_frame", ".debug_frame"].iter().find_map(|name| file.section_by_name(name)).unwrap();
        let (start, size) = tables.file_range().unwrap();
        for at in (start..start + size).step_by(tier.pick(91, 7)) {
            let mut bytes = sound.clone();
            bytes[at as usize] ^= 0xff;
            fs::write(place.join("wl-tiny"), bytes).unwrap();
            let (data, out) = (folder(arch).join("dwarf.data"), temp.path().join("out.data"));
            let root = temp.path().join(arch);
            let ran = unwound(&root, &data, &out);
            assert!(matches!(ran.code, Some(0 | 3)), "{arch} {at:#x}: {:?} {}", ran.code, ran.stderr);
        }
    }
}
