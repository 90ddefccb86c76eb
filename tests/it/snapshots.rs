//! The output and the messages of perfx are the texts under snapshots/, so that every change of them is
//! reviewed.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::fuzz_bodies::elf_with_id;
use crate::support::{Fixture, Stdin, perfx_command, root, run, temp};

/// Compares with the snapshot `snapshots/GROUP/NAME.snap`. To review changes: `cargo insta review`.
pub(crate) fn same(group: &str, name: &str, text: &str) {
    let lines = text.lines().count();
    assert!(lines < 200, "{group}/{name} has {lines} lines, too many to review");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots").join(group));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// A folder with copies of recordings, in which command lines are run.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    /// Each recording under a name of its own.
    pub(crate) fn new(files: &[(&str, &str)]) -> Place {
        let place = Place { folder: temp() };
        for (name, fixture) in files {
            copy_all(&Fixture::new(fixture).path, &place.path(name));
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Runs a command line as in a shell; returns the command, its output and its exit code. Words are
    /// separated by spaces, or quoted with `'`; the input may come from `< FILE`.
    pub(crate) fn say(&self, line: &str) -> String {
        let mut words = words(line);
        let stdin = words.iter().position(|word| word == "<").map(|at| {
            let file = words.remove(at + 1);
            words.remove(at);
            fs::read(self.path(&file)).unwrap()
        });
        let stdin = stdin.as_deref().map_or(Stdin::Null, Stdin::Pipe);
        let mut command = perfx_command();
        command
            .current_dir(self.folder.path())
            .env("NO_COLOR", "1")
            .env_remove("CLICOLOR_FORCE")
            .args(&words);
        let ran = run(&mut command, stdin);
        let mut text = format!("$ perfx {line}\n");
        match str::from_utf8(&ran.stdout) {
            Ok(shown) if !shown.contains('\0') => text += shown,
            _ => text += &format!("({} bytes of a recording)\n", ran.stdout.len()),
        }
        text += &ran.stderr;
        match ran.code {
            Some(0) => {}
            code => text += &format!("(exit code {})\n", code.expect("no signal ends it")),
        }
        let folder = self.folder.path().display().to_string();
        text.replace(&folder, "[TMP]")
    }

    /// All of these.
    pub(crate) fn say_all(&self, lines: &[&str]) -> String {
        lines.iter().map(|line| self.say(line)).collect::<Vec<_>>().join("\n")
    }

    /// The relevant part of a dump: these sections of the front (`feature BUILD_ID`, …), records of these
    /// kinds, and the number of other records between them.
    pub(crate) fn dump(&self, name: &str, sections: &[&str], kinds: &[&str]) -> String {
        let ran =
            run(perfx_command().current_dir(self.folder.path()).args(["dump", "-q", name]), Stdin::Null);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        let mut text = format!("--- {name}\n");
        let (mut inside, mut others) = (false, Vec::<(String, u64)>::new());
        for line in ran.text().lines() {
            let record = line.starts_with(|first: char| first.is_ascii_digit());
            if record {
                let kind = line.split(' ').nth(1).unwrap();
                if !kinds.contains(&kind) {
                    match others.iter_mut().find(|(other, _)| other == kind) {
                        Some((_, count)) => *count += 1,
                        None => others.push((kind.to_owned(), 1)),
                    }
                    continue;
                }
            } else if !line.starts_with(' ') {
                inside = sections.iter().any(|section| line.starts_with(section));
            }
            if record || inside {
                text += &between(&mut others);
                text += &format!("{line}\n");
            }
        }
        text + &between(&mut others)
    }

    /// Names and sizes of a folder's files, as a tree.
    fn tree(&self, name: &str) -> String {
        fn list(path: &Path, depth: usize, text: &mut String) {
            let mut entries: Vec<_> =
                fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            for path in entries {
                let name = path.file_name().unwrap().to_string_lossy();
                let size = path.metadata().unwrap().len();
                let what = if path.is_dir() { String::new() } else { format!(" ({size} bytes)") };
                *text += &format!("{}{name}{what}\n", "  ".repeat(depth));
                if path.is_dir() {
                    list(&path, depth + 1, text);
                }
            }
        }
        let mut text = format!("--- {name}/\n");
        list(&self.path(name), 1, &mut text);
        text
    }
}

fn between(others: &mut Vec<(String, u64)>) -> String {
    let counts: Vec<_> = others.drain(..).map(|(kind, count)| format!("{count} {kind}")).collect();
    if counts.is_empty() { String::new() } else { format!("… {}\n", counts.join(", ")) }
}

pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

pub(crate) fn copy_all(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}

/// Records that state or change mappings.
const MAPS: &[&str] = &["MMAP", "MMAP2", "HEADER_BUILD_ID", "FORK", "COMM"];

/// Every command's `-h`; `--help` is docs/commands.md.
#[test]
fn help() {
    let place = Place::new(&[]);
    same("help", "perfx-short", &place.say("-h"));
    for command in perfx::Program::default().command_line().get_subcommands().map(clap::Command::get_name) {
        same("help", &format!("{command}-short"), &place.say(&format!("{command} -h")));
    }
    same("help", "none", &place.say(""));
}

#[test]
fn passes() {
    let place = Place::new(&[
        ("perf.data", "crafted/two-le.data"),
        ("z.data", "crafted/z-two-events.data"),
        ("pipe.data", "crafted/attr-64-pipe.data"),
    ]);
    fs::create_dir(place.path("a,b")).unwrap();
    let list = place.say("passes");
    let (first, rest) = list.split_at(list.find("\nmerge\n").expect("a pass in the middle") + 1);
    same("passes", "list", first);
    same("passes", "list-from-merge", rest);
    same("passes", "explain-json", &place.say("run -p mmap2-build-ids,build-ids --explain --json z.data"));
    let chains = [
        "run -p build-ids --explain",
        "run -p build-ids:all --explain",
        "run -p build-ids:all --explain z.data",
        "run -p mmap2-build-ids,build-ids --explain",
        "run -p mmap2-build-ids:hit:root=a\\,b -p build-ids:feature-only --explain z.data",
        "run -p build-ids --explain < pipe.data",
    ];
    same("passes", "explain", &place.say_all(&chains));
}

/// One recording with a transformation: its report, the input and the output.
struct Change {
    name: &'static str,
    input: &'static str,
    line: &'static str,
    sections: &'static [&'static str],
    kinds: &'static [&'static str],
}

