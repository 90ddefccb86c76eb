//! Lists the parts of an otherwise sound recording that a certain reader refuses or misreads.

use std::collections::BTreeMap;

use perfx_format::decode::BRANCH_SAMPLE_TYPE_NAMES;
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::readers::Reader;
use perfx_format::record::spe_info::spe_info_v1;
use perfx_format::sample::deferred_cookie;
use perfx_format::{
    ATTR_FLAGS, Kinds, MMAP_BUILD_ID, READ_FORMAT_NAMES, RecordType, SAMPLE_TYPE_NAMES, bit_names,
};
use perfx_pipeline::{Result, scan_both};

/// A part that the reader refuses or misreads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// A description, such as `attrs of 144 bytes, it knows 120`.
    pub what: String,
    /// The number of such records or events.
    pub count: u64,
}

/// The parts that the reader refuses or misreads. The recording must be one that can be read again.
///
/// # Errors
///
/// The recording cannot be read.
pub fn obstacles(recording: &mut Recording, reader: &Reader, threads: usize) -> Result<Vec<Obstacle>> {
    let mut obstacles = of_events(recording, reader);
    let mut compressed: BTreeMap<RecordType, u64> = BTreeMap::new();
    let stored = |batch: &Batch| {
        let mut walker = batch.walk();
        while let Ok(Some(record)) = walker.next_wanted(Kinds::COMPRESSED, usize::MAX) {
            *compressed.entry(record.kind()).or_default() += 1;
        }
    };
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let work = |batch: &Batch| of_records(batch, reader);
    scan_both(recording, threads, stored, work, |_, more| {
        more.into_iter().for_each(|(what, count)| *found.entry(what).or_default() += count);
        Ok(())
    })?;
    let refused = compressed.into_iter().filter(|(kind, _)| !reader.compressed.contains(*kind));
    let refused = refused.map(|(kind, count)| (format!("{} records", name(kind)), count));
    obstacles.extend(refused.chain(found).map(|(what, count)| Obstacle { what, count }));
    Ok(obstacles)
}

fn name(kind: RecordType) -> String {
    kind.name().map_or_else(|| kind.to_string(), str::to_owned)
}

fn of_events(recording: &Recording, reader: &Reader) -> Vec<Obstacle> {
    let known = reader.attr;
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for event in &recording.events {
        let attr = event.attr();
        let mut add = |what: String| *found.entry(what).or_default() += 1;
        // Every perf reads larger attrs of pipe data.
        if event.raw().len() > known.size && recording.form != Form::Pipe {
            add(format!("attrs of {} bytes, it knows {}", event.raw().len(), known.size));
        }
        for (field, bits, known, names) in [
            ("flags", attr.flags, known.flags, ATTR_FLAGS),
            ("sample_type", attr.sample_type, known.sample_type, SAMPLE_TYPE_NAMES),
            ("read_format", attr.read_format, known.read_format, READ_FORMAT_NAMES),
            (
                "branch_sample_type", attr.branch_sample_type, known.branch_sample_type,
                BRANCH_SAMPLE_TYPE_NAMES,
            ),
        ] {
            if bits & !known != 0 {
                add(format!("events with {} in {field}", bit_names(bits & !known, names)));
            }
        }
    }
    let unknown =
        recording.features.keys().filter(|feature| u32::from(feature.0) >= reader.first_unknown_feature);
    for feature in unknown.filter(|_| recording.form == Form::Pipe) {
        found.insert(format!("feature {feature} in pipe data"), 1);
    }
    found.into_iter().map(|(what, count)| Obstacle { what, count }).collect()
}

fn of_records(batch: &Batch, reader: &Reader) -> Result<BTreeMap<String, u64>> {
    let wanted = reader.refused_kinds().union(Kinds::SAMPLES);
    let wanted = wanted.and(RecordType::MMAP2).and(RecordType::AUXTRACE_INFO);
    let mut found = BTreeMap::new();
    let mut walker = batch.walk();
    while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
        let kind = record.kind();
        let layout = batch.layouts.layout_of(&record);
        let is_deferred = || layout.is_some_and(|layout| deferred_cookie(&record, layout).is_some());
        let what = match kind {
            RecordType::SAMPLE if !reader.deferred_chains && is_deferred() => {
                "samples with deferred call chains".to_owned()
            }
            RecordType::MMAP2 if !reader.kernel_mmap2 && record.is_of_kernel() => {
                "MMAP2 records of the kernel".to_owned()
            }
            RecordType::MMAP2 if !reader.mmap_build_ids && record.misc() & MMAP_BUILD_ID != 0 => {
                "MMAP2 records with build-ids".to_owned()
            }
            RecordType::AUXTRACE_INFO if !reader.spe_v2 && spe_info_v1(&record).is_some() => {
                "descriptions of Arm SPE in version 2".to_owned()
            }
            kind if (reader.refused)(kind) => format!("{} records", name(kind)),
            _ => continue,
        };
        *found.entry(what).or_default() += 1;
    }
    Ok(found)
}
