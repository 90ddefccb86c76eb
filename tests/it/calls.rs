//! `list functions --itrace` and the exports with `--itrace`: the calls of a trace are those of its truth,
//! and their times those that perf shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use perfx_format::read::Recording;
use perfx_passes::{Apart, DecodedTrace, IdOptions, Itrace};
use perfx_pipeline::{Job, OutputForm, Pass};
use serde_json::Value as Json;
use symbols::{ElfFile, Symbols};

use crate::args;
use crate::firefox::profile;
use crate::promises::temp_files;
use crate::snapshots::same;
use crate::stats::conforms;
use crate::support::{Ran, perfs, perfx, root, temp};

/// A folder with the programs of the recordings; `loop` has symbols.
pub(crate) fn named_root() -> tempfile::TempDir {
    let folder = temp();
    let programs = folder.path().join("opt/perfx/trace");
    fs::create_dir_all(&programs).unwrap();
    let data = root().join("tests/data/trace");
    for program in ["halve", "small64", "signal64", "vmlinux", "vmlinux64"] {
        fs::copy(data.join("root/opt/perfx/trace").join(program), programs.join(program)).unwrap();
    }
    fs::copy(data.join("loop-symbols"), programs.join("loop")).unwrap();
    folder
}

pub(crate) fn data(name: &str) -> PathBuf {
    root().join("tests/data/trace").join(name).with_extension("data")
}

/// The output of `list functions --itrace`.
fn list(name: &str, programs: &Path, more: &[&str]) -> (Ran, Vec<Json>) {
    let args = args!["list", "functions", "--itrace", "--json", "--foreign", "--root", programs, data(name)];
    let ran = perfx([&args[..], &more.iter().map(Into::into).collect::<Vec<_>>()].concat());
    let document: Json =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{name}: {}", ran.stderr));
    assert!(conforms("list-functions", &document).is_ok(), "{name}");
    assert_eq!(document["what"], "traced-functions");
    let rows = document["rows"].as_array().unwrap().clone();
    (ran, rows)
}

fn number(row: &Json, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| row[field].as_str().unwrap().parse().unwrap())
}

/// For each function of a list a number.
fn column(rows: &[Json], field: &str) -> BTreeMap<String, u64> {
    let name = |row: &Json| row["function"].as_str().unwrap().to_owned();
    rows.iter().map(|row| (name(row), number(row, field))).filter(|(_, number)| *number > 0).collect()
}

struct Functions(Symbols);

impl Functions {
    fn of(program: &Path) -> Functions {
        Functions(Symbols::new(ElfFile::read(program).unwrap().symbols))
    }

    /// The name and the start; of code without a symbol, the name of the program.
    fn at(&self, address: u64) -> (String, u64) {
        match self.0.find(address) {
            Some(symbol) => (String::from_utf8_lossy(&symbol.name).into_owned(), symbol.start),
            None => ("[loop]".to_owned(), 0),
        }
    }
}

/// A branch that was taken; 0 where tracing begins and ends.
struct Taken {
    from: u64,
    to: u64,
    kind: String,
}

fn truth(name: &str) -> Vec<Taken> {
    let text = fs::read_to_string(data(name).with_extension("truth")).unwrap();
    let place = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let branches = words.filter(|words| words.len() == 5 && words[0] != "#");
    branches
        .map(|words| Taken { from: place(words[0]), to: place(words[1]), kind: words[2].into() })
        .collect()
}

/// The number of calls of each function: by a call, by a jump to its start from another function, and in
/// other ways, such as by the kernel, which calls handlers of signals.
fn true_calls(name: &str, functions: &Functions) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for Taken { from, to, kind } in truth(name).iter().filter(|taken| taken.to > 0) {
        let (function, start) = functions.at(*to);
        let is_call = match kind.as_str() {
            "call" | "call*" => true,
            "jmp" | "jmp*" => *to == start && functions.at(*from).1 != start,
            "start" | "ret" => *to == start,
            _ => false,
        };
        *calls.entry(function).or_default() += u64::from(is_call);
    }
    calls.retain(|_, calls| *calls > 0);
    calls
}

