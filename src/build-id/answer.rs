//! The result of a search: a build-id and its source, or all places that were tried, each with the reason.

use std::fmt;
use std::path::PathBuf;

use crate::{BuildId, Error};

/// The result of [`Finder::find`](crate::Finder::find).
#[derive(Debug)]
pub enum Answer {
    /// A build-id.
    Found {
        /// The build-id.
        id: BuildId,
        /// The kind of place.
        source: Source,
        /// The file or folder that was read; for the known list, the name that was looked up.
        place: PathBuf,
        /// True if something confirms the place: the user's own choice, the recorded inode number, or a
        /// running kernel of the recorded release. A vdso is never confirmed, because a kernel may have
        /// several. Otherwise, the id is right only if the place has not changed since the recording.
        checked: bool,
    },
    /// No build-id.
    Missing {
        /// Why each place has none, in order, except places that cannot contain such an object.
        tried: Vec<(Source, Reason)>,
    },
}

impl Answer {
    /// The build-id, if found.
    pub fn id(&self) -> Option<BuildId> {
        match self {
            Answer::Found { id, .. } => Some(*id),
            Answer::Missing { .. } => None,
        }
    }
}

/// A kind of place. Its display form is short and stable across versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// [`Places::known`](crate::Places::known).
    KnownList,
    /// The recorded path on this machine.
    File,
    /// The recorded path as seen by the process with this pid.
    ProcRoot(u32),
    /// A file that the process with this pid has mapped.
    MapFiles(u32),
    /// One of [`Places::roots`](crate::Places::roots).
    Root(PathBuf),
    /// One of [`Places::caches`](crate::Places::caches).
    Cache,
    /// The running kernel, its modules or its vdso.
    RunningKernel,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::KnownList => write!(f, "known list"),
            Source::File => write!(f, "file"),
            Source::ProcRoot(pid) => write!(f, "/proc/{pid}/root"),
            Source::MapFiles(pid) => write!(f, "/proc/{pid}/map_files"),
            Source::Root(folder) => write!(f, "root {}", folder.display()),
            Source::Cache => write!(f, "build-id cache"),
            Source::RunningKernel => write!(f, "running kernel"),
        }
    }
}

/// The reason why a place has no build-id.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The known list does not have the name.
    NotListed,
    /// A name without a leading `/`, such as `[heap]`, is not a file name.
    NotAbsolute,
    /// The recorded name ends in ` (deleted)`, so the file at that path now is a different one.
    Deleted,
    /// The inode number differs.
    Replaced {
        /// The file that was found.
        place: PathBuf,
        /// Its inode number.
        inode: u64,
        /// The one in the recording.
        recorded: u64,
    },
    /// It has another build-id than the wanted one.
    OtherId {
        /// The file or folder.
        place: PathBuf,
        /// Its build-id.
        found: BuildId,
        /// The one that was searched for.
        wanted: BuildId,
    },
    /// There is no longer a process with that pid.
    NoProcess,
    /// It cannot be read.
    Unreadable {
        /// The file or folder.
        place: PathBuf,
        /// The reason.
        error: Error,
    },
    /// It was read and has no build-id.
    NoId {
        /// The file or folder.
        place: PathBuf,
    },
    /// There are several, and nothing shows which one is right.
    Several {
        /// The folder that has them.
        place: PathBuf,
        /// All build-ids found, in ascending order.
        ids: Vec<BuildId>,
    },
    /// A root holds no kernel, or no such module, of the recorded release.
    NotInRoot {
        /// The recorded release.
        release: String,
    },
    /// The recording does not name its kernel.
    NoRelease,
    /// This machine runs another kernel, or has another architecture.
    OtherKernel {
        /// The release or architecture of this machine.
        here: String,
        /// The recorded one.
        recorded: String,
    },
    /// This program has no vdso mapped.
    NoVdso,
    /// The vdso belongs to processes of a different word size than this program's.
    OtherWordSize,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotListed => write!(f, "not in the list"),
            Reason::NotAbsolute => write!(f, "not an absolute path"),
            Reason::Deleted => write!(f, "deleted or replaced before the recording ended, not read"),
            Reason::Replaced { place, inode, recorded } => {
                write!(f, "{}: replaced: inode is {inode}, recording says {recorded}", place.display())
            }
            Reason::OtherId { place, found, wanted } => {
                write!(f, "{}: build-id is {found}, recording says {wanted}", place.display())
            }
            Reason::NoProcess => write!(f, "the process has ended"),
            Reason::Unreadable { place, error } => write!(f, "{}: {error}", place.display()),
            Reason::NoId { place } => {
                write!(f, "{}: no build-id of 1 to {} bytes in it", place.display(), BuildId::MAX)
            }
            Reason::Several { place, ids } => {
                let ids: Vec<String> = ids.iter().map(BuildId::to_string).collect();
                write!(f, "{}: {} build-ids, not guessed: {}", place.display(), ids.len(), ids.join(", "))
            }
            Reason::NotInRoot { release } => write!(f, "no file of that name for release {release}"),
            Reason::NoRelease => write!(f, "the recording does not name the kernel's release"),
            Reason::OtherKernel { here, recorded } => {
                write!(f, "this machine is {here}, the recording is of {recorded}")
            }
            Reason::NoVdso => write!(f, "this program has no vdso mapped"),
            Reason::OtherWordSize => {
                write!(f, "processes of this word size have another vdso than this program")
            }
        }
    }
}
