//! Defines the error of a pass or a run, which keeps its causes and includes their messages.

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

/// Why a pass or a run failed. The message includes those of its causes: code that prints a chain of errors
/// stops at this one. Two words wide, so that results stay cheap to return.
///
/// ```
/// use std::error::Error as _;
/// use perfx_pipeline::{Context as _, Error, Result, ensure};
///
/// fn level(text: &str) -> Result<u32> {
///     let level: u32 = text.parse().context("the level is not a number")?;
///     ensure!(level <= 22, "the level is {level}, but zstd has 22");
///     Ok(level)
/// }
///
/// assert_eq!(level("23").unwrap_err().to_string(), "the level is 23, but zstd has 22");
/// let error = level("?").unwrap_err();
/// assert_eq!(error.to_string(), "the level is not a number: invalid digit found in string");
/// assert!(error.source().unwrap().is::<std::num::ParseIntError>());
///
/// let error = Error::from(perfx_format::Error::at(8, "not a record"));
/// assert!(matches!(error, Error::Format(_)));
/// ```
#[non_exhaustive]
pub enum Error {
    /// A recording cannot be read or written; this error names the file and the place.
    Format(perfx_format::Error),
    /// Anything else cannot be read, written or started.
    Io(io::Error),
    /// A pass that must be the last one is not.
    NotLast(Box<NotLast>),
    /// The recording is sound, but does not suit these options: the message says which to use.
    Usage(Box<Failure>),
    /// The request cannot be carried out, or a step of it failed.
    Failed(Box<Failure>),
}

/// The result of a pass or a run.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure and its cause.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// A description of the failure.
    pub what: String,
    /// The error that caused it, if any.
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A pass that must be the last one, because no other can read its output.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotLast {
    /// The name of the pass.
    pub pass: &'static str,
}

impl Error {
    /// An error without a cause.
    #[cold]
    pub fn new(what: impl Into<String>) -> Error {
        Error::Failed(Box::new(Failure { what: what.into(), source: None }))
    }

    /// An error of the options: the message says which to use.
    #[cold]
    pub fn usage(what: String) -> Error {
        Error::Usage(Box::new(Failure { what, source: None }))
    }

    /// Adds a description of the failed operation.
    #[cold]
    #[must_use]
    pub fn context(self, what: impl Into<String>) -> Error {
        Error::Failed(Box::new(Failure { what: what.into(), source: Some(Box::new(self)) }))
    }

    /// Adds the name of the recording's file. An error of the format gets it unless it already has one, and
    /// loses the description of the operation; any other error gets it as a prefix.
    #[must_use]
    pub fn in_file(self, name: &Arc<str>) -> Error {
        match self.into_format() {
            Ok(error) => error.file(name).into(),
            Err(error) => error.context(name.to_string()),
        }
    }

    /// The format error that is the cause, without the description of the operation.
    ///
    /// # Errors
    ///
    /// The error itself, if anything else is the cause.
    pub fn into_format(self) -> Result<perfx_format::Error> {
        let mut failure = match self {
            Error::Format(error) => return Ok(error),
            Error::Failed(failure) => failure,
            other => return Err(other),
        };
        failure.source = match failure.source.take().map(format_of) {
            Some(Ok(error)) => return Ok(error),
            Some(Err(other)) => Some(other),
            None => None,
        };
        Err(Error::Failed(failure))
    }
}

type AnyError = Box<dyn StdError + Send + Sync>;

fn format_of(error: AnyError) -> Result<perfx_format::Error, AnyError> {
    let error = match error.downcast::<perfx_format::Error>() {
        Ok(error) => return Ok(*error),
        Err(error) => error,
    };
    error.downcast::<Error>().and_then(|error| error.into_format().map_err(AnyError::from))
}