#[test]
fn the_calls_of_each_function_are_those_of_the_truth() {
    let folder = named_root();
    let programs = folder.path();
    let functions = Functions::of(&programs.join("opt/perfx/trace/loop"));
    for name in ["user", "noret", "times", "ptwrite", "defer", "switch"] {
        let (ran, rows) = list(name, programs, &[]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        let mut found = column(&rows, "calls");
        assert!(found.remove("[untraced]").is_some_and(|count| count > 2), "{name}");
        let expected = true_calls(name, &functions);
        assert!(expected["leaf"] > 40 && expected["deep"] > 50, "{expected:?}");
        assert_eq!(found, expected, "{name}");
    }
    // A program without symbols is one function.
    for name in ["etm-user", "etm-raw", "etm-stack", "etm-ete", "etm-ids"] {
        let (ran, rows) = list(name, programs, &[]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        let is_call = |taken: &&Taken| taken.kind.starts_with("call") && taken.to > 0;
        let expected = truth(name).iter().filter(is_call).count() as u64;
        assert_eq!(column(&rows, "calls")["[small64]"], expected, "{name}");
    }
}

/// A function that has not returned: its start, its call, and the time.
struct Open {
    function: String,
    from: u64,
    since: u64,
}

/// The time from each call of a function to its return, as perf shows calls and returns: the sum, with calls
/// of itself as part of the outermost one, and those of all calls, ascending. Functions that did not return
/// are left out.
fn times(script: &str, functions: &Functions) -> BTreeMap<String, (u64, Vec<u64>)> {
    let (mut sums, mut unknown) = (BTreeMap::<String, (u64, Vec<u64>)>::new(), BTreeSet::new());
    let mut threads: BTreeMap<String, Vec<Open>> = BTreeMap::new();
    for line in script.lines() {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "=>").collect();
        let [tid, time, .., from, to] = words[..] else { continue };
        let kind = words[2..words.len() - 2].join(" ");
        let place = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (from, to) = (place(from), place(to));
        let time: u64 = time.trim_end_matches(':').replace('.', "").parse().unwrap();
        let open = threads.entry(tid.to_owned()).or_default();
        if to == 0 || from == 0 {
            continue;
        }
        if kind.contains("call") {
            open.push(Open { function: functions.at(to).0, from, since: time });
        } else if kind.contains("return")
            && let Some(at) = open.iter().rposition(|open| (open.from + 1..open.from + 16).contains(&to))
        {
            unknown.extend(open.drain(at + 1..).map(|lost| lost.function));
            let Open { function, since, .. } = open.pop().unwrap();
            let is_outermost = open.iter().all(|open| open.function != function);
            let (sum, all) = sums.entry(function).or_default();
            *sum += if is_outermost { time - since } else { 0 };
            all.push(time - since);
        } else {
            // ptmake.py lets an instruction return that is preceded by a signal.
            unknown.extend(open.drain(..).map(|open| open.function));
        }
    }
    let left = threads.into_values().flatten().map(|open| open.function);
    unknown.extend(left);
    unknown.insert("[loop]".to_owned());
    sums.retain(|function, (sum, _)| !unknown.contains(function) && *sum > 0);
    sums.values_mut().for_each(|(_, all)| all.sort_unstable());
    sums
}

#[test]
fn the_times_of_functions_are_those_between_the_calls_and_returns_of_perf() {
    let folder = named_root();
    let functions = Functions::of(&folder.path().join("opt/perfx/trace/loop"));
    for perf in perfs(&["perf-new"]) {
        for name in ["user", "times", "switch"] {
            let options = ["--itrace=cr", "--ns", "-F", "tid,time,flags,ip,addr"];
            let script = perf.script(&data(name), folder.path(), &options).text();
            let expected = times(&script, &functions);
            // A function that is the target of jumps is also called without a call.
            let jumped: BTreeSet<String> = truth(name)
                .iter()
                .filter(|taken| taken.kind.starts_with("jmp") && functions.at(taken.to).1 == taken.to)
                .map(|taken| functions.at(taken.to).0)
                .collect();
            let (_, rows) = list(name, folder.path(), &[]);
            let found = column(&rows, "total_ns");
            let mut compared = 0;
            for (function, (time, all)) in expected.iter().filter(|(name, _)| !jumped.contains(*name)) {
                assert_eq!(found.get(function), Some(time), "{name}: {function}");
                let row = rows.iter().find(|row| row["function"] == **function).unwrap();
                let durations = |field: &str| number(&row["durations"], field);
                assert_eq!(durations("calls"), all.len() as u64, "{name}: {function}");
                let [sum, off_cpu] = [all.iter().sum::<u64>(), durations("off_cpu_ns")];
                assert_eq!(durations("mean_ns"), (sum - off_cpu) / all.len() as u64, "{name}: {function}");
                if off_cpu == 0 {
                    assert_eq!(durations("max_ns"), *all.last().unwrap(), "{name}: {function}");
                    for (field, percent) in [("median_ns", 50), ("p99_ns", 99)] {
                        let exact = all[(all.len() * percent).div_ceil(100) - 1];
                        let found = durations(field);
                        assert!(found.abs_diff(exact) * 100 <= exact, "{name}: {function}: {found} {exact}");
                    }
                }
                compared += 1;
            }
            assert!(compared > 4, "{name}: {expected:?}");
        }
    }
}

/// The time, the names of the stack, innermost first, and the duration, ns.
pub(crate) type Change = (u64, Vec<String>, u64);

/// The samples of each thread of a profile.
pub(crate) fn changes(profile: &Json) -> Vec<Vec<Change>> {
    let shared = &profile["shared"];
    let ns = |ms: &Json| (ms.as_f64().unwrap() * 1e6).round() as u64;
    let index = |value: &Json| value.as_u64().map(|index| index as usize);
    let stack = |number: &Json| {
        let (mut names, mut next) = (Vec::new(), index(number));
        while let Some(at) = next {
            let frame = index(&shared["stackTable"]["frame"][at]).unwrap();
            let function = index(&shared["frameTable"]["func"][frame]).unwrap();
            let name = index(&shared["funcTable"]["name"][function]).unwrap();
            names.push(shared["stringArray"][name].as_str().unwrap().to_owned());
            next = index(&shared["stackTable"]["prefix"][at]);
        }
        names
    };
    let threads = profile["threads"].as_array().unwrap();
    let of_thread = |thread: &Json| {
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "tracing-ms");
        let mut now = 0.0;
        let of = |at: usize| {
            now += samples["timeDeltas"][at].as_f64().unwrap();
            ((now * 1e6).round() as u64, stack(&samples["stack"][at]), ns(&samples["weight"][at]))
        };
        (0..samples["length"].as_u64().unwrap() as usize).map(of).collect()
    };
    threads.iter().map(of_thread).collect()
}

