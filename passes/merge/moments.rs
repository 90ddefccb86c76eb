//! Keeps a bounded number of moments of a guest's recording: dense in slices of time, to be compared with the
//! host's schedule, and slices from start to end, to follow the clocks.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) time: u64,
    pub(crate) vcpu: VcpuRef,
}

/// The identification of the VCPU that ran, as in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VcpuRef {
    Vcpu(u32),
    OfId(u64),
}

const MOMENTS_MAX: usize = 1 << 19;
/// The length of a slice is 2 to the power of this, ns: some seconds.
const SLICE_BITS: u32 = 32;
/// The desired number of moments per slice: with more, moments are thinned out; with fewer, slices are.
const DENSE: usize = 8192;

#[derive(Clone, Debug)]
pub(crate) struct Moments {
    kept: Vec<Moment>,
    first: Option<u64>,
    /// One in this many slices is kept; in each, one in this many moments.
    slices: u64,
    every: u64,
    seen: u64,
    most: usize,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { kept: Vec::new(), first: None, slices: 1, every: 1, seen: 0, most: MOMENTS_MAX }
    }
}

impl Moments {
    /// Calls must be in file order.
    pub(crate) fn push(&mut self, moment: Moment) {
        let slice = moment.time >> SLICE_BITS;
        let first = *self.first.get_or_insert(slice);
        if !is_kept(slice.abs_diff(first), self.slices) {
            return;
        }
        self.seen += 1;
        if !self.seen.is_multiple_of(self.every) {
            return;
        }
        if self.kept.len() >= self.most {
            self.thin_out(first);
        }
        self.kept.push(moment);
    }

    pub(crate) fn join(&mut self, later: Moments) {
        later.kept.into_iter().for_each(|moment| self.push(moment));
    }

    pub(crate) fn take(&mut self) -> Vec<Moment> {
        std::mem::take(self).kept
    }

    fn thin_out(&mut self, first: u64) {
        let mut slices: Vec<u64> = self.kept.iter().map(|moment| moment.time >> SLICE_BITS).collect();
        slices.dedup();
        slices.sort_unstable();
        slices.dedup();
        if self.kept.len() / slices.len().max(1) > DENSE || slices.len() == 1 {
            self.every *= 2;
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        } else {
            self.slices *= 2;
            let step = self.slices;
            self.kept.retain(|moment| is_kept((moment.time >> SLICE_BITS).abs_diff(first), step));
        }
    }
}

/// True for one in `one_in` slices, and for more near the first, so that no gap is much longer than the time
/// before it: 1, 2, 3, 4, 6, 8, 12 and so on.
fn is_kept(slice: u64, one_in: u64) -> bool {
    slice.is_multiple_of(one_in) || slice >> slice.trailing_zeros() <= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_kept_from_start_to_end_and_densely_in_slices() {
        let mut moments = Moments { most: 20_000, ..Moments::default() };
        // 100,000 s with 10 events in each.
        let times = || (0..1_000_000u64).map(|number| 5_000_000_000_000 + number * 100_000_000);
        times().for_each(|time| moments.push(Moment { time, vcpu: VcpuRef::Vcpu(0) }));
        let kept: Vec<u64> = moments.take().iter().map(|moment| moment.time).collect();
        assert!((10_000..=20_000).contains(&kept.len()), "{}", kept.len());
        let (first, last) = (times().next().unwrap(), times().next_back().unwrap());
        assert!(kept[0] == first && last - kept[kept.len() - 1] < 1 << 40, "{kept:?}");
        let dense = kept.windows(2).filter(|pair| pair[1] - pair[0] == 100_000_000).count();
        assert!(dense > kept.len() * 9 / 10, "{dense} of {} follow each other", kept.len());
    }

    #[test]
    fn slices_near_the_first_are_kept_so_that_no_gap_is_longer_than_what_is_before_it() {
        let kept: Vec<u64> = (0..70).filter(|&slice| is_kept(slice, 1 << 20)).collect();
        assert_eq!(kept, [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert!((0..70).all(|slice| is_kept(slice, 1) && (is_kept(slice, 10) || slice % 10 != 0)));
    }
}
