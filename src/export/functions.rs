//! Names stacks by function, with the same numbers in all recordings to compare.

use std::collections::{HashMap, HashSet};
use std::iter::repeat;
use std::sync::Arc;

use build_id::BuildId;
use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use perfx_format::record::cpumode::{GUEST_KERNEL, KERNEL};
use perfx_pipeline::Result;
use perfx_resolve::{Facts, Named, Search, dso_name};

use crate::chains::StackTree;
use crate::folded::{FoldedOptions, functions, whole};
use crate::stacks::{Label, Row, Stacks, Weight};

/// The identity of a function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FunctionId {
    /// As in the symbol table: demangled, with its arguments.
    pub name: Arc<str>,
    /// `None` if its address was in no mapping.
    pub file: Option<u32>,
    /// Where its code runs.
    pub place: CodePlace,
    /// The compiler inlined it here; never set in comparisons.
    pub inlined: bool,
    /// `name` is that of the file, whose symbols were not found.
    pub nameless: bool,
    /// The group whose samples alone are counted, if any.
    pub group: Option<u32>,
}

/// Where code runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodePlace {
    /// In a file, in user mode.
    User,
    /// In a kernel.
    Kernel,
    /// In memory of a process, where JIT compilers put code.
    Jit,
}

/// A file with code.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct CodeFile {
    /// The path in the first recording that has it.
    pub path: String,
    /// Its symbols were found.
    pub has_symbols: bool,
}

/// The keys of files, equal in all recordings for the same program or library.
#[derive(Clone, Default, Debug)]
struct SameFiles {
    by_id: HashMap<BuildId, Vec<u8>>,
    /// By the name without folder and version: the name with the first version.
    by_name: HashMap<Vec<u8>, Vec<u8>>,
    /// The keys of the current recording's files, by path, and by build-id if the path has several.
    own: HashMap<(Vec<u8>, Option<BuildId>), Vec<u8>>,
    used: HashSet<Vec<u8>>,
}

impl SameFiles {
    /// Forgets the files of the last recording; `ids` are those of the next one.
    fn begin_recording(&mut self, ids: impl Iterator<Item = BuildId>) {
        self.own.clear();
        self.used = ids.filter_map(|id| self.by_id.get(&id)).cloned().collect();
    }

    /// The key of a file: that of the build-id in an earlier recording; else the name of the first file with this
    /// name and any version, unless this recording has that file, too. `build` is the build-id if the recording
    /// has several builds of the path.
    fn key(&mut self, path: &[u8], id: Option<BuildId>, build: Option<BuildId>) -> Vec<u8> {
        let own = (path.to_vec(), build);
        if let Some(key) = self.own.get(&own) {
            return key.clone();
        }
        let key = id.and_then(|id| self.by_id.get(&id)).cloned().unwrap_or_else(|| {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            let any = self.by_name.entry(without_version(name).to_vec()).or_insert_with(|| name.to_vec());
            match build {
                _ if !self.used.contains(any) => any.clone(),
                Some(build) if self.used.contains(name) => path_of_build(name, &build.to_string()),
                _ => name.to_vec(),
            }
        });
        if let Some(id) = id {
            self.by_id.entry(id).or_insert_with(|| key.clone());
        }
        self.own.insert(own, key.clone());
        self.used.insert(key.clone());
        key
    }
}

/// The path of a file with its build-id, or the first digits of that.
fn path_of_build(path: &[u8], id: &str) -> Vec<u8> {
    [path, format!(" ({id})").as_bytes()].concat()
}

/// The paths with several build-ids in a recording, such as those of a program that was built again meanwhile.
fn rebuilt(facts: &Facts) -> HashSet<&[u8]> {
    let mut first: HashMap<&[u8], BuildId> = HashMap::new();
    let others = ids_of(facts).filter(|&(name, id)| *first.entry(name).or_insert(id) != id);
    others.map(|(name, _)| name).collect()
}

/// The path and the build-id of each file that has one.
fn ids_of(facts: &Facts) -> impl Iterator<Item = (&[u8], BuildId)> {
    facts.spaces.dsos().iter().filter_map(|(dso, _)| Some((dso_name(dso), facts.ids.get(dso)?)))
}

/// The name of a file up to its version: `libssl` of `libssl.so.3` and `libssl-1.1.so`, `nginx` of `nginx-1.25`.
fn without_version(name: &[u8]) -> &[u8] {
    let is_version = |rest: &[u8]| {
        let rest = rest.strip_prefix(b"v").unwrap_or(rest);
        rest.first().is_some_and(u8::is_ascii_digit)
    };
    let begins = |at: usize| {
        let rest = &name[at..];
        let marks = matches!(rest[0], b'-' | b'.' | b'_') && is_version(&rest[1..]);
        let dotted = || {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            digits > 0
                && rest.get(digits) == Some(&b'.')
                && rest.get(digits + 1).is_some_and(u8::is_ascii_digit)
        };
        rest.starts_with(b".so") || marks || dotted()
    };
    &name[..(1..name.len()).find(|&at| begins(at)).unwrap_or(name.len())]
}

