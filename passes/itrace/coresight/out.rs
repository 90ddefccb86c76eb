//! Hands on samples in batches, also in the middle of a piece of the trace: a small one can stand for very many.

use perfx_format::Endian;
use perfx_pipeline::Result;

use crate::itrace::made::Made;

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

/// The samples that are not yet handed on.
pub(super) struct Out<'d> {
    made: Made,
    endian: Endian,
    done: &'d mut dyn FnMut(Made) -> Result<()>,
    /// An error if no more samples are needed.
    ended: Result<()>,
}

impl<'d> Out<'d> {
    /// Hands batches to `done`.
    pub(super) fn new(endian: Endian, done: &'d mut dyn FnMut(Made) -> Result<()>) -> Out<'d> {
        Out { made: Made::new(endian), endian, done, ended: Ok(()) }
    }

    /// Adds a sample, and the time by which it is sorted.
    pub(super) fn push(&mut self, sample: &[u8], key: u64) {
        self.made.push(sample, key);
        if self.made.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let made = std::mem::replace(&mut self.made, Made::new(self.endian));
        if self.ended.is_ok() {
            self.ended = (self.done)(made);
        }
    }

    /// Returns the error of `done`, if there was one.
    pub(super) fn check(&mut self) -> Result<()> {
        std::mem::replace(&mut self.ended, Ok(()))
    }

    /// Hands on the last batch.
    pub(super) fn end(&mut self) -> Result<()> {
        self.flush();
        self.check()
    }
}
