//! Counts samples and losses of a recording while it is recorded.

use perfx_format::read::Batch;
use perfx_format::record::lost::Losses;
use perfx_format::{Kinds, RecordType};

use crate::Result;

/// The counts so far.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LiveCount {
    /// The number of samples of each event, in the order of the attrs.
    pub samples: Vec<u64>,
    /// Samples of unknown events.
    pub of_unknown_events: u64,
    /// The losses.
    pub lost: Losses,
    /// A record is cut short, or bytes are not records.
    pub torn: bool,
}

impl LiveCount {
    /// Adds the records of a batch.
    ///
    /// # Errors
    ///
    /// The batch holds bytes that are not records.
    pub fn add(&mut self, batch: &Batch) -> Result<()> {
        let wanted = Kinds::LOST.and(RecordType::SAMPLE).and(RecordType::AUX);
        self.torn |= batch.fragment.is_some();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            if record.kind() != RecordType::SAMPLE {
                self.lost.add(&record, &batch.layouts);
                continue;
            }
            match batch.layouts.event_of(&record) {
                Some(event) => {
                    self.samples.resize(self.samples.len().max(event + 1), 0);
                    self.samples[event] += 1;
                }
                None => self.of_unknown_events += 1,
            }
        }
        Ok(())
    }

    /// Adds the counts of another stream of the same recording.
    pub fn join(&mut self, other: &LiveCount) {
        self.samples.resize(self.samples.len().max(other.samples.len()), 0);
        self.samples.iter_mut().zip(&other.samples).for_each(|(all, more)| *all += more);
        self.of_unknown_events += other.of_unknown_events;
        self.lost.join(other.lost);
        self.torn |= other.torn;
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.samples.iter().sum::<u64>() + self.of_unknown_events
    }
}
