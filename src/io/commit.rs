//! Gives an output its name in one step when it is complete. Until then it has no name, and the file that it
//! replaces stays.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _, fchown, symlink,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use perfx_pipeline::{Cached, Job, Level, Made, Outcome, Output, OutputForm, counted};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, fcntl_lock, openat, renameat_with};
use rustix::io::Errno;
use tempfile::{Builder, TempDir};

use crate::io::signals::Unfinished;
use crate::io::source::identity;

pub(crate) use perfx_format::write::{NewFile, folder, rename_new};

/// What happens to an existing file with the name of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existing {
    /// Refuse the output, unless the file is empty: mktemp creates such files for others to fill.
    Keep,
    /// Replace it.
    Replace,
    /// Replace it and keep it as `PATH.old`.
    BackUp,
}

/// The path of an output.
pub(crate) struct OutputPath<'a> {
    path: &'a Path,
    existing: Existing,
    /// What happens to existing files that passes make again, such as images of JIT code.
    existing_made: Existing,
    /// True if the existing file is changed, so that its owner and permissions stay.
    changes: bool,
}

impl<'a> OutputPath<'a> {
    /// An output at this path.
    pub(crate) fn new(path: &'a Path, existing: Existing) -> OutputPath<'a> {
        OutputPath { path, existing, existing_made: existing, changes: false }
    }

    /// Marks the existing file as changed, not replaced: its owner and permissions stay. That the file may be changed
    /// says nothing of those that passes make.
    pub(crate) fn changed(self, existing_made: Existing) -> OutputPath<'a> {
        OutputPath { changes: true, existing_made, ..self }
    }

    /// Where the existing file will be kept: `PATH.old`, as perf does. `None` if it is not kept, or there is
    /// none.
    pub(crate) fn kept_as(&self) -> Option<PathBuf> {
        (self.existing == Existing::BackUp && self.path.exists()).then(|| {
            let mut name: OsString = self.path.into();
            name.push(".old");
            name.into()
        })
    }

    /// Writes a file and gives it its name.
    pub(crate) fn write_file(&self, job: Job, form: OutputForm) -> Result<Outcome> {
        let (new, outcome) = self.make_file(job, form)?;
        self.commit(new)?;
        Ok(outcome)
    }

