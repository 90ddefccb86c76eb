//! The result of decoding: named values for display, JSON or checks. Other modules decide how to show them.

use crate::FaultCode;
use std::borrow::Cow;
use std::ops::Range;

/// A decoded value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number to show in decimal: counts, ids of tasks, times in ns.
    Number(u64),
    /// A number that can be negative (-1: any).
    Signed(i64),
    /// A number to show in hexadecimal: addresses, masks, offsets.
    Hex(u64),
    /// A floating point number (the scale of an event).
    Float(f64),
    /// Text as recorded, not always UTF-8.
    Text(&'a [u8]),
    /// A name that is not in the recording: of a constant, or of several joined by `|`.
    Name(Cow<'static, str>),
    /// Uninterpreted bytes.
    Bytes(&'a [u8]),
    /// Values of the same kind.
    List(Vec<Value<'a>>),
    /// Values with names.
    Map(Fields<'a>),
}

const DIGITS: [[u8; 2]; 256] = {
    let (mut all, mut byte) = ([[0; 2]; 256], 0);
    while byte < all.len() {
        all[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    all
};

/// A number of bytes in a message: `1 byte`, `7 bytes`.
pub fn bytes_of(count: impl TryInto<u64>) -> String {
    bytes_that(count, "", "")
}

/// A number of bytes with its verb: `1 byte is left`, `7 bytes are left`.
pub fn bytes_that(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 byte{one}"),
        count => format!("{count} bytes{many}"),
    }
}

/// Bytes as hex digits without separators.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    push_hex(&mut text, bytes);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends [`hex`] of these bytes to text.
pub fn push_hex(text: &mut Vec<u8>, bytes: &[u8]) {
    let start = text.len();
    text.resize(start + 2 * bytes.len(), 0);
    for (digits, &byte) in text[start..].as_chunks_mut().0.iter_mut().zip(bytes) {
        *digits = DIGITS[usize::from(byte)];
    }
}

/// A number in hexadecimal with `0x`, as `{:#x}` writes it, in a fraction of the time.
#[derive(Clone, Copy, Debug)]
pub struct HexNumber {
    /// The text is at the end.
    bytes: [[u8; 2]; 9],
    length: usize,
}

impl HexNumber {
    /// The text of this number.
    pub fn new(number: u64) -> HexNumber {
        let digits = (16 - number.leading_zeros() as usize / 4).max(1);
        let mut text = HexNumber { bytes: [*b"0x"; 9], length: 2 + digits };
        for (digits, byte) in text.bytes[1..].iter_mut().zip(number.to_be_bytes()) {
            *digits = DIGITS[usize::from(byte)];
        }
        let start = 16 - digits;
        text.bytes.as_flattened_mut()[start..start + 2].copy_from_slice(b"0x");
        text
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let bytes = self.bytes.as_flattened();
        &bytes[bytes.len() - self.length..]
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// Named values in the order of the record.
pub type Fields<'a> = Vec<(&'static str, Value<'a>)>;

impl<'a> Value<'a> {
    /// The value with this name, if this is a map that has it.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(fields) => fields.iter().find(|(n, _)| *n == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The values of a list.
    pub fn items(&self) -> &[Value<'a>] {
        match self {
            Value::List(values) => values,
            _ => &[],
        }
    }

    /// The value, if it is a non-negative number.
    pub fn number(&self) -> Option<u64> {
        match *self {
            Value::Number(number) | Value::Hex(number) => Some(number),
            Value::Signed(number) => number.try_into().ok(),
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn text(&self) -> Option<&'a [u8]> {
        match *self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A deviation from the format that did not stop decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// A short stable name, e.g. `string-unterminated`.
    pub code: FaultCode,
    /// One sentence, with the numbers.
    pub what: String,
}

/// A decoded record or feature section.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded<'a> {
    /// The fields that were decoded.
    pub fields: Fields<'a>,
    /// Deviations from the format.
    pub issues: Vec<Issue>,
    /// The ranges without a field, counted from the start of the record's body or of the section: padding,
    /// reserved bytes, bytes after a NUL, and everything from the first byte on that could not be decoded.
    pub gaps: Vec<Range<usize>>,
}

impl<'a> Decoded<'a> {
    /// Adds a field.
    pub fn push(&mut self, name: &'static str, value: Value<'a>) {
        self.fields.push((name, value));
    }

    /// Notes an oddity.
    pub fn add_issue(&mut self, code: FaultCode, what: impl Into<String>) {
        self.issues.push(Issue { code, what: what.into() });
    }

    /// The field with this name.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// True if decoding stopped at a number that determines the rest of the layout: an unknown kind, type or
    /// version, or a count or size for which there is no room.
    pub fn has_unknown_layout(&self) -> bool {
        let codes = [
            FaultCode::KindUnknown,
            FaultCode::CpuMapType,
            FaultCode::UpdateType,
            FaultCode::SchedstatVersion,
            FaultCode::CountTooLarge,
            FaultCode::TooSmall,
        ];
        self.issues.iter().any(|issue| codes.contains(&issue.code))
    }

    /// The texts and bytes among the values, at any depth: the name of each (items have that of their list),
    /// and its range in the decoded `bytes`.
    pub fn texts(&self, bytes: &[u8]) -> Vec<(&'static str, Range<usize>)> {
        fn add(
            name: &'static str,
            value: &Value<'_>,
            all: &mut Vec<(&'static str, Range<usize>)>,
            start: usize,
        ) {
            match value {
                Value::Text(text) | Value::Bytes(text) => {
                    let at = text.as_ptr().addr().wrapping_sub(start);
                    all.push((name, at..at.wrapping_add(text.len())));
                }
                Value::List(values) => values.iter().for_each(|value| add(name, value, all, start)),
                Value::Map(fields) => fields.iter().for_each(|(name, value)| add(name, value, all, start)),
                _ => {}
            }
        }
        let mut all = Vec::new();
        let start = bytes.as_ptr().addr();
        self.fields.iter().for_each(|(name, value)| add(name, value, &mut all, start));
        // Drops values in other bytes, such as a payload after the record.
        all.retain(|(_, place)| bytes.get(place.clone()).is_some());
        all
    }

    pub(crate) fn add_gaps(&mut self, at: usize, gaps: Vec<Range<usize>>) {
        self.gaps.extend(gaps.into_iter().map(|gap| gap.start + at..gap.end + at));
    }
}

/// Fills these bytes with zeros, and returns the number of those that were not zero.
pub fn clear(bytes: &mut [u8], range: Range<usize>) -> u64 {
    let bytes = bytes.get_mut(range).unwrap_or_default();
    let count = bytes.iter().filter(|&&byte| byte != 0).count();
    bytes.fill(0);
    count as u64
}

/// The names of the set bits joined by `|`, unknown bits as `bitN`; `-` if none is set.
pub fn bit_names(mut bits: u64, names: &[(u32, &'static str)]) -> Cow<'static, str> {
    let mut all = Cow::Borrowed("");
    while bits != 0 {
        let bit = bits.trailing_zeros();
        bits &= bits - 1;
        let name = match names.iter().find(|(number, _)| *number == bit) {
            Some((_, name)) => Cow::Borrowed(*name),
            None => format!("bit{bit}").into(),
        };
        if all.is_empty() {
            all = name;
        } else {
            *all.to_mut() += "|";
            *all.to_mut() += &name;
        }
    }
    if all.is_empty() { "-".into() } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_not_called_bytes() {
        assert_eq!([bytes_of(0_u64), bytes_of(1_usize), bytes_of(7_u32)], ["0 bytes", "1 byte", "7 bytes"]);
        let left = |bytes: u64| bytes_that(bytes, " is left", " are left");
        assert_eq!([left(1), left(2)], ["1 byte is left", "2 bytes are left"]);
    }

    #[test]
    fn hex_numbers_are_those_of_fmt() {
        let edges =
            (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, 0x1234_5678_9abc_def0 >> bit, !0 << bit]);
        for number in edges {
            assert_eq!(HexNumber::new(number).as_str(), format!("{number:#x}"));
        }
        let mut text = b"=".to_vec();
        push_hex(&mut text, &[0, 0x9f, 0xa0, 0xff]);
        assert_eq!(text, b"=009fa0ff");
        assert_eq!(hex(&[0, 0x9f, 0xa0, 0xff]), "009fa0ff");
    }

    #[test]
    fn names_of_bits_are_joined() {
        let names = [(0, "READ"), (2, "EXEC")];
        assert_eq!(
            [0, 1, 2, 5, 7].map(|bits| bit_names(bits, &names)),
            ["-", "READ", "bit1", "READ|EXEC", "READ|bit1|EXEC"]
        );
    }
}
