//! Reads a feature section field by field and notes each at once, so that damage never hides earlier ones.

use std::mem;
use std::ops::Range;

use crate::value::{Fields, bytes_of, bytes_that};
use crate::{Cursor, Decoded, Endian, FaultCode, Value, until_nul};

pub(super) trait Int: Copy + Into<u64> {
    fn take(cursor: &mut Cursor<'_>) -> Option<Self>;
    fn put(self, endian: Endian, out: &mut Vec<u8>);
}

impl Int for u32 {
    fn take(cursor: &mut Cursor<'_>) -> Option<u32> {
        cursor.u32()
    }
    fn put(self, endian: Endian, out: &mut Vec<u8>) {
        out.extend(endian.bytes_u32(self));
    }
}

impl Int for u64 {
    fn take(cursor: &mut Cursor<'_>) -> Option<u64> {
        cursor.u64()
    }
    fn put(self, endian: Endian, out: &mut Vec<u8>) {
        out.extend(endian.bytes_u64(self));
    }
}

/// Appends a STR as perf writes it: u32 length, then the text, a NUL and zeros up to a multiple of 64; the
/// length includes them. perf's reader of CPU_TOPOLOGY depends on the 64. The text ends at its first NUL.
pub(crate) fn put_str(text: &[u8], endian: Endian, out: &mut Vec<u8>) {
    let text = until_nul(text);
    let length = (text.len() + 1).next_multiple_of(64);
    (length as u32).put(endian, out);
    let end = out.len() + length;
    out.extend(text);
    out.resize(end, 0);
}

/// Takes the fields of a section from its front. Methods that take a field note it under its name; `None`
/// means that reading cannot continue, and the reason is noted. In a list, an item whose only field has the
/// name "" becomes that bare value.
pub(super) struct Section<'a> {
    size: usize,
    cursor: Cursor<'a>,
    decoded: Decoded<'a>,
    short: Option<String>,
}