#[test]
fn a_profile_has_a_sample_at_each_change_which_lasts_until_the_next() {
    let folder = named_root();
    for name in ["times", "switch", "threads", "etm-virtual"] {
        let args = args![
            "export",
            "firefox",
            "--itrace",
            "--foreign",
            "--root",
            folder.path(),
            data(name),
            "-o",
            "-"
        ];
        let ran = perfx(args);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        let (profile, (_, rows)) = (profile(&ran.stdout), list(name, folder.path(), &[]));
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        for thread in changes(&profile) {
            for pair in thread.windows(2) {
                let ((time, stack, weight), (next, ..)) = (&pair[0], &pair[1]);
                // Nothing is known between two pieces of a trace.
                if let Some(function) = stack.first() {
                    assert_eq!(time + weight, *next, "{name}");
                    *own.entry(function.clone()).or_default() += weight;
                }
            }
            // Nothing is known after the last one.
            assert_eq!(
                thread.last().map(|(_, stack, weight)| (stack.len(), *weight)),
                Some((0, 0)),
                "{name}"
            );
        }
        // Code without symbols has the names of its addresses.
        let found = column(&rows, "self_ns");
        let named = found.iter().filter(|(function, _)| {
            !["[halve]", "[loop]", "[small64]", "[signal64]"].contains(&&***function)
        });
        for (function, time) in named {
            assert_eq!(own.get(function), Some(time), "{name}: {function}");
        }
        assert_eq!(own.values().sum::<u64>(), found.values().sum::<u64>(), "{name}");
    }
}

