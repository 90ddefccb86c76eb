//! Determines where an output goes, and refuses to destroy inputs or other files, before any is read.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use perfx_format::write::folder;
use rustix::fs::{Access, access};

use crate::args::Usage;
use crate::io::source::{Source, identity};
use crate::io::streams;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existing {
    /// Refuse the output unless the file is empty, as from mktemp.
    Keep,
    Replace,
    /// Replace it and keep it as `PATH.old`.
    BackUp,
}

impl Existing {
    pub(crate) fn forced(force: bool) -> Existing {
        if force { Existing::Replace } else { Existing::Keep }
    }

    /// Checks that a path may be replaced. If `has_backup`, errors name `--backup`.
    pub(crate) fn check(self, path: &Path, has_backup: bool) -> Result<()> {
        let backup =
            if has_backup { format!(", --backup keeps it as {}.old", path.display()) } else { String::new() };
        let may = self != Existing::Keep || is_empty(path);
        ensure!(may, "{} exists; -f overwrites it{backup}", path.display());
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) enum Target {
    Stdout,
    /// Neither file nor directory: a FIFO, /dev/null.
    Device(PathBuf),
    /// A file, or a directory if the recording needs one: the resolved path, and the one that the user gave.
    Path {
        at: PathBuf,
        given: PathBuf,
    },
}

impl Target {
    pub(crate) fn of(output: Option<&Path>, is_text: bool) -> Result<Target> {
        match output.filter(|path| *path != Path::new("-")) {
            Some(path) => Target::named(path),
            None if is_text || !streams::stdout().is_terminal() => Ok(Target::Stdout),
            None => {
                bail!(Usage("refusing to write binary data to a terminal: give -o FILE or a pipe".into()))
            }
        }
    }

    /// Resolves the path that the user gave; the file may be missing.
    ///
    /// # Errors
    ///
    /// The path ends like a folder's, but is not one.
    pub(crate) fn named(path: &Path) -> Result<Target> {
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(Target::Device(path.to_owned())),
            Ok(_) => Target::resolved(path),
            // Otherwise a pass could make files below it first.
            Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                bail!("{} is not a directory", path.display())
            }
            Err(_) => Ok(Target::at(path.to_owned())),
        }
    }

    /// An existing file or folder. A new one is made beside it, not beside a link to it (/dev/fd/5).
    pub(crate) fn resolved(path: &Path) -> Result<Target> {
        let at = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        Ok(Target::Path { at, given: path.to_owned() })
    }

    pub(crate) fn at(path: PathBuf) -> Target {
        Target::Path { at: path.clone(), given: path }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Target::Path { at, .. } => Some(at),
            Target::Stdout | Target::Device(_) => None,
        }
    }

    /// Opens it directly, without a name to give at the end.
    pub(crate) fn stream(&self) -> Result<File> {
        match self {
            Target::Stdout => {
                let stdout = streams::stdout().as_fd().try_clone_to_owned();
                Ok(stdout.context("standard output can't be used")?.into())
            }
            Target::Device(path) | Target::Path { at: path, .. } => {
                File::options().write(true).open(path).with_context(|| self.to_string())
            }
        }
    }

    fn metadata(&self) -> Option<Metadata> {
        match self {
            Target::Stdout => self.stream().ok()?.metadata().ok(),
            Target::Device(path) | Target::Path { at: path, .. } => fs::metadata(path).ok(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stdout => f.write_str("standard output"),
            Target::Device(path) | Target::Path { given: path, .. } => path.display().fmt(f),
        }
    }
}

pub(crate) struct Rules<'s> {
    /// The output must not overwrite them.
    pub(crate) inputs: &'s [Source],
    pub(crate) existing: Existing,
    pub(crate) folders: bool,
    /// Messages suggest --in-place and --backup, which the command has.
    pub(crate) in_place: bool,
}

impl Rules<'_> {
    pub(crate) fn check(&self, target: &Target) -> Result<()> {
        self.inputs.iter().try_for_each(|input| self.refuse_input(input, target))?;
        let Target::Path { at, given } = target else { return Ok(()) };
        match fs::metadata(at) {
            Err(error) => return refuse_dangling(at, &error),
            Ok(found) if found.is_dir() && self.folders => {
                let may = is_recording(at) || is_empty(at);
                ensure!(may, "{target} is a directory but not a recording and is not overwritten");
            }
            Ok(found) if found.is_dir() => bail!("{target} is a directory"),
            Ok(found) => ensure!(found.is_file(), "{target} is not a file"),
        }
        self.existing.check(given, self.in_place)
    }

    /// Refuses an input that is also the output; among folders, also one inside or around the output.
    fn refuse_input(&self, source: &Source, target: &Target) -> Result<()> {
        // If missing, opening it reports why.
        let Some(input) = source.metadata() else { return Ok(()) };
        let data = match source {
            Source::Path(path) if input.is_dir() => fs::metadata(path.join("data")).ok(),
            _ => None,
        };
        // A terminal or /dev/null may be both.
        if let Some(output) = target.metadata().filter(|output| output.is_file() || output.is_dir()) {
            let same = [Some(input), data].iter().flatten().any(|input| identity(input) == identity(&output));
            let hint = if self.in_place { "; --in-place changes it" } else { "" };
            ensure!(!same, "{target} is the input itself{hint}");
        }
        if let (true, Some(at), Source::Path(path)) = (self.folders, target.path(), source) {
            // An input without a name on disk, as from a shell's <(…), is in no folder.
            let Ok(input) = fs::canonicalize(path) else { return Ok(()) };
            // A missing folder is reported when the output is created in it.
            let inside =
                fs::canonicalize(folder(at)).map(|folder| folder.join(at.file_name().unwrap_or_default()));
            let nested = inside.is_ok_and(|at| input.starts_with(&at) || at.starts_with(&input));
            ensure!(!nested, "one of {target} and the input {} contains the other", path.display());
        }
        Ok(())
    }
}

