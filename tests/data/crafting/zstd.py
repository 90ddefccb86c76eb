"""zstd frames made by hand: only RAW and RLE blocks, so that no compressor is needed and bytes never change."""
import struct

MAGIC = struct.pack("<I", 0xFD2FB528)
LIMIT = 1 << 17  # of a block


def frame_head(window_log=21, content_size=None, checksum=False):
    """window_log 10..41; with a content size (one byte) the frame is a single segment."""
    if content_size is not None:
        return MAGIC + bytes([0x20 | (4 if checksum else 0), content_size])
    return MAGIC + bytes([4 if checksum else 0, (window_log - 10) << 3])


def block(kind, size, data, last=False):
    return struct.pack("<I", (size << 3) | (kind << 1) | last)[:3] + data


def raw(data, last=False):
    assert len(data) <= LIMIT
    return block(0, len(data), data, last)


def rle(byte, size, last=False):
    assert size <= LIMIT
    return block(1, size, bytes([byte]), last)


END = raw(b"", last=True)


def frame(data):
    """A whole frame."""
    return frame_head() + raw(data, last=True)


def skippable(data):
    return struct.pack("<II", 0x184D2A53, len(data)) + data
