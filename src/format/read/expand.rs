//! Replaces COMPRESSED and COMPRESSED2 records with their contents, in memory bounded for any stream.
//!
//! The contents of a zstd stream depend on everything before, so one thread expands a stream of perf in
//! order. If the pieces are whole frames, [`DecodeUnits`] and [`DecodeUnit::decompressed`] expand them ahead
//! on many threads, and `Expand` only checks that they were right.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::{BATCH_SIZE, Batch, Opened};
use super::fragment::{Fragment, Lost};
use super::resync::trusted;
use crate::record::compressed::{begins_frame, compressed_part};
use crate::unzstd::header::{BLOCK_HEADER_SIZE, content_size};
use crate::unzstd::{Decoder, Progress, ROOM};
use crate::{
    BadFrame, Bytes, Endian, Error, FaultCode, Frame, Kinds, Origin, Origins, Record, RecordType, Result,
};

pub use decode_unit::{DecodeUnit, DecodeUnits};

mod decode_unit;

/// Maximum expanded size of one COMPRESSED record, in bytes, unless feature COMPRESSED allows more. perf
/// hands its whole ring buffer (`-m`, 512 KiB by default) to zstd at once, so 64 MiB is far above real data
/// and far below a zip bomb.
const EXPANSION_MAX: u64 = 64 << 20;

/// Uncompressed runs shorter than this are copied; longer ones become batches of their own, without a copy.
const PLAIN_RUN: usize = 256 << 10;

/// Yields batches without compressed records.
pub struct Expand<I> {
    batches: I,
    endian: Endian,
    streams: BTreeMap<u32, Stream>,
    ready: VecDeque<Batch>,
    current: Option<BatchOutput>,
    expansion_max: u64,
    salvage: bool,
    chain: Option<Chain>,
    last: Option<Batch>,
}

impl<I> std::fmt::Debug for Expand<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Expand({} streams)", self.streams.len())
    }
}

/// The state that `perf record -z --switch-output` carries between files: its zstd stream never restarts.
#[derive(Clone, Default)]
pub struct Chain {
    streams: Arc<Mutex<BTreeMap<u32, Stream>>>,
    /// True if no file follows.
    pub last: bool,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chain")
    }
}

impl Chain {
    fn swap(&self, streams: &mut BTreeMap<u32, Stream>) {
        std::mem::swap(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner), streams);
    }
}

/// One zstd stream through all COMPRESSED records of a file; a record may cross from one to the next.
struct Stream {
    decoder: Decoder,
    /// The number of bytes that zstd expects next; 0 between two frames.
    hint: usize,
    /// True if the current frame states its content size, and so was finished by its writer.
    ends: bool,
    at: Origin,
    /// The front of a record that continues in the next COMPRESSED record, and its origin.
    tail: Vec<u8>,
    tail_origin: Origin,
    /// Decompression stopped here (salvage); counts the loss since.
    lost: Option<Lost>,
    broken: bool,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            decoder: Decoder::new(),
            hint: 0,
            ends: false,
            at: Origin::Synthetic,
            tail: Vec::new(),
            tail_origin: Origin::Synthetic,
            lost: None,
            broken: false,
        }
    }

    /// True if the next piece can be read without the pieces before it.
    fn is_between_frames(&self) -> bool {
        self.hint == 0 && self.tail.is_empty() && self.lost.is_none() && !self.broken
    }

    /// True if the last frame is cut short: it stops inside a block, or before its stated size is reached.
    fn breaks_off(&self) -> bool {
        self.hint != 0 && (self.ends || self.hint != BLOCK_HEADER_SIZE)
    }
}