const NONE: &[&str] = &[];
const IDS: &[&str] = &["feature BUILD_ID"];
/// Ids for the program in crafted recordings, for the kernel and the vdso.
const KNOWN: &str = "b000000000000000000000000000000000000001 /tmp/perfx-data/work/burn,abcdef [kernel.kallsyms],0123456789abcdef [vdso]";

const CHANGES: &[Change] = &[
    Change {
        name: "inject-b",
        input: "recorded/no-buildid.p61.data",
        line: "inject -b",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "inject-b-call-chains",
        input: "crafted/sample-chain-le.data",
        line: "inject -b",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "inject-b-guest",
        input: "crafted/guest-le.data",
        line: "inject -b",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "inject-b-big-endian",
        input: "crafted/guest-be.data",
        line: "inject -b",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "inject-b-compressed",
        input: "crafted/z-two-events.data",
        line: "inject -b",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "inject-b-pipe",
        input: "recorded/pipe.p61.data",
        line: "inject -b --to pipe",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "inject-b-forks",
        input: "recorded/forks.p73.data",
        line: "inject -b",
        sections: IDS,
        kinds: &["MMAP", "MMAP2", "HEADER_BUILD_ID"],
    },
    Change {
        name: "inject-b-aux",
        input: "crafted/aux-odd-size.data",
        line: "inject -b",
        sections: &["feature BUILD_ID", "feature AUXTRACE"],
        kinds: &["MMAP", "MMAP2", "HEADER_BUILD_ID", "AUXTRACE"],
    },
    Change {
        name: "buildid-all",
        input: "recorded/no-buildid.p61.data",
        line: "inject --buildid-all",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "mmap2-buildids",
        input: "recorded/no-buildid.p61.data",
        line: "inject -B",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "mmap2-buildid-all",
        input: "recorded/data-mmap.p61.data",
        line: "inject --mmap2-buildid-all",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "mmap2-buildid-all-mmap",
        input: "crafted/v1-104-attr64-be.data",
        line: "inject --mmap2-buildid-all",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "both",
        input: "crafted/two-le.data",
        line: "inject --mmap2-buildid-all --buildid-all",
        sections: IDS,
        kinds: MAPS,
    },
    Change {
        name: "feature-only",
        input: "crafted/two-le.data",
        line: "run -p build-ids:feature-only:foreign",
        sections: IDS,
        kinds: MAPS,
    },
];

