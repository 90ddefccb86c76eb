//! Sorts rows by time in bounded memory: the sorted rows of each batch go into a temporary file, and then all
//! batches are merged.
//!
//! Memory holds the rows of the current batches and, while merging, [`MERGE_MEMORY`] or, if that is more,
//! [`SMALLEST`] bytes for each batch of about 4 MiB: a thousandth of the recording. The temporary file is
//! about as large as the rows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use perfx_pipeline::{Context as _, Result};

const MERGE_MEMORY: u64 = 32 << 20;

const SMALLEST: u64 = 4 << 10;

const LARGEST: u64 = 256 << 10;

/// The head of each row in the temporary file: u8 has a time, u64 time, u32 number in the batch, u32 size.
const HEAD: usize = 17;

/// A row: its time, its number in the batch, and its place in the batch's text.
pub(crate) struct RowPlace {
    pub(crate) time: Option<u64>,
    pub(crate) index: u32,
    pub(crate) text: Range<usize>,
}

/// The rows of a batch with their heads, by time; without a time first, with equal times in file order.
pub(crate) fn sorted(text: &[u8], rows: &[RowPlace]) -> Vec<u8> {
    let mut order: Vec<_> = rows.iter().collect();
    order.sort_by_key(|row| row.time);
    let mut run = Vec::with_capacity(text.len() + order.len() * HEAD);
    for RowPlace { time, index, text: place } in order {
        let row = &text[place.clone()];
        run.push(time.is_some().into());
        run.extend(time.unwrap_or(0).to_le_bytes());
        run.extend(index.to_le_bytes());
        run.extend((row.len() as u32).to_le_bytes());
        run.extend(row);
    }
    run
}

pub(crate) fn rows_mut(mut run: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    std::iter::from_fn(move || {
        let (head, rest) = std::mem::take(&mut run).split_at_mut_checked(HEAD)?;
        let len = u32::from_le_bytes(head.last_chunk().copied()?);
        let (row, rest) = rest.split_at_mut_checked(len as usize)?;
        run = rest;
        Some(row)
    })
}

pub(crate) struct Sorted {
    spill: BufWriter<File>,
    len: u64,
    /// For each batch, the end of its rows in the file, and the number of its first record.
    runs: Vec<(u64, u64)>,
    records: u64,
}

impl Sorted {
    pub(crate) fn new(spill: File) -> Sorted {
        Sorted { spill: BufWriter::new(spill), len: 0, runs: Vec::new(), records: 0 }
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Adds the rows of the next batch, which has this many records.
    pub(crate) fn push(&mut self, run: &[u8], records: u64) -> Result<()> {
        self.spill.write_all(run).with_context(full)?;
        self.len += run.len() as u64;
        self.runs.push((self.len, self.records));
        self.records += records;
        Ok(())
    }

    /// Calls `row` with all rows in order: the number of the record, its time and the row.
    pub(crate) fn each(self, mut row: impl FnMut(u64, Option<u64>, &[u8]) -> Result<()>) -> Result<()> {
        let mut merge = self.merge()?;
        while let Some((nr, time, text)) = merge.next_row()? {
            row(nr, time, text)?;
        }
        Ok(())
    }

    pub(crate) fn merge(self) -> Result<Merge> {
        let spill = self.spill.into_inner().map_err(|error| error.into_error()).with_context(full)?;
        let spill = Arc::new(spill);
        let buffer = (MERGE_MEMORY / (self.runs.len() as u64).max(1)).clamp(SMALLEST, LARGEST);
        let mut runs = Vec::new();
        let mut start = 0;
        for &(end, first) in &self.runs {
            let part = Part { file: spill.clone(), at: start, end };
            runs.push(SortedRows {
                rows: BufReader::with_capacity(buffer as usize, part),
                first,
                row: Vec::new(),
            });
            start = end;
        }
        let mut next = BinaryHeap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            next.extend(run.read()?.map(|(time, nr)| Reverse((time, index, nr))));
        }
        Ok(Merge { runs, next, is_read: false })
    }
}

pub(crate) type Row<'r> = (u64, Option<u64>, &'r [u8]);

pub(crate) struct Merge {
    runs: Vec<SortedRows>,
    /// For each batch: the time of its next row, the number of the batch, and that of the record.
    next: BinaryHeap<Reverse<(Option<u64>, usize, u64)>>,
    /// The first of these has been returned.
    is_read: bool,
}

impl Merge {
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_>>> {
        let Merge { runs, next, is_read } = self;
        if std::mem::replace(is_read, true)
            && let Some(mut first) = next.peek_mut()
        {
            // The next row of the same batch is often the first again.
            let Reverse((_, index, _)) = *first;
            match runs[index].read()? {
                Some((time, nr)) => *first = Reverse((time, index, nr)),
                None => drop(PeekMut::pop(first)),
            }
        }
        let Some(&Reverse((time, index, nr))) = next.peek() else { return Ok(None) };
        Ok(Some((nr, time, &runs[index].row)))
    }
}

struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

struct SortedRows {
    rows: BufReader<Part>,
    /// Of its first record.
    first: u64,
    row: Vec<u8>,
}

impl SortedRows {
    /// Reads the next row; returns its time and the number of its record.
    fn read(&mut self) -> Result<Option<(Option<u64>, u64)>> {
        self.read_row().context("can't read a temporary file again")
    }

    fn read_row(&mut self) -> io::Result<Option<(Option<u64>, u64)>> {
        if self.rows.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut head = [0; HEAD];
        self.rows.read_exact(&mut head)?;
        let mut head = &head[..];
        let (mut has_time, mut time, mut index, mut len) = ([0; 1], [0; 8], [0; 4], [0; 4]);
        head.read_exact(&mut has_time)?;
        head.read_exact(&mut time)?;
        head.read_exact(&mut index)?;
        head.read_exact(&mut len)?;
        self.row.resize(u32::from_le_bytes(len) as usize, 0);
        self.rows.read_exact(&mut self.row)?;
        let time = (has_time != [0]).then(|| u64::from_le_bytes(time));
        Ok(Some((time, self.first + u64::from(u32::from_le_bytes(index)))))
    }
}

/// The error of a write. The temporary file has no name, so it names the folder, which is probably full.
fn full() -> String {
    format!("{} (TMPDIR): can't write a temporary file", std::env::temp_dir().display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_batches_come_by_time_and_equals_in_the_order_of_the_file() {
        let batches: [&[Option<u64>]; 4] =
            [&[Some(5), None, Some(3)], &[], &[Some(3), Some(u64::MAX), None], &[Some(0)]];
        let mut all = Sorted::new(tempfile::tempfile().unwrap());
        for batch in batches {
            let rows = batch.iter().zip(0..).map(|(&time, index)| RowPlace {
                time,
                index,
                text: index as usize..index as usize + 1,
            });
            let mut run = sorted(&[b'a'; 9][..batch.len()], &rows.collect::<Vec<_>>());
            rows_mut(&mut run).for_each(|row| row[0] = b'b');
            all.push(&run, batch.len() as u64).unwrap();
        }
        assert_eq!(all.records(), 7);
        let mut found = Vec::new();
        all.each(|nr, time, row| {
            found.push((nr, time, row.to_vec()));
            Ok(())
        })
        .unwrap();
        let expected = [
            (1, None),
            (5, None),
            (6, Some(0)),
            (2, Some(3)),
            (3, Some(3)),
            (0, Some(5)),
            (4, Some(u64::MAX)),
        ];
        assert_eq!(found, expected.map(|(nr, time)| (nr, time, b"b".to_vec())));
    }
}
