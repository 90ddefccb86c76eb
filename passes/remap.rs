//! `remap` replaces the paths of mapped files wherever they occur: in MMAP, MMAP2 and HEADER_BUILD_ID
//! records, and in feature BUILD_ID.
//!
//! Names of memory without a file stay, and so does the command line, which contains arguments, not paths.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use build_id::{BuildId, read_list};
use clap::Args;
use perfx_format::features::trimmed_id;
use perfx_format::names::{Name, NameKind, is_memory, rename_feature, rename_record, without_deleted};
use perfx_format::read::Recording;
use perfx_format::{Feature, Kinds, Layouts, Record};
use perfx_pipeline::{
    Begin, Context as _, Emit, Error, Fork, LISTED, Level, Needs, Pass, Result, Rewrite, Session, Stage,
    Survey, bail, counted, ensure,
};

use crate::support::options::{PassCommand, PassOptions};

/// Replace the paths of mapped files, for example with those on another machine
///
/// Paths are replaced in MMAP, MMAP2 and HEADER_BUILD_ID records and in feature BUILD_ID. A prefix
/// matches whole folder names: --path /usr/l=/x does not change /usr/lib. A path that the build-id map
/// names is not changed further. Names of memory without a file, such as [vdso] and //anon, stay. The
/// output is not compressed.
///
/// The build-id map has lines such as those of perf buildid-list: a build-id in hex, a space, a path.
/// Build-ids of mappings are those in MMAP2 records, or those of the same path elsewhere in the recording.
///
/// Examples:
///   perfx remap --path /build/src=/home/me/src perf.data -o mine.data
///   perfx remap --strip-prefix /var/lib/machines/deb perf.data -o inside.data
///   perfx remap --build-id-map where.txt perf.data -o found.data
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[allow(rustdoc::broken_intra_doc_links, reason = "the help names [vdso]")]
pub struct RemapArgs {
    /// Replace OLD, a path or its first folders, with NEW; repeatable, and the longest OLD counts
    #[arg(long, value_name = "OLD=NEW")]
    path: Vec<Prefix>,
    /// Remove these first folders of paths; repeatable
    #[arg(long, value_name = "FOLDER")]
    strip_prefix: Vec<String>,
    /// Give files these paths by their build-id; a file of lines `HEX PATH`
    #[arg(long, value_name = "FILE")]
    build_id_map: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Prefix {
    given: String,
    /// Without `/` at the end.
    old: Vec<u8>,
    new: Vec<u8>,
}

impl PassOptions for RemapArgs {
    const NAME: &'static str = "remap";
    const ABOUT: &'static str = "replace the paths of mapped files";
    const COMMAND: Option<PassCommand> =
        Some(PassCommand { group: "Share", one_of: &["path", "strip_prefix", "build_id_map"] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        let stripped = self.strip_prefix.iter().map(|folder| {
            ensure!(folder.starts_with('/'), "--strip-prefix: `{folder}` does not begin with /");
            Ok(Prefix::new(folder, folder, ""))
        });
        let mut prefixes = stripped.collect::<Result<Vec<_>>>()?;
        prefixes.extend(self.path);
        // The longest one counts; of the same length, the first.
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.old.len()));
        if let Some(pair) =
            prefixes.windows(2).find(|pair| pair[0].old == pair[1].old && pair[0].new != pair[1].new)
        {
            bail!("`{}` and `{}` replace the same path", pair[0].given, pair[1].given);
        }
        let by_id = self.build_id_map.map(|file| read_map(&file)).transpose()?.unwrap_or_default();
        Ok(Box::new(Remap { rules: Arc::new(Rules { prefixes, by_id, ids: HashMap::new() }) }))
    }
}

impl Prefix {
    fn new(given: &str, old: &str, new: &str) -> Prefix {
        let path = |text: &str| text.trim_end_matches('/').as_bytes().to_vec();
        Prefix { given: given.to_owned(), old: path(old), new: path(new) }
    }

    fn replace(&self, path: &[u8]) -> Option<Vec<u8>> {
        let rest = path.strip_prefix(&self.old[..]).filter(|rest| rest.is_empty() || rest[0] == b'/')?;
        let new = [&self.new[..], rest].concat();
        Some(if new.is_empty() { b"/".to_vec() } else { new })
    }
}

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Prefix> {
        let (old, new) = text.split_once('=').with_context(|| format!("`{text}` is not OLD=NEW"))?;
        ensure!(!old.is_empty(), "`{text}`: OLD is empty; / is every path");
        ensure!(
            new.is_empty() || new.starts_with('/') || !old.starts_with('/'),
            "`{text}`: NEW does not begin with /"
        );
        Ok(Prefix::new(text, old, new))
    }
}