/// Adds a description of the operation to the error of a result, or turns an absent value into an error.
pub trait Context<T>: Sized {
    /// Adds a description of the operation.
    ///
    /// # Errors
    ///
    /// There was an error, or no value.
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.with_context(|| what)
    }

    /// Like [`Context::context`], but builds the text only if needed.
    ///
    /// # Errors
    ///
    /// There was an error, or no value.
    fn with_context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: StdError + Send + Sync + 'static> Context<T> for Result<T, E> {
    fn with_context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| {
            Error::Failed(Box::new(Failure { what: what().into(), source: Some(Box::new(error)) }))
        })
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.ok_or_else(|| Error::new(what()))
    }
}

/// Returns an [`Error`] with a formatted message.
#[macro_export]
macro_rules! bail {
    ($($message:tt)*) => {
        return Err($crate::Error::new(format!($($message)*)))
    };
}

/// Returns an [`Error`] with a formatted message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            $crate::bail!($($message)*);
        }
    };
}

impl From<perfx_format::Error> for Error {
    fn from(error: perfx_format::Error) -> Error {
        Error::Format(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Format(error) => error.fmt(f),
            Error::Io(error) => write_chain(f, error),
            Error::NotLast(error) => error.fmt(f),
            Error::Usage(usage) => f.write_str(&usage.what),
            Error::Failed(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.source.as_ref().map_or(Ok(()), |source| {
            f.write_str(": ")?;
            write_chain(f, &**source)
        })
    }
}

impl fmt::Display for NotLast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pass {} must be the last one, because no other pass can read its output", self.pass)
    }
}

/// Writes the messages of an error and of its causes, up to one whose message includes its causes.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &(dyn StdError + 'static)) -> fmt::Result {
    write!(f, "{error}")?;
    let whole = error.is::<Error>() || error.is::<perfx_format::Error>();
    match error.source().filter(|_| !whole) {
        Some(source) => {
            f.write_str(": ")?;
            write_chain(f, source)
        }
        None => Ok(()),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Format(error) => Some(error),
            Error::Io(error) => Some(error),
            Error::NotLast(_) | Error::Usage(_) => None,
            Error::Failed(failure) => failure.source.as_ref().map(|source| &**source as _),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_format() -> perfx_format::Error {
        perfx_format::Error::at(16, "it ends")
    }

    fn causes(error: &Error) -> Vec<&(dyn StdError + 'static)> {
        std::iter::successors(error.source(), |&error| error.source()).collect()
    }

    #[test]
    fn the_message_holds_each_cause_once() {
        let error = Error::from(of_format()).context("pass a").context("in.data");
        assert_eq!(error.to_string(), format!("in.data: pass a: {}", of_format()));
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let error: Result<()> = Err(closed()).context("standard output");
        assert_eq!(error.unwrap_err().to_string(), format!("standard output: {}", closed()));
    }

    #[test]
    fn a_cause_is_found_through_its_contexts() {
        let error = Error::from(of_format()).context("pass a").context("in.data");
        assert!(causes(&error).iter().any(|cause| cause.is::<perfx_format::Error>()));
        let closed: Result<()> = Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("standard output");
        assert!(causes(&closed.unwrap_err()).iter().any(|cause| cause.is::<io::Error>()));
    }

    #[test]
    fn the_file_is_named_in_the_format_error_or_as_a_prefix() {
        let name: Arc<str> = "in.data".into();
        let error = Error::from(of_format()).context("pass a").in_file(&name);
        assert!(matches!(&error, Error::Format(_)), "{error}");
        assert_eq!(error.to_string(), of_format().file(&name).to_string());
        let error: Result<()> = Err(of_format()).context("pass a");
        assert_eq!(error.unwrap_err().in_file(&name).to_string(), of_format().file(&name).to_string());
        let error = Error::new("no").context("pass a").in_file(&name);
        assert_eq!(error.to_string(), "in.data: pass a: no");
        let error = Error::from(io::Error::from(io::ErrorKind::NotFound)).in_file(&name);
        assert!(error.to_string().starts_with("in.data: ") && causes(&error).len() == 2, "{error}");
    }

    #[test]
    fn a_result_is_two_words_wide() {
        assert_eq!(size_of::<Result<()>>(), 2 * size_of::<usize>());
    }
}