/// Stacks by function.
#[derive(Clone, Default, Debug)]
pub struct NamedStacks {
    /// Files that are equal in several recordings; `None` for a single one, where paths identify them.
    same_files: Option<SameFiles>,
    /// By number.
    pub functions: IndexSet<FunctionId, RandomState>,
    /// By number. The key identifies a file.
    pub files: IndexMap<Vec<u8>, CodeFile, RandomState>,
    /// Parent, or [`StackTree::ROOT`], and function. A parent has a lower number than its children.
    pub nodes: IndexSet<(u32, u32), RandomState>,
    /// The groups with functions of their own.
    pub groups: IndexSet<String, RandomState>,
}

impl NamedStacks {
    /// Empty, for this many recordings.
    pub fn new(recordings: usize) -> NamedStacks {
        NamedStacks { same_files: (recordings > 1).then(SameFiles::default), ..NamedStacks::default() }
    }

    /// Adds the stacks of a recording. Returns the node of each stack, and the number of DSOs with symbols.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn add(&mut self, stacks: &Stacks, search: Search<'_>) -> Result<(Vec<u32>, Named)> {
        let options = FoldedOptions::default();
        let mut of_frames = vec![Vec::new(); stacks.tree.frames().len()];
        let mut seen = HashSet::new();
        let compares = self.same_files.is_some();
        if let Some(same) = &mut self.same_files {
            same.begin_recording(ids_of(search.facts).map(|(_, id)| id));
        }
        let rebuilt = rebuilt(search.facts);
        let named = stacks.name_frames(search, |number, frame, name| {
            let place = match frame.mode {
                KERNEL | GUEST_KERNEL => CodePlace::Kernel,
                _ if frame.process != 0 && frame.dso.is_some() => CodePlace::Jit,
                _ => CodePlace::User,
            };
            let file = name.dso.as_ref().map(|dso| {
                let is_rebuilt = rebuilt.contains(&**dso);
                let id = frame.dso.filter(|_| compares || is_rebuilt).and_then(|number| {
                    let (dso, _) = search.facts.spaces.dsos().get(number as usize)?;
                    search.facts.ids.get(dso)
                });
                let build = id.filter(|_| is_rebuilt);
                let id_of_build = build.map(|id| id.to_string());
                let path_with = |digits: usize| match &id_of_build {
                    Some(id) => path_of_build(dso, id.get(..digits).unwrap_or(id)),
                    None => dso.to_vec(),
                };
                let key = match &mut self.same_files {
                    None => path_with(usize::MAX),
                    Some(_) if place == CodePlace::Jit => b"JIT code".to_vec(),
                    Some(same) => same.key(dso, id, build),
                };
                let file = self.files.entry(key);
                let number = file.index() as u32;
                let file = file.or_default();
                if file.path.is_empty() {
                    file.path = String::from_utf8_lossy(&path_with(8)).into_owned();
                }
                seen.insert((number, dso.to_vec()));
                number
            });
            let nameless = name.functions.is_empty();
            // A perf map's name can stand for several functions.
            let inlined = name.functions.iter().map(|function| function.inlined).chain(repeat(false));
            for (name, inlined) in functions(frame, &name, &options, whole).into_iter().zip(inlined) {
                // Two builds can inline the same function in different places.
                let inlined = inlined && !compares;
                let name = name.into();
                let function = FunctionId { name, file, place, inlined, nameless, group: None };
                of_frames[number as usize].push(self.functions.insert_full(function).0 as u32);
            }
        })?;
        let without: HashSet<&str> = named.without.iter().map(String::as_str).collect();
        for (number, dso) in seen {
            self.files[number as usize].has_symbols |= !without.contains(&*String::from_utf8_lossy(&dso));
        }
        Ok((stacks.tree.renamed(&mut self.nodes, &of_frames, |_| false), named))
    }

    /// Adds functions and nodes for each group alone, such as a process. Returns the node of each row.
    pub(crate) fn by_group(
        &mut self,
        stacks: &Stacks,
        placed: &[u32],
        group: impl Fn(&Label) -> String,
    ) -> Vec<u32> {
        let groups: Vec<u32> =
            stacks.labels.iter().map(|label| self.groups.insert_full(group(label)).0 as u32).collect();
        let mut known: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let mut path = Vec::new();
        let node = |row: &Row| {
            let group = groups[row.label as usize];
            let mut own = StackTree::ROOT;
            let mut next = placed.get(row.stack as usize).copied().unwrap_or(StackTree::ROOT);
            while let Some(&(parent, function)) = self.nodes.get_index(next as usize) {
                if let Some(&node) = known.get(&(group, next)) {
                    own = node;
                    break;
                }
                path.push((next, function));
                next = parent;
            }
            for (node, function) in path.drain(..).rev() {
                let function = FunctionId { group: Some(group), ..self.functions[function as usize].clone() };
                let function = self.functions.insert_full(function).0 as u32;
                own = self.nodes.insert_full((own, function)).0 as u32;
                known.insert((group, node), own);
            }
            own
        };
        stacks.rows.keys().map(node).collect()
    }

    /// The weight of the samples of each node, without its children.
    pub fn of_nodes(
        &self,
        stacks: &Stacks,
        placed: &[u32],
        mut weight: impl FnMut(&Row, &Weight) -> Weight,
    ) -> Vec<Weight> {
        let mut of_nodes = vec![Weight::default(); self.nodes.len()];
        for (row, of_row) in &stacks.rows {
            let node = placed.get(row.stack as usize).and_then(|&node| of_nodes.get_mut(node as usize));
            if let Some(sum) = node {
                *sum += weight(row, of_row);
            }
        }
        of_nodes
    }

    /// The weight of each function, alone and with its callees, from that of nodes; recursion counts once.
    pub fn totals(&self, mut of_nodes: Vec<Weight>) -> Vec<FunctionTotal> {
        let mut totals = vec![FunctionTotal::default(); self.functions.len()];
        for (&(_, function), &weight) in self.nodes.iter().zip(&of_nodes) {
            totals[function as usize].own += weight;
        }
        let again = self.repeated();
        for node in (0..self.nodes.len()).rev() {
            let (parent, function) = self.nodes[node];
            let weight = of_nodes[node];
            if !again[node] {
                totals[function as usize].total += weight;
            }
            if let Some(sum) = of_nodes.get_mut(parent as usize) {
                *sum += weight;
            }
        }
        totals
    }

    /// For each node, true if one of its callers is the same function.
    fn repeated(&self) -> Vec<bool> {
        let mut first_child = vec![StackTree::ROOT; self.nodes.len()];
        let mut next_sibling = vec![StackTree::ROOT; self.nodes.len()];
        let mut first_root = StackTree::ROOT;
        for (node, &(parent, _)) in self.nodes.iter().enumerate() {
            let first = first_child.get_mut(parent as usize).unwrap_or(&mut first_root);
            next_sibling[node] = std::mem::replace(first, node as u32);
        }
        let mut repeated = vec![false; self.nodes.len()];
        let mut on_path = vec![0_u32; self.functions.len()];
        // From the outermost node to the current one.
        let mut path: Vec<u32> = Vec::new();
        let mut next = first_root;
        loop {
            if next != StackTree::ROOT {
                let count = &mut on_path[self.nodes[next as usize].1 as usize];
                repeated[next as usize] = *count > 0;
                *count += 1;
                path.push(next);
                next = first_child[next as usize];
            } else if let Some(done) = path.pop() {
                on_path[self.nodes[done as usize].1 as usize] -= 1;
                next = next_sibling[done as usize];
            } else {
                return repeated;
            }
        }
    }
}

