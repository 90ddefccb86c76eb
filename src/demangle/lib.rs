//! Demangles C++ symbols, as `c++filt --no-verbose` and perf word them, in bounded time and memory.
//!
//! The grammar is that of the [Itanium C++ ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling),
//! which GCC and Clang use everywhere except on Windows. The ABI does not define the text of a name: spaces,
//! `{lambda()#1}`, and the scope of template parameters are as in GNU's demangler, because perf and gdb show
//! names in this way, and tools compare them as text.

// Other packages derive Debug for types that contain these.
#![warn(missing_debug_implementations)]

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
pub struct Readme;

mod expression;
mod node;
mod operators;
mod parse;
mod print;

/// Bytes: ten times the longest mangled name of Chromium and LLVM.
const LONGEST_SYMBOL: usize = 1 << 16;

/// The demangled name of a C++ symbol. `None` if it is not a C++ symbol, if it is damaged, or if its name is
/// longer than `longest` bytes: a few bytes can expand to gigabytes.
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
