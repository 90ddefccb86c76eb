//! Names the frames that are shown: one thread, whose stack is large enough to read DWARF, answers all others, so that
//! the symbols of a file are in memory once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use foldhash::fast::RandomState;
use perfx_look::render::readable;
use perfx_pipeline::{Context as _, Result};
use perfx_resolve::{Frame, Named, NamedPlace, Names, Search, dwarf_files, with_deep_stack};
use symbols::DwarfFiles;

/// A function at the place of a frame.
#[derive(Debug)]
pub(super) struct Called {
    /// `None` if it is not known.
    pub(super) name: Option<Arc<str>>,
    /// Bytes from the start of the symbol.
    pub(super) offset: u64,
    /// True if it was inlined into the next one.
    pub(super) inlined: bool,
    /// `None` if the address is in no mapping.
    pub(super) dso: Option<Arc<[u8]>>,
    /// The source line; as in perf, without one the name of the DSO and the address.
    pub(super) line: Option<String>,
}

/// The functions of a frame, the innermost inlined call first. There is always one.
pub(super) type Calls = Arc<[Called]>;

/// Which source lines a frame has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lines {
    None,
    /// That of each function.
    Each,
    /// Only that of the code, and only the outermost function.
    Innermost,
}

/// A frame, its lines, and its address; 0 if it has no lines, so that the frame is named once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    frame: Frame,
    lines: Lines,
    address: u64,
}

/// The names of frames, for all threads.
pub(super) struct SharedNames {
    known: RwLock<HashMap<Key, Calls, RandomState>>,
    ask: Sender<(Key, Sender<Calls>)>,
}

impl SharedNames {
    /// The functions of a frame.
    pub(super) fn of(&self, frame: Frame, lines: Lines, address: u64) -> Result<Calls> {
        let key = Key { frame, lines, address: if lines == Lines::None { 0 } else { address } };
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.clone());
        }
        let dead = "the thread that names functions has died";
        let (answer, answered) = channel();
        self.ask.send((key, answer)).ok().context(dead)?;
        let calls = answered.recv().ok().context(dead)?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, calls.clone());
        Ok(calls)
    }
}

/// Runs `work` on a thread, with the names of a recording's frames. Also returns which DSOs were named.
pub(super) fn with_names<R: Send>(
    search: Search<'_>,
    inlined: bool,
    work: impl FnOnce(&SharedNames) -> R + Send,
) -> Result<(R, Named)> {
    let (ask, asked) = channel();
    let shared = SharedNames { known: RwLock::default(), ask };
    with_deep_stack(|| {
        let files = dwarf_files();
        let mut namer = Namer { names: Names::new(search), files: &files, inlined, places: HashMap::new() };
        let result = thread::scope(|scope| {
            // Drops `shared` at its end, and with it the sender.
            let worker = thread::Builder::new().spawn_scoped(scope, move || work(&shared));
            let worker = worker.context("can't start a thread")?;
            for (key, answer) in asked {
                // The thread that asked may have died; then `join` says why.
                drop(answer.send(namer.calls(key)));
            }
            Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        result.map(|result| (result, namer.named()))
    })?
}

struct Namer<'n> {
    names: Names<'n>,
    files: &'n DwarfFiles,
    /// True if calls that were inlined are shown.
    inlined: bool,
    /// The DSOs, and the memory of processes, that were needed.
    places: HashMap<(Option<u32>, u32), NamedPlace<'n>>,
}

impl Namer<'_> {
    fn calls(&mut self, Key { frame, lines, address }: Key) -> Calls {
        let place = match self.places.entry((frame.dso, frame.process)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.names.place(frame, self.files)),
        };
        let name = place.name(frame.at);
        let dso: Option<Arc<[u8]>> = name.dso.as_deref().map(Arc::from);
        let innermost = || place_line(place.line(frame.at), place, frame, address);
        let outer_only = lines == Lines::Innermost || !self.inlined;
        let functions = name.functions.iter().take(if outer_only { 1 } else { usize::MAX }).rev();
        let mut calls: Vec<Called> = functions
            .map(|function| Called {
                name: Some(function.name.clone()),
                offset: name.offset,
                inlined: function.inlined,
                dso: dso.clone(),
                line: match lines {
                    Lines::None => None,
                    Lines::Innermost => innermost(),
                    Lines::Each => {
                        place_line(function.file.clone().zip(function.line), place, frame, address)
                    }
                },
            })
            .collect();
        if calls.is_empty() {
            let line = if lines == Lines::None { None } else { innermost() };
            calls.push(Called { name: None, offset: 0, inlined: false, dso, line });
        }
        calls.into()
    }

    fn named(&self) -> Named {
        let mut named = Named::default();
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_unstable_by_key(|(key, _)| **key);
        places.iter().for_each(|(_, place)| named.count(place));
        named
    }
}

/// The source line of a frame, or the name of the DSO and the address.
fn place_line(
    line: Option<(String, u32)>,
    place: &NamedPlace<'_>,
    frame: Frame,
    address: u64,
) -> Option<String> {
    let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    match (line, place.dso()) {
        (Some((file, line)), _) => Some(format!("{}:{line}", base(&readable(file.as_bytes())))),
        (None, Some(dso)) => {
            Some(format!("{}[{:x}]", base(&readable(dso)), place.address(frame.at).unwrap_or(address)))
        }
        (None, None) => None,
    }
}
