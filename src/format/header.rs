//! Reads the header of a perf.data file and its sections leniently, and notes deviations with their offsets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use crate::journal::Journal;
use crate::section::{SLOT_SIZE, Section, feature_bitmap, feature_bits};
use crate::value::{bytes_of, bytes_that};
use crate::{
    ATTR_SIZE_MAX, ATTR_SIZE_MIN, Bytes, Endian, Error, Event, FaultCode, Feature, Result, until_nul,
};

/// Size of the header of a pipe: u64 magic, u64 size.
pub const PIPE_HEADER_SIZE: usize = 16;
/// Size of a file's header.
pub const FILE_HEADER_SIZE: usize = 104;
const FILE_HEADER_SIZE_OLD: usize = 72;

/// Size of an entry of the event types: u64 `attr.config`, char name\[64\].
pub const EVENT_TYPE_SIZE: usize = 72;
/// The most events that perf 7 accepts in a file (tools/perf/util/header.c).
pub(crate) const EVENTS_MAX: usize = 65536;

/// The start of perf record's messages, which end up in pipe data if standard error goes into the pipe.
pub(crate) const PERF_MESSAGE: &[u8] = b"[ perf record: ";

/// The feature sections of a recording, ordered by bit number.
///
/// ```
/// use perfx_format::features::{read_str, write_str};
/// use perfx_format::header::Features;
/// use perfx_format::{Endian, Feature};
///
/// let mut features = Features::new();
/// features.insert(Feature::HOSTNAME, write_str(b"here", Endian::Little).into());
/// let section = &features[&Feature::HOSTNAME];
/// assert_eq!(read_str(section, Endian::Little), Some(&b"here"[..]));
/// ```
pub type Features = BTreeMap<Feature, Bytes>;

/// The severity of a deviation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Readable; nothing is missing.
    Odd,
    /// Part of the recording is missing and cannot be carried over.
    Loss,
    /// The readable part is shown, but nothing may be written from it.
    Fatal,
}

/// A place where a recording does not follow the format.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// A short stable name.
    pub code: FaultCode,
    /// Absolute offset in the main file, bytes.
    pub offset: u64,
    /// One sentence, with the numbers.
    pub what: String,
    /// The severity.
    pub severity: Severity,
    /// Advice for the user.
    pub hint: Option<&'static str>,
}

impl Fault {
    /// The fault as an error.
    pub fn to_error(&self) -> Error {
        let error = Error::at(self.offset, self.what.clone()).code(self.code);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// The first 16 bytes of anything perf writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Magic {
    /// Byte order.
    pub endian: Endian,
    /// `PERFFILE`, the magic before perf 3.3.
    pub version1: bool,
    /// Size of the header: 16 for the pipe form.
    pub size: u64,
}

/// The program that compressed a whole file, and the one that decompresses it.
fn compressed_by(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let programs: [(&[u8], _, _); 4] = [
        (b"\x1f\x8b", "gzip", "gunzip"),
        (b"\xfd7zXZ\0", "xz", "unxz"),
        (b"\x28\xb5\x2f\xfd", "zstd", "unzstd; perfx unpack, if perfx pack made it"),
        (b"BZh", "bzip2", "bunzip2"),
    ];
    programs.iter().find(|(magic, ..)| head.starts_with(magic)).map(|&(_, name, how)| (name, how))
}

impl Magic {
    /// Reads magic and size from the front of `bytes`. Version 1 has one magic for both byte orders; there
    /// the order in which the size field is small is the right one.
    ///
    /// # Errors
    ///
    /// The bytes are not the start of a recording.
    pub fn read(bytes: &[u8]) -> Result<Magic> {
        let Some(head) = bytes.first_chunk::<PIPE_HEADER_SIZE>() else {
            let what = bytes_that(bytes.len(), " is", " are") + " too few for a perf.data header";
            return Err(Error::at(0, what).code(FaultCode::HeaderCut));
        };
        let (endian, version1) = match &head[..8] {
            b"PERFILE2" => (Endian::Little, false),
            b"2ELIFREP" => (Endian::Big, false),
            b"PERFFILE" => match Endian::Little.u64(head, 8) {
                Some(size) if size <= u64::from(u32::MAX) => (Endian::Little, true),
                _ => (Endian::Big, true),
            },
            _ if head.starts_with(PERF_MESSAGE) => {
                let what = "a message of perf record (\"[ perf record: …\") precedes the recording: its standard \
                    error went into the pipe";
                return Err(Error::at(0, what).code(FaultCode::Magic));
            }
            other => {
                let what = match compressed_by(head) {
                    Some((name, how)) => format!("a file compressed by {name}: decompress it first ({how})"),
                    None => format!("not a perf.data file (magic \"{}\")", other.escape_ascii()),
                };
                return Err(Error::at(0, what).code(FaultCode::Magic));
            }
        };
        let size = endian.u64(head, 8).unwrap_or(0);
        Ok(Magic { endian, version1, size })
    }

