//! Buffers output: small pieces are collected, large ones are written directly.

use std::io::{self, Write};

/// Pieces of at least this size are written directly; smaller ones are collected first.
const DIRECT: usize = 64 << 10;
const BUFFER: usize = 256 << 10;

/// Bad address (errno(3)), the same number on every Linux architecture.
const EFAULT: i32 = 14;

/// An append-only output that knows its position.
#[derive(Debug)]
pub(crate) struct Sink<W> {
    inner: W,
    buffer: Vec<u8>,
    position: u64,
}

impl<W: Write> Sink<W> {
    /// Starts at position 0.
    pub(crate) fn new(inner: W) -> Sink<W> {
        Sink { inner, buffer: Vec::with_capacity(BUFFER), position: 0 }
    }

    /// Bytes appended so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The bytes written so far have moved by this many bytes.
    pub(crate) fn skip(&mut self, by: u64) {
        self.position += by;
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BUFFER || bytes.len() >= DIRECT {
            self.flush()?;
        }
        if bytes.len() >= DIRECT {
            let written = self.inner.write_all(bytes);
            if written.as_ref().is_err_and(|error| error.raw_os_error() == Some(EFAULT)) {
                // The kernel could not read the bytes, because they are in a file that was truncated. Reading
                // them here raises SIGBUS for its handler.
                std::hint::black_box(bytes.iter().fold(0, |sum, byte| sum ^ byte));
            }
            written
        } else {
            self.buffer.extend_from_slice(bytes);
            Ok(())
        }
    }

    /// Writes the buffered bytes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.inner.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Sink::flush(self)
    }
}