#[test]
fn injected_ids() {
    for change in CHANGES {
        let place = Place::new(&[("in.data", change.input)]);
        place.write("ids", format!("{KNOWN},ab /usr/lib/x86_64-linux-gnu/libc.so.6").replace(',', "\n"));
        let options =
            if change.line.starts_with("run") { "" } else { " --foreign --known-build-ids file://ids" };
        let text = [
            format!("{}\n", change.input),
            place.say(&format!("{}{options} -v in.data -o out.data", change.line)),
            place.dump("in.data", change.sections, change.kinds),
            place.dump("out.data", change.sections, change.kinds),
        ];
        same("inject", change.name, &text.join("\n"));
    }
}

#[test]
fn ids_from_everywhere() {
    // One id is in the recording, one in the list, one in a sysroot, one in a cache, and the last one
    // nowhere.
    let place = Place::new(&[("perf.data", "recorded/buildid-default.p61.data")]);
    place.write("root/usr/lib/x86_64-linux-gnu/libc.so.6", elf_with_id(2, 1, &[0xc1; 16]));
    place.write("cache/tmp/perfx-data/work/burn_noid/cacacacacacacacacacacacacacacacacacacaca/elf", "");
    let line = "inject --buildid-all --foreign --root root --buildid-dir cache --known-build-ids 'ab /usr/bin/dash,cd /bin/sh' -v -o out.data";
    let text = [
        place.say(line),
        place.dump("perf.data", IDS, MAPS),
        place.dump("out.data", IDS, &["HEADER_BUILD_ID"]),
    ];
    same("inject", "sources", &text.join("\n"));
}

#[test]
fn in_place() {
    let place = Place::new(&[("perf.data", "crafted/two-le.data")]);
    place.write("ids", KNOWN.replace(',', "\n"));
    let before = place.dump("perf.data", &["header", "feature"], MAPS);
    let said = place.say_all(&[
        "inject -b --foreign --known-build-ids file://ids --in-place -n",
        "inject -b --foreign --known-build-ids file://ids --in-place",
        "inject -b --foreign --known-build-ids file://ids --in-place",
    ]);
    let after = place.dump("perf.data", &["header", "feature"], MAPS);
    let only_changed: Vec<_> =
        after.lines().filter(|line| !before.contains(line)).map(|line| format!("+ {line}\n")).collect();
    same(
        "inject",
        "in-place",
        &format!("{said}\n--- lines of the dump that are new\n{}", only_changed.concat()),
    );
}

#[test]
fn copies() {
    let all = &["header", "event", "feature"];
    for (name, input, line, sections, kinds) in [
        (
            "file-to-pipe",
            "crafted/guest-le.data",
            "--to pipe",
            &["header", "feature BUILD_ID"][..],
            &["HEADER_ATTR", "HEADER_FEATURE", "EVENT_UPDATE", "HEADER_BUILD_ID"][..],
        ),
        (
            "pipe-to-file",
            "crafted/features-pipe-unknown.data",
            "",
            &["header", "feature"],
            &["HEADER_FEATURE"],
        ),
        (
            "pipe-late-features",
            "crafted/features-pipe-late.data",
            "",
            all,
            &["HEADER_ATTR", "HEADER_FEATURE"],
        ),
        ("directory-to-file", "crafted/dir.data", "", &["header", "feature DIR_FORMAT"], &["SAMPLE"]),
        (
            "compressed-directory-to-file",
            "crafted/dir-z.data",
            "",
            &["header", "feature DIR_FORMAT", "feature COMPRESSED"],
            &["SAMPLE"],
        ),
        ("aux-index", "crafted/aux-index-missing.data", "", &["header", "feature AUXTRACE"], NONE),
        ("attr-grows", "crafted/attr-mixed-sizes.data", "", &["header", "event"], NONE),
        (
            "unknown",
            "crafted/features-unknown-be.data",
            "--to pipe",
            &["header", "feature"],
            &["HEADER_FEATURE"],
        ),
    ] {
        let place = Place::new(&[("in.data", input)]);
        let text = [
            format!("{input}\n"),
            place.say(format!("copy in.data -o out.data {line}").trim_end()),
            place.dump("in.data", sections, kinds),
            place.dump("out.data", sections, kinds),
        ];
        same("copy", name, &brief(&text.join("\n")));
    }
    let place = Place::new(&[("in.data", "crafted/dir-kcore.data")]);
    let text = [
        place.say_all(&["copy in.data -o out.data", "copy in.data --to file -o flat.data"]),
        place.tree("in.data"),
        place.tree("out.data"),
    ];
    same("copy", "kcore-directory", &text.join("\n"));
}

