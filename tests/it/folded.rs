//! `perfx export folded`: its lines are those of `perf script | stackcollapse-perf.pl`, for every recording
//! and every form, on any number of threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use build_id::{Object, RecordedOn};
use object::{Object as _, ObjectSection as _};
use perfx_format::{RecordType, sample_type as st};
use regex::Regex;
use symbols::{Call, Sources};

use crate::maker::{Maker, PLAIN, USER, event};
use crate::snapshots::same;
use crate::support::{
    Fixture, Perf, Ran, Stdin, Tier, all, clean, each_fixture, perfs, perfx, perfx_command, perfx_with,
    recorded, run, same_lines, temp, workloads,
};
use crate::symbols::calls_at;
use crate::{args, tiers};

fn folded(input: &Path, more: &[&str]) -> Ran {
    let mut command = perfx_command();
    command.args(["export", "folded", "--foreign"]).arg(input).args(more);
    run(&mut command, Stdin::Null)
}

/// The rules of stackcollapse-perf.pl for the text of `perf script`, in the words of FlameGraph's own page:
/// an event line, then the frames from the innermost on, then an empty line.
#[derive(Default)]
struct Collapse {
    stacks: BTreeMap<String, u64>,
    /// The name and the period of the current sample, and its frames from the outermost on.
    sample: Option<(String, u64)>,
    frames: Vec<String>,
}

impl Collapse {
    /// The lines of an event for the text of `perf script`, as with `--event-filter`.
    fn lines(text: &str, event: &str) -> Vec<String> {
        static HEAD: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^ *(\S.*?)\s+(\d+)(?:\s+\[\d+\])?\s+[\d.]+:\s+(?:(\d+)\s+)?(\S+):\s*(.*)$").unwrap()
        });
        static FRAME: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"^\s*[0-9a-f]+ (.+) \((.*)\)$").unwrap());
        let mut all = Collapse::default();
        for line in text.lines() {
            if line.is_empty() {
                all.end();
            } else if let Some(parts) = FRAME.captures(line).filter(|_| line.starts_with('\t')) {
                all.frame(&parts[1], &parts[2]);
            } else if let Some(parts) = HEAD.captures(line) {
                all.end();
                if event != &parts[4] {
                    continue;
                }
                let period = parts.get(3).map_or(0, |period| period.as_str().parse().unwrap());
                all.sample = Some((parts[1].replace(' ', "_"), period.max(1)));
                // stackcollapse-perf.pl loses samples without a call chain, whose address is on this line.
                if let Some(parts) = FRAME.captures(&parts[5]) {
                    all.frame(&parts[1], &parts[2]);
                    all.end();
                }
            }
        }
        all.end();
        all.stacks.iter().map(|(stack, count)| format!("{stack} {count}")).collect()
    }

    fn frame(&mut self, symbol: &str, dso: &str) {
        static OFFSET: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\+0x[0-9a-f]+$").unwrap());
        static ARGUMENTS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\((?:[^a]|a[^n]|$).*").unwrap());
        let mut name = match OFFSET.replace(symbol, "").into_owned() {
            unknown if unknown == "[unknown]" && dso == "[unknown]" => unknown,
            unknown if unknown == "[unknown]" => format!("[{}]", dso.rsplit('/').next().unwrap()),
            name => name,
        };
        if !name.starts_with('(') {
            name = ARGUMENTS.replace(&name.replace(';', ":"), "").replace(['"', '\''], "");
            self.frames.insert(0, name);
        }
    }

    fn end(&mut self) {
        if let Some((name, period)) = self.sample.take() {
            let stack = [vec![name], std::mem::take(&mut self.frames)].concat().join(";");
            *self.stacks.entry(stack).or_default() += period;
        }
        self.frames.clear();
    }
}

