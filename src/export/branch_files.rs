//! Collects the branch stacks (`perf record -b`) of all programs and libraries in one reading, and makes a
//! profile of each one with a known build-id and file.

use std::collections::BTreeMap;
use std::sync::Arc;

use build_id::{BuildId, Object, RecordedOn};
use indexmap::IndexMap;
use perfx_filter::FilterOptions;
use perfx_format::read::Recording;
use perfx_model::address_space::{Dso, Machine};
use perfx_pipeline::{Level, Report, Result, counted};
use perfx_resolve::{Facts, IdOptions, can_have_id, dso_name, object_of, sources};

use crate::branches::{BranchCounts, BranchProfile, Files, Program, SumFormat, say_runs, survey};
use crate::traced::Traced;

/// The branches of all programs and libraries, over all samples of all recordings.
#[derive(Default, Debug)]
pub struct BranchFiles {
    files: BTreeMap<Key, Mapped>,
    counts: BranchCounts,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Key {
    Id(BuildId),
    Name(Box<[u8]>),
}

#[derive(Default, Debug)]
struct Mapped {
    /// By recorded name, of which copies of a file have several.
    objects: BTreeMap<Box<[u8]>, Object>,
    branches: BranchProfile,
}

/// The profiles of some programs and libraries.
#[derive(Default, Debug)]
pub struct SumProfiles {
    /// By file name, which is safe in any folder: `NAME-BUILDID.preagg` or `.autofdo`.
    pub texts: BTreeMap<String, Vec<u8>>,
    /// The number of distinct branches in them.
    pub branches: u64,
}

impl BranchFiles {
    /// Adds the branches of a recording, as [`BranchProfile::add`] does.
    ///
    /// # Errors
    ///
    /// Those of [`BranchProfile::add`].
    pub fn add(
        &mut self,
        recording: &mut Recording,
        filter: &Arc<FilterOptions>,
        ids: &IdOptions,
        threads: usize,
        report: &mut Report,
    ) -> Result<bool> {
        let (facts, has_branches) = survey(recording, threads)?;
        let traced = if has_branches { None } else { Traced::read(recording, filter, threads, report)? };
        if !has_branches && traced.is_none() {
            return Ok(false);
        }
        let mut mapped: IndexMap<Key, BTreeMap<Box<[u8]>, Object>> = IndexMap::new();
        let owner = |(dso, flags, process): (&Dso, u32, Option<u32>)| {
            let key = key_of(dso, flags, &facts, traced.is_some())?;
            let entry = mapped.entry(key);
            let owner = u32::try_from(entry.index()).ok();
            let object = object_of(dso, process);
            entry.or_default().entry(dso_name(dso).into()).or_insert(object);
            owner
        };
        let owners: Vec<Option<u32>> = match &traced {
            Some(traced) => traced.dsos().map(owner).collect(),
            None => {
                let dsos = facts.spaces.dsos().iter().enumerate();
                dsos.map(|(number, (dso, flags))| (dso, *flags, facts.files.process(number)))
                    .map(owner)
                    .collect()
            }
        };
        let files = Files { facts: &facts, owners: &owners, elf: None, keeps_stacks: false };
        let read = match traced {
            Some(traced) => {
                files.count(&traced.decode(recording, (&facts.ids, ids), None, threads, report)?)
            }
            None => files.read(recording, filter, threads, report)?,
        };
        self.counts.add(read.counts);
        for (owner, profile) in read.profiles {
            let Some((key, objects)) = mapped.get_index_mut(owner as usize) else { continue };
            let file = self.files.entry(key.clone()).or_default();
            for (name, object) in std::mem::take(objects) {
                file.objects.entry(name).or_insert(object);
            }
            file.branches.join(profile);
        }
        Ok(true)
    }

    /// The counts of what was read.
    pub fn counts(&self) -> BranchCounts {
        self.counts
    }

