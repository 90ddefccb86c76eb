//! Converts names of symbol tables to those that perf shows, in bounded time and each only once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::ocaml;

/// The longest demangled name, bytes: ten times that of libLLVM and node, twice that of a debug perfx.
const LONGEST_NAME: usize = 1 << 16;

/// The capacity of the cache in bytes of names: those of some 10,000 functions.
const REMEMBERED: usize = 4 << 20;

/// Names as perf shows them: C++, Rust and OCaml names demangled, invalid UTF-8 replaced. Each is demangled once:
/// some 100 bytes can stand for the longest name, which takes a millisecond.
#[derive(Debug, Default)]
pub struct ShownNames {
    known: HashMap<Box<[u8]>, Arc<str>>,
    bytes: usize,
}

impl ShownNames {
    /// The shown form of a name from symbols or DWARF.
    pub fn of(&mut self, symbol: &[u8]) -> Arc<str> {
        if let Some(known) = self.known.get(symbol) {
            return known.clone();
        }
        let name: Arc<str> = shown(symbol).into();
        if self.bytes > REMEMBERED {
            *self = ShownNames::default();
        }
        self.bytes += symbol.len() + name.len();
        self.known.insert(symbol.into(), name.clone());
        name
    }
}

/// A name as perf shows it.
pub(crate) fn shown(symbol: &[u8]) -> Cow<'_, str> {
    match symbol.strip_suffix(b"@plt") {
        Some(function) => demangled(function) + "@plt",
        None => demangled(symbol),
    }
}

fn demangled(symbol: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(symbol);
    if let Ok(rust) = rustc_demangle::try_demangle(&text) {
        let mut shown = Bounded { text: String::new(), pieces: LONGEST_NAME };
        return match write!(shown, "{rust:#}") {
            Ok(()) => shown.text.into(),
            Err(_) => text,
        };
    }
    match demangle::demangle(&text, LONGEST_NAME).or_else(|| ocaml::demangle(&text)) {
        Some(shown) => shown.into(),
        None => text,
    }
}

/// Text of bounded length, from a bounded number of pieces: a short mangled name can be endless.
struct Bounded {
    text: String,
    pieces: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > LONGEST_NAME || self.pieces == 0 {
            return Err(fmt::Error);
        }
        self.pieces -= 1;
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some 100 bytes of a Rust name that stand for a name of more than 1 MB, or with few levels for a short
    /// one: each tuple contains the inner one twice, the second time as a back reference.
    fn endless_rust(depth: usize) -> String {
        let base_62 = |place: usize| char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[place - 1]);
        let front = "T".repeat(depth);
        let back: String = (0..depth).rev().map(|level| format!("B{}_E", base_62(level + 4))).collect();
        format!("_RMC0{front}h{back}")
    }

    fn endless_cpp(depth: usize) -> String {
        let levels = "0123456789ABCDEFGHIJKLMNOPQRS".chars().take(depth);
        let levels: String = levels.map(|at| format!("S_IS{at}_S{at}_E")).collect();
        format!("_Z1fSt4pairIiiE{levels}")
    }

    #[test]
    fn names_are_demangled() {
        let shown = |name: &str| shown(name.as_bytes()).into_owned();
        assert_eq!(shown("_ZN3foo3barEj"), "foo::bar(unsigned int)");
        assert_eq!(shown("_Z1fILj1EEvv"), "void f<1u>()");
        assert_eq!(shown("_ZN3foo3barEi@plt"), "foo::bar(int)@plt");
        assert_eq!(
            shown("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE"),
            "core::fmt::Formatter::write_str"
        );
        assert_eq!(shown("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(shown("_Zebra"), "_Zebra");
        assert_eq!(shown("main"), "main");
        // perf also demangles with GNU's type rules, in which `i` is a type; but this is a function of C.
        assert_eq!(shown("i"), "i");
    }

    #[test]
    fn a_name_of_endless_length_stays_mangled() {
        assert_eq!(shown(endless_rust(2).as_bytes()), "<((u8, u8), (u8, u8))>");
        for name in [endless_rust(24), endless_cpp(29)] {
            assert_eq!(shown(name.as_bytes()), name);
        }
    }

    /// Regression: four thousand addresses in a function with such a name took 40 s.
    #[test]
    fn a_name_is_demangled_once_however_often_it_is_shown() {
        let mut names = ShownNames::default();
        let name = endless_rust(24);
        let first = names.of(name.as_bytes());
        assert!((0..4000).all(|_| Arc::ptr_eq(&first, &names.of(name.as_bytes()))));
    }

    #[test]
    fn the_names_that_are_remembered_are_bounded() {
        let mut names = ShownNames::default();
        for number in 0..2000 {
            names.of(format!("{number:05000}").as_bytes());
            assert!(names.bytes <= REMEMBERED + 10_000);
        }
        let bytes: usize = names.known.iter().map(|(symbol, name)| symbol.len() + name.len()).sum();
        assert_eq!(bytes, names.bytes);
    }
}
