//! `compress` packs records into COMPRESSED records, a zstd frame of whole records each, for perf since 5.2.
//!
//! It compresses the same records as perf itself: the kernel's (kinds 1 to 63). Uncompressed stay:
//! - all of perf's own kinds: HEADER_*, ID_INDEX, AUXTRACE_INFO, TIME_CONV, FINISHED_* and so on. Readers
//!   look for them before they decompress anything, use their file offsets (HEADER_TRACING_DATA and
//!   AUXTRACE), or expect them between the frames;
//! - FINISHED_ROUND, if at least [`ROUND_AFTER`] bytes precede it, or none. An uncompressed round ends a
//!   frame, and small frames compress badly, so rounds that follow each other closely are compressed. perf
//!   reads these all the same; linux-perf-data sorts up to the next uncompressed round. Rejected: compressing
//!   all rounds, because then linux-perf-data sorts the whole recording at once; and holding rounds back
//!   until a frame is full, because several in a row would make perf flush records too early;
//! - AUX, ITRACE_START and AUX_OUTPUT_HW_ID, and samples with AUX data, which perf's AUX decoders read from
//!   the file itself;
//! - records that zstd does not make smaller.
//!
//! The ratio of the previous frame predicts how many records fit into the next. Every batch restarts with a
//! small frame, so that the result does not depend on the number of threads. Only if data suddenly compresses
//! worse does a frame become too large; then it is compressed again with fewer records.

use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use perfx_format::features::Compressed;
use perfx_format::read::Recording;
use perfx_format::record::compressed::{compressed_head_size, compressed_record};
use perfx_format::{
    Bytes, Endian, Feature, Kinds, Layouts, RECORD_SIZE_MAX, Record, RecordType, sample_type,
};
use perfx_pipeline::{
    Context as _, Emit, Error, Fork, Level, Needs, OutputForm, Pass, Result, Rewrite, Session, Stage, count,
    counted, ensure,
};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, InBuffer, OutBuffer, compress_bound, get_error_name};

use crate::decompress::announces_compression;
use crate::support::options::{PassCommand, PassOptions};

/// The maximum contents of a COMPRESSED record, bytes: the value of `mmap_len` if it must be written in
/// advance. perf allocates this much for each record, but untouched memory is free. Larger frames gain
/// nothing.
const HOLDS_MAX: usize = 1 << 20;

/// The contents of a batch's first frame, bytes: they fit in a record if they compress at least 2:1.
const FIRST_FRAME: usize = 128 << 10;

/// The contents of a piece of a continuous stream, bytes. They must fit in a record even if zstd saves
/// nothing, because a piece cannot be compressed again.
const SOLID_PIECE: usize = 64_512;

/// `mmap_len` must be a multiple of this, or perf 7 refuses the file.
const PAGE: usize = perfx_format::PAGE as usize;

/// A round stays uncompressed if at least this many bytes of records to be compressed precede it.
const ROUND_AFTER: usize = 512 << 10;

/// zstd's levels, except the negative ones, which feature COMPRESSED cannot represent.
const LEVELS: std::ops::RangeInclusive<i32> = 1..=22;

/// The pass.
pub struct Compress {
    options: CompressOptions,
    /// Contexts that no batch currently uses.
    idle: Arc<Mutex<Vec<Context>>>,
    /// The context of the current batch; with `solid` there is only one.
    context: Option<Context>,
    run: RecordRun,
    fit: usize,
    done: CompressTotals,
    /// Feature COMPRESSED of the input, to be kept if nothing is compressed.
    before: Option<Bytes>,
}

/// Compress a recording, as perf record -z does
///
/// perf 5.2 and later read the result exactly as they read the input. Records that are
/// already compressed are compressed again.
///
/// Examples:
///   perfx compress perf.data -o small.data
///   perfx compress -l 19 --in-place perf.data
///   perf record -o - ./program | perfx compress | ssh host 'cat > perf.data'
#[derive(Args, Clone, Copy, Debug)]
#[command(verbatim_doc_comment)]
pub struct CompressOptions {
    /// zstd level, from 1 (fastest) to 22 (smallest)
    #[arg(short, long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=22))]
    pub level: i32,
    /// Write COMPRESSED2 records, whose sizes are multiples of 8; only perf 6.16 and later reads them
    #[arg(long)]
    pub compressed2: bool,
    /// Keep one continuous zstd stream, as perf record does: smaller, but only one thread can work on it
    #[arg(long)]
    pub solid: bool,
    /// Print sizes before and after, and the compression ratio
    #[arg(long)]
    pub ratio: bool,
}

