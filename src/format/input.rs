//! Opens every form of recording (file, pipe data, directory) and cuts its data into batches of whole records, holding one batch at a time.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::decode::{decode, oddities};
use crate::expand::{Chain, begins_frame};
use crate::features::{BuildIdEntry, Compressed, read_event_desc};
use crate::header::{
    EVENTS_MAX, FILE_HEADER_SIZE, Fault, Features, FileHeader, Magic, PERF_MESSAGE, PIPE_HEADER_SIZE,
    Section, Weight,
};
use crate::pipe::EVENT_UPDATE_NAME;
use crate::record::header_records::{event_type, tracing_data};
use crate::{
    ATTR_SIZE_MAX, ATTR_SIZE_MIN, BadFrame, Bytes, Cursor, Endian, Error, Event, Feature, Frame, HEADER_SIZE,
    Kinds, Layouts, Oddity, Origin, Origins, RECORD_SIZE_MAX, Record, RecordType, Result, Walker, until_nul,
};

/// About how many bytes one batch holds: large enough that handing it over costs nothing, small enough that a few fit in the cache.
pub const BATCH_SIZE: usize = 4 << 20;

/// Makes a temporary file without a name, for what can't stay in memory. Given by the caller, for where such files go is policy.
pub type Spool = Arc<dyn Fn() -> io::Result<File> + Send + Sync>;

/// The form a recording was stored in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A file with a header of 104 (or 72) bytes.
    File,
    /// A 16-byte header and records, as `perf record -o -` writes it.
    Pipe,
    /// A directory: `data`, and with version 1 `data.0`, `data.1`, …
    Directory {
        /// Of feature DIR_FORMAT; 0 when that is absent.
        version: u64,
    },
}

/// What is known of a recording before its records are read.
pub struct Recording {
    /// What the user called it.
    pub name: Arc<str>,
    /// How it is stored.
    pub form: Form,
    /// Byte order of everything in it.
    pub endian: Endian,
    /// The events in order of their attrs.
    pub events: Vec<Event>,
    /// The feature sections (of pipe data: those that came before the first ordinary record).
    pub features: Features,
    /// What is not as it should be.
    pub faults: Vec<Fault>,
    /// Bytes of damaged header records of pipe data, which are not read.
    pub left_out: u64,
    /// The header of the main file; `None` for pipe data.
    pub file: Option<FileHeader>,
    /// Pipe data: the leading records that `events` and `features` were read from.
    pub head: Vec<Batch>,
    /// The names perf before 3.3 gave its events, [`EVENT_TYPE_SIZE`](crate::header::EVENT_TYPE_SIZE) bytes each: of a file's header, or of the HEADER_EVENT_TYPE records among
    /// the leading ones of pipe data.
    pub event_types: Vec<u8>,
    /// A directory's entries that hold no records (`kcore_dir` and the like).
    pub extras: Vec<PathBuf>,
    /// The files before it hold the beginning of its zstd streams.
    pub chain: Option<Chain>,
    streams: Vec<Stream>,
    /// Reading goes on behind what is broken.
    forgiving: bool,
    progress: Arc<Progress>,
    /// Where the records were cut when they were first read, so that nobody has to walk them for that again.
    cuts: Arc<OnceLock<Vec<Cut>>>,
}

/// How far the reading of a recording has come, for whoever shows it while it goes on.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    readings: AtomicU64,
}

impl Progress {
    /// Bytes of records read so far, as stored, all readings together.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// How many times the recording will be read; 1 unless somebody has said otherwise.
    pub fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed).max(1)
    }

    /// It will be read so many times at least.
    pub fn expect(&self, readings: u64) {
        self.readings.fetch_max(readings, Ordering::Relaxed);
    }
}

/// A batch of a mapped stream, without its bytes.
#[derive(Clone, Debug)]
pub struct Cut {
    stream: usize,
    start: usize,
    len: usize,
    kinds: Kinds,
    records: u64,
    rare: Option<Rare>,
    torn: Option<Torn>,
}

/// Positions in a batch of all records that are neither samples nor ends of a round, so that who wants only such is spared the walk over what
/// makes up nearly all of a recording. Kept with the cuts, so there is a limit to them.
type Rare = Arc<[u32]>;

/// The most of them that are kept of a batch: 4 kB for 4 MiB.
const RARE_MAX: usize = 1 << 10;

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recording({}, {:?}, {} events)", self.name, self.form, self.events.len())
    }
}

/// One run of records: the data section, a pipe, or a directory's `data.N`.
struct Stream {
    name: Arc<str>,
    index: u32,
    source: Source,
}

enum Source {
    /// `bytes` lie in `file` from `offset` on.
    Mapped { bytes: Bytes, file: Arc<File>, offset: u64 },
    /// What has been read but not yet cut off, and where it lies; then the rest of the reader.
    Reader { reader: Box<dyn Read + Send>, pending: Vec<u8>, offset: u64, spool: Spool },
}

/// A run of whole records.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The records and their payloads.
    pub bytes: Bytes,
    /// Byte order of its records.
    pub endian: Endian,
    /// Where they came from.
    pub origins: Origins,
    /// The kinds that occur.
    pub kinds: Kinds,
    /// How many there are.
    pub records: u64,
    /// Where those of rare kinds stand, unless there are many or nobody knows.
    pub(crate) rare: Option<Rare>,
    /// The file and offset at which the same bytes lie, if they are mapped.
    pub stored: Option<(Arc<File>, u64)>,
    /// The file they came from.
    pub name: Arc<str>,
    /// How to find a record's event and time.
    pub layouts: Arc<Layouts>,
    /// What follows the last whole record and is none.
    pub torn: Option<Torn>,
    /// What could not be decompressed, known at its end.
    pub lost: Option<Lost>,
    /// The compressed records that were opened since the batch before; their records are in this one or the next.
    pub opened: Vec<Opened>,
}

/// A COMPRESSED or COMPRESSED2 record that was replaced by what it holds.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Where it lies.
    pub origin: Origin,
    /// Which of the two it is.
    pub kind: RecordType,
    /// `header.size`, bytes.
    pub size: usize,
    /// Bytes it holds.
    pub expanded: u64,
    /// A zstd frame ends inside it, not with it, and another one follows there.
    pub frame_inside: bool,
    /// What is odd about the record itself.
    pub odd: Vec<Oddity>,
}

impl Opened {
    pub(crate) fn new(record: &Record<'_>, layouts: &Layouts, expanded: u64, frame_inside: bool) -> Opened {
        Opened {
            origin: record.origin(),
            kind: record.kind(),
            size: record.bytes().len(),
            expanded,
            frame_inside,
            odd: decode(record, layouts).odd,
        }
    }
}

/// What is gathered while the leading records of pipe data are read.
#[derive(Default)]
struct Head {
    /// Entries of feature BUILD_ID.
    build_ids: Vec<u8>,
    /// The names that EVENT_DESC gives to the first id of each event; read when the first EVENT_UPDATE comes.
    names: Option<HashSet<(u64, Vec<u8>)>>,
}

/// Bytes that are no whole record: the front of one whose end is missing, or what lies between the last record that can be read and the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn {
    /// Where it begins.
    pub origin: Origin,
    /// The kind it claims, if that much of it is there.
    pub kind: Option<RecordType>,
    /// Bytes that are there.
    pub bytes: u64,
    /// Bytes it should have, payload included; 0 where it does not get as far as saying that.
    pub needs: u64,
    /// Records go on behind it: it lies in the middle of a recording that is read forgivingly.
    pub resumes: bool,
    /// What it is instead, where that is known.
    pub stray: Option<Stray>,
}

/// What stands where a record should, and reading ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stray {
    /// The header of another recording: pipe data was concatenated.
    Recording,
    /// A message of perf record: standard error was mixed into the pipe.
    Message,
}

