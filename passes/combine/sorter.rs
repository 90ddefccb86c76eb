//! Puts the records of one input in the order of time, in bounded memory: what waits is an index of records that lie in mapped files, and where
//! that grows too large it goes to a temporary file, with whatever records lay in memory.
//!
//! How long a record must wait is known beforehand, from a look at the whole input: for each batch the earliest time of all batches behind it.
//! FINISHED_ROUNDs were rejected for that: they promise the same, but not every writer keeps the promise, and directories have none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{BufWriter, Write};

use anyhow::{Context as _, Result};
use perfx_format::read::TempFiles;
use perfx_format::{Bytes, Endian, Kinds, Origin, Origins, Record, Walker};

/// A record that waits, and what it is sorted by.
#[derive(Clone, Copy, Debug)]
struct SortEntry {
    /// ns; a record without a time has that of those it goes before.
    key: u64,
    /// Number of the chunk it lies in; the uppermost bit is set for records without a time.
    chunk: u32,
    /// Where in it, bytes.
    at: u32,
}

/// In a temporary file an entry takes so many bytes.
const ENTRY_SIZE: usize = 16;

const TIMELESS: u32 = 1 << 31;

impl SortEntry {
    fn read(bytes: &[u8], number: usize) -> Option<SortEntry> {
        let (at, order) = (number * ENTRY_SIZE, Endian::Little);
        let (key, chunk, position) =
            (order.u64(bytes, at)?, order.u32(bytes, at + 8)?, order.u32(bytes, at + 12)?);
        Some(SortEntry { key, chunk, at: position })
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let order = Endian::Little;
        out.write_all(&order.bytes_u64(self.key))?;
        out.write_all(&order.bytes_u32(self.chunk))?;
        out.write_all(&order.bytes_u32(self.at))
    }
}

/// The records of one batch, as any thread can make them ready for the [`Sorter`].
#[derive(Debug, Default)]
pub(super) struct PreparedBatch {
    bytes: Bytes,
    origins: Origins,
    /// Records of the batch that don't lie in it.
    made: Vec<u8>,
    made_origins: Origins,
    /// In file order. Chunk 0 is the batch, chunk 1 rewritten records. For records without a time, `key` counts the finished rounds.
    entries: Vec<SortEntry>,
    timeless: bool,
    /// How many of them lie in the batch.
    stored: u32,
    /// The latest time before each FINISHED_ROUND, and at the end.
    rounds: Vec<u64>,
    latest: u64,
    /// The time of the last record that has one.
    last: Option<u64>,
}

impl PreparedBatch {
    /// The records that [`PreparedBatch::push`] finds in `bytes` are not copied.
    pub(super) fn new(bytes: Bytes, origins: Origins) -> PreparedBatch {
        PreparedBatch { bytes, origins, ..PreparedBatch::default() }
    }

    /// Takes in a record.
    #[inline]
    pub(super) fn push(&mut self, record: &Record<'_>, time: Option<u64>) -> Result<()> {
        let start = record.bytes().as_ptr();
        let (mut chunk, at) = if self.bytes.as_ptr_range().contains(&start) {
            self.stored += 1;
            (0, start as usize - self.bytes.as_ptr() as usize)
        } else {
            let at = self.made.len();
            self.made_origins.push(at, record.origin());
            self.made.extend_from_slice(record.bytes());
            self.made.extend_from_slice(record.payload());
            (1, at)
        };
        if time.is_none() {
            self.timeless = true;
            chunk |= TIMELESS;
        }
        self.latest = self.latest.max(time.unwrap_or(0));
        self.last = time.or(self.last);
        // Chunks are a few MiB, and where they are more that is the payload of their last record.
        let at = u32::try_from(at).map_err(|_| record.error("too much data is buffered before it"))?;
        self.entries.push(SortEntry { key: time.unwrap_or(self.rounds.len() as u64), chunk, at });
        Ok(())
    }

    /// A FINISHED_ROUND goes by.
    pub(super) fn finish_round(&mut self) {
        self.rounds.push(self.latest);
    }

    /// That was all: what can be put in order here is.
    pub(super) fn done(mut self) -> PreparedBatch {
        if !self.timeless {
            self.entries.sort_by_key(|entry| entry.key);
        }
        self
    }
}

/// Up to which time perf has handed records on: at a FINISHED_ROUND all that are not later than any was at the one before.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    settled: u64,
    latest_at_last: u64,
    latest: u64,
}

