//! Names outputs when all are complete, and undoes that if one fails. Until then the files they replace stay.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use perfx_format::read::Recording;
use perfx_format::write::{NewFile, folder, plain, rename_new, temporary};
use perfx_pipeline::{Job, Level, Outcome, Output, OutputForm, Report, counted};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, fcntl_lock, openat, renameat_with};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::io::output::place::{Existing, is_empty, writable_above};
use crate::io::signals::{Unfinished, undisturbed};
use crate::io::source::{Version, identity};

#[derive(Clone)]
pub(crate) struct OutputPath {
    path: PathBuf,
    existing: Existing,
    /// The version of the existing file when it was read, if it is changed: owner and permissions stay, and
    /// it is replaced only if it is still the same.
    changes: Option<Version>,
    folders: bool,
}

impl OutputPath {
    pub(crate) fn new(path: impl Into<PathBuf>, existing: Existing) -> OutputPath {
        OutputPath { path: path.into(), existing, changes: None, folders: false }
    }

    pub(crate) fn or_folder(self) -> OutputPath {
        OutputPath { folders: true, ..self }
    }

    /// Marks the existing file as changed, not replaced: its owner and permissions stay.
    pub(crate) fn changed(self, recording: &Recording) -> OutputPath {
        OutputPath { changes: recording.opened().map(Version::of), ..self }
    }

    /// The path under which the existing file is kept: `PATH.old`, as in perf. `None` if none is kept.
    pub(crate) fn kept_as(&self) -> Result<Option<PathBuf>> {
        let is_there = || self.path.try_exists().with_context(|| self.name());
        Ok((self.existing == Existing::BackUp && is_there()?).then(|| old_name(&self.path)))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes a file without a name. Only its owner can read it, as with perf's files, unless an existing
    /// file is changed. The files that passes made have no names yet, either.
    pub(crate) fn make_file(&self, job: Job, form: OutputForm) -> Result<(Unfinished<NewFile>, Outcome)> {
        let new = Unfinished::file(folder(&self.path)).map_err(plain).with_context(|| self.name())?;
        let file = new.get().file();
        let mut outcome = job.run(Output::File(file, form))?;
        if self.changes.is_some() {
            self.keep_owner(file, &mut outcome.report)?;
        }
        Ok((new, outcome))
    }

    /// Gives a file the owner and the permissions of the one that it replaces.
    fn keep_owner(&self, file: &File, report: &mut Report) -> Result<()> {
        let name = || self.name();
        let old = self.path.metadata().with_context(name)?;
        if old.nlink() > 1 {
            let keep = if old.nlink() == 2 { "keeps" } else { "keep" };
            let others = counted(old.nlink() - 1, "other name", "other names");
            let what = format!("{} had {others} (hard links), which {keep} the old content", name());
            report.say(Level::Warning, what);
        }
        let owned = fchown(file, Some(old.uid()), Some(old.gid()));
        let new = file.metadata().with_context(name)?;
        if new.uid() != old.uid() {
            owned.with_context(|| format!("{}: can't be given to user {}", name(), old.uid()))?;
        }
        // The owner may not be a member of the file's group.
        if new.gid() != old.gid() {
            let what = format!("{} belongs to group {} now, not {}", name(), new.gid(), old.gid());
            report.say(Level::Warning, what);
        }
        file.set_permissions(old.permissions()).with_context(name)
    }

    /// Names the file. An old file keeps its name until the new one takes its place.
    pub(crate) fn commit(self, new: Unfinished<NewFile>) -> Result<()> {
        let name = || self.name();
        if (self.existing, self.changes) == (Existing::Replace, None) {
            new.get().sync_to_replace(&self.path).with_context(name)?;
            return new.finish(|new| new.replace(&self.path)).map_err(plain).with_context(name);
        }
        let named = match self.changes {
            None => undisturbed(|| new.get().take_name(&self.path)),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        };
        match named {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let folder = folder(&self.path).to_owned();
                let outputs = Outputs::new(&folder, vec![self])?;
                outputs.put(0, new)?;
                outputs.commit()
            }
            named => named.map_err(plain).with_context(name),
        }
    }

