//! Which functions go into one image: those that lie near together; and which of them lie where another one had been.

use std::collections::BTreeMap;

use crate::Function;

/// Functions that lie near together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arena {
    /// In the order of time.
    pub members: Vec<Member>,
}

/// A function of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which.
    pub function: u32,
    /// Another function lay there before, or in a part of its place.
    pub reuses: bool,
}

/// A hole of so many bytes never ends an arena.
const HOLE: u64 = 1 << 20;

/// An arena takes at most so many bytes of memory: `.eh_frame_hdr` says distances in 31 bits.
const ARENA_MAX: u64 = 1 << 30;

/// All functions, by arena, in the order of addresses. A function that a dump has again while it still lies there is left out.
pub fn arenas(functions: &[Function<'_>]) -> Vec<Arena> {
    let mut order: Vec<u32> = (0..functions.len() as u32).collect();
    order.sort_by_key(|&number| functions[number as usize].address);
    let mut arenas = Vec::new();
    let mut begun: Option<Begun> = None;
    for number in order {
        let function = &functions[number as usize];
        let fits = |begun: &Begun| {
            function.address.saturating_sub(begun.end) <= begun.bytes.max(HOLE)
                && function.end() - begun.start <= ARENA_MAX
        };
        match begun.as_mut().filter(|begun| fits(begun)) {
            Some(begun) => begun.add(number, function),
            None => {
                let mut next = Begun { start: function.address, end: 0, bytes: 0, members: Vec::new() };
                next.add(number, function);
                arenas.extend(begun.replace(next).map(|begun| begun.arena(functions)));
            }
        }
    }
    arenas.extend(begun.map(|begun| begun.arena(functions)));
    arenas
}

/// An arena to which functions are added in the order of their addresses.
struct Begun {
    start: u64,
    /// Behind the last byte that the dump has.
    end: u64,
    /// Of code that the dump has.
    bytes: u64,
    members: Vec<u32>,
}

impl Begun {
    fn add(&mut self, number: u32, function: &Function<'_>) {
        self.members.push(number);
        self.bytes = self.bytes.saturating_add(function.code.len() as u64);
        self.end = self.end.max(function.address + function.code.len() as u64);
    }

    fn arena(mut self, functions: &[Function<'_>]) -> Arena {
        self.members.sort_unstable_by_key(|&number| (functions[number as usize].time, number));
        // By their first byte: the places that were ever taken, and who has them now.
        let (mut taken, mut current) = (BTreeMap::new(), BTreeMap::<u64, (u64, u32)>::new());
        let mut members = Vec::new();
        for number in self.members {
            let function = &functions[number as usize];
            let (start, end) = (function.address, function.end());
            if let Some(&(_, there)) = current.get(&start)
                && functions[there as usize].is_again(function)
            {
                continue;
            }
            while let Some((&first, _)) =
                current.range(..end).next_back().filter(|&(_, &(end, _))| end > start)
            {
                current.remove(&first);
            }
            current.insert(start, (end, number));
            let reuses = taken.range(..end).next_back().is_some_and(|(_, &end)| end > start);
            if !reuses {
                taken.insert(start, end);
            }
            members.push(Member { function: number, reuses });
        }
        Arena { members }
    }
}

impl Arena {
    /// An arena for each function.
    pub fn into_functions(self) -> impl Iterator<Item = Arena> {
        self.members.into_iter().map(|member| Arena { members: vec![member] })
    }
}