    /// Makes the profiles. Files are searched for in the places of `ids`, and read one after the other. Those
    /// without a build-id, or not found, are left out and reported.
    ///
    /// # Errors
    ///
    /// Memory is full.
    pub fn into_profiles(
        self,
        format: SumFormat,
        ids: &IdOptions,
        report: &mut Report,
    ) -> Result<SumProfiles> {
        let sources = sources(ids, !ids.is_foreign(), &RecordedOn::default());
        let mut made = SumProfiles::default();
        for (key, Mapped { objects, branches }) in self.files {
            let left_out = |count| format!("{} left out", counted(count, "branch", "branches"));
            let all = branches.branches();
            let id = match key {
                Key::Id(id) => id,
                Key::Name(name) => {
                    let name = String::from_utf8_lossy(&name);
                    let what = format!("{name}: {}, as the recording has no build-id for it", left_out(all));
                    report.say(Level::Loss, format!("{what}; perfx inject -b may add it"));
                    continue;
                }
            };
            let found = objects.values().find_map(|object| sources.recorded(object, Some(id)));
            let Some((path, elf)) = found else {
                let name = objects.keys().next().map(|name| String::from_utf8_lossy(name).into_owned());
                let what = format!("{}: {}", name.unwrap_or_default(), left_out(all));
                let advice = "--root or --buildid-dir names more places";
                report.say(Level::Loss, format!("{what}, as no file with build-id {id} was found; {advice}"));
                continue;
            };
            // The recorded build-id may end with zeros.
            let id = elf.build_id.unwrap_or(id);
            let program = Program::new(path, elf);
            let mut profile = branches.at_addresses(&program);
            profile.recorded = objects.keys().next().cloned();
            let outside = all - profile.branches();
            if outside > 0 {
                let what = format!("{}: {}", program.path().display(), left_out(outside));
                report.say(Level::Loss, format!("{what}, outside of its segments"));
            }
            if !profile.is_empty() {
                let mut text = Vec::new();
                say_runs(profile.sums(format, &program, &mut text)?, program.path(), report);
                let name = name_of(objects.keys());
                made.texts.insert(format!("{name}-{id}.{}", format.extension()), text);
                made.branches += profile.len() as u64;
            }
        }
        Ok(made)
    }
}

/// `None` unless the DSO is a program or library of the recorded machine or, with `with_kernel`, its kernel.
fn key_of(dso: &Dso, flags: u32, facts: &Facts, with_kernel: bool) -> Option<Key> {
    let is_file = (with_kernel || !dso.kernel) && dso.machine == Machine::Host && can_have_id(dso, flags);
    (is_file && &*dso.name != b"[vdso]").then(|| match facts.ids.get(dso) {
        Some(id) => Key::Id(id),
        None => Key::Name(dso_name(dso).into()),
    })
}

/// The longest name within a file name, bytes: of 255, the build-id takes up to 40.
const MOST_NAME: usize = 200;

/// The first name, without folders and characters that are special in a path or to a terminal.
fn name_of<'n>(names: impl Iterator<Item = &'n Box<[u8]>>) -> String {
    let name = names.map(|name| name.rsplit(|&byte| byte == b'/').next().unwrap_or_default()).min();
    let mut plain = String::new();
    for c in String::from_utf8_lossy(name.unwrap_or_default()).chars() {
        let is_plain = c.is_alphanumeric() || c.is_ascii_graphic() && (c != '.' || !plain.is_empty());
        let c = if is_plain { c } else { '_' };
        if plain.len() + c.len_utf8() > MOST_NAME {
            break;
        }
        plain.push(c);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_recording_stays_in_the_folder() {
        let long = ["/".repeat(3), "é".repeat(300)].concat();
        let cases: [(&[&[u8]], String); 7] = [
            (&[b"/usr/bin/server"], "server".into()),
            (&[b"/b/z", b"/a/y"], "y".into()),
            (&[b"/a/../.."], "_.".into()),
            (&[b"/a/.hidden"], "_hidden".into()),
            (&[b"/a b\n\x1b[m\xff"], "a_b__[m_".into()),
            (&[b"/"], String::new()),
            (&[long.as_bytes()], "é".repeat(100)),
        ];
        for (names, expected) in cases {
            let names: Vec<Box<[u8]>> = names.iter().map(|name| (*name).into()).collect();
            assert_eq!(name_of(names.iter()), expected);
        }
    }
}
