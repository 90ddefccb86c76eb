//! An output gets its name in one step, whole or not at all: until then it has a temporary one in the same folder, and what it replaces stays.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use perfx_pipeline::{Job, Level, Outcome, Output, OutputForm};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile, TempDir};

use crate::signals::Unfinished;

/// The path of an output.
pub(crate) struct Place<'a> {
    path: &'a Path,
    /// Where what is there will be kept.
    old: Option<PathBuf>,
    /// What is there is changed, so that owner and permissions stay.
    changes: bool,
}

impl<'a> Place<'a> {
    /// With `backup`, what is there will be kept under perf's name for it, `PATH.old`.
    pub(crate) fn new(path: &'a Path, backup: bool) -> Place<'a> {
        let old = (backup && path.exists()).then(|| {
            let mut name: OsString = path.into();
            name.push(".old");
            name.into()
        });
        Place { path, old, changes: false }
    }

    /// What is there is not replaced by something else, but changed: it keeps its owner and its permissions.
    pub(crate) fn changed(self) -> Place<'a> {
        Place { changes: true, ..self }
    }

    /// Where what is there will be kept, if there is anything to keep.
    pub(crate) fn kept_as(&self) -> Option<PathBuf> {
        self.old.clone()
    }

    /// A file with its name.
    pub(crate) fn write_file(&self, job: Job, form: OutputForm) -> Result<Outcome> {
        let (temporary, outcome) = self.make_file(job, form)?;
        self.settle(temporary)?;
        Ok(outcome)
    }

    /// A file that has its temporary name yet. Readable by its owner only, as perf makes its files, unless one is changed.
    pub(crate) fn make_file(
        &self,
        job: Job,
        form: OutputForm,
    ) -> Result<(Unfinished<NamedTempFile>, Outcome)> {
        let name = || self.path.display().to_string();
        let temporary = Unfinished::file(|| temporary().tempfile_in(folder(self.path)));
        let mut temporary = temporary.map_err(plain).with_context(name)?;
        let file = temporary.get_mut().as_file_mut();
        let mut outcome = match form {
            OutputForm::Pipe => job.run(Output::Pipe(file))?,
            _ => job.run(Output::File(file, form))?,
        };
        if self.changes {
            let old = self.path.metadata().with_context(name)?;
            // Its owner may not give it to a group that he is not in.
            if fchown(&*file, Some(old.uid()), Some(old.gid())).is_err() {
                let gid = file.metadata().with_context(name)?.gid();
                let what = format!("{} belongs to group {gid} now, not {}", self.path.display(), old.gid());
                outcome.report.say(Level::Warning, what);
            }
            file.set_permissions(old.permissions()).with_context(name)?;
        }
        // A rename may reach the disk before the bytes it names. Where it takes an old file away, those bytes must be there first; a new file
        // takes nothing away (its input is still there), and waiting for the disk would double the time of a copy.
        if self.path.exists() {
            file.sync_all().with_context(name)?;
        }
        Ok((temporary, outcome))
    }

    /// Gives such a file its name.
    pub(crate) fn settle(&self, temporary: Unfinished<NamedTempFile>) -> Result<()> {
        let settled = temporary.finish(|temporary| self.settle_file(temporary));
        settled.map_err(plain).with_context(|| self.path.display().to_string())
    }

    fn settle_file(&self, temporary: NamedTempFile) -> io::Result<()> {
        if let Some(old) = &self.old {
            // A second name, so that the first is never without a file.
            let kept = temporary_name(self.path, |name| match fs::hard_link(self.path, name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // Not every file system has links.
                    fs::copy(self.path, name).map(drop)
                }
                linked => linked,
            })?;
            kept.persist(old)?;
        }
        temporary.persist(self.path)?;
        Ok(())
    }

    /// A directory with the recording as `data` and the input's other entries beside it; where there is nothing to stand beside it, a file.
    pub(crate) fn write_directory(&self, job: Job, extras: &[PathBuf]) -> Result<Outcome> {
        let name = || self.path.display().to_string();
        let (data, outcome) = self.make_file(job, OutputForm::DirectoryData)?;
        if extras.is_empty() && outcome.beside.is_empty() {
            self.settle(data)?;
            return Ok(outcome);
        }
        // As perf makes its directories.
        let owner_only = Permissions::from_mode(0o700);
        let temporary =
            Unfinished::folder(|| temporary().permissions(owner_only).tempdir_in(folder(self.path)));
        let temporary = temporary.map_err(plain).with_context(name)?;
        Place::new(&temporary.path().join("data"), false).settle(data)?;
        for extra in extras {
            if let Some(name) = extra.file_name() {
                copy_tree(extra, &temporary.path().join(name))?;
            }
        }
        for (from, name) in &outcome.beside {
            copy_tree(from, &temporary.path().join(name))?;
        }
        temporary.finish(|temporary| self.settle_directory(temporary)).map_err(plain).with_context(name)?;
        Ok(outcome)
    }

    fn settle_directory(&self, temporary: TempDir) -> io::Result<()> {
        if self.path.symlink_metadata().is_err() {
            fs::rename(temporary.path(), self.path)?;
            drop(temporary.keep());
            return Ok(());
        }
        swap(temporary.path(), self.path)?;
        // Now the old one has the temporary name.
        let aside = temporary.keep();
        match &self.old {
            Some(old) if old.symlink_metadata().is_ok() => {
                swap(&aside, old)?;
                remove(&aside)
            }
            Some(old) => fs::rename(&aside, old),
            None => remove(&aside),
        }
    }
}

