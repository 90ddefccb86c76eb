//! Keeps the last branches, newest first, so that a sample can refer to them.

use perfx_format::sample::Branch;

/// The last branches. Each is stored before the previous one, from the end of the vector to its start.
#[derive(Clone, Default, Debug)]
pub(super) struct Ring {
    branches: Vec<Branch>,
    /// The index of the newest.
    first: usize,
    /// The elements before `first` are the oldest branches.
    is_full: bool,
}

impl Ring {
    /// Adds a branch; keeps at most `most`, which must not change.
    #[inline(always)]
    pub(super) fn push(&mut self, branch: Branch, most: usize) {
        if self.first == 0 {
            self.go_back(most);
        }
        self.first = self.first.saturating_sub(1);
        if let Some(oldest) = self.branches.get_mut(self.first) {
            *oldest = branch;
        }
    }

    #[cold]
    fn go_back(&mut self, most: usize) {
        self.is_full = !self.branches.is_empty();
        self.branches.resize(most, Branch::default());
        self.first = most;
    }

    /// The branches, newest first, in two pieces.
    pub(super) fn pieces(&self) -> [&[Branch]; 2] {
        let (old, new) = self.branches.split_at(self.first);
        [new, if self.is_full { old } else { &[] }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_branches_come_first() {
        let mut ring = Ring::default();
        let push = |ring: &mut Ring, from| {
            ring.push(Branch { from, ..Branch::default() }, 3);
            ring.pieces().concat().iter().map(|branch| branch.from).collect::<Vec<_>>()
        };
        let expected: [&[u64]; 8] =
            [&[1], &[2, 1], &[3, 2, 1], &[4, 3, 2], &[5, 4, 3], &[6, 5, 4], &[7, 6, 5], &[8, 7, 6]];
        for (from, expected) in (1..).zip(expected) {
            assert_eq!(push(&mut ring, from), expected);
        }
        ring.push(Branch::default(), 0);
    }
}