/// Checks that files of these names may be written to a folder, even if the folder is missing.
pub(crate) fn check_folder(path: &Path, names: &[&str], inputs: &[Source], existing: Existing) -> Result<()> {
    let is_new = fs::symlink_metadata(path).is_err();
    ensure!(is_new || path.is_dir(), "{} is not a directory", path.display());
    inputs.iter().try_for_each(|input| refuse_inside(input, path))?;
    let rules = Rules { inputs, existing, folders: false, in_place: false };
    names.iter().try_for_each(|name| rules.check(&Target::at(path.join(name))))
}

pub(crate) fn refuse_inside(input: &Source, path: &Path) -> Result<()> {
    if let Source::Path(input) = input
        && input.is_dir()
    {
        let input = fs::canonicalize(input)?;
        let inside = fs::canonicalize(path).is_ok_and(|path| path.starts_with(&input));
        ensure!(!inside, "{} is inside the input", path.display());
    }
    Ok(())
}

/// The folder or, if it is missing, the one in which it can be created.
pub(crate) fn writable_above(path: &Path) -> Result<&Path> {
    let above = path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    check_writable(above).with_context(|| format!("can't create {}", path.display()))?;
    Ok(above)
}

/// Checks that files can be created in a folder.
pub(crate) fn check_writable(folder: &Path) -> io::Result<()> {
    Ok(access(folder.join("."), Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Refuses a dangling link: the output would replace the link, or appear in an unexpected place.
fn refuse_dangling(path: &Path, error: &io::Error) -> Result<()> {
    if let Ok(to) = fs::read_link(path) {
        bail!("{} is a symbolic link to {}, which can't be opened: {error}", path.display(), to.display());
    }
    Ok(())
}

/// True for an empty file or directory, which can be replaced without loss.
pub(crate) fn is_empty(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len() == 0,
        Ok(metadata) if metadata.is_dir() => {
            fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
        }
        _ => false,
    }
}

/// True if a file, or a directory's main file, begins like a recording.
pub(crate) fn is_recording(path: &Path) -> bool {
    let mut magic = [0; 8];
    let data = if path.is_dir() { path.join("data") } else { path.to_owned() };
    data.is_file()
        && File::open(data).and_then(|mut data| data.read_exact(&mut magic)).is_ok()
        && matches!(&magic, b"PERFILE2" | b"2ELIFREP" | b"PERFFILE")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The message of an error, with the folder left out.
    fn message(folder: &Path, result: Result<()>) -> String {
        let error = result.err().map(|error| format!("{error:#}")).unwrap_or_default();
        error.replace(&format!("{}/", folder.display()), "")
    }

    #[test]
    fn only_what_is_empty_is_replaced_unasked_and_only_recordings_among_folders() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("full"), "x").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::create_dir(at("none")).unwrap();
        fs::create_dir_all(at("recorded")).unwrap();
        fs::write(at("recorded/data"), "PERFILE2").unwrap();
        fs::create_dir_all(at("work")).unwrap();
        fs::write(at("work/data"), "PERFIL").unwrap();
        symlink("nowhere", at("link")).unwrap();
        let check = |name: &str, existing, folders| {
            let rules = Rules { inputs: &[], existing, folders, in_place: true };
            message(folder.path(), rules.check(&Target::at(at(name))))
        };
        let (keep, replace) = (Existing::Keep, Existing::Replace);
        assert_eq!(check("full", keep, true), "full exists; -f overwrites it, --backup keeps it as full.old");
        for name in ["empty", "none", "new"] {
            assert_eq!(check(name, keep, true), "", "{name}");
        }
        for name in ["full", "recorded"] {
            assert_eq!(check(name, replace, true), "", "{name}");
        }
        assert_eq!(check("recorded", replace, false), "recorded is a directory");
        assert_eq!(
            check("work", replace, true),
            "work is a directory but not a recording and is not overwritten"
        );
        let dangling = "link is a symbolic link to nowhere, which can't be opened";
        assert!(check("link", replace, true).starts_with(dangling));
    }

    #[test]
    fn no_output_replaces_its_input_or_goes_inside_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("in"), "PERFILE2").unwrap();
        fs::hard_link(at("in"), at("same")).unwrap();
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/data"), "PERFILE2").unwrap();
        let check = |input: &str, output: &str| {
            let inputs = [Source::Path(at(input))];
            let rules =
                Rules { inputs: &inputs, existing: Existing::Replace, folders: true, in_place: false };
            message(folder.path(), rules.check(&Target::at(at(output))))
        };
        assert_eq!(check("in", "same"), "same is the input itself");
        assert_eq!(check("dir", "dir/data"), "dir/data is the input itself");
        assert_eq!(check("dir", "dir/out"), "one of dir/out and the input dir contains the other");
        assert_eq!(check("in", "out"), "");
        assert!(
            message(folder.path(), refuse_inside(&Source::Path(at("dir")), &at("dir"))).contains("inside")
        );
        assert_eq!(message(folder.path(), refuse_inside(&Source::Path(at("in")), &at("dir"))), "");
    }

    #[test]
    fn a_path_that_ends_like_a_folder_is_no_file_to_be() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Target::named(&folder.path().join("new/")).is_err());
        assert!(matches!(Target::named(Path::new("/dev/null")), Ok(Target::Device(_))));
        let new = folder.path().join("new");
        assert_eq!(Target::named(&new).unwrap().path(), Some(&*new));
        assert_eq!(writable_above(&folder.path().join("a/b/c")).unwrap(), folder.path());
    }
}