    /// Like [`Magic::read`], but skips leading text, such as perf's messages, and returns its length.
    pub(crate) fn read_after_text(bytes: &[u8]) -> Result<(usize, Magic)> {
        let read = Magic::read(bytes);
        if read.is_ok() {
            return read.map(|magic| (0, magic));
        }
        let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace() || *byte == b'\x1b';
        let text = bytes.iter().take(TEXT_MAX).take_while(|byte| is_text(byte)).count();
        let pipe = (1..=text).find_map(|at| {
            let magic = Magic::read(&bytes[at..]).ok()?;
            (magic.size == PIPE_HEADER_SIZE as u64).then_some((at, magic))
        });
        pipe.map_or(read.map(|magic| (0, magic)), Ok)
    }

    /// The 16 bytes of a pipe's header.
    pub fn pipe_header(endian: Endian) -> [u8; PIPE_HEADER_SIZE] {
        let mut header = [0; PIPE_HEADER_SIZE];
        header[..8].copy_from_slice(magic2(endian));
        header[8..].copy_from_slice(&endian.bytes_u64(PIPE_HEADER_SIZE as u64));
        header
    }
}

const NO_EVENTS: &str = "the header is damaged, and without its events no record can be read, not even by perfx \
    recover: copy the file again from its source, or record again";

pub(crate) const TEXT_MAX: usize = 4096;

fn magic2(endian: Endian) -> &'static [u8; 8] {
    match endian {
        Endian::Little => b"PERFILE2",
        Endian::Big => b"2ELIFREP",
    }
}

/// Everything in a perf.data file except its records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileHeader {
    /// Magic and header size.
    pub magic: Magic,
    /// The attrs section.
    pub attrs: Section,
    /// The data section, clamped to the file's length.
    pub data: Section,
    /// Event names as perf before 3.3 stored them, `EVENT_TYPE_SIZE` bytes each: u64 `attr.config`, char
    /// name\[64\]. Empty for newer files, where these bytes have no meaning.
    pub event_types: Bytes,
    /// Events in the order of the attrs.
    pub events: Vec<Event>,
    /// The ids section of each event.
    pub ids: Vec<Section>,
    /// The feature sections that are inside the file.
    pub features: Features,
    /// The section of each feature, in the order of the table's slots.
    pub sections: Vec<(Feature, Section)>,
    /// The feature table, as far as it exists.
    pub table: Section,
    /// The event types, if any.
    pub types: Section,
    /// Length of the whole file, bytes.
    pub len: u64,
    /// Further slots of the feature table, verbatim: perf leaves one for each feature it could not write.
    pub spare_slots: Vec<u8>,
    /// Bytes in no section, between the sections, that are not all zeros (perf inject leaves zeros there).
    pub holes: Vec<Section>,
    /// Bytes after the last section.
    pub trailing: Bytes,
    /// Deviations from the format.
    pub faults: Vec<Fault>,
}

impl FileHeader {
    /// The number of bytes in no section: after the last one, and other than zero after the feature table.
    pub fn unnamed(&self) -> usize {
        let spare = self.spare_slots.iter().filter(|&&byte| byte != 0);
        self.trailing.len() + spare.count()
    }
}

