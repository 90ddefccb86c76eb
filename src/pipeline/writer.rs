//! Writes front, records and features of the output, and tracks the new positions of records.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use perfx_format::features::{AuxtraceEntry, read_auxtrace_index, write_auxtrace_index};
use perfx_format::header::{EVENT_TYPE_SIZE, FILE_HEADER_SIZE, Features, FileFront, FileHeader, Magic};
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::record::header_records::is_feature;
use perfx_format::section::Section;
use perfx_format::write::{event_type_record, feature_record, pipe_front, write_tail};
use perfx_format::{Bytes, Endian, Error, Event, Feature, Kinds, Layouts, Origin, RecordType};

use crate::ensure;
use crate::error::{Context as _, Result};
use crate::output::{Output, OutputForm};
use crate::plan::{Mark, Piece, Plan};
use crate::report::Level;
use crate::session::Session;
use crate::share::{Sharing, WORTH_SHARING};
use crate::sink::Sink;
use crate::text::counted;

const PAGE: usize = perfx_format::PAGE as usize;

const MOVED_AT_ONCE: u64 = 1 << 20;

/// Maximum number of zeros before the data of an output of this length. With them, a long unchanged range
/// keeps its offset in a page, so that file systems can share it with the input.
pub fn zeros_before_data(len: u64) -> u64 {
    if len < WORTH_SHARING as u64 { 0 } else { PAGE as u64 - 1 }
}