impl<I, P> Expand<I>
where
    I: Iterator<Item = Result<P>>,
    P: Into<DecodeUnit>,
{
    /// Expands batches or their units. `mmap_len` is that of feature COMPRESSED, bytes; 0 without it.
    pub fn new(batches: I, endian: Endian, mmap_len: u32) -> Self {
        let expansion_max = EXPANSION_MAX.max(u64::from(mmap_len));
        Expand {
            batches,
            endian,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            current: None,
            expansion_max,
            salvage: false,
            chain: None,
            last: None,
        }
    }

    /// Leaves out data that cannot be decompressed, up to the next frame: [`Batch::lost`], not an error.
    #[must_use]
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Continues the zstd stream of the previous file in the chain, and leaves the state for the next one.
    #[must_use]
    pub fn chained(mut self, chain: Option<Chain>) -> Self {
        if let Some(chain) = &chain {
            chain.swap(&mut self.streams);
        }
        self.chain = chain;
        self
    }

    /// Works on the current batch until output is ready, which is handed on first, or the batch is done.
    fn expand(&mut self, out: &mut BatchOutput) -> Result<()> {
        let batch = out.batch.clone();
        let mut walker = batch.walk();
        walker.seek(out.done);
        while self.ready.is_empty() {
            let plain_from = walker.position();
            let record = walker.next_wanted(Kinds::COMPRESSED, usize::MAX)?;
            let plain_to = match &record {
                Some(record) => walker.position() - record.bytes().len(),
                None => walker.position(),
            };
            if plain_to > plain_from {
                out.plain(plain_from..plain_to, &mut self.ready)?;
            }
            let Some(record) = record else {
                out.flush(&mut self.ready);
                let opened = std::mem::take(&mut out.opened);
                if batch.fragment.is_some() || !opened.is_empty() {
                    self.ready.push_back(Batch { fragment: batch.fragment, opened, ..out.empty() });
                }
                out.done = usize::MAX;
                break;
            };
            let number = record.origin().stored_at().map_or(0, |(stream, _)| stream);
            let stream = self.streams.entry(number).or_insert_with(Stream::new);
            self.last = Some(out.empty());
            out.done = walker.position();
            let bytes = record.bytes().len() as u64;
            if stream.broken {
                continue;
            }
            match &mut stream.lost {
                Some(lost) if !begins_frame(&record) => {
                    lost.records += 1;
                    lost.bytes += bytes;
                    continue;
                }
                lost => self.ready.extend(lost.take().map(|lost| Batch { lost: Some(lost), ..out.empty() })),
            }
            let decompressed = out.decompress(&record, stream, self.expansion_max, &mut self.ready);
            if let Ok(false) = decompressed {
                out.done -= record.bytes().len();
            } else if let Err(error) = decompressed {
                let error = error.origin(record.origin()).record(record.kind()).file(&batch.name);
                out.drop_rest();
                if !self.salvage {
                    // Records before the fault are good, and so are uncompressed records after it.
                    *stream = Stream { broken: true, ..Stream::new() };
                    return Err(error);
                }
                out.drop_untrusted();
                // Emits these now, so that the next fault does not examine them again.
                out.flush(&mut self.ready);
                let lost = Lost { error: Arc::new(error), records: 1, bytes };
                *stream = Stream { lost: Some(lost), at: record.origin(), ..Stream::new() };
            } else {
                stream.at = record.origin();
            }
        }
        Ok(())
    }

    /// Reports the unfinished ends of all streams except `going_on`.
    fn finish(&mut self, going_on: Option<u32>) {
        let Some(last) = self.last.clone() else { return };
        let (kept, ended) =
            std::mem::take(&mut self.streams).into_iter().partition(|(number, _)| Some(*number) == going_on);
        self.streams = kept;
        for (_, stream) in ended {
            let stream: Stream = stream;
            let breaks_off = stream.breaks_off();
            let lost = stream.lost.or_else(|| {
                let what = "the zstd frame is incomplete; the rest of its content is missing";
                let error =
                    Error::new(what).code(FaultCode::Zstd).origin(stream.at).record(RecordType::COMPRESSED);
                let error = error.file(&last.name);
                breaks_off.then(|| Lost { error: Arc::new(error), records: 0, bytes: 0 })
            });
            self.ready.extend(lost.map(|lost| Batch { lost: Some(lost), ..last.clone() }));
            if !stream.tail.is_empty() {
                let frame = Frame::read(&stream.tail, 0, self.endian).ok().flatten();
                let fragment = Fragment {
                    origin: stream.tail_origin,
                    kind: frame.map(|frame| frame.kind),
                    bytes: stream.tail.len() as u64,
                    needs: frame.map_or(0, |frame| frame.total()),
                    resumes: false,
                    stray: None,
                };
                self.ready.push_back(Batch { fragment: Some(fragment), ..last.clone() });
            }
        }
    }
}

