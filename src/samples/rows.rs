//! Keeps the samples of a decoded trace as rows. Consecutive samples usually differ in few parts; shared
//! parts are stored once, and no records are built.

use std::ops::Range;
use std::sync::Arc;

use perfx_format::sample::{Sample, Stencil, TemplateFields};
use perfx_format::{Endian, Layout, Layouts, Origin, Record, Result};
use perfx_resolve::Facts;

use crate::branches::{Branch, Branches};
use crate::sample::SampleView;

/// Samples of a trace, and records among them, each with its sort key.
#[derive(Clone, Default, Debug)]
pub struct Rows {
    rows: Vec<Row>,
    stencils: Vec<Arc<Stencil>>,
    /// The table of the branches that rows refer to, if any do.
    branches: Option<Arc<Branches>>,
    /// The fields of rows that have their own.
    own: Vec<Fields>,
    /// The raw data of these, and records.
    heap: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// For a branch of the table, also its time.
    key: u64,
    /// The start of its own raw data or record.
    start: u32,
    /// The number of its stencil, or [`RECORD`].
    stencil: u32,
    /// The number of its own fields, or [`NONE`].
    own: u32,
    /// The number of its branch, or [`NONE`].
    branch: u32,
}

const RECORD: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Fields {
    ip: u64,
    time: u64,
    addr: u64,
    period: u64,
}

/// The contents of a row.
#[derive(Clone, Copy, Debug)]
pub enum Sampled<'r> {
    /// A sample of a stencil: the stencil's number, and the sample's own fields.
    Alike(usize, TemplateFields<'r>),
    /// A record.
    Record(&'r [u8]),
}

/// Samples of the same stencil.
#[derive(Debug)]
pub struct Alike<'r> {
    /// Has their shared parts.
    pub record: Record<'r>,
    /// The layout of its fields.
    pub layout: &'r Layout,
    /// The number of its event.
    pub event: usize,
    /// Its parts; `None` if it is cut short.
    pub parts: Option<Sample<'r>>,
}

impl<'r> Alike<'r> {
    /// `None` if it is a record of no event of the recording.
    pub fn of(record: Record<'r>, layouts: &'r Layouts, facts: &Facts) -> Option<Alike<'r>> {
        let layout = layouts.layout_of(&record)?;
        let event = SampleView { record: &record, layout, layouts }.event_in(facts)?;
        Some(Alike { parts: Sample::parse_known(&record, layout).ok(), record, layout, event })
    }
}

