//! Splits a recording into parts for passes that remove revealing data: each part goes through a pass's
//! rules, unknown bytes become zeros, and undecodable parts are left out and counted.

mod key;
mod left_out;
mod zeroed;

use std::borrow::Cow;
use std::cell::RefCell;

use perfx_format::features::{FeatureContext, NrCpus, decode_feature};
use perfx_format::names::{Name, rename_event_types};
use perfx_format::record::header_records::with_attr;
use perfx_format::{Decoded, Endian, Feature, Kinds, Layout, Record, RecordType};
use perfx_pipeline::{Begin, Damage, Emit, Fork, Needs, Result, Rewrite, Session, Stage, change_attrs};

use crate::support::features::{
    Fate, change_features, change_late_feature, changed_events, is_unknown, renamed,
};
pub(crate) use key::{Key, is_word};
pub(crate) use left_out::LeftOut;
use zeroed::has_rest;

/// Records of AUX data and of changed kernel code, which is needed to decode them.
pub(crate) const OF_TRACES: Kinds = Kinds::AUX.and(RecordType::TEXT_POKE);

/// The report of a pass that drops registers for which [`perfx_unwind::has_callers_in_registers`] is true.
pub(crate) const CALLERS_LOST: &str = "call chains lose the caller of the innermost function, which readers find by \
                                       the link register: perfx inject --convert-callchain, run before, keeps it";

