//! Merges the samples of the parts of all buffers in the order of time.

use std::collections::{BTreeSet, HashMap};

use perfx_auxtrace::Part;
use perfx_pipeline::Result;

use super::skip::Skip;
use super::spool::Spool;
use crate::itrace::made::Made;
use crate::itrace::producer::HandOut;

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

/// So many bytes are handed out as they are, and fewer are put together.
const WHOLE: usize = 1 << 16;

/// A sample that is next in its part: its time, its buffer, and the part's number there.
type Next = (u64, usize, u64);

/// Samples that wait until no earlier ones can come.
pub(crate) struct Merge<'h> {
    waiting: HashMap<(usize, u64), Waiting>,
    order: BTreeSet<Next>,
    /// The buffer of the last sample: others of its time come before those of other buffers, as with perf.
    last: usize,
    skip: Skip,
    out: Made,
    hand_out: &'h mut HandOut<'h>,
}

struct Waiting {
    /// The samples that come first, and how many of them wait no more.
    made: Made,
    done: usize,
    /// The others.
    rest: Spool,
}

impl<'h> Merge<'h> {
    /// Hands out batches of the samples that are not skipped.
    pub(crate) fn new(skip: Skip, hand_out: &'h mut HandOut<'h>) -> Merge<'h> {
        let (waiting, order) = (HashMap::new(), BTreeSet::new());
        Merge { waiting, order, last: 0, skip, out: Made::default(), hand_out }
    }

    /// Adds the samples of a part.
    pub(crate) fn add(&mut self, part: Part, mut rest: Spool) -> Result<()> {
        let made = rest.next()?;
        if let Some((_, key)) = made.get(0) {
            self.order.insert((key, part.buffer, part.number));
            self.waiting.insert((part.buffer, part.number), Waiting { made, done: 0, rest });
        }
        Ok(())
    }

    /// Nothing that is added later is earlier than this time.
    pub(crate) fn release(&mut self, time: u64) -> Result<()> {
        while let Some(&(key, ..)) = self.order.first()
            && key < time
        {
            let own = self.order.range((key, self.last, 0)..=(key, self.last, u64::MAX)).next();
            let Some(&next) = own.or(self.order.first()) else { return Ok(()) };
            self.order.remove(&next);
            let (_, buffer, number) = next;
            self.last = buffer;
            let Some(mut waiting) = self.waiting.remove(&(buffer, number)) else { continue };
            // Up to the first sample of another part, or one that must wait.
            let next = self.order.first().map(|(key, ..)| *key);
            let comes_first = |key| key < time && next.is_none_or(|next| key <= next);
            if let Some(key) = self.pass(buffer, &mut waiting, comes_first)? {
                self.order.insert((key, buffer, number));
                self.waiting.insert((buffer, number), waiting);
            }
        }
        Ok(())
    }

    /// Passes the samples of a part on that come first; returns the time of the next one.
    fn pass(
        &mut self,
        buffer: usize,
        Waiting { made, done, rest }: &mut Waiting,
        comes_first: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        loop {
            let run = *done..*done + made.run(*done, &comes_first);
            let end = run.end;
            let (size, behind) = (made.size(&run), made.size(&(end..made.count() as usize)));
            if size >= WHOLE && size >= behind && self.skip.is_done() {
                self.flush()?;
                self.out = made.take_some(run);
                self.flush()?;
                *done = 0;
            } else {
                let looked_at = if self.skip.is_done() { *done } else { end };
                self.out.extend(made, looked_at..end);
                for (sample, key) in (*done..looked_at).filter_map(|number| made.get(number)) {
                    let out = &mut self.out;
                    self.skip.pass(buffer, sample, |sample| {
                        out.push(key, |bytes| bytes.extend_from_slice(sample));
                    });
                }
                *done = end;
                if self.out.len() >= BATCH {
                    self.flush()?;
                }
            }
            if let Some((_, key)) = made.get(*done) {
                return Ok(Some(key));
            }
            (*made, *done) = (rest.next()?, 0);
            match made.get(0) {
                Some((_, key)) if !comes_first(key) => return Ok(Some(key)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Hands out what waits no more.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let out = std::mem::take(&mut self.out);
        if out.count() == 0 {
            return Ok(());
        }
        (self.hand_out)(out.prepared()?)
    }
}
