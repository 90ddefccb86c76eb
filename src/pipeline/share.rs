//! Gives the output the input's own blocks where a file system lets files share blocks (btrfs, XFS).

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use perfx_format::Bytes;

/// Minimum size to share; sharing fewer bytes saves little, and adds an extent to both files.
pub(crate) const WORTH_SHARING: usize = 1 << 20;

/// Minimum size to join to a run; copying fewer bytes is cheaper.
const WORTH_JOINING: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing<'a> {
    output: &'a File,
    block: u64,
}

/// Bytes of an input file that the output contains unchanged.
#[derive(Debug)]
pub(crate) struct Run {
    file: Arc<File>,
    offset: u64,
    pub(crate) bytes: Bytes,
}

impl<'a> Sharing<'a> {
    /// `None` if the file system of this empty file can't share blocks.
    pub(crate) fn with(output: &'a File) -> Option<Sharing<'a>> {
        let block = output.metadata().ok()?.blksize();
        (block > 0 && system::can_share(output)).then_some(Sharing { output, block })
    }

    /// The run of bytes stored at an offset, which the output can share from `to` on. Blocks are shared
    /// whole, so a block must begin there in both files.
    pub(crate) fn run(
        &self,
        (file, offset): &(Arc<File>, u64),
        bytes: &Bytes,
        range: Range<usize>,
        to: u64,
    ) -> Option<Run> {
        let offset = offset + range.start as u64;
        let can = range.len() >= WORTH_JOINING && offset % self.block == to % self.block;
        can.then(|| Run { file: file.clone(), offset, bytes: bytes.slice(range) })
    }

    /// The range of the run's bytes that is worth sharing: whole blocks.
    pub(crate) fn blocks(&self, run: &Run) -> Option<Range<usize>> {
        let before = run.offset.next_multiple_of(self.block) - run.offset;
        let after = (run.offset + run.bytes.len() as u64) % self.block;
        let blocks = before as usize..run.bytes.len().saturating_sub(after as usize);
        (blocks.len() >= WORTH_SHARING).then_some(blocks)
    }

    /// Shares a range of the run's bytes, which goes to the output's file position. Returns the number of
    /// shared bytes; copying the rest will report any error.
    pub(crate) fn share(&self, run: &Run, range: &Range<usize>) -> usize {
        let mut from = run.offset + range.start as u64;
        let mut done = 0;
        while done < range.len() {
            match system::share(&run.file, &mut from, self.output, range.len() - done) {
                Some(some @ 1..) => done += some,
                Some(0) | None => break,
            }
        }
        done
    }
}

impl Run {
    /// Appends a run, if it follows this one in their file.
    pub(crate) fn join(&mut self, next: &Run) -> bool {
        let joined = self.bytes.joined(&next.bytes);
        joined.map(|joined| self.bytes = joined).is_some()
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;

    use rustix::fs::{copy_file_range, ioctl_ficlone};

    pub(super) fn can_share(empty: &File) -> bool {
        // Sharing an empty file with itself changes nothing, and fails where the file system can't share.
        ioctl_ficlone(empty, empty).is_ok()
    }

    pub(super) fn share(input: &File, from: &mut u64, output: &File, len: usize) -> Option<usize> {
        // FICLONERANGE does the same, but rustix has no safe function for it.
        copy_file_range(input, Some(from), output, None, len).ok()
    }
}

/// Other systems share only whole files.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;

    pub(super) fn can_share(_empty: &File) -> bool {
        false
    }

    pub(super) fn share(_input: &File, _from: &mut u64, _output: &File, _len: usize) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    impl<'a> Sharing<'a> {
        /// For file systems that cannot share, too, where the kernel copies.
        pub(crate) fn in_blocks(output: &'a File, block: u64) -> Sharing<'a> {
            Sharing { output, block }
        }
    }

    fn run(offset: u64, len: usize) -> Run {
        Run { file: Arc::new(tempfile::tempfile().unwrap()), offset, bytes: vec![0; len].into() }
    }

    #[test]
    fn only_many_whole_blocks_are_shared() {
        let output = tempfile::tempfile().unwrap();
        for (block, offset, len, expected) in [
            (4096, 0, 1 << 20, Some(0..1 << 20)),
            (4096, 4096, (1 << 20) + 4095, Some(0..1 << 20)),
            (4096, 744, 2 << 20, Some(3352..(2 << 20) - 744)),
            (4096, 4095, (1 << 20) + 1, Some(1..(1 << 20) + 1)),
            (65536, 744, 2 << 20, Some(64792..(2 << 20) - 744)),
            (4096, 0, (1 << 20) - 1, None),
            (4096, 744, 1 << 20, None),
            (4096, 1, 0, None),
            (1 << 30, 1, 1 << 20, None),
        ] {
            let found = Sharing::in_blocks(&output, block).blocks(&run(offset, len));
            assert_eq!(found, expected, "blocks of {block}, {len} bytes at {offset}");
        }
    }

    #[test]
    fn a_run_begins_at_the_same_place_of_a_block_in_both_files() {
        let output = tempfile::tempfile().unwrap();
        let sharing = Sharing::in_blocks(&output, 4096);
        let place = (Arc::new(tempfile::tempfile().unwrap()), 744);
        let bytes = Bytes::from(vec![0; 1 << 20]);
        let can = |start: usize, to| sharing.run(&place, &bytes, start..bytes.len(), to).is_some();
        assert!(can(0, 744) && can(0, 4096 + 744) && can(100, 844));
        assert!(!can(0, 0) && !can(0, 745) && !can(1, 744));
        assert!(!can(bytes.len() - 4096, 744 + bytes.len() as u64 - 4096), "too short");
    }

    #[test]
    fn less_is_shared_of_a_truncated_file() {
        let (mut input, mut output) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..3 << 20).map(|at: usize| (at / 4096) as u8).collect();
        input.write_all(&bytes).unwrap();
        output.write_all(&bytes[..4096]).unwrap();
        let run = Run { bytes: Bytes::map(&input).unwrap(), file: Arc::new(input), offset: 0 };
        let sharing = Sharing::in_blocks(&output, 4096);
        assert_eq!(sharing.share(&run, &(4096..1 << 20)), (1 << 20) - 4096);
        run.file.set_len(2 << 20).unwrap();
        assert_eq!(sharing.share(&run, &(1 << 20..3 << 20)), 1 << 20);
        let mut found = vec![0; 2 << 20];
        output.read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes[..2 << 20]);
    }
}
