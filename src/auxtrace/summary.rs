//! Counts the packets of all traces of a recording by kind, and the time in which code was traced.

use std::collections::BTreeMap;

use perfx_pipeline::{Result, ordered};

/// The packets of all traces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Number of packets by kind, in the words of perf (Intel PT) or OpenCSD (CoreSight).
    pub packets: BTreeMap<&'static str, u64>,
    /// Sync points.
    pub syncs: u64,
    /// How often the processor lost packets.
    pub overflows: u64,
    /// The total span of the traces and the total time in which code was traced, ns; `None` if unknown.
    pub time: Option<(u64, u64)>,
}

impl Summary {
    pub(crate) fn add(&mut self, later: Summary) {
        for (kind, count) in later.packets {
            *self.packets.entry(kind).or_default() += count;
        }
        self.syncs += later.syncs;
        self.overflows += later.overflows;
        self.time = match (self.time, later.time) {
            (Some((span, traced)), Some((more, more_traced))) => {
                Some((span.saturating_add(more), traced.saturating_add(more_traced)))
            }
            (one, other) => one.or(other),
        };
    }
}

pub(crate) fn sum<T: Send, S: Default + Send>(
    traces: impl IntoIterator<Item = T, IntoIter: Send>,
    threads: usize,
    of: impl Fn(T) -> S + Sync,
    add: impl Fn(&mut S, S),
) -> Result<S> {
    let mut sum = S::default();
    let mut workers = vec![(); threads.max(1)];
    ordered(
        traces.into_iter(),
        &mut workers,
        threads <= 1,
        |(), trace| of(trace),
        |one| -> Result<()> {
            add(&mut sum, one);
            Ok(())
        },
    )?;
    Ok(sum)
}
