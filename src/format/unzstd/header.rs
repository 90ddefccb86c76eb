//! Reads the headers of zstd frames and blocks: RFC 8878, 3.1.1.

pub(crate) const BLOCK_HEADER_SIZE: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) size: usize,
    /// The distance from which the contents may be repeated, bytes.
    pub(crate) window: u64,
    pub(crate) content_size: Option<u64>,
    /// The dictionary that the frame needs; 0 for none.
    pub(crate) dictionary: u32,
    pub(crate) has_checksum: bool,
}

pub(crate) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl FrameHeader {
    /// The size of the header that begins with these bytes. If they are too few to know it, the result is larger
    /// than their number. `None` if they begin no header.
    pub(crate) fn size(bytes: &[u8]) -> Option<usize> {
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        if !magic.starts_with(&bytes[..bytes.len().min(4)]) {
            return None;
        }
        let Some(&descriptor) = bytes.get(4) else { return Some(5) };
        let is_single = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content = [usize::from(is_single), 2, 4, 8][usize::from(descriptor >> 6)];
        Some(5 + usize::from(!is_single) + dictionary + content)
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<FrameHeader> {
        let size = FrameHeader::size(bytes)?;
        let bytes = bytes.get(..size)?;
        let descriptor = bytes[4];
        // A reserved bit.
        if descriptor & 8 != 0 {
            return None;
        }
        let is_single = descriptor & 0x20 != 0;
        let fields = &bytes[5 + usize::from(!is_single)..];
        let (dictionary, content) = fields.split_at([0, 1, 2, 4][usize::from(descriptor & 3)]);
        let dictionary = little(dictionary) as u32;
        let content_size = match content.len() {
            0 => None,
            2 => Some(little(content) + 256),
            _ => Some(little(content)),
        };
        let window = match content_size.filter(|_| is_single) {
            Some(size) => size,
            None => {
                let base = 1 << (10 + (bytes[5] >> 3));
                base + base / 8 * u64::from(bytes[5] & 7)
            }
        };
        Some(FrameHeader { size, window, content_size, dictionary, has_checksum: descriptor & 4 != 0 })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) is_last: bool,
    /// 0: as is; 1: one byte, repeated; 2: compressed.
    pub(crate) kind: u8,
    /// The size in the header, bytes: that of the contents if the block is one byte.
    pub(crate) size: usize,
}

impl BlockHeader {
    pub(crate) fn read(bytes: &[u8]) -> Option<BlockHeader> {
        let size = little(bytes.first_chunk::<BLOCK_HEADER_SIZE>()?) as usize;
        Some(BlockHeader { is_last: size & 1 != 0, kind: (size >> 1 & 3) as u8, size: size >> 3 })
    }

    pub(crate) fn stored(&self) -> usize {
        if self.kind == 1 { 1 } else { self.size }
    }
}

pub(crate) fn content_size(bytes: &[u8]) -> Option<u64> {
    FrameHeader::read(bytes)?.content_size
}

pub(crate) fn is_one_frame(bytes: &[u8]) -> bool {
    let end = || {
        let header = FrameHeader::read(bytes)?;
        let mut at = header.size;
        loop {
            let block = BlockHeader::read(bytes.get(at..)?)?;
            at += BLOCK_HEADER_SIZE + block.stored();
            if block.is_last {
                return Some(at + if header.has_checksum { 4 } else { 0 });
            }
        }
    };
    end() == Some(bytes.len())
}
