//! perfx can replace perf inject: the page lists all its options with their effect in perfx, and scripts that
//! call it work through a link.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, perfs, perfx, root, run, same_bytes, temp, workloads,
};
use crate::{args, tiers};

/// Short and long options of a perf, from its help.
fn options_of(help: &str) -> BTreeSet<String> {
    // The letters of --itrace are listed after tabs.
    let listed = help.lines().filter(|line| line.starts_with("    ") && line.trim_start().starts_with('-'));
    let options = listed.flat_map(|line| {
        let names = line.split_whitespace().take_while(|word| word.starts_with('-'));
        names.map(|name| name.split(['[', '=', ',']).next().unwrap_or_default().to_owned())
    });
    options.collect()
}

/// The table of the page: each option, and its effect in perfx.
fn table() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("docs/guide/inject.md")).unwrap();
    let (_, table) = page.split_once("| option | perfx inject | |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
    let mut options = BTreeMap::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split(" | ");
        let (names, answer) = (cells.next().unwrap(), cells.next().unwrap());
        for name in names.split(", ") {
            options.insert(name.trim().trim_matches('`').to_owned(), answer.trim().to_owned());
        }
    }
    options
}

#[test]
fn every_option_of_every_perf_inject_is_on_the_page() {
    let table = table();
    let mut there = BTreeSet::new();
    let names = ["perf", "perf-trixie", "perf-sid", "perf-new"];
    let perfs = perfs(&names);
    for perf in &perfs {
        let ran = perf.run(Stdin::Null, args!["inject", "-h"]);
        let options = options_of(&(ran.text() + &ran.stderr));
        assert!(options.len() > 20, "{}: {options:?}", perf.name);
        for option in &options {
            assert!(table.contains_key(option), "{option} of {} is not in the table", perf.name);
        }
        there.extend(options);
    }
    // Each version has options that no other one has.
    for option in table.keys().filter(|_| perfs.len() == names.len()) {
        assert!(there.contains(option), "{option} is an option of no perf here");
    }
}

/// `refused` in the table: exit code 2, and the reason. All others are taken.
#[test]
fn every_option_is_answered_as_the_page_says() {
    let line = |option: &str| {
        let value = match option {
            "-i" | "--input" | "-o" | "--output" => return None,
            "-k" | "--vmlinux" | "--kallsyms" => "nowhere",
            "--unwind-style" => "libdw",
            "--known-build-ids" => "ab /bin/true",
            "--guest-data" => "guest.data,1",
            "--guestmount" => "nowhere",
            _ => "",
        };
        Some((option.to_owned(), value))
    };
    let input = Fixture::new("recorded/plain.p61.data").path;
    for (option, answer) in table() {
        let Some((option, value)) = line(&option) else { continue };
        let mut words = vec!["inject".into(), "-n".into(), (&option).into()];
        words.extend((!value.is_empty()).then(|| value.into()));
        words.push(input.clone().into_os_string());
        let ran = perfx(words);
        let said = &ran.stderr;
        match answer.as_str() {
            "refused" => {
                assert_eq!(ran.code, Some(2), "{option}: {said}");
                assert!(said.contains(&format!("perf inject has {option}; ")), "{option}: {said}");
            }
            "no effect" => {
                assert_eq!(ran.code, Some(0), "{option}: {said}");
                assert!(said.contains("has no effect"), "{option}: {said}");
            }
            "same" | "better" => assert!(!said.contains("unexpected argument"), "{option}: {said}"),
            other => panic!("{option}: `{other}` is not an answer"),
        }
    }
}

/// A folder with the link `perf-inject`, and `perf`, which runs it for `perf inject` and the perf of this
/// name otherwise.
struct Shim(tempfile::TempDir);

impl Shim {
    fn new(perf: &Path) -> Shim {
        let folder = temp();
        symlink(env!("CARGO_BIN_EXE_perfx"), folder.path().join("perf-inject")).unwrap();
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = inject ]; then shift; exec perf-inject \"$@\"; fi\nexec {} \"$@\"\n",
            perf.display()
        );
        let path = folder.path().join("bin/perf");
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Shim(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// A line of a shell in which `perf` is the shim.
    fn run(&self, perf: &Path, line: &str) -> Ran {
        let mut shell = clean("bash");
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", self.path("bin").display(), self.0.path().display());
        shell.args(["-ec", &format!("set -o pipefail; {line}")]).current_dir(self.0.path());
        shell.env("PATH", path).env("HOME", self.0.path()).env("PAGER", "cat").env("prog", perf);
        run(&mut shell, Stdin::Null)
    }
}

