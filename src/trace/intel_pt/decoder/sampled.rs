//! The items of a sample that the processor writes to the trace (PEBS), until it is complete.

use crate::sink::Event;

/// The items of a block, from its first group on.
#[derive(Clone, Default, Debug)]
pub(super) struct Sampled {
    /// The group, number and value of each.
    items: Vec<(u8, u8, u64)>,
    group: u8,
    is_32_bit: bool,
    is_some: bool,
}

/// The group of registers, whose items are short in 32-bit code.
const REGISTERS: u8 = 1;

/// More items than any block can have.
const MOST: usize = 256;

impl Sampled {
    pub(super) fn clear(&mut self) {
        self.items.clear();
        (self.is_32_bit, self.is_some) = (false, false);
    }

    /// Begins a group. Items before the first group of a block belong to a block without an end.
    pub(super) fn begin(&mut self, is_first: bool, group: u8, is_short: bool) {
        if is_first {
            self.clear();
        }
        (self.group, self.is_some) = (group, true);
        if group == REGISTERS {
            self.is_32_bit = is_short;
        }
    }

    pub(super) fn add(&mut self, id: u8, value: u64) {
        if self.items.len() < MOST {
            self.items.push((self.group, id, value));
        }
    }

    /// The items and then the sample; nothing if no block has begun since the last one.
    pub(super) fn events(self, ip: Option<u64>) -> impl Iterator<Item = Event> {
        let Sampled { items, is_32_bit, is_some, .. } = self;
        let sampled = is_some.then_some(Event::Sampled { ip, is_32_bit });
        let items = items.into_iter().map(|(group, id, value)| Event::Item { group, id, value });
        items.chain(sampled)
    }
}
