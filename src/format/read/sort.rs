//! Sorts the records of one input by time in bounded memory. Waiting records are kept as an index of
//! positions in mapped files; if the index grows too large, it goes to a temporary file, together with
//! records in memory.
//!
//! The waiting time of records follows from a survey of the whole input: for each batch, the earliest time of
//! all batches after it. FINISHED_ROUNDs were rejected as the source: they promise the same, but some writers
//! break the promise, and directories have none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, BufWriter, Write};

use super::TempFiles;
use crate::{Bytes, Endian, Error, Layouts, Origins, Record, Result, Time, Walker};

#[derive(Clone, Copy, Debug)]
struct SortEntry {
    /// The time, ns; a record without one has the time of the records that it precedes.
    key: u64,
    /// Number of its chunk; the highest bit is set for records without a time.
    chunk: u32,
    /// Its position in the chunk, bytes.
    at: u32,
}

#[cold]
fn missing() -> Error {
    Error::new("internal error: a buffered record is missing")
}

/// The time in ns by which a record is sorted; `None` without one, or for a value that means none.
#[inline]
pub fn time_of(record: &Record<'_>, layouts: &Layouts) -> Option<u64> {
    let time = if record.kind().is_kernel() { layouts.time(record) } else { None };
    time.map(Time::ns)
}

/// For each batch, the earliest time of all later ones, from the earliest time in each; `u64::MAX` for none.
pub fn watermarks(earliest: impl DoubleEndedIterator<Item = u64>) -> VecDeque<u64> {
    let mut watermark = u64::MAX;
    let mut watermarks = VecDeque::new();
    for here in earliest.rev() {
        watermarks.push_front(watermark);
        watermark = watermark.min(here);
    }
    watermarks
}

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

/// The records of one batch, prepared for the [`Sorter`] on any thread.
#[derive(Debug, Default)]
pub struct PreparedBatch {
    bytes: Bytes,
    origins: Origins,
    made: Vec<u8>,
    made_origins: Origins,
    /// True if the records get no origins.
    anonymous: bool,
    /// In file order. Chunk 0 is the batch, chunk 1 rewritten records. Without a time, `key` is the round.
    entries: Vec<SortEntry>,
    timeless: bool,
    stored: u32,
    /// The latest time before each FINISHED_ROUND, and before the end.
    rounds: Vec<u64>,
    latest: u64,
    /// The time of the last record with one.
    last: Option<u64>,
}

const TOO_MUCH: &str = "too much data is buffered before it";

impl PreparedBatch {
    /// Records that [`PreparedBatch::push`] finds inside `bytes` are not copied.
    pub fn new(bytes: Bytes, origins: Origins) -> PreparedBatch {
        PreparedBatch { bytes, origins, ..PreparedBatch::default() }
    }

    /// Like [`PreparedBatch::new`], but the records lose their origins.
    pub fn without_origins(bytes: Bytes) -> PreparedBatch {
        PreparedBatch { bytes, anonymous: true, ..PreparedBatch::default() }
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// There are too many bytes before it in its batch.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>, time: Option<u64>) -> Result<()> {
        let start = record.bytes().as_ptr();
        if !self.bytes.as_ptr_range().contains(&start) {
            return self.push_made(record, time, |made| {
                made.extend_from_slice(record.bytes());
                Ok(())
            });
        }
        self.stored += 1;
        self.enter(record, time, 0, start as usize - self.bytes.as_ptr() as usize)
    }

    /// Adds a record in another form, without its payload; `write` appends it.
    ///
    /// # Errors
    ///
    /// The error of `write`, or as for [`PreparedBatch::push`].
    #[inline]
    pub fn push_made(
        &mut self,
        record: &Record<'_>,
        time: Option<u64>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let at = self.made.len();
        if at == 0 {
            // If one record gets another form, most do.
            self.made.reserve(self.bytes.len() / 8 * 9);
        }
        if !self.anonymous {
            self.made_origins.push(at, record.origin());
        }
        write(&mut self.made)?;
        self.made.extend_from_slice(record.payload());
        self.enter(record, time, 1, at)
    }