impl Rows {
    /// The memory of all rows, bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.heap.len() + size_of::<Fields>() * self.own.len() + size_of::<Row>() * self.rows.len()
    }

    /// The memory of some rows without their fields, bytes.
    pub fn size_of(&self, some: Range<usize>) -> usize {
        self.start(some.end) - self.start(some.start) + size_of::<Row>() * some.len()
    }

    /// The number of rows.
    #[inline]
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The shared parts of samples, by the number in [`Sampled::Alike`].
    pub fn alike<'r>(&'r self, layouts: &'r Layouts, facts: &Facts) -> Vec<Option<Alike<'r>>> {
        let alike = |stencil: &'r Arc<Stencil>| Alike::of(stencil.record().ok()?, layouts, facts);
        self.stencils.iter().map(alike).collect()
    }

    /// The stencils of samples, by the number in [`Sampled::Alike`].
    pub fn stencils(&self) -> &[Arc<Stencil>] {
        &self.stencils
    }

    /// The rows that are records, with their numbers.
    pub fn records(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let records = self.rows.iter().enumerate().filter(|(_, row)| row.stencil == RECORD);
        records.map(|(number, row)| (number, &self.heap[row.start as usize..self.start(number + 1)]))
    }

    /// For a row that is a branch of a table: the numbers of its stencil and of the branch, and its time.
    #[inline]
    pub fn branch(&self, number: usize) -> Option<(usize, u32, u64)> {
        let Row { key, stencil, branch, .. } = *self.rows.get(number)?;
        (branch != NONE).then_some((stencil as usize, branch, key))
    }

    /// The key of a row.
    #[inline]
    pub fn key(&self, number: usize) -> Option<u64> {
        Some(self.rows.get(number)?.key)
    }

    /// The contents of a row.
    #[inline]
    pub fn get(&self, number: usize) -> Option<Sampled<'_>> {
        let Row { key, start, stencil, own, branch } = *self.rows.get(number)?;
        let raw = &self.heap[start as usize..self.start(number + 1)];
        if stencil == RECORD {
            return Some(Sampled::Record(raw));
        }
        let fields = match self.own.get(own as usize) {
            Some(&Fields { ip, time, addr, period }) => TemplateFields { ip, time, addr, period, raw },
            None => {
                let Branch { ip, addr, ref raw } = *self.branches.as_ref()?.get(branch)?;
                TemplateFields { ip, time: key, addr, period: 1, raw }
            }
        };
        Some(Sampled::Alike(stencil as usize, fields))
    }

    /// The bytes of a row that is a record.
    pub fn record_mut(&mut self, number: usize) -> Option<&mut [u8]> {
        let Row { start, stencil, .. } = *self.rows.get(number)?;
        let end = self.start(number + 1);
        (stencil == RECORD).then(|| &mut self.heap[start as usize..end])
    }

    /// A record from a row's bytes. Its offset is the row's key: its place, if no record has a time.
    ///
    /// # Errors
    ///
    /// The bytes are no record.
    pub fn record<'r>(&self, number: usize, bytes: &'r [u8], endian: Endian) -> Result<Record<'r>> {
        let offset = self.key(number).unwrap_or(0);
        Record::new(bytes, &[], Origin::Input { stream: 0, offset }, endian)
    }

    /// A row as a record, whose bytes are put into `buffer`.
    ///
    /// # Errors
    ///
    /// As for [`Rows::record`].
    pub fn record_in<'r>(
        &self,
        number: usize,
        buffer: &'r mut Vec<u8>,
        endian: Endian,
    ) -> Result<Record<'r>> {
        buffer.clear();
        self.write(number, buffer);
        self.record(number, buffer, endian)
    }

    /// Appends a row as a record.
    #[inline]
    pub fn write(&self, number: usize, out: &mut Vec<u8>) {
        match self.get(number) {
            Some(Sampled::Alike(stencil, fields)) => self.stencils[stencil].write(fields, out),
            Some(Sampled::Record(bytes)) => out.extend_from_slice(bytes),
            None => {}
        }
    }

    /// Adds the record that `write` appends to the heap, if any.
    #[inline(always)]
    pub fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heap.len() as u32;
        write(&mut self.heap);
        if self.heap.len() > start as usize {
            self.rows.push(Row { key, start, stencil: RECORD, own: NONE, branch: NONE });
        }
    }

    /// Adds a sample of a stencil.
    #[inline(always)]
    pub fn push_alike(&mut self, key: u64, stencil: &Arc<Stencil>, fields: TemplateFields<'_, u32>) {
        let TemplateFields { ip, time, addr, period, raw } = fields;
        let (start, own, number) = (self.heap.len() as u32, self.own.len() as u32, self.stencil(stencil));
        self.heap.reserve(size_of_val(raw));
        for number in raw {
            self.heap.extend_from_slice(&stencil.endian().bytes_u32(*number));
        }
        self.own.push(Fields { ip, time, addr, period });
        self.rows.push(Row { key, start, stencil: number, own, branch: NONE });
    }

    /// Adds a sample of a stencil: a branch of the table, which all rows share, with period 1. Its time is
    /// its key.
    #[inline(always)]
    pub fn push_branch(&mut self, key: u64, stencil: &Arc<Stencil>, (table, branch): (&Arc<Branches>, u32)) {
        let (start, stencil) = (self.heap.len() as u32, self.stencil(stencil));
        self.branches.get_or_insert_with(|| table.clone());
        self.rows.push(Row { key, start, stencil, own: NONE, branch });
    }

    /// The number of a stencil, usually one of the last few, as events take turns.
    #[inline]
    fn stencil(&mut self, stencil: &Arc<Stencil>) -> u32 {
        const TURNS: usize = 4;
        let last = self.stencils.len().saturating_sub(TURNS);
        let known = self.stencils[last..].iter().rposition(|known| Arc::ptr_eq(known, stencil));
        let number = known.map_or(self.stencils.len(), |number| last + number);
        if known.is_none() {
            self.stencils.push(stencil.clone());
        }
        number as u32
    }

    /// Empty rows of the same capacity.
    #[must_use]
    pub fn empty(&self) -> Rows {
        let (rows, heap) = (Vec::with_capacity(self.rows.len()), Vec::with_capacity(self.heap.len()));
        Rows { rows, own: Vec::with_capacity(self.own.len()), heap, ..Rows::default() }
    }

    /// Takes some rows out, keeps those after them, and drops those before them.
    fn take_some(&mut self, some: Range<usize>) -> Rows {
        let mut after = Rows::default();
        after.extend(self, some.end..self.count());
        let mut taken = std::mem::replace(self, after);
        taken.heap.truncate(taken.start(some.end));
        taken.own.truncate(taken.own.len() - self.own.len());
        taken.rows.truncate(some.end);
        taken.rows.drain(..some.start);
        taken
    }

    #[inline]
    fn start(&self, number: usize) -> usize {
        self.rows.get(number).map_or(self.heap.len(), |row| row.start as usize)
    }

    /// The rows sorted by key; those with the same key keep their order.
    #[must_use]
    pub fn sorted(self) -> Rows {
        if self.rows.is_sorted_by_key(|row| row.key) {
            return self;
        }
        let (mut order, mut sorted) = (Vec::from_iter(0..self.count()), self.empty());
        order.sort_by_key(|number| self.key(*number));
        order.into_iter().for_each(|number| sorted.extend(&self, number..number + 1));
        sorted
    }

    /// Appends some rows of `other`.
    pub fn extend(&mut self, other: &Rows, some: Range<usize>) {
        let (start, moved) = (other.start(some.start), self.heap.len());
        self.heap.extend_from_slice(&other.heap[start..other.start(some.end)]);
        self.rows.reserve(some.len());
        if self.branches.is_none() {
            self.branches.clone_from(&other.branches);
        }
        let mut last = (RECORD, RECORD);
        for row in &other.rows[some] {
            let own = match other.own.get(row.own as usize) {
                Some(fields) => {
                    self.own.push(*fields);
                    self.own.len() as u32 - 1
                }
                None => NONE,
            };
            if row.stencil != last.0 {
                let stencil = other.stencils.get(row.stencil as usize);
                last = (row.stencil, stencil.map_or(RECORD, |stencil| self.stencil(stencil)));
            }
            let start = (row.start as usize - start + moved) as u32;
            self.rows.push(Row { start, stencil: last.1, own, ..*row });
        }
    }

    /// The number of consecutive rows from `from` on whose keys come first.
    fn run(&self, from: usize, comes_first: impl Fn(u64) -> bool) -> usize {
        let rest = self.rows.get(from..).unwrap_or_default();
        rest.iter().take_while(|row| comes_first(row.key)).count()
    }

    /// Ranges of rows of about this many bytes.
    pub fn pieces(&self, size: usize) -> impl Iterator<Item = Range<usize>> {
        let mut begin = 0;
        std::iter::from_fn(move || {
            let at = |number: usize| self.start(number) + size_of::<Row>() * number;
            let limit = (begin < self.count()).then(|| at(begin).saturating_add(size))?;
            let mut end = begin + 1;
            while end < self.count() && at(end) < limit {
                end += 1;
            }
            let piece = begin..end;
            begin = end;
            Some(piece)
        })
    }

    /// Some rows as records: the size, key and bytes of each.
    pub fn to_bytes(&self, some: Range<usize>) -> Vec<u8> {
        let (mut bytes, mut record) = (Vec::with_capacity(2 * self.size_of(some.clone())), Vec::new());
        for number in some {
            record.clear();
            self.write(number, &mut record);
            bytes.extend((record.len() as u32).to_le_bytes());
            bytes.extend(self.key(number).unwrap_or_default().to_le_bytes());
            bytes.extend_from_slice(&record);
        }
        bytes
    }

    /// Reads what `to_bytes` wrote.
    pub fn from_bytes(mut bytes: &[u8]) -> Rows {
        let mut rows = Rows::default();
        while let Some((size, rest)) = bytes.split_first_chunk()
            && let Some((key, rest)) = rest.split_first_chunk()
            && let Some((record, rest)) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)
        {
            rows.push(u64::from_le_bytes(*key), |bytes| bytes.extend_from_slice(record));
            bytes = rest;
        }
        rows
    }
}

