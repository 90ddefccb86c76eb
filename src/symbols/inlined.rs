//! Finds the calls that the compiler inlined at an address, with their source lines, in the DWARF of a file.

use std::fmt;
use std::path::PathBuf;

use addr2line::Loader;

/// The most DWARF that is searched: a larger file would take minutes.
const MOST: u64 = 2 << 30;

/// The files that have the DWARF of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dwarf {
    /// The object itself, or its debug file.
    pub file: PathBuf,
    /// The DWARF that it has in common with other files (dwz(1)).
    pub common: Option<PathBuf>,
}

/// The DWARF of a file.
pub struct Inlined {
    loader: Loader,
}

/// A function at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its name in DWARF, possibly mangled; see [`ShownNames`](crate::ShownNames).
    pub symbol: String,
    /// The source file.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
}

impl fmt::Debug for Inlined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inlined")
    }
}

impl Inlined {
    /// Opens the DWARF of a file, if it has any. Units are read when an address of theirs is asked for. A split
    /// `.dwp` is found beside the file.
    pub(crate) fn open(Dwarf { file, common }: &Dwarf) -> Option<Inlined> {
        for file in [Some(file), common.as_ref()].into_iter().flatten() {
            std::fs::metadata(file).ok().filter(|file| file.len() <= MOST)?;
        }
        let loader = Loader::new_with_sup(file, common.as_ref()).ok()?;
        Some(Inlined { loader })
    }

    /// The functions at a virtual address of the file, innermost first. The last one is that of the symbol table,
    /// by its name in DWARF; the others were inlined into the next.
    pub fn at(&self, address: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        let Ok(mut frames) = self.loader.find_frames(address) else { return calls };
        while let Ok(Some(frame)) = frames.next() {
            let symbol =
                frame.function.as_ref().and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let place = frame.location;
            let file = place.as_ref().and_then(|place| place.file).map(str::to_owned);
            let line = place.and_then(|place| place.line).filter(|&line| line > 0);
            calls.push(Call { symbol: symbol.unwrap_or_default(), file, line });
        }
        calls
    }
}
