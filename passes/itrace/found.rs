//! The result of the survey of `itrace`.

use std::collections::HashMap;

use perfx_model::spe::SpeData;

use super::apart::Apart;
use super::recorded::RecordedSample;

/// The name of the pass.
pub(super) const NAME: &str = "itrace";

/// The AUX data and its description.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) spe: SpeData,
    pub(super) traces: perfx_auxtrace::Survey,
    /// All samples in file order, if they get parts from the trace.
    pub(super) samples: Vec<RecordedSample>,
    /// The names in EVENT_UPDATE records.
    pub(super) names: HashMap<u64, Vec<u8>>,
    /// Receives the samples, if they are not written.
    pub(super) apart: Option<Apart>,
    /// HEADER_BUILD_ID records.
    pub(super) build_ids: Vec<Vec<u8>>,
}
