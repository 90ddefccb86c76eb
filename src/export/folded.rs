//! Prints stacks as folded lines, `comm;outermost;…;innermost COUNT`, as `perf script |
//! stackcollapse-perf.pl` does, sorted by bytes.
//!
//! Unlike there, samples without a call chain are lines of one frame, functions whose name begins with `(`
//! are frames, `->` splits only names from perf maps, `_[k]` marks the kernel's code and not the vdso, and a
//! `;` in the name of a thread becomes `:`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::record::cpumode::{GUEST_KERNEL, KERNEL};
use perfx_pipeline::{Report, Result};
use perfx_resolve::{Frame, FrameName, Named, Search};
use perfx_samples::say_cut_off;

use crate::chains::StackTree;
use crate::stacks::{Grouping, Label, Row, Stacks, Weight};

/// The contents of the lines.
#[derive(Clone, Default, Debug)]
pub struct FoldedOptions {
    /// The grouping of the stacks.
    pub grouping: Grouping,
    /// Mark functions of the kernel with `_[k]`.
    pub kernel: bool,
    /// Mark functions from a perf map with `_[j]`.
    pub jit: bool,
    /// Show the address of a frame without a symbol: its offset in the file, if there is one.
    pub addresses: bool,
    /// Leave out the callers of these functions.
    pub skip_after: Vec<String>,
}

/// The unit of the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The sum of the samples' periods, as in `perf report`. Without a period, samples count 1.
    Period,
    /// The number of samples.
    Samples,
}

impl Count {
    /// The count of samples.
    pub fn of(self, weight: &Weight) -> u64 {
        match self {
            Count::Period if weight.period > 0 => weight.period,
            _ => weight.samples,
        }
    }
}

/// The lines of a recording; each distinct part is stored once.
#[derive(Default, Debug)]
pub struct Folded {
    names: IndexSet<Box<str>, RandomState>,
    /// Parent, or [`StackTree::ROOT`], and name.
    nodes: IndexSet<(u32, u32), RandomState>,
    /// Label (numbers of names) and node with their count, in the order of the lines.
    lines: Vec<(u32, u32, u64)>,
}