    /// Names a recording; with entries beside its records, it is a folder.
    pub(crate) fn commit_with(self, data: Unfinished<NewFile>, beside: &[(PathBuf, OsString)]) -> Result<()> {
        if beside.is_empty() {
            return self.commit(data);
        }
        self.make_folder(|folder| {
            OutputPath::new(folder.join("data"), Existing::Keep).commit(data)?;
            beside.iter().try_for_each(|(from, name)| copy_tree(from, &folder.join(name)))
        })
    }

    /// Makes a folder, and names it after `fill` has put everything into it.
    pub(crate) fn make_folder(self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        // The mode of perf's directories.
        let owner_only = Permissions::from_mode(0o700);
        let temporary =
            Unfinished::folder(|| temporary().permissions(owner_only).tempdir_in(folder(&self.path)));
        let temporary = temporary.map_err(plain).with_context(|| self.name())?;
        fill(temporary.path())?;
        let (place, made) = (self.or_folder(), temporary.path().to_owned());
        finish(temporary, |done| place.take(&made, done), || Ok(()))
    }

    fn take(&self, made: &Path, done: &mut Vec<Renamed>) -> Result<()> {
        let unchanged = self.changes.map_or(Ok(()), |seen| seen.check(&self.path.metadata()?));
        let taken = unchanged.and_then(|()| self.take_place(made, done));
        taken.map_err(plain).with_context(|| self.name())
    }

    /// Names without a check. An existing file swaps names with `made`, and is removed with it or kept.
    fn take_place(&self, made: &Path, done: &mut Vec<Renamed>) -> io::Result<()> {
        let _empty = match rename_new(made, &self.path) {
            Ok(()) => {
                done.push(Renamed::To { from: made.into(), to: self.path.clone() });
                return Ok(());
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if self.existing == Existing::Keep => claim_empty(&self.path)?,
            Err(_) => None,
        };
        done.push(Renamed::swapped(made, &self.path)?);
        // Another program may have replaced it before the swap; none can any more.
        let old = made.symlink_metadata()?;
        self.check_kind(&old)?;
        self.changes.map_or(Ok(()), |seen| seen.check_renamed(&old))?;
        if self.existing == Existing::BackUp {
            done.push(Renamed::new(made, &old_name(&self.path))?);
            there(made)?.map_or(Ok(()), |older| self.check_kind(&older))?;
        }
        Ok(())
    }

    fn check_kind(&self, old: &Metadata) -> io::Result<()> {
        match self.folders || old.is_file() {
            true => Ok(()),
            false => {
                Err(io::Error::other("it is not a regular file, so it is not overwritten; move it away"))
            }
        }
    }
}

fn old_name(path: &Path) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(".old");
    name.into()
}

/// The metadata of the entry at this path, without following links; `None` if there is none.
pub(crate) fn there(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        there => there.map(Some),
    }
}

/// Claims an empty file for one of several perfx processes: each locks it and checks that it still has the
/// name. An empty directory needs no lock, because rename(2) replaces no other kind.
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
    // Some file systems have no locks.
    fcntl_lock(&file, FlockOperation::LockExclusive).ok();
    let locked = file.metadata()?;
    let named = path.symlink_metadata().map_err(|_| taken())?;
    let same = identity(&locked) == identity(&named);
    if same && locked.is_file() && locked.len() == 0 { Ok(Some(file)) } else { Err(taken()) }
}

/// Several outputs of one command: none gets its name until all are written; then all do.
pub(crate) struct Outputs {
    temporary: Unfinished<TempDir>,
    places: Vec<OutputPath>,
    outdated: Vec<PathBuf>,
}

/// A change of names that can be undone.
enum Renamed {
    /// A file got a name that did not exist.
    To { from: PathBuf, to: PathBuf },
    /// Two files got each other's names.
    Swapped(PathBuf, PathBuf),
}

impl Renamed {
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
    /// Outputs in this folder or below it. Missing folders are made when the outputs get their names.
    pub(crate) fn new(folder: &Path, places: Vec<OutputPath>) -> Result<Outputs> {
        let above = writable_above(folder)?;
        let temporary = Unfinished::folder(|| temporary().tempdir_in(above));
        let temporary = temporary.map_err(plain).with_context(|| folder.display().to_string())?;
        Ok(Outputs { temporary, places, outdated: Vec::new() })
    }

    pub(crate) fn removing(self, outdated: Vec<PathBuf>) -> Outputs {
        Outputs { outdated, ..self }
    }

