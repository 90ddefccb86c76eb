//! Finds the piece of the zstd stream in COMPRESSED and COMPRESSED2 records, and builds such records.

use super::builder::build;
use super::reader::Reader;
use crate::{Endian, FaultCode, HEADER_SIZE, Record, RecordType, Value};

/// The piece of the zstd stream in a COMPRESSED or COMPRESSED2 record, and the zeros after it, which may or
/// may not be part of it. COMPRESSED2 states the length of its piece, because padding to 8 bytes follows;
/// perf 6.16 to 7.1 with `--aio` left that length at 0 or wrong.
pub fn compressed_part<'a>(record: &Record<'a>) -> (&'a [u8], &'a [u8]) {
    if record.kind() != RecordType::COMPRESSED2 {
        return (record.body(), &[]);
    }
    let Some(rest) = record.bytes().get(16..) else { return (&[], &[]) };
    match record.u64(8).and_then(|size| usize::try_from(size).ok()) {
        Some(size) if is_piece_size(size, rest) => (&rest[..size], &[]),
        _ => {
            let zeros = rest.iter().rev().take(7).take_while(|&&byte| byte == 0).count();
            rest.split_at(rest.len() - zeros)
        }
    }
}

/// True if the stated length of the piece in `rest` is possible: only padding follows.
fn is_piece_size(size: usize, rest: &[u8]) -> bool {
    size > 0 && rest.get(size..).is_some_and(|padding| padding.iter().all(|&byte| byte == 0))
}

/// True if the piece begins with a new frame or a skippable frame (RFC 8878, 3.1).
pub(crate) fn begins_frame(record: &Record<'_>) -> bool {
    let part = compressed_part(record).0;
    part.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || (0x50..=0x5f).any(|low| part.starts_with(&[low, 0x2a, 0x4d, 0x18]))
}

/// The stated length of the piece in a COMPRESSED2 record, bytes.
pub fn claimed_length(record: &Record<'_>) -> Option<u64> {
    record.u64(8).filter(|_| record.kind() == RecordType::COMPRESSED2)
}

/// Sets the stated length of the piece in a COMPRESSED2 record.
pub fn claim_length(record: &mut [u8], length: u64, endian: Endian) {
    endian.set_u64(record, 8, length);
}

/// Bytes before the piece in a COMPRESSED or COMPRESSED2 record.
pub fn compressed_head_size(kind: RecordType) -> usize {
    HEADER_SIZE + if kind == RecordType::COMPRESSED2 { size_of::<u64>() } else { 0 }
}

/// A COMPRESSED or COMPRESSED2 record with this piece; `None` if it is larger than a record can be.
pub fn compressed_record(kind: RecordType, piece: &[u8], endian: Endian) -> Option<Vec<u8>> {
    if kind != RecordType::COMPRESSED2 {
        return build(kind, 0, &[piece], endian);
    }
    let padding = piece.len().next_multiple_of(8) - piece.len();
    build(kind, 0, &[&endian.bytes_u64(piece.len() as u64), piece, &[0; 7][..padding]], endian)
}

pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    let size = d.left();
    d.take("size", size)?;
    d.note("size", Value::Number(size as u64));
    if size == 0 {
        d.add_issue(FaultCode::CompressedSize, "it has no compressed data");
    }
    Some(())
}

pub(crate) fn decode_sized(d: &mut Reader<'_>) -> Option<()> {
    let size = d.number::<u64>("data_size")?;
    let all = d.left();
    let used = usize::try_from(size).ok().filter(|&size| is_piece_size(size, d.rest()));
    if used.is_none() {
        d.add_issue(FaultCode::CompressedSize, format!("data_size is {size}, of {all} bytes"));
    }
    d.take("data", used.unwrap_or(all)).map(drop)
}