impl Rounds {
    fn finish(&mut self, latest: u64) {
        self.latest = self.latest.max(latest);
        self.settled = self.settled.max(self.latest_at_last);
        self.latest_at_last = self.latest;
    }
}

/// Bytes in which waiting records lie.
#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    origins: Origins,
    /// Records in it that wait.
    left: u32,
}

/// Entries in order, in a temporary file.
#[derive(Debug)]
struct SortedRun {
    entries: Bytes,
    next: usize,
}

/// A record that may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) key: u64,
    entry: SortEntry,
    /// The run it comes from; their number for what never was in one.
    run: usize,
}

impl Ready {
    pub(super) fn is_timeless(&self) -> bool {
        self.entry.chunk & TIMELESS != 0
    }
}

/// More memory than this is not used: bytes.
const MEMORY: usize = 16 << 20;

/// The records of one input.
pub(super) struct Sorter {
    endian: Endian,
    temp_files: TempFiles,
    chunks: VecDeque<Chunk>,
    /// The number of the first of the chunks.
    first: u32,
    /// Bytes of chunks that lie in memory.
    heap: usize,
    place: TimelessPlace,
    /// From `next` on: in order as soon as one of them may go.
    waiting: Vec<SortEntry>,
    next: usize,
    /// The earliest of these.
    earliest: u64,
    /// Older than what is waiting, and in the order they were made.
    runs: Vec<SortedRun>,
    /// The key of the next entry of each run, and its number.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Up to this time records may go.
    level: u64,
}

impl std::fmt::Debug for Sorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorter({} waiting, {} runs)", self.waiting.len(), self.runs.len())
    }
}

/// Where records without a time go.
#[derive(Debug)]
enum TimelessPlace {
    /// Where perf hands them on: behind what it has handed on by then, before all that is behind them in the input.
    AsHandedOn(Rounds),
    /// Where they are: behind the record with a time before them, of this time, and before the one behind them.
    BetweenNeighbours(u64),
}

impl TimelessPlace {
    /// Gives the records without a time their keys. `next` is the first time behind the batch, `level` the earliest.
    fn keys(&mut self, entries: &mut [SortEntry], held: &BatchTimes, next: u64, level: u64) {
        let is_timeless = |entry: &SortEntry| entry.chunk & TIMELESS != 0;
        match self {
            TimelessPlace::AsHandedOn(rounds) => {
                let settled: Vec<u64> = held
                    .rounds
                    .iter()
                    .map(|&latest| {
                        let before = rounds.settled;
                        rounds.finish(latest);
                        before
                    })
                    .collect();
                rounds.latest = rounds.latest.max(held.latest);
                let mut earliest = level;
                for entry in entries.iter_mut().rev().filter(|_| held.timeless) {
                    if is_timeless(entry) {
                        let settled = settled.get(entry.key as usize).copied().unwrap_or(rounds.settled);
                        entry.key = settled.min(earliest);
                    } else {
                        earliest = earliest.min(entry.key);
                    }
                }
            }
            TimelessPlace::BetweenNeighbours(before) => {
                let mut last = *before;
                for entry in entries.iter_mut().filter(|_| held.timeless) {
                    if is_timeless(entry) {
                        entry.key = last;
                    } else {
                        last = entry.key;
                    }
                }
                let mut next = next;
                for entry in entries.iter_mut().rev().filter(|_| held.timeless) {
                    if is_timeless(entry) {
                        entry.key = entry.key.min(next);
                    } else {
                        next = entry.key;
                    }
                }
                *before = held.last.unwrap_or(*before);
            }
        }
    }
}

/// What a batch tells of its times.
struct BatchTimes {
    timeless: bool,
    rounds: Vec<u64>,
    latest: u64,
    last: Option<u64>,
}

impl Sorter {
    /// What has no time goes behind those up to the time `settled` at least. `keeps_place`: perf reads the input in the order of the file, so that
    /// what has no time stays where it is.
    pub(super) fn new(endian: Endian, settled: u64, keeps_place: bool, temp_files: TempFiles) -> Sorter {
        let rounds = Rounds { settled, latest_at_last: 0, latest: 0 };
        Sorter {
            endian,
            temp_files,
            chunks: VecDeque::new(),
            first: 0,
            heap: 0,
            place: if keeps_place {
                TimelessPlace::BetweenNeighbours(settled)
            } else {
                TimelessPlace::AsHandedOn(rounds)
            },
            waiting: Vec::new(),
            next: 0,
            earliest: u64::MAX,
            runs: Vec::new(),
            heads: BinaryHeap::new(),
            level: 0,
        }
    }

