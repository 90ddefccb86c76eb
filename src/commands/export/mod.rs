//! `perfx export` writes what a recording says in forms that other programs read; the files of a folder come into being together or not at all.

mod csv;
mod gather;
mod names;
mod overview;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use rustix::fs::{Access, access};
use tempfile::TempDir;

use crate::cli::EXIT_CODES;
use crate::input::Source;
use crate::settle::plain;
use crate::signals::Unfinished;

/// Write tables of a recording for other programs
#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(subcommand)]
    form: Form,
}

#[derive(Subcommand, Debug)]
enum Form {
    #[command(after_help = EXIT_CODES)]
    Csv(csv::Csv),
}

impl Export {
    pub(crate) fn run(&self) -> Result<u8> {
        match &self.form {
            Form::Csv(csv) => csv.run(),
        }
    }
}

/// A folder that gets some files, all of them or none: they are written in a temporary folder and renamed when all are whole.
struct Folder {
    path: PathBuf,
    names: &'static [&'static str],
    /// `None` in a dry run.
    temporary: Option<Unfinished<TempDir>>,
    /// It was not there: then the temporary folder itself takes its place.
    is_new: bool,
}

impl Folder {
    /// Checks that the files may be written to `path`. Without `force` existing ones are left alone.
    fn new(
        path: &Path,
        names: &'static [&'static str],
        source: &Source,
        force: bool,
        dry_run: bool,
    ) -> Result<Folder> {
        let is_new = fs::symlink_metadata(path).is_err();
        ensure!(is_new || path.is_dir(), "{} is no directory", path.display());
        if let Source::Path(input) = source {
            refuse_input(input, path, names)?;
        }
        for name in names {
            match fs::metadata(path.join(name)) {
                Ok(metadata) if !metadata.is_file() => bail!("{} is no file", path.join(name).display()),
                Ok(_) if !force => {
                    bail!("{} exists; -f overwrites it", path.join(name).display())
                }
                _ => {}
            }
        }
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut folder = Folder { path: path.to_owned(), names, temporary: None, is_new };
        let inside = if is_new { parent } else { path };
        access(inside, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(io::Error::from)
            .with_context(|| format!("{} can't be made", path.display()))?;
        if !dry_run {
            let temporary =
                Unfinished::folder(|| tempfile::Builder::new().prefix(".perfx-").tempdir_in(inside));
            folder.temporary =
                Some(temporary.map_err(plain).with_context(|| format!("{} can't be made", path.display()))?);
        }
        Ok(folder)
    }

    /// One of the files, readable by its owner only.
    fn create(&self, name: &str) -> Result<Box<dyn Write>> {
        let Some(temporary) = &self.temporary else { return Ok(Box::new(io::sink())) };
        let file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary.path().join(name));
        let file = file.with_context(|| self.path.join(name).display().to_string())?;
        Ok(Box::new(BufWriter::with_capacity(1 << 16, file)))
    }

    /// Gives all files their names.
    fn settle(self) -> Result<()> {
        let Some(temporary) = self.temporary else { return Ok(()) };
        if self.is_new {
            return temporary.finish(|temporary| {
                let made = temporary.keep();
                let renamed = fs::rename(&made, &self.path);
                if renamed.is_err() {
                    fs::remove_dir_all(&made)?;
                }
                renamed.with_context(|| self.path.display().to_string())
            });
        }
        for name in self.names.iter().filter(|name| self.path.join(name).exists()) {
            // A rename may reach the disk before the bytes it names, and would take the old file away.
            let synced = File::open(temporary.path().join(name)).and_then(|file| file.sync_all());
            synced.with_context(|| self.path.join(name).display().to_string())?;
        }
        temporary.finish(|temporary| {
            let mut new = Vec::new();
            for name in self.names {
                let to = self.path.join(name);
                let exists = to.exists();
                if let Err(error) = fs::rename(temporary.path().join(name), &to) {
                    new.iter().try_for_each(fs::remove_file)?;
                    return Err(error).with_context(|| to.display().to_string());
                }
                if !exists {
                    new.push(to);
                }
            }
            Ok(())
        })
    }
}

/// The input is never overwritten, and a recording's own directory gets no files that are none of its own.
fn refuse_input(input: &Path, path: &Path, names: &[&str]) -> Result<()> {
    let metadata = fs::metadata(input).with_context(|| input.display().to_string())?;
    for name in names {
        let output = path.join(name);
        let same = fs::metadata(&output)
            .is_ok_and(|output| (output.dev(), output.ino()) == (metadata.dev(), metadata.ino()));
        ensure!(!same, "{} is the input itself", output.display());
    }
    if metadata.is_dir() {
        let input = fs::canonicalize(input)?;
        let inside = fs::canonicalize(path).is_ok_and(|path| path.starts_with(&input));
        ensure!(!inside, "{} is inside the input", path.display());
    }
    Ok(())
}
