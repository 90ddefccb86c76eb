//! Decompresses zstd streams (RFC 8878, 3.1) in Rust, each block as soon as it is complete.

use std::hash::Hasher as _;

use twox_hash::XxHash64;

use super::Progress;
use super::header::{BLOCK_HEADER_SIZE, BlockHeader, FrameHeader};
use crate::Endian;
use block::Tables;
use codes::{BLOCK_MAX, DAMAGED};

mod block;
mod codes;

/// Maximum window, bytes, as in the C library.
const WINDOW_MAX: u64 = 128 << 20;

#[derive(Clone, Copy)]
enum Next {
    Frame,
    Skipped(usize),
    BlockHeader,
    Block(BlockHeader),
    Checksum,
}

pub(crate) struct Decoder {
    next: Next,
    part: Vec<u8>,
    frame: FrameHeader,
    /// The contents of the frame: at least the last window, and all that has not been returned.
    contents: Vec<u8>,
    returned: usize,
    total: u64,
    checksum: XxHash64,
    tables: Tables,
    /// True at the end of a frame, before it was reported.
    has_ended: bool,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder {
            next: Next::Frame,
            part: Vec::new(),
            frame: FrameHeader::default(),
            contents: Vec::new(),
            returned: 0,
            total: 0,
            checksum: XxHash64::default(),
            tables: Tables::default(),
            has_ended: false,
        }
    }

    /// Appends contents to `out` within its capacity, up to the end of a frame.
    ///
    /// # Errors
    ///
    /// This is not a zstd stream.
    pub(crate) fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, &'static str> {
        let mut read = 0;
        loop {
            let ready = &self.contents[self.returned..];
            let fits = ready.len().min(out.capacity() - out.len());
            out.extend_from_slice(&ready[..fits]);
            self.returned += fits;
            if self.returned < self.contents.len() || std::mem::take(&mut self.has_ended) {
                break;
            }
            let missing = self.missing()?;
            let more = &input[read..][..missing.min(input.len() - read)];
            read += more.len();
            match &mut self.next {
                Next::Skipped(left) => *left -= more.len(),
                _ => self.part.extend_from_slice(more),
            }
            if more.len() < missing {
                break;
            }
            if self.missing()? == 0 {
                let mut part = std::mem::take(&mut self.part);
                self.take(&part)?;
                part.clear();
                self.part = part;
            }
        }
        let hint = match self.next {
            _ if self.returned < self.contents.len() => 1,
            Next::Frame if self.part.is_empty() => 0,
            Next::Block(_) => self.missing()? + BLOCK_HEADER_SIZE,
            _ => self.missing()?,
        };
        Ok(Progress { read, hint })
    }

    /// The number of missing bytes of the next part; of a header of unknown size, those of its first 5.
    fn missing(&self) -> Result<usize, &'static str> {
        let size = match self.next {
            Next::Frame if is_skippable(&self.part) => 8,
            Next::Frame => FrameHeader::size(&self.part).ok_or("it is not a zstd frame")?,
            Next::Skipped(left) => return Ok(left),
            Next::BlockHeader => BLOCK_HEADER_SIZE,
            Next::Block(header) => header.stored(),
            Next::Checksum => 4,
        };
        Ok(size - self.part.len())
    }

    fn take(&mut self, part: &[u8]) -> Result<(), &'static str> {
        self.next = match self.next {
            Next::Frame if is_skippable(part) => {
                Next::Skipped(Endian::Little.u32(part, 4).ok_or(DAMAGED)? as usize)
            }
            Next::Frame => {
                self.begin(part)?;
                Next::BlockHeader
            }
            Next::BlockHeader => {
                let header = BlockHeader::read(part).ok_or(DAMAGED)?;
                if header.kind > 2 || header.size > BLOCK_MAX {
                    return Err(DAMAGED);
                }
                Next::Block(header)
            }
            Next::Block(header) => {
                self.block(header, part)?;
                match header.is_last {
                    false => Next::BlockHeader,
                    true if self.frame.content_size.is_some_and(|size| size != self.total) => {
                        return Err(DAMAGED);
                    }
                    true if self.frame.has_checksum => Next::Checksum,
                    true => self.end(),
                }
            }
            Next::Checksum if Endian::Little.u32(part, 0) != Some(self.checksum.finish() as u32) => {
                return Err("its checksum is wrong");
            }
            Next::Checksum | Next::Skipped(_) => self.end(),
        };
        Ok(())
    }

    #[cfg(all(test, feature = "zstd"))]
    pub(super) fn has_little_memory(&self) -> bool {
        self.contents.capacity() < 4 * (self.frame.window as usize).max(BLOCK_MAX)
    }

    fn begin(&mut self, part: &[u8]) -> Result<(), &'static str> {
        self.frame = FrameHeader::read(part).ok_or(DAMAGED)?;
        if self.frame.dictionary != 0 {
            return Err("it needs a dictionary");
        }
        if self.frame.window > WINDOW_MAX {
            return Err("its window is too large");
        }
        self.contents.clear();
        (self.returned, self.total) = (0, 0);
        self.checksum = XxHash64::default();
        self.tables = Tables::default();
        Ok(())
    }

    fn end(&mut self) -> Next {
        self.has_ended = true;
        Next::Frame
    }

    fn block(&mut self, header: BlockHeader, part: &[u8]) -> Result<(), &'static str> {
        let window = self.frame.window as usize;
        let old = self.contents.len().saturating_sub(window);
        // One window is moved for at least one window of new contents, so the time is linear.
        if old > window.max(BLOCK_MAX) {
            self.contents.drain(..old);
            self.returned = self.contents.len();
        }
        let before = self.contents.len();
        match header.kind {
            0 => self.contents.extend_from_slice(part),
            1 => self.contents.resize(before + header.size, *part.first().ok_or(DAMAGED)?),
            _ => {
                let decompressed = self.tables.decompress(part, &mut self.contents);
                if decompressed.is_err() {
                    self.contents.truncate(before);
                }
                decompressed?;
            }
        }
        let more = &self.contents[before..];
        self.total += more.len() as u64;
        if self.frame.has_checksum {
            self.checksum.write(more);
        }
        Ok(())
    }
}

/// True if these bytes begin a frame to skip; if they are fewer than four, true if its first bytes match.
fn is_skippable(part: &[u8]) -> bool {
    matches!(part, [0x50..=0x5f, rest @ ..] if [0x2a, 0x4d, 0x18].starts_with(&rest[..rest.len().min(3)]))
}
