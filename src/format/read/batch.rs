//! A run of whole records, and what is known of it without walking it.

use std::fs::File;
use std::sync::Arc;

use super::fragment::{Fragment, Lost};
use super::framed::Framed;
use crate::decode::decode;
use crate::{
    Bytes, Endian, HEADER_SIZE, Kinds, Layouts, Oddity, Origin, Origins, Record, RecordType, Result, Walker,
};

/// About how many bytes one batch holds: large enough that handing it over costs nothing, small enough that a few fit in the cache.
pub const BATCH_SIZE: usize = 4 << 20;

/// Positions in a batch of all records that are neither samples nor ends of a round, so that who wants only such is spared the walk over what
/// makes up nearly all of a recording. Kept with the extents, so there is a limit to them.
pub(super) type SparseIndex = Arc<[u32]>;

/// A run of whole records. [`Recording::decompressed`](super::Recording::decompressed) shows how to walk them.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The records and their payloads.
    pub bytes: Bytes,
    /// Byte order of its records.
    pub endian: Endian,
    /// Where they came from.
    pub origins: Origins,
    /// The kinds that occur.
    pub kinds: Kinds,
    /// How many there are.
    pub records: u64,
    /// Where those of rare kinds stand, unless there are many or nobody knows.
    pub(crate) rare: Option<SparseIndex>,
    /// The file and offset at which the same bytes lie, if they are mapped.
    pub stored: Option<(Arc<File>, u64)>,
    /// The file they came from.
    pub name: Arc<str>,
    /// How to find a record's event and time.
    pub layouts: Arc<Layouts>,
    /// What follows the last whole record and is none.
    pub torn: Option<Fragment>,
    /// What could not be decompressed, known at its end.
    pub lost: Option<Lost>,
    /// The compressed records that were opened since the batch before; their records are in this one or the next.
    pub opened: Vec<Opened>,
}

/// A COMPRESSED or COMPRESSED2 record that was replaced by what it holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// Where it lies.
    pub origin: Origin,
    /// Which of the two it is.
    pub kind: RecordType,
    /// `header.size`, bytes.
    pub size: usize,
    /// Bytes it holds.
    pub expanded: u64,
    /// A zstd frame ends inside it, not with it, and another one follows there.
    pub frame_inside: bool,
    /// What is odd about the record itself.
    pub odd: Vec<Oddity>,
}

impl Opened {
    pub(crate) fn new(record: &Record<'_>, layouts: &Layouts, expanded: u64, frame_inside: bool) -> Opened {
        Opened {
            origin: record.origin(),
            kind: record.kind(),
            size: record.bytes().len(),
            expanded,
            frame_inside,
            odd: decode(record, layouts).odd,
        }
    }
}

impl Batch {
    /// Walks its records.
    pub fn walk(&self) -> Walker<'_> {
        Walker::new(&self.bytes, &self.origins, self.endian).with_rare(self.rare.as_deref())
    }

    /// Takes in the whole records of `bytes`.
    pub(super) fn hold(&mut self, bytes: Bytes, framed: &Framed) {
        (self.bytes, self.kinds, self.records) = (bytes, framed.kinds, framed.records);
        self.rare = framed.rare.as_deref().map(Arc::from);
    }

    /// The records in `range`, which begins and ends at record boundaries of one origin.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Result<Batch> {
        let mut origins = Origins::default();
        origins.push(0, self.origins.at(range.start));
        let mut part = Batch {
            bytes: self.bytes.slice(range.clone()),
            origins,
            kinds: Kinds::NONE,
            records: 0,
            rare: None,
            stored: self.stored.as_ref().map(|(file, offset)| (file.clone(), offset + range.start as u64)),
            torn: None,
            opened: Vec::new(),
            ..self.clone()
        };
        let (mut kinds, mut records) = (Kinds::NONE, 0);
        let mut walker = part.walk();
        while let Some(record) = walker.next_record()? {
            kinds.insert(record.kind());
            records += 1;
        }
        (part.kinds, part.records) = (kinds, records);
        Ok(part)
    }
}

// A record's header must fit in the smallest read that can be cut.
const _: () = assert!(BATCH_SIZE > HEADER_SIZE);
