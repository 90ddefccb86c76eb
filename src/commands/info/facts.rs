//! Collects the facts that `perfx info` shows in any form.

use std::collections::HashMap;

use perfx_format::event_name::{EventName, event_names};
use perfx_format::features::{FeatureContext, NrCpus, SampleTime, decode_feature};
use perfx_format::read::Recording;
use perfx_format::{Decoded, Feature};
use perfx_look::clock::{Clock, rfc3339};
use perfx_pipeline::{Level, Purpose, Report};

use super::tracers::Tracers;

pub(super) struct InfoFacts<'r> {
    pub(super) recording: &'r Recording,
    pub(super) names: Vec<EventName>,
    pub(super) features: Vec<Section<'r>>,
    pub(super) tracers: Tracers,
    pub(super) clock: Clock,
    /// `None` without feature SAMPLE_TIME.
    pub(super) times: Option<SampleTime>,
}

impl<'r> InfoFacts<'r> {
    pub(super) fn new(
        recording: &'r Recording,
        updates: &HashMap<u64, Vec<u8>>,
        tracers: Tracers,
    ) -> InfoFacts<'r> {
        let endian = recording.endian;
        let section = |feature| recording.features.get(&feature);
        let context = FeatureContext {
            cpus: section(Feature::NRCPUS).and_then(|section| NrCpus::read(section, endian)),
        };
        let features = recording.features.iter().map(|(&feature, section)| Section {
            feature,
            size: section.len() as u64,
            decoded: decode_feature(feature, section, endian, context),
        });
        InfoFacts {
            recording,
            names: event_names(recording, updates),
            features: features.collect(),
            tracers,
            clock: Clock::of(recording),
            times: section(Feature::SAMPLE_TIME)
                .and_then(|section| SampleTime::read(section, endian))
                .filter(|recorded| recorded.times().is_some() || *recorded == SampleTime::default()),
        }
    }

    pub(super) fn feature(&self, feature: Feature) -> Option<&Decoded<'r>> {
        self.features.iter().find(|section| section.feature == feature).map(|section| &section.decoded)
    }

    /// The number of items in a feature's list; 0 without the feature.
    pub(super) fn items(&self, feature: Feature, list: &str) -> usize {
        self.feature(feature).and_then(|decoded| decoded.get(list)).map_or(0, |list| list.items().len())
    }

    pub(super) fn pmu(&self, number: u32) -> Option<&'r [u8]> {
        let pmus = self.feature(Feature::PMU_MAPPINGS)?.get("pmus")?.items();
        let pmu = pmus.iter().find(|pmu| pmu.get("type").and_then(|n| n.number()) == Some(number.into()))?;
        pmu.get("name")?.text()
    }

    /// A time of the recording as UTC, in RFC 3339.
    pub(super) fn wall(&self, ns: u64) -> Option<String> {
        Some(rfc3339(self.clock.wall_ns(ns)?))
    }

    pub(super) fn tell_faults(&self, report: &mut Report) {
        report.say_faults(self.recording, Purpose::Use);
        for section in &self.features {
            for odd in &section.decoded.issues {
                let Section { feature, .. } = section;
                let name = &self.recording.name;
                report.say(Level::Warning, format!("{name}: feature {feature}: {}: {}", odd.code, odd.what));
            }
        }
    }
}

pub(super) struct Section<'r> {
    pub(super) feature: Feature,
    pub(super) size: u64,
    pub(super) decoded: Decoded<'r>,
}