/// Expands batches on the calling thread, with the same result. For `mmap_len` and `salvage` see [`Expand`].
pub fn expand_alone<'a>(
    batches: impl Iterator<Item = Result<Batch>> + Send + 'a,
    endian: Endian,
    mmap_len: u32,
    salvage: bool,
) -> Expand<impl Iterator<Item = Result<DecodeUnit>> + Send + 'a> {
    let opened = move |unit: Result<DecodeUnit>| unit.map(|unit| unit.decompressed());
    Expand::new(DecodeUnits::new(batches).map(opened), endian, mmap_len).salvage(salvage)
}

const CHAIN_HINT: &str = "the zstd stream does not begin in this file: if perf record --switch-output wrote it, \
    decompress it together with all earlier files (perfx decompress --chain)";

/// True if a record of this kind may be inside a compressed one. simpleperf puts AUXTRACE there with its
/// payload; perf expects that, and the payload of HEADER_TRACING_DATA, in the file. Records of events and
/// features must be known before anything is decompressed, and differ in meaning between pipes and files.
fn may_be_inside(kind: RecordType) -> bool {
    !kind.is_compressed() && !Kinds::HEADER_FRONT.contains(kind)
}

impl<I, P> Iterator for Expand<I>
where
    I: Iterator<Item = Result<P>>,
    P: Into<DecodeUnit>,
{
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            if let Some(mut out) = self.current.take() {
                let name = out.batch.name.clone();
                let expanded = self.expand(&mut out);
                self.current = (out.done < usize::MAX).then_some(out);
                match expanded {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error.file(&name))),
                }
            }
            match self.batches.next() {
                Some(Ok(unit)) => {
                    let DecodeUnit { stored, ahead, .. } = unit.into();
                    let number = stored.origins.at(0).stored_at().map(|(number, _)| number);
                    if self.chain.is_none() {
                        self.finish(number);
                    }
                    if let Some(ahead) = ahead {
                        let stream = self.streams.entry(number.unwrap_or(0)).or_insert_with(Stream::new);
                        if stream.is_between_frames() {
                            stream.at = stored.origins.at(0);
                            self.ready.push_back(ahead);
                            continue;
                        }
                    }
                    if stored.kinds.intersects(Kinds::COMPRESSED) {
                        self.current = Some(BatchOutput::new(stored, self.salvage));
                    } else {
                        self.ready.push_back(stored);
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    match self.chain.take() {
                        Some(chain) if !chain.last => chain.swap(&mut self.streams),
                        _ => self.finish(None),
                    }
                    return self.ready.pop_front().map(Ok);
                }
            }
        }
    }
}

struct BatchOutput {
    batch: Batch,
    /// True to keep records of events and features, although they should not be inside a compressed record.
    salvage: bool,
    /// Bytes of the batch expanded so far; `usize::MAX` if it is done.
    done: usize,
    bytes: Vec<u8>,
    origins: Origins,
    /// The end of the whole records in `bytes`, with their kinds and their number.
    framed: usize,
    kinds: Kinds,
    records: u64,
    opened: Vec<Opened>,
    /// The compressed record at `done`, if it was read in part.
    piece: Option<Piece>,
}

