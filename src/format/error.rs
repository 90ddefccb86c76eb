//! One error: which file, at which absolute offset, in which record, what is wrong, and what to do about it.

use std::fmt;
use std::sync::Arc;

use crate::{Origin, RecordType};

/// Why bytes could not be read as a recording. One word wide, so that results stay cheap to return.
///
/// ```
/// use std::error::Error as _;
/// use perfx_format::ErrorKind;
/// use perfx_format::read::Recording;
///
/// let error = Recording::open("/no/such/file").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Io);
/// assert!(error.source().is_some() && error.to_string().starts_with("/no/such/file: "));
/// ```
pub struct Error(Box<Inner>);

/// What kind of error it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Reading or writing itself failed: `source` is the [`std::io::Error`].
    Io,
    /// The recording is not as its format says: [`Error::fault_code`] says in one word in which way.
    Damaged,
    /// The recording is sound, or there is none, but what was asked for can't be done.
    Impossible,
}

struct Inner {
    file: Option<Arc<str>>,
    origin: Option<Origin>,
    kind: Option<RecordType>,
    what: String,
    hint: Option<&'static str>,
    code: Option<&'static str>,
    source: Option<std::io::Error>,
}

/// The result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Something is wrong that has no place in the file.
    #[cold]
    pub fn new(what: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            file: None,
            origin: None,
            kind: None,
            what: what.into(),
            hint: None,
            code: None,
            source: None,
        }))
    }

    /// Something is wrong at this absolute offset of the file, in bytes.
    #[cold]
    pub fn at(offset: u64, what: impl Into<String>) -> Error {
        Error::new(what).origin(Origin::Input { stream: 0, offset })
    }

    /// Reading or writing itself failed.
    #[cold]
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Error {
        let mut error = Error::new(what);
        error.0.source = Some(source);
        error
    }

    /// Adds where the faulty record came from.
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Error {
        self.0.origin.get_or_insert(origin);
        self
    }

    /// Adds the kind of the faulty record.
    #[must_use]
    pub fn record(mut self, kind: RecordType) -> Error {
        self.0.kind.get_or_insert(kind);
        self
    }

    /// Adds the file's name, unless it is already known.
    #[must_use]
    pub fn file(mut self, name: &Arc<str>) -> Error {
        self.0.file.get_or_insert_with(|| name.clone());
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Error {
        self.0.hint.get_or_insert(hint);
        self
    }

    /// Adds the short stable word by which a fault in the recording is known, as [`crate::header::Fault`] and [`crate::Oddity`] have one.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Error {
        self.0.code.get_or_insert(code);
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match (&self.0.source, self.0.code) {
            (Some(_), _) => ErrorKind::Io,
            (None, Some(_)) => ErrorKind::Damaged,
            (None, None) => ErrorKind::Impossible,
        }
    }

    /// The word for the fault; `None` where the recording is not to blame.
    pub fn fault_code(&self) -> Option<&'static str> {
        self.0.code
    }

    /// The kind of the faulty record.
    pub fn record_kind(&self) -> Option<RecordType> {
        self.0.kind
    }

    /// Where in the input, if the error has a place.
    pub fn place(&self) -> Option<Origin> {
        self.0.origin
    }

    /// What is wrong, without its place.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The reader or writer went away (a closed pipe).
    pub fn is_broken_pipe(&self) -> bool {
        self.0.source.as_ref().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { file, origin, kind, what, hint, source, .. } = &*self.0;
        if let Some(file) = file {
            write!(f, "{file}: ")?;
        }
        if let Some(origin) = origin {
            write!(f, "at {origin}: ")?;
        }
        if let Some(kind) = kind {
            write!(f, "{kind}: ")?;
        }
        f.write_str(what)?;
        if let Some(source) = source {
            write!(f, ": {source}")?;
        }
        if let Some(hint) = hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The message says the source already: whoever prints a chain of errors ends it here.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
