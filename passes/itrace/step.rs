//! The rewrite of `itrace`: puts decoded samples among the records in time order, and leaves out what means nothing
//! without AUX data.

use std::collections::HashMap;

use perfx_format::record::event_update::name_update;
use perfx_format::sample::without_parts as sample_without;
use perfx_format::{
    Feature, Kinds, Layouts, Record, RecordType, sample_type as st, with_history_parts, without_parts,
};
use perfx_pipeline::{Begin, Emit, Level, Report, Result, change_attr_of_each, change_attrs, counted};

use super::events::{self, Decoded};
use super::recorded::{History, RecordedSample, extended};
use crate::combine::{Batches, Step};

/// What makes the samples of a tracer.
pub(super) trait Decoder: Send + 'static {
    /// The rewrite begins.
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<()>;
    /// The parts that samples of recorded events get from the trace: bits of `sample_type`.
    fn recorded_parts(&self) -> u64 {
        0
    }
    /// The history to add to this sample, if known.
    fn history(&self, _sample: &RecordedSample) -> Option<History> {
        None
    }
    /// The samples, in the order of the times by which they are sorted.
    fn samples(&mut self) -> Option<Batches>;
    /// True if samples are complete when they are made, and `sample` keeps them as they are.
    fn completes(&self) -> bool {
        true
    }
    /// Writes a sample at its place, when all records in front of it have been seen.
    fn sample(&mut self, record: Record<'_>, _layouts: &Layouts, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }
    /// A record of another kind.
    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}
    /// All have been written.
    fn finish(&mut self, report: &mut Report);
}

/// The rewrite.
#[derive(Debug)]
pub(super) struct Decode<D> {
    decoder: D,
    decoded: Vec<Decoded>,
    /// No samples are made of them.
    events_only: bool,
    /// The names in EVENT_UPDATE records.
    names: HashMap<u64, Vec<u8>>,
    /// ID_INDEX records that go behind the first one.
    index: Vec<Vec<u8>>,
    /// The layouts of the records that come, and the number of the first decoded event.
    layouts: Layouts,
    decoded_from: usize,
    /// Recorded samples have AUX data.
    has_aux: bool,
    /// What they get from the trace, and the number of those that are too large to get it.
    parts: u64,
    too_large: u64,
    identifies: bool,
}

impl<D: Decoder> Decode<D> {
    /// The rewrite with samples of these events, or with the `events_only`.
    pub(super) fn new(
        decoder: D,
        (decoded, events_only): (Vec<Decoded>, bool),
        names: HashMap<u64, Vec<u8>>,
    ) -> Decode<D> {
        let (index, layouts) = (Vec::new(), Layouts::new(&[]));
        Decode {
            decoder,
            decoded,
            events_only,
            names,
            index,
            layouts,
            decoded_from: 0,
            has_aux: false,
            parts: 0,
            too_large: 0,
            identifies: false,
        }
    }
}

impl<D: Decoder> Decode<D> {
    /// A sample that was recorded: AUX data in it means nothing any more, and it may get something from the trace.
    fn recorded(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let layout = self.layouts.layout_of(&record).filter(|_| self.has_aux || self.parts != 0);
        let Some(layout) = layout else { return out.keep(record) };
        let cut = layout.sample_type & st::AUX != 0;
        let without = if cut { Some(sample_without(&record, layout, st::AUX)?) } else { None };
        if self.parts & !layout.sample_type == 0 {
            return out.replace_if(record, without);
        }
        let history = RecordedSample::of(&record, layout).and_then(|sample| self.decoder.history(&sample));
        let mut layout = *layout;
        layout.sample_type &= !st::AUX;
        let bytes = without.as_deref().unwrap_or(record.bytes());
        let sample = Record::new(bytes, &[], record.origin(), record.endian())?;
        let (bytes, has_all) = extended(&sample, &layout, self.parts, history)?;
        self.too_large += u64::from(!has_all);
        out.replace(&record, &bytes)
    }
}

impl<D: Decoder> Step for Decode<D> {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool> {
        if session.feature(Feature::AUXTRACE).is_some() {
            session.clear_feature(Feature::AUXTRACE);
        }
        self.decoded_from = session.events.len();
        self.identifies = events::add(&self.decoded, session, &self.names)?;
        self.decoder.begin(session)?;
        self.layouts = Layouts::new(&session.events);
        self.parts = self.decoder.recorded_parts();
        if self.parts != 0 {
            let recorded = self.decoded_from;
            change_attr_of_each(session, |event, raw, endian| {
                with_history_parts(raw, if event < recorded { self.parts } else { 0 }, endian);
            });
        }
        self.has_aux = self.layouts.any_samples(st::AUX);
        if self.has_aux {
            change_attrs(session, |raw, endian| without_parts(raw, st::AUX, endian));
        }
        self.index = events::index(&self.decoded, session);
        Ok(true)
    }

    fn identifies(&self) -> bool {
        self.identifies
    }

    fn made(&mut self) -> Option<Batches> {
        if self.events_only { None } else { self.decoder.samples() }
    }

    fn keeps_made(&self) -> bool {
        // Samples of recorded events can be among them.
        self.decoder.completes() && !self.has_aux && self.parts == 0
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let kind = record.kind();
        if Kinds::DECODED_AUX.contains(kind) {
            out.drop_record(record);
            return Ok(false);
        }
        if kind == RecordType::SAMPLE {
            if self.layouts.event_of(&record).is_some_and(|event| event >= self.decoded_from) {
                self.decoder.sample(record, &self.layouts, out)?;
            } else {
                self.recorded(record, out)?;
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
        if self.too_large > 0 {
            let samples = counted(self.too_large, "recorded sample", "recorded samples");
            let what = format!(
                "{samples} got nothing from the trace, because it would make them larger than a record can be"
            );
            report.say(Level::Loss, what);
        }
    }
}