    pub(crate) fn create(&self, number: usize) -> Result<Unfinished<NewFile>> {
        let name = || self.places[number].name();
        Unfinished::file(self.temporary.path()).map_err(plain).with_context(name)
    }

    pub(crate) fn put(&self, number: usize, new: Unfinished<NewFile>) -> Result<()> {
        let (place, made) = (&self.places[number], self.made(number));
        new.get().sync_to_replace(&place.path).with_context(|| place.name())?;
        new.finish(|new| new.take_name(&made)).map_err(plain).with_context(|| place.name())
    }

    pub(crate) fn write<T>(&self, number: usize, write: impl FnOnce(OutputPath) -> Result<T>) -> Result<T> {
        let (made, place) = (self.made(number), &self.places[number]);
        let written = write(OutputPath::new(&made, Existing::Keep)).with_context(|| place.name())?;
        if place.path.try_exists().unwrap_or(true) && made.is_file() {
            // Not synced yet: its first name replaced nothing.
            File::open(&made).and_then(|file| file.sync_all()).with_context(|| place.name())?;
        }
        Ok(written)
    }

    fn made(&self, number: usize) -> PathBuf {
        self.temporary.path().join(number.to_string())
    }

    pub(crate) fn commit(self) -> Result<()> {
        self.commit_and(|| Ok(()))
    }

    pub(crate) fn commit_and(self, last: impl FnOnce() -> Result<()>) -> Result<()> {
        let made: Vec<PathBuf> =
            (0..self.places.len() + self.outdated.len()).map(|number| self.made(number)).collect();
        let Outputs { temporary, places, outdated } = self;
        let folders: BTreeSet<&Path> = places.iter().map(|place| folder(&place.path)).collect();
        with_folders(&folders, || {
            let name = |done: &mut Vec<Renamed>| {
                let (new, old) = made.split_at(places.len());
                places.iter().zip(new).try_for_each(|(place, made)| place.take(made, done))?;
                outdated.iter().zip(old).try_for_each(|(path, made)| {
                    // It is deleted with the folder.
                    let renamed = rename_new(path, made).map_err(plain);
                    renamed.with_context(|| path.display().to_string())?;
                    done.push(Renamed::To { from: path.clone(), to: made.clone() });
                    Ok(())
                })
            };
            finish(temporary, name, last)
        })
    }
}

/// Names outputs by `name`, runs `last`, and removes the temporary folder with the replaced files. After an
/// error, undoes the names; if that fails, the folder stays, because it has the replaced files.
fn finish(
    temporary: Unfinished<TempDir>,
    name: impl FnOnce(&mut Vec<Renamed>) -> Result<()>,
    last: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (mut done, mut undone) = (Vec::new(), Ok(()));
    let undo = |done: &[Renamed]| done.iter().rev().try_for_each(Renamed::undo);
    // A signal removes the folder, so it must wait until the replaced files are back.
    let named = undisturbed(|| name(&mut done).inspect_err(|_| undone = undo(&done)));
    let named = named.and_then(|()| last().inspect_err(|_| undone = undisturbed(|| undo(&done))));
    let Err(error) = named else { return temporary.remove() };
    match undone {
        Ok(()) => Err(error),
        Err(undoing) => {
            let kept = temporary.finish(TempDir::keep);
            let kept = kept.display();
            Err(error.context(format!("the replaced files are in {kept} and can't be put back ({undoing})")))
        }
    }
}

/// Creates folders, with their parents if necessary, for the files of `write`; removes them again on failure.
pub(crate) fn with_folders<T>(folders: &BTreeSet<&Path>, write: impl FnOnce() -> Result<T>) -> Result<T> {
    let missing = |folder: &&Path| !folder.exists();
    let made: BTreeSet<&Path> =
        folders.iter().flat_map(|folder| folder.ancestors().take_while(missing)).collect();
    let create = |folder: &&Path| {
        // The mode of perf's directories.
        let created = DirBuilder::new().mode(0o700).recursive(true).create(folder);
        created.with_context(|| folder.display().to_string())
    };
    let written = folders.iter().filter(|folder| missing(folder)).try_for_each(create).and_then(|()| write());
    if written.is_err() {
        // Removes those that are still empty, innermost first; some may not exist.
        made.into_iter().rev().for_each(|made| drop(fs::remove_dir(made)));
    }
    written
}

