//! Turns a batch into a plan: ranges of the input to copy and new bytes to write, with neighbours merged, and
//! marks for records whose new position is needed.

use std::collections::BTreeMap;
use std::ops::Range;

use perfx_format::read::Batch;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Endian, Kinds, Origin, RECORD_SIZE_MAX, Record, RecordType};

use crate::error::Result;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    Stored(Range<usize>),
    Made(Range<usize>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) origin: Origin,
    /// Its new position, bytes from the start of the plan.
    pub(crate) at: u64,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) arena: Vec<u8>,
    pub(crate) marks: Vec<Mark>,
    /// Contents of header records, which a file has in its header and not in its data.
    pub(crate) absorbed: Vec<HeaderRecord>,
    pub(crate) dropped: BTreeMap<RecordType, u64>,
    /// Header records among the data of a file, which would have another meaning in pipe data.
    pub(crate) misplaced: BTreeMap<RecordType, u64>,
    pub(crate) dropped_aux: Vec<Origin>,
    pub(crate) len: u64,
}

impl Plan {
    /// True if it copies the whole batch of `len` bytes.
    pub(crate) fn is_all_of(&self, len: usize) -> bool {
        match self.pieces.as_slice() {
            [] => len == 0,
            [piece] => *piece == Piece::Stored(0..len),
            _ => false,
        }
    }

    /// The first range of the batch with at least this length: its place in the plan and in the batch.
    pub(crate) fn first_stored(&self, least: usize) -> Option<(u64, usize)> {
        let mut at = 0;
        for piece in &self.pieces {
            let range = match piece {
                Piece::Stored(range) if range.len() >= least => return Some((at, range.start)),
                Piece::Stored(range) | Piece::Made(range) => range,
            };
            at += range.len() as u64;
        }
        None
    }
}

/// The requirements of the output's form for every record, in addition to those of the passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputNeeds {
    pub(crate) endian: Endian,
    pub(crate) mark_aux: bool,
    /// True if the input is pipe data and the output a file: header records are removed from the data.
    pub(crate) absorb: bool,
    /// True if a file becomes pipe data: header records among the data must not become part of the header.
    pub(crate) strip: bool,
}

impl OutputNeeds {
    pub(crate) fn kinds(self) -> Kinds {
        let mut kinds = Kinds::NONE;
        if self.mark_aux {
            kinds.insert(RecordType::AUXTRACE);
        }
        if self.absorb || self.strip {
            kinds = kinds.union(Kinds::HEADER);
        }
        kinds
    }
}

#[derive(Debug)]
pub(crate) struct Planner {
    plan: Plan,
    needs: OutputNeeds,
    /// Address range of the batch's bytes: a record inside it is stored as a range.
    batch: Range<usize>,
}

impl Planner {
    pub(crate) fn new(batch: Option<&Batch>, needs: OutputNeeds) -> Planner {
        let batch = batch.map_or(0..0, |batch| addresses(&batch.bytes));
        Planner { plan: Plan::default(), needs, batch }
    }

    pub(crate) fn endian(&self) -> Endian {
        self.needs.endian
    }

    pub(crate) fn done(self) -> Plan {
        self.plan
    }

    /// Adds a run of the batch that no pass needs.
    pub(crate) fn stored(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.plan.len += range.len() as u64;
        match self.plan.pieces.last_mut() {
            Some(Piece::Stored(last)) if last.end == range.start => last.end = range.end,
            _ => self.plan.pieces.push(Piece::Stored(range)),
        }
    }

    /// True if the form of the output does not need to see any record.
    pub(crate) fn takes_any(&self) -> bool {
        self.needs.kinds() == Kinds::NONE
    }

    fn made(&mut self, bytes: &[u8]) {
        let start = self.plan.arena.len();
        self.plan.arena.extend_from_slice(bytes);
        let range = start..self.plan.arena.len();
        self.plan.len += bytes.len() as u64;
        match self.plan.pieces.last_mut() {
            Some(Piece::Made(last)) if last.end == range.start => last.end = range.end,
            _ => self.plan.pieces.push(Piece::Made(range)),
        }
    }

    /// Adds bytes: as a range if they are in the batch, else as a copy.
    pub(crate) fn place(&mut self, bytes: &[u8]) {
        // Most records have no payload, and an empty slice has no position.
        if bytes.is_empty() {
            return;
        }
        if let Some(range) = range_in(&self.batch, bytes) {
            return self.stored(range);
        }
        self.made(bytes);
    }

    /// Takes a record that has gone through all passes.
    pub(crate) fn keep(&mut self, record: Record<'_>) -> Result<()> {
        let kind = record.kind();
        if self.needs.absorb
            && let Some(header) = HeaderRecord::read(&record)?
        {
            // A build-id is valid in both places, and its position among the samples may matter to a reader.
            let stays = matches!(header, HeaderRecord::BuildId(_));
            // A pass that creates such a record sets the feature itself.
            if !stays || record.origin() != Origin::Synthetic {
                self.plan.absorbed.push(header);
            }
            if !stays {
                return Ok(());
            }
        }
        // A record created by a pass belongs there.
        if self.needs.strip && record.origin() != Origin::Synthetic && HeaderRecord::is_front(&record) {
            *self.plan.misplaced.entry(kind).or_default() += 1;
            return Ok(());
        }
        if self.needs.mark_aux && kind == RecordType::AUXTRACE {
            let size = record.bytes().len() as u64;
            self.plan.marks.push(Mark { origin: record.origin(), at: self.plan.len, size });
        }
        if record.origin() == Origin::Synthetic && record.bytes().len() > RECORD_SIZE_MAX {
            return Err(record
                .error(format!("{} bytes are more than a record can hold", record.bytes().len()))
                .into());
        }
        self.place(record.bytes());
        self.place(record.payload());
        Ok(())
    }

    pub(crate) fn drop_record(&mut self, record: Record<'_>) {
        *self.plan.dropped.entry(record.kind()).or_default() += 1;
        if self.needs.mark_aux && record.kind() == RecordType::AUXTRACE {
            self.plan.dropped_aux.push(record.origin());
        }
    }
}

fn addresses(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr() as usize;
    start..start + bytes.len()
}

/// The range of `bytes` within those at the addresses `all`; `None` if they are not inside.
fn range_in(all: &Range<usize>, bytes: &[u8]) -> Option<Range<usize>> {
    let Range { start, end } = addresses(bytes);
    (all.start <= start && end <= all.end).then(|| start - all.start..end - all.start)
}