impl Stray {
    fn at(bytes: &[u8]) -> Option<Stray> {
        if bytes.starts_with(PERF_MESSAGE) {
            return Some(Stray::Message);
        }
        let size = Magic::read(bytes).ok()?.size;
        [PIPE_HEADER_SIZE, FILE_HEADER_SIZE]
            .map(|size| size as u64)
            .contains(&size)
            .then_some(Stray::Recording)
    }
}

/// COMPRESSED records that could not be decompressed.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Where it began and why.
    pub error: Arc<Error>,
    /// How many COMPRESSED records are lost. What the first of them held before the fault is not.
    pub records: u64,
    /// How long they are, bytes as stored.
    pub bytes: u64,
}

impl Lost {
    /// Why, for whoever does not bear it.
    pub fn to_error(&self) -> Error {
        let error = Error::new(self.error.to_string());
        match self.error.fault_code() {
            Some(code) => error.code(code),
            None => error,
        }
    }
}

impl Torn {
    /// A piece of a zstd stream, or a record inside one.
    pub fn is_of_zstd(&self) -> bool {
        matches!(self.origin, Origin::Chunk { .. }) || self.kind.is_some_and(RecordType::is_compressed)
    }

    /// The same as an error.
    pub fn to_error(&self) -> Error {
        let Torn { origin, kind, bytes, needs, resumes, stray } = *self;
        if let Some(stray) = stray {
            let (code, what) = match (stray, origin.stored_at()) {
                (Stray::Recording, Some((_, offset))) => {
                    let what = format!(
                        "a second recording begins here, and its {bytes} bytes are left out (tail -c +{} cuts it off)",
                        offset + 1
                    );
                    ("second-recording", what)
                }
                (Stray::Recording, None) => ("second-recording", "a second recording begins here".to_owned()),
                (Stray::Message, _) => {
                    let what = format!(
                        "messages of perf record (\"[ perf record: …\", {bytes} bytes) follow the records: its standard error went into the pipe"
                    );
                    ("perf-message", what)
                }
            };
            return Error::new(what).origin(origin).code(code);
        }
        let what = match needs {
            _ if resumes => format!("{bytes} bytes are not a record; records go on behind them"),
            0 if bytes < HEADER_SIZE as u64 => format!("only {bytes} bytes are left, too few for a record"),
            0 => format!("{bytes} bytes are not a record, and none follows"),
            needs => format!("the record takes {needs} bytes, but only {bytes} are left"),
        };
        let error = Error::new(what).origin(origin).code("torn");
        match kind {
            Some(kind) => error.record(kind),
            None => error,
        }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.error)?;
        match self.records {
            0 => Ok(()),
            1 => write!(f, "; the rest of this record of {} bytes is lost", self.bytes),
            n => write!(
                f,
                "; the rest of this record and {} behind it, {} bytes in all, are lost",
                n - 1,
                self.bytes
            ),
        }
    }
}

impl Batch {
    /// Walks its records.
    pub fn walk(&self) -> Walker<'_> {
        Walker::new(&self.bytes, &self.origins, self.endian).with_rare(self.rare.as_deref())
    }

    /// Takes in the whole records of `bytes`.
    fn hold(&mut self, bytes: Bytes, framed: &Framed) {
        (self.bytes, self.kinds, self.records) = (bytes, framed.kinds, framed.records);
        self.rare = framed.rare.as_deref().map(Arc::from);
    }

    /// The records in `range`, which begins and ends at record boundaries of one origin.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Result<Batch> {
        let mut origins = Origins::default();
        origins.push(0, self.origins.at(range.start));
        let mut part = Batch {
            bytes: self.bytes.slice(range.clone()),
            origins,
            kinds: Kinds::NONE,
            records: 0,
            rare: None,
            stored: self.stored.as_ref().map(|(file, offset)| (file.clone(), offset + range.start as u64)),
            torn: None,
            opened: Vec::new(),
            ..self.clone()
        };
        let (mut kinds, mut records) = (Kinds::NONE, 0);
        let mut walker = part.walk();
        while let Some(record) = walker.next_record()? {
            kinds.insert(record.kind());
            records += 1;
        }
        (part.kinds, part.records) = (kinds, records);
        Ok(part)
    }
}

impl Recording {
    /// Opens a path: a perf.data file, a regular file or FIFO that holds pipe data, or a directory.
    pub fn open(path: &Path, spool: Spool) -> Result<Recording> {
        let name: Arc<str> = path.to_string_lossy().into();
        let fail = |e| Error::io("can't be opened", e).file(&name);
        let metadata = std::fs::metadata(path).map_err(fail)?;
        if metadata.is_dir() {
            return Recording::open_directory(path, name.clone()).map_err(|e| e.file(&name));
        }
        let file = File::open(path).map_err(fail)?;
        Recording::from_file(file, name.clone(), spool).map_err(|e| e.file(&name))
    }

    /// Opens what is already open: standard input, most of all. A regular file is mapped, anything else is read as it comes.
    pub fn from_file(file: File, name: Arc<str>, spool: Spool) -> Result<Recording> {
        let regular = file.metadata().map_err(|e| Error::io("can't be examined", e).file(&name))?.is_file();
        if regular {
            Recording::from_mapped(file, name)
        } else {
            Recording::from_reader(Box::new(file), name, spool)
        }
    }

    /// Reads pipe data as it comes. A recording in file form can't be read without going back and forth, so that is spooled first.
    pub fn from_reader(mut reader: Box<dyn Read + Send>, name: Arc<str>, spool: Spool) -> Result<Recording> {
        let fail = |e| Error::io("can't be read", e).file(&name);
        let mut head = Vec::new();
        reader.by_ref().take(PIPE_HEADER_SIZE as u64).read_to_end(&mut head).map_err(fail)?;
        let magic = Magic::read(&head).map_err(|e| e.file(&name))?;
        if magic.size == PIPE_HEADER_SIZE as u64 {
            let source =
                Source::Reader { reader, pending: Vec::new(), offset: PIPE_HEADER_SIZE as u64, spool };
            return Recording::from_pipe(source, magic.endian, name.clone()).map_err(|e| e.file(&name));
        }
        let fail = |e| Error::io("can't be spooled to a temporary file", e).file(&name);
        let mut file = spool().map_err(fail)?;
        file.write_all(&head).map_err(fail)?;
        io::copy(&mut reader, &mut file).map_err(fail)?;
        Recording::from_mapped(file, name)
    }

    /// The same recording, read as far as it goes: what forbids writing is a loss, and batches go on behind bytes that are no record, which
    /// [`Batch::torn`] tells of. What is not mapped is read to its first fault.
    pub fn forgiving(mut self) -> Recording {
        for fault in &mut self.faults {
            if fault.weight == Weight::Fatal {
                fault.weight = Weight::Loss;
            }
        }
        self.forgiving = true;
        self.cuts = Arc::default();
        self
    }

    /// The same recording for another reading. `None`: its records can be read only once.
    pub fn again(&self) -> Option<Recording> {
        let again = |stream: &Stream| match &stream.source {
            Source::Mapped { bytes, file, offset } => {
                let source = Source::Mapped { bytes: bytes.clone(), file: file.clone(), offset: *offset };
                Some(Stream { name: stream.name.clone(), index: stream.index, source })
            }
            Source::Reader { .. } => None,
        };
        Some(Recording {
            name: self.name.clone(),
            form: self.form,
            endian: self.endian,
            events: self.events.clone(),
            features: self.features.clone(),
            faults: self.faults.clone(),
            left_out: self.left_out,
            file: self.file.clone(),
            head: self.head.clone(),
            event_types: self.event_types.clone(),
            extras: self.extras.clone(),
            chain: self.chain.clone(),
            streams: self.streams.iter().map(again).collect::<Option<_>>()?,
            forgiving: self.forgiving,
            progress: self.progress.clone(),
            cuts: self.cuts.clone(),
        })
    }

