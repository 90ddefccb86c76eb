//! Finds the DSO at an address of a process at a time, in any order and from many threads, without sorting
//! samples.
//!
//! Only records that change an address space must be in time order, and they are few: [`Changes`] collects
//! them, and [`AddressSpaces`] sorts them.

mod changes;
mod dso;
mod map;
mod newest;
mod spans;

use std::ops::Range;
use std::sync::Arc;

use perfx_format::OrderKey;

pub use changes::Changes;
use dso::PAGE_BITS;
pub use dso::{Dso, Identity, KERNEL, Key, Machine, Mapping, Space, name_of_nameless};
pub use map::Hit;
pub use spans::AddressSpaces;

/// Looks up addresses, with a cache: samples hit the same pages again and again.
#[derive(Debug)]
pub struct Lookup {
    spaces: Arc<AddressSpaces>,
    pages: Box<[Page]>,
}

/// The result for a page of an address space between two changes.
#[derive(Clone, Copy, Debug)]
struct Page {
    space: Space,
    page: u64,
    from: OrderKey,
    until: OrderKey,
    hit: Option<Hit>,
}

const PAGES: usize = 1 << 12;

impl Lookup {
    /// Starts with an empty cache.
    pub fn new(spaces: Arc<AddressSpaces>) -> Lookup {
        let space = Space { machine: Machine::Host, pid: 0 };
        // `from` above `until` matches no key.
        let empty = Page { space, page: 0, from: OrderKey::END, until: OrderKey::FIRST, hit: None };
        Lookup { spaces, pages: vec![empty; PAGES].into() }
    }

    /// The address spaces that it searches.
    pub fn spaces(&self) -> &Arc<AddressSpaces> {
        &self.spaces
    }

    /// The mapping at `address` of a space at a time.
    #[inline]
    pub fn find(&mut self, space: Space, address: u64, at: OrderKey) -> Option<Hit> {
        self.find_during(space, address, at).0
    }

    /// The mapping at `address` of a space at a time, and the times for which this result holds.
    #[inline]
    pub fn find_during(
        &mut self,
        space: Space,
        address: u64,
        at: OrderKey,
    ) -> (Option<Hit>, Range<OrderKey>) {
        let page = address >> PAGE_BITS;
        let slot = (page ^ page >> 10 ^ u64::from(space.pid) << 3) as usize % PAGES;
        let known = &self.pages[slot];
        if known.page == page && known.space == space && known.from <= at && at < known.until {
            return (known.hit, known.from..known.until);
        }
        self.find_slowly(space, address, at, slot)
    }

    #[cold]
    fn find_slowly(
        &mut self,
        space: Space,
        address: u64,
        at: OrderKey,
        slot: usize,
    ) -> (Option<Hit>, Range<OrderKey>) {
        let (hit, Range { start: from, end: until }) = self.spaces.find(space, address, at);
        let page = address >> PAGE_BITS;
        if !self.spaces.splits(page) {
            self.pages[slot] = Page { space, page, from, until, hit };
        }
        (hit, from..until)
    }
}
