//! Where the output of a run goes, and in which form.

use std::fs::File;
use std::io::Write;

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputForm {
    /// A file with header, data and feature sections.
    File,
    /// The main file of a directory, beside which the caller keeps `kcore_dir`.
    DirectoryData,
    /// Pipe data.
    Pipe,
    /// The input's own file, whose records stay where they are: only features can change, and [`Outcome::moved`](crate::Outcome::moved) tells when that is not enough.
    /// Nothing is written.
    InPlace,
}

/// Where the output goes.
pub enum Output<'a> {
    /// Into an empty file.
    File(&'a File, OutputForm),
    /// Into a pipe.
    Pipe(&'a mut (dyn Write + Send)),
    /// Nowhere: for what it would be, and for the feature sections that passes make.
    Nowhere(OutputForm),
}

impl std::fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Output({:?})", self.form())
    }
}

impl Output<'_> {
    pub(crate) fn form(&self) -> OutputForm {
        match self {
            Output::File(_, form) | Output::Nowhere(form) => *form,
            Output::Pipe(_) => OutputForm::Pipe,
        }
    }
}