/// Rows whose first ones were passed on.
#[derive(Default, Debug)]
pub struct Rest {
    rows: Rows,
    done: usize,
}

impl From<Rows> for Rest {
    fn from(rows: Rows) -> Rest {
        Rest { rows, done: 0 }
    }
}

impl Rest {
    /// All rows that are in memory.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The key of the next row.
    pub fn key(&self) -> Option<u64> {
        self.rows.key(self.done)
    }

    /// The next rows, up to one whose key does not come first.
    pub fn run(&self, comes_first: impl Fn(u64) -> bool) -> Range<usize> {
        self.done..self.done + self.rows.run(self.done, comes_first)
    }

    /// Skips the next rows.
    pub fn drop_some(&mut self, run: Range<usize>) {
        self.done = run.end;
    }

    /// Passes the next rows on, without a copy if they are most rows.
    pub fn pass(&mut self, run: Range<usize>, out: &mut Rows) {
        if out.count() == 0 && 2 * run.len() >= self.rows.count() {
            (*out, self.done) = (self.rows.take_some(run), 0);
        } else {
            out.extend(&self.rows, run.clone());
            self.done = run.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::sample::NewSample;
    use perfx_format::{Attr, Layout, sample_type as st};

    use super::*;

    fn keys(rows: &Rows) -> Vec<u64> {
        (0..).map_while(|at| rows.key(at)).collect()
    }

    fn written(rows: &Rows, number: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        rows.write(number, &mut bytes);
        bytes
    }

    #[test]
    fn some_are_taken_and_those_after_them_remain() {
        let mut rows = Rows::default();
        (0..6_u8).for_each(|number| rows.push(number.into(), |bytes| bytes.resize(bytes.len() + 8, number)));
        rows.push(9, |_| {});
        assert_eq!((rows.count(), rows.size_of(1..3)), (6, 2 * (8 + size_of::<Row>())));
        let taken = rows.take_some(1..3);
        assert_eq!((keys(&taken), keys(&rows)), (vec![1, 2], vec![3, 4, 5]));
        assert_eq!((written(&taken, 1), written(&rows, 0)), (vec![2; 8], vec![3; 8]));
        rows.extend(&taken, 0..1);
        assert_eq!((keys(&rows), written(&rows, 3)), (vec![3, 4, 5, 1], vec![1; 8]));
        let sorted = rows.clone().sorted();
        assert_eq!((keys(&sorted), written(&sorted, 0)), (vec![1, 3, 4, 5], vec![1; 8]));
        assert_eq!((rows.empty().count(), rows.empty().size()), (0, 0));
        assert_eq!(rows.pieces(2 * (8 + size_of::<Row>())).collect::<Vec<_>>(), [0..2, 2..4]);
        assert_eq!(rows.pieces(0).count(), 4);
        assert_eq!(keys(&Rows::from_bytes(&rows.to_bytes(1..4))), [4, 5, 1]);
    }

    #[test]
    fn rows_are_the_records_that_they_stand_for_wherever_they_are_moved() {
        let mut attr = Attr::default();
        attr.sample_type = st::IP | st::TID | st::ADDR | st::RAW;
        let (layout, endian) = (Layout::new(&attr), Endian::Big);
        let sample = |tid, ip, raw| {
            let sample = NewSample { ip, tid, addr: 7, raw, ..NewSample::default() };
            sample.build(&attr, endian).unwrap()
        };
        let [one, other] = [1, 2].map(|tid| Stencil::of(&sample(tid, 0, &[0]), &layout, endian).unwrap());
        let (one, other) = (Arc::new(one), Arc::new(other));
        let mut rows = Rows::default();
        let mut push = |stencil, ip, raw: &[u32]| {
            rows.push_alike(ip, stencil, TemplateFields { ip, addr: 7, raw, ..TemplateFields::default() });
        };
        push(&one, 3, &[4]);
        push(&other, 5, &[6]);
        push(&one, 8, &[9]);
        rows.push(10, |bytes| bytes.extend([1; 8]));
        let expected = [sample(1, 3, &[4]), sample(2, 5, &[6]), sample(1, 8, &[9]), vec![1; 8]];
        assert_eq!([0, 1, 2, 3].map(|number| written(&rows, number)), expected);
        assert_eq!(rows.stencils.len(), 2);
        let mut moved = Rows::default();
        moved.push_alike(0, &other, TemplateFields { raw: &[0], ..TemplateFields::default() });
        moved.extend(&rows, 1..4);
        let read = Rows::from_bytes(&moved.to_bytes(1..4));
        assert_eq!([0, 1, 2].map(|number| written(&read, number)), expected[1..]);
        assert_eq!(rows.record_mut(0), None);
        assert_eq!(rows.record_mut(3), Some(&mut [1; 8][..]));
    }

    #[test]
    fn branches_of_a_table_are_the_samples_that_they_stand_for_wherever_they_are_moved() {
        let mut attr = Attr::default();
        attr.sample_type = st::IP | st::TID | st::TIME | st::ADDR | st::PERIOD | st::RAW;
        let (layout, endian) = (Layout::new(&attr), Endian::Big);
        let sample = |time, ip, raw| {
            let sample = NewSample { ip, time, addr: 7, period: 1, raw, ..NewSample::default() };
            sample.build(&attr, endian).unwrap()
        };
        let stencil = Arc::new(Stencil::of(&sample(0, 0, &[0]), &layout, endian).unwrap());
        let table = Arc::new(Branches::default());
        let add = |ip, raw: u32| table.add(|| Branch { ip, addr: 7, raw: raw.to_be_bytes().into() }).unwrap();
        let numbers = [add(3, 4), add(5, 6)];
        let mut rows = Rows::default();
        rows.push_branch(20, &stencil, (&table, numbers[1]));
        let fields = TemplateFields { ip: 8, time: 9, addr: 7, period: 1, raw: &[1][..] };
        rows.push_alike(21, &stencil, fields);
        rows.push_branch(22, &stencil, (&table, numbers[0]));
        let expected = [sample(20, 5, &[6]), sample(9, 8, &[1]), sample(22, 3, &[4])];
        assert_eq!([0, 1, 2].map(|number| written(&rows, number)), expected);
        let mut moved = Rows::default();
        moved.push(1, |bytes| bytes.extend([1; 8]));
        moved.extend(&rows, 1..3);
        assert_eq!([1, 2].map(|number| written(&moved, number)), expected[1..]);
        let branches = [0, 1, 2].map(|number| moved.branch(number));
        assert_eq!(branches, [None, None, Some((0, numbers[0], 22))]);
        assert_eq!(written(&Rows::from_bytes(&moved.to_bytes(2..3)), 0), expected[2]);
    }
}