    /// Writes a file without a name. It is readable by its owner only, as perf's files are, unless an
    /// existing file is changed.
    pub(crate) fn make_file(&self, job: Job, form: OutputForm) -> Result<(Unfinished<NewFile>, Outcome)> {
        let name = || self.path.display().to_string();
        let new = Unfinished::file(folder(self.path)).map_err(plain).with_context(name)?;
        let file = new.get().file();
        let read = job.recording.main_file();
        let mut outcome = match form {
            OutputForm::Pipe => job.run(Output::Pipe(&mut &*file))?,
            _ => job.run(Output::File(file, form))?,
        };
        if self.changes {
            let old = self.path.metadata().with_context(name)?;
            if old.nlink() > 1 {
                let keep = if old.nlink() == 2 { "keeps" } else { "keep" };
                let others = counted(old.nlink() - 1, "other name", "other names");
                let what = format!(
                    "{} had {others} (hard links), which {keep} the old content",
                    self.path.display()
                );
                outcome.report.say(Level::Warning, what);
            }
            let read = read.and_then(|read| read.metadata().ok());
            ensure!(
                read.is_none_or(|read| identity(&read) == identity(&old)),
                "{}: another program has replaced it, so nothing was written: run the command again",
                self.path.display()
            );
            // The owner may not be a member of the file's group.
            if fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
                let gid = file.metadata().with_context(name)?.gid();
                let what = format!("{} belongs to group {gid} now, not {}", self.path.display(), old.gid());
                outcome.report.say(Level::Warning, what);
            }
            file.set_permissions(old.permissions()).with_context(name)?;
        }
        new.get().sync_to_replace(self.path).with_context(name)?;
        put_made(&outcome.made, self.existing_made)?;
        Ok((new, outcome))
    }

    /// Gives the file its name.
    pub(crate) fn commit(&self, new: Unfinished<NewFile>) -> Result<()> {
        let committed = new.finish(|new| self.commit_file(new));
        committed.map_err(plain).with_context(|| self.path.display().to_string())
    }

    fn commit_file(&self, new: NewFile) -> io::Result<()> {
        self.keep_old()?;
        if self.existing != Existing::Keep {
            return new.replace(self.path);
        }
        match new.take_name(self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let _empty = claim_empty(self.path)?;
                new.replace(self.path)
            }
            named => named,
        }
    }

    /// Gives the existing file the name that it keeps, if it is kept.
    fn keep_old(&self) -> io::Result<()> {
        if let Some(old) = self.kept_as() {
            // A second name, so that the first name always has a file.
            let kept =
                temporary().make_in(folder(self.path), |name| match fs::hard_link(self.path, name) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        // Some file systems have no links.
                        fs::copy(self.path, name).map(drop)
                    }
                    linked => linked,
                })?;
            kept.persist(old)?;
        }
        Ok(())
    }

    /// Writes a directory with the recording as `data` and the input's other entries next to it; without such
    /// entries, a file.
    pub(crate) fn write_directory(&self, job: Job, extras: &[PathBuf]) -> Result<Outcome> {
        let (data, outcome) = self.make_file(job, OutputForm::DirectoryData)?;
        if extras.is_empty() && outcome.beside.is_empty() {
            self.commit(data)?;
            return Ok(outcome);
        }
        self.make_folder(|folder| {
            OutputPath::new(&folder.join("data"), Existing::Keep).commit(data)?;
            for extra in extras {
                if let Some(name) = extra.file_name() {
                    copy_tree(extra, &folder.join(name))?;
                }
            }
            outcome.beside.iter().try_for_each(|(from, name)| copy_tree(from, &folder.join(name)))
        })?;
        Ok(outcome)
    }

    /// Makes a folder, and gives it its name when `fill` has put everything into it.
    pub(crate) fn make_folder(&self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let name = || self.path.display().to_string();
        // The mode of perf's directories.
        let owner_only = Permissions::from_mode(0o700);
        let temporary =
            Unfinished::folder(|| temporary().permissions(owner_only).tempdir_in(folder(self.path)));
        let temporary = temporary.map_err(plain).with_context(name)?;
        fill(temporary.path())?;
        temporary.finish(|temporary| self.commit_directory(temporary)).map_err(plain).with_context(name)
    }

    fn commit_directory(&self, temporary: TempDir) -> io::Result<()> {
        let _empty = match rename_new(temporary.path(), self.path) {
            Ok(()) => {
                drop(temporary.keep());
                return Ok(());
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if self.existing == Existing::Keep => Some(claim_empty(self.path)?),
            Err(_) => None,
        };
        let old = self.kept_as();
        swap(temporary.path(), self.path)?;
        // The old directory now has the temporary name.
        let aside = temporary.keep();
        match old {
            Some(old) if old.symlink_metadata().is_ok() => {
                swap(&aside, &old)?;
                remove(&aside)
            }
            Some(old) => fs::rename(&aside, old),
            None => remove(&aside),
        }
    }
}

/// Whether a file or directory exists and is empty, so that replacing it loses nothing.
pub(crate) fn is_empty(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len() == 0,
        Ok(metadata) if metadata.is_dir() => {
            fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
        }
        _ => false,
    }
}

/// If several perfx processes write to one empty file, the first one gets it: each locks it and checks that
/// the file still has the name. An empty directory needs no lock, because rename(2) replaces no other kind.
fn claim_empty(path: &Path) -> io::Result<Option<File>> {
    let taken = || {
        let what = "another program has created it, so it was not overwritten; -f overwrites it";
        io::Error::new(io::ErrorKind::AlreadyExists, what)
    };
    if path.is_dir() && is_empty(path) {
        return Ok(None);
    }
    // Non-blocking, because it may be a FIFO by now.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty()).map(File::from).map_err(|_| taken())?;
    // A file system without locks offers no better way.
    let _ = fcntl_lock(&file, FlockOperation::LockExclusive);
    let locked = file.metadata()?;
    let named = path.symlink_metadata().map_err(|_| taken())?;
    let same = identity(&locked) == identity(&named);
    if same && locked.is_file() && locked.len() == 0 { Ok(Some(file)) } else { Err(taken()) }
}

/// Several outputs of one command: none gets its name until all are written; then all do.
pub(crate) struct Outputs {
    temporary: Unfinished<TempDir>,
    paths: Vec<PathBuf>,
    existing: Existing,
    /// Files to remove when the outputs get their names.
    outdated: Vec<PathBuf>,
}