pub(crate) struct Writer<'a> {
    sink: Sink<'a>,
    file: Option<&'a File>,
    front: Option<FileFront>,
    events: Vec<Event>,
    data_offset: u64,
    spare_slots: Vec<u8>,
    /// The bytes after the last section of the input's file.
    trailing: Bytes,
    marks: Vec<Mark>,
    moved: bool,
    /// Records dropped because they would become part of the front of pipe data.
    misplaced: BTreeMap<RecordType, u64>,
    pub(crate) kinds: Kinds,
    /// Positions of AUXTRACE records dropped by passes, bytes from the start of the input.
    dropped_aux: HashSet<u64>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        output: &'a mut Output<'_>,
        recording: &Recording,
        session: &mut Session,
    ) -> Result<Writer<'a>> {
        let form = output.form();
        let (inner, file): (Box<dyn Write + 'a>, _) = match output {
            Output::File(file, OutputForm::Pipe) => (Box::new(*file), None),
            Output::File(file, _) => (Box::new(*file), Some(*file)),
            Output::Pipe(pipe) => (Box::new(&mut **pipe), None),
            Output::Nowhere(_) => (Box::new(io::sink()), None),
        };
        let header = recording.file.as_ref();
        // A pass that omits bytes outside sections reports that itself.
        let kept = header.filter(|_| !session.drops_unnamed);
        let mut writer = Writer {
            sink: Sink::new(inner, file.and_then(Sharing::with)),
            file,
            front: None,
            events: session.events.clone(),
            data_offset: 0,
            // Kept, so that an unchanged file is byte-identical.
            spare_slots: kept.map_or(Vec::new(), |file| file.spare_slots.clone()),
            trailing: kept.map_or_else(Bytes::default, |file| file.trailing.clone()),
            marks: Vec::new(),
            moved: false,
            misplaced: BTreeMap::new(),
            kinds: Kinds::NONE,
            dropped_aux: HashSet::new(),
        };
        if form != OutputForm::InPlace {
            writer.say_unnamed(form, header, session);
        }
        if form == OutputForm::Pipe {
            if recording.form != Form::Pipe {
                say_unordered(session);
            }
            writer.pipe_front(recording, session)?;
            return Ok(writer);
        }
        let mut front = FileFront::new(&session.events, recording.endian);
        let long = recording.file.as_ref().is_some_and(|file| file.magic.size == FILE_HEADER_SIZE as u64);
        front.may_be_short = recording.endian == Endian::Big && !long;
        if session.events.len() > recording.events.len() {
            // perf starts the data on a page boundary when it adds events, and tests compare with perf.
            front.bytes.resize(front.bytes.len().next_multiple_of(PAGE), 0);
        }
        // Pipe data has other offsets in a file than in a pipe, and both must give the same output.
        if form != OutputForm::InPlace && recording.form != Form::Pipe {
            writer.sink.hold();
        }
        writer.append(&front.bytes)?;
        writer.front = Some(front);
        writer.data_offset = writer.sink.position();
        Ok(writer)
    }

    /// Reports the bytes outside all sections that the output cannot hold; zeros are not reported.
    fn say_unnamed(&self, form: OutputForm, file: Option<&FileHeader>, session: &mut Session) {
        let mut lose = |what: Error| {
            let what = what.file(&session.name).to_string();
            session.report.say(Level::Loss, what);
        };
        for Section { offset, size } in file.map_or(&[][..], |file| &file.holes) {
            let bytes = counted(*size, "byte", "bytes");
            lose(Error::at(*offset, format!("left out {bytes} outside all sections")));
        }
        let in_pipe =
            [("after the last section", &self.trailing[..]), ("after the feature table", &self.spare_slots)];
        for (place, bytes) in in_pipe.into_iter().filter(|_| form == OutputForm::Pipe) {
            if bytes.iter().any(|&byte| byte != 0) {
                let bytes = counted(bytes.len() as u64, "byte", "bytes");
                lose(Error::new(format!("left out {bytes} {place}, for which pipe data has no place")));
            }
        }
    }

    fn pipe_front(&mut self, recording: &Recording, session: &mut Session) -> Result<()> {
        let endian = recording.endian;
        let is_kept = recording.form == Form::Pipe
            && session.events == recording.events
            && session.event_types == recording.event_types;
        if is_kept && *session.features() == recording.features {
            self.append(&Magic::pipe_header(endian))?;
            return recording.head().iter().try_for_each(|batch| self.append(&batch.bytes));
        }
        let but_compressed = |features: &Features| {
            let mut features = features.clone();
            features.remove(&Feature::COMPRESSED);
            features
        };
        let same = but_compressed(session.features()) == but_compressed(&recording.features);
        if is_kept && same {
            return self.pipe_head(recording, session);
        }
        session.repair_features(Feature(u8::MAX));
        let front = pipe_front(&session.events, session.features(), endian);
        let (front, unsaid) = front.map_err(|e| e.file(&recording.name))?;
        self.append(&front)?;
        for (feature, why) in unsaid {
            session.report.say(Level::Loss, format!("feature {feature} was left out: {why}"));
        }
        for entry in session.event_types.chunks_exact(EVENT_TYPE_SIZE) {
            self.append(&event_type_record(entry, endian))?;
        }
        Ok(())
    }

    /// The leading records of pipe data with the new COMPRESSED, so that decompressing restores the pipe.
    fn pipe_head(&mut self, recording: &Recording, session: &Session) -> Result<()> {
        let endian = recording.endian;
        self.append(&Magic::pipe_header(endian))?;
        for batch in recording.head() {
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                if !is_feature(&record, Feature::COMPRESSED) {
                    self.append(record.bytes())?;
                    self.append(record.payload())?;
                }
            }
        }
        let Some(section) = session.feature(Feature::COMPRESSED) else { return Ok(()) };
        let record = feature_record(Feature::COMPRESSED, section, endian);
        self.append(&record.context("feature COMPRESSED is longer than a record of pipe data can be")?)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.append(bytes).map_err(unwritable)
    }

    pub(crate) fn plan(&mut self, plan: &Plan, batch: Option<&Batch>, session: &mut Session) -> Result<()> {
        let none = Bytes::default();
        let (stored, place) = batch.map_or((&none, None), |batch| (&batch.bytes, batch.stored.as_ref()));
        if let Some((_, offset)) = place.filter(|_| self.sink.is_held()) {
            self.align(plan, *offset);
        }
        let start = self.sink.position();
        self.moved |= !plan.is_all_of(stored.len());
        for piece in &plan.pieces {
            match piece {
                Piece::Stored(range) => self.sink.append_stored(place, stored, range.clone()),
                Piece::Made(range) => self.sink.append(&plan.arena[range.clone()]),
            }
            .map_err(unwritable)?;
        }
        ensure!(
            self.sink.position() == start + plan.len,
            "internal error: the plan of a batch has {} bytes, but {} were written",
            plan.len,
            self.sink.position() - start
        );
        self.marks.extend(plan.marks.iter().map(|mark| Mark { at: start + mark.at, ..*mark }));
        self.dropped_aux.extend(plan.dropped_aux.iter().filter_map(|origin| Some(origin.stored_at()?.1)));
        for (&kind, count) in &plan.dropped {
            *session.report.dropped.entry(kind).or_default() += count;
        }
        for (&kind, count) in &plan.misplaced {
            *self.misplaced.entry(kind).or_default() += count;
        }
        Ok(())
    }

    /// Moves the data so that the first long range of the input keeps its offset in a page, without which it
    /// can't be shared. The zeros before the data do not depend on the file system, so that the same input
    /// gives the same output everywhere. perf leaves such zeros, too.
    fn align(&mut self, plan: &Plan, offset: u64) {
        let Some((before, start)) = plan.first_stored(WORTH_SHARING) else { return };
        let (from, to) = (offset + start as u64, self.sink.position() + before);
        let by = from.wrapping_sub(to) % PAGE as u64;
        self.sink.insert(self.data_offset, by);
        self.data_offset += by;
        self.marks.iter_mut().for_each(|mark| mark.at += by);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_some() && self.sink.position() == self.data_offset
    }

    /// Writes everything after the data; returns the length of the output, and whether records changed.
    pub(crate) fn finish(mut self, from_pipe: bool, session: &mut Session) -> Result<(u64, bool)> {
        for (kind, count) in &self.misplaced {
            let records = counted(*count, "record", "records");
            let what = format!(
                "left out {records} of {kind} among the data, because in pipe data they would change the header"
            );
            session.report.say(Level::Loss, what);
        }
        let Some(mut front) = self.front.take() else {
            self.flush()?;
            return Ok((self.sink.position(), self.moved));
        };
        let endian = session.endian;
        if session.events != self.events {
            self.lay_out_again(&mut front, session)?;
        }
        let data = Section { offset: self.data_offset, size: self.sink.position() - self.data_offset };
        self.index_aux(from_pipe, session);
        if from_pipe {
            say_refused(session);
        }
        let features = session.features().clone();
        let types =
            write_tail(&mut self.sink, data, &features, &self.spare_slots, &session.event_types, endian)
                .map_err(|e| Error::io("the output can't be written", e))?;
        if data.size > 0 || !features.is_empty() {
            self.append(&self.trailing.clone())?;
        } else if !self.trailing.is_empty() {
            // A header without any sections, followed by bytes, looks like a file of a killed perf record.
            let bytes = counted(self.trailing.len() as u64, "byte", "bytes");
            let what =
                format!("{bytes} after the last section were left out: there is no record and no feature");
            session.report.say(Level::Loss, what);
        }
        self.flush()?;
        if let Some(file) = self.file {
            let header = front.header(data, types, features.keys().copied());
            file.write_all_at(&header, 0).map_err(unwritable)?;
        }
        Ok((self.sink.position(), self.moved))
    }

    /// Lays the file out again as if all its events had been known from the start: the front grows by the
    /// events defined among pipe data's records, and the data moves.
    fn lay_out_again(&mut self, front: &mut FileFront, session: &Session) -> Result<()> {
        let may_be_short = front.may_be_short;
        *front = FileFront::new(&session.events, session.endian);
        front.may_be_short = may_be_short;
        if (front.bytes.len() as u64) < self.data_offset {
            front.bytes.resize(self.data_offset as usize, 0);
        }
        let by = front.bytes.len() as u64 - self.data_offset;
        self.flush()?;
        if let Some(mut file) = self.file {
            let moved = move_back(file, self.data_offset..self.sink.position(), by)
                .and_then(|()| file.write_all_at(&front.bytes, 0))
                .and_then(|()| file.seek(SeekFrom::Current(by as i64)));
            moved.map_err(unwritable)?;
        }
        self.sink.skip(by);
        self.data_offset += by;
        self.marks.iter_mut().for_each(|mark| mark.at += by);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.sink.flush().map_err(unwritable)
    }

    /// Rebuilds feature AUXTRACE, which contains file offsets, if records moved: each entry is updated to its
    /// record's offset; an entry without an AUXTRACE record is reported and dropped. Pipe data has no such
    /// feature, so there, and if a pass requests it, the records themselves are listed.
    fn index_aux(&mut self, from_pipe: bool, session: &mut Session) {
        let endian = session.endian;
        let listed = |mark: &Mark| AuxtraceEntry { offset: mark.at, size: mark.size };
        if session.rebuild_aux_index {
            let stays = session.form == OutputForm::InPlace;
            let there = |mark: &Mark| match mark.origin {
                Origin::Input { stream: 0, offset } => Some(AuxtraceEntry { offset, size: mark.size }),
                _ => None,
            };
            let entry = |mark| if stays { there(mark) } else { Some(listed(mark)) };
            let entries: Vec<_> = self.marks.iter().filter_map(entry).collect();
            match entries.as_slice() {
                [] => session.clear_feature(Feature::AUXTRACE),
                entries => session.set_feature(Feature::AUXTRACE, write_auxtrace_index(entries, endian)),
            }
            return;
        }
        if session.form == OutputForm::InPlace {
            return;
        }
        let Some(section) = session.feature(Feature::AUXTRACE) else {
            if from_pipe && !self.marks.is_empty() {
                let entries: Vec<_> = self.marks.iter().map(listed).collect();
                session.set_feature(Feature::AUXTRACE, write_auxtrace_index(&entries, endian));
            }
            return;
        };
        if session.set.contains(&Feature::AUXTRACE) {
            return;
        }
        let moved: HashMap<u64, &Mark> =
            self.marks.iter().filter_map(|mark| Some((mark.origin.stored_at()?.1, mark))).collect();
        let Some(old) = read_auxtrace_index(section, endian) else {
            let what = "the AUXTRACE index was unreadable and was rebuilt from the AUXTRACE records";
            session.report.say(Level::Warning, what);
            let entries: Vec<_> = self.marks.iter().map(listed).collect();
            session.set_feature(Feature::AUXTRACE, write_auxtrace_index(&entries, endian));
            return;
        };
        let new: Vec<AuxtraceEntry> =
            old.iter().filter_map(|entry| moved.get(&entry.offset)).map(|mark| listed(mark)).collect();
        let dropped = old.iter().filter(|entry| self.dropped_aux.contains(&entry.offset)).count();
        let astray = old.len() - new.len() - dropped;
        if astray > 0 {
            let what = format!(
                "{astray} of {} entries of the AUXTRACE index pointed at no AUXTRACE record and were left out",
                old.len()
            );
            session.report.say(Level::Warning, what);
        }
        if self.marks.is_empty() && dropped > 0 {
            session.clear_feature(Feature::AUXTRACE);
        } else if new != old {
            session.set_feature(Feature::AUXTRACE, write_auxtrace_index(&new, endian));
        }
    }
}

