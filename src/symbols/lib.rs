//! Finds the symbol that `perf report` would show for an address: in ELF files, their debug files and
//! /proc/kallsyms, with perf's choice among aliases. Also reads what unwinding needs from the same files.
//!
//! Well-kept crates read the tables and demangle Rust's names (`object`, `rustc-demangle`).
//! This package itself chooses the symbol that covers an address: the complete symbolizers (blazesym,
//! wholesym, addr2line) use DWARF first and choose differently among aliases, so totals would not agree with
//! perf's.

mod compressed;
mod debuginfod;
mod dwarf;
mod elf;
mod golines;
mod gopclntab;
mod inlined;
mod kallsyms;
#[cfg(test)]
#[path = "tests/elf/made.rs"]
mod made;
mod memory;
mod name;
mod ocaml;
mod plt;
mod relocations;
mod shown;
mod sources;
mod unwind;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

pub use crate::compressed::MOST_READ;
pub use crate::debuginfod::Debuginfod;
pub use crate::dwarf::{DWARF_STACK, DwarfFiles, Mapped};
pub use crate::elf::ElfFile;
pub use crate::gopclntab::GoAddresses;
pub use crate::inlined::{DwarfPlaces, Inlined};
pub use crate::memory::KernelCode;
pub use crate::name::Name;
pub use crate::plt::Stub;
pub use crate::relocations::relocated_branches;
pub use crate::shown::ShownNames;
pub use crate::sources::{
    Content, FileIdentity, Image, ImageFile, KernelFile, Reference, Sources, SymbolFile, SymbolTable,
};
pub use crate::unwind::{Arch, Section, SignalFrame, UnwindTables};

/// A function, a variable, or another symbol that samples may hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Start address.
    pub start: u64,
    /// End address, exclusive. Equal to `start` if the table has no size; [`Symbols::new`] then computes it.
    pub end: u64,
    /// An upper bound of the end if the table has no size: the end of its section.
    pub limit: u64,
    /// True if the linker prefers another symbol of this name.
    pub weak: bool,
    /// True if it is visible to other files.
    pub global: bool,
    /// The name in the table, possibly mangled.
    pub name: Name,
}

impl Symbol {
    /// The name as perf shows it, see [`ShownNames`].
    pub fn shown(&self) -> Cow<'_, str> {
        shown::shown(&self.name)
    }
}

/// A function at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its name in DWARF, possibly mangled; see [`ShownNames`].
    pub symbol: String,
    /// The source file.
    pub file: Option<String>,
    /// The source line, from 1.
    pub line: Option<u32>,
}

/// perf's page size when it guesses the end of the last symbol, bytes.
const PAGE: u64 = 4096;

/// Symbols by address.
#[derive(Default, Debug)]
pub struct Symbols {
    /// Ascending by `start`; those with equal addresses in the order of the table.
    symbols: Vec<Symbol>,
    choices: Mutex<Choices>,
}

/// The symbols chosen among those with equal addresses. Chosen at a look-up: names must be demangled.
#[derive(Default, Debug)]
struct Choices {
    /// The index of the chosen symbol, by that of the last one with its address.
    chosen: HashMap<usize, usize>,
    names: ShownNames,
}

impl Symbols {
    /// Sorts the symbols, and computes missing ends.
    pub fn new(mut symbols: Vec<Symbol>) -> Symbols {
        // The sort is stable: the first in the table wins among equals.
        symbols.sort_by_key(|symbol| symbol.start);
        // As in perf, a symbol without a size ends where the next one begins. So the last of several at one
        // address gets a size; perf chooses after that.
        for at in 0..symbols.len() {
            let next = symbols.get(at + 1).map_or_else(|| page_after(symbols[at].start), |next| next.start);
            let symbol = &mut symbols[at];
            if symbol.end <= symbol.start {
                symbol.end = next.min(symbol.limit).max(symbol.start);
            }
        }
        Symbols { symbols, choices: Mutex::default() }
    }

