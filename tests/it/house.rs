//! The files of a package do not import each other in circles, libraries return errors of their own types,
//! the pages list the dependencies of each package, and each says what it promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// The path of a module below the root of its package, or of an item in it.
type Names = Vec<String>;

/// The code of a file, without comments and its own tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// The code of each module of a package that is a file.
fn modules(start: PathBuf) -> BTreeMap<Names, String> {
    let mut modules = BTreeMap::new();
    let mut next = vec![(start, Names::new())];
    while let Some((file, module)) = next.pop() {
        let code = code(&file);
        let is_front = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
        let folder = if is_front { file.parent().unwrap().to_owned() } else { file.with_extension("") };
        for line in code.lines().filter_map(|line| line.strip_suffix(';')) {
            let Some((before, name)) = line.trim_start().split_once("mod ") else { continue };
            if before.is_empty() || before.starts_with("pub") {
                let files = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
                let child = [&module[..], &[name.to_owned()]].concat();
                next.extend(files.into_iter().filter(|file| file.exists()).map(|file| (file, child.clone())));
            }
        }
        modules.insert(module, code);
    }
    modules
}

/// Reads the paths at the front of `rest`, where one `use` may name several, and adds each to `found`.
fn read_paths<'a>(mut rest: &'a str, before: &[String], found: &mut Vec<Names>) -> &'a str {
    let mut path = before.to_vec();
    loop {
        let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
        path.push(rest[..end].to_owned());
        rest = &rest[end..];
        let Some(more) = rest.strip_prefix("::") else { break };
        rest = more;
        if let Some(mut list) = rest.strip_prefix('{') {
            while !list.starts_with('}') {
                list = read_paths(list.trim_start(), &path, found);
                let end = list.find([',', '}']).unwrap_or(list.len());
                list = list[end..].trim_start_matches(',').trim_start();
            }
            return &list[1..];
        }
    }
    found.push(path);
    rest
}

/// The paths in the code of a module, from the root of the package on; and those that it re-exports.
fn paths(code: &str, module: &[String], modules: &BTreeMap<Names, String>) -> [Vec<Names>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    let is_name = |char: char| char.is_alphanumeric() || char == '_' || char == ':' || char == '.';
    let mut at = 0;
    while let Some(start) = code[at..].find(|char: char| char.is_alphabetic()).map(|start| at + start) {
        let mut read = Vec::new();
        let inside = code[..start].ends_with(is_name);
        at = code.len() - read_paths(&code[start..], &[], &mut read).len();
        let line = code[..start].rsplit('\n').next().unwrap_or_default();
        let is_export = line.starts_with("pub") && line.ends_with("use ");
        for mut path in read.into_iter().filter(|path| !inside && path.len() > 1) {
            let ups = path.iter().take_while(|name| *name == "super").count();
            let is_child = || modules.contains_key(&[module, &path[..1]].concat());
            let (from, skipped) = match path[0].as_str() {
                "crate" => (0, 1),
                "self" => (module.len(), 1),
                "super" => (module.len() - ups, ups),
                _ if is_child() => (module.len(), 0),
                _ => continue,
            };
            path.drain(..skipped);
            found[usize::from(is_export)].push([&module[..from], &path].concat());
        }
    }
    found
}

/// The module in which an item is, wherever it is re-exported.
fn home(item: &[String], modules: &BTreeMap<Names, String>, exports: &BTreeMap<Names, Vec<Names>>) -> Names {
    let inside = (0..=item.len()).rev().find(|&len| modules.contains_key(&item[..len])).unwrap_or(0);
    let (module, rest) = item.split_at(inside);
    let exported =
        exports[module].iter().find(|export| rest.first().is_some_and(|name| export.last() == Some(name)));
    exported.map_or_else(|| module.to_vec(), |export| home(export, modules, exports))
}

/// The imports of a package that are part of a circle, or between two circles.
fn circles(start: PathBuf) -> Vec<String> {
    let modules = modules(start);
    let paths: BTreeMap<_, _> =
        modules.iter().map(|(name, code)| (name.clone(), paths(code, name, &modules))).collect();
    let exports = paths.iter().map(|(name, [_, exports])| (name.clone(), exports.clone())).collect();
    let mut imports = BTreeSet::new();
    for (name, [own, _]) in &paths {
        let homes = own.iter().map(|item| home(item, &modules, &exports)).filter(|home| home != name);
        imports.extend(homes.map(|home| (name.clone(), home)));
    }
    loop {
        let before = imports.len();
        let [from, to]: [BTreeSet<Names>; 2] = [
            imports.iter().map(|edge| edge.0.clone()).collect(),
            imports.iter().map(|edge| edge.1.clone()).collect(),
        ];
        imports.retain(|edge| to.contains(&edge.0) && from.contains(&edge.1));
        if imports.len() == before {
            return imports
                .iter()
                .map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::")))
                .collect();
        }
    }
}

pub(crate) fn packages() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    serde_json::from_str(members).unwrap()
}

/// The folders of the packages that are meant for other programs.
pub(crate) const PUBLIC: [&str; 5] = ["src/format", "src/build-id", "src/demangle", "src/jit", "src/trace"];

