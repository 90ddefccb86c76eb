//! A run of whole records, with the facts known about it without walking it.

use std::fs::File;
use std::sync::Arc;

use super::fragment::{Fragment, Lost};
use super::framed::Framed;
use super::sample_span::SampleSpan;
use crate::decode::decode;
use crate::{
    Bytes, Endian, Error, HEADER_SIZE, Issue, Kinds, Layouts, Origin, Origins, Record, RecordType, Result,
    Walker,
};

/// The approximate size of a batch, bytes: handing it over is cheap, and a few fit in the cache.
pub const BATCH_SIZE: usize = 4 << 20;

/// The positions in a batch of all records that are neither samples nor ends of a round. Code that needs only
/// these skips nearly all of a recording. Kept with the extents, so their number is limited.
pub(super) type SparseIndex = Arc<[u32]>;

/// A run of whole records. [`Recording::decompressed`](super::Recording::decompressed) walks them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The records and their payloads.
    pub bytes: Bytes,
    /// Byte order of its records.
    pub endian: Endian,
    /// The origins of the records.
    pub origins: Origins,
    /// The kinds that occur in it.
    pub kinds: Kinds,
    /// The number of records.
    pub records: u64,
    /// The positions of records of rare kinds; `None` if there are too many or they are unknown.
    pub(crate) sparse_index: Option<SparseIndex>,
    /// Its samples, if the recording has an index: see [`Batch::sample_span`].
    pub(super) samples: Option<Arc<SampleSpan>>,
    /// True if all records are known to be without oddities.
    pub(crate) sound: bool,
    /// The file and offset of the same bytes, if they are mapped.
    pub stored: Option<(Arc<File>, u64)>,
    /// The file they came from.
    pub name: Arc<str>,
    /// The layouts, which find a record's event and time.
    pub layouts: Arc<Layouts>,
    /// Bytes after the last whole record that are not a record.
    pub fragment: Option<Fragment>,
    /// Data that could not be decompressed, known at its end.
    pub lost: Option<Lost>,
    /// The compressed records expanded since the previous batch, into this batch or the next.
    pub opened: Vec<Opened>,
}

/// A COMPRESSED or COMPRESSED2 record that was replaced by its contents.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The place of the record in the input.
    pub origin: Origin,
    /// Which of the two kinds.
    pub kind: RecordType,
    /// `header.size`, bytes.
    pub size: usize,
    /// Size of its contents, bytes.
    pub expanded: u64,
    /// True if a zstd frame ends in the middle of it and another one follows.
    pub frame_inside: bool,
    /// Oddities of the record itself.
    pub issues: Vec<Issue>,
}

impl Opened {
    pub(crate) fn new(record: &Record<'_>, layouts: &Layouts, expanded: u64, frame_inside: bool) -> Opened {
        Opened {
            origin: record.origin(),
            kind: record.kind(),
            size: record.bytes().len(),
            expanded,
            frame_inside,
            issues: decode(record, layouts).issues,
        }
    }
}

impl Batch {
    pub(super) fn faults(&self) -> impl Iterator<Item = Error> {
        let fragment = self.fragment.map(|fragment| fragment.to_error());
        let lost = self.lost.as_ref().map(|lost| lost.to_error());
        fragment.into_iter().chain(lost).map(|error| error.file(&self.name))
    }

    /// True if lenient reading has found that [`issues`](crate::decode::issues) finds nothing in its records.
    pub fn is_sound(&self) -> bool {
        self.sound
    }

    /// Walks the batch's records.
    pub fn walk(&self) -> Walker<'_> {
        Walker::new(&self.bytes, &self.origins, self.endian).with_sparse_index(self.sparse_index.as_deref())
    }

    /// Calls `see` with each record of these kinds, in the order of the file.
    ///
    /// # Errors
    ///
    /// A record cannot be read, or `see` fails.
    #[inline]
    pub fn each<E: From<Error>>(
        &self,
        wanted: Kinds,
        mut see: impl FnMut(&Record<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self.kinds.intersects(wanted) {
            let mut walker = self.walk();
            while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
                see(&record)?;
            }
        }
        Ok(())
    }

    /// Describes its samples: from the recording's index, or by reading their times.
    pub fn sample_span(&self) -> Arc<SampleSpan> {
        self.samples.clone().unwrap_or_else(|| Arc::new(SampleSpan::of_times((self.walk(), &self.layouts))))
    }

    pub(super) fn hold(&mut self, bytes: Bytes, framed: &Framed) {
        (self.bytes, self.kinds, self.records) = (bytes, framed.kinds, framed.records);
        self.sparse_index = framed.sparse_index.as_deref().map(Arc::from);
    }

    /// The records in `range`, which begins and ends at record boundaries and within one origin.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Result<Batch> {
        let mut origins = Origins::default();
        origins.push(0, self.origins.at(range.start));
        let mut part = Batch {
            bytes: self.bytes.slice(range.clone()),
            origins,
            kinds: Kinds::NONE,
            records: 0,
            sparse_index: None,
            samples: None,
            stored: self.stored.as_ref().map(|(file, offset)| (file.clone(), offset + range.start as u64)),
            fragment: None,
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