fn read_map(file: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let name = file.display();
    let text = read_list(file).with_context(|| format!("--build-id-map: can't read {name}"))?;
    let mut paths = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let wrong = |what: &str| Error::new(format!("--build-id-map: {name}, line {}: {what}", number + 1));
        let blank = line.iter().position(|&byte| byte == b' ' || byte == b'\t');
        let (hex, path) = line.split_at(blank.ok_or_else(|| wrong("no path after the build-id"))?);
        let id =
            BuildId::from_hex(&String::from_utf8_lossy(hex)).map_err(|error| wrong(&error.to_string()))?;
        let path = path.trim_ascii();
        // perf buildid-list also lists the kernel and the vdso, which have no path.
        if path.starts_with(b"[") {
            continue;
        }
        let there = paths.insert(trimmed_id(id.as_bytes()).to_vec(), path.to_vec());
        if there.is_some_and(|there| there != path) {
            return Err(wrong("this build-id has another path above"));
        }
    }
    ensure!(!paths.is_empty(), "--build-id-map: {name} has no line with a build-id and a path");
    Ok(paths)
}

#[derive(Debug)]
struct Remap {
    rules: Arc<Rules>,
}

#[derive(Clone, Debug)]
struct Rules {
    prefixes: Vec<Prefix>,
    by_id: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The build-id of each path; `None` if it has several.
    ids: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rule {
    Prefix(usize),
    BuildId(Vec<u8>),
}

#[derive(Clone, Default, Debug)]
struct RemapCounts {
    /// Each path with its new one; `None` if it stays.
    paths: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    used: BTreeSet<Rule>,
    records: u64,
    entries: u64,
}

#[derive(Debug)]
struct Gather {
    rules: Arc<Rules>,
    ids: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

struct Replace {
    rules: Arc<Rules>,
    done: RemapCounts,
}

impl Rules {
    fn replace(&self, name: Name<'_>) -> Option<(Vec<u8>, Rule)> {
        if name.kind != NameKind::Path || is_memory(name.text) {
            return None;
        }
        let path = without_deleted(name.text);
        let id = name.build_id.map(trimmed_id);
        let id = id.or_else(|| self.ids.get(name.text).and_then(Option::as_deref));
        if let Some((id, new)) = id.and_then(|id| self.by_id.get_key_value(id)) {
            return Some((new.clone(), Rule::BuildId(id.clone())));
        }
        let mut prefixes = self.prefixes.iter().enumerate();
        let (rule, new) = prefixes.find_map(|(number, prefix)| Some((number, prefix.replace(path)?)))?;
        let suffix = &name.text[path.len()..];
        Some(([&new, suffix].concat(), Rule::Prefix(rule)))
    }
}

impl RemapCounts {
    /// Returns the new path, if any, and counts it.
    fn take(&mut self, name: Name<'_>, rules: &Rules) -> Option<Vec<u8>> {
        let (new, rule) = rules.replace(name).unzip();
        self.used.extend(rule);
        if name.kind == NameKind::Path && !self.paths.contains_key(name.text) {
            self.paths.insert(name.text.to_vec(), new.clone());
        }
        new
    }

    fn join(&mut self, later: RemapCounts) {
        for (path, new) in later.paths {
            self.paths.entry(path).or_insert(new);
        }
        self.used.extend(later.used);
        self.records += later.records;
        self.entries += later.entries;
    }

