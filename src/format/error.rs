//! Errors that name the file, the absolute offset, the record kind, the fault, and what to do about it.

use std::fmt;
use std::sync::Arc;

use crate::{FaultCode, Origin, RecordType};

/// The reason why bytes could not be read as a recording. One word wide, so that results stay cheap.
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

/// The kind of an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Reading or writing itself failed: `source` is the [`std::io::Error`].
    Io,
    /// The recording does not follow the format. [`Error::fault_code`] names faults that stop reading.
    Damaged,
    /// The recording is sound, or there is none, but the request cannot be carried out.
    Impossible,
}

struct Inner {
    file: Option<Arc<str>>,
    origin: Option<Origin>,
    kind: Option<RecordType>,
    what: String,
    hint: Option<&'static str>,
    class: ErrorKind,
    code: Option<FaultCode>,
    source: Option<std::io::Error>,
}

/// The result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a place in the file.
    #[cold]
    pub fn new(what: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            file: None,
            origin: None,
            kind: None,
            what: what.into(),
            hint: None,
            class: ErrorKind::Impossible,
            code: None,
            source: None,
        }))
    }

    /// An error at this absolute offset of the file, in bytes.
    #[cold]
    pub fn at(offset: u64, what: impl Into<String>) -> Error {
        Error::new(what).origin(Origin::Input { stream: 0, offset })
    }

    /// A read or a write failed.
    #[cold]
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Error {
        let mut error = Error::new(what);
        error.0.source = Some(source);
        error.0.class = ErrorKind::Io;
        error
    }

    /// Adds the origin of the faulty record.
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

    /// Adds advice for the user.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Error {
        self.0.hint.get_or_insert(hint);
        self
    }

    /// Marks the recording as violating the format.
    #[must_use]
    pub fn damaged(mut self) -> Error {
        if self.0.class == ErrorKind::Impossible {
            self.0.class = ErrorKind::Damaged;
        }
        self
    }

    /// Names the fault in the format, as in [`crate::header::Fault`] and [`crate::Issue`].
    #[must_use]
    pub fn code(mut self, code: FaultCode) -> Error {
        self.0.code.get_or_insert(code);
        self.damaged()
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.class
    }

    /// The fault, if it has a name.
    pub fn fault_code(&self) -> Option<FaultCode> {
        self.0.code
    }

    /// The name of the file, if the error has one.
    pub fn file_name(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The kind of the faulty record.
    pub fn record_kind(&self) -> Option<RecordType> {
        self.0.kind
    }

    /// The place in the input, if the error has one.
    pub fn place(&self) -> Option<Origin> {
        self.0.origin
    }

    /// A description of the error, without its place.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// True if the other end of a pipe was closed.
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

/// The message already includes the source's message: code that prints a chain of errors stops at this one.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attr, Endian, Layout, Record, sample::Sample, sample_type};

    #[test]
    fn a_truncated_sample_is_damaged() {
        let layout = Layout::new(&Attr { sample_type: sample_type::TIME, ..Attr::default() });
        let bytes = crate::record::builder::build(RecordType::SAMPLE, 0, &[], Endian::Little).unwrap();
        let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
        assert_eq!(Sample::parse(&record, &layout).unwrap_err().kind(), ErrorKind::Damaged);
        let error = record.error("it is of no use");
        assert_eq!(
            (error.kind(), error.code(FaultCode::Rest).kind()),
            (ErrorKind::Impossible, ErrorKind::Damaged)
        );
    }
}
