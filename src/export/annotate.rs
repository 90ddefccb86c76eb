//! Lists the instructions and source lines of the functions with the most samples.

mod lines;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use build_id::Object;
use foldhash::fast::RandomState;
use perfx_auxtrace::KernelText;
use perfx_filter::meant;
use perfx_model::address_space::Machine;
use perfx_pipeline::Result;
use perfx_resolve::{
    Frame, Images, NamedPlace, Names, Search, code_advice, dwarf_files, recorded_on, sources, with_deep_stack,
};
use perfx_trace::listing;
use serde::{Deserialize, Serialize};
use symbols::{Arch, Content, DwarfFiles, DwarfPlaces, Inlined};

use crate::folded::Count;
use crate::stacks::Stacks;

pub use lines::{HotLines, LineRow, hot_lines};

const MOST_CODE: u64 = 64 << 10;

/// The maximum size of all source files read, bytes.
const MOST_SOURCE: u64 = 64 << 20;

/// The longest path of a source file, bytes: PATH_MAX. DWARF can give each instruction a longer one.
const LONGEST_PATH: usize = 4096;

const LONGEST_LINE: usize = 200;

const MOST_LINES: usize = 5000;

/// The number of lines shown before and after each line with code.
const AROUND: u32 = 3;

/// DWARF can name any file of this machine, and a page may be sent to others. So only files with these
/// extensions are read, in the compiler's folder or below the user's roots, and never through a link.
const EXTENSIONS: [&str; 24] = [
    "S", "ads", "adb", "asm", "c", "c++", "cc", "cpp", "cxx", "d", "f", "f90", "go", "h", "hh", "hpp", "hxx",
    "inc", "inl", "ipp", "nim", "rs", "s", "zig",
];

/// A function's code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Code {
    /// Its name.
    pub name: String,
    /// The path of its file.
    pub file: String,
    /// Its instructions: shown address, hexadecimal; text; index in `lines`.
    pub instructions: Vec<(String, String, Option<u32>)>,
    /// Its source lines with some lines around them, by file and number.
    pub lines: Vec<SourceLine>,
    /// Why there are no instructions.
    pub lack: Option<String>,
}

/// A line of source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SourceLine {
    /// The path of its file, as the compiler wrote it.
    pub file: String,
    /// Its number, from 1.
    pub number: u32,
    /// Its text, if the file was found.
    pub text: Option<String>,
}

/// Functions with their code.
#[derive(Clone, Default, Debug)]
pub struct Annotated {
    /// The functions, the heaviest first.
    pub functions: Vec<Code>,
    /// The source files whose text is here, by the compiler's paths.
    pub sources: BTreeSet<String>,
    /// Source files not read because they are outside the compiler's folder.
    pub outside: BTreeSet<String>,
    /// Source files not read because they are symbolic links.
    pub links: BTreeSet<String>,
    /// For each stack that ends here, the number of its instruction, counted through all functions.
    spots: HashMap<u32, u64, RandomState>,
}

impl Annotated {
    /// The number of the instruction in which a stack ends.
    pub fn spot(&self, stack: u32) -> Option<u64> {
        self.spots.get(&stack).copied()
    }
}

/// A function: its DSO, and the range of its addresses: a file's virtual ones, or a kernel's recorded ones.
type Place = (u32, u64, u64);

/// Lists the `most` functions with the largest weight in samples of `event`. `kcore` is a copy of the
/// recorded kernel's memory.
///
/// # Errors
///
/// A thread cannot be started.
pub fn annotate(
    stacks: &Stacks,
    event: u32,
    most: usize,
    search: Search<'_>,
    kcore: Option<&Path>,
) -> Result<Annotated> {
    let innermost = innermost_frames(stacks);
    let mut sums: BTreeMap<u32, BTreeMap<Frame, u64>> = BTreeMap::new();
    for (row, weight) in stacks.rows.iter().filter(|(row, _)| row.event == event) {
        let frame = innermost.get(row.stack as usize).filter(|frame| frame.process == 0);
        if let Some((frame, dso)) = frame.and_then(|frame| Some((*frame, frame.dso?))) {
            let sum = sums.entry(dso).or_default().entry(frame).or_default();
            let weight = Count::Period.of(weight);
            *sum = sum.saturating_add(weight);
        }
    }
    let chosen = heaviest(&sums, Chosen::Most(most), search).unwrap_or_default();
    let (listed, mut annotated) = with_deep_stack(|| list(chosen, search, kcore, false))?;
    let (mut numbers, mut first) = (HashMap::new(), 0);
    for Listed { code, hits, .. } in listed {
        numbers.extend(hits.into_iter().map(|(frame, number)| (frame, first + number)));
        first += code.instructions.len() as u64;
        let with_text = code.lines.iter().filter(|line| line.text.is_some());
        annotated.sources.extend(with_text.map(|line| line.file.clone()));
        annotated.functions.push(code);
    }
    let spots = (0..).zip(innermost).filter_map(|(stack, frame)| Some((stack, *numbers.get(&frame)?)));
    annotated.spots = spots.collect();
    Ok(annotated)
}