/// The end of the data section of a file; `None` while perf record still writes it (`data.size` is 0).
///
/// # Errors
///
/// The file cannot be read, or has no header.
pub fn data_end(file: &File) -> io::Result<Option<u64>> {
    let mut header = [0; FILE_HEADER_SIZE_OLD];
    read_at(file, &mut header, 0)?;
    let magic = Magic::read(&header).map_err(io::Error::other)?;
    let data = Section::read(&header, 40, magic.endian);
    Ok((data.size > 0).then(|| data.offset.saturating_add(data.size)))
}

/// Fills `bytes` from an offset of a file, whose position it moves.
pub(crate) fn read_at(mut file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}

impl FileHeader {
    /// Reads header, attrs, ids and feature sections of a mapped file.
    ///
    /// # Errors
    ///
    /// It is not the header of a file, or its events cannot be found. Other deviations are in `faults`.
    pub fn read(file: &Bytes) -> Result<FileHeader> {
        let magic = Magic::read(file)?;
        let endian = magic.endian;
        let size = magic.size as usize;
        if magic.size != FILE_HEADER_SIZE as u64 && magic.size != FILE_HEADER_SIZE_OLD as u64 {
            let what = format!("header size {} is not 16 (pipe), 72 or 104 (file)", magic.size);
            return Err(Error::at(8, what).code(FaultCode::HeaderSize));
        }
        if file.len() < size {
            let what = format!("the file ends inside its header ({} of {size} bytes)", file.len());
            return Err(Error::at(0, what).code(FaultCode::HeaderCut));
        }
        let event_types = Section::read(file, 56, endian).inside(file.len());
        let event_types = event_types.filter(|range| are_event_types(&file[range.clone()]));
        let mut header = FileHeader {
            magic,
            attrs: Section::read(file, 24, endian),
            data: Section::read(file, 40, endian),
            event_types: event_types.clone().map_or_else(|| Vec::new().into(), |range| file.slice(range)),
            events: Vec::new(),
            ids: Vec::new(),
            features: Features::new(),
            sections: Vec::new(),
            table: Section::default(),
            types: event_types.map_or_else(Section::default, |_| Section::read(file, 56, endian)),
            len: file.len() as u64,
            spare_slots: Vec::new(),
            holes: Vec::new(),
            trailing: Bytes::default(),
            faults: Vec::new(),
        };
        let attr_size = endian.u64(file, 16).unwrap_or(0);
        header.read_events(file, attr_size)?;
        // The feature table follows the data section, so look for it before that section is clamped.
        if size == FILE_HEADER_SIZE {
            header.read_features(file);
            header.find_spare_slots(file);
        }
        header.check_data(file);
        header.find_unnamed(file);
        Ok(header)
    }

    fn fault(&mut self, severity: Severity, code: FaultCode, offset: u64, what: String) {
        self.faults.push(Fault { code, offset, what, severity, hint: None });
    }

