//! `inject --convert-callchain` makes the call chains that perf shows for user stacks, of recordings in any
//! form, and removes the stacks completely.

use std::fs;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};
use perfx_format::features::write_str;
use perfx_format::read::Recording;
use perfx_format::{Attr, Event, Feature, RecordType as T, sample_type as st};
use tempfile::TempDir;

use crate::maker::{LE, Maker, PLAIN, USER};
use crate::snapshots::same;
use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, named, perfs, perfx, root, run, same_bytes, same_lines, skipped, temp,
    workloads,
};
use crate::{args, tiers};

/// A folder with programs whose frames need DWARF, in which perf records them.
struct Workshop(TempDir);

impl Workshop {
    /// `None` without a compiler, which [`workloads`] reports.
    fn new() -> Option<Workshop> {
        workloads()?;
        let shop = Workshop(temp());
        fs::copy(root().join("tests/data/stacks.c"), shop.path("stacks.c")).unwrap();
        let flags = "-w -O1 -fomit-frame-pointer -pthread";
        shop.run(&format!("gcc {flags} -o stacks stacks.c")).done().unwrap();
        if shop.run(&format!("gcc {flags} -static -o static stacks.c")).code != Some(0) {
            skipped("stacks of a static program, which can't be linked here");
        }
        Some(shop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a shell line in the folder. Unlike [`Perf::run`](crate::support::Perf::run), perf sees the files
    /// of this machine: those that the programs mapped.
    fn run(&self, line: &str) -> Ran {
        let mut shell = clean("bash");
        shell.args(["-ec", &format!("set -o pipefail; {line}")]).current_dir(self.0.path());
        shell.env("HOME", self.0.path()).env("PAGER", "cat").env("DEBUGINFOD_URLS", "");
        shell.env("PERF_CONFIG_NOSYSTEM", "1").env("PERF_BUILDID_DIR", self.path("cache"));
        run(&mut shell, Stdin::Null)
    }

    /// The samples as a perf shows them, with symbols, a line each.
    fn shown(&self, perf: &str, recording: &str) -> Vec<String> {
        let fields = "tid,time,event,ip,sym,symoff";
        let ran = self.run(&format!("{perf} script -f --no-inline --ns -F {fields} -i {recording}"));
        let text = ran.done().unwrap().text();
        text.split("\n\n").map(|sample| sample.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}

fn convert(input: &Path, output: &Path, options: &[&str]) -> Ran {
    let options = options.iter().map(Into::into);
    perfx(args!["inject", "--convert-callchain", "-f", input, "-o", output].into_iter().chain(options))
}

/// Compares the output of perf and perfx, a line for each sample. A few chains of either may end early.
/// perf's: at the end of a function, where the slot of an already popped register is below the stack pointer,
/// and in code without tables. Ours: in a missing vdso.
fn begin_alike(what: &str, theirs: &[String], ours: &[String]) {
    let differ: Vec<_> = theirs.iter().zip(ours).filter(|(theirs, ours)| theirs != ours).collect();
    for (theirs, ours) in &differ {
        assert!(ours.starts_with(&***theirs) || theirs.starts_with(&***ours), "{what}:\n{theirs}\n{ours}");
    }
    assert_eq!(theirs.len(), ours.len(), "{what}");
    assert!(differ.len() <= 2 + ours.len() / 50, "{what}: {} of {} differ", differ.len(), ours.len());
}

/// Converts with the files of this machine. No code is missing, except that of the vdso if the kernel does
/// not seem to be the recorded one (tests/hostile.sh foreign) and a sample hit it.
fn converted(input: &Path, output: &Path) {
    let ran = convert(input, output, &["-v", "--root", "/", "--drop-unresolved"]);
    let only_vdso = ran.stderr.contains("code of 1 file") && ran.stderr.contains("[vdso]");
    assert!(ran.code == Some(0) || ran.code == Some(3) && only_vdso, "{}", ran.stderr);
}

/// The call chains of a recording's samples, in hex.
fn chains(recording: &Path) -> Vec<String> {
    let mut recording = Recording::open(recording).unwrap();
    let mut records = recording.records();
    let mut chains = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        let chain = record.sample().unwrap().and_then(|sample| sample.callchain);
        chains.extend(chain.map(|chain| format!("{chain:?}")));
    }
    chains
}

tiers!(the_call_chains_are_those_of_perf);
/// With perf 7, which unwinds with libdw, the chains are the same: below signal handlers, through libraries,
/// on every thread, in every form.
fn the_call_chains_are_those_of_perf(tier: Tier) {
    let Some(shop) = Workshop::new() else { return };
    let usual = "-q -e task-clock:u -F 999 --call-graph dwarf,4096";
    for recorder in perfs(&["perf", "perf-new"]) {
        let recorder = recorder.program();
        if shop.run(&format!("{recorder} record {usual} -o /dev/null ./stacks 1")).code != Some(0) {
            skipped(&format!("fresh stacks, because {recorder} record does not work here"));
            continue;
        }
        let lines = [
            format!("{recorder} record {usual} -o in.data ./stacks 60"),
            format!("{recorder} record -z {usual} -o in.data ./stacks 40"),
            format!("{recorder} record {usual} -o - ./stacks 40 > in.data"),
            format!("{recorder} record --threads {usual} -o in.data ./stacks 40"),
            format!("test ! -e static || {recorder} record {usual} -o in.data ./static 40"),
            format!("{recorder} record {usual},512 -o in.data ./stacks 40 || true"),
        ];
        for line in tier.first(2, &lines) {
            shop.run("rm -rf in.data in.data.old out.data").done().unwrap();
            shop.run(line).done().unwrap();
            if !shop.path("in.data").exists() {
                continue;
            }
            converted(&shop.path("in.data"), &shop.path("out.data"));
            for reader in perfs(&["perf-sid", "perf-new"]) {
                let wanted = shop.shown(reader.program(), "in.data");
                assert!(wanted.iter().any(|line| line.contains(" main+")), "{line}: {wanted:?}");
                begin_alike(line, &wanted, &shop.shown(reader.program(), "out.data"));
            }
        }
    }
}

/// perf inject refuses or destroys the other forms.
#[test]
fn the_file_is_the_one_of_perf_inject() {
    let Some(shop) = Workshop::new() else { return };
    for perf in perfs(&["perf-sid", "perf-new"]) {
        let perf = perf.program();
        let record = "record -q -e task-clock:u -F 999 --call-graph dwarf,8192 -o in.data ./stacks 60";
        if shop.run(&format!("{perf} {record}")).code != Some(0) {
            continue;
        }
        converted(&shop.path("in.data"), &shop.path("ours.data"));
        shop.run(&format!("{perf} inject --convert-callchain -i in.data -o theirs.data")).done().unwrap();
        // perf inject sorts by time.
        perfx(args!["sort", "-q", "-f", shop.path("ours.data"), "-o", shop.path("sorted.data")])
            .done()
            .unwrap();
        let open = |name: &str| {
            let chains = chains(&shop.path(name));
            chains.iter().map(|chain| chain.trim_end_matches(']').to_owned()).collect::<Vec<_>>()
        };
        begin_alike(perf, &open("theirs.data"), &open("sorted.data"));
        let attrs = |name: &str| {
            let events = Recording::open(shop.path(name)).unwrap().events;
            let shown = |event: &perfx_format::Event| {
                // perf writes the attr in its own size.
                let mut attr = *event.attr();
                attr.size = 0;
                format!("{attr:?}")
            };
            events.iter().map(shown).collect::<Vec<_>>()
        };
        same_lines(perf, &attrs("theirs.data"), &attrs("ours.data")).unwrap();
    }
}

#[test]
fn nothing_of_the_stacks_is_left() {
    let folder = temp();
    for fixture in named("recorded/dwarf").iter().chain(&named("recorded/compat-dwarf")) {
        let out = folder.path().join("out.data");
        let ran = convert(&fixture.path, &out, &["--foreign", "--drop-unresolved"]);
        assert_eq!(ran.code, Some(3), "{}: {}", fixture.name, ran.stderr);
        let recording = Recording::open(&out).unwrap();
        for event in &recording.events {
            let attr = event.attr();
            assert_eq!(attr.sample_type & (st::REGS_USER | st::STACK_USER), 0);
            assert_eq!((attr.sample_regs_user, attr.sample_stack_user), (0, 0));
            assert!(!attr.flag(22), "exclude_callchain_user");
        }
        let (mut before, after) = (chains(&fixture.path), chains(&out));
        assert_eq!(before.len(), after.len());
        // Without files only the innermost frame is known.
        before.iter_mut().zip(&after).for_each(|(before, after)| {
            let kernel = before.trim_end_matches(']');
            assert!(after.starts_with(kernel), "{before} {after}");
            // At most, because a task without a user side has no frames after the marker.
            let user = after.split_once("0xfffffffffffffe00").unwrap().1;
            assert!(user.matches("0x").count() <= 1, "{after}");
        });
        let again = convert(&out, &folder.path().join("again.data"), &["--foreign"]);
        assert_eq!(again.code, Some(3), "{}", again.stderr);
        assert!(again.stderr.contains("there is nothing to convert"), "{}", again.stderr);
    }
}

#[test]
fn a_file_with_another_build_id_is_not_used() {
    let Some(work) = workloads() else { return };
    let (folder, input) = (temp(), Fixture::new("recorded/dwarf.p73.data").path);
    let place = folder.path().join("root/tmp/perfx-data/work");
    fs::create_dir_all(&place).unwrap();
    let said = ["burn_nofp", "burn"].map(|program| {
        let (out, root) = (folder.path().join("out.data"), folder.path().join("root"));
        fs::copy(work.join("tmp/perfx-data/work").join(program), place.join("burn_nofp")).unwrap();
        convert(&input, &out, &["-v", "--foreign", "--root", root.to_str().unwrap()]).done().unwrap().stderr
    });
    let differs = "build-id is b000000000000000000000000000000000000001, \
                   recording says b000000000000000000000000000000000000002";
    assert!(!said[0].contains("not unwound: /tmp/perfx-data/work/burn_nofp; "), "{}", said[0]);
    let line = said[1].lines().find(|line| line.contains("not unwound: /tmp/perfx-data/work/burn_nofp; "));
    assert!(line.is_some_and(|line| line.ends_with(differs)), "{}", said[1]);
}

/// Regression: a pointer to before `.eh_frame` made the offset overflow.
#[test]
fn a_search_table_with_wrong_pointers_is_not_followed() {
    let Some(work) = workloads() else { return };
    let (folder, input) = (temp(), Fixture::new("recorded/dwarf.p73.data").path);
    let (out, root) = (folder.path().join("out.data"), folder.path().join("root"));
    let place = root.join("tmp/perfx-data/work");
    fs::create_dir_all(&place).unwrap();
    let sound = fs::read(work.join("tmp/perfx-data/work/burn_nofp")).unwrap();
    let table = object::File::parse(&*sound).unwrap().section_by_name(".eh_frame_hdr").unwrap().file_range();
    let start = table.unwrap().0 as usize;
    // Encodings, pointer to .eh_frame, number of entries, and the first pairs.
    for at in (start..start + 40).step_by(4) {
        for word in [0, i32::MAX, i32::MIN, -1] {
            let mut bytes = sound.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            fs::write(place.join("burn_nofp"), bytes).unwrap();
            let ran = convert(&input, &out, &["--foreign", "--root", root.to_str().unwrap()]);
            assert!(matches!(ran.code, Some(0 | 3)), "{at:#x} {word:#x}: {}", ran.stderr);
        }
    }
}

/// Regression: stacks were dropped even if the callers were not found.
#[test]
fn stacks_are_deleted_only_if_they_were_used() {
    let files = root().join("tests/data/foreign/arm64");
    let (input, work) = (files.join("dwarf.data"), files.to_str().unwrap());
    let folder = temp();
    let out = |name: &str| folder.path().join(name);
    let has_stacks = |path: &Path| {
        let events = Recording::open(path).unwrap().events;
        events.iter().any(|event| event.attr().sample_type & st::STACK_USER != 0)
    };
    let ran = convert(&input, &out("kept"), &["--foreign"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: not converted: "), "{}", ran.stderr);
    same_lines("no sample changed", &chains(&input), &chains(&out("kept"))).unwrap();
    // Later, with the files, they can be converted like the original.
    let options = ["-q", "--foreign", "--root", work];
    convert(&out("kept"), &out("late"), &options).done().unwrap();
    convert(&input, &out("at-once"), &options).done().unwrap();
    let read = |name: &str| fs::read(out(name)).unwrap();
    same_bytes("converted late and at once", &read("late"), &read("at-once")).unwrap();
    assert!(has_stacks(&out("kept")) && !has_stacks(&out("late")));
    // A pipe can't be rewritten: its events keep the fields of stacks, and its samples have none.
    let piped = args!["inject", "--convert-callchain", "--foreign", "--root", work, input, "-o", "-"];
    fs::write(out("piped"), perfx(piped).done().unwrap().stdout).unwrap();
    assert!(has_stacks(&out("piped")));
    same_lines("piped and at once", &chains(&out("piped")), &chains(&out("at-once"))).unwrap();
}

/// The size of such registers is unknown, and so is the position of the stack.
#[test]
fn registers_of_an_unknown_abi_stay_or_are_counted() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_stack_user) = (1, 1000, 8);
    attr.sample_type = PLAIN | st::CALLCHAIN | st::REGS_USER | st::STACK_USER;
    // sample_id_all, exclude_callchain_user; the registers are BP, SP and IP.
    (attr.flags, attr.sample_regs_user) = (1 << 18 | 1 << 22, 7 << 6);
    let mut maker = Maker::new(&input, &[Event::made(&attr, vec![1], LE)]);
    maker.writer.set_feature(Feature::ARCH, write_str(b"x86_64", LE)).unwrap();
    // A chain of the kernel's part; registers with vectors, and no stack.
    let words = [0x1000, 1 << 32 | 1, 1000, 2, !127, 0x1000, 6, 1, 2, 3, 4, 5, 0].map(u64::to_le_bytes);
    maker.writer.write_parts(T::SAMPLE, USER, &[words.as_flattened()]).unwrap();
    maker.writer.finish().unwrap();
    let ran = convert(&input, &out, &["--foreign"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("not converted: 1 call chain with registers of an unknown ABI"),
        "{}",
        ran.stderr
    );
    let written = fs::read(&out).unwrap();
    assert!(written.windows(8 * 13).any(|bytes| bytes == words.as_flattened()), "the sample changed");
    let ran = convert(&input, &out, &["--foreign", "--drop-unresolved"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("lost: 1 call chain with registers of an unknown ABI"), "{}", ran.stderr);
    assert_eq!(chains(&out).len(), 1);
}

/// A recording of x86-64 with one sample of these parts after `time`, all 8 bytes, of an event that also
/// records `more`.
fn sample_with_stack(path: &Path, more: u64, words: &[u64]) {
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_stack_user) = (1, 1000, 24);
    attr.sample_type = PLAIN | st::CALLCHAIN | st::REGS_USER | st::STACK_USER | more;
    // sample_id_all, exclude_callchain_user; the registers are BP, SP and IP.
    (attr.flags, attr.sample_regs_user) = (1 << 18 | 1 << 22, 7 << 6);
    let mut maker = Maker::new(path, &[Event::made(&attr, vec![1], LE)]);
    maker.writer.set_feature(Feature::ARCH, write_str(b"x86_64", LE)).unwrap();
    let words: Vec<_> =
        [0x5000, 1 << 32 | 1, 1000].iter().chain(words).map(|word| word.to_le_bytes()).collect();
    maker.writer.write_parts(T::SAMPLE, USER, &[words.as_flattened()]).unwrap();
    maker.writer.finish().unwrap();
}

/// The stacks were deleted, and the exit code was 0.
#[test]
fn a_call_chain_that_ends_where_no_table_fits_the_stack_is_a_loss() {
    let folder = temp();
    let [input, out, kept] = ["in.data", "out.data", "kept.data"].map(|name| folder.path().join(name));
    // The frame pointer leads to a caller, whose frame pointer is below the stack.
    let (chain, regs, stack) = ([1, !511], [2, 0x1008, 0x1000, 0x5000], [24, 0, 0x800, 0x6001, 24]);
    let words = [&chain[..], &regs, &stack].concat();
    sample_with_stack(&input, 0, &words);
    let ran = convert(&input, &out, &["--foreign", "--drop-unresolved"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let lost = "lost: 1 call chain ends early, where the unwind tables do not fit the stack\n";
    assert!(ran.stderr.contains(lost), "{}", ran.stderr);
    let ran = convert(&input, &kept, &["--foreign"]);
    assert!(ran.stderr.contains("warning: not converted: 1 call chain ends early"), "{}", ran.stderr);
    let bytes: Vec<_> = words.iter().map(|word| word.to_le_bytes()).collect();
    let written = fs::read(&kept).unwrap();
    assert!(written.windows(8 * words.len()).any(|part| part == bytes.as_flattened()), "the sample changed");
    // For a reader, nothing is lost.
    let shown = perfx(args!["view", "--foreign", "-F", "ip", input]).done().unwrap();
    assert_eq!(shown.text().split_whitespace().collect::<Vec<_>>(), ["5000", "6000"]);
}

/// Regression: commands that complete call chains failed, because they could not drop such registers before
/// the parts after them.
#[test]
fn samples_with_registers_of_an_unknown_abi_are_shown_with_their_recorded_chains() {
    let folder = temp();
    let input = folder.path().join("in.data");
    // Two addresses, registers with vectors, no stack, and a weight.
    sample_with_stack(&input, st::WEIGHT, &[3, !511, 0x5000, 0x6000, 6, 1, 2, 3, 4, 5, 0, 77]);
    let crafted = Fixture::new("crafted/val-sample-regs-abi.data").path;
    for command in [
        "view", "overview", "list functions", "list stacks", "list dsos", "export folded", "export svg",
        "export html", "export pprof", "export otlp", "export firefox", "export parquet", "export csv",
    ] {
        for input in [&input, &crafted] {
            let words = command.split(' ').map(Into::into).chain(args!["--foreign", input]);
            let out = folder.path().join(format!("{command} of {}", input.file_name().unwrap().display()));
            let output = match command {
                "export csv" | "export parquet" => args!["--dir", out].to_vec(),
                command if command.starts_with("export") => args!["-o", out].to_vec(),
                _ => Vec::new(),
            };
            let ran = perfx(words.chain(output));
            assert_eq!(ran.code, Some(3), "{command}: {}", ran.stderr);
            let said = "1 sample has registers of an unknown ABI";
            assert!(ran.stderr.contains(said), "{command}: {}", ran.stderr);
        }
    }
    let shown = perfx(args!["view", "--foreign", "-F", "ip", input]).text();
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["5000", "6000"]);
    let folded = perfx(args!["export", "folded", "--foreign", input]).text();
    assert!(folded.ends_with(";[unknown];[unknown] 1000\n"), "{folded}");
}

#[test]
fn events_without_stacks_stay_as_they_are() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("recorded/mixed-callgraph.p61.data").path;
    assert_eq!(convert(&input, &out, &["--foreign", "--drop-unresolved"]).code, Some(3));
    let types = |path: &Path| -> Vec<u64> {
        Recording::open(path).unwrap().events.iter().map(|event| event.attr().sample_type).collect()
    };
    let [dwarf, faults, clock, ..] = types(&input)[..] else { panic!("three events") };
    let without = dwarf & !(st::REGS_USER | st::STACK_USER);
    assert_eq!(types(&out)[..3], [without, faults, clock]);
    let ran = perfx(args![
        "inject",
        "--convert-callchain",
        "-f",
        Fixture::new("recorded/fp.p61.data").path,
        "-o",
        out
    ]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: no event has call chains with user registers"), "{}", ran.stderr);
}

#[test]
fn another_architecture_is_refused() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut bytes = Fixture::new("recorded/dwarf.p61.data").bytes();
    let at = bytes.windows(7).position(|window| window == b"x86_64\0").unwrap();
    bytes[at..at + 6].copy_from_slice(b"ppc64l");
    fs::write(&input, bytes).unwrap();
    let ran = convert(&input, &out, &[]);
    assert_eq!((ran.code, out.exists()), (Some(1), false), "{}", ran.stderr);
    assert!(ran.stderr.contains("in.data: user stacks of ppc64l can't be unwound"), "{}", ran.stderr);
    // Regression: readers show only the innermost frames, and reported that they had converted the stacks.
    let ran = perfx(args!["view", "--foreign", input]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("perfx: converted no user stack into a call chain\n"), "{}", ran.stderr);
}

#[test]
fn call_chains_determine_the_build_ids() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let known = "b0 /tmp/perfx-data/work/burn_nofp,b1 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
    let input = Fixture::new("recorded/dwarf.p61.data").path;
    let ran = convert(&input, &out, &["-b", "--foreign", "--drop-unresolved", "--known-build-ids", known]);
    assert!(ran.stderr.contains("1 from known list"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("samples have user stacks"), "{}", ran.stderr);
}

#[test]
fn of_a_32_bit_task_without_its_file_only_the_innermost_frame_is_known() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("recorded/compat-dwarf.p73.data").path;
    let ran = convert(&input, &out, &["-q", "--foreign", "--drop-unresolved"]);
    let text = perfx(args!["dump", "--only", "SAMPLE", out]).text();
    same("inject", "convert-callchain-compat", &(ran.stderr + &text));
}

/// The images get their names only when the output does.
#[test]
fn stacks_of_jit_code_are_unwound_by_the_images_of_the_same_run() {
    let folder = temp();
    let (once, twice, named) =
        (folder.path().join("once"), folder.path().join("twice"), folder.path().join("jit"));
    let jit = root().join("tests/data/jit");
    let (input, images) = (jit.join("dwarf.data"), folder.path().join("images"));
    let options = ["-j", "--foreign", "--jit-dir", jit.to_str().unwrap(), "--jit-output"];
    let options = [&options[..], &[images.to_str().unwrap()]].concat();
    let ran = convert(&input, &once, &options);
    // Below the innermost frames, the recording has no code.
    let is_known = |ran: &Ran| ran.code == Some(3) && ran.stderr.contains("no unwind table fits the stack");
    assert!(is_known(&ran) && !ran.stderr.contains("missing"), "no file is missing: {}", ran.stderr);
    fs::remove_dir_all(&images).unwrap();
    let inject = args!["inject", "-q", "-f", input, "-o", named].into_iter();
    perfx(inject.chain(options.iter().map(Into::into))).done().unwrap();
    let ran = convert(&named, &twice, &["--foreign"]);
    assert!(
        ran.code == Some(3) && ran.stderr.contains("at code of 1 file that is missing"),
        "{}",
        ran.stderr
    );
    let ran = convert(&named, &folder.path().join("again"), &["--foreign", "--root", "/"]);
    assert!(is_known(&ran) && !ran.stderr.contains("missing"), "{}", ran.stderr);
    same_lines("in one run and in two", &chains(&folder.path().join("again")), &chains(&once)).unwrap();
}

#[test]
fn unknown_architectures_are_refused_and_exports_have_their_innermost_frames() {
    let folder = temp();
    let (input, out) = (folder.path().join("mips64.data"), folder.path().join("out.data"));
    let mut bytes = fs::read(root().join("tests/data/recorded/dwarf.p61.data")).unwrap();
    let (old, new) = (b"x86_64\0", b"mips64\0");
    for at in 0..bytes.len() - old.len() {
        if bytes[at..].starts_with(old) {
            bytes[at..at + old.len()].copy_from_slice(new);
        }
    }
    fs::write(&input, bytes).unwrap();
    let ran = convert(&input, &out, &[]);
    assert_eq!((ran.code, out.exists()), (Some(1), false), "{}", ran.stderr);
    let why = "user stacks of mips64 can't be unwound, only those of x86_64, i386, aarch64, arm, riscv64, ";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    for kind in ["folded", "pprof"] {
        let ran = perfx(args!["export", kind, "--foreign", "-f", input, "-o", out]);
        assert_eq!((ran.code, out.exists()), (Some(3), true), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("warning: {why}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("only the innermost frame is known"), "{}", ran.stderr);
        if kind == "folded" {
            let text = fs::read_to_string(&out).unwrap();
            assert!(text.lines().all(|line| line.contains(';')), "{text}");
        }
        fs::remove_file(&out).unwrap();
    }
}
