//! Names the frames that are shown. One thread, whose stack is large enough to read DWARF, answers all
//! others, so that the symbols of a file are in memory once. It gets one question per symbol, because waking
//! another thread takes as long as writing ten samples.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use super::fields::ViewOptions;
use perfx_format::record::cpumode::{GUEST_KERNEL, KERNEL};
use perfx_look::render::readable;
use perfx_pipeline::{Context as _, Result};
use perfx_resolve::{Frame, Named, NamedPlace, Names, Search, dwarf_files, with_deep_stack};
use symbols::DwarfFiles;

#[derive(Debug)]
pub(super) struct Called {
    pub(super) name: Option<Arc<str>>,
    pub(super) offset: u64,
    pub(super) inlined: bool,
    /// `None` if the address is in no mapping.
    pub(super) dso: Option<Arc<[u8]>>,
    /// The offset of the function or its part in the file, bytes; `None` in a kernel and outside of mappings.
    pub(super) dsoff: Option<u64>,
    /// As in perf, the DSO's name and the address if there is no line.
    pub(super) line: Option<String>,
}

/// Innermost inlined call first; never empty.
pub(super) type Calls = Arc<[Called]>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Lines {
    None,
    Each,
    /// Only the line of the code, and only the outermost function.
    Innermost,
}

/// A DSO or process memory, the lines, and the address; 0 without lines, so that a symbol is named once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    dso: Option<u32>,
    process: u32,
    lines: Lines,
    address: u64,
}

#[derive(Clone)]
struct Known {
    end: u64,
    calls: Calls,
}

pub(super) struct Found {
    pub(super) calls: Calls,
    /// Bytes to add to their offsets.
    pub(super) past: u64,
}

/// A frame, its place, and the sender for the answer, which includes the start of the range.
type Question = (Frame, Place, Sender<(u64, Known)>);

pub(super) struct SharedNames {
    known: RwLock<BTreeMap<(Place, u64), Known>>,
    ask: Sender<Question>,
}

impl SharedNames {
    pub(super) fn of(&self, frame: Frame, lines: Lines, address: u64) -> Result<Found> {
        let address = if lines == Lines::None { 0 } else { address };
        let place = Place { dso: frame.dso, process: frame.process, lines, address };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(((near, start), Known { end, calls })) = known.range(..=(place, frame.at)).next_back()
            && *near == place
            && frame.at < *end
        {
            return Ok(Found { calls: calls.clone(), past: frame.at - start });
        }
        drop(known);
        let dead = "the thread that names functions has died";
        let (answer, answered) = channel();
        self.ask.send((frame, place, answer)).ok().context(dead)?;
        let (start, known) = answered.recv().ok().context(dead)?;
        let found = Found { calls: known.calls.clone(), past: frame.at.wrapping_sub(start) };
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert((place, start), known);
        Ok(found)
    }
}

/// Runs `work` on a thread, with the names of a recording's frames. Also returns the named DSOs.
pub(super) fn with_names<R: Send>(
    search: Search<'_>,
    options: &ViewOptions,
    work: impl FnOnce(&SharedNames) -> R + Send,
) -> Result<(R, Named)> {
    let (ask, asked) = channel();
    let shared = SharedNames { known: RwLock::default(), ask };
    with_deep_stack(|| {
        let files = dwarf_files();
        let mut namer = Namer { names: Names::new(search), files: &files, options, places: HashMap::new() };
        let result = thread::scope(|scope| {
            // When `work` ends, this drops `shared`, and with it the sender.
            let worker = thread::Builder::new().spawn_scoped(scope, move || work(&shared));
            let worker = worker.context("can't start a thread")?;
            for (frame, place, answer) in asked {
                // The asking thread may have panicked; then `join` reports it.
                drop(answer.send(namer.known(frame, place)));
            }
            Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        result.map(|result| (result, namer.named()))
    })?
}

struct Namer<'n> {
    names: Names<'n>,
    files: &'n DwarfFiles,
    options: &'n ViewOptions,
    places: HashMap<(Option<u32>, u32), NamedPlace<'n>>,
}

impl Namer<'_> {
    /// The functions for the offsets around that of a frame, and the first of these offsets.
    fn known(&mut self, mut frame: Frame, Place { lines, address, .. }: Place) -> (u64, Known) {
        let place = match self.places.entry((frame.dso, frame.process)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.names.place(frame, self.files)),
        };
        let extent = match lines == Lines::None {
            true => place.extent(frame.at),
            false => frame.at..frame.at.saturating_add(1),
        };
        frame.at = extent.start;
        let name = place.name(frame.at);
        let dso: Option<Arc<[u8]>> = name.dso.as_deref().map(Arc::from);
        let is_kernel = matches!(frame.mode, KERNEL | GUEST_KERNEL);
        let dsoff = dso.as_ref().filter(|_| !is_kernel).map(|_| frame.at);
        let whole = self.options.whole_paths;
        let innermost = || place_line(place.line(frame.at), place, (frame, address), whole);
        let outer_only = lines == Lines::Innermost || !self.options.inlined;
        let functions = name.functions.iter().take(if outer_only { 1 } else { usize::MAX }).rev();
        let mut calls: Vec<Called> = functions
            .map(|function| Called {
                name: Some(match self.options.mangled {
                    true => function.symbol.as_ref().into(),
                    false => function.name.clone(),
                }),
                offset: name.offset,
                inlined: function.inlined,
                dso: dso.clone(),
                dsoff,
                line: match lines {
                    Lines::None => None,
                    Lines::Innermost => innermost(),
                    Lines::Each => {
                        place_line(function.file.clone().zip(function.line), place, (frame, address), whole)
                    }
                },
            })
            .collect();
        if calls.is_empty() {
            let line = if lines == Lines::None { None } else { innermost() };
            calls.push(Called { name: None, offset: 0, inlined: false, dso, dsoff, line });
        }
        (extent.start, Known { end: extent.end, calls: calls.into() })
    }

    fn named(&self) -> Named {
        let mut named = Named::default();
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_unstable_by_key(|(key, _)| **key);
        places.iter().for_each(|(_, place)| named.count(place));
        named
    }
}

fn place_line(
    line: Option<(String, u32)>,
    place: &NamedPlace<'_>,
    (frame, address): (Frame, u64),
    whole: bool,
) -> Option<String> {
    let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    match (line, place.dso()) {
        (Some((file, line)), _) if whole => Some(format!("{}:{line}", readable(file.as_bytes()))),
        (Some((file, line)), _) => Some(format!("{}:{line}", base(&readable(file.as_bytes())))),
        (None, Some(dso)) => {
            Some(format!("{}[{:x}]", base(&readable(dso)), place.address(frame.at).unwrap_or(address)))
        }
        (None, None) => None,
    }
}