/// Recordings whose text in perf can't be compared here, each with the reason.
fn comparable(fixture: &Fixture, perf: &Perf) -> bool {
    const OTHER: &[(&str, &str)] = &[
        ("anon-exec", "the name of a deleted file has brackets"),
        ("name-newline", "a line feed in a name breaks perf's lines"),
        ("per-thread", "there is no time in perf's lines"),
        ("mixed-callgraph", "tests/it/callchain.rs compares unwound stacks"),
        ("pipe-stat", "there are no samples"),
        ("cut-", "perf reads no cut recording as perfx does"),
        ("lost", "of two tracepoints, stackcollapse-perf.pl adds up both"),
        ("inject-b", "perf sees samples twice"),
        ("tracepoint", "a tracepoint's line ends with its fields"),
        ("bpf-output", "the same"),
        ("dwarf", "the same"),
        ("z-straddle", "the same"),
    ];
    let known = OTHER.iter().any(|(part, _)| fixture.name.contains(part));
    !known && !fixture.name.contains("guest") && perf.can_read(&fixture.path)
}

tiers!(lines_are_those_of_stackcollapse_for_every_recording);
fn lines_are_those_of_stackcollapse_for_every_recording(tier: Tier) {
    let Some(root) = workloads() else { return };
    let nowhere = temp();
    for perf in perfs(&["perf", "perf-new"]) {
        let compared = AtomicUsize::new(0);
        each_fixture(&tier.of(recorded()), |fixture| {
            if !comparable(fixture, &perf) || fixture.has_siblings() {
                return Ok(());
            }
            for root in [nowhere.path(), root] {
                let text = perf.script(&fixture.path, root, &[]).text();
                // A tracepoint's line ends with its fields, and has no address.
                if text
                    .lines()
                    .any(|line| line.starts_with(|c: char| c != '\t') && !line.ends_with([')', ' ']))
                {
                    return Ok(());
                }
                let ours = folded(&fixture.path, &["--root", root.to_str().unwrap()]);
                if ours.code == Some(1) {
                    return Ok(());
                }
                let event = ours.stderr.lines().find_map(|line| {
                    let (event, _) = line.strip_prefix("perfx: ")?.split_once(", counted by ")?;
                    Some(event.rsplit_once(": ")?.0)
                });
                let lines: Vec<String> = ours.text().lines().map(str::to_owned).collect();
                compared.fetch_add(usize::from(!lines.is_empty()), Ordering::Relaxed);
                same_lines(perf.name, &lines, &Collapse::lines(&text, event.unwrap_or_default()))?;
            }
            Ok(())
        });
        assert!(compared.into_inner() > tier.pick(10, 120), "{} was asked of too few recordings", perf.name);
    }
}

