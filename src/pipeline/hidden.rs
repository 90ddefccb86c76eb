//! Finds records that belong at the front of pipe data or in a header, inside copied COMPRESSED records.

use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Sender, bounded};
use perfx_format::read::{Batch, Recording, expand_alone};
use perfx_format::{Endian, Kinds};

use crate::error::{Context as _, Error, Result};

/// Expands the compressed records on a thread of its own and keeps nothing.
pub(crate) struct Hidden {
    idle: bool,
    endian: Endian,
    mmap_len: u32,
    at_work: Option<(Sender<Batch>, JoinHandle<Option<perfx_format::Error>>)>,
}

impl Hidden {
    /// A search in compressed records that are copied unexpanded; not needed if a file stays a file.
    pub(crate) fn new(recording: &Recording, wanted: bool) -> Hidden {
        let mmap_len = recording.compressed().map_or(0, |compressed| compressed.mmap_len);
        Hidden { idle: !wanted, endian: recording.endian, mmap_len, at_work: None }
    }

    pub(crate) fn look(&mut self, batch: &Batch) -> Result<()> {
        if self.idle || !batch.kinds.intersects(Kinds::COMPRESSED) {
            return Ok(());
        }
        let (sender, _) = match &mut self.at_work {
            Some(at_work) => at_work,
            none => none.insert(start(self.endian, self.mmap_len)?),
        };
        // A closed channel means that something was found, which is reported at the end.
        sender.send(batch.clone()).ok();
        Ok(())
    }

    /// Ends the search; returns the first such record as an error.
    pub(crate) fn found(self) -> Result<Option<perfx_format::Error>> {
        let Some((sender, worker)) = self.at_work else { return Ok(None) };
        drop(sender);
        worker.join().map_err(|_| Error::new("the thread that decompresses records has died"))
    }
}

fn start(endian: Endian, mmap_len: u32) -> Result<(Sender<Batch>, JoinHandle<Option<perfx_format::Error>>)> {
    let (sender, receiver) = bounded(1);
    let front = |error: &perfx_format::Error| {
        error.record_kind().is_some_and(|kind| Kinds::HEADER_FRONT.contains(kind))
    };
    let search = move || {
        let batches = receiver.into_iter().map(Ok);
        // Other faults inside them are copied unchanged.
        expand_alone(batches, endian, mmap_len, false).filter_map(Result::err).find(front)
    };
    let worker = Builder::new().spawn(search).context("can't start a thread")?;
    Ok((sender, worker))
}
