//! `perfx view`: its lines are those of `perf script` with the same fields, for every recording.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex::Regex;

use crate::args;
use crate::folded::INLINED;
use crate::snapshots::same;
use crate::support::{
    Fixture, Ran, Stdin, clean, each_fixture, perfs, perfx, perfx_command, perfx_with, recorded, run,
    same_lines, skipped, temp, workloads,
};

fn view(input: &Path, more: &[&str]) -> Ran {
    let mut command = perfx_command();
    command.args(["view", "--no-files"]).arg(input).args(more);
    run(&mut command, Stdin::Null)
}

/// Recordings that perf shows in another way, each with the reason.
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
];

/// What perf 6.1 prints otherwise: its columns of pids are narrower, and user addresses in call chains are offsets.
fn as_in_6_1(text: &str) -> String {
    let address = Regex::new(r"(?m)^\t +[0-9a-f]+").unwrap();
    let text = address.replace_all(text, "\tADDRESS");
    Regex::new(" +").unwrap().replace_all(&text, " ").replace("\n ", "\n").trim_start_matches(' ').to_owned()
}

#[test]
fn lines_are_those_of_perf_script_for_every_recording() {
    let Some(root) = workloads() else { return };
    let nowhere = temp();
    for perf in perfs(&["perf", "perf-new"]) {
        let compared = AtomicUsize::new(0);
        each_fixture(&recorded(), |fixture| {
            let other = OTHER.iter().any(|(part, _)| fixture.name.contains(part));
            if other || !perf.can_read(&fixture.path) {
                return Ok(());
            }
            for (root, fields) in FIELDS.iter().flat_map(|fields| [(nowhere.path(), fields), (root, fields)])
            {
                // Of pipe data, perf shows call chains whatever the fields, and 6.1 symbols, too.
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
                let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
                same_lines(&format!("{} -F {fields}", perf.name), &lines(&ours), &lines(&theirs))?;
            }
            Ok(())
        });
        assert!(compared.load(Ordering::Relaxed) > 500, "{}: {compared:?} comparisons", perf.name);
    }
}

#[test]
fn lines_do_not_depend_on_form_or_threads() {
    let folder = temp();
    for name in ["recorded/fp.p61.data", "recorded/group-read.p61.data", "recorded/addresses.p73.data"] {
        let large = folder.path().join("large.data");
        fs::write(&large, Fixture::new(name).repeated(9 << 20)).unwrap();
        let expected = view(&large, &["-@1"]).done().unwrap().stdout;
        assert!(view(&large, &["-@4"]).stdout == expected, "{name} on four threads");
        let count = view(&large, &["--count"]).text();
        let head = view(&large, &["--head", "3"]).stdout;
        assert!(expected.starts_with(&head) && !head.is_empty());
        let samples = view(&large, &["-F", "event"]).text();
        // An empty line stands for each call chain, which perf prints only with `ip`.
        assert_eq!(samples.lines().count().to_string(), count.trim_end(), "{name}");
        let small = view(&Fixture::new(name).path, &[]).stdout;
        let piped = perfx(args!["copy", Fixture::new(name).path, "--to", "pipe"]).stdout;
        let pipe = perfx_with(Stdin::Pipe(&piped), args!["view", "--no-files", "-"]);
        assert!(pipe.stdout == small, "{name} from a pipe");
    }
}

#[test]
fn what_lines_hold_can_be_chosen() {
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
        "fp.p73.data -F comm,symbol",
        "fp.p73.data --event nothing",
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
    let theirs = perf.run(Stdin::Null, args!["script", "--symfs", "/", "-i", recording]).text();
    let ours = perfx(args!["view", recording]).text();
    assert!(ours.contains(" mix+0x") && ours.contains("(inlined)"), "{ours}");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    same_lines("perf script", &lines(&ours), &lines(&theirs)).unwrap();
}
