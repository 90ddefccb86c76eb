use super::rust::Decoder;
use super::*;

pub(crate) fn stored_frame(contents: &[u8]) -> Vec<u8> {
    frame(contents.len(), contents.chunks(ROOM).map(|block| (0, block.len(), block)))
}

pub(crate) fn repeated_frame(byte: u8, size: usize) -> Vec<u8> {
    let sizes = (0..size).step_by(ROOM).map(|start| ROOM.min(size - start));
    frame(size, sizes.map(|size| (1, size, std::slice::from_ref(&byte))))
}

/// A frame without a window, of blocks with their kind and size.
fn frame<'a>(size: usize, blocks: impl Iterator<Item = (usize, usize, &'a [u8])>) -> Vec<u8> {
    let mut out = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0], &(size as u32).to_le_bytes()[..]].concat();
    let mut blocks = blocks.peekable();
    while let Some((kind, size, bytes)) = blocks.next() {
        let header = size << 3 | kind << 1 | usize::from(blocks.peek().is_none());
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(bytes);
    }
    out
}

/// Decompresses pieces of the input into pieces of the output. Also returns the last hint.
fn decompressed(input: &[u8], piece: usize, room: usize) -> Result<(Vec<u8>, usize), &'static str> {
    let (mut decoder, mut all, mut hint) = (Decoder::new(), Vec::new(), 0);
    for mut piece in input.chunks(piece) {
        loop {
            let mut out = Vec::with_capacity(room);
            let progress = decoder.decompress(piece, &mut out)?;
            hint = progress.hint;
            piece = &piece[progress.read..];
            all.extend_from_slice(&out);
            if piece.is_empty() && out.len() < out.capacity() {
                break;
            }
        }
    }
    Ok((all, hint))
}

#[test]
fn blocks_that_are_not_compressed_are_copied() {
    let contents: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let frames = [stored_frame(&contents), repeated_frame(7, 200_000)].concat();
    let expected = [&contents[..], &[7; 200_000]].concat();
    for (piece, room) in [(1, 4096), (1000, 100), (usize::MAX, 1 << 20)] {
        assert!(decompressed(&frames, piece, room) == Ok((expected.clone(), 0)), "{piece} {room}");
    }
    assert!(header::is_one_frame(&stored_frame(&contents)) && !header::is_one_frame(&frames));
    assert_eq!(header::content_size(&frames), Some(300_000));
    // With what follows a frame of contents: one that is skipped, and a frame that is cut off.
    let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], &repeated_frame(9, 5)[..]].concat();
    assert_eq!(decompressed(&skipped, 2, 2), Ok((vec![9; 5], 0)));
    assert_eq!(decompressed(&repeated_frame(9, 5)[..12], 100, 100), Ok((Vec::new(), 4)));
}

#[cfg(feature = "zstd")]
mod library {
    use std::io::Write as _;

    use zstd::stream::write::Encoder;

    use super::*;

    /// Text with repetitions at all distances, and bytes that repeat nothing.
    fn contents(size: usize) -> Vec<u8> {
        let (mut random, mut out) = (1_u64, Vec::new());
        while out.len() < size {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 33) as usize;
            match number % 8 {
                0 if out.len() > 100 => {
                    let from = number / 8 % (out.len() - 50);
                    out.extend_from_within(from..from + 3 + number / 64 % 47);
                }
                1 => out.extend((0..number / 8 % 40).map(|at| (random >> (at % 50)) as u8)),
                2 => out.resize(out.len() + number / 8 % 300, b' '),
                _ => out
                    .extend_from_slice(format!("{} comm=sh pid={}\n", number % 97, number % 1000).as_bytes()),
            }
        }
        out.truncate(size);
        out
    }

    #[test]
    fn contents_are_those_of_the_library_at_every_level() {
        for size in [0, 1, 100, 5_000, 400_000] {
            let contents = contents(size);
            for level in [-5, 1, 6, 16] {
                let mut encoder = Encoder::new(Vec::new(), level).unwrap();
                encoder.include_checksum(level % 2 == 0).unwrap();
                encoder.window_log(if level == 1 { 17 } else { 20 }).unwrap();
                encoder.write_all(&contents).unwrap();
                let frame = encoder.finish().unwrap();
                for (piece, room) in [(usize::MAX, 1 << 17), (1009, 5000)] {
                    assert!(decompressed(&frame, piece, room) == Ok((contents.clone(), 0)), "{size} {level}");
                }
                assert!(header::is_one_frame(&frame));
            }
        }
    }

    /// perf never ends a frame.
    #[test]
    fn contents_are_returned_as_soon_as_they_are_flushed() {
        let contents = contents(1_200_000);
        let mut encoder = Encoder::new(Vec::new(), 1).unwrap();
        let (mut decoder, mut of_library) = (Decoder::new(), super::super::library::Decoder::new());
        for part in contents.chunks(20_011) {
            encoder.write_all(part).unwrap();
            encoder.flush().unwrap();
            let piece = std::mem::take(encoder.get_mut());
            let mut out = Vec::with_capacity(30_000);
            let progress = decoder.decompress(&piece, &mut out);
            assert!(out == part);
            out.clear();
            assert_eq!(progress, of_library.decompress(&piece, &mut out));
            assert_eq!(progress, Ok(Progress { read: piece.len(), hint: header::BLOCK_HEADER_SIZE }));
        }
        assert!(decoder.has_little_memory());
    }

    #[test]
    fn damage_is_an_error_where_the_library_finds_one() {
        let contents = contents(700);
        let mut encoder = Encoder::new(Vec::new(), 19).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(&contents).unwrap();
        let frame = encoder.finish().unwrap();
        for at in 0..frame.len() {
            for bit in [0, 3, 7] {
                let mut damaged = frame.clone();
                damaged[at] ^= 1 << bit;
                let ours = decompressed(&damaged, usize::MAX, 1 << 17).ok().filter(|(_, hint)| *hint == 0);
                let theirs = zstd::decode_all(&damaged[..]).ok();
                assert!(ours.map(|(contents, _)| contents) == theirs, "bit {bit} of byte {at}");
            }
        }
    }
}
