//! Opens the DWARF of a file so that the work and the memory stay in proportion to its size.
//!
//! A list of ranges, a line program or a table of abbreviations can be referenced any number of times, and
//! calls can be nested as deep as the file is long. addr2line reads them again for each reference, so its
//! readers count what they read. Rejected: a cache by offset, which would be a copy of addr2line.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use addr2line::gimli::{
    self, AbbreviationsCacheStrategy, DW_FORM_implicit_const, DwarfPackage, EndianSlice, Error, Reader,
    ReaderOffsetId, Result, RunTimeEndian, Section as _, SectionId,
};
use object::{Object as _, ObjectSection as _};
use typed_arena::Arena;

use crate::compressed::{MOST_READ, debug_section};
use crate::gopclntab;

/// The stack size of a thread that reads DWARF, bytes. Only used pages take memory.
pub const DWARF_STACK: usize = 32 << 20;

/// The part of [`DWARF_STACK`] for nested calls: some ten thousand levels. Compilers nest a few dozen.
const MOST_NESTED: usize = DWARF_STACK / 2;

/// The allowed reads per byte of DWARF. Looking up all addresses of a large program takes one per byte.
const READS_FOR_A_BYTE: u64 = 8;

/// The reads that are always allowed, so that small files may reference the same data often.
const FIRST_READS: u64 = 1 << 18;

/// Maximum of attributes of an abbreviation, some 20 in practice; empty ones are not counted as reads.
const MOST_ATTRIBUTES: usize = 256;

/// The bytes of a mapped file.
pub type Mapped = Box<dyn Deref<Target = [u8]>>;

pub(crate) type Dwarf<'a> = gimli::Dwarf<Metered<'a>>;

/// The files whose DWARF is read. They stay mapped until this is dropped.
pub struct DwarfFiles {
    map: fn(&File) -> Option<Mapped>,
    mapped: Arena<Mapped>,
    expanded: Arena<Vec<u8>>,
    meters: Arena<Meter>,
}

impl DwarfFiles {
    /// No files yet; `map` maps an open one.
    pub fn new(map: fn(&File) -> Option<Mapped>) -> DwarfFiles {
        DwarfFiles { map, mapped: Arena::new(), expanded: Arena::new(), meters: Arena::new() }
    }

    pub(crate) fn meter(&self) -> &Meter {
        self.meters.alloc(Meter::default())
    }

    /// The DWARF of a program, of its debug file, or of the file that it shares with others.
    pub(crate) fn open<'a>(&'a self, path: &Path, meter: &'a Meter) -> Option<Dwarf<'a>> {
        let file = self.file(path)?;
        let section = |id: SectionId| Ok::<_, Error>(self.section(&file, Some(id.name()), meter));
        let mut dwarf = Dwarf::load(|id| if is_used(id) { section(id) } else { Ok(meter.nothing()) }).ok()?;
        check_abbreviations(&dwarf).ok()?;
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        Some(dwarf)
    }

    /// The units of a program that were moved to the file of this name (`.dwo`).
    pub(crate) fn open_split<'a>(&'a self, path: &Path, meter: &'a Meter) -> Option<Dwarf<'a>> {
        let file = self.file(path)?;
        let section = |id: SectionId| Ok::<_, Error>(self.section(&file, id.dwo_name(), meter));
        let dwarf = Dwarf::load(|id| if is_used(id) { section(id) } else { Ok(meter.nothing()) }).ok()?;
        check_abbreviations(&dwarf).ok()?;
        Some(dwarf)
    }

    /// The units of a program that were moved to one file (`.dwp`).
    pub(crate) fn open_package<'a>(
        &'a self,
        path: &Path,
        meter: &'a Meter,
    ) -> Option<DwarfPackage<Metered<'a>>> {
        let file = self.file(path)?;
        let section = |id: SectionId| Ok::<_, Error>(self.section(&file, id.dwo_name(), meter));
        DwarfPackage::load(section, meter.nothing()).ok()
    }

    pub(crate) fn go_table<'a>(
        &'a self,
        path: &Path,
        meter: &'a Meter,
    ) -> Option<(object::File<'a>, &'a [u8])> {
        let file = self.file(path)?;
        let section = gopclntab::TABLES.iter().find_map(|name| file.section_by_name_bytes(name))?;
        let table = section.data().ok()?;
        meter.allow(table.len());
        Some((file, table))
    }

    fn file<'a>(&'a self, path: &Path) -> Option<object::File<'a>> {
        let (file, _) = build_id::open(path).ok()?;
        let bytes: &'a Mapped = self.mapped.alloc((self.map)(&file)?);
        object::File::parse(&***bytes).ok()
    }

    /// The contents of a section; empty if it is absent, or if it is compressed and expands too far.
    fn section<'a>(&'a self, file: &object::File<'a>, name: Option<&str>, meter: &'a Meter) -> Metered<'a> {
        let bytes = name.and_then(|name| debug_section(file, name, MOST_READ)).map(|bytes| match bytes {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => &**self.expanded.alloc(bytes),
        });
        let bytes = bytes.unwrap_or_default();
        meter.allow(bytes.len());
        let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Metered { bytes: EndianSlice::new(bytes, endian), meter }
    }
}

