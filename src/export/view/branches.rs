//! Caches the text of branches: a loop takes the same ones again and again.

use std::ops::Range;

use perfx_format::OrderKey;
use perfx_model::address_space::Space;

/// The properties of a branch that, with a sample's key, determine its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Branch {
    pub(super) event: usize,
    pub(super) space: Space,
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) flags: u32,
}

#[derive(Debug, Default)]
pub(super) struct WrittenBranches {
    known: Vec<Option<Known>>,
    text: Vec<u8>,
}

/// A branch, the keys for which it has this text, and the place of the text.
#[derive(Clone, Debug)]
struct Known {
    branch: Branch,
    during: Range<OrderKey>,
    text: Range<usize>,
}

/// The number of cached branches, a power of two, and the maximum size of their texts, bytes.
const KNOWN: usize = 1 << 15;
const TEXT: usize = 1 << 22;

impl WrittenBranches {
    fn slot(branch: &Branch) -> usize {
        let (from, to) = (branch.from, branch.to.unwrap_or(0));
        (from ^ from >> 13 ^ to << 3 ^ to >> 10) as usize % KNOWN
    }

    #[inline]
    pub(super) fn get(&self, branch: &Branch, key: OrderKey) -> Option<&[u8]> {
        let known = self.known.get(Self::slot(branch))?.as_ref()?;
        let is_known = known.branch == *branch && known.during.contains(&key);
        if is_known { self.text.get(known.text.clone()) } else { None }
    }

    pub(super) fn keep(&mut self, branch: Branch, during: Range<OrderKey>, text: &[u8]) {
        if self.known.is_empty() || self.text.len() + text.len() > TEXT {
            self.known.clear();
            self.known.resize(KNOWN, None);
            self.text.clear();
        }
        let start = self.text.len();
        self.text.extend_from_slice(text);
        let slot = Self::slot(&branch);
        self.known[slot] = Some(Known { branch, during, text: start..self.text.len() });
    }
}

#[cfg(test)]
mod tests {
    use perfx_model::address_space::Machine;

    use super::*;

    #[test]
    fn a_branch_is_known_while_it_is_written_so_and_there_is_room() {
        let space = Space { machine: Machine::Host, pid: 7 };
        let branch = Branch { event: 0, space, from: 0x40_0000, to: Some(0x40_0010), flags: 1 };
        let mut written = WrittenBranches::default();
        let [zero, one, five, nine, ten] = [0, 1, 5, 9, 10].map(OrderKey::at);
        assert_eq!(written.get(&branch, five), None);
        written.keep(branch, five..nine, b"one");
        assert_eq!(
            [4, 5, 8, 9].map(|time| written.get(&branch, OrderKey::at(time)).is_some()),
            [false, true, true, false]
        );
        let others = [
            Branch { event: 1, ..branch },
            Branch { space: Space { pid: 8, ..space }, ..branch },
            Branch { to: None, ..branch },
            Branch { flags: 2, ..branch },
        ];
        assert!(others.iter().all(|other| written.get(other, five).is_none()));
        written.keep(branch, nine..ten, b"two");
        assert_eq!((written.get(&branch, five), written.get(&branch, nine)), (None, Some(&b"two"[..])));
        written.keep(Branch { from: 1, ..branch }, zero..one, &vec![0; TEXT]);
        assert_eq!(written.get(&branch, nine), None);
    }
}