/// Without zero fields of attrs, and without repetitions in EVENT_DESC.
fn brief(text: &str) -> String {
    let mut again = false;
    let kept = text.lines().filter(|line| {
        if !line.starts_with("    ") {
            again = again && line.starts_with("  ");
            again |= line.starts_with("feature EVENT_DESC");
        }
        let zero = line.starts_with("  ") && [": 0", ": 0x0", ": -"].iter().any(|end| line.ends_with(end));
        !(zero || again && line.starts_with("    "))
    });
    kept.map(|line| format!("{line}\n")).collect()
}

#[test]
fn dumps() {
    for (name, fixture, options) in [
        ("kinds-of-the-kernel", "kinds-le", ""),
        (
            "kinds-of-the-kernel-big-endian",
            "kinds-be",
            "--only MMAP2,READ,AUX,NAMESPACES,BPF_EVENT,TEXT_POKE,KSYMBOL",
        ),
        ("kinds-of-perf", "kinds-user-le", ""),
        (
            "kinds-of-perf-big-endian",
            "kinds-user-be",
            "--only ID_INDEX,AUXTRACE,STAT,EVENT_UPDATE,TIME_CONV,CPU_MAP",
        ),
        (
            "kinds-of-a-pipe",
            "kinds-user-pipe-le",
            "--only HEADER_ATTR,HEADER_EVENT_TYPE,HEADER_TRACING_DATA,HEADER_BUILD_ID,HEADER_FEATURE",
        ),
        ("kinds-unknown", "kind-many", ""),
        ("sample-all-bits", "sample-all-weight-struct-le", ""),
        ("sample-all-bits-big-endian", "sample-all-be", "--only SAMPLE"),
        ("sample-branches", "sample-branch-hw-index-between-le", "--only SAMPLE"),
        ("sample-call-chains", "sample-chain-le", "--only SAMPLE"),
        ("sample-groups", "sample-read-group-all-le", "--only SAMPLE,READ"),
        ("sample-deferred-call-chain", "sample-deferred-le", "--only SAMPLE,CALLCHAIN_DEFERRED"),
        ("sample-unknown-bit", "sample-bit25-le", ""),
        ("sample-too-short", "val-sample-branch", "--only SAMPLE"),
        ("attr-with-unknown-tail", "attr-152-be", ""),
        ("compressed", "z-mixed-le", "--only 0,1,2,3,9,10,68,81,83"),
        ("compressed-stored", "z-mixed-le", "--stored --only 1,3,9,10,68,81,83"),
        ("compressed-big-endian", "z-straddle-be", "--only SAMPLE"),
        ("directory", "dir", "--only COMM,SAMPLE"),
        ("raw", "order-equal", "--raw --only COMM,FINISHED_ROUND"),
        ("ndjson", "kind-87-payload", "--format ndjson"),
        ("json", "kind-87-payload", "--format json"),
        ("json-only", "kind-87-payload", "--json --only COMM"),
        ("faults", "val-cut-in-feature", ""),
        ("guest", "guest-be", "--only MMAP,MMAP2,SAMPLE,ID_INDEX,HEADER_BUILD_ID"),
    ] {
        let place = Place::new(&[("in.data", &format!("crafted/{fixture}.data"))]);
        let shown = place.say(format!("dump in.data {options}").trim_end());
        let json = options.contains("json");
        same("dump", name, &format!("crafted/{fixture}.data\n{}", if json { shown } else { brief(&shown) }));
    }
}

#[test]
fn dumps_of_features() {
    for (name, fixture, section) in [
        ("features", "features-all-le", "feature"),
        ("features-big-endian", "features-all-be", "feature"),
        ("features-unknown", "features-all-unknown-le", "feature unknown"),
    ] {
        let place = Place::new(&[("in.data", &format!("crafted/{fixture}.data"))]);
        same("dump", name, &brief(&place.dump("in.data", &[section], NONE)));
    }
}