impl BatchOutput {
    fn new(batch: Batch, salvage: bool) -> BatchOutput {
        let (bytes, origins, opened) = Default::default();
        let (kinds, piece) = (Kinds::NONE, None);
        BatchOutput { batch, salvage, done: 0, bytes, origins, framed: 0, kinds, records: 0, opened, piece }
    }

    fn empty(&self) -> Batch {
        Batch {
            bytes: Vec::new().into(),
            origins: Origins::default(),
            kinds: Kinds::NONE,
            records: 0,
            sparse_index: None,
            samples: None,
            sound: false,
            stored: None,
            fragment: None,
            opened: Vec::new(),
            ..self.batch.clone()
        }
    }

    fn plain(&mut self, range: std::ops::Range<usize>, ready: &mut VecDeque<Batch>) -> Result<()> {
        if range.len() >= PLAIN_RUN {
            self.flush(ready);
            ready.push_back(self.batch.part(range)?);
            return Ok(());
        }
        self.origins.push(self.bytes.len(), self.batch.origins.at(range.start));
        self.bytes.extend_from_slice(&self.batch.bytes[range]);
        self.frame(|_| true)
    }

    /// Continues a compressed record until it is read (true) or output, maybe many batches, is ready (false).
    fn decompress(
        &mut self,
        record: &Record<'_>,
        stream: &mut Stream,
        expansion_max: u64,
        ready: &mut VecDeque<Batch>,
    ) -> Result<bool> {
        let (part, padding) = compressed_part(record);
        let mut piece = match self.piece.take() {
            Some(piece) => piece,
            None => self.begin(record, stream, expansion_max),
        };
        let decoder = &mut stream.decoder;
        // zstd reports an error if it is given empty input repeatedly.
        if !part.is_empty() {
            let done;
            (stream.hint, done) = self.feed(&mut piece, decoder, part, ready, true)?;
            if !done {
                self.piece = Some(piece);
                return Ok(false);
            }
            let zeros = Zeros { padding, hint: stream.hint, expanded: piece.expanded };
            (stream.hint, _) = zeros.feed(|zero| {
                piece.fed = 0;
                let (hint, _) = self.feed(&mut piece, decoder, zero, ready, false)?;
                Ok((hint, piece.expanded))
            })?;
        }
        self.opened.push(Opened::new(record, &self.batch.layouts, piece.expanded, piece.frame_inside));
        if self.framed < self.bytes.len() {
            stream.tail_origin = self.origins.at(self.framed);
            stream.tail = self.bytes.split_off(self.framed);
            self.origins.truncate(self.framed);
        }
        Ok(true)
    }

    fn begin(&mut self, record: &Record<'_>, stream: &mut Stream, expansion_max: u64) -> Piece {
        let (number, at) = record.origin().stored_at().unwrap_or_default();
        let part = compressed_part(record).0;
        if !stream.tail.is_empty() && !part.is_empty() {
            self.origins.push(self.bytes.len(), stream.tail_origin);
            self.bytes.append(&mut stream.tail);
        }
        if stream.hint == 0 {
            stream.ends = content_size(part).is_some();
        }
        let continued = stream.at == Origin::Synthetic && !begins_frame(record);
        Piece {
            stream: number,
            record: at,
            fed: 0,
            expanded: 0,
            expansion_max,
            ended: 0,
            frame_inside: false,
            continued,
        }
    }