impl Outputs {
    /// Outputs at these paths, all in this folder.
    pub(crate) fn new(
        folder: &Path,
        paths: Vec<PathBuf>,
        existing: Existing,
        outdated: Vec<PathBuf>,
    ) -> Result<Outputs> {
        let temporary = Unfinished::folder(|| temporary().tempdir_in(folder));
        let temporary = temporary.map_err(plain).with_context(|| folder.display().to_string())?;
        Ok(Outputs { temporary, paths, existing, outdated })
    }

    /// Writes the output with this number; with `extras`, as a directory with these entries next to its
    /// records.
    pub(crate) fn write(&self, number: usize, job: Job, extras: &[PathBuf]) -> Result<Outcome> {
        let path = self.paths.get(number).context("there is no such output")?;
        let made = self.made(number);
        let place = OutputPath::new(&made, Existing::Keep);
        let written = match extras {
            [] => place.write_file(job, OutputForm::File),
            _ => place.write_directory(job, extras),
        };
        let written = written.with_context(|| path.display().to_string())?;
        if path.exists() && extras.is_empty() {
            // It was written under a name that replaces nothing.
            File::open(&made).and_then(|file| file.sync_all()).with_context(|| path.display().to_string())?;
        }
        Ok(written)
    }

    /// Uses a file that was already written as the output with this number.
    pub(crate) fn put(&self, number: usize, new: Unfinished<NewFile>) -> Result<()> {
        let path = self.paths.get(number).context("there is no such output")?;
        new.get().sync_to_replace(path).with_context(|| path.display().to_string())?;
        let put = new.finish(|new| new.take_name(&self.made(number)));
        put.map_err(plain).with_context(|| path.display().to_string())
    }

    fn made(&self, number: usize) -> PathBuf {
        self.temporary.path().join(number.to_string())
    }

    /// Gives all outputs their names. If one fails, the others' names are undone.
    pub(crate) fn commit(self) -> Result<()> {
        let count = self.paths.len() + self.outdated.len();
        let made: Vec<PathBuf> = (0..count).map(|number| self.made(number)).collect();
        let Outputs { temporary, paths, existing, outdated } = self;
        let outputs: Vec<_> = made.iter().zip(paths.iter().chain(&outdated)).collect();
        // The old file takes the place of the new one, from where it is deleted with the folder, or moved
        // back.
        let commit = |number: usize, made: &Path, path: &Path| {
            if number >= paths.len() {
                return fs::rename(path, made);
            }
            let _empty = match rename_new(made, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) => return Ok(()),
                Err(_) if existing == Existing::Keep => claim_empty(path)?,
                Err(_) => None,
            };
            swap(made, path)
        };
        temporary.finish(|_folder| {
            for (number, (made, path)) in outputs.iter().enumerate() {
                if let Err(error) = commit(number, made, path) {
                    for (made, path) in outputs[..number].iter().rev() {
                        let _ = match (made.symlink_metadata().is_ok(), path.symlink_metadata().is_ok()) {
                            (true, true) => swap(made, path),
                            (true, false) => fs::rename(made, path),
                            (false, _) => fs::rename(path, made),
                        };
                    }
                    return Err(plain(error)).with_context(|| path.display().to_string());
                }
            }
            Ok(())
        })
    }
}

/// Gives files that passes have made their names: all of them, or none. An existing file with the same
/// content stays, and so does whatever is not a regular file.
pub(crate) fn put_made(made: &[Made], existing: Existing) -> Result<()> {
    let mut new = Vec::new();
    for file in made {
        let name = || file.path.display().to_string();
        let there = file.path.symlink_metadata().ok();
        let is_there = there.is_some();
        ensure!(
            there.is_none_or(|there| there.is_file()),
            "{} exists and is not a regular file, so it is not overwritten; move it away",
            file.path.display()
        );
        if !is_there || !has_content(file).with_context(name)? {
            let may = !is_there || existing != Existing::Keep || is_empty(&file.path);
            ensure!(may, "{} exists; -f overwrites it", file.path.display());
            new.push(file);
        }
    }
    let cached = || made.iter().try_for_each(put_cached);
    let Some(folder) = new.first().map(|file| folder(&file.path).to_owned()) else { return cached() };
    with_folder(&folder, || {
        let paths = new.iter().map(|file| file.path.clone()).collect();
        let outputs = Outputs::new(&folder, paths, existing, Vec::new())?;
        for (number, file) in new.iter().enumerate() {
            let name = || file.path.display().to_string();
            let unnamed = Unfinished::file(&folder).map_err(plain).with_context(name)?;
            copy_made(file, unnamed.get().file()).with_context(name)?;
            outputs.put(number, unnamed)?;
        }
        for file in &new {
            let name = || file.path.display().to_string();
            OutputPath::new(&file.path, existing).keep_old().map_err(plain).with_context(name)?;
        }
        outputs.commit()?;
        cached()
    })
}