fn swap(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => swap_in_steps(new, path),
        swapped => Ok(swapped?),
    }
}

/// Swaps names on file systems that cannot do it in one step. An old file keeps its name until the new one
/// has it, or, if that is impossible (rename(2) replaces no directory that is not empty), is first moved
/// aside, and moved back if a step fails.
fn swap_in_steps(new: &Path, path: &Path) -> io::Result<()> {
    let aside = temporary().tempdir_in(folder(path))?;
    let old = aside.path().join("old");
    if new.is_dir() || fs::hard_link(path, &old).is_err() {
        fs::rename(path, &old)?;
    }
    // From now on, dropping must not remove the folder.
    let aside = aside.keep();
    let swapped = fs::rename(new, path)
        .and_then(|()| fs::rename(&old, new).or_else(|error| fs::rename(path, new).and(Err(error))));
    if let Err(error) = swapped {
        let what =
            |_| io::Error::new(error.kind(), format!("{error}; the old file is now {}", old.display()));
        fs::rename(&old, path).map_err(what)?;
        // If both are names of one file, rename(2) leaves both.
        return fs::remove_dir_all(aside).and(Err(error));
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

    fn outputs(folder: &Path, paths: Vec<PathBuf>, existing: Existing) -> Outputs {
        let places = paths.into_iter().map(|path| OutputPath::new(path, existing)).collect();
        Outputs::new(folder, places).unwrap()
    }

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
            let outputs = outputs(folder.path(), paths, existing);
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
        // With nothing in the way, the old file is kept, and an older one is removed.
        let outputs = outputs(folder.path(), vec![at("one")], Existing::BackUp);
        fs::write(outputs.made(0), "made").unwrap();
        outputs.commit().unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("one"), read("one.old")), ("made".to_owned(), "first".to_owned()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// In one case it was removed, in the other kept in place of the file that was read.
    #[test]
    fn a_file_that_another_program_puts_there_after_the_last_check_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for existing in [Existing::Replace, Existing::BackUp] {
            fs::write(at("file"), "recording").unwrap();
            let changes = Some(Version::of(&at("file").metadata().unwrap()));
            let output = OutputPath { changes, ..OutputPath::new(at("file"), existing) };
            fs::write(at("other"), "precious").unwrap();
            fs::rename(at("other"), at("file")).unwrap();
            let temporary = Unfinished::folder(|| tempfile::tempdir_in(folder.path())).unwrap();
            let made = temporary.path().join("made");
            fs::write(&made, "").unwrap();
            let take = |done: &mut Vec<_>| Ok(output.take_place(&made, done)?);
            let error = finish(temporary, take, || Ok(())).unwrap_err().to_string();
            assert!(error.contains("another program has changed or replaced it"));
            assert_eq!(fs::read(at("file")).unwrap(), b"precious");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            // The file that was checked is replaced, and a backup keeps it.
            let changes = Some(Version::of(&at("file").metadata().unwrap()));
            let (output, new) = (OutputPath { changes, ..output }, Unfinished::file(folder.path()).unwrap());
            output.commit(new).unwrap();
            assert_eq!(fs::read(at("file")).unwrap(), b"");
            let kept = fs::read(at("file.old")).ok();
            assert_eq!(kept.as_deref(), (existing == Existing::BackUp).then_some(&b"precious"[..]));
        }
    }

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
        // The old file can't get its new name.
        fs::write(at("file"), "first").unwrap();
        fs::create_dir_all(at("file.old/inside")).unwrap();
        replaces(&at("file"), Existing::BackUp).unwrap_err();
        assert_eq!(fs::read(at("file")).unwrap(), b"first");
        assert!(at("file.old/inside").exists() && names() == 2);
        fs::remove_dir_all(at("file.old")).unwrap();
        // Both names are of one file, for which rename(2) does nothing.
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
        let outputs = outputs(folder.path(), vec![at("one"), at("two")], Existing::Replace);
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
            let below_it = folder.path().join(below);
            let folders = BTreeSet::from([&*below_it]);
            with_folders(&folders, || -> Result<()> { anyhow::bail!("no") }).unwrap_err();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{below}");
        };
        // A name that is too long, below one that is not.
        fails("a/b/c");
        fails(&format!("a/{}", "x".repeat(300)));
    }
}
