//! Takes a record's fields in order and notes each at once, so that damage never hides the fields before it.

use std::mem;
use std::ops::Range;

use crate::value::{Fields, bytes_of, bytes_that};
use crate::{Cursor, Decoded, Endian, FaultCode, Value, bit_names, until_nul};

pub(crate) trait Int: Copy + Into<u64> {
    /// All bits set: -1 in C.
    const ALL: u64;
    fn take(cursor: &mut Cursor<'_>) -> Option<Self>;
}

macro_rules! ints {
    ($($int:ident)*) => {
        $(impl Int for $int {
            const ALL: u64 = $int::MAX as u64;
            fn take(cursor: &mut Cursor<'_>) -> Option<$int> {
                cursor.$int()
            }
        })*
    };
}
ints! { u8 u16 u32 u64 }

pub(crate) fn named(value: u64, names: &[(u64, &'static str)]) -> Value<'static> {
    let name = names.iter().find(|(number, _)| *number == value);
    name.map_or(Value::Number(value), |(_, name)| Value::Name((*name).into()))
}

/// A value for which -1 (all bits set) means any or none.
pub(crate) fn any<'a, T: Int>(value: T) -> Value<'a> {
    let value: u64 = value.into();
    if value == T::ALL { Value::Signed(-1) } else { Value::Number(value) }
}

/// Takes the fields of a record from its front. Methods that take a field note it under its name; `None`
/// means that reading cannot continue, and the reason is noted. In a list, an item whose only field has the
/// name "" becomes that bare value.
pub(crate) struct Reader<'a> {
    cursor: Cursor<'a>,
    decoded: Decoded<'a>,
    padded: bool,
    /// False if only oddities are noted.
    pub(crate) values: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], endian: Endian) -> Reader<'a> {
        Reader {
            cursor: Cursor::new(bytes, endian),
            decoded: Decoded::default(),
            padded: false,
            values: true,
        }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.cursor.rest()
    }

    pub(crate) fn left(&self) -> usize {
        self.rest().len()
    }

    pub(crate) fn endian(&self) -> Endian {
        self.cursor.endian()
    }

    /// The current position, for fields that [`Reader`] cannot decode.
    pub(crate) fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    pub(crate) fn note(&mut self, name: &'static str, value: Value<'a>) {
        if self.values {
            self.decoded.push(name, value);
        }
    }

    pub(crate) fn note_all(&mut self, fields: Fields<'a>) {
        self.decoded.fields.extend(fields);
    }

    pub(crate) fn add_issue(&mut self, code: FaultCode, what: impl Into<String>) {
        self.decoded.add_issue(code, what);
    }

    pub(crate) fn need<T>(&mut self, name: &str, got: Option<T>) -> Option<T> {
        if got.is_none() {
            self.add_issue(
                FaultCode::TooSmall,
                format!("`{name}` does not fit in the {} left", bytes_of(self.left())),
            );
        }
        got
    }

    pub(crate) fn int<T: Int>(&mut self, name: &str) -> Option<T> {
        let got = T::take(&mut self.cursor);
        self.need(name, got)
    }

    fn noted<T: Int>(&mut self, name: &'static str, value: impl Fn(u64) -> Value<'a>) -> Option<T> {
        let got = self.int::<T>(name)?;
        if self.values {
            self.note(name, value(got.into()));
        }
        Some(got)
    }

    pub(crate) fn number<T: Int>(&mut self, name: &'static str) -> Option<T> {
        self.noted(name, Value::Number)
    }

    pub(crate) fn hex<T: Int>(&mut self, name: &'static str) -> Option<T> {
        self.noted(name, Value::Hex)
    }

    pub(crate) fn any<T: Int>(&mut self, name: &'static str) -> Option<T> {
        let got = self.int::<T>(name)?;
        self.note(name, any(got));
        Some(got)
    }

