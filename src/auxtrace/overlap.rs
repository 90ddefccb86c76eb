//! Finds the bytes of an Intel PT trace that the one before already had: snapshots of a ring buffer overlap,
//! and so do the traces in samples.

use perfx_format::Bytes;
use perfx_format::intel_pt::{Psb, psbs};

/// AUX data is padded with zeros to a multiple of 8 bytes.
const MOST_PADDING: usize = 7;

/// The end of a snapshot from its last sync point (PSB) on, found once for all comparisons.
#[derive(Debug)]
pub(crate) struct Ending {
    psb: Psb,
    tail: Bytes,
    padding: usize,
}

impl Ending {
    /// Finds the end of a snapshot; `None` if it has no PSB with a time.
    pub(crate) fn of(snapshot: &Bytes) -> Option<Ending> {
        let psb = psbs(snapshot).filter(|psb| psb.tsc.is_some()).last()?;
        let tail = snapshot.slice(psb.at..snapshot.len());
        let padding = tail.iter().rev().take(MOST_PADDING).take_while(|byte| **byte == 0).count();
        Some(Ending { psb, tail, padding })
    }

    /// The number of bytes at the beginning of `next` that were seen before; `None` if data between was lost.
    ///
    /// If the PSB is not in `next`, it was overwritten, as was all data before it: `next` is all new.
    pub(crate) fn overlap(&self, next: &[u8]) -> Option<usize> {
        let same = psbs(next).find(|psb| psb.tsc == self.psb.tsc)?;
        let tail = &self.tail[..self.tail.len() - self.padding];
        if !next[same.at..].starts_with(tail) {
            return None;
        }
        // Zeros at the end of a packet look like padding.
        let end = same.at + tail.len();
        Some(end + next[end..].iter().take(self.padding).take_while(|byte| **byte == 0).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(before: &[u8], next: &[u8]) -> Option<usize> {
        Ending::of(&before.to_vec().into())?.overlap(next)
    }

    fn psb(time: u8) -> Vec<u8> {
        [&[2, 0x82].repeat(8)[..], &[0x19, time, 0, 0, 0, 0, 0, 0, 2, 0x23]].concat()
    }

    #[test]
    fn the_last_psb_tells_where_the_snapshot_before_ended() {
        let ring = [psb(1), vec![6; 100], psb(2), vec![6; 10], psb(3), vec![6; 20], psb(4)].concat();
        let third = 26 + 100 + 26 + 10;
        let before = [&ring[..third + 30], &[0; 6]].concat();
        assert_eq!(overlap(&before, &ring), Some(third + 30));
        assert_eq!(overlap(&before, &ring[100..]), Some(third + 30 - 100));
        assert_eq!(overlap(&before, &ring[third + 1..]), None);
        assert_eq!(overlap(&[6; 9], &ring), None);
        let other = [&ring[..third + 29], &[8]].concat();
        assert_eq!(overlap(&other, &ring), None);
        // Data that ends with zeros, and a PSB+ that is cut.
        let zeros = [&psb(1)[..], &[6, 0, 0]].concat();
        assert_eq!(
            overlap(&[&zeros[..], &[0; 5]].concat(), &[&zeros[..], &[6; 9]].concat()),
            Some(zeros.len())
        );
        let cut = [psb(1), vec![6; 9], psb(2)[..18].to_vec()].concat();
        assert_eq!(overlap(&cut, &[&cut[..], &[9; 9]].concat()), Some(cut.len()));
    }
}