#[test]
fn a_window_has_the_calls_in_it_and_parts_of_those_that_cross_its_ends() {
    let folder = named_root();
    let all = |more: &[&str]| list("times", folder.path(), more).1;
    let sum = |rows: &[Json], field: &str| column(rows, field).values().sum::<u64>();
    let whole = all(&[]);
    let windows = ["1.000001,1.000003", "1.000003,1.000005", ",1.000001", "1.000005,"];
    let parts = windows.map(|window| all(&["--time", window]));
    // The speed of the core is known less exactly in a part of a trace: times inside of the last one differ
    // by 1 ns.
    assert_eq!([0, 1, 2].map(|part| sum(&parts[part], "self_ns")), [2000, 2000, 1000]);
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for (function, count) in parts.iter().flat_map(|rows| column(rows, "calls")) {
        *calls.entry(function).or_default() += count;
    }
    assert_eq!(calls, column(&whole, "calls"));
    // For functions that continue after the window, the callers are known from returns.
    let both = all(&["--around", "1.000003,2us"]);
    assert_eq!(sum(&both, "self_ns"), 2201);
}

#[test]
fn calls_are_selected_by_their_tasks_and_their_code() {
    let folder = named_root();
    let whole = list("switch", folder.path(), &[]).1;
    let parts = ["1000", "1001"].map(|pid| list("switch", folder.path(), &["--pid", pid]).1);
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (function, count) in parts.iter().flat_map(|rows| column(rows, "self_ns")) {
        *sums.entry(function).or_default() += count;
    }
    assert!(parts.iter().all(|rows| rows.len() > 5));
    assert_eq!(sums, column(&whole, "self_ns"));
    let whole = list("times", folder.path(), &[]).1;
    let deep = list("times", folder.path(), &["--symbol", "deep"]).1;
    assert_eq!(column(&deep, "self_ns").values().sum::<u64>(), column(&whole, "total_ns")["deep"]);
    let leaf = list("times", folder.path(), &["--leaf", "leaf"]).1;
    assert_eq!(column(&leaf, "self_ns").into_keys().collect::<Vec<_>>(), ["leaf"]);
    let (ran, none) = list("times", folder.path(), &["--symbol", "nothing"]);
    assert!(
        none.is_empty() && ran.stderr.contains("nothing in the recording matches --symbol"),
        "{}",
        ran.stderr
    );
}

/// The output of `list calls`.
fn calls(name: &str, programs: &Path, more: &[&str]) -> Json {
    let args = args!["list", "calls", "--json", "--foreign", "--root", programs, "-i", data(name)];
    let ran = perfx([&args[..], &more.iter().map(Into::into).collect::<Vec<_>>()].concat());
    let document = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{name}: {}", ran.stderr));
    conforms("list-calls", &document).unwrap();
    document
}