    fn report(&self, rules: &Rules, session: &mut Session) {
        let report = &mut session.report;
        for (number, prefix) in rules.prefixes.iter().enumerate() {
            if !self.used.contains(&Rule::Prefix(number)) {
                report.say(Level::Warning, format!("no path begins with `{}`", as_path(&prefix.old)));
            }
        }
        let unused =
            rules.by_id.keys().filter(|id| !self.used.contains(&Rule::BuildId(id.to_vec()))).count() as u64;
        if unused > 0 {
            let ids = counted(unused, "build-id of the map is", "build-ids of the map are");
            let level = if unused == rules.by_id.len() as u64 { Level::Warning } else { Level::Info };
            report.say(level, format!("{ids} not in the recording"));
        }
        let changed = || self.paths.iter().filter_map(|(old, new)| Some((old, new.as_ref()?)));
        // If the new path existed before, or several paths become one, perf adds up their samples.
        let mut there: BTreeSet<&[u8]> =
            self.paths.iter().filter(|(_, new)| new.is_none()).map(|(path, _)| &path[..]).collect();
        let same = changed().filter(|(_, new)| !there.insert(new)).count() as u64;
        if same > 0 {
            let files = counted(same, "file has", "files have");
            report.say(
                Level::Warning,
                format!("{files} the path of another file now, so perf shows them as one"),
            );
        }
        let paths = counted(changed().count() as u64, "path", "paths");
        let records = counted(self.records, "record", "records");
        let entries = match self.entries {
            0 => String::new(),
            entries => format!(" and {} of feature BUILD_ID", counted(entries, "entry", "entries")),
        };
        let what = format!("replaced {paths} in {records}{entries}{LISTED}");
        report.say(Level::Info, what);
        for (old, new) in changed() {
            report.say(Level::Detail, format!("{} is now {}", old.escape_ascii(), new.escape_ascii()));
        }
    }
}

fn as_path(prefix: &[u8]) -> String {
    if prefix.is_empty() { "/".to_owned() } else { String::from_utf8_lossy(prefix).into_owned() }
}

impl Pass for Remap {
    fn name(&self) -> &'static str {
        RemapArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let surveys = if self.rules.by_id.is_empty() { Vec::new() } else { vec![Kinds::PATHS] };
        Needs { records: Kinds::PATHS, surveys, decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let rules = self.rules;
        if rules.prefixes.is_empty() && rules.by_id.is_empty() {
            return Stage::begin(|_| {
                bail!("nothing to replace: give --path, --strip-prefix or --build-id-map")
            });
        }
        if rules.by_id.is_empty() {
            return Stage::begin(|begin| Ok(Stage::rewrite(Replace::begin(rules, begin)?)));
        }
        Stage::survey(Gather { rules, ids: BTreeSet::new() })
    }
}

/// The path and its build-id, if the recording contains both together.
fn identified(name: Name<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let id = name.build_id.map(trimmed_id).filter(|id| !id.is_empty())?;
    Some((name.text.to_vec(), id.to_vec()))
}

impl Survey for Gather {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        rename_record(record, layouts, |name| {
            self.ids.extend(identified(name));
            None
        })?;
        Ok(())
    }

    fn end(mut self, session: &mut Session) -> Result<Stage> {
        if let Some(section) = session.feature(Feature::BUILD_ID) {
            rename_feature(Feature::BUILD_ID, section, session.endian, |name| {
                self.ids.extend(identified(name));
                None
            });
        }
        let mut ids = HashMap::new();
        for (path, id) in self.ids {
            ids.entry(path).and_modify(|id| *id = None).or_insert(Some(id));
        }
        let rules = Arc::new(Rules { ids, ..Rules::clone(&self.rules) });
        Ok(Stage::begin(|begin| Ok(Stage::rewrite(Replace::begin(rules, begin)?))))
    }
}

impl Fork for Gather {
    fn fork(&self) -> Gather {
        Gather { rules: self.rules.clone(), ids: BTreeSet::new() }
    }

    fn absorb(&mut self, later: Gather) {
        self.ids.extend(later.ids);
    }
}

impl Replace {
    fn begin(rules: Arc<Rules>, session: &mut Begin<'_>) -> Result<Replace> {
        let mut done = RemapCounts::default();
        if let Some(section) = session.feature(Feature::BUILD_ID).cloned() {
            let mut entries = 0;
            let renamed = rename_feature(Feature::BUILD_ID, &section, session.endian, |name| {
                let new = done.take(name, &rules);
                entries += u64::from(new.is_some());
                new
            });
            if let Some(renamed) = renamed.filter(|renamed| renamed.section[..] != section[..]) {
                if !renamed.whole {
                    let what = format!("feature {} is damaged: its last paths stay", Feature::BUILD_ID);
                    session.report.say(Level::Warning, what);
                }
                session.set_feature(Feature::BUILD_ID, renamed.section);
                done.entries = entries;
            }
        }
        Ok(Replace { rules, done })
    }
}

impl Rewrite for Replace {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let Replace { rules, done } = self;
        let new = rename_record(&record, out.layouts(), |name| done.take(name, rules))?;
        done.records += u64::from(new.is_some());
        out.replace_if(record, new)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.done.report(&self.rules, session);
        Ok(())
    }
}