fn innermost_frames(stacks: &Stacks) -> Vec<Frame> {
    let frames: Vec<Frame> = stacks.tree.frames().collect();
    stacks.tree.nodes().map(|(_, frame)| frames[frame as usize]).collect()
}

#[derive(Clone, Copy)]
enum Chosen<'c> {
    Most(usize),
    Named(&'c str),
}

/// The heaviest functions, with their frames; then the kernel, if its functions have no names. The error
/// contains names that are similar to the chosen one.
fn heaviest(
    sums: &BTreeMap<u32, BTreeMap<Frame, u64>>,
    chosen: Chosen<'_>,
    search: Search<'_>,
) -> Result<Vec<(Place, Vec<Frame>)>, Vec<String>> {
    let names = Names::new(Search { inlined: false, ..search });
    let mut all: BTreeMap<Place, (u64, Vec<Frame>)> = BTreeMap::new();
    let mut named: BTreeMap<Place, String> = BTreeMap::new();
    let mut nameless = Vec::new();
    for (&dso, frames) in sums {
        let files = dwarf_files();
        let Some((first, _)) = frames.first_key_value() else { continue };
        let place = names.place(*first, &files);
        if place.why_nameless().is_some() {
            nameless.push(((dso, 0, 0), vec![*first]));
        }
        for (&frame, &weight) in frames {
            let of_file = place.symbol(frame.at).map(|(range, _)| range);
            if let Some(range) = of_file.or_else(|| place.kernel_symbol(frame.at)) {
                let key = (dso, range.start, range.end);
                if let Chosen::Named(_) = chosen {
                    let name =
                        place.name(frame.at).functions.first().map(|function| function.name.to_string());
                    named.insert(key, name.unwrap_or_default());
                }
                let of = all.entry(key).or_default();
                of.0 = of.0.saturating_add(weight);
                of.1.push(frame);
            }
        }
    }
    let most = match chosen {
        Chosen::Most(most) => most,
        Chosen::Named(name) => {
            let meant = meant(name, named.values().map(String::as_str));
            let meant = meant.map_err(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())?;
            for (place, _) in named.keys().zip(meant).filter(|(_, is_meant)| !is_meant) {
                all.remove(place);
            }
            nameless.clear();
            usize::MAX
        }
    };
    let mut all: Vec<_> = all.into_iter().map(|(place, (weight, frames))| (weight, place, frames)).collect();
    all.sort_by_key(|&(weight, place, _)| (std::cmp::Reverse(weight), place));
    all.truncate(most);
    Ok(all.into_iter().map(|(_, place, frames)| (place, frames)).chain(nameless).collect())
}

/// A listed function, and the frames in it with the numbers of their instructions.
struct Listed {
    code: Code,
    hits: Vec<(Frame, u64)>,
    places: Vec<(Frame, LinePlace)>,
}

struct LinePlace {
    /// As shown.
    address: u64,
    line: Option<(Arc<str>, u32)>,
    text: Option<String>,
}

/// Lists functions by DSO, so that its symbols and DWARF are read once; also returns omitted source files.
fn list(
    chosen: Vec<(Place, Vec<Frame>)>,
    search: Search<'_>,
    kcore: Option<&Path>,
    places_samples: bool,
) -> (Vec<Listed>, Annotated) {
    let (names, images) = (Names::new(search), Images::new(search));
    let mut sources = SourceFiles::new(search, places_samples);
    let mut by_dso: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, ((dso, ..), _)) in chosen.iter().enumerate() {
        by_dso.entry(*dso).or_default().push(at);
    }
    let is_of_kernel = |dso: &u32| {
        let is_code = |object| matches!(object, Object::Kernel | Object::Module(_));
        images.object(*dso).is_some_and(|(dso, object)| dso.kernel && is_code(object))
    };
    let of_kernel = chosen.iter().filter(|((dso, ..), _)| is_of_kernel(dso));
    let kernel = Kernel::find(of_kernel.map(|(place, _)| *place), &images, search, kcore);
    let mut listed: BTreeMap<usize, Listed> = BTreeMap::new();
    for (dso, functions) in by_dso {
        let files = dwarf_files();
        let Some(first) = chosen[functions[0]].1.first() else { continue };
        let place = names.place(*first, &files);
        let kernel = is_of_kernel(&dso).then(|| (&kernel, kernel.lines(&files)));
        let content = images.code(dso).filter(|_| kernel.is_none());
        for at in functions {
            let ((_, start, end), frames) = &chosen[at];
            let span = match &kernel {
                Some((kernel, lines)) => kernel.span(dso, &place, *start..*end, lines.as_ref()),
                None => file_span(&place, content.as_ref(), *start..*end, frames),
            };
            listed.extend(span.and_then(|span| Some((at, function(&place, span, frames, &mut sources)?))));
        }
    }
    let SourceFiles { outside, links, .. } = sources;
    (listed.into_values().collect(), Annotated { outside, links, ..Annotated::default() })
}

