//! Writes output: collects small pieces, writes large ones, and shares unchanged ranges with the input.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use perfx_format::Bytes;

use crate::share::{Run, Sharing};

/// Minimum size of pieces that are written directly; smaller ones are collected first.
const DIRECT: usize = 64 << 10;
const BUFFER: usize = 256 << 10;

/// The maximum number of bytes held back.
const HELD: usize = 1 << 20;

/// Bad address (errno(3)), the same number on every Linux architecture.
const EFAULT: i32 = 14;

/// An append-only output that tracks its position.
pub(crate) struct Sink<'a> {
    inner: Box<dyn Write + 'a>,
    sharing: Option<Sharing<'a>>,
    buffer: Vec<u8>,
    /// True while everything is held back in the buffer.
    held: bool,
    /// The run after the buffer. The longer it is, the fewer extents the output has.
    run: Option<Run>,
    position: u64,
}

impl<'a> Sink<'a> {
    /// Starts at position 0. `sharing` must be for the same output.
    pub(crate) fn new(inner: Box<dyn Write + 'a>, sharing: Option<Sharing<'a>>) -> Sink<'a> {
        Sink { inner, sharing, buffer: Vec::with_capacity(BUFFER), held: false, run: None, position: 0 }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Adds to the position, because the written bytes were moved.
    pub(crate) fn skip(&mut self, by: u64) {
        self.position += by;
    }

    /// Holds back the beginning, up to a limit, so that [`Sink::insert`] can move it; call it first.
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    pub(crate) fn insert(&mut self, at: u64, zeros: u64) {
        self.buffer.splice(at as usize..at as usize, std::iter::repeat_n(0, zeros as usize));
        self.position += zeros;
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.end_run()?;
        self.position += bytes.len() as u64;
        self.put(bytes)
    }

    pub(crate) fn append_stored(
        &mut self,
        place: Option<&(Arc<File>, u64)>,
        bytes: &Bytes,
        range: Range<usize>,
    ) -> io::Result<()> {
        let sharing = self.sharing.zip(place);
        let next =
            sharing.and_then(|(sharing, place)| sharing.run(place, bytes, range.clone(), self.position));
        let Some(next) = next else { return self.append(&bytes[range]) };
        if !self.run.as_mut().is_some_and(|run| run.join(&next)) {
            self.end_run()?;
            self.held = false;
            self.run = Some(next);
        }
        self.position += range.len() as u64;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.end_run()?;
        self.write_buffer()
    }

    fn end_run(&mut self) -> io::Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let mut done = 0;
        if let Some((sharing, blocks)) =
            self.sharing.and_then(|sharing| Some((sharing, sharing.blocks(&run)?)))
        {
            self.put(&run.bytes[..blocks.start])?;
            self.write_buffer()?;
            let shared = sharing.share(&run, &blocks);
            if shared < blocks.len() {
                self.sharing = None;
            }
            done = blocks.start + shared;
        }
        self.put(&run.bytes[done..])
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (most, direct) = if self.held { (HELD, HELD) } else { (BUFFER, DIRECT) };
        if self.buffer.len() + bytes.len() > most || bytes.len() >= direct {
            self.write_buffer()?;
        }
        if bytes.len() < direct {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        let written = self.inner.write_all(bytes);
        if written.as_ref().is_err_and(|error| error.raw_os_error() == Some(EFAULT)) {
            // The kernel could not read the bytes: their file was truncated. Reading them raises SIGBUS.
            std::hint::black_box(bytes.iter().fold(0, |sum, byte| sum ^ byte));
        }
        written
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.inner.write_all(&self.buffer)?;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER);
        self.held = false;
        Ok(())
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Sink::flush(self)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Appends ranges of a file and other bytes, and returns the actual and the expected output.
    fn written(share: bool, hold: bool) -> (Vec<u8>, Vec<u8>) {
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let input: Vec<u8> = (0..12 << 20).map(|_| next(256) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&input).unwrap();
        let bytes = Bytes::map(&file).unwrap();
        let place = (Arc::new(file), 0);
        let output = tempfile::tempfile().unwrap();
        let sharing = share.then(|| Sharing::in_blocks(&output, 4096));
        let mut sink = Sink::new(Box::new(&output), sharing);
        let mut expected = Vec::new();
        if hold {
            sink.hold();
            sink.append(&input[..744]).unwrap();
            sink.insert(100, 33);
            expected = [&input[..100], &[0; 33], &input[100..744]].concat();
        }
        let mut at = 0;
        while expected.len() < 64 << 20 {
            match next(8) {
                0 => {
                    let made = &input[..next(200_000)];
                    sink.append(made).unwrap();
                    expected.extend_from_slice(made);
                }
                // To the same place of a block as in the input, or anywhere.
                1 => at = expected.len() % 4096 + 4096 * next(1024),
                2 => at = next(input.len()),
                _ => {}
            }
            let end = (at + next(3 << 20)).min(input.len());
            sink.append_stored(Some(&place), &bytes, at..end).unwrap();
            expected.extend_from_slice(&input[at..end]);
            at = end;
            assert_eq!(sink.position(), expected.len() as u64);
        }
        sink.flush().unwrap();
        drop(sink);
        (Bytes::map(&output).unwrap().to_vec(), expected)
    }

    #[test]
    fn the_output_is_the_same_whether_ranges_are_shared_or_copied() {
        for (share, hold) in [(false, false), (false, true), (true, false), (true, true)] {
            let (found, expected) = written(share, hold);
            assert!(found == expected, "with share {share}, hold {hold}");
        }
    }
}