    fn push(&mut self, bytes: Bytes, origins: Origins, left: usize) {
        self.heap += if bytes.is_mapped() { 0 } else { bytes.len() };
        self.chunks.push_back(Chunk { bytes, origins, left: left as u32 });
    }

    /// Takes in the next batch, behind which nothing is earlier than `level`, and the first record has the time `next`.
    pub(super) fn take(&mut self, held: PreparedBatch, next: u64, level: u64) -> Result<()> {
        let PreparedBatch { bytes, origins, made, made_origins, mut entries, stored, .. } = held;
        let PreparedBatch { timeless, rounds, latest, last, .. } = held;
        self.level = level;
        self.spill()?;
        self.place.keys(&mut entries, &BatchTimes { timeless, rounds, latest, last }, next, level);
        let number = self.first + self.chunks.len() as u32;
        anyhow::ensure!(number + 1 < TIMELESS, "there are too many batches to sort");
        entries.iter_mut().for_each(|entry| entry.chunk += number);
        self.push(bytes, origins, stored as usize);
        self.push(made.into(), made_origins, entries.len() - stored as usize);
        self.free();
        if let Some(first) = entries.iter().map(|entry| entry.key).min() {
            self.earliest = self.earliest.min(first);
        }
        self.waiting.append(&mut entries);
        if self.earliest <= level {
            self.sort();
        }
        Ok(())
    }

    /// What waits, in order. Most of it is, which a stable sort makes use of, and records of one moment stay as they are.
    fn sort(&mut self) {
        self.waiting.drain(..self.next);
        self.next = 0;
        self.waiting.sort_by_key(|entry| entry.key);
    }

    /// The first record that may go.
    pub(super) fn peek(&self) -> Option<Ready> {
        let own = self.waiting.get(self.next);
        let own = own.map(|&entry| Ready { key: entry.key, entry, run: self.runs.len() });
        let first = match self.heads.peek() {
            // Runs are older.
            Some(&Reverse((key, run))) if own.is_none_or(|own| key <= own.key) => {
                let SortedRun { entries, next } = self.runs.get(run)?;
                Some(Ready { key, entry: SortEntry::read(entries, *next)?, run })
            }
            _ => own,
        };
        first.filter(|ready| ready.key <= self.level)
    }

    /// The record itself.
    pub(super) fn record(&self, ready: &Ready) -> Result<Record<'_>> {
        let number = (ready.entry.chunk & !TIMELESS).wrapping_sub(self.first);
        let chunk = self.chunks.get(number as usize).context("a buffered record is missing")?;
        let mut walker = Walker::new(&chunk.bytes, &chunk.origins, self.endian);
        walker.seek(ready.entry.at as usize);
        walker.next_wanted(Kinds::ALL, usize::MAX)?.context("a buffered record is missing")
    }

    /// The record has gone.
    pub(super) fn pop(&mut self, ready: &Ready) {
        match self.runs.get_mut(ready.run) {
            Some(run) => {
                run.next += 1;
                self.heads.pop();
                let next = SortEntry::read(&run.entries, run.next);
                self.heads.extend(next.map(|next| Reverse((next.key, ready.run))));
            }
            None => {
                self.next += 1;
                self.earliest = self.waiting.get(self.next).map_or(u64::MAX, |entry| entry.key);
            }
        }
        let number = (ready.entry.chunk & !TIMELESS).wrapping_sub(self.first);
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            chunk.left = chunk.left.saturating_sub(1);
            if chunk.left == 0 && number == 0 {
                self.free();
            }
        }
    }

    /// Forgets chunks in which nothing waits.
    fn free(&mut self) {
        while let Some(chunk) = self.chunks.front().filter(|chunk| chunk.left == 0) {
            self.heap -= if chunk.bytes.is_mapped() { 0 } else { chunk.bytes.len() };
            self.first += 1;
            self.chunks.pop_front();
        }
    }

    /// Puts what waits into a temporary file when it takes too much memory.
    fn spill(&mut self) -> Result<()> {
        if self.heap + (self.waiting.len() - self.next) * ENTRY_SIZE <= MEMORY {
            return Ok(());
        }
        let fail = "can't write buffered records to a temporary file (TMPDIR)";
        self.sort();
        let mut file = BufWriter::new((self.temp_files)().context(fail)?);
        let mut end = 0;
        let mut places = Vec::new();
        for (number, chunk) in self.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.bytes.is_mapped()) {
            file.write_all(&chunk.bytes).context(fail)?;
            places.push((number, end..end + chunk.bytes.len()));
            end += chunk.bytes.len();
        }
        self.waiting.iter().try_for_each(|entry| entry.write(&mut file)).context(fail)?;
        let file = file.into_inner().map_err(|error| error.into_error()).context(fail)?;
        let bytes = Bytes::map(&file)?;
        for (number, place) in places {
            if let Some(chunk) = self.chunks.get_mut(number) {
                chunk.bytes = bytes.slice(place);
            }
        }
        self.heap = 0;
        let entries = bytes.slice(end..bytes.len());
        self.heads.extend(SortEntry::read(&entries, 0).map(|first| Reverse((first.key, self.runs.len()))));
        self.runs.push(SortedRun { entries, next: 0 });
        self.waiting.clear();
        (self.next, self.earliest) = (0, u64::MAX);
        Ok(())
    }
}