type LineOf<'p> = Box<dyn Fn(u64) -> Option<(String, u32)> + 'p>;

struct Span<'p> {
    /// Where it starts, as in [`Frame`].
    offset: u64,
    /// The start address, as shown.
    start: u64,
    bytes: Result<Vec<u8>, String>,
    line: LineOf<'p>,
    folder: Option<PathBuf>,
}

fn file_span<'p>(
    place: &'p NamedPlace<'p>,
    content: Option<&Content>,
    range: Range<u64>,
    frames: &[Frame],
) -> Option<Span<'p>> {
    let first = frames.first()?;
    // Within a segment, addresses minus offsets are constant.
    let offset = first.at.checked_sub(place.address(first.at)?.checked_sub(range.start)?)?;
    let read = || content.and_then(|content| bytes(content, offset, range.end.saturating_sub(range.start)));
    let bytes = match place.symbol(first.at)? {
        (_, Some(Arch::X86_64)) => read().ok_or_else(|| "its file was not found".to_owned()),
        _ => Err(OTHER_MACHINE.to_owned()),
    };
    let folder = place.folder(first.at);
    Some(Span { offset, start: range.start, bytes, line: Box::new(|at| place.line(at)), folder })
}

const OTHER_MACHINE: &str = "only x86-64 code can be listed";

struct Kernel<'s> {
    images: &'s Images<'s>,
    memory: Option<KernelText>,
    file: Option<KernelText>,
    is_other_machine: bool,
}

impl<'s> Kernel<'s> {
    fn find(
        chosen: impl Iterator<Item = Place>,
        images: &'s Images<'s>,
        Search { facts, features, endian, ids, .. }: Search<'_>,
        kcore: Option<&Path>,
    ) -> Kernel<'s> {
        let recorded_on = recorded_on(features, endian);
        let is_other_machine = recorded_on.arch.as_ref().is_some_and(|arch| arch != "x86_64");
        let mut kernel = Kernel { images, memory: None, file: None, is_other_machine };
        let object = |dso: u32| images.object(dso).map(|(_, object)| object);
        let mapped = chosen.filter_map(|(dso, start, end)| match object(dso)? {
            Object::Module(path) => {
                let name = build_id::module_name(&path).as_bytes().to_vec();
                Some((Some(name), facts.modules.get(&dso).copied().flatten()?..end))
            }
            _ => Some((None, start..end)),
        });
        let mapped: Vec<_> = mapped.filter(|(_, range)| !range.is_empty()).collect();
        if mapped.is_empty() || is_other_machine {
            return kernel;
        }
        let sources = sources(ids, !ids.is_foreign(), &recorded_on);
        kernel.memory = kcore.and_then(KernelText::of_copy);
        if let Some(reference) = &facts.reference {
            kernel.file = KernelText::of_file(&sources, reference.kernel, reference);
            // Without a build-id, the running kernel could be another one of the same release.
            let running = |id| KernelText::of_running(&sources, id, reference, &mapped);
            kernel.memory = kernel.memory.or_else(|| reference.kernel.and_then(running));
        }
        kernel
    }

    /// The source lines of the kernel's file, and the difference of recorded and file addresses, modulo 2^64.
    fn lines<'f>(&self, files: &'f DwarfFiles) -> Option<(Inlined<'f>, u64)> {
        let file = self.file.as_ref().filter(|file| file.has_dwarf)?;
        let places = DwarfPlaces::of(file.path.clone());
        Some((Inlined::open(files, &places)?, file.shift))
    }

    fn span<'p>(
        &self,
        dso: u32,
        place: &NamedPlace<'_>,
        range: Range<u64>,
        lines: Option<&'p (Inlined<'p>, u64)>,
    ) -> Option<Span<'p>> {
        let (of, object) = self.images.object(dso)?;
        let size = range.end.saturating_sub(range.start).min(MOST_CODE) as usize;
        let of_file = self.file.as_ref().filter(|_| object == Object::Kernel);
        let mut texts = self.memory.iter().chain(of_file).filter(|_| of.machine == Machine::Host);
        let found = texts.find_map(|text| Some((text.arch, text.bytes(range.start, size)?)));
        let bytes = match (place.why_nameless(), found) {
            _ if self.is_other_machine => Err(OTHER_MACHINE.to_owned()),
            (Some(why), _) => Err(why),
            (None, Some((Some(Arch::X86_64), bytes))) => Ok(bytes.to_vec()),
            (None, Some(_)) => Err(OTHER_MACHINE.to_owned()),
            (None, None) => Err(self.missing(dso, &object)),
        };
        let lines = lines.filter(|_| object == Object::Kernel);
        let folder = lines.and_then(|(dwarf, shift)| dwarf.folder(range.start.wrapping_add(*shift)));
        let line = move |at: u64| {
            let (dwarf, shift) = lines?;
            let innermost = dwarf.at(at.wrapping_add(*shift)).into_iter().next()?;
            innermost.file.zip(innermost.line)
        };
        Some(Span { offset: range.start, start: range.start, bytes, line: Box::new(line), folder })
    }

    /// The file with code that was not found, and how to provide it.
    fn missing(&self, dso: u32, object: &Object) -> String {
        let id = self.images.id(dso);
        let build_id = id.map_or_else(String::new, |id| format!(" with build-id {id}"));
        format!("its code was not found, no file{build_id}: {}", code_advice(object, id))
    }
}

