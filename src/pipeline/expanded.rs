//! Replaces the COMPRESSED records of batches with their contents, on one or several threads.

use perfx_format::read::{Batch, DecodeUnits, Expand, Recording, expand_alone};

use crate::error::{Error, Result};
use crate::ordered::mapped;

pub(crate) type Stored<'a> = &'a mut (dyn FnMut(&Batch) + Send);

/// Calls `then` with the expanded batches of a recording. Up to `threads` threads expand them, if the zstd
/// frames allow it; the batches do not depend on that number. `stored` sees every batch as stored, in file
/// order.
pub(crate) fn expanded<O, E: From<Error>>(
    recording: &mut Recording,
    threads: usize,
    salvage: bool,
    mut stored: Option<Stored<'_>>,
    then: impl FnOnce(Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send + '_>) -> Result<O, E>,
) -> Result<O, E> {
    let (endian, chain) = (recording.endian, recording.chain().cloned());
    let mmap_len = recording.compressed().map_or(0, |compressed| compressed.mmap_len);
    let alone = threads <= 1 || !recording.is_compressed();
    let batches = recording.batches().inspect(|batch| {
        if let (Ok(batch), Some(stored)) = (batch, &mut stored) {
            stored(batch);
        }
    });
    if alone {
        return then(Box::new(expand_alone(batches, endian, mmap_len, salvage).chained(chain)));
    }
    mapped(
        DecodeUnits::new(batches),
        &mut vec![(); threads],
        |_, unit| unit.map(|unit| unit.decompressed()),
        |units| {
            let batches = Expand::new(units, endian, mmap_len);
            then(Box::new(batches.salvage(salvage).chained(chain)))
        },
    )
}