/// Later passes do not need the origin of a record from another input.
pub(super) fn anonymous<'a>(record: &Record<'a>) -> Result<Record<'a>> {
    Ok(Record::new(record.bytes(), record.payload(), Origin::Synthetic, record.endian())?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Records of 16 bytes that hold their time, in batches; what comes out, and how many temporary files that took.
    fn sorted(batches: &[Vec<Option<u64>>], keeps_place: bool) -> (Vec<u64>, usize) {
        let mut sorter = Sorter::new(Endian::Little, 0, keeps_place, Arc::new(tempfile::tempfile));
        let earliest = |times: &[Option<u64>]| times.iter().flatten().copied().min().unwrap_or(u64::MAX);
        let mut out = Vec::new();
        for (number, times) in batches.iter().enumerate() {
            let record =
                |time: &Option<u64>| [0x10_0000_0000_0009, time.unwrap_or(0)].map(u64::to_le_bytes).concat();
            let bytes = Bytes::from(times.iter().flat_map(record).collect::<Vec<u8>>());
            let origins = Origins::input(0, 0);
            let mut held = PreparedBatch::new(bytes.clone(), origins.clone());
            let mut walker = Walker::new(&bytes, &origins, Endian::Little);
            for time in times {
                let record = walker.next_record().unwrap().unwrap();
                held.push(&record, *time).unwrap();
            }
            let behind = batches[number + 1..].iter().map(|times| earliest(times)).min();
            let next = batches[number + 1..].iter().flatten().flatten().next();
            sorter.take(held.done(), next.copied().unwrap_or(u64::MAX), behind.unwrap_or(u64::MAX)).unwrap();
            while let Some(ready) = sorter.peek() {
                out.push(sorter.record(&ready).unwrap().u64(8).unwrap());
                sorter.pop(&ready);
            }
        }
        assert!(sorter.chunks.is_empty() && sorter.heap == 0, "nothing stays behind");
        (out, sorter.runs.len())
    }

    #[test]
    fn what_waits_for_the_last_batch_goes_through_temporary_files() {
        let batch = |number: u64| (0..300_000).map(|at| Some(1 + (number * 7 + at * 31) % 65_521)).collect();
        let mut batches: Vec<Vec<Option<u64>>> = (0..6).map(batch).collect();
        batches.push(vec![Some(1)]);
        let (out, runs) = sorted(&batches, false);
        assert!(runs > 1);
        let mut expected: Vec<u64> = batches.iter().flatten().flatten().copied().collect();
        expected.sort_unstable();
        assert_eq!(out, expected);
    }

    #[test]
    fn without_a_time_before_all_that_waits() {
        let batches = [vec![None, Some(5), Some(3)], vec![None, Some(7)], vec![Some(6), None]];
        assert_eq!(sorted(&batches, false), (vec![0, 3, 5, 0, 0, 6, 7], 0));
    }

    #[test]
    fn without_a_time_between_neighbours() {
        let batches = [vec![None, Some(5), None, Some(8), None], vec![Some(3), None, Some(7)], vec![None]];
        // Between 5 and 8; after 8 and before 3, of which the latter counts; between 3 and 7; after 7, all of whose batch had gone.
        assert_eq!(sorted(&batches, true), (vec![0, 0, 3, 0, 5, 0, 7, 8, 0], 0));
    }
}
