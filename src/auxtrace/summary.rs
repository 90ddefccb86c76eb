//! Counts what the packets of all traces of a recording tell without the code: kinds, and for how long code was traced.

use std::collections::BTreeMap;

use perfx_format::read::Recording;
use perfx_pipeline::{Result, ordered};
use perfx_trace::{Trace, coresight, intel_pt};

use crate::clock::Clock;
use crate::coresight::{CoreSight, Piece};
use crate::survey::{Recorded, Survey};

/// The packets of all traces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Their number, by the kind in the words of perf (Intel PT) or OpenCSD (CoreSight).
    pub packets: BTreeMap<&'static str, u64>,
    /// Points of synchronization.
    pub syncs: u64,
    /// How often the processor lost packets.
    pub overflows: u64,
    /// The time that the traces span, ns, and that of it in which code was traced, added up; `None` if it is not known.
    pub time: Option<(u64, u64)>,
}

impl Summary {
    fn add(&mut self, later: Summary) {
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

/// Works on traces on threads, and adds up what is made of them.
pub(crate) fn sum<T: Send, S: Default + Send>(
    traces: impl Iterator<Item = T> + Send,
    threads: usize,
    of: impl Fn(T) -> S + Sync,
    add: impl Fn(&mut S, S),
) -> Result<S> {
    let mut sum = S::default();
    let mut workers = vec![(); threads.max(1)];
    ordered(
        traces,
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

impl Summary {
    /// Counts the packets of a recording with Intel PT or CoreSight; `None` if it has neither.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or its traces are of a kind that is not decoded.
    pub fn of(recording: &mut Recording, threads: usize) -> Result<Option<Summary>> {
        let survey = Survey::read(recording, threads)?;
        let stored = recording.stored_bytes();
        if survey.is_pt() {
            return Ok(Some(survey.done(&stored, &recording.all_events())?.summary(threads)?));
        }
        if survey.is_coresight() {
            return Ok(Some(survey.done_coresight(&stored)?.summary(threads)?));
        }
        Ok(None)
    }
}

impl Recorded {
    fn summary(&self, threads: usize) -> Result<Summary> {
        let (config, clock) = (&self.tracer.config, self.clock());
        let of = |trace: Trace<'_>| {
            let tally = intel_pt::tally(&trace, config);
            let count = |kind| tally.packets.get(kind).copied().unwrap_or(0);
            let time = clock.conv.map(|_| (length(clock, tally.span), length(clock, tally.traced)));
            Summary { syncs: count("PSB"), overflows: count("OVF"), time, packets: tally.packets }
        };
        sum(self.buffers.iter().flat_map(|buffer| buffer.traces()), threads, of, Summary::add)
    }
}

/// The time that so many ticks take, ns.
fn length(clock: Clock, ticks: u64) -> u64 {
    clock.time(ticks).wrapping_sub(clock.time(0))
}

impl Recorded<CoreSight> {
    fn summary(&self, threads: usize) -> Result<Summary> {
        let units = &self.tracer.units;
        let of = |piece: &Piece| {
            let mut found = Summary::default();
            for (id, bytes) in piece.streams() {
                let Some(unit) = units.get(&id) else { continue };
                let trace = Trace::new(vec![&bytes], Vec::new());
                for packet in coresight::list(&trace, &unit.config) {
                    *found.packets.entry(packet.kind()).or_default() += 1;
                    found.syncs += u64::from(packet.is_sync());
                    found.overflows += u64::from(packet.is_overflow());
                }
            }
            found
        };
        sum(self.tracer.pieces.iter(), threads, of, Summary::add)
    }
}
