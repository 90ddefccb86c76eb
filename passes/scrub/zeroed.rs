//! Zeroes bytes in no known field, which may contain anything.

use std::borrow::Cow;

use perfx_format::decode::{clear_gaps, clear_unknown, decode, gaps_of_sample};
use perfx_format::{Decoded, Endian, FaultCode, Layout, Layouts, Record, Value, clear};
use perfx_pipeline::counted;

/// Zeroed bytes that were not zero.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Zeroed {
    /// In padding, in reserved fields, and after a NUL.
    padding: u64,
    /// After the known fields, where newer kernels or perf may have others.
    unknown: u64,
}

impl Zeroed {
    /// Clears the unknown bytes of a record other than a sample; returns its fields.
    pub(crate) fn record<'r>(
        &mut self,
        record: &Record<'r>,
        layouts: &Layouts,
        bytes: &mut Cow<'r, [u8]>,
    ) -> Decoded<'r> {
        let mut decoded = decode(record, layouts);
        let cleared = clear_gaps(std::mem::take(&mut decoded.gaps), bytes);
        match decoded.issues.iter().any(|issue| issue.code == FaultCode::Rest) {
            _ if decoded.has_unknown_layout() => {}
            true => self.unknown += cleared,
            false => self.padding += cleared,
        }
        decoded
    }

    pub(crate) fn sample(&mut self, record: &Record<'_>, layout: &Layout, bytes: &mut Cow<'_, [u8]>) {
        let end = record.body().len();
        for gap in gaps_of_sample(record, layout) {
            let is_last = gap.end == end;
            let cleared = clear_gaps([gap], bytes);
            *(if is_last { &mut self.unknown } else { &mut self.padding }) += cleared;
        }
    }

    pub(crate) fn attr(&mut self, raw: &mut [u8], endian: Endian) {
        self.unknown += clear_unknown(raw, endian);
    }

    /// Clears the unknown bytes of a feature section; returns false if it is not known completely.
    pub(crate) fn section(&mut self, decoded: &Decoded<'_>, section: &mut [u8]) -> bool {
        let is_known = !has_rest(decoded);
        if is_known {
            self.padding += decoded.gaps.iter().map(|gap| clear(section, gap.clone())).sum::<u64>();
        }
        is_known
    }

    /// Counts unknown bytes that the caller has cleared.
    pub(crate) fn add_unknown(&mut self, bytes: u64) {
        self.unknown += bytes;
    }

    pub(crate) fn join(&mut self, later: Zeroed) {
        self.padding += later.padding;
        self.unknown += later.unknown;
    }

    pub(crate) fn padding(&self) -> Option<String> {
        let bytes = || counted(self.padding, "byte", "bytes") + " of padding";
        (self.padding > 0).then(bytes)
    }

    pub(crate) fn unknown(&self) -> Option<String> {
        let bytes = || counted(self.unknown, "byte", "bytes") + " without a known field";
        (self.unknown > 0).then(bytes)
    }
}

/// True if the section has unknown bytes, from a newer perf or because it is damaged.
pub(crate) fn has_rest(decoded: &Decoded<'_>) -> bool {
    matches!(decoded.get("rest"), Some(Value::Bytes(rest)) if rest.iter().any(|&byte| byte != 0))
}