#[test]
fn the_calls_of_a_function_are_listed_by_their_durations() {
    let folder = named_root();
    let rows = list("times", folder.path(), &[]).1;
    for function in ["leaf", "deep", "printf_core"] {
        let row = rows.iter().find(|row| row["function"] == function).unwrap();
        let found = calls("times", folder.path(), &[function]);
        assert_eq!((&found["durations"], &found["functions"][0]), (&row["durations"], &Json::from(function)));
        let all: u64 = found["histogram"].as_array().unwrap().iter().map(|row| number(row, "calls")).sum();
        assert_eq!(all + number(&found, "unfinished"), number(row, "calls"));
        let slowest = found["slowest"].as_array().unwrap();
        let lasted: Vec<u64> = slowest.iter().map(|call| number(call, "duration_ns")).collect();
        assert_eq!((lasted.len() as u64, lasted[0]), (all.min(10), number(&row["durations"], "max_ns")));
        assert!(lasted.is_sorted_by(|longer, other| longer >= other), "{lasted:?}");
    }
    // The slowest call called itself once, and a leaf.
    let found = calls("times", folder.path(), &["deep", "--head", "1"]);
    let called = &found["slowest"][0]["called"];
    assert_eq!([&called[0]["function"], &called[1]["function"]], ["deep", "leaf"]);
    assert_eq!(found["slowest"].as_array().unwrap().len(), 1);
    // The time off the CPU is not part of durations.
    let rows = list("switch", folder.path(), &[]).1;
    let sw = &rows.iter().find(|row| row["function"] == "sw").unwrap()["durations"];
    let found = calls("switch", folder.path(), &["sw"]);
    let slowest = found["slowest"].as_array().unwrap();
    assert_eq!(slowest.iter().map(|call| number(call, "off_cpu_ns")).max(), Some(number(sw, "off_cpu_ns")));
    assert!(number(sw, "off_cpu_ns") > 2000 && number(&slowest[0], "duration_ns") < 2000, "{found}");
}

#[test]
fn a_span_lasts_from_a_call_of_one_function_to_that_of_another() {
    let folder = named_root();
    let spans = |more: &[&str]| {
        let found = calls("times", folder.path(), &[&["--between"], more].concat());
        let count = found["durations"]["calls"].as_u64().unwrap_or(0);
        (count, number(&found, "unfinished"), found)
    };
    // Each of the 100 calls of the leaf begins a span, which the next one ends.
    let (finished, unfinished, _) = spans(&["leaf", "leaf"]);
    assert_eq!((finished, unfinished), (99, 1));
    // Until the return, a span is a call.
    let row = list("times", folder.path(), &[]).1.into_iter().find(|row| row["function"] == "leaf").unwrap();
    let (_, unfinished, found) = spans(&["leaf", "leaf", "--until-return"]);
    assert_eq!((&found["durations"], unfinished), (&row["durations"], 0));
    let (finished, _, found) = spans(&["main", "printf_core"]);
    assert_eq!((finished, number(&found["slowest"][0], "time_ns")), (1, 1_000_000_640));
    assert_eq!(number(&found["slowest"][0], "duration_ns"), 1_000_005_375 - 1_000_000_640);
}

#[test]
fn calls_that_are_not_in_the_trace_are_reported() {
    let folder = named_root();
    let run = |more: &[&str]| {
        let args = args!["list", "calls", "--foreign", "--root", folder.path(), "-i", data("times")];
        perfx([&args[..], &more.iter().map(Into::into).collect::<Vec<_>>()].concat())
    };
    let ran = run(&["leav"]);
    assert!(ran.stderr.contains("no function has the name `leav`; similar names: `leaf`"), "{}", ran.stderr);
    assert_eq!((ran.code, ran.stdout.len()), (Some(3), 0));
    let ran = run(&["lea"]);
    assert!(
        ran.stderr.contains("`lea` is only a part of the name `leaf`; give the whole name"),
        "{}",
        ran.stderr
    );
    let ran = run(&["_start_c"]);
    assert!(ran.stderr.contains("no call began and ended in the trace; "), "{}", ran.stderr);
    assert_eq!((ran.code, ran.stdout.len()), (Some(3), 0));
    assert_eq!(run(&[]).code, Some(2));
    assert_eq!(run(&["leaf", "--callers", "main"]).code, Some(2));
    assert_eq!(perfx(args!["list", "events", "--between", "a", "b", data("times")]).code, Some(2));
}