/// Several outputs of one command: none has its name until all are made, and then all have.
pub(crate) struct Places {
    temporary: Unfinished<TempDir>,
    paths: Vec<PathBuf>,
}

impl Places {
    /// At these paths, all in this folder.
    pub(crate) fn new(folder: &Path, paths: Vec<PathBuf>) -> Result<Places> {
        let temporary = Unfinished::folder(|| temporary().tempdir_in(folder));
        let temporary = temporary.map_err(plain).with_context(|| folder.display().to_string())?;
        Ok(Places { temporary, paths })
    }

    /// Makes the one of this number; with `extras`, it is a directory with these beside its records.
    pub(crate) fn write(&self, number: usize, job: Job, extras: &[PathBuf]) -> Result<Outcome> {
        let path = self.paths.get(number).context("there is no such output")?;
        let made = self.made(number);
        let place = Place::new(&made, false);
        let written = match extras {
            [] => place.write_file(job, OutputForm::File),
            _ => place.write_directory(job, extras),
        };
        let written = written.with_context(|| path.display().to_string())?;
        if path.exists() && extras.is_empty() {
            // As in `make_file`.
            File::open(&made).and_then(|file| file.sync_all()).with_context(|| path.display().to_string())?;
        }
        Ok(written)
    }

    fn made(&self, number: usize) -> PathBuf {
        self.temporary.path().join(number.to_string())
    }

    /// Gives all their names; where one can't have its own, those before it give theirs back.
    pub(crate) fn settle(self) -> Result<()> {
        let made: Vec<PathBuf> = (0..self.paths.len()).map(|number| self.made(number)).collect();
        let Places { temporary, paths } = self;
        let outputs: Vec<_> = made.iter().zip(&paths).collect();
        // What was there before goes to where the new one was, and from there away with the folder, or back.
        temporary.finish(|_folder| {
            for (number, (made, path)) in outputs.iter().enumerate() {
                let there = path.symlink_metadata().is_ok();
                let settled = if there { swap(made, path) } else { fs::rename(made, path) };
                if let Err(error) = settled {
                    for (made, path) in outputs[..number].iter().rev() {
                        let there = made.symlink_metadata().is_ok();
                        let _ = if there { swap(made, path) } else { fs::rename(path, made) };
                    }
                    return Err(plain(error)).with_context(|| path.display().to_string());
                }
            }
            Ok(())
        })
    }
}

/// Two paths change what they name, in one step where the file system can do that.
fn swap(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        // rename(2) replaces a directory only when that is empty, so the old one steps aside first.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let aside = temporary().tempdir_in(folder(path))?;
            let old = aside.path().join("old");
            fs::rename(path, &old)?;
            if let Err(error) = fs::rename(new, path) {
                fs::rename(&old, path)?;
                return Err(error);
            }
            fs::rename(&old, new)
        }
        swapped => Ok(swapped?),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Names of what is not finished.
fn temporary() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".perfx-");
    builder
}

fn temporary_name(beside: &Path, make: impl FnMut(&Path) -> io::Result<()>) -> io::Result<NamedTempFile<()>> {
    temporary().make_in(folder(beside), make)
}

/// The folder a path lies in.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Without the temporary name that tempfile adds, which is another one every time.
pub(crate) fn plain(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((what, _)) => io::Error::new(error.kind(), what),
        None => error,
    }
}

/// Files, directories and links as they are; of what else a directory may hold (FIFOs, sockets, devices) nothing can be copied.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let name = || from.display().to_string();
    let kind = from.symlink_metadata().with_context(name)?.file_type();
    if kind.is_dir() {
        fs::create_dir(to).with_context(name)?;
        for entry in fs::read_dir(from).with_context(name)? {
            let entry = entry.with_context(name)?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_symlink() {
        let to_where = fs::read_link(from).with_context(name)?;
        symlink(to_where, to).with_context(name)?;
    } else {
        ensure!(kind.is_file(), "{} is neither file nor directory and can't be copied", from.display());
        fs::copy(from, to).with_context(name)?;
    }
    Ok(())
}