impl<'a> Section<'a> {
    pub(super) fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Section {
            size: bytes.len(),
            cursor: Cursor::new(bytes, endian),
            decoded: Decoded::default(),
            short: None,
        }
    }

    pub(super) fn endian(&self) -> Endian {
        self.cursor.endian()
    }

    pub(super) fn set_endian(&mut self, endian: Endian) {
        self.cursor = Cursor::new(self.cursor.rest(), endian);
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.cursor.rest()
    }

    pub(super) fn left(&self) -> usize {
        self.rest().len()
    }

    pub(super) fn note(&mut self, name: &'static str, value: Value<'a>) {
        self.decoded.push(name, value);
    }

    pub(super) fn add_issue(&mut self, code: FaultCode, what: impl Into<String>) {
        self.decoded.add_issue(code, what);
    }

    pub(super) fn short<T>(&mut self, what: impl Into<String>) -> Option<T> {
        self.short.get_or_insert_with(|| what.into());
        None
    }

    fn need<T>(&mut self, name: &str, got: Option<T>) -> Option<T> {
        if got.is_none() {
            let left = self.left();
            self.short::<()>(format!("`{name}` does not fit in the {} left", bytes_of(left)));
        }
        got
    }

    fn at(&self) -> usize {
        self.size - self.left()
    }

    pub(super) fn add_gap(&mut self, gap: Range<usize>, taken: usize) {
        if !gap.is_empty() {
            self.decoded.add_gaps(self.at() - taken, vec![gap]);
        }
    }

    pub(super) fn take(&mut self, name: &str, length: impl Into<u64>) -> Option<&'a [u8]> {
        let got = usize::try_from(length.into()).ok().and_then(|length| self.cursor.bytes(length));
        self.need(name, got)
    }

    pub(super) fn int<T: Int>(&mut self, name: &str) -> Option<T> {
        let got = T::take(&mut self.cursor);
        self.need(name, got)
    }

    pub(super) fn number<T: Int>(&mut self, name: &'static str) -> Option<T> {
        let got = self.int::<T>(name)?;
        self.note(name, Value::Number(got.into()));
        Some(got)
    }

    pub(super) fn hex<T: Int>(&mut self, name: &'static str) -> Option<T> {
        let got = self.int::<T>(name)?;
        self.note(name, Value::Hex(got.into()));
        Some(got)
    }

    pub(super) fn signed(&mut self, name: &'static str) -> Option<()> {
        let got = self.int::<u32>(name)?;
        self.note(name, Value::Signed(i64::from(got as i32)));
        Some(())
    }

    /// A STR: u32 length, then that many bytes: text followed by any number of NULs.
    pub(super) fn text(&mut self, name: &'static str) -> Option<&'a [u8]> {
        let before = self.cursor;
        let length = self.int::<u32>(name)?;
        let Some(bytes) = self.cursor.bytes(length as usize) else {
            self.cursor = before;
            return self.short(format!("`{name}` says {}, {} are left", bytes_of(length), self.left() - 4));
        };
        let text = until_nul(bytes);
        self.add_gap(text.len()..bytes.len(), bytes.len());
        if text.len() == bytes.len() {
            self.add_issue(
                FaultCode::StringUnterminated,
                format!("no NUL in the {} of `{name}`", bytes_of(length)),
            );
        }
        self.note(name, Value::Text(text));
        Some(text)
    }

    pub(super) fn c_str(&mut self, name: &'static str) -> Option<&'a [u8]> {
        let length = self.rest().iter().position(|&b| b == 0);
        let length = self.need(name, length)?;
        let text = &self.take(name, length as u64 + 1)?[..length];
        self.note(name, Value::Text(text));
        Some(text)
    }

    /// The version of the section; `None` unless it is the known one.
    pub(super) fn version<T: Int>(&mut self, known: T) -> Option<()> {
        let (found, known): (u64, u64) = (self.number::<T>("version")?.into(), known.into());
        if found != known {
            self.add_issue(FaultCode::VersionUnknown, format!("version {found}, only {known} is known"));
            return None;
        }
        Some(())
    }

    /// A u32 count, then that many items of at least `smallest` bytes each.
    pub(super) fn counted<I>(
        &mut self,
        name: &'static str,
        smallest: usize,
        item: impl FnMut(&mut Self) -> Option<I>,
    ) -> Option<()> {
        let count = self.int::<u32>(name)?;
        self.list(name, count, smallest, item).map(drop)
    }

    /// A STRLIST: u32 count, then that many STR.
    pub(super) fn strings(&mut self, name: &'static str) -> Option<()> {
        self.counted(name, 4, |s| s.text(""))
    }

    /// `count` items of at least `smallest` bytes each; allocates no more than the bytes can contain.
    pub(super) fn list<I>(
        &mut self,
        name: &'static str,
        count: impl Into<u64>,
        smallest: usize,
        item: impl FnMut(&mut Self) -> Option<I>,
    ) -> Option<Vec<I>> {
        let count = count.into();
        let fitting = count.min((self.left() / smallest) as u64);
        if fitting < count {
            let left = self.left();
            self.short::<()>(format!("{count} items of `{name}` do not fit in the {} left", bytes_of(left)));
        }
        let read = self.items(name, fitting, item);
        (read.len() as u64 == count).then_some(read)
    }

    pub(super) fn repeated<I>(
        &mut self,
        name: &'static str,
        item: impl FnMut(&mut Self) -> Option<I>,
    ) -> Option<Vec<I>> {
        let read = self.items(name, u64::MAX, item);
        self.rest().is_empty().then_some(read)
    }

    /// Items until there are `most`, nothing is left, or one cannot be read.
    fn items<I>(
        &mut self,
        name: &'static str,
        most: u64,
        mut item: impl FnMut(&mut Self) -> Option<I>,
    ) -> Vec<I> {
        let mut read = Vec::new();
        let mut values = Vec::new();
        while (read.len() as u64) < most && !(most == u64::MAX && self.rest().is_empty()) {
            let outside = mem::take(&mut self.decoded.fields);
            let got = item(self);
            let mut inside: Fields<'a> = mem::replace(&mut self.decoded.fields, outside);
            match inside.as_slice() {
                [] => {}
                [("", _)] => values.extend(inside.pop().map(|(_, value)| value)),
                _ => values.push(Value::Map(inside)),
            }
            match got {
                Some(got) => read.push(got),
                None => break,
            }
        }
        self.note(name, Value::List(values));
        read
    }

    /// The decoded fields. `done` is `Some` if the whole section was read.
    pub(super) fn finish(mut self, done: Option<()>) -> Decoded<'a> {
        if let Some(what) = self.short.take() {
            let code = if self.size == 0 { FaultCode::SectionEmpty } else { FaultCode::SectionShort };
            self.add_issue(code, format!("section of {}: {what}", bytes_of(self.size)));
        }
        let rest = self.rest();
        if !rest.is_empty() {
            let start = self.at();
            self.decoded.gaps.push(start..self.size);
        }
        let padding = rest.iter().all(|&b| b == 0);
        if done.is_some() && !padding {
            self.add_issue(
                FaultCode::SectionRest,
                bytes_that(rest.len(), " follows", " follow") + " the known part of the section",
            );
        }
        if !rest.is_empty() && (done.is_none() || !padding) {
            self.note("rest", Value::Bytes(rest));
        }
        self.decoded
    }
}
