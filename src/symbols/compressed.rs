//! Reads sections of DWARF, which may be compressed, and limits what they may expand to.

use std::borrow::Cow;

use object::{Object as _, ObjectSection as _};

/// The most that is read of one file, and that call frame information of all files expands to: enough for the
/// tables of the largest programs, and a limit for hostile files.
pub const MOST_READ: u64 = 1 << 30;

/// How much larger than its compressed bytes a section of DWARF may be. Real ones are 2 to 10 times as large;
/// a header may say anything.
const MOST_PACKED: u64 = 64;

/// True if a section of DWARF of this size is not to be made of this many compressed bytes.
pub(crate) fn expands_too_far(size: u64, packed: u64) -> bool {
    size / MOST_PACKED > packed
}

/// The contents of a section of DWARF by its name without compression (`.debug_frame`, of which
/// `.zdebug_frame` is an old compressed form). `None` if it is absent, damaged, or expands to more than
/// `most` or too far.
pub(crate) fn debug_section<'a>(file: &object::File<'a>, name: &str, most: u64) -> Option<Cow<'a, [u8]>> {
    let packed = file.section_by_name(name)?.compressed_data().ok()?;
    let size = packed.uncompressed_size;
    let is_sound = size <= most && !expands_too_far(size, packed.data.len() as u64);
    if is_sound { packed.decompress().ok() } else { None }
}

/// The size of a section that is compressed in the old form (`.zdebug_info`), and the number of its
/// compressed bytes: `ZLIB` and the size, whose highest byte is the first, precede these.
pub(crate) fn old_compression(contents: &[u8]) -> Option<(u64, u64)> {
    let (size, packed) = contents.strip_prefix(b"ZLIB")?.split_first_chunk()?;
    Some((u64::from_be_bytes(*size), packed.len() as u64))
}
