//! Groups functions close together in memory into arenas, one image each, and finds reused memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::Function;

/// Functions that are close together in memory and go into one image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arena {
    /// The functions, in the order in which they were loaded.
    pub members: Vec<Member>,
}

/// A function of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The index of the function in the list passed to [`arenas`].
    pub function: u32,
    /// True if the function overlaps memory in which an earlier function was loaded.
    pub reuses: bool,
    /// True if the code is that of an earlier function in the list (MOVE), so that no image needs a copy.
    pub is_moved: bool,
}

/// A gap up to this size ends only a full arena.
const HOLE: u64 = 1 << 20;

/// The most bytes of memory that an arena spans: distances in `.eh_frame_hdr` are signed 32-bit numbers.
const ARENA_MAX: u64 = 1 << 30;

/// Groups all functions into arenas, in the order of their addresses. If the dump repeats a function that is
/// still in place, the repetition is left out, unless code was moved from there.
pub fn arenas(functions: &[Function<'_>]) -> Vec<Arena> {
    let moves = Moves::of(functions);
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
                arenas.extend(begun.replace(next).map(|begun| begun.arena(functions, &moves)));
            }
        }
    }
    arenas.extend(begun.map(|begun| begun.arena(functions, &moves)));
    arenas
}

/// As indices into the list.
struct Moves {
    /// Functions with a copy of older code.
    moved: HashSet<u32>,
    origins: HashSet<u32>,
}

impl Moves {
    fn of(functions: &[Function<'_>]) -> Moves {
        let (mut moved, mut origins, mut first) = (HashSet::new(), HashSet::new(), HashMap::new());
        for (number, function) in (0..).zip(functions) {
            let origin = *first.entry(function.load).or_insert(number);
            if origin != number {
                moved.insert(number);
                origins.insert(origin);
            }
        }
        Moves { moved, origins }
    }
}

struct Begun {
    start: u64,
    /// The end address of the code in the dump.
    end: u64,
    /// The size of the code in the dump, bytes.
    bytes: u64,
    members: Vec<u32>,
}

impl Begun {
    fn add(&mut self, number: u32, function: &Function<'_>) {
        self.members.push(number);
        self.bytes = self.bytes.saturating_add(function.code.len() as u64);
        self.end = self.end.max(function.address + function.code.len() as u64);
    }

    fn arena(mut self, functions: &[Function<'_>], moves: &Moves) -> Arena {
        self.members.sort_unstable_by_key(|&number| (functions[number as usize].time, number));
        // By start address: the ranges that were ever used, and the functions that are there now.
        let (mut taken, mut current) = (BTreeMap::new(), BTreeMap::<u64, (u64, u32)>::new());
        let mut members = Vec::new();
        for number in self.members {
            let function = &functions[number as usize];
            let (start, end) = (function.address, function.end());
            if let Some(&(_, there)) = current.get(&start)
                && functions[there as usize].is_again(function)
                && !moves.origins.contains(&number)
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
            members.push(Member { function: number, reuses, is_moved: moves.moved.contains(&number) });
        }
        Arena { members }
    }
}

impl Arena {
    /// From the first function's address to the last one's end.
    pub fn range(&self, functions: &[Function<'_>]) -> Range<u64> {
        let members = || self.members.iter().map(|member| &functions[member.function as usize]);
        let start = members().map(|function| function.address).min().unwrap_or(0);
        start..members().map(Function::end).max().unwrap_or(0)
    }

    /// Splits the arena into one arena for each function.
    pub fn into_functions(self) -> impl Iterator<Item = Arena> {
        self.members.into_iter().map(|member| Arena { members: vec![member] })
    }

    /// True if all functions were moved to here, so that there is no code for an image.
    pub fn is_moved(&self) -> bool {
        self.members.iter().all(|member| member.is_moved)
    }
}
