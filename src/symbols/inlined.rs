//! Finds the inlined calls at an address, with their source lines, in the DWARF of a file.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_decl_file, DW_AT_decl_line, DW_AT_object_pointer,
    DW_AT_specification, DW_AT_type, DW_TAG_inlined_subroutine, DW_TAG_subprogram, DwarfPackage, Error,
    Reader as _, Result, UnitOffset, UnitRef,
};
use addr2line::{Context, FrameIter, LookupContinuation as _, LookupResult, SplitDwarfLoad};

use crate::Call;
use crate::dwarf::{Dwarf, DwarfFiles, Meter, Metered, check_abbreviations};
use crate::golines::GoLines;
use crate::gopclntab::GoAddresses;

/// The files with the DWARF of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DwarfPlaces {
    /// The object itself, or its debug file.
    pub file: PathBuf,
    /// The DWARF that it shares with other files (dwz(1)).
    pub common: Option<PathBuf>,
    /// Files that may be its package of split units (`.dwp`).
    pub packages: Vec<PathBuf>,
    /// Folders that may have single split units (`.dwo`), by their names.
    pub folders: Vec<PathBuf>,
    /// Roots, below which split units are where the compiler put them.
    pub roots: Vec<PathBuf>,
    /// The addresses in the table of a Go program without DWARF, which is read instead.
    pub go: Option<GoAddresses>,
}

impl DwarfPlaces {
    /// Only this file, with split units beside it or where the compiler put them here.
    pub fn of(file: PathBuf) -> DwarfPlaces {
        let name = [file.file_name().unwrap_or_default().as_bytes(), b".dwp"].concat();
        let packages = vec![file.with_file_name(OsStr::from_bytes(&name))];
        let folders = file.parent().map(Path::to_owned).into_iter().collect();
        DwarfPlaces { file, common: None, packages, folders, roots: vec![PathBuf::from("/")], go: None }
    }
}

/// The DWARF of a file, or the table of a Go program without.
pub struct Inlined<'a> {
    files: &'a DwarfFiles,
    meter: &'a Meter,
    go: Option<GoLines<'a>>,
    /// `None` if reading stopped before anything was known.
    context: Option<Context<Metered<'a>>>,
    packages: Vec<DwarfPackage<Metered<'a>>>,
    folders: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    split: RefCell<HashMap<PathBuf, Option<Arc<Dwarf<'a>>>>>,
}

/// The name of a lambda without a linkage name. Alone it stands for all of them.
const LAMBDA: &str = "operator()";

/// Maximum number of entries that refer to each other before a declaration; GCC uses six.
const MOST_ORIGINS: usize = 16;