    pub(crate) fn named<T: Int>(&mut self, name: &'static str, names: &[(u64, &'static str)]) -> Option<T> {
        self.noted(name, |value| named(value, names))
    }

    pub(crate) fn bits<T: Int>(&mut self, name: &'static str, names: &[(u32, &'static str)]) -> Option<T> {
        self.noted(name, |value| Value::Name(bit_names(value, names)))
    }

    pub(crate) fn take(&mut self, name: &str, length: usize) -> Option<&'a [u8]> {
        let got = self.cursor.bytes(length);
        self.need(name, got)
    }

    pub(crate) fn skip(&mut self, name: &str, length: usize) -> Option<()> {
        self.take(name, length)?;
        self.add_gap(0..length, length);
        Some(())
    }

    pub(crate) fn add_gap(&mut self, gap: Range<usize>, taken: usize) {
        if self.values && !gap.is_empty() {
            self.decoded.add_gaps(self.cursor.at() - taken, vec![gap]);
        }
    }

    pub(crate) fn bytes(&mut self, name: &'static str, length: usize) -> Option<&'a [u8]> {
        let got = self.take(name, length)?;
        self.note(name, Value::Bytes(got));
        Some(got)
    }

    /// u32 pid, u32 tid; -1 for the kernel and for tasks that have ended.
    pub(crate) fn task(&mut self) -> Option<()> {
        self.any::<u32>("pid")?;
        self.any::<u32>("tid").map(drop)
    }

    pub(crate) fn all_bytes(&mut self) -> Option<()> {
        self.bytes("bytes", self.left()).map(drop)
    }

    /// A string in a field of `length` bytes; it ends at a NUL or fills the field.
    pub(crate) fn field_text(&mut self, name: &'static str, length: usize) -> Option<()> {
        let got = self.take(name, length)?;
        let text = until_nul(got);
        self.note(name, Value::Text(text));
        self.add_gap(text.len()..length, length);
        Some(())
    }

    /// A string and its NUL, the last field of a record. Padding to a multiple of 8 bytes may follow, with
    /// arbitrary bytes from perf's buffer.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<()> {
        let all = self.rest();
        self.need(name, all.first())?;
        let text = until_nul(all);
        self.note(name, Value::Text(text));
        let terminated = text.len() < all.len();
        if !terminated {
            self.add_issue(
                FaultCode::StringUnterminated,
                format!("no NUL in the {} of `{name}`", bytes_of(all.len())),
            );
        }
        self.padded = terminated;
        self.cursor.bytes(text.len() + usize::from(terminated)).map(drop)
    }

    /// `count` items of `size` bytes each, or as many as fit.
    pub(crate) fn list(
        &mut self,
        name: &'static str,
        count: impl Into<u64>,
        size: usize,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let count = count.into();
        let fitting = count.min((self.left() / size) as u64);
        if fitting < count {
            self.add_issue(
                FaultCode::CountTooLarge,
                format!("{count} items of `{name}` do not fit in the {} left", bytes_of(self.left())),
            );
        }
        let mut values = Vec::new();
        for _ in 0..fitting {
            let (mut inside, got) = self.inside(&mut item);
            match inside.as_slice() {
                [("", _)] => values.extend(inside.pop().map(|(_, value)| value)),
                _ => values.push(Value::Map(inside)),
            }
            if got.is_none() {
                break;
            }
        }
        let all = values.len() as u64 == count;
        self.note(name, Value::List(values));
        all.then_some(())
    }

    pub(crate) fn map(
        &mut self,
        name: &'static str,
        item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let (inside, got) = self.inside(item);
        self.note(name, Value::Map(inside));
        got
    }

    fn inside(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> (Fields<'a>, Option<()>) {
        let outside = mem::take(&mut self.decoded.fields);
        let got = item(self);
        (mem::replace(&mut self.decoded.fields, outside), got)
    }

    /// The decoded fields, and the number of remaining bytes. `done` is `Some` if reading reached the end.
    pub(crate) fn finish(mut self, done: Option<()>) -> (Decoded<'a>, usize) {
        let rest = self.rest();
        if self.values && !rest.is_empty() {
            let start = self.cursor.at();
            self.decoded.gaps.push(start..start + rest.len());
        }
        if rest.iter().any(|&b| b != 0) {
            if done.is_some() && !(self.padded && rest.len() < 8) {
                self.add_issue(
                    FaultCode::Rest,
                    bytes_that(rest.len(), " follows", " follow") + " the known fields",
                );
            }
            self.note("rest", Value::Bytes(rest));
        }
        (self.decoded, rest.len())
    }
}
