//! `perfx export autofdo`, `bolt` and `profgen`: create_llvm_prof, perf2bolt and llvm-profgen compute the
//! same profiles from their output as from the recording itself.
//!
//! There is no PMU here, so the branch stacks are those of a simulated run: the branches of a real program,
//! taken by a fixed sequence of numbers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use perfx_format::record::builder::build;
use perfx_format::record::cpumode::USER;
use perfx_format::sample::{Branch, BranchFlags, Marker, NewSample};
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Inode, MappedFile, Mmap2, RecordType, sample_type as st};

use regex::Regex;

use crate::made::{ID, elf};
use crate::maker::{Maker, PLAIN, event};
use crate::snapshots::same;
use crate::{args, tiers};

use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, perf, perfs, perfx, perfx_command, root, run, skipped, temp, workloads,
};

const PROGRAM: &str = "
volatile unsigned long sink;
__attribute__((noinline)) unsigned long leaf(unsigned long x) {
    return x % 3 ? x * 7 : x + 1;
}
__attribute__((noinline)) unsigned long loop(unsigned long n) {
    unsigned long s = 0;
    for (unsigned long i = 0; i < n; i++) {
        if (i & 4) s += leaf(i); else s ^= i;
        if (s % 11 == 3) s += leaf(s);
    }
    return s;
}
int main(void) {
    for (int i = 0; i < 1000; i++) sink += loop(i) + leaf(sink);
    return 0;
}
";

/// An instruction that branches: its target, and the next instruction.
#[derive(Clone, Copy, Debug)]
struct Jump {
    kind: Kind,
    target: u64,
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Always,
    Maybe,
    Call,
    Return,
}