fn say_unordered(session: &mut Session) {
    // perf sorts a pipe, which has no event when opened, but not such a file (tools/perf/util/session.c).
    let is_stat = session.feature(Feature::STAT).is_some();
    if !is_stat && session.events.iter().any(|event| !event.attr().sample_id_all()) {
        let what = "events lack sample_id_all: as pipe data, perf from 6.12 on takes all records without a time before \
            the samples, so it may not find their processes and mappings; write a file instead (--to file)";
        session.report.say(Level::Loss, what);
    }
}

fn say_refused(session: &mut Session) {
    // evlist__valid_sample_type in tools/perf/util/evlist.c, except for recordings of perf stat.
    if session.feature(Feature::STAT).is_none()
        && let Err(error) = Layouts::new(&session.events).check_ids()
    {
        let what = format!("{}: perf refuses such a file, but reads pipe data (--to pipe)", error.what());
        session.report.say(Level::Loss, what);
    }
}

fn unwritable(error: io::Error) -> crate::Error {
    Error::io("can't write the output", error).into()
}

fn move_back(file: &File, range: Range<u64>, by: u64) -> io::Result<()> {
    let mut buffer = vec![0; MOVED_AT_ONCE.min(range.end - range.start) as usize];
    let mut end = range.end;
    while end > range.start {
        let start = range.start.max(end.saturating_sub(MOVED_AT_ONCE));
        let part = &mut buffer[..(end - start) as usize];
        file.read_exact_at(part, start)?;
        file.write_all_at(part, start + by)?;
        end = start;
    }
    Ok(())
}
