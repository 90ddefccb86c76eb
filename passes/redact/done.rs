//! The names and numbers that `redact` found and replaced, and the report of them.

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::Feature;
use perfx_pipeline::{LISTED, Level, Session, counted};

use super::options::{Category, Redact, Wording};
use crate::scrub::{CALLERS_LOST, LeftOut};

#[derive(Clone, Default, Debug)]
pub(super) struct Done {
    pub(super) names: BTreeMap<(Category, Vec<u8>), Vec<u8>>,
    /// Devices and inodes of files and namespaces.
    pub(super) numbers: BTreeSet<(Category, Vec<u8>)>,
    /// Entries of call chains in no mapping.
    pub(super) entries: u64,
    /// Samples at addresses in no mapping.
    pub(super) ips: u64,
    /// Such entries and samples of processes without a known mapping.
    pub(super) unmapped: u64,
    pub(super) samples: BTreeMap<Category, u64>,
    pub(super) features: BTreeSet<(Category, Feature)>,
    /// An attr had settings for parts that samples lose.
    pub(super) asked: bool,
    pub(super) tags: u64,
    pub(super) formats: u64,
}

impl Done {
    /// Returns the pseudonym of a name, and records it if it differs.
    pub(super) fn note(&mut self, category: Category, old: &[u8], new: Vec<u8>) -> Vec<u8> {
        if old != new {
            self.names.entry((category, old.to_vec())).or_insert_with(|| new.clone());
        }
        new
    }

    pub(super) fn clears(&mut self, entries: u64, has_mappings: bool) {
        *(if has_mappings { &mut self.entries } else { &mut self.unmapped }) += entries;
    }

    pub(super) fn join(&mut self, later: Done) {
        self.names.extend(later.names);
        self.numbers.extend(later.numbers);
        self.features.extend(later.features);
        self.entries += later.entries;
        self.ips += later.ips;
        self.unmapped += later.unmapped;
        self.tags += later.tags;
        self.formats += later.formats;
        self.asked |= later.asked;
        for (category, count) in later.samples {
            *self.samples.entry(category).or_default() += count;
        }
    }

    pub(super) fn report(
        &self,
        redact: &Redact,
        has_stacks: bool,
        cuts_callers: bool,
        left_out: &LeftOut,
        session: &mut Session,
    ) {
        // --call-graph dwarf records call chains as stacks.
        let unwinds = self.samples.contains_key(&Category::Stacks) && has_stacks;
        let mut counts = self.samples.clone();
        let named = self.names.keys().map(|(category, _)| category);
        let numbered = self.numbers.iter().map(|(category, _)| category);
        named.chain(numbered).for_each(|category| *counts.entry(*category).or_default() += 1);
        if !redact.beside.is_empty() {
            counts.insert(Category::Kcore, redact.beside.len() as u64);
        }
        let checks = redact.checks;
        let report = &mut session.report;
        for (category, count) in counts {
            let Wording { name, one, many, done } = category.wording();
            let listed = if self.names.keys().any(|(listed, _)| *listed == category) { LISTED } else { "" };
            let what = counted(count, one, many);
            match checks {
                true => report.say(Level::Warning, format!("{name}: {what} as recorded{listed}")),
                false => report.say(Level::Info, format!("{name}: {what} {done}{listed}")),
            }
            for ((_, old), new) in self.names.iter().filter(|((listed, _), _)| *listed == category) {
                let new = if checks { String::new() } else { format!(" is now {}", new.escape_ascii()) };
                report.say(Level::Detail, format!("{name}: {}{new}", old.escape_ascii()));
            }
        }
        if unwinds && !checks {
            let what = "call chains end where user code begins, because they were in the stacks: perfx inject \
                        --convert-callchain, run before, keeps them";
            report.say(Level::Info, what);
        }
        if cuts_callers && !checks {
            report.say(Level::Warning, CALLERS_LOST);
        }
        let level = if checks { Level::Warning } else { Level::Info };
        for (count, one, many) in [
            (
                self.entries,
                "entry of call chains is in no mapping",
                "entries of call chains are in no mapping",
            ),
            (self.ips, "address of a sample is in no mapping", "addresses of samples are in no mapping"),
        ] {
            let done = if checks { "" } else { ", now 0" };
            if count > 0 {
                report.say(level, format!("stacks: {}{done}", counted(count, one, many)));
            }
        }
        if self.unmapped > 0 {
            let (one, many) =
                ("address of samples and call chains is", "addresses of samples and call chains are");
            let (level, done) = if checks { (level, "") } else { (Level::Loss, ", now 0") };
            let addresses = counted(self.unmapped, one, many);
            let why = "of processes whose mappings are not in the recording";
            report.say(level, format!("stacks: {addresses} {why}{done}"));
        }
        let cut = [Category::Stacks, Category::Aux, Category::Unknown];
        if self.asked && cut.iter().all(|category| !self.samples.contains_key(category)) {
            let done = if checks { "" } else { ", cleared" };
            let what =
                "stacks: events ask for registers, stacks, AUX data or unknown parts, which no sample has";
            report.say(level, format!("{what}{done}"));
        }
        let done = if checks { "is there" } else { "left out" };
        for (category, feature) in &self.features {
            report.say(level, format!("{}: feature {feature} {done}", category.wording().name));
        }
        left_out.report("unknown: ", checks, report);
        let (level, done) = if checks { (Level::Warning, "") } else { (Level::Loss, " left out") };
        if self.tags > 0 {
            let tags = counted(self.tags, "setting of STAT_CONFIG", "settings of STAT_CONFIG");
            report.say(level, format!("unknown: {tags}{done}: they may hold anything"));
        }
        if self.formats > 0 {
            let (one, many) = ("format of a tracepoint", "formats of tracepoints");
            let formats = counted(self.formats, one, many);
            report.say(level, format!("events: {formats}{done}: not as the kernel writes them"));
        }
        let is_clean = |level: Level| level > Level::Warning;
        if checks && report.lines.iter().all(|(level, _)| is_clean(*level)) && report.dropped.is_empty() {
            report.say(Level::Info, "nothing to redact");
        }
    }
}