tiers!(lines_do_not_depend_on_form_or_threads);
fn lines_do_not_depend_on_form_or_threads(tier: Tier) {
    let folder = temp();
    for name in
        tier.first(1, &["recorded/fp.p61.data", "recorded/fp-defer.p73.data", "recorded/group-read.p61.data"])
    {
        // Several batches.
        let large = folder.path().join("large.data");
        fs::write(&large, Fixture::new(name).repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
        let expected = folded(&large, &["-@1"]).done().unwrap().stdout;
        assert!(!expected.is_empty(), "{name}");
        assert!(folded(&large, &["-@4"]).stdout == expected, "{name} on four threads");
        let small = folded(&Fixture::new(name).path, &["--by", "thread"]).stdout;
        let piped = perfx(args!["copy", Fixture::new(name).path, "--to", "pipe"]).stdout;
        let pipe = args!["export", "folded", "--foreign", "--by", "thread", "-"];
        assert!(perfx_with(Stdin::Pipe(&piped), pipe).stdout == small, "{name} from a pipe");
        let packed = folder.path().join("packed.data");
        perfx(args!["compress", "-f", Fixture::new(name).path, "-o", packed]).done().unwrap();
        assert!(folded(&packed, &["--by", "tid"]).stdout == small, "{name} compressed");
    }
}

/// The samples in the folded lines of a recording, by the result of `key` for a stack without the thread's
/// name.
pub(crate) fn samples_by(input: &Path, root: &str, key: impl Fn(&str) -> &str) -> BTreeMap<String, u64> {
    weights_by(input, root, "samples", key)
}

/// Like [`samples_by`], for the weights of `--weight`.
pub(crate) fn weights_by(
    input: &Path,
    root: &str,
    weight: &str,
    key: impl Fn(&str) -> &str,
) -> BTreeMap<String, u64> {
    let line = args!["export", "folded", "--foreign", "--root", root, "--weight", weight, input];
    let mut sums = BTreeMap::new();
    for line in perfx(line).text().lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let stack = stack.split_once(';').map_or("", |(_, stack)| stack);
        *sums.entry(key(stack).to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    sums
}

tiers!(every_recording_is_folded_or_refused_and_all_samples_are_counted);
fn every_recording_is_folded_or_refused_and_all_samples_are_counted(tier: Tier) {
    each_fixture(&tier.of(all()), |fixture| {
        let stats = perfx(args!["stats", fixture.path]);
        let ran = folded(&fixture.path, &["--weight", "samples"]);
        if ran.code == Some(1) {
            return if ran.stdout.is_empty() { Ok(()) } else { Err("an error left output".into()) };
        }
        let ran = ran.done()?;
        let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
        let text = ran.text();
        let counted: u64 = text.lines().map(|line| number(line.rsplit_once(' ').unwrap().1)).sum();
        // Samples of other events, and of none.
        let others = Regex::new(r"\((\d[\d,]*)\)(?:,|;)|: (\d+) samples? belongs? to no event").unwrap();
        let lines =
            ran.stderr.lines().filter(|line| line.contains("not counted") || line.contains("no event"));
        let others = lines.flat_map(|line| others.captures_iter(line).collect::<Vec<_>>());
        let others: u64 = others.map(|parts| number(parts.get(1).or(parts.get(2)).unwrap().as_str())).sum();
        let row = stats.text().lines().find(|line| line.starts_with("SAMPLE ")).map(str::to_owned);
        let samples = row.map_or(0, |row| number(row.split_whitespace().nth(1).unwrap()));
        // With READ, a sample counts for each counter that has changed.
        let reads = stats.text().contains("new values");
        if counted + others != samples && !reads {
            return Err(format!("{counted} and {others} samples, {samples} in stats: {}", ran.stderr));
        }
        Ok(())
    });
}

#[test]
fn the_fields_of_lines_can_be_chosen() {
    let Some(root) = workloads() else { return };
    let fixture = Fixture::new("recorded/fp.p61.data");
    let say = |more: &str| {
        let more: Vec<&str> = more.split(' ').filter(|word| !word.is_empty()).collect();
        let ran = folded(&fixture.path, &[&["--root", root.to_str().unwrap()], &more[..]].concat());
        let text = ran.text();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines[..lines.len().min(4)].join("\n");
        format!("$ export folded {}\n{shown}\n({} lines)\n", more.join(" "), lines.len())
    };
    let options = [
        "",
        "--weight samples",
        "--by pid --kernel",
        "--by tid --addrs",
        "--by cpu",
        "--by cgroup",
        "--skip-after main --all",
        "--time 40%-60% --comm burn --weight samples",
    ];
    same("export", "folded", &options.map(say).join("\n"));
}

#[test]
fn user_stacks_are_unwound_first() {
    let Some(root) = workloads() else { return };
    let ran = folded(&Fixture::new("recorded/dwarf.p73.data").path, &["--root", root.to_str().unwrap()]);
    let text = ran.text();
    assert!(text.contains(";main;work_one;down;"), "{text}");
}

#[test]
fn an_output_is_written_whole_or_not_at_all() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::copy(Fixture::new("recorded/fp.p61.data").path, path("perf.data")).unwrap();
    fs::write(path("text"), "mine").unwrap();
    let say = |line: &str| {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' '));
        let ran = run(&mut command, Stdin::Null);
        format!("$ perfx {line}\n{}{}(exit code {:?})\n", ran.text(), ran.stderr, ran.code.unwrap())
    };
    let lines = [
        "export folded perf.data --foreign -o new.folded",
        "export folded perf.data --foreign -o new.folded",
        "export folded perf.data --foreign -o perf.data -f",
        "export folded perf.data --foreign -o none/such",
        "export folded perf.data --foreign --event nothing",
        "export folded perf.data --foreign --cgroup /x",
        "export folded text",
        "export folded perf.data --by nothing",
    ];
    same("export", "folded-refusals", &lines.map(say).join("\n"));
    assert_eq!(fs::read(path("new.folded")).unwrap(), folded(&path("perf.data"), &[]).stdout);
}