    /// The whole recording again from a temporary file, so that it can be read more than once. What is mapped already stays as it is.
    pub fn spooled(mut self, spool: &Spool) -> Result<Recording> {
        let Some(Stream { source: Source::Reader { .. }, .. }) = self.streams.first() else {
            return Ok(self);
        };
        let name = self.name.clone();
        let fail = |e| Error::io("can't be spooled to a temporary file", e).file(&name);
        let mut file = spool().map_err(fail)?;
        file.write_all(&Magic::pipe_header(self.endian)).map_err(fail)?;
        for batch in &self.head {
            file.write_all(&batch.bytes).map_err(fail)?;
        }
        if let Source::Reader { mut reader, pending, .. } = self.streams.remove(0).source {
            file.write_all(&pending).map_err(fail)?;
            io::copy(&mut reader, &mut file).map_err(fail)?;
        }
        // What was found torn is not there any more.
        let Recording { mut faults, progress, .. } = self;
        let spooled = Recording::from_mapped(file, name.clone())?;
        faults.extend(spooled.faults.iter().cloned());
        Ok(Recording { faults, progress, ..spooled })
    }

    /// The file that the records lie in, or that the first of a directory's do.
    pub fn main_file(&self) -> Option<Arc<File>> {
        self.streams.first().and_then(|stream| match &stream.source {
            Source::Mapped { file, .. } => Some(file.clone()),
            Source::Reader { .. } => None,
        })
    }

    /// Errors if a mapped file is shorter than when it was opened. If less than a page was cut off, its end reads as zeros and no signal comes.
    pub fn check_not_cut_short(&self) -> Result<()> {
        for stream in &self.streams {
            if let Source::Mapped { bytes, file, .. } = &stream.source
                && let Some(len) = bytes.mapped_len()
                && file.metadata().is_ok_and(|now| now.len() < len)
            {
                let what = "another program cut the file short while it was read: read it again";
                return Err(Error::new(what).file(&stream.name));
            }
        }
        Ok(())
    }

    fn from_mapped(file: File, name: Arc<str>) -> Result<Recording> {
        let bytes = Bytes::map(&file).map_err(|e| e.file(&name))?;
        let magic = Magic::read(&bytes).map_err(|e| e.file(&name))?;
        let file = Arc::new(file);
        if magic.size == PIPE_HEADER_SIZE as u64 {
            let bytes = bytes.slice(PIPE_HEADER_SIZE..bytes.len());
            let source = Source::Mapped { bytes, file, offset: PIPE_HEADER_SIZE as u64 };
            return Recording::from_pipe(source, magic.endian, name.clone()).map_err(|e| e.file(&name));
        }
        Recording::from_file_header(&bytes, file, name.clone()).map_err(|e| e.file(&name))
    }

    fn from_file_header(bytes: &Bytes, file: Arc<File>, name: Arc<str>) -> Result<Recording> {
        let header = FileHeader::read(bytes)?;
        let Section { offset, size } = header.data;
        let data = bytes.slice(offset as usize..(offset + size) as usize);
        Ok(Recording {
            form: Form::File,
            endian: header.magic.endian,
            events: header.events.clone(),
            features: header.features.clone(),
            faults: header.faults.clone(),
            head: Vec::new(),
            event_types: header.event_types.to_vec(),
            extras: Vec::new(),
            left_out: 0,
            chain: None,
            streams: vec![Stream {
                name: name.clone(),
                index: 0,
                source: Source::Mapped { bytes: data, file, offset },
            }],
            forgiving: false,
            progress: Arc::default(),
            cuts: Arc::default(),
            file: Some(header),
            name,
        })
    }

