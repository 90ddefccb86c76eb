//! The index of a recording: a file that describes each batch, so that commands read only those they need.

use std::sync::{Arc, OnceLock};

use twox_hash::XxHash3_64;

use super::batch::Batch;
use super::batches::BatchExtent;
use super::recording::Recording;
use super::sample_span::SampleSpan;
use super::stream::Source;
use crate::{Bytes, Cursor, Endian, Error, HEADER_SIZE, Kinds, Result};

const MAGIC: &[u8; 8] = b"PERFXIDX";

const VERSION: u32 = 1;

/// Numbers are little-endian, so that an index is the same on any machine.
const ENDIAN: Endian = Endian::Little;

const UNLISTED: u32 = u32::MAX;

/// The bytes at each end of a batch, and of the parts around the records, in its quick checksum.
const BATCH_ENDS: usize = 64;
const OTHER_ENDS: usize = 64 << 10;

/// The contents of each batch of a recording, and checksums of the recording.
///
/// | byte | |
/// |---|---|
/// | 0 | `PERFXIDX` |
/// | 8 | u32 version, 1 |
/// | 12 | u32 number of the recording's files with records |
/// | 16 | for each file: u64 size, bytes; u64 quick checksum; u64 checksum |
/// | … | u64 number of batches, then the batches, as below |
/// | end - 8 | u64 XXH3 of all before it |
///
/// A batch:
///
/// | byte | |
/// |---|---|
/// | 0 | u32 index of its file |
/// | 4 | u32 number of rare records, n; `0xffffffff`: too many to be listed |
/// | 8 | u64 position, counted from the first record of the file, bytes |
/// | 16 | u64 length, bytes |
/// | 24 | u64 number of records |
/// | 32 | kinds of records: two u64, the lower bits first; bit 127 stands for all kinds from 127 on |
/// | 48 | u64 time of the earliest sample, ns; u64 time of the latest one |
/// | 64 | u64 number of samples |
/// | 72 | u32 number of processes of samples, p; `0xffffffff`: not known or too many |
/// | 76 | u32 for each rare record, n in all: its position in the batch, ascending |
/// | 76 + 4 n | u32 for each process, p in all: its pid, ascending |
///
/// Rare records are all except SAMPLE, FINISHED_ROUND, SWITCH and SWITCH_CPU_WIDE.
///
/// The checksum of a file is the XXH3 of the XXH3s of its pieces, as u64: the bytes before the records, each
/// batch, the bytes after the records. The quick checksum is the same with only the first and the last 64
/// bytes of each batch, and the first and the last 64 KiB of the other pieces.
#[derive(Clone, Debug)]
pub struct Index {
    files: Vec<Checksums>,
    batches: Vec<BatchExtent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Checksums {
    size: u64,
    quick: u64,
    whole: u64,
}

/// The description of one batch.
#[derive(Clone, Debug)]
pub struct IndexedBatch {
    samples: SampleSpan,
    hash: u64,
}

impl IndexedBatch {
    /// Reads the samples of a batch; may run on any thread.
    ///
    /// # Errors
    ///
    /// The batch is damaged, or holds compressed records.
    pub fn of(batch: &Batch) -> Result<IndexedBatch> {
        if let Some(fragment) = &batch.fragment {
            return Err(fragment.to_error().hint("perfx recover restores the readable part; index that"));
        }
        if batch.kinds.intersects(Kinds::COMPRESSED) {
            let what = "only the whole of compressed records can be read, so an index would be of no use";
            return Err(Error::new(what).hint("perfx decompress first"));
        }
        Ok(IndexedBatch {
            samples: SampleSpan::of_times_and_pids((batch.walk(), &batch.layouts)),
            hash: hash(&batch.bytes),
        })
    }
}

impl Index {
    /// The index of a recording whose batches have just been read, all of them: see [`Recording::batches`].
    ///
    /// # Errors
    ///
    /// The recording is not in a file, or not all batches were read.
    pub fn new(recording: &Recording, batches: Vec<IndexedBatch>) -> Result<Index> {
        let extents = recording.extents.get().filter(|extents| extents.len() == batches.len());
        let Some(extents) = extents else {
            return Err(Error::new("only a recording in files has an index").file(&recording.name));
        };
        let hashes: Vec<u64> = batches.iter().map(|batch| batch.hash).collect();
        let spans = batches.into_iter().map(|batch| Some(Arc::new(batch.samples)));
        let extents = extents.iter().zip(spans);
        let batches = extents.map(|(extent, samples)| BatchExtent { samples, ..extent.clone() }).collect();
        let mut index = Index { files: Vec::new(), batches };
        for number in 0..recording.streams.len() {
            let Some(pieces) = Pieces::of(recording, number) else { continue };
            let of_file = index.batches.iter().zip(&hashes).filter(|(batch, _)| batch.stream == number);
            let whole = pieces.checksum(of_file.map(|(_, &hash)| hash), hash);
            let quick = pieces.quick_checksum(index.of_file(number));
            index.files.push(Checksums { size: pieces.file.len() as u64, quick, whole });
        }
        Ok(index)
    }

