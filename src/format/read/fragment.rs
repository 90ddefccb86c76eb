//! Bytes in place of a record: the front of one, bytes that are none, or a zstd stream that ends too early.

use std::sync::Arc;

use crate::header::{FILE_HEADER_SIZE, Magic, PERF_MESSAGE, PIPE_HEADER_SIZE};
use crate::value::bytes_that;
use crate::{Error, FaultCode, HEADER_SIZE, Origin, RecordType};

/// Bytes that are not a whole record: the front of a record whose end is missing, or the bytes between the
/// last readable record and the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fragment {
    /// The start.
    pub origin: Origin,
    /// The kind in its header, if that much is present.
    pub kind: Option<RecordType>,
    /// Bytes present.
    pub bytes: u64,
    /// The full size, payload included; 0 if it is not known.
    pub needs: u64,
    /// True if records follow: the fragment is in the middle of a recording that is read leniently.
    pub resumes: bool,
    /// The type of the bytes, if known.
    pub stray: Option<Stray>,
}

/// The type of the bytes where reading ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stray {
    /// The header of another recording: pipe data was concatenated.
    Recording,
    /// A message of perf record: standard error was mixed into the pipe.
    Message,
}

impl Stray {
    pub(super) fn at(bytes: &[u8]) -> Option<Stray> {
        if bytes.starts_with(PERF_MESSAGE) {
            return Some(Stray::Message);
        }
        let size = Magic::read(bytes).ok()?.size;
        [PIPE_HEADER_SIZE, FILE_HEADER_SIZE]
            .map(|size| size as u64)
            .contains(&size)
            .then_some(Stray::Recording)
    }
}

/// COMPRESSED records that could not be decompressed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// The place and the reason.
    pub error: Arc<Error>,
    /// The number of lost COMPRESSED records. The contents of the first one before the fault are not lost.
    pub records: u64,
    /// Their size as stored, bytes.
    pub bytes: u64,
}

impl Lost {
    /// The loss as an error, for callers that do not tolerate it.
    pub fn to_error(&self) -> Error {
        let error = Error::new(self.error.to_string());
        match self.error.fault_code() {
            Some(code) => error.code(code),
            None => error,
        }
    }
}

impl Fragment {
    /// True for a piece of a zstd stream, or a record inside one.
    pub fn is_of_zstd(&self) -> bool {
        matches!(self.origin, Origin::Chunk { .. }) || self.kind.is_some_and(RecordType::is_compressed)
    }

    /// The fragment as an error.
    pub fn to_error(&self) -> Error {
        let Fragment { origin, kind, bytes, needs, resumes, stray } = *self;
        if let Some(stray) = stray {
            let (code, what) = match (stray, origin.stored_at()) {
                (Stray::Recording, Some((_, offset))) => {
                    let what = format!(
                        "a second recording begins here, and its {bytes} bytes are left out (tail -c +{} extracts it)",
                        offset + 1
                    );
                    (FaultCode::SecondRecording, what)
                }
                (Stray::Recording, None) => {
                    (FaultCode::SecondRecording, "a second recording begins here".to_owned())
                }
                (Stray::Message, _) => {
                    let what = format!(
                        "messages of perf record (\"[ perf record: …\", {bytes} bytes) follow the records: its standard error went into the pipe"
                    );
                    (FaultCode::PerfMessage, what)
                }
            };
            return Error::new(what).origin(origin).code(code);
        }
        let what = match needs {
            _ if resumes => {
                let one = " is not a record; more records follow it";
                bytes_that(bytes, one, " are not a record; more records follow them")
            }
            0 if bytes < HEADER_SIZE as u64 => {
                format!("only {} left, too few for a record", bytes_that(bytes, " is", " are"))
            }
            0 => bytes_that(bytes, " is", " are") + " not a record, and none follows",
            needs => format!("the record takes {needs} bytes, but only {bytes} are left"),
        };
        let error = Error::new(what).origin(origin).code(FaultCode::Torn);
        match kind {
            Some(kind) => error.record(kind),
            None => error,
        }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.error)?;
        match self.records {
            0 => Ok(()),
            1 => write!(f, "; the rest of this record of {} bytes is lost", self.bytes),
            n => write!(
                f,
                "; the rest of this record and the {} after it, {} bytes in all, are lost",
                n - 1,
                self.bytes
            ),
        }
    }
}
