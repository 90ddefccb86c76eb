//! A pipe between two threads, without the system calls and wake-ups of a kernel pipe for every 64 KiB.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The write end. Dropping it ends the data of the reader.
pub(crate) struct Writer(SyncSender<Vec<u8>>);

pub(crate) struct Reader {
    chunks: Receiver<Vec<u8>>,
    current: Vec<u8>,
    /// The number of bytes read of the current chunk.
    done: usize,
}

/// The maximum number of unread chunks; each is the data of one write.
const WAITING: usize = 4;

pub(crate) fn pipe() -> (Reader, Writer) {
    let (sender, chunks) = sync_channel(WAITING);
    (Reader { chunks, current: Vec::new(), done: 0 }, Writer(sender))
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.is_empty() || self.0.send(bytes.to_vec()).is_ok() {
            true => Ok(bytes.len()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.done == self.current.len() {
            // Without a writer, this is the end.
            (self.current, self.done) = (self.chunks.recv().unwrap_or_default(), 0);
        }
        let rest = &self.current[self.done..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.done += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_written_comes_out() {
        let (mut reader, mut writer) = pipe();
        let written: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let mut read = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = writer;
                written.chunks(777).for_each(|chunk| writer.write_all(chunk).unwrap());
                assert_eq!(writer.write(&[]).unwrap(), 0);
            });
            reader.read_to_end(&mut read).unwrap();
        });
        assert!(read == written);
        (reader, writer) = pipe();
        writer.write_all(b"not read").unwrap();
        drop(reader);
        assert_eq!(writer.write(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
