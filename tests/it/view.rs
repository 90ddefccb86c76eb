//! `perfx view`: its lines are those of `perf script` with the same fields, for every recording.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use perfx_format::record::cpumode::USER;
use perfx_format::sample::{Branch, BranchFlags, NewSample};
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, RecordType as T, sample_type as st};
use regex::Regex;
use serde_json::Value as Json;

use crate::folded::INLINED;
use crate::maker::{Maker, PLAIN, event, tracepoint, tracing_data};
use crate::snapshots::same;
use crate::stats::conforms;
use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, each_fixture, perf, perfs, perfx, perfx_command, perfx_with, recorded,
    root, run, same_lines, skipped, temp, workloads,
};
use crate::{args, tiers};

fn view(input: &Path, more: &[&str]) -> Ran {
    let mut command = perfx_command();
    command.args(["view", "--foreign"]).arg(input).args(more);
    run(&mut command, Stdin::Null)
}

/// Recordings that perf shows differently, each with the reason.
const OTHER: &[(&str, &str)] = &[
    ("cut-", "perf reads no cut recording as perfx does"),
    ("dwarf", "tests/it/callchain.rs compares unwound stacks"),
    ("z-straddle", "the same"),
    ("mixed-callgraph", "the same"),
    ("recorded/stat", "there are no samples"),
    ("pipe-stat", "the same"),
    ("name-newline", "a line feed in a name breaks perf's lines"),
    ("bpf-output", "perf shows CPU -1 of an event that does not record it if an earlier one does"),
];

/// Lists of fields; perf refuses a list if the events do not have all of its fields, and then shows nothing.
const FIELDS: &[&str] = &[
    "comm,tid,time,event",
    "comm,pid,tid,time,event,period,ip,sym,symoff,dso",
    "pid,cpu,time,event,ip",
    "comm,pid,ip,dso",
    "event,ip,sym",
    "comm,tid,event,addr,ip,dso,weight,phys_addr,data_page_size,code_page_size",
    "tid,event,addr",
    "comm,cgroup,ip,sym",
    "comm,misc,time,event",
    "tid,tod,time,event",
    "ip,sym,dso,dsoff",
    "comm,ins_lat,retire_lat,ip",
];

/// Differences of perf 6.1: its columns of pids are narrower, and user addresses in call chains are offsets.
fn as_in_6_1(text: &str) -> String {
    static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\t +[0-9a-f]+").unwrap());
    static SPACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(" +").unwrap());
    let text = ADDRESS.replace_all(text, "\tADDRESS");
    SPACES.replace_all(&text, " ").replace("\n ", "\n").trim_start_matches(' ').to_owned()
}

static VDSO: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"/tmp/perf-vdso\.so-\w{6}").unwrap());
static KERNEL_OFFSET: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(\[kernel[^ ]*\])\+0x[0-9a-f]+").unwrap());

tiers!(lines_are_those_of_perf_script_for_every_recording);
fn lines_are_those_of_perf_script_for_every_recording(tier: Tier) {
    let Some(root) = workloads() else { return };
    let nowhere = temp();
    for perf in perfs(&["perf", "perf-new"]) {
        let compared = AtomicUsize::new(0);
        each_fixture(&tier.of(recorded()), |fixture| {
            let other = OTHER.iter().any(|(part, _)| fixture.name.contains(part));
            if other || !perf.can_read(&fixture.path) {
                return Ok(());
            }
            let ways: Vec<_> =
                FIELDS.iter().flat_map(|fields| [(nowhere.path(), fields), (root, fields)]).collect();
            for &(root, fields) in tier.some_of(fixture, &ways, 4) {
                // For pipe data, perf shows call chains whatever the fields, and 6.1 symbols, too.
                let is_pipe = fixture.name.contains("pipe");
                if is_pipe && !fields.contains("sym") {
                    continue;
                }
                let theirs = perf.script(&fixture.path, root, &["-F", fields]);
                if theirs.code != Some(0) {
                    continue;
                }
                let ours =
                    view(&fixture.path, &["--no-inline", "--root", root.to_str().unwrap(), "-F", fields]);
                let (ours, theirs) = (ours.text(), theirs.text());
                compared.fetch_add(usize::from(!ours.is_empty()), Ordering::Relaxed);
                let (ours, theirs) = match perf.name {
                    "perf" => (as_in_6_1(&ours), as_in_6_1(&theirs)),
                    _ => (ours, theirs),
                };
                // With offsets, perf shows the name of its copy of the vdso; and without symbols of the
                // kernel, offsets in it.
                let theirs = VDSO.replace_all(&theirs, "[vdso]");
                let theirs = KERNEL_OFFSET.replace_all(&theirs, "$1");
                let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
                same_lines(&format!("{} -F {fields}", perf.name), &lines(&ours), &lines(&theirs))?;
            }
            Ok(())
        });
        assert!(
            compared.load(Ordering::Relaxed) > tier.pick(15, 500),
            "{}: {compared:?} comparisons",
            perf.name
        );
    }
}