    fn of_file(&self, number: usize) -> impl Iterator<Item = &BatchExtent> {
        self.batches.iter().filter(move |batch| batch.stream == number)
    }

    /// The number of batches.
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        let count = |batch: &BatchExtent| batch.samples.as_ref().map_or(0, |samples| samples.count);
        self.batches.iter().map(count).fold(0, u64::saturating_add)
    }

    /// True if it belongs to the recording: by the sizes of its files and by quick checksums, and with
    /// `thorough` by checksums of all bytes.
    pub fn belongs_to(&self, recording: &Recording, thorough: bool) -> bool {
        let belongs = |(number, file): (usize, &Checksums)| {
            let pieces = Pieces::of(recording, number)?;
            let size = pieces.file.len() as u64;
            let end = self.of_file(number).last().map_or(0, |batch| batch.start + batch.len);
            (size == file.size && end == pieces.records.len()).then_some(())?;
            (pieces.quick_checksum(self.of_file(number)) == file.quick).then_some(())?;
            let hashes = || self.of_file(number).map(|batch| hash(pieces.batch(batch)));
            (!thorough || pieces.checksum(hashes(), hash) == file.whole).then_some(())
        };
        self.files.len() == recording.streams.len()
            && self.files.iter().enumerate().all(|file| belongs(file).is_some())
    }

    /// True if bytes begin like an index.
    pub fn is_index(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Reads an index.
    ///
    /// # Errors
    ///
    /// It is not an index, of a newer version, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Index> {
        let (body, sum) = bytes.split_at_checked(bytes.len().saturating_sub(8)).unwrap_or((bytes, &[]));
        let mut fields = Cursor::new(body, ENDIAN);
        if fields.bytes(MAGIC.len()) != Some(MAGIC) {
            return Err(Error::at(0, "it is not an index of perfx"));
        }
        let version = fields.u32();
        if version != Some(VERSION) {
            let version = version.unwrap_or(0);
            return Err(Error::at(8, format!("its version is {version}, and this perfx reads {VERSION}")));
        }
        let index = (ENDIAN.u64(sum, 0) == Some(hash(body))).then(|| Index::of_body(&mut fields)).flatten();
        index.ok_or_else(|| Error::at(fields.at() as u64, "the index is damaged").damaged())
    }

    fn of_body(fields: &mut Cursor<'_>) -> Option<Index> {
        let mut index = Index { files: Vec::new(), batches: Vec::new() };
        for _ in 0..fields.u32()? {
            let (size, quick, whole) = (fields.u64()?, fields.u64()?, fields.u64()?);
            index.files.push(Checksums { size, quick, whole });
        }
        let mut next = (0, 0);
        for _ in 0..fields.u64()? {
            let batch = batch_of(fields)?;
            // Batches follow each other without gaps; each file begins at 0.
            let follows = (batch.stream, batch.start) == next || batch.stream > next.0 && batch.start == 0;
            (follows && batch.stream < index.files.len()).then_some(())?;
            next = (batch.stream, batch.start.checked_add(batch.len)?);
            index.batches.push(batch);
        }
        fields.rest().is_empty().then_some(index)
    }