    /// Adds the stubs of the same file.
    #[must_use]
    pub fn with_stubs(mut self, stubs: Vec<Stub>) -> Symbols {
        let named: Vec<Symbol> = stubs.into_iter().map(|stub| stub.named(&self)).collect();
        self.symbols.extend(named);
        Symbols::new(self.symbols)
    }

    /// The symbol that covers an address: the last one that begins at or before it, if it reaches that far.
    pub fn find(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let symbol = &self.symbols[self.chosen(after.checked_sub(1)?)];
        (address < symbol.end || address == symbol.start).then_some(symbol)
    }

    /// The symbol that perf would choose at the address of this one, the last there.
    fn chosen(&self, last: usize) -> usize {
        let start = self.symbols[last].start;
        let others = self.symbols[..last].iter().rev().take_while(|symbol| symbol.start == start);
        if others.clone().next().is_none() {
            return last;
        }
        let mut choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let Choices { chosen, names } = &mut *choices;
        *chosen.entry(last).or_insert_with(|| {
            let all = last - others.count()..=last;
            let better = |kept, other| match is_better(&self.symbols[other], &self.symbols[kept], names) {
                true => other,
                false => kept,
            };
            all.reduce(better).unwrap_or(last)
        })
    }

    /// The addresses around one that have the same symbol.
    pub fn extent(&self, address: u64) -> Option<Range<u64>> {
        let found = self.find(address)?;
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let next = self.symbols.get(after).map_or(u64::MAX, |next| next.start);
        // A symbol without a size covers its first address.
        Some(found.start..found.end.max(found.start.saturating_add(1)).min(next))
    }

    /// The address of a symbol, by its name in the table.
    pub fn address_of(&self, name: &[u8]) -> Option<u64> {
        self.symbols.iter().find(|symbol| *symbol.name == *name).map(|symbol| symbol.start)
    }

    /// True if there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }
}

/// The end of a symbol with neither size nor next one, as in perf: a page after the rounded start.
fn page_after(start: u64) -> u64 {
    let end = start.checked_next_multiple_of(PAGE).and_then(|end| end.checked_add(PAGE));
    end.unwrap_or(u64::MAX)
}