/// perf pads the text with blanks, up to the length of the longest one so far.
#[test]
fn sources_of_data_are_shown_in_the_words_of_perf() {
    static PADDED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(BLK +\S+) +").unwrap());
    let folder = temp();
    let root = folder.path();
    let decoded = ["operations", "switch"].map(|name| {
        let (spe, out) = (Fixture::new(&format!("crafted/spe-{name}.data")), root.join(name));
        let ran = perfx(args!["inject", "--itrace", "--strip", spe.path, "-o", out]);
        assert!(matches!(ran.code, Some(0 | 3)), "{name}: {}", ran.stderr);
        (name, out)
    });
    let recorded = [
        "recorded/addresses.p73.data",
        "crafted/be-addresses.p61.data",
        "crafted/sample-words-le.data",
        "crafted/sample-words-be.data",
    ];
    let recorded = recorded.map(|name| (name, Fixture::new(name).path));
    for perf in perfs(&["perf-new"]) {
        for (name, path) in decoded.iter().chain(&recorded) {
            let fields = ["-F", "comm,tid,data_src,ip,sym"];
            let theirs = perf.script(path, root, &fields);
            assert_eq!(theirs.code, Some(0), "{name}: {}", theirs.stderr);
            let ours =
                view(path, &[&["--no-inline", "--root", root.to_str().unwrap()], &fields[..]].concat());
            let (ours, theirs) = (ours.text(), theirs.text());
            assert!(ours.contains("|OP "), "{name}: {ours}");
            assert_eq!(PADDED.replace_all(&ours, "$1 "), PADDED.replace_all(&theirs, "$1 "), "{name}");
        }
    }
}

/// Parts of samples that no perf here records.
#[test]
fn guests_and_latencies_are_shown_as_by_perf() {
    let nowhere = temp();
    for perf in perfs(&["perf-new"]) {
        for (name, fields, part) in [
            ("guest-le", "machine_pid,vcpu,comm,misc,time,ip", "VM:  555 VCPU:000 "),
            ("guest-be", "vcpu,misc,time", "VCPU:000 KGg "),
            ("sample-weight-struct-le", "ins_lat,retire_lat,weight", "           30600\n"),
            ("sample-weight-struct-be", "comm,ins_lat,ip", " 21862 "),
            ("sample-branch-le", "brstack,dso,dsoff", "/burn+0x1100)/"),
            ("sample-branch-be", "brstacksym,dso,dsoff", "/burn+0x1100)/"),
        ] {
            let path = Fixture::new(&format!("crafted/{name}.data")).path;
            let theirs = perf.script(&path, nowhere.path(), &["-F", fields]);
            let ours = view(&path, &["--root", nowhere.path().to_str().unwrap(), "-F", fields]).text();
            assert!(ours.contains(part), "{name}: {ours}");
            assert_eq!(ours, theirs.text(), "{name} -F {fields}");
        }
    }
}