    /// The bytes of the index.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(ENDIAN.bytes_u32(VERSION));
        bytes.extend(ENDIAN.bytes_u32(self.files.len() as u32));
        for &Checksums { size, quick, whole } in &self.files {
            bytes.extend([size, quick, whole].into_iter().flat_map(|field| ENDIAN.bytes_u64(field)));
        }
        bytes.extend(ENDIAN.bytes_u64(self.batches.len() as u64));
        self.batches.iter().for_each(|batch| put_batch(batch, &mut bytes));
        bytes.extend(ENDIAN.bytes_u64(hash(&bytes)));
        bytes
    }
}

fn batch_of(fields: &mut Cursor<'_>) -> Option<BatchExtent> {
    let (stream, rare) = (fields.u32()? as usize, fields.u32()?);
    let (start, len) = (usize::try_from(fields.u64()?).ok()?, usize::try_from(fields.u64()?).ok()?);
    let records = fields.u64()?;
    let kinds = Kinds::from_bits(u128::from(fields.u64()?) | u128::from(fields.u64()?) << 64);
    let (first, last, count, pids) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u32()?);
    let sparse_index = listed(fields, rare)?;
    let pids = listed(fields, pids)?;
    let inside = sparse_index.iter().flat_map(|rare| rare.last()).all(|&last| (last as usize) < len);
    let fits = inside && count <= records && records <= (len / HEADER_SIZE) as u64;
    let samples = Some(Arc::new(SampleSpan { first, last, count, pids }));
    fits.then_some(BatchExtent {
        stream,
        start,
        len,
        kinds,
        records,
        sparse_index,
        fragment: None,
        sound: false,
        samples,
    })
}

/// Ascending numbers; `None` in the result if they are not listed.
fn listed(fields: &mut Cursor<'_>, count: u32) -> Option<Option<Arc<[u32]>>> {
    if count == UNLISTED {
        return Some(None);
    }
    let bytes = fields.bytes((count as usize).checked_mul(4)?)?;
    let mut bytes = Cursor::new(bytes, ENDIAN);
    let numbers: Arc<[u32]> = std::iter::from_fn(|| bytes.u32()).collect();
    numbers.is_sorted().then_some(Some(numbers))
}

fn put_batch(batch: &BatchExtent, bytes: &mut Vec<u8>) {
    let number = |list: Option<&Arc<[u32]>>| list.map_or(UNLISTED, |list| list.len() as u32);
    let none = SampleSpan::NONE;
    let SampleSpan { first, last, count, pids } = batch.samples.as_deref().unwrap_or(&none);
    bytes.extend(ENDIAN.bytes_u32(batch.stream as u32));
    bytes.extend(ENDIAN.bytes_u32(number(batch.sparse_index.as_ref())));
    let kinds = batch.kinds.bits();
    let fields = [batch.start as u64, batch.len as u64, batch.records, kinds as u64, (kinds >> 64) as u64];
    bytes.extend(fields.into_iter().chain([*first, *last, *count]).flat_map(|field| ENDIAN.bytes_u64(field)));
    bytes.extend(ENDIAN.bytes_u32(number(pids.as_ref())));
    let lists = [batch.sparse_index.as_ref(), pids.as_ref()].into_iter().flatten();
    bytes.extend(lists.flat_map(|list| list.iter()).flat_map(|&number| ENDIAN.bytes_u32(number)));
}

struct Pieces {
    file: Bytes,
    start: usize,
    records: Bytes,
}

impl Pieces {
    fn of(recording: &Recording, number: usize) -> Option<Pieces> {
        match &recording.streams.get(number)?.source {
            Source::Mapped { bytes, offset, .. } => {
                Some(Pieces { file: bytes.whole(), start: *offset as usize, records: bytes.clone() })
            }
            Source::Reader { .. } => None,
        }
    }

    fn batch(&self, batch: &BatchExtent) -> &[u8] {
        let end = batch.start.saturating_add(batch.len);
        self.records.get(batch.start..end).unwrap_or_default()
    }

    /// The checksum of the file, from those of its batches; `other` computes those of the other pieces.
    fn checksum(&self, batches: impl Iterator<Item = u64>, other: impl Fn(&[u8]) -> u64) -> u64 {
        let after = self.start.saturating_add(self.records.len());
        let front = other(self.file.get(..self.start).unwrap_or_default());
        let end = other(self.file.get(after..).unwrap_or_default());
        let pieces = std::iter::once(front).chain(batches).chain([end]);
        hash(&pieces.flat_map(|piece| ENDIAN.bytes_u64(piece)).collect::<Vec<u8>>())
    }