#[test]
fn calls_of_a_trace_without_times_have_no_durations() {
    let root = data("times").parent().unwrap().join("root");
    for words in [&["functions", "--itrace"][..], &["calls", "[small64]"]] {
        let files = args!["--foreign", "--root", root, "-i", data("etm-times")];
        let words: Vec<std::ffi::OsString> = ["list"].iter().chain(words).map(Into::into).collect();
        let ran = perfx([&words[..], &files].concat());
        assert!(ran.stderr.contains("no times of their own"), "{}", ran.stderr);
        assert_eq!(ran.code, Some(3));
        assert!(!ran.text().contains("mean ns"), "{}", ran.text());
    }
}

#[test]
fn functions_of_a_trace_are_listed_in_columns() {
    let folder = named_root();
    let args = args![
        "list",
        "functions",
        "--itrace",
        "--foreign",
        "-q",
        "--head",
        "8",
        "--root",
        folder.path(),
        data("times")
    ];
    same("calls", "functions", &perfx(args).done().unwrap().text());
}

#[test]
fn recordings_without_calls_are_refused() {
    let samples = root().join("tests/data/recorded/fp.p61.data");
    let ran = perfx(args!["list", "functions", "--itrace", samples]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("has no trace of Intel PT or CoreSight"), "{}", ran.stderr);
    let ran = perfx(args!["list", "functions", "--itrace", "--event", "branches", data("user")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let ran = perfx(args!["list", "dsos", "--itrace", data("user")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn folded_stacks_and_profiles_of_calls_add_up_to_the_list() {
    let programs = named_root();
    let (_, rows) = list("times", programs.path(), &[]);
    let own: u64 = column(&rows, "self_ns").values().sum();
    let run = |export: &[&str]| {
        let args = args!["export", "--itrace", "-q", "--foreign", "--root", programs.path(), data("times")];
        let (command, args) = args.split_first().unwrap();
        let export = export.iter().map(Into::into).collect::<Vec<_>>();
        perfx([std::slice::from_ref(command), &export[..1], args, &export[1..]].concat())
    };
    let folded = run(&["folded", "-o", "-"]).text();
    let counts = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    assert_eq!((counts.sum::<u64>(), folded.contains(";main;deep;deep")), (own, true));
    let picture = run(&["svg", "-o", "-"]).text();
    assert!(picture.contains("<title>leaf (") && !picture.contains("too narrow"), "{picture}");
    let profile = crate::pprof::profile(&run(&["pprof", "-o", "-"]).stdout);
    let sums = profile.sample.iter().map(|sample| sample.value[1] as u64);
    assert_eq!((sums.sum::<u64>(), profile.sample_type.len()), (own, 2));
}

#[test]
fn the_progress_of_decoding_counts_the_bytes_of_the_trace() {
    for name in ["times", "cpus", "etm-cpus"] {
        let (apart, ids) = (Apart::default(), IdOptions::default());
        let passes: Vec<Box<dyn Pass>> = vec![Box::new(Itrace::calls(ids).apart(apart.clone()))];
        let recording = Recording::open(data(name)).unwrap();
        let job = Job { recording, passes, threads: 1, temp_files: temp_files() };
        let (recording, _) = job.into_recording(OutputForm::File).unwrap();
        let mut decoded = DecodedTrace::new(&apart, recording);
        let progress = decoded.progress();
        assert!(decoded.by_ref().map(|rows| rows.count()).sum::<usize>() > 0, "{name}");
        let (done, total) = (progress.done(), progress.total());
        // The frames of CoreSight are not decoded.
        assert!(done <= total && done > total / 2, "{name}: {done} of {total}");
    }
}