#[test]
fn names_from_a_recording_stay_on_their_line() {
    let folder = temp();
    let mut bytes = Fixture::new("recorded/fp.p61.data").bytes();
    let places: Vec<usize> =
        bytes.windows(5).enumerate().filter(|(_, at)| at == b"burn\0").map(|(at, _)| at).collect();
    places.iter().for_each(|&at| bytes[at..at + 4].copy_from_slice(b"\n;\xff "));
    let input = folder.path().join("perf.data");
    fs::write(&input, bytes).unwrap();
    let text = folded(&input, &[]).text();
    assert!(
        text.lines().all(|line| line.starts_with("?:\u{fffd}_;") || line.starts_with("?:\u{fffd}_ ")),
        "{text}"
    );
}

#[test]
fn code_in_memory_is_named_by_the_perf_map_of_its_process() {
    let folder = temp();
    let fixture = Fixture::new("recorded/anon-exec.p61.data");
    let names = |root: &Path| {
        let text = folded(&fixture.path, &["--root", root.to_str().unwrap(), "--jit"]).text();
        text.lines().filter(|line| line.contains("_[j]")).map(str::to_owned).collect::<Vec<_>>()
    };
    let text = folded(&fixture.path, &["--addrs"]).text();
    let parts = text.lines().filter_map(|line| line.split_once("[perf-2441.map <")?.1.split_once(">] "));
    let parts: Vec<(u64, u64)> = parts
        .map(|(address, count)| (u64::from_str_radix(address, 16).unwrap(), count.parse().unwrap()))
        .collect();
    let total: u64 = parts.iter().map(|(_, count)| count).sum();
    assert_eq!(names(folder.path()), [format!("jit;[perf-2441.map]_[j] {total}")]);
    let (first, last) = (parts.iter().min().unwrap().0, parts.iter().max().unwrap().0);
    fs::create_dir(folder.path().join("tmp")).unwrap();
    let map = folder.path().join("tmp/perf-2441.map");
    let list = format!("nonsense\n{first:x} {:x} LazyCompile:*fib /a b.js:1\n", last + 1 - first);
    fs::write(&map, list).unwrap();
    assert_eq!(names(folder.path()), [format!("jit;LazyCompile:*fib /a b.js:1_[j] {total}")]);
    // A map that is a link could be any file.
    fs::rename(&map, folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("real"), &map).unwrap();
    assert!(names(folder.path())[0].contains("[perf-2441.map]"));
}

pub(crate) const INLINED: &str = "
volatile unsigned long sink;
static inline __attribute__((always_inline)) unsigned long mix(unsigned long x) {
    for (int i = 0; i < 50; i++) x = x * 6364136223846793005UL + 1;
    return x;
}
static inline __attribute__((always_inline)) unsigned long twice(unsigned long x) {
    return mix(x) ^ mix(x + 1);
}
__attribute__((noinline)) unsigned long work(unsigned long n) {
    unsigned long s = 0;
    for (unsigned long i = 0; i < n; i++) s += twice(i);
    return s;
}
int main(void) { sink = work(20000); return 0; }
";

