//! The destination and the form of a run's output.

use std::fs::File;
use std::io::Write;

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputForm {
    /// A file with header, data and feature sections.
    File,
    /// The main file of a directory; the caller puts `kcore_dir` next to it.
    DirectoryData,
    /// Pipe data.
    Pipe,
    /// The input's own file, with the records in place: only features can change. The job writes nothing; the
    /// caller writes the features, unless records changed ([`Outcome::moved`](crate::Outcome::moved)).
    InPlace,
}

/// The destination of the output.
pub enum Output<'a> {
    /// Into an empty file, in this form.
    File(&'a File, OutputForm),
    /// Into a pipe.
    Pipe(&'a mut (dyn Write + Send)),
    /// Only determines the size of the output and the feature sections that passes create.
    Nowhere(OutputForm),
}

impl Output<'_> {
    pub(crate) fn form(&self) -> OutputForm {
        match self {
            Output::File(_, form) | Output::Nowhere(form) => *form,
            Output::Pipe(_) => OutputForm::Pipe,
        }
    }
}