    fn open_directory(path: &Path, name: Arc<str>) -> Result<Recording> {
        let data = path.join("data");
        let data_name: Arc<str> = data.to_string_lossy().into();
        let io = |what: &str, e| Error::io(what, e);
        let no_data =
            |e| io("a directory without a readable file `data` is no recording", e).code("directory");
        if !std::fs::metadata(&data).map_err(no_data)?.is_file() {
            return Err(no_data(io::ErrorKind::InvalidInput.into()));
        }
        let file = File::open(&data).map_err(no_data)?;
        let bytes = Bytes::map(&file).map_err(|e| e.file(&data_name))?;
        let file = Arc::new(file);
        let mut recording =
            Recording::from_file_header(&bytes, file, data_name.clone()).map_err(|e| e.file(&data_name))?;
        let cut_short = recording.faults.iter().any(|fault| fault.weight >= Weight::Loss);
        let has_parts = path.join("data.0").is_file();
        let version = match recording.features.get(&Feature::DIR_FORMAT) {
            Some(section) => recording.endian.u64(section, 0).unwrap_or(0),
            // perf record --threads was killed before it could say so, or the feature is among what is lost.
            None if cut_short && has_parts => 1,
            None => 0,
        };
        if version > 1 {
            let what = format!("directory format {version} is newer than 1, the last one known");
            return Err(Error::new(what).code("directory"));
        }
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| io("the directory can't be read", e))? {
            let entry = entry.map_err(|e| io("the directory can't be read", e))?.path();
            match entry.file_name().and_then(OsStr::to_str) {
                Some("data") => {}
                Some(part) if version == 1 && part.starts_with("data.") && entry.is_file() => {
                    // By number, not by name: data.10 comes after data.9.
                    let number = part["data.".len()..].parse::<u64>().unwrap_or(u64::MAX);
                    parts.push((number, entry));
                }
                _ => recording.extras.push(entry),
            }
        }
        parts.sort();
        recording.extras.sort();
        // perf record --threads numbers them from 0 on. Whether the last one is missing nothing tells.
        if let Some(&(last, _)) = parts.last()
            && last >= parts.len() as u64
            && last < u64::MAX
        {
            let first = (0..).zip(&parts).find(|(number, (part, _))| number != part);
            let first = first.map_or(0, |(number, _)| number);
            let missing = match last + 1 - parts.len() as u64 {
                1 => format!("data.{first} is missing, and its records with it"),
                n => {
                    format!("data.{first} and {} files more are missing, and their records with them", n - 1)
                }
            };
            let (code, weight) = ("directory-part", Weight::Loss);
            recording.faults.push(Fault { code, offset: 0, what: missing, weight, hint: None });
        }
        if version == 1 && parts.is_empty() {
            return Err(Error::new("directory format 1 without a single data.N file").code("directory"));
        }
        for (index, (_, path)) in parts.into_iter().enumerate() {
            let name: Arc<str> = path.to_string_lossy().into();
            let file = File::open(&path).map_err(|e| Error::io("can't be opened", e).file(&name))?;
            let bytes = Bytes::map(&file).map_err(|e| e.file(&name))?;
            let source = Source::Mapped { bytes, file: Arc::new(file), offset: 0 };
            recording.streams.push(Stream { name, index: index as u32 + 1, source });
        }
        recording.form = Form::Directory { version };
        recording.name = name;
        Ok(recording)
    }

    /// Reads the leading header records of pipe data: everything up to the first record that is not one. What is damaged among them is left out,
    /// and a fault that forbids writing; pipe data that is not mapped is spooled for that.
    fn from_pipe(source: Source, endian: Endian, name: Arc<str>) -> Result<Recording> {
        let mut recording = Recording {
            name: name.clone(),
            form: Form::Pipe,
            endian,
            events: Vec::new(),
            features: Features::new(),
            faults: Vec::new(),
            file: None,
            head: Vec::new(),
            event_types: Vec::new(),
            extras: Vec::new(),
            left_out: 0,
            chain: None,
            streams: Vec::new(),
            forgiving: false,
            progress: Arc::default(),
            cuts: Arc::default(),
        };
        let mut cutter = Cutter::new(Stream { name, index: 0, source }, endian, Arc::new(Layouts::new(&[])));
        // Who only wants the front of a pipe that is still being written should have it at once.
        cutter.eager = true;
        let mut head = Head::default();
        loop {
            let batch = match cutter.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    // The head is all there is, and must not be read again as records.
                    cutter.use_up();
                    break;
                }
                Err(error) if error.fault_code().is_none() => return Err(error),
                Err(error) => {
                    if let Some(spool) = cutter.spool() {
                        recording.streams.push(cutter.into_rest());
                        return recording.spooled(&spool);
                    }
                    cutter.layouts = Arc::new(Layouts::new(&recording.events));
                    let Some(bytes) = cutter.step_over() else { return Err(error) };
                    recording.faults.push(left_out(&error, &format!("{bytes} bytes here are left out")));
                    recording.left_out += bytes as u64;
                    continue;
                }
            };
            let (mut start, mut end) = (0, 0);
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                match recording.take_head(&record, &mut head) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if recording.events.len() > EVENTS_MAX => return Err(error),
                    Err(error) => {
                        if let Some(spool) = cutter.spool() {
                            recording.head.push(batch.part(0..end)?);
                            cutter.give_back(&batch, end);
                            recording.streams.push(cutter.into_rest());
                            return recording.spooled(&spool);
                        }
                        recording.faults.push(left_out(&error, "the record is left out"));
                        recording.left_out += record.whole_size();
                        recording.head.push(batch.part(start..end)?);
                        start = walker.position();
                    }
                }
                end = walker.position();
            }
            // What is torn behind other records is found with them.
            let torn = batch.torn.filter(|_| end == batch.bytes.len());
            if end > start || torn.is_some() {
                recording.head.push(Batch { torn, ..batch.part(start..end)? });
            }
            if end < batch.bytes.len() {
                cutter.give_back(&batch, end);
                break;
            }
            if let Some(torn) = batch.torn {
                let offset = torn.origin.stored_at().map_or(0, |(_, offset)| offset);
                let error = torn.to_error();
                let (code, what) = match torn.stray {
                    Some(_) => (error.fault_code().unwrap_or("torn"), error.what().to_owned()),
                    None => {
                        let bytes = torn.bytes;
                        (
                            "torn",
                            format!("the pipe ends inside a record of its header: {bytes} bytes are lost"),
                        )
                    }
                };
                recording.faults.push(Fault { code, offset, what, weight: Weight::Loss, hint: None });
            }
        }
        if !head.build_ids.is_empty() {
            recording.features.insert(Feature::BUILD_ID, head.build_ids.into());
        }
        // A HEADER_BUILD_ID that perf inject made ends with the ids of an event.
        let layouts = Arc::new(Layouts::new(&recording.events));
        recording.head.iter_mut().for_each(|batch| batch.layouts = layouts.clone());
        recording.streams.push(cutter.into_rest());
        Ok(recording)
    }

    /// Takes in what a header record of a pipe says; false for any other record.
    fn take_head(&mut self, record: &Record<'_>, head: &mut Head) -> Result<bool> {
        match HeaderRecord::read(record)? {
            Some(HeaderRecord::Event(event)) => {
                self.events.push(event);
                if self.events.len() > EVENTS_MAX {
                    let what = format!("more than the {EVENTS_MAX} events perf allows");
                    return Err(record.error(what).code("attrs-many"));
                }
            }
            Some(HeaderRecord::Feature(feature, payload)) => {
                self.features.insert(feature, payload);
            }
            Some(HeaderRecord::BuildId(entry)) => {
                head.build_ids.extend(entry);
            }
            Some(HeaderRecord::EndOfFeatures) => {}
            None => match event_type(record) {
                Some(entry) => self.event_types.extend(entry),
                None => return Ok(self.is_known_name(record, head)),
            },
        }
        Ok(true)
    }

    /// An EVENT_UPDATE record that says no more than EVENT_DESC has said.
    fn is_known_name(&self, record: &Record<'_>, head: &mut Head) -> bool {
        let update = RecordType::EVENT_UPDATE;
        if record.kind() != update
            || record.u64(8) != Some(EVENT_UPDATE_NAME)
            || record.bytes().len() < update.min_size()
        {
            return false;
        }
        let names = head.names.get_or_insert_with(|| {
            let section = self.features.get(&Feature::EVENT_DESC);
            let events =
                section.and_then(|section| read_event_desc(section, self.endian)).unwrap_or_default();
            let id = |index, ids: &[u64]| ids.first().copied().or((index == 0).then_some(0));
            let named = events.into_iter().enumerate();
            named.filter_map(|(at, event)| Some((id(at, &event.ids)?, event.name.to_vec()))).collect()
        });
        let name = until_nul(&record.bytes()[24..]).to_vec();
        record.u64(16).is_some_and(|id| names.contains(&(id, name)))
    }

    /// How many independent streams of records, and so of zstd, there are.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The names of the files the streams come from, by the number an [`Origin`] gives.
    pub fn stream_names(&self) -> Vec<Arc<str>> {
        self.streams.iter().map(|stream| stream.name.clone()).collect()
    }

    /// The records can be read more than once.
    pub fn is_rereadable(&self) -> bool {
        self.streams.iter().all(|stream| matches!(stream.source, Source::Mapped { .. }))
    }

    /// Bytes of records, where that is known beforehand.
    pub fn data_size(&self) -> Option<u64> {
        self.streams
            .iter()
            .map(|stream| match &stream.source {
                Source::Mapped { bytes, .. } => Some(bytes.len() as u64),
                Source::Reader { .. } => None,
            })
            .sum()
    }

    /// How far reading it has come.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// What feature COMPRESSED says, if it is there.
    pub fn compressed(&self) -> Option<Compressed> {
        Compressed::read(self.features.get(&Feature::COMPRESSED)?, self.endian)
    }

    /// It may hold COMPRESSED records: feature COMPRESSED says so, and is not the zeros that perf stat record puts there.
    pub fn is_compressed(&self) -> bool {
        self.compressed().is_some_and(|compressed| compressed.mmap_len > 0)
    }

    /// Its zstd stream goes on where that of a file before it ended: `perf record -z --switch-output` never begins it anew. Told by the first
    /// COMPRESSED record of a file of one stream, which begins no frame.
    pub fn continues_stream(&mut self) -> Result<bool> {
        if !self.is_compressed() || self.stream_count() > 1 || !self.is_rereadable() {
            return Ok(false);
        }
        let compressed = Kinds::COMPRESSED;
        for batch in self.batches() {
            let batch = batch?;
            if let Some(record) = batch.walk().next_wanted(compressed, usize::MAX)? {
                return Ok(!begins_frame(&record));
            }
        }
        Ok(false)
    }

    /// The first fault that forbids writing anything made from this recording, as an error.
    pub fn check_whole(&self) -> Result<()> {
        match self.faults.iter().find(|fault| fault.weight == Weight::Fatal) {
            Some(fault) => Err(fault.to_error().file(&self.name)),
            None => Ok(()),
        }
    }

    /// All batches, stream after stream, as they are stored. A recording that is not mapped can be read this way once.
    pub fn batches(&mut self) -> Batches {
        let layouts = Arc::new(Layouts::new(&self.events));
        let rereadable = self.is_rereadable();
        let mut cutters = Vec::new();
        for stream in &mut self.streams {
            let source = match &mut stream.source {
                Source::Mapped { bytes, file, offset } => {
                    Source::Mapped { bytes: bytes.clone(), file: file.clone(), offset: *offset }
                }
                Source::Reader { reader, pending, offset, spool } => Source::Reader {
                    reader: std::mem::replace(reader, Box::new(io::empty())),
                    pending: std::mem::take(pending),
                    offset: *offset,
                    spool: spool.clone(),
                },
            };
            let stream = Stream { name: stream.name.clone(), index: stream.index, source };
            let cutter = Cutter::new(stream, self.endian, layouts.clone());
            cutters.push(Cutter { forgiving: self.forgiving, ..cutter });
        }
        Batches {
            cutters,
            at: 0,
            pipe: (self.form == Form::Pipe).then(|| self.events.clone()),
            forgiving: self.forgiving,
            layouts,
            again: if self.cuts.get().is_some() { Some(0) } else { None },
            new_cuts: rereadable.then(Vec::new),
            cuts: self.cuts.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// What is damaged in the leading records of pipe data, and what becomes of it.
fn left_out(error: &Error, what: &str) -> Fault {
    let kind = error.record_kind().map_or_else(String::new, |kind| format!("{kind}: "));
    Fault {
        code: error.fault_code().unwrap_or("torn"),
        offset: error.place().and_then(Origin::stored_at).map_or(0, |(_, offset)| offset),
        what: format!("{kind}{}; {what}", error.what()),
        weight: Weight::Fatal,
        hint: Some("perfx recover brings back what can be read"),
    }
}

/// A record of pipe data that a file keeps in its header instead.
#[derive(Debug)]
pub enum HeaderRecord {
    /// HEADER_ATTR.
    Event(Event),
    /// HEADER_FEATURE or HEADER_TRACING_DATA.
    Feature(Feature, Bytes),
    /// HEADER_BUILD_ID, as an entry of a BUILD_ID section.
    BuildId(Vec<u8>),
    /// The mark behind the last HEADER_FEATURE: the number of features its writer knew, and no payload.
    EndOfFeatures,
}

impl HeaderRecord {
    /// The kinds it can be read from.
    pub const KINDS: [RecordType; 4] = [
        RecordType::HEADER_ATTR,
        RecordType::HEADER_FEATURE,
        RecordType::HEADER_TRACING_DATA,
        RecordType::HEADER_BUILD_ID,
    ];

    /// The kinds that mean another thing among the data of a file than in pipe data. HEADER_BUILD_ID is good in both.
    pub const FRONT: [RecordType; 3] =
        [RecordType::HEADER_ATTR, RecordType::HEADER_FEATURE, RecordType::HEADER_TRACING_DATA];

    /// Readers of pipe data would take it for a part of the header, or stumble over it.
    pub fn is_front(record: &Record<'_>) -> bool {
        !matches!(HeaderRecord::read(record), Ok(None | Some(HeaderRecord::BuildId(_))))
    }

    /// Reads one; `None` for any other kind of record.
    pub fn read(record: &Record<'_>) -> Result<Option<HeaderRecord>> {
        Ok(Some(match record.kind() {
            RecordType::HEADER_ATTR => {
                let body = record.body();
                let size = match record.endian().u32(body, 4) {
                    Some(0) => 64,
                    Some(size) => size as usize,
                    None => 0,
                };
                if !(ATTR_SIZE_MIN..=ATTR_SIZE_MAX).contains(&size) || size > body.len() || size % 8 != 0 {
                    let what = format!(
                        "attr.size {size} does not fit in a record of {} bytes",
                        record.bytes().len()
                    );
                    return Err(record.error(what).code("attr-size"));
                }
                let (attr, mut ids) = (&body[..size], Cursor::new(&body[size..], record.endian()));
                let ids = std::iter::from_fn(|| ids.u64()).collect();
                HeaderRecord::Event(Event::new(attr.to_vec(), ids, record.endian()))
            }
            RecordType::HEADER_FEATURE => {
                let Some(bit) = record.u64(8) else {
                    return Err(record.error("too short to say which feature it holds").code("too-small"));
                };
                let payload = record.bytes()[16..].to_vec();
                let Ok(bit) = u8::try_from(bit) else {
                    // No file can hold it, so it stays an ordinary record, which every perf skips.
                    return Ok(None);
                };
                // The end mark is a feature number one above the writer's last feature, with no payload. The two features that are mere flags
                // are the only ones with an equally empty section.
                if payload.is_empty() && !FLAGS.contains(&Feature(bit)) {
                    HeaderRecord::EndOfFeatures
                } else {
                    HeaderRecord::Feature(Feature(bit), payload.into())
                }
            }
            RecordType::HEADER_TRACING_DATA => {
                HeaderRecord::Feature(Feature::TRACING_DATA, tracing_data(record).to_vec().into())
            }
            RecordType::HEADER_BUILD_ID => {
                let mut entry = Vec::new();
                BuildIdEntry::read(record.bytes(), record.endian())
                    .and_then(|read| read.write_section(record.endian(), &mut entry))
                    .ok_or_else(|| record.error("too short to hold a build-id").code("too-small"))?;
                HeaderRecord::BuildId(entry)
            }
            _ => return Ok(None),
        }))
    }
}

/// Features whose section is empty: the bit says it all.
pub const FLAGS: [Feature; 2] = [Feature::BRANCH_STACK, Feature::STAT];

/// Yields the batches of a recording.
pub struct Batches {
    cutters: Vec<Cutter>,
    /// The cutter at work.
    at: usize,
    /// Pipe data: the events so far, since more may come among the records.
    pipe: Option<Vec<Event>>,
    /// An attr among the records that can't be read is no error: whoever reads the records finds it.
    forgiving: bool,
    layouts: Arc<Layouts>,
    /// The next of the known cuts, when they are known.
    again: Option<usize>,
    new_cuts: Option<Vec<Cut>>,
    cuts: Arc<OnceLock<Vec<Cut>>>,
    progress: Arc<Progress>,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batches({} streams)", self.cutters.len())
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let next = match self.again {
            Some(number) => self.known(number),
            None => self.cut(),
        };
        let named = |error: Error, name: Arc<str>| Some(Err(error.file(&name)));
        match next {
            Ok(Some(mut batch)) => {
                self.progress.read.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
                match self.take_late_events(&mut batch) {
                    Ok(()) => Some(Ok(batch)),
                    Err(error) => named(error, batch.name),
                }
            }
            Ok(None) => None,
            Err(error) => {
                let name = self.cutters.get(self.at).map(|cutter| cutter.stream.name.clone());
                self.new_cuts = None;
                // Nothing behind the fault can be found, but the other files of a directory are not concerned.
                self.at += 1;
                named(error, name.unwrap_or_else(|| "".into()))
            }
        }
    }
}

/// A stretch of a mapped stream: the batch that belongs to it begins with the first record that begins here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    stream: usize,
    from: usize,
    to: usize,
}

