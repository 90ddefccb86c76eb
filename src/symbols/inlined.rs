//! Finds the calls that the compiler inlined at an address, with their source lines, in the DWARF of a file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use addr2line::gimli::{DwarfPackage, Error, Reader as _, Result};
use addr2line::{Context, FrameIter, LookupContinuation as _, LookupResult, SplitDwarfLoad};

use crate::dwarf::{Dwarf, DwarfFiles, Meter, Metered, check_abbreviations};

/// The files that have the DWARF of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DwarfPlaces {
    /// The object itself, or its debug file.
    pub file: PathBuf,
    /// The DWARF that it has in common with other files (dwz(1)).
    pub common: Option<PathBuf>,
}

/// The DWARF of a file.
pub struct Inlined<'a> {
    files: &'a DwarfFiles,
    meter: &'a Meter,
    /// `None` if reading was stopped before anything was known.
    context: Option<Context<Metered<'a>>>,
    package: Option<DwarfPackage<Metered<'a>>>,
    /// Files of single units, by path.
    split: RefCell<HashMap<PathBuf, Option<Arc<Dwarf<'a>>>>>,
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

impl fmt::Debug for Inlined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inlined")
    }
}

impl<'a> Inlined<'a> {
    /// Opens the DWARF of a file, if it has any. Units are read when an address of theirs is asked for. Split DWARF is
    /// found beside the file (`.dwp`) or where the compiler put it (`.dwo`).
    pub(crate) fn open(
        files: &'a DwarfFiles,
        DwarfPlaces { file, common }: &DwarfPlaces,
    ) -> Option<Inlined<'a>> {
        let meter = files.meter();
        meter.begin();
        let context = || {
            let mut dwarf = files.open(file, meter)?;
            if let Some(common) = common {
                dwarf.set_sup(files.open(common, meter)?);
            }
            Context::from_dwarf(dwarf).ok()
        };
        let context = context();
        (context.is_some() || meter.stopped().is_some()).then_some(())?;
        let package = files.open_package(file, meter);
        Some(Inlined { files, meter, context, package, split: RefCell::default() })
    }

    /// The functions at a virtual address of the file, innermost first. The last one is that of the symbol table,
    /// by its name in DWARF; the others were inlined into the next. Needs a stack of [`crate::DWARF_STACK`] bytes.
    pub fn at(&self, address: u64) -> Vec<Call> {
        self.meter.begin();
        let mut calls = Vec::new();
        let Ok(mut frames) = self.frames(address) else { return calls };
        while let Ok(Some(frame)) = frames.next() {
            let place = frame.location;
            let symbol =
                frame.function.as_ref().and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let file = place.as_ref().and_then(|place| place.file);
            if self.meter.count(1 + file.map_or(0, str::len) / 16).is_err() {
                break;
            }
            let file = file.map(str::to_owned);
            let line = place.and_then(|place| place.line).filter(|&line| line > 0);
            calls.push(Call { symbol: symbol.unwrap_or_default(), file, line });
        }
        calls
    }

    /// Why calls and lines are missing, if reading the DWARF was stopped.
    pub fn stopped(&self) -> Option<&'static str> {
        self.meter.stopped()
    }

    fn frames(&self, address: u64) -> Result<FrameIter<'_, Metered<'a>>> {
        let context = self.context.as_ref().ok_or(Error::Io)?;
        let mut found = context.find_frames(address);
        loop {
            match found {
                LookupResult::Output(frames) => return frames,
                LookupResult::Load { load, continuation } => found = continuation.resume(self.split(&load)?),
            }
        }
    }

    /// The DWARF of a unit that is in another file; `None` if that file is not found.
    #[expect(clippy::arc_with_non_send_sync, reason = "addr2line takes it in an Arc")]
    fn split(&self, unit: &SplitDwarfLoad<Metered<'a>>) -> Result<Option<Arc<Dwarf<'a>>>> {
        if let Some(package) = &self.package
            && let Some(dwarf) = package.find_cu(unit.dwo_id, &unit.parent)?
        {
            check_abbreviations(&dwarf)?;
            return Ok(Some(Arc::new(dwarf)));
        }
        let Some(name) = &unit.path else { return Ok(None) };
        let mut path = PathBuf::new();
        for part in unit.comp_dir.iter().chain([name]) {
            path.push(OsStr::from_bytes(&part.to_slice()?));
        }
        let mut split = self.split.borrow_mut();
        let dwarf = split.entry(path).or_insert_with_key(|path| {
            let mut dwarf = self.files.open_split(path, self.meter)?;
            dwarf.make_dwo(&unit.parent);
            Some(Arc::new(dwarf))
        });
        Ok(dwarf.clone().filter(|dwarf| {
            let id = || dwarf.unit(dwarf.units().next().ok()??).ok()?.dwo_id;
            id() == Some(unit.dwo_id)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::*;
    use crate::{DWARF_STACK, Mapped};

    /// Sections of DWARF 4 for 64 bits, little-endian.
    #[derive(Default)]
    struct Sections {
        abbrev: Vec<u8>,
        info: Vec<u8>,
        line: Vec<u8>,
        ranges: Vec<u8>,
    }

    /// Where the code begins. Nothing is at address 0.
    const BASE: u64 = 0x1000;

    const ADDRESS: u8 = 0x01;
    const DATA_8: u8 = 0x07;
    const FLAG_PRESENT: u8 = 0x19;
    const OFFSET: u8 = 0x17;
    const LOW: u8 = 0x11;
    const HIGH: u8 = 0x12;
    const LINES: u8 = 0x10;
    const RANGES: u8 = 0x55;
    const UNIT: u8 = 0x11;
    const FUNCTION: u8 = 0x2e;
    const INLINED: u8 = 0x1d;

    impl Sections {
        /// Adds the next abbreviation of the only table.
        fn abbreviation(&mut self, code: u8, tag: u8, has_children: bool, attributes: &[[u8; 2]]) {
            self.abbrev.extend([code, tag, u8::from(has_children)]);
            attributes.iter().for_each(|attribute| self.abbrev.extend(attribute));
            self.abbrev.extend([0, 0]);
        }

        /// Adds a unit with the code at these addresses.
        fn unit(&mut self, start: u64, size: u64, entries: &[u8]) {
            let body = [&[1][..], &start.to_le_bytes(), &size.to_le_bytes(), &[0; 4], entries].concat();
            self.info.extend((body.len() as u32 + 7).to_le_bytes());
            self.info.extend([4, 0, 0, 0, 0, 0, 8]);
            self.info.extend(body);
        }

        /// Adds a program with so many lines, one for every 16 bytes of code.
        fn lines(&mut self, count: u64) {
            // Instructions of 1 byte, lines from -5 on in steps of 14, 13 opcodes; no folders and one file, f.c.
            let header = [
                1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, b'f', b'.', b'c', 0, 0, 0, 0, 0,
            ];
            let rows = [13 + 16 * 14 + 5].repeat(count as usize);
            // Sets the address, and adds the first row.
            let program = [&[0, 9, 2][..], &BASE.to_le_bytes(), &[1], &rows, &[0, 1, 1]].concat();
            self.line.extend((header.len() as u32 + program.len() as u32 + 6).to_le_bytes());
            self.line.extend([&[4, 0][..], &(header.len() as u32).to_le_bytes(), &header, &program].concat());
        }

        /// Writes an ELF file.
        fn write(&self, path: &std::path::Path) {
            let abbrev = [&self.abbrev[..], &[0]].concat();
            let parts = [
                (".debug_abbrev", &abbrev),
                (".debug_info", &self.info),
                (".debug_line", &self.line),
                (".debug_ranges", &self.ranges),
            ];
            let names: String = parts.iter().map(|(name, _)| format!("\0{name}")).collect::<String>() + "\0";
            let parts = parts.map(|(name, bytes)| (names.find(name).unwrap() as u32, bytes.as_slice()));
            let (mut contents, mut table) = (vec![0; 64], vec![0; 64]);
            for (kind, (name, bytes)) in
                parts.into_iter().map(|part| (1_u32, part)).chain([(3, (0, names.as_bytes()))])
            {
                table.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
                for value in [0, 0, contents.len() as u64, bytes.len() as u64, 0, 1, 0] {
                    table.extend(value.to_le_bytes());
                }
                contents.extend(bytes);
            }
            contents[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            let half = |contents: &mut [u8], at: usize, value: u16| {
                contents[at..at + 2].copy_from_slice(&value.to_le_bytes())
            };
            let at = contents.len() as u64;
            contents[40..48].copy_from_slice(&at.to_le_bytes());
            // Type, machine, sizes of the headers, number of sections, and the section of their names.
            for (at, value) in [(16, 3), (18, 62), (52, 64), (54, 56), (58, 64), (60, 6), (62, 5)] {
                half(&mut contents, at, value);
            }
            contents.extend(table);
            fs::write(path, contents).unwrap();
        }
    }

    /// A file whose only function has `count` inlined calls, each with the same list of `count` ranges.
    fn shared_ranges(count: u64) -> Sections {
        let mut made = Sections::default();
        made.abbreviation(1, UNIT, true, &[[LOW, ADDRESS], [HIGH, DATA_8], [LINES, OFFSET]]);
        made.abbreviation(2, FUNCTION, true, &[[LOW, ADDRESS], [HIGH, DATA_8]]);
        made.abbreviation(3, INLINED, false, &[[RANGES, OFFSET]]);
        let function = [&[2][..], &BASE.to_le_bytes(), &(count * 16).to_le_bytes()].concat();
        made.unit(
            BASE,
            count * 16,
            &[&function[..], &[3, 0, 0, 0, 0].repeat(count as usize), &[0, 0]].concat(),
        );
        for at in 0..count {
            made.ranges.extend([at * 16 + 1, at * 16 + 9].map(u64::to_le_bytes).concat());
        }
        made.ranges.extend([0; 16]);
        made.lines(count);
        made
    }

    /// A file with `count` units that have the same `count` lines.
    fn shared_lines(count: u64) -> Sections {
        let mut made = Sections::default();
        made.abbreviation(1, UNIT, false, &[[LOW, ADDRESS], [HIGH, DATA_8], [LINES, OFFSET]]);
        (0..count).for_each(|at| made.unit(BASE + at * 16, 16, &[]));
        made.lines(count);
        made
    }

    /// A file whose only function has calls inlined into each other.
    fn nested(count: u64) -> Sections {
        let mut made = shared_ranges(0);
        made.info.clear();
        made.abbreviation(4, INLINED, true, &[[LOW, ADDRESS], [HIGH, DATA_8]]);
        let call = |code: u8| [&[code][..], &BASE.to_le_bytes(), &64_u64.to_le_bytes()].concat();
        made.unit(BASE, 64, &[call(2), call(4).repeat(count as usize), vec![0; count as usize + 2]].concat());
        made
    }

    /// A file whose only unit has an entry with `count` attributes that take no bytes.
    fn many_attributes(count: u64) -> Sections {
        let mut made = Sections::default();
        made.abbreviation(1, UNIT, true, &[[LOW, ADDRESS], [HIGH, DATA_8], [LINES, OFFSET]]);
        made.abbreviation(2, FUNCTION, true, &vec![[1, FLAG_PRESENT]; count as usize]);
        made.unit(BASE, 64, &[2, 0, 0]);
        made
    }

    /// What is said, the calls at each address, and the reads.
    fn read(
        made: &Sections,
        addresses: impl Iterator<Item = u64>,
    ) -> (Option<&'static str>, Vec<usize>, u64) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        made.write(&file);
        let addresses: Vec<u64> = addresses.collect();
        let work = || {
            let files = DwarfFiles::new(|mut file| {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).ok()?;
                Some(Box::new(bytes) as Mapped)
            });
            let inlined = Inlined::open(&files, &DwarfPlaces { file, common: None }).unwrap();
            let calls = addresses.iter().map(|at| inlined.at(BASE + at).len()).collect();
            (inlined.stopped(), calls, inlined.meter.reads())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(DWARF_STACK).spawn_scoped(scope, work);
            thread.unwrap().join().unwrap()
        })
    }

    const TOO_OFTEN: Option<&str> = Some("the same ranges, lines or names are used too often");

    /// 0.35 MB took 1.2 GB, and the time grew with the square of the size.
    #[test]
    fn ranges_that_many_calls_share_take_work_in_proportion_to_the_file() {
        let (said, calls, _) = read(&shared_ranges(100), [0, 1, 16 * 99 + 8].into_iter());
        assert_eq!((said, calls), (None, vec![1, 2, 2]));
        let reads = [4000, 16_000].map(|count| {
            let (said, _, reads) = read(&shared_ranges(count), 0..1);
            assert_eq!(said, TOO_OFTEN, "{count}");
            reads
        });
        assert!(reads[1] < reads[0] * 4, "{reads:?}");
    }

    /// 0.64 MB took 15 s.
    #[test]
    fn lines_that_many_units_share_take_work_in_proportion_to_the_file() {
        let addresses = |count: u64| (0..count).map(|at| at * 16);
        let (said, calls, _) = read(&shared_lines(100), addresses(100));
        assert_eq!((said, calls), (None, vec![1; 100]));
        let reads = [4000, 16_000].map(|count| {
            let (said, _, reads) = read(&shared_lines(count), addresses(count));
            assert_eq!(said, TOO_OFTEN, "{count}");
            reads
        });
        assert!(reads[1] < reads[0] * 4, "{reads:?}");
    }

    /// A million levels ended the program.
    #[test]
    fn calls_that_are_nested_deeper_than_compilers_do_stop_the_search() {
        let (said, calls, _) = read(&nested(500), 0..1);
        assert_eq!((said, calls), (None, vec![501]));
        let (said, calls, _) = read(&nested(1_000_000), 0..2);
        assert_eq!((said, calls), (Some("calls are nested too deep"), vec![0, 0]));
    }

    /// Each entry took as much time as its abbreviation is long.
    #[test]
    fn entries_with_endless_attributes_are_not_read() {
        assert_eq!(read(&many_attributes(200), 0..1).0, None);
        let (said, calls, _) = read(&many_attributes(100_000), 0..1);
        assert_eq!((said, calls), (Some("its abbreviations have too many attributes"), vec![0]));
    }
}