    fn read_events(&mut self, file: &[u8], entry_size: u64) -> Result<()> {
        let endian = self.magic.endian;
        if entry_size == 0 {
            return Err(Error::at(16, "attr_size is 0").code(FaultCode::AttrSize));
        }
        let Some(range) = self.attrs.inside(file.len()) else {
            let Section { offset, size } = self.attrs;
            let size = bytes_of(size);
            let what = format!("the attrs section ({size} at {offset:#x}) reaches past the end of the file");
            return Err(Error::at(24, what).code(FaultCode::AttrsOutside).hint(NO_EVENTS));
        };
        let section = &file[range];
        // perf counts entries by the header's size but steps by each attr's own; writers keep the two equal.
        // If they differ, the right interpretation is the one in which the ids of every entry are inside the
        // file and nothing is left over.
        let by_header = entries(section, endian, |_| entry_size);
        let by_attr = entries(section, endian, |attr| attr + 16);
        let fit = |way: &Option<Vec<(usize, &[u8], Section)>>| {
            let entries = way.as_deref().unwrap_or_default();
            let good = |ids: &Section| ids.size.is_multiple_of(8) && ids.inside(file.len()).is_some();
            let used: usize = entries.iter().map(|(_, attr, _)| attr.len() + 16).sum();
            (entries.iter().all(|(_, _, ids)| good(ids)), used == section.len(), way.is_some())
        };
        let better = fit(&by_attr) > fit(&by_header);
        if by_header != by_attr {
            let way = if better { "attr.size" } else { "header.attr_size" };
            let what = format!(
                "header.attr_size {entry_size} is not attr.size + 16 for all events; they are read by {way}"
            );
            self.fault(Severity::Odd, FaultCode::AttrSize, 16, what);
        }
        let entries = if better { by_attr } else { by_header };
        let Some(entries) = entries else {
            let what = format!(
                "the attrs section of {} is not a multiple of {entry_size}, the size of an event",
                bytes_of(self.attrs.size)
            );
            return Err(Error::at(16, what).code(FaultCode::AttrsSize));
        };
        if entries.len() > EVENTS_MAX {
            let what = format!("{} events are more than the {EVENTS_MAX} perf allows", entries.len());
            return Err(Error::at(24, what).code(FaultCode::AttrsMany));
        }
        let used: usize = entries.iter().map(|(_, attr, _)| attr.len() + 16).sum();
        if used < section.len() {
            let one = " at the end of the attrs section is not an event and is ignored";
            let many = " at the end of the attrs section are not an event and are ignored";
            let what = bytes_that(section.len() - used, one, many);
            self.fault(Severity::Odd, FaultCode::AttrsSize, 32, what);
        }
        // In a file from perf each event has its own ids. Shared ones would let a small file use much memory.
        let all_ids = entries.iter().fold(0u64, |all, (_, _, ids)| all.saturating_add(ids.size));
        if all_ids > file.len() as u64 {
            let what = format!("the ids of all events take {all_ids} bytes, more than the whole file");
            return Err(Error::at(self.attrs.offset, what).code(FaultCode::IdsOutside).hint(NO_EVENTS));
        }
        for (index, (at, attr, ids)) in entries.into_iter().enumerate() {
            let Some(range) = ids.inside(file.len()).filter(|_| ids.size.is_multiple_of(8)) else {
                let Section { offset, size } = ids;
                let wrong = if size.is_multiple_of(8) { "inside the file" } else { "a multiple of 8 bytes" };
                let what =
                    format!("the ids of event {index} ({} at {offset:#x}) are not {wrong}", bytes_of(size));
                return Err(Error::at(self.attrs.offset + (at + attr.len()) as u64, what)
                    .code(FaultCode::IdsOutside)
                    .hint(NO_EVENTS));
            };
            self.ids.push(ids);
            let ids = file[range].chunks_exact(8).map(|id| endian.u64(id, 0).unwrap_or(0)).collect();
            self.events.push(Event::new(attr.to_vec(), ids, endian));
        }
        Ok(())
    }

    fn read_features(&mut self, file: &Bytes) {
        let endian = self.magic.endian;
        let words = &file[FILE_HEADER_SIZE_OLD..FILE_HEADER_SIZE];
        let mut set = feature_bits(words, endian, 8);
        // The writer stored `unsigned long`s, whose halves a 32-bit writer of the other byte order swaps.
        // perf always writes HOSTNAME and uses it as proof; so does this code.
        if !set.contains(&Feature::HOSTNAME) {
            let halves = feature_bits(words, endian, 4);
            if halves.contains(&Feature::HOSTNAME) {
                set = halves;
            }
        }
        self.table = Section { offset: self.data.end(), size: set.len() as u64 * SLOT_SIZE };
        let event_types = Section::read(file, 56, endian);
        let journal = event_types.inside(file.len()).and_then(|range| Journal::read(&file[range], endian));
        if let Some(journal) = journal {
            let what = "a change in place was interrupted; nothing is lost, but perf misses some features";
            self.faults.push(Fault {
                code: FaultCode::InPlaceInterrupted,
                offset: 56,
                what: what.to_owned(),
                severity: Severity::Odd,
                hint: Some("perfx repair --in-place finishes it"),
            });
            for (feature, section) in journal.slots {
                self.add_section(file, feature, section, event_types.offset);
            }
            self.types = event_types;
            self.table.size = self.sections.len() as u64 * SLOT_SIZE;
            return;
        }
        let table = self.data.end();
        for (slot, feature) in set.into_iter().enumerate() {
            let at = table.saturating_add(slot as u64 * SLOT_SIZE);
            let entry = Section { offset: at, size: SLOT_SIZE }.inside(file.len()).map(|range| &file[range]);
            let Some(entry) = entry else {
                let what = format!(
                    "the feature table ends before the entry of {feature}; its section and all later ones are lost"
                );
                self.fault(Severity::Loss, FaultCode::FeatureTableCut, at, what);
                return;
            };
            self.add_section(file, feature, Section::read(entry, 0, endian), at);
        }
    }

