//! The constant inputs of decoding a trace of code.

use perfx_auxtrace::{Clock, Code, Function, Recorded, traced_code};
use perfx_format::Endian;
use perfx_pipeline::{Result, Session};
use perfx_resolve::{IdOptions, RecordedIds};
use perfx_trace::Space;

use super::apart::TraceProgress;
use super::parts::SpillFile;

/// The constant inputs of decoding the traces of a tracer into samples.
pub(super) struct Context<T, E> {
    pub(super) tracer: T,
    pub(super) recorded: Recorded,
    pub(super) code: Code,
    pub(super) events: E,
    pub(super) endian: Endian,
    pub(super) threads: usize,
    pub(super) spill: SpillFile,
    pub(super) progress: TraceProgress,
}

impl<T, E> Context<T, E> {
    /// Searches for code in the places of `ids` and in files made by earlier passes. `size` is that of all
    /// traces, bytes; `build_ids` are HEADER_BUILD_ID records.
    pub(super) fn new(
        (tracer, clock, events): (T, Clock, E),
        size: u64,
        mut recorded: Recorded,
        ids: &IdOptions,
        build_ids: &[Vec<u8>],
        session: &Session,
    ) -> Result<Context<T, E>> {
        let (features, endian) = (session.features(), session.endian);
        let dsos: Vec<_> = recorded.dsos().map(|(dso, flags, _)| (dso.clone(), flags)).collect();
        let mut known = RecordedIds::new(features, endian, &dsos);
        known.learn_records(build_ids, endian);
        let code = traced_code(ids, &mut recorded, clock, &known, (features, endian, &session.name));
        code.take_bytes(&session.made_files()?);
        let (threads, spill) = (session.threads, SpillFile::new(session.temp_files()));
        let progress = TraceProgress::of(size);
        Ok(Context { tracer, recorded, code, events, endian, threads, spill, progress })
    }

    /// Looks up functions by address in a space at a time.
    pub(super) fn functions(&self, space: Option<Space>, ticks: u64) -> impl Fn(u64) -> Option<Function> {
        move |ip| self.code.function(space, ip, ticks)
    }
}