/// The weight of a function.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FunctionTotal {
    /// The samples in it.
    pub own: Weight,
    /// The samples in it and its callees.
    pub total: Weight,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A recursion: `main` calls `a` and `b`, `a` calls `b`, and that calls `a`.
    pub(crate) fn recursive() -> NamedStacks {
        let mut named = NamedStacks::new(1);
        named.files.insert(b"/bin/p".to_vec(), CodeFile { path: "/bin/p".to_owned(), has_symbols: true });
        for (name, file, place) in [
            ("main", Some(0), CodePlace::User),
            ("a", Some(0), CodePlace::User),
            ("b", None, CodePlace::User),
            ("0x1", None, CodePlace::Kernel),
        ] {
            let name = name.into();
            named.functions.insert(FunctionId {
                name,
                file,
                place,
                inlined: false,
                nameless: false,
                group: None,
            });
        }
        // main, main;a, main;a;b, main;a;b;a, main;b, and the kernel.
        named.nodes.extend([(StackTree::ROOT, 0), (0, 1), (1, 2), (2, 1), (0, 2), (StackTree::ROOT, 3)]);
        named
    }

    pub(crate) fn weights() -> Vec<Weight> {
        let weight = |(samples, period)| Weight { samples, period };
        [(1, 1), (2, 20), (4, 4), (8, 8), (16, 16), (1, 51)].map(weight).to_vec()
    }

    #[test]
    fn a_function_that_calls_itself_counts_once() {
        let totals = recursive().totals(weights());
        let found = totals
            .iter()
            .map(|FunctionTotal { own, total }| (own.samples, own.period, total.samples, total.period));
        let expected = [(1, 1, 31, 49), (10, 28, 14, 32), (20, 20, 28, 28), (1, 51, 1, 51)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_group_has_functions_and_nodes_of_its_own() {
        let (mut named, mut stacks) = (recursive(), Stacks::default());
        let [one, other] = [1, 2]
            .map(|pid| stacks.labels.insert_full(Label { pid: Some(pid), ..Label::default() }).0 as u32);
        for (label, stack, period) in [(one, 1, 5), (other, 1, 7), (one, 3, 2), (one, StackTree::ROOT, 9)] {
            stacks.add(Row { event: 0, label, stack, time: None }, Weight { samples: 1, period });
        }
        let placed = [0, 1, 2, 3, 4, 5];
        let of_rows = named.by_group(&stacks, &placed, |label| format!("pid {}", label.pid.unwrap()));
        assert_eq!(named.groups.iter().map(String::as_str).collect::<Vec<_>>(), ["pid 1", "pid 2"]);
        // The first group has main, a, then b and a; the other main and a.
        assert_eq!(of_rows, [7, 9, 11, StackTree::ROOT]);
        let group = |node: u32| named.functions[named.nodes[node as usize].1 as usize].group;
        assert_eq!([7, 9, 11].map(group), [Some(0), Some(1), Some(0)]);
        assert_eq!(named.nodes[10].0, 7, "the callers of a known node are shared");
    }

    #[test]
    fn a_file_with_another_version_has_the_same_name() {
        for (name, expected) in [
            ("libssl.so.3", "libssl"),
            ("libssl-1.1.so", "libssl"),
            ("libc.so.6", "libc"),
            ("nginx-1.25.3", "nginx"),
            ("server_v2", "server"),
            ("python3.12", "python"),
            ("x264", "x264"),
            ("7z", "7z"),
            ("[kernel.kallsyms]", "[kernel.kallsyms]"),
            ("", ""),
        ] {
            assert_eq!(without_version(name.as_bytes()), expected.as_bytes(), "{name}");
        }
    }

    #[test]
    fn files_are_the_same_by_build_id_or_by_name_without_version() {
        let mut same = SameFiles::default();
        let id = |byte| BuildId::new(&[byte; 20]);
        for (files, expected) in [
            // Two versions in one recording are two files.
            (
                [("/a/server-1.0", id(1)), ("/a/libssl.so.1.1", None), ("/a/libssl.so.3", None)],
                ["server-1.0", "libssl.so.1.1", "libssl.so.3"],
            ),
            (
                [("/b/server-1.1", id(2)), ("/b/libssl.so.3", None), ("/b/libc.so.6", id(3))],
                ["server-1.0", "libssl.so.1.1", "libc.so.6"],
            ),
            (
                [("/c/renamed", id(2)), ("/c/libssl.so.3", None), ("/c/libc-2.31.so", None)],
                ["server-1.0", "libssl.so.1.1", "libc.so.6"],
            ),
        ] {
            same.begin_recording(files.iter().filter_map(|&(_, id)| id));
            for ((path, id), expected) in files.into_iter().zip(expected) {
                assert_eq!(
                    String::from_utf8(same.key(path.as_bytes(), id, None)).unwrap(),
                    expected,
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn two_builds_in_one_recording_are_two_files() {
        let mut same = SameFiles::default();
        let other = |byte: u8| format!("server ({})", format!("{byte:02}").repeat(20));
        let key = |same: &mut SameFiles, byte| {
            let id = BuildId::new(&[byte; 20]);
            String::from_utf8(same.key(b"/bin/server", id, id)).unwrap()
        };
        assert_eq!([1, 2, 1].map(|byte| key(&mut same, byte)), ["server", other(2).as_str(), "server"]);
        // The second recording has a newer one, which is sampled first, and one of them.
        same.begin_recording([3, 2].into_iter().filter_map(|byte| BuildId::new(&[byte; 20])));
        assert_eq!([3, 2].map(|byte| key(&mut same, byte)), ["server", other(2).as_str()]);
        // A newer one again, sampled before the one that the first recording has, too.
        same.begin_recording([4, 1].into_iter().filter_map(|byte| BuildId::new(&[byte; 20])));
        assert_eq!([4, 1].map(|byte| key(&mut same, byte)), [other(4).as_str(), "server"]);
    }
}
