//! The README, the guide and docs/limits.md are correct: every example is run and prints what the page shows, and
//! the tables of the pages are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::house::packages;
use crate::snapshots::copy_all;
use crate::support::{Fixture, Ran, Stdin, Tier, clean, perf, root, run, skipped, temp};
use crate::tiers;

/// The README, docs/limits.md and every page of the guide, by path from the project's root.
fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("docs/guide")).unwrap();
    let mut pages: Vec<_> =
        entries.map(|entry| Path::new("docs/guide").join(entry.unwrap().file_name())).collect();
    pages.extend(["README.md", "docs/limits.md"].map(PathBuf::from));
    pages.sort();
    pages
}

/// A shell whose working directory has the recordings named in the pages. `perf.data`, `host.data` and
/// `guest.data` stand for the reader's own files.
struct Shell {
    folder: tempfile::TempDir,
    path: String,
    /// `perf record` works here: `perf` is 6.1, with which the pages were made, and the kernel allows this
    /// user to sample.
    records: bool,
    /// It records tracepoints, too.
    traces: bool,
}

impl Shell {
    fn new() -> Shell {
        let shell = Shell { folder: temp(), path: path_with_perfx(), records: false, traces: false };
        let here = |name: &str| shell.folder.path().join(name);
        copy_all(&Fixture::new("recorded/forks.p61.data").path, &here("perf.data"));
        std::os::unix::fs::symlink(root().join("tests/data/sysroot"), here("sysroot")).unwrap();
        std::os::unix::fs::symlink(root().join("tests/data/unstripped"), here("unstripped")).unwrap();
        std::os::unix::fs::symlink(root().join("tests/data/jit"), here("dumps")).unwrap();
        std::os::unix::fs::symlink(root().join("tests/data/trace/root"), here("traced")).unwrap();
        std::os::unix::fs::symlink(root().join("tests/data/locks.kallsyms"), here("kallsyms")).unwrap();
        // With the symbols of one program.
        fs::create_dir_all(here("named/opt/perfx/trace")).unwrap();
        fs::copy(root().join("tests/data/trace/loop-symbols"), here("named/opt/perfx/trace/loop")).unwrap();
        fs::write(here("program"), "#!/bin/sh\ntrue\n").unwrap();
        let records = |options: &str| {
            let line = format!("chmod +x program && perf record {options} -o /dev/null ./program");
            shell.run(&line).code == Some(0)
        };
        let is_6_1 = perf("perf").is_some_and(|perf| perf.program() == "perf");
        let (records, traces) = (is_6_1 && records(""), is_6_1 && records("-e sched:sched_switch"));
        Shell { records, traces, ..shell }
    }

    fn run(&self, line: &str) -> Ran {
        let mut shell = clean("bash");
        let line = format!("exec 2>&1; set -o pipefail; {line}");
        shell.args(["-c", &line]).current_dir(self.folder.path()).env("PATH", &self.path);
        shell.env("NO_COLOR", "1").env("HOME", self.folder.path());
        run(&mut shell, Stdin::Null)
    }

    /// Copies the recordings of tests/data that a command names to the working directory.
    fn provide(&self, line: &str) {
        let data = root().join("tests/data");
        let names = line.split([' ', ',']).map(|word| word.split('/').next().unwrap_or(word));
        for name in names.filter(|name| name.ends_with(".data")) {
            let here = self.folder.path().join(name);
            let places = ["recorded", "crafted", "parts", "trace"].map(|kind| data.join(kind).join(name));
            let packed = data.join(format!("guests/{name}.zst"));
            match places.iter().find(|place| place.exists()) {
                _ if here.exists() => {}
                Some(place) => copy_all(place, &here),
                None if packed.exists() => {
                    fs::write(here, zstd::decode_all(fs::File::open(packed).unwrap()).unwrap()).unwrap();
                }
                None => {}
            }
        }
    }
}

fn path_with_perfx() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_perfx")).parent().unwrap();
    format!("{}:{}", program.display(), std::env::var("PATH").unwrap())
}

/// True if the output matches the lines on a page. `…` matches any number of lines, or the rest of one.
fn shows(shown: &[&str], printed: &str) -> bool {
    let mut lines = printed.lines();
    if !shown.iter().any(|line| line.contains('…')) {
        return shown.is_empty() || lines.eq(shown.iter().copied());
    }
    let mut wanted = shown.iter().filter(|line| !line.contains('…'));
    wanted.all(|wanted| lines.any(|line| line == *wanted))
}

