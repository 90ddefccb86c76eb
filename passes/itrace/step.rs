//! The rewrite of `itrace`: inserts decoded samples among the records in time order, and removes what is
//! useless without AUX data.

use std::collections::HashMap;

use perfx_format::record::event_update::name_update;
use perfx_format::sample::without_parts as sample_without;
use perfx_format::{
    Endian, Feature, Kinds, Layout, Layouts, Origin, Record, RecordType, sample_type as st,
    with_history_parts, without_parts,
};
use perfx_pipeline::{Begin, Emit, Level, Report, Result, change_attr_of_each, change_attrs, counted};
use perfx_samples::Rows;

use super::apart::{Apart, Left, TraceProgress};
use super::events::{self, Decoded};
use super::found::Found;
use super::recorded::{History, RecordedSample, extended};
use crate::combine::{Batches, Step};

/// Makes the samples of a tracer.
pub(super) trait Decoder: Send + 'static {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<()>;
    /// The parts that recorded samples get from the trace: bits of `sample_type`.
    fn recorded_parts(&self) -> u64 {
        0
    }
    /// The history to add to this sample, if known.
    fn history(&self, _sample: &RecordedSample) -> Option<History> {
        None
    }
    /// The samples, in the order of the times by which they are sorted.
    fn samples(&mut self) -> Option<Batches>;
    /// The progress of decoding.
    fn progress(&self) -> TraceProgress {
        TraceProgress::default()
    }
    /// True if it also makes samples of recorded events.
    fn makes_recorded(&self) -> bool {
        false
    }
    /// True if samples are made complete, and need no `task`.
    fn completes(&self) -> bool {
        true
    }
    /// The process and thread of a decoded sample, when all earlier records have been seen.
    fn task(&mut self, _record: &Record<'_>, _layout: &Layout) -> Option<(u32, u32)> {
        None
    }
    /// Sees a record that is not a sample.
    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}
    /// Called after the last record.
    fn finish(&mut self, report: &mut Report);
}

/// The rewrite.
pub(super) struct Decode<D> {
    decoded: Vec<Decoded>,
    /// Receives the samples, if they are not written.
    apart: Option<Apart>,
    /// The names in EVENT_UPDATE records.
    names: HashMap<u64, Vec<u8>>,
    /// ID_INDEX records to write after the first one.
    index: Vec<Vec<u8>>,
    /// The layouts of the output, and the number of the first decoded event.
    layouts: Layouts,
    decoded_from: usize,
    /// Recorded samples have AUX data.
    has_aux: bool,
    /// The parts that recorded samples get from the trace, and the number of samples too large for them.
    parts: u64,
    too_large: u64,
    identifies: bool,
    endian: Endian,
    is_written: bool,
    decoder: D,
}

impl<D: Decoder> Decode<D> {
    pub(super) fn new(decoder: D, decoded: Vec<Decoded>, found: Found) -> Decode<D> {
        let Found { apart, names, .. } = found;
        let (index, layouts) = (Vec::new(), Layouts::new(&[]));
        Decode {
            decoded,
            apart,
            names,
            index,
            layouts,
            decoded_from: 0,
            has_aux: false,
            parts: 0,
            too_large: 0,
            identifies: false,
            endian: Endian::Little,
            is_written: true,
            decoder,
        }
    }
}

impl<D: Decoder> Decode<D> {
    /// Rewrites a recorded sample: removes its AUX data, and adds parts from the trace.
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
        (self.decoded_from, self.endian) = (session.events.len(), session.endian);
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
        self.is_written = self.apart.is_none() || !self.keeps_recorded() && self.decoder.makes_recorded();
        // Recorded samples are ordered as if the decoded ones were always written.
        if self.is_written { self.decoder.samples() } else { Some(Box::new(std::iter::empty())) }
    }

    fn keeps_made(&self) -> bool {
        self.decoder.completes() && self.keeps_recorded()
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let kind = record.kind();
        if Kinds::DECODED_AUX.contains(kind) {
            out.drop_record(record);
            return Ok(false);
        }
        if kind == RecordType::SAMPLE {
            match self.task_of(&record) {
                Some((layout, (pid, tid))) => out.patch(record, |bytes| {
                    layout.set_pid_tid(bytes, pid, tid, record.endian());
                })?,
                None if self.is_decoded(&record) => out.keep(record)?,
                None => self.recorded(record, out)?,
            }
            return Ok(true);
        }
        if self.is_written {
            self.decoder.see(&record, &self.layouts);
        }
        if name_update(&record).is_some_and(|(id, _)| self.names.contains_key(&id)) {
            // The name is now in feature EVENT_DESC.
            out.drop_record(record);
            return Ok(false);
        }
        out.keep(record)?;
        if kind == RecordType::ID_INDEX {
            std::mem::take(&mut self.index).iter().try_for_each(|index| out.put(index))?;
        }
        Ok(false)
    }

    fn finish(mut self: Box<Self>, report: &mut Report) {
        match self.apart.take() {
            Some(apart) => apart.leave(self),
            None => self.say(report),
        }
    }
}

impl<D: Decoder> Decode<D> {
    /// True if samples of recorded events keep their parts.
    fn keeps_recorded(&self) -> bool {
        !self.has_aux && self.parts == 0
    }

    fn is_decoded(&self, sample: &Record<'_>) -> bool {
        self.layouts.event_of(sample).is_some_and(|event| event >= self.decoded_from)
    }

    /// For a decoded sample that lacks its process and thread: its layout, and these.
    fn task_of(&mut self, sample: &Record<'_>) -> Option<(Layout, (u32, u32))> {
        let layout = *self.layouts.layout_of(sample).filter(|_| self.is_decoded(sample))?;
        Some((layout, self.decoder.task(sample, &layout)?))
    }
}

impl<D: Decoder> Left for Decode<D> {
    fn samples(&mut self) -> Option<Batches> {
        if self.is_written { None } else { self.decoder.samples() }
    }

    fn completes(&self) -> bool {
        self.decoder.completes()
    }

    fn complete(&mut self, rows: &mut Rows) -> Result<()> {
        for number in 0..rows.count() {
            let Some(bytes) = rows.record_mut(number) else { continue };
            let record = Record::new(bytes, &[], Origin::Synthetic, self.endian)?;
            if record.kind() != RecordType::SAMPLE {
                self.decoder.see(&record, &self.layouts);
            } else if let Some((layout, (pid, tid))) = self.task_of(&record) {
                layout.set_pid_tid(bytes, pid, tid, self.endian);
            }
        }
        Ok(())
    }

    fn progress(&self) -> TraceProgress {
        self.decoder.progress()
    }

    fn say(&mut self, report: &mut Report) {
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
