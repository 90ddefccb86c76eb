//! Merges the samples of the parts of all buffers in time order.

use std::collections::{BTreeSet, HashMap};

use perfx_auxtrace::Part;
use perfx_pipeline::Result;
use perfx_samples::{Rest, Rows};

use super::sample_queue::SampleQueue;
use super::skip_first::SkipFirst;
use crate::itrace::producer::HandOut;

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 18;

/// Runs of at least this many bytes are passed on without a copy; shorter ones are copied into a batch.
const WHOLE: usize = 1 << 16;

/// At most this many bytes of pending samples are kept in memory; the rest is spilled to a temporary file.
const HELD: usize = 32 << 20;

/// The next sample of a part: its time, its buffer, and the part's number there.
type Next = (u64, usize, u64);

/// Samples that wait for earlier ones.
pub(crate) struct Merge<'h> {
    waiting: HashMap<(usize, u64), Waiting>,
    order: BTreeSet<Next>,
    /// The buffer of the last sample. At equal times its samples are first, as with perf.
    last: usize,
    skip: SkipFirst,
    out: Rows,
    hand_out: &'h mut HandOut<'h>,
    /// The bytes of waiting samples in memory.
    held: usize,
}

struct Waiting {
    /// The current chunk.
    made: Rest,
    /// The next chunks; also the first one, if it did not fit in memory.
    rest: SampleQueue,
}

impl Waiting {
    /// The bytes of samples in memory.
    fn held(&self) -> usize {
        self.made.rows().size() + self.rest.held()
    }
}

impl<'h> Merge<'h> {
    /// Hands out batches of the samples that are not skipped.
    pub(crate) fn new(skip: SkipFirst, hand_out: &'h mut HandOut<'h>) -> Merge<'h> {
        let (waiting, order, out) = (HashMap::new(), BTreeSet::new(), Rows::default());
        Merge { waiting, order, last: 0, skip, out, hand_out, held: 0 }
    }

    /// Adds the samples of a part.
    pub(crate) fn add(&mut self, part: Part, mut rest: SampleQueue) -> Result<()> {
        let mut made = rest.next()?;
        if let Some(key) = made.key(0) {
            if self.held + made.size() + rest.held() > HELD {
                rest.store_first(&std::mem::take(&mut made));
            }
            self.order.insert((key, part.buffer, part.number));
            self.wait((part.buffer, part.number), Waiting { made: made.into(), rest });
        }
        Ok(())
    }

    fn wait(&mut self, part: (usize, u64), waiting: Waiting) {
        self.held += waiting.held();
        self.waiting.insert(part, waiting);
    }

    /// Removes the samples of a part.
    fn take(&mut self, part: (usize, u64)) -> Result<Option<Waiting>> {
        let Some(mut waiting) = self.waiting.remove(&part) else { return Ok(None) };
        self.held -= waiting.held();
        if waiting.made.key().is_none() {
            waiting.made = waiting.rest.next()?.into();
        }
        Ok(Some(waiting))
    }

    /// Hands out the samples before this time. Samples added later must not be earlier.
    pub(crate) fn release(&mut self, time: u64) -> Result<()> {
        while let Some(&(key, ..)) = self.order.first()
            && key < time
        {
            let own = self.order.range((key, self.last, 0)..=(key, self.last, u64::MAX)).next();
            let Some(&next) = own.or(self.order.first()) else { return Ok(()) };
            self.order.remove(&next);
            let (_, buffer, number) = next;
            self.last = buffer;
            let Some(mut waiting) = self.take((buffer, number))? else { continue };
            // Up to the first sample of another part, or to one that must wait.
            let next = self.order.first().map(|(key, ..)| *key);
            let comes_first = |key| key < time && next.is_none_or(|next| key <= next);
            if let Some(key) = self.pass(buffer, &mut waiting, comes_first)? {
                self.order.insert((key, buffer, number));
                self.wait((buffer, number), waiting);
            }
        }
        Ok(())
    }

    /// Hands out the remaining samples.
    pub(crate) fn end(mut self) -> Result<()> {
        self.release(u64::MAX)?;
        self.flush()
    }

    /// Passes on the first samples of a part; returns the time of its next one.
    fn pass(
        &mut self,
        buffer: usize,
        Waiting { made, rest }: &mut Waiting,
        comes_first: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        loop {
            let run = made.run(&comes_first);
            if made.rows().size_of(run.clone()) >= WHOLE {
                self.flush()?;
            }
            if self.skip.is_done() {
                made.pass(run, &mut self.out);
            } else {
                run.clone().for_each(|number| self.skip.pass(buffer, (made.rows(), number), &mut self.out));
                made.drop_some(run);
            }
            if self.out.size() >= BATCH {
                self.flush()?;
            }
            if let Some(key) = made.key() {
                return Ok(Some(key));
            }
            *made = rest.next()?.into();
            match made.key() {
                Some(key) if !comes_first(key) => return Ok(Some(key)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Hands out the current batch.
    fn flush(&mut self) -> Result<()> {
        let out = std::mem::take(&mut self.out);
        if out.count() == 0 {
            return Ok(());
        }
        (self.hand_out)(out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perfx_samples::Sampled;

    use super::super::spill_file::SpillFile;
    use super::*;

    /// If the times of a trace decrease, its samples wait for its end. All used to be in memory.
    #[test]
    fn what_has_no_room_waits_in_a_file() {
        const EACH: u64 = 9;
        let spill = SpillFile::new(Arc::new(tempfile::tempfile));
        let size = HELD / 4 / EACH as usize;
        let mut hand_out = |_| Ok(());
        let mut merge = Merge::new(SkipFirst::new(0, [], perfx_format::Endian::Little), &mut hand_out);
        for number in 0..8 {
            let mut queue = SampleQueue::new(spill.clone());
            (0..EACH).for_each(|key| queue.push(key, |bytes| bytes.resize(bytes.len() + size, number as u8)));
            merge.add(Part { buffer: 0, trace: 0, number, time: 0, size: 0 }, queue).unwrap();
            merge.release(0).unwrap();
            assert!(merge.held <= HELD, "{}", merge.held);
        }
        for number in 0..8 {
            let Waiting { mut made, mut rest, .. } = merge.take((0, number)).unwrap().unwrap();
            let mut keys = Vec::new();
            while made.key().is_some() {
                let rows = made.rows();
                for at in 0..rows.count() {
                    let Some(Sampled::Record(sample)) = rows.get(at) else { panic!("it is a record") };
                    assert_eq!((sample.len(), sample[size - 1]), (size, number as u8));
                    keys.extend(rows.key(at));
                }
                made = rest.next().unwrap().into();
            }
            assert!(keys.iter().copied().eq(0..EACH));
        }
        assert_eq!(merge.held, 0);
    }
}