    fn quick_checksum<'b>(&self, batches: impl Iterator<Item = &'b BatchExtent>) -> u64 {
        let batches = batches.map(|batch| hash_of_ends(self.batch(batch), BATCH_ENDS));
        self.checksum(batches, |other| hash_of_ends(other, OTHER_ENDS))
    }
}

fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

fn hash_of_ends(bytes: &[u8], len: usize) -> u64 {
    match bytes.len() > 2 * len {
        true => hash(&[&bytes[..len], &bytes[bytes.len() - len..]].concat()),
        false => hash(bytes),
    }
}

impl Recording {
    /// Adopts the batches of an index, which must [belong](Index::belongs_to) to this recording.
    pub fn use_index(&mut self, index: Index) {
        self.extents = Arc::new(OnceLock::from(index.batches));
    }
}

#[cfg(all(test, feature = "fs"))]
mod tests {
    use super::*;
    use crate::write::RecordingWriter;
    use crate::{Attr, Event, RecordType, sample_type as st};

    fn recording(path: &std::path::Path) -> Recording {
        let mut attr = Attr::default();
        (attr.type_, attr.sample_type) = (1, st::TID | st::TIME);
        let event = Event::made(&attr, Vec::new(), ENDIAN);
        let mut writer = RecordingWriter::create(path, std::slice::from_ref(&event), ENDIAN).unwrap();
        for (pid, time) in [(7_u32, 50_u64), (3, 40), (7, 60)] {
            let task = [pid, pid].map(|id| ENDIAN.bytes_u32(id)).concat();
            writer.write_parts(RecordType::SAMPLE, 0, &[&task, &ENDIAN.bytes_u64(time)]).unwrap();
            writer.write_parts(RecordType::SCHEDSTAT_CPU, 0, &[&[0; 24]]).unwrap();
        }
        writer.finish().unwrap();
        Recording::open(path).unwrap()
    }

    fn index(recording: &mut Recording) -> Index {
        let read = recording.batches().map(|batch| IndexedBatch::of(&batch?)).collect::<Result<_>>();
        Index::new(recording, read.unwrap()).unwrap()
    }

    #[test]
    fn an_index_describes_the_samples() {
        let folder = tempfile::tempdir().unwrap();
        let mut recording = recording(&folder.path().join("a.data"));
        let index = Index::read(&index(&mut recording).to_bytes()).unwrap();
        assert_eq!((index.batches(), index.samples()), (1, 3));
        let span = index.batches[0].samples.as_deref().unwrap();
        assert_eq!((span.first, span.last, span.pids.as_deref()), (40, 60, Some(&[3, 7][..])));
        assert_eq!(index.batches[0].sparse_index.as_deref(), Some(&[24, 80, 136][..]));
    }

    /// With any contents of an index, reading neither panics nor leaves the recording.
    #[test]
    fn any_bytes_of_an_index_are_safe() {
        let folder = tempfile::tempdir().unwrap();
        let mut recording = recording(&folder.path().join("a.data"));
        let good = index(&mut recording).to_bytes();
        let mut taken = 0;
        for at in 0..good.len() - 8 {
            for change in [1, 0x7f, 0x80, 0xff] {
                let mut bytes = good[..good.len() - 8].to_vec();
                bytes[at] ^= change;
                assert!(Index::read(&[&bytes[..], &good[good.len() - 8..]].concat()).is_err());
                bytes.extend(ENDIAN.bytes_u64(hash(&bytes)));
                let Ok(index) = Index::read(&bytes) else { continue };
                index.belongs_to(&recording, true);
                taken += 1;
                let mut again = recording.try_clone().unwrap();
                again.use_index(index);
                for batch in again.batches().flatten() {
                    batch.sample_span();
                    for wanted in [Kinds::ALL, Kinds::of(&[RecordType::SCHEDSTAT_CPU])] {
                        let mut walker = batch.walk();
                        while let Ok(Some(_)) = walker.next_wanted(wanted, usize::MAX) {}
                    }
                }
            }
        }
        assert!(taken > 100);
        for len in 0..good.len() {
            assert!(Index::read(&good[..len]).is_err());
        }
    }
}
