//! Opens a recording: its form, its events and features, and its faults, before its records are read.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::batch::Batch;
use super::batches::{BatchExtent, Batches, Progress};
use super::cutter::Cutter;
use super::expand::{Chain, DecodeUnit, Expand, expand_alone};
use super::records::Records;
use super::stream::{Source, Stream, TempFiles, copy_rest, temp_files};
use super::time_order::TimeOrder;
use crate::features::Compressed;
use crate::header::{Fault, Features, FileHeader, Magic, PIPE_HEADER_SIZE, Severity, TEXT_MAX};
use crate::record::compressed::begins_frame;
use crate::record::header_records::HeaderRecord;
use crate::section::Section;
use crate::value::bytes_that;
use crate::{Bytes, Endian, Error, Event, FaultCode, Feature, Kinds, Layouts, Origin, RecordType, Result};

/// The form a recording was stored in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A file with a header of 104 (or 72) bytes.
    File,
    /// A 16-byte header and records, as `perf record -o -` writes it.
    Pipe,
    /// A directory: `data`, and with version 1 `data.0`, `data.1`, …
    Directory {
        /// From feature DIR_FORMAT; 0 if that is absent.
        version: u64,
    },
}

/// A recording whose records have not been read yet.
pub struct Recording {
    /// The name that the user gave.
    pub name: Arc<str>,
    /// The form in which it is stored.
    pub form: Form,
    /// Byte order of everything in it.
    pub endian: Endian,
    /// The events in the order of their attrs.
    pub events: Vec<Event>,
    /// The feature sections (for pipe data: those before the first ordinary record).
    pub features: Features,
    /// Deviations from the format.
    pub faults: Vec<Fault>,
    /// The header of the main file; `None` for pipe data.
    pub file: Option<FileHeader>,
    /// Event names as perf before 3.3 stored them, [`EVENT_TYPE_SIZE`](crate::header::EVENT_TYPE_SIZE) bytes
    /// each: from a file's header, or from HEADER_EVENT_TYPE records among the leading ones of pipe data.
    pub event_types: Vec<u8>,
    /// A directory's entries without records (`kcore_dir` and the like).
    pub extras: Vec<PathBuf>,
    pub(super) left_out: u64,
    pub(super) head: Vec<Batch>,
    pub(super) chain: Option<Chain>,
    pub(super) streams: Vec<Stream>,
    pub(super) opened: Option<Metadata>,
    pub(super) lenient: bool,
    /// True to yield data as it arrives: see [`Recording::live`].
    pub(super) live: bool,
    pub(super) progress: Arc<Progress>,
    /// The batch extents found by the first reading, so that later ones need no walk.
    pub(super) extents: Arc<OnceLock<Vec<BatchExtent>>>,
    /// The events that pipe data defines after its head, found by the first reading.
    pub(super) late_events: Arc<OnceLock<Vec<Event>>>,
}

/// The mapped bytes of a recording.
#[derive(Clone, Debug, Default)]
pub struct StoredBytes(Vec<(u32, u64, Bytes)>);

impl StoredBytes {
    /// The `len` bytes after `skip` bytes at this place; `None` if they are not stored there unchanged.
    pub fn get(&self, origin: Origin, skip: usize, len: usize) -> Option<Bytes> {
        let Origin::Input { stream, offset } = origin else { return None };
        let (_, first, bytes) = self.0.iter().find(|(index, ..)| *index == stream)?;
        let start = usize::try_from(offset.checked_sub(*first)?).ok()?.checked_add(skip)?;
        let end = start.checked_add(len).filter(|&end| end <= bytes.len())?;
        Some(bytes.slice(start..end))
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recording({}, {:?}, {} events)", self.name, self.form, self.events.len())
    }
}

