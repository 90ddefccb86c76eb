//! A program called `perf` that is perfx: it runs perf's command lines with perf's manners, and leaves to the next perf in
//! PATH what perfx does not have.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::args;
use crate::support::{Fixture, Ran, Stdin, clean, perfs, perfx, run, same_bytes, temp};

/// A folder with the shim in `bin`, and a script in place of another perf in `next`, which prints its arguments.
struct Shim(tempfile::TempDir);

impl Shim {
    fn new() -> Shim {
        let shim = Shim(temp());
        perfx(args!["shim", shim.path("bin")]).done().unwrap();
        fs::create_dir(shim.path("next")).unwrap();
        script(&shim.path("next/perf"), "echo \"next perf: $*\"; exit 7");
        shim
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `perf` with these words, in a PATH of these folders.
    fn run(&self, folders: &[&str], words: &str, more: &[(&str, &str)]) -> Ran {
        let mut shell = clean("/bin/bash");
        let folders: Vec<_> = folders.iter().map(|name| self.path(name).display().to_string()).collect();
        shell.args(["-c", &format!("perf {words}")]).current_dir(self.0.path());
        shell.env("PATH", folders.join(":")).env("HOME", self.0.path()).envs(more.iter().copied());
        run(&mut shell, Stdin::Null)
    }

    /// The same without another perf.
    fn alone(&self, words: &str) -> Ran {
        self.run(&["bin"], words, &[])
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/bash\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn input(name: &str) -> String {
    Fixture::new(name).path.display().to_string()
}

#[test]
fn what_perfx_does_not_have_goes_to_the_next_perf_unchanged() {
    let shim = Shim::new();
    for words in
        ["record -o x y", "--no-pager top", "script -s prog.py", "script --xed", "script report flamegraph"]
    {
        let ran = shim.run(&["bin", "next"], words, &[]);
        assert_eq!((ran.code, &*ran.text(), &*ran.stderr), (Some(7), &*format!("next perf: {words}\n"), ""));
        let ran = shim.run(&["bin", "next"], words, &[("PERFX_VERBOSE", "1")]);
        assert!(ran.stderr.contains("next/perf runs this"), "{}", ran.stderr);
        let ran = shim.alone(words);
        assert_eq!((ran.code, &*ran.text()), (Some(129), ""), "{words}");
        assert!(ran.stderr.contains("there is no other perf in PATH"), "{}", ran.stderr);
    }
}

#[test]
fn a_shim_never_runs_itself_or_another_shim_twice() {
    let shim = Shim::new();
    // Other names of the same program, and a copy of it, which has another inode.
    symlink(shim.path("bin"), shim.path("again")).unwrap();
    fs::create_dir(shim.path("copy")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_perfx"), shim.path("copy/perf")).unwrap();
    for folders in [&["bin", "again"][..], &["bin", "copy", "again"], &["copy", "bin", "copy"]] {
        let ran = shim.run(folders, "record x", &[]);
        assert_eq!(ran.code, Some(129), "{folders:?}: {}", ran.stderr);
        let ran = shim.run(&[folders, &["next"]].concat(), "record x", &[]);
        assert_eq!((ran.code, &*ran.text()), (Some(7), "next perf: record x\n"), "{folders:?}");
    }
}

/// Scripts named perf that call a link to perfx for some commands have the next perf in themselves.
#[test]
fn a_script_in_front_of_the_shim_gets_a_line_only_once() {
    let shim = Shim::new();
    fs::create_dir(shim.path("front")).unwrap();
    symlink(env!("CARGO_BIN_EXE_perfx"), shim.path("front/perf-inject")).unwrap();
    script(&shim.path("front/perf"), "shift; exec perf-inject \"$@\"");
    let ran = shim.run(&["front", "bin"], "inject --no-such", &[]);
    assert_eq!(ran.code, Some(129), "{}", ran.stderr);
    let ran = shim.run(&["front", "bin", "next"], "inject --no-such", &[]);
    assert_eq!((ran.code, &*ran.text()), (Some(7), "next perf: inject --no-such\n"));
}

#[test]
fn perf_script_is_silent_on_standard_error_and_returns_perfs_codes() {
    let shim = Shim::new();
    let (whole, cut) = (input("recorded/fp.p61.data"), input("recorded/lost.p61.data"));
    let ran = shim.alone(&format!("script --symfs nowhere -i {whole}"));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert!(ran.text().starts_with("burn   29805  5779.326983:     200040 cpu-clock: \n"));
    let ran = shim.alone(&format!("script -i {cut} -F event"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for (words, code) in [
        ("script -i missing", 255),
        ("script -F nothing -i x", 129),
        ("script --nothing", 129),
        ("script --show -i x", 129),
        ("evlist -i missing", 255),
        ("buildid-list -i missing", 255),
        ("inject --nothing", 129),
        ("evlist -g -v -i x", 129),
        ("script --time abc -i x", 234),
        ("script -C abc -i x", 255),
        ("script --max-stack abc -i x", 129),
        ("script -k missing -i x", 255),
    ] {
        let ran = shim.alone(words);
        assert_eq!((ran.code, &*ran.text()), (Some(code), ""), "{words}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{words}");
    }
    let meant = shim.alone("script --filds comm").stderr;
    assert!(meant.contains("--filds; did you mean `--fields`?"), "{meant}");
}

#[test]
fn losses_change_the_exit_code_only_on_demand() {
    let shim = Shim::new();
    let words = format!("script -i {}", input("crafted/sample-raw-short-le.data"));
    let [mild, strict] = ["0", "1"].map(|strict| shim.run(&["bin"], &words, &[("PERFX_STRICT", strict)]));
    assert_eq!((mild.code, mild.text()), (Some(0), strict.text()));
    assert_eq!(mild.stderr, strict.stderr);
    assert_eq!(strict.code, Some(if strict.stderr.is_empty() { 0 } else { 3 }), "{}", strict.stderr);
}

#[test]
fn one_line_has_its_parts_in_any_of_perfs_ways() {
    let shim = Shim::new();
    fs::copy(input("recorded/plain.p61.data"), shim.path("perf.data")).unwrap();
    let wanted = shim.alone("script --symfs nowhere -F comm,tid,time,event -i perf.data").text();
    assert!(wanted.starts_with("            burn   29112  5769.982856: cpu-clock: \n"), "{wanted}");
    for words in [
        "script --symfs=nowhere -Fcomm,tid,time,event",
        "--no-pager script --symf nowhere --fie tid,event,time,comm --inp perf.data",
        "script --symfs nowhere -F pid -F comm,tid,time,event --no-ns --ns --no-ns",
        "script --symfs nowhere -F -period,-ip,-sym,-symoff,-dso -f",
        "--buildid-dir nowhere script --symfs nowhere -F sw:comm,tid,time,event -ix -iperf.data",
        "script --comms nobody --comm burn --symfs nowhere -F comm,tid,time,event",
    ] {
        let ran = shim.alone(words);
        assert_eq!((ran.code, ran.text()), (Some(0), wanted.clone()), "{words}: {}", ran.stderr);
    }
    let piped = "inject -i perf.data -b | perf script --symfs nowhere -F comm,tid,time,event -i -";
    assert_eq!(shim.alone(piped).text(), wanted);
}

#[test]
fn a_field_that_an_event_lacks_is_refused_only_if_perf_refuses_it() {
    let shim = Shim::new();
    for (fields, recording, is_taken) in [
        ("addr", "recorded/plain.p73.data", false),
        ("+cpu", "recorded/plain.p73.data", false),
        ("brstack,pid", "recorded/plain.p73.data", true),
        ("trace,event", "recorded/plain.p73.data", true),
        ("hw:addr", "recorded/plain.p73.data", true),
        ("+srcline", "recorded/plain.p73.data", true),
        ("+srcline", "recorded/tracepoint.p73.data", false),
        ("+symoff", "recorded/tracepoint.p73.data", false),
        ("-sym", "recorded/plain.p73.data", false),
        ("-sym", "recorded/tracepoint.p73.data", true),
        ("comm,+tid", "recorded/plain.p73.data", false),
        ("weight", "trace/begun.data", true),
        ("ins_lat", "trace/begun.data", false),
    ] {
        let ran = shim.alone(&format!("script -F {fields} -i {}", input(recording)));
        assert_eq!(ran.code == Some(0), is_taken, "{fields} {recording}: {}", ran.stderr);
    }
}

#[test]
fn evlist_and_buildid_list_print_perfs_lines() {
    let shim = Shim::new();
    let tracepoint = input("recorded/tracepoint.p73.data");
    let group = input("recorded/group-read.p73.data");
    for (words, wanted) in [
        (format!("evlist -i {group}"), "task-clock\npage-faults\ncs\n"),
        (format!("evlist -g -i {group}"), "{task-clock,page-faults,cs}\n"),
        (
            format!("evlist -F -i {group}"),
            "task-clock: sample_freq=4999\npage-faults: sample_period=0\ncs: sample_period=0\n",
        ),
        (format!("evlist --trace-fields -i {tracepoint}"), "raw_syscalls:sys_enter: trace_fields: id,args\n"),
        (
            format!("buildid-list -i {}", input("recorded/plain.p61.data")),
            "b000000000000000000000000000000000000001 /tmp/perfx-data/work/burn\n\
             7ebc65e52f2bbea498b4040fa92f7238377aaba9 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n\
             c000000000000000000000000000000000000001 [kernel.kallsyms]\n\
             a599807156a2a62fe956a82e388aeeabc874119c [vdso]\n",
        ),
        (
            format!("buildid-list -H -i {}", input("recorded/fp.p61.data")),
            "b000000000000000000000000000000000000001 /tmp/perfx-data/work/burn\n\
             7ebc65e52f2bbea498b4040fa92f7238377aaba9 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n\
             \u{20}                                        /usr/lib/x86_64-linux-gnu/libc.so.6\n\
             c000000000000000000000000000000000000001 [kernel.kallsyms]\n",
        ),
    ] {
        let ran = shim.alone(&words);
        assert_eq!((ran.code, &*ran.text(), &*ran.stderr), (Some(0), wanted, ""), "{words}");
    }
    let ran = shim.alone(&format!("evlist -v -i {tracepoint}"));
    assert!(
        ran.text()
            .starts_with("raw_syscalls:sys_enter: type: 2 (PERF_TYPE_TRACEPOINT), size: 144, config: 0x1bb")
    );
    // perf does not list them by their bits, and does not list TRANSACTION.
    for (recording, names) in [
        ("recorded/allbits.p73.data", "|REGS_USER|IDENTIFIER|REGS_INTR|DATA_SRC|PHYS_ADDR|"),
        ("recorded/weight-old.p510.data", "|ADDR|DATA_SRC|WEIGHT,"),
    ] {
        let text = shim.alone(&format!("evlist -v -i {}", input(recording))).text();
        assert!(text.contains(names) && !text.contains("TRANSACTION"), "{text}");
    }
}

#[test]
fn buildid_list_prints_the_build_id_of_the_running_kernel() {
    let ran = Shim::new().alone("buildid-list -k");
    match Path::new("/sys/kernel/notes").exists() {
        true => {
            assert!(ran.text().trim_end().bytes().all(|digit| digit.is_ascii_hexdigit()), "{}", ran.text())
        }
        false => assert_eq!(ran.code, Some(255), "{}", ran.stderr),
    }
}

/// Lines that need no file of the machine, with the beginnings of their output.
const LINES: [(&str, &str); 8] = [
    ("--deltatime -F time", "    0.000000: \n    0.000200: \n    0.000206: \n"),
    ("--reltime --ns -F time", "    0.000000000: \n    0.000200685: \n    0.000407179: \n"),
    (
        "--show-task-events -F comm,tid,time",
        "       perf-exec       0     0.000000: PERF_RECORD_COMM: perf-exec:29805/29805\n            \
         burn   29805  5779.326792: PERF_RECORD_COMM exec: burn:29805/29805\n            \
         burn   29805  5779.326983: \n",
    ),
    (
        "--show-mmap-events -F comm,pid",
        "         swapper       0 PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x12090c8) @ 0xffffffff81000000]: x \
         [kernel.kallsyms]_text\n            \
         burn   29805 PERF_RECORD_MMAP2 29805/29805: [0x5650cc412000(0x1000) @ 0x1000 fe:00 10012501 3208397252]: \
         r-xp /tmp/perfx-data/work/burn\n",
    ),
    ("--max-stack 1 -F ip", "\n\t    7fa91cb513e0\n\n\n"),
    ("-G -F ip", "     7fa91cb513e0\n ffffffff816890a1\n"),
    ("-L -F comm,tid,time", "    burn   29805  5779.326983: \n"),
    ("--header-only", "# ========\n# captured on    : "),
];

#[test]
fn options_of_perf_script_do_what_they_do_in_perf() {
    let shim = Shim::new();
    let input = input("recorded/fp.p61.data");
    for (words, wanted) in LINES {
        let ran = shim.alone(&format!("script --symfs nowhere {words} -i {input}"));
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{words}: {}", ran.stderr);
        assert!(ran.text().starts_with(wanted), "{words}: {}", ran.text());
        for perf in perfs(&["perf-new"]) {
            let mut command = clean(perf.program());
            command.args(["script", "--symfs", "nowhere"]).args(words.split(' ')).args(["-i", &input]);
            let theirs = run(command.env("TZ", "UTC").env("HOME", shim.path("")), Stdin::Null);
            same_bytes(words, &theirs.stdout, &ran.stdout).unwrap();
        }
    }
}

#[test]
fn what_pipe_data_says_about_itself_follows_the_header() {
    let shim = Shim::new();
    let input = input("recorded/pipe.p73.data");
    let [header, only] = ["--header", "--header-only"]
        .map(|option| shim.alone(&format!("script --symfs nowhere {option} -i {input}")).text());
    assert!(only.ends_with("# feat offset    : 0\n# ========\n#\n"), "{only}");
    let said = header.strip_prefix(&*only).unwrap();
    assert!(said.starts_with("# hostname : perfx-host\n# os release : "), "{said}");
    assert!(said.contains("# cacheline size: 64\n            burn   32573  5894.080999:"), "{said}");
}

#[test]
fn the_line_of_a_new_thread_has_the_name_of_its_parent() {
    let input = input("recorded/several.p73.data");
    let ran =
        Shim::new().alone(&format!("script --symfs nowhere --show-task-events -F comm,tid,time -i {input}"));
    let wanted = "            crew   14221  6231.800062: PERF_RECORD_FORK(14221:14223):(14221:14221)\n";
    assert!(ran.text().contains(wanted), "{}", ran.text());
}

/// A link to the only perf was replaced.
#[test]
fn a_link_to_another_program_stays() {
    let folder = temp();
    let perf = folder.path().join("perf");
    symlink("/usr/bin/other", &perf).unwrap();
    let ran = perfx(args!["shim", folder.path()]);
    assert!(ran.code == Some(1) && ran.stderr.contains("not to perfx, and stays"), "{}", ran.stderr);
    assert_eq!(fs::read_link(&perf).unwrap(), Path::new("/usr/bin/other"));
    // One of perfx, which may have been removed, is made anew.
    fs::remove_file(&perf).unwrap();
    symlink("/gone/perfx", &perf).unwrap();
    perfx(args!["shim", folder.path()]).done().unwrap();
    assert_eq!(fs::read_link(&perf).unwrap(), Path::new(env!("CARGO_BIN_EXE_perfx")));
}

/// Regression: the help was one line with `\n` in it, or on standard output.
#[test]
fn help_is_printed_as_perf_prints_its_own() {
    let shim = Shim::new();
    for tool in ["script", "inject", "evlist", "buildid-list"] {
        let ran = shim.alone(&format!("{tool} -h"));
        let usage = format!("\n\nUsage: perf {tool} ");
        assert!(ran.code == Some(129) && ran.stderr.contains(&usage), "{tool}: {ran:?}");
        assert_eq!(ran.text(), "", "{tool}");
    }
}

/// perf inject leaves out all recorded samples, even if there is no trace; but it keeps those of pipe data and of
/// compressed recordings. Regression: the shim failed, then left out all.
#[test]
fn a_recording_without_a_trace_can_be_stripped() {
    let shim = Shim::new();
    for (name, keeps) in [("fp", false), ("pipe", true), ("z", true)] {
        let input = input(&format!("recorded/{name}.p73.data"));
        let ran = shim.alone(&format!("inject --itrace=i1000il --strip -i {input} -o out"));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
        let [kept, recorded] = ["out", &input].map(|path| shim.alone(&format!("script -i {path}")).text());
        assert_eq!((kept == recorded, kept.is_empty()), (keeps, !keeps), "{name}");
        assert_eq!(shim.alone("evlist -i out").text(), "cpu-clock\n");
    }
}

/// As in perf. Regression: `--comms bur` selected `burn`.
#[test]
fn a_part_of_a_name_selects_nothing() {
    let shim = Shim::new();
    let input = input("recorded/plain.p61.data");
    for (selects, part, whole) in [("--comms", "bur", "burn"), ("--dsos", "burn_", "burn")] {
        let lines = |name| shim.alone(&format!("script {selects} {name} -i {input}")).text().lines().count();
        assert_eq!((lines(part), lines(whole) > 0), (0, true), "{selects}");
    }
}

/// In perf, that a group also has an event which records a field is not enough, and pipe data shows the names of
/// all callers. Regression: each event had its own fields.
#[test]
fn the_events_of_a_type_decide_together_what_is_shown() {
    let shim = Shim::new();
    let mixed = input("recorded/mixed-callgraph.p73.data");
    let first = |words: &str| shim.alone(words).text().lines().next().unwrap_or_default().trim().to_owned();
    let symfs = "script --symfs nowhere";
    assert_eq!(first(&format!("{symfs} -F addr -i {mixed}")), "0");
    let chains = input("recorded/fp.p73.data");
    let piped = shim.path("pipe");
    perfx(args!["copy", "-q", "--to", "pipe", chains, "-o", piped]).done().unwrap();
    assert_eq!(first(&format!("{symfs} -F comm -i {chains}")), "burn");
    let text = shim.alone(&format!("{symfs} -F comm -i {}", piped.display())).text();
    assert!(text.starts_with("burn \n\t    7f0549ad63e0 [unknown]\n"), "{text}");
    let text = shim.alone(&format!("{symfs} -F comm,-ip -i {}", piped.display())).text();
    assert_eq!(text, "");
}

/// It ran until its command line was too long; and an empty entry of PATH was found, but not run.
#[test]
fn a_script_that_adds_a_word_ends_and_the_current_folder_is_searched() {
    let shim = Shim::new();
    fs::create_dir(shim.path("front")).unwrap();
    script(&shim.path("front/perf"), "exec perf \"$@\" x");
    let ran = shim.run(&["bin", "front", "next"], "record", &[]);
    assert!(ran.code == Some(7) && ran.text().starts_with("next perf: record x"), "{ran:?}");
    assert!(ran.text().len() < 100, "{ran:?}");
    script(&shim.path("perf"), "echo here; exit 5");
    let mut shell = clean("/bin/bash");
    shell.args(["-c", "perf record"]).current_dir(shim.0.path());
    let ran = run(shell.env("PATH", format!("{}:", shim.path("bin").display())), Stdin::Null);
    assert_eq!((ran.code, ran.text()), (Some(5), "here\n".to_owned()), "{}", ran.stderr);
}