/// perf's choice among symbols at one address: one with a size, one that is not weak, one that is global, the
/// one with fewer leading underscores, the longer name; else the first.
fn is_better(other: &Symbol, kept: &Symbol, names: &mut ShownNames) -> bool {
    let rank = |symbol: &Symbol| (symbol.end > symbol.start, !symbol.weak, symbol.global);
    let mut look = |symbol: &Symbol| {
        let name = names.of(&symbol.name);
        let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
        (usize::MAX - underscores, name.len())
    };
    // Few symbols have an equal, so few names are demangled.
    rank(other).cmp(&rank(kept)).then_with(|| look(other).cmp(&look(kept))).is_gt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, size: u64, name: &str) -> Symbol {
        Symbol {
            start,
            end: start + size,
            limit: u64::MAX,
            weak: false,
            global: true,
            name: name.as_bytes().into(),
        }
    }

    fn found(symbols: &Symbols, address: u64) -> Option<String> {
        symbols.find(address).map(|symbol| symbol.shown().into_owned())
    }

    #[test]
    fn an_address_belongs_to_the_symbol_that_covers_it() {
        let limited = Symbol { limit: 0x38, ..symbol(0x30, 0, "label") };
        let symbols = Symbols::new(vec![symbol(0x20, 8, "b"), limited, symbol(0x10, 0, "a")]);
        let aliased = Symbols::new(vec![symbol(0x10, 0, "_text"), symbol(0x10, 0, "startup_64")]);
        assert_eq!(
            (aliased.address_of(b"_text"), aliased.address_of(b"startup_64")),
            (Some(0x10), Some(0x10))
        );
        let names = [0xf, 0x10, 0x1f, 0x20, 0x27, 0x28, 0x30, 0x37, 0x38].map(|at| found(&symbols, at));
        let a = || Some("a".to_owned());
        let b = || Some("b".to_owned());
        let label = || Some("label".to_owned());
        assert_eq!(names, [None, a(), a(), b(), b(), None, label(), label(), None]);
        assert_eq!(symbols.address_of(b"b"), Some(0x20));
    }

    #[test]
    fn an_extent_has_the_addresses_of_one_symbol() {
        // `inner` begins in `outer`, and covers less.
        let all = [symbol(0x10, 0x20, "outer"), symbol(0x18, 4, "inner"), symbol(0x40, 0, "last")];
        let symbols = Symbols::new(all.to_vec());
        assert_eq!(symbols.extent(0x11), Some(0x10..0x18));
        assert_eq!(symbols.extent(0x1b), Some(0x18..0x1c));
        for address in 0..0x50 {
            let extent = symbols.extent(address);
            assert_eq!(extent.is_some(), found(&symbols, address).is_some());
            for near in extent.into_iter().flatten().take(0x50) {
                assert_eq!(found(&symbols, near), found(&symbols, address), "{near:#x} near {address:#x}");
            }
        }
    }

    #[test]
    fn among_aliases_the_choice_is_perfs() {
        let choice = |symbols: &[Symbol]| found(&Symbols::new(symbols.to_vec()), 0x10);
        let weak = |name| Symbol { weak: true, ..symbol(0x10, 8, name) };
        let local = |name| Symbol { global: false, ..symbol(0x10, 8, name) };
        let plain = |name| symbol(0x10, 8, name);
        assert_eq!(choice(&[symbol(0x10, 0, "longer_without_size"), plain("f")]).unwrap(), "f");
        assert_eq!(choice(&[weak("longer_but_weak"), plain("f")]).unwrap(), "f");
        assert_eq!(choice(&[local("longer_but_local"), plain("f")]).unwrap(), "f");
        assert_eq!(choice(&[plain("__longer"), plain("_f")]).unwrap(), "_f");
        assert_eq!(choice(&[plain("f"), plain("fgh"), plain("xyz")]).unwrap(), "fgh");
    }

    #[test]
    fn names_are_compared_only_where_an_address_is_looked_up() {
        let pair = |start| [symbol(start, 8, "f"), symbol(start, 8, "longer")];
        let symbols = Symbols::new([0x10, 0x20, 0x30].map(pair).concat());
        let compared = || symbols.choices.lock().unwrap().chosen.len();
        assert_eq!(compared(), 0);
        assert_eq!([0x20, 0x27].map(|at| found(&symbols, at).unwrap()), ["longer"; 2]);
        assert_eq!(compared(), 1);
    }

    /// Regression: 7 of 16,000 functions of libLLVM differed from perf 7.3: unreachable ones have no size.
    #[test]
    fn the_last_alias_without_a_size_reaches_to_the_next_symbol_before_one_is_chosen() {
        let choice = |symbols: &[Symbol]| found(&Symbols::new(symbols.to_vec()), 0x10);
        assert_eq!(choice(&[symbol(0x10, 8, "f"), symbol(0x10, 0, "longer")]).unwrap(), "longer");
        assert_eq!(choice(&[symbol(0x10, 0, "longer"), symbol(0x10, 0, "f")]).unwrap(), "f");
    }

    #[test]
    fn no_symbols_at_all_and_the_last_addresses_are_fine() {
        assert_eq!(Symbols::default().find(5), None);
        let last = Symbol { end: u64::MAX, ..symbol(u64::MAX - 1, 0, "last") };
        let symbols = Symbols::new(vec![last, symbol(u64::MAX, 0, "end")]);
        assert_eq!(found(&symbols, u64::MAX).unwrap(), "end");
    }
}
