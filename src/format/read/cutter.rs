//! Cuts one stream into batches at record boundaries.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use super::batch::{BATCH_SIZE, Batch};
use super::fragment::Fragment;
use super::framed::{frame, frame_while};
use super::resync::{PROBES_PER_BYTE, covers_records, gap, is_sound};
use super::stream::{Source, Stream, TempFiles, read_once};
use crate::{Bytes, Endian, Error, Frame, Kinds, Layouts, Origin, Origins, RECORD_SIZE_MAX, Result};

pub(super) struct Cutter {
    pub(super) stream: Stream,
    pub(super) endian: Endian,
    pub(super) layouts: Arc<Layouts>,
    /// Mapped: bytes cut off so far.
    pub(super) at: usize,
    pub(super) ended: bool,
    /// True if bytes that are not records are skipped when records follow. Mapped streams only.
    pub(super) lenient: bool,
    /// The remaining bytes that searches for records may examine, so that all of them take linear time.
    pub(super) probes: u64,
    /// True if a read of a pipe does not wait for more than is available, as long as that contains a record.
    pub(super) eager: bool,
}

impl Cutter {
    pub(super) fn new(stream: Stream, endian: Endian, layouts: Arc<Layouts>) -> Cutter {
        let probes = match &stream.source {
            Source::Mapped { bytes, .. } => PROBES_PER_BYTE * bytes.len() as u64,
            Source::Reader { .. } => 0,
        };
        Cutter { stream, endian, layouts, at: 0, ended: false, lenient: false, probes, eager: false }
    }

    pub(super) fn mapped(&self) -> Option<&Bytes> {
        match &self.stream.source {
            Source::Mapped { bytes, .. } => Some(bytes),
            Source::Reader { .. } => None,
        }
    }

    /// A second cutter of the same mapped stream, at the same position.
    pub(super) fn of_mapped(&self) -> Option<Cutter> {
        let Source::Mapped { bytes, file, offset } = &self.stream.source else { return None };
        let source = Source::Mapped { bytes: bytes.clone(), file: file.clone(), offset: *offset };
        let stream = Stream { name: self.stream.name.clone(), index: self.stream.index, source };
        Some(Cutter { stream, layouts: self.layouts.clone(), ..*self })
    }

    pub(super) fn empty_batch(&self, offset: u64) -> Batch {
        Batch {
            bytes: Bytes::default(),
            endian: self.endian,
            origins: Origins::input(self.stream.index, offset),
            kinds: Kinds::NONE,
            records: 0,
            sparse_index: None,
            samples: None,
            sound: false,
            stored: None,
            name: self.stream.name.clone(),
            layouts: self.layouts.clone(),
            fragment: None,
            lost: None,
            opened: Vec::new(),
        }
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>> {
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
        // The end of a batch does not depend on its start, so that other threads can look for later batches.
        let enough = BATCH_SIZE - self.at % BATCH_SIZE;
        let mut probes = self.probes;
        let mut sound = self.lenient;
        let framed = if self.lenient {
            frame_while(&rest, self.endian, enough, |frame, at| {
                let is_sound = is_sound(&rest, frame, at, self.endian, &self.layouts);
                sound &= is_sound;
                is_sound || !covers_records(&rest, frame, at, self.endian, &self.layouts, &mut probes)
            })
        } else {
            frame(&rest, self.endian, enough)
        };
        let mut batch = Batch { sound, stored: file.clone().map(|file| (file, at)), ..self.empty_batch(at) };
        let ends_early = framed.bad.is_some() || framed.end < enough && framed.end < rest.len();
        let gap = if self.lenient && ends_early && framed.stray.is_none() {
            gap(&rest, &framed, self.endian, &self.layouts, &mut probes)
        } else {
            None
        };
        self.probes = probes;
        if let Some(gap) = gap {
            let origin = Origin::Input { stream, offset: at + gap.from as u64 };
            let (bytes, resumes) = ((gap.to - gap.from) as u64, gap.to < rest.len());
            batch.fragment = Some(Fragment { origin, kind: None, bytes, needs: 0, resumes, stray: None });
            let framed = frame(&rest[..gap.from], self.endian, usize::MAX);
            batch.hold(rest.slice(0..framed.end), &framed);
            self.at += gap.to;
            return Ok(Some(batch));
        }
        let framed = framed.sound(stream, at)?;
        batch.hold(rest.slice(0..framed.end), &framed);
        self.at += framed.end;
        if framed.end < enough && framed.end < rest.len() && framed.bad.is_none() {
            // The last record is longer than the rest of the data.
            let origin = Origin::Input { stream, offset: at + framed.end as u64 };
            batch.fragment = Some(framed.fragment(origin, (rest.len() - framed.end) as u64));
            self.at = bytes.len();
        }
        Ok(Some(batch))
    }

    fn next_read(&mut self) -> Result<Option<Batch>> {
        let (endian, stream) = (self.endian, self.stream.index);
        let Source::Reader { offset: at, .. } = self.stream.source else { return Ok(None) };
        let mut batch = self.empty_batch(at);
        let Source::Reader { reader, pending, offset, temp_files } = &mut self.stream.source else {
            return Ok(None);
        };
        let mut buffer = std::mem::take(pending);
        let fail = |e| Error::io("can't be read", e);
        let no_file = |e| Error::io("can't be copied to a temporary file", e);
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
        // The same extents as for mapped streams.
        let enough = if self.eager { usize::MAX } else { BATCH_SIZE - self.at % BATCH_SIZE };
        if !self.eager && !self.ended {
            // Includes a record that crosses the end.
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
            // The code that spools the rest needs these bytes, too.
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
        if self.eager && self.ended && !is_stray {
            let mut file = temp_files().map_err(no_file)?;
            (file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&buffer))).map_err(no_file)?;
            return self.go_on_in(file, at);
        }
        if self.ended || is_stray {
            // The bytes after it are not parsed, only counted.
            let unread = io::copy(reader, &mut io::sink()).map_err(fail)?;
            self.ended = true;
            let bytes = buffer.len() as u64 + unread;
            batch.fragment = Some(framed.fragment(Origin::Input { stream, offset: at }, bytes));
            *offset += bytes;
        } else {
            // The last record with payload is larger than a batch. A file bounds private memory.
            let mut file = temp_files().map_err(no_file)?;
            file.seek(SeekFrom::Start(at)).map_err(no_file)?;
            file.write_all(&buffer).map_err(no_file)?;
            let needs = framed.cut.map_or(0, |frame| frame.total()).saturating_add(framed.end as u64);
            let missing = needs.saturating_sub(buffer.len() as u64);
            let got = io::copy(&mut reader.by_ref().take(missing), &mut file).map_err(fail)?;
            if self.eager && got < missing {
                self.ended = true;
                return self.go_on_in(file, at);
            }
            let held = buffer.len() as u64 + got;
            let bytes = Bytes::map(&file)?;
            let bytes = bytes.slice(at as usize..bytes.len());
            let framed = frame(&bytes, endian, usize::MAX).sound(stream, at)?;
            batch.hold(bytes.slice(0..framed.end), &framed);
            self.at += framed.end;
            if got < missing {
                self.ended = true;
                let origin = Origin::Input { stream, offset: at + framed.end as u64 };
                batch.fragment = Some(framed.fragment(origin, held - framed.end as u64));
            }
            *offset += held;
        }
        Ok(Some(batch))
    }

