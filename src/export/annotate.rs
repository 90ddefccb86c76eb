//! Finds the instructions and the source lines of the functions with the most samples, for a page.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use foldhash::fast::RandomState;
use perfx_pipeline::Result;
use perfx_resolve::{Frame, Images, Names, Search, dwarf_files, with_deep_stack};
use perfx_trace::listing;
use serde::{Deserialize, Serialize};
use symbols::{Arch, Content};

use crate::folded::Count;
use crate::stacks::Stacks;

/// The longest function that is listed, bytes of code.
const MOST_CODE: u64 = 64 << 10;

/// The largest source file that is read, bytes.
const MOST_SOURCE: u64 = 16 << 20;

/// The longest source line that is shown, characters.
const LONGEST_LINE: usize = 200;

/// The most lines of source that are shown of a function.
const MOST_LINES: usize = 5000;

/// The lines shown before and after each line that has code.
const AROUND: u32 = 3;

/// DWARF can name any file of this machine, and a page may be sent to others. Only what is called like a source file is
/// read.
const EXTENSIONS: [&str; 24] = [
    "S", "ads", "adb", "asm", "c", "c++", "cc", "cpp", "cxx", "d", "f", "f90", "go", "h", "hh", "hpp", "hxx",
    "inc", "inl", "ipp", "nim", "rs", "s", "zig",
];

/// The code of a function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Code {
    /// Its name.
    pub name: String,
    /// The path of its file.
    pub file: String,
    /// Its instructions: address in the file, hexadecimal; text; number in `lines`.
    pub instructions: Vec<(String, String, Option<u32>)>,
    /// The lines of its source and, before and after them, some more: by file and number.
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
    /// For each frame with code here, the number of its instruction: those of all functions are numbered through.
    spots: HashMap<Frame, u64, RandomState>,
    /// The frame of each stack.
    frames: Vec<Frame>,
}

impl Annotated {
    /// The number of the instruction in which a stack ends.
    pub fn spot(&self, stack: u32) -> Option<u64> {
        self.spots.get(self.frames.get(stack as usize)?).copied()
    }
}

/// A function: its DSO, and the virtual addresses of its code.
type Place = (u32, u64, u64);

/// Lists the `most` functions with the most weight in samples of `event`.
///
/// # Errors
///
/// A thread cannot be started.
pub fn annotate(stacks: &Stacks, event: u32, most: usize, search: Search<'_>) -> Result<Annotated> {
    let frames: Vec<Frame> = stacks.tree.frames().collect();
    let frames: Vec<Frame> = stacks.tree.nodes().map(|(_, frame)| frames[frame as usize]).collect();
    let mut sums: BTreeMap<u32, BTreeMap<Frame, u64>> = BTreeMap::new();
    for (row, weight) in &stacks.rows {
        let frame = frames.get(row.stack as usize).filter(|frame| row.event == event && frame.process == 0);
        if let Some((frame, dso)) = frame.and_then(|frame| Some((*frame, frame.dso?))) {
            let sum = sums.entry(dso).or_default().entry(frame).or_default();
            let weight = Count::Shown.of(search.facts.events.get(event as usize), weight);
            *sum = sum.saturating_add(weight);
        }
    }
    let (functions, spots) = with_deep_stack(|| {
        let chosen = heaviest(&sums, most, search);
        let sources = SourceFiles { search, read: HashMap::new() };
        list(chosen, sources, search)
    })?;
    Ok(Annotated { functions, spots, frames })
}

/// The functions with the most weight, with their frames.
fn heaviest(
    sums: &BTreeMap<u32, BTreeMap<Frame, u64>>,
    most: usize,
    search: Search<'_>,
) -> Vec<(Place, Vec<Frame>)> {
    let names = Names::new(Search { inlined: false, ..search });
    let mut all: BTreeMap<Place, (u64, Vec<Frame>)> = BTreeMap::new();
    for (&dso, frames) in sums {
        let files = dwarf_files();
        let Some((first, _)) = frames.first_key_value() else { continue };
        let place = names.place(*first, &files);
        for (&frame, &weight) in frames {
            if let Some((range, _)) = place.symbol(frame.at) {
                let of = all.entry((dso, range.start, range.end)).or_default();
                of.0 = of.0.saturating_add(weight);
                of.1.push(frame);
            }
        }
    }
    let mut all: Vec<_> = all.into_iter().map(|(place, (weight, frames))| (weight, place, frames)).collect();
    all.sort_by_key(|&(weight, place, _)| (std::cmp::Reverse(weight), place));
    all.truncate(most);
    all.into_iter().map(|(_, place, frames)| (place, frames)).collect()
}

