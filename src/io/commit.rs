//! Gives an output its name in one step when it is complete. Until then it has no name, and the file that it
//! replaces stays.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use perfx_format::read::Recording;
use perfx_pipeline::{Cached, Job, Level, Made, Outcome, Output, OutputForm, counted};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, fcntl_lock, openat, renameat_with};
use rustix::io::Errno;
use tempfile::{TempDir, TempPath};

use crate::io::signals::{Unfinished, undisturbed};
use crate::io::source::{Version, identity};
use crate::io::sparse::{self, ReadAt};

pub(crate) use perfx_format::write::{NewFile, folder, plain, rename_new, temporary};

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
    /// The existing file that is changed, as it was when it was read: its owner and permissions stay, and it is replaced
    /// only if it is still the same.
    changes: Option<Version>,
}

impl<'a> OutputPath<'a> {
    /// An output at this path.
    pub(crate) fn new(path: &'a Path, existing: Existing) -> OutputPath<'a> {
        OutputPath { path, existing, existing_made: existing, changes: None }
    }

    /// Marks the existing file as changed, not replaced: its owner and permissions stay. That the file may be changed
    /// says nothing of those that passes make.
    pub(crate) fn changed(self, existing_made: Existing, recording: &Recording) -> OutputPath<'a> {
        OutputPath { changes: recording.opened().map(Version::of), existing_made, ..self }
    }

    /// Where the existing file will be kept: `PATH.old`, as perf does. `None` if it is not kept, or there is
    /// none.
    pub(crate) fn kept_as(&self) -> Result<Option<PathBuf>> {
        let is_there = || self.path.try_exists().with_context(|| self.path.display().to_string());
        Ok((self.existing == Existing::BackUp && is_there()?).then(|| old_name(self.path)))
    }

    /// Writes a file and gives it its name.
    pub(crate) fn write_file(&self, job: Job, form: OutputForm) -> Result<Outcome> {
        let (new, outcome) = self.make_file(job, form)?;
        put_made(&outcome.made, self.existing_made, || self.commit(new))?;
        Ok(outcome)
    }

    /// Writes a file without a name. It is readable by its owner only, as perf's files are, unless an
    /// existing file is changed. The files that passes made have no names yet, either.
    pub(crate) fn make_file(&self, job: Job, form: OutputForm) -> Result<(Unfinished<NewFile>, Outcome)> {
        let name = || self.path.display().to_string();
        let new = Unfinished::file(folder(self.path)).map_err(plain).with_context(name)?;
        let file = new.get().file();
        let mut outcome = match form {
            OutputForm::Pipe => job.run(Output::Pipe(&mut &*file))?,
            _ => job.run(Output::File(file, form))?,
        };
        if self.changes.is_some() {
            self.check_unchanged().with_context(name)?;
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
            let owned = fchown(file, Some(old.uid()), Some(old.gid()));
            let new = file.metadata().with_context(name)?;
            if new.uid() != old.uid() {
                owned.with_context(|| format!("{}: can't be given to user {}", name(), old.uid()))?;
            }
            // The owner may not be a member of the file's group.
            if new.gid() != old.gid() {
                let what = format!("{} belongs to group {} now, not {}", name(), new.gid(), old.gid());
                outcome.report.say(Level::Warning, what);
            }
            file.set_permissions(old.permissions()).with_context(name)?;
        }
        new.get().sync_to_replace(self.path).with_context(name)?;
        Ok((new, outcome))
    }

    /// Gives the file its name.
    pub(crate) fn commit(&self, new: Unfinished<NewFile>) -> Result<()> {
        let committed = new.finish(|new| self.commit_file(new));
        committed.map_err(plain).with_context(|| self.path.display().to_string())
    }