tiers!(the_examples_on_every_page_print_what_the_page_shows);
/// To update the pages with the examples' output: `INSTA_UPDATE=always cargo test --test it -- pages::`.
/// Examples with `…` are not changed.
fn the_examples_on_every_page_print_what_the_page_shows(tier: Tier) {
    let update = std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always");
    let mut wrong = Vec::new();
    for page in tier.first(3, &pages()) {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let shell = Shell::new();
        let mut lines = text.lines().peekable();
        let mut new = String::new();
        let mut in_console = false;
        while let Some(line) = lines.next() {
            new += &format!("{line}\n");
            in_console = if in_console { line != "```" } else { line == "```console" };
            let Some(command) = line.strip_prefix("$ ").filter(|_| in_console) else { continue };
            let mut shown = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ") && *line != "```") {
                shown.push(line);
            }
            shell.provide(command);
            let needs_perf = command.split(" | ").any(|part| part.starts_with("perf "));
            if needs_perf && !shell.records || command.contains("-e sched:") && !shell.traces {
                eprintln!("not run, because perf record does not work here: {command}");
            } else {
                let ran = shell.run(command);
                let printed = ran.text();
                if !matches!(ran.code, Some(0 | 3 | 4)) {
                    wrong.push(format!(
                        "{}: $ {command}\nexit code {:?}:\n{printed}",
                        page.display(),
                        ran.code
                    ));
                } else if !shows(&shown, &printed) {
                    if update && !shown.iter().any(|line| line.contains('…')) {
                        shown.clear();
                        new += &printed;
                    } else {
                        let shown = shown.join("\n");
                        wrong.push(format!(
                            "{}: $ {command}\n{shown}\n--- but it prints:\n{printed}",
                            page.display()
                        ));
                    }
                }
            }
            shown.iter().for_each(|line| new += &format!("{line}\n"));
        }
        if update && new != text {
            fs::write(root().join(page), new).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// In a folder with the project's `tests`, in which cargo would have made `target`.
#[test]
fn the_first_command_of_the_readme_can_be_run_twice() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, after) = readme.split_once("```sh\ncargo run --release -- ").unwrap();
    let arguments: Vec<_> = after.lines().next().unwrap().split(' ').collect();
    let folder = temp();
    std::os::unix::fs::symlink(root().join("tests"), folder.path().join("tests")).unwrap();
    fs::create_dir(folder.path().join("target")).unwrap();
    for _ in 0..2 {
        let mut command = crate::support::perfx_command();
        let ran = run(command.args(&arguments).current_dir(folder.path()), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        for shown in
            ["b000000000000004 /tmp/perfx-data/work/burn_id8, from root", "4 entries into feature BUILD_ID"]
        {
            assert!(ran.stderr.contains(shown), "{}", ran.stderr);
        }
        assert!(folder.path().join("target/injected.data").exists());
    }
}

#[test]
fn every_link_on_a_page_leads_somewhere() {
    let others = ["CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/benchmarks.md"];
    for page in pages().into_iter().chain(others.map(PathBuf::from)) {
        let path = root().join(&page);
        for file in links(&fs::read_to_string(&path).unwrap()) {
            assert!(path.parent().unwrap().join(&file).exists(), "{}: {file}", page.display());
        }
    }
}

/// The other files that a page links to.
fn links(page: &str) -> Vec<String> {
    let links = page.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files =
        links.filter(|(link, _)| !link.contains("://")).filter_map(|(link, _)| link.split('#').next());
    files.filter(|file| !file.is_empty()).map(str::to_owned).collect()
}

/// Half of the links in the package of perfx were dead: the guide was not in it.
#[test]
fn no_link_in_a_package_of_cargo_leads_out_of_it() {
    if Command::new(env!("CARGO")).arg("--version").output().is_err() {
        return skipped("links in packages: cargo is not executable for this user");
    }
    for folder in packages() {
        let folder = root().join(folder);
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["package", "--list", "--allow-dirty", "--offline", "--quiet"]).current_dir(&folder);
        let listed = run(&mut cargo, Stdin::Null).done().unwrap().text();
        let files: BTreeSet<&Path> = listed.lines().map(Path::new).collect();
        let pages = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md"));
        for page in pages {
            for link in links(&fs::read_to_string(folder.join(page)).unwrap()) {
                let target = folder.join(page.parent().unwrap()).join(&link).canonicalize().unwrap();
                let inside = target.strip_prefix(folder.canonicalize().unwrap());
                let is_there = inside.is_ok_and(|inside| files.iter().any(|file| file.starts_with(inside)));
                assert!(is_there, "{}: {link}", folder.join(page).display());
            }
        }
    }
}

/// Every Markdown file below a folder, except in build folders and hidden ones.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.as_encoded_bytes().starts_with(b".") {
                found.extend(markdown(&entry.path()));
            }
        } else if entry.path().extension().is_some_and(|extension| extension == "md") {
            found.push(entry.path());
        }
    }
    found
}

/// The test had a list of pages, and ARCHITECTURE.md was not on it.
#[test]
fn prose_keeps_to_120_columns() {
    let pages = markdown(root());
    assert!(pages.contains(&root().join("ARCHITECTURE.md")));
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let mut in_block = false;
        for line in text.lines() {
            in_block ^= line.trim_start().starts_with("```");
            // An address cannot be broken.
            let prose = !in_block && !line.starts_with('|') && !line.contains("://");
            assert!(!prose || line.chars().count() <= 120, "{}: {line}", page.display());
        }
    }
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 150);
}

/// The packages in the project's manifests, except the project's own.
fn dependencies() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut own = BTreeSet::new();
    for manifest in ["Cargo.toml", "tests/fuzz/Cargo.toml"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"]);
        let metadata = run(cargo.arg(root().join(manifest)), Stdin::Null).done().unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
        for package in metadata["packages"].as_array().unwrap() {
            own.extend(package["name"].as_str().map(str::to_owned));
            let dependencies = package["dependencies"].as_array().unwrap();
            names.extend(dependencies.iter().filter_map(|named| named["name"].as_str()).map(str::to_owned));
        }
    }
    &names - &own
}

#[test]
fn every_dependency_is_justified_and_no_other() {
    if Command::new(env!("CARGO")).arg("--version").output().is_err() {
        return skipped("the list of dependencies: cargo is not executable for this user");
    }
    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let listed: BTreeSet<_> =
        rows.map(|(name, _)| name.to_owned()).filter(|name| name != "package").collect();
    assert_eq!(listed, dependencies());
}
