//! Where output goes: small pieces are collected, large ones handed over as they are.

use std::io::{self, Write};

/// Runs at least this long are handed to the kernel as they are; shorter ones are collected first.
const DIRECT: usize = 64 << 10;
const BUFFER: usize = 256 << 10;

/// An append-only output that knows its position.
#[derive(Debug)]
pub(crate) struct Sink<W> {
    inner: W,
    buffer: Vec<u8>,
    position: u64,
}

impl<W: Write> Sink<W> {
    /// Nothing written yet.
    pub(crate) fn new(inner: W) -> Sink<W> {
        Sink { inner, buffer: Vec::with_capacity(BUFFER), position: 0 }
    }

    /// Bytes appended so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BUFFER || bytes.len() >= DIRECT {
            self.flush()?;
        }
        if bytes.len() >= DIRECT {
            self.inner.write_all(bytes)
        } else {
            self.buffer.extend_from_slice(bytes);
            Ok(())
        }
    }

    /// Hands over what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.inner.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
