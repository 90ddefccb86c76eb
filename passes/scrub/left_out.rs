//! Counts and reports the unknown data that a pass dropped or zeroed.

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::{Feature, RecordType};
use perfx_pipeline::{Level, Report, by_kind, counted};

use super::zeroed::Zeroed;

#[derive(Clone, Default, Debug)]
pub(crate) struct LeftOut {
    /// Features of a newer perf, or with bytes in no field.
    pub(super) features: BTreeSet<Feature>,
    pub(super) damaged: BTreeSet<Feature>,
    pub(super) kinds: BTreeMap<RecordType, u64>,
    pub(super) by_rule: BTreeMap<RecordType, u64>,
    pub(super) unreadable: u64,
    pub(super) unnamed: u64,
    pub(super) zeroed: Zeroed,
}

impl LeftOut {
    pub(super) fn join(&mut self, later: LeftOut) {
        self.features.extend(later.features);
        self.damaged.extend(later.damaged);
        self.unreadable += later.unreadable;
        self.zeroed.join(later.zeroed);
        for (all, more) in [(&mut self.kinds, later.kinds), (&mut self.by_rule, later.by_rule)] {
            for (kind, count) in more {
                *all.entry(kind).or_default() += count;
            }
        }
    }

    pub(crate) fn by_rule(&self) -> Option<String> {
        (!self.by_rule.is_empty()).then(|| by_kind(&self.by_rule))
    }

    /// Reports the counts, as warnings if `checks` is set. Lines about unknown data begin with `prefix`.
    pub(crate) fn report(&self, prefix: &str, checks: bool, report: &mut Report) {
        let done = |what: &'static str| if checks { "" } else { what };
        if let Some(padding) = self.zeroed.padding() {
            let level = if checks { Level::Warning } else { Level::Info };
            report.say(level, format!("{prefix}{padding}{}", done(" zeroed")));
        }
        let level = if checks { Level::Warning } else { Level::Loss };
        let left_out = done(" left out");
        for feature in &self.features {
            report.say(level, format!("{prefix}feature {feature}{left_out}: it may hold anything"));
        }
        for feature in &self.damaged {
            report.say(level, format!("feature {feature}{left_out}: it is damaged and may hold anything"));
        }
        if !self.kinds.is_empty() {
            let records = by_kind(&self.kinds);
            report.say(level, format!("{prefix}{records}{left_out}: they may hold anything"));
        }
        if let Some(unknown) = self.zeroed.unknown() {
            report.say(level, format!("{prefix}{unknown}{}: they may hold anything", done(" zeroed")));
        }
        if self.unnamed > 0 {
            let bytes = counted(self.unnamed, "byte", "bytes");
            report.say(
                level,
                format!("{prefix}{bytes} outside all sections{left_out}: they may hold anything"),
            );
        }
        if self.unreadable > 0 {
            let samples = counted(self.unreadable, "sample", "samples");
            report.say(level, format!("{samples}{left_out}: they do not fit their event"));
        }
    }
}