impl Default for CompressOptions {
    fn default() -> CompressOptions {
        CompressOptions { level: 3, compressed2: false, solid: false, ratio: false }
    }
}

impl PassOptions for CompressOptions {
    const NAME: &'static str = "compress";
    const ABOUT: &'static str =
        "compress the kernel's records into COMPRESSED records; must be the last pass";
    const COMMAND: Option<PassCommand> = Some(PassCommand { group: "Change the form", one_of: &[] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Compress::new(self)))
    }
}

#[derive(Debug, Default)]
struct RecordRun {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RecordRun {
    /// The number of records from `first` on that lie in `len` bytes; at least one.
    fn fitting(&self, first: usize, len: usize) -> usize {
        let start = self.start(first);
        let rest = self.ends.get(first..).unwrap_or_default();
        rest.partition_point(|end| end - start <= len).max(1)
    }

    fn start(&self, record: usize) -> usize {
        record.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct CompressTotals {
    /// Bytes that were compressed, and the number and size of the COMPRESSED records made from them.
    held: u64,
    pieces: u64,
    piece_bytes: u64,
    largest: usize,
    clear: u64,
}

struct Context {
    zstd: Compressor<'static>,
    out: Vec<u8>,
}

impl Context {
    fn new(options: &CompressOptions) -> Result<Context> {
        let mut zstd = Compressor::new(options.level).context("can't start zstd")?;
        // The checksum reveals changed bytes. zstd writes it at a stream's end; a solid stream has none.
        zstd.set_parameter(CParameter::ChecksumFlag(!options.solid)).context("can't start zstd")?;
        Ok(Context { zstd, out: Vec::with_capacity(compress_bound(HOLDS_MAX)) })
    }

    fn frame(&mut self, bytes: &[u8]) -> Result<&[u8]> {
        self.out.clear();
        self.zstd.compress_to_buffer(bytes, &mut self.out).context("zstd can't compress")?;
        Ok(&self.out)
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<&[u8]> {
        self.out.clear();
        let mut input = InBuffer::around(bytes);
        let mut output = OutBuffer::around(&mut self.out);
        let context = self.zstd.context_mut();
        let left =
            context.compress_stream(&mut output, &mut input).and_then(|_| context.flush_stream(&mut output));
        let left =
            left.map_err(|code| Error::new(format!("zstd can't compress: {}", get_error_name(code))))?;
        ensure!(left == 0 && input.pos() == bytes.len(), "zstd did not write everything");
        Ok(&self.out)
    }
}

impl Compress {
    /// The pass with these options.
    pub fn new(options: CompressOptions) -> Compress {
        Compress {
            options,
            idle: Arc::default(),
            context: None,
            run: RecordRun::default(),
            fit: FIRST_FRAME,
            done: CompressTotals::default(),
            before: None,
        }
    }

    fn stays_in_clear(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        match record.kind() {
            RecordType::FINISHED_ROUND => !(1..ROUND_AFTER).contains(&self.run.bytes.len()),
            RecordType::SAMPLE => {
                layouts.layout_of(record).is_some_and(|layout| layout.sample_type & sample_type::AUX != 0)
            }
            kind => !kind.is_kernel() || kind.0 == 0 || Kinds::AUX_OF_KERNEL.contains(kind),
        }
    }

    fn flush(&mut self, out: &mut Emit<'_>) -> Result<()> {
        let run = std::mem::take(&mut self.run);
        let mut context = match self.context.take() {
            Some(context) => context,
            None => {
                let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
                idle.map_or_else(|| Context::new(&self.options), Ok)?
            }
        };
        let endian = out.endian();
        let mut first = 0;
        while first < run.ends.len() {
            let start = run.start(first);
            let limit = if self.options.solid { SOLID_PIECE } else { self.fit.min(HOLDS_MAX) };
            let mut count = run.fitting(first, limit);
            let piece = loop {
                let held = &run.bytes[start..run.ends[first + count - 1]];
                if self.options.solid {
                    break (held.len() <= SOLID_PIECE).then(|| context.piece(held)).transpose()?;
                }
                let frame = context.frame(held)?;
                self.fit = held.len().saturating_mul(self.piece_max() / 16 * 15) / frame.len();
                if frame.len() <= self.piece_max() {
                    break (frame.len() + self.head_size() < held.len()).then_some(frame);
                }
                if count == 1 {
                    break None;
                }
                count = run.fitting(first, self.fit).min(count - 1);
            };
            let end = run.ends[first + count - 1];
            let held = &run.bytes[start..end];
            match piece {
                Some(piece) => {
                    let record = compressed_record(self.kind(), piece, endian);
                    let record = record.context("internal error: a piece that does not fit in a record")?;
                    self.done.held += held.len() as u64;
                    self.done.largest = self.done.largest.max(held.len());
                    self.done.pieces += 1;
                    self.done.piece_bytes += record.len() as u64;
                    out.put(&record)?;
                }
                None => {
                    self.done.clear += held.len() as u64;
                    for at in first..first + count {
                        out.put(&run.bytes[run.start(at)..run.ends[at]])?;
                    }
                }
            }
            first += count;
        }
        self.run = run;
        self.run.bytes.clear();
        self.run.ends.clear();
        self.context = Some(context);
        Ok(())
    }

    fn kind(&self) -> RecordType {
        if self.options.compressed2 { RecordType::COMPRESSED2 } else { RecordType::COMPRESSED }
    }

    fn head_size(&self) -> usize {
        compressed_head_size(self.kind())
    }

    fn piece_max(&self) -> usize {
        RECORD_SIZE_MAX - self.head_size()
    }

    fn feature(&self, form: OutputForm) -> Compressed {
        // Pipe data needs the feature before the ratio is known.
        let (ratio, mmap_len) = match form {
            OutputForm::Pipe => (0, HOLDS_MAX),
            _ => (self.ratio().round() as u32, self.done.largest.next_multiple_of(PAGE)),
        };
        Compressed { method: 1, level: self.options.level as u32, ratio, mmap_len: mmap_len as u32 }
    }

    fn ratio(&self) -> f64 {
        if self.done.piece_bytes == 0 { 1.0 } else { self.done.held as f64 / self.done.piece_bytes as f64 }
    }
}

impl Pass for Compress {
    fn name(&self) -> &'static str {
        CompressOptions::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs { records: Kinds::ALL, decompressed: true, last: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::begin(|begin| {
            let mut this = *self;
            ensure!(LEVELS.contains(&this.options.level), "the level must be from 1 to 22");
            // perf reads features in the order of their numbers, so those before this one must be readable.
            begin.repair_features(Feature::COMPRESSED);
            this.before = begin.feature(Feature::COMPRESSED).cloned();
            let section = this.feature(begin.form).write(begin.endian);
            begin.set_feature(Feature::COMPRESSED, section);
            if begin.endian == Endian::Big
                && begin.form != OutputForm::Pipe
                && begin.feature(Feature::HOSTNAME).is_none()
            {
                // perf detects the bitmap's word order by the bit of HOSTNAME (tools/perf/util/header.c).
                let what = "a big-endian file without feature HOSTNAME: perf on a little-endian machine sees none of its \
                            features, and so no compressed record; use --to pipe, which it can read";
                begin.report.say(Level::Warning, what);
            }
            // A single stream is serial: each piece depends on all before it.
            Ok(if this.options.solid { Stage::rewrite_in_order(this) } else { Stage::rewrite(this) })
        })
    }
}

impl Rewrite for Compress {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        // A record that zstd does not make smaller must still fit in a record.
        if !self.stays_in_clear(&record, out.layouts()) && record.bytes().len() <= RECORD_SIZE_MAX {
            self.run.bytes.extend_from_slice(record.bytes());
            self.run.ends.push(self.run.bytes.len());
            return Ok(());
        }
        if announces_compression(&record) {
            // The pass writes its own HEADER_FEATURE record.
            out.drop_record(record);
            return Ok(());
        }
        self.flush(out)?;
        self.done.clear += (record.bytes().len() + record.payload().len()) as u64;
        out.keep(record)
    }

    fn end_batch(&mut self, out: &mut Emit<'_>) -> Result<()> {
        self.flush(out)?;
        self.fit = FIRST_FRAME;
        if !self.options.solid {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.context.take());
        }
        Ok(())
    }

    fn finish(&mut self, session: &mut Session, out: &mut Emit<'_>) -> Result<()> {
        self.flush(out)?;
        let feature = match &self.before {
            _ if self.done.pieces > 0 => Some(self.feature(session.form).write(session.endian).into()),
            before => before.clone(),
        };
        match feature {
            Some(section) => session.set_feature(Feature::COMPRESSED, section),
            None => session.clear_feature(Feature::COMPRESSED),
        }
        let CompressTotals { held, pieces, piece_bytes, clear, .. } = self.done;
        let line = format!(
            "compressed {} bytes to {} in {} (ratio {:.2}); {} bytes stay uncompressed",
            count(held),
            count(piece_bytes),
            counted(pieces, "record", "records"),
            self.ratio(),
            count(clear)
        );
        session.report.say(if self.options.ratio { Level::Info } else { Level::Detail }, line);
        Ok(())
    }
}

impl Fork for Compress {
    fn fork(&self) -> Compress {
        Compress { idle: self.idle.clone(), ..Compress::new(self.options) }
    }

