//! Decompresses zstd streams with the C library.

use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use super::Progress;

pub(crate) struct Decoder(DCtx<'static>);

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder(DCtx::create())
    }

    /// Appends contents to `out` within its capacity, up to the end of a frame.
    ///
    /// # Errors
    ///
    /// The library cannot decompress the input; the error is its message.
    pub(crate) fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, &'static str> {
        let mut input = InBuffer::around(input);
        let end = out.len();
        let hint = self.0.decompress_stream(&mut OutBuffer::around_pos(out, end), &mut input);
        Ok(Progress { read: input.pos(), hint: hint.map_err(get_error_name)? })
    }
}
