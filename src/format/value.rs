//! Describes the result of decoding: named values for display, JSON or checks. Other modules decide how to
//! show them.

use std::borrow::Cow;

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

/// Bytes as hex digits without separators.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
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
    pub code: &'static str,
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
}

impl<'a> Decoded<'a> {
    /// Adds a field.
    pub fn push(&mut self, name: &'static str, value: Value<'a>) {
        self.fields.push((name, value));
    }

    /// Notes an oddity.
    pub fn add_issue(&mut self, code: &'static str, what: impl Into<String>) {
        self.issues.push(Issue { code, what: what.into() });
    }

    /// The field with this name.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// The names of the set bits joined by `|`, unknown bits as `bitN`; `-` if none is set.
pub fn bit_names(mut bits: u64, names: &[(u32, &str)]) -> String {
    let mut words = Vec::new();
    while bits != 0 {
        let bit = bits.trailing_zeros();
        bits &= bits - 1;
        match names.iter().find(|(number, _)| *number == bit) {
            Some((_, name)) => words.push((*name).to_owned()),
            None => words.push(format!("bit{bit}")),
        }
    }
    if words.is_empty() { "-".to_owned() } else { words.join("|") }
}