impl Fork for Replace {
    fn fork(&self) -> Replace {
        Replace { rules: self.rules.clone(), done: RemapCounts::default() }
    }

    fn absorb(&mut self, later: Replace) {
        self.done.join(later.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_whole_folders_and_the_longest_counts() {
        let rules = |texts: &[&str]| {
            let mut prefixes: Vec<Prefix> = texts.iter().map(|text| text.parse().unwrap()).collect();
            prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.old.len()));
            Rules { prefixes, by_id: BTreeMap::new(), ids: HashMap::new() }
        };
        let new = |rules: &Rules, path: &str| {
            let name = Name { kind: NameKind::Path, text: path.as_bytes(), build_id: None };
            rules.replace(name).map(|(new, _)| String::from_utf8(new).unwrap())
        };
        let some = |text: &str| Some(text.to_owned());
        let two = rules(&["/usr=/u", "/usr/lib/=/l/"]);
        assert_eq!(new(&two, "/usr/lib/x.so"), some("/l/x.so"));
        assert_eq!(new(&two, "/usr/lib"), some("/l"));
        assert_eq!(new(&two, "/usr/lib64/x.so (deleted)"), some("/u/lib64/x.so (deleted)"));
        assert_eq!(new(&two, "/usr/lib (deleted)"), some("/l (deleted)"));
        assert_eq!((new(&two, "/usrlib"), new(&two, "usr/lib")), (None, None));
        let all = rules(&["/=/root"]);
        assert_eq!(new(&all, "/a"), some("/root/a"));
        for memory in [
            "//anon",
            "[vdso]",
            "/memfd:x (deleted)",
            "/SYSV00000000 (deleted)",
            "/dev/zero (deleted)",
            "/anon_hugepage (deleted)",
            "anon_inode:[perf_event]",
        ] {
            assert_eq!(new(&all, memory), None, "{memory} is not a file");
        }
        assert_eq!(new(&all, "a"), None);
        let cut = rules(&["/a/b="]);
        assert_eq!((new(&cut, "/a/b/c"), new(&cut, "/a/b")), (some("/c"), some("/")));
        for wrong in ["", "x", "=x", "/a=b"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_of_build_ids_has_a_path_in_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = folder.path().join("list");
            std::fs::write(&path, text).unwrap();
            read_map(&path).map_err(|error| error.to_string())
        };
        let (one, two) = ("11".repeat(20), "22".repeat(18) + "0000");
        let text = format!("# comment\n\n  {one} /a b\r\n{two}\t/c\n{one} /a b\n{one} [vdso]\n");
        let expected = BTreeMap::from([(vec![0x11; 20], b"/a b".to_vec()), (vec![0x22; 18], b"/c".to_vec())]);
        assert_eq!(read(&text), Ok(expected));
        for (text, part) in [
            (format!("{one} /a\n{one} /b\n"), "line 2: this build-id has another path above"),
            (format!("# x\n{one}\n"), "line 2: no path after the build-id"),
            ("xy /a\n".to_owned(), "line 1: "),
            (format!("{one} [vdso]\n"), "has no line with a build-id and a path"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn paths_in_records_are_replaced_and_counted() {
        use crate::support::tiny::{FIELDS, file, ran, record, sample};
        let mmap =
            |start, path: &[u8; 8]| record(1, 2, &[7 << 32 | 7, start, 0x1000, 0, u64::from_le_bytes(*path)]);
        let records = [
            mmap(0x1000, b"/old/a\0\0"),
            mmap(0x2000, b"/old/a\0\0"),
            mmap(0x3000, b"/new/a\0\0"),
            sample(7, 5, 1),
        ];
        let mut moved = ran("remap:path=/old=/new:path=/x=/y", file(FIELDS, 0, &records, &[])).unwrap();
        let names = moved.each(|record| record.bytes().windows(4).any(|window| window == b"/new"));
        assert_eq!(names, [true, true, true, false]);
        let expected = [
            "Warning: no path begins with `/x`".to_owned(),
            "Warning: 1 file has the path of another file now, so perf shows them as one".to_owned(),
            format!("Info: replaced 1 path in 2 records{LISTED}"),
            "Detail: /old/a is now /new/a".to_owned(),
        ];
        assert_eq!(moved.said, expected);
    }
}
