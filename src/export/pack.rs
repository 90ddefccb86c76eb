//! Finds the files with which another machine names the functions in a recording's stacks equally.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use build_id::BuildId;
use perfx_format::Bytes;
use perfx_format::names::without_deleted;
use perfx_resolve::{Images, Lack, PerfMaps, Search, dso_name, recorded_on};
use symbols::{Content, SymbolFile};

use crate::stacks::Stacks;

/// The files of a pack besides the recording.
#[derive(Default, Debug)]
pub struct SymbolFiles {
    /// By build-id.
    pub dsos: BTreeMap<BuildId, PackedDso>,
    /// The perf maps of processes, by pid.
    pub maps: BTreeMap<u32, Bytes>,
    /// DSOs and maps without a usable file, and the reason.
    pub missing: BTreeSet<(Vec<u8>, String)>,
    /// The number of these without a build-id in the recording.
    pub without_id: u64,
}

/// An entry of perf's build-id cache.
#[derive(Debug)]
pub struct PackedDso {
    /// The name in the recording, or the path of a common file of dwz(1).
    pub name: Vec<u8>,
    /// The files, by their names in the entry: `elf`, `debug`, `vdso`, `kallsyms`.
    pub files: BTreeMap<&'static str, Content>,
}

/// The folder of DSOs whose path can't be used.
const BY_ID: &str = "by-id";

impl SymbolFiles {
    /// Finds the files of all DSOs that the stacks hit.
    ///
    /// ```no_run
    /// use perfx_export::pack::SymbolFiles;
    /// use perfx_export::{Facts, Grouping, Search, Stacks};
    /// use perfx_filter::FilterOptions;
    /// use perfx_format::read::Recording;
    /// use perfx_pipeline::Report;
    /// use perfx_resolve::IdOptions;
    ///
    /// let mut recording = Recording::open("perf.data")?;
    /// let facts = Facts::survey(&mut recording, 1, true)?;
    /// let (all, mut report) = (FilterOptions::default().into(), Report::default());
    /// let stacks = Stacks::collect(&mut recording, &facts, Grouping::default(), &all, 1, &mut report)?;
    /// let (features, endian, ids) = (&recording.features, recording.endian, &IdOptions::default());
    /// let search = Search { facts: &facts, features, endian, ids, inlined: true };
    /// let files = SymbolFiles::find(&stacks, search);
    /// for (id, dso) in &files.dsos {
    ///     println!("{id} {}", dso.name.escape_ascii());
    /// }
    /// # Ok::<(), perfx_pipeline::Error>(())
    /// ```
    pub fn find(stacks: &Stacks, search: Search<'_>) -> SymbolFiles {
        let images = Images::new(search);
        let maps = PerfMaps::new(search.ids, &recorded_on(search.features, search.endian), search.facts);
        let mut found = SymbolFiles::default();
        let of_processes: BTreeSet<u32> =
            stacks.tree.frames().map(|frame| frame.process).filter(|&process| process != 0).collect();
        for pid in of_processes {
            match maps.open(pid) {
                Ok((map, _)) => drop(found.maps.insert(pid, map)),
                Err(why) => drop(found.missing.insert((PerfMaps::path(pid).into_bytes(), why))),
            }
        }
        let in_files = stacks.tree.frames().filter(|frame| frame.process == 0);
        let dsos: BTreeSet<u32> = in_files.filter_map(|frame| frame.dso).collect();
        for number in dsos {
            let Some(dso) = images.dso(number) else { continue };
            let name = dso_name(dso);
            match images.files(number) {
                None => {}
                Some(Err(why)) => {
                    found.without_id += u64::from(why == Lack::BuildId);
                    found.missing.insert((name.to_vec(), why.to_string()));
                }
                Some(Ok(files)) => {
                    // The first file is the DSO's own; the others are those that it refers to.
                    let names = std::iter::once(Some(name)).chain(std::iter::repeat(None));
                    names.zip(files).for_each(|(name, file)| found.add(name, file));
                }
            }
        }
        found
    }

    /// The folder in the pack of each DSO: that of perf's cache, unless it is or contains a `reserved` name
    /// or another file. perf finds entries of its cache by links, so a folder may have any name.
    pub fn folders(&self, reserved: &[&str]) -> BTreeMap<BuildId, String> {
        let of_cache = || self.dsos.iter().map(|(&id, dso)| (id, dso, dso.folder(id)));
        let mut files: BTreeSet<String> = reserved.iter().map(|&name| name.to_owned()).collect();
        files.insert(BY_ID.to_owned());
        files.extend(self.maps.keys().map(|&pid| PerfMaps::path(pid).trim_start_matches('/').to_owned()));
        for (_, dso, folder) in of_cache() {
            files.extend(dso.files.keys().map(|name| format!("{folder}/{name}")));
        }
        let is_file = |path: &Path| path.to_str().is_some_and(|path| files.contains(path));
        let place = |(id, _, folder): (BuildId, _, String)| {
            let is_taken = Path::new(&folder).ancestors().any(is_file);
            (id, if is_taken { format!("{BY_ID}/{id}") } else { folder })
        };
        of_cache().map(place).collect()
    }

    /// Adds a file; without a name, it belongs to the previous one.
    fn add(&mut self, name: Option<&[u8]>, file: SymbolFile) {
        let SymbolFile { id, entry, content } = file;
        let name = || match (name, &content) {
            (None, Content::File(place)) => place.as_os_str().as_bytes().to_vec(),
            (name, _) => name.unwrap_or_default().to_vec(),
        };
        let dso = self.dsos.entry(id).or_insert_with(|| PackedDso { name: name(), files: BTreeMap::new() });
        dso.files.entry(entry).or_insert(content);
    }
}

impl PackedDso {
    /// The entry's folder in the cache, as perf names it: the DSO's path, then the build-id.
    fn folder(&self, id: BuildId) -> String {
        let path = String::from_utf8_lossy(without_deleted(&self.name));
        // A recorded name could lead out of the cache with `..`.
        let below = Path::new(&*path).components().filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        });
        below.chain([&*id.to_string()]).collect::<Vec<_>>().join("/")
    }
}