/// The branches of the functions in PROGRAM, and the address of main.
fn jumps(program: &Path) -> (BTreeMap<u64, Jump>, u64) {
    let text = run(clean("objdump").args(["-d", "--no-show-raw-insn"]).arg(program), Stdin::Null).text();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (mut all, mut main, mut own, mut last) = (BTreeMap::<u64, Jump>::new(), 0, false, None);
    for line in text.lines() {
        if let Some((address, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            own = ["leaf", "loop", "main"].contains(&name);
            main = if name == "main" { hex(address).unwrap() } else { main };
        }
        let Some((address, code)) = line.trim_start().split_once(":\t").filter(|_| own) else { continue };
        let address = hex(address).unwrap();
        if let Some(jump) = last.take().and_then(|last| all.get_mut(&last)) {
            jump.next = address;
        }
        let mut words = code.split_whitespace();
        let (name, target) = (words.next().unwrap(), words.next().and_then(hex));
        let kind = match name {
            "ret" => Kind::Return,
            "call" => Kind::Call,
            "jmp" => Kind::Always,
            name if name.starts_with('j') => Kind::Maybe,
            _ => continue,
        };
        all.insert(address, Jump { kind, target: target.unwrap_or(0), next: 0 });
        last = Some(address);
    }
    (all, main)
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// The branches of a run, oldest first, with some of the kernel and of a library; each with the return
/// addresses on the stack after it, innermost first.
fn simulate(program: &Path, base: u64, library: u64, numbers: &mut Numbers) -> Vec<(Branch, Vec<u64>)> {
    let (jumps, main) = jumps(program);
    let mut branches = Vec::new();
    let (mut at, mut stack) = (main, Vec::<u64>::new());
    for _ in 0..40_000 {
        let Some((&from, jump)) = jumps.range(at..).next() else { break };
        let mut take = |stack: &[u64], from: u64, to: u64, wrong: bool| {
            let flags = BranchFlags::made(0, 0, if wrong { 1 } else { 2 });
            let callers = stack.iter().rev().map(|address| base + address).chain([library + 0x180]);
            branches.push((Branch { from, to, flags }, callers.collect()));
        };
        if numbers.below(50) == 0 {
            // An interrupt, and a call from outside.
            let kernel = 0xffff_ffff_8100_0000;
            take(&stack, base + at, kernel, false);
            take(&stack, kernel + 64, base + at, false);
        }
        let (taken, to) = match jump.kind {
            Kind::Maybe => (numbers.below(3) > 0, jump.target),
            Kind::Call => {
                stack.push(jump.next);
                (true, jump.target)
            }
            Kind::Return => (true, stack.pop().unwrap_or(0)),
            Kind::Always => (true, jump.target),
        };
        if !taken {
            at = jump.next;
            continue;
        }
        let wrong = numbers.below(4) == 0;
        if to == 0 {
            // main returns into the library, which calls it again.
            take(&stack, base + from, library + 0x100, wrong);
            take(&stack, library + 0x180, library + 0x200, false);
            take(&stack, library + 0x240, base + main, wrong);
            at = main;
        } else {
            take(&stack, base + from, base + to, wrong);
            at = to;
        }
    }
    branches
}

struct TestRecording {
    folder: tempfile::TempDir,
    program: PathBuf,
    recording: PathBuf,
}

/// A program, and a recording of two processes of it with stacks of `depth` branches.
fn made(options: &[&str], depth: usize) -> Option<TestRecording> {
    made_of(options, depth, false, false)
}

/// Like `made`. With `has_library`, the processes map a library made of the same source, too, `library.so`,
/// and each stack has branches of both. With `has_chains`, samples have call chains.
fn made_of(options: &[&str], depth: usize, has_library: bool, has_chains: bool) -> Option<TestRecording> {
    workloads()?;
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("program.c"), PROGRAM).unwrap();
    let program = path("program");
    let compile = |to: &Path, options: &[&str]| {
        let mut gcc = clean("gcc");
        gcc.args(["-O1", "-Wl,-q", "-Wl,--build-id=sha1", "-fcf-protection=none"]).args(options);
        let ran = run(gcc.arg("-o").args([to, &path("program.c")]), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    compile(&program, options);
    let own_library = has_library.then(|| path("library.so"));
    own_library.iter().for_each(|to| compile(to, &["-shared", "-fPIC", "-fvisibility=hidden"]));
    let is_fixed = options.contains(&"-no-pie");
    let endian = Endian::Little;
    let mut attr = Attr::default();
    attr.sample_type = st::IP | st::TID | st::TIME | st::PERIOD | st::BRANCH_STACK;
    attr.sample_type |= if has_chains { st::CALLCHAIN } else { 0 };
    // PERF_SAMPLE_BRANCH_ANY; sample_id_all, mmap, comm.
    (attr.branch_sample_type, attr.flags, attr.sample_period) = (1 << 3, 1 << 18 | 1 << 8 | 1 << 9, 1000);
    let event = Event::made(&attr, vec![1], endian);
    let recording = path("perf.data");
    let mut writer = RecordingWriter::create(&recording, std::slice::from_ref(&event), endian).unwrap();
    let mut numbers = Numbers(depth as u64);
    let mut time = 1_000_000;
    let elf = |file: &PathBuf| (file.clone(), symbols::ElfFile::read(file).unwrap());
    let objects: Vec<_> = [Some(&program), own_library.as_ref()].into_iter().flatten().map(elf).collect();
    for pid in [100, 200] {
        let base = if is_fixed { 0 } else { 0x5555_0000_0000 + 0x10_0000 * u64::from(pid) };
        let library = 0x7fff_0000_0000;
        let trailer = [&[endian.bytes_u32(pid); 2].concat()[..], &endian.bytes_u64(time)].concat();
        let mut map = |start, len, pgoff, file, name: &[u8]| {
            let (misc, prot, flags, trailer) = (USER, 5, 2, &trailer[..]);
            let mapping = Mmap2 { misc, pid, tid: pid, start, len, pgoff, file, prot, flags, name, trailer };
            writer.write(&mapping.write(endian).unwrap()).unwrap();
        };
        let own_base = base + 0x5000_0000;
        for ((file, elf), base) in objects.iter().zip([base, own_base]) {
            let name = std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str());
            let id = MappedFile::BuildId(elf.build_id.as_ref().unwrap().as_bytes());
            for &(offset, size, address) in &elf.code {
                let (start, size) = ((base + address) & !0xfff, (size + 0xfff) & !0xfff);
                map(start, size, offset & !0xfff, id, name);
            }
        }
        let inode = MappedFile::Inode(Inode { major: 8, minor: 1, inode: 7, generation: 0 });
        map(library, 0x10_000, 0, inode, b"/lib/other.so");
        let mut branches = simulate(&program, base, library, &mut numbers);
        if let Some(own) = &own_library {
            let more = simulate(own, own_base, library, &mut numbers);
            let both = branches.chunks(7).zip(more.chunks(5));
            branches = both.flat_map(|(one, other)| [one, other].concat()).collect();
        }
        for window in branches.windows(depth).step_by(depth.div_ceil(2)) {
            time += 1000;
            let stack: Vec<Branch> = window.iter().rev().map(|(branch, _)| *branch).collect();
            let ip = stack[0].to;
            if has_chains {
                let callers = &window[depth - 1].1;
                let head = [ip, u64::from(pid) << 32 | u64::from(pid), time, 1000, callers.len() as u64 + 2];
                let mut words = [&head[..], &[Marker::USER.0, ip], callers, &[depth as u64]].concat();
                words.extend(stack.iter().flat_map(|it| [it.from, it.to, it.flags.to_word(endian)]));
                let body: Vec<u8> = words.into_iter().flat_map(|word| endian.bytes_u64(word)).collect();
                writer.write(&build(RecordType::SAMPLE, USER, &[&body], endian).unwrap()).unwrap();
                continue;
            }
            let sample = NewSample {
                cpumode: USER,
                ip,
                pid,
                tid: pid,
                time,
                period: 1000,
                branches: [&stack, &[]],
                ..NewSample::default()
            };
            writer.write(&sample.build(&attr, endian).unwrap()).unwrap();
        }
    }
    writer.finish().unwrap();
    Some(TestRecording { folder, program, recording })
}

fn tool(names: &[&str], package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|tool| tool.exists());
    if found.is_none() {
        skipped(&format!(
            "what needs {}, which is missing. To install it: apt-get install {package}",
            names[0]
        ));
    }
    found
}

fn run_tool(tool: &Path, line: &[OsString]) -> Ran {
    run_tool_in(&std::env::var_os("PATH").unwrap(), tool, line)
}

/// Runs a tool that finds its `perf` in these folders.
fn run_tool_in(folders: &OsStr, tool: &Path, line: &[OsString]) -> Ran {
    let mut command = clean(tool.to_str().unwrap());
    run(command.env("PATH", folders).args(line), Stdin::Null)
}

/// perf2bolt and llvm-profgen run `perf script` several times on one recording. perf2bolt expects the run for
/// memory events to fail at once.
#[test]
fn tools_that_run_perf_script_make_the_same_profiles_with_the_shim() {
    let Some(TestRecording { folder, program, recording }) = made(&["-no-pie", "-g"], 16) else { return };
    let path = |name: &str| folder.path().join(name);
    perfx(args!["shim", path("bin")]).done().unwrap();
    let is_there = perfs(&["perf", "perf-new"]).iter().any(|perf| perf.program() == "perf");
    let file = |option: &str, path: &Path| format!("--{option}={}", path.display());
    for (names, package) in
        [(["perf2bolt-19", "perf2bolt"], "bolt-19"), (["llvm-profgen-19", "llvm-profgen"], "llvm-19")]
    {
        let Some(tool) = tool(&names, package) else { continue };
        let profile = |folders: &OsStr, name: &str| {
            let out = path(name);
            let line = match package {
                "bolt-19" => args!["-aggregate-only", "-p", recording, "-o", out, program].to_vec(),
                _ => args![
                    "--format=text",
                    file("perfdata", &recording),
                    file("binary", &program),
                    file("output", &out)
                ]
                .to_vec(),
            };
            let ran = run_tool_in(folders, &tool, &line);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            fs::read_to_string(out).unwrap()
        };
        let ours = profile(path("bin").as_os_str(), "ours");
        assert!(ours.contains("main"), "{ours}");
        if is_there {
            assert_eq!(ours, profile(&std::env::var_os("PATH").unwrap(), "theirs"), "{names:?}");
        }
    }
}

#[test]
fn perf2bolt_makes_the_same_profile_of_the_export_as_of_the_recording() {
    let Some(perf2bolt) = tool(&["perf2bolt-19", "perf2bolt"], "bolt-19") else { return };
    // It reads the recording by the program `perf`.
    if !perfs(&["perf", "perf-new"]).iter().any(|perf| perf.program() == "perf") {
        return;
    }
    for (options, depth) in
        [(&["-no-pie"][..], 16), (&["-pie"], 16), (&["-pie", "-Wl,-z,noseparate-code"], 31), (&["-pie"], 32)]
    {
        let Some(TestRecording { folder, program, recording }) = made(options, depth) else { return };
        let path = |name: &str| folder.path().join(name);
        let preagg = path("perf.preagg");
        let ran =
            perfx(args!["export", "bolt", recording, "--binary", program, "-o", preagg]).done().unwrap();
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let theirs =
            run_tool(&perf2bolt, &args!["-aggregate-only", "-p", recording, "-o", path("theirs"), program]);
        assert_eq!(theirs.code, Some(0), "{}", theirs.stderr);
        let ours =
            run_tool(&perf2bolt, &args!["-aggregate-only", "-pa", "-p", preagg, "-o", path("ours"), program]);
        assert_eq!(ours.code, Some(0), "{}", ours.stderr);
        let [ours, theirs] = ["ours", "theirs"].map(|name| fs::read_to_string(path(name)).unwrap());
        assert!(theirs.lines().count() > 10, "{theirs}");
        assert_eq!(ours, theirs, "{options:?}, {depth} branches");
    }
}

/// The instruction at the offset of each branch and the end of each range branches, and the counts are those
/// of the simulated run.
#[test]
fn create_llvm_prof_makes_a_profile_of_the_ranges_and_branches_of_autofdo() {
    // In the last one, as in programs of lld, addresses do not count from offset 0 of the file.
    let far = "-Wl,--section-start=.init=0x7001000";
    for options in [&["-no-pie"][..], &["-pie"], &["-pie", "-Wl,-z,noseparate-code"], &["-no-pie", far]] {
        // Debian's create_llvm_prof reads no newer debug info.
        let options = &[options, &["-gdwarf-4"]].concat();
        let Some(TestRecording { folder, program, recording }) = made(options, 16) else { return };
        let path = |name: &str| folder.path().join(name);
        let text = perfx(args!["export", "autofdo", recording, "--binary", program]).done().unwrap().text();
        let elf = symbols::ElfFile::read(&program).unwrap();
        let address = |offset: &str| elf.first_address() + u64::from_str_radix(offset, 16).unwrap();
        let (jumps, _) = jumps(&program);
        let mut lines = text.lines();
        let mut section = || {
            let len = lines.next().unwrap().parse().unwrap();
            lines.by_ref().take(len).collect::<Vec<_>>()
        };
        let [ranges, addresses, branches] = [section(), section(), section()];
        assert!(ranges.len() > 10 && addresses.is_empty() && branches.len() > 10, "{text}");
        for range in ranges {
            let (start, end) = range.split_once(':').unwrap().0.split_once('-').unwrap();
            // No branch that is always taken lies inside of the range.
            let inside = jumps.range(address(start)..address(end));
            assert!(inside.clone().all(|(_, jump)| jump.kind == Kind::Maybe), "{range}");
            assert!(jumps.contains_key(&address(end)), "{range}");
        }
        let bolt = perfx(args!["export", "bolt", recording, "--binary", program]).done().unwrap().text();
        let mut sums: Vec<String> = branches
            .iter()
            .map(|branch| {
                let (places, count) = branch.split_once(':').unwrap();
                let (from, to) = places.split_once("->").unwrap();
                format!("B {:x} {:x} {count}", address(from), address(to))
            })
            .collect();
        let inside = bolt.lines().filter(|line| line.starts_with('B') && !line.contains("X:0"));
        let mut theirs: Vec<&str> = inside.map(|line| line.rsplit_once(' ').unwrap().0).collect();
        sums.sort();
        theirs.sort();
        assert_eq!(sums, theirs);
        let Some(create) = tool(&["create_llvm_prof"], "autofdo") else { continue };
        fs::write(path("text"), text).unwrap();
        let file = |option: &str, file: &Path| format!("--{option}={}", file.display());
        let (out, text) = (path("out.prof"), path("text"));
        let line = args![
            "--profiler=text",
            "--format=text",
            file("profile", &text),
            file("binary", &program),
            file("out", &out)
        ];
        let ran = run_tool(&create, &line);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let profile = fs::read_to_string(out).unwrap();
        let has = |name: &str| profile.lines().any(|line| line.starts_with(&format!("{name}:")));
        assert!(has("loop") && has("leaf") && has("main"), "{options:?}\n{profile}");
    }
}

#[test]
fn llvm_profgen_makes_the_same_profile_of_the_export_as_of_perf_script() {
    let Some(profgen) = tool(&["llvm-profgen-19", "llvm-profgen"], "llvm-19") else { return };
    // With call chains, the profile tells callers apart (CSSPGO). perf 6.1 shows offsets in place of their
    // addresses.
    for (options, has_chains) in [
        (&["-no-pie", "-g"][..], false),
        (&["-pie", "-g"], false),
        (&["-no-pie", "-g"], true),
        (&["-pie", "-g"], true),
    ] {
        let Some(TestRecording { folder, program, recording }) = made_of(options, 16, false, has_chains)
        else {
            return;
        };
        let Some(perf) = perf(if has_chains { "perf-new" } else { "perf" }) else { continue };
        let path = |name: &str| folder.path().join(name);
        let ran = perfx(args!["export", "profgen", recording, "--binary", program, "-o", path("ours")]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let script = args!["script", "--show-mmap-events", "-F", "ip,brstack", "-i", recording];
        fs::write(path("theirs"), perf.run(Stdin::Null, script).stdout).unwrap();
        let profile = |name: &str| {
            let out = path(&format!("{name}.prof"));
            let script = format!("--perfscript={}", path(name).display());
            let binary = format!("--binary={}", program.display());
            let out_arg = format!("--output={}", out.display());
            let ran = run_tool(&profgen, &args!["--format=text", script, binary, out_arg]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            fs::read_to_string(out).unwrap()
        };
        let (ours, theirs) = (profile("ours"), profile("theirs"));
        assert!(theirs.lines().count() > 10, "{theirs}");
        assert_eq!(ours, theirs, "{options:?}");
        assert_eq!(fs::read_to_string(path("ours")).unwrap().contains("\n\t"), has_chains);
    }
}

tiers!(recordings_add_up_in_any_form_on_any_number_of_threads);
fn recordings_add_up_in_any_form_on_any_number_of_threads(tier: Tier) {
    let Some(TestRecording { folder, program, recording }) = made(&["-pie"], 16) else { return };
    let path = |name: &str| folder.path().join(name);
    let write = |export: &str, inputs: &[&Path], more: &[&str]| {
        let mut line = args!["export", export, "--binary", program].to_vec();
        line.extend(inputs.iter().map(|input| input.as_os_str().to_owned()));
        line.extend(more.iter().map(|more| (*more).into()));
        perfx(line).done().unwrap().text()
    };
    fs::write(path("list"), format!("{0}\n{0}\n", recording.display())).unwrap();
    let list = PathBuf::from(format!("@{}", path("list").display()));
    let pipe = path("pipe.data");
    perfx(args!["copy", recording, "--to", "pipe", "-o", pipe]).done().unwrap();
    for &export in tier.first(1, &["autofdo", "bolt", "profgen"]) {
        let once = write(export, &[&recording], &["-@1"]);
        assert_eq!(write(export, &[&recording], &["-@4"]), once);
        assert_eq!(write(export, &[&pipe], &[]), once);
        let twice = write(export, &[&list], &[]);
        assert_eq!(write(export, &[&recording, &pipe], &[]), twice);
        let half = |line: &str| {
            if export == "autofdo" {
                let Some((place, count)) = line.split_once(':') else { return format!("{line}\n") };
                return format!("{place}:{}\n", count.parse::<u64>().unwrap() / 2);
            }
            let words: Vec<&str> = line.split(' ').collect();
            let counts = if export == "bolt" { 3..words.len() } else { 0..usize::from(words.len() == 1) };
            let half = |(at, word): (usize, &&str)| match counts.contains(&at) {
                true => (word.parse::<u64>().unwrap() / 2).to_string(),
                false => (*word).to_owned(),
            };
            words.iter().enumerate().map(half).collect::<Vec<_>>().join(" ") + "\n"
        };
        assert_eq!(twice.lines().map(half).collect::<String>(), once, "{export}");
    }
}

tiers!(each_program_and_library_gets_the_profile_that_binary_gives);
fn each_program_and_library_gets_the_profile_that_binary_gives(tier: Tier) {
    let Some(TestRecording { folder, program, recording }) = made_of(&["-pie"], 16, true, false) else {
        return;
    };
    let path = |name: &str| folder.path().join(name);
    let library = path("library.so");
    let id = |file: &Path| symbols::ElfFile::read(file).unwrap().build_id.unwrap();
    fs::write(path("list"), format!("{0}\n{0}\n", recording.display())).unwrap();
    let list = PathBuf::from(format!("@{}", path("list").display()));
    let runs = [
        ("bolt", "preagg", &recording, "-@1"),
        ("bolt", "preagg", &recording, "-@4"),
        ("bolt", "preagg", &list, "-@3"),
        ("autofdo", "autofdo", &list, "-@2"),
    ];
    for (number, &(export, extension, input, threads)) in tier.first(1, &runs).iter().enumerate() {
        let dir = path(&format!("profiles{number}"));
        let ran = perfx(args!["export", export, input, threads, "--dir", dir]);
        // /lib/other.so has no build-id.
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("lost: /lib/other.so: "), "{}", ran.stderr);
        let entries =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        let files = [("library.so", &library), ("program", &program)];
        assert_eq!(names, files.map(|(name, file)| format!("{name}-{}.{extension}", id(file))));
        for (name, (_, file)) in names.iter().zip(files) {
            let alone = perfx(args!["export", export, input, "--binary", file]).done().unwrap().text();
            assert!(alone.lines().count() > 40, "{alone}");
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), alone, "{name}");
        }
        let again = |more: &str| perfx(args!["export", export, input, "--dir", dir, more]);
        let refused = again("-q");
        assert!(refused.code == Some(1) && refused.stderr.contains("-f overwrites it"), "{}", refused.stderr);
        assert_eq!(again("-f").code, Some(3));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    }
}

