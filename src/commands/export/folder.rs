//! Writes a folder of files that appear together or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Access, access};

use crate::io::commit::{Existing, NewFile, Outputs, is_empty, plain, with_folder};
use crate::io::signals::Unfinished;
use crate::io::source::{Source, identity};
use crate::io::target::{Named, refuse_dangling};

/// A folder and its new files, which have no names until all are complete.
pub(super) struct Folder {
    path: PathBuf,
    names: &'static [&'static str],
    existing: Existing,
    /// One for each name; empty in a dry run.
    files: Vec<Unfinished<NewFile>>,
}

impl Folder {
    /// Checks that the files may be written to `path`. Without `force`, existing files are an error.
    pub(super) fn new(
        path: &Path,
        names: &'static [&'static str],
        source: &Source,
        force: bool,
        dry_run: bool,
    ) -> Result<Folder> {
        check(path, names, std::slice::from_ref(source), force)?;
        let name = || format!("can't create {}", path.display());
        let inside = writable_above(path)?;
        let files = names.iter().filter(|_| !dry_run).map(|_| Unfinished::file(inside));
        let files = files.collect::<io::Result<_>>().map_err(plain).with_context(name)?;
        let existing = if force { Existing::Replace } else { Existing::Keep };
        Ok(Folder { path: path.to_owned(), names, existing, files })
    }

    /// Opens one of the files, readable by its owner only.
    pub(super) fn create(&self, name: &str) -> Result<Box<dyn Write>> {
        let file = self.names.iter().zip(&self.files).find(|(known, _)| **known == name);
        let Some((_, file)) = file else { return Ok(Box::new(io::sink())) };
        let path = self.path.join(name).display().to_string();
        let file = file.get().file().try_clone().with_context(|| path.clone())?;
        Ok(Box::new(BufWriter::with_capacity(1 << 16, Named::new(path, file))))
    }

    /// Gives all files their names.
    pub(super) fn commit(self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        with_folder(&self.path, || {
            let paths = self.names.iter().map(|name| self.path.join(name)).collect();
            let places = Outputs::new(&self.path, paths, self.existing, Vec::new())?;
            for (number, file) in self.files.into_iter().enumerate() {
                places.put(number, file)?;
            }
            places.commit()
        })
    }
}

/// Checks that there is a folder at `path`, or nothing.
pub(super) fn check_folder(path: &Path) -> Result<()> {
    let is_new = fs::symlink_metadata(path).is_err();
    ensure!(is_new || path.is_dir(), "{} is not a directory", path.display());
    Ok(())
}

/// Checks that files of these names may be written to the folder `path`. Without `force`, existing files are an error.
pub(super) fn check(path: &Path, names: &[&str], sources: &[Source], force: bool) -> Result<()> {
    check_folder(path)?;
    for source in sources {
        if let Source::Path(input) = source {
            refuse_input(input, path, names)?;
        }
    }
    for path in names.iter().map(|name| path.join(name)) {
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => bail!("{} is not a file", path.display()),
            Ok(_) if !force && !is_empty(&path) => bail!("{} exists; -f overwrites it", path.display()),
            Ok(_) => {}
            Err(error) => refuse_dangling(&path, &error)?,
        }
    }
    Ok(())
}

/// Writes files of these names and contents to the folder `path`, one after the other, so that any number of them can
/// be.
pub(super) fn write_files(path: &Path, texts: &BTreeMap<String, Vec<u8>>, force: bool) -> Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    with_folder(path, || {
        let paths = texts.keys().map(|name| path.join(name)).collect();
        let existing = if force { Existing::Replace } else { Existing::Keep };
        let places = Outputs::new(path, paths, existing, Vec::new())?;
        for (number, (name, text)) in texts.iter().enumerate() {
            let file = Unfinished::file(path).map_err(plain)?;
            Named::new(path.join(name).display().to_string(), file.get().file()).write_all(text)?;
            places.put(number, file)?;
        }
        places.commit()
    })
}

/// The folder, or if it does not exist the one in which it can be created.
pub(super) fn writable_above(path: &Path) -> Result<&Path> {
    let above = path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    access(above.join("."), Access::WRITE_OK | Access::EXEC_OK)
        .map_err(io::Error::from)
        .with_context(|| format!("can't create {}", path.display()))?;
    Ok(above)
}

/// Refuses to overwrite the input, and to write into a recording's own directory.
fn refuse_input(input: &Path, path: &Path, names: &[&str]) -> Result<()> {
    let metadata = fs::metadata(input).with_context(|| input.display().to_string())?;
    for name in names {
        let output = path.join(name);
        let same = fs::metadata(&output).is_ok_and(|output| identity(&output) == identity(&metadata));
        ensure!(!same, "{} is the input itself", output.display());
    }
    refuse_inside(input, path)
}

/// Refuses to write into a recording's own directory.
pub(super) fn refuse_inside(input: &Path, path: &Path) -> Result<()> {
    if fs::metadata(input).with_context(|| input.display().to_string())?.is_dir() {
        let input = fs::canonicalize(input)?;
        let inside = fs::canonicalize(path).is_ok_and(|path| path.starts_with(&input));
        ensure!(!inside, "{} is inside the input", path.display());
    }
    Ok(())
}