fn function(
    place: &NamedPlace<'_>,
    Span { offset, start, bytes, line, folder }: Span<'_>,
    frames: &[Frame],
    sources: &mut SourceFiles<'_>,
) -> Option<Listed> {
    let first = frames.first()?;
    let name = place.name(first.at);
    let file = String::from_utf8_lossy(place.dso().unwrap_or_default()).into_owned();
    let own = name.functions.first().map(|function| function.name.to_string());
    let name = own.unwrap_or_else(|| file.clone());
    let mut code = Code { name, file, instructions: Vec::new(), lines: Vec::new(), lack: None };
    let placed: &[Frame] = if sources.places_samples { frames } else { &[] };
    let places = placed.iter().map(|&frame| {
        let line = line(frame.at).and_then(|line| sources.known(line));
        let text = line.as_ref().and_then(|(file, number)| {
            sources.lines(file, folder.as_deref())?.get((*number as usize).checked_sub(1)?).cloned()
        });
        (frame, LinePlace { address: start.wrapping_add(frame.at.wrapping_sub(offset)), line, text })
    });
    let places = places.collect();
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(lack) => {
            code.lack = Some(lack);
            return Some(Listed { code, hits: Vec::new(), places });
        }
    };
    let mut line = |at: u64| sources.known(line(offset.checked_add(at.checked_sub(start)?)?)?);
    let listed: Vec<_> = listing(64, &bytes, start).map(|(at, text)| (at, text, line(at))).collect();
    code.lines = sources.around(listed.iter().filter_map(|(.., line)| line.as_ref()), folder.as_deref());
    for (at, text, line) in &listed {
        let line = line.as_ref().and_then(|(file, number)| {
            let order = |of: &SourceLine| (&*of.file, of.number).cmp(&(&**file, *number));
            code.lines.binary_search_by(order).ok()
        });
        code.instructions.push((format!("{at:x}"), text.clone(), line.map(|line| line as u32)));
    }
    // Samples at an address within an instruction do not belong to this code.
    let hit = |frame: &Frame| {
        let at = start.checked_add(frame.at.checked_sub(offset)?)?;
        Some((*frame, listed.binary_search_by_key(&at, |&(at, ..)| at).ok()? as u64))
    };
    Some(Listed { code, hits: frames.iter().filter_map(hit).collect(), places })
}

fn bytes(content: &Content, from: u64, size: u64) -> Option<Vec<u8>> {
    let size = size.min(MOST_CODE) as usize;
    match content {
        Content::File(path) => {
            let (file, metadata) = build_id::open(path).ok()?;
            let mut bytes = vec![0; size.min(usize::try_from(metadata.len().checked_sub(from)?).ok()?)];
            file.read_exact_at(&mut bytes, from).ok()?;
            Some(bytes)
        }
        Content::Bytes(bytes) => {
            let from = usize::try_from(from).ok()?;
            let range: Range<usize> = from..from.checked_add(size)?.min(bytes.len());
            bytes.get(range).map(<[u8]>::to_vec)
        }
    }
}