impl Folded {
    /// Names all frames, and folds the rows that have a count. Also returns how many DSOs have symbols.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn new(
        stacks: &Stacks,
        search: Search<'_>,
        options: &FoldedOptions,
        mut count: impl FnMut(&Row, &Weight) -> Option<u64>,
    ) -> Result<(Folded, Named)> {
        let mut names: IndexSet<Box<str>, RandomState> = IndexSet::default();
        // The names of each frame, outermost function first: for all threads, and for threads of Java.
        let mut of_frames = [(); 2].map(|()| vec![Vec::new(); stacks.tree.frames().len()]);
        let named = stacks.name_frames(search, |number, frame, name| {
            for function in functions(frame, &name, options, tidy) {
                let java = function.strip_prefix('L').filter(|rest| rest.contains('/'));
                let java = java.map(|rest| names.insert_full(rest.into()).0 as u32);
                let any = names.insert_full(function.into()).0 as u32;
                of_frames[0][number as usize].push(any);
                of_frames[1][number as usize].push(java.unwrap_or(any));
            }
        })?;
        let skipped: Vec<u32> = options
            .skip_after
            .iter()
            .filter_map(|name| Some(names.get_index_of(name.as_str())? as u32))
            .collect();
        let mut nodes: IndexSet<(u32, u32), RandomState> = IndexSet::default();
        let labels: Vec<(u32, bool)> = stacks
            .labels
            .iter()
            .map(|label| {
                let text = label_text(label, options.grouping);
                let java = label.comm.as_deref().is_some_and(|comm| comm.starts_with(b"java"));
                (names.insert_full(text.into()).0 as u32, java)
            })
            .collect();
        let java = labels.iter().any(|&(_, java)| java);
        let mut placed: [Vec<u32>; 2] = Default::default();
        for (placed, names) in placed.iter_mut().zip(&of_frames).take(if java { 2 } else { 1 }) {
            *placed = stacks.tree.renamed(&mut nodes, names, |name| skipped.contains(&name));
        }
        let mut counts: HashMap<(u32, u32), u64, RandomState> = HashMap::default();
        for (row, weight) in &stacks.rows {
            let Some(count) = count(row, weight) else { continue };
            let (label, java) = labels[row.label as usize];
            let node = placed[usize::from(java)].get(row.stack as usize).copied();
            let sum = counts.entry((label, node.unwrap_or(StackTree::ROOT))).or_default();
            *sum = sum.saturating_add(count);
        }
        let mut folded = Folded { names, nodes, lines: Vec::new() };
        folded.lines = folded.sorted(counts);
        Ok((folded, named))
    }

    /// The lines of several recordings; the counts of equal stacks add up.
    pub fn joined(parts: Vec<Folded>) -> Folded {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        if parts.len() == 0 {
            return all;
        }
        let mut counts: HashMap<(u32, u32), u64, RandomState> =
            all.lines.drain(..).map(|(label, node, count)| ((label, node), count)).collect();
        for part in parts {
            let names: Vec<u32> =
                part.names.into_iter().map(|name| all.names.insert_full(name).0 as u32).collect();
            // A parent has a lower number than its children.
            let mut nodes: Vec<u32> = Vec::with_capacity(part.nodes.len());
            let place =
                |nodes: &[u32], node: u32| nodes.get(node as usize).copied().unwrap_or(StackTree::ROOT);
            for (parent, name) in part.nodes {
                let node = (place(&nodes, parent), names[name as usize]);
                nodes.push(all.nodes.insert_full(node).0 as u32);
            }
            for (label, node, count) in part.lines {
                let sum = counts.entry((names[label as usize], place(&nodes, node))).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        all.lines = all.sorted(counts);
        all
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True if there are no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Of all lines.
    pub fn total(&self) -> u64 {
        self.lines.iter().fold(0, |sum, (_, _, count)| sum.saturating_add(*count))
    }

    /// Reports counts of joined recordings that exceed 64 bits.
    pub fn say_cut_off(&self, report: &mut Report) {
        say_cut_off(self.lines.iter().map(|line| line.2), u64::MAX, report);
    }

    /// Writes the lines.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut path = Vec::new();
        for &(label, node, count) in &self.lines {
            out.write_all(self.name(label).as_bytes())?;
            path.clear();
            let mut next = node;
            while let Some(&(parent, name)) = self.nodes.get_index(next as usize) {
                path.push(name);
                next = parent;
            }
            for &name in path.iter().rev() {
                out.write_all(b";")?;
                out.write_all(self.name(name).as_bytes())?;
            }
            writeln!(out, " {count}")?;
        }
        out.flush()
    }

    fn name(&self, number: u32) -> &str {
        self.names.get_index(number as usize).map_or("", |name| name)
    }

    fn sorted(&self, counts: HashMap<(u32, u32), u64, RandomState>) -> Vec<(u32, u32, u64)> {
        let ranks = self.ranks();
        let mut lines: Vec<_> =
            counts.into_iter().map(|((label, node), count)| (label, node, count)).collect();
        lines.sort_by(|(label, node, _), (other_label, other, _)| {
            let has_frames = |node: u32| node != StackTree::ROOT;
            let labels = Text { name: self.name(*label), more: has_frames(*node) }
                .cmp(&Text { name: self.name(*other_label), more: has_frames(*other) });
            let rank = |node: u32| ranks.get(node as usize).copied();
            labels.then_with(|| rank(*node).cmp(&rank(*other)))
        });
        lines
    }

    /// The rank of each node's own line among the lines of a label.
    fn ranks(&self) -> Vec<u32> {
        let mut children: Vec<u32> = (0..self.nodes.len() as u32).collect();
        let parent = |node: u32| self.nodes.get_index(node as usize).map_or(StackTree::ROOT, |node| node.0);
        // Roots come last, because their parent has the highest number.
        children.sort_by_key(|&node| parent(node));
        let of = |parent_node: u32| {
            let from = children.partition_point(|&node| parent(node) < parent_node);
            let own = children[from..].partition_point(|&node| parent(node) == parent_node);
            &children[from..from + own]
        };
        // For each child, its own line, then the lines below it.
        let level = |node: u32| {
            let name = |node: u32| self.nodes.get_index(node as usize).map_or("", |node| self.name(node.1));
            let mut items: Vec<(Text<'_>, u32)> = of(node)
                .iter()
                .flat_map(|&child| [false, true].map(|more| (Text { name: name(child), more }, child)))
                .collect();
            // The last item is taken first.
            items.sort_by(|a, b| b.0.cmp(&a.0));
            items
        };
        let mut ranks = vec![0; self.nodes.len()];
        let mut next = 0;
        let mut open = vec![level(StackTree::ROOT)];
        while let Some(items) = open.last_mut() {
            match items.pop() {
                None => drop(open.pop()),
                Some((Text { more: true, .. }, node)) => open.push(level(node)),
                Some((_, node)) => {
                    ranks[node as usize] = next;
                    next += 1;
                }
            }
        }
        ranks
    }
}

/// A name in a line, and the `;` after it if frames follow.
#[derive(PartialEq, Eq)]
struct Text<'n> {
    name: &'n str,
    more: bool,
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let bytes = |text: &Self| text.name.bytes().chain(text.more.then_some(b';'));
        // Comparing slices is fast; iterators are needed only if one name is a prefix of the other.
        let (one, two) = (self.name.as_bytes(), other.name.as_bytes());
        let shared = one.len().min(two.len());
        one[..shared]
            .cmp(&two[..shared])
            .then_with(|| bytes(self).skip(shared).cmp(bytes(other).skip(shared)))
    }
}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn label_text(label: &Label, grouping: Grouping) -> String {
    let [cpu, cgroup, thread] = label.texts(grouping);
    let texts = [cpu, cgroup, thread.map(|thread| thread.replace(' ', "_"))].into_iter().flatten();
    texts.map(|text| printable(&text).replace(';', ":")).collect::<Vec<_>>().join(";")
}