    /// Continues with a file with the rest of a pipe, from `offset` on, so that damage can be skipped.
    fn go_on_in(&mut self, file: File, offset: u64) -> Result<Option<Batch>> {
        let bytes = Bytes::map(&file)?;
        let bytes = bytes.slice(offset as usize..bytes.len());
        self.probes = PROBES_PER_BYTE * bytes.len() as u64;
        self.stream.source = Source::Mapped { bytes, file: Some(Arc::new(file)), offset };
        self.at = 0;
        self.next_mapped()
    }

    /// For a mapped stream: goes back to a fragment at the end, and skips its first bytes if records follow
    /// inside it. Returns the number of skipped bytes.
    pub(super) fn step_back_over(&mut self, fragment: &Fragment) -> Option<usize> {
        let end = self.mapped().filter(|_| fragment.stray.is_none())?.len();
        self.at = end - fragment.bytes as usize;
        let skipped = self.step_over();
        if skipped.is_none() {
            self.at = end;
        }
        skipped
    }

    /// For a mapped stream: skips the bytes in place of a record if records follow; returns their number.
    pub(super) fn step_over(&mut self) -> Option<usize> {
        let Source::Mapped { bytes, .. } = &self.stream.source else { return None };
        let rest = bytes.slice(self.at..bytes.len());
        let mut probes = self.probes;
        let framed = frame(&rest, self.endian, 0);
        let gap =
            gap(&rest, &framed, self.endian, &self.layouts, &mut probes).filter(|gap| gap.to < rest.len())?;
        self.probes = probes;
        self.at += gap.to;
        Some(gap.to)
    }

    pub(super) fn temp_files(&self) -> Option<TempFiles> {
        match &self.stream.source {
            Source::Mapped { .. } => None,
            Source::Reader { temp_files, .. } => Some(temp_files.clone()),
        }
    }

    pub(super) fn use_up(&mut self) {
        if let Source::Mapped { bytes, offset, .. } = &mut self.stream.source {
            *offset += bytes.len() as u64;
            *bytes = bytes.slice(bytes.len()..bytes.len());
            self.at = 0;
        }
    }

    pub(super) fn into_rest(mut self) -> Stream {
        if let Source::Mapped { bytes, offset, .. } = &mut self.stream.source {
            *bytes = bytes.slice(self.at..bytes.len());
            *offset += self.at as u64;
        }
        self.stream
    }

    pub(super) fn give_back(&mut self, batch: &Batch, end: usize) {
        let unused = &batch.bytes[end..];
        match &mut self.stream.source {
            Source::Mapped { bytes, offset, .. } => {
                // `at` is after the fragment, too; the batch's own start is reliable.
                let start =
                    (batch.origins.at(0).stored_at().map_or(*offset, |(_, at)| at) - *offset) as usize + end;
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
