//! Keeps feature SAMPLE_TIME true when samples are dropped.

use perfx_format::Feature;
use perfx_format::features::SampleTime;
use perfx_pipeline::Session;

/// Sets the feature, if there is one, to the times of the first and the last sample that stay, ns. If none stays,
/// the first is later than the last, and the feature stays as it is.
pub(crate) fn set_sample_time(session: &mut Session, (first_ns, last_ns): (u64, u64)) {
    if first_ns <= last_ns && session.feature(Feature::SAMPLE_TIME).is_some() {
        let section = SampleTime { first_ns, last_ns }.write(session.endian);
        session.set_feature(Feature::SAMPLE_TIME, section);
    }
}