impl Recording {
    /// Opens a path: a perf.data file, a regular file or FIFO with pipe data, or a directory. Data of a pipe
    /// that must be kept goes into unnamed temporary files in `TMPDIR`.
    ///
    /// ```
    /// use perfx_format::read::Recording;
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recorded/default.p73.data");
    /// let recording = Recording::open(path)?;
    /// println!("{} events", recording.events.len());
    /// # Ok::<(), perfx_format::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The path cannot be opened, or is not a recording.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording> {
        Recording::open_with(path, temp_files())
    }

    /// Like [`Recording::open`], with the caller's temporary files.
    ///
    /// # Errors
    ///
    /// The path cannot be opened, or is not a recording.
    pub fn open_with(path: impl AsRef<Path>, temp_files: TempFiles) -> Result<Recording> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let fail = |e| Error::io("can't be opened", e).file(&name);
        let metadata = std::fs::metadata(path).map_err(fail)?;
        if metadata.is_dir() {
            return Recording::open_directory(path, name.clone()).map_err(|e| e.file(&name));
        }
        let file = File::open(path).map_err(fail)?;
        Recording::from_file(file, name.clone(), temp_files).map_err(|e| e.file(&name))
    }

    /// Opens an open file, for example standard input. A regular file is mapped, all else streamed.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not a recording.
    pub fn from_file(file: File, name: Arc<str>, temp_files: TempFiles) -> Result<Recording> {
        let metadata = file.metadata().map_err(|e| Error::io("can't be examined", e).file(&name))?;
        if metadata.is_file() {
            Ok(Recording { opened: Some(metadata), ..Recording::from_mapped(file, name)? })
        } else {
            Recording::from_reader(Box::new(file), name, temp_files)
        }
    }

    /// Opens a recording in memory, in file form or pipe data. It needs no file system and no system calls.
    ///
    /// ```
    /// use perfx_format::read::Recording;
    ///
    /// # let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recorded/default.p73.data"))?;
    /// let recording = Recording::from_bytes(bytes, "uploaded")?;
    /// println!("{} events", recording.events.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It is not a recording.
    pub fn from_bytes(bytes: impl Into<Bytes>, name: impl Into<Arc<str>>) -> Result<Recording> {
        Recording::from_stored(&bytes.into(), None, name.into())
    }

    /// Reads pipe data as it arrives. A recording in file form needs random access and is spooled first.
    ///
    /// # Errors
    ///
    /// Nothing can be read, it is not a recording, or there is no room for a temporary file.
    pub fn from_reader(
        mut reader: Box<dyn Read + Send>,
        name: Arc<str>,
        temp_files: TempFiles,
    ) -> Result<Recording> {
        let fail = |e| Error::io("can't be read", e).file(&name);
        let mut head = Vec::new();
        reader.by_ref().take(PIPE_HEADER_SIZE as u64).read_to_end(&mut head).map_err(fail)?;
        if Magic::read(&head).is_err() {
            reader.by_ref().take(TEXT_MAX as u64).read_to_end(&mut head).map_err(fail)?;
        }
        let (text, magic) = Magic::read_after_text(&head).map_err(|e| e.file(&name))?;
        if magic.size == PIPE_HEADER_SIZE as u64 && text == 0 {
            let source =
                Source::Reader { reader, pending: Vec::new(), offset: PIPE_HEADER_SIZE as u64, temp_files };
            return Recording::from_pipe(source, magic.endian, name.clone()).map_err(|e| e.file(&name));
        }
        let fail = |e| Error::io("can't be copied to a temporary file", e).file(&name);
        let mut file = temp_files().map_err(fail)?;
        file.write_all(&head).map_err(fail)?;
        copy_rest(&mut reader, &mut file).map_err(fail)?;
        Recording::from_mapped(file, name)
    }

    /// The recording, read as far as possible: faults that forbid writing count as losses, and batches
    /// continue after bytes that are not records, which [`Batch::fragment`] describes. Input that is not
    /// mapped is read up to its first fault.
    pub fn lenient(mut self) -> Recording {
        for fault in &mut self.faults {
            if fault.severity == Severity::Fatal {
                fault.severity = Severity::Loss;
            }
        }
        self.lenient = true;
        self.extents = Arc::default();
        self.late_events = Arc::default();
        self
    }

    /// The recording, with batches of the data that has arrived from a pipe, however little, so that a slow
    /// one can be followed. Otherwise batches have the same extents as those of a file.
    pub fn live(mut self) -> Recording {
        self.live = true;
        self
    }

    /// A copy of the recording for another reading. `None` if its records can be read only once.
    pub fn try_clone(&self) -> Option<Recording> {
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
            opened: self.opened.clone(),
            lenient: self.lenient,
            live: self.live,
            progress: self.progress.clone(),
            extents: self.extents.clone(),
            late_events: self.late_events.clone(),
        })
    }

    /// Copies a recording that is not mapped into a temporary file, so that it can be read more than once.
    ///
    /// # Errors
    ///
    /// The pipe cannot be read to its end, or there is no room for a temporary file.
    pub fn spooled(mut self, temp_files: &TempFiles) -> Result<Recording> {
        let Some(Stream { source: Source::Reader { .. }, .. }) = self.streams.first() else {
            return Ok(self);
        };
        let name = self.name.clone();
        let fail = |e| Error::io("can't be copied to a temporary file", e).file(&name);
        let mut file = temp_files().map_err(fail)?;
        file.write_all(&Magic::pipe_header(self.endian)).map_err(fail)?;
        for batch in &self.head {
            file.write_all(&batch.bytes).map_err(fail)?;
        }
        if let Source::Reader { mut reader, pending, .. } = self.streams.remove(0).source {
            file.write_all(&pending).map_err(fail)?;
            copy_rest(&mut reader, &mut file).map_err(fail)?;
        }
        // The fragments found before are not in the copy.
        let Recording { mut faults, progress, .. } = self;
        let spooled = Recording::from_mapped(file, name.clone())?;
        faults.extend(spooled.faults.iter().cloned());
        Ok(Recording { faults, progress, ..spooled })
    }

    /// The mapped bytes, for reading them again; none unless mapped or [spooled](Recording::spooled).
    pub fn stored_bytes(&self) -> StoredBytes {
        let mapped = self.streams.iter().filter_map(|stream| match &stream.source {
            Source::Mapped { bytes, offset, .. } => Some((stream.index, *offset, bytes.clone())),
            Source::Reader { .. } => None,
        });
        StoredBytes(mapped.collect())
    }

    /// The file that contains the records; of a directory, the first one.
    pub fn main_file(&self) -> Option<Arc<File>> {
        self.streams.first().and_then(|stream| match &stream.source {
            Source::Mapped { file, .. } => file.clone(),
            Source::Reader { .. } => None,
        })
    }

    /// The metadata of the file when it was opened, before any of it was read; for a directory, that of
    /// `data`. `None` if it is not a regular file.
    pub fn opened(&self) -> Option<&Metadata> {
        self.opened.as_ref()
    }

    /// The files with the records; none if they can be read only once.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.streams.iter().filter_map(|stream| match &stream.source {
            Source::Mapped { file, .. } => file.as_deref(),
            Source::Reader { .. } => None,
        })
    }

    /// Checks that mapped files are still as long as when they were opened. If less than a page was cut off,
    /// the end reads as zeros without a signal.
    ///
    /// # Errors
    ///
    /// A file is shorter than when it was opened.
    pub fn check_not_cut_short(&self) -> Result<()> {
        for stream in &self.streams {
            if let Source::Mapped { bytes, file: Some(file), .. } = &stream.source
                && let Some(len) = bytes.mapped_len()
                && file.metadata().is_ok_and(|now| now.len() < len)
            {
                let what = "another program truncated the file while it was being read: try again";
                return Err(Error::new(what).file(&stream.name));
            }
        }
        Ok(())
    }

    fn from_mapped(file: File, name: Arc<str>) -> Result<Recording> {
        let bytes = Bytes::map(&file).map_err(|e| e.file(&name))?;
        Recording::from_stored(&bytes, Some(Arc::new(file)), name)
    }

    fn from_stored(bytes: &Bytes, file: Option<Arc<File>>, name: Arc<str>) -> Result<Recording> {
        let (text, magic) = Magic::read_after_text(bytes).map_err(|e| e.file(&name))?;
        if magic.size == PIPE_HEADER_SIZE as u64 {
            let start = text + PIPE_HEADER_SIZE;
            let source =
                Source::Mapped { bytes: bytes.slice(start..bytes.len()), file, offset: start as u64 };
            let pipe = Recording::from_pipe(source, magic.endian, name.clone());
            let mut pipe = pipe.map_err(|e| e.file(&name))?;
            if text > 0 {
                let what =
                    bytes_that(text, " of text before the recording is", " of text before the recording are")
                        + " left out: standard error went into the pipe";
                let (code, severity) = (FaultCode::PerfMessage, Severity::Loss);
                pipe.faults.insert(0, Fault { code, offset: 0, what, severity, hint: None });
            }
            return Ok(pipe);
        }
        Recording::from_file_header(bytes, file, name.clone()).map_err(|e| e.file(&name))
    }

    pub(super) fn from_file_header(
        bytes: &Bytes,
        file: Option<Arc<File>>,
        name: Arc<str>,
    ) -> Result<Recording> {
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
            opened: None,
            lenient: false,
            live: false,
            progress: Arc::default(),
            extents: Arc::default(),
            late_events: Arc::default(),
            file: Some(header),
            name,
        })
    }

    /// Pipe data: the leading records with the events and features, outside [`Recording::batches`].
    pub fn head(&self) -> &[Batch] {
        &self.head
    }

    /// Like [`Recording::head`], without a copy: that is empty afterwards.
    pub fn take_head(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.head)
    }

    /// Takes the contents of a header record that was among the records of pipe data. Returns an entry of
    /// feature BUILD_ID, which is for the caller to add.
    pub fn absorb(&mut self, header: HeaderRecord) -> Option<Vec<u8>> {
        match header {
            HeaderRecord::Event(event) => self.events.push(event),
            HeaderRecord::Feature(feature, section) => drop(self.features.insert(feature, section)),
            HeaderRecord::EventType(entry) => self.event_types.extend(entry),
            HeaderRecord::BuildId(entry) => return Some(entry),
            HeaderRecord::EndOfFeatures => {}
        }
        None
    }

    /// Bytes of damaged header records of pipe data, which were not read.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Continues the zstd streams of the files before it in a chain: see [`Recording::continues_stream`].
    pub fn continue_from(&mut self, chain: Chain) {
        self.chain = Some(chain);
    }

    /// The state of the files before it in a chain.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// The number of independent streams of records, and so of zstd streams.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The names of the streams' files, indexed by the number in an [`Origin`](crate::Origin).
    pub fn stream_names(&self) -> Vec<Arc<str>> {
        self.streams.iter().map(|stream| stream.name.clone()).collect()
    }

    /// True if the records can be read more than once.
    pub fn is_rereadable(&self) -> bool {
        self.streams.iter().all(|stream| matches!(stream.source, Source::Mapped { .. }))
    }

    /// Bytes of records, if known in advance.
    pub fn data_size(&self) -> Option<u64> {
        self.streams
            .iter()
            .map(|stream| match &stream.source {
                Source::Mapped { bytes, .. } => Some(bytes.len() as u64),
                Source::Reader { .. } => None,
            })
            .sum()
    }

    /// The part of it that has been read.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The contents of feature COMPRESSED, if present.
    pub fn compressed(&self) -> Option<Compressed> {
        Compressed::read(self.features.get(&Feature::COMPRESSED)?, self.endian)
    }

    /// True if it may contain COMPRESSED records: perf stat record writes the feature with zeros.
    pub fn is_compressed(&self) -> bool {
        self.compressed().is_some_and(|compressed| compressed.mmap_len > 0)
    }

    /// The events that pipe data defines after its head, which [`Recording::events`] lacks: perf inject
    /// --itrace writes an attr when it makes the first sample of a new event. Their numbers continue those of
    /// `events`. Empty until all batches have been read once.
    pub fn late_events(&self) -> &[Event] {
        self.late_events.get().map_or(&[], Vec::as_slice)
    }

    /// The events of its head, and the late ones.
    pub fn all_events(&self) -> Vec<Event> {
        [&self.events[..], self.late_events()].concat()
    }

    /// True if it has been read to its end and contains no record of these kinds, as stored.
    pub fn is_known_to_lack(&self, kinds: Kinds) -> bool {
        self.extents.get().is_some_and(|extents| !extents.iter().any(|extent| extent.kinds.intersects(kinds)))
    }

    /// True if its zstd stream continues that of a previous file: `perf record -z --switch-output` never
    /// restarts it. Decided by the first COMPRESSED record of a single-stream file, which then begins no
    /// frame.
    ///
    /// # Errors
    ///
    /// The records before the first compressed one cannot be read.
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

    /// Returns the first fault that forbids writing anything made from this recording, as an error.
    ///
    /// # Errors
    ///
    /// There is such a fault.
    pub fn check_whole(&self) -> Result<()> {
        match self.faults.iter().find(|fault| fault.severity == Severity::Fatal) {
            Some(fault) => Err(fault.to_error().file(&self.name)),
            None => Ok(()),
        }
    }

    /// All batches as stored, stream after stream. If the recording is not mapped, this works once.
    pub fn batches(&mut self) -> Batches {
        let layouts = Arc::new(Layouts::new(&self.events));
        let rereadable = self.is_rereadable();
        let mut cutters = Vec::new();
        for stream in &mut self.streams {
            let source = match &mut stream.source {
                Source::Mapped { bytes, file, offset } => {
                    Source::Mapped { bytes: bytes.clone(), file: file.clone(), offset: *offset }
                }
                Source::Reader { reader, pending, offset, temp_files } => Source::Reader {
                    reader: std::mem::replace(reader, Box::new(io::empty())),
                    pending: std::mem::take(pending),
                    offset: *offset,
                    temp_files: temp_files.clone(),
                },
            };
            let stream = Stream { name: stream.name.clone(), index: stream.index, source };
            let cutter = Cutter::new(stream, self.endian, layouts.clone());
            cutters.push(Cutter { lenient: self.lenient, eager: self.live, ..cutter });
        }
        Batches {
            cutters,
            at: 0,
            pipe: (self.form == Form::Pipe).then(|| (self.events.clone(), self.events.len())),
            lenient: self.lenient,
            layouts,
            again: if self.extents.get().is_some() { Some(0) } else { None },
            new_extents: rereadable.then(Vec::new),
            extents: self.extents.clone(),
            late_events: self.late_events.clone(),
            progress: self.progress.clone(),
        }
    }

    /// Drops the batches for which `keep` is false from all later readings; those that every reading needs
    /// stay. Does nothing before all batches have been read once.
    pub fn retain_batches(&mut self, keep: impl Fn(&Batch) -> bool) {
        let mut numbers = Vec::new();
        self.number_batches(|number, batch| {
            if batch.is_none_or(&keep) {
                numbers.push(number);
            }
        });
        self.retain_numbered(&numbers);
    }

    /// Calls `see` with the number of each batch, and the batch, or `None` if every reading needs it: because
    /// of compressed records, late events of pipe data, or a damaged end. Does nothing before all batches
    /// have been read once.
    pub fn number_batches(&mut self, mut see: impl FnMut(usize, Option<&Batch>)) {
        if self.extents.get().is_none() {
            return;
        }
        let always = Kinds::COMPRESSED.union(Kinds::of(&[RecordType::HEADER_ATTR]));
        // No progress is shown.
        let progress = std::mem::take(&mut self.progress);
        for (number, batch) in self.batches().enumerate() {
            let batch =
                batch.ok().filter(|batch| batch.fragment.is_none() && !batch.kinds.intersects(always));
            see(number, batch.as_ref());
        }
        self.progress = progress;
    }

    /// Drops all batches except those with these numbers from all later readings.
    pub fn retain_numbered(&mut self, numbers: &[usize]) {
        if let Some(extents) = self.extents.get() {
            let kept = numbers.iter().filter_map(|&number| extents.get(number).cloned());
            self.extents = Arc::new(OnceLock::from(kept.collect::<Vec<_>>()));
        }
    }

    /// All batches with COMPRESSED records replaced by their contents, in file order, expanded on the calling
    /// thread. If the recording is not mapped, this works once.
    ///
    /// ```
    /// use perfx_format::RecordType;
    /// use perfx_format::read::Recording;
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recorded/default.p73.data");
    /// let mut samples = 0;
    /// for batch in Recording::open(path)?.decompressed() {
    ///     let batch = batch?;
    ///     let mut walker = batch.walk();
    ///     while let Some(record) = walker.next_record()? {
    ///         samples += u64::from(record.kind() == RecordType::SAMPLE);
    ///     }
    /// }
    /// assert!(samples > 0);
    /// # Ok::<(), perfx_format::Error>(())
    /// ```
    pub fn decompressed(&mut self) -> Expand<impl Iterator<Item = Result<DecodeUnit>> + Send + use<>> {
        let mmap_len = self.compressed().map_or(0, |compressed| compressed.mmap_len);
        expand_alone(self.batches(), self.endian, mmap_len, false)
    }

    /// All records in file order, COMPRESSED ones replaced by their contents: see [`Records`]. If the
    /// recording is not mapped, this works once.
    pub fn records(&mut self) -> Records {
        Records::new(self.decompressed())
    }

    /// All records in time order, COMPRESSED ones replaced by their contents: see [`TimeOrder`]. The
    /// recording is read once before this returns, and again for the records. A recording that can be read
    /// only once, and data that does not fit in 32 MiB of memory, goes to temporary files.
    ///
    /// # Errors
    ///
    /// A pipe cannot be read to its end, or there is no room for a temporary file.
    pub fn records_by_time(self) -> Result<TimeOrder> {
        let temp_files = temp_files();
        let mut recording = self.spooled(&temp_files)?;
        let (survey, batches) = (recording.decompressed(), recording.decompressed());
        let files = recording.stream_names();
        Ok(TimeOrder::new(survey, batches, &recording.events, recording.endian, files, temp_files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without features, no C library and no file is needed: see .ci/check-targets.
    #[test]
    fn a_recording_in_memory_is_read_whole() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recorded");
        for (name, samples) in [
            ("default.p73.data", 50),
            ("z.p61.data", 102),
            ("z22.p73.data", 102),
            ("pipe-z.p73.data", 106),
            ("z-straddle.p73.data", 1341),
        ] {
            let Ok(bytes) = std::fs::read(folder.join(name)) else { continue };
            let mut recording = Recording::from_bytes(bytes.clone(), name).unwrap();
            let (mut count, mut records) = (0, recording.records());
            while let Some(record) = records.next_record().unwrap() {
                count += usize::from(record.kind() == RecordType::SAMPLE);
            }
            assert_eq!(count, samples, "{name}");
            let mut sorted = Recording::from_bytes(bytes, name).unwrap().records_by_time().unwrap();
            while let Some(record) = sorted.next_record().unwrap() {
                count -= usize::from(record.kind() == RecordType::SAMPLE);
            }
            assert_eq!(count, 0, "{name}");
        }
        assert!(Recording::from_bytes(b"no recording".to_vec(), "no").is_err());
    }
}