#[test]
fn reports() {
    let place = Place::new(&[
        ("perf.data", "recorded/no-buildid.p61.data"),
        ("ids.data", "recorded/buildid-mmap.p61.data"),
        ("empty.data", "crafted/no-features.data"),
        ("aux.data", "crafted/aux-empty.data"),
        ("torn.data", "recorded/pipe-cut.p61.data"),
        ("odd.data", "crafted/attr-stride.data"),
        ("kcore.data", "crafted/dir-kcore.data"),
        ("cut.data", "crafted/val-cut-in-feature.data"),
    ]);
    place.write("list", KNOWN.replace(',', "\n"));
    let ids = "--foreign --known-build-ids file://list";
    let mut lines = Vec::new();
    for level in ["", " -v", " -q"] {
        lines.push(format!("inject -b{level} {ids} -f -o out"));
    }
    for line in [
        "inject -b --foreign -n ids.data",
        "inject -B --foreign -n ids.data",
        "inject --mmap2-buildid-all --foreign -n ids.data",
        "inject -b --foreign -n empty.data",
        "inject -b --foreign -n aux.data",
        "inject -b --foreign --in-place ids.data",
        "inject -b --foreign -n -v perf.data --known-build-ids 'ab /not/there,cd /bin/x'",
        "inject -b --foreign -n -vv empty.data",
        "dump --only COMPRESSED empty.data",
        "dump --only COMPRESSED --stored empty.data",
        "copy empty.data --backup -f -o out",
        "copy empty.data -n --backup -o out",
        "copy empty.data --backup -o new",
        "copy torn.data -f -o out",
        "copy odd.data -q -f -o out",
        "copy kcore.data --to pipe",
        "copy cut.data -q -f -o out",
    ] {
        lines.push(line.to_owned());
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    same("reports", "reports", &place.say_all(&lines));
}

#[test]
fn errors_of_usage() {
    let place = Place::new(&[("perf.data", "crafted/two-le.data")]);
    let lines = [
        "frobnicate",
        "copy --frobnicate",
        "copy a b",
        "copy a -i b",
        "copy --to tape",
        "copy --to file",
        "copy -@ many",
        "copy -o",
        "copy --in-place -o x",
        "copy --in-place --to pipe",
        "copy --in-place - < perf.data",
        "dump --format xml",
        "dump --only SAMPLE,SIMPLE",
        "dump --only perf_record_comresed",
        "dump --only XYZ",
        "dump --json --format ndjson",
        "copy --backup",
        "copy --backup -o /dev/null",
        "copy --color sometimes",
        "completion tcsh",
        "man",
        "inject -b --root missing",
        "inject -b --buildid-dir perf.data",
        "run -p build-ids:root=missing",
        "run -p mmap2-buildids",
        "inject",
        "inject -b --known-build-ids",
    ];
    same("errors", "usage", &place.say_all(&lines));
    let lines = [
        "run", "run -p ''", "run -p build-idz", "run -p build-ids:al", "run -p build-ids:all=1",
        "run -p build-ids:known", "run -p build-ids,",
    ];
    same("errors", "usage-of-passes", &place.say_all(&lines));
}

#[test]
fn errors_of_known_ids() {
    let place = Place::new(&[("perf.data", "crafted/two-le.data")]);
    place.write("list", "# of the last release\nab /bin/a\nxyz /bin/b\n");
    place.write("twice", "ab /bin/a\ncd /bin/a\n");
    let lists = [
        "''",
        "'ab'",
        "'ab /bin/a,abc /bin/b'",
        "'ab /bin/a,ab /bin/b,cd /bin/a'",
        "file://list",
        "file://twice",
        "file://missing",
        "'000102030405060708090a0b0c0d0e0f1011121314 /bin/a'",
        "'0000 /bin/a'",
        "/bin/a",
    ];
    let lines = lists.map(|list| format!("inject -b --foreign -n --known-build-ids {list}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    same("errors", "known-ids", &place.say_all(&lines));
}

#[test]
fn errors_of_the_input() {
    let names = [
        "val-empty", "val-text", "val-bad-magic", "val-header-only-24", "val-header-size-105",
        "val-attr-size-0", "val-attrs-outside", "val-ids-outside", "val-data-size-0", "val-data-beyond",
        "val-cut-in-data", "val-size-0", "val-size-4", "val-size-beyond", "val-swapped", "val-pipe-empty",
        "val-pipe-cut-header", "val-pipe-attr-size", "val-pipe-swapped", "val-tracing-data-beyond",
        "aux-overflow", "dir-no-data", "dir-alone", "dir-version-2", "dir-cut", "val-attrs-many",
    ];
    let files = names.map(|name| (format!("{name}.data"), format!("crafted/{name}.data")));
    let files: Vec<_> = files.iter().map(|(name, fixture)| (name.as_str(), fixture.as_str())).collect();
    let place = Place::new(&files);
    place.write("folder/file", "");
    let mut lines = vec![
        "copy".to_owned(),
        "copy missing.data -o out".to_owned(),
        "copy folder -o out".to_owned(),
        "copy - -o out".to_owned(),
    ];
    lines.extend(names.map(|name| format!("copy {name}.data -o out-{name}")));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    same("errors", "input", &place.say_all(&lines));
    let names = [
        "z-corrupt-magic-le", "z-corrupt-block-le", "z-header-cut-le", "z-garbage-inside-le",
        "z-zero-size-inside-le", "z-nested-le", "z-bomb-le", "z-endless-le", "z-unfinished-le",
        "two-positions-differ", "two-sample-id-all-mixed",
    ];
    let files = names.map(|name| (format!("{name}.data"), format!("crafted/{name}.data")));
    let files: Vec<_> = files.iter().map(|(name, fixture)| (name.as_str(), fixture.as_str())).collect();
    let place = Place::new(&files);
    let lines = names.map(|name| format!("inject -b --foreign {name}.data -o out-{name}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    same("errors", "input-of-passes", &place.say_all(&lines));
}

#[test]
fn doctor_and_repair() {
    let place = Place::new(&[
        ("sound.data", "recorded/plain.p61.data"),
        ("newer.data", "recorded/z.p73.data"),
        ("inject-b.data", "recorded/inject-b.p61.data"),
        ("killed.data", "recorded/killed.p61.data"),
        ("cut.data", "recorded/cut-05988.p61.data"),
        ("stat.data", "recorded/stat.p61.data"),
        ("late.data", "crafted/order-late.data"),
        ("index.data", "crafted/aux-index-outside.data"),
        ("datasize.data", "crafted/z-datasize-zero-le.data"),
        ("nested.data", "crafted/z-nested-le.data"),
        ("ids.data", "crafted/unknown-id-sample.data"),
        ("dir.data", "crafted/dir-cut.data"),
        ("magic.data", "crafted/val-bad-magic.data"),
    ]);
    same("doctor", "codes", &place.say("doctor --list"));
    let lines = [
        "doctor --foreign sound.data newer.data",
        "doctor --foreign inject-b.data stat.data late.data index.data datasize.data",
        "doctor --foreign --places 0 cut.data",
        "doctor --foreign killed.data nested.data dir.data magic.data missing.data",
        "doctor --foreign -q sound.data ids.data",
        "doctor --foreign - < inject-b.data",
        "doctor --foreign --json sound.data magic.data",
        "doctor --foreign --format ndjson late.data",
        "doctor - -i -",
        "doctor --list sound.data",
    ];
    same("doctor", "says", &place.say_all(&lines));
    let lines = [
        "repair sound.data -o sound.out",
        "repair inject-b.data -o inject-b.out",
        "repair stat.data -o stat.out",
        "repair index.data -o index.out",
        "repair -n datasize.data",
        "repair datasize.data -o datasize.out",
        "repair ids.data -o ids.out",
        "repair --fault mmap-len inject-b.data -o not.out",
        "repair --fault zstd sound.data",
        "run -p repair:fault=mmap-len stat.data -o run.out",
        "run -p repair:fault=zstd stat.data -o run.out",
        "doctor --foreign inject-b.out stat.out index.out datasize.out ids.out",
    ];
    same("doctor", "repair", &place.say_all(&lines));
}

#[test]
fn errors_of_the_output() {
    let place = Place::new(&[("perf.data", "crafted/two-le.data"), ("kcore.data", "crafted/dir-kcore.data")]);
    place.write("there", "mine");
    fs::copy(place.path("perf.data"), place.path("perf.data.old")).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    std::os::unix::fs::symlink("perf.data", place.path("link")).unwrap();
    let lines = [
        "copy -o there",
        "copy -n -o there",
        "copy -n -o missing/out",
        "copy -n -f -o link",
        "copy -o /dev/full",
        "copy -o perf.data",
        "copy perf.data.old --backup -o perf.data",
        "copy -f -o perf.data",
        "copy -f -o link",
        "copy -o missing/out",
        "copy -o there/out",
        "copy -f -o folder",
        "copy -f kcore.data -o kcore.data",
        "copy -f kcore.data -o kcore.data/data",
        "copy --in-place kcore.data",
        "copy --in-place missing.data",
    ];
    same("errors", "output", &place.say_all(&lines));
}