#[test]
fn registers_have_the_names_and_places_of_perf() {
    let folder = temp();
    let root = folder.path();
    let all = [
        ("recorded/allbits.p61.data", "comm,ip,iregs,uregs"),
        ("recorded/allbits.p73.data", "comm,ip,iregs,uregs,phys_addr"),
        ("recorded/user-regs.p61.data", "comm,tid,uregs"),
        ("recorded/user-regs-few.p73.data", "comm,tid,ip,uregs"),
        ("recorded/intr-regs.p61.data", "comm,ip,iregs"),
        ("recorded/compat-regs.p61.data", "comm,ip,uregs"),
        ("crafted/sample-regs-le.data", "comm,ip,iregs,uregs"),
        // The registers with which stacks are unwound were refused as if they were not recorded.
        ("recorded/dwarf.p61.data", "comm,tid,uregs"),
    ];
    let unwound =
        view(&Fixture::new("recorded/dwarf.p61.data").path, &["--foreign", "-F", "ip,uregs"]).text();
    assert!(unwound.contains(" ABI:2 ") && unwound.contains(" SP:0x"), "{unwound}");
    for perf in perfs(&["perf-new"]) {
        for (name, fields) in all {
            let path = Fixture::new(name).path;
            let theirs = perf.script(&path, root, &["-F", fields]);
            assert_eq!(theirs.code, Some(0), "{name}: {}", theirs.stderr);
            let ours = view(&path, &["--no-inline", "--root", root.to_str().unwrap(), "-F", fields]);
            assert!(ours.text().contains(" ABI:"), "{name}: {}", ours.text());
            assert_eq!(ours.text(), theirs.text(), "{name}");
        }
    }
}