    fn add_section(&mut self, file: &Bytes, feature: Feature, section: Section, at: u64) {
        match section.inside(file.len()) {
            Some(range) => {
                self.features.insert(feature, file.slice(range));
                self.sections.push((feature, section));
            }
            None => {
                let Section { offset, size } = section;
                let what = format!(
                    "the section of {feature} ({} at {offset:#x}) reaches past the end of the file",
                    bytes_of(size)
                );
                self.fault(Severity::Loss, FaultCode::FeatureOutside, at, what);
            }
        }
    }

    fn find_spare_slots(&mut self, file: &[u8]) {
        let used = self.table.end();
        let sections = self.sections.iter().map(|(_, section)| section).filter(|section| section.size > 0);
        let first = sections.map(|section| section.offset).min().unwrap_or(used);
        let gap = Section { offset: used, size: first.saturating_sub(used) };
        if let Some(range) = gap.inside(file.len())
            && gap.size.is_multiple_of(SLOT_SIZE)
            && gap.size < 256 * SLOT_SIZE
        {
            self.spare_slots = file[range].to_vec();
        }
    }

    fn check_data(&mut self, file: &[u8]) {
        let len = file.len() as u64;
        let torn_table =
            |fault: &Fault| matches!(fault.code, FaultCode::FeatureTableCut | FaultCode::FeatureOutside);
        let no_table = self.features.is_empty() || self.faults.iter().any(torn_table);
        let before_data = |section: &Section| section.offset < self.data.offset;
        let unfinished = before_data(&self.attrs) && before_data(&self.types);
        if self.data.size == 0 && no_table && len > self.data.offset && unfinished {
            // perf record writes data.size when it ends, so records in place of the feature table mean that
            // it was killed. (If attrs or event types are there, the writer finished.)
            self.faults.retain(|fault| !torn_table(fault));
            self.features.clear();
            self.sections.clear();
            let what = "data.size is 0: perf record was killed before it finished the file".to_owned();
            self.fault(Severity::Fatal, FaultCode::Unfinished, 48, what);
            self.data.size = len - self.data.offset;
        } else if self.data.end() > len {
            let what = format!(
                "the data section ({} at {:#x}) reaches past the end of the file ({len} bytes): {} missing",
                bytes_of(self.data.size),
                self.data.offset,
                bytes_that(self.data.end() - len, " is", " are")
            );
            self.fault(Severity::Fatal, FaultCode::DataCut, 48, what);
            self.faults.retain(|fault| fault.code != FaultCode::FeatureTableCut);
            self.data.offset = self.data.offset.min(len);
            self.data.size = len - self.data.offset;
        }
        let header = Section { offset: 0, size: self.magic.size };
        for (name, at, section) in [("attrs", 24, self.attrs), ("data", 40, self.data)] {
            if section.size > 0 && section.offset < header.end() {
                let what = format!("the {name} section at {:#x} overlaps the file header", section.offset);
                self.fault(Severity::Odd, FaultCode::SectionsOverlap, at, what);
            }
        }
        if self.attrs.size > 0 && self.attrs.offset < self.data.end() && self.data.offset < self.attrs.end() {
            self.fault(
                Severity::Odd,
                FaultCode::SectionsOverlap,
                24,
                "the attrs section overlaps the data section".to_owned(),
            );
        }
    }
}

/// Divides an attrs section: position, attr and ids of each entry. `size_of` computes an entry's size from
/// `attr.size` (0 means 64). A remainder too short for an entry is left over. `None` if an entry is too small
/// for an attr, or none fits.
#[allow(clippy::type_complexity, reason = "a name for it would say no more")]
fn entries(
    section: &[u8],
    endian: Endian,
    size_of: impl Fn(u64) -> u64,
) -> Option<Vec<(usize, &[u8], Section)>> {
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some(size) = endian.u32(section, at + 4) {
        let size = size_of(if size == 0 { ATTR_SIZE_MIN as u64 } else { u64::from(size) });
        if !(ATTR_SIZE_MIN as u64..=ATTR_SIZE_MAX as u64).contains(&size.wrapping_sub(16)) {
            return None;
        }
        let Some(entry) = usize::try_from(size).ok().and_then(|size| section.get(at..at.checked_add(size)?))
        else {
            break;
        };
        let (attr, ids) = entry.split_at(entry.len() - 16);
        entries.push((at, attr, Section::read(ids, 0, endian)));
        at += entry.len();
    }
    (!entries.is_empty() || section.is_empty()).then_some(entries)
}