/// simpleperf writes 20 bytes for an id of 16, with zeros at the end: `--binary` gave an empty profile, and
/// `--dir` named files by the padded id.
#[test]
fn a_program_is_found_by_its_build_id_without_padding() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let (program, recording, dir) = (path("prog"), path("in.data"), path("profiles"));
    let mut bytes = elf(&[(".text", vec![0xc3; 0x2000])]);
    let note = bytes.windows(16).position(|window| window == b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0").unwrap();
    bytes[note + 4] = 16;
    fs::write(&program, bytes).unwrap();
    let mut padded = ID;
    padded[16..].fill(0);
    let mut maker = Maker::new(&recording, &[event(PLAIN | st::BRANCH_STACK, Vec::new())]);
    maker.comm(7, "prog", 0);
    maker.mmap2(7, 0x10_0000, 0x10_000, MappedFile::BuildId(&padded), program.to_str().unwrap());
    let end = maker.trailer(RecordType::SAMPLE, 7);
    let words = [2, 0x10_1040, 0x10_1080, 0, 0x10_1010, 0x10_1020, 0].map(u64::to_le_bytes);
    let parts = [&0x10_1080_u64.to_le_bytes()[..], &end, words.as_flattened()];
    maker.writer.write_parts(RecordType::SAMPLE, USER, &parts).unwrap();
    maker.writer.finish().unwrap();
    let text = perfx(args!["export", "autofdo", recording, "--binary", program]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert_eq!(text.text(), "1\n1020-1040:1\n0\n2\n1010->1020:1\n1040->1080:1\n");
    assert_eq!(perfx(args!["export", "autofdo", recording, "--dir", dir]).code, Some(0));
    let name = format!("prog-{}.autofdo", "5a".repeat(16));
    assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), text.text());
}

