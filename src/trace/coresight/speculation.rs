//! Speculative elements of a trace: each is later committed or cancelled.

use std::collections::VecDeque;

use super::packet::{Address, Atoms, Context};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Element {
    /// A sync point: an address follows.
    Info,
    On,
    Atoms(Atoms),
    Address(Address),
    Context(Context),
    Source(Address),
    /// An exception before the instruction at the address; `is_target`: the preceding branch went there.
    Exception {
        at: Address,
        is_target: bool,
        number: u16,
    },
    Reset,
    Q {
        count: Option<u32>,
        to: Address,
    },
    Timestamp(u64),
    /// This many elements were traced before the first sync point.
    Unseen(u32),
}

impl Element {
    /// The number of elements it counts as in a commit or cancel.
    fn weight(&self) -> u32 {
        match self {
            Element::Atoms(atoms) => atoms.count,
            Element::Unseen(count) => *count,
            Element::Source(_) | Element::Exception { .. } | Element::Reset | Element::Q { .. } => 1,
            _ => 0,
        }
    }

    fn split_oldest(&mut self, count: u32) -> Element {
        match self {
            Element::Atoms(atoms) => {
                let mask = (1u32 << count) - 1;
                let oldest = Atoms { bits: atoms.bits & mask, count };
                *atoms = Atoms { bits: atoms.bits >> count, count: atoms.count - count };
                Element::Atoms(oldest)
            }
            Element::Unseen(all) => {
                *all -= count;
                Element::Unseen(count)
            }
            whole => *whole,
        }
    }

    fn drop_youngest(&mut self, count: u32) {
        match self {
            Element::Atoms(Atoms { count: all, .. }) | Element::Unseen(all) => *all -= count,
            _ => {}
        }
    }
}

/// More outstanding elements than any trace unit has.
const MOST: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct Speculation {
    elements: VecDeque<Element>,
    weight: u32,
    committed: u32,
}

/// More elements are committed or cancelled than are outstanding, or too many are outstanding.
pub(super) struct Wrong;

impl Speculation {
    pub(super) fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Drops all elements and returns the last timestamp among them.
    pub(super) fn clear(&mut self) -> Option<u64> {
        let dropped = std::mem::take(self);
        dropped.elements.iter().rev().find_map(|element| match element {
            Element::Timestamp(now) => Some(*now),
            _ => None,
        })
    }

    /// Adds the youngest. If more than `most` are outstanding, the oldest are committed.
    pub(super) fn push(&mut self, element: Element, most: u32) -> Result<(), Wrong> {
        self.weight = self.weight.saturating_add(element.weight());
        self.elements.push_back(element);
        self.committed = self.committed.max(self.weight.saturating_sub(most));
        if self.elements.len() > MOST { Err(Wrong) } else { Ok(()) }
    }

    pub(super) fn commit(&mut self, count: u32) -> Result<(), Wrong> {
        self.committed = count;
        if count > self.weight { Err(Wrong) } else { Ok(()) }
    }

    pub(super) fn commit_all(&mut self) {
        self.committed = u32::MAX;
    }

    pub(super) fn next(&mut self) -> Option<Element> {
        if self.committed == 0 {
            return None;
        }
        let Some(first) = self.elements.front_mut() else {
            self.committed = 0;
            return None;
        };
        let weight = first.weight();
        let executed = if weight > self.committed {
            first.split_oldest(self.committed)
        } else {
            let whole = *first;
            self.elements.pop_front();
            whole
        };
        self.committed -= executed.weight();
        self.weight = self.weight.saturating_sub(executed.weight());
        Some(executed)
    }

    /// Drops the youngest `count`, with the addresses between them, but not the times.
    pub(super) fn cancel(&mut self, mut count: u32) -> Result<(), Wrong> {
        let mut kept = Vec::new();
        while count > 0 {
            let Some(mut last) = self.elements.pop_back() else { break };
            let weight = last.weight();
            self.weight = self.weight.saturating_sub(weight.min(count));
            if weight > count {
                last.drop_youngest(count);
                self.elements.push_back(last);
                count = 0;
            } else if matches!(last, Element::Timestamp(_)) {
                kept.push(last);
            }
            count = count.saturating_sub(weight);
        }
        self.elements.extend(kept.into_iter().rev());
        if count == 0 { Ok(()) } else { Err(Wrong) }
    }

    /// Inverts the youngest atom and drops the addresses after it.
    pub(super) fn mispredict(&mut self) -> Result<(), Wrong> {
        let mut at = self.elements.len();
        while at > 0 {
            at -= 1;
            match &mut self.elements[at] {
                Element::Atoms(atoms) => {
                    atoms.bits ^= 1 << (atoms.count - 1);
                    return Ok(());
                }
                Element::Unseen(_) => return Ok(()),
                Element::Address(_) => drop(self.elements.remove(at)),
                _ => {}
            }
        }
        Err(Wrong)
    }
}
