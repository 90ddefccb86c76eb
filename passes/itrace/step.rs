//! The rewrite of `itrace`: puts decoded samples among the records in time order, and leaves out what means nothing
//! without AUX data.

use std::collections::HashMap;
use std::fmt::Debug;

use perfx_format::record::event_update::name_update;
use perfx_format::{Feature, Kinds, Layouts, Record, RecordType};
use perfx_pipeline::{Begin, Emit, Report, Result};

use super::events::{self, Decoded};
use crate::combine::{Batches, Step};

/// What makes the samples of a tracer.
pub(super) trait Decoder: Send + Debug + 'static {
    /// The rewrite begins.
    fn begin(&mut self, session: &mut Begin<'_>);
    /// The samples, in the order of the times by which they are sorted.
    fn samples(&mut self) -> Option<Batches>;
    /// Writes a sample at its place, when all records in front of it have been seen.
    fn sample(&mut self, record: Record<'_>, layouts: &Layouts, out: &mut Emit<'_>) -> Result<()>;
    /// A record of another kind.
    fn see(&mut self, record: &Record<'_>, layouts: &Layouts);
    /// All have been written.
    fn finish(&mut self, report: &mut Report);
}

/// The rewrite.
#[derive(Debug)]
pub(super) struct Decode<D> {
    decoder: D,
    decoded: Vec<Decoded>,
    /// The names in EVENT_UPDATE records.
    names: HashMap<u64, Vec<u8>>,
    /// ID_INDEX records that go behind the first one.
    index: Vec<Vec<u8>>,
    /// The layouts of the output's records, and the number of the first decoded event.
    layouts: Layouts,
    decoded_from: usize,
    identifies: bool,
}

/// The kinds that mean nothing without AUX data.
pub(crate) const DROPPED: Kinds = Kinds::of(&[
    RecordType::AUXTRACE_INFO,
    RecordType::AUXTRACE,
    RecordType::AUX,
    RecordType::ITRACE_START,
    RecordType::AUX_OUTPUT_HW_ID,
]);

impl<D: Decoder> Decode<D> {
    /// The rewrite with samples of these events.
    pub(super) fn new(decoder: D, decoded: Vec<Decoded>, names: HashMap<u64, Vec<u8>>) -> Decode<D> {
        let (index, layouts) = (Vec::new(), Layouts::new(&[]));
        Decode { decoder, decoded, names, index, layouts, decoded_from: 0, identifies: false }
    }
}

impl<D: Decoder> Step for Decode<D> {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool> {
        if session.feature(Feature::AUXTRACE).is_some() {
            session.clear_feature(Feature::AUXTRACE);
        }
        self.decoded_from = session.events.len();
        self.identifies = events::add(&self.decoded, session, &self.names)?;
        self.decoder.begin(session);
        self.layouts = Layouts::new(&session.events);
        self.index = events::index(&self.decoded, session);
        Ok(true)
    }

    fn identifies(&self) -> bool {
        self.identifies
    }

    fn made(&mut self) -> Option<Batches> {
        self.decoder.samples()
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let kind = record.kind();
        if DROPPED.contains(kind) {
            out.drop_record(record);
            return Ok(false);
        }
        if kind == RecordType::SAMPLE {
            if self.layouts.event_of(&record).is_some_and(|event| event >= self.decoded_from) {
                self.decoder.sample(record, &self.layouts, out)?;
            } else {
                out.keep(record)?;
            }
            return Ok(true);
        }
        self.decoder.see(&record, &self.layouts);
        if name_update(&record).is_some_and(|(id, _)| self.names.contains_key(&id)) {
            // The name is in feature EVENT_DESC now.
            out.drop_record(record);
            return Ok(false);
        }
        out.keep(record)?;
        if kind == RecordType::ID_INDEX {
            std::mem::take(&mut self.index).iter().try_for_each(|index| out.put(index))?;
        }
        Ok(false)
    }

    fn finish(&mut self, report: &mut Report) {
        self.decoder.finish(report);
    }
}
