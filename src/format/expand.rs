//! Replaces COMPRESSED and COMPRESSED2 records by the records they hold; memory stays bounded whatever a stream claims to expand to.

use std::collections::{BTreeMap, VecDeque};

use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use crate::decode::decode;
use crate::input::{BATCH_SIZE, Batch, Opened, Torn};
use crate::{Bytes, Endian, Error, Frame, Kinds, Origin, Origins, Record, RecordType, Result};

/// The most one COMPRESSED record may expand to, in bytes, when feature COMPRESSED does not allow more: perf hands its whole ring buffer
/// (`-m`, 512 KiB unless asked for more) to zstd at once, so 64 MiB is far above what is written in practice, and far below a bomb.
const EXPANSION_MAX: u64 = 64 << 20;

/// Plain runs shorter than this are copied between the decompressed records; longer ones stay where they are.
const PLAIN_RUN: usize = 256 << 10;

/// Yields batches in which no record is compressed.
pub struct Expand<I> {
    batches: I,
    endian: Endian,
    streams: BTreeMap<u32, Stream>,
    ready: VecDeque<Batch>,
    /// The batch at hand.
    current: Option<Output>,
    expansion_max: u64,
    last: Option<Batch>,
}

impl<I> std::fmt::Debug for Expand<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Expand({} streams)", self.streams.len())
    }
}

/// One zstd stream: it runs through all COMPRESSED records of one file, and so may a record inside it.
struct Stream {
    context: DCtx<'static>,
    /// The front of a record that the next COMPRESSED record goes on with, and where it began.
    tail: Vec<u8>,
    tail_origin: Origin,
    /// Something has been decompressed.
    begun: bool,
    /// Can't be decompressed any further.
    broken: bool,
}

impl<I: Iterator<Item = Result<Batch>>> Expand<I> {
    /// `mmap_len` is the one of feature COMPRESSED, in bytes, 0 when there is none.
    pub fn new(batches: I, endian: Endian, mmap_len: u32) -> Self {
        let expansion_max = EXPANSION_MAX.max(u64::from(mmap_len));
        Expand {
            batches,
            endian,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            current: None,
            expansion_max,
            last: None,
        }
    }

    /// Goes on with the batch at hand until something is ready or the batch is done; what is ready is handed on before more is expanded.
    fn expand(&mut self, out: &mut Output) -> Result<()> {
        let compressed = Kinds::of(&[RecordType::COMPRESSED, RecordType::COMPRESSED2]);
        let batch = out.batch.clone();
        let mut walker = batch.walk(self.endian);
        walker.seek(out.done);
        while self.ready.is_empty() {
            let plain_from = walker.position();
            let record = walker.next_wanted(compressed, usize::MAX)?;
            let plain_to = match &record {
                Some(record) => walker.position() - record.bytes().len(),
                None => walker.position(),
            };
            if plain_to > plain_from {
                out.plain(plain_from..plain_to, &mut self.ready)?;
            }
            let Some(record) = record else {
                out.flush(&mut self.ready)?;
                let opened = std::mem::take(&mut out.opened);
                if batch.torn.is_some() || !opened.is_empty() {
                    self.ready.push_back(Batch { torn: batch.torn, opened, ..out.empty() });
                }
                out.done = usize::MAX;
                break;
            };
            let number = record.origin().stored_at().map_or(0, |(stream, _)| stream);
            let stream = self.streams.entry(number).or_insert_with(|| Stream {
                context: DCtx::create(),
                tail: Vec::new(),
                tail_origin: Origin::Synthetic,
                begun: false,
                broken: false,
            });
            out.done = walker.position();
            if stream.broken {
                continue;
            }
            if let Err(error) = out.decompress(&record, stream, self.expansion_max, &mut self.ready) {
                // What came before the fault is still good, and so are plain records after it.
                stream.broken = true;
                stream.tail.clear();
                out.bytes.truncate(out.framed);
                out.origins.truncate(out.framed);
                return Err(error.origin(record.origin()).record(record.kind()));
            }
        }
        self.last = Some(out.empty());
        Ok(())
    }