tiers!(lines_do_not_depend_on_form_or_threads);
fn lines_do_not_depend_on_form_or_threads(tier: Tier) {
    let folder = temp();
    let names = [
        "recorded/fp.p61.data",
        "recorded/group-read.p61.data",
        "recorded/addresses.p73.data",
        "recorded/fp-defer.p73.data",
        "recorded/off-cpu.p61.data",
    ];
    for name in tier.first(1, &names) {
        let large = folder.path().join("large.data");
        fs::write(&large, Fixture::new(name).repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
        let expected = view(&large, &["-@1"]).stdout;
        assert!(view(&large, &["-@4"]).stdout == expected, "{name} on four threads");
        let lines = view(&large, &["-@1", "--json"]).stdout;
        assert!(view(&large, &["-@3", "--json"]).stdout == lines, "JSON of {name} on three threads");
        let count = view(&large, &["--count"]).text();
        let head = view(&large, &["--head", "3"]).stdout;
        assert!(expected.starts_with(&head) && !head.is_empty());
        let samples = view(&large, &["-F", "event"]).text();
        // An empty line stands for each call chain, which perf prints only with `ip`.
        assert_eq!(samples.lines().count().to_string(), count.trim_end(), "{name}");
        let small = view(&Fixture::new(name).path, &[]).stdout;
        let piped = perfx(args!["copy", Fixture::new(name).path, "--to", "pipe"]).stdout;
        let pipe = perfx_with(Stdin::Pipe(&piped), args!["view", "--foreign", "-"]);
        assert!(pipe.stdout == small, "{name} from a pipe");
    }
}

/// Regression: only the times of the recording's samples were shown, and nothing for a recording without any.
#[test]
fn a_view_without_samples_says_so() {
    let plain = Fixture::new("recorded/plain.p61.data").path;
    for options in [&["--time", "1,2"][..], &["--time", "1,2", "--count"], &["--pid", "1"]] {
        let ran = view(&plain, options);
        assert_eq!(ran.code, Some(3), "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("perfx: warning: selected 0 of "), "{options:?}: {}", ran.stderr);
    }
    let empty = Fixture::new("recorded/empty.p61.data").path;
    for options in [&[][..], &["--pid", "1"]] {
        let ran = view(&empty, options);
        assert_eq!(ran.code, Some(3), "{options:?}: {}", ran.stderr);
        assert_eq!(ran.stderr, "perfx: warning: the recording has no samples\n", "{options:?}");
    }
    // perf decodes a trace by default.
    let traced = root().join("tests/data/trace/user.data");
    let ran = view(&traced, &[]);
    let what = "perfx: warning: the recording has no samples, but a hardware trace of Intel PT: decode it with --itrace (inject, \
                view, list functions, export html, export firefox)\n";
    assert_eq!((ran.code, &*ran.stderr), (Some(3), what));
    let overview = perfx(args!["overview", traced]);
    assert!(overview.text().contains(" --itrace\nperfx view "), "{}", overview.text());
    let none = view(&plain, &["--head", "0"]);
    assert_eq!((none.code, none.stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_fields_of_lines_can_be_chosen() {
    let Some(root) = workloads() else { return };
    let say = |line: &str| {
        let (name, more) = line.split_once(' ').unwrap_or((line, ""));
        let more: Vec<&str> = more.split_whitespace().collect();
        let path = Fixture::new(&format!("recorded/{name}")).path;
        let ran = view(&path, &[&["--root", root.to_str().unwrap()], &more[..]].concat());
        let stderr = ran.stderr.replace(path.to_str().unwrap(), name);
        let text: String = ran.text().lines().take(8).map(|line| format!("{line}\n")).collect();
        format!("$ perfx view {line}\n{text}{stderr}(exit code {})\n", ran.code.unwrap())
    };
    let lines = [
        "fp.p73.data",
        "fp.p73.data -F -ip,+pid --ns --head 2",
        "tracepoint.p73.data --head 2",
        "addresses.p73.data -F comm,addr,sym,dso --head 2",
        "cgroups.p73.data -F tid,cgroup --head 2",
        "fp.p73.data --comm burn --time 40%-60% -F comm,time",
        "fp.p73.data --count",
        "fp.p73.data --count --head 2",
        "fp.p73.data -F cpu",
        "fp.p73.data -F tod",
        "fp.p73.data -F comm,callindent",
        "clock-realtime.p73.data --head 2 -F tod,time",
        "clock-realtime.p73.data --head 1 --json -F tod,misc,ip,dso,dsoff",
        "fp.p73.data -F comm,symbol",
        "fp.p73.data --event nothing",
        "fp.p73.data --json --head 2 --time 40%-",
        "tracepoint.p73.data --json --head 1",
        "addresses.p73.data --json -F comm,addr,sym,dso,phys_addr,data_page_size --head 1",
    ];
    same("view", "fields", &lines.map(say).join("\n"));
}

/// A fresh recording, with the symbols and inlined calls of this machine.
#[test]
fn inlined_calls_and_offsets_are_those_of_perf() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("inlined.c"), INLINED.replace("work(20000)", "work(300000)")).unwrap();
    let mut gcc = clean("gcc");
    gcc.args(["-O2", "-g", "-fno-omit-frame-pointer", "-o"]).args([path("inlined"), path("inlined.c")]);
    if workloads().is_none() || run(&mut gcc, Stdin::Null).code != Some(0) {
        return;
    }
    let Some(perf) = perfs(&["perf-new"]).pop() else { return };
    let (recording, program) = (path("perf.data"), path("inlined"));
    let record = args!["record", "-q", "-e", "cpu-clock:u", "-g", "-o", recording, program];
    if perf.run(Stdin::Null, record).code != Some(0) {
        skipped("perf record does not work here");
        return;
    }
    // For code without a line in a program that has lines, such as `_start` and `_init`, perf shows `:0` or `??:0` in
    // place of the file's name and the address.
    let no_line = Regex::new(r"^  (:0|\?\?:0|\S+\[[0-9a-f]+\])$").unwrap();
    let lines =
        |text: &str| text.lines().map(|line| no_line.replace(line, "  ?").into_owned()).collect::<Vec<_>>();
    for more in [&[][..], &["-F", "+srcline"], &["-F", "+srcline", "--no-inline"]] {
        let line = args!["script", "--symfs", "/", "-i", recording];
        let theirs = perf.run(Stdin::Null, line.into_iter().chain(more.iter().map(Into::into))).text();
        let ours = perfx(args!["view", recording].into_iter().chain(more.iter().map(Into::into))).text();
        let (inlined, with_lines) = (ours.contains("(inlined)"), ours.contains("\n  inlined.c:"));
        assert_eq!((inlined, with_lines), (!more.contains(&"--no-inline"), !more.is_empty()), "{ours}");
        same_lines("perf script", &lines(&ours), &lines(&theirs)).unwrap();
    }
}

#[test]
fn branch_stacks_are_those_of_perf() {
    let Some(perf) = perf("perf-new") else { return };
    let folder = temp();
    let mut attr = Attr::default();
    attr.sample_type = st::IP | st::TID | st::TIME | st::BRANCH_STACK;
    // PERF_SAMPLE_BRANCH_ANY; sample_id_all.
    (attr.branch_sample_type, attr.flags, attr.sample_period) = (1 << 3, 1 << 18, 1000);
    let event = Event::made(&attr, vec![1], Endian::Little);
    let made = folder.path().join("made.data");
    let mut writer = RecordingWriter::create(&made, &[event], Endian::Little).unwrap();
    // Each bit alone, and each kind of branch with each kind of speculation. perf has no name for fields
    // above.
    let bits = (0..26)
        .map(|bit| 1 << bit)
        .chain((0..64).map(|kinds| kinds << 20 | 1))
        .chain([1 << 33 | 1, 1 << 33 | 2])
        .chain((0..8).map(|kind| kind << 26 | 15 << 20));
    for (at, bits) in bits.enumerate() {
        let branch = Branch { from: 0x40_0000 + at as u64, to: 0, flags: BranchFlags(bits) };
        let sample = NewSample {
            cpumode: USER,
            ip: 1,
            time: at as u64,
            branches: [&[branch], &[branch]],
            ..NewSample::default()
        };
        writer.write(&sample.build(&attr, Endian::Little).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    // perf cannot read the others.
    let crafted =
        ["", "-counters", "-hw-index"].into_iter().flat_map(|what| ["le", "be"].map(|order| (what, order)));
    let crafted =
        crafted.map(|(what, order)| Fixture::new(&format!("crafted/sample-branch{what}-{order}.data")).path);
    for path in crafted.chain([made]) {
        for fields in ["ip,time,brstack", "ip,time,brstacksym", "dso,brstacksym", "brstack,brstacksym"] {
            let theirs = perf.script(&path, folder.path(), &["-F", fields]).text();
            let ours = view(&path, &["--root", folder.path().to_str().unwrap(), "-F", fields]).text();
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
            same_lines(path.to_str().unwrap(), &lines(&ours), &lines(&theirs)).unwrap();
        }
    }
}

#[test]
fn code_without_a_line_has_perfs_name_for_its_place() {
    let Some(root) = workloads() else { return };
    // The lines of frames in the kernel, and in programs without DWARF. perf also searches this machine for
    // others.
    let places = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.windows(2).filter(|pair| pair[0].starts_with('\t') && pair[1].starts_with("  "));
        let own = pairs.filter(|pair| pair[0].contains("kernel.kallsyms") || pair[0].contains("/work/"));
        own.map(|pair| pair.join("\n")).collect::<Vec<_>>()
    };
    for perf in perfs(&["perf-new"]) {
        for name in ["recorded/fp.p61.data", "recorded/fp.p73.data"] {
            let fixture = Fixture::new(name);
            let fields = ["-F", "ip,sym,dso,srcline"];
            let theirs = places(&perf.script(&fixture.path, root, &fields).text());
            let more = ["--no-inline", "--root", root.to_str().unwrap()];
            let ours = places(&view(&fixture.path, &[&more[..], &fields].concat()).text());
            assert!(ours.len() > 100, "{} places", ours.len());
            same_lines(name, &ours, &theirs).unwrap();
        }
    }
}

#[test]
fn the_stack_of_call_graph_lbr_is_that_of_the_kernel_and_the_calls_that_have_not_returned() {
    const SYSTEM: &str = "ffffffff81000100";
    let stacks: [&[&str]; 4] = [
        &["401158", "401200", "401300", "401400"],
        &[SYSTEM, "401150", "401200", "401300", "401400"],
        &["401158"],
        &[SYSTEM],
    ];
    let of_text = |text: &str| -> Vec<Vec<String>> {
        let stacks = text.split("\n\n").map(frames_of_text);
        stacks.filter(|stack| !stack.is_empty()).collect()
    };
    for endian in ["le", "be"] {
        let fixture = Fixture::new(&format!("crafted/sample-lbr-{endian}.data"));
        assert_eq!(of_text(&view(&fixture.path, &["-F", "ip"]).text()), stacks, "{endian}");
        let lines = view(&fixture.path, &["-F", "ip", "--json"]).text();
        for (line, stack) in lines.lines().zip(stacks) {
            let line: Json = serde_json::from_str(line).unwrap();
            let frames = line["frames"].as_array().unwrap().iter();
            let frames = frames.map(|frame| frame["ip"].as_str().unwrap().trim_start_matches("0x"));
            assert_eq!(frames.collect::<Vec<_>>(), stack, "{endian}");
        }
        // An export, and what selects by functions.
        let symbols = root().join("tests/data/unstripped");
        let folded = |more: &[&str]| {
            let line = args!["export", "folded", "--root", symbols, fixture.path];
            perfx(line.into_iter().chain(more.iter().map(Into::into))).done().unwrap().text()
        };
        let both = "burn;[burn];main;down;frame_dummy 1000000\n\
                    burn;[burn];main;down;frame_dummy;[[kernel.kallsyms]] 1000000\n";
        let alone = ["burn;[[kernel.kallsyms]] 1000000\n", "burn;frame_dummy 1000000\n"];
        assert_eq!(folded(&[]), [alone[0], both, alone[1]].concat(), "{endian}");
        assert_eq!(folded(&["--symbol", "main"]), both, "{endian}");
        // perf 7.3 repeats the kernel address as one of the process.
        let Some(perf) = perf("perf-new") else { continue };
        let mut theirs = of_text(&perf.script(&fixture.path, temp().path(), &["-F", "ip"]).text());
        assert_eq!(std::mem::replace(&mut theirs[1][1], "401150".to_owned()), SYSTEM);
        assert_eq!(theirs, stacks, "{endian}");
    }
}

/// The addresses of a text with the functions, offsets and DSOs after them.
fn frames_of_text(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Like [`frames_of_text`], for a line of JSON.
fn frames_of_json(line: &Json) -> Vec<String> {
    let shown = |frame: &Json| {
        let text = |name: &str| frame[name].as_str().unwrap_or("[unknown]").to_owned();
        let offset = frame["symoff"].as_str().map_or(String::new(), |offset| format!("+{offset}"));
        let ip = text("ip");
        let inlined = frame["inlined"].as_bool().unwrap();
        let behind = if inlined { "(inlined)".to_owned() } else { format!("({})", text("dso")) };
        format!("{} {}{offset} {behind}", ip.trim_start_matches("0x"), text("sym"))
    };
    line["frames"].as_array().unwrap().iter().map(shown).collect()
}

tiers!(lines_of_json_hold_what_the_text_shows_and_are_what_the_schema_says);
fn lines_of_json_hold_what_the_text_shows_and_are_what_the_schema_says(tier: Tier) {
    each_fixture(&tier.of(recorded()), |fixture| {
        // Text escapes special characters in names.
        if fixture.name.contains("newline") {
            return Ok(());
        }
        let lines = |more: &[&str]| -> Result<Vec<Json>, String> {
            let text = view(&fixture.path, &[&["-q", "--json"], more].concat()).text();
            let lines = text.lines().map(serde_json::from_str::<Json>);
            let lines: Vec<Json> = lines.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            lines.iter().try_for_each(|line| conforms("view", line))?;
            Ok(lines)
        };
        let all = lines(&[])?;
        let count = view(&fixture.path, &["-q", "--count"]).text();
        if count.trim() != all.len().to_string() && !(count.is_empty() && all.is_empty()) {
            return Err(format!("{} lines of {}", all.len(), count.trim()));
        }
        let text = view(&fixture.path, &["-q", "-F", "ip,sym,symoff,dso"]).text();
        let ours: Vec<String> =
            lines(&["-F", "ip,sym,symoff,dso"])?.iter().flat_map(frames_of_json).collect();
        same_lines("text", &ours, &frames_of_text(&text))?;
        let text = view(&fixture.path, &["-q", "-F", "period"]).text();
        let period = |line: &Json| line["period"].as_str().map(str::to_owned);
        let ours: Vec<String> = lines(&["-F", "period"])?.iter().filter_map(period).collect();
        same_lines("periods", &ours, &frames_of_text(&text))
    });
}

/// perf takes arrays of bytes for text, so its JSON has "" for addresses that begin with 0.
#[test]
fn addresses_in_raw_data_are_shown_and_selected() {
    let folder = temp();
    let input = folder.path().join("in.data");
    let format = "name: made\nID: 7\nformat:\n\
        \tfield:__u8 saddr[4];\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:__u8 saddr_v6[16];\toffset:12;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"%pI4 %pI6c\", REC->saddr, REC->saddr_v6\n";
    let mut maker = Maker::new(&input, &[tracepoint(7, 1)]);
    for last in [1, 2] {
        let mapped = [&[0; 10][..], &[0xff, 0xff, 127, 0, 0, last]].concat();
        maker.trace(1, 1, &[&[0; 8][..], &[127, 0, 0, last], &mapped].concat());
    }
    maker.writer.set_feature(Feature::TRACING_DATA, tracing_data("net", &[format])).unwrap();
    maker.writer.finish().unwrap();
    let text = view(&input, &["-F", "trace"]).done().unwrap().text();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines, ["127.0.0.1 ::ffff:127.0.0.1", "127.0.0.2 ::ffff:127.0.0.2"]);
    let second = "saddr_v6 == \"00000000000000000000ffff7f000002\"";
    let json = view(&input, &["--json", "--where", second]).done().unwrap().text();
    assert!(json.contains(r#""saddr":"7f000002""#) && !json.contains("7f000001"), "{json}");
    // Regression: upper-case digits were compared with lower-case ones, and others with nothing.
    let upper = second.to_uppercase().replace("SADDR_V6", "saddr_v6");
    assert_eq!(view(&input, &["--json", "--where", &upper]).done().unwrap().text(), json);
    assert_eq!(view(&input, &["--json", "--where", "saddr ~ \"7F*2\""]).done().unwrap().text(), json);
    for wrong in ["saddr == \"127.0.0.1\"", "saddr != \"7f0\""] {
        let refused = view(&input, &["--where", wrong]);
        assert!(refused.stderr.contains("is not hex digits, such as"), "{wrong}: {}", refused.stderr);
    }
    let refused = view(&input, &["--where", "saddr < \"7f000001\""]);
    assert!(refused.stderr.contains("`saddr` is bytes: compare it with =="), "{}", refused.stderr);
    let refused = view(&input, &["--where", "saddr == 1"]);
    assert!(refused.stderr.contains("`saddr` is bytes: give it in quotation marks"), "{}", refused.stderr);
}

#[test]
fn a_sample_is_shown_up_to_registers_of_an_unknown_abi() {
    let ran = view(&Fixture::new("crafted/val-sample-regs-abi.data").path, &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("registers of an unknown ABI and "), "{}", ran.stderr);
    assert!(ran.text().contains("cpu-clock"), "{}", ran.text());
}

/// A selected sample counted all that its counter had gained since the last selected one, and relative times were
/// those since a later sample.
#[test]
fn a_sample_has_the_gain_since_the_sample_before_whether_that_is_selected_or_not() {
    let input = Fixture::new("recorded/group-read.p73.data").path;
    let lines = |more: &[&str]| {
        let text = view(&input, more).text();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = lines(&[]);
    for select in [&["--time", "50%-60%"][..], &["--event", "page-faults"]] {
        let selected = lines(select);
        assert!(!selected.is_empty() && selected.len() < all.len());
        assert!(selected.iter().all(|line| all.contains(line)), "{select:?}: {selected:#?}");
    }
    for relative in ["--reltime", "--deltatime"] {
        let times = lines(&[relative, "-F", "time"]);
        assert_eq!((times.len(), &*times[0]), (all.len(), "    0.000000: "));
        assert!(times.iter().all(|time| time.starts_with("    0.0")), "{times:#?}");
    }
}

#[test]
fn a_perf_map_names_code_only() {
    let folder = temp();
    fs::create_dir(folder.path().join("tmp")).unwrap();
    fs::write(folder.path().join("tmp/perf-1.map"), "7000 1000 jitted\n").unwrap();
    // MMAP_DATA
    let shown = [USER, USER | 1 << 13].map(|misc| {
        let input = folder.path().join("in.data");
        let mut maker = Maker::new(&input, &[event(PLAIN, vec![1])]);
        let words = [1 << 32 | 1, 0x7000, 0x1000, 0].map(u64::to_le_bytes);
        maker.put(T::MMAP, misc, 1, &[words.as_flattened(), b"//anon\0\0"]);
        maker.sample(1, 0x7010);
        maker.writer.finish().unwrap();
        let root = folder.path().to_str().unwrap();
        view(&input, &["-F", "ip,sym,dso", "--root", root]).text()
    });
    assert!(shown[0].contains("jitted") && shown[0].contains("perf-1.map"), "{}", shown[0]);
    assert!(!shown[1].contains("jitted") && shown[1].contains("//anon"), "{}", shown[1]);
}

/// Regression: only the first batch was searched for it, so that the tracer was unknown.
#[test]
fn the_tracer_is_named_wherever_its_record_is() {
    let folder = temp();
    let input = folder.path().join("in.data");
    let mut maker = Maker::new(&input, &[event(PLAIN, Vec::new())]);
    for _ in 0..90 {
        maker.writer.write_parts(T(250), 0, &[&[0; 65_520]]).unwrap();
    }
    // AUXTRACE_INFO of Intel PT; AUXTRACE without data.
    maker.writer.write_parts(T::AUXTRACE_INFO, 0, &[&1_u64.to_le_bytes()]).unwrap();
    maker.writer.write_parts(T::AUXTRACE, 0, &[&[0; 40]]).unwrap();
    maker.writer.set_feature(Feature::AUXTRACE, 0_u64.to_le_bytes().to_vec()).unwrap();
    maker.writer.finish().unwrap();
    let ran = view(&input, &[]);
    assert!(ran.stderr.contains("no samples, but a hardware trace of Intel PT"), "{}", ran.stderr);
}

/// With its call chain beside a stack of 64 kB, a sample would be larger than a record can be.
#[test]
fn registers_are_shown_of_samples_with_the_largest_stacks() {
    let input = Fixture::new("recorded/dwarf-max.p61.data").path;
    let shown = |fields: &str| view(&input, &["--foreign", "-F", fields]);
    let ran = shown("time,uregs");
    assert!(ran.code != Some(1), "{}", ran.stderr);
    let with_registers = ran.text().lines().filter(|line| line.contains(" ABI:2 ")).count();
    assert_eq!(with_registers, shown("time").text().lines().count());
    assert!(with_registers > 0);
}
