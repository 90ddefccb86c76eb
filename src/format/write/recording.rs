//! Writes a recording from its events, records and features, as a file or as pipe data that every perf reads.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;

use super::{pipe_front, write_tail};
use crate::features::{AuxtraceEntry, FeatureContext, NrCpus, Repaired, repair, write_auxtrace_index};
use crate::header::{FILE_HEADER_SIZE, Features, FileFront};
use crate::record::builder::build;
use crate::record::header_records::HeaderRecord;
use crate::section::Section;
use crate::{Bytes, Endian, Error, Event, Feature, Kinds, Origin, Record, RecordType, Result};

/// Writes a recording: first the events, then the records, then the features.
///
/// ```
/// use std::io::Cursor;
/// use perfx_format::read::Recording;
/// use perfx_format::write::RecordingWriter;
/// use perfx_format::{Attr, Comm, Endian, Event, Time, sample_type};
///
/// let endian = Endian::Little;
/// let mut attr = Attr::default();
/// attr.type_ = 1; // software
/// attr.sample_type = sample_type::TID | sample_type::TIME;
/// let events = [Event::made(&attr, vec![1], endian)];
///
/// let mut writer = RecordingWriter::to_file(Cursor::new(Vec::new()), &events, endian)?;
/// let comm = Comm { pid: 7, tid: 7, name: b"sh" };
/// writer.write(&comm.write(0, &[], endian).expect("a short name fits"))?;
/// writer.write_parts(perfx_format::RecordType::SAMPLE, 0, &[&[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(1_000)])?;
/// let bytes = writer.finish()?.into_inner();
///
/// let mut recording = Recording::from_bytes(bytes, "made")?;
/// let mut records = recording.records();
/// assert_eq!(records.next_record()?.and_then(|comm| comm.pid()), Some(7));
/// assert_eq!(records.next_record()?.and_then(|sample| sample.time()), Time::from_ns(1_000));
/// # Ok::<(), perfx_format::Error>(())
/// ```
pub struct RecordingWriter<W: Write> {
    out: BufWriter<W>,
    at: u64,
    endian: Endian,
    file: Option<FileForm<W>>,
    /// `Some` for a file that is created by its path.
    pub(super) created: Option<Created>,
}

/// A file that is created by its path, and gets its name when it is complete.
pub(super) struct Created {
    pub(super) name: Arc<str>,
    pub(super) commit: Box<dyn FnOnce() -> io::Result<()> + Send + Sync>,
}

struct FileForm<W> {
    front: FileFront,
    features: Features,
    event_types: Vec<u8>,
    aux: Vec<AuxtraceEntry>,
    kinds: Kinds,
    set_header: SetHeader<W>,
}

impl<W: Write> std::fmt::Debug for RecordingWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordingWriter({} bytes so far)", self.at)
    }
}

impl<W: Write + Seek> RecordingWriter<W> {
    /// Writes in file form from the start of `out`, which must be empty.
    ///
    /// # Errors
    ///
    /// `out` cannot be written.
    pub fn to_file(out: W, events: &[Event], endian: Endian) -> Result<Self> {
        let front = FileFront::new(events, endian);
        let mut writer =
            RecordingWriter { out: BufWriter::new(out), at: 0, endian, file: None, created: None };
        writer.append(&front.bytes)?;
        writer.file = Some(FileForm {
            front,
            features: Features::new(),
            event_types: Vec::new(),
            aux: Vec::new(),
            kinds: Kinds::NONE,
            set_header: |out, header| {
                out.seek(SeekFrom::Start(0))?;
                out.write_all(header)?;
                out.seek(SeekFrom::End(0)).map(drop)
            },
        });
        Ok(writer)
    }
}

impl<W: Write> RecordingWriter<W> {
    /// Writes pipe data, with all features before the first record; AUXTRACE and DIR_FORMAT are left out.
    ///
    /// # Errors
    ///
    /// `out` cannot be written, an event has more ids than fit into a record, or a feature does not fit into
    /// pipe data or makes some perf stop reading.
    pub fn to_pipe(out: W, events: &[Event], features: &Features, endian: Endian) -> Result<Self> {
        let mut readable_features = Features::new();
        for (&feature, section) in features {
            readable_features.insert(feature, readable(feature, section.clone(), features, endian)?);
        }
        let (front, unsaid) = pipe_front(events, &readable_features, endian)?;
        if let Some((feature, why)) = unsaid.first() {
            return Err(Error::new(format!("feature {feature} can't be written as pipe data: {why}")));
        }
        let mut writer =
            RecordingWriter { out: BufWriter::new(out), at: 0, endian, file: None, created: None };
        writer.append(&front)?;
        Ok(writer)
    }

    /// Writes whole records, one after the other, each with its payload. In file form, the contents of pipe
    /// data's header records go into the header.
    ///
    /// # Errors
    ///
    /// The bytes are not whole records; a record describes an event or, in pipe data, belongs before all
    /// others; or the output cannot be written.
    pub fn write(&mut self, records: &[u8]) -> Result<()> {
        let origins = crate::Origins::default();
        let mut walker = crate::Walker::new(records, &origins, self.endian);
        while let Some(record) = walker.next_record()? {
            self.write_record(&record)?;
        }
        Ok(())
    }