    /// Decompresses the rest of `input`. Returns the number of bytes that zstd expects next (0 at the end of
    /// a frame), and true if all input was used: zstd may pause when output is ready.
    fn feed(
        &mut self,
        piece: &mut Piece,
        decoder: &mut Decoder,
        input: &[u8],
        ready: &mut VecDeque<Batch>,
        pauses: bool,
    ) -> Result<(usize, bool)> {
        loop {
            let before = self.bytes.len();
            let offset = piece.expanded as i64;
            self.origins.push(before, Origin::Chunk { stream: piece.stream, record: piece.record, offset });
            self.bytes.reserve_exact(BATCH_SIZE.max(before + ROOM) - before);
            let progress = decoder.decompress(&input[piece.fed..], &mut self.bytes);
            let Progress { read, hint } = progress.map_err(|name| {
                let expanded = piece.expanded;
                let what =
                    format!("zstd can't decompress it after {expanded} bytes of its contents ({name})");
                match piece.continued {
                    true => Error::new(what).code(FaultCode::ZstdContinued).hint(CHAIN_HINT),
                    false => Error::new(what).code(FaultCode::Zstd),
                }
            })?;
            let filled = self.bytes.len() == self.bytes.capacity();
            let more = (self.bytes.len() - before) as u64;
            piece.expanded += more;
            piece.frame_inside |= more > 0 && piece.ended > 0;
            if hint == 0 {
                piece.ended = piece.expanded;
            }
            if piece.expanded > piece.expansion_max {
                let max = piece.expansion_max;
                let what = format!(
                    "it expands to more than {max} bytes, more than any perf writes: probably a zstd bomb"
                );
                return Err(Error::new(what).code(FaultCode::ZstdBomb));
            }
            let salvage = self.salvage;
            self.frame(|kind| may_be_inside(kind) || salvage && Kinds::HEADER_FRONT.contains(kind))?;
            piece.fed += read;
            // If zstd did not fill the output buffer, it has no more output for this input.
            let done = piece.fed == input.len() && !filled;
            if self.framed >= BATCH_SIZE / 2 {
                self.flush_framed(ready);
            }
            if done || pauses && !ready.is_empty() {
                return Ok((hint, done));
            }
        }
    }

    fn frame(&mut self, may_be_here: impl Fn(RecordType) -> bool) -> Result<()> {
        while self.framed < self.bytes.len() {
            let bad = |bad: BadFrame| bad.into_error(self.origins.at(self.framed));
            let Some(frame) = Frame::read(&self.bytes, self.framed, self.batch.endian).map_err(bad)? else {
                break;
            };
            if !may_be_here(frame.kind) {
                let what = "a record of this kind can't be inside a compressed record";
                let error = Error::new(what).origin(self.origins.at(self.framed)).record(frame.kind);
                return Err(error.code(FaultCode::Nested));
            }
            if frame.total() > EXPANSION_MAX {
                let what =
                    format!("its payload of {} bytes is too large for a compressed record", frame.total());
                let error = Error::new(what).origin(self.origins.at(self.framed)).record(frame.kind);
                return Err(error.code(FaultCode::Nested));
            }
            if frame.total() > (self.bytes.len() - self.framed) as u64 {
                break;
            }
            self.framed += frame.total() as usize;
            self.kinds.insert(frame.kind);
            self.records += 1;
        }
        Ok(())
    }

    fn drop_rest(&mut self) {
        self.bytes.truncate(self.framed);
        self.origins.truncate(self.framed);
    }

    /// Drops untrusted records: zstd returns part of a damaged frame before it notices the damage.
    fn drop_untrusted(&mut self) {
        let (endian, mut end) = (self.batch.endian, 0);
        // No future kind will have such sizes, and perf refuses them.
        while let Ok(Some(frame)) = Frame::read(&self.bytes[..self.framed], end, endian)
            && (frame.kind.name().is_some() || frame.size % 8 == 0)
        {
            end += frame.total() as usize;
        }
        (self.framed, self.records) = trusted(&self.bytes, end, endian, &self.batch.layouts);
        self.drop_rest();
    }

    fn flush_framed(&mut self, ready: &mut VecDeque<Batch>) {
        let rest_origin = self.origins.at(self.framed);
        let rest = self.bytes.split_off(self.framed);
        self.origins.truncate(self.framed);
        self.flush(ready);
        if !rest.is_empty() {
            self.origins.push(0, rest_origin);
            self.bytes = rest;
        }
    }