#[test]
fn a_link_named_perf_inject_backs_up_existing_output_like_perf() {
    let shim = Shim::new(Path::new("false"));
    let input = Fixture::new("recorded/plain.p61.data").path;
    fs::copy(&input, shim.path("in.data")).unwrap();
    fs::write(shim.path("out.data"), "what was there").unwrap();
    let ran = shim.run(Path::new(""), "perf inject -b --buildid-all -v -f -k vmlinux -i in.data -o out.data");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read(shim.path("out.data.old")).unwrap(), b"what was there");
    let wanted = shim.path("wanted.data");
    perfx(args!["inject", "-b", "--buildid-all", input, "-o", wanted]).done().unwrap();
    same_bytes("the output", &fs::read(wanted).unwrap(), &fs::read(shim.path("out.data")).unwrap()).unwrap();
    let ran = shim.run(Path::new(""), "perf-inject -h");
    assert!(ran.stderr.contains("--buildid-all") && ran.code == Some(129), "{}", ran.stderr);
}

#[test]
fn the_link_accepts_and_refuses_the_same_abbreviations_as_perf() {
    let input = Fixture::new("recorded/plain.p61.data").path;
    for perf in perfs(&["perf", "perf-new"]) {
        let shim = Shim::new(perf.path());
        fs::copy(&input, shim.path("in.data")).unwrap();
        for (words, taken) in [
            ("--in in.data --ou out --build-ids", true),
            ("--inp=in.data --buildid --outp=out --forc", true),
            ("--jit --no-jit --no-force --no-build-ids -i in.data -o out", true),
            ("-bfi in.data -oout --no-ji --verb --no-verbose", true),
            ("--guestmount nowhere --no-guestmo -i in.data -o out", true),
            ("--guestmount nowhere -i in.data -o out -b", true),
            ("--no-itrace --no-guest-data --no-known-build-ids --no-kallsyms -i in.data -o out", true),
            ("--no-vmlinux --no-strip --no-sched-stat --no-input --no-vm-time -i in.data -o out", true),
            ("-i in.data -o --jit", true),
            ("--build -i in.data -o out", false),
            ("--no-build -i in.data -o out", false),
            ("--no -i in.data -o out", false),
            ("--jit=3 -i in.data -o out", false),
            ("--no-jit=3 -i in.data -o out", false),
            ("--no-such -i in.data -o out", false),
        ] {
            // The shim is in the first two folders.
            for program in
                ["perf-inject".to_owned(), format!("PATH=${{PATH#*:*:}} {} inject", perf.program())]
            {
                let line = format!("rm -f -- out --jit; {program} {words}");
                let ran = shim.run(Path::new(""), &line);
                assert_eq!(ran.code == Some(0), taken, "{program} {words}: {}", ran.stderr);
                let written = ["out", "--jit"].into_iter().find(|name| shim.path(name).exists());
                assert_eq!(written.is_some(), taken, "{program} {words}: {written:?}");
            }
        }
        let ran = shim.run(Path::new(""), "perf-inject --build -i in.data -o out");
        assert_eq!(ran.code, Some(129), "{}", ran.stderr);
        assert!(ran.stderr.contains("it could be --build-ids or --buildid-all"), "{}", ran.stderr);
    }
}

tiers!(scripts_that_call_perf_inject_work_through_the_link);
/// As perf's own shell tests and others' scripts call it.
fn scripts_that_call_perf_inject_work_through_the_link(tier: Tier) {
    let Some(work) = workloads() else { return };
    let program = work.join("tmp/perfx-data/work/burn");
    for perf in perfs(&["perf", "perf-new"]) {
        let shim = Shim::new(perf.path());
        if shim.run(&program, "perf record -q -e task-clock:u -o /dev/null $prog 1").code != Some(0) {
            continue;
        }
        let lines = [
            "perf record -q -e task-clock:u -o - $prog 50 | perf inject -b | perf report -i - --stdio | grep leaf_",
            "perf record -q -e task-clock:u -o a $prog 50; perf inject -b -i a | perf report -i - --stdio | grep leaf_",
            "perf record -q -e task-clock:u -o - $prog 50 | perf report -i - --stdio | grep leaf_",
            "perf record -q -g -e task-clock:u -o - $prog 50 | perf inject --mmap2-buildid-all | perf report -i - | grep leaf_",
            "perf record -q -e task-clock:u -o a $prog 50; perf inject -B -i a -o b; perf report -i b --stdio | grep leaf_",
            "perf record -q -z -F 5000 -e task-clock:u -o a $prog 50; perf inject -i a -o b; perf inject -i a -o b
             perf report -i b --stdio | grep leaf_; test -e b.old",
            "perf record -q -e task-clock:u -o a $prog 50; perf inject --build-ids --input a --output b --force -vv
             perf buildid-list -i b | grep burn",
        ];
        for line in tier.first(2, &lines) {
            let ran = shim.run(&program, line);
            assert_eq!(ran.code, Some(0), "{}: {line}\n{}{}", perf.name, ran.text(), ran.stderr);
        }
    }
}
