//! Finds out whether a recording has hardware traces, and of which tracer, before they are read.

use perfx_format::read::Recording;
use perfx_format::record::aux::AuxtraceInfo;
use perfx_format::record::pt_info::PtInfo;
use perfx_format::{Feature, Kinds, Layouts, RecordType, sample_type as st};
use perfx_pipeline::Result;

/// The hardware traces of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    /// The tracer, of kind 0 if no record describes it; `None` if there is no AUX data.
    pub tracer: Option<AuxtraceInfo>,
    in_samples: bool,
    /// Samples name the thread that was traced.
    needs_samples: bool,
}

impl Presence {
    /// Reads a recording up to the first record that describes a tracer.
    ///
    /// # Errors
    ///
    /// The recording cannot be read.
    pub fn of(recording: &mut Recording) -> Result<Presence> {
        let in_samples = Layouts::new(&recording.events).any_samples(st::AUX);
        let mut presence = Presence { tracer: None, in_samples, needs_samples: false };
        let kinds = Kinds::of(&[RecordType::AUXTRACE_INFO, RecordType::AUXTRACE]);
        for batch in recording.decompressed() {
            let batch = batch?;
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(kinds, usize::MAX)? {
                let info = AuxtraceInfo::of(&record);
                presence.tracer = info.or(Some(AuxtraceInfo { kind: 0 }));
                if info.is_some() {
                    let switches = PtInfo::of(&record).map(|info| info.switches);
                    presence.needs_samples = switches == Some(PtInfo::BY_SAMPLES);
                    return Ok(presence);
                }
            }
        }
        Ok(presence)
    }

    /// True if the header of a file lists a trace. Pipe data lists it only at its end.
    pub fn is_listed(recording: &Recording) -> bool {
        recording.features.contains_key(&Feature::AUXTRACE)
    }

    /// True if there is a trace, in AUXTRACE records or in samples.
    pub fn is_any(&self) -> bool {
        self.tracer.is_some() || self.in_samples
    }

    /// True if a time window can be decoded on its own. False if samples after it hold its data, or samples
    /// before it name the running thread.
    pub fn decodes_in_windows(&self) -> bool {
        !self.in_samples && !self.needs_samples
    }
}