    fn flush(&mut self, ready: &mut VecDeque<Batch>) {
        if !self.bytes.is_empty() {
            ready.push_back(Batch {
                bytes: Bytes::from(std::mem::take(&mut self.bytes)),
                origins: std::mem::take(&mut self.origins),
                kinds: std::mem::take(&mut self.kinds),
                records: std::mem::take(&mut self.records),
                opened: std::mem::take(&mut self.opened),
                ..self.empty()
            });
        }
        self.framed = 0;
    }
}

struct Piece {
    stream: u32,
    record: u64,
    fed: usize,
    expanded: u64,
    expansion_max: u64,
    ended: u64,
    frame_inside: bool,
    /// True if the stream began in an earlier file: this piece is the first, and begins no frame.
    continued: bool,
}

/// For a piece of unknown length: the zeros at its end, the number of bytes that zstd expected before them,
/// and the expanded size up to there. The zeros are padding, or part of the piece as long as zstd is inside a
/// block.
struct Zeros<'a> {
    padding: &'a [u8],
    hint: usize,
    expanded: u64,
}

impl Zeros<'_> {
    /// Passes the zeros to `feed`, which returns the number of bytes that zstd expects next (0 at the end of
    /// a frame) and the record's expanded size so far. Returns the last hint, and the number of zeros that
    /// belong to the piece.
    fn feed(self, mut feed: impl FnMut(&[u8]) -> Result<(usize, u64)>) -> Result<(usize, usize)> {
        let Zeros { padding, mut hint, mut expanded } = self;
        let mut length = 0;
        for zero in padding.chunks(1) {
            if hint == 0 {
                break;
            }
            let (wanted, before) = (hint, expanded);
            (hint, expanded) = feed(zero)?;
            if wanted == BLOCK_HEADER_SIZE && expanded == before {
                // zstd was between two blocks, unless this zero and two more are an empty block.
                (hint, _) = feed(&[0; 2])?;
                break;
            }
            length += 1;
        }
        Ok((hint, length))
    }
}

/// Finds length and expanded size of each zstd piece, of every compressed record, without the contents.
#[derive(Default)]
pub struct Pieces {
    decoders: BTreeMap<u32, Decoder>,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({} streams)", self.decoders.len())
    }
}

impl Pieces {
    /// The length and the expanded size of the piece in the next compressed record, bytes.
    ///
    /// # Errors
    ///
    /// The data is not a zstd stream, or expands to more than a record may.
    pub fn next(&mut self, record: &Record<'_>) -> Result<(usize, u64)> {
        let (number, _) = record.origin().stored_at().unwrap_or_default();
        let decoder = self.decoders.entry(number).or_insert_with(Decoder::new);
        let scratch = &mut self.scratch;
        scratch.reserve_exact(ROOM);
        let mut expanded = 0;
        let mut feed = |mut input: &[u8]| {
            loop {
                scratch.clear();
                let Progress { read, hint } = decoder.decompress(input, scratch).map_err(|name| {
                    record.error(format!("zstd can't decompress it ({name})")).code(FaultCode::Zstd)
                })?;
                input = &input[read..];
                expanded += scratch.len() as u64;
                if expanded > EXPANSION_MAX {
                    let what = format!("it expands to more than {EXPANSION_MAX} bytes: probably a zstd bomb");
                    return Err(record.error(what).code(FaultCode::ZstdBomb));
                }
                if input.is_empty() && scratch.len() < scratch.capacity() {
                    return Ok((hint, expanded));
                }
            }
        };
        let (part, padding) = compressed_part(record);
        // zstd reports an error if it is given empty input repeatedly.
        if part.is_empty() {
            return Ok((0, 0));
        }
        let (hint, so_far) = feed(part)?;
        let (_, zeros) = Zeros { padding, hint, expanded: so_far }.feed(feed)?;
        Ok((part.len() + zeros, expanded))
    }
}