/// A stretch in which any thread can look for the batch, before it is known where records begin: that is guessed.
pub struct Draft {
    /// Where.
    pub stretch: Stretch,
    cutter: Cutter,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({:?})", self.stretch)
    }
}

impl Draft {
    /// What seems to be the batch; [`Batches::accept`] knows whether it is. `None` where no records seem to begin, or something is wrong with
    /// them, which is for who reads in file order to judge.
    pub fn batch(mut self) -> Option<(Cut, Batch)> {
        let Stretch { stream, from, to } = self.stretch;
        let start = likely_start(self.cutter.mapped()?, from, to, self.cutter.endian)?;
        self.cutter.at = start;
        let batch = self.cutter.next_batch().ok()??;
        let whole = batch.torn.is_none() && self.cutter.at >= to;
        whole.then(|| (Cut::of(&batch, stream, start), batch))
    }
}

/// So many headers in a row that could be right make it likely that they are. A wrong guess costs time, nothing else.
const LIKELY: usize = 16;

/// Where the first record of `from..to` seems to begin: records are multiples of 8 bytes, and few are larger than 64 KiB. simpleperf's
/// HEADER_TRACING_DATA is a multiple of 4, and so all behind it stands between two multiples of 8.
fn likely_start(bytes: &[u8], from: usize, to: usize, endian: Endian) -> Option<usize> {
    if from == 0 {
        return Some(0);
    }
    let good = |frame: &Frame| has_room(frame) && frame.size.is_multiple_of(8);
    let likely = |start: &usize| {
        let (run, end) = run_of(bytes, *start, endian, good);
        run == LIKELY || end == bytes.len()
    };
    (from..to.min(from + RECORD_SIZE_MAX + HEADER_SIZE)).step_by(4).find(likely)
}

