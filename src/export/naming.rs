//! Names the functions of frames as `perf script` does.

use std::borrow::Cow;

use perfx_format::Endian;
use perfx_format::header::Features;
use perfx_model::address_space::{Dso, Machine};
use perfx_passes::{IdOptions, can_have_id, dso_name, object_of, recorded_on};
use perfx_pipeline::{Level, Report, counted};
use symbols::{Image, Sources};

use crate::facts::Facts;
use crate::stacks::Frame;

/// Finds the symbols of a recording's DSOs.
#[derive(Debug)]
pub(crate) struct Images<'f> {
    facts: &'f Facts,
    sources: Sources,
}

impl<'f> Images<'f> {
    pub(crate) fn new(facts: &'f Facts, features: &Features, endian: Endian, ids: &IdOptions) -> Images<'f> {
        let recorded_on = recorded_on(features, endian);
        Images { facts, sources: Sources::new(!ids.no_files(), ids.roots(), ids.caches(), &recorded_on) }
    }

    /// A DSO of the recording.
    pub(crate) fn dso(&self, number: u32) -> Option<&'f Dso> {
        self.facts.spaces.dsos().get(number as usize).map(|(dso, _)| dso)
    }

    /// Its symbols, if they can be found.
    pub(crate) fn of(&self, number: u32) -> Option<Image> {
        let (dso, flags) = self.facts.spaces.dsos().get(number as usize)?;
        // This machine has no files of a guest.
        let known = dso.machine == Machine::Host && can_have_id(dso, *flags);
        let object = known.then(|| object_of(dso, self.facts.files.process(number as usize)))?;
        self.sources.image(&object, self.facts.ids.get(dso), self.facts.reference.as_ref())
    }
}

/// The functions of one frame: that of the symbol table, and the calls that the compiler inlined into it.
#[derive(Clone, Debug)]
pub struct FrameName<'n> {
    /// The DSO's name; `None` if the address is in no mapping.
    pub dso: Option<Cow<'n, [u8]>>,
    /// Outermost first; empty if nothing is known.
    pub functions: Vec<Function<'n>>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function<'n> {
    /// Its name, demangled.
    pub name: Cow<'n, str>,
    /// True if it was inlined into its caller.
    pub inlined: bool,
}

/// How many DSOs were named.
#[derive(Clone, Default, Debug)]
pub struct Named {
    /// DSOs whose symbols were found.
    pub with_symbols: u64,
    /// The names of DSOs without symbols.
    pub without: Vec<String>,
}

impl Named {
    /// Adds to the report how many DSOs have symbols.
    pub fn say(&self, report: &mut Report) {
        let dsos = counted(self.with_symbols + self.without.len() as u64, "DSO", "DSOs");
        report.say(Level::Info, format!("found symbols of {} of {dsos}", self.with_symbols));
        self.without.iter().for_each(|name| report.say(Level::Detail, format!("no symbols: {name}")));
    }
}

/// Passes the names of all frames to `visit`, DSO by DSO, with the numbers of the frames. The symbols of one
/// DSO are in memory at a time.
pub fn name_frames(
    frames: impl Iterator<Item = Frame>,
    facts: &Facts,
    (features, endian): (&Features, Endian),
    ids: &IdOptions,
    mut visit: impl FnMut(u32, Frame, FrameName<'_>),
) -> Named {
    let images = Images::new(facts, features, endian, ids);
    let mut sorted: Vec<(Frame, u32)> = frames.zip(0..).collect();
    sorted.sort_unstable_by_key(|(frame, number)| (frame.dso, frame.at, *number));
    let mut named = Named::default();
    for frames in sorted.chunk_by(|(a, _), (b, _)| a.dso == b.dso) {
        let number = frames[0].0.dso;
        let dso = number.and_then(|number| images.dso(number)).map(dso_name);
        let image = number.and_then(|number| images.of(number));
        match (&image, dso) {
            (Some(_), _) => named.with_symbols += 1,
            (None, Some(dso)) => named.without.push(String::from_utf8_lossy(dso).into_owned()),
            (None, None) => {}
        }
        for &(frame, number) in frames {
            let symbol = image.as_ref().and_then(|image| image.find(frame.at));
            let functions = symbol.map(|symbol| Function { name: symbol.shown(), inlined: false });
            let functions = functions.into_iter().collect();
            visit(number, frame, FrameName { dso: dso.map(Cow::Borrowed), functions });
        }
    }
    named
}