/// The names of a frame as by stackcollapse-perf.pl, outermost first; `shown` names a symbol's function.
pub(crate) fn functions(
    frame: Frame,
    name: &FrameName<'_>,
    options: &FoldedOptions,
    shown: fn(&str) -> String,
) -> Vec<String> {
    let dso = name.dso.as_ref().map(|dso| String::from_utf8_lossy(dso));
    if name.functions.is_empty() {
        let file = dso.as_deref().and_then(|dso| dso.rsplit('/').next()).unwrap_or("unknown");
        let text = match options.addresses {
            true => format!("[{file} <{:x}>]", frame.at),
            false => format!("[{file}]"),
        };
        return vec![marked(printable(&text).replace(';', ":"), frame, dso.as_deref(), options)];
    }
    let mut all = Vec::new();
    for function in &name.functions {
        // perf-map-agent writes calls that Java inlined into one name. C++ and Rust use `->` differently.
        let most = if frame.process == 0 { 1 } else { usize::MAX };
        for (at, part) in function.name.splitn(most, "->").enumerate() {
            let part = shown(part);
            all.push(match at {
                0 if function.inlined => part,
                0 => marked(part, frame, dso.as_deref(), options),
                _ => part + "_[i]",
            });
        }
    }
    all
}

fn marked(name: String, frame: Frame, dso: Option<&str>, options: &FoldedOptions) -> String {
    let is_map = || dso.is_some_and(|dso| dso.starts_with("/tmp/perf-") && dso.ends_with(".map"));
    if options.kernel && dso.is_some() && matches!(frame.mode, KERNEL | GUEST_KERNEL) {
        name + "_[k]"
    } else if options.jit && is_map() {
        name + "_[j]"
    } else {
        name
    }
}

/// Removes arguments, and characters that would make lines ambiguous. Arguments begin at the first `(`
/// outside of other brackets, unless it begins `(anonymous namespace)` or follows the dot of a Go method.
/// These are the rules of inferno 0.12, which rarely make different functions equal. No name becomes empty.
fn tidy(name: &str) -> String {
    let name = printable(name).replace(';', ":");
    let end = arguments(&name).filter(|&end| end > 0).unwrap_or(name.len());
    if end == 0 { "?".to_owned() } else { name[..end].to_owned() }
}

fn arguments(name: &str) -> Option<usize> {
    let mut depth = 0_i64;
    for (at, byte) in name.bytes().enumerate() {
        let is_of_name = || name[at..].starts_with("(anonymous namespace)") || name[..at].ends_with('.');
        match byte {
            b'(' if depth == 0 && !is_of_name() => return Some(at),
            b'(' | b'<' | b'{' | b'[' => depth += 1,
            b')' | b'>' | b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The whole name, so that overloads and instances of a template stay distinct.
pub(crate) fn whole(name: &str) -> String {
    printable(name).into_owned()
}

fn printable(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => text.replace(char::is_control, "?").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tidied_as_inferno_does() {
        let cases = [
            ("main", "main"),
            ("foo::bar(int, char)", "foo::bar"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("net/http.(*Client).Do", "net/http.(*Client).Do"),
            ("operator()(int)", "operator"),
            ("{lambda(int)#2}::operator()(int) const", "{lambda(int)#2}::operator"),
            ("Box::operator->() const", "Box::operator->() const"),
            ("Tab<int, (unsigned char)1>::fast(long)", "Tab<int, (unsigned char)1>::fast"),
            ("std::function<void (int)>::f(int)", "std::function<void (int)>::f"),
            ("<(u64, u32) as Work>::run", "<(u64, u32) as Work>::run"),
            ("base(Type) const", "base"),
            ("(", "("),
            ("", "?"),
            ("RegExp:[&<>\"']", "RegExp:[&<>\"']"),
            ("a;b\n", "a:b?"),
        ];
        for (name, expected) in cases {
            assert_eq!(tidy(name), expected);
        }
    }

    #[test]
    fn lines_are_sorted_by_their_bytes() {
        let mut names: IndexSet<Box<str>, RandomState> = IndexSet::default();
        let mut nodes: IndexSet<(u32, u32), RandomState> = IndexSet::default();
        let mut counts = HashMap::default();
        let lines =
            ["a", "a-b", "a-b;x", "a;b", "a;b b;c", "a;b;c", "a;b-c", "a;b-c;d", "a;b:c", "b;é;z", "b;f"];
        for (at, line) in lines.iter().enumerate() {
            let mut parts = line.split(';').map(|part| names.insert_full(part.into()).0 as u32);
            let label = parts.next().unwrap();
            let node = parts.fold(StackTree::ROOT, |parent, name| nodes.insert_full((parent, name)).0 as u32);
            counts.insert((label, node), at as u64);
        }
        let mut folded = Folded { names, nodes, lines: Vec::new() };
        folded.lines = folded.sorted(counts);
        let mut out = Vec::new();
        folded.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut expected = lines.map(str::to_owned);
        expected.sort();
        let stacks: Vec<_> = text.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(stacks, expected);
    }
}