/// How many headers in a row from `at` on are `good`, [`LIKELY`] at most, and where the last of their records ends.
fn run_of(bytes: &[u8], mut at: usize, endian: Endian, good: impl Fn(&Frame) -> bool) -> (usize, usize) {
    let mut run = 0;
    while run < LIKELY
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
        && good(&frame)
        && frame.total() <= (bytes.len() - at) as u64
    {
        at += frame.total() as usize;
        run += 1;
    }
    (run, at)
}

/// The kind is known, and the record has room for its fields.
fn has_room(frame: &Frame) -> bool {
    frame.kind.name().is_some() && frame.size >= frame.kind.min_size()
}

/// The header may well be one, odd as its record may be: kinds that nobody has named yet have small numbers and sizes of whole words.
fn is_plausible(frame: &Frame) -> bool {
    let is_new = (1..=u32::from(u16::MAX)).contains(&frame.kind.0) && frame.size.is_multiple_of(8);
    frame.kind.name().is_some() || is_new
}

impl Cut {
    fn of(batch: &Batch, stream: usize, start: usize) -> Cut {
        let Batch { kinds, records, torn, .. } = *batch;
        let (len, rare) = (batch.bytes.len(), batch.rare.clone());
        Cut { stream, start, len, kinds, records, rare, torn }
    }
}

impl Batches {
    /// All stretches in file order, for who looks for batches on many threads. `None` where they must be read in order, or their places are
    /// known.
    pub fn drafts(&self) -> Option<impl Iterator<Item = Draft> + Send + use<>> {
        let cutters: Option<Vec<Cutter>> = self.cutters.iter().map(Cutter::of_mapped).collect();
        let cutters = cutters.filter(|cutters| cutters.iter().all(|cutter| !cutter.forgiving))?;
        let unknown = self.pipe.is_none() && self.again.is_none();
        let drafts = |(stream, whole): (usize, Cutter)| {
            let size = whole.mapped().map_or(0, |bytes| bytes.len());
            (0..size).step_by(BATCH_SIZE).filter_map(move |from| {
                let stretch = Stretch { stream, from, to: size.min(from + BATCH_SIZE) };
                Some(Draft { stretch, cutter: whole.of_mapped()? })
            })
        };
        unknown.then(|| cutters.into_iter().enumerate().flat_map(drafts))
    }

    /// Takes a drafted batch for the next one, if it is.
    pub fn accept(&mut self, cut: Cut) -> bool {
        if self.place() != Some((cut.stream, cut.start)) {
            return false;
        }
        self.at = cut.stream;
        self.cutters[cut.stream].at += cut.len;
        self.progress.read.fetch_add(cut.len as u64, Ordering::Relaxed);
        if let Some(cuts) = &mut self.new_cuts {
            cuts.push(cut);
        }
        true
    }

    /// The next batch begins behind this stretch, or there is none.
    pub fn is_past(&self, stretch: Stretch) -> bool {
        self.place().is_none_or(|place| place >= (stretch.stream, stretch.to))
    }

    /// Stream and position of what comes next.
    fn place(&self) -> Option<(usize, usize)> {
        let left = |cutter: &&Cutter| cutter.mapped().is_some_and(|bytes| cutter.at < bytes.len());
        let streams = self.cutters.iter().enumerate().skip(self.at);
        streams.filter(|(_, cutter)| left(cutter)).map(|(stream, cutter)| (stream, cutter.at)).next()
    }

    fn cut(&mut self) -> Result<Option<Batch>> {
        while let Some(cutter) = self.cutters.get_mut(self.at) {
            let start = cutter.at;
            if let Some(batch) = cutter.next_batch()? {
                if let Some(cuts) = &mut self.new_cuts {
                    cuts.push(Cut::of(&batch, self.at, start));
                }
                return Ok(Some(batch));
            }
            self.at += 1;
        }
        if let Some(cuts) = self.new_cuts.take() {
            // Whoever was first has found the same.
            let _ = self.cuts.set(cuts);
        }
        Ok(None)
    }

    fn known(&mut self, number: usize) -> Result<Option<Batch>> {
        let Some(cut) = self.cuts.get().and_then(|cuts| cuts.get(number)) else { return Ok(None) };
        self.again = Some(number + 1);
        let Some(cutter) = self.cutters.get(cut.stream) else { return Ok(None) };
        let Source::Mapped { bytes, file, offset } = &cutter.stream.source else { return Ok(None) };
        let at = offset + cut.start as u64;
        Ok(Some(Batch {
            bytes: bytes.slice(cut.start..cut.start + cut.len),
            kinds: cut.kinds,
            records: cut.records,
            rare: cut.rare.clone(),
            stored: Some((file.clone(), at)),
            torn: cut.torn,
            layouts: self.layouts.clone(),
            ..cutter.empty_batch(at)
        }))
    }

    /// An attr may come anywhere in pipe data (perf inject --itrace writes one when it makes the first event of a new kind).
    fn take_late_events(&mut self, batch: &mut Batch) -> Result<()> {
        let Some(events) = &mut self.pipe else { return Ok(()) };
        let attrs = Kinds::of(&[RecordType::HEADER_ATTR]);
        if batch.kinds.meets(attrs) {
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(attrs, usize::MAX)? {
                let read = match HeaderRecord::read(&record) {
                    Err(_) if self.forgiving => continue,
                    read => read?,
                };
                if let Some(HeaderRecord::Event(event)) = read {
                    events.push(event);
                    if events.len() > EVENTS_MAX {
                        let what = format!("more than the {EVENTS_MAX} events perf allows");
                        return Err(record.error(what).code("attrs-many"));
                    }
                }
            }
            self.layouts = Arc::new(Layouts::new(events));
            self.cutters.iter_mut().for_each(|cutter| cutter.layouts = self.layouts.clone());
            batch.layouts = self.layouts.clone();
        }
        Ok(())
    }
}

/// Cuts one stream at record boundaries.
struct Cutter {
    stream: Stream,
    endian: Endian,
    layouts: Arc<Layouts>,
    /// Mapped: bytes already cut off.
    at: usize,
    ended: bool,
    /// Mapped: bytes that are no record are stepped over, where records go on behind them.
    forgiving: bool,
    /// How many bytes may still be looked at while looking for records: the sum of all gaps is linear in the input.
    probes: u64,
    /// Read no more of a pipe than is there, as long as that is a record.
    eager: bool,
}

/// How far whole records reach in a buffer.
struct Framed {
    end: usize,
    records: u64,
    kinds: Kinds,
    rare: Option<Vec<u32>>,
    /// Kind and bytes in all of the first record that is not all there, where that can be told.
    cut: Option<Frame>,
    /// What stands where the next record should.
    bad: Option<BadFrame>,
    /// The same, where it is known.
    stray: Option<Stray>,
}

impl Framed {
    /// The record behind `end` is of a rare kind.
    fn met_rare(&mut self) {
        let position = u32::try_from(self.end).ok();
        match (&mut self.rare, position) {
            (Some(rare), Some(position)) if rare.len() < RARE_MAX => rare.push(position),
            (rare, _) => *rare = None,
        }
    }

    fn torn(&self, origin: Origin, bytes: u64) -> Torn {
        Torn {
            origin,
            kind: self.cut.map(|frame| frame.kind),
            bytes,
            needs: self.cut.map_or(0, |frame| frame.total()),
            resumes: false,
            stray: self.stray,
        }
    }

    /// A header that can't be right is an error only where it is the first: whole records before it are good.
    fn sound(self, stream: u32, offset: u64) -> Result<Framed> {
        match self.bad {
            Some(bad) if self.end == 0 => Err(bad.into_error(Origin::Input { stream, offset })),
            _ => Ok(self),
        }
    }
}