    /// Writes one record, built or read from a recording of the same byte order.
    ///
    /// # Errors
    ///
    /// See [`RecordingWriter::write`].
    pub fn write_record(&mut self, record: &Record<'_>) -> Result<()> {
        if record.endian() != self.endian {
            return Err(record.error("its byte order differs from that of the output"));
        }
        match HeaderRecord::read(record)? {
            None | Some(HeaderRecord::BuildId(_)) => {}
            Some(header) => return self.write_header_record(header, record),
        }
        if let Some(file) = &mut self.file {
            file.kinds.insert(record.kind());
            if record.kind() == RecordType::AUXTRACE {
                file.aux.push(AuxtraceEntry { offset: self.at, size: record.bytes().len() as u64 });
            }
        }
        self.append(record.bytes())?;
        self.append(record.payload())
    }

    /// Writes a record that consists of a header and these parts.
    ///
    /// # Errors
    ///
    /// See [`RecordingWriter::write`]; also if the record is larger than a record can be.
    pub fn write_parts(&mut self, kind: RecordType, misc: u16, parts: &[&[u8]]) -> Result<()> {
        let bytes = build(kind, misc, parts, self.endian)
            .ok_or_else(|| Error::new("the parts are larger than a record can be").record(kind))?;
        self.write_record(&Record::new(&bytes, &[], Origin::Synthetic, self.endian)?)
    }

    fn write_header_record(&mut self, header: HeaderRecord, record: &Record<'_>) -> Result<()> {
        match (header, &mut self.file) {
            (HeaderRecord::Feature(feature, section), Some(_)) => self.set_feature(feature, section),
            (HeaderRecord::EventType(entry), Some(file)) => {
                file.event_types.extend(entry);
                Ok(())
            }
            (HeaderRecord::EndOfFeatures, Some(_)) => Ok(()),
            (HeaderRecord::EventType(_), None) => self.append(record.bytes()),
            (_, None) => Err(record.error("it belongs before the first record of pipe data")),
            (_, Some(_)) => Err(record.error("events come before the first record of a file")),
        }
    }

    /// Sets a feature of a file. The writer makes AUXTRACE, the index of the AUXTRACE records, itself; it
    /// leaves out COMPRESSED if no record is compressed, and always DIR_FORMAT.
    ///
    /// # Errors
    ///
    /// Some perf stops reading at this section, or the output is pipe data, where features come first.
    pub fn set_feature(&mut self, feature: Feature, section: impl Into<Bytes>) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(Error::new(format!(
                "feature {feature} comes too late: in pipe data, features precede the records"
            )));
        };
        let section = readable(feature, section.into(), &file.features, self.endian)?;
        file.features.insert(feature, section);
        Ok(())
    }

    /// Writes everything after the records, gives a created file its name, and returns the underlying writer.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn finish(mut self) -> Result<W> {
        let header = match self.file.take() {
            Some(file) => Some(self.finish_file(file)?),
            None => None,
        };
        let RecordingWriter { out, created, .. } = self;
        let fail = |error| unwritable(error, created.as_ref());
        let mut out = out.into_inner().map_err(|e| fail(e.into_error()))?;
        if let Some((header, set_header)) = header {
            set_header(&mut out, &header).map_err(fail)?;
        }
        out.flush().map_err(fail)?;
        if let Some(Created { name, commit }) = created {
            commit().map_err(|error| Error::io("can't be written", error).file(&name))?;
        }
        Ok(out)
    }

    fn finish_file(&mut self, mut file: FileForm<W>) -> Result<Header<W>> {
        let data_at = file.front.bytes.len() as u64;
        let data = Section { offset: data_at, size: self.at - data_at };
        file.features.remove(&Feature::DIR_FORMAT);
        if !file.kinds.intersects(Kinds::COMPRESSED) {
            file.features.remove(&Feature::COMPRESSED);
        }
        match file.aux.as_slice() {
            [] => file.features.remove(&Feature::AUXTRACE),
            aux => file.features.insert(Feature::AUXTRACE, write_auxtrace_index(aux, self.endian).into()),
        };
        let types = write_tail(&mut self.out, data, &file.features, &[], &file.event_types, self.endian);
        let types = types.map_err(|error| unwritable(error, self.created.as_ref()))?;
        let header = file.front.header(data, types, file.features.keys().copied());
        Ok((header, file.set_header))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| unwritable(error, self.created.as_ref()))
    }
}

type Header<W> = ([u8; FILE_HEADER_SIZE], SetHeader<W>);

type SetHeader<W> = fn(&mut W, &[u8]) -> io::Result<()>;

fn unwritable(error: io::Error, created: Option<&Created>) -> Error {
    match created {
        Some(Created { name, .. }) => Error::io("can't be written", error).file(name),
        None => Error::io("the output can't be written", error),
    }
}

/// The section in a form that every perf reads.
fn readable(feature: Feature, section: Bytes, features: &Features, endian: Endian) -> Result<Bytes> {
    let cpus = features.get(&Feature::NRCPUS).and_then(|section| NrCpus::read(section, endian));
    match repair(feature, &section, endian, FeatureContext { cpus }) {
        Repaired::Sound => Ok(section),
        Repaired::Rewritten(section) => Ok(section.into()),
        Repaired::Unreadable(why) => {
            Err(Error::new(format!("perf stops reading at this section of feature {feature}: {why}")))
        }
    }
}