/// Puts a file that was made into the build-id cache that it names, as perf buildid-cache does; an entry that is
/// there stays.
fn put_cached(made: &Made) -> Result<()> {
    let Some(Cached { cache, build_id }) = &made.cached else { return Ok(()) };
    let (first, rest) = build_id.split_at(2);
    let link = cache.join(".build-id").join(first).join(rest);
    let name = || link.display().to_string();
    if link.symlink_metadata().is_ok() {
        return Ok(());
    }
    let below = made.path.strip_prefix("/").unwrap_or(&made.path).join(build_id);
    let entry = cache.join(&below);
    for folder in [&*entry, folder(&link)] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let unnamed = Unfinished::file(&entry).map_err(plain).with_context(name)?;
    copy_made(made, unnamed.get().file()).with_context(name)?;
    let unless_there = |put: io::Result<()>| match put {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        put => put,
    };
    let put = unless_there(unnamed.finish(|new| new.take_name(&entry.join("elf"))));
    // Only the link makes it an entry, and it is made in one step.
    let linked = put.and_then(|()| unless_there(symlink(Path::new("../..").join(below), &link)));
    linked.map_err(plain).with_context(name)
}

/// The number of bytes of a made file that are read at a time.
const BLOCK: usize = 1 << 16;

/// Calls `block` with each block of a made file and its place, until it returns false.
fn blocks(made: &Made, mut block: impl FnMut(u64, &[u8]) -> io::Result<bool>) -> io::Result<bool> {
    let mut bytes = vec![0; BLOCK];
    for at in made.range.clone().step_by(BLOCK) {
        let bytes = &mut bytes[..(made.range.end - at).min(BLOCK as u64) as usize];
        made.from.read_exact_at(bytes, at)?;
        if !block(at - made.range.start, bytes)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True if the existing file of that name has the same content.
fn has_content(made: &Made) -> io::Result<bool> {
    let there = made.path.symlink_metadata()?;
    if !there.is_file() || there.len() != made.range.end - made.range.start {
        return Ok(false);
    }
    let file = File::open(&made.path)?;
    let mut there = vec![0; BLOCK];
    blocks(made, |at, bytes| {
        let there = &mut there[..bytes.len()];
        file.read_exact_at(there, at)?;
        Ok(there == bytes)
    })
}

/// Copies a file that was made; blocks of zeros become holes.
fn copy_made(made: &Made, to: &File) -> io::Result<()> {
    to.set_len(made.range.end - made.range.start)?;
    let write = |at, bytes: &[u8]| {
        if bytes.iter().any(|&byte| byte != 0) {
            to.write_all_at(bytes, at)?;
        }
        Ok(true)
    };
    blocks(made, write).map(drop)
}

/// Creates a folder, with its parents if necessary, for the files of `write`; removes them again on failure.
pub(crate) fn with_folder<T>(folder: &Path, write: impl FnOnce() -> Result<T>) -> Result<T> {
    let made: Vec<&Path> = folder.ancestors().take_while(|above| !above.exists()).collect();
    if !made.is_empty() {
        // The mode of perf's directories.
        let owner_only = fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
        owner_only.with_context(|| folder.display().to_string())?;
    }
    let written = write();
    if written.is_err() {
        // Removes those that are still empty.
        let _ = made.into_iter().try_for_each(fs::remove_dir);
    }
    written
}

/// Swaps what two paths name, in one step if the file system can.
fn swap(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        // rename(2) replaces only an empty directory, so the old one is moved aside first.
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

/// Names of unfinished files.
fn temporary() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(NewFile::PREFIX);
    builder
}

/// Removes the random temporary name that tempfile adds to errors.
pub(crate) fn plain(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((what, _)) => io::Error::new(error.kind(), what),
        None => error,
    }
}

/// Copies files, directories and links; other entries (FIFOs, sockets, devices) cannot be copied.
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
        ensure!(kind.is_file(), "{} is neither a file nor a directory and can't be copied", from.display());
        fs::copy(from, to).with_context(name)?;
    }
    Ok(())
}