    /// What streams left unfinished that have come to their end: all but `going_on`.
    fn finish(&mut self, going_on: Option<u32>) {
        let Some(last) = self.last.clone() else { return };
        let (kept, ended) =
            std::mem::take(&mut self.streams).into_iter().partition(|(number, _)| Some(*number) == going_on);
        self.streams = kept;
        for (_, stream) in ended {
            let stream: Stream = stream;
            if !stream.tail.is_empty() {
                let frame = Frame::read(&stream.tail, 0, self.endian).ok().flatten();
                let torn = Torn {
                    origin: stream.tail_origin,
                    kind: frame.map(|frame| frame.kind),
                    bytes: stream.tail.len() as u64,
                    needs: frame.map_or(0, |frame| frame.total()),
                };
                self.ready.push_back(Batch { torn: Some(torn), ..last.clone() });
            }
        }
    }
}

impl<I: Iterator<Item = Result<Batch>>> Iterator for Expand<I> {
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
                Some(Ok(batch)) => {
                    let stream = batch.origins.at(0).stored_at().map(|(stream, _)| stream);
                    self.finish(stream);
                    if batch.kinds.meets(Kinds::of(&[RecordType::COMPRESSED, RecordType::COMPRESSED2])) {
                        self.current = Some(Output::new(batch, self.endian));
                    } else {
                        self.ready.push_back(batch);
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.finish(None);
                    return self.ready.pop_front().map(Ok);
                }
            }
        }
    }
}

/// The batch being filled.
struct Output {
    batch: Batch,
    /// Bytes of the batch that have been expanded; `usize::MAX` when it is done.
    done: usize,
    endian: Endian,
    bytes: Vec<u8>,
    origins: Origins,
    /// Whole records reach up to here.
    framed: usize,
    /// What was opened since something was handed on.
    opened: Vec<Opened>,
}

impl Output {
    fn new(batch: Batch, endian: Endian) -> Output {
        Output {
            batch,
            done: 0,
            endian,
            bytes: Vec::new(),
            origins: Origins::default(),
            framed: 0,
            opened: Vec::new(),
        }
    }

    fn empty(&self) -> Batch {
        Batch {
            bytes: Vec::new().into(),
            origins: Origins::default(),
            kinds: Kinds::NONE,
            records: 0,
            stored: None,
            torn: None,
            opened: Vec::new(),
            ..self.batch.clone()
        }
    }

    /// A run of records that are not compressed.
    fn plain(&mut self, range: std::ops::Range<usize>, ready: &mut VecDeque<Batch>) -> Result<()> {
        if range.len() >= PLAIN_RUN {
            self.flush(ready)?;
            ready.push_back(self.batch.part(range, self.endian)?);
        } else {
            self.origins.push(self.bytes.len(), self.batch.origins.at(range.start));
            self.bytes.extend_from_slice(&self.batch.bytes[range]);
            self.framed = self.bytes.len();
        }
        Ok(())
    }

    fn decompress(
        &mut self,
        record: &Record<'_>,
        stream: &mut Stream,
        expansion_max: u64,
        ready: &mut VecDeque<Batch>,
    ) -> Result<()> {
        let (number, at) = record.origin().stored_at().unwrap_or_default();
        if !stream.tail.is_empty() {
            self.origins.push(self.bytes.len(), stream.tail_origin);
            self.bytes.append(&mut stream.tail);
        }
        let (part, _) = compressed_part(record);
        let mut piece = Piece {
            stream: number,
            record: at,
            expanded: 0,
            expansion_max,
            ended: 0,
            frame_inside: false,
            is_front: stream.begun || is_front_of_frame(part),
        };
        let context = &mut stream.context;
        feed_piece(record, |input| {
            let hint = self.feed(&mut piece, context, input, ready)?;
            Ok((hint, piece.expanded))
        })?;
        stream.begun |= !part.is_empty();
        self.opened.push(Opened {
            origin: record.origin(),
            kind: record.kind(),
            size: record.bytes().len(),
            expanded: piece.expanded,
            frame_inside: piece.frame_inside,
            odd: decode(record, &self.batch.layouts).odd,
        });
        if self.framed < self.bytes.len() {
            stream.tail_origin = self.origins.at(self.framed);
            stream.tail = self.bytes.split_off(self.framed);
            self.origins.truncate(self.framed);
        }
        Ok(())
    }