    #[inline]
    fn enter(&mut self, record: &Record<'_>, time: Option<u64>, mut chunk: u32, at: usize) -> Result<()> {
        if time.is_none() {
            self.timeless = true;
            chunk |= TIMELESS;
        }
        self.latest = self.latest.max(time.unwrap_or(0));
        self.last = time.or(self.last);
        // Chunks have a few MiB; larger ones consist mainly of their last record's payload.
        let at = u32::try_from(at).map_err(|_| record.error(TOO_MUCH))?;
        self.entries.push(SortEntry { key: time.unwrap_or(self.rounds.len() as u64), chunk, at });
        Ok(())
    }

    /// Adds a FINISHED_ROUND.
    pub fn finish_round(&mut self) {
        self.rounds.push(self.latest);
    }

    /// Completes the batch and sorts as far as possible here.
    pub fn done(mut self) -> PreparedBatch {
        if !self.timeless {
            self.entries.sort_by_key(|entry| entry.key);
        }
        self
    }
}

/// The time up to which perf has flushed records: a FINISHED_ROUND flushes all that are not later than the
/// latest time at the previous one.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    flushed_until: u64,
    latest_at_last: u64,
    latest: u64,
}

impl Rounds {
    fn finish(&mut self, latest: u64) {
        self.latest = self.latest.max(latest);
        self.flushed_until = self.flushed_until.max(self.latest_at_last);
        self.latest_at_last = self.latest;
    }
}

#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    origins: Origins,
    left: u32,
}

#[derive(Debug)]
struct SortedRun {
    entries: Bytes,
    next: usize,
}

fn in_memory(bytes: &Bytes) -> usize {
    if bytes.is_mapped() { 0 } else { bytes.len() }
}

/// A record that is ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its time, ns; for a record without a time, that of the records before which it is written.
    pub key: u64,
    entry: SortEntry,
    /// The index of its run; the number of runs if it belongs to none.
    run: usize,
}

impl Ready {
    /// True if the record has no time of its own.
    pub fn is_timeless(&self) -> bool {
        self.entry.chunk & TIMELESS != 0
    }
}

const MEMORY: usize = 32 << 20;

/// Sorts the records of one input.
pub struct Sorter {
    endian: Endian,
    temp_files: TempFiles,
    chunks: VecDeque<Chunk>,
    first: u32,
    heap: usize,
    place: TimelessPlace,
    /// Entries, waiting from `next` on; sorted as soon as one of them is ready.
    waiting: Vec<SortEntry>,
    next: usize,
    earliest: u64,
    /// The runs in temporary files, in the order of creation. All are older than the entries in `waiting`.
    runs: Vec<SortedRun>,
    /// The key of the next entry of each run, and the run's number.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Records up to this time are ready.
    level: u64,
}

impl std::fmt::Debug for Sorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorter({} waiting, {} runs)", self.waiting.len(), self.runs.len())
    }
}

#[derive(Debug)]
enum TimelessPlace {
    /// Where perf processes them: after the records flushed by then, before all later ones of the input.
    AsHandedOn(Rounds),
    /// Their position in the input: after the records of this time, before the next one with a time.
    BetweenNeighbours(u64),
}

impl TimelessPlace {
    /// The keys of records without a time. `next` is the first time after the batch, `level` the earliest.
    fn keys(&mut self, entries: &mut [SortEntry], prepared: &BatchTimes, next: u64, level: u64) {
        let is_timeless = |entry: &SortEntry| entry.chunk & TIMELESS != 0;
        match self {
            TimelessPlace::AsHandedOn(rounds) => {
                let flushed_until: Vec<u64> = prepared
                    .rounds
                    .iter()
                    .map(|&latest| {
                        let before = rounds.flushed_until;
                        rounds.finish(latest);
                        before
                    })
                    .collect();
                rounds.latest = rounds.latest.max(prepared.latest);
                let mut earliest = level;
                for entry in entries.iter_mut().rev().filter(|_| prepared.timeless) {
                    if is_timeless(entry) {
                        let flushed_until =
                            flushed_until.get(entry.key as usize).copied().unwrap_or(rounds.flushed_until);
                        entry.key = flushed_until.min(earliest);
                    } else {
                        earliest = earliest.min(entry.key);
                    }
                }
            }
            TimelessPlace::BetweenNeighbours(before) => {
                let mut last = *before;
                for entry in entries.iter_mut().filter(|_| prepared.timeless) {
                    if is_timeless(entry) {
                        entry.key = last;
                    } else {
                        last = entry.key;
                    }
                }
                let mut next = next;
                for entry in entries.iter_mut().rev().filter(|_| prepared.timeless) {
                    if is_timeless(entry) {
                        entry.key = entry.key.min(next);
                    } else {
                        next = entry.key;
                    }
                }
                *before = prepared.last.unwrap_or(*before);
            }
        }
    }
}

