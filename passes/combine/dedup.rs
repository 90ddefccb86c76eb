//! Drops records that several inputs have in common.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use perfx_format::{Kinds, Record, RecordType, named_pid};
use perfx_pipeline::{Level, Report, by_kind, counted};

/// The pid whose state a record changes; `u32::MAX` for the kernel or when unstated.
fn owner(record: &Record<'_>) -> u32 {
    named_pid(record).unwrap_or(u32::MAX)
}

/// Drops records that several inputs have in common. Only digests are kept, to bound memory.
#[derive(Debug, Default)]
pub(super) struct Deduplicator {
    digests: Digests,
    /// No record has a time: inputs then follow each other, and may repeat states that have changed.
    in_turn: bool,
    timeless: HashMap<Digest, Timeless>,
    changes: HashMap<u32, u64>,
    /// The time of the last record, and the records of that time that several inputs may have.
    time: u64,
    moment: Moment,
    dropped: BTreeMap<RecordType, u64>,
    once: BTreeMap<RecordType, u64>,
    /// Samples and similar records that occur in several inputs: equal records may be separate occurrences.
    doubled: u64,
}

type Digest = u128;

/// Equal records without a time. The output has as many of them as the input that has the most.
#[derive(Debug, Default)]
struct Timeless {
    changes: u64,
    /// The input of the last one, and how many came from it in a row. Inputs that alternate are neglected.
    input: usize,
    seen: u64,
    written: u64,
}

impl Timeless {
    /// Adds one; true if another input had it already.
    fn repeats(&mut self, input: usize, changes: u64) -> bool {
        if self.changes != changes {
            *self = Timeless { changes, ..Timeless::default() };
        }
        self.seen = if self.input == input { self.seen + 1 } else { 1 };
        self.input = input;
        let again = self.seen <= self.written;
        self.written += u64::from(!again);
        again
    }
}

/// Uses random keys, so that no input can be crafted with colliding records.
#[derive(Debug, Default)]
struct Digests([RandomState; 2]);

impl Digests {
    fn of(&self, bytes: &[u8]) -> Digest {
        let [high, low] = self.0.each_ref().map(|keys| Digest::from(keys.hash_one(bytes)));
        high << 64 | low
    }
}

#[derive(Debug, Default)]
struct Moment {
    inputs: HashMap<Digest, usize>,
    /// The number of records that do not change a state; at most [`MANY`] of them are compared.
    stateless: usize,
}

/// Real recordings have fewer records of one time: such times are meaningless.
const MANY: usize = 1 << 16;

impl Moment {
    fn clear(&mut self) {
        if self.inputs.capacity() > MANY {
            // Clearing it takes time in proportion to its capacity.
            self.inputs = HashMap::new();
        }
        self.inputs.clear();
        self.stateless = 0;
    }

    fn add(&mut self, digest: Digest, input: usize, is_state: bool) {
        if is_state || self.stateless < MANY {
            self.stateless += usize::from(!is_state);
            self.inputs.entry(digest).or_insert(input);
        }
    }

    fn has(&self, digest: Digest, input: usize) -> bool {
        self.inputs.get(&digest).is_some_and(|&other| other != input)
    }
}

impl Deduplicator {
    pub(super) fn new(in_turn: bool) -> Deduplicator {
        Deduplicator { in_turn, ..Deduplicator::default() }
    }

    /// True if the record is redundant. `shares_time`: another input has a record of the same time.
    pub(super) fn repeats(
        &mut self,
        record: &Record<'_>,
        key: u64,
        input: usize,
        timeless: bool,
        shares_time: bool,
    ) -> bool {
        let is_state = Kinds::STATES.contains(record.kind());
        if timeless && is_state {
            if self.in_turn && owner(record) != u32::MAX {
                return false;
            }
            let changes = self.changes.get(&owner(record)).copied().unwrap_or(0);
            let timeless = self.timeless.entry(self.digests.of(record.bytes())).or_default();
            let again = timeless.repeats(input, changes);
            if again {
                *self.dropped.entry(record.kind()).or_default() += 1;
            } else if Kinds::ONCE.contains(record.kind()) {
                let others = self.once.get(&record.kind()).map(|others| others + 1);
                self.once.insert(record.kind(), others.unwrap_or(0));
                return others.is_some();
            }
            return again;
        }
        if timeless {
            return false;
        }
        if key != self.time {
            self.time = key;
            self.moment.clear();
        }
        let mut again = false;
        if shares_time || !self.moment.inputs.is_empty() {
            let digest = self.digests.of(record.bytes());
            again = self.moment.has(digest, input);
            if shares_time {
                self.moment.add(digest, input, is_state);
            }
        }
        if again && is_state {
            *self.dropped.entry(record.kind()).or_default() += 1;
            return true;
        }
        self.doubled += u64::from(again);
        if is_state {
            *self.changes.entry(owner(record)).or_default() += 1;
        }
        false
    }

    pub(super) fn report(&self, chunks: u64, report: &mut Report) {
        let mut all = self.dropped.clone();
        if chunks > 0 {
            all.insert(RecordType::AUXTRACE, chunks);
        }
        let dropped: u64 = all.values().sum();
        if dropped > 0 {
            let records = counted(dropped, "record that is", "records that are");
            report.say(Level::Info, format!("left out {records} also in another input: {}", by_kind(&all)));
        }
        let others: BTreeMap<_, _> = self
            .once
            .iter()
            .filter(|(_, others)| **others > 0)
            .map(|(kind, others)| (*kind, *others))
            .collect();
        if !others.is_empty() {
            report.say(Level::Info, format!("left out {} (perf uses one of each kind)", by_kind(&others)));
        }
        if self.doubled > 0 {
            let what = counted(self.doubled, "record occurs", "records occur");
            report.say(
                Level::Warning,
                format!(
                    "{what} in several inputs, and so several times in the output; do the inputs overlap?"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::{Endian, Origin};

    use super::*;

    fn record(kind: RecordType, number: u64) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&kind.0.to_le_bytes());
        bytes[6] = 24;
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    #[test]
    fn equal_records_without_a_time_stay_as_often_as_one_input_has_them() {
        let mut deduplicator = Deduplicator::default();
        let mut repeats = |number, input| {
            let bytes = record(RecordType::COMM, number);
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            deduplicator.repeats(&record, 0, input, true, false)
        };
        assert_eq!([1, 1, 2].map(|number| repeats(number, 0)), [false; 3]);
        assert_eq!([1, 1, 2].map(|number| repeats(number, 1)), [true; 3]);
        assert_eq!([1, 2, 2, 2, 1].map(|number| repeats(number, 2)), [true, true, false, false, true]);
    }

    #[test]
    fn many_records_of_one_time_are_compared_once_each() {
        let mut deduplicator = Deduplicator::default();
        let mut repeats = |kind, number, input, shares_time| {
            let bytes = record(kind, number);
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            deduplicator.repeats(&record, 5, input, false, shares_time)
        };
        // Comparing each with all others would take minutes.
        let many = 1 << 17;
        assert!((0..many).all(|number| !repeats(RecordType::COMM, number, 0, true)));
        assert!((0..many).all(|number| repeats(RecordType::COMM, number, 1, false)));
        assert!(!repeats(RecordType::COMM, many, 1, false));
        assert!((0..many).all(|number| !repeats(RecordType::SAMPLE, number, 0, true)));
        assert!((0..many).all(|number| !repeats(RecordType::SAMPLE, number, 1, false)));
        assert_eq!(deduplicator.doubled, MANY as u64, "samples are not kept without end");
        assert!(deduplicator.moment.inputs.len() <= many as usize + MANY);
    }
}