#[test]
fn call_stacks_of_branch_records_are_not_branches_that_were_taken() {
    let program = root().join("tests/data/unstripped/tmp/perfx-data/work/burn");
    let export = |format: &str, input: &Path| perfx(args!["export", format, input, "--binary", program]);
    let [lbr, both, branches] = ["lbr", "lbr-and-branch", "branch"]
        .map(|name| Fixture::new(&format!("crafted/sample-{name}-le.data")).path);
    for format in ["autofdo", "bolt", "profgen"] {
        let refused = export(format, &lbr);
        assert!(refused.code == Some(1) && refused.stdout.is_empty(), "{}", refused.stderr);
        let why =
            "call stacks (--call-graph lbr), not the branches that were taken; record with perf record -b";
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
        // Of two events, that with branches counts, and the samples of the other are lost.
        let ran = export(format, &both);
        assert_eq!(ran.text(), export(format, &branches).text());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let said = "that lack taken branches and";
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    let dir = temp();
    let refused = perfx(args!["export", "bolt", lbr, "--dir", dir.path().join("profiles")]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let (tables, ran) = crate::parquet::export(&both, &["--branches", "--tables", "branches"]);
    assert_eq!(crate::parquet::rows(&tables, "branches").len(), 3, "{}", ran.stderr);
}

#[test]
fn unexportable_data_is_reported() {
    let Some(TestRecording { folder, program, recording }) = made(&["-pie"], 16) else { return };
    let path = |name: &str| folder.path().join(name);
    fs::copy(Fixture::new("recorded/plain.p61.data").path, path("plain.data")).unwrap();
    fs::rename(recording, path("branches.data")).unwrap();
    fs::rename(program, path("old")).unwrap();
    // The same name, but another file.
    let mut gcc = clean("gcc");
    let ran = run(
        gcc.args(["-O0", "-Wl,--build-id=0x1234", "-o"]).args([&path("program"), &path("program.c")]),
        Stdin::Null,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let say = |line: &str| {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' '));
        let ran = run(&mut command, Stdin::Null);
        let id = Regex::new("[0-9a-f]{40}").unwrap();
        let stderr = ran.stderr.replace(folder.path().to_str().unwrap(), "/folder");
        format!("$ perfx {line}\n{}(exit code {})\n", id.replace(&stderr, "ID"), ran.code.unwrap())
    };
    let lines = [
        "export autofdo plain.data --binary old -o afdo.text",
        "export autofdo branches.data --binary program -o afdo.text",
        "export autofdo branches.data",
        "export autofdo branches.data --dir afdo",
        "export bolt plain.data --binary old -o out",
        "export bolt branches.data --binary none -o out",
        "export bolt branches.data --binary plain.data -o out",
        "export bolt branches.data --binary program -o out",
        "export bolt branches.data --binary old --pid 9 -o out -f",
        "export profgen branches.data --binary old -o out",
        "export profgen branches.data -o out",
        "export bolt branches.data",
        "export bolt branches.data --binary old --dir dir",
        "export bolt branches.data --binary old --foreign -o out",
        "export bolt plain.data --dir dir",
        "export bolt branches.data --dir plain.data",
        "export bolt branches.data --dir dir",
    ];
    same("export", "branches-refusals", &lines.map(say).join("\n"));
}

/// The branches of a truth beside a recording with Intel PT, with both ends in the program.
fn true_branches(name: &str) -> Counts {
    let text = fs::read_to_string(root().join(format!("tests/data/trace/{name}.truth"))).unwrap();
    let mut branches = BTreeMap::new();
    for line in text.lines() {
        if let [from, to, ..] = line.split(' ').collect::<Vec<_>>()[..]
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
            && [from, to].iter().all(|place| (0x40_0000..0x50_0000).contains(place))
        {
            *branches.entry((from, to)).or_default() += 1;
        }
    }
    branches
}

/// The lines of a kind, by the two addresses that begin them, with their counts.
fn counted_lines(text: &str, kind: &str) -> Counts {
    let line = |line: &str| {
        let [of, one, other, count, ..] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let address = |text| u64::from_str_radix(text, 16).ok();
        (of == kind).then_some(((address(one)?, address(other)?), count.parse().unwrap()))
    };
    text.lines().filter_map(line).collect()
}

/// The number of occurrences by two addresses.
type Counts = BTreeMap<(u64, u64), u64>;

/// The branches and the code after them, in a text for llvm-profgen whose stacks consist of one branch, or
/// also of one that leaves the program, where the code after the former ends.
fn stacks_of_one_branch(text: &str) -> (Counts, Counts) {
    let (mut branches, mut runs, mut count) = (Counts::new(), Counts::new(), 0);
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    for line in text.lines() {
        count = line.parse().unwrap_or(count);
        let branch = |word: &str| {
            let mut places = word.split('/');
            Some((address(places.next()?)?, address(places.next()?)?))
        };
        let stack: Vec<(u64, u64)> = line.split(' ').filter_map(branch).collect();
        let Some(&(from, to)) = stack.last() else { continue };
        if from != 0 && to != 0 {
            *branches.entry((from, to)).or_default() += count;
        }
        if let [(end, 0), _] = stack[..] {
            *runs.entry((to, end)).or_default() += count;
        }
    }
    (branches, runs)
}

#[test]
fn every_branch_of_a_trace_counts() {
    let root = root().join("tests/data/trace");
    for (name, program) in [
        ("user", "loop"),
        ("noret", "loop"),
        ("times", "loop"),
        ("defer", "loop"),
        ("halve", "halve"),
        ("switch", "loop"),
    ] {
        let input = root.join(format!("{name}.data"));
        let program = root.join("root/opt/perfx/trace").join(program);
        let export = |form: &str, threads: &str, inputs: &[&Path]| {
            let mut line = args![
                "export",
                form,
                "-@",
                threads,
                "--foreign",
                "--root",
                root.join("root"),
                "--binary",
                program
            ]
            .to_vec();
            line.extend(inputs.iter().map(Into::into));
            perfx(line).done().unwrap().text()
        };
        let bolt = export("bolt", "1", &[&input]);
        let truth = true_branches(name);
        assert!(truth.len() > 10);
        assert_eq!(counted_lines(&bolt, "B"), truth, "{name}");
        assert_eq!(export("bolt", "3", &[&input]), bolt, "{name}");
        let twice = counted_lines(&export("bolt", "2", &[&input, &input]), "B");
        assert!(twice.iter().all(|(branch, count)| *count == 2 * truth[branch]), "{name}");
        // Addresses in the other form begin with those of the file.
        let autofdo = export("autofdo", "2", &[&input]);
        let line = |line: &str| {
            let (branch, count) = line.rsplit_once(':')?;
            let (from, to) = branch.split_once("->")?;
            let address = |text| Some(u64::from_str_radix(text, 16).ok()? + 0x40_0000);
            Some(((address(from)?, address(to)?), count.parse().ok()?))
        };
        assert_eq!(autofdo.lines().filter_map(line).collect::<BTreeMap<_, u64>>(), truth, "{name}");
        let (branches, runs) = stacks_of_one_branch(&export("profgen", "2", &[&input]));
        assert_eq!(branches, truth, "{name}");
        let mut all = counted_lines(&bolt, "F");
        counted_lines(&bolt, "f").into_iter().for_each(|(run, count)| *all.entry(run).or_default() += count);
        assert_eq!(runs, all, "{name}");
    }
}

/// The tools of compilers compute profiles with the functions of the program from counted traces.
#[test]
fn the_tools_of_compilers_take_the_profiles_of_a_trace() {
    let (root, folder) = (root().join("tests/data/trace"), temp());
    let path = |name: &str| folder.path().join(name);
    // The program of the recording has this name.
    let (input, program) = (root.join("user.data"), path("loop"));
    fs::copy(root.join("loop-symbols"), &program).unwrap();
    for form in ["autofdo", "bolt", "profgen"] {
        let line =
            args!["export", form, "--foreign", input, "--binary", program, "--root", root, "-o", path(form)];
        perfx(line).done().unwrap();
    }
    let file = |option: &str, file: &Path| format!("--{option}={}", file.display());
    let out = path("out");
    let made = |names: &[&str], package: &str, line: &[OsString], functions: &[&str]| {
        let Some(tool) = tool(names, package) else { return };
        let ran = run_tool(&tool, line);
        assert_eq!(ran.code, Some(0), "{names:?} {}", ran.stderr);
        let profile = fs::read_to_string(&out).unwrap();
        functions.iter().for_each(|name| assert!(profile.contains(name), "{names:?} {name} {profile}"));
        fs::remove_file(&out).unwrap();
    };
    let places = (file("binary", &program), file("profile", &path("autofdo")), file("out", &out));
    let line = args!["--profiler=text", "--format=text", places.0, places.1, places.2];
    made(&["create_llvm_prof"], "autofdo", &line, &["main:", "deep:", "sw:"]);
    let line = args!["-aggregate-only", "-pa", "-p", path("bolt"), "-o", out, program];
    made(&["perf2bolt-19", "perf2bolt"], "bolt-19", &line, &["1 main ", "1 deep ", "1 sw "]);
    let places = (file("perfscript", &path("profgen")), file("binary", &program), file("output", &out));
    let line = args!["--format=text", places.0, places.1, places.2];
    made(&["llvm-profgen-19", "llvm-profgen"], "llvm-19", &line, &["main:", "deep:", "sw:"]);
}

#[test]
fn a_trace_without_its_code_is_a_loss() {
    let root = root().join("tests/data/trace");
    // The program is in the given file; the kernel's code is not found.
    let (input, program) = (root.join("kernel.data"), root.join("root/opt/perfx/trace/loop"));
    let ran = perfx(args!["export", "bolt", "--foreign", input, "--binary", program]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("the code is not known"), "{}", ran.stderr);
    assert_ne!(counted_lines(&ran.text(), "B"), BTreeMap::new());
}