/// True if the bytes are event types: printable names that end in NUL. Readers have long ignored this part of
/// the header, so it can point to anything.
pub(crate) fn are_event_types(bytes: &[u8]) -> bool {
    let named = |entry: &[u8]| {
        let name = until_nul(&entry[8..]);
        (1..EVENT_TYPE_SIZE - 8).contains(&name.len()) && name.iter().all(|byte| (b' '..=b'~').contains(byte))
    };
    !bytes.is_empty()
        && bytes.len().is_multiple_of(EVENT_TYPE_SIZE)
        && bytes.chunks_exact(EVENT_TYPE_SIZE).all(named)
}

/// The front of a file in perf's own order: header, ids of all events, attrs. The data follows. Sizes known
/// only at the end are 0 in `bytes`; [`FileFront::header`] returns the final header.
#[derive(Clone, Debug)]
pub struct FileFront {
    endian: Endian,
    attr_size: u64,
    attrs: Section,
    /// True if the header may state the length from before there were features. perf takes a big-endian
    /// header of 104 bytes without HOSTNAME to have BUILD_ID, and refuses the file without it.
    pub may_be_short: bool,
    /// All bytes before the data section.
    pub bytes: Vec<u8>,
}

impl FileFront {
    /// Lays out ids and attrs after a header. Attrs of different sizes, as in pipe data, grow to the largest:
    /// a file has one entry size. Equal sizes are kept: the perf that recorded it would refuse a larger attr.
    pub fn new(events: &[Event], endian: Endian) -> FileFront {
        let mut bytes = vec![0; FILE_HEADER_SIZE];
        let (attrs, attr_size) = FileFront::append(&mut bytes, events, endian);
        FileFront { endian, attr_size, attrs, may_be_short: false, bytes }
    }

    fn append(bytes: &mut Vec<u8>, events: &[Event], endian: Endian) -> (Section, u64) {
        let mut ids = Vec::new();
        for event in events {
            ids.push(Section { offset: bytes.len() as u64, size: event.ids.len() as u64 * 8 });
            event.ids.iter().for_each(|&id| bytes.extend(endian.bytes_u64(id)));
        }
        let largest = events.iter().map(|event| event.raw().len()).max().unwrap_or(ATTR_SIZE_MIN);
        let offset = bytes.len() as u64;
        for (event, ids) in events.iter().zip(ids) {
            bytes.extend_from_slice(&event.written(largest, endian));
            bytes.extend(endian.bytes_u64(ids.offset));
            bytes.extend(endian.bytes_u64(ids.size));
        }
        (Section { offset, size: bytes.len() as u64 - offset }, largest as u64 + 16)
    }

    /// The 104 bytes of the header.
    pub fn header(
        &self,
        data: Section,
        event_types: Section,
        features: impl IntoIterator<Item = Feature>,
    ) -> [u8; FILE_HEADER_SIZE] {
        let endian = self.endian;
        let mut header = [0; FILE_HEADER_SIZE];
        header[..8].copy_from_slice(magic2(endian));
        let bitmap = feature_bitmap(features, endian);
        let short = self.may_be_short && bitmap == [0; 32];
        let words = [
            if short { FILE_HEADER_SIZE_OLD } else { FILE_HEADER_SIZE } as u64,
            self.attr_size,
            self.attrs.offset,
            self.attrs.size,
            data.offset,
            data.size,
            event_types.offset,
            event_types.size,
        ];
        for (word, bytes) in words.into_iter().zip(header[8..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&endian.bytes_u64(word));
        }
        header[FILE_HEADER_SIZE_OLD..].copy_from_slice(&bitmap);
        header
    }
}
