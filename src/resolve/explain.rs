//! Explains for each DSO of a recording what names its functions, or why nothing does and what would help.

use std::cell::OnceCell;
use std::path::Path;

use build_id::Object;
use symbols::{Image, ImageFile};

use crate::dumps::PerfMaps;
use crate::ids::recorded_on;
use crate::naming::{Images, Search, listed};

/// The kind of names of a DSO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedBy {
    /// The names of all functions.
    Symbols,
    /// Those names, and DWARF with inlined calls and source lines.
    SymbolsAndLines,
    /// Only the names that the dynamic linker needs.
    Exported,
    /// Nothing.
    Nothing,
}

/// The source of a DSO's names, or why it has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The kind of names.
    pub by: NamedBy,
    /// Where they are: a path, or `the recording`. `None` without names.
    pub from: Option<String>,
    /// Why names are missing.
    pub why: Option<String>,
    /// Options or a command that would help.
    pub help: Option<String>,
}

impl Explanation {
    fn named(by: NamedBy, from: String) -> Explanation {
        Explanation { by, from: Some(from), why: None, help: None }
    }

    fn nameless(why: String, help: &str) -> Explanation {
        Explanation { by: NamedBy::Nothing, from: None, why: Some(why), help: Some(help.to_owned()) }
    }
}

/// Explains the DSOs of a recording.
#[derive(Debug)]
pub struct Explainer<'s> {
    search: Search<'s>,
    images: Images<'s>,
    maps: PerfMaps,
    /// Shared by all DSOs that are memory.
    memory: OnceCell<Explanation>,
}

impl<'s> Explainer<'s> {
    /// Explains the results of this search.
    pub fn new(search: Search<'s>) -> Explainer<'s> {
        let maps = PerfMaps::new(search.ids, &recorded_on(search.features, search.endian), search.facts);
        Explainer { search, images: Images::new(search), maps, memory: OnceCell::new() }
    }

    /// The explanation for the DSO with this number.
    pub fn explain(&self, number: u32) -> Explanation {
        let (facts, images) = (self.search.facts, &self.images);
        if facts.ksymbols.contains_key(&number) {
            return Explanation::named(NamedBy::Symbols, "the recording".to_owned());
        }
        if facts.is_memory(number) {
            return self.memory.get_or_init(|| self.explain_memory()).clone();
        }
        let object = images.object(number).map(|(_, object)| object);
        match images.of(number) {
            Some(Image::Kernel { place, .. }) => {
                let place =
                    place.map_or_else(|| "the recording".to_owned(), |place| place.display().to_string());
                Explanation::named(NamedBy::Symbols, place)
            }
            Some(Image::File(file)) => {
                let ImageFile { symbols, dwarf, table, .. } = &*file;
                let place = table.place.display().to_string();
                let stripped = || stripped(&table.place, images, number);
                match (symbols.is_empty(), table.is_full, dwarf) {
                    (true, ..) => Explanation::nameless(format!("{place} is stripped"), &stripped()),
                    (_, false, _) => Explanation {
                        why: Some("it is stripped".to_owned()),
                        help: Some(stripped()),
                        ..Explanation::named(NamedBy::Exported, place)
                    },
                    (_, true, Some(_)) => Explanation::named(NamedBy::SymbolsAndLines, place),
                    (_, true, None) => Explanation::named(NamedBy::Symbols, place),
                }
            }
            None => {
                let why = images.why_missing(number);
                let help = match object {
                    Some(Object::Kernel | Object::Module(_)) => "--kallsyms FILE or --vmlinux FILE",
                    Some(Object::Vdso | Object::Vdso32) => "--buildid-dir DIR of the recorded machine",
                    Some(Object::File { .. }) if images.id(number).is_some() => "--debuginfod or --root DIR",
                    Some(Object::File { .. }) => "--root DIR with the recorded file",
                    None => {
                        let why = Some("it is memory without a file".to_owned());
                        return Explanation { by: NamedBy::Nothing, from: None, why, help: None };
                    }
                };
                Explanation::nameless(why.unwrap_or_default(), help)
            }
        }
    }

    fn explain_memory(&self) -> Explanation {
        let mut why = None;
        for pid in self.search.facts.jit_processes() {
            match self.maps.open(pid) {
                Ok((text, place)) if listed(&text, pid, self.search.endian).is_empty() => {
                    why = why.or_else(|| Some(format!("{} has no functions", place.display())));
                }
                Ok((_, place)) => return Explanation::named(NamedBy::Symbols, place.display().to_string()),
                Err(reason) => why = why.or(Some(reason)),
            }
        }
        Explanation::nameless(
            why.unwrap_or_else(|| "it is memory without code".to_owned()),
            "perfx inject --jit, or --root DIR with tmp/perf-PID.map",
        )
    }
}

fn stripped(place: &Path, images: &Images<'_>, number: u32) -> String {
    let id = images.id(number).or_else(|| build_id::of_file(place).ok().flatten());
    match id {
        Some(_) => "--debuginfod, or --root DIR with usr/lib/debug".to_owned(),
        None => "--root DIR with the file before it was stripped".to_owned(),
    }
}
