//! Keeps distinct branches once: threads add to the table and read it without waiting for each other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A branch without its time and thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Its address.
    pub ip: u64,
    /// The target.
    pub addr: u64,
    /// The raw data of its samples.
    pub raw: Box<[u8]>,
}

/// Branches by number.
#[derive(Debug)]
pub struct Branches {
    pages: [OnceLock<Page>; PAGES],
    /// The number of branches, with those that found no room.
    count: AtomicUsize,
}

type Page = Box<[OnceLock<Branch>]>;

const PAGES: usize = 64;
const PAGE: usize = 1 << 12;

impl Default for Branches {
    fn default() -> Branches {
        Branches { pages: [const { OnceLock::new() }; PAGES], count: AtomicUsize::new(0) }
    }
}

impl Branches {
    /// Adds a branch; returns its number, or `None` if the table is full.
    pub fn add(&self, branch: impl FnOnce() -> Branch) -> Option<u32> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let page = self.pages.get(number / PAGE)?;
        let page = page.get_or_init(|| (0..PAGE).map(|_| OnceLock::new()).collect());
        page[number % PAGE].set(branch()).ok()?;
        Some(number as u32)
    }

    /// The branch with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Branch> {
        let number = number as usize;
        self.pages.get(number / PAGE)?.get()?[number % PAGE].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_takes_no_more_branches() {
        let table = Branches::default();
        let branch = |ip| move || Branch { ip, addr: 0, raw: Box::default() };
        for number in 0..PAGES * PAGE {
            assert_eq!(table.add(branch(number as u64)), Some(number as u32));
        }
        assert_eq!((table.add(branch(0)), table.get((PAGES * PAGE) as u32)), (None, None));
        assert_eq!(table.get(PAGE as u32), Some(&branch(PAGE as u64)()));
    }
}