fn is_used(id: SectionId) -> bool {
    !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
            | SectionId::DebugTypes
    )
}

/// Fails if an abbreviation has more attributes than compilers write.
pub(crate) fn check_abbreviations(dwarf: &Dwarf<'_>) -> Result<()> {
    let mut checked = HashSet::new();
    let mut units = dwarf.units();
    while let Some(unit) = units.next()? {
        if !checked.insert(unit.debug_abbrev_offset()) {
            continue;
        }
        let mut table = *dwarf.debug_abbrev.reader();
        table.skip(unit.debug_abbrev_offset().0)?;
        // DWARF 5, 7.5.3: a code, a tag, a flag for children, and pairs of a name and a form.
        while table.read_uleb128()? != 0 {
            table.read_uleb128()?;
            table.read_u8()?;
            let mut count = 0;
            loop {
                let (name, form) = (table.read_uleb128()?, table.read_uleb128()?);
                if (name, form) == (0, 0) {
                    break;
                }
                if form == u64::from(DW_FORM_implicit_const.0) {
                    table.read_sleb128()?;
                }
                count += 1;
                if count > MOST_ATTRIBUTES {
                    return table.meter.stop("its abbreviations have too many attributes");
                }
            }
        }
    }
    Ok(())
}

/// Counts the reads of a program's DWARF, and stops them at a limit.
#[derive(Debug)]
pub(crate) struct Meter {
    reads: Cell<u64>,
    most: Cell<u64>,
    /// The lowest address that the stack may reach.
    lowest: Cell<usize>,
    stopped: Cell<Option<&'static str>>,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            reads: Cell::new(0),
            most: Cell::new(FIRST_READS),
            lowest: Cell::new(0),
            stopped: Cell::new(None),
        }
    }
}

impl Meter {
    /// Begins a lookup: from here on the stack may grow by [`MOST_NESTED`].
    pub(crate) fn begin(&self) {
        let here = 0_u8;
        self.lowest.set((&raw const here as usize).saturating_sub(MOST_NESTED));
    }

    fn allow(&self, bytes: usize) {
        self.most.set(self.most.get().saturating_add(bytes as u64 * READS_FOR_A_BYTE));
    }

    pub(crate) fn stopped(&self) -> Option<&'static str> {
        self.stopped.get()
    }

    #[cfg(test)]
    pub(crate) fn reads(&self) -> u64 {
        self.reads.get()
    }

    #[inline]
    pub(crate) fn count(&self, reads: usize) -> Result<()> {
        let here = 0_u8;
        let reads = self.reads.get().saturating_add(reads as u64);
        if reads > self.most.get() {
            return self.stop("the same ranges, lines or names are used too often");
        }
        if (&raw const here as usize) < self.lowest.get() {
            return self.stop("calls are nested too deep");
        }
        self.reads.set(reads);
        Ok(())
    }

    #[cold]
    fn stop(&self, why: &'static str) -> Result<()> {
        self.most.set(0);
        self.stopped.set(self.stopped.get().or(Some(why)));
        Err(Error::Io)
    }

    fn nothing(&self) -> Metered<'_> {
        Metered { bytes: EndianSlice::new(&[], RunTimeEndian::default()), meter: self }
    }
}

/// The bytes of a section, read up to the limit of a meter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metered<'a> {
    bytes: EndianSlice<'a, RunTimeEndian>,
    meter: &'a Meter,
}

impl<'a> Reader for Metered<'a> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> RunTimeEndian {
        self.bytes.endian()
    }

    #[inline]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn empty(&mut self) {
        self.bytes.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        self.bytes.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Metered<'a>) -> usize {
        self.bytes.offset_from(base.bytes)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.bytes.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.bytes.lookup_offset_id(id)
    }

    /// A search is faster than reading byte by byte.
    #[inline]
    fn find(&self, byte: u8) -> Result<usize> {
        let found = Reader::find(&self.bytes, byte);
        self.meter.count(1 + found.as_ref().copied().unwrap_or(self.bytes.len()) / 64)?;
        found
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        self.meter.count(1)?;
        self.bytes.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Metered<'a>> {
        self.meter.count(1)?;
        Ok(Metered { bytes: self.bytes.split(len)?, meter: self.meter })
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.bytes.to_slice()
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        self.meter.count(1 + self.bytes.len() / 16)?;
        Reader::to_string(&self.bytes)
    }

    /// Text is copied, so it counts more than a search.
    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        self.meter.count(1 + self.bytes.len() / 16)?;
        Reader::to_string_lossy(&self.bytes)
    }

    #[inline]
    fn read_slice(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.meter.count(1)?;
        self.bytes.read_slice(buffer)
    }

    #[inline]
    fn read_u8(&mut self) -> Result<u8> {
        self.meter.count(1)?;
        self.bytes.read_u8()
    }
}