    fn commit_file(&self, new: NewFile) -> io::Result<()> {
        match self.existing {
            Existing::Keep => match new.take_name(self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let _empty = claim_empty(self.path)?;
                    new.replace(self.path)
                }
                named => named,
            },
            Existing::Replace if self.changes.is_none() => new.replace(self.path),
            Existing::Replace | Existing::BackUp => {
                self.check_unchanged()?;
                self.take_place(new.named_beside(self.path)?)
            }
        }
    }

    /// Gives a file the name of the existing one, which is kept or removed: the one that then comes out, because another
    /// program may have put it there since the last check.
    fn take_place(&self, new: TempPath) -> io::Result<()> {
        match renameat_with(CWD, &*new, CWD, self.path, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return self.persist(new),
            // Not every file system can exchange names.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let old = if self.existing == Existing::BackUp { self.second_name()? } else { None };
                self.persist(new)?;
                return old.map_or(Ok(()), |old| self.back_up(old));
            }
            Err(error) => return Err(error.into()),
        }
        let old = new;
        let check = || match old.symlink_metadata()? {
            folder if folder.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            found => self.changes.map_or(Ok(()), |seen| seen.check_renamed(&found)),
        };
        if let Err(error) = check() {
            return swap(&old, self.path).and(Err(error));
        }
        if self.existing == Existing::BackUp { self.back_up(old) } else { Ok(()) }
    }

    fn persist(&self, new: TempPath) -> io::Result<()> {
        new.persist(self.path).map_err(|failed| failed.error)
    }

    /// Checks that an existing file that is changed is still as it was when it was read.
    fn check_unchanged(&self) -> io::Result<()> {
        self.changes.map_or(Ok(()), |seen| seen.check(&self.path.metadata()?))
    }

    /// A second name for the existing file, if there is one, so that it stays whatever happens to the first one.
    fn second_name(&self) -> io::Result<Option<TempPath>> {
        match temporary().make_in(folder(self.path), |name| fs::hard_link(self.path, name)) {
            Ok(linked) => Ok(Some(linked.into_temp_path())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Some file systems have no links.
            Err(_) => {
                let copy = temporary().tempfile_in(folder(self.path))?.into_temp_path();
                fs::copy(self.path, &copy)?;
                File::open(&copy)?.sync_all()?;
                self.check_unchanged()?;
                Ok(Some(copy))
            }
        }
    }

    /// Gives the old file the name that it keeps, now that the new one has its name; if that fails, the old file gets
    /// its own name again.
    fn back_up(&self, old: TempPath) -> io::Result<()> {
        let Err(error) = fs::rename(&old, old_name(self.path)) else { return Ok(()) };
        if fs::rename(&old, self.path).is_ok() {
            return Err(error);
        }
        let what = format!("{error}; the old file is {} now", old.keep()?.display());
        Err(io::Error::new(error.kind(), what))
    }

    /// Writes a directory with the recording as `data` and the input's other entries next to it; without such
    /// entries, a file.
    pub(crate) fn write_directory(&self, job: Job, extras: &[PathBuf]) -> Result<Outcome> {
        let (data, outcome) = self.make_file(job, OutputForm::DirectoryData)?;
        put_made(&outcome.made, self.existing_made, || {
            if extras.is_empty() && outcome.beside.is_empty() {
                return self.commit(data);
            }
            self.make_folder(|folder| {
                OutputPath::new(&folder.join("data"), Existing::Keep).commit(data)?;
                for extra in extras {
                    if let Some(name) = extra.file_name() {
                        copy_tree(extra, &folder.join(name))?;
                    }
                }
                outcome.beside.iter().try_for_each(|(from, name)| copy_tree(from, &folder.join(name)))
            })
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
        let mut done = Vec::new();
        let named = undisturbed(|| name_output(temporary.path(), self.path, self.existing, false, &mut done));
        finish(temporary, done, named.map_err(plain).with_context(name))
    }
}

/// `PATH.old`.
fn old_name(path: &Path) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(".old");
    name.into()
}

/// The metadata of what has this name, even if that is a link; `None` if nothing has it.
fn there(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        there => there.map(Some),
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
    #[expect(clippy::let_underscore_must_use, reason = "a file system without locks offers no better way")]
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
    /// True if only regular files are replaced.
    only_files: bool,
}

/// A change of names that can be undone.
enum Renamed {
    /// A file got a name that did not exist.
    To { from: PathBuf, to: PathBuf },
    /// Two files got each other's names.
    Swapped(PathBuf, PathBuf),
}

impl Renamed {
    /// Gives a file a name. If that exists, the file there gets the other name.
    fn new(from: &Path, to: &Path) -> io::Result<Renamed> {
        match rename_new(from, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Renamed::swapped(from, to),
            renamed => renamed.map(|()| Renamed::To { from: from.into(), to: to.into() }),
        }
    }

    fn swapped(one: &Path, other: &Path) -> io::Result<Renamed> {
        swap(one, other)?;
        Ok(Renamed::Swapped(one.into(), other.into()))
    }

    fn undo(&self) -> io::Result<()> {
        match self {
            Renamed::To { from, to } => rename_new(to, from),
            Renamed::Swapped(one, other) => swap(one, other),
        }
    }
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
        Ok(Outputs { temporary, paths, existing, outdated, only_files: false })
    }

    /// Replaces regular files only: a folder is not deleted, even if it took the place of one just now.
    fn only_files(self) -> Outputs {
        Outputs { only_files: true, ..self }
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
        if path.try_exists().unwrap_or(true) && extras.is_empty() {
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
        self.commit_and(|| Ok(()))
    }

    /// Gives all outputs their names, then runs `last`; if that fails, the names are undone.
    fn commit_and(self, last: impl FnOnce() -> Result<()>) -> Result<()> {
        let count = self.paths.len() + self.outdated.len();
        let made: Vec<PathBuf> = (0..count).map(|number| self.made(number)).collect();
        let Outputs { temporary, paths, existing, outdated, only_files } = self;
        let mut done = Vec::new();
        let named = undisturbed(|| {
            let (new, old) = made.split_at(paths.len());
            let outputs = new.iter().zip(&paths).map(|place| (place, true));
            for ((made, path), is_new) in outputs.chain(old.iter().zip(&outdated).map(|place| (place, false)))
            {
                let renamed = match is_new {
                    true => name_output(made, path, existing, only_files, &mut done),
                    // With the folder it is deleted.
                    false => rename_new(path, made)
                        .map(|()| done.push(Renamed::To { from: path.clone(), to: made.clone() })),
                };
                renamed.map_err(plain).with_context(|| path.display().to_string())?;
            }
            Ok(())
        });
        finish(temporary, done, named.and_then(|()| last()))
    }
}

/// Removes the temporary folder of outputs that have their names, with what they replaced. After an error, undoes the
/// names first; if that fails, the folder stays, because it has what was replaced.
fn finish(temporary: Unfinished<TempDir>, done: Vec<Renamed>, named: Result<()>) -> Result<()> {
    let Err(error) = named else { return temporary.remove() };
    let undone = undisturbed(|| done.iter().rev().try_for_each(Renamed::undo));
    match undone {
        Ok(()) => Err(error),
        Err(undoing) => {
            let kept = temporary.finish(TempDir::keep);
            let kept = kept.display();
            Err(error.context(format!("what was replaced is in {kept} and can't be put back ({undoing})")))
        }
    }
}

/// Gives an output its name. The old file gets that of the new one, with which it is deleted, or the one that it keeps.
fn name_output(
    made: &Path,
    path: &Path,
    existing: Existing,
    only_files: bool,
    done: &mut Vec<Renamed>,
) -> io::Result<()> {
    let _empty = match rename_new(made, path) {
        Ok(()) => {
            done.push(Renamed::To { from: made.into(), to: path.into() });
            return Ok(());
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) if existing == Existing::Keep => claim_empty(path)?,
        Err(_) => None,
    };
    done.push(Renamed::swapped(made, path)?);
    // Only now nothing else can take its place.
    let is_file = || made.symlink_metadata().map(|old| old.is_file());
    let check = || match !only_files || is_file()? {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file, so it is not overwritten; move it away")),
    };
    check()?;
    if existing == Existing::BackUp {
        done.push(Renamed::new(made, &old_name(path))?);
        if made.symlink_metadata().is_ok() {
            check()?;
        }
    }
    Ok(())
}

/// Gives files that passes have made their names: all of them, or none. An existing file with the same
/// content stays, and so does whatever is not a regular file. Then does what must come last; if that fails, they lose
/// their names again.
pub(crate) fn put_made(made: &[Made], existing: Existing, last: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut new = Vec::new();
    for file in made {
        let name = || file.path.display().to_string();
        let there = there(&file.path).with_context(name)?;
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
    let last = || made.iter().try_for_each(put_cached).and_then(|()| last());
    let Some(folder) = new.first().map(|file| folder(&file.path).to_owned()) else { return last() };
    with_folder(&folder, || {
        let paths = new.iter().map(|file| file.path.clone()).collect();
        let outputs = Outputs::new(&folder, paths, existing, Vec::new())?.only_files();
        for (number, file) in new.iter().enumerate() {
            let name = || file.path.display().to_string();
            let unnamed = Unfinished::file(&folder).map_err(plain).with_context(name)?;
            sparse::copy(&mut content(file), unnamed.get().file()).with_context(name)?;
            outputs.put(number, unnamed)?;
        }
        outputs.commit_and(last)
    })
}

/// Puts a file that was made into the build-id cache that it names, as perf buildid-cache does; an entry that is
/// there stays.
fn put_cached(made: &Made) -> Result<()> {
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
        // Only the link makes it an entry, and it is made in one step.
        let linked = put.and_then(|()| unless_there(symlink(Path::new("../..").join(&below), &link)));
        linked.map_err(plain).with_context(name)
    };
    with_folder(&entry, || with_folder(folder(&link), put))
}

/// The content of a file that was made.
fn content(made: &Made) -> impl Read + '_ {
    ReadAt::new(&made.from, made.range.start).take(made.range.end - made.range.start)
}

