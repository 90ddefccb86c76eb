//! Reads sections of DWARF, which may be compressed, and limits their expanded size.

use std::borrow::Cow;

use object::{Object as _, ObjectSection as _};

/// Maximum number of bytes read of one file, and of the expanded call frame information of all files: enough
/// for the largest programs, and a limit for hostile files.
pub const MOST_READ: u64 = 1 << 30;

/// Maximum compression ratio of a section of DWARF. Real ones have 2 to 10; a header may contain any size.
const MOST_PACKED: u64 = 64;

/// True if a section of DWARF of this size is too large for its compressed bytes.
pub(crate) fn expands_too_far(size: u64, packed: u64) -> bool {
    size / MOST_PACKED > packed
}

/// The contents of a section of DWARF by its uncompressed name (`.debug_frame`, also for the old compressed
/// form `.zdebug_frame`). `None` if it is absent or damaged, or expands to more than `most` or too far.
pub(crate) fn debug_section<'a>(file: &object::File<'a>, name: &str, most: u64) -> Option<Cow<'a, [u8]>> {
    let packed = file.section_by_name(name)?.compressed_data().ok()?;
    let size = packed.uncompressed_size;
    let is_sound = size <= most && !expands_too_far(size, packed.data.len() as u64);
    if is_sound { packed.decompress().ok() } else { None }
}

/// The expanded size of a section in the old compressed form (`.zdebug_info`), and its number of compressed
/// bytes. These follow `ZLIB` and the size, highest byte first.
pub(crate) fn old_compression(contents: &[u8]) -> Option<(u64, u64)> {
    let (size, packed) = contents.strip_prefix(b"ZLIB")?.split_first_chunk()?;
    Some((u64::from_be_bytes(*size), packed.len() as u64))
}