    /// Decompresses `input`; returns how many bytes zstd would like to see next, 0 at the end of a frame.
    fn feed(
        &mut self,
        piece: &mut Piece,
        context: &mut DCtx<'static>,
        input: &[u8],
        ready: &mut VecDeque<Batch>,
    ) -> Result<usize> {
        let mut input = InBuffer::around(input);
        loop {
            let before = self.bytes.len();
            let offset = piece.expanded as i64;
            self.origins.push(before, Origin::Chunk { stream: piece.stream, record: piece.record, offset });
            let room = BATCH_SIZE.max(before + DCtx::out_size());
            self.bytes.reserve_exact(room - before);
            let mut output = OutBuffer::around_pos(&mut self.bytes, before);
            let hint = context.decompress_stream(&mut output, &mut input).map_err(|code| {
                let (name, expanded) = (get_error_name(code), piece.expanded);
                let what = format!("zstd can't decompress it ({name}), {expanded} bytes into what it holds");
                match piece.is_front {
                    true => Error::new(what).code("zstd"),
                    false => Error::new(what).code("zstd-continued").hint(CONTINUED),
                }
            })?;
            let filled = output.pos() == output.capacity();
            let more = (self.bytes.len() - before) as u64;
            piece.expanded += more;
            piece.frame_inside |= more > 0 && piece.ended > 0;
            if hint == 0 {
                piece.ended = piece.expanded;
            }
            if piece.expanded > piece.expansion_max {
                let max = piece.expansion_max;
                let what = format!(
                    "it expands to more than {max} bytes, more than any perf writes: taken for a zstd bomb"
                );
                return Err(Error::new(what).code("zstd-bomb"));
            }
            self.frame()?;
            if self.framed >= BATCH_SIZE / 2 {
                self.flush_framed(ready)?;
            }
            // An output buffer that was not filled means that zstd has nothing more to say about what it was given.
            if input.pos() == input.src.len() && !filled {
                return Ok(hint);
            }
        }
    }

    /// Finds how far whole records reach.
    fn frame(&mut self) -> Result<()> {
        while self.framed < self.bytes.len() {
            let origin = self.origins.at(self.framed);
            let frame =
                Frame::read(&self.bytes, self.framed, self.endian).map_err(|bad| bad.into_error(origin))?;
            let Some(frame) = frame else { break };
            if frame.kind.is_compressed()
                || frame.kind == RecordType::AUXTRACE
                || frame.kind == RecordType::HEADER_TRACING_DATA
            {
                let what = "a record of this kind can't be inside a compressed one";
                return Err(Error::new(what).origin(origin).record(frame.kind).code("nested"));
            }
            if frame.size > self.bytes.len() - self.framed {
                break;
            }
            self.framed += frame.size;
        }
        Ok(())
    }

    /// Hands on the whole records and keeps the rest.
    fn flush_framed(&mut self, ready: &mut VecDeque<Batch>) -> Result<()> {
        let rest_origin = self.origins.at(self.framed);
        let rest = self.bytes.split_off(self.framed);
        self.origins.truncate(self.framed);
        self.flush(ready)?;
        if !rest.is_empty() {
            self.origins.push(0, rest_origin);
            self.bytes = rest;
        }
        Ok(())
    }

    fn flush(&mut self, ready: &mut VecDeque<Batch>) -> Result<()> {
        if !self.bytes.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.bytes));
            let origins = std::mem::take(&mut self.origins);
            let opened = std::mem::take(&mut self.opened);
            let mut batch = Batch { bytes, origins, opened, ..self.empty() };
            let (mut kinds, mut records) = (Kinds::NONE, 0);
            let mut walker = batch.walk(self.endian);
            while let Some(record) = walker.next_record()? {
                kinds.insert(record.kind());
                records += 1;
            }
            (batch.kinds, batch.records) = (kinds, records);
            ready.push_back(batch);
        }
        self.framed = 0;
        Ok(())
    }
}

/// What is being decompressed.
struct Piece {
    stream: u32,
    record: u64,
    expanded: u64,
    expansion_max: u64,
    /// Bytes that were expanded when a frame last ended.
    ended: u64,
    frame_inside: bool,
    /// A stream may begin like this.
    is_front: bool,
}

const CONTINUED: &str = "it may have begun in another file, as with perf record -z --switch-output";

/// Begins with the magic of a zstd frame or of a skippable one (RFC 8878, 3.1), as far as it goes.
fn is_front_of_frame(part: &[u8]) -> bool {
    let is_magic = |magic: [u8; 4]| part.iter().zip(magic).all(|(&byte, magic)| byte == magic);
    is_magic([0x28, 0xb5, 0x2f, 0xfd]) || (0x50..=0x5f).any(|low| is_magic([low, 0x2a, 0x4d, 0x18]))
}