/// Lists functions, and numbers their instructions.
fn list(
    chosen: Vec<(Place, Vec<Frame>)>,
    mut sources: SourceFiles<'_>,
    search: Search<'_>,
) -> (Vec<Code>, HashMap<Frame, u64, RandomState>) {
    let (names, images) = (Names::new(search), Images::new(search));
    let (mut codes, mut spots, mut numbered) = (Vec::new(), HashMap::default(), 0_u64);
    for ((dso, start, end), frames) in chosen {
        let files = dwarf_files();
        let Some(&first) = frames.first() else { continue };
        let place = names.place(first, &files);
        let name = place.name(first.at);
        let function = name.functions.first().map(|function| function.name.to_string());
        let mut code = Code {
            name: function.unwrap_or_default(),
            file: String::from_utf8_lossy(place.dso().unwrap_or_default()).into_owned(),
            instructions: Vec::new(),
            lines: Vec::new(),
            lack: None,
        };
        let address = place.address(first.at).unwrap_or(start);
        // Offsets in the file and addresses differ by the same number within a segment.
        let offset = |address_of: u64| first.at.checked_sub(address.checked_sub(address_of)?);
        let arch = place.symbol(first.at).and_then(|(_, arch)| arch);
        let bytes = offset(start).and_then(|from| bytes(&images.code(dso)?, from, end.saturating_sub(start)));
        match (arch, bytes) {
            (Some(Arch::X86_64), Some(bytes)) => {
                let line = |at: u64| place.line(offset(start)?.checked_add(at - start)?);
                let listed: Vec<_> = listing(&bytes, start).map(|(at, text)| (at, text, line(at))).collect();
                code.lines = sources.around(listed.iter().filter_map(|(.., line)| line.as_ref()));
                for (at, text, line) in &listed {
                    let line = line.as_ref().and_then(|(file, number)| {
                        let order = |of: &SourceLine| (&*of.file, of.number).cmp(&(&**file, *number));
                        code.lines.binary_search_by(order).ok()
                    });
                    code.instructions.push((format!("{at:x}"), text.clone(), line.map(|line| line as u32)));
                }
                for frame in frames {
                    let Some(at) = place.address(frame.at) else { continue };
                    // An address within an instruction can't be of a sample of this code.
                    if let Ok(number) = listed.binary_search_by_key(&at, |&(at, ..)| at) {
                        spots.insert(frame, numbered + number as u64);
                    }
                }
                numbered += listed.len() as u64;
            }
            (Some(Arch::X86_64), None) => code.lack = Some("its file was not found".to_owned()),
            _ => code.lack = Some("only x86-64 code can be listed".to_owned()),
        }
        codes.push(code);
    }
    (codes, spots)
}

/// So many bytes of a file from an offset on, as far as they are there.
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

/// The source files of this machine and of the roots.
struct SourceFiles<'s> {
    search: Search<'s>,
    /// The lines of those that were searched for.
    read: HashMap<String, Option<Vec<String>>>,
}

impl SourceFiles<'_> {
    /// These lines and those around them, by file and number.
    fn around<'l>(&mut self, lines: impl Iterator<Item = &'l (String, u32)>) -> Vec<SourceLine> {
        let mut wanted: BTreeSet<(&str, u32)> = BTreeSet::new();
        let mut exact: BTreeSet<(&str, u32)> = BTreeSet::new();
        for (file, number) in lines {
            exact.insert((file, *number));
            let from = number.saturating_sub(AROUND).max(1);
            wanted.extend((from..=number.saturating_add(AROUND)).map(|number| (&**file, number)));
        }
        let line = |(file, number): (&str, u32)| {
            let text = self.lines(file).and_then(|lines| lines.get(number as usize - 1)).cloned();
            // Without the file, only lines with code are worth a row.
            (text.is_some() || exact.contains(&(file, number))).then(|| SourceLine {
                file: file.to_owned(),
                number,
                text,
            })
        };
        wanted.iter().copied().filter_map(line).take(MOST_LINES).collect()
    }

    fn lines(&mut self, path: &str) -> Option<&Vec<String>> {
        let Search { ids, .. } = self.search;
        let read = || {
            let path = Path::new(path);
            let extension = path.extension()?.to_str()?;
            EXTENSIONS.contains(&extension).then_some(())?;
            let below = ids.roots().iter().filter_map(|root| build_id::resolve(root, path).ok());
            let own = path.is_absolute().then(|| path.to_owned()).filter(|_| !ids.no_files());
            below.chain(own).find_map(|path: PathBuf| source_lines(&path))
        };
        self.read.entry(path.to_owned()).or_insert_with(read).as_ref()
    }
}

/// The lines of a text file, each with at most [`LONGEST_LINE`] characters.
fn source_lines(path: &Path) -> Option<Vec<String>> {
    let (file, _): (File, _) = build_id::open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST_SOURCE).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(|line| line.chars().take(LONGEST_LINE).collect()).collect())
}
