//! Runs a job, and names its output together with the files that its passes made, such as images of JIT code.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use perfx_format::write::{folder, plain};
use perfx_pipeline::{Cached, Job, Outcome, OutputForm, SideFile};

use crate::io::output::names::{OutputPath, Outputs, there, with_folders};
use crate::io::output::place::Existing;
use crate::io::signals::Unfinished;
use crate::io::sparse::{self, ReadAt};

/// Runs the job, and names its output and the files that passes made. With entries to put beside the records,
/// such as those of the input, the output is a folder.
pub(crate) fn write(
    place: OutputPath,
    job: Job,
    form: OutputForm,
    extras: &[PathBuf],
    existing_made: Existing,
) -> Result<Outcome> {
    let (new, outcome) = place.make_file(job, form)?;
    let mut beside = Vec::new();
    if form == OutputForm::DirectoryData {
        let named = |extra: &PathBuf| Some((extra.clone(), extra.file_name()?.to_owned()));
        beside.extend(extras.iter().filter_map(named));
        beside.extend_from_slice(&outcome.beside);
    }
    put_made(&outcome.made, existing_made, || place.commit_with(new, &beside))?;
    Ok(outcome)
}

/// Names all files that passes made, or none. An existing file with the same content stays, as does anything
/// that is not a regular file. Then runs `last`; if that fails, undoes the names.
pub(crate) fn put_made(
    made: &[SideFile],
    existing: Existing,
    last: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut new = Vec::new();
    for file in made {
        let name = || file.path.display().to_string();
        let found = there(&file.path).with_context(name)?;
        let what = "exists and is not a regular file, so it is not overwritten; move it away";
        ensure!(found.as_ref().is_none_or(|found| found.is_file()), "{} {what}", name());
        if found.is_none() || !has_content(file).with_context(name)? {
            if found.is_some() {
                existing.check(&file.path, false)?;
            }
            new.push(file);
        }
    }
    let last = || made.iter().try_for_each(put_cached).and_then(|()| last());
    let Some(first) = new.first() else { return last() };
    let places = new.iter().map(|file| OutputPath::new(&file.path, existing)).collect();
    let outputs = Outputs::new(folder(&first.path), places)?;
    for (number, file) in new.iter().enumerate() {
        let unnamed = outputs.create(number)?;
        let copied = sparse::copy(&mut content(file), unnamed.get().file());
        copied.with_context(|| file.path.display().to_string())?;
        outputs.put(number, unnamed)?;
    }
    outputs.commit_and(last)
}

/// Puts a file into the build-id cache that it names, as perf buildid-cache does; an existing entry stays.
fn put_cached(made: &SideFile) -> Result<()> {
    let Some(Cached { cache, build_id }) = &made.cached else { return Ok(()) };
    let (first, rest) = build_id.split_at(2);
    let link = cache.join(".build-id").join(first).join(rest);
    let name = || link.display().to_string();
    if there(&link).with_context(name)?.is_some() {
        return Ok(());
    }
    let below = made.path.strip_prefix("/").unwrap_or(&made.path).join(build_id);
    let entry = cache.join(&below);
    let put = || {
        let unnamed = Unfinished::file(&entry).map_err(plain).with_context(name)?;
        sparse::copy(&mut content(made), unnamed.get().file()).with_context(name)?;
        let unless_there = |put: io::Result<()>| match put {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            put => put,
        };
        let put = unless_there(unnamed.finish(|new| new.take_name(&entry.join("elf"))));
        // Only the link makes it an entry, in one step.
        let linked = put.and_then(|()| unless_there(symlink(Path::new("../..").join(&below), &link)));
        linked.map_err(plain).with_context(name)
    };
    with_folders(&BTreeSet::from([&*entry, folder(&link)]), put)
}

fn content(made: &SideFile) -> impl Read + '_ {
    ReadAt::new(&made.from, made.range.start).take(made.range.end - made.range.start)
}

fn has_content(made: &SideFile) -> io::Result<bool> {
    let there = made.path.symlink_metadata()?;
    let may_be = there.is_file() && there.len() == made.range.end - made.range.start;
    Ok(may_be && sparse::is_same(&mut File::open(&made.path)?, &mut content(made))?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn files_that_were_made_get_their_names_together_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut from = tempfile::tempfile().unwrap();
        from.write_all(b"..first.second").unwrap();
        let from = Arc::new(from);
        let made = |name: &str, range| SideFile { path: at(name), from: from.clone(), range, cached: None };
        let both = [made("one", 2..7), made("two", 8..14)];
        let read = |name: &str| fs::read_to_string(at(name)).ok();
        let failed = put_made(&both, Existing::Keep, || anyhow::bail!("no room"));
        assert_eq!(failed.unwrap_err().to_string(), "no room");
        assert_eq!((read("one"), read("two")), (None, None));
        put_made(&both, Existing::Keep, || Ok(())).unwrap();
        assert_eq!((read("one"), read("two")), (Some("first".into()), Some("second".into())));
        // The same content may be there already; another one must be replaceable.
        put_made(&both, Existing::Keep, || Ok(())).unwrap();
        let changed = [made("three", 0..2), made("one", 8..14)];
        let error = put_made(&changed, Existing::Keep, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("one exists; -f overwrites it"), "{error}");
        assert_eq!((read("one"), read("three")), (Some("first".into()), None));
        put_made(&changed, Existing::Replace, || Ok(())).unwrap();
        assert_eq!((read("one"), read("three")), (Some("second".into()), Some("..".into())));
        fs::create_dir(at("folder")).unwrap();
        let error = put_made(&[made("folder", 0..2)], Existing::Replace, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("is not a regular file"), "{error}");
    }
}
