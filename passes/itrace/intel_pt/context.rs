//! The constant inputs of decoding.

use std::fmt;

use perfx_auxtrace::{Code, Recorded};
use perfx_format::Endian;
use perfx_format::read::TempFiles;

use super::events::Events;
use super::spool::Spool;

/// The constant inputs of decoding.
pub(super) struct Context {
    pub(super) recorded: Recorded,
    pub(super) code: Code,
    pub(super) events: Events,
    pub(super) endian: Endian,
    pub(super) threads: usize,
    pub(super) temp_files: TempFiles,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("events", &self.events).finish_non_exhaustive()
    }
}

impl Context {
    /// Room for the samples of a part.
    pub(super) fn spool(&self) -> Spool {
        Spool::new(self.temp_files.clone(), self.endian)
    }
}
