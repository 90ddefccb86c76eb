//! Turns a C++ symbol into the name that its source has, in the words of `c++filt --no-verbose` and perf, in
//! time and memory that are bounded whatever the symbol holds.
//!
//! The grammar is that of the [Itanium C++ ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling),
//! which GCC and Clang use everywhere but on Windows. How a name looks is not part of the ABI: spaces,
//! `{lambda()#1}`, and where a template's parameters are looked up are as in GNU's demangler, because perf
//! and gdb show names in this way, and tools compare them as text.

// Types of others contain those of this package, and derive Debug.
#![warn(missing_debug_implementations)]

mod expression;
mod node;
mod operators;
mod parse;
mod print;

/// The longest mangled name that is read, bytes; the longest of Chromium and LLVM are a tenth of it.
const LONGEST_SYMBOL: usize = 1 << 16;

/// The name that a C++ symbol stands for. `None` if it is not a C++ symbol, if it is damaged, or if its name
/// is longer than `longest` bytes: a few bytes can stand for an endless name.
///
/// ```
/// assert_eq!(demangle::demangle("_ZN3foo3barEj", 100).as_deref(), Some("foo::bar(unsigned int)"));
/// assert_eq!(demangle::demangle("_Z1fv.isra.0", 100).as_deref(), Some("f() [clone .isra.0]"));
/// assert_eq!(demangle::demangle("main", 100), None);
/// ```
pub fn demangle(symbol: &str, longest: usize) -> Option<String> {
    if !symbol.starts_with("_Z") || symbol.len() > LONGEST_SYMBOL {
        return None;
    }
    let (tree, root) = parse::parse(symbol)?;
    print::print(&tree, root, longest)
}
