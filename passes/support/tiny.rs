//! Runs passes on recordings of a few records made in memory, to test them beside their code.

use std::sync::Arc;

use perfx_format::read::Recording;
use perfx_format::{Bytes, Feature, Record, sample_type as st};
use perfx_pipeline::{Job, OutputForm, Result};

/// The fields of samples: IP, TID, TIME and PERIOD.
pub(crate) const FIELDS: u64 = st::IP | st::TID | st::TIME | st::PERIOD;

pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
    let head = u64::from(kind) | u64::from(misc) << 32 | (8 + 8 * body.len() as u64) << 48;
    [words(&[head]), words(body)].concat()
}

/// A sample in user mode of a thread, at this time and with this period.
pub(crate) fn sample(tid: u64, time: u64, period: u64) -> Vec<u8> {
    record(9, 2, &[0x40_1150, tid << 32 | tid, time, period])
}

/// A file of an event of `cpu-clock` with id 11, these fields of samples, and `attr.flags`.
pub(crate) fn file(
    sample_type: u64,
    flags: u64,
    records: &[Vec<u8>],
    features: &[(Feature, Vec<u8>)],
) -> Vec<u8> {
    let data = records.concat();
    let (attrs, ids, start) = (104, 104 + 144, 104 + 144 + 8);
    let mut bits = [0u64; 4];
    for (feature, _) in features {
        bits[feature.0 as usize / 64] |= 1 << (feature.0 % 64);
    }
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(words(&[104, 144, attrs, 144, start, data.len() as u64, 0, 0]));
    bytes.extend(words(&bits));
    bytes.extend(words(&[1 | 128 << 32, 0, 1_000_000, sample_type, 0, flags]));
    bytes.resize(ids as usize - 16, 0);
    bytes.extend(words(&[ids, 8, 11]));
    bytes.extend(data);
    let mut at = bytes.len() as u64 + 16 * features.len() as u64;
    for (_, section) in features {
        bytes.extend(words(&[at, section.len() as u64]));
        at += section.len() as u64;
    }
    features.iter().for_each(|(_, section)| bytes.extend(section));
    bytes
}

/// The output of passes.
pub(crate) struct Ran {
    pub(crate) recording: Recording,
    /// The messages, each after its level.
    pub(crate) said: Vec<String>,
}

/// Runs a chain of passes, as `--passes` gives it, on a file.
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

    /// What `of` returns for each record, in order.
    pub(crate) fn each<T>(&mut self, mut of: impl FnMut(&Record<'_>) -> T) -> Vec<T> {
        let (mut records, mut all) = (self.recording.records(), Vec::new());
        while let Some(record) = records.next_record().unwrap() {
            all.push(of(&record));
        }
        all
    }

    /// The u64 words of each record after its header.
    pub(crate) fn bodies(&mut self) -> Vec<Vec<u64>> {
        self.each(|record| (1..record.bytes().len() / 8).map(|at| record.u64(8 * at).unwrap()).collect())
    }
}