#[test]
fn inlined_calls_are_those_of_addr2line() {
    if workloads().is_none() {
        return;
    }
    let folder = temp();
    let (source, program) = (folder.path().join("inlined.c"), folder.path().join("inlined"));
    fs::write(&source, INLINED).unwrap();
    let ran = run(clean("gcc").args(["-O2", "-g", "-o"]).args([&program, &source]), Stdin::Null);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (stripped, debug) = (folder.path().join("stripped"), folder.path().join("stripped.debug"));
    let objcopy = |args: &[std::ffi::OsString]| {
        assert_eq!(run(clean("objcopy").args(args), Stdin::Null).code, Some(0));
    };
    objcopy(&args!["--only-keep-debug", "--compress-debug-sections", program, debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&args!["--strip-all", link, program, stripped]);
    let image = |path: &Path| {
        let sources = Sources::new(false, &[PathBuf::from("/")], &[], &RecordedOn::default());
        sources.image(&Object::File { path: path.to_owned(), inode: None, pid: None }, None, None)
    };
    let stripped_path = stripped.clone();
    let (whole, stripped) = (image(&program).unwrap(), image(&stripped).unwrap());
    let mut depths = BTreeMap::new();
    for at in (0x1000..0x1400).step_by(3) {
        let Some(symbol) = whole.find(at).filter(|symbol| &*symbol.name == b"work") else { continue };
        let address = whole.address_of(at).unwrap();
        let ran = run(
            clean("addr2line").args(["-f", "-i", "-e"]).arg(&program).arg(format!("{address:x}")),
            Stdin::Null,
        );
        let text = ran.text();
        let lines: Vec<&str> = text.lines().collect();
        let theirs: Vec<String> = lines.chunks(2).map(|pair| format!("{} {}", pair[0], pair[1])).collect();
        let shown = |call: &Call| {
            let line = call.line.map_or("?".to_owned(), |line| line.to_string());
            format!("{} {}:{line}", call.symbol, call.file.as_deref().unwrap_or("??"))
        };
        let ours: Vec<String> = calls_at(&whole, address).expect("DWARF").iter().map(shown).collect();
        let theirs: Vec<&str> =
            theirs.iter().map(|line| line.split(" (discriminator").next().unwrap()).collect();
        assert_eq!(ours, theirs, "{} at {address:#x}", symbol.shown());
        assert_eq!(calls_at(&stripped, address), calls_at(&whole, address));
        *depths.entry(ours.len()).or_insert(0) += 1;
    }
    assert!(depths.contains_key(&3), "no inlined call was asked for: {depths:?}");
    // A section that claims to expand to 4 GiB is not read.
    let mut bytes = fs::read(&debug).unwrap();
    let parsed = object::File::parse(&*bytes).unwrap();
    let (at, _) = parsed.section_by_name(".debug_info").unwrap().file_range().unwrap();
    bytes[at as usize + 8..][..8].copy_from_slice(&0xffff_fffe_u64.to_le_bytes());
    fs::write(&debug, bytes).unwrap();
    assert_eq!(calls_at(&image(&stripped_path).unwrap(), 0x1000), None);
}

#[test]
fn samples_without_an_event_are_a_loss_and_late_events_are_known() {
    let every = ["--event", ".*", "--weight", "samples"];
    let ran = folded(&Fixture::new("crafted/unknown-id-sample.data").path, &every);
    assert_eq!(
        (ran.code, ran.stderr.contains("1 sample belongs to no event")),
        (Some(3), true),
        "{}",
        ran.stderr
    );
    let ran = folded(&Fixture::new("crafted/val-pipe-attr-late.data").path, &every);
    assert_eq!(ran.text(), "burn;[burn] 7\n", "{}", ran.stderr);
}

#[test]
fn an_output_that_can_only_be_a_folder_is_refused_first() {
    let folder = temp();
    let nofile = format!("{}/nofile/", folder.path().display());
    let ran = perfx(args!["inject", "-j", Fixture::new("recorded/plain.p61.data").path, "-o", nofile]);
    assert_eq!((ran.code, ran.stderr.contains("is not a directory")), (Some(1), true), "{}", ran.stderr);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn stacks_of_several_recordings_add_up() {
    let folder = temp();
    let list = folder.path().join("list");
    let paths =
        ["recorded/fp.p61.data", "recorded/plain.p73.data", "recorded/fp.p73.data", "recorded/fp.p61.data"]
            .map(|name| Fixture::new(name).path);
    let lines = paths.each_ref().map(|path| path.display().to_string());
    fs::write(&list, lines[1..].join("\n")).unwrap();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in
        paths.iter().flat_map(|path| folded(path, &[]).text().lines().map(str::to_owned).collect::<Vec<_>>())
    {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        *sums.entry(stack.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    let ran = folded(&paths[0], &[&format!("@{}", list.display())]);
    let expected: String = sums.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect();
    assert_eq!(ran.text(), expected);
    assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("perfx: read ")).count(), 4);
    // One that cannot be read leaves no output.
    let ran = folded(&paths[0], &["none.data"]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(1), 0), "{}", ran.stderr);
}

/// Regression: the event whose first sample was the earliest was used: 10 page faults instead of 57 samples
/// of cpu-clock.
#[test]
fn the_event_is_the_first_of_the_recording_and_not_of_the_samples() {
    for (name, samples) in [("several.p61", 57), ("several.p73", 55)] {
        let path = Fixture::new(&format!("recorded/{name}.data")).path;
        let ran = perfx(args!["export", "folded", "--weight", "samples", &path]);
        let sum: u64 =
            ran.text().lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, samples, "{name}: {ran:?}");
    }
}