    fn absorb(&mut self, later: Compress) {
        let done = later.done;
        self.done.held += done.held;
        self.done.pieces += done.pieces;
        self.done.piece_bytes += done.piece_bytes;
        self.done.largest = self.done.largest.max(done.largest);
        self.done.clear += done.clear;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::support::tiny::{FIELDS, file, ran, record, sample};

    #[test]
    fn records_are_taken_as_far_as_they_fit_but_at_least_one() {
        let run = RecordRun { bytes: vec![0; 60], ends: vec![10, 30, 60] };
        assert_eq!([0, 1, 2].map(|record| run.start(record)), [0, 10, 30]);
        let fitting = |first| [9, 10, 29, 30, 59, 60].map(|len| run.fitting(first, len));
        assert_eq!(fitting(0), [1, 1, 1, 2, 2, 3]);
        assert_eq!(fitting(1), [1, 1, 1, 1, 2, 2]);
        assert_eq!(fitting(2), [1; 6]);
    }

    #[test]
    fn the_feature_has_the_ratio_and_the_size_of_the_largest_piece_in_pages() {
        let mut compress = Compress::new(CompressOptions { level: 5, ..CompressOptions::default() });
        let read = |feature: Compressed| (feature.method, feature.level, feature.ratio, feature.mmap_len);
        assert_eq!(read(compress.feature(OutputForm::File)), (1, 5, 1, 0));
        compress.done = CompressTotals { held: 700, pieces: 2, piece_bytes: 200, largest: 4097, clear: 0 };
        assert_eq!(read(compress.feature(OutputForm::File)), (1, 5, 4, 8192));
        assert_eq!(read(compress.feature(OutputForm::Pipe)), (1, 5, 0, 1 << 20));
        let mut later = compress.fork();
        later.done = CompressTotals { held: 1, pieces: 1, piece_bytes: 2, largest: 3, clear: 4 };
        compress.absorb(later);
        let CompressTotals { held, pieces, piece_bytes, largest, clear } = compress.done;
        assert_eq!((held, pieces, piece_bytes, largest, clear), (701, 3, 202, 4097, 4));
    }

    #[test]
    fn only_records_of_the_kernel_are_compressed_and_all_come_back() {
        let round = record(68, 0, &[]);
        let mut records: Vec<Vec<u8>> = (1..300).map(|time| sample(7, time, 1)).collect();
        records.insert(0, round.clone());
        records.insert(100, round.clone());
        // AUX and ITRACE_START are read from the file itself, and a round after a frame ends it.
        records.insert(200, record(12, 0, &[7 << 32 | 7]));
        records.push(round);
        let original = file(FIELDS, 0, &records, &[]);
        for chain in ["compress", "compress:compressed2", "compress:solid", "compress:level=19"] {
            let mut compressed = ran(chain, original.clone()).unwrap();
            assert!(compressed.feature(Feature::COMPRESSED).is_some());
            assert!(compressed.each(|record| record.bytes().to_vec()) == records, "{chain}");
            let kept = compressed.said.concat();
            assert!(kept.contains("in 2 records") && kept.contains("; 24 bytes stay"), "{chain}: {kept}");
        }
    }
}
