//! Runs passes on small recordings made in memory, for unit tests.

use std::sync::Arc;

use perfx_format::read::Recording;
use perfx_format::{Bytes, Feature, Record, sample_type as st};
use perfx_pipeline::{Job, OutputForm, Result};

use super::tiny_file;
pub(crate) use super::tiny_file::words;

pub(crate) const FIELDS: u64 = st::IP | st::TID | st::TIME | st::PERIOD;

pub(crate) fn sample(tid: u64, time: u64, period: u64) -> Vec<u8> {
    record(9, 2, &[0x40_1150, tid << 32 | tid, time, period])
}

pub(crate) fn file(
    sample_type: u64,
    flags: u64,
    records: &[Vec<u8>],
    features: &[(Feature, Vec<u8>)],
) -> Vec<u8> {
    let features: Vec<_> =
        features.iter().map(|(feature, section)| (feature.0.into(), section.clone())).collect();
    tiny_file::file(sample_type, flags, &records.concat(), &features)
}

pub(crate) fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
    tiny_file::record(kind, misc, &words(body))
}

pub(crate) struct Ran {
    pub(crate) recording: Recording,
    pub(crate) said: Vec<String>,
}

pub(crate) fn ran(chain: &str, file: Vec<u8>) -> Result<Ran> {
    let recording = Recording::from_bytes(file, "tiny.data")?;
    let passes = crate::parse_chain(chain)?;
    let job = Job { recording, passes, threads: 1, temp_files: Arc::new(tempfile::tempfile) };
    let (recording, outcome) = job.into_recording(OutputForm::File)?;
    let said = outcome.report.lines.into_iter().map(|(level, line)| format!("{level:?}: {line}"));
    Ok(Ran { recording, said: said.collect() })
}

impl Ran {
    pub(crate) fn feature(&self, feature: Feature) -> Option<&Bytes> {
        self.recording.features.get(&feature)
    }

    /// The results of `of` for all records, in order.
    pub(crate) fn each<T>(&mut self, mut of: impl FnMut(&Record<'_>) -> T) -> Vec<T> {
        let (mut records, mut all) = (self.recording.records(), Vec::new());
        while let Some(record) = records.next_record().unwrap() {
            all.push(of(&record));
        }
        all
    }

    pub(crate) fn bodies(&mut self) -> Vec<Vec<u64>> {
        self.each(|record| (1..record.bytes().len() / 8).map(|at| record.u64(8 * at).unwrap()).collect())
    }
}