/// Each recording had an event of its own, so that numbers of page faults and nanoseconds of cpu-clock were
/// added up.
#[test]
fn several_recordings_show_the_same_event() {
    let path = |name: &str| Fixture::new(&format!("recorded/{name}.data")).path;
    let (clock, modified, faults) = (path("several.p61"), path("modifiers.p61"), path("addresses.p61"));
    let ran = perfx(args!["export", "folded", &clock, &modified]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("cpu-clock: 57 samples") && ran.stderr.contains("cpu-clock: 54 samples"),
        "{ran:?}"
    );
    for line in ["export folded", "export html", "export firefox", "diff --profile"] {
        let mut words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        words.extend([clock.clone().into(), faults.clone().into()]);
        let ran = perfx(words);
        assert_eq!(ran.code, Some(1), "{line}: {}", ran.stderr);
        let said =
            "has no samples of cpu-clock, the event chosen in the first recording, only of page-faults";
        assert!(ran.stderr.contains(said) && ran.stderr.contains("--event"), "{line}: {}", ran.stderr);
    }
}

/// perf report shows the sample's own address; lines had no frame, and neither had the other formats.
#[test]
fn a_sample_with_an_empty_call_chain_has_its_own_address_as_its_frame() {
    let folder = temp();
    let input = folder.path().join("in.data");
    let mut maker = Maker::new(&input, &[event(PLAIN | st::CALLCHAIN, Vec::new())]);
    maker.mmap(7, 0x10_0000, 0x1_0000, "/bin/prog");
    let words = [0x10_3000, 7 << 32 | 7, 2000, 0].map(u64::to_le_bytes);
    maker.writer.write_parts(RecordType::SAMPLE, USER, &[words.as_flattened()]).unwrap();
    maker.writer.finish().unwrap();
    let export = |format: &str| perfx(args!["export", format, "--foreign", "-o", "-", input]).done().unwrap();
    assert_eq!(export("folded").text(), ":7;[prog] 1000\n");
    assert!(export("svg").text().contains("[prog]"));
    let profile = crate::pprof::profile(&export("pprof").stdout);
    assert_eq!(profile.sample[0].location_id.len(), 1);
    let profile = crate::firefox::profile(&export("firefox").stdout);
    assert_eq!(profile["threads"][0]["samples"]["stack"][0], 0);
}