impl<'a> Inlined<'a> {
    /// Opens the DWARF of a file, if it has any. A unit is read when one of its addresses is looked up. Split
    /// DWARF is found in packages (`.dwp`) or where the compiler put it (`.dwo`).
    pub fn open(files: &'a DwarfFiles, places: &DwarfPlaces) -> Option<Inlined<'a>> {
        let DwarfPlaces { file, common, packages, folders, roots, go } = places;
        let meter = files.meter();
        let go = go.and_then(|addresses| GoLines::open(files, file, addresses, meter));
        meter.begin();
        let context = || {
            let mut dwarf = files.open(file, meter)?;
            if let Some(common) = common {
                dwarf.set_sup(files.open(common, meter)?);
            }
            Context::from_dwarf(dwarf).ok()
        };
        let context = if go.is_none() { context() } else { None };
        (go.is_some() || context.is_some() || meter.stopped().is_some()).then_some(())?;
        let packages: BTreeSet<&PathBuf> = packages.iter().collect();
        let packages =
            packages.into_iter().filter_map(|package| files.open_package(package, meter)).collect();
        let (folders, roots) = (folders.clone(), roots.clone());
        Some(Inlined { files, meter, go, context, packages, folders, roots, split: RefCell::default() })
    }

    /// The functions at a virtual address of the file, innermost first. The last one is the function of the
    /// symbol table, by its name in DWARF; each other one was inlined into the next. Needs a stack of
    /// [`crate::DWARF_STACK`] bytes.
    pub fn at(&self, address: u64) -> Vec<Call> {
        self.meter.begin();
        if let Some(go) = &self.go {
            return go.at(address);
        }
        let mut calls = Vec::new();
        let Ok(mut frames) = self.frames(address) else { return calls };
        while let Ok(Some(frame)) = frames.next() {
            let place = frame.location;
            let mut symbol =
                frame.function.as_ref().and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            if symbol.as_deref() == Some(LAMBDA) {
                let place = frame.dw_die_offset.and_then(|function| self.declared(address, function));
                symbol = place.map(|place| format!("{{{place}}}::{LAMBDA}")).or(symbol);
            }
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

    /// The compilation directory of the code at an address; needs a stack of [`crate::DWARF_STACK`] bytes.
    pub fn folder(&self, address: u64) -> Option<PathBuf> {
        self.meter.begin();
        Some(OsStr::from_bytes(&self.unit(address)?.comp_dir.as_ref()?.to_slice().ok()?).into())
    }

    fn unit(&self, address: u64) -> Option<UnitRef<'_, Metered<'a>>> {
        let mut found = self.context.as_ref()?.find_dwarf_and_unit(address);
        loop {
            match found {
                LookupResult::Output(unit) => return unit,
                LookupResult::Load { load, continuation } => {
                    found = continuation.resume(self.split(&load).ok()?);
                }
            }
        }
    }

    /// The file and the line at which a function of the code at an address is declared.
    fn declared(&self, address: u64, mut function: UnitOffset) -> Option<String> {
        let unit = self.unit(address)?;
        for _ in 0..MOST_ORIGINS {
            let entry = unit.entry(function).ok()?;
            let line = entry.attr_value(DW_AT_decl_line).and_then(|line| line.udata_value());
            if let (Some(AttributeValue::FileIndex(file)), Some(line)) =
                (entry.attr_value(DW_AT_decl_file), line)
            {
                let header = unit.line_program.as_ref()?.header();
                let path = unit.attr_string(header.file(file)?.path_name()).ok()?;
                let path = path.to_string_lossy().ok()?;
                return Some(format!("{}:{line}", path.rsplit('/').next().unwrap_or_default()));
            }
            // GCC declares only the type of the lambda, to which its object pointer leads.
            let origins = [DW_AT_abstract_origin, DW_AT_specification, DW_AT_object_pointer, DW_AT_type];
            let is_function = [DW_TAG_subprogram, DW_TAG_inlined_subroutine].contains(&entry.tag());
            let origins = &origins[..if is_function { 3 } else { 4 }];
            match origins.iter().find_map(|&name| entry.attr_value(name))? {
                AttributeValue::UnitRef(origin) => function = origin,
                _ => return None,
            }
        }
        None
    }

    /// The reason why calls and lines are missing, if reading stopped.
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

    #[expect(clippy::arc_with_non_send_sync, reason = "addr2line takes it in an Arc")]
    fn split(&self, unit: &SplitDwarfLoad<Metered<'a>>) -> Result<Option<Arc<Dwarf<'a>>>> {
        for package in &self.packages {
            if let Ok(Some(dwarf)) = package.find_cu(unit.dwo_id, &unit.parent) {
                check_abbreviations(&dwarf)?;
                return Ok(Some(Arc::new(dwarf)));
            }
        }
        let Some(name) = &unit.path else { return Ok(None) };
        let mut path = PathBuf::new();
        for part in unit.comp_dir.iter().chain([name]) {
            path.push(OsStr::from_bytes(&part.to_slice()?));
        }
        let in_roots = self.roots.iter().filter_map(|root| build_id::resolve(root, &path).ok());
        let name = path.file_name().unwrap_or_default();
        let places = in_roots.chain(self.folders.iter().map(|folder| folder.join(name)));
        let mut split = self.split.borrow_mut();
        let mut units = places.filter_map(|place| {
            let dwarf = split.entry(place).or_insert_with_key(|place| {
                let mut dwarf = self.files.open_split(place, self.meter)?;
                dwarf.make_dwo(&unit.parent);
                Some(Arc::new(dwarf))
            });
            dwarf.clone()
        });
        Ok(units.find(|dwarf| {
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
    use crate::made::{BASE, Dwarf4, elf, many_attributes, nested, shared_lines, shared_ranges};
    use crate::{DWARF_STACK, Mapped};

    /// The reason for stopping, the number of calls at each address, and the reads.
    fn read(made: &Dwarf4, addresses: impl Iterator<Item = u64>) -> (Option<&'static str>, Vec<usize>, u64) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        fs::write(&file, elf(&made.sections())).unwrap();
        let addresses: Vec<u64> = addresses.collect();
        let work = || {
            let files = DwarfFiles::new(|mut file| {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).ok()?;
                Some(Box::new(bytes) as Mapped)
            });
            let inlined = Inlined::open(&files, &DwarfPlaces::of(file)).unwrap();
            let calls = addresses.iter().map(|at| inlined.at(BASE + at).len()).collect();
            (inlined.stopped(), calls, inlined.meter.reads())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(DWARF_STACK).spawn_scoped(scope, work);
            thread.unwrap().join().unwrap()
        })
    }

    const TOO_OFTEN: Option<&str> = Some("the same ranges, lines or names are used too often");

    /// Regression: 0.35 MB took 1.2 GB, and quadratic time.
    #[test]
    fn ranges_that_many_calls_share_take_work_in_proportion_to_the_file() {
        let (problem, calls, _) = read(&shared_ranges(100), [0, 1, 16 * 99 + 8].into_iter());
        assert_eq!((problem, calls), (None, vec![1, 2, 2]));
        let reads = [4000, 16_000].map(|count| {
            let (problem, _, reads) = read(&shared_ranges(count), 0..1);
            assert_eq!(problem, TOO_OFTEN, "{count}");
            reads
        });
        assert!(reads[1] < reads[0] * 4, "{reads:?}");
    }

    /// Regression: 0.64 MB took 15 s.
    #[test]
    fn lines_that_many_units_share_take_work_in_proportion_to_the_file() {
        let addresses = |count: u64| (0..count).map(|at| at * 16);
        let (problem, calls, _) = read(&shared_lines(100), addresses(100));
        assert_eq!((problem, calls), (None, vec![1; 100]));
        let reads = [4000, 16_000].map(|count| {
            let (problem, _, reads) = read(&shared_lines(count), addresses(count));
            assert_eq!(problem, TOO_OFTEN, "{count}");
            reads
        });
        assert!(reads[1] < reads[0] * 4, "{reads:?}");
    }

    /// Regression: a million levels crashed the program.
    #[test]
    fn calls_that_are_nested_deeper_than_compilers_do_stop_the_search() {
        let (problem, calls, _) = read(&nested(500), 0..1);
        assert_eq!((problem, calls), (None, vec![501]));
        let (problem, calls, _) = read(&nested(1_000_000), 0..2);
        assert_eq!((problem, calls), (Some("calls are nested too deep"), vec![0, 0]));
    }

    /// Regression: the time for each entry grew with the length of its abbreviation.
    #[test]
    fn entries_with_endless_attributes_are_not_read() {
        assert_eq!(read(&many_attributes(200), 0..1).0, None);
        let (problem, calls, _) = read(&many_attributes(100_000), 0..1);
        assert_eq!((problem, calls), (Some("its abbreviations have too many attributes"), vec![0]));
    }
}