/// crates.io shows a package without the rest of the repository.
#[test]
fn every_package_has_licences_and_says_what_it_promises() {
    let read =
        |path: String| fs::read_to_string(root().join(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let workspace = read("Cargo.toml".to_owned());
    for package in packages() {
        let manifest = read(format!("{package}/Cargo.toml"));
        for wanted in ["\nlicense.workspace = true", "\nrepository.workspace = true", "\"/LICENSE-*\""] {
            assert!(manifest.contains(wanted), "{package}/Cargo.toml has no {wanted:?}");
        }
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(read(format!("{package}/{licence}")) == read(licence.to_owned()), "{package}/{licence}");
        }
        if package == "." {
            continue;
        }
        let is_public = PUBLIC.contains(&&*package);
        let front = read(format!("{package}/README.md"));
        let words = front.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains("versions follow semantic versioning"), is_public, "{package}/README.md");
        assert_eq!(words.contains("internal to perfx, with no promises"), !is_public, "{package}/README.md");
        assert!(!is_public || front.contains("```rust\n"), "{package}/README.md has no example");
        let path = format!("path = \"{package}\", version = \"=");
        assert_eq!(workspace.contains(&path), !is_public, "the version of {package} is pinned");
    }
}

#[test]
fn ci_checks_the_oldest_compiler_that_the_manifest_permits() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let manifest = read("Cargo.toml");
    let oldest = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \""))
        .unwrap()
        .trim_end_matches('"');
    assert!(read(".github/workflows/ci.yml").contains(&format!("rust:{oldest}-bookworm")));
    assert!(read("README.md").contains(&format!("Rust toolchain ({oldest} or later)")));
}

/// A caller can match on the error of a library, and needs no other crate for it.
#[test]
fn no_library_uses_anyhow() {
    for package in packages().iter().filter(|package| *package != ".") {
        let folder = root().join(package);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("anyhow"), "{package}/Cargo.toml");
        for (module, code) in modules(folder.join("lib.rs")) {
            assert!(!code.contains("anyhow"), "{package}: {}", module.join("::"));
        }
    }
}

#[test]
fn no_file_imports_in_a_circle() {
    let mut found = Vec::new();
    for package in packages() {
        let folder = if package == "." { "src" } else { &package };
        let lines = circles(root().join(folder).join("lib.rs"));
        found.extend(lines.into_iter().map(|line| format!("{folder}: {line}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The fuzz targets are compiled by hand, with a few files of these tests.
#[test]
fn the_fuzz_targets_have_each_file_that_their_files_use() {
    for target in ["fuzz_targets/body.rs", "seeds.rs"] {
        let code = fs::read_to_string(root().join("tests/fuzz").join(target)).unwrap();
        let modules: Vec<&str> = code.lines().filter_map(|line| line.strip_prefix("mod ")).collect();
        assert!(modules.len() >= 3, "{target}: {modules:?}");
        for module in modules.iter().map(|module| module.trim_end_matches(';')) {
            let code = fs::read_to_string(root().join(format!("tests/it/{module}.rs"))).unwrap();
            // The rest runs only as ordinary tests.
            let shared = code.split("#[cfg(test)]").next().unwrap();
            for line in shared.lines().filter_map(|line| line.split_once("crate::").map(|(_, name)| name)) {
                let used =
                    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap();
                assert!(modules.contains(&&*format!("{used};")), "{target}: {module}.rs uses {used}");
            }
        }
    }
}

/// The name of the package in this folder without `perfx-`, and those of its dependencies.
fn package(folder: &str) -> (String, BTreeSet<String>) {
    let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let short = |name: &str| name.trim_matches('"').trim_start_matches("perfx-").to_owned();
    let names = packages().into_iter().map(|folder| short(folder.rsplit('/').next().unwrap())).collect();
    let named = manifest.lines().find_map(|line| line.strip_prefix("name = ")).map(short).unwrap();
    let uses = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default().lines();
    let uses = uses.take_while(|line| !line.starts_with('['));
    let uses: BTreeSet<_> = uses.filter_map(|line| Some(short(line.split_once(".workspace")?.0))).collect();
    (named, uses.intersection(&names).cloned().collect())
}

#[test]
fn the_pages_say_which_package_uses_which() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, block) = page.split_once("that each one uses:\n\n```text\n").unwrap();
    let lines = block.lines().take_while(|line| *line != "```").map(|line| line.split_once(": ").unwrap());
    let mut order = Vec::new();
    let mut said = BTreeMap::new();
    for (name, uses) in lines {
        let uses: BTreeSet<_> = uses.split(", ").filter(|name| *name != "none").map(str::to_owned).collect();
        assert!(uses.iter().all(|used| order.contains(used)), "{name} is above what it uses");
        order.push(name.to_owned());
        said.insert(name.to_owned(), uses);
    }
    let all: BTreeMap<_, _> = packages().iter().map(|folder| package(folder)).collect();
    assert_eq!(said, all);

    let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, list) = contributing.split_once("Publish them in this order: ").unwrap();
    let (list, _) = list.split_once(". The names").unwrap();
    let published = list.split(',').map(|name| name.trim().trim_matches('`').trim_start_matches("perfx-"));
    assert_eq!(published.collect::<Vec<_>>(), order);

    for line in page.lines().filter(|line| line.contains("independent of perf.data")) {
        let (_, rest) = line.split_once("` | `perfx-").unwrap();
        assert!(!all[rest.split_once('`').unwrap().0].contains("format"), "{line}");
    }
}