/// True if the existing file of that name has the same content.
fn has_content(made: &Made) -> io::Result<bool> {
    let there = made.path.symlink_metadata()?;
    let may_be = there.is_file() && there.len() == made.range.end - made.range.start;
    Ok(may_be && sparse::is_same(&mut File::open(&made.path)?, &mut content(made))?)
}

/// Creates a folder, with its parents if necessary, for the files of `write`; removes them again on failure.
pub(crate) fn with_folder<T>(folder: &Path, write: impl FnOnce() -> Result<T>) -> Result<T> {
    let made: Vec<&Path> = folder.ancestors().take_while(|above| !above.exists()).collect();
    // The mode of perf's directories.
    let create = || fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    let created = if made.is_empty() { Ok(()) } else { create() };
    let written = created.with_context(|| folder.display().to_string()).and_then(|()| write());
    if written.is_err() {
        // Removes those that are still empty; the last ones may not exist.
        made.into_iter().for_each(|made| drop(fs::remove_dir(made)));
    }
    written
}

/// Swaps what two paths name, in one step if the file system can.
fn swap(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => swap_in_steps(new, path),
        swapped => Ok(swapped?),
    }
}

/// Does the same on file systems that cannot do it in one step. rename(2) replaces only an empty directory, so the old
/// one is moved aside first; if a step fails, it is moved back.
fn swap_in_steps(new: &Path, path: &Path) -> io::Result<()> {
    let aside = temporary().tempdir_in(folder(path))?;
    let old = aside.path().join("old");
    fs::rename(path, &old)?;
    // Now it must not be removed with the folder.
    let aside = aside.keep();
    let swapped = fs::rename(new, path)
        .and_then(|()| fs::rename(&old, new).or_else(|error| fs::rename(path, new).and(Err(error))));
    if let Err(error) = swapped {
        let what = |_| io::Error::new(error.kind(), format!("{error}; the old one is {} now", old.display()));
        fs::rename(&old, path).map_err(what)?;
        return fs::remove_dir(aside).and(Err(error));
    }
    fs::remove_dir(aside)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_commit_has_named_is_undone_and_a_folder_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for existing in [Existing::Replace, Existing::BackUp] {
            fs::write(at("one"), "first").unwrap();
            fs::write(at("one.old"), "oldest").unwrap();
            fs::create_dir_all(at("two")).unwrap();
            fs::write(at("two/work"), "mine").unwrap();
            let paths = vec![at("one"), at("new"), at("two")];
            let outputs = Outputs::new(folder.path(), paths, existing, Vec::new()).unwrap().only_files();
            for number in 0..3 {
                fs::write(outputs.made(number), "made").unwrap();
            }
            let error = outputs.commit().unwrap_err();
            assert!(format!("{error:#}").contains("two: it is not a regular file"), "{error:#}");
            assert_eq!(fs::read(at("one")).unwrap(), b"first");
            assert_eq!(fs::read(at("one.old")).unwrap(), b"oldest");
            assert_eq!(fs::read(at("two/work")).unwrap(), b"mine");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        }
        // With nothing in the way, the old file is kept, and an older one is gone.
        let outputs = Outputs::new(folder.path(), vec![at("one")], Existing::BackUp, Vec::new()).unwrap();
        fs::write(outputs.made(0), "made").unwrap();
        outputs.only_files().commit().unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("one"), read("one.old")), ("made".to_owned(), "first".to_owned()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// It was removed, or kept in place of the file that was read.
    #[test]
    fn a_file_that_another_program_puts_there_after_the_last_check_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for existing in [Existing::Replace, Existing::BackUp] {
            fs::write(at("file"), "recording").unwrap();
            let changes = Some(Version::of(&at("file").metadata().unwrap()));
            let (path, new) = (at("file"), Unfinished::file(folder.path()).unwrap());
            let output = OutputPath { changes, ..OutputPath::new(&path, existing) };
            fs::write(at("other"), "precious").unwrap();
            fs::rename(at("other"), at("file")).unwrap();
            let taken = new.finish(|new| output.take_place(new.named_beside(&path)?));
            assert!(taken.unwrap_err().to_string().contains("another program has changed or replaced it"));
            assert_eq!(fs::read(at("file")).unwrap(), b"precious");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            // The file that was seen is replaced, and a backup keeps it.
            let changes = Some(Version::of(&at("file").metadata().unwrap()));
            let (output, new) = (OutputPath { changes, ..output }, Unfinished::file(folder.path()).unwrap());
            output.commit(new).unwrap();
            assert_eq!(fs::read(at("file")).unwrap(), b"");
            let kept = fs::read(at("file.old")).ok();
            assert_eq!(kept.as_deref(), (existing == Existing::BackUp).then_some(&b"precious"[..]));
        }
    }

    /// Writes a new file in place of another one.
    fn replaces(path: &Path, existing: Existing) -> Result<()> {
        let new = Unfinished::file(folder(path)).unwrap();
        io::Write::write_all(&mut new.get().file(), b"new").unwrap();
        OutputPath::new(path, existing).commit(new)
    }

    #[test]
    fn a_backup_loses_neither_the_old_file_nor_an_older_backup() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = || fs::read_dir(folder.path()).unwrap().count();
        // The old file can't get the name that it shall keep.
        fs::write(at("file"), "first").unwrap();
        fs::create_dir_all(at("file.old/inside")).unwrap();
        replaces(&at("file"), Existing::BackUp).unwrap_err();
        assert_eq!(fs::read(at("file")).unwrap(), b"first");
        assert!(at("file.old/inside").exists() && names() == 2);
        fs::remove_dir_all(at("file.old")).unwrap();
        // Both names are those of one file, which rename(2) leaves alone.
        fs::hard_link(at("file"), at("file.old")).unwrap();
        for (before, after) in [("first", "first"), ("first", "new")] {
            assert_eq!(fs::read_to_string(at("file.old")).unwrap(), before);
            replaces(&at("file"), Existing::BackUp).unwrap();
            let now = ["file", "file.old"].map(|name| fs::read_to_string(at(name)).unwrap());
            assert_eq!((now, names()), (["new".to_owned(), after.to_owned()], 2));
        }
        // Without a file, there is nothing to keep.
        replaces(&at("other"), Existing::BackUp).unwrap();
        assert!(at("other").exists() && names() == 3);
    }

    #[test]
    fn a_swap_in_steps_that_fails_leaves_everything_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir_all(at(name).join(name)).unwrap();
        }
        swap_in_steps(&at("one"), &at("two")).unwrap();
        assert!(at("one/two").exists() && at("two/one").exists());
        swap_in_steps(&at("none"), &at("two")).unwrap_err();
        assert!(at("two/one").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn outputs_have_no_names_if_what_must_come_last_fails() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("one"), "first").unwrap();
        let outputs =
            Outputs::new(folder.path(), vec![at("one"), at("two")], Existing::Replace, Vec::new()).unwrap();
        (0..2).for_each(|number| fs::write(outputs.made(number), "made").unwrap());
        outputs.commit_and(|| anyhow::bail!("no")).unwrap_err();
        assert_eq!(fs::read(at("one")).unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_can_not_be_filled_leaves_none_of_those_above_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let fails = |below: &str| {
            with_folder(&folder.path().join(below), || -> Result<()> { anyhow::bail!("no") }).unwrap_err();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{below}");
        };
        // A name that is too long, below one that is not.
        fails("a/b/c");
        fails(&format!("a/{}", "x".repeat(300)));
    }
}
