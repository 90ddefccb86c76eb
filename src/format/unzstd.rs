//! Decompresses zstd streams piece by piece: with the C library, or without the feature `zstd` in Rust.
//!
//! Crates in Rust were tried: they return the last window of a frame only when the frame ends, and the frames
//! of `perf record -z` never end.

pub(crate) mod header;
#[cfg(feature = "zstd")]
mod library;
#[cfg(any(test, not(feature = "zstd")))]
mod rust;

#[cfg(feature = "zstd")]
pub(crate) use library::Decoder;
#[cfg(not(feature = "zstd"))]
pub(crate) use rust::Decoder;

pub(crate) const ROOM: usize = 128 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of input bytes that were read; fewer than all at a frame's end, or if the output is full.
    pub(crate) read: usize,
    /// The bytes expected next; 0 between two frames, [`header::BLOCK_HEADER_SIZE`] between two blocks.
    pub(crate) hint: usize,
}

/// Appends the contents of `input` to `out`, up to a length of `most` bytes. Returns the last hint.
///
/// # Errors
///
/// The input is not a zstd stream, or its contents are longer than that.
pub(crate) fn append(
    decoder: &mut Decoder,
    mut input: &[u8],
    out: &mut Vec<u8>,
    most: usize,
) -> Result<usize, String> {
    let (mut hint, mut is_full) = (0, false);
    while !input.is_empty() || is_full {
        out.reserve(ROOM);
        let progress = decoder.decompress(input, out)?;
        if out.len() > most {
            return Err(format!("expands to more than {most} bytes"));
        }
        hint = progress.hint;
        input = &input[progress.read..];
        is_full = out.len() == out.capacity();
    }
    Ok(hint)
}

#[cfg(test)]
pub(crate) mod tests;