pub(crate) trait Scrub: Sized + Send + 'static {
    fn keeps_unknown(&self) -> bool;

    fn drops(&self, kind: RecordType) -> bool;

    fn name(&mut self, name: Name<'_>) -> Option<Vec<u8>>;

    fn attr(&mut self, raw: &mut [u8], endian: Endian);

    fn fate(&mut self, feature: Feature) -> Option<Fate>;

    /// The new section of a feature with a rule; `Some(None)` if it is damaged. Unknown bytes are zero.
    fn rule(&mut self, feature: Feature, section: &[u8], endian: Endian) -> Option<Option<Vec<u8>>>;

    /// Changes texts in another feature's section, whose unknown bytes are zero; `old` is the input's.
    fn texts(&mut self, _feature: Feature, _decoded: &Decoded<'_>, _old: &[u8], _section: &mut [u8]) {}

    /// Emits a sample; unknown bytes of `bytes` are zero. False if it does not fit its layout.
    fn sample(
        &mut self,
        record: &Record<'_>,
        layout: &Layout,
        bytes: Cow<'_, [u8]>,
        out: &mut Emit<'_>,
    ) -> Result<bool>;

    /// Clears texts in a record that is not a sample; returns the number of bytes changed.
    fn clear_texts(
        &mut self,
        _record: &Record<'_>,
        _decoded: &Decoded<'_>,
        _bytes: &mut Cow<'_, [u8]>,
    ) -> u64 {
        0
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()>;

    fn report(&self, left_out: &LeftOut, session: &mut Session);

    fn fork(&self) -> Self;

    fn absorb(&mut self, later: Self);
}

pub(crate) fn needs(surveys: Vec<Kinds>) -> Needs {
    Needs {
        records: Kinds::ALL,
        surveys,
        decompressed: true,
        ids: true,
        // Data that can't be decompressed would stay unchanged.
        damage: Damage::Refuse,
        ..Needs::default()
    }
}

pub(crate) struct Scrubber<S> {
    rules: S,
    left_out: LeftOut,
    /// Feature NRCPUS, on which the layout of others depends.
    cpus: Option<NrCpus>,
}

impl<S: Scrub> Scrubber<S> {
    /// The rewrite, after features, attrs and event types have gone through the rules.
    pub(crate) fn stage(rules: S, session: &mut Begin<'_>) -> Stage {
        let endian = session.endian;
        let mut scrubber = Scrubber { rules, left_out: LeftOut::default(), cpus: None };
        if !scrubber.rules.keeps_unknown() {
            scrubber.left_out.unnamed = session.leave_out_unnamed();
        }
        change_features(session, |feature, section| scrubber.feature(feature, section, endian));
        rename_event_types(&mut session.event_types, |name| scrubber.rules.name(name));
        let shared = RefCell::new(&mut scrubber);
        change_attrs(session, |raw, endian| shared.borrow_mut().attr(raw, endian));
        Stage::rewrite(scrubber)
    }

    fn attr(&mut self, raw: &mut [u8], endian: Endian) {
        self.rules.attr(raw, endian);
        if !self.rules.keeps_unknown() {
            self.left_out.zeroed.attr(raw, endian);
        }
    }

    fn feature(&mut self, feature: Feature, old: &[u8], endian: Endian) -> Fate {
        if let Some(fate) = self.rules.fate(feature) {
            return fate;
        }
        if feature == Feature::NRCPUS {
            self.cpus = NrCpus::read(old, endian);
        }
        let decoded = decode_feature(feature, old, endian, FeatureContext { cpus: self.cpus });
        let mut section = old.to_vec();
        let keeps_unknown = self.rules.keeps_unknown();
        if !keeps_unknown {
            self.left_out.zeroed.section(&decoded, &mut section);
        }
        let new = match feature {
            Feature::EVENT_DESC => {
                let shared = RefCell::new(self);
                let name = |name: Name<'_>| shared.borrow_mut().rules.name(name);
                let new = changed_events(&section, endian, name, |raw, endian| {
                    shared.borrow_mut().attr(raw, endian);
                });
                return shared.into_inner().fate_of(feature, old, new);
            }
            Feature::GROUP_DESC => renamed(feature, &section, endian, |name| self.rules.name(name)),
            _ => match self.rules.rule(feature, &section, endian) {
                Some(new) => new,
                None if feature.name().is_none() || has_rest(&decoded) => {
                    if keeps_unknown {
                        return Fate::Stays;
                    }
                    self.left_out.features.insert(feature);
                    return Fate::Goes;
                }
                None => {
                    self.rules.texts(feature, &decoded, old, &mut section);
                    Some(section)
                }
            },
        };
        self.fate_of(feature, old, new)
    }

    /// The fate of a feature with this new section; `None` if it is damaged.
    fn fate_of(&mut self, feature: Feature, old: &[u8], new: Option<Vec<u8>>) -> Fate {
        if new.is_none() {
            self.left_out.damaged.insert(feature);
        }
        Fate::of(old, new)
    }

    fn sample(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let passed = match out.layouts().layout_of(&record) {
            None => false,
            Some(layout) => {
                let mut bytes = Cow::Borrowed(record.bytes());
                if !self.rules.keeps_unknown() {
                    self.left_out.zeroed.sample(&record, layout, &mut bytes);
                }
                self.rules.sample(&record, layout, bytes, out)?
            }
        };
        if !passed {
            self.left_out.unreadable += 1;
            out.drop_record(record);
        }
        Ok(())
    }

    fn drop_unknown(&mut self, record: Record<'_>, out: &mut Emit<'_>) {
        *self.left_out.kinds.entry(record.kind()).or_default() += 1;
        out.drop_record(record);
    }
}

impl<S: Scrub> Rewrite for Scrubber<S> {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let (kind, endian) = (record.kind(), record.endian());
        let keeps_unknown = self.rules.keeps_unknown();
        if self.rules.drops(kind) {
            *self.left_out.by_rule.entry(kind).or_default() += 1;
            out.drop_record(record);
            return Ok(());
        }
        if is_unknown(&record) && !keeps_unknown {
            self.drop_unknown(record, out);
            return Ok(());
        }
        match kind {
            RecordType::SAMPLE => return self.sample(record, out),
            RecordType::HEADER_FEATURE | RecordType::HEADER_TRACING_DATA => {
                return change_late_feature(record, out, |feature, section| {
                    self.feature(feature, section, endian)
                });
            }
            _ => {}
        }
        let mut bytes = Cow::Borrowed(record.bytes());
        if !keeps_unknown {
            let decoded = self.left_out.zeroed.record(&record, out.layouts(), &mut bytes);
            if decoded.has_unknown_layout() {
                self.drop_unknown(record, out);
                return Ok(());
            }
            let cleared = self.rules.clear_texts(&record, &decoded, &mut bytes);
            self.left_out.zeroed.add_unknown(cleared);
        }
        let record = Record::new(&bytes, record.payload(), record.origin(), endian)?;
        match kind {
            RecordType::HEADER_ATTR => {
                let changed = with_attr(&record, |raw| self.attr(raw, endian));
                out.replace_if(record, changed)
            }
            _ => self.rules.record(record, out),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.rules.report(&self.left_out, session);
        Ok(())
    }
}

impl<S: Scrub> Fork for Scrubber<S> {
    fn fork(&self) -> Scrubber<S> {
        Scrubber { rules: self.rules.fork(), left_out: LeftOut::default(), cpus: self.cpus }
    }

    fn absorb(&mut self, later: Scrubber<S>) {
        self.rules.absorb(later.rules);
        self.left_out.join(later.left_out);
    }
}
