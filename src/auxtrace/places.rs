//! Finds the file and offset of decoded code, also if it was read from the kernel's memory.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use build_id::Object;
use perfx_format::Bytes;
use symbols::ElfFile;

use crate::image::{CHANGED, Code};
use crate::kernel::KernelText;
use crate::mappings::Place;

/// The files and offsets of code.
#[derive(Debug)]
pub struct Places {
    /// For each [`Mapping::id`](perfx_trace::Mapping::id), the DSO (or [`CHANGED`], or
    /// [`MEMORY`](crate::image::MEMORY)), and the distance from an address to the offset.
    mappings: HashMap<u64, (u32, u64)>,
    /// Where the kernel and its modules are in the memory that was read; later entries win.
    kernel: Vec<(u32, Place)>,
}

impl Places {
    /// The number of the DSO, and the offset in its file; `None` if this code is in no wanted file.
    pub fn find(&self, mapping: u64, ip: u64) -> Option<(u32, u64)> {
        let &(dso, shift) = self.mappings.get(&mapping)?;
        if dso < CHANGED {
            return Some((dso, ip.wrapping_add(shift)));
        }
        let is_there = |(_, place): &&(u32, Place)| (place.start..place.end).contains(&ip);
        let (dso, place) = self.kernel.iter().rev().find(is_there)?;
        Some((*dso, ip.wrapping_add(place.shift)))
    }
}

impl Code {
    /// The files and offsets of the code decoded so far. Code read from the kernel's memory is looked up in
    /// the files of the kernel and its modules, unless [`Code::take_from`] excludes these.
    pub fn places(&self) -> Places {
        let mappings: HashMap<u64, (u32, u64)> =
            self.ids().iter().map(|(&(dso, place), &id)| (id, (dso, place.shift))).collect();
        let from_memory = mappings.values().any(|(dso, _)| *dso >= CHANGED);
        let mapped = self.mappings.kernel.iter().filter(|(dso, _)| from_memory && self.is_wanted(*dso));
        // The file of the kernel contains its segments, however often it is mapped.
        let is_kernel = |dso| {
            self.dso(dso).and_then(|(_, known)| known).is_some_and(|known| known.object == Object::Kernel)
        };
        let mut seen = HashSet::new();
        let is_new = |(dso, place): &&(u32, Place)| seen.insert((*dso, (!is_kernel(*dso)).then_some(*place)));
        let kernel = mapped.filter(is_new).flat_map(|(dso, place)| self.in_file(*dso, *place)).collect();
        Places { mappings, kernel }
    }

    /// Where mapped code of the kernel or a module is in its file.
    fn in_file(&self, dso: u32, place: Place) -> Vec<(u32, Place)> {
        let found = self.dso(dso).and_then(|(_, known)| {
            let known = known?;
            match &known.object {
                Object::Kernel => {
                    let reference = self.mappings.reference.as_ref()?;
                    KernelText::of_file(&self.sources, known.id, reference).map(|text| text.places())
                }
                object @ Object::Module(_) => {
                    let own = self.own.get().filter(|(_, dsos)| dsos.get(dso as usize) == Some(&true));
                    let found = || Some(self.sources.recorded(object, known.id)?.0);
                    let path = own.map(|(path, _)| path.clone()).or_else(found)?;
                    self.module(&path, place).map(|place| vec![place])
                }
                _ => None,
            }
        });
        found.unwrap_or_default().into_iter().map(|place| (dso, place)).collect()
    }

    /// Where the `.text` of a module is in this piece of the kernel's memory.
    fn module(&self, path: &Path, place: Place) -> Option<Place> {
        let (bytes, offset, size) = text_of(path)?;
        let code = bytes.get(usize::try_from(offset).ok()?..)?;
        let code = code.get(..usize::try_from(size).ok()?)?;
        let size = usize::try_from(place.end - place.start).ok()?;
        let memory = self.memory()?.kernel_text()?.bytes(place.start, size)?;
        let start = place.start.checked_add(position(memory, code)? as u64)?;
        Some(Place {
            start,
            end: start.checked_add(code.len() as u64)?.min(place.end),
            shift: offset.wrapping_sub(start),
        })
    }
}

/// The bytes of a module, and the offset and size of its `.text`.
fn text_of(path: &Path) -> Option<(Bytes, u64, u64)> {
    let elf = ElfFile::read(path).ok()?;
    let &(offset, size, _) = elf.code.first().filter(|_| elf.is_relocatable)?;
    Some((Bytes::map(&build_id::open(path).ok()?.0).ok()?, offset, size))
}

/// Maximum number of words of code that are compared, and of bytes before the code in memory.
const MOST_WORDS: usize = 256;
const MOST_BEFORE: usize = 1 << 20;
const WORD: usize = 4;

/// Finds code in memory: on AArch64, after stubs for far calls that no file has. Most words must be equal,
/// not all: the kernel changes calls and processor-specific code when it loads a module.
fn position(memory: &[u8], code: &[u8]) -> Option<usize> {
    let step = (code.len() / WORD / MOST_WORDS).max(1) * WORD;
    let words: Vec<(usize, [u8; WORD])> =
        (0..code.len()).step_by(step).filter_map(|at| Some((at, *code.get(at..)?.first_chunk()?))).collect();
    let equal = |start: usize| {
        let is_equal = |(at, word): &&(usize, [u8; WORD])| memory[start..].get(*at..*at + WORD) == Some(word);
        words.iter().filter(is_equal).count()
    };
    let starts = (0..memory.len().min(MOST_BEFORE)).step_by(WORD);
    let counts = starts.map(|start| (equal(start), Reverse(start)));
    let (count, Reverse(start)) = counts.max()?;
    (count * 2 > words.len()).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_module_is_found_behind_stubs_though_the_kernel_changed_some_of_it() {
        let code: Vec<u8> = (0..4000_u32).flat_map(|number| (number * 7919).to_le_bytes()).collect();
        let mut memory = [&[0x1f; 52][..], &code, &[0; 80]].concat();
        assert_eq!(position(&memory, &code), Some(52));
        for place in (52..memory.len() - 80).step_by(28) {
            memory[place] ^= 0x55;
        }
        assert_eq!(position(&memory, &code), Some(52));
        assert_eq!(position(&[0x1f; 20_000], &code), None);
        assert_eq!(position(&memory[..1000], &code), None);
        assert_eq!(position(&[], &[]), None);
    }
}