struct BatchTimes {
    timeless: bool,
    rounds: Vec<u64>,
    latest: u64,
    last: Option<u64>,
}

impl Sorter {
    /// Records without a time are placed after all records up to `flushed_until`. With `keeps_place`, they
    /// keep their position, because perf reads the input in file order.
    pub fn new(endian: Endian, flushed_until: u64, keeps_place: bool, temp_files: TempFiles) -> Sorter {
        let rounds = Rounds { flushed_until, latest_at_last: 0, latest: 0 };
        Sorter {
            endian,
            temp_files,
            chunks: VecDeque::new(),
            first: 0,
            heap: 0,
            place: if keeps_place {
                TimelessPlace::BetweenNeighbours(flushed_until)
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
        let bytes = if left > 0 { bytes } else { Bytes::default() };
        self.heap += in_memory(&bytes);
        self.chunks.push_back(Chunk { bytes, origins, left: left as u32 });
    }

    /// Adds the next batch; in those after it, no time is before `level`, and the first is `next`.
    ///
    /// # Errors
    ///
    /// There is no room for a temporary file, or there are 2^31 batches.
    pub fn take(&mut self, prepared: PreparedBatch, next: u64, level: u64) -> Result<()> {
        let PreparedBatch { bytes, origins, made, made_origins, mut entries, stored, .. } = prepared;
        let PreparedBatch { timeless, rounds, latest, last, .. } = prepared;
        self.level = level;
        self.spill()?;
        self.place.keys(&mut entries, &BatchTimes { timeless, rounds, latest, last }, next, level);
        let number = self.first + self.chunks.len() as u32;
        if number + 1 >= TIMELESS {
            return Err(Error::new("there are too many batches to sort"));
        }
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

    /// Sorts the waiting records, most of which are sorted already; equal times keep their order.
    fn sort(&mut self) {
        self.waiting.drain(..self.next);
        self.next = 0;
        self.waiting.sort_by_key(|entry| entry.key);
    }

    /// The first record that is ready.
    #[inline]
    pub fn peek(&self) -> Option<Ready> {
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

    /// The record.
    ///
    /// # Errors
    ///
    /// The record is not one that [`Sorter::peek`] returned.
    #[inline]
    pub fn record(&self, ready: &Ready) -> Result<Record<'_>> {
        let number = (ready.entry.chunk & !TIMELESS).wrapping_sub(self.first);
        let chunk = self.chunks.get(number as usize).ok_or_else(missing)?;
        let walker = Walker::new(&chunk.bytes, &chunk.origins, self.endian);
        walker.record_at(ready.entry.at as usize)?.ok_or_else(missing)
    }

    /// Removes the record after it was written.
    #[inline]
    pub fn pop(&mut self, ready: &Ready) {
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
        self.leave(ready.entry.chunk & !TIMELESS, 1);
    }

    #[inline]
    fn leave(&mut self, number: u32, count: usize) {
        if let Some(chunk) = self.chunks.get_mut(number.wrapping_sub(self.first) as usize) {
            chunk.left = chunk.left.saturating_sub(count as u32);
            if chunk.left == 0 {
                // A record of an earlier chunk may wait for long.
                self.heap -= in_memory(&std::mem::take(&mut chunk.bytes));
                self.free();
            }
        }
    }

    /// Drops chunks without waiting records, whose bytes are already gone.
    fn free(&mut self) {
        while self.chunks.front().is_some_and(|chunk| chunk.left == 0) {
            self.first += 1;
            self.chunks.pop_front();
        }
    }

    /// Moves waiting records to a temporary file if they take too much memory.
    fn spill(&mut self) -> Result<()> {
        if self.heap + (self.waiting.len() - self.next) * ENTRY_SIZE <= MEMORY {
            return Ok(());
        }
        let fail = |e| Error::io("can't write buffered records to a temporary file (TMPDIR)", e);
        let file = match (self.temp_files)() {
            // On a system without files, the recording is in memory, too.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
            file => file.map_err(fail)?,
        };
        self.sort();
        let mut file = BufWriter::new(file);
        let mut end = 0;
        let mut places = Vec::new();
        for (number, chunk) in self.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.bytes.is_mapped()) {
            file.write_all(&chunk.bytes).map_err(fail)?;
            places.push((number, end..end + chunk.bytes.len()));
            end += chunk.bytes.len();
        }
        self.waiting.iter().try_for_each(|entry| entry.write(&mut file)).map_err(fail)?;
        let file = file.into_inner().map_err(|error| fail(error.into_error()))?;
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

#[cfg(all(test, feature = "fs"))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Sorts batches of records of 16 bytes with these times; returns the times, and the temporary files.
    fn sorted(batches: &[Vec<Option<u64>>], keeps_place: bool) -> (Vec<u64>, usize) {
        let mut sorter = Sorter::new(Endian::Little, 0, keeps_place, Arc::new(tempfile::tempfile));
        let earliest = |times: &[Option<u64>]| times.iter().flatten().copied().min().unwrap_or(u64::MAX);
        let mut out = Vec::new();
        for (number, times) in batches.iter().enumerate() {
            let record =
                |time: &Option<u64>| [0x10_0000_0000_0009, time.unwrap_or(0)].map(u64::to_le_bytes).concat();
            let bytes = Bytes::from(times.iter().flat_map(record).collect::<Vec<u8>>());
            let origins = Origins::input(0, 0);
            let mut prepared = PreparedBatch::new(bytes.clone(), origins.clone());
            let mut walker = Walker::new(&bytes, &origins, Endian::Little);
            for time in times {
                let record = walker.next_record().unwrap().unwrap();
                prepared.push(&record, *time).unwrap();
            }
            let after = batches[number + 1..].iter().map(|times| earliest(times)).min();
            let next = batches[number + 1..].iter().flatten().flatten().next();
            sorter
                .take(prepared.done(), next.copied().unwrap_or(u64::MAX), after.unwrap_or(u64::MAX))
                .unwrap();
            while let Some(ready) = sorter.peek() {
                out.push(sorter.record(&ready).unwrap().u64(8).unwrap());
                sorter.pop(&ready);
            }
        }
        assert!(sorter.chunks.is_empty() && sorter.heap == 0, "nothing stays behind");
        (out, sorter.runs.len())
    }

    #[test]
    fn records_that_wait_for_the_last_batch_go_to_temporary_files() {
        let batch = |number: u64| (0..300_000).map(|at| Some(1 + (number * 7 + at * 31) % 65_521)).collect();
        let mut batches: Vec<Vec<Option<u64>>> = (0..15).map(batch).collect();
        batches.push(vec![Some(1)]);
        let (out, runs) = sorted(&batches, false);
        assert!(runs > 1);
        let mut expected: Vec<u64> = batches.iter().flatten().flatten().copied().collect();
        expected.sort_unstable();
        assert_eq!(out, expected);
    }

    #[test]
    fn a_late_record_keeps_no_others_in_memory() {
        let batch = |number: u64| (0..300_000).map(|at| Some(1 + number * 300_000 + at)).collect();
        let mut batches: Vec<Vec<Option<u64>>> = (0..6).map(batch).collect();
        batches[0][0] = Some(u64::MAX - 1);
        let (out, runs) = sorted(&batches, false);
        assert_eq!((out.len(), out.last(), runs), (1_800_000, Some(&(u64::MAX - 1)), 0));
        assert!(out.is_sorted());
    }

    #[test]
    fn records_without_a_time_precede_waiting_ones() {
        let batches = [vec![None, Some(5), Some(3)], vec![None, Some(7)], vec![Some(6), None]];
        assert_eq!(sorted(&batches, false), (vec![0, 3, 5, 0, 0, 6, 7], 0));
    }

    #[test]
    fn records_without_a_time_stay_between_their_neighbours() {
        let batches = [vec![None, Some(5), None, Some(8), None], vec![Some(3), None, Some(7)], vec![None]];
        // Records without a time: between 5 and 8; after 8 and before 3, where 3 decides; between 3 and 7;
        // and after 7, whose whole batch was already written.
        assert_eq!(sorted(&batches, true), (vec![0, 0, 3, 0, 5, 0, 7, 8, 0], 0));
    }
}