fn frame(bytes: &[u8], endian: Endian, enough: usize) -> Framed {
    let (end, records, kinds, cut, bad) = (0, 0, Kinds::NONE, None, None);
    let mut framed = Framed { end, records, kinds, rare: Some(Vec::new()), cut, bad, stray: None };
    while framed.end < bytes.len() && framed.end < enough {
        let frame = match Frame::read(bytes, framed.end, endian) {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(bad) => {
                framed.bad = Some(bad);
                break;
            }
        };
        if frame.kind.0 > u32::from(u16::MAX) {
            framed.stray = Stray::at(&bytes[framed.end..]);
            if framed.stray.is_some() {
                break;
            }
        }
        if frame.total() > (bytes.len() - framed.end) as u64 {
            framed.cut = Some(frame);
            break;
        }
        if !Walker::COMMON.has(frame.kind) {
            framed.met_rare();
        }
        framed.end += frame.total() as usize;
        framed.records += 1;
        framed.kinds.insert(frame.kind);
    }
    framed
}

/// How many bytes of records, and how many records, can be trusted where nothing that frames stands at `end`: up to the last record that is sound,
/// or odd as others of its kind before it are, or followed by what has the header of a record. What makes a recording odd throughout (bytes behind
/// the fields, odd sizes, new kinds) is kept by that; what the damage may have touched is not.
pub(crate) fn trusted(bytes: &[u8], end: usize, endian: Endian, layouts: &Layouts) -> (usize, u64) {
    let (mut at, mut count, mut trusted) = (0, 0, (0, 0));
    let mut usual = BTreeSet::new();
    while at < end
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
    {
        let next = at + frame.total() as usize;
        let (record, payload) = bytes[at..next].split_at(frame.size);
        let Ok(record) = Record::new(record, payload, Origin::Synthetic, endian) else { break };
        let odd: Vec<_> =
            oddities(&record, layouts).into_iter().map(|odd| (frame.kind.0, odd.code)).collect();
        let followed = || {
            Frame::read(bytes, next, endian).is_ok_and(|next| next.is_some_and(|next| is_plausible(&next)))
        };
        count += 1;
        if odd.iter().all(|odd| usual.contains(odd)) || is_plausible(&frame) && followed() {
            trusted = (next, count);
            usual.extend(odd);
        }
        at = next;
    }
    trusted
}

/// Bytes that are no record, from the start of what was looked at.
struct Gap {
    from: usize,
    to: usize,
}

/// So many records in a row, each of a known kind and sound in all its fields, prove that records go on where the first of them begins. Fewer
/// will do where they end exactly where the data does.
const PROOF: usize = 4;

/// How many bytes may be looked at while looking for records, for each byte there is: enough for a real hole, and an end to a hostile one.
const PROBES_PER_BYTE: u64 = 32;

/// Whether `count` sound records stand at `at`, or fewer with the end of the data right behind them. Takes what it looked at from `left`.
fn sound_records(
    bytes: &[u8],
    mut at: usize,
    count: usize,
    endian: Endian,
    layouts: &Layouts,
    left: &mut u64,
) -> bool {
    for _ in 0..count {
        if at == bytes.len() {
            break;
        }
        *left = left.saturating_sub(1);
        let Ok(Some(frame)) = Frame::read(bytes, at, endian) else { return false };
        let named = frame.kind.name().is_some() && frame.size >= frame.kind.min_size();
        if !named || frame.total() > (bytes.len() - at) as u64 || *left == 0 {
            return false;
        }
        let (record, payload) = bytes[at..at + frame.total() as usize].split_at(frame.size);
        let origin = Origin::Input { stream: 0, offset: 0 };
        *left = left.saturating_sub(frame.size as u64);
        match Record::new(record, payload, origin, endian) {
            Ok(record) if decode(&record, layouts).odd.is_empty() => at += frame.total() as usize,
            _ => return false,
        }
    }
    true
}

/// Appends what one read yields; false at the end.
fn read_once(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    // As much as a pipe holds.
    let mut some = [0; 1 << 16];
    let got = loop {
        match reader.read(&mut some) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            got => break got?,
        }
    };
    buffer.extend_from_slice(&some[..got]);
    Ok(got > 0)
}

impl Cutter {
    fn new(stream: Stream, endian: Endian, layouts: Arc<Layouts>) -> Cutter {
        let probes = match &stream.source {
            Source::Mapped { bytes, .. } => PROBES_PER_BYTE * bytes.len() as u64,
            Source::Reader { .. } => 0,
        };
        Cutter { stream, endian, layouts, at: 0, ended: false, forgiving: false, probes, eager: false }
    }

    /// All bytes of a mapped stream.
    fn mapped(&self) -> Option<&Bytes> {
        match &self.stream.source {
            Source::Mapped { bytes, .. } => Some(bytes),
            Source::Reader { .. } => None,
        }
    }

    /// The same once more, of a mapped stream.
    fn of_mapped(&self) -> Option<Cutter> {
        let Source::Mapped { bytes, file, offset } = &self.stream.source else { return None };
        let source = Source::Mapped { bytes: bytes.clone(), file: file.clone(), offset: *offset };
        let stream = Stream { name: self.stream.name.clone(), index: self.stream.index, source };
        Some(Cutter { stream, layouts: self.layouts.clone(), ..*self })
    }

    /// A batch that begins at this offset of the stream, with nothing in it yet.
    fn empty_batch(&self, offset: u64) -> Batch {
        Batch {
            bytes: Bytes::default(),
            endian: self.endian,
            origins: Origins::input(self.stream.index, offset),
            kinds: Kinds::NONE,
            records: 0,
            rare: None,
            stored: None,
            name: self.stream.name.clone(),
            layouts: self.layouts.clone(),
            torn: None,
            lost: None,
            opened: Vec::new(),
        }
    }

    fn next_batch(&mut self) -> Result<Option<Batch>> {
        match self.stream.source {
            Source::Mapped { .. } => self.next_mapped(),
            Source::Reader { .. } => self.next_read(),
        }
    }

    fn next_mapped(&mut self) -> Result<Option<Batch>> {
        let Source::Mapped { bytes, file, offset } = &self.stream.source else { return Ok(None) };
        if self.at >= bytes.len() {
            return Ok(None);
        }
        let at = *offset + self.at as u64;
        let stream = self.stream.index;
        let rest = bytes.slice(self.at..bytes.len());
        // Where a batch ends does not depend on where it begins, so that others can be looked for meanwhile.
        let enough = BATCH_SIZE - self.at % BATCH_SIZE;
        let framed = frame(&rest, self.endian, enough);
        let mut batch = Batch { stored: Some((file.clone(), at)), ..self.empty_batch(at) };
        let ends_early = framed.bad.is_some() || framed.end < enough && framed.end < rest.len();
        let gap = if self.forgiving && ends_early && framed.stray.is_none() {
            let mut probes = self.probes;
            let gap = self.gap(&rest, &framed, &mut probes);
            self.probes = probes;
            gap
        } else {
            None
        };
        if let Some(gap) = gap {
            let origin = Origin::Input { stream, offset: at + gap.from as u64 };
            let (bytes, resumes) = ((gap.to - gap.from) as u64, gap.to < rest.len());
            batch.torn = Some(Torn { origin, kind: None, bytes, needs: 0, resumes, stray: None });
            let framed = frame(&rest[..gap.from], self.endian, usize::MAX);
            batch.hold(rest.slice(0..framed.end), &framed);
            self.at += gap.to;
            return Ok(Some(batch));
        }
        let framed = framed.sound(stream, at)?;
        batch.hold(rest.slice(0..framed.end), &framed);
        self.at += framed.end;
        if framed.end < enough && framed.end < rest.len() && framed.bad.is_none() {
            // The last record does not end where the data does.
            let origin = Origin::Input { stream, offset: at + framed.end as u64 };
            batch.torn = Some(framed.torn(origin, (rest.len() - framed.end) as u64));
            self.at = bytes.len();
        }
        Ok(Some(batch))
    }