type NamedSource = (Option<PathBuf>, Arc<str>);

struct SourceFiles<'s> {
    search: Search<'s>,
    /// Lines of samples are wanted, not only those of functions.
    places_samples: bool,
    names: HashSet<Arc<str>>,
    /// The lines of the files that were searched for.
    read: HashMap<NamedSource, Option<Vec<String>>>,
    /// Bytes that may still be read.
    left: u64,
    outside: BTreeSet<String>,
    links: BTreeSet<String>,
}

impl<'s> SourceFiles<'s> {
    fn new(search: Search<'s>, places_samples: bool) -> SourceFiles<'s> {
        SourceFiles {
            search,
            places_samples,
            names: HashSet::new(),
            read: HashMap::new(),
            left: MOST_SOURCE,
            outside: BTreeSet::new(),
            links: BTreeSet::new(),
        }
    }

    /// The line, with the path that all lines of its file share.
    fn known(&mut self, (file, number): (String, u32)) -> Option<(Arc<str>, u32)> {
        if file.len() > LONGEST_PATH {
            return None;
        }
        if let Some(known) = self.names.get(&*file) {
            return Some((known.clone(), number));
        }
        let file: Arc<str> = file.into();
        self.names.insert(file.clone());
        Some((file, number))
    }

    /// These lines of code compiled in this folder, and those around them, by file and number.
    fn around<'l>(
        &mut self,
        lines: impl Iterator<Item = &'l (Arc<str>, u32)>,
        folder: Option<&Path>,
    ) -> Vec<SourceLine> {
        let mut wanted: BTreeSet<(&Arc<str>, u32)> = BTreeSet::new();
        let mut exact: BTreeSet<(&Arc<str>, u32)> = BTreeSet::new();
        for (file, number) in lines {
            exact.insert((file, *number));
            let from = number.saturating_sub(AROUND).max(1);
            wanted.extend((from..=number.saturating_add(AROUND)).map(|number| (file, number)));
        }
        let line = |(file, number): (&Arc<str>, u32)| {
            let text = self.lines(file, folder).and_then(|lines| lines.get(number as usize - 1)).cloned();
            // Without the file's text, only lines with code are listed.
            (text.is_some() || exact.contains(&(file, number))).then(|| SourceLine {
                file: file.to_string(),
                number,
                text,
            })
        };
        wanted.iter().copied().filter_map(line).take(MOST_LINES).collect()
    }

    fn lines(&mut self, file: &Arc<str>, folder: Option<&Path>) -> Option<&Vec<String>> {
        let key = (folder.map(Path::to_owned), file.clone());
        if !self.read.contains_key(&key) {
            let lines = self.find(file, folder);
            self.read.insert(key.clone(), lines);
        }
        self.read[&key].as_ref()
    }

    fn find(&mut self, file: &str, folder: Option<&Path>) -> Option<Vec<String>> {
        let path = Path::new(file);
        EXTENSIONS.contains(&path.extension()?.to_str()?).then_some(())?;
        let ids = self.search.ids;
        let below_roots = ids.roots().iter().filter_map(|root| build_id::resolve_folder(root, path).ok());
        let mut places: Vec<PathBuf> = below_roots.collect();
        if path.is_absolute() && !ids.is_foreign() {
            let place = build_id::resolve_folder(Path::new("/"), path).ok()?;
            // A relative folder would start where perfx runs, and `/` contains everything.
            let folder = folder.filter(|folder| folder.is_absolute());
            let folder = folder.and_then(|folder| folder.canonicalize().ok());
            let folder = folder.filter(|folder| folder.parent().is_some());
            if folder.is_some_and(|folder| place.starts_with(folder)) {
                places.push(place);
            } else if place.is_file() {
                self.outside.insert(file.to_owned());
            }
        }
        let found = places.iter().find_map(|place| {
            if place.is_symlink() {
                self.links.insert(file.to_owned());
            }
            source_lines(place, &mut self.left)
        });
        if found.is_some() {
            self.outside.remove(file);
        }
        found
    }
}

/// The lines of a text file, each with at most [`LONGEST_LINE`] characters, within `left` bytes.
fn source_lines(path: &Path, left: &mut u64) -> Option<Vec<String>> {
    let (file, _): (File, _) = build_id::open_unlinked(path).ok()?;
    let mut bytes = Vec::new();
    *left -= file.take(*left).read_to_end(&mut bytes).ok()? as u64;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(|line| line.chars().take(LONGEST_LINE).collect()).collect())
}