/// Hands the piece in a compressed record to `feed`, which returns how many bytes zstd would like to see next (0 at the end of a frame) and how
/// much the record has expanded to by now. Returns the length of the piece.
fn feed_piece(record: &Record<'_>, mut feed: impl FnMut(&[u8]) -> Result<(usize, u64)>) -> Result<usize> {
    let (part, padding) = compressed_part(record);
    // Nothing is nothing, but zstd gives up when it is handed that again and again.
    let (mut hint, mut expanded) = if part.is_empty() { (0, 0) } else { feed(part)? };
    let mut length = part.len();
    // Where the piece's length is not known, zeros at its end are either its own or padding: they are its own as long as zstd is inside a block.
    for zero in padding.chunks(1) {
        if hint == 0 {
            break;
        }
        let (wanted, before) = (hint, expanded);
        (hint, expanded) = feed(zero)?;
        if wanted == BLOCK_HEADER_SIZE && expanded == before {
            // It was between two blocks, not three bytes from the end of one. With two zeros more that was an empty block.
            feed(&[0; 2])?;
            break;
        }
        length += 1;
    }
    Ok(length)
}

/// Tells how long the pieces of zstd streams are, and how much each expands to, without keeping any of it. It must see every compressed record.
#[derive(Default)]
pub struct Pieces {
    contexts: BTreeMap<u32, DCtx<'static>>,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({} streams)", self.contexts.len())
    }
}

impl Pieces {
    /// Bytes of the piece in the next compressed record, and bytes that it expands to.
    pub fn next(&mut self, record: &Record<'_>) -> Result<(usize, u64)> {
        let (number, _) = record.origin().stored_at().unwrap_or_default();
        let context = self.contexts.entry(number).or_insert_with(DCtx::create);
        let scratch = &mut self.scratch;
        scratch.reserve_exact(DCtx::out_size());
        let mut expanded = 0;
        let length = feed_piece(record, |input| {
            let mut input = InBuffer::around(input);
            loop {
                scratch.clear();
                let mut output = OutBuffer::around(scratch);
                let hint = context.decompress_stream(&mut output, &mut input).map_err(|code| {
                    let what = format!("zstd can't decompress it ({})", get_error_name(code));
                    record.error(what).code("zstd")
                })?;
                expanded += output.pos() as u64;
                if expanded > EXPANSION_MAX {
                    let what =
                        format!("it expands to more than {EXPANSION_MAX} bytes: taken for a zstd bomb");
                    return Err(record.error(what).code("zstd-bomb"));
                }
                if input.pos() == input.src.len() && output.pos() < output.capacity() {
                    return Ok((hint, expanded));
                }
            }
        })?;
        Ok((length, expanded))
    }
}

/// Bytes of a zstd block header (RFC 8878, 3.1.1.2): what zstd asks for between two blocks.
const BLOCK_HEADER_SIZE: usize = 3;

/// The piece of zstd stream in a COMPRESSED or COMPRESSED2 record, and zeros behind it that may or may not belong to it. COMPRESSED2 says
/// how long its piece is, because padding to 8 bytes follows; perf 6.16 to 7.1 left that length at 0 or wrong with `--aio`.
pub fn compressed_part<'a>(record: &Record<'a>) -> (&'a [u8], &'a [u8]) {
    if record.kind() != RecordType::COMPRESSED2 {
        return (record.body(), &[]);
    }
    let Some(rest) = record.bytes().get(16..) else { return (&[], &[]) };
    match record.u64(8).and_then(|size| usize::try_from(size).ok()) {
        Some(size) if is_piece_size(size, rest) => (&rest[..size], &[]),
        _ => {
            let zeros = rest.iter().rev().take(7).take_while(|&&byte| byte == 0).count();
            rest.split_at(rest.len() - zeros)
        }
    }
}

/// What COMPRESSED2 says of the length of the piece in `rest` can be true: only padding follows.
pub(crate) fn is_piece_size(size: usize, rest: &[u8]) -> bool {
    size > 0 && rest.get(size..).is_some_and(|padding| padding.iter().all(|&byte| byte == 0))
}