    fn next_read(&mut self) -> Result<Option<Batch>> {
        let (endian, stream) = (self.endian, self.stream.index);
        let Source::Reader { offset: at, .. } = self.stream.source else { return Ok(None) };
        let mut batch = self.empty_batch(at);
        let Source::Reader { reader, pending, offset, spool } = &mut self.stream.source else {
            return Ok(None);
        };
        let mut buffer = std::mem::take(pending);
        let fail = |e| Error::io("can't be read", e);
        if self.eager {
            let whole = |buffer: &[u8]| match Frame::read(buffer, 0, endian) {
                Ok(Some(frame)) => frame.total() <= buffer.len() as u64,
                Ok(None) => false,
                Err(_) => true,
            };
            while !self.ended && buffer.len() < BATCH_SIZE && !whole(&buffer) {
                self.ended = !read_once(reader, &mut buffer).map_err(fail)?;
            }
        }
        // The same cuts as of what is mapped.
        let enough = if self.eager { usize::MAX } else { BATCH_SIZE - self.at % BATCH_SIZE };
        if !self.eager && !self.ended {
            // So that the record over the end is there.
            let want = (enough + RECORD_SIZE_MAX).saturating_sub(buffer.len());
            buffer.reserve_exact(want);
            let got = reader.by_ref().take(want as u64).read_to_end(&mut buffer).map_err(fail)?;
            self.ended = got < want;
        }
        if buffer.is_empty() {
            return Ok(None);
        }
        let framed = frame(&buffer, endian, enough);
        if framed.bad.is_some() && framed.end == 0 {
            // Whoever spools the rest wants it all.
            pending.clone_from(&buffer);
        }
        let framed = framed.sound(stream, at)?;
        let is_stray = framed.stray.is_some();
        let is_enough = framed.end >= enough || framed.bad.is_some() || is_stray || self.eager || self.ended;
        if framed.end > 0 && is_enough {
            *pending = buffer[framed.end..].to_vec();
            *offset += framed.end as u64;
            self.at += framed.end;
            buffer.truncate(framed.end);
            batch.hold(buffer.into(), &framed);
            return Ok(Some(batch));
        }
        if self.ended || is_stray {
            // Nothing behind it is read, but how much that is.
            let unread = io::copy(reader, &mut io::sink()).map_err(fail)?;
            self.ended = true;
            let bytes = buffer.len() as u64 + unread;
            batch.torn = Some(framed.torn(Origin::Input { stream, offset: at }, bytes));
            *offset += bytes;
        } else {
            // The last record with its payload is larger than a batch: through a file, so that private memory stays bounded.
            let mut file = spool().map_err(|e| Error::io("a temporary file can't be made", e))?;
            file.write_all(&buffer).map_err(fail)?;
            let needs = framed.cut.map_or(0, |frame| frame.total()).saturating_add(framed.end as u64);
            let missing = needs.saturating_sub(buffer.len() as u64);
            let got = io::copy(&mut reader.by_ref().take(missing), &mut file).map_err(fail)?;
            let held = buffer.len() as u64 + got;
            let bytes = Bytes::map(&file)?;
            let framed = frame(&bytes, endian, usize::MAX).sound(stream, at)?;
            batch.hold(bytes.slice(0..framed.end), &framed);
            self.at += framed.end;
            if got < missing {
                self.ended = true;
                let origin = Origin::Input { stream, offset: at + framed.end as u64 };
                batch.torn = Some(framed.torn(origin, held - framed.end as u64));
            }
            *offset += held;
        }
        Ok(Some(batch))
    }

    /// What stands behind the records that `framed` found: up to where records go on, or to the end. `None`: nothing but a record cut short.
    fn gap(&self, rest: &Bytes, framed: &Framed, left: &mut u64) -> Option<Gap> {
        // The records before the gap may have lost something to it, or be made of what it is.
        let (from, _) = trusted(rest, framed.end, self.endian, &self.layouts);
        let mut to = from + 1;
        while to + HEADER_SIZE <= rest.len() && *left > 0 {
            // Holes are mostly zeros, and no record begins with eight of them.
            if rest[to..to + HEADER_SIZE] == [0; HEADER_SIZE] {
                to += 1;
                continue;
            }
            if sound_records(rest, to, PROOF, self.endian, &self.layouts, left)
                || self.goes_on(rest, to, left)
            {
                return Some(Gap { from, to });
            }
            to += 1;
        }
        // The beginning of a record that may well be one: those before it are what they seem.
        let plausible = framed.bad.is_none() && framed.cut.as_ref().is_none_or(is_plausible);
        (!plausible).then_some(Gap { from, to: rest.len() })
    }

    /// So many headers in a row that may be right prove the same as a few sound records, and most of them are of known kinds.
    fn goes_on(&self, rest: &[u8], at: usize, left: &mut u64) -> bool {
        let good =
            |frame: &Frame| if frame.kind.name().is_some() { has_room(frame) } else { is_plausible(frame) };
        let (run, end) = run_of(rest, at, self.endian, good);
        *left = left.saturating_sub(run as u64);
        if run < LIKELY && (run < PROOF || end < rest.len()) {
            return false;
        }
        let known = Cell::new(0);
        run_of(rest, at, self.endian, |frame| {
            known.set(known.get() + usize::from(frame.kind.name().is_some()));
            good(frame)
        });
        known.get() * 2 >= run
    }

    /// Mapped: steps over what stands here instead of a record, if records go on behind it; returns how many bytes that is.
    fn step_over(&mut self) -> Option<usize> {
        let Source::Mapped { bytes, .. } = &self.stream.source else { return None };
        let rest = bytes.slice(self.at..bytes.len());
        let mut probes = self.probes;
        let framed = frame(&rest, self.endian, 0);
        let gap = self.gap(&rest, &framed, &mut probes).filter(|gap| gap.to < rest.len())?;
        self.probes = probes;
        self.at += gap.to;
        Some(gap.to)
    }

    /// How temporary files are made, where the stream is not mapped.
    fn spool(&self) -> Option<Spool> {
        match &self.stream.source {
            Source::Mapped { .. } => None,
            Source::Reader { spool, .. } => Some(spool.clone()),
        }
    }

    /// Leaves nothing of a mapped stream to be read again.
    fn use_up(&mut self) {
        if let Source::Mapped { bytes, offset, .. } = &mut self.stream.source {
            *offset += bytes.len() as u64;
            *bytes = bytes.slice(bytes.len()..bytes.len());
            self.at = 0;
        }
    }

    /// The stream without what was cut off.
    fn into_rest(mut self) -> Stream {
        if let Source::Mapped { bytes, offset, .. } = &mut self.stream.source {
            *bytes = bytes.slice(self.at..bytes.len());
            *offset += self.at as u64;
        }
        self.stream
    }

    /// Puts back what of a batch from `end` on was not used.
    fn give_back(&mut self, batch: &Batch, end: usize) {
        let unused = &batch.bytes[end..];
        match &mut self.stream.source {
            Source::Mapped { bytes, offset, .. } => {
                // `at` is behind what was torn off, too; the batch knows where it began.
                let start = (batch.stored.as_ref().map_or(*offset, |(_, at)| *at) - *offset) as usize + end;
                *bytes = bytes.slice(start..bytes.len());
                *offset += start as u64;
                self.at = 0;
            }
            Source::Reader { pending, offset, .. } => {
                pending.splice(0..0, unused.iter().copied());
                *offset -= unused.len() as u64;
            }
        }
    }
}

// A record's header must fit in the smallest read that can be cut.
const _: () = assert!(BATCH_SIZE > HEADER_SIZE);
