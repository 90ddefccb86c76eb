//! Copies files without writing zeros, so that holes stay holes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

const BLOCK: usize = 1 << 16;

/// Copies everything into an empty file, and returns the number of bytes. Blocks of zeros become holes.
pub(crate) fn copy(from: &mut impl Read, to: &File) -> io::Result<u64> {
    let (mut block, mut at) = (vec![0; BLOCK], 0);
    loop {
        let len = read_block(from, &mut block)?;
        if block[..len].iter().any(|&byte| byte != 0) {
            to.write_all_at(&block[..len], at)?;
        }
        at += len as u64;
        if len < block.len() {
            to.set_len(at)?;
            return Ok(at);
        }
    }
}

pub(crate) fn is_same(one: &mut impl Read, other: &mut impl Read) -> io::Result<bool> {
    let (mut a, mut b) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let (in_a, in_b) = (read_block(one, &mut a)?, read_block(other, &mut b)?);
        if a[..in_a] != b[..in_b] {
            return Ok(false);
        }
        if in_a < a.len() {
            return Ok(true);
        }
    }
}

fn read_block(from: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < block.len() {
        match from.read(&mut block[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Reads an open file from an offset on without moving its position, which may be shared.
pub(crate) struct ReadAt<'f> {
    file: &'f File,
    at: u64,
}

impl<'f> ReadAt<'f> {
    pub(crate) fn new(file: &'f File, at: u64) -> ReadAt<'f> {
        ReadAt { file, at }
    }
}

impl Read for ReadAt<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn zeros_become_holes() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 9 * BLOCK, 9 * BLOCK + 7] {
            let mut bytes = vec![0; len];
            for at in [0, 3 * BLOCK + 5, len.saturating_sub(1)] {
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = 1);
            }
            let file = tempfile::tempfile().unwrap();
            assert_eq!(copy(&mut &*bytes, &file).unwrap(), len as u64);
            assert!(is_same(&mut ReadAt::new(&file, 0), &mut &*bytes).unwrap());
            assert!(file.metadata().unwrap().blocks() * 512 <= 4 * BLOCK as u64, "{len}");
            bytes.push(0);
            assert!(!is_same(&mut ReadAt::new(&file, 0), &mut &*bytes).unwrap());
        }
    }
}
